/* Launching graphs: one operation per node, between one that begins and one that ends. */
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/graph.h"
#include "device/driver/graph_memory.h"
#include "device/driver/graph_run.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/op.h"
#include "device/driver/stream.h"
#include "device/driver/work.h"
#include "tally/array.h"
#include "tally/check.h"

#include <stdlib.h>

/* The operations of a launch, which may start together when all are in place. */
struct batch {
    struct tl_drv_op **ops;
    size_t n, cap;
    struct CUctx_st *ctx;
    struct tl_drv_graph_run *run;
};

static struct tl_drv_op *new_op(struct batch *b, const struct tl_drv_work *work) TL_DRV_LOCKED
{
    if (!TL_ARRAY_FIT(b->ops, b->cap, b->n + 1))
        return NULL;
    struct tl_drv_op *op = tl_drv_op_create(b->ctx, work);
    if (op != NULL)
        b->ops[b->n++] = op;
    return op;
}

static struct tl_drv_op *expand(struct batch *b, struct CUgraphNode_st *const *order, size_t n,
                                struct tl_drv_op *before);

/* A gate behind `before`; `end` waits for it. */
static struct tl_drv_op *new_gate(struct batch *b, struct tl_drv_conditional *what,
                                  struct tl_drv_op *before, struct tl_drv_op *end) TL_DRV_LOCKED
{
    struct tl_drv_work work = {.kind = TL_DRV_CONDITIONAL,
                               .conditional = {.what = what, .end = end, .run = b->run}};
    struct tl_drv_op *gate = new_op(b, &work);
    if (gate == NULL)
        return NULL;
    atomic_fetch_add(&what->refs, 1);
    tl_drv_op_after(gate, before);
    tl_drv_op_after(end, gate);
    return gate;
}

/* The operations of one node, behind those of its predecessors, or behind `before` if it has
 * none.  Returns the one that comes last, NULL if there is no memory; what was made until then is
 * in the batch. */
static struct tl_drv_op *node_op(struct batch *b, struct CUgraphNode_st *node,
                                 struct tl_drv_op *before) TL_DRV_LOCKED
{
    struct tl_drv_work work = {.kind = TL_DRV_EMPTY};
    bool is_work = !node->is_disabled && node->work.kind != TL_DRV_RECORD &&
                   node->work.kind != TL_DRV_WAIT && node->work.kind != TL_DRV_CHILD &&
                   node->work.kind != TL_DRV_ALLOC && node->work.kind != TL_DRV_CONDITIONAL;
    if (is_work && tl_drv_work_copy(&work, &node->work) != CUDA_SUCCESS)
        return NULL;
    if (work.kind == TL_DRV_LAUNCH) {
        work.launch.run = b->run;
        if (!b->run->uses_own)
            work.launch.priority = b->run->priority;
    }
    struct tl_drv_op *op = new_op(b, &work);
    if (op == NULL)
        return NULL;
    for (size_t i = 0; i < node->n_deps; i++)
        tl_drv_op_after(op, node->deps[i]->op);
    if (node->n_deps == 0)
        tl_drv_op_after(op, before);
    if (node->is_disabled)
        return op;
    if (node->work.kind == TL_DRV_RECORD) {
        tl_drv_op_unref(node->work.event->op);
        node->work.event->op = op;
        op->refs++;
    } else if (node->work.kind == TL_DRV_WAIT) {
        tl_drv_op_after(op, node->work.event->op);
    } else if (node->work.kind == TL_DRV_CHILD) {
        struct CUgraphNode_st **order;
        if (tl_drv_graph_sort(node->work.child, &order) != CUDA_SUCCESS)
            return NULL;
        struct tl_drv_op *end = expand(b, order, node->work.child->n, op);
        free((void *)order);
        return end;
    } else if (node->work.kind == TL_DRV_CONDITIONAL) {
        struct tl_drv_op *end = new_op(b, &(struct tl_drv_work){.kind = TL_DRV_EMPTY});
        return end != NULL && new_gate(b, node->work.conditional.what, op, end) != NULL ? end
                                                                                        : NULL;
    }
    return op;
}

/* Operations for sorted nodes, all behind `before`; returns one that comes behind all of them. */
static struct tl_drv_op *expand(struct batch *b, struct CUgraphNode_st *const *order, size_t n,
                                struct tl_drv_op *before) TL_DRV_LOCKED
{
    for (size_t i = 0; i < n; i++) {
        order[i]->op = node_op(b, order[i], before);
        if (order[i]->op == NULL)
            return NULL;
    }
    struct tl_drv_op *end = new_op(b, &(struct tl_drv_work){.kind = TL_DRV_EMPTY});
    if (end == NULL)
        return NULL;
    tl_drv_op_after(end, before);
    for (size_t i = 0; i < n; i++)
        tl_drv_op_after(end, order[i]->op);
    return end;
}

/* Nobody starts them any more: they wait for one that is started, and their own references keep
 * them. */
static void release(struct batch *b, size_t first) TL_DRV_LOCKED
{
    TL_CHECK(first <= b->n);
    for (size_t i = 0; i < b->n; i++) {
        TL_CHECK(b->ops[i]->refs > 1 && b->ops[i]->waits > 0); /* its own is left */
        b->ops[i]->refs--;
        if (i >= first)
            b->ops[i]->waits--;
    }
}

void tl_drv_gate_open(struct tl_drv_op *gate)
{
    struct tl_drv_conditional *c = gate->work.conditional.what;
    struct batch b = {.ctx = gate->ctx, .run = gate->work.conditional.run};
    struct CUgraphNode_st **order = NULL;
    struct CUgraph_st *body = tl_drv_conditional_body(c);
    bool failed = false;
    if (body == NULL)
        return;
    tl_drv_lock();
    struct tl_drv_op *end = gate->work.conditional.end, *last = NULL;
    if (tl_drv_graph_sort(body, &order) == CUDA_SUCCESS)
        last = expand(&b, order, body->n, gate);
    if (last != NULL && c->type == CU_GRAPH_COND_TYPE_WHILE)
        last = new_gate(&b, c, last, end);
    else if (last != NULL)
        tl_drv_op_after(end, last);
    failed = last == NULL;
    for (size_t i = 0; failed && i < b.n; i++)
        b.ops[i]->was_dropped = true;
    release(&b, 0);
    tl_drv_unlock();
    free((void *)order);
    free((void *)b.ops);
    if (failed)
        tl_drv_context_fail(gate->ctx, CUDA_ERROR_OUT_OF_MEMORY);
}

/* Operations that give the words of conditional nodes their values, all behind `before`.  False: no
 * memory. */
static bool set_defaults(struct batch *b, const struct CUgraph_st *g, struct tl_drv_op *before,
                         struct tl_drv_op *behind) TL_DRV_LOCKED
{
    for (const struct CUgraphNode_st *n = g->first; n != NULL; n = n->next) {
        struct tl_drv_work work;
        if (n->work.kind == TL_DRV_CONDITIONAL &&
            tl_drv_handle_default(n->work.conditional.what, &work)) {
            struct tl_drv_op *op = new_op(b, &work);
            if (op == NULL)
                return false;
            tl_drv_op_after(op, before);
            tl_drv_op_after(behind, op);
        }
        for (size_t i = 0; tl_drv_node_inner(n, i) != NULL; i++) {
            if (!set_defaults(b, tl_drv_node_inner(n, i), before, behind))
                return false;
        }
    }
    return true;
}

/* Operations that free what the graph allocated before and nobody has freed, all behind `before`.
 * False: no memory. */
static bool free_first(struct batch *b, const struct CUgraph_st *g, struct tl_drv_op *before,
                       struct tl_drv_op *behind) TL_DRV_LOCKED
{
    size_t n = tl_drv_graph_memory_live(g, NULL, 0);
    CUdeviceptr *addresses = calloc(n + 1, sizeof *addresses);
    bool is_good = addresses != NULL;
    if (is_good)
        tl_drv_graph_memory_live(g, addresses, n);
    for (size_t i = 0; i < n && is_good; i++) {
        struct tl_drv_op *op = new_op(
            b, &(struct tl_drv_work){.kind = TL_DRV_FREE, .memory = {addresses[i], 0, 0}});
        is_good = op != NULL;
        if (is_good) {
            tl_drv_op_after(op, before);
            tl_drv_op_after(behind, op);
        }
    }
    free(addresses);
    return is_good;
}

static bool frees_first(CUgraphExec e)
{
    return (e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
}

static struct tl_drv_op *expand_all(struct batch *b, CUgraphExec e,
                                    struct tl_drv_op *begin) TL_DRV_LOCKED
{
    struct tl_drv_op *ready = begin;
    bool frees = e->has_memory && frees_first(e);
    if (e->has_conditions || frees) {
        ready = new_op(b, &(struct tl_drv_work){.kind = TL_DRV_EMPTY});
        if (ready == NULL || !set_defaults(b, e->graph, begin, ready))
            return NULL;
        if (frees && !free_first(b, e->graph, begin, ready))
            return NULL;
        tl_drv_op_after(ready, begin);
    }
    return expand(b, e->order, e->graph->n, ready);
}

static void nothing(void *unused)
{
    (void)unused;
}

/* What a kernel fires is not begun by the thread that is inside that kernel: a function is the
 * pool's. */
static struct tl_drv_work begin_of(const struct tl_drv_graph_run *run)
{
    bool is_fired = run->parent != NULL && run->how != TL_DRV_GRAPH_TAIL;
    return is_fired ? (struct tl_drv_work){.kind = TL_DRV_HOST, .host = {.function = nothing}}
                    : (struct tl_drv_work){.kind = TL_DRV_EMPTY};
}

CUresult tl_drv_graph_expand(struct CUgraphExec_st *exec, struct CUctx_st *ctx,
                             struct tl_drv_graph_run *run, struct tl_drv_op **begin)
{
    struct batch b = {.ctx = ctx, .run = run};
    const struct tl_drv_work first = begin_of(run);
    *begin = new_op(&b, &first);
    struct tl_drv_op *end = *begin != NULL ? expand_all(&b, exec, *begin) : NULL;
    if (end != NULL) {
        end->work = (struct tl_drv_work){.kind = TL_DRV_GRAPH_END, .run = run};
        run->end = end;
        tl_drv_op_unref(exec->last);
        exec->last = end;
        end->refs++;
    }
    /* what there is without an end runs as nothing, so that nobody waits for ever */
    for (size_t i = 0; end == NULL && i < b.n; i++)
        b.ops[i]->was_dropped = true;
    /* Their own references keep them.  All but the first wait for it, so they need not be started
     * one by one. */
    release(&b, *begin != NULL ? 1 : 0);
    free((void *)b.ops);
    if (end == NULL)
        free(run);
    return end != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A launch into a stream: its last operation is the stream's new tail. */
static CUresult launch_unlock(CUgraphExec exec, struct CUstream_st *s) TL_RELEASE(tl_drv_mutex)
{
    struct tl_drv_op *begin, *before = exec->last;
    struct tl_drv_graph_run *run = tl_drv_graph_run_create(exec, s->priority);
    if (run == NULL) {
        tl_drv_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (before != NULL)
        before->refs++;
    CUresult r = tl_drv_graph_expand(exec, s->ctx, run, &begin);
    if (r == CUDA_SUCCESS) {
        if (exec->has_memory)
            tl_drv_graph_memory_launched(exec->graph);
        exec->is_uploaded = true;
        tl_drv_op_after(begin, before);
        tl_drv_op_order(begin, s);
        tl_drv_op_unref(s->tail);
        s->tail = exec->last;
        s->tail->refs++;
    }
    tl_drv_op_unref(before);
    if (begin != NULL)
        tl_drv_op_start_unlock(begin);
    else
        tl_drv_unlock();
    return r;
}

/* A captured stream gets the graph as a child node. */
CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    struct CUstream_st *s;
    if (!tl_drv_is_exec(hGraphExec))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    r = tl_drv_capture_legacy(s);
    if (r == CUDA_SUCCESS && hGraphExec->has_memory)
        r = tl_drv_is_capturing(s)
                ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED /* it would be a second one */
                : tl_drv_graph_memory_check(hGraphExec->graph, frees_first(hGraphExec));
    if (r != CUDA_SUCCESS) {
        tl_drv_unlock();
        return r;
    }
    if (!tl_drv_is_capturing(s))
        return launch_unlock(hGraphExec, s);
    struct tl_drv_work work = {.kind = TL_DRV_CHILD,
                               .child = tl_drv_graph_clone(hGraphExec->graph)};
    r = work.child != NULL ? tl_drv_capture_add(s, &work) : CUDA_ERROR_OUT_OF_MEMORY;
    tl_drv_unlock();
    return r;
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_is_exec(hGraphExec) ? tl_drv_stream(hStream, &s) : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    if (hGraphExec->has_memory)
        r = tl_drv_graph_memory_upload(hGraphExec->graph);
    hGraphExec->is_uploaded |= r == CUDA_SUCCESS;
    tl_drv_unlock();
    return r;
}
