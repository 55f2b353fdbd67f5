/* The rewritten forms of a kernel.
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
#include "tally/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "runtime/effort/executor.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/qualified.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/store.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/texts.h"

/* held while building */
static struct tl_mutex build_lock = TL_MUTEX_INITIALIZER;
static struct tl_eff_variant *queue TL_EFF_GUARDED, **queue_end TL_EFF_GUARDED = &queue;
static bool has_builder TL_EFF_GUARDED;
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER;
static pthread_cond_t built = PTHREAD_COND_INITIALIZER;
static struct tl_eff_variant *in_work TL_EFF_GUARDED; /* what the builder is at */

/* --- building --------------------------------------------------------------------------------- */

/* The text of a variant, from disk if an earlier run has kept it.  0, -EPERM (the verdict, in the
 * message), -ENOENT (no image, or no PTX that belongs to what runs), or what the rewriter failed
 * with. */
TL_REQUIRES(build_lock)
static int rewrite(struct tl_eff_variant *v, uint32_t max_registers, struct tl_eff_rewritten *out,
                   struct tl_error *err)
{
    struct tl_eff_kernel *k = v->kernel;
    if (k->captured == NULL || k->captured->image == NULL)
        return tl_error_set(err, -ENOENT, "its image was not seen");
    struct tl_eff_text x;
    int version = 0, rc = tl_eff_text(k->captured->image, k->name, k->ptx_version, &x, err);
    if (rc < 0)
        return rc;
    char key[TL_EFF_KEY_BYTES];
    tl_eff_real.cuDriverGetVersion(&version);
    tl_eff_store_key(key, &(struct tl_eff_origin){.text = x.digest,
                                                  .kernel = k->name,
                                                  .kind = v->kind,
                                                  .dims = v->dims,
                                                  .max_registers = max_registers,
                                                  .driver = version,
                                                  .rewriter = TL_PTX_REWRITER_VERSION});
    if (!tl_eff.trusts_waits && tl_eff_store_get(key, out) == 0)
        return 0;
    struct tl_ptx_rewritten r = {0};
    struct tl_ptx_verdict verdict;
    struct tl_ptx_options options = {.variant = v->kind,
                                     .grid_dims = v->dims,
                                     .max_registers = max_registers,
                                     .trusts_waits = tl_eff.trusts_waits};
    rc = tl_ptx_rewrite(x.index, tl_str_of(k->name), &options, &r, &verdict, err);
    if (rc == -EPERM)
        return tl_error_set(err, rc, "%s: it %s", tl_ptx_reason_code(verdict.reason),
                            tl_ptx_reason_text(verdict.reason));
    if (rc < 0)
        return rc;
    rc = tl_eff_rewritten_copy(out, &r);
    tl_ptx_rewritten_finish(&r);
    if (rc == 0 && !tl_eff.trusts_waits)
        tl_eff_store_put(key, out);
    return rc;
}

static CUresult variable_address(const struct tl_eff_kernel *k, const char *name,
                                 CUdeviceptr *address)
{
    size_t bytes;
    if (k->module != NULL)
        return tl_eff_real.cuModuleGetGlobal_v2(address, &bytes, k->module, name);
    if (k->library != NULL && tl_eff_real.cuLibraryGetGlobal != NULL)
        return tl_eff_real.cuLibraryGetGlobal(address, &bytes, k->library, name);
    return CUDA_ERROR_NOT_FOUND;
}

/* Writes a few bytes, in the builder's own stream: the legacy one belongs to the job, and cannot be
 * used while a blocking stream is captured. */
static bool put(struct tl_eff_context *c, CUdeviceptr to, const void *from, size_t n)
{
    return tl_eff_real.cuMemcpyHtoDAsync_v2(to, from, n, c->work) == CUDA_SUCCESS &&
           tl_eff_real.cuStreamSynchronize(c->work) == CUDA_SUCCESS;
}

static int find_variables(struct tl_eff_variant *v, const struct tl_eff_rewritten *r,
                          struct tl_error *err)
{
    CUdeviceptr address;
    for (uint32_t i = 0; i < r->n_args; i++) {
        if (r->args[i].kind != TL_PTX_ARG_VARIABLE)
            continue;
        if (variable_address(v->kernel, r->args[i].variable, &address) != CUDA_SUCCESS)
            return tl_error_set(err, -ENOENT, "the driver does not tell where its variable %s is",
                                r->args[i].variable);
        v->variables[i] = address;
    }
    CUdeviceptr table;
    size_t bytes;
    if (r->n_table == 0)
        return 0;
    if (tl_eff_real.cuModuleGetGlobal_v2(&table, &bytes, v->module, r->table_name) !=
            CUDA_SUCCESS ||
        bytes < r->n_table * sizeof(uint64_t))
        return tl_error_set(err, -ENOENT, "its table of variables is missing");
    for (uint32_t i = 0; i < r->n_table; i++) {
        uint64_t value;
        if (variable_address(v->kernel, r->table[i], &address) != CUDA_SUCCESS)
            return tl_error_set(err, -ENOENT, "the driver does not tell where its variable %s is",
                                r->table[i]);
        value = address;
        if (!put(v->kernel->context, table + i * sizeof value, &value, sizeof value))
            return tl_error_set(err, -EIO, "its table of variables cannot be written");
    }
    return 0;
}

/* The rewriter and tallyd, which know nothing of each other, meet here. */
_Static_assert((int)TL_SHARE_WORDS == (int)TL_PTX_STOP_WORDS,
               "a variant polls as many words as tallyd hands out");

void tl_eff_variant_args(const struct tl_eff_variant *v, uint8_t *params,
                         const struct tl_eff_extra *x)
{
    struct tl_ptx_extra extra = {.grid = {x->grid[0], x->grid[1], x->grid[2]},
                                 .first = x->first,
                                 .blocks = x->blocks,
                                 .batch_mask = x->batch_mask,
                                 .counter = x->counter,
                                 .variables = v->variables};
    for (uint32_t i = 0; i < TL_PTX_STOP_WORDS; i++)
        extra.words[i] = x->words[i];
    tl_ptx_put_args(v->args, v->n_args, &extra, params);
}

/* A launch in which no block does anything.  A slice has no such launch.  -EIO if the driver cannot
 * run it. */
TL_EFF_UNLOCKED static int warm_up(struct tl_eff_variant *v)
{
    struct tl_eff_context *c = v->kernel->context;
    CUresult r = CUDA_SUCCESS;
    if (v->kind == TL_PTX_SLICE || c->scratch == 0)
        return 0;
    uint8_t *params = calloc(1, v->param_bytes + 8);
    if (params != NULL) {
        struct tl_eff_extra x = {.grid = {1, 1, 1}, .counter = c->scratch + 8};
        for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
            x.words[i] = c->scratch;
        size_t n = v->param_bytes;
        void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
                         CU_LAUNCH_PARAM_END};
        tl_eff_variant_args(v, params, &x);
        r = tl_eff_real.cuLaunchKernel(v->function, 1, 1, 1, v->block[0], v->block[1], v->block[2],
                                       TL_PTX_SHARED_BYTES(v->shared_bytes), c->work, NULL, extra);
        tl_eff_real.cuStreamSynchronize(c->work);
    }
    free(params);
    return r == CUDA_SUCCESS ? 0 : -EIO;
}

TL_EFF_UNLOCKED static int set_shared(struct tl_eff_variant *v, uint32_t dynamic)
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

static struct tl_ptx_cost cost_of(CUfunction f)
{
    int registers = 0, local = 0;
    tl_eff_real.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f);
    tl_eff_real.cuFuncGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, f);
    return (struct tl_ptx_cost){(uint32_t)registers, (uint32_t)local};
}

/* A rewritten form as the driver's linker compiles it, which takes long and disturbs nobody. */
struct compiled {
    CUlinkState linker;
    const void *image; /* the linker's, or the text itself where there is none */
};

static void compile(const struct tl_eff_rewritten *r, struct compiled *out)
{
    void *image;
    size_t n;
    *out = (struct compiled){.image = r->text};
    if (tl_eff_real.cuLinkCreate_v2 == NULL || tl_eff_real.cuLinkAddData_v2 == NULL ||
        tl_eff_real.cuLinkComplete == NULL || tl_eff_real.cuLinkDestroy == NULL ||
        tl_eff_real.cuLinkCreate_v2(0, NULL, NULL, &out->linker) != CUDA_SUCCESS)
        return;
    if (tl_eff_real.cuLinkAddData_v2(out->linker, CU_JIT_INPUT_PTX, r->text, strlen(r->text) + 1,
                                     r->entry, 0, NULL, NULL) == CUDA_SUCCESS &&
        tl_eff_real.cuLinkComplete(out->linker, &image, &n) == CUDA_SUCCESS)
        out->image = image;
}

static void compiled_finish(struct compiled *c)
{
    if (c->linker != NULL)
        tl_eff_real.cuLinkDestroy(c->linker);
    c->linker = NULL;
}

/* In a moment; see runtime/effort/moment.h. */
static int load(const struct tl_eff_rewritten *r, const struct compiled *code, CUmodule *module,
                CUfunction *function, struct tl_error *err)
{
    *module = NULL;
    if (tl_eff_real.cuModuleLoadData(module, code->image) == CUDA_SUCCESS &&
        tl_eff_real.cuModuleGetFunction(function, *module, r->entry) == CUDA_SUCCESS) {
        if (tl_eff_real.cuFuncLoad != NULL)
            tl_eff_real.cuFuncLoad(*function); /* now, not when it is launched */
        return 0;
    }
    if (*module != NULL)
        tl_eff_real.cuModuleUnload(*module);
    *module = NULL;
    return tl_error_set(err, -EINVAL, "the driver refused the rewritten form");
}

/* A moment to load in: 0; -EAGAIN if there is none just now, which is all that the executor waits;
 * -ECANCELED if nobody wants the variant any more, -EBUSY if there never was one. */
TL_EFF_UNLOCKED static int find_moment(const struct tl_eff_variant *v, bool is_executor)
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

/* What trying variants needs of a context, in a moment.  Without it they are not tried. */
static void make_bench(struct tl_eff_context *c)
{
    static const uint64_t zeroes[8];
    if (c->work == NULL &&
        tl_eff_real.cuStreamCreate(&c->work, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        c->work = NULL;
    if (c->work == NULL || c->scratch != 0)
        return;
    if (tl_eff_real.cuMemAlloc_v2(&c->scratch, sizeof zeroes) != CUDA_SUCCESS ||
        !put(c, c->scratch, zeroes, sizeof zeroes))
        c->scratch = 0;
}

/* If the variant takes many more registers than the original, fewer of its blocks fit; one with a
 * limit may be better.  0 if not. */
static uint32_t limit_of(const struct tl_eff_variant *v, struct tl_ptx_cost *cost)
{
    CUfunction original = v->kernel->handle;
    if (v->kernel->is_library &&
        tl_eff_real.cuKernelGetFunction(&original, (CUkernel)v->kernel->handle) != CUDA_SUCCESS)
        return 0;
    *cost = cost_of(original);
    return tl_ptx_register_limit(*cost, cost_of(v->function));
}

/* Loads the form with a limit, and keeps the better one of both.  The moment ends while it is
 * compiled; 0, or there is none any more. */
TL_EFF_UNLOCKED TL_REQUIRES(build_lock) static int try_limit(struct tl_eff_variant *v,
                                                             struct tl_eff_rewritten *r,
                                                             bool is_executor)
{
    CUfunction function;
    CUmodule module = NULL;
    struct compiled code;
    struct tl_eff_rewritten limited = {0};
    struct tl_ptx_cost cost;
    uint32_t limit = limit_of(v, &cost);
    if (limit == 0)
        return 0;
    tl_eff_moment_end();
    bool is_made = rewrite(v, limit, &limited, NULL) == 0;
    if (is_made)
        compile(&limited, &code);
    int rc = find_moment(v, is_executor);
    if (rc == 0 && is_made && load(&limited, &code, &module, &function, NULL) == 0 &&
        tl_ptx_limit_helps(cost, cost_of(function))) {
        struct tl_eff_rewritten without = *r;
        *r = limited;
        limited = without;
        CUmodule old = v->module;
        v->module = module;
        v->function = function;
        module = old;
    }
    if (module != NULL)
        tl_eff_real.cuModuleUnload(module);
    if (is_made)
        compiled_finish(&code);
    tl_eff_rewritten_finish(&limited);
    return rc;
}

/* What of the rewritten form is kept. */
static int keep(struct tl_eff_variant *v, const struct tl_eff_rewritten *r, struct tl_error *err)
{
    if (tl_eff_real.cuFuncGetAttribute(&v->max_dynamic,
                                       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       v->function) != CUDA_SUCCESS)
        v->max_dynamic = 0;
    v->n_args = r->n_args;
    v->conditions = r->conditions;
    v->param_bytes = r->param_bytes;
    v->uses_slot = r->uses_slot;
    v->args = calloc(r->n_args + 1, sizeof *v->args);
    v->variables = calloc(r->n_args + 1, sizeof *v->variables);
    if (v->args == NULL || v->variables == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the rewritten form");
    memcpy(v->args, r->args, r->n_args * sizeof *v->args);
    return find_variables(v, r, err);
}

/* All that may wait for the context, in moments of its own. */
TL_EFF_UNLOCKED TL_REQUIRES(build_lock) static int bring(struct tl_eff_variant *v,
                                                         struct tl_eff_rewritten *r,
                                                         bool is_executor, struct tl_error *err)
{
    struct compiled code;
    compile(r, &code);
    int rc = find_moment(v, is_executor);
    if (rc == 0) {
        if (v->module != NULL) /* of an earlier try */
            tl_eff_real.cuModuleUnload(v->module);
        make_bench(v->kernel->context);
        rc = load(r, &code, &v->module, &v->function, err);
        if (rc == 0) {
            rc = try_limit(v, r, is_executor);
            if (rc == 0)
                rc = keep(v, r, err);
            else
                goto out; /* there is no moment to end */
        }
        tl_eff_moment_end();
    }
out:
    compiled_finish(&code);
    if (rc == -EBUSY)
        return tl_error_set(err, rc, "the context was never idle, so that it could not be loaded");
    return rc;
}

/* Everything but the state. */
TL_EFF_UNLOCKED TL_REQUIRES(build_lock) static int build(struct tl_eff_variant *v, bool is_executor,
                                                         struct tl_error *err)
{
    struct tl_eff_rewritten r = {0};
    int rc = rewrite(v, 0, &r, err);
    if (rc == 0 && (r.original_bytes != v->kernel->param_bytes ||
                    r.param_bytes > r.original_bytes + TL_EFF_EXTRA_BYTES))
        rc = tl_error_set(err, -EINVAL, "the driver has other parameters for it than its PTX");
    if (rc == 0)
        rc = bring(v, &r, is_executor, err);
    if (rc == 0 && set_shared(v, v->shared_bytes) < 0)
        rc = tl_error_set(err, -ENOSPC, "no room for the slot in shared memory");
    if (rc == 0 && warm_up(v) < 0)
        rc = tl_error_set(err, -EIO, "the driver cannot run the rewritten form");
    tl_eff_rewritten_finish(&r);
    return rc;
}

/* The lock is given up meanwhile. */
TL_EFF_LOCKED static void build_one(struct tl_eff_variant *v, bool is_executor)
{
    tl_eff_assert_locked();
    TL_CHECK(v->state == TL_EFF_BUILDING);
    struct tl_error err = {0};
    struct tl_eff_kernel *k = v->kernel;
    uint64_t begin = tl_eff_now();
    tl_eff_unlock();
    tl_mutex_lock(&build_lock);
    tl_eff_make_current(k->context);
    int rc = build(v, is_executor, &err);
    tl_mutex_unlock(&build_lock);
    tl_record_spanned(tl_eff.record, TL_SPAN_COMPILE, k->record, 0, begin, tl_eff_now());
    if (rc < 0 && rc != -EAGAIN && rc != -ECANCELED) {
        tl_eff_note("%s has no %s variant: %s", k->name, tl_ptx_variant_name(v->kind), err.text);
        tl_eff_log(3, "%s has no %s variant: %s", k->name, tl_ptx_variant_name(v->kind), err.text);
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

static bool conditions_hold(const struct tl_eff_variant *v, const struct tl_eff_launch *l)
{
    if ((v->conditions & TL_PTX_IF_WARPS_ARE_ROWS) != 0 && (l->block[1] > 1 || l->block[2] > 1) &&
        l->block[0] % 32 != 0)
        return false;
    return (v->conditions & TL_PTX_IF_GRID_IS_LINE) == 0 || (l->grid[1] == 1 && l->grid[2] == 1);
}

struct tl_eff_variant *tl_eff_variant(const struct tl_eff_launch *l, enum tl_ptx_variant kind,
                                      bool now, bool *may_come)
{
    tl_eff_assert_locked();
    struct tl_eff_kernel *k = l->kernel;
    uint32_t dims = l->grid[2] > 1 ? 3 : l->grid[1] > 1 ? 2 : 1;
    struct tl_eff_variant *v = k->variants[kind][dims - 1];
    *may_come = false;
    if (l->blocks == 0 || k->captured->image == NULL || !tl_eff_is_qualified(k->context, kind))
        return NULL;
    if (v == NULL) {
        v = calloc(1, sizeof *v);
        if (v == NULL)
            return NULL;
        v->kernel = k;
        v->kind = kind;
        v->dims = dims;
        memcpy(v->block, l->block, sizeof v->block);
        v->shared_bytes = l->shared_bytes;
        k->variants[kind][dims - 1] = v;
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
    if (v->state != TL_EFF_READY || !conditions_hold(v, l))
        return NULL;
    tl_eff_unlock();
    int rc = set_shared(v, l->shared_bytes);
    tl_eff_lock();
    return rc == 0 ? v : NULL;
}

void tl_eff_variants_free(struct tl_eff_kernel *k)
{
    tl_eff_assert_locked();
    for (uint32_t i = 0; i < TL_PTX_VARIANTS * 3; i++) {
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
    tl_mutex_init(&build_lock);
    tl_eff_texts_forked();
    queued = built = fresh;
    queue = in_work = NULL;
    queue_end = &queue;
    has_builder = false;
}
