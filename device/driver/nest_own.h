/* What a kernel has launched, between two that know of it: what came of it (device/driver/nest.c),
 * and what its threads ask (device/driver/nest_ask.c). */
#ifndef TALLY_DEVICE_DRIVER_NEST_OWN_H
#define TALLY_DEVICE_DRIVER_NEST_OWN_H

#include "device/driver/nest.h"
#include "device/driver/work.h"
#include "tally/table.h"

/* A stream or event of the grid; handles are their numbers. */
struct tl_drv_nest_place {
    struct tl_drv_nest_place *next;
    uint64_t handle;
    bool is_event;
    struct tl_drv_op *last; /* of the stream; what the event was recorded behind.  A reference */
};

/* Parameters that a thread is writing. */
struct tl_drv_nest_buffer {
    struct tl_drv_nest_buffer *next;
    void *params; /* of the heap that kernels can write to */
    struct tl_drv_launch launch;
};

struct tl_drv_nest_tail {
    struct tl_drv_nest_tail *next;
    struct tl_drv_work work;
};

/* A kernel that was asked for by its address. */
struct tl_drv_nest_known {
    uint64_t address;
    struct CUfunc_st *function;
};

/* What went wrong last in a thread that has not asked since. */
struct tl_drv_nest_mistake {
    uint64_t who[2]; /* block, thread */
    uint64_t error;
};

/* All of it is guarded by the driver's lock; only `op` never changes. */
struct tl_drv_nest {
    struct tl_drv_op *op;
    struct tl_drv_op *end;
    struct tl_drv_nest_place *places;
    uint64_t n_places;
    struct tl_drv_nest_buffer *buffers;
    struct tl_drv_nest_tail *tails, **last_tail;
    struct tl_table known;    /* by the bytes of the address */
    struct tl_table mistakes; /* by the bytes of the thread's number */
};

/* The nest of a kernel, made if it is not there; NULL if there is no memory. */
struct tl_drv_nest *tl_drv_nest_of(struct tl_drv_op *op, struct tl_drv_nest **nest) TL_DRV_LOCKED;
/* Puts work into a stream; takes it over. */
uint64_t tl_drv_nest_submit(struct tl_drv_nest *n, struct tl_drv_work *work,
                            uint64_t stream) TL_DRV_UNLOCKED;
/* Whatever comes into the stream from now on is behind what the event was recorded behind. */
uint64_t tl_drv_nest_wait(struct tl_drv_nest *n, uint64_t stream, uint64_t event) TL_DRV_UNLOCKED;
uint64_t tl_drv_nest_record(struct tl_drv_nest *n, uint64_t event, uint64_t stream) TL_DRV_LOCKED;
/* A new stream or event; 0: there is no memory. */
uint64_t tl_drv_nest_new_place(struct tl_drv_nest *n, bool is_event) TL_DRV_LOCKED;
uint64_t tl_drv_nest_end_place(struct tl_drv_nest *n, uint64_t handle, bool is_event) TL_DRV_LOCKED;
/* Frees what only questions need. */
void tl_drv_nest_forget(struct tl_drv_nest *n) TL_DRV_LOCKED;

#endif
