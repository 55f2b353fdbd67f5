/* What a client may hold of the device's memory, and the ledger of its tree; see the headers. */
#include "runtime/job/client_internal.h"
#include "tally/file.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int tl__client_make_ledger(struct tl_client *c)
{
    struct stat st;
    void *page = NULL;
    int fd = tl_share_create("tally-ledger", &page);
    if (fd >= 0) {
        c->ledger_fd = tl_file_lift(fd);
        c->ledger_ino = fstat(c->ledger_fd, &st) == 0 ? st.st_ino : 0;
    } else { /* then there is no tallyd for it either */
        page = mmap(NULL, TL_SHARE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                    0);
        if (page == MAP_FAILED)
            return -ENOMEM;
    }
    tl_ledger_init(page);
    atomic_store_explicit(&c->ledger, page, memory_order_release);
    return 0;
}

bool tl__client_take_ledger(struct tl_client *c, int fd)
{
    struct stat st;
    struct tl_ledger_page *page = NULL;
    bool is_other = fstat(fd, &st) == 0 && st.st_ino != c->ledger_ino && tl_share_check(fd) == 0;
    if (is_other)
        page = tl_share_map(fd, true);
    if (page == NULL || !tl_ledger_is(page)) {
        if (page != NULL)
            munmap(page, TL_SHARE_PAGE);
        close(fd);
        return false;
    }
    if (tl_share_check(c->ledger_fd) == 0) /* it is what it was: the job has not closed it */
        close(c->ledger_fd);
    c->ledger_fd = tl_file_lift(fd);
    c->ledger_ino = st.st_ino;
    atomic_store_explicit(&c->ledger, page, memory_order_release);
    return true;
}

struct tl_ledger_page *tl_client_ledger(struct tl_client *c)
{
    return atomic_load_explicit(&c->ledger, memory_order_acquire);
}

uint64_t tl_client_number(const struct tl_client *c)
{
    return c->page_ino != 0 ? (uint64_t)c->page_ino : (uint64_t)getpid();
}

void tl_client_memory(struct tl_client *c, struct tl_client_memory *out)
{
    const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_acquire);
    struct tl_share_grant g;
    *out = (struct tl_client_memory){
        atomic_load_explicit(&c->memory_limit, memory_order_relaxed),
        atomic_load_explicit(&c->memory_soft, memory_order_relaxed),
    };
    if (page != NULL && tl_share_read(page, &g))
        *out = (struct tl_client_memory){g.client.memory_limit, g.client.memory_soft};
}

uint64_t tl_client_kept(struct tl_client *c, uint64_t gpu)
{
    const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_acquire);
    for (uint32_t i = 0; page != NULL && i < TL_SHARE_KEPT; i++)
        if (atomic_load_explicit(&page->kept[i].gpu, memory_order_relaxed) == gpu)
            return atomic_load_explicit(&page->kept[i].bytes, memory_order_relaxed);
    return 0;
}
