/* Changes of handle maps; see the header. */
#include "intercept/capture/map.h"

#include <errno.h>
#include <stdlib.h>

#include "tally/check.h"
#include "tally/lock.h"

enum { FIRST_ENTRIES = 256 };

/* The entry of a key, or the free one where it belongs; of a table that with_room gave, so there is
 * one. */
static struct tl_map_entry *place(struct tl_map_table *t, uintptr_t key)
{
    size_t i = tl_map_hash(key) & t->mask;
    TL_CHECK(t->n <= t->mask); /* or the search would have no end */
    for (;; i = (i + 1) & t->mask) {
        uintptr_t k = atomic_load_explicit(&t->entries[i].key, memory_order_relaxed);
        if (k == key || k == 0)
            return &t->entries[i];
    }
}

static void enter(struct tl_map_table *t, uintptr_t key, void *value)
{
    struct tl_map_entry *e = place(t, key);
    atomic_store_explicit(&e->value, value, memory_order_release);
    if (atomic_load_explicit(&e->key, memory_order_relaxed) == 0) {
        t->n++;
        /* last: a reader sees whole entries */
        atomic_store_explicit(&e->key, key, memory_order_release);
    }
}

static size_t count(const struct tl_map_table *t)
{
    size_t n = 0;
    for (size_t i = 0; i <= t->mask; i++)
        n += atomic_load_explicit(&t->entries[i].value, memory_order_relaxed) != NULL;
    return n;
}

/* A table with room for one more, at most half full. */
static struct tl_map_table *with_room(struct tl_map *m) TL_REQUIRES(m->lock);
static struct tl_map_table *with_room(struct tl_map *m)
{
    struct tl_map_table *old = atomic_load_explicit(&m->table, memory_order_relaxed);
    if (old != NULL && old->n * 2 <= old->mask)
        return old;
    size_t entries = FIRST_ENTRIES;
    while (old != NULL && entries < 4 * count(old))
        entries *= 2;
    struct tl_map_table *t = calloc(1, sizeof *t + entries * sizeof t->entries[0]);
    if (t == NULL)
        return NULL;
    t->mask = entries - 1;
    for (size_t i = 0; old != NULL && i <= old->mask; i++) {
        void *value = atomic_load_explicit(&old->entries[i].value, memory_order_relaxed);
        if (value != NULL)
            enter(t, atomic_load_explicit(&old->entries[i].key, memory_order_relaxed), value);
    }
    atomic_store_explicit(&m->table, t, memory_order_release);
    if (m->is_guarded)
        free(old);
    else
        t->older = old;
    return t;
}

int tl_map_put(struct tl_map *m, uintptr_t key, void *value)
{
    int rc = key != 0 ? 0 : -EINVAL;
    if (rc < 0 || (value == NULL && tl_map_find(m, key) == NULL))
        return rc;
    tl_mutex_lock(&m->lock);
    struct tl_map_table *t = with_room(m);
    if (t != NULL)
        enter(t, key, value);
    else
        rc = -ENOMEM;
    tl_mutex_unlock(&m->lock);
    return rc;
}

void *tl_map_keep(struct tl_map *m, uintptr_t key, void *value)
{
    if (key == 0)
        return NULL;
    tl_mutex_lock(&m->lock);
    struct tl_map_table *t = with_room(m);
    void *there = t != NULL ? atomic_load_explicit(&place(t, key)->value, memory_order_relaxed)
                            : NULL;
    if (t != NULL && there == NULL) {
        enter(t, key, value);
        there = value;
    }
    tl_mutex_unlock(&m->lock);
    return there;
}

void tl_map_each(struct tl_map *m, void (*visit)(void *data, uintptr_t key, void *value),
                 void *data)
{
    struct tl_map_table *t = atomic_load_explicit(&m->table, memory_order_acquire);
    for (size_t i = 0; t != NULL && i <= t->mask; i++) {
        uintptr_t key = atomic_load_explicit(&t->entries[i].key, memory_order_acquire);
        void *value = key != 0 ? atomic_load_explicit(&t->entries[i].value, memory_order_acquire)
                               : NULL;
        if (value != NULL)
            visit(data, key, value);
    }
}

void tl_map_forked(struct tl_map *m)
{
    tl_mutex_init(&m->lock);
}
