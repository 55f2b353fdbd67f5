/* Variants that are made of PTX: rewritten, or found on disk, compiled by the real driver's linker,
 * loaded in a moment when the context is idle, and launched with no blocks, which makes a driver
 * that compiles late do it here and not where it would be waited for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/build.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/store.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/texts.h"
#include "runtime/effort/variant.h"

const enum tl_ptx_variant tl_eff_kind_of[TL_RUNG_GATE] = {
    [TL_RUNG_PERSISTENT] = TL_PTX_PERSISTENT,
    [TL_RUNG_TICKET] = TL_PTX_TICKET,
    [TL_RUNG_SLICE] = TL_PTX_SLICE,
};

/* The text of a variant, from disk if an earlier run has kept it.  0, -EPERM (the verdict, in the
 * message), -ENOENT (no image, or no PTX that belongs to what runs), or what the rewriter failed
 * with. */
TL_REQUIRES(tl_eff_build_lock)
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
                                                  .kind = tl_eff_kind_of[v->rung],
                                                  .dims = v->dims,
                                                  .max_registers = max_registers,
                                                  .driver = version,
                                                  .rewriter = TL_PTX_REWRITER_VERSION});
    if (!tl_eff.trusts_waits && tl_eff_store_get(key, out) == 0)
        return 0;
    struct tl_ptx_rewritten r = {0};
    struct tl_ptx_verdict verdict;
    struct tl_ptx_options options = {.variant = tl_eff_kind_of[v->rung],
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
        if (!tl_eff_put(v->kernel->context, table + i * sizeof value, &value, sizeof value))
            return tl_error_set(err, -EIO, "its table of variables cannot be written");
    }
    return 0;
}

/* A launch in which no block does anything.  A slice has no such launch.  -EIO if the driver cannot
 * run it. */
TL_EFF_UNLOCKED static int warm_up(struct tl_eff_variant *v)
{
    struct tl_eff_context *c = v->kernel->context;
    CUresult r = CUDA_SUCCESS;
    if (v->rung == TL_RUNG_SLICE || c->scratch == 0)
        return 0;
    uint8_t *params = calloc(1, v->param_bytes + 8);
    if (params != NULL) {
        struct tl_eff_extra x = {.grid = {1, 1, 1}, .counter = c->scratch + 12};
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
TL_EFF_UNLOCKED TL_REQUIRES(tl_eff_build_lock) static int try_limit(struct tl_eff_variant *v,
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
    int rc = tl_eff_find_moment(v, is_executor);
    bool is_loaded = rc == 0 && is_made && load(&limited, &code, &module, &function, NULL) == 0;
    if (rc == 0 && !is_loaded) /* a compiler may not be able to keep to it */
        tl_eff_log(2, "%s: no %s form with at most %u registers; the one without a limit is used",
                   v->kernel->name, tl_rung_name(v->rung), limit);
    if (is_loaded && tl_ptx_limit_helps(cost, cost_of(function))) {
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
TL_EFF_UNLOCKED TL_REQUIRES(tl_eff_build_lock) static int bring(struct tl_eff_variant *v,
                                                                struct tl_eff_rewritten *r,
                                                                bool is_executor,
                                                                struct tl_error *err)
{
    struct compiled code;
    compile(r, &code);
    int rc = tl_eff_find_moment(v, is_executor);
    if (rc == 0) {
        if (v->module != NULL) /* of an earlier try */
            tl_eff_real.cuModuleUnload(v->module);
        tl_eff_make_bench(v->kernel->context);
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
int tl_eff_build_text(struct tl_eff_variant *v, bool is_executor, struct tl_error *err)
{
    struct tl_eff_rewritten r = {0};
    int rc = rewrite(v, 0, &r, err);
    if (rc == 0 && (r.original_bytes != v->kernel->param_bytes ||
                    r.param_bytes > r.original_bytes + TL_EFF_EXTRA_BYTES))
        rc = tl_error_set(err, -EINVAL, "the driver has other parameters for it than its PTX");
    if (rc == 0)
        rc = bring(v, &r, is_executor, err);
    if (rc == 0 && tl_eff_set_shared(v, v->shared_bytes) < 0)
        rc = tl_error_set(err, -ENOSPC, "no room for the slot in shared memory");
    if (rc == 0 && warm_up(v) < 0)
        rc = tl_error_set(err, -EIO, "the driver cannot run the rewritten form");
    tl_eff_rewritten_finish(&r);
    return rc;
}
