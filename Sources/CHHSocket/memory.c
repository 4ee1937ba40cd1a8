// SPDX-License-Identifier: Apache-2.0
#include "chhsocket_memory.h"

#include <stdlib.h>

#if defined(__GLIBC__)
#include <malloc.h>
#elif defined(__APPLE__)
#include <malloc/malloc.h>
#endif

bool chhsocket_return_free_memory(void) {
#if defined(__GLIBC__)
    malloc_trim(0);
    return true;
#elif defined(__APPLE__)
    malloc_zone_pressure_relief(NULL, 0);
    return true;
#else
    return false;
#endif
}
