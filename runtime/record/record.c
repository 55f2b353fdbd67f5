/* A record: making it, letting it grow, ending it; and the table of kernels.
 *
 * It lies in private memory (runtime/record/write.c carries it into the file), at the largest size
 * that it may ever have.  Space in the file is asked for before it is used there, so that a full
 * disk is known when something new is to be kept, and what is there can always be written. */
#include "runtime/record/internal.h"
#include "tally/clock.h"
#include "tally/file.h"
#include "tally/hash.h"

#include "tally/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t tl_record_now(void)
{
    return tl_clock_ns();
}

/* --- growing --- */

/* Asks for more space behind what is ready; one thread at a time, the others go on without.  If
 * there is none, that is noted in the record, once. */
static void grow(struct tl_record *r)
{
    if (atomic_exchange(&r->is_growing, 1) != 0)
        return; /* somebody does it already */
    uint64_t ready = atomic_load(&r->ready_bytes);
    uint64_t to = ready + TL_RECORD_GROW_BYTES;
    int fd = tl__record_descriptor(r);
    bool has_room = atomic_load(&r->file->head.pool_used) + TL_RECORD_GROW_BYTES / 2 <= ready;
    int rc = 0;
    if (fd < 0 || has_room) {
        atomic_store(&r->is_growing, 0);
        return;
    }
    if (to > TL_RECORD_MAX_BYTES)
        rc = -EFBIG;
    else
        rc = tl__record_reserve(fd, ready, to);
    if (rc == 0) {
        atomic_store(&r->ready_bytes, to);
        atomic_store(&r->is_growing, 0);
        return;
    }
    /* is_growing stays: there is nothing to try again. */
    char text[TL_RECORD_NOTE_BYTES];
    atomic_store(&r->file->head.is_full, 1);
    tl__record_touch(r, &r->file->head.is_full, 1);
    if (to > TL_RECORD_MAX_BYTES)
        snprintf(text, sizeof text,
                 "this record is full (%u MB): kernels and values that came later are missing",
                 TL_RECORD_MAX_BYTES >> 20);
    else
        snprintf(text, sizeof text,
                 "the record could not grow (%s): kernels and values that came later are missing",
                 strerror(-rc));
    tl_record_note(r, text);
}

uint32_t tl__record_take(struct tl_record *r, uint32_t bytes)
{
    _Atomic uint64_t *used = &r->file->head.pool_used;
    bytes = (bytes + 7) & ~7u;
    uint64_t at = atomic_load_explicit(used, memory_order_relaxed);
    for (;;) {
        uint64_t ready = atomic_load_explicit(&r->ready_bytes, memory_order_acquire);
        if (at < sizeof(struct tl_record_file) || at + bytes > ready) {
            grow(r);
            if (at < sizeof(struct tl_record_file) ||
                at + bytes > atomic_load_explicit(&r->ready_bytes, memory_order_acquire))
                return 0;
            continue;
        }
        if (!atomic_compare_exchange_weak_explicit(used, &at, at + bytes, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        TL_CHECK(at % 8 == 0 && at + bytes <= TL_RECORD_MAX_BYTES);
        tl__record_touch(r, used, 1);
        if (at + bytes + TL_RECORD_GROW_BYTES / 2 > ready)
            grow(r); /* before anybody has to go without */
        return (uint32_t)at;
    }
}

/* --- kernels --- */

static struct tl_record_kernel_part *part_of(const struct tl_record_kernel *k)
{
    return atomic_load_explicit(&((struct tl_record_kernel *)k)->part, memory_order_acquire);
}

static uint32_t take_patiently(struct tl_record *r, uint32_t bytes)
{
    uint32_t at = tl__record_take(r, bytes);
    /* Whoever lets the file grow right now will soon be done. */
    for (int tries = 0; at == 0 && tries < 1000 && atomic_load(&r->fd) >= 0 &&
                        atomic_load(&r->is_gone) == 0 && r->file->head.is_full == 0;
         tries++) {
        sched_yield();
        at = tl__record_take(r, bytes);
    }
    return at;
}

/* A new row that nobody sees yet; NULL if there is no room. */
static struct tl_record_kernel *make_kernel(struct tl_record *r, const char *name, size_t n)
{
    if (atomic_load_explicit(&r->n_kernels, memory_order_relaxed) >= TL_RECORD_KERNELS)
        return NULL;
    uint32_t at = take_patiently(r, (uint32_t)(sizeof(struct tl_record_kernel_part) + n));
    if (at == 0)
        return NULL;
    uint32_t row = atomic_fetch_add_explicit(&r->n_kernels, 1, memory_order_relaxed);
    if (row >= TL_RECORD_KERNELS)
        return NULL;
    struct tl_record_kernel_part *part = (struct tl_record_kernel_part *)((char *)r->file + at);
    part->name_bytes = (uint32_t)n;
    memcpy(part + 1, name, n);
    tl__record_touch(r, part, sizeof *part + n);
    struct tl_record_kernel *k = &r->kernels[row];
    k->record = r;
    k->row = row;
    atomic_store_explicit(&k->part, part, memory_order_release);
    return k;
}

/* Shows the row to readers of the file. */
static void show_kernel(struct tl_record *r, const struct tl_record_kernel *k)
{
    uint32_t at = (uint32_t)((char *)part_of(k) - (char *)r->file);
    TL_CHECK(k->row < TL_RECORD_KERNELS && at >= sizeof(struct tl_record_file));
    atomic_store_explicit(&r->file->kernels[k->row], at, memory_order_release);
    tl__record_touch(r, &r->file->kernels[k->row], 1);
}

static bool is_named(const struct tl_record_kernel *k, const char *name, size_t n)
{
    const struct tl_record_kernel_part *part = part_of(k);
    return part->name_bytes == n && memcmp(part + 1, name, n) == 0;
}

struct tl_record_kernel *tl_record_kernel(struct tl_record *r, const char *name)
{
    if (r == NULL)
        return NULL;
    size_t n = strnlen(name, TL_RECORD_NAME_BYTES);
    struct tl_record_kernel *made = NULL;
    for (uint32_t probe = tl_hash(name, n);; probe++) {
        _Atomic(struct tl_record_kernel *) *slot = &r->table[probe % RECORD_SLOTS];
        struct tl_record_kernel *k = atomic_load_explicit(slot, memory_order_acquire);
        if (k == NULL) {
            if (made == NULL)
                made = make_kernel(r, name, n);
            if (made == NULL)
                return &r->kernels[0];
            if (atomic_compare_exchange_strong_explicit(slot, &k, made, memory_order_acq_rel,
                                                        memory_order_acquire)) {
                show_kernel(r, made);
                return made;
            }
        }
        /* A row that was made here and loses to another thread's of the same name is never shown:
         * its space is lost. */
        if (is_named(k, name, n))
            return k;
    }
}

/* --- publishing launches --- */

void tl__record_publish_launches(struct tl_record *r)
{
    uint32_t n = atomic_load_explicit(&r->n_kernels, memory_order_relaxed);
    for (uint32_t i = 0; i < n && i < TL_RECORD_KERNELS; i++) {
        struct tl_record_kernel *k = &r->kernels[i];
        struct tl_record_kernel_part *part = part_of(k);
        if (part == NULL)
            continue;
        for (int g = 0; g < TL_RUNGS; g++) {
            uint64_t launches = tl_counts_sum(&k->rungs[g], 0);
            uint64_t blocks = tl_counts_sum(&k->rungs[g], 1);
            /* Pages of kernels that stand still are not dirtied. */
            if (launches != atomic_load_explicit(&part->launches[g], memory_order_relaxed)) {
                atomic_store_explicit(&part->launches[g], launches, memory_order_relaxed);
                atomic_store_explicit(&part->blocks[g], blocks, memory_order_relaxed);
                tl__record_touch(r, part, sizeof *part);
            }
        }
    }
}

void tl__record_alive(struct tl_record *r, uint64_t now)
{
    uint64_t told = atomic_load_explicit(&r->published_ns, memory_order_relaxed);
    tl_record_wake(r);
    if (now < told + TL_RECORD_WRITE_NS / 2)
        return;
    if (!atomic_compare_exchange_strong_explicit(&r->published_ns, &told, now, memory_order_relaxed,
                                                 memory_order_relaxed))
        return; /* another thread does it */
    if (told == 0)
        atomic_store_explicit(&r->file->head.first_ns, now, memory_order_relaxed);
    tl__record_max(r, &r->file->head.last_ns, now);
    if (!r->has_writer)
        (void)tl__record_write(r);
}

void tl_record_sync(struct tl_record *r)
{
    if (r == NULL)
        return;
    tl__record_max(r, &r->file->head.last_ns, tl_record_now());
    (void)tl__record_write(r);
}

/* --- opening --- */

/* Makes a folder and those above it. */
static int make_folder(const char *path, struct tl_error *err)
{
    char *copy = strdup(path);
    if (copy == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory");
    for (char *slash = strchr(copy + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(copy, 0777); /* if it fails, so does the last one */
        *slash = '/';
    }
    int rc = 0;
    if (mkdir(copy, 0777) < 0 && errno != EEXIST)
        rc = tl_error_errno(err, "cannot make the folder %s for reports", path);
    free(copy);
    return rc;
}

/* The job's name as a part of a file's name. */
static void safe_name(char out[101], const char *name)
{
    size_t n = 0;
    for (; name[n] != 0 && n < 100; n++) {
        char c = name[n];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        out[n] = is_plain || c == '-' || c == '_' || c == '+' || (c == '.' && n > 0) ? c : '_';
    }
    out[n] = 0;
}

/* A new file FOLDER/<name>.<pid>.tally, or ….2.tally and so on if a process of that number has
 * written one before. A descriptor or a negative errno value. */
static int create_file(char path[PATH_MAX], const char *folder, const char *name,
                       struct tl_error *err)
{
    char safe[101];
    safe_name(safe, name[0] != 0 ? name : "job");
    for (unsigned i = 1; i < 10000; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, ".%u", i);
        int n = snprintf(path, PATH_MAX, "%s/%s.%ld%s.tally", folder, safe, (long)getpid(), number);
        if (n >= PATH_MAX)
            return tl_error_set(err, -ENAMETOOLONG, "the report folder's name is too long: %s",
                                folder);
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0)
            return fd;
        if (errno != EEXIST)
            return tl_error_errno(err, "cannot make the report %s", path);
    }
    return tl_error_set(err, -EEXIST, "the folder %s has too many reports of %s.%ld", folder, safe,
                        (long)getpid());
}

static void put_text(char *out, size_t size, const char *text)
{
    if (text != NULL)
        snprintf(out, size, "%s", text);
}

/* The machine's boot, as 16 bytes; zeroes if it does not say. */
static void read_boot(uint8_t boot[16])
{
    char text[64] = "";
    int n = tl_file_head("/proc/sys/kernel/random/boot_id", text, sizeof text), digits = 0;
    for (int i = 0; i < n && digits < 32; i++) {
        char c = text[i];
        int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0)
            continue;
        boot[digits / 2] = (uint8_t)(boot[digits / 2] << 4 | value);
        digits++;
    }
}

static void fill_head(struct tl_record_head *h, const struct tl_record_job *job)
{
    h->version = TL_RECORD_VERSION;
    h->fixed_bytes = sizeof(struct tl_record_file);
    h->pid = (uint32_t)getpid();
    h->rungs = TL_RUNGS;
    h->spans = TL_SPANS;
    h->copies = TL_COPIES;
    h->graphs = TL_GRAPH_COUNTS;
    h->level = job->level;
    h->is_opaque = job->is_opaque;
    h->begin_ns = tl_record_now();
    h->begin_wall_ns = tl_clock_of(CLOCK_REALTIME);
    read_boot(h->boot);
    put_text(h->name, sizeof h->name, job->name);
    put_text(h->command, sizeof h->command, job->command);
    put_text(h->device, sizeof h->device, job->device);
    put_text(h->policy, sizeof h->policy, job->policy);
    gethostname(h->host, sizeof h->host - 1);
    atomic_init(&h->last_ns, h->begin_ns);
    atomic_init(&h->pool_used, sizeof(struct tl_record_file));
}

/* Frees what tl_record_open has made; no thread is at it any more. */
static void release(struct tl_record *r)
{
    if (r->file != NULL)
        munmap(r->file, TL_RECORD_MAX_BYTES);
    if (r->copies != NULL)
        munmap(r->copies, r->copies_bytes);
    tl_mutex_destroy(&r->writing);
    free(r->path);
    free(r);
}

/* The memory, the space on disk for what a record begins with, and which file it is. */
static int prepare(struct tl_record *r, int fd, const char *path, struct tl_error *err)
{
    struct stat st;
    uint64_t ready = sizeof(struct tl_record_file) + TL_RECORD_GROW_BYTES;
    int rc = tl__record_reserve(fd, 0, ready);
    if (rc < 0)
        return tl_error_set(err, rc, "no space for the report %s: %s", path, strerror(-rc));
    r->path = realpath(path, NULL);
    if (r->path == NULL || fstat(fd, &st) < 0)
        return tl_error_errno(err, "cannot find the report %s again", path);
    void *map = mmap(NULL, TL_RECORD_MAX_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return tl_error_errno(err, "no memory for the report %s", path);
    r->file = map;
    r->device = st.st_dev;
    r->inode = st.st_ino;
    atomic_init(&r->fd, fd);
    atomic_init(&r->ready_bytes, ready);
    return 0;
}

int tl_record_open(struct tl_record **out, const char *folder, const struct tl_record_job *job,
                   struct tl_error *err)
{
    char path[PATH_MAX];
    *out = NULL;
    int rc = make_folder(folder, err);
    if (rc < 0)
        return rc;
    int fd = create_file(path, folder, job->name != NULL ? job->name : "", err);
    if (fd < 0)
        return fd;
    fd = tl_file_lift(fd);
    struct tl_record *r = calloc(1, sizeof *r);
    if (r == NULL) {
        rc = tl_error_set(err, -ENOMEM, "out of memory");
        goto out_fd;
    }
    tl_mutex_init(&r->writing);
    rc = prepare(r, fd, path, err);
    if (rc < 0)
        goto out_record;
    r->ops = job->ops;
    fill_head(&r->file->head, job);
    struct tl_record_kernel *others = make_kernel(r, "(all others)", strlen("(all others)"));
    if (others != NULL)
        show_kernel(r, others);
    r->file->head.magic = TL_RECORD_MAGIC;
    tl__record_touch(r, &r->file->head, sizeof r->file->head);
    (void)tl__record_write(r); /* a reader that finds a head finds the rest */
    tl__record_start(r);
    *out = r;
    return 0;
out_record:
    release(r);
out_fd:
    close(fd);
    return rc;
}

/* --- ending --- */

void tl_record_end(struct tl_record *r)
{
    if (r == NULL)
        return;
    atomic_store(&r->file->head.end_ns, tl_record_now());
    tl__record_touch(r, &r->file->head.end_ns, 1);
    tl_record_sync(r);
}

void tl_record_close(struct tl_record *r)
{
    if (r == NULL)
        return;
    tl__record_stop(r);
    tl_record_end(r);
    int fd = tl__record_descriptor(r);
    if (fd >= 0) {
        (void)tl__record_write(r); /* what was cut off meanwhile */
        /* Gives back what was reserved ahead; if that fails, the file is merely longer. */
        if (ftruncate(fd, (off_t)atomic_load(&r->file->head.pool_used)) < 0)
            errno = 0;
        close(fd);
    }
    release(r);
}

/* Abandoned records are kept, for whoever still has a kernel of one. */
static _Atomic(struct tl_record *) abandoned;

void tl_record_abandon(struct tl_record *r)
{
    if (r == NULL)
        return;
    /* The parent's, or whatever its program has put there: the child's copy is closed only if it is
     * the former. */
    struct stat st;
    int fd = atomic_exchange(&r->fd, -1);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == r->device && st.st_ino == r->inode)
        close(fd);
    r->has_writer = false; /* it is the parent's */
    atomic_store(&r->is_growing, 1);
    atomic_store(&r->is_resting, 0);
    r->older = atomic_load(&abandoned);
    atomic_store(&abandoned, r);
}
