/* Pools by the place of their memory: a device's own, the host's, and managed memory, whose place
 * is only where it prefers to be.  Each place has a pool that is there by default and a current
 * one, which are made when they are first asked for. */
#include "device/driver/device.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/memory.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct place {
    struct place *next;
    struct CUmemPoolHandle_st *first, *current;
};

static struct place *places TL_DRV_GUARDED;

static bool is_host(const CUmemLocation *l)
{
    return l->type == CU_MEM_LOCATION_TYPE_HOST || l->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static bool is_same(const CUmemLocation *a, const CUmemLocation *b)
{
    bool has_number = a->type == CU_MEM_LOCATION_TYPE_DEVICE ||
                      a->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    return a->type == b->type && (!has_number || a->id == b->id);
}

/* Node 0 is there, whether the kernel knows of nodes or not. */
static bool is_node(int number)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d", number);
    return number == 0 || (number > 0 && access(path, F_OK) == 0);
}

/* Whether there may be a pool of that type at that place, and on which device it is counted. */
static CUresult look_at(const CUmemLocation *l, CUmemAllocationType type, struct tl_drv_device **d)
{
    bool is_managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED && tl_drv_driver_version() >= 13000;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (l == NULL || (type != CU_MEM_ALLOCATION_TYPE_PINNED && !is_managed))
        return CUDA_ERROR_INVALID_VALUE;
    if (l->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return tl_drv_device(l->id, d);
    if (l->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && !is_node(l->id))
        return CUDA_ERROR_INVALID_VALUE;
    *d = &tl_drv.devices[0];
    return is_host(l) || (is_managed && l->type == CU_MEM_LOCATION_TYPE_NONE)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static enum tl_drv_memory kind_of(const CUmemLocation *l, CUmemAllocationType type)
{
    if (type == CU_MEM_ALLOCATION_TYPE_MANAGED)
        return TL_DRV_MANAGED;
    return is_host(l) ? TL_DRV_HOST_MEMORY : TL_DRV_DEVICE_MEMORY;
}

CUresult tl_drv_place_of(const CUmemLocation *l, CUmemAllocationType type, struct tl_drv_place *out)
{
    CUresult r = look_at(l, type, &out->device);
    if (r == CUDA_SUCCESS) {
        out->kind = kind_of(l, type);
        out->location = *l;
    }
    return r;
}

static struct CUmemPoolHandle_st *create(struct tl_drv_device *d, const CUmemLocation *l,
                                         CUmemAllocationType type) TL_DRV_LOCKED
{
    struct CUmemPoolHandle_st *p = tl_drv_pool_create(d);
    if (p == NULL)
        return NULL;
    p->location = *l;
    p->kind = kind_of(l, type);
    if (p->kind != TL_DRV_DEVICE_MEMORY)
        p->accessible = UINT32_MAX; /* the device reads all of the host's memory by itself */
    return p;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    struct tl_drv_device *d;
    if (pool == NULL || poolProps == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = look_at(&poolProps->location, poolProps->allocType, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if ((poolProps->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return tl_drv_unimplemented("cuMemPoolCreate with other handles than file descriptors");
    bool is_shareable = poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
    if (is_shareable && (poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST ||
                         poolProps->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    *pool = create(d, &poolProps->location, poolProps->allocType);
    if (*pool != NULL)
        (*pool)->is_shareable = is_shareable;
    tl_drv_unlock();
    return *pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- a place's pools -------------------------------------------------------------------------- */

/* Of host and managed memory; NULL if memory is short. */
static struct place *place_of(struct tl_drv_device *d, const CUmemLocation *l,
                              CUmemAllocationType type) TL_DRV_LOCKED
{
    bool is_managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    struct place *p = places;
    while (p != NULL &&
           (!is_same(&p->first->location, l) || (p->first->kind == TL_DRV_MANAGED) != is_managed))
        p = p->next;
    if (p != NULL)
        return p;
    p = calloc(1, sizeof *p);
    struct CUmemPoolHandle_st *first = p != NULL ? create(d, l, type) : NULL;
    if (first == NULL) {
        free(p);
        return NULL;
    }
    first->is_default = true;
    *p = (struct place){places, first, first};
    places = p;
    return p;
}

static bool is_devices_own(const CUmemLocation *l, CUmemAllocationType type)
{
    return l->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type)
{
    struct tl_drv_device *d;
    CUresult r = look_at(location, type, &d);
    if (r != CUDA_SUCCESS || is_devices_own(location, type))
        return r == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool_out, d->ordinal) : r;
    if (pool_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    const struct place *p = place_of(d, location, type);
    if (p != NULL)
        *pool_out = p->first;
    tl_drv_unlock();
    return p != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    struct tl_drv_device *d;
    CUresult r = look_at(location, type, &d);
    if (r != CUDA_SUCCESS || is_devices_own(location, type))
        return r == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, d->ordinal) : r;
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct place *p = place_of(d, location, type);
    if (p != NULL && p->current->is_destroyed)
        p->current = p->first;
    if (p != NULL)
        *pool = p->current;
    tl_drv_unlock();
    return p != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    struct tl_drv_device *d;
    CUresult r = look_at(location, type, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (pool == NULL || pool->magic != TL_DRV_POOL || !is_same(&pool->location, location) ||
        (pool->kind == TL_DRV_MANAGED) != (type == CU_MEM_ALLOCATION_TYPE_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    if (is_devices_own(location, type))
        return cuDeviceSetMemPool(d->ordinal, pool);
    tl_drv_lock();
    struct place *p = place_of(d, location, type);
    if (pool->is_destroyed)
        r = CUDA_ERROR_INVALID_VALUE;
    else if (p != NULL)
        p->current = pool;
    tl_drv_unlock();
    return p != NULL ? r : CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- who may use a pool's memory -------------------------------------------------------------- */

/* It is kept to be told.  All memory is one here, so that what is forbidden is not noticed. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    CUresult r = tl_drv_pool_check(pool);
    if (r == CUDA_SUCCESS && map == NULL && count > 0)
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
        struct tl_drv_device *d;
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            continue;
        r = tl_drv_device(map[i].location.id, &d);
        bool may = map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (r == CUDA_SUCCESS && !may && pool->kind == TL_DRV_DEVICE_MEMORY && d == pool->device)
            r = CUDA_ERROR_INVALID_VALUE; /* its own device always may */
        if (r != CUDA_SUCCESS)
            break;
        tl_drv_lock();
        pool->accessible = may ? pool->accessible | 1u << d->ordinal
                               : pool->accessible & ~(1u << d->ordinal);
        tl_drv_unlock();
    }
    return r;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_pool_check(memPool);
    if (r == CUDA_SUCCESS && (flags == NULL || location == NULL))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        r = tl_drv_device(location->id, &d);
    if (r != CUDA_SUCCESS)
        return r;
    bool may = location->type == CU_MEM_LOCATION_TYPE_DEVICE
                   ? (memPool->accessible >> location->id & 1) != 0
                   : memPool->kind != TL_DRV_DEVICE_MEMORY;
    *flags = may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
