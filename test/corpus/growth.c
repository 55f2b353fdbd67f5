/* How many registers the variants cost more than the originals: the numbers and the lists. */
#include "test/corpus/corpus.h"

#include <math.h>
#include <stdlib.h>

enum { WORST = 10 };

static int32_t growth_of(const struct corpus_growth *g)
{
    return (int32_t)g->after.registers - (int32_t)g->before.registers;
}

static int by_growth(const void *a, const void *b)
{
    int32_t ga = growth_of(a), gb = growth_of(b);
    return (ga > gb) - (ga < gb);
}

static int by_number(const void *a, const void *b)
{
    int32_t ia = *(const int32_t *)a, ib = *(const int32_t *)b;
    return (ia > ib) - (ia < ib);
}

int32_t corpus_growth_at(const struct corpus_registers *r, enum tl_ptx_variant variant,
                         double share)
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

int32_t corpus_first_growth_at(const struct corpus_registers *r, double share)
{
    int32_t *all = corpus_must(calloc((size_t)r->n_growths + 1, sizeof *all));
    for (uint32_t i = 0; i < r->n_growths; i++)
        all[i] = (int32_t)r->growths[i].first.registers - (int32_t)r->growths[i].before.registers;
    qsort(all, r->n_growths, sizeof *all, by_number);
    uint32_t at = (uint32_t)ceil(share * r->n_growths);
    int32_t growth = all[at > 0 ? at - 1 : 0];
    free(all);
    return growth;
}

static void tell_growth(const struct corpus *c)
{
    const struct corpus_registers *r = &c->registers;
    corpus_say(c,
               "ptxas: %u of %u variants of %u kernels accepted; %u originals refused, %u lowered, "
               "%u raised",
               r->accepted, r->tried, r->kernels, r->refused_originals, r->lowered, r->raised);
    for (int v = 0; v <= TL_PTX_VARIANTS; v++)
        corpus_say(c, "registers: %-10s median %+d, 99th percentile %+d",
                   v < TL_PTX_VARIANTS ? tl_ptx_variant_name(v) : "all",
                   corpus_growth_at(r, v, 0.5), corpus_growth_at(r, v, 0.99));
    corpus_say(c,
               "registers: without limits 99th percentile %+d, new spills in %u kernels; limits "
               "tried for %u variants, "
               "helped %u",
               corpus_first_growth_at(r, 0.99), r->first_spill_kernels, r->limit_tried,
               r->limit_helped);
    corpus_say(c, "new spills in %u kernels, of more than %d bytes in %u", r->new_spill_kernels,
               CORPUS_LARGE_SPILL, r->new_large_spill_kernels);
    for (uint32_t i = 0; i < r->n_growths && i < WORST; i++) {
        const struct corpus_growth *g = &r->growths[r->n_growths - 1 - i];
        corpus_say(c, "    %u -> %u registers in %s%u of " TL_STR_FMT " (%s)", g->before.registers,
                   g->after.registers, tl_ptx_variant_name(g->variant), g->dims,
                   TL_STR_ARG(g->kernel->name), g->kernel->image->origin);
    }
}

/* One line per variant, the worst first; `first` is what it costs without a limit. */
static int write_growth(struct corpus *c, struct tl_error *err)
{
    const struct corpus_registers *r = &c->registers;
    const char *path = tl_arena_printf(&c->arena, "%s/%s.registers.tsv", c->options->folder,
                                       c->options->library);
    struct tl_buf text = {0};
    tl_buf_puts(&text, "growth\tbefore\tafter\tspill before\tspill after\tfirst\tspill "
                       "first\tvariant\timage\tkernel\n");
    for (uint32_t i = r->n_growths; i-- > 0;) {
        const struct corpus_growth *g = &r->growths[i];
        tl_buf_printf(&text, "%+d\t%u\t%u\t%u\t%u\t%u\t%u\t%s%u\t%s\t" TL_STR_FMT "\n",
                      growth_of(g), g->before.registers, g->after.registers, g->before.local_bytes,
                      g->after.local_bytes, g->first.registers, g->first.local_bytes,
                      tl_ptx_variant_name(g->variant), g->dims, g->kernel->image->origin,
                      TL_STR_ARG(g->kernel->name));
    }
    corpus_must(text.failed || path == NULL ? NULL : text.p);
    int rc = corpus_write(path, text.p, text.n, err);
    tl_buf_finish(&text);
    return rc;
}

int corpus_sum_up_growth(struct corpus *c, struct tl_error *err)
{
    qsort(c->registers.growths, c->registers.n_growths, sizeof c->registers.growths[0], by_growth);
    tell_growth(c);
    return write_growth(c, err);
}
