/* What if a recorded run had been under another policy: jobs from .tally records, simulated
 * together. */
#ifndef TALLY_SIM_TRACE_H
#define TALLY_SIM_TRACE_H

#include "sim/samples.h"
#include "tally/base.h"

struct sim_trace_options {
    const char *path; /* a record, or a folder of the records of one run */
    const char *policy, *parameters;
    const char *device;   /* NULL: the software device */
    const char *arrivals; /* a CSV file of arrival times for the first job with requests, or NULL */
    double seconds;       /* simulated; 0: 30 */
    uint32_t n_sms;       /* of the device; 0: as many as it has */
    uint64_t seed;
    bool is_json;
};

/* Arrival times from a text of seconds, one per line; a first line that is no number is a heading,
 * '#' begins a remark.  `path` is for messages.  0 or -EINVAL. */
int sim_arrivals_read(struct sim_samples *times, struct tl_str text, const char *path,
                      struct tl_error *err);

/* Prints recorded and predicted figures of each job into `out`.  0 or a negative errno value with a
 * message. */
int sim_trace_run(const struct sim_trace_options *o, struct tl_buf *out, struct tl_error *err);

#endif
