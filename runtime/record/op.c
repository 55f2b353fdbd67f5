/* Which operation of the job's framework launched a kernel: launches per pair of kernel and
 * operation.
 *
 * Counted apart, as launches are, and carried over with them.  Pairs beyond
 * RECORD_PAIRS are not counted. */
#include "runtime/record/internal.h"
#include "tally/hash.h"

#include <string.h>

/* --- counting --- */

/* The pair's counter, made if it is new; NULL if there is no room. */
static struct tl_record_pair *pair_of(struct tl_record *r, uint64_t key)
{
    struct tl_record_pair *made = NULL;
    uint32_t probe = (uint32_t)(tl_hash_number(key) >> 40);
    for (uint32_t tries = 0; tries < 64; tries++, probe++) {
        _Atomic uint32_t *slot = &r->pair_table[probe % RECORD_PAIR_SLOTS];
        uint32_t number = atomic_load_explicit(slot, memory_order_acquire);
        if (number == 0) {
            if (made == NULL) {
                if (atomic_load_explicit(&r->n_pairs, memory_order_relaxed) >= RECORD_PAIRS)
                    return NULL;
                uint32_t n = atomic_fetch_add_explicit(&r->n_pairs, 1, memory_order_relaxed);
                if (n >= RECORD_PAIRS)
                    return NULL;
                made = &r->pairs[n];
                atomic_store_explicit(&made->key, key, memory_order_relaxed);
            }
            if (atomic_compare_exchange_strong_explicit(slot, &number,
                                                        (uint32_t)(made - r->pairs) + 1,
                                                        memory_order_acq_rel, memory_order_acquire))
                return made;
        }
        /* One that was made here and loses to another thread's of the same key keeps a count of
         * 0. */
        if (atomic_load_explicit(&r->pairs[number - 1].key, memory_order_relaxed) == key)
            return &r->pairs[number - 1];
    }
    return NULL;
}

void tl_record_op(struct tl_record_kernel *k, uint32_t op)
{
    if (k == NULL || op == 0 || op >= TL_OPS || k->record->ops == NULL)
        return;
    struct tl_record_pair *p = pair_of(k->record, (uint64_t)(k->row + 1) << 32 | op);
    if (p != NULL)
        atomic_fetch_add_explicit(&p->launches, 1, memory_order_relaxed);
}

/* --- publishing --- */

/* Where the operation's name is in the file; 0 if there is no room. */
static uint32_t name_in_file(struct tl_record *r, uint32_t op)
{
    const char *name = atomic_load_explicit((_Atomic(const char *) *)&r->ops->names[op],
                                            memory_order_acquire);
    if (r->op_names[op] != 0 || name == NULL)
        return r->op_names[op];
    size_t n = strnlen(name, TL_RECORD_OP_BYTES);
    uint32_t at = tl__record_take(r, (uint32_t)(sizeof(struct tl_record_op_name) + n));
    if (at == 0)
        return 0;
    struct tl_record_op_name *text = (struct tl_record_op_name *)((char *)r->file + at);
    text->bytes = (uint32_t)n;
    memcpy(text + 1, name, n);
    tl__record_touch(r, text, sizeof *text + n);
    r->op_names[op] = at;
    return at;
}

/* Adds the pair to its kernel's list in the file, whole before it can be seen. */
static void show_pair(struct tl_record *r, struct tl_record_pair *p, uint64_t key)
{
    struct tl_record_kernel_part *part = atomic_load_explicit(&r->kernels[(key >> 32) - 1].part,
                                                              memory_order_acquire);
    uint32_t name = name_in_file(r, (uint32_t)key);
    uint32_t at = part != NULL && name != 0 ? tl__record_take(r, sizeof(struct tl_record_op_part))
                                            : 0;
    if (at == 0)
        return;
    struct tl_record_op_part *o = (struct tl_record_op_part *)((char *)r->file + at);
    o->name = name;
    o->next = atomic_load_explicit(&part->ops, memory_order_relaxed);
    tl__record_touch(r, o, sizeof *o);
    atomic_store_explicit(&part->ops, at, memory_order_release);
    tl__record_touch(r, &part->ops, 1);
    p->shown = o;
}

void tl__record_publish_ops(struct tl_record *r)
{
    if (r->ops == NULL ||
        atomic_exchange_explicit(&r->is_publishing_ops, 1, memory_order_acquire) != 0)
        return; /* another thread does it */
    uint32_t n = atomic_load_explicit(&r->n_pairs, memory_order_relaxed);
    for (uint32_t i = 0; i < n && i < RECORD_PAIRS; i++) {
        struct tl_record_pair *p = &r->pairs[i];
        uint64_t launches = atomic_load_explicit(&p->launches, memory_order_relaxed);
        uint64_t key = atomic_load_explicit(&p->key, memory_order_relaxed);
        if (launches > 0 && key != 0 && p->shown == NULL)
            show_pair(r, p, key);
        if (p->shown != NULL &&
            launches != atomic_load_explicit(&p->shown->launches, memory_order_relaxed)) {
            atomic_store_explicit(&p->shown->launches, launches, memory_order_relaxed);
            tl__record_touch(r, &p->shown->launches, 1);
        }
    }
    atomic_store_explicit(&r->is_publishing_ops, 0, memory_order_release);
}
