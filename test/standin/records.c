/* record-sample FOLDER MODE [SECONDS]: writes the records that an inference server and a trainer on
 * one device might have left, through the recorder's own calls.  The device is invented, a queue in
 * virtual time; MODE tells how the two share it: alone, mps, timeslice, tally or opaque.  The same
 * arguments give the same values. */
#include "runtime/record/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252u;

static double uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return ((double)(state >> 11) + 0.5) / 9007199254740992.0;
}

/* Around `middle`, with a tail to the right. */
static double around(double middle, double spread)
{
    double normal = sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
    return middle * exp(spread * normal);
}

struct kernel {
    const char *name;
    double us, spread;
    uint64_t blocks;
    enum tl_rung rung; /* in the best-effort job */
    struct tl_record_kernel *record;
};

static struct kernel server[] = {
    {"_ZN7cutlass6KernelINS_4gemm6kernel4GemmIfLi128ELi64ELi32EEEEEvNT_6ParamsE", 140, 0.05, 96,
     TL_RUNG_WHOLE, NULL},
    {"_Z14layer_norm_fwdIfEvPKT_PS0_ii", 24, 0.08, 64, TL_RUNG_WHOLE, NULL},
    {"_ZN12_GLOBAL__N_115softmax_forwardI6__halffLi4EEEvPT_PKS2_i", 38, 0.08, 128, TL_RUNG_WHOLE,
     NULL},
    {"triton_poi_fused_gelu_3", 17, 0.1, 48, TL_RUNG_WHOLE, NULL},
};
static struct kernel trainer[] = {
    {"_Z9wgrad_gemILi128ELi128EEvPKfS1_Pfiii", 2400, 0.04, 2048, TL_RUNG_PERSISTENT, NULL},
    {"_Z15conv2d_backwardPKfS0_Pfiiiii", 1600, 0.08, 4096, TL_RUNG_TICKET, NULL},
    {"_Z9adam_stepIfEvPT_PKS0_S1_S1_ffffi", 420, 0.05, 1024, TL_RUNG_SLICE, NULL},
    {"loop_fusion_17", 95, 0.15, 512, TL_RUNG_TICKET, NULL},
    {"ampere_sgemm_128x64_tn", 700, 0.05, 600, TL_RUNG_WHOLE, NULL},
    {"_ZN3cub18DeviceReduceKernelILi600EPKfPfiNS_3SumEEEvT0_T1_T2_T3_", 60, 0.1, 256,
     TL_RUNG_TICKET, NULL},
};
enum {
    SERVER = sizeof server / sizeof server[0],
    TRAINER = sizeof trainer / sizeof trainer[0],
    LAYERS = 12
};

struct device {
    struct tl_record *high, *low;
    const char *mode;
    uint64_t low_free_ns;  /* the trainer's kernel that runs now ends then */
    uint64_t low_begin_ns; /* and began then */
    struct kernel *low_kernel;
    int low_step;
};

static bool is_mode(const struct device *d, const char *mode)
{
    return strcmp(d->mode, mode) == 0;
}

static bool is_tally(const struct device *d)
{
    return is_mode(d, "tally") || is_mode(d, "opaque");
}

/* The trainer goes on until `until`; its last kernel may end later. */
static void run_trainer(struct device *d, uint64_t until)
{
    while (d->low != NULL && d->low_free_ns < until) {
        struct kernel *k = &trainer[d->low_step++ % TRAINER];
        uint64_t begin = d->low_free_ns + 3000, ran = (uint64_t)(around(k->us, k->spread) * 1000);
        d->low_kernel = k;
        d->low_begin_ns = begin;
        d->low_free_ns = begin + ran;
        enum tl_rung rung = is_tally(d) ? k->rung : TL_RUNG_WHOLE;
        tl_record_launched(k->record, rung, k->blocks);
        tl_record_ran(k->record, 2000 + (uint64_t)(uniform() * 3000), ran);
        tl_record_spanned(d->low, TL_SPAN_RUN, k->record, 1, begin, d->low_free_ns);
        if (rung == TL_RUNG_WHOLE)
            tl_record_uncontrolled(k->record, ran);
    }
}

/* What a kernel of the server has to wait for, and how much slower it is beside the trainer. */
static uint64_t wait_for_device(struct device *d, uint64_t at, double *slower)
{
    *slower = 1;
    if (d->low == NULL || d->low_free_ns <= at)
        return 0;
    uint64_t left = d->low_free_ns - at;
    if (is_mode(d, "mps")) {
        *slower = 1.6;
        return (uint64_t)((double)left * 0.35 * uniform());
    }
    if (is_mode(d, "timeslice"))
        return (uint64_t)(uniform() * 2e6);
    /* The trainer leaves after a block; opaque kernels end first. */
    if (d->low_kernel->rung == TL_RUNG_WHOLE)
        return left;
    uint64_t block = (uint64_t)around(14000, 0.35);
    if (block > left)
        return left;
    tl_record_preempted(d->low_kernel->record, block, block);
    return block;
}

/* A request that came at `at`; the device is free for it at `free_ns`.  Returns when it is done. */
static uint64_t serve(struct device *d, uint64_t came, uint64_t free_ns)
{
    uint64_t at = came > free_ns ? came : free_ns;
    for (int i = 0; i < LAYERS; i++) {
        struct kernel *k = &server[i % SERVER];
        double slower;
        uint64_t waited = i == 0 || !is_tally(d) ? wait_for_device(d, at, &slower)
                                                 : (slower = 1, 0);
        uint64_t ran = (uint64_t)(around(k->us, k->spread) * 1000 * slower);
        tl_record_launched(k->record, TL_RUNG_WHOLE, k->blocks);
        tl_record_ran(k->record, waited + 1200, ran);
        if (waited > 0)
            tl_record_spanned(d->high, TL_SPAN_WAIT, k->record, 0, at, at + waited);
        tl_record_spanned(d->high, TL_SPAN_RUN, k->record, 0, at + waited, at + waited + ran);
        at += waited + ran + 2000;
    }
    if (d->low != NULL && is_tally(d)) {
        tl_record_spanned(d->low, TL_SPAN_WAIT, d->low_kernel->record, 1, came, at);
        d->low_free_ns = d->low_free_ns > at ? d->low_free_ns + (at - came) : at;
    }
    tl_record_copied(d->high, TL_COPY_TO_DEVICE, 602112);
    tl_record_copied(d->high, TL_COPY_FROM_DEVICE, 4000);
    tl_record_request(d->high, came, at, true);
    return at;
}

static struct tl_record *open_record(const char *folder, const char *name, int level,
                                     const char *mode)
{
    struct tl_record *r;
    struct tl_error err;
    struct tl_record_job job = {
        .name = name,
        .command = level > 0 ? "python3 serve.py --model bert --rate 240"
                             : "python3 train.py --model resnet50 --batch 64",
        .device = "software device, 8 SMs",
        .policy = strcmp(mode, "opaque") == 0 ? "tally" : mode,
        .level = level,
        .is_opaque = strcmp(mode, "opaque") == 0 && level < 0,
    };
    if (tl_record_open(&r, folder, &job, &err) == 0)
        return r;
    fprintf(stderr, "record-sample: %s\n", err.text);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: record-sample FOLDER alone|mps|timeslice|tally|opaque [SECONDS]\n");
        return 2;
    }
    struct device d = {.mode = argv[2]};
    double seconds = argc > 3 ? strtod(argv[3], NULL) : 12;
    d.high = open_record(argv[1], "server", TL_LEVEL_HIGH, d.mode);
    d.low = open_record(argv[1], "trainer", TL_LEVEL_LOW, d.mode);
    for (int i = 0; i < SERVER; i++)
        server[i].record = tl_record_kernel(d.high, server[i].name);
    for (int i = 0; i < TRAINER; i++)
        trainer[i].record = tl_record_kernel(d.low, trainer[i].name);

    uint64_t begin = tl_record_now(), end = begin + (uint64_t)(seconds * 1e9), free_ns = begin;
    struct tl_record *low = d.low;
    d.low_free_ns = begin;
    if (is_mode(&d, "alone")) { /* one after the other */
        run_trainer(&d, end);
        begin = free_ns = end;
        end += (uint64_t)(seconds * 1e9);
        d.low = NULL;
    }
    for (uint64_t at = begin; at < end;) {
        at += (uint64_t)(-log(uniform()) * 4.2e6);
        run_trainer(&d, at > free_ns ? at : free_ns);
        free_ns = serve(&d, at, free_ns);
    }
    if (is_tally(&d)) {
        tl_record_note(low,
                       "ampere_sgemm_128x64_tn: has no PTX; it runs whole, with bounded run-ahead");
        tl_record_note(
            low,
            "variant of _Z9adam_stepIfEvPT_PKS0_S1_S1_ffffi: persistent refused: warp-after-exit");
    }
    tl_record_copied(low, TL_COPY_TO_DEVICE, 1234567890);
    tl_record_close(d.high);
    tl_record_close(low);
    return 0;
}
