/* Images: how long is what a bare pointer leads to, and may it be referred to or must it be
 * copied? */
#include "intercept/capture/capture.h"
#include "tally/file.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "image/internal.h"
#include "intercept/doors/doors.h"

/* An image with its count of references in front of what others see. */
struct kept {
    struct tl_captured_image image;
    _Atomic uint32_t refs;
    char *parts_copy; /* the bytes of its parts, if these are not where they were */
    char paths[];     /* source and loader */
};

static struct kept *keep(const char *source, const char *loader)
{
    size_t n = strlen(source) + 1, m = strlen(loader) + 1;
    struct kept *k = calloc(1, sizeof *k + n + m);
    if (k == NULL)
        return NULL;
    k->refs = 1;
    k->image.source = memcpy(k->paths, source, n);
    k->image.loader = memcpy(k->paths + n, loader, m);
    return k;
}

struct tl_captured_image *tl_capture_ref(struct tl_captured_image *image)
{
    if (image != NULL)
        atomic_fetch_add(&((struct kept *)image)->refs, 1);
    return image;
}

void tl_capture_unref(struct tl_captured_image *image)
{
    if (image == NULL || atomic_fetch_sub(&((struct kept *)image)->refs, 1) != 1)
        return;
    tl_job_forget(image);
    if (image->is_copy)
        free((void *)image->bytes);
    free((void *)image->ptx);
    free((void *)image->parts);
    free(((struct kept *)image)->parts_copy);
    free(image);
}

/* --- where an address lies --- */

struct question {
    uintptr_t address;
    char *source; /* filled with the object's path */
    size_t source_n;
    bool is_inside;
};

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
    struct question *q = data;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || q->address - (info->dlpi_addr + p->p_vaddr) >= p->p_memsz)
            continue;
        const char *name = info->dlpi_name != NULL && info->dlpi_name[0] != '\0' ? info->dlpi_name
                                                                                 : "/proc/self/exe";
        size_t n = strnlen(name, q->source_n - 1);
        memcpy(q->source, name, n);
        q->source[n] = '\0';
        q->is_inside = true;
        return 1;
    }
    return 0;
}

/* Whether the address lies in a loaded object; then `source` becomes its path. */
static bool is_in_object(const void *address, char *source, size_t n)
{
    struct question q = {.address = (uintptr_t)address, .source = source, .source_n = n};
    if (address != NULL)
        dl_iterate_phdr(look, &q);
    return q.is_inside;
}

/* --- memory --- */

/* How many bytes an image without a given length has; 0 if it is nothing known. */
static size_t length_of(const void *bytes)
{
    size_t n = 0;
    if (tl__has_magic(bytes, SIZE_MAX, TL__MAGIC_FATBIN))
        return tl__fatbin_check(bytes, SIZE_MAX, &n, NULL) == 0 ? n : 0;
    if (tl__has_magic(bytes, SIZE_MAX, TL__MAGIC_ELF))
        return tl__cubin_size(bytes, SIZE_MAX, &n, NULL) == 0 ? n : 0;
    return tl__text_room(bytes);
}

/* What a wrapper wraps, else the bytes themselves. */
static const void *unwrap(const void *bytes)
{
    enum { POINTER_AT = 8, NEEDED = 16 };
    if (!tl__has_magic(bytes, SIZE_MAX, TL__MAGIC_WRAPPER))
        return bytes;
    if (tl_image_room(bytes, NEEDED) < NEEDED)
        return NULL;
    /* NOLINT(performance-no-int-to-ptr) */
    return (const void *)(uintptr_t)tl__u64((const char *)bytes + POINTER_AT);
}

/* Makes copies of parts that may go away, one behind another.  NULL if there is no memory. */
static char *copy_parts(const void **parts, uint32_t n)
{
    size_t all = 0, at = 0;
    for (uint32_t i = 0; i < n; i++)
        all += length_of(parts[i]);
    char *copy = malloc(all + 1);
    for (uint32_t i = 0; copy != NULL && i < n; i++) {
        size_t bytes = length_of(parts[i]);
        if (bytes > all - at) {
            free(copy); /* somebody changes them meanwhile */
            return NULL;
        }
        parts[i] = memcpy(copy + at, parts[i], bytes);
        at += bytes;
    }
    return copy;
}

/* The parts that it was linked of, if it was: referred to where they stay, as the image is.  A
 * list that is wrong is none; the driver has taken the image without. */
static void keep_parts(struct kept *k, const void *wrapper, bool is_preserved)
{
    const void **parts;
    char unused[2];
    uint32_t n;
    bool do_stay = true;
    if (tl_image_parts(wrapper, SIZE_MAX, &parts, &n, NULL) < 0 || n == 0)
        return;
    for (uint32_t i = 0; i < n && do_stay && !is_preserved; i++)
        do_stay = is_in_object(parts[i], unused, sizeof unused);
    if (!do_stay && (k->parts_copy = copy_parts(parts, n)) == NULL) {
        free(parts);
        return;
    }
    k->image.parts = parts;
    k->image.n_parts = n;
}

/* Gives an image its own bytes; a NUL is put behind them, for texts. */
static void own(struct tl_captured_image *image, char *copy, size_t n)
{
    copy[n] = '\0';
    image->bytes = copy;
    image->n = n;
    image->is_copy = true;
}

bool tl_capture_may_have_code(const void *bytes)
{
    return bytes != NULL && (tl__has_magic(bytes, SIZE_MAX, TL__MAGIC_WRAPPER) ||
                             tl__has_magic(bytes, SIZE_MAX, TL__MAGIC_FATBIN) ||
                             tl__has_magic(bytes, SIZE_MAX, TL__MAGIC_ELF));
}

bool tl_capture_is_code(const struct tl_captured_image *image)
{
    return image->bytes != NULL && image->n != 0 &&
           tl__has_magic(image->bytes, image->n, TL__MAGIC_ELF);
}

/* Machine code may have come out of a compiler that left its PTX. */
static void ask_doors(struct tl_captured_image *image)
{
    if (tl_capture_is_code(image))
        image->ptx = tl_doors_find(image->bytes, image->n, &image->ptx_n);
}

struct tl_captured_image *tl_capture_image(const void *bytes, bool is_preserved, const void *caller)
{
    char source[1024] = "memory", loader[1024] = "";
    const void *given = bytes;
    bytes = bytes != NULL ? unwrap(bytes) : NULL;
    bool is_inside = is_in_object(bytes, source, sizeof source);
    (void)is_in_object(caller, loader, sizeof loader);
    struct kept *k = keep(source, loader);
    if (k == NULL || bytes == NULL)
        return k != NULL ? &k->image : NULL;
    if (is_inside || is_preserved) {
        k->image.bytes = bytes;
        if (tl__has_magic(bytes, SIZE_MAX, TL__MAGIC_ELF))
            k->image.n = length_of(bytes);
    } else {
        size_t n = length_of(bytes);
        char *copy = n != 0 ? malloc(n + 1) : NULL;
        if (copy != NULL)
            own(&k->image, memcpy(copy, bytes, n), n);
    }
    keep_parts(k, given, is_preserved);
    ask_doors(&k->image);
    return &k->image;
}

/* --- files --- */

struct tl_captured_image *tl_capture_file(const char *path, const void *caller)
{
    char loader[1024] = "";
    struct stat st;
    char *copy;
    size_t n;
    (void)is_in_object(caller, loader, sizeof loader);
    struct kept *k = keep(path != NULL ? path : "", loader);
    /* What is no file is left to the driver: reading from a pipe would take from it. */
    if (k == NULL || path == NULL || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return k != NULL ? &k->image : NULL;
    if (tl_file_read(path, SIZE_MAX, &copy, &n) == 0 && n > 0)
        own(&k->image, copy, n);
    else
        free(copy);
    ask_doors(&k->image);
    return &k->image;
}
