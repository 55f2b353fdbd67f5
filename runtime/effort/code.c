/* The machine code that an image carries; see the header. */
#include "runtime/effort/code.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/linked.h"
#include "tally/effort.h"
#include "tally/image.h"

/* --- finding ---------------------------------------------------------------------------------- */

static int walk(const struct tl_captured_image *image, tl_image_visitor visit, void *data,
                struct tl_error *err)
{
    if (image->bytes == NULL)
        return tl_error_set(err, -ENOENT, "its image was not kept");
    return tl_image_walk_memory(image->bytes, image->n != 0 ? image->n : SIZE_MAX, visit, data,
                                err);
}

static int open_code(struct tl_eff_code *c, struct tl_error *err)
{
    int rc = tl_cubin_open(&c->cubin, c->bytes, c->n, err);
    if (rc < 0)
        tl_eff_code_finish(c);
    return rc;
}

void tl_eff_code_finish(struct tl_eff_code *c)
{
    tl_cubin_close(c->cubin);
    free(c->bytes);
    *c = (struct tl_eff_code){0};
}

struct search {
    const char *kernel;
    uint32_t arch;
    struct tl_eff_code *found;
    int rc;
    struct tl_error *err;
};

/* One more cubin: the one that is looked for, another with the same kernel, or none. */
static int see(void *data, const struct tl_image *image)
{
    struct search *s = data;
    struct tl_eff_code c = {0};
    if (image->kind != TL_IMAGE_CUBIN || image->arch != s->arch)
        return 0;
    s->rc = tl_image_unpack(image, &c.bytes, &c.n, s->err);
    if (s->rc == 0)
        s->rc = open_code(&c, s->err);
    if (s->rc < 0)
        return 1;
    c.entry = tl_cubin_find(c.cubin, tl_str_of(s->kernel));
    if (c.entry != NULL && s->found->cubin == NULL) {
        *s->found = c;
        return 0;
    }
    bool differs = c.entry != NULL &&
                   (c.n != s->found->n || memcmp(c.bytes, s->found->bytes, c.n) != 0);
    tl_eff_code_finish(&c);
    if (differs)
        s->rc = tl_error_set(s->err, -EMLINK, "two of its cubins might be what the driver runs");
    return differs;
}

int tl_eff_code_of(const struct tl_captured_image *image, const char *kernel, int binary_version,
                   struct tl_eff_code *out, struct tl_error *err)
{
    struct search s = {
        .kernel = kernel, .arch = (uint32_t)binary_version, .found = out, .err = err};
    *out = (struct tl_eff_code){0};
    if (binary_version <= 0)
        return tl_error_set(err, -ENOENT,
                            "the driver does not say of which architecture its code is");
    int rc = walk(image, see, &s, err);
    if (s.rc < 0)
        rc = s.rc;
    if (rc == 0 && out->cubin == NULL)
        rc = tl_error_set(err, -ENOENT, "no machine code of it for sm_%d", binary_version);
    if (rc < 0)
        tl_eff_code_finish(out);
    return rc;
}

/* --- choosing --------------------------------------------------------------------------------- */

struct choice {
    uint32_t capability;
    struct tl_image best; /* its bytes stay where they are while the image does */
    uint32_t n_best;      /* that are as good */
};

/* Code runs on devices of its own generation that are not older than it; what is for one
 * architecture only (sm_90a), there alone; what is for a family, in that. */
static bool can_run(const struct tl_image *image, uint32_t capability)
{
    if (image->is_arch_specific)
        return image->arch == capability;
    return image->arch / 10 == capability / 10 && image->arch <= capability;
}

static int consider(void *data, const struct tl_image *image)
{
    struct choice *c = data;
    if (image->kind != TL_IMAGE_CUBIN || !can_run(image, c->capability))
        return 0;
    if (c->n_best > 0 && image->arch < c->best.arch)
        return 0;
    c->n_best = c->n_best > 0 && image->arch == c->best.arch ? c->n_best + 1 : 1;
    c->best = *image;
    return 0;
}

int tl_eff_code_for(const struct tl_captured_image *image, uint32_t capability,
                    struct tl_eff_code *out, struct tl_error *err)
{
    struct choice c = {.capability = capability};
    *out = (struct tl_eff_code){0};
    int rc = walk(image, consider, &c, err);
    if (rc < 0)
        return rc;
    if (c.n_best != 1)
        return tl_error_set(err, c.n_best == 0 ? -ENOENT : -EMLINK,
                            c.n_best == 0 ? "no machine code that such a device runs"
                                          : "several cubins that the driver might choose");
    rc = tl_image_unpack(&c.best, &out->bytes, &out->n, err);
    return rc == 0 ? open_code(out, err) : rc;
}

/* --- texts ------------------------------------------------------------------------------------ */

static int is_text_for(void *data, const struct tl_image *image)
{
    return image->kind == TL_IMAGE_PTX && image->arch == *(const uint32_t *)data;
}

bool tl_eff_code_has_text(const struct tl_captured_image *image, uint32_t virtual_arch)
{
    return image->ptx != NULL || tl_eff_linked_has(image, virtual_arch) ||
           (image->bytes != NULL && walk(image, is_text_for, &virtual_arch, NULL) > 0);
}
