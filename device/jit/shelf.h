/* Forms of quick versions (form.h) that are shared: those that one process has compiled, others
 * need not.
 *
 * They stand in memory one behind the other, and more are put behind them while others read: who
 * owns that memory writes an entry first and how many bytes there are then.  An entry is text that
 * a process says of itself: readers check lengths and nothing else, since it is code like any other
 * that a compiler's process makes (docs/security.md). */
#ifndef TALLY_DEVICE_JIT_SHELF_H
#define TALLY_DEVICE_JIT_SHELF_H

#include "tally/base.h"

#include <stdatomic.h>

enum {
    TL_SHELF_BYTES = 64 << 20, /* of a shelf, with its head, at most */
    TL_SHELF_HEAD = 64,
    TL_SHELF_ALIGN = 16,
};

/* The beginning of a shelf; TL_SHELF_HEAD bytes are its own. */
struct tl_shelf {
    _Atomic uint64_t n; /* bytes behind the head: whole entries */
};

/* Followed by the key and the code. */
struct tl_shelf_entry {
    uint32_t bytes; /* in all: a multiple of TL_SHELF_ALIGN */
    uint32_t key_n, code_n;
    uint32_t stack_bytes;
    uint64_t ir_hash; /* of LLVM's text; 0: not known */
    uint8_t has_read, has_code;
    uint8_t unused[6];
};
_Static_assert(sizeof(struct tl_shelf_entry) == 32, "a format on disk");

/* The entry at `p`, of which `n` bytes are there, or NULL if it is none. */
static inline const struct tl_shelf_entry *tl_shelf_entry_at(const void *p, size_t n)
{
    const struct tl_shelf_entry *e = p;
    if (n < sizeof *e || e->bytes > n || e->bytes % TL_SHELF_ALIGN != 0 || e->key_n == 0 ||
        (uint64_t)sizeof *e + e->key_n + e->code_n > e->bytes)
        return NULL;
    return e;
}
static inline struct tl_str tl_shelf_key(const struct tl_shelf_entry *e)
{
    return (struct tl_str){(const char *)(e + 1), e->key_n};
}

/* From now on this process's forms are those on the shelf as well, also those that are put there
 * later; it stays mapped. */
void tl_forms_read(const struct tl_shelf *shelf);
/* Entries of the forms that this process has compiled since this was called last, put behind what
 * is in `out`. */
void tl_forms_tell(struct tl_buf *out);

#endif
