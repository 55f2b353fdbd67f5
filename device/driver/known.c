/* Machine code and its PTX.  A container that holds both says that the one was made of the other;
 * later the same code is recognised wherever it stands.  So is what the ptxas stand-in has compiled
 * (tally/origin.h). */
#include "device/driver/known.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, CODE_ALIGN = 128, MOST_IN_FRONT = 8192 };

/* Only ever grows, at its head. */
static struct tl_drv_known *_Atomic all;
static struct tl_mutex learning = TL_MUTEX_INITIALIZER;
static uint32_t count TL_GUARDED_BY(learning);

const struct tl_drv_known *tl_drv_known_first(void)
{
    return atomic_load_explicit(&all, memory_order_acquire);
}

static bool is_same(const struct tl_origin *a, const struct tl_origin *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (memcmp(a->kernels[i].code, b->kernels[i].code, TL_DIGEST_BYTES) != 0 ||
            strcmp(a->kernels[i].name, b->kernels[i].name) != 0)
            return false;
    return true;
}

const struct tl_drv_known *tl_drv_known_add(struct tl_origin *cubin, struct tl_drv_image *image)
{
    struct tl_drv_known *made = malloc(sizeof *made);
    tl_mutex_lock(&learning);
    const struct tl_drv_known *k = tl_drv_known_first();
    while (k != NULL && !is_same(k->cubin, cubin))
        k = k->next;
    if (k == NULL && made != NULL && count < MOST) {
        tl_drv_lock();
        image->refs++;
        tl_drv_unlock();
        *made = (struct tl_drv_known){atomic_load_explicit(&all, memory_order_relaxed), image,
                                      cubin};
        k = made;
        atomic_store_explicit(&all, made, memory_order_release);
        count++;
    }
    tl_mutex_unlock(&learning);
    if (k != made) {
        tl_origin_free(cubin);
        free(made);
    }
    return k;
}

/* --- on disk ---------------------------------------------------------------------------------- */

static int find_on_disk(struct tl_str name, const uint8_t *code, uint64_t n, struct tl_origin **out)
{
    struct tl_store store;
    char path[TL_STORE_PATH];
    int rc = tl_store_folder(path, NULL);
    if (rc == 0)
        rc = tl_store_open(&store, path, tl_store_limit_mb(), NULL);
    if (rc < 0)
        return rc;
    /* Nobody has said how long what stands in front is, if anything does. */
    rc = -1;
    for (uint64_t front = 0; rc < 0 && front < n && front <= MOST_IN_FRONT; front += CODE_ALIGN)
        rc = tl_origin_find(out, &store, name, code + front, n - front);
    tl_store_close(&store);
    return rc;
}

const struct tl_drv_known *tl_drv_known_recall(struct tl_str name, const uint8_t *code, uint64_t n)
{
    struct tl_origin *o;
    struct tl_drv_image *image;
    if (find_on_disk(name, code, n, &o) < 0)
        return NULL;
    char *text = o->ptx;
    o->ptx = NULL;
    if (tl_drv_image_of_text(text, o->n_ptx, &image) != CUDA_SUCCESS) {
        tl_origin_free(o);
        return NULL;
    }
    const struct tl_drv_known *k = tl_drv_known_add(o, image);
    tl_drv_lock();
    tl_drv_image_unref(image);
    tl_drv_unlock();
    return k;
}
