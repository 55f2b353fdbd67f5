/* What happened in a job, kept in DIR/<job>.<pid>.tally: a file of bounded size that is whole at
 * every moment, also after kill -9, whatever anybody does to it.  What is told is counted in memory
 * and carried into the file by a thread of the record's own, every TL_RECORD_WRITE_NS, so that no
 * caller waits for a disk.  All calls are lock-free and allocation-free except tl_record_open,
 * _sync, _end, _close and the first tl_record_kernel of a name; they may come from any thread.  A
 * NULL record is fine everywhere: nothing is written then. */
#ifndef TALLY_RUNTIME_RECORD_RECORD_H
#define TALLY_RUNTIME_RECORD_RECORD_H

#include <stdatomic.h>

#include "tally/sched.h"

enum {
    /* How far the file is behind. */
    TL_RECORD_WRITE_NS = 50000000,
    /* The same for launches that nothing else is told of; see tl_record_wake. */
    TL_RECORD_REST_NS = 1000000000
};

struct tl_record;
struct tl_record_kernel; /* a kernel's counters and histograms */

/* Names of operations of the job's framework, by number; 0 is none.  Whoever adds one stores the
 * name first and then the number; names never change or go. */
enum { TL_OPS = 1024 };
struct tl_ops {
    _Atomic uint32_t n; /* numbers below this are in use */
    _Atomic(const char *) names[TL_OPS];
};

/* Who writes; strings are cut to fit. */
struct tl_record_job {
    const char *name;    /* TALLY_JOB or the program's name */
    const char *command; /* for the reader */
    const char *device, *policy;
    int level;
    const struct tl_ops *ops; /* what tl_record_op counts by, or NULL; outlives the record */
    /* kernels of this run only took time and computed nothing: results are not to be trusted */
    bool is_opaque;
};

/* Makes FOLDER (if missing) and FOLDER/<name>.<pid>.tally.  0 or -errno; the caller goes on with
 * NULL then. */
int tl_record_open(struct tl_record **out, const char *folder, const struct tl_record_job *job,
                   struct tl_error *err);
/* Marks the end and writes all that was told; what other threads still tell is written while the
 * process lives, nothing is freed.  For exit handlers: if the record's thread hangs in a disk that
 * does not answer, it is waited for two seconds. */
void tl_record_end(struct tl_record *r);
/* The same, and frees it: nobody may use the record or its kernels any more. */
void tl_record_close(struct tl_record *r);
/* Carries all that was told into the file now. */
void tl_record_sync(struct tl_record *r);
/* There were launches: they shall be in the file soon.  A load, and now and then a system call. */
void tl_record_wake(struct tl_record *r);
/* In the child of a fork: lets go of the parent's file without writing to it.  Kernels of it may
 * still be used; what is told of them is forgotten. */
void tl_record_abandon(struct tl_record *r);

/* Nanoseconds of the clock that all times here are told in (CLOCK_MONOTONIC). */
uint64_t tl_record_now(void);

/* The kernel of that (mangled) name, made if it is new.  When the table is full, the one that
 * stands for "all others". NULL only if `r` is NULL. */
struct tl_record_kernel *tl_record_kernel(struct tl_record *r, const char *name);

/* k may be NULL in all of these. */
void tl_record_launched(struct tl_record_kernel *k, enum tl_rung rung, uint64_t blocks);
/* An operation of the framework launched it; 0: none is known.  No lock, no allocation. */
void tl_record_op(struct tl_record_kernel *k, uint32_t op);
/* One measured launch: how long it stood ready before the device began it, and how long it ran. */
void tl_record_ran(struct tl_record_kernel *k, uint64_t queued_ns, uint64_t ran_ns);
/* It was told to stop, and the device was free of it after that time; what one block of it takes, 0
 * if not known. */
void tl_record_preempted(struct tl_record_kernel *k, uint64_t latency_ns, uint64_t block_ns);
/* Device time that ran outside control (opaque, whole because a variant was missing, a forwarded
 * call). */
void tl_record_uncontrolled(struct tl_record_kernel *k, uint64_t ns);

/* In pieces it stood still, and its remaining blocks had to be launched beside it. */
void tl_record_rescued(struct tl_record_kernel *k);

enum tl_record_copy {
    TL_COPY_TO_DEVICE,
    TL_COPY_FROM_DEVICE,
    TL_COPY_ON_DEVICE,
    TL_COPY_SET,
    TL_COPIES
};
void tl_record_copied(struct tl_record *r, enum tl_record_copy kind, uint64_t bytes);

/* Launches of graphs by a best-effort job: which way they went, and how many sub-graphs that
 * took. */
enum tl_record_graph {
    TL_GRAPH_AS_IT_IS,    /* with one call */
    TL_GRAPH_IN_PARTS,    /* as sub-graphs of bounded time, and single nodes between them */
    TL_GRAPH_OPAQUE,      /* with one call, since it has nodes that only the driver can run */
    TL_GRAPH_UNKNOWN,     /* node by node from here on: it is not known what its kernels take */
    TL_GRAPH_MEASURED,    /* now and then, so that they are measured again */
    TL_GRAPH_CHANGED,     /* it is changed so often that sub-graphs are not worth making */
    TL_GRAPH_FORCED,      /* a rung is forced */
    TL_GRAPH_DIVIDED,     /* kernels keep to a part of the SMs */
    TL_GRAPH_NO_PARTS,    /* no two neighbours of it may be in one sub-graph */
    TL_GRAPH_NO_SUBGRAPH, /* the driver has no sub-graphs for it, or there was no memory */
    TL_GRAPH_WAYS,
    TL_GRAPH_SUBGRAPHS = TL_GRAPH_WAYS, /* sub-graphs that were launched */
    TL_GRAPH_COUNTS
};
void tl_record_graph(struct tl_record *r, enum tl_record_graph what, uint64_t n);

/* A stretch of time for the timeline: a bounded ring, the oldest are forgotten. */
enum tl_record_span {
    TL_SPAN_RUN,  /* a kernel or a piece of it on the device */
    TL_SPAN_WAIT, /* work stood ready and had to wait for a higher level */
    TL_SPAN_COPY,
    TL_SPAN_REQUEST, /* of the job's own user */
    TL_SPAN_COMPILE, /* a variant was made */
    TL_SPANS,
};
void tl_record_spanned(struct tl_record *r, enum tl_record_span kind,
                       const struct tl_record_kernel *k, uint32_t stream, uint64_t begin_ns,
                       uint64_t end_ns);

/* A request of the job's user: marked by the program (include/tally/mark.h) or inferred from bursts
 * between host waits.  The record finds its slowest kernel from the spans inside it. */
void tl_record_request(struct tl_record *r, uint64_t begin_ns, uint64_t end_ns, bool is_marked);
/* A remark for the reader, once per text: "variant of k refused: grid-sync". */
void tl_record_note(struct tl_record *r, const char *text);

#endif
