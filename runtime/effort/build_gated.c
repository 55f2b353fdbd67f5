/* Variants that are made of machine code: the kernel as it is, with a gate in front of each block
 * (docs/gate.md).
 *
 *     image ─► cubin of the device's architecture ─► may it be gated? (whose.c) can it be? (cubin/)
 *        module without variables ─► gated, loaded as a second module, in a moment when the context is idle
 *        module with variables    ─► its twin, K$gate, which came with it when it was loaded (twins.c)
 *
 * What is gated stays in memory: no code of others is written to disk. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/build.h"
#include "runtime/effort/code.h"
#include "runtime/effort/forge.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/supply.h"
#include "runtime/effort/variant.h"

/* --- may it, can it --------------------------------------------------------------------------- */

static int may_be_gated(const struct tl_eff_kernel *k, struct tl_error *err)
{
    const struct tl_captured_image *image = k->captured->image;
    struct tl_eff_gate_facts f = {.mode = tl_eff.settings->gate,
                                  .is_forced = tl_eff.settings->force == TL_RUNG_GATE,
                                  .whose = tl_eff_whose(image->source, image->loader),
                                  .examined = k->context->examined};
    const char *objection = tl_eff_gate_objection(&f);
    return objection == NULL ? 0 : tl_error_set(err, -EPERM, "%s", objection);
}

static int can_be_gated(const struct tl_eff_kernel *k, const struct tl_cubin_entry *e,
                        struct tl_error *err)
{
    if (e->reason != TL_CUBIN_REASON_OK)
        return tl_error_set(err, -EPERM, "%s: it %s%s%s%s", tl_cubin_reason_code(e->reason),
                            tl_cubin_reason_text(e->reason), e->note[0] != 0 ? " (" : "", e->note,
                            e->note[0] != 0 ? ")" : "");
    if (e->cluster[0] * e->cluster[1] * e->cluster[2] > 1)
        return tl_error_set(err, -EPERM, "it is compiled for clusters");
    if (e->n_params != k->n_params || e->param_bytes != k->param_bytes ||
        e->gate_offset + sizeof(struct tl_cubin_args) > k->param_bytes + TL_EFF_EXTRA_BYTES)
        return tl_error_set(err, -EINVAL,
                            "the driver has other parameters for it than its machine code");
    if (e->wants_twin && !k->captured->image->is_twinned)
        return tl_error_set(err, -EPERM,
                            "its module has variables, and was loaded without gated twins");
    return 0;
}

/* --- loading ---------------------------------------------------------------------------------- */

/* The driver sees our parameter where the code looks for it, as far as it tells. */
static bool has_parameter(CUfunction f, const struct tl_cubin_entry *e)
{
    size_t offset = 0, size = 0;
    return tl_eff_real.cuFuncGetParamInfo == NULL ||
           (tl_eff_real.cuFuncGetParamInfo(f, e->n_params, &offset, &size) == CUDA_SUCCESS &&
            offset == e->gate_offset && size == sizeof(struct tl_cubin_args));
}

/* The twin that came with the kernel's module. */
static CUresult find_twin(struct tl_eff_variant *v)
{
    const struct tl_eff_kernel *k = v->kernel;
    CUkernel kernel;
    CUresult r = CUDA_ERROR_NOT_SUPPORTED;
    char *name;
    if (asprintf(&name, "%s" TL_CUBIN_TWIN_SUFFIX, k->name) < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (k->module != NULL)
        r = tl_eff_real.cuModuleGetFunction(&v->function, k->module, name);
    else if (tl_eff_real.cuLibraryGetKernel != NULL && tl_eff_real.cuKernelGetFunction != NULL)
        r = tl_eff_real.cuLibraryGetKernel(&kernel, k->library, name);
    if (r == CUDA_SUCCESS && k->module == NULL)
        r = tl_eff_real.cuKernelGetFunction(&v->function, kernel);
    free(name);
    return r;
}

/* In a moment; see runtime/effort/moment.h. */
static int load(struct tl_eff_variant *v, const struct tl_cubin_gated *gated,
                const struct tl_cubin_entry *e, struct tl_error *err)
{
    CUresult r;
    if (gated->bytes == NULL) {
        r = find_twin(v);
    } else {
        r = tl_eff_real.cuModuleLoadData(&v->module, gated->bytes);
        if (r != CUDA_SUCCESS)
            v->module = NULL;
        else
            r = tl_eff_real.cuModuleGetFunction(&v->function, v->module, v->kernel->name);
    }
    if (r != CUDA_SUCCESS)
        return tl_error_set(err, -EINVAL, "the driver refused the gated form (error %d)", r);
    if (!has_parameter(v->function, e))
        return tl_error_set(err, -EINVAL, "the driver does not see the gate's parameters");
    if (tl_eff_real.cuFuncLoad != NULL)
        tl_eff_real.cuFuncLoad(v->function); /* now, not when it is launched */
    if (tl_eff_real.cuFuncGetAttribute(&v->max_dynamic,
                                       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       v->function) != CUDA_SUCCESS)
        v->max_dynamic = 0;
    v->gate_offset = e->gate_offset;
    v->param_bytes = e->gate_offset + (uint32_t)sizeof(struct tl_cubin_args);
    return 0;
}

/* The words of launches that are to leave: one that says stop, where those are that do so to a
 * job's launches, and one to close.  In a moment, in which nobody makes or takes them away. */
static void choose_words(const struct tl_eff_context *c, struct tl_eff_extra *x)
{
    CUdeviceptr at = c->scratch + TL_EFF_SCRATCH_GATE;
    *x = (struct tl_eff_extra){.blocks = INT32_MAX, .counter = at + 8};
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
        x->words[i] = c->slab == NULL ? at : i == 0 ? c->always_device : c->never_device;
}

TL_EFF_UNLOCKED TL_REQUIRES(tl_eff_build_lock) static int bring(struct tl_eff_variant *v,
                                                                const struct tl_eff_code *code,
                                                                bool is_executor,
                                                                struct tl_eff_extra *x,
                                                                struct tl_error *err)
{
    struct tl_cubin_gated gated = {0};
    struct tl_cubin_options options = {.kernel = code->entry->name};
    bool has_twin = v->kernel->captured->image->is_twinned;
    int rc = has_twin ? 0 : tl_eff_forge(code->cubin, &options, &gated, err);
    if (rc == 0)
        rc = tl_eff_find_moment(v, is_executor);
    if (rc == 0) {
        if (v->module != NULL) /* of an earlier try */
            tl_eff_real.cuModuleUnload(v->module);
        v->module = NULL;
        tl_eff_make_bench(v->kernel->context);
        choose_words(v->kernel->context, x);
        rc = load(v, &gated, code->entry, err);
        tl_eff_moment_end();
    } else if (rc == -EBUSY) {
        tl_error_set(err, rc, "the context was never idle, so that it could not be loaded");
    }
    tl_cubin_gated_finish(&gated);
    return rc;
}

/* --- trying ----------------------------------------------------------------------------------- */

/* A launch of so many blocks, all of which leave; what it takes, as far as that can be measured.
 *  A CUDA error if the driver cannot run it. */
TL_EFF_UNLOCKED static CUresult leave(struct tl_eff_variant *v, uint8_t *params, uint32_t blocks,
                                      CUevent begin, CUevent end, uint64_t *ns)
{
    struct tl_eff_context *c = v->kernel->context;
    size_t n = v->param_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
                     CU_LAUNCH_PARAM_END};
    float ms = 0;
    CUresult r = tl_eff_real.cuEventRecord(begin, c->work);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuLaunchKernel(v->function, blocks, 1, 1, v->block[0], v->block[1],
                                       v->block[2], v->shared_bytes, c->work, NULL, extra);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuEventRecord(end, c->work);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuStreamSynchronize(c->work);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuEventElapsedTime(&ms, begin, end);
    *ns = (uint64_t)((double)ms * 1e6);
    return r;
}

/* Measures what a block costs an SM that only leaves, as its parameters say: the least of a few
 * tries, less what a launch takes anyway. */
TL_EFF_UNLOCKED static CUresult measure(struct tl_eff_variant *v, uint8_t *params, CUevent begin,
                                        CUevent end, uint64_t *block_ns)
{
    enum { TRIES = 3, WAVES = 64 };
    struct tl_eff_context *c = v->kernel->context;
    uint32_t sms = c->n_sms > 0 ? (uint32_t)c->n_sms : 1;
    uint64_t one = UINT64_MAX, many = UINT64_MAX, ns;
    for (int i = 0; i < 2 * TRIES; i++) {
        CUresult r = leave(v, params, i % 2 == 0 ? 1 : WAVES * sms, begin, end, &ns);
        if (r != CUDA_SUCCESS)
            return r;
        uint64_t *least = i % 2 == 0 ? &one : &many;
        *least = ns < *least ? ns : *least;
    }
    *block_ns = many > one ? (many - one) / WAVES + 1 : 1;
    return CUDA_SUCCESS;
}

/* Of blocks that are told to stop, and of blocks that ran before. */
TL_EFF_UNLOCKED static CUresult measure_both(struct tl_eff_variant *v, uint8_t *params,
                                             struct tl_eff_extra *x, CUevent begin, CUevent end)
{
    tl_eff_variant_args(v, params, x);
    CUresult r = measure(v, params, begin, end, &v->leave_ns);
    x->first = x->blocks;
    tl_eff_variant_args(v, params, x);
    return r == CUDA_SUCCESS ? measure(v, params, begin, end, &v->skip_ns) : r;
}

/* A stop word for who has no other, and one to close. */
TL_EFF_UNLOCKED static bool set_scratch(struct tl_eff_context *c)
{
    static const uint64_t words[2] = {1, 0};
    return tl_eff_put(c, c->scratch + TL_EFF_SCRATCH_GATE, words, sizeof words);
}

/* -EIO if the driver cannot run it.  Without a place to try it, it counts as tried. */
TL_EFF_UNLOCKED static int try_out(struct tl_eff_variant *v, struct tl_eff_extra *x)
{
    struct tl_eff_context *c = v->kernel->context;
    uint8_t *params = c->scratch != 0 ? calloc(1, v->param_bytes) : NULL;
    if (params == NULL)
        return 0;
    CUevent begin = NULL, end = NULL;
    CUresult r = CUDA_SUCCESS;
    if (tl_eff_real.cuEventCreate(&begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
        tl_eff_real.cuEventCreate(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS && set_scratch(c))
        r = measure_both(v, params, x, begin, end);
    if (begin != NULL)
        tl_eff_real.cuEventDestroy_v2(begin);
    if (end != NULL)
        tl_eff_real.cuEventDestroy_v2(end);
    free(params);
    return r == CUDA_SUCCESS ? 0 : -EIO;
}

int tl_eff_build_gated(struct tl_eff_variant *v, bool is_executor, struct tl_error *err)
{
    const struct tl_eff_kernel *k = v->kernel;
    struct tl_eff_code code = {0};
    struct tl_eff_extra x = {0};
    int rc = may_be_gated(k, err);
    if (rc == 0)
        rc = tl_eff_code_of(k->captured->image, k->name, k->binary_version, &code, err);
    if (rc == 0)
        rc = can_be_gated(k, code.entry, err);
    if (rc == 0)
        rc = bring(v, &code, is_executor, &x, err);
    tl_eff_code_finish(&code);
    if (rc == 0 && tl_eff_set_shared(v, v->shared_bytes) < 0)
        rc = tl_error_set(err, -ENOSPC, "no room for its shared memory");
    if (rc == 0 && try_out(v, &x) < 0)
        rc = tl_error_set(err, -EIO, "the driver cannot run the gated form");
    if (rc == 0)
        tl_eff_log(3, "%s is gated%s; a block that leaves takes %llu ns, one that ran before %llu",
                   k->name, v->module == NULL ? " as a twin" : "", (unsigned long long)v->leave_ns,
                   (unsigned long long)v->skip_ns);
    return rc;
}
