/* Contexts: the primary one of each device, created ones, and each thread's stack of them. */
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/exec.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/memory.h"
#include "device/driver/module.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"

#include <stdlib.h>

/* A thread's own: no lock needed. */
static _Thread_local struct {
    CUcontext stack[TL_DRV_MAX_STACK];
    uint32_t depth;
    bool is_per_thread; /* the call under way came in through a _ptsz or _ptds name */
} here;

bool tl_drv_per_thread_begin(void)
{
    bool was = here.is_per_thread;
    here.is_per_thread = true;
    return was;
}

CUresult tl_drv_per_thread_end(bool was, CUresult result)
{
    here.is_per_thread = was;
    return result;
}

bool tl_drv_is_per_thread(void)
{
    return here.is_per_thread;
}

CUcontext tl_drv_current(void)
{
    return here.depth > 0 ? here.stack[here.depth - 1] : NULL;
}

static bool is_context(CUcontext ctx)
{
    return ctx != NULL && ctx->magic == TL_DRV_CONTEXT;
}

CUresult tl_drv_context_check(CUcontext ctx)
{
    if (!is_context(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->is_alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return tl_drv_context_error(ctx);
}

CUresult tl_drv_context_error(const struct CUctx_st *ctx)
{
    /* acquire: what the failing kernel's thread noted down comes first. */
    CUresult own = (CUresult)atomic_load_explicit(&ctx->home->sticky, memory_order_acquire);
    return own != CUDA_SUCCESS ? own : tl_drv_exec_fault(ctx->device);
}

CUresult tl_drv_enter(struct CUctx_st **ctx)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    *ctx = tl_drv_current();
    return tl_drv_context_check(*ctx);
}

void tl_drv_context_fail(struct CUctx_st *ctx, CUresult result)
{
    int none = CUDA_SUCCESS;
    /* release: pairs with the acquire in tl_drv_context_error.  The first fault stays. */
    atomic_compare_exchange_strong_explicit(&ctx->home->sticky, &none, (int)result,
                                            memory_order_release, memory_order_relaxed);
}

/* --- making and ending ------------------------------------------------------------------------ */

static void set_defaults(struct CUctx_st *ctx)
{
    ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    ctx->limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0;
    ctx->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    ctx->shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
}

/* Context structures are never freed: a handle that was destroyed is still recognised
 * as such. */
static struct CUctx_st *create(struct tl_drv_device *device, unsigned flags,
                               bool is_primary) TL_DRV_LOCKED
{
    struct CUctx_st *ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL)
        return NULL;
    ctx->magic = TL_DRV_CONTEXT;
    ctx->device = device;
    ctx->home = ctx;
    ctx->is_primary = is_primary;
    ctx->is_alive = true;
    ctx->flags = flags;
    ctx->id = tl_drv.next_id++;
    set_defaults(ctx);
    ctx->legacy = tl_drv_stream_create(ctx, CU_STREAM_DEFAULT, 0);
    if (ctx->legacy == NULL) {
        free(ctx);
        return NULL;
    }
    ctx->legacy->is_legacy = true;
    ctx->older = tl_drv.contexts;
    tl_drv.contexts = ctx;
    return ctx;
}

struct CUctx_st *tl_drv_primary(struct tl_drv_device *device)
{
    if (device->primary == NULL) {
        device->primary = create(device, device->primary_flags, true);
        if (device->primary != NULL)
            device->primary->is_alive = false; /* until somebody retains it */
    }
    return device->primary;
}

struct CUctx_st *tl_drv_context_create_green(struct CUctx_st *home, struct CUgreenCtx_st *green)
{
    struct CUctx_st *ctx = create(home->device, home->flags, false);
    if (ctx != NULL) {
        ctx->home = home;
        ctx->green = green;
    }
    return ctx;
}

/* Frees what a context holds.  Its structure stays; a primary one can be used again. */
static void clear(struct CUctx_st *ctx) TL_DRV_UNLOCKED
{
    tl_drv_context_drain(ctx);
    for (;;) {
        tl_drv_lock();
        struct tl_drv_local *local = ctx->locals;
        if (local != NULL)
            ctx->locals = local->next;
        tl_drv_unlock();
        if (local == NULL)
            break;
        if (local->destroy != NULL)
            local->destroy(ctx, local->key, local->value);
        free(local);
    }
    tl_drv_lock();
    while (ctx->modules != NULL) {
        struct CUmod_st *module = ctx->modules;
        tl_drv_unlock();
        tl_drv_module_destroy(module); /* takes itself off the list */
        tl_drv_lock();
    }
    for (size_t i = tl_drv.n_allocs; i > 0; i--)
        if (i <= tl_drv.n_allocs && tl_drv.allocs[i - 1]->ctx == ctx) {
            struct tl_drv_alloc *a = tl_drv.allocs[i - 1];
            if (a->kind == TL_DRV_VIRTUAL) /* is no context's: it lasts until it is unmapped */
                continue;
            tl_drv_pool_forget(a);
            tl_drv_alloc_destroy(a);
        }
    ctx->is_alive = false;
    atomic_store_explicit(&ctx->sticky, CUDA_SUCCESS, memory_order_release);
    tl_drv_unlock();
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct CUctx_st *ctx = tl_drv_primary(d);
    if (ctx != NULL) {
        if (ctx->refs++ == 0) {
            ctx->is_alive = true;
            ctx->flags = d->primary_flags;
        }
        *pctx = ctx;
    }
    tl_drv_unlock();
    return ctx != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct CUctx_st *ctx = d->primary;
    bool is_held = ctx != NULL && ctx->refs > 0;
    bool is_last = is_held && --ctx->refs == 0;
    tl_drv_unlock();
    if (is_last)
        clear(ctx);
    return is_held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct CUctx_st *ctx = d->primary;
    bool is_alive = ctx != NULL && ctx->is_alive;
    tl_drv_unlock();
    if (is_alive) {
        clear(ctx);
        tl_drv_lock();
        ctx->is_alive = ctx->refs > 0; /* those who retained it may go on with the empty context */
        tl_drv_unlock();
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    d->primary_flags = flags;
    if (d->primary != NULL)
        d->primary->flags = flags;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    if (flags != NULL)
        *flags = d->primary_flags;
    if (active != NULL)
        *active = d->primary != NULL && d->primary->is_alive;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext ctx)
{
    if (here.depth == TL_DRV_MAX_STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    here.stack[here.depth++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (pctx == NULL || (flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct CUctx_st *ctx = create(d, flags, false);
    tl_drv_unlock();
    if (ctx == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pctx = ctx;
    return push(ctx);
}

/* The first versions of these had contexts of 32-bit addresses; the calls themselves were the
 * same. */
CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                        unsigned int flags, CUdevice dev)
{
    (void)paramsArray;
    if (numParams != 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                        CUdevice dev)
{
    if (ctxCreateParams != NULL &&
        (ctxCreateParams->numExecAffinityParams != 0 || ctxCreateParams->cigParams != NULL))
        return tl_drv_unimplemented(
            "a context with execution affinity or for graphics (cuCtxCreate)");
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (!is_context(ctx) || ctx->is_primary || ctx->green != NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->is_alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    clear(ctx);
    if (tl_drv_current() == ctx)
        here.depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxDetach(CUcontext ctx)
{
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    (void)flags;
    return cuCtxGetCurrent(pctx);
}

/* --- the thread's stack ----------------------------------------------------------------------- */

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    return is_context(ctx) ? push(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (here.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    here.depth--;
    if (pctx != NULL)
        *pctx = here.stack[here.depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
    return cuCtxPopCurrent_v2(pctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (ctx != NULL && !is_context(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (here.depth > 0)
        here.depth--;
    return ctx != NULL ? push(ctx) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = tl_drv_current();
    return CUDA_SUCCESS;
}

/* --- queries and settings --------------------------------------------------------------------- */

/* A given context, or the current one for NULL. */
static CUresult given(CUcontext *ctx)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (*ctx == NULL)
        *ctx = tl_drv_current();
    return is_context(*ctx) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    CUresult r = given(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ctx->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    CUresult r = given(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (ctxId == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *ctxId = ctx->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    CUresult r = given(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    CUcontext ctx = NULL;
    CUresult r = given(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = ctx->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    CUcontext ctx = NULL;
    CUresult r = given(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    ctx->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    CUresult r = given(&ctx);
    if (r == CUDA_SUCCESS)
        r = tl_drv_context_check(ctx);
    return r == CUDA_SUCCESS ? tl_drv_context_wait(ctx) : r;
}

CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && tl_drv_exec_heap(ctx->device, value) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    ctx->limits[limit] = value;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (pvalue == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    tl_drv_lock();
    *pvalue = ctx->limits[limit];
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (pconfig == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pconfig = ctx->cache_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    ctx->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (pConfig == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pConfig = ctx->shared_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    ctx->shared_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (leastPriority != NULL)
        *leastPriority = 0;
    if (greatestPriority != NULL)
        *greatestPriority = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    struct CUctx_st *ctx;
    return tl_drv_enter(&ctx);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (pExecAffinity == NULL || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    pExecAffinity->type = type;
    pExecAffinity->param.smCount.val = (unsigned)tl_drv_context_sms(ctx);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    (void)type;
    if (r != CUDA_SUCCESS)
        return r;
    if (pi == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pi = 0;
    return CUDA_SUCCESS;
}

/* --- peers: one address space, so access is a matter of bookkeeping --------------------------- */

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!is_context(peerContext) || peerContext->device == ctx->device)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    uint32_t bit = 1u << peerContext->device->ordinal;
    tl_drv_lock();
    bool was = (ctx->peers & bit) != 0;
    ctx->peers |= bit;
    tl_drv_unlock();
    return was ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!is_context(peerContext))
        return CUDA_ERROR_INVALID_CONTEXT;
    uint32_t bit = 1u << peerContext->device->ordinal;
    tl_drv_lock();
    bool was = (ctx->peers & bit) != 0;
    ctx->peers &= ~bit;
    tl_drv_unlock();
    return was ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
