/* Compiled kernels: shared objects made by tally-jit, mapped by the dynamic linker so that
 * debuggers and perf know them.
 *
 * An object comes out of a cache on disk that other programs could have written into, so its
 * numbers are checked before anything is sized by them. */
#include "device/exec/internal.h"
#include "tally/check.h"
#include "tally/trust.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LOCAL (512U << 10)
#define MAX_PARAMS (32U << 10)
#define MAX_TEXT (1U << 20)

/* Texts are read up to MAX_TEXT bytes: an object whose strings do not end is refused. */
static int check_text(const struct tl_dev_info *info)
{
    size_t at = 0;
    for (uint32_t i = 0; i <= info->n_variables; i++) {
        size_t n = strnlen(info->text + at, MAX_TEXT - at);
        if (at + n >= MAX_TEXT)
            return -ENOEXEC;
        at += n + 1;
    }
    return 0;
}

static int check_info(const struct tl_dev_info *info, const char *what, struct tl_error *err)
{
    if (info->abi_version != TL_DEV_ABI_VERSION)
        return tl_error_set(
            err, -ENOEXEC,
            "%s was compiled for ABI version %u, this is %u: remove it from the cache", what,
            info->abi_version, TL_DEV_ABI_VERSION);
    uint64_t threads = (uint64_t)info->block[0] * info->block[1];
    if (info->block[0] == 0 || info->block[0] > 1024 || info->block[1] == 0 ||
        info->block[1] > 1024 || info->block[2] == 0 || info->block[2] > 1024 ||
        threads * info->block[2] > 1024)
        return tl_error_set(err, -ENOEXEC,
                            "%s has blocks of %u x %u x %u threads: remove it from the cache", what,
                            info->block[0], info->block[1], info->block[2]);
    if (info->shared_bytes > TL_EXEC_MAX_SHARED || info->local_bytes > MAX_LOCAL ||
        info->param_bytes > MAX_PARAMS || info->stack_bytes > TL_DEV_MAX_STACK ||
        info->n_variables > 65536 || check_text(info) < 0)
        return tl_error_set(err, -ENOEXEC,
                            "%s asks for more than a kernel can have: remove it from the cache",
                            what);
    return 0;
}

static int make(struct tl_exec_object **out, const struct tl_dev_info *info, tl_exec_warp_fn warp,
                tl_exec_blocks_fn blocks, const char *what, struct tl_error *err)
{
    int rc = check_info(info, what, err);
    if (rc < 0)
        return rc;
    if (warp == NULL && blocks == NULL)
        return tl_error_set(err, -ENOEXEC, "%s has no code", what);
    struct tl_exec_object *o = calloc(1, sizeof *o);
    if (o == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the kernel of %s", what);
    atomic_init(&o->references, 1);
    o->info = info;
    o->warp = warp;
    /* Whole blocks in one go are only for kernels whose warps never wait for each other. */
    o->blocks = info->n_barriers == 0 || warp == NULL ? blocks : NULL;
    o->n_threads = info->block[0] * info->block[1] * info->block[2];
    o->n_warps = (o->n_threads + TL_DEV_WARP - 1) / TL_DEV_WARP;
    o->n_fibers = info->uses_lanes ? o->n_threads : o->n_warps;
    uint32_t rest = o->n_threads % TL_DEV_WARP;
    o->last_lanes = rest == 0 ? UINT32_MAX : (1U << rest) - 1;
    *out = o;
    return 0;
}

/* --- opening ---------------------------------------------------------------------------------- */

static int refuse(struct tl_error *err, const char *path, const char *why)
{
    return tl_error_set(err, -EPERM, "the compiled kernel %s: %s, so it is not run", path, why);
}

/* Code is run only where nobody else could have put it: out of a folder that is ours and that
 * others cannot write to, as all above it.  That is asked of an open descriptor, and `by` leads on
 * from there: whatever the path leads to by then.  The descriptor, or -errno. */
static int enter_folder(const char *path, char *by, size_t size, struct tl_error *err)
{
    char folder[PATH_MAX];
    struct stat st;
    struct tl_error why = {0};
    const char *name = strrchr(path, '/') + 1;
    size_t n = (size_t)(name - path);
    if (n >= sizeof folder)
        return tl_error_set(err, -ENAMETOOLONG, "a compiled kernel with too long a path");
    memcpy(folder, path, n);
    folder[n] = 0;
    int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC), rc = 0;
    if (fd < 0)
        return tl_error_errno(err, "cannot find the compiled kernel %s", path);
    if (fstat(fd, &st) < 0)
        rc = tl_error_errno(err, "cannot look at the folder of %s", path);
    else if (st.st_uid != geteuid())
        rc = refuse(err, path, "its folder belongs to somebody else");
    else if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        rc = refuse(err, path, "others may write to its folder");
    else if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        rc = tl_error_errno(err, "cannot find the compiled kernel %s", path);
    else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        rc = refuse(err, path, "it belongs to somebody else, or is no file");
    else if (tl_trust_path(folder, &why) < 0)
        rc = refuse(err, path, why.text);
    snprintf(by, size, "/proc/self/fd/%d/%s", fd, name);
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

/* Where there is no cache, a path leads to a descriptor of this process, which has no name of its
 * own. */
static bool is_descriptor(const char *path)
{
    static const char by[] = "/proc/self/fd/";
    const char *number = path + sizeof by - 1;
    return strncmp(path, by, sizeof by - 1) == 0 && *number != '\0' &&
           number[strspn(number, "0123456789")] == '\0';
}

static void *map(const char *path, struct tl_error *err)
{
    char by[PATH_MAX];
    int folder = is_descriptor(path) ? -1 : enter_folder(path, by, sizeof by, err);
    if (folder < 0 && !is_descriptor(path))
        return NULL;
    void *handle = dlopen(folder >= 0 ? by : path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        tl_error_set(err, -ENOEXEC, "cannot map the compiled kernel: %s", dlerror());
    if (folder >= 0)
        close(folder);
    return handle;
}

int tl_exec_object_open(struct tl_exec_object **out, const char *path, struct tl_error *err)
{
    struct tl_error why = {0};
    /* dlopen's error has no errno; the common case gets its own.  A name without a slash would be
     * searched for. */
    if (access(path, R_OK) < 0)
        return tl_error_errno(err, "cannot read the compiled kernel %s", path);
    char absolute[PATH_MAX];
    const char *full = path[0] == '/' ? path : realpath(path, absolute);
    if (full == NULL)
        return tl_error_errno(err, "cannot find the compiled kernel %s", path);
    void *handle = map(full, &why);
    if (handle == NULL) {
        if (err != NULL)
            *err = why;
        return why.code;
    }
    const struct tl_dev_info *info = dlsym(handle, "tally_info");
    tl_exec_warp_fn warp;
    tl_exec_blocks_fn blocks;
    *(void **)&warp = dlsym(handle, "tally_warp");
    *(void **)&blocks = dlsym(handle, "tally_blocks");
    int rc;
    if (info == NULL || (warp == NULL && blocks == NULL))
        rc = tl_error_set(err, -ENOEXEC, "%s is not a compiled kernel: remove it from the cache",
                          full);
    else
        rc = make(out, info, warp, blocks, full, err);
    if (rc < 0)
        dlclose(handle);
    else
        (*out)->handle = handle;
    return rc;
}

int tl_exec_object_from(struct tl_exec_object **out, const struct tl_dev_info *info,
                        tl_exec_warp_fn warp, tl_exec_blocks_fn blocks, struct tl_error *err)
{
    int rc = make(out, info, warp, blocks, "a built-in kernel", err);
    return rc == -ENOEXEC ? -EINVAL : rc;
}

struct tl_exec_object *tl_exec_object_ref(struct tl_exec_object *o)
{
    /* the caller has one already */
    atomic_fetch_add_explicit(&o->references, 1, memory_order_relaxed);
    return o;
}

void tl_exec_object_unref(struct tl_exec_object *o)
{
    if (o == NULL)
        return;
    /* Acquire and release: what others did with the object comes before its end. */
    unsigned had = atomic_fetch_sub_explicit(&o->references, 1, memory_order_acq_rel);
    TL_CHECK(had > 0);
    if (had > 1)
        return;
    if (o->handle != NULL)
        dlclose(o->handle);
    free(o);
}

bool tl_exec_object_is_like(const struct tl_exec_object *a, const struct tl_exec_object *b)
{
    const struct tl_dev_info *x = a->info, *y = b->info;
    if (memcmp(x->block, y->block, sizeof x->block) != 0 || x->param_bytes != y->param_bytes ||
        x->shared_bytes != y->shared_bytes || x->n_variables != y->n_variables)
        return false;
    size_t at = 0;
    for (uint32_t i = 0; i <= x->n_variables; i++) { /* the kernel's name, then theirs */
        if (strcmp(x->text + at, y->text + at) != 0)
            return false;
        at += strlen(x->text + at) + 1;
    }
    return true;
}

const struct tl_dev_info *tl_exec_object_info(const struct tl_exec_object *o)
{
    return o->info;
}

const char *tl_exec_object_name(const struct tl_exec_object *o)
{
    return o->info->text;
}

const char *tl_exec_object_variable(const struct tl_exec_object *o, uint32_t i)
{
    if (i >= o->info->n_variables)
        return NULL;
    const char *p = o->info->text;
    for (uint32_t k = 0; k <= i; k++)
        p += strlen(p) + 1;
    return p;
}
