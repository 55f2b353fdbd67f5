/* Separately compiled programs (nvcc -rdc=true): a kernel's PTX is in several parts, and what the
 * driver runs was linked of them: when the program was built, or now, of the same parts.  So the
 * kernel's text is that of all parts, joined; of the architecture that the driver tells, and only
 * if there is no doubt that each part's code is of it too. */
#include "runtime/effort/linked.h"

#include <errno.h>
#include <stdlib.h>

#include "tally/effort.h"
#include "tally/image.h"
#include "tally/join.h"

/* What of one part matters. */
struct part {
    uint32_t arch, capability; /* that are asked for */
    uint32_t n_images, n_texts;
    struct tl_image text, code;
    bool has_code, has_twice; /* code that might as well be taken */
};

/* As a GPU's driver and nvlink choose machine code: of the device's generation, the newest. */
static bool can_run(const struct tl_image *image, uint32_t capability)
{
    if (image->is_arch_specific)
        return image->arch == capability;
    return image->arch / 10 == capability / 10 && image->arch <= capability;
}

static int look(void *data, const struct tl_image *image)
{
    struct part *p = data;
    p->n_images++;
    if (image->kind == TL_IMAGE_PTX && image->arch == p->arch) {
        p->text = *image;
        p->n_texts++;
    }
    if (image->kind == TL_IMAGE_CUBIN && can_run(image, p->capability) &&
        (!p->has_code || image->arch >= p->code.arch)) {
        p->has_twice = p->has_code && image->arch == p->code.arch;
        p->code = *image;
        p->has_code = true;
    }
    return 0;
}

/* Whether machine code is of the PTX.  What is for one architecture or family only (sm_90a) has the
 * same number as what is not, and can be of other source: it has more to compile for. */
static int check_code(const struct part *p, uint32_t number, struct tl_error *err)
{
    void *bytes;
    size_t n;
    char of_code[16], of_text[16];
    if (!p->has_code)
        return 0;
    if (p->has_twice)
        return tl_error_set(err, -EMLINK,
                            "part %u that it was linked of has machine code twice for %s", number,
                            tl_image_arch_name(&p->code, of_code));
    if (p->code.is_arch_specific != p->text.is_arch_specific ||
        p->code.is_family_specific != p->text.is_family_specific)
        return tl_error_set(err, -ENOENT,
                            "the machine code of part %u that it was linked of is for %s, its PTX "
                            "for %s",
                            number, tl_image_arch_name(&p->code, of_code),
                            tl_image_arch_name(&p->text, of_text));
    int rc = tl_image_unpack(&p->code, &bytes, &n, err);
    if (rc < 0)
        return rc;
    uint32_t arch = tl_cubin_virtual_arch(bytes, n);
    free(bytes);
    return arch == p->arch ? 0
                           : tl_error_set(err, -ENOENT,
                                          "the machine code of part %u that it was linked of is of "
                                          "compute_%u, not of compute_%u",
                                          number, arch, p->arch);
}

/* 1 if the part has the text, 0 if it does not count; else why not. */
static int examine(const struct tl_captured_image *image, uint32_t i, struct part *p,
                   struct tl_error *err)
{
    int rc = tl_image_walk_memory(image->parts[i], SIZE_MAX, look, p, err);
    if (rc < 0)
        return rc;
    if (p->n_texts == 1)
        return 1;
    if (p->n_images == 0 || (p->n_texts == 0 && tl_image_is_runtime(image->parts[i])))
        return 0;
    if (p->n_texts == 0)
        return tl_error_set(err, -ENOENT,
                            "part %u of the %u that it was linked of has no PTX for compute_%u",
                            i + 1, image->n_parts, p->arch);
    return tl_error_set(err, -EMLINK,
                        "part %u of the %u that it was linked of has several PTX for compute_%u",
                        i + 1, image->n_parts, p->arch);
}

bool tl_eff_linked_has(const struct tl_captured_image *image, uint32_t arch)
{
    bool has = image->n_parts > 0;
    for (uint32_t i = 0; i < image->n_parts && has; i++) {
        struct part p = {.arch = arch};
        has = examine(image, i, &p, NULL) >= 0;
    }
    return has;
}

struct texts {
    struct tl_ptx_part *list;
    char **bytes;
    uint32_t n;
    uint64_t all;
};

static int add(struct texts *t, const struct part *p, struct tl_error *err)
{
    void *bytes;
    size_t n;
    struct tl_ptx_index *index;
    int rc = tl_image_unpack(&p->text, &bytes, &n, err);
    if (rc < 0)
        return rc;
    t->all += n;
    rc = t->all < INT32_MAX ? tl_ptx_index_create(&index, bytes, n, "part", err)
                            : tl_error_set(err, -EFBIG, "its parts have 2 GiB of PTX and more");
    if (rc < 0) {
        free(bytes);
        return rc;
    }
    /* As a driver takes it, so that the others are numbered as it numbers them. */
    t->list[t->n] = (struct tl_ptx_part){.index = index,
                                         .is_library = tl_image_names_runtime(bytes, n)};
    t->bytes[t->n++] = bytes;
    return 0;
}

static void finish(struct texts *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        tl_ptx_index_destroy((struct tl_ptx_index *)t->list[i].index);
        free(t->bytes[i]);
    }
    free(t->list);
    free(t->bytes);
}

int tl_eff_linked_text(const struct tl_captured_image *image, uint32_t arch, uint32_t capability,
                       char **text, size_t *n, struct tl_error *err)
{
    struct texts t = {0};
    t.list = calloc(image->n_parts + 1, sizeof *t.list);
    t.bytes = calloc(image->n_parts + 1, sizeof *t.bytes);
    int rc = t.list != NULL && t.bytes != NULL ? 0 : tl_error_set(err, -ENOMEM, "out of memory");
    for (uint32_t i = 0; rc == 0 && i < image->n_parts; i++) {
        struct part p = {.arch = arch, .capability = capability};
        rc = examine(image, i, &p, err);
        if (rc > 0)
            rc = check_code(&p, i + 1, err);
        if (rc == 0 && p.n_texts == 1)
            rc = add(&t, &p, err);
    }
    if (rc == 0)
        rc = tl_ptx_join(t.list, t.n, 0, text, n, err);
    finish(&t);
    return rc;
}
