/* How many blocks of a kernel an SM has side by side: what decides whether the device holds all of
 * a grid at once, and how much longer a block takes than if it had its SM for itself. */
#include "runtime/effort/room.h"

#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/real.h"
#include "runtime/effort/variant.h"

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

/* As the driver tells it, or 0. */
TL_EFF_UNLOCKED static uint32_t ask(CUfunction f, uint32_t threads, uint32_t shared_bytes)
{
    int n = 0;
    CUresult r = tl_eff_real.cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, f, (int)threads,
                                                                         shared_bytes);
    return r == CUDA_SUCCESS && n > 0 ? (uint32_t)n : 0;
}

TL_EFF_UNLOCKED static uint32_t ask_original(const struct tl_eff_kernel *k, uint32_t threads,
                                             uint32_t shared_bytes)
{
    CUfunction f = k->handle;
    uint32_t n = 0;
    if (!k->is_library || (tl_eff_real.cuKernelGetFunction != NULL &&
                           tl_eff_real.cuKernelGetFunction(&f, (CUkernel)f) == CUDA_SUCCESS))
        n = ask(f, threads, shared_bytes);
    return n > 0 ? n : most_resident();
}

/* What was asked before, or 0. */
static uint32_t find_room(const struct tl_eff_rooms *rooms, uint32_t threads, uint32_t shared_bytes)
{
    for (uint32_t i = 0; i < rooms->n && i < TL_EFF_ROOMS; i++) {
        if (rooms->all[i].threads == threads && rooms->all[i].shared_bytes == shared_bytes)
            return rooms->all[i].blocks;
    }
    return 0;
}

static uint32_t keep(struct tl_eff_rooms *rooms, uint32_t threads, uint32_t shared_bytes,
                     uint32_t blocks)
{
    rooms->all[rooms->n++ % TL_EFF_ROOMS] = (struct tl_eff_room){threads, shared_bytes, blocks};
    return blocks;
}

static uint32_t threads_of(const struct tl_eff_launch *l)
{
    return l->block[0] * l->block[1] * l->block[2];
}

uint32_t tl_eff_room(const struct tl_eff_launch *l)
{
    struct tl_eff_kernel *k = l->kernel;
    uint32_t n = find_room(&k->rooms, threads_of(l), l->shared_bytes);
    return n > 0 ? n
                 : keep(&k->rooms, threads_of(l), l->shared_bytes,
                        ask_original(k, threads_of(l), l->shared_bytes));
}

uint32_t tl_eff_occupancy(const struct tl_eff_launch *l)
{
    struct tl_eff_variant *v = l->variant;
    uint32_t bytes = v->uses_slot ? TL_PTX_SHARED_BYTES(l->shared_bytes) : l->shared_bytes;
    uint32_t n = find_room(&v->rooms, threads_of(l), bytes);
    if (n > 0)
        return n;
    n = ask(v->function, threads_of(l), bytes);
    return keep(&v->rooms, threads_of(l), bytes, n > 0 ? n : tl_eff_room(l));
}
