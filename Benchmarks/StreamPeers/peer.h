// SPDX-License-Identifier: Apache-2.0
// The common parts of the peers: options, clocks, and the line of JSON. Plain C, which C++ and Swift include too.
//
//     SERVER PORT
//     CLIENT PORT BODY WARM_UP SECONDS SERVER_PID
#ifndef PEER_H
#define PEER_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static inline double peer_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline double peer_cpu(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

// The CPU time of all threads of another process, by its CPU clock.
static inline double peer_cpu_of(int process) {
    struct timespec time;
    clockid_t clock;
    if (clock_getcpuclockid(process, &clock) || clock_gettime(clock, &time)) return -1;
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline void peer_ready(int port) {
    printf("READY %d\n", port);
    fflush(stdout);
}

// One stream, from the first item to the end of the measurement.
typedef struct {
    int port, body, server;
    double warm_up, seconds;
    int phase;  // 0: warming up; 1: measuring; 2: over
    uint64_t items, measured;
    double next, begun, client_cpu, server_cpu;
    uint32_t until_look, stride;
} peer_run;

static inline peer_run peer_parse(int argc, char *const *argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: %s PORT BODY WARM_UP SECONDS SERVER_PID\n", argv[0]);
        exit(2);
    }
    peer_run run;
    memset(&run, 0, sizeof run);
    run.port = atoi(argv[1]);
    run.body = atoi(argv[2]);
    run.warm_up = atof(argv[3]);
    run.seconds = atof(argv[4]);
    run.server = atoi(argv[5]);
    // The clock is read once for 64 KiB or 64 items.
    run.stride = run.body > 1024 ? 65536 / (uint32_t)run.body : 64;
    if (run.stride == 0) run.stride = 1;
    alarm((unsigned)(run.warm_up + run.seconds) + 30);
    return run;
}

static inline void peer_look(peer_run *run) {
    double now = peer_now();
    run->until_look = run->stride;
    if (run->next == 0) run->next = now + run->warm_up;
    if (now < run->next) return;
    if (run->phase == 0) {
        run->phase = 1;
        run->measured = run->items;
        run->begun = now;
        run->next = now + run->seconds;
        run->client_cpu = peer_cpu();
        run->server_cpu = peer_cpu_of(run->server);
    } else if (run->phase == 1) {
        run->phase = 2;
        uint64_t items = run->items - run->measured;
        double seconds = now - run->begun;
        printf("{\"items_per_s\":%.1f,\"mb_per_s\":%.2f,\"client_cpu_s\":%.4f,\"server_cpu_s\":%.4f,\"seconds\":%.4f,"
               "\"items\":%llu}\n",
               (double)items / seconds, 1e-6 * (double)items * run->body / seconds, peer_cpu() - run->client_cpu,
               peer_cpu_of(run->server) - run->server_cpu, seconds, (unsigned long long)items);
        fflush(stdout);
    }
}

// Counts an item that has arrived. Returns whether more are wanted.
static inline int peer_item(peer_run *run, size_t length) {
    if (length != (size_t)run->body) {
        fprintf(stderr, "an item has %zu bytes, and not %d\n", length, run->body);
        exit(1);
    }
    run->items += 1;
    if (run->until_look-- == 0) peer_look(run);
    return run->phase < 2;
}
#endif
