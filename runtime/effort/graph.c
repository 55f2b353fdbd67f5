/* A graph's nodes, read once when it is instantiated and put into the stream one by one when it is
 * launched, so that its kernels are preemptible like any others, unless all of them together are so
 * short, or the job is so alone, that a kernel of that length would run whole.  Branches of a graph
 * come one after the other: CUDA never promises that they run at once. */
#include "runtime/effort/graph.h"
#include "tally/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/attribute.h"
#include "runtime/effort/event.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"

enum { MAX_DEPTH = 16 };

void tl_eff_steps_finish(struct tl_eff_steps *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->steps[i].kind == TL_EFF_STEP_KERNEL)
            free(list->steps[i].kernel.params);
    }
    free(list->steps);
    *list = (struct tl_eff_steps){0};
}

static struct tl_eff_step *add_step(struct tl_eff_steps *list, CUgraphNode node,
                                    enum tl_eff_step_kind kind)
{
    if (!TL_ARRAY_FIT(list->steps, list->cap, list->n + 1))
        return NULL;
    struct tl_eff_step *step = &list->steps[list->n++];
    *step = (struct tl_eff_step){.node = node, .kind = kind};
    return step;
}

/* --- reading ---------------------------------------------------------------------------------- */

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
    if (k == NULL || k->is_unknown || (p->ctx != NULL && p->ctx != c->handle))
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

static bool is_pageable(CUmemorytype type, const void *host, CUdeviceptr device)
{
    CUmemorytype found = 0;
    CUdeviceptr address = type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)host : device;
    if (type != CU_MEMORYTYPE_HOST && (int)type != CU_MEMORYTYPE_UNIFIED)
        return false;
    return tl_eff_real.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
           CUDA_SUCCESS;
}

static int read_graph(struct tl_eff_steps *list, CUgraph graph, int depth);

/* Adds what the node does to the steps; -ENOTSUP if that cannot be done in steps. */
static int read_node(struct tl_eff_steps *list, CUgraphNode node, int depth)
{
    CUgraphNodeType type;
    CUgraph child;
    struct tl_eff_step *step;
    if (tl_eff_real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return -ENOTSUP;
    switch ((int)type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return 0;
    case CU_GRAPH_NODE_TYPE_KERNEL:
        step = add_step(list, node, TL_EFF_STEP_KERNEL);
        return step != NULL ? read_kernel(step) : -ENOMEM;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        step = add_step(list, node, TL_EFF_STEP_COPY);
        if (step == NULL ||
            tl_eff_real.cuGraphMemcpyNodeGetParams(node, &step->copy) != CUDA_SUCCESS)
            return -ENOTSUP;
        /* The driver reads and writes pageable memory when the node's turn comes; a copy in a
         * stream does it now. */
        return is_pageable(step->copy.srcMemoryType, step->copy.srcHost, step->copy.srcDevice) ||
                       is_pageable(step->copy.dstMemoryType, step->copy.dstHost,
                                   step->copy.dstDevice)
                   ? -ENOTSUP
                   : 0;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        step = add_step(list, node, TL_EFF_STEP_FILL);
        return step != NULL &&
                       tl_eff_real.cuGraphMemsetNodeGetParams(node, &step->fill) == CUDA_SUCCESS
                   ? 0
                   : -ENOTSUP;
    case CU_GRAPH_NODE_TYPE_HOST:
        step = add_step(list, node, TL_EFF_STEP_HOST);
        return step != NULL &&
                       tl_eff_real.cuGraphHostNodeGetParams(node, &step->host) == CUDA_SUCCESS
                   ? 0
                   : -ENOTSUP;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        step = add_step(list, node, TL_EFF_STEP_RECORD);
        return step != NULL && tl_eff_real.cuGraphEventRecordNodeGetEvent(node, &step->event) ==
                                   CUDA_SUCCESS
                   ? 0
                   : -ENOTSUP;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        step = add_step(list, node, TL_EFF_STEP_WAIT);
        return step != NULL &&
                       tl_eff_real.cuGraphEventWaitNodeGetEvent(node, &step->event) == CUDA_SUCCESS
                   ? 0
                   : -ENOTSUP;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (tl_eff_real.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS)
            return -ENOTSUP;
        return read_graph(list, child, depth + 1);
    default:
        return -ENOTSUP; /* memory, conditions, semaphores of others */
    }
}

/* The place of a node in a list; `n` if it is not there. */
static size_t place_of(const CUgraphNode *nodes, size_t n, CUgraphNode node)
{
    size_t i = 0;
    while (i < n && nodes[i] != node)
        i++;
    return i;
}

/* Whether all that a node depends on has been read.  -ENOTSUP if the driver does not tell. */
static int is_ready(const CUgraphNode *nodes, const bool *is_read, size_t n, size_t i)
{
    size_t n_deps = 0;
    if (tl_eff_real.cuGraphNodeGetDependencies(nodes[i], NULL, &n_deps) != CUDA_SUCCESS)
        return -ENOTSUP;
    CUgraphNode *deps = calloc(n_deps + 1, sizeof(CUgraphNode));
    if (deps == NULL)
        return -ENOMEM;
    int ready = tl_eff_real.cuGraphNodeGetDependencies(nodes[i], deps, &n_deps) == CUDA_SUCCESS
                    ? 1
                    : -ENOTSUP;
    for (size_t k = 0; ready > 0 && k < n_deps; k++) {
        size_t at = place_of(nodes, n, deps[k]);
        ready = at < n && is_read[at];
    }
    free(deps);
    return ready;
}

/* The nodes of a graph in an order in which each comes behind those that it depends on. */
static int read_graph(struct tl_eff_steps *list, CUgraph graph, int depth)
{
    size_t n = 0, left;
    if (depth > MAX_DEPTH || tl_eff_real.cuGraphGetNodes == NULL ||
        tl_eff_real.cuGraphNodeGetDependencies == NULL ||
        tl_eff_real.cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS)
        return -ENOTSUP;
    CUgraphNode *nodes = calloc(n + 1, sizeof(CUgraphNode));
    bool *is_read = calloc(n + 1, sizeof *is_read);
    int rc = nodes != NULL && is_read != NULL ? 0 : -ENOMEM;
    if (rc == 0 && tl_eff_real.cuGraphGetNodes(graph, nodes, &n) != CUDA_SUCCESS)
        rc = -ENOTSUP;
    left = n;
    while (rc == 0 && left > 0) {
        size_t before = left;
        for (size_t i = 0; rc == 0 && i < n; i++) {
            if (is_read[i])
                continue;
            rc = is_ready(nodes, is_read, n, i);
            if (rc <= 0)
                continue;
            rc = read_node(list, nodes[i], depth);
            is_read[i] = true;
            left--;
        }
        if (left == before && rc == 0)
            rc = -ENOTSUP; /* a circle */
    }
    free(nodes);
    free(is_read);
    return rc;
}

int tl_eff_steps_read(struct tl_eff_steps *list, CUgraph graph)
{
    *list = (struct tl_eff_steps){0};
    int rc = read_graph(list, graph, 0);
    if (rc < 0)
        tl_eff_steps_finish(list);
    return rc;
}

/* --- launching -------------------------------------------------------------------------------- */

static CUresult launch_copy(const struct tl_eff_step *step, struct tl_eff_stream *s)
{
    CUDA_MEMCPY3D *shape = malloc(sizeof *shape);
    if (shape == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *shape = step->copy;
    struct tl_eff_call c = {*(void **)&tl_eff_real.cuMemcpy3DAsync_v2, 2, {(uintptr_t)shape}};
    return tl_eff_defer(s, &c, 1, shape);
}

static CUresult launch_fill(const struct tl_eff_step *step, struct tl_eff_stream *s)
{
    const CUDA_MEMSET_NODE_PARAMS *f = &step->fill;
    void *function = f->elementSize == 1   ? *(void **)&tl_eff_real.cuMemsetD2D8Async
                     : f->elementSize == 2 ? *(void **)&tl_eff_real.cuMemsetD2D16Async
                                           : *(void **)&tl_eff_real.cuMemsetD2D32Async;
    size_t pitch = f->height > 1 ? f->pitch : f->width * f->elementSize;
    struct tl_eff_call c = {function, 6, {f->dst, pitch, f->value, f->width, f->height}};
    return tl_eff_defer(s, &c, 5, NULL);
}

static CUresult launch_step(const struct tl_eff_step *step, struct tl_eff_stream *s)
{
    struct tl_eff_call host = {*(void **)&tl_eff_real.cuLaunchHostFunc, 3, {0}};
    switch (step->kind) {
    case TL_EFF_STEP_KERNEL:
        return tl_eff_launch_packed(s, &step->kernel.shape, step->kernel.params, step->kernel.n,
                                    step->kernel.attributes, step->kernel.n_attributes);
    case TL_EFF_STEP_COPY:
        return launch_copy(step, s);
    case TL_EFF_STEP_FILL:
        return launch_fill(step, s);
    case TL_EFF_STEP_HOST:
        host.args[1] = (uintptr_t)step->host.fn;
        host.args[2] = (uintptr_t)step->host.userData;
        return tl_eff_defer(s, &host, 0, NULL);
    case TL_EFF_STEP_RECORD:
        return tl_eff_record(step->event, s, 0);
    case TL_EFF_STEP_WAIT:
        return tl_eff_wait(s, step->event, 0);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

uint64_t tl_eff_steps_ns(const struct tl_eff_steps *list, const struct tl_eff_stream *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const struct tl_eff_step *step = &list->steps[i];
        if (step->kind == TL_EFF_STEP_RECORD || step->kind == TL_EFF_STEP_WAIT)
            return 0;
        if (step->is_disabled || step->kind != TL_EFF_STEP_KERNEL)
            continue;
        uint64_t ns = tl_eff_packed_ns(s->context, &step->kernel.shape, step->kernel.params,
                                       step->kernel.n);
        if (ns == 0)
            return 0;
        sum += ns;
    }
    return sum > 0 ? sum : 1; /* no kernel at all takes a moment, too */
}

void tl_eff_steps_count(const struct tl_eff_steps *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const struct tl_eff_step *step = &list->steps[i];
        if (step->is_disabled || step->kind != TL_EFF_STEP_KERNEL)
            continue;
        const CUDA_KERNEL_NODE_PARAMS_v2 *p = &step->kernel.shape;
        uint64_t blocks = (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ;
        tl_record_launched(step->kernel.record, TL_RUNG_WHOLE, blocks);
        atomic_fetch_add_explicit(&tl_eff.page->launches, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&tl_eff.page->blocks, blocks, memory_order_relaxed);
    }
}

CUresult tl_eff_steps_launch(const struct tl_eff_steps *list, struct tl_eff_stream *s)
{
    CUresult r = CUDA_SUCCESS;
    for (uint32_t i = 0; i < list->n && r == CUDA_SUCCESS; i++) {
        if (!list->steps[i].is_disabled)
            r = launch_step(&list->steps[i], s);
    }
    return r;
}
