/* Launches of graphs that are under way, and the graphs that their kernels launch
 * (device/driver/graph_run.c). */
#ifndef TALLY_DEVICE_DRIVER_GRAPH_RUN_H
#define TALLY_DEVICE_DRIVER_GRAPH_RUN_H

#include "device/driver/graph.h"
#include "device/driver/lock.h"
#include "device/driver/op.h"

#include <stdbool.h>
#include <stdint.h>

/* How a kernel launches a graph, beside its own one. */
enum tl_drv_graph_how {
    TL_DRV_GRAPH_TAIL = 1,    /* when that, and what it has fired, is done */
    TL_DRV_GRAPH_FIRE = 2,    /* now; that is done when this is */
    TL_DRV_GRAPH_SIBLING = 3, /* now; what launched that is done when this is */
};

/* A launch under way.  Guarded by the driver's lock. */
struct tl_drv_graph_run {
    struct tl_drv_op *end;           /* its last operation */
    struct CUgraphExec_st *exec;     /* only to be told from others: it may be gone */
    uint64_t number;                 /* of that */
    struct tl_drv_graph_run *parent; /* its kernel launched this; NULL: the host did */
    enum tl_drv_graph_how how;       /* beside the parent */
    int priority;
    bool uses_own; /* each node's own priority (CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) */
    bool is_for_kernels;             /* CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH */
    bool is_over;                    /* its nodes are done, and what they launch comes to no more */
    uint32_t n_fired;                /* so far */
    uint32_t n_children, n_siblings; /* under way */
    struct tl_drv_graph_tail *tails, **last_tail;
    uint32_t n_tails; /* waiting */
    bool has_tail;    /* one is under way */
};

/* Of a launch that begins; gone when that is done.  NULL: no memory. */
struct tl_drv_graph_run *tl_drv_graph_run_create(struct CUgraphExec_st *exec,
                                                 int priority) TL_DRV_LOCKED;
/* Its last operation has been reached, which is finished when all is that came of the launch.
 * Returns a list of operations that are to be finished now: this one, and those of launches that
 * waited for it.  What is to be run next goes to `ready`. */
struct tl_drv_op *tl_drv_graph_run_over(struct tl_drv_graph_run *run,
                                        struct tl_drv_op **ready) TL_DRV_UNLOCKED;

/* A kernel of the launch, or of none (NULL), launches the graph that the handle stands for.  An
 * error of cudart's. */
uint64_t tl_drv_graph_run_launch(struct tl_drv_graph_run *run, uint64_t handle,
                                 enum tl_drv_graph_how how) TL_DRV_UNLOCKED;
/* The handle of the graph, if it is one that kernels may launch; else 0. */
uint64_t tl_drv_graph_run_handle(const struct tl_drv_graph_run *run);

/* Graphs that kernels may launch. */
void tl_drv_graph_allow(struct CUgraphExec_st *exec) TL_DRV_LOCKED;
void tl_drv_graph_disallow(struct CUgraphExec_st *exec) TL_DRV_LOCKED;

/* --- device/driver/graph_launch.c --- */
/* All operations of a launch.  The first comes behind whatever the caller wants, and is then to be
 * started, in any case unless it is NULL; the last is the executable's `last`.
 * CUDA_ERROR_OUT_OF_MEMORY: there is no launch, and `run` is freed. */
CUresult tl_drv_graph_expand(struct CUgraphExec_st *exec, struct CUctx_st *ctx,
                             struct tl_drv_graph_run *run, struct tl_drv_op **begin) TL_DRV_LOCKED;

#endif
