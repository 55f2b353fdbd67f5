/* Separately compiled programs.  What nvcc -rdc=true links is machine code; a GPU that this is not
 * for gets the program all the same, because its driver links the parts' PTX when it is loaded.  So
 * do we, and for machine code that would fit as well, since it is run as its PTX. */
#include "device/driver/linked.h"

#include "device/driver/link.h"
#include "device/driver/log.h"
#include "tally/join.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct parts {
    const void **containers;
    uint32_t n_containers;
    struct tl_ptx_part *list; /* two more than there are containers: the driver's own */
    char **texts;
    uint32_t n;
    uint64_t bytes;
};

static void finish(struct parts *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        tl_ptx_index_destroy((struct tl_ptx_index *)p->list[i].index);
        free(p->texts[i]);
    }
    free(p->list);
    free(p->texts);
    free(p->containers);
}

static CUresult result_of(int rc)
{
    return rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
}

/* Takes the text.  Whatever is not wanted of the device runtime stays out. */
static CUresult add_text(struct parts *p, char *text, size_t n, bool is_library)
{
    struct tl_error err = {0};
    struct tl_ptx_index *index;
    p->bytes += n;
    int rc = p->bytes < INT32_MAX
                 ? tl_ptx_index_create(&index, text, n, "part", &err)
                 : tl_error_set(&err, -EFBIG, "its parts have 2 GiB of PTX and more");
    if (rc < 0) {
        tl_drv_warn("a separately compiled program is refused: %s", err.text);
        free(text);
        return rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
    }
    p->list[p->n] = (struct tl_ptx_part){.index = index, .is_library = is_library};
    p->texts[p->n++] = text;
    return CUDA_SUCCESS;
}

/* What of a part there is in place of PTX that can be taken. */
struct lack {
    struct tl_buf list;
    uint32_t n_lto;
};

static int note_lack(void *data, const struct tl_image *image)
{
    struct lack *l = data;
    char name[16];
    if (image->kind == TL_IMAGE_LTO)
        l->n_lto++;
    else
        tl_buf_printf(&l->list, "%s%s for %s", l->list.n > 0 ? ", " : "",
                      image->kind == TL_IMAGE_PTX ? "PTX" : "machine code",
                      tl_image_arch_name(image, name));
    return 0;
}

/* A part without PTX.  That of the device runtime is in every program, and mostly not needed; what
 * needs it is refused by the function's name when it is launched. */
static CUresult refuse(const struct parts *p, uint32_t i, const struct tl_drv_choice *linked)
{
    struct lack l = {0};
    if (tl_image_is_runtime(p->containers[i]))
        return CUDA_SUCCESS;
    tl_image_walk_memory(p->containers[i], SIZE_MAX, note_lack, &l, NULL);
    tl_drv_warn("a separately compiled program is refused: part %u of the %u that it was linked of "
                "has no PTX %s, only %s%s.  Compile all of them with PTX (nvcc -rdc=true -gencode "
                "arch=compute_80,code=compute_80)",
                i + 1, p->n_containers,
                linked->has_code ? "that the linked machine code was made of"
                                 : "for this device's compute capability or lower",
                l.list.p != NULL ? l.list.p
                : l.n_lto > 0    ? "LTO-IR"
                                 : "an empty fatbin",
                l.list.p != NULL && l.n_lto > 0 ? " and LTO-IR" : "");
    tl_buf_finish(&l.list);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult add_part(struct parts *p, uint32_t i, const struct tl_drv_choice *linked)
{
    struct tl_drv_choice c;
    struct tl_error err = {0};
    void *text;
    size_t n;
    int rc = tl_drv_choose(&c, p->containers[i], linked->has_code ? linked->code.arch : 0, &err);
    free(c.code_bytes);
    if (rc == 0 && c.n_seen == 0)
        return CUDA_SUCCESS; /* it defines nothing */
    if (rc == 0 && (!c.has_one || (linked->has_code && !c.has_code)))
        return refuse(p, i, linked);
    if (rc == 0)
        rc = tl_image_unpack(&c.best, &text, &n, &err);
    if (rc == 0)
        return add_text(p, text, n, tl_image_names_runtime(text, n));
    tl_drv_warn("image refused: %s", err.text);
    return result_of(rc);
}

static CUresult add_own(struct parts *p, const char *own)
{
    char *text = strdup(own);
    return text != NULL ? add_text(p, text, strlen(text), true) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_all(struct parts *p, const struct tl_drv_choice *linked)
{
    p->list = calloc((size_t)p->n_containers + 2, sizeof *p->list);
    p->texts = calloc((size_t)p->n_containers + 2, sizeof *p->texts);
    if (p->list == NULL || p->texts == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* in front of the program's own copy of the runtime: of two libraries the first counts */
    CUresult r = add_own(p, tl_drv_link_runtime);
    if (r == CUDA_SUCCESS)
        r = add_own(p, tl_drv_link_nest);
    for (uint32_t i = 0; r == CUDA_SUCCESS && i < p->n_containers; i++)
        r = add_part(p, i, linked);
    return r;
}

CUresult tl_drv_linked_text(const void *image, const struct tl_drv_choice *linked, char **text,
                            size_t *n)
{
    struct parts p = {0};
    struct tl_error err = {0};
    int rc = tl_image_parts(image, SIZE_MAX, &p.containers, &p.n_containers, &err);
    if (rc < 0) {
        tl_drv_warn("image refused: %s", err.text);
        return result_of(rc);
    }
    if (p.n_containers == 0)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    CUresult r = add_all(&p, linked);
    if (r == CUDA_SUCCESS)
        r = tl_drv_join(p.list, p.n, 0, text, n);
    finish(&p);
    return r;
}
