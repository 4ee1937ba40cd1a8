// SPDX-License-Identifier: Apache-2.0
#include "processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

_Atomic(uint32_t) chhsocket_processor_features = 0;

#if defined(__x86_64__)
// Not by __builtin_cpu_supports: it requires a symbol of the compiler's library, and older compilers do not know "sha".
// The bits are those of CPUID in Intel's manual, volume 2A.
static uint32_t detect(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    uint32_t features = 0;
    unsigned has_sse41 = c >> 19 & 1;
    unsigned has_avx = c >> 28 & 1;
    if (c >> 9 & 1) features |= PROCESSOR_HAS_SSSE3;
    // The wide registers can be used only if the system saves them too, which XGETBV reports if OSXSAVE is set.
    if (has_avx && (c >> 27 & 1)) {
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        has_avx = (low & 6) == 6;
    } else {
        has_avx = 0;
    }
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
    if (has_avx && (b >> 5 & 1)) features |= PROCESSOR_HAS_AVX2;
    if (has_sse41 && (features & PROCESSOR_HAS_SSSE3) && (b >> 29 & 1)) features |= PROCESSOR_HAS_SHA;
    return features;
}
#elif defined(__aarch64__) && (defined(__ARM_FEATURE_SHA2) || defined(__ARM_FEATURE_CRYPTO))
static uint32_t detect(void) { return PROCESSOR_HAS_SHA; }
#elif defined(__aarch64__) && defined(__linux__)
static uint32_t detect(void) {
    // HWCAP_SHA1 and HWCAP_SHA2 of <asm/hwcap.h>, part of the kernel's interface.
    const unsigned long needed = 1 << 5 | 1 << 6;
    return (getauxval(AT_HWCAP) & needed) == needed ? PROCESSOR_HAS_SHA : 0;
}
#else
static uint32_t detect(void) { return 0; }
#endif

uint32_t chhsocket_detect_processor(void) {
    uint32_t features = detect() | PROCESSOR_IS_KNOWN;
    atomic_store_explicit(&chhsocket_processor_features, features, memory_order_relaxed);
    return features;
}
