/* What launches in pieces need of a context: counters that host and device share, and events. */
#ifndef TALLY_EFFORT_SUPPLY_H
#define TALLY_EFFORT_SUPPLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"

struct tl_eff_context;

enum tl_eff_count_way { TL_EFF_COUNT_ON_HOST, TL_EFF_COUNT_EPOCHS, TL_EFF_COUNT_COPIES };

/* A counter on the device and what it will say when all is done.  Place in the list and references
 * are under the lock, the word is written by the device as well, and the rest is the executor's
 * (runtime/effort/count.h). */
struct tl_eff_control {
    struct tl_eff_control *next;
    /* low half: expected, high half: numbers taken; and in the next word, what was fetched */
    _Atomic uint64_t *word;
    CUdeviceptr told;   /* address of that word for kernels */
    CUdeviceptr device; /* of the word that they count in: the same one, or in device memory */
    CUdeviceptr asked;  /* of the one that a kernel behind it asks */
    enum tl_eff_count_way way;
    /* By epochs: what the word in device memory says when nothing of its kernel is there, as told;
     * and what the counter says before number 0. */
    uint32_t left, counter, base;
    bool is_unknown; /* it may say anything */
    bool is_reset;   /* it is zeroed in front of the next launch */
    bool is_fetched;
    /* its kernel, and the piece behind that asks it: with a new use it would say stop */
    uint32_t refs;
};

/* Makes the context fit for pieces, once; false if it cannot be, or not at this moment.  Executor
 * only, context current. */
bool tl_eff_prepare(struct tl_eff_context *c) TL_EFF_UNLOCKED;
/* How much processor time kernels of this job have had on that device, in microseconds modulo 2^31.
 * False where kernels do not run on processors of the machine. */
bool tl_eff_worked_us(CUdevice device, uint32_t *us);
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
