/* A job's device memory: how much it holds, how much it may hold, and what it is told of both.
 *
 *     account.c   counts, and nothing else
 *     room.c      this process's account, its slots in the ledger of its tree, and the limit
 *     rest.c      what has to be measured: pools, graphs, contexts
 *     linear.c    hooks: pointers, pages, arrays, questions
 *     pool.c      hooks: memory in the order of streams
 *     physical.c  hooks: memory that is mapped by hand
 *     graph.c     hooks: memory that nodes of graphs allocate
 *     nvml.c      what a job is told by NVML, and what NVML tells us
 *
 * An allocation is refused with CUDA_ERROR_OUT_OF_MEMORY if the processes of its tree would hold
 * more of that GPU than their limit, or if it would take what is kept free for others. */
#ifndef TALLY_INTERCEPT_MEMORY_MEMORY_H
#define TALLY_INTERCEPT_MEMORY_MEMORY_H

#include "intercept/memory/account.h"
#include "intercept/shim/internal.h"

/* --- room.c --- */

/* The current context and its device; false if there is none. */
struct tl_memory_place {
    CUcontext context;
    CUdevice device;
};
bool tl_memory_here(struct tl_memory_place *p);
/* The limit in force on each GPU; 0: none. */
uint64_t tl_memory_limit(void);
/* Whether there is anything that could refuse an allocation on that device. */
bool tl_memory_is_bounded(CUdevice device);

/* Before memory is allocated: makes room for it in the ledger.  CUDA_ERROR_OUT_OF_MEMORY if there
 * is none, also after what pools and graphs keep for later has been given up. */
CUresult tl_memory_reserve(CUdevice device, uint64_t bytes);
/* It was not allocated after all; or it was, and is counted without tl_memory_got. */
void tl_memory_unreserve(CUdevice device, uint64_t bytes);
void tl_memory_no_longer_pending(CUdevice device, uint64_t bytes);
/* What was reserved is this now. */
void tl_memory_got(enum tl_account_kind kind, uint64_t key, uint64_t bytes,
                   const struct tl_memory_place *place);
/* Before it is freed, since another thread may get it at once: what it was, for tl_memory_stays if
 * it is not freed after all. */
struct tl_memory_gone {
    struct tl_account_lost lost;
    enum tl_account_kind kind;
    uint64_t key;
    CUcontext context;
};
struct tl_memory_gone tl_memory_goes(enum tl_account_kind kind, uint64_t key);
void tl_memory_stays(const struct tl_memory_gone *gone);
void tl_memory_context_gone(CUcontext context);

/* Runs under the lock of the account. */
void tl_memory_with_account(void (*run)(struct tl_account *a, void *data), void *data);
/* A row of tl_account's `lost`: what went. */
void tl_memory_lost(void *unused, struct tl_account_lost lost);

/* What was measured of a device: what pools keep altogether, and what others keep.  With `fresh`,
 * that has just come from a pool (with 0 bytes, from no pool); it is counted, and the whole refused
 * if it goes beyond the limit: then nothing changes and it is false. */
struct tl_memory_fresh {
    uint64_t key, bytes;
    struct tl_memory_place place;
};
bool tl_memory_settle(CUdevice device, uint64_t pools, uint64_t others,
                      const struct tl_memory_fresh *fresh);
/* Whether the device has room for so much more beside what is kept for others. */
bool tl_memory_leaves_enough(CUdevice device, uint64_t bytes);
/* Whether so much could be had if pools and graphs kept nothing for later. */
bool tl_memory_could_fit(CUdevice device, uint64_t bytes);
/* From what the driver says of a device's size and free memory to what the job is told. */
void tl_memory_tell(CUdevice device, size_t *left, size_t *all);
/* What the tree holds of a device, and what this process was given that is no pool's. */
uint64_t tl_memory_total(CUdevice device);
uint64_t tl_memory_given(CUdevice device);
/* The GPU's UUID; false if the driver does not tell. */
bool tl_memory_uuid(CUdevice device, CUuuid *uuid);

/* --- rest.c --- */

/* Measures; false as tl_memory_settle says. */
bool tl_rest_measure(CUdevice device, const struct tl_memory_fresh *fresh);
/* Gives up what pools and graphs keep for later; the second also measures. */
void tl_rest_trim(CUdevice device);
void tl_rest_give_up(CUdevice device);
/* One at a time, under a limit: an allocation from a pool and the measurement behind it. */
void tl_rest_lock(void);
void tl_rest_unlock(void);
enum { TL_REST_ELSEWHERE = -1 }; /* a pool of memory that is no device's */
void tl_rest_pool_made(CUmemoryPool pool, CUdevice device);
bool tl_rest_is_elsewhere(CUmemoryPool pool);
void tl_rest_pool_gone(CUmemoryPool pool);
void tl_rest_forked(void);

/* --- graph.c --- */

/* An executable of that graph was made, and destroyed. */
void tl_memory_graph_made(CUgraphExec exec, CUgraph graph);
void tl_memory_graph_gone(CUgraphExec exec);
void tl_memory_graph_forked(void);
/* The driver's functions, or CUDA_ERROR_OUT_OF_MEMORY if the graph's memory may not be held. */
CUresult tl_memory_cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult tl_memory_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream);
CUresult tl_memory_cuGraphUpload(CUgraphExec exec, CUstream stream);
CUresult tl_memory_cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream);

/* --- nvml.c --- */

/* A function of NVML that a program asks for by name: ours in its place, or the same. */
void *tl_nvml_symbol(const char *name, void *found);
/* What NVML says that this process holds of a GPU; 0 if it does not. */
uint64_t tl_nvml_held(const CUuuid *uuid);

#endif
