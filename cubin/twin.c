/* A second copy of a kernel in the same module, with the gate before it: both use the same
 * variables.  Copies of sections stand behind their originals, as a compiler would put them. */
#include "cubin/internal.h"
#include "tally/array.h"

#include <errno.h>

static int no_memory(struct tl_error *err)
{
    return tl_error_set(err, -ENOMEM, "no memory for a second copy of a kernel");
}

/* Adds a terminated name behind a table of names that had `n` bytes; its place. */
static uint32_t add_name(struct tl_buf *more, uint64_t n, const char *prefix, struct tl_str name,
                         const char *suffix, struct tl_str rest)
{
    uint32_t at = (uint32_t)(n + more->n);
    tl_buf_puts(more, prefix);
    tl_buf_str(more, name);
    tl_buf_puts(more, suffix);
    tl_buf_str(more, rest);
    tl_buf_putc(more, 0);
    return at;
}

/* --- sections --------------------------------------------------------------------------------- */

static struct tl__cb_out *copy_section(struct tl__cb_work *w, uint32_t i)
{
    const struct tl__cb_section *read = &w->c->sections[i];
    if (!TL_ARRAY_FIT(w->sections, w->cap_sections, w->n_sections + 1u))
        return NULL;
    struct tl__cb_out *o = &w->sections[w->n_sections];
    w->copy_of[i] = w->n_sections++;
    *o = (struct tl__cb_out){.h = read->h,
                             .origin = i,
                             .is_copy = true,
                             .bytes = read->bytes,
                             .n = read->bytes != NULL ? read->h.sh_size : 0};
    o->h.sh_name = add_name(&w->more_names, w->c->sections[w->c->names_section].h.sh_size, "",
                            read->name, TL_CUBIN_TWIN_SUFFIX, (struct tl_str){"", 0});
    return o;
}

/* --- symbols ---------------------------------------------------------------------------------- */

/* Functions inside are called $<kernel>$<name>. */
static uint32_t add_symbol_name(struct tl__cb_work *w, const struct tl__cb_kernel *k,
                                struct tl_str name)
{
    uint64_t n = w->c->sections[w->c->symbol_names_section].h.sh_size;
    struct tl_str kernel = k->entry.name, rest = {"", 0};
    bool is_inside = name.n > kernel.n + 2 && name.p[0] == '$' && name.p[kernel.n + 1] == '$' &&
                     memcmp(name.p + 1, kernel.p, kernel.n) == 0;
    if (!is_inside)
        return add_name(&w->more_symbol_names, n, "", name, TL_CUBIN_TWIN_SUFFIX, rest);
    rest = (struct tl_str){name.p + kernel.n + 1, name.n - kernel.n - 1};
    return add_name(&w->more_symbol_names, n, "$", kernel, TL_CUBIN_TWIN_SUFFIX, rest);
}

/* The new number of a symbol; the old one if it was not copied. */
static uint32_t renumber(const struct tl__cb_work *w, uint32_t symbol)
{
    return w->new_symbols[symbol] != TL__CB_NONE ? w->new_symbols[symbol] : symbol;
}

static bool copy_symbols(struct tl__cb_work *w, const struct tl__cb_kernel *k,
                         const struct tl__cb_piece *piece, const uint32_t *symbols, uint32_t n)
{
    const struct tl_cubin *c = w->c;
    if (!TL_ARRAY_FIT(w->symbols, w->cap_symbols, w->n_symbols + n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t old = symbols[i];
        Elf64_Sym *s = &w->symbols[w->n_symbols];
        w->new_symbols[old] = w->n_symbols++;
        *s = c->symbols[old];
        s->st_name = add_symbol_name(w, k, c->symbol_names[old]);
        if (s->st_shndx == tl__cb_of(k, TL__CB_TEXT))
            tl__cb_edit_symbol(w, piece, s, old == k->symbol);
        /* The number of the copy; cubin/write.c makes it the final one. */
        s->st_shndx = (uint16_t)w->copy_of[s->st_shndx];
    }
    return true;
}

/* --- tables that go by symbols ---------------------------------------------------------------- */

/* The symbol of bank 0 in the copied attributes. */
static void edit_bank_symbol(const struct tl__cb_work *w, struct tl__cb_out *info)
{
    uint8_t *bytes = (uint8_t *)info->bytes; /* which cubin/edit.c has made */
    const uint8_t *at = bytes;
    size_t n = info->n;
    for (struct tl__cb_attr a; tl__cb_next_attr(&at, &n, &a);)
        if (a.id == TL__CB_ID_BANK)
            tl__cb_put32(bytes + (a.value - bytes), renumber(w, tl__cb_u32(a.value)));
}

int tl__cb_add_twin(struct tl__cb_work *w, const struct tl__cb_kernel *k,
                    const struct tl__cb_piece *piece, const uint32_t *symbols, uint32_t n_symbols,
                    struct tl_error *err)
{
    for (int kind = TL__CB_TEXT; kind < TL__CB_KINDS; kind++)
        if (tl__cb_of(k, (enum tl__cb_kind)kind) != TL__CB_NONE &&
            copy_section(w, tl__cb_of(k, (enum tl__cb_kind)kind)) == NULL)
            return no_memory(err);
    if (!copy_symbols(w, k, piece, symbols, n_symbols))
        return no_memory(err);
    struct tl__cb_out *text = &w->sections[w->copy_of[tl__cb_of(k, TL__CB_TEXT)]];
    struct tl__cb_out *info = &w->sections[w->copy_of[tl__cb_of(k, TL__CB_KERNEL_INFO)]];
    struct tl__cb_out *bank0 = &w->sections[w->copy_of[tl__cb_of(k, TL__CB_BANK0)]];
    int rc = tl__cb_edit_kernel(w, k, piece, text, info, bank0, err);
    if (rc < 0)
        return rc;
    edit_bank_symbol(w, info);
    text->h.sh_info = (text->h.sh_info & 0xff000000u) | renumber(w, k->symbol);
    return 0;
}

/* What the module's attributes say of the originals holds for the copies as well. */
static void copy_info(struct tl__cb_work *w)
{
    const struct tl_cubin *c = w->c;
    const uint8_t *p = c->sections[c->info_section].bytes;
    size_t n = c->sections[c->info_section].h.sh_size;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a);) {
        uint32_t symbol = a.format == TL__CB_SIZED ? tl__cb_u32(a.value) : 0;
        if (a.format != TL__CB_SIZED || w->new_symbols[symbol] == TL__CB_NONE)
            continue;
        uint8_t copy[12];
        memcpy(copy, a.value - 4, sizeof copy);
        tl__cb_put32(copy + 4, w->new_symbols[symbol]);
        const struct tl__cb_piece *piece = w->pieces[c->symbols[symbol].st_shndx];
        if (a.id == TL__CB_ID_REGISTERS && piece != NULL)
            tl__cb_put32(copy + 8, tl__cb_edit_registers(w, piece, tl__cb_u32(copy + 8)));
        tl_buf_add(&w->more_info, (const char *)copy, sizeof copy);
    }
}

/* Pairs of caller and callee, both symbols or numbers that are none. */
static void copy_calls(struct tl__cb_work *w)
{
    const struct tl_cubin *c = w->c;
    if (c->calls_section == TL__CB_NONE)
        return;
    const struct tl__cb_section *s = &c->sections[c->calls_section];
    for (size_t at = 0; at + 8 <= s->h.sh_size; at += 8) {
        uint32_t pair[2] = {tl__cb_u32(s->bytes + at), tl__cb_u32(s->bytes + at + 4)};
        if (pair[0] >= c->n_symbols || w->new_symbols[pair[0]] == TL__CB_NONE)
            continue;
        pair[0] = w->new_symbols[pair[0]];
        if (pair[1] < c->n_symbols)
            pair[1] = renumber(w, pair[1]);
        tl_buf_add(&w->more_calls, (const char *)pair, sizeof pair);
    }
}

void tl__cb_finish_twins(struct tl__cb_work *w)
{
    if (tl__cb_does(w, TL__CB_EDIT_TWIN_INFO))
        copy_info(w);
    if (tl__cb_does(w, TL__CB_EDIT_TWIN_CALLS))
        copy_calls(w);
}
