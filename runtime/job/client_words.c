/* The places where the words of higher levels are mapped, and the copies that kernels poll; see
 * runtime/job/client_internal.h. */
#include "runtime/job/client_internal.h"

#include "tally/check.h"
#include "tally/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEEP_OLD_NS UINT64_C(2000000000)
/* A copy that is not kept so long after it was offered is offered anew, then less and less often;
 * one that is kept is looked at now and then. */
#define OFFER_NS UINT64_C(1000000000)
#define LOOK_NS UINT64_C(30000000000)
enum { ROW_BYTES = TL_CLIENT_PLACES * TL_SHARE_PAGE };

static char *page_of(const struct tl_client_words *w, uint32_t place)
{
    return w->row + (size_t)place * TL_SHARE_PAGE;
}

static struct tl_copy_page *copy_of(const struct tl_client_words *w, uint32_t copy)
{
    return (struct tl_copy_page *)(void *)(w->copy_row + (size_t)copy * TL_SHARE_PAGE);
}

/* Private memory with nothing in it yet. */
static void *map_row(int access)
{
    void *row = mmap(NULL, ROW_BYTES, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return row != MAP_FAILED ? row : NULL;
}

int tl__words_init(struct tl_client_words *w)
{
    *w = (struct tl_client_words){.next = 1};
    for (uint32_t i = 0; i < TL_CLIENT_PLACES; i++)
        w->places[i].pidfd = w->copies[i].fd = -1;
    w->row = map_row(PROT_READ);
    w->copy_row = map_row(PROT_READ | PROT_WRITE);
    if (w->row == NULL || w->copy_row == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
        atomic_init(&w->words[i], (const _Atomic uint64_t *)(void *)w->row);
    return 0;
}

/* --- copies ----------------------------------------------------------------------------------- */

static bool is_ours(const struct tl_client_copy *c)
{
    struct stat st;
    return c->fd >= 0 && tl_share_check(c->fd) == 0 && fstat(c->fd, &st) == 0 &&
           st.st_ino == c->ino;
}

/* Kernels that still poll it find it idle. */
static void clear_copy(struct tl_client_words *w, uint32_t copy)
{
    struct tl_client_copy *c = &w->copies[copy];
    if (copy == 0)
        return;
    atomic_store_explicit(&copy_of(w, copy)->word, 0, memory_order_release);
    (void)mmap(copy_of(w, copy), TL_SHARE_PAGE, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (is_ours(c))
        close(c->fd);
    *c = (struct tl_client_copy){.fd = -1};
}

/* Maps a page where no copy is; 0 if it cannot be. */
static uint32_t map_copy(struct tl_client_words *w, int fd)
{
    for (uint32_t tries = 0; tries < TL_CLIENT_PLACES; tries++) {
        uint32_t i = w->last_copy = w->last_copy + 1 < TL_CLIENT_PLACES ? w->last_copy + 1 : 1;
        if (w->copies[i].is_used)
            continue;
        if (tl_share_map_at(copy_of(w, i), fd, true) < 0)
            return 0;
        w->copies[i] = (struct tl_client_copy){.is_used = true, .fd = -1};
        return i;
    }
    return 0;
}

/* A copy of this client's own, that somebody above is to keep; 0 without memory. */
static uint32_t make_copy(struct tl_client_words *w)
{
    struct stat st;
    int fd = tl_share_make("tally-copy");
    uint32_t copy = fd >= 0 ? map_copy(w, fd) : 0;
    if (copy == 0) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    w->copies[copy].fd = tl_file_lift(fd);
    w->copies[copy].ino = fstat(w->copies[copy].fd, &st) == 0 ? st.st_ino : 0;
    return copy;
}

/* Zeroes in the place of a page.  That can fail if the job has all the mappings that it may have;
 * then the page stays: its owner is dead and it does not change any more, and nobody asks for
 * it. */
static void clear_place(struct tl_client_words *w, uint32_t place)
{
    struct tl_client_place *p = &w->places[place];
    TL_CHECK(place > 0 && place < TL_CLIENT_PLACES); /* 0 is nobody's, and stays zeroes */
    (void)mmap(page_of(w, place), TL_SHARE_PAGE, PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (p->pidfd >= 0)
        close(p->pidfd);
    clear_copy(w, p->copy);
    *p = (struct tl_client_place){.pidfd = -1};
}

void tl__words_finish(struct tl_client_words *w)
{
    for (uint32_t i = 0; i < TL_CLIENT_PLACES; i++) {
        if (w->places[i].pidfd >= 0)
            close(w->places[i].pidfd);
        if (is_ours(&w->copies[i]))
            close(w->copies[i].fd);
    }
    if (w->row != NULL)
        munmap(w->row, ROW_BYTES);
    if (w->copy_row != NULL)
        munmap(w->copy_row, ROW_BYTES);
}

void tl__words_abandon(struct tl_client_words *w)
{
    atomic_store_explicit(&w->n, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        atomic_store_explicit(&w->words[i], (const _Atomic uint64_t *)(void *)w->row,
                              memory_order_relaxed);
        atomic_store_explicit(&w->polled[i], NULL, memory_order_relaxed);
    }
    for (uint32_t i = 1; i < TL_CLIENT_PLACES; i++)
        if (w->places[i].is_used)
            clear_place(w, i);
}

/* Shows the job the words of these places. */
static void publish(struct tl_client_words *w, const uint32_t *places, uint32_t n)
{
    TL_CHECK(n <= TL_SHARE_WORDS);
    for (uint32_t i = 0; i < n; i++)
        TL_CHECK(places[i] > 0 && places[i] < TL_CLIENT_PLACES && w->places[places[i]].is_used);
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        w->in_force[i] = i < n ? places[i] : 0;
        atomic_store_explicit(&w->words[i],
                              (const _Atomic uint64_t *)(void *)page_of(w, w->in_force[i]),
                              memory_order_release);
        uint32_t copy = w->places[w->in_force[i]].copy;
        atomic_store_explicit(&w->polled[i], copy != 0 ? copy_of(w, copy) : NULL,
                              memory_order_release);
    }
    atomic_store_explicit(&w->n, n, memory_order_release);
}

void tl__words_drop(struct tl_client_words *w, uint32_t place)
{
    uint32_t left[TL_SHARE_WORDS], n = 0;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
        if (w->in_force[i] != 0 && w->in_force[i] != place)
            left[n++] = w->in_force[i];
    /* first: who is told that nobody is in the way finds the old address idle, too */
    clear_place(w, place);
    publish(w, left, n);
}

bool tl__words_drop_dead(struct tl_client_words *w)
{
    bool have = false;
    for (uint32_t i = 1; i < TL_CLIENT_PLACES; i++)
        if (w->places[i].is_used &&
            tl__alive_has_died((const struct tl_client_page *)(const void *)page_of(w, i))) {
            tl__words_drop(w, i);
            have = true;
        }
    return have;
}

void tl__words_grow_old(struct tl_client_words *w)
{
    for (uint32_t i = 1; i < TL_CLIENT_PLACES; i++) {
        struct tl_client_place *p = &w->places[i];
        if (p->is_used && p->is_merged)
            tl__words_drop(w, i);
        else if (p->is_used) {
            p->is_old = true;
            p->until_ns = 0;
            w->copies[p->copy].is_offered = false;
        }
    }
}

uint64_t tl__words_expire(struct tl_client_words *w, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 1; i < TL_CLIENT_PLACES; i++) {
        const struct tl_client_place *p = &w->places[i];
        if (p->is_used && p->until_ns != 0 && p->until_ns <= now)
            tl__words_drop(w, i);
        else if (p->is_used && p->until_ns != 0 && p->until_ns < next)
            next = p->until_ns;
    }
    return next;
}

/* The place where that page is mapped already, or a free one; 0 if there is neither. */
static uint32_t find_place(struct tl_client_words *w, const struct stat *st)
{
    for (uint32_t i = 1; i < TL_CLIENT_PLACES; i++)
        if (w->places[i].is_used && w->places[i].dev == st->st_dev &&
            w->places[i].ino == st->st_ino)
            return i;
    for (uint32_t tries = 0; tries < TL_CLIENT_PLACES; tries++) {
        uint32_t i = w->next;
        w->next = i + 1 < TL_CLIENT_PLACES ? i + 1 : 1;
        if (!w->places[i].is_used)
            return i;
    }
    return 0;
}

/* Maps a page that tallyd sent; returns its place, or 0 if it cannot be had. */
static uint32_t take_one(struct tl_client_words *w, int *page_fd, int *pidfd, uint32_t above)
{
    struct stat st;
    if (tl_share_check(*page_fd) < 0 || fstat(*page_fd, &st) < 0)
        return 0;
    uint32_t place = find_place(w, &st);
    struct tl_client_place *p = &w->places[place];
    if (place == 0 || (!p->is_used && tl_share_map_at(page_of(w, place), *page_fd, false) < 0))
        return 0;
    if (p->pidfd >= 0)
        close(p->pidfd);
    *p = (struct tl_client_place){.is_used = true,
                                  .is_merged = pidfd == NULL,
                                  .dev = st.st_dev,
                                  .ino = st.st_ino,
                                  .above = above,
                                  .copy = p->copy,
                                  .pidfd = -1};
    if (p->copy == 0)
        p->copy = pidfd != NULL ? make_copy(w) : map_copy(w, *page_fd);
    if (pidfd != NULL) {
        p->pidfd = tl_file_lift(*pidfd);
        *pidfd = -1;
    }
    return place;
}

/* Jobs come back to a new tallyd one by one, and whoever is first is told of nobody above.  So
 * words of an old tallyd stay for a while, as far as there is room. */
static void keep_old(struct tl_client_words *w, uint32_t *places, uint32_t *n, uint64_t now)
{
    for (uint32_t i = 1; i < TL_CLIENT_PLACES && *n < TL_SHARE_WORDS; i++) {
        struct tl_client_place *p = &w->places[i];
        if (!p->is_used || !p->is_old) /* what the new tallyd sent is not old any more */
            continue;
        if (p->until_ns == 0)
            p->until_ns = now + KEEP_OLD_NS;
        places[(*n)++] = i;
    }
}

void tl__words_take(struct tl_client_words *w, struct tl_wire_packet *packet, uint64_t now)
{
    const struct tl_wire_words *m = &packet->m.words;
    uint32_t places[TL_SHARE_WORDS], n = 0, fd = 0;
    bool makes_sense = m->n <= TL_SHARE_WORDS && m->is_merged <= (m->n > 0) &&
                       packet->n_fds == 2 * m->n - m->is_merged;
    for (uint32_t i = 0; makes_sense && i < m->n; i++) {
        bool is_merged = m->is_merged != 0 && i == m->n - 1;
        uint32_t place = take_one(w, &packet->fds[fd], is_merged ? NULL : &packet->fds[fd + 1],
                                  m->above[i]);
        fd += 2;
        if (place != 0)
            places[n++] = place;
    }
    if (makes_sense) {
        keep_old(w, places, &n, now);
        /* first: who is told that they are gone finds the old addresses idle, too */
        for (uint32_t i = 1; i < TL_CLIENT_PLACES; i++) {
            bool is_in_force = false;
            for (uint32_t j = 0; j < n; j++)
                is_in_force |= places[j] == i;
            if (w->places[i].is_used && !is_in_force)
                clear_place(w, i);
        }
        publish(w, places, n);
    }
    tl_wire_close(packet);
}

/* --- offering copies -------------------------------------------------------------------------- */

/* The client above that keeps a page seals it, and cannot map it again once it has given it up. */
static bool was_kept(const struct tl_client_copy *c)
{
    return (fcntl(c->fd, F_GET_SEALS) & F_SEAL_SEAL) != 0;
}

/* One copy: whether there is another in its place now. */
static bool offer(struct tl_client_words *w, struct tl_client_place *p, int socket, uint64_t now)
{
    bool has_changed = false;
    struct tl_client_copy *c = &w->copies[p->copy];
    bool is_kept = p->copy != 0 &&
                   atomic_load_explicit(&copy_of(w, p->copy)->is_kept, memory_order_relaxed) != 0;
    if (is_kept && c->is_offered) {
        c->tries = 0;
        c->look_ns = now + LOOK_NS;
        return false;
    }
    if (p->copy == 0 || !is_ours(c) || (!is_kept && was_kept(c))) {
        uint32_t fresh = make_copy(w);
        if (fresh != 0) {
            w->copies[fresh].tries = c->tries;
            clear_copy(w, p->copy);
            p->copy = fresh;
            has_changed = true;
        }
        c = &w->copies[p->copy];
    }
    struct tl_wire_copy m = {.above = p->above};
    c->is_offered = is_ours(c) && tl_wire_send(socket, TL_WIRE_COPY, &m, sizeof m, &c->fd, 1) == 0;
    c->look_ns = now + (OFFER_NS << (c->tries < 6 ? c->tries : 6));
    c->tries++;
    return has_changed;
}

uint64_t tl__words_offer(struct tl_client_words *w, int socket, uint64_t now, bool *has_changed)
{
    uint64_t next = UINT64_MAX;
    *has_changed = false;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        struct tl_client_place *p = &w->places[w->in_force[i]];
        if (w->in_force[i] == 0 || p->is_merged || p->is_old)
            continue;
        if (!w->copies[p->copy].is_offered || now >= w->copies[p->copy].look_ns)
            *has_changed |= offer(w, p, socket, now);
        if (w->copies[p->copy].look_ns < next)
            next = w->copies[p->copy].look_ns;
    }
    if (*has_changed) {
        uint32_t places[TL_SHARE_WORDS], n = atomic_load_explicit(&w->n, memory_order_relaxed);
        for (uint32_t i = 0; i < n; i++)
            places[i] = w->in_force[i];
        publish(w, places, n);
    }
    return next;
}
