/* Memory for gated cubins.  Most of the time that a large one takes is not the copying: it is the
 * kernel, which hands out and clears one small page after the other.  So large ones ask for large
 * pages; where there are none, they get small ones.  And what only moves takes its pages along. */
#include "cubin/work.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* From LARGE bytes on they have a mapping of their own, in which the file begins within the first
 * SMALLEST, aligned as malloc aligns. */
enum { PAGE = 64 << 10, SMALLEST = 4 << 10, LARGE = 256 << 10, ALIGNED = 16 };

/* Large pages, and from how many on it matters where the first begins. */
enum { HUGE = 2 << 20, SEVERAL = 4 };

/* What is copied between two calls that give it back. */
enum { PIECE = 1 << 20 };

/* Set when the system could not hand over pages: it is not asked again. */
static atomic_bool only_copies;

/* Where in its mapping a file begins. */
static size_t place_of(const void *file)
{
    return (uintptr_t)file % SMALLEST;
}

/* Whole pages, whatever their size is on this machine. */
static size_t mapped_bytes(const void *file, size_t n)
{
    return (place_of(file) + n + PAGE - 1) / PAGE * PAGE;
}

void *tl__cb_reserve(size_t n, const void *like, size_t fresh, bool *is_clear)
{
    *is_clear = n >= LARGE;
    if (n < LARGE)
        return malloc(n);
    if (n > SIZE_MAX / 2)
        return NULL;
    if (place_of(like) % ALIGNED != 0)
        like = NULL;
    /* If it is worth it, more than is needed, of which the part stays in which `fresh` begins a
     * large page. */
    size_t bytes = mapped_bytes(like, n), before = (place_of(like) + fresh) / PAGE * PAGE;
    size_t more = n >= SEVERAL * HUGE ? HUGE : 0;
    uint8_t *p = mmap(NULL, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);
    if (p == MAP_FAILED)
        return NULL;
    size_t skipped = more > 0 ? (HUGE - ((uintptr_t)p + before) % HUGE) % HUGE : 0;
    if (skipped > 0)
        (void)munmap(p, skipped);
    if (skipped < more)
        (void)munmap(p + skipped + bytes, more - skipped);
    return p + skipped + place_of(like);
}

/* Has small pages brought at once where no large one fits; else each would be a fault. */
static void populate(uint8_t *begin, uint8_t *end)
{
    if (begin < end)
        (void)madvise(begin, (size_t)(end - begin), MADV_POPULATE_WRITE);
}

void tl__cb_expect(uint8_t *file, size_t file_bytes, size_t at, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (file_bytes < LARGE || n == 0)
        return;
    uint8_t *begin = file + at - ((uintptr_t)file + at) % page;
    uint8_t *end = file + at + n + (page - ((uintptr_t)file + at + n) % page) % page;
    uint8_t *first = begin + (HUGE - (uintptr_t)begin % HUGE) % HUGE;
    uint8_t *last = end - (uintptr_t)end % HUGE;
    if (first >= last) {
        populate(begin, end);
        return;
    }
    (void)madvise(first, (size_t)(last - first), MADV_HUGEPAGE);
    populate(begin, first);
    populate(last, end);
}

void tl__cb_release(void *bytes, size_t n)
{
    if (bytes != NULL && n >= LARGE)
        (void)munmap((uint8_t *)bytes - place_of(bytes), mapped_bytes(bytes, n));
    else
        free(bytes);
}

/* --- handing over ----------------------------------------------------------------------------- */

/* Copies, and gives back the whole pages of what was copied. */
static void copy_and_forget(uint8_t *to, const uint8_t *from, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), spent = (uintptr_t)from;
    spent = (spent + page - 1) / page * page;
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = n - at < PIECE ? n - at : PIECE;
        memcpy(to + at, from + at, piece);
        uintptr_t end = (uintptr_t)(from + at + piece) / page * page;
        if (end > spent) { /* what the system does not take back is there for a while longer */
            (void)madvise((void *)(from + (spent - (uintptr_t)from)), end - spent, MADV_DONTNEED);
            spent = end;
        }
    }
}

/* Releases all of a file's mapping but some pages, which may be somebody else's by now. */
static void release_around(uint8_t *file, size_t file_bytes, uint8_t *pages, size_t n)
{
    uint8_t *begin = file - place_of(file), *end = begin + mapped_bytes(file, file_bytes);
    if (pages > begin)
        (void)munmap(begin, (size_t)(pages - begin));
    if (pages + n < end)
        (void)munmap(pages + n, (size_t)(end - (pages + n)));
}

bool tl__cb_hand_over(uint8_t *file, size_t file_bytes, size_t at, const uint8_t *from, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uint8_t *to = file + at;
    size_t head = (page - (uintptr_t)from % page) % page;
    if (file_bytes < LARGE || atomic_load(&only_copies) || n < head + page ||
        ((uintptr_t)to - (uintptr_t)from) % page != 0) {
        copy_and_forget(to, from, n);
        return true;
    }
    size_t whole = (n - head) / page * page;
    memcpy(to, from, head);
    memcpy(to + head + whole, from + head + whole, n - head - whole);
    if (mremap((void *)(from + head), whole, whole,
               MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to + head) == to + head)
        return true;
    /* Whether our pages are still there nobody says, and another thread may have got the place.
     * If they are, they were never written, so that only the addresses are lost, once. */
    atomic_store(&only_copies, true);
    release_around(file, file_bytes, to + head, whole);
    return false;
}
