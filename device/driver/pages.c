/* Managed memory: pages that live in device memory or in host memory, and move when they are
 * touched.
 *
 * An allocation is cut into chunks.  The pages of a chunk on the device are where the program sees
 * them, and count in the device's ledger; the pages of a chunk in host memory are in a range of
 * their own, and what the program sees is inaccessible.  Whoever touches it faults, the pages are
 * moved, the time of the bus is waited for, and the access is repeated.  So a kernel waits for its
 * pages on the SM that it holds.
 *
 *     what the program sees   |pages|pages| none | none |pages|        chunks 0, 1 and 4 are on the device
 *     host memory             |     |     |pages |      |     |        chunk 3 was never touched
 *
 * Moving is mremap's: both ranges keep their places, and no thread ever sees half of a chunk.  Room
 * is made by moving the chunk that came first; other processes are asked for pages of a lower rank.
 * If there is no room to be had at all, a few chunks may be used over the bus without being on the
 * device, so that nobody ever fails for lack of device memory: an instruction may need several
 * chunks at once, hence at least FEWEST stay accessible.
 *
 * Chunks that fit are on the device from the beginning, so a program that stays within the device
 * never faults.  Of the host's accesses, those by system calls (a read into a chunk that is in host
 * memory) fail with EFAULT: signals do not reach them. */
#include "device/driver/pages.h"
#include "device/driver/device.h"
#include "device/driver/exec.h"
#include "device/driver/handle.h"
#include "device/driver/memory.h"
#include "tally/check.h"
#include "tally/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum {
    LEAST_CHUNK = 64 << 10,
    MOST_CHUNKS = 24000, /* of the process: each can be two mappings, of which there may be 65530 */
    MOST_PAGES = 4096,   /* of a chunk that is looked at in one piece */
    FEWEST = 256,        /* chunks that stay accessible whatever the ledger says */
};

enum place { IN_HOST_MEMORY, ON_DEVICE, OVER_THE_BUS };

struct chunk {
    struct chunk *older, *newer; /* among those that are accessible */
    struct tl_drv_pages *pages;
    enum place place;
    uint32_t rank;
    uint32_t holds;      /* it must not move */
    bool has_host_pages; /* else, unless it is accessible, it was never touched */
};

struct tl_drv_pages {
    struct tl_drv_pages *next; /* by address */
    struct tl_drv_device *device;
    uint8_t *base, *host;
    size_t bytes, chunk_bytes;
    uint32_t n_chunks;
    struct chunk chunks[];
};

/* Nobody touches the program's memory while holding it. */
static struct tl_mutex pages_lock = TL_MUTEX_INITIALIZER;
#define LOCKED TL_REQUIRES(pages_lock)

/* Allocations and their chunks are guarded as well, but for what is set when they are made. */
static struct {
    struct tl_drv_pages *first;
    struct chunk oldest, newest; /* ends of the list of accessible chunks */
    uint32_t n_accessible, n_chunks;
    bool has_thread[TL_DRV_MAX_DEVICES];
} all TL_GUARDED_BY(pages_lock);
static _Atomic uint32_t n_allocations; /* a look without the lock */

/* --- chunks ----------------------------------------------------------------------------------- */

static size_t offset_of(const struct chunk *c)
{
    return (size_t)(c - c->pages->chunks) * c->pages->chunk_bytes;
}

static size_t bytes_of(const struct chunk *c)
{
    size_t left = c->pages->bytes - offset_of(c);
    return left < c->pages->chunk_bytes ? left : c->pages->chunk_bytes;
}

static struct tl_drv_pages *find_pages(const void *address) LOCKED
{
    struct tl_drv_pages *p = all.first;
    while (p != NULL && (size_t)((const uint8_t *)address - p->base) >= p->bytes)
        p = p->next;
    return p;
}

static struct chunk *chunk_at(struct tl_drv_pages *p, const void *address)
{
    return &p->chunks[(size_t)((const uint8_t *)address - p->base) / p->chunk_bytes];
}

static void put_last(struct chunk *c) LOCKED
{
    if (all.newest.older == NULL) {
        all.oldest.newer = &all.newest;
        all.newest.older = &all.oldest;
    }
    TL_CHECK(c->place != IN_HOST_MEMORY);
    c->older = all.newest.older;
    c->newer = &all.newest;
    c->older->newer = c->newer->older = c;
    all.n_accessible++;
}

static void take_out(struct chunk *c) LOCKED
{
    TL_CHECK(all.n_accessible > 0 && c->older->newer == c && c->newer->older == c);
    c->older->newer = c->newer;
    c->newer->older = c->older;
    all.n_accessible--;
}

/* Whether one of its pages was ever written to. */
static bool has_pages(const struct chunk *c)
{
    unsigned char there[MOST_PAGES];
    size_t at = offset_of(c), n = bytes_of(c), step = (size_t)MOST_PAGES * TL_DRV_PAGE;
    for (size_t from = 0; from < n; from += step) {
        size_t piece = n - from < step ? n - from : step,
               pages = (piece + TL_DRV_PAGE - 1) / TL_DRV_PAGE;
        if (mincore(c->pages->base + at + from, piece, there) != 0)
            return true;
        for (size_t i = 0; i < pages; i++)
            if ((there[i] & 1) != 0)
                return true;
    }
    return false;
}

static void charge(const struct chunk *c)
{
    tl_drv_exec_mark(c->pages->device, c->rank, (int64_t)bytes_of(c));
}

static void discharge(const struct chunk *c)
{
    tl_drv_exec_mark(c->pages->device, c->rank, -(int64_t)bytes_of(c));
    tl_drv_exec_give(c->pages->device, bytes_of(c));
}

/* Puts the pages of one range into the place of the other; the first one stays mapped, without
 * any. */
static bool move_pages(uint8_t *from, uint8_t *to, size_t n)
{
    return mremap(from, n, n, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) != MAP_FAILED;
}

/* To host memory.  Returns how much went over the bus.  A chunk that the kernel does not move stays
 * for good. */
static size_t move_out(struct chunk *c) LOCKED
{
    const struct tl_drv_pages *p = c->pages;
    size_t at = offset_of(c), n = bytes_of(c), moved = 0;
    TL_CHECK(c->place != IN_HOST_MEMORY && c->holds == 0);
    if (mprotect(p->base + at, n, PROT_NONE) != 0) {
        c->holds++;
        return 0;
    }
    if (has_pages(c)) {
        if (!move_pages(p->base + at, p->host + at, n)) {
            mprotect(p->base + at, n, PROT_READ | PROT_WRITE);
            c->holds++;
            return 0;
        }
        moved = n;
        c->has_host_pages = true;
    }
    if (c->place == ON_DEVICE)
        discharge(c);
    c->place = IN_HOST_MEMORY;
    take_out(c);
    return moved;
}

/* To where it can be used; the ledger has been asked if that is the device. */
static size_t move_in(struct chunk *c, enum place place) LOCKED
{
    const struct tl_drv_pages *p = c->pages;
    size_t at = offset_of(c), n = bytes_of(c), moved = 0;
    TL_CHECK(c->place == IN_HOST_MEMORY && place != IN_HOST_MEMORY);
    if (c->has_host_pages) {
        /* too many mappings: its bytes go another way */
        if (!move_pages(p->host + at, p->base + at, n)) {
            mprotect(p->host + at, n, PROT_READ | PROT_WRITE);
            mprotect(p->base + at, n, PROT_READ | PROT_WRITE);
            memcpy(p->base + at, p->host + at, n);
        }
        c->has_host_pages = false;
        moved = n;
    }
    c->place = place;
    if (place == ON_DEVICE)
        charge(c);
    put_last(c);
    mprotect(p->base + at, n, PROT_READ | PROT_WRITE);
    return moved;
}

/* The chunk that came first and may go, of this rank or below; NULL if there is none, or too few
 * are left. */
static struct chunk *victim(const struct tl_drv_device *device, uint32_t rank,
                            bool spares_few) LOCKED
{
    uint32_t n = all.n_accessible;
    if (all.oldest.newer == NULL)
        return NULL;
    for (struct chunk *c = all.oldest.newer; c != &all.newest && (!spares_few || n-- > FEWEST);
         c = c->newer)
        if (c->holds == 0 && c->rank <= rank && c->pages->device == device && c->place == ON_DEVICE)
            return c;
    return NULL;
}

/* Room for `bytes` in the ledger by moving own chunks.  Adds to `moved` what went over the bus. */
static bool make_room(struct tl_drv_device *device, uint64_t bytes, uint32_t rank, bool spares_few,
                      uint64_t *moved) LOCKED
{
    while (tl_drv_exec_take(device, bytes) != 0) {
        struct chunk *c = victim(device, rank, spares_few);
        if (c == NULL)
            return false;
        *moved += move_out(c);
    }
    return true;
}

/* Those that are used over the bus are kept few. */
static void limit_remote(uint64_t *moved) LOCKED
{
    uint32_t n = 0;
    for (struct chunk *c = all.newest.older; c != &all.oldest;) {
        struct chunk *older = c->older;
        if (c->place == OVER_THE_BUS && ++n > FEWEST && c->holds == 0)
            *moved += move_out(c);
        c = older;
    }
}

/* Makes it accessible.  The lock is given up meanwhile. */
static void bring(struct chunk *c, uint64_t *moved) LOCKED
{
    struct tl_drv_pages *p = c->pages;
    if (c->place != IN_HOST_MEMORY)
        return;
    bool has_room = make_room(p->device, bytes_of(c), c->rank, true, moved);
    if (!has_room) {
        size_t n = bytes_of(c);
        /* of equals a page is asked for only when the own ones are few */
        uint32_t below = c->rank + 1;
        c->holds++;
        tl_mutex_unlock(&pages_lock);
        has_room = tl_drv_exec_demand(p->device, n, below) == 0;
        tl_mutex_lock(&pages_lock);
        TL_CHECK(c->holds > 0);
        c->holds--;
        if (c->place != IN_HOST_MEMORY) { /* somebody else was faster */
            if (has_room)
                tl_drv_exec_give(p->device, n);
            return;
        }
    }
    *moved += move_in(c, has_room ? ON_DEVICE : OVER_THE_BUS);
    if (!has_room)
        limit_remote(moved);
}

/* --- from outside ----------------------------------------------------------------------------- */

/* In a signal handler, on the thread that touched it. */
static bool on_touch(const void *address)
{
    uint64_t moved = 0;
    tl_mutex_lock(&pages_lock);
    struct tl_drv_pages *p = find_pages(address);
    struct tl_drv_device *device = p != NULL ? p->device : NULL;
    if (p != NULL)
        bring(chunk_at(p, address), &moved);
    tl_mutex_unlock(&pages_lock);
    if (device != NULL)
        tl_drv_exec_bus(device, moved);
    return device != NULL;
}

bool tl_drv_pages_are_there(void)
{
    return atomic_load_explicit(&n_allocations, memory_order_acquire) != 0;
}

size_t tl_drv_pages_hold(const void *address, size_t n, struct tl_drv_hold *hold)
{
    const uint8_t *at = address;
    uint64_t moved = 0;
    hold->chunk = NULL;
    tl_mutex_lock(&pages_lock);
    struct tl_drv_pages *p = find_pages(at);
    if (p == NULL) {
        for (p = all.first; p != NULL; p = p->next)
            if (p->base > at && (size_t)(p->base - at) < n)
                n = (size_t)(p->base - at);
        tl_mutex_unlock(&pages_lock);
        return n;
    }
    struct chunk *c = chunk_at(p, at);
    struct tl_drv_device *device = p->device;
    size_t left = bytes_of(c) - ((size_t)(at - p->base) - offset_of(c));
    c->holds++;
    bring(c, &moved);
    tl_mutex_unlock(&pages_lock);
    hold->chunk = c;
    tl_drv_exec_bus(device, moved);
    return n < left ? n : left;
}

void tl_drv_pages_release(const struct tl_drv_hold *hold)
{
    struct chunk *c = hold->chunk;
    if (c == NULL)
        return;
    tl_mutex_lock(&pages_lock);
    TL_CHECK(c->holds > 0);
    c->holds--;
    tl_mutex_unlock(&pages_lock);
}

/* Chunk by chunk: moved under the lock, and the time on the bus waited for without it.  What is
 * held stays; to the device it goes on as long as there is room. */
void tl_drv_pages_move(CUdeviceptr address, size_t n, bool to_device)
{
    uint8_t *at = tl_drv_pointer((uintptr_t)address);
    while (n > 0) {
        uint64_t moved = 0;
        tl_mutex_lock(&pages_lock);
        struct tl_drv_pages *p = find_pages(at);
        if (p == NULL) {
            tl_mutex_unlock(&pages_lock);
            return;
        }
        struct chunk *c = chunk_at(p, at);
        struct tl_drv_device *device = p->device;
        size_t left = bytes_of(c) - ((size_t)(at - p->base) - offset_of(c));
        bool has_room = true;
        if (!to_device && c->place != IN_HOST_MEMORY && c->holds == 0)
            moved = move_out(c);
        else if (to_device && c->place != ON_DEVICE) {
            /* Into room that is free: a wish moves nobody. */
            has_room = tl_drv_exec_take(device, bytes_of(c)) == 0;
            if (has_room && c->place == IN_HOST_MEMORY) {
                moved = move_in(c, ON_DEVICE);
            } else if (has_room) {
                c->place = ON_DEVICE;
                charge(c);
                moved = bytes_of(c);
            }
        }
        tl_mutex_unlock(&pages_lock);
        tl_drv_exec_bus(device, moved);
        if (!has_room || left >= n)
            return;
        at += left;
        n -= left;
    }
}

void tl_drv_pages_rank(CUdeviceptr address, size_t n, uint32_t rank)
{
    uint8_t *at = tl_drv_pointer((uintptr_t)address);
    tl_mutex_lock(&pages_lock);
    struct tl_drv_pages *p = find_pages(at);
    for (uint32_t i = 0; p != NULL && i < p->n_chunks; i++) {
        struct chunk *c = &p->chunks[i];
        uint8_t *begin = p->base + offset_of(c);
        if (begin + bytes_of(c) <= at || begin >= at + n || c->rank == rank)
            continue;
        if (c->place == ON_DEVICE) {
            tl_drv_exec_mark(p->device, c->rank, -(int64_t)bytes_of(c));
            tl_drv_exec_mark(p->device, rank, (int64_t)bytes_of(c));
        }
        c->rank = rank;
    }
    tl_mutex_unlock(&pages_lock);
}

uint64_t tl_drv_pages_on_device(CUdeviceptr address, size_t n, uint32_t *rank)
{
    uint8_t *at = tl_drv_pointer((uintptr_t)address);
    uint64_t sum = 0;
    tl_mutex_lock(&pages_lock);
    struct tl_drv_pages *p = find_pages(at);
    for (uint32_t i = 0; p != NULL && i < p->n_chunks; i++) {
        const struct chunk *c = &p->chunks[i];
        uint8_t *begin = p->base + offset_of(c);
        if (begin + bytes_of(c) <= at || begin >= at + n)
            continue;
        *rank = c->rank;
        sum += c->place == ON_DEVICE ? bytes_of(c) : 0;
    }
    tl_mutex_unlock(&pages_lock);
    return sum;
}

bool tl_drv_pages_make_room(struct tl_drv_device *device, uint64_t bytes)
{
    uint64_t moved = 0;
    if (!tl_drv_pages_are_there())
        return false;
    tl_mutex_lock(&pages_lock);
    bool has_room = make_room(device, bytes, TL_DRV_FIRM, false, &moved);
    tl_mutex_unlock(&pages_lock);
    tl_drv_exec_bus(device, moved);
    return has_room;
}

/* --- when others ask -------------------------------------------------------------------------- */

static void give_back(void *of, uint32_t rank, uint64_t bytes)
{
    struct tl_drv_device *device = of;
    uint64_t moved = 0, given = 0;
    tl_mutex_lock(&pages_lock);
    while (given < bytes) {
        struct chunk *c = victim(device, rank, false);
        if (c == NULL)
            break;
        given += bytes_of(c);
        moved += move_out(c);
    }
    tl_mutex_unlock(&pages_lock);
    tl_drv_exec_bus(device, moved);
}

static void *serve(void *device)
{
    tl_drv_exec_serve(device, give_back);
    return NULL;
}

static void start_thread(struct tl_drv_device *device) LOCKED
{
    static const struct tl_thread_kind kind = {.name = "tally-pages"};
    if (!all.has_thread[device->ordinal])
        all.has_thread[device->ordinal] = tl_thread_start(NULL, &kind, serve, device) == 0;
}

/* --- making and ending ------------------------------------------------------------------------ */

/* What the machine can still give. */
static uint64_t host_memory_left(void)
{
    char line[128];
    uint64_t left = UINT64_MAX;
    unsigned long long kib;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            left = (uint64_t)kib << 10;
    if (f != NULL)
        fclose(f);
    return left;
}

/* As much as fits is on the device from the beginning, the rest comes when it is touched.  Chunks
 * are as small as the number of mappings that a process may have allows. */
struct tl_drv_pages *tl_drv_pages_create(struct tl_drv_device *device, void *base, size_t bytes)
{
    size_t chunk = LEAST_CHUNK;
    if (bytes > host_memory_left())
        return NULL;
    tl_mutex_lock(&pages_lock);
    /* some for those to come */
    size_t most = all.n_chunks + 64 < MOST_CHUNKS ? (MOST_CHUNKS - all.n_chunks) / 4 : 16;
    tl_mutex_unlock(&pages_lock);
    while (bytes / chunk >= most)
        chunk *= 2;
    uint32_t n = (uint32_t)((bytes + chunk - 1) / chunk);
    struct tl_drv_pages *p = calloc(1, sizeof *p + n * sizeof p->chunks[0]);
    if (p == NULL)
        return NULL;
    void *host = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED || mprotect(base, bytes, PROT_NONE) != 0) {
        if (host != MAP_FAILED)
            munmap(host, bytes);
        free(p);
        return NULL;
    }
    *p = (struct tl_drv_pages){.device = device,
                               .base = base,
                               .host = host,
                               .bytes = bytes,
                               .chunk_bytes = chunk,
                               .n_chunks = n};
    tl_mutex_lock(&pages_lock);
    start_thread(device);
    struct tl_drv_pages **at = &all.first;
    while (*at != NULL && (*at)->base < p->base)
        at = &(*at)->next;
    p->next = *at;
    *at = p;
    all.n_chunks += n;
    bool has_room = true;
    for (uint32_t i = 0; i < n; i++) {
        struct chunk *c = &p->chunks[i];
        c->pages = p;
        has_room = has_room && tl_drv_exec_take(device, bytes_of(c)) == 0;
        if (has_room)
            move_in(c, ON_DEVICE);
    }
    bool is_first = atomic_fetch_add_explicit(&n_allocations, 1, memory_order_release) == 0;
    tl_mutex_unlock(&pages_lock);
    if (is_first || !has_room)
        tl_drv_exec_pages(on_touch);
    return p;
}

void tl_drv_pages_destroy(struct tl_drv_pages *p)
{
    tl_mutex_lock(&pages_lock);
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        struct chunk *c = &p->chunks[i];
        if (c->place == ON_DEVICE)
            discharge(c);
        if (c->place != IN_HOST_MEMORY)
            take_out(c);
    }
    struct tl_drv_pages **at = &all.first;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    all.n_chunks -= p->n_chunks;
    atomic_fetch_sub_explicit(&n_allocations, 1, memory_order_release);
    tl_mutex_unlock(&pages_lock);
    munmap(p->host, p->bytes);
    free(p);
}
