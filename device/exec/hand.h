/* Memory without a name that processes on one device hand to those who come
 * (device/exec/hand.c). */
#ifndef TALLY_DEVICE_EXEC_HAND_H
#define TALLY_DEVICE_EXEC_HAND_H

#include "tally/base.h"

struct tl__hand;

/* From now on this process hands `memory` over, under the number `id`, to each process of its user
 * that asks.  Takes the descriptor over, also if it fails: a negative errno value with why. */
int tl__hand_start(struct tl__hand **out, int memory, uint64_t id, struct tl_error *err);
/* Stops that.  NULL is fine. */
void tl__hand_stop(struct tl__hand *h);
/* In a forked child, which has the descriptors but not the thread. */
void tl__hand_forget(struct tl__hand *h);
/* Asks all of this user who hand over the memory of that number, until one has given it: a
 * descriptor that cannot be made shorter, or -ENOENT.  Those who are stopped are waited for for
 * half a second, others for some seconds.  What dead ones have left is removed. */
int tl__hand_ask(uint64_t id);

#endif
