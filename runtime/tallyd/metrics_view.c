/* The loop's part of metrics: a copy of what it knows.  It only reads: a scrape is no look
 * (runtime/tallyd/look.c), so that nothing of any client's changes, moves or wakes for it. */
#include "runtime/tallyd/metrics.h"

#include <string.h>

static uint64_t read_once(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void read_histogram(const struct tl_share_histogram *from, struct daemon_histogram *to)
{
    for (uint32_t i = 0; i < TL_SHARE_BUCKETS; i++)
        to->n[i] = read_once(&from->n[i]);
    to->sum_ns = read_once(&from->sum_ns);
}

/* False if the page does not count for that GPU. */
static bool read_counts(const struct tl_client_page *page, struct daemon_row_gpu *to)
{
    for (uint32_t i = 0; i < TL_SHARE_GPUS; i++) {
        const struct tl_share_gpu *from = &page->gpus[i];
        uint64_t uuid[2] = {read_once(&from->uuid[0]), read_once(&from->uuid[1])};
        if (memcmp(uuid, to->uuid, sizeof uuid) != 0)
            continue;
        to->device_ns = read_once(&from->device_ns);
        to->blocks = read_once(&from->blocks);
        to->launches = read_once(&from->launches);
        to->preemptions = read_once(&from->preemptions);
        return true;
    }
    return false;
}

static void read_gpus(const struct daemon *d, const struct daemon_peer *p, struct daemon_row *row)
{
    uint32_t n_counted = 0;
    for (uint32_t g = 1; p->gpus != 0 && g < DAEMON_MAX_GPUS; g++) {
        if ((p->gpus >> g & 1) == 0 || row->n_gpus == TL_WIRE_GPUS)
            continue;
        struct daemon_row_gpu *to = &row->gpus[row->n_gpus++];
        memcpy(to->uuid, d->gpus[g].uuid, 16);
        to->tree_bytes = daemon_tree_held(p->tree, d->gpus[g].uuid);
        n_counted += read_counts(p->page, to);
    }
    row->counts_by_gpu = row->n_gpus > 1 && n_counted == row->n_gpus;
}

/* Sums are the page's own, so that they go on when tallyd begins anew. */
static void read_row(const struct daemon *d, const struct daemon_peer *p, uint64_t now,
                     struct daemon_row *row)
{
    const struct tl_client_page *page = p->page;
    *row = (struct daemon_row){
        .id = p->id,
        .pid = p->who.pid,
        .uid = p->who.uid,
        .c = p->c,
        .may_run = p->grant->grant.may_run,
        .has_work = daemon_has_work(p),
        .is_stopped = daemon_is_stopped(p),
        .share_permille = daemon_share_of(p, read_once(&page->device_ns), now),
        .in_flight = atomic_load_explicit(&page->in_flight, memory_order_relaxed),
        .device_ns = read_once(&page->device_ns),
        .blocks = read_once(&page->blocks),
        .launches = read_once(&page->launches),
        .waited_ns = read_once(&page->waited_ns),
        .preemptions = read_once(&page->preemptions),
        .uncontrolled_ns = read_once(&page->uncontrolled_ns),
        .requests = read_once(&page->n_requests),
        .memory_bytes = read_once(&page->memory_bytes),
        .joined_ns = p->joined_ns,
    };
    memcpy(row->job, p->job, sizeof row->job);
    read_histogram(&page->preempted, &row->preempted);
    read_histogram(&page->requested, &row->requested);
    read_histogram(&page->waited, &row->waited);
    read_gpus(d, p, row);
}

void daemon_view_take(const struct daemon *d, struct daemon_view *view, uint64_t now)
{
    memcpy(view->policy, d->policy, sizeof view->policy);
    view->n_peers = d->n_peers;
    view->now_ns = now;
    view->n_gpus = 0;
    for (uint32_t g = 1; g < DAEMON_MAX_GPUS; g++) {
        if (d->gpus[g].sched == NULL)
            continue;
        memcpy(view->gpus[view->n_gpus].uuid, d->gpus[g].uuid, 16);
        memcpy(view->gpus[view->n_gpus].name, d->gpus[g].name, TL_SHARE_NAME);
        view->gpus[view->n_gpus++].memory_bytes = d->gpus[g].memory_bytes;
    }
    view->n_rows = d->n_clients;
    for (uint32_t i = 0; i < d->n_clients; i++)
        read_row(d, d->clients[i], now, &view->rows[i]);
}
