/* A graph as sub-graphs of bounded time, and single steps between them: made once, launched one
 * after the other, between which the job gives way. */
#ifndef TALLY_EFFORT_PARTS_H
#define TALLY_EFFORT_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"

struct tl_eff_context;
struct tl_eff_cut_step;
struct tl_eff_item;
struct tl_eff_parts;
struct tl_eff_steps;
struct tl_eff_stream;
struct tl_record_kernel;

/* Neighbouring steps.  What was made of them never changes; the rest is under the lock. */
struct tl_eff_part {
    struct tl_eff_parts *of;
    uint32_t first, n;
    CUgraphExec exec; /* NULL: a single step, which goes its own way */
    uint64_t blocks;
    struct tl_eff_part_kernel {
        struct tl_record_kernel *record;
        uint64_t blocks;
    } * kernels; /* for counting */
    uint32_t n_kernels;
    uint64_t ns;       /* predicted: that its steps take one after the other */
    uint64_t least_ns; /* measured; 0 if it was not */
    uint32_t n_samples, n_launches;
};

struct tl_eff_parts {
    struct tl_eff_parts *next; /* among those that nobody needs any more */
    uint32_t refs;             /* under the lock, as the next ones */
    bool is_too_long;          /* some part takes longer than it should */
    const struct tl_eff_context *context;
    uint64_t bound_ns;
    struct tl_eff_part *list;
    uint32_t n, n_subgraphs;
};

/* In a queue: one launch of a sub-graph. */
struct tl_eff_part_launch {
    struct tl_eff_part *part; /* with a reference to what it is of */
    uint64_t ready_ns;        /* since when it has stood ready without a permit */
};

/* Cuts a graph, with one step's time and nature for each of its steps.  The stream's context is
 * current.  NULL if the driver refuses a sub-graph, or without memory; the caller has the
 * reference. */
struct tl_eff_parts *tl_eff_parts_make(const struct tl_eff_steps *steps,
                                       const struct tl_eff_cut_step *times, uint64_t bound_ns,
                                       struct tl_eff_context *context) TL_EFF_UNLOCKED;
/* Whether it would be cut so again.  If so, the predictions become the new ones. */
bool tl_eff_parts_stay(struct tl_eff_parts *p, const struct tl_eff_cut_step *times, uint32_t n,
                       uint64_t bound_ns) TL_EFF_UNLOCKED;
/* Puts all parts into the stream. */
CUresult tl_eff_parts_launch(struct tl_eff_parts *p, const struct tl_eff_steps *steps,
                             struct tl_eff_stream *s) TL_EFF_UNLOCKED;
/* Gives up a reference; NULL is fine. */
void tl_eff_parts_unref(struct tl_eff_parts *p) TL_EFF_LOCKED;
/* Ends what nobody needs any more.  The lock is given up meanwhile. */
void tl_eff_parts_bury(void) TL_EFF_LOCKED;
/* Launches the sub-graph at the head of its stream, if it may be.  The lock is given up meanwhile.
 * Executor only. */
bool tl_eff_part_advance(struct tl_eff_stream *s, struct tl_eff_item *item,
                         uint64_t now) TL_EFF_LOCKED;
/* It took so long. */
void tl_eff_part_ran(struct tl_eff_part *part, uint64_t ns) TL_EFF_LOCKED;

#endif
