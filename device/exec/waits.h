/* What this process lost to others: when it had blocks to run and no SM, because others had them;
 * and what it had.  Benchmarks ask for it; the device itself decides nothing by it.
 *
 * Lost is what their kernels ran, not what else happens on the machine: the time in which who had
 * the SM had no processor, because other programs did, is not counted if he keeps waits as well
 * (device/exec/stall.h), and neither is the time in which nobody had it: from when it was left to
 * when this process got a processor to take it, or when others did who were first
 * (device/exec/idle.h). */
#ifndef TALLY_DEVICE_EXEC_WAITS_H
#define TALLY_DEVICE_EXEC_WAITS_H

#include <stdbool.h>
#include <stdint.h>

#include "device/exec/idle.h"
#include "tally/base.h"

/* A file of this layout, in the machine's own byte order: a head, then `n` spans in order, from the
 * begin of the wait and as long as what was lost.  What does not fit any more is counted and not
 * kept. */
#define TL__WAITS_MAGIC 0x5374696157796c54ULL /* "TlyWaitS" */
enum { TL__WAITS_MAX = 1 << 20, TL__WAITS_HELD_NS = 1000000 };
struct tl__waits_file {
    uint64_t magic;
    uint64_t n, n_dropped;
    uint64_t held_ns; /* that it has had SMs, added up over them; TL__WAITS_HELD_NS late */
    struct {
        uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
    } spans[];
};

struct tl__waits;
struct sm_slot;

/* Begins a file FOLDER/NAME.PID.waits; `name` is the device's.  0, or a negative errno value. */
int tl__waits_create(struct tl__waits **out, const char *folder, const char *name,
                     struct tl_error *err);
/* NULL is fine, here and below. */
void tl__waits_destroy(struct tl__waits *w);
/* From now on something stands ready and others have all SMs, `n` of them.  What has begun goes
 * on. */
void tl__waits_begin(struct tl__waits *w, const struct sm_slot *slots, uint32_t n);
/* An SM was had: what has begun is over and kept. */
void tl__waits_end(struct tl__waits *w, const struct sm_slot *slots, uint32_t n);
/* An SM is had from now on, and is left; by the thread that has it. */
void tl__waits_hold(struct tl__waits *w, uint32_t slot);
void tl__waits_leave(struct tl__waits *w, uint32_t slot);
/* Nothing stands ready any more: what has begun is forgotten. */
void tl__waits_forget(struct tl__waits *w);

#endif
