/* Makes every variant that the verdicts allow, and reads each again; and times it in the largest
 * module. */
#include "test/corpus/corpus.h"

#include <stdlib.h>

/* --- all of them --- */

/* Whether our own parser takes what our rewriter made. */
static bool reads_again(const struct corpus *c, const struct corpus_kernel *k,
                        const struct tl_ptx_rewritten *r)
{
    struct tl_ptx_index *index;
    struct tl_error err;
    size_t bytes;
    int rc = tl_ptx_index_create(&index, r->text, r->text_bytes, r->entry, &err);
    if (rc == 0) {
        rc = corpus_parse_all(index, &bytes, &err);
        tl_ptx_index_destroy(index);
    }
    if (rc < 0)
        corpus_say(c, "VARIANT NOT READ %s: %s", k->image->origin, err.text);
    return rc == 0;
}

static void rewrite_kernel(struct corpus *c, const struct corpus_kernel *k)
{
    struct corpus_rewriting *r = &c->rewriting;
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        const struct tl_ptx_options options = {.variant = v, .grid_dims = corpus_dims(k, v)};
        struct tl_ptx_rewritten out;
        struct tl_error err;
        if (k->reasons[v] != TL_PTX_REASON_OK)
            continue;
        r->tried++;
        double start = corpus_cpu_seconds();
        int rc = tl_ptx_rewrite(k->image->index, k->name, &options, &out, NULL, &err);
        r->seconds += corpus_cpu_seconds() - start;
        if (rc < 0) {
            corpus_say(c, "NOT REWRITTEN %s", err.text);
            continue;
        }
        r->done++;
        r->reread += reads_again(c, k, &out);
        tl_ptx_rewritten_finish(&out);
    }
}

void corpus_rewrite(struct corpus *c)
{
    for (uint32_t i = 0; i < c->n_kernels; i++)
        if (c->kernels[i].was_judged)
            rewrite_kernel(c, &c->kernels[i]);
    corpus_say(c, "%u variants: %u rewritten in %.1f s, %u of those read again", c->rewriting.tried,
               c->rewriting.done, c->rewriting.seconds, c->rewriting.reread);
}

/* --- time --- */

enum { TIMED_KERNELS = 20 };

static const struct corpus_image *largest_image(const struct corpus_kernel *const *sample)
{
    const struct corpus_image *largest = sample[0]->image;
    for (; *sample != NULL; sample++)
        if ((*sample)->image->n > largest->n)
            largest = (*sample)->image;
    return largest;
}

/* The slowest of a few kernels, each from an index that is there already, as the runtime has it. */
void corpus_time_rewriting(struct corpus *c)
{
    struct corpus_reading *r = &c->reading;
    const struct corpus_kernel **sample = corpus_sample(c, 0);
    const struct corpus_image *largest = sample[0] != NULL ? largest_image(sample) : NULL;
    struct tl_ptx_index *index;
    double start = corpus_cpu_seconds();
    if (largest != NULL &&
        tl_ptx_index_create(&index, largest->text, largest->n, largest->origin, NULL) == 0) {
        r->largest_bytes = largest->n;
        r->largest_index_ms = (corpus_cpu_seconds() - start) * 1e3;
        uint32_t timed = 0;
        for (uint32_t i = 0; sample[i] != NULL && timed < TIMED_KERNELS; i++) {
            const struct corpus_kernel *k = sample[i];
            for (int v = 0; k->image == largest && v < TL_PTX_VARIANTS; v++) {
                const struct tl_ptx_options options = {.variant = v,
                                                       .grid_dims = corpus_dims(k, v)};
                struct tl_ptx_rewritten out;
                start = corpus_cpu_seconds();
                if (tl_ptx_rewrite(index, k->name, &options, &out, NULL, NULL) < 0)
                    continue;
                double ms = (corpus_cpu_seconds() - start) * 1e3;
                if (ms > r->largest_rewrite_ms)
                    r->largest_rewrite_ms = ms;
                tl_ptx_rewritten_finish(&out);
            }
            timed += k->image == largest;
        }
        tl_ptx_index_destroy(index);
        corpus_say(c,
                   "largest module %s, %.1f MB: indexed in %.1f ms, a kernel rewritten in at most "
                   "%.1f ms (%u tried)",
                   largest->origin, (double)largest->n / 1e6, r->largest_index_ms,
                   r->largest_rewrite_ms, timed);
    }
    free(sample);
}
