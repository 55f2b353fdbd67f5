/* Makes fatbins and ELF files in memory, right or wrong, for the tests of the image reader. */
#ifndef TEST_IMAGE_BUILD_H
#define TEST_IMAGE_BUILD_H

#include "tally/image.h"

/* --- fatbins --- */

/* An entry.  What is left 0 is filled in as nvcc would. */
struct build_entry {
    uint16_t kind; /* as in the file: 1 PTX, 2 cubin, 8 LTO-IR */
    uint32_t arch;
    uint64_t flags;
    uint32_t header_bytes; /* 64 or what options and identifier need, if 0 */
    const void *payload;
    size_t payload_bytes;
    uint64_t unpacked_bytes; /* not 0: the payload is packed */
    const char *options, *identifier;
};

enum { BUILD_PTX = 1, BUILD_CUBIN = 2, BUILD_LTO = 8, BUILD_LZ4 = 0x2011, BUILD_ZSTD = 0x8011 };

/* Adds a container with these entries to `out`; entries that are no multiple of 8 bytes long are
 * padded. */
void build_container(struct tl_buf *out, const struct build_entry *entries, size_t n);

/* Overwrites a number in what was built. */
void patch16(struct tl_buf *b, size_t at, uint16_t v);
void patch32(struct tl_buf *b, size_t at, uint32_t v);
void patch64(struct tl_buf *b, size_t at, uint64_t v);

/* --- ELF --- */

struct build_section {
    const char *name;
    uint32_t type, info, link, entry_bytes;
    const void *bytes; /* NULL: none in the file */
    size_t n;
};

struct build_elf {
    uint16_t machine, type;
    uint8_t abi;
    uint32_t flags;
};

/* Adds a 64-bit ELF to `out`.  Section 1 is `.shstrtab`, so `sections[0]` gets number 2. */
void build_elf(struct tl_buf *out, const struct build_elf *elf,
               const struct build_section *sections, size_t n);

/* Adds a cubin for sm_90 with the kernels "scale" (12 bytes of 2 parameters, 10 registers, 1040 of
 * shared memory) and "fill" (8 bytes of 1 parameter, 24 registers), and a function "helper" that is
 * no kernel. */
void build_cubin(struct tl_buf *out);

/* --- memory --- */

/* A copy whose last byte is followed by a page that cannot be read: reading over the end is a
 * crash. */
void *guarded_copy(const void *bytes, size_t n);
void guarded_free(void *copy, size_t n);

#endif
