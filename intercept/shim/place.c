/* Which GPU a job uses: told to tallyd when a context gets its first work, not when it is made, for
 * programs make contexts on GPUs that they never use. */
#include "intercept/shim/internal.h"
#include "runtime/job/wire.h"

#include <pthread.h>
#include <stdio.h>

/* The device of a context, which need not be current. */
static CUresult device_of(CUcontext ctx, CUdevice *device)
{
    CUcontext popped;
    CUresult r = TL_REAL(cuCtxPushCurrent_v2)(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    r = TL_REAL(cuCtxGetDevice)(device);
    TL_REAL(cuCtxPopCurrent_v2)(&popped);
    return r;
}

void tl_job_describe(struct tl_client_page *page, CUdevice device)
{
    size_t bytes = 0;
    int sms = 0;
    char name[TL_SHARE_NAME] = "";
    if (TL_REAL(cuDeviceGetName)(name, sizeof name, device) == CUDA_SUCCESS)
        tl_share_put_name(page->device_name, name);
    if (TL_REAL(cuDeviceTotalMem_v2)(&bytes, device) == CUDA_SUCCESS)
        atomic_store_explicit(&page->device_memory_bytes, bytes, memory_order_relaxed);
    if (TL_REAL(cuDeviceGetAttribute)(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) ==
            CUDA_SUCCESS &&
        sms > 0)
        atomic_store_explicit(&page->device_sms, (uint32_t)sms, memory_order_relaxed);
}

/* Of a MIG instance the second version tells its own. */
static bool uuid_of(CUdevice device, CUuuid *uuid)
{
    return TL_REAL(cuDeviceGetUuid_v2)(uuid, device) == CUDA_SUCCESS ||
           TL_REAL(cuDeviceGetUuid)(uuid, device) == CUDA_SUCCESS;
}

/* For the report. */
static void note(CUdevice device, const CUuuid *uuid)
{
    char name[128] = "a device", id[48], text[256];
    TL_REAL(cuDeviceGetName)(name, sizeof name, device);
    tl_wire_gpu_name((const uint8_t *)uuid->bytes, id);
    snprintf(text, sizeof text, "it uses %s, %s", id, name);
    tl_record_note(tl_job.record, text);
}

bool tl_job_gpu(CUcontext ctx, CUdevice *device, CUuuid *uuid)
{
    if (ctx == NULL || device_of(ctx, device) != CUDA_SUCCESS || !uuid_of(*device, uuid))
        return false; /* then it counts for all GPUs */
    note(*device, uuid);
    return true;
}

struct tl_share_gpu *tl_job_place(void *ctx)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    CUdevice device;
    CUuuid uuid;
    if (tl_job.client == NULL || !tl_job_gpu(ctx, &device, &uuid))
        return NULL;
    tl_job_describe(tl_client_page(tl_job.client), device);
    tl_client_place(tl_job.client, (const uint8_t *)uuid.bytes);
    pthread_mutex_lock(&one_at_a_time);
    struct tl_share_gpu *g = tl_share_gpu(tl_client_page(tl_job.client),
                                          (const uint8_t *)uuid.bytes);
    pthread_mutex_unlock(&one_at_a_time);
    return g;
}
