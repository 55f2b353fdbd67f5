/* The inside of a cubin: its kernels and what they need.
 *
 * A kernel is a function symbol with the entry bit.  Its code is in a section of its own, and what
 * belongs to it in sections whose sh_info names that section: `.nv.info.<kernel>` (parameters) and
 * `.nv.shared.<kernel>` (static shared memory).  Register counts stand in the common `.nv.info`, by
 * symbol (image/info.h). */
#include "image/info.h"

#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>

/* What is known of a section or symbol, by its number. */
struct section_facts {
    uint32_t param_bytes, n_params, shared_bytes;
};

struct cubin {
    Elf *elf;
    size_t n_sections;
    struct section_facts *sections;
    Elf_Data *symbols;
    size_t symbol_names; /* number of the string table */
    size_t n_symbols;
    uint32_t *registers; /* per symbol */
};

/* --- .nv.info --------------------------------------------------------------------------------- */

/* `.nv.info.<kernel>` into what is known of the kernel's section. */
static void read_kernel_info(const Elf_Data *info, struct section_facts *facts)
{
    const uint8_t *p = info->d_buf;
    size_t n = info->d_size;
    for (struct tl__info a; tl__info_next(&p, &n, &a);) {
        if (a.id == TL__INFO_CBANK_PARAM_SIZE)
            facts->param_bytes = a.number;
        else if (a.id == TL__INFO_PARAM_CBANK && tl__info_is_sized(&a, 8) &&
                 facts->param_bytes == 0)
            facts->param_bytes = tl__u16(a.value + 6);
        else if (a.id == TL__INFO_KPARAM_INFO || a.id == TL__INFO_KPARAM_INFO_V2)
            facts->n_params++;
    }
}

/* The common `.nv.info` into the symbols' register counts. */
static void read_common_info(struct cubin *c, const Elf_Data *info)
{
    const uint8_t *p = info->d_buf;
    size_t n = info->d_size;
    for (struct tl__info a; tl__info_next(&p, &n, &a);) {
        if (a.id == TL__INFO_REGCOUNT && tl__info_is_sized(&a, 8) &&
            tl__u32(a.value) < c->n_symbols)
            c->registers[tl__u32(a.value)] = tl__u32(a.value + 4);
    }
}

/* --- sections --------------------------------------------------------------------------------- */

/* A section's bytes, or NULL; libelf has checked that they are within the file. */
static const Elf_Data *bytes_of(Elf_Scn *s)
{
    const Elf_Data *d = elf_rawdata(s, NULL);
    return d != NULL && d->d_buf != NULL ? d : NULL;
}

/* Finds the symbol table and takes room for what will be known of symbols and sections. */
static int prepare(struct cubin *c, struct tl_error *err)
{
    if (elf_getshdrnum(c->elf, &c->n_sections) != 0)
        return tl_error_set(err, -EINVAL, "a cubin has no sections");
    for (Elf_Scn *s = elf_nextscn(c->elf, NULL); s != NULL && c->symbols == NULL;
         s = elf_nextscn(c->elf, s)) {
        GElf_Shdr header;
        if (gelf_getshdr(s, &header) == NULL || header.sh_type != SHT_SYMTAB)
            continue;
        c->symbols = elf_getdata(s, NULL);
        c->symbol_names = header.sh_link;
    }
    if (c->symbols == NULL)
        return tl_error_set(err, -EINVAL, "a cubin has no symbol table");
    c->n_symbols = c->symbols->d_size / sizeof(Elf64_Sym);
    c->sections = calloc(c->n_sections + 1, sizeof *c->sections);
    c->registers = calloc(c->n_symbols + 1, sizeof *c->registers);
    if (c->sections == NULL || c->registers == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the tables of a cubin");
    return 0;
}

/* Collects what the sections tell.  A section that cannot be read tells nothing: the kernels are
 * still worth listing. */
static void read_sections(struct cubin *c, size_t names)
{
    for (Elf_Scn *s = elf_nextscn(c->elf, NULL); s != NULL; s = elf_nextscn(c->elf, s)) {
        GElf_Shdr header;
        if (gelf_getshdr(s, &header) == NULL)
            continue;
        struct section_facts *owner = header.sh_info < c->n_sections ? &c->sections[header.sh_info]
                                                                     : NULL;
        if (header.sh_type == TL__SHT_CUDA_INFO) {
            const Elf_Data *info = bytes_of(s);
            if (info != NULL && header.sh_info == 0)
                read_common_info(c, info);
            else if (info != NULL && owner != NULL)
                read_kernel_info(info, owner);
        } else if (tl__section_is_empty(header.sh_type) && header.sh_info != 0 && owner != NULL) {
            const char *name = elf_strptr(c->elf, names, header.sh_name);
            if (name != NULL && strncmp(name, ".nv.shared.", 11) == 0)
                owner->shared_bytes = (uint32_t)header.sh_size;
        }
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

static int visit_kernels(const struct cubin *c, tl_cubin_visitor visit, void *data)
{
    for (size_t i = 0; i < c->n_symbols; i++) {
        GElf_Sym symbol;
        if (gelf_getsym(c->symbols, (int)i, &symbol) == NULL)
            break;
        if (GELF_ST_TYPE(symbol.st_info) != STT_FUNC || !(symbol.st_other & TL__STO_CUDA_ENTRY) ||
            symbol.st_shndx == SHN_UNDEF)
            continue;
        const char *name = elf_strptr(c->elf, c->symbol_names, symbol.st_name);
        if (name == NULL || name[0] == 0)
            continue;
        struct tl_cubin_kernel kernel = {.name = tl_str_of(name), .registers = c->registers[i]};
        if (symbol.st_shndx < c->n_sections) {
            const struct section_facts *facts = &c->sections[symbol.st_shndx];
            kernel.param_bytes = facts->param_bytes;
            kernel.n_params = facts->n_params;
            kernel.shared_bytes = facts->shared_bytes;
        }
        int rc = visit(data, &kernel);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int tl_cubin_walk(const void *bytes, size_t n, tl_cubin_visitor visit, void *data,
                  struct tl_error *err)
{
    struct cubin c = {0};
    size_t size, names;
    int rc = tl__cubin_size(bytes, n, &size, err);
    if (rc < 0)
        return rc;
    if (elf_version(EV_CURRENT) != EV_NONE)
        c.elf = elf_memory((char *)bytes, size); /* which it only reads */
    if (c.elf == NULL || elf_getshdrstrndx(c.elf, &names) != 0) {
        rc = tl_error_set(err, -EINVAL, "libelf cannot read a cubin: %s", elf_errmsg(-1));
        goto out;
    }
    rc = prepare(&c, err);
    if (rc < 0)
        goto out;
    read_sections(&c, names);
    rc = visit_kernels(&c, visit, data);
out:
    free(c.registers);
    free(c.sections);
    elf_end(c.elf);
    return rc;
}
