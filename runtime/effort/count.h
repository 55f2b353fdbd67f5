/* The counters of kernels in pieces: where they stand, what a launch is told of them, and how the
 * host learns what they say.
 *
 *     host memory      where the device has atomics on it: the host sees every number as it is taken
 *     by epochs        in device memory, and it only grows: a launch is told what it said before number 0, and the last
 *                      block or worker to take none any more stores what it came to in host memory
 *     by copies        in device memory, set by a copy in front of a kernel's launches and fetched by one behind each:
 *                      what a gate counts with
 *
 * A control is its kernel's as long as it is lent; what is in it is the executor's. */
#ifndef TALLY_EFFORT_COUNT_H
#define TALLY_EFFORT_COUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"
#include "tally/sched.h"

struct tl_eff_context;
struct tl_eff_control;
struct tl_eff_extra;

/* Nothing of the kernel is on the device: numbers go on from `done`, and all is through when
 * `expected` were taken. */
void tl_eff_count_begin(const struct tl_eff_context *c, struct tl_eff_control *k, enum tl_rung rung,
                        uint32_t done, uint32_t expected);
/* What goes into the stream in front of a launch, the first since then or another, and behind
 * it. */
CUresult tl_eff_count_before(const struct tl_eff_context *c, struct tl_eff_control *k,
                             bool is_first, CUstream stream) TL_EFF_UNLOCKED;
CUresult tl_eff_count_behind(const struct tl_eff_control *k, CUstream stream) TL_EFF_UNLOCKED;
/* What a launch of so many blocks or workers is given.  With `tells`, the last of them tells; one
 * that runs beside others of its kernel does not, and its counter has to be fetched. */
void tl_eff_count_args(struct tl_eff_control *k, uint32_t grid, bool tells, struct tl_eff_extra *x);
/* The driver refused such a launch, which would have told. */
void tl_eff_count_refused(struct tl_eff_control *k, uint32_t grid);
/* Fetches the counter, in stream order. */
CUresult tl_eff_count_fetch(struct tl_eff_control *k, CUstream stream) TL_EFF_UNLOCKED;
/* How many numbers were taken, as far as the host can see; and the same when nothing of the kernel
 * is on the device any more. */
uint32_t tl_eff_count_taken(const struct tl_eff_control *k);
uint32_t tl_eff_count_end(struct tl_eff_control *k);

#endif
