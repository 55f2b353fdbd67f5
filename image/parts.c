/* The parts of separately compiled programs (nvcc -rdc=true).
 *
 *     wrapper, version 2 ──► container: the linked machine code, or nothing
 *                      └───► list ──► container of a.cu: PTX and machine code that wants linking
 *                                 ──► container of b.cu
 *                                 ──► container of CUDA's device runtime
 *                                 ──► NULL
 *
 * nvlink makes machine code only, so the PTX of such a program is in its parts and nowhere else.
 * The list is filled by the program's start-up code (crt/link.stub of the toolkit). */
#include "image/internal.h"

#include <errno.h>
#include <stdlib.h>

enum { VERSION_WITH_PARTS = 2 };

/* Objects that are linked have less than 2 GiB in all; a list that names the same large container
 * again and again is not walked through each time. */
static const uint64_t most_bytes = UINT64_C(4) << 30;

struct list {
    const char *words; /* addresses, at any alignment */
    size_t n_words;    /* that can be read */
    const void *from;  /* what `limit` counts from */
    size_t limit;
};

/* How many there are in front of the NULL. */
static int count(const struct list *l, uint32_t *n, struct tl_error *err)
{
    for (*n = 0; *n < l->n_words && *n <= TL_IMAGE_PARTS; ++*n)
        if (tl__u64(l->words + *n * sizeof(uint64_t)) == 0)
            return 0;
    if (*n > TL_IMAGE_PARTS)
        return tl_error_set(err, -EFBIG, "a list of linked parts has no end after %d of them",
                            TL_IMAGE_PARTS);
    return tl_error_set(err, -EINVAL, "a list of linked parts leads out of what can be read");
}

static int take(const struct list *l, uint32_t n, const void **out, struct tl_error *err)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct tl_error why = {0};
        size_t size;
        /* NOLINT(performance-no-int-to-ptr) */
        out[i] = (const void *)(uintptr_t)tl__u64(l->words + i * sizeof(uint64_t));
        size_t room = tl__limit_from(l->from, l->limit, out[i]);
        if (!tl__has_magic(out[i], room, TL__MAGIC_FATBIN))
            return tl_error_set(err, -EINVAL, "linked part %u of %u is not a fatbin", i + 1, n);
        if (tl__fatbin_check(out[i], room, &size, &why) < 0)
            return tl_error_set(err, -EINVAL, "linked part %u of %u: %s", i + 1, n, why.text);
        all += size;
        if (all > most_bytes)
            return tl_error_set(err, -EFBIG, "linked parts have more than 4 GiB together");
    }
    return 0;
}

int tl_image_parts(const void *bytes, size_t limit, const void ***out, uint32_t *n,
                   struct tl_error *err)
{
    struct tl__wrapper w = {0};
    *out = NULL;
    *n = 0;
    if (!tl__has_magic(bytes, limit, TL__MAGIC_WRAPPER))
        return 0;
    int rc = tl__wrapper_read(bytes, limit, &w, err);
    if (rc < 0 || w.version != VERSION_WITH_PARTS || w.name_or_parts == 0)
        return rc;
    struct list l = {.from = bytes, .limit = limit};
    l.words = (const char *)(uintptr_t)w.name_or_parts; /* NOLINT(performance-no-int-to-ptr) */
    size_t room = tl__limit_from(bytes, limit, l.words);
    if (limit == SIZE_MAX)
        room = tl_image_room(l.words, (TL_IMAGE_PARTS + 1) * sizeof(uint64_t));
    l.n_words = room / sizeof(uint64_t);
    uint32_t found;
    rc = count(&l, &found, err);
    if (rc < 0 || found == 0)
        return rc;
    const void **list = calloc(found, sizeof *list);
    if (list == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory");
    rc = take(&l, found, list, err);
    if (rc < 0) {
        free(list);
        return rc;
    }
    *out = list;
    *n = found;
    return 0;
}
