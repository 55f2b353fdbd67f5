/* The ledger of a tree of processes; see the header. */
#include "runtime/job/ledger.h"
#include "runtime/job/share.h"
#include "tally/clock.h"
#include "tally/thread.h"

#include <errno.h>
#include <string.h>
#include <time.h>

_Static_assert(sizeof(struct tl_ledger_page) == TL_SHARE_PAGE, "it is shared as other pages are");

void tl_ledger_init(struct tl_ledger_page *l)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&l->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    l->version = TL_SHARE_VERSION;
    l->magic = TL_LEDGER_MAGIC;
}

bool tl_ledger_is(const struct tl_ledger_page *l)
{
    return l->magic == TL_LEDGER_MAGIC && l->version == TL_SHARE_VERSION;
}

uint64_t tl_ledger_gpu(const uint8_t uuid[16])
{
    uint64_t halves[2];
    memcpy(halves, uuid, sizeof halves);
    uint64_t number = halves[0] ^ (halves[1] << 1 | halves[1] >> 63);
    return number != 0 ? number : 1;
}

struct tl_ledger_slot *tl_ledger_slot(struct tl_ledger_page *l, uint64_t owner, uint64_t gpu)
{
    for (uint32_t i = 0; i < TL_LEDGER_SLOTS; i++)
        if (atomic_load(&l->slots[i].owner) == owner && atomic_load(&l->slots[i].gpu) == gpu)
            return &l->slots[i];
    for (uint32_t i = 0; i < TL_LEDGER_SLOTS; i++) {
        uint64_t nobody = 0;
        if (!atomic_compare_exchange_strong(&l->slots[i].owner, &nobody, owner))
            continue;
        atomic_store(&l->slots[i].bytes, 0);
        atomic_store(&l->slots[i].gpu, gpu);
        return &l->slots[i];
    }
    return NULL;
}

uint64_t tl_ledger_total(const struct tl_ledger_page *l, uint64_t gpu)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < TL_LEDGER_SLOTS; i++) {
        const struct tl_ledger_slot *s = &l->slots[i];
        if (atomic_load(&s->owner) != 0 && atomic_load(&s->gpu) == gpu &&
            __builtin_add_overflow(sum, atomic_load(&s->bytes), &sum))
            return UINT64_MAX;
    }
    return sum;
}

/* Whether it has the lock.  Without it two that ask at once may both be let in, or both be kept
 * out. */
static bool lock_in_time(struct tl_ledger_page *l)
{
    int rc = tl_thread_lock_within(&l->lock, TL_SECOND_NS);
    if (rc == EOWNERDEAD) {
        pthread_mutex_consistent(&l->lock); /* slots are whole after every instruction */
        rc = 0;
    }
    return rc == 0;
}

bool tl_ledger_take(struct tl_ledger_page *l, struct tl_ledger_slot *slot, uint64_t bytes,
                    uint64_t limit)
{
    if (limit == 0) {
        atomic_fetch_add(&slot->bytes, bytes);
        return true;
    }
    bool is_locked = lock_in_time(l);
    uint64_t total = tl_ledger_total(l, atomic_load(&slot->gpu));
    bool fits = bytes <= limit && total <= limit - bytes;
    if (fits)
        atomic_fetch_add(&slot->bytes, bytes);
    if (is_locked)
        pthread_mutex_unlock(&l->lock);
    return fits;
}

void tl_ledger_change(struct tl_ledger_slot *slot, int64_t bytes)
{
    atomic_fetch_add(&slot->bytes, (uint64_t)bytes);
}

void tl_ledger_forget(struct tl_ledger_page *l, uint64_t owner)
{
    for (uint32_t i = 0; i < TL_LEDGER_SLOTS; i++) {
        struct tl_ledger_slot *s = &l->slots[i];
        if (owner == 0 || atomic_load(&s->owner) != owner)
            continue;
        atomic_store(&s->bytes, 0);
        atomic_store(&s->gpu, 0);
        atomic_store(&s->owner, 0);
    }
}
