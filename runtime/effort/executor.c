/* The thread that gives queued work to the driver: an event loop over the heads of all queues,
 * which never waits for one of them.  It sleeps until its bell rings: something was queued, a piece
 * came back, a turn is over. */
#include "runtime/effort/executor.h"
#include "tally/check.h"
#include "tally/thread.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/effort/flight.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/parts.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/pieces.h"
#include "runtime/effort/profile.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/rescue.h"
#include "runtime/effort/split.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"

enum {
    ASK_NS = 2000000,        /* after so long without news, the driver is asked */
    LOOK_NS = 200000,        /* between looks at words of which kernels are not told */
    MARK_AFTER_NS = 1000000, /* unwatched kernels are looked after if nobody waits for them */
};

static _Atomic uint32_t bell; /* a futex: rung when the executor has something to look at */
static _Atomic uint32_t is_asleep;
static bool has_thread TL_EFF_GUARDED;

void tl_eff_ring(void)
{
    atomic_fetch_add_explicit(&bell, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&is_asleep, memory_order_seq_cst) != 0)
        syscall(SYS_futex, &bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

TL_EFF_UNLOCKED static void sleep_until_rung(uint32_t seen, uint32_t changes, uint64_t ns)
{
    atomic_store_explicit(&is_asleep, 1, memory_order_seq_cst);
    tl_client_wait_rung(tl_eff.client, changes, &bell, seen, ns);
    atomic_store_explicit(&is_asleep, 0, memory_order_seq_cst);
}

/* The lock is given up meanwhile. */
TL_EFF_LOCKED static void make_call(struct tl_eff_stream *s, struct tl_eff_item *item)
{
    TL_CHECK(item == s->first && item->kind == TL_EFF_CALL && !item->is_under_way);
    item->is_under_way = true;
    tl_eff_unlock();
    tl_eff_make_current(s->context);
    CUresult r = tl_eff_invoke(&item->call);
    tl_eff_lock();
    tl_eff_submitted(item, r);
}

/* Whether the kernel may be followed by another one before its end is known. */
static bool may_lead(const struct tl_eff_item *item)
{
    const struct tl_eff_launch *l = &item->launch;
    return item->kind == TL_EFF_KERNEL && l->is_chosen && l->control != NULL && l->n_flying > 0 &&
           l->launched >= l->blocks && l->rescue.n_tries == 0;
}

/* Kernels behind the first one, launched in a chain.  They leave by themselves, so one may always
 * stand there, or the device would be idle until the end of the first one is known; more of them
 * only while they are short, for each takes a moment to leave. */
TL_EFF_LOCKED static bool advance_chain(struct tl_eff_stream *s, uint64_t now)
{
    uint64_t behind_ns = 0;
    struct tl_eff_item *item = s->first;
    bool did = false;
    if (tl_eff_permit.n_words >= TL_SHARE_WORDS)
        return false;
    for (uint32_t i = 0; i < TL_EFF_MAX_CHAIN && item != NULL && may_lead(item) && !s->is_stalled;
         i++) {
        struct tl_eff_item *next = item->next;
        if (next == NULL || next->kind != TL_EFF_KERNEL || next->n_waits > 0)
            break;
        if (next->launch.n_flying == 0) {
            if (next->launch.launched > 0 || behind_ns > tl_eff_run_ahead_ns() ||
                !tl_eff_kernel_advance(s, next, now))
                break;
            did = true;
            if (s->first != item) /* something came back meanwhile */
                break;
        }
        behind_ns += tl_eff_predicted_ns(next->launch.profile);
        item = next;
    }
    return did;
}

/* Its context is lost: what is at the head is given back with the error.  False if nothing is, or
 * pieces of it are still to be collected. */
TL_EFF_LOCKED static bool refuse(struct tl_eff_stream *s)
{
    struct tl_eff_item *item = s->first;
    if (item->kind != TL_EFF_KERNEL)
        tl_eff_submitted(item, tl_eff_lost(s->context));
    else if (item->launch.n_flying > 0)
        return false;
    else
        tl_eff_finish_kernel(s, item, tl_eff_lost(s->context));
    return true;
}

/* The lock is given up meanwhile.  True if something was done. */
TL_EFF_LOCKED static bool advance(struct tl_eff_stream *s, uint64_t now)
{
    tl_eff_assert_locked();
    bool did = false, is_lost = tl_eff_lost(s->context) != CUDA_SUCCESS;
    s->is_held = false;
    while (s->first != NULL && s->first->n_waits == 0 && !s->first->is_under_way) {
        struct tl_eff_item *item = s->first;
        if (is_lost && item->kind != TL_EFF_TURN) {
            if (!refuse(s))
                break;
        } else if (item->kind == TL_EFF_CALL) {
            make_call(s, item);
        } else if (item->kind == TL_EFF_TURN) {
            if (item->needs_permit && !is_lost && !tl_eff_permit_holds(now)) {
                s->is_held = true;
                return did;
            }
            item->is_under_way = true;
            pthread_cond_broadcast(&tl_eff_queues.submitted);
            return true;
        } else if (item->kind == TL_EFF_SPLIT) {
            if (!tl_eff_split_advance(s, item, now))
                break;
        } else if (item->kind == TL_EFF_PART) {
            if (!tl_eff_part_advance(s, item, now))
                break;
        } else if (!tl_eff_kernel_advance(s, item, now)) {
            break;
        }
        did = true;
    }
    return (!is_lost && advance_chain(s, now)) || did;
}

/* A stream with nothing left to do leaves the list. */
TL_EFF_LOCKED static void leave(struct tl_eff_stream **at)
{
    struct tl_eff_stream *s = *at;
    TL_CHECK(s->is_busy && s->first == NULL && s->n_items == 0 && s->n_flying == 0);
    *at = s->next_busy;
    if (*at == NULL)
        tl_eff_queues.busy_end = at;
    s->is_busy = false;
    if (s->is_destroyed && !s->is_legacy && s->context->handle != NULL)
        tl_eff_stream_free(s);
}

/* How long it may sleep. */
TL_EFF_LOCKED static uint64_t next_look(bool is_held, uint64_t now)
{
    uint64_t ns = UINT64_MAX;
    if (tl_eff_flight.n_pieces > 0)
        ns = tl_eff_permit_must_look() ? LOOK_NS : ASK_NS;
    if (is_held) {
        uint64_t wait = tl_eff_permit_wait_ns(now);
        ns = wait < ns ? wait : ns;
    }
    if (tl_eff_flight.n_unmarked > 0 && ns > MARK_AFTER_NS)
        ns = MARK_AFTER_NS;
    return ns;
}

/* The thread that launches what is queued: it looks at what came back, gives each stream its turn,
 * and sleeps until somebody rings or something is due. */
static void *executor(void *unused)
{
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1000);
    tl_thread_be_prompt();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (tl_eff_real.cuThreadExchangeStreamCaptureMode != NULL)
        tl_eff_real.cuThreadExchangeStreamCaptureMode(&mode);
    uint64_t news_ns = tl_eff_now();
    tl_eff_lock();
    for (;;) {
        uint32_t seen = atomic_load(&bell);
        uint64_t now = tl_eff_now();
        tl_eff_permit_holds(now); /* brings the grant up to date */
        tl_eff_kick();
        bool did = tl_eff_collect(now - news_ns >= ASK_NS), is_held = false;
        /* A moment that begins meanwhile waits for the end of this round. */
        bool is_holding = tl_eff_is_holding();
        tl_eff_direct_begin();
        did |= tl_eff_rescue_look(now);
        for (struct tl_eff_stream **at = &tl_eff_queues.busy; *at != NULL && !is_holding;) {
            struct tl_eff_stream *s = *at;
            did |= advance(s, now);
            if (s->n_unmarked > 0 && now - s->unmarked_since >= MARK_AFTER_NS) {
                if (s->first != NULL)
                    tl_eff_mark(s);
                else
                    tl_eff_look(s);
            }
            is_held |= s->is_held;
            if (s->first == NULL && s->n_flying == 0 && s->n_unmarked == 0)
                leave(at);
            else
                at = &s->next_busy;
        }
        tl_eff_direct_end();
        tl_eff_parts_bury();
        tl_eff_tell_word();
        if (did) {
            news_ns = now;
            continue;
        }
        uint64_t ns = next_look(is_held, now);
        uint32_t changes = tl_eff_permit.grant_changes;
        tl_eff_unlock();
        sleep_until_rung(seen, changes, ns);
        tl_eff_lock();
    }
    return NULL;
}

int tl_eff_executor_start(void)
{
    tl_eff_assert_locked();
    if (has_thread)
        return 0;
    int rc = tl_thread_start(NULL, &(struct tl_thread_kind){.name = "tally-effort"}, executor,
                             NULL);
    has_thread = rc == 0;
    return rc;
}

void tl_eff_executor_forget(void)
{
    tl_eff_lock();
    has_thread = false;
    atomic_store(&is_asleep, 0);
    tl_eff_unlock();
}
