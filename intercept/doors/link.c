/* The doors of linkers: PTX goes in, machine code comes out, and the job loads that.  The PTX is
 * kept for it, if it was the only input: several texts, or a text with a library, are a program
 * that no single text tells.  Here is cuLink; nvJitLink is in intercept/doors/compilers.c. */
#include "intercept/capture/capture.h"
#include "intercept/capture/map.h"
#include "intercept/doors/doors.h"

#include <stdlib.h>
#include <string.h>

struct link {
    char *ptx;
    size_t n;
    unsigned inputs;
};

static struct tl_map links = TL_MAP_EMPTY;

static struct link *link_of(void *state)
{
    struct link *l = tl_map_find(&links, (uintptr_t)state);
    if (l != NULL)
        return l;
    struct link *made = calloc(1, sizeof *made);
    l = made != NULL ? tl_map_keep(&links, (uintptr_t)state, made) : NULL;
    if (l != made)
        free(made);
    return l;
}

void tl_doors_link_added(void *state, bool is_ptx, const void *data, size_t n)
{
    struct link *l = link_of(state);
    if (l == NULL || ++l->inputs != 1 || !is_ptx || data == NULL)
        return;
    l->ptx = malloc(n + 1);
    if (l->ptx != NULL) {
        memcpy(l->ptx, data, n);
        l->ptx[n] = '\0';
        l->n = n;
    }
}

void tl_doors_link_done(void *state, const void *code, size_t n)
{
    const struct link *l = tl_map_find(&links, (uintptr_t)state);
    if (l != NULL && l->inputs == 1 && l->ptx != NULL)
        tl_doors_keep(code, n, l->ptx, l->n);
}

void tl_doors_link_gone(void *state)
{
    struct link *l = tl_map_find(&links, (uintptr_t)state);
    if (l != NULL) {
        tl_map_put(&links, (uintptr_t)state, NULL);
        free(l->ptx);
        free(l);
    }
}

/* --- cuLink --- */

static void added_file(CUlinkState state, CUjitInputType type, const char *path)
{
    struct tl_captured_image *file = tl_capture_file(path, NULL);
    tl_doors_link_added(state, type == CU_JIT_INPUT_PTX, file != NULL ? file->bytes : NULL,
                        file != NULL ? file->n : 0);
    tl_capture_unref(file);
}

#define ADD_DATA(name)                                                                             \
    static CUresult hook_##name(CUlinkState state, CUjitInputType type, void *data, size_t n,      \
                                const char *label, unsigned n_options, CUjit_option *options,      \
                                void **values)                                                     \
    {                                                                                              \
        CUresult r = TL_REAL(name)(state, type, data, n, label, n_options, options, values);       \
        if (r == CUDA_SUCCESS)                                                                     \
            tl_doors_link_added(state, type == CU_JIT_INPUT_PTX, data, n);                         \
        return r;                                                                                  \
    }
ADD_DATA(cuLinkAddData)
ADD_DATA(cuLinkAddData_v2)

#define ADD_FILE(name)                                                                             \
    static CUresult hook_##name(CUlinkState state, CUjitInputType type, const char *path,          \
                                unsigned n_options, CUjit_option *options, void **values)          \
    {                                                                                              \
        CUresult r = TL_REAL(name)(state, type, path, n_options, options, values);                 \
        if (r == CUDA_SUCCESS)                                                                     \
            added_file(state, type, path);                                                         \
        return r;                                                                                  \
    }
ADD_FILE(cuLinkAddFile)
ADD_FILE(cuLinkAddFile_v2)

static CUresult hook_cuLinkComplete(CUlinkState state, void **cubin, size_t *n)
{
    CUresult r = TL_REAL(cuLinkComplete)(state, cubin, n);
    if (r == CUDA_SUCCESS && cubin != NULL && n != NULL)
        tl_doors_link_done(state, *cubin, *n);
    return r;
}

static CUresult hook_cuLinkDestroy(CUlinkState state)
{
    tl_doors_link_gone(state);
    return TL_REAL(cuLinkDestroy)(state);
}

void tl_doors_link_forked(void)
{
    tl_map_forked(&links);
}

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
const struct tl_hook tl_doors_hooks[] = {
    HOOK(cuLinkAddData), HOOK(cuLinkAddData_v2), HOOK(cuLinkAddFile), HOOK(cuLinkAddFile_v2), HOOK(cuLinkComplete),
    HOOK(cuLinkDestroy),
    {NULL, NULL},
};
/* clang-format on */
