/* The copies of this client's word in those below it; see runtime/job/client_internal.h.
 *
 * Only bursts matter to who polls a copy, so a copy is written twice per burst, however many pieces
 * of work that has:
 *
 *     a burst begins      copy.began = its number, in all copies, before the work goes to the driver
 *     it ends             copy.ended = its number
 *
 * They are plain stores to two halves of a word, and nothing is read back: it may say anything.
 * Its end may be told late, when the next burst runs; but what is told is the number of what has
 * ended, which is not the one that began last.  So a copy never looks idle while a burst is on.
 *
 * Several threads may find that they begin the same burst.  Each takes a number, and any of these
 * in a copy says that the burst is on: it is not over before the pieces of all of them are.  A
 * thread that finds a burst which is not told of yet, because whoever began it lost its CPU, tells
 * it as well.
 *
 * A store may reach a copy late, over the higher number of another thread, and would then say an
 * old number for good: `ended` never equals that, and those below would wait until the next burst.
 * So each looks, once its own stores have arrived, whether its number was the last one, and if not
 * puts the last one in its place, by an exchange that leaves alone what others have said since.
 * That may be done after the piece went to the driver, when the atomic addition that counts it has
 * waited for the stores anyway: to wait before would cost the launch what the lines of up to 16
 * pollers take to come.  (test/unit/runtime/job/tell_test.c goes through all interleavings.) */
#include "runtime/job/client_internal.h"

#include "tally/check.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEEP_OLD_NS UINT64_C(2000000000)
enum { PLACES = TL_CLIENT_PLACES, ROW_BYTES = PLACES * TL_SHARE_PAGE };

static struct tl_copy_page *page_of(const struct tl_client_below *b, uint32_t place)
{
    return (struct tl_copy_page *)(void *)(b->row + (size_t)place * TL_SHARE_PAGE);
}

int tl__below_init(struct tl_client_below *b)
{
    *b = (struct tl_client_below){0};
    void *row = mmap(NULL, ROW_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (row == MAP_FAILED)
        return -ENOMEM;
    b->row = row;
    return 0;
}

void tl__below_finish(struct tl_client_below *b)
{
    for (uint32_t i = 0; i < TL_SHARE_COPIES; i++)
        if (b->slots[i].place != 0)
            atomic_store_explicit(&page_of(b, b->slots[i].place)->is_kept, 0, memory_order_relaxed);
    if (b->row != NULL)
        munmap(b->row, ROW_BYTES);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The copy of the lowest slot of a set. */
static struct tl_copy_page *copy_at(struct tl_client_below *b, uint32_t set)
{
    return atomic_load_explicit(&b->copies[__builtin_ctz(set)], memory_order_relaxed);
}

static void spread_end(struct tl_client_below *b)
{
    uint32_t ended = atomic_load(&b->ended), told;
    do {
        told = ended;
        for (uint32_t left = atomic_load(&b->shown); left != 0; left &= left - 1)
            atomic_store_explicit(&copy_at(b, left)->ended, told, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
        ended = atomic_load(&b->ended);
    } while (ended != told);
}

uint32_t tl__below_tell(struct tl_client_below *b, struct tl_client_page *page)
{
    /* Sequentially consistent, as the thread's side: it shows a new copy, then looks at the
     * number; one of the two sees the other. */
    uint32_t number = atomic_fetch_add(&b->began, 1) + 1;
    for (uint32_t left = atomic_load(&b->shown); left != 0; left &= left - 1)
        atomic_store_explicit(&copy_at(b, left)->began, number, memory_order_release);
    /* Whoever sees this sees the copies as well. */
    atomic_store_explicit(&page->is_told, 1, memory_order_release);
    return number;
}

/* What others say since then is newer than what is put in the place of our own number. */
static void mend(struct tl_client_below *b, uint32_t number, uint32_t last)
{
    for (uint32_t left = atomic_load(&b->shown); left != 0; left &= left - 1) {
        uint32_t said = number;
        (void)atomic_compare_exchange_strong(&copy_at(b, left)->began, &said, last);
    }
}

void tl__below_told(struct tl_client_below *b, uint32_t number)
{
#if defined(__x86_64__)
    /* The caller's atomic addition has emptied the store buffer. */
    atomic_signal_fence(memory_order_seq_cst);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
    uint32_t last = atomic_load(&b->began);
    if (__builtin_expect(last != number, 0))
        mend(b, number, last);
}

void tl__below_began(struct tl_client_below *b, struct tl_client_page *page)
{
    uint32_t number = tl__below_tell(b, page);
    atomic_thread_fence(memory_order_seq_cst);
    tl__below_told(b, number);
}

void tl__below_ended(struct tl_client_below *b, struct tl_client_page *page, uint32_t completed)
{
    atomic_store(&page->is_told, 0);
    uint32_t number = atomic_load(&b->began), ended = atomic_load(&b->ended);
    if (atomic_load(&page->issued) != completed)
        return; /* another one begins, the number may be its own, and it tells of its own end */
    while ((int32_t)(number - ended) > 0)
        if (atomic_compare_exchange_weak(&b->ended, &ended, number))
            break;
    spread_end(b);
}

/* --- the set ---------------------------------------------------------------------------------- */

/* A thread that still has the address writes to nobody. */
static void stop_keeping(struct tl_client_below *b, struct tl_client_slot *slot)
{
    struct tl_copy_page *page = page_of(b, slot->place);
    TL_CHECK(slot->place > 0 && slot->place < PLACES);
    atomic_fetch_and(&b->shown, ~(1u << (slot - b->slots)));
    atomic_store_explicit(&page->is_kept, 0, memory_order_release);
    (void)mmap(page, TL_SHARE_PAGE, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    *slot = (struct tl_client_slot){0};
}

void tl__below_abandon(struct tl_client_below *b)
{
    (void)mmap(b->row, ROW_BYTES, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    atomic_store(&b->shown, 0);
    for (uint32_t i = 0; i < TL_SHARE_COPIES; i++)
        b->slots[i] = (struct tl_client_slot){0};
    atomic_store(&b->began, 0);
    atomic_store(&b->ended, 0);
}

/* A place that no slot has; places take turns, so that an old address stays nobody's for long. */
static uint32_t free_place(struct tl_client_below *b)
{
    for (;;) {
        bool is_used = false;
        b->last = b->last + 1 < PLACES ? b->last + 1 : 1;
        for (uint32_t i = 0; i < TL_SHARE_COPIES; i++)
            is_used |= b->slots[i].place == b->last;
        if (!is_used)
            return b->last;
    }
}

/* Begins to keep a copy.  It is busy until it is known to be idle. */
static void show(struct tl_client_below *b, uint32_t slot, struct tl_copy_page *page)
{
    uint32_t began = atomic_load(&b->began), expected = began;
    atomic_store(&page->ended, began - 1);
    atomic_store(&page->began, began);
    atomic_store_explicit(&b->copies[slot], page, memory_order_relaxed);
    atomic_fetch_or(&b->shown, 1u << slot);
    /* A burst that began meanwhile may have missed it; one that begins from here on does not. */
    uint32_t now = atomic_load(&b->began);
    if (now != began)
        (void)atomic_compare_exchange_strong(&page->began, &expected, now);
    spread_end(b);
    atomic_store_explicit(&page->is_kept, 1, memory_order_release);
}

/* Maps a page that somebody below has made, and seals it: from then on nobody can map it anew, or
 * take its memory away from under this mapping.  False if there is no room for it, or it is
 * none. */
static bool add(struct tl_client_below *b, int fd, const struct stat *st)
{
    uint32_t slot = 0;
    while (slot < TL_SHARE_COPIES && b->slots[slot].place != 0)
        slot++;
    if (slot == TL_SHARE_COPIES || tl_share_check(fd) < 0)
        return false;
    uint32_t place = free_place(b);
    struct tl_copy_page *page = page_of(b, place);
    if (tl_share_map_at(page, fd, true) < 0)
        return false;
    tl_share_seal(fd);
    b->slots[slot] = (struct tl_client_slot){
        .place = place, .dev = st->st_dev, .ino = st->st_ino, .is_wanted = true};
    show(b, slot, page);
    return true;
}

static struct tl_client_slot *find_slot(struct tl_client_below *b, const struct stat *st)
{
    for (uint32_t i = 0; i < TL_SHARE_COPIES; i++)
        if (b->slots[i].place != 0 && b->slots[i].dev == st->st_dev &&
            b->slots[i].ino == st->st_ino)
            return &b->slots[i];
    return NULL;
}

/* Those that are not wanted go; those of an old tallyd later, for jobs come back to a new one one
 * by one. */
static void drop_unwanted(struct tl_client_below *b, uint64_t now)
{
    for (uint32_t i = 0; i < TL_SHARE_COPIES; i++) {
        struct tl_client_slot *s = &b->slots[i];
        if (s->place == 0 || s->is_wanted)
            continue;
        if (!s->is_old)
            stop_keeping(b, s);
        else if (s->until_ns == 0)
            s->until_ns = now + KEEP_OLD_NS;
    }
}

void tl__below_take(struct tl_client_below *b, struct tl_wire_packet *packet, uint64_t now)
{
    struct stat st[TL_WIRE_FDS];
    uint32_t n = packet->m.below.n;
    if (n != packet->n_fds || n > TL_SHARE_COPIES)
        return;
    for (uint32_t i = 0; i < TL_SHARE_COPIES; i++)
        b->slots[i].is_wanted = false;
    for (uint32_t i = 0; i < n; i++) {
        struct tl_client_slot *s = fstat(packet->fds[i], &st[i]) == 0 ? find_slot(b, &st[i]) : NULL;
        if (s == NULL)
            continue;
        s->is_wanted = true;
        s->is_old = false;
        s->until_ns = 0;
    }
    drop_unwanted(b, now);
    for (uint32_t i = 0; i < n; i++)
        if (fstat(packet->fds[i], &st[i]) == 0 && find_slot(b, &st[i]) == NULL)
            (void)add(b, packet->fds[i], &st[i]); /* else its owner watches the word itself */
}

void tl__below_grow_old(struct tl_client_below *b)
{
    for (uint32_t i = 0; i < TL_SHARE_COPIES; i++)
        if (b->slots[i].place != 0) {
            b->slots[i].is_old = true;
            b->slots[i].until_ns = 0;
        }
}

uint64_t tl__below_expire(struct tl_client_below *b, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < TL_SHARE_COPIES; i++) {
        struct tl_client_slot *s = &b->slots[i];
        if (s->place != 0 && s->until_ns != 0 && s->until_ns <= now)
            stop_keeping(b, s);
        else if (s->place != 0 && s->until_ns != 0 && s->until_ns < next)
            next = s->until_ns;
    }
    return next;
}
