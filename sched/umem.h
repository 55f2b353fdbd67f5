/* Transparent unified memory, the part that decides: whose pages stay on the device when there are
 * more than fit.  Moving them is the runtime's part. */
#ifndef TALLY_SCHED_UMEM_H
#define TALLY_SCHED_UMEM_H

#include <stdint.h>

struct tl_umem_client {
    int level;
    uint64_t need_bytes; /* that it holds and touches */
    /* when it last ran: among equals the least recent loses its pages first */
    uint64_t used_ns;
    uint64_t stays_bytes; /* out: how much of it stays on the device */
    uint64_t room_bytes;  /* out: how much could, if it needed that: what those before it leave */
    uint32_t eviction;    /* out: 0 is evicted first */
};

/* Higher levels keep their pages, lower ones get what is left of `capacity` less `spare`; nobody is
 * refused, the rest of its pages lives in host memory.  The sum of stays_bytes is at most capacity,
 * and no byte is left free while somebody needs it. */
void tl__umem_plan(struct tl_umem_client *clients, uint32_t n, uint64_t capacity, uint64_t spare);

#endif
