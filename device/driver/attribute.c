/* Device attributes: one table.  Those that depend on the device, on its profile or on settings are
 * computed; unknown ones are zero, which every client seen so far takes for "no". */
#include "device/driver/device.h"
#include "device/driver/exec.h"
#include "device/driver/handle.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"
#include "tally/device.h"

#include <stdlib.h>
#include <string.h>

#define ATTRIBUTES(X)                                                                              \
    X(MAX_THREADS_PER_BLOCK, 1024)                                                                 \
    X(MAX_BLOCK_DIM_X, 1024)                                                                       \
    X(MAX_BLOCK_DIM_Y, 1024)                                                                       \
    X(MAX_BLOCK_DIM_Z, 64)                                                                         \
    X(MAX_GRID_DIM_X, 0x7fffffff)                                                                  \
    X(MAX_GRID_DIM_Y, 65535)                                                                       \
    X(MAX_GRID_DIM_Z, 65535)                                                                       \
    X(MAX_SHARED_MEMORY_PER_BLOCK, 49152)                                                          \
    X(TOTAL_CONSTANT_MEMORY, 65536)                                                                \
    X(WARP_SIZE, 32)                                                                               \
    X(MAX_PITCH, 0x7fffffff)                                                                       \
    X(MAX_REGISTERS_PER_BLOCK, 65536)                                                              \
    X(CLOCK_RATE, p->clock_khz)                                                                    \
    X(TEXTURE_ALIGNMENT, 512)                                                                      \
    X(GPU_OVERLAP, 1)                                                                              \
    X(MULTIPROCESSOR_COUNT, d->sms)                                                                \
    X(CAN_MAP_HOST_MEMORY, 1)                                                                      \
    X(MAXIMUM_TEXTURE1D_WIDTH, 131072)                                                             \
    X(MAXIMUM_TEXTURE2D_WIDTH, 131072)                                                             \
    X(MAXIMUM_TEXTURE2D_HEIGHT, 65536)                                                             \
    X(MAXIMUM_TEXTURE3D_WIDTH, 16384)                                                              \
    X(MAXIMUM_TEXTURE3D_HEIGHT, 16384)                                                             \
    X(MAXIMUM_TEXTURE3D_DEPTH, 16384)                                                              \
    X(MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768)                                                      \
    X(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768)                                                     \
    X(MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048)                                                      \
    X(SURFACE_ALIGNMENT, 512)                                                                      \
    X(ECC_ENABLED, p->has_ecc)                                                                     \
    X(CONCURRENT_KERNELS, 1)                                                                       \
    X(PCI_BUS_ID, d->pci_bus)                                                                      \
    X(MEMORY_CLOCK_RATE, p->memory_khz)                                                            \
    X(GLOBAL_MEMORY_BUS_WIDTH, p->bus_bits)                                                        \
    X(L2_CACHE_SIZE, p->l2_bytes)                                                                  \
    X(MAX_THREADS_PER_MULTIPROCESSOR, p->sm_threads)                                               \
    X(ASYNC_ENGINE_COUNT, p->copy_engines)                                                         \
    X(UNIFIED_ADDRESSING, 1)                                                                       \
    X(MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768)                                                      \
    X(MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048)                                                      \
    X(CAN_TEX2D_GATHER, 1)                                                                         \
    X(MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768)                                                       \
    X(MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768)                                                      \
    X(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192)                                                     \
    X(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192)                                                    \
    X(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768)                                                    \
    X(TEXTURE_PITCH_ALIGNMENT, 32)                                                                 \
    X(MAXIMUM_TEXTURECUBEMAP_WIDTH, 32768)                                                         \
    X(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32768)                                                 \
    X(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046)                                                 \
    X(MAXIMUM_SURFACE1D_WIDTH, 32768)                                                              \
    X(MAXIMUM_SURFACE2D_WIDTH, 131072)                                                             \
    X(MAXIMUM_SURFACE2D_HEIGHT, 65536)                                                             \
    X(MAXIMUM_SURFACE3D_WIDTH, 16384)                                                              \
    X(MAXIMUM_SURFACE3D_HEIGHT, 16384)                                                             \
    X(MAXIMUM_SURFACE3D_DEPTH, 16384)                                                              \
    X(MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768)                                                      \
    X(MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048)                                                      \
    X(MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768)                                                      \
    X(MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768)                                                     \
    X(MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048)                                                      \
    X(MAXIMUM_SURFACECUBEMAP_WIDTH, 32768)                                                         \
    X(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768)                                                 \
    X(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046)                                                 \
    X(MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268435456)                                                   \
    X(MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131072)                                                      \
    X(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000)                                                      \
    X(MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2097120)                                                     \
    X(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768)                                                    \
    X(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768)                                                   \
    X(COMPUTE_CAPABILITY_MAJOR, tl_drv.cc_major)                                                   \
    X(COMPUTE_CAPABILITY_MINOR, tl_drv.cc_minor)                                                   \
    X(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768)                                                    \
    X(STREAM_PRIORITIES_SUPPORTED, 1)                                                              \
    X(GLOBAL_L1_CACHE_SUPPORTED, 1)                                                                \
    X(LOCAL_L1_CACHE_SUPPORTED, 1)                                                                 \
    X(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, p->sm_shared)                                          \
    X(MAX_REGISTERS_PER_MULTIPROCESSOR, 65536)                                                     \
    X(MANAGED_MEMORY, 1)                                                                           \
    X(MULTI_GPU_BOARD_GROUP_ID, d->ordinal)                                                        \
    X(HOST_NATIVE_ATOMIC_SUPPORTED, p->host_atomics)                                               \
    X(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, p->float_to_double)                                   \
    X(CONCURRENT_MANAGED_ACCESS, 1)                                                                \
    X(COMPUTE_PREEMPTION_SUPPORTED, p->has_preemption)                                             \
    X(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1)                                                  \
    X(CAN_USE_STREAM_MEM_OPS_V1, 1)                                                                \
    X(CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1)                                                         \
    X(CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1)                                                         \
    X(COOPERATIVE_LAUNCH, 1)                                                                       \
    X(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, p->block_shared)                                          \
    X(CAN_FLUSH_REMOTE_WRITES, 1)                                                                  \
    X(HOST_REGISTER_SUPPORTED, 1)                                                                  \
    X(DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, p->managed_from_host)                                   \
    X(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1)                                                      \
    X(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1)                                              \
    X(MAX_BLOCKS_PER_MULTIPROCESSOR, d->sm_blocks)                                                 \
    X(RESERVED_SHARED_MEMORY_PER_BLOCK, 1024)                                                      \
    X(READ_ONLY_HOST_REGISTER_SUPPORTED, p->read_only_registration)                                \
    X(MEMORY_POOLS_SUPPORTED, 1)                                                                   \
    X(MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)                    \
    X(CLUSTER_LAUNCH, 0)                                                                           \
    X(TENSOR_MAP_ACCESS_SUPPORTED, tl_drv.cc_major >= 9)                                           \
    X(CAN_USE_64_BIT_STREAM_MEM_OPS, 1)                                                            \
    X(CAN_USE_STREAM_WAIT_VALUE_NOR, 1)                                                            \
    X(IPC_EVENT_SUPPORTED, 1)                                                                      \
    X(MEM_SYNC_DOMAIN_COUNT, p->sync_domains)                                                      \
    X(NUMA_ID, -1)                                                                                 \
    X(HOST_NUMA_ID, 0) /* pools take node 0 on every machine */                                    \
    X(HOST_NUMA_MEMORY_POOLS_SUPPORTED, tl_drv_driver_version() >= 13000)                          \
    X(HOST_MEMORY_POOLS_SUPPORTED, tl_drv_driver_version() >= 13000)

int tl_drv_device_attribute(const struct tl_drv_device *d, CUdevice_attribute attribute)
{
    const struct tl_drv_profile *p = tl_drv_profile();
    switch ((int)attribute) {
#define CASE(name, value)                                                                          \
    case CU_DEVICE_ATTRIBUTE_##name:                                                               \
        return (value);
        ATTRIBUTES(CASE)
#undef CASE
    default:
        return 0;
    }
}

/* What only this device knows (include/tally/device.h); CUDA_ERROR_NOT_FOUND if it is none of
 * that. */
static CUresult own_attribute(struct tl_drv_device *d, int attribute, int *pi)
{
    uint64_t n[4];
    const char *text;
    switch (attribute) {
    case TL_DEVICE_ATTRIBUTE_HOST_READS:
    case TL_DEVICE_ATTRIBUTE_HOST_WRITES:
    case TL_DEVICE_ATTRIBUTE_HOST_ATOMICS:
    case TL_DEVICE_ATTRIBUTE_HOST_WAITS:
        tl_drv_exec_host_accesses(d, n);
        *pi = (int)(n[attribute - TL_DEVICE_ATTRIBUTE_HOST_READS] & INT32_MAX);
        return CUDA_SUCCESS;
    case TL_DEVICE_ATTRIBUTE_WORKED_US:
        *pi = (int)(tl_drv_exec_worked_ns(d) / 1000 & INT32_MAX);
        return CUDA_SUCCESS;
    case TL_DEVICE_ATTRIBUTE_BLOCK_BY_BLOCK:
        text = secure_getenv("TALLY_DEVICE_BLOCK_BY_BLOCK");
        if (text != NULL && strcmp(text, "untold") == 0)
            return CUDA_ERROR_INVALID_VALUE; /* as a GPU's driver, for tests */
        *pi = 1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_FOUND;
    }
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    r = pi != NULL ? own_attribute(d, (int)attrib, pi) : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_ERROR_NOT_FOUND)
        return r;
    if ((int)attrib <= 0 || (int)attrib > tl_drv_last_attribute())
        return CUDA_ERROR_INVALID_VALUE;
    *pi = tl_drv_device_attribute(d, attrib);
    int major, minor;
    if (attrib == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ||
        attrib == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) {
        tl_drv_capability_for(__builtin_return_address(0), &major, &minor);
        *pi = attrib == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? major : minor;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (prop == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = (CUdevprop){.maxThreadsPerBlock = 1024,
                        .maxThreadsDim = {1024, 1024, 64},
                        .maxGridSize = {0x7fffffff, 65535, 65535},
                        .sharedMemPerBlock = 49152,
                        .totalConstantMemory = 65536,
                        .SIMDWidth = 32,
                        .memPitch = 0x7fffffff,
                        .regsPerBlock = 65536,
                        .clockRate = tl_drv_profile()->clock_khz,
                        .textureAlign = 512};
    return CUDA_SUCCESS;
}

/* Host and devices are one memory and one set of instructions, so whatever is atomic for one is so
 * for all; but a profile may say otherwise. */
CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities,
                                           const CUatomicOperation *operations, unsigned int count,
                                           CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (capabilities == NULL || operations == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        capabilities[i] = tl_drv_profile()->host_atomics == 0
                              ? 0
                              : CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED |
                                    CU_ATOMIC_CAPABILITY_REDUCTION |
                                    CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
                                          const CUatomicOperation *operations, unsigned int count,
                                          CUdevice srcDevice, CUdevice dstDevice)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(srcDevice, &d);
    return r == CUDA_SUCCESS
               ? cuDeviceGetHostAtomicCapabilities(capabilities, operations, count, dstDevice)
               : r;
}
