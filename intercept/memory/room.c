/* This process's account and its slots in the ledger of its tree; see the header. */
#include "intercept/capture/capture.h"
#include "intercept/memory/memory.h"
#include "runtime/job/ledger.h"
#include "sched/pattern.h"
#include "tally/lock.h"

static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static struct tl_account account TL_GUARDED_BY(lock);
static struct tl_memory_use use TL_GUARDED_BY(lock); /* what of it persists */
static uint64_t seen_iterations TL_GUARDED_BY(lock);

/* What stands in the ledger for each device. */
static struct {
    struct tl_ledger_page *ledger;
    struct tl_ledger_slot *slot;
    uint64_t gpu;     /* 0: not known yet */
    uint64_t charged; /* of it */
    uint64_t pending; /* reserved, and not there yet */
} rows[TL_ACCOUNT_DEVICES] TL_GUARDED_BY(lock);

/* Without tallyd, and for a process for which there is no slot left. */
static struct tl_ledger_page own_ledger;
static bool has_own_ledger TL_GUARDED_BY(lock);

/* The child has one thread: there is nobody to lock out. */
TL_UNCHECKED void tl_memory_forked(void)
{
    tl_mutex_init(&lock);
    account = (struct tl_account){0}; /* what the parent has is not the child's */
    for (size_t i = 0; i < TL_ACCOUNT_DEVICES; i++) {
        rows[i].slot = NULL;
        rows[i].charged = rows[i].pending = 0;
    }
    own_ledger = (struct tl_ledger_page){0};
    has_own_ledger = false;
    use = (struct tl_memory_use){0};
    seen_iterations = 0;
    tl_rest_forked();
    tl_memory_graph_forked();
    tl_pages_forked();
}

bool tl_memory_here(struct tl_memory_place *p)
{
    *p = (struct tl_memory_place){0};
    return TL_REAL(cuCtxGetCurrent)(&p->context) == CUDA_SUCCESS && p->context != NULL &&
           TL_REAL(cuCtxGetDevice)(&p->device) == CUDA_SUCCESS;
}

uint64_t tl_memory_limit(void)
{
    struct tl_client_memory m = {.limit = tl_job.settings.memory_limit};
    if (tl_job.client != NULL)
        tl_client_memory(tl_job.client, &m);
    return m.limit;
}

/* --- the ledger ------------------------------------------------------------------------------- */

bool tl_memory_uuid(CUdevice device, CUuuid *uuid)
{
    return TL_REAL(cuDeviceGetUuid_v2)(uuid, device) == CUDA_SUCCESS ||
           TL_REAL(cuDeviceGetUuid)(uuid, device) == CUDA_SUCCESS;
}

static uint64_t gpu_of(CUdevice device)
{
    CUuuid uuid;
    return tl_memory_uuid(device, &uuid) ? tl_ledger_gpu((const uint8_t *)uuid.bytes)
                                         : (uint64_t)device + 1;
}

static unsigned row_of(CUdevice device)
{
    return device >= 0 && device < TL_ACCOUNT_DEVICES ? (unsigned)device : TL_ACCOUNT_DEVICES - 1;
}

static struct tl_ledger_page *private_ledger(void) TL_REQUIRES(lock);
static struct tl_ledger_page *private_ledger(void)
{
    if (!has_own_ledger)
        tl_ledger_init(&own_ledger);
    has_own_ledger = true;
    return &own_ledger;
}

/* The slot for a device.  If the ledger is another one than before, what this process holds goes
 * there. */
static struct tl_ledger_slot *slot_of(CUdevice device) TL_REQUIRES(lock);
static struct tl_ledger_slot *slot_of(CUdevice device)
{
    unsigned i = row_of(device);
    struct tl_ledger_page *ledger = tl_job.client != NULL ? tl_client_ledger(tl_job.client)
                                                          : private_ledger();
    if (rows[i].slot != NULL && rows[i].ledger == ledger)
        return rows[i].slot;
    uint64_t owner = tl_job.client != NULL ? tl_client_number(tl_job.client) : 1;
    if (rows[i].gpu == 0)
        rows[i].gpu = gpu_of((CUdevice)i);
    rows[i].ledger = ledger;
    rows[i].slot = tl_ledger_slot(ledger, owner, rows[i].gpu);
    if (rows[i].slot == NULL) { /* more processes than a ledger has slots: it counts by itself */
        rows[i].slot = tl_ledger_slot(private_ledger(), owner, rows[i].gpu);
        tl_log(1, "more than %d processes share a limit of memory: this one has it for itself",
               TL_LEDGER_SLOTS);
    }
    tl_ledger_change(rows[i].slot, (int64_t)rows[i].charged);
    return rows[i].slot;
}

static struct tl_ledger_page *ledger_of(const struct tl_ledger_slot *slot, CUdevice device)
    TL_REQUIRES(lock);
static struct tl_ledger_page *ledger_of(const struct tl_ledger_slot *slot, CUdevice device)
{
    bool is_own = slot >= own_ledger.slots && slot < own_ledger.slots + TL_LEDGER_SLOTS;
    return is_own ? &own_ledger : rows[row_of(device)].ledger;
}

/* What tallyd sees of this process. */
static void publish(void) TL_REQUIRES(lock);
static void publish(void)
{
    uint64_t held = 0;
    if (tl_job.client == NULL)
        return;
    for (unsigned i = 0; i < TL_ACCOUNT_DEVICES; i++)
        held += tl_account_held(&account, i);
    struct tl_client_page *page = tl_client_page(tl_job.client);
    atomic_store_explicit(&page->memory_bytes, held, memory_order_relaxed);
    if (use.iterations < 2) /* the first one is cut off where the pattern was recognised */
        return;
    atomic_store_explicit(&page->persistent_bytes, use.persistent, memory_order_relaxed);
    atomic_store_explicit(&page->ephemeral_bytes, use.ephemeral, memory_order_relaxed);
}

/* Changes what stands in the ledger; if it grows, within the limit (0: there is none).  False: it
 * would go beyond. */
static bool charge(CUdevice device, int64_t bytes, uint64_t limit) TL_REQUIRES(lock);
static bool charge(CUdevice device, int64_t bytes, uint64_t limit)
{
    struct tl_ledger_slot *slot = slot_of(device);
    if (bytes > 0 && !tl_ledger_take(ledger_of(slot, device), slot, (uint64_t)bytes, limit))
        return false;
    if (bytes < 0)
        tl_ledger_change(slot, bytes);
    rows[row_of(device)].charged += (uint64_t)bytes;
    return true;
}

uint64_t tl_memory_total(CUdevice device)
{
    tl_mutex_lock(&lock);
    struct tl_ledger_slot *slot = slot_of(device);
    uint64_t total = tl_ledger_total(ledger_of(slot, device), atomic_load(&slot->gpu));
    tl_mutex_unlock(&lock);
    return total;
}

uint64_t tl_memory_given(CUdevice device)
{
    unsigned row = row_of(device);
    tl_mutex_lock(&lock);
    uint64_t given = account.devices[row].given - account.devices[row].pooled;
    tl_mutex_unlock(&lock);
    return given;
}

/* --- before and after the driver -------------------------------------------------------------- */

static uint64_t kept_for_others(CUdevice device)
{
    tl_mutex_lock(&lock);
    (void)slot_of(device);
    uint64_t gpu = rows[row_of(device)].gpu;
    tl_mutex_unlock(&lock);
    return tl_job.client != NULL ? tl_client_kept(tl_job.client, gpu) : 0;
}

bool tl_memory_is_bounded(CUdevice device)
{
    return tl_memory_limit() != 0 || kept_for_others(device) != 0;
}

static bool try(CUdevice device, uint64_t bytes, uint64_t limit)
{
    tl_mutex_lock(&lock);
    bool fits = bytes <= INT64_MAX && charge(device, (int64_t)bytes, limit);
    rows[row_of(device)].pending += fits ? bytes : 0;
    tl_mutex_unlock(&lock);
    return fits;
}

bool tl_memory_leaves_enough(CUdevice device, uint64_t bytes)
{
    size_t left, all;
    uint64_t kept = kept_for_others(device);
    if (kept == 0 || TL_REAL(cuMemGetInfo_v2)(&left, &all) != CUDA_SUCCESS)
        return true;
    return left >= kept && left - kept >= bytes;
}

CUresult tl_memory_reserve(CUdevice device, uint64_t bytes)
{
    uint64_t limit = tl_memory_limit();
    bool fits = try(device, bytes, limit);
    if (!fits) { /* pools may hold less by now */
        tl_rest_lock();
        (void)tl_rest_measure(device, NULL);
        fits = try(device, bytes, limit);
        if (!fits) {
            tl_rest_give_up(device);
            fits = try(device, bytes, limit);
        }
        tl_rest_unlock();
    }
    if (fits && !tl_memory_leaves_enough(device, bytes)) {
        tl_memory_unreserve(device, bytes);
        fits = false;
    }
    if (!fits)
        tl_log(2, "%llu bytes of device memory are refused: the limit is %llu",
               (unsigned long long)bytes, (unsigned long long)limit);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void tl_memory_unreserve(CUdevice device, uint64_t bytes)
{
    tl_mutex_lock(&lock);
    rows[row_of(device)].pending -= bytes;
    (void)charge(device, -(int64_t)bytes, 0);
    tl_mutex_unlock(&lock);
}

void tl_memory_no_longer_pending(CUdevice device, uint64_t bytes)
{
    tl_mutex_lock(&lock);
    rows[row_of(device)].pending -= bytes;
    tl_mutex_unlock(&lock);
}

bool tl_memory_could_fit(CUdevice device, uint64_t bytes)
{
    uint64_t limit = tl_memory_limit(), total = tl_memory_total(device);
    tl_mutex_lock(&lock);
    uint64_t rest = account.devices[row_of(device)].rest;
    tl_mutex_unlock(&lock);
    uint64_t least = total > rest ? total - rest : 0;
    return (limit == 0 || (bytes <= limit && least <= limit - bytes)) &&
           tl_memory_leaves_enough(device, bytes);
}

void tl_memory_tell(CUdevice device, size_t *left, size_t *all)
{
    uint64_t limit = tl_memory_limit(), kept = kept_for_others(device);
    *left -= kept < *left ? kept : *left;
    if (limit == 0)
        return;
    tl_rest_lock();
    (void)tl_rest_measure(device, NULL);
    tl_rest_unlock();
    uint64_t total = tl_memory_total(device), rest = total < limit ? limit - total : 0;
    *left = *left < rest ? *left : rest;
    *all = *all < limit ? *all : limit;
}

/* An iteration has ended since the last allocation or release: what is alive now outlives
 * iterations. */
static void notice_iteration(void) TL_REQUIRES(lock);
static void notice_iteration(void)
{
    uint64_t now = tl_job.client != NULL ? atomic_load(&tl_client_page(tl_job.client)->iterations)
                                         : 0;
    if (now != seen_iterations)
        tl_memory_iteration(&use);
    seen_iterations = now;
}

static void lost_now(struct tl_account_lost lost) TL_REQUIRES(lock);
static void lost_now(struct tl_account_lost lost)
{
    if (lost.bytes == 0)
        return;
    (void)charge((CUdevice)lost.device, -(int64_t)lost.bytes, 0);
    tl_memory_freed(&use, lost.bytes);
}

/* Called by the account, so under the lock. */
TL_UNCHECKED void tl_memory_lost(void *unused, struct tl_account_lost lost)
{
    (void)unused;
    lost_now(lost);
}

void tl_memory_got(enum tl_account_kind kind, uint64_t key, uint64_t bytes,
                   const struct tl_memory_place *place)
{
    struct tl_account_lost before = {0};
    tl_mutex_lock(&lock);
    notice_iteration();
    int rc = tl_account_add(&account, kind, key, bytes, (unsigned)place->device, place->context,
                            &before);
    lost_now(before);
    rows[row_of(place->device)].pending -= bytes;
    if (rc == 0)
        tl_memory_allocated(&use, bytes);
    else
        (void)charge(place->device, -(int64_t)bytes, 0); /* no memory to remember it */
    publish();
    tl_mutex_unlock(&lock);
}

struct tl_memory_gone tl_memory_goes(enum tl_account_kind kind, uint64_t key)
{
    struct tl_memory_gone gone = {.kind = kind, .key = key};
    tl_mutex_lock(&lock);
    notice_iteration();
    gone.lost = tl_account_remove(&account, kind, key, (void **)&gone.context);
    unsigned device = row_of((CUdevice)gone.lost.device);
    if (kind == TL_MEM_POOLED && gone.lost.bytes != 0 && tl_memory_limit() != 0) {
        /* It is still the pool's, until that gives it up. */
        (void)tl_account_rest(&account, device, account.devices[device].rest + gone.lost.bytes);
        tl_memory_freed(&use, gone.lost.bytes);
    } else {
        lost_now(gone.lost);
    }
    publish();
    tl_mutex_unlock(&lock);
    return gone;
}

void tl_memory_stays(const struct tl_memory_gone *gone)
{
    const struct tl_memory_place place = {gone->context, (CUdevice)gone->lost.device};
    if (gone->lost.bytes == 0)
        return;
    (void)try(place.device, gone->lost.bytes, 0);
    tl_memory_got(gone->kind, gone->key, gone->lost.bytes, &place);
}

void tl_memory_with_account(void (*run)(struct tl_account *a, void *data), void *data)
{
    tl_mutex_lock(&lock);
    run(&account, data);
    publish();
    tl_mutex_unlock(&lock);
}

static void forget_context(struct tl_account *a, void *context)
{
    tl_account_context_gone(a, context, tl_memory_lost, NULL);
}

void tl_memory_context_gone(CUcontext context)
{
    tl_memory_with_account(forget_context, context);
}

bool tl_memory_settle(CUdevice device, uint64_t pools, uint64_t others,
                      const struct tl_memory_fresh *fresh)
{
    unsigned row = row_of(device);
    uint64_t more = fresh != NULL ? fresh->bytes : 0;
    struct tl_account_lost before = {0};
    tl_mutex_lock(&lock);
    uint64_t pooled = account.devices[row].pooled + more;
    uint64_t rest = others + (pools > pooled ? pools - pooled : 0);
    uint64_t now = account.devices[row].given + more + rest + rows[row].pending;
    bool fits = charge(device, (int64_t)(now - rows[row].charged),
                       fresh != NULL ? tl_memory_limit() : 0);
    if (fits) {
        (void)tl_account_rest(&account, row, rest);
        if (more > 0 && tl_account_add(&account, TL_MEM_POOLED, fresh->key, more, (unsigned)device,
                                       fresh->place.context, &before) == 0)
            tl_memory_allocated(&use, more);
        lost_now(before);
    }
    publish();
    tl_mutex_unlock(&lock);
    return fits;
}
