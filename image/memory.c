/* What CUDA is handed in memory: cuModuleLoadData and __cudaRegisterFatBinary take a bare pointer,
 * and what is behind it says itself what it is and how long. */
#include "image/internal.h"

#include <errno.h>

static int walk_container(const void *bytes, size_t limit, tl_image_visitor visit, void *data,
                          struct tl_error *err)
{
    size_t size;
    int rc = tl__fatbin_check(bytes, limit, &size, err);
    return rc < 0 ? rc : tl__fatbin_visit(bytes, &(struct tl_image){0}, visit, data);
}

size_t tl__limit_from(const void *from, size_t limit, const void *to)
{
    if (limit == SIZE_MAX)
        return to != NULL ? SIZE_MAX : 0;
    /* wraps to something huge if `to` comes first */
    uintptr_t distance = (uintptr_t)to - (uintptr_t)from;
    return distance < limit ? limit - distance : 0;
}

int tl__wrapper_read(const void *bytes, size_t limit, struct tl__wrapper *out, struct tl_error *err)
{
    if (limit < sizeof *out ||
        (limit == SIZE_MAX && tl_image_room(bytes, sizeof *out) < sizeof *out))
        return tl_error_set(err, -EINVAL, "a fatbin's wrapper is cut off");
    memcpy(out, bytes, sizeof *out);
    return 0;
}

static int walk_wrapper(const void *bytes, size_t limit, tl_image_visitor visit, void *data,
                        struct tl_error *err)
{
    struct tl__wrapper w = {0};
    int rc = tl__wrapper_read(bytes, limit, &w, err);
    if (rc < 0)
        return rc;
    /* NOLINT(performance-no-int-to-ptr) */
    const void *container = (const void *)(uintptr_t)w.container;
    size_t room = tl__limit_from(bytes, limit, container);
    if (!tl__has_magic(container, room, TL__MAGIC_FATBIN))
        return tl_error_set(err, -EINVAL,
                            "a fatbin's wrapper points at something that is not a fatbin");
    return walk_container(container, room, visit, data, err);
}

static int walk_cubin(const void *bytes, size_t limit, tl_image_visitor visit, void *data,
                      struct tl_error *err)
{
    size_t size;
    struct tl_image image;
    int rc = tl__cubin_size(bytes, limit, &size, err);
    if (rc < 0)
        return rc;
    tl__cubin_describe(bytes, size, &image);
    return visit(data, &image);
}

int tl_image_walk_memory(const void *bytes, size_t limit, tl_image_visitor visit, void *data,
                         struct tl_error *err)
{
    struct tl_image text;
    if (tl__has_magic(bytes, limit, TL__MAGIC_WRAPPER))
        return walk_wrapper(bytes, limit, visit, data, err);
    if (tl__has_magic(bytes, limit, TL__MAGIC_FATBIN))
        return walk_container(bytes, limit, visit, data, err);
    if (tl__has_magic(bytes, limit, TL__MAGIC_ELF))
        return walk_cubin(bytes, limit, visit, data, err);
    if (tl__text_describe(bytes, limit, &text))
        return visit(data, &text);
    return tl_error_set(err, -EINVAL, "this is neither a fatbin nor a cubin nor PTX");
}
