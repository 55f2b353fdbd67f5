/* The watcher: a thread that finds out that work is done when the job does not wait for it.
 *
 * It asks the driver whether a stream is idle; an answer proves what was submitted before the
 * question.  It asks about streams that nobody waits for, often where that has turned out useful
 * and else seldom, and about none that is being captured.  When nothing is in flight for a while it
 * sleeps until the next burst wakes it; so a job that keeps launching never makes a system call for
 * it.
 *
 * The default stream of a thread can only be named by that thread: there an event that covers the
 * whole context takes the place of the question, and where the driver has no such event, a wait for
 * the context. */
#include "intercept/high/high.h"
#include "tally/clock.h"
#include "tally/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tally/lock.h"

/* Of a job that does not wait for its work in time, the watcher looks often: after an eighth of
 * what the burst has lasted. */
#define SHORTEST_NS 100000u
#define LONGEST_NS 1000000u
/* Of one that does, seldom: it is only there for the case that this changes. */
#define SELDOM_NS 2000000u
#define MOST_SELDOM_NS 8000000u
#define IDLE_NS 16000000u  /* then it sleeps until it is woken */
#define STOP_NS 100000000u /* an exit waits no longer for an answer of the driver */
enum { STACK_BYTES = 512 << 10, OFTEN_LOOKS = 64 };

/* An event that stands for a stream's work up to some point. */
struct marker {
    struct marker *next;
    CUevent event;
    CUcontext ctx;
    struct tl_stream *s;
    uint32_t upto;
};

struct tl_mutex tl_watch_mutex = TL_RECURSIVE_MUTEX_INITIALIZER;
static struct {
    struct marker *markers;
    bool is_stopped;
    bool has_no_context_event; /* the driver has no cuCtxRecordEvent, or only its name */
} watch TL_GUARDED_BY(tl_watch_mutex);
static _Atomic bool is_started;
static _Atomic uint32_t is_asleep; /* a futex */

TL_UNCHECKED void tl_watch_lock(void)
{
    tl_mutex_lock(&tl_watch_mutex);
}

TL_UNCHECKED void tl_watch_unlock(void)
{
    tl_mutex_unlock(&tl_watch_mutex);
}

/* At the end of the process.  False if the watcher waits for an answer of the driver that does not
 * come in time. */
static bool lock_in_time(void) TL_LOCK_CHECK(try_acquire_capability(true, tl_watch_mutex));
TL_UNCHECKED static bool lock_in_time(void)
{
    return tl_thread_lock_within(&tl_watch_mutex.m, STOP_NS) == 0;
}

/* --- markers --- */

/* An event behind what the stream has now.  False if there is none to be had. */
static bool add_marker(struct tl_stream *s, CUstream stream) TL_REQUIRES(tl_watch_mutex);
static bool add_marker(struct tl_stream *s, CUstream stream)
{
    struct marker *m = malloc(sizeof *m);
    if (m == NULL)
        return false;
    *m = (struct marker){
        .next = watch.markers, .ctx = s->ctx, .s = s, .upto = tl_stream_submitted(s)};
    if (TL_REAL(cuEventCreate)(&m->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        free(m);
        return false;
    }
    CUresult r = stream != CU_STREAM_PER_THREAD ? TL_REAL(cuEventRecord)(m->event, stream)
                                                : TL_REAL(cuCtxRecordEvent)(s->ctx, m->event);
    if (r != CUDA_SUCCESS) {
        watch.has_no_context_event |= r == CUDA_ERROR_NOT_SUPPORTED;
        TL_REAL(cuEventDestroy_v2)(m->event);
        free(m);
        return false;
    }
    watch.markers = m;
    return true;
}

void tl_watch_orphan(struct tl_stream *s, CUstream stream)
{
    CUcontext popped;
    bool is_pushed = TL_REAL(cuCtxPushCurrent_v2)(s->ctx) == CUDA_SUCCESS;
    if (!add_marker(s, stream))
        tl_stream_complete(s, tl_stream_submitted(s));
    if (is_pushed)
        TL_REAL(cuCtxPopCurrent_v2)(&popped);
}

static bool has_marker(const struct tl_stream *s) TL_REQUIRES(tl_watch_mutex);
static bool has_marker(const struct tl_stream *s)
{
    const struct marker *m = watch.markers;
    while (m != NULL && m->s != s)
        m = m->next;
    return m != NULL;
}

/* Whether some are left. */
static bool look_at_markers(void) TL_REQUIRES(tl_watch_mutex);
static bool look_at_markers(void)
{
    struct marker **at = &watch.markers;
    while (*at != NULL) {
        struct marker *m = *at;
        CUresult r = TL_REAL(cuCtxSetCurrent)(m->ctx);
        if (r == CUDA_SUCCESS)
            r = TL_REAL(cuEventQuery)(m->event);
        if (r == CUDA_ERROR_NOT_READY) {
            at = &m->next;
            continue;
        }
        tl_stream_complete(m->s, m->upto);
        TL_REAL(cuEventDestroy_v2)(m->event);
        *at = m->next;
        free(m);
    }
    return watch.markers != NULL;
}

/* --- looking --- */

static bool is_capture_error(CUresult r)
{
    return r >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           r <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* Whether a stream is still busy. */
static bool is_still_busy(struct tl_stream *s) TL_REQUIRES(tl_watch_mutex);
static bool is_still_busy(struct tl_stream *s)
{
    uint32_t upto = tl_stream_submitted(s);
    bool has_captures = atomic_load_explicit(&tl_high_captures, memory_order_relaxed) != 0;
    /* What asks a whole context makes captures in it invalid (cuCtxRecordEvent in cuda.h). */
    if (has_captures &&
        (s->kind == TL_STREAM_PER_THREAD || tl_stream_is_capturing(s->handle, false)))
        return true;
    if (TL_REAL(cuCtxSetCurrent)(s->ctx) != CUDA_SUCCESS) {
        tl_stream_complete(s, upto);
        return false;
    }
    if (s->kind == TL_STREAM_PER_THREAD) {
        if (!watch.has_no_context_event && !has_marker(s))
            add_marker(s, CU_STREAM_PER_THREAD);
        return true;
    }
    CUresult r = TL_REAL(cuStreamQuery)(s->handle);
    if (r == CUDA_ERROR_NOT_READY || is_capture_error(r))
        return true;
    /* Any other error is that of a context that is lost, and its work with it. */
    tl_stream_complete(s, upto);
    return false;
}

struct look {
    bool is_open;                 /* something is in flight, and nobody waits for it */
    bool has_ended;               /* something was found done */
    struct tl_stream *per_thread; /* one that only a wait for its context can tell about */
};

/* One look at all streams that nobody waits for, and at the markers. */
static struct look look(void) TL_REQUIRES(tl_watch_mutex);
static struct look look(void)
{
    struct look found = {0};
    for (struct tl_stream *s = tl_stream_first(); s != NULL; s = s->next) {
        if (!tl_stream_is_busy(s) || atomic_load_explicit(&s->is_gone, memory_order_acquire) ||
            atomic_load_explicit(&s->waiters, memory_order_acquire) != 0)
            continue;
        if (is_still_busy(s)) {
            found.is_open = true;
            if (s->kind == TL_STREAM_PER_THREAD && !has_marker(s))
                found.per_thread = s;
        } else {
            found.has_ended = true;
        }
    }
    if (look_at_markers())
        found.is_open = true;
    return found;
}

/* Waits for a whole context, without the lock: this may take as long as the job's work. */
static void wait_for_context(CUcontext ctx) TL_EXCLUDES(tl_watch_mutex);
static void wait_for_context(CUcontext ctx)
{
    struct {
        struct tl_stream *s;
        uint32_t upto;
    } seen[64];
    size_t n = 0;
    for (struct tl_stream *s = tl_stream_first(); s != NULL && n < sizeof seen / sizeof seen[0];
         s = s->next)
        if (s->ctx == ctx && tl_stream_is_busy(s)) {
            seen[n].s = s;
            seen[n++].upto = tl_stream_submitted(s);
        }
    CUresult r = TL_REAL(cuCtxSetCurrent)(ctx);
    if (r == CUDA_SUCCESS)
        r = TL_REAL(cuCtxSynchronize)();
    for (size_t i = 0; i < n && !is_capture_error(r); i++)
        tl_stream_complete(seen[i].s, seen[i].upto);
}

/* --- sleeping --- */

static void nap(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static void sleep_until_woken(void)
{
    atomic_store(&is_asleep, 1);
    /* A burst that began before it could see that is noticed here. */
    if (!tl_seats_are_busy(NULL))
        syscall(SYS_futex, &is_asleep, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
    atomic_store(&is_asleep, 0);
}

/* Whether `tally set` took the highest level away from the job. */
static bool is_lowered(uint32_t *seen)
{
    uint32_t changes = tl_client_changes(tl_job.client);
    if (changes == *seen)
        return false;
    *seen = changes;
    return tl_client_level(tl_job.client) < TL_LEVEL_HIGH;
}

/* How long to wait until the next look. */
static uint64_t pause_behind(const struct look *found, uint64_t now)
{
    static uint64_t seldom = SELDOM_NS; /* of this thread only */
    static int often;
    often = tl_request_was_watcher_useful() ? OFTEN_LOOKS : often - (often != 0);
    if (often == 0 || !found->is_open) {
        seldom = seldom * 2 > MOST_SELDOM_NS ? MOST_SELDOM_NS : seldom * 2;
        return often != 0 ? LONGEST_NS : seldom;
    }
    uint64_t begin = tl_request_burst_began(),
             part = begin != 0 && now > begin ? (now - begin) / 8 : 0;
    seldom = SELDOM_NS;
    return part < SHORTEST_NS ? SHORTEST_NS : part > LONGEST_NS ? LONGEST_NS : part;
}

/* The thread: looks, naps, and hands the job over to the best-effort part when its level is taken
 * away. */
static void *work(void *unused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    uint64_t idle_since = 0;
    uint32_t changes = tl_client_changes(tl_job.client);
    bool is_leaving = false;
    TL_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    nap(SHORTEST_NS);
    for (;;) {
        if (!is_leaving && is_lowered(&changes)) {
            /* From here on work is not counted; what was, is waited for.  Then the best-effort part
             * takes over. */
            tl_driver_reset_hooks(false);
            is_leaving = true;
            nap(LONGEST_NS);
        }
        tl_watch_lock();
        if (watch.is_stopped)
            break;
        struct look found = look();
        bool has_samples = tl_sample_collect();
        tl_watch_unlock();
        uint64_t now = tl_record_now();
        if (found.has_ended)
            tl_request_found_done(now);
        if (found.per_thread != NULL &&
            atomic_load_explicit(&tl_high_captures, memory_order_relaxed) == 0 &&
            now - tl_request_burst_began() > LONGEST_NS)
            wait_for_context(found.per_thread->ctx);
        bool is_busy = tl_seats_are_busy(NULL);
        if (is_leaving && !is_busy) {
            tl_seats_leave();
            if (tl_job_lower())
                return unused;
            is_leaving = false;
        }
        if (is_busy || has_samples || found.is_open) {
            idle_since = 0;
        } else if (idle_since == 0) {
            idle_since = now;
        }
        tl_request_publish();
        if (idle_since != 0 && now - idle_since > IDLE_NS) {
            sleep_until_woken();
            idle_since = 0;
        }
        nap(is_leaving ? LONGEST_NS : pause_behind(&found, now));
    }
    tl_watch_unlock();
    return unused;
}

void tl_watch_start(void)
{
    static const struct tl_thread_kind kind = {.name = "tally-watch", .stack_bytes = STACK_BYTES};
    if (atomic_exchange(&is_started, true))
        return;
    if (tl_thread_start(NULL, &kind, work, NULL) < 0)
        tl_log(1, "no thread to watch the device with: lower levels see this job busy until it "
                  "waits for its work");
}

void tl_watch_wake(void)
{
    if (!atomic_load_explicit(&is_started, memory_order_relaxed))
        tl_watch_start();
    else if (atomic_load(&is_asleep) != 0 && atomic_exchange(&is_asleep, 0) != 0)
        syscall(SYS_futex, &is_asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void tl_watch_stop(void)
{
    if (!lock_in_time())
        return;
    if (atomic_load(&is_started) && !watch.is_stopped)
        look(); /* what is done by now need not look as if it were not */
    watch.is_stopped = true;
    tl_watch_unlock();
}

/* The child has one thread: there is nobody to lock out. */
TL_UNCHECKED void tl_watch_forked(void)
{
    struct tl_mutex unlocked = TL_RECURSIVE_MUTEX_INITIALIZER;
    tl_watch_mutex = unlocked;
    watch.markers = NULL; /* the parent's */
    watch.is_stopped = false;
    atomic_store(&is_started, false);
    atomic_store(&is_asleep, 0);
}
