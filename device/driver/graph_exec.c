/* Executable graphs: a sorted copy of a graph, whose launch puts one operation per node between two
 * of a stream. */
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/graph.h"
#include "device/driver/graph_memory.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/op.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"
#include "device/driver/work.h"
#include "tally/array.h"
#include "tally/check.h"
#include "tally/kernel_params.h"

#include <stdlib.h>

static bool is_exec(CUgraphExec e)
{
    return e != NULL && e->magic == TL_DRV_GRAPH_EXEC;
}

/* Predecessors first (Kahn's algorithm).  CUDA_ERROR_INVALID_VALUE if there is a cycle. */
static CUresult sort(struct CUgraph_st *g, struct CUgraphNode_st ***out)
{
    struct CUgraphNode_st **order = calloc(g->n + 1, sizeof(struct CUgraphNode_st *));
    size_t n = 0, before;
    if (order == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (struct CUgraphNode_st *node = g->first; node != NULL; node = node->next)
        node->seen = 0;
    do { /* nodes mostly come in a possible order already, so this is one round */
        before = n;
        for (struct CUgraphNode_st *node = g->first; node != NULL; node = node->next) {
            bool is_free = node->seen == 0;
            for (size_t i = 0; i < node->n_deps && is_free; i++)
                is_free = node->deps[i]->seen != 0;
            if (is_free) {
                TL_CHECK(n < g->n);
                node->seen = 1;
                order[n++] = node;
            }
        }
    } while (n != before);
    if (n != g->n) {
        free((void *)order);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = order;
    return CUDA_SUCCESS;
}

static bool has_conditions(const struct CUgraph_st *g)
{
    for (const struct CUgraphNode_st *n = g->first; n != NULL; n = n->next) {
        if (n->work.kind == TL_DRV_CONDITIONAL)
            return true;
        for (size_t i = 0; tl_drv_node_inner(n, i) != NULL; i++) {
            if (has_conditions(tl_drv_node_inner(n, i)))
                return true;
        }
    }
    return false;
}

/* An executable of a graph: a copy in an order that can be run.  A graph with nodes of memory has
 * at most one at a time. */
static CUresult instantiate(CUgraphExec *out, CUgraph graph, uint64_t flags)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (out == NULL || graph == NULL || graph->magic != TL_DRV_GRAPH || graph->is_moved)
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
        return tl_drv_unimplemented("a graph that kernels launch (cuGraphInstantiate)");
    if (tl_drv_graph_has_idle_handles(graph))
        return CUDA_ERROR_INVALID_VALUE;
    struct CUgraphExec_st *e = calloc(1, sizeof *e);
    if (e == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->magic = TL_DRV_GRAPH_EXEC;
    e->flags = flags;
    tl_drv_lock();
    e->has_memory = tl_drv_graph_has_memory(graph);
    if (graph->exec != NULL) /* it has memory, and then there may be one at a time */
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS) {
        e->graph = tl_drv_graph_clone(graph);
        r = e->graph != NULL ? sort(e->graph, &e->order) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (r == CUDA_SUCCESS)
        e->has_conditions = has_conditions(e->graph);
    if (r == CUDA_SUCCESS && e->has_memory && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
        r = tl_drv_graph_memory_upload(e->graph);
    if (r != CUDA_SUCCESS) {
        tl_drv_graph_destroy(e->graph);
        free((void *)e->order);
    } else if (e->has_memory) {
        e->source = graph;
        graph->exec = e;
    }
    tl_drv_unlock();
    if (r != CUDA_SUCCESS) {
        free(e);
        return r;
    }
    *out = e;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                     unsigned long long flags)
{
    return instantiate(phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    if (instantiateParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = instantiate(phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->hErrNode_out = NULL;
    instantiateParams->result_out = r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                    : r == CUDA_ERROR_INVALID_VALUE && tl_drv_is_graph(hGraph) &&
                                            tl_drv_graph_has_idle_handles(hGraph)
                                        ? CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED
                                    : r == CUDA_ERROR_INVALID_VALUE
                                        ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                        : CUDA_GRAPH_INSTANTIATE_ERROR;
    return r;
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize)
{
    if (phErrorNode != NULL)
        *phErrorNode = NULL;
    if (logBuffer != NULL && bufferSize > 0)
        *logBuffer = 0;
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize)
{
    return cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    if (!is_exec(hGraphExec))
        return CUDA_ERROR_INVALID_VALUE;
    /* What its kernels may still use is destroyed only when they are done. */
    if (hGraphExec->graph->objects != NULL && hGraphExec->last != NULL)
        tl_drv_op_wait(hGraphExec->last);
    tl_drv_lock();
    tl_drv_graph_destroy(hGraphExec->graph);
    TL_CHECK(hGraphExec->source == NULL || hGraphExec->source->exec == hGraphExec);
    if (hGraphExec->source != NULL)
        hGraphExec->source->exec = NULL;
    tl_drv_op_unref(hGraphExec->last);
    hGraphExec->magic = TL_DRV_DEAD;
    tl_drv_unlock();
    free((void *)hGraphExec->order);
    free(hGraphExec);
    tl_drv_objects_bury();
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    if (!is_exec(hGraphExec) || flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = hGraphExec->flags;
    return CUDA_SUCCESS;
}

/* --- launching -------------------------------------------------------------------------------- */

/* The operations of a launch, which may start together when all are in place. */
struct batch {
    struct tl_drv_op **ops;
    size_t n, cap;
    struct CUctx_st *ctx;
    int priority;  /* of the stream */
    bool uses_own; /* CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: that of each node instead */
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
    struct tl_drv_work work = {
        .kind = TL_DRV_CONDITIONAL,
        .conditional = {
            .what = what, .end = end, .priority = b->priority, .uses_own = b->uses_own}};
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
    if (work.kind == TL_DRV_LAUNCH && !b->uses_own)
        work.launch.priority = b->priority;
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
        if (sort(node->work.child, &order) != CUDA_SUCCESS)
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
    struct batch b = {.ctx = gate->ctx,
                      .priority = gate->work.conditional.priority,
                      .uses_own = gate->work.conditional.uses_own};
    struct CUgraphNode_st **order = NULL;
    struct CUgraph_st *body = tl_drv_conditional_body(c);
    bool failed = false;
    if (body == NULL)
        return;
    tl_drv_lock();
    struct tl_drv_op *end = gate->work.conditional.end, *last = NULL;
    if (sort(body, &order) == CUDA_SUCCESS)
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

static struct tl_drv_op *expand_launch(struct batch *b, CUgraphExec e,
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

/* All operations of the graph are made at once, between one that begins, which stands in the
 * stream, and one that ends, which is the stream's new tail.  A captured stream gets the graph as
 * a child node. */
CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    struct CUstream_st *s;
    if (!is_exec(hGraphExec))
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
    if (tl_drv_is_capturing(s)) {
        struct tl_drv_work work = {.kind = TL_DRV_CHILD,
                                   .child = tl_drv_graph_clone(hGraphExec->graph)};
        r = work.child != NULL ? tl_drv_capture_add(s, &work) : CUDA_ERROR_OUT_OF_MEMORY;
        tl_drv_unlock();
        return r;
    }
    struct batch b = {
        .ctx = s->ctx,
        .priority = s->priority,
        .uses_own = (hGraphExec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0};
    struct tl_drv_op *begin = new_op(&b, &(struct tl_drv_work){.kind = TL_DRV_EMPTY});
    struct tl_drv_op *end = begin != NULL ? expand_launch(&b, hGraphExec, begin) : NULL;
    if (end != NULL) {
        if (hGraphExec->has_memory)
            tl_drv_graph_memory_launched(hGraphExec->graph);
        tl_drv_op_after(begin, hGraphExec->last);
        tl_drv_op_order(begin, s);
        tl_drv_op_unref(s->tail);
        s->tail = end;
        end->refs++;
        tl_drv_op_unref(hGraphExec->last);
        hGraphExec->last = end;
        end->refs++;
    } else {
        /* what there is runs as nothing, so that nobody waits for ever */
        r = CUDA_ERROR_OUT_OF_MEMORY;
        for (size_t i = 0; i < b.n; i++)
            b.ops[i]->was_dropped = true;
    }
    /* Their own references keep them.  All but the first wait for it, so they need not be started
     * one by one. */
    release(&b, end != NULL ? 1 : b.n);
    if (begin != NULL)
        tl_drv_op_start_unlock(begin);
    else
        tl_drv_unlock();
    free((void *)b.ops);
    return r;
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    struct CUstream_st *s;
    CUresult r = is_exec(hGraphExec) ? tl_drv_stream(hStream, &s) : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS || !hGraphExec->has_memory)
        return r;
    tl_drv_lock();
    r = tl_drv_graph_memory_upload(hGraphExec->graph);
    tl_drv_unlock();
    return r;
}

/* --- changing an executable ------------------------------------------------------------------- */

/* The copy of a node, in child graphs too. */
static struct CUgraphNode_st *find_in(const struct CUgraph_st *g,
                                      const struct CUgraphNode_st *origin)
{
    struct CUgraphNode_st *found = NULL;
    for (struct CUgraphNode_st *n = g->first; n != NULL && found == NULL; n = n->next) {
        if (n->origin == origin)
            found = n;
        for (size_t i = 0; found == NULL && tl_drv_node_inner(n, i) != NULL; i++)
            found = find_in(tl_drv_node_inner(n, i), origin);
    }
    return found;
}

static struct CUgraphNode_st *find_node(CUgraphExec e, CUgraphNode origin)
{
    return is_exec(e) && origin != NULL ? find_in(e->graph, origin) : NULL;
}

static CUresult replace(CUgraphExec e, CUgraphNode origin, CUresult r, struct tl_drv_work *work)
{
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct CUgraphNode_st *n = find_node(e, origin);
    if (n == NULL || n->work.kind != work->kind) {
        tl_drv_node_work_finish(work);
        r = CUDA_ERROR_INVALID_VALUE;
    } else {
        tl_drv_node_work_finish(&n->work);
        n->work = *work;
    }
    tl_drv_unlock();
    return r;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL ? tl_drv_work_of_kernel(nodeParams, &work)
                                    : CUDA_ERROR_INVALID_VALUE;
    return replace(hGraphExec, hNode, r, &work);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS_v2 q = tl_kernel_params_of_v1(p);
    return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &q);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    struct tl_drv_work work = {.kind = TL_DRV_COPY};
    (void)ctx;
    return replace(hGraphExec, hNode, tl_drv_plan_3d(copyParams, &work.copy), &work);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    struct tl_drv_work work;
    (void)ctx;
    CUresult r = memsetParams != NULL ? tl_drv_work_of_fill(memsetParams, &work)
                                      : CUDA_ERROR_INVALID_VALUE;
    return replace(hGraphExec, hNode, r, &work);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL
                     ? tl_drv_work_of_memops(nodeParams->count, nodeParams->paramArray, &work)
                     : CUDA_ERROR_INVALID_VALUE;
    return replace(hGraphExec, hNode, r, &work);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL || nodeParams->fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_work work = {.kind = TL_DRV_HOST, .host = {nodeParams->fn, nodeParams->userData}};
    return replace(hGraphExec, hNode, CUDA_SUCCESS, &work);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams *nodeParams)
{
    struct tl_drv_work work;
    if (nodeParams == NULL || nodeParams->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ||
        nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    return replace(hGraphExec, hNode, tl_drv_work_of_params(nodeParams, &work), &work);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph}};
    return cuGraphExecNodeSetParams(hGraphExec, hNode, &p);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUevent event)
{
    struct tl_drv_work work = {.kind = TL_DRV_RECORD, .event = event};
    return replace(hGraphExec, hNode, CUDA_SUCCESS, &work);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    struct tl_drv_work work = {.kind = TL_DRV_WAIT, .event = event};
    return replace(hGraphExec, hNode, CUDA_SUCCESS, &work);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    tl_drv_lock();
    struct CUgraphNode_st *n = find_node(hGraphExec, hNode);
    if (n != NULL && (n->work.kind == TL_DRV_ALLOC || n->work.kind == TL_DRV_FREE))
        n = NULL;
    if (n != NULL)
        n->is_disabled = isEnabled == 0;
    tl_drv_unlock();
    return n != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
    tl_drv_lock();
    struct CUgraphNode_st *n = find_node(hGraphExec, hNode);
    if (n != NULL && isEnabled != NULL)
        *isEnabled = !n->is_disabled;
    tl_drv_unlock();
    return n != NULL && isEnabled != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether two graphs have the same shape, node by node in the order of creation. */
static CUgraphExecUpdateResult compare(struct CUgraph_st *a, struct CUgraph_st *b,
                                       struct CUgraphNode_st **where)
{
    uint32_t i = 0;
    struct CUgraphNode_st *x = a->first, *y = b->first;
    for (; x != NULL && y != NULL; x = x->next, y = y->next, i++) {
        x->seen = y->seen = i;
        *where = y;
        if (x->work.kind != y->work.kind)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (x->n_deps != y->n_deps)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if ((x->work.kind == TL_DRV_ALLOC || x->work.kind == TL_DRV_FREE) &&
            x->work.memory.address != y->work.memory.address)
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        for (size_t k = 0; tl_drv_node_inner(x, k) != NULL || tl_drv_node_inner(y, k) != NULL;
             k++) {
            struct CUgraphNode_st *inside;
            struct CUgraph_st *p = tl_drv_node_inner(x, k), *q = tl_drv_node_inner(y, k);
            CUgraphExecUpdateResult r = p != NULL && q != NULL
                                            ? compare(p, q, &inside)
                                            : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
            if (r != CU_GRAPH_EXEC_UPDATE_SUCCESS)
                return r;
        }
    }
    if (x != NULL || y != NULL)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (x = a->first, y = b->first; x != NULL; x = x->next, y = y->next) {
        *where = y;
        for (size_t k = 0; k < x->n_deps; k++)
            if (x->deps[k]->seen != y->deps[k]->seen)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    *where = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Nodes of the new copy stand for those that the old one's stood for.  Both have the same shape. */
static void keep_origins(const struct CUgraph_st *old, struct CUgraph_st *new)
{
    struct CUgraphNode_st *x = old->first, *y = new->first;
    for (; x != NULL && y != NULL; x = x->next, y = y->next) {
        y->origin = x->origin;
        y->is_disabled = x->is_disabled;
        for (size_t i = 0; tl_drv_node_inner(x, i) != NULL; i++)
            keep_origins(tl_drv_node_inner(x, i), tl_drv_node_inner(y, i));
    }
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo)
{
    struct CUgraphNode_st *where = NULL;
    if (!is_exec(hGraphExec) || hGraph == NULL || hGraph->magic != TL_DRV_GRAPH || hGraph->is_moved)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    CUgraphExecUpdateResult result = compare(hGraphExec->graph, hGraph, &where);
    struct CUgraph_st *copy = NULL;
    struct CUgraphNode_st **order = NULL;
    if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        copy = tl_drv_graph_clone(hGraph);
        if (copy == NULL || sort(copy, &order) != CUDA_SUCCESS) {
            tl_drv_graph_destroy(copy);
            result = CU_GRAPH_EXEC_UPDATE_ERROR;
        } else {
            keep_origins(hGraphExec->graph, copy);
            tl_drv_graph_destroy(hGraphExec->graph);
            free((void *)hGraphExec->order);
            hGraphExec->graph = copy;
            hGraphExec->order = order;
        }
    }
    tl_drv_unlock();
    tl_drv_objects_bury();
    if (resultInfo != NULL)
        *resultInfo = (CUgraphExecUpdateResultInfo){.result = result, .errorNode = where};
    return result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                  : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out)
{
    CUgraphExecUpdateResultInfo info = {0};
    CUresult r = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    if (hErrorNode_out != NULL)
        *hErrorNode_out = info.errorNode;
    if (updateResult_out != NULL)
        *updateResult_out = info.result;
    return r;
}
