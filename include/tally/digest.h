/* BLAKE2b with 32 bytes of result (RFC 7693, no key): names what is kept on disk and
 * guards its contents.
 *
 * Chosen over SHA-256 because plain C does it about three times as fast, and a warm kernel is
 * mostly hashing. */
#ifndef TALLY_DIGEST_H
#define TALLY_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define TL_DIGEST_BYTES 32
#define TL_DIGEST_HEX (2 * TL_DIGEST_BYTES + 1) /* with the 0 at its end */

struct tl_digest {
    uint64_t h[8];
    uint64_t bytes; /* hashed so far; 2^64 are more than anybody has */
    uint8_t block[128];
    size_t n; /* in block */
};

void tl_digest_init(struct tl_digest *d);
void tl_digest_add(struct tl_digest *d, const void *bytes, size_t n);
/* The bytes with their number before them: parts of various lengths, added one after the other,
 * then never give the same digest if any of them differs. */
void tl_digest_part(struct tl_digest *d, const void *bytes, size_t n);
void tl_digest_end(struct tl_digest *d, uint8_t out[TL_DIGEST_BYTES]);

/* All of it at once. */
void tl_digest_of(const void *bytes, size_t n, uint8_t out[TL_DIGEST_BYTES]);
/* As names of files have it: lower-case hexadecimal, terminated. */
void tl_digest_hex(const uint8_t digest[TL_DIGEST_BYTES], char out[TL_DIGEST_HEX]);

#endif
