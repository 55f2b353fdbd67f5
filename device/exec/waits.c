/* What this process lost to others, written into a file span by span: first the span and then how
 * many there are, so that it is whole however the process ends.  It is not mapped: who truncates it
 * spoils a measurement and ends nobody.  Threads that end and begin spans at once take turns, so
 * each span is kept once. */
#include "device/exec/waits.h"
#include "device/exec/sm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tally/clock.h"
#include "tally/lock.h"

struct tl__waits {
    int fd;
    dev_t device; /* which file it is: the program may close what it does not know */
    ino_t inode;
    struct tl_mutex lock;
    uint64_t n, n_dropped;     /* with the lock */
    _Atomic uint64_t since_ns; /* 0: nothing waits; changed with the lock */
    /* by SM: what its holders had told then; with the lock */
    struct {
        uint64_t told_ns, total_ns;
        struct tl__idle_then idle;
    } then[MAX_SLOTS];
    uint64_t held_since_ns[MAX_SLOTS];      /* by SM; its holder's own */
    _Atomic uint64_t held_ns, held_told_ns; /* all that it had; when the file was last told */
};

int tl__waits_create(struct tl__waits **out, const char *folder, const char *name,
                     struct tl_error *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s.%d.waits", folder, name, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof path)
        return tl_error_set(err, -ENAMETOOLONG, "TALLY_DEVICE_WAITS is too long a path");
    struct tl__waits *w = calloc(1, sizeof *w);
    if (w == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for %s", path);
    struct stat st;
    const struct tl__waits_file head = {.magic = TL__WAITS_MAGIC};
    w->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (w->fd < 0 || fstat(w->fd, &st) < 0 ||
        pwrite(w->fd, &head, sizeof head, 0) != (ssize_t)sizeof head) {
        int rc = tl_error_errno(err, "TALLY_DEVICE_WAITS: cannot make %s", path);
        if (w->fd >= 0)
            close(w->fd);
        free(w);
        return rc;
    }
    w->device = st.st_dev;
    w->inode = st.st_ino;
    tl_mutex_init(&w->lock);
    *out = w;
    return 0;
}

static bool has_file(const struct tl__waits *w)
{
    struct stat st;
    return fstat(w->fd, &st) == 0 && st.st_dev == w->device && st.st_ino == w->inode;
}

static void tell_held(struct tl__waits *w)
{
    uint64_t held = atomic_load_explicit(&w->held_ns, memory_order_relaxed);
    if (has_file(w) &&
        pwrite(w->fd, &held, sizeof held, offsetof(struct tl__waits_file, held_ns)) < 0)
        errno = 0; /* then the last of it is missing */
}

void tl__waits_destroy(struct tl__waits *w)
{
    if (w == NULL)
        return;
    tell_held(w);
    if (has_file(w))
        close(w->fd);
    tl_mutex_destroy(&w->lock);
    free(w);
}

void tl__waits_begin(struct tl__waits *w, const struct sm_slot *slots, uint32_t n)
{
    if (w == NULL || atomic_load_explicit(&w->since_ns, memory_order_relaxed) != 0)
        return;
    tl_mutex_lock(&w->lock);
    if (atomic_load_explicit(&w->since_ns, memory_order_relaxed) == 0) {
        for (uint32_t i = 0; i < n; i++) { /* in this order: the sum is as new at least */
            const struct tl__stall *st = &slots[i].stall;
            w->then[i].told_ns = atomic_load_explicit(&st->told_ns, memory_order_acquire);
            w->then[i].total_ns = atomic_load_explicit(&st->total_ns, memory_order_relaxed);
        }
        uint64_t now = tl_clock_ns();
        for (uint32_t i = 0; i < n; i++)
            w->then[i].idle = tl__idle_begin(&slots[i].idle, &slots[i].freed_ns, now);
        atomic_store_explicit(&w->since_ns, now, memory_order_relaxed);
    }
    tl_mutex_unlock(&w->lock);
}

/* Of the time since `since`, what was lost.  It was over when the last SM was left, but which one
 * this process waited for is not known: the one that says the most counts, and if none was left
 * (its holder died, or who came first went away), all of it. */
static uint64_t lost_ns(const struct tl__waits *w, const struct sm_slot *slots, uint32_t n,
                        uint64_t since) TL_REQUIRES(w->lock)
{
    uint64_t now = tl_clock_ns(), most = 0;
    bool was_left = false;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t freed = atomic_load_explicit(&slots[i].freed_ns, memory_order_relaxed);
        uint64_t total = atomic_load_explicit(&slots[i].stall.total_ns, memory_order_relaxed);
        if (freed <= since || freed > now)
            continue;
        was_left = true;
        uint64_t stalled = total > w->then[i].total_ns ? total - w->then[i].total_ns : 0;
        uint64_t ran = tl__stall_ran_ns(since, freed, w->then[i].told_ns, stalled);
        uint64_t idle = tl__idle_since(&slots[i].idle, &w->then[i].idle, freed);
        ran = idle < ran ? ran - idle : 0;
        most = ran > most ? ran : most;
    }
    return was_left ? most : now - since;
}

static void keep(struct tl__waits *w, uint64_t begin, uint64_t lost) TL_REQUIRES(w->lock)
{
    const uint64_t span[2] = {begin, begin + lost};
    if (!has_file(w))
        return;
    off_t at = (off_t)(sizeof(struct tl__waits_file) + w->n * sizeof span);
    if (w->n < TL__WAITS_MAX && pwrite(w->fd, span, sizeof span, at) == (ssize_t)sizeof span)
        w->n++;
    else
        w->n_dropped++;
    const uint64_t counts[2] = {w->n, w->n_dropped};
    if (pwrite(w->fd, counts, sizeof counts, offsetof(struct tl__waits_file, n)) < 0)
        errno = 0; /* then it lacks the last ones */
}

void tl__waits_end(struct tl__waits *w, const struct sm_slot *slots, uint32_t n)
{
    if (w == NULL || atomic_load_explicit(&w->since_ns, memory_order_relaxed) == 0)
        return;
    tl_mutex_lock(&w->lock);
    uint64_t since = atomic_exchange(&w->since_ns, 0);
    if (since != 0)
        keep(w, since, lost_ns(w, slots, n, since));
    tl_mutex_unlock(&w->lock);
}

void tl__waits_hold(struct tl__waits *w, uint32_t slot)
{
    if (w != NULL)
        w->held_since_ns[slot] = tl_clock_ns();
}

void tl__waits_leave(struct tl__waits *w, uint32_t slot)
{
    if (w == NULL)
        return;
    uint64_t now = tl_clock_ns(),
             told = atomic_load_explicit(&w->held_told_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->held_ns, now - w->held_since_ns[slot], memory_order_relaxed);
    if (now - told >= TL__WAITS_HELD_NS &&
        atomic_compare_exchange_strong(&w->held_told_ns, &told, now))
        tell_held(w);
}

void tl__waits_forget(struct tl__waits *w)
{
    if (w != NULL)
        atomic_store(&w->since_ns, 0);
}
