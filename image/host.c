/* Where a host's ELF file keeps its fatbins. */
#include "image/internal.h"

#include <gelf.h>
#include <libelf.h>

/* nvcc and clang put fatbins that are registered at start into the first, those that await device
 * linking into the second. */
static bool is_fatbin_section(const char *name)
{
    return strcmp(name, ".nv_fatbin") == 0 || strcmp(name, "__nv_relfatbin") == 0;
}

size_t tl__elf_fatbin_sections(const void *bytes, size_t n, struct tl__range *ranges, size_t max)
{
    if (!tl__has_magic(bytes, n, TL__MAGIC_ELF) || elf_version(EV_CURRENT) == EV_NONE)
        return 0;
    Elf *elf = elf_memory((char *)bytes, n); /* which it only reads */
    size_t names, count = 0;
    if (elf == NULL || elf_getshdrstrndx(elf, &names) != 0)
        goto out;
    for (Elf_Scn *s = elf_nextscn(elf, NULL); s != NULL && count < max; s = elf_nextscn(elf, s)) {
        GElf_Shdr header;
        if (gelf_getshdr(s, &header) == NULL || header.sh_offset > n ||
            header.sh_size > n - header.sh_offset)
            continue;
        const char *name = elf_strptr(elf, names, header.sh_name);
        if (name != NULL && is_fatbin_section(name))
            ranges[count++] = (struct tl__range){header.sh_offset,
                                                 header.sh_offset + header.sh_size};
    }
out:
    elf_end(elf);
    return count;
}
