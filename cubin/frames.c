/* `.debug_frame`, for debuggers: entries that tell of a range of code how to unwind it.  Where the
 * range begins is filled in by a relocation against the kernel's symbol: without an addend it is
 * the kernel itself, which becomes longer; with one it is a function inside, which moves. */
#include "cubin/work.h"

#include <errno.h>
#include <stdlib.h>

/* A length, a number, an address, another length. */
enum { LEAST_ENTRY = 4 + 4 + 16 };

struct frames {
    uint8_t *bytes;
    size_t n;
    uint64_t *begins; /* places of the first addresses, ascending */
    uint32_t n_begins;
};

/* Finds where each entry has its first address.  An entry is a length (32 bits, or 64 behind
 * ffffffff), a number that says whose it is, and unless that is all ones, address and length. */
static void find_begins(struct frames *f)
{
    size_t at = 0;
    while (f->n - at >= 4) {
        bool is_wide = tl__u32(f->bytes + at) == UINT32_MAX;
        size_t head = is_wide ? 12 : 4, width = is_wide ? 8 : 4;
        if (f->n - at < head + width)
            return;
        uint64_t length = is_wide ? tl__u64(f->bytes + at + 4) : tl__u32(f->bytes + at);
        if (length < width || length > f->n - at - head)
            return;
        bool is_common = is_wide ? tl__u64(f->bytes + at + head) == UINT64_MAX
                                 : tl__u32(f->bytes + at + head) == UINT32_MAX;
        if (!is_common && length >= width + 16)
            f->begins[f->n_begins++] = at + head + width;
        at += head + length;
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A relocation of the table; `rela` is its addend, or NULL if that stands in the table. */
static void edit_one(struct frames *f, uint64_t place, uint8_t *rela, uint32_t by)
{
    if (bsearch(&place, f->begins, f->n_begins, sizeof place, compare) == NULL)
        return;
    uint8_t *addend = rela != NULL ? rela : f->bytes + place;
    if (tl__u64(addend) == 0)
        tl__cb_put64(f->bytes + place + 8, tl__u64(f->bytes + place + 8) + by);
    else
        tl__cb_put64(addend, tl__u64(addend) + by);
}

int tl__cb_edit_frames(const struct tl__cb_work *w, uint8_t *table, uint8_t *relocations,
                       struct tl_arena *arena, struct tl_error *err)
{
    const struct tl_cubin *c = w->c;
    const struct tl__cb_section *places = &c->sections[c->frame_relocations_section];
    bool is_rela = places->h.sh_type == SHT_RELA;
    size_t each = is_rela ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    struct frames f = {.bytes = table, .n = c->sections[c->frames_section].h.sh_size};
    f.begins = tl_arena_alloc(arena, (f.n / LEAST_ENTRY + 1) * sizeof *f.begins);
    if (f.begins == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for unwind tables");
    find_begins(&f);
    for (size_t at = 0; at + each <= places->h.sh_size; at += each) {
        uint32_t symbol = (uint32_t)(tl__u64(relocations + at + 8) >> 32);
        const struct tl__cb_piece *piece = symbol < c->n_symbols
                                               ? tl__cb_piece_of(w, c->symbols[symbol].st_shndx)
                                               : NULL;
        if (piece != NULL && (c->symbols[symbol].st_other & TL__CB_ENTRY))
            edit_one(&f, tl__u64(relocations + at), is_rela ? relocations + at + 16 : NULL,
                     piece->code_bytes);
    }
    return 0;
}
