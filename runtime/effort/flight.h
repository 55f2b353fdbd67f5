/* What is on the device, and the news of its end. */
#ifndef TALLY_EFFORT_FLIGHT_H
#define TALLY_EFFORT_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"

struct tl_eff_control;
struct tl_eff_item;
struct tl_eff_kernel;
struct tl_eff_part;
struct tl_eff_profile;
struct tl_eff_stream;

/* A launch on the device whose end is watched for.  The executor's own once it is made, but for
 * `told` and `told_ns`, which a thread of the driver writes; what others read of it (kernel,
 * is_over) is under the lock. */
struct tl_eff_piece {
    struct tl_eff_piece *next;
    struct tl_eff_stream *stream;
    CUstream on; /* where it was launched: that stream's handle, or one beside it */
    /* the kernel that it is a piece of; NULL for a mark behind whole kernels */
    struct tl_eff_item *item;
    struct tl_eff_kernel *kernel; /* of a single whole one that is measured, or NULL */
    struct tl_eff_profile *profile;
    struct tl_eff_part *part;   /* a sub-graph that is measured, or NULL: a reference */
    struct tl_eff_launch shape; /* of that one: grid and so on */
    CUevent begin, end;
    _Atomic uint32_t told; /* its host function has run */
    _Atomic uint64_t told_ns;
    bool is_rescue;   /* launched beside others of its kernel that stood still; it never stops */
    bool is_over;     /* seen by the executor */
    bool is_lost;     /* it was refused, or the context failed: its host function will not run */
    CUresult refusal; /* of the launch itself */
    uint32_t n_kernels;
    uint32_t blocks;
    uint32_t words_epoch;
    uint64_t predicted_ns, launched_ns;
    /* of the kernel that it was launched behind, or NULL: a reference */
    struct tl_eff_control *in_front;
};

struct tl_eff_flight {
    struct tl_eff_piece *pieces, **end;
    uint32_t n_pieces, n_unmarked;
    uint64_t ns;      /* predicted, of both */
    bool has_backlog; /* as told to tallyd */
};
extern struct tl_eff_flight tl_eff_flight TL_EFF_GUARDED;

/* Forgets all. */
void tl_eff_flight_start(void) TL_EFF_UNLOCKED;

/* A launch on its way, NULL if there is no memory; and what follows once it is made. */
struct tl_eff_piece *tl_eff_make_piece(struct tl_eff_stream *s) TL_EFF_LOCKED;
void tl_eff_add_flying(struct tl_eff_piece *p) TL_EFF_LOCKED;
/* Puts an event in front of what is launched next, to measure it.  Executor only. */
void tl_eff_stamp(struct tl_eff_piece *p) TL_EFF_UNLOCKED;
/* Puts event and host function behind what was launched.  Executor only. */
CUresult tl_eff_watch(struct tl_eff_piece *p) TL_EFF_UNLOCKED;
/* Looks at what has come back.  With `ask`, the driver is asked as well.  The lock is given up
 * meanwhile.  True if something did. */
bool tl_eff_collect(bool ask) TL_EFF_LOCKED;
/* Whether a piece of the kernel is on the device. */
bool tl_eff_is_on_device(const struct tl_eff_kernel *k) TL_EFF_LOCKED;
/* A whole kernel was launched: it is accounted for. */
void tl_eff_unmarked(struct tl_eff_stream *s, uint64_t predicted_ns, uint64_t now) TL_EFF_LOCKED;
/* What of a stream is with the driver unwatched, as it stood before somebody waited for it. */
struct tl_eff_unwatched {
    uint32_t n, n_marked;
    uint64_t ns; /* predicted */
};
struct tl_eff_unwatched tl_eff_unwatched(const struct tl_eff_stream *s) TL_EFF_LOCKED;
/* Everything that was unwatched then is known to be over. */
void tl_eff_unmark(struct tl_eff_stream *s, const struct tl_eff_unwatched *then) TL_EFF_LOCKED;
/* Puts a mark behind what was launched.  The lock is given up meanwhile.  Only while something of
 * the job is queued in the stream: whoever finds it idle otherwise would be told that it is not. */
void tl_eff_mark(struct tl_eff_stream *s) TL_EFF_LOCKED;
/* Asks whether what is unwatched is over, and puts nothing into the stream.  The lock is given up
 * meanwhile. */
void tl_eff_look(struct tl_eff_stream *s) TL_EFF_LOCKED;
/* Between these two no mark is put into the stream. */
void tl_eff_marks_off(struct tl_eff_stream *s) TL_EFF_LOCKED;
void tl_eff_marks_on(struct tl_eff_stream *s) TL_EFF_LOCKED;
/* Launches a whole kernel and watches it to learn its time.  The lock is given up meanwhile. */
CUresult tl_eff_launch_measured(struct tl_eff_stream *s,
                                const struct tl_eff_launch *l) TL_EFF_LOCKED;
/* Tells pieces to leave if the grant or the words ask for it, and notes stops. */
void tl_eff_kick(void) TL_EFF_LOCKED;
/* Our own word follows what is in flight. */
void tl_eff_tell_word(void) TL_EFF_LOCKED;

#endif
