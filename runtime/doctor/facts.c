/* What the driver and the devices say of themselves. */
#include <stdio.h>
#include <string.h>

#include "runtime/doctor/driver.h"
#include "runtime/doctor/group.h"
#include "tally/text.h"

/* Attributes that decide what Tally does. */
static const struct attribute {
    CUdevice_attribute id;
    const char *name;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, "host-atomics"},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, "read-only-registration"},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, "host-registration"},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, "map-host-memory"},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified-addressing"},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, "stream-memory-operations-64"},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, "cooperative-launch"},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, "compute-preemption"},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, "stream-priorities"},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, "concurrent-kernels"},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, "copy-engines"},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "memory-pools"},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, "compute-mode"},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, "threads-per-sm"},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, "blocks-per-sm"},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, "shared-bytes-per-block"},
};

static void tell_attributes(struct tl_doc_exam *e, int gpu, CUdevice device)
{
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        int value = 0;
        CUresult r = tl_doc_driver.cuDeviceGetAttribute(&value, attributes[i].id, device);
        if (r == CUDA_SUCCESS)
            tl_doc_fact(e, gpu, attributes[i].name, "%d", value);
        else
            tl_doc_fact(e, gpu, attributes[i].name, "not told: %s", tl_doc_error(r));
    }
}

/* An instance of a GPU has a UUID of its own, which only the newer function tells. */
static void tell_uuid(struct tl_doc_exam *e, int gpu, CUdevice device)
{
    CUuuid whole = {{0}}, own = {{0}};
    char text[48];
    bool is_told = tl_doc_driver.cuDeviceGetUuid != NULL &&
                   tl_doc_driver.cuDeviceGetUuid(&whole, device) == CUDA_SUCCESS;
    bool is_own = tl_doc_driver.cuDeviceGetUuid_v2 != NULL &&
                  tl_doc_driver.cuDeviceGetUuid_v2(&own, device) == CUDA_SUCCESS;
    if (!is_told && !is_own)
        return;
    tl_qualified_uuid((const uint8_t *)(is_own ? own : whole).bytes, text, sizeof text);
    tl_doc_fact(e, gpu, "uuid", "%s", text);
    if (is_told && is_own)
        tl_doc_fact(e, gpu, "mig", "%s",
                    memcmp(&whole, &own, sizeof own) != 0 ? "yes, an instance" : "no");
}

static void tell_device(struct tl_doc_exam *e, int gpu)
{
    CUdevice device;
    char name[96] = "", begin[16];
    int major = 0, minor = 0, sms = 0;
    size_t bytes = 0;
    snprintf(begin, sizeof begin, "GPU %d", gpu);
    tl_doc_begin(e, begin);
    CUresult r = tl_doc_driver.cuDeviceGet(&device, gpu);
    if (r != CUDA_SUCCESS) {
        tl_doc_wrong(e, begin, "cuDeviceGet: %s", tl_doc_error(r));
        return;
    }
    tl_doc_driver.cuDeviceGetName(name, sizeof name, device);
    tl_doc_driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                       device);
    tl_doc_driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                       device);
    tl_doc_driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    tl_doc_driver.cuDeviceTotalMem_v2(&bytes, device);
    tl_doc_fact(e, gpu, "name", "%s", name);
    tell_uuid(e, gpu, device);
    tl_doc_fact(e, gpu, "compute-capability", "%d.%d", major, minor);
    tl_doc_fact(e, gpu, "sms", "%d", sms);
    tl_doc_fact(e, gpu, "memory", "%zu", bytes);
    tell_attributes(e, gpu, device);
}

static void run(struct tl_doc_exam *e)
{
    int version = 0, n = 0;
    const char *name, *lost;
    if (!tl_doc_open(e))
        return;
    tl_doc_driver.cuDriverGetVersion(&version);
    tl_doc_fact(e, -1, "cuda-version", "%d", version);
    for (uint32_t i = 0; tl_doc_driver_missing(i, &name, &lost); i++)
        tl_doc_fact(e, -1, "missing", "%s: %s", name, lost);
    CUresult r = tl_doc_driver.cuDeviceGetCount(&n);
    if (r != CUDA_SUCCESS || n == 0) {
        tl_doc_refused(e, "open", true, "no device: %s", tl_doc_error(r));
        return;
    }
    tl_doc_fact(e, -1, "gpus", "%d", n);
    for (int i = 0; i < n; i++)
        tell_device(e, i);
    tl_doc_works(e, "open", "%d device%s", n, n > 1 ? "s" : "");
}

const struct tl_doc_group tl_doc_facts_group = {"driver", run};
