/* Memory in the order of streams.  A pool keeps more than it gives out, and gives it up when it
 * likes; so under a limit what counts is what pools keep, which is looked at behind each
 * allocation. */
#include "intercept/capture/capture.h"
#include "intercept/memory/memory.h"

/* What is asked for, and how the driver is asked. */
struct request {
    CUdeviceptr *at;
    size_t bytes;
    CUmemoryPool pool; /* NULL: that of the device */
    CUstream stream;
    bool is_per_thread;
};

static CUresult ask(const struct request *q)
{
    if (q->pool != NULL)
        return q->is_per_thread
                   ? TL_REAL(cuMemAllocFromPoolAsync_ptsz)(q->at, q->bytes, q->pool, q->stream)
                   : TL_REAL(cuMemAllocFromPoolAsync)(q->at, q->bytes, q->pool, q->stream);
    return q->is_per_thread ? TL_REAL(cuMemAllocAsync_ptsz)(q->at, q->bytes, q->stream)
                            : TL_REAL(cuMemAllocAsync)(q->at, q->bytes, q->stream);
}

static void give_back(const struct request *q)
{
    if (q->is_per_thread)
        TL_REAL(cuMemFreeAsync_ptsz)(*q->at, q->stream);
    else
        TL_REAL(cuMemFreeAsync)(*q->at, q->stream);
}

/* A stream that is captured makes a node of its allocation. */
static bool is_capturing(const struct request *q)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult r = q->is_per_thread ? TL_REAL(cuStreamIsCapturing_ptsz)(q->stream, &status)
                                  : TL_REAL(cuStreamIsCapturing)(q->stream, &status);
    return r != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Whether the stream has done all that it was given. */
static bool is_idle(const struct request *q)
{
    return (q->is_per_thread ? TL_REAL(cuStreamQuery_ptsz)(q->stream)
                             : TL_REAL(cuStreamQuery)(q->stream)) == CUDA_SUCCESS;
}

/* Asks the driver, and gives back what goes beyond the limit even if pools keep nothing for
 * later. */
static CUresult ask_and_count(const struct request *q, struct tl_memory_fresh *fresh)
{
    CUresult r = ask(q);
    if (r != CUDA_SUCCESS)
        return r;
    fresh->key = *q->at;
    if (tl_rest_measure(fresh->place.device, fresh))
        return r;
    tl_rest_trim(fresh->place.device);
    if (tl_rest_measure(fresh->place.device, fresh))
        return r;
    give_back(q);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Under a limit.  The driver is asked first and what it then keeps is compared, so that memory
 * which a pool has anyway is never refused.  What could not fit even if pools kept nothing for
 * later, it is not asked for. */
static CUresult allocate_bounded(const struct request *q, const struct tl_memory_place *place)
{
    struct tl_memory_fresh fresh = {.bytes = tl_account_round(q->bytes), .place = *place};
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
    tl_rest_lock();
    (void)tl_rest_measure(place->device, NULL);
    if (!tl_memory_could_fit(place->device, fresh.bytes))
        goto out;
    r = ask_and_count(q, &fresh);
    /* A pool may have given out a larger piece than was asked for.  Without those it keeps, it
     * makes one that fits; but only what the stream has come to can be taken from it. */
    if (r == CUDA_ERROR_OUT_OF_MEMORY && is_idle(q)) {
        tl_rest_give_up(place->device);
        r = ask_and_count(q, &fresh);
    }
    if (r == CUDA_ERROR_OUT_OF_MEMORY)
        tl_rest_give_up(place->device);
out:
    tl_rest_unlock();
    return r;
}

static CUresult allocate(const struct request *q)
{
    struct tl_memory_place place;
    bool is_high, is_paged = tl_pages_are_wanted(&is_high) && !is_high;
    if (q->at == NULL || q->bytes == 0 || !tl_memory_here(&place) || tl_rest_is_elsewhere(q->pool))
        return ask(q);
    if (is_capturing(q))
        return tl_memory_limit() != 0 && q->bytes > tl_memory_limit() ? CUDA_ERROR_OUT_OF_MEMORY
                                                                      : ask(q);
    if (!is_paged && tl_memory_is_bounded(place.device))
        return allocate_bounded(q, &place);
    uint64_t bytes = tl_account_round(q->bytes);
    CUresult r = tl_memory_reserve(place.device, bytes);
    if (r != CUDA_SUCCESS)
        return r;
    /* Pages are there at once, which is earlier than the stream's order asks for. */
    r = is_paged ? tl_pages_alloc(q->at, q->bytes, false) : ask(q);
    if (r == CUDA_SUCCESS)
        tl_memory_got(is_paged ? TL_MEM_POINTER : TL_MEM_POOLED, *q->at, bytes, &place);
    else
        tl_memory_unreserve(place.device, bytes);
    return r;
}

#define ALLOC_ASYNC(name, is_per_thread)                                                           \
    static CUresult hook_##name(CUdeviceptr *at, size_t n, CUstream stream)                        \
    {                                                                                              \
        return allocate(&(struct request){at, n, NULL, stream, is_per_thread});                    \
    }
ALLOC_ASYNC(cuMemAllocAsync, false)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, true)

#define ALLOC_FROM_POOL(name, is_per_thread)                                                       \
    static CUresult hook_##name(CUdeviceptr *at, size_t n, CUmemoryPool pool, CUstream stream)     \
    {                                                                                              \
        return pool == NULL ? TL_REAL(name)(at, n, pool, stream)                                   \
                            : allocate(&(struct request){at, n, pool, stream, is_per_thread});     \
    }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, false)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, true)

/* Pages are not a pool's: they are freed when what the stream has been given so far is done. */
#define FREE_ASYNC(name, synchronize)                                                              \
    static CUresult hook_##name(CUdeviceptr at, CUstream stream)                                   \
    {                                                                                              \
        struct tl_memory_gone gone = tl_memory_goes(TL_MEM_POOLED, at);                            \
        if (gone.lost.bytes == 0)                                                                  \
            gone = tl_memory_goes(TL_MEM_POINTER, at);                                             \
        bool are_pages = tl_pages_forget(at);                                                      \
        CUresult r = are_pages ? TL_REAL(synchronize)(stream) : TL_REAL(name)(at, stream);         \
        if (are_pages && r == CUDA_SUCCESS)                                                        \
            r = TL_REAL(cuMemFree_v2)(at);                                                         \
        if (r != CUDA_SUCCESS)                                                                     \
            tl_memory_stays(&gone);                                                                \
        return r;                                                                                  \
    }
FREE_ASYNC(cuMemFreeAsync, cuStreamSynchronize)
FREE_ASYNC(cuMemFreeAsync_ptsz, cuStreamSynchronize_ptsz)

static CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    CUresult r = TL_REAL(cuMemPoolCreate)(pool, props);
    if (r == CUDA_SUCCESS)
        tl_rest_pool_made(*pool, props->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                                         props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED
                                     ? props->location.id
                                     : TL_REST_ELSEWHERE);
    return r;
}

static CUresult hook_cuMemPoolDestroy(CUmemoryPool pool)
{
    tl_rest_pool_gone(pool);
    return TL_REAL(cuMemPoolDestroy)(pool);
}

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
const struct tl_hook tl_pool_hooks[] = {
    HOOK(cuMemAllocAsync), HOOK(cuMemAllocAsync_ptsz), HOOK(cuMemAllocFromPoolAsync), HOOK(cuMemAllocFromPoolAsync_ptsz),
    HOOK(cuMemFreeAsync), HOOK(cuMemFreeAsync_ptsz), HOOK(cuMemPoolCreate), HOOK(cuMemPoolDestroy),
    {NULL, NULL},
};
/* clang-format on */
