/* PTX that compilers leave beside their machine code, found again by the digest of that code: in memory for this process, and in
 * the cache folder (ptx/DIGEST.ptx) for programs that keep compiled kernels on disk.  Used by the interception library and by the
 * ptxas stand-in; libc only. */
#ifndef TALLY_DOORS_H
#define TALLY_DOORS_H

#include <stddef.h>

/* Best effort: what cannot be kept is not kept.  PTX may come with or without NULs at its end. */
void tl_doors_keep(const void *cubin, size_t n, const char *ptx, size_t ptx_n);
/* A terminated copy, the caller's to free, and its length without the end; or NULL. */
char *tl_doors_find(const void *cubin, size_t n, size_t *ptx_n);
void tl_doors_forked(void);

#endif
