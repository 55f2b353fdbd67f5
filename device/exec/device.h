/* A device as this process has it: what device/exec/device.c (settings, life and death) and
 * device/exec/launch.c (workers) share. */
#ifndef TALLY_DEVICE_EXEC_DEVICE_H
#define TALLY_DEVICE_EXEC_DEVICE_H

#include "device/exec/internal.h"
#include "tally/lock.h"

struct tl__worker;

struct tl_exec_device {
    struct tl_exec_device *next; /* guarded by device/exec/device.c's devices_lock */
    char name[208];
    struct tl__sm_config sm_config;
    uint64_t watchdog_ns;
    uint64_t bus_bytes;     /* per second */
    uint32_t blocks_per_sm; /* 0: as many as there is room for */
    struct tl_dev_calls calls;
    struct tl__exec_env env;
    struct tl__out out, errors; /* have their own locks */
    uint32_t n_cores;
    bool has_own_cpus;
    /* accesses of kernels to host memory (device/exec/reach.c) */
    _Atomic uint64_t n_host_reads, n_host_writes, n_host_atomics, n_host_waits;

    struct tl_mutex lock; /* guards what follows, but for atomics */
    pthread_cond_t changed;
    struct tl__sm *sm; /* written while attaching only */
    pthread_t monitor;
    bool monitor_is_up, is_attached, is_closing;
    /* when the monitor wakes a worker for launches that were left to who has the slots; 0: there
     * are none */
    uint64_t look_ns;
    int monitor_result;
    struct tl_error error;
    struct tl__heap *heap, *params; /* NULL until they are used */
    uint64_t heap_bytes;

    struct tl_exec_run *runs;    /* all that are not done */
    struct tl_exec_run *pending; /* those with unclaimed blocks, by key */
    struct tl_exec_run *spare;   /* kept for the next launches, linked by `next` */
    uint32_t n_spare;
    struct tl__worker *workers; /* linked; as many as n_workers */
    uint32_t n_workers;
    uint32_t n_lent; /* workers that have lent their slots */
    uint64_t next_gridid;

    _Atomic uint64_t head_key; /* of `pending`, for workers between two chunks */
    atomic_uint n_pending;
    atomic_uint n_cancelled; /* runs that were cancelled before anybody began them */
    atomic_uint n_spinning;
    atomic_bool must_stop;             /* workers end */
    atomic_uint lodged[TL__MAX_SLOTS]; /* by slot: blocks of workers that have lent it */
};

/* 0 if it is already */
int tl__device_attach(struct tl_exec_device *d) TL_REQUIRES(d->lock);

void tl__workers_init(struct tl_exec_device *d);
void tl__workers_stop(struct tl_exec_device *d);
/* One worker looks whether it gets a slot, if there is something to run. */
void tl__workers_nudge(struct tl_exec_device *d);
void tl__workers_forget(struct tl_exec_device *d); /* in a forked child */
/* Ends a run with TL_DEV_FAULT_TIMEOUT.  Can be repeated. */
void tl__run_cancel(struct tl_exec_device *d, struct tl_exec_run *run) TL_REQUIRES(d->lock);

#endif
