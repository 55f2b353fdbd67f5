/* Reading and replacing what nodes of a graph do. */
#include "device/driver/graph.h"
#include "device/driver/graph_memory.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/module.h"
#include "device/driver/work.h"
#include "tally/kernel_params.h"

#include <stdlib.h>
#include <string.h>

static bool is_kind(CUgraphNode n, enum tl_drv_kind kind)
{
    return tl_drv_is_node(n) && n->work.kind == kind;
}

/* Puts new work into a node; `r` is what making it came to. */
static CUresult replace(CUgraphNode n, CUresult r, struct tl_drv_work *work) TL_DRV_UNLOCKED
{
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    if (!is_kind(n, work->kind)) {
        tl_drv_node_work_finish(work);
        tl_drv_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    tl_drv_node_work_finish(&n->work);
    n->work = *work;
    free((void *)n->param_pointers);
    n->param_pointers = NULL;
    free(n->memops);
    n->memops = NULL;
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
    CUresult r = nodeParams != NULL ? cuGraphKernelNodeGetParams_v2(hNode, &p)
                                    : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *nodeParams = (CUDA_KERNEL_NODE_PARAMS_v1){
            p.func,      p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
            p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
    return r;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL ? tl_drv_work_of_kernel(nodeParams, &work)
                                    : CUDA_ERROR_INVALID_VALUE;
    return replace(hNode, r, &work);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    if (nodeParams == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS_v2 p = tl_kernel_params_of_v1(nodeParams);
    return cuGraphKernelNodeSetParams_v2(hNode, &p);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue *value_out)
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

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue *value)
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
    CUresult r = nodeParams != NULL ? tl_drv_work_of_copy(nodeParams, &work)
                                    : CUDA_ERROR_INVALID_VALUE;
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
    *nodeParams = (CUDA_MEMSET_NODE_PARAMS){(CUdeviceptr)f->to, f->pitch, f->value,
                                            f->element,         f->width, f->height};
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL ? tl_drv_work_of_fill(nodeParams, &work)
                                    : CUDA_ERROR_INVALID_VALUE;
    return replace(hNode, r, &work);
}

static void params_of_memop(const struct tl_drv_memop *m, CUstreamBatchMemOpParams *p)
{
    *p = (CUstreamBatchMemOpParams){.operation = CU_STREAM_MEM_OP_BARRIER};
    if (m->is_barrier)
        return;
    if (m->is_wait) {
        p->waitValue.operation = m->is_wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64
                                            : CU_STREAM_MEM_OP_WAIT_VALUE_32;
        p->waitValue.address = (CUdeviceptr)m->address;
        p->waitValue.value64 = m->value;
        p->waitValue.flags = m->flags;
    } else {
        p->writeValue.operation = m->is_wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64
                                             : CU_STREAM_MEM_OP_WRITE_VALUE_32;
        p->writeValue.address = (CUdeviceptr)m->address;
        p->writeValue.value64 = m->value;
    }
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
    if (!is_kind(hNode, TL_DRV_MEMOP) || nodeParams_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct tl_drv_work *w = &hNode->work;
    uint32_t n = w->memop.n_more + 1;
    tl_drv_lock();
    if (hNode->memops == NULL)
        hNode->memops = calloc(n, sizeof *hNode->memops);
    for (uint32_t i = 0; hNode->memops != NULL && i < n; i++)
        params_of_memop(i == 0 ? &w->memop : (const struct tl_drv_memop *)w->staging + (i - 1),
                        &hNode->memops[i]);
    tl_drv_unlock();
    *nodeParams_out = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.count = n, .paramArray = hNode->memops};
    return hNode->memops != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    struct tl_drv_work work;
    CUresult r = nodeParams != NULL
                     ? tl_drv_work_of_memops(nodeParams->count, nodeParams->paramArray, &work)
                     : CUDA_ERROR_INVALID_VALUE;
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
    *params_out = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = hNode->work.memory.bytes,
                                               .dptr = hNode->work.memory.address};
    tl_drv_lock();
    tl_drv_graph_memory_props(&hNode->work, &params_out->poolProps);
    tl_drv_unlock();
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
    if (nodeParams == NULL || nodeParams->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ||
        nodeParams->type ==
            CU_GRAPH_NODE_TYPE_MEM_FREE) /* bodies are changed instead, memory cannot be */
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = replace(hNode, tl_drv_work_of_params(nodeParams, &work), &work);
    if (r == CUDA_SUCCESS && nodeParams->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        hNode->copy = nodeParams->memcpy.copyParams;
    return r;
}
