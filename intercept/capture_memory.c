/* How much device memory the job holds, for tallyd (page.memory_bytes).  Sizes are kept by address; memory that comes another way
 * (arrays, graphs, other processes) is not counted. */
#include "intercept/capture_map.h"
#include "intercept/shim_internal.h"

static struct tl_map sizes = TL_MAP_GUARDED;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t held; /* under the lock */

void tl_memory_forked(void)
{
    pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    lock = unlocked;
    tl_map_forked(&sizes);
    held = 0; /* what the parent has is not the child's */
}

static void publish(void)
{
    struct tl_client *client = tl_job.client;
    if (client != NULL)
        atomic_store_explicit(&tl_client_page(client)->memory_bytes, held, memory_order_relaxed);
}

static CUresult got(CUresult r, uintptr_t key, size_t bytes)
{
    if (r != CUDA_SUCCESS || bytes == 0)
        return r;
    pthread_mutex_lock(&lock);
    void *old = tl_map_find(&sizes, key);            /* of memory that went without a word, with its context */
    if (tl_map_put(&sizes, key, (void *)bytes) == 0) /* NOLINT(performance-no-int-to-ptr): a number */
        held += bytes - (held >= (size_t)old ? (size_t)old : 0);
    publish();
    pthread_mutex_unlock(&lock);
    return r;
}

/* Before memory is freed, since another thread may get it at once: what it was. */
static size_t take(uintptr_t key)
{
    pthread_mutex_lock(&lock);
    size_t bytes = (size_t)tl_map_find(&sizes, key);
    tl_map_put(&sizes, key, NULL);
    held -= held >= bytes ? bytes : held;
    publish();
    pthread_mutex_unlock(&lock);
    return bytes;
}

static CUresult freed(CUresult r, uintptr_t key, size_t bytes)
{
    if (r != CUDA_SUCCESS)
        got(CUDA_SUCCESS, key, bytes); /* it is still there */
    return r;
}

static CUresult hook_cuMemAlloc_v2(CUdeviceptr *at, size_t n)
{
    CUresult r = TL_REAL(cuMemAlloc_v2)(at, n);
    return r == CUDA_SUCCESS ? got(r, (uintptr_t)*at, n) : r;
}

static CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned element)
{
    CUresult r = TL_REAL(cuMemAllocPitch_v2)(at, pitch, width, height, element);
    return r == CUDA_SUCCESS ? got(r, (uintptr_t)*at, *pitch * height) : r;
}

static CUresult hook_cuMemAllocManaged(CUdeviceptr *at, size_t n, unsigned flags)
{
    CUresult r = TL_REAL(cuMemAllocManaged)(at, n, flags);
    return r == CUDA_SUCCESS ? got(r, (uintptr_t)*at, n) : r;
}

#define ALLOC_ASYNC(name)                                                                                              \
    static CUresult hook_##name(CUdeviceptr *at, size_t n, CUstream stream)                                            \
    {                                                                                                                  \
        CUresult r = TL_REAL(name)(at, n, stream);                                                                     \
        return r == CUDA_SUCCESS ? got(r, (uintptr_t)*at, n) : r;                                                      \
    }
ALLOC_ASYNC(cuMemAllocAsync)
ALLOC_ASYNC(cuMemAllocAsync_ptsz)

#define ALLOC_FROM_POOL(name)                                                                                          \
    static CUresult hook_##name(CUdeviceptr *at, size_t n, CUmemoryPool pool, CUstream stream)                         \
    {                                                                                                                  \
        CUresult r = TL_REAL(name)(at, n, pool, stream);                                                               \
        return r == CUDA_SUCCESS ? got(r, (uintptr_t)*at, n) : r;                                                      \
    }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz)

static CUresult hook_cuMemFree_v2(CUdeviceptr at)
{
    size_t bytes = take((uintptr_t)at);
    return freed(TL_REAL(cuMemFree_v2)(at), (uintptr_t)at, bytes);
}

#define FREE_ASYNC(name)                                                                                               \
    static CUresult hook_##name(CUdeviceptr at, CUstream stream)                                                       \
    {                                                                                                                  \
        size_t bytes = take((uintptr_t)at);                                                                            \
        return freed(TL_REAL(name)(at, stream), (uintptr_t)at, bytes);                                                 \
    }
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)

/* Physical memory that is mapped by hand.  Its handles are small numbers: they get the upper half of the keys. */
#define PHYSICAL(handle) ((uintptr_t)(handle) | (uintptr_t)1 << 63)

static CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t n, const CUmemAllocationProp *prop,
                                 unsigned long long flags)
{
    CUresult r = TL_REAL(cuMemCreate)(handle, n, prop, flags);
    return r == CUDA_SUCCESS ? got(r, PHYSICAL(*handle), n) : r;
}

static CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    size_t bytes = take(PHYSICAL(handle));
    return freed(TL_REAL(cuMemRelease)(handle), PHYSICAL(handle), bytes);
}

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
const struct tl_hook tl_memory_hooks[] = {
    HOOK(cuMemAlloc_v2), HOOK(cuMemAllocPitch_v2), HOOK(cuMemAllocManaged), HOOK(cuMemAllocAsync), HOOK(cuMemAllocAsync_ptsz),
    HOOK(cuMemAllocFromPoolAsync), HOOK(cuMemAllocFromPoolAsync_ptsz), HOOK(cuMemFree_v2), HOOK(cuMemFreeAsync),
    HOOK(cuMemFreeAsync_ptsz), HOOK(cuMemCreate), HOOK(cuMemRelease),
    {NULL, NULL},
};
/* clang-format on */
