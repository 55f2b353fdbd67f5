/* Models of jobs.
 *
 * Single-job figures of the Tally artefact (one A100): length and GPU utilisation of inference,
 * memory, bandwidth and GPU utilisation of training.  The jitter of requests comes from their mean
 * and P99 alone, the two pauses inside a BERT request from its P99 under time slicing (TA5).
 * Lengths of training kernels are not published: their medians are set, once for each job, so that
 * the artefact's ablation without transforms comes out for BERT inference (experiment TA6 is
 * therefore a fit and says so).  Lengths of blocks, spreads and widths are assumed by kind of
 * kernel. */
#include "sim/jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE = 4096 }; /* kernels after which a job repeats itself */

/* clang-format off */
static const struct sim_profile profiles[] = {
    /* name              round    gpu    bw    kernel spread block width jitter pauses  memory persistent */
    {"bert-infer",       4.05,   0.891, 0.230,   13,  0.0,   13,  0.6,  0.005,    2,    1475,  1300},
    {"llama-infer",   1963.9,    0.908, 0.552,   28,  0.0,   28,  0.8,  0.004,  140,   16939, 13500},
    {"whisper-train", 1000,      0.500, 0.127,  203,  1.2,  100,  1.0,  0.01,     0,    9717,  6000},
    {"resnet50-train", 330,      0.995, 0.106,   69,  0.8,   25,  1.0,  0.01,     0,   12685,   300},
    {"pointnet-train", 250,      0.932, 0.313,  129,  1.0,   50,  1.0,  0.01,     0,   11285,   100},
    {"pegasus-train",  400,      0.898, 0.294,   67,  1.0,   55,  1.0,  0.01,     0,   14131,  4400},
    {"gpt2-train",     350,      0.895, 0.348,   48,  0.8,   80,  1.0,  0.01,     0,   18129, 12400},
    {"bert-train",     300,      0.980, 0.244,  172,  1.0,   70,  1.0,  0.01,     0,    9615,  1800},
};
/* clang-format on */

const struct sim_profile *sim_profile(const char *name)
{
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++)
        if (strcmp(profiles[i].name, name) == 0)
            return &profiles[i];
    return NULL;
}

int sim_job_init(struct sim_job *j, const struct sim_profile *p, const struct sim_device *d,
                 uint64_t seed)
{
    *j = (struct sim_job){0};
    struct sim_random random = sim_random(seed);
    struct sim_kernel *kernels = calloc(SEQUENCE, sizeof *kernels);
    if (kernels == NULL)
        return -ENOMEM;
    double total = 0;
    for (int i = 0; i < SEQUENCE; i++) {
        double us = p->spread > 0 ? sim_lognormal(&random, p->kernel_us, p->spread) : p->kernel_us;
        double block = us < p->block_us ? us : p->block_us;
        kernels[i] = (struct sim_kernel){
            .block_ns = 1000 * block,
            .waves = us / block,
            .width = p->width,
            .bandwidth = p->bandwidth / p->gpu_part,
        };
        kernels[i].blocks = (uint64_t)ceil(kernels[i].waves * p->width * d->n_sms * 2);
        total += 1000 * us + d->launch_ns;
    }
    double gpu_ns = 1e6 * p->round_ms * p->gpu_part, host_ns = 1e6 * p->round_ms - gpu_ns;
    *j = (struct sim_job){
        .name = p->name,
        .kernels = kernels,
        .n_kernels = SEQUENCE,
        .n_round = (uint32_t)(gpu_ns / (total / SEQUENCE) + 0.5),
        .jitter = p->jitter,
        .persistent_bytes = (uint64_t)(p->persistent_mb * 0x1p20),
        .ephemeral_bytes = (uint64_t)((p->memory_mb - p->persistent_mb) * 0x1p20),
        .cold_bytes = d->l2_bytes,
    };
    if (j->n_round == 0)
        j->n_round = 1;
    if (p->pauses > 0) {
        /* rounded up: not one too many */
        j->pause_every = (j->n_round + p->pauses) / (p->pauses + 1);
        j->pause_ns = host_ns / p->pauses;
    } else {
        j->host_before_ns = j->host_after_ns = host_ns / 2;
    }
    return 0;
}

void sim_job_finish(struct sim_job *j)
{
    free((struct sim_kernel *)j->kernels);
    *j = (struct sim_job){0};
}
