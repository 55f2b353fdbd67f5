/* A second copy of a kernel in the same module, with the gate before it: both use the same
 * variables.  Where the copies of sections stand, cubin/write.c says.
 *
 * First the copies are planned, so that the size of every table is known; then what is added to
 * tables is written behind what was read of them. */
#include "cubin/work.h"

#include <errno.h>

enum { SUFFIX_BYTES = sizeof TL_CUBIN_TWIN_SUFFIX };

static int no_memory(struct tl_error *err)
{
    return tl_error_set(err, -ENOMEM, "no memory for a second copy of a kernel");
}

uint32_t tl__cb_new_symbol(const struct tl__cb_work *w, uint32_t symbol)
{
    return w->new_symbols[symbol] != TL__CB_NONE ? w->new_symbols[symbol] : symbol;
}

/* --- symbols ---------------------------------------------------------------------------------- */

/* Whether a copy of the kernel needs a copy of it: its functions, and its bank 0. */
static bool is_copied(const struct tl__cb_work *w, uint32_t symbol)
{
    const Elf64_Sym *s = &w->c->symbols[symbol];
    uint32_t k = w->owner[s->st_shndx];
    return k != TL__CB_NONE &&
           (ELF64_ST_TYPE(s->st_info) != STT_SECTION || symbol == w->c->kernels[k].bank0_symbol);
}

/* Numbers the copies, kernel by kernel.  `first` has two numbers more than there are kernels. */
static void number_symbols(struct tl__cb_work *w, uint32_t *first)
{
    const struct tl_cubin *c = w->c;
    memset(first, 0, (c->n_kernels + 2u) * sizeof *first);
    for (uint32_t i = 0; i < c->n_symbols; i++)
        if (is_copied(w, i))
            first[w->owner[c->symbols[i].st_shndx] + 2]++;
    for (uint32_t k = 0; k < c->n_kernels; k++)
        first[k + 2] += first[k + 1];
    for (uint32_t i = 0; i < c->n_symbols; i++) {
        w->new_symbols[i] = TL__CB_NONE;
        if (!is_copied(w, i))
            continue;
        uint32_t at = first[w->owner[c->symbols[i].st_shndx] + 1]++;
        w->copied_symbols[at] = i;
        w->new_symbols[i] = c->n_symbols + at;
        w->n_copied_symbols++;
    }
}

/* Functions inside are called $<kernel>$<name>; the suffix stands behind the kernel's name. */
static uint32_t bytes_before_suffix(const struct tl__cb_work *w, uint32_t symbol)
{
    struct tl_str name = w->c->symbol_names[symbol];
    struct tl_str kernel = w->c->kernels[w->owner[w->c->symbols[symbol].st_shndx]].entry.name;
    bool is_inside = name.n > kernel.n + 2 && name.p[0] == '$' && name.p[kernel.n + 1] == '$' &&
                     memcmp(name.p + 1, kernel.p, kernel.n) == 0;
    return is_inside ? kernel.n + 1 : name.n;
}

/* Writes a name with the suffix behind its first `before` bytes, and a zero; its end. */
static uint8_t *put_name(uint8_t *to, struct tl_str name, uint32_t before)
{
    memcpy(to, name.p, before);
    memcpy(to + before, TL_CUBIN_TWIN_SUFFIX, SUFFIX_BYTES - 1);
    memcpy(to + before + SUFFIX_BYTES - 1, name.p + before, name.n - before);
    to[name.n + SUFFIX_BYTES - 1] = 0;
    return to + name.n + SUFFIX_BYTES;
}

void tl__cb_put_symbol_names(const struct tl__cb_work *w, uint8_t *to)
{
    for (uint32_t i = 0; i < w->n_copied_symbols; i++) {
        uint32_t old = w->copied_symbols[i];
        to = put_name(to, w->c->symbol_names[old], bytes_before_suffix(w, old));
    }
}

void tl__cb_put_symbols(const struct tl__cb_work *w, uint8_t *to)
{
    const struct tl_cubin *c = w->c;
    uint64_t name = c->sections[c->symbol_names_section].h.sh_size;
    for (uint32_t i = 0; i < w->n_copied_symbols; i++) {
        uint32_t old = w->copied_symbols[i];
        Elf64_Sym s = c->symbols[old];
        const struct tl__cb_piece *piece = tl__cb_piece_of(w, s.st_shndx);
        if (piece != NULL)
            tl__cb_edit_symbol(w, piece, &s, old == c->kernels[w->owner[s.st_shndx]].symbol);
        s.st_name = (uint32_t)name;
        s.st_shndx = (uint16_t)w->sections[w->copy_of[s.st_shndx]].number;
        memcpy(to + i * sizeof s, &s, sizeof s);
        name += c->symbol_names[old].n + SUFFIX_BYTES;
    }
}

/* --- sections --------------------------------------------------------------------------------- */

static void copy_section(struct tl__cb_work *w, uint32_t i)
{
    const struct tl_cubin *c = w->c;
    struct tl__cb_out *names = &w->sections[c->names_section];
    w->sections[w->n_sections] = (struct tl__cb_out){
        .h = c->sections[i].h, .origin = i, .is_copy = true};
    w->sections[w->n_sections].h.sh_name = (uint32_t)names->h.sh_size;
    names->h.sh_size += c->sections[i].name.n + SUFFIX_BYTES;
    w->copy_of[i] = w->n_sections++;
}

void tl__cb_put_section_names(const struct tl__cb_work *w, uint8_t *to)
{
    for (uint32_t i = w->c->n_sections; i < w->n_sections; i++) {
        struct tl_str name = w->c->sections[w->sections[i].origin].name;
        to = put_name(to, name, name.n);
    }
}

static void copy_kernel(struct tl__cb_work *w, const struct tl__cb_kernel *k,
                        const struct tl__cb_piece *piece)
{
    for (int kind = TL__CB_TEXT; kind < TL__CB_KINDS; kind++)
        if (tl__cb_of(k, (enum tl__cb_kind)kind) != TL__CB_NONE)
            copy_section(w, tl__cb_of(k, (enum tl__cb_kind)kind));
    struct tl__cb_out *text = &w->sections[w->copy_of[tl__cb_of(k, TL__CB_TEXT)]];
    tl__cb_edit_headers(w, k, piece, text,
                        &w->sections[w->copy_of[tl__cb_of(k, TL__CB_KERNEL_INFO)]],
                        &w->sections[w->copy_of[tl__cb_of(k, TL__CB_BANK0)]]);
    text->h.sh_info = (text->h.sh_info & 0xff000000u) | tl__cb_new_symbol(w, k->symbol);
}

/* --- tables that go by symbols ---------------------------------------------------------------- */

/* What the module's attributes say of the originals holds for the copies as well.  Writes that
 * unless `to` is NULL; how many bytes it is. */
static uint64_t copy_info(const struct tl__cb_work *w, uint8_t *to)
{
    const struct tl_cubin *c = w->c;
    const uint8_t *p = c->sections[c->info_section].bytes;
    size_t n = c->sections[c->info_section].h.sh_size;
    uint64_t written = 0;
    if (!tl__cb_does(w, TL__CB_EDIT_TWIN_INFO))
        return 0;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a);) {
        uint32_t symbol = a.format == TL__CB_SIZED ? tl__u32(a.value) : 0;
        if (a.format != TL__CB_SIZED || w->new_symbols[symbol] == TL__CB_NONE)
            continue;
        uint8_t copy[12];
        memcpy(copy, a.value - 4, sizeof copy);
        tl__cb_put32(copy + 4, w->new_symbols[symbol]);
        const struct tl__cb_piece *piece = tl__cb_piece_of(w, c->symbols[symbol].st_shndx);
        if (a.id == TL__CB_ID_REGISTERS && piece != NULL)
            tl__cb_put32(copy + 8, tl__cb_edit_registers(w, piece, tl__u32(copy + 8)));
        if (to != NULL)
            memcpy(to + written, copy, sizeof copy);
        written += sizeof copy;
    }
    return written;
}

/* The same for the graph of calls: pairs of caller and callee, both symbols or numbers that are
 * none. */
static uint64_t copy_calls(const struct tl__cb_work *w, uint8_t *to)
{
    const struct tl_cubin *c = w->c;
    uint64_t written = 0;
    if (c->calls_section == TL__CB_NONE || !tl__cb_does(w, TL__CB_EDIT_TWIN_CALLS))
        return 0;
    const struct tl__cb_section *s = &c->sections[c->calls_section];
    for (size_t at = 0; at + 8 <= s->h.sh_size; at += 8) {
        uint32_t pair[2] = {tl__u32(s->bytes + at), tl__u32(s->bytes + at + 4)};
        if (pair[0] >= c->n_symbols || w->new_symbols[pair[0]] == TL__CB_NONE)
            continue;
        pair[0] = w->new_symbols[pair[0]];
        if (pair[1] < c->n_symbols)
            pair[1] = tl__cb_new_symbol(w, pair[1]);
        if (to != NULL)
            memcpy(to + written, pair, sizeof pair);
        written += sizeof pair;
    }
    return written;
}

void tl__cb_put_info(const struct tl__cb_work *w, uint8_t *to)
{
    copy_info(w, to);
}

void tl__cb_put_calls(const struct tl__cb_work *w, uint8_t *to)
{
    copy_calls(w, to);
}

/* --- the plan --------------------------------------------------------------------------------- */

/* How much the tables grow.  False if a table of names would be larger than names can say. */
static bool grow_tables(struct tl__cb_work *w)
{
    const struct tl_cubin *c = w->c;
    struct tl__cb_out *names = &w->sections[c->symbol_names_section];
    for (uint32_t i = 0; i < w->n_copied_symbols; i++)
        names->h.sh_size += c->symbol_names[w->copied_symbols[i]].n + SUFFIX_BYTES;
    w->sections[c->symbols_section].h.sh_size += w->n_copied_symbols * sizeof(Elf64_Sym);
    w->sections[c->info_section].h.sh_size += copy_info(w, NULL);
    if (c->calls_section != TL__CB_NONE)
        w->sections[c->calls_section].h.sh_size += copy_calls(w, NULL);
    return names->h.sh_size <= UINT32_MAX && w->sections[c->names_section].h.sh_size <= UINT32_MAX;
}

int tl__cb_add_twins(struct tl__cb_work *w, struct tl_error *err)
{
    const struct tl_cubin *c = w->c;
    uint32_t *first = tl_arena_alloc(&w->arena, (c->n_kernels + 2u) * sizeof *first);
    w->copy_of = tl_arena_alloc(&w->arena, c->n_sections * sizeof *w->copy_of);
    w->new_symbols = tl_arena_alloc(&w->arena, (c->n_symbols + 1u) * sizeof *w->new_symbols);
    w->copied_symbols = tl_arena_alloc(&w->arena, (c->n_symbols + 1u) * sizeof *w->copied_symbols);
    if (first == NULL || w->copy_of == NULL || w->new_symbols == NULL || w->copied_symbols == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < c->n_sections; i++)
        w->copy_of[i] = TL__CB_NONE;
    number_symbols(w, first);
    for (uint32_t i = 0; i < c->n_kernels; i++)
        if (w->pieces[i] != NULL)
            copy_kernel(w, &c->kernels[i], w->pieces[i]);
    if (!grow_tables(w))
        return tl_error_set(err, -EFBIG, "the names of twins do not fit into a cubin");
    return 0;
}
