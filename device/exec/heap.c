/* malloc and free of kernels: a buddy allocator over one reserved range.
 *
 * Kernels can write anywhere, so nothing that the allocator believes in lies inside the range: a
 * kernel that runs over the end of what it got spoils its own data only, and `free` of a wrong
 * pointer is told from a right one. */
#include "device/exec/internal.h"
#include "tally/check.h"
#include "tally/lock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIN_SHIFT 6 /* the smallest piece is a cache line */
#define NOTHING UINT32_MAX

/* What the side table says of the granule where a piece begins. */
enum { INSIDE, FREE = 0x40, TAKEN = 0x80 };

struct tl__heap {
    struct tl_mutex lock; /* guards everything below */
    uint8_t *base;
    uint64_t bytes;
    uint32_t n_orders;     /* order n: pieces of 2^n granules */
    uint8_t *state;        /* per granule: kind | order */
    uint32_t *next, *prev; /* per granule: neighbours in the list of free pieces */
    uint32_t first[34];    /* per order */
    size_t state_bytes, link_bytes;
};

static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void push(struct tl__heap *h, uint32_t at, uint32_t order)
{
    TL_CHECK(order < h->n_orders && (at & ((1U << order) - 1)) == 0);
    h->state[at] = (uint8_t)(FREE | order);
    h->prev[at] = NOTHING;
    h->next[at] = h->first[order];
    if (h->first[order] != NOTHING)
        h->prev[h->first[order]] = at;
    h->first[order] = at;
}

static void unlink_piece(struct tl__heap *h, uint32_t at, uint32_t order)
{
    TL_CHECK(h->state[at] == (FREE | order));
    if (h->prev[at] != NOTHING)
        h->next[h->prev[at]] = h->next[at];
    else
        h->first[order] = h->next[at];
    if (h->next[at] != NOTHING)
        h->prev[h->next[at]] = h->prev[at];
    h->state[at] = INSIDE;
}

struct tl__heap *tl__heap_create(uint64_t bytes)
{
    uint32_t shift = MIN_SHIFT;
    while (shift < MIN_SHIFT + 31 && ((uint64_t)1 << shift) < bytes)
        shift++;
    struct tl__heap *h = calloc(1, sizeof *h);
    if (h == NULL)
        return NULL;
    tl_mutex_init(&h->lock);
    h->bytes = (uint64_t)1 << shift;
    h->n_orders = shift - MIN_SHIFT + 1;
    h->state_bytes = (size_t)(h->bytes >> MIN_SHIFT);
    h->link_bytes = h->state_bytes * 2 * sizeof(uint32_t);
    h->base = reserve(h->bytes);
    h->state = reserve(h->state_bytes);
    h->next = reserve(h->link_bytes);
    if (h->base == NULL || h->state == NULL || h->next == NULL) {
        tl__heap_destroy(h);
        return NULL;
    }
    h->prev = h->next + h->state_bytes;
    memset(h->first, 0xff, sizeof h->first);
    push(h, 0, h->n_orders - 1);
    return h;
}

void tl__heap_destroy(struct tl__heap *h)
{
    if (h == NULL)
        return;
    if (h->base != NULL)
        munmap(h->base, h->bytes);
    if (h->state != NULL)
        munmap(h->state, h->state_bytes);
    if (h->next != NULL)
        munmap(h->next, h->link_bytes);
    tl_mutex_destroy(&h->lock);
    free(h);
}

void *tl__heap_alloc(struct tl__heap *h, uint64_t bytes)
{
    if (bytes == 0 || bytes > h->bytes)
        return NULL;
    uint32_t order = 0;
    while (((uint64_t)1 << (order + MIN_SHIFT)) < bytes)
        order++;
    void *p = NULL;
    tl_mutex_lock(&h->lock);
    uint32_t from = order;
    while (from < h->n_orders && h->first[from] == NOTHING)
        from++;
    if (from < h->n_orders) {
        uint32_t at = h->first[from];
        unlink_piece(h, at, from);
        while (from > order) {
            from--;
            push(h, at + (1U << from), from);
        }
        h->state[at] = (uint8_t)(TAKEN | order);
        p = h->base + ((uint64_t)at << MIN_SHIFT);
    }
    tl_mutex_unlock(&h->lock);
    return p;
}

int tl__heap_free(struct tl__heap *h, void *p)
{
    if (p == NULL)
        return 0;
    uint64_t offset = (uint64_t)((uintptr_t)p - (uintptr_t)h->base);
    if (offset >= h->bytes || offset % (1U << MIN_SHIFT) != 0)
        return -EINVAL;
    uint32_t at = (uint32_t)(offset >> MIN_SHIFT);
    int rc = -EINVAL;
    tl_mutex_lock(&h->lock);
    if ((h->state[at] & TAKEN) != 0) {
        uint32_t order = h->state[at] & 0x3f;
        h->state[at] = INSIDE;
        for (; order + 1 < h->n_orders; order++) {
            uint32_t buddy = at ^ (1U << order);
            if (h->state[buddy] != (FREE | order))
                break;
            unlink_piece(h, buddy, order);
            at &= ~(1U << order);
        }
        push(h, at, order);
        rc = 0;
    }
    tl_mutex_unlock(&h->lock);
    return rc;
}
