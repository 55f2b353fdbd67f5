/* The file of models that `tally plan` reads. */
#ifndef TALLY_RUNTIME_TALLY_PLAN_MODELS_H
#define TALLY_RUNTIME_TALLY_PLAN_MODELS_H

#include "sched/gpulet.h"
#include "tally/json.h"

struct cli_models {
    struct tl_gpulet_model models[TL_GPULET_MODELS];
    uint32_t n;
    uint32_t gpus;
    double gpu_memory_mb;
    bool has_stand_ins; /* some latencies are those of built-in models */
};

/* 0, or -EINVAL with a message. */
int cli_models_read(struct cli_models *out, const struct tl_json_value *root, struct tl_error *err);

#endif
