// SPDX-License-Identifier: Apache-2.0
// A link between two network namespaces, with a rate, a delay each way, and a queue that drops packets when it is full.
//
//     link PID ADDRESS PID ADDRESS RATE DELAY QUEUE
//
// PID is a process in the namespace; RATE is in kbit/s, DELAY in milliseconds, QUEUE in bytes. Each namespace gets a
// TUN device with its address, whose peer is the other's. "ready" on standard output shows that the link is up; the end
// of standard input ends it, and "forwarded N dropped N" is printed. Linux only, for root only.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MTU = 1500, SLOTS = 1 << 13 };

typedef struct {
    uint64_t due;
    uint16_t length;
    uint8_t bytes[MTU + 14];
} packet;

// One direction of the link: the packets read from one device and due at the other, in order.
typedef struct {
    packet slots[SLOTS];
    uint64_t head, tail;
    // The time at which the last bit of the waiting packets will have left.
    uint64_t free;
} way;

static way ways[2];
static uint64_t forwarded, dropped;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void set_address(struct ifreq *request, const char *text) {
    struct sockaddr_in *address = (struct sockaddr_in *)&request->ifr_addr;
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    if (inet_pton(AF_INET, text, &address->sin_addr) != 1) fail(text);
}

// Opens a device in the namespace of a process. The device stays there, and its descriptor works here.
static int open_device(const char *pid, const char *address, const char *peer) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there = open(path, O_RDONLY | O_CLOEXEC);
    if (here < 0 || there < 0 || setns(there, CLONE_NEWNET) != 0) fail(path);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strcpy(request.ifr_name, "link");
    if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0) fail("/dev/net/tun");
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    set_address(&request, address);
    if (ioctl(control, SIOCSIFADDR, &request) != 0) fail("address");
    set_address(&request, peer);
    if (ioctl(control, SIOCSIFDSTADDR, &request) != 0) fail("peer's address");
    request.ifr_mtu = MTU;
    if (ioctl(control, SIOCSIFMTU, &request) != 0) fail("MTU");
    request.ifr_qlen = SLOTS;
    if (ioctl(control, SIOCSIFTXQLEN, &request) != 0) fail("length of the queue");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(control, SIOCSIFFLAGS, &request) != 0) fail("up");
    close(control);
    if (setns(here, CLONE_NEWNET) != 0) fail("namespace");
    close(here);
    close(there);
    return device;
}

int main(int count, char **arguments) {
    if (count != 8) {
        fputs("usage: link PID ADDRESS PID ADDRESS RATE DELAY QUEUE\n", stderr);
        return 64;
    }
    int devices[2] = {
        open_device(arguments[1], arguments[2], arguments[4]),
        open_device(arguments[3], arguments[4], arguments[2]),
    };
    // Nanoseconds per byte.
    double byte = 8e6 / atof(arguments[5]);
    uint64_t delay = (uint64_t)(atof(arguments[6]) * 1e6);
    double queue = atof(arguments[7]);
    puts("ready");
    fflush(stdout);
    for (;;) {
        uint64_t time = now(), next = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            way *w = &ways[i];
            while (w->head < w->tail && w->slots[w->head % SLOTS].due <= time) {
                packet *p = &w->slots[w->head++ % SLOTS];
                if (write(devices[1 - i], p->bytes, p->length) == p->length) forwarded++;
                else dropped++;
            }
            if (w->head < w->tail && w->slots[w->head % SLOTS].due < next) next = w->slots[w->head % SLOTS].due;
        }
        struct pollfd polled[3] = {{devices[0], POLLIN, 0}, {devices[1], POLLIN, 0}, {0, POLLIN, 0}};
        time = now();
        uint64_t rest = next == UINT64_MAX ? 1000000000u : next > time ? next - time : 0;
        struct timespec timeout = {(time_t)(rest / 1000000000u), (long)(rest % 1000000000u)};
        if (ppoll(polled, 3, &timeout, NULL) < 0) continue;
        time = now();
        for (int i = 0; i < 2; i++) {
            if (!(polled[i].revents & POLLIN)) continue;
            way *w = &ways[i];
            for (int n = 0; n < 64; n++) {
                packet *p = &w->slots[w->tail % SLOTS];
                uint8_t spare[sizeof p->bytes];
                int is_full = w->tail - w->head == SLOTS;
                ssize_t length = read(devices[i], is_full ? spare : p->bytes, sizeof p->bytes);
                if (length <= 0) break;
                if (w->free < time) w->free = time;
                if (is_full || (double)(w->free - time) / byte + (double)length > queue) {
                    dropped++;
                    continue;
                }
                w->free += (uint64_t)(byte * (double)length);
                p->due = w->free + delay;
                p->length = (uint16_t)length;
                w->tail++;
            }
        }
        if (polled[2].revents) {
            char byte_of_input;
            if (read(0, &byte_of_input, 1) <= 0) break;
        }
    }
    printf("forwarded %llu dropped %llu\n", (unsigned long long)forwarded, (unsigned long long)dropped);
    return 0;
}
