// SPDX-License-Identifier: Apache-2.0
#include "sha_blocks.h"

#if defined(CHHSOCKET_SHA_ARM)

#include <arm_neon.h>

#if defined(__ARM_FEATURE_SHA2) || defined(__ARM_FEATURE_CRYPTO)
#define WITH_SHA
#elif defined(__clang__)
#define WITH_SHA __attribute__((target("sha2")))
#else
#define WITH_SHA __attribute__((target("+crypto")))
#endif

// The instructions compute four rounds at a time. All vectors have their first word in the lowest lane.

/// Loads 16 bytes as four big-endian words.
WITH_SHA static inline uint32x4_t load(const uint8_t *bytes) {
    uint8x16_t vector = vld1q_u8(bytes);
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    vector = vrev32q_u8(vector);
#endif
    return vreinterpretq_u32_u8(vector);
}

WITH_SHA void chhsocket_sha1_instructions(uint32_t *state, const uint8_t *blocks, size_t count) {
    static const uint32_t constants[4] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
    uint32x4_t abcd = vld1q_u32(state);
    uint32_t e = state[4];
    for (; count > 0; count--, blocks += 64) {
        const uint32x4_t abcd_before = abcd;
        const uint32_t e_before = e;
        uint32x4_t w[4];
        for (int i = 0; i < 4; i++) w[i] = load(blocks + 16 * i);
#define FOUR(t, f) \
    if ((t) > 3) { \
        uint32x4_t words = vsha1su0q_u32(w[(t) & 3], w[(t + 1) & 3], w[(t + 2) & 3]); \
        w[(t) & 3] = vsha1su1q_u32(words, w[(t + 3) & 3]); \
    } \
    { \
        /* After four rounds, a rotated is e. */ \
        uint32_t next_e = vsha1h_u32(vgetq_lane_u32(abcd, 0)); \
        abcd = f(abcd, e, vaddq_u32(w[(t) & 3], vdupq_n_u32(constants[(t) / 5]))); \
        e = next_e; \
    }
#define TWENTY(t, f) FOUR(t, f) FOUR(t + 1, f) FOUR(t + 2, f) FOUR(t + 3, f) FOUR(t + 4, f)
        TWENTY(0, vsha1cq_u32)
        TWENTY(5, vsha1pq_u32)
        TWENTY(10, vsha1mq_u32)
        TWENTY(15, vsha1pq_u32)
#undef TWENTY
#undef FOUR
        abcd = vaddq_u32(abcd, abcd_before);
        e += e_before;
    }
    vst1q_u32(state, abcd);
    state[4] = e;
}

WITH_SHA void chhsocket_sha256_instructions(uint32_t *state, const uint8_t *blocks, size_t count) {
    uint32x4_t abcd = vld1q_u32(state);
    uint32x4_t efgh = vld1q_u32(state + 4);
    for (; count > 0; count--, blocks += 64) {
        const uint32x4_t abcd_before = abcd, efgh_before = efgh;
        uint32x4_t w[4];
        for (int i = 0; i < 4; i++) w[i] = load(blocks + 16 * i);
#define FOUR(t) \
    if ((t) > 3) { \
        uint32x4_t words = vsha256su0q_u32(w[(t) & 3], w[(t + 1) & 3]); \
        w[(t) & 3] = vsha256su1q_u32(words, w[(t + 2) & 3], w[(t + 3) & 3]); \
    } \
    { \
        uint32x4_t words = vaddq_u32(w[(t) & 3], vld1q_u32(chhsocket_sha256_constants + 4 * (t))); \
        uint32x4_t abcd_of_rounds = abcd; \
        abcd = vsha256hq_u32(abcd, efgh, words); \
        efgh = vsha256h2q_u32(efgh, abcd_of_rounds, words); \
    }
#define SIXTEEN(t) FOUR(t) FOUR(t + 1) FOUR(t + 2) FOUR(t + 3)
        SIXTEEN(0)
        SIXTEEN(4)
        SIXTEEN(8)
        SIXTEEN(12)
#undef SIXTEEN
#undef FOUR
        abcd = vaddq_u32(abcd, abcd_before);
        efgh = vaddq_u32(efgh, efgh_before);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}

#endif
