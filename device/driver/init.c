/* The driver's state, its devices and what comes before any context: cuInit, device queries. */
#include "device/driver/device.h"
#include "device/driver/exec.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/memory.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tl_mutex tl_drv_mutex = TL_MUTEX_INITIALIZER;
struct tl_drv_state_all tl_drv = {.next_id = 1};

/* --- cuInit ----------------------------------------------------------------------------------- */

static long number_from(const char *variable, long least, long most, long otherwise)
{
    const char *text = secure_getenv(variable);
    char *end;
    if (text == NULL || *text == 0)
        return otherwise;
    long v = strtol(text, &end, 10);
    return *end == 0 && v >= least && v <= most ? v : otherwise;
}

static void forked(void)
{
    /* threads and shared state did not come along; CUDA allows no more than this */
    tl_drv.is_forked_child = true;
}

/* `i` counts what the program sees, `number` all that there is. */
static CUresult open_device(int i, int number) TL_DRV_LOCKED
{
    struct tl_drv_device *d = &tl_drv.devices[i];
    d->ordinal = i;
    d->number = number;
    d->pci_bus = number + 1;
    const struct tl_drv_profile *p = tl_drv_profile();
    snprintf(d->name, sizeof d->name,
             p->is_strict ? "Tally Software Device (%s)" : "Tally Software Device", p->name);
    memcpy(d->uuid.bytes, "tally software ", 15);
    d->uuid.bytes[15] = (char)number;
    int rc = tl_drv_exec_open(d);
    if (rc != 0) /* busy: others, whom a fault has ended, have to go first */
        return rc == -EBUSY ? CUDA_ERROR_MPS_SERVER_NOT_READY : CUDA_ERROR_NO_DEVICE;
    d->default_pool = d->pool = tl_drv_pool_create(d);
    d->graph_pool = tl_drv_pool_create(d);
    if (d->graph_pool != NULL)
        d->graph_pool->is_graphs = true;
    return d->pool != NULL && d->graph_pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* CUDA_VISIBLE_DEVICES: numbers with commas between them, up to the first that there is not.
 * Returns how many, and the numbers; all devices if it is not set. */
static int visible_devices(int n_all, int numbers[TL_DRV_MAX_DEVICES])
{
    const char *text = secure_getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    for (int i = 0; text == NULL && i < n_all; i++)
        numbers[n++] = i;
    while (text != NULL && *text != 0 && n < n_all) {
        char *end;
        long v = strtol(text, &end, 10);
        if (end == text || v < 0 || v >= n_all || (*end != ',' && *end != 0))
            break;
        for (int i = 0; i < n; i++)
            if (numbers[i] == v)
                return 0; /* the same device twice: none, as on hardware */
        numbers[n++] = (int)v;
        text = *end == ',' ? end + 1 : end;
    }
    return n;
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
        int numbers[TL_DRV_MAX_DEVICES] = {0};
        tl_drv.n_physical = (int)number_from("TALLY_DEVICES", 1, TL_DRV_MAX_DEVICES, 1);
        tl_drv.n_devices = visible_devices(tl_drv.n_physical, numbers);
        if (tl_drv.n_devices == 0 || !tl_drv_profile_is_known())
            r = CUDA_ERROR_NO_DEVICE;
        for (int i = 0; i < tl_drv.n_devices && r == CUDA_SUCCESS; i++)
            r = open_device(i, numbers[i]);
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
    if (!atomic_load_explicit(&tl_drv.is_initialised, memory_order_acquire) ||
        tl_drv.is_forked_child)
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
    *driverVersion = tl_drv_driver_version();
    return CUDA_SUCCESS;
}

/* --- devices ---------------------------------------------------------------------------------- */

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

/* For our NVML: a device that this process sees, by the number of its bus.  Total, free and this
 * process's bytes; false if there is no such device here. */
__attribute__((visibility("default"))) bool tally_device_memory(unsigned bus, uint64_t bytes[3],
                                                                uint8_t uuid[16]);
bool tally_device_memory(unsigned bus, uint64_t bytes[3], uint8_t uuid[16])
{
    struct tl_drv_device *d;
    int n = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&n) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < n; i++) {
        if (tl_drv_device(i, &d) != CUDA_SUCCESS || (unsigned)d->pci_bus != bus)
            continue;
        tl_drv_exec_info(d, &bytes[1], &bytes[0]);
        bytes[2] = tl_drv_exec_mine(d);
        memcpy(uuid, d->uuid.bytes, 16);
        return true;
    }
    return false;
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

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, CUarray_format format,
                                            unsigned numChannels, CUdevice dev)
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

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice)
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

/* --- profiling -------------------------------------------------------------------------------- */

CUresult cuProfilerStart(void)
{
    return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
    return CUDA_SUCCESS;
}

/* Not in the headers any more, but still in the library that programs were linked with. */
CUresult cuProfilerInitialize(const char *configFile, const char *outputFile, int outputMode)
{
    (void)configFile, (void)outputFile, (void)outputMode;
    return tl_drv_unimplemented("cuProfilerInitialize");
}
