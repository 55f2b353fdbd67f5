/* What functions and kernels tell about themselves, and occupancy.  Numbers come from the PTX where
 * it has them; registers are a guess, and plausible ones matter: cuBLAS chooses by them. */
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/module.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"

#include "tally/device.h"

/* The same on all architectures that there are profiles of. */
enum { SM_REGISTERS = 65536, RESERVED_SHARED = 1024 };

/* What a function is asked for: from its PTX, or as it was set.  CUDA_ERROR_INVALID_VALUE for what
 * nobody has heard of. */
static CUresult attribute(const struct CUfunc_st *f, CUfunction_attribute attrib, int *pi)
{
    const struct tl_drv_kernel_info *k = f->info;
    if ((unsigned)attrib == TL_DEVICE_ATTRIBUTE_OPAQUE) {
        *pi = f->module->image->opaque != NULL;
        return CUDA_SUCCESS;
    }
    switch (attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *pi = (int)k->max_threads;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *pi = (int)k->shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *pi = (int)k->const_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *pi = (int)k->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *pi = (int)k->registers;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *pi = (int)k->target;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *pi = f->module->image->code_arch != 0 ? (int)f->module->image->code_arch
                                               : tl_drv.cc_major * 10 + tl_drv.cc_minor;
        break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *pi = 0;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *pi = f->max_dynamic_shared > 0
                  ? f->max_dynamic_shared
                  : (int)(k->shared_bytes < 49152 ? 49152 - k->shared_bytes : 0);
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *pi = f->carveout;
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        *pi = (int)k->required_cluster[0];
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        *pi = (int)k->required_cluster[1];
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *pi = (int)k->required_cluster[2];
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *pi = f->cluster_non_portable;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult set_attribute(struct CUfunc_st *f, CUfunction_attribute attrib, int value)
{
    switch (attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 ||
            (uint32_t)value + f->info->shared_bytes > (uint32_t)tl_drv_profile()->block_shared)
            return CUDA_ERROR_INVALID_VALUE;
        f->max_dynamic_shared = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        f->carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        f->cluster_non_portable = value != 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    struct CUfunc_st *f;
    CUresult r = tl_drv_function(hfunc, &f);
    if (r != CUDA_SUCCESS)
        return r;
    return pi != NULL ? attribute(f, attrib, pi) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    struct CUfunc_st *f;
    CUresult r = tl_drv_function(hfunc, &f);
    return r == CUDA_SUCCESS ? set_attribute(f, attrib, value) : r;
}

/* The function of a kernel on a device: in the current context if that is on it, else in the
 * primary one. */
static CUresult kernel_function(CUkernel kernel, CUdevice dev, struct CUfunc_st **out)
{
    struct tl_drv_device *d;
    struct CUmod_st *m;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (kernel == NULL || kernel->magic != TL_DRV_KERNEL)
        return CUDA_ERROR_INVALID_HANDLE;
    CUcontext ctx = tl_drv_current();
    if (ctx == NULL || ctx->device != d) {
        tl_drv_lock();
        ctx = tl_drv_primary(d);
        tl_drv_unlock();
        if (ctx == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    r = tl_drv_library_module(kernel->library, ctx, &m);
    return r == CUDA_SUCCESS ? tl_drv_module_function(m, kernel->name, out) : r;
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    struct CUfunc_st *f;
    CUresult r = kernel_function(kernel, dev, &f);
    if (r != CUDA_SUCCESS)
        return r;
    return pi != NULL ? attribute(f, attrib, pi) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    struct CUfunc_st *f;
    CUresult r = kernel_function(kernel, dev, &f);
    return r == CUDA_SUCCESS ? set_attribute(f, attrib, val) : r;
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    struct CUfunc_st *f;
    CUresult r = tl_drv_function(hfunc, &f);
    if (r == CUDA_SUCCESS)
        f->cache_config = config;
    return r;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    struct CUfunc_st *f;
    CUresult r = kernel_function(kernel, dev, &f);
    if (r == CUDA_SUCCESS)
        f->cache_config = config;
    return r;
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
    struct CUfunc_st *f;
    (void)config;
    return tl_drv_function(hfunc, &f);
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct CUfunc_st *f;
    CUresult r = tl_drv_function(hfunc, &f);
    if (r == CUDA_SUCCESS && hmod == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *hmod = f->module;
    return r;
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
    struct CUfunc_st *f;
    CUresult r = hfunc == NULL ? CUDA_ERROR_INVALID_VALUE : tl_drv_function(hfunc, &f);
    if (r == CUDA_SUCCESS && name == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *name = f->info->name;
    return r;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
                            size_t *paramSize)
{
    struct CUfunc_st *f;
    CUresult r = tl_drv_function(func, &f);
    if (r != CUDA_SUCCESS)
        return r;
    if (paramOffset == NULL || paramIndex >= f->info->n_params)
        return CUDA_ERROR_INVALID_VALUE;
    *paramOffset = tl_drv_param_offset(f->info, paramIndex);
    if (paramSize != NULL)
        *paramSize = f->info->param_sizes[paramIndex];
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    struct CUfunc_st *f;
    CUresult r = tl_drv_function(function, &f);
    if (r == CUDA_SUCCESS && state == NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return r;
}

CUresult cuFuncLoad(CUfunction function)
{
    struct CUfunc_st *f;
    return tl_drv_function(function, &f);
}

/* --- occupancy -------------------------------------------------------------------------------- */

static int blocks_per_sm(const struct CUfunc_st *f, int block_size, size_t dynamic)
{
    const struct tl_drv_profile *p = tl_drv_profile();
    if (block_size <= 0 || block_size > (int)f->info->max_threads)
        return 0;
    int warps = (block_size + 31) / 32;
    int n = p->sm_threads / (warps * 32);
    int registers = (int)((f->info->registers + 7) / 8 * 8) * 32 * warps;
    if (registers > 0 && SM_REGISTERS / registers < n)
        n = SM_REGISTERS / registers;
    if (dynamic > (size_t)p->block_shared) /* any number, which kernels ask with as well */
        return 0;
    size_t shared = (f->info->shared_bytes + dynamic + RESERVED_SHARED + 127) / 128 * 128;
    if (shared > (size_t)p->block_shared + RESERVED_SHARED)
        return 0;
    if ((size_t)p->sm_shared / shared < (size_t)n)
        n = (int)((size_t)p->sm_shared / shared);
    int most = f->module->ctx->device->sm_blocks;
    return n > most ? most : n;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags)
{
    struct CUfunc_st *f;
    CUresult r = tl_drv_function(func, &f);
    if (r != CUDA_SUCCESS)
        return r;
    if (numBlocks == NULL || blockSize <= 0 ||
        (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *numBlocks = blocks_per_sm(f, blockSize, dynamicSMemSize);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                dynamicSMemSize, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags)
{
    struct CUfunc_st *f;
    int best = 0, best_size = 0, best_blocks = 0;
    CUresult r = tl_drv_function(func, &f);
    (void)flags;
    if (r != CUDA_SUCCESS)
        return r;
    if (minGridSize == NULL || blockSize == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int limit = (int)f->info->max_threads;
    if (blockSizeLimit > 0 && blockSizeLimit < limit)
        limit = blockSizeLimit;
    for (int size = (limit + 31) / 32 * 32; size > 0; size -= 32) {
        int n = size > limit ? limit : size;
        size_t shared = blockSizeToDynamicSMemSize != NULL ? blockSizeToDynamicSMemSize(n)
                                                           : dynamicSMemSize;
        int blocks = blocks_per_sm(f, n, shared);
        if (blocks * n > best) {
            best = blocks * n;
            best_size = n;
            best_blocks = blocks;
        }
    }
    *minGridSize = best_blocks * f->module->ctx->device->sms;
    *blockSize = best_size;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func,
                                                     blockSizeToDynamicSMemSize, dynamicSMemSize,
                                                     blockSizeLimit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize)
{
    struct CUfunc_st *f;
    CUresult r = tl_drv_function(func, &f);
    if (r != CUDA_SUCCESS)
        return r;
    if (dynamicSmemSize == NULL || numBlocks <= 0 || blockSize <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    const struct tl_drv_profile *p = tl_drv_profile();
    size_t each = (size_t)p->sm_shared / (size_t)numBlocks / 128 * 128;
    size_t fixed = f->info->shared_bytes + RESERVED_SHARED;
    size_t left = each > fixed ? each - fixed : 0;
    /* More than a block gets by itself is for functions that were allowed it. */
    int allowed = 0;
    r = cuFuncGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, func);
    *dynamicSmemSize = left > (size_t)allowed ? (size_t)allowed : left;
    return r;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func,
                                            const CUlaunchConfig *config)
{
    struct CUfunc_st *f;
    CUresult r = tl_drv_function(func, &f);
    if (r == CUDA_SUCCESS && (clusterSize == NULL || config == NULL))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *clusterSize = 1;
    return r;
}

CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
                                      const CUlaunchConfig *config)
{
    struct CUfunc_st *f;
    CUresult r = tl_drv_function(func, &f);
    if (r == CUDA_SUCCESS && (numClusters == NULL || config == NULL))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *numClusters = blocks_per_sm(
                           f, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
                           config->sharedMemBytes) *
                       f->module->ctx->device->sms;
    return r;
}
