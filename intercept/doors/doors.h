/* PTX that compilers leave beside their machine code, found again by the digest of that code: in
 * memory for this process, and in the cache folder (ptx/DIGEST.ptx) for programs that keep compiled
 * kernels on disk.  Used by the interception library and by the ptxas stand-in; libc only. */
#ifndef TALLY_INTERCEPT_DOORS_DOORS_H
#define TALLY_INTERCEPT_DOORS_DOORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Best effort: what cannot be kept is not kept.  PTX may come with or without NULs at its end. */
void tl_doors_keep(const void *cubin, size_t n, const char *ptx, size_t ptx_n);
/* A terminated copy, the caller's to free, and its length without the end; or NULL. */
char *tl_doors_find(const void *cubin, size_t n, size_t *ptx_n);
void tl_doors_forked(void);

/* --- intercept/doors/link.c: linkers, named by a handle --- */
/* `type` is a CUjitInputType; intermediate code (CU_JIT_INPUT_NVVM) is kept by lto.c. */
void tl_doors_link_added(void *link, int type, const void *data, size_t n);
void tl_doors_link_limit(void *link, unsigned registers); /* -maxrregcount */
/* `text` is what the intermediate code among the inputs is as PTX, or NULL. */
void tl_doors_link_done(void *link, const void *code, size_t n, char *text, size_t text_n);
void tl_doors_link_gone(void *link);
void tl_doors_link_forked(void);

/* --- intercept/doors/lto.c: nvJitLink's links of intermediate code --- */
enum { TL_DOORS_LTO_IR = 3 }; /* kind of input */

/* The library's own functions; 0 is success. */
struct tl_doors_linker {
    int (*create)(void **link, uint32_t n, const char **options);
    int (*add)(void *link, int kind, const void *data, size_t n, const char *name);
    int (*complete)(void *link);
    int (*text_size)(void *link, size_t *n);
    int (*text)(void *link, char *text);
    int (*destroy)(void **link);
};
void tl_doors_lto_created(void *link, uint32_t n, const char *const *options);
void tl_doors_lto_added(void *link, bool is_intermediate, const void *data, size_t n);
/* The text of the whole program, the caller's to free, or NULL if there is none.  Takes as long as
 * the link itself. */
char *tl_doors_lto_text(void *link, const struct tl_doors_linker *linker, size_t *n);
void tl_doors_lto_gone(void *link);
void tl_doors_lto_forked(void);

/* --- intercept/doors/compilers.c --- */
/* What dlsym answers for a name that it found: a door, if it is a function of a compiler. */
void *tl_doors_symbol(const char *name, void *found);

#endif
