/* The memory ledger of the shared device: how many bytes each process has taken, what of that it
 * can give back, and the bus over which pages move.  Each process writes its own entry; what it
 * owes others is asked for there. */
#include "device/exec/internal.h"
#include "device/exec/sm.h"
#include "tally/clock.h"

#include <errno.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t used_by_all(const struct tl__sm *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < tl__sm_n_procs(s); i++) {
        const struct sm_proc *p = &s->m->procs[i];
        uint64_t used = atomic_load_explicit(&p->used_bytes, memory_order_seq_cst);
        if (used != 0 && tl__sm_is_alive(p) && __builtin_add_overflow(sum, used, &sum))
            return UINT64_MAX;
    }
    return sum;
}

static bool bury_owners(struct tl__sm *s)
{
    bool has_buried = false;
    for (uint32_t i = 0; i < tl__sm_n_procs(s); i++)
        has_buried |= atomic_load_explicit(&s->m->procs[i].used_bytes, memory_order_relaxed) != 0 &&
                      tl__sm_bury(s, i);
    return has_buried;
}

int tl__sm_memory_take(struct tl__sm *s, uint64_t bytes)
{
    if (bytes > s->capacity_bytes)
        return -ENOMEM;
    /* Two that take the rest at once see each other and may both be refused; a few tries make that
     * unlikely. */
    for (int i = 0; i < 4; i++) {
        atomic_fetch_add_explicit(&s->mine->used_bytes, bytes, memory_order_seq_cst);
        if (used_by_all(s) <= s->capacity_bytes)
            return 0;
        atomic_fetch_sub_explicit(&s->mine->used_bytes, bytes, memory_order_seq_cst);
        if (used_by_all(s) > s->capacity_bytes - bytes && !bury_owners(s))
            break;
    }
    return -ENOMEM;
}

void tl__sm_memory_give(struct tl__sm *s, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&s->mine->used_bytes, bytes, memory_order_seq_cst);
}

void tl__sm_memory_mark(struct tl__sm *s, uint32_t rank, int64_t bytes)
{
    atomic_fetch_add_explicit(&s->mine->paged_bytes[rank], (uint64_t)bytes, memory_order_seq_cst);
}

/* Asks others for pages that rank lower than `below` until they owe as much as is missing.  False
 * if they have none. */
static bool ask_others(struct tl__sm *s, uint64_t missing, uint32_t below)
{
    bool has_some = false;
    for (uint32_t rank = 0; rank < below && rank < TL_EXEC_RANKS; rank++) {
        for (uint32_t i = 0; i < tl__sm_n_procs(s) && missing > 0; i++) {
            struct sm_proc *p = &s->m->procs[i];
            uint64_t has = atomic_load_explicit(&p->paged_bytes[rank], memory_order_seq_cst);
            if (p == s->mine || has == 0 || !tl__sm_is_alive(p))
                continue;
            uint64_t owes = atomic_load_explicit(&p->owed_bytes[rank], memory_order_seq_cst), all;
            uint64_t asked = has < missing ? has : missing;
            has_some = true;
            missing -= asked;
            /* What it owes already counts, whoever asked for it: two that ask at once will have to
             * ask again. */
            all = asked > owes ? asked : owes;
            if (all != owes)
                atomic_compare_exchange_strong(&p->owed_bytes[rank], &owes, all);
            atomic_fetch_add_explicit(&p->asked, 1, memory_order_seq_cst);
            syscall(SYS_futex, &p->asked, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        }
    }
    return has_some;
}

int tl__sm_memory_demand(struct tl__sm *s, uint64_t bytes, uint32_t below)
{
    /* ten seconds: one who is stopped gives nothing back */
    enum { STEP_NS = 500000, STEPS = 20000 };
    for (int i = 0; i < STEPS; i++) {
        if (tl__sm_memory_take(s, bytes) == 0)
            return 0;
        uint64_t used = used_by_all(s);
        if (bytes > s->capacity_bytes)
            return -ENOMEM;
        uint64_t missing = used > s->capacity_bytes - bytes ? used - (s->capacity_bytes - bytes)
                                                            : 0;
        if (missing > 0 && !ask_others(s, missing, below))
            return -ENOMEM;
        nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
    }
    return -ENOMEM;
}

uint32_t tl__sm_memory_asked(struct tl__sm *s)
{
    return atomic_load_explicit(&s->mine->asked, memory_order_seq_cst);
}

void tl__sm_memory_wait(struct tl__sm *s, uint32_t seen)
{
    syscall(SYS_futex, &s->mine->asked, FUTEX_WAIT, seen, NULL, NULL, 0);
}

uint64_t tl__sm_memory_owed(struct tl__sm *s, uint32_t rank)
{
    return atomic_exchange_explicit(&s->mine->owed_bytes[rank], 0, memory_order_seq_cst);
}

/* One after the other: from when it is free. */
static uint64_t take_turn(_Atomic uint64_t *free_ns, uint64_t ns)
{
    uint64_t now = tl_clock_ns(), begin, end,
             before = atomic_load_explicit(free_ns, memory_order_relaxed);
    do {
        /* A time far ahead is nobody's transfer: the segment was scribbled on. */
        begin = before > now && before - now < (uint64_t)60 * 1000000000 ? before : now;
        end = begin + ns;
    } while (!atomic_compare_exchange_weak(free_ns, &before, end));
    return end;
}

uint64_t tl__sm_bus(struct tl__sm *s, uint64_t ns)
{
    return take_turn(&s->m->bus_free_ns, ns);
}

uint64_t tl__sm_engine(struct tl__sm *s, uint32_t engine, uint64_t ns)
{
    return take_turn(&s->m->engine_free_ns[engine % TL_EXEC_ENGINES], ns);
}

uint64_t tl__sm_memory_mine(const struct tl__sm *s)
{
    return atomic_load_explicit(&s->mine->used_bytes, memory_order_seq_cst);
}

void tl__sm_memory_info(struct tl__sm *s, uint64_t *free_bytes, uint64_t *total_bytes)
{
    bury_owners(s);
    uint64_t used = used_by_all(s);
    *total_bytes = s->capacity_bytes;
    *free_bytes = used < s->capacity_bytes ? s->capacity_bytes - used : 0;
}
