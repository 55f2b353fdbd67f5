/* The outside of cubins: how long one is and for which GPU it was made.  What is inside is read in
 * image/cubin.c.  Needs no library, so that the software driver can use it inside other people's
 * processes. */
#include "image/internal.h"

#include <elf.h>
#include <errno.h>

/* Until this ABI version the low byte of e_flags is the architecture, from it on the second and
 * third are. */
enum { ABI_WITH_WIDE_ARCH = 8 };

/* --- cubins ----------------------------------------------------------------------------------- */

bool tl__section_is_empty(uint32_t type)
{
    return type == SHT_NULL || type == SHT_NOBITS || type == TL__SHT_CUDA_GLOBAL ||
           type == TL__SHT_CUDA_LOCAL || type == TL__SHT_CUDA_SHARED ||
           type == TL__SHT_CUDA_SHARED_RESERVED;
}

/* Whether `count` things of `each` bytes fit between `at` and `limit`; then `size` is made to cover
 * them. */
static bool cover(size_t *size, uint64_t at, uint64_t count, uint64_t each, size_t limit)
{
    if (at > limit || (each != 0 && count > (limit - at) / each))
        return false;
    size_t end = (size_t)(at + count * each);
    if (end > *size)
        *size = end;
    return true;
}

/* Whether so many bytes are there; those without a length are tried. */
static bool has_room(const void *bytes, size_t n, size_t limit)
{
    return limit == SIZE_MAX ? tl_image_room(bytes, n) == n : n <= limit;
}

/* The file's header, if it is one of a 64-bit CUDA ELF. */
static bool cubin_header(const void *bytes, size_t limit, Elf64_Ehdr *header)
{
    if (!tl__has_magic(bytes, limit, TL__MAGIC_ELF) || !has_room(bytes, sizeof *header, limit))
        return false;
    memcpy(header, bytes, sizeof *header);
    return header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_ident[EI_DATA] == ELFDATA2LSB &&
           header->e_machine == EM_CUDA;
}

/* How many section headers there are: as the ELF specification has it, a count that does not fit
 * its field stands in the first of them. */
static uint64_t section_count(const uint8_t *bytes, const Elf64_Ehdr *header, size_t limit)
{
    Elf64_Shdr first;
    if (header->e_shnum != 0 || header->e_shoff == 0)
        return header->e_shnum;
    if (header->e_shoff > limit - sizeof first ||
        !has_room(bytes, header->e_shoff + sizeof first, limit))
        return UINT64_MAX;
    memcpy(&first, bytes + header->e_shoff, sizeof first);
    return first.sh_size;
}

int tl__cubin_size(const void *bytes, size_t limit, size_t *size, struct tl_error *err)
{
    const uint8_t *p = bytes;
    Elf64_Ehdr header;
    *size = 0;
    if (!cubin_header(bytes, limit, &header))
        return tl_error_set(err, -EINVAL, "this is not a 64-bit CUDA ELF");
    uint64_t sections = section_count(p, &header, limit);
    if (sections != 0 && header.e_shentsize != sizeof(Elf64_Shdr))
        return tl_error_set(err, -EINVAL, "a cubin's section headers have %u bytes each",
                            header.e_shentsize);
    size_t end = sizeof header;
    if (!cover(&end, header.e_phoff, header.e_phnum, header.e_phentsize, limit) ||
        !cover(&end, header.e_shoff, sections, sizeof(Elf64_Shdr), limit) ||
        !has_room(bytes, end, limit))
        return tl_error_set(err, -EINVAL, "a cubin's header tables are cut off");
    for (uint64_t i = 0; i < sections; i++, *size += sizeof(Elf64_Shdr)) {
        Elf64_Shdr section;
        memcpy(&section, p + header.e_shoff + i * sizeof section, sizeof section);
        if (tl__section_is_empty(section.sh_type))
            continue;
        if (!cover(&end, section.sh_offset, section.sh_size, 1, limit))
            return tl_error_set(err, -EINVAL, "section %llu of a cubin is cut off",
                                (unsigned long long)i);
    }
    if (!has_room(bytes, end, limit)) {
        *size = 0;
        return tl_error_set(err, -EINVAL, "a cubin claims %zu bytes, more than there are", end);
    }
    *size = end;
    return 0;
}

void tl__cubin_describe(const void *bytes, size_t size, struct tl_image *image)
{
    Elf64_Ehdr header;
    memcpy(&header, bytes, sizeof header);
    bool wide = header.e_ident[EI_ABIVERSION] >= ABI_WITH_WIDE_ARCH;
    *image = (struct tl_image){
        .kind = TL_IMAGE_CUBIN,
        .packing = TL_IMAGE_PLAIN,
        .arch = wide ? header.e_flags >> 8 & 0xffff : header.e_flags & 0xff,
        .bytes = bytes,
        .stored_bytes = size,
        .full_bytes = size,
    };
}

bool tl_cubin_is_relocatable(const void *bytes, size_t n)
{
    Elf64_Ehdr header;
    return cubin_header(bytes, n, &header) && header.e_type == ET_REL;
}
