/* Arrays that grow: a pointer, how many there are, how many there is room for.  libc only. */
#ifndef TALLY_ARRAY_H
#define TALLY_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sees to it that `list`, which has room for `cap` items, has room for `need`; `list` and `cap` are
 * variables or members, `cap` of type uint32_t or size_t.  False if there is no memory, or if so
 * many items have no size or count that their types can hold: then nothing has changed.  Room grows
 * by doubling, from `TL_ARRAY_FIRST` on; what is new is not zeroed.
 *
 *     if (!TL_ARRAY_FIT(l->items, l->cap, l->n + 1))
 *         return -ENOMEM;
 *     l->items[l->n++] = item; */
#define TL_ARRAY_FIT(list, cap, need)                                                              \
    _Generic(&(cap), uint32_t *                                                                    \
             : tl__array_fit_32, size_t *                                                          \
             : tl__array_fit)((void *)&(list), sizeof *(list), &(cap), (need))

#define TL_ARRAY_FIRST 8

bool tl__array_fit(void *list, size_t item_bytes, size_t *cap, size_t need);
bool tl__array_fit_32(void *list, size_t item_bytes, uint32_t *cap, size_t need);

#endif
