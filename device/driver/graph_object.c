/* User objects: counted, destroyed at zero.  A graph holds references, and so does every copy of
 * it. */
#include "device/driver/graph.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"

#include <stdlib.h>

struct CUuserObject_st {
    struct CUuserObject_st *next; /* among those to be destroyed */
    void *data;
    CUhostFn destroy;
    unsigned refs; /* guarded by the driver's lock */
};

/* A graph's references to one object. */
struct tl_drv_held {
    struct tl_drv_held *next;
    struct CUuserObject_st *object;
    unsigned count;
};

static struct CUuserObject_st *dead TL_DRV_GUARDED; /* without references */

static void drop(struct CUuserObject_st *o, unsigned count) TL_DRV_LOCKED
{
    if (o->refs == 0)
        return;
    o->refs -= count < o->refs ? count : o->refs;
    if (o->refs == 0) {
        o->next = dead;
        dead = o;
    }
}

void tl_drv_objects_bury(void)
{
    for (;;) {
        tl_drv_lock();
        struct CUuserObject_st *o = dead;
        if (o != NULL)
            dead = o->next;
        tl_drv_unlock();
        if (o == NULL)
            return;
        o->destroy(o->data);
        free(o);
    }
}

static CUresult hold(struct CUgraph_st *g, struct CUuserObject_st *o, unsigned count)
{
    struct tl_drv_held *h = g->objects;
    while (h != NULL && h->object != o)
        h = h->next;
    if (h == NULL) {
        h = malloc(sizeof *h);
        if (h == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *h = (struct tl_drv_held){g->objects, o, 0};
        g->objects = h;
    }
    h->count += count;
    return CUDA_SUCCESS;
}

CUresult tl_drv_graph_copy_objects(struct CUgraph_st *to, const struct CUgraph_st *from)
{
    for (const struct tl_drv_held *h = from->objects; h != NULL; h = h->next) {
        CUresult r = hold(to, h->object, h->count);
        if (r != CUDA_SUCCESS)
            return r;
        h->object->refs += h->count;
    }
    return CUDA_SUCCESS;
}

void tl_drv_graph_drop_objects(struct CUgraph_st *g)
{
    while (g->objects != NULL) {
        struct tl_drv_held *h = g->objects;
        g->objects = h->next;
        drop(h->object, h->count);
        free(h);
    }
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags)
{
    (void)flags;
    if (object_out == NULL || destroy == NULL || initialRefcount == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUuserObject_st *o = malloc(sizeof *o);
    if (o == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *o = (struct CUuserObject_st){NULL, ptr, destroy, initialRefcount};
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
    drop(object, count);
    tl_drv_unlock();
    tl_drv_objects_bury();
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags)
{
    if (!tl_drv_is_graph(graph) || object == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    CUresult r = hold(graph, object, count);
    if (r == CUDA_SUCCESS &&
        (flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) /* else the caller's become the graph's */
        object->refs += count;
    tl_drv_unlock();
    return r;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    if (!tl_drv_is_graph(graph) || object == NULL || count == 0)
        return r;
    tl_drv_lock();
    for (struct tl_drv_held **at = &graph->objects; *at != NULL; at = &(*at)->next) {
        struct tl_drv_held *h = *at;
        if (h->object != object || h->count < count)
            continue;
        h->count -= count;
        if (h->count == 0) {
            *at = h->next;
            free(h);
        }
        drop(object, count);
        r = CUDA_SUCCESS;
        break;
    }
    tl_drv_unlock();
    tl_drv_objects_bury();
    return r;
}
