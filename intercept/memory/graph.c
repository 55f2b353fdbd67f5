/* Memory that nodes of graphs allocate.  The driver takes it when a graph is first launched or
 * uploaded, shares it between graphs and between nodes that do not need it at the same time, and
 * keeps it; what a graph will take nobody but the driver knows.  So under a limit such a graph is
 * uploaded before it is launched, and what the driver keeps then is compared: memory that it has
 * anyway is never refused, and nothing of a graph that goes beyond runs. */
#include "intercept/capture/map.h"
#include "intercept/memory/memory.h"

#include <stdlib.h>

/* From executables with such nodes to the device whose memory it is, plus 1. */
static struct tl_map execs = TL_MAP_EMPTY;

/* The child has one thread, and no graphs that it could launch. */
void tl_memory_graph_forked(void)
{
    tl_map_forked(&execs);
}

enum { MOST_DEPTH = 16 }; /* of graphs in graphs */

/* The device of the first node in there that allocates device memory; -1 if none does. */
static int device_in(CUgraph graph, int depth)
{
    size_t n = 0;
    int device = -1;
    if (depth > MOST_DEPTH || TL_REAL(cuGraphGetNodes)(graph, NULL, &n) != CUDA_SUCCESS || n == 0)
        return -1;
    CUgraphNode *nodes = calloc(n, sizeof *nodes);
    if (nodes == NULL || TL_REAL(cuGraphGetNodes)(graph, nodes, &n) != CUDA_SUCCESS)
        n = 0;
    for (size_t i = 0; i < n && device < 0; i++) {
        CUDA_MEM_ALLOC_NODE_PARAMS_v1 p;
        CUgraphNodeType type;
        CUgraph child;
        if (TL_REAL(cuGraphNodeGetType)(nodes[i], &type) != CUDA_SUCCESS)
            continue;
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            TL_REAL(cuGraphMemAllocNodeGetParams)(nodes[i], &p) == CUDA_SUCCESS &&
            p.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            device = p.poolProps.location.id;
        else if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
                 TL_REAL(cuGraphChildGraphNodeGetGraph)(nodes[i], &child) == CUDA_SUCCESS)
            device = device_in(child, depth + 1);
    }
    free(nodes);
    return device;
}

void tl_memory_graph_made(CUgraphExec exec, CUgraph graph)
{
    int device = device_in(graph, 0);
    if (device >= 0 || tl_map_find(&execs, (uintptr_t)exec) != NULL)
        /* NOLINTNEXTLINE(performance-no-int-to-ptr): a number that is never followed */
        tl_map_put(&execs, (uintptr_t)exec, device >= 0 ? (void *)((uintptr_t)device + 1) : NULL);
}

void tl_memory_graph_gone(CUgraphExec exec)
{
    if (tl_map_find(&execs, (uintptr_t)exec) != NULL)
        tl_map_put(&execs, (uintptr_t)exec, NULL);
}

static CUresult upload(CUgraphExec exec, CUstream stream, bool is_per_thread)
{
    return is_per_thread ? TL_REAL(cuGraphUpload_ptsz)(exec, stream)
                         : TL_REAL(cuGraphUpload)(exec, stream);
}

/* Uploads it and counts what the driver keeps then.  CUDA_ERROR_OUT_OF_MEMORY if that is more than
 * may be held: then the driver has it still. */
static CUresult upload_and_count(CUgraphExec exec, CUstream stream, bool is_per_thread,
                                 CUdevice device)
{
    static const struct tl_memory_fresh nothing = {0};
    CUresult r = upload(exec, stream, is_per_thread);
    if (r != CUDA_SUCCESS)
        return r;
    return tl_rest_measure(device, &nothing) && tl_memory_leaves_enough(device, 0)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool is_capturing(CUstream stream, bool is_per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult r = is_per_thread ? TL_REAL(cuStreamIsCapturing_ptsz)(stream, &status)
                               : TL_REAL(cuStreamIsCapturing)(stream, &status);
    return r != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Launches it, or only uploads it, if what it takes may be held. */
static CUresult run(CUgraphExec exec, CUstream stream, bool is_per_thread,
                    CUresult (*call)(CUgraphExec, CUstream))
{
    const CUdevice device = (CUdevice)(uintptr_t)tl_map_find(&execs, (uintptr_t)exec) - 1;
    if (device < 0 || !tl_memory_is_bounded(device) || is_capturing(stream, is_per_thread))
        return call(exec, stream);
    tl_rest_lock();
    CUresult r = upload_and_count(exec, stream, is_per_thread, device);
    if (r ==
        CUDA_ERROR_OUT_OF_MEMORY) { /* what is kept for other graphs and for pools goes first */
        tl_rest_give_up(device);
        r = upload_and_count(exec, stream, is_per_thread, device);
    }
    if (r == CUDA_ERROR_OUT_OF_MEMORY) {
        tl_rest_give_up(device);
        tl_log(2, "a graph is refused: its memory goes beyond the limit of %llu bytes",
               (unsigned long long)tl_memory_limit());
    } else { /* also what the driver does not want to upload: it says why when it is launched */
        r = call(exec, stream);
    }
    tl_rest_unlock();
    return r;
}

#define RUN(name, is_per_thread)                                                                   \
    CUresult tl_memory_##name(CUgraphExec exec, CUstream stream)                                   \
    {                                                                                              \
        return run(exec, stream, is_per_thread, TL_REAL(name));                                    \
    }
RUN(cuGraphLaunch, false)
RUN(cuGraphLaunch_ptsz, true)
RUN(cuGraphUpload, false)
RUN(cuGraphUpload_ptsz, true)

#define INSTANTIATE(name)                                                                          \
    static CUresult hook_##name(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,    \
                                size_t n)                                                          \
    {                                                                                              \
        CUresult r = TL_REAL(name)(exec, graph, node, log, n);                                     \
        if (r == CUDA_SUCCESS)                                                                     \
            tl_memory_graph_made(*exec, graph);                                                    \
        return r;                                                                                  \
    }
INSTANTIATE(cuGraphInstantiate)
INSTANTIATE(cuGraphInstantiate_v2)

/* Others are made and destroyed by hooks of intercept/capture/priority.c. */
/* clang-format off */
const struct tl_hook tl_graph_hooks[] = {
    {"cuGraphInstantiate", (void *)hook_cuGraphInstantiate}, {"cuGraphInstantiate_v2", (void *)hook_cuGraphInstantiate_v2},
    {"cuGraphLaunch", (void *)tl_memory_cuGraphLaunch}, {"cuGraphLaunch_ptsz", (void *)tl_memory_cuGraphLaunch_ptsz},
    {"cuGraphUpload", (void *)tl_memory_cuGraphUpload}, {"cuGraphUpload_ptsz", (void *)tl_memory_cuGraphUpload_ptsz},
    {NULL, NULL},
};
/* clang-format on */
