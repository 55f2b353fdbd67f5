/* Gating a cubin: which kernels, their pieces, the edits in order. */
#include "cubin/internal.h"

#include <errno.h>
#include <stdlib.h>

enum { MOST_SECTIONS = SHN_LORESERVE };

/* --- the work --------------------------------------------------------------------------------- */

static int no_memory(struct tl_error *err)
{
    return tl_error_set(err, -ENOMEM, "no memory for gating a cubin");
}

static void fill(uint32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        list[i] = TL__CB_NONE;
}

static int begin(struct tl__cb_work *w, const struct tl_cubin *c, bool is_twin, uint32_t left_out,
                 struct tl_error *err)
{
    *w = (struct tl__cb_work){.c = c, .is_twin = is_twin, .left_out = left_out};
    tl_arena_init(&w->arena, 0);
    w->pieces = tl_arena_zalloc(&w->arena, c->n_sections * sizeof(const struct tl__cb_piece *));
    w->sections = malloc(c->n_sections * sizeof *w->sections);
    w->symbols = malloc((c->n_symbols + 1u) * sizeof *w->symbols);
    if (w->pieces == NULL || w->sections == NULL || w->symbols == NULL)
        return no_memory(err);
    w->n_sections = w->cap_sections = c->n_sections;
    w->n_symbols = w->cap_symbols = c->n_symbols;
    memcpy(w->symbols, c->symbols, c->n_symbols * sizeof *w->symbols);
    for (uint32_t i = 0; i < c->n_sections; i++) {
        const struct tl__cb_section *s = &c->sections[i];
        w->sections[i] = (struct tl__cb_out){
            .h = s->h,
            .origin = i,
            .is_dropped = s->kind == TL__CB_MERCURY && tl__cb_does(w, TL__CB_EDIT_MERCURY),
            .bytes = s->bytes,
            .n = s->bytes != NULL ? s->h.sh_size : 0,
        };
    }
    if (!is_twin)
        return 0;
    w->copy_of = tl_arena_alloc(&w->arena, c->n_sections * sizeof *w->copy_of);
    w->new_symbols = tl_arena_alloc(&w->arena, (c->n_symbols + 1u) * sizeof *w->new_symbols);
    if (w->copy_of == NULL || w->new_symbols == NULL)
        return no_memory(err);
    fill(w->copy_of, c->n_sections);
    fill(w->new_symbols, c->n_symbols);
    return 0;
}

static void end(struct tl__cb_work *w)
{
    tl_arena_finish(&w->arena);
    free(w->sections);
    free(w->symbols);
    free(w->attrs);
    tl_buf_finish(&w->more_names);
    tl_buf_finish(&w->more_symbol_names);
    tl_buf_finish(&w->more_info);
    tl_buf_finish(&w->more_calls);
}

/* --- pieces ----------------------------------------------------------------------------------- */

static int find_piece(struct tl__cb_work *w, const struct tl__cb_kernel *k,
                      struct tl_cubin_gates *gates, struct tl_error *err)
{
    const struct tl__cb_piece *piece;
    struct tl__cb_want want = {.arch = w->c->arch, .offset = k->entry.gate_offset};
    memcpy(want.cluster, k->entry.cluster, sizeof want.cluster);
    int rc = tl__cb_gates_get(gates, &want, &piece, err);
    if (rc < 0)
        return rc;
    if (piece->base != k->bank0_base)
        return tl_error_set(err, -EINVAL,
                            "parameters of " TL_STR_FMT " begin at %#x, those of the gate at %#x",
                            TL_STR_ARG(k->entry.name), k->bank0_base, piece->base);
    w->pieces[tl__cb_of(k, TL__CB_TEXT)] = piece;
    return 0;
}

static bool is_chosen(const struct tl__cb_kernel *k, const struct tl_cubin_options *options)
{
    return k->entry.reason == TL_CUBIN_REASON_OK &&
           (options->kernel.n == 0 || tl_str_eq(k->entry.name, options->kernel));
}

static int find_pieces(struct tl__cb_work *w, const struct tl_cubin_options *options,
                       struct tl_cubin_gates *gates, uint32_t *n, struct tl_error *err)
{
    *n = 0;
    for (uint32_t i = 0; i < w->c->n_kernels; i++) {
        const struct tl__cb_kernel *k = &w->c->kernels[i];
        if (!is_chosen(k, options))
            continue;
        int rc = find_piece(w, k, gates, err);
        if (rc < 0)
            return rc;
        ++*n;
    }
    return 0;
}

/* The piece of a kernel that was chosen, else NULL. */
static const struct tl__cb_piece *piece_of(const struct tl__cb_work *w,
                                           const struct tl__cb_kernel *k)
{
    return k->entry.reason == TL_CUBIN_REASON_OK ? w->pieces[tl__cb_of(k, TL__CB_TEXT)] : NULL;
}

/* --- in place --------------------------------------------------------------------------------- */

static void edit_symbols(struct tl__cb_work *w)
{
    for (uint32_t i = 0; i < w->c->n_symbols; i++) {
        const struct tl__cb_piece *piece = w->pieces[w->c->symbols[i].st_shndx];
        if (piece != NULL)
            tl__cb_edit_symbol(w, piece, &w->symbols[i],
                               (w->c->symbols[i].st_other & TL__CB_ENTRY) != 0);
    }
}

static int edit_info(struct tl__cb_work *w, struct tl_error *err)
{
    struct tl__cb_out *info = &w->sections[w->c->info_section];
    uint8_t *bytes = tl_arena_alloc(&w->arena, info->n + 1);
    if (bytes == NULL)
        return no_memory(err);
    memcpy(bytes, info->bytes, info->n);
    info->bytes = bytes;
    const uint8_t *p = bytes;
    size_t n = info->n;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a);) {
        if (a.id != TL__CB_ID_REGISTERS)
            continue;
        const Elf64_Sym *s = &w->c->symbols[tl__cb_u32(a.value)];
        const struct tl__cb_piece *piece = w->pieces[s->st_shndx];
        if (piece != NULL && (s->st_other & TL__CB_ENTRY))
            tl__cb_put32(bytes + (a.value - bytes) + 4,
                         tl__cb_edit_registers(w, piece, tl__cb_u32(a.value + 4)));
    }
    return 0;
}

static int edit_in_place(struct tl__cb_work *w, struct tl_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < w->c->n_kernels && rc == 0; i++) {
        const struct tl__cb_kernel *k = &w->c->kernels[i];
        const struct tl__cb_piece *piece = piece_of(w, k);
        if (piece != NULL)
            rc = tl__cb_edit_kernel(w, k, piece, &w->sections[tl__cb_of(k, TL__CB_TEXT)],
                                    &w->sections[tl__cb_of(k, TL__CB_KERNEL_INFO)],
                                    &w->sections[tl__cb_of(k, TL__CB_BANK0)], err);
    }
    if (rc == 0)
        rc = edit_info(w, err);
    if (rc == 0)
        rc = tl__cb_edit_frames(w, err);
    edit_symbols(w);
    return rc;
}

/* --- as twins --------------------------------------------------------------------------------- */

/* The symbols of each kernel that a copy of it needs: its functions, and its bank 0.  `first` has
 * one number more than there are kernels. */
static uint32_t *symbols_by_kernel(struct tl__cb_work *w, uint32_t *first)
{
    const struct tl_cubin *c = w->c;
    uint32_t *owner = tl_arena_alloc(&w->arena, c->n_sections * sizeof *owner);
    uint32_t *list = tl_arena_alloc(&w->arena, (c->n_symbols + 1u) * sizeof *list);
    if (owner == NULL || list == NULL)
        return NULL;
    fill(owner, c->n_sections);
    for (uint32_t i = 0; i < c->n_kernels; i++) {
        if (piece_of(w, &c->kernels[i]) == NULL)
            continue;
        for (int kind = TL__CB_TEXT; kind < TL__CB_KINDS; kind++)
            if (tl__cb_of(&c->kernels[i], (enum tl__cb_kind)kind) != TL__CB_NONE)
                owner[tl__cb_of(&c->kernels[i], (enum tl__cb_kind)kind)] = i;
    }
    memset(first, 0, (c->n_kernels + 2u) * sizeof *first);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < c->n_symbols; i++) {
            const Elf64_Sym *s = &c->symbols[i];
            uint32_t k = owner[s->st_shndx];
            bool is_wanted = k != TL__CB_NONE && (ELF64_ST_TYPE(s->st_info) != STT_SECTION ||
                                                  i == c->kernels[k].bank0_symbol);
            if (is_wanted && pass == 0)
                first[k + 2]++;
            else if (is_wanted)
                list[first[k + 1]++] = i;
        }
        for (uint32_t k = 0; k < c->n_kernels && pass == 0; k++)
            first[k + 2] += first[k + 1];
    }
    return list;
}

static int add_twins(struct tl__cb_work *w, uint32_t n, struct tl_error *err)
{
    const struct tl_cubin *c = w->c;
    if (c->n_sections + (uint64_t)n * (TL__CB_KINDS - TL__CB_TEXT) >= MOST_SECTIONS)
        return tl_error_set(err, -EFBIG, "a cubin with so many kernels has no room for %u twins",
                            n);
    uint32_t *first = tl_arena_alloc(&w->arena, (c->n_kernels + 2u) * sizeof *first);
    uint32_t *symbols = first != NULL ? symbols_by_kernel(w, first) : NULL;
    if (symbols == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < c->n_kernels; i++) {
        const struct tl__cb_kernel *k = &c->kernels[i];
        const struct tl__cb_piece *piece = piece_of(w, k);
        int rc = piece != NULL ? tl__cb_add_twin(w, k, piece, symbols + first[i],
                                                 first[i + 1] - first[i], err)
                               : 0;
        if (rc < 0)
            return rc;
    }
    tl__cb_finish_twins(w);
    return 0;
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
    struct tl__cb_work w;
    *out = (struct tl_cubin_gated){0};
    int rc = begin(&w, c, options->is_twin, left_out, err);
    if (rc == 0)
        rc = find_pieces(&w, options, gates, &out->n_gated, err);
    if (rc == 0 && out->n_gated == 0)
        rc = refuse(c, options, err);
    if (rc == 0)
        rc = options->is_twin ? add_twins(&w, out->n_gated, err) : edit_in_place(&w, err);
    if (rc == 0)
        rc = tl__cb_write(&w, out, err);
    end(&w);
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
    free(g->bytes);
    *g = (struct tl_cubin_gated){0};
}
