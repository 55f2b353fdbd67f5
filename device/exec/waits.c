/* What this process lost to others, written down span by span in a mapped file: whole after every
 * instruction, however the process ends.  Threads that end and begin spans at once take turns, so
 * each span is kept once. */
#include "device/exec/waits.h"
#include "device/exec/sm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tally/clock.h"
#include "tally/lock.h"

struct tl__waits {
    struct tl__waits_file *file;
    size_t bytes;
    struct tl_mutex lock;
    _Atomic uint64_t since_ns; /* 0: nothing waits; changed with the lock */
    /* by SM: what its holders had told then; with the lock */
    struct {
        uint64_t told_ns, total_ns;
    } then[MAX_SLOTS];
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
    w->bytes = sizeof *w->file + TL__WAITS_MAX * sizeof w->file->spans[0];
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)w->bytes) < 0) {
        int rc = tl_error_errno(err, "TALLY_DEVICE_WAITS: cannot make %s", path);
        if (fd >= 0)
            close(fd);
        free(w);
        return rc;
    }
    w->file = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (w->file == MAP_FAILED) {
        int rc = tl_error_errno(err, "TALLY_DEVICE_WAITS: cannot map %s", path);
        free(w);
        return rc;
    }
    tl_mutex_init(&w->lock);
    w->file->magic = TL__WAITS_MAGIC;
    *out = w;
    return 0;
}

void tl__waits_destroy(struct tl__waits *w)
{
    if (w == NULL)
        return;
    munmap(w->file, w->bytes);
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
        atomic_store_explicit(&w->since_ns, tl_clock_ns(), memory_order_relaxed);
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
        most = ran > most ? ran : most;
    }
    return was_left ? most : now - since;
}

static void keep(struct tl__waits *w, uint64_t begin, uint64_t lost) TL_REQUIRES(w->lock)
{
    uint64_t n = atomic_load(&w->file->n);
    if (n >= TL__WAITS_MAX) {
        atomic_fetch_add(&w->file->n_dropped, 1);
        return;
    }
    w->file->spans[n].begin_ns = begin;
    w->file->spans[n].end_ns = begin + lost;
    atomic_store(&w->file->n, n + 1);
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

void tl__waits_forget(struct tl__waits *w)
{
    if (w != NULL)
        atomic_store(&w->since_ns, 0);
}
