/* Of the images in a fatbin, the one that a GPU's driver would load: fitting machine code first, if
 * the profile is strict, else the newest PTX that is not too new. */
#include "device/driver/choose.h"

#include "device/driver/profile.h"
#include "device/driver/state.h"

static uint32_t our_arch(void)
{
    return (uint32_t)(tl_drv.cc_major * 10 + tl_drv.cc_minor);
}

/* Whether a device of that architecture runs code with such a suffix: sm_90a is for 9.0 alone,
 * sm_100f for the rest of its family as well. */
static bool suits(const struct tl_image *image, uint32_t arch)
{
    if (image->is_arch_specific)
        return image->arch == arch;
    return !image->is_family_specific || image->arch / 10 == arch / 10;
}

/* PTX for one architecture alone (sm_90a) is the last resort unless it is just ours; a GPU's driver
 * does not take it at all. */
static int rank(const struct tl_image *image)
{
    if (image->kind != TL_IMAGE_PTX || image->arch > our_arch() ||
        (tl_drv_profile()->is_strict && !suits(image, our_arch())))
        return -1;
    bool is_special = image->is_arch_specific && image->arch != our_arch();
    return (int)image->arch + (is_special ? 0 : 10000);
}

/* Machine code runs on its own major architecture, from its minor one on ("Binary Compatibility" in
 * the programming guide). */
static bool is_code(const struct tl_image *image, uint32_t arch)
{
    return tl_drv_profile()->is_strict && image->kind == TL_IMAGE_CUBIN &&
           image->arch / 10 == arch / 10 && image->arch <= arch && suits(image, arch);
}

static int consider(void *data, const struct tl_image *image)
{
    struct tl_drv_choice *c = data;
    c->n_seen++;
    if (rank(image) >= 0 && (!c->has_one || rank(image) > rank(&c->best))) {
        c->best = *image;
        c->has_one = true;
    }
    if (is_code(image, c->arch) && (!c->has_code || image->arch > c->code.arch)) {
        c->code = *image;
        c->has_code = true;
    }
    /* One that is not for a later, special version of an architecture says most about how long its
     * kernels take. */
    if (image->kind == TL_IMAGE_CUBIN && (!c->has_cubin || image->arch >= c->cubin.arch)) {
        c->cubin = *image;
        c->has_cubin = true;
    }
    return 0;
}

static int find_twin(void *data, const struct tl_image *image)
{
    struct tl_drv_choice *c = data;
    if (image->kind == TL_IMAGE_PTX && image->container_index == c->code.container_index &&
        image->arch == c->virtual_arch && image->is_arch_specific == c->code.is_arch_specific &&
        image->is_family_specific == c->code.is_family_specific) {
        c->twin = *image;
        c->has_twin = true;
    }
    return 0;
}

/* A GPU runs machine code before it looks at PTX.  Here it runs as the PTX that it was made of, if
 * that is there, and as no other: another architecture's may be other code. */
static void prefer_code(struct tl_drv_choice *c, const void *bytes)
{
    if (!c->has_code)
        return;
    c->has_one = false;
    if (tl_image_unpack(&c->code, &c->code_bytes, &c->n_code, NULL) < 0)
        return;
    c->virtual_arch = tl_cubin_virtual_arch(c->code_bytes, c->n_code);
    tl_image_walk_memory(bytes, SIZE_MAX, find_twin, c, NULL);
    if (c->has_twin) {
        c->best = c->twin;
        c->has_one = true;
    }
}

int tl_drv_choose(struct tl_drv_choice *c, const void *bytes, uint32_t arch, struct tl_error *err)
{
    *c = (struct tl_drv_choice){.arch = arch != 0 ? arch : our_arch()};
    int rc = tl_image_walk_memory(bytes, SIZE_MAX, consider, c, err);
    if (rc == 0)
        prefer_code(c, bytes);
    return rc;
}
