/* Who is in the way on the shared device and will not go away by itself: processes that were killed
 * and have not died yet, and processes that are stopped.
 *
 * Asked of the kernel by those who wait in vain, so it costs nothing while all goes well.  Who was
 * killed is marked for all to see.  That somebody is stopped each process finds out for itself and
 * keeps to itself: it sets the stopped one aside, which means that it takes no notice of its grids
 * and may take its slots.  That ends as soon as the other one takes or leaves a slot (`beat`). */
#include "device/exec/internal.h"
#include "device/exec/sm.h"
#include "tally/clock.h"

#define LOOK_NS 1000000 /* how long an answer about a process holds */
#define STOPPED_NS 500000000
#define ASIDE ((uint64_t)1 << 32)

static enum tl__task state_of(const struct tl__sm *s, const struct sm_proc *p, uint32_t word)
{
    uint32_t home = atomic_load_explicit(&p->pid_namespace, memory_order_relaxed);
    return tl__task_state(atomic_load_explicit(&p->pid, memory_order_relaxed),
                          word & FUTEX_TID_MASK, home != 0 && home == s->pid_namespace);
}

/* It is stopped: set aside if it has been for long. */
static void note_stopped(struct tl__sm *s, uint32_t index, uint64_t now)
{
    uint64_t since = atomic_load_explicit(&s->stopped_ns[index], memory_order_relaxed);
    uint32_t beat = atomic_load_explicit(&s->m->procs[index].beat, memory_order_relaxed);
    if (since == 0)
        atomic_store_explicit(&s->stopped_ns[index], now, memory_order_relaxed);
    else if (now > since && now - since >= STOPPED_NS)
        atomic_store_explicit(&s->aside[index], ASIDE | beat, memory_order_relaxed);
}

static void note_going_on(struct tl__sm *s, uint32_t index)
{
    atomic_store_explicit(&s->stopped_ns[index], 0, memory_order_relaxed);
    atomic_store_explicit(&s->aside[index], 0, memory_order_relaxed);
}

bool tl__sm_bury(struct tl__sm *s, uint32_t index)
{
    struct sm_proc *p = &s->m->procs[index];
    uint32_t word = atomic_load_explicit(&p->alive, memory_order_acquire);
    uint64_t now = tl_clock_ns(),
             looked = atomic_load_explicit(&s->looked_ns[index], memory_order_relaxed);
    if (p == s->mine || !tl__sm_is_alive(p) || now - looked < LOOK_NS ||
        !atomic_compare_exchange_strong(&s->looked_ns[index], &looked, now))
        return false;
    switch (state_of(s, p, word)) {
    case TL__TASK_STOPPED:
        note_stopped(s, index, now);
        return false;
    case TL__TASK_DYING:
        /* What the kernel does with the word later is the same, or nothing if the entry has another
         * owner by then. */
        return atomic_compare_exchange_strong(&p->alive, &word, word | FUTEX_OWNER_DIED);
    case TL__TASK_GOES_ON:
        break;
    }
    note_going_on(s, index);
    return false;
}

bool tl__sm_may_take_over(struct tl__sm *s, uint64_t owner)
{
    uint64_t entry = owner >> 48;
    if (entry == 0 || entry > MAX_PROCS || !tl__sm_is_aside(s, (uint32_t)entry - 1))
        return true;
    struct sm_proc *p = &s->m->procs[entry - 1];
    if (!tl__sm_is_alive(p) || state_of(s, p, atomic_load(&p->alive)) != TL__TASK_GOES_ON)
        return true;
    note_going_on(s, (uint32_t)entry - 1); /* just now */
    return false;
}
