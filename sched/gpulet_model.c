/* Latency of a model's batches on parts of a GPU, and what a neighbour adds to it. */
#include "sched/gpulet.h"

#include <string.h>

const uint32_t tl_gpulet_sizes[TL_GPULET_SIZES] = {20, 40, 50, 60, 80, 100};

/* A table over batches 1, 2, 4, ... 32, linear between them. */
static double by_batch(const double table[TL_GPULET_BATCHES], double batch)
{
    if (batch <= 1)
        return table[0];
    double low = 1;
    for (int i = 0; i + 1 < TL_GPULET_BATCHES; i++, low *= 2)
        if (batch <= 2 * low)
            return table[i] + (table[i + 1] - table[i]) * (batch - low) / low;
    return table[TL_GPULET_BATCHES - 1] * batch / TL_GPULET_BATCH_MAX;
}

static int size_index(uint32_t size)
{
    for (int i = 0; i < TL_GPULET_SIZES; i++)
        if (tl_gpulet_sizes[i] >= size)
            return i;
    return TL_GPULET_SIZES - 1;
}

double tl_gpulet_latency(const struct tl_gpulet_model *m, double batch, uint32_t size, double alpha,
                         const struct tl_gpulet_options *o)
{
    double profile = by_batch(m->profile_ms[size_index(size)], batch);
    double ratio = o->latency_ratio > 0 ? o->latency_ratio : 1.1;
    return (profile + by_batch(m->batching_ms, batch) + profile * (alpha - 1)) * ratio;
}

double tl_gpulet_alpha(const struct tl_gpulet_model *me, double my_batch, uint32_t my_size,
                       const struct tl_gpulet_model *you, double your_batch, uint32_t your_size)
{
    /* The artefact's fit for the RTX 2080 Ti. */
    static const double c[] = {0.112908, 0.715960, 0.354866, 0.088204, 0.895369};
    double mine = my_size / 100.0, yours = your_size / 100.0;
    double alpha = c[0] * by_batch(me->l2, my_batch) * mine +
                   c[1] * by_batch(you->l2, your_batch) * yours +
                   c[2] * by_batch(me->dram, my_batch) * mine +
                   c[3] * by_batch(you->dram, your_batch) * yours + c[4];
    return alpha > 1 ? alpha : 1;
}

double tl_gpulet_saturated_rate(const struct tl_gpulet_model *m, uint32_t size,
                                const struct tl_gpulet_options *o, uint32_t *batch)
{
    uint32_t best = 0;
    for (uint32_t low = 1, high = TL_GPULET_BATCH_MAX; low <= high;) {
        uint32_t b = (low + high) / 2;
        if (2 * tl_gpulet_latency(m, b, size, 1, o) <= m->slo_ms) {
            best = b;
            low = b + 1;
        } else {
            high = b - 1;
        }
    }
    if (batch != NULL)
        *batch = best;
    return best > 0 ? 1000 * best / tl_gpulet_latency(m, best, size, 1, o) : 0;
}

uint32_t tl_gpulet_knee(const struct tl_gpulet_model *m, const struct tl_gpulet_options *o)
{
    double best_slope = 0;
    uint32_t knee = tl_gpulet_sizes[0];
    for (int i = 0; i + 2 < TL_GPULET_SIZES; i++) { /* the pair 80, 100 is left out */
        uint32_t low = tl_gpulet_sizes[i], high = tl_gpulet_sizes[i + 1];
        double at_low = tl_gpulet_saturated_rate(m, low, o, NULL),
               at_high = tl_gpulet_saturated_rate(m, high, o, NULL);
        if (at_high < 1.05 * at_low || at_high <= 0)
            continue;
        double slope = (at_high - at_low) / (high - low);
        if (slope > best_slope) {
            best_slope = slope;
            knee = high;
        }
    }
    return knee;
}

void tl_gpulet_stand_in(struct tl_gpulet_model *m, double fixed_ms, double work_ms,
                        const double *knees)
{
    /* If nothing is known: a batch of 1 fills a fifth of the GPU, each doubling a tenth more: 40 %
     * at 4, 70 % at 32. */
    static const double usual[TL_GPULET_BATCHES] = {0.2, 0.3, 0.4, 0.5, 0.6, 0.7};
    const double *knee = knees != NULL ? knees : usual;
    for (int p = 0; p < TL_GPULET_SIZES; p++) {
        double batch = 1;
        for (int b = 0; b < TL_GPULET_BATCHES; b++, batch *= 2) {
            double share = tl_gpulet_sizes[p] / 100.0, filled = share < knee[b] ? share : knee[b];
            m->profile_ms[p][b] = fixed_ms + work_ms * batch / TL_GPULET_BATCH_MAX *
                                                 knee[TL_GPULET_BATCHES - 1] / filled;
        }
    }
}

/* --- the artefact's models -------------------------------------------------------------------- */

enum input { LENET, TOKENS, IMAGE_224, IMAGE_300 };

/* clang-format off */
/* SLO, memory, input; utilisation of L2, DRAM and SMs in percent for batches 1..32, alone on a 2080 Ti. */
static const struct published {
    const char *name;
    double slo_ms, memory_mb;
    enum input input;
    double l2[TL_GPULET_BATCHES], dram[TL_GPULET_BATCHES], sm[TL_GPULET_BATCHES];
} published[] = {
    {"lenet", 5, 50, LENET, {2.4, 2.5, 4.4, 4.3, 5.4, 7.0}, {11.3, 11.2, 17.8, 15.0, 18.1, 25.4}, {7.8, 7.7, 13.6, 11.5, 13.2, 17.7}},
    {"googlenet", 66, 1720, IMAGE_224, {7.4, 12.3, 16.8, 22.3, 23.6, 24.9}, {15.9, 23.9, 32.6, 43.4, 52.4, 56.3}, {10.2, 17.9, 26.1, 35.6, 39.7, 46.4}},
    {"resnet50", 108, 1820, IMAGE_224, {15.4, 18.8, 23.0, 25.8, 26.8, 28.2}, {27.9, 35.0, 43.9, 51.3, 58.4, 62.3}, {19.6, 29.3, 39.4, 46.5, 47.7, 48.4}},
    {"ssd-mobilenetv1", 202, 640, IMAGE_300, {10.6, 11.6, 15.8, 20.1, 23.3, 27.6}, {20.5, 26.1, 34.3, 46.4, 54.0, 61.2}, {13.3, 19.4, 27.9, 38.7, 41.2, 42.4}},
    {"vgg16", 142, 2920, IMAGE_224, {31.0, 33.8, 35.0, 32.1, 30.5, 30.2}, {56.0, 55.9, 54.2, 56.7, 60.8, 61.1}, {41.6, 50.1, 53.8, 60.3, 52.5, 52.7}},
    {"mnasnet1_0", 62, 1550, IMAGE_224, {8.0, 11.2, 15.0, 18.6, 21.5, 21.6}, {20.0, 28.6, 37.8, 46.6, 54.3, 57.6}, {9.5, 15.2, 22.4, 28.0, 33.2, 35.7}},
    {"mobilenet_v2", 64, 464, IMAGE_224, {8.6, 12.2, 15.9, 20.7, 23.2, 23.9}, {21.8, 30.3, 39.9, 51.1, 57.9, 62.3}, {9.1, 14.3, 20.2, 25.8, 29.0, 30.6}},
    {"densenet161", 202, 1220, IMAGE_224, {9.0, 12.9, 19.3, 22.2, 23.4, 25.5}, {18.3, 25.2, 36.6, 45.0, 53.9, 60.0}, {13.4, 19.8, 30.1, 38.2, 41.6, 43.7}},
    {"bert", 22, 500, TOKENS, {9.2, 10.7, 14.0, 16.3, 18.0, 18.3}, {29.0, 29.3, 30.3, 30.2, 34.4, 34.7}, {16.7, 16.8, 24.5, 34.2, 47.4, 53.6}},
};
/* Batching overhead, ms, for batches 1..32; 2 is halfway between the measured 1 and 4. */
static const double batching[][TL_GPULET_BATCHES] = {
    [LENET] = {0.4, 0.4, 0.4, 0.4, 0.4, 0.4},
    [TOKENS] = {1, 1, 1, 1, 1, 1},
    [IMAGE_224] = {1.9 * 0.242, 1.9 * 0.474, 1.9 * 0.937, 1.9 * 1.869, 1.9 * 5.081, 1.9 * 10.989},
    [IMAGE_300] = {2.5 * 0.416, 2.5 * 0.820, 2.5 * 1.628, 2.5 * 4.192, 2.5 * 9.569, 2.5 * 21.697},
};
/* clang-format on */

enum { PUBLISHED = sizeof published / sizeof published[0] };

static void fill(struct tl_gpulet_model *m, const struct published *from)
{
    *m = (struct tl_gpulet_model){.slo_ms = from->slo_ms, .memory_mb = from->memory_mb};
    strncpy(m->name, from->name, sizeof m->name - 1);
    memcpy(m->batching_ms, batching[from->input], sizeof m->batching_ms);
    for (int i = 0; i < TL_GPULET_BATCHES; i++) {
        m->l2[i] = from->l2[i] / 100;
        m->dram[i] = from->dram[i] / 100;
    }
    /* The whole GPU with a batch of 32 just saturates: twice its latency is the SLO.  A fifth of it
     * does not depend on the batch. */
    double whole = m->slo_ms / 2 / 1.1 - m->batching_ms[TL_GPULET_BATCHES - 1],
           knees[TL_GPULET_BATCHES];
    /* The part of the GPU that a batch can use is its SM utilisation, the highest of all being a
     * whole GPU. */
    for (int i = 0; i < TL_GPULET_BATCHES; i++)
        knees[i] = from->sm[i] / 60.3;
    tl_gpulet_stand_in(m, 0.2 * whole, 0.8 * whole, knees);
}

bool tl_gpulet_builtin(const char *name, struct tl_gpulet_model *m)
{
    for (int i = 0; i < PUBLISHED; i++)
        if (strcmp(published[i].name, name) == 0) {
            fill(m, &published[i]);
            return true;
        }
    return false;
}
