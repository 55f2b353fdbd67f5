/* What launches in pieces need of a context: counters that host and device share, and events. */
#ifndef TALLY_EFFORT_SUPPLY_H
#define TALLY_EFFORT_SUPPLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"

struct tl_eff_context;

/* A counter on the device and what it will say when all is done.  Under the lock, but for the word,
 * which the device writes. */
struct tl_eff_control {
    struct tl_eff_control *next;
    _Atomic uint64_t *word; /* low half: expected, high half: the counter */
    CUdeviceptr device;     /* its address for kernels */
    /* its kernel, and the piece behind that asks it: with a new use it would say stop */
    uint32_t refs;
};

/* Makes the context fit for pieces, once; false if it cannot be, or not at this moment.  Executor only, context
 * current. */
bool tl_eff_prepare(struct tl_eff_context *c) TL_EFF_UNLOCKED;
/* Executor only; NULL if there is none, and NULL is fine. */
CUevent tl_eff_take_event(struct tl_eff_context *c);
void tl_eff_give_event(struct tl_eff_context *c, CUevent e);
/* When an event was done, by CLOCK_MONOTONIC; 0 if that cannot be told.  Executor only, context
 * current. */
uint64_t tl_eff_time_of_event(struct tl_eff_context *c, CUevent e) TL_EFF_UNLOCKED;
/* NULL if all are in use. */
struct tl_eff_control *tl_eff_take_control(struct tl_eff_context *c) TL_EFF_LOCKED;
/* A reference; NULL is fine. */
void tl_eff_give_control(struct tl_eff_context *c, struct tl_eff_control *k) TL_EFF_LOCKED;

#endif
