/* Modules with variables.  A second module would have variables of its own, so the gated form of
 * such a kernel has to be in the module itself: when it is loaded, the driver gets a cubin that has
 * the same kernels, unchanged, and a gated twin of each beside it (K$gate).  That is made before
 * anybody knows whether a kernel will ever be long, so only where it may be of use: the module has
 * variables, its code may be gated, and there is no PTX of it to rewrite instead. */
#include "runtime/effort/twins.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/code.h"
#include "runtime/effort/forge.h"
#include "runtime/effort/qualified.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "tally/image.h"

/* --- where it is loaded ----------------------------------------------------------------------- */

/* The device that the module is loaded for: the current context's.  Libraries are loaded without
 * one; then, if there is only one device, that.  False if it cannot be told. */
TL_EFF_UNLOCKED static bool find_device(CUdevice *device)
{
    CUresult (*count)(int *) = (CUresult(*)(int *))tl_eff.shim->real("cuDeviceGetCount");
    CUresult (*get)(CUdevice *,
                    int) = (CUresult(*)(CUdevice *, int))tl_eff.shim->real("cuDeviceGet");
    int n = 0;
    if (tl_eff_real.cuCtxGetDevice(device) == CUDA_SUCCESS)
        return true;
    return count != NULL && get != NULL && count(&n) == CUDA_SUCCESS && n == 1 &&
           get(device, 0) == CUDA_SUCCESS;
}

static uint32_t capability_of(CUdevice device)
{
    int major = 0, minor = 0;
    tl_eff_real.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    tl_eff_real.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    return major > 0 && minor >= 0 ? (uint32_t)(10 * major + minor) : 0;
}

static bool is_forced(void)
{
    return tl_eff.settings->force == TL_RUNG_GATE;
}

TL_EFF_UNLOCKED static bool may_be_twinned(const struct tl_captured_image *image,
                                           uint32_t *capability)
{
    CUdevice device;
    struct tl_eff_gate_facts f = {.mode = tl_eff.settings->gate,
                                  .is_forced = is_forced(),
                                  .whose = tl_eff_whose(image->source, image->loader),
                                  .examined = TL_EFF_FOUND_TO_WORK};
    const char *jit = secure_getenv(
        "CUDA_FORCE_PTX_JIT"); /* the driver's own: then it takes no cubin */
    if (tl_eff_gate_objection(&f) != NULL || (jit != NULL && jit[0] != 0 && strcmp(jit, "0") != 0))
        return false;
    if (!find_device(&device))
        return false;
    f.examined = tl_eff_examined(device);
    *capability = capability_of(device);
    return tl_eff_gate_objection(&f) == NULL && *capability != 0;
}

/* --- what becomes of it ----------------------------------------------------------------------- */

/* Whether some kernel of the module can be gated, and only there. */
static bool wants_twins(const struct tl_cubin *c)
{
    for (uint32_t i = 0; i < tl_cubin_count(c); i++) {
        const struct tl_cubin_entry *e = tl_cubin_entry(c, i);
        if (e->reason == TL_CUBIN_REASON_OK && e->wants_twin)
            return true;
    }
    return false;
}

static struct tl_cubin_gated *make_twin(const struct tl_captured_image *image,
                                        const struct tl_eff_code *code)
{
    struct tl_error err = {0};
    struct tl_cubin_options options = {.is_twin = true, .spends = true};
    struct tl_cubin_gated *twin = calloc(1, sizeof *twin);
    if (twin == NULL || tl_eff_forge(code->cubin, &options, twin, &err) == 0)
        return twin;
    tl_eff_note("a module of %s has no gated twins of its kernels: %s", image->source, err.text);
    tl_eff_log(3, "a module of %s has no gated twins of its kernels: %s", image->source, err.text);
    free(twin);
    return NULL;
}

const void *tl_eff_twin(struct tl_captured_image *image)
{
    struct tl_eff_code code;
    uint32_t capability = 0;
    struct tl_cubin_gated *twin = NULL;
    if (image->bytes == NULL || !may_be_twinned(image, &capability) ||
        tl_eff_code_for(image, capability, &code, NULL) < 0)
        return NULL;
    uint32_t virtual_arch = tl_cubin_virtual_arch(code.bytes, code.n);
    bool has_text = !is_forced() && tl_eff_code_has_text(image, virtual_arch);
    if (!has_text && wants_twins(code.cubin))
        twin = make_twin(image, &code);
    tl_eff_code_finish(&code);
    image->twin = twin;
    if (twin != NULL)
        tl_eff_log(3, "a module of %s gets %u gated twins", image->source, twin->n_gated);
    return twin != NULL ? twin->bytes : NULL;
}

void tl_eff_twins_forget(struct tl_captured_image *image)
{
    struct tl_cubin_gated *twin = image->twin;
    if (twin != NULL)
        tl_cubin_gated_finish(twin);
    free(twin);
    image->twin = NULL;
}

void tl_eff_twinned(struct tl_captured_image *image, bool was_taken, bool is_preserved)
{
    image->is_twinned = was_taken;
    if (!was_taken) {
        tl_eff_note("the driver refused a module of %s with gated twins: it is loaded as it is",
                    image->source);
        tl_eff_log(1, "the driver refused a module of %s with gated twins: it is loaded as it is",
                   image->source);
    }
    if (!was_taken || !is_preserved)
        tl_eff_twins_forget(image);
}
