/* Graphs that kernels launch.  A launch of a graph is done when its nodes are, and all that they
 * launched:
 *
 *     nodes ──► fired graphs ──► first tail ──► second tail ──┐
 *        └────► siblings of it ──────────────────────────────┴──► done
 *
 * Each of these is a launch of its own, with the same inside.  So the last operation of a launch is
 * reached (tl_drv_graph_run_over) when its nodes are done, and finished when the last of what came
 * of them is.  A tail that goes on with its own graph is done then, and that takes its place, so
 * that a graph may go on with itself for ever.  A kernel asks on its own stack, in which nothing is
 * computed: what it fires is given to the pool, or to the device. */
#include "device/driver/graph_run.h"
#include "device/driver/context.h"
#include "device/driver/log.h"
#include "device/driver/nest.h"
#include "tally/check.h"

#include <stdlib.h>

enum { MOST_FIRED = 120, MOST_TAILS = 255 }; /* CUDA's */

struct tl_drv_graph_tail {
    struct tl_drv_graph_tail *next;
    struct CUgraphExec_st *exec; /* it may be gone, and another one there */
    uint64_t number;
};

static struct CUgraphExec_st *allowed TL_DRV_GUARDED; /* those that kernels may launch */
static uint64_t n_allowed TL_DRV_GUARDED;             /* so far */

void tl_drv_graph_allow(struct CUgraphExec_st *exec)
{
    exec->number = ++n_allowed;
    exec->next_allowed = allowed;
    allowed = exec;
}

void tl_drv_graph_disallow(struct CUgraphExec_st *exec)
{
    struct CUgraphExec_st **at = &allowed;
    while (*at != NULL && *at != exec)
        at = &(*at)->next_allowed;
    if (*at != NULL)
        *at = exec->next_allowed;
}

/* Any number may come from a kernel. */
static struct CUgraphExec_st *find_allowed(uint64_t handle) TL_DRV_LOCKED
{
    struct CUgraphExec_st *e = allowed;
    while (e != NULL && (uintptr_t)e != handle)
        e = e->next_allowed;
    return e;
}

struct tl_drv_graph_run *tl_drv_graph_run_create(struct CUgraphExec_st *exec, int priority)
{
    struct tl_drv_graph_run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return NULL;
    run->exec = exec;
    run->number = exec->number;
    run->priority = priority;
    run->uses_own = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
    run->is_for_kernels = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
    run->last_tail = &run->tails;
    return run;
}

/* --- what comes after ------------------------------------------------------------------------- */

/* Prepares a launch beside another one; `first` is to be started unless it is NULL. */
static bool prepare(struct tl_drv_graph_run *run, struct CUgraphExec_st *exec,
                    enum tl_drv_graph_how how, struct tl_drv_op **first) TL_DRV_LOCKED
{
    struct tl_drv_graph_run *child = tl_drv_graph_run_create(exec, run->priority);
    *first = NULL;
    if (child == NULL)
        return false;
    child->parent = run;
    child->how = how;
    if (tl_drv_graph_expand(exec, run->end->ctx, child, first) != CUDA_SUCCESS)
        return false;
    if (how == TL_DRV_GRAPH_TAIL)
        run->has_tail = true;
    else if (how == TL_DRV_GRAPH_FIRE)
        run->n_children++;
    else
        run->n_siblings++;
    return true;
}

static struct CUgraphExec_st *take_tail(struct tl_drv_graph_run *run) TL_DRV_LOCKED
{
    struct tl_drv_graph_tail *tail = run->tails;
    struct CUgraphExec_st *exec = find_allowed((uintptr_t)tail->exec);
    if (exec != NULL && exec->number != tail->number)
        exec = NULL;
    run->tails = tail->next;
    if (run->tails == NULL)
        run->last_tail = &run->tails;
    run->n_tails--;
    free(tail);
    if (exec != NULL)
        exec->is_tail = false;
    return exec;
}

static bool is_of(const struct tl_drv_graph_run *run,
                  const struct CUgraphExec_st *exec) TL_DRV_LOCKED
{
    return exec == run->exec && exec->number == run->number;
}

/* Whether a launch of that graph may take its place: nothing else is to come of it, and nobody
 * waits for its end, nor will: from then on, who looks for the graph's last launch finds the new
 * one.  Not that of the host, whose end its stream has. */
static bool may_be_replaced(const struct tl_drv_graph_run *run,
                            const struct CUgraphExec_st *exec) TL_DRV_LOCKED
{
    return run->how == TL_DRV_GRAPH_TAIL && run->parent != NULL && is_of(run, exec) &&
           run->tails == NULL && run->n_siblings == 0 && run->end->n_after == 0;
}

/* Another launch stands where this one did, as its parent's tail. */
static void replace(struct tl_drv_graph_run *run, struct tl_drv_graph_run *by) TL_DRV_LOCKED
{
    by->parent = run->parent;
    run->parent = NULL;
    run->has_tail = false;
}

/* The next tail, if its turn has come. */
static void begin_tail(struct tl_drv_graph_run *run, struct tl_drv_op **ready) TL_DRV_LOCKED
{
    struct CUctx_st *ctx = run->end->ctx;
    struct tl_drv_op *first;
    while (run->tails != NULL && !run->has_tail && run->n_children == 0) {
        struct CUgraphExec_st *exec = take_tail(run);
        if (exec == NULL)
            tl_drv_log("a graph was destroyed before it was launched as a kernel had asked for");
        if (tl_drv_context_error(ctx) != CUDA_SUCCESS)
            continue;
        if (exec == NULL) {
            tl_drv_context_fail(ctx, CUDA_ERROR_INVALID_HANDLE);
            continue;
        }
        bool is_replaced = may_be_replaced(run, exec);
        if (!prepare(run, exec, TL_DRV_GRAPH_TAIL, &first))
            tl_drv_context_fail(ctx, CUDA_ERROR_OUT_OF_MEMORY);
        else if (is_replaced)
            replace(run, exec->last->work.run);
        if (first != NULL)
            tl_drv_op_start(first, ready);
    }
}

static void leave(struct tl_drv_graph_run *parent, const struct tl_drv_graph_run *run) TL_DRV_LOCKED
{
    if (run->how == TL_DRV_GRAPH_TAIL) {
        parent->has_tail = false;
        return;
    }
    uint32_t *n = run->how == TL_DRV_GRAPH_FIRE ? &parent->n_children : &parent->n_siblings;
    TL_CHECK(*n > 0);
    --*n;
}

/* Whether all that came of it is done, after the next tail has begun if its turn has come. */
static bool is_done(struct tl_drv_graph_run *run, struct tl_drv_op **ready) TL_DRV_LOCKED
{
    if (!run->is_over)
        return false;
    begin_tail(run, ready);
    return run->n_children == 0 && !run->has_tail && run->n_siblings == 0;
}

struct tl_drv_op *tl_drv_graph_run_over(struct tl_drv_graph_run *run, struct tl_drv_op **ready)
{
    struct tl_drv_op *ended = NULL;
    tl_drv_lock();
    run->is_over = true;
    while (run != NULL && is_done(run, ready)) {
        struct tl_drv_graph_run *parent = run->parent;
        run->end->next = ended;
        ended = run->end;
        if (parent != NULL)
            leave(parent, run);
        free(run);
        run = parent;
    }
    tl_drv_unlock();
    return ended;
}

/* --- what kernels ask ------------------------------------------------------------------------- */

static uint64_t add_tail(struct tl_drv_graph_run *run, struct CUgraphExec_st *exec) TL_DRV_LOCKED
{
    struct tl_drv_graph_tail *tail = run->n_tails < MOST_TAILS ? calloc(1, sizeof *tail) : NULL;
    if (tail == NULL)
        return run->n_tails < MOST_TAILS ? NEST_OUT_OF_MEMORY : NEST_TOO_MANY;
    tail->exec = exec;
    tail->number = exec->number;
    *run->last_tail = tail;
    run->last_tail = &tail->next;
    run->n_tails++;
    exec->is_tail = true;
    return NEST_OK;
}

/* One that is under way may not be launched beside itself, only behind. */
static bool may_launch(const struct tl_drv_graph_run *run, const struct CUgraphExec_st *exec,
                       enum tl_drv_graph_how how) TL_DRV_LOCKED
{
    if (exec->is_tail || !exec->is_uploaded)
        return false;
    return exec->last == NULL || tl_drv_op_is_done(exec->last) ||
           (how == TL_DRV_GRAPH_TAIL && is_of(run, exec));
}

uint64_t tl_drv_graph_run_launch(struct tl_drv_graph_run *run, uint64_t handle,
                                 enum tl_drv_graph_how how)
{
    struct tl_drv_op *first;
    uint64_t error = NEST_OK;
    tl_drv_lock();
    struct CUgraphExec_st *exec = find_allowed(handle);
    if (run == NULL || exec == NULL || !may_launch(run, exec, how)) {
        tl_drv_unlock();
        return NEST_INVALID_VALUE;
    }
    if (how == TL_DRV_GRAPH_TAIL) {
        error = add_tail(run, exec);
        tl_drv_unlock();
        return error;
    }
    if (run->n_fired++ >= MOST_FIRED) {
        tl_drv_unlock();
        return NEST_TOO_MANY;
    }
    if (how == TL_DRV_GRAPH_SIBLING && run->parent != NULL) {
        run = run->parent;
        how = TL_DRV_GRAPH_FIRE;
    }
    if (!prepare(run, exec, how, &first))
        error = NEST_OUT_OF_MEMORY;
    if (first != NULL)
        tl_drv_op_start_unlock(first);
    else
        tl_drv_unlock();
    return error;
}

uint64_t tl_drv_graph_run_handle(const struct tl_drv_graph_run *run)
{
    return run != NULL && run->is_for_kernels ? (uintptr_t)run->exec : 0;
}
