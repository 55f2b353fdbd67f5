/* Sections as a file again.
 *
 * They keep their order; copies stand behind their originals.  Then come the section headers and
 * the segments, as compilers write them.  A segment covers the sections that it covered before, and
 * the copies of those. */
#include "cubin/work.h"

#include <errno.h>

enum { MOST_SEGMENTS = 32 };

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

static int put_in_order(struct tl__cb_work *w, struct layout *l, struct tl_error *err)
{
    l->order = tl_arena_alloc(&w->arena, w->n_sections * sizeof(struct tl__cb_out *));
    if (l->order == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the order of sections");
    for (uint32_t i = 0; i < w->c->n_sections; i++) {
        if (!w->sections[i].is_dropped)
            l->order[l->n++] = &w->sections[i];
        if (w->is_twin && w->copy_of[i] != TL__CB_NONE)
            l->order[l->n++] = &w->sections[w->copy_of[i]];
    }
    uint64_t at = sizeof(Elf64_Ehdr);
    for (uint32_t i = 0; i < l->n; i++) {
        struct tl__cb_out *o = l->order[i];
        o->number = i;
        if (i == 0)
            continue; /* the null section has no place */
        at = align(at, o->h.sh_addralign);
        o->h.sh_offset = at;
        at += bytes_of(w, o);
    }
    l->headers = align(at, 8);
    l->segments = l->headers + l->n * sizeof(Elf64_Shdr);
    l->end = l->segments + w->c->n_segments * sizeof(Elf64_Phdr);
    return 0;
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
    memcpy(to, s->bytes, s->h.sh_size);
    if (s->kind == TL__CB_BANK0)
        memset(to + s->h.sh_size, 0, o->h.sh_size - s->h.sh_size);
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

/* Tables of the module, which are read again when all sections are copied. */
static bool is_read_again(enum tl__cb_kind kind)
{
    return kind == TL__CB_SECTION_NAMES || kind == TL__CB_SYMBOL_NAMES || kind == TL__CB_SYMBOLS ||
           kind == TL__CB_INFO || kind == TL__CB_CALLS;
}

/* What lies before the section has been copied, and its twins with it: sections are in the order of
 * the file (tl__cb_disorder).  Gives it back from `from` on, if it is worth a call; how far it came
 * is the answer. */
static uint64_t spend_before(const struct tl__cb_work *w, const struct tl__cb_section *s,
                             uint64_t from)
{
    enum { LEAST = 64 << 10, PARTS = 16 };
    uint64_t begin = s->h.sh_offset, least = w->c->n / PARTS > LEAST ? w->c->n / PARTS : LEAST;
    if (!is_read_again(s->kind) && (begin < from || begin - from < least))
        return from;
    if (begin > from)
        tl__cb_forget(w->c->bytes + from, begin - from);
    return is_read_again(s->kind) ? begin + s->h.sh_size : begin;
}

/* All sections, and zeroes between them. */
static void put_sections(const struct tl__cb_work *w, const struct layout *l, uint8_t *file)
{
    uint64_t end = sizeof(Elf64_Ehdr), spent = end;
    for (uint32_t i = 0; i < l->n; i++) {
        const struct tl__cb_out *o = l->order[i];
        if (bytes_of(w, o) == 0)
            continue;
        if (w->spends)
            spent = spend_before(w, &w->c->sections[o->origin], spent);
        memset(file + end, 0, o->h.sh_offset - end);
        put_section(w, o, file + o->h.sh_offset);
        end = o->h.sh_offset + o->h.sh_size;
    }
    memset(file + end, 0, l->headers - end);
}

int tl__cb_write(struct tl__cb_work *w, struct tl_cubin_gated *out, struct tl_error *err)
{
    struct layout l = {0};
    int rc = put_in_order(w, &l, err);
    if (rc < 0)
        return rc;
    uint8_t *file = tl__cb_reserve(l.end);
    if (file == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for a gated cubin of %llu bytes",
                            (unsigned long long)l.end);
    put_sections(w, &l, file);
    rc = edit_tables(w, file, err);
    if (rc < 0) {
        tl__cb_release(file, l.end);
        return rc;
    }
    put_headers(w, &l, file);
    out->bytes = file;
    out->n = l.end;
    out->peak_bytes = l.end + w->arena.bytes + w->c->arena.bytes;
    return 0;
}
