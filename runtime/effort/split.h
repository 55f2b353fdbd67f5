/* Large copies in pieces, between which a job gives way. */
#ifndef TALLY_EFFORT_SPLIT_H
#define TALLY_EFFORT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/real.h"

struct tl_eff_item;
struct tl_eff_stream;

/* A copy and how far it has come: bytes of a line, or rows of a box. */
struct tl_eff_split {
    /* of a line its arguments are {to, from, bytes, stream}, the last of which some have not; of a
     * box {CUDA_MEMCPY2D, stream} */
    struct tl_eff_call call;
    bool is_box;
    size_t total, done, step;
    uint64_t step_ns; /* predicted, of one piece */
};

/* Whether the copy is one that is made in pieces now: it is large, somebody is above, the stream is
 * not captured, and the memory is what the driver would take.  Fills `out`. */
bool tl_eff_split_line(const struct tl_eff_stream *s, const struct tl_eff_call *c,
                       bool is_on_device, struct tl_eff_split *out) TL_EFF_UNLOCKED;
bool tl_eff_split_box(const struct tl_eff_stream *s, const struct tl_eff_call *c,
                      struct tl_eff_split *out) TL_EFF_UNLOCKED;

/* Queues it.  Nothing that it names may be the caller's, but for a box, which is copied. */
CUresult tl_eff_split_queue(struct tl_eff_stream *s, const struct tl_eff_split *x) TL_EFF_UNLOCKED;
/* Makes it in the calling thread, when its turn comes. */
CUresult tl_eff_split_in_turn(struct tl_eff_stream *s,
                              const struct tl_eff_split *x) TL_EFF_UNLOCKED;
/* The same by `make`, which waits for a turn itself. */
CUresult tl_eff_split_each(const struct tl_eff_split *x,
                           CUresult (*make)(const struct tl_eff_call *c)) TL_EFF_UNLOCKED;
/* One more piece of a queued one, if it may be.  The lock is given up meanwhile.  Executor only. */
bool tl_eff_split_advance(struct tl_eff_stream *s, struct tl_eff_item *item,
                          uint64_t now) TL_EFF_LOCKED;

#endif
