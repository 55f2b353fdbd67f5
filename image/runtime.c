/* Which part of a separately compiled program is CUDA's device runtime.  Apart from image/parts.c,
 * because what only lists parts has nothing to unpack with. */
#include "image/internal.h"

#include <stdlib.h>

/* nvcc puts the source's name into the names of what is a file's own; so this finds it in PTX as in
 * machine code, of every toolkit that has such names. */
bool tl_image_names_runtime(const void *bytes, size_t n)
{
    static const char name[] = "_cuda_device_runtime_cu_";
    return memmem(bytes, n, name, sizeof name - 1) != NULL;
}

static int look_for_name(void *data, const struct tl_image *image)
{
    bool *is_it = data;
    void *bytes;
    size_t n;
    if ((image->kind != TL_IMAGE_PTX && image->kind != TL_IMAGE_CUBIN) ||
        tl_image_unpack(image, &bytes, &n, NULL) < 0)
        return 0;
    *is_it = tl_image_names_runtime(bytes, n);
    free(bytes);
    return 1;
}

bool tl_image_is_runtime(const void *container)
{
    bool is_it = false;
    tl_image_walk_memory(container, SIZE_MAX, look_for_name, &is_it, NULL);
    return is_it;
}
