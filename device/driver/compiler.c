/* What the compilers of this process know.
 *
 * A job hands the compute capability that it was told to a compiler, which refuses one that it does
 * not know: NVRTC of CUDA 12.4 ends at 9.0.  Its version is found by what the job has loaded: by
 * NVRTC, or by the CUDA runtime, since most jobs ask for the device long before they compile.  Both
 * are told from their files: libnvrtc-builtins.so.12.4 lies beside libnvrtc.so.12.  Neither is
 * asked, because the runtime of CUDA 11.8 waits for itself when it is asked by whom it calls. */
#include "device/driver/device.h"

#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* CUDA's version, and the newest architecture that its compilers know. */
static const struct {
    int cuda, arch;
} newest[] = {{1208, 120}, {1108, 90}, {1101, 86}, {1100, 80}, {1000, 75}, {900, 70}};
enum { N_NEWEST = sizeof newest / sizeof newest[0] };

struct search {
    const char *prefix;
    int arch; /* the least of those found, 0 if there are none */
    char *file;
    size_t size;
};

static int arch_of(int major, int minor)
{
    for (int i = 0; i < N_NEWEST; i++)
        if (major * 100 + minor >= newest[i].cuda)
            return newest[i].arch;
    return newest[N_NEWEST - 1].arch;
}

/* The least version of an NVRTC in that folder; false if there is none. */
static bool minor_in(const char *folder, int n, const char *below, int major, int *minor)
{
    char path[1200];
    for (*minor = 0; *minor < 10; (*minor)++) {
        snprintf(path, sizeof path, "%.*s/%slibnvrtc-builtins.so.%d.%d", n, folder, below, major,
                 *minor);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

/* By the folder where the library lies, as toolkits, Debian and conda lay them out, and by that of
 * the NVRTC that PyPI's packages put beside it; then by its own full name (libcudart.so.12.4.127).
 * Else only the major number is sure, the first in its name. */
static int arch_of_file(const char *path, const char *base)
{
    char full[4096];
    int major, minor, named, build, n = (int)(base - path) - 1;
    if (sscanf(strstr(base, ".so"), ".so.%d", &major) != 1)
        return 0;
    if (n > 0 && n < 1024 &&
        (minor_in(path, n, "", major, &minor) ||
         minor_in(path, n, "../../cuda_nvrtc/lib/", major, &minor)))
        return arch_of(major, minor);
    const char *name = realpath(path, full) != NULL ? strstr(full, ".so.") : NULL;
    if (name != NULL && sscanf(name, ".so.%d.%d.%d", &named, &minor, &build) == 3 && named == major)
        return arch_of(major, minor);
    return arch_of(major, 0);
}

static int look_at(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *s = data;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash != NULL ? slash + 1 : info->dlpi_name;
    (void)size;
    if (strncmp(base, s->prefix, strlen(s->prefix)) != 0)
        return 0;
    int arch = arch_of_file(info->dlpi_name, base);
    if (arch != 0 && (s->arch == 0 || arch < s->arch)) {
        s->arch = arch;
        snprintf(s->file, s->size, "%s", base);
    }
    return 0;
}

int tl_drv_compiler_arch(char *file, size_t size)
{
    static const char *const prefixes[] = {"libnvrtc.so.", "libcudart.so."};
    struct search s = {.file = file, .size = size};
    file[0] = 0;
    for (int i = 0; i < 2 && s.arch == 0; i++) {
        s.prefix = prefixes[i];
        dl_iterate_phdr(look_at, &s);
    }
    return s.arch != 0 ? s.arch : newest[0].arch;
}

bool tl_drv_has_nvrtc(void)
{
    char file[64];
    struct search s = {.prefix = "libnvrtc.so.", .file = file, .size = sizeof file};
    dl_iterate_phdr(look_at, &s);
    return s.arch != 0;
}
