/* How long a stop takes: from the host's store to the end of the launch, as the host hears of it.
 * Of slices, which cannot be told to stop, from a random moment to the end of the one that runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/doctor/bench.h"
#include "tally/clock.h"
#include "tally/cubin.h"
#include "tally/text.h"

enum { TRIES = 40, WAVES = 16, MOST_BLOCKS = 32768, LEAST_BLOCKS = 512, BLOCK_NS = 20000 };

/* Upper ends of the histogram's bars, in blocks; the last has none. */
static const struct bar {
    const char *key;
    double most;
} bars[] = {{"blocks_to_0.5", 0.5},      {"blocks_to_1", 1}, {"blocks_to_1.5", 1.5},
            {"blocks_to_2", 2},          {"blocks_to_4", 4}, {"blocks_to_8", 8},
            {"blocks_above_8", INFINITY}};
enum { BARS = sizeof bars / sizeof bars[0] };

struct stops {
    uint64_t ns[TRIES];
    uint32_t n; /* that left blocks undone */
    uint32_t tried;
};

/* One launch that is told to stop after a few blocks' time.  False if the driver fails. */
static CUresult stop_once(struct tl_doc_exam *e, struct tl_doc_bench *b,
                          const struct tl_doc_form *f, const struct tl_doc_shape *s,
                          uint64_t block_ns, struct stops *out)
{
    bool is_slice = f->variant == TL_PTX_SLICE;
    uint32_t wave = b->sms * f->occupancy, counter = 0;
    struct tl_doc_piece p = {
        .grid = f->variant == TL_PTX_TICKET ? s->blocks : wave, .last = s->blocks, .batch = 1};
    if (p.grid > s->blocks)
        p.grid = s->blocks;
    tl_doc_stop(b, false);
    CUresult r = tl_doc_counter_set(b, 0);
    if (r == CUDA_SUCCESS)
        r = tl_doc_launch(b, f, s, &p);
    if (r != CUDA_SUCCESS)
        return r;
    tl_doc_sleep(block_ns * (is_slice ? 1 : 2) / 2 +
                 tl_doc_random(&e->random) % (4 * block_ns + 1));
    bool is_over = is_slice && tl_doc_driver.cuEventQuery(b->end) == CUDA_SUCCESS;
    uint64_t begin = tl_clock_ns();
    tl_doc_stop(b, true);
    r = tl_doc_driver.cuEventSynchronize(b->end);
    uint64_t took = tl_clock_ns() - begin;
    if (r == CUDA_SUCCESS && !is_slice)
        r = tl_doc_counter_get(b, &counter);
    if (f->variant == TL_DOC_GATED)
        counter &= ~TL_CUBIN_CLOSED;
    out->tried++;
    if (is_slice ? !is_over : counter < s->blocks)
        out->ns[out->n++] = took;
    return r;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void tell(struct tl_doc_exam *e, struct stops *s, uint64_t block_ns)
{
    uint32_t counts[BARS] = {0};
    qsort(s->ns, s->n, sizeof s->ns[0], by_value);
    for (uint32_t i = 0; i < s->n; i++) {
        int bar = 0;
        while ((double)s->ns[i] > bars[bar].most * (double)block_ns)
            bar++;
        counts[bar]++;
    }
    uint64_t median = s->ns[s->n / 2], worst = s->ns[s->n - 1];
    tl_doc_number(e, "stops", s->n);
    tl_doc_number(e, "block_ns", (double)block_ns);
    tl_doc_number(e, "p50_ns", (double)median);
    tl_doc_number(e, "max_ns", (double)worst);
    for (int i = 0; i < BARS; i++)
        tl_doc_number(e, bars[i].key, counts[i]);
    tl_doc_works(e, "latency", "%u stops: median %s (%.1f blocks of %s), at most %s", s->n,
                 tl_text_time((double)median).s, (double)median / (double)block_ns,
                 tl_text_time((double)block_ns).s, tl_text_time((double)worst).s);
}

void tl_doc_latency(struct tl_doc_exam *e, const struct tl_doc_form *original,
                    const struct tl_doc_form *form)
{
    struct tl_doc_bench b;
    struct tl_doc_data data;
    struct stops stops = {.n = 0};
    const struct tl_doc_shape one = {.grid = {1, 1, 1}, .blocks = 1};
    bool is_slice = form->variant == TL_PTX_SLICE;
    if (!tl_doc_bench_make(e, &b, MOST_BLOCKS, !is_slice, "latency"))
        return;
    if (tl_doc_data_init(&data, &one, 1) < 0) {
        tl_doc_refused(e, "latency", true, "no memory");
        return;
    }
    b.data = &data;
    uint32_t blocks = WAVES * b.sms * form->occupancy;
    blocks = blocks < LEAST_BLOCKS ? LEAST_BLOCKS : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks;
    struct tl_doc_shape s = tl_doc_shape_of(form->kernel, blocks,
                                            tl_doc_spin_for(&b, original, BLOCK_NS));
    uint64_t block_ns = tl_doc_block_ns(&b, original, s.spin);
    CUresult r = CUDA_SUCCESS;
    if (block_ns == 0)
        block_ns = BLOCK_NS;
    for (int i = 0; i < TRIES && r == CUDA_SUCCESS; i++)
        r = stop_once(e, &b, form, &s, block_ns, &stops);
    if (r != CUDA_SUCCESS)
        tl_doc_wrong(e, "latency", "%s", tl_doc_error(r));
    else if (stops.n == 0 && !is_slice)
        tl_doc_wrong(e, "latency", "it never left before its end when told to, in %u tries",
                     stops.tried);
    else if (stops.n == 0)
        tl_doc_refused(e, "latency", false, "slices end too fast to be timed here");
    else
        tell(e, &stops, block_ns);
    tl_doc_data_finish(&data);
}
