/* What this process lost to others, written down span by span in a mapped file: whole after every
 * instruction, however the process ends.  Threads that end and begin spans at once are told apart
 * by an exchange of the begin, so each span is kept once. */
#include "device/exec/waits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tally/clock.h"

struct tl__waits {
    struct tl__waits_file *file;
    size_t bytes;
    _Atomic uint64_t since_ns; /* 0: nothing waits */
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
    w->file->magic = TL__WAITS_MAGIC;
    *out = w;
    return 0;
}

void tl__waits_destroy(struct tl__waits *w)
{
    if (w == NULL)
        return;
    munmap(w->file, w->bytes);
    free(w);
}

void tl__waits_begin(struct tl__waits *w)
{
    uint64_t never = 0;
    if (w != NULL && atomic_load_explicit(&w->since_ns, memory_order_relaxed) == 0)
        atomic_compare_exchange_strong(&w->since_ns, &never, tl_clock_ns());
}

void tl__waits_end(struct tl__waits *w)
{
    uint64_t since = w != NULL ? atomic_exchange(&w->since_ns, 0) : 0;
    if (since == 0)
        return;
    uint64_t n = atomic_load(&w->file->n);
    do {
        if (n >= TL__WAITS_MAX) {
            atomic_fetch_add(&w->file->n_dropped, 1);
            return;
        }
    } while (!atomic_compare_exchange_weak(&w->file->n, &n, n + 1));
    w->file->spans[n].begin_ns = since;
    w->file->spans[n].end_ns = tl_clock_ns();
}

void tl__waits_forget(struct tl__waits *w)
{
    if (w != NULL)
        atomic_store(&w->since_ns, 0);
}
