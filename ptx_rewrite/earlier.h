/* Does a block wait for blocks that have started before it, and for no others? */
#ifndef TALLY_PTX_EARLIER_H
#define TALLY_PTX_EARLIER_H

#include "ptx_rewrite/affine.h"
#include "ptx_rewrite/roots.h"

struct tl_earlier {
    const struct tl_ptx_cfg *cfg;
    struct tl_affines *affines;
    const struct tl_ptx_roots *roots;
    bool
        /* somebody in the program does: then %ctaid.x alone does not order blocks */
        reads_ctaid_yz;
};

/* Whether the load `poll` reads what only blocks with a lower number, or with a lower ticket,
 * write. */
bool tl_earlier_is_waited_for(struct tl_earlier *x, uint32_t poll);
/* Whether something else than the stores and atomics of this function may write where a poll
 * reads. */
bool tl_earlier_has_other_writers(struct tl_earlier *x, uint32_t poll);
/* Whether the counter that a ticket is of is only ever counted up, or set back to zero, with which
 * it begins. */
bool tl_earlier_is_ticket_safe(struct tl_earlier *x, const struct tl_ptx_sym *reg);

#endif
