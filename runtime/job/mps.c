/* Looks for NVIDIA's multi-process service as a client would, without becoming one: the control
 * socket in CUDA_MPS_PIPE_DIRECTORY, and the kernel's list of sockets that somebody listens on. */
#include "runtime/job/mps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A line of /proc/net/unix: "address: references protocol flags type state inode path".  0x10000
 * among the flags: somebody listens. */
static bool is_listening(const char *line, const char *path)
{
    unsigned flags;
    int at = 0;
    if (sscanf(line, "%*s %*s %*s %x %*s %*s %*s %n", &flags, &at) != 1 || at == 0)
        return false;
    size_t n = strlen(path);
    return (flags & 0x10000) != 0 && strncmp(line + at, path, n) == 0 &&
           (line[at + (int)n] == '\n' || line[at + (int)n] == 0);
}

static bool somebody_listens(const char *path)
{
    FILE *f = fopen("/proc/net/unix", "re");
    char *line = NULL;
    size_t size = 0;
    bool is = false;
    while (f != NULL && !is && getline(&line, &size, f) > 0)
        is = is_listening(line, path);
    free(line);
    if (f != NULL)
        fclose(f);
    return is;
}

static const char *said(const char *variable)
{
    const char *text = secure_getenv(variable);
    return text != NULL && *text != 0 ? text : NULL;
}

void tl_mps_look(struct tl_mps *out)
{
    const char *folder = said("CUDA_MPS_PIPE_DIRECTORY");
    struct stat st;
    *out = (struct tl_mps){.thread_percentage = said("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
                           .memory_limit = said("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")};
    int n = snprintf(out->control, sizeof out->control, "%s/control",
                     folder != NULL ? folder : "/tmp/nvidia-mps");
    if (n < 0 || (size_t)n >= sizeof out->control || stat(out->control, &st) < 0 ||
        !S_ISSOCK(st.st_mode))
        return;
    out->owner = st.st_uid;
    out->state = somebody_listens(out->control) ? TL_MPS_RUNS : TL_MPS_UNSEEN;
}

bool tl_mps_serves(const struct tl_mps *m, uid_t uid)
{
    return m->state != TL_MPS_NONE && (m->owner == 0 || m->owner == uid);
}
