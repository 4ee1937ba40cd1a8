// SPDX-License-Identifier: Apache-2.0
#include "chhsocket_adler32.h"

#include "processor.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// The number of bytes that vectors process at once.
enum { BLOCK = 64 };

// The number of bytes at which aligning blocks to cache lines pays off, as measured.
enum { WORTH_ALIGNING = 16 * 1024 };

static uint32_t adler32_zlib(uint32_t value, const uint8_t *bytes, size_t count) {
    // For the null pointer zlib returns 1, whatever `value`.
    return count == 0 ? value : (uint32_t)adler32_z(value, bytes, count);
}

#if defined(__x86_64__) || defined(__aarch64__)

// Vectors process blocks of 64 bytes. In the sum of distances a byte counts by its distance from its block's end, plus
// the number of bytes behind the block. So a block requires the sum of its bytes, and their sum with weights 64 to 1;
// the former counts 64 times for each block behind it, which is the sum, over all blocks, of the bytes before the
// block.
//
// The rest behind the blocks is the end of the buffer's last 64 bytes, all of which can be read because there are at
// least 64. Those that have been counted are masked out, which leaves the bytes whose weight is at most the length of
// the rest.

// The number of bytes after which the sums are reduced. That is at most 2^12 blocks, each of which adds less than 2^31
// / 2^12 to a sum of 32 bits, see below; all other sums have 64 bits.
enum { STRIDE = 1 << 18 };

struct sums {
    /// The sum of all bytes of whole blocks.
    uint64_t bytes;
    /// The sum, over all blocks, of the bytes of the blocks before.
    uint64_t before;
    /// The sum of all bytes behind the blocks.
    uint64_t rest;
    /// The sum of all bytes times their weights in their block, 64 - `centre` to 1 - `centre`. May be negative.
    int64_t weighted;
    uint32_t centre;
};

/// Returns the checksum after `count` more bytes with these sums.
static inline uint32_t advance(uint32_t value, size_t count, struct sums sums) {
    uint64_t low = value & 0xFFFF;
    uint64_t high = value >> 16;
    // Below 2^49: `before` is at most 2^12 * 2^12 / 2 * 64 * 255.
    high += count * low + BLOCK * sums.before + count % BLOCK * sums.bytes;
    high += sums.centre * (sums.bytes + sums.rest) + (uint64_t)sums.weighted;
    low += sums.bytes + sums.rest;
    // The low sum fits in 32 bits, whose remainder is cheaper.
    return (uint32_t)(high % CHHSOCKET_ADLER32_MODULUS) << 16 | (uint32_t)low % CHHSOCKET_ADLER32_MODULUS;
}

#endif

#if defined(__x86_64__)

// PMADDUBSW multiplies bytes by signed weights and adds two products to a signed sum of 16 bits. Around their centre
// the weights are 31 to -32, so that two products are between 61 * 255 and -63 * 255. The sums of a block's vectors do
// not overflow either, since the first half is not below 0 and the second not above it: with SSSE3 they are between (61
// + 29) * 255 and -(63 + 31) * 255. A block's weighted sum is -528 * 255 at least, which times 2^12 is more than -2^31.
enum { CENTRE = 33 };

static const int8_t weights[BLOCK] __attribute__((aligned(64))) = {
    31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8,
    7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12, -13, -14,
    -15, -16, -17, -18, -19, -20, -21, -22, -23, -24, -25, -26, -27, -28, -29, -30, -31, -32,
};

/// Returns the sums of two lanes of 64 bits each, and of four lanes of 32 signed bits.
__attribute__((target("ssse3"))) static inline struct sums horizontally(
    __m128i bytes, __m128i before, __m128i rest, __m128i weighted
) {
    __m128i both = _mm_add_epi64(_mm_unpacklo_epi64(bytes, before), _mm_unpackhi_epi64(bytes, before));
    rest = _mm_add_epi64(rest, _mm_unpackhi_epi64(rest, rest));
    weighted = _mm_add_epi32(weighted, _mm_shuffle_epi32(weighted, _MM_SHUFFLE(1, 0, 3, 2)));
    weighted = _mm_add_epi32(weighted, _mm_shuffle_epi32(weighted, _MM_SHUFFLE(2, 3, 0, 1)));
    return (struct sums){
        .bytes = (uint64_t)_mm_cvtsi128_si64(both),
        .before = (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(both, both)),
        .rest = (uint64_t)_mm_cvtsi128_si64(rest),
        .weighted = _mm_cvtsi128_si32(weighted),
        .centre = CENTRE,
    };
}

__attribute__((target("ssse3"))) static inline __m128i load_ssse3(const uint8_t *bytes) {
    return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

/// Returns the sum of all bytes of a block, in two lanes.
__attribute__((target("ssse3"))) static inline __m128i sum_ssse3(const __m128i block[4]) {
    const __m128i zero = _mm_setzero_si128();
    return _mm_add_epi64(
        _mm_add_epi64(_mm_sad_epu8(block[0], zero), _mm_sad_epu8(block[1], zero)),
        _mm_add_epi64(_mm_sad_epu8(block[2], zero), _mm_sad_epu8(block[3], zero))
    );
}

/// Returns the sum of all bytes of a block times their weights, in four lanes.
__attribute__((target("ssse3"))) static inline __m128i weigh_ssse3(const __m128i block[4]) {
    const __m128i *weight = (const __m128i *)(const void *)weights;
    __m128i pairs = _mm_add_epi16(
        _mm_add_epi16(_mm_maddubs_epi16(block[0], weight[0]), _mm_maddubs_epi16(block[2], weight[2])),
        _mm_add_epi16(_mm_maddubs_epi16(block[1], weight[1]), _mm_maddubs_epi16(block[3], weight[3]))
    );
    return _mm_madd_epi16(pairs, _mm_set1_epi16(1));
}

__attribute__((target("ssse3"))) static uint32_t adler32_ssse3(uint32_t value, const uint8_t *bytes, size_t count) {
    while (count > 0) {
        size_t length = count < STRIDE ? count : STRIDE;
        __m128i sum = _mm_setzero_si128(), before = sum, rest = sum, weighted = sum;
        const uint8_t *end = bytes + length / BLOCK * BLOCK;
        for (; bytes < end; bytes += BLOCK) {
            __m128i block[4];
            for (int i = 0; i < 4; i++) block[i] = load_ssse3(bytes + 16 * i);
            before = _mm_add_epi64(before, sum);
            sum = _mm_add_epi64(sum, sum_ssse3(block));
            weighted = _mm_add_epi32(weighted, weigh_ssse3(block));
        }
        if (length % BLOCK != 0) {
            const __m128i limit = _mm_set1_epi8((char)((int)(length % BLOCK) + 1 - CENTRE));
            __m128i block[4];
            bytes += length % BLOCK;
            for (int i = 0; i < 4; i++) {
                __m128i is_rest = _mm_cmplt_epi8(load_ssse3((const uint8_t *)weights + 16 * i), limit);
                block[i] = _mm_and_si128(load_ssse3(bytes - BLOCK + 16 * i), is_rest);
            }
            rest = sum_ssse3(block);
            weighted = _mm_add_epi32(weighted, weigh_ssse3(block));
        }
        value = advance(value, length, horizontally(sum, before, rest, weighted));
        count -= length;
    }
    return value;
}

__attribute__((target("avx2"))) static inline __m256i load_avx2(const uint8_t *bytes) {
    return _mm256_loadu_si256((const __m256i *)(const void *)bytes);
}

__attribute__((target("avx2"))) static inline __m256i sum_avx2(const __m256i block[2]) {
    const __m256i zero = _mm256_setzero_si256();
    return _mm256_add_epi64(_mm256_sad_epu8(block[0], zero), _mm256_sad_epu8(block[1], zero));
}

__attribute__((target("avx2"))) static inline __m256i weigh_avx2(const __m256i block[2]) {
    const __m256i *weight = (const __m256i *)(const void *)weights;
    __m256i pairs = _mm256_add_epi16(
        _mm256_maddubs_epi16(block[0], weight[0]), _mm256_maddubs_epi16(block[1], weight[1])
    );
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/// Returns one half of the vector plus the other, in lanes of 64 bits.
__attribute__((target("avx2"))) static inline __m128i halve_avx2(__m256i vector) {
    return _mm_add_epi64(_mm256_castsi256_si128(vector), _mm256_extracti128_si256(vector, 1));
}

__attribute__((target("avx2"))) static uint32_t adler32_avx2(uint32_t value, const uint8_t *bytes, size_t count) {
    while (count > 0) {
        size_t length = count < STRIDE ? count : STRIDE;
        __m256i sum = _mm256_setzero_si256(), before = sum, rest = sum, weighted = sum;
        const uint8_t *end = bytes + length / BLOCK * BLOCK;
        for (; bytes < end; bytes += BLOCK) {
            __m256i block[2] = {load_avx2(bytes), load_avx2(bytes + 32)};
            before = _mm256_add_epi64(before, sum);
            sum = _mm256_add_epi64(sum, sum_avx2(block));
            weighted = _mm256_add_epi32(weighted, weigh_avx2(block));
        }
        if (length % BLOCK != 0) {
            const __m256i limit = _mm256_set1_epi8((char)((int)(length % BLOCK) + 1 - CENTRE));
            const __m256i *weight = (const __m256i *)(const void *)weights;
            bytes += length % BLOCK;
            __m256i block[2] = {
                _mm256_and_si256(load_avx2(bytes - BLOCK), _mm256_cmpgt_epi8(limit, weight[0])),
                _mm256_and_si256(load_avx2(bytes - BLOCK + 32), _mm256_cmpgt_epi8(limit, weight[1])),
            };
            rest = sum_avx2(block);
            weighted = _mm256_add_epi32(weighted, weigh_avx2(block));
        }
        __m128i weighted_half =
            _mm_add_epi32(_mm256_castsi256_si128(weighted), _mm256_extracti128_si256(weighted, 1));
        struct sums sums = horizontally(halve_avx2(sum), halve_avx2(before), halve_avx2(rest), weighted_half);
        value = advance(value, length, sums);
        count -= length;
    }
    return value;
}

#elif defined(__aarch64__)

static const uint8_t weights[BLOCK] __attribute__((aligned(64))) = {
    64, 63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37,
    36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9,
    8, 7, 6, 5, 4, 3, 2, 1,
};

/// Returns `sum` plus all bytes of a block, in four lanes: 2^12 blocks add less than 2^26.
static inline uint32x4_t sum_neon(uint32x4_t sum, const uint8x16_t block[4]) {
#if defined(__ARM_FEATURE_DOTPROD)
    for (int i = 0; i < 4; i++) sum = vdotq_u32(sum, block[i], vdupq_n_u8(1));
    return sum;
#else
    uint16x8_t pairs = vpaddlq_u8(block[0]);
    for (int i = 1; i < 4; i++) pairs = vpadalq_u8(pairs, block[i]);
    return vpadalq_u16(sum, pairs);
#endif
}

/// Returns `sum` plus all bytes of a block times their weights, in four lanes: together 2^12 blocks add at most 2080 *
/// 255 * 2^12, which is less than 2^32.
static inline uint32x4_t weigh_neon(uint32x4_t sum, const uint8x16_t block[4]) {
#if defined(__ARM_FEATURE_DOTPROD)
    for (int i = 0; i < 4; i++) sum = vdotq_u32(sum, block[i], vld1q_u8(weights + 16 * i));
    return sum;
#else
    // The first lane of 16 bits is the largest: (64 + 48 + 32 + 16) * 255.
    uint16x8_t first = vdupq_n_u16(0), second = first;
    for (int i = 0; i < 4; i++) {
        uint8x16_t weight = vld1q_u8(weights + 16 * i);
        first = vmlal_u8(first, vget_low_u8(block[i]), vget_low_u8(weight));
        second = vmlal_high_u8(second, block[i], weight);
    }
    return vpadalq_u16(vpadalq_u16(sum, first), second);
#endif
}

static uint32_t adler32_neon(uint32_t value, const uint8_t *bytes, size_t count) {
    while (count > 0) {
        size_t length = count < STRIDE ? count : STRIDE;
        uint32x4_t sum = vdupq_n_u32(0), rest = sum, weighted = sum;
        uint64x2_t before = vdupq_n_u64(0);
        const uint8_t *end = bytes + length / BLOCK * BLOCK;
        for (; bytes < end; bytes += BLOCK) {
            uint8x16_t block[4];
            for (int i = 0; i < 4; i++) block[i] = vld1q_u8(bytes + 16 * i);
            before = vpadalq_u32(before, sum);
            sum = sum_neon(sum, block);
            weighted = weigh_neon(weighted, block);
        }
        if (length % BLOCK != 0) {
            const uint8x16_t limit = vdupq_n_u8((uint8_t)(length % BLOCK));
            uint8x16_t block[4];
            bytes += length % BLOCK;
            for (int i = 0; i < 4; i++) {
                uint8x16_t is_rest = vcleq_u8(vld1q_u8(weights + 16 * i), limit);
                block[i] = vandq_u8(vld1q_u8(bytes - BLOCK + 16 * i), is_rest);
            }
            rest = sum_neon(rest, block);
            weighted = weigh_neon(weighted, block);
        }
        struct sums sums = {
            .bytes = vaddvq_u32(sum),
            .before = vaddvq_u64(before),
            .rest = vaddvq_u32(rest),
            .weighted = vaddvq_u32(weighted),
            .centre = 0,
        };
        value = advance(value, length, sums);
        count -= length;
    }
    return value;
}

#endif

static inline chhsocket_adler32_implementation chosen(void) {
#if defined(__x86_64__)
    uint32_t features = processor_features();
    if (features & PROCESSOR_HAS_AVX2) return CHHSOCKET_ADLER32_AVX2;
    if (features & PROCESSOR_HAS_SSSE3) return CHHSOCKET_ADLER32_SSSE3;
    return CHHSOCKET_ADLER32_ZLIB;
#elif defined(__aarch64__)
    return CHHSOCKET_ADLER32_NEON;
#else
    return CHHSOCKET_ADLER32_ZLIB;
#endif
}

/// Runs an implementation. `count` is at least `BLOCK`, except for zlib.
static inline uint32_t run(
    chhsocket_adler32_implementation implementation, uint32_t value, const uint8_t *bytes, size_t count
) {
    switch (implementation) {
#if defined(__x86_64__)
    case CHHSOCKET_ADLER32_AVX2:
        return adler32_avx2(value, bytes, count);
    case CHHSOCKET_ADLER32_SSSE3:
        return adler32_ssse3(value, bytes, count);
#elif defined(__aarch64__)
    case CHHSOCKET_ADLER32_NEON:
        return adler32_neon(value, bytes, count);
#endif
    default:
        return adler32_zlib(value, bytes, count);
    }
}

uint32_t chhsocket_adler32_long(uint32_t value, const void *bytes, size_t count) {
    const uint8_t *start = bytes;
    if (count >= WORTH_ALIGNING) {
        size_t head = -(uintptr_t)start % BLOCK;
        value = chhsocket_adler32(value, start, head);
        start += head;
        count -= head;
    }
    return run(chosen(), value, start, count);
}

uint32_t chhsocket_adler32_with(
    chhsocket_adler32_implementation implementation,
    uint32_t value,
    const void *bytes,
    size_t count
) {
    if (implementation != CHHSOCKET_ADLER32_ZLIB && count < CHHSOCKET_ADLER32_SHORT) {
        return chhsocket_adler32(value, bytes, count);
    }
    return run(implementation, value, bytes, count);
}

chhsocket_adler32_implementation chhsocket_adler32_chosen(void) { return chosen(); }

bool chhsocket_adler32_supports(chhsocket_adler32_implementation implementation) {
    switch (implementation) {
    case CHHSOCKET_ADLER32_ZLIB:
        return true;
#if defined(__x86_64__)
    case CHHSOCKET_ADLER32_SSSE3:
        return (processor_features() & PROCESSOR_HAS_SSSE3) != 0;
    case CHHSOCKET_ADLER32_AVX2:
        return (processor_features() & PROCESSOR_HAS_AVX2) != 0;
#elif defined(__aarch64__)
    case CHHSOCKET_ADLER32_NEON:
        return true;
#endif
    default:
        return false;
    }
}

const char *chhsocket_adler32_name(chhsocket_adler32_implementation implementation) {
    switch (implementation) {
    case CHHSOCKET_ADLER32_ZLIB:
        return "zlib";
    case CHHSOCKET_ADLER32_SSSE3:
        return "SSSE3";
    case CHHSOCKET_ADLER32_AVX2:
        return "AVX2";
    case CHHSOCKET_ADLER32_NEON:
        return "NEON";
    }
    return "unknown";
}
