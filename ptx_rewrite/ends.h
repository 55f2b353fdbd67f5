/* Why does a loop end that asks memory whether to go on?  Arguments that hold whatever blocks that
 * have not started yet would write. */
#ifndef TALLY_PTX_ENDS_H
#define TALLY_PTX_ENDS_H

#include "ptx_rewrite/roots.h"
#include "ptx_rewrite/semaphore.h"

/* The second column is what a user reads, behind "line 12: ". */
#define TL_PTX_ENDS(X)                                                                             \
    X(NONE, "")                                                                                    \
    X(COUNTED, "the loop is bounded by its own count, and looks at another place in each round")   \
    X(ADDS, "counter that only grows, by this loop too, up to where the loop ends")                \
    X(SWAP, "compare-and-swap with the value last seen: it fails only if another one succeeds")    \
    X(TAKEN_ONCE, "words are taken once and never given back: nothing is waited for")              \
    X(LOCK, "lock: the holder releases without waiting")                                           \
    X(EARLIER, "waits for earlier blocks only")                                                    \
    X(TURN, "waits for its turn, which an earlier block gives")                                    \
    X(NARROW, "not reached in a grid that is one block wide there")

enum tl_ptx_end {
#define TL_PTX_END_ENUM(id, text) TL_PTX_END_##id,
    TL_PTX_ENDS(TL_PTX_END_ENUM)
#undef TL_PTX_END_ENUM
};

const char *tl_ptx_end_text(enum tl_ptx_end e);

/* A loop, and what is known of it and around it. */
struct tl_ptx_ends {
    const struct tl_ptx_cfg *cfg;
    struct tl_affines *affines;
    struct tl_semaphore *semaphore;
    const struct tl_ptx_roots *roots;
    const struct tl_ptx_set *loop;
    uint32_t head;
    const bool *varies; /* per register: written in the loop */
    /* per register: depends on what any reading of memory in the loop gave */
    const bool *suspect;
    /* per register: depends on what the reading `inst` in question gave */
    const bool *depends;
    bool *grows;               /* scratch, per register */
    struct tl_ptx_set *region; /* scratch */
    uint32_t *stack;           /* scratch */
};

/* The argument by which the reading instruction number `inst` in the loop keeps nobody in it, or
 * NONE. */
enum tl_ptx_end tl_ptx_why_it_ends(struct tl_ptx_ends *x, uint32_t inst);

#endif
