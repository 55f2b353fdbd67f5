/* Counters and histograms: a few atomic additions each, no lock, no allocation. */
#include "runtime/record/internal.h"

void tl__record_max(struct tl_record *r, _Atomic uint64_t *max, uint64_t value)
{
    uint64_t old = atomic_load_explicit(max, memory_order_relaxed);
    while (old < value && !atomic_compare_exchange_weak_explicit(
                              max, &old, value, memory_order_relaxed, memory_order_relaxed))
        continue;
    tl__record_touch(r, max, 1);
}

/* The group's steps, made if need be; NULL if there is no room. */
static struct tl_record_steps *steps_of(struct tl_record *r, _Atomic uint32_t *group)
{
    uint32_t at = atomic_load_explicit(group, memory_order_acquire);
    if (at == 0) {
        uint32_t made = tl__record_take(r, sizeof(struct tl_record_steps));
        if (made == 0)
            return NULL;
        /* If another thread was faster, its group counts and ours is lost. */
        if (atomic_compare_exchange_strong_explicit(group, &at, made, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            at = made;
            tl__record_touch(r, group, 1);
        }
    }
    return (struct tl_record_steps *)((char *)r->file + at);
}

void tl__record_count(struct tl_record *r, struct tl_record_histogram *h, uint64_t value)
{
    uint32_t step;
    uint32_t group = tl_histogram_group(value, &step);
    tl__record_add(r, &h->sum, value);
    tl__record_max(r, &h->max, value);
    struct tl_record_steps *steps = steps_of(r, &h->groups[group]);
    tl__record_add(r, steps != NULL ? &steps->counts[step] : &h->unplaced, 1);
}

/* On the way of every launch, also of the highest priority. */
void tl_record_launched(struct tl_record_kernel *k, enum tl_rung rung, uint64_t blocks)
{
    if (k == NULL || (unsigned)rung >= TL_RUNGS)
        return;
    tl_counts_add(&k->rungs[rung], (uintptr_t)pthread_self(), 1, blocks);
}

void tl_record_ran(struct tl_record_kernel *k, uint64_t queued_ns, uint64_t ran_ns)
{
    if (k == NULL)
        return;
    struct tl_record_kernel_part *part = atomic_load_explicit(&k->part, memory_order_relaxed);
    tl__record_count(k->record, &part->queued, queued_ns);
    tl__record_count(k->record, &part->ran, ran_ns);
    tl__record_count(k->record, &part->total, queued_ns + ran_ns);
    tl__record_alive(k->record, tl_record_now());
}

void tl_record_preempted(struct tl_record_kernel *k, uint64_t latency_ns, uint64_t block_ns)
{
    if (k == NULL)
        return;
    struct tl_record_kernel_part *part = atomic_load_explicit(&k->part, memory_order_relaxed);
    tl__record_count(k->record, &part->preempted, latency_ns);
    if (block_ns > 0 && latency_ns < UINT64_MAX / 1000)
        tl__record_count(k->record, &part->preempted_blocks, latency_ns * 1000 / block_ns);
}

void tl_record_uncontrolled(struct tl_record_kernel *k, uint64_t ns)
{
    if (k == NULL)
        return;
    struct tl_record_kernel_part *part = atomic_load_explicit(&k->part, memory_order_relaxed);
    tl__record_add(k->record, &part->uncontrolled, 1);
    tl__record_add(k->record, &part->uncontrolled_ns, ns);
}

void tl_record_rescued(struct tl_record_kernel *k)
{
    if (k == NULL)
        return;
    struct tl_record_kernel_part *part = atomic_load_explicit(&k->part, memory_order_relaxed);
    tl__record_add(k->record, &part->rescues, 1);
}

void tl_record_graph(struct tl_record *r, enum tl_record_graph what, uint64_t n)
{
    if (r != NULL && (unsigned)what < TL_GRAPH_COUNTS)
        tl__record_add(r, &r->file->graphs[what], n);
}

void tl_record_copied(struct tl_record *r, enum tl_record_copy kind, uint64_t bytes)
{
    if (r == NULL || (unsigned)kind >= TL_COPIES)
        return;
    tl__record_add(r, &r->file->copies[kind].count, 1);
    tl__record_add(r, &r->file->copies[kind].bytes, bytes);
}
