/* Hashes for tables in memory, none of them against people who mean harm.
 *
 * Two things may have the same hash: a table compares keys behind it.  What names things on disk is
 * a digest (digest.h), where nobody compares.  libc only. */
#ifndef TALLY_HASH_H
#define TALLY_HASH_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a. */
uint32_t tl_hash(const void *bytes, size_t n);

/* The same with 64 bits. */
static inline uint64_t tl_hash_64(const void *bytes, size_t n)
{
    const unsigned char *p = (const unsigned char *)bytes;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* A number, for example a handle or an address, spread over 64 bits such that no two numbers meet;
 * the upper bits are the better ones. */
static inline uint64_t tl_hash_number(uint64_t key)
{
    return (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
}

/* What was hashed so far with one more number. */
static inline uint64_t tl_hash_mix(uint64_t h, uint64_t number)
{
    h = (h ^ number) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

#endif
