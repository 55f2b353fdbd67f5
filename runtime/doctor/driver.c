/* The functions of the driver that is examined. */
#include "runtime/doctor/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

struct tl_doc_driver tl_doc_driver;

/* Names, places in the struct, what is lost; NULL: nothing works without it. */
static const struct function {
    const char *name;
    size_t at;
    const char *lost;
} functions[] = {
#define NEEDED(name) {#name, offsetof(struct tl_doc_driver, name), NULL},
#define WANTED(name, lost) {#name, offsetof(struct tl_doc_driver, name), lost},
    TL_DOC_NEEDED(NEEDED) TL_DOC_WANTED(WANTED)
#undef WANTED
#undef NEEDED
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static void **place_of(const struct function *f)
{
    return (void **)(void *)((char *)&tl_doc_driver + f->at);
}

int tl_doc_driver_load(const char *path, struct tl_error *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return tl_error_set(err, -ENOENT, "cannot be opened: %s", dlerror());
    for (size_t i = 0; i < FUNCTIONS; i++) {
        *place_of(&functions[i]) = dlsym(library, functions[i].name);
        if (*place_of(&functions[i]) == NULL && functions[i].lost == NULL)
            return tl_error_set(err, -ENOENT, "has no %s: too old for best-effort control",
                                functions[i].name);
    }
    return 0;
}

bool tl_doc_driver_missing(uint32_t i, const char **name, const char **lost)
{
    for (size_t k = 0; k < FUNCTIONS; k++) {
        if (*place_of(&functions[k]) != NULL || i-- > 0)
            continue;
        *name = functions[k].name;
        *lost = functions[k].lost;
        return true;
    }
    return false;
}

const char *tl_doc_error(CUresult r)
{
    static char text[96];
    const char *name = NULL;
    if (tl_doc_driver.cuGetErrorName == NULL ||
        tl_doc_driver.cuGetErrorName(r, &name) != CUDA_SUCCESS || name == NULL)
        name = "error";
    snprintf(text, sizeof text, "%.70s (%d)", name, (int)r);
    return text;
}
