/* Unpacks payloads.  What an entry claims about its size is measured against what its packing can
 * possibly do, before any memory is asked for: a file of a kilobyte must not make us allocate a
 * gigabyte. */
#include "image/internal.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <zstd.h>

#define LARGEST_IMAGE ((size_t)1 << 30)

/* A format byte of LZ4 adds at most 255 bytes to a match. */
#define LZ4_GROWTH 255
/* A block of zstd takes 4 bytes at least (RFC 8878, 3.1.1.2) and gives at most 128 KiB. */
#define ZSTD_SMALLEST_BLOCK 4
#define ZSTD_LARGEST_BLOCK ((size_t)128 << 10)

typedef size_t (*bound_fn)(const struct tl_image *image);
typedef int (*unpack_fn)(const struct tl_image *image, char *out, struct tl_error *err);

static size_t bound_plain(const struct tl_image *image)
{
    return image->stored_bytes;
}

static int unpack_plain(const struct tl_image *image, char *out, struct tl_error *err)
{
    (void)err;
    memcpy(out, image->bytes, image->stored_bytes);
    return 0;
}

static size_t bound_lz4(const struct tl_image *image)
{
    return image->stored_bytes * LZ4_GROWTH;
}

static int unpack_lz4(const struct tl_image *image, char *out, struct tl_error *err)
{
    int n = LZ4_decompress_safe(image->bytes, out, (int)image->stored_bytes,
                                (int)image->full_bytes);
    if (n < 0)
        return tl_error_set(err, -EINVAL, "LZ4 data is broken at about byte %d", -n);
    if ((size_t)n != image->full_bytes)
        return tl_error_set(err, -EINVAL, "LZ4 data unpacks to %d bytes instead of %zu", n,
                            image->full_bytes);
    return 0;
}

static size_t bound_zstd(const struct tl_image *image)
{
    unsigned long long n = ZSTD_getFrameContentSize(image->bytes, image->stored_bytes);
    if (n == ZSTD_CONTENTSIZE_ERROR)
        return 0;
    size_t most = image->stored_bytes / ZSTD_SMALLEST_BLOCK * ZSTD_LARGEST_BLOCK;
    return n == ZSTD_CONTENTSIZE_UNKNOWN || n > most ? most : (size_t)n;
}

static int unpack_zstd(const struct tl_image *image, char *out, struct tl_error *err)
{
    size_t n = ZSTD_decompress(out, image->full_bytes, image->bytes, image->stored_bytes);
    if (ZSTD_isError(n))
        return tl_error_set(err, -EINVAL, "zstd data is broken: %s", ZSTD_getErrorName(n));
    if (n != image->full_bytes)
        return tl_error_set(err, -EINVAL, "zstd data unpacks to %zu bytes instead of %zu", n,
                            image->full_bytes);
    return 0;
}

static const struct packing {
    bound_fn bound; /* how many bytes may come out at most; NULL if the packing is not known */
    unpack_fn unpack;
} packings[TL_IMAGE_PACKINGS] = {
    [TL_IMAGE_PLAIN] = {bound_plain, unpack_plain},
    [TL_IMAGE_LZ4] = {bound_lz4, unpack_lz4},
    [TL_IMAGE_ZSTD] = {bound_zstd, unpack_zstd},
};

int tl_image_unpack(const struct tl_image *image, void **out, size_t *n, struct tl_error *err)
{
    const struct packing *packing = &packings[image->packing];
    if (packing->bound == NULL)
        return tl_error_set(
            err, -ENOTSUP,
            "the image is packed in a way that this reader does not know (flags 0x%llx)",
            (unsigned long long)image->flags);
    if (image->full_bytes > LARGEST_IMAGE || image->stored_bytes > LARGEST_IMAGE)
        return tl_error_set(err, -EFBIG,
                            "the image has %zu bytes, more than the 1 GiB that this reader takes",
                            image->full_bytes);
    if (image->full_bytes > packing->bound(image))
        return tl_error_set(
            err, -EINVAL, "%zu bytes of %s cannot hold the %zu that the entry claims",
            image->stored_bytes, tl_image_packing_name(image->packing), image->full_bytes);
    char *bytes = malloc(image->full_bytes + 1);
    if (bytes == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for an image of %zu bytes", image->full_bytes);
    int rc = packing->unpack(image, bytes, err);
    if (rc < 0) {
        free(bytes);
        return rc;
    }
    bytes[image->full_bytes] = 0;
    *out = bytes;
    *n = image->full_bytes;
    return 0;
}
