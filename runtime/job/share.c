/* Makes, seals and maps the shared pages, and moves grants through them; see the header. */
#include "runtime/job/share.h"
#include "tally/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum { SIZE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

/* --- making and mapping pages ----------------------------------------------------------------- */

int tl_share_make(const char *name)
{
    if (!tl_memfd_may_have(TL_SHARE_PAGE))
        return -EFBIG;
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL), rc;
    /* a kernel before 6.3; later ones may be told to refuse what could be executed */
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    /* Taken now: a page that is missing when it is first written to would be a signal, not an
     * error. */
    rc = -posix_fallocate(fd, 0, TL_SHARE_PAGE);
    if (rc == 0 && fcntl(fd, F_ADD_SEALS, SIZE_SEALS) < 0)
        rc = -errno;
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

int tl_share_create(const char *name, void **page)
{
    int fd = tl_share_make(name), rc = fd;
    if (fd < 0)
        return fd;
    *page = tl_share_map(fd, true);
    if (*page == NULL) {
        rc = -errno;
        close(fd);
    }
    return rc;
}

struct tl_share_gpu *tl_share_gpu(struct tl_client_page *page, const uint8_t uuid[16])
{
    uint64_t words[2];
    memcpy(words, uuid, sizeof words);
    for (uint32_t i = 0; i < TL_SHARE_GPUS; i++) {
        struct tl_share_gpu *g = &page->gpus[i];
        uint64_t first = atomic_load_explicit(&g->uuid[0], memory_order_relaxed);
        uint64_t second = atomic_load_explicit(&g->uuid[1], memory_order_relaxed);
        if (first == 0 && second == 0) {
            atomic_store_explicit(&g->uuid[1], words[1], memory_order_relaxed);
            atomic_store_explicit(&g->uuid[0], words[0], memory_order_relaxed);
            return g;
        }
        if (first == words[0] && second == words[1])
            return g;
    }
    return NULL;
}

int tl_share_check(int fd)
{
    struct stat st;
    /* First, because it fails at once on everything but shared memory, where others could let us
     * wait. */
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &st) < 0)
        return -errno;
    return (seals & SIZE_SEALS) == SIZE_SEALS && (seals & F_SEAL_WRITE) == 0 &&
                   st.st_size == TL_SHARE_PAGE
               ? 0
               : -EINVAL;
}

void tl_share_seal(int fd)
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0)
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
}

int tl_share_reader(int fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    /* who made it may hold a lease on it, for which one would wait */
    int reader = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return reader < 0 ? -errno : reader;
}

void *tl_share_map(int fd, bool is_writable)
{
    void *page = mmap(NULL, TL_SHARE_PAGE, is_writable ? PROT_READ | PROT_WRITE : PROT_READ,
                      MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

int tl_share_map_at(void *at, int fd, bool is_writable)
{
    int access = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
    return mmap(at, TL_SHARE_PAGE, access, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) ==
                   MAP_FAILED
               ? -errno
               : 0;
}

void tl_share_tell_idle(struct tl_client_page *page)
{
    (void)syscall(SYS_futex, &page->completed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* --- the client page -------------------------------------------------------------------------- */

void tl_share_put_name(_Atomic uint64_t *name, const char *text)
{
    char padded[TL_SHARE_NAME] = "";
    uint64_t word;
    snprintf(padded, sizeof padded, "%s", text);
    for (size_t i = 0; i < TL_SHARE_NAME / sizeof word; i++) {
        memcpy(&word, padded + i * sizeof word, sizeof word);
        atomic_store_explicit(&name[i], word, memory_order_relaxed);
    }
}

void tl_share_get_name(const _Atomic uint64_t *name, char *text)
{
    uint64_t word;
    for (size_t i = 0; i < TL_SHARE_NAME / sizeof word; i++) {
        word = atomic_load_explicit(&name[i], memory_order_relaxed);
        memcpy(text + i * sizeof word, &word, sizeof word);
    }
    text[TL_SHARE_NAME - 1] = 0;
}

/* --- the grant page --------------------------------------------------------------------------- */

void tl_share_publish(struct tl_grant_page *page, const struct tl_share_grant *g)
{
    uint32_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    atomic_store_explicit(&page->sequence, sequence + 1, memory_order_relaxed);
    /* whoever sees a new value sees the odd number as well */
    atomic_thread_fence(memory_order_release);
    page->grant = g->grant;
    page->client = g->client;
    atomic_store_explicit(&page->level, g->client.level, memory_order_relaxed);
    memcpy(page->policy, g->policy, sizeof page->policy);
    atomic_store_explicit(&page->sequence, sequence + 2, memory_order_release);
    atomic_fetch_add_explicit(&page->changed, 1, memory_order_release);
    (void)syscall(SYS_futex, &page->changed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool tl_share_read(const struct tl_grant_page *page, struct tl_share_grant *g)
{
    /* writing takes less than a microsecond, unless the writer lost its CPU meanwhile */
    enum { TRIES = 100000 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = atomic_load_explicit(&page->sequence, memory_order_acquire);
        if (before % 2 != 0)
            continue;
        g->grant = page->grant;
        g->client = page->client;
        memcpy(g->policy, page->policy, sizeof g->policy);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&page->sequence, memory_order_relaxed) == before) {
            g->policy[sizeof g->policy - 1] = 0;
            return true;
        }
    }
    return false;
}
