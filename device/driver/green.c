/* Green contexts: a part of the device's SMs with streams of its own.
 *
 * A green context stands on the primary context: memory, modules and errors are that one's (`home`
 * in struct CUctx_st), only the streams are its own, and what is launched in them holds at most as
 * many SM slots at a time as the green context has (struct tl_exec_partition).  Which slots those
 * are may change from block to block: an SM here has nothing of its own. */
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/op.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"

#include "device/exec/exec.h"

#include <stdlib.h>
#include <string.h>

struct CUgreenCtx_st {
    uint32_t magic;
    uint32_t first, count; /* SMs */
    struct CUctx_st *ctx;
    struct tl_exec_partition partition;
    struct CUgreenCtx_st *next; /* in the device's list; never freed, like contexts */
};

struct CUdevResourceDesc_st {
    uint32_t magic;
    uint32_t first, count;
    struct CUdevResourceDesc_st *next; /* all there are: CUDA has no call that frees one */
};

static struct CUdevResourceDesc_st *descriptors TL_DRV_GUARDED;

/* What a resource holds besides its public part, in its padding. */
struct sms {
    uint32_t magic, first;
    int32_t device;
    /* an output of a split: not to be split again before it is a green context's */
    uint32_t is_split;
};

/* --- resources -------------------------------------------------------------------------------- */

/* In what groups a GPU of the profile gives its SMs out: at least so many, in multiples of so many
 * ("Green Contexts" in cuda.h).  The device itself, and one that is said to have another number of
 * SMs, gives out single ones. */
static void groups(int device, bool is_independent, uint32_t *least, uint32_t *step)
{
    const struct tl_drv_profile *p = tl_drv_profile();
    bool is_gpu = p->is_strict && tl_drv.devices[device].sms == p->sms;
    *least = !is_gpu ? 1 : is_independent ? 2 : p->cc_major >= 9 ? 8 : p->cc_major == 8 ? 4 : 2;
    *step = !is_gpu ? 1 : is_independent || p->cc_major < 9 ? 2 : 8;
}

static void describe(CUdevResource *r, int device, uint32_t first, uint32_t count, bool is_split)
{
    struct sms inside = {TL_DRV_RESOURCE, first, device, is_split};
    memset(r, 0, sizeof *r);
    r->type = count > 0 ? CU_DEV_RESOURCE_TYPE_SM : CU_DEV_RESOURCE_TYPE_INVALID;
    memcpy(r->_internal_padding, &inside, sizeof inside);
    r->sm.smCount = count;
    groups(device, false, &r->sm.minSmPartitionSize, &r->sm.smCoscheduledAlignment);
}

static bool read_resource(const CUdevResource *r, struct sms *out)
{
    if (r == NULL || r->type != CU_DEV_RESOURCE_TYPE_SM)
        return false;
    memcpy(out, r->_internal_padding, sizeof *out);
    return out->magic == TL_DRV_RESOURCE && out->device >= 0 && out->device < tl_drv.n_devices &&
           r->sm.smCount > 0;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(device, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (resource == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    describe(resource, device, 0, (uint32_t)d->sms, false);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
    CUresult r = tl_drv_context_check(hCtx);
    if (r != CUDA_SUCCESS)
        return r;
    if (hCtx->green != NULL)
        return cuGreenCtxGetDevResource(hCtx->green, resource, type);
    return cuDeviceGetDevResource(hCtx->device->ordinal, resource, type);
}

/* Parts of equal size, as many as there is room for, at least minCount each and rounded up to the
 * groups that the GPU has. */
CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
                                     const CUdevResource *input, CUdevResource *remaining,
                                     unsigned int useFlags, unsigned int minCount)
{
    const unsigned known = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                           CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    struct sms in;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (input != NULL && input->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (nbGroups == NULL || !read_resource(input, &in) || (useFlags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (in.is_split)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    uint32_t least, step, total = input->sm.smCount;
    groups(in.device, (useFlags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0, &least,
           &step);
    if (minCount > total)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    uint32_t each = minCount > least ? (minCount + step - 1) / step * step : least,
             n = total / each;
    if (n == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result == NULL) {
        *nbGroups = n;
        return CUDA_SUCCESS;
    }
    if (*nbGroups < n)
        n = *nbGroups;
    for (uint32_t i = 0; i < n; i++)
        describe(&result[i], in.device, in.first + i * each, each, true);
    *nbGroups = n;
    if (remaining != NULL)
        describe(remaining, in.device, in.first + n * each, total - n * each, true);
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                   unsigned int nbResources)
{
    struct sms one, whole = {0};
    uint32_t count = 0;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (phDesc == NULL || resources == NULL || nbResources == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < nbResources; i++) {
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM)
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        if (!read_resource(&resources[i], &one))
            return CUDA_ERROR_INVALID_VALUE;
        /* Several must be neighbours of one split, in their order. */
        if (i > 0 && (one.device != whole.device || one.first != whole.first + count))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        if (i == 0)
            whole = one;
        count += resources[i].sm.smCount;
    }
    struct CUdevResourceDesc_st *d = calloc(1, sizeof *d);
    if (d == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *d = (struct CUdevResourceDesc_st){TL_DRV_RESOURCE, whole.first, count, NULL};
    tl_drv_lock();
    d->next = descriptors;
    descriptors = d;
    tl_drv_unlock();
    *phDesc = d;
    return CUDA_SUCCESS;
}

/* --- green contexts --------------------------------------------------------------------------- */

struct tl_exec_partition *tl_drv_green_partition(const struct CUctx_st *ctx)
{
    return ctx->green != NULL ? &ctx->green->partition : NULL;
}

struct CUctx_st *tl_drv_green_next(struct CUgreenCtx_st **at)
{
    struct CUgreenCtx_st *g = *at;
    while (g != NULL && !g->ctx->is_alive)
        g = g->next;
    *at = g != NULL ? g->next : NULL;
    return g != NULL ? g->ctx : NULL;
}

int tl_drv_context_sms(const struct CUctx_st *ctx)
{
    return ctx->green != NULL ? (int)ctx->green->count : ctx->device->sms;
}

/* Its share of what runs, where fewer blocks run at a time than the device reports SMs. */
static uint32_t slots_of(const struct tl_drv_device *d, uint32_t sms)
{
    uint32_t n = (uint32_t)(((uint64_t)sms * (uint32_t)d->slots + (uint32_t)d->sms / 2) /
                            (uint32_t)d->sms);
    return n > 0 ? n : 1;
}

static CUresult check(CUgreenCtx g)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (g == NULL || g->magic != TL_DRV_GREEN)
        return CUDA_ERROR_INVALID_CONTEXT;
    return tl_drv_context_check(g->ctx);
}

/* A green context retains the primary one, whose memory and modules it has; streams and SMs are
 * its own. */
CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags)
{
    struct tl_drv_device *d;
    CUcontext home;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (phCtx == NULL || desc == NULL || desc->magic != TL_DRV_RESOURCE ||
        flags != CU_GREEN_CTX_DEFAULT_STREAM || desc->first + desc->count > (uint32_t)d->sms)
        return CUDA_ERROR_INVALID_VALUE;
    r = cuDevicePrimaryCtxRetain(&home, dev);
    if (r != CUDA_SUCCESS)
        return r;
    struct CUgreenCtx_st *g = calloc(1, sizeof *g);
    tl_drv_lock();
    if (g != NULL) {
        g->ctx = tl_drv_context_create_green(home, g);
        g->magic = TL_DRV_GREEN;
        g->first = desc->first;
        g->count = desc->count;
        g->partition.n_slots = slots_of(d, desc->count);
    }
    bool is_made = g != NULL && g->ctx != NULL;
    if (is_made) {
        g->next = d->greens;
        d->greens = g;
    }
    tl_drv_unlock();
    if (!is_made) {
        free(g);
        cuDevicePrimaryCtxRelease_v2(dev);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *phCtx = g;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (hCtx == NULL || hCtx->magic != TL_DRV_GREEN || !hCtx->ctx->is_alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    tl_drv_context_drain(hCtx->ctx);
    hCtx->ctx->is_alive = false;
    return cuDevicePrimaryCtxRelease_v2(hCtx->ctx->device->ordinal);
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    CUresult r = check(hCtx);
    if (r == CUDA_SUCCESS && pContext == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *pContext = hCtx->ctx;
    return r;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
    CUresult r = check(hCtx);
    if (r != CUDA_SUCCESS)
        return r;
    if (resource == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    describe(resource, hCtx->ctx->device->ordinal, hCtx->first, hCtx->count, false);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
    CUresult r = check(greenCtx);
    if (r == CUDA_SUCCESS && greenCtxId == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *greenCtxId = greenCtx->ctx->id;
    return r;
}

/* --- streams and events of green contexts ----------------------------------------------------- */

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority)
{
    CUresult r = check(greenCtx);
    if (r != CUDA_SUCCESS)
        return r;
    if (phStream == NULL || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    *phStream = tl_drv_stream_create(greenCtx->ctx, flags, priority);
    tl_drv_unlock();
    return *phStream != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* cuDNN asks, and takes NULL for "an ordinary stream". */
CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r == CUDA_SUCCESS && phCtx == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *phCtx = s->ctx->green;
    return r;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    CUresult r = check(hCtx);
    return r == CUDA_SUCCESS ? tl_drv_event_record_context(hEvent, hCtx->ctx) : r;
}

/* Everything that is put into the context from now on waits for the event; streams that are created
 * later begin behind the gate. */
static CUresult wait_in(struct CUctx_st *ctx, CUevent hEvent)
{
    CUresult r = CUDA_SUCCESS;
    tl_drv_lock();
    uint32_t n = 0, i = 0;
    for (struct CUstream_st *s = ctx->streams; s != NULL; s = s->next)
        n++;
    struct CUstream_st **all = calloc(n + 1, sizeof(struct CUstream_st *));
    for (struct CUstream_st *s = ctx->streams; s != NULL && all != NULL; s = s->next)
        all[i++] = s;
    tl_drv_unlock();
    if (all == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (i = 0; i < n && r == CUDA_SUCCESS; i++)
        r = tl_drv_event_wait(all[i], hEvent);
    free((void *)all);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct tl_drv_op *tail = ctx->legacy->tail; /* has the event before it now */
    if (tail != NULL)
        tail->refs++;
    tl_drv_op_unref(ctx->gate);
    ctx->gate = tail;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    CUresult r = check(hCtx);
    return r == CUDA_SUCCESS ? wait_in(hCtx->ctx, hEvent) : r;
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    CUresult r = tl_drv_context_check(hCtx);
    bool is_refused = false;
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    for (const struct CUstream_st *s = hCtx->streams; s != NULL; s = s->next)
        is_refused |= tl_drv_is_capturing(s);
    tl_drv_unlock();
    return is_refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : wait_in(hCtx, hEvent);
}
