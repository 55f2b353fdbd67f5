/* Running compiled kernels: objects, launches, and the one device that all processes of a user
 * share.
 *
 * The driver opens a device once per process, opens a kernel's object (see abi.h) once per kernel
 * and block size, and submits launches.  A launch is asynchronous: worker threads of this process
 * run its blocks while they hold SM slots of the shared device, and the last of them calls the
 * launch's `done`.  Launches submitted are what a GPU's hardware queues hold: they may all run at
 * once; the order within a stream is the driver's business (submit the next from `done`).
 *
 * Everything here is thread-safe unless it says otherwise.  Nothing prints (but device printf),
 * exits or aborts. */
#ifndef TALLY_DEVICE_EXEC_EXEC_H
#define TALLY_DEVICE_EXEC_EXEC_H

#include "device/abi.h"
#include "device/tensor.h"
#include "tally/base.h"

#include <sched.h>
#include <stdatomic.h>

/* --- compiled kernels ------------------------------------------------------------------------- */

struct tl_exec_object;
typedef void (*tl_exec_warp_fn)(struct tl_dev_frame *f, uint32_t warp);
typedef void (*tl_exec_blocks_fn)(struct tl_dev_frame *f, uint32_t first, uint32_t count);

/* Maps the shared object at `path`.  -ENOENT and other errno values of opening, -ENOEXEC if it is
 * not a kernel of this ABI version or its numbers make no sense.  The result has one reference. */
int tl_exec_object_open(struct tl_exec_object **out, const char *path, struct tl_error *err);
/* A kernel that is already in memory: built-in ones and those of tests.  `info` must outlive the
 * object; `blocks` may be NULL, then `warp` runs each block.  -EINVAL, -ENOMEM. */
int tl_exec_object_from(struct tl_exec_object **out, const struct tl_dev_info *info,
                        tl_exec_warp_fn warp, tl_exec_blocks_fn blocks, struct tl_error *err);
struct tl_exec_object *tl_exec_object_ref(struct tl_exec_object *o);
/* NULL is fine; launches hold references of their own */
void tl_exec_object_unref(struct tl_exec_object *o);
const struct tl_dev_info *tl_exec_object_info(const struct tl_exec_object *o);
const char *tl_exec_object_name(const struct tl_exec_object *o);
/* Names of the module's variables whose addresses the launch brings, in this order; NULL if i is
 * out of range. */
const char *tl_exec_object_variable(const struct tl_exec_object *o, uint32_t i);
/* Whether one can take the other's place: both are of a kernel of that name and block, and its
 * variables are in the same order. */
bool tl_exec_object_is_like(const struct tl_exec_object *a, const struct tl_exec_object *b);

/* --- the device ------------------------------------------------------------------------------- */

enum { TL__MAX_SLOTS = 256 }; /* SMs of a device */

enum tl_exec_mode {
    /* grids in arrival order; a later one gets the slots that earlier ones leave over */
    TL_EXEC_MPS,
    TL_EXEC_MPS_PRIORITY, /* the same, but higher priorities first, at block boundaries */
    TL_EXEC_TIMESLICE,    /* one process holds the whole device for a quantum */
};

/* Zero or NULL anywhere means: the environment's value (TALLY_DEVICE_...), or else the default. */
struct tl_exec_config {
    const char *name; /* of the shared segment: TALLY_DEVICE_NAME, "tally-<uid>-<ordinal>" */
    uint32_t ordinal; /* which device; only for the default name */
    uint32_t n_slots; /* SMs: TALLY_DEVICE_SMS, the number of usable cores */
    /* that kernels are told of, and whose blocks may be resident together, where these are more:
     * the slots, if zero */
    uint32_t n_told;
    const char *mode; /* TALLY_DEVICE_MODE=mps|mps-priority|timeslice; mps */
    /* TALLY_DEVICE_MEM (suffixes K, M, G), three quarters of the machine's memory */
    uint64_t memory_bytes;
    uint32_t quantum_us; /* timeslice: TALLY_DEVICE_QUANTUM_US, 2000 */
    /* TALLY_DEVICE_WATCHDOG, none: a launch lasts at most so long from its first block on */
    uint32_t watchdog_s;
    uint64_t heap_bytes; /* of malloc in kernels, 8 MiB */
    /* blocks that are begun and not ended on an SM at most: TALLY_DEVICE_BLOCKS_PER_SM, as many as
     * there is room for */
    uint32_t blocks_per_sm;
    /* A fault of one process is one of all that are on the device, as of clients of one MPS server;
     * not in the mode TL_EXEC_TIMESLICE. */
    bool shares_faults;
    bool is_preferred; /* a job above others, for which some of the places on the device are kept */
    /* its SMs keep to some CPUs if there are more than SMs: for the only device of a machine */
    bool has_own_cpus;
    /* per second, between host and device: TALLY_DEVICE_BUS (suffixes K, M, G), 12 GiB */
    uint64_t bus_bytes;
    /* Textures are the driver's; NULL makes a kernel that uses them fault.  They run as the
     * kernel's code: a signal can end them anywhere, so they must not hold locks. */
    void (*tex)(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_float,
                const uint32_t *coords, uint32_t result[4]);
    void (*surf)(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_store,
                 const int32_t coords[4], uint32_t bytes, uint32_t clamp, uint32_t data[4]);
    /* Whether an address is in the host's memory.  Not NULL: accesses of kernels to that which
     * others may race with are counted, and what is read takes so long to come.  Runs as the
     * process's code and may take locks. */
    bool (*is_host)(const void *address);
    uint64_t reach_ns;
};

struct tl_exec_device;

/* Joins the shared device, creating it if nobody has.  What all share (slots, mode, memory,
 * quantum) is set by the first process; later ones get what is there, see the getters.  Starts one
 * sleeping thread; workers come with the first launch. -errno; -EUSERS if the device has too many
 * processes. */
int tl_exec_device_open(struct tl_exec_device **out, const struct tl_exec_config *config,
                        struct tl_error *err);
/* No launch may be under way.  NULL is fine.  Not needed before exit: processes may die at any
 * time. */
void tl_exec_device_close(struct tl_exec_device *d);

uint32_t tl_exec_device_slots(const struct tl_exec_device *d);
/* Where faults are shared: what the first of all processes has faulted with, or 0.  All launches
 * are then ended, and nobody else can join until those who were there are gone: -EBUSY. */
uint32_t tl_exec_domain_fault(const struct tl_exec_device *d);
void tl_exec_domain_fail(struct tl_exec_device *d, uint32_t what);
/* The most blocks that an SM has side by side, if that was asked for; 0: it was not. */
uint32_t tl_exec_device_blocks_per_sm(const struct tl_exec_device *d);
enum tl_exec_mode tl_exec_device_mode(const struct tl_exec_device *d);

/* The calling thread leaves the CPUs of SMs, if it is on one: once, its affinity stays what it is
 * (unless it has a name of ours, tally-...); or for good, which is for the driver's own threads.
 * One that a worker has started was given those CPUs only, and leaves them nevertheless. */
void tl_exec_step_aside(void);
void tl_exec_stay_aside(bool is_of_worker);
bool tl_exec_is_worker(void); /* the calling thread */
/* Around a wait: where the thread wakes up is no CPU of an SM.  Its affinity is then what it was,
 * or what it was set to meanwhile. */
struct tl_exec_aside {
    bool is_moved;
    cpu_set_t own, others;
};
void tl_exec_wait_aside(struct tl_exec_aside *a);
void tl_exec_waited(const struct tl_exec_aside *a);

/* The memory ledger: what all processes on the device have taken. */
/* 0, -ENOMEM if the device has not that much left */
int tl_exec_memory_take(struct tl_exec_device *d, uint64_t bytes);
void tl_exec_memory_give(struct tl_exec_device *d, uint64_t bytes);
void tl_exec_memory_info(struct tl_exec_device *d, uint64_t *free_bytes, uint64_t *total_bytes);
uint64_t tl_exec_memory_mine(struct tl_exec_device *d); /* of it, this process */

/* Memory whose pages can leave the device.  What is taken for it is marked with a rank, and given
 * back if a process asks for it that needs the room for something of a higher rank. */
enum { TL_EXEC_RANKS = 2 }; /* 0 leaves first */
/* Takes bytes, if need be by asking others for pages ranking lower than `below`, and waits for
 * them.  0 or -ENOMEM. */
int tl_exec_memory_demand(struct tl_exec_device *d, uint64_t bytes, uint32_t below);
/* So many of the bytes taken (fewer, if negative) can be given back when asked for. */
void tl_exec_memory_mark(struct tl_exec_device *d, uint32_t rank, int64_t bytes);
/* Waits until others ask, and calls give(user, rank, bytes) for what they ask; does not return. */
void tl_exec_memory_serve(struct tl_exec_device *d,
                          void (*give)(void *user, uint32_t rank, uint64_t bytes), void *user);
/* Carries bytes over the bus between host and device, which all share (TALLY_DEVICE_BUS): returns
 * when that is done. */
void tl_exec_bus(struct tl_exec_device *d, uint64_t bytes);
/* A copy of that size gets one of the device's copy engines, which all processes share and which do
 * one after the other.  From when until when it has it, by the speed of the bus and what it takes
 * to begin (CLOCK_MONOTONIC). */
enum { TL_EXEC_ENGINES = 4 };
struct tl_exec_turn {
    uint64_t begin_ns, end_ns;
};
struct tl_exec_turn tl_exec_engine(struct tl_exec_device *d, uint32_t engine, uint64_t bytes,
                                   uint64_t setup_ns);
/* Returns at that moment. */
void tl_exec_wait_until(uint64_t ns);
/* What kernels of this process did to host memory, where that is counted.  A wait is for all that
 * was read before and had not come yet. */
struct tl_exec_host_accesses {
    uint64_t reads, writes, atomics, waits;
};
void tl_exec_host_accesses(const struct tl_exec_device *d, struct tl_exec_host_accesses *out);
/* Processor time that kernels of this process have had. */
uint64_t tl_exec_worked_ns(struct tl_exec_device *d);
/* Accesses to pages that are not accessible are shown to `f` before they become faults.  For the
 * whole process. */
void tl_exec_pages(bool (*f)(const void *address));

/* Writes what kernels printed so far to stdout, and failed assertions to stderr.  The driver calls
 * this whenever it synchronises. */
void tl_exec_printf_flush(struct tl_exec_device *d);
/* Size of the heap of malloc in kernels; -EBUSY once it is in use. */
int tl_exec_heap_limit(struct tl_exec_device *d, uint64_t bytes);
uint64_t tl_exec_heap_bytes(const struct tl_exec_device *d);
/* Another heap, for parameters of kernels that kernels launch; NULL if it is full. */
void *tl_exec_params_alloc(struct tl_exec_device *d, uint64_t bytes);
void tl_exec_params_free(struct tl_exec_device *d, void *p);

/* --- launches --------------------------------------------------------------------------------- */

struct tl_exec_fault {
    uint32_t what; /* enum tl_dev_fault; TL_DEV_FAULT_NONE if all went well */
    uint32_t warp; /* where it happened, as far as known */
    uint32_t ctaid[3];
    uint64_t detail; /* the address that was accessed, or what the kernel said */
    char text[248];  /* for people: kernel, block, address */
};

/* A part of the device: its launches hold at most `n_slots` slots at a time, together.  In the
 * caller's memory, zeroed but for the first field, until the last of its launches is done; which
 * slots they are may change. */
struct tl_exec_partition {
    uint32_t n_slots;
    /* Ours, guarded by the device's lock: */
    uint32_t active; /* workers inside its launches */
    /* launches with unclaimed blocks that wait for the partition, by key */
    struct tl_exec_run *held;
    _Atomic uint64_t urgency; /* of the first in `held`: all ones less its key, or 0 */
};

/* In the caller's memory, zeroed, until `done` is called; the fields from `fault` on are ours. */
struct tl_exec_launch {
    struct tl_exec_object *object;
    uint32_t grid[3];
    uint32_t dynamic_shared_bytes;
    const void *params; /* info.param_bytes, copied by submit */
    /* addresses as tl_exec_object_variable names them; stays alive until `done` */
    const uint64_t *variables;
    /* higher first, -128..127; used in mps-priority, and within a process always */
    int32_t priority;
    uint64_t gridid;                     /* %gridid; 0 takes the next number */
    struct tl_exec_partition *partition; /* NULL: the whole device */
    /* Called once, by a worker, with no lock held.  It may submit, and free the launch; it must not
     * wait for another launch. */
    void (*done)(struct tl_exec_launch *l);
    /* Answers what a thread asks of the device runtime (device/nest.h): called by a worker inside
     * the kernel, with no lock held, on the kernel's stack; it may submit and must not wait for a
     * launch.  NULL: kernels that ask end with a fault. */
    uint64_t (*runtime)(struct tl_exec_launch *l, uint64_t block, uint32_t thread, uint32_t what,
                        const uint64_t args[7]);
    void *user;

    struct tl_exec_fault fault; /* valid in `done` */
    uint64_t begin_ns, end_ns;  /* CLOCK_MONOTONIC: the first block's start, the last block's end */
    struct tl_exec_run *run;
};

/* 0 and `done` will be called; or -EINVAL (grid or shared memory out of range), -ENOMEM, and it
 * will not.  Blocks are numbered with 32 bits: a larger grid is -EINVAL. */
int tl_exec_submit(struct tl_exec_device *d, struct tl_exec_launch *l);
/* How long its blocks have been running; 0 if none has begun. */
uint64_t tl_exec_running_ns(struct tl_exec_device *d, const struct tl_exec_launch *l);
/* The launch goes on with another object of the same kernel, which computes the same: blocks that
 * are not claimed yet take it.  Only before `done`, and once: 0, -EEXIST, -EINVAL (the objects are
 * not of one kernel and block), -ENOENT (it is over). */
int tl_exec_replace(struct tl_exec_device *d, struct tl_exec_launch *l,
                    struct tl_exec_object *object);
/* Ends a launch early: blocks under way are torn down, `done` is called with TL_DEV_FAULT_TIMEOUT.
 * Only before `done`. */
void tl_exec_cancel(struct tl_exec_device *d, struct tl_exec_launch *l);

const char *tl_exec_fault_name(uint32_t what); /* "an illegal address", for messages */

/* What the CUDA documentation forbids in a tensor map, and what it allows but the device has not;
 * NULL: nothing.  The second asks only about maps of which the first has nothing to say. */
const char *tl_exec_tensor_wrong(const struct tl_tensor_map *m);
const char *tl_exec_tensor_missing(const struct tl_tensor_map *m);
uint32_t tl_exec_tensor_element(uint32_t type); /* its bytes; 0: several elements share one */

#endif
