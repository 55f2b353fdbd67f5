/* Which PTX of an image is the twin of the code that the driver runs; see the header. */
#include "runtime/effort/twin.h"

#include "tally/digest.h"

#include <errno.h>
#include <string.h>

/* 90 of "sm_90a"; -1 if it is no such word. */
static int number_of(struct tl_str target)
{
    static const char prefix[] = "sm_";
    int number = 0;
    uint32_t at = sizeof prefix - 1;
    if (target.n <= at || memcmp(target.p, prefix, at) != 0)
        return -1;
    for (; at < target.n && target.p[at] >= '0' && target.p[at] <= '9' && number < 10000; at++)
        number = 10 * number + (target.p[at] - '0');
    bool is_suffix = at + 1 == target.n && (target.p[at] == 'a' || target.p[at] == 'f');
    return at == target.n || is_suffix ? number : -1;
}

int tl_eff_twin_of(const struct tl_eff_twin *list, uint32_t n, int ptx_version,
                   struct tl_error *err)
{
    int found = -1;
    if (ptx_version <= 0)
        return tl_error_set(err, -ENODATA,
                            "the driver does not say of which architecture its code is");
    for (uint32_t i = 0; i < n; i++) {
        if (number_of(list[i].target) != ptx_version)
            continue;
        if (found >= 0 && memcmp(list[found].digest, list[i].digest, TL_DIGEST_BYTES) != 0)
            return tl_error_set(
                err, -EMLINK, "PTX for %.*s and for %.*s might both be that of the code that runs",
                (int)list[found].target.n, list[found].target.p, (int)list[i].target.n,
                list[i].target.p);
        if (found < 0)
            found = (int)i;
    }
    if (found < 0)
        return tl_error_set(
            err, -ENOENT, "its code is machine code of compute_%d, its PTX for %.*s only",
            ptx_version, n > 0 ? (int)list[0].target.n : 7, n > 0 ? list[0].target.p : "nothing");
    return found;
}
