/* Which drivers this machine has; see the header. */
#include "runtime/job/find.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *tl_find_gpu_file(void)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg" /* WSL */,
                                        "/dev/nvhost-ctrl-gpu" /* Jetson */};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (access(files[i], F_OK) == 0)
            return files[i];
    }
    return NULL;
}

/* Whether the folder holds a driver that is not of ours. */
static bool holds_driver(const char *ours, const char *folder, char *path, size_t size)
{
    char real[PATH_MAX];
    int n = snprintf(path, size, "%s/libcuda.so.1", folder);
    return n > 0 && (size_t)n < size && realpath(path, real) != NULL &&
           strncmp(real, ours, strlen(ours)) != 0;
}

bool tl_find_gpu_driver(const char *ours, char *path, size_t size)
{
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu",
                                          "/usr/lib/aarch64-linux-gnu",
                                          "/usr/lib64",
                                          "/usr/lib64/nvidia",
                                          "/usr/lib/wsl/lib",
                                          "/usr/local/nvidia/lib64",
                                          "/run/opengl-driver/lib",
                                          "/usr/lib/x86_64-linux-gnu/nvidia/current",
                                          "/usr/lib"};
    const char *list = secure_getenv("LD_LIBRARY_PATH");
    char *copy = strdup(list != NULL ? list : ""), *rest = NULL;
    bool was_found = false;
    for (const char *folder = copy != NULL ? strtok_r(copy, ":;", &rest) : NULL;
         folder != NULL && !was_found; folder = strtok_r(NULL, ":;", &rest))
        was_found = folder[0] == '/' && holds_driver(ours, folder, path, size);
    free(copy);
    for (size_t i = 0; !was_found && i < sizeof folders / sizeof folders[0]; i++)
        was_found = holds_driver(ours, folders[i], path, size);
    return was_found;
}

int tl_find_our_folder(char *path, size_t size, struct tl_error *err)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n < 0)
        return tl_error_errno(err, "/proc/self/exe");
    exe[n] = 0;
    char *slash = strrchr(exe, '/');
    if (slash != NULL)
        *slash = 0;
    slash = strrchr(exe, '/');
    if (slash == NULL)
        return tl_error_set(err, -ENOENT, "%s is in no folder", exe);
    *slash = 0;
    if ((size_t)snprintf(path, size, "%s/lib/tally", exe) >= size)
        return tl_error_set(err, -ENAMETOOLONG, "%s is too long a path", exe);
    return 0;
}
