/* Device memory whose pages can leave the device, where the policy says so (grant.is_paged; TGS's
 * transparent unified memory).
 *
 * Below the highest level every allocation becomes managed memory that prefers no place: its pages
 * go first when others need the room. A thread follows the grant: what is beyond memory_bytes is
 * sent to host memory before somebody has to wait for it, and comes back when there is room again.
 * At the highest level memory stays what it is; only what the device refuses becomes managed
 * memory, which prefers the device, so that nobody runs out of memory while the host has some.
 *
 *     ranges, oldest first    |#########|######....|..........|     # on the device: memory_bytes
 * altogether */
#include "intercept/capture/capture.h"
#include "tally/array.h"
#include "tally/thread.h"

#include "tally/check.h"
#include "tally/lock.h"

enum { LOOK_MS = 100 };
#define PIECE ((size_t)64 << 10) /* ranges are cut at multiples of it */

struct range {
    CUdeviceptr at;
    size_t bytes, on_device; /* the first so many, as far as we have a say */
    CUcontext context;
};

static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static struct {
    struct range *list; /* in the order of their coming */
    size_t n, cap;
    bool has_thread;
    CUcontext context; /* of the stream */
    CUstream stream;
} state TL_GUARDED_BY(lock);

/* The child has one thread: there is nobody to lock out. */
TL_UNCHECKED void tl_pages_forked(void)
{
    tl_mutex_init(&lock);
    state.n = 0; /* the memory is the parent's */
    state.has_thread = false;
    state.stream = NULL;
}

bool tl_pages_are_wanted(bool *is_high)
{
    struct tl_grant grant;
    if (tl_job.client == NULL)
        return false;
    tl_client_grant(tl_job.client, &grant);
    struct tl_client_memory memory;
    tl_client_memory(tl_job.client, &memory);
    /* who asks for a soft limit has pages at any level */
    *is_high = tl_client_level(tl_job.client) >= TL_LEVEL_HIGH && memory.soft == 0;
    return grant.is_paged;
}

/* --- following the grant ---------------------------------------------------------------------- */

/* A stream of our own in the range's context; false if there is none. */
static bool use_stream(CUcontext context) TL_REQUIRES(lock);
static bool use_stream(CUcontext context)
{
    if (TL_REAL(cuCtxSetCurrent)(context) != CUDA_SUCCESS)
        return false;
    if (state.stream != NULL && state.context == context)
        return true;
    state.stream = NULL; /* the old one stays: streams are few, and its context may be gone */
    state.context = context;
    return TL_REAL(cuStreamCreate)(&state.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

/* Sends pages of a range to where they belong, so that the first `wanted` bytes are on the
 * device. */
static void move(struct range *r, size_t wanted) TL_REQUIRES(lock);
static void move(struct range *r, size_t wanted)
{
    CUdevice device;
    TL_CHECK(wanted <= r->bytes && r->on_device <= r->bytes);
    if (wanted == r->on_device || !use_stream(r->context) ||
        TL_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return;
    size_t from = wanted < r->on_device ? wanted : r->on_device,
           to = wanted < r->on_device ? r->on_device : wanted;
    CUdevice place = wanted < r->on_device ? CU_DEVICE_CPU : device;
    if (TL_REAL(cuMemPrefetchAsync)(r->at + from, to - from, place, state.stream) == CUDA_SUCCESS)
        r->on_device = wanted;
}

static void follow(void)
{
    struct tl_grant grant;
    tl_client_grant(tl_job.client, &grant);
    tl_mutex_lock(&lock);
    /* A policy without a limit leaves all of it to the device. */
    size_t left = grant.is_paged && grant.memory_bytes != 0 ? grant.memory_bytes : SIZE_MAX;
    for (size_t i = 0; i < state.n; i++) {
        struct range *r = &state.list[i];
        size_t wanted = r->bytes <= left ? r->bytes : left / PIECE * PIECE;
        move(r, wanted);
        left -= wanted;
    }
    tl_mutex_unlock(&lock);
}

static void *follower(void *unused)
{
    (void)unused;
    for (;;) {
        uint32_t seen = tl_client_changes(tl_job.client);
        follow();
        tl_client_wait(tl_job.client, seen, (uint64_t)LOOK_MS * 1000000);
    }
    return NULL;
}

static void start_follower(void) TL_REQUIRES(lock);
static void start_follower(void)
{
    /* moving may fault pages in */
    static const struct tl_thread_kind kind = {.name = "tally-memory", .takes_faults = true};
    if (!state.has_thread)
        state.has_thread = tl_thread_start(NULL, &kind, follower, NULL) == 0;
}

/* --- memory ----------------------------------------------------------------------------------- */

static void remember(CUdeviceptr at, size_t bytes)
{
    CUcontext context = NULL;
    TL_REAL(cuCtxGetCurrent)(&context);
    tl_mutex_lock(&lock);
    /* without room for it, it stays where the driver puts it */
    if (TL_ARRAY_FIT(state.list, state.cap, state.n + 1))
        state.list[state.n++] = (struct range){at, bytes, bytes, context};
    start_follower();
    tl_mutex_unlock(&lock);
}

CUresult tl_pages_alloc(CUdeviceptr *at, size_t bytes, bool is_high)
{
    CUdevice device;
    CUresult r = TL_REAL(cuMemAllocManaged)(at, bytes, CU_MEM_ATTACH_GLOBAL);
    if (r != CUDA_SUCCESS)
        return r;
    if (TL_REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS)
        TL_REAL(cuMemAdvise)
    (*at, bytes, is_high ? CU_MEM_ADVISE_SET_PREFERRED_LOCATION : CU_MEM_ADVISE_SET_ACCESSED_BY,
     device);
    if (!is_high)
        remember(*at, bytes);
    return r;
}

bool tl_pages_forget(CUdeviceptr at)
{
    bool is_ours = false;
    tl_mutex_lock(&lock);
    for (size_t i = 0; i < state.n && !is_ours; i++)
        if (state.list[i].at == at) {
            is_ours = true;
            state.n--;
            for (size_t k = i; k < state.n; k++)
                state.list[k] = state.list[k + 1];
        }
    tl_mutex_unlock(&lock);
    return is_ours;
}
