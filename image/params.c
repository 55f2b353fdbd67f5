/* What is asked of a cubin without libelf, in what is loaded into jobs: the parameters of one
 * kernel, and the virtual architecture.
 *
 * `.nv.info.<kernel>` has an attribute per parameter, and one with the size of all (image/info.h).
 * They are not documented, so they are believed only as far as they agree:
 * each number once, none overlaps the next, and the last one ends where all do. */
#include "image/info.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>

static const char prefix[] = ".nv.info.";

struct file {
    const uint8_t *bytes;
    size_t n;
};

/* A part of the file, or NULL if it is not all inside. */
static const uint8_t *part(const struct file *f, uint64_t offset, uint64_t bytes)
{
    return offset <= f->n && bytes <= f->n - offset ? f->bytes + offset : NULL;
}

/* The section's header, copied: it need not be aligned. */
static bool section_at(const struct file *f, const Elf64_Ehdr *h, uint32_t i, Elf64_Shdr *out)
{
    const uint8_t *p = h->e_shoff <= f->n
                           ? part(f, h->e_shoff + (uint64_t)i * sizeof *out, sizeof *out)
                           : NULL;
    if (p != NULL)
        memcpy(out, p, sizeof *out);
    return p != NULL;
}

/* Whether a name in the string table is that of the kernel's section. */
static bool is_named(const struct file *f, const Elf64_Shdr *names, uint32_t at, const char *kernel)
{
    size_t n = strlen(kernel) + 1;
    if (at > names->sh_size || sizeof prefix - 1 + n > names->sh_size - at)
        return false;
    const uint8_t *p = part(f, names->sh_offset, names->sh_size);
    return p != NULL && memcmp(p + at, prefix, sizeof prefix - 1) == 0 &&
           memcmp(p + at + sizeof prefix - 1, kernel, n) == 0;
}

/* What the attributes say: sizes are 0 where a number was not seen. */
static int read_attributes(const uint8_t *p, size_t n, struct tl_cubin_param *out, uint32_t cap,
                           uint32_t *count, uint32_t *total, struct tl_error *err)
{
    *count = *total = 0;
    memset(out, 0, cap * sizeof *out);
    for (struct tl__info a; tl__info_next(&p, &n, &a);) {
        if (a.id == TL__INFO_CBANK_PARAM_SIZE)
            *total = a.number;
        if (a.id == TL__INFO_KPARAM_INFO_V2 ||
            (a.id == TL__INFO_KPARAM_INFO && !tl__info_is_sized(&a, 12)))
            return tl_error_set(err, -ENOTSUP, "parameters in a form that is not known");
        if (a.id == TL__INFO_KPARAM_INFO) {
            uint32_t which = tl__u16(a.value + 4), size = tl__u32(a.value + 8) >> 18;
            if (which >= cap || size == 0 || out[which].size != 0)
                return tl_error_set(err, -ENOTSUP, "parameter %u twice, empty or too many", which);
            out[which] = (struct tl_cubin_param){tl__u16(a.value + 6), size};
            ++*count;
        }
    }
    return n < 4 ? 0 : tl_error_set(err, -EINVAL, "an attribute reaches over the end");
}

static int check(const struct tl_cubin_param *params, uint32_t n, uint32_t total,
                 struct tl_error *err)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (params[i].size == 0 || params[i].offset < end)
            return tl_error_set(err, -ENOTSUP, "parameter %u is missing or overlaps another", i);
        end = params[i].offset + params[i].size;
    }
    return end == total
               ? 0
               : tl_error_set(err, -ENOTSUP, "parameters end at %u of %u bytes", end, total);
}

/* Opens the table of sections: 0 or -EINVAL. */
static int open_file(const struct file *f, Elf64_Ehdr *h, Elf64_Shdr *names, struct tl_error *err)
{
    if (part(f, 0, sizeof *h) == NULL || !tl__has_magic(f->bytes, f->n, TL__MAGIC_ELF))
        return tl_error_set(err, -EINVAL, "no ELF file");
    memcpy(h, f->bytes, sizeof *h);
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_shentsize != sizeof *names ||
        h->e_shstrndx >= h->e_shnum || !section_at(f, h, h->e_shstrndx, names))
        return tl_error_set(err, -EINVAL, "its table of sections is broken");
    return 0;
}

/* Until ABI version 7 it is the third byte of e_flags.  From 8 on it stands in a note, `.nv.cuinfo`
 * of "NVIDIA Corp": two bytes of a version, then it; so nvcc 13.0 writes it. */
uint32_t tl_cubin_virtual_arch(const void *bytes, size_t n)
{
    enum { WIDE_ABI = 8, NOTE_HEAD = 12, OWNER = 12, CUINFO = 1000 };
    struct file f = {bytes, n};
    Elf64_Ehdr h;
    Elf64_Shdr names, s;
    if (open_file(&f, &h, &names, NULL) < 0)
        return 0;
    if (h.e_ident[EI_ABIVERSION] < WIDE_ABI)
        return h.e_flags >> 16 & 0xff;
    for (uint32_t i = 0; i < h.e_shnum && section_at(&f, &h, i, &s); i++) {
        const uint8_t *p = s.sh_type == SHT_NOTE && s.sh_size >= NOTE_HEAD + OWNER + 4
                               ? part(&f, s.sh_offset, s.sh_size)
                               : NULL;
        if (p != NULL && tl__u32(p) == OWNER && tl__u32(p + 4) >= 4 && tl__u32(p + 8) == CUINFO &&
            memcmp(p + NOTE_HEAD, "NVIDIA Corp", OWNER) == 0)
            return tl__u16(p + NOTE_HEAD + OWNER + 2);
    }
    return 0;
}

int tl_cubin_params(const void *bytes, size_t n, const char *kernel, struct tl_cubin_param *out,
                    uint32_t cap, uint32_t *count, struct tl_error *err)
{
    struct file f = {bytes, n};
    Elf64_Ehdr h;
    Elf64_Shdr names, s;
    uint32_t total;
    int rc = open_file(&f, &h, &names, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < h.e_shnum; i++) {
        if (!section_at(&f, &h, i, &s))
            return tl_error_set(err, -EINVAL, "section %u is not inside the file", i);
        if (s.sh_type != TL__SHT_CUDA_INFO || !is_named(&f, &names, s.sh_name, kernel))
            continue;
        const uint8_t *info = part(&f, s.sh_offset, s.sh_size);
        if (info == NULL)
            return tl_error_set(err, -EINVAL, "section %u is not inside the file", i);
        rc = read_attributes(info, s.sh_size, out, cap, count, &total, err);
        return rc < 0 ? rc : check(out, *count, total, err);
    }
    return tl_error_set(err, -ENOENT, "no kernel of that name");
}
