// SPDX-License-Identifier: Apache-2.0
#include "sha_blocks.h"

// The functions and their names are those of FIPS 180-4, sections 4.1, 6.1 and 6.2.

const uint32_t chhsocket_sha256_constants[64] = {
    0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5,
    0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3, 0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174,
    0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F, 0x4A7484AA, 0x5CB0A9DC, 0x76F988DA,
    0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7, 0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967,
    0x27B70A85, 0x2E1B2138, 0x4D2C6DFC, 0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85,
    0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3, 0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070,
    0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3,
    0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2,
};

static inline uint32_t rotated_left(uint32_t x, unsigned bits) { return x << bits | x >> (32 - bits); }

static inline uint32_t rotated_right(uint32_t x, unsigned bits) { return x >> bits | x << (32 - bits); }

static inline uint32_t big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | (uint32_t)bytes[3];
}

// Ch and Maj in the forms with the fewest operations: the two halves of Maj never have a bit in common.
static inline uint32_t choice(uint32_t x, uint32_t y, uint32_t z) { return z ^ (x & (y ^ z)); }

static inline uint32_t majority(uint32_t x, uint32_t y, uint32_t z) { return (x & y) + (z & (x ^ y)); }

static inline uint32_t parity(uint32_t x, uint32_t y, uint32_t z) { return x ^ y ^ z; }

// The message schedule is a ring of the last 16 words. Instead of shifting five or eight working variables after each
// round, rounds are unrolled until every variable is back in its place, each with the variables' names shifted by one.

static inline uint32_t scheduled_sha1(uint32_t w[16], unsigned t) {
    if (t < 16) return w[t];
    uint32_t word = w[(t + 13) & 15] ^ w[(t + 8) & 15] ^ w[(t + 2) & 15] ^ w[t & 15];
    return w[t & 15] = rotated_left(word, 1);
}

#define SHA1_ROUND(a, b, c, d, e, f, k, t) \
    e += rotated_left(a, 5) + f(b, c, d) + (k) + scheduled_sha1(w, t); \
    b = rotated_left(b, 30);

#define SHA1_FIVE(f, k, t) \
    SHA1_ROUND(a, b, c, d, e, f, k, (t) + 0) \
    SHA1_ROUND(e, a, b, c, d, f, k, (t) + 1) \
    SHA1_ROUND(d, e, a, b, c, f, k, (t) + 2) \
    SHA1_ROUND(c, d, e, a, b, f, k, (t) + 3) \
    SHA1_ROUND(b, c, d, e, a, f, k, (t) + 4)

#define SHA1_TWENTY(f, k, t) \
    SHA1_FIVE(f, k, (t) + 0) \
    SHA1_FIVE(f, k, (t) + 5) \
    SHA1_FIVE(f, k, (t) + 10) \
    SHA1_FIVE(f, k, (t) + 15)

void chhsocket_sha1_portable(uint32_t *state, const uint8_t *blocks, size_t count) {
    for (; count > 0; count--, blocks += 64) {
        uint32_t w[16];
        for (int t = 0; t < 16; t++) w[t] = big_endian(blocks + 4 * t);
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
        SHA1_TWENTY(choice, 0x5A827999, 0)
        SHA1_TWENTY(parity, 0x6ED9EBA1, 20)
        SHA1_TWENTY(majority, 0x8F1BBCDC, 40)
        SHA1_TWENTY(parity, 0xCA62C1D6, 60)
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
        state[4] += e;
    }
}

static inline uint32_t upper_sigma0(uint32_t x) {
    return rotated_right(x, 2) ^ rotated_right(x, 13) ^ rotated_right(x, 22);
}

static inline uint32_t upper_sigma1(uint32_t x) {
    return rotated_right(x, 6) ^ rotated_right(x, 11) ^ rotated_right(x, 25);
}

static inline uint32_t lower_sigma0(uint32_t x) { return rotated_right(x, 7) ^ rotated_right(x, 18) ^ x >> 3; }

static inline uint32_t lower_sigma1(uint32_t x) { return rotated_right(x, 17) ^ rotated_right(x, 19) ^ x >> 10; }

/// Replaces word t - 16 of the ring with word t.
static inline void schedule_sha256(uint32_t w[16], unsigned t) {
    w[t & 15] += lower_sigma1(w[(t + 14) & 15]) + w[(t + 9) & 15] + lower_sigma0(w[(t + 1) & 15]);
}

#define SHA256_ROUND(a, b, c, d, e, f, g, h, t) \
    h += upper_sigma1(e) + choice(e, f, g) + k[t] + w[t]; \
    d += h; \
    h += upper_sigma0(a) + majority(a, b, c);

#define SHA256_EIGHT(t) \
    SHA256_ROUND(a, b, c, d, e, f, g, h, (t) + 0) \
    SHA256_ROUND(h, a, b, c, d, e, f, g, (t) + 1) \
    SHA256_ROUND(g, h, a, b, c, d, e, f, (t) + 2) \
    SHA256_ROUND(f, g, h, a, b, c, d, e, (t) + 3) \
    SHA256_ROUND(e, f, g, h, a, b, c, d, (t) + 4) \
    SHA256_ROUND(d, e, f, g, h, a, b, c, (t) + 5) \
    SHA256_ROUND(c, d, e, f, g, h, a, b, (t) + 6) \
    SHA256_ROUND(b, c, d, e, f, g, h, a, (t) + 7)

void chhsocket_sha256_portable(uint32_t *state, const uint8_t *blocks, size_t count) {
    for (; count > 0; count--, blocks += 64) {
        uint32_t w[16];
        for (int t = 0; t < 16; t++) w[t] = big_endian(blocks + 4 * t);
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        for (const uint32_t *k = chhsocket_sha256_constants; ; k += 16) {
            SHA256_EIGHT(0)
            SHA256_EIGHT(8)
            if (k == chhsocket_sha256_constants + 48) break;
            for (unsigned t = 0; t < 16; t++) schedule_sha256(w, t);
        }
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
        state[4] += e;
        state[5] += f;
        state[6] += g;
        state[7] += h;
    }
}
