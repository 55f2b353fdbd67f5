/* Does a function wait for other blocks, and if it seems to, why is nobody kept waiting? */
#ifndef TALLY_PTX_WAITS_H
#define TALLY_PTX_WAITS_H

#include "ptx_rewrite/ends.h"
#include "ptx_rewrite/roots.h"

/* A reading that a loop depends on, and why that keeps nobody in the loop. */
struct tl_ptx_argument {
    enum tl_ptx_end end;
    const struct tl_ptx_stmt *place;
};

enum { TL_PTX_MAX_ARGUMENTS = 8 };

struct tl_ptx_waits {
    enum tl_ptx_reason reason;       /* OK, BLOCK_WAIT or GRID_BARRIER */
    const struct tl_ptx_stmt *place; /* the reading that has no argument */
    /* the first of them; n_arguments counts all */
    struct tl_ptx_argument arguments[TL_PTX_MAX_ARGUMENTS];
    uint32_t n_arguments;
    bool waits_for_earlier; /* OK, and it does wait: for lower blocks or tickets only */
    bool only_in_line;      /* and only if the grid is {n, 1, 1} */
    char only_narrow;       /* and only if it is one block wide in 'x', 'y' or 'z'; 0: not only */
};

/* What is asked about calls. */
struct tl_ptx_calls {
    /* may the function called see what other blocks write? */
    bool (*is_remote)(void *data, const struct tl_ptx_stmt *call);
    /* may a thread end there? */
    bool (*may_end)(void *data, const struct tl_ptx_stmt *call);
    void *data;
};

/* Requires a built cfg, one of those that `roots` was made of.  0 or -ENOMEM. */
int tl_ptx_find_waits(struct tl_ptx_waits *w, struct tl_arena *arena, const struct tl_ptx_cfg *cfg,
                      const struct tl_ptx_roots *roots, const struct tl_ptx_calls *calls);

/* Whether an instruction may read what other blocks write while it runs. */
bool tl_ptx_sees_others(const struct tl_ptx_roots *r, const struct tl_ptx_cfg *cfg,
                        const struct tl_ptx_stmt *s);

#endif
