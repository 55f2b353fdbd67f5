/* Gating a cubin: which kernels, their pieces, the edits in order. */
#include "cubin/work.h"

#include <errno.h>

enum { MOST_SECTIONS = SHN_LORESERVE };

static int no_memory(struct tl_error *err)
{
    return tl_error_set(err, -ENOMEM, "no memory for gating a cubin");
}

/* --- pieces ----------------------------------------------------------------------------------- */

static bool is_chosen(const struct tl__cb_kernel *k, const struct tl_cubin_options *options)
{
    return k->entry.reason == TL_CUBIN_REASON_OK &&
           (options->kernel.n == 0 || tl_str_eq(k->entry.name, options->kernel));
}

/* Has all gates made at once that there are not yet. */
static int make_pieces(const struct tl_cubin *c, const struct tl_cubin_options *options,
                       struct tl_cubin_gates *gates, struct tl_error *err)
{
    for (uint32_t i = 0; i < c->n_kernels; i++) {
        struct tl__cb_want want = tl__cb_want_of(c, &c->kernels[i]);
        int rc = is_chosen(&c->kernels[i], options) ? tl__cb_gates_want(gates, &want, err) : 0;
        if (rc < 0) {
            tl__cb_gates_forget(gates);
            return rc;
        }
    }
    return tl__cb_gates_make(gates, err);
}

static int take_piece(struct tl__cb_work *w, uint32_t number, struct tl_cubin_gates *gates,
                      struct tl_error *err)
{
    const struct tl__cb_kernel *k = &w->c->kernels[number];
    const struct tl__cb_piece *piece;
    struct tl__cb_want want = tl__cb_want_of(w->c, k);
    int rc = tl__cb_gates_get(gates, &want, &piece, err);
    if (rc < 0)
        return rc;
    if (piece->base != k->bank0_base)
        return tl_error_set(err, -EINVAL,
                            "parameters of " TL_STR_FMT " begin at %#x, those of the gate at %#x",
                            TL_STR_ARG(k->entry.name), k->bank0_base, piece->base);
    w->pieces[number] = piece;
    for (int kind = TL__CB_TEXT; kind < TL__CB_KINDS; kind++)
        if (tl__cb_of(k, (enum tl__cb_kind)kind) != TL__CB_NONE)
            w->owner[tl__cb_of(k, (enum tl__cb_kind)kind)] = number;
    return 0;
}

static int find_pieces(struct tl__cb_work *w, const struct tl_cubin_options *options,
                       struct tl_cubin_gates *gates, uint32_t *n, struct tl_error *err)
{
    const struct tl_cubin *c = w->c;
    w->pieces = tl_arena_zalloc(&w->arena, (c->n_kernels + 1u) * sizeof(struct tl__cb_piece *));
    w->owner = tl_arena_alloc(&w->arena, c->n_sections * sizeof *w->owner);
    if (w->pieces == NULL || w->owner == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < c->n_sections; i++)
        w->owner[i] = TL__CB_NONE;
    int rc = make_pieces(c, options, gates, err);
    for (uint32_t i = 0; i < c->n_kernels && rc == 0; i++) {
        if (!is_chosen(&c->kernels[i], options))
            continue;
        rc = take_piece(w, i, gates, err);
        ++*n;
    }
    return rc;
}

/* --- sections --------------------------------------------------------------------------------- */

static int plan_sections(struct tl__cb_work *w, struct tl_error *err)
{
    const struct tl_cubin *c = w->c;
    uint32_t n_copies = 0;
    for (uint32_t i = 0; i < c->n_sections && w->is_twin; i++)
        n_copies += w->owner[i] != TL__CB_NONE;
    if (c->n_sections + (uint64_t)n_copies >= MOST_SECTIONS)
        return tl_error_set(err, -EFBIG,
                            "a cubin with so many kernels has no room for a twin of each");
    w->sections = tl_arena_alloc(&w->arena, (c->n_sections + n_copies) * sizeof *w->sections);
    if (w->sections == NULL)
        return no_memory(err);
    w->n_sections = c->n_sections;
    for (uint32_t i = 0; i < c->n_sections; i++)
        w->sections[i] = (struct tl__cb_out){
            .h = c->sections[i].h,
            .origin = i,
            .is_dropped = c->sections[i].kind == TL__CB_MERCURY &&
                          tl__cb_does(w, TL__CB_EDIT_MERCURY),
        };
    return 0;
}

static void edit_in_place(struct tl__cb_work *w)
{
    for (uint32_t i = 0; i < w->c->n_kernels; i++) {
        const struct tl__cb_kernel *k = &w->c->kernels[i];
        if (w->pieces[i] != NULL)
            tl__cb_edit_headers(w, k, w->pieces[i], &w->sections[tl__cb_of(k, TL__CB_TEXT)],
                                &w->sections[tl__cb_of(k, TL__CB_KERNEL_INFO)],
                                &w->sections[tl__cb_of(k, TL__CB_BANK0)]);
    }
}

/* --- all of it -------------------------------------------------------------------------------- */

static int refuse(const struct tl_cubin *c, const struct tl_cubin_options *options,
                  struct tl_error *err)
{
    const struct tl_cubin_entry *e = options->kernel.n > 0 ? tl_cubin_find(c, options->kernel)
                                     : c->n_kernels > 0    ? &c->kernels[0].entry
                                                           : NULL;
    if (e == NULL)
        return tl_error_set(err, -ENOENT, "the cubin has no kernel %s" TL_STR_FMT,
                            options->kernel.n > 0 ? "called " : "", TL_STR_ARG(options->kernel));
    return tl_error_set(err, options->kernel.n > 0 ? -EPERM : -ENOENT, TL_STR_FMT " %s%s%s%s",
                        TL_STR_ARG(e->name), tl_cubin_reason_text(e->reason),
                        e->note[0] != 0 ? " (" : "", e->note, e->note[0] != 0 ? ")" : "");
}

int tl__cb_gate(const struct tl_cubin *c, const struct tl_cubin_options *options,
                struct tl_cubin_gates *gates, uint32_t left_out, struct tl_cubin_gated *out,
                struct tl_error *err)
{
    struct tl__cb_work w = {.c = c,
                            .is_twin = options->is_twin,
                            .spends = options->is_twin && options->spends,
                            .left_out = left_out};
    *out = (struct tl_cubin_gated){0};
    tl_arena_init(&w.arena, 0);
    int rc = find_pieces(&w, options, gates, &out->n_gated, err);
    if (rc == 0 && out->n_gated == 0)
        rc = refuse(c, options, err);
    if (rc == 0)
        rc = plan_sections(&w, err);
    if (rc == 0 && w.is_twin)
        rc = tl__cb_add_twins(&w, err);
    else if (rc == 0)
        edit_in_place(&w);
    if (rc == 0)
        rc = tl__cb_write(&w, out, err);
    tl_arena_finish(&w.arena);
    return rc;
}

int tl_cubin_gate(const struct tl_cubin *c, const struct tl_cubin_options *options,
                  struct tl_cubin_gates *gates, struct tl_cubin_gated *out, struct tl_error *err)
{
    return tl__cb_gate(c, options, gates, 0, out, err);
}

void tl_cubin_gated_finish(struct tl_cubin_gated *g)
{
    if (g == NULL)
        return;
    tl__cb_release(g->bytes, g->n);
    *g = (struct tl_cubin_gated){0};
}
