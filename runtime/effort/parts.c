/* A graph as sub-graphs of bounded time, and single steps between them.
 *
 *     the graph          a ─► b ─► c ─► d ─► e ─► f        c is long, or must be watched
 *     its parts         (a ─► b)   c   (d ─► e ─► f)       each in the graph's stream, behind the one before
 *
 * A sub-graph is given to the driver with one call, when there is a permit and room for it, as a
 * whole kernel of its length would be; between two of them the job gives way.  Now and then one is
 * measured; if it takes much longer than its kernels did one by one, the graph is cut finer. */
#include "runtime/effort/parts.h"

#include <stdlib.h>

#include "runtime/effort/cut.h"
#include "runtime/effort/flight.h"
#include "runtime/effort/graph.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/plan.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/subgraph.h"
#include "runtime/effort/sums.h"
#include "runtime/effort/supply.h"
#include "tally/check.h"

enum { MARK_EVERY = 16 }; /* sub-graphs */

static struct tl_eff_parts *dead TL_EFF_GUARDED; /* nobody needs them any more */

/* --- making and ending ------------------------------------------------------------------------ */

TL_EFF_UNLOCKED static void parts_free(struct tl_eff_parts *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->list[i].exec != NULL)
            tl_eff_real.cuGraphExecDestroy(p->list[i].exec);
        free(p->list[i].kernels);
    }
    free(p->list);
    free(p);
}

void tl_eff_parts_unref(struct tl_eff_parts *p)
{
    tl_eff_assert_locked();
    if (p == NULL || --p->refs > 0)
        return;
    p->next = dead;
    dead = p;
}

void tl_eff_parts_bury(void)
{
    struct tl_eff_parts *going = dead;
    tl_eff_assert_locked();
    if (going == NULL)
        return;
    dead = NULL;
    tl_eff_unlock();
    while (going != NULL) {
        struct tl_eff_parts *next = going->next;
        parts_free(going);
        going = next;
    }
    tl_eff_lock();
}

/* What is counted when the part is launched. */
static bool list_kernels(struct tl_eff_part *part, const struct tl_eff_steps *steps)
{
    part->kernels = calloc(part->n, sizeof *part->kernels);
    for (uint32_t i = part->first; i < part->first + part->n && part->kernels != NULL; i++) {
        const struct tl_eff_step *step = &steps->steps[i];
        if (step->is_disabled || step->kind != TL_EFF_STEP_KERNEL)
            continue;
        const CUDA_KERNEL_NODE_PARAMS_v2 *shape = &step->kernel.shape;
        uint64_t blocks = (uint64_t)shape->gridDimX * shape->gridDimY * shape->gridDimZ;
        part->kernels[part->n_kernels++] = (struct tl_eff_part_kernel){step->kernel.record, blocks};
        part->blocks += blocks;
    }
    return part->kernels != NULL;
}

static uint64_t sum_of(const struct tl_eff_cut_step *times, const struct tl_eff_part *part)
{
    uint64_t ns = 0;
    for (uint32_t i = part->first; i < part->first + part->n; i++)
        ns += times[i].ns;
    return ns;
}

struct tl_eff_parts *tl_eff_parts_make(const struct tl_eff_steps *steps,
                                       const struct tl_eff_cut_step *times, uint64_t bound_ns,
                                       struct tl_eff_context *context)
{
    struct tl_eff_parts *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->refs = 1;
    p->context = context;
    p->bound_ns = bound_ns;
    p->list = calloc((size_t)steps->n + 1, sizeof *p->list);
    bool is_made = p->list != NULL;
    for (uint32_t at = 0; at < steps->n && is_made;) {
        struct tl_eff_part *part = &p->list[p->n++];
        part->of = p;
        part->first = at;
        part->n = tl_eff_cut_next(times, steps->n, at, bound_ns);
        part->ns = sum_of(times, part);
        at += part->n;
        if (part->n == 1)
            continue;
        p->n_subgraphs++;
        is_made = list_kernels(part, steps) &&
                  tl_eff_subgraph_make(steps, part->first, part->n, context, &part->exec) == 0;
    }
    if (is_made)
        return p;
    parts_free(p);
    return NULL;
}

bool tl_eff_parts_stay(struct tl_eff_parts *p, const struct tl_eff_cut_step *times, uint32_t n,
                       uint64_t bound_ns)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (at >= n || tl_eff_cut_next(times, n, at, bound_ns) != p->list[i].n)
            return false;
        at += p->list[i].n;
    }
    if (at != n)
        return false;
    tl_eff_lock();
    for (uint32_t i = 0; i < p->n; i++)
        p->list[i].ns = sum_of(times, &p->list[i]);
    tl_eff_unlock();
    return true;
}

/* --- launching -------------------------------------------------------------------------------- */

static void count(const struct tl_eff_part *part, const struct tl_eff_stream *s)
{
    for (uint32_t i = 0; i < part->n_kernels; i++)
        tl_record_launched(part->kernels[i].record, TL_RUNG_WHOLE, part->kernels[i].blocks);
    tl_eff_sum_launched(s->context, part->n_kernels, part->blocks);
    tl_record_graph(tl_eff.record, TL_GRAPH_SUBGRAPHS, 1);
}

TL_EFF_LOCKED static bool wants_sample(const struct tl_eff_part *part)
{
    return tl_eff_plan_wants_sample(part->n_samples, part->n_launches);
}

/* What it is taken to last: what was measured, or its kernels one by one. */
TL_EFF_LOCKED static uint64_t predicted_ns(const struct tl_eff_part *part)
{
    return part->least_ns > part->ns ? part->least_ns : part->ns;
}

/* Whether it may go to the driver at once, from the calling thread. */
TL_EFF_LOCKED static bool goes_at_once(struct tl_eff_stream *s, const struct tl_eff_part *part,
                                       uint64_t now)
{
    return tl_eff_passes(s) && tl_eff_permit_holds(now) && !wants_sample(part) &&
           tl_eff_permit.grant.blocks_per_s == 0 && tl_eff_has_room(s, predicted_ns(part));
}

static CUresult launch_part(struct tl_eff_part *part, struct tl_eff_stream *s)
{
    struct tl_eff_item *item = tl_eff_item_create(TL_EFF_PART);
    if (item == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t now = tl_eff_now();
    item->part.part = part;
    tl_eff_lock();
    part->of->refs++; /* the item's */
    tl_eff_make_room(s);
    bool goes = goes_at_once(s, part, now);
    if (goes) {
        part->n_launches++;
        tl_eff_unmarked(s, predicted_ns(part), now);
        tl_eff_direct_begin();
        tl_eff_item_unref(item);
    } else {
        tl_eff_enqueue(s, item);
    }
    tl_eff_unlock();
    if (!goes)
        return CUDA_SUCCESS;
    CUresult r = tl_eff_real.cuGraphLaunch(part->exec, s->handle);
    tl_eff_direct_end();
    count(part, s);
    return r;
}

CUresult tl_eff_parts_launch(struct tl_eff_parts *p, const struct tl_eff_steps *steps,
                             struct tl_eff_stream *s)
{
    CUresult r = CUDA_SUCCESS;
    for (uint32_t i = 0; i < p->n && r == CUDA_SUCCESS; i++) {
        struct tl_eff_part *part = &p->list[i];
        r = part->exec != NULL ? launch_part(part, s)
                               : tl_eff_step_launch(&steps->steps[part->first], s);
    }
    return r;
}

/* It was kept waiting for a permit, until now. */
TL_EFF_LOCKED static void note_wait(struct tl_eff_part_launch *l, const struct tl_eff_stream *s,
                                    uint64_t now)
{
    if (l->ready_ns == 0)
        return;
    atomic_fetch_add_explicit(&tl_eff.page->waited_ns, now - l->ready_ns, memory_order_relaxed);
    tl_share_took(&tl_eff.page->waited, now - l->ready_ns);
    tl_record_spanned(tl_eff.record, TL_SPAN_WAIT, NULL, s->number, l->ready_ns, now);
}

/* A launch between two events, NULL if it is not to be measured or there is no memory. */
TL_EFF_LOCKED static struct tl_eff_piece *measure(struct tl_eff_part *part, struct tl_eff_stream *s)
{
    struct tl_eff_piece *p = wants_sample(part) ? tl_eff_make_piece(s) : NULL;
    if (p == NULL)
        return NULL;
    p->part = part;
    part->of->refs++;
    p->n_kernels = part->n_kernels;
    p->predicted_ns = predicted_ns(part);
    tl_eff_add_flying(p);
    return p;
}

/* The lock is given up meanwhile. */
TL_EFF_LOCKED static CUresult give_to_driver(struct tl_eff_part *part, struct tl_eff_stream *s,
                                             uint64_t now)
{
    struct tl_eff_piece *p = measure(part, s);
    part->n_launches++;
    if (p == NULL)
        tl_eff_unmarked(s, predicted_ns(part), now);
    tl_eff_unlock();
    tl_eff_make_current(s->context);
    tl_eff_prepare(s->context);
    if (p != NULL)
        tl_eff_stamp(p);
    CUresult r = tl_eff_real.cuGraphLaunch(part->exec, s->handle);
    if (p != NULL && (r != CUDA_SUCCESS || tl_eff_watch(p) != CUDA_SUCCESS))
        p->is_lost = true;
    count(part, s);
    tl_eff_lock();
    if (s->n_unmarked >= MARK_EVERY || s->unmarked_ns >= tl_eff_run_ahead_ns() / 4)
        tl_eff_mark(s);
    return r;
}

bool tl_eff_part_advance(struct tl_eff_stream *s, struct tl_eff_item *item, uint64_t now)
{
    struct tl_eff_part *part = item->part.part;
    tl_eff_assert_locked();
    TL_CHECK(s->first == item && item->kind == TL_EFF_PART && !item->is_under_way);
    if (s->is_stalled)
        return false;
    if (!tl_eff_permit_holds(now)) {
        if (item->part.ready_ns == 0)
            item->part.ready_ns = now;
        s->is_held = true;
        return false;
    }
    if (!tl_eff_has_room(s, predicted_ns(part))) {
        if (s->n_flying == 0)
            tl_eff_mark(s); /* else the news will come anyway */
        return false;
    }
    uint32_t blocks = part->blocks < UINT32_MAX ? (uint32_t)part->blocks : UINT32_MAX;
    s->is_held = !tl_eff_take_rate(blocks, now);
    if (s->is_held)
        return false;
    note_wait(&item->part, s, now);
    item->is_under_way = true;
    CUresult r = give_to_driver(part, s, now);
    tl_eff_submitted(item, r);
    tl_eff_parts_bury();
    return true;
}

void tl_eff_part_ran(struct tl_eff_part *part, uint64_t ns)
{
    tl_eff_assert_locked();
    part->n_samples++;
    if (part->least_ns == 0 || ns < part->least_ns)
        part->least_ns = ns;
    part->of->is_too_long |= tl_eff_cut_is_too_long(part->least_ns, part->n_samples,
                                                    part->of->bound_ns);
    if (tl_eff_permit.n_words > 0 && ns > tl_eff_turnaround_ns())
        atomic_fetch_add_explicit(&tl_eff.page->uncontrolled_ns, ns, memory_order_relaxed);
}
