/* Kernels by the handles that the job launches: CUfunction and CUkernel alike.
 *
 *     owner (CUmodule or CUlibrary) ──► image
 *       └─► kernels ──► by handle, found without a lock at every launch
 *
 * Owners and lists are changed under one lock.  What belongs to an owner lives until it is
 * unloaded; a context that goes takes its modules with it without a word, so an owner may also be
 * replaced by a new one of the same handle, and then the old one's memory is left alone: it is
 * little, and somebody may still hold it. */
#include "intercept/capture/capture.h"
#include "intercept/capture/map.h"

#include <stdlib.h>
#include <string.h>

#include "tally/check.h"
#include "tally/lock.h"

struct owner {
    void *handle;
    void *library; /* itself or the one that it belongs to, or NULL */
    bool is_module;
    struct tl_captured_image *image;
    struct tl_kernel *kernels;
    struct owner *modules, *next_module; /* of a library */
};

static struct tl_map owners = TL_MAP_EMPTY, kernels = TL_MAP_EMPTY;
static struct tl_mutex lock = TL_MUTEX_INITIALIZER; /* of owners, and of their lists */

static void forget_record(void *data, uintptr_t key, void *value)
{
    (void)data, (void)key;
    atomic_store(&((struct tl_kernel *)value)->record, NULL);
}

void tl_capture_forked(void)
{
    tl_mutex_init(&lock);
    tl_map_forked(&owners);
    tl_map_forked(&kernels);
    tl_map_each(&kernels, forget_record, NULL);
}

static struct owner *owner_of(const void *handle)
{
    return tl_map_find(&owners, (uintptr_t)handle);
}

/* --- owners --- */

static struct owner *add_owner(void *handle, struct tl_captured_image *image) TL_REQUIRES(lock);
static struct owner *add_owner(void *handle, struct tl_captured_image *image)
{
    struct owner *o = calloc(1, sizeof *o);
    if (o == NULL || tl_map_put(&owners, (uintptr_t)handle, o) < 0) {
        free(o);
        tl_capture_unref(image);
        return NULL;
    }
    o->handle = handle;
    o->image = image;
    return o;
}

void tl_capture_loaded(void *handle, bool is_library, struct tl_captured_image *image)
{
    tl_mutex_lock(&lock);
    struct owner *o = add_owner(handle, image);
    if (o != NULL) {
        o->library = is_library ? handle : NULL;
        o->is_module = !is_library;
    }
    tl_mutex_unlock(&lock);
}

void tl_capture_module_of(void *module, void *library)
{
    tl_mutex_lock(&lock);
    struct owner *l = owner_of(library), *o = owner_of(module);
    if (l != NULL && (o == NULL || o->library != library)) {
        o = add_owner(module, tl_capture_ref(l->image));
        if (o != NULL) {
            o->library = library;
            o->is_module = true;
            o->next_module = l->modules;
            l->modules = o;
        }
    }
    tl_mutex_unlock(&lock);
}

/* Ends an owner, with its kernels and, of a library, its modules. */
static void forget(struct owner *o) TL_REQUIRES(lock);
static void forget(struct owner *o)
{
    TL_CHECK(o->modules == NULL || o->library == o->handle);
    while (o->kernels != NULL) {
        struct tl_kernel *k = o->kernels;
        o->kernels = k->next;
        if (tl_map_find(&kernels, (uintptr_t)k->seen.handle) == k)
            tl_map_put(&kernels, (uintptr_t)k->seen.handle, NULL);
        free(k);
    }
    while (o->modules != NULL) {
        struct owner *m = o->modules;
        o->modules = m->next_module;
        forget(m);
    }
    if (owner_of(o->handle) == o)
        tl_map_put(&owners, (uintptr_t)o->handle, NULL);
    tl_capture_unref(o->image);
    free(o);
}

bool tl_capture_is_twinned(const void *handle)
{
    tl_mutex_lock(&lock);
    const struct owner *o = owner_of(handle);
    bool is_twinned = o != NULL && o->image != NULL && o->image->is_twinned;
    tl_mutex_unlock(&lock);
    return is_twinned;
}

void tl_capture_unloaded(void *handle)
{
    tl_mutex_lock(&lock);
    struct owner *o = owner_of(handle);
    if (o != NULL &&
        (o->library == NULL || o->library == handle)) /* a library's module goes with the library */
        forget(o);
    tl_mutex_unlock(&lock);
}

/* --- kernels --- */

/* Kernels that no module known here has.  They stay, also when a hook sees their handle later: a
 * launch may be looking at one. */
static struct tl_kernel *strays TL_GUARDED_BY(lock);

/* `o` is NULL for strays.  NULL if there is no memory. */
static struct tl_kernel *add_kernel(const void *handle, struct owner *o, const char *name,
                                    bool is_nameless) TL_REQUIRES(lock);
static struct tl_kernel *add_kernel(const void *handle, struct owner *o, const char *name,
                                    bool is_nameless)
{
    size_t n = strlen(name) + 1;
    struct tl_kernel *k = calloc(1, sizeof *k + n);
    if (k == NULL)
        return NULL;
    memcpy(k->name, name, n);
    k->seen.handle = handle;
    k->seen.name = k->name;
    k->seen.is_nameless = is_nameless;
    if (o != NULL) {
        k->seen.module = o->is_module ? o->handle : NULL;
        k->seen.library = o->library;
        k->seen.image = o->image;
    }
    if (tl_map_put(&kernels, (uintptr_t)handle, k) < 0) {
        free(k);
        return NULL;
    }
    struct tl_kernel **list = o != NULL ? &o->kernels : &strays;
    k->next = *list;
    *list = k;
    return k;
}

/* A handle that is given out again, as GetFunction does every time, stays as it is. */
static bool is_known(const void *handle, const struct owner *o, const char *name) TL_REQUIRES(lock);
static bool is_known(const void *handle, const struct owner *o, const char *name)
{
    const struct tl_kernel *k = tl_map_find(&kernels, (uintptr_t)handle);
    return k != NULL && k->seen.image == o->image && k->seen.library == o->library &&
           strcmp(k->name, name) == 0;
}

void tl_capture_function(const void *function, void *owner, const char *name)
{
    tl_mutex_lock(&lock);
    struct owner *o = owner_of(owner);
    if (o != NULL && !is_known(function, o, name))
        add_kernel(function, o, name, false);
    tl_mutex_unlock(&lock);
}

void tl_capture_function_of(const void *function, const void *kernel)
{
    tl_mutex_lock(&lock);
    const struct tl_kernel *k = tl_map_find(&kernels, (uintptr_t)kernel);
    struct owner *o = k != NULL ? owner_of(k->seen.library) : NULL;
    if (o != NULL && function != kernel && !is_known(function, o, k->name))
        add_kernel(function, o, k->name, k->seen.is_nameless);
    tl_mutex_unlock(&lock);
}

/* The name that the driver has for a function or a kernel; NULL if it does not tell, as those
 * before CUDA 12.3 never do. */
static const char *name_of(CUfunction function)
{
    const char *name = NULL;
    if (TL_REAL(cuFuncGetName)(&name, function) == CUDA_SUCCESS && name != NULL)
        return name;
    return TL_REAL(cuKernelGetName)(&name, (CUkernel)function) == CUDA_SUCCESS ? name : NULL;
}

/* The module or library that it is of, or NULL. */
static const void *origin_of(CUfunction function)
{
    CUmodule module = NULL;
    CUlibrary library = NULL;
    if (TL_REAL(cuFuncGetModule)(&module, function) == CUDA_SUCCESS && module != NULL)
        return module;
    return TL_REAL(cuKernelGetLibrary)(&library, (CUkernel)function) == CUDA_SUCCESS ? library
                                                                                     : NULL;
}

/* A handle that came past our hooks, e.g. from a table that enumerates a module's functions, as
 * cuFFT uses one: the driver may know its name and where it is from.  If it knows no name, the
 * best-effort part may find it. */
static struct tl_kernel *learn(const void *handle)
{
    CUfunction function = (CUfunction)handle; /* NOLINT: a handle, never written through */
    const char *name = name_of(function);
    const void *origin = origin_of(function);
    tl_mutex_lock(&lock);
    struct tl_kernel *k = tl_map_find(&kernels, (uintptr_t)handle);
    if (k == NULL) {
        k = add_kernel(handle, origin != NULL ? owner_of(origin) : NULL,
                       name != NULL ? name : "(unknown)", name == NULL);
    }
    tl_mutex_unlock(&lock);
    return k;
}

struct tl_kernel *tl_kernel_of(const void *handle)
{
    struct tl_kernel *k = tl_map_find(&kernels, (uintptr_t)handle);
    return k != NULL || handle == NULL ? k : learn(handle);
}

void tl_capture_cache_config(const void *handle, CUfunc_cache config)
{
    tl_mutex_lock(&lock);
    struct tl_kernel *k = tl_map_find(&kernels, (uintptr_t)handle);
    if (k != NULL)
        __atomic_store_n(&k->seen.cache_config, (int)config, __ATOMIC_RELAXED);
    tl_mutex_unlock(&lock);
}

const struct tl_captured_kernel *tl_capture_kernel(const void *handle)
{
    const struct tl_kernel *k = tl_kernel_of(handle);
    return k != NULL && (k->seen.module != NULL || k->seen.library != NULL) ? &k->seen : NULL;
}
