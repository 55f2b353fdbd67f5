/* Does a block wait for its turn: until a word equals the block's own number, which only an earlier
 * block can have made it? */
#ifndef TALLY_PTX_SEMAPHORE_H
#define TALLY_PTX_SEMAPHORE_H

#include "ptx_rewrite/affine.h"
#include "ptx_rewrite/roots.h"

struct tl_semaphore {
    struct tl_affines *affines;
    const struct tl_ptx_cfg *cfg;
    const struct tl_ptx_roots *roots;
    struct tl_ptx_set reached; /* scratch, as what follows */
    uint32_t *stack;
    uint8_t *state;  /* per register */
    int64_t *number; /* per register */
    /* Of the wait that is being looked at: */
    const struct tl_ptx_set *loop;
    uint32_t poll;
    bool x_orders;
    bool has_own;
    bool may_store_first; /* the store in question may be of what the first block waits for */
    struct tl_affine polled, own; /* the address, and what the word is compared with */
    /* the instruction that takes the ticket which `own` is, or TL_CFG_NONE */
    uint32_t ticket;
    uint32_t left_from, left_to; /* where the thread that is followed leaves the loop */
    uint32_t steps;              /* of a search through computations */
    /* which parts of %ctaid an address is made of: bits of enum tl_semaphore_part */
    unsigned parts;
};

enum tl_semaphore_part { TL_PART_X = 1, TL_PART_Y = 2, TL_PART_Z = 4 };

/* Requires affines of the function.  0 or -ENOMEM. */
int tl_semaphore_init(struct tl_semaphore *t, struct tl_arena *arena, struct tl_affines *affines,
                      const struct tl_ptx_roots *roots);

/* Whether the load `poll` in `loop` waits for the block's turn, and no more than that.  `x_orders`:
 * blocks with a lower %ctaid.x start earlier (the grid is a line, or nothing asks for another part
 * of the number). */
bool tl_semaphore_waits_for_turn(struct tl_semaphore *t, const struct tl_ptx_set *loop,
                                 uint32_t poll, bool x_orders);

/* Whether a thread of `loop` that gets that number from the instruction `read` leaves the loop
 * before it can read again; it goes from the block `*from` to the block (or the virtual exit)
 * `*to`. */
bool tl_semaphore_leaves_with(struct tl_semaphore *t, const struct tl_ptx_set *loop, uint32_t read,
                              int64_t number, uint32_t *from, uint32_t *to);

#endif
