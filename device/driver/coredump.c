/* What programs say about core dumps of GPUs: their settings, of a context or of all.  There are no
 * such dumps here, so that switching them on is refused, by name. */
#include "device/driver/context.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_NAME = 1024 };

/* By CUcoredumpSettings; what a context has not set is as for all. */
struct tl_drv_core {
    bool is_set[CU_COREDUMP_MAX];
    bool flags[CU_COREDUMP_MAX];
    int generation;
    char file[MOST_NAME], pipe[MOST_NAME];
};

static struct tl_drv_core all TL_DRV_GUARDED = {.flags = {[CU_COREDUMP_TRIGGER_HOST] = true}};

/* Where the setting is, and how many bytes it has; NULL: there is none of that number. */
static void *place(struct tl_drv_core *c, CUcoredumpSettings attrib, size_t *n)
{
    switch (attrib) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_TRIGGER_HOST:
    case CU_COREDUMP_LIGHTWEIGHT:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        *n = sizeof(bool);
        return &c->flags[attrib];
    case CU_COREDUMP_FILE:
        *n = MOST_NAME;
        return c->file;
    case CU_COREDUMP_PIPE:
        *n = MOST_NAME;
        return c->pipe;
    case CU_COREDUMP_GENERATION_FLAGS:
        *n = sizeof c->generation;
        return &c->generation;
    default:
        return NULL;
    }
}

static void name_defaults(void) TL_DRV_LOCKED
{
    char host[256] = "";
    if (all.file[0] != 0)
        return;
    gethostname(host, sizeof host - 1);
    snprintf(all.file, sizeof all.file, "core.cuda.%s.%d", host, (int)getpid());
    snprintf(all.pipe, sizeof all.pipe, "corepipe.cuda.%s.%d", host, (int)getpid());
}

static CUresult get(struct tl_drv_core *c, CUcoredumpSettings attrib, void *value,
                    size_t *size) TL_DRV_LOCKED
{
    size_t n;
    const void *from = place(c, attrib, &n);
    if (from == NULL || size == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (value != NULL && *size < n && n != MOST_NAME)
        return CUDA_ERROR_INVALID_VALUE;
    if (value != NULL && n == MOST_NAME) {
        n = strlen(from) + 1;
        if (*size < n)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (value != NULL)
        memcpy(value, from, n);
    *size = n;
    return CUDA_SUCCESS;
}

static CUresult set(struct tl_drv_core *c, CUcoredumpSettings attrib, const void *value,
                    const size_t *size, const char *call) TL_DRV_LOCKED
{
    size_t n;
    void *to = place(c, attrib, &n);
    if (to == NULL || value == NULL || size == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (n == MOST_NAME) {
        size_t length = strnlen(value, *size);
        if (length >= MOST_NAME)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(to, value, length);
        ((char *)to)[length] = 0;
    } else if (*size < n) {
        return CUDA_ERROR_INVALID_VALUE;
    } else if ((attrib == CU_COREDUMP_ENABLE_ON_EXCEPTION ||
                attrib == CU_COREDUMP_ENABLE_USER_TRIGGER) &&
               *(const bool *)value) {
        return tl_drv_unimplemented(call);
    } else {
        memcpy(to, value, n);
    }
    c->is_set[attrib] = true;
    return CUDA_SUCCESS;
}

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    name_defaults();
    struct tl_drv_core *c = ctx->core;
    bool is_own = c != NULL && attrib > 0 && attrib < CU_COREDUMP_MAX && c->is_set[attrib];
    r = get(is_own ? c : &all, attrib, value, size);
    tl_drv_unlock();
    return r;
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    name_defaults();
    r = get(&all, attrib, value, size);
    tl_drv_unlock();
    return r;
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    if (ctx->core == NULL)
        ctx->core = calloc(1, sizeof *ctx->core);
    r = ctx->core != NULL
            ? set(ctx->core, attrib, value, size, "core dumps (cuCoredumpSetAttribute)")
            : CUDA_ERROR_OUT_OF_MEMORY;
    tl_drv_unlock();
    return r;
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    name_defaults();
    r = set(&all, attrib, value, size, "core dumps (cuCoredumpSetAttributeGlobal)");
    tl_drv_unlock();
    return r;
}
