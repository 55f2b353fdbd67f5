/* Serving models within latency bounds on parts of GPUs (gpulets): profiles, the elastic
 * partitioning planner, an exhaustive one for small cases, and the interference model.  Used by
 * `tally plan`, the policy gpulet, the simulator and the tests.
 *
 *     models (rate, SLO, L(batch, size)) ──► knee, minimum size ──► estimate ──► best fit / readjust / time share ──► plan
 *
 * Times are milliseconds, rates requests per second, sizes percent of a GPU. */
#ifndef TALLY_SCHED_GPULET_H
#define TALLY_SCHED_GPULET_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TL_GPULET_SIZES = 6,   /* 20, 40, 50, 60, 80, 100 percent */
    TL_GPULET_BATCHES = 6, /* profiled: 1, 2, 4, 8, 16, 32 */
    TL_GPULET_BATCH_MAX = 32,
    TL_GPULET_TASKS = 3, /* models that share a gpulet in time */
    TL_GPULET_GPUS = 16,
    TL_GPULET_MODELS = 16,
};
extern const uint32_t tl_gpulet_sizes[TL_GPULET_SIZES];

struct tl_gpulet_model {
    char name[32];
    double slo_ms, rate, memory_mb;
    double profile_ms[TL_GPULET_SIZES][TL_GPULET_BATCHES]; /* alone, without batching overhead */
    double batching_ms[TL_GPULET_BATCHES];
    /* Alone on the whole GPU, as fractions; zeroes: it disturbs nobody. */
    double l2[TL_GPULET_BATCHES], dram[TL_GPULET_BATCHES];
};

/* The models of the gpulet artefact (SLO, memory, utilisation), by name; rate is 0.  False if there
 * is none.  Their latency tables are not public: these are stand-ins, see docs/simulator.md. */
bool tl_gpulet_builtin(const char *name, struct tl_gpulet_model *m);
/* Fills in profile_ms: a fixed part, and work that stops gaining beyond the knee of its batch, a
 * part of the GPU (knees: one for each of TL_GPULET_BATCHES; NULL: usual ones). */
void tl_gpulet_stand_in(struct tl_gpulet_model *m, double fixed_ms, double work_ms,
                        const double *knees);

struct tl_gpulet_task {
    uint32_t model, batch;
    double rate; /* that it serves */
};

struct tl_gpulet {
    uint32_t gpu, size;
    double duty_ms, occupancy;
    uint32_t n_tasks;
    struct tl_gpulet_task tasks[TL_GPULET_TASKS];
};

enum tl_gpulet_planner { TL_GPULET_ELASTIC, TL_GPULET_TIME_SHARING, TL_GPULET_GREEDY };

struct tl_gpulet_options {
    enum tl_gpulet_planner planner;
    bool has_interference;
    uint32_t gpus;
    double gpu_memory_mb; /* 0: 11000 */
    double latency_ratio; /* 0: 1.1 */
    double slack_rate;    /* rates that may be left over; below 0: none; 0: 15 */
};

struct tl_gpulet_plan {
    uint32_t n; /* gpulets, two for a split GPU */
    struct tl_gpulet gpulets[2 * TL_GPULET_GPUS];
    uint32_t failed; /* the model that did not fit, if there is no plan */
};

/* 0, or -ENOSPC with plan->failed if the models do not fit, -EINVAL for too many models or GPUs. */
int tl_gpulet_plan(struct tl_gpulet_plan *plan, const struct tl_gpulet_model *models, uint32_t n,
                   const struct tl_gpulet_options *o);
/* Tries every partitioning and every assignment: for at most 2 GPUs and 4 models (-EINVAL
 * otherwise).  Without interference. */
int tl_gpulet_search(struct tl_gpulet_plan *plan, const struct tl_gpulet_model *models, uint32_t n,
                     const struct tl_gpulet_options *o);
/* Whether a plan keeps every rule: sizes, memory, duty cycles, SLOs, rates.  NULL, or what is
 * wrong. */
const char *tl_gpulet_check(const struct tl_gpulet_plan *plan, const struct tl_gpulet_model *models,
                            uint32_t n, const struct tl_gpulet_options *o);

/* Latency of a batch on a size when alpha (>= 1) is the neighbour's effect. */
double tl_gpulet_latency(const struct tl_gpulet_model *m, double batch, uint32_t size, double alpha,
                         const struct tl_gpulet_options *o);
/* How much `me` suffers from `you` on the other part of the same GPU. */
double tl_gpulet_alpha(const struct tl_gpulet_model *me, double my_batch, uint32_t my_size,
                       const struct tl_gpulet_model *you, double your_batch, uint32_t your_size);
/* Highest rate of one always busy gpulet of that size, and its batch. */
double tl_gpulet_saturated_rate(const struct tl_gpulet_model *m, uint32_t size,
                                const struct tl_gpulet_options *o, uint32_t *batch);
/* The most effective size. */
uint32_t tl_gpulet_knee(const struct tl_gpulet_model *m, const struct tl_gpulet_options *o);

#endif
