/* The results as JSON and, for scripts, as lines of `key value`. */
#include "test/corpus/corpus.h"

#include <stdio.h>

/* --- plain numbers --- */

/* Every number of the results: its name, how it is printed, its value. */
#define FACTS(X)                                                                                   \
    X(images, COUNT, c->found.ptx)                                                                 \
    X(kernels, COUNT, c->n_kernels)                                                                \
    X(indexed, COUNT, c->reading.indexed)                                                          \
    X(parsed, COUNT, c->reading.parsed)                                                            \
    X(fixpoint, COUNT, c->reading.fixpoint)                                                        \
    X(slice, COUNT, c->verdicts.count[TL_PTX_SLICE][TL_PTX_REASON_OK])                             \
    X(ticket, COUNT, c->verdicts.count[TL_PTX_TICKET][TL_PTX_REASON_OK])                           \
    X(persistent, COUNT, c->verdicts.count[TL_PTX_PERSISTENT][TL_PTX_REASON_OK])                   \
    X(slice_with_conditions, COUNT, c->verdicts.with_conditions[TL_PTX_SLICE])                     \
    X(ticket_with_conditions, COUNT, c->verdicts.with_conditions[TL_PTX_TICKET])                   \
    X(persistent_with_conditions, COUNT, c->verdicts.with_conditions[TL_PTX_PERSISTENT])           \
    X(not_judged, COUNT, c->verdicts.failed)                                                       \
    X(rewrite_tried, COUNT, c->rewriting.tried)                                                    \
    X(rewritten, COUNT, c->rewriting.done)                                                         \
    X(rewritten_parsed, COUNT, c->rewriting.reread)                                                \
    X(ptxas_kernels, COUNT, c->registers.kernels)                                                  \
    X(ptxas_tried, COUNT, c->registers.tried)                                                      \
    X(ptxas_accepted, COUNT, c->registers.accepted)                                                \
    X(ptxas_refused_originals, COUNT, c->registers.refused_originals)                              \
    X(ptxas_lowered_version, COUNT, c->registers.lowered)                                          \
    X(ptxas_raised_arch, COUNT, c->registers.raised)                                               \
    X(registers_growth_p50, COUNT, corpus_growth_at(&c->registers, TL_PTX_VARIANTS, 0.5))          \
    X(registers_growth_p99, COUNT, corpus_growth_at(&c->registers, TL_PTX_VARIANTS, 0.99))         \
    X(slice_growth_p50, COUNT, corpus_growth_at(&c->registers, TL_PTX_SLICE, 0.5))                 \
    X(slice_growth_p99, COUNT, corpus_growth_at(&c->registers, TL_PTX_SLICE, 0.99))                \
    X(ticket_growth_p50, COUNT, corpus_growth_at(&c->registers, TL_PTX_TICKET, 0.5))               \
    X(ticket_growth_p99, COUNT, corpus_growth_at(&c->registers, TL_PTX_TICKET, 0.99))              \
    X(persistent_growth_p50, COUNT, corpus_growth_at(&c->registers, TL_PTX_PERSISTENT, 0.5))       \
    X(persistent_growth_p99, COUNT, corpus_growth_at(&c->registers, TL_PTX_PERSISTENT, 0.99))      \
    X(unlimited_growth_p99, COUNT, corpus_first_growth_at(&c->registers, 0.99))                    \
    X(unlimited_spill_kernels, COUNT, c->registers.first_spill_kernels)                            \
    X(limit_tried, COUNT, c->registers.limit_tried)                                                \
    X(limit_helped, COUNT, c->registers.limit_helped)                                              \
    X(limit_refused, COUNT, c->registers.limit_refused)                                            \
    X(new_spill_kernels, COUNT, c->registers.new_spill_kernels)                                    \
    X(new_large_spill_kernels, COUNT, c->registers.new_large_spill_kernels)                        \
    X(new_spills, REAL, ratio(c->registers.new_spill_kernels, c->registers.kernels))               \
    X(print_tried, COUNT, c->identity.tried)                                                       \
    X(print_identical, COUNT, c->identity.identical)                                               \
    X(listed_ptx, COUNT, c->found.listed_ptx)                                                      \
    X(listed_cubins, COUNT, c->found.listed_cubins)                                                \
    X(cubins, COUNT, c->found.cubins)                                                              \
    X(broken_images, COUNT, c->found.problems)                                                     \
    X(text_bytes, COUNT, c->found.text_bytes)                                                      \
    X(index_s, REAL, c->reading.index_s)                                                           \
    X(parse_s, REAL, c->reading.parse_s)                                                           \
    X(index_mb_s, REAL, ratio((double)c->found.text_bytes / 1e6, c->reading.index_s))              \
    X(parse_mb_s, REAL, ratio((double)c->found.text_bytes / 1e6, c->reading.parse_s))              \
    X(memory_ratio, REAL, c->reading.memory_ratio)                                                 \
    X(largest_module_bytes, COUNT, c->reading.largest_bytes)                                       \
    X(largest_module_index_ms, REAL, c->reading.largest_index_ms)                                  \
    X(largest_module_rewrite_ms, REAL, c->reading.largest_rewrite_ms)                              \
    X(judge_s, REAL, c->verdicts.seconds)                                                          \
    X(rewrite_s, REAL, c->rewriting.seconds)

enum fact_kind { COUNT, REAL };

static double ratio(double part, double whole)
{
    return whole != 0 ? part / whole : 0;
}

static void put_fact(struct tl_buf *facts, struct tl_json *j, const char *name, enum fact_kind kind,
                     double value)
{
    tl_json_key(j, name);
    if (kind == COUNT) {
        tl_buf_printf(facts, "%s %.0f\n", name, value);
        tl_json_int(j, (int64_t)value);
    } else {
        tl_buf_printf(facts, "%s %.4f\n", name, value);
        tl_json_double(j, value);
    }
}

/* --- lists --- */

static void put_reasons(struct tl_json *j, const struct corpus *c)
{
    const struct corpus_verdicts *r = &c->verdicts;
    tl_json_key(j, "reasons");
    tl_json_object(j);
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        tl_json_key(j, tl_ptx_variant_name(v));
        tl_json_object(j);
        for (int reason = 0; reason < TL_PTX_REASON_COUNT; reason++) {
            if (reason == TL_PTX_REASON_OK || r->count[v][reason] == 0)
                continue;
            tl_json_key(j, tl_ptx_reason_code(reason));
            tl_json_object(j);
            tl_json_key_uint(j, "kernels", r->count[v][reason]);
            tl_json_key(j, "examples");
            tl_json_array(j);
            for (int i = 0; i < CORPUS_EXAMPLES && r->examples[v][reason][i].n > 0; i++)
                tl_json_str(j, r->examples[v][reason][i]);
            tl_json_end_array(j);
            tl_json_end_object(j);
        }
        tl_json_end_object(j);
    }
    tl_json_end_object(j);
}

static void put_worst(struct tl_json *j, const struct corpus *c)
{
    const struct corpus_registers *r = &c->registers;
    tl_json_key(j, "worst_growth");
    tl_json_array(j);
    for (uint32_t i = 0; i < r->n_growths && i < 10; i++) {
        const struct corpus_growth *g = &r->growths[r->n_growths - 1 - i];
        tl_json_object(j);
        tl_json_key(j, "kernel");
        tl_json_str(j, g->kernel->name);
        tl_json_key_str(j, "image", g->kernel->image->origin);
        tl_json_key_str(j, "variant", tl_ptx_variant_name(g->variant));
        tl_json_key_uint(j, "grid_dims", g->dims);
        tl_json_key_uint(j, "before", g->before.registers);
        tl_json_key_uint(j, "after", g->after.registers);
        tl_json_key_uint(j, "spill_before", g->before.local_bytes);
        tl_json_key_uint(j, "spill_after", g->after.local_bytes);
        tl_json_end_object(j);
    }
    tl_json_end_array(j);
}

static int write_file(const struct corpus *c, const char *ending, struct tl_buf *text,
                      struct tl_error *err)
{
    char path[2048];
    corpus_must(text->failed ? NULL : text->p);
    snprintf(path, sizeof path, "%s/%s.%s", c->options->folder, c->options->library, ending);
    int rc = corpus_write(path, text->p, text->n, err);
    tl_buf_finish(text);
    return rc;
}

int corpus_report(const struct corpus *c, struct tl_error *err)
{
    struct tl_buf facts = {0}, json = {0};
    struct tl_json j;
    tl_json_init(&j, &json);
    tl_json_object(&j);
#define PUT(name, kind, value) put_fact(&facts, &j, #name, kind, (double)(value));
    FACTS(PUT)
#undef PUT
    put_reasons(&j, c);
    put_worst(&j, c);
    tl_json_end_object(&j);
    tl_buf_putc(&json, '\n');
    int rc = write_file(c, "json", &json, err);
    return rc < 0 ? rc : write_file(c, "facts", &facts, err);
}
