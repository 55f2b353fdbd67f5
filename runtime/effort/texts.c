/* The PTX texts that an image carries: unpacked when they are first wanted, looked into when a
 * kernel of theirs is asked for. */
#include "runtime/effort/texts.h"
#include "tally/array.h"
#include "tally/digest.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/effort/linked.h"
#include "runtime/effort/real.h"
#include "runtime/effort/twin.h"
#include "tally/effort.h"
#include "tally/image.h"

enum { MAX_TRIES = 4 };  /* architectures for which parts are joined, of one image */
enum { MAX_TWINS = 32 }; /* texts of one image that have the same kernel: one per architecture */

/* PTX texts of an image, best first; made once per image, kept in its `user`, and gone with it. */
struct text {
    char *bytes;
    size_t n;
    uint32_t arch;
    uint8_t digest[TL_DIGEST_BYTES];
    bool is_borrowed, has_failed;
    struct tl_ptx_index *index; /* made when it is looked at */
};
struct texts {
    struct text **list;
    uint32_t n, cap;
    uint32_t capability; /* of the device: 90 for 9.0 */
    bool has_special;    /* machine code that is for it, or its family, only: sm_90a */
    /* of a separately compiled program: for which architectures its parts were joined or could not
     * be, and why not */
    struct {
        int arch;
        struct tl_error why;
    } tries[MAX_TRIES];
    uint32_t n_tries;
};

/* guards texts while they are made and looked for */
static struct tl_mutex texts_lock = TL_MUTEX_INITIALIZER;

static void add_text(struct texts *t, char *bytes, size_t n, uint32_t arch, bool is_borrowed)
{
    struct text *x = calloc(1, sizeof *x);
    if (x == NULL || !TL_ARRAY_FIT(t->list, t->cap, t->n + 1)) {
        free(x);
        if (!is_borrowed)
            free(bytes);
        return;
    }
    *x = (struct text){.bytes = bytes, .n = n, .arch = arch, .is_borrowed = is_borrowed};
    tl_digest_of(bytes, n, x->digest);
    uint32_t at = t->n++;
    for (; at > 0 && t->list[at - 1]->arch < arch; at--)
        t->list[at] = t->list[at - 1];
    t->list[at] = x;
}

static bool is_special_for(const struct tl_image *image, uint32_t capability)
{
    return image->is_arch_specific ? image->arch == capability
                                   : image->is_family_specific && image->arch <= capability &&
                                         image->arch / 10 == capability / 10;
}

/* What the device may load of an image. */
static int visit_image(void *data, const struct tl_image *image)
{
    struct texts *t = data;
    void *bytes;
    size_t n;
    t->has_special |= image->kind == TL_IMAGE_CUBIN && is_special_for(image, t->capability);
    if (image->kind != TL_IMAGE_PTX || image->arch > t->capability ||
        tl_image_unpack(image, &bytes, &n, NULL) < 0)
        return 0;
    add_text(t, bytes, n, image->arch, false);
    return 0;
}

TL_REQUIRES(texts_lock)
static struct texts *texts_of(struct tl_captured_image *image, struct tl_error *err)
{
    if (image->user != NULL)
        return image->user;
    struct texts *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    int major = 0, minor = 0;
    CUdevice device;
    if (tl_eff_real.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
        tl_eff_real.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                         device);
        tl_eff_real.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                         device);
    }
    t->capability = (uint32_t)(10 * major + minor);
    if (image->ptx != NULL)
        add_text(t, (char *)image->ptx, image->ptx_n, UINT32_MAX, true);
    else if (image->bytes != NULL)
        tl_image_walk_memory(image->bytes, image->n != 0 ? image->n : SIZE_MAX, visit_image, t,
                             err);
    image->user = t;
    return t;
}

/* All its kernels and their variants have gone before, each under the lock, so nobody looks at it
 * any more. */
void tl_eff_texts_forget(struct tl_captured_image *image)
{
    struct texts *t = image->user;
    for (uint32_t i = 0; t != NULL && i < t->n; i++) {
        tl_ptx_index_destroy(t->list[i]->index);
        if (!t->list[i]->is_borrowed)
            free(t->list[i]->bytes);
        free(t->list[i]);
    }
    if (t != NULL)
        free(t->list);
    free(t);
    image->user = NULL;
}

/* What is in a text, which is looked into when it is asked for the first time; NULL if it is
 * broken. */
TL_REQUIRES(texts_lock)
static const struct tl_ptx_index *index_of(struct text *x, const char *name, struct tl_error *err)
{
    if (x->index == NULL && !x->has_failed)
        x->has_failed = tl_ptx_index_create(&x->index, x->bytes, x->n, name, err) < 0;
    return x->index;
}

static bool is_kernel(const struct tl_ptx_item *item)
{
    return item != NULL && item->kind == TL_PTX_ITEM_ENTRY && item->body != 0;
}

TL_REQUIRES(texts_lock)
static bool has_kernel(struct text *x, const char *name, struct tl_error *err)
{
    const struct tl_ptx_index *index = index_of(x, name, err);
    return index != NULL && is_kernel(tl_ptx_index_find(index, tl_str_of(name)));
}

void tl_eff_text_names(struct tl_captured_image *image,
                       bool (*visit)(void *data, struct tl_str name), void *data)
{
    tl_mutex_lock(&texts_lock);
    struct texts *t = texts_of(image, NULL);
    bool goes_on = true;
    for (uint32_t i = 0; t != NULL && i < t->n && goes_on; i++) {
        const struct tl_ptx_index *index = index_of(t->list[i], "PTX", NULL);
        for (uint32_t k = 0; index != NULL && k < tl_ptx_index_count(index) && goes_on; k++) {
            const struct tl_ptx_item *item = tl_ptx_index_item(index, k);
            goes_on = !is_kernel(item) || visit(data, item->name);
        }
    }
    tl_mutex_unlock(&texts_lock);
}

/* Of a separately compiled program the text is put together when it is first asked for.  Why it
 * cannot be; NULL if there was no such reason. */
TL_REQUIRES(texts_lock)
static const char *join_parts(const struct tl_captured_image *image, struct texts *t, int arch)
{
    char *text;
    size_t n;
    if (image->n_parts == 0 || arch <= 0)
        return NULL;
    for (uint32_t i = 0; i < t->n_tries; i++)
        if (t->tries[i].arch == arch)
            return t->tries[i].why.text[0] != 0 ? t->tries[i].why.text : NULL;
    if (t->n_tries == MAX_TRIES)
        return "its parts were linked for too many architectures";
    struct tl_error *why = &t->tries[t->n_tries].why;
    t->tries[t->n_tries++].arch = arch;
    if (tl_eff_linked_text(image, (uint32_t)arch, t->capability, &text, &n, why) < 0)
        return why->text;
    add_text(t, text, n, (uint32_t)arch, false);
    return NULL;
}

/* The place in the list of the kernel's twin. */
TL_REQUIRES(texts_lock)
static int text_with(const struct tl_captured_image *image, struct texts *t, const char *kernel,
                     int ptx_version, struct text **out, struct tl_error *err)
{
    const char *why = join_parts(image, t, ptx_version);
    struct tl_eff_twin twins[MAX_TWINS];
    struct text *texts[MAX_TWINS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n && n < MAX_TWINS; i++)
        if (has_kernel(t->list[i], kernel, err)) {
            texts[n] = t->list[i];
            twins[n++] = (struct tl_eff_twin){tl_ptx_index_target(t->list[i]->index),
                                              t->list[i]->digest};
        }
    if (n == 0)
        return tl_error_set(err, -ENOENT, "%s", why != NULL ? why : "no PTX of it");
    int rc = tl_eff_twin_of(twins, n, ptx_version, err);
    if (rc < 0)
        return rc;
    /* The driver tells the same number of both, and source may ask which it is compiled for. */
    struct tl_str target = twins[rc].target;
    if (t->has_special && target.p[target.n - 1] >= '0' && target.p[target.n - 1] <= '9')
        return tl_error_set(
            err, -ENOENT,
            "its machine code may be for this architecture only, its PTX is for " TL_STR_FMT,
            TL_STR_ARG(target));
    *out = texts[rc];
    return 0;
}

/* Texts and indices never change once they are made. */
int tl_eff_text(struct tl_captured_image *image, const char *kernel, int ptx_version,
                struct tl_eff_text *out, struct tl_error *err)
{
    struct text *x = NULL;
    tl_mutex_lock(&texts_lock);
    struct texts *t = texts_of(image, err);
    int rc = t != NULL ? text_with(image, t, kernel, ptx_version, &x, err) : -ENOMEM;
    tl_mutex_unlock(&texts_lock);
    if (rc == 0)
        *out = (struct tl_eff_text){x->index, x->digest};
    return rc;
}

/* The lock may be held by a thread that the child has not. */
TL_UNCHECKED void tl_eff_texts_forked(void)
{
    tl_mutex_init(&texts_lock);
}
