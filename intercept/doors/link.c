/* The doors of linkers: PTX goes in, machine code comes out, and the job loads that.  The PTX is
 * kept for it.  Several texts, or a text with objects and libraries, are a program that no single
 * one of them tells: the software device's driver is asked to link the same inputs, because what
 * comes out of that is a text.  A GPU's driver makes machine code of them; then nothing is kept.
 * Here is cuLink; nvJitLink is in intercept/doors/compilers.c. */
#include "intercept/capture/capture.h"
#include "intercept/capture/map.h"
#include "intercept/doors/doors.h"
#include "tally/device.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 64, MAX_BYTES = 256 << 20 };

struct input {
    CUjitInputType type;
    char *bytes; /* with a NUL behind them */
    size_t n;
};

struct link {
    struct input inputs[MAX_INPUTS];
    size_t n, bytes;
    bool is_whole; /* all inputs are here, but for intermediate code */
    bool has_intermediate;
    unsigned max_registers; /* 0: not said */
};

static struct tl_map links = TL_MAP_EMPTY;

static struct link *link_of(void *state)
{
    struct link *l = tl_map_find(&links, (uintptr_t)state);
    if (l != NULL)
        return l;
    struct link *made = calloc(1, sizeof *made);
    if (made != NULL)
        made->is_whole = true;
    l = made != NULL ? tl_map_keep(&links, (uintptr_t)state, made) : NULL;
    if (l != made)
        free(made);
    return l;
}

void tl_doors_link_limit(void *state, unsigned registers)
{
    struct link *l = link_of(state);
    if (l != NULL)
        l->max_registers = registers;
}

void tl_doors_link_added(void *state, int type, const void *data, size_t n)
{
    struct link *l = link_of(state);
    if (l == NULL)
        return;
    if (type == CU_JIT_INPUT_NVVM) {
        l->has_intermediate = true;
        return;
    }
    char *copy = data != NULL && l->n < MAX_INPUTS && n < MAX_BYTES - l->bytes ? malloc(n + 1)
                                                                               : NULL;
    if (copy == NULL) {
        l->is_whole = false;
        return;
    }
    memcpy(copy, data, n);
    copy[n] = '\0';
    l->inputs[l->n++] = (struct input){(CUjitInputType)type, copy, n};
    l->bytes += n;
}

/* Machine code is linked as the text that its compiler left. */
static CUresult add(CUlinkState s, const struct input *in)
{
    if (in->type != CU_JIT_INPUT_CUBIN)
        return TL_REAL(cuLinkAddData_v2)(s, in->type, in->bytes, in->n, "input", 0, NULL, NULL);
    size_t n;
    char *text = tl_doors_find(in->bytes, in->n, &n);
    CUresult r = text != NULL ? TL_REAL(cuLinkAddData_v2)(s, CU_JIT_INPUT_PTX, text, n + 1, "input",
                                                          0, NULL, NULL)
                              : CUDA_ERROR_NOT_FOUND;
    free(text);
    return r;
}

/* Keeps what the software device's driver makes of the inputs, and of `text` if there is one. */
static void keep_joined(const struct link *l, const struct input *text, const void *code,
                        size_t code_n)
{
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *value = (void *)(uintptr_t)l->max_registers, *out; /* NOLINT(performance-no-int-to-ptr) */
    CUlinkState s;
    size_t n;
    int unused;
    CUdevice_attribute ours = (CUdevice_attribute)TL_DEVICE_ATTRIBUTE_HOST_READS;
    if (TL_REAL(cuDeviceGetAttribute)(&unused, ours, 0) != CUDA_SUCCESS ||
        TL_REAL(cuLinkCreate_v2)(l->max_registers > 0, &option, &value, &s) != CUDA_SUCCESS)
        return;
    CUresult r = text->bytes != NULL ? add(s, text) : CUDA_SUCCESS;
    for (size_t i = 0; i < l->n && r == CUDA_SUCCESS; i++)
        r = add(s, &l->inputs[i]);
    if (r == CUDA_SUCCESS && TL_REAL(cuLinkComplete)(s, &out, &n) == CUDA_SUCCESS)
        tl_doors_keep(code, code_n, out, n);
    TL_REAL(cuLinkDestroy)(s);
}

void tl_doors_link_done(void *state, const void *code, size_t n, char *text, size_t text_n)
{
    const struct link *l = tl_map_find(&links, (uintptr_t)state);
    struct input made = {CU_JIT_INPUT_PTX, text, text_n};
    if (l == NULL || !l->is_whole || (l->has_intermediate && text == NULL))
        return;
    const struct input *only = l->n == 0 && text != NULL   ? &made
                               : l->n == 1 && text == NULL ? &l->inputs[0]
                                                           : NULL;
    if (only != NULL && only->type == CU_JIT_INPUT_PTX && l->max_registers == 0)
        tl_doors_keep(code, n, only->bytes, only->n);
    else
        keep_joined(l, &made, code, n);
}

void tl_doors_link_gone(void *state)
{
    struct link *l = tl_map_find(&links, (uintptr_t)state);
    if (l == NULL)
        return;
    tl_map_put(&links, (uintptr_t)state, NULL);
    for (size_t i = 0; i < l->n; i++)
        free(l->inputs[i].bytes);
    free(l);
}

/* --- cuLink --- */

static void added_file(CUlinkState state, CUjitInputType type, const char *path)
{
    struct tl_captured_image *file = tl_capture_file(path, NULL);
    tl_doors_link_added(state, (int)type, file != NULL ? file->bytes : NULL,
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
            tl_doors_link_added(state, (int)type, data, n);                                        \
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
        tl_doors_link_done(state, *cubin, *n, NULL, 0);
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
