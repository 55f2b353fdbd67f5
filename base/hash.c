/* The hash that name tables use; see the header. */
#include "tally/hash.h"

uint32_t tl_hash(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 16777619u;
    return h;
}
