/* Memory: allocations and pools (device/driver/memory.c, device/driver/pool.c). */
#ifndef TALLY_DEVICE_DRIVER_MEMORY_H
#define TALLY_DEVICE_DRIVER_MEMORY_H

#include "device/driver/device.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TL_DRV_PAGE = 4096 };

enum tl_drv_memory {
    TL_DRV_DEVICE_MEMORY,
    TL_DRV_HOST_MEMORY,
    TL_DRV_REGISTERED,
    TL_DRV_MANAGED,
    TL_DRV_VIRTUAL, /* reserved or mapped by the VMM calls */
};

/* Guarded by the driver's lock: an allocation may go whenever that is not held. */
struct tl_drv_alloc {
    uintptr_t base;
    size_t bytes;  /* asked for */
    size_t mapped; /* from base on, without guard pages */
    enum tl_drv_memory kind;
    bool is_internal; /* arrays, module variables: not to be freed by cuMemFree */
    bool is_charged;  /* counted in the ledger */
    bool is_imported; /* opened through IPC */
    unsigned flags;
    uint64_t id;
    struct CUctx_st *ctx;
    struct tl_drv_device *device;
    struct CUmemPoolHandle_st *pool;
    /* allocated by a graph's node (device/driver/graph_memory.c); else NULL */
    struct tl_drv_graph_memory *graph;
    int fd;                     /* memfd behind it after cuIpcGetMemHandle, or -1 */
    struct tl_drv_pages *pages; /* managed memory: where its pages are; else NULL */
    bool sync_memops;
    struct tl_drv_advice *advice; /* what was said of its parts (device/driver/advice.c) */
};

/* A block that a pool keeps for reuse; guarded by the driver's lock. */
struct tl_drv_cached {
    struct tl_drv_cached *next;
    struct tl_drv_alloc *alloc;
};

/* Guarded by the driver's lock, but for what never changes. */
struct CUmemPoolHandle_st {
    uint32_t magic;
    struct CUmemPoolHandle_st *older; /* in the list of all */
    struct tl_drv_device *device;     /* of host memory too: whose ledger and bus it is near */
    enum tl_drv_memory kind;          /* of device, host or managed memory */
    CUmemLocation location;
    uint32_t accessible; /* a bit for each device that may use it */
    struct tl_drv_cached *cached TL_DRV_GUARDED;
    uint64_t threshold TL_DRV_GUARDED, reserved TL_DRV_GUARDED, reserved_high TL_DRV_GUARDED;
    uint64_t used TL_DRV_GUARDED, used_high TL_DRV_GUARDED;
    int reuse[3];
    uint64_t id;       /* tells this process's pools apart for others */
    bool is_graphs;    /* memory of graphs, which counts as used until it is trimmed */
    bool is_shareable; /* others may open it */
    bool is_imported;  /* another process's: gives nothing out */
    bool is_default;
    bool is_destroyed;
};

struct tl_drv_alloc *tl_drv_alloc_find(uintptr_t address) TL_DRV_LOCKED;
CUresult tl_drv_alloc_create(struct tl_drv_device *device, struct CUctx_st *ctx, size_t bytes,
                             enum tl_drv_memory kind, struct tl_drv_alloc **out) TL_DRV_LOCKED;
/* Managed memory, attached to all. */
CUresult tl_drv_managed_create(struct tl_drv_device *device, struct CUctx_st *ctx, size_t bytes,
                               struct tl_drv_alloc **out) TL_DRV_LOCKED;
void tl_drv_alloc_destroy(struct tl_drv_alloc *a) TL_DRV_LOCKED;
/* Moves its bytes into a file in memory, at the same address, for other processes; `is_new`: there
 * are none yet.  Nothing may be running on it.  0 or a negative errno value. */
int tl_drv_alloc_share(struct tl_drv_alloc *a, bool is_new) TL_DRV_LOCKED;
/* whether something allocated lies there */
bool tl_drv_alloc_overlaps(uintptr_t base, size_t bytes) TL_DRV_LOCKED;
CUresult tl_drv_alloc_insert(struct tl_drv_alloc *a) TL_DRV_LOCKED;
void tl_drv_alloc_remove(struct tl_drv_alloc *a) TL_DRV_LOCKED;
/* Whether all these bytes are allocated and may be read or written. */
bool tl_drv_memory_covers(uintptr_t address, size_t bytes, bool is_written) TL_DRV_LOCKED;
bool tl_drv_memory_charge(struct tl_drv_device *device, uint64_t bytes) TL_DRV_LOCKED;
/* For the current context. */
CUresult tl_drv_memory_take(size_t bytes, enum tl_drv_memory kind, unsigned flags,
                            uintptr_t *out) TL_DRV_UNLOCKED;
/* Frees device memory at the address; pools take theirs back. */
CUresult tl_drv_memory_free(CUdeviceptr address) TL_DRV_LOCKED;
/* Whether these bytes may be read or written later, without the caller's knowledge: pinned, managed
 * or device memory. */
bool tl_drv_is_pinned(const void *p) TL_DRV_LOCKED;

/* What was said of a range of managed memory, to be told when asked (device/driver/advice.c):
 * whether it is mostly read, where it should be, who uses it, where it was last sent. */
struct tl_drv_said {
    bool is_read_mostly;
    CUmemLocation preferred, sent; /* CU_MEM_LOCATION_TYPE_INVALID: never said */
    uint32_t accessed_by;          /* a bit for each device, the last one for the host */
};
/* What holds for all pages of the range. */
struct tl_drv_said tl_drv_advice_of(const struct tl_drv_alloc *a, uintptr_t at,
                                    size_t n) TL_DRV_LOCKED;
/* Changes what is said of each part of the range. */
CUresult tl_drv_advice_change(struct tl_drv_alloc *a, uintptr_t at, size_t n,
                              void (*change)(struct tl_drv_said *, const void *),
                              const void *data) TL_DRV_LOCKED;
void tl_drv_advice_drop(struct tl_drv_alloc *a) TL_DRV_LOCKED;

/* Where memory is to be: on which device it is counted, of which kind it is, and how a program
 * calls that. */
struct tl_drv_place {
    struct tl_drv_device *device;
    enum tl_drv_memory kind;
    CUmemLocation location;
};
/* Whether there is memory of that type at that place.  0, CUDA_ERROR_INVALID_VALUE, or that the
 * device is none. */
CUresult tl_drv_place_of(const CUmemLocation *l, CUmemAllocationType type,
                         struct tl_drv_place *out);

/* A pool of the device's own memory. */
struct CUmemPoolHandle_st *tl_drv_pool_create(struct tl_drv_device *device) TL_DRV_LOCKED;
/* CUDA_ERROR_INVALID_VALUE if it is none, or was destroyed. */
CUresult tl_drv_pool_check(CUmemoryPool pool);
bool tl_drv_pool_take_back(struct tl_drv_alloc *a) TL_DRV_LOCKED;
/* it is about to go */
void tl_drv_pool_forget(struct tl_drv_alloc *a) TL_DRV_LOCKED;
uint64_t tl_drv_pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep) TL_DRV_LOCKED;
/* A block that the pool has kept, of nearly that size, in use again; NULL if there is none. */
struct tl_drv_alloc *tl_drv_pool_reuse(struct CUmemPoolHandle_st *pool, struct CUctx_st *ctx,
                                       size_t bytes) TL_DRV_LOCKED;
/* A block is in use, a new one of the pool or one that it had kept. */
void tl_drv_pool_count(struct CUmemPoolHandle_st *pool, struct tl_drv_alloc *a,
                       bool is_new) TL_DRV_LOCKED;

#endif
