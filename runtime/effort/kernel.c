/* Kernels as the job launches them.
 *
 * A launch whose arguments might be refused is made by the caller itself when its turn comes, so
 * that he gets the driver's own answer: the first launch with each block size, anything beyond the
 * limits that the driver tells, anything that we do not know.  All others are copied and queued, or
 * given to the driver at once if nothing stands in the way. */
#include "runtime/effort/kernel.h"
#include "tally/array.h"
#include "tally/check.h"
#include "tally/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/attribute.h"
#include "runtime/effort/executor.h"
#include "runtime/effort/flight.h"
#include "runtime/effort/gang.h"
#include "runtime/effort/hooks.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/launches.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/names.h"
#include "runtime/effort/params.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/plan.h"
#include "runtime/effort/profile.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/sums.h"
#include "runtime/effort/variant.h"

/* --- kernels by handle ------------------------------------------------------------------------ */

enum { SLOTS = 1024 };

static struct tl_eff_kernel *kernels[SLOTS] TL_EFF_GUARDED; /* by handle */
/* Forgotten, but perhaps still on the device. */
static struct tl_eff_kernel *dead TL_EFF_GUARDED;

void tl_eff_kernels_start(void)
{
    tl_eff_lock();
    memset(kernels, 0, sizeof kernels);
    tl_eff_unlock();
}

TL_EFF_LOCKED static struct tl_eff_kernel **slot_of(CUfunction handle)
{
    return &kernels[(tl_hash_number((uintptr_t)handle) >> 32) % SLOTS];
}

static CUresult param_info(const struct tl_eff_kernel *k, size_t i, size_t *offset, size_t *size)
{
    if (k->is_library)
        return tl_eff_real.cuKernelGetParamInfo != NULL
                   ? tl_eff_real.cuKernelGetParamInfo((CUkernel)k->handle, i, offset, size)
                   : CUDA_ERROR_NOT_SUPPORTED;
    return tl_eff_real.cuFuncGetParamInfo != NULL
               ? tl_eff_real.cuFuncGetParamInfo(k->handle, i, offset, size)
               : CUDA_ERROR_NOT_SUPPORTED;
}

/* Parameters as the driver tells them; false if it does not. */
static bool ask_params(struct tl_eff_kernel *k)
{
    size_t offset, size, cap = 0;
    CUresult r;
    while ((r = param_info(k, k->n_params, &offset, &size)) == CUDA_SUCCESS) {
        if (!TL_ARRAY_FIT(k->params, cap, k->n_params + 1))
            return false;
        k->params[k->n_params++] = (struct tl_eff_param){(uint32_t)offset, (uint32_t)size};
        if (offset + size > k->param_bytes)
            k->param_bytes = (uint32_t)(offset + size);
    }
    /* Beyond the last parameter the answer is INVALID_VALUE. */
    return r == CUDA_ERROR_INVALID_VALUE;
}

/* Whether the driver has what tells parameters of such a kernel, which is new in CUDA 12.4. */
static bool tells_params(const struct tl_eff_kernel *k)
{
    return k->is_library ? tl_eff_real.cuKernelGetParamInfo != NULL
                         : tl_eff_real.cuFuncGetParamInfo != NULL;
}

/* Parameters and limits, as the driver or the image tells. */
static void learn(struct tl_eff_kernel *k)
{
    CUfunction f = k->handle;
    struct tl_error err = {0};
    k->is_unknown = k->is_library &&
                    (tl_eff_real.cuKernelGetFunction == NULL ||
                     tl_eff_real.cuKernelGetFunction(&f, (CUkernel)k->handle) != CUDA_SUCCESS);
    k->function = f;
    if (k->is_unknown ||
        tl_eff_real.cuFuncGetAttribute(&k->max_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                       f) != CUDA_SUCCESS ||
        tl_eff_real.cuFuncGetAttribute(
            &k->max_dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f) != CUDA_SUCCESS)
        k->is_unknown = true;
    k->fingerprint = tl_hash(k->name, strlen(k->name));
    static const CUfunction_attribute told[] = {
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,  CU_FUNC_ATTRIBUTE_NUM_REGS,
        CU_FUNC_ATTRIBUTE_PTX_VERSION,       CU_FUNC_ATTRIBUTE_BINARY_VERSION};
    for (uint32_t i = 0; !k->is_unknown && i < sizeof told / sizeof *told; i++) {
        int value = 0;
        tl_eff_real.cuFuncGetAttribute(&value, told[i], f);
        if (told[i] == CU_FUNC_ATTRIBUTE_PTX_VERSION)
            k->ptx_version = value;
        if (told[i] == CU_FUNC_ATTRIBUTE_BINARY_VERSION)
            k->binary_version = value;
        k->fingerprint = tl_hash_mix(k->fingerprint, (uint32_t)value);
    }
    if (!k->is_unknown && tells_params(k)) {
        k->is_unknown = !ask_params(k);
    } else if (!k->is_unknown && tl_eff_params(k, k->binary_version, &err) < 0) {
        k->is_unknown = true;
        tl_eff_note("%s runs whole: the driver does not tell its parameters, and its image does "
                    "not either (%s)",
                    k->name, err.text);
    }
    k->fingerprint += k->param_bytes + ((uint64_t)k->n_params << 32);
}

bool tl_eff_kernel_launches_graphs(struct tl_eff_kernel *k)
{
    if (atomic_load(&k->launches_graphs) == 0) {
        bool does = k->captured != NULL && k->captured->image != NULL &&
                    tl_eff_launches_graphs(k->captured->image);
        atomic_store(&k->launches_graphs, does ? 2 : 1);
    }
    return atomic_load(&k->launches_graphs) == 2;
}

TL_EFF_LOCKED static struct tl_eff_kernel *find_kernel(CUfunction handle,
                                                       const struct tl_eff_context *context)
{
    tl_eff_assert_locked();
    struct tl_eff_kernel *k = *slot_of(handle);
    while (k != NULL && (k->handle != handle || k->context != context))
        k = k->next;
    return k;
}

static void kernel_free(struct tl_eff_kernel *k)
{
    while (k->profiles != NULL) {
        struct tl_eff_profile *next = k->profiles->next;
        free(k->profiles);
        k->profiles = next;
    }
    free(k->params);
    free(k->name);
    free(k);
}

struct tl_eff_kernel *tl_eff_kernel(CUfunction handle, struct tl_eff_context *context)
{
    tl_eff_lock();
    struct tl_eff_kernel *k = find_kernel(handle, context);
    tl_eff_unlock();
    if (k != NULL)
        return k;
    const struct tl_captured_kernel *captured = tl_eff.shim->kernel(handle);
    if (captured == NULL)
        return NULL; /* whatever it is, it is the driver's business */
    k = calloc(1, sizeof *k);
    if (k == NULL)
        return NULL;
    k->handle = handle;
    k->context = context;
    k->captured = captured;
    k->module = captured->module;
    k->library = captured->library;
    k->is_library = captured->library != NULL && captured->module == NULL;
    if (captured->is_nameless && tl_eff_find_name(captured, context, &k->name) == -EAGAIN) {
        free(k);
        return NULL; /* another time */
    }
    if (k->name == NULL)
        k->name = strdup(captured->name);
    if (k->name == NULL) {
        free(k);
        return NULL;
    }
    k->record = tl_record_kernel(tl_eff.record, k->name);
    k->is_gang = tl_eff_is_gang(k->name, captured->image != NULL ? captured->image->source : "");
    if (k->is_gang) {
        tl_eff_note("%s runs whole, and when its turn comes: it waits for others of its kind",
                    k->name);
        atomic_store_explicit(&tl_eff.page->is_in_gang, 1, memory_order_relaxed);
    }
    learn(k);
    tl_eff_lock();
    struct tl_eff_kernel *other = find_kernel(handle, context);
    if (other == NULL) {
        k->next = *slot_of(handle);
        *slot_of(handle) = k;
    }
    tl_eff_unlock();
    if (other != NULL) {
        kernel_free(k);
        k = other;
    }
    return k;
}

TL_EFF_LOCKED static void bury_dead(void)
{
    for (struct tl_eff_kernel **at = &dead; *at != NULL;) {
        struct tl_eff_kernel *k = *at;
        if (tl_eff_is_on_device(k)) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        kernel_free(k);
    }
}

void tl_eff_kernels_forget(const void *module, const void *library, struct tl_eff_context *context)
{
    /* nobody else sees these, also while the lock is given up */
    struct tl_eff_kernel *going = NULL;
    tl_eff_assert_locked();
    for (uint32_t i = 0; i < SLOTS; i++) {
        for (struct tl_eff_kernel **at = &kernels[i]; *at != NULL;) {
            struct tl_eff_kernel *k = *at;
            if ((module == NULL || k->module != module) &&
                (library == NULL || k->library != library) &&
                (context == NULL || k->context != context)) {
                at = &k->next;
                continue;
            }
            *at = k->next;
            k->next = going;
            going = k;
        }
    }
    while (going != NULL) {
        struct tl_eff_kernel *k = going;
        going = k->next;
        tl_eff_profile_keep(k);
        tl_eff_variants_free(k);
        k->next = dead;
        dead = k;
    }
    bury_dead();
}

void tl_eff_kernels_keep(void)
{
    tl_eff_assert_locked();
    for (uint32_t i = 0; i < SLOTS; i++) {
        for (const struct tl_eff_kernel *k = kernels[i]; k != NULL; k = k->next)
            tl_eff_profile_keep(k);
    }
}

/* --- one launch ------------------------------------------------------------------------------- */

static uint32_t count_blocks(const uint32_t grid[3])
{
    uint64_t n = (uint64_t)grid[0] * grid[1];
    if (n > INT32_MAX || n * grid[2] > INT32_MAX)
        return 0;
    return (uint32_t)(n * grid[2]);
}

static bool is_within_limits(struct tl_eff_kernel *k, const struct tl_eff_launch *l)
{
    uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    for (uint32_t i = 0; i < 3; i++) {
        if (l->grid[i] == 0 || l->block[i] == 0 || l->block[i] > 1024)
            return false;
    }
    if (l->block[2] > 64 || l->grid[1] > 65535 || l->grid[2] > 65535 || l->grid[0] > INT32_MAX)
        return false;
    if (l->shared_bytes > (uint32_t)k->max_dynamic) { /* it may have been raised since */
        CUfunction f = k->handle;
        if (k->is_library &&
            tl_eff_real.cuKernelGetFunction(&f, (CUkernel)k->handle) != CUDA_SUCCESS)
            return false;
        tl_eff_real.cuFuncGetAttribute(&k->max_dynamic,
                                       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f);
    }
    return threads <= (uint64_t)k->max_threads && l->shared_bytes <= (uint32_t)k->max_dynamic;
}

TL_EFF_LOCKED static bool is_tried(const struct tl_eff_kernel *k, const uint32_t block[3])
{
    for (uint32_t i = 0; i < k->n_shapes; i++) {
        if (memcmp(k->shapes[i], block, sizeof k->shapes[i]) == 0)
            return true;
    }
    return false;
}

TL_EFF_UNLOCKED static void note_tried(struct tl_eff_kernel *k, const uint32_t block[3])
{
    tl_eff_lock();
    TL_CHECK(k->n_shapes <= TL_EFF_MAX_BLOCKSHAPES);
    if (!is_tried(k, block))
        memcpy(k->shapes[k->n_shapes < TL_EFF_MAX_BLOCKSHAPES ? k->n_shapes++ : 0], block,
               sizeof k->shapes[0]);
    tl_eff_unlock();
}

/* Parameters that come as one buffer, which kernels without any need not have.  NULL if there is
 * none of that size, or something else comes with it. */
static const uint8_t *buffer_of(const struct tl_eff_kernel *k, void **extra)
{
    const uint8_t *buffer = k->param_bytes == 0 ? (const uint8_t *)"" : NULL;
    size_t n = 0;
    for (uint32_t i = 0; extra != NULL && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            n = *(const size_t *)extra[i + 1];
        else
            return NULL;
    }
    return n >= k->param_bytes ? buffer : NULL;
}

/* The parameters as one buffer.  False if they come in a way that cannot be copied. */
static bool gather(const struct tl_eff_kernel *k, uint8_t *to, void **params, void **extra)
{
    if (params != NULL) {
        for (uint32_t i = 0; i < k->n_params; i++)
            memcpy(to + k->params[i].offset, params[i], k->params[i].size);
        return extra == NULL;
    }
    const uint8_t *buffer = buffer_of(k, extra);
    if (buffer != NULL)
        memcpy(to, buffer, k->param_bytes);
    return buffer != NULL;
}

static uint64_t sizes_of(const struct tl_eff_kernel *k, void **params, void **extra)
{
    const uint8_t *buffer = params == NULL ? buffer_of(k, extra) : NULL;
    uint64_t h = 0;
    for (uint32_t i = 0; i < k->n_params && (params != NULL || buffer != NULL); i++)
        h = tl_eff_sizes(h, params != NULL ? params[i] : buffer + k->params[i].offset,
                         k->params[i].size);
    return h;
}

struct tl_eff_item *tl_eff_launch_item(const struct tl_eff_launch *shape, void **params,
                                       void **extra)
{
    struct tl_eff_item *item = tl_eff_item_create(TL_EFF_KERNEL);
    uint8_t *bytes = calloc(1, shape->kernel->param_bytes + TL_EFF_EXTRA_BYTES);
    if (item == NULL || bytes == NULL || !gather(shape->kernel, bytes, params, extra)) {
        free(item);
        free(bytes);
        return NULL;
    }
    item->launch = *shape;
    item->launch.params = bytes;
    item->launch.param_bytes = shape->kernel->param_bytes;
    item->owned = bytes;
    return item;
}

CUresult tl_eff_launch_whole(const struct tl_eff_launch *l, CUstream stream)
{
    size_t n = l->param_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, l->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
                     CU_LAUNCH_PARAM_END};
    return tl_eff_launch_form(l, l->kernel->handle, l->grid, l->shared_bytes, stream, NULL,
                              n > 0 ? extra : NULL);
}

/* Whether this launch may go to the driver at once, whole, from the calling thread. */
TL_EFF_LOCKED static bool goes_at_once(struct tl_eff_stream *s, struct tl_eff_launch *l,
                                       uint64_t now)
{
    if (tl_eff.settings->force >= 0 || !tl_eff_passes(s) || !tl_eff_permit_holds(now))
        return false;
    uint64_t ns = tl_eff_predicted_ns(l->profile);
    bool is_known = l->profile != NULL && l->profile->whole_ns != 0;
    if (!is_known || tl_eff_wants_sample(l->profile) || tl_eff_permit.grant.blocks_per_s != 0)
        return false; /* the executor measures it */
    return tl_eff_plan_goes_whole(ns, tl_eff_turnaround_ns(), tl_eff_is_alone()) &&
           tl_eff_has_room(s, ns);
}

/* The caller's own launch, when its turn has come. */
TL_EFF_UNLOCKED static CUresult in_turn(struct tl_eff_stream *s, struct tl_eff_kernel *k,
                                        const struct tl_eff_call *call,
                                        const struct tl_eff_launch *l)
{
    struct tl_eff_turn turn;
    tl_eff_turn_begin(&turn, s, k == NULL || !k->is_gang);
    CUresult r = tl_eff_invoke(call);
    if (r == CUDA_SUCCESS && !s->is_capturing) {
        tl_eff_lock();
        tl_eff_unmarked(
            s, l->profile != NULL ? tl_eff_predicted_ns(l->profile) : tl_eff_predicted_ns(NULL),
            tl_eff_now());
        tl_eff_unlock();
        if (k != NULL) {
            note_tried(k, l->block);
            tl_record_launched(k->record, TL_RUNG_WHOLE, l->blocks);
        }
        tl_eff_sum_launched(s->context, 1, l->blocks);
    }
    tl_eff_turn_end(&turn, r);
    tl_eff_ring();
    return r;
}

/* `direct` is the job's own call with the stream's place still open; `at` is that place (-1: it
 * stands in the configuration, and was set there by the caller). */
TL_EFF_UNLOCKED static CUresult launch(struct tl_eff_stream *s, struct tl_eff_launch *l,
                                       CUfunction f, void **params, void **extra,
                                       struct tl_eff_call *direct)
{
    struct tl_eff_kernel *k = tl_eff_kernel(f, s->context);
    uint64_t now = tl_eff_now();
    l->kernel = k;
    l->blocks = count_blocks(l->grid);
    l->queued_ns = now;
    if (s->is_capturing)
        return tl_eff_invoke(direct);
    if (k != NULL)
        tl_record_op(k->record, tl_eff.shim->op());
    if (k != NULL && l->objection != NULL && !atomic_exchange(&k->was_objected_to, true))
        tl_eff_note("%s runs whole: %s", k->name, l->objection);
    if (k == NULL || k->is_unknown || l->objection != NULL || !is_within_limits(k, l))
        return in_turn(s, k, direct, l);
    l->sizes = sizes_of(k, params, extra);
    tl_eff_lock();
    /* a large one with somebody above goes to the executor at once: it would run whole here */
    bool is_new = !is_tried(k, l->block) && tl_eff.settings->force < 0 &&
                  (tl_eff_is_alone() ||
                   !tl_eff_plan_is_large(l->blocks, (uint32_t)s->context->n_sms, 1));
    l->profile = tl_eff_profile(k, l);
    if (is_new) {
        tl_eff_unlock();
        return in_turn(s, k, direct, l);
    }
    tl_eff_make_room(s);
    if (goes_at_once(s, l, now)) {
        l->profile->n_launches++;
        tl_eff_unmarked(s, tl_eff_predicted_ns(l->profile), now);
        tl_eff_direct_begin();
        tl_eff_unlock();
        tl_record_launched(k->record, TL_RUNG_WHOLE, l->blocks);
        tl_eff_sum_launched(s->context, 1, l->blocks);
        CUresult r = tl_eff_invoke(direct);
        tl_eff_direct_end();
        return r;
    }
    tl_eff_unlock();
    struct tl_eff_item *item = tl_eff_launch_item(l, params, extra);
    if (item == NULL)
        return in_turn(s, k, direct, l);
    tl_eff_lock();
    tl_eff_enqueue(s, item);
    tl_eff_unlock();
    return CUDA_SUCCESS;
}

/* --- hooks ------------------------------------------------------------------------------------ */

/* cuLaunchKernel has eleven arguments; a call that is kept has room for nine.  Its shape travels in
 * a configuration. */
static CUresult call_kernel(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    return tl_eff_real.cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX,
                                      c->blockDimY, c->blockDimZ, c->sharedMemBytes, c->hStream,
                                      params, extra);
}

static CUresult call_cooperative(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    (void)extra;
    return tl_eff_real.cuLaunchCooperativeKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ,
                                                 c->blockDimX, c->blockDimY, c->blockDimZ,
                                                 c->sharedMemBytes, c->hStream, params);
}

/* A launch with attributes, or with an objection to cutting it. */
static CUresult launch_config(void *function, const CUlaunchConfig *config, CUfunction f,
                              void **params, void **extra, const char *objection,
                              bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(config->hStream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    CUlaunchConfig c = *config;
    c.hStream = s->handle;
    struct tl_eff_launch l = {.grid = {c.gridDimX, c.gridDimY, c.gridDimZ},
                              .block = {c.blockDimX, c.blockDimY, c.blockDimZ},
                              .shared_bytes = c.sharedMemBytes,
                              .objection = objection};
    tl_eff_attributes_take(&l, c.attrs, c.numAttrs);
    struct tl_eff_call direct = {
        function, 4, {(uintptr_t)&c, (uintptr_t)f, (uintptr_t)params, (uintptr_t)extra}};
    return launch(s, &l, f, params, extra, &direct);
}

struct tl_eff_packed tl_eff_packed(struct tl_eff_context *c,
                                   const CUDA_KERNEL_NODE_PARAMS_v2 *shape, void *params, size_t n)
{
    struct tl_eff_kernel *k = tl_eff_kernel(shape->func, c);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
                     CU_LAUNCH_PARAM_END};
    struct tl_eff_launch l = {.grid = {shape->gridDimX, shape->gridDimY, shape->gridDimZ},
                              .block = {shape->blockDimX, shape->blockDimY, shape->blockDimZ},
                              .shared_bytes = shape->sharedMemBytes};
    struct tl_eff_packed out = {.wants_sample = true};
    if (k == NULL || k->is_unknown)
        return out;
    l.sizes = sizes_of(k, NULL, extra);
    tl_eff_lock();
    const struct tl_eff_profile *p = tl_eff_profile(k, &l);
    out.ns = p != NULL ? p->whole_ns : 0;
    out.wants_sample = p == NULL || tl_eff_wants_sample(p);
    tl_eff_unlock();
    out.is_gang = k->is_gang;
    out.function = k->function;
    return out;
}

CUresult tl_eff_launch_packed(struct tl_eff_stream *s, const CUDA_KERNEL_NODE_PARAMS_v2 *shape,
                              void *params, size_t n, const CUlaunchAttribute *attributes,
                              unsigned n_attributes)
{
    CUlaunchConfig config = {.gridDimX = shape->gridDimX,
                             .gridDimY = shape->gridDimY,
                             .gridDimZ = shape->gridDimZ,
                             .blockDimX = shape->blockDimX,
                             .blockDimY = shape->blockDimY,
                             .blockDimZ = shape->blockDimZ,
                             .sharedMemBytes = shape->sharedMemBytes,
                             .hStream = s->handle,
                             .attrs = (CUlaunchAttribute *)attributes,
                             .numAttrs = n_attributes};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
                     CU_LAUNCH_PARAM_END};
    return launch_config(n_attributes > 0 ? (void *)tl_eff_real.cuLaunchKernelEx
                                          : (void *)call_kernel,
                         &config, shape->func, NULL, n > 0 ? extra : NULL, NULL, false);
}

#define SHAPE_PARAMS                                                                               \
    CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,    \
        unsigned shared, CUstream stream, void **params
#define SHAPE                                                                                      \
    &(CUlaunchConfig)                                                                              \
    {                                                                                              \
        .gridDimX = gx, .gridDimY = gy, .gridDimZ = gz, .blockDimX = bx, .blockDimY = by,          \
        .blockDimZ = bz, .sharedMemBytes = shared, .hStream = stream                               \
    }

static CUresult hook_cuLaunchKernel(SHAPE_PARAMS, void **extra)
{
    return launch_config((void *)call_kernel, SHAPE, f, params, extra, NULL, false);
}

static CUresult hook_cuLaunchKernel_ptsz(SHAPE_PARAMS, void **extra)
{
    return launch_config((void *)call_kernel, SHAPE, f, params, extra, NULL, true);
}

static CUresult hook_cuLaunchCooperativeKernel(SHAPE_PARAMS)
{
    return launch_config((void *)call_cooperative, SHAPE, f, params, NULL,
                         "its launch is cooperative", false);
}

static CUresult hook_cuLaunchCooperativeKernel_ptsz(SHAPE_PARAMS)
{
    return launch_config((void *)call_cooperative, SHAPE, f, params, NULL,
                         "its launch is cooperative", true);
}

static CUresult hook_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params,
                                      void **extra)
{
    if (config == NULL || (config->numAttrs > 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return launch_config((void *)tl_eff_real.cuLaunchKernelEx, config, f, params, extra, NULL,
                         false);
}

static CUresult hook_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f,
                                           void **params, void **extra)
{
    if (config == NULL || (config->numAttrs > 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return launch_config((void *)tl_eff_real.cuLaunchKernelEx, config, f, params, extra, NULL,
                         true);
}

const struct tl_hook tl_eff_kernel_hooks[] = {
    {"cuLaunchKernel", (void *)hook_cuLaunchKernel},
    {"cuLaunchKernel_ptsz", (void *)hook_cuLaunchKernel_ptsz},
    {"cuLaunchKernelEx", (void *)hook_cuLaunchKernelEx},
    {"cuLaunchKernelEx_ptsz", (void *)hook_cuLaunchKernelEx_ptsz},
    {"cuLaunchCooperativeKernel", (void *)hook_cuLaunchCooperativeKernel},
    {"cuLaunchCooperativeKernel_ptsz", (void *)hook_cuLaunchCooperativeKernel_ptsz},
    {NULL, NULL},
};
