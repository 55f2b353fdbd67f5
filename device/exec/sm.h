/* The segment that all processes of a device share, as device/exec/sm.c (slots, order, joining) and
 * device/exec/ledger.c (memory) have it. */
#ifndef TALLY_DEVICE_EXEC_SM_H
#define TALLY_DEVICE_EXEC_SM_H

#include "device/exec/exec.h"
#include "device/exec/idle.h"
#include "device/exec/segment.h"
#include "device/exec/stall.h"
#include "device/exec/waits.h"

#include <linux/futex.h>
#include <sys/types.h>

#define MAX_SLOTS TL__MAX_SLOTS
#define MAX_PROCS 128
#define KEPT_PROCS 16 /* of these, for who is preferred */

/* Written by its owner only, but for `wake` and what others ask for. */
struct sm_proc {
    _Atomic uint32_t alive; /* thread id; the kernel sets FUTEX_OWNER_DIED in it */
    /* grows with each owner, so that slots of earlier ones are known as such */
    _Atomic uint32_t generation;
    _Atomic uint32_t pid;
    _Atomic uint64_t head; /* key of the first grid with blocks to dispatch */
    _Atomic uint64_t used_bytes;
    _Atomic uint32_t wake;    /* futex: counts wake-ups */
    _Atomic uint32_t waiting; /* workers that wait there: for a slot, or for something to do */
    /* Of used_bytes, what it can give back by moving pages to host memory, by rank; what others ask
     * of that (they write it), and a futex that counts the askings. */
    _Atomic uint64_t paged_bytes[TL_EXEC_RANKS], owed_bytes[TL_EXEC_RANKS];
    _Atomic uint32_t asked;
    _Atomic uint32_t pid_namespace; /* in which its numbers mean something */
    _Atomic uint32_t beat;          /* slots that it took or left so far */
    _Atomic uint32_t lodged;        /* its threads that have lent a slot and want it back */
    uint8_t unused[128 - 92];
};

struct sm_slot {
    _Atomic uint64_t owner; /* entry + 1 (16 bits), generation (16), thread id (32); 0: free */
    _Atomic uint64_t freed_ns;
    struct tl__stall stall;
    struct tl__idle idle;
    uint8_t unused[16];
};

struct sm_shared {
    uint64_t magic;
    uint32_t version, bytes;
    uint64_t id;                                         /* as the file says that leads here */
    _Atomic uint32_t n_slots, mode, quantum_us, n_procs; /* n_procs: entries ever used */
    _Atomic uint64_t capacity_bytes;
    /* when the bus has carried all that was given to it (CLOCK_MONOTONIC) */
    _Atomic uint64_t bus_free_ns;
    _Atomic uint32_t fault; /* of a process, where faults are shared; 0: none */
    uint8_t unused0[4];
    _Atomic uint64_t arrival; /* the next grid's number */
    /* when each copy engine is free (CLOCK_MONOTONIC) */
    _Atomic uint64_t engine_free_ns[TL_EXEC_ENGINES];
    uint8_t unused1[56 - 8 * TL_EXEC_ENGINES];
    _Atomic uint64_t turn; /* timeslice: entry + 1 (16 bits), since when in us (48) */
    uint8_t unused2[56];
    struct sm_slot slots[MAX_SLOTS];
    struct sm_proc procs[MAX_PROCS];
};

static_assert(sizeof(struct sm_proc) == 128 && offsetof(struct sm_proc, head) == 16, "");
static_assert(sizeof(struct sm_slot) == 64, "");
static_assert(offsetof(struct sm_shared, slots) == 192, "");

struct tl__sm {
    struct sm_shared *m;
    struct tl__segment segment; /* has it */
    char path[256];
    ino_t inode;
    struct sm_proc *mine;
    uint32_t index, generation, pid_namespace;
    uint32_t n_slots, quantum_us;
    enum tl_exec_mode mode;
    bool shares_faults;
    uint64_t capacity_bytes;
    /* What this thread had before, and what it has now: a list of one, whose futex_offset leads to
     * `alive`. */
    struct robust_list_head *old_robust;
    struct robust_list_head robust;
    struct robust_list node;
    /* Processes found stopped, by the head they had: they count again when it changes. */
    _Atomic uint64_t ignored[MAX_PROCS];
    _Atomic uint64_t waits_since_ns;       /* 0: no worker waits in vain */
    _Atomic uint32_t n_waiting;            /* what mine->waiting should be */
    _Atomic uint32_t n_held;               /* slots that this process has */
    struct tl__waits *waits;               /* NULL: nobody asked for them */
    _Atomic uint64_t looked_ns[MAX_PROCS]; /* when it was asked whether that process was killed */
    /* Since when it is stopped, as far as is known; and if that has been long, a bit and the beat
     * that it had then: while that is the same, it is set aside. */
    _Atomic uint64_t stopped_ns[MAX_PROCS], aside[MAX_PROCS];
};

static inline bool tl__sm_is_alive(const struct sm_proc *p)
{
    uint32_t word = atomic_load_explicit(&p->alive, memory_order_acquire);
    return (word & FUTEX_TID_MASK) != 0 && (word & FUTEX_OWNER_DIED) == 0;
}

static inline uint32_t tl__sm_n_procs(const struct tl__sm *s)
{
    uint32_t n = atomic_load_explicit(&s->m->n_procs, memory_order_acquire);
    return n < MAX_PROCS ? n : MAX_PROCS;
}

/* Whether this process goes on without that one, because it is stopped. */
static inline bool tl__sm_is_aside(const struct tl__sm *s, uint32_t index)
{
    uint64_t aside = atomic_load_explicit(&s->aside[index], memory_order_relaxed);
    return aside != 0 &&
           (uint32_t)aside == atomic_load_explicit(&s->m->procs[index].beat, memory_order_relaxed);
}

/* Asks about a process unless that was done just now, and marks it if it was killed, or sets it
 * aside if it has been stopped for long.  True if it was killed. */
bool tl__sm_bury(struct tl__sm *s, uint32_t index);
/* Whether a slot of that owner, who counts for nothing, may be had: one that is set aside is looked
 * at once more, since it may have gone on just now. */
bool tl__sm_may_take_over(struct tl__sm *s, uint64_t owner);

#endif
