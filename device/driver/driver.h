/* What the files of the software driver share.
 *
 * One lock, `tl_drv.lock`, guards all bookkeeping: contexts, streams, events, operations,
 * allocations, modules, graphs.  It is never held while anything is computed, copied, compiled or
 * waited for.  Fields guarded otherwise say so.
 *
 * Work is a graph of operations.  An operation knows how many predecessors are unfinished and who
 * comes after it; streams, events, legacy-stream rules and CUDA graphs only differ in which
 * predecessors they give it.  See device/driver/op.c. */
#ifndef TALLY_DEVICE_DRIVER_DRIVER_H
#define TALLY_DEVICE_DRIVER_DRIVER_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1 /* every version of a function under its own name */
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
CUresult cuProfilerStart(void); /* of cudaProfiler.h, which not every package of the headers has */
CUresult cuProfilerStop(void);
CUresult cuProfilerInitialize(const char *configFile, const char *outputFile, int outputMode);
#pragma GCC visibility pop
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tally/base.h"
#include "tally/ptx.h"

enum {
    TL_DRV_VERSION = 13000,
    TL_DRV_MAX_DEVICES = 8,
    TL_DRV_MAX_STACK = 64,
    TL_DRV_PAGE = 4096,
};

/* First word of every handle: tells a handle of another kind from the right one. */
enum tl_drv_magic {
    TL_DRV_CONTEXT = 0x43747801,
    TL_DRV_STREAM,
    TL_DRV_EVENT,
    TL_DRV_MODULE,
    TL_DRV_FUNCTION,
    TL_DRV_LIBRARY,
    TL_DRV_KERNEL,
    TL_DRV_ARRAY,
    TL_DRV_TEXREF,
    TL_DRV_MIPMAP,
    TL_DRV_POOL,
    TL_DRV_GRAPH,
    TL_DRV_NODE,
    TL_DRV_GRAPH_EXEC,
    TL_DRV_LINK,
    TL_DRV_GREEN,
    TL_DRV_RESOURCE,
    TL_DRV_DEAD,
};

/* --- work: what can stand in a stream or in a graph ------------------------------------------- */

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
};

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
            int priority;
        } conditional;
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

/* --- operations ------------------------------------------------------------------------------- */

enum tl_drv_state {
    TL_DRV_PENDING, /* predecessors are unfinished */
    TL_DRV_READY,   /* to be run, by the pool or by the caller that waits for it */
    TL_DRV_RUNNING,
    TL_DRV_DONE,
};

enum { TL_DRV_INLINE_SUCCESSORS = 4 };

struct tl_drv_op {
    /* enum tl_drv_state; written under the lock, read anywhere; also a futex */
    _Atomic uint32_t state;
    uint32_t refs;
    uint32_t waits; /* unfinished predecessors, one more while it is being set up */
    bool caller_runs;
    atomic_bool has_waiters;
    bool was_dropped;       /* its context had failed before it could run */
    struct tl_drv_op *next; /* in the pool's queue or in the list of free ones */
    struct tl_drv_op **after, *inline_after[TL_DRV_INLINE_SUCCESSORS];
    uint32_t n_after, cap_after;
    struct CUctx_st *ctx;
    struct tl_drv_work work;
    uint64_t done_ns;            /* CLOCK_MONOTONIC; stable once DONE */
    struct tl_exec_launch *exec; /* made for the first kernel, kept for later ones */
};

/* --- handles ---------------------------------------------------------------------------------- */

struct tl_drv_local { /* context-local storage of cudart */
    struct tl_drv_local *next;
    void *key, *value;
    void (*destroy)(CUcontext, void *, void *);
};

struct CUctx_st {
    uint32_t magic;
    uint32_t refs;          /* primary: retains */
    struct CUctx_st *older; /* in the list of all */
    struct tl_drv_device *device;
    /* whose memory, modules and errors it has: itself, or the primary one of a green context */
    struct CUctx_st *home;
    struct CUgreenCtx_st *green;
    struct tl_drv_op *gate; /* what a new stream begins behind, a reference or NULL */
    bool is_primary;
    _Atomic bool is_alive; /* read anywhere */
    unsigned flags;
    uint64_t id;
    _Atomic int sticky;          /* CUresult of the first fault; read anywhere, of `home` only */
    struct CUstream_st *streams; /* all, the legacy one included */
    struct CUstream_st *legacy;
    struct CUmod_st *modules;
    struct tl_drv_local *locals;
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
    uint32_t peers; /* bit per device */
};

struct tl_drv_capture;

struct CUstream_st {
    uint32_t magic;
    unsigned flags;
    struct CUctx_st *ctx;
    struct CUstream_st *next; /* in the context's list */
    int priority;
    uint64_t id;
    bool is_legacy, is_per_thread;
    struct tl_drv_op *tail; /* last operation, a reference; NULL if there never was one */
    struct tl_drv_capture *capture;
    struct CUgraphNode_st **capture_tail; /* what the next captured node depends on */
    size_t n_capture_tail;
    CUstreamAttrValue attributes[8];
};

struct CUevent_st {
    uint32_t magic;
    unsigned flags;
    struct CUctx_st *ctx;
    struct tl_drv_op *op;               /* last record, a reference */
    struct tl_drv_shared_event *shared; /* between processes: what counts then, NULL otherwise */
    int shared_fd;
    struct tl_drv_capture *capture; /* recorded in this capture, behind these nodes */
    uint64_t capture_id;
    struct CUgraphNode_st **nodes;
    size_t n_nodes;
};

/* One PTX module's text and what was found in it: immutable but for the kernels, which are looked
 * at when asked for. Shared by the modules made of it in several contexts. */
struct tl_drv_image {
    uint32_t refs;
    char *text;
    struct tl_ptx_index *index;
    struct tl_drv_kernel_info **infos; /* by item number, filled under the lock */
    pthread_mutex_t managed_lock;      /* guards `managed` */
    /* __managed__ variables: the same for all contexts; NULL until asked for */
    struct tl_drv_globals *managed;
    /* the text only stands for a cubin: see device/driver/opaque.c; else NULL */
    struct tl_drv_opaque *opaque;
    uint32_t n_items;
};

/* What the PTX says of one kernel. */
struct tl_drv_kernel_info {
    char *name;
    uint32_t n_params, param_bytes;
    uint32_t *param_offsets, *param_sizes;
    uint32_t shared_bytes, local_bytes, const_bytes, registers;
    uint32_t max_threads; /* from .maxntid or .reqntid, else 1024 */
    uint32_t required[3]; /* .reqntid, or 0 */
    uint32_t required_cluster[3];
    uint32_t ptx_version, target;
};

struct tl_drv_global {
    struct tl_str name;
    CUdeviceptr address;
    size_t bytes;
    bool is_managed, is_constant;
};

/* Variables that lie in one allocation. */
struct tl_drv_globals {
    struct tl_drv_global *list;
    uint32_t n;
    CUdeviceptr block; /* 0 if there are none */
};

struct CUmod_st {
    uint32_t magic;
    struct CUctx_st *ctx;
    struct CUmod_st *next;
    struct CUlib_st *library; /* NULL for cuModuleLoad */
    struct tl_drv_image *image;
    struct tl_drv_globals own;
    const struct tl_drv_globals *managed; /* the image's */
    /* variables inside of functions, as kernels have asked for them */
    struct tl_drv_inner *inner;
    struct CUfunc_st *functions;
};

struct CUfunc_st {
    uint32_t magic;
    struct CUmod_st *module;
    struct CUfunc_st *next;
    struct CUkern_st *kernel;
    struct tl_drv_kernel_info *info;
    int max_dynamic_shared, carveout, cluster_non_portable;
    CUfunc_cache cache_config;
    struct tl_drv_settings *settings; /* of device/driver/param.c, or NULL */
    pthread_mutex_t code_lock;        /* held while compiling; guards `code` */
    struct tl_drv_code *code;         /* one per block size */
};

struct CUkern_st {
    uint32_t magic;
    struct CUlib_st *library;
    struct CUkern_st *next;
    char *name;
};

struct CUlib_st {
    uint32_t magic;
    struct tl_drv_image *image;
    struct CUkern_st *kernels;
    struct CUmod_st **by_context; /* a module for each context that has needed one */
    size_t n_by_context;
};

enum tl_drv_memory {
    TL_DRV_DEVICE_MEMORY,
    TL_DRV_HOST_MEMORY,
    TL_DRV_REGISTERED,
    TL_DRV_MANAGED,
    TL_DRV_VIRTUAL, /* reserved or mapped by the VMM calls */
};

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
};

struct tl_drv_cached { /* a block that a pool keeps for reuse */
    struct tl_drv_cached *next;
    struct tl_drv_alloc *alloc;
};

struct CUmemPoolHandle_st {
    uint32_t magic;
    struct CUmemPoolHandle_st *older; /* in the list of all */
    struct tl_drv_device *device;
    struct tl_drv_cached *cached;
    uint64_t threshold, reserved, reserved_high, used, used_high;
    int reuse[3];
    uint64_t id;       /* tells this process's pools apart for others */
    bool is_shareable; /* others may open it */
    bool is_imported;  /* another process's: gives nothing out */
    bool is_default;
    bool is_destroyed;
};

struct CUarray_st {
    uint32_t magic;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    uint32_t element_bytes;
    size_t pitch, slice;  /* bytes */
    size_t height, depth; /* at least 1; depth includes layers */
    uint8_t *data;
    bool is_level; /* belongs to a mipmapped array */
};

struct tl_drv_device {
    int ordinal;
    int number; /* among all, also those that CUDA_VISIBLE_DEVICES hides */
    char name[64];
    CUuuid uuid;
    int pci_bus;
    uint64_t memory_bytes;
    uint64_t used_bytes;
    struct CUctx_st *primary;
    struct CUgreenCtx_st *greens; /* on the primary context */
    unsigned primary_flags;
    struct CUmemPoolHandle_st *default_pool, *pool;
    /* what nodes of graphs allocate; nobody has its handle */
    struct CUmemPoolHandle_st *graph_pool;
    int sms;
};

struct tl_drv_proc {
    const char *name, *symbol;
    void *pointer; /* NULL if not implemented */
    int version;
    int is_per_thread;
};

struct tl_drv_state_all {
    pthread_mutex_t lock;
    atomic_bool is_initialised;
    bool is_forked_child;
    struct tl_drv_device devices[TL_DRV_MAX_DEVICES];
    int n_devices;
    int n_physical; /* with those that CUDA_VISIBLE_DEVICES hides */
    int cc_major, cc_minor;
    /* 16 if this process is a client of low priority to MPS: all its streams rank behind normal
     * ones */
    int below_normal;
    struct tl_drv_alloc **allocs; /* sorted by base */
    size_t n_allocs, cap_allocs;
    /* All that there ever were: they are never freed, so that a handle that was destroyed is
     * recognised as such. */
    struct CUctx_st *contexts;
    struct CUmemPoolHandle_st *pools;
    uint64_t next_id;
};

extern struct tl_drv_state_all tl_drv;
extern const struct tl_drv_proc tl_drv_procs[]; /* generated */
extern const size_t tl_drv_n_procs;

static inline void tl_drv_lock(void)
{
    pthread_mutex_lock(&tl_drv.lock);
}

static inline void tl_drv_unlock(void)
{
    pthread_mutex_unlock(&tl_drv.lock);
}

/* Device addresses are addresses of this process. */
static inline void *tl_drv_pointer(uintptr_t address)
{
    return (void *)address; /* NOLINT(performance-no-int-to-ptr) */
}

/* --- device/driver/init.c --- */
CUresult tl_drv_check_init(void);
CUresult tl_drv_device(CUdevice ordinal, struct tl_drv_device **out);
bool tl_drv_log_is_on(void);
void tl_drv_logs_add(const char *message); /* device/driver/logs.c */
void tl_drv_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
CUresult tl_drv_unimplemented(const char *name); /* logs once per name, NOT_SUPPORTED */
uint64_t tl_drv_now_ns(void);

/* Reads TALLY_DEVICE_CC, once. */
void tl_drv_capability_read(void);
/* What to tell the code at that address. */
void tl_drv_capability_for(const void *caller, int *major, int *minor);

/* --- device/driver/context.c --- */
/* The current context, ready for use: initialised, not destroyed, no sticky error. */
CUresult tl_drv_enter(struct CUctx_st **ctx);
CUresult tl_drv_context_check(CUcontext ctx); /* the same of a given one */
CUcontext tl_drv_current(void);
/* made if need be, not retained; lock held */
struct CUctx_st *tl_drv_primary(struct tl_drv_device *device);
void tl_drv_context_fail(struct CUctx_st *ctx, CUresult result);
CUresult tl_drv_context_error(const struct CUctx_st *ctx); /* the first fault, or CUDA_SUCCESS */
/* The context that stands for a green one; lock held. */
struct CUctx_st *tl_drv_context_create_green(struct CUctx_st *home, struct CUgreenCtx_st *green);
bool tl_drv_per_thread_begin(void);
CUresult tl_drv_per_thread_end(bool was, CUresult result);
bool tl_drv_is_per_thread(void);

/* --- device/driver/stream.c --- */
/* The stream behind a handle (0, 1 and 2 included), with its context checked. */
CUresult tl_drv_stream(CUstream handle, struct CUstream_st **out);
/* lock held */
struct CUstream_st *tl_drv_stream_create(struct CUctx_st *ctx, unsigned flags, int priority);
/* Waits for everything submitted to a context so far.  Lock not held. */
CUresult tl_drv_context_wait(struct CUctx_st *ctx);
CUresult tl_drv_stream_wait(struct CUstream_st *s);

/* --- device/driver/event.c --- */
/* An event's record as processes share it: it is done when as many were completed as issued. */
struct tl_drv_shared_event {
    _Atomic uint64_t issued, completed;
};

/* Everything that stands in the context's streams now; the event's new record. */
CUresult tl_drv_event_record_context(struct CUevent_st *e, struct CUctx_st *ctx);
CUresult tl_drv_event_wait(struct CUstream_st *s, struct CUevent_st *e);

/* --- device/driver/green.c --- */
/* NULL: the whole device */
struct tl_exec_partition *tl_drv_green_partition(const struct CUctx_st *ctx);
int tl_drv_context_sms(const struct CUctx_st *ctx);
/* The next green context of a list that begins with device->greens; its context.  Lock held. */
struct CUctx_st *tl_drv_green_next(struct CUgreenCtx_st **at);

/* --- device/driver/op.c --- */
/* lock held; one reference */
struct tl_drv_op *tl_drv_op_create(struct CUctx_st *ctx, const struct tl_drv_work *work);
/* lock held */
void tl_drv_op_after(struct tl_drv_op *op, struct tl_drv_op *predecessor);
/* Puts what follows a gate between it and its end (device/driver/graph_exec.c), and drops a
 * reference (device/driver/graph_conditional.c). */
void tl_drv_gate_open(struct tl_drv_op *gate);
void tl_drv_conditional_unref(struct tl_drv_conditional *c);
void tl_drv_op_order(struct tl_drv_op *op,
                     /* behind the stream's work, and its new tail; lock held */
                     struct CUstream_st *s);
/* All predecessors are named: may run from now on.  Lock held; returns it released. */
void tl_drv_op_start_unlock(struct tl_drv_op *op);
void tl_drv_op_finished(struct tl_drv_op *op, CUresult result); /* lock not held */
void tl_drv_op_unref(struct tl_drv_op *op);                     /* lock held */
bool tl_drv_op_is_done(const struct tl_drv_op *op);
void tl_drv_op_wait(struct tl_drv_op *op); /* lock not held, the caller has a reference */
/* Puts work into a stream, or into the graph that the stream is captured to.  Owns `work`'s parts
 * in any case.  With `wait`, returns when it is done; its bytes are then moved by the calling
 * thread. */
CUresult tl_drv_submit(struct CUstream_st *s, struct tl_drv_work *work, bool wait);
void tl_drv_work_finish(struct tl_drv_work *work);
void tl_drv_copy_run(const struct tl_drv_copy *c);

/* --- device/driver/copy.c --- */
/* Both refuse what is not allocated.  Lock not held. */
CUresult tl_drv_plan_3d(const CUDA_MEMCPY3D *p, struct tl_drv_copy *c);
CUresult tl_drv_fill_check(const struct tl_drv_fill *f);

/* --- device/driver/launch.c: how kernels are run --- */
/* Fills in function, parameters and code of a launch whose shape is set.  Lock not held. */
CUresult tl_drv_launch_make(CUfunction handle, struct tl_drv_launch *launch, void **kernelParams,
                            void **extra);
/* A function was asked for by name: if its PTX says with which block size it will be launched, it
 * is compiled meanwhile. */
void tl_drv_launch_expect(const struct CUfunc_st *f);
/* Compiles if need be; 0 and launch->code.  Lock not held. */
CUresult tl_drv_launch_prepare(struct tl_drv_launch *launch);
/* Starts it; tl_drv_op_finished follows sooner or later, from any thread. */
void tl_drv_launch_start(struct tl_drv_op *op);
void tl_drv_code_free(struct tl_drv_code *code);

/* --- device/driver/memory.c --- */
/* All with the lock held unless said otherwise. */
struct tl_drv_alloc *tl_drv_alloc_find(uintptr_t address);
CUresult tl_drv_alloc_create(struct tl_drv_device *device, struct CUctx_st *ctx, size_t bytes,
                             enum tl_drv_memory kind, struct tl_drv_alloc **out);
void tl_drv_alloc_destroy(struct tl_drv_alloc *a);
/* whether something allocated lies there */
bool tl_drv_alloc_overlaps(uintptr_t base, size_t bytes);
CUresult tl_drv_alloc_insert(struct tl_drv_alloc *a);
void tl_drv_alloc_remove(struct tl_drv_alloc *a);
/* Whether all these bytes are allocated and may be read or written. */
bool tl_drv_memory_covers(uintptr_t address, size_t bytes, bool is_written);
bool tl_drv_memory_charge(struct tl_drv_device *device, uint64_t bytes);
/* For the current context.  Lock not held. */
CUresult tl_drv_memory_take(size_t bytes, enum tl_drv_memory kind, unsigned flags, uintptr_t *out);
/* Frees device memory at the address; pools take theirs back. */
CUresult tl_drv_memory_free(CUdeviceptr address);
/* Whether these bytes may be read or written later, without the caller's knowledge: pinned, managed
 * or device memory. */
bool tl_drv_is_pinned(const void *p);

/* --- device/driver/pages.c; the driver's lock may be held or not --- */
enum { TL_DRV_SOFT, TL_DRV_FIRM }; /* ranks of pages: soft ones leave the device first */
/* Makes [base, base + bytes), which is mapped, memory of pages.  NULL: not that much host memory is
 * left. */
struct tl_drv_pages *tl_drv_pages_create(struct tl_drv_device *device, void *base, size_t bytes);
void tl_drv_pages_destroy(struct tl_drv_pages *p); /* leaves the mapping at base to the caller */
bool tl_drv_pages_are_there(void);                 /* whether this process has any */
/* Brings what is needed to access the first bytes from `address` on and keeps it there until
 * released.  Returns how many bytes that is, at most n.  Memory without pages is always there. */
struct tl_drv_hold {
    void *chunk;
};
size_t tl_drv_pages_hold(const void *address, size_t n, struct tl_drv_hold *hold);
void tl_drv_pages_release(const struct tl_drv_hold *hold);
/* Moves a range to the device, as far as there is room, or to host memory. */
void tl_drv_pages_move(CUdeviceptr address, size_t n, bool to_device);
void tl_drv_pages_rank(CUdeviceptr address, size_t n, uint32_t rank);
/* How much of the range is on the device; the rank of its last chunk. */
uint64_t tl_drv_pages_on_device(CUdeviceptr address, size_t n, uint32_t *rank);
/* Takes bytes from the ledger for memory without pages, by moving own pages out. */
bool tl_drv_pages_make_room(struct tl_drv_device *device, uint64_t bytes);

/* --- device/driver/pool.c --- */
struct CUmemPoolHandle_st *tl_drv_pool_create(struct tl_drv_device *device); /* lock held */
bool tl_drv_pool_take_back(struct tl_drv_alloc *a);                          /* lock held */
/* it is about to go; lock held */
void tl_drv_pool_forget(struct tl_drv_alloc *a);
uint64_t tl_drv_pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep); /* lock held */
/* A block that the pool has kept, of nearly that size, in use again; NULL if there is none.  Lock
 * held. */
struct tl_drv_alloc *tl_drv_pool_reuse(struct CUmemPoolHandle_st *pool, struct CUctx_st *ctx,
                                       size_t bytes);
/* A block is in use, a new one of the pool or one that it had kept.  Lock held. */
void tl_drv_pool_count(struct CUmemPoolHandle_st *pool, struct tl_drv_alloc *a, bool is_new);

/* --- device/driver/graph_memory.c; lock held --- */
struct CUgraph_st;
/* Memory, and the work of the node that allocates it. */
CUresult tl_drv_graph_memory_create(struct tl_drv_device *device, struct CUctx_st *ctx,
                                    const struct CUgraph_st *owner, size_t bytes,
                                    struct tl_drv_work *work);
/* cuMemFree and cuMemFreeAsync: false if it is not live. */
bool tl_drv_graph_memory_free(struct tl_drv_alloc *a);
/* The device has come to the free. */
void tl_drv_graph_memory_reached(struct tl_drv_alloc *a);

/* --- device/driver/image.c, device/driver/module.c, device/driver/library.c --- */
CUresult tl_drv_image_load(const void *bytes, struct tl_drv_image **out); /* lock not held */
/* A file as cuModuleLoad takes it, terminated, the caller's to free; NULL if that fails. */
CUresult tl_drv_image_read(const char *path, char **out);
CUresult tl_drv_image_of_text(char *text, size_t n, struct tl_drv_image **out); /* takes the text */
void tl_drv_image_unref(struct tl_drv_image *image);                            /* lock held */
CUresult tl_drv_kernel_info(struct tl_drv_image *image, const char *name,
                            /* not held */
                            struct tl_drv_kernel_info **out);
/* not held */
CUresult tl_drv_module_create(struct CUctx_st *ctx, struct tl_drv_image *image,
                              struct CUmod_st **out);
/* not held */
void tl_drv_module_destroy(struct CUmod_st *module);
/* not held */
CUresult tl_drv_module_function(struct CUmod_st *module, const char *name, struct CUfunc_st **out);
const struct tl_drv_global *tl_drv_module_global(struct CUmod_st *module, struct tl_str name);
/* The address of a variable that a compiled kernel asks for: one of the module's, or one that
 * stands inside of a function ("function::n", ptx_rewrite/initialiser.h).  0, -ENOENT, -EINVAL,
 * -ENOMEM.  Lock not held. */
int tl_drv_module_variable(struct CUmod_st *module, const char *name, uint64_t *address,
                           struct tl_error *err);
/* References to textures that the module has (device/driver/texref.c); lock held. */
void tl_drv_texref_forget(const struct CUmod_st *m);
/* The image's __managed__ variables, which need no context.  Lock not held. */
CUresult tl_drv_image_managed(struct tl_drv_image *image, const struct tl_drv_globals **out);
void tl_drv_globals_destroy(struct tl_drv_globals *g); /* lock held; NULL is fine */
/* A CUfunction or a CUkernel, for the current context. */
CUresult tl_drv_function(CUfunction handle, struct CUfunc_st **out);
CUresult tl_drv_library_module(struct CUlib_st *library, struct CUctx_st *ctx,
                               struct CUmod_st **out);

/* --- device/driver/capture.c; lock held --- */
/* Adds work to the graph being captured; takes it. */
CUresult tl_drv_capture_add(struct CUstream_st *s, struct tl_drv_work *work);
/* Adds a node that allocates, and tells what. */
CUresult tl_drv_capture_alloc(struct CUstream_st *s, struct tl_drv_device *device, size_t bytes,
                              CUdeviceptr *address);
CUresult tl_drv_capture_wait(struct CUstream_st *s, struct CUevent_st *e);
void tl_drv_capture_record(struct CUstream_st *s, struct CUevent_st *e);
/* lock need not be held by the thread that captures */
bool tl_drv_is_capturing(const struct CUstream_st *s);
void tl_drv_capture_forget_event(struct CUevent_st *e);

/* --- device/driver/attribute.c --- */
int tl_drv_device_attribute(const struct tl_drv_device *d, CUdevice_attribute attribute);

/* --- device/driver/fetch.c: as parts of kernels, so without locks --- */
void tl_drv_tex(uint64_t handle, uint32_t kind, uint32_t is_float, const uint32_t *coords,
                uint32_t result[4]);
/* False if the kernel must end: outside, and it asked for that. */
bool tl_drv_surf(uint64_t handle, uint32_t kind, uint32_t is_store, const int32_t coords[4],
                 uint32_t bytes, uint32_t outside, uint32_t data[4]);

/* --- device/driver/integrity.c --- */
/* cudart's handshake; see there. */
void tl_drv_integrity(uint32_t version, uint64_t seconds, const void *cudart_table,
                      const void *table, const void *function, uint8_t out[16]);

#endif
