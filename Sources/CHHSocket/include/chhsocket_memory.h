// SPDX-License-Identifier: Apache-2.0
// Memory that the C library keeps after it was freed.

#ifndef CHHSOCKET_MEMORY_H
#define CHHSOCKET_MEMORY_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Gives freed memory back to the system, as far as the C library can: with glibc `malloc_trim`, on Apple's systems
/// `malloc_zone_pressure_relief`. Returns false where there is no such function.
bool chhsocket_return_free_memory(void);

#ifdef __cplusplus
}
#endif

#endif
