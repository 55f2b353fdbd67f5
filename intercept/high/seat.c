/* A job's seats: one for each GPU that it uses, with a client of its own, so that work on one GPU
 * holds back nobody on another.  The first is the job's own client, which also has its grants,
 * requests and counters of memory.  Where another cannot be had, the first counts for that GPU
 * too. */
#include "intercept/high/high.h"

#include <string.h>

struct tl_seat tl_seats[TL_SEATS];
_Atomic uint32_t tl_n_seats;
static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static uint8_t uuids[TL_SEATS][16] TL_GUARDED_BY(lock);
static bool has_place TL_GUARDED_BY(lock); /* the first seat has one */

void tl_seats_start(void)
{
    tl_seats[0].client = tl_job.client;
    tl_seats[0].page = tl_client_page(tl_job.client);
    if (atomic_load(&tl_n_seats) == 0)
        atomic_store(&tl_n_seats, 1);
    for (uint32_t i = 0; i < atomic_load(&tl_n_seats); i++)
        atomic_store(&tl_seats[i].page->rung, TL_RUNG_WHOLE);
}

/* The child has one thread: there is nobody to lock out. */
TL_UNCHECKED void tl_seats_forked(void)
{
    tl_mutex_init(&lock);
    for (uint32_t i = 1; i < atomic_load(&tl_n_seats); i++)
        tl_client_abandon(tl_seats[i].client);
    for (uint32_t i = 0; i < TL_SEATS; i++)
        atomic_store(&tl_seats[i].burst_ns, 0);
    atomic_store(&tl_n_seats, 0);
    has_place = false;
}

bool tl_seats_are_busy(const struct tl_seat *but)
{
    uint32_t n = atomic_load(&tl_n_seats);
    for (uint32_t i = 0; i < n; i++)
        if (&tl_seats[i] != but && tl_word_is_busy(atomic_load(&tl_seats[i].page->word)))
            return true;
    return false;
}

/* Another seat.  NULL if it cannot join. */
static struct tl_seat *make(const uint8_t uuid[16]) TL_REQUIRES(lock);
static struct tl_seat *make(const uint8_t uuid[16])
{
    uint32_t n = atomic_load(&tl_n_seats);
    struct tl_client *client;
    struct tl_error err;
    if (n == TL_SEATS || !tl_client_is_joined(tl_job.client) ||
        tl_client_create(&client, &tl_job.settings, &err) < 0)
        return NULL;
    if (!tl_client_is_joined(client)) {
        tl_client_destroy(client);
        return NULL;
    }
    tl_client_place(client, uuid);
    tl_seats[n].client = client;
    tl_seats[n].page = tl_client_page(client);
    atomic_store(&tl_seats[n].page->rung, TL_RUNG_WHOLE);
    memcpy(uuids[n], uuid, 16);
    atomic_store(&tl_n_seats, n + 1);
    return &tl_seats[n];
}

static struct tl_seat *seat_of(const uint8_t uuid[16]) TL_REQUIRES(lock);
static struct tl_seat *seat_of(const uint8_t uuid[16])
{
    uint32_t n = atomic_load(&tl_n_seats);
    for (uint32_t i = has_place ? 0 : 1; i < n; i++)
        if (memcmp(uuids[i], uuid, 16) == 0)
            return &tl_seats[i];
    struct tl_seat *seat = has_place ? make(uuid) : NULL;
    if (seat != NULL)
        return seat;
    if (!has_place)
        memcpy(uuids[0], uuid, 16);
    has_place = true;
    tl_client_place(tl_job.client, uuid);
    return &tl_seats[0];
}

struct tl_seat *tl_seat_of(CUcontext ctx)
{
    CUdevice device;
    CUuuid uuid;
    if (!tl_job_gpu(ctx, &device, &uuid))
        return &tl_seats[0];
    tl_mutex_lock(&lock);
    struct tl_seat *seat = seat_of((const uint8_t *)uuid.bytes);
    tl_mutex_unlock(&lock);
    tl_job_describe(seat->page, device);
    return seat;
}

uint32_t tl_seats_in_flight(void)
{
    uint32_t n = atomic_load(&tl_n_seats), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t word = atomic_load(&tl_seats[i].page->word);
        sum += (uint32_t)word - (uint32_t)(word >> 32);
    }
    return sum;
}

void tl_seats_leave(void)
{
    tl_mutex_lock(&lock);
    uint32_t n = atomic_load(&tl_n_seats);
    for (uint32_t i = 1; i < n; i++)
        tl_client_place(tl_job.client, uuids[i]);
    tl_mutex_unlock(&lock);
}
