/* Open addressing with linear probing: see table.h. */
#include "tally/table.h"
#include "tally/hash.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 16 };

/* Where the text is, or where it would go; there is a free slot. */
static struct tl_table_slot *slot_of(const struct tl_table *t, struct tl_str key, uint32_t hash)
{
    uint32_t mask = t->n_slots - 1;
    for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
        struct tl_table_slot *s = &t->slots[i];
        if (s->p == NULL || (s->hash == hash && s->n == key.n && memcmp(s->p, key.p, key.n) == 0))
            return s;
    }
}

static bool grow(struct tl_table *t)
{
    uint32_t n = t->n_slots == 0 ? FIRST_SLOTS : t->n_slots * 2;
    struct tl_table bigger = {NULL, n, t->n};
    if (n > t->n_slots)
        bigger.slots = calloc(n, sizeof *bigger.slots);
    if (bigger.slots == NULL)
        return false;
    for (uint32_t i = 0; i < t->n_slots; i++) {
        const struct tl_table_slot *s = &t->slots[i];
        if (s->p != NULL)
            *slot_of(&bigger, (struct tl_str){s->p, s->n}, s->hash) = *s;
    }
    free(t->slots);
    *t = bigger;
    return true;
}

void *tl_table_get(const struct tl_table *t, struct tl_str key)
{
    if (key.p == NULL)
        key.p = "";
    return t->n_slots != 0 ? slot_of(t, key, tl_hash(key.p, key.n))->value : NULL;
}

void **tl_table_place(struct tl_table *t, struct tl_str key)
{
    if (key.p == NULL)
        key.p = "";
    uint32_t hash = tl_hash(key.p, key.n);
    struct tl_table_slot *s = t->n_slots != 0 ? slot_of(t, key, hash) : NULL;
    if (s == NULL || (s->p == NULL && t->n >= t->n_slots / 4 * 3)) {
        if (!grow(t))
            return NULL;
        s = slot_of(t, key, hash);
    }
    if (s->p == NULL) {
        *s = (struct tl_table_slot){key.p, key.n, hash, NULL};
        t->n++;
    }
    return &s->value;
}

void *tl_table_next(const struct tl_table *t, uint32_t *at)
{
    while (*at < t->n_slots) {
        void *value = t->slots[(*at)++].value;
        if (value != NULL)
            return value;
    }
    return NULL;
}

void tl_table_finish(struct tl_table *t)
{
    free(t->slots);
    *t = (struct tl_table){0};
}
