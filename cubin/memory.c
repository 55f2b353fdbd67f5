/* Memory for gated cubins.  Most of the time that a large one takes is not the copying: it is the
 * kernel, which hands out and clears one small page after the other.  So large ones ask for large
 * pages; where there are none, they get small ones. */
#include "cubin/internal.h"

#include <stdlib.h>
#include <sys/mman.h>

/* From LARGE bytes on they have a mapping of their own, which begins where a large page does. */
enum { LARGE_PAGE = 2 << 20, LARGE = 2 * LARGE_PAGE };

static size_t mapped_bytes(size_t n)
{
    return (n + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
}

void *tl__cb_reserve(size_t n)
{
    if (n < LARGE)
        return malloc(n);
    if (n > SIZE_MAX / 2)
        return NULL;
    size_t wanted = mapped_bytes(n);
    uint8_t *p = mmap(NULL, wanted + LARGE_PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = (LARGE_PAGE - ((uintptr_t)p & (LARGE_PAGE - 1))) & (LARGE_PAGE - 1);
    if (before > 0)
        (void)munmap(p, before);
    if (before < LARGE_PAGE)
        (void)munmap(p + before + wanted, LARGE_PAGE - before);
    /* The last piece, which is not a whole large page, is not rounded up. */
    (void)madvise(p + before, n / LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE);
    return p + before;
}

void tl__cb_release(void *bytes, size_t n)
{
    if (bytes != NULL && n >= LARGE)
        (void)munmap(bytes, mapped_bytes(n));
    else
        free(bytes);
}
