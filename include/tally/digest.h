/* BLAKE2b with 32 bytes of result (RFC 7693, no key): names cache entries and guards their
 * contents.
 *
 * Chosen over SHA-256 because plain C does it about three times as fast, and a warm kernel is
 * mostly hashing. */
#ifndef TALLY_DIGEST_H
#define TALLY_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define TL_JIT_DIGEST_BYTES 32

struct tl_jit_digest {
    uint64_t h[8];
    uint64_t bytes; /* hashed so far; 2^64 are more than anybody has */
    uint8_t block[128];
    size_t n; /* in block */
};

void tl_jit_digest_init(struct tl_jit_digest *d);
void tl_jit_digest_add(struct tl_jit_digest *d, const void *bytes, size_t n);
void tl_jit_digest_end(struct tl_jit_digest *d, uint8_t out[TL_JIT_DIGEST_BYTES]);

#endif
