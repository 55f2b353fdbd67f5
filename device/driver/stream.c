/* Streams: creation, the three default ones, waiting, attributes, and the small things that can
 * stand in them. */
#include "device/driver/stream.h"
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/exec.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/memory.h"
#include "device/driver/op.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"
#include "device/driver/work.h"
#include "tally/check.h"

#include <stdlib.h>
#include <string.h>

/* --- which stream ----------------------------------------------------------------------------- */

struct CUstream_st *tl_drv_stream_create(struct CUctx_st *ctx, unsigned flags, int priority)
{
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->magic = TL_DRV_STREAM;
    s->flags = flags;
    s->ctx = ctx;
    s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    s->id = tl_drv.next_id++;
    s->tail = ctx->gate;
    if (s->tail != NULL)
        s->tail->refs++;
    s->next = ctx->streams;
    ctx->streams = s;
    return s;
}

/* A thread's default streams, one per context it used.  Freed when the thread ends. */
struct own_stream {
    struct own_stream *next;
    struct CUstream_st *stream;
};
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void unlink_stream(struct CUstream_st *s) TL_DRV_LOCKED
{
    struct CUstream_st **at = &s->ctx->streams;
    while (*at != s) {
        TL_CHECK(*at != NULL); /* all streams are in their context's list */
        at = &(*at)->next;
    }
    *at = s->next;
}

/* Operations that are under way keep what they need themselves; the legacy stream still has to wait
 * for them. */
static void retire(struct CUstream_st *s) TL_DRV_LOCKED
{
    TL_CHECK(s->magic == TL_DRV_STREAM && !s->is_legacy);
    if (!tl_drv_op_is_done(s->tail) && (s->flags & CU_STREAM_NON_BLOCKING) == 0) {
        struct tl_drv_op *op = tl_drv_op_create(s->ctx,
                                                &(struct tl_drv_work){.kind = TL_DRV_EMPTY});
        if (op != NULL) {
            tl_drv_op_after(op, s->tail);
            tl_drv_op_after(op, s->ctx->legacy->tail);
            tl_drv_op_unref(s->ctx->legacy->tail);
            s->ctx->legacy->tail = op;
            TL_CHECK(op->waits > 1);
            op->waits--; /* it has a predecessor, so it does not run before that */
        }
    }
    unlink_stream(s);
    tl_drv_op_unref(s->tail);
    free((void *)s->capture_tail);
    free(s->capture_edges);
    s->magic = TL_DRV_DEAD;
    free(s);
}

static void end_thread(void *list)
{
    struct own_stream *own = list;
    tl_drv_lock();
    while (own != NULL) {
        struct own_stream *next = own->next;
        retire(own->stream);
        free(own);
        own = next;
    }
    tl_drv_unlock();
}

static void make_key(void)
{
    pthread_key_create(&own_key, end_thread);
}

static struct CUstream_st *per_thread(struct CUctx_st *ctx)
{
    pthread_once(&own_once, make_key);
    struct own_stream *first = pthread_getspecific(own_key);
    for (struct own_stream *o = first; o != NULL; o = o->next)
        if (o->stream->ctx == ctx)
            return o->stream;
    struct own_stream *own = malloc(sizeof *own);
    if (own == NULL)
        return NULL;
    tl_drv_lock();
    own->stream = tl_drv_stream_create(ctx, CU_STREAM_DEFAULT, 0);
    if (own->stream != NULL)
        own->stream->is_per_thread = true;
    tl_drv_unlock();
    if (own->stream == NULL) {
        free(own);
        return NULL;
    }
    own->next = first;
    pthread_setspecific(own_key, own);
    return own->stream;
}

CUresult tl_drv_stream(CUstream handle, struct CUstream_st **out)
{
    struct CUctx_st *ctx;
    CUresult r;
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        r = tl_drv_enter(&ctx);
        if (r != CUDA_SUCCESS)
            return r;
        bool own = handle == CU_STREAM_PER_THREAD || (handle == NULL && tl_drv_is_per_thread());
        *out = own ? per_thread(ctx) : ctx->legacy;
        return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (handle->magic != TL_DRV_STREAM)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = handle;
    return tl_drv_context_check(handle->ctx);
}

/* --- waiting ---------------------------------------------------------------------------------- */

static CUresult after_wait(struct CUctx_st *ctx)
{
    tl_drv_exec_flush(ctx->device);
    return tl_drv_context_error(ctx);
}

/* Waits for its last operation; the legacy stream also for all blocking ones.  The error of the
 * context afterwards. */
CUresult tl_drv_stream_wait(struct CUstream_st *s)
{
    struct CUctx_st *ctx = s->ctx;
    tl_drv_lock();
    struct tl_drv_op *op = s->tail;
    if (s->is_legacy) { /* its end is also that of the blocking streams */
        bool is_idle = true;
        for (struct CUstream_st *o = ctx->streams; o != NULL && is_idle; o = o->next)
            is_idle = o == s || (o->flags & CU_STREAM_NON_BLOCKING) != 0 ||
                      tl_drv_op_is_done(o->tail);
        if (!is_idle) {
            op = tl_drv_op_create(ctx, &(struct tl_drv_work){.kind = TL_DRV_EMPTY});
            if (op == NULL) {
                tl_drv_unlock();
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            tl_drv_op_order(op, s);
            tl_drv_op_start_unlock(op);
            tl_drv_op_wait(op);
            tl_drv_lock();
            tl_drv_op_unref(op);
            tl_drv_unlock();
            return after_wait(ctx);
        }
    }
    if (!tl_drv_op_is_done(op)) {
        op->refs++;
        tl_drv_unlock();
        tl_drv_op_wait(op);
        tl_drv_lock();
        tl_drv_op_unref(op);
    }
    tl_drv_unlock();
    return after_wait(ctx);
}

static bool has_capture(const struct CUctx_st *ctx) TL_DRV_LOCKED
{
    for (const struct CUstream_st *s = ctx->streams; s != NULL; s = s->next)
        if (tl_drv_is_capturing(s))
            return true;
    return false;
}

static void come_after(struct tl_drv_op *op, const struct CUctx_st *ctx) TL_DRV_LOCKED
{
    for (struct CUstream_st *s = ctx->streams; s != NULL; s = s->next)
        tl_drv_op_after(op, s->tail);
}

/* Of a primary context, its green contexts are parts. */
CUresult tl_drv_context_wait(struct CUctx_st *ctx)
{
    struct CUctx_st *part;
    tl_drv_lock();
    bool is_refused = has_capture(ctx);
    tl_drv_capture_spoil_context(ctx);
    struct CUgreenCtx_st *green = ctx->is_primary ? ctx->device->greens : NULL;
    while ((part = tl_drv_green_next(&green)) != NULL) {
        is_refused |= has_capture(part);
        tl_drv_capture_spoil_context(part);
    }
    tl_drv_unlock();
    return is_refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : tl_drv_context_drain(ctx);
}

CUresult tl_drv_context_drain(struct CUctx_st *ctx)
{
    struct tl_drv_op *join;
    struct CUctx_st *part;
    tl_drv_lock();
    join = tl_drv_op_create(ctx, &(struct tl_drv_work){.kind = TL_DRV_EMPTY});
    if (join == NULL) {
        tl_drv_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    come_after(join, ctx);
    struct CUgreenCtx_st *green = ctx->is_primary ? ctx->device->greens : NULL;
    while ((part = tl_drv_green_next(&green)) != NULL)
        come_after(join, part);
    tl_drv_op_start_unlock(join);
    tl_drv_op_wait(join);
    tl_drv_lock();
    tl_drv_op_unref(join);
    tl_drv_unlock();
    return after_wait(ctx);
}

void tl_drv_context_may_drain(struct CUctx_st *ctx)
{
    if (tl_drv_profile()->is_strict)
        tl_drv_context_drain(ctx);
}

/* --- the calls -------------------------------------------------------------------------------- */

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (phStream == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    *phStream = tl_drv_stream_create(ctx, flags, priority);
    tl_drv_unlock();
    return *phStream != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (hStream == NULL || hStream == CU_STREAM_LEGACY || hStream == CU_STREAM_PER_THREAD ||
        hStream->magic != TL_DRV_STREAM)
        return CUDA_ERROR_INVALID_HANDLE;
    tl_drv_lock();
    retire(hStream);
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream hStream)
{
    return cuStreamDestroy_v2(hStream);
}

/* Whether the stream can be waited for or asked: not while it is captured. */
static CUresult may_ask(struct CUstream_st *s) TL_DRV_UNLOCKED
{
    tl_drv_lock();
    CUresult r = tl_drv_capture_legacy(s);
    if (r == CUDA_SUCCESS && tl_drv_is_capturing(s)) {
        tl_drv_capture_spoil(s->capture);
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    tl_drv_unlock();
    return r;
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    r = may_ask(s);
    return r == CUDA_SUCCESS ? tl_drv_stream_wait(s) : r;
}

CUresult cuStreamQuery(CUstream hStream)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    r = may_ask(s);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    bool is_done = tl_drv_op_is_done(s->tail);
    if (s->is_legacy)
        for (struct CUstream_st *o = s->ctx->streams; o != NULL && is_done; o = o->next)
            is_done = (o->flags & CU_STREAM_NON_BLOCKING) != 0 || tl_drv_op_is_done(o->tail);
    tl_drv_unlock();
    return is_done ? tl_drv_context_check(s->ctx) : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r == CUDA_SUCCESS && priority == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *priority = s->priority;
    return r;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r == CUDA_SUCCESS && flags == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *flags = s->flags;
    return r;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r == CUDA_SUCCESS && streamId == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *streamId = s->id;
    return r;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r == CUDA_SUCCESS && device == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *device = s->ctx->device->ordinal;
    return r;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r == CUDA_SUCCESS && pctx == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *pctx = s->ctx;
    return r;
}

/* One of the two is NULL. */
CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    CUcontext ctx;
    CUresult r = cuStreamGetCtx(hStream, &ctx);
    if (r == CUDA_SUCCESS && (pCtx == NULL || pGreenCtx == NULL))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS) {
        *pCtx = ctx->green == NULL ? ctx : NULL;
        *pGreenCtx = ctx->green;
    }
    return r;
}

/* --- attributes ------------------------------------------------------------------------------- */

static CUresult attribute_slot(CUstream handle, CUstreamAttrID attr, struct CUstream_st **s,
                               CUstreamAttrValue **slot)
{
    CUresult r = tl_drv_stream(handle, s);
    if (r != CUDA_SUCCESS)
        return r;
    switch (attr) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        *slot = &(*s)->attributes[0];
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        *slot = &(*s)->attributes[1];
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        *slot = &(*s)->attributes[2];
        (*slot)->priority = (*s)->priority;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        *slot = &(*s)->attributes[3];
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        *slot = &(*s)->attributes[4];
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out)
{
    struct CUstream_st *s;
    CUstreamAttrValue *slot;
    if (value_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = attribute_slot(hStream, attr, &s, &slot);
    if (r == CUDA_SUCCESS)
        *value_out = *slot;
    return r;
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
    struct CUstream_st *s;
    CUstreamAttrValue *slot;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = attribute_slot(hStream, attr, &s, &slot);
    if (r == CUDA_SUCCESS) {
        *slot = *value;
        if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            s->priority = value->priority > 0 ? 0 : value->priority < -5 ? -5 : value->priority;
    }
    return r;
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src)
{
    struct CUstream_st *to, *from;
    CUresult r = tl_drv_stream(dst, &to);
    if (r == CUDA_SUCCESS)
        r = tl_drv_stream(src, &from);
    if (r == CUDA_SUCCESS) {
        memcpy(to->attributes, from->attributes, sizeof to->attributes);
        to->priority = from->priority;
    }
    return r;
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags)
{
    struct CUstream_st *s;
    (void)length, (void)flags;
    CUresult r = tl_drv_stream(hStream, &s);
    /* managed memory is everywhere at once */
    return r == CUDA_SUCCESS && dptr == 0 ? CUDA_ERROR_INVALID_VALUE : r;
}

/* --- host functions and memory operations ----------------------------------------------------- */

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return tl_drv_submit(s, &(struct tl_drv_work){.kind = TL_DRV_HOST, .host = {fn, userData}},
                         false);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                             unsigned int flags)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (callback == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (tl_drv_is_capturing(s))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return tl_drv_submit(
        s,
        &(struct tl_drv_work){.kind = TL_DRV_CALLBACK, .callback = {callback, userData, hStream}},
        false);
}

/* Aligned, and in memory that the device knows and may so use. */
static bool is_operand(const struct tl_drv_memop *m)
{
    uint32_t bytes = m->is_wide ? 8 : 4;
    uintptr_t at = (uintptr_t)m->address;
    if (at % bytes != 0)
        return false;
    tl_drv_lock();
    const struct tl_drv_alloc *a = tl_drv_alloc_find(at);
    bool is_one = a != NULL && at - a->base + bytes <= a->bytes &&
                  (m->is_wait || a->kind != TL_DRV_REGISTERED ||
                   (a->flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0);
    tl_drv_unlock();
    return is_one;
}

static CUresult memop(CUstream handle, struct tl_drv_memop m)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(handle, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (!m.is_barrier && !is_operand(&m))
        return CUDA_ERROR_INVALID_VALUE;
    return tl_drv_submit(s, &(struct tl_drv_work){.kind = TL_DRV_MEMOP, .memop = m}, false);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags)
{
    return memop(stream, (struct tl_drv_memop){.address = tl_drv_pointer(addr),
                                               .value = value,
                                               .flags = flags,
                                               .is_wait = true});
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags)
{
    return memop(stream, (struct tl_drv_memop){.address = tl_drv_pointer(addr),
                                               .value = value,
                                               .flags = flags,
                                               .is_wait = true,
                                               .is_wide = true});
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags)
{
    return memop(stream, (struct tl_drv_memop){
                             .address = tl_drv_pointer(addr), .value = value, .flags = flags});
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags)
{
    return memop(stream, (struct tl_drv_memop){.address = tl_drv_pointer(addr),
                                               .value = value,
                                               .flags = flags,
                                               .is_wide = true});
}

/* One by one, in order: nothing of a batch is seen before what stands before it. */
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    CUresult r = CUDA_SUCCESS;
    if (paramArray == NULL || count > 256 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && r == CUDA_SUCCESS; i++) {
        const CUstreamBatchMemOpParams *p = &paramArray[i];
        switch (p->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            r = cuStreamWaitValue32_v2(stream, p->waitValue.address, p->waitValue.value,
                                       p->waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            r = cuStreamWaitValue64_v2(stream, p->waitValue.address, p->waitValue.value64,
                                       p->waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            r = cuStreamWriteValue32_v2(stream, p->writeValue.address, p->writeValue.value,
                                        p->writeValue.flags);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            r = cuStreamWriteValue64_v2(stream, p->writeValue.address, p->writeValue.value64,
                                        p->writeValue.flags);
            break;
        case CU_STREAM_MEM_OP_BARRIER:
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            r = memop(stream, (struct tl_drv_memop){.is_barrier = true});
            break;
        default:
            r = CUDA_ERROR_INVALID_VALUE;
        }
    }
    return r;
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags)
{
    return cuStreamWaitValue32_v2(stream, addr, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                             unsigned int flags)
{
    return cuStreamWaitValue64_v2(stream, addr, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                              unsigned int flags)
{
    return cuStreamWriteValue32_v2(stream, addr, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                              unsigned int flags)
{
    return cuStreamWriteValue64_v2(stream, addr, value, flags);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    return cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}
