/* The calls that load images and give out kernels.  The driver goes first; what it accepted is then
 * remembered.  Before something is unloaded, the best-effort part submits what it has queued and
 * lets go of what it made of it.
 *
 * A driver that has no use for machine code, such as the software device's, is given the PTX that
 * the code was made of, if a compiler in the job has left it (intercept/doors/doors.h). */
#include "intercept/capture/capture.h"

#include <stdlib.h>

/* Who called the driver: entries jump to their hooks, so this is the job's own code. */
#define CALLER __builtin_return_address(0)

/* Whether a refused image should be tried again as the text behind it. */
static bool has_text(CUresult r, const struct tl_captured_image *image)
{
    return r == CUDA_ERROR_NO_BINARY_FOR_GPU && image != NULL && image->ptx != NULL;
}

/* Tells once what the program's error does not say: where such code comes from, and what to do. */
static void explain_refusal(const struct tl_captured_image *image)
{
    static atomic_flag was_told = ATOMIC_FLAG_INIT;
    if (image == NULL || image->ptx != NULL || !tl_capture_is_code(image) ||
        atomic_flag_test_and_set(&was_told))
        return;
    tl_log(1, "the driver cannot run machine code that the program has loaded, and the PTX that it "
              "was made of is not known. "
              "If it was compiled in an earlier run and kept (by CuPy in CUPY_CACHE_DIR, for "
              "example), remove what is kept: "
              "it is then compiled again, under tally-run, which keeps the PTX");
}

/* Remembers what was loaded, or lets go of it. */
static CUresult finish(CUresult r, void *handle, bool is_library, struct tl_captured_image *image)
{
    if (r == CUDA_ERROR_NO_BINARY_FOR_GPU)
        explain_refusal(image);
    if (r == CUDA_SUCCESS)
        tl_capture_loaded(handle, is_library, image);
    else
        tl_capture_unref(image);
    return r;
}

static bool may_be_kept(CUresult r)
{
    return r == CUDA_SUCCESS || r == CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* --- modules --- */

/* The end of loading a module from memory.  The compiler's options were for the code, so the text
 * is loaded without them. */
static CUresult loaded(CUresult r, CUmodule *module, const void *bytes, const void *caller)
{
    if (!may_be_kept(r))
        return r;
    struct tl_captured_image *image = tl_capture_image(bytes, false, caller);
    if (has_text(r, image))
        r = TL_REAL(cuModuleLoadData)(module, image->ptx);
    return finish(r, r == CUDA_SUCCESS ? *module : NULL, false, image);
}

static CUresult hook_cuModuleLoad(CUmodule *module, const char *path)
{
    CUresult r = TL_REAL(cuModuleLoad)(module, path);
    if (!may_be_kept(r))
        return r;
    struct tl_captured_image *image = tl_capture_file(path, CALLER);
    if (has_text(r, image))
        r = TL_REAL(cuModuleLoadData)(module, image->ptx);
    return finish(r, r == CUDA_SUCCESS ? *module : NULL, false, image);
}

static CUresult hook_cuModuleLoadData(CUmodule *module, const void *image)
{
    return loaded(TL_REAL(cuModuleLoadData)(module, image), module, image, CALLER);
}

static CUresult hook_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n,
                                        CUjit_option *options, void **values)
{
    return loaded(TL_REAL(cuModuleLoadDataEx)(module, image, n, options, values), module, image,
                  CALLER);
}

static CUresult hook_cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return loaded(TL_REAL(cuModuleLoadFatBinary)(module, image), module, image, CALLER);
}

static CUresult hook_cuModuleUnload(CUmodule module)
{
    tl_job_unloading(module, NULL);
    tl_capture_unloaded(module);
    return TL_REAL(cuModuleUnload)(module);
}

static CUresult hook_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUresult r = TL_REAL(cuModuleGetFunction)(function, module, name);
    if (r == CUDA_SUCCESS)
        tl_capture_function(*function, module, name);
    return r;
}

static CUresult hook_cuModuleEnumerateFunctions(CUfunction *functions, unsigned n, CUmodule module)
{
    CUresult r = TL_REAL(cuModuleEnumerateFunctions)(functions, n, module);
    for (unsigned i = 0; r == CUDA_SUCCESS && i < n; i++) {
        const char *name = NULL;
        if (TL_REAL(cuFuncGetName)(&name, functions[i]) == CUDA_SUCCESS && name != NULL)
            tl_capture_function(functions[i], module, name);
    }
    return r;
}

/* --- libraries --- */

/* Whether the caller promises to keep the image as long as the library is loaded. */
static bool is_preserved(const CUlibraryOption *options, void **values, unsigned n)
{
    for (unsigned i = 0; options != NULL && i < n; i++)
        if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED)
            return values != NULL && values[i] != NULL;
    return false;
}

static CUresult library_loaded(CUresult r, CUlibrary *library, struct tl_captured_image *image)
{
    if (has_text(r, image))
        r = TL_REAL(cuLibraryLoadData)(library, image->ptx, NULL, NULL, 0, NULL, NULL, 0);
    return finish(r, r == CUDA_SUCCESS ? *library : NULL, true, image);
}

static CUresult hook_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
                                       void **jit_values, unsigned n_jit, CUlibraryOption *options,
                                       void **values, unsigned n)
{
    CUresult r = TL_REAL(cuLibraryLoadData)(library, code, jit, jit_values, n_jit, options, values,
                                            n);
    if (!may_be_kept(r))
        return r;
    struct tl_captured_image *image = tl_capture_image(code, is_preserved(options, values, n),
                                                       CALLER);
    return library_loaded(r, library, image);
}

static CUresult hook_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit,
                                           void **jit_values, unsigned n_jit,
                                           CUlibraryOption *options, void **values, unsigned n)
{
    CUresult r = TL_REAL(cuLibraryLoadFromFile)(library, path, jit, jit_values, n_jit, options,
                                                values, n);
    return may_be_kept(r) ? library_loaded(r, library, tl_capture_file(path, CALLER)) : r;
}

static CUresult hook_cuLibraryUnload(CUlibrary library)
{
    tl_job_unloading(NULL, library);
    tl_capture_unloaded(library);
    return TL_REAL(cuLibraryUnload)(library);
}

static CUresult hook_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    CUresult r = TL_REAL(cuLibraryGetKernel)(kernel, library, name);
    if (r == CUDA_SUCCESS)
        tl_capture_function(*kernel, library, name);
    return r;
}

static CUresult hook_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned n, CUlibrary library)
{
    CUresult r = TL_REAL(cuLibraryEnumerateKernels)(kernels, n, library);
    for (unsigned i = 0; r == CUDA_SUCCESS && i < n; i++) {
        const char *name = NULL;
        if (TL_REAL(cuKernelGetName)(&name, kernels[i]) == CUDA_SUCCESS && name != NULL)
            tl_capture_function(kernels[i], library, name);
    }
    return r;
}

static CUresult hook_cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    CUresult r = TL_REAL(cuLibraryGetModule)(module, library);
    if (r == CUDA_SUCCESS)
        tl_capture_module_of(*module, library);
    return r;
}

static CUresult hook_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CUresult r = TL_REAL(cuKernelGetFunction)(function, kernel);
    if (r == CUDA_SUCCESS)
        tl_capture_function_of(*function, kernel);
    return r;
}

/* --- what cannot be asked for later --- */

static CUresult hook_cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    CUresult r = TL_REAL(cuFuncSetCacheConfig)(function, config);
    if (r == CUDA_SUCCESS)
        tl_capture_cache_config(function, config);
    return r;
}

static CUresult hook_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    CUresult r = TL_REAL(cuKernelSetCacheConfig)(kernel, config, device);
    if (r == CUDA_SUCCESS)
        tl_capture_cache_config(kernel, config);
    return r;
}

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
const struct tl_hook tl_capture_hooks[] = {
    HOOK(cuModuleLoad), HOOK(cuModuleLoadData), HOOK(cuModuleLoadDataEx), HOOK(cuModuleLoadFatBinary), HOOK(cuModuleUnload),
    HOOK(cuModuleGetFunction), HOOK(cuModuleEnumerateFunctions),
    HOOK(cuLibraryLoadData), HOOK(cuLibraryLoadFromFile), HOOK(cuLibraryUnload), HOOK(cuLibraryGetKernel),
    HOOK(cuLibraryEnumerateKernels), HOOK(cuLibraryGetModule), HOOK(cuKernelGetFunction),
    HOOK(cuFuncSetCacheConfig), HOOK(cuKernelSetCacheConfig),
    {NULL, NULL},
};
/* clang-format on */
