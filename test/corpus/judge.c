/* Which kernels have which variant, and why the others have not. */
#include "test/corpus/corpus.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void keep_example(struct corpus_verdicts *r, int variant, enum tl_ptx_reason reason,
                         struct tl_str kernel)
{
    struct tl_str *examples = r->examples[variant][reason];
    for (int i = 0; i < CORPUS_EXAMPLES; i++) {
        if (tl_str_eq(examples[i], kernel))
            return;
        if (examples[i].n == 0) {
            examples[i] = kernel;
            return;
        }
    }
}

static void count_verdicts(struct corpus *c, struct corpus_kernel *k,
                           const struct tl_ptx_verdict *verdicts)
{
    struct corpus_verdicts *r = &c->verdicts;
    k->was_judged = true;
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        enum tl_ptx_reason reason = verdicts[v].reason;
        k->reasons[v] = (uint8_t)reason;
        k->conditions[v] = (uint8_t)verdicts[v].conditions;
        r->count[v][reason]++;
        r->with_conditions[v] += reason == TL_PTX_REASON_OK && verdicts[v].conditions != 0;
        if (reason != TL_PTX_REASON_OK)
            keep_example(r, v, reason, k->name);
    }
}

static void write_conditions(FILE *f, uint32_t conditions)
{
    if (conditions & TL_PTX_IF_WARPS_ARE_ROWS)
        fputs("+rows", f);
    if (conditions & TL_PTX_IF_GRID_IS_LINE)
        fputs("+line", f);
    for (int i = 0; i < 3; i++) {
        if (conditions & TL_PTX_IF_ONE_WIDE_X << i)
            fprintf(f, "+one-wide-%c", "xyz"[i]);
    }
}

/* One line per kernel, for whoever wants to know why a share is what it is. */
static void write_verdicts(FILE *f, const struct corpus_kernel *k,
                           const struct tl_ptx_verdict *verdicts)
{
    const struct tl_ptx_verdict *refusal = NULL;
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        fputs(tl_ptx_reason_code(verdicts[v].reason), f);
        write_conditions(f, verdicts[v].conditions);
        fputc('\t', f);
        if (refusal == NULL && verdicts[v].reason != TL_PTX_REASON_OK)
            refusal = &verdicts[v];
    }
    fprintf(f, "%s\t" TL_STR_FMT "\t", k->image->origin, TL_STR_ARG(k->name));
    if (refusal != NULL)
        fprintf(f, "line %u: %s", refusal->place.line, refusal->note);
    fputc('\n', f);
}

static void tell_shares(const struct corpus *c)
{
    const struct corpus_verdicts *r = &c->verdicts;
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        uint32_t yes = r->count[v][TL_PTX_REASON_OK];
        corpus_say(c, "%-10s %6u of %u kernels (%.1f %%), %u of them on conditions",
                   tl_ptx_variant_name(v), yes, c->n_kernels,
                   c->n_kernels != 0 ? 100.0 * yes / c->n_kernels : 0.0, r->with_conditions[v]);
        for (int reason = 0; reason < TL_PTX_REASON_COUNT; reason++)
            if (reason != TL_PTX_REASON_OK && r->count[v][reason] != 0)
                corpus_say(c, "    %-20s %6u, such as " TL_STR_FMT, tl_ptx_reason_code(reason),
                           r->count[v][reason], TL_STR_ARG(r->examples[v][reason][0]));
    }
}

int corpus_judge(struct corpus *c, struct tl_error *err)
{
    const char *path = tl_arena_printf(&c->arena, "%s/%s.verdicts.tsv", c->options->folder,
                                       c->options->library);
    FILE *f = fopen(corpus_must((void *)path), "we");
    if (f == NULL)
        return tl_error_errno(err, "cannot write %s", path);
    fputs("slice\tticket\tpersistent\timage\tkernel\tfirst refusal\n", f);
    double start = corpus_cpu_seconds();
    for (uint32_t i = 0; i < c->n_kernels; i++) {
        struct corpus_kernel *k = &c->kernels[i];
        struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
        struct tl_error why;
        if (tl_ptx_judge(k->image->index, k->name, verdicts, &why) < 0) {
            c->verdicts.failed++;
            corpus_say(c, "NOT JUDGED %s", why.text);
            continue;
        }
        count_verdicts(c, k, verdicts);
        write_verdicts(f, k, verdicts);
    }
    c->verdicts.seconds = corpus_cpu_seconds() - start;
    if (fclose(f) != 0)
        return tl_error_errno(err, "cannot write %s", path);
    corpus_say(c, "judged in %.1f s", c->verdicts.seconds);
    tell_shares(c);
    return 0;
}
