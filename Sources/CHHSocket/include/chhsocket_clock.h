// SPDX-License-Identifier: Apache-2.0
// The processor time, and the members of times, which Swift cannot access everywhere: depending on what else is
// compiled with it, the compiler considers `timespec` to belong to another module than the C library's.

#ifndef CHHSOCKET_CLOCK_H
#define CHHSOCKET_CLOCK_H

#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The processor time of the calling thread, in nanoseconds.
uint64_t chhsocket_thread_time(void);

/// The whole seconds of a time.
static inline int64_t chhsocket_seconds(struct timespec time) { return (int64_t)time.tv_sec; }

/// The nanoseconds of a time that are no whole seconds.
static inline int64_t chhsocket_nanoseconds(struct timespec time) { return (int64_t)time.tv_nsec; }

#ifdef __cplusplus
}
#endif

#endif
