/* Physical memory that is mapped by hand: it lives until its last handle is released and its last
 * mapping is gone, in whichever order. */
#include "intercept/memory/memory.h"

/* One step of it.  What frees is done under the lock of the account: otherwise another thread might
 * get the same number or address from the driver before it is known to be free. */
struct step {
    uint64_t at, bytes, handle;
    unsigned device;
    CUresult r;
};

static void create(struct tl_account *a, void *data)
{
    const struct step *s = data;
    if (tl_account_create(a, s->handle, s->bytes, s->device) < 0)
        tl_memory_lost(NULL, (struct tl_account_lost){s->bytes, s->device});
}

static void retain(struct tl_account *a, void *data)
{
    const struct step *s = data;
    tl_account_retain(a, s->handle, s->at);
}

static void release(struct tl_account *a, void *data)
{
    struct step *s = data;
    s->r = TL_REAL(cuMemRelease)(s->handle);
    if (s->r == CUDA_SUCCESS)
        tl_memory_lost(NULL, tl_account_release(a, s->handle));
}

static void map(struct tl_account *a, void *data)
{
    const struct step *s = data;
    (void)tl_account_map(a, s->at, s->bytes,
                         s->handle); /* without memory it goes with its handle */
}

static void unmap(struct tl_account *a, void *data)
{
    struct step *s = data;
    s->r = TL_REAL(cuMemUnmap)(s->at, s->bytes);
    if (s->r == CUDA_SUCCESS)
        tl_account_unmap(a, s->at, s->bytes, tl_memory_lost, NULL);
}

static CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t n,
                                 const CUmemAllocationProp *prop, unsigned long long flags)
{
    bool is_counted = handle != NULL && prop != NULL && n > 0 &&
                      prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (!is_counted)
        return TL_REAL(cuMemCreate)(handle, n, prop, flags);
    CUdevice device = prop->location.id;
    CUresult r = tl_memory_reserve(device, n);
    if (r != CUDA_SUCCESS)
        return r;
    r = TL_REAL(cuMemCreate)(handle, n, prop, flags);
    if (r != CUDA_SUCCESS) {
        tl_memory_unreserve(device, n);
        return r;
    }
    tl_memory_no_longer_pending(device, n);
    tl_memory_with_account(create, &(struct step){0, n, *handle, (unsigned)device, r});
    return r;
}

static CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct step s = {.handle = handle};
    tl_memory_with_account(release, &s);
    return s.r;
}

static CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *at)
{
    CUresult r = TL_REAL(cuMemRetainAllocationHandle)(handle, at);
    if (r == CUDA_SUCCESS)
        tl_memory_with_account(retain, &(struct step){.handle = *handle, .at = (uintptr_t)at});
    return r;
}

static CUresult hook_cuMemMap(CUdeviceptr at, size_t n, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult r = TL_REAL(cuMemMap)(at, n, offset, handle, flags);
    if (r == CUDA_SUCCESS)
        tl_memory_with_account(map, &(struct step){at, n, handle, 0, r});
    return r;
}

static CUresult hook_cuMemUnmap(CUdeviceptr at, size_t n)
{
    struct step s = {.at = at, .bytes = n};
    tl_memory_with_account(unmap, &s);
    return s.r;
}

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
const struct tl_hook tl_physical_hooks[] = {
    HOOK(cuMemCreate), HOOK(cuMemRelease), HOOK(cuMemRetainAllocationHandle), HOOK(cuMemMap), HOOK(cuMemUnmap),
    {NULL, NULL},
};
/* clang-format on */
