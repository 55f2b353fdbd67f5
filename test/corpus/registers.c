/* A sample of kernels goes through ptxas, as they are and rewritten: is every variant taken, and what does it cost? */
#include "test/corpus/ptxas.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 40, WORST = 10, RUNS_PER_KERNEL = 1 + TL_PTX_VARIANTS };

/* A kernel's place in a batch: its runs are the original's and those of the variants that it has. */
struct trial {
    const struct corpus_kernel *kernel;
    struct ptxas_run *original; /* the variants' runs follow */
    uint32_t n_variants;
    enum tl_ptx_variant variants[TL_PTX_VARIANTS];
};

struct batch {
    struct tl_arena arena;
    struct trial trials[BATCH];
    uint32_t n_trials;
    struct ptxas_run runs[BATCH * RUNS_PER_KERNEL];
    uint32_t n_runs;
};

/* --- preparing --- */

static struct ptxas_run *add_run(struct corpus *c, struct batch *b, const struct corpus_kernel *k,
                                 const struct ptxas_choice *choice, const char *what)
{
    struct ptxas_run *run = &b->runs[b->n_runs];
    *run = (struct ptxas_run){.ptxas = choice->ptxas, .arch = choice->arch, .options = k->image->options};
    run->input = corpus_must(tl_arena_printf(&b->arena, "%s/work/%s-%u.%s.ptx", c->options->folder, c->options->library,
                                             c->registers.kernels, what));
    b->n_runs++;
    return run;
}

static int add_original(struct corpus *c, struct batch *b, struct trial *t, const struct ptxas_choice *choice,
                        struct tl_error *err)
{
    struct tl_buf text = {0};
    t->original = add_run(c, b, t->kernel, choice, "original");
    ptxas_original(&text, t->kernel);
    corpus_must(text.failed ? NULL : text.p);
    int rc = ptxas_write(t->original->input, text.p, text.n, choice, err);
    tl_buf_finish(&text);
    return rc;
}

static int add_variant(struct corpus *c, struct batch *b, struct trial *t, enum tl_ptx_variant v,
                       const struct ptxas_choice *choice, struct tl_error *err)
{
    const struct corpus_kernel *k = t->kernel;
    const struct tl_ptx_options options = {.variant = v, .grid_dims = corpus_dims(k, v)};
    struct tl_ptx_rewritten out;
    char what[32];
    if (tl_ptx_rewrite(k->image->index, k->name, &options, &out, NULL, err) < 0) {
        corpus_say(c, "NOT REWRITTEN %s", err->text);
        c->registers.tried++;
        return 0;
    }
    snprintf(what, sizeof what, "%s%u", tl_ptx_variant_name(v), options.grid_dims);
    t->variants[t->n_variants++] = v;
    int rc = ptxas_write(add_run(c, b, k, choice, what)->input, out.text, out.text_bytes, choice, err);
    tl_ptx_rewritten_finish(&out);
    return rc;
}

static int add_trial(struct corpus *c, struct batch *b, const struct corpus_kernel *k, struct tl_error *err)
{
    struct corpus_registers *r = &c->registers;
    const struct ptxas_choice *choice;
    int rc = ptxas_choose(c, k->image->index, &choice, err);
    if (rc < 0)
        return rc;
    r->kernels++;
    if (choice->ptxas == NULL) {
        r->refused_originals++;
        return 0;
    }
    r->lowered += choice->as_version != NULL;
    r->raised += strcmp(choice->arch, choice->target) != 0;
    struct trial *t = &b->trials[b->n_trials++];
    *t = (struct trial){.kernel = k};
    rc = add_original(c, b, t, choice, err);
    for (int v = 0; rc == 0 && v < TL_PTX_VARIANTS; v++)
        if (k->reasons[v] == TL_PTX_REASON_OK)
            rc = add_variant(c, b, t, v, choice, err);
    return rc;
}

/* --- results --- */

/* Keeps a text that ptxas refused, and what it said. */
static void keep_failed(struct corpus *c, const struct trial *t, const struct ptxas_run *run, const char *what)
{
    const char *name = strrchr(run->input, '/') + 1;
    const char *to = corpus_must(tl_arena_printf(&c->arena, "%s/failed/%s", c->options->folder, name));
    (void)rename(run->input, to);
    (void)rename(ptxas_log_path(&c->arena, run), corpus_must(tl_arena_printf(&c->arena, "%s.log", to)));
    corpus_say(c, "REFUSED %s of " TL_STR_FMT " (%s): %s: %s", what, TL_STR_ARG(t->kernel->name),
               t->kernel->image->origin, run->message, to);
}

static void add_growth(struct corpus_registers *r, const struct trial *t, enum tl_ptx_variant v,
                       const struct ptxas_run *run)
{
    r->growths = corpus_one_more(r->growths, r->n_growths, &r->max_growths, sizeof r->growths[0]);
    r->growths[r->n_growths++] = (struct corpus_growth){
        .kernel = t->kernel,
        .variant = v,
        .dims = corpus_dims(t->kernel, v),
        .before = t->original->registers,
        .after = run->registers,
        .spill_before = t->original->spill_bytes,
        .spill_after = run->spill_bytes,
    };
}

static void take_results(struct corpus *c, const struct trial *t)
{
    struct corpus_registers *r = &c->registers;
    uint32_t new_spill = 0;
    if (!t->original->was_accepted) { /* then nothing can be expected of the variants */
        r->refused_originals++;
        keep_failed(c, t, t->original, "the original");
        return;
    }
    for (uint32_t i = 0; i < t->n_variants; i++) {
        const struct ptxas_run *run = t->original + 1 + i;
        r->tried++;
        if (!run->was_accepted) {
            keep_failed(c, t, run, tl_ptx_variant_name(t->variants[i]));
            continue;
        }
        r->accepted++;
        add_growth(r, t, t->variants[i], run);
        if (t->original->spill_bytes == 0 && run->spill_bytes > new_spill)
            new_spill = run->spill_bytes;
    }
    r->new_spill_kernels += new_spill > 0;
    r->new_large_spill_kernels += new_spill > CORPUS_LARGE_SPILL;
}

static void remove_files(struct batch *b)
{
    for (uint32_t i = 0; i < b->n_runs; i++) {
        (void)unlink(b->runs[i].input);
        (void)unlink(ptxas_log_path(&b->arena, &b->runs[i]));
    }
}

static int run_batch(struct corpus *c, const struct corpus_kernel *const *kernels, uint32_t n, struct tl_error *err)
{
    struct batch *b = corpus_must(calloc(1, sizeof *b));
    int rc = 0;
    tl_arena_init(&b->arena, 0);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = add_trial(c, b, kernels[i], err);
    if (rc == 0)
        rc = ptxas_run_all(b->runs, b->n_runs, c->options->jobs, err);
    for (uint32_t i = 0; rc == 0 && i < b->n_trials; i++)
        take_results(c, &b->trials[i]);
    remove_files(b);
    tl_arena_finish(&b->arena);
    free(b);
    return rc;
}

/* --- statistics --- */

static int32_t growth_of(const struct corpus_growth *g)
{
    return (int32_t)g->after - (int32_t)g->before;
}

static int by_growth(const void *a, const void *b)
{
    int32_t ga = growth_of(a), gb = growth_of(b);
    return (ga > gb) - (ga < gb);
}

int32_t corpus_growth_at(const struct corpus_registers *r, enum tl_ptx_variant variant, double share)
{
    uint32_t n = 0, seen = 0;
    for (uint32_t i = 0; i < r->n_growths; i++)
        n += variant == TL_PTX_VARIANTS || r->growths[i].variant == variant;
    for (uint32_t i = 0; i < r->n_growths; i++) {
        seen += variant == TL_PTX_VARIANTS || r->growths[i].variant == variant;
        if ((double)seen >= share * n && seen > 0)
            return growth_of(&r->growths[i]);
    }
    return 0;
}

static void tell_growth(const struct corpus *c)
{
    const struct corpus_registers *r = &c->registers;
    corpus_say(c, "ptxas: %u of %u variants of %u kernels accepted; %u originals refused, %u lowered, %u raised",
               r->accepted, r->tried, r->kernels, r->refused_originals, r->lowered, r->raised);
    for (int v = 0; v <= TL_PTX_VARIANTS; v++)
        corpus_say(c, "registers: %-10s median %+d, 99th percentile %+d",
                   v < TL_PTX_VARIANTS ? tl_ptx_variant_name(v) : "all", corpus_growth_at(r, v, 0.5),
                   corpus_growth_at(r, v, 0.99));
    corpus_say(c, "new spills in %u kernels, of more than %d bytes in %u", r->new_spill_kernels, CORPUS_LARGE_SPILL,
               r->new_large_spill_kernels);
    for (uint32_t i = 0; i < r->n_growths && i < WORST; i++) {
        const struct corpus_growth *g = &r->growths[r->n_growths - 1 - i];
        corpus_say(c, "    %u -> %u registers in %s%u of " TL_STR_FMT " (%s)", g->before, g->after,
                   tl_ptx_variant_name(g->variant), g->dims, TL_STR_ARG(g->kernel->name), g->kernel->image->origin);
    }
}

/* One line per variant, the worst first. */
static int write_growth(struct corpus *c, struct tl_error *err)
{
    const struct corpus_registers *r = &c->registers;
    const char *path = tl_arena_printf(&c->arena, "%s/%s.registers.tsv", c->options->folder, c->options->library);
    struct tl_buf text = {0};
    tl_buf_puts(&text, "growth\tbefore\tafter\tspill before\tspill after\tvariant\timage\tkernel\n");
    for (uint32_t i = r->n_growths; i-- > 0;) {
        const struct corpus_growth *g = &r->growths[i];
        tl_buf_printf(&text, "%+d\t%u\t%u\t%u\t%u\t%s%u\t%s\t" TL_STR_FMT "\n", growth_of(g), g->before, g->after,
                      g->spill_before, g->spill_after, tl_ptx_variant_name(g->variant), g->dims,
                      g->kernel->image->origin, TL_STR_ARG(g->kernel->name));
    }
    corpus_must(text.failed || path == NULL ? NULL : text.p);
    int rc = corpus_write(path, text.p, text.n, err);
    tl_buf_finish(&text);
    return rc;
}

int corpus_measure_registers(struct corpus *c, struct tl_error *err)
{
    const struct corpus_kernel **sample = corpus_sample(c, c->options->sample);
    uint32_t n = 0;
    int rc = 0;
    while (sample[n] != NULL)
        n++;
    for (uint32_t done = 0; rc == 0 && done < n; done += BATCH) {
        rc = run_batch(c, sample + done, n - done < BATCH ? n - done : BATCH, err);
        if (done % (BATCH * 5) == 0)
            corpus_say(c, "ptxas: %u of %u kernels tried", c->registers.kernels, n);
    }
    free(sample);
    if (rc < 0)
        return rc;
    qsort(c->registers.growths, c->registers.n_growths, sizeof c->registers.growths[0], by_growth);
    tell_growth(c);
    return write_growth(c, err);
}
