/* What the files of the recorder share.
 *
 *     record.c          the file: making it, letting it grow, ending it; the table of kernels
 *     runtime/record/count.c    counters and histograms
 *     runtime/record/span.c     the timeline, the activity and the requests
 *     runtime/record/note.c     remarks
 *     runtime/record/op.c       which operation of a framework launched a kernel
 */
#ifndef TALLY_RUNTIME_RECORD_INTERNAL_H
#define TALLY_RUNTIME_RECORD_INTERNAL_H

#include "runtime/record/format.h"

enum {
    RECORD_SLOTS = 2 * TL_RECORD_KERNELS, /* of the hash table; a power of two, at most half full */
    RECORD_NO_KERNEL = UINT32_MAX,
    RECORD_PAIRS = 4096, /* of kernels and operations */
    RECORD_PAIR_SLOTS = 2 * RECORD_PAIRS,
};

/* Launches are counted here, in private memory, and copied to the file a little later by calls that
 * are not in anybody's way: a store into a mapped file may have to wait for the disk, when its page
 * is just being written back. */
struct tl_record_kernel {
    struct {
        _Atomic uint64_t launches, blocks;
    } rungs[TL_RUNGS];
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
    /* mapped up to TL_RECORD_MAX_BYTES; only `ready_bytes` of it may be touched */
    struct tl_record_file *file;
    _Atomic uint64_t ready_bytes;
    _Atomic int is_growing;
    _Atomic uint64_t published_ns;
    _Atomic int fd;          /* -1 after the end: it grows no more */
    struct tl_record *older; /* in the list of abandoned ones */
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
 * and publishes launches. */
void tl__record_alive(struct tl_record *r, uint64_t now);
void tl__record_publish_ops(struct tl_record *r);
void tl__record_count(struct tl_record *r, struct tl_record_histogram *h, uint64_t value);
void tl__record_max(_Atomic uint64_t *max, uint64_t value);

#endif
