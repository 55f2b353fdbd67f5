/* Libraries: images that belong to no context.  A kernel of a library stands for a function in
 * whichever context is current, so a module is made per context when it is first needed. */
#include "device/driver/context.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/module.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"

#include "tally/image.h"
#include "tally/ptx.h"

#include <elf.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static CUresult check(CUlibrary l)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    return l != NULL && l->magic == TL_DRV_LIBRARY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult check_kernel(CUkernel k)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    return k != NULL && k->magic == TL_DRV_KERNEL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The library's module in a context, made when first asked for; never two of them. */
CUresult tl_drv_library_module(struct CUlib_st *library, struct CUctx_st *ctx,
                               struct CUmod_st **out)
{
    /* so that no context gets two of one library */
    static struct tl_mutex making = TL_MUTEX_INITIALIZER;
    CUresult r = CUDA_SUCCESS;
    struct CUmod_st *m = NULL;
    ctx = ctx->home;
    tl_mutex_lock(&making);
    tl_drv_lock();
    for (size_t i = 0; i < library->n_by_context && m == NULL; i++)
        if (library->by_context[i]->ctx == ctx)
            m = library->by_context[i];
    tl_drv_unlock();
    if (m == NULL) {
        r = tl_drv_module_create(ctx, library->image, &m);
        if (r == CUDA_SUCCESS) {
            tl_drv_lock();
            size_t n = library->n_by_context + 1;
            struct CUmod_st **list = realloc((void *)library->by_context,
                                             n * sizeof(struct CUmod_st *));
            if (list != NULL) {
                library->by_context = list;
                list[n - 1] = m;
                library->n_by_context = n;
                m->library = library;
            } else {
                r = CUDA_ERROR_OUT_OF_MEMORY;
            }
            tl_drv_unlock();
        }
    }
    tl_mutex_unlock(&making);
    *out = m;
    return r;
}

/* CUkernel handles stand for the function of the current context; see cuLibraryGetKernel. */
CUresult tl_drv_function(CUfunction handle, struct CUfunc_st **out)
{
    struct CUctx_st *ctx;
    struct CUmod_st *m;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (handle == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (handle->magic == TL_DRV_FUNCTION) {
        *out = handle;
        return CUDA_SUCCESS;
    }
    if (handle->magic != TL_DRV_KERNEL)
        return CUDA_ERROR_INVALID_HANDLE;
    struct CUkern_st *k = (struct CUkern_st *)(void *)handle;
    r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    r = tl_drv_library_module(k->library, ctx, &m);
    if (r != CUDA_SUCCESS)
        return r;
    /* The common case without looking at the text again. */
    tl_drv_lock();
    struct CUfunc_st *f = m->functions;
    while (f != NULL && f->kernel != k)
        f = f->next;
    tl_drv_unlock();
    if (f == NULL) {
        r = tl_drv_module_function(m, k->name, &f);
        if (r != CUDA_SUCCESS)
            return r;
        tl_drv_lock();
        f->kernel = k;
        tl_drv_unlock();
    }
    *out = f;
    return CUDA_SUCCESS;
}

/* --- libraries -------------------------------------------------------------------------------- */

/* Stops at the first difference: a short text ends there. */
static bool begins(const unsigned char *bytes, const char *with, size_t n)
{
    size_t i = 0;
    while (i < n && bytes[i] == (unsigned char)with[i])
        i++;
    return i == n;
}

/* Whether that is made to be linked: an archive, an object of the host's, LTO-IR.  A GPU's driver
 * loads such as a library (cuda.core's tests want that); what is in it is found by a linker. */
static bool is_for_a_linker(const void *code)
{
    static const char ident[] = {ELFMAG0,    ELFMAG1,     ELFMAG2,   ELFMAG3,
                                 ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
    Elf64_Half type, machine;
    if (begins(code, "!<arch>\n", 8) || begins(code, "\xed\x43\x4e\x7f", 4))
        return true;
    if (!begins(code, ident, sizeof ident) ||
        tl_image_room(code, sizeof(Elf64_Ehdr)) < sizeof(Elf64_Ehdr))
        return false;
    memcpy(&type, (const char *)code + offsetof(Elf64_Ehdr, e_type), sizeof type);
    memcpy(&machine, (const char *)code + offsetof(Elf64_Ehdr, e_machine), sizeof machine);
    return type == ET_REL && (machine == EM_X86_64 || machine == EM_AARCH64);
}

/* A module that has no kernel. */
static CUresult load_nothing(struct tl_drv_image **out)
{
    static const char text[] = ".version 7.0\n.target sm_50\n.address_size 64\n";
    char *copy = strdup(text);
    return copy != NULL ? tl_drv_image_of_text(copy, sizeof text - 1, out)
                        : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions)
{
    (void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (library == NULL || code == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUlib_st *l = calloc(1, sizeof *l);
    if (l == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = is_for_a_linker(code) ? load_nothing(&l->image) : tl_drv_image_load(code, &l->image);
    if (r != CUDA_SUCCESS) {
        free(l);
        return r;
    }
    l->image->max_registers = tl_drv_max_registers(numJitOptions, jitOptions, jitOptionsValues);
    l->magic = TL_DRV_LIBRARY;
    *library = l;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions)
{
    char *bytes;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (library == NULL || fileName == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    r = tl_drv_image_read(fileName, &bytes);
    if (r == CUDA_SUCCESS)
        r = cuLibraryLoadData(library, bytes, jitOptions, jitOptionsValues, numJitOptions,
                              libraryOptions, libraryOptionValues, numLibraryOptions);
    free(bytes); /* the image has a copy of its own, whatever the options promise */
    return r;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    CUresult r = check(library);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    while (library->n_by_context > 0) {
        struct CUmod_st *m = library->by_context[0];
        tl_drv_unlock();
        tl_drv_context_drain(m->ctx);
        tl_drv_module_destroy(m); /* takes itself off the list */
        tl_drv_lock();
    }
    library->magic = TL_DRV_DEAD;
    tl_drv_image_unref(library->image);
    while (library->kernels != NULL) {
        struct CUkern_st *k = library->kernels;
        library->kernels = k->next;
        k->magic = TL_DRV_DEAD;
        free(k->name);
        free(k);
    }
    free((void *)library->by_context);
    tl_drv_unlock();
    free(library);
    return CUDA_SUCCESS;
}

/* The kernel of that name, made when first asked for, so that the same name gives the same
 * handle. */
static CUresult get_kernel(CUlibrary l, struct tl_str name, CUkernel *out)
{
    const struct tl_ptx_item *item = tl_ptx_index_find(l->image->index, name);
    if (item == NULL || item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
        return CUDA_ERROR_NOT_FOUND;
    tl_drv_lock();
    struct CUkern_st *k = l->kernels;
    while (k != NULL && !tl_str_is(name, k->name))
        k = k->next;
    if (k == NULL) {
        k = calloc(1, sizeof *k);
        if (k != NULL && (k->name = strndup(name.p, name.n)) == NULL) {
            free(k);
            k = NULL;
        }
        if (k != NULL) {
            k->magic = TL_DRV_KERNEL;
            k->library = l;
            k->next = l->kernels;
            l->kernels = k;
        }
    }
    tl_drv_unlock();
    *out = k;
    return k != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    CUresult r = check(library);
    if (r != CUDA_SUCCESS)
        return r;
    if (pKernel == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return get_kernel(library, tl_str_of(name), pKernel);
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
    CUresult r = check(lib);
    if (r == CUDA_SUCCESS && count == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    *count = 0;
    for (uint32_t i = 0; i < lib->image->n_items; i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(lib->image->index, i);
        *count += item->kind == TL_PTX_ITEM_ENTRY && item->body != 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    unsigned n = 0;
    CUresult r = check(lib);
    if (r == CUDA_SUCCESS && kernels == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; r == CUDA_SUCCESS && n < numKernels && i < lib->image->n_items; i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(lib->image->index, i);
        if (item->kind == TL_PTX_ITEM_ENTRY && item->body != 0)
            r = get_kernel(lib, item->name, &kernels[n++]);
    }
    return r;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    struct CUctx_st *ctx;
    CUresult r = check(library);
    if (r == CUDA_SUCCESS)
        r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (pMod == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return tl_drv_library_module(library, ctx, pMod);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    CUmodule m;
    CUresult r = cuLibraryGetModule(&m, library);
    return r == CUDA_SUCCESS ? cuModuleGetGlobal_v2(dptr, bytes, m, name) : r;
}

/* cudart asks before there is any context. */
CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    const struct tl_drv_globals *g;
    CUresult r = check(library);
    if (r == CUDA_SUCCESS && name == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = tl_drv_image_managed(library->image, &g);
    if (r != CUDA_SUCCESS)
        return r;
    for (uint32_t i = 0; i < g->n; i++) {
        if (!tl_str_is(g->list[i].name, name))
            continue;
        if (dptr != NULL)
            *dptr = g->list[i].address;
        if (bytes != NULL)
            *bytes = g->list[i].bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol)
{
    CUresult r = check(library);
    (void)symbol;
    if (r == CUDA_SUCCESS && fptr == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_FOUND : r;
}

/* --- kernels ---------------------------------------------------------------------------------- */

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    CUresult r = check_kernel(kernel);
    if (r != CUDA_SUCCESS)
        return r;
    if (pFunc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return tl_drv_function((CUfunction)(void *)kernel, pFunc);
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
    CUresult r = check_kernel(kernel);
    if (r == CUDA_SUCCESS && pLib == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *pLib = kernel->library;
    return r;
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
    CUresult r = hfunc == NULL ? CUDA_ERROR_INVALID_VALUE : check_kernel(hfunc);
    if (r == CUDA_SUCCESS && name == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *name = hfunc->name;
    return r;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
                              size_t *paramSize)
{
    struct tl_drv_kernel_info *info;
    CUresult r = check_kernel(kernel);
    if (r == CUDA_SUCCESS && tl_drv_current() == NULL)
        r = CUDA_ERROR_INVALID_CONTEXT; /* the same for each, but a GPU's driver wants one */
    if (r == CUDA_SUCCESS)
        r = tl_drv_kernel_info(kernel->library->image, kernel->name, &info);
    if (r != CUDA_SUCCESS)
        return r;
    if (paramOffset == NULL || paramIndex >= info->n_params)
        return CUDA_ERROR_INVALID_VALUE;
    *paramOffset = tl_drv_param_offset(info, paramIndex);
    if (paramSize != NULL)
        *paramSize = info->param_sizes[paramIndex];
    return CUDA_SUCCESS;
}
