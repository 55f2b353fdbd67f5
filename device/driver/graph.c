/* Graphs: making them, copying them, adding nodes. */
#include "device/driver/graph.h"
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/graph_memory.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/state.h"
#include "device/driver/work.h"
#include "tally/check.h"
#include "tally/kernel_params.h"

#include <stdlib.h>
#include <string.h>

/* --- inside ----------------------------------------------------------------------------------- */

struct CUgraph_st *tl_drv_graph_create(void)
{
    struct CUgraph_st *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->magic = TL_DRV_GRAPH;
    g->last = &g->first;
    return g;
}

void tl_drv_node_work_finish(struct tl_drv_work *work)
{
    if (work->kind == TL_DRV_CHILD)
        tl_drv_graph_destroy(work->child);
    else if (work->kind == TL_DRV_ALLOC)
        tl_drv_graph_memory_unref(work);
    else if (work->kind == TL_DRV_CONDITIONAL) {
        tl_drv_conditional_unref(work->conditional.what);
        work->conditional.what = NULL; /* may be gone, in any case not this node's any more */
    }
    tl_drv_work_finish(work);
}

static void node_free(struct CUgraphNode_st *n) TL_DRV_LOCKED
{
    TL_CHECK(n->magic == TL_DRV_NODE);
    if (n->work.kind == TL_DRV_ALLOC)
        tl_drv_graph_memory_disown(&n->work, n->graph);
    tl_drv_node_work_finish(&n->work);
    free((void *)n->deps);
    free((void *)n->param_pointers);
    free(n->memops);
    n->magic = TL_DRV_DEAD;
    free(n);
}

void tl_drv_graph_destroy(struct CUgraph_st *g)
{
    if (g == NULL)
        return;
    TL_CHECK(g->magic == TL_DRV_GRAPH);
    TL_CHECK(g->exec == NULL || g->exec->source == g);
    while (g->first != NULL) {
        struct CUgraphNode_st *n = g->first;
        g->first = n->next;
        node_free(n);
    }
    tl_drv_graph_drop_handles(g);
    tl_drv_graph_drop_objects(g);
    if (g->exec != NULL)
        g->exec->source = NULL;
    g->magic = TL_DRV_DEAD;
    free(g);
}

CUresult tl_drv_node_depend(struct CUgraphNode_st *node, struct CUgraphNode_st *on)
{
    if (on == NULL || on->magic != TL_DRV_NODE || on->graph != node->graph || on == node)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < node->n_deps; i++)
        if (node->deps[i] == on)
            return CUDA_SUCCESS;
    struct CUgraphNode_st **deps = realloc((void *)node->deps,
                                           (node->n_deps + 1) * sizeof(struct CUgraphNode_st *));
    if (deps == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->deps = deps;
    deps[node->n_deps++] = on;
    return CUDA_SUCCESS;
}

bool tl_drv_graph_has_memory(const struct CUgraph_st *g)
{
    bool has = g->has_memory;
    for (const struct CUgraphNode_st *n = g->first; n != NULL && !has; n = n->next)
        has = n->work.kind == TL_DRV_CHILD && tl_drv_graph_has_memory(n->work.child);
    return has;
}

/* Takes the work (in any case). */
static CUresult append(struct CUgraph_st *g, struct CUgraphNode_st *const *deps, size_t n_deps,
                       struct tl_drv_work *work, struct CUgraphNode_st **out) TL_DRV_LOCKED
{
    CUresult r = CUDA_SUCCESS;
    struct CUgraphNode_st *n = calloc(1, sizeof *n);
    if (n == NULL) {
        tl_drv_node_work_finish(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    n->magic = TL_DRV_NODE;
    n->graph = g;
    n->work = *work;
    for (size_t i = 0; i < n_deps && r == CUDA_SUCCESS; i++)
        r = tl_drv_node_depend(n, deps[i]);
    if (r != CUDA_SUCCESS) {
        node_free(n);
        return r;
    }
    TL_CHECK(*g->last == NULL); /* where the list ends */
    *g->last = n;
    g->last = &n->next;
    g->n++;
    if (out != NULL)
        *out = n;
    return CUDA_SUCCESS;
}

CUresult tl_drv_graph_add(struct CUgraph_st *g, struct CUgraphNode_st *const *deps, size_t n_deps,
                          struct tl_drv_work *work, struct CUgraphNode_st **out)
{
    CUresult r = tl_drv_graph_memory_may_add(g, work);
    if (r == CUDA_SUCCESS)
        r = tl_drv_conditional_may_add(g, work);
    if (r != CUDA_SUCCESS) {
        tl_drv_node_work_finish(work);
        return r;
    }
    r = append(g, deps, n_deps, work, out);
    if (r == CUDA_SUCCESS)
        tl_drv_graph_memory_added(g, work);
    return r;
}

/* With buffers, child graphs and references of its own.  On failure nothing is kept, and `to` is
 * not to be finished. */
CUresult tl_drv_work_copy(struct tl_drv_work *to, const struct tl_drv_work *from)
{
    *to = *from;
    to->staging = NULL;
    if (from->kind == TL_DRV_LAUNCH) {
        to->launch.params = calloc(1, from->launch.param_bytes + 16u);
        if (to->launch.params == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(to->launch.params, from->launch.params, from->launch.param_bytes);
    } else if (from->kind == TL_DRV_CHILD) {
        to->child = tl_drv_graph_clone(from->child);
        if (to->child == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        to->child->is_child = true;
    } else if (from->kind == TL_DRV_ALLOC) {
        tl_drv_graph_memory_ref(to);
    } else if (from->kind == TL_DRV_CONDITIONAL) {
        to->conditional.what = tl_drv_conditional_clone(from->conditional.what);
        if (to->conditional.what == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
    } else if (from->kind == TL_DRV_MEMOP && from->staging != NULL) {
        size_t bytes = from->memop.n_more * sizeof from->memop;
        to->staging = malloc(bytes);
        if (to->staging == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(to->staging, from->staging, bytes);
    } else if (from->staging !=
               NULL) { /* a copy of pageable bytes, taken when the stream was captured */
        size_t bytes = from->copy.width * from->copy.height * from->copy.depth;
        to->staging = malloc(bytes);
        if (to->staging == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(to->staging, from->staging, bytes);
        to->copy.from = to->staging;
    }
    return CUDA_SUCCESS;
}

struct CUgraph_st *tl_drv_graph_clone(struct CUgraph_st *g)
{
    struct CUgraph_st *c = tl_drv_graph_create();
    CUresult r = c != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (c != NULL)
        c->has_memory = g->has_memory;
    for (struct CUgraphNode_st *n = g->first; n != NULL && r == CUDA_SUCCESS; n = n->next) {
        struct tl_drv_work work;
        r = tl_drv_work_copy(&work, &n->work);
        if (r == CUDA_SUCCESS)
            r = append(c, NULL, 0, &work, &n->mark);
        if (r == CUDA_SUCCESS) {
            n->mark->origin = n;
            n->mark->copy = n->copy;
            n->mark->is_disabled = n->is_disabled;
        }
    }
    for (struct CUgraphNode_st *n = g->first; n != NULL && r == CUDA_SUCCESS; n = n->next)
        for (size_t i = 0; i < n->n_deps && r == CUDA_SUCCESS; i++)
            r = tl_drv_node_depend(n->mark, n->deps[i]->mark);
    if (r == CUDA_SUCCESS)
        r = tl_drv_graph_copy_objects(c, g);
    if (r != CUDA_SUCCESS) {
        tl_drv_graph_destroy(c);
        return NULL;
    }
    return c;
}

/* --- graphs ----------------------------------------------------------------------------------- */

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (phGraph == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = tl_drv_graph_create();
    return *phGraph != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
    if (!tl_drv_is_graph(hGraph) || hGraph->is_child)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    tl_drv_graph_destroy(hGraph);
    tl_drv_unlock();
    tl_drv_objects_bury();
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    if (phGraphClone == NULL || !tl_drv_is_graph(originalGraph))
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    bool may_be = !tl_drv_graph_has_memory(originalGraph);
    *phGraphClone = may_be ? tl_drv_graph_clone(originalGraph) : NULL;
    tl_drv_unlock();
    return !may_be                 ? CUDA_ERROR_INVALID_VALUE
           : *phGraphClone != NULL ? CUDA_SUCCESS
                                   : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph)
{
    if (phNode == NULL || !tl_drv_is_graph(hClonedGraph))
        return CUDA_ERROR_INVALID_VALUE;
    for (struct CUgraphNode_st *n = hClonedGraph->first; n != NULL; n = n->next) {
        if (n->origin == hOriginalNode) {
            *phNode = n;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Adds a node; `r` is what making its work came to. */
static CUresult add(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n_deps, CUresult r,
                    struct tl_drv_work *work)
{
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    if (out == NULL || !tl_drv_is_graph(g) || (n_deps > 0 && deps == NULL)) {
        tl_drv_node_work_finish(work);
        tl_drv_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    r = tl_drv_graph_add(g, deps, n_deps, work, out);
    tl_drv_unlock();
    return r;
}

/* A node with an empty child first, so that what fails leaves the graph with its owner. */
static CUresult add_moved(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n_deps,
                          CUgraph child)
{
    if (!tl_drv_is_graph(child) || child->is_child || child == g || child->exec != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_work work = {.kind = TL_DRV_CHILD, .child = tl_drv_graph_create()};
    CUresult r = work.child != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    r = add(out, g, deps, n_deps, r, &work);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    tl_drv_graph_destroy((*out)->work.child);
    (*out)->work.child = child;
    child->is_child = child->is_moved = true;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    struct tl_drv_work work;
    (void)dependencyData;
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = nodeParams->alloc.poolProps,
                                        .accessDescs = nodeParams->alloc.accessDescs,
                                        .accessDescCount = nodeParams->alloc.accessDescCount,
                                        .bytesize = nodeParams->alloc.bytesize};
        CUresult made = cuGraphAddMemAllocNode(phGraphNode, hGraph, dependencies, numDependencies,
                                               &p);
        nodeParams->alloc.dptr = p.dptr;
        return made;
    }
    if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH &&
        nodeParams->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
        return add_moved(phGraphNode, hGraph, dependencies, numDependencies,
                         nodeParams->graph.graph);
    CUresult r = tl_drv_work_of_params(nodeParams, &work);
    r = add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
    if (r == CUDA_SUCCESS && nodeParams->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        (*phGraphNode)->copy = nodeParams->memcpy.copyParams;
    return r;
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL ? tl_drv_work_of_kernel(nodeParams, &work)
                                    : CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS_v2 p = tl_kernel_params_of_v1(nodeParams);
    return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &p);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    struct tl_drv_work work;
    (void)ctx;
    CUresult r = copyParams != NULL ? tl_drv_work_of_copy(copyParams, &work)
                                    : CUDA_ERROR_INVALID_VALUE;
    r = add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
    if (r == CUDA_SUCCESS)
        (*phGraphNode)->copy = *copyParams;
    return r;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    struct tl_drv_work work;
    (void)ctx;
    CUresult r = memsetParams != NULL ? tl_drv_work_of_fill(memsetParams, &work)
                                      : CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                            const CUgraphNode *dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL || nodeParams->fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_work work = {.kind = TL_DRV_HOST, .host = {nodeParams->fn, nodeParams->userData}};
    return add(phGraphNode, hGraph, dependencies, numDependencies, CUDA_SUCCESS, &work);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  CUgraph childGraph)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph}};
    return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                             const CUgraphNode *dependencies, size_t numDependencies)
{
    struct tl_drv_work work = {.kind = TL_DRV_EMPTY};
    return add(phGraphNode, hGraph, dependencies, numDependencies, CUDA_SUCCESS, &work);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   CUevent event)
{
    struct tl_drv_work work = {.kind = TL_DRV_RECORD, .event = event};
    CUresult r = event != NULL && event->magic == TL_DRV_EVENT ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 CUevent event)
{
    struct tl_drv_work work = {.kind = TL_DRV_WAIT, .event = event};
    CUresult r = event != NULL && event->magic == TL_DRV_EVENT ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    struct tl_drv_place place;
    struct CUctx_st *ctx;
    struct tl_drv_work work;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (nodeParams == NULL || nodeParams->bytesize == 0 || !tl_drv_is_graph(hGraph) ||
        nodeParams->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    r = tl_drv_place_of(&nodeParams->poolProps.location, nodeParams->poolProps.allocType, &place);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    r = tl_drv_graph_memory_create(&place, ctx, hGraph, nodeParams->bytesize, &work);
    tl_drv_unlock();
    CUdeviceptr address = r == CUDA_SUCCESS ? work.memory.address : 0;
    r = add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
    if (r == CUDA_SUCCESS)
        nodeParams->dptr = address;
    return r;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                               const CUgraphNode *dependencies, size_t numDependencies,
                               CUdeviceptr dptr)
{
    struct tl_drv_work work = {.kind = TL_DRV_FREE, .memory = {dptr, 0}};
    return add(phGraphNode, hGraph, dependencies, numDependencies, CUDA_SUCCESS, &work);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL
                     ? tl_drv_work_of_memops(nodeParams->count, nodeParams->paramArray, &work)
                     : CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
    if (!tl_drv_is_node(hNode))
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct CUgraph_st *g = hNode->graph;
    /* as CUDA has it: neither nodes nor edges of such a graph can go */
    if (tl_drv_graph_has_memory(g)) {
        tl_drv_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct CUgraphNode_st **at = &g->first;
    while (*at != hNode) {
        TL_CHECK(*at != NULL); /* it is a node of its graph */
        at = &(*at)->next;
    }
    *at = hNode->next;
    if (g->last == &hNode->next)
        g->last = at;
    g->n--;
    for (struct CUgraphNode_st *n = g->first; n != NULL; n = n->next)
        for (size_t i = 0; i < n->n_deps; i++)
            if (n->deps[i] == hNode)
                n->deps[i--] = n->deps[--n->n_deps];
    node_free(hNode);
    tl_drv_unlock();
    tl_drv_objects_bury(); /* those of the graphs that were inside */
    return CUDA_SUCCESS;
}
