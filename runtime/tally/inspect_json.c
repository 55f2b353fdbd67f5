/* The report of `tally inspect` for programs.  docs/images.md describes the fields. */
#include "runtime/tally/inspect.h"

#include <string.h>

/* --- kernels --- */

static void put_verdict(struct tl_json *j, enum tl_ptx_variant variant,
                        const struct tl_ptx_verdict *verdict)
{
    tl_json_key(j, tl_ptx_variant_name(variant));
    tl_json_object(j);
    tl_json_key_str(j, "reason", tl_ptx_reason_code(verdict->reason));
    if (verdict->reason == TL_PTX_REASON_OK) {
        tl_json_key_bool(j, "if_warps_are_rows",
                         (verdict->conditions & TL_PTX_IF_WARPS_ARE_ROWS) != 0);
    } else if (verdict->place.line != 0) {
        tl_json_key_uint(j, "line", verdict->place.line);
        tl_json_key_uint(j, "column", verdict->place.column);
    }
    if (verdict->note[0] != 0)
        tl_json_key_str(j, "note", verdict->note);
    tl_json_end_object(j);
}

static void put_kernel(struct tl_json *j, enum tl_image_kind kind, const struct inspect_entry *e)
{
    tl_json_object(j);
    tl_json_key(j, "name");
    tl_json_str(j, e->kernel->name);
    tl_json_key_bool(j, "has_ptx", e->kernel->has_ptx);
    if (kind == TL_IMAGE_CUBIN) {
        tl_json_key_uint(j, "registers", e->sass.registers);
        tl_json_key_uint(j, "parameters", e->sass.n_params);
        tl_json_key_uint(j, "parameter_bytes", e->sass.param_bytes);
        tl_json_key_uint(j, "shared_bytes", e->sass.shared_bytes);
        tl_json_key(j, "gate");
        tl_json_object(j);
        tl_json_key_str(j, "reason", tl_cubin_reason_code(e->gate));
        if (e->gate == TL_CUBIN_REASON_OK)
            tl_json_key_bool(j, "twin", e->wants_twin);
        else if (e->gate_note[0] != 0)
            tl_json_key_str(j, "note", e->gate_note);
        tl_json_end_object(j);
    } else if (e->problem != NULL) {
        tl_json_key_str(j, "problem", e->problem);
    } else {
        for (int v = 0; v < TL_PTX_VARIANTS; v++)
            put_verdict(j, (enum tl_ptx_variant)v, &e->verdicts[v]);
    }
    tl_json_end_object(j);
}

/* --- images --- */

/* An image and, if they are asked for, its kernels. */
static void put_image(struct inspect_report *r, const struct inspect_image *image)
{
    struct tl_json *j = &r->json;
    const struct tl_image *i = &image->image;
    char arch[16];
    tl_json_object(j);
    tl_json_key_str(j, "kind", tl_image_kind_name(i->kind));
    tl_json_key_str(j, "arch", tl_image_arch_name(i, arch));
    tl_json_key_str(j, "packing", tl_image_packing_name(i->packing));
    tl_json_key_uint(j, "offset", i->offset);
    tl_json_key_uint(j, "stored_bytes", i->stored_bytes);
    tl_json_key_uint(j, "full_bytes", i->full_bytes);
    tl_json_key_uint(j, "version_major", i->version_major);
    tl_json_key_uint(j, "version_minor", i->version_minor);
    tl_json_key_uint(j, "flags", i->flags);
    tl_json_key_bool(j, "for_gpu", image->is_for_gpu);
    tl_json_key_bool(j, "relocatable", image->is_relocatable);
    tl_json_key(j, "options");
    tl_json_str(j, i->options);
    tl_json_key(j, "source");
    tl_json_str(j, i->identifier);
    if (image->problem != NULL)
        tl_json_key_str(j, "problem", image->problem);
    tl_json_key_uint(j, "n_kernels", image->n_entries);
    if (r->options->with_kernels) {
        tl_json_key(j, "kernels");
        tl_json_array(j);
        for (uint32_t k = 0; k < image->n_entries; k++)
            put_kernel(j, i->kind, &image->entries[k]);
        tl_json_end_array(j);
    }
    tl_json_end_object(j);
}

/* --- sums --- */

static void put_kind_totals(struct tl_json *j, enum tl_image_kind k,
                            const struct inspect_kind_totals *t)
{
    tl_json_key(j, tl_image_kind_name(k));
    tl_json_object(j);
    tl_json_key_uint(j, "images", t->images);
    tl_json_key_uint(j, "kernels", t->kernels);
    tl_json_key_uint(j, "stored_bytes", t->stored_bytes);
    tl_json_key_uint(j, "full_bytes", t->full_bytes);
    tl_json_key_uint(j, "relocatable", t->relocatable);
    tl_json_key_uint(j, "not_for_gpu", t->not_for_gpu);
    tl_json_end_object(j);
}

static void put_variant_totals(struct tl_json *j, enum tl_ptx_variant v,
                               const struct inspect_totals *t)
{
    tl_json_key(j, tl_ptx_variant_name(v));
    tl_json_object(j);
    tl_json_key_uint(j, "kernels", t->variants[v]);
    tl_json_key(j, "refused");
    tl_json_object(j);
    for (int r = 0; r < TL_PTX_REASON_COUNT; r++)
        if (r != TL_PTX_REASON_OK && t->reasons[v][r] > 0)
            tl_json_key_uint(j, tl_ptx_reason_code((enum tl_ptx_reason)r), t->reasons[v][r]);
    tl_json_end_object(j);
    tl_json_end_object(j);
}

static void put_gate_totals(struct tl_json *j, const struct inspect_totals *t)
{
    tl_json_key(j, "gate");
    tl_json_object(j);
    tl_json_key_uint(j, "with_machine_code", t->with_sass);
    tl_json_key_uint(j, "kernels", t->gateable);
    tl_json_key_uint(j, "twins", t->twins);
    tl_json_key(j, "refused");
    tl_json_object(j);
    for (int r = 0; r < TL_CUBIN_REASON_COUNT; r++)
        if (r != TL_CUBIN_REASON_OK && t->gate_reasons[r] > 0)
            tl_json_key_uint(j, tl_cubin_reason_code((enum tl_cubin_reason)r), t->gate_reasons[r]);
    tl_json_end_object(j);
    tl_json_end_object(j);
}

void inspect_json_totals(struct tl_json *j, const struct inspect_totals *t)
{
    tl_json_key(j, "totals");
    tl_json_object(j);
    tl_json_key_uint(j, "files", t->files);
    tl_json_key_uint(j, "containers", t->containers);
    tl_json_key_uint(j, "scanned_containers", t->scanned_containers);
    tl_json_key_uint(j, "problems", t->problems);
    tl_json_key(j, "images");
    tl_json_object(j);
    for (int k = 0; k < TL_IMAGE_KINDS; k++)
        put_kind_totals(j, (enum tl_image_kind)k, &t->kinds[k]);
    tl_json_end_object(j);
    tl_json_key_uint(j, "kernels", t->kernels);
    tl_json_key_uint(j, "with_ptx", t->with_ptx);
    tl_json_key_uint(j, "judged", t->judged);
    tl_json_key_uint(j, "preemptible", t->preemptible);
    tl_json_key(j, "variants");
    tl_json_object(j);
    for (int v = 0; v < TL_PTX_VARIANTS; v++)
        put_variant_totals(j, (enum tl_ptx_variant)v, t);
    tl_json_end_object(j);
    put_gate_totals(j, t);
    tl_json_key_uint(j, "preemptible_or_gateable", t->stoppable);
    tl_json_end_object(j);
}

/* --- the report --- */

static void begin(struct inspect_report *r)
{
    tl_json_init(&r->json, &r->out);
    tl_json_object(&r->json);
    tl_json_key(&r->json, "files");
    tl_json_array(&r->json);
}

static void begin_file(struct inspect_report *r, const char *path, uint64_t bytes)
{
    tl_json_object(&r->json);
    tl_json_key_str(&r->json, "path", path);
    tl_json_key_uint(&r->json, "bytes", bytes);
    tl_json_key(&r->json, "containers");
    tl_json_array(&r->json);
}

static void container(struct inspect_report *r, const struct inspect_container *c)
{
    if (r->options->only_totals)
        return;
    tl_json_object(&r->json);
    tl_json_key_uint(&r->json, "index", c->images[0].image.container_index);
    tl_json_key_uint(&r->json, "offset", c->images[0].image.container_offset);
    tl_json_key_bool(&r->json, "scanned", c->images[0].image.was_scanned);
    tl_json_key(&r->json, "images");
    tl_json_array(&r->json);
    for (uint32_t i = 0; i < c->n_images; i++)
        put_image(r, &c->images[i]);
    tl_json_end_array(&r->json);
    tl_json_end_object(&r->json);
}

static void problem(struct inspect_report *r, const char *text)
{
    tl_buf_add(&r->problems, text, strlen(text) + 1);
}

static void end_file(struct inspect_report *r, const struct inspect_totals *t)
{
    tl_json_end_array(&r->json);
    tl_json_key(&r->json, "problems");
    tl_json_array(&r->json);
    for (size_t at = 0; at < r->problems.n; at += strlen(r->problems.p + at) + 1)
        tl_json_str(&r->json, tl_str_of(r->problems.p + at));
    tl_json_end_array(&r->json);
    tl_buf_finish(&r->problems);
    inspect_json_totals(&r->json, t);
    tl_json_end_object(&r->json);
}

static void end(struct inspect_report *r, const struct inspect_totals *t)
{
    tl_json_end_array(&r->json);
    inspect_json_totals(&r->json, t);
    tl_json_end_object(&r->json);
    tl_buf_putc(&r->out, '\n');
}

const struct inspect_report_ops inspect_json_ops = {
    .begin = begin,
    .begin_file = begin_file,
    .container = container,
    .problem = problem,
    .end_file = end_file,
    .end = end,
};
