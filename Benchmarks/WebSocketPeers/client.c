// SPDX-License-Identifier: Apache-2.0
/*
 * The client of Benchmarks/Scripts/bench-websocket: one connection to an echo server, on which it keeps a number of binary messages
 * outstanding.
 *
 *     client PORT LENGTH IN-FLIGHT WARM-UP SECONDS SERVER-PID
 *
 * One thread. Each message has its number in its first eight bytes and, from 16 bytes on, in its last eight; number and
 * length are checked in each echo, which may arrive in fragments. Frames are masked by a fixed key, so that the server has
 * to unmask them while the client copies a small frame from a template, and of a large one only the numbers: as little
 * work as possible besides the kernel's.
 *
 * Prints messages per second, and the CPU time of each message in the server and in the client, in microseconds.
 * Exits with 1 where an echo is wrong or the connection ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NUMBER = 8, SMALL = 2048, FRAMES_PER_WRITE = 256, READ = 256 << 10 };

static const uint8_t key[4] = {0x9d, 0x31, 0x5c, 0xe7};

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static double seconds_of(clockid_t clock) {
    struct timespec time;
    if (clock_gettime(clock, &time) != 0) fail("no clock: %s", strerror(errno));
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Sent messages */

static size_t length;
static uint8_t *template;
static size_t frame_length, header_length;
/* The numbers of the next message to be sent, and of the next that is expected. */
static uint64_t next_sent, next_received;
static uint64_t in_flight;
/* The part of the first unfinished frame that the kernel has taken. */
static size_t sent_of_frame;

static void mask(uint8_t *bytes, size_t count, size_t position) {
    for (size_t index = 0; index < count; index++) bytes[index] ^= key[(position + index) & 3];
}

static void make_template(void) {
    template = malloc(14 + length);
    if (!template) fail("no memory");
    template[0] = 0x82;
    if (length <= 125) {
        template[1] = (uint8_t)(0x80 | length);
        header_length = 2;
    } else if (length <= 0xffff) {
        template[1] = 0x80 | 126;
        template[2] = (uint8_t)(length >> 8);
        template[3] = (uint8_t)length;
        header_length = 4;
    } else {
        template[1] = 0x80 | 127;
        for (int index = 0; index < 8; index++) template[2 + index] = (uint8_t)((uint64_t)length >> (56 - 8 * index));
        header_length = 10;
    }
    memcpy(template + header_length, key, sizeof key);
    header_length += sizeof key;
    frame_length = header_length + length;
    uint32_t state = 2463534242u;
    for (size_t index = 0; index < length; index++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        template[header_length + index] = (uint8_t)state;
    }
    mask(template + header_length, length, 0);
}

/* Writes the masked number, which stands at `position` of a message. */
static void put_number(uint8_t *place, uint64_t number, size_t position) {
    memcpy(place, &number, NUMBER);
    mask(place, NUMBER, position);
}

/* The beginning, with the header, and the end of a large frame; the bytes in between are the template's. */
struct ends {
    uint8_t first[14 + NUMBER], last[NUMBER];
};

static void skip(struct iovec **vectors, int *count, size_t bytes) {
    while (*count > 0 && bytes >= (*vectors)->iov_len) {
        bytes -= (*vectors)->iov_len;
        (*vectors)++, (*count)--;
    }
    if (*count > 0) {
        (*vectors)->iov_base = (uint8_t *)(*vectors)->iov_base + bytes;
        (*vectors)->iov_len -= bytes;
    }
}

/* Sends messages up to the limit of outstanding ones. Returns whether the kernel took all of them. */
static int send_messages(int connection) {
    static uint8_t small[FRAMES_PER_WRITE * (14 + SMALL)];
    static struct ends ends[FRAMES_PER_WRITE];
    static struct iovec storage[3 * FRAMES_PER_WRITE];
    while (next_sent < next_received + in_flight) {
        uint64_t frames = next_received + in_flight - next_sent;
        if (frames > FRAMES_PER_WRITE) frames = FRAMES_PER_WRITE;
        struct iovec *vectors = storage;
        int count = 0;
        for (uint64_t index = 0; index < frames; index++) {
            uint64_t number = next_sent + index;
            if (length <= SMALL) {
                uint8_t *frame = small + index * frame_length;
                memcpy(frame, template, frame_length);
                put_number(frame + header_length, number, 0);
                if (length >= 2 * NUMBER) put_number(frame + frame_length - NUMBER, number, length - NUMBER);
            } else {
                struct ends *end = &ends[index];
                memcpy(end->first, template, header_length);
                put_number(end->first + header_length, number, 0);
                put_number(end->last, number, length - NUMBER);
                storage[count++] = (struct iovec){end->first, header_length + NUMBER};
                storage[count++] = (struct iovec){template + header_length + NUMBER, length - 2 * NUMBER};
                storage[count++] = (struct iovec){end->last, NUMBER};
            }
        }
        if (length <= SMALL) storage[count++] = (struct iovec){small, frames * frame_length};
        size_t all = frames * frame_length - sent_of_frame;
        skip(&vectors, &count, sent_of_frame);
        ssize_t sent = writev(connection, vectors, count);
        if (sent < 0) {
            if (errno == EAGAIN || errno == EINTR) return 0;
            fail("write: %s", strerror(errno));
        }
        uint64_t progress = sent_of_frame + (uint64_t)sent;
        next_sent += progress / frame_length;
        sent_of_frame = progress % frame_length;
        if ((size_t)sent < all) return 0;
    }
    return 1;
}

/* Received messages */

static uint8_t input[READ];
static size_t input_start, input_end;
/* The number of missing bytes of the current frame, and of received bytes of the current message. */
static uint64_t rest_of_frame, received_of_message;
static int is_in_message, is_in_frame, is_final;
static uint8_t first[NUMBER], last[NUMBER];

static void finish_message(void) {
    uint64_t number;
    if (received_of_message != length) fail("an echo of %llu bytes", (unsigned long long)received_of_message);
    memcpy(&number, first, NUMBER);
    if (number != next_received) fail("echo %llu begins wrong", (unsigned long long)next_received);
    memcpy(&number, last, NUMBER);
    if (length >= 2 * NUMBER && number != next_received) fail("echo %llu ends wrong", (unsigned long long)next_received);
    next_received++;
    is_in_message = 0;
}

/* Takes bytes of a message, and keeps those of its numbers. */
static void take(const uint8_t *bytes, size_t count) {
    size_t position = (size_t)received_of_message;
    if (count > length - position) fail("an echo that is too long");
    if (position < NUMBER) {
        size_t some = NUMBER - position < count ? NUMBER - position : count;
        memcpy(first + position, bytes, some);
    }
    size_t from = length - NUMBER > position ? length - NUMBER : position;
    if (from < position + count) memcpy(last + from - (length - NUMBER), bytes + from - position, position + count - from);
    received_of_message += count;
}

/* Returns whether the header was complete. */
static int take_header(void) {
    const uint8_t *header = input + input_start;
    size_t available = input_end - input_start, size = 2;
    if (available < size) return 0;
    uint64_t payload = header[1];
    if (payload == 126) size = 4;
    if (payload == 127) size = 10;
    if (available < size) return 0;
    if (size > 2) {
        payload = 0;
        for (size_t index = 2; index < size; index++) payload = payload << 8 | header[index];
    }
    if ((header[0] & 0x7f) != (is_in_message ? 0 : 2)) fail("a frame that begins with %02x", header[0]);
    if (!is_in_message) received_of_message = 0;
    is_in_message = 1;
    is_final = header[0] >> 7;
    rest_of_frame = payload;
    is_in_frame = 1;
    input_start += size;
    return 1;
}

/* Takes the bytes of a read. */
static void take_input(void) {
    while (1) {
        if (!is_in_frame && !take_header()) break;
        size_t available = input_end - input_start;
        size_t count = rest_of_frame < available ? (size_t)rest_of_frame : available;
        take(input + input_start, count);
        input_start += count;
        rest_of_frame -= count;
        if (rest_of_frame > 0) break;
        is_in_frame = 0;
        if (is_final) finish_message();
    }
    memmove(input, input + input_start, input_end - input_start);
    input_end -= input_start;
    input_start = 0;
}

/* The connection */

static int open_connection(int port) {
    int connection = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) != 0) {
        fail("connect: %s", strerror(errno));
    }
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    dprintf(
        connection,
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        port
    );
    /* Byte by byte, so that nothing after the answer is read. */
    char answer[4096];
    size_t count = 0;
    while (count < 4 || memcmp(answer + count - 4, "\r\n\r\n", 4) != 0) {
        if (count == sizeof answer - 1 || read(connection, answer + count, 1) != 1) fail("no answer to the request");
        count++;
    }
    answer[count] = 0;
    if (strncmp(answer, "HTTP/1.1 101", 12) != 0) fail("refused: %s", answer);
    return connection;
}

int main(int count, char **arguments) {
    if (count != 7) fail("usage: client PORT LENGTH IN-FLIGHT WARM-UP SECONDS SERVER-PID");
    length = strtoul(arguments[2], NULL, 10);
    in_flight = strtoull(arguments[3], NULL, 10);
    double warm_up = atof(arguments[4]), duration = atof(arguments[5]);
    if (length < NUMBER || in_flight < 1) fail("a message has %d bytes at least, and one is in flight", NUMBER);
    clockid_t server;
    if (clock_getcpuclockid(atoi(arguments[6]), &server) != 0) fail("no process %s", arguments[6]);
    alarm((unsigned)(warm_up + duration) + 30);
    make_template();
    int connection = open_connection(atoi(arguments[1]));
    double began = seconds_of(CLOCK_MONOTONIC), measured_from = 0, server_before = 0, client_before = 0;
    uint64_t messages_before = 0;
    int is_measuring = 0;
    while (1) {
        int all_left = send_messages(connection);
        struct pollfd events = {connection, (short)(POLLIN | (all_left ? 0 : POLLOUT)), 0};
        ssize_t received = recv(connection, input + input_end, sizeof input - input_end, MSG_DONTWAIT);
        if (received < 0 && errno == EAGAIN) {
            poll(&events, 1, -1);
            continue;
        }
        if (received <= 0) fail("the server has ended the connection");
        input_end += (size_t)received;
        take_input();
        double now = seconds_of(CLOCK_MONOTONIC);
        if (!is_measuring && now - began >= warm_up) {
            is_measuring = 1;
            measured_from = now;
            server_before = seconds_of(server);
            client_before = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
            messages_before = next_received;
        } else if (is_measuring && now - measured_from >= duration) {
            double messages = (double)(next_received - messages_before);
            if (messages == 0) fail("no echo in %g s", duration);
            printf(
                "{\"messages_per_s\": %.1f, \"server_us\": %.4f, \"client_us\": %.4f}\n",
                messages / (now - measured_from),
                (seconds_of(server) - server_before) * 1e6 / messages,
                (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - client_before) * 1e6 / messages
            );
            return 0;
        }
    }
}
