/* Bursts, gaps and requests.
 *
 *     burst     from work that is issued while nothing is in flight until nothing is in flight again
 *     gap       between two bursts of one request: lower levels had better not begin anything there
 *     request   marked by the program; of one that marks none, from the first work after a wait until the next wait
 *               that finds everything done
 *
 * All of it happens once per burst or wait, never once per launch. */
#include "intercept/high/high.h"
#include "sched/gaps.h"

#define USEFUL_NS 500000u /* the job itself would have told so much later that its work is done */
#define PUBLISH_NS 1000000u
/* Lower levels look by themselves after shorter bursts: to wake them takes microseconds, which a
 * job with many such bursts would feel. */
#define TELL_NS 200000u

static struct {
    _Atomic uint64_t burst_ns; /* when it began, 0 between bursts */
    _Atomic uint64_t idle_ns;  /* when the last one ended */
    /* the gap in front of the burst that is on, to be looked at when that ends; 0: none */
    _Atomic uint64_t gap_ns;
    /* first work since the last wait that found everything done, 0 if none */
    _Atomic uint64_t request_ns;
    _Atomic uint64_t mark_ns;    /* when the last marked request began */
    _Atomic uint32_t open_marks; /* marked requests that have not ended */
    _Atomic bool was_marked;
    /* when the watcher found work done that the job has not waited for yet */
    _Atomic uint64_t found_ns;
    _Atomic bool was_useful;
    _Atomic uint64_t published_ns;
} state;

static bool is_busy(void)
{
    return tl_seats_are_busy(NULL);
}

/* --- bursts --- */

/* A burst begins behind a gap.  Without marks nobody knows which gaps lie inside requests; those
 * that do are many and alike, and that is what counts. */
static void note_gap(uint64_t idle, uint64_t now)
{
    bool is_outside = atomic_load_explicit(&state.was_marked, memory_order_relaxed) &&
                      (atomic_load_explicit(&state.open_marks, memory_order_relaxed) == 0 ||
                       idle < atomic_load_explicit(&state.mark_ns, memory_order_relaxed));
    atomic_store_explicit(&state.gap_ns, is_outside ? UINT64_MAX : now - idle,
                          memory_order_relaxed);
}

/* It ends: what its gap teaches is wanted in the next one, and to find that out takes as long as
 * everything else that a launch costs. */
static void judge_gap(uint64_t burst_ns)
{
    static struct tl_gaps gaps;
    uint64_t seen = atomic_exchange_explicit(&state.gap_ns, 0, memory_order_relaxed);
    if (seen == 0)
        return;
    uint64_t gap = tl_gaps_saw(&gaps, seen, burst_ns);
    for (uint32_t i = 0; i < atomic_load(&tl_n_seats); i++)
        atomic_store_explicit(&tl_seats[i].page->gap_ns, gap, memory_order_relaxed);
}

/* The job waits, or begins anew without having waited: without the watcher, its work would have
 * seemed in flight until now. */
static void judge_watcher(uint64_t now)
{
    uint64_t found = atomic_load_explicit(&state.found_ns, memory_order_relaxed);
    if (found != 0)
        found = atomic_exchange_explicit(&state.found_ns, 0, memory_order_relaxed);
    if (found != 0 && now > found + USEFUL_NS)
        atomic_store_explicit(&state.was_useful, true, memory_order_relaxed);
}

void tl_request_found_done(uint64_t now)
{
    uint64_t none = 0;
    atomic_compare_exchange_strong(&state.found_ns, &none, now);
}

bool tl_request_was_watcher_useful(void)
{
    return atomic_exchange_explicit(&state.was_useful, false, memory_order_relaxed);
}

void tl_request_burst(struct tl_seat *s)
{
    uint64_t now = tl_record_now(),
             idle = atomic_load_explicit(&state.idle_ns, memory_order_relaxed);
    atomic_store_explicit(&s->burst_ns, now, memory_order_relaxed);
    atomic_store_explicit(&s->page->burst_ns, now, memory_order_relaxed);
    if (!tl_seats_are_busy(s)) { /* the job's, not only that GPU's */
        judge_watcher(now);
        if (idle != 0 && now > idle)
            note_gap(idle, now);
        atomic_store_explicit(&state.burst_ns, now, memory_order_relaxed);
        if (atomic_load_explicit(&state.request_ns, memory_order_relaxed) == 0)
            /* whoever else begins one at this moment says the same */
            atomic_store_explicit(&state.request_ns, now, memory_order_relaxed);
    }
    tl_client_backlog(s->client, true);
}

void tl_request_idle(struct tl_seat *s)
{
    uint64_t now = tl_record_now(), begin = atomic_exchange(&s->burst_ns, 0);
    atomic_store_explicit(&s->page->idle_ns, now, memory_order_relaxed);
    if (begin != 0 && now > begin)
        atomic_fetch_add_explicit(&s->page->device_ns, now - begin, memory_order_relaxed);
    tl_client_backlog(s->client, false);
    if (tl_word_is_busy(atomic_load(&s->page->word)))
        /* another thread began a burst meanwhile, and may have said so before */
        tl_client_backlog(s->client, true);
    else if (begin != 0 && now - begin > TELL_NS)
        tl_client_tell_idle(s->client);
    judge_gap(begin != 0 && now > begin ? now - begin : 0);
    if (!tl_seats_are_busy(s)) {
        atomic_store_explicit(&state.burst_ns, 0, memory_order_relaxed);
        atomic_store_explicit(&state.idle_ns, now, memory_order_relaxed);
    }
    if (now - atomic_load_explicit(&state.published_ns, memory_order_relaxed) > PUBLISH_NS)
        tl_request_publish();
}

static void publish_seat(const struct tl_seat *seat)
{
    uint64_t kernels = 0, blocks = 0, word = atomic_load(&seat->page->word);
    for (struct tl_stream *s = tl_stream_first(); s != NULL; s = s->next) {
        if (s->seat != seat)
            continue;
        kernels += tl_counts_sum(&s->counts, 0);
        blocks += tl_counts_sum(&s->counts, 1);
    }
    atomic_store_explicit(&seat->page->launches, kernels, memory_order_relaxed);
    atomic_store_explicit(&seat->page->blocks, blocks, memory_order_relaxed);
    atomic_store_explicit(&seat->page->in_flight, (uint32_t)word - (uint32_t)(word >> 32),
                          memory_order_relaxed);
}

void tl_request_publish(void)
{
    uint64_t now = tl_record_now();
    for (uint32_t i = 0; i < atomic_load(&tl_n_seats); i++)
        publish_seat(&tl_seats[i]);
    atomic_store_explicit(&state.published_ns, now, memory_order_relaxed);
    tl_record_wake(tl_job.record);
}

uint64_t tl_request_burst_began(void)
{
    return atomic_load_explicit(&state.burst_ns, memory_order_relaxed);
}

/* --- requests --- */

void tl_request_waited(void)
{
    if (atomic_load_explicit(&state.request_ns, memory_order_relaxed) == 0 || is_busy())
        return;
    uint64_t begin = atomic_exchange(&state.request_ns, 0), now = tl_record_now();
    judge_watcher(now);
    if (begin == 0 || now <= begin || atomic_load_explicit(&state.was_marked, memory_order_relaxed))
        return;
    tl_record_request(tl_job.record, begin, now, false);
    tl_client_request(tl_job.client, now - begin);
}

void tl_request_mark(uint64_t now)
{
    atomic_store_explicit(&state.was_marked, true, memory_order_relaxed);
    atomic_store_explicit(&state.mark_ns, now, memory_order_relaxed);
    atomic_fetch_add_explicit(&state.open_marks, 1, memory_order_relaxed);
}

void tl_request_unmark(void)
{
    uint32_t open = atomic_load_explicit(&state.open_marks, memory_order_relaxed);
    while (open != 0 && !atomic_compare_exchange_weak(&state.open_marks, &open, open - 1))
        ;
}

void tl_request_forked(void)
{
    atomic_store(&state.burst_ns, 0);
    atomic_store(&state.idle_ns, 0);
    atomic_store(&state.request_ns, 0);
    atomic_store(&state.found_ns, 0);
    atomic_store(&state.open_marks, 0);
}
