/* Kernels that kernels launch: CUDA's dynamic parallelism.
 *
 * What a kernel launches becomes operations like any other, which follow each other as the kernel's
 * own streams and events say.  The kernel's operation is done when its blocks are and all that came
 * of them: one more operation, the end, waits for both.  What was launched into the stream of tail
 * launches begins behind that, one after the other, each with another end behind it:
 *
 *     kernel ──► its blocks are over ──┐
 *        ├──► child ──► child ─────────┼──► end ──► tail launch ──► end ──► the kernel is done
 *        └──► child ───────────────────┘
 *
 * A child may itself launch, and is done when its own children are.  No kernel waits for what it
 * has launched: CUDA has no call for that any more.
 *
 * Questions come from workers that are inside a kernel, on the kernel's stack.  So nothing is
 * compiled or computed here: a kernel that has no code yet gets an operation in front of it that
 * compiles, in a thread of the pool.  The default stream is one for the whole grid; CUDA has one
 * for each block and promises no more order than that, and no concurrency. */
#include "device/driver/nest.h"
#include "device/driver/code.h"
#include "device/driver/context.h"
#include "device/driver/handle.h"
#include "device/driver/nest_own.h"
#include "tally/check.h"

#include "device/nest.h"

#include <stdlib.h>

/* --- beginning and end ------------------------------------------------------------------------ */

/* Another end, which waits for the nest to start it beside all that is put in front of it. */
static bool make_end(struct tl_drv_nest *n) TL_DRV_LOCKED
{
    n->end = tl_drv_op_create(n->op->ctx,
                              &(struct tl_drv_work){.kind = TL_DRV_NEST_END, .nest = n});
    if (n->end != NULL)
        n->end->refs--; /* its own keeps it until it is done */
    return n->end != NULL;
}

struct tl_drv_nest *tl_drv_nest_of(struct tl_drv_op *op, struct tl_drv_nest **nest)
{
    if (*nest != NULL)
        return *nest;
    struct tl_drv_nest *n = calloc(1, sizeof *n);
    if (n == NULL)
        return NULL;
    n->op = op;
    n->last_tail = &n->tails;
    if (!make_end(n)) {
        free(n);
        return NULL;
    }
    return *nest = n;
}

static void free_nest(struct tl_drv_nest *n) TL_DRV_LOCKED
{
    TL_CHECK(n->tails == NULL);
    while (n->places != NULL) {
        struct tl_drv_nest_place *p = n->places;
        n->places = p->next;
        tl_drv_op_unref(p->last);
        free(p);
    }
    tl_drv_nest_forget(n);
    free(n);
}

void tl_drv_nest_over(struct tl_drv_nest *n)
{
    tl_drv_lock();
    tl_drv_op_start_unlock(n->end);
}

void tl_drv_nest_count(struct CUctx_st *ctx, const struct tl_drv_work *work, int difference)
{
    if (work->kind != TL_DRV_LAUNCH || work->launch.depth == 0)
        return;
    TL_CHECK(difference > 0 || ctx->home->n_nested > 0);
    ctx->home->n_nested += (uint64_t)(int64_t)difference;
}

/* --- children --------------------------------------------------------------------------------- */

static void compile(void *data)
{
    struct tl_drv_op *child = data;
    CUresult r = tl_drv_code_prepare(&child->work.launch);
    if (r != CUDA_SUCCESS)
        tl_drv_context_fail(child->ctx, r); /* the child is dropped then, as all that follows */
}

static void give_up(struct tl_drv_nest *n, struct tl_drv_work *work) TL_DRV_LOCKED
{
    tl_drv_nest_count(n->op->ctx, work, -1);
    tl_drv_work_finish(work);
}

/* A child that is not started yet, of work that it takes over, with a reference for the caller; and
 * what has to come first, or NULL.  NULL if there is no memory. */
static struct tl_drv_op *make_child(struct tl_drv_nest *n, struct tl_drv_work *work,
                                    struct tl_drv_op **first) TL_DRV_LOCKED
{
    struct CUctx_st *ctx = n->op->ctx;
    *first = NULL;
    struct tl_drv_op *child = tl_drv_op_create(ctx, work);
    if (child == NULL) {
        give_up(n, work);
        return NULL;
    }
    tl_drv_op_after(n->end, child);
    if (work->kind != TL_DRV_LAUNCH)
        return child;
    const struct tl_drv_work compiling = {.kind = TL_DRV_HOST,
                                          .host = {.function = compile, .data = child}};
    *first = tl_drv_op_create(ctx, &compiling);
    if (*first != NULL) {
        (*first)->refs--; /* its own keeps it until it is done */
        tl_drv_op_after(child, *first);
    } else {
        tl_drv_context_fail(ctx, CUDA_ERROR_OUT_OF_MEMORY); /* with which the child is dropped */
    }
    return child;
}

/* Drops the caller's reference. */
static void start_child_unlock(struct tl_drv_op *child, struct tl_drv_op *first)
    TL_RELEASE(tl_drv_mutex)
{
    tl_drv_op_unref(child);
    if (first != NULL) {
        tl_drv_op_start_unlock(first);
        tl_drv_lock();
    }
    tl_drv_op_start_unlock(child);
}

static void free_tail(struct tl_drv_nest *n) TL_DRV_LOCKED
{
    struct tl_drv_nest_tail *tail = n->tails;
    n->tails = tail->next;
    if (n->tails == NULL)
        n->last_tail = &n->tails;
    free(tail);
}

struct tl_drv_op *tl_drv_nest_close(struct tl_drv_nest *n, struct tl_drv_op **ready)
{
    struct tl_drv_op *op = n->op, *first;
    tl_drv_lock();
    bool goes_on = n->tails != NULL && make_end(n);
    if (!goes_on) {
        if (n->tails != NULL)
            tl_drv_context_fail(op->ctx, CUDA_ERROR_OUT_OF_MEMORY);
        while (n->tails != NULL) {
            give_up(n, &n->tails->work);
            free_tail(n);
        }
        free_nest(n);
        tl_drv_unlock();
        return op;
    }
    struct tl_drv_op *child = make_child(n, &n->tails->work, &first), *end = n->end;
    free_tail(n);
    if (child == NULL) {
        tl_drv_context_fail(op->ctx, CUDA_ERROR_OUT_OF_MEMORY);
    } else {
        if (first != NULL)
            tl_drv_op_start(first, ready);
        tl_drv_op_start(child, ready);
        tl_drv_op_unref(child);
    }
    tl_drv_op_start(end, ready);
    tl_drv_unlock();
    return NULL;
}

/* --- the grid's streams and events ------------------------------------------------------------ */

static struct tl_drv_nest_place *find_place(const struct tl_drv_nest *n, uint64_t handle,
                                            bool is_event) TL_DRV_LOCKED
{
    struct tl_drv_nest_place *p = n->places;
    while (p != NULL && (p->handle != handle || p->is_event != is_event))
        p = p->next;
    return p;
}

static struct tl_drv_nest_place *add_place(struct tl_drv_nest *n, uint64_t handle,
                                           bool is_event) TL_DRV_LOCKED
{
    struct tl_drv_nest_place *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    *p = (struct tl_drv_nest_place){.next = n->places, .handle = handle, .is_event = is_event};
    return n->places = p;
}

/* Streams have even numbers, events odd ones, both above what has a meaning of its own. */
uint64_t tl_drv_nest_new_place(struct tl_drv_nest *n, bool is_event)
{
    const struct tl_drv_nest_place *p = add_place(n, (++n->n_places << 16) | is_event, is_event);
    return p != NULL ? p->handle : 0;
}

uint64_t tl_drv_nest_end_place(struct tl_drv_nest *n, uint64_t handle, bool is_event)
{
    for (struct tl_drv_nest_place **at = &n->places; *at != NULL; at = &(*at)->next) {
        struct tl_drv_nest_place *p = *at;
        if (p->handle != handle || p->is_event != is_event || handle == 0)
            continue;
        *at = p->next;
        tl_drv_op_unref(p->last); /* what is in it goes on */
        free(p);
        return NEST_OK;
    }
    return NEST_INVALID_HANDLE;
}

/* False if there is none; `*p` may be NULL then only for want of memory: the default stream, which
 * has three names, is made when it is used. */
static bool find_stream(struct tl_drv_nest *n, uint64_t stream,
                        struct tl_drv_nest_place **p) TL_DRV_LOCKED
{
    bool is_default = stream <= 2;
    *p = find_place(n, is_default ? 0 : stream, false);
    if (*p == NULL && is_default)
        *p = add_place(n, 0, false);
    return *p != NULL || is_default;
}

static void set_last(struct tl_drv_nest_place *p, struct tl_drv_op *op) TL_DRV_LOCKED
{
    if (op != NULL)
        op->refs++;
    tl_drv_op_unref(p->last);
    p->last = op;
}

static uint64_t submit_last(struct tl_drv_nest *n, struct tl_drv_work *work) TL_DRV_LOCKED
{
    struct tl_drv_nest_tail *tail = calloc(1, sizeof *tail);
    if (tail == NULL) {
        give_up(n, work);
        return NEST_OUT_OF_MEMORY;
    }
    tail->work = *work;
    *n->last_tail = tail;
    n->last_tail = &tail->next;
    return NEST_OK;
}

/* Any other stream than that of tail launches. */
static uint64_t submit_unlock(struct tl_drv_nest *n, struct tl_drv_work *work, uint64_t stream)
    TL_RELEASE(tl_drv_mutex)
{
    struct tl_drv_op *first, *child = NULL;
    struct tl_drv_nest_place *p = NULL;
    bool is_there = stream == TL_NEST_STREAM_FORGET || find_stream(n, stream, &p);
    if (is_there)
        child = make_child(n, work, &first);
    else
        give_up(n, work);
    if (child == NULL) {
        tl_drv_unlock();
        return is_there ? NEST_OUT_OF_MEMORY : NEST_INVALID_HANDLE;
    }
    if (p != NULL) {
        tl_drv_op_after(child, p->last);
        set_last(p, child);
    }
    start_child_unlock(child, first);
    return NEST_OK;
}

uint64_t tl_drv_nest_submit(struct tl_drv_nest *n, struct tl_drv_work *work, uint64_t stream)
{
    const struct CUctx_st *home = n->op->ctx->home;
    tl_drv_lock();
    bool is_launch = work->kind == TL_DRV_LAUNCH;
    if (is_launch && home->n_nested >= home->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT]) {
        tl_drv_work_finish(work);
        tl_drv_unlock();
        return NEST_TOO_MANY;
    }
    tl_drv_nest_count(n->op->ctx, work, 1);
    if (stream != TL_NEST_STREAM_TAIL)
        return submit_unlock(n, work, stream);
    uint64_t error = submit_last(n, work);
    tl_drv_unlock();
    return error;
}

uint64_t tl_drv_nest_record(struct tl_drv_nest *n, uint64_t event, uint64_t stream)
{
    struct tl_drv_nest_place *s, *e = find_place(n, event, true);
    if (e == NULL || !find_stream(n, stream, &s))
        return NEST_INVALID_HANDLE;
    set_last(e, s != NULL ? s->last : NULL);
    return NEST_OK;
}

uint64_t tl_drv_nest_wait(struct tl_drv_nest *n, uint64_t stream, uint64_t event)
{
    tl_drv_lock();
    struct tl_drv_nest_place *s, *e = find_place(n, event, true);
    bool is_right = e != NULL && find_stream(n, stream, &s);
    struct tl_drv_op *first, *both = NULL;
    struct tl_drv_work nothing = {.kind = TL_DRV_EMPTY};
    if (is_right && s != NULL && e->last != NULL)
        both = make_child(n, &nothing, &first);
    bool is_needed = is_right && (s == NULL || e->last != NULL);
    if (both == NULL) {
        tl_drv_unlock();
        return is_needed ? NEST_OUT_OF_MEMORY : is_right ? NEST_OK : NEST_INVALID_HANDLE;
    }
    tl_drv_op_after(both, e->last);
    tl_drv_op_after(both, s->last);
    set_last(s, both);
    start_child_unlock(both, first);
    return NEST_OK;
}
