/* Stream-ordered memory.  An address is given out at once; what the stream does with it comes later
 * anyway.  A free is an operation: when the stream reaches it, the block goes back to its pool,
 * which keeps it for the next taker. */
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/graph_memory.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/memory.h"
#include "device/driver/op.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"
#include "device/driver/work.h"
#include "tally/check.h"

#include <stdlib.h>
#include <string.h>

/* kept at least, whatever the threshold: pages are costly to get back */
enum { KEEP_BYTES = 256 << 20 };

struct CUmemPoolHandle_st *tl_drv_pool_create(struct tl_drv_device *device)
{
    struct CUmemPoolHandle_st *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->magic = TL_DRV_POOL;
    p->device = device;
    p->kind = TL_DRV_DEVICE_MEMORY;
    p->location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal};
    p->accessible = 1u << device->ordinal;
    p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
    p->is_default = device->default_pool == NULL;
    p->id = tl_drv.next_id++;
    p->older = tl_drv.pools;
    tl_drv.pools = p;
    return p;
}

/* What of a block counts as used: what was asked for, in CUDA's units.  All of it where graphs keep
 * it, and where it has more pages than that takes: nobody else gets these. */
static uint64_t used_by(const struct CUmemPoolHandle_st *pool, const struct tl_drv_alloc *a)
{
    enum { UNIT = 512 };
    return pool->is_graphs || a->mapped >= a->bytes + TL_DRV_PAGE
               ? a->mapped
               : (a->bytes + UNIT - 1) & ~(uint64_t)(UNIT - 1);
}

uint64_t tl_drv_pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep)
{
    uint64_t freed = 0;
    while (pool->cached != NULL && pool->reserved > keep) {
        struct tl_drv_cached *c = pool->cached;
        pool->used -= pool->is_graphs ? c->alloc->mapped : 0;
        TL_CHECK(c->alloc->pool == pool && pool->reserved >= pool->used + c->alloc->mapped);
        pool->cached = c->next;
        pool->reserved -= c->alloc->mapped;
        freed += c->alloc->mapped;
        c->alloc->pool = NULL;
        /* cached blocks are not in the table: nobody owns their addresses */
        tl_drv_alloc_insert(c->alloc);
        tl_drv_alloc_destroy(c->alloc);
        free(c);
    }
    return freed;
}

void tl_drv_pool_forget(struct tl_drv_alloc *a)
{
    if (a->pool == NULL)
        return;
    TL_CHECK(a->pool->used >= used_by(a->pool, a) && a->pool->reserved >= a->pool->used);
    a->pool->used -= used_by(a->pool, a);
    a->pool->reserved -= a->mapped;
    a->pool = NULL;
}

bool tl_drv_pool_take_back(struct tl_drv_alloc *a)
{
    struct CUmemPoolHandle_st *pool = a->pool;
    if (pool == NULL)
        return false;
    TL_CHECK(pool->used >= used_by(pool, a) && pool->reserved >= pool->used);
    struct tl_drv_cached *c = pool->is_destroyed || pool->is_imported ? NULL : malloc(sizeof *c);
    if (c == NULL || !pool->is_graphs)
        pool->used -= used_by(pool, a);
    if (c == NULL) {
        pool->reserved -= a->mapped;
        a->pool = NULL;
        return false;
    }
    tl_drv_alloc_remove(a);
    c->alloc = a;
    c->next = pool->cached;
    pool->cached = c;
    uint64_t keep = pool->threshold > KEEP_BYTES ? pool->threshold : KEEP_BYTES;
    if (pool->reserved > keep)
        tl_drv_pool_trim(pool, keep);
    return true;
}

void tl_drv_pool_count(struct CUmemPoolHandle_st *pool, struct tl_drv_alloc *a, bool is_new)
{
    a->pool = pool;
    if (is_new || !pool->is_graphs)
        pool->used += used_by(pool, a);
    if (is_new)
        pool->reserved += a->mapped;
    TL_CHECK(pool->used <= pool->reserved);
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
}

struct tl_drv_alloc *tl_drv_pool_reuse(struct CUmemPoolHandle_st *pool, struct CUctx_st *ctx,
                                       size_t bytes)
{
    size_t mapped = (bytes + TL_DRV_PAGE - 1) & ~(size_t)(TL_DRV_PAGE - 1);
    for (struct tl_drv_cached **at = &pool->cached; *at != NULL; at = &(*at)->next) {
        struct tl_drv_cached *c = *at;
        if (c->alloc->mapped >= mapped && c->alloc->mapped <= mapped + mapped / 4) {
            struct tl_drv_alloc *a = c->alloc;
            a->bytes = bytes;
            a->ctx = ctx;
            if (tl_drv_alloc_insert(a) != CUDA_SUCCESS)
                return NULL;
            *at = c->next;
            free(c);
            tl_drv_pool_count(pool, a, false);
            return a;
        }
    }
    return NULL;
}

static CUresult take(struct CUmemPoolHandle_st *pool, struct CUctx_st *ctx, size_t bytes,
                     CUdeviceptr *out) TL_DRV_LOCKED
{
    struct tl_drv_alloc *a = tl_drv_pool_reuse(pool, ctx, bytes);
    if (a == NULL) {
        CUresult r = pool->kind == TL_DRV_MANAGED
                         ? tl_drv_managed_create(pool->device, ctx, bytes, &a)
                         : tl_drv_alloc_create(pool->device, ctx, bytes, pool->kind, &a);
        if (r != CUDA_SUCCESS)
            return r;
        /* while nothing runs on it; if that fails, whoever exports it waits for what does */
        if (pool->is_shareable)
            (void)tl_drv_alloc_share(a, true);
        tl_drv_pool_count(pool, a, true);
    }
    *out = a->base;
    return CUDA_SUCCESS;
}

CUresult tl_drv_pool_check(CUmemoryPool pool)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    return pool != NULL && pool->magic == TL_DRV_POOL && !pool->is_destroyed
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult take_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(stream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (dptr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool == NULL)
        pool = s->ctx->device->pool;
    if (pool->is_imported)
        return CUDA_ERROR_NOT_PERMITTED;
    if (bytes == 0) { /* nothing, and nothing is freed later */
        *dptr = 0;
        return CUDA_SUCCESS;
    }
    /* A node has the pool's properties; its memory is the graph's. */
    struct tl_drv_place place = {pool->device, pool->kind, pool->location};
    tl_drv_lock();
    r = tl_drv_is_capturing(s) ? tl_drv_capture_alloc(s, &place, bytes, dptr)
                               : take(pool, s->ctx, bytes, dptr);
    tl_drv_unlock();
    return r;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    return take_async(dptr, bytesize, NULL, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream)
{
    CUresult r = tl_drv_pool_check(pool);
    return r == CUDA_SUCCESS ? take_async(dptr, bytesize, pool, hStream) : r;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (dptr == 0)
        return CUDA_SUCCESS;
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)dptr);
    bool is_ours = a != NULL && a->base == dptr && !a->is_internal &&
                   (a->kind == TL_DRV_DEVICE_MEMORY || a->pool != NULL || a->graph != NULL);
    if (is_ours && a->graph != NULL &&
        !tl_drv_is_capturing(s)) /* else a node is made, which has its own rules */
        is_ours = tl_drv_graph_memory_free(a);
    tl_drv_unlock();
    if (!is_ours)
        return CUDA_ERROR_INVALID_VALUE;
    return tl_drv_submit(s, &(struct tl_drv_work){.kind = TL_DRV_FREE, .memory = {dptr, 0}}, false);
}

/* --- pools ------------------------------------------------------------------------------------ */

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult r = tl_drv_pool_check(pool);
    if (r != CUDA_SUCCESS)
        return r;
    if (pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    tl_drv_pool_trim(pool, 0);
    pool->is_destroyed = true; /* blocks in use still point at it, so the structure stays */
    if (pool->device->pool == pool)
        pool->device->pool = pool->device->default_pool;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    CUresult r = tl_drv_pool_check(pool);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    tl_drv_pool_trim(pool, minBytesToKeep);
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

static void *attribute_field(CUmemoryPool p, CUmemPool_attribute attr, bool *is_wide)
{
    *is_wide = true;
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        *is_wide = false;
        return &p->reuse[0];
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        *is_wide = false;
        return &p->reuse[1];
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *is_wide = false;
        return &p->reuse[2];
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &p->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &p->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &p->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &p->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &p->used_high;
    default:
        return NULL;
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    bool is_wide;
    CUresult r = tl_drv_pool_check(pool);
    if (r != CUDA_SUCCESS)
        return r;
    void *field = attribute_field(pool, attr, &is_wide);
    if (field == NULL || value == NULL || attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
        attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        *(uint64_t *)field = attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH
                                 ? pool->used
                                 : pool->reserved; /* only a reset */
    else
        memcpy(field, value, is_wide ? 8 : 4);
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    bool is_wide;
    CUresult r = tl_drv_pool_check(pool);
    if (r != CUDA_SUCCESS)
        return r;
    void *field = attribute_field(pool, attr, &is_wide);
    if (field == NULL || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    memcpy(value, field, is_wide ? 8 : 4);
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r == CUDA_SUCCESS && pool_out == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *pool_out = d->default_pool;
    return r;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r == CUDA_SUCCESS && pool == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    *pool = d->pool;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r == CUDA_SUCCESS)
        r = tl_drv_pool_check(pool);
    if (r != CUDA_SUCCESS)
        return r;
    if (pool->is_imported)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    d->pool = pool;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}
