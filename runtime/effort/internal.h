/* The best-effort part of a job (libtally-effort.so): what its files share.
 *
 *     runtime/effort/start.c     begins and ends; the table of hooks
 *     runtime/effort/real.c      the real driver's functions
 *     runtime/effort/stream.c    contexts and streams
 *     runtime/effort/queue.c     ordered queues of what was asked for, and who may go next
 *     runtime/effort/calls.c     hooks of calls that only have to keep their place in a stream
 *     runtime/effort/copy.c      hooks of copies: what pageable memory demands
 *     runtime/effort/event.c     events whose record is still queued
 *     runtime/effort/sync.c      waiting, capture, the ends of streams, memory and contexts
 *     effort_graph*.c    graphs, replayed node by node
 *     runtime/effort/kernel.c    kernels: parameters, limits, launches as the job makes them
 *     runtime/effort/variant.c   the rewritten forms of a kernel, built in the background
 *     runtime/effort/store.c     what outlives the process: rewritten text, measured times
 *     runtime/effort/profile.c   how long kernels take, and what follows for them
 *     runtime/effort/next.c      what the job tells of the kernel that comes next
 *     runtime/effort/pieces.c    a kernel's way to the device: rung, size, launches
 *     runtime/effort/cap.c       kernels that cannot be stopped, on a part of the SMs
 *     runtime/effort/flight.c    what is on the device, and the news of its end
 *     runtime/effort/supply.c    counters and events of a context
 *     runtime/effort/gate.c      whether this job may launch at this moment
 *     runtime/effort/executor.c  the thread that submits what is queued
 *
 * Everything is guarded by one lock, `tl_eff.lock`, unless it says otherwise.  The lock is never
 * held while the real driver is called, so a call that blocks there blocks nobody else.  Items are
 * submitted to the real driver in an order that keeps every promise of CUDA; the real driver does
 * the rest.  An item counts as submitted when what comes behind it may be given to the driver: for
 * a kernel that runs in pieces that is when its last block is done. */
#ifndef TALLY_EFFORT_INTERNAL_H
#define TALLY_EFFORT_INTERNAL_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1 /* every version of a function under its own name */
#endif
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/tally/digest.h"
#include "include/tally/effort.h"
#include "runtime/job/client.h"
#include "runtime/job/settings.h"
#include "runtime/record/record.h"
#include "tally/ptx.h"

/* --- the real driver -------------------------------------------------------------------------- */

/* Functions that are called with their own types.  The second list may be missing in older
 * drivers. */
#define TL_EFF_REAL(X)                                                                             \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxGetDevice)                                                                              \
    X(cuCtxSynchronize)                                                                            \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDriverGetVersion)                                                                          \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy_v2)                                                                          \
    X(cuStreamGetFlags)                                                                            \
    X(cuStreamGetCtx)                                                                              \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamQuery)                                                                               \
    X(cuStreamWaitEvent)                                                                           \
    X(cuStreamIsCapturing)                                                                         \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy_v2)                                                                           \
    X(cuEventRecord)                                                                               \
    X(cuEventQuery)                                                                                \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)                                                                          \
    X(cuLaunchKernel)                                                                              \
    X(cuLaunchHostFunc)                                                                            \
    X(cuFuncGetAttribute)                                                                          \
    X(cuFuncSetAttribute)                                                                          \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleUnload)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuModuleGetGlobal_v2)                                                                        \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemHostRegister_v2)                                                                        \
    X(cuMemHostUnregister)                                                                         \
    X(cuMemHostGetDevicePointer_v2)                                                                \
    X(cuMemcpyHtoD_v2)                                                                             \
    X(cuMemcpyHtoDAsync_v2)                                                                        \
    X(cuMemcpyDtoHAsync_v2)                                                                        \
    X(cuPointerGetAttribute)                                                                       \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor)
#define TL_EFF_REAL_NEWER(X)                                                                       \
    X(cuLaunchKernelEx)                                                                            \
    X(cuLaunchCooperativeKernel)                                                                   \
    X(cuThreadExchangeStreamCaptureMode)                                                           \
    X(cuEventRecordWithFlags)                                                                      \
    X(cuKernelGetFunction)                                                                         \
    X(cuKernelGetParamInfo)                                                                        \
    X(cuFuncGetParamInfo)                                                                          \
    X(cuLibraryGetGlobal)                                                                          \
    X(cuGraphGetNodes)                                                                             \
    X(cuGraphNodeGetType)                                                                          \
    X(cuGraphNodeGetDependencies)                                                                  \
    X(cuGraphKernelNodeGetParams_v2)                                                               \
    X(cuGraphKernelNodeGetAttribute)                                                               \
    X(cuGraphMemcpyNodeGetParams)                                                                  \
    X(cuGraphMemsetNodeGetParams)                                                                  \
    X(cuGraphHostNodeGetParams)                                                                    \
    X(cuGraphChildGraphNodeGetGraph)                                                               \
    X(cuGraphEventRecordNodeGetEvent)                                                              \
    X(cuGraphEventWaitNodeGetEvent)                                                                \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease_v2)                                                                \
    X(cuDeviceGetDevResource)                                                                      \
    X(cuDevSmResourceSplitByCount)                                                                 \
    X(cuDevResourceGenerateDesc)                                                                   \
    X(cuGreenCtxCreate)                                                                            \
    X(cuGreenCtxStreamCreate)                                                                      \
    X(cuGreenCtxDestroy)                                                                           \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphExecDestroy)                                                                          \
    X(cuMemcpy3DAsync_v2)                                                                          \
    X(cuMemsetD2D8Async)                                                                           \
    X(cuMemsetD2D16Async)                                                                          \
    X(cuMemsetD2D32Async)

struct tl_eff_real {
#define TL_EFF_REAL_FIELD(name) __typeof__(name) *name;
    TL_EFF_REAL(TL_EFF_REAL_FIELD)
    TL_EFF_REAL_NEWER(TL_EFF_REAL_FIELD)
#undef TL_EFF_REAL_FIELD
};

/* A call that is made later.  Every argument of the functions that are kept so is an integer, a
 * pointer or a structure of eight bytes, each of which travels in one register or stack place of 64
 * bits on the machines that CUDA has. */
enum { TL_EFF_MAX_ARGS = 9 };
struct tl_eff_call {
    void *function;
    uint32_t n;
    uintptr_t args[TL_EFF_MAX_ARGS];
};
CUresult tl_eff_invoke(const struct tl_eff_call *c);
/* 0, or -ENOENT naming what the driver lacks. */
int tl_eff_real_find(const struct tl_shim *shim, struct tl_error *err);

/* --- contexts and streams --------------------------------------------------------------------- */

struct tl_eff_item;

/* A part of the SMs. */
struct tl_eff_cap {
    uint32_t sms;
    CUgreenCtx green;
    CUstream spare[16]; /* of streams that the job has destroyed */
    uint32_t n_spare;
};

enum {
    TL_EFF_SIDES = 8,
    TL_EFF_CAPS = 8, /* sizes of parts */
    /* kernels launched behind one another before the end of the first is known */
    TL_EFF_MAX_CHAIN = 8,
};

struct tl_eff_context {
    struct tl_eff_context *next;
    CUcontext handle;
    struct tl_eff_stream *streams; /* all, the legacy one included */
    struct tl_eff_stream *legacy;
    CUresult error; /* of something that was queued; told at the next wait */
    /* What pieces need, made when the first is launched; the executor's own. */
    bool is_prepared, is_unfit;
    bool has_host_atomics;
    int n_sms;
    /* an SM has one block at a time, whatever its occupancy: the software device */
    bool runs_block_by_block;
    /* where host functions stand that tell of ends, beside the streams */
    CUstream sides[TL_EFF_SIDES];
    CUevent *events;
    uint32_t n_events, cap_events;
    struct tl_eff_control_slab *slab;
    _Atomic uint64_t *
        /* tells what was launched to leave: the grant was withdrawn, or there are other words */
        kick_word;
    CUdeviceptr kick_device;
    CUdeviceptr scratch; /* words and counter of launches that do nothing; the builder's own */
    CUevent clock;       /* an event whose time is known: when it was done by the host's clock */
    uint64_t clock_ns;
    struct tl_eff_cap caps[TL_EFF_CAPS];
    uint32_t n_caps;
    bool is_capless; /* there are no such parts, or they were refused */
};

struct tl_eff_stream {
    struct tl_eff_stream *next;         /* in the context's list */
    struct tl_eff_stream *next_in_hash; /* by handle */
    struct tl_eff_stream *next_busy;    /* in the executor's list */
    struct tl_eff_context *context;
    CUstream handle; /* the real one; NULL for the legacy stream */
    uint32_t number; /* for the timeline */
    bool is_legacy, is_blocking;
    bool is_capturing;
    bool is_busy;      /* in the executor's list */
    bool is_destroyed; /* by the job; it goes when nothing is queued any more */
    bool is_held;      /* its head has to wait for the gate or the rate */
    struct tl_eff_item *first, *last;
    uint32_t n_items;
    /* Pieces on the device, oldest first, and what may not go on before they are over. */
    uint32_t n_flying;
    bool
        /* a piece came back before its work was done: what was launched behind it has to come back
         * first */
        is_stalled;
    /* Whole kernels that were given to the driver and whose end nobody watches for yet. */
    uint32_t n_unmarked;
    uint64_t unmarked_ns;    /* predicted */
    uint64_t unmarked_since; /* when the first of them was launched */
    uint64_t last_done_ns;   /* end of the last piece seen */
    /* A mark put behind them while the job begins to capture the stream would become part of its
     * graph. */
    bool is_being_marked;
    uint32_t n_unmarkable; /* callers who may be about to capture it */
    /* Its kernels on a part of the SMs stand in a stream of that part, one for each, or streams
     * would wait for one another. */
    CUstream capped;
    CUgreenCtx capped_in;
};

/* --- what is queued --------------------------------------------------------------------------- */

enum tl_eff_kind {
    TL_EFF_CALL,   /* made by the executor */
    TL_EFF_TURN,   /* made by the thread that asked for it, when its turn comes */
    TL_EFF_KERNEL, /* made by the executor, in the way that suits the moment */
};

enum { TL_EFF_MAX_ATTRIBUTES = 8 };

struct tl_eff_kernel;
struct tl_eff_profile;
struct tl_eff_variant;
struct tl_eff_control;

/* A launch as the job asked for it, and how far it has come. */
struct tl_eff_launch {
    struct tl_eff_kernel *kernel;
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint32_t param_bytes;
    uint8_t *params; /* with room for the extra ones of a variant */
    bool is_cooperative;
    bool is_plain; /* nothing in the attributes forbids running it in pieces */
    uint32_t n_attributes;
    CUlaunchAttribute attributes[TL_EFF_MAX_ATTRIBUTES];
    uint32_t blocks;    /* of the grid; 0 if that exceeds 2^31 - 1 */
    uint64_t queued_ns; /* when it was asked for */
    uint64_t sizes;     /* what its parameters say about how much work it is: tl_eff_sizes */
    /* The executor's: */
    struct tl_eff_profile *profile;
    bool is_chosen;
    enum tl_rung rung;
    struct tl_eff_variant *variant;
    struct tl_eff_control *control;
    uint32_t done;     /* blocks that were taken, as far as known */
    uint32_t launched; /* slice and ticket: blocks that pieces were launched for */
    uint32_t n_flying; /* pieces of it */
    uint64_t head_ns;  /* when the executor first looked at it */
    uint64_t began_ns, ready_ns;
    uint64_t device_ns; /* of all its pieces */
    uint64_t since_ns;  /* device time of pieces since the counter was looked at */
};

struct tl_eff_item {
    enum tl_eff_kind kind;
    struct tl_eff_item *next; /* in its stream */
    struct tl_eff_stream *stream;
    uint32_t refs;
    bool is_submitted;
    bool is_under_way; /* being submitted by the executor, or its caller's turn */
    bool is_awaited;   /* a thread waits until it is submitted */
    bool is_gated;     /* TURN: launches a kernel, so it has to wait for the gate */
    bool ends_stream;
    uint32_t n_waits;           /* items that must be submitted before it */
    struct tl_eff_item **after; /* items that wait for it */
    uint32_t n_after, cap_after;
    struct tl_eff_event *event; /* recorded or waited for: a reference */
    void *owned;                /* freed with it */
    CUresult result;
    union {
        struct tl_eff_call call;
        struct tl_eff_launch launch;
    };
};

/* --- state ------------------------------------------------------------------------------------ */

enum { TL_EFF_STREAM_SLOTS = 256, TL_EFF_EVENT_SLOTS = 1024, TL_EFF_KERNEL_SLOTS = 1024 };

struct tl_eff_state {
    const struct tl_shim *shim;
    const struct tl_settings *settings;
    struct tl_client *client;
    struct tl_record *record;
    struct tl_client_page *page;
    pthread_mutex_t lock;
    pthread_cond_t submitted; /* something was submitted, or a caller's turn has come */
    _Atomic uint32_t bell;    /* a futex: rung when the executor has something to look at */
    _Atomic uint32_t is_asleep;
    bool has_thread;
    _Atomic bool is_over;    /* the process ends: nothing is held back any more */
    uint32_t n_items;        /* in all queues */
    uint32_t n_room_waiters; /* threads that wait for a shorter queue */
    uint32_t n_streams;
    struct tl_eff_context *contexts;
    struct tl_eff_stream *busy, **busy_end;
    /* by handle; legacy ones are found by context */
    struct tl_eff_stream *streams[TL_EFF_STREAM_SLOTS];
    struct tl_eff_event *events[TL_EFF_EVENT_SLOTS];
    struct tl_eff_kernel *kernels[TL_EFF_KERNEL_SLOTS];
    /* Work given to the driver. */
    struct tl_eff_piece *flying, **flying_end;
    uint32_t n_flying, n_unmarked;
    bool has_backlog;   /* as told to tallyd */
    uint64_t flying_ns; /* predicted, marked and unmarked */
    /* The gate. */
    struct tl_grant grant;
    uint32_t grant_changes;
    bool has_grant;
    uint64_t busy_ns; /* when a higher level was last seen busy, or a burst of it found over */
    bool was_preempted;
    /* halvings of the run-ahead; one less with each mark that comes back undisturbed */
    uint32_t caution;
    uint32_t n_words;
    _Atomic uint64_t round_trip_ns; /* until an end is known, at best; 0 if not measured */
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    uint32_t words_epoch; /* grows when they are others */
    /* what is on the device was told to leave by us; nothing is launched meanwhile */
    bool is_kicking;
    double rate_tokens;
    uint64_t rate_ns;
};

extern struct tl_eff_state tl_eff;
extern struct tl_eff_real tl_eff_real;

static inline void tl_eff_lock(void)
{
    pthread_mutex_lock(&tl_eff.lock);
}

static inline void tl_eff_unlock(void)
{
    pthread_mutex_unlock(&tl_eff.lock);
}

static inline uint64_t tl_eff_now(void)
{
    return tl_record_now();
}

/* One line for the user's log. */
#define tl_eff_log(level, ...) tl_eff.shim->log(level, __VA_ARGS__)
/* A remark in the record, once per text. */
void tl_eff_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- runtime/effort/stream.c --- */
/* The stream behind a handle: 0, 1 and 2 included; `is_per_thread` is how the caller means 0.  Lock
 * not held.  An error is what the driver would have said to such a handle. */
CUresult tl_eff_stream(CUstream handle, bool is_per_thread, struct tl_eff_stream **out);
/* lock held; made if new, NULL without memory */
struct tl_eff_context *tl_eff_context(CUcontext handle);
/* The current context's, or NULL if there is none.  Lock not held. */
struct tl_eff_context *tl_eff_current(void);
/* of the calling thread of ours; lock not held */
void tl_eff_make_current(struct tl_eff_context *c);
/* its handle means nothing any more; lock held */
void tl_eff_stream_forget(struct tl_eff_stream *s);
void tl_eff_stream_free(struct tl_eff_stream *s);   /* lock held; nothing is queued */
void tl_eff_context_free(struct tl_eff_context *c); /* lock held; nothing is queued in it */
void tl_eff_streams_forked(void);

/* --- runtime/effort/queue.c --- */
struct tl_eff_item *tl_eff_item_create(enum tl_eff_kind kind); /* NULL without memory */
void tl_eff_item_unref(struct tl_eff_item *item);              /* lock held */
/* Whether something asked of the stream now may be given to the driver at once.  Lock held. */
bool tl_eff_passes(const struct tl_eff_stream *s);
/* `item` must not be submitted before `other`.  Lock held; `other` may be NULL. */
void tl_eff_after(struct tl_eff_item *item, struct tl_eff_item *other);
/* Puts it at the end of a stream, behind what the rules of the legacy stream name.  Takes the
 * caller's reference.  Lock held. */
void tl_eff_enqueue(struct tl_eff_stream *s, struct tl_eff_item *item);
/* It was given to the driver, with this result: whoever waits for it may go on.  Lock held. */
void tl_eff_submitted(struct tl_eff_item *item, CUresult result);
/* Waits until it was submitted.  Lock held; NULL is fine. */
void tl_eff_wait_submitted(struct tl_eff_item *item);
/* Waits until a queue is short enough to take one more.  Lock held. */
void tl_eff_make_room(struct tl_eff_stream *s);
/* Waits until everything queued so far was submitted.  Lock held. */
void tl_eff_drain_stream(struct tl_eff_stream *s);
void tl_eff_drain_context(struct tl_eff_context *c);
void tl_eff_drain_all(void);

/* Makes the call now or later, in its place.  `at` is the number of the stream's argument, or -1 if
 * it has none (the legacy stream is meant then).  `owned` is freed afterwards in any case. */
CUresult tl_eff_defer(struct tl_eff_stream *s, struct tl_eff_call *call, int at, void *owned);

/* A caller's turn: between begin and end the stream has nothing queued in front, and nothing
 * overtakes. */
struct tl_eff_turn {
    struct tl_eff_item *item;
};
CUresult tl_eff_turn_begin(struct tl_eff_turn *t, struct tl_eff_stream *s, bool is_gated);
void tl_eff_turn_end(struct tl_eff_turn *t, CUresult result);
/* The stored error of something that was queued, once; or `result`. */
CUresult tl_eff_result(struct tl_eff_context *c, CUresult result);

/* --- runtime/effort/event.c --- */
struct tl_eff_event;
void tl_eff_event_unref(struct tl_eff_event *e); /* lock held */
/* The record or wait that `item` stood for has been submitted.  Lock held. */
void tl_eff_event_submitted(struct tl_eff_event *e, struct tl_eff_item *item);
/* As cuEventRecord and cuStreamWaitEvent do. */
CUresult tl_eff_record(CUevent event, struct tl_eff_stream *s, unsigned flags);
CUresult tl_eff_wait(struct tl_eff_stream *s, CUevent event, unsigned flags);
CUresult tl_eff_event_destroy(CUevent event);

/* --- runtime/effort/sync.c --- */
/* see struct tl_effort; lock not held */
void tl_eff_unloading(const void *module, const void *library);

/* --- runtime/effort/kernel.c --- */
enum { TL_EFF_MAX_BLOCKSHAPES = 8, TL_EFF_EXTRA_BYTES = 256 };

struct tl_eff_param {
    uint32_t offset, size;
};

struct tl_eff_kernel {
    struct tl_eff_kernel *next; /* in its hash slot */
    CUfunction handle;          /* a CUkernel if `is_library` */
    struct tl_eff_context *context;
    const struct tl_captured_kernel *captured; /* NULL if the shim never saw it */
    void *module, *library;                    /* copies, for when it is unloaded */
    char *name;
    bool is_library;
    bool is_unknown; /* its parameters cannot be found out: it is launched by its caller */
    uint32_t n_params, param_bytes;
    struct tl_eff_param *params;
    int max_threads, max_dynamic;
    /* block sizes that were launched without an error */
    uint32_t shapes[TL_EFF_MAX_BLOCKSHAPES][3];
    uint32_t n_shapes;
    struct tl_record_kernel *record;
    struct tl_eff_profile *profiles;
    struct tl_eff_variant *variants[TL_PTX_VARIANTS][3]; /* by number of grid dimensions */
    uint64_t
        /* of what it is, cheaply: name, parameters, what the driver tells; the same in every
         * process */
        fingerprint;
};

/* Starts the launch, whole, at once.  Lock not held, context current. */
CUresult tl_eff_launch_whole(const struct tl_eff_launch *l, CUstream stream);
/* Forgets kernels and frees their variants.  Those that are still on the device are freed by a
 * later call.  Lock held, given up meanwhile. */
void tl_eff_kernels_forget(const void *module, const void *library, struct tl_eff_context *context);
/* Copies what the launch needs.  NULL without memory or if the kernel's parameters are not
 * known. */
struct tl_eff_item *tl_eff_launch_item(const struct tl_eff_launch *shape, void **params,
                                       void **extra);
/* A launch whose parameters are in one buffer: a graph's node.  Lock not held. */
CUresult tl_eff_launch_packed(struct tl_eff_stream *s, const CUDA_KERNEL_NODE_PARAMS_v2 *shape,
                              void *params, size_t n, bool is_cooperative);
/* The kernel behind a handle in the current context, or NULL.  Lock not held. */
struct tl_eff_kernel *tl_eff_kernel(CUfunction handle, struct tl_eff_context *context);

/* --- runtime/effort/variant.c --- */
enum tl_eff_variant_state { TL_EFF_BUILDING, TL_EFF_READY, TL_EFF_REFUSED };

struct tl_eff_variant {
    struct tl_eff_kernel *kernel;
    struct tl_eff_variant *next; /* in the builder's queue */
    enum tl_ptx_variant kind;
    uint32_t dims;
    enum tl_eff_variant_state state;
    uint32_t block[3]; /* of the launch that asked for it */
    uint32_t shared_bytes;
    CUmodule module;
    CUfunction function;
    uint32_t conditions, param_bytes;
    bool uses_slot;
    struct tl_ptx_arg *args; /* names are not kept */
    uint64_t *variables;     /* values of the arguments that are VARIABLE */
    uint32_t n_args;
    int max_dynamic; /* as set so far */
    int occupancy;   /* blocks per SM, 0 if not asked yet */
};

/* The variant if it is ready and its conditions hold for this launch.  Otherwise asks for it (with
 * `now`, builds it at once, giving the lock up meanwhile) and returns NULL; `*may_come` says
 * whether it is worth asking again.  Lock held. */
struct tl_eff_variant *tl_eff_variant(const struct tl_eff_launch *l, enum tl_ptx_variant kind,
                                      bool now, bool *may_come);
void tl_eff_variants_free(struct tl_eff_kernel *k); /* lock held; gives it up to unload */
void tl_eff_variants_forked(void);
/* Frees what was unpacked of an image; none of its kernels is known any more.  See struct
 * tl_effort. */
void tl_eff_texts_forget(struct tl_captured_image *image);
/* The extra arguments behind the original ones. */
struct tl_eff_extra {
    uint32_t grid[3], first, blocks, batch_mask;
    CUdeviceptr counter, words[TL_SHARE_WORDS];
};
void tl_eff_variant_args(const struct tl_eff_variant *v, uint8_t *params,
                         const struct tl_eff_extra *x);

/* --- runtime/effort/store.c --- */
/* Everything that decides what a rewritten kernel looks like. */
struct tl_eff_origin {
    const uint8_t *text; /* digest of the PTX, TL_JIT_DIGEST_BYTES */
    const char *kernel;
    enum tl_ptx_variant kind;
    uint32_t dims, max_registers;
    int driver;        /* version of the driver that is to load it */
    uint32_t rewriter; /* TL_PTX_REWRITER_VERSION */
};
enum { TL_EFF_KEY_BYTES = 2 * TL_JIT_DIGEST_BYTES + 1 };
/* Its name on disk: a digest of all of that, so that no two different ones meet. */
void tl_eff_store_key(char key[TL_EFF_KEY_BYTES], const struct tl_eff_origin *o);

/* A rewritten kernel as it is kept on disk. */
struct tl_eff_rewritten {
    char *text, *entry, *table_name;
    struct tl_ptx_arg *args; /* `variable` and nothing else is a string of its own */
    uint32_t n_args, original_params, original_bytes, param_bytes, conditions;
    char **table;
    uint32_t n_table;
    bool uses_slot;
};
int tl_eff_store_get(const char *key, struct tl_eff_rewritten *out); /* 0, -ENOENT, -ENOMEM */
/* a full disk is no error */
void tl_eff_store_put(const char *key, const struct tl_eff_rewritten *r);
int tl_eff_rewritten_copy(struct tl_eff_rewritten *to, const struct tl_ptx_rewritten *from);
void tl_eff_rewritten_finish(struct tl_eff_rewritten *r);
/* The folder for such things, made if need be: 0 or -errno. */
int tl_eff_store_folder(char *path, size_t n);

/* --- runtime/effort/profile.c --- */
enum { TL_EFF_LATENCIES = 32, TL_EFF_RECENT = 15 };

#define TL_EFF_ANY_SIZES UINT64_MAX
struct tl_eff_profile {
    struct tl_eff_profile *next;
    uint32_t grid[3], block[3], shared_bytes;
    /* of its parameters, or TL_EFF_ANY_SIZES: all that did not get one of their own */
    uint64_t sizes;
    uint64_t key; /* for the store */
    uint32_t n_samples, n_launches;
    uint64_t whole_ns; /* what the original takes; 0 if not known */
    uint64_t block_ns; /* one wave of its blocks */
    struct {
        uint64_t block_ns; /* least seen */
        uint32_t n_samples;
        bool is_slow; /* costs so much that the next rung is better */
        /* number of the launch from which on it gets another chance */
        uint32_t retry_at;
        uint32_t n_slow;                   /* how often it was found so */
        uint64_t recent_ns[TL_EFF_RECENT]; /* a wave, as measured last */
        uint32_t n_recent;
    } rungs[TL_RUNG_WHOLE];
    uint32_t latency[TL_EFF_LATENCIES]; /* preemptions, by log2 of ns */
    uint32_t n_latencies;
};

/* A digest of what in a parameter may be a size, continued from `h`. */
uint64_t tl_eff_sizes(uint64_t h, const void *param, uint32_t n);
struct tl_eff_profile *tl_eff_profile(struct tl_eff_kernel *k,
                                      /* lock held; NULL without memory */
                                      const struct tl_eff_launch *l);
uint64_t tl_eff_predicted_ns(const struct tl_eff_profile *p);
bool tl_eff_wants_sample(const struct tl_eff_profile *p);
/* Whether a rung is still judged by small pieces, and whether it was found too slow for now. */
bool tl_eff_is_on_trial(const struct tl_eff_profile *p, enum tl_rung rung);
bool tl_eff_is_slow(struct tl_eff_profile *p, enum tl_rung rung);
/* So many blocks took that long, on this rung. */
void tl_eff_profile_ran(struct tl_eff_profile *p, const struct tl_eff_launch *l, enum tl_rung rung,
                        uint64_t ns, uint32_t blocks, int n_sms);
/* What one block takes on that rung: the median of what was measured last, or what the original
 * takes; 0 if nothing is known. */
uint64_t tl_eff_block_ns(const struct tl_eff_profile *p, enum tl_rung rung);
void tl_eff_profile_preempted(struct tl_eff_profile *p, uint64_t ns);
/* The kernel is unloaded: what was learnt about it is kept for the file.  Lock held. */
void tl_eff_profile_keep(const struct tl_eff_kernel *k);
void tl_eff_profile_load(void);
void tl_eff_profile_save(void);

/* --- runtime/effort/gate.c --- */
/* With nobody above, so much work may be with the driver, and a kernel of up to that runs whole: if
 * somebody comes, that is how long he waits, once. */
enum { TL_EFF_ALONE_NS = 20000000 };
bool tl_eff_gate_is_open(uint64_t now);     /* lock held */
uint64_t tl_eff_gate_wait_ns(uint64_t now); /* how long to wait before asking again; lock held */
bool tl_eff_is_alone(void);                 /* nobody is above us; lock held */
uint64_t tl_eff_turnaround_ns(void);        /* budget for leaving the device; lock held */
/* predicted time that may be with the driver; lock held */
uint64_t tl_eff_run_ahead_ns(void);
/* Room in the run-ahead for that much predicted time of a stream.  Lock held. */
bool tl_eff_has_room(const struct tl_eff_stream *s, uint64_t predicted_ns);
bool tl_eff_take_rate(uint32_t blocks, uint64_t now); /* lock held */
/* Device addresses of the words above, and how many are in use; false if they cannot be mapped.
 * Executor only, lock not held. */
bool tl_eff_gate_words(CUdeviceptr words[TL_SHARE_WORDS], uint32_t *n, uint32_t epoch);
/* A context has gone, and perhaps what was registered in it. */
void tl_eff_gate_forget(void);

/* --- what is launched --- */
/* A launch on the device whose end is watched for. */
struct tl_eff_piece {
    struct tl_eff_piece *next;
    struct tl_eff_stream *stream;
    /* the kernel that it is a piece of; NULL for a mark behind whole kernels */
    struct tl_eff_item *item;
    struct tl_eff_kernel *kernel; /* of a single whole one that is measured, or NULL */
    struct tl_eff_profile *profile;
    struct tl_eff_launch shape; /* of that one: grid and so on */
    CUevent begin, end;
    _Atomic uint32_t told; /* its host function has run */
    _Atomic uint64_t told_ns;
    bool is_over;     /* seen by the executor */
    bool is_lost;     /* it was refused, or the context failed: its host function will not run */
    CUresult refusal; /* of the launch itself */
    uint32_t n_kernels;
    uint32_t first, blocks;
    uint32_t words_epoch;
    uint64_t predicted_ns, launched_ns;
    /* of the kernel that it was launched behind, or NULL: a reference */
    struct tl_eff_control *in_front;
};

/* A counter on the device and what it will say when all is done. */
struct tl_eff_control {
    struct tl_eff_control *next;
    _Atomic uint64_t *word; /* low half: expected, high half: the counter */
    CUdeviceptr device;     /* its address for kernels */
    /* its kernel, and the piece behind that asks it: with a new use it would say stop */
    uint32_t refs;
};

/* --- runtime/effort/supply.c --- */
/* Makes the context fit for pieces, once; false if it cannot be.  Executor only, lock not held,
 * context current. */
bool tl_eff_prepare(struct tl_eff_context *c);
CUevent tl_eff_take_event(struct tl_eff_context *c); /* NULL if there is none */
void tl_eff_give_event(struct tl_eff_context *c, CUevent e);
/* When an event was done, by CLOCK_MONOTONIC; 0 if that cannot be told.  Executor only, lock not
 * held, context current. */
uint64_t tl_eff_time_of_event(struct tl_eff_context *c, CUevent e);
/* NULL if all are in use; lock held */
struct tl_eff_control *tl_eff_take_control(struct tl_eff_context *c);
/* a reference; NULL is fine; lock held */
void tl_eff_give_control(struct tl_eff_context *c, struct tl_eff_control *k);

/* --- runtime/effort/cap.c --- */
/* Starts the launch whole on so many SMs, in its place in the stream; on all of them where that
 * cannot be.  Executor only, lock not held, context current. */
CUresult tl_eff_launch_capped(struct tl_eff_stream *s, const struct tl_eff_launch *l, uint32_t sms);
/* The job's stream goes: what stands beside it is kept for another.  Lock held. */
void tl_eff_cap_leave(struct tl_eff_stream *s);
/* The job gives up a primary context: ours stand on it.  Lock not held. */
void tl_eff_caps_free(CUcontext handle);

/* --- runtime/effort/pieces.c --- */
/* Brings the kernel at `item` forward: lock held, given up meanwhile.  True if something
 * changed. */
bool tl_eff_kernel_advance(struct tl_eff_stream *s, struct tl_eff_item *item, uint64_t now);
/* All of it is done, or failed.  Lock held. */
void tl_eff_finish_kernel(struct tl_eff_stream *s, struct tl_eff_item *item, CUresult result);
/* How long it could have begun earlier: since it was asked for and all in front of it was
 * submitted. */
uint64_t tl_eff_stood_ready(const struct tl_eff_launch *l, uint64_t began_ns);

/* --- runtime/effort/next.c --- */
/* The kernel has come to the head of its stream.  Lock held. */
void tl_eff_comes_next(const struct tl_eff_context *c, struct tl_eff_launch *l, uint64_t now);

/* --- runtime/effort/flight.c --- */
/* A launch on its way, NULL if there is no memory; and what follows once it is made.  Lock held. */
struct tl_eff_piece *tl_eff_make_piece(struct tl_eff_stream *s);
void tl_eff_add_flying(struct tl_eff_piece *p);
/* Puts event and host function behind what was launched.  Executor only; lock not held. */
CUresult tl_eff_watch(struct tl_eff_piece *p);
/* Looks at what has come back.  With `ask`, the driver is asked as well.  Lock held, given up
 * meanwhile.  True if something did. */
bool tl_eff_collect(bool ask);
/* A whole kernel was launched: it is accounted for.  Lock held. */
void tl_eff_unmarked(struct tl_eff_stream *s, uint64_t predicted_ns, uint64_t now);
/* Everything in the stream up to `n` unmarked kernels is known to be over.  Lock held. */
void tl_eff_unmark(struct tl_eff_stream *s, uint32_t n, uint64_t ns);
/* Puts a mark behind what was launched.  Lock held, given up meanwhile. */
void tl_eff_mark(struct tl_eff_stream *s);
/* Between these two no mark is put into the stream.  Lock held. */
void tl_eff_marks_off(struct tl_eff_stream *s);
void tl_eff_marks_on(struct tl_eff_stream *s);
/* Launches a whole kernel and watches it to learn its time.  Lock held, given up meanwhile. */
CUresult tl_eff_launch_measured(struct tl_eff_stream *s, const struct tl_eff_launch *l);
/* Tells pieces to leave if the grant or the words ask for it, and notes stops.  Lock held. */
void tl_eff_kick(void);
void tl_eff_tell_word(void); /* our own word follows what is in flight; lock held */

/* --- runtime/effort/executor.c --- */
void tl_eff_ring(void);
int tl_eff_executor_start(void); /* if it does not run yet; lock held */

/* --- hooks, per file, each ended by a NULL name --- */
extern const struct tl_hook tl_eff_call_hooks[], tl_eff_copy_hooks[], tl_eff_event_hooks[],
    tl_eff_sync_hooks[], tl_eff_kernel_hooks[], tl_eff_graph_hooks[];

#endif
