// SPDX-License-Identifier: Apache-2.0
// SHA-1 and SHA-256 (FIPS 180-4) of any number of bytes, in constant memory. A context is a plain value, of which
// copies are independent.

#ifndef CHHSOCKET_SHA_H
#define CHHSOCKET_SHA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CHHSOCKET_SHA_BLOCK_LENGTH = 64,
    CHHSOCKET_SHA1_LENGTH = 20,
    CHHSOCKET_SHA256_LENGTH = 32
};

/// The implementations of both.
typedef enum chhsocket_sha_implementation {
    /// In C, for any processor.
    CHHSOCKET_SHA_PORTABLE,
    /// With the SHA instructions of x86-64 or ARMv8.
    CHHSOCKET_SHA_INSTRUCTIONS
} chhsocket_sha_implementation;

/// Whether this processor supports `implementation`.
bool chhsocket_sha_supports(chhsocket_sha_implementation implementation);

/// Returns the implementation that contexts use by default: the processor's instructions if it has them.
chhsocket_sha_implementation chhsocket_sha_chosen(void);

/// The input of both kinds of context.
typedef struct chhsocket_sha_input {
    /// The number of bytes added so far, 2^61 - 1 at most.
    uint64_t count;
    /// The last `count` modulo 64 of them, which do not fill a block yet.
    uint8_t block[CHHSOCKET_SHA_BLOCK_LENGTH];
    chhsocket_sha_implementation implementation;
} chhsocket_sha_input;

typedef struct chhsocket_sha1_context {
    uint32_t state[5];
    chhsocket_sha_input input;
} chhsocket_sha1_context;

typedef struct chhsocket_sha256_context {
    uint32_t state[8];
    chhsocket_sha_input input;
} chhsocket_sha256_context;

/// Returns a context without input.
chhsocket_sha1_context chhsocket_sha1_begin(void);

/// Returns a context that uses `implementation`, which this processor must support. For tests and benchmarks.
chhsocket_sha1_context chhsocket_sha1_begin_with(chhsocket_sha_implementation implementation);

/// Adds `count` bytes. `bytes` may be null if `count` is 0.
void chhsocket_sha1_update(chhsocket_sha1_context *context, const void *bytes, size_t count);

/// Writes the 20 bytes of the digest. The context cannot be used afterwards.
void chhsocket_sha1_finish(chhsocket_sha1_context *context, uint8_t *digest);

/// Writes the digest, 20 bytes, of `count` bytes. `bytes` may be null if `count` is 0.
void chhsocket_sha1(const void *bytes, size_t count, uint8_t *digest);

/// Returns a context without input.
chhsocket_sha256_context chhsocket_sha256_begin(void);

/// Returns a context that uses `implementation`, which this processor must support. For tests and benchmarks.
chhsocket_sha256_context chhsocket_sha256_begin_with(chhsocket_sha_implementation implementation);

/// Adds `count` bytes. `bytes` may be null if `count` is 0.
void chhsocket_sha256_update(chhsocket_sha256_context *context, const void *bytes, size_t count);

/// Writes the 32 bytes of the digest. The context cannot be used afterwards.
void chhsocket_sha256_finish(chhsocket_sha256_context *context, uint8_t *digest);

/// Writes the digest, 32 bytes, of `count` bytes. `bytes` may be null if `count` is 0.
void chhsocket_sha256(const void *bytes, size_t count, uint8_t *digest);

#ifdef __cplusplus
}
#endif

#endif
