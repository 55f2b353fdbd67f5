/* The forms of quick versions that all workers share (device/jit/shelf.h).
 *
 * Workers tell which ones they have compiled; this process, which alone can write to the shelf,
 * puts them there, and all workers find them at once.  The shelf is kept in the cache, so that the
 * first kernel of tomorrow finds them as well. */
#include "device/tally-jit/internal.h"
#include "tally/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SAVE_MS = 3000, SAVE_BUSY_MS = 30000 }; /* how long after the last time, at least */

static void *map(int fd, int protection)
{
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, TL_SHELF_BYTES, protection, MAP_SHARED, fd, 0);
    return p != MAP_FAILED ? p : NULL;
}

/* Workers get it by a descriptor that was opened for reading, so they cannot make more of it. */
void jit_shelf_init(struct server *s)
{
    struct shelf *shelf = &s->shelf;
    char path[64];
    int fd = memfd_create("tally-jit forms", MFD_CLOEXEC), again = -1;
    if (fd >= 0 && ftruncate(fd, TL_SHELF_BYTES) == 0) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        again = open(path, O_RDONLY | O_CLOEXEC);
        shelf->own = map(fd, PROT_READ | PROT_WRITE);
        shelf->shown = map(again, PROT_READ);
    }
    if (fd >= 0)
        close(fd);
    if (again >= 0)
        close(again);
    if (shelf->own == NULL || shelf->shown == NULL) {
        jit_note(s, "each worker has the functions of quick versions to itself: %s",
                 strerror(errno));
        jit_shelf_finish(s);
    }
}

void jit_shelf_finish(struct server *s)
{
    if (s->shelf.own != NULL)
        munmap(s->shelf.own, TL_SHELF_BYTES);
    if (s->shelf.shown != NULL)
        munmap((void *)(uintptr_t)s->shelf.shown, TL_SHELF_BYTES);
    tl_table_finish(&s->shelf.keys);
    s->shelf = (struct shelf){0};
}

const struct tl_shelf *jit_shelf_of_worker(struct server *s)
{
    if (s->shelf.own != NULL)
        munmap(s->shelf.own, TL_SHELF_BYTES);
    s->shelf.own = NULL;
    return s->shelf.shown;
}

/* Puts the entries there that are new, as far as they are any and there is room. */
static void add(struct server *s, const char *bytes, size_t n)
{
    struct shelf *shelf = &s->shelf;
    const struct tl_shelf_entry *e;
    for (; shelf->own != NULL && (e = tl_shelf_entry_at(bytes, n)) != NULL;
         bytes += e->bytes, n -= e->bytes) {
        uint64_t at = atomic_load_explicit(&shelf->own->n, memory_order_relaxed);
        if (at + e->bytes > TL_SHELF_BYTES - TL_SHELF_HEAD ||
            tl_table_get(&shelf->keys, tl_shelf_key(e)) != NULL)
            continue;
        struct tl_shelf_entry *to = (void *)((char *)shelf->own + TL_SHELF_HEAD + at);
        memcpy(to, e, e->bytes);
        void **place = tl_table_place(&shelf->keys, tl_shelf_key(to));
        if (place == NULL)
            return;
        *place = to;
        /* readers see the entry before they see that it is there */
        atomic_store_explicit(&shelf->own->n, at + e->bytes, memory_order_release);
    }
}

void jit_shelf_add(struct server *s, int fd, uint64_t n)
{
    const void *bytes;
    if (tl_jit_memory_map(fd, n, &bytes) < 0)
        return;
    add(s, bytes, n);
    tl_jit_memory_unmap(bytes, n);
}

/* --- in the cache ----------------------------------------------------------------------------- */

static struct tl_store_key key_of(const struct server *s)
{
    static const char what[] = "functions of quick versions";
    struct tl_store_key key;
    struct tl_digest d;
    tl_digest_init(&d);
    tl_digest_part(&d, what, sizeof what);
    tl_digest_part(&d, s->id, strlen(s->id));
    tl_digest_end(&d, key.bytes);
    return key;
}

void jit_shelf_load(struct server *s, const char *cache, uint32_t mb)
{
    struct tl_store store;
    struct tl_store_key key = key_of(s);
    char *bytes;
    size_t n;
    struct shelf *shelf = &s->shelf;
    /* Where who asks has no cache, the next one may have it; and so may that which is kept. */
    if (shelf->own == NULL || shelf->was_loaded || jit_open_cache(s, cache, mb, &store, NULL) < 0)
        return;
    uint32_t n_before = shelf->keys.n;
    shelf->was_loaded = true;
    shelf->saved_ms = tl_clock_ms();
    shelf->mb = mb;
    if (tl_store_read(&store, &key, TL_SHELF_BYTES, &bytes, &n) == 0) {
        add(s, bytes, n);
        free(bytes);
        shelf->n_loaded = shelf->keys.n - n_before;
        jit_note(s, "%u functions of quick versions are known already", shelf->n_loaded);
    }
    jit_close_cache(s, &store);
    if (n_before == 0)
        shelf->saved_n = atomic_load_explicit(&shelf->own->n, memory_order_relaxed);
}

/* A full disk costs what is not kept, and nothing else. */
static void save(struct server *s)
{
    struct shelf *shelf = &s->shelf;
    struct tl_store store;
    struct tl_store_key key = key_of(s);
    char path[TL_STORE_PATH + 100];
    uint64_t n = atomic_load_explicit(&shelf->own->n, memory_order_relaxed);
    shelf->saved_n = n;
    shelf->saved_ms = tl_clock_ms();
    if (jit_open_cache(s, s->options->cache, shelf->mb, &store, NULL) < 0)
        return;
    (void)tl_store_put(&store, &key, (const char *)shelf->own + TL_SHELF_HEAD, n, path, sizeof path,
                       NULL);
    jit_close_cache(s, &store);
}

void jit_shelf_save(struct server *s, bool is_last)
{
    struct shelf *shelf = &s->shelf;
    if (shelf->own == NULL || !shelf->was_loaded ||
        atomic_load_explicit(&shelf->own->n, memory_order_relaxed) == shelf->saved_n)
        return;
    int64_t since_ms = tl_clock_ms() - shelf->saved_ms;
    if (is_last || since_ms >= SAVE_BUSY_MS || (s->jobs == NULL && since_ms >= SAVE_MS))
        save(s);
}
