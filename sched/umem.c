/* Whose pages stay on the device. */
#include "sched/umem.h"

#include <stdbool.h>

/* Whether `a` keeps its pages before `b`; `a` stands before `b` in the array, so on a tie the
 * earlier one does. */
static bool comes_first(const struct tl_umem_client *a, const struct tl_umem_client *b)
{
    if (a->level != b->level)
        return a->level > b->level;
    return a->used_ns >= b->used_ns;
}

void tl__umem_plan(struct tl_umem_client *clients, uint32_t n, uint64_t capacity, uint64_t spare)
{
    uint64_t left = capacity > spare ? capacity - spare : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t before = 0; /* how many keep their pages before this one */
        for (uint32_t k = 0; k < n; k++)
            if (k != i)
                before += k < i ? comes_first(&clients[k], &clients[i])
                                : !comes_first(&clients[i], &clients[k]);
        clients[i].eviction = n - 1 - before;
    }
    for (uint32_t rank = n; rank-- > 0;)
        for (uint32_t i = 0; i < n; i++)
            if (clients[i].eviction == rank) {
                clients[i].room_bytes = left;
                clients[i].stays_bytes = clients[i].need_bytes < left ? clients[i].need_bytes
                                                                      : left;
                left -= clients[i].stays_bytes;
            }
}
