/* Launching kernels: the calls, what they may ask for, and parameters by the PTX's layout. */
#include "device/driver/launch.h"
#include "device/driver/code.h"
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/handle.h"
#include "device/driver/log.h"
#include "device/driver/module.h"
#include "device/driver/op.h"
#include "device/driver/stream.h"
#include "device/driver/work.h"

#include <stdlib.h>
#include <string.h>

/* All parameters, of which there are some, as the launcher has laid them out.  A buffer may end in
 * the last of them: drivers take that, and NCCL leaves out what of its 4 KiB a launch has no use
 * for.  The rest is zero. */
static CUresult take_buffer(const struct tl_drv_kernel_info *info, const void *buffer, size_t bytes,
                            uint8_t *params)
{
    size_t all = info->code_offsets != NULL ? info->code_param_bytes : info->param_bytes;
    if (bytes <= tl_drv_param_offset(info, info->n_params - 1))
        return CUDA_ERROR_INVALID_VALUE; /* one is missing */
    if (bytes > all)
        bytes = all;
    if (info->code_offsets == NULL) {
        memcpy(params, buffer, bytes);
        return CUDA_SUCCESS;
    }
    uint8_t *whole = calloc(1, all + 1);
    if (whole == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(whole, buffer, bytes);
    for (uint32_t i = 0; i < info->n_params; i++)
        memcpy(params + info->param_offsets[i], whole + info->code_offsets[i],
               info->param_sizes[i]);
    free(whole);
    return CUDA_SUCCESS;
}

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
            if (kernelParams[i] == NULL)
                return CUDA_ERROR_INVALID_VALUE;
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
    if (info->n_params == 0)
        return CUDA_SUCCESS;
    return buffer != NULL ? take_buffer(info, buffer, bytes, l->params) : CUDA_ERROR_INVALID_VALUE;
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

CUresult tl_drv_launch_check(const struct tl_drv_launch *l)
{
    CUresult r = check_shape(l->function, l);
    if (r != CUDA_SUCCESS)
        tl_drv_log("kernel %s cannot be launched with %u x %u x %u blocks of %u x %u x %u threads, "
                   "%u bytes of shared memory and %u more at launch",
                   l->function->info->name, l->grid[0], l->grid[1], l->grid[2], l->block[0],
                   l->block[1], l->block[2], l->function->info->shared_bytes, l->shared_bytes);
    return r;
}

CUresult tl_drv_launch_make(CUfunction handle, struct tl_drv_launch *l, void **kernelParams,
                            void **extra)
{
    l->params = NULL;
    CUresult r = tl_drv_function(handle, &l->function);
    if (r == CUDA_SUCCESS)
        r = tl_drv_launch_check(l);
    if (r == CUDA_SUCCESS && kernelParams != NULL && extra != NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = gather(l->function->info, kernelParams, extra, l);
    if (r == CUDA_SUCCESS)
        r = tl_drv_code_prepare(l);
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
