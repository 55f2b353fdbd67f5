/* From memory to the file.
 *
 * Everything is counted in private memory, and a thread carries pages that have changed into the
 * file every TL_RECORD_WRITE_NS.  So nothing that happens to the file can hurt the job, which would
 * die of a mapped one that somebody truncates, and none of its threads ever waits for a disk.  What
 * a process tells in its last moments before a kill -9 is missing.
 *
 * The file is whole whenever that comes.  What leads to something else lies in front of it (the
 * table of kernels before the pool, a kernel before its histograms), or was made after it.  So
 * pages are first copied in ascending order, and then the copies are written in descending order:
 * a copy that has the reference was made before the copy of what it leads to, which is therefore
 * complete, and is in the file first.
 *
 * A file that has become shorter is written again as a whole; that it happened is noted in it.  One
 * that was removed stays so. */
#include "runtime/record/internal.h"
#include "tally/clock.h"
#include "tally/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    KEPT_BYTES = 64 * RECORD_PAGE, /* of memory for copies, from one time to the next */
    PATIENCE_S = 2,
    QUIET_TURNS = 4 /* with nothing to write, and the thread looks rarely */
};

/* --- the file --- */

int tl__record_reserve(int fd, uint64_t from, uint64_t to)
{
    /* Beyond the limit, the kernel would not only refuse but send SIGXFSZ. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        to > limit.rlim_cur)
        return -EFBIG;
    int rc;
    do
        rc = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
    while (rc == EINTR);
    return -rc;
}

static bool is_of(const struct tl_record *r, int fd, struct stat *st)
{
    return fd >= 0 && fstat(fd, st) == 0 && st->st_dev == r->device && st->st_ino == r->inode;
}

/* The record's descriptor, opened again if the job has closed it; -1 if there is none any more. */
static int descriptor(struct tl_record *r, struct stat *st)
{
    int fd = atomic_load(&r->fd);
    if (fd < 0 || atomic_load(&r->is_gone))
        return -1;
    if (!is_of(r, fd, st)) {
        /* whatever has that number now is not ours to close */
        int again = open(r->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (!is_of(r, again, st)) {
            if (again >= 0)
                close(again);
            again = -1;
        }
        if (again < 0 || !atomic_compare_exchange_strong(&r->fd, &fd, again)) {
            if (again >= 0)
                close(again);
            atomic_store(&r->is_gone, again < 0);
            return -1;
        }
        fd = again;
    }
    if (st->st_nlink == 0) {
        atomic_store(&r->is_gone, 1);
        return -1;
    }
    return fd;
}

/* Is the file shorter than it was made?  Then all of it is to be written again. */
static void find_loss(struct tl_record *r, int fd, const struct stat *st)
{
    uint64_t ready = atomic_load(&r->ready_bytes), used = atomic_load(&r->file->head.pool_used);
    if ((uint64_t)st->st_size >= ready)
        return;
    (void)tl__record_reserve(fd, 0, ready); /* if there is no space, writing says so */
    tl_record_note(r, "somebody cut this record off while the job ran; it was written again");
    tl__record_touch(r, r->file, used);
}

int tl__record_descriptor(struct tl_record *r)
{
    struct stat st;
    int fd = descriptor(r, &st);
    if (fd >= 0)
        find_loss(r, fd, &st);
    return fd;
}

/* --- copies --- */

/* Word by word and in this order: what others change meanwhile is seen as they do it. */
__attribute__((no_sanitize("thread"))) static void copy_page(uint64_t *to, const uint64_t *from)
{
    for (uint32_t i = 0; i < RECORD_PAGE / sizeof *to; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
}

/* Of what is changed in place, marks copies as empty that were made while somebody was at it: their
 * first word is another one now.  `each` divides a page or the copies hold all of it. */
static void drop_torn(const struct tl_record *r, uint8_t *copy, uint32_t page, size_t from,
                      size_t n, size_t each)
{
    const size_t begin = (size_t)page * RECORD_PAGE, end = begin + RECORD_PAGE;
    size_t first = begin > from ? (begin - from + each - 1) / each : 0;
    for (size_t i = first; i < n && from + i * each + sizeof(uint64_t) <= end; i++) {
        uint64_t *there = (uint64_t *)(copy + (from + i * each - begin));
        const _Atomic uint64_t *now = (const void *)((const char *)r->file + from + i * each);
        if (atomic_load_explicit((_Atomic uint64_t *)now, memory_order_acquire) != *there)
            *there = 0;
    }
}

static void drop_all_torn(const struct tl_record *r, uint8_t *copy, uint32_t page)
{
    atomic_thread_fence(memory_order_acquire);
    drop_torn(r, copy, page, offsetof(struct tl_record_file, spans), TL_RECORD_SPANS,
              sizeof(struct tl_record_place));
    drop_torn(r, copy, page, offsetof(struct tl_record_file, slow), TL_RECORD_SLOW,
              sizeof(struct tl_record_slow));
}

/* Memory for that many pages; NULL if there is none. */
static uint8_t *room_for(struct tl_record *r, size_t pages) TL_REQUIRES(r->writing)
{
    size_t bytes = pages * RECORD_PAGE;
    if (bytes <= r->copies_bytes)
        return r->copies;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    if (r->copies != NULL)
        munmap(r->copies, r->copies_bytes);
    r->copies = map;
    r->copies_bytes = bytes;
    return map;
}

static void give_back(struct tl_record *r) TL_REQUIRES(r->writing)
{
    if (r->copies_bytes <= KEPT_BYTES)
        return;
    munmap(r->copies, r->copies_bytes);
    r->copies = NULL;
    r->copies_bytes = 0;
}

/* --- writing --- */

static uint32_t used_pages(const struct tl_record *r)
{
    uint64_t used = atomic_load(&r->file->head.pool_used);
    return used < TL_RECORD_MAX_BYTES ? (uint32_t)((used + RECORD_PAGE - 1) / RECORD_PAGE)
                                      : RECORD_PAGES;
}

static uint32_t count_changed(const struct tl_record *r)
{
    uint32_t n = 0, end = used_pages(r);
    for (uint32_t page = 0; page < end; page++)
        n += atomic_load_explicit(&r->is_changed[page], memory_order_relaxed);
    return n;
}

static bool put(int fd, const uint8_t *bytes, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t done = pwrite(fd, bytes, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        bytes += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return true;
}

/* Writes copies, the last one first and each for itself: a kill can come between any two pages.
 * What could not be written is to be written again. */
static void put_all(struct tl_record *r, int fd, const uint8_t *copies, const uint16_t *pages,
                    uint32_t n)
{
    while (n > 0 && put(fd, copies + (size_t)(n - 1) * RECORD_PAGE, RECORD_PAGE,
                        (uint64_t)pages[n - 1] * RECORD_PAGE))
        n--;
    for (uint32_t i = 0; i < n; i++)
        atomic_store_explicit(&r->is_changed[pages[i]], 1, memory_order_release);
}

/* Carries over what has changed; see above for the order. */
static void write_changed(struct tl_record *r, int fd) TL_REQUIRES(r->writing)
{
    uint32_t end = used_pages(r), most = count_changed(r), n = 0;
    uint16_t *pages = malloc((most > 0 ? most : 1) * sizeof *pages);
    uint8_t *copies = room_for(r, most > 0 ? most : 1);
    for (uint32_t page = 0; pages != NULL && copies != NULL && page < end && n < most; page++) {
        if (atomic_load_explicit(&r->is_changed[page], memory_order_relaxed) == 0 ||
            atomic_exchange_explicit(&r->is_changed[page], 0, memory_order_acq_rel) == 0)
            continue;
        copy_page((uint64_t *)(copies + (size_t)n * RECORD_PAGE),
                  (const uint64_t *)((const char *)r->file + (size_t)page * RECORD_PAGE));
        pages[n++] = (uint16_t)page;
    }
    for (uint32_t i = 0; i < n; i++)
        drop_all_torn(r, copies + (size_t)i * RECORD_PAGE, pages[i]);
    put_all(r, fd, copies, pages, n);
    free(pages);
    give_back(r);
}

/* A limit of the size of files that was lowered meanwhile would be a signal, which ends a job. */
static void write_without_signal(struct tl_record *r, int fd) TL_REQUIRES(r->writing)
{
    sigset_t one, before, pending;
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &one, &before);
    write_changed(r, fd);
    while (!was_pending && sigtimedwait(&one, NULL, &(struct timespec){0, 0}) < 0 && errno == EINTR)
        continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool lock_in_time(struct tl_mutex *lock) TL_LOCK_CHECK(try_acquire_capability(true, *lock));
TL_UNCHECKED static bool lock_in_time(struct tl_mutex *lock)
{
    return tl_thread_lock_within(&lock->m, PATIENCE_S * TL_SECOND_NS) == 0;
}

bool tl__record_write(struct tl_record *r)
{
    if (atomic_load(&r->fd) < 0 || atomic_load(&r->is_gone))
        return false;
    if (!lock_in_time(&r->writing))
        return true;
    tl__record_publish_launches(r);
    tl__record_publish_ops(r);
    bool has_changed = count_changed(r) > 0;
    int fd = tl__record_descriptor(r);
    if (fd >= 0)
        write_without_signal(r, fd);
    tl_mutex_unlock(&r->writing);
    return has_changed;
}

/* --- the thread --- */

static void wait_for_bell(struct tl_record *r, uint32_t seen, uint64_t ns)
{
    struct timespec limit = {(time_t)(ns / TL_SECOND_NS), (long)(ns % TL_SECOND_NS)};
    (void)syscall(SYS_futex, &r->bell, FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0);
}

static void ring(struct tl_record *r)
{
    atomic_fetch_add(&r->bell, 1);
    (void)syscall(SYS_futex, &r->bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void tl_record_wake(struct tl_record *r)
{
    if (r != NULL && atomic_load_explicit(&r->is_resting, memory_order_relaxed) != 0 &&
        atomic_exchange(&r->is_resting, 0) != 0)
        ring(r);
}

static void *keep_writing(void *record)
{
    struct tl_record *r = record;
    uint32_t quiet = 0;
    while (atomic_load(&r->must_stop) == 0 && atomic_load(&r->is_gone) == 0) {
        quiet = tl__record_write(r) ? 0 : quiet + 1;
        uint32_t seen = atomic_load(&r->bell);
        if (atomic_load(&r->must_stop) != 0)
            break;
        if (quiet < QUIET_TURNS) {
            wait_for_bell(r, seen, TL_RECORD_WRITE_NS);
            continue;
        }
        /* seq_cst: who changes something now sees that nobody looks, or we see the change. */
        atomic_store(&r->is_resting, 1);
        if (count_changed(r) == 0)
            wait_for_bell(r, seen, TL_RECORD_REST_NS);
        atomic_store(&r->is_resting, 0);
    }
    return NULL;
}

void tl__record_start(struct tl_record *r)
{
    const struct tl_thread_kind kind = {.name = "tally-record", .stack_bytes = 128 << 10};
    r->has_writer = tl_thread_start(&r->writer, &kind, keep_writing, r) == 0;
}

void tl__record_stop(struct tl_record *r)
{
    if (!r->has_writer)
        return;
    atomic_store(&r->must_stop, 1);
    ring(r);
    pthread_join(r->writer, NULL);
    r->has_writer = false;
}
