/* Counts device memory; see the header. */
#include "intercept/memory/account.h"
#include "tally/array.h"
#include "tally/check.h"
#include "tally/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tl_account_item {
    struct tl_account_item *next; /* in its slot */
    uint64_t key, bytes;
    void *context;
    unsigned device;
    enum tl_account_kind kind;
};

/* Lives as long as a handle or a mapping of it does. */
struct tl_account_physical {
    struct tl_account_physical *next, *previous;
    uint64_t bytes;
    uint32_t handles, mappings;
    unsigned device;
};

void tl_account_finish(struct tl_account *a)
{
    for (size_t i = 0; i < a->cap; i++)
        while (a->slots[i] != NULL) {
            struct tl_account_item *item = a->slots[i];
            a->slots[i] = item->next;
            free(item);
        }
    while (a->physical != NULL) {
        struct tl_account_physical *p = a->physical;
        a->physical = p->next;
        free(p);
    }
    free(a->slots);
    free(a->mappings);
    *a = (struct tl_account){0};
}

/* --- sizes ------------------------------------------------------------------------------------ */

uint64_t tl_account_round(uint64_t bytes)
{
    return bytes > UINT64_MAX - TL_ACCOUNT_GRAIN
               ? UINT64_MAX
               : (bytes + TL_ACCOUNT_GRAIN - 1) / TL_ACCOUNT_GRAIN * TL_ACCOUNT_GRAIN;
}

uint64_t tl_account_array(uint64_t width, uint64_t height, uint64_t depth, uint64_t element,
                          uint32_t levels)
{
    uint64_t sum = 0;
    if (width == 0 || element == 0)
        return 0;
    for (uint32_t i = 0; i < levels && i < 64; i++) {
        uint64_t w = width >> i, h = height >> i, d = depth >> i, bytes;
        if (__builtin_mul_overflow(w != 0 ? w : 1, h != 0 ? h : 1, &bytes) ||
            __builtin_mul_overflow(bytes, d != 0 ? d : 1, &bytes) ||
            __builtin_mul_overflow(bytes, element, &bytes) ||
            __builtin_add_overflow(sum, tl_account_round(bytes), &sum))
            return UINT64_MAX;
    }
    return sum;
}

/* --- sums ------------------------------------------------------------------------------------- */

static unsigned index_of(unsigned device)
{
    return device < TL_ACCOUNT_DEVICES ? device : TL_ACCOUNT_DEVICES - 1;
}

uint64_t tl_account_held(const struct tl_account *a, unsigned device)
{
    return a->devices[index_of(device)].given + a->devices[index_of(device)].rest;
}

int64_t tl_account_rest(struct tl_account *a, unsigned device, uint64_t bytes)
{
    uint64_t before = a->devices[index_of(device)].rest;
    a->devices[index_of(device)].rest = bytes;
    return (int64_t)(bytes - before);
}

static void count(struct tl_account *a, unsigned device, uint64_t bytes, bool is_pooled)
{
    a->devices[index_of(device)].given += bytes;
    if (is_pooled)
        a->devices[index_of(device)].pooled += bytes;
}

static struct tl_account_lost discount(struct tl_account *a, unsigned device, uint64_t bytes,
                                       bool is_pooled)
{
    TL_CHECK(a->devices[index_of(device)].given >= bytes);
    a->devices[index_of(device)].given -= bytes;
    if (is_pooled)
        a->devices[index_of(device)].pooled -= bytes;
    return (struct tl_account_lost){bytes, device};
}

/* --- what has an address or a handle ---------------------------------------------------------- */

static struct tl_account_item **place_of(const struct tl_account *a, enum tl_account_kind kind,
                                         uint64_t key)
{
    struct tl_account_item **at =
        &a->slots[(tl_hash_number(key * TL_MEM_KINDS + kind) >> 24) & (a->cap - 1)];
    while (*at != NULL && ((*at)->key != key || (*at)->kind != kind))
        at = &(*at)->next;
    return at;
}

static int grow(struct tl_account *a)
{
    struct tl_account old = *a;
    size_t cap = a->cap != 0 ? 2 * a->cap : 256;
    struct tl_account_item **slots = calloc(cap, sizeof *slots);
    if (slots == NULL)
        return a->cap != 0 ? 0 : -ENOMEM; /* longer chains do as well */
    a->slots = slots;
    a->cap = cap;
    for (size_t i = 0; i < old.cap; i++)
        while (old.slots[i] != NULL) {
            struct tl_account_item *item = old.slots[i], **at = place_of(a, item->kind, item->key);
            old.slots[i] = item->next;
            item->next = *at; /* which is NULL: there are no two of a key */
            *at = item;
        }
    free(old.slots);
    return 0;
}

struct tl_account_lost tl_account_remove(struct tl_account *a, enum tl_account_kind kind,
                                         uint64_t key, void **context)
{
    struct tl_account_item **at = a->cap != 0 ? place_of(a, kind, key) : NULL;
    if (at == NULL || *at == NULL)
        return (struct tl_account_lost){0};
    struct tl_account_item *item = *at;
    struct tl_account_lost lost = discount(a, item->device, item->bytes, kind == TL_MEM_POOLED);
    if (context != NULL)
        *context = item->context;
    *at = item->next;
    a->n--;
    free(item);
    return lost;
}

int tl_account_add(struct tl_account *a, enum tl_account_kind kind, uint64_t key, uint64_t bytes,
                   unsigned device, void *context, struct tl_account_lost *lost)
{
    *lost = tl_account_remove(a, kind, key, NULL);
    if (a->n >= a->cap && grow(a) < 0)
        return -ENOMEM;
    struct tl_account_item *item = malloc(sizeof *item);
    if (item == NULL)
        return -ENOMEM;
    struct tl_account_item **at = place_of(a, kind, key);
    *item = (struct tl_account_item){NULL, key, bytes, context, device, kind};
    *at = item;
    a->n++;
    count(a, device, bytes, kind == TL_MEM_POOLED);
    return 0;
}

void tl_account_context_gone(struct tl_account *a, const void *context,
                             void (*lost)(void *data, struct tl_account_lost lost), void *data)
{
    for (size_t i = 0; i < a->cap; i++)
        for (struct tl_account_item **at = &a->slots[i]; *at != NULL;) {
            struct tl_account_item *item = *at;
            /* pools and physical memory are their device's, not a context's */
            if (item->context != context || item->kind == TL_MEM_POOLED ||
                item->kind == TL_MEM_HANDLE) {
                at = &item->next;
                continue;
            }
            *at = item->next;
            a->n--;
            lost(data, discount(a, item->device, item->bytes, false));
            free(item);
        }
}

/* --- physical memory -------------------------------------------------------------------------- */

static struct tl_account_physical *find_handle(const struct tl_account *a, uint64_t handle)
{
    struct tl_account_item **at = a->cap != 0 ? place_of(a, TL_MEM_HANDLE, handle) : NULL;
    return at != NULL && *at != NULL ? (*at)->context : NULL;
}

/* From a number to what it stands for, as an item of no bytes. */
static int add_handle(struct tl_account *a, uint64_t handle, struct tl_account_physical *p)
{
    struct tl_account_lost nothing;
    return tl_account_add(a, TL_MEM_HANDLE, handle, 0, p->device, p, &nothing);
}

int tl_account_create(struct tl_account *a, uint64_t handle, uint64_t bytes, unsigned device)
{
    struct tl_account_physical *p = malloc(sizeof *p);
    if (p == NULL)
        return -ENOMEM;
    *p = (struct tl_account_physical){a->physical, NULL, bytes, 1, 0, device};
    if (add_handle(a, handle, p) < 0) {
        free(p);
        return -ENOMEM;
    }
    if (a->physical != NULL)
        a->physical->previous = p;
    a->physical = p;
    count(a, device, bytes, false);
    return 0;
}

/* If nobody has it any more it goes. */
static struct tl_account_lost let_go(struct tl_account *a, struct tl_account_physical *p)
{
    if (p->handles > 0 || p->mappings > 0)
        return (struct tl_account_lost){0};
    *(p->previous != NULL ? &p->previous->next : &a->physical) = p->next;
    if (p->next != NULL)
        p->next->previous = p->previous;
    struct tl_account_lost lost = discount(a, p->device, p->bytes, false);
    free(p);
    return lost;
}

struct tl_account_lost tl_account_release(struct tl_account *a, uint64_t handle)
{
    struct tl_account_physical *p = find_handle(a, handle);
    if (p == NULL)
        return (struct tl_account_lost){0};
    if (--p->handles == 0) /* the driver may give the number to another one */
        (void)tl_account_remove(a, TL_MEM_HANDLE, handle, NULL);
    return let_go(a, p);
}

/* The first mapping that ends behind an address. */
static size_t first_behind(const struct tl_account *a, uint64_t at)
{
    size_t low = 0, high = a->n_mappings;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (a->mappings[middle].at + a->mappings[middle].bytes <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void tl_account_retain(struct tl_account *a, uint64_t handle, uint64_t at)
{
    size_t i = first_behind(a, at);
    if (i == a->n_mappings || a->mappings[i].at > at)
        return;
    struct tl_account_physical *p = a->mappings[i].of, *known = find_handle(a, handle);
    if ((known == NULL || known != p) && add_handle(a, handle, p) < 0)
        return;
    p->handles++;
}

int tl_account_map(struct tl_account *a, uint64_t at, uint64_t bytes, uint64_t handle)
{
    struct tl_account_physical *p = find_handle(a, handle);
    if (p == NULL || bytes == 0)
        return 0;
    if (!TL_ARRAY_FIT(a->mappings, a->cap_mappings, a->n_mappings + 1))
        return -ENOMEM;
    size_t i = first_behind(a, at);
    memmove(a->mappings + i + 1, a->mappings + i, (a->n_mappings - i) * sizeof *a->mappings);
    a->mappings[i] = (struct tl_account_mapping){at, bytes, p};
    a->n_mappings++;
    p->mappings++;
    return 0;
}

void tl_account_unmap(struct tl_account *a, uint64_t at, uint64_t bytes,
                      void (*lost)(void *data, struct tl_account_lost lost), void *data)
{
    size_t i = first_behind(a, at), end = i;
    while (end < a->n_mappings && a->mappings[end].at - at < bytes)
        end++;
    for (size_t k = i; k < end; k++) {
        a->mappings[k].of->mappings--;
        struct tl_account_lost gone = let_go(a, a->mappings[k].of);
        if (gone.bytes != 0)
            lost(data, gone);
    }
    if (end > i) {
        memmove(a->mappings + i, a->mappings + end, (a->n_mappings - end) * sizeof *a->mappings);
        a->n_mappings -= end - i;
    }
}
