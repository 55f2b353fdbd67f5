/* Variables of the job's environment that others use as well: lists are added to, not replaced, and
 * what the user set wins. */
#include "runtime/tally-run/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "tally/store.h"

int run_set(const struct run *r, const char *name, const char *value)
{
    const char *old = secure_getenv(name);
    if (old != NULL && strcmp(old, value) == 0)
        return 0;
    if (setenv(name, value, 1) < 0) {
        int rc = -errno;
        run_say("%s cannot be set: %s", name, strerror(-rc));
        return rc;
    }
    run_tell(r, "%s=%s", name, value);
    return 0;
}

/* --- lists ------------------------------------------------------------------------------------ */

int run_put_first(const struct run *r, const char *name, const char *entry, char separator,
                  bool (*is_ours)(const char *entry))
{
    const char *old = secure_getenv(name);
    char separators[] = {separator, separator == ':' ? ':' : ' ', 0};
    if (separator == ' ')
        separators[1] = ':'; /* LD_PRELOAD has both */
    struct tl_buf list = {0};
    tl_buf_puts(&list, entry);
    char *copy = strdup(old != NULL ? old : ""), *rest = NULL;
    for (char *e = copy != NULL ? strtok_r(copy, separators, &rest) : NULL; e != NULL;
         e = strtok_r(NULL, separators, &rest)) {
        if (strcmp(e, entry) == 0 || (is_ours != NULL && is_ours(e)))
            continue;
        tl_buf_putc(&list, separator);
        tl_buf_puts(&list, e);
    }
    int rc = copy == NULL || list.failed ? -ENOMEM : run_set(r, name, list.p);
    free(copy);
    tl_buf_finish(&list);
    return rc;
}

int run_put_last(const struct run *r, const char *name, const char *entry, char separator)
{
    const char *old = secure_getenv(name);
    size_t n = strlen(entry);
    for (const char *at = old; at != NULL && at[0] != 0;) {
        const char *end = strchrnul(at, separator);
        if ((size_t)(end - at) == n && memcmp(at, entry, n) == 0)
            return 0;
        at = *end != 0 ? end + 1 : end;
    }
    struct tl_buf list = {0};
    tl_buf_printf(&list, "%s%.*s%s", old != NULL ? old : "", old != NULL && old[0] != 0, &separator,
                  entry);
    int rc = list.failed ? -ENOMEM : run_set(r, name, list.p);
    tl_buf_finish(&list);
    return rc;
}

/* --- compilers -------------------------------------------------------------------------------- */

/* A framework's own choice of ptxas stays: the stand-in calls it (TALLY_PTXAS). */
static int set_ptxas(const struct run *r, const char *name, const char *stand_in)
{
    const char *old = secure_getenv(name);
    if (old != NULL && old[0] != 0 && strcmp(old, stand_in) != 0 &&
        secure_getenv("TALLY_PTXAS") == NULL) {
        int rc = run_set(r, "TALLY_PTXAS", old);
        if (rc < 0)
            return rc;
    }
    return run_set(r, name, stand_in);
}

/* XLA looks for bin/ptxas in a folder that it is told by a flag among its flags. */
static int set_xla(const struct run *r, const char *folder)
{
    static const char flag[] = "--xla_gpu_cuda_data_dir=";
    const char *old = secure_getenv("XLA_FLAGS");
    struct tl_buf flags = {0};
    if (old != NULL && strstr(old, flag) != NULL)
        return 0; /* the user's, or ours from further out */
    tl_buf_printf(&flags, "%s%s%s%s", old != NULL ? old : "", old != NULL && old[0] != 0 ? " " : "",
                  flag, folder);
    int rc = flags.failed ? -ENOMEM : run_set(r, "XLA_FLAGS", flags.p);
    tl_buf_finish(&flags);
    return rc;
}

int run_set_compilers(const struct run *r)
{
    char folder[RUN_PATH + 8], stand_in[RUN_PATH + 24];
    snprintf(folder, sizeof folder, "%s/cuda", r->lib);
    snprintf(stand_in, sizeof stand_in, "%s/bin/ptxas", folder);
    if (access(stand_in, X_OK) < 0) {
        run_tell(r, "there is no %s: machine code that frameworks compile at run time is opaque",
                 stand_in);
        return 0;
    }
    int rc = set_ptxas(r, "TRITON_PTXAS_PATH", stand_in);
    if (rc == 0)
        rc = set_ptxas(r, "TRITON_PTXAS_BLACKWELL_PATH", stand_in);
    if (rc == 0 && secure_getenv("CUDA_ROOT") == NULL)
        /* JAX overrides XLA's flag by it, or by what is in its package */
        rc = run_set(r, "CUDA_ROOT", folder);
    return rc == 0 ? set_xla(r, folder) : rc;
}

int run_set_tree(const struct run *r, bool has_limits, struct tl_error *err)
{
    static const char digits[] = "0123456789abcdef";
    const char *outer = secure_getenv("TALLY_TREE");
    unsigned char bytes[16];
    char name[33] = "";
    if (outer != NULL && outer[0] != 0 && !has_limits)
        return 0;
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return tl_error_errno(err, "a name for this job");
    for (size_t i = 0; i < sizeof bytes; i++) {
        name[2 * i] = digits[bytes[i] >> 4];
        name[2 * i + 1] = digits[bytes[i] & 15];
    }
    return run_set(r, "TALLY_TREE", name);
}

int run_set_caches(const struct run *r)
{
    char folder[TL_STORE_PATH], path[TL_STORE_PATH + 8];
    if (secure_getenv("CUPY_CACHE_DIR") != NULL || tl_store_folder(folder, NULL) < 0)
        return 0;
    snprintf(path, sizeof path, "%s/cupy", folder);
    return run_set(r, "CUPY_CACHE_DIR", path);
}
