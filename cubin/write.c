/* Sections as a file again.
 *
 * They keep their order; copies stand behind the series that their originals are in: code and
 * constants of all kernels, their attributes.  Then come the section headers and the segments, as
 * compilers write them.  A segment covers the sections that it covered before, and the copies of
 * those.
 *
 * Nearly all of a large cubin is code and constants of kernels, and twins leave these as they are,
 * in one row that only begins later.  So the row keeps its place within a page: if the cubin may be
 * spent, its pages become those of the new file, and nothing of it is copied (tl__cb_hand_over). */
#include "cubin/work.h"

#include <errno.h>

enum { MOST_SEGMENTS = 32, ROW_PAGE = 4096 };

/* --- what is usual ---------------------------------------------------------------------------- */

/* Whether a segment is the table of segments itself. */
static bool is_table(const struct tl_cubin *c, const Elf64_Phdr *p)
{
    return p->p_type == PT_PHDR || p->p_offset == c->header.e_phoff;
}

/* Whether a section is one that the segment loads. */
static bool covers(const struct tl_cubin *c, const Elf64_Phdr *p, const struct tl__cb_section *s)
{
    bool is_loaded = (s->h.sh_flags & SHF_ALLOC) != 0 && s->kind != TL__CB_MERCURY;
    bool is_written = (s->h.sh_flags & SHF_WRITE) != 0;
    uint64_t bytes = s->bytes != NULL ? s->h.sh_size : 0;
    return !is_table(c, p) && p->p_type == PT_LOAD && is_loaded &&
           is_written == ((p->p_flags & PF_W) != 0) && s->h.sh_offset >= p->p_offset &&
           s->h.sh_offset - p->p_offset <= p->p_filesz &&
           bytes <= p->p_filesz - (s->h.sh_offset - p->p_offset);
}

/* Whether a segment loads whole sections and nothing else: then its new place can be told. */
static bool is_of_sections(const struct tl_cubin *c, const Elf64_Phdr *p)
{
    uint64_t begin = UINT64_MAX, end = 0;
    if (is_table(c, p))
        return true;
    for (uint32_t i = 0; i < c->n_sections; i++) {
        const struct tl__cb_section *s = &c->sections[i];
        if (!covers(c, p, s))
            continue;
        uint64_t bytes = s->bytes != NULL ? s->h.sh_size : 0;
        begin = s->h.sh_offset < begin ? s->h.sh_offset : begin;
        end = s->h.sh_offset + bytes > end ? s->h.sh_offset + bytes : end;
    }
    return begin == UINT64_MAX ? p->p_filesz == 0
                               : begin == p->p_offset && end == p->p_offset + p->p_filesz;
}

const char *tl__cb_disorder(const struct tl_cubin *c)
{
    uint64_t before = 0;
    if (c->n_segments > MOST_SEGMENTS)
        return "many segments";
    for (uint32_t i = 0; i < c->n_segments; i++) {
        if (c->segments[i].p_type != PT_PHDR && c->segments[i].p_type != PT_LOAD)
            return "a segment of another type";
        if (c->segments[i].p_memsz < c->segments[i].p_filesz)
            return "a segment that is larger in the file than in memory";
        if (!is_of_sections(c, &c->segments[i]))
            return "a segment that does not begin and end with sections";
    }
    for (uint32_t i = 0; i < c->n_sections; i++) {
        const struct tl__cb_section *s = &c->sections[i];
        if ((s->kind == TL__CB_NULL) != (i == 0))
            return "the null section is not the first";
        if (s->bytes == NULL || s->h.sh_size == 0 || s->kind == TL__CB_MERCURY)
            continue;
        if (s->h.sh_offset < before)
            return "sections are not in the order of their headers";
        before = s->h.sh_offset + s->h.sh_size;
        uint32_t n = 0;
        for (uint32_t j = 0; j < c->n_segments; j++)
            n += covers(c, &c->segments[j], s);
        if (n != ((s->h.sh_flags & SHF_ALLOC) != 0))
            return "sections and segments do not fit";
    }
    for (uint32_t i = 0; i < c->n_symbols; i++)
        if (c->sections[c->symbols[i].st_shndx].kind == TL__CB_MERCURY)
            return "a symbol in a section of another form of the code";
    return NULL;
}

/* --- places ----------------------------------------------------------------------------------- */

/* The layout of the new file. */
struct layout {
    struct tl__cb_out **order;
    uint32_t n;
    uint64_t headers, segments, end;
    /* What twins leave as it is in a row, by sections that were read; none if row_end is 0.  Its
     * bytes go from `row_from` to `row_to`. */
    uint32_t row_begin, row_end;
    uint64_t row_from, row_to, row_bytes;
};

static uint64_t align(uint64_t at, uint64_t to)
{
    return to > 1 ? (at + to - 1) & ~(to - 1) : at;
}

static bool has_bytes(const struct tl__cb_work *w, const struct tl__cb_out *o)
{
    return w->c->sections[o->origin].bytes != NULL;
}

static uint64_t bytes_of(const struct tl__cb_work *w, const struct tl__cb_out *o)
{
    return has_bytes(w, o) ? o->h.sh_size : 0;
}

/* A kernel's, or constants: what twins leave as it is. */
static bool stays(const struct tl__cb_section *s)
{
    return s->kind >= TL__CB_TEXT || s->kind == TL__CB_CONSTANTS || s->kind == TL__CB_ADDRESSES;
}

/* Whether two sections are in one series: both stay, and are loaded by the same segment or not at
 * all. */
static bool is_series(const struct tl_cubin *c, uint32_t a, uint32_t b)
{
    const uint64_t how = SHF_ALLOC | SHF_WRITE;
    const struct tl__cb_section *s = c->sections;
    if (!stays(&s[a]) || !stays(&s[b]) || (s[a].h.sh_flags & how) != (s[b].h.sh_flags & how))
        return false;
    for (uint32_t i = 0; i < c->n_segments; i++)
        if (covers(c, &c->segments[i], &s[a]) != covers(c, &c->segments[i], &s[b]))
            return false;
    return true;
}

static bool is_in_file(const struct tl__cb_section *s)
{
    return s->bytes != NULL && s->h.sh_size > 0;
}

/* The longest row of a series without room between its sections but for their alignment: at a
 * distance of whole pages they have the same places among each other. */
static void find_row(const struct tl_cubin *c, struct layout *l)
{
    const struct tl__cb_section *s = c->sections;
    for (uint32_t i = 0, end; i < c->n_sections; i = end) {
        end = i + 1;
        if (!is_in_file(&s[i]) || !stays(&s[i]))
            continue;
        uint64_t to = s[i].h.sh_offset + s[i].h.sh_size;
        for (; end < c->n_sections && is_in_file(&s[end]) && is_series(c, i, end) &&
               s[end].h.sh_offset == align(to, s[end].h.sh_addralign);
             end++)
            to = s[end].h.sh_offset + s[end].h.sh_size;
        uint64_t bytes = to - s[i].h.sh_offset;
        if (bytes <= l->row_bytes)
            continue;
        l->row_begin = i;
        l->row_end = end;
        l->row_from = s[i].h.sh_offset;
        l->row_bytes = bytes;
    }
}

static bool is_in_row(const struct layout *l, const struct tl__cb_out *o)
{
    return !o->is_copy && o->origin >= l->row_begin && o->origin < l->row_end;
}

/* The copies of a series of sections. */
static void add_copies(struct tl__cb_work *w, struct layout *l, uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; i < end; i++)
        if (w->is_twin && w->copy_of[i] != TL__CB_NONE)
            l->order[l->n++] = &w->sections[w->copy_of[i]];
}

static int put_in_order(struct tl__cb_work *w, struct layout *l, struct tl_error *err)
{
    uint32_t n = w->c->n_sections, series = 0; /* where one began whose copies are not there yet */
    l->order = tl_arena_alloc(&w->arena, w->n_sections * sizeof(struct tl__cb_out *));
    if (l->order == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the order of sections");
    for (uint32_t i = 0; i < n; i++) {
        if (!w->sections[i].is_dropped)
            l->order[l->n++] = &w->sections[i];
        if (i + 1 < n && is_series(w->c, i, i + 1))
            continue;
        add_copies(w, l, series, i + 1);
        series = i + 1;
    }
    return 0;
}

static void put_in_place(const struct tl__cb_work *w, struct layout *l)
{
    uint64_t at = sizeof(Elf64_Ehdr);
    if (w->is_twin)
        find_row(w->c, l);
    for (uint32_t i = 0; i < l->n; i++) {
        struct tl__cb_out *o = l->order[i];
        o->number = i;
        if (i == 0)
            continue; /* the null section has no place */
        at = align(at, o->h.sh_addralign);
        if (is_in_row(l, o) && o->origin == l->row_begin)
            l->row_to = at += (l->row_from - at) % ROW_PAGE;
        o->h.sh_offset = at;
        at += bytes_of(w, o);
    }
    l->headers = align(at, 8);
    l->segments = l->headers + l->n * sizeof(Elf64_Shdr);
    l->end = l->segments + w->c->n_segments * sizeof(Elf64_Phdr);
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* The new number of a section that was read. */
static uint32_t new_number(const struct tl__cb_work *w, uint32_t old)
{
    return old < w->c->n_sections ? w->sections[old].number : old;
}

static void renumber_section(const struct tl__cb_work *w, const struct tl__cb_out *o, Elf64_Shdr *h)
{
    h->sh_link = new_number(w, h->sh_link);
    if (!(h->sh_flags & SHF_INFO_LINK))
        return;
    uint32_t to = h->sh_info;
    if (o->is_copy && to < w->c->n_sections && w->copy_of[to] != TL__CB_NONE)
        h->sh_info = w->sections[w->copy_of[to]].number;
    else
        h->sh_info = new_number(w, to);
}

/* --- segments --------------------------------------------------------------------------------- */

/* What has no bytes in the file and was copied takes room behind what was there. */
static uint64_t add_room(const struct tl__cb_work *w, uint64_t memory, const struct tl__cb_out *o)
{
    return o->is_copy && !has_bytes(w, o) ? align(memory, o->h.sh_addralign) + o->h.sh_size
                                          : memory;
}

static Elf64_Phdr new_segment(const struct tl__cb_work *w, const struct layout *l,
                              const Elf64_Phdr *old)
{
    Elf64_Phdr p = *old;
    uint64_t begin = UINT64_MAX, end = 0, room = old->p_memsz - old->p_filesz;
    if (!tl__cb_does(w, TL__CB_EDIT_SEGMENTS))
        return p;
    if (is_table(w->c, old)) {
        p.p_offset = l->segments;
        return p;
    }
    for (uint32_t i = 0; i < l->n; i++) {
        const struct tl__cb_out *o = l->order[i];
        if (!covers(w->c, old, &w->c->sections[o->origin]))
            continue;
        if (o->h.sh_offset < begin)
            begin = o->h.sh_offset;
        if (o->h.sh_offset + bytes_of(w, o) > end)
            end = o->h.sh_offset + bytes_of(w, o);
        room = add_room(w, room, o);
    }
    if (begin == UINT64_MAX)
        return p;
    p.p_offset = begin;
    p.p_filesz = end - begin;
    p.p_memsz = p.p_filesz + room;
    return p;
}

/* --- contents --------------------------------------------------------------------------------- */

static bool is_zero(const uint8_t *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* The bank of a launch's parameters, with room for ours.  It is up to 32 KB of zeroes per kernel,
 * in some modules most of the file: pages that are zero are left alone. */
static void put_bank(const struct tl__cb_work *w, const struct tl__cb_out *o, uint8_t *to)
{
    const struct tl__cb_section *s = &w->c->sections[o->origin];
    if (w->is_clear && is_zero(s->bytes, s->h.sh_size))
        return;
    memcpy(to, s->bytes, s->h.sh_size);
    memset(to + s->h.sh_size, 0, o->h.sh_size - s->h.sh_size);
}

/* A section of a kernel that has a piece: the original, or the copy if it is a twin's. */
static void put_kernel_section(const struct tl__cb_work *w, const struct tl__cb_out *o, uint8_t *to)
{
    const struct tl__cb_section *s = &w->c->sections[o->origin];
    uint32_t number = w->owner[o->origin];
    const struct tl__cb_piece *piece = w->pieces[number];
    if (s->kind == TL__CB_KERNEL_INFO) {
        tl__cb_put_attributes(w, &w->c->kernels[number], piece, to);
        return;
    }
    if (s->kind == TL__CB_TEXT) {
        memcpy(to, piece->code, piece->code_bytes);
        to += piece->code_bytes;
    }
    if (s->kind == TL__CB_BANK0) {
        put_bank(w, o, to);
        return;
    }
    memcpy(to, s->bytes, s->h.sh_size);
}

static void put_section(const struct tl__cb_work *w, const struct tl__cb_out *o, uint8_t *to)
{
    const struct tl__cb_section *s = &w->c->sections[o->origin];
    if (w->owner[o->origin] != TL__CB_NONE && o->is_copy == w->is_twin)
        put_kernel_section(w, o, to);
    else
        memcpy(to, s->bytes, s->h.sh_size);
}

/* The symbols that were read, in their new sections and with what stands before them now. */
static void edit_symbols(const struct tl__cb_work *w, uint8_t *to)
{
    for (uint32_t i = 0; i < w->c->n_symbols; i++) {
        Elf64_Sym s = w->c->symbols[i];
        const struct tl__cb_piece *piece = w->is_twin ? NULL : tl__cb_piece_of(w, s.st_shndx);
        if (piece != NULL)
            tl__cb_edit_symbol(w, piece, &s, (s.st_other & TL__CB_ENTRY) != 0);
        s.st_shndx = (uint16_t)w->sections[s.st_shndx].number;
        memcpy(to + i * sizeof s, &s, sizeof s);
    }
}

/* The registers of kernels that were gated in place. */
static void edit_info(const struct tl__cb_work *w, uint8_t *to)
{
    const uint8_t *p = to;
    size_t n = w->c->sections[w->c->info_section].h.sh_size;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a);) {
        if (a.id != TL__CB_ID_REGISTERS)
            continue;
        const Elf64_Sym *s = &w->c->symbols[tl__u32(a.value)];
        const struct tl__cb_piece *piece = tl__cb_piece_of(w, s->st_shndx);
        if (piece != NULL && (s->st_other & TL__CB_ENTRY))
            tl__cb_put32(to + (a.value - to) + 4,
                         tl__cb_edit_registers(w, piece, tl__u32(a.value + 4)));
    }
}

/* What twins add to the tables of the module. */
static void lengthen_tables(const struct tl__cb_work *w, uint8_t *file)
{
    const struct tl_cubin *c = w->c;
    const struct {
        uint32_t section;
        void (*put)(const struct tl__cb_work *w, uint8_t *to);
    } tables[] = {
        {c->names_section, tl__cb_put_section_names},
        {c->symbol_names_section, tl__cb_put_symbol_names},
        {c->symbols_section, tl__cb_put_symbols},
        {c->info_section, tl__cb_put_info},
        {c->calls_section, tl__cb_put_calls},
    };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (tables[i].section != TL__CB_NONE)
            tables[i].put(w, file + w->sections[tables[i].section].h.sh_offset +
                                 c->sections[tables[i].section].h.sh_size);
}

static int edit_tables(struct tl__cb_work *w, uint8_t *file, struct tl_error *err)
{
    const struct tl_cubin *c = w->c;
    edit_symbols(w, file + w->sections[c->symbols_section].h.sh_offset);
    if (w->is_twin) {
        lengthen_tables(w, file);
        return 0;
    }
    edit_info(w, file + w->sections[c->info_section].h.sh_offset);
    if (c->frames_section == TL__CB_NONE || c->frame_relocations_section == TL__CB_NONE ||
        !tl__cb_does(w, TL__CB_EDIT_FRAMES))
        return 0;
    return tl__cb_edit_frames(w, file + w->sections[c->frames_section].h.sh_offset,
                              file + w->sections[c->frame_relocations_section].h.sh_offset,
                              &w->arena, err);
}

/* --- the file --------------------------------------------------------------------------------- */

static void put_headers(const struct tl__cb_work *w, const struct layout *l, uint8_t *file)
{
    Elf64_Ehdr header = w->c->header;
    header.e_shoff = l->headers;
    header.e_phoff = w->c->n_segments > 0 ? l->segments : 0;
    header.e_shnum = (uint16_t)l->n;
    header.e_shstrndx = (uint16_t)new_number(w, w->c->names_section);
    memcpy(file, &header, sizeof header);
    for (uint32_t i = 0; i < l->n; i++) {
        Elf64_Shdr h = l->order[i]->h;
        renumber_section(w, l->order[i], &h);
        memcpy(file + l->headers + i * sizeof h, &h, sizeof h);
    }
    for (uint32_t i = 0; i < w->c->n_segments; i++) {
        Elf64_Phdr p = new_segment(w, l, &w->c->segments[i]);
        memcpy(file + l->segments + i * sizeof p, &p, sizeof p);
    }
}

/* All sections but those of the row. */
static void put_sections(const struct tl__cb_work *w, const struct layout *l, uint8_t *file)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (bytes_of(w, l->order[i]) > 0 && !is_in_row(l, l->order[i]))
            put_section(w, l->order[i], file + l->order[i]->h.sh_offset);
}

/* Zeroes between sections, whatever stood there. */
static void clear_gaps(const struct tl__cb_work *w, const struct layout *l, uint8_t *file)
{
    uint64_t end = sizeof(Elf64_Ehdr);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct tl__cb_out *o = l->order[i];
        if (bytes_of(w, o) == 0)
            continue;
        memset(file + end, 0, o->h.sh_offset - end);
        end = o->h.sh_offset + o->h.sh_size;
    }
    memset(file + end, 0, l->headers - end);
}

/* The file in memory that was reserved for it.  The row comes last: from then on nothing fails.  0,
 * -ENOMEM, -EXDEV (the row cannot be handed over; the memory is released, the cubin is whole). */
static int put_file(struct tl__cb_work *w, const struct layout *l, uint8_t *file,
                    struct tl_error *err)
{
    put_sections(w, l, file);
    int rc = edit_tables(w, file, err);
    if (rc < 0) {
        tl__cb_release(file, l->end);
        return rc;
    }
    put_headers(w, l, file);
    if (!w->spends)
        memcpy(file + l->row_to, w->c->bytes + l->row_from, l->row_bytes);
    else if (!tl__cb_hand_over(file, l->end, l->row_to, w->c->bytes + l->row_from, l->row_bytes))
        return -EXDEV;
    clear_gaps(w, l, file);
    return 0;
}

static int write_once(struct tl__cb_work *w, const struct layout *l, struct tl_cubin_gated *out,
                      struct tl_error *err)
{
    uint64_t behind = l->row_to + l->row_bytes;
    uint8_t *file = tl__cb_reserve(l->end, w->spends ? w->c->bytes : NULL, behind, &w->is_clear);
    if (file == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for a gated cubin of %llu bytes",
                            (unsigned long long)l->end);
    tl__cb_expect(file, l->end, 0, l->row_to);
    tl__cb_expect(file, l->end, behind, l->end - behind);
    int rc = put_file(w, l, file, err);
    if (rc < 0)
        return rc;
    out->bytes = file;
    out->n = l->end;
    out->peak_bytes = l->end + w->arena.bytes + w->c->arena.bytes;
    return 0;
}

int tl__cb_write(struct tl__cb_work *w, struct tl_cubin_gated *out, struct tl_error *err)
{
    struct layout l = {0};
    int rc = put_in_order(w, &l, err);
    if (rc < 0)
        return rc;
    put_in_place(w, &l);
    rc = write_once(w, &l, out, err);
    return rc == -EXDEV ? write_once(w, &l, out, err) : rc; /* from then on it is copied */
}
