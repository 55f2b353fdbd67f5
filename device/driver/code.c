/* The code of kernels: their PTX, cut out of the image, goes to the compiler service and comes back
 * as an object per block size, whose variables are those of the module.  This file alone knows
 * where code comes from (device/service/client.h). */
#include "device/driver/code.h"
#include "device/driver/handle.h"
#include "device/driver/log.h"
#include "device/driver/module.h"
#include "device/driver/opaque.h"
#include "device/driver/quick.h"
#include "tally/check.h"

#include "device/exec/exec.h"
#include "device/service/client.h"

#include "tally/ptx.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void free_code(struct tl_drv_code *code)
{
    if (code == NULL)
        return;
    tl_exec_object_unref(code->object);
    free(code->variables);
    free(code);
}

void tl_drv_code_finish(struct CUfunc_st *f)
{
    tl_drv_quick_forget(f); /* from here on nobody puts any in place */
    while (f->code != NULL) {
        struct tl_drv_code *code = f->code;
        f->code = code->next;
        free_code(code);
    }
}

enum { MOST_POINTEES = 16 << 20 }; /* bytes of PTX that tables of functions may lead to */

int tl_drv_code_text(const struct CUfunc_st *f, char **text, size_t *n, uint64_t *left_out,
                     struct tl_error *err)
{
    return tl_ptx_extract_within(f->module->image->index, tl_str_of(f->info->name), MOST_POINTEES,
                                 left_out, text, n, err);
}

static int compile(struct CUfunc_st *f, const uint32_t block[3], struct tl_drv_code *code,
                   struct tl_error *err)
{
    char path[PATH_MAX];
    char *text;
    size_t n;
    uint64_t left_out = 0;
    int rc = tl_drv_code_text(f, &text, &n, &left_out, err);
    if (rc < 0)
        return rc;
    if (left_out > 0) {
        tl_drv_warn("kernels of a module are compiled without the functions that they could call "
                    "through pointers in variables, which are more than %d MB of PTX; a launch "
                    "that calls one ends with CUDA_ERROR_ILLEGAL_ADDRESS",
                    MOST_POINTEES >> 20);
        tl_drv_log("kernel %s is one of them: %llu MB", f->info->name,
                   (unsigned long long)(left_out >> 20));
    }
    bool is_wanted = tl_drv_quick_is_wanted(n);
    for (int tries = 0; tries < 3; tries++) {
        rc = is_wanted ? tl_jit_client_get_soon(text, n, f->info->name, block, path, sizeof path,
                                                &code->is_quick, err)
                       : tl_jit_client_get(text, n, f->info->name, block, path, sizeof path, err);
        if (rc == 0)
            rc = tl_exec_object_open(&code->object, path, err);
        if (rc != -ENOENT)
            break; /* else the cache dropped it just then */
    }
    code->price_ns = tl_drv_quick_price_ns(n);
    free(text);
    return rc;
}

void tl_drv_code_expect(const struct CUfunc_st *f)
{
    char *text;
    size_t n;
    uint64_t left_out;
    if (f->info->required[0] == 0 || f->module->image->opaque != NULL ||
        tl_drv_code_text(f, &text, &n, &left_out, NULL) < 0)
        return;
    if (!tl_drv_quick_is_wanted(n))
        tl_jit_client_prefetch(text, n, f->info->name, f->info->required);
    free(text);
}

static int resolve(struct CUfunc_st *f, struct tl_drv_code *code, struct tl_error *err)
{
    uint32_t n = tl_exec_object_info(code->object)->n_variables;
    code->variables = calloc(n + 1, sizeof(uint64_t));
    if (code->variables == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        int rc = tl_drv_module_variable(f->module, tl_exec_object_variable(code->object, i),
                                        &code->variables[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Caller holds the function's code_lock. */
static CUresult make_code(struct CUfunc_st *f, const uint32_t block[3], struct tl_drv_code **out)
{
    struct tl_error err = {0};
    struct tl_drv_code *code = calloc(1, sizeof *code);
    if (code == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(code->block, block, sizeof code->block);
    code->function = f;
    int rc;
    if (f->module->image->opaque != NULL) {
        rc = tl_drv_opaque_code(f, block, &code->object, &code->variables, &err);
    } else {
        rc = compile(f, block, code, &err);
        if (rc == 0)
            rc = resolve(f, code, &err);
    }
    if (rc < 0) {
        tl_drv_warn("kernel %s cannot be run: %s", f->info->name, err.text);
        free_code(code);
        return rc == -ENOMEM    ? CUDA_ERROR_OUT_OF_MEMORY
               : rc == -ENOTSUP ? CUDA_ERROR_NOT_SUPPORTED
               : rc == -EINVAL  ? CUDA_ERROR_INVALID_PTX
                                : CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    }
    code->next = f->code;
    f->code = code;
    *out = code;
    return CUDA_SUCCESS;
}

CUresult tl_drv_code_prepare(struct tl_drv_launch *launch)
{
    struct CUfunc_st *f = launch->function;
    CUresult r = CUDA_SUCCESS;
    tl_mutex_lock(&f->code_lock);
    struct tl_drv_code *code = f->code;
    while (code != NULL &&
           (code->good != NULL || memcmp(code->block, launch->block, sizeof code->block) != 0))
        code = code->next;
    if (code == NULL)
        r = make_code(f, launch->block, &code);
    TL_CHECK(r != CUDA_SUCCESS || (code != NULL && code->object != NULL));
    launch->code = code;
    tl_mutex_unlock(&f->code_lock);
    if (r == CUDA_SUCCESS && tl_exec_object_info(code->object)->param_bytes > launch->param_bytes) {
        tl_drv_warn("kernel %s: its code wants %u bytes of parameters, the PTX says %u",
                    f->info->name, tl_exec_object_info(code->object)->param_bytes,
                    launch->param_bytes);
        r = CUDA_ERROR_INVALID_PTX;
    }
    return r;
}
