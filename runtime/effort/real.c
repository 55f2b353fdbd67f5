/* The real driver, as the shim hands it out by name. */
#include "runtime/effort/real.h"

#include <errno.h>

struct tl_eff_real tl_eff_real;

int tl_eff_real_find(const struct tl_shim *shim, struct tl_error *err)
{
    const char *missing = NULL;
#define FIND(name) *(void **)&tl_eff_real.name = shim->real(#name);
#define FIND_OR_FAIL(name) FIND(name) if (tl_eff_real.name == NULL) missing = #name;
    TL_DRIVER_NEEDS(FIND_OR_FAIL)
    TL_EFF_REAL_NEWER(FIND)
#undef FIND_OR_FAIL
#undef FIND
    if (missing != NULL)
        return tl_error_set(err, -ENOENT,
                            "the driver has no %s; it is too old for best-effort control", missing);
    return 0;
}

CUresult tl_eff_invoke(const struct tl_eff_call *c)
{
    const uintptr_t *a = c->args;
    typedef uintptr_t w;
    switch (c->n) {
    case 0:
        return ((CUresult(*)(void))c->function)();
    case 1:
        return ((CUresult(*)(w))c->function)(a[0]);
    case 2:
        return ((CUresult(*)(w, w))c->function)(a[0], a[1]);
    case 3:
        return ((CUresult(*)(w, w, w))c->function)(a[0], a[1], a[2]);
    case 4:
        return ((CUresult(*)(w, w, w, w))c->function)(a[0], a[1], a[2], a[3]);
    case 5:
        return ((CUresult(*)(w, w, w, w, w))c->function)(a[0], a[1], a[2], a[3], a[4]);
    case 6:
        return ((CUresult(*)(w, w, w, w, w, w))c->function)(a[0], a[1], a[2], a[3], a[4], a[5]);
    case 7:
        return ((CUresult(*)(w, w, w, w, w, w, w))c->function)(a[0], a[1], a[2], a[3], a[4], a[5],
                                                               a[6]);
    case 8:
        return ((CUresult(*)(w, w, w, w, w, w, w, w))c->function)(a[0], a[1], a[2], a[3], a[4],
                                                                  a[5], a[6], a[7]);
    default:
        return ((CUresult(*)(w, w, w, w, w, w, w, w, w))c->function)(a[0], a[1], a[2], a[3], a[4],
                                                                     a[5], a[6], a[7], a[8]);
    }
}
