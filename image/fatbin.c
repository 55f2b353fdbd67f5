/* NVIDIA's container of GPU images, the "fatbin".  There is no public specification; this was read
 * off files made by nvcc 13.0 with known contents, and holds for every container of CUDA 11 to 13
 * libraries that was looked at (docs/images.md).
 *
 *     container                          entry
 *     +0   u32 magic                     +0   u16 kind, u16 0x0101
 *     +4   u16 version: 1                +4   u32 size of this header: 64 and more
 *     +6   u16 size of this header: 16   +8   u64 size of the payload with its padding
 *     +8   u64 size of all entries       +16  u32 size of the payload as stored; 0 if not packed
 *     +16  entries, one behind another   +20  u32 where the option block is, 0 if there is none
 *                                        +24  u16 minor, u16 major version
 *     option block                       +28  u32 architecture
 *     +0  u32 where the text is          +32  u32 where the source's name is, u32 its length
 *     +4  u32 its length                 +40  u64 flags
 *                                        +48  u64 hash (LTO-IR only)
 *                                        +56  u64 size when unpacked; 0 if not packed
 *
 * Places within an entry count from its first byte and must be in its header. */
#include "image/internal.h"
#include "tally/check.h"

#include <errno.h>

enum {
    CONTAINER_HEADER = 16,
    CONTAINER_VERSION = 1,
    ENTRY_HEADER = 64, /* the part that every entry has */
};

enum entry_kind { KIND_PTX = 1, KIND_CUBIN = 2, KIND_LTO = 8 };

#define FLAG_LZ4 UINT64_C(0x2000)
#define FLAG_ZSTD UINT64_C(0x8000)
#define FLAG_ARCH_SPECIFIC UINT64_C(0x100000)
#define FLAG_FAMILY_SPECIFIC UINT64_C(0x200000)

static enum tl_image_kind kind_of(uint16_t kind)
{
    switch (kind) {
    case KIND_PTX:
        return TL_IMAGE_PTX;
    case KIND_CUBIN:
        return TL_IMAGE_CUBIN;
    case KIND_LTO:
        return TL_IMAGE_LTO;
    default:
        return TL_IMAGE_OTHER;
    }
}

/* LTO-IR carries the flags too, but is neither a block of LZ4 nor a frame of zstd. */
static enum tl_image_packing packing_of(enum tl_image_kind kind, uint64_t flags,
                                        uint64_t unpacked_bytes)
{
    if (kind == TL_IMAGE_LTO && unpacked_bytes != 0)
        return TL_IMAGE_PACKED_UNKNOWN;
    if (flags & FLAG_ZSTD)
        return TL_IMAGE_ZSTD;
    if (flags & FLAG_LZ4)
        return TL_IMAGE_LZ4;
    return unpacked_bytes == 0 ? TL_IMAGE_PLAIN : TL_IMAGE_PACKED_UNKNOWN;
}

/* A piece of an entry's header; empty if it is not within the header. */
static struct tl_str piece_of(const uint8_t *entry, uint32_t header, uint32_t at, uint32_t n)
{
    if (at < ENTRY_HEADER || at > header || n > header - at)
        return (struct tl_str){0};
    return (struct tl_str){(const char *)entry + at, n};
}

/* The option text, without the blanks and NULs around it. */
static struct tl_str options_of(const uint8_t *entry, uint32_t header)
{
    struct tl_str block = piece_of(entry, header, tl__u32(entry + 20), 8);
    if (block.n == 0)
        return block;
    struct tl_str text = piece_of(entry, header, tl__u32(block.p), tl__u32(block.p + 4));
    while (text.n > 0 && text.p[0] == ' ') {
        text.p++;
        text.n--;
    }
    while (text.n > 0 && (text.p[text.n - 1] == ' ' || text.p[text.n - 1] == 0))
        text.n--;
    return text;
}

/* Reads the entry that begins with `room` bytes before the container's end.  0, its size with the
 * payload and what it says of its image; or -EINVAL with a message. */
static int read_entry(const uint8_t *entry, size_t room, size_t *size, struct tl_image *image,
                      struct tl_error *err)
{
    if (room < ENTRY_HEADER)
        return tl_error_set(err, -EINVAL, "%zu bytes are left where an entry should begin", room);
    uint32_t header = tl__u32(entry + 4);
    uint64_t payload = tl__u64(entry + 8);
    uint32_t packed = tl__u32(entry + 16);
    if (header < ENTRY_HEADER || header > room)
        return tl_error_set(err, -EINVAL, "an entry's header has %u bytes, of %zu that are left",
                            header, room);
    if (payload > room - header)
        return tl_error_set(err, -EINVAL, "a payload has %llu bytes, of %zu that are left",
                            (unsigned long long)payload, room - header);
    if (packed > payload)
        return tl_error_set(err, -EINVAL, "a payload of %llu bytes claims to hold %u",
                            (unsigned long long)payload, packed);

    uint64_t unpacked = tl__u64(entry + 56);
    image->kind = kind_of(tl__u16(entry));
    image->flags = tl__u64(entry + 40);
    image->packing = packing_of(image->kind, image->flags, unpacked);
    image->version_minor = tl__u16(entry + 24);
    image->version_major = tl__u16(entry + 26);
    image->arch = tl__u32(entry + 28);
    image->is_arch_specific = (image->flags & FLAG_ARCH_SPECIFIC) != 0;
    image->is_family_specific = (image->flags & FLAG_FAMILY_SPECIFIC) != 0;
    image->bytes = entry + header;
    image->stored_bytes = packed != 0 ? packed : (size_t)payload;
    image->full_bytes = image->packing == TL_IMAGE_PLAIN ? image->stored_bytes : unpacked;
    image->identifier = piece_of(entry, header, tl__u32(entry + 32), tl__u32(entry + 36));
    image->options = (struct tl_str){0};
    if (image->kind != TL_IMAGE_CUBIN) /* there it is no text */
        image->options = options_of(entry, header);
    *size = header + (size_t)payload;
    return 0;
}

int tl__fatbin_check(const void *container, size_t limit, size_t *size, struct tl_error *err)
{
    const uint8_t *p = container;
    bool is_bare = limit == SIZE_MAX;
    *size = 0;
    if (is_bare)
        limit = tl_image_room(p, CONTAINER_HEADER);
    if (limit < CONTAINER_HEADER)
        return tl_error_set(err, -EINVAL, "a fatbin's header is cut off");
    TL_CHECK(tl__has_magic(p, limit, TL__MAGIC_FATBIN));
    uint16_t version = tl__u16(p + 4);
    uint16_t header = tl__u16(p + 6);
    uint64_t entries = tl__u64(p + 8);
    if (is_bare)
        limit = tl_image_room(p, entries < SIZE_MAX - header ? header + (size_t)entries : SIZE_MAX);
    if (header < CONTAINER_HEADER || header > limit || entries > limit - header)
        return tl_error_set(
            err, -EINVAL, "a fatbin claims %llu bytes behind a header of %u, of %zu that there are",
            (unsigned long long)entries, header, limit);
    if (version != CONTAINER_VERSION)
        return tl_error_set(err, -EINVAL, "a fatbin has version %u; this reader knows version %d",
                            version, CONTAINER_VERSION);
    size_t end = header + (size_t)entries;
    *size = header;
    for (size_t n; *size < end; *size += n) {
        struct tl_image image;
        int rc = read_entry(p + *size, end - *size, &n, &image, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int tl__fatbin_visit(const void *container, const struct tl_image *where, tl_image_visitor visit,
                     void *data)
{
    const uint8_t *p = container;
    size_t at = tl__u16(p + 6);
    size_t end = at + (size_t)tl__u64(p + 8);
    struct tl_image image = *where;
    for (size_t n; at < end; at += n, image.index++) {
        int rc = read_entry(p + at, end - at, &n, &image, NULL);
        TL_CHECK(rc == 0);
        image.offset = where->container_offset + (size_t)((const uint8_t *)image.bytes - p);
        rc = visit(data, &image);
        if (rc != 0)
            return rc;
    }
    return 0;
}
