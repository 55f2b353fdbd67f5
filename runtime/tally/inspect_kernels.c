/* The kernels of a container, by name: a table in the container's arena. */
#include "runtime/tally/inspect.h"
#include "tally/hash.h"

enum { FIRST_SLOTS = 64 };

/* The place of that name: where its kernel is, or where it would go. */
static struct inspect_kernel **slot_of(const struct inspect_kernels *t, struct tl_str name)
{
    uint32_t at = tl_hash(name.p, name.n) & (t->n_slots - 1);
    while (t->slots[at] != NULL && !tl_str_eq(t->slots[at]->name, name))
        at = (at + 1) & (t->n_slots - 1);
    return &t->slots[at];
}

/* Makes the table twice as large.  The old one stays in the arena: all of them together are no
 * larger than the last. */
static void grow(struct inspect_container *c)
{
    struct inspect_kernels old = c->kernels;
    struct inspect_kernels *t = &c->kernels;
    t->n_slots = old.n_slots == 0 ? FIRST_SLOTS : old.n_slots * 2;
    t->slots = cli_must(tl_arena_zalloc(&c->arena, t->n_slots * sizeof t->slots[0]));
    for (uint32_t i = 0; i < old.n_slots; i++)
        if (old.slots[i] != NULL)
            *slot_of(t, old.slots[i]->name) = old.slots[i];
}

struct inspect_kernel *inspect_kernel_named(struct inspect_container *c, struct tl_str name)
{
    if (c->kernels.n * 2 >= c->kernels.n_slots)
        grow(c);
    struct inspect_kernel **slot = slot_of(&c->kernels, name);
    if (*slot == NULL) {
        *slot = cli_must(tl_arena_zalloc(&c->arena, sizeof **slot));
        (*slot)->name = (struct tl_str){cli_must(tl_arena_copy(&c->arena, name)), name.n};
        c->kernels.n++;
    }
    return *slot;
}
