/* What the files of the image reader share.  Formats are described where they are read. */
#ifndef TALLY_IMAGE_INTERNAL_H
#define TALLY_IMAGE_INTERNAL_H

#include "tally/image.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as they stand");

/* First bytes in memory order, so that they can be compared and searched for. */
#define TL__MAGIC_FATBIN "\x50\xed\x55\xba"
#define TL__MAGIC_WRAPPER "\xb1\x43\x62\x46"
#define TL__MAGIC_ELF "\177ELF"
enum { TL__MAGIC_BYTES = 4 };

/* The same of a text: what is in front of its NUL, or of the end of what can be read. */
size_t tl__text_room(const void *text);

/* Whether `bytes` begin with a magic.  Reads no byte behind the first that differs, because `n` may
 * be SIZE_MAX and the bytes a short text. */
static inline bool tl__has_magic(const void *bytes, size_t n, const char *magic)
{
    const char *p = bytes;
    if (n == SIZE_MAX)
        n = tl_image_room(bytes, TL__MAGIC_BYTES);
    for (size_t i = 0; i < TL__MAGIC_BYTES; i++)
        if (i >= n || p[i] != magic[i])
            return false;
    return true;
}

/* Numbers at any alignment.  NVIDIA's are little-endian, as is every host of CUDA. */
static inline uint16_t tl__u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t tl__u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t tl__u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* --- image/fatbin.c --- */

/* Checks a whole container, down to the end of its last entry: no byte at or behind `limit` is
 * read.  0 and its size, or -EINVAL with a message; `size` is then how many bytes were gone through
 * in vain. */
int tl__fatbin_check(const void *container, size_t limit, size_t *size, struct tl_error *err);

/* Visits the images of a container that passed the check.  `where` gives what is not written in it:
 * offset and number of the container, and how it was found. */
int tl__fatbin_visit(const void *container, const struct tl_image *where, tl_image_visitor visit,
                     void *data);

/* --- image/memory.c --- */

/* What nvcc's start-up code registers: a pointer to the container.  The last word is a file's name,
 * or in version 2 the list of what was linked (image/parts.c). */
struct tl__wrapper {
    uint32_t magic, version;
    uint64_t container;
    uint64_t name_or_parts;
};
_Static_assert(sizeof(struct tl__wrapper) == 24, "as laid out by nvcc");

/* 0, or -EINVAL with a message if it is cut off.  `bytes` have its magic. */
int tl__wrapper_read(const void *bytes, size_t limit, struct tl__wrapper *out,
                     struct tl_error *err);

/* How many bytes may be read from `to` on, if `limit` may be from `from` on. */
size_t tl__limit_from(const void *from, size_t limit, const void *to);

/* --- image/elf.c --- */

/* NVIDIA's section types.  Relocatable cubins use them for data too, where linked ones have
 * SHT_PROGBITS and SHT_NOBITS. */
enum tl__cuda_section {
    TL__SHT_CUDA_INFO = 0x70000000,
    TL__SHT_CUDA_GLOBAL = 0x70000007,
    TL__SHT_CUDA_LOCAL = 0x70000009,
    TL__SHT_CUDA_SHARED = 0x7000000a,
    TL__SHT_CUDA_SHARED_RESERVED = 0x70000015,
};

/* NVIDIA's bit in st_other: the function is a kernel. */
enum { TL__STO_CUDA_ENTRY = 0x10 };

/* Whether sections of this type only take room when loaded. */
bool tl__section_is_empty(uint32_t type);

/* The size of the 64-bit CUDA ELF that begins here, according to its headers; no byte at or behind
 * `limit` is read. 0, or -EINVAL with a message; `size` is then how many bytes were gone through in
 * vain. */
int tl__cubin_size(const void *bytes, size_t limit, size_t *size, struct tl_error *err);

/* Describes a cubin that stands alone.  `bytes` passed tl__cubin_size. */
void tl__cubin_describe(const void *bytes, size_t size, struct tl_image *image);

/* --- image/host.c --- */

/* Where a host ELF keeps its fatbins. */
struct tl__range {
    size_t begin, end;
};

/* Writes down at most `max` sections for fatbins and returns how many; none if this is no ELF, or a
 * broken one. */
size_t tl__elf_fatbin_sections(const void *bytes, size_t n, struct tl__range *ranges, size_t max);

/* --- image/scan.c --- */

/* tl_image_walk with the sections found. */
int tl__image_scan(const void *bytes, size_t n, const struct tl__range *sections, size_t n_sections,
                   tl_image_visitor visit, tl_image_complaint complain, void *data);

/* --- image/text.c --- */

/* Whether this is PTX text; if so, describes it.  `n` may be SIZE_MAX if the text is terminated. */
bool tl__text_describe(const void *bytes, size_t n, struct tl_image *image);

#endif
