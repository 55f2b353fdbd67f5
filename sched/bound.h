/* Shares that clients have at most; see bound.c. */
#ifndef TALLY_SCHED_BOUND_H
#define TALLY_SCHED_BOUND_H

#include "sched/policy.h"

/* It has had so much of the device. */
void tl__bound_used(struct tl_sched_entry *e, uint64_t device_ns);
/* Brings `is_spent` up to date; when that changes by itself, or has to be looked at. */
uint64_t tl__bound_settle(struct tl_sched_entry *e, uint64_t now);

#endif
