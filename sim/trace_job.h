/* A job model from a record of the job. */
#ifndef TALLY_SIM_TRACE_JOB_H
#define TALLY_SIM_TRACE_JOB_H

#include "runtime/report/report.h"
#include "sim/gpu.h"

/* What the job did alone, as kernels that go round.  A job whose timeline has its requests repeats
 * these, kernel by kernel, with the host's part of each; of any other the order of kernels is not
 * known, so they are drawn by their launches, with lengths from each kernel's distribution.
 * `kernels` is freed with sim_trace_job_finish.  0 or -ENOMEM with a message. */
int sim_trace_job(struct sim_job *j, const struct tl_report_job *from, const struct sim_device *d,
                  uint64_t seed, struct tl_error *err);
void sim_trace_job_finish(struct sim_job *j);

#endif
