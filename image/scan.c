/* The walk over a whole file.  Sections tell where a compiler put fatbins, but not where everything
 * is: programs embed containers as plain data and hand them to the driver themselves (1,149 of the
 * 1,398 in the TensorFlow 2.21 wheel, nearly all of cuFFT).  So the file is searched for magics,
 * byte by byte, because members of an archive are aligned to two bytes only; sections merely tell
 * how an image was found. */
#include "image/internal.h"

#include <errno.h>

/* A file of headers that lead into each other could keep the search busy for the square of its
 * size.  After going through this many times the file's bytes in vain, the rest is left alone. */
enum { MAX_WASTE = 16 };

struct scan {
    const uint8_t *base;
    size_t n;
    tl_image_visitor visit;
    tl_image_complaint complain;
    void *data;
    uint32_t containers; /* found so far */
    size_t waste;        /* bytes gone through in vain, so far */
    const struct tl__range *sections;
    size_t n_sections;
};

/* The next place of a magic, or the end. */
static size_t find_magic(const struct scan *s, size_t from, const char *magic)
{
    const uint8_t *p = memmem(s->base + from, s->n - from, magic, TL__MAGIC_BYTES);
    return p != NULL ? (size_t)(p - s->base) : s->n;
}

static bool is_in_section(const struct scan *s, size_t at)
{
    for (size_t i = 0; i < s->n_sections; i++)
        if (at >= s->sections[i].begin && at < s->sections[i].end)
            return true;
    return false;
}

/* Whether the magic at `at` may well begin a container.  Code that builds or checks containers has
 * the magic among its constants; what follows there does not fit. */
static bool looks_like_container(const struct scan *s, size_t at)
{
    const uint8_t *p = s->base + at;
    return s->n - at >= 16 && tl__u16(p + 4) != 0 && tl__u16(p + 6) >= 16 &&
           tl__u64(p + 8) < (uint64_t)1 << 40;
}

/* A magic of a container: visits its images.  `next` becomes where to search on. */
static int try_container(struct scan *s, size_t at, size_t *next)
{
    size_t size;
    struct tl_error err;
    *next = at + TL__MAGIC_BYTES;
    if (!looks_like_container(s, at))
        return 0;
    if (tl__fatbin_check(s->base + at, s->n - at, &size, &err) < 0) {
        s->waste += size;
        if (s->complain != NULL)
            s->complain(s->data, &err, at);
        return 0;
    }
    *next = at + size;
    struct tl_image where = {
        .container_offset = at,
        .container_index = s->containers++,
        .was_scanned = !is_in_section(s, at),
    };
    return tl__fatbin_visit(s->base + at, &where, s->visit, s->data);
}

/* Tells that the search ends early, at `at`. */
static void complain_of_waste(const struct scan *s, size_t at)
{
    struct tl_error err;
    tl_error_set(&err, -E2BIG,
                 "so many headers lead nowhere that the rest of the file was not searched");
    if (s->complain != NULL)
        s->complain(s->data, &err, at);
}

/* A magic of an ELF: visits it if it is a cubin that stands alone. */
static int try_cubin(struct scan *s, size_t at, size_t *next)
{
    size_t size;
    struct tl_image image;
    *next = at + TL__MAGIC_BYTES;
    if (tl__cubin_size(s->base + at, s->n - at, &size, NULL) < 0) {
        s->waste += size;
        return 0;
    }
    *next = at + size;
    tl__cubin_describe(s->base + at, size, &image);
    image.container_offset = image.offset = at;
    image.container_index = s->containers++;
    image.was_scanned = at != 0;
    return s->visit(s->data, &image);
}

int tl__image_scan(const void *bytes, size_t n, const struct tl__range *sections, size_t n_sections,
                   tl_image_visitor visit, tl_image_complaint complain, void *data)
{
    struct tl_image text;
    if (tl__text_describe(bytes, n, &text))
        return visit(data, &text);

    struct scan s = {.base = bytes,
                     .n = n,
                     .visit = visit,
                     .complain = complain,
                     .data = data,
                     .sections = sections,
                     .n_sections = n_sections};
    size_t container = find_magic(&s, 0, TL__MAGIC_FATBIN);
    size_t elf = find_magic(&s, 0, TL__MAGIC_ELF);
    while (container < n || elf < n) {
        size_t next;
        int rc = container < elf ? try_container(&s, container, &next) : try_cubin(&s, elf, &next);
        if (rc != 0)
            return rc;
        if (s.waste / MAX_WASTE > n) {
            complain_of_waste(&s, next);
            return 0;
        }
        if (container < next)
            container = find_magic(&s, next, TL__MAGIC_FATBIN);
        if (elf < next)
            elf = find_magic(&s, next, TL__MAGIC_ELF);
    }
    return 0;
}

int tl_image_search(const void *bytes, size_t n, tl_image_visitor visit, void *data)
{
    return tl__image_scan(bytes, n, NULL, 0, visit, NULL, data);
}
