/* Records of jobs, read back: what `tally report` shows in its several forms.
 *
 *     runtime/report/read.c      one .tally file: checked and copied; nothing in it is trusted
 *     runtime/report/folder.c    folders as runs
 *     runtime/report/merge.c     processes of a job added up, kernels in order
 *     runtime/report/op.c        operations of frameworks that launched a kernel
 *     runtime/report/compare.c   runs against each other
 *     runtime/report/histogram.c sums and percentiles
 *     runtime/report/name.c      names of kernels for people (runtime/report/demangle.c, runtime/report/demangle_type.c: the Itanium ABI)
 *     runtime/report/number.c    times, counts and shares for people
 *     runtime/report/text.c, runtime/report/json.c, runtime/report/trace.c, runtime/report/html.c: the forms
 *     (runtime/report/plot.c, runtime/report/timeline.c, runtime/report/style.c are parts of the page)
 *
 * Everything belongs to the arena of the report. */
#ifndef TALLY_RUNTIME_REPORT_REPORT_H
#define TALLY_RUNTIME_REPORT_REPORT_H

#include <regex.h>

#include "runtime/record/record.h"
#include "tally/base.h"
#include "tally/text.h"

/* --- values --- */

struct tl_report_step {
    uint64_t low, width, count;
};

/* Steps that have something in them, from low to high. */
struct tl_report_histogram {
    struct tl_report_step *steps;
    uint32_t n_steps;
    uint64_t count;    /* of all values */
    uint64_t unplaced; /* of them, those that are in no step */
    uint64_t sum, max;
};

/* The value that `percent` of all do not exceed, within 1 %; 0 if there is none. */
uint64_t tl_histogram_percentile(const struct tl_report_histogram *h, double percent);
double tl_histogram_mean(const struct tl_report_histogram *h);
/* Adds b to a.  0 or -ENOMEM. */
int tl_histogram_add(struct tl_report_histogram *a, const struct tl_report_histogram *b,
                     struct tl_arena *arena);

/* An operation of the job's framework, as it names it (NVTX), and how often it launched the
 * kernel. */
struct tl_report_op {
    const char *name;
    uint64_t launches;
};

struct tl_report_kernel {
    const char *name;  /* as the job has it */
    const char *full;  /* demangled */
    const char *brief; /* demangled, without parameters and return type */
    uint64_t launches[TL_RUNGS], blocks[TL_RUNGS];
    uint64_t all_launches, all_blocks;
    uint64_t uncontrolled, uncontrolled_ns;
    uint64_t rescues;         /* times that it stood still in pieces */
    struct tl_report_op *ops; /* of a job: those that launched it most often first */
    uint32_t n_ops;
    struct tl_report_histogram queued, ran, total, preempted;
    struct tl_report_histogram preempted_blocks; /* in thousandths of the time of a block */
    /* Of all launches: where only some were measured, what these took, scaled up. */
    uint64_t device_ns, waited_ns;
    uint64_t culprit_of; /* how many of the slowest requests it kept longest */
    uint32_t merged;     /* of a process: which kernel of the job it is */
    bool is_hidden;      /* by the filter; such ones stand at the end */
};

/* Adds the operations of a process's kernel to those of the job's.  0 or -ENOMEM. */
int tl_report_ops_add(struct tl_report_kernel *to, const struct tl_report_kernel *k,
                      struct tl_arena *arena);
/* "aten::mm 40, aten::add 12 and 3 more"; nothing if none is known. */
void tl_report_ops_text(const struct tl_report_kernel *k, uint32_t most, struct tl_buf *out);

enum { TL_REPORT_NO_KERNEL = UINT32_MAX };

struct tl_report_span {
    enum tl_record_span kind;
    uint32_t kernel; /* of the job, or TL_REPORT_NO_KERNEL */
    uint32_t stream, pid;
    uint64_t begin_ns, end_ns;
};

struct tl_report_slow {
    uint64_t begin_ns, latency_ns;
    /* of its slowest kernel; the waiting is part of the first */
    uint64_t culprit_ns, culprit_wait_ns;
    uint64_t kernels, busy_ns; /* spans on the device inside it, and their time */
    uint32_t culprit;          /* kernel of the job, or TL_REPORT_NO_KERNEL */
    bool is_marked;
    /* What of another job was on the device in the meantime, if the timeline still has it. */
    const struct tl_report_job *rival;
    uint32_t rival_kernel;
    uint64_t rival_ns;
};

struct tl_report_slot {
    uint64_t number; /* of the tenth of a second */
    uint64_t run_ns, wait_ns, requests, slowest_ns;
};

struct tl_report_note {
    const char *text;
    uint64_t times;
};

/* One file, or the sum of those of one job. */
struct tl_report_job {
    const char *name, *command, *device, *policy, *host;
    int level;
    uint32_t pid; /* of the first */
    uint32_t n_processes, n_unended;
    bool is_opaque, is_full;
    uint8_t boot[16];
    /* last: its end, or the last sign of life */
    uint64_t begin_ns, begin_wall_ns, first_ns, last_ns;
    struct {
        uint64_t count, bytes;
    } copies[TL_COPIES];
    uint64_t graphs[TL_GRAPH_COUNTS];
    struct tl_report_kernel *kernels; /* of a job: sorted */
    uint32_t n_kernels;
    struct tl_report_histogram inferred, marked;
    struct tl_report_slow *slow; /* slowest first */
    uint32_t n_slow;
    struct tl_report_note *notes;
    uint32_t n_notes;
    struct tl_report_slot *slots; /* in order of time */
    uint32_t n_slots;
    struct tl_report_span *spans; /* in order of their beginning */
    uint32_t n_spans;
    uint64_t forgotten_spans;
    /* Sums over kernels, of a job only. */
    uint64_t launches[TL_RUNGS], all_launches, all_blocks, uncontrolled_ns, device_ns, waited_ns;
    uint64_t rescues;
    bool is_sampled; /* not all launches were measured: device_ns and waited_ns are estimates */
    struct tl_report_histogram queued, ran, total, preempted;
    struct tl_report_histogram preempted_blocks; /* in thousandths of the time of a block */
};

/* The marked requests, or if there are none, the inferred ones. */
const struct tl_report_histogram *tl_report_requests(const struct tl_report_job *j);
/* Seconds from the first to the last event; at least a nanosecond. */
double tl_report_active_s(const struct tl_report_job *j);

struct tl_report_run {
    const char *label, *path;
    struct tl_report_job *jobs; /* from the highest level down */
    uint32_t n_jobs;
    uint64_t begin_ns, end_ns;
    bool is_opaque;
};

struct tl_report {
    struct tl_arena arena;
    struct tl_report_run *runs;
    uint32_t n_runs;
    const char **problems; /* files that could not be read, or only in part */
    uint32_t n_problems;
    bool is_opaque; /* of any job */
};

enum tl_report_order {
    TL_ORDER_TIME,
    TL_ORDER_LAUNCHES,
    TL_ORDER_P99,
    TL_ORDER_QUEUED,
    TL_ORDER_PREEMPTED,
    TL_ORDER_UNCONTROLLED,
    TL_ORDER_NAME,
    TL_ORDERS,
};
const char *tl_report_order_name(enum tl_report_order o); /* "time", "launches", "p99", ... */

/* --- reading --- */

/* One record.  What can be read of a damaged one is read, and told in `problem` (of the arena, else
 * NULL). 0, -EINVAL (no record), -ENOTSUP (of another version), -ENOMEM. */
int tl_report_read(struct tl_report_job *out, const char **problem, struct tl_arena *arena,
                   const void *bytes, size_t n, struct tl_error *err);

void tl_report_init(struct tl_report *r);
void tl_report_finish(struct tl_report *r);
/* Adds folders and files.  PATH is a .tally file, a folder of them (a run), or a folder of such
 * folders (one run each, called after the folder; "alone" first); LABEL=PATH gives a name.  0, or
 * -errno if there is nothing to read at all; files that cannot be read are among the problems. */
int tl_report_add(struct tl_report *r, const char *path, struct tl_error *err);
/* After the last tl_report_add: names, sums, order, rivals.  `filter` (or NULL) leaves only kernels
 * that it matches in the lists; sums are of all.  0 or -ENOMEM. */
int tl_report_settle(struct tl_report *r, enum tl_report_order order, const regex_t *filter,
                     struct tl_error *err);

/* --- names and numbers for people --- */

/* The C++ name of a mangled one, or NULL if it is none that this knows. */
char *tl_demangle(struct tl_arena *arena, const char *name);
/* Fills full and brief from name.  0 or -ENOMEM. */
int tl_report_name(struct tl_report_kernel *k, struct tl_arena *arena);

struct tl_text tl_text_level(int level); /* "high", "low", "5" */
const char *tl_copy_name(enum tl_record_copy c);
const char *tl_span_name(enum tl_record_span s);

/* --- comparing --- */

/* A job of one run against the same job of the first run that has it. */
struct tl_report_versus {
    /* base may be the job itself; job may be NULL: not in that run */
    const struct tl_report_job *job, *base;
    double p50_ratio, p99_ratio; /* of requests; 0 if there are none */
    double speed_ratio;          /* blocks per second; 0 if unknown */
};
const struct tl_report_job *tl_report_find(const struct tl_report_run *run, const char *job);
struct tl_report_versus tl_report_compare(const struct tl_report *r,
                                          const struct tl_report_run *run, const char *job);
/* Whether a job is judged by its requests (it marks them, or is of the highest level and they were
 * inferred) or by its speed. */
bool tl_report_is_urgent(const struct tl_report *r, const char *job);
/* Names of all jobs over all runs, each once, from the highest level down; ended by NULL.  NULL if
 * out of memory. */
const char **tl_report_job_names(struct tl_report *r);

/* --- the forms --- */

void tl_report_text(const struct tl_report *r, struct tl_buf *out);
void tl_report_json(const struct tl_report *r, struct tl_buf *out);
/* Chrome's trace format, which Perfetto reads as well. */
void tl_report_trace(const struct tl_report *r, struct tl_buf *out);
void tl_report_html(struct tl_report *r, struct tl_buf *out);

#endif
