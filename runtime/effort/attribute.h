/* What a job sets for kernels, launches and streams besides their shape: carried over to the forms
 * and pieces that take their place. */
#ifndef TALLY_EFFORT_ATTRIBUTE_H
#define TALLY_EFFORT_ATTRIBUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"

struct tl_eff_stream;
struct tl_eff_variant;

/* Takes the attributes of a launch along.  Where one of them forbids pieces, `l->objection` says
 * why. */
void tl_eff_attributes_take(struct tl_eff_launch *l, const CUlaunchAttribute *list, unsigned n);
/* Those of a graph's kernel that differ from what is usual; returns how many.  -ENOTSUP if one of
 * them forbids that it is launched outside of a graph. */
int tl_eff_attributes_of_node(CUgraphNode node,
                              CUlaunchAttribute out[TL_EFF_MAX_ATTRIBUTES]) TL_EFF_UNLOCKED;

/* Launches a form of the kernel with the attributes of its launch.  Context current. */
CUresult tl_eff_launch_form(const struct tl_eff_launch *l, CUfunction f, const uint32_t grid[3],
                            uint32_t shared_bytes, CUstream stream, void **params,
                            void **extra) TL_EFF_UNLOCKED;

/* Before a form of a kernel is launched: gives it what the job has set for the original since.
 * NULL, or why it cannot take its place.  Executor only, context current. */
const char *tl_eff_follow_original(struct tl_eff_variant *v) TL_EFF_UNLOCKED;
/* The same for a stream of ours in which work of `s` is about to be launched. */
void tl_eff_follow_stream(const struct tl_eff_stream *s, CUstream beside) TL_EFF_UNLOCKED;
/* Whether a stream that is seen for the first time has attributes. */
bool tl_eff_has_attributes(CUstream stream) TL_EFF_UNLOCKED;

#endif
