/* Things by name: a hash table from texts to pointers.  libc only.
 *
 * The table owns neither: a text that it is given must stay as long as the table, and so must what
 * is put under it.  Nothing is ever taken out.  For one thread, or under the caller's lock; what
 * several threads read without one has tables of its own, where it is. */
#ifndef TALLY_TABLE_H
#define TALLY_TABLE_H

#include "tally/base.h"

struct tl_table_slot {
    const char *p; /* NULL: free */
    uint32_t n, hash;
    void *value;
};

/* All zero is an empty table. */
struct tl_table {
    struct tl_table_slot *slots; /* open addressing, at most three quarters taken */
    uint32_t n_slots;            /* a power of two, or 0 */
    uint32_t n;                  /* texts */
};

/* What stands under the text; NULL if nothing does. */
void *tl_table_get(const struct tl_table *t, struct tl_str key);
/* The place for what stands under the text: NULL is in it if the text is new, and is kept then.
 * Valid until the next call.  NULL if there is no memory; then nothing has changed. */
void **tl_table_place(struct tl_table *t, struct tl_str key);
/* Goes through all that is there, in no order: begin with `*at` 0, until NULL. */
void *tl_table_next(const struct tl_table *t, uint32_t *at);
void tl_table_finish(struct tl_table *t);

#endif
