/* Which PTX machine code was made of: known to who compiled it, and found again by the code itself.
 *
 * The code of each kernel of a cubin is digested with its name, so that a kernel is still
 * recognised in a cubin that was changed around it.  On disk there is an entry per kernel, which
 * leads to one with the PTX and the list of kernels; the code itself is not kept.  libc only. */
#ifndef TALLY_ORIGIN_H
#define TALLY_ORIGIN_H

#include "tally/base.h"
#include "tally/store.h"
#include "tally/tables.h"

/* A kernel, by its code. */
struct tl_origin_kernel {
    const char *name;
    uint64_t code_bytes;
    uint8_t code[TL_DIGEST_BYTES];
    uint8_t
        inside[TL_DIGEST_BYTES]; /* where the functions in it begin and end, from its begin on */
    uint32_t registers, n_params;
};

/* The kernels of a cubin and the PTX that it was made of. */
struct tl_origin {
    struct tl_arena arena;
    struct tl_origin_kernel *kernels;
    uint32_t n;
    char *ptx; /* terminated; NULL if it is elsewhere */
    size_t n_ptx;
};

/* The kernels of a cubin, in the order of its symbols.  0, -EINVAL (it cannot be read), -ENOMEM. */
int tl_origin_read(struct tl_origin **out, const struct tl_tables *cubin, struct tl_error *err);
void tl_origin_free(struct tl_origin *o); /* NULL is fine */
/* Digests where the functions of a kernel's section are, from `base` on. */
void tl_origin_inside(const struct tl_tables *cubin, uint32_t symbol, uint64_t base,
                      uint8_t out[TL_DIGEST_BYTES]);
/* NULL if there is none of that name. */
const struct tl_origin_kernel *tl_origin_kernel(const struct tl_origin *o, struct tl_str name);

/* Keeps that a cubin was made of this PTX, which may end in NULs.  0 or a negative errno value. */
int tl_origin_keep(struct tl_store *store, const void *cubin, size_t n, const char *ptx,
                   size_t n_ptx, struct tl_error *err);
/* What was kept of the cubin that had a kernel of that name with that code.  0, -ENOENT, another
 * negative errno value. */
int tl_origin_find(struct tl_origin **out, struct tl_store *store, struct tl_str name,
                   const void *code, uint64_t n_code);

#endif
