/* Who sees whose word.  A kernel polls at most TL_SHARE_WORDS words.  If more clients than that are
 * above, the first ones are shown as they are, and one page of tallyd's own, in the last place,
 * stands for all others: it is busy while one of them is. */
#include "runtime/tallyd/tallyd.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool is_busy(const struct daemon_peer *p)
{
    return tl_word_is_busy(atomic_load_explicit(&p->page->word, memory_order_relaxed)) != 0;
}

/* What the rest of this file goes by: highest level first, each with its pages. */
static void assert_order(const struct daemon *d)
{
    for (uint32_t i = 0; i < d->n_clients; i++) {
        const struct daemon_peer *p = d->clients[i];
        assert(p->id != 0 && p->page != NULL && p->grant != NULL && p->page_reader >= 0);
        assert(i == 0 || d->clients[i - 1]->c.level >= p->c.level);
        (void)p;
    }
}

/* The clients above that can be in the way of `p`, highest level first; returns how many. */
static uint32_t list_above(const struct daemon *d, const struct daemon_peer *p,
                           struct daemon_peer *above[DAEMON_MAX_PEERS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_clients && d->clients[i]->c.level > p->c.level; i++)
        if (daemon_do_meet(d->clients[i], p) && !d->clients[i]->is_set_aside)
            above[n++] = d->clients[i];
    return n;
}

static uint32_t count_direct(uint32_t above)
{
    return above <= TL_SHARE_WORDS ? above : TL_SHARE_WORDS - 1;
}

/* --- merged words ----------------------------------------------------------------------------- */

static int make_merged(struct daemon_peer *p)
{
    void *page;
    int fd = tl_share_create("tally-merged", &page);
    if (fd < 0)
        return fd;
    p->merged = page;
    p->merged->magic = TL_CLIENT_MAGIC;
    p->merged->version = TL_SHARE_VERSION;
    atomic_store(&p->merged->is_kept, 1);
    p->merged_fd = fd; /* its kernels poll it, so it may write there, and fool itself */
    return 0;
}

void daemon_words_finish(struct daemon_peer *p)
{
    if (p->merged != NULL) {
        atomic_store_explicit(&p->merged->word, 0, memory_order_relaxed);
        munmap(p->merged, TL_SHARE_PAGE);
    }
    if (p->merged_fd >= 0)
        close(p->merged_fd);
    p->merged = NULL;
    p->merged_fd = -1;
}

bool daemon_words_merge(struct daemon *d)
{
    bool is_needed = false;
    for (uint32_t i = 0; i < d->n_clients; i++) {
        struct daemon_peer *p = d->clients[i];
        if (p->merged == NULL)
            continue;
        struct daemon_peer *above[DAEMON_MAX_PEERS];
        uint32_t n = list_above(d, p, above);
        uint64_t busy = 0;
        for (uint32_t j = count_direct(n); j < n && busy == 0; j++)
            busy = is_busy(above[j]);
        atomic_store_explicit(&p->merged->word, busy, memory_order_release);
        is_needed = true;
    }
    return is_needed;
}

/* --- sending ---------------------------------------------------------------------------------- */

/* Sends the words above `p` as they are now.  If it does not read what it is sent, they follow when
 * it does. */
void daemon_words_send(struct daemon *d, struct daemon_peer *p)
{
    assert(p->id != 0);
    struct daemon_peer *above[DAEMON_MAX_PEERS];
    uint32_t n = list_above(d, p, above), direct = count_direct(n);
    struct tl_wire_words words = {.n = direct, .is_merged = n > direct};
    int fds[TL_WIRE_FDS];
    uint32_t n_fds = 0;
    if (words.is_merged != 0 && p->merged == NULL && make_merged(p) < 0) {
        daemon_words_finish(p);
        words.is_merged = 0;
        daemon_log(LOG_WARNINGS,
                   "process %d (%s) sees only %u of %u words above it: no shared memory",
                   (int)p->who.pid, p->job, direct, n);
    }
    for (uint32_t i = 0; i < direct; i++) {
        words.above[i] = above[i]->id;
        fds[n_fds++] = above[i]->page_reader;
        fds[n_fds++] = above[i]->pidfd;
    }
    if (words.is_merged != 0)
        fds[n_fds++] = p->merged_fd;
    assert(n_fds <= TL_WIRE_FDS && (words.is_merged == 0 || p->merged_fd >= 0));
    words.n += words.is_merged;
    int rc = tl_wire_send(p->socket, TL_WIRE_WORDS, &words, sizeof words, fds, n_fds);
    if (rc < 0 && rc != -EAGAIN) {
        daemon_log(LOG_WARNINGS, "process %d (%s) cannot be told who is above it: %s",
                   (int)p->who.pid, p->job, strerror(-rc));
        return; /* if it is gone, that is heard of next */
    }
    if (p->owes_words != (rc == -EAGAIN)) {
        p->owes_words = rc == -EAGAIN;
        daemon_watch_writable(d, p, p->owes_words || p->owes_copies);
    }
    daemon_copies_follow(p, words.above, direct);
    for (uint32_t i = 0; i < direct; i++)
        p->sent[i] = words.above[i];
    p->n_sent = direct;
    p->has_sent_merged = words.is_merged != 0;
    p->has_sent = true;
    if (words.is_merged == 0)
        daemon_words_finish(p);
}

static bool is_up_to_date(const struct daemon *d, const struct daemon_peer *p)
{
    struct daemon_peer *above[DAEMON_MAX_PEERS];
    uint32_t n = list_above(d, p, above), direct = count_direct(n);
    if (!p->has_sent || p->n_sent != direct || p->has_sent_merged != (n > direct))
        return false;
    for (uint32_t i = 0; i < direct; i++)
        if (p->sent[i] != above[i]->id)
            return false;
    return true;
}

static void count_below(struct daemon *d)
{
    for (uint32_t i = 0; i < d->n_clients; i++) {
        const struct daemon_peer *p = d->clients[i];
        uint32_t below = 0;
        for (uint32_t j = i + 1; j < d->n_clients; j++)
            below += d->clients[j]->c.level < p->c.level && daemon_do_meet(d->clients[j], p);
        atomic_store_explicit(&p->grant->n_below, below, memory_order_relaxed);
    }
}

void daemon_words_update(struct daemon *d)
{
    assert_order(d);
    count_below(d);
    for (uint32_t i = 0; i < d->n_clients; i++)
        if (!is_up_to_date(d, d->clients[i]))
            daemon_words_send(d, d->clients[i]);
    daemon_copies_update(d);
    (void)daemon_words_merge(d);
}
