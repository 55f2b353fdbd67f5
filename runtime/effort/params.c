/* The parameters of a kernel, from its image; see the header. */
#include "runtime/effort/params.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/kernel.h"
#include "runtime/effort/texts.h"
#include "tally/effort.h"
#include "tally/image.h"

enum { MAX_PARAMS = 1024 };

/* As PTX and machine code both have them. */
struct list {
    struct tl_eff_param params[MAX_PARAMS];
    uint32_t n;
};

static int of_text(const struct tl_eff_kernel *k, struct list *out, struct tl_error *err)
{
    struct tl_eff_text text;
    struct tl_ptx_param params[MAX_PARAMS];
    int rc = tl_eff_text(k->captured->image, k->name, k->ptx_version, &text, err);
    if (rc == 0)
        rc = tl_ptx_params(text.index, tl_str_of(k->name), params, MAX_PARAMS, &out->n, err);
    for (uint32_t i = 0; rc == 0 && i < out->n; i++)
        out->params[i] = (struct tl_eff_param){params[i].offset, params[i].size};
    return rc;
}

/* Looks for the kernel in all machine code of one architecture. */
struct search {
    const char *kernel;
    uint32_t arch;
    struct list *found;
    bool has_found;
    int rc;
    struct tl_error *err;
};

static int of_cubin(void *data, const struct tl_image *image)
{
    struct search *s = data;
    struct tl_cubin_param params[MAX_PARAMS];
    uint32_t count;
    void *bytes;
    size_t n;
    if (image->kind != TL_IMAGE_CUBIN || image->arch != s->arch)
        return 0;
    s->rc = tl_image_unpack(image, &bytes, &n, s->err);
    if (s->rc < 0)
        return 1;
    s->rc = tl_cubin_params(bytes, n, s->kernel, params, MAX_PARAMS, &count, s->err);
    free(bytes);
    if (s->rc == -ENOENT) {
        s->rc = 0;
        return 0;
    }
    for (uint32_t i = 0; s->rc == 0 && i < count; i++) {
        struct tl_eff_param p = {params[i].offset, params[i].size};
        if (s->has_found &&
            (s->found->n != count || memcmp(&s->found->params[i], &p, sizeof p) != 0))
            s->rc = tl_error_set(s->err, -EMLINK, "two of the name with other parameters");
        s->found->params[i] = p;
    }
    s->found->n = count;
    s->has_found = true;
    return s->rc < 0;
}

static int of_code(const struct tl_eff_kernel *k, int binary_version, struct list *out,
                   struct tl_error *err)
{
    const struct tl_captured_image *image = k->captured->image;
    struct search s = {
        .kernel = k->name, .arch = (uint32_t)binary_version, .found = out, .err = err};
    if (binary_version <= 0 || image->bytes == NULL)
        return tl_error_set(err, -ENOENT, "no machine code of it");
    int rc = tl_image_walk_memory(image->bytes, image->n != 0 ? image->n : SIZE_MAX, of_cubin, &s,
                                  err);
    if (rc < 0 || s.rc < 0)
        return s.rc < 0 ? s.rc : rc;
    return s.has_found ? 0 : tl_error_set(err, -ENOENT, "neither PTX nor machine code of it");
}

int tl_eff_params(struct tl_eff_kernel *k, int binary_version, struct tl_error *err)
{
    if (k->captured == NULL || k->captured->image == NULL)
        return tl_error_set(err, -ENOENT, "its image was not seen");
    struct list *l = calloc(1, sizeof *l);
    struct tl_eff_param *params = NULL;
    int rc = l != NULL ? of_text(k, l, err) : -ENOMEM;
    if (rc < 0 && rc != -ENOMEM)
        rc = of_code(k, binary_version, l, err);
    if (rc == 0) {
        params = malloc((l->n + 1) * sizeof *params);
        rc = params != NULL ? 0 : -ENOMEM;
    }
    if (rc == 0) {
        memcpy(params, l->params, l->n * sizeof *params);
        k->params = params;
        k->n_params = l->n;
        k->param_bytes = l->n > 0 ? params[l->n - 1].offset + params[l->n - 1].size : 0;
    }
    free(l);
    return rc;
}
