/* How many blocks of a kernel an SM has side by side: what decides whether the device holds all of a
 * grid at once. */
#include "runtime/effort/room.h"

#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/real.h"

enum { MOST_RESIDENT = 32 }; /* blocks per SM of every GPU so far */

/* The most that an SM has of any kernel. */
TL_EFF_UNLOCKED static uint32_t most_resident(void)
{
    CUdevice device;
    int n = 0;
    if (tl_eff_real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        tl_eff_real.cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
                                         device) != CUDA_SUCCESS ||
        n < 1)
        n = MOST_RESIDENT;
    return (uint32_t)n;
}

TL_EFF_UNLOCKED static uint32_t ask(const struct tl_eff_kernel *k, uint32_t threads,
                                    uint32_t shared_bytes)
{
    CUfunction f = k->handle;
    int n = 0;
    if ((k->is_library && (tl_eff_real.cuKernelGetFunction == NULL ||
                           tl_eff_real.cuKernelGetFunction(&f, (CUkernel)f) != CUDA_SUCCESS)) ||
        tl_eff_real.cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, f, (int)threads,
                                                                shared_bytes) != CUDA_SUCCESS ||
        n < 1)
        return most_resident();
    return (uint32_t)n;
}

uint32_t tl_eff_room(const struct tl_eff_launch *l)
{
    struct tl_eff_kernel *k = l->kernel;
    uint32_t threads = l->block[0] * l->block[1] * l->block[2];
    for (uint32_t i = 0; i < k->n_rooms && i < TL_EFF_ROOMS; i++) {
        if (k->rooms[i].threads == threads && k->rooms[i].shared_bytes == l->shared_bytes)
            return k->rooms[i].resident;
    }
    uint32_t resident = ask(k, threads, l->shared_bytes);
    k->rooms[k->n_rooms++ % TL_EFF_ROOMS] = (struct tl_eff_room){threads, l->shared_bytes,
                                                                 resident};
    return resident;
}
