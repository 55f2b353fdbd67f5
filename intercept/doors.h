/* PTX that compilers leave beside their machine code, found again by the digest of that code: in memory for this process, and in
 * the cache folder (ptx/DIGEST.ptx) for programs that keep compiled kernels on disk.  Used by the interception library and by the
 * ptxas stand-in; libc only. */
#ifndef TALLY_DOORS_H
#define TALLY_DOORS_H

#include <stdbool.h>
#include <stddef.h>

/* Best effort: what cannot be kept is not kept.  PTX may come with or without NULs at its end. */
void tl_doors_keep(const void *cubin, size_t n, const char *ptx, size_t ptx_n);
/* A terminated copy, the caller's to free, and its length without the end; or NULL. */
char *tl_doors_find(const void *cubin, size_t n, size_t *ptx_n);
void tl_doors_forked(void);

/* --- doors_link.c: linkers, named by a handle --- */
void tl_doors_link_added(void *link, bool is_ptx, const void *data, size_t n);
void tl_doors_link_done(void *link, const void *code, size_t n);
void tl_doors_link_gone(void *link);
void tl_doors_link_forked(void);

/* --- doors_compilers.c --- */
/* What dlsym answers for a name that it found: a door, if it is a function of a compiler. */
void *tl_doors_symbol(const char *name, void *found);

#endif
