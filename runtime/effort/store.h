/* Rewritten kernels as they are kept on disk.  The builder's own: no lock. */
#ifndef TALLY_EFFORT_STORE_H
#define TALLY_EFFORT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tally/digest.h"
#include "tally/ptx.h"
#include "tally/store.h"

/* Everything that decides what a rewritten kernel looks like. */
struct tl_eff_origin {
    const uint8_t *text; /* digest of the PTX, TL_DIGEST_BYTES */
    const char *kernel;
    enum tl_ptx_variant kind;
    uint32_t dims, max_registers;
    int driver;        /* version of the driver that is to load it */
    uint32_t rewriter; /* TL_PTX_REWRITER_VERSION */
};
enum { TL_EFF_KEY_BYTES = TL_DIGEST_HEX };
/* Its name on disk: a digest of all of that, so that no two different ones meet. */
void tl_eff_store_key(char key[TL_EFF_KEY_BYTES], const struct tl_eff_origin *o);

/* A rewritten kernel as it is kept on disk. */
struct tl_eff_rewritten {
    char *text, *entry, *table_name;
    struct tl_ptx_arg *args; /* `variable` and nothing else is a string of its own */
    uint32_t n_args, original_params, original_bytes, param_bytes, conditions;
    char **table;
    uint32_t n_table;
    bool uses_slot;
};
int tl_eff_store_get(const char *key, struct tl_eff_rewritten *out); /* 0, -ENOENT, -ENOMEM */
/* a full disk is no error */
void tl_eff_store_put(const char *key, const struct tl_eff_rewritten *r);
int tl_eff_rewritten_copy(struct tl_eff_rewritten *to, const struct tl_ptx_rewritten *from);
void tl_eff_rewritten_finish(struct tl_eff_rewritten *r);
/* The folder for such things; nobody has looked at it: 0 or -errno. */
int tl_eff_store_folder(char *path, size_t n);
/* The same, open, if it is there, the user's own and nobody else's to write: 0 or -errno. */
int tl_eff_store_enter(struct tl_store *folder);
/* A file in it, if it is one and the user's own.  As tl_file_read. */
int tl_eff_store_file(const char *name, size_t limit, char **bytes, size_t *n);

#endif
