// SPDX-License-Identifier: Apache-2.0
#include "chhsocket_clock.h"

#include <time.h>

uint64_t chhsocket_thread_time(void) {
    struct timespec time = {0, 0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
