/* User objects: counted, destroyed at zero.  A graph can hold references. */
#include "device/driver_graph.h"

#include <stdlib.h>

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
    if (!tl_drv_is_graph(graph))
        return CUDA_ERROR_INVALID_VALUE;
    return (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0 ? CUDA_SUCCESS : cuUserObjectRetain(object, count);
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    return tl_drv_is_graph(graph) ? cuUserObjectRelease(object, count) : CUDA_ERROR_INVALID_VALUE;
}
