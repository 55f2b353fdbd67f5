/* The one device that all processes of a user share: SM slots, the order of grids, who has joined.
 * device/exec/ledger.c keeps the memory.
 *
 * All of it is a small segment of memory (device/exec/segment.c: how it is found) and there is no
 * lock in it, so that there is nothing that a process can die holding. Each process has an entry
 * that only it writes: the key of its first grid with blocks left to dispatch, the bytes it has
 * taken, how many of its workers wait. Slots are words taken by compare-and-swap. Everybody decides
 * by reading the others' entries, and an entry counts only while its owner lives.
 *
 * Who lives: an entry has a word with the id of a thread of its process, and that thread's robust
 * list, which the kernel walks when the thread dies, names the word.  So the kernel marks it at
 * once, before it takes down the process's memory; a look at one word tells, with no system call,
 * and neither zombies nor reused process ids matter.  (A pthread robust mutex would do the same but
 * keeps its list's pointers in the segment, where others could spoil them; ours are private.)
 * Slots carry their owner's entry and its generation; a dead owner's slot is free, a dead process's
 * memory is not counted.  Who waits for a slot waits 2 ms at most before it looks again.
 *
 * A worker that is woken in vain takes a processor from the very block that it has to wait for.  So
 * workers with nothing to do wait where those do that wait for a slot, and who launches wakes one
 * only if there is a slot for it (`tl__sm_chance`); otherwise, who leaves the slot does.
 *
 * Who was killed gets to the end of its thread only when it gets a processor, which may take longer
 * than anybody wants to wait.  So who has waited in vain, or found no memory, asks the kernel
 * whether those in his way were killed, and marks them himself (`tl__sm_bury`).
 *
 * The segment can hold anything if somebody scribbles on it.  Numbers that index are checked where
 * they are read; what all agree on (slots, mode, sizes) is read once, when joining.
 *
 * A process that is stopped (SIGSTOP, a debugger) does not take free slots: if it is first and lets
 * one lie for 250 ms, the others go on without it until it does something.  The slots that it holds
 * it keeps for STOPPED_NS; then who waits sets it aside and takes them (device/exec/bury.c).  It
 * notices at its next block and asks for a slot like anybody else, so for a block at most there is
 * one more at work than there are slots.  Nobody ever frees a slot that is not his, so their number
 * stays right whoever goes on when. */
#include "device/exec/sm.h"
#include "device/exec/internal.h"
#include "device/exec/segment.h"
#include "tally/check.h"
#include "tally/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAIT_NS 2000000
#define STALE_NS 250000000
#define AGE (((uint64_t)1 << 55) - 1) /* of a key: the order of arrival, below the priority */

/* --- who lives -------------------------------------------------------------------------------- */

/* The living process that a slot's word names, or NULL; also if it is stopped and was set aside. */
static struct sm_proc *owner_of(const struct tl__sm *s, uint64_t owner)
{
    uint64_t entry = owner >> 48;
    if (entry == 0 || entry > MAX_PROCS)
        return NULL;
    struct sm_proc *p = &s->m->procs[entry - 1];
    uint32_t generation = atomic_load_explicit(&p->generation, memory_order_relaxed);
    return (generation & 0xffff) == (owner >> 32 & 0xffff) && tl__sm_is_alive(p) &&
                   !tl__sm_is_aside(s, (uint32_t)entry - 1)
               ? p
               : NULL;
}

static uint64_t head_of(const struct sm_proc *p)
{
    return atomic_load_explicit(&p->head, memory_order_seq_cst);
}

/* --- waking ----------------------------------------------------------------------------------- */

static void wake(struct sm_proc *p, int n)
{
    atomic_fetch_add_explicit(&p->wake, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&p->waiting, memory_order_seq_cst) > 0)
        syscall(SYS_futex, &p->wake, FUTEX_WAKE, n, NULL, NULL, 0);
}

/* Goes by the process's own count: whatever others write into the segment, it can wake its workers
 * itself. */
void tl__sm_wake(struct tl__sm *s, int n)
{
    atomic_fetch_add_explicit(&s->mine->wake, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&s->n_waiting, memory_order_seq_cst) > 0)
        syscall(SYS_futex, &s->mine->wake, FUTEX_WAKE, n, NULL, NULL, 0);
}

uint32_t tl__sm_begin_wait(struct tl__sm *s)
{
    atomic_fetch_add_explicit(&s->n_waiting, 1, memory_order_seq_cst);
    atomic_fetch_add_explicit(&s->mine->waiting, 1, memory_order_seq_cst);
    return atomic_load_explicit(&s->mine->wake, memory_order_seq_cst);
}

bool tl__sm_wait(struct tl__sm *s, uint32_t seen, const struct timespec *limit)
{
    return syscall(SYS_futex, &s->mine->wake, FUTEX_WAIT, seen, limit, NULL, 0) == 0 ||
           errno != ETIMEDOUT;
}

void tl__sm_end_wait(struct tl__sm *s)
{
    uint32_t n = atomic_fetch_sub_explicit(&s->n_waiting, 1, memory_order_seq_cst);
    TL_CHECK(n > 0);
    (void)n;
    atomic_fetch_sub_explicit(&s->mine->waiting, 1, memory_order_seq_cst);
}

/* A slot has become free, or a grid has no more blocks to dispatch: who is first now and waits, is
 * woken. */
static void notify(struct tl__sm *s, int n)
{
    struct sm_proc *best = NULL;
    uint64_t best_key = TL_EXEC_NO_KEY;
    for (uint32_t i = 0; i < tl__sm_n_procs(s); i++) {
        struct sm_proc *p = &s->m->procs[i];
        uint64_t key = head_of(p);
        if (key == TL_EXEC_NO_KEY || !tl__sm_is_alive(p))
            continue;
        if (s->mode == TL_EXEC_TIMESLICE) {
            wake(p, INT_MAX);
        } else if (key < best_key) {
            best = p;
            best_key = key;
        }
    }
    /* seq_cst: a waiter says that it waits and then tries; we free and then ask who waits.  One of
     * us sees the other. */
    if (best != NULL)
        wake(best, n);
}

/* --- taking turns ----------------------------------------------------------------------------- */

static uint64_t turn_word(uint32_t index, uint64_t now_us)
{
    return (uint64_t)(index + 1) << 48 | (now_us & 0xffffffffffffULL);
}

static bool holds_slot(const struct tl__sm *s, const struct sm_proc *p)
{
    for (uint32_t i = 0; i < s->n_slots; i++) {
        if (owner_of(s, atomic_load_explicit(&s->m->slots[i].owner, memory_order_acquire)) == p)
            return true;
    }
    return false;
}

/* The next process after `index` that has something to run; `index` itself if nobody else has. */
static uint32_t next_in_turn(const struct tl__sm *s, uint32_t index)
{
    uint32_t n = tl__sm_n_procs(s);
    for (uint32_t k = 1; k < n; k++) {
        uint32_t i = (index + k) % n;
        const struct sm_proc *p = &s->m->procs[i];
        if (head_of(p) != TL_EXEC_NO_KEY && tl__sm_is_alive(p))
            return i;
    }
    return index;
}

/* Timeslice: may this process run now?  Passes the turn on when its quantum is over and somebody
 * waits. */
static bool is_my_turn(struct tl__sm *s)
{
    uint64_t now_us = tl_clock_ns() / 1000;
    uint64_t turn = atomic_load_explicit(&s->m->turn, memory_order_acquire);
    uint64_t entry = turn >> 48, since = turn & 0xffffffffffffULL;
    uint64_t held_us = now_us > since ? now_us - since : 0;
    if (entry == s->index + 1) {
        uint32_t next = held_us < s->quantum_us ? s->index : next_in_turn(s, s->index);
        if (next == s->index)
            return true;
        if (atomic_compare_exchange_strong(&s->m->turn, &turn, turn_word(next, now_us)))
            wake(&s->m->procs[next], INT_MAX);
        return false;
    }
    bool is_vacant = entry == 0 || entry > MAX_PROCS;
    if (!is_vacant) {
        const struct sm_proc *holder = &s->m->procs[entry - 1];
        /* Idle, dead, or stopped: a turn that is not used is nobody's. */
        is_vacant = !tl__sm_is_alive(holder) ||
                    (head_of(holder) == TL_EXEC_NO_KEY && !holds_slot(s, holder)) ||
                    (held_us > s->quantum_us + STALE_NS / 1000 && !holds_slot(s, holder));
    }
    return is_vacant &&
           atomic_compare_exchange_strong(&s->m->turn, &turn, turn_word(s->index, now_us));
}

static bool others_hold_slots(const struct tl__sm *s)
{
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct sm_proc *p = owner_of(
            s, atomic_load_explicit(&s->m->slots[i].owner, memory_order_acquire));
        if (p != NULL && p != s->mine)
            return true;
    }
    return false;
}

/* --- what is lost to others ------------------------------------------------------------------- */

static bool somebody_is_first(const struct tl__sm *s, uint64_t key);

/* If this process has blocks to run and no SM, because others have them all or come first, then
 * from now on it loses time to them. */
static void note_wait(struct tl__sm *s)
{
    uint64_t key;
    if (s->waits == NULL || atomic_load_explicit(&s->n_held, memory_order_relaxed) > 0 ||
        (key = head_of(s->mine)) == TL_EXEC_NO_KEY)
        return;
    bool is_kept_out = s->mode != TL_EXEC_TIMESLICE && somebody_is_first(s, key);
    if (!is_kept_out) {
        uint32_t i = 0;
        while (i < s->n_slots && owner_of(s, atomic_load_explicit(&s->m->slots[i].owner,
                                                                  memory_order_acquire)) != NULL)
            i++;
        is_kept_out = i == s->n_slots;
    }
    if (is_kept_out)
        tl__waits_begin(s->waits, s->m->slots, s->n_slots);
}

/* --- slots ------------------------------------------------------------------------------------ */

/* A living process other than this one whose first grid comes before `key`. */
static bool somebody_is_first(const struct tl__sm *s, uint64_t key)
{
    for (uint32_t i = 0; i < tl__sm_n_procs(s); i++) {
        const struct sm_proc *p = &s->m->procs[i];
        uint64_t head = head_of(p);
        if (p != s->mine && head < key && tl__sm_is_alive(p) && !tl__sm_is_aside(s, i) &&
            head != atomic_load_explicit(&s->ignored[i], memory_order_relaxed))
            return true;
    }
    return false;
}

static bool may_dispatch(struct tl__sm *s, uint64_t key)
{
    if (s->mode == TL_EXEC_TIMESLICE)
        return is_my_turn(s) && !others_hold_slots(s);
    return !somebody_is_first(s, key);
}

static bool has_waited_long(const struct tl__sm *s, uint64_t now)
{
    uint64_t since = atomic_load_explicit(&s->waits_since_ns, memory_order_relaxed);
    return since != 0 && now > since && now - since >= STALE_NS;
}

/* Those before `key` have let a free slot lie for too long: go on without them. */
static void ignore_stopped(struct tl__sm *s, uint64_t key)
{
    for (uint32_t i = 0; i < tl__sm_n_procs(s); i++) {
        uint64_t head = head_of(&s->m->procs[i]);
        if (&s->m->procs[i] != s->mine && head < key)
            atomic_store_explicit(&s->ignored[i], head, memory_order_relaxed);
    }
}

/* What a slot says that the calling thread has. */
static uint64_t own_word(const struct tl__sm *s)
{
    return (uint64_t)(s->index + 1) << 48 | (uint64_t)(s->generation & 0xffff) << 32 |
           (uint32_t)gettid();
}

/* The slot was taken, which had said `owner`. */
static void note_hold(struct tl__sm *s, uint32_t slot, uint64_t owner)
{
    atomic_fetch_add_explicit(&s->mine->beat, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->n_held, 1, memory_order_relaxed);
    if (s->waits != NULL) {
        struct sm_slot *sl = &s->m->slots[slot];
        uint64_t freed = atomic_load_explicit(&sl->freed_ns, memory_order_relaxed);
        tl__waits_end(s->waits, s->m->slots, s->n_slots);
        tl__idle_taken(&sl->idle, owner == 0 ? freed : 0, tl_clock_ns());
        tl__waits_hold(s->waits, slot);
        tl__stall_begin(&sl->stall);
    }
}

int tl__sm_try_acquire(struct tl__sm *s, uint32_t preferred)
{
    uint64_t key = head_of(s->mine);
    if (key == TL_EXEC_NO_KEY)
        return -EAGAIN;
    bool is_allowed = may_dispatch(s, key);
    uint64_t now = is_allowed ? 0 : tl_clock_ns();
    uint64_t me = own_word(s);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        uint32_t n = (preferred + i) % s->n_slots;
        struct sm_slot *slot = &s->m->slots[n];
        uint64_t owner = atomic_load_explicit(&slot->owner, memory_order_relaxed);
        if (owner != 0 && owner_of(s, owner) != NULL)
            continue;
        if (!is_allowed) {
            uint64_t freed = atomic_load_explicit(&slot->freed_ns, memory_order_relaxed);
            if (owner != 0 || freed > now || now - freed < STALE_NS || !has_waited_long(s, now))
                continue;
            ignore_stopped(s, key);
        }
        if (!tl__sm_may_take_over(s, owner))
            continue;
        /* seq_cst, with `notify`. */
        if (atomic_compare_exchange_strong(&slot->owner, &owner, me)) {
            atomic_store_explicit(&s->waits_since_ns, 0, memory_order_relaxed);
            note_hold(s, n, owner);
            return (int)n;
        }
    }
    return -EAGAIN;
}

bool tl__sm_is_free(const struct tl__sm *s, uint32_t slot)
{
    return owner_of(s, atomic_load_explicit(&s->m->slots[slot % MAX_SLOTS].owner,
                                            memory_order_acquire)) == NULL;
}

bool tl__sm_retake(struct tl__sm *s, uint32_t slot)
{
    TL_CHECK(slot < s->n_slots);
    _Atomic uint64_t *word = &s->m->slots[slot].owner;
    uint64_t owner = atomic_load_explicit(word, memory_order_relaxed);
    if (owner_of(s, owner) != NULL || !tl__sm_may_take_over(s, owner) ||
        !atomic_compare_exchange_strong(word, &owner, own_word(s)))
        return false;
    note_hold(s, slot, owner);
    return true;
}

void tl__sm_release(struct tl__sm *s, uint32_t slot)
{
    TL_CHECK(slot < s->n_slots);
    struct sm_slot *sl = &s->m->slots[slot];
    uint64_t owner = atomic_load_explicit(&sl->owner, memory_order_relaxed);
    tl__sm_note_block(s, slot);
    tl__waits_leave(s->waits, slot);
    if (owner >> 48 == s->index + 1) {
        atomic_store_explicit(&sl->freed_ns, tl_clock_ns(), memory_order_relaxed);
        atomic_compare_exchange_strong(&sl->owner, &owner, 0);
    }
    atomic_fetch_add_explicit(&s->mine->beat, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&s->n_held, 1, memory_order_relaxed);
    note_wait(s); /* who leaves with blocks to run was told to */
    notify(s, 1);
}

/* Those who hold slots or have something to run. */
static void bury_rivals(struct tl__sm *s)
{
    for (uint32_t i = 0; i < tl__sm_n_procs(s); i++) {
        if (head_of(&s->m->procs[i]) != TL_EXEC_NO_KEY || holds_slot(s, &s->m->procs[i]))
            tl__sm_bury(s, i);
    }
}

int tl__sm_acquire_or_wait(struct tl__sm *s, uint32_t preferred)
{
    uint32_t seen = tl__sm_begin_wait(s);
    int slot = tl__sm_try_acquire(s, preferred);
    if (slot < 0) {
        uint64_t never = 0;
        atomic_compare_exchange_strong(&s->waits_since_ns, &never, tl_clock_ns());
        note_wait(s);
        if (!tl__sm_wait(s, seen, &(struct timespec){0, WAIT_NS}))
            bury_rivals(s);
    }
    tl__sm_end_wait(s);
    return slot;
}

enum tl__sm_chance tl__sm_chance(struct tl__sm *s)
{
    uint64_t key = head_of(s->mine);
    if (s->mode == TL_EXEC_TIMESLICE || key == TL_EXEC_NO_KEY)
        return TL__SM_FREE;
    bool is_first = !somebody_is_first(s, key), has_own = false;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        /* seq_cst, with `notify`: the head is published, then the slot is looked at. */
        const struct sm_proc *owner = owner_of(
            s, atomic_load_explicit(&s->m->slots[i].owner, memory_order_seq_cst));
        if (owner == NULL && is_first)
            return TL__SM_FREE;
        has_own |= owner == s->mine;
    }
    return has_own ? TL__SM_OWN : TL__SM_TAKEN;
}

bool tl__sm_may_keep(struct tl__sm *s)
{
    uint64_t key = head_of(s->mine);
    if (key == TL_EXEC_NO_KEY)
        return false;
    return s->mode == TL_EXEC_TIMESLICE ? is_my_turn(s) : !somebody_is_first(s, key);
}

bool tl__sm_has_lost(const struct tl__sm *s, uint32_t slot)
{
    TL_CHECK(slot < s->n_slots);
    return atomic_load_explicit(&s->m->slots[slot].owner, memory_order_relaxed) >> 48 !=
           s->index + 1;
}

bool tl__sm_must_yield(struct tl__sm *s, uint64_t key)
{
    switch (s->mode) {
    case TL_EXEC_TIMESLICE:
        return !is_my_turn(s);
    case TL_EXEC_MPS_PRIORITY:
        if (!somebody_is_first(s, key))
            return false;
        for (uint32_t i = 0; i < s->n_slots; i++) { /* it is on its way to a free one */
            uint64_t owner = atomic_load_explicit(&s->m->slots[i].owner, memory_order_relaxed);
            if (owner == 0)
                return false;
        }
        return true;
    case TL_EXEC_MPS:
        break;
    }
    return false;
}

bool tl__sm_others_wait(struct tl__sm *s)
{
    for (uint32_t i = 0; i < tl__sm_n_procs(s); i++) {
        const struct sm_proc *p = &s->m->procs[i];
        if (p != s->mine && head_of(p) != TL_EXEC_NO_KEY &&
            atomic_load_explicit(&p->waiting, memory_order_relaxed) > 0 && tl__sm_is_alive(p))
            return true;
    }
    return false;
}

void tl__sm_lodge(struct tl__sm *s, int n)
{
    atomic_fetch_add_explicit(&s->mine->lodged, (uint32_t)n, memory_order_relaxed);
}

bool tl__sm_others_lodge(struct tl__sm *s)
{
    for (uint32_t i = 0; i < tl__sm_n_procs(s); i++) {
        const struct sm_proc *p = &s->m->procs[i];
        if (p != s->mine && atomic_load_explicit(&p->lodged, memory_order_relaxed) > 0 &&
            tl__sm_is_alive(p) && !tl__sm_is_aside(s, i))
            return true;
    }
    return false;
}

uint32_t tl__sm_slot_pid(struct tl__sm *s, uint32_t slot)
{
    struct sm_proc *p = owner_of(
        s, atomic_load_explicit(&s->m->slots[slot % MAX_SLOTS].owner, memory_order_acquire));
    return p != NULL ? atomic_load_explicit(&p->pid, memory_order_relaxed) : 0;
}

/* --- the order of grids ----------------------------------------------------------------------- */

uint64_t tl__sm_arrive(struct tl__sm *s, int32_t priority)
{
    uint64_t number = atomic_fetch_add_explicit(&s->m->arrival, 1, memory_order_relaxed) & AGE;
    int32_t p = priority < -128 ? -128 : priority > 127 ? 127 : priority;
    return (uint64_t)(127 - p) << 55 | number;
}

void tl__sm_set_head(struct tl__sm *s, uint64_t key)
{
    if (key != TL_EXEC_NO_KEY && s->mode != TL_EXEC_MPS_PRIORITY)
        key &= AGE;
    uint64_t old = atomic_exchange_explicit(&s->mine->head, key, memory_order_seq_cst);
    if (key == TL_EXEC_NO_KEY)
        tl__waits_forget(s->waits);
    else if (old == TL_EXEC_NO_KEY)
        note_wait(s);
    if (key > old)
        notify(s, INT_MAX);
}

/* --- joining ---------------------------------------------------------------------------------- */

/* Tells the kernel to mark `word` when this thread dies. */
static int watch_thread(struct tl__sm *s, _Atomic uint32_t *word)
{
    s->robust.list.next = &s->node;
    s->robust.futex_offset = (long)((uintptr_t)word - (uintptr_t)&s->node);
    s->robust.list_op_pending = NULL;
    s->node.next = &s->robust.list;
    return syscall(SYS_set_robust_list, &s->robust, sizeof s->robust) < 0 ? -errno : 0;
}

/* Takes a free entry.  The kernel is told first: it marks the word only if it finds this thread's
 * id in it. */
static int take_entry(struct tl__sm *s, bool is_preferred)
{
    size_t bytes;
    if (syscall(SYS_get_robust_list, 0, &s->old_robust, &bytes) < 0)
        return -errno;
    uint32_t end = is_preferred ? MAX_PROCS : MAX_PROCS - KEPT_PROCS;
    for (uint32_t i = 0; i < end; i++) {
        struct sm_proc *p = &s->m->procs[i];
        uint32_t word = atomic_load_explicit(&p->alive, memory_order_relaxed);
        if (tl__sm_is_alive(p))
            continue;
        int rc = watch_thread(s, &p->alive);
        if (rc < 0)
            return rc;
        if (!atomic_compare_exchange_strong(&p->alive, &word, (uint32_t)gettid()))
            continue;
        s->index = i;
        s->mine = p;
        s->generation = atomic_fetch_add_explicit(&p->generation, 1, memory_order_seq_cst) + 1;
        atomic_store_explicit(&p->head, TL_EXEC_NO_KEY, memory_order_seq_cst);
        atomic_store_explicit(&p->used_bytes, 0, memory_order_seq_cst);
        atomic_store_explicit(&p->waiting, 0, memory_order_seq_cst);
        atomic_store_explicit(&p->lodged, 0, memory_order_relaxed);
        for (uint32_t rank = 0; rank < TL_EXEC_RANKS; rank++) {
            atomic_store_explicit(&p->paged_bytes[rank], 0, memory_order_seq_cst);
            atomic_store_explicit(&p->owed_bytes[rank], 0, memory_order_seq_cst);
        }
        atomic_store_explicit(&p->pid, (uint32_t)getpid(), memory_order_relaxed);
        atomic_store_explicit(&p->pid_namespace, s->pid_namespace, memory_order_relaxed);
        if (i >= tl__sm_n_procs(s))
            atomic_store_explicit(&s->m->n_procs, i + 1, memory_order_release);
        return 0;
    }
    syscall(SYS_set_robust_list, s->old_robust, sizeof *s->old_robust);
    return -EUSERS;
}

static bool is_alone(struct tl__sm *s)
{
    for (uint32_t i = 0; i < MAX_PROCS; i++) {
        if (&s->m->procs[i] != s->mine && tl__sm_is_alive(&s->m->procs[i]) && !tl__sm_bury(s, i))
            return false;
    }
    return true;
}

/* What was left there ends with the last who could mean it: slots, times, turns, and faults, for
 * which nobody joins until then: -EBUSY. */
static int mend(struct tl__sm *s, const struct tl__sm_config *config, struct tl_error *err)
{
    const size_t from = offsetof(struct sm_shared, bus_free_ns);
    if (is_alone(s))
        memset((char *)s->m + from, 0, offsetof(struct sm_shared, procs) - from);
    else if (config->shares_faults && atomic_load(&s->m->fault) != 0)
        return tl_error_set(err, -EBUSY,
                            "a process on the device has faulted, and some that it took with it "
                            "are still there");
    return 0;
}

/* What all agree on: the first sets it, the others take it. */
static void agree(struct tl__sm *s, const struct tl__sm_config *config)
{
    struct sm_shared *m = s->m;
    uint32_t n = atomic_load(&m->n_slots), mode = atomic_load(&m->mode),
             quantum = atomic_load(&m->quantum_us);
    if (is_alone(s) || n == 0 || n > MAX_SLOTS || mode > TL_EXEC_TIMESLICE) {
        n = config->n_slots < 1 ? 1 : config->n_slots > MAX_SLOTS ? MAX_SLOTS : config->n_slots;
        mode = config->mode;
        quantum = config->quantum_us;
        atomic_store(&m->n_slots, n);
        atomic_store(&m->mode, mode);
        atomic_store(&m->quantum_us, quantum);
        atomic_store(&m->capacity_bytes, config->memory_bytes);
    }
    s->n_slots = n;
    s->shares_faults = config->shares_faults && mode != TL_EXEC_TIMESLICE;
    s->mode = (enum tl_exec_mode)mode;
    s->quantum_us = quantum;
    s->capacity_bytes = atomic_load(&m->capacity_bytes);
}

/* Opens or makes the segment, takes an entry in it, and agrees with those who are there on slots,
 * mode and memory: who came first has said. */
int tl__sm_open(struct tl__sm **out, const struct tl__sm_config *config, struct tl_error *err)
{
    char path[sizeof((struct tl__sm *)0)->path];
    int rc = tl__segment_path(path, sizeof path, config->name, err);
    if (rc < 0)
        return rc;
    struct tl__sm *s = calloc(1, sizeof *s);
    if (s == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the device");
    for (uint32_t i = 0; i < MAX_PROCS; i++)
        atomic_store_explicit(&s->ignored[i], TL_EXEC_NO_KEY, memory_order_relaxed);
    s->pid_namespace = tl__pid_namespace();
    int fd = tl__segment_open(path, &s->segment, err);
    if (fd < 0) {
        free(s);
        return fd;
    }
    s->m = s->segment.m;
    struct stat st;
    rc = fstat(fd, &st) < 0 ? -errno : mend(s, config, err);
    if (rc == 0)
        rc = take_entry(s, config->is_preferred);
    if (rc == 0) {
        s->inode = st.st_ino;
        snprintf(s->path, sizeof s->path, "%s", path);
        agree(s, config);
    }
    flock(fd, LOCK_UN); /* by hand: a child that was forked meanwhile has it as well */
    close(fd);
    if (rc < 0) {
        tl__segment_leave(&s->segment);
        free(s);
        if (rc != -EUSERS) /* a fault that is shared has told why already */
            return rc == -EBUSY ? rc
                                : tl_error_set(err, rc, "cannot join the device %s: %s", path,
                                               strerror(-rc));
        return tl_error_set(err, rc,
                            "cannot join the device %s: at most %d processes can, and %d more "
                            "above level 0 (tally-run --priority=high)",
                            path, MAX_PROCS - KEPT_PROCS, KEPT_PROCS);
    }
    *out = s;
    return 0;
}

/* The last one to leave takes away what leads to the segment.  Who opens it meanwhile waits for our
 * lock and then finds that it is not the one under that name any more. */
static void remove_unused(struct tl__sm *s)
{
    struct stat st;
    int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_ino == s->inode && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        if (stat(s->path, &st) == 0 && st.st_ino == s->inode && is_alone(s))
            unlink(s->path);
        flock(fd, LOCK_UN);
    }
    close(fd);
}

void tl__sm_close(struct tl__sm *s)
{
    if (s == NULL)
        return;
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    atomic_store_explicit(&s->mine->used_bytes, 0, memory_order_seq_cst);
    atomic_store_explicit(&s->mine->alive, 0, memory_order_seq_cst);
    syscall(SYS_set_robust_list, s->old_robust, sizeof *s->old_robust);
    remove_unused(s);
    tl__segment_leave(&s->segment);
    tl__sm_abandon(s);
}

void tl__sm_abandon(struct tl__sm *s)
{
    if (s == NULL)
        return;
    tl__waits_destroy(s->waits);
    tl__segment_forget(&s->segment);
    free(s);
}

void tl__sm_keep_waits(struct tl__sm *s, struct tl__waits *waits)
{
    s->waits = waits;
}

int tl__sm_unlink(const char *name)
{
    char path[PATH_MAX];
    int rc = tl__segment_path(path, sizeof path, name, NULL);
    if (rc == 0 && unlink(path) < 0)
        rc = -errno;
    return rc;
}

uint32_t tl__sm_fault(const struct tl__sm *s)
{
    return s != NULL && s->shares_faults ? atomic_load_explicit(&s->m->fault, memory_order_relaxed)
                                         : 0;
}

void tl__sm_fail(struct tl__sm *s, uint32_t what)
{
    uint32_t none = 0;
    if (s->shares_faults)
        atomic_compare_exchange_strong(&s->m->fault, &none, what);
}

uint32_t tl__sm_slots(const struct tl__sm *s)
{
    return s->n_slots;
}

enum tl_exec_mode tl__sm_mode(const struct tl__sm *s)
{
    return s->mode;
}
