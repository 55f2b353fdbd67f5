/* The calls that load images and give out kernels.  The driver goes first, with the image or what
 * the best-effort part has for it instead; what it accepted is then remembered.  Before something
 * is unloaded, the best-effort part submits what it has queued and lets go of what it made of it.
 *
 * A driver that has no use for machine code, such as the software device's, is given the PTX that
 * the code was made of, if a compiler in the job has left it (intercept/doors/doors.h). */
#include "intercept/capture/capture.h"

#include <stdlib.h>
#include <string.h>

#include "tally/cubin.h"

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

/* --- twins --- */

/* The best-effort part may want to give the driver another image, with gated twins of its kernels.
 * Then it is captured before the driver sees it. */
static bool may_have_twin(void)
{
    return tl_job.effort != NULL && tl_job.effort->twin != NULL;
}

static struct tl_captured_image *capture_first(const void *bytes, bool is_preserved,
                                               const void *caller)
{
    return may_have_twin() && tl_capture_may_have_code(bytes)
               ? tl_capture_image(bytes, is_preserved, caller)
               : NULL;
}

static const void *twin_of(struct tl_captured_image *image)
{
    return image != NULL && may_have_twin() ? tl_job.effort->twin(image) : NULL;
}

/* Loads the twin if there is one, and if there is none or the driver refuses it, the image as it
 * came. */
#define LOAD(r, image, is_preserved, with_twin, as_it_is)                                          \
    do {                                                                                           \
        const void *twin = twin_of(image);                                                         \
        (r) = CUDA_ERROR_NOT_FOUND;                                                                \
        if (twin != NULL) {                                                                        \
            (r) = (with_twin);                                                                     \
            tl_job.effort->twinned(image, (r) == CUDA_SUCCESS, is_preserved);                      \
        }                                                                                          \
        if ((r) != CUDA_SUCCESS)                                                                   \
            (r) = (as_it_is);                                                                      \
    } while (0)

/* Options by which the driver may choose another image than the best machine code. */
static bool has_choice(const CUjit_option *options, unsigned n)
{
    for (unsigned i = 0; options != NULL && i < n; i++)
        if (options[i] == CU_JIT_TARGET || options[i] == CU_JIT_TARGET_FROM_CUCONTEXT ||
            options[i] == CU_JIT_FALLBACK_STRATEGY)
            return true;
    return false;
}

/* The job sees its own kernels only.  Modules and libraries are alike there. */
struct owner_kind {
    CUresult (*count)(unsigned *n, void *owner);
    CUresult (*list)(void **list, unsigned n, void *owner);
    const char *(*name)(const void *kernel);
};

static bool is_twin(const char *name)
{
    size_t n = name != NULL ? strlen(name) : 0;
    return n >= sizeof TL_CUBIN_TWIN_SUFFIX - 1 &&
           strcmp(name + n - (sizeof TL_CUBIN_TWIN_SUFFIX - 1), TL_CUBIN_TWIN_SUFFIX) == 0;
}

/* All but the twins, of which at most `most` are written to `out`; `*n` is how many there are. */
static CUresult sift(const struct owner_kind *kind, void **out, unsigned most, unsigned *n,
                     void *owner)
{
    unsigned all = 0;
    CUresult r = kind->count(&all, owner);
    void **list = r == CUDA_SUCCESS ? calloc(all + 1, sizeof *list) : NULL;
    *n = 0;
    if (r == CUDA_SUCCESS)
        r = list != NULL ? kind->list(list, all, owner) : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; r == CUDA_SUCCESS && i < all; i++) {
        if (is_twin(kind->name(list[i])))
            continue;
        if (*n < most)
            out[*n] = list[i];
        ++*n;
    }
    free(list);
    return r;
}

static CUresult count_own(const struct owner_kind *kind, unsigned *n, void *owner)
{
    return n != NULL ? sift(kind, NULL, 0, n, owner) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult list_own(const struct owner_kind *kind, void **out, unsigned n, void *owner)
{
    unsigned found = 0;
    CUresult r = out != NULL ? sift(kind, out, n, &found, owner) : CUDA_ERROR_INVALID_VALUE;
    for (; r == CUDA_SUCCESS && found < n; found++)
        out[found] = NULL;
    return r;
}

/* --- modules --- */

/* The end of loading a module from memory.  The compiler's options were for the code, so the text
 * is loaded without them. */
static CUresult loaded(CUresult r, CUmodule *module, const void *bytes,
                       struct tl_captured_image *image, const void *caller)
{
    if (!may_be_kept(r)) {
        tl_capture_unref(image);
        return r;
    }
    if (image == NULL)
        image = tl_capture_image(bytes, false, caller);
    if (has_text(r, image))
        r = TL_REAL(cuModuleLoadData)(module, image->ptx);
    return finish(r, r == CUDA_SUCCESS ? *module : NULL, false, image);
}

static CUresult hook_cuModuleLoad(CUmodule *module, const char *path)
{
    CUresult r;
    struct tl_captured_image *image = may_have_twin() ? tl_capture_file(path, CALLER) : NULL;
    LOAD(r, image, false, TL_REAL(cuModuleLoadData)(module, twin),
         TL_REAL(cuModuleLoad)(module, path));
    if (!may_be_kept(r)) {
        tl_capture_unref(image);
        return r;
    }
    if (image == NULL)
        image = tl_capture_file(path, CALLER);
    if (has_text(r, image))
        r = TL_REAL(cuModuleLoadData)(module, image->ptx);
    return finish(r, r == CUDA_SUCCESS ? *module : NULL, false, image);
}

static CUresult hook_cuModuleLoadData(CUmodule *module, const void *bytes)
{
    CUresult r;
    struct tl_captured_image *image = capture_first(bytes, false, CALLER);
    LOAD(r, image, false, TL_REAL(cuModuleLoadData)(module, twin),
         TL_REAL(cuModuleLoadData)(module, bytes));
    return loaded(r, module, bytes, image, CALLER);
}

static CUresult hook_cuModuleLoadDataEx(CUmodule *module, const void *bytes, unsigned n,
                                        CUjit_option *options, void **values)
{
    CUresult r;
    struct tl_captured_image *image = has_choice(options, n) ? NULL
                                                             : capture_first(bytes, false, CALLER);
    LOAD(r, image, false, TL_REAL(cuModuleLoadDataEx)(module, twin, n, options, values),
         TL_REAL(cuModuleLoadDataEx)(module, bytes, n, options, values));
    return loaded(r, module, bytes, image, CALLER);
}

static CUresult hook_cuModuleLoadFatBinary(CUmodule *module, const void *bytes)
{
    CUresult r;
    struct tl_captured_image *image = capture_first(bytes, false, CALLER);
    LOAD(r, image, false, TL_REAL(cuModuleLoadData)(module, twin),
         TL_REAL(cuModuleLoadFatBinary)(module, bytes));
    return loaded(r, module, bytes, image, CALLER);
}

static CUresult hook_cuModuleUnload(CUmodule module)
{
    int lost = tl_job_unloading(module, NULL);
    if (lost != 0)
        return (CUresult)lost;
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

static const char *name_of_function(const void *function)
{
    const char *name = NULL;
    return TL_REAL(cuFuncGetName)(&name, (CUfunction)function) == CUDA_SUCCESS ? name : NULL;
}

static CUresult count_functions(unsigned *n, void *module)
{
    return TL_REAL(cuModuleGetFunctionCount)(n, module);
}

static CUresult list_functions(void **list, unsigned n, void *module)
{
    return TL_REAL(cuModuleEnumerateFunctions)((CUfunction *)list, n, module);
}

static const struct owner_kind of_modules = {count_functions, list_functions, name_of_function};

static CUresult hook_cuModuleGetFunctionCount(unsigned *n, CUmodule module)
{
    return tl_capture_is_twinned(module) ? count_own(&of_modules, n, module)
                                         : TL_REAL(cuModuleGetFunctionCount)(n, module);
}

static CUresult hook_cuModuleEnumerateFunctions(CUfunction *functions, unsigned n, CUmodule module)
{
    CUresult r = tl_capture_is_twinned(module)
                     ? list_own(&of_modules, (void **)functions, n, module)
                     : TL_REAL(cuModuleEnumerateFunctions)(functions, n, module);
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

/* The end of loading one; the image is captured now if it was not before. */
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
    CUresult r;
    bool is_kept = is_preserved(options, values, n);
    struct tl_captured_image *image = has_choice(jit, n_jit) ? NULL
                                                             : capture_first(code, is_kept, CALLER);
    LOAD(r, image, is_kept,
         TL_REAL(cuLibraryLoadData)(library, twin, jit, jit_values, n_jit, options, values, n),
         TL_REAL(cuLibraryLoadData)(library, code, jit, jit_values, n_jit, options, values, n));
    if (may_be_kept(r) && image == NULL)
        image = tl_capture_image(code, is_kept, CALLER);
    return library_loaded(r, library, image);
}

static CUresult hook_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit,
                                           void **jit_values, unsigned n_jit,
                                           CUlibraryOption *options, void **values, unsigned n)
{
    CUresult r;
    struct tl_captured_image *image = may_have_twin() && !has_choice(jit, n_jit)
                                          ? tl_capture_file(path, CALLER)
                                          : NULL;
    LOAD(r, image, is_preserved(options, values, n),
         TL_REAL(cuLibraryLoadData)(library, twin, jit, jit_values, n_jit, options, values, n),
         TL_REAL(cuLibraryLoadFromFile)(library, path, jit, jit_values, n_jit, options, values, n));
    if (may_be_kept(r) && image == NULL)
        image = tl_capture_file(path, CALLER);
    return library_loaded(r, library, image);
}

static CUresult hook_cuLibraryUnload(CUlibrary library)
{
    int lost = tl_job_unloading(NULL, library);
    if (lost != 0)
        return (CUresult)lost;
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

static const char *name_of_kernel(const void *kernel)
{
    const char *name = NULL;
    return TL_REAL(cuKernelGetName)(&name, (CUkernel)kernel) == CUDA_SUCCESS ? name : NULL;
}

static CUresult count_kernels(unsigned *n, void *library)
{
    return TL_REAL(cuLibraryGetKernelCount)(n, library);
}

static CUresult list_kernels(void **list, unsigned n, void *library)
{
    return TL_REAL(cuLibraryEnumerateKernels)((CUkernel *)list, n, library);
}

static const struct owner_kind of_libraries = {count_kernels, list_kernels, name_of_kernel};

static CUresult hook_cuLibraryGetKernelCount(unsigned *n, CUlibrary library)
{
    return tl_capture_is_twinned(library) ? count_own(&of_libraries, n, library)
                                          : TL_REAL(cuLibraryGetKernelCount)(n, library);
}

static CUresult hook_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned n, CUlibrary library)
{
    CUresult r = tl_capture_is_twinned(library)
                     ? list_own(&of_libraries, (void **)kernels, n, library)
                     : TL_REAL(cuLibraryEnumerateKernels)(kernels, n, library);
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
    HOOK(cuModuleGetFunction), HOOK(cuModuleEnumerateFunctions), HOOK(cuModuleGetFunctionCount),
    HOOK(cuLibraryLoadData), HOOK(cuLibraryLoadFromFile), HOOK(cuLibraryUnload), HOOK(cuLibraryGetKernel),
    HOOK(cuLibraryEnumerateKernels), HOOK(cuLibraryGetKernelCount), HOOK(cuLibraryGetModule), HOOK(cuKernelGetFunction),
    HOOK(cuFuncSetCacheConfig), HOOK(cuKernelSetCacheConfig),
    {NULL, NULL},
};
/* clang-format on */
