/* What is inside a file that carries GPU code: fatbins, cubins and PTX, wherever they hide.
 *
 * The reader works on bytes in memory and trusts none of them: sizes and offsets from outside are
 * checked before they are used, and a decompressed size is bounded before it is allocated.  It
 * keeps no state between calls.
 *
 *     static int show(void *data, const struct tl_image *image) { ... tl_image_unpack(image, &text, &n, &err) ... }
 *     tl_image_walk(bytes, n, show, NULL, NULL);
 * / */
#ifndef TALLY_IMAGE_H
#define TALLY_IMAGE_H

#include "tally/base.h"

enum tl_image_kind {
    TL_IMAGE_PTX,   /* PTX text */
    TL_IMAGE_CUBIN, /* an ELF with SASS */
    TL_IMAGE_LTO,   /* LTO-IR: neither; needs nvJitLink */
    TL_IMAGE_OTHER,
    TL_IMAGE_KINDS,
};

enum tl_image_packing {
    TL_IMAGE_PLAIN,
    TL_IMAGE_LZ4,
    TL_IMAGE_ZSTD,
    TL_IMAGE_PACKED_UNKNOWN, /* marked as compressed, in a way that this reader does not know */
    TL_IMAGE_PACKINGS,
};

/* One image.  Pointers and slices lead into the bytes that are being walked; they were checked
 * against their end. */
struct tl_image {
    enum tl_image_kind kind;
    enum tl_image_packing packing;
    uint32_t arch;           /* 90 for sm_90; 0 if a bare image does not say */
    bool is_arch_specific;   /* sm_90a */
    bool is_family_specific; /* sm_100f */
    /* found by its magic only: it stands in no section for fatbins */
    bool was_scanned;
    uint16_t version_major, version_minor; /* PTX: of the ISA; cubin: of the entry's format */
    /* the entry's flag word, as written; 0 for bare images */
    uint64_t flags;
    /* where the container begins; of a bare image where it begins itself */
    size_t container_offset;
    /* number of the container in the file, from 0; a bare image counts as one */
    uint32_t container_index;
    uint32_t index;    /* number of the image in its container, from 0 */
    const void *bytes; /* the payload as stored */
    /* where that is, from the first byte walked, or from the container behind a wrapper */
    size_t offset;
    size_t stored_bytes;      /* its size as stored */
    size_t full_bytes;        /* and when unpacked, as the entry claims (stored_bytes if plain) */
    struct tl_str identifier; /* the source's name, recorded in debug builds; else empty */
    /* PTX, LTO-IR: options for the compiler of it, e.g. "-maxrregcount=40"; often empty */
    struct tl_str options;
};

/* Called once per image, in file order.  Non-zero stops the walk and is returned. */
typedef int (*tl_image_visitor)(void *data, const struct tl_image *image);
/* Called for something that looks like a container but is broken; the walk goes on behind its
 * magic. */
typedef void (*tl_image_complaint)(void *data, const struct tl_error *what, size_t offset);

/* Walks a file's bytes: PTX text, a cubin, or any file (fatbin, executable, library, archive,
 * object, or unknown) that holds containers or cubins anywhere.  `complain` may be NULL.  0
 * (possibly with no image found) or the visitor's non-zero. */
int tl_image_walk(const void *bytes, size_t n, tl_image_visitor visit, tl_image_complaint complain,
                  void *data);

/* The same for who does not ask how an image was found, and has no libelf. */
int tl_image_search(const void *bytes, size_t n, tl_image_visitor visit, void *data);

/* Walks what CUDA is handed in memory: a wrapper (magic 0x466243b1), a container (0xBA55ED50), a
 * cubin or PTX text. `limit` is how many bytes may be read at all; where the caller does not know
 * (CUDA gives no length), it is SIZE_MAX and the sizes written in the image are believed.  A
 * wrapper's container must then be anywhere, else within the limit. 0, -EINVAL with a message, or
 * the visitor's non-zero. */
int tl_image_walk_memory(const void *bytes, size_t limit, tl_image_visitor visit, void *data,
                         struct tl_error *err);

/* The parts of a program that was compiled separately (nvcc -rdc=true).  What its start-up code
 * registers leads to the linked machine code, and to the containers that this was linked of, one
 * per object, in which the PTX is: a driver links that when the machine code does not fit.
 *
 * `*out` becomes the list of these `*n` containers, the caller's to free, or NULL if the image has
 * none: only a wrapper has.  Each was checked to its end, and lies where it lay, so for `limit`
 * other than SIZE_MAX within that.  0; -EINVAL with a message (the list or what it names cannot be
 * read, has no end, or is no container); -EFBIG (over TL_IMAGE_PARTS, or over 4 GiB together);
 * -ENOMEM. */
enum { TL_IMAGE_PARTS = 4096 };
int tl_image_parts(const void *bytes, size_t limit, const void ***out, uint32_t *n,
                   struct tl_error *err);

/* Whether a container that tl_image_parts gave is CUDA's device runtime (libcudadevrt.a), which
 * nvcc links with every separately compiled program, wanted or not. */
bool tl_image_is_runtime(const void *container);
/* The same of an image of its, unpacked. */
bool tl_image_names_runtime(const void *bytes, size_t n);

/* Unpacks an image's payload.  On success `*out` is the caller's to free and has one NUL byte
 * behind its `*n` bytes. (PTX usually ends in NULs of its own as well; they count.)  0, -EINVAL
 * (broken data), -ENOTSUP (unknown packing), -EFBIG (over 1 GiB), -ENOMEM. */
int tl_image_unpack(const struct tl_image *image, void **out, size_t *n, struct tl_error *err);

const char *tl_image_kind_name(enum tl_image_kind k);       /* "ptx", "cubin", ... */
const char *tl_image_packing_name(enum tl_image_packing p); /* "plain", "lz4", ... */
/* "sm_90a"; the buffer of 16 bytes is always enough.  Returns it. */
char *tl_image_arch_name(const struct tl_image *image, char name[16]);

/* --- cubins ----------------------------------------------------------------------------------- */

struct tl_cubin_kernel {
    struct tl_str name;   /* lives until the visitor returns */
    uint32_t param_bytes; /* from .nv.info; 0 if it does not say */
    uint32_t n_params;
    uint32_t registers;    /* 0 if unknown */
    uint32_t shared_bytes; /* static; from sm_90 on with the KiB that the system reserves */
};

typedef int (*tl_cubin_visitor)(void *data, const struct tl_cubin_kernel *kernel);

/* The kernels of a cubin, in the order of its symbol table.  0, -EINVAL (not a 64-bit CUDA ELF, or
 * broken), -ENOMEM, or the visitor's non-zero. */
int tl_cubin_walk(const void *bytes, size_t n, tl_cubin_visitor visit, void *data,
                  struct tl_error *err);

/* A parameter of a kernel: where it stands in a buffer of all, and how many bytes it takes. */
struct tl_cubin_param {
    uint32_t offset, size;
};
/* The parameters of a kernel as its `.nv.info.<kernel>` lists them, in order; `out` has room for
 * `cap`.  Needs no libelf.  0; -ENOENT if there is no such kernel; -EINVAL if it is broken;
 * -ENOTSUP if it lists them in a way that is not known, lists too many, or does not agree with
 * itself. */
int tl_cubin_params(const void *bytes, size_t n, const char *kernel, struct tl_cubin_param *out,
                    uint32_t cap, uint32_t *count, struct tl_error *err);

/* The virtual architecture that it was compiled for (80 of compute_80), which may be lower than its
 * own; 0 if it does not say. */
uint32_t tl_cubin_virtual_arch(const void *bytes, size_t n);

/* Whether it still wants linking (nvcc -dc): such a cubin cannot be loaded as it is.  False for
 * anything but a cubin. */
bool tl_cubin_is_relocatable(const void *bytes, size_t n);

/* Memory without a length, which is told as SIZE_MAX: how many of the bytes that are wanted can be
 * read (image/room.c). */
size_t tl_image_room(const void *bytes, size_t wanted);

#endif
