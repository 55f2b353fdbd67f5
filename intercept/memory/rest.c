/* What of a job's device memory has to be measured, because the driver keeps it for later or for
 * itself: the part of pools that nobody has, memory of graphs, and what contexts take.  Only jobs
 * with a limit pay for that. */
#include "intercept/memory/memory.h"
#include "tally/array.h"
#include "tally/lock.h"

static struct tl_mutex measuring = TL_MUTEX_INITIALIZER;
static struct tl_mutex lock = TL_MUTEX_INITIALIZER; /* of the list */
static struct {
    struct pool {
        CUmemoryPool pool;
        CUdevice device;
    } * list; /* made by the job; each device has another of its own */
    size_t n, cap;
} pools TL_GUARDED_BY(lock);
/* What a context took when that was looked at, by device. */
static struct {
    bool is_known;
    uint64_t bytes;
} contexts[TL_ACCOUNT_DEVICES] TL_GUARDED_BY(measuring);

/* The child has one thread: there is nobody to lock out. */
TL_UNCHECKED void tl_rest_forked(void)
{
    tl_mutex_init(&measuring);
    tl_mutex_init(&lock);
    pools.n = 0; /* they are the parent's */
    for (size_t i = 0; i < TL_ACCOUNT_DEVICES; i++)
        contexts[i].is_known = false;
}

TL_UNCHECKED void tl_rest_lock(void)
{
    tl_mutex_lock(&measuring);
}

TL_UNCHECKED void tl_rest_unlock(void)
{
    tl_mutex_unlock(&measuring);
}

void tl_rest_pool_made(CUmemoryPool pool, CUdevice device)
{
    tl_mutex_lock(&lock);
    if (TL_ARRAY_FIT(pools.list, pools.cap, pools.n + 1))
        pools.list[pools.n++] = (struct pool){pool, device};
    tl_mutex_unlock(&lock);
}

void tl_rest_pool_gone(CUmemoryPool pool)
{
    tl_mutex_lock(&lock);
    for (size_t i = 0; i < pools.n; i++)
        if (pools.list[i].pool == pool)
            pools.list[i--] = pools.list[--pools.n];
    tl_mutex_unlock(&lock);
}

bool tl_rest_is_elsewhere(CUmemoryPool pool)
{
    bool is_elsewhere = false;
    tl_mutex_lock(&lock);
    for (size_t i = 0; i < pools.n && pool != NULL; i++)
        is_elsewhere |= pools.list[i].pool == pool && pools.list[i].device == TL_REST_ELSEWHERE;
    tl_mutex_unlock(&lock);
    return is_elsewhere;
}

/* Calls it for each pool of a device; one that another thread destroys meanwhile is the driver's to
 * refuse. */
static void each_pool(CUdevice device, void (*visit)(CUmemoryPool pool, void *data), void *data)
{
    CUmemoryPool pool;
    if (TL_REAL(cuDeviceGetDefaultMemPool)(&pool, device) == CUDA_SUCCESS)
        visit(pool, data);
    for (size_t i = 0;; i++) {
        tl_mutex_lock(&lock);
        bool is_there = i < pools.n;
        struct pool p = is_there ? pools.list[i] : (struct pool){0};
        tl_mutex_unlock(&lock);
        if (!is_there)
            return;
        if (p.device == device)
            visit(p.pool, data);
    }
}

static void add_reserved(CUmemoryPool pool, void *sum)
{
    cuuint64_t bytes = 0;
    if (TL_REAL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) ==
        CUDA_SUCCESS)
        *(uint64_t *)sum += bytes;
}

static void trim(CUmemoryPool pool, void *unused)
{
    (void)unused;
    TL_REAL(cuMemPoolTrimTo)(pool, 0);
}

/* What the driver took for this process beyond what the job asked for, the first time that it is
 * asked: its contexts, and the code and the variables of modules that are loaded by then. */
static uint64_t context_bytes(CUdevice device, uint64_t reserved) TL_REQUIRES(measuring);
static uint64_t context_bytes(CUdevice device, uint64_t reserved)
{
    unsigned i = device >= 0 && device < TL_ACCOUNT_DEVICES ? (unsigned)device
                                                            : TL_ACCOUNT_DEVICES - 1;
    CUuuid uuid;
    if (contexts[i].is_known)
        return contexts[i].bytes;
    contexts[i].is_known = true;
    contexts[i].bytes = 0;
    uint64_t given = tl_memory_given(device) + reserved;
    uint64_t held = tl_memory_uuid(device, &uuid) ? tl_nvml_held(&uuid) : 0;
    if (held > given)
        contexts[i].bytes = held - given;
    return contexts[i].bytes;
}

TL_UNCHECKED bool tl_rest_measure(CUdevice device, const struct tl_memory_fresh *fresh)
{
    uint64_t reserved = 0;
    cuuint64_t graphs = 0;
    each_pool(device, add_reserved, &reserved);
    if (TL_REAL(cuDeviceGetGraphMemAttribute)(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                              &graphs) != CUDA_SUCCESS)
        graphs = 0;
    uint64_t others = graphs + context_bytes(device, reserved + graphs);
    return tl_memory_settle(device, reserved, others, fresh);
}

void tl_rest_trim(CUdevice device)
{
    each_pool(device, trim, NULL);
    TL_REAL(cuDeviceGraphMemTrim)(device);
}

void tl_rest_give_up(CUdevice device)
{
    tl_rest_trim(device);
    (void)tl_rest_measure(device, NULL);
}
