/* What the processes of one tree hold of the memory of each GPU: one page that all of them write.
 *
 *     process 1 ── slot {owner, GPU, bytes} ┐
 *     process 2 ── slot {owner, GPU, bytes} ┼─ sum of a GPU's slots: what the limit is compared with
 *     tallyd reads, and clears the slots of the dead ┘
 *
 * A tree is what one tally-run started: its processes trust each other, so a page that all of
 * them may write is no loss.  The page is made by whoever comes first and handed on by tallyd.  A
 * process can die at any instruction: its own slot is all that it leaves behind, and the lock is
 * one that the kernel takes from the dead. */
#ifndef TALLY_RUNTIME_JOB_LEDGER_H
#define TALLY_RUNTIME_JOB_LEDGER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TL_LEDGER_SLOTS = 124 };
#define TL_LEDGER_MAGIC 0x31726764656c7474ull /* "ttledgr1" */

struct tl_ledger_slot {
    _Atomic uint64_t owner; /* tl_client_number; 0: it is free */
    _Atomic uint64_t gpu;   /* tl_ledger_gpu */
    _Atomic uint64_t bytes;
    uint64_t reserved;
};

struct tl_ledger_page {
    uint64_t magic;
    uint32_t version, reserved;
    union {
        pthread_mutex_t lock;
        char room[112];
    };
    struct tl_ledger_slot slots[TL_LEDGER_SLOTS];
};
_Static_assert(sizeof(struct tl_ledger_page) == 4096, "one page");

/* Makes a ledger of a page of zeroes. */
void tl_ledger_init(struct tl_ledger_page *l);
/* Whether a page is one. */
bool tl_ledger_is(const struct tl_ledger_page *l);
/* A GPU's UUID as a number; never 0. */
uint64_t tl_ledger_gpu(const uint8_t uuid[16]);

/* The slot of a process for a GPU, taken now if it has none; NULL if all are taken. */
struct tl_ledger_slot *tl_ledger_slot(struct tl_ledger_page *l, uint64_t owner, uint64_t gpu);
/* What the tree holds of that GPU; of sums that nobody can hold, the largest number. */
uint64_t tl_ledger_total(const struct tl_ledger_page *l, uint64_t gpu);
/* Adds to a slot if the total of its GPU stays within the limit (0: there is none); else nothing
 * changes and it is false.  Waits for nobody for more than a second: a process that is stopped in
 * the middle costs the others exactness for that time, not their progress. */
bool tl_ledger_take(struct tl_ledger_page *l, struct tl_ledger_slot *slot, uint64_t bytes,
                    uint64_t limit);
/* Adds, or takes away, whatever the limit. */
void tl_ledger_change(struct tl_ledger_slot *slot, int64_t bytes);
/* A process is gone: so is what it held. */
void tl_ledger_forget(struct tl_ledger_page *l, uint64_t owner);

#endif
