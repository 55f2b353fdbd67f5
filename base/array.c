/* Arrays that grow; see the header. */
#include "tally/array.h"

#include <stdlib.h>
#include <string.h>

/* The new room, at most `most`; 0 if what is needed is more. */
static size_t room_for(size_t cap, size_t need, size_t most)
{
    if (need > most)
        return 0;
    size_t room = cap > TL_ARRAY_FIRST / 2 ? cap : TL_ARRAY_FIRST / 2;
    room = room <= most / 2 ? 2 * room : most;
    return room >= need ? room : need;
}

/* `list` is the address of a pointer of some type, which only copying may look at. */
static bool grow(void *list, size_t item_bytes, size_t room)
{
    void *items;
    memcpy(&items, list, sizeof items);
    items = room != 0 ? realloc(items, room * item_bytes) : NULL;
    if (items == NULL)
        return false;
    memcpy(list, &items, sizeof items);
    return true;
}

bool tl__array_fit(void *list, size_t item_bytes, size_t *cap, size_t need)
{
    if (need <= *cap)
        return true;
    size_t room = room_for(*cap, need, PTRDIFF_MAX / item_bytes);
    if (!grow(list, item_bytes, room))
        return false;
    *cap = room;
    return true;
}

bool tl__array_fit_32(void *list, size_t item_bytes, uint32_t *cap, size_t need)
{
    if (need <= *cap)
        return true;
    size_t most = PTRDIFF_MAX / item_bytes;
    size_t room = room_for(*cap, need, most < UINT32_MAX ? most : UINT32_MAX);
    if (!grow(list, item_bytes, room))
        return false;
    *cap = (uint32_t)room;
    return true;
}
