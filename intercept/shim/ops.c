/* Which operation of its framework each thread is in, for the report: numbered names, and the
 * calling thread's number.
 *
 * Told by libtally-nvtx.so (intercept/nvtx/nvtx.c), which finds the exported functions at run time;
 * read at each launch. */
#include "intercept/shim/internal.h"
#include "tally/hash.h"

#include <stdlib.h>
#include <string.h>

#include "tally/lock.h"

#define EXPORTED __attribute__((visibility("default")))
EXPORTED uint32_t tally_op_named(const char *name);
EXPORTED uint32_t *tally_op_place(void);

enum { SLOTS = 2 * TL_OPS };

struct tl_ops tl_ops = {.n = 1};
/* Set when the library is loaded with the program, so it can have a fixed place; reading it is one
 * instruction then. */
static __thread uint32_t current __attribute__((tls_model("initial-exec")));

static struct tl_mutex lock = TL_MUTEX_INITIALIZER; /* of adding */
/* numbers, by hash of the name; at most half full */
static _Atomic uint32_t slots[SLOTS];

uint32_t tl_op_now(void)
{
    return current;
}

/* The number of the name, or 0 with the place where it would be. */
static uint32_t find_op(const char *name, uint32_t hash, _Atomic uint32_t **place)
{
    for (uint32_t probe = hash;; probe++) {
        *place = &slots[probe % SLOTS];
        uint32_t number = atomic_load_explicit(*place, memory_order_acquire);
        if (number == 0)
            return 0;
        const char *other = atomic_load_explicit(&tl_ops.names[number], memory_order_relaxed);
        if (strcmp(other, name) == 0)
            return number;
    }
}

/* The number of an operation, given to it now if it is new; 0 if there are too many.  The calling
 * thread may keep it for ever. */
uint32_t tally_op_named(const char *name)
{
    uint32_t hash = tl_hash(name, strlen(name));
    _Atomic uint32_t *place;
    uint32_t number = find_op(name, hash, &place);
    if (number != 0 || atomic_load_explicit(&tl_ops.n, memory_order_relaxed) == TL_OPS)
        return number;
    tl_mutex_lock(&lock);
    number = find_op(name, hash, &place);
    uint32_t next = atomic_load_explicit(&tl_ops.n, memory_order_relaxed);
    char *copy = number == 0 && next < TL_OPS ? strdup(name) : NULL;
    if (copy != NULL) {
        number = next;
        atomic_store_explicit(&tl_ops.names[number], copy, memory_order_release);
        atomic_store_explicit(&tl_ops.n, number + 1, memory_order_release);
        atomic_store_explicit(place, number, memory_order_release);
    }
    tl_mutex_unlock(&lock);
    return number;
}

/* Where the calling thread's number stands, for as long as the thread lives. */
uint32_t *tally_op_place(void)
{
    return &current;
}

void tl_ops_forked(void)
{
    tl_mutex_init(&lock);
}
