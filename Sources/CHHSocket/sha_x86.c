// SPDX-License-Identifier: Apache-2.0
#include "sha_blocks.h"

#if defined(CHHSOCKET_SHA_X86)

#include <immintrin.h>

// The instructions compute four rounds at a time (SHA-1) or two (SHA-256). Intel's manual, volume 2B, has the order of
// their operands' lanes.

#define WITH_SHA __attribute__((target("sha,sse4.1,ssse3")))

WITH_SHA static inline __m128i load(const void *bytes) { return _mm_loadu_si128((const __m128i *)bytes); }

/// Returns the next four words of the schedule, the first in the highest lane; `w` has the 16 words before them, in a
/// ring.
WITH_SHA static inline __m128i schedule_sha1(const __m128i w[4], int t) {
    __m128i words = _mm_sha1msg1_epu32(w[t & 3], w[(t + 1) & 3]);
    return _mm_sha1msg2_epu32(_mm_xor_si128(words, w[(t + 2) & 3]), w[(t + 3) & 3]);
}

WITH_SHA void chhsocket_sha1_instructions(uint32_t *state, const uint8_t *blocks, size_t count) {
    // All 16 bytes reversed: big-endian words with the first in the highest lane.
    const __m128i order = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m128i abcd = _mm_set_epi32((int)state[0], (int)state[1], (int)state[2], (int)state[3]);
    __m128i e = _mm_set_epi32((int)state[4], 0, 0, 0);
    for (; count > 0; count--, blocks += 64) {
        const __m128i abcd_before = abcd, e_before = e;
        __m128i w[4];
        for (int i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(load(blocks + 16 * i), order);
        // After four rounds, a rotated is e, so SHA1NEXTE makes the next e from the abcd before them.
        __m128i earlier = abcd, e_and_words = _mm_add_epi32(e, w[0]);
#define FOUR(t, f) \
    if ((t) > 3) w[(t) & 3] = schedule_sha1(w, t); \
    if ((t) > 0) e_and_words = _mm_sha1nexte_epu32(earlier, w[(t) & 3]); \
    earlier = abcd; \
    abcd = _mm_sha1rnds4_epu32(abcd, e_and_words, f);
#define TWENTY(t, f) FOUR(t, f) FOUR(t + 1, f) FOUR(t + 2, f) FOUR(t + 3, f) FOUR(t + 4, f)
        TWENTY(0, 0)
        TWENTY(5, 1)
        TWENTY(10, 2)
        TWENTY(15, 3)
#undef TWENTY
#undef FOUR
        e = _mm_sha1nexte_epu32(earlier, e_before);
        abcd = _mm_add_epi32(abcd, abcd_before);
    }
    uint32_t words[8];
    _mm_storeu_si128((__m128i *)(void *)words, abcd);
    _mm_storeu_si128((__m128i *)(void *)(words + 4), e);
    for (int i = 0; i < 4; i++) state[i] = words[3 - i];
    state[4] = words[7];
}

WITH_SHA void chhsocket_sha256_instructions(uint32_t *state, const uint8_t *blocks, size_t count) {
    // Big-endian words, the first in the lowest lane.
    const __m128i order = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    __m128i abef = _mm_set_epi32((int)state[0], (int)state[1], (int)state[4], (int)state[5]);
    __m128i cdgh = _mm_set_epi32((int)state[2], (int)state[3], (int)state[6], (int)state[7]);
    for (; count > 0; count--, blocks += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];
        for (int i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(load(blocks + 16 * i), order);
#define FOUR(t) \
    if ((t) > 3) { \
        __m128i words = _mm_sha256msg1_epu32(w[(t) & 3], w[(t + 1) & 3]); \
        words = _mm_add_epi32(words, _mm_alignr_epi8(w[(t + 3) & 3], w[(t + 2) & 3], 4)); \
        w[(t) & 3] = _mm_sha256msg2_epu32(words, w[(t + 3) & 3]); \
    } \
    { \
        /* Two rounds use the words of the lower lanes, and turn a, b, e and f into the next c, d, g and h. */ \
        __m128i words = _mm_add_epi32(w[(t) & 3], load(chhsocket_sha256_constants + 4 * (t))); \
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words); \
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_unpackhi_epi64(words, words)); \
    }
#define SIXTEEN(t) FOUR(t) FOUR(t + 1) FOUR(t + 2) FOUR(t + 3)
        SIXTEEN(0)
        SIXTEEN(4)
        SIXTEEN(8)
        SIXTEEN(12)
#undef SIXTEEN
#undef FOUR
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    uint32_t words[8];
    _mm_storeu_si128((__m128i *)(void *)words, abef);
    _mm_storeu_si128((__m128i *)(void *)(words + 4), cdgh);
    state[0] = words[3];
    state[1] = words[2];
    state[2] = words[7];
    state[3] = words[6];
    state[4] = words[1];
    state[5] = words[0];
    state[6] = words[5];
    state[7] = words[4];
}

#endif
