// SPDX-License-Identifier: Apache-2.0
// The compression functions of SHA-1 and SHA-256, for blocks of 64 bytes, in several implementations.

#ifndef CHHSOCKET_SHA_BLOCKS_H
#define CHHSOCKET_SHA_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

// Whether the instructions are compiled in. Whether the processor has them is detected at run time, unless all
// processors that the program is compiled for have them.
#if defined(__x86_64__)
#define CHHSOCKET_SHA_X86 1
#elif defined(__aarch64__) && (defined(__ARM_FEATURE_SHA2) || defined(__ARM_FEATURE_CRYPTO))
#define CHHSOCKET_SHA_ARM 1
// Older Clangs declare the intrinsics only if the whole file is compiled for processors with them.
#elif defined(__aarch64__) && defined(__linux__) && (!defined(__clang__) || __clang_major__ >= 16)
#define CHHSOCKET_SHA_ARM 1
#endif

#define CHHSOCKET_HIDDEN __attribute__((visibility("hidden")))

/// The round constants of SHA-256: the first 32 fractional bits of the cube roots of the first 64 primes.
extern const uint32_t chhsocket_sha256_constants[64] CHHSOCKET_HIDDEN;

/// Compresses `count` blocks, of 64 bytes each, into `state`, which has 5 or 8 words.
typedef void chhsocket_sha_compress(uint32_t *state, const uint8_t *blocks, size_t count);

CHHSOCKET_HIDDEN chhsocket_sha_compress chhsocket_sha1_portable, chhsocket_sha256_portable;
#if defined(CHHSOCKET_SHA_X86) || defined(CHHSOCKET_SHA_ARM)
CHHSOCKET_HIDDEN chhsocket_sha_compress chhsocket_sha1_instructions, chhsocket_sha256_instructions;
#endif

#endif
