/* A kernel's way to the device, and what the job tells of the one that comes next. */
#ifndef TALLY_EFFORT_PIECES_H
#define TALLY_EFFORT_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"

struct tl_eff_context;
struct tl_eff_item;
struct tl_eff_launch;
struct tl_eff_stream;

/* Brings the kernel at `item` forward; the lock is given up meanwhile.  True if something
 * changed. */
bool tl_eff_kernel_advance(struct tl_eff_stream *s, struct tl_eff_item *item,
                           uint64_t now) TL_EFF_LOCKED;
/* All of it is done, or failed. */
void tl_eff_finish_kernel(struct tl_eff_stream *s, struct tl_eff_item *item,
                          CUresult result) TL_EFF_LOCKED;
/* How long it could have begun earlier: since it was asked for and all in front of it was
 * submitted. */
uint64_t tl_eff_stood_ready(const struct tl_eff_launch *l, uint64_t began_ns);

/* The kernel has come to the head of its stream. */
void tl_eff_comes_next(const struct tl_eff_context *c, struct tl_eff_launch *l,
                       uint64_t now) TL_EFF_LOCKED;

#endif
