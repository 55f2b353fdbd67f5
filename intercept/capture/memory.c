/* How much device memory the job holds, for tallyd (page.memory_bytes).  Sizes are kept by address;
 * memory that comes another way (arrays, graphs, other processes) is not counted. */
#include "intercept/capture/capture.h"
#include "intercept/capture/map.h"
#include "intercept/shim/internal.h"
#include "sched/pattern.h"
#include "tally/lock.h"

static struct tl_map sizes = TL_MAP_GUARDED;
static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static uint64_t held TL_GUARDED_BY(lock);
static struct tl_memory_use use TL_GUARDED_BY(lock); /* what of it persists */
static uint64_t seen_iterations TL_GUARDED_BY(lock);

/* The child has one thread: there is nobody to lock out. */
TL_UNCHECKED void tl_memory_forked(void)
{
    tl_mutex_init(&lock);
    tl_map_forked(&sizes);
    tl_pages_forked();
    held = 0; /* what the parent has is not the child's */
    use = (struct tl_memory_use){0};
    seen_iterations = 0;
}

/* What tallyd sees. */
static void publish(void) TL_REQUIRES(lock);
static void publish(void)
{
    if (tl_job.client == NULL)
        return;
    struct tl_client_page *page = tl_client_page(tl_job.client);
    atomic_store_explicit(&page->memory_bytes, held, memory_order_relaxed);
    if (use.iterations < 2) /* the first one is cut off where the pattern was recognised */
        return;
    atomic_store_explicit(&page->persistent_bytes, use.persistent, memory_order_relaxed);
    atomic_store_explicit(&page->ephemeral_bytes, use.ephemeral, memory_order_relaxed);
}

/* An iteration has ended since the last allocation or release: what is alive now outlives
 * iterations. */
static void notice_iteration(void) TL_REQUIRES(lock);
static void notice_iteration(void)
{
    uint64_t now = tl_job.client != NULL ? atomic_load(&tl_client_page(tl_job.client)->iterations)
                                         : 0;
    if (now != seen_iterations)
        tl_memory_iteration(&use);
    seen_iterations = now;
}

static CUresult got(CUresult r, uintptr_t key, size_t bytes)
{
    if (r != CUDA_SUCCESS || bytes == 0)
        return r;
    tl_mutex_lock(&lock);
    void *old = tl_map_find(&sizes, key); /* of memory that went without a word, with its context */
    notice_iteration();
    /* NOLINT(performance-no-int-to-ptr): a number */
    if (tl_map_put(&sizes, key, (void *)bytes) == 0) {
        held += bytes - (held >= (size_t)old ? (size_t)old : 0);
        tl_memory_freed(&use, (size_t)old);
        tl_memory_allocated(&use, bytes);
    }
    publish();
    tl_mutex_unlock(&lock);
    return r;
}

/* Before memory is freed, since another thread may get it at once: what it was. */
static size_t take(uintptr_t key)
{
    tl_mutex_lock(&lock);
    size_t bytes = (size_t)tl_map_find(&sizes, key);
    tl_map_put(&sizes, key, NULL);
    notice_iteration();
    held -= held >= bytes ? bytes : held;
    tl_memory_freed(&use, bytes);
    publish();
    tl_mutex_unlock(&lock);
    return bytes;
}

static CUresult freed(CUresult r, uintptr_t key, size_t bytes)
{
    if (r != CUDA_SUCCESS)
        got(CUDA_SUCCESS, key, bytes); /* it is still there */
    return r;
}

/* Device memory, or pages where the policy wants that (intercept/capture/pages.c). */
static CUresult allocate(CUdeviceptr *at, size_t n)
{
    bool is_high = false, is_paged = at != NULL && n > 0 && tl_pages_are_wanted(&is_high);
    if (is_paged && !is_high)
        return tl_pages_alloc(at, n, false);
    CUresult r = TL_REAL(cuMemAlloc_v2)(at, n);
    return r == CUDA_ERROR_OUT_OF_MEMORY && is_paged ? tl_pages_alloc(at, n, true) : r;
}

static CUresult hook_cuMemAlloc_v2(CUdeviceptr *at, size_t n)
{
    CUresult r = allocate(at, n);
    return r == CUDA_SUCCESS ? got(r, (uintptr_t)*at, n) : r;
}

static CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height,
                                        unsigned element)
{
    enum { PITCH = 512 };
    bool is_high;
    CUresult r;
    if (at != NULL && pitch != NULL && width > 0 && height > 0 && width < (size_t)1 << 40 &&
        height < ((size_t)1 << 46) / (width + PITCH) &&
        (element == 4 || element == 8 || element == 16) && tl_pages_are_wanted(&is_high)) {
        size_t row = (width + PITCH - 1) / PITCH * PITCH;
        r = allocate(at, row * height);
        if (r == CUDA_SUCCESS)
            *pitch = row;
    } else {
        r = TL_REAL(cuMemAllocPitch_v2)(at, pitch, width, height, element);
    }
    return r == CUDA_SUCCESS && at != NULL && pitch != NULL
               ? got(r, (uintptr_t)*at, *pitch * height)
               : r;
}

/* What a job below the highest level is told to be free is what it may have: its pages are, if need
 * be, in host memory. */
static CUresult hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    size_t left, all, spare = (size_t)1 << 30;
    bool is_high;
    CUresult r = TL_REAL(cuMemGetInfo_v2)(&left, &all);
    if (r != CUDA_SUCCESS)
        return r;
    if (tl_pages_are_wanted(&is_high) && !is_high) {
        tl_mutex_lock(&lock);
        spare = spare < all / 4 ? spare : all / 4;
        left = all - spare > held ? all - spare - held : 0;
        tl_mutex_unlock(&lock);
    }
    if (free_bytes != NULL)
        *free_bytes = left;
    if (total != NULL)
        *total = all;
    return r;
}

static CUresult hook_cuMemAllocManaged(CUdeviceptr *at, size_t n, unsigned flags)
{
    CUresult r = TL_REAL(cuMemAllocManaged)(at, n, flags);
    return r == CUDA_SUCCESS ? got(r, (uintptr_t)*at, n) : r;
}

/* A stream that is captured makes a node of its allocation, which cannot be pages. */
static bool wants_pages(CUstream stream, bool is_per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    bool is_high;
    if (!tl_pages_are_wanted(&is_high) || is_high)
        return false;
    CUresult r = is_per_thread ? TL_REAL(cuStreamIsCapturing_ptsz)(stream, &status)
                               : TL_REAL(cuStreamIsCapturing)(stream, &status);
    return r == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Pages are there at once, which is earlier than the stream's order asks for. */
#define ALLOC_ASYNC(name, is_per_thread)                                                           \
    static CUresult hook_##name(CUdeviceptr *at, size_t n, CUstream stream)                        \
    {                                                                                              \
        CUresult r = at != NULL && n > 0 && wants_pages(stream, is_per_thread)                     \
                         ? tl_pages_alloc(at, n, false)                                            \
                         : TL_REAL(name)(at, n, stream);                                           \
        return r == CUDA_SUCCESS && at != NULL ? got(r, (uintptr_t)*at, n) : r;                    \
    }
ALLOC_ASYNC(cuMemAllocAsync, false)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, true)

#define ALLOC_FROM_POOL(name, is_per_thread)                                                       \
    static CUresult hook_##name(CUdeviceptr *at, size_t n, CUmemoryPool pool, CUstream stream)     \
    {                                                                                              \
        CUresult r = at != NULL && n > 0 && wants_pages(stream, is_per_thread)                     \
                         ? tl_pages_alloc(at, n, false)                                            \
                         : TL_REAL(name)(at, n, pool, stream);                                     \
        return r == CUDA_SUCCESS && at != NULL ? got(r, (uintptr_t)*at, n) : r;                    \
    }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, false)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, true)

static CUresult hook_cuMemFree_v2(CUdeviceptr at)
{
    size_t bytes = take((uintptr_t)at);
    tl_pages_forget(at);
    return freed(TL_REAL(cuMemFree_v2)(at), (uintptr_t)at, bytes);
}

/* Pages are not a pool's: they are freed when what the stream has been given so far is done. */
#define FREE_ASYNC(name, synchronize)                                                              \
    static CUresult hook_##name(CUdeviceptr at, CUstream stream)                                   \
    {                                                                                              \
        size_t bytes = take((uintptr_t)at);                                                        \
        if (!tl_pages_forget(at))                                                                  \
            return freed(TL_REAL(name)(at, stream), (uintptr_t)at, bytes);                         \
        CUresult r = TL_REAL(synchronize)(stream);                                                 \
        return freed(r == CUDA_SUCCESS ? TL_REAL(cuMemFree_v2)(at) : r, (uintptr_t)at, bytes);     \
    }
FREE_ASYNC(cuMemFreeAsync, cuStreamSynchronize)
FREE_ASYNC(cuMemFreeAsync_ptsz, cuStreamSynchronize_ptsz)

/* Physical memory that is mapped by hand.  Its handles are small numbers: they get the upper half
 * of the keys. */
#define PHYSICAL(handle) ((uintptr_t)(handle) | (uintptr_t)1 << 63)

static CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t n,
                                 const CUmemAllocationProp *prop, unsigned long long flags)
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
    HOOK(cuMemFreeAsync_ptsz), HOOK(cuMemCreate), HOOK(cuMemRelease), HOOK(cuMemGetInfo_v2),
    {NULL, NULL},
};
/* clang-format on */
