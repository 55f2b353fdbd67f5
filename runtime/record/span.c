/* The timeline (a ring of the last spans), the activity (tenths of a second over the whole run) and
 * the requests. */
#include "runtime/record/internal.h"

static uint64_t load(const _Atomic uint64_t *value)
{
    return atomic_load_explicit((_Atomic uint64_t *)value, memory_order_relaxed);
}

static void store(_Atomic uint64_t *to, uint64_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

/* --- activity --- */

/* The slot of that tenth of a second, emptied if it had an older one.  What another thread adds
 * while it is emptied may be lost; NULL if the slot already belongs to a later time. */
static struct tl_record_slot *slot_of(struct tl_record *r, uint64_t number)
{
    struct tl_record_slot *s = &r->file->slots[number % TL_RECORD_SLOTS];
    uint64_t there = load(&s->number);
    if (there == number)
        return s;
    if (there > number)
        return NULL;
    if (atomic_compare_exchange_strong_explicit(&s->number, &there, number, memory_order_relaxed,
                                                memory_order_relaxed)) {
        store(&s->run_ns, 0);
        store(&s->wait_ns, 0);
        store(&s->requests, 0);
        store(&s->slowest_ns, 0);
        tl__record_touch(r, s, sizeof *s);
        return s;
    }
    return there == number ? s : NULL;
}

/* Adds a stretch of time to the slots that it touches. */
static void add_activity(struct tl_record *r, enum tl_record_span kind, uint64_t begin_ns,
                         uint64_t end_ns)
{
    if (end_ns - begin_ns > (uint64_t)TL_RECORD_SLOTS * TL_RECORD_SLOT_NS)
        begin_ns = end_ns - (uint64_t)TL_RECORD_SLOTS * TL_RECORD_SLOT_NS;
    while (begin_ns < end_ns) {
        uint64_t number = begin_ns / TL_RECORD_SLOT_NS;
        uint64_t until = (number + 1) * TL_RECORD_SLOT_NS;
        uint64_t part = (until < end_ns ? until : end_ns) - begin_ns;
        struct tl_record_slot *s = slot_of(r, number);
        if (s != NULL)
            tl__record_add(r, kind == TL_SPAN_RUN ? &s->run_ns : &s->wait_ns, part);
        begin_ns += part;
    }
}

/* --- spans --- */

void tl_record_spanned(struct tl_record *r, enum tl_record_span kind,
                       const struct tl_record_kernel *k, uint32_t stream, uint64_t begin_ns,
                       uint64_t end_ns)
{
    if (r == NULL || (unsigned)kind >= TL_SPANS || end_ns < begin_ns)
        return;
    uint64_t number = atomic_fetch_add_explicit(&r->file->n_spans, 1, memory_order_relaxed);
    tl__record_touch(r, &r->file->n_spans, 1);
    struct tl_record_place *p = &r->file->spans[number % TL_RECORD_SPANS];
    /* A reader takes the stamp before and after the rest: it must see 0 or another stamp if it sees
     * anything of the new. */
    store(&p->stamp, 0);
    atomic_thread_fence(memory_order_release);
    store(&p->begin_ns, begin_ns);
    store(&p->end_ns, end_ns);
    atomic_store_explicit(&p->kernel, k != NULL ? k->row : RECORD_NO_KERNEL, memory_order_relaxed);
    atomic_store_explicit(&p->stream, stream, memory_order_relaxed);
    atomic_store_explicit(&p->stamp, (number + 1) << 8 | (uint64_t)kind, memory_order_release);
    tl__record_touch(r, p, sizeof *p);
    if (kind == TL_SPAN_RUN || kind == TL_SPAN_WAIT)
        add_activity(r, kind, begin_ns, end_ns);
    tl__record_alive(r, end_ns);
}

/* --- requests --- */

struct culprit {
    uint64_t ns, wait_ns, kernels, busy_ns;
    uint32_t row;
};

/* A copy of span `number`; false if it has been overwritten or is not whole. */
static bool read_span(const struct tl_record *r, uint64_t number, enum tl_record_span *kind,
                      uint64_t *begin_ns, uint64_t *end_ns, uint32_t *row)
{
    struct tl_record_place *p = &r->file->spans[number % TL_RECORD_SPANS];
    uint64_t stamp = atomic_load_explicit(&p->stamp, memory_order_acquire);
    *kind = (enum tl_record_span)(stamp & 0xff);
    *begin_ns = load(&p->begin_ns);
    *end_ns = load(&p->end_ns);
    *row = atomic_load_explicit(&p->kernel, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return stamp >> 8 == number + 1 && load(&p->stamp) == stamp;
}

/* The kernel inside the request that kept it longest, its waiting included: pieces of one kernel
 * that follow each other count together.  Spans arrive roughly in order of their end, so the search
 * goes back until a good many in a row are too old. */
static struct culprit find_culprit(const struct tl_record *r, uint64_t begin_ns, uint64_t end_ns)
{
    enum { FARTHEST = 4096, TOO_OLD = 64 };
    struct culprit worst = {.row = RECORD_NO_KERNEL};
    struct culprit at_hand = {.row = RECORD_NO_KERNEL};
    uint64_t next = load(&r->file->n_spans);
    for (uint32_t seen = 0, old = 0; seen < FARTHEST && seen < next && old < TOO_OLD; seen++) {
        enum tl_record_span kind;
        uint64_t from, to;
        uint32_t row;
        if (!read_span(r, next - 1 - seen, &kind, &from, &to, &row) ||
            (kind != TL_SPAN_RUN && kind != TL_SPAN_WAIT))
            continue;
        if (to <= begin_ns) {
            old++;
            continue;
        }
        old = 0;
        if (from >= end_ns)
            continue;
        uint64_t inside = (to < end_ns ? to : end_ns) - (from > begin_ns ? from : begin_ns);
        if (row != at_hand.row)
            at_hand = (struct culprit){.row = row};
        at_hand.ns += inside;
        if (kind == TL_SPAN_WAIT) {
            at_hand.wait_ns += inside;
        } else {
            worst.kernels++;
            worst.busy_ns += inside;
        }
        if (row != RECORD_NO_KERNEL && at_hand.ns > worst.ns) {
            worst.ns = at_hand.ns;
            worst.wait_ns = at_hand.wait_ns;
            worst.row = row;
        }
    }
    return worst;
}

/* Puts the request among the slowest, in the place of the fastest of them. */
static void keep_if_slow(struct tl_record *r, uint64_t begin_ns, uint64_t end_ns, bool is_marked)
{
    uint64_t latency = end_ns - begin_ns;
    struct tl_record_slow *place = NULL;
    uint64_t least = latency;
    for (uint32_t i = 0; i < TL_RECORD_SLOW && least > 0; i++) {
        uint64_t there = load(&r->file->slow[i].latency_ns);
        if (there < least) {
            least = there;
            place = &r->file->slow[i];
        }
    }
    /* If two threads want the same place, one of the requests is not kept: there are others as
     * slow. */
    if (place == NULL ||
        !atomic_compare_exchange_strong_explicit(&place->latency_ns, &least, UINT64_MAX,
                                                 memory_order_acquire, memory_order_relaxed))
        return;
    struct culprit c = find_culprit(r, begin_ns, end_ns);
    store(&place->begin_ns, begin_ns);
    store(&place->culprit_ns, c.ns);
    store(&place->culprit_wait, c.wait_ns);
    store(&place->kernels, c.kernels);
    store(&place->busy, c.busy_ns);
    atomic_store_explicit(&place->culprit, c.row, memory_order_relaxed);
    atomic_store_explicit(&place->is_marked, is_marked, memory_order_relaxed);
    atomic_store_explicit(&place->latency_ns, latency, memory_order_release);
    tl__record_touch(r, place, sizeof *place);
}

void tl_record_request(struct tl_record *r, uint64_t begin_ns, uint64_t end_ns, bool is_marked)
{
    if (r == NULL || end_ns < begin_ns)
        return;
    tl__record_count(r, &r->file->requests[is_marked], end_ns - begin_ns);
    keep_if_slow(r, begin_ns, end_ns, is_marked);
    struct tl_record_slot *s = slot_of(r, end_ns / TL_RECORD_SLOT_NS);
    if (s != NULL) {
        tl__record_add(r, &s->requests, 1);
        tl__record_max(r, &s->slowest_ns, end_ns - begin_ns);
    }
    tl_record_spanned(r, TL_SPAN_REQUEST, NULL, 0, begin_ns, end_ns);
}
