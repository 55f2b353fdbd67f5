/* Memory that nodes of graphs allocate and free.
 *
 * Its address is given out when the node is made and stays; memory is taken from the device for it
 * at the first launch (or upload) and kept from launch to launch, until cuDeviceGraphMemTrim or,
 * with its nodes gone and itself freed, for the next node that wants as much.  It has two lives.
 * By the calls: a launch of its graph makes it live, and a free node, cuMemFree or cuMemFreeAsync
 * ends that; what is live cannot be allocated again.  On the device: it is held from the launch
 * until the free has been reached. */
#include "device/driver/graph_memory.h"
#include "device/driver/device.h"
#include "device/driver/exec.h"
#include "device/driver/graph.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/memory.h"
#include "device/driver/state.h"
#include "device/driver/work.h"
#include "tally/check.h"

#include <stdlib.h>
#include <sys/mman.h>

struct tl_drv_graph_memory {
    /* whose node allocates it, only to be compared; NULL when that is gone */
    const struct CUgraph_st *owner;
    /* that allocate it: the owner's, and those of what was instantiated */
    uint32_t nodes;
    uint32_t held;   /* launches whose free the device has not reached */
    uint64_t launch; /* number of the latest launch that allocates it */
    bool is_live;
    /* a free node was made in the owner, in another graph */
    bool is_freed_inside, is_freed_outside;
    CUmemLocation location; /* as the program calls it */
};

static struct tl_drv_alloc *find_alloc(CUdeviceptr address) TL_DRV_LOCKED
{
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)address);
    return a != NULL && a->base == address && a->graph != NULL ? a : NULL;
}

/* What a node allocates; NULL if its context has taken it along. */
static struct tl_drv_alloc *of_node(const struct tl_drv_work *work) TL_DRV_LOCKED
{
    struct tl_drv_alloc *a = find_alloc(work->memory.address);
    return a != NULL && a->id == work->memory.id ? a : NULL;
}

/* --- life ------------------------------------------------------------------------------------- */

CUresult tl_drv_graph_memory_create(const struct tl_drv_place *place, struct CUctx_st *ctx,
                                    const struct CUgraph_st *owner, size_t bytes,
                                    struct tl_drv_work *work)
{
    struct tl_drv_device *device = place->device;
    bool is_own = place->kind == TL_DRV_DEVICE_MEMORY;
    struct tl_drv_graph_memory *m = calloc(1, sizeof *m);
    struct tl_drv_alloc *a = m != NULL && is_own ? tl_drv_pool_reuse(device->graph_pool, ctx, bytes)
                                                 : NULL;
    CUresult r = m != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS && place->kind == TL_DRV_MANAGED)
        r = tl_drv_managed_create(device, ctx, bytes, &a);
    else if (r == CUDA_SUCCESS && a == NULL) {
        /* an address, and no charge yet */
        r = tl_drv_alloc_create(device, ctx, bytes, TL_DRV_HOST_MEMORY, &a);
        if (r == CUDA_SUCCESS)
            a->kind = place->kind;
    }
    if (r != CUDA_SUCCESS) {
        free(m);
        return r;
    }
    *m = (struct tl_drv_graph_memory){.owner = owner, .nodes = 1, .location = place->location};
    a->graph = m;
    *work = (struct tl_drv_work){.kind = TL_DRV_ALLOC, .memory = {a->base, bytes, a->id}};
    return CUDA_SUCCESS;
}

void tl_drv_graph_memory_props(const struct tl_drv_work *work, CUmemPoolProps *out)
{
    const struct tl_drv_alloc *a = of_node(work);
    *out = (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    if (a == NULL)
        return;
    out->location = a->graph->location;
    if (a->kind == TL_DRV_MANAGED)
        out->allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
}

/* Host memory is not counted, and pages of managed memory are by themselves. */
static bool back(struct tl_drv_alloc *a) TL_DRV_LOCKED
{
    if (a->is_charged || a->kind != TL_DRV_DEVICE_MEMORY)
        return true;
    if (!tl_drv_memory_charge(a->device, a->mapped))
        return false;
    a->is_charged = true;
    TL_CHECK(a->pool == NULL);
    tl_drv_pool_count(a->device->graph_pool, a, true);
    return true;
}

static bool is_idle(const struct tl_drv_alloc *a)
{
    return !a->graph->is_live && a->graph->held == 0;
}

static void unback(struct tl_drv_alloc *a) TL_DRV_LOCKED
{
    TL_CHECK(a->is_charged && is_idle(a));
    (void)madvise(tl_drv_pointer(a->base), a->mapped, MADV_DONTNEED);
    tl_drv_exec_give(a->device, a->mapped);
    a->is_charged = false;
    tl_drv_pool_forget(a);
}

/* If nothing refers to it any more. */
static void reclaim(struct tl_drv_alloc *a) TL_DRV_LOCKED
{
    if (a->graph->nodes > 0 || !is_idle(a))
        return;
    free(a->graph);
    a->graph = NULL;
    if (!tl_drv_pool_take_back(a))
        tl_drv_alloc_destroy(a);
}

void tl_drv_graph_memory_ref(const struct tl_drv_work *work)
{
    struct tl_drv_alloc *a = of_node(work);
    if (a != NULL)
        a->graph->nodes++;
}

void tl_drv_graph_memory_unref(const struct tl_drv_work *work)
{
    struct tl_drv_alloc *a = of_node(work);
    if (a == NULL)
        return;
    TL_CHECK(a->graph->nodes > 0);
    a->graph->nodes--;
    reclaim(a);
}

void tl_drv_graph_memory_disown(const struct tl_drv_work *work, const struct CUgraph_st *g)
{
    struct tl_drv_alloc *a = of_node(work);
    if (a != NULL && a->graph->owner == g)
        a->graph->owner = NULL;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static bool is_memory(const struct tl_drv_work *work)
{
    return work->kind == TL_DRV_ALLOC || work->kind == TL_DRV_FREE;
}

CUresult tl_drv_graph_memory_may_add(const struct CUgraph_st *g, const struct tl_drv_work *work)
{
    if (is_memory(work) && g->is_child) /* bodies of conditional nodes, and what was moved */
        return tl_drv_unimplemented("a node of memory in a conditional or moved graph");
    if (work->kind != TL_DRV_FREE)
        return CUDA_SUCCESS;
    const struct tl_drv_alloc *a = find_alloc(work->memory.address);
    if (a == NULL ||
        (a->graph->owner == g ? a->graph->is_freed_outside : a->graph->is_freed_inside))
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct CUgraphNode_st *n = g->first; n != NULL; n = n->next)
        if (n->work.kind == TL_DRV_FREE && n->work.memory.address == work->memory.address)
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

void tl_drv_graph_memory_added(struct CUgraph_st *g, const struct tl_drv_work *work)
{
    g->has_memory |= is_memory(work);
    if (work->kind != TL_DRV_FREE)
        return;
    struct tl_drv_graph_memory *memory = find_alloc(work->memory.address)->graph;
    if (memory->owner == g)
        memory->is_freed_inside = true;
    else
        memory->is_freed_outside = true;
}

/* --- freeing by hand -------------------------------------------------------------------------- */

bool tl_drv_graph_memory_free(struct tl_drv_alloc *a)
{
    bool was_live = a->graph->is_live;
    a->graph->is_live = false;
    return was_live;
}

void tl_drv_graph_memory_reached(struct tl_drv_alloc *a)
{
    if (a->graph->held > 0)
        a->graph->held--;
    reclaim(a);
}

/* --- launching -------------------------------------------------------------------------------- */

typedef CUresult visit_fn(const struct tl_drv_work *work, void *data);

/* Of all nodes of that kind, child graphs' too. */
static CUresult visit(const struct CUgraph_st *g, enum tl_drv_kind kind, visit_fn *each, void *data)
{
    CUresult r = CUDA_SUCCESS;
    for (const struct CUgraphNode_st *n = g->first; n != NULL && r == CUDA_SUCCESS; n = n->next) {
        if (n->work.kind == kind)
            r = each(&n->work, data);
        else if (n->work.kind == TL_DRV_CHILD)
            r = visit(n->work.child, kind, each, data);
    }
    return r;
}

static CUresult back_node(const struct tl_drv_work *work, void *data) TL_DRV_LOCKED
{
    struct tl_drv_alloc *a = of_node(work);
    (void)data;
    return a == NULL ? CUDA_ERROR_INVALID_VALUE : back(a) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult tl_drv_graph_memory_upload(const struct CUgraph_st *g)
{
    return visit(g, TL_DRV_ALLOC, back_node, NULL);
}

struct check {
    uint64_t launch; /* its number */
    bool frees_first;
};

static CUresult check_alloc(const struct tl_drv_work *work, void *data) TL_DRV_LOCKED
{
    const struct check *c = data;
    struct tl_drv_alloc *a = of_node(work);
    if (a == NULL || (a->graph->is_live && !c->frees_first))
        return CUDA_ERROR_INVALID_VALUE;
    a->graph->launch = c->launch;
    return back(a) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What a node frees is live, or will be by the same launch. */
static CUresult check_free(const struct tl_drv_work *work, void *data) TL_DRV_LOCKED
{
    const struct check *c = data;
    const struct tl_drv_alloc *a = find_alloc(work->memory.address);
    bool is_there = a != NULL && (a->graph->is_live || a->graph->launch == c->launch);
    return is_there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult tl_drv_graph_memory_check(const struct CUgraph_st *g, bool frees_first)
{
    static uint64_t launches;
    struct check c = {++launches, frees_first};
    CUresult r = visit(g, TL_DRV_ALLOC, check_alloc, &c);
    return r == CUDA_SUCCESS ? visit(g, TL_DRV_FREE, check_free, &c) : r;
}

struct free_list {
    CUdeviceptr *addresses;
    size_t n, room;
};

static CUresult list_live(const struct tl_drv_work *work, void *data) TL_DRV_LOCKED
{
    struct free_list *l = data;
    if (find_alloc(work->memory.address)->graph->is_live && l->n++ < l->room)
        l->addresses[l->n - 1] = work->memory.address;
    return CUDA_SUCCESS;
}

size_t tl_drv_graph_memory_live(const struct CUgraph_st *g, CUdeviceptr *addresses, size_t room)
{
    struct free_list l = {addresses, 0, room};
    visit(g, TL_DRV_ALLOC, list_live, &l);
    return l.n;
}

static CUresult allocate(const struct tl_drv_work *work, void *data) TL_DRV_LOCKED
{
    struct tl_drv_graph_memory *m = find_alloc(work->memory.address)->graph;
    (void)data;
    m->is_live = true;
    m->held++;
    return CUDA_SUCCESS;
}

static CUresult free_it(const struct tl_drv_work *work, void *data) TL_DRV_LOCKED
{
    (void)data;
    find_alloc(work->memory.address)->graph->is_live = false;
    return CUDA_SUCCESS;
}

void tl_drv_graph_memory_launched(const struct CUgraph_st *g)
{
    visit(g, TL_DRV_ALLOC, allocate, NULL);
    visit(g, TL_DRV_FREE, free_it, NULL);
}

/* --- of a device ------------------------------------------------------------------------------ */

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(device, &d);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    tl_drv_pool_trim(d->graph_pool, 0);
    for (size_t i = 0; i < tl_drv.n_allocs; i++) {
        struct tl_drv_alloc *a = tl_drv.allocs[i];
        if (a->graph != NULL && a->device == d && a->is_charged && is_idle(a))
            unback(a);
    }
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

static uint64_t *attribute(struct tl_drv_device *d, CUgraphMem_attribute attr)
{
    struct CUmemPoolHandle_st *p = d->graph_pool;
    switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return &p->used;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return &p->used_high;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return &p->reserved;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return &p->reserved_high;
    default:
        return NULL;
    }
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(device, &d);
    if (r != CUDA_SUCCESS)
        return r;
    const uint64_t *field = attribute(d, attr);
    if (field == NULL || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    *(cuuint64_t *)value = *field;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

/* The marks of the highest can be reset, to zero, and begin again with what there is. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(device, &d);
    if (r != CUDA_SUCCESS)
        return r;
    bool is_used = attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
         is_reserved = attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if ((!is_used && !is_reserved) || value == NULL || *(const cuuint64_t *)value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    *attribute(d, attr) = is_used ? d->graph_pool->used : d->graph_pool->reserved;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}
