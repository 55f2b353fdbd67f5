/* Remarks for the reader, each kept once and counted. */
#include "runtime/record/internal.h"
#include "tally/hash.h"

#include <string.h>

/* Whether the place has this text, or takes it now.  Texts of one hash are one text. */
static bool is_place_of(struct tl_record *r, struct tl_record_note *place, uint64_t hash,
                        const char *text)
{
    uint64_t state = 0;
    if (atomic_compare_exchange_strong_explicit(&place->state, &state, hash << 1,
                                                memory_order_acquire, memory_order_acquire)) {
        strncpy(place->text, text, TL_RECORD_NOTE_BYTES - 1); /* the file is zero: a NUL follows */
        tl__record_touch(r, place, sizeof *place);
        atomic_store_explicit(&place->state, hash << 1 | 1, memory_order_release);
        tl__record_touch(r, &place->state, 1);
        return true;
    }
    return state >> 1 == hash;
}

void tl_record_note(struct tl_record *r, const char *text)
{
    if (r == NULL)
        return;
    uint64_t hash = tl_hash(text, strnlen(text, TL_RECORD_NOTE_BYTES - 1));
    if (hash == 0)
        hash = 1; /* 0 is the mark of a free place */
    for (uint32_t i = 0; i < TL_RECORD_NOTES; i++) {
        struct tl_record_note *place = &r->file->notes[i];
        if (is_place_of(r, place, hash, text)) {
            tl__record_add(r, &place->times, 1);
            return;
        }
    }
    atomic_store_explicit(&r->file->head.is_full, 1, memory_order_relaxed);
    tl__record_touch(r, &r->file->head.is_full, 1);
}
