/* Memory with an address, arrays, and what a job is told of the device's size. */
#include "intercept/capture/capture.h"
#include "intercept/memory/memory.h"

/* Runs `call` if there is room for `bytes`, and counts what it made under `key`. */
#define ALLOCATE(kind, bytes, call, key)                                                           \
    do {                                                                                           \
        struct tl_memory_place place;                                                              \
        uint64_t taken = tl_account_round(bytes);                                                  \
        CUresult r;                                                                                \
        if (!tl_memory_here(&place))                                                               \
            return (call); /* which is the driver's to refuse */                                   \
        r = tl_memory_reserve(place.device, taken);                                                \
        if (r != CUDA_SUCCESS)                                                                     \
            return r;                                                                              \
        r = (call);                                                                                \
        if (r == CUDA_SUCCESS)                                                                     \
            tl_memory_got(kind, (uint64_t)(key), taken, &place);                                   \
        else                                                                                       \
            tl_memory_unreserve(place.device, taken);                                              \
        return r;                                                                                  \
    } while (0)

/* Runs `call`, which frees what is known as `key`. */
static CUresult freed(CUresult r, const struct tl_memory_gone *gone)
{
    if (r != CUDA_SUCCESS)
        tl_memory_stays(gone); /* it is still there */
    return r;
}

/* --- pointers --------------------------------------------------------------------------------- */

/* Device memory, or pages where that is wanted (intercept/capture/pages.c). */
static CUresult allocate(CUdeviceptr *at, size_t n)
{
    bool is_high = false, is_paged = tl_pages_are_wanted(&is_high);
    if (is_paged && !is_high)
        return tl_pages_alloc(at, n, false);
    CUresult r = TL_REAL(cuMemAlloc_v2)(at, n);
    return r == CUDA_ERROR_OUT_OF_MEMORY && is_paged ? tl_pages_alloc(at, n, true) : r;
}

static CUresult hook_cuMemAlloc_v2(CUdeviceptr *at, size_t n)
{
    if (at == NULL || n == 0)
        return TL_REAL(cuMemAlloc_v2)(at, n);
    ALLOCATE(TL_MEM_POINTER, n, allocate(at, n), *at);
}

enum { PITCH = 512 };

/* Rows of pages have the pitch that all drivers have. */
static CUresult allocate_rows(CUdeviceptr *at, size_t *pitch, size_t width, size_t height,
                              unsigned element)
{
    bool is_high;
    if (!tl_pages_are_wanted(&is_high))
        return TL_REAL(cuMemAllocPitch_v2)(at, pitch, width, height, element);
    size_t row = (width + PITCH - 1) / PITCH * PITCH;
    CUresult r = allocate(at, row * height);
    if (r == CUDA_SUCCESS)
        *pitch = row;
    return r;
}

static CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height,
                                        unsigned element)
{
    if (at == NULL || pitch == NULL || width == 0 || height == 0 || width > (size_t)1 << 40 ||
        height > ((size_t)1 << 46) / (width + PITCH) ||
        (element != 4 && element != 8 && element != 16))
        return TL_REAL(cuMemAllocPitch_v2)(at, pitch, width, height, element);
    ALLOCATE(TL_MEM_POINTER, (width + PITCH - 1) / PITCH * PITCH * height,
             allocate_rows(at, pitch, width, height, element), *at);
}

static CUresult hook_cuMemAllocManaged(CUdeviceptr *at, size_t n, unsigned flags)
{
    if (at == NULL || n == 0)
        return TL_REAL(cuMemAllocManaged)(at, n, flags);
    ALLOCATE(TL_MEM_POINTER, n, TL_REAL(cuMemAllocManaged)(at, n, flags), *at);
}

static CUresult hook_cuMemFree_v2(CUdeviceptr at)
{
    struct tl_memory_gone gone = tl_memory_goes(TL_MEM_POINTER, at);
    if (gone.lost.bytes == 0)
        gone = tl_memory_goes(TL_MEM_POOLED, at);
    tl_pages_forget(at);
    return freed(TL_REAL(cuMemFree_v2)(at), &gone);
}

/* --- arrays ----------------------------------------------------------------------------------- */

static unsigned bytes_of(CUarray_format format, unsigned channels)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * channels;
    default: /* of block-compressed and other formats this is more than they take */
        return 2 * channels;
    }
}

static CUresult hook_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
    if (array == NULL || d == NULL)
        return TL_REAL(cuArrayCreate_v2)(array, d);
    ALLOCATE(TL_MEM_ARRAY,
             tl_account_array(d->Width, d->Height, 0, bytes_of(d->Format, d->NumChannels), 1),
             TL_REAL(cuArrayCreate_v2)(array, d), (uintptr_t)*array);
}

/* Memory of these is mapped by hand, and counted there. */
static bool is_bare(unsigned flags)
{
    return (flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
}

static uint64_t bytes_of_3d(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
    /* layers do not become fewer from level to level */
    bool is_layered = (d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    unsigned element = bytes_of(d->Format, d->NumChannels);
    if (!is_layered)
        return tl_account_array(d->Width, d->Height, d->Depth, element, levels);
    uint64_t layer = tl_account_array(d->Width, d->Height, 0, element, levels), all;
    return __builtin_mul_overflow(layer, d->Depth, &all) ? UINT64_MAX : all;
}

static CUresult hook_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    if (array == NULL || d == NULL || is_bare(d->Flags))
        return TL_REAL(cuArray3DCreate_v2)(array, d);
    ALLOCATE(TL_MEM_ARRAY, bytes_of_3d(d, 1), TL_REAL(cuArray3DCreate_v2)(array, d),
             (uintptr_t)*array);
}

static CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray *array,
                                            const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
    if (array == NULL || d == NULL || is_bare(d->Flags))
        return TL_REAL(cuMipmappedArrayCreate)(array, d, levels);
    ALLOCATE(TL_MEM_ARRAY, bytes_of_3d(d, levels),
             TL_REAL(cuMipmappedArrayCreate)(array, d, levels), (uintptr_t)*array);
}

static CUresult hook_cuArrayDestroy(CUarray array)
{
    struct tl_memory_gone gone = tl_memory_goes(TL_MEM_ARRAY, (uintptr_t)array);
    return freed(TL_REAL(cuArrayDestroy)(array), &gone);
}

static CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    struct tl_memory_gone gone = tl_memory_goes(TL_MEM_ARRAY, (uintptr_t)array);
    return freed(TL_REAL(cuMipmappedArrayDestroy)(array), &gone);
}

/* --- what a job is told ----------------------------------------------------------------------- */

/* A job below the highest level whose pages may leave is told that what it may have is free: its
 * pages are, if need be, in host memory. */
static size_t free_for_pages(CUdevice device, size_t all)
{
    size_t spare = (size_t)1 << 30, held = tl_memory_total(device);
    spare = spare < all / 4 ? spare : all / 4;
    return all - spare > held ? all - spare - held : 0;
}

static CUresult hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    struct tl_memory_place place;
    size_t left, all;
    bool is_high;
    CUresult r = TL_REAL(cuMemGetInfo_v2)(&left, &all);
    if (r != CUDA_SUCCESS || !tl_memory_here(&place))
        return r;
    if (tl_pages_are_wanted(&is_high) && !is_high)
        left = free_for_pages(place.device, all);
    tl_memory_tell(place.device, &left, &all);
    if (free_bytes != NULL)
        *free_bytes = left;
    if (total != NULL)
        *total = all;
    return r;
}

static CUresult hook_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult r = TL_REAL(cuDeviceTotalMem_v2)(bytes, device);
    uint64_t limit = tl_memory_limit();
    if (r == CUDA_SUCCESS && limit != 0 && limit < *bytes)
        *bytes = limit;
    return r;
}

/* --- contexts --------------------------------------------------------------------------------- */

static CUresult hook_cuCtxDestroy_v2(CUcontext ctx)
{
    CUresult r = TL_REAL(cuCtxDestroy_v2)(ctx);
    if (r == CUDA_SUCCESS)
        tl_memory_context_gone(ctx);
    return r;
}

/* The handle of a device's primary context is only told to who retains it. */
static CUcontext primary_of(CUdevice device, int *is_active)
{
    unsigned flags;
    CUcontext ctx = NULL;
    *is_active = 0;
    if (TL_REAL(cuDevicePrimaryCtxGetState)(device, &flags, is_active) != CUDA_SUCCESS ||
        !*is_active || TL_REAL(cuDevicePrimaryCtxRetain)(&ctx, device) != CUDA_SUCCESS)
        return NULL;
    TL_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    return ctx;
}

#define PRIMARY(name)                                                                              \
    static CUresult hook_##name(CUdevice device)                                                   \
    {                                                                                              \
        int is_active;                                                                             \
        unsigned flags;                                                                            \
        CUcontext before = primary_of(device, &is_active);                                         \
        CUresult r = TL_REAL(name)(device);                                                        \
        if (before != NULL &&                                                                      \
            TL_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &is_active) == CUDA_SUCCESS &&     \
            !is_active)                                                                            \
            tl_memory_context_gone(before);                                                        \
        return r;                                                                                  \
    }
PRIMARY(cuDevicePrimaryCtxRelease_v2)
PRIMARY(cuDevicePrimaryCtxReset_v2)

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
const struct tl_hook tl_memory_hooks[] = {
    HOOK(cuMemAlloc_v2), HOOK(cuMemAllocPitch_v2), HOOK(cuMemAllocManaged), HOOK(cuMemFree_v2),
    HOOK(cuArrayCreate_v2), HOOK(cuArray3DCreate_v2), HOOK(cuMipmappedArrayCreate), HOOK(cuArrayDestroy),
    HOOK(cuMipmappedArrayDestroy), HOOK(cuMemGetInfo_v2), HOOK(cuDeviceTotalMem_v2), HOOK(cuCtxDestroy_v2),
    HOOK(cuDevicePrimaryCtxRelease_v2), HOOK(cuDevicePrimaryCtxReset_v2),
    {NULL, NULL},
};
/* clang-format on */
