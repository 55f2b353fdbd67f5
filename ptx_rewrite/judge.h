/* What the parts of the judgement share: verdict.c puts them together. */
#ifndef TALLY_PTX_JUDGE_H
#define TALLY_PTX_JUDGE_H

#include "ptx_rewrite/cfg.h"
#include "ptx_rewrite/roots.h"
#include "ptx_rewrite/verdict.h"

struct tl_ptx_judgement {
    struct tl_ptx_findings *f;
    struct tl_ptx_program *p;
    const struct tl_ptx_program_func *func; /* being looked at */
};

/* Which variants a reason speaks of. */
enum tl_ptx_judged {
    TL_JUDGE_SLICE = 1 << TL_PTX_SLICE,
    TL_JUDGE_TICKET = 1 << TL_PTX_TICKET,
    TL_JUDGE_PERSISTENT = 1 << TL_PTX_PERSISTENT,
    TL_JUDGE_ALL = TL_JUDGE_SLICE | TL_JUDGE_TICKET | TL_JUDGE_PERSISTENT,
};

/* The first reason found for a variant stays. */
void tl_ptx_refuse(struct tl_ptx_judgement *j, unsigned which, enum tl_ptx_reason reason,
                   uint32_t at, struct tl_str note);
void tl_ptx_refuse_inst(struct tl_ptx_judgement *j, unsigned which, enum tl_ptx_reason reason,
                        const struct tl_ptx_stmt *s);

/* --- judge_inst.c: what single instructions forbid -------------------------------------------- */

/* A visitor for tl_ptx_each_inst; `data` is the judgement, with `func` set.  Always 0. */
int tl_ptx_judge_inst(void *data, struct tl_ptx_stmt *s);

/* --- judge_calls.c: what functions do, summed up for their callers ---------------------------- */

struct tl_ptx_summary {
    struct tl_ptx_summary *next;
    const struct tl_ptx_program_func *func;
    bool polls; /* reads what other blocks may write */
    bool exits; /* a thread may end in it */
    bool has_barrier, has_warp_sync;
    bool is_called, calls, in_circle; /* scratch for finding circles of calls */
};

/* Sums up all functions, callees into callers, until nothing changes (circles of calls included).
 * 0 or -ENOMEM. */
int tl_ptx_sum_up(struct tl_ptx_judgement *j, const struct tl_ptx_roots *roots,
                  struct tl_ptx_summary **out);
/* Of the function that an instruction calls, or NULL. */
struct tl_ptx_summary *tl_ptx_callee_summary(struct tl_ptx_judgement *j,
                                             const struct tl_ptx_stmt *s);
/* Functions that call each other in a circle repeat what they do, as a loop does; if they poll,
 * they may wait. */
void tl_ptx_judge_circles(struct tl_ptx_judgement *j, struct tl_ptx_summary *all);

/* --- judge_rounds.c: what a loop over blocks forbids ------------------------------------------ */

/* `cfgs` has one of each function with a body, in the program's order.  0 or -ENOMEM. */
int tl_ptx_judge_rounds(struct tl_ptx_judgement *j, struct tl_ptx_cfg *cfgs);

#endif
