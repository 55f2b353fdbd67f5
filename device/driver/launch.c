/* Launching kernels: parameters by the PTX's layout, code from the compiler service, blocks to the
 * SMs. This file alone knows where code comes from (device/service/client.h).  How kernels are run
 * (device/exec/exec.h) is also known to device/driver/op.c, whose waiters leave the SMs' CPUs, to
 * device/driver/green.c for parts of the device, and to device/driver/opaque.c for machine code;
 * all others go through device/driver/exec.h. */
#include "device/driver/driver.h"
#include "device/driver/exec.h"
#include "device/driver/opaque.h"

#include "device/exec/exec.h"
#include "device/service/client.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A kernel compiled for one block size, in one context.  Immutable once it is in its function's
 * list. */
struct tl_drv_code {
    struct tl_drv_code *next;
    uint32_t block[3];
    struct tl_exec_object *object;
    uint64_t *variables;
};

/* set by cuInit, constant afterwards */
static struct tl_exec_device *exec_devices[TL_DRV_MAX_DEVICES];

/* --- the device ------------------------------------------------------------------------------- */

static void tex(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_float,
                const uint32_t *coords, uint32_t result[4])
{
    (void)f;
    tl_drv_tex(handle, kind, is_float, coords, result);
}

static void surf(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_store,
                 const int32_t coords[4], uint32_t bytes, uint32_t clamp, uint32_t data[4])
{
    if (!tl_drv_surf(handle, kind, is_store, coords, bytes, clamp, data))
        f->calls->fault(f, 0, TL_DEV_FAULT_ADDRESS, handle);
}

int tl_drv_exec_open(struct tl_drv_device *device)
{
    struct tl_error err = {0};
    uint64_t left;
    struct tl_exec_config config = {.ordinal = (uint32_t)device->number,
                                    .tex = tex,
                                    .surf = surf,
                                    .has_own_cpus = tl_drv.n_physical == 1};
    if (getenv("TALLY_DEVICE_MEM") == NULL)
        config.memory_bytes = (uint64_t)8 << 30;
    int rc = tl_exec_device_open(&exec_devices[device->ordinal], &config, &err);
    if (rc < 0) {
        tl_drv_log("no device: %s", err.text);
        return rc;
    }
    device->sms = (int)tl_exec_device_slots(exec_devices[device->ordinal]);
    tl_exec_memory_info(exec_devices[device->ordinal], &left, &device->memory_bytes);
    return 0;
}

int tl_drv_exec_take(struct tl_drv_device *device, uint64_t bytes)
{
    return tl_exec_memory_take(exec_devices[device->ordinal], bytes);
}

void tl_drv_exec_give(struct tl_drv_device *device, uint64_t bytes)
{
    tl_exec_memory_give(exec_devices[device->ordinal], bytes);
}

void tl_drv_exec_info(struct tl_drv_device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    tl_exec_memory_info(exec_devices[device->ordinal], free_bytes, total_bytes);
}

int tl_drv_exec_demand(struct tl_drv_device *device, uint64_t bytes, uint32_t below)
{
    return tl_exec_memory_demand(exec_devices[device->ordinal], bytes, below);
}

void tl_drv_exec_mark(struct tl_drv_device *device, uint32_t rank, int64_t bytes)
{
    tl_exec_memory_mark(exec_devices[device->ordinal], rank, bytes);
}

void tl_drv_exec_serve(struct tl_drv_device *device,
                       void (*give)(void *device, uint32_t rank, uint64_t bytes))
{
    tl_exec_memory_serve(exec_devices[device->ordinal], give, device);
}

void tl_drv_exec_bus(struct tl_drv_device *device, uint64_t bytes)
{
    tl_exec_bus(exec_devices[device->ordinal], bytes);
}

void tl_drv_exec_pages(bool (*f)(const void *address))
{
    tl_exec_pages(f);
}

void tl_drv_exec_flush(struct tl_drv_device *device)
{
    tl_exec_printf_flush(exec_devices[device->ordinal]);
}

int tl_drv_exec_heap(struct tl_drv_device *device, uint64_t bytes)
{
    return tl_exec_heap_limit(exec_devices[device->ordinal], bytes);
}

/* --- code ------------------------------------------------------------------------------------- */

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

static int compile(struct CUfunc_st *f, const uint32_t block[3], struct tl_drv_code *code,
                   struct tl_error *err)
{
    char path[PATH_MAX];
    char *text;
    size_t n;
    int rc = tl_ptx_extract(f->module->image->index, tl_str_of(f->info->name), &text, &n, err);
    if (rc < 0)
        return rc;
    for (int tries = 0; tries < 3; tries++) {
        rc = tl_jit_client_get(text, n, f->info->name, block, path, sizeof path, err);
        if (rc == 0)
            rc = tl_exec_object_open(&code->object, path, err);
        if (rc != -ENOENT)
            break; /* else the cache dropped it just then */
    }
    free(text);
    return rc;
}

void tl_drv_launch_expect(const struct CUfunc_st *f)
{
    char *text;
    size_t n;
    if (f->info->required[0] == 0 || f->module->image->opaque != NULL ||
        tl_ptx_extract(f->module->image->index, tl_str_of(f->info->name), &text, &n, NULL) < 0)
        return;
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
        tl_drv_log("kernel %s cannot be run: %s", f->info->name, err.text);
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

CUresult tl_drv_launch_prepare(struct tl_drv_launch *launch)
{
    struct CUfunc_st *f = launch->function;
    CUresult r = CUDA_SUCCESS;
    pthread_mutex_lock(&f->code_lock);
    struct tl_drv_code *code = f->code;
    while (code != NULL && memcmp(code->block, launch->block, sizeof code->block) != 0)
        code = code->next;
    if (code == NULL)
        r = make_code(f, launch->block, &code);
    launch->code = code;
    pthread_mutex_unlock(&f->code_lock);
    if (r == CUDA_SUCCESS && tl_exec_object_info(code->object)->param_bytes > launch->param_bytes) {
        tl_drv_log("kernel %s: its code wants %u bytes of parameters, the PTX says %u",
                   f->info->name, tl_exec_object_info(code->object)->param_bytes,
                   launch->param_bytes);
        r = CUDA_ERROR_INVALID_PTX;
    }
    return r;
}

/* --- running ---------------------------------------------------------------------------------- */

static CUresult result_of(const struct tl_exec_fault *fault)
{
    switch (fault->what) {
    case TL_DEV_FAULT_NONE:
        return CUDA_SUCCESS;
    case TL_DEV_FAULT_ASSERT:
        return CUDA_ERROR_ASSERT;
    case TL_DEV_FAULT_MISALIGNED:
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    case TL_DEV_FAULT_ADDRESS:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case TL_DEV_FAULT_STACK:
        return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case TL_DEV_FAULT_TIMEOUT:
        return CUDA_ERROR_LAUNCH_TIMEOUT;
    case TL_DEV_FAULT_BARRIER:
        return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    default:
        return CUDA_ERROR_LAUNCH_FAILED;
    }
}

/* Which allocation a bad address lies next to: mostly that tells the mistake. */
static void explain(uintptr_t address)
{
    const struct tl_drv_alloc *before = NULL;
    tl_drv_lock();
    for (size_t i = 0; i < tl_drv.n_allocs && tl_drv.allocs[i]->base <= address; i++)
        before = tl_drv.allocs[i];
    if (before != NULL && address - before->base < before->bytes)
        tl_drv_log("0x%zx is inside an allocation of %zu bytes, at %zu", (size_t)address,
                   before->bytes, (size_t)(address - before->base));
    else if (before != NULL)
        tl_drv_log("0x%zx is %zu bytes behind the end of an allocation of %zu bytes",
                   (size_t)address, (size_t)(address - before->base - before->bytes),
                   before->bytes);
    tl_drv_unlock();
}

static void done(struct tl_exec_launch *l)
{
    struct tl_drv_op *op = l->user;
    CUresult r = result_of(&l->fault);
    if (r != CUDA_SUCCESS) {
        tl_drv_log("%s", l->fault.text);
        if (l->fault.what == TL_DEV_FAULT_ADDRESS)
            explain((uintptr_t)l->fault.detail);
    }
    tl_drv_op_finished(op, r);
}

void tl_drv_launch_start(struct tl_drv_op *op)
{
    const struct tl_drv_launch *w = &op->work.launch;
    if (op->exec == NULL)
        op->exec = malloc(sizeof *op->exec);
    if (op->exec == NULL) {
        tl_drv_op_finished(op, CUDA_ERROR_OUT_OF_MEMORY);
        return;
    }
    struct tl_exec_launch *l = op->exec;
    memset(l, 0, sizeof *l);
    l->object = w->code->object;
    memcpy(l->grid, w->grid, sizeof l->grid);
    l->dynamic_shared_bytes = w->shared_bytes;
    l->params = w->params;
    l->variables = w->code->variables;
    /* CUDA's higher priorities are lower numbers */
    l->priority = -w->priority - tl_drv.below_normal;
    l->partition = tl_drv_green_partition(op->ctx);
    l->done = done;
    l->user = op;
    int rc = tl_exec_submit(exec_devices[op->ctx->device->ordinal], l);
    if (rc < 0)
        tl_drv_op_finished(op, rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
                                             : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

/* --- the calls -------------------------------------------------------------------------------- */

/* Copies the parameters into one buffer of the PTX's layout. */
static CUresult gather(const struct tl_drv_kernel_info *info, void **kernelParams, void **extra,
                       struct tl_drv_launch *l)
{
    l->param_bytes = info->param_bytes;
    l->params = calloc(1, info->param_bytes + 16u);
    if (l->params == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (kernelParams != NULL) {
        for (uint32_t i = 0; i < info->n_params; i++)
            memcpy(l->params + info->param_offsets[i], kernelParams[i], info->param_sizes[i]);
        return CUDA_SUCCESS;
    }
    const void *buffer = NULL;
    size_t bytes = 0;
    for (; extra != NULL && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (buffer == NULL || bytes < info->param_bytes)
        return info->n_params == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    memcpy(l->params, buffer, info->param_bytes);
    return CUDA_SUCCESS;
}

static CUresult check_shape(const struct CUfunc_st *f, const struct tl_drv_launch *l)
{
    static const uint32_t max_block[3] = {1024, 1024, 64};
    static const uint32_t max_grid[3] = {0x7fffffff, 65535, 65535};
    for (int i = 0; i < 3; i++)
        if (l->block[i] == 0 || l->block[i] > max_block[i] || l->grid[i] == 0 ||
            l->grid[i] > max_grid[i])
            return CUDA_ERROR_INVALID_VALUE;
    uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    if (threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    if (threads > f->info->max_threads)
        return CUDA_ERROR_INVALID_VALUE;
    if (f->info->required[0] != 0 && memcmp(f->info->required, l->block, sizeof l->block) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const uint32_t *cluster = f->info->required_cluster; /* clusters have one block each here */
    if (cluster[0] > 1 || cluster[1] > 1 || cluster[2] > 1)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    uint32_t allowed = 48u << 10;
    if (f->max_dynamic_shared > 0 &&
        (uint32_t)f->max_dynamic_shared + f->info->shared_bytes > allowed)
        allowed = (uint32_t)f->max_dynamic_shared + f->info->shared_bytes;
    if ((uint64_t)l->shared_bytes + f->info->shared_bytes > allowed)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult tl_drv_launch_make(CUfunction handle, struct tl_drv_launch *l, void **kernelParams,
                            void **extra)
{
    l->params = NULL;
    CUresult r = tl_drv_function(handle, &l->function);
    if (r == CUDA_SUCCESS)
        r = check_shape(l->function, l);
    if (r == CUDA_SUCCESS && kernelParams != NULL && extra != NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = gather(l->function->info, kernelParams, extra, l);
    if (r == CUDA_SUCCESS)
        r = tl_drv_launch_prepare(l);
    if (r == CUDA_SUCCESS && l->is_cooperative) {
        int per_sm;
        uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
        r = cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &per_sm, l->function, (int)(l->block[0] * l->block[1] * l->block[2]), l->shared_bytes);
        int sms = l->sms > 0 ? l->sms : l->function->module->ctx->device->sms;
        if (r == CUDA_SUCCESS && blocks > (uint64_t)per_sm * (unsigned)sms)
            r = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    if (r != CUDA_SUCCESS) {
        free(l->params);
        l->params = NULL;
    }
    return r;
}

static CUresult launch(CUfunction handle, struct tl_drv_launch *l, CUstream stream,
                       void **kernelParams, void **extra)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(stream, &s);
    if (r == CUDA_SUCCESS) {
        l->sms = tl_drv_context_sms(s->ctx);
        r = tl_drv_launch_make(handle, l, kernelParams, extra);
    }
    if (r != CUDA_SUCCESS)
        return r;
    if (l->priority == INT32_MIN)
        l->priority = s->priority;
    /* owns the parameters from here on */
    struct tl_drv_work work = {.kind = TL_DRV_LAUNCH, .launch = *l};
    l->params = NULL;
    /* NOLINT(clang-analyzer-unix.Malloc): that takes the work */
    return tl_drv_submit(s, &work, false);
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void **kernelParams, void **extra)
{
    struct tl_drv_launch l = {.grid = {gridDimX, gridDimY, gridDimZ},
                              .block = {blockDimX, blockDimY, blockDimZ},
                              .shared_bytes = sharedMemBytes,
                              .priority = INT32_MIN};
    return launch(f, &l, hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void **kernelParams)
{
    struct tl_drv_launch l = {.grid = {gridDimX, gridDimY, gridDimZ},
                              .block = {blockDimX, blockDimY, blockDimZ},
                              .shared_bytes = sharedMemBytes,
                              .priority = INT32_MIN,
                              .is_cooperative = true};
    return launch(f, &l, hStream, kernelParams, NULL);
}

/* Attributes that only tune are taken and left; those that change what a kernel computes are
 * refused. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                          void **extra)
{
    if (config == NULL || (config->numAttrs > 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_launch l = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                              .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                              .shared_bytes = config->sharedMemBytes,
                              .priority = INT32_MIN};
    CUevent after[2] = {NULL, NULL};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *a = &config->attrs[i];
        switch (a->id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            l.is_cooperative = a->value.cooperative != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            l.priority = a->value.priority;
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            if (a->value.clusterDim.x > 1 || a->value.clusterDim.y > 1 || a->value.clusterDim.z > 1)
                return CUDA_ERROR_INVALID_CLUSTER_SIZE;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
            after[0] = a->value.programmaticEvent.event;
            break;
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
            after[1] = a->value.launchCompletionEvent.event;
            break;
        default:
            break;
        }
    }
    CUresult r = launch(f, &l, config->hStream, kernelParams, extra);
    for (int i = 0; i < 2 && r == CUDA_SUCCESS; i++)
        if (after[i] != NULL)
            /* later than need be, which is always right */
            r = cuEventRecord(after[i], config->hStream);
    return r;
}
