/* From a handle to what is known of it.  Finding takes no lock and allocates nothing, because every
 * launch does it; changes are rare and take one.  Entries of the map are never given back, only
 * their values change: drivers use addresses again. */
#ifndef TALLY_INTERCEPT_CAPTURE_MAP_H
#define TALLY_INTERCEPT_CAPTURE_MAP_H

#include "tally/hash.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tally/lock.h"

struct tl_map_entry {
    _Atomic uintptr_t key; /* 0: free, and the end of a search */
    void *_Atomic value;   /* NULL: removed */
};

struct tl_map_table {
    struct tl_map_table *older; /* kept, since somebody may still be reading it */
    size_t n, mask;
    struct tl_map_entry entries[];
};

struct tl_map {
    struct tl_map_table *_Atomic table;
    struct tl_mutex lock; /* of changes */
    /* the owner also finds under a lock of its own, so that old tables are freed */
    bool is_guarded;
};
#define TL_MAP_EMPTY                                                                               \
    {                                                                                              \
        .lock = TL_MUTEX_INITIALIZER                                                               \
    }
#define TL_MAP_GUARDED                                                                             \
    {                                                                                              \
        .lock = TL_MUTEX_INITIALIZER, .is_guarded = true                                           \
    }

static inline size_t tl_map_hash(uintptr_t key)
{
    return (size_t)(tl_hash_number(key) >> 24);
}

/* The value, or NULL.  Lock-free. */
static inline void *tl_map_find(struct tl_map *m, uintptr_t key)
{
    struct tl_map_table *t = atomic_load_explicit(&m->table, memory_order_acquire);
    if (t == NULL || key == 0)
        return NULL;
    for (size_t i = tl_map_hash(key) & t->mask;; i = (i + 1) & t->mask) {
        uintptr_t k = atomic_load_explicit(&t->entries[i].key, memory_order_acquire);
        if (k == key)
            return atomic_load_explicit(&t->entries[i].value, memory_order_acquire);
        if (k == 0)
            return NULL;
    }
}

/* Puts a value (NULL removes).  0, -EINVAL (key 0), -ENOMEM. */
int tl_map_put(struct tl_map *m, uintptr_t key, void *value);
/* The value that is there, or else the one put now; NULL if there is no memory for it. */
void *tl_map_keep(struct tl_map *m, uintptr_t key, void *value);
/* Calls `visit` for every value.  Lock-free; what is put meanwhile may be missed. */
void tl_map_each(struct tl_map *m, void (*visit)(void *data, uintptr_t key, void *value),
                 void *data);
/* In the child of a fork: nobody holds the lock. */
void tl_map_forked(struct tl_map *m);

#endif
