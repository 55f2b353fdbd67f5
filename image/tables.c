/* Reads linked cubins; see the header. */
#include "tally/tables.h"
#include "image/info.h"

#include <errno.h>
#include <string.h>

/* A part of the file, or NULL if it is not all inside or not aligned. */
static const void *part(const struct tl_tables *e, uint64_t offset, uint64_t bytes, uint32_t align)
{
    if (offset > e->n || bytes > e->n - offset ||
        ((uintptr_t)(e->bytes + offset) & (align - 1)) != 0)
        return NULL;
    return e->bytes + offset;
}

static const char *text_at(const struct tl_tables *e, uint32_t section, uint32_t offset)
{
    if (section >= e->n_sections || e->sections[section].sh_type != SHT_STRTAB)
        return NULL;
    const Elf64_Shdr *s = &e->sections[section];
    const char *p = part(e, s->sh_offset, s->sh_size, 1);
    return p != NULL && offset < s->sh_size && memchr(p + offset, 0, s->sh_size - offset) != NULL
               ? p + offset
               : NULL;
}

int tl_tables_open(struct tl_tables *e, const void *bytes, size_t n, struct tl_error *err)
{
    *e = (struct tl_tables){.bytes = bytes, .n = n};
    const Elf64_Ehdr *h = part(e, 0, sizeof *h, 8);
    if (h == NULL || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64)
        return tl_error_set(err, -EINVAL, "this is no 64-bit cubin");
    e->n_sections = h->e_shnum;
    e->names = h->e_shstrndx;
    e->sections = part(e, h->e_shoff, (uint64_t)e->n_sections * sizeof(Elf64_Shdr), 8);
    if (e->sections == NULL || h->e_shentsize != sizeof(Elf64_Shdr))
        return tl_error_set(err, -EINVAL, "a cubin's table of sections is not inside it");
    for (uint32_t i = 0; i < e->n_sections && e->symbols == NULL; i++) {
        if (e->sections[i].sh_type != SHT_SYMTAB)
            continue;
        e->symtab = i;
        e->n_symbols = (uint32_t)(e->sections[i].sh_size / sizeof(Elf64_Sym));
        e->symbols = part(e, e->sections[i].sh_offset, (uint64_t)e->n_symbols * sizeof(Elf64_Sym),
                          8);
    }
    return e->symbols != NULL ? 0 : tl_error_set(err, -EINVAL, "a cubin has no symbol table");
}

const char *tl_tables_symbol_name(const struct tl_tables *e, uint32_t symbol)
{
    const char *name = text_at(e, e->sections[e->symtab].sh_link, e->symbols[symbol].st_name);
    return name != NULL && name[0] != '\0' ? name : NULL;
}

const char *tl_tables_section_name(const struct tl_tables *e, uint32_t section)
{
    return text_at(e, e->names, e->sections[section].sh_name);
}

bool tl_tables_is_kernel(const struct tl_tables *e, uint32_t symbol)
{
    const Elf64_Sym *s = &e->symbols[symbol];
    return ELF64_ST_TYPE(s->st_info) == STT_FUNC && (s->st_other & TL__STO_CUDA_ENTRY) != 0 &&
           s->st_shndx != SHN_UNDEF && s->st_shndx < e->n_sections &&
           tl_tables_symbol_name(e, symbol) != NULL;
}

bool tl_tables_is_sane(const struct tl_tables *e, uint32_t n_kernels)
{
    enum { MOST_LOOKS = 1 << 28 };
    return (uint64_t)n_kernels * ((uint64_t)e->n_symbols + e->n_sections) <= MOST_LOOKS;
}

uint32_t tl_tables_find(const struct tl_tables *e, struct tl_str name)
{
    uint32_t i = 0;
    while (i < e->n_symbols &&
           !(tl_tables_is_kernel(e, i) && tl_str_is(name, tl_tables_symbol_name(e, i))))
        i++;
    return i;
}

const uint8_t *tl_tables_code(const struct tl_tables *e, uint32_t symbol, uint64_t *n)
{
    const Elf64_Sym *s = &e->symbols[symbol];
    const Elf64_Shdr *in = &e->sections[s->st_shndx];
    const uint8_t *p = in->sh_type == SHT_PROGBITS ? part(e, in->sh_offset, in->sh_size, 1) : NULL;
    if (p == NULL || s->st_value > in->sh_size || s->st_size > in->sh_size - s->st_value)
        return NULL;
    *n = s->st_size;
    return p + s->st_value;
}

bool tl_tables_is_loaded(const struct tl_tables *e, uint32_t section)
{
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)e->bytes;
    const Elf64_Shdr *s = &e->sections[section];
    const Elf64_Phdr *p = part(e, h->e_phoff, (uint64_t)h->e_phnum * sizeof *p, 8);
    for (uint32_t i = 0; p != NULL && i < h->e_phnum; i++)
        if (p[i].p_type == PT_LOAD && s->sh_offset >= p[i].p_offset &&
            s->sh_offset - p[i].p_offset <= p[i].p_filesz &&
            s->sh_size <= p[i].p_filesz - (s->sh_offset - p[i].p_offset))
            return true;
    return false;
}

bool tl_tables_has_second_form(const struct tl_tables *e)
{
    for (uint32_t i = 0; i < e->n_sections; i++) {
        const char *name = tl_tables_section_name(e, i);
        if (name != NULL &&
            (strncmp(name, ".nv.merc", 8) == 0 || strncmp(name, ".nv.capmerc", 11) == 0))
            return true;
    }
    return false;
}

/* --- what is said of a kernel ----------------------------------------------------------------- */

static void add_param(struct tl_tables_facts *f, uint32_t number, uint32_t offset, uint32_t bytes)
{
    if (number >= TL_TABLES_PARAMS || f->params[number].bytes != 0) {
        f->has_more_params = true;
        return;
    }
    f->params[number].offset = offset;
    f->params[number].bytes = bytes;
    f->n_params = number >= f->n_params ? number + 1 : f->n_params;
}

static void take(struct tl_tables_facts *f, const struct tl__info *a, uint32_t symbol)
{
    const uint8_t *v = a->value;
    if (a->id == TL__INFO_REGCOUNT && tl__info_is_sized(a, 8) && tl__u32(v) == symbol)
        f->registers = tl__u32(v + 4);
    else if (a->id == TL__INFO_MAX_THREADS && tl__info_is_sized(a, 12))
        f->max_threads = tl__u32(v) * tl__u32(v + 4) * tl__u32(v + 8);
    else if (a->id == TL__INFO_KPARAM_INFO && tl__info_is_sized(a, 12))
        add_param(f, tl__u16(v + 4), tl__u16(v + 6), tl__u32(v + 8) >> 18);
    else if (a->id == TL__INFO_KPARAM_INFO_V2 && tl__info_is_sized(a, 12))
        add_param(f, tl__u16(v + 4), tl__u16(v + 6), tl__u16(v + 8));
    else if (a->id == TL__INFO_CTAIDZ_USED)
        f->uses_ctaid_z = true;
    else if (a->id == TL__INFO_CBANK_PARAM_SIZE)
        f->param_bytes = a->number;
    else if (a->id == TL__INFO_NUM_BARRIERS)
        f->barriers = a->number;
    else if (a->id == TL__INFO_PARAM_CBANK && tl__info_is_sized(a, 8)) {
        f->bank_base = tl__u16(v + 4);
        f->bank_bytes = tl__u16(v + 6);
    }
}

static void read_info(const uint8_t *p, size_t n, uint32_t symbol, struct tl_tables_facts *f)
{
    for (struct tl__info a; tl__info_next(&p, &n, &a);)
        take(f, &a, symbol);
}

void tl_tables_read(const struct tl_tables *e, uint32_t symbol, struct tl_tables_facts *f)
{
    uint32_t code = e->symbols[symbol].st_shndx;
    memset(f, 0, sizeof *f);
    f->section_registers = e->sections[code].sh_info >> 24;
    for (uint32_t i = 0; i < e->n_sections; i++) {
        const Elf64_Shdr *s = &e->sections[i];
        if (s->sh_type == TL__SHT_CUDA_INFO && (s->sh_info == 0 || s->sh_info == code)) {
            const uint8_t *p = part(e, s->sh_offset, s->sh_size, 1);
            if (p != NULL)
                read_info(p, s->sh_size, symbol, f);
        } else if (s->sh_info == code) {
            const char *name = tl_tables_section_name(e, i);
            if (name != NULL && strncmp(name, ".nv.shared.", 11) == 0)
                f->shared_bytes = (uint32_t)s->sh_size;
            else if (name != NULL && strncmp(name, ".nv.constant0.", 14) == 0)
                f->bank_size = s->sh_size;
        }
    }
}
