/* What CUDA is handed in memory: cuModuleLoadData and __cudaRegisterFatBinary take a bare pointer,
 * and what is behind it says itself what it is and how long. */
#include "image/internal.h"

#include <errno.h>

/* What nvcc's start-up code registers: a pointer to the container.  The last word is of no use
 * here: a file name, or in version 2 the list of what was linked. */
struct wrapper {
    uint32_t magic, version;
    uint64_t container;
    uint64_t unused;
};
_Static_assert(sizeof(struct wrapper) == 24, "as laid out by nvcc");

static int walk_container(const void *bytes, size_t limit, tl_image_visitor visit, void *data,
                          struct tl_error *err)
{
    size_t size;
    int rc = tl__fatbin_check(bytes, limit, &size, err);
    return rc < 0 ? rc : tl__fatbin_visit(bytes, &(struct tl_image){0}, visit, data);
}

/* How many bytes may be read from `to` on, if `limit` may be from `from` on. */
static size_t limit_from(const void *from, size_t limit, const void *to)
{
    if (limit == SIZE_MAX)
        return to != NULL ? SIZE_MAX : 0;
    /* wraps to something huge if `to` comes first */
    uintptr_t distance = (uintptr_t)to - (uintptr_t)from;
    return distance < limit ? limit - distance : 0;
}

static int walk_wrapper(const void *bytes, size_t limit, tl_image_visitor visit, void *data,
                        struct tl_error *err)
{
    struct wrapper w;
    if (limit < sizeof w || (limit == SIZE_MAX && tl_image_room(bytes, sizeof w) < sizeof w))
        return tl_error_set(err, -EINVAL, "a fatbin's wrapper is cut off");
    memcpy(&w, bytes, sizeof w);
    /* NOLINT(performance-no-int-to-ptr) */
    const void *container = (const void *)(uintptr_t)w.container;
    size_t room = limit_from(bytes, limit, container);
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
