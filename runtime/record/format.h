/* A .tally file, as it lies on disk and in the writer's memory, which counts in place and carries
 * pages over (runtime/record/write.c); the reader (runtime/report/read.c) takes a copy and trusts
 * none of it.  docs/report.md has the
 * picture.
 *
 *     struct tl_record_file            fixed part: who, copies, requests, table of kernels, notes, activity, spans
 *     pool                             grows: struct tl_record_kernel_part, names, pieces of histograms
 *
 * Offsets are counted from the beginning of the file; 0 means "none".  Everything is written in an
 * order in which a reader that comes at any moment, also after the writer was killed, finds either
 * nothing or something whole. */
#ifndef TALLY_RUNTIME_RECORD_FORMAT_H
#define TALLY_RUNTIME_RECORD_FORMAT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/record/record.h"

#define TL_RECORD_MAGIC 0x315952594c4c4154ull /* "TALLYRY1", and a check of the byte order */

enum {
    TL_RECORD_VERSION = 5,
    /* rows of the table; number 0 stands for all that do not fit */
    TL_RECORD_KERNELS = 4096,
    TL_RECORD_NOTES = 128,            /* texts */
    TL_RECORD_NOTE_BYTES = 240,       /* of a text, with its final NUL */
    TL_RECORD_SPANS = 16384,          /* places in the ring; a power of two */
    TL_RECORD_SLOTS = 4096,           /* of the activity ring; a power of two */
    TL_RECORD_SLOT_NS = 100000000,    /* how long one is */
    TL_RECORD_SLOW = 64,              /* slowest requests that are kept */
    TL_RECORD_NAME_BYTES = 8191,      /* longer names of kernels are cut */
    TL_RECORD_OP_BYTES = 255,         /* longer names of operations are cut */
    TL_RECORD_MAX_BYTES = 64u << 20,  /* of the whole file */
    TL_RECORD_GROW_BYTES = 256u << 10 /* by which the pool grows */
};

/* --- histograms --- */

/* Log-linear: 64 steps per power of two, so that the middle of a step is at most 1/128 (0.8 %) away
 * from any value in it. Values below 64 are exact; those of TL_HISTOGRAM_GROUPS powers and more
 * fall into the last step.  A group of 64 steps takes space in the pool only once a value falls
 * into it. */
enum { TL_HISTOGRAM_STEPS = 64, TL_HISTOGRAM_GROUPS = 36 };

struct tl_record_steps {
    _Atomic uint64_t counts[TL_HISTOGRAM_STEPS];
};

struct tl_record_histogram {
    _Atomic uint64_t sum, max;
    /* values that are in no group because the pool was full; in sum and max they are */
    _Atomic uint64_t unplaced;
    _Atomic uint32_t groups[TL_HISTOGRAM_GROUPS]; /* offsets of struct tl_record_steps */
};

/* Which step a value falls into: its group and its place there. */
static inline uint32_t tl_histogram_group(uint64_t value, uint32_t *step)
{
    if (value < TL_HISTOGRAM_STEPS) {
        *step = (uint32_t)value;
        return 0;
    }
    /* the highest bit of 64..127 is 6: group 1 */
    uint32_t group = 58 - (uint32_t)__builtin_clzll(value);
    if (group >= TL_HISTOGRAM_GROUPS) {
        *step = TL_HISTOGRAM_STEPS - 1;
        return TL_HISTOGRAM_GROUPS - 1;
    }
    *step = (uint32_t)(value >> (group - 1)) - TL_HISTOGRAM_STEPS;
    return group;
}

/* The smallest value of a step and how many values it holds. */
static inline uint64_t tl_histogram_low(uint32_t group, uint32_t step, uint64_t *width)
{
    *width = group == 0 ? 1 : UINT64_C(1) << (group - 1);
    return group == 0 ? step : (uint64_t)(TL_HISTOGRAM_STEPS + step) << (group - 1);
}

/* --- the pool --- */

struct tl_record_kernel_part {
    _Atomic uint64_t launches[TL_RUNGS], blocks[TL_RUNGS];
    _Atomic uint64_t uncontrolled, uncontrolled_ns;
    _Atomic uint64_t rescues;
    struct tl_record_histogram queued, ran, total, preempted; /* in nanoseconds */
    /* the same as `preempted`, in thousandths of the time of a block */
    struct tl_record_histogram preempted_blocks;
    uint32_t name_bytes;  /* without a NUL; the name follows */
    _Atomic uint32_t ops; /* offset of the first struct tl_record_op_part */
};

/* How often an operation of the job's framework launched the kernel; a list. */
struct tl_record_op_part {
    _Atomic uint64_t launches;
    uint32_t name; /* offset of a struct tl_record_op_name */
    uint32_t next; /* offset of the next one */
};

struct tl_record_op_name {
    uint32_t bytes; /* without a NUL; the name follows */
    uint32_t reserved;
};

/* --- the fixed part --- */

struct tl_record_head {
    uint64_t magic;
    uint32_t version;
    /* sizeof(struct tl_record_file): a check that writer and reader mean the same */
    uint32_t fixed_bytes;
    uint32_t pid, rungs, spans, copies; /* the sizes of these enumerations when it was written */
    int32_t level;
    uint32_t is_opaque;
    uint64_t begin_ns;      /* of the monotonic clock, as all times */
    uint64_t begin_wall_ns; /* the same moment since 1970 */
    uint8_t boot[16];       /* of the machine's start: times of different boots do not compare */
    char name[128], command[1024], device[128], policy[64], host[64];
    _Atomic uint64_t first_ns;  /* when something was first told of, 0 if nothing was */
    _Atomic uint64_t last_ns;   /* the writer lived at least until then */
    _Atomic uint64_t end_ns;    /* it ended in order; 0: it runs, or was killed */
    _Atomic uint64_t pool_used; /* where the free part of the pool begins */
    /* the pool or the disk was full at some time: something is missing */
    _Atomic uint32_t is_full;
    uint32_t graphs; /* the size of that enumeration, too */
};

struct tl_record_slow {
    _Atomic uint64_t latency_ns; /* 0: free; UINT64_MAX: being written */
    _Atomic uint64_t begin_ns;
    _Atomic uint64_t culprit_ns;    /* how long its slowest kernel took, waiting included */
    _Atomic uint64_t culprit_wait;  /* of that, how long it waited */
    _Atomic uint32_t culprit;       /* row of the kernel; UINT32_MAX: not known */
    _Atomic uint32_t is_marked;     /* else it was inferred */
    _Atomic uint64_t kernels, busy; /* spans inside, and the sum of their time on the device */
};

/* Tenths of a second of the whole run; the slot of time t is number t / TL_RECORD_SLOT_NS, modulo
 * the ring. */
struct tl_record_slot {
    _Atomic uint64_t number; /* of the tenth of a second; another one: old */
    _Atomic uint64_t run_ns, wait_ns;
    _Atomic uint64_t requests, slowest_ns;
};

struct tl_record_note {
    _Atomic uint64_t state; /* 0: free; hash << 1: being written; hash << 1 | 1: there */
    _Atomic uint64_t times;
    char text[TL_RECORD_NOTE_BYTES];
};

struct tl_record_place {
    _Atomic uint64_t stamp; /* 0: being written; else (number of the span + 1) << 8 | kind */
    _Atomic uint64_t begin_ns, end_ns;
    _Atomic uint32_t kernel; /* row, or UINT32_MAX */
    _Atomic uint32_t stream;
};

struct tl_record_file {
    struct tl_record_head head;
    struct {
        _Atomic uint64_t count, bytes;
    } copies[8];
    _Atomic uint64_t graphs[16];
    struct tl_record_histogram requests[2]; /* inferred, marked */
    struct tl_record_slow slow[TL_RECORD_SLOW];
    _Atomic uint32_t kernels[TL_RECORD_KERNELS]; /* offsets */
    struct tl_record_note notes[TL_RECORD_NOTES];
    struct tl_record_slot slots[TL_RECORD_SLOTS];
    _Alignas(64) _Atomic uint64_t n_spans; /* written so far, the forgotten ones included */
    _Alignas(64) struct tl_record_place spans[TL_RECORD_SPANS];
};

_Static_assert(sizeof(struct tl_record_histogram) == 168, "part of the format");
_Static_assert(sizeof(struct tl_record_kernel_part) == 984, "part of the format");
_Static_assert(sizeof(struct tl_record_op_part) == 16 && sizeof(struct tl_record_op_name) == 8,
               "part of the format");
_Static_assert(sizeof(struct tl_record_head) == 1520, "part of the format");
_Static_assert(sizeof(struct tl_record_slow) == 56 && sizeof(struct tl_record_note) == 256,
               "part of the format");
_Static_assert(sizeof(struct tl_record_slot) == 40 && sizeof(struct tl_record_place) == 32,
               "part of the format");
_Static_assert(offsetof(struct tl_record_file, kernels) == 5696, "part of the format");
_Static_assert(sizeof(struct tl_record_file) == 743040, "part of the format");
_Static_assert((TL_RECORD_SPANS & (TL_RECORD_SPANS - 1)) == 0 &&
                   (TL_RECORD_SLOTS & (TL_RECORD_SLOTS - 1)) == 0,
               "rings");

#endif
