/* What the files that run blocks on one worker share: the list of ready fibers, and what barrier.c,
 * unit.c and block.c call of each other.  All of it is the worker's own; nothing here is locked. */
#ifndef TALLY_DEVICE_EXEC_ENGINE_H
#define TALLY_DEVICE_EXEC_ENGINE_H

#include "device/exec/internal.h"

/* --- ready fibers ----------------------------------------------------------------------------- */

static inline void tl__ready_push(struct tl__engine *e, struct tl__fiber *f)
{
    f->next = NULL;
    if (e->first == NULL)
        e->first = f;
    else
        e->last->next = f;
    e->last = f;
    e->n_ready++;
}

static inline struct tl__fiber *tl__ready_pop(struct tl__engine *e)
{
    struct tl__fiber *f = e->first;
    if (f != NULL) {
        e->first = f->next;
        e->n_ready--;
    }
    return f;
}

/* Leaves the current fiber for the next one that is ready, or for main. */
static inline void tl__ready_run_next(struct tl__engine *e)
{
    struct tl__fiber *self = e->current, *next = tl__ready_pop(e);
    if (next == self)
        return;
    e->current = next;
    if (next == NULL) {
        e->in_kernel = 0;
        next = &e->main;
    }
#if TL_EXEC_ASAN || TL_EXEC_TSAN
    tl__fiber_switch(self, next);
#else
    tl__fiber_hop(self, next);
#endif
}

/* --- units: device/exec/unit.c ---------------------------------------------------------------- */

/* The next blocks for `u`, unless there are none or this worker should do something else. */
bool tl__unit_claim(struct tl__engine *e, struct tl__unit *u);
/* Takes one claimed block and makes the frame say so. */
void tl__unit_begin(struct tl__engine *e, struct tl__unit *u);
/* A unit fit for the run, with blocks claimed for it; NULL and 0 if there are none, or -ENOMEM. */
int tl__unit_add(struct tl__engine *e, struct tl__unit **out);
/* Puts units that are done aside.  False if none is left. */
bool tl__units_collect(struct tl__engine *e);
/* After a fault: nothing of what was begun goes on. */
void tl__units_drop(struct tl__engine *e);
/* Frees the units that were put aside. */
void tl__units_finish(struct tl__engine *e);

/* --- barriers: device/exec/barrier.c ---------------------------------------------------------- */

/* Lanes of `warp` may have exited since we looked: barriers for all threads expect fewer now. */
void tl__barrier_note_exits(struct tl__engine *e, struct tl__unit *u, uint32_t warp);

/* --- fibers: device/exec/block.c -------------------------------------------------------------- */

/* What every fiber of a unit runs: warps, or ranges of blocks. */
void tl__engine_fiber(struct tl__fiber *self);

#endif
