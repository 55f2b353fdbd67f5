/* What the job's page says that it did, of all its GPUs and of each. */
#ifndef TALLY_RUNTIME_EFFORT_SUMS_H
#define TALLY_RUNTIME_EFFORT_SUMS_H

#include <stdint.h>

struct tl_eff_context;

/* Kernels were launched in a context, of so many blocks together; they had the device for so long;
 * one of them left it before its end.  By any thread. */
void tl_eff_sum_launched(const struct tl_eff_context *c, uint64_t kernels, uint64_t blocks);
void tl_eff_sum_ran(const struct tl_eff_context *c, uint64_t ns);
void tl_eff_sum_preempted(const struct tl_eff_context *c);

#endif
