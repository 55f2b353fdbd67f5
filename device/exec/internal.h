/* What the files of device/exec share: fibers, the engine that runs blocks on one worker, the
 * signals, and the shared device (device/exec/shared.h).
 *
 * Threads: an engine, its fibers and its units belong to one worker thread; only its signal handler
 * looks in as well.  A run (a launch under way) is shared by the workers; its fields say by what
 * they are guarded. */
#ifndef TALLY_DEVICE_EXEC_INTERNAL_H
#define TALLY_DEVICE_EXEC_INTERNAL_H

#include "device/exec/exec.h"
#include "device/exec/shared.h"
#include "tally/lock.h"

#include <signal.h>

#if defined(__SANITIZE_ADDRESS__)
#define TL_EXEC_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define TL_EXEC_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TL_EXEC_ASAN 1
#elif __has_feature(thread_sanitizer)
#define TL_EXEC_TSAN 1
#endif
#endif
#ifndef TL_EXEC_ASAN
#define TL_EXEC_ASAN 0
#endif
#ifndef TL_EXEC_TSAN
#define TL_EXEC_TSAN 0
#endif

#define TL_EXEC_BARRIERS 16
#define TL_EXEC_MAX_WARPS 32
#define TL_EXEC_MAX_FIBERS 1024
#define TL_EXEC_NO_KEY UINT64_MAX
#define TL_EXEC_MAX_SHARED (1U << 20) /* static and dynamic together; a GPU has less */

/* Was this thread killed, or does it end, so that nothing of its program will be run any more?  Or
 * is it stopped (SIGSTOP, Ctrl-Z, a debugger)?  `is_seen` tells that its numbers are of our
 * namespace: then it has ended if there is no such thread; else nothing is known of it. */
enum tl__task { TL__TASK_GOES_ON, TL__TASK_STOPPED, TL__TASK_DYING };
enum tl__task tl__task_state(uint32_t pid, uint32_t tid, bool is_seen);
/* Which namespace of processes this one is in; 0 if that is not known. */
uint32_t tl__pid_namespace(void);

/* --- fibers ----------------------------------------------------------------------------------- */

/* A stack that can be left and entered again, on the thread that made it only. */
struct tl__fiber {
    void *sp; /* where it was left */
    struct tl__fiber *next;
    void (*entry)(struct tl__fiber *self); /* never returns */
    /* guard first, then the stack; NULL for a thread's own stack */
    uint8_t *map;
    size_t map_bytes, guard_bytes;
    uint32_t stagger_bytes;
    /* For whom it works. */
    struct tl__unit *unit;
    uint32_t warp;
    uint32_t lanes;        /* that it runs: a whole warp, or one of its threads */
    uint32_t argument;     /* what tally_warp is given for that */
    uint32_t waiting;      /* lanes that wait at a barrier */
    uint32_t result;       /* of that barrier's reduction */
    void *sanitizer;       /* TSan's fiber, or ASan's fake stack */
    const void *stack_low; /* ASan only */
    size_t stack_bytes;
};

/* The stack is `stack_bytes` above a guard; `number` staggers its top so that neighbours do not
 * share cache sets. -ENOMEM. */
int tl__fiber_init(struct tl__fiber *f, size_t stack_bytes, uint32_t number,
                   void (*entry)(struct tl__fiber *));
static inline size_t tl__fiber_stack_bytes(const struct tl__fiber *f)
{
    return f->map_bytes - f->guard_bytes - f->stagger_bytes;
}
void tl__fiber_reset(struct tl__fiber *f); /* forgets where it was: it begins at `entry` again */
void tl__fiber_finish(struct tl__fiber *f);
void tl__fiber_init_thread(struct tl__fiber *f); /* the calling thread's own stack */
void tl__fiber_finish_thread(struct tl__fiber *f);
/* Leaves `from`, which is running, for `to`. */
void tl__fiber_switch(struct tl__fiber *from, struct tl__fiber *to);
/* The switch alone, without telling sanitizers.  Inlined, and ending with a jump through a
 * register: a `call` that no `ret` answers, or a `ret` that no `call` asked for, puts the
 * processor's return stack out of step and costs more than everything else here.  Registers are the
 * compiler's to save, as far as it needs them; vector registers were saved by whoever called us. */
static inline __attribute__((always_inline)) void tl__fiber_hop(struct tl__fiber *from,
                                                                struct tl__fiber *to)
{
    void **save = &from->sp;
    void *sp = to->sp;
    __asm__ volatile("leaq -128(%%rsp), %%rsp\n\t" /* the red zone is the compiler's */
                     "pushq %%rbp\n\t"
                     "leaq 1f(%%rip), %%rax\n\t"
                     "pushq %%rax\n\t"
                     "movq %%rsp, (%0)\n\t"
                     "movq %1, %%rsp\n\t"
                     "popq %%rcx\n\t"
                     "jmp *%%rcx\n"
                     "1:\n\t"
                     "popq %%rbp\n\t"
                     "leaq 128(%%rsp), %%rsp"
                     : "+D"(save), "+S"(sp)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                       "r15", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                       "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15");
}
/* The same for good: `from` must be reset before it can be entered again.  May be called on any
 * stack, such as a signal's. */
void tl__fiber_leave(struct tl__fiber *to) __attribute__((noreturn));
/* Whether this thread is between two fibers, where a sanitizer must not be interrupted; the signal
 * is then raised again behind it.  Safe in a handler. */
#if TL_EXEC_ASAN
bool tl__fiber_defers(int number);
#else
static inline bool tl__fiber_defers(int number)
{
    (void)number;
    return false;
}
#endif
bool tl__fiber_is_guard(const struct tl__fiber *f, const void *address);

/* --- objects ---------------------------------------------------------------------------------- */

struct tl_exec_object {
    atomic_uint references;
    const struct tl_dev_info *info;
    tl_exec_warp_fn warp;
    tl_exec_blocks_fn blocks; /* NULL: run warps */
    void *handle;             /* of dlopen, or NULL */
    uint32_t n_threads, n_warps;
    uint32_t n_fibers;   /* per block: warps, or threads where lanes wait apart */
    uint32_t last_lanes; /* which lanes of the last warp exist */
};

/* --- a launch under way ----------------------------------------------------------------------- */

struct tl_exec_run {
    struct tl_exec_device *device;
    struct tl_exec_launch *launch;
    /* What a worker that comes in runs: `first`, or what has taken its place since. */
    struct tl_exec_object *_Atomic object;
    struct tl_exec_object *first;
    struct tl_exec_partition *partition; /* or NULL */
    const uint64_t *variables;
    uint32_t grid[3];
    uint32_t dynamic_shared_bytes;
    uint64_t total; /* blocks */
    uint64_t gridid;
    uint64_t workspace[8];       /* zeroed: grid-wide barriers of cooperative kernels */
    uint64_t key;                /* order among all grids of the device: smaller first */
    _Atomic uint64_t next_block; /* first block not yet claimed */
    atomic_bool stop;            /* a fault: claim no more */
    atomic_bool spins;           /* blocks wait for each other in loops: claim them one by one */
    atomic_bool cancelled;       /* tear down what runs */
    _Atomic uint64_t begin_ns;
    atomic_uint chunk; /* blocks per claim, learnt */
    /* Guarded by the device's lock: */
    struct tl_exec_run *next_run, *prev_run; /* all runs */
    struct tl_exec_run *next_pending;
    uint32_t active;     /* workers inside */
    uint32_t param_room; /* bytes that `params` has */
    bool is_pending;     /* in the list of runs with unclaimed blocks */
    /* the same, but in its partition's list: the partition has as many workers as it may */
    bool is_held;
    bool has_fault;
    _Alignas(64) uint8_t params[];
};

/* --- the engine: blocks on one worker --------------------------------------------------------- */

struct tl__barrier {
    struct tl__fiber *first, *last; /* waiting */
    uint32_t n_waiting;
    uint32_t n;        /* threads arrived */
    uint32_t expected; /* threads, 0 for all */
    /* anything below or `expected` is in use: not the usual barrier of all threads */
    bool is_special;
    bool has_votes;
    bool has_masks; /* some warp came in parts: `arrived` is valid */
    uint32_t popc, all, any;
    uint32_t filled; /* warps whose missing lanes were counted, if has_masks */
    uint32_t arrived[TL_EXEC_MAX_WARPS];
};

/* One block in execution with one fiber per warp, or a range of blocks of a kernel without barriers
 * with one fiber. */
struct tl__unit {
    struct tl_dev_frame frame;
    struct tl__engine *engine;
    struct tl__unit *next;
    uint64_t reached_ns;   /* when what was read over the bus is there; 0: nothing is on its way */
    uint32_t first, count; /* blocks claimed and not yet begun */
    uint32_t n_fibers;     /* in use; live_fibers of them have not finished */
    uint32_t live_fibers;
    uint32_t live_threads;
    uint32_t active_barriers;
    uint8_t n_live[TL_EXEC_MAX_WARPS]; /* how many lanes `live` has */
    uint32_t live[TL_EXEC_MAX_WARPS];  /* lanes that exist and had not exited when last looked */
    struct tl__barrier barriers[TL_EXEC_BARRIERS];
    struct tl__fiber *fibers[TL_EXEC_MAX_FIBERS];
    uint32_t n_made; /* fibers that have a stack */
    bool is_range;   /* fiber 0 runs ranges of blocks */
    uint8_t *shared_map, *local_map;
    size_t shared_bytes, local_bytes; /* usable */
};

struct tl__engine {
    struct tl__fiber main;
    struct tl__fiber *current;      /* NULL: main */
    struct tl__fiber *first, *last; /* ready to run */
    uint32_t n_ready;
    uint32_t idle_yields; /* since something moved */
    uint32_t long_yields; /* the same, but that passing a barrier is no move */
    bool wants_more;      /* all fibers only wait in loops: begin another block */
    /* claim even if somebody else should run: what waits, waits for this block */
    bool is_greedy;
    struct tl_exec_run *run;
    const struct tl_exec_object *object; /* the run's, when the worker came in */
    struct tl__unit *units, *free_units; /* at work; kept for later */
    uint32_t n_units;
    uint32_t n_lodged; /* blocks of other launches that wait on this SM: see `lend` */
    uint32_t n_futile; /* how often all blocks were found spinning and none could be begun */
    uint32_t slot;
    uint64_t claimed_ns; /* when the last chunk was claimed, for learning its size */
    uint32_t claimed;
    struct tl_exec_fault fault;
    /* Written by the thread, read by its signal handler: */
    volatile sig_atomic_t in_kernel;
    volatile sig_atomic_t must_die; /* the handler came while not in kernel code */
    struct tl__exec_env *env;
    struct tl_buf scratch;
    void *alternate_stack;
    uint32_t n_stagger;
};

/* What an engine asks of whoever owns it; tests have their own. */
struct tl__exec_env {
    const struct tl_dev_calls *calls;
    uint32_t n_slots;
    uint32_t n_told;    /* SMs, as kernels are told: at least as many */
    uint32_t max_units; /* blocks resident on one worker at most */
    /* A block that was claimed and not begun would be lost to the other workers, who might have
     * room for it when this one has none. */
    bool claims_singly;
    /* Should the engine stop claiming for now?  Called between chunks. */
    bool (*must_stop)(struct tl__engine *e, struct tl_exec_run *run);
    /* The last block has just been claimed. */
    void (*drained)(struct tl__engine *e, struct tl_exec_run *run);
    /* All blocks have been spinning for a while and there is no other of their launch to begin:
     * others may have the SM meanwhile, those who have lent it and have their blocks here, and with
     * room for more also who would begin some.  Returns when it is the engine's again.  NULL:
     * nobody else is there. */
    void (*lend)(struct tl__engine *e, bool has_room);
    struct tl_exec_device *device;
    /* NULL: accesses to host memory are not looked at */
    bool (*is_host)(const void *address);
    uint64_t reach_ns; /* what is read there takes so long to come */
};

/* by the thread that runs it; -ENOMEM */
int tl__engine_init(struct tl__engine *e, struct tl__exec_env *env);
void tl__engine_finish(struct tl__engine *e);
/* Runs blocks of `run` until there are none or must_stop.  0, or -EFAULT with e->fault filled, or
 * -ENOMEM (also a fault). */
int tl__engine_run(struct tl__engine *e, struct tl_exec_run *run);
/* Ends what runs, from any code or signal handler on the engine's thread. */
void tl__engine_fault(struct tl__engine *e, uint32_t warp, uint32_t what, uint64_t detail,
                      const char *format, ...) __attribute__((noreturn, format(printf, 5, 6)));
struct tl__engine *tl__engine_of(struct tl_dev_frame *f);

/* Between these, what happens is the process's doing and not the kernel's.  Leaving dies if the
 * watchdog came meanwhile. */
static inline void tl__engine_enter_call(struct tl__engine *e)
{
    e->in_kernel = 0;
}
void tl__engine_die(struct tl__engine *e) __attribute__((noreturn));
static inline void tl__engine_leave_call(struct tl__engine *e)
{
    e->in_kernel = 1;
    if (__builtin_expect(e->must_die != 0, 0))
        tl__engine_die(e);
}

uint32_t tl__call_barrier(struct tl_dev_frame *f, uint32_t warp, uint32_t kind, uint32_t id,
                          uint32_t count, uint32_t arriving, uint32_t votes);
void tl__call_yield(struct tl_dev_frame *f, uint32_t warp);
void tl__call_sleep(struct tl_dev_frame *f, uint32_t warp, uint32_t ns);
void tl__call_reach(struct tl_dev_frame *f, const void *address, uint32_t kind);
void tl__call_settle(struct tl_dev_frame *f);

/* --- tensor.c, tensor_map.c, reduce.c --------------------------------------------------------- */

/* For functions that follow kernels' pointers: what is wrong there is the kernel's fault, and a
 * signal tells; sanitizers would end the process. */
#define TL__KERNEL_MEMORY __attribute__((noinline, no_sanitize_address, no_sanitize_thread))

/* To or from a kernel's memory. */
void tl__copy_kernel(void *to, const void *from, size_t n);
uint64_t tl__call_tensor(struct tl_dev_frame *f, uint32_t warp, const void *map, uint32_t what,
                         const int32_t *coords, uint8_t *shared);
void tl__call_tensor_replace(struct tl_dev_frame *f, uint32_t warp, void *map, uint32_t field,
                             uint64_t value);
/* Whether there is that reduction (enum tl_tensor_copy) of such elements. */
bool tl__reduces(uint32_t what, uint32_t type);
/* Combines n elements of a kernel's memory with others, each atomically. */
void tl__reduce(uint32_t what, uint32_t type, void *to, const void *from, uint32_t n);
/* The other calls, and the table of all; `heap` and `out` belong to the device. */
extern const struct tl_dev_calls tl__exec_calls;

/* --- printf, malloc --------------------------------------------------------------------------- */

struct tl__out {
    struct tl_mutex lock;
    struct tl_buf text;
    bool is_error; /* for stderr: failed assertions */
};
void tl__out_init(struct tl__out *o, bool is_error);
void tl__out_finish(struct tl__out *o);
void tl__out_flush(struct tl__out *o);

struct tl__heap;
/* a power of two is made of it; NULL if there is no memory */
struct tl__heap *tl__heap_create(uint64_t bytes);
void tl__heap_destroy(struct tl__heap *h);
void *tl__heap_alloc(struct tl__heap *h, uint64_t bytes); /* NULL as malloc */
/* -EINVAL if p is nothing that can be freed */
int tl__heap_free(struct tl__heap *h, void *p);

struct tl__out *tl__device_out(struct tl_exec_device *d, bool is_error);
/* made at first use; NULL if there is no memory */
struct tl__heap *tl__device_heap(struct tl_exec_device *d);

/* --- signals ---------------------------------------------------------------------------------- */

/* Installs the process's handlers.  -errno. */
int tl__fault_install(void);
/* Around kernels: moves our handlers in front of those that the program has installed since, and
 * afterwards back. */
void tl__fault_enter(void);
void tl__fault_leave(void);
void tl__fault_forget(void); /* in a forked child: no worker is inside */
/* The calling thread runs `e` from now on (NULL: nothing): faults inside kernel code are its
 * faults. */
int tl__fault_attach(struct tl__engine *e);
/* An access to a page that is there but not accessible is shown to `f` first; true: it is
 * accessible now.  In a handler, on the thread that faulted, which the watchdog leaves alone
 * meanwhile. */
void tl__fault_pages(bool (*f)(const void *address));
int tl__fault_signal(void); /* the signal that makes a worker look at must_die / cancelled */

#endif
