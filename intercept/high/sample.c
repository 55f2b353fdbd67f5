/* Measured launches: one in many stands between two events, which are read when they are done and
 * never waited for.
 *
 * How many: what it costs the job to put the events into the stream is measured too, and stays
 * under a quarter of a percent of the time that its launches run, and of its time altogether.
 * Strides are random, so that no rhythm of the job is preferred.
 *
 * Events know durations only.  When a launch began, on the host's clock, follows from a base event
 * whose time on that clock is known to within the time it took to put it into an idle stream. */
#include "intercept/high/high.h"

#include <stdlib.h>

#include "tally/check.h"
#include "tally/lock.h"

enum {
    SAMPLES = 128,    /* at a time */
    COST_SHARE = 400, /* one part in so many of the job's time */
    FIRST_STRIDE = 4, /* as long as nothing is known */
    MAX_STRIDE = 1 << 16,
    MAX_OPEN = 4, /* not done yet: then the rest need not be asked about either */
};
#define REBASE_NS 2000000000u /* clocks drift, and durations lose precision */
/* for the base event; longer, and the device is too busy to tell the time */
#define BASE_PATIENCE_NS 1000000u
#define FIRST_COST_NS 2000u
/* what takes longer was not the events, but that the thread had to wait for a processor */
#define LARGEST_COST_NS 20000u

enum state { FREE, TAKEN, PENDING };

struct tl_sample {
    _Atomic int state;
    CUcontext ctx; /* of the events */
    CUevent begin, end;
    struct tl_record_kernel *k;
    uint32_t stream;
    uint64_t called_ns; /* when the job called */
    uint64_t cost_ns;
};

static struct tl_sample samples[SAMPLES];
static _Atomic uint64_t started_ns, spent_ns, cost_ns = FIRST_COST_NS;
static _Atomic uint64_t typical_ns; /* how long launches run; written by read_sample only */

static struct {
    CUcontext ctx;
    CUstream stream;
    CUevent event;
    /* when the event was, 0 if unknown; when that could not be found out */
    uint64_t host_ns, failed_ns;
} base TL_GUARDED_BY(tl_watch_mutex);

/* --- choosing --- */

static uint32_t next_random(struct tl_high_thread *t)
{
    uint32_t x = t->random != 0 ? t->random : (uint32_t)(uintptr_t)t | 1;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    return t->random = x;
}

/* Sets how many launches pass until the next sample: so many that their time on the device is worth
 * its cost. */
static void set_stride(struct tl_high_thread *t)
{
    uint64_t cost = atomic_load_explicit(&cost_ns, memory_order_relaxed) * COST_SHARE, stride;
    uint64_t ran = atomic_load_explicit(&typical_ns, memory_order_relaxed);
    stride = ran != 0 ? cost / ran : FIRST_STRIDE;
    if (stride > MAX_STRIDE)
        stride = MAX_STRIDE;
    t->until_sample = (int32_t)(stride / 2 + next_random(t) % (stride + 1));
}

static bool is_affordable(uint64_t now)
{
    uint64_t none = 0;
    atomic_compare_exchange_strong(&started_ns, &none, now);
    return atomic_load_explicit(&spent_ns, memory_order_relaxed) * COST_SHARE <=
           now - atomic_load(&started_ns);
}

/* A free sample with events of this context; those without events are as good. */
static struct tl_sample *take(CUcontext ctx)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        struct tl_sample *sample = &samples[i];
        int is_free = FREE;
        if (atomic_load_explicit(&sample->state, memory_order_relaxed) != FREE ||
            !atomic_compare_exchange_strong(&sample->state, &is_free, TAKEN))
            continue;
        if (sample->begin == NULL || sample->ctx == ctx)
            return sample;
        atomic_store(&sample->state, FREE);
    }
    return NULL;
}

static bool has_events(struct tl_sample *sample, CUcontext ctx)
{
    if (sample->begin != NULL)
        return true;
    if (TL_REAL(cuEventCreate)(&sample->begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        sample->begin = NULL;
        return false;
    }
    if (TL_REAL(cuEventCreate)(&sample->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        TL_REAL(cuEventDestroy_v2)(sample->begin);
        sample->begin = NULL;
        return false;
    }
    sample->ctx = ctx;
    return true;
}

static bool record(CUevent event, CUstream stream, bool is_per_thread)
{
    return (is_per_thread ? TL_REAL(cuEventRecord_ptsz)(event, stream)
                          : TL_REAL(cuEventRecord)(event, stream)) == CUDA_SUCCESS;
}

struct tl_sample *tl_sample_begin(struct tl_stream *s, CUstream stream, bool is_per_thread,
                                  struct tl_record_kernel *k)
{
    struct tl_high_thread *t = &tl_high_thread;
    CUcontext current = NULL;
    if (k == NULL) {
        t->until_sample = MAX_STRIDE;
        return NULL;
    }
    uint64_t now = tl_record_now();
    set_stride(t);
    if (!is_affordable(now) || atomic_load_explicit(&tl_high_captures, memory_order_relaxed) != 0)
        return NULL;
    if (TL_REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS || current != s->ctx)
        return NULL;
    struct tl_sample *sample = take(s->ctx);
    if (sample == NULL)
        return NULL;
    sample->k = k;
    sample->stream = s->number;
    sample->called_ns = now;
    if (!has_events(sample, s->ctx) || !record(sample->begin, stream, is_per_thread)) {
        atomic_store(&sample->state, FREE);
        return NULL;
    }
    sample->cost_ns = tl_record_now() - now;
    return sample;
}

void tl_sample_end(struct tl_sample *sample, CUstream stream, bool is_per_thread, bool was_launched)
{
    uint64_t now = tl_record_now();
    TL_CHECK(atomic_load(&sample->state) == TAKEN);
    bool is_whole = was_launched && record(sample->end, stream, is_per_thread);
    uint64_t cost = sample->cost_ns + (tl_record_now() - now);
    if (cost > LARGEST_COST_NS)
        cost = LARGEST_COST_NS;
    atomic_fetch_add_explicit(&spent_ns, cost, memory_order_relaxed);
    atomic_store_explicit(&cost_ns,
                          (atomic_load_explicit(&cost_ns, memory_order_relaxed) * 7 + cost) / 8,
                          memory_order_relaxed);
    atomic_store(&sample->state, is_whole ? PENDING : FREE);
}

/* --- reading --- */

static bool elapsed(CUevent from, CUevent to, int64_t *ns)
{
    float ms = 0;
    CUresult r = tl_driver_has(TL_NAME_cuEventElapsedTime_v2)
                     ? TL_REAL(cuEventElapsedTime_v2)(&ms, from, to)
                     : TL_REAL(cuEventElapsedTime)(&ms, from, to);
    *ns = (int64_t)((double)ms * 1e6);
    return r == CUDA_SUCCESS;
}

/* Finds out what a base event's time is on the host's clock. */
static void rebase(CUcontext ctx, uint64_t now) TL_REQUIRES(tl_watch_mutex);
static void rebase(CUcontext ctx, uint64_t now)
{
    if (base.ctx != ctx) {
        /* what it had belongs to a context that is still there; one stream is left to it */
        base.ctx = NULL;
        base.host_ns = 0;
        if (TL_REAL(cuStreamCreate)(&base.stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
            return;
        if (TL_REAL(cuEventCreate)(&base.event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
            TL_REAL(cuStreamDestroy_v2)(base.stream);
            return;
        }
        base.ctx = ctx;
    }
    base.host_ns = 0;
    uint64_t before = tl_record_now(), after = before;
    if (TL_REAL(cuEventRecord)(base.event, base.stream) != CUDA_SUCCESS)
        return;
    while (TL_REAL(cuEventQuery)(base.event) == CUDA_ERROR_NOT_READY &&
           after - before < BASE_PATIENCE_NS)
        after = tl_record_now();
    after = tl_record_now();
    if (after - before < BASE_PATIENCE_NS)
        base.host_ns = before + (after - before) / 2;
    else
        base.failed_ns = now;
}

/* A sample that is done, to the record: how long it ran, and, if the base tells, when it began. */
static void read_sample(struct tl_sample *sample) TL_REQUIRES(tl_watch_mutex);
static void read_sample(struct tl_sample *sample)
{
    TL_CHECK(atomic_load(&sample->state) == PENDING && sample->k != NULL);
    uint64_t now = tl_record_now();
    int64_t ran, began;
    if (!elapsed(sample->begin, sample->end, &ran) || ran < 0)
        return;
    uint64_t typical = atomic_load_explicit(&typical_ns, memory_order_relaxed);
    uint64_t counted = typical != 0 && (uint64_t)ran > 16 * typical ? 16 * typical
                                                                    /* outliers are no measure */
                                                                    : (uint64_t)ran;
    typical = typical == 0 ? counted : typical - typical / 32 + counted / 32;
    atomic_store_explicit(&typical_ns, typical != 0 ? typical : 1, memory_order_relaxed);
    if ((base.ctx != sample->ctx || base.host_ns == 0 || now - base.host_ns > REBASE_NS) &&
        now - base.failed_ns > REBASE_NS)
        rebase(sample->ctx, now);
    if (base.ctx != sample->ctx || base.host_ns == 0 ||
        !elapsed(base.event, sample->begin, &began)) {
        /* The driver does not tell durations of the wrong sign everywhere: a sample from before the
         * base. */
        tl_record_ran(sample->k, 0, (uint64_t)ran);
        return;
    }
    int64_t begin = (int64_t)base.host_ns + began, queued = begin - (int64_t)sample->called_ns;
    tl_record_ran(sample->k, queued > 0 ? (uint64_t)queued : 0, (uint64_t)ran);
    if (begin > 0)
        tl_record_spanned(tl_job.record, TL_SPAN_RUN, sample->k, sample->stream, (uint64_t)begin,
                          (uint64_t)(begin + ran));
}

bool tl_sample_collect(void)
{
    static size_t first; /* goes round, so that each has its turn */
    int open = 0;
    for (size_t n = 0; n < SAMPLES && open < MAX_OPEN; n++) {
        struct tl_sample *sample = &samples[first++ % SAMPLES];
        if (atomic_load(&sample->state) != PENDING)
            continue;
        if (TL_REAL(cuCtxSetCurrent)(sample->ctx) != CUDA_SUCCESS) {
            atomic_store(&sample->state, FREE);
            continue;
        }
        CUresult r = TL_REAL(cuEventQuery)(sample->end);
        if (r == CUDA_ERROR_NOT_READY) {
            open++;
            continue;
        }
        if (r == CUDA_SUCCESS)
            read_sample(sample);
        atomic_store(&sample->state, FREE);
    }
    return open != 0;
}

/* --- what goes --- */

void tl_sample_context_gone(CUcontext ctx)
{
    for (size_t i = 0; i < SAMPLES; i++)
        if (samples[i].ctx == ctx) {
            samples[i].begin = samples[i].end = NULL;
            samples[i].ctx = NULL;
            atomic_store(&samples[i].state, FREE);
        }
    if (base.ctx == ctx) {
        base.ctx = NULL;
        base.host_ns = 0;
    }
}

/* The child has one thread: there is nobody to lock out. */
TL_UNCHECKED void tl_sample_forked(void)
{
    for (size_t i = 0; i < SAMPLES; i++)
        samples[i] = (struct tl_sample){0};
    base.ctx = NULL;
    base.host_ns = 0;
    tl_high_thread = (struct tl_high_thread){0};
}
