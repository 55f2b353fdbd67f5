/* cuLink: several PTX texts become one.  What one module declares as external and another defines,
 * meets by name; of weak definitions the first counts.  What comes out is PTX again, which
 * cuModuleLoadData takes.
 *
 * Objects and libraries are linked by the PTX that they carry beside their machine code: of each
 * fatbin in them the newest.  Of a library only those texts are taken that define what is wanted,
 * which is how a linker takes the members of an archive. */
#include "device/driver/link.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/module.h"
#include "device/driver/state.h"
#include "tally/file.h"

#include "tally/image.h"

#include "tally/ptx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static CUresult check(CUlinkState s)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    return s != NULL && s->magic == TL_DRV_LINK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult add_own(struct CUlinkState_st *s, const char *own)
{
    struct tl_drv_link_input *in = &s->inputs[s->n];
    char *text = strdup(own);
    if (text == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = tl_drv_image_of_text(text, strlen(text), &in->image);
    in->is_library = true;
    s->n += r == CUDA_SUCCESS;
    return r;
}

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                         CUlinkState *stateOut)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (stateOut == NULL || (numOptions > 0 && (options == NULL || optionValues == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    struct CUlinkState_st *s = calloc(1, sizeof *s);
    if (s == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    s->magic = TL_DRV_LINK;
    s->max_registers = tl_drv_max_registers(numOptions, options, optionValues);
    r = add_own(s, tl_drv_link_runtime);
    if (r == CUDA_SUCCESS)
        r = add_own(s, tl_drv_link_nest);
    if (r == CUDA_SUCCESS)
        *stateOut = s;
    else
        free(s);
    return r;
}

/* --- inputs ----------------------------------------------------------------------------------- */

/* The PTX of one fatbin after the other. */
struct search {
    struct CUlinkState_st *state;
    struct tl_image best; /* of the container that is being walked */
    bool has_one, is_library;
    CUresult result;
};

static void take_best(struct search *s)
{
    struct tl_error err = {0};
    void *text;
    size_t n;
    if (!s->has_one || s->result != CUDA_SUCCESS)
        return;
    s->has_one = false;
    if (s->state->n == TL_DRV_LINK_INPUTS) {
        s->result = CUDA_ERROR_INVALID_VALUE;
        return;
    }
    int rc = tl_image_unpack(&s->best, &text, &n, &err);
    if (rc < 0) {
        tl_drv_warn("image refused: %s", err.text);
        s->result = rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
        return;
    }
    struct tl_drv_link_input *in = &s->state->inputs[s->state->n];
    s->result = tl_drv_image_of_text(text, n, &in->image);
    in->is_library = s->is_library;
    s->state->n += s->result == CUDA_SUCCESS;
}

static int look(void *data, const struct tl_image *image)
{
    struct search *s = data;
    if (s->has_one && image->container_index != s->best.container_index)
        take_best(s);
    if (image->kind == TL_IMAGE_PTX && (!s->has_one || image->arch > s->best.arch)) {
        s->best = *image;
        s->has_one = true;
    }
    return 0;
}

/* An object or a library, as compilers leave it.  A library's PTX may be for a later architecture
 * than the device's: beside it stands machine code for all earlier ones, of the same source. */
static CUresult add_carrier(struct CUlinkState_st *state, const void *data, size_t size,
                            const char *name, bool is_library)
{
    struct search s = {.state = state, .is_library = is_library};
    size_t before = state->n;
    tl_image_search(data, size, look, &s);
    take_best(&s);
    if (s.result == CUDA_SUCCESS && state->n == before) {
        tl_drv_warn(
            "%s cannot be linked: it has machine code but no PTX; compile it with nvcc -rdc=true "
            "-gencode arch=compute_90,code=compute_90",
            name != NULL ? name : "an input");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return s.result;
}

/* Texts, containers, objects and libraries; what has no PTX is refused by its name. */
CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, unsigned int numOptions, CUjit_option *options,
                          void **optionValues)
{
    (void)numOptions, (void)options, (void)optionValues;
    CUresult r = check(state);
    if (r != CUDA_SUCCESS)
        return r;
    if (data == NULL || size == 0 || state->n == TL_DRV_LINK_INPUTS)
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_link_input *in = &state->inputs[state->n];
    in->is_library = false; /* its place may have been that of one that was refused */
    switch (type) {
    case CU_JIT_INPUT_PTX: {
        char *text = strndup(data, size);
        if (text == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        r = tl_drv_image_of_ptx(text, strlen(text), &in->image);
        break;
    }
    case CU_JIT_INPUT_FATBINARY:
        r = tl_drv_image_load(data, &in->image);
        break;
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
        return add_carrier(state, data, size, name, type == CU_JIT_INPUT_LIBRARY);
    case CU_JIT_INPUT_CUBIN:
        tl_drv_warn("%s cannot be linked: it is machine code without PTX",
                    name != NULL ? name : "a cubin");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    default:
        tl_drv_warn("cuLinkAddData: inputs of type %d are not implemented", (int)type);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    state->n += r == CUDA_SUCCESS;
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

/* Puts what was added into one module of PTX, for the newest version and target among them,
 * without declarations of what another one defines and without second weak definitions. */
CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    char *text;
    size_t n;
    CUresult r = check(state);
    if (r != CUDA_SUCCESS)
        return r;
    bool has_any = false;
    for (size_t i = 0; i < state->n; i++)
        has_any |= !state->inputs[i].is_library;
    if (cubinOut == NULL || !has_any)
        return CUDA_ERROR_INVALID_VALUE;
    r = tl_drv_link_join(state, &text, &n);
    if (r != CUDA_SUCCESS)
        return r;
    free(state->text);
    state->text = text;
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
        tl_drv_image_unref(state->inputs[i].image);
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
