/* The driver's state, its devices and what comes before any context: cuInit, device queries, errors by name, logging. */
#include "device/driver.h"
#include "device/driver_exec.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct tl_drv_state_all tl_drv = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_id = 1};

/* --- logging ----------------------------------------------------------------------------------------------------- */

bool tl_drv_log_is_on(void)
{
    static _Atomic int known; /* 0 unknown, 1 off, 2 on; relaxed: every thread finds the same answer */
    int is = atomic_load_explicit(&known, memory_order_relaxed);
    if (is == 0) {
        const char *text = getenv("TALLY_LOG");
        bool off = text == NULL || *text == 0 || strcmp(text, "0") == 0 || strcmp(text, "off") == 0;
        is = off ? 1 : 2;
        atomic_store_explicit(&known, is, memory_order_relaxed);
    }
    return is == 2;
}

void tl_drv_log(const char *format, ...)
{
    char line[1400];
    va_list args;
    int n = snprintf(line, sizeof line, "tally device %d: ", (int)getpid());
    va_start(args, format);
    vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    tl_drv_logs_add(line + n);
    if (!tl_drv_log_is_on())
        return;
    size_t length = strlen(line);
    line[length] = '\n';
    if (write(STDERR_FILENO, line, length + 1) < 0)
        return; /* nowhere to complain */
}

CUresult tl_drv_unimplemented(const char *name)
{
    static const char *told[512]; /* guarded by the driver's lock */
    static size_t n_told;
    bool is_new = true;
    tl_drv_lock();
    for (size_t i = 0; i < n_told && is_new; i++)
        is_new = told[i] != name;
    if (is_new && n_told < sizeof told / sizeof told[0])
        told[n_told++] = name;
    tl_drv_unlock();
    if (is_new)
        tl_drv_log("%s is not implemented; it returns CUDA_ERROR_NOT_SUPPORTED", name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

uint64_t tl_drv_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- cuInit ------------------------------------------------------------------------------------------------------ */

static long number_from(const char *variable, long least, long most, long otherwise)
{
    const char *text = getenv(variable);
    char *end;
    if (text == NULL || *text == 0)
        return otherwise;
    long v = strtol(text, &end, 10);
    return *end == 0 && v >= least && v <= most ? v : otherwise;
}

static void forked(void)
{
    tl_drv.is_forked_child = true; /* threads and shared state did not come along; CUDA allows no more than this */
}

static CUresult open_device(int i)
{
    struct tl_drv_device *d = &tl_drv.devices[i];
    d->ordinal = i;
    d->pci_bus = i + 1;
    snprintf(d->name, sizeof d->name, "Tally Software Device");
    memcpy(d->uuid.bytes, "tally software ", 15);
    d->uuid.bytes[15] = (char)i;
    if (tl_drv_exec_open(d) != 0)
        return CUDA_ERROR_NO_DEVICE;
    d->default_pool = d->pool = tl_drv_pool_create(d);
    return d->pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuInit(unsigned int Flags)
{
    CUresult r = CUDA_SUCCESS;
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load_explicit(&tl_drv.is_initialised, memory_order_acquire))
        return tl_drv.is_forked_child ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
    tl_drv_lock();
    if (!atomic_load_explicit(&tl_drv.is_initialised, memory_order_relaxed)) {
        tl_drv_capability_read();
        tl_drv.below_normal = 16 * (int)number_from("CUDA_MPS_CLIENT_PRIORITY", 0, 1, 0);
        tl_drv.n_devices = (int)number_from("TALLY_DEVICES", 1, TL_DRV_MAX_DEVICES, 1);
        for (int i = 0; i < tl_drv.n_devices && r == CUDA_SUCCESS; i++)
            r = open_device(i);
        if (r == CUDA_SUCCESS) {
            pthread_atfork(NULL, NULL, forked);
            /* release: whoever sees it set also sees the devices. */
            atomic_store_explicit(&tl_drv.is_initialised, true, memory_order_release);
        }
    }
    tl_drv_unlock();
    return r;
}

CUresult tl_drv_check_init(void)
{
    if (!atomic_load_explicit(&tl_drv.is_initialised, memory_order_acquire) || tl_drv.is_forked_child)
        return CUDA_ERROR_NOT_INITIALIZED;
    return CUDA_SUCCESS;
}

CUresult tl_drv_device(CUdevice ordinal, struct tl_drv_device **out)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (ordinal < 0 || ordinal >= tl_drv.n_devices)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = &tl_drv.devices[ordinal];
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *driverVersion)
{
    if (driverVersion == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = TL_DRV_VERSION;
    return CUDA_SUCCESS;
}

/* --- devices ----------------------------------------------------------------------------------------------------- */

CUresult cuDeviceGetCount(int *count)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = tl_drv.n_devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(ordinal, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (name == NULL || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)len, "%s", d->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (uuid == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *uuid = d->uuid;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    return cuDeviceGetUuid_v2(uuid, dev);
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
    (void)luid, (void)deviceNodeMask, (void)dev;
    return CUDA_ERROR_NOT_SUPPORTED; /* Windows only, on hardware too */
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = d->memory_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (pciBusId == NULL || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", (unsigned)d->pci_bus);
    return CUDA_SUCCESS;
}

/* "domain:bus:device.function", "domain:bus:device" or "bus:device", in hexadecimal. */
CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    unsigned long parts[3] = {0};
    int n = 0;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (dev == NULL || pciBusId == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (const char *p = pciBusId; n < 3; p++) {
        char *end;
        parts[n++] = strtoul(p, &end, 16);
        if (end == p)
            return CUDA_ERROR_INVALID_VALUE;
        p = end;
        if (*p != ':')
            break;
    }
    if (n < 2)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < tl_drv.n_devices; i++) {
        if (tl_drv.devices[i].pci_bus == (int)parts[n - 2] && parts[n - 1] == 0) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    if (r != CUDA_SUCCESS)
        return r;
    if (major == NULL || minor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_capability_for(__builtin_return_address(0), major, minor);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, CUarray_format format, unsigned numChannels,
                                            CUdevice dev)
{
    struct tl_drv_device *d;
    CUresult r = tl_drv_device(dev, &d);
    (void)format, (void)numChannels;
    if (r != CUDA_SUCCESS)
        return r;
    if (maxWidthInElements == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *maxWidthInElements = (size_t)1 << 28;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    struct tl_drv_device *a, *b;
    CUresult r = tl_drv_device(dev, &a);
    if (r == CUDA_SUCCESS)
        r = tl_drv_device(peerDev, &b);
    if (r != CUDA_SUCCESS)
        return r;
    if (canAccessPeer == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *canAccessPeer = a != b; /* one address space for all of them */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice)
{
    struct tl_drv_device *a, *b;
    CUresult r = tl_drv_device(srcDevice, &a);
    if (r == CUDA_SUCCESS)
        r = tl_drv_device(dstDevice, &b);
    if (r != CUDA_SUCCESS)
        return r;
    if (value == NULL || a == b)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* --- errors by name ---------------------------------------------------------------------------------------------- */

#define ERRORS(X)                                                                                                      \
    X(CUDA_SUCCESS, "no error")                                                                                        \
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                                    \
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                                       \
    X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                                              \
    X(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                                                \
    X(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled while using external profiling tool")                           \
    X(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")                                                        \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")                              \
    X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                                      \
    X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                                             \
    X(CUDA_ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license")                                        \
    X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                                      \
    X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                                            \
    X(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current")                                                   \
    X(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed")                                                        \
    X(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed")                                                    \
    X(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped")                                                                   \
    X(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped")                                                            \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")                        \
    X(CUDA_ERROR_ALREADY_ACQUIRED, "resource already acquired")                                                        \
    X(CUDA_ERROR_NOT_MAPPED, "resource not mapped")                                                                    \
    X(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "resource not mapped as array")                                                  \
    X(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "resource not mapped as pointer")                                              \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")                                             \
    X(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture")                                     \
    X(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "exclusive-thread device already in use by a different thread")               \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")                    \
    X(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed")                                                          \
    X(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid OpenGL or DirectX context")                                        \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution")                     \
    X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found")                                         \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain.")              \
    X(CUDA_ERROR_JIT_COMPILATION_DISABLED, "PTX JIT compilation was disabled")                                         \
    X(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "the provided execution affinity is not supported")                        \
    X(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid")                                                     \
    X(CUDA_ERROR_FILE_NOT_FOUND, "file not found")                                                                     \
    X(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found")                                     \
    X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed")                                     \
    X(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")                             \
    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                                            \
    X(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state")                              \
    X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                                                  \
    X(CUDA_ERROR_NOT_READY, "device not ready")                                                                        \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                          \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")                                   \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                                            \
    X(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch uses incompatible texturing mode")                             \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")                                        \
    X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled")                                          \
    X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process")                          \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                                         \
    X(CUDA_ERROR_ASSERT, "device-side assert triggered")                                                               \
    X(CUDA_ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted")                                                   \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped")        \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region")              \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error")                                                         \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered")                                        \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address")                                                             \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space")                      \
    X(CUDA_ERROR_INVALID_PC, "invalid program counter")                                                                \
    X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                                          \
    X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch")                                \
    X(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                                                             \
    X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                                             \
    X(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized")                                                       \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination")            \
    X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "forward compatibility was attempted on non supported HW")            \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")                       \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture")                \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences")              \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began")                     \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")                                        \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream")                  \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,                                                                              \
      "operation would make the legacy stream depend on a capturing blocking stream")                                  \
    X(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream")            \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,                                                                          \
      "attempt to terminate a thread-local capture sequence from another thread")                                      \
    X(CUDA_ERROR_TIMEOUT, "wait operation timed out")                                                                  \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph update was not performed because it included changes which "    \
                                            "violated constraints specific to instantiated graph update")              \
    X(CUDA_ERROR_EXTERNAL_DEVICE, "an async error has occurred in external entity outside of CUDA")                    \
    X(CUDA_ERROR_INVALID_CLUSTER_SIZE, "a kernel launch error has occurred due to cluster misconfiguration")           \
    X(CUDA_ERROR_FUNCTION_NOT_LOADED,                                                                                  \
      "the function handle is not loaded when calling an API that requires a loaded function")                         \
    X(CUDA_ERROR_INVALID_RESOURCE_TYPE, "one or more resources passed in are not valid resource types")                \
    X(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "one or more resources are insufficient or non-applicable")           \
    X(CUDA_ERROR_UNKNOWN, "unknown error")

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define ROW(code, text) {code, #code, text},
    ERRORS(ROW)
#undef ROW
};

static int error_row(CUresult error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == error)
            return (int)i;
    return -1;
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    if (pStr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int row = error_row(error);
    *pStr = row >= 0 ? errors[row].name : NULL;
    return row >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    if (pStr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int row = error_row(error);
    *pStr = row >= 0 ? errors[row].text : NULL;
    return row >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- profiling --------------------------------------------------------------------------------------------------- */

CUresult cuProfilerStart(void)
{
    return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
    return CUDA_SUCCESS;
}
