/* Events: an operation that was recorded, and the time at which it was done. */
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/op.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"
#include "device/driver/work.h"
#include "tally/memfd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* --- between processes ------------------------------------------------------------------------ */

static bool shared_is_done(const struct tl_drv_shared_event *e)
{
    uint64_t issued = atomic_load(&e->issued);
    return atomic_load(&e->completed) >= issued;
}

static struct tl_drv_shared_event *map_shared(int fd)
{
    uint64_t bytes = 0;
    if (tl_memfd_check(fd, &bytes) < 0 || bytes != sizeof(struct tl_drv_shared_event))
        return NULL;
    void *p = mmap(NULL, sizeof(struct tl_drv_shared_event), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                   0);
    return p != MAP_FAILED ? p : NULL;
}

static int make_shared(struct CUevent_st *e)
{
    int fd = tl_memfd_create("tally-event", sizeof(struct tl_drv_shared_event));
    if (fd < 0)
        return -1;
    e->shared = map_shared(fd);
    if (e->shared == NULL) {
        close(fd);
        return -1;
    }
    e->shared_fd = fd;
    return 0;
}

/* What a CUipcEventHandle holds; the other side opens it through /proc, so the kernel decides who
 * may. */
struct ipc_handle {
    char magic[8];
    int32_t pid, fd;
};
_Static_assert(sizeof(struct ipc_handle) <= sizeof(CUipcEventHandle), "has to fit");

static CUresult check(CUevent e)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (e == NULL || e->magic != TL_DRV_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    return tl_drv_context_check(e->ctx);
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (phEvent == NULL || (Flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUevent_st *e = calloc(1, sizeof *e);
    if (e == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->magic = TL_DRV_EVENT;
    e->flags = Flags;
    e->ctx = ctx;
    e->shared_fd = -1;
    if ((Flags & CU_EVENT_INTERPROCESS) != 0 && make_shared(e) != 0) {
        free(e);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *phEvent = e;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (hEvent == NULL || hEvent->magic != TL_DRV_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    tl_drv_lock();
    tl_drv_op_unref(hEvent->op);
    tl_drv_capture_forget_event(hEvent);
    hEvent->magic = TL_DRV_DEAD;
    tl_drv_unlock();
    if (hEvent->shared != NULL) {
        tl_drv_context_drain(hEvent->ctx); /* operations under way still write and read it */
        munmap(hEvent->shared, sizeof *hEvent->shared);
    }
    if (hEvent->shared_fd >= 0)
        close(hEvent->shared_fd);
    free(hEvent);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent hEvent)
{
    return cuEventDestroy_v2(hEvent);
}

/* The operation that is the event's record from now on, or NULL. */
static struct tl_drv_op *new_record(struct CUevent_st *e, struct CUctx_st *ctx) TL_DRV_LOCKED
{
    struct tl_drv_work work = {.kind = TL_DRV_EMPTY};
    if (e->shared != NULL)
        work = (struct tl_drv_work){.kind = TL_DRV_MEMOP,
                                    .memop = {.address = (void *)&e->shared->completed,
                                              .value = atomic_fetch_add(&e->shared->issued, 1) + 1,
                                              .is_wide = true}};
    struct tl_drv_op *op = tl_drv_op_create(ctx, &work);
    if (op == NULL)
        return NULL;
    tl_drv_capture_forget_event(e);
    tl_drv_op_unref(e->op);
    e->op = op; /* the creator's reference */
    return op;
}

/* In a capture the event marks a place of the graph, and nothing runs; an external one becomes a
 * node instead, and is recorded each time the graph runs.  Otherwise the event stands for a new
 * operation of the stream, and what it stood for before is forgotten. */
CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    struct CUstream_st *s;
    CUresult r = check(hEvent);
    if (r == CUDA_SUCCESS)
        r = tl_drv_stream(hStream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (s->ctx->home != hEvent->ctx->home || (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    tl_drv_lock();
    r = tl_drv_capture_legacy(s);
    if (r != CUDA_SUCCESS) {
        tl_drv_unlock();
        return r;
    }
    if (tl_drv_is_capturing(s)) {
        if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0)
            r = tl_drv_capture_add(s,
                                   &(struct tl_drv_work){.kind = TL_DRV_RECORD, .event = hEvent});
        else
            tl_drv_capture_record(s, hEvent);
        tl_drv_unlock();
        return r;
    }
    struct tl_drv_op *op = new_record(hEvent, s->ctx);
    if (op == NULL) {
        tl_drv_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    tl_drv_op_order(op, s);
    tl_drv_op_start_unlock(op);
    return CUDA_SUCCESS;
}

CUresult tl_drv_event_record_context(CUevent e, struct CUctx_st *ctx)
{
    CUresult r = check(e);
    if (r != CUDA_SUCCESS)
        return r;
    if (ctx->home != e->ctx->home)
        return CUDA_ERROR_INVALID_HANDLE;
    tl_drv_lock();
    struct tl_drv_op *op = new_record(e, ctx);
    if (op == NULL) {
        tl_drv_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (struct CUstream_st *s = ctx->streams; s != NULL; s = s->next)
        tl_drv_op_after(op, s->tail);
    tl_drv_op_start_unlock(op);
    return CUDA_SUCCESS;
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    CUresult r = tl_drv_context_check(hCtx);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    bool is_refused = false;
    for (const struct CUstream_st *s = hCtx->streams; s != NULL; s = s->next)
        is_refused |= tl_drv_is_capturing(s);
    tl_drv_capture_spoil_context(hCtx);
    tl_drv_unlock();
    return is_refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                      : tl_drv_event_record_context(hEvent, hCtx);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    return cuEventRecordWithFlags(hEvent, hStream, 0);
}

CUresult cuEventQuery(CUevent hEvent)
{
    CUresult r = check(hEvent);
    if (r == CUDA_SUCCESS)
        r = tl_drv_capture_permit();
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    bool is_captured = hEvent->capture != NULL;
    tl_drv_capture_spoil(tl_drv_capture_of(hEvent));
    bool is_done = tl_drv_op_is_done(hEvent->op) &&
                   (hEvent->shared == NULL || shared_is_done(hEvent->shared));
    tl_drv_unlock();
    if (is_captured)
        return CUDA_ERROR_CAPTURED_EVENT;
    return is_done ? tl_drv_context_check(hEvent->ctx) : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    CUresult r = check(hEvent);
    if (r == CUDA_SUCCESS)
        r = tl_drv_capture_permit();
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct tl_drv_op *op = hEvent->op;
    if (hEvent->capture != NULL) {
        tl_drv_capture_spoil(tl_drv_capture_of(hEvent));
        tl_drv_unlock();
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (op != NULL && !tl_drv_op_is_done(op)) {
        op->refs++;
        tl_drv_unlock();
        tl_drv_op_wait(op);
        tl_drv_lock();
        tl_drv_op_unref(op);
    }
    tl_drv_unlock();
    if (hEvent->shared != NULL) {
        struct timespec pause = {0, 20000};
        uint64_t issued = atomic_load(&hEvent->shared->issued);
        while (atomic_load(&hEvent->shared->completed) < issued)
            nanosleep(&pause, NULL);
    }
    return tl_drv_context_check(hEvent->ctx);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    CUresult r = check(hStart);
    if (r == CUDA_SUCCESS)
        r = check(hEnd);
    if (r != CUDA_SUCCESS)
        return r;
    if (pMilliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    if (hStart->op == NULL || hEnd->op == NULL ||
        ((hStart->flags | hEnd->flags) & CU_EVENT_DISABLE_TIMING) != 0)
        r = CUDA_ERROR_INVALID_HANDLE;
    else if (!tl_drv_op_is_done(hStart->op) || !tl_drv_op_is_done(hEnd->op))
        r = CUDA_ERROR_NOT_READY;
    else
        *pMilliseconds = (float)((double)(int64_t)(hEnd->op->done_ns - hStart->op->done_ns) * 1e-6);
    tl_drv_unlock();
    return r;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

CUresult tl_drv_event_wait(struct CUstream_st *s, struct CUevent_st *e)
{
    CUresult r = check(e);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct tl_drv_work work = {.kind = TL_DRV_EMPTY};
    if (tl_drv_op_is_done(e->op) && (e->shared == NULL || shared_is_done(e->shared))) {
        tl_drv_unlock();
        return CUDA_SUCCESS;
    }
    if (e->shared != NULL)
        work = (struct tl_drv_work){.kind = TL_DRV_MEMOP,
                                    .memop = {.address = (void *)&e->shared->completed,
                                              .value = atomic_load(&e->shared->issued),
                                              .flags = CU_STREAM_WAIT_VALUE_GEQ,
                                              .is_wait = true,
                                              .is_wide = true}};
    struct tl_drv_op *op = tl_drv_op_create(s->ctx, &work);
    if (op == NULL) {
        tl_drv_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    tl_drv_op_after(op, e->op);
    tl_drv_op_order(op, s);
    op->refs--; /* its own keeps it */
    tl_drv_op_start_unlock(op);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r == CUDA_SUCCESS)
        r = check(hEvent);
    if (r != CUDA_SUCCESS)
        return r;
    if ((Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    r = tl_drv_capture_legacy(s);
    if (r != CUDA_SUCCESS) {
        tl_drv_unlock();
        return r;
    }
    if (tl_drv_is_capturing(s) || hEvent->capture != NULL) {
        if ((Flags & CU_EVENT_WAIT_EXTERNAL) != 0 && tl_drv_is_capturing(s))
            r = tl_drv_capture_add(s, &(struct tl_drv_work){.kind = TL_DRV_WAIT, .event = hEvent});
        else
            r = tl_drv_capture_wait(s, hEvent);
        tl_drv_unlock();
        return r;
    }
    tl_drv_unlock();
    return tl_drv_event_wait(s, hEvent);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    CUresult r = check(event);
    if (r != CUDA_SUCCESS)
        return r;
    if (pHandle == NULL || event->shared == NULL || event->shared_fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct ipc_handle h = {"tallyevt", getpid(), event->shared_fd};
    memset(pHandle, 0, sizeof *pHandle);
    memcpy(pHandle, &h, sizeof h);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    struct CUctx_st *ctx;
    struct ipc_handle h;
    char path[64];
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    memcpy(&h, &handle, sizeof h);
    if (phEvent == NULL || memcmp(h.magic, "tallyevt", 8) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    struct CUevent_st *e = fd >= 0 ? calloc(1, sizeof *e) : NULL;
    if (e != NULL)
        e->shared = map_shared(fd);
    if (fd >= 0)
        close(fd);
    if (e == NULL || e->shared == NULL) {
        free(e);
        return CUDA_ERROR_MAP_FAILED;
    }
    e->magic = TL_DRV_EVENT;
    e->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    e->ctx = ctx;
    e->shared_fd = -1;
    *phEvent = e;
    return CUDA_SUCCESS;
}
