// SPDX-License-Identifier: Apache-2.0
// The features of the processor, detected once.

#ifndef CHHSOCKET_PROCESSOR_H
#define CHHSOCKET_PROCESSOR_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    PROCESSOR_IS_KNOWN = 1 << 0,
    PROCESSOR_HAS_SSSE3 = 1 << 1,
    PROCESSOR_HAS_AVX2 = 1 << 2,
    /// SHA-1 and SHA-256 instructions, on x86 together with SSE4.1.
    PROCESSOR_HAS_SHA = 1 << 3
};

extern _Atomic(uint32_t) chhsocket_processor_features __attribute__((visibility("hidden")));

__attribute__((visibility("hidden"))) uint32_t chhsocket_detect_processor(void);

/// Returns the bits above. Several threads may detect them at the same time; all store the same value, and nothing else
/// depends on it.
static inline uint32_t processor_features(void) {
    uint32_t features = atomic_load_explicit(&chhsocket_processor_features, memory_order_relaxed);
    return features != 0 ? features : chhsocket_detect_processor();
}

#endif
