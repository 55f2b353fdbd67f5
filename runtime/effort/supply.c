/* What launches in pieces need of a context: counters that host and device share, events, and how
 * long news of an end take. */
#include "runtime/effort/supply.h"
#include "tally/array.h"
#include "tally/check.h"
#include "tally/device.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/effort/lock.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/qualified.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"

enum {
    CONTROLS = 512,
    CONTROL_BYTES = 64, /* a cache line each */
    /* behind the counters: our own stop words, one that never says stop, one that always does, and
     * a number */
    NEVER = CONTROLS + TL_EFF_KICKS,
    ALWAYS,
    UNREACHABLE,
    PLACES,
};

/* Memory that both sides can count in.  With atomics on host memory it is that; otherwise kernels
 * count in device memory, and the host has words beside (runtime/effort/count.h). */
struct tl_eff_control_slab {
    uint8_t *host;
    CUdeviceptr device;
    struct tl_eff_control *free, all[CONTROLS];
};

/* When a host function was called; stays in memory if that never happens. */
struct stamp {
    _Atomic uint64_t ns;
};

/* Whoever comes last frees it. */
#define GIVEN_UP UINT64_MAX

static void stamp_now(void *data)
{
    struct stamp *s = data;
    if (atomic_exchange(&s->ns, tl_eff_now()) == GIVEN_UP)
        free(s);
}

/* How long it takes at best until the executor knows of an end on this driver: from the call to the
 * host function, and half as long again for waking up.  0 if it cannot be told. */
TL_EFF_UNLOCKED static uint64_t measure_round_trip(struct tl_eff_context *c)
{
    enum { TRIES = 5, PATIENCE_NS = 2000000 };
    uint64_t best = UINT64_MAX;
    CUstream side = c->sides[0];
    for (int i = 0; i < TRIES; i++) {
        struct stamp *s = calloc(1, sizeof *s);
        uint64_t begin = tl_eff_now(), end = 0;
        if (s == NULL || tl_eff_real.cuLaunchHostFunc(side, stamp_now, s) != CUDA_SUCCESS) {
            free(s);
            return 0;
        }
        while ((end = atomic_load(&s->ns)) == 0 && tl_eff_now() - begin < PATIENCE_NS)
            nanosleep(&(struct timespec){0, 5000}, NULL);
        if (end == 0 && (end = atomic_exchange(&s->ns, GIVEN_UP)) == 0)
            return 0; /* it may still come */
        free(s);
        best = end - begin < best ? end - begin : best;
    }
    return best + best / 2;
}

/* An event and the time at which it was done, as exactly as can be seen from outside: it was done
 * between the call that records it and the end of a wait for it, and of several tries the one
 * counts that leaves the least room. */
TL_EFF_UNLOCKED static void set_clock(struct tl_eff_context *c)
{
    enum { TRIES = 5 };
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        CUevent e = tl_eff_take_event(c);
        uint64_t begin = tl_eff_now();
        if (e == NULL || tl_eff_real.cuEventRecord(e, c->clock_side) != CUDA_SUCCESS ||
            tl_eff_real.cuEventSynchronize(e) != CUDA_SUCCESS) {
            tl_eff_give_event(c, e);
            return;
        }
        uint64_t took = tl_eff_now() - begin;
        if (took < least) {
            CUevent old = c->clock;
            c->clock = e;
            c->clock_ns = begin + took / 2;
            least = took;
            e = old;
        }
        tl_eff_give_event(c, e);
    }
}

uint64_t tl_eff_time_of_event(struct tl_eff_context *c, CUevent e)
{
    enum { REFRESH_MS = 2000 }; /* the driver tells milliseconds in a float: small ones are exact */
    float ms;
    if (c->clock == NULL || e == NULL ||
        tl_eff_real.cuEventElapsedTime(&ms, c->clock, e) != CUDA_SUCCESS || ms < 0)
        return 0;
    uint64_t ns = c->clock_ns + (uint64_t)((double)ms * 1e6);
    CUevent next = ms > REFRESH_MS ? tl_eff_take_event(c) : NULL;
    if (next != NULL && tl_eff_real.cuEventRecord(next, c->clock_side) == CUDA_SUCCESS &&
        tl_eff_real.cuEventSynchronize(next) == CUDA_SUCCESS &&
        tl_eff_real.cuEventElapsedTime(&ms, c->clock, next) == CUDA_SUCCESS) {
        CUevent old = c->clock;
        c->clock = next;
        c->clock_ns += (uint64_t)((double)ms * 1e6);
        next = old;
    }
    tl_eff_give_event(c, next);
    return ns;
}

/* The software device says so, whatever GPU it answers as; other drivers do not know the
 * question. */
static bool runs_block_by_block(CUdevice device)
{
    int does = 0;
    return tl_eff_real.cuDeviceGetAttribute(&does,
                                            (CUdevice_attribute)TL_DEVICE_ATTRIBUTE_BLOCK_BY_BLOCK,
                                            device) == CUDA_SUCCESS &&
           does != 0;
}

bool tl_eff_worked_us(CUdevice device, uint32_t *us)
{
    int n = 0;
    if (tl_eff_real.cuDeviceGetAttribute(&n, (CUdevice_attribute)TL_DEVICE_ATTRIBUTE_WORKED_US,
                                         device) != CUDA_SUCCESS)
        return false;
    *us = (uint32_t)n;
    return true;
}

/* Counters and words, with the memory that they stand in.  Allocating may wait for the context, so
 * the caller has found a moment for it.  False if there is no memory. */
TL_EFF_UNLOCKED static bool make_slab(struct tl_eff_context *c)
{
    struct tl_eff_control_slab *slab = calloc(1, sizeof *slab);
    void *host = NULL;
    if (slab == NULL ||
        tl_eff_real.cuMemHostAlloc(&host, PLACES * CONTROL_BYTES,
                                   CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) !=
            CUDA_SUCCESS ||
        tl_eff_real.cuMemHostGetDevicePointer_v2(&slab->device, host, 0) != CUDA_SUCCESS) {
        tl_eff_note("no memory for counters: kernels run whole");
        free(slab);
        return false;
    }
    slab->host = host;
    memset(host, 0, PLACES * CONTROL_BYTES);
    for (uint32_t i = 0; i < TL_EFF_KICKS; i++) {
        uint32_t at = (CONTROLS + i) * CONTROL_BYTES;
        c->kick_words[i] = (_Atomic uint64_t *)(void *)(slab->host + at);
        c->kick_device[i] = slab->device + at;
    }
    c->never_device = slab->device + NEVER * CONTROL_BYTES;
    c->always_device = slab->device + ALWAYS * CONTROL_BYTES;
    slab->host[ALWAYS * CONTROL_BYTES] = 1;
    memset(slab->host + UNREACHABLE * CONTROL_BYTES, 0xff, CONTROL_BYTES);
    c->unreachable = (const uint32_t *)(const void *)(slab->host + UNREACHABLE * CONTROL_BYTES);
    c->zeros = (const uint64_t *)(const void *)(slab->host + NEVER * CONTROL_BYTES);
    CUdeviceptr mapped = slab->device;
    if (!c->has_host_atomics &&
        tl_eff_real.cuMemAlloc_v2(&slab->device, CONTROLS * CONTROL_BYTES) != CUDA_SUCCESS) {
        tl_eff_note("no memory for counters: kernels run whole");
        return false;
    }
    for (uint32_t i = 0; i < CONTROLS; i++) {
        struct tl_eff_control *k = &slab->all[i];
        k->word = (_Atomic uint64_t *)(void *)(slab->host + i * CONTROL_BYTES);
        k->told = mapped + i * CONTROL_BYTES;
        k->device = slab->device + i * CONTROL_BYTES;
        k->is_unknown = true;
        k->next = slab->free;
        slab->free = k;
    }
    c->slab = slab;
    return true;
}

/* What costs no memory of the device. */
TL_EFF_UNLOCKED static void look_at(struct tl_eff_context *c)
{
    CUdevice device;
    int atomics = 0;
    uint32_t worked;
    uint64_t round_trip_ns = 0;
    c->is_unfit = tl_eff_real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
                  tl_eff_real.cuDeviceGetAttribute(
                      &c->n_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS;
    if (c->is_unfit)
        return;
    tl_eff_real.cuDeviceGetAttribute(&atomics, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
                                     device);
    c->has_host_atomics = atomics != 0;
    c->device = device;
    c->runs_block_by_block = runs_block_by_block(device);
    c->tells_work = tl_eff_worked_us(device, &worked);
    tl_eff_qualify(c, device);
    if (tl_eff_real.cuStreamCreate(&c->sides[0], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
        tl_eff_permit_round_trip(round_trip_ns = measure_round_trip(c));
    if (tl_eff_real.cuStreamCreate(&c->clock_side, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
        set_clock(c);
    tl_eff_log(3, "news of an end take %llu us", (unsigned long long)round_trip_ns / 1000);
}

bool tl_eff_prepare(struct tl_eff_context *c)
{
    if (!c->is_prepared)
        look_at(c);
    c->is_prepared = true;
    if (c->is_unfit || c->slab != NULL)
        return !c->is_unfit;
    if (!tl_eff_moment_begin(c, true))
        return false; /* another time */
    c->is_unfit = !make_slab(c);
    tl_eff_moment_end();
    return !c->is_unfit;
}

/* --- lent and given back ---------------------------------------------------------------------- */

CUevent tl_eff_take_event(struct tl_eff_context *c)
{
    CUevent e = NULL;
    if (c->n_events > 0)
        return c->events[--c->n_events];
    tl_eff_real.cuEventCreate(&e, CU_EVENT_DEFAULT);
    return e;
}

void tl_eff_give_event(struct tl_eff_context *c, CUevent e)
{
    if (e == NULL)
        return;
    if (!TL_ARRAY_FIT(c->events, c->cap_events, c->n_events + 1)) {
        tl_eff_real.cuEventDestroy_v2(e);
        return;
    }
    c->events[c->n_events++] = e;
}

struct tl_eff_control *tl_eff_take_control(struct tl_eff_context *c)
{
    tl_eff_assert_locked();
    struct tl_eff_control *k = c->slab->free;
    if (k != NULL) {
        TL_CHECK(k->refs == 0);
        c->slab->free = k->next;
        k->refs = 1;
    }
    return k;
}

void tl_eff_give_control(struct tl_eff_context *c, struct tl_eff_control *k)
{
    tl_eff_assert_locked();
    TL_CHECK(k == NULL || k->refs > 0);
    if (k == NULL || --k->refs > 0)
        return;
    k->next = c->slab->free;
    c->slab->free = k;
}
