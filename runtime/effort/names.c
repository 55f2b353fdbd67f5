/* Kernels of which the driver tells no name.  Before CUDA 12.3 no driver does, and libraries that
 * take functions out of a table of the driver's, as cuFFT does, never say one.  But the image of
 * the module has names, and the driver tells the function of each: the one with that handle has
 * that name.
 *
 * Asking for a function may load it, which may wait for all that runs in the context, so it is done
 * in a moment (runtime/effort/moment.h); and it takes memory of the device, so not in modules of
 * very many. */
#include "runtime/effort/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/moment.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/texts.h"
#include "tally/array.h"
#include "tally/effort.h"

enum { MOST_NAMES = 512 };

struct names {
    char **list;
    uint32_t n, cap;
    bool are_too_many, failed;
};

/* The same name may stand in several texts, one for each architecture. */
static bool is_listed(const struct names *names, struct tl_str name)
{
    for (uint32_t i = 0; i < names->n; i++)
        if (strlen(names->list[i]) == name.n && memcmp(names->list[i], name.p, name.n) == 0)
            return true;
    return false;
}

static bool add(void *data, struct tl_str name)
{
    struct names *names = data;
    if (is_listed(names, name))
        return true;
    names->are_too_many = names->n == MOST_NAMES;
    if (names->are_too_many || !TL_ARRAY_FIT(names->list, names->cap, names->n + 1))
        names->failed = !names->are_too_many;
    else if ((names->list[names->n] = strndup(name.p, name.n)) == NULL)
        names->failed = true;
    else
        names->n++;
    return !names->are_too_many && !names->failed;
}

static void names_finish(struct names *names)
{
    for (uint32_t i = 0; i < names->n; i++)
        free(names->list[i]);
    free(names->list);
}

/* The place in the list of the function's name; -1 if it has none there. */
static int ask(const struct tl_captured_kernel *k, const struct names *names)
{
    CUfunction f;
    for (uint32_t i = 0; i < names->n; i++)
        if (tl_eff_real.cuModuleGetFunction(&f, k->module, names->list[i]) == CUDA_SUCCESS &&
            f == k->handle)
            return (int)i;
    return -1;
}

int tl_eff_find_name(const struct tl_captured_kernel *k, struct tl_eff_context *c, char **out)
{
    struct names names = {0};
    *out = NULL;
    if (k->module == NULL || k->image == NULL)
        return 0;
    tl_eff_text_names(k->image, add, &names);
    int rc = names.failed ? -ENOMEM : 0;
    if (names.are_too_many)
        tl_eff_note("a kernel without a name runs whole: its module has more than %d, and the "
                    "driver does not tell names",
                    MOST_NAMES);
    if (rc == 0 && names.n > 0 && !names.are_too_many) {
        rc = tl_eff_moment_begin(c, false) ? 0 : -EAGAIN;
        if (rc == 0) {
            int at = ask(k, &names);
            tl_eff_moment_end();
            if (at >= 0) {
                *out = names.list[at];
                names.list[at] = names.list[--names.n];
            }
        }
    }
    names_finish(&names);
    return rc;
}
