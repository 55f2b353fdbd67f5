/* NVML: a job that asks it for a GPU's memory is told the same as by the driver; and what it says
 * of this process is how much contexts take.
 *
 * Programs open libnvidia-ml.so.1 and ask for functions by name, or are linked with it; either
 * way they meet the two functions here.  They answer for the GPUs that the driver shows this
 * process. */
#include "intercept/memory/memory.h"
#include "runtime/job/wire.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

/* As NVML has them; 0 is success. */
enum { UNINITIALIZED = 1, NOT_FOUND = 13 };
struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
EXPORTED int nvmlDeviceGetMemoryInfo(void *device, struct memory *m);
EXPORTED int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *m);

/* A function of the library that is loaded, or NULL. */
static void *real_function(const char *name)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found = library != NULL ? tl_libc_dlsym_of(library, name) : NULL;
    if (library != NULL)
        dlclose(library); /* who loaded it keeps it */
    return found;
}

void *tl_nvml_symbol(const char *name, void *found)
{
    static const struct {
        const char *name;
        void *ours;
    } list[] = {{"nvmlDeviceGetMemoryInfo", (void *)nvmlDeviceGetMemoryInfo},
                {"nvmlDeviceGetMemoryInfo_v2", (void *)nvmlDeviceGetMemoryInfo_v2}};
    for (size_t i = 0; strncmp(name, "nvml", 4) == 0 && i < sizeof list / sizeof list[0]; i++)
        if (strcmp(name, list[i].name) == 0)
            return list[i].ours;
    return found;
}

/* --- what a job is told ----------------------------------------------------------------------- */

/* The driver's device with that UUID, as NVML writes it. */
static bool find_device(const char *text, CUdevice *device)
{
    int n = 0;
    char name[48];
    CUuuid uuid;
    if (TL_REAL(cuDeviceGetCount)(&n) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < n; i++) {
        if (TL_REAL(cuDeviceGet)(device, i) != CUDA_SUCCESS || !tl_memory_uuid(*device, &uuid))
            continue;
        tl_wire_gpu_name((const uint8_t *)uuid.bytes, name);
        if (strcmp(name, text) == 0)
            return true;
    }
    return false;
}

/* A process that has not used the driver yet has no more than what it was started with. */
static uint64_t limit_before(void)
{
    const char *text = secure_getenv("TALLY_MEMORY");
    uint64_t bytes = 0;
    return text != NULL && tl_settings_bytes(text, &bytes) == 0 ? bytes : 0;
}

/* Turns what NVML says of a device into what the job may know. */
static void tell(void *device, unsigned long long *total, unsigned long long *left,
                 unsigned long long *used)
{
    int (*uuid_of)(void *, char *,
                   unsigned) = (__typeof__(uuid_of))real_function("nvmlDeviceGetUUID");
    char text[96] = "";
    CUdevice found;
    uint64_t limit = tl_job.client != NULL ? tl_memory_limit() : limit_before();
    if (limit == 0 || limit >= *total)
        return;
    size_t free_bytes = *left, all = *total;
    if (tl_job.client != NULL && uuid_of != NULL && uuid_of(device, text, sizeof text) == 0 &&
        find_device(text, &found)) {
        tl_memory_tell(found, &free_bytes, &all);
        *used = tl_memory_total(found);
    } else { /* nothing is held there */
        free_bytes = free_bytes < limit ? free_bytes : limit;
        *used = 0;
    }
    *left = free_bytes;
    *total = limit;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *m)
{
    int (*real)(void *,
                struct memory *) = (__typeof__(real))real_function("nvmlDeviceGetMemoryInfo");
    int rc = real != NULL ? real(device, m) : UNINITIALIZED;
    if (rc == 0)
        tell(device, &m->total, &m->free, &m->used);
    return rc;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *m)
{
    int (*real)(void *,
                struct memory_v2 *) = (__typeof__(real))real_function("nvmlDeviceGetMemoryInfo_v2");
    int rc = real != NULL ? real(device, m) : NOT_FOUND;
    if (rc == 0) {
        unsigned long long before = m->total;
        tell(device, &m->total, &m->free, &m->used);
        if (m->total != before)
            m->reserved = 0; /* the driver's own share is no part of the job's */
    }
    return rc;
}

/* --- what NVML says of this process ----------------------------------------------------------- */

/* NVML's list of processes on a GPU, with room for those that come meanwhile; NULL if it has none.
 * In a container its numbers are those outside, and this process is not found. */
static struct process *list_processes(void *library, void *device, unsigned *n)
{
    int (*list)(void *, unsigned *, struct process *) = (__typeof__(list))tl_libc_dlsym_of(
        library, "nvmlDeviceGetComputeRunningProcesses_v3");
    unsigned room = 0;
    *n = 0;
    if (list == NULL)
        return NULL;
    (void)list(device, &room, NULL); /* it says how many */
    room += 16;
    struct process *p = calloc(room, sizeof *p);
    if (p != NULL && list(device, &room, p) == 0)
        *n = room;
    return p;
}

uint64_t tl_nvml_held(const CUuuid *uuid)
{
    char name[48];
    void *device = NULL;
    uint64_t held = 0;
    unsigned n = 0;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL)
        return 0;
    int (*init)(void) = (__typeof__(init))tl_libc_dlsym_of(library, "nvmlInit_v2");
    int (*by_uuid)(const char *, void **) = (__typeof__(by_uuid))tl_libc_dlsym_of(
        library, "nvmlDeviceGetHandleByUUID");
    tl_wire_gpu_name((const uint8_t *)uuid->bytes, name);
    if (init == NULL || by_uuid == NULL || init() != 0 || by_uuid(name, &device) != 0)
        return 0; /* it stays loaded: others may use it by now */
    struct process *list = list_processes(library, device, &n);
    for (unsigned i = 0; i < n; i++)
        if (list[i].pid == (unsigned)getpid())
            held = list[i].bytes;
    free(list);
    return held;
}
