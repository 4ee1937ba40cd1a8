// SPDX-License-Identifier: Apache-2.0
// adler32, the checksum of RFC 1950: two sums modulo 65521. The low 16 bits are 1 plus all bytes; the high 16 bits are
// the sum of all values that the low ones have had, in which each byte counts by its distance from the end.

#ifndef CHHSOCKET_ADLER32_H
#define CHHSOCKET_ADLER32_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /// The largest prime below 2^16.
    CHHSOCKET_ADLER32_MODULUS = 65521,
    /// The number of bytes up to which `chhsocket_adler32` is inlined. Calling a function that sets up vectors costs as
    /// much as computing these.
    CHHSOCKET_ADLER32_SHORT = 64
};

/// The implementations of adler32. All but zlib's require certain processors.
typedef enum chhsocket_adler32_implementation {
    CHHSOCKET_ADLER32_ZLIB,
    CHHSOCKET_ADLER32_SSSE3,
    CHHSOCKET_ADLER32_AVX2,
    CHHSOCKET_ADLER32_NEON
} chhsocket_adler32_implementation;

/// The number of implementations; their values count from 0.
enum { CHHSOCKET_ADLER32_IMPLEMENTATIONS = CHHSOCKET_ADLER32_NEON + 1 };

/// Whether this processor supports `implementation`.
bool chhsocket_adler32_supports(chhsocket_adler32_implementation implementation);

/// Returns the implementation that `chhsocket_adler32` uses for more than 64 bytes: the fastest that this processor
/// supports.
chhsocket_adler32_implementation chhsocket_adler32_chosen(void);

/// Returns the name of `implementation`, such as "AVX2".
const char *chhsocket_adler32_name(chhsocket_adler32_implementation implementation);

/// Continues the checksum `value` with `count` more bytes, by `implementation`, which this processor must support. For
/// tests and benchmarks. Fewer than 64 bytes are computed as by `chhsocket_adler32`, except by zlib.
uint32_t chhsocket_adler32_with(
    chhsocket_adler32_implementation implementation,
    uint32_t value,
    const void *bytes,
    size_t count
);

/// Continues the checksum `value` with `count` more bytes, at least 64, by the chosen implementation.
uint32_t chhsocket_adler32_long(uint32_t value, const void *bytes, size_t count);

/// Loads eight bytes, the first into the lowest bits.
static inline uint64_t chhsocket_adler32_word(const uint8_t *bytes) {
    uint64_t word;
    __builtin_memcpy(&word, bytes, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/// Loads 1 to 7 bytes as the last of a word whose others are 0. The loads overlap if there are fewer bytes than they
/// read.
static inline uint64_t chhsocket_adler32_part_of_word(const uint8_t *bytes, size_t count) {
    unsigned gap = 64 - 8 * (unsigned)count;
    if (count < 4) {
        size_t middle = count / 2;
        return (uint64_t)bytes[0] << gap | (uint64_t)bytes[middle] << (gap + 8 * (unsigned)middle)
            | (uint64_t)bytes[count - 1] << 56;
    }
    uint32_t first, last;
    __builtin_memcpy(&first, bytes, sizeof first);
    __builtin_memcpy(&last, bytes + count - 4, sizeof last);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    first = __builtin_bswap32(first);
    last = __builtin_bswap32(last);
#endif
    return (uint64_t)first << gap | (uint64_t)last << 32;
}

/// Continues the checksum `value` with `count` more bytes, 1 to 64.
static inline uint32_t chhsocket_adler32_short(uint32_t value, const uint8_t *bytes, size_t count) {
    // The first word is the partial one, so that all others are whole.
    size_t partial = (count - 1) % 8 + 1;
    const uint8_t *end = bytes + count;
    uint64_t word = count < 8 ? chhsocket_adler32_part_of_word(bytes, count)
                              : chhsocket_adler32_word(bytes) << (64 - 8 * partial);
    // The sums of the bytes at even and at odd places of all words, in four lanes of 16 bits, and the sum, over all
    // words, of both for the words before. With eight words a lane has at most 8 * 255, or 28 * 510.
    const uint64_t lanes = 0x00FF00FF00FF00FF;
    uint64_t even = word & lanes;
    uint64_t odd = word >> 8 & lanes;
    uint64_t before = 0;
    for (bytes += partial; bytes < end; bytes += 8) {
        word = chhsocket_adler32_word(bytes);
        before += even + odd;
        even += word & lanes;
        odd += word >> 8 & lanes;
    }
    // The highest lane of a product is lane 0 times the highest factor plus lane 1 times the next one and so on: here
    // at most (8 + 6 + 4 + 2) * 8 * 255 or 4 * 28 * 510, so that no lane overflows into the next.
    uint32_t sum = (uint32_t)((even + odd) * 0x0001000100010001 >> 48);
    uint32_t weighted = (uint32_t)(even * 0x0008000600040002 >> 48) + (uint32_t)(odd * 0x0007000500030001 >> 48)
        + 8 * (uint32_t)(before * 0x0001000100010001 >> 48);
    uint32_t low = value & 0xFFFF;
    uint32_t high = (value >> 16) + (uint32_t)count * low + weighted;
    low += sum;
    if (low >= CHHSOCKET_ADLER32_MODULUS) low -= CHHSOCKET_ADLER32_MODULUS;
    return high % CHHSOCKET_ADLER32_MODULUS << 16 | low;
}

/// Continues the checksum `value`, which starts as 1, with `count` more bytes. `bytes` may be null if `count` is 0.
static inline uint32_t chhsocket_adler32(uint32_t value, const void *bytes, size_t count) {
    if (count == 0) return value;
    if (count > CHHSOCKET_ADLER32_SHORT) return chhsocket_adler32_long(value, bytes, count);
    return chhsocket_adler32_short(value, (const uint8_t *)bytes, count);
}

#ifdef __cplusplus
}
#endif

#endif
