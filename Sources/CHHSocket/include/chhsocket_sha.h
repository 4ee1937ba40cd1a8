// SHA-1 and SHA-256 of FIPS 180-4: of any number of bytes, in constant memory. A context is a plain value: a copy of it
// goes on by itself.

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

/// The ways to compute both.
typedef enum chhsocket_sha_implementation {
    /// In C that needs no particular processor.
    CHHSOCKET_SHA_PORTABLE,
    /// With the SHA instructions of x86-64 or ARMv8.
    CHHSOCKET_SHA_INSTRUCTIONS
} chhsocket_sha_implementation;

/// Whether this processor has `implementation`.
bool chhsocket_sha_supports(chhsocket_sha_implementation implementation);

/// The implementation that a context uses unless told otherwise: the processor's instructions if it has them.
chhsocket_sha_implementation chhsocket_sha_chosen(void);

/// What both contexts have beside their state.
typedef struct chhsocket_sha_input {
    /// The number of bytes that have come, 2^61 - 1 at most.
    uint64_t count;
    /// Those of them, `count` modulo 64, that do not fill a block yet.
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

/// A context that no byte has come to.
chhsocket_sha1_context chhsocket_sha1_begin(void);

/// The same with an implementation, which this processor must support. For tests and benchmarks.
chhsocket_sha1_context chhsocket_sha1_begin_with(chhsocket_sha_implementation implementation);

/// Adds `count` bytes. `bytes` may be null if `count` is 0.
void chhsocket_sha1_update(chhsocket_sha1_context *context, const void *bytes, size_t count);

/// Writes the 20 bytes of the digest. The context cannot be used afterwards.
void chhsocket_sha1_finish(chhsocket_sha1_context *context, uint8_t *digest);

/// Writes the digest, 20 bytes, of `count` bytes. `bytes` may be null if `count` is 0.
void chhsocket_sha1(const void *bytes, size_t count, uint8_t *digest);

/// A context that no byte has come to.
chhsocket_sha256_context chhsocket_sha256_begin(void);

/// The same with an implementation, which this processor must support. For tests and benchmarks.
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
