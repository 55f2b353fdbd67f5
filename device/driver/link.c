/* cuLink: several PTX texts become one.  What one module declares as external and another defines,
 * meets by name; of weak definitions the first counts.  What comes out is PTX again, which
 * cuModuleLoadData takes. */
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/module.h"
#include "device/driver/state.h"
#include "tally/file.h"

#include "tally/image.h"

#include "tally/ptx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 256 };

struct CUlinkState_st {
    uint32_t magic;
    struct tl_drv_image *inputs[MAX_INPUTS];
    size_t n;
    char *text; /* the result, kept until the state is destroyed */
};

static CUresult check(CUlinkState s)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    return s != NULL && s->magic == TL_DRV_LINK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                         CUlinkState *stateOut)
{
    (void)numOptions, (void)options, (void)optionValues;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (stateOut == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUlinkState_st *s = calloc(1, sizeof *s);
    if (s == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    s->magic = TL_DRV_LINK;
    *stateOut = s;
    return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, unsigned int numOptions, CUjit_option *options,
                          void **optionValues)
{
    (void)name, (void)numOptions, (void)options, (void)optionValues;
    CUresult r = check(state);
    if (r != CUDA_SUCCESS)
        return r;
    if (data == NULL || size == 0 || state->n == MAX_INPUTS)
        return CUDA_ERROR_INVALID_VALUE;
    switch (type) {
    case CU_JIT_INPUT_PTX: {
        char *text = strndup(data, size);
        if (text == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        r = tl_drv_image_of_ptx(text, strlen(text), &state->inputs[state->n]);
        break;
    }
    case CU_JIT_INPUT_FATBINARY:
        r = tl_drv_image_load(data, &state->inputs[state->n]);
        break;
    default:
        return CUDA_ERROR_NO_BINARY_FOR_GPU; /* SASS and libraries of it */
    }
    if (r == CUDA_SUCCESS)
        state->n++;
    return r;
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                          unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    char *bytes;
    size_t n;
    if (path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int rc = tl_file_read(path, SIZE_MAX, &bytes, &n);
    if (rc < 0)
        return rc == -ENOMEM || rc == -EIO || rc == -EISDIR ? CUDA_ERROR_INVALID_VALUE
                                                            : CUDA_ERROR_FILE_NOT_FOUND;
    CUresult r = cuLinkAddData_v2(state, type, bytes, n, path, numOptions, options, optionValues);
    free(bytes);
    return r;
}

/* Whether an earlier text, or for declarations any text, already has this. */
static bool is_superfluous(const struct CUlinkState_st *s, size_t input,
                           const struct tl_ptx_item *item)
{
    if (item->kind == TL_PTX_ITEM_DIRECTIVE)
        return tl_str_is(item->name, ".version") || tl_str_is(item->name, ".target") ||
               tl_str_is(item->name, ".address_size");
    bool is_variable = item->kind == TL_PTX_ITEM_VARIABLE;
    for (size_t i = 0; i < s->n; i++) {
        const struct tl_ptx_item *other = tl_ptx_index_find(s->inputs[i]->index, item->name);
        if (i == input || other == NULL || other->kind != item->kind)
            continue;
        bool other_defines = is_variable ? !other->is_extern : other->body != 0;
        if (item->is_extern && is_variable && other_defines)
            return true;
        if ((item->is_weak || item->is_common) && i < input && other_defines)
            return true;
    }
    return false;
}

/* Puts what was added into one module of PTX, for the newest version and target among them,
 * without declarations of what another one defines and without second weak definitions. */
CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    struct tl_buf out = {0};
    struct tl_str version = {0}, target = {0};
    CUresult r = check(state);
    if (r != CUDA_SUCCESS)
        return r;
    if (cubinOut == NULL || state->n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < state->n; i++) { /* the newest of both serves all */
        struct tl_str v = tl_ptx_index_version(state->inputs[i]->index);
        struct tl_str t = tl_ptx_index_target(state->inputs[i]->index);
        if (version.n == 0 || v.n > version.n ||
            (v.n == version.n && memcmp(v.p, version.p, v.n) > 0))
            version = v;
        if (target.n == 0 || t.n > target.n || (t.n == target.n && memcmp(t.p, target.p, t.n) > 0))
            target = t;
    }
    tl_buf_printf(&out, ".version " TL_STR_FMT "\n.target " TL_STR_FMT "\n.address_size 64\n",
                  TL_STR_ARG(version), TL_STR_ARG(target));
    for (size_t i = 0; i < state->n; i++) {
        const struct tl_drv_image *image = state->inputs[i];
        for (uint32_t k = 0; k < image->n_items; k++) {
            const struct tl_ptx_item *item = tl_ptx_index_item(image->index, k);
            if (is_superfluous(state, i, item))
                continue;
            tl_buf_add(&out, image->text + item->begin, item->end - item->begin);
            tl_buf_putc(&out, '\n');
        }
    }
    free(state->text);
    size_t n = out.n;
    state->text = tl_buf_take(&out);
    if (state->text == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *cubinOut = state->text;
    if (sizeOut != NULL)
        *sizeOut = n + 1;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state)
{
    CUresult r = check(state);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    for (size_t i = 0; i < state->n; i++)
        tl_drv_image_unref(state->inputs[i]);
    state->magic = TL_DRV_DEAD;
    tl_drv_unlock();
    free(state->text);
    free(state);
    return CUDA_SUCCESS;
}

/* The first versions had other types on Windows only. */
CUresult cuLinkCreate(unsigned int numOptions, CUjit_option *options, void **optionValues,
                      CUlinkState *stateOut)
{
    return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
                       const char *name, unsigned int numOptions, CUjit_option *options,
                       void **optionValues)
{
    return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path,
                       unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}
