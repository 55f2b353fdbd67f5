/* Kernels that the compiler has refused: asked for again, they get the same answer at once.
 *
 * Kept by the service for all processes while it runs, and by each process for itself.  A refusal
 * belongs to a key, which covers the compiler's build: a new compiler is asked anew.  libc only. */
#ifndef TALLY_DEVICE_SERVICE_REFUSALS_H
#define TALLY_DEVICE_SERVICE_REFUSALS_H

#include "tally/store.h"

enum { TL_JIT_REFUSALS = 256 }; /* then the oldest is forgotten */

struct tl_jit_refusal {
    struct tl_store_key key;
    int code;
    char *text;
};

/* Zeroes are an empty one.  Belongs to one thread at a time. */
struct tl_jit_refusals {
    struct tl_jit_refusal entries[TL_JIT_REFUSALS];
    uint32_t n, next;
};

/* What was answered, or NULL; valid until something is added. */
const struct tl_jit_refusal *tl_jit_refusals_find(const struct tl_jit_refusals *r,
                                                  const struct tl_store_key *key);
/* Remembers an answer, unless it was about this moment and not about the kernel: -ENOMEM. */
void tl_jit_refusals_add(struct tl_jit_refusals *r, const struct tl_store_key *key, int code,
                         const char *text);
void tl_jit_refusals_finish(struct tl_jit_refusals *r);

#endif
