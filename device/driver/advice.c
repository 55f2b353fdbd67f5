/* What programs have said of managed memory, part by part, so that it can be told again.  An
 * allocation of which nothing was said has no list; else the parts lie side by side and cover all
 * of it, cut at pages. */
#include "device/driver/memory.h"
#include "tally/check.h"

#include <stdlib.h>

struct tl_drv_advice {
    struct tl_drv_advice *next;
    uintptr_t end; /* where the next part begins */
    struct tl_drv_said said;
};

void tl_drv_advice_drop(struct tl_drv_alloc *a)
{
    while (a->advice != NULL) {
        struct tl_drv_advice *p = a->advice;
        a->advice = p->next;
        free(p);
    }
}

/* The part that begins at `at`, cut there if need be; NULL if memory is short. */
static struct tl_drv_advice *cut(struct tl_drv_alloc *a, uintptr_t at)
{
    uintptr_t begin = a->base;
    struct tl_drv_advice *p = a->advice;
    while (p != NULL && p->end <= at) {
        begin = p->end;
        p = p->next;
    }
    TL_CHECK(p != NULL);
    if (begin == at)
        return p;
    struct tl_drv_advice *rest = malloc(sizeof *rest);
    if (rest == NULL)
        return NULL;
    *rest = *p;
    p->end = at;
    p->next = rest;
    return rest;
}

static uintptr_t page_of(const struct tl_drv_alloc *a, uintptr_t at)
{
    return a->base + ((at - a->base) & ~(uintptr_t)(TL_DRV_PAGE - 1));
}

CUresult tl_drv_advice_change(struct tl_drv_alloc *a, uintptr_t at, size_t n,
                              void (*change)(struct tl_drv_said *, const void *), const void *data)
{
    uintptr_t all = a->base + a->mapped, begin = page_of(a, at);
    uintptr_t end = page_of(a, at + n - 1) + TL_DRV_PAGE;
    TL_CHECK(at >= a->base && n > 0 && at + n <= all);
    if (a->advice == NULL) {
        a->advice = calloc(1, sizeof *a->advice);
        if (a->advice == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        a->advice->end = all;
    }
    struct tl_drv_advice *p = cut(a, begin);
    if (p == NULL || (end < all && cut(a, end) == NULL))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (; p != NULL && p->end <= end; p = p->next)
        change(&p->said, data);
    return CUDA_SUCCESS;
}

static void agree(CUmemLocation *with, const CUmemLocation *l)
{
    if (with->type != l->type || with->id != l->id)
        *with = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
}

struct tl_drv_said tl_drv_advice_of(const struct tl_drv_alloc *a, uintptr_t at, size_t n)
{
    struct tl_drv_said all = {0};
    bool is_first = true;
    uintptr_t begin = a->base;
    for (const struct tl_drv_advice *p = a->advice; p != NULL && begin < at + n; p = p->next) {
        if (p->end > at && is_first) {
            all = p->said;
            is_first = false;
        } else if (p->end > at) {
            all.is_read_mostly &= p->said.is_read_mostly;
            all.accessed_by &= p->said.accessed_by;
            agree(&all.preferred, &p->said.preferred);
            agree(&all.sent, &p->said.sent);
        }
        begin = p->end;
    }
    return all;
}
