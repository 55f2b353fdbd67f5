/* How a death is known before the process is gone.
 *
 * A pidfd tells of a death when the process has been taken down, and a socket when its files have
 * been closed; both come after its memory, and to unmap some gigabytes takes longer than a
 * best-effort job should be kept waiting.  But the first thing that the kernel does with a dying
 * thread is to walk its robust list.  So the client's own thread has a list of one, which leads to
 * a word in the client's page: the kernel marks it there, and whoever reads the page sees it. */
#include "runtime/job/client_internal.h"
#include "tally/file.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void tl__alive_open(struct tl_client *c)
{
    struct stat st;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return;
    c->poke[0] = tl_file_lift(ends[0]);
    c->poke[1] = tl_file_lift(ends[1]);
    c->poke_ino = fstat(c->poke[0], &st) == 0 ? st.st_ino : 0;
}

static bool is_ours(const struct tl_client *c, int fd)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_ino == c->poke_ino;
}

void tl__alive_poke(struct tl_client *c)
{
    if (is_ours(c, c->poke[1]))
        (void)!write(c->poke[1], "", 1); /* a full pipe has been heard of */
}

void tl__alive_hear(struct tl_client *c)
{
    char said[64];
    if (!is_ours(c, c->poke[0]))
        c->poke[0] = -1;
    else
        (void)!read(c->poke[0], said, sizeof said);
}

void tl__alive_begin(struct tl_client *c)
{
    struct tl_client_alive *a = &c->alive;
    _Atomic uint32_t *word = &c->page->alive;
    a->head.list.next = &a->node;
    a->head.futex_offset = (long)((uintptr_t)word - (uintptr_t)&a->node);
    a->head.list_op_pending = NULL;
    a->node.next = &a->head.list;
    /* This thread is ours and takes no robust mutex, so the list that libc gave it is not
     * missed. */
    if (syscall(SYS_set_robust_list, &a->head, sizeof a->head) == 0)
        atomic_store_explicit(word, (uint32_t)gettid(), memory_order_release);
}

void tl__alive_end(struct tl_client *c)
{
    /* the thread ends, not the job */
    atomic_store_explicit(&c->page->alive, 0, memory_order_release);
    c->alive.head.list.next = &c->alive.head.list;
}

bool tl__alive_has_died(const struct tl_client_page *page)
{
    return (atomic_load_explicit(&page->alive, memory_order_relaxed) & FUTEX_OWNER_DIED) != 0;
}
