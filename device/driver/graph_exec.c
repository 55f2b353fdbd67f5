/* Executable graphs: a sorted copy of a graph. */
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/graph.h"
#include "device/driver/graph_memory.h"
#include "device/driver/graph_run.h"
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

CUresult tl_drv_graph_sort(struct CUgraph_st *g, struct CUgraphNode_st ***out)
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

/* Whether kernels may launch the graph; if not, the first node that forbids it, or NULL if it has
 * none.  Only kernels, fills, and copies of what is on the device or pinned may be in it. */
static bool is_for_kernels(const struct CUgraph_st *g, CUgraphNode *why) TL_DRV_LOCKED
{
    *why = NULL;
    for (struct CUgraphNode_st *n = g->first; n != NULL; n = n->next) {
        const struct tl_drv_work *w = &n->work;
        bool is_good = w->kind == TL_DRV_LAUNCH || w->kind == TL_DRV_FILL;
        if (w->kind == TL_DRV_COPY)
            is_good = n->copy.srcMemoryType != CU_MEMORYTYPE_ARRAY &&
                      n->copy.dstMemoryType != CU_MEMORYTYPE_ARRAY &&
                      tl_drv_is_pinned(w->copy.from) && tl_drv_is_pinned(w->copy.to);
        if (w->kind == TL_DRV_CHILD && is_for_kernels(w->child, why))
            continue;
        if (!is_good && *why == NULL)
            *why = n;
        if (!is_good)
            return false;
    }
    return g->n > 0;
}

/* An executable of a graph: a copy in an order that can be run.  A graph with nodes of memory has
 * at most one at a time.  `why`: the node that kernels must not launch, if that is asked for. */
static CUresult instantiate(CUgraphExec *out, CUgraph graph, uint64_t flags, CUgraphNode *why)
{
    bool is_device = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
    *why = NULL;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (out == NULL || graph == NULL || graph->magic != TL_DRV_GRAPH || graph->is_moved)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_device && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0)
        return CUDA_ERROR_INVALID_VALUE;
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
    if (r == CUDA_SUCCESS && is_device && !is_for_kernels(graph, why))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS) {
        e->graph = tl_drv_graph_clone(graph);
        r = e->graph != NULL ? tl_drv_graph_sort(e->graph, &e->order) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (r == CUDA_SUCCESS)
        e->has_conditions = has_conditions(e->graph);
    if (r == CUDA_SUCCESS && e->has_memory && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
        r = tl_drv_graph_memory_upload(e->graph);
    e->is_uploaded = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
    if (r != CUDA_SUCCESS) {
        tl_drv_graph_destroy(e->graph);
        free((void *)e->order);
    } else if (is_device) {
        tl_drv_graph_allow(e);
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
    CUgraphNode why;
    return instantiate(phGraphExec, hGraph, flags, &why);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    if (instantiateParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode why;
    CUresult r = instantiate(phGraphExec, hGraph, instantiateParams->flags, &why);
    instantiateParams->hErrNode_out = why;
    instantiateParams->result_out = r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                    : why != NULL
                                        ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
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
    CUgraphNode why;
    return instantiate(phGraphExec, hGraph, 0, &why);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize)
{
    return cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

/* A launch may go on with another one of the same graph before it is done. */
static void wait_for_launches(const struct CUgraphExec_st *e) TL_DRV_LOCKED
{
    struct tl_drv_op *last;
    while ((last = e->last) != NULL && !tl_drv_op_is_done(last)) {
        last->refs++;
        tl_drv_unlock();
        tl_drv_op_wait(last);
        tl_drv_lock();
        tl_drv_op_unref(last);
    }
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    if (!tl_drv_is_exec(hGraphExec))
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    /* What its kernels may still use is destroyed only when they are done. */
    if (hGraphExec->graph->objects != NULL)
        wait_for_launches(hGraphExec);
    tl_drv_graph_destroy(hGraphExec->graph);
    TL_CHECK(hGraphExec->source == NULL || hGraphExec->source->exec == hGraphExec);
    if (hGraphExec->source != NULL)
        hGraphExec->source->exec = NULL;
    tl_drv_op_unref(hGraphExec->last);
    tl_drv_graph_disallow(hGraphExec);
    hGraphExec->magic = TL_DRV_DEAD;
    tl_drv_unlock();
    free((void *)hGraphExec->order);
    free(hGraphExec);
    tl_drv_objects_bury();
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    if (!tl_drv_is_exec(hGraphExec) || flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = hGraphExec->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    return CUDA_SUCCESS;
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
    return tl_drv_is_exec(e) && origin != NULL ? find_in(e->graph, origin) : NULL;
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
    if (!tl_drv_is_exec(hGraphExec) || hGraph == NULL || hGraph->magic != TL_DRV_GRAPH ||
        hGraph->is_moved)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    CUgraphExecUpdateResult result = compare(hGraphExec->graph, hGraph, &where);
    struct CUgraph_st *copy = NULL;
    struct CUgraphNode_st **order = NULL;
    if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        copy = tl_drv_graph_clone(hGraph);
        if (copy == NULL || tl_drv_graph_sort(copy, &order) != CUDA_SUCCESS) {
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
