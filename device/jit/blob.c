/* A compiled function as bytes that run wherever they stand: its code, and behind it copies of the
 * constants that it refers to.  That is all that functions of forms refer to; one that refers to
 * anything else is refused. */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/jit/form.h"

enum { MAX_CONSTANTS = 256, ALIGN = 64, MAX_SECTION = 4096 };

/* A constant, or a section of constants whose lengths nobody tells. */
struct constant {
    uint32_t section;
    uint64_t at, n;
    size_t place; /* in the blob */
};

struct object {
    const uint8_t *p;
    size_t n;
    const Elf64_Shdr *sections;
    uint32_t n_sections;
    const Elf64_Sym *symbols;
    uint32_t n_symbols;
    const char *names;
    size_t names_n;
    struct tl_buf out;
    struct constant constants[MAX_CONSTANTS];
    uint32_t n_constants;
};

static bool is_within(const struct object *o, uint64_t at, uint64_t n)
{
    return at <= o->n && n <= o->n - at;
}

static int read_object(struct object *o)
{
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)o->p;
    if (o->n < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_type != ET_REL ||
        h->e_machine != EM_X86_64 || h->e_shoff % 8 != 0 ||
        !is_within(o, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr)))
        return -EINVAL;
    o->sections = (const Elf64_Shdr *)(o->p + h->e_shoff);
    o->n_sections = h->e_shnum;
    for (uint32_t i = 1; i < o->n_sections; i++) {
        const Elf64_Shdr *s = &o->sections[i];
        if (s->sh_type != SHT_NOBITS && !is_within(o, s->sh_offset, s->sh_size))
            return -EINVAL;
    }
    for (uint32_t i = 1; i < o->n_sections; i++) {
        const Elf64_Shdr *s = &o->sections[i];
        if (s->sh_type != SHT_SYMTAB || s->sh_link >= o->n_sections || s->sh_offset % 8 != 0)
            continue;
        o->symbols = (const Elf64_Sym *)(o->p + s->sh_offset);
        o->n_symbols = (uint32_t)(s->sh_size / sizeof(Elf64_Sym));
        o->names = (const char *)o->p + o->sections[s->sh_link].sh_offset;
        o->names_n = o->sections[s->sh_link].sh_size;
    }
    return o->symbols != NULL && o->names_n > 0 && o->names[o->names_n - 1] == '\0' ? 0 : -EINVAL;
}

static const Elf64_Sym *find_function(const struct object *o, const char *name)
{
    for (uint32_t i = 1; i < o->n_symbols; i++) {
        const Elf64_Sym *s = &o->symbols[i];
        if (ELF64_ST_TYPE(s->st_info) == STT_FUNC && s->st_name < o->names_n &&
            strcmp(o->names + s->st_name, name) == 0 && s->st_shndx < o->n_sections &&
            s->st_value <= o->sections[s->st_shndx].sh_size &&
            s->st_size <= o->sections[s->st_shndx].sh_size - s->st_value)
            return s;
    }
    return NULL;
}

static void pad(struct tl_buf *b)
{
    while (b->n % ALIGN != 0 && !b->failed)
        tl_buf_putc(b, 0);
}

/* Whether the section is constants that refer to nothing. */
static bool is_constant(const struct object *o, uint32_t section)
{
    const Elf64_Shdr *s = &o->sections[section];
    if (s->sh_type != SHT_PROGBITS ||
        (s->sh_flags & (SHF_ALLOC | SHF_WRITE | SHF_EXECINSTR | SHF_TLS)) != SHF_ALLOC)
        return false;
    for (uint32_t i = 1; i < o->n_sections; i++) {
        if (o->sections[i].sh_type == SHT_RELA && o->sections[i].sh_info == section)
            return false;
    }
    return true;
}

/* Where the symbol's constant stands in the blob, copied there if it is new.  Sections of constants
 * of one length have a symbol for each, others are copied whole. */
static int place_constant(struct object *o, const Elf64_Sym *s, uint64_t *place)
{
    uint32_t section = s->st_shndx;
    if (section == SHN_UNDEF || section >= o->n_sections || !is_constant(o, section))
        return -ENOTSUP;
    const Elf64_Shdr *h = &o->sections[section];
    struct constant c = {.section = section, .n = h->sh_size};
    if ((h->sh_flags & SHF_MERGE) != 0 && h->sh_entsize != 0 &&
        ELF64_ST_TYPE(s->st_info) != STT_SECTION && s->st_value % h->sh_entsize == 0) {
        c.at = s->st_value;
        c.n = h->sh_entsize;
    }
    if (c.n > MAX_SECTION || c.at > h->sh_size || c.n > h->sh_size - c.at ||
        s->st_value > h->sh_size)
        return -ENOTSUP;
    uint32_t i = 0;
    while (i < o->n_constants && (o->constants[i].section != section ||
                                  o->constants[i].at != c.at || o->constants[i].n != c.n))
        i++;
    if (i == o->n_constants) {
        if (i == MAX_CONSTANTS)
            return -ENOTSUP;
        pad(&o->out);
        c.place = o->out.n;
        tl_buf_add(&o->out, (const char *)o->p + h->sh_offset + c.at, c.n);
        o->constants[o->n_constants++] = c;
    }
    *place = o->constants[i].place + (s->st_value - c.at);
    return 0;
}

static int relocate(struct object *o, const Elf64_Sym *fn, const Elf64_Rela *r)
{
    uint32_t symbol = (uint32_t)ELF64_R_SYM(r->r_info);
    uint64_t at = r->r_offset - fn->st_value, to;
    if (symbol >= o->n_symbols || at + 4 > fn->st_size)
        return -EINVAL;
    if (ELF64_R_TYPE(r->r_info) != R_X86_64_PC32)
        return -ENOTSUP;
    int rc = place_constant(o, &o->symbols[symbol], &to);
    if (rc < 0)
        return rc;
    if (o->out.failed)
        return -ENOMEM;
    uint32_t value = (uint32_t)(to + (uint64_t)r->r_addend - at);
    memcpy(o->out.p + at, &value, sizeof value);
    return 0;
}

int tl_form_blob(const void *object, size_t n, const char *name, void **code, size_t *code_n)
{
    struct object o = {.p = object, .n = n};
    int rc = read_object(&o);
    const Elf64_Sym *fn = rc == 0 ? find_function(&o, name) : NULL;
    if (fn == NULL)
        return rc < 0 ? rc : -ENOENT;
    tl_buf_add(&o.out, (const char *)o.p + o.sections[fn->st_shndx].sh_offset + fn->st_value,
               fn->st_size);
    for (uint32_t i = 1; i < o.n_sections && rc == 0; i++) {
        const Elf64_Shdr *s = &o.sections[i];
        const Elf64_Rela *r = (const Elf64_Rela *)(o.p + s->sh_offset);
        if (s->sh_type != SHT_RELA || s->sh_info != fn->st_shndx || s->sh_offset % 8 != 0)
            continue;
        for (uint64_t k = 0; k < s->sh_size / sizeof *r && rc == 0; k++) {
            if (r[k].r_offset >= fn->st_value && r[k].r_offset < fn->st_value + fn->st_size)
                rc = relocate(&o, fn, &r[k]);
        }
    }
    if (rc == 0 && o.out.failed)
        rc = -ENOMEM;
    if (rc < 0) {
        tl_buf_finish(&o.out);
        return rc;
    }
    *code_n = o.out.n;
    *code = tl_buf_take(&o.out);
    return *code != NULL ? 0 : -ENOMEM;
}
