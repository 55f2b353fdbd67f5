/* Any bytes as a file and as memory handed to CUDA: every image that is found is unpacked, and
 * cubins are read.
 *
 * libFuzzer's input ends where its allocation ends, so the address sanitizer sees the first byte
 * read too many. */
#include "tally/hash.h"
#include "tally/image.h"

#include <stdlib.h>

/* Larger claims are real work for the unpackers, not for the reader. */
enum { LARGEST = 1 << 22 };

static int see_kernel(void *data, const struct tl_cubin_kernel *kernel)
{
    *(uint32_t *)data ^= tl_hash(kernel->name.p, kernel->name.n);
    return 0;
}

static int see_image(void *data, const struct tl_image *image)
{
    uint32_t *sum = data;
    void *bytes;
    size_t n;
    char name[16];
    *sum ^= tl_hash(image->bytes, image->stored_bytes);
    *sum ^= tl_hash(image->options.p, image->options.n);
    *sum ^= tl_hash(image->identifier.p, image->identifier.n);
    *sum ^= (uint32_t)tl_image_arch_name(image, name)[0];
    if (image->full_bytes > LARGEST || tl_image_unpack(image, &bytes, &n, NULL) != 0)
        return 0;
    (void)tl_cubin_walk(bytes, n, see_kernel, data, NULL);
    free(bytes);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    volatile uint32_t used = 0;
    uint32_t sum = 0;
    struct tl_error err;
    (void)tl_image_walk(bytes, n, see_image, NULL, &sum);
    (void)tl_image_walk_memory(bytes, n, see_image, &sum, &err);
    const void **parts;
    uint32_t n_parts;
    if (tl_image_parts(bytes, n, &parts, &n_parts, &err) == 0)
        free(parts);
    used = sum;
    (void)used;
    return 0;
}
