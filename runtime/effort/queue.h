/* What is queued: items in their streams, and who may go next. */
#ifndef TALLY_EFFORT_QUEUE_H
#define TALLY_EFFORT_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/parts.h"
#include "runtime/effort/real.h"
#include "runtime/effort/split.h"

struct tl_eff_context;
struct tl_eff_event;
struct tl_eff_stream;

enum {
    /* kernels launched behind one another before the end of the first is known */
    TL_EFF_MAX_CHAIN = 8,
};

enum tl_eff_kind {
    TL_EFF_CALL,   /* made by the executor */
    TL_EFF_TURN,   /* made by the thread that asked for it, when its turn comes */
    TL_EFF_SPLIT,  /* a copy, made by the executor piece by piece */
    TL_EFF_PART,   /* a sub-graph, launched by the executor when there is room for it */
    TL_EFF_KERNEL, /* made by the executor, in the way that suits the moment */
};

/* Under the lock once it is in a queue. */
struct tl_eff_item {
    enum tl_eff_kind kind;
    struct tl_eff_item *next; /* in its stream */
    struct tl_eff_stream *stream;
    uint32_t refs;
    bool is_submitted;
    bool is_under_way; /* being submitted by the executor, or its caller's turn */
    bool is_awaited;   /* a thread waits until it is submitted */
    bool needs_permit; /* TURN: launches a kernel, so it has to wait for a permit */
    bool ends_stream;
    uint32_t n_waits;           /* items that must be submitted before it */
    struct tl_eff_item **after; /* items that wait for it */
    uint32_t n_after, cap_after;
    struct tl_eff_event *event; /* recorded or waited for: a reference */
    void *owned;                /* freed with it */
    CUresult result;
    union {
        struct tl_eff_call call;
        struct tl_eff_launch launch;
        struct tl_eff_split split;
        struct tl_eff_part_launch part;
    };
};

struct tl_eff_queues {
    pthread_cond_t submitted; /* something was submitted, or a caller's turn has come */
    uint32_t n_items;         /* in all queues */
    uint32_t n_room_waiters;  /* threads that wait for a shorter queue */
    /* streams that the executor has to look at */
    struct tl_eff_stream *busy, **busy_end;
};
extern struct tl_eff_queues tl_eff_queues TL_EFF_GUARDED;

/* Forgets all. */
void tl_eff_queues_start(void) TL_EFF_UNLOCKED;

struct tl_eff_item *tl_eff_item_create(enum tl_eff_kind kind); /* NULL without memory */
/* NULL is fine. */
void tl_eff_item_unref(struct tl_eff_item *item) TL_EFF_LOCKED;
/* Whether something asked of the stream now may be given to the driver at once. */
bool tl_eff_passes(const struct tl_eff_stream *s) TL_EFF_LOCKED;
/* `item` must not be submitted before `other`, which may be NULL. */
void tl_eff_after(struct tl_eff_item *item, struct tl_eff_item *other) TL_EFF_LOCKED;
/* Puts it at the end of a stream, behind what the rules of the legacy stream name.  Takes the
 * caller's reference. */
void tl_eff_enqueue(struct tl_eff_stream *s, struct tl_eff_item *item) TL_EFF_LOCKED;
/* The executor has to look at the stream.  False if it does already. */
bool tl_eff_make_busy(struct tl_eff_stream *s) TL_EFF_LOCKED;
/* It was given to the driver, with this result: whoever waits for it may go on. */
void tl_eff_submitted(struct tl_eff_item *item, CUresult result) TL_EFF_LOCKED;
/* Waits until it was submitted; NULL is fine.  The lock is given up meanwhile, here and below. */
void tl_eff_wait_submitted(struct tl_eff_item *item) TL_EFF_LOCKED;
/* Waits until a queue is short enough to take one more. */
void tl_eff_make_room(struct tl_eff_stream *s) TL_EFF_LOCKED;
/* Waits until everything queued so far was submitted. */
void tl_eff_drain_stream(struct tl_eff_stream *s) TL_EFF_LOCKED;
void tl_eff_drain_context(struct tl_eff_context *c) TL_EFF_LOCKED;
void tl_eff_drain_all(void) TL_EFF_LOCKED;

/* Makes the call now or later, in its place.  `at` is the number of the stream's argument, or -1 if
 * it has none (the legacy stream is meant then).  `owned` is freed afterwards in any case. */
CUresult tl_eff_defer(struct tl_eff_stream *s, struct tl_eff_call *call, int at,
                      void *owned) TL_EFF_UNLOCKED;

/* A caller's turn: between begin and end the stream has nothing queued in front, and nothing
 * overtakes. */
struct tl_eff_turn {
    struct tl_eff_item *item;
};
CUresult tl_eff_turn_begin(struct tl_eff_turn *t, struct tl_eff_stream *s,
                           bool needs_permit) TL_EFF_UNLOCKED;
void tl_eff_turn_end(struct tl_eff_turn *t, CUresult result) TL_EFF_UNLOCKED;
/* A call that works on the real per-thread stream, which nothing else uses: it is kept in order by
 * waiting.  `own` is the stream whose turn it was; unchanged if there is none. */
CUresult tl_eff_in_own_turn(const struct tl_eff_call *c,
                            struct tl_eff_stream **own) TL_EFF_UNLOCKED;
/* The stored error of something that was queued, once; or `result`. */
CUresult tl_eff_result(struct tl_eff_context *c, CUresult result) TL_EFF_UNLOCKED;

#endif
