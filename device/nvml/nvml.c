/* The little of NVML that clients of the driver ask for: TensorFlow lists no GPU without it.  What
 * the device does not have is in absent.c. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
};

/* a device is the address of its name */
static const char *const names[8] = {"0", "1", "2", "3", "4", "5", "6", "7"};

static unsigned device_count(void)
{
    const char *text = secure_getenv("TALLY_DEVICES");
    long n = text != NULL ? strtol(text, NULL, 10) : 1;
    return n >= 1 && n <= 8 ? (unsigned)n : 1;
}

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

EXPORT int nvmlInit(void);
EXPORT int nvmlInit(void)
{
    return NVML_SUCCESS;
}

EXPORT int nvmlInitWithFlags(unsigned flags);
EXPORT int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return NVML_SUCCESS;
}

EXPORT int nvmlShutdown(void);
EXPORT int nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(int result);
EXPORT const char *nvmlErrorString(int result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    default:
        return "Unknown Error";
    }
}

/* The driver that the software device answers as (device/driver/profile.c): the branch is the end
 * of the profile's name.  The last numbers are those of a release of it. */
static const struct driver {
    const char *branch, *version;
    int cuda;
} * the_driver(void)
{
    static const struct driver drivers[] = {
        {"-r535", "535.183.06", 12020}, {"-r550", "550.90.07", 12040}, {"", "580.65.06", 13000}};
    const char *profile = secure_getenv("TALLY_DEVICE_PROFILE");
    size_t i = 0;
    while (drivers[i].branch[0] != 0 &&
           (profile == NULL || strstr(profile, drivers[i].branch) == NULL))
        i++;
    return &drivers[i];
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length);
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    snprintf(version, length, "%s", the_driver()->version);
    return NVML_SUCCESS;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version);
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = the_driver()->cuda;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = device_count();
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, const void **device);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, const void **device)
{
    if (index >= device_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = names[index];
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetIndex(const void *device, unsigned *index);
EXPORT int nvmlDeviceGetIndex(const void *device, unsigned *index)
{
    for (unsigned i = 0; i < device_count(); i++) {
        if (device == names[i]) {
            *index = i;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, const void **device);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, const void **device)
{
    const char *colon = strchr(id, ':'); /* domain:bus:device.function */
    unsigned long bus = colon != NULL ? strtoul(colon + 1, NULL, 16) : 0;
    if (bus < 1 || bus > device_count())
        return NVML_ERROR_NOT_FOUND;
    *device = names[bus - 1];
    return NVML_SUCCESS;
}

struct pci {
    char short_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

/* As the driver has it (cuDeviceGetPCIBusId).  It is nobody's product: its numbers are 0. */
EXPORT int nvmlDeviceGetPciInfo_v3(const void *device, struct pci *pci);
EXPORT int nvmlDeviceGetPciInfo_v3(const void *device, struct pci *pci)
{
    unsigned index;
    if (pci == NULL || nvmlDeviceGetIndex(device, &index) != NVML_SUCCESS)
        return NVML_ERROR_INVALID_ARGUMENT;
    *pci = (struct pci){.bus = index + 1};
    snprintf(pci->short_id, sizeof pci->short_id, "0000:%02X:00.0", pci->bus);
    snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", pci->bus);
    return NVML_SUCCESS;
}

/* The first versions, which differ in flags that are not asked for here. */
EXPORT int nvmlDeviceGetCount(unsigned *count);
EXPORT int nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, const void **device);
EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, const void **device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT int nvmlDeviceGetHandleByPciBusId(const char *id, const void **device);
EXPORT int nvmlDeviceGetHandleByPciBusId(const char *id, const void **device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

EXPORT int nvmlDeviceGetName(const void *device, char *name, unsigned length);
EXPORT int nvmlDeviceGetName(const void *device, char *name, unsigned length)
{
    (void)device;
    snprintf(name, length, "Tally Software Device");
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(const void *device, unsigned *generation);
EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(const void *device, unsigned *generation)
{
    (void)device;
    *generation = 4;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetCurrPcieLinkWidth(const void *device, unsigned *width);
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(const void *device, unsigned *width)
{
    (void)device;
    *width = 16;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(const void *device, unsigned *generation);
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(const void *device, unsigned *generation)
{
    return nvmlDeviceGetCurrPcieLinkGeneration(device, generation);
}

EXPORT int nvmlDeviceGetMaxPcieLinkWidth(const void *device, unsigned *width);
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(const void *device, unsigned *width)
{
    return nvmlDeviceGetCurrPcieLinkWidth(device, width);
}

/* Any number of processes may use it (CU_COMPUTEMODE_DEFAULT). */
EXPORT int nvmlDeviceGetComputeMode(const void *device, int *mode);
EXPORT int nvmlDeviceGetComputeMode(const void *device, int *mode)
{
    if (device == NULL || mode == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mode = 0;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetNvLinkState(const void *device, unsigned link, int *state);
EXPORT int nvmlDeviceGetNvLinkState(const void *device, unsigned link, int *state)
{
    (void)device, (void)link, (void)state;
    return NVML_ERROR_NOT_SUPPORTED;
}

/* PyTorch's message for a device that is full looks these up, and fails if they are not there. */
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(const void *device, unsigned link, int *type);
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(const void *device, unsigned link, int *type)
{
    (void)device, (void)link, (void)type;
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(const void *device, unsigned link, void *pci);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(const void *device, unsigned link, void *pci)
{
    (void)device, (void)link, (void)pci;
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetGpuFabricInfoV(const void *device, void *info);
EXPORT int nvmlDeviceGetGpuFabricInfoV(const void *device, void *info)
{
    (void)device, (void)info;
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo(const void *device, unsigned link, void *pci);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo(const void *device, unsigned link, void *pci)
{
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}

EXPORT int nvmlDeviceGetNvLinkCapability(const void *device, unsigned link, int capability,
                                         unsigned *has);
EXPORT int nvmlDeviceGetNvLinkCapability(const void *device, unsigned link, int capability,
                                         unsigned *has)
{
    (void)device, (void)link, (void)capability, (void)has;
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetFieldValues(const void *device, int n, void *values);
EXPORT int nvmlDeviceGetFieldValues(const void *device, int n, void *values)
{
    (void)device, (void)n, (void)values;
    return NVML_ERROR_NOT_SUPPORTED;
}

/* NCCL asks this of all pairs, and does not look whether it is there.  The devices of a user have
 * one address space, so each can read and write the others' memory (cuDeviceCanAccessPeer). */
EXPORT int nvmlDeviceGetP2PStatus(const void *a, const void *b, int capability, int *status);
EXPORT int nvmlDeviceGetP2PStatus(const void *a, const void *b, int capability, int *status)
{
    enum { READ, WRITE, NVLINK, ATOMICS, PCI, PROP };
    enum { OK, NOT_SUPPORTED = 5 };
    if (a == NULL || b == NULL || status == NULL || capability < READ || capability > PROP)
        return NVML_ERROR_INVALID_ARGUMENT;
    *status = capability == NVLINK ? NOT_SUPPORTED : OK;
    return NVML_SUCCESS;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* A function of the driver, which lies beside this library; NULL if it has none. */
static void *driver_function(const char *name)
{
    static void *_Atomic found;
    Dl_info here;
    char path[4096];
    if (found == NULL) {
        if (dladdr((const void *)names, &here) == 0 || here.dli_fname == NULL)
            return NULL;
        const char *slash = strrchr(here.dli_fname, '/');
        int n = snprintf(path, sizeof path, "%.*s/libcuda.so.1",
                         slash != NULL ? (int)(slash - here.dli_fname) : 1,
                         slash != NULL ? here.dli_fname : ".");
        found = n < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    }
    return found != NULL ? dlsym(found, name) : NULL;
}

/* The device's ledger is the driver's. */
static bool ask_driver(const void *device, uint64_t bytes[3], uint8_t uuid[16])
{
    static void *_Atomic found;
    if (found == NULL)
        found = driver_function("tally_device_memory");
    bool (*ask)(unsigned, uint64_t *, uint8_t *) = (__typeof__(ask))found;
    unsigned index = 0;
    while (index < 8 && device != names[index])
        index++;
    return ask != NULL && index < 8 && ask(index + 1, bytes, uuid);
}

/* All devices have the same; the driver knows it once it was initialised. */
EXPORT int nvmlDeviceGetCudaComputeCapability(const void *device, int *major, int *minor);
EXPORT int nvmlDeviceGetCudaComputeCapability(const void *device, int *major, int *minor)
{
    enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR };
    int (*get)(int *, int, int) = (__typeof__(get))driver_function("cuDeviceGetAttribute");
    if (device == NULL || major == NULL || minor == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    return get != NULL && get(major, CAPABILITY_MAJOR, 0) == 0 &&
                   get(minor, CAPABILITY_MINOR, 0) == 0
               ? NVML_SUCCESS
               : NVML_ERROR_NOT_SUPPORTED;
}

struct memory {
    unsigned long long total, free, used;
};
EXPORT int nvmlDeviceGetMemoryInfo(const void *device, struct memory *m);
EXPORT int nvmlDeviceGetMemoryInfo(const void *device, struct memory *m)
{
    uint64_t bytes[3];
    uint8_t uuid[16];
    if (m == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!ask_driver(device, bytes, uuid))
        return NVML_ERROR_NOT_SUPPORTED;
    *m = (struct memory){bytes[0], bytes[1], bytes[0] - bytes[1]};
    return NVML_SUCCESS;
}

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
EXPORT int nvmlDeviceGetMemoryInfo_v2(const void *device, struct memory_v2 *m);
EXPORT int nvmlDeviceGetMemoryInfo_v2(const void *device, struct memory_v2 *m)
{
    struct memory one;
    int rc = m != NULL ? nvmlDeviceGetMemoryInfo(device, &one) : NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS)
        *m = (struct memory_v2){m->version, one.total, 0, one.free, one.used};
    return rc;
}

EXPORT int nvmlDeviceGetUUID(const void *device, char *text, unsigned length);
EXPORT int nvmlDeviceGetUUID(const void *device, char *text, unsigned length)
{
    uint64_t bytes[3];
    uint8_t u[16];
    if (!ask_driver(device, bytes, u))
        return NVML_ERROR_NOT_SUPPORTED;
    int n = snprintf(text, length,
                     "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                     u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
                     u[12], u[13], u[14], u[15]);
    return (unsigned)n < length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, const void **device);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, const void **device)
{
    char text[64];
    for (unsigned i = 0; i < device_count(); i++)
        if (nvmlDeviceGetUUID(names[i], text, sizeof text) == NVML_SUCCESS &&
            strcmp(text, uuid) == 0) {
            *device = names[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

/* Of the processes on the device it knows the one that asks. */
struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const void *device, unsigned *n,
                                                   struct process *list);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const void *device, unsigned *n,
                                                   struct process *list)
{
    uint64_t bytes[3];
    uint8_t uuid[16];
    if (n == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!ask_driver(device, bytes, uuid))
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned room = list != NULL ? *n : 0;
    *n = 1;
    if (room < 1)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    list[0] = (struct process){(unsigned)getpid(), bytes[2], 0xffffffff, 0xffffffff};
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(const void *device, unsigned *n,
                                                   struct process *list);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(const void *device, unsigned *n,
                                                   struct process *list)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, n, list);
}

/* The first version, whose rows are shorter. */
struct process_v1 {
    unsigned pid;
    unsigned long long bytes;
};
EXPORT int nvmlDeviceGetComputeRunningProcesses(const void *device, unsigned *n,
                                                struct process_v1 *list);
EXPORT int nvmlDeviceGetComputeRunningProcesses(const void *device, unsigned *n,
                                                struct process_v1 *list)
{
    struct process one;
    unsigned room = n != NULL && list != NULL ? *n : 0;
    if (n != NULL)
        *n = 1;
    int rc = nvmlDeviceGetComputeRunningProcesses_v3(device, n, &one);
    if (rc == NVML_SUCCESS && room < 1)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (rc == NVML_SUCCESS)
        list[0] = (struct process_v1){one.pid, one.bytes};
    return rc;
}

/* Nobody draws on it. */
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(const void *device, unsigned *n, void *list);
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(const void *device, unsigned *n, void *list)
{
    (void)list;
    if (device == NULL || n == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *n = 0;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(const void *device, unsigned *n, void *list);
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(const void *device, unsigned *n, void *list)
{
    return nvmlDeviceGetGraphicsRunningProcesses_v3(device, n, list);
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses(const void *device, unsigned *n, void *list);
EXPORT int nvmlDeviceGetGraphicsRunningProcesses(const void *device, unsigned *n, void *list)
{
    return nvmlDeviceGetGraphicsRunningProcesses_v3(device, n, list);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version);
EXPORT int nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned length);
EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    snprintf(version, length, "%d.%s", the_driver()->cuda / 1000, the_driver()->version);
    return NVML_SUCCESS;
}

/* The branch as a driver writes it: r580_00. */
struct branch_info {
    unsigned version;
    char branch[80];
};

EXPORT int nvmlSystemGetDriverBranch(struct branch_info *info, unsigned length);
EXPORT int nvmlSystemGetDriverBranch(struct branch_info *info, unsigned length)
{
    if (info == NULL || length > sizeof info->branch)
        return NVML_ERROR_INVALID_ARGUMENT;
    char text[16];
    int n = snprintf(text, sizeof text, "r%.3s_00", the_driver()->version);
    if ((unsigned)n >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(info->branch, text, (size_t)n + 1);
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetMinorNumber(const void *device, unsigned *minor);
EXPORT int nvmlDeviceGetMinorNumber(const void *device, unsigned *minor)
{
    return nvmlDeviceGetIndex(device, minor);
}
