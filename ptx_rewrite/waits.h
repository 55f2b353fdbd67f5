/* Does a function wait for other blocks, and if so, only for earlier ones? */
#ifndef TALLY_PTX_WAITS_H
#define TALLY_PTX_WAITS_H

#include "ptx_rewrite/cfg.h"

struct tl_ptx_waits {
    enum tl_ptx_reason reason;       /* OK, BLOCK_WAIT or GRID_BARRIER */
    const struct tl_ptx_stmt *place; /* the polling instruction that is not proven harmless */
    bool waits_for_earlier;          /* OK, and it does wait: for lower blocks or tickets only */
    bool only_in_line;               /* and only if the grid is {n, 1, 1} */
};

/* Requires a built cfg.  `remote_calls` tells of each called function whether it polls memory (may
 * be NULL: none does). 0 or -ENOMEM. */
int tl_ptx_find_waits(struct tl_ptx_waits *w, struct tl_arena *arena, const struct tl_ptx_cfg *cfg,
                      bool (*is_remote)(void *data, const struct tl_ptx_stmt *call), void *data);

/* Whether an instruction reads memory in a way that can see what other blocks write while it
 * runs. */
bool tl_ptx_polls(const struct tl_ptx_stmt *s);

#endif
