/* The little of NVML that clients of the driver ask for: TensorFlow lists no GPU without it. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
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

EXPORT int nvmlDeviceGetNvLinkState(const void *device, unsigned link, int *state);
EXPORT int nvmlDeviceGetNvLinkState(const void *device, unsigned link, int *state)
{
    (void)device, (void)link, (void)state;
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetGpuFabricInfoV(const void *device, void *info);
EXPORT int nvmlDeviceGetGpuFabricInfoV(const void *device, void *info)
{
    (void)device, (void)info;
    return NVML_ERROR_NOT_SUPPORTED;
}
