/* Nodes and edges of graphs: what there is, and changing edges. */
#include "device/driver/graph.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/module.h"
#include "device/driver/work.h"

#include <stdio.h>
#include <string.h>

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    static const CUgraphNodeType types[] = {
        [TL_DRV_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,
        [TL_DRV_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
        [TL_DRV_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
        [TL_DRV_LAUNCH] = CU_GRAPH_NODE_TYPE_KERNEL,
        [TL_DRV_HOST] = CU_GRAPH_NODE_TYPE_HOST,
        [TL_DRV_CALLBACK] = CU_GRAPH_NODE_TYPE_HOST,
        [TL_DRV_MEMOP] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        [TL_DRV_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        [TL_DRV_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        [TL_DRV_CHILD] = CU_GRAPH_NODE_TYPE_GRAPH,
        [TL_DRV_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        [TL_DRV_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
        [TL_DRV_CONDITIONAL] = CU_GRAPH_NODE_TYPE_CONDITIONAL,
    };
    if (!tl_drv_is_node(hNode) || type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *type = types[hNode->work.kind];
    return CUDA_SUCCESS;
}

/* Lists in the API's manner: with no array the number, else as many as there is room for, the rest
 * NULL. */
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
    if (!tl_drv_is_graph(hGraph) || numNodes == NULL)
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
    if (!tl_drv_is_graph(hGraph) || numRootNodes == NULL)
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

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edgeData, size_t *numEdges)
{
    if (!tl_drv_is_graph(hGraph) || numEdges == NULL || (from == NULL) != (to == NULL))
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

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edgeData, size_t *numDependencies)
{
    if (!tl_drv_is_node(hNode) || numDependencies == NULL)
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

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                    size_t *numDependencies)
{
    return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                         CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
    if (!tl_drv_is_node(hNode) || numDependentNodes == NULL)
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

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                      size_t *numDependentNodes)
{
    return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    CUresult r = tl_drv_is_graph(hGraph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    (void)edgeData;
    tl_drv_lock();
    for (size_t i = 0; i < numDependencies && r == CUDA_SUCCESS; i++)
        r = tl_drv_is_node(to[i]) ? tl_drv_node_depend(to[i], from[i]) : CUDA_ERROR_INVALID_VALUE;
    tl_drv_unlock();
    return r;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t numDependencies)
{
    return cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                      const CUgraphNode *to, const CUgraphEdgeData *edgeData,
                                      size_t numDependencies)
{
    (void)edgeData;
    if (!tl_drv_is_graph(hGraph))
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    bool may_go = !tl_drv_graph_has_memory(hGraph);
    for (size_t k = 0; k < numDependencies && may_go; k++)
        for (size_t i = 0; tl_drv_is_node(to[k]) && i < to[k]->n_deps; i++)
            if (to[k]->deps[i] == from[k])
                to[k]->deps[i--] = to[k]->deps[--to[k]->n_deps];
    tl_drv_unlock();
    return may_go ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t numDependencies)
{
    return cuGraphRemoveDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    (void)flags;
    if (!tl_drv_is_graph(hGraph) || path == NULL)
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
