/* Graphs: nodes, edges, parameters. */
#include "device/driver_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- inside ------------------------------------------------------------------------------------------------------ */

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
    tl_drv_work_finish(work);
}

static void node_free(struct CUgraphNode_st *n)
{
    tl_drv_node_work_finish(&n->work);
    free((void *)n->deps);
    free((void *)n->param_pointers);
    n->magic = TL_DRV_DEAD;
    free(n);
}

void tl_drv_graph_destroy(struct CUgraph_st *g)
{
    if (g == NULL)
        return;
    while (g->first != NULL) {
        struct CUgraphNode_st *n = g->first;
        g->first = n->next;
        node_free(n);
    }
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
    struct CUgraphNode_st **deps = realloc((void *)node->deps, (node->n_deps + 1) * sizeof(struct CUgraphNode_st *));
    if (deps == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->deps = deps;
    deps[node->n_deps++] = on;
    return CUDA_SUCCESS;
}

CUresult tl_drv_graph_add(struct CUgraph_st *g, struct CUgraphNode_st *const *deps, size_t n_deps,
                          struct tl_drv_work *work, struct CUgraphNode_st **out)
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
    *g->last = n;
    g->last = &n->next;
    g->n++;
    if (out != NULL)
        *out = n;
    return CUDA_SUCCESS;
}

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
    } else if (from->staging != NULL) { /* a copy of pageable bytes, taken when the stream was captured */
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
    for (struct CUgraphNode_st *n = g->first; n != NULL && r == CUDA_SUCCESS; n = n->next) {
        struct tl_drv_work work;
        r = tl_drv_work_copy(&work, &n->work);
        if (r == CUDA_SUCCESS)
            r = tl_drv_graph_add(c, NULL, 0, &work, &n->mark);
        if (r == CUDA_SUCCESS) {
            n->mark->origin = n;
            n->mark->copy = n->copy;
            n->mark->is_disabled = n->is_disabled;
        }
    }
    for (struct CUgraphNode_st *n = g->first; n != NULL && r == CUDA_SUCCESS; n = n->next)
        for (size_t i = 0; i < n->n_deps && r == CUDA_SUCCESS; i++)
            r = tl_drv_node_depend(n->mark, n->deps[i]->mark);
    if (r != CUDA_SUCCESS) {
        tl_drv_graph_destroy(c);
        return NULL;
    }
    return c;
}

/* --- parameters to work ------------------------------------------------------------------------------------------ */

CUresult tl_drv_work_of_kernel(const CUDA_KERNEL_NODE_PARAMS_v2 *p, struct tl_drv_work *work)
{
    CUfunction f = p->func != NULL ? p->func : (CUfunction)(void *)p->kern;
    *work = (struct tl_drv_work){.kind = TL_DRV_LAUNCH,
                                 .launch = {.grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                                            .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                                            .shared_bytes = p->sharedMemBytes}};
    return tl_drv_launch_make(f, &work->launch, p->kernelParams, p->extra);
}

CUresult tl_drv_work_of_fill(const CUDA_MEMSET_NODE_PARAMS *p, struct tl_drv_work *work)
{
    if (p->dst == 0 || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct tl_drv_work){.kind = TL_DRV_FILL,
                                 .fill = {.to = tl_drv_pointer(p->dst),
                                          .pitch = p->pitch,
                                          .width = p->width,
                                          .height = p->height,
                                          .value = p->value,
                                          .element = p->elementSize}};
    return CUDA_SUCCESS;
}

static CUresult work_of_copy(const CUDA_MEMCPY3D *p, struct tl_drv_work *work)
{
    *work = (struct tl_drv_work){.kind = TL_DRV_COPY};
    return tl_drv_plan_3d(p, &work->copy);
}

/* Only a single operation per node; more would need a list, which nobody has asked for. */
static CUresult work_of_memops(unsigned count, const CUstreamBatchMemOpParams *ops, struct tl_drv_work *work)
{
    if (count != 1 || ops == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    *work = (struct tl_drv_work){.kind = TL_DRV_MEMOP};
    struct tl_drv_memop *m = &work->memop;
    switch (ops->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        m->is_wait = true;
        m->is_wide = ops->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        m->address = tl_drv_pointer(ops->waitValue.address);
        m->value = m->is_wide ? ops->waitValue.value64 : ops->waitValue.value;
        m->flags = ops->waitValue.flags;
        return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        m->is_wide = ops->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        m->address = tl_drv_pointer(ops->writeValue.address);
        m->value = m->is_wide ? ops->writeValue.value64 : ops->writeValue.value;
        return CUDA_SUCCESS;
    default:
        m->is_barrier = true;
        return CUDA_SUCCESS;
    }
}

CUresult tl_drv_work_of_params(const CUgraphNodeParams *p, struct tl_drv_work *work)
{
    *work = (struct tl_drv_work){.kind = TL_DRV_EMPTY};
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS_v2 k = {p->kernel.func,      p->kernel.gridDimX,       p->kernel.gridDimY,
                                        p->kernel.gridDimZ,  p->kernel.blockDimX,      p->kernel.blockDimY,
                                        p->kernel.blockDimZ, p->kernel.sharedMemBytes, p->kernel.kernelParams,
                                        p->kernel.extra,     p->kernel.kern,           p->kernel.ctx};
        return tl_drv_work_of_kernel(&k, work);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return work_of_copy(&p->memcpy.copyParams, work);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS m = {p->memset.dst,         p->memset.pitch, p->memset.value,
                                     p->memset.elementSize, p->memset.width, p->memset.height};
        return tl_drv_work_of_fill(&m, work);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        *work = (struct tl_drv_work){.kind = TL_DRV_HOST, .host = {p->host.fn, p->host.userData}};
        return p->host.fn != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        *work = (struct tl_drv_work){.kind = TL_DRV_RECORD, .event = p->eventRecord.event};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        *work = (struct tl_drv_work){.kind = TL_DRV_WAIT, .event = p->eventWait.event};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (p->graph.graph == NULL || p->graph.graph->magic != TL_DRV_GRAPH)
            return CUDA_ERROR_INVALID_VALUE;
        tl_drv_lock();
        *work = (struct tl_drv_work){.kind = TL_DRV_CHILD, .child = tl_drv_graph_clone(p->graph.graph)};
        tl_drv_unlock();
        if (work->child == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        work->child->is_child = true;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        *work = (struct tl_drv_work){.kind = TL_DRV_FREE, .memory = {p->free.dptr, 0}};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return work_of_memops(p->memOp.count, p->memOp.paramArray, work);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* --- graphs ------------------------------------------------------------------------------------------------------ */

static bool is_graph(CUgraph g)
{
    return g != NULL && g->magic == TL_DRV_GRAPH;
}

static bool is_node(CUgraphNode n)
{
    return n != NULL && n->magic == TL_DRV_NODE;
}

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
    if (!is_graph(hGraph) || hGraph->is_child)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    tl_drv_graph_destroy(hGraph);
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    if (phGraphClone == NULL || !is_graph(originalGraph))
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    *phGraphClone = tl_drv_graph_clone(originalGraph);
    tl_drv_unlock();
    return *phGraphClone != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
    if (phNode == NULL || !is_graph(hClonedGraph))
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
    if (out == NULL || !is_graph(g) || (n_deps > 0 && deps == NULL)) {
        tl_drv_node_work_finish(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    tl_drv_lock();
    r = tl_drv_graph_add(g, deps, n_deps, work, out);
    tl_drv_unlock();
    return r;
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    struct tl_drv_work work;
    (void)dependencyData;
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
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

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL ? tl_drv_work_of_kernel(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

static CUDA_KERNEL_NODE_PARAMS_v2 of_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    return (CUDA_KERNEL_NODE_PARAMS_v2){.func = p->func,
                                        .gridDimX = p->gridDimX,
                                        .gridDimY = p->gridDimY,
                                        .gridDimZ = p->gridDimZ,
                                        .blockDimX = p->blockDimX,
                                        .blockDimY = p->blockDimY,
                                        .blockDimZ = p->blockDimZ,
                                        .sharedMemBytes = p->sharedMemBytes,
                                        .kernelParams = p->kernelParams,
                                        .extra = p->extra};
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS_v2 p = of_v1(nodeParams);
    return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &p);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    struct tl_drv_work work;
    (void)ctx;
    CUresult r = copyParams != NULL ? work_of_copy(copyParams, &work) : CUDA_ERROR_INVALID_VALUE;
    r = add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
    if (r == CUDA_SUCCESS)
        (*phGraphNode)->copy = *copyParams;
    return r;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    struct tl_drv_work work;
    (void)ctx;
    CUresult r = memsetParams != NULL ? tl_drv_work_of_fill(memsetParams, &work) : CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL || nodeParams->fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_work work = {.kind = TL_DRV_HOST, .host = {nodeParams->fn, nodeParams->userData}};
    return add(phGraphNode, hGraph, dependencies, numDependencies, CUDA_SUCCESS, &work);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, CUgraph childGraph)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph}};
    return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                             size_t numDependencies)
{
    struct tl_drv_work work = {.kind = TL_DRV_EMPTY};
    return add(phGraphNode, hGraph, dependencies, numDependencies, CUDA_SUCCESS, &work);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, CUevent event)
{
    struct tl_drv_work work = {.kind = TL_DRV_RECORD, .event = event};
    CUresult r = event != NULL && event->magic == TL_DRV_EVENT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, CUevent event)
{
    struct tl_drv_work work = {.kind = TL_DRV_WAIT, .event = event};
    CUresult r = event != NULL && event->magic == TL_DRV_EVENT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

/* The memory is taken once and stays; every launch of the graph finds it at the same address. */
CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = cuMemAlloc_v2(&nodeParams->dptr, nodeParams->bytesize);
    struct tl_drv_work work = {.kind = TL_DRV_ALLOC, .memory = {nodeParams->dptr, nodeParams->bytesize}};
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                               size_t numDependencies, CUdeviceptr dptr)
{
    struct tl_drv_work work = {.kind = TL_DRV_FREE, .memory = {dptr, 0}};
    return add(phGraphNode, hGraph, dependencies, numDependencies, CUDA_SUCCESS, &work);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL ? work_of_memops(nodeParams->count, nodeParams->paramArray, &work)
                                    : CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies, r, &work);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
    if (!is_node(hNode))
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct CUgraph_st *g = hNode->graph;
    struct CUgraphNode_st **at = &g->first;
    while (*at != hNode)
        at = &(*at)->next;
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
    return CUDA_SUCCESS;
}

/* --- queries ----------------------------------------------------------------------------------------------------- */

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    static const CUgraphNodeType types[] = {
        [TL_DRV_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,        [TL_DRV_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
        [TL_DRV_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,        [TL_DRV_LAUNCH] = CU_GRAPH_NODE_TYPE_KERNEL,
        [TL_DRV_HOST] = CU_GRAPH_NODE_TYPE_HOST,          [TL_DRV_CALLBACK] = CU_GRAPH_NODE_TYPE_HOST,
        [TL_DRV_MEMOP] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [TL_DRV_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        [TL_DRV_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,    [TL_DRV_CHILD] = CU_GRAPH_NODE_TYPE_GRAPH,
        [TL_DRV_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,    [TL_DRV_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
    };
    if (!is_node(hNode) || type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *type = types[hNode->work.kind];
    return CUDA_SUCCESS;
}

/* Lists in the API's manner: with no array the number, else as many as there is room for, the rest NULL. */
struct lister {
    CUgraphNode *out;
    size_t room, n;
};

static void list(struct lister *l, CUgraphNode node)
{
    if (l->out != NULL && l->n < l->room)
        l->out[l->n] = node;
    l->n++;
}

static void list_end(struct lister *l, size_t *count)
{
    if (l->out == NULL) {
        *count = l->n;
        return;
    }
    for (size_t i = l->n; i < l->room; i++)
        l->out[i] = NULL;
    *count = l->n < l->room ? l->n : l->room;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    if (!is_graph(hGraph) || numNodes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct lister l = {nodes, *numNodes, 0};
    tl_drv_lock();
    for (struct CUgraphNode_st *n = hGraph->first; n != NULL; n = n->next)
        list(&l, n);
    tl_drv_unlock();
    list_end(&l, numNodes);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    if (!is_graph(hGraph) || numRootNodes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct lister l = {rootNodes, *numRootNodes, 0};
    tl_drv_lock();
    for (struct CUgraphNode_st *n = hGraph->first; n != NULL; n = n->next)
        if (n->n_deps == 0)
            list(&l, n);
    tl_drv_unlock();
    list_end(&l, numRootNodes);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                            size_t *numEdges)
{
    if (!is_graph(hGraph) || numEdges == NULL || (from == NULL) != (to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    size_t room = *numEdges;
    struct lister a = {from, room, 0}, b = {to, room, 0};
    tl_drv_lock();
    for (struct CUgraphNode_st *n = hGraph->first; n != NULL; n = n->next) {
        for (size_t i = 0; i < n->n_deps; i++) {
            list(&a, n->deps[i]);
            list(&b, n);
        }
    }
    tl_drv_unlock();
    if (edgeData != NULL && from != NULL)
        memset(edgeData, 0, room * sizeof *edgeData);
    list_end(&a, numEdges);
    size_t same = room;
    list_end(&b, &same);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
                                       size_t *numDependencies)
{
    if (!is_node(hNode) || numDependencies == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct lister l = {dependencies, *numDependencies, 0};
    if (edgeData != NULL && dependencies != NULL)
        memset(edgeData, 0, l.room * sizeof *edgeData);
    tl_drv_lock();
    for (size_t i = 0; i < hNode->n_deps; i++)
        list(&l, hNode->deps[i]);
    tl_drv_unlock();
    list_end(&l, numDependencies);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
    return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData,
                                         size_t *numDependentNodes)
{
    if (!is_node(hNode) || numDependentNodes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct lister l = {dependentNodes, *numDependentNodes, 0};
    if (edgeData != NULL && dependentNodes != NULL)
        memset(edgeData, 0, l.room * sizeof *edgeData);
    tl_drv_lock();
    for (struct CUgraphNode_st *n = hNode->graph->first; n != NULL; n = n->next)
        for (size_t i = 0; i < n->n_deps; i++)
            if (n->deps[i] == hNode)
                list(&l, n);
    tl_drv_unlock();
    list_end(&l, numDependentNodes);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes)
{
    return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    CUresult r = is_graph(hGraph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    (void)edgeData;
    tl_drv_lock();
    for (size_t i = 0; i < numDependencies && r == CUDA_SUCCESS; i++)
        r = is_node(to[i]) ? tl_drv_node_depend(to[i], from[i]) : CUDA_ERROR_INVALID_VALUE;
    tl_drv_unlock();
    return r;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies)
{
    return cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    (void)edgeData;
    if (!is_graph(hGraph))
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    for (size_t k = 0; k < numDependencies; k++)
        for (size_t i = 0; is_node(to[k]) && i < to[k]->n_deps; i++)
            if (to[k]->deps[i] == from[k])
                to[k]->deps[i--] = to[k]->deps[--to[k]->n_deps];
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t numDependencies)
{
    return cuGraphRemoveDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

/* --- parameters of nodes ----------------------------------------------------------------------------------------- */

static bool is_kind(CUgraphNode n, enum tl_drv_kind kind)
{
    return is_node(n) && n->work.kind == kind;
}

/* Puts new work into a node; `r` is what making it came to. */
static CUresult replace(CUgraphNode n, CUresult r, struct tl_drv_work *work)
{
    if (r != CUDA_SUCCESS)
        return r;
    if (!is_kind(n, work->kind)) {
        tl_drv_node_work_finish(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    tl_drv_lock();
    tl_drv_node_work_finish(&n->work);
    n->work = *work;
    free((void *)n->param_pointers);
    n->param_pointers = NULL;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (!is_kind(hNode, TL_DRV_LAUNCH) || nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct tl_drv_launch *l = &hNode->work.launch;
    const struct tl_drv_kernel_info *info = l->function->info;
    tl_drv_lock();
    if (hNode->param_pointers == NULL) {
        hNode->param_pointers = calloc(info->n_params + 1, sizeof(void *));
        for (uint32_t i = 0; hNode->param_pointers != NULL && i < info->n_params; i++)
            hNode->param_pointers[i] = l->params + info->param_offsets[i];
    }
    tl_drv_unlock();
    *nodeParams = (CUDA_KERNEL_NODE_PARAMS){.func = l->function,
                                            .gridDimX = l->grid[0],
                                            .gridDimY = l->grid[1],
                                            .gridDimZ = l->grid[2],
                                            .blockDimX = l->block[0],
                                            .blockDimY = l->block[1],
                                            .blockDimZ = l->block[2],
                                            .sharedMemBytes = l->shared_bytes,
                                            .kernelParams = hNode->param_pointers,
                                            .kern = l->function->kernel,
                                            .ctx = l->function->module->ctx};
    return hNode->param_pointers != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS_v2 p;
    CUresult r = nodeParams != NULL ? cuGraphKernelNodeGetParams_v2(hNode, &p) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *nodeParams = (CUDA_KERNEL_NODE_PARAMS_v1){p.func,         p.gridDimX,  p.gridDimY,  p.gridDimZ,
                                                   p.blockDimX,    p.blockDimY, p.blockDimZ, p.sharedMemBytes,
                                                   p.kernelParams, p.extra};
    return r;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL ? tl_drv_work_of_kernel(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
    return replace(hNode, r, &work);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS_v2 p = of_v1(nodeParams);
    return cuGraphKernelNodeSetParams_v2(hNode, &p);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value_out)
{
    if (!is_kind(hNode, TL_DRV_LAUNCH) || value_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memset(value_out, 0, sizeof *value_out);
    if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        value_out->cooperative = hNode->work.launch.is_cooperative;
    else if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        value_out->priority = hNode->work.launch.priority;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value)
{
    if (!is_kind(hNode, TL_DRV_LAUNCH) || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        hNode->work.launch.is_cooperative = value->cooperative != 0;
    else if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        hNode->work.launch.priority = value->priority;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
    if (!is_kind(dst, TL_DRV_LAUNCH) || !is_kind(src, TL_DRV_LAUNCH))
        return CUDA_ERROR_INVALID_VALUE;
    dst->work.launch.is_cooperative = src->work.launch.is_cooperative;
    dst->work.launch.priority = src->work.launch.priority;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    if (!is_kind(hNode, TL_DRV_COPY) || nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct tl_drv_copy *c = &hNode->work.copy;
    *nodeParams = hNode->copy;
    if (hNode->copy.WidthInBytes == 0) /* it was captured */
        *nodeParams = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                      .srcDevice = (CUdeviceptr)c->from,
                                      .srcPitch = c->from_pitch,
                                      .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                      .dstDevice = (CUdeviceptr)c->to,
                                      .dstPitch = c->to_pitch,
                                      .srcHeight = c->height,
                                      .dstHeight = c->height,
                                      .WidthInBytes = c->width,
                                      .Height = c->height,
                                      .Depth = c->depth};
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL ? work_of_copy(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
    r = replace(hNode, r, &work);
    if (r == CUDA_SUCCESS)
        hNode->copy = *nodeParams;
    return r;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    if (!is_kind(hNode, TL_DRV_FILL) || nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct tl_drv_fill *f = &hNode->work.fill;
    *nodeParams = (CUDA_MEMSET_NODE_PARAMS){(CUdeviceptr)f->to, f->pitch, f->value, f->element, f->width, f->height};
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL ? tl_drv_work_of_fill(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
    return replace(hNode, r, &work);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (!is_kind(hNode, TL_DRV_HOST) || nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *nodeParams = (CUDA_HOST_NODE_PARAMS){hNode->work.host.function, hNode->work.host.data};
    return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL || nodeParams->fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_work work = {.kind = TL_DRV_HOST, .host = {nodeParams->fn, nodeParams->userData}};
    return replace(hNode, CUDA_SUCCESS, &work);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    if (!is_kind(hNode, TL_DRV_CHILD) || phGraph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = hNode->work.child;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    if (!is_kind(hNode, TL_DRV_RECORD) || event_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *event_out = hNode->work.event;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    struct tl_drv_work work = {.kind = TL_DRV_RECORD, .event = event};
    return replace(hNode, CUDA_SUCCESS, &work);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    if (!is_kind(hNode, TL_DRV_WAIT) || event_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *event_out = hNode->work.event;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    struct tl_drv_work work = {.kind = TL_DRV_WAIT, .event = event};
    return replace(hNode, CUDA_SUCCESS, &work);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    if (!is_kind(hNode, TL_DRV_ALLOC) || params_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memset(params_out, 0, sizeof *params_out);
    params_out->bytesize = hNode->work.memory.bytes;
    params_out->dptr = hNode->work.memory.address;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    if (!is_kind(hNode, TL_DRV_FREE) || dptr_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *dptr_out = hNode->work.memory.address;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL ? tl_drv_work_of_params(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
    return replace(hNode, r, &work);
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    (void)flags;
    if (!is_graph(hGraph) || path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    FILE *f = fopen(path, "we");
    if (f == NULL)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(f, "digraph dot {\n");
    tl_drv_lock();
    for (struct CUgraphNode_st *n = hGraph->first; n != NULL; n = n->next) {
        const char *name = n->work.kind == TL_DRV_LAUNCH ? n->work.launch.function->info->name : "";
        fprintf(f, "\"%p\" [label=\"%d %s\"];\n", (void *)n, (int)n->work.kind, name);
        for (size_t i = 0; i < n->n_deps; i++)
            fprintf(f, "\"%p\" -> \"%p\";\n", (void *)n->deps[i], (void *)n);
    }
    tl_drv_unlock();
    fprintf(f, "}\n");
    return fclose(f) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

/* --- user objects: counted, destroyed at zero --------------------------------------------------------------------- */

struct CUuserObject_st {
    void *data;
    CUhostFn destroy;
    unsigned refs; /* guarded by the driver's lock; a graph's reference stays until it is released */
};

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
                            unsigned int flags)
{
    (void)flags;
    if (object_out == NULL || destroy == NULL || initialRefcount == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUuserObject_st *o = malloc(sizeof *o);
    if (o == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *o = (struct CUuserObject_st){ptr, destroy, initialRefcount};
    *object_out = o;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    if (object == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    object->refs += count;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    if (object == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    object->refs -= count < object->refs ? count : object->refs;
    bool is_last = object->refs == 0;
    tl_drv_unlock();
    if (is_last) {
        object->destroy(object->data);
        free(object);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    if (!is_graph(graph))
        return CUDA_ERROR_INVALID_VALUE;
    return (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0 ? CUDA_SUCCESS : cuUserObjectRetain(object, count);
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    return is_graph(graph) ? cuUserObjectRelease(object, count) : CUDA_ERROR_INVALID_VALUE;
}
