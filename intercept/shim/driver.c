/* The real driver: found, opened once, and its functions put where the entries jump to.
 *
 * It is opened by its path.  Under the name libcuda.so.1 the dynamic linker knows this library, and
 * would give it back. */
#include "intercept/shim/internal.h"
#include "tally/hash.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void *tl_real[TL_NAMES];
extern char tl_entries[]; /* 16 bytes each */

static const char *const names[TL_NAMES] = {
#define TL_DRIVER_NAME(name) #name,
#include "shim_names.inc"
#undef TL_DRIVER_NAME
};

/* What a thread finds out with the dynamic linker's help. */
struct found {
    void *handle; /* NULL: there is no driver */
    char path[PATH_MAX], folder[PATH_MAX];
    struct stat self; /* this library's own file */
    void *functions[TL_NAMES];
};

/* Published once.  The dynamic linker is asked before that, by each thread that comes first, and
 * with no lock of ours held: a thread in the middle of a dlopen may call a driver function too, and
 * it holds the linker's lock. */
static struct {
    pthread_once_t once;
    _Atomic bool is_ready;
    void *handle;
    char path[PATH_MAX], folder[PATH_MAX];
    uint16_t by_address[4096]; /* index + 1 by hash of the address in tl_real */
} driver = {.once = PTHREAD_ONCE_INIT};

_Static_assert(TL_NAMES < 2048, "by_address is at most half full");

static TL_THREAD bool is_opening;
static TL_THREAD const struct found *mine;

/* --- functions that take any arguments --- */

static CUresult no_such_function(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult no_driver(void)
{
    return CUDA_ERROR_STUB_LIBRARY;
}

/* --- tables --- */

int tl_driver_index(const char *name)
{
    size_t low = 0, high = TL_NAMES;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, names[middle]);
        if (order == 0)
            return (int)middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

void *tl_driver_entry(enum tl_name i)
{
    return tl_entries + (size_t)16 * i;
}

bool tl_driver_has(enum tl_name i)
{
    return tl_real[i] != NULL && tl_real[i] != (void *)no_such_function &&
           tl_real[i] != (void *)no_driver;
}

static size_t address_bucket(const void *address)
{
    return (size_t)(tl_hash_number((uintptr_t)address) >> 52);
}

static void remember_address(enum tl_name i)
{
    size_t b = address_bucket(tl_real[i]);
    while (driver.by_address[b] != 0)
        b = (b + 1) % 4096;
    driver.by_address[b] = (uint16_t)(i + 1);
}

int tl_driver_which(const void *real)
{
    for (size_t b = address_bucket(real); driver.by_address[b] != 0; b = (b + 1) % 4096)
        if (tl_real[driver.by_address[b] - 1] == real)
            return driver.by_address[b] - 1;
    return -1;
}

void *tl_driver_find(const char *name)
{
    if (!tl_driver_open())
        return NULL;
    int i = tl_driver_index(name);
    if (i >= 0)
        return tl_driver_has((enum tl_name)i) ? tl_real[i] : NULL;
    return tl_libc_dlsym_of(driver.handle, name);
}

const char *tl_driver_path(void)
{
    return driver.path;
}

const char *tl_driver_folder(void)
{
    return driver.folder;
}

/* --- hooks --- */

/* Calls of a function that the driver does not have stay with the one that says so. */
static int hookable(const struct tl_hook *hook)
{
    int i = tl_driver_index(hook->name);
    if (i < 0)
        tl_log(1, "hook of %s, which is no driver function", hook->name);
    return i >= 0 && tl_driver_has((enum tl_name)i) ? i : -1;
}

void tl_driver_hook(const struct tl_hook *hooks)
{
    for (; hooks->name != NULL; hooks++) {
        int i = hookable(hooks);
        if (i >= 0)
            atomic_store_explicit(&tl_slots[i], hooks->function, memory_order_release);
    }
}

bool tl_driver_is_hooked(enum tl_name i)
{
    return atomic_load_explicit(&tl_slots[i], memory_order_relaxed) != tl_real[i];
}

void tl_driver_reset_hooks(bool is_off)
{
    const struct tl_hook *lists[] = {tl_procaddress_hooks, tl_capture_hooks,  tl_memory_hooks,
                                     tl_pool_hooks,        tl_physical_hooks, tl_graph_hooks,
                                     tl_priority_hooks,    tl_doors_hooks,    tl_job_hooks};
    void *targets[TL_NAMES];
    memcpy(targets, tl_real, sizeof targets);
    for (size_t l = 0; !is_off && l < sizeof lists / sizeof lists[0]; l++)
        for (const struct tl_hook *h = lists[l]; h->name != NULL; h++) {
            int i = hookable(h);
            if (i >= 0)
                targets[i] = h->function;
        }
    /* In one store each: a hook that stays is never out of place. */
    for (int i = 0; i < TL_NAMES; i++)
        atomic_store_explicit(&tl_slots[i], targets[i], memory_order_release);
}

/* --- finding --- */

static void find_self(struct found *f)
{
    Dl_info info;
    if (dladdr(tl_entries, &info) == 0 || info.dli_fname == NULL ||
        realpath(info.dli_fname, f->folder) == NULL)
        return;
    if (stat(f->folder, &f->self) != 0)
        f->self.st_ino = 0;
    char *slash = strrchr(f->folder, '/');
    if (slash != NULL)
        *slash = '\0';
}

static bool is_self(const struct found *f, const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_ino == f->self.st_ino && st.st_dev == f->self.st_dev;
}

/* Opens a library that is a driver and no interception library, neither this one nor a copy of
 * it. */
static bool open_path(struct found *f, const char *path, bool is_asked_for)
{
    if (realpath(path, f->path) == NULL) {
        if (is_asked_for)
            tl_log(0, "TALLY_DRIVER=%s: %s", path, strerror(errno));
        return false;
    }
    if (is_self(f, f->path)) {
        if (is_asked_for)
            tl_log(
                0,
                "TALLY_DRIVER=%s is Tally's own interception library; it must name the real driver",
                path);
        return false;
    }
    void *handle = dlopen(f->path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        tl_log(is_asked_for ? 0 : 3, "%s", dlerror());
        return false;
    }
    if (tl_libc_dlsym_of(handle, "cuInit") == NULL ||
        tl_libc_dlsym_of(handle, "tally_request_begin") != NULL) {
        tl_log(is_asked_for ? 0 : 3, "%s is not a CUDA driver", f->path);
        dlclose(handle);
        return false;
    }
    f->handle = handle;
    return true;
}

static bool open_in(struct found *f, const char *folder, size_t n)
{
    char path[PATH_MAX];
    if (n == 0 || n + sizeof "/libcuda.so.1" > sizeof path)
        return false;
    memcpy(path, folder, n);
    memcpy(path + n, "/libcuda.so.1", sizeof "/libcuda.so.1");
    return open_path(f, path, false);
}

/* Where distributions, container runtimes and WSL put the driver. */
/* clang-format off */
static const char *const folders[] = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu", "/lib64", "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib", "/run/opengl-driver/lib", "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/local/cuda/compat",
};
/* clang-format on */

static bool search(struct found *f)
{
    const char *asked = secure_getenv("TALLY_DRIVER"), *path = secure_getenv("LD_LIBRARY_PATH");
    if (asked != NULL && *asked != '\0')
        return open_path(f, asked, true);
    while (path != NULL && *path != '\0') {
        size_t n = strcspn(path, ":;");
        if (open_in(f, path, n))
            return true;
        path += n + (path[n] != '\0');
    }
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (open_in(f, folders[i], strlen(folders[i])))
            return true;
    tl_log(0, "no CUDA driver found: set TALLY_DRIVER to the path of the real libcuda.so.1, or use "
              "tally-run --device=soft");
    return false;
}

/* --- opening --- */

/* What the first thread found counts for all. */
static void publish(void)
{
    const struct found *f = mine;
    if (f != NULL) {
        driver.handle = f->handle;
        memcpy(driver.path, f->handle != NULL ? f->path : "",
               f->handle != NULL ? sizeof f->path : 1);
        memcpy(driver.folder, f->folder, sizeof f->folder);
    }
    for (int i = 0; i < TL_NAMES; i++) {
        void *real = f != NULL ? f->functions[i] : NULL;
        tl_real[i] = real != NULL            ? real
                     : driver.handle != NULL ? (void *)no_such_function
                                             : (void *)no_driver;
        if (real != NULL)
            remember_address((enum tl_name)i);
    }
    const char *off = secure_getenv("TALLY_OFF");
    tl_driver_reset_hooks(driver.handle == NULL || (off != NULL && strcmp(off, "1") == 0));
    atomic_store_explicit(&driver.is_ready, true, memory_order_release);
}

bool tl_driver_open(void)
{
    if (atomic_load_explicit(&driver.is_ready, memory_order_acquire))
        return driver.handle != NULL;
    /* The driver's own constructors may come back here: for them there is no driver yet. */
    if (is_opening)
        return false;
    is_opening = true;
    struct found *f = calloc(1, sizeof *f);
    tl_dlsym_find();
    if (f != NULL) {
        find_self(f);
        if (search(f))
            for (int i = 0; i < TL_NAMES; i++)
                f->functions[i] = tl_libc_dlsym_of(f->handle, names[i]);
    }
    mine = f;
    pthread_once(&driver.once, publish);
    mine = NULL;
    free(f);
    is_opening = false;
    return driver.handle != NULL;
}

/* From the first call of a function: where to go. */
void *tl_driver_resolve(uint32_t index);
void *tl_driver_resolve(uint32_t index)
{
    int saved = errno;
    tl_driver_open();
    errno = saved;
    return is_opening ? (void *)no_driver
                      : atomic_load_explicit(&tl_slots[index], memory_order_acquire);
}
