/* Reads the tables of a cubin: section headers, names, symbols, segments.
 *
 * No number of the file is believed.  That everything lies within the file is checked by
 * image/elf.c first; what remains are numbers of sections and symbols, and places in tables of
 * names.  Names may overlap, so that a small file could have long ones for all of its symbols:
 * together they may have a few times the bytes of the file, and no more. */
#include "cubin/internal.h"
#include "image/internal.h"

#include <errno.h>

enum { NAMES_PER_BYTE = 8 };

/* Reads names from one table. */
struct names {
    const uint8_t *p;
    size_t n;
    size_t *budget;
};

/* The name at `at`.  False if it has no end, or if all names together are too long. */
static bool name_at(const struct names *t, uint32_t at, struct tl_str *name)
{
    *name = (struct tl_str){"", 0};
    if (at >= t->n)
        return at == 0;
    const uint8_t *end = memchr(t->p + at, 0, t->n - at);
    if (end == NULL)
        return false;
    size_t n = (size_t)(end - (t->p + at));
    if (n >= *t->budget || n > INT32_MAX)
        return false;
    *t->budget -= n;
    *name = (struct tl_str){(const char *)t->p + at, (uint32_t)n};
    return true;
}

static bool table_of_names(const struct tl_cubin *c, uint32_t section, size_t *budget,
                           struct names *out)
{
    const struct tl__cb_section *s = &c->sections[section];
    if (section >= c->n_sections || s->h.sh_type != SHT_STRTAB || s->bytes == NULL)
        return false;
    *out = (struct names){s->bytes, s->h.sh_size, budget};
    return true;
}

/* --- sections --------------------------------------------------------------------------------- */

/* Remembers the number of a section that there is once; false if there is another. */
static bool only_one(uint32_t *slot, uint32_t i)
{
    bool is_first = *slot == TL__CB_NONE;
    *slot = i;
    return is_first;
}

static bool remember(struct tl_cubin *c, uint32_t i)
{
    switch (c->sections[i].kind) {
    case TL__CB_SYMBOLS:
        return only_one(&c->symbols_section, i);
    case TL__CB_INFO:
        return only_one(&c->info_section, i);
    case TL__CB_FRAMES:
        return only_one(&c->frames_section, i);
    case TL__CB_FRAME_RELOCATIONS:
        return only_one(&c->frame_relocations_section, i);
    case TL__CB_CALLS:
        return only_one(&c->calls_section, i);
    default:
        return true;
    }
}

static void against_all(struct tl_cubin *c, enum tl_cubin_reason reason, const char *note)
{
    if (c->reason == TL_CUBIN_REASON_OK) {
        c->reason = reason;
        c->note = note;
    }
}

static int read_sections(struct tl_cubin *c, size_t *budget, struct tl_error *err)
{
    struct names names;
    c->n_sections = c->header.e_shnum;
    c->names_section = c->header.e_shstrndx;
    c->sections = tl_arena_zalloc(&c->arena, (c->n_sections + 1u) * sizeof *c->sections);
    if (c->sections == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the sections of a cubin");
    for (uint32_t i = 0; i < c->n_sections; i++) {
        struct tl__cb_section *s = &c->sections[i];
        memcpy(&s->h, c->bytes + c->header.e_shoff + i * sizeof s->h, sizeof s->h);
        if (!tl__section_is_empty(s->h.sh_type))
            s->bytes = c->bytes + s->h.sh_offset;
    }
    if (c->names_section >= c->n_sections || !table_of_names(c, c->names_section, budget, &names))
        return tl_error_set(err, -EINVAL, "a cubin has no names of sections");
    for (uint32_t i = 0; i < c->n_sections; i++) {
        struct tl__cb_section *s = &c->sections[i];
        if (!name_at(&names, s->h.sh_name, &s->name))
            return tl_error_set(err, -EINVAL, "section %u of a cubin has no proper name", i);
        s->kind = tl__cb_kind_of(s->name, &s->h, &s->owner);
        if (s->kind == TL__CB_UNKNOWN)
            against_all(c, TL_CUBIN_REASON_SECTION,
                        tl_arena_printf(&c->arena, "%.80s, type %#x, flags %#llx", s->name.p,
                                        s->h.sh_type, (unsigned long long)s->h.sh_flags));
        if (!remember(c, i))
            against_all(c, TL_CUBIN_REASON_LAYOUT,
                        tl_arena_printf(&c->arena, "two sections %.80s", s->name.p));
    }
    return 0;
}

/* --- symbols ---------------------------------------------------------------------------------- */

static int read_symbols(struct tl_cubin *c, size_t *budget, struct tl_error *err)
{
    struct names names;
    if (c->symbols_section == TL__CB_NONE)
        return tl_error_set(err, -EINVAL, "a cubin has no symbol table");
    const struct tl__cb_section *s = &c->sections[c->symbols_section];
    c->symbol_names_section = s->h.sh_link;
    if (s->h.sh_link >= c->n_sections || !table_of_names(c, s->h.sh_link, budget, &names))
        return tl_error_set(err, -EINVAL, "a cubin has no names of symbols");
    size_t n = s->h.sh_size / sizeof(Elf64_Sym);
    if (s->h.sh_entsize != sizeof(Elf64_Sym) || s->h.sh_size % sizeof(Elf64_Sym) != 0 ||
        n > UINT32_MAX / sizeof(Elf64_Sym))
        return tl_error_set(err, -EINVAL, "a cubin has %llu bytes of symbols with %llu bytes each",
                            (unsigned long long)s->h.sh_size, (unsigned long long)s->h.sh_entsize);
    c->n_symbols = (uint32_t)n;
    c->symbols = tl_arena_alloc(&c->arena, (n + 1) * sizeof *c->symbols);
    c->symbol_names = tl_arena_alloc(&c->arena, (n + 1) * sizeof *c->symbol_names);
    if (c->symbols == NULL || c->symbol_names == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the symbols of a cubin");
    memcpy(c->symbols, s->bytes, n * sizeof *c->symbols);
    for (uint32_t i = 0; i < c->n_symbols; i++) {
        if (!name_at(&names, c->symbols[i].st_name, &c->symbol_names[i]))
            return tl_error_set(err, -EINVAL, "symbol %u of a cubin has no proper name", i);
        if (c->symbols[i].st_shndx >= c->n_sections)
            return tl_error_set(err, -EINVAL, "symbol %u of a cubin is in no section of it", i);
    }
    return 0;
}

/* --- segments --------------------------------------------------------------------------------- */

static int read_segments(struct tl_cubin *c, struct tl_error *err)
{
    c->n_segments = c->header.e_phnum;
    if (c->n_segments > 0 && c->header.e_phentsize != sizeof(Elf64_Phdr))
        return tl_error_set(err, -EINVAL, "a cubin's segments have %u bytes each",
                            c->header.e_phentsize);
    c->segments = tl_arena_alloc(&c->arena, (c->n_segments + 1u) * sizeof *c->segments);
    if (c->segments == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the segments of a cubin");
    memcpy(c->segments, c->bytes + c->header.e_phoff, c->n_segments * sizeof *c->segments);
    return 0;
}

/* --- the whole -------------------------------------------------------------------------------- */

int tl__cb_read(struct tl_cubin *c, struct tl_error *err)
{
    size_t size;
    int rc = tl__cubin_size(c->bytes, c->n, &size, err);
    if (rc < 0)
        return rc;
    memcpy(&c->header, c->bytes, sizeof c->header);
    if (c->header.e_shnum == 0)
        return tl_error_set(err, -EINVAL, "a cubin has no sections, or too many");
    struct tl_image image;
    tl__cubin_describe(c->bytes, size, &image);
    c->arch = image.arch;
    c->n = size;
    c->symbols_section = c->info_section = c->frames_section = TL__CB_NONE;
    c->frame_relocations_section = c->calls_section = TL__CB_NONE;
    size_t budget = size < SIZE_MAX / NAMES_PER_BYTE ? size * NAMES_PER_BYTE : SIZE_MAX;
    rc = read_sections(c, &budget, err);
    if (rc == 0)
        rc = read_symbols(c, &budget, err);
    if (rc == 0)
        rc = read_segments(c, err);
    return rc;
}
