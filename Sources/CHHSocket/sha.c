// SPDX-License-Identifier: Apache-2.0
#include "chhsocket_sha.h"

#include "processor.h"
#include "sha_blocks.h"

#include <string.h>

enum { BLOCK = CHHSOCKET_SHA_BLOCK_LENGTH };

bool chhsocket_sha_supports(chhsocket_sha_implementation implementation) {
    if (implementation == CHHSOCKET_SHA_PORTABLE) return true;
#if defined(CHHSOCKET_SHA_X86) || defined(CHHSOCKET_SHA_ARM)
    return (processor_features() & PROCESSOR_HAS_SHA) != 0;
#else
    return false;
#endif
}

chhsocket_sha_implementation chhsocket_sha_chosen(void) {
    return chhsocket_sha_supports(CHHSOCKET_SHA_INSTRUCTIONS) ? CHHSOCKET_SHA_INSTRUCTIONS : CHHSOCKET_SHA_PORTABLE;
}

static void compress_sha1(const chhsocket_sha_input *input, uint32_t *state, const uint8_t *blocks, size_t count) {
#if defined(CHHSOCKET_SHA_X86) || defined(CHHSOCKET_SHA_ARM)
    if (input->implementation == CHHSOCKET_SHA_INSTRUCTIONS) {
        chhsocket_sha1_instructions(state, blocks, count);
        return;
    }
#endif
    (void)input;
    chhsocket_sha1_portable(state, blocks, count);
}

static void compress_sha256(const chhsocket_sha_input *input, uint32_t *state, const uint8_t *blocks, size_t count) {
#if defined(CHHSOCKET_SHA_X86) || defined(CHHSOCKET_SHA_ARM)
    if (input->implementation == CHHSOCKET_SHA_INSTRUCTIONS) {
        chhsocket_sha256_instructions(state, blocks, count);
        return;
    }
#endif
    (void)input;
    chhsocket_sha256_portable(state, blocks, count);
}

typedef void compression(const chhsocket_sha_input *input, uint32_t *state, const uint8_t *blocks, size_t count);

/// Compresses whole blocks into `state` in place, and copies only a partial one.
static void update(
    chhsocket_sha_input *input, uint32_t *state, compression *compress, const uint8_t *bytes, size_t count
) {
    if (count == 0) return;
    size_t used = input->count % BLOCK;
    input->count += count;
    if (used > 0) {
        size_t fitting = count < BLOCK - used ? count : BLOCK - used;
        memcpy(input->block + used, bytes, fitting);
        if (used + fitting < BLOCK) return;
        compress(input, state, input->block, 1);
        bytes += fitting;
        count -= fitting;
    }
    size_t whole = count / BLOCK;
    if (whole > 0) compress(input, state, bytes, whole);
    memcpy(input->block, bytes + whole * BLOCK, count % BLOCK);
}

static void write_big_endian(uint32_t word, uint8_t *bytes) {
    bytes[0] = (uint8_t)(word >> 24);
    bytes[1] = (uint8_t)(word >> 16);
    bytes[2] = (uint8_t)(word >> 8);
    bytes[3] = (uint8_t)word;
}

/// Pads the input as in section 5.1.1, with a bit that is set, zeros, and the number of bits in the last eight bytes,
/// and writes the digest.
static void finish(chhsocket_sha_input *input, uint32_t *state, size_t words, compression *compress, uint8_t *digest) {
    uint64_t bits = input->count * 8;
    size_t used = input->count % BLOCK;
    input->block[used++] = 0x80;
    if (used > BLOCK - 8) {
        memset(input->block + used, 0, BLOCK - used);
        compress(input, state, input->block, 1);
        used = 0;
    }
    memset(input->block + used, 0, BLOCK - 8 - used);
    write_big_endian((uint32_t)(bits >> 32), input->block + BLOCK - 8);
    write_big_endian((uint32_t)bits, input->block + BLOCK - 4);
    compress(input, state, input->block, 1);
    for (size_t i = 0; i < words; i++) write_big_endian(state[i], digest + 4 * i);
}

chhsocket_sha1_context chhsocket_sha1_begin_with(chhsocket_sha_implementation implementation) {
    return (chhsocket_sha1_context){
        .state = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0},
        .input = {.implementation = implementation},
    };
}

chhsocket_sha1_context chhsocket_sha1_begin(void) { return chhsocket_sha1_begin_with(chhsocket_sha_chosen()); }

void chhsocket_sha1_update(chhsocket_sha1_context *context, const void *bytes, size_t count) {
    update(&context->input, context->state, compress_sha1, bytes, count);
}

void chhsocket_sha1_finish(chhsocket_sha1_context *context, uint8_t *digest) {
    finish(&context->input, context->state, 5, compress_sha1, digest);
}

void chhsocket_sha1(const void *bytes, size_t count, uint8_t *digest) {
    chhsocket_sha1_context context = chhsocket_sha1_begin();
    chhsocket_sha1_update(&context, bytes, count);
    chhsocket_sha1_finish(&context, digest);
}

// The state is the first 32 fractional bits of the square roots of the first eight primes.
chhsocket_sha256_context chhsocket_sha256_begin_with(chhsocket_sha_implementation implementation) {
    return (chhsocket_sha256_context){
        .state = {
            0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
        },
        .input = {.implementation = implementation},
    };
}

chhsocket_sha256_context chhsocket_sha256_begin(void) { return chhsocket_sha256_begin_with(chhsocket_sha_chosen()); }

void chhsocket_sha256_update(chhsocket_sha256_context *context, const void *bytes, size_t count) {
    update(&context->input, context->state, compress_sha256, bytes, count);
}

void chhsocket_sha256_finish(chhsocket_sha256_context *context, uint8_t *digest) {
    finish(&context->input, context->state, 8, compress_sha256, digest);
}

void chhsocket_sha256(const void *bytes, size_t count, uint8_t *digest) {
    chhsocket_sha256_context context = chhsocket_sha256_begin();
    chhsocket_sha256_update(&context, bytes, count);
    chhsocket_sha256_finish(&context, digest);
}
