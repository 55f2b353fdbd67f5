/* Which GPUs there are, by NVML, which is opened when it is needed: this program is also for nodes
 * without a GPU, where Tally's software device has an NVML of its own. */
#include "runtime/job/find.h"
#include "runtime/tally-device-plugin/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As NVML has them; 0 is success. */
struct memory {
    unsigned long long total, free, used;
};
static struct {
    int (*init)(void);
    int (*count)(unsigned *n);
    int (*by_index)(unsigned i, void **device);
    int (*by_uuid)(const char *uuid, void **device);
    int (*uuid)(void *device, char *text, unsigned bytes);
    int (*memory)(void *device, struct memory *m);
    int (*mig)(void *device, unsigned *current, unsigned *pending); /* may be missing */
    const char *(*text)(int code);
} nvml;

static int load(const char *path, struct tl_error *err)
{
    static const struct {
        const char *name;
        void **to;
        bool is_optional;
    } functions[] = {{"nvmlInit_v2", (void **)&nvml.init, false},
                     {"nvmlDeviceGetCount_v2", (void **)&nvml.count, false},
                     {"nvmlDeviceGetHandleByIndex_v2", (void **)&nvml.by_index, false},
                     {"nvmlDeviceGetHandleByUUID", (void **)&nvml.by_uuid, false},
                     {"nvmlDeviceGetUUID", (void **)&nvml.uuid, false},
                     {"nvmlDeviceGetMemoryInfo", (void **)&nvml.memory, false},
                     {"nvmlDeviceGetMigMode", (void **)&nvml.mig, true},
                     {"nvmlErrorString", (void **)&nvml.text, false}};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return tl_error_set(err, -ENOENT,
                            "NVML cannot be opened (%s); give its path with --nvml, or use "
                            "--device=soft for the software device",
                            dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        *functions[i].to = dlsym(library, functions[i].name);
        if (*functions[i].to == NULL && !functions[i].is_optional)
            return tl_error_set(err, -ENOSYS, "%s has no %s: is it NVML?", path, functions[i].name);
    }
    int rc = nvml.init();
    return rc == 0 ? 0 : tl_error_set(err, -EIO, "%s does not start: %s", path, nvml.text(rc));
}

static int add(struct plugin_gpus *gpus, unsigned index, struct tl_error *err)
{
    struct plugin_gpu *gpu = &gpus->list[gpus->n];
    struct memory m;
    void *device;
    unsigned mig = 0, pending = 0;
    int rc = nvml.by_index(index, &device);
    if (rc == 0)
        rc = nvml.uuid(device, gpu->uuid, sizeof gpu->uuid);
    if (rc == 0)
        rc = nvml.memory(device, &m);
    if (rc != 0)
        return tl_error_set(err, -EIO, "GPU %u does not answer: %s", index, nvml.text(rc));
    if (nvml.mig != NULL && nvml.mig(device, &mig, &pending) == 0 && mig != 0) {
        plugin_say("%s is partitioned (MIG) and is not offered: its instances are for NVIDIA's own "
                   "device plugin",
                   gpu->uuid);
        return 0;
    }
    gpu->memory_bytes = m.total;
    gpus->n++;
    return 0;
}

int plugin_gpus_find(struct plugin_gpus *gpus, enum plugin_device kind, const char *path,
                     const char *ours, struct tl_error *err)
{
    char soft[4096];
    unsigned n = 0;
    gpus->is_soft = kind == PLUGIN_SOFT ||
                    (kind == PLUGIN_AUTO && path == NULL && tl_find_gpu_file() == NULL);
    snprintf(soft, sizeof soft, "%s/device/libnvidia-ml.so.1", ours);
    /* Asking for its memory may make the device: where containers find it (allocate.c). */
    if (gpus->is_soft)
        setenv("TALLY_DEVICE_SHM", "file", 0);
    int rc = load(path != NULL ? path : gpus->is_soft ? soft : "libnvidia-ml.so.1", err);
    if (rc < 0)
        return rc;
    rc = nvml.count(&n);
    if (rc != 0)
        return tl_error_set(err, -EIO, "NVML cannot count GPUs: %s", nvml.text(rc));
    if (n > PLUGIN_GPUS) {
        plugin_say("there are %u GPUs, and the first %d are offered", n, PLUGIN_GPUS);
        n = PLUGIN_GPUS;
    }
    for (unsigned i = 0; i < n; i++) {
        rc = add(gpus, i, err);
        if (rc < 0)
            return rc;
    }
    return gpus->n > 0 ? 0 : tl_error_set(err, -ENODEV, "there is no GPU to offer on this node");
}

bool plugin_gpu_is_there(const struct plugin_gpu *gpu)
{
    struct memory m;
    void *device;
    /* A GPU that has fallen off the bus is still found, but tells no more of its memory. */
    return nvml.by_uuid(gpu->uuid, &device) == 0 && nvml.memory(device, &m) == 0;
}
