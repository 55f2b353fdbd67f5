/* Whether this job may put kernels on the device at this moment: the grant, the words of the levels
 * above, run-ahead, rate. */
#include "runtime/effort/permit.h"
#include "tally/check.h"

#include "runtime/effort/flight.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/plan.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"

enum {
    MAX_PAGES = 64,
    /* after a stop, run-ahead begins at a 16th: the level above may only have taken breath */
    MOST_CAUTION = 4,
};
#define RATE_BURST_S 0.01

/* Pages with copies of words, registered with the driver once.  The executor's own, but for being
 * forgotten while it is idle. */
static struct {
    uintptr_t page;
    CUdeviceptr device;
    uint32_t epoch; /* of the set of words that it was last part of */
    bool has_failed;
} pages[MAX_PAGES];
static uint32_t n_pages;

struct tl_eff_permit tl_eff_permit;
static _Atomic uint64_t round_trip_ns; /* any thread's */

void tl_eff_permit_start(void)
{
    tl_eff_lock();
    tl_eff_permit = (struct tl_eff_permit){0};
    atomic_store_explicit(&round_trip_ns, 0, memory_order_relaxed);
    tl_eff_unlock();
}

void tl_eff_permit_round_trip(uint64_t ns)
{
    atomic_store_explicit(&round_trip_ns, ns, memory_order_relaxed);
}

TL_EFF_LOCKED static void refresh(void)
{
    tl_eff_assert_locked();
    uint32_t changes = tl_client_changes(tl_eff.client);
    if (tl_eff_permit.has_grant && changes == tl_eff_permit.grant_changes)
        return;
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    struct tl_copy_page *polled[TL_SHARE_WORDS];
    tl_eff_permit.grant_changes = changes;
    tl_client_grant(tl_eff.client, &tl_eff_permit.grant);
    tl_client_polled(tl_eff.client, polled);
    tl_eff_permit.n_words = tl_client_words(tl_eff.client, words);
    bool differ = false;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        differ |= tl_eff_permit.words[i] != words[i] || tl_eff_permit.polled[i] != polled[i];
        tl_eff_permit.words[i] = words[i];
        tl_eff_permit.polled[i] = polled[i];
    }
    tl_eff_permit.words_epoch += differ;
    tl_eff_permit.has_grant = true;
    TL_CHECK(tl_eff_permit.n_words <= TL_SHARE_WORDS);
}

bool tl_eff_is_alone(void)
{
    refresh();
    return tl_eff_permit.n_words == 0;
}

TL_EFF_LOCKED static bool is_in_hysteresis(uint64_t now)
{
    return tl_eff_permit.busy_ns != 0 &&
           now < tl_eff_permit.busy_ns + tl_eff_permit.grant.hysteresis_ns;
}

/* Whether a higher level had work since this was asked last, however short. */
TL_EFF_LOCKED static bool have_words_moved(void)
{
    bool have = false;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        uint64_t word = atomic_load_explicit(tl_eff_permit.words[i], memory_order_relaxed);
        have |= word != tl_eff_permit.words_seen[i];
        tl_eff_permit.words_seen[i] = word;
    }
    return have;
}

/* When the burst that is found over has ended, as its owner tells; this thread may have come to
 * look much later.  If it does not tell, it has only just ended, as far as can be known. */
TL_EFF_LOCKED static uint64_t end_of_burst(uint64_t now)
{
    uint64_t ended = tl_client_idle_since(tl_eff.client), seen = tl_eff_permit.busy_ns;
    return ended > now ? now : ended > seen ? ended : seen;
}

bool tl_eff_permit_holds(uint64_t now)
{
    if (atomic_load_explicit(&tl_eff.is_over, memory_order_relaxed))
        return true;
    refresh();
    if (!tl_eff_permit.grant.may_run || tl_eff_permit.is_kicking)
        return false; /* what is on the device is told to leave */
    if (!tl_eff_permit.grant.yields)
        return true;
    bool is_preempted = tl_client_is_preempted(tl_eff.client), have_moved = have_words_moved();
    if (is_preempted)
        tl_eff_permit.busy_ns = now;
    else if (tl_eff_permit.was_preempted || (have_moved && is_in_hysteresis(now)))
        tl_eff_permit.busy_ns = end_of_burst(now);
    tl_eff_permit.was_preempted = is_preempted;
    if (is_preempted)
        tl_eff_permit.caution = MOST_CAUTION;
    return !is_preempted && !is_in_hysteresis(now);
}

bool tl_eff_permit_must_look(void)
{
    return tl_eff_permit.grant.yields && !tl_client_is_kept(tl_eff.client);
}

bool tl_eff_permit_must_tell(void)
{
    return tl_eff_permit_must_look() && tl_client_is_preempted(tl_eff.client);
}

uint64_t tl_eff_permit_wait_ns(uint64_t now)
{
    /* A grant that changes wakes the executor, and so does the end of a long burst; short ones end
     * unheard. */
    enum { HELD_NS = 500000, RATE_NS = 200000 };
    if (!tl_eff_permit.grant.may_run || tl_client_is_preempted(tl_eff.client))
        return HELD_NS;
    return is_in_hysteresis(now) ? tl_eff_permit.busy_ns + tl_eff_permit.grant.hysteresis_ns - now
                                 : RATE_NS;
}

TL_EFF_LOCKED static struct tl_eff_budget budget(void)
{
    TL_CHECK(tl_eff_permit.caution <= MOST_CAUTION);
    return (struct tl_eff_budget){
        .turnaround_ns = tl_eff_permit.grant.turnaround_ns,
        .run_ahead_ns = tl_eff_permit.grant.run_ahead_ns,
        .round_trip_ns = atomic_load_explicit(&round_trip_ns, memory_order_relaxed),
        .is_asked_for = tl_eff.settings->turnaround_ns != 0,
        .caution = tl_eff_permit.caution,
        .is_alone = tl_eff_permit.n_words == 0};
}

uint64_t tl_eff_turnaround_ns(void)
{
    struct tl_eff_budget b = budget();
    return tl_eff_plan_turnaround(&b);
}

uint64_t tl_eff_run_ahead_ns(void)
{
    struct tl_eff_budget b = budget();
    return tl_eff_plan_run_ahead(&b);
}

void tl_eff_permit_trust(void)
{
    tl_eff_assert_locked();
    if (tl_eff_permit.caution > 0)
        tl_eff_permit.caution--;
}

bool tl_eff_has_room(const struct tl_eff_stream *s, uint64_t predicted_ns)
{
    /* What stands in other streams may wait for this one: a stream with nothing on the device
     * always may. */
    if (tl_eff_flight.ns == 0 || s->n_flying + s->n_unmarked == 0)
        return true;
    return tl_eff_flight.ns + predicted_ns <= tl_eff_run_ahead_ns();
}

bool tl_eff_take_rate(uint32_t blocks, uint64_t now)
{
    uint64_t rate = tl_eff_permit.grant.blocks_per_s;
    if (rate == 0)
        return true;
    double most = (double)rate * RATE_BURST_S;
    tl_eff_permit.rate_tokens += (double)(now - tl_eff_permit.rate_ns) * 1e-9 * (double)rate;
    tl_eff_permit.rate_ns = now;
    if (tl_eff_permit.rate_tokens > most)
        tl_eff_permit.rate_tokens = most;
    if (tl_eff_permit.rate_tokens <= 0)
        return false;
    tl_eff_permit.rate_tokens -=
        blocks; /* may go below zero: what is too much now is waited for later */
    return true;
}

/* --- the words on the device ------------------------------------------------------------------ */

/* A page that was not in the last set may be another one by now, at the same address: then the
 * driver has to be told.  What was launched with the old set has left the device before. */
TL_EFF_UNLOCKED static bool map_page(uintptr_t page, uint32_t epoch, CUdeviceptr *device)
{
    void *p = (void *)page; /* NOLINT(performance-no-int-to-ptr) */
    TL_CHECK(page % TL_SHARE_PAGE == 0);
    for (uint32_t i = 0; i < n_pages; i++) {
        if (pages[i].page != page)
            continue;
        if (epoch - pages[i].epoch <= 1) {
            pages[i].epoch = epoch;
            *device = pages[i].device;
            return !pages[i].has_failed;
        }
        tl_eff_real.cuMemHostUnregister(p);
        pages[i] = pages[--n_pages];
        break;
    }
    if (n_pages == MAX_PAGES)
        return false;
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    CUresult r = tl_eff_real.cuMemHostRegister_v2(p, TL_SHARE_PAGE, flags);
    if (r == CUDA_SUCCESS || r == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
        r = tl_eff_real.cuMemHostGetDevicePointer_v2(device, p, 0);
    if (r != CUDA_SUCCESS)
        tl_eff_note("the words of higher levels cannot be mapped into the device (error %d): "
                    "kernels run in slices",
                    r);
    pages[n_pages].page = page;
    pages[n_pages].device = *device;
    pages[n_pages].epoch = epoch;
    pages[n_pages++].has_failed = r != CUDA_SUCCESS;
    return r == CUDA_SUCCESS;
}

void tl_eff_permit_forget(void)
{
    n_pages = 0;
}

bool tl_eff_permit_words(CUdeviceptr words[TL_SHARE_WORDS], uint32_t *n, uint32_t epoch)
{
    struct tl_copy_page *polled[TL_SHARE_WORDS];
    *n = tl_client_polled(tl_eff.client, polled);
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        words[i] = 0;
        if (i < *n && polled[i] != NULL && !map_page((uintptr_t)polled[i], epoch, &words[i]))
            return false;
    }
    return true;
}
