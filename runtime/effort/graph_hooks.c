/* Executable graphs by handle, and the calls that make, change, launch and end them.
 *
 * What cannot be followed (a node that only the driver can run, a change to a node that we do not
 * know) makes the executable one that is launched whole, from then on. */
#include "runtime/effort/graph.h"
#include "tally/kernel_params.h"

#include <stdlib.h>

#include "runtime/effort/cut.h"
#include "runtime/effort/event.h"
#include "runtime/effort/flight.h"
#include "runtime/effort/hooks.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/parts.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/plan.h"
#include "runtime/effort/profile.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"

struct graph {
    struct graph *next;
    CUgraphExec exec;
    bool is_whole;
    struct tl_eff_steps steps;
    bool is_looked_at;             /* at what its steps take: */
    struct tl_eff_steps_time time; /* then */
    uint32_t n_launches;           /* since then */
    bool is_learning;              /* it went node by node to learn that */
    uint32_t n_tries;              /* see struct tl_eff_graph_facts, as the next one */
    uint32_t n_same;
    struct tl_eff_parts *parts[2]; /* with somebody above, alone; NULL: not cut yet */
    bool are_current[2];           /* by the times of the last look */
    bool is_refused;               /* the driver did not make sub-graphs of it */
    uint32_t halvings;
    bool was_said; /* the log has it that it is launched as it is */
    /* recorded behind each launch, since launches of one executable never overlap */
    CUevent last;
    uint32_t last_stream; /* its number and one */
};

/* guards the list and the steps; taken before the lock of everything */
static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static struct graph *graphs TL_GUARDED_BY(lock);

TL_REQUIRES(lock) static struct graph *find_graph(CUgraphExec exec)
{
    struct graph *g = graphs;
    while (g != NULL && g->exec != exec)
        g = g->next;
    return g;
}

/* Its steps have changed, or it ends: sub-graphs of it go when nothing of them is queued. */
TL_REQUIRES(lock) static void forget_parts(struct graph *g)
{
    tl_eff_lock();
    for (uint32_t i = 0; i < 2; i++) {
        tl_eff_parts_unref(g->parts[i]);
        g->parts[i] = NULL;
        g->are_current[i] = false;
    }
    tl_eff_parts_bury();
    tl_eff_unlock();
    g->is_looked_at = g->is_refused = false;
    g->n_tries = g->n_same = g->halvings = 0;
}

/* --- making and ending ------------------------------------------------------------------------ */

static CUresult instantiate(const struct tl_eff_call *call)
{
    CUresult r = tl_eff_invoke(call);
    if (r != CUDA_SUCCESS)
        return r;
    struct graph *g = calloc(1, sizeof *g);
    if (g == NULL)
        return r; /* it is launched whole */
    /* NOLINT(performance-no-int-to-ptr) */
    g->exec = *(CUgraphExec *)call->args[0];
    /* NOLINT(performance-no-int-to-ptr) */
    g->is_whole = tl_eff_steps_read(&g->steps, (CUgraph)call->args[1]) < 0;
    if (g->is_whole)
        tl_eff_note("a graph is launched whole: it has nodes that cannot be replayed");
    tl_mutex_lock(&lock);
    g->next = graphs;
    graphs = g;
    tl_mutex_unlock(&lock);
    return r;
}

#define INSTANTIATE_HOOK(name, PARAMS, n, ...)                                                     \
    static CUresult hook_##name PARAMS                                                             \
    {                                                                                              \
        return instantiate(&(struct tl_eff_call){tl_eff.shim->real(#name), n, {__VA_ARGS__}});     \
    }
typedef uintptr_t word;
INSTANTIATE_HOOK(cuGraphInstantiate, (word exec, word graph, word node, word log, word n), 5, exec,
                 graph, node, log, n)
INSTANTIATE_HOOK(cuGraphInstantiate_v2, (word exec, word graph, word node, word log, word n), 5,
                 exec, graph, node, log, n)
INSTANTIATE_HOOK(cuGraphInstantiateWithFlags, (word exec, word graph, word flags), 3, exec, graph,
                 flags)
INSTANTIATE_HOOK(cuGraphInstantiateWithParams, (word exec, word graph, word params), 3, exec, graph,
                 params)
INSTANTIATE_HOOK(cuGraphInstantiateWithParams_ptsz, (word exec, word graph, word params), 3, exec,
                 graph, params)

static CUresult hook_cuGraphExecDestroy(CUgraphExec exec)
{
    tl_mutex_lock(&lock);
    struct graph **at = &graphs;
    while (*at != NULL && (*at)->exec != exec)
        at = &(*at)->next;
    struct graph *g = *at;
    if (g != NULL) {
        *at = g->next;
        forget_parts(g);
    }
    tl_mutex_unlock(&lock);
    if (g == NULL || g->is_whole) {
        tl_eff_lock();
        tl_eff_drain_all(); /* a launch of it may be queued */
        tl_eff_unlock();
    }
    if (g != NULL) {
        if (g->last != NULL)
            tl_eff_event_destroy(g->last);
        tl_eff_steps_finish(&g->steps);
        free(g);
    }
    return tl_eff_real.cuGraphExecDestroy(exec);
}

/* --- changing --------------------------------------------------------------------------------- */

/* The graph that the call is about, which nobody else changes until the lock is given back.  One
 * that goes whole has nothing queued then, so that the call finds it at rest. */
TL_ACQUIRE(lock) static struct graph *begin_change(const struct tl_eff_call *call)
{
    tl_mutex_lock(&lock);
    /* NOLINT(performance-no-int-to-ptr) */
    struct graph *g = find_graph((CUgraphExec)call->args[0]);
    if (g != NULL && g->is_whole) {
        tl_eff_lock();
        tl_eff_drain_all();
        tl_eff_unlock();
    }
    return g;
}

/* Makes the call, and then the change of the step, if there is one for that node; otherwise the
 * graph goes whole. */
static CUresult change(const struct tl_eff_call *call, enum tl_eff_step_kind kind,
                       int (*apply)(struct tl_eff_step *step, const void *params),
                       const void *params)
{
    struct graph *g = begin_change(call);
    CUresult r = tl_eff_invoke(call);
    bool was_found = false;
    for (uint32_t i = 0; r == CUDA_SUCCESS && g != NULL && !g->is_whole && i < g->steps.n; i++) {
        struct tl_eff_step *step = &g->steps.steps[i];
        /* NOLINT */
        if (step->node == (CUgraphNode)call->args[1] && step->kind == kind && apply != NULL) {
            was_found = true;
            g->is_whole = apply(step, params) < 0;
        }
    }
    if (r == CUDA_SUCCESS && g != NULL && !was_found)
        g->is_whole = true;
    if (g != NULL)
        forget_parts(g); /* it may take longer from now on, too */
    tl_mutex_unlock(&lock);
    return r;
}

static int apply_kernel(struct tl_eff_step *step, const void *params)
{
    return tl_eff_step_set_kernel(step, params);
}

static int apply_copy(struct tl_eff_step *step, const void *params)
{
    return tl_eff_step_set_copy(step, params);
}

static int apply_fill(struct tl_eff_step *step, const void *params)
{
    step->fill = *(const CUDA_MEMSET_NODE_PARAMS *)params;
    return 0;
}

static int apply_host(struct tl_eff_step *step, const void *params)
{
    step->host = *(const CUDA_HOST_NODE_PARAMS *)params;
    return 0;
}

static int apply_event(struct tl_eff_step *step, const void *params)
{
    step->event = *(CUevent const *)params;
    return 0;
}

static int apply_enabled(struct tl_eff_step *step, const void *params)
{
    step->is_disabled = *(const unsigned *)params == 0;
    return 0;
}

#define REAL(name) tl_eff.shim->real(#name)

static CUresult hook_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                       const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    return change(&(struct tl_eff_call){REAL(cuGraphExecKernelNodeSetParams_v2),
                                        3,
                                        {(word)exec, (word)node, (word)p}},
                  TL_EFF_STEP_KERNEL, apply_kernel, p);
}

static CUresult hook_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    CUDA_KERNEL_NODE_PARAMS_v2 q = {0};
    if (p != NULL)
        q = tl_kernel_params_of_v1(p);
    return change(&(struct tl_eff_call){REAL(cuGraphExecKernelNodeSetParams),
                                        3,
                                        {(word)exec, (word)node, (word)p}},
                  TL_EFF_STEP_KERNEL, apply_kernel, &q);
}

static CUresult hook_cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_MEMCPY3D *p, CUcontext context)
{
    return change(&(struct tl_eff_call){REAL(cuGraphExecMemcpyNodeSetParams),
                                        4,
                                        {(word)exec, (word)node, (word)p, (word)context}},
                  TL_EFF_STEP_COPY, apply_copy, p);
}

static CUresult hook_cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_MEMSET_NODE_PARAMS *p,
                                                    CUcontext context)
{
    return change(&(struct tl_eff_call){REAL(cuGraphExecMemsetNodeSetParams),
                                        4,
                                        {(word)exec, (word)node, (word)p, (word)context}},
                  TL_EFF_STEP_FILL, apply_fill, p);
}

static CUresult hook_cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_HOST_NODE_PARAMS *p)
{
    return change(&(struct tl_eff_call){REAL(cuGraphExecHostNodeSetParams),
                                        3,
                                        {(word)exec, (word)node, (word)p}},
                  TL_EFF_STEP_HOST, apply_host, p);
}

static CUresult hook_cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                        CUevent event)
{
    return change(&(struct tl_eff_call){REAL(cuGraphExecEventRecordNodeSetEvent),
                                        3,
                                        {(word)exec, (word)node, (word)event}},
                  TL_EFF_STEP_RECORD, apply_event, (const void *)&event);
}

static CUresult hook_cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                      CUevent event)
{
    return change(&(struct tl_eff_call){REAL(cuGraphExecEventWaitNodeSetEvent),
                                        3,
                                        {(word)exec, (word)node, (word)event}},
                  TL_EFF_STEP_WAIT, apply_event, (const void *)&event);
}

/* Of any kind: the driver knows; we launch it whole afterwards. */
static CUresult hook_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, void *p)
{
    return change(
        &(struct tl_eff_call){REAL(cuGraphExecNodeSetParams), 3, {(word)exec, (word)node, (word)p}},
        TL_EFF_STEP_KERNEL, NULL, NULL);
}

static CUresult hook_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                        CUgraph child)
{
    return change(&(struct tl_eff_call){REAL(cuGraphExecChildGraphNodeSetParams),
                                        3,
                                        {(word)exec, (word)node, (word)child}},
                  TL_EFF_STEP_KERNEL, NULL, NULL);
}

static CUresult hook_cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned is_enabled)
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    tl_eff_real.cuGraphNodeGetType(node, &type);
    enum tl_eff_step_kind kind = type == CU_GRAPH_NODE_TYPE_MEMCPY   ? TL_EFF_STEP_COPY
                                 : type == CU_GRAPH_NODE_TYPE_MEMSET ? TL_EFF_STEP_FILL
                                                                     : TL_EFF_STEP_KERNEL;
    return change(
        &(struct tl_eff_call){REAL(cuGraphNodeSetEnabled), 3, {(word)exec, (word)node, is_enabled}},
        kind, apply_enabled, &is_enabled);
}

/* All parameters at once, from another graph of the same shape.  Its nodes stand for the old ones
 * from now on. */
static CUresult update(const struct tl_eff_call *call)
{
    struct tl_eff_steps steps;
    struct graph *g = begin_change(call);
    CUresult r = tl_eff_invoke(call);
    if (r == CUDA_SUCCESS && g != NULL && !g->is_whole) {
        bool had_disabled = false;
        for (uint32_t i = 0; i < g->steps.n; i++)
            had_disabled |= g->steps.steps[i].is_disabled;
        if (!had_disabled && tl_eff_steps_read(&steps, (CUgraph)call->args[1]) == 0) { /* NOLINT */
            tl_eff_steps_finish(&g->steps);
            g->steps = steps;
            forget_parts(g);
        } else {
            g->is_whole = true;
        }
    }
    tl_mutex_unlock(&lock);
    return r;
}

static CUresult hook_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *info)
{
    return update(&(struct tl_eff_call){
        REAL(cuGraphExecUpdate_v2), 3, {(word)exec, (word)graph, (word)info}});
}

static CUresult hook_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, void *node, void *result)
{
    return update(&(struct tl_eff_call){
        REAL(cuGraphExecUpdate), 4, {(word)exec, (word)graph, (word)node, (word)result}});
}

/* --- launching -------------------------------------------------------------------------------- */

static CUresult launch_whole(CUgraphExec exec, struct tl_eff_stream *s)
{
    struct tl_eff_turn turn;
    tl_eff_turn_begin(&turn, s, true);
    CUresult r = tl_eff_real.cuGraphLaunch(exec, s->handle);
    tl_eff_turn_end(&turn, r);
    if (r == CUDA_SUCCESS && !s->is_capturing) {
        tl_record_graph(tl_eff.record, TL_GRAPH_OPAQUE, 1);
        tl_eff_lock();
        tl_eff_unmarked(s, tl_eff_predicted_ns(NULL), tl_eff_now());
        tl_eff_unlock();
    }
    return r;
}

/* Looks at what its steps take, if that is not known.  True if it went by the last look for so long
 * that its kernels are to be measured again. */
TL_REQUIRES(lock) static bool look(struct graph *g, const struct tl_eff_stream *s)
{
    enum { LOOK_AFTER = 64 };
    bool is_due = g->is_looked_at && g->n_launches >= LOOK_AFTER;
    if (is_due) {
        g->is_looked_at = false;
        g->n_tries = 0;
    } else if (!g->is_looked_at || g->is_learning) {
        g->time = tl_eff_steps_time(&g->steps, s, NULL);
        g->are_current[0] = g->are_current[1] = false;
        g->is_looked_at = true;
        g->n_launches = 0;
    }
    return is_due;
}

/* Which way it goes now.  If as it is, that has been begun. */
TL_REQUIRES(lock) static enum tl_record_graph choose_way(struct graph *g, struct tl_eff_stream *s)
{
    struct tl_eff_graph_facts f = {.is_forced = tl_eff.settings->force >= 0,
                                   .is_due = look(g, s),
                                   .has_events = g->time.has_events,
                                   .has_unknown = g->time.wants_samples,
                                   .n_tries = g->n_tries,
                                   .n_same = g->n_same,
                                   .ns = g->time.ns};
    tl_eff_lock();
    uint64_t now = tl_eff_now();
    f.may_pass = tl_eff_passes(s) && tl_eff_permit_holds(now) && tl_eff_has_room(s, f.ns);
    f.is_alone = tl_eff_is_alone();
    uint32_t permille = tl_eff_permit.grant.sm_permille;
    f.divides_sms = permille > 0 && permille < 1000;
    f.has_rate = tl_eff_permit.grant.blocks_per_s != 0;
    f.turnaround_ns = tl_eff_turnaround_ns();
    enum tl_record_graph way = tl_eff_cut_way(&f);
    if (way == TL_GRAPH_AS_IT_IS) {
        tl_eff_unmarked(s, f.ns, now);
        tl_eff_direct_begin();
    }
    tl_eff_unlock();
    g->is_learning = way == TL_GRAPH_UNKNOWN;
    g->n_tries += g->is_learning;
    g->n_launches++;
    g->n_same++;
    return way;
}

/* What choose_way has begun. */
TL_REQUIRES(lock) static CUresult launch_as_it_is(struct graph *g, struct tl_eff_stream *s)
{
    CUresult r = tl_eff_real.cuGraphLaunch(g->exec, s->handle);
    tl_eff_direct_end();
    if (r == CUDA_SUCCESS)
        tl_eff_steps_count(&g->steps, s);
    if (!g->was_said)
        tl_eff_log(3, "a graph of %u steps and %llu us is launched as it is", g->steps.n,
                   (unsigned long long)g->time.ns / 1000);
    g->was_said = true;
    return r;
}

/* Cuts it anew, unless it would be cut as before. */
TL_REQUIRES(lock)
static void cut(struct graph *g, const struct tl_eff_stream *s, bool is_alone, uint64_t bound_ns)
{
    struct tl_eff_parts *old = g->parts[is_alone], *made = NULL;
    struct tl_eff_cut_step *times = calloc((size_t)g->steps.n + 1, sizeof *times);
    bool is_current = times != NULL && tl_eff_current() == s->context;
    if (is_current) {
        tl_eff_steps_time(&g->steps, s, times);
        if (old != NULL && old->context == s->context && old->bound_ns == bound_ns &&
            tl_eff_parts_stay(old, times, g->steps.n, bound_ns))
            made = old;
        else
            made = tl_eff_parts_make(&g->steps, times, bound_ns, s->context);
    }
    free(times);
    g->is_refused = made == NULL;
    g->are_current[is_alone] = made != NULL;
    if (made == old)
        return;
    tl_eff_lock();
    tl_eff_parts_unref(old);
    tl_eff_parts_bury();
    tl_eff_unlock();
    g->parts[is_alone] = made;
    if (made != NULL)
        tl_eff_log(3,
                   "a graph of %u steps and %llu us is cut into %u parts, %u of them graphs of up "
                   "to %llu us",
                   g->steps.n, (unsigned long long)g->time.ns / 1000, made->n, made->n_subgraphs,
                   (unsigned long long)bound_ns / 1000);
}

/* Its parts, made if they are not there; NULL if that cannot be done, or it has none.  `way` says
 * which, then. */
TL_REQUIRES(lock)
static struct tl_eff_parts *parts_of(struct graph *g, const struct tl_eff_stream *s,
                                     enum tl_record_graph *way)
{
    tl_eff_lock();
    bool is_alone = tl_eff_is_alone();
    struct tl_eff_parts *p = g->parts[is_alone];
    g->halvings += p != NULL && p->is_too_long;
    uint64_t bound = tl_eff_cut_bound(tl_eff_turnaround_ns(), is_alone, g->halvings);
    bool fits = p != NULL && !p->is_too_long && g->are_current[is_alone] &&
                p->context == s->context && tl_eff_cut_still_fits(p->bound_ns, bound);
    tl_eff_unlock();
    if (!fits && !g->is_refused)
        cut(g, s, is_alone, bound);
    p = g->is_refused ? NULL : g->parts[is_alone];
    *way = p == NULL             ? TL_GRAPH_NO_SUBGRAPH
           : p->n_subgraphs == 0 ? TL_GRAPH_NO_PARTS
                                 : TL_GRAPH_IN_PARTS;
    return *way == TL_GRAPH_IN_PARTS ? p : NULL;
}

TL_REQUIRES(lock) static CUresult launch_stepwise(struct graph *g, struct tl_eff_stream *s)
{
    CUresult r = CUDA_SUCCESS;
    for (uint32_t i = 0; i < g->steps.n && r == CUDA_SUCCESS; i++)
        r = tl_eff_step_launch(&g->steps.steps[i], s);
    return r;
}

TL_REQUIRES(lock) static CUresult launch_some_way(struct graph *g, struct tl_eff_stream *s)
{
    enum tl_record_graph way = choose_way(g, s);
    struct tl_eff_parts *parts = way == TL_GRAPH_IN_PARTS ? parts_of(g, s, &way) : NULL;
    tl_record_graph(tl_eff.record, way, 1);
    if (way == TL_GRAPH_AS_IT_IS)
        return launch_as_it_is(g, s);
    return parts != NULL ? tl_eff_parts_launch(parts, &g->steps, s) : launch_stepwise(g, s);
}

TL_REQUIRES(lock) static CUresult replay(struct graph *g, struct tl_eff_stream *s)
{
    CUresult r = CUDA_SUCCESS;
    if (g->last == NULL)
        r = tl_eff_real.cuEventCreate(&g->last, CU_EVENT_DISABLE_TIMING);
    if (r == CUDA_SUCCESS && g->last_stream != 0 && g->last_stream != s->number + 1)
        r = tl_eff_wait(s, g->last, 0);
    if (r == CUDA_SUCCESS)
        r = launch_some_way(g, s);
    if (r == CUDA_SUCCESS)
        r = tl_eff_record(g->last, s, 0);
    g->last_stream = s->number + 1;
    return r;
}

static CUresult launch(CUgraphExec exec, CUstream stream, bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    tl_mutex_lock(&lock);
    struct graph *g = find_graph(exec);
    bool is_replayed = g != NULL && !g->is_whole && !s->is_capturing;
    if (is_replayed)
        r = replay(g, s);
    tl_mutex_unlock(&lock);
    return is_replayed ? r : launch_whole(exec, s);
}

static CUresult hook_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, false);
}

static CUresult hook_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, true);
}

#define ROW(name) {#name, (void *)hook_##name},
const struct tl_hook tl_eff_graph_hooks[] = {
    ROW(cuGraphInstantiate) ROW(cuGraphInstantiate_v2) ROW(cuGraphInstantiateWithFlags)
        ROW(cuGraphInstantiateWithParams) ROW(cuGraphInstantiateWithParams_ptsz)
            ROW(cuGraphExecDestroy) ROW(cuGraphExecKernelNodeSetParams)
                ROW(cuGraphExecKernelNodeSetParams_v2) ROW(cuGraphExecMemcpyNodeSetParams)
                    ROW(cuGraphExecMemsetNodeSetParams) ROW(cuGraphExecHostNodeSetParams)
                        ROW(cuGraphExecEventRecordNodeSetEvent)
                            ROW(cuGraphExecEventWaitNodeSetEvent) ROW(cuGraphExecNodeSetParams)
                                ROW(cuGraphExecChildGraphNodeSetParams) ROW(cuGraphNodeSetEnabled)
                                    ROW(cuGraphExecUpdate) ROW(cuGraphExecUpdate_v2)
                                        ROW(cuGraphLaunch) ROW(cuGraphLaunch_ptsz){NULL, NULL},
};
