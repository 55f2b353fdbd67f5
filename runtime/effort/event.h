/* Events whose record is still in a queue. */
#ifndef TALLY_EFFORT_EVENT_H
#define TALLY_EFFORT_EVENT_H

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"

struct tl_eff_event;
struct tl_eff_item;
struct tl_eff_stream;

/* Forgets all. */
void tl_eff_events_start(void) TL_EFF_UNLOCKED;

/* May give the lock up meanwhile. */
void tl_eff_event_unref(struct tl_eff_event *e) TL_EFF_LOCKED;
/* The record or wait that `item` stood for has been submitted. */
void tl_eff_event_submitted(struct tl_eff_event *e, struct tl_eff_item *item) TL_EFF_LOCKED;
/* As cuEventRecord and cuStreamWaitEvent do. */
CUresult tl_eff_record(CUevent event, struct tl_eff_stream *s, unsigned flags) TL_EFF_UNLOCKED;
CUresult tl_eff_wait(struct tl_eff_stream *s, CUevent event, unsigned flags) TL_EFF_UNLOCKED;
CUresult tl_eff_event_destroy(CUevent event) TL_EFF_UNLOCKED;

#endif
