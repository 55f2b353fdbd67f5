/* The client's questions and answers: everything here is loads and stores, except waiting; see the
 * headers. */
#include "runtime/job/client_internal.h"
#include "runtime/job/start.h"
#include "tally/clock.h"
#include "tally/file.h"
#include "tally/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What a job alone goes by; the policy "tally" has the same. */
enum { TURNAROUND_NS = 31600, HYSTERESIS_NS = 100000, RUN_AHEAD_NS = 200000 };
/* A tallyd that holds a job back looks at it several times in this time; if it does not, it
 * hangs. */
#define HANGS_NS UINT64_C(2000000000)
/* How long a job waits for its first answer from tallyd. */
enum { SETTLE_OPEN_MS = 3000, SETTLE_CLOSED_MS = 10000 };
/* How long a job waits for the words of a GPU that it uses for the first time. */
#define PLACED_NS UINT64_C(200000000)

/* --- life ------------------------------------------------------------------------------------- */

static void *private_pages(size_t n)
{
    void *p = mmap(NULL, n * TL_SHARE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                   0);
    return p == MAP_FAILED ? NULL : p;
}

static void fill_page(struct tl_client_page *page)
{
    page->magic = TL_CLIENT_MAGIC;
    page->version = TL_SHARE_VERSION;
    page->pid = (uint32_t)getpid();
}

/* Its own page: shared if that can be had, so that tallyd can read it, else private; 0 or
 * -ENOMEM. */
static int make_page(struct tl_client *c)
{
    void *page = NULL;
    int fd = tl_share_create("tally-client", &page);
    struct stat st;
    if (fd >= 0)
        c->page_fd = tl_file_lift(fd);
    c->page_ino = fd >= 0 && fstat(c->page_fd, &st) == 0 ? st.st_ino : 0;
    if (fd >= 0)
        fd = c->page_fd;
    else
        tl_error_set(&c->remark, fd, "no shared memory for tallyd (%s): this job runs unmanaged",
                     strerror(-fd));
    c->page = fd >= 0 ? page : private_pages(1);
    if (c->page == NULL)
        return -ENOMEM;
    fill_page(c->page);
    return 0;
}

/* Small, but with room for what libraries of the job keep per thread. */
static int start_thread(struct tl_client *c)
{
    static const struct tl_thread_kind kind = {.name = "tally-client", .stack_bytes = 256 << 10};
    int rc = tl_thread_start(&c->thread, &kind, tl__client_listen, c);
    c->has_thread = rc == 0;
    return rc;
}

/* Waits for the first attempt to end. */
static void wait_settled(struct tl_client *c)
{
    uint64_t until = tl_clock_ns() +
                     (uint64_t)(c->settings.is_closed ? SETTLE_CLOSED_MS : SETTLE_OPEN_MS) *
                         1000000;
    struct timespec t = tl_clock_timespec(until);
    pthread_mutex_lock(&c->lock);
    while (!c->is_settled && pthread_cond_timedwait(&c->settled, &c->lock, &t) == 0)
        ;
    if (!c->is_settled)
        tl_error_set(&c->remark, -ETIMEDOUT,
                     "tallyd on %s does not answer: this job runs unmanaged until it does",
                     c->settings.socket);
    c->is_settled = true;
    pthread_mutex_unlock(&c->lock);
}

static void init_locks(struct tl_client *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->settled, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->request_lock, NULL);
    pthread_mutex_init(&c->socket_lock, NULL);
}

static struct tl_sched_client wish_of(const struct tl_settings *s)
{
    return (struct tl_sched_client){
        .level = s->level,
        .weight = s->weight,
        .min_permille = s->min_permille,
        .max_permille = s->max_permille,
        .turnaround_ns = s->turnaround_ns,
        .slo_percentile = s->slo_percentile,
        .slo_ns = s->slo_ns,
        .total_ns = s->total_ns,
        .memory_limit = s->memory_limit,
        .memory_request = s->memory_request,
        .memory_soft = s->memory_soft,
    };
}

/* Memory that every client has, joined or not. */
static struct tl_client *create_alone(const struct tl_settings *settings)
{
    struct tl_client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->settings = *settings;
    c->wish = wish_of(settings);
    atomic_init(&c->level, settings->level);
    atomic_init(&c->memory_limit, settings->memory_limit);
    atomic_init(&c->memory_soft, settings->memory_soft);
    c->page_fd = c->ledger_fd = c->stop = c->poke[0] = c->poke[1] = c->ready = c->socket = -1;
    init_locks(c);
    c->grants = private_pages(2);
    if (tl__words_init(&c->words) < 0 || tl__below_init(&c->below) < 0 || c->grants == NULL ||
        make_page(c) < 0 || tl__client_make_ledger(c) < 0) {
        tl_client_destroy(c);
        return NULL;
    }
    return c;
}

int tl_client_create(struct tl_client **out, const struct tl_settings *settings,
                     struct tl_error *err)
{
    *out = NULL;
    struct tl_client *c = create_alone(settings);
    if (c == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory for a client of tallyd");
    if (c->page_fd >= 0) {
        tl_start_find(c->daemon, sizeof c->daemon);
        c->environment = tl_start_environment();
        c->may_start = c->daemon[0] != 0 && c->environment != NULL;
        c->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        c->stop = c->stop >= 0 ? tl_file_lift(c->stop) : -1;
        tl__alive_open(c);
        int rc = c->stop < 0 ? -errno : start_thread(c);
        if (rc == 0)
            wait_settled(c);
        else
            tl_error_set(&c->remark, rc,
                         "no thread to listen to tallyd (%s): this job runs unmanaged",
                         strerror(-rc));
    }
    pthread_mutex_lock(&c->lock);
    if (err != NULL)
        *err = c->remark;
    pthread_mutex_unlock(&c->lock);
    if (settings->is_closed && !tl_client_is_joined(c)) {
        tl_client_destroy(c);
        return err != NULL ? (err->code = -ECONNREFUSED) : -ECONNREFUSED;
    }
    *out = c;
    return 0;
}

static void close_if(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void tl_client_destroy(struct tl_client *c)
{
    if (c == NULL)
        return;
    if (c->has_thread) {
        (void)eventfd_write(c->stop, 1);
        pthread_join(c->thread, NULL);
    }
    close_if(&c->socket);
    close_if(&c->ready);
    close_if(&c->stop);
    close_if(&c->poke[0]);
    close_if(&c->poke[1]);
    close_if(&c->page_fd);
    close_if(&c->ledger_fd);
    tl__words_finish(&c->words);
    tl__below_finish(&c->below);
    if (c->grants != NULL)
        munmap(c->grants, (size_t)2 * TL_SHARE_PAGE);
    if (c->page != NULL)
        munmap(c->page, TL_SHARE_PAGE);
    if (c->ledger != NULL)
        munmap(c->ledger, TL_SHARE_PAGE);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->request_lock);
    pthread_mutex_destroy(&c->socket_lock);
    pthread_cond_destroy(&c->settled);
    free(c->environment);
    free(c);
}

void tl_client_abandon(struct tl_client *c)
{
    if (c == NULL)
        return;
    c->has_thread = false; /* it is the parent's */
    c->state = TL_CLIENT_ALONE;
    close_if(&c->socket);
    close_if(&c->ready);
    close_if(&c->stop);
    close_if(&c->poke[0]);
    close_if(&c->poke[1]);
    close_if(&c->page_fd);
    close_if(&c->ledger_fd);
    atomic_store(&c->grant, NULL);
    tl__words_abandon(&c->words);
    tl__below_abandon(&c->below);
    c->gpus = (struct tl_wire_gpus){0};
    c->has_many = false;
    (void)mmap(c->grants, (size_t)2 * TL_SHARE_PAGE, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    (void)mmap(c->page, TL_SHARE_PAGE, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    fill_page(c->page);
    init_locks(c); /* another thread may have held one */
}

/* --- grants ----------------------------------------------------------------------------------- */

bool tl_client_is_joined(const struct tl_client *c)
{
    return atomic_load_explicit(&c->grant, memory_order_acquire) != NULL;
}

struct tl_client_page *tl_client_page(struct tl_client *c)
{
    return c->page;
}

int tl_client_level(const struct tl_client *c)
{
    const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_acquire);
    return page != NULL ? tl_share_level(page)
                        : atomic_load_explicit(&c->level, memory_order_relaxed);
}

/* The words of those above are good without tallyd, so a job alone still gives way to them. */
static struct tl_grant grant_alone(const struct tl_client *c)
{
    bool is_high = atomic_load_explicit(&c->level, memory_order_relaxed) >= TL_LEVEL_HIGH;
    return (struct tl_grant){
        .may_run = true,
        .yields = !is_high,
        .finest = is_high ? TL_RUNG_WHOLE : TL_RUNG_PERSISTENT,
        .turnaround_ns = c->settings.turnaround_ns != 0 ? c->settings.turnaround_ns : TURNAROUND_NS,
        .hysteresis_ns = HYSTERESIS_NS,
        .run_ahead_ns = is_high ? UINT64_MAX : RUN_AHEAD_NS,
        .sm_permille = 1000,
    };
}

void tl_client_grant(struct tl_client *c, struct tl_grant *out)
{
    const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_acquire);
    struct tl_share_grant g;
    *out = grant_alone(c);
    if (page == NULL || !tl_share_read(page, &g))
        return;
    uint64_t alive = atomic_load_explicit(&page->alive_ns, memory_order_relaxed);
    if (g.grant.may_run || g.client.is_paused || tl_clock_ns() < alive + HANGS_NS)
        *out = g.grant;
}

uint32_t tl_client_changes(const struct tl_client *c)
{
    const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_acquire);
    uint32_t own = atomic_load_explicit(&c->changes, memory_order_acquire);
    return own + (page != NULL ? atomic_load_explicit(&page->changed, memory_order_acquire) : 0);
}

void tl__client_changed(struct tl_client *c)
{
    atomic_fetch_add_explicit(&c->changes, 1, memory_order_release);
    (void)syscall(SYS_futex, &c->changes, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void tl__client_set_grant(struct tl_client *c, int fd)
{
    struct tl_grant_page *old = atomic_load_explicit(&c->grant, memory_order_relaxed), *page = NULL;
    if (fd >= 0) {
        void *place = c->grants + (size_t)c->grant_turn * TL_SHARE_PAGE;
        if (tl_share_check(fd) == 0 && tl_share_map_at(place, fd, false) == 0)
            page = place;
        close(fd);
        c->grant_turn ^= 1;
        if (page != NULL && (page->magic != TL_GRANT_MAGIC || page->version != TL_SHARE_VERSION))
            page = NULL;
    }
    /* The sum of both counters goes on from where it was. */
    if (old != NULL)
        atomic_fetch_add_explicit(&c->changes,
                                  atomic_load_explicit(&old->changed, memory_order_relaxed),
                                  memory_order_relaxed);
    atomic_store_explicit(&c->grant, page, memory_order_release);
    tl__client_changed(c);
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* As the kernel has them since 5.16; older headers do not. */
struct wait_place {
    uint64_t value, address;
    uint32_t flags, reserved;
};
enum { WAIT_32_BITS = 2, WAIT_PRIVATE = 128, SYS_WAIT_FOR_ANY = 449 };

static struct wait_place place_of(const _Atomic uint32_t *at, uint32_t value, bool is_private)
{
    return (struct wait_place){value, (uint64_t)(uintptr_t)at,
                               WAIT_32_BITS | (is_private ? WAIT_PRIVATE : 0), 0};
}

/* False if the kernel is too old for it. */
static bool wait_for_any(const struct wait_place *places, uint32_t n, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    return syscall(SYS_WAIT_FOR_ANY, places, n, 0, &until, CLOCK_MONOTONIC) >= 0 || errno != ENOSYS;
}

static void wait_for_both(const struct tl_client *c, const struct tl_grant_page *page, uint32_t own,
                          uint32_t granted, uint64_t until_ns)
{
    struct wait_place places[2] = {place_of(&c->changes, own, true)};
    if (page != NULL)
        places[1] = place_of(&page->changed, granted, false);
    if (wait_for_any(places, page != NULL ? 2 : 1, until_ns))
        return;
    /* An old kernel waits for one place only: for the grant, looking at the other now and then. */
    uint64_t now = tl_clock_ns(), left = until_ns > now ? until_ns - now : 0;
    struct timespec slice = {.tv_nsec = left < 1000000 ? (long)left : 1000000};
    if (page != NULL)
        (void)syscall(SYS_futex, &page->changed, FUTEX_WAIT, granted, &slice, NULL, 0);
    else
        (void)syscall(SYS_futex, &c->changes, FUTEX_WAIT_PRIVATE, own, &slice, NULL, 0);
}

void tl_client_wait(struct tl_client *c, uint32_t seen, uint64_t timeout_ns)
{
    uint64_t begin = tl_clock_ns();
    uint64_t until = timeout_ns < UINT64_MAX / 2 - begin ? begin + timeout_ns : UINT64_MAX / 2;
    do {
        const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_acquire);
        uint32_t own = atomic_load_explicit(&c->changes, memory_order_acquire);
        uint32_t granted = page != NULL ? atomic_load_explicit(&page->changed, memory_order_acquire)
                                        : 0;
        if (own + granted != seen)
            return;
        wait_for_both(c, page, own, granted, until);
    } while (tl_clock_ns() < until);
}

void tl_client_wait_rung(struct tl_client *c, uint32_t seen, const _Atomic uint32_t *bell,
                         uint32_t rung, uint64_t timeout_ns)
{
    enum { OLD_KERNEL_NS = 200000 };
    struct wait_place places[3 + TL_SHARE_WORDS];
    uint32_t n = 0, own = atomic_load_explicit(&c->changes, memory_order_acquire);
    const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_acquire);
    uint32_t granted = page != NULL ? atomic_load_explicit(&page->changed, memory_order_acquire)
                                    : 0;
    if (own + granted != seen)
        return;
    places[n++] = place_of(bell, rung, true);
    places[n++] = place_of(&c->changes, own, true);
    if (page != NULL)
        places[n++] = place_of(&page->changed, granted, false);
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        const _Atomic uint64_t *word = atomic_load_explicit(&c->words.words[i],
                                                            memory_order_acquire);
        uint64_t value = atomic_load_explicit(word, memory_order_relaxed);
        if (tl_word_is_busy(value))
            places[n++] = place_of(&((const struct tl_client_page *)(const void *)word)->completed,
                                   (uint32_t)(value >> 32), false);
    }
    uint64_t begin = tl_clock_ns();
    uint64_t until = timeout_ns < UINT64_MAX / 2 - begin ? begin + timeout_ns : UINT64_MAX / 2;
    if (wait_for_any(places, n, until))
        return;
    uint64_t ns = timeout_ns < OLD_KERNEL_NS ? timeout_ns : OLD_KERNEL_NS;
    struct timespec slice = {.tv_nsec = (long)ns};
    (void)syscall(SYS_futex, bell, FUTEX_WAIT_PRIVATE, rung, &slice, NULL, 0);
}

void tl_client_wish(struct tl_client *c, struct tl_sched_client *out)
{
    const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_acquire);
    struct tl_share_grant g;
    *out = page != NULL && tl_share_read(page, &g) ? g.client : wish_of(&c->settings);
}

/* --- words ------------------------------------------------------------------------------------ */

void tl_client_tell_idle(struct tl_client *c)
{
    const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_acquire);
    /* Without a tallyd nobody knows whether there are any; they may still see this word. */
    if (page == NULL || atomic_load_explicit(&page->n_below, memory_order_relaxed) != 0)
        tl_share_tell_idle(c->page);
}

uint64_t tl_client_preempted_since(struct tl_client *c, uint64_t after_ns)
{
    uint64_t first = 0;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        const _Atomic uint64_t *word = atomic_load_explicit(&c->words.words[i],
                                                            memory_order_acquire);
        const struct tl_client_page *page = (const struct tl_client_page *)(const void *)word;
        uint64_t ns = atomic_load_explicit(&page->burst_ns, memory_order_relaxed);
        if (ns > after_ns && (first == 0 || ns < first))
            first = ns;
    }
    return first;
}

uint64_t tl_client_idle_since(struct tl_client *c)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        const _Atomic uint64_t *word = atomic_load_explicit(&c->words.words[i],
                                                            memory_order_acquire);
        const struct tl_client_page *page = (const struct tl_client_page *)(const void *)word;
        if (atomic_load_explicit(word, memory_order_acquire) == 0)
            continue; /* nobody's, or of one who has had no work yet */
        uint64_t burst = atomic_load_explicit(&page->burst_ns, memory_order_relaxed);
        uint64_t idle = atomic_load_explicit(&page->idle_ns, memory_order_relaxed);
        if (idle == 0 || idle < burst)
            return UINT64_MAX;
        last = idle > last ? idle : last;
    }
    return last;
}

uint32_t tl_client_polled(struct tl_client *c, struct tl_copy_page *polled[TL_SHARE_WORDS])
{
    uint32_t n = atomic_load_explicit(&c->words.n, memory_order_acquire);
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
        polled[i] = atomic_load_explicit(&c->words.polled[i], memory_order_acquire);
    return n;
}

bool tl_client_is_kept(struct tl_client *c)
{
    struct tl_copy_page *polled[TL_SHARE_WORDS];
    uint32_t n = tl_client_polled(c, polled);
    for (uint32_t i = 0; i < n; i++)
        if (polled[i] == NULL ||
            atomic_load_explicit(&polled[i]->is_kept, memory_order_acquire) == 0)
            return false;
    return true;
}

uint32_t tl_client_words(struct tl_client *c, const _Atomic uint64_t *words[TL_SHARE_WORDS])
{
    uint32_t n = atomic_load_explicit(&c->words.n, memory_order_acquire);
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
        words[i] = atomic_load_explicit(&c->words.words[i], memory_order_acquire);
    return n;
}

bool tl_client_is_preempted(struct tl_client *c)
{
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        const _Atomic uint64_t *word = atomic_load_explicit(&c->words.words[i],
                                                            memory_order_acquire);
        if (!tl_word_is_busy(atomic_load_explicit(word, memory_order_relaxed)))
            continue;
        /* Of a dead one the thread forgets the word; until then kernels would leave because of
         * it. */
        if (tl__alive_has_died((const struct tl_client_page *)(const void *)word))
            tl__alive_poke(c);
        return true;
    }
    return false;
}

/* --- where it is ------------------------------------------------------------------------------ */

/* Adds a GPU; false if that changes nothing. */
static bool add_gpu(struct tl_client *c, const uint8_t uuid[16])
{
    if (c->has_many)
        return false;
    for (uint32_t i = 0; i < c->gpus.n; i++)
        if (memcmp(c->gpus.uuids[i], uuid, 16) == 0)
            return false;
    if (c->gpus.n < TL_WIRE_GPUS)
        memcpy(c->gpus.uuids[c->gpus.n++], uuid, 16);
    else
        c->gpus.n = !(c->has_many = true);
    return true;
}

void tl_client_place(struct tl_client *c, const uint8_t uuid[16])
{
    struct tl_wire_place place = {0};
    struct stat st;
    bool is_told = false;
    uint32_t seen = atomic_load(&c->placed);
    pthread_mutex_lock(&c->socket_lock);
    if (add_gpu(c, uuid) && c->socket >= 0 && fstat(c->socket, &st) == 0 &&
        st.st_ino == c->socket_ino) {
        place.gpus = c->gpus;
        is_told = tl_wire_send(c->socket, TL_WIRE_PLACE, &place, sizeof place, NULL, 0) == 0;
    }
    pthread_mutex_unlock(&c->socket_lock);
    uint64_t now = tl_clock_ns(), end = now + PLACED_NS;
    for (; is_told && now < end; now = tl_clock_ns()) {
        uint32_t changes = tl_client_changes(c);
        if (atomic_load(&c->placed) != seen || !tl_client_is_joined(c))
            break;
        tl_client_wait(c, changes, end - now);
    }
}

/* --- its own word ----------------------------------------------------------------------------- */

void tl_client_began(struct tl_client *c)
{
    tl__below_began(&c->below, c->page);
}

uint32_t tl_client_tell(struct tl_client *c)
{
    return tl__below_tell(&c->below, c->page);
}

void tl_client_told(struct tl_client *c, uint32_t number)
{
    tl__below_told(&c->below, number);
}

void tl_client_ended(struct tl_client *c, uint32_t completed)
{
    tl__below_ended(&c->below, c->page, completed);
}

void tl_client_issue(struct tl_client *c, uint32_t n)
{
    /* Sequentially consistent, as is the addition to `completed`: whichever of a begin and an end
     * comes second sees the other. */
    uint32_t issued = atomic_fetch_add(&c->page->issued, n);
    if (issued == atomic_load(&c->page->completed) || !tl_share_is_told(c->page))
        tl_client_began(c);
}

void tl_client_complete(struct tl_client *c, uint32_t n)
{
    uint32_t completed = atomic_fetch_add(&c->page->completed, n) + n;
    if (completed == atomic_load(&c->page->issued))
        tl_client_ended(c, completed);
}

/* --- what it tells ---------------------------------------------------------------------------- */

void tl_client_backlog(struct tl_client *c, bool has_work)
{
    /* Nobody is in the way of the highest level, and who competes with it does the waking: each of
     * its bursts comes by here. */
    if (tl_client_level(c) >= TL_LEVEL_HIGH) {
        atomic_store_explicit(&c->page->has_backlog, has_work, memory_order_relaxed);
        return;
    }
    /* Sequentially consistent, as tallyd's side: it asks to be woken, then looks; we store, then
     * look whether it asked. */
    atomic_store(&c->page->has_backlog, has_work);
    const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_acquire);
    if (!has_work || page == NULL || atomic_load(&page->wants_kick) == 0)
        return;
    struct tl_wire_bare kick;
    struct stat st;
    pthread_mutex_lock(&c->socket_lock);
    if (c->socket >= 0 && fstat(c->socket, &st) == 0 &&
        st.st_ino == c->socket_ino) /* not if the job closed it */
        (void)tl_wire_send(c->socket, TL_WIRE_KICK, &kick, sizeof kick, NULL, 0);
    pthread_mutex_unlock(&c->socket_lock);
}

void tl_client_request(struct tl_client *c, uint64_t latency_ns)
{
    pthread_mutex_lock(&c->request_lock);
    uint64_t n = atomic_load_explicit(&c->page->n_requests, memory_order_relaxed);
    atomic_store_explicit(&c->page->requests_ns[n % 64], latency_ns, memory_order_relaxed);
    atomic_store_explicit(&c->page->n_requests, n + 1, memory_order_release);
    tl_share_took(&c->page->requested, latency_ns);
    pthread_mutex_unlock(&c->request_lock);
}
