/* The other ways to a driver function: cuGetProcAddress, and dlsym on a driver that was opened by
 * path.  Both give out this library's entries, so that a program meets the hooks however it asks.
 *
 * Which function is meant is never guessed: the real driver answers for name, version and
 * per-thread flag, and its answer is recognised by its address.  Only where the driver answers with
 * an address that it does not export does the table of versions from the CUDA headers decide, and
 * only for functions that have a hook.  What is not recognised is handed on as it is. */
#include "intercept/doors/doors.h"
#include "intercept/memory/memory.h"
#include "intercept/shim/internal.h"

#include <dlfcn.h>
#include <string.h>

/* --- libc's dlsym --- */

typedef void *dlsym_fn(void *handle, const char *name);
void *_Atomic tl_libc_dlsym;

void *tl_dlsym_find(void)
{
    static const char *const homes[] = {"libc.so.6", "libdl.so.2"}; /* since 2.34, and before */
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5"};
    void *found = atomic_load_explicit(&tl_libc_dlsym, memory_order_acquire);
    for (size_t i = 0; i < 2 && found == NULL; i++) {
        void *home = dlopen(homes[i], RTLD_LAZY | RTLD_NOLOAD);
        for (size_t j = 0; home != NULL && j < 2 && found == NULL; j++)
            found = dlvsym(home, "dlsym", versions[j]);
    }
    atomic_store_explicit(&tl_libc_dlsym, found, memory_order_release);
    return found;
}

void *tl_libc_dlsym_of(void *handle, const char *name)
{
    dlsym_fn *libc = (dlsym_fn *)tl_dlsym_find();
    return libc != NULL ? libc(handle, name) : NULL;
}

/* Whether this address is in a file that is a CUDA driver by its name, or this library. */
static bool is_in_driver(const void *address)
{
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    return strncmp(slash != NULL ? slash + 1 : info.dli_fname, "libcuda.so",
                   strlen("libcuda.so")) == 0;
}

/* dlsym of a name that begins as those of the driver and of compilers do, on a handle that dlopen
 * gave. */
void *tl_dlsym(void *handle, const char *name);
void *tl_dlsym(void *handle, const char *name)
{
    void *found = tl_libc_dlsym_of(handle, name);
    if (name[0] != 'c')
        return found != NULL ? tl_nvml_symbol(name, tl_doors_symbol(name, found)) : NULL;
    if (name[2] < 'A' || name[2] > 'Z')
        return found;
    int i = tl_driver_index(name);
    if (found != NULL)
        return i >= 0 && is_in_driver(found) ? tl_driver_entry((enum tl_name)i) : found;
    /* A driver newer than the headers of this build may have it. */
    if (i < 0 && tl_libc_dlsym_of(handle, "cuInit") == tl_driver_entry(TL_NAME_cuInit)) {
        found = tl_driver_find(name);
        if (found != NULL)
            dlerror(); /* forgets that libc found nothing */
    }
    return found;
}

/* --- cuGetProcAddress --- */

struct version {
    const char *base;
    int version;
    bool is_per_thread;
    enum tl_name symbol;
};

static const struct version versions[] = {
#define TL_DRIVER_VERSION(base, version, is_per_thread, symbol)                                    \
    {base, version, is_per_thread, TL_NAME_##symbol},
#include "shim_versions.inc"
#undef TL_DRIVER_VERSION
};

/* The symbol that the headers of this build have for a question, or -1. */
static int symbol_of(const char *base, int version, bool is_per_thread)
{
    const struct version *best = NULL;
    size_t low = 0, high = sizeof versions / sizeof versions[0];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(base, versions[middle].base) <= 0)
            high = middle;
        else
            low = middle + 1;
    }
    for (; low < sizeof versions / sizeof versions[0] && strcmp(versions[low].base, base) == 0;
         low++) {
        const struct version *v = &versions[low];
        if (v->version > version || (v->is_per_thread && !is_per_thread))
            continue;
        if (best == NULL || v->is_per_thread > best->is_per_thread ||
            (v->is_per_thread == best->is_per_thread && v->version > best->version))
            best = v;
    }
    return best != NULL ? (int)best->symbol : -1;
}

static void *ours(const char *symbol, void *answer, int version, cuuint64_t flags)
{
    int said = symbol_of(symbol, version,
                         (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
    /* Two names may have one address: the one that the headers expect goes first. */
    int i = said >= 0 && tl_real[said] == answer ? said : tl_driver_which(answer);
    if (i < 0 && said >= 0 && version <= CUDA_VERSION && tl_driver_is_hooked((enum tl_name)said))
        i = said;
    return i >= 0 ? tl_driver_entry((enum tl_name)i) : answer;
}

static CUresult hook_cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    CUresult r = TL_REAL(cuGetProcAddress)(symbol, pfn, version, flags);
    if (r == CUDA_SUCCESS && symbol != NULL && pfn != NULL && *pfn != NULL)
        *pfn = ours(symbol, *pfn, version, flags);
    return r;
}

static CUresult hook_cuGetProcAddress_v2(const char *symbol, void **pfn, int version,
                                         cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    CUresult r = TL_REAL(cuGetProcAddress_v2)(symbol, pfn, version, flags, status);
    if (r == CUDA_SUCCESS && symbol != NULL && pfn != NULL && *pfn != NULL)
        *pfn = ours(symbol, *pfn, version, flags);
    return r;
}

const struct tl_hook tl_procaddress_hooks[] = {
    {"cuGetProcAddress", (void *)hook_cuGetProcAddress},
    {"cuGetProcAddress_v2", (void *)hook_cuGetProcAddress_v2},
    {NULL, NULL},
};
