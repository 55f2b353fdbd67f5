/* The lowest rung: a kernel that cannot be stopped runs on a part of the SMs, so that a higher
 * level finds the others free.
 *
 * The part is a green context, which stands on the device's primary context and shares its memory.
 * The kernel is launched in a stream of it, between two events that tie it to its place in the
 * job's own stream.  Where the driver has no green contexts, or does not take the kernel there, it
 * runs on all SMs as it would have. */
#include "runtime/effort/cap.h"
#include "tally/check.h"

#include "runtime/effort/attribute.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/supply.h"

TL_EFF_UNLOCKED static bool is_primary(CUcontext handle, CUdevice device)
{
    CUcontext primary = NULL;
    if (tl_eff_real.cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return false;
    tl_eff_real.cuDevicePrimaryCtxRelease_v2(device);
    return primary == handle;
}

static bool has_green_contexts(void)
{
    return tl_eff_real.cuDeviceGetDevResource != NULL &&
           tl_eff_real.cuDevSmResourceSplitByCount != NULL &&
           tl_eff_real.cuDevResourceGenerateDesc != NULL && tl_eff_real.cuGreenCtxCreate != NULL &&
           tl_eff_real.cuGreenCtxStreamCreate != NULL && tl_eff_real.cuGreenCtxDestroy != NULL &&
           tl_eff_real.cuDevicePrimaryCtxRetain != NULL &&
           tl_eff_real.cuDevicePrimaryCtxRelease_v2 != NULL;
}

TL_EFF_UNLOCKED static CUresult make(struct tl_eff_context *c, struct tl_eff_cap *cap, uint32_t sms)
{
    CUdevice device;
    CUdevResource all, part;
    CUdevResourceDesc desc;
    unsigned n = 1;
    CUresult r = has_green_contexts() ? tl_eff_real.cuCtxGetDevice(&device)
                                      : CUDA_ERROR_NOT_SUPPORTED;
    if (r == CUDA_SUCCESS && !is_primary(c->handle, device))
        r = CUDA_ERROR_NOT_SUPPORTED; /* the job's memory would not be there */
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuDevSmResourceSplitByCount(&part, &n, &all, NULL, 0, sms);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuDevResourceGenerateDesc(&desc, &part, 1);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuGreenCtxCreate(&cap->green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM);
    cap->sms = sms;
    return r;
}

TL_EFF_UNLOCKED static struct tl_eff_cap *find_cap(struct tl_eff_context *c, uint32_t sms)
{
    TL_CHECK(sms > 0 && c->n_caps <= TL_EFF_CAPS);
    for (uint32_t i = 0; i < c->n_caps; i++) {
        if (c->caps[i].sms == sms)
            return &c->caps[i];
    }
    /* A policy may ask for many sizes; the next one that there is will do. */
    if (c->n_caps == TL_EFF_CAPS)
        return &c->caps[sms % TL_EFF_CAPS];
    CUresult r = make(c, &c->caps[c->n_caps], sms);
    if (r == CUDA_SUCCESS)
        return &c->caps[c->n_caps++];
    c->is_capless = true;
    tl_eff_note("kernels that cannot be stopped run on all SMs: no green context (error %d)", r);
    return NULL;
}

void tl_eff_cap_leave(struct tl_eff_stream *s)
{
    tl_eff_assert_locked();
    struct tl_eff_context *c = s->context;
    for (uint32_t i = 0; i < c->n_caps && s->capped != NULL; i++) {
        struct tl_eff_cap *cap = &c->caps[i];
        if (cap->green == s->capped_in && cap->n_spare < sizeof cap->spare / sizeof cap->spare[0])
            cap->spare[cap->n_spare++] = s->capped;
    }
    s->capped = NULL; /* one too many goes with its part */
}

/* The stream beside `s` in that part, or NULL. */
TL_EFF_UNLOCKED static CUstream stream_in(struct tl_eff_stream *s, struct tl_eff_cap *cap)
{
    if (s->capped != NULL && s->capped_in == cap->green)
        return s->capped;
    tl_eff_lock();
    tl_eff_cap_leave(s); /* what is in it goes on, and `s` waits for it */
    s->capped_in = cap->green;
    s->capped = cap->n_spare > 0 ? cap->spare[--cap->n_spare] : NULL;
    tl_eff_unlock();
    if (s->capped == NULL && tl_eff_real.cuGreenCtxStreamCreate(
                                 &s->capped, cap->green, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS)
        s->capped = NULL;
    return s->capped;
}

/* Behind `from`, `to` goes on. */
TL_EFF_UNLOCKED static CUresult tie(struct tl_eff_context *c, CUstream from, CUstream to)
{
    CUevent e = tl_eff_take_event(c);
    CUresult r = e != NULL ? tl_eff_real.cuEventRecord(e, from) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuStreamWaitEvent(to, e, 0);
    tl_eff_give_event(c, e); /* who waits for it waits for what it was */
    return r;
}

CUresult tl_eff_launch_capped(struct tl_eff_stream *s, const struct tl_eff_launch *l, uint32_t sms)
{
    struct tl_eff_context *c = s->context;
    struct tl_eff_cap *cap = c->is_capless ? NULL : find_cap(c, sms);
    CUstream beside = cap != NULL ? stream_in(s, cap) : NULL;
    if (beside == NULL || tie(c, s->handle, beside) != CUDA_SUCCESS)
        return tl_eff_launch_whole(l, s->handle);
    tl_eff_follow_stream(s, beside);
    if (tl_eff_launch_whole(l, beside) != CUDA_SUCCESS) {
        c->is_capless = true;
        tl_eff_note("%s: the driver does not take it in a green context: it runs on all SMs",
                    l->kernel->name);
        return tl_eff_launch_whole(l, s->handle);
    }
    return tie(c, beside, s->handle);
}

void tl_eff_caps_free(CUcontext handle)
{
    for (;;) {
        CUstream beside = NULL;
        CUgreenCtx green = NULL;
        tl_eff_lock();
        for (struct tl_eff_context *c = tl_eff_streams.contexts; c != NULL; c = c->next) {
            if (c->handle != handle)
                continue;
            for (struct tl_eff_stream *s = c->streams; s != NULL && beside == NULL; s = s->next) {
                beside = s->capped;
                s->capped = NULL;
            }
            for (uint32_t i = 0; i < c->n_caps && beside == NULL; i++)
                beside = c->caps[i].n_spare > 0 ? c->caps[i].spare[--c->caps[i].n_spare] : NULL;
            if (beside == NULL && c->n_caps > 0)
                green = c->caps[--c->n_caps].green;
        }
        tl_eff_unlock();
        if (beside != NULL) {
            tl_eff_real.cuStreamSynchronize(beside);
            tl_eff_real.cuStreamDestroy_v2(beside);
        } else if (green != NULL) {
            tl_eff_real.cuGreenCtxDestroy(green);
        } else {
            return;
        }
    }
}
