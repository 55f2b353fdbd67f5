/* Metrics: what tallyd tells monitoring systems.
 *
 *     runtime/tallyd/metrics.c        a thread that listens and answers; asks the loop for a view
 *     runtime/tallyd/metrics_view.c   what the loop answers: a copy of what it knows
 *     runtime/tallyd/metrics_place.c  where it listens
 *     runtime/tallyd/metrics_text.c   a view as OpenMetrics text
 *     runtime/tallyd/metrics_whose.c  what else is known of GPUs and processes, from /proc
 *
 * The loop never waits for that thread.  A question is a ring of an eventfd, and the answer a copy
 * of what the loop knows, into memory that is there already. */
#ifndef TALLY_RUNTIME_TALLYD_METRICS_H
#define TALLY_RUNTIME_TALLYD_METRICS_H

#include "runtime/tallyd/tallyd.h"

/* A histogram as it was read: counts by bucket, not cumulative. */
struct daemon_histogram {
    uint64_t n[TL_SHARE_BUCKETS], sum_ns;
};

/* A client as the loop saw it. */
struct daemon_row {
    uint32_t id;
    pid_t pid;
    uid_t uid;
    char job[128];
    struct tl_sched_client c;
    bool may_run, has_work, is_stopped;
    uint32_t share_permille, in_flight, n_gpus;
    uint64_t device_ns, blocks, launches, waited_ns, preemptions, uncontrolled_ns, requests;
    uint64_t memory_bytes, joined_ns;
    struct daemon_histogram preempted, requested, waited;
    /* The GPUs that it uses, with what its tree holds there, and what of its sums was there, if it
     * counts that for each of several. */
    bool counts_by_gpu;
    struct daemon_row_gpu {
        uint8_t uuid[16];
        uint64_t tree_bytes;
        uint64_t device_ns, blocks, launches, preemptions;
    } gpus[TL_WIRE_GPUS];
};

struct daemon_view {
    char policy[32];
    uint32_t n_peers, n_rows;
    uint64_t now_ns; /* CLOCK_MONOTONIC */
    struct {
        uint8_t uuid[16];
        uint64_t memory_bytes;
        char name[TL_SHARE_NAME]; /* as jobs tell */
    } gpus[DAEMON_MAX_GPUS];
    uint32_t n_gpus;
    struct daemon_row rows[DAEMON_MAX_PEERS];
};

/* --- the thread (runtime/tallyd/metrics.c) ---------------------------------------------------- */

struct daemon_metrics;
/* Listens there and begins to answer.  0, or a negative errno value with a message. */
int daemon_metrics_start(struct daemon_metrics **out, const char *where, bool is_open,
                         struct tl_error *err);
/* What the loop watches, and what it does when that is ready. */
int daemon_metrics_bell(const struct daemon_metrics *m);
void daemon_metrics_answer(struct daemon_metrics *m, struct daemon *d, uint64_t now);
/* Where it listens, for people. */
const char *daemon_metrics_where(const struct daemon_metrics *m);
void daemon_metrics_stop(struct daemon_metrics *m); /* NULL is fine */

/* --- the loop's part (runtime/tallyd/metrics_view.c) ------------------------------------------ */

void daemon_view_take(const struct daemon *d, struct daemon_view *view, uint64_t now);

/* --- whose it is ------------------------------------------------------------------------------ */

/* What NVIDIA's driver tells of a GPU; empty texts where it does not. */
struct daemon_gpu_name {
    char index[16], device[16], model[64];
};
/* `folder` is /proc/driver/nvidia/gpus but in tests. */
void daemon_gpu_name(const char *folder, const uint8_t uuid[16], struct daemon_gpu_name *name);

/* The pod that a process belongs to, as its environment tells: TALLY_POD, TALLY_NAMESPACE and
 * TALLY_CONTAINER_NAME, else, under Kubernetes, POD_NAME, POD_NAMESPACE and CONTAINER_NAME; and the
 * container's number out of its control group.  Empty texts where nothing tells, or tallyd may
 * not look. */
struct daemon_pod {
    char pod[128], namespace[128], container[128], container_id[72];
};
void daemon_pod_of(pid_t pid, struct daemon_pod *pod);

/* --- text ------------------------------------------------------------------------------------- */

/* What the text tells beyond the view. */
struct daemon_names {
    char host[256];
    struct daemon_gpu_name gpus[DAEMON_MAX_GPUS]; /* by the view's order */
    struct daemon_pod pods[DAEMON_MAX_PEERS];     /* by the view's rows */
    uint64_t scrapes, refused;
    bool is_open; /* OpenMetrics; else Prometheus's older text */
};
void daemon_metrics_text(struct tl_buf *out, const struct daemon_view *view,
                         const struct daemon_names *names);
/* A text as the value of a label: quoted, escaped, and UTF-8 whatever it was. */
void daemon_metrics_value(struct tl_buf *out, const char *text);

/* --- where it listens ------------------------------------------------------------------------- */

struct daemon_metrics_place {
    char text[128], path[TL_SOCKET_PATH_BYTES]; /* path: of a UNIX socket, or empty */
    int listener;
};
/* "unix:PATH", "127.0.0.1:PORT" or "[::1]:PORT"; an address that others than this machine reach
 * only if `is_open`.  0, or a negative errno value with a message. */
int daemon_metrics_listen(struct daemon_metrics_place *p, const char *text, bool is_open,
                          struct tl_error *err);
void daemon_metrics_leave(struct daemon_metrics_place *p);

#endif
