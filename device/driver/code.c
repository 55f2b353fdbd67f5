/* The code of kernels: their PTX, cut out of the image, goes to the compiler service and comes back
 * as an object per block size, whose variables are those of the module.  This file alone knows
 * where code comes from (device/service/client.h). */
#include "device/driver/code.h"
#include "device/driver/handle.h"
#include "device/driver/log.h"
#include "device/driver/module.h"
#include "device/driver/opaque.h"
#include "tally/check.h"
#include "tally/clock.h"

#include "device/exec/exec.h"
#include "device/service/client.h"

#include "tally/ptx.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void tl_drv_code_free(struct tl_drv_code *code)
{
    while (code != NULL) {
        struct tl_drv_code *next = code->next;
        tl_exec_object_unref(code->object);
        free(code->variables);
        free(code);
        code = next;
    }
}

/* --- quick versions --------------------------------------------------------------------------- */

/* Most kernels of a test suite run once or twice, on little data: there, compiling is what takes
 * time.  So a kernel of some length that is in no cache is compiled quickly first, and well only
 * when it has run for a good part of the time that this takes; the good one is taken at the first
 * launch behind that. */
enum {
    QUICK_BYTES = 6 << 10,    /* of PTX: what is shorter is compiled well at once */
    PRICE_PER_BYTE_NS = 5000, /* of compiling well: 0.15 ms per instruction of 30 bytes */
    LOOK_NS = 20000000,       /* how often to look whether it is there */
};

enum quick { NEVER, LONG_ONES, ALWAYS };

/* TALLY_JIT_QUICK: 1, or, for tests, `all`: all kernels, and they stay so. */
static enum quick quick_wish(void)
{
    const char *text = secure_getenv("TALLY_JIT_QUICK");
    if (text == NULL)
        return NEVER;
    return strcmp(text, "1") == 0 ? LONG_ONES : strcmp(text, "all") == 0 ? ALWAYS : NEVER;
}

void tl_drv_code_ran(struct tl_drv_code *code, uint64_t ns)
{
    if (code->is_quick)
        atomic_fetch_add_explicit(&code->used_ns, ns, memory_order_relaxed);
}

static int extract(const struct CUfunc_st *f, char **text, size_t *n, struct tl_error *err)
{
    return tl_ptx_extract(f->module->image->index, tl_str_of(f->info->name), text, n, err);
}

static int compile(struct CUfunc_st *f, const uint32_t block[3], struct tl_drv_code *code,
                   struct tl_error *err)
{
    char path[PATH_MAX];
    char *text;
    size_t n;
    enum quick wish = quick_wish();
    int rc = extract(f, &text, &n, err);
    if (rc < 0)
        return rc;
    bool is_wanted = wish == ALWAYS || (wish == LONG_ONES && n >= QUICK_BYTES);
    for (int tries = 0; tries < 3; tries++) {
        rc = is_wanted ? tl_jit_client_get_soon(text, n, f->info->name, block, path, sizeof path,
                                                &code->is_quick, err)
                       : tl_jit_client_get(text, n, f->info->name, block, path, sizeof path, err);
        if (rc == 0)
            rc = tl_exec_object_open(&code->object, path, err);
        if (rc != -ENOENT)
            break; /* else the cache dropped it just then */
    }
    code->price_ns = wish == ALWAYS ? UINT64_MAX : n * PRICE_PER_BYTE_NS;
    free(text);
    return rc;
}

void tl_drv_code_expect(const struct CUfunc_st *f)
{
    char *text;
    size_t n;
    if (f->info->required[0] == 0 || f->module->image->opaque != NULL ||
        extract(f, &text, &n, NULL) < 0)
        return;
    if (quick_wish() == NEVER || n < QUICK_BYTES)
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
        tl_drv_code_free(code);
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

/* The good version of a quick one that has run for long enough: asked for, and taken when it is
 * there.  That which a launch is to have; caller holds the function's code_lock. */
static struct tl_drv_code *improve(struct CUfunc_st *f, struct tl_drv_code *code)
{
    char path[PATH_MAX], *text;
    size_t n;
    uint64_t now = tl_clock_ns();
    if (atomic_load_explicit(&code->used_ns, memory_order_relaxed) < code->price_ns / 2 ||
        now < code->look_ns || extract(f, &text, &n, NULL) < 0)
        return code;
    code->look_ns = now + LOOK_NS;
    struct tl_drv_code *good = NULL;
    if (!code->is_asked)
        tl_jit_client_improve(text, n, f->info->name, code->block);
    else if (tl_jit_client_improved(text, n, f->info->name, code->block, path, sizeof path) == 0)
        good = calloc(1, sizeof *good);
    code->is_asked = true;
    free(text);
    if (good == NULL)
        return code;
    memcpy(good->block, code->block, sizeof good->block);
    if (tl_exec_object_open(&good->object, path, NULL) < 0 || resolve(f, good, NULL) < 0) {
        tl_drv_code_free(good);
        return code;
    }
    code->is_replaced = true; /* launches that are under way still have it */
    good->next = f->code;
    f->code = good;
    return good;
}

CUresult tl_drv_code_prepare(struct tl_drv_launch *launch)
{
    struct CUfunc_st *f = launch->function;
    CUresult r = CUDA_SUCCESS;
    tl_mutex_lock(&f->code_lock);
    struct tl_drv_code *code = f->code;
    while (code != NULL &&
           (code->is_replaced || memcmp(code->block, launch->block, sizeof code->block) != 0))
        code = code->next;
    if (code == NULL)
        r = make_code(f, launch->block, &code);
    else if (code->is_quick)
        code = improve(f, code);
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
