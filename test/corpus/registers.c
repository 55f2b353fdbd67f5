/* A sample of kernels goes through ptxas, as they are and rewritten: is every variant taken, and
 * what does it cost?
 *
 * This does what a runtime does: a variant that costs too much is compiled a second time, with a
 * limit on registers, and the second one is kept if it is better (tl_ptx_register_limit). */
#include "test/corpus/ptxas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 40, RUNS_PER_KERNEL = 1 + 2 * TL_PTX_VARIANTS };

/* A kernel's place in a batch: the original's run, and one or two for each variant that it has. */
struct trial {
    const struct corpus_kernel *kernel;
    const struct ptxas_choice *choice;
    uint32_t number; /* in the sample */
    struct ptxas_run *original;
    uint32_t n_variants;
    struct {
        enum tl_ptx_variant variant;
        struct ptxas_run *first, *limited; /* `limited` may be NULL */
    } variants[TL_PTX_VARIANTS];
};

struct batch {
    struct tl_arena arena;
    struct trial trials[BATCH];
    uint32_t n_trials;
    struct ptxas_run runs[BATCH * RUNS_PER_KERNEL];
    uint32_t n_runs;
};

/* --- preparing --- */

static struct ptxas_run *add_run(struct corpus *c, struct batch *b, const struct trial *t,
                                 const char *what)
{
    struct ptxas_run *run = &b->runs[b->n_runs++];
    *run = (struct ptxas_run){
        .ptxas = t->choice->ptxas, .arch = t->choice->arch, .options = t->kernel->image->options};
    run->input = corpus_must(tl_arena_printf(&b->arena, "%s/work/%s-%u.%s.ptx", c->options->folder,
                                             c->options->library, t->number, what));
    return run;
}

static int add_original(struct corpus *c, struct batch *b, struct trial *t, struct tl_error *err)
{
    struct tl_buf text = {0};
    t->original = add_run(c, b, t, "original");
    ptxas_original(&text, t->kernel);
    corpus_must(text.failed ? NULL : text.p);
    int rc = ptxas_write(t->original->input, text.p, text.n, t->choice, err);
    tl_buf_finish(&text);
    return rc;
}

/* A run of a variant with at most `limit` registers, 0 for any number; NULL in `run` if it cannot
 * be rewritten. */
static int add_variant(struct corpus *c, struct batch *b, const struct trial *t,
                       enum tl_ptx_variant v, uint32_t limit, struct ptxas_run **run,
                       struct tl_error *err)
{
    const struct tl_ptx_options options = {
        .variant = v, .grid_dims = corpus_dims(t->kernel, v), .max_registers = limit};
    struct tl_ptx_rewritten out;
    char what[64];
    *run = NULL;
    if (tl_ptx_rewrite(t->kernel->image->index, t->kernel->name, &options, &out, NULL, err) < 0) {
        corpus_say(c, "NOT REWRITTEN %s", err->text);
        return 0;
    }
    snprintf(what, sizeof what, "%s%u%s", tl_ptx_variant_name(v), options.grid_dims,
             limit != 0 ? ".limited" : "");
    *run = add_run(c, b, t, what);
    int rc = ptxas_write((*run)->input, out.text, out.text_bytes, t->choice, err);
    tl_ptx_rewritten_finish(&out);
    return rc;
}

static int add_trial(struct corpus *c, struct batch *b, const struct corpus_kernel *k,
                     struct tl_error *err)
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
    *t = (struct trial){.kernel = k, .choice = choice, .number = r->kernels};
    rc = add_original(c, b, t, err);
    for (int v = 0; rc == 0 && v < TL_PTX_VARIANTS; v++) {
        struct ptxas_run *run;
        if (k->reasons[v] != TL_PTX_REASON_OK)
            continue;
        rc = add_variant(c, b, t, v, 0, &run, err);
        if (rc == 0 && run == NULL)
            r->tried++; /* and not accepted */
        if (rc == 0 && run != NULL) {
            t->variants[t->n_variants].variant = v;
            t->variants[t->n_variants++].first = run;
        }
    }
    return rc;
}

static struct tl_ptx_cost cost_of(const struct ptxas_run *run)
{
    return (struct tl_ptx_cost){.registers = run->registers, .local_bytes = run->spill_bytes};
}

/* The second runs of a kernel whose first ones are done. */
static int add_limited(struct corpus *c, struct batch *b, struct trial *t, struct tl_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < t->n_variants && t->original->was_accepted; i++) {
        const struct ptxas_run *first = t->variants[i].first;
        uint32_t limit = first->was_accepted
                             ? tl_ptx_register_limit(cost_of(t->original), cost_of(first))
                             : 0;
        if (limit != 0)
            rc = add_variant(c, b, t, t->variants[i].variant, limit, &t->variants[i].limited, err);
    }
    return rc;
}

/* --- results --- */

/* Keeps a text that ptxas refused, and what it said. */
static void keep_failed(struct corpus *c, const struct trial *t, const struct ptxas_run *run,
                        const char *what)
{
    const char *name = strrchr(run->input, '/') + 1;
    const char *to = corpus_must(
        tl_arena_printf(&c->arena, "%s/failed/%s", c->options->folder, name));
    (void)rename(run->input, to);
    (void)rename(ptxas_log_path(&c->arena, run),
                 corpus_must(tl_arena_printf(&c->arena, "%s.log", to)));
    corpus_say(c, "REFUSED %s of " TL_STR_FMT " (%s): %s: %s", what, TL_STR_ARG(t->kernel->name),
               t->kernel->image->origin, run->message, to);
}

/* What the variant costs in the end, in a growth that knows the beginning. */
static void choose_run(struct corpus *c, const struct trial *t, const struct ptxas_run *limited,
                       struct corpus_growth *g)
{
    struct corpus_registers *r = &c->registers;
    g->after = g->first;
    if (limited == NULL)
        return;
    r->limit_tried++;
    if (!limited->was_accepted) { /* the one without a limit is used */
        r->limit_refused++;
        keep_failed(c, t, limited, "the limited variant");
        return;
    }
    r->tried++;
    r->accepted++;
    if (tl_ptx_limit_helps(g->before, cost_of(limited))) {
        r->limit_helped++;
        g->after = cost_of(limited);
    }
}

/* Adds up what ptxas said of a kernel and its variants.  A refused variant is kept for people to
 * look at; if the original itself is refused, that says nothing about the variants, and they are
 * left out. */
static void take_results(struct corpus *c, const struct trial *t)
{
    struct corpus_registers *r = &c->registers;
    uint32_t first_spill = 0, new_spill = 0;
    if (!t->original->was_accepted) { /* then nothing can be expected of the variants */
        r->refused_originals++;
        keep_failed(c, t, t->original, "the original");
        return;
    }
    for (uint32_t i = 0; i < t->n_variants; i++) {
        enum tl_ptx_variant v = t->variants[i].variant;
        const struct ptxas_run *first = t->variants[i].first;
        r->tried++;
        if (!first->was_accepted) {
            keep_failed(c, t, first, tl_ptx_variant_name(v));
            continue;
        }
        r->accepted++;
        struct corpus_growth g = {.kernel = t->kernel,
                                  .variant = v,
                                  .dims = corpus_dims(t->kernel, v),
                                  .before = cost_of(t->original),
                                  .first = cost_of(first)};
        choose_run(c, t, t->variants[i].limited, &g);
        if (g.before.local_bytes == 0 && g.first.local_bytes > first_spill)
            first_spill = g.first.local_bytes;
        if (g.before.local_bytes == 0 && g.after.local_bytes > new_spill)
            new_spill = g.after.local_bytes;
        r->growths = corpus_one_more(r->growths, r->n_growths, &r->max_growths,
                                     sizeof r->growths[0]);
        r->growths[r->n_growths++] = g;
    }
    r->first_spill_kernels += first_spill > 0;
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

static int run_batch(struct corpus *c, const struct corpus_kernel *const *kernels, uint32_t n,
                     struct tl_error *err)
{
    struct batch *b = corpus_must(calloc(1, sizeof *b));
    int rc = 0;
    tl_arena_init(&b->arena, 0);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = add_trial(c, b, kernels[i], err);
    if (rc == 0)
        rc = ptxas_run_all(b->runs, b->n_runs, c->options->jobs, err);
    uint32_t n_first = b->n_runs;
    for (uint32_t i = 0; rc == 0 && i < b->n_trials; i++)
        rc = add_limited(c, b, &b->trials[i], err);
    if (rc == 0)
        rc = ptxas_run_all(b->runs + n_first, b->n_runs - n_first, c->options->jobs, err);
    for (uint32_t i = 0; rc == 0 && i < b->n_trials; i++)
        take_results(c, &b->trials[i]);
    remove_files(b);
    tl_arena_finish(&b->arena);
    free(b);
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
    return corpus_sum_up_growth(c, err);
}
