/* How far memory can be read that somebody hands over without a length.
 *
 * CUDA takes images as bare pointers, and what is behind them says itself how long it is.  It may
 * lie: then who believes it runs into memory that is not there.  So pages are tried before they
 * are read, by a system call that reads a signal set from them and refuses what is asked of it;
 * where it cannot read, it says so.  What lies in a loaded object is not tried page by page, which
 * would bring all of a large library into memory: it can be read to the end of its segment. */
#include "image/internal.h"

#include <errno.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    FEW = 64 << 10, /* so much is tried at once; for more it pays to ask what lies there */
};

static bool can_read(uintptr_t page)
{
    enum { NO_SUCH_REQUEST = -1, SET_BYTES = 8 };
    if (page == 0)
        return false; /* to the system call, no set at all; and nobody's memory */
    int saved = errno;
    bool is_there = syscall(SYS_rt_sigprocmask, NO_SUCH_REQUEST, page, NULL, SET_BYTES) == 0 ||
                    errno != EFAULT;
    errno = saved;
    return is_there;
}

struct segment {
    uintptr_t address, end; /* end: of the segment that it lies in; 0: it lies in none */
};

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
    struct segment *s = data;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && (p->p_flags & PF_R) != 0 && s->address - begin < p->p_filesz) {
            s->end = begin + p->p_filesz;
            return 1;
        }
    }
    return 0;
}

static size_t try_pages(uintptr_t from, size_t wanted)
{
    size_t n = 0;
    while (n < wanted && can_read((from + n) & ~(uintptr_t)(PAGE - 1)))
        n += PAGE - ((from + n) & (PAGE - 1));
    return n < wanted ? n : wanted;
}

size_t tl_image_room(const void *bytes, size_t wanted)
{
    struct segment s = {.address = (uintptr_t)bytes};
    if (wanted > UINTPTR_MAX - s.address)
        wanted = UINTPTR_MAX - s.address;
    if (wanted > FEW)
        dl_iterate_phdr(look, &s);
    size_t n = s.end - s.address;
    if (s.end == 0)
        return try_pages(s.address, wanted);
    return n < wanted ? n + try_pages(s.end, wanted - n) : wanted;
}

size_t tl__text_room(const void *text)
{
    const char *p = text;
    size_t n = 0;
    while (can_read(((uintptr_t)p + n) & ~(uintptr_t)(PAGE - 1))) {
        size_t here = PAGE - (((uintptr_t)p + n) & (PAGE - 1));
        size_t more = strnlen(p + n, here);
        n += more;
        if (more < here)
            break;
    }
    return n;
}
