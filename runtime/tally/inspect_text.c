/* The report of `tally inspect` for people: a line per image, a line per kernel if asked for, and
 * sums. */
#include "runtime/tally/inspect.h"

#include <inttypes.h>

/* --- one image --- */

static void put_size(struct tl_buf *out, const struct tl_image *image)
{
    if (image->packing == TL_IMAGE_PLAIN)
        tl_buf_printf(out, "  %-8s %21s", "plain", tl_text_bytes((double)image->full_bytes).s);
    else
        tl_buf_printf(out, "  %-8s %9s of %8s", tl_image_packing_name(image->packing),
                      tl_text_bytes((double)image->stored_bytes).s,
                      tl_text_bytes((double)image->full_bytes).s);
}

/* How many kernels of a PTX image have each variant. */
static void put_variants(struct tl_buf *out, const struct inspect_image *image)
{
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        uint32_t possible = 0;
        for (uint32_t i = 0; i < image->n_entries; i++) {
            const struct tl_ptx_verdict *verdicts = image->entries[i].verdicts;
            possible += verdicts != NULL && verdicts[v].reason == TL_PTX_REASON_OK;
        }
        tl_buf_printf(out, "%s%s %s", v == 0 ? ": " : ", ",
                      tl_ptx_variant_name((enum tl_ptx_variant)v), tl_text_digits(possible).s);
    }
}

/* How many kernels of a cubin can be gated. */
static void put_gates(struct tl_buf *out, const struct inspect_image *image)
{
    uint32_t possible = 0;
    for (uint32_t i = 0; i < image->n_entries; i++)
        possible += image->entries[i].gate == TL_CUBIN_REASON_OK;
    tl_buf_printf(out, ": gate %s", tl_text_digits(possible).s);
}

static void put_image(struct tl_buf *out, const struct inspect_image *image)
{
    const struct tl_image *i = &image->image;
    char arch[16];
    tl_buf_printf(out, "%6u.%-3u %-6s %-8s", i->container_index, i->index,
                  tl_image_kind_name(i->kind), tl_image_arch_name(i, arch));
    put_size(out, i);
    if (image->problem != NULL) {
        tl_buf_printf(out, "  UNREADABLE: %s\n", image->problem);
        return;
    }
    if (!image->is_for_gpu)
        tl_buf_puts(out, "  not for this GPU");
    else if (i->kind == TL_IMAGE_PTX || i->kind == TL_IMAGE_CUBIN)
        tl_buf_printf(out, "  %s kernel%s", tl_text_digits(image->n_entries).s,
                      image->n_entries == 1 ? "" : "s");
    if (i->kind == TL_IMAGE_PTX && image->n_entries > 0)
        put_variants(out, image);
    else if (i->kind == TL_IMAGE_CUBIN && image->n_entries > 0)
        put_gates(out, image);
    if (i->kind == TL_IMAGE_PTX)
        tl_buf_printf(out, "; ISA %u.%u", i->version_major, i->version_minor);
    if (image->is_relocatable)
        tl_buf_puts(out, "; relocatable");
    if (i->was_scanned)
        tl_buf_puts(out, "; found by scanning");
    if (i->options.n > 0)
        tl_buf_printf(out, "; " TL_STR_FMT, TL_STR_ARG(i->options));
    tl_buf_putc(out, '\n');
}

/* --- one kernel --- */

static void put_verdict(struct tl_buf *out, enum tl_ptx_variant variant,
                        const struct tl_ptx_verdict *verdict)
{
    tl_buf_printf(out, "%s%s %s", variant == 0 ? "  " : "; ", tl_ptx_variant_name(variant),
                  tl_ptx_reason_code(verdict->reason));
    if (verdict->reason == TL_PTX_REASON_OK) {
        if (verdict->conditions & TL_PTX_IF_WARPS_ARE_ROWS)
            tl_buf_puts(out, " if warps are rows");
        return;
    }
    if (verdict->place.line != 0)
        tl_buf_printf(out, " at %u:%u", verdict->place.line, verdict->place.column);
    if (verdict->note[0] != 0)
        tl_buf_printf(out, " (%s)", verdict->note);
}

static void put_gate(struct tl_buf *out, const struct inspect_entry *e)
{
    tl_buf_printf(out, "; gate %s", tl_cubin_reason_code(e->gate));
    if (e->gate == TL_CUBIN_REASON_OK && e->wants_twin)
        tl_buf_puts(out, " as a twin");
    else if (e->gate != TL_CUBIN_REASON_OK && e->gate_note[0] != 0)
        tl_buf_printf(out, " (%s)", e->gate_note);
}

static void put_kernel(struct tl_buf *out, enum tl_image_kind kind, const struct inspect_entry *e)
{
    tl_buf_printf(out, "           " TL_STR_FMT, TL_STR_ARG(e->kernel->name));
    if (e->problem != NULL)
        tl_buf_printf(out, "  NOT JUDGED: %s", e->problem);
    else if (kind == TL_IMAGE_PTX)
        for (int v = 0; v < TL_PTX_VARIANTS; v++)
            put_verdict(out, (enum tl_ptx_variant)v, &e->verdicts[v]);
    else {
        tl_buf_printf(out, "  %u registers, %u parameters in %u bytes, %u bytes shared; %s",
                      e->sass.registers, e->sass.n_params, e->sass.param_bytes,
                      e->sass.shared_bytes, e->kernel->has_ptx ? "has PTX" : "machine code only");
        put_gate(out, e);
    }
    tl_buf_putc(out, '\n');
}

/* --- sums --- */

static void put_kind_totals(struct tl_buf *out, enum tl_image_kind k,
                            const struct inspect_kind_totals *t)
{
    if (t->images == 0)
        return;
    tl_buf_printf(out, "  %-6s %8s images %10s of %9s", tl_image_kind_name(k),
                  tl_text_digits(t->images).s, tl_text_bytes((double)t->stored_bytes).s,
                  tl_text_bytes((double)t->full_bytes).s);
    if (k == TL_IMAGE_PTX || k == TL_IMAGE_CUBIN)
        tl_buf_printf(out, " %9s kernels", tl_text_digits(t->kernels).s);
    tl_buf_puts(out, "  for");
    for (uint32_t i = 0; i < t->archs.n; i++) {
        uint32_t code = t->archs.codes[i];
        tl_buf_printf(out, " %u%s", code / 10, code % 10 == 1 ? "a" : code % 10 == 2 ? "f" : "");
    }
    if (t->not_for_gpu > 0)
        tl_buf_printf(out, "; %s not for this GPU", tl_text_digits(t->not_for_gpu).s);
    if (t->relocatable > 0)
        tl_buf_printf(out, "; %s relocatable", tl_text_digits(t->relocatable).s);
    tl_buf_putc(out, '\n');
}

/* The refusals of a variant, most frequent first. */
static void put_reasons(struct tl_buf *out, const uint64_t counts[TL_PTX_REASON_COUNT])
{
    bool is_done[TL_PTX_REASON_COUNT] = {[TL_PTX_REASON_OK] = true};
    const char *separator = "  not: ";
    for (;;) {
        int most = -1;
        for (int r = 0; r < TL_PTX_REASON_COUNT; r++)
            if (!is_done[r] && counts[r] > 0 && (most < 0 || counts[r] > counts[most]))
                most = r;
        if (most < 0)
            return;
        tl_buf_printf(out, "%s%s %s", separator, tl_ptx_reason_code((enum tl_ptx_reason)most),
                      tl_text_digits(counts[most]).s);
        is_done[most] = true;
        separator = ", ";
    }
}

/* What can be gated, and what is against the others, most frequent first. */
static void put_gate_totals(struct tl_buf *out, const struct inspect_totals *t)
{
    bool is_done[TL_CUBIN_REASON_COUNT] = {[TL_CUBIN_REASON_OK] = true};
    const char *separator = "  not: ";
    if (t->with_sass == 0)
        return;
    tl_buf_printf(out, "  gateable     %9s %8s of %s that have machine code",
                  tl_text_digits(t->gateable).s, tl_text_share(t->gateable, t->with_sass).s,
                  tl_text_digits(t->with_sass).s);
    if (t->twins > 0)
        tl_buf_printf(out, ", %s as twins", tl_text_digits(t->twins).s);
    for (;;) {
        int most = -1;
        for (int r = 0; r < TL_CUBIN_REASON_COUNT; r++)
            if (!is_done[r] && t->gate_reasons[r] > 0 &&
                (most < 0 || t->gate_reasons[r] > t->gate_reasons[most]))
                most = r;
        if (most < 0)
            break;
        tl_buf_printf(out, "%s%s %s", separator, tl_cubin_reason_code((enum tl_cubin_reason)most),
                      tl_text_digits(t->gate_reasons[most]).s);
        is_done[most] = true;
        separator = ", ";
    }
    tl_buf_putc(out, '\n');
}

static void put_kernel_totals(struct tl_buf *out, const struct inspect_totals *t)
{
    tl_buf_printf(out, "Kernels, by container and name: %s\n", tl_text_digits(t->kernels).s);
    tl_buf_printf(out, "  with PTX     %9s %8s\n", tl_text_digits(t->with_ptx).s,
                  tl_text_share(t->with_ptx, t->kernels).s);
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        tl_buf_printf(out, "    %-10s %9s %8s of those",
                      tl_ptx_variant_name((enum tl_ptx_variant)v), tl_text_digits(t->variants[v]).s,
                      tl_text_share(t->variants[v], t->with_ptx).s);
        put_reasons(out, t->reasons[v]);
        tl_buf_putc(out, '\n');
    }
    uint64_t sass_only = t->kernels - t->with_ptx;
    tl_buf_printf(out, "  machine code %9s %8s\n", tl_text_digits(sass_only).s,
                  tl_text_share(sass_only, t->kernels).s);
    put_gate_totals(out, t);
}

/* Kernels that have no variant for one reason, and what to do about them. */
static void put_rest(struct tl_buf *out, uint64_t n, const char *code, const char *text,
                     const char *advice)
{
    if (n > 0)
        tl_buf_printf(out, "  %s %s: %s\n      -> %s\n", tl_text_digits(n).s, code, text, advice);
}

static void put_advice(struct tl_buf *out, const struct inspect_totals *t, uint32_t gpu)
{
    tl_buf_printf(out, "Preemptible: %s of %s kernels (%s)", tl_text_digits(t->preemptible).s,
                  tl_text_digits(t->kernels).s, tl_text_share(t->preemptible, t->kernels).s);
    if (gpu != 0)
        tl_buf_printf(out, " on sm_%u\n", gpu);
    else
        tl_buf_puts(out, ", on GPUs that can load their images; --gpu=sm_90 counts for one\n");
    if (t->stoppable > t->preemptible)
        tl_buf_printf(out, "With the gate: %s of %s kernels (%s), where it is qualified\n",
                      tl_text_digits(t->stoppable).s, tl_text_digits(t->kernels).s,
                      tl_text_share(t->stoppable, t->kernels).s);
    if (t->preemptible == t->kernels)
        return;
    tl_buf_puts(out, "The rest:\n");
    for (int r = 0; r < TL_PTX_REASON_COUNT; r++)
        put_rest(out, t->hopeless[r], tl_ptx_reason_code((enum tl_ptx_reason)r),
                 tl_ptx_reason_text((enum tl_ptx_reason)r), inspect_advice((enum tl_ptx_reason)r));
    put_rest(out, t->with_ptx - t->judged, "not-judged",
             "a syntax error was found; --kernels shows where",
             "report it if ptxas takes this PTX");
    put_rest(out, t->kernels - t->with_ptx, "machine-code", "there is no PTX to rewrite",
             "they run whole. Build with PTX too (nvcc -gencode arch=compute_90,code=compute_90), "
             "or use a library "
             "that has it");
}

/* --- the report --- */

static void begin(struct inspect_report *r)
{
    (void)r;
}

static void begin_file(struct inspect_report *r, const char *path, uint64_t bytes)
{
    tl_buf_printf(&r->out, "%s (%s)\n", path, tl_text_bytes((double)bytes).s);
}

static void container(struct inspect_report *r, const struct inspect_container *c)
{
    if (r->options->only_totals)
        return;
    for (uint32_t i = 0; i < c->n_images; i++) {
        const struct inspect_image *image = &c->images[i];
        put_image(&r->out, image);
        for (uint32_t k = 0; r->options->with_kernels && k < image->n_entries; k++)
            put_kernel(&r->out, image->image.kind, &image->entries[k]);
    }
}

static void problem(struct inspect_report *r, const char *text)
{
    tl_buf_printf(&r->out, "  PROBLEM %s\n", text);
}

static void end_file(struct inspect_report *r, const struct inspect_totals *t)
{
    if (t->containers == 0) {
        tl_buf_puts(&r->out, "  holds no GPU code\n");
        return;
    }
    tl_buf_printf(&r->out,
                  "  = %s PTX and %s cubin images; %s kernels, %s with PTX, %s preemptible\n",
                  tl_text_digits(t->kinds[TL_IMAGE_PTX].images).s,
                  tl_text_digits(t->kinds[TL_IMAGE_CUBIN].images).s, tl_text_digits(t->kernels).s,
                  tl_text_digits(t->with_ptx).s, tl_text_digits(t->preemptible).s);
}

static void end(struct inspect_report *r, const struct inspect_totals *t)
{
    if (t->containers == 0)
        return;
    tl_buf_printf(&r->out,
                  "\nImages of %s file%s: %s containers, %s of them found by scanning only\n",
                  tl_text_digits(t->files).s, t->files == 1 ? "" : "s",
                  tl_text_digits(t->containers).s, tl_text_digits(t->scanned_containers).s);
    for (int k = 0; k < TL_IMAGE_KINDS; k++)
        put_kind_totals(&r->out, (enum tl_image_kind)k, &t->kinds[k]);
    if (t->problems > 0)
        tl_buf_printf(&r->out, "  %s problems, marked above in capitals\n",
                      tl_text_digits(t->problems).s);
    put_kernel_totals(&r->out, t);
    put_advice(&r->out, t, r->options->gpu);
}

const struct inspect_report_ops inspect_text_ops = {
    .begin = begin,
    .begin_file = begin_file,
    .container = container,
    .problem = problem,
    .end_file = end_file,
    .end = end,
};
