/* Whether this job may put kernels on the device at this moment: the grant, the words of the levels
 * above, run-ahead, rate. */
#include "runtime/effort/internal.h"

enum {
    MAX_PAGES = 64,
    MAX_ROUND_TRIP_NS = 12000,
    /* after a stop, run-ahead begins at a 16th: the level above may only have taken breath */
    MOST_CAUTION = 4,
};
#define RATE_BURST_S 0.01

/* Pages with words, registered with the driver once.  The executor's own, but for being forgotten
 * while it is idle. */
static struct {
    uintptr_t page;
    CUdeviceptr device;
    uint32_t epoch; /* of the set of words that it was last part of */
    bool has_failed;
} pages[MAX_PAGES];
static uint32_t n_pages;
static const _Atomic uint64_t never[TL_SHARE_PAGE / 8] __attribute__((aligned(TL_SHARE_PAGE)));

/* Lock held. */
static void refresh(void)
{
    uint32_t changes = tl_client_changes(tl_eff.client);
    if (tl_eff.has_grant && changes == tl_eff.grant_changes)
        return;
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    tl_eff.grant_changes = changes;
    tl_client_grant(tl_eff.client, &tl_eff.grant);
    tl_eff.n_words = tl_client_words(tl_eff.client, words);
    bool differ = false;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        differ |= tl_eff.words[i] != words[i];
        tl_eff.words[i] = words[i];
    }
    tl_eff.words_epoch += differ;
    tl_eff.has_grant = true;
}

bool tl_eff_is_alone(void)
{
    refresh();
    return tl_eff.n_words == 0;
}

static bool is_in_hysteresis(uint64_t now)
{
    return tl_eff.busy_ns != 0 && now < tl_eff.busy_ns + tl_eff.grant.hysteresis_ns;
}

/* Whether a higher level had work since this was asked last, however short. */
static bool have_words_moved(void)
{
    static uint64_t seen[TL_SHARE_WORDS]; /* guarded by the lock */
    bool have = false;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        uint64_t word = atomic_load_explicit(tl_eff.words[i], memory_order_relaxed);
        have |= word != seen[i];
        seen[i] = word;
    }
    return have;
}

bool tl_eff_gate_is_open(uint64_t now)
{
    if (atomic_load_explicit(&tl_eff.is_over, memory_order_relaxed))
        return true;
    refresh();
    if (!tl_eff.grant.may_run || tl_eff.is_kicking)
        return false;
    if (!tl_eff.grant.yields)
        return true;
    bool is_preempted = tl_client_is_preempted(tl_eff.client), have_moved = have_words_moved();
    /* A burst that is found over has only just ended, as far as can be known: the time begins
     * there, not at the last look. */
    if (is_preempted || tl_eff.was_preempted || (have_moved && is_in_hysteresis(now)))
        tl_eff.busy_ns = now;
    tl_eff.was_preempted = is_preempted;
    if (is_preempted)
        tl_eff.caution = MOST_CAUTION;
    return !is_preempted && !is_in_hysteresis(now);
}

uint64_t tl_eff_gate_wait_ns(uint64_t now)
{
    /* A grant that changes wakes the executor, and so does the end of a long burst; short ones end
     * unheard. */
    enum { HELD_NS = 500000, RATE_NS = 200000 };
    if (!tl_eff.grant.may_run || tl_client_is_preempted(tl_eff.client))
        return HELD_NS;
    return is_in_hysteresis(now) ? tl_eff.busy_ns + tl_eff.grant.hysteresis_ns - now : RATE_NS;
}

/* The budgets of a policy are made for a GPU.  Where news take longer to come, keeping them would
 * only leave the device idle; a turnaround that the user asked for stands. */
static uint64_t at_least(uint64_t granted_ns, uint64_t round_trips)
{
    uint64_t one = atomic_load_explicit(&tl_eff.round_trip_ns, memory_order_relaxed);
    uint64_t ns = round_trips *
                  /* it was measured on a busy machine */
                  (one < MAX_ROUND_TRIP_NS ? one : MAX_ROUND_TRIP_NS);
    return tl_eff.settings->turnaround_ns != 0 || granted_ns > ns ? granted_ns : ns;
}

uint64_t tl_eff_turnaround_ns(void)
{
    return at_least(tl_eff.grant.turnaround_ns, 8);
}

uint64_t tl_eff_run_ahead_ns(void)
{
    uint64_t limit = at_least(tl_eff.grant.run_ahead_ns, 24), turnaround = tl_eff_turnaround_ns();
    if (limit < turnaround) /* so long a single kernel may be that runs whole */
        limit = turnaround;
    limit >>= tl_eff.caution;
    return tl_eff.n_words == 0 && limit < TL_EFF_ALONE_NS ? TL_EFF_ALONE_NS : limit;
}

bool tl_eff_has_room(const struct tl_eff_stream *s, uint64_t predicted_ns)
{
    /* What stands in other streams may wait for this one: a stream with nothing on the device
     * always may. */
    if (tl_eff.flying_ns == 0 || s->n_flying + s->n_unmarked == 0)
        return true;
    return tl_eff.flying_ns + predicted_ns <= tl_eff_run_ahead_ns();
}

bool tl_eff_take_rate(uint32_t blocks, uint64_t now)
{
    uint64_t rate = tl_eff.grant.blocks_per_s;
    if (rate == 0)
        return true;
    double most = (double)rate * RATE_BURST_S;
    tl_eff.rate_tokens += (double)(now - tl_eff.rate_ns) * 1e-9 * (double)rate;
    tl_eff.rate_ns = now;
    if (tl_eff.rate_tokens > most)
        tl_eff.rate_tokens = most;
    if (tl_eff.rate_tokens <= 0)
        return false;
    tl_eff.rate_tokens -= blocks; /* may go below zero: what is too much now is waited for later */
    return true;
}

/* --- the words on the device ------------------------------------------------------------------ */

/* A page that was not in the last set may be another one by now, at the same address: then the
 * driver has to be told.  What was launched with the old set has left the device before. */
static bool map_page(uintptr_t page, uint32_t epoch, CUdeviceptr *device)
{
    void *p = (void *)page; /* NOLINT(performance-no-int-to-ptr) */
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
    CUresult r = tl_eff_real.cuMemHostRegister_v2(p, TL_SHARE_PAGE,
                                                  flags | CU_MEMHOSTREGISTER_READ_ONLY);
    if (r != CUDA_SUCCESS)
        r = tl_eff_real.cuMemHostRegister_v2(p, TL_SHARE_PAGE, flags);
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

void tl_eff_gate_forget(void)
{
    n_pages = 0;
}

bool tl_eff_gate_words(CUdeviceptr words[TL_SHARE_WORDS], uint32_t *n, uint32_t epoch)
{
    const _Atomic uint64_t *above[TL_SHARE_WORDS];
    *n = tl_client_words(tl_eff.client, above);
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        uintptr_t address = (uintptr_t)(i < *n ? above[i] : never),
                  page = address & ~(uintptr_t)(TL_SHARE_PAGE - 1);
        CUdeviceptr device;
        if (!map_page(page, epoch, &device))
            return false;
        words[i] = device + (address - page);
    }
    return true;
}
