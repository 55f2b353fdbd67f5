/* What can stand in a stream or in a graph: kernels, copies and all else. */
#ifndef TALLY_DEVICE_DRIVER_WORK_H
#define TALLY_DEVICE_DRIVER_WORK_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of bytes from one place to another; every copy of the API comes down to this. */
struct tl_drv_copy {
    const uint8_t *from;
    uint8_t *to;
    size_t from_pitch, from_slice, to_pitch, to_slice;
    size_t width, height, depth;
};

struct tl_drv_fill {
    uint8_t *to;
    size_t pitch, width, height; /* width in elements */
    uint32_t value, element;     /* element: 1, 2 or 4 bytes */
};

struct tl_drv_launch {
    struct CUfunc_st *function;
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint32_t param_bytes;
    uint8_t *params; /* belongs to the operation or node */
    int32_t priority;
    bool is_cooperative;
    struct tl_drv_graph_run *run; /* of which it is; NULL: of no graph */
    uint32_t depth;           /* kernels that it was launched by, and they by each other; 0: none */
    int sms;                  /* that its stream may use; 0: all */
    struct tl_drv_code *code; /* the compiled kernel, set when it is submitted */
};

struct tl_drv_memop {
    void *address;
    uint64_t value;
    uint32_t flags;
    bool is_wait, is_wide, is_barrier;
    uint32_t n_more; /* of a graph's node: operations that follow it */
};

enum tl_drv_kind {
    TL_DRV_EMPTY,
    TL_DRV_COPY,
    TL_DRV_FILL,
    TL_DRV_LAUNCH,
    TL_DRV_HOST,     /* host function */
    TL_DRV_CALLBACK, /* cuStreamAddCallback */
    TL_DRV_MEMOP,
    TL_DRV_RECORD,      /* event, in graphs: outside of them it is EMPTY with a time */
    TL_DRV_WAIT,        /* event, in graphs */
    TL_DRV_CHILD,       /* graph in graph */
    TL_DRV_ALLOC,       /* graph memory node */
    TL_DRV_FREE,        /* stream-ordered free */
    TL_DRV_CONDITIONAL, /* in graphs; launched, it is the gate before a body */
    TL_DRV_GRAPH_END,   /* of a launch of a graph: device/driver/graph_run.c */
    TL_DRV_NEST_END,    /* behind what a kernel has launched: device/driver/nest.c */
};

/* Belongs to who made it, then to the operation or node that it is put into: no lock of its own. */
struct tl_drv_work {
    enum tl_drv_kind kind;
    union {
        struct tl_drv_copy copy;
        struct tl_drv_fill fill;
        struct tl_drv_launch launch;
        struct {
            CUhostFn function;
            void *data;
        } host;
        struct {
            CUstreamCallback function;
            void *data;
            CUstream stream;
        } callback;
        struct tl_drv_memop memop; /* further ones are in `staging` */
        struct {
            struct tl_drv_conditional *what; /* a reference */
            struct tl_drv_op *end;           /* of a gate: what waits for the body */
            struct tl_drv_graph_run *run;    /* the launch that it is of */
        } conditional;
        struct tl_drv_nest *nest;
        struct tl_drv_graph_run *run;
        struct CUevent_st *event;
        struct CUgraph_st *child;
        struct {
            CUdeviceptr address;
            size_t bytes;
            /* of a graph's node that allocates: tells it from what came to that address later */
            uint64_t id;
        } memory;
    };
    void *staging; /* a copy of pageable source bytes, freed with the work */
};

/* Frees the buffers that belong to it; what else a node's has: tl_drv_node_work_finish. */
void tl_drv_work_finish(struct tl_drv_work *work);
void tl_drv_copy_run(const struct tl_drv_copy *c);

/* Both refuse what is not allocated. */
CUresult tl_drv_plan_3d(const CUDA_MEMCPY3D *p, struct tl_drv_copy *c) TL_DRV_UNLOCKED;
CUresult tl_drv_fill_check(const struct tl_drv_fill *f) TL_DRV_UNLOCKED;

#endif
