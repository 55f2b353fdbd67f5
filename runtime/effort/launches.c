/* Kernels that launch graphs themselves.  What they call for it, cudaGraphLaunch, is the driver's
 * own: PTX and machine code that was linked name it alike, so an image that does not have the name
 * has no such kernel.  Large ones without parts are libraries', which are not linked with CUDA's
 * device runtime, and would take long: what has not been found after some bytes is not there. */
#include "runtime/effort/launches.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tally/effort.h"
#include "tally/image.h"

static const char name[] = "cudaGraphLaunch";

enum { MOST_BYTES = 2 << 20 };

struct search {
    size_t left;
    bool is_found;
};

static bool has_name(const void *bytes, size_t n)
{
    return memmem(bytes, n, name, sizeof name - 1) != NULL;
}

static int look(void *data, const struct tl_image *image)
{
    struct search *s = data;
    void *bytes;
    size_t n;
    if (image->kind != TL_IMAGE_PTX && image->kind != TL_IMAGE_CUBIN)
        return 0;
    if (image->full_bytes > s->left)
        return 1;
    s->left -= image->full_bytes;
    if (image->packing == TL_IMAGE_PLAIN) {
        s->is_found = has_name(image->bytes, image->stored_bytes);
    } else if (tl_image_unpack(image, &bytes, &n, NULL) == 0) {
        s->is_found = has_name(bytes, n);
        free(bytes);
    } else {
        s->is_found = true; /* in doubt: the driver may know this packing */
    }
    return s->is_found;
}

static bool is_in(const void *bytes, size_t n, size_t most)
{
    struct search s = {.left = most};
    if (bytes != NULL && tl_image_walk_memory(bytes, n != 0 ? n : SIZE_MAX, look, &s, NULL) < 0)
        return true;
    return s.is_found;
}

bool tl_eff_launches_graphs(const struct tl_captured_image *image)
{
    if (image->ptx != NULL && has_name(image->ptx, image->ptx_n))
        return true;
    for (uint32_t i = 0; i < image->n_parts; i++)
        if (is_in(image->parts[i], 0, SIZE_MAX))
            return true;
    return is_in(image->bytes, image->n, image->n_parts > 0 ? SIZE_MAX : (size_t)MOST_BYTES);
}
