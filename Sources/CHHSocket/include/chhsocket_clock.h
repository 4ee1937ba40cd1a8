// Processor time, which Swift cannot ask for everywhere: in release builds the module of `timespec` is not the C library's.

#ifndef CHHSOCKET_CLOCK_H
#define CHHSOCKET_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The processor time of the calling thread, in nanoseconds.
uint64_t chhsocket_thread_time(void);

#ifdef __cplusplus
}
#endif

#endif
