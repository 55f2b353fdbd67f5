/* Where tests write: in the folder that test/run makes for each of them and removes. */
#ifndef TALLY_TEST_UNIT_SCRATCH_H
#define TALLY_TEST_UNIT_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>

/* Writes "$TMPDIR/what"; `what` may end as mkdtemp wants it.  "/tmp/what" for a test that is run by
 * hand and has no TMPDIR, and where the path would be too long for `n`: those of sockets must be
 * short. */
static inline char *scratch_path(char *out, size_t n, const char *what)
{
    const char *folder = getenv("TMPDIR");
    int length = folder != NULL && *folder != '\0' ? snprintf(out, n, "%s/%s", folder, what) : -1;
    if (length < 0 || (size_t)length >= n)
        snprintf(out, n, "/tmp/%s", what);
    return out;
}

#endif
