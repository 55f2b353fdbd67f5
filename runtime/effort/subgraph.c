/* A run of a graph's steps as a graph of its own: the same nodes with the same dependencies, as far
 * as these are inside.  What they depend on outside stands in front in the stream.  A step that is
 * disabled becomes a node that does nothing, so that what comes behind it still comes behind what
 * it came behind.
 *
 * Left to the caller, since others have to wait for them or they take as long as they like: events,
 * host functions. */
#include "runtime/effort/subgraph.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/effort/graph.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/real.h"
#include "runtime/effort/stream.h"
#include "tally/check.h"

/* A node to be added, behind `n_deps` others. */
struct place {
    CUgraph graph;
    CUgraphNode *deps;
    size_t n_deps;
    struct tl_eff_context *context;
};

static bool can_make(void)
{
    return tl_eff_real.cuGraphCreate != NULL && tl_eff_real.cuGraphDestroy != NULL &&
           tl_eff_real.cuGraphAddKernelNode_v2 != NULL &&
           tl_eff_real.cuGraphKernelNodeSetAttribute != NULL &&
           tl_eff_real.cuGraphAddMemcpyNode != NULL && tl_eff_real.cuGraphAddMemsetNode != NULL &&
           tl_eff_real.cuGraphAddEmptyNode != NULL &&
           tl_eff_real.cuGraphInstantiateWithFlags != NULL && tl_eff_real.cuGraphLaunch != NULL &&
           tl_eff_real.cuGraphExecDestroy != NULL;
}

TL_EFF_UNLOCKED static CUresult add_kernel(const struct place *p, const struct tl_eff_step *step,
                                           CUgraphNode *out)
{
    size_t n = step->kernel.n;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, step->kernel.params,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &n, CU_LAUNCH_PARAM_END};
    struct tl_eff_packed k = tl_eff_packed(p->context, &step->kernel.shape, step->kernel.params, n);
    if (k.function == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_KERNEL_NODE_PARAMS_v2 params = step->kernel.shape;
    params.func = k.function;
    params.kern = NULL;
    params.ctx = NULL;
    params.kernelParams = NULL;
    params.extra = n > 0 ? extra : NULL;
    CUresult r = tl_eff_real.cuGraphAddKernelNode_v2(out, p->graph, p->deps, p->n_deps, &params);
    for (uint32_t i = 0; i < step->kernel.n_attributes && r == CUDA_SUCCESS; i++)
        r = tl_eff_real.cuGraphKernelNodeSetAttribute(*out, step->kernel.attributes[i].id,
                                                      &step->kernel.attributes[i].value);
    return r;
}

TL_EFF_UNLOCKED static CUresult add_node(const struct place *p, const struct tl_eff_step *step,
                                         CUgraphNode *out)
{
    if (step->is_disabled)
        return tl_eff_real.cuGraphAddEmptyNode(out, p->graph, p->deps, p->n_deps);
    switch (step->kind) {
    case TL_EFF_STEP_KERNEL:
        return add_kernel(p, step, out);
    case TL_EFF_STEP_COPY:
        return tl_eff_real.cuGraphAddMemcpyNode(out, p->graph, p->deps, p->n_deps,
                                                &step->copy.shape, p->context->handle);
    case TL_EFF_STEP_FILL:
        return tl_eff_real.cuGraphAddMemsetNode(out, p->graph, p->deps, p->n_deps, &step->fill,
                                                p->context->handle);
    case TL_EFF_STEP_HOST:
    case TL_EFF_STEP_RECORD:
    case TL_EFF_STEP_WAIT:
        break;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Where the edges to a step begin: they stand in the order of the steps that they lead to. */
static uint32_t first_edge(const struct tl_eff_steps *steps, uint32_t to)
{
    uint32_t low = 0, high = steps->n_edges;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (steps->edges[mid].to < to)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The nodes inside that a step comes behind; `nodes` are those from `first` on. */
static void find_deps(const struct tl_eff_steps *steps, const CUgraphNode *nodes, uint32_t first,
                      uint32_t step, struct place *p)
{
    p->n_deps = 0;
    if (steps->is_line) {
        if (step > first)
            p->deps[p->n_deps++] = nodes[step - 1 - first];
        return;
    }
    for (uint32_t e = first_edge(steps, step); e < steps->n_edges && steps->edges[e].to == step;
         e++) {
        TL_CHECK(steps->edges[e].from < step);
        if (steps->edges[e].from >= first)
            p->deps[p->n_deps++] = nodes[steps->edges[e].from - first];
    }
}

int tl_eff_subgraph_make(const struct tl_eff_steps *steps, uint32_t first, uint32_t n,
                         struct tl_eff_context *context, CUgraphExec *out)
{
    struct place p = {.context = context};
    TL_CHECK(n > 0 && first < steps->n && n <= steps->n - first);
    if (!can_make() || tl_eff_real.cuGraphCreate(&p.graph, 0) != CUDA_SUCCESS)
        return -ENOTSUP;
    CUgraphNode *nodes = calloc(n, sizeof(CUgraphNode));
    p.deps = calloc(n, sizeof(CUgraphNode));
    int rc = nodes != NULL && p.deps != NULL ? 0 : -ENOMEM;
    for (uint32_t i = first; i < first + n && rc == 0; i++) {
        find_deps(steps, nodes, first, i, &p);
        rc = add_node(&p, &steps->steps[i], &nodes[i - first]) == CUDA_SUCCESS ? 0 : -ENOTSUP;
    }
    if (rc == 0 && tl_eff_real.cuGraphInstantiateWithFlags(out, p.graph, 0) != CUDA_SUCCESS)
        rc = -ENOTSUP;
    tl_eff_real.cuGraphDestroy(p.graph);
    free(nodes);
    free(p.deps);
    return rc;
}
