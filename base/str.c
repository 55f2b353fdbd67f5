/* String slices. */
#include "tally/base.h"

#include <string.h>

struct tl_str tl_str_of(const char *text)
{
    return (struct tl_str){text, text != NULL ? (uint32_t)strlen(text) : 0};
}

bool tl_str_eq(struct tl_str a, struct tl_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* Mostly they differ in the first letter: the PTX parser looks words up by asking one after the
 * other. */
bool tl_str_is(struct tl_str a, const char *text)
{
    size_t i = 0;
    while (i < a.n && text[i] != '\0' && a.p[i] == text[i])
        i++;
    return i == a.n && text[i] == '\0';
}

bool tl_str_starts(struct tl_str a, const char *prefix)
{
    size_t n = strlen(prefix);
    return a.n >= n && memcmp(a.p, prefix, n) == 0;
}
