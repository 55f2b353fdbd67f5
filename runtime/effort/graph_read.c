/* A graph's nodes, read when it is instantiated: what each does, in an order in which each comes
 * behind all that it depends on, and these dependencies.
 *
 * Nodes that do nothing, and graphs inside the graph, are taken out: what depended on such a node
 * depends on what that depended on, or on the ends of the inner graph. */
#include "runtime/effort/graph.h"
#include "tally/array.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/effort/attribute.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/stream.h"

enum {
    MAX_DEPTH = 16,
    /* dependencies per step, on average; more come of nodes that only join many with many */
    MANY_EDGES = 32,
};

void tl_eff_steps_finish(struct tl_eff_steps *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->steps[i].kind == TL_EFF_STEP_KERNEL)
            free(list->steps[i].kernel.params);
    }
    free(list->steps);
    free(list->edges);
    *list = (struct tl_eff_steps){0};
}

/* --- what depends on what --------------------------------------------------------------------- */

/* Steps that must be done before something may begin, each once. */
struct ends {
    uint32_t *steps;
    uint32_t n, cap;
};

static int add_end(struct ends *e, uint32_t step)
{
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->steps[i] == step)
            return 0;
    }
    if (!TL_ARRAY_FIT(e->steps, e->cap, e->n + 1))
        return -ENOMEM;
    e->steps[e->n++] = step;
    return 0;
}

static int add_ends(struct ends *e, const struct ends *more)
{
    int rc = 0;
    for (uint32_t i = 0; i < more->n && rc == 0; i++)
        rc = add_end(e, more->steps[i]);
    return rc;
}

/* The step that was added last comes behind all of these.  Where there are too many, the steps
 * count as a line: each behind the one before it, which is stricter. */
static int add_edges(struct tl_eff_steps *list, const struct ends *front)
{
    for (uint32_t i = 0; i < front->n && !list->is_line; i++) {
        if (list->n_edges >= (uint64_t)MANY_EDGES * (list->n + MANY_EDGES)) {
            list->is_line = true;
            break;
        }
        if (!TL_ARRAY_FIT(list->edges, list->cap_edges, list->n_edges + 1))
            return -ENOMEM;
        list->edges[list->n_edges++] = (struct tl_eff_edge){front->steps[i], list->n - 1};
    }
    return 0;
}

/* --- single nodes ----------------------------------------------------------------------------- */

static struct tl_eff_step *add_step(struct tl_eff_steps *list, CUgraphNode node,
                                    enum tl_eff_step_kind kind)
{
    if (!TL_ARRAY_FIT(list->steps, list->cap, list->n + 1))
        return NULL;
    struct tl_eff_step *step = &list->steps[list->n++];
    *step = (struct tl_eff_step){.node = node, .kind = kind};
    return step;
}

int tl_eff_step_set_kernel(struct tl_eff_step *step, const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    /* A driver may tell a function that nobody has seen, and the kernel that the job knows. */
    CUfunction f = p->func != NULL ? p->func : (CUfunction)p->kern;
    struct tl_eff_context *c = tl_eff_current();
    struct tl_eff_kernel *k = c != NULL && f != NULL ? tl_eff_kernel(f, c) : NULL;
    if (c != NULL && (k == NULL || k->is_unknown) && p->func != NULL && p->kern != NULL) {
        f = (CUfunction)p->kern;
        k = tl_eff_kernel(f, c);
    }
    if (k == NULL || k->is_unknown || (p->ctx != NULL && p->ctx != c->handle) ||
        tl_eff_kernel_launches_graphs(k))
        return -ENOTSUP;
    struct tl_eff_launch shape = {.kernel = k};
    struct tl_eff_item *item = tl_eff_launch_item(&shape, p->kernelParams, p->extra);
    if (item == NULL)
        return -ENOTSUP;
    free(step->kernel.params);
    step->kernel.params = item->owned;
    step->kernel.n = k->param_bytes;
    step->kernel.record = k->record;
    item->owned = NULL;
    tl_eff_lock();
    tl_eff_item_unref(item);
    tl_eff_unlock();
    step->kernel.shape = *p;
    step->kernel.shape.func = f;
    step->kernel.shape.kernelParams = step->kernel.shape.extra = NULL;
    return 0;
}

static int read_kernel(struct tl_eff_step *step)
{
    CUDA_KERNEL_NODE_PARAMS_v2 p = {0};
    if (tl_eff_real.cuGraphKernelNodeGetParams_v2 == NULL ||
        tl_eff_real.cuGraphKernelNodeGetAttribute == NULL ||
        tl_eff_real.cuGraphKernelNodeGetParams_v2(step->node, &p) != CUDA_SUCCESS)
        return -ENOTSUP;
    int n = tl_eff_attributes_of_node(step->node, step->kernel.attributes);
    if (n < 0)
        return n;
    step->kernel.n_attributes = (uint32_t)n;
    return tl_eff_step_set_kernel(step, &p);
}

/* What kind of memory an end of a copy is in; 0 if the driver does not know it: pageable. */
static CUmemorytype memory_of(CUmemorytype type, const void *host, CUdeviceptr device)
{
    CUmemorytype found = 0;
    CUdeviceptr address = type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)host : device;
    if (type == CU_MEMORYTYPE_ARRAY)
        return CU_MEMORYTYPE_DEVICE;
    CUresult r = tl_eff_real.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                   address);
    if (r == CUDA_SUCCESS && found != 0)
        return found;
    return type == CU_MEMORYTYPE_DEVICE ? type : 0;
}

/* The driver reads and writes pageable memory when the node's turn comes; a copy in a stream does
 * it now. */
int tl_eff_step_set_copy(struct tl_eff_step *step, const CUDA_MEMCPY3D *p)
{
    step->copy.shape = *p;
    CUmemorytype from = memory_of(p->srcMemoryType, p->srcHost, p->srcDevice);
    CUmemorytype to = memory_of(p->dstMemoryType, p->dstHost, p->dstDevice);
    step->copy.is_on_device = from == CU_MEMORYTYPE_DEVICE && to == CU_MEMORYTYPE_DEVICE;
    return from == 0 || to == 0 ? -ENOTSUP : 0;
}

static int read_copy(struct tl_eff_step *step)
{
    CUDA_MEMCPY3D p;
    return tl_eff_real.cuGraphMemcpyNodeGetParams(step->node, &p) == CUDA_SUCCESS
               ? tl_eff_step_set_copy(step, &p)
               : -ENOTSUP;
}

/* What the step's node does; -ENOTSUP if that cannot be done in steps. */
static int read_step(struct tl_eff_step *step)
{
    CUresult r = CUDA_ERROR_NOT_SUPPORTED;
    switch (step->kind) {
    case TL_EFF_STEP_KERNEL:
        return read_kernel(step);
    case TL_EFF_STEP_COPY:
        return read_copy(step);
    case TL_EFF_STEP_FILL:
        r = tl_eff_real.cuGraphMemsetNodeGetParams(step->node, &step->fill);
        break;
    case TL_EFF_STEP_HOST:
        r = tl_eff_real.cuGraphHostNodeGetParams(step->node, &step->host);
        break;
    case TL_EFF_STEP_RECORD:
        r = tl_eff_real.cuGraphEventRecordNodeGetEvent(step->node, &step->event);
        break;
    case TL_EFF_STEP_WAIT:
        r = tl_eff_real.cuGraphEventWaitNodeGetEvent(step->node, &step->event);
        break;
    }
    return r == CUDA_SUCCESS ? 0 : -ENOTSUP;
}

/* The step that a node becomes; -1 if it becomes none that we know. */
static int kind_of(CUgraphNodeType type)
{
    switch ((int)type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return TL_EFF_STEP_KERNEL;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return TL_EFF_STEP_COPY;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return TL_EFF_STEP_FILL;
    case CU_GRAPH_NODE_TYPE_HOST:
        return TL_EFF_STEP_HOST;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return TL_EFF_STEP_RECORD;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return TL_EFF_STEP_WAIT;
    default:
        return -1; /* memory, conditions, semaphores of others */
    }
}

/* --- graphs ----------------------------------------------------------------------------------- */

static int read_graph(struct tl_eff_steps *list, CUgraph graph, const struct ends *front,
                      struct ends *ends, int depth);

/* Adds what the node does to the steps, behind `front`; its ends go to `ends`. */
static int read_node(struct tl_eff_steps *list, CUgraphNode node, const struct ends *front,
                     struct ends *ends, int depth)
{
    CUgraphNodeType type;
    CUgraph child;
    if (tl_eff_real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return -ENOTSUP;
    if (type == CU_GRAPH_NODE_TYPE_EMPTY)
        return add_ends(ends, front);
    if (type == CU_GRAPH_NODE_TYPE_GRAPH)
        return tl_eff_real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS
                   ? read_graph(list, child, front, ends, depth + 1)
                   : -ENOTSUP;
    int kind = kind_of(type);
    if (kind < 0)
        return -ENOTSUP;
    struct tl_eff_step *step = add_step(list, node, (enum tl_eff_step_kind)kind);
    int rc = step != NULL ? read_step(step) : -ENOMEM;
    if (rc == 0)
        rc = add_edges(list, front);
    return rc == 0 ? add_end(ends, list->n - 1) : rc;
}

/* The nodes of one graph, while they are read. */
struct level {
    CUgraphNode *nodes;
    size_t n;
    bool *is_read;
    bool *is_followed; /* another node depends on it */
    struct ends *ends; /* of each that was read */
};

/* The place of a node in a list; `n` if it is not there. */
static size_t place_of(const CUgraphNode *nodes, size_t n, CUgraphNode node)
{
    size_t i = 0;
    while (i < n && nodes[i] != node)
        i++;
    return i;
}

/* 1 if all that a node depends on has been read, and then `front` has the ends of these; 0 if not.
 * -ENOTSUP if the driver does not tell. */
static int is_ready(const struct level *l, size_t i, const struct ends *outer, struct ends *front)
{
    size_t n_deps = 0;
    if (tl_eff_real.cuGraphNodeGetDependencies(l->nodes[i], NULL, &n_deps) != CUDA_SUCCESS)
        return -ENOTSUP;
    if (n_deps == 0)
        return add_ends(front, outer) == 0 ? 1 : -ENOMEM;
    CUgraphNode *deps = calloc(n_deps, sizeof(CUgraphNode));
    if (deps == NULL)
        return -ENOMEM;
    int ready = tl_eff_real.cuGraphNodeGetDependencies(l->nodes[i], deps, &n_deps) == CUDA_SUCCESS
                    ? 1
                    : -ENOTSUP;
    for (size_t k = 0; ready > 0 && k < n_deps; k++) {
        size_t at = place_of(l->nodes, l->n, deps[k]);
        ready = at < l->n && l->is_read[at];
        if (ready > 0) {
            l->is_followed[at] = true;
            ready = add_ends(front, &l->ends[at]) == 0 ? 1 : -ENOMEM;
        }
    }
    free(deps);
    return ready;
}

/* Reads the node if its turn has come: 1, or 0 if not. */
static int read_next(struct tl_eff_steps *list, const struct level *l, size_t i,
                     const struct ends *outer, int depth)
{
    struct ends front = {0};
    int rc = is_ready(l, i, outer, &front);
    if (rc > 0) {
        rc = read_node(list, l->nodes[i], &front, &l->ends[i], depth);
        l->is_read[i] = true;
        rc = rc < 0 ? rc : 1;
    }
    free(front.steps);
    return rc;
}

/* All nodes of a level in an order in which each comes behind those that it depends on; and what
 * nothing depends on are the level's ends. */
static int read_level(struct tl_eff_steps *list, const struct level *l, const struct ends *outer,
                      struct ends *ends, int depth)
{
    size_t left = l->n;
    int rc = 0;
    while (rc >= 0 && left > 0) {
        size_t before = left;
        for (size_t i = 0; rc >= 0 && i < l->n; i++) {
            if (l->is_read[i])
                continue;
            rc = read_next(list, l, i, outer, depth);
            left -= rc > 0;
        }
        if (left == before && rc >= 0)
            rc = -ENOTSUP; /* a circle */
    }
    for (size_t i = 0; i < l->n && rc >= 0; i++) {
        if (!l->is_followed[i])
            rc = add_ends(ends, &l->ends[i]);
    }
    if (l->n == 0)
        rc = add_ends(ends, outer);
    return rc < 0 ? rc : 0;
}

static int read_graph(struct tl_eff_steps *list, CUgraph graph, const struct ends *front,
                      struct ends *ends, int depth)
{
    size_t n = 0;
    if (depth > MAX_DEPTH || tl_eff_real.cuGraphGetNodes == NULL ||
        tl_eff_real.cuGraphNodeGetDependencies == NULL ||
        tl_eff_real.cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS)
        return -ENOTSUP;
    struct level l = {.nodes = calloc(n + 1, sizeof(CUgraphNode)),
                      .n = n,
                      .is_read = calloc(n + 1, sizeof(bool)),
                      .is_followed = calloc(n + 1, sizeof(bool)),
                      .ends = calloc(n + 1, sizeof(struct ends))};
    int rc = l.nodes != NULL && l.is_read != NULL && l.is_followed != NULL && l.ends != NULL
                 ? 0
                 : -ENOMEM;
    if (rc == 0 && tl_eff_real.cuGraphGetNodes(graph, l.nodes, &l.n) != CUDA_SUCCESS)
        rc = -ENOTSUP;
    if (rc == 0)
        rc = read_level(list, &l, front, ends, depth);
    for (size_t i = 0; i < n && l.ends != NULL; i++)
        free(l.ends[i].steps);
    free(l.nodes);
    free(l.is_read);
    free(l.is_followed);
    free(l.ends);
    return rc;
}

int tl_eff_steps_read(struct tl_eff_steps *list, CUgraph graph)
{
    struct ends none = {0}, ends = {0};
    *list = (struct tl_eff_steps){0};
    int rc = read_graph(list, graph, &none, &ends, 0);
    free(ends.steps);
    if (rc < 0)
        tl_eff_steps_finish(list);
    return rc;
}
