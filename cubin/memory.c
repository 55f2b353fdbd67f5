/* Memory for gated cubins.  Most of the time that a large one takes is not the copying: it is the
 * kernel, which hands out and clears one small page after the other.  So large ones ask for large
 * pages; where there are none, they get small ones. */
#include "cubin/work.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* From LARGE bytes on they have a mapping of their own. */
enum { PAGE = 64 << 10, LARGE = 4 << 20 };

/* Whole pages, whatever their size is on this machine. */
static size_t mapped_bytes(size_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

void *tl__cb_reserve(size_t n)
{
    if (n < LARGE)
        return malloc(n);
    if (n > SIZE_MAX / 2)
        return NULL;
    void *p = mmap(NULL, mapped_bytes(n), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                   0);
    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, mapped_bytes(n), MADV_HUGEPAGE);
    return p;
}

void tl__cb_release(void *bytes, size_t n)
{
    if (bytes != NULL && n >= LARGE)
        (void)munmap(bytes, mapped_bytes(n));
    else
        free(bytes);
}

void tl__cb_forget(const uint8_t *bytes, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)bytes, end = begin + n;
    uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
    if (first < last) /* what the system does not take back is there for a while longer */
        (void)madvise((void *)(bytes + (first - begin)), last - first, MADV_DONTNEED);
}
