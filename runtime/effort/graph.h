/* Graphs as this part keeps them: the steps of an executable, in an order in which they may be done
 * one after the other. */
#ifndef TALLY_RUNTIME_EFFORT_GRAPH_H
#define TALLY_RUNTIME_EFFORT_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"

struct tl_eff_stream;
struct tl_record_kernel;

enum tl_eff_step_kind {
    TL_EFF_STEP_KERNEL,
    TL_EFF_STEP_COPY,
    TL_EFF_STEP_FILL,
    TL_EFF_STEP_HOST,
    TL_EFF_STEP_RECORD,
    TL_EFF_STEP_WAIT
};

struct tl_eff_step {
    CUgraphNode node; /* of the graph that was instantiated */
    enum tl_eff_step_kind kind;
    bool is_disabled;
    union {
        struct {
            CUDA_KERNEL_NODE_PARAMS_v2 shape; /* without the parameters */
            uint8_t *params;
            size_t n;
            CUlaunchAttribute attributes[TL_EFF_MAX_ATTRIBUTES];
            uint32_t n_attributes;
            struct tl_record_kernel *record;
        } kernel;
        struct {
            CUDA_MEMCPY3D shape;
            bool is_on_device; /* from and to */
        } copy;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_HOST_NODE_PARAMS host;
        CUevent event;
    };
};

/* One step comes behind another, by their numbers: `from` < `to`. */
struct tl_eff_edge {
    uint32_t from, to;
};

struct tl_eff_steps {
    struct tl_eff_step *steps;
    uint32_t n, cap;
    /* In the order of `to`.  If `is_line`, each step comes behind the one before it instead. */
    struct tl_eff_edge *edges;
    uint32_t n_edges, cap_edges;
    bool is_line;
};

/* --- runtime/effort/graph_read.c --- */
/* Reads a graph.  0, or -ENOTSUP if it has something that only the driver can do, -ENOMEM. */
int tl_eff_steps_read(struct tl_eff_steps *list, CUgraph graph) TL_EFF_UNLOCKED;
void tl_eff_steps_finish(struct tl_eff_steps *list);
/* Other parameters for one kernel or copy; 0 or as above. */
int tl_eff_step_set_kernel(struct tl_eff_step *step,
                           const CUDA_KERNEL_NODE_PARAMS_v2 *p) TL_EFF_UNLOCKED;
int tl_eff_step_set_copy(struct tl_eff_step *step, const CUDA_MEMCPY3D *p) TL_EFF_UNLOCKED;

/* --- runtime/effort/graph.c --- */
/* What is known of all steps together. */
struct tl_eff_steps_time {
    uint64_t ns;        /* one after the other, of those that are known */
    bool wants_samples; /* some kernel is not known, or is to be measured again */
    bool has_events;
};
/* With `steps` (one for each, or NULL), also of each of them, as cut.h wants it. */
struct tl_eff_cut_step;
struct tl_eff_steps_time tl_eff_steps_time(const struct tl_eff_steps *list,
                                           const struct tl_eff_stream *s,
                                           struct tl_eff_cut_step *steps) TL_EFF_UNLOCKED;
/* The driver has launched them all, whole: they are counted. */
void tl_eff_steps_count(const struct tl_eff_steps *list, const struct tl_eff_stream *s);
/* Puts one step into the stream, unless it is disabled. */
CUresult tl_eff_step_launch(const struct tl_eff_step *step,
                            struct tl_eff_stream *s) TL_EFF_UNLOCKED;

#endif
