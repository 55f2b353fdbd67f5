/* Packages of Python that bring NVIDIA's libraries from PyPI but do not find all of them:
 * TensorFlow's list of folders lacks cuSOLVER's, and without it no GPU is seen; ONNX Runtime looks
 * nowhere by itself.  Their folders are put behind LD_LIBRARY_PATH, so what the user has there
 * still wins.
 *
 * Which packages a program uses is not known before it runs; those are meant that lie beside it:
 * PREFIX/lib/python3.X/site-packages for a program PREFIX/bin/NAME, and those of the environment
 * that is active. */
#include "runtime/tally-run/run.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const packages[] = {"tensorflow", "onnxruntime"};

bool run_find_program(const char *name, char path[RUN_PATH])
{
    const char *list = secure_getenv("PATH");
    if (strchr(name, '/') != NULL)
        return snprintf(path, RUN_PATH, "%s", name) < RUN_PATH;
    for (const char *at = list != NULL ? list : ""; at[0] != 0;) {
        const char *end = strchrnul(at, ':');
        int n = snprintf(path, RUN_PATH, "%.*s/%s", (int)(end - at), at, name);
        if (n > 0 && n < RUN_PATH && access(path, X_OK) == 0)
            return true;
        at = *end != 0 ? end + 1 : end;
    }
    return false;
}

/* Adds the folders of one site-packages. */
static int add_folders(const struct run *r, const char *site)
{
    char pattern[RUN_PATH + 64];
    glob_t found;
    int rc = 0;
    snprintf(pattern, sizeof pattern, "%s/nvidia/*/lib", site);
    if (glob(pattern, GLOB_ONLYDIR, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && rc == 0; i++)
            rc = strchr(found.gl_pathv[i], ':') == NULL
                     ? run_put_last(r, "LD_LIBRARY_PATH", found.gl_pathv[i], ':')
                     : 0;
    globfree(&found);
    return rc;
}

static int look_in(const struct run *r, const char *prefix)
{
    char pattern[RUN_PATH + 64], package[RUN_PATH + 64];
    glob_t sites;
    int rc = 0;
    if (prefix == NULL || prefix[0] == 0 || strpbrk(prefix, "*?[") != NULL)
        return 0;
    snprintf(pattern, sizeof pattern, "%s/lib/python3*/site-packages", prefix);
    if (glob(pattern, GLOB_ONLYDIR, NULL, &sites) == 0)
        for (size_t i = 0; i < sites.gl_pathc; i++)
            for (size_t p = 0; p < sizeof packages / sizeof packages[0] && rc == 0; p++) {
                snprintf(package, sizeof package, "%s/%s", sites.gl_pathv[i], packages[p]);
                if (access(package, F_OK) == 0)
                    rc = add_folders(r, sites.gl_pathv[i]);
            }
    globfree(&sites);
    return rc;
}

int run_set_packages(const struct run *r, const char *program)
{
    char path[RUN_PATH];
    int rc = 0;
    if (run_find_program(program, path)) {
        char *slash = strrchr(path, '/');
        *slash = 0;
        slash = strrchr(path, '/');
        if (slash != NULL && strcmp(slash, "/bin") == 0) {
            *slash = 0;
            rc = look_in(r, path);
        }
    }
    if (rc == 0)
        rc = look_in(r, secure_getenv("VIRTUAL_ENV"));
    return rc == 0 ? look_in(r, secure_getenv("CONDA_PREFIX")) : rc;
}
