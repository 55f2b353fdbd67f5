/* Virtual memory management: reserved addresses, memory in files, and the one mapped over the
 * other. */
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/exec.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/memory.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"
#include "tally/check.h"
#include "tally/memfd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRANULARITY = 2 << 20 };

/* Physical memory: a file in memory.  Guarded by the driver's lock. */
struct physical {
    struct physical *next;
    uint64_t handle;
    int fd;
    size_t bytes;
    uint32_t refs; /* the handle's, and one per mapping */
    struct tl_drv_device *device;
    CUmemAllocationProp prop;
    bool is_charged;
};

struct mapping {
    struct mapping *next;
    uintptr_t base;
    size_t bytes;
    struct physical *memory;
    unsigned access;
};

struct reservation {
    struct reservation *next;
    uintptr_t base;
    size_t bytes;
};

static struct physical *memories;
static struct mapping *mappings;
static struct reservation *reservations;

static struct physical *find_physical(uint64_t handle)
{
    struct physical *p = memories;
    while (p != NULL && p->handle != handle)
        p = p->next;
    return p;
}

static void unref(struct physical *p)
{
    TL_CHECK(p->refs > 0);
    if (--p->refs > 0)
        return;
    for (struct physical **at = &memories; *at != NULL; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    close(p->fd);
    if (p->is_charged)
        tl_drv_exec_give(p->device, p->bytes);
    free(p);
}

/* --- reserving -------------------------------------------------------------------------------- */

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (ptr == NULL || size == 0 || size % TL_DRV_PAGE != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < GRANULARITY)
        alignment = GRANULARITY;
    struct reservation *v = malloc(sizeof *v);
    if (v == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (void)addr; /* a wish */
    uint8_t *p = mmap(NULL, size + alignment, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        free(v);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint8_t *base = p + (-(uintptr_t)p & (alignment - 1));
    if (base > p)
        munmap(p, (size_t)(base - p));
    if (p + alignment > base)
        munmap(base + size, (size_t)(p + alignment - base));
    tl_drv_lock();
    *v = (struct reservation){reservations, (uintptr_t)base, size};
    reservations = v;
    tl_drv_unlock();
    *ptr = (CUdeviceptr)base;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    for (struct reservation **at = &reservations; *at != NULL; at = &(*at)->next) {
        struct reservation *v = *at;
        if (v->base == ptr && v->bytes == size) {
            bool is_used = false;
            for (struct mapping *m = mappings; m != NULL && !is_used; m = m->next)
                is_used = m->base >= v->base && m->base < v->base + v->bytes;
            if (is_used)
                break;
            *at = v->next;
            munmap(tl_drv_pointer(v->base), v->bytes);
            free(v);
            r = CUDA_SUCCESS;
            break;
        }
    }
    tl_drv_unlock();
    return r;
}

/* --- memory ----------------------------------------------------------------------------------- */

static CUresult add_memory(int fd, size_t bytes, struct tl_drv_device *d,
                           const CUmemAllocationProp *prop, bool charged,
                           CUmemGenericAllocationHandle *handle)
{
    struct physical *p = calloc(1, sizeof *p);
    if (p == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *p = (struct physical){
        .fd = fd, .bytes = bytes, .refs = 1, .device = d, .prop = *prop, .is_charged = charged};
    tl_drv_lock();
    p->handle = tl_drv.next_id++;
    p->next = memories;
    memories = p;
    *handle = p->handle;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct tl_drv_device *d;
    if (handle == NULL || prop == NULL || size == 0 || size % TL_DRV_PAGE != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    bool is_host = prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    CUresult r = tl_drv_device(is_host ? 0 : prop->location.id, &d);
    if (r != CUDA_SUCCESS)
        return r;
    bool is_charged = !is_host;
    if (is_charged) {
        tl_drv_lock();
        is_charged = tl_drv_memory_charge(d, size);
        tl_drv_unlock();
        if (!is_charged)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    int fd = tl_memfd_create("tally-vmm", size);
    r = fd >= 0 ? add_memory(fd, size, d, prop, is_charged, handle) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        if (fd >= 0)
            close(fd);
        if (is_charged)
            tl_drv_exec_give(d, size);
    }
    return r;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    tl_drv_lock();
    struct physical *p = find_physical(handle);
    if (p != NULL)
        unref(p);
    tl_drv_unlock();
    return p != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Maps physical memory into a reservation, without access until cuMemSetAccess; each mapping is
 * an allocation and a reference. */
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    CUresult r = CUDA_SUCCESS;
    if (ptr % TL_DRV_PAGE != 0 || size == 0 || size % TL_DRV_PAGE != 0 ||
        offset % TL_DRV_PAGE != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct mapping *m = calloc(1, sizeof *m);
    struct tl_drv_alloc *a = calloc(1, sizeof *a);
    if (m == NULL || a == NULL) {
        free(m);
        free(a);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    tl_drv_lock();
    struct physical *p = find_physical(handle);
    bool is_reserved = false;
    for (struct reservation *v = reservations; v != NULL && !is_reserved; v = v->next)
        is_reserved = ptr >= v->base && ptr + size <= v->base + v->bytes;
    if (p == NULL || !is_reserved || offset > p->bytes || size > p->bytes - offset ||
        tl_drv_alloc_overlaps((uintptr_t)ptr, size) ||
        mmap(tl_drv_pointer(ptr), size, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, (off_t)offset) ==
            MAP_FAILED) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else {
        *a = (struct tl_drv_alloc){.base = (uintptr_t)ptr,
                                   .bytes = size,
                                   .mapped = size,
                                   .kind = TL_DRV_VIRTUAL,
                                   .is_internal = true,
                                   .ctx = tl_drv_current(),
                                   .device = p->device,
                                   .fd = -1};
        r = tl_drv_alloc_insert(a);
    }
    if (r == CUDA_SUCCESS) {
        *m = (struct mapping){.next = mappings, .base = (uintptr_t)ptr, .bytes = size, .memory = p};
        mappings = m;
        p->refs++;
    }
    tl_drv_unlock();
    if (r != CUDA_SUCCESS) {
        free(m);
        free(a);
    }
    return r;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    CUcontext ctx = tl_drv_current();
    if (ctx != NULL)
        tl_drv_context_drain(ctx);
    tl_drv_lock();
    for (struct mapping **at = &mappings; *at != NULL;) {
        struct mapping *m = *at;
        if (m->base < ptr || m->base + m->bytes > ptr + size) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        struct tl_drv_alloc *a = tl_drv_alloc_find(m->base);
        if (a != NULL && a->kind == TL_DRV_VIRTUAL) {
            tl_drv_alloc_remove(a);
            free(a);
        }
        /* The addresses stay reserved. */
        void *kept = mmap(tl_drv_pointer(m->base), m->bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        if (kept == MAP_FAILED)
            tl_drv_log("unmapped memory could not be reserved again");
        unref(m->memory);
        free(m);
        r = CUDA_SUCCESS;
    }
    tl_drv_unlock();
    return r;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    if (desc == NULL || count == 0)
        return r;
    /* All devices see one mapping: it allows what the most favoured of them may. */
    unsigned access = 0;
    for (size_t i = 0; i < count; i++)
        access = (unsigned)desc[i].flags > access ? (unsigned)desc[i].flags : access;
    int protection = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                     : access == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                  : PROT_NONE;
    tl_drv_lock();
    for (struct mapping *m = mappings; m != NULL; m = m->next) {
        if (m->base < ptr || m->base + m->bytes > ptr + size)
            continue;
        r = mprotect(tl_drv_pointer(m->base), m->bytes, protection) == 0 ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
        m->access = access;
        struct tl_drv_alloc *a = tl_drv_alloc_find(m->base);
        if (a != NULL && r == CUDA_SUCCESS)
            a->flags = access; /* for copies, which ask before they touch anything */
    }
    tl_drv_unlock();
    return r;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    if (flags == NULL || location == NULL)
        return r;
    tl_drv_lock();
    for (struct mapping *m = mappings; m != NULL; m = m->next) {
        if (ptr >= m->base && ptr < m->base + m->bytes) {
            *flags = m->access;
            r = CUDA_SUCCESS;
        }
    }
    tl_drv_unlock();
    return r;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    (void)option;
    if (granularity == NULL || prop == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    tl_drv_lock();
    struct physical *p = find_physical(handle);
    if (p != NULL && prop != NULL)
        *prop = p->prop;
    tl_drv_unlock();
    return p != NULL && prop != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    for (struct mapping *m = mappings; m != NULL && handle != NULL; m = m->next) {
        if ((uintptr_t)addr >= m->base && (uintptr_t)addr < m->base + m->bytes) {
            m->memory->refs++;
            *handle = m->memory->handle;
            r = CUDA_SUCCESS;
        }
    }
    tl_drv_unlock();
    return r;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags)
{
    if (shareableHandle == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return tl_drv_unimplemented("cuMemExportToShareableHandle to other than file descriptors");
    tl_drv_lock();
    struct physical *p = find_physical(handle);
    int fd = p != NULL ? fcntl(p->fd, F_DUPFD_CLOEXEC, 0) : -1;
    tl_drv_unlock();
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *(int *)shareableHandle = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    struct tl_drv_device *d;
    uint64_t bytes = 0;
    CUresult r = tl_drv_device(0, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (handle == NULL || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = fcntl((int)(intptr_t)osHandle, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 || tl_memfd_check(fd, &bytes) != 0) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    r = add_memory(fd, (size_t)bytes, d, &prop, false, handle);
    if (r != CUDA_SUCCESS)
        close(fd);
    return r;
}
