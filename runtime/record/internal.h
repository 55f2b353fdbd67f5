/* What the files of the recorder share.
 *
 *     record.c          the file: making it, letting it grow, ending it; the table of kernels
 *     runtime/record/write.c    from memory to the file
 *     runtime/record/count.c    counters and histograms
 *     runtime/record/span.c     the timeline, the activity and the requests
 *     runtime/record/note.c     remarks
 *     runtime/record/op.c       which operation of a framework launched a kernel
 */
#ifndef TALLY_RUNTIME_RECORD_INTERNAL_H
#define TALLY_RUNTIME_RECORD_INTERNAL_H

#include "runtime/record/format.h"
#include "tally/counts.h"
#include "tally/lock.h"

#include <pthread.h>
#include <sys/types.h>

enum {
    RECORD_SLOTS = 2 * TL_RECORD_KERNELS, /* of the hash table; a power of two, at most half full */
    RECORD_NO_KERNEL = UINT32_MAX,
    RECORD_PAIRS = 4096, /* of kernels and operations */
    RECORD_PAIR_SLOTS = 2 * RECORD_PAIRS,
    RECORD_PAGE = 4096, /* what is written at once */
    RECORD_PAGES = TL_RECORD_MAX_BYTES / RECORD_PAGE,
};

/* Launches are counted here, in memory that nothing else lies in, and carried over a little later
 * by who writes the file. */
struct tl_record_kernel {
    struct tl_counts rungs[TL_RUNGS]; /* launches, and their blocks */
    struct tl_record *record;
    _Atomic(struct tl_record_kernel_part *) part; /* NULL: the row is being made */
    uint32_t row;
};

/* How often an operation launched a kernel. */
struct tl_record_pair {
    _Atomic uint64_t key; /* (row of the kernel + 1) << 32 | operation */
    _Atomic uint64_t launches;
    struct tl_record_op_part *shown; /* in the file; NULL: not yet.  Who publishes has it. */
};

struct tl_record {
    /* The file as it shall be, in private memory; up to TL_RECORD_MAX_BYTES, of which there is
     * space on disk for `ready_bytes`.  Nobody outside can take it away. */
    struct tl_record_file *file;
    _Atomic uint64_t ready_bytes;
    _Atomic int is_growing;
    _Atomic uint64_t published_ns;
    _Atomic int fd; /* -1 in a child that has abandoned it */
    /* Which file it is: the job may have closed the descriptor, and have another file under its
     * number. */
    dev_t device;
    ino_t inode;
    char *path;
    _Atomic int is_gone; /* removed, or not to be had any more: nothing is written */
    /* Pages that differ from the file's; set after the change, and before anything leads to what
     * was changed. */
    _Atomic uint8_t is_changed[RECORD_PAGES];
    struct tl_mutex writing; /* who writes has it */
    uint8_t *copies;         /* of pages, while they are written; with the lock */
    size_t copies_bytes;
    bool has_writer; /* a thread */
    pthread_t writer;
    _Atomic int must_stop, is_resting; /* the thread; it looks rarely as long as nothing happens */
    _Atomic uint32_t bell;             /* futex: wakes it */
    struct tl_record *older;           /* in the list of abandoned ones */
    _Atomic uint32_t n_kernels;
    _Atomic(struct tl_record_kernel *) table[RECORD_SLOTS];
    struct tl_record_kernel kernels[TL_RECORD_KERNELS];
    const struct tl_ops *ops; /* NULL: nobody tells of operations */
    _Atomic int is_publishing_ops;
    uint32_t op_names[TL_OPS]; /* offsets; who publishes has them */
    _Atomic uint32_t n_pairs;
    _Atomic uint32_t pair_table[RECORD_PAIR_SLOTS]; /* number of the pair + 1 */
    struct tl_record_pair pairs[RECORD_PAIRS];
};

/* Bytes of the pool, aligned to 8 and zero; 0 if there is no room at the moment.  Lock-free; now
 * and then the call lets the file grow, which is a system call. */
uint32_t tl__record_take(struct tl_record *r, uint32_t bytes);
/* Called with the time by everything but tl_record_launched: tells the reader that the job lives,
 * and the writer that there is something to do. */
void tl__record_alive(struct tl_record *r, uint64_t now);
void tl__record_publish_launches(struct tl_record *r);
void tl__record_publish_ops(struct tl_record *r);
void tl__record_count(struct tl_record *r, struct tl_record_histogram *h, uint64_t value);
void tl__record_max(struct tl_record *r, _Atomic uint64_t *max, uint64_t value);

/* These bytes were changed and are to be written. */
static inline void tl__record_touch(struct tl_record *r, const void *at, size_t bytes)
{
    size_t from = (size_t)((const char *)at - (const char *)r->file), to = from + bytes - 1;
    for (size_t page = from / RECORD_PAGE; page <= to / RECORD_PAGE; page++)
        atomic_store_explicit(&r->is_changed[page], 1, memory_order_release);
}

/* A word that lies within a page, as all words do. */
static inline void tl__record_add(struct tl_record *r, _Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
    tl__record_touch(r, counter, 1);
}

/* --- write.c --- */

/* Space on disk for the bytes from..to.  0 or a negative errno value. */
int tl__record_reserve(int fd, uint64_t from, uint64_t to);
/* The descriptor, if it still is that of the record; else -1. */
int tl__record_descriptor(struct tl_record *r);
/* Everything that has changed goes to the file; true if there was something, or nothing could be
 * written.  Another thread that is at it is waited for, though not for ever. */
bool tl__record_write(struct tl_record *r);
/* Starts the thread that writes, and ends it. */
void tl__record_start(struct tl_record *r);
void tl__record_stop(struct tl_record *r);

#endif
