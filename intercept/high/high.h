/* The path of jobs that never give way.  Every piece of work is the original call to the real
 * driver; around it stand a few stores:
 *
 *     page.issued + 1 ──► real call ──► stream.submitted + 1                    every launch, copy, memset, graph
 *     a wait of the job returns, or the watcher finds the stream idle
 *              ──► stream.completed = what was submitted before ──► page.completed + the difference
 *
 * So page.issued differs from page.completed exactly while work may be on the device, which is what
 * every lower level looks at. `issued` grows before the driver is called, so that lower levels
 * leave early; `submitted` grows behind it, so that a wait never vouches for work that another
 * thread is only about to submit.  Work that is recorded into a graph is no work; launching the
 * graph is. */
#ifndef TALLY_INTERCEPT_HIGH_HIGH_H
#define TALLY_INTERCEPT_HIGH_HIGH_H

#include "intercept/capture/capture.h"
#include "tally/counts.h"
#include "tally/lock.h"

/* Guards what the watcher asks the driver against streams and contexts that go and captures that
 * begin.  Recursive. */
extern struct tl_mutex tl_watch_mutex;

/* A GPU that the job uses, and its line to tallyd there. */
struct tl_seat {
    struct tl_client *client;
    struct tl_client_page *page;
    _Atomic uint64_t burst_ns; /* when its burst began, 0 between bursts */
};
enum { TL_SEATS = 16 };
extern struct tl_seat tl_seats[TL_SEATS]; /* the first is there before the hooks are in place */
extern _Atomic uint32_t tl_n_seats;

enum tl_stream_kind {
    TL_STREAM_ORDINARY,
    TL_STREAM_LEGACY, /* the default stream of a context */
    /* the default stream of a context and a thread: only that thread can name it */
    TL_STREAM_PER_THREAD,
};

/* A stream's counters.  Never freed: a new stream with the same handle goes on where the old one
 * was. */
struct tl_stream {
    _Alignas(64) _Atomic uint32_t submitted; /* pieces of work that the driver has accepted */
    _Atomic uint32_t completed;              /* pieces that are known to be done */
    /* threads that wait for it in the driver: they will tell */
    _Atomic uint32_t waiters;
    _Atomic bool is_gone; /* destroyed, or its context was */
    /* where it is; the watcher asks while a stream is described anew */
    struct tl_seat *_Atomic seat;
    struct tl_counts counts; /* kernels, and their blocks */
    enum tl_stream_kind kind;
    uint32_t number; /* in the timeline */
    CUcontext ctx;
    CUstream handle;                              /* as the watcher names it */
    bool is_origin TL_GUARDED_BY(tl_watch_mutex); /* of a stream capture */
    struct tl_stream *next;
};

/* What a thread keeps of its last calls. */
struct tl_high_thread {
    uintptr_t handle; /* the last ordinary stream */
    struct tl_stream *stream;
    struct tl_stream *defaults[2]; /* of its current context: legacy, per-thread; NULL: ask */
    int32_t until_sample;          /* launches until the next that may be measured */
    uint32_t random;
    /* Where it has told of a burst, by that number, whose first piece is on its way; or NULL. */
    struct tl_seat *told_at;
    uint32_t told;
};
extern TL_THREAD struct tl_high_thread tl_high_thread;

extern _Atomic uint32_t tl_high_captures; /* streams that are being captured */
extern const struct tl_hook tl_high_launch_hooks[], tl_high_copy_hooks[], tl_high_wait_hooks[],
    tl_high_context_hooks[];

/* Makes this process a job that never gives way. */
void tl_high_start(void);
void tl_high_forked(void);
void tl_high_stop(void); /* from an exit handler: no more calls to the driver of our own */

/* --- intercept/high/stream.c --- */
/* the slow way; NULL only without memory */
struct tl_stream *tl_stream_find(CUstream stream, bool is_per_thread);
struct tl_stream *tl_stream_first(void); /* of all */
bool tl_stream_is_capturing(CUstream stream, bool is_per_thread);
/* What was submitted up to `upto` is done. */
void tl_stream_complete(struct tl_stream *s, uint32_t upto);
void tl_stream_gone(struct tl_stream *s);
void tl_stream_forget_context(void); /* the thread's current context may be another now */
/* A burst begins: work is issued on a GPU while nothing was in flight there. */
void tl_high_burst(struct tl_seat *seat);
/* Behind the piece that began it, which was counted by an atomic addition. */
void tl_high_told(void);
/* One piece that the driver refused. */
void tl_high_refused(struct tl_stream *s);

static inline uint32_t tl_stream_submitted(struct tl_stream *s)
{
    return s != NULL ? atomic_load_explicit(&s->submitted, memory_order_acquire) : 0;
}

static inline bool tl_stream_is_busy(struct tl_stream *s)
{
    return atomic_load_explicit(&s->submitted, memory_order_acquire) !=
           atomic_load_explicit(&s->completed, memory_order_acquire);
}

static inline struct tl_stream *tl_stream_of(CUstream stream, bool is_per_thread)
{
    uintptr_t handle = (uintptr_t)stream;
    struct tl_high_thread *t = &tl_high_thread;
    struct tl_stream *s;
    if (handle > (uintptr_t)CU_STREAM_PER_THREAD)
        s = t->handle == handle ? t->stream : NULL;
    else
        s = t->defaults[handle == (uintptr_t)CU_STREAM_PER_THREAD ||
                        (handle == 0 && is_per_thread)];
    if (s == NULL || atomic_load_explicit(&s->is_gone, memory_order_relaxed))
        s = tl_stream_find(stream, is_per_thread);
    return s;
}

/* Before a piece of work goes to the driver.  NULL if it is none: it is being captured. */
static inline struct tl_stream *tl_high_begin(CUstream stream, bool is_per_thread)
{
    if (__builtin_expect(atomic_load_explicit(&tl_high_captures, memory_order_relaxed) != 0, 0) &&
        tl_stream_is_capturing(stream, is_per_thread))
        return NULL;
    struct tl_stream *s = tl_stream_of(stream, is_per_thread);
    if (s == NULL)
        return NULL;
    /* Sequentially consistent, as is the addition to `completed`: whichever of a begin and an end
     * comes second sees the other. */
    struct tl_client_page *page = s->seat->page;
    uint32_t issued = atomic_fetch_add(&page->issued, 1);
    if (issued == atomic_load(&page->completed))
        tl_high_burst(s->seat);
    else if (__builtin_expect(!tl_share_is_told(page), 0))
        tl_client_began(s->seat->client);
    return s;
}

/* Behind it. */
static inline CUresult tl_high_end(struct tl_stream *s, CUresult r)
{
    if (__builtin_expect(s != NULL, 1)) {
        if (__builtin_expect(r == CUDA_SUCCESS, 1))
            atomic_fetch_add_explicit(&s->submitted, 1, memory_order_release);
        else
            tl_high_refused(s);
        if (__builtin_expect(tl_high_thread.told_at != NULL, 0))
            tl_high_told();
    }
    return r;
}

/* --- intercept/high/seat.c --- */
void tl_seats_start(void);
void tl_seats_forked(void);
/* The seat of a context that gets its first work; may wait a moment for tallyd.  Never NULL. */
struct tl_seat *tl_seat_of(CUcontext ctx);
/* Whether work is in flight at a seat other than `but`, or at any. */
bool tl_seats_are_busy(const struct tl_seat *but);
/* Pieces of work, at all of them. */
uint32_t tl_seats_in_flight(void);
/* The best-effort part takes over: from now on the job's own client stands for all GPUs. */
void tl_seats_leave(void);

/* --- intercept/high/launch.c, intercept/high/wait.c --- */
void tl_launch_forked(void);
void tl_wait_forked(void);

/* --- intercept/high/watch.c --- */
void tl_watch_lock(void) TL_ACQUIRE(tl_watch_mutex);
void tl_watch_unlock(void) TL_RELEASE(tl_watch_mutex);
void tl_watch_start(void);
void tl_watch_wake(void); /* work after a long idle time */
void tl_watch_forked(void);
void tl_watch_stop(void);
/* Work of a stream that goes: an event in its place. */
void tl_watch_orphan(struct tl_stream *s, CUstream stream) TL_REQUIRES(tl_watch_mutex);

/* --- intercept/high/sample.c --- */
/* A launch between two events. */
struct tl_sample;
/* Whether this launch is measured: NULL, or a sample whose first event is in the stream. */
struct tl_sample *tl_sample_begin(struct tl_stream *s, CUstream stream, bool is_per_thread,
                                  struct tl_record_kernel *k);
void tl_sample_end(struct tl_sample *sample, CUstream stream, bool is_per_thread,
                   bool was_launched);
/* Reads what is done; whether some are not. */
bool tl_sample_collect(void) TL_REQUIRES(tl_watch_mutex);
void tl_sample_context_gone(CUcontext ctx) TL_REQUIRES(tl_watch_mutex);
void tl_sample_forked(void);

/* --- intercept/high/request.c --- */
void tl_request_burst(struct tl_seat *s); /* a burst begins there */
void tl_request_idle(struct tl_seat *s);  /* nothing is in flight there any more */
void tl_request_waited(void);             /* the job has waited, perhaps for the last of its work */
void tl_request_publish(void);            /* brings counters that tallyd samples up to date */
uint64_t tl_request_burst_began(void);    /* 0 between bursts */
void tl_request_found_done(uint64_t now); /* the watcher did, before the job waited */
bool tl_request_was_watcher_useful(void); /* since it was asked last */
void tl_request_mark(uint64_t now);       /* the program says that a request begins, and ends */
void tl_request_unmark(void);
void tl_request_forked(void);

#endif
