/* What a node does, from parameters in the form of the API. */
#include "device/driver/graph.h"
#include "device/driver/handle.h"
#include "device/driver/launch.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/work.h"

#include <stdlib.h>

enum { MAX_MEMOPS = 256 }; /* of a node, as CUDA has it for a call */

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
    return tl_drv_fill_check(&work->fill);
}

CUresult tl_drv_work_of_copy(const CUDA_MEMCPY3D *p, struct tl_drv_work *work)
{
    *work = (struct tl_drv_work){.kind = TL_DRV_COPY};
    return tl_drv_plan_3d(p, &work->copy);
}

static void memop_of(const CUstreamBatchMemOpParams *ops, struct tl_drv_memop *m)
{
    *m = (struct tl_drv_memop){0};
    switch (ops->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        m->is_wait = true;
        m->is_wide = ops->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        m->address = tl_drv_pointer(ops->waitValue.address);
        m->value = m->is_wide ? ops->waitValue.value64 : ops->waitValue.value;
        m->flags = ops->waitValue.flags;
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        m->is_wide = ops->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        m->address = tl_drv_pointer(ops->writeValue.address);
        m->value = m->is_wide ? ops->writeValue.value64 : ops->writeValue.value;
        break;
    default:
        m->is_barrier = true;
    }
}

CUresult tl_drv_work_of_memops(unsigned count, const CUstreamBatchMemOpParams *ops,
                               struct tl_drv_work *work)
{
    if (count == 0 || count > MAX_MEMOPS || ops == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct tl_drv_work){.kind = TL_DRV_MEMOP};
    memop_of(&ops[0], &work->memop);
    work->memop.n_more = count - 1;
    if (count == 1)
        return CUDA_SUCCESS;
    struct tl_drv_memop *more = calloc(count - 1, sizeof *more);
    if (more == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 1; i < count; i++)
        memop_of(&ops[i], &more[i - 1]);
    work->staging = more;
    return CUDA_SUCCESS;
}

/* What a node of any type does.  CUDA_ERROR_NOT_SUPPORTED for types that this device has not. */
CUresult tl_drv_work_of_params(CUgraphNodeParams *p, struct tl_drv_work *work)
{
    *work = (struct tl_drv_work){.kind = TL_DRV_EMPTY};
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS_v2 k = {
            p->kernel.func,      p->kernel.gridDimX,       p->kernel.gridDimY,
            p->kernel.gridDimZ,  p->kernel.blockDimX,      p->kernel.blockDimY,
            p->kernel.blockDimZ, p->kernel.sharedMemBytes, p->kernel.kernelParams,
            p->kernel.extra,     p->kernel.kern,           p->kernel.ctx};
        return tl_drv_work_of_kernel(&k, work);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return tl_drv_work_of_copy(&p->memcpy.copyParams, work);
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
        if (p->graph.graph->is_moved || p->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
            return CUDA_ERROR_INVALID_VALUE;
        tl_drv_lock();
        bool may_be = !tl_drv_graph_has_memory(p->graph.graph);
        *work = (struct tl_drv_work){.kind = TL_DRV_CHILD,
                                     .child = may_be ? tl_drv_graph_clone(p->graph.graph) : NULL};
        tl_drv_unlock();
        if (!may_be)
            return CUDA_ERROR_INVALID_VALUE;
        if (work->child == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        work->child->is_child = true;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        *work = (struct tl_drv_work){.kind = TL_DRV_FREE, .memory = {p->free.dptr, 0}};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return tl_drv_work_of_memops(p->memOp.count, p->memOp.paramArray, work);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return tl_drv_work_of_conditional(&p->conditional, work);
    default:
        return tl_drv_unimplemented(
            "a graph's node of this type (external semaphores, and others)");
    }
}
