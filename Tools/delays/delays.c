// SPDX-License-Identifier: Apache-2.0
// Delays threads at random where they give way: behind a mutex that is released, around reads and writes, and behind a
// wait for events. Tests that take an order of threads for granted which nothing guarantees then fail, on any machine.
// `make test-delayed` preloads it into the tests, on Linux.
//
// DELAY_ODDS: on average one wait for events in so many is delayed, one read or write in twice as many, and one release
// of a mutex in twenty times as many; 0, the default, for none. DELAY_MICROSECONDS: the longest delay; 10,000 by default.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static unsigned odds;
static unsigned longest = 10000;

__attribute__((constructor)) static void begin(void) {
    const char *value = getenv("DELAY_ODDS");
    if (value) odds = strtoul(value, NULL, 10);
    value = getenv("DELAY_MICROSECONDS");
    if (value && strtoul(value, NULL, 10) > 0) longest = strtoul(value, NULL, 10);
}

// xorshift64, for each thread its own.
static uint64_t draw(void) {
    static __thread uint64_t state;
    if (state == 0) {
        struct timespec now;
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        state = ((uint64_t)now.tv_nsec << 20 ^ (uint64_t)syscall(SYS_gettid)) | 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void delay(unsigned weight) {
    if (odds == 0 || draw() % ((uint64_t)odds * weight) != 0) return;
    int error = errno;
    long nanoseconds = (long)(draw() % longest) * 1000;
    struct timespec span = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    syscall(SYS_nanosleep, &span, NULL);
    errno = error;
}

#define REAL(name)                                       \
    static __typeof__(name) *real;                       \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

int epoll_wait(int descriptor, struct epoll_event *events, int count, int timeout) {
    REAL(epoll_wait);
    int result = real(descriptor, events, count, timeout);
    delay(1);
    return result;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    REAL(pthread_mutex_unlock);
    int result = real(mutex);
    delay(20);
    return result;
}

ssize_t read(int descriptor, void *bytes, size_t count) {
    REAL(read);
    ssize_t result = real(descriptor, bytes, count);
    delay(2);
    return result;
}

ssize_t write(int descriptor, const void *bytes, size_t count) {
    REAL(write);
    delay(2);
    ssize_t result = real(descriptor, bytes, count);
    delay(2);
    return result;
}

ssize_t writev(int descriptor, const struct iovec *vectors, int count) {
    REAL(writev);
    delay(2);
    ssize_t result = real(descriptor, vectors, count);
    delay(2);
    return result;
}
