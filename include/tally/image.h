/* What is inside a file that carries GPU code: fatbins, cubins and PTX, wherever they hide.
 *
 * The reader works on bytes in memory and trusts none of them: sizes and offsets from outside are checked before they are
 * used, and a decompressed size is bounded before it is allocated.  */
#ifndef TALLY_IMAGE_H
#define TALLY_IMAGE_H

#include "tally/base.h"

enum tl_image_kind {
    TL_IMAGE_PTX,   /* PTX text */
    TL_IMAGE_CUBIN, /* an ELF with SASS */
    TL_IMAGE_LTO,   /* LTO-IR: neither; needs nvJitLink */
    TL_IMAGE_OTHER,
};

enum tl_image_packing {
    TL_IMAGE_PLAIN,
    TL_IMAGE_LZ4,
    TL_IMAGE_ZSTD,
    TL_IMAGE_PACKED_UNKNOWN, /* flagged as compressed in a way that this reader does not know */
};

/* One image of one container.  Offsets and sizes are checked against the bytes that were given. */
struct tl_image {
    enum tl_image_kind kind;
    enum tl_image_packing packing;
    uint32_t arch;             /* 90 for sm_90 */
    bool is_arch_specific;     /* sm_90a, as far as the entry's flags tell */
    bool is_family_specific;   /* sm_100f */
    bool is_relocatable;       /* cubin: ET_REL */
    uint16_t version_major, version_minor; /* of the entry, as written */
    uint64_t flags;            /* the entry's flag word, as written */
    size_t container_offset;   /* where the container begins; 0 for a bare PTX or cubin */
    uint32_t container_index;  /* number of the container in the file, from 0 */
    uint32_t index;            /* number of the image in its container, from 0 */
    size_t offset, stored_bytes; /* the payload as stored */
    size_t full_bytes;         /* its size when unpacked (stored_bytes if plain) */
    bool was_scanned;          /* the container was found by its magic only: no wrapper and no section points at it */
    struct tl_str identifier;  /* name recorded in the entry, often empty */
};

/* Called once per image, in file order.  Non-zero stops the walk and is returned. */
typedef int (*tl_image_visitor)(void *data, const struct tl_image *image);
/* Called for something that looks like a container but is broken; the walk goes on behind it. */
typedef void (*tl_image_complaint)(void *data, const struct tl_error *what, size_t offset);

/* Walks a file's bytes: PTX text, a cubin, a bare container, or any file (ELF or not) that holds containers anywhere.
 * 0 (possibly with no image found), the visitor's non-zero, or -ENOMEM. */
int tl_image_walk(const void *bytes, size_t n, tl_image_visitor visit, tl_image_complaint complain, void *data);

/* Walks a container in memory as CUDA hands it over: a wrapper (magic 0x466243b1), a container (0xBA55ED50), an ELF or PTX
 * text.  `limit` is how many bytes may be read at all; where the caller does not know (CUDA gives no length), it is
 * SIZE_MAX and the container's own sizes are believed.  0, -EINVAL with a message, or the visitor's non-zero. */
int tl_image_walk_memory(const void *bytes, size_t limit, tl_image_visitor visit, void *data, struct tl_error *err);

/* Unpacks an image's payload.  On success `*out` is the caller's to free and always has one NUL byte behind it; `base` is
 * the pointer given to the walk.  0, -EINVAL (broken data), -ENOTSUP (unknown packing), -EFBIG (over 1 GiB), -ENOMEM. */
int tl_image_unpack(const void *base, const struct tl_image *image, void **out, size_t *n, struct tl_error *err);

/* --- cubins ------------------------------------------------------------------------------------------------------ */

struct tl_cubin_kernel {
    struct tl_str name;
    uint32_t param_bytes;   /* from .nv.info; 0 if it does not say */
    uint32_t n_params;
    uint32_t registers;     /* 0 if unknown */
    uint32_t shared_bytes;  /* static */
};

typedef int (*tl_cubin_visitor)(void *data, const struct tl_cubin_kernel *kernel);

/* The kernels of a cubin.  0, -EINVAL (not a CUDA ELF, or broken), or the visitor's non-zero. */
int tl_cubin_walk(const void *bytes, size_t n, tl_cubin_visitor visit, void *data, struct tl_error *err);

const char *tl_image_kind_name(enum tl_image_kind k);
const char *tl_image_packing_name(enum tl_image_packing p);

#endif
