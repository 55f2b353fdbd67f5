/* Names of kinds, packings and architectures, as reports and file names show them. */
#include "image/internal.h"

#include <stdio.h>

const char *tl_image_kind_name(enum tl_image_kind k)
{
    static const char *const names[TL_IMAGE_KINDS] = {
        [TL_IMAGE_PTX] = "ptx",
        [TL_IMAGE_CUBIN] = "cubin",
        [TL_IMAGE_LTO] = "lto",
        [TL_IMAGE_OTHER] = "other",
    };
    return names[k];
}

const char *tl_image_packing_name(enum tl_image_packing p)
{
    static const char *const names[TL_IMAGE_PACKINGS] = {
        [TL_IMAGE_PLAIN] = "plain",
        [TL_IMAGE_LZ4] = "lz4",
        [TL_IMAGE_ZSTD] = "zstd",
        [TL_IMAGE_PACKED_UNKNOWN] = "unknown",
    };
    return names[p];
}

char *tl_image_arch_name(const struct tl_image *image, char name[16])
{
    const char *suffix = image->is_arch_specific ? "a" : image->is_family_specific ? "f" : "";
    snprintf(name, 16, "sm_%u%s", image->arch, suffix);
    return name;
}
