// What the processor can do, found out once.

#ifndef CHHSOCKET_PROCESSOR_H
#define CHHSOCKET_PROCESSOR_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    PROCESSOR_IS_KNOWN = 1 << 0,
    PROCESSOR_HAS_SSSE3 = 1 << 1,
    PROCESSOR_HAS_AVX2 = 1 << 2,
    /// SHA-1 and SHA-256, and on x86 SSE4.1 beside them.
    PROCESSOR_HAS_SHA = 1 << 3
};

extern _Atomic(uint32_t) chhsocket_processor_features __attribute__((visibility("hidden")));

__attribute__((visibility("hidden"))) uint32_t chhsocket_detect_processor(void);

/// The bits above. Threads that ask first at once each find out; they store the same, and nothing else depends on it.
static inline uint32_t processor_features(void) {
    uint32_t features = atomic_load_explicit(&chhsocket_processor_features, memory_order_relaxed);
    return features != 0 ? features : chhsocket_detect_processor();
}

#endif
