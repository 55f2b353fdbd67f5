/* The other forms of a kernel.
 *
 *     asked for by a launch ─► builder's queue ─► PTX of the image ─► tl_ptx_rewrite (or the store on disk)
 *                                ─► compiled by the real driver's linker ─► loaded, in a moment when the context is idle
 *                                ─► a launch of no blocks
 *
 * They are built by one thread in the background; until one is ready the kernel runs as it is.  The
 * launch of no blocks makes a driver that compiles late do it here and not where it would be waited
 * for. */
#include "runtime/effort/variant.h"
#include "tally/array.h"
#include "tally/check.h"
#include "tally/cubin.h"
#include "tally/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "runtime/effort/attribute.h"
#include "runtime/effort/build.h"
#include "runtime/effort/executor.h"
#include "runtime/effort/forge.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/qualified.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/texts.h"

/* held while building */
struct tl_mutex tl_eff_build_lock = TL_MUTEX_INITIALIZER;
static struct tl_eff_variant *queue TL_EFF_GUARDED, **queue_end TL_EFF_GUARDED = &queue;
static bool has_builder TL_EFF_GUARDED;
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER;
static pthread_cond_t built = PTHREAD_COND_INITIALIZER;
static struct tl_eff_variant *in_work TL_EFF_GUARDED; /* what the builder is at */

/* --- arguments ------------------------------------------------------------------------------- */

/* The rewriter and tallyd, which know nothing of each other, meet here. */
_Static_assert((int)TL_SHARE_WORDS == (int)TL_PTX_STOP_WORDS,
               "a variant polls as many words as tallyd hands out");

_Static_assert((int)TL_SHARE_WORDS == (int)TL_CUBIN_STOP_WORDS, "and so does a gate");

/* A gate reads all of its words, so one that is not in use is one that never says stop. */
static void put_gate_args(const struct tl_eff_variant *v, uint8_t *params,
                          const struct tl_eff_extra *x)
{
    struct tl_cubin_args args = {.word = x->counter, .first = x->first, .last = x->blocks};
    for (uint32_t i = 0; i < TL_CUBIN_STOP_WORDS; i++)
        args.stop[i] = x->words[i] != 0 ? x->words[i] : v->kernel->context->never_device;
    memcpy(params + v->gate_offset, &args, sizeof args);
}

void tl_eff_variant_args(const struct tl_eff_variant *v, uint8_t *params,
                         const struct tl_eff_extra *x)
{
    if (v->rung == TL_RUNG_GATE) {
        put_gate_args(v, params, x);
        return;
    }
    struct tl_ptx_extra extra = {.grid = {x->grid[0], x->grid[1], x->grid[2]},
                                 .first = x->first,
                                 .blocks = x->blocks,
                                 .batch_mask = x->batch_mask,
                                 .counter = x->counter,
                                 .told = x->told,
                                 .base = x->base,
                                 .left_end = x->left_end,
                                 .variables = v->variables};
    for (uint32_t i = 0; i < TL_PTX_STOP_WORDS; i++)
        extra.words[i] = x->words[i];
    tl_ptx_put_args(v->args, v->n_args, &extra, params);
}

CUresult tl_eff_launch_variant(const struct tl_eff_launch *l, uint32_t blocks, CUstream stream)
{
    const struct tl_eff_variant *v = l->variant;
    const uint32_t line[3] = {blocks, 1, 1};
    const uint32_t *grid = v->rung == TL_RUNG_GATE ? l->grid : line;
    size_t n = v->param_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, l->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
                     CU_LAUNCH_PARAM_END};
    return tl_eff_launch_form(l, v->function, grid,
                              v->uses_slot ? TL_PTX_SHARED_BYTES(l->shared_bytes) : l->shared_bytes,
                              stream, NULL, extra);
}

/* --- what all variants need ------------------------------------------------------------------- */

bool tl_eff_put(struct tl_eff_context *c, CUdeviceptr to, const void *from, size_t n)
{
    return tl_eff_real.cuMemcpyHtoDAsync_v2(to, from, n, c->work) == CUDA_SUCCESS &&
           tl_eff_real.cuStreamSynchronize(c->work) == CUDA_SUCCESS;
}

int tl_eff_set_shared(struct tl_eff_variant *v, uint32_t dynamic)
{
    int bytes = (int)(v->uses_slot ? TL_PTX_SHARED_BYTES(dynamic) : dynamic);
    if (bytes <= v->max_dynamic)
        return 0;
    if (tl_eff_real.cuFuncSetAttribute(v->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       bytes) != CUDA_SUCCESS)
        return -ENOSPC;
    v->max_dynamic = bytes;
    return 0;
}

int tl_eff_find_moment(const struct tl_eff_variant *v, bool is_executor)
{
    enum { TRIES = 10, PAUSE_NS = 5000000 };
    struct tl_eff_context *c = v->kernel->context;
    while (!tl_eff_moment_begin(c, is_executor)) {
        if (is_executor)
            return -EAGAIN;
        tl_eff_lock();
        bool is_unwanted = v->is_unwanted || atomic_load(&tl_eff.is_over);
        bool is_hopeless = tl_eff_moment_misses(c) >= TRIES;
        tl_eff_unlock();
        if (is_unwanted || is_hopeless)
            return is_unwanted ? -ECANCELED : -EBUSY;
        nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    }
    return 0;
}

void tl_eff_make_bench(struct tl_eff_context *c)
{
    static const uint64_t zeroes[8];
    if (c->work == NULL &&
        tl_eff_real.cuStreamCreate(&c->work, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        c->work = NULL;
    if (c->work == NULL || c->scratch != 0)
        return;
    if (tl_eff_real.cuMemAlloc_v2(&c->scratch, sizeof zeroes) != CUDA_SUCCESS ||
        !tl_eff_put(c, c->scratch, zeroes, sizeof zeroes))
        c->scratch = 0;
}

/* --- building
 * ---------------------------------------------------------------------------------- */

/* The lock is given up meanwhile. */
TL_EFF_LOCKED static void build_one(struct tl_eff_variant *v, bool is_executor)
{
    tl_eff_assert_locked();
    TL_CHECK(v->state == TL_EFF_BUILDING);
    struct tl_error err = {0};
    struct tl_eff_kernel *k = v->kernel;
    uint64_t begin = tl_eff_now();
    tl_eff_unlock();
    tl_mutex_lock(&tl_eff_build_lock);
    tl_eff_make_current(k->context);
    int rc = v->rung == TL_RUNG_GATE ? tl_eff_build_gated(v, is_executor, &err)
                                     : tl_eff_build_text(v, is_executor, &err);
    tl_mutex_unlock(&tl_eff_build_lock);
    tl_record_spanned(tl_eff.record, TL_SPAN_COMPILE, k->record, 0, begin, tl_eff_now());
    if (rc < 0 && rc != -EAGAIN && rc != -ECANCELED) {
        tl_eff_note("%s has no %s variant: %s", k->name, tl_rung_name(v->rung), err.text);
        tl_eff_log(3, "%s has no %s variant: %s", k->name, tl_rung_name(v->rung), err.text);
    }
    tl_eff_lock();
    v->state = rc == 0 ? TL_EFF_READY : rc == -EAGAIN ? TL_EFF_WANTED : TL_EFF_REFUSED;
    pthread_cond_broadcast(&built);
}

static void *builder(void *unused)
{
    (void)unused;
    setpriority(PRIO_PROCESS, 0, 5); /* of this thread only: Linux */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (tl_eff_real.cuThreadExchangeStreamCaptureMode != NULL)
        tl_eff_real.cuThreadExchangeStreamCaptureMode(&mode);
    tl_eff_lock();
    for (;;) {
        while (queue == NULL)
            tl_eff_wait_for(&queued);
        struct tl_eff_variant *v = queue;
        queue = v->next;
        if (queue == NULL)
            queue_end = &queue;
        in_work = v;
        build_one(v, false);
        in_work = NULL;
        tl_eff_ring();
    }
    return NULL;
}

TL_EFF_LOCKED static bool give_to_builder(struct tl_eff_variant *v)
{
    static const struct tl_thread_kind kind = {.name = "tally-builder"};
    if (!has_builder)
        has_builder = tl_thread_start(NULL, &kind, builder, NULL) == 0;
    if (!has_builder)
        return false;
    v->next = NULL;
    *queue_end = v;
    queue_end = &v->next;
    pthread_cond_signal(&queued);
    return true;
}

/* --- asking ----------------------------------------------------------------------------------- */

struct tl_eff_variant *tl_eff_variant(const struct tl_eff_launch *l, enum tl_rung rung, bool now,
                                      bool *may_come)
{
    tl_eff_assert_locked();
    struct tl_eff_kernel *k = l->kernel;
    uint32_t dims = rung == TL_RUNG_GATE ? 1 : l->grid[2] > 1 ? 3 : l->grid[1] > 1 ? 2 : 1;
    struct tl_eff_variant *v = k->variants[rung][dims - 1];
    *may_come = false;
    if (l->blocks == 0 || k->captured->image == NULL || !tl_eff_is_qualified(k->context, rung))
        return NULL;
    if (v == NULL) {
        v = calloc(1, sizeof *v);
        if (v == NULL)
            return NULL;
        v->kernel = k;
        v->rung = rung;
        v->dims = dims;
        memcpy(v->block, l->block, sizeof v->block);
        v->shared_bytes = l->shared_bytes;
        v->carveout = -1; /* the driver's own choice */
        k->variants[rung][dims - 1] = v;
    }
    if (v->state == TL_EFF_WANTED) {
        v->state = TL_EFF_BUILDING;
        if (now)
            build_one(v, true);
        else if (!give_to_builder(v))
            v->state = TL_EFF_REFUSED;
    }
    while (now && v->state == TL_EFF_BUILDING)
        tl_eff_wait_for(&built);
    *may_come = v->state == TL_EFF_BUILDING || v->state == TL_EFF_WANTED;
    if (v->state != TL_EFF_READY || !tl_ptx_conditions_hold(v->conditions, l->grid, l->block))
        return NULL;
    tl_eff_unlock();
    int rc = tl_eff_set_shared(v, l->shared_bytes);
    const char *objection = tl_eff_follow_original(v);
    if (objection != NULL)
        tl_eff_note("%s runs whole: %s", k->name, objection);
    tl_eff_lock();
    return rc == 0 && objection == NULL ? v : NULL;
}

void tl_eff_variants_free(struct tl_eff_kernel *k)
{
    tl_eff_assert_locked();
    for (uint32_t i = 0; i < TL_RUNG_WHOLE * 3; i++) {
        struct tl_eff_variant *v = k->variants[i / 3][i % 3];
        if (v == NULL)
            continue;
        for (struct tl_eff_variant **at = &queue; *at != NULL; at = &(*at)->next) {
            if (*at == v) {
                *at = v->next;
                v->state = TL_EFF_REFUSED;
                break;
            }
        }
        queue_end = &queue;
        while (*queue_end != NULL)
            queue_end = &(*queue_end)->next;
        v->is_unwanted = true;
        while (v->state == TL_EFF_BUILDING)
            tl_eff_wait_for(&built);
        TL_CHECK(v->state != TL_EFF_BUILDING && v != in_work && k->variants[i / 3][i % 3] == v);
        k->variants[i / 3][i % 3] = NULL;
        CUmodule module = v->module;
        free(v->args);
        free(v->variables);
        free(v);
        if (module != NULL) {
            tl_eff_unlock();
            tl_eff_real.cuModuleUnload(module);
            tl_eff_lock();
        }
    }
}

/* The child of a fork has one thread, and the lock may be held by one that it has not. */
TL_UNCHECKED void tl_eff_variants_forked(void)
{
    pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;
    tl_mutex_init(&tl_eff_build_lock);
    tl_eff_texts_forked();
    tl_eff_forge_forked();
    queued = built = fresh;
    queue = in_work = NULL;
    queue_end = &queue;
    has_builder = false;
}
