/* What the machine tells without the driver: device files, MPS, limits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/doctor/group.h"
#include "runtime/job/find.h"
#include "runtime/job/mps.h"
#include "tally/file.h"

static void add(struct tl_doctor *d, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(struct tl_doctor *d, const char *name, const char *format, ...)
{
    struct tl_doc_finding f = {.kind = TL_DOC_FACT, .gpu = -1};
    va_list args;
    va_start(args, format);
    snprintf(f.group, sizeof f.group, "host");
    snprintf(f.name, sizeof f.name, "%s", name);
    vsnprintf(f.text, sizeof f.text, format, args);
    va_end(args);
    tl_doc_add(d, &f);
}

static void tell_files(struct tl_doctor *d)
{
    const char *file = tl_find_gpu_file();
    char version[64];
    add(d, "device-files", "%s", file != NULL ? file : "none");
    if (file != NULL && access(file, R_OK | W_OK) < 0)
        add(d, "device-access", "%s: %s", file, strerror(errno));
    tl_qualified_driver(version, sizeof version);
    add(d, "kernel-module", "%s", version[0] != 0 ? version : "none");
}

static void tell_mps(struct tl_doctor *d)
{
    struct tl_mps m;
    tl_mps_look(&m);
    if (m.state == TL_MPS_NONE) {
        add(d, "mps", "not running: jobs take turns on a GPU (no %.150s)", m.control);
        return;
    }
    add(d, "mps", "%s, started by user %u%s (%.120s)",
        m.state == TL_MPS_RUNS ? "running" : "a socket is there, and nobody is seen to listen",
        (unsigned)m.owner, tl_mps_serves(&m, getuid()) ? "" : ", and serves no other", m.control);
    add(d, "mps-faults",
        "a fatal fault of one client ends all clients of its GPU; instances (MIG) are apart");
    if (m.thread_percentage != NULL)
        add(d, "mps-threads", "%.100s %%", m.thread_percentage);
    if (m.memory_limit != NULL)
        add(d, "mps-memory", "%.200s", m.memory_limit);
}

static void tell_limit(struct tl_doctor *d, const char *name, int resource)
{
    struct rlimit l;
    if (getrlimit(resource, &l) < 0)
        return;
    if (l.rlim_cur == RLIM_INFINITY)
        add(d, name, "unlimited");
    else
        add(d, name, "%llu", (unsigned long long)l.rlim_cur);
}

/* The value of a line "Key:\tvalue" of /proc/self/status, or empty. */
static void status_line(const char *key, char *text, size_t size)
{
    char *bytes;
    size_t n;
    text[0] = 0;
    if (tl_file_read("/proc/self/status", 1 << 16, &bytes, &n) < 0)
        return;
    char *line = strstr(bytes, key);
    if (line != NULL) {
        line += strlen(key);
        line += strspn(line, ":\t ");
        snprintf(text, size, "%.*s", (int)strcspn(line, "\n"), line);
    }
    free(bytes);
}

static void tell_sandbox(struct tl_doctor *d)
{
    char seccomp[32];
    status_line("Seccomp", seccomp, sizeof seccomp);
    add(d, "seccomp", "%s",
        strcmp(seccomp, "2") == 0   ? "a filter"
        : strcmp(seccomp, "1") == 0 ? "strict"
                                    : "none");
    const char *kind = access("/.dockerenv", F_OK) == 0                   ? "Docker"
                       : access("/run/.containerenv", F_OK) == 0          ? "Podman"
                       : secure_getenv("KUBERNETES_SERVICE_HOST") != NULL ? "Kubernetes"
                                                                          : "none seen";
    add(d, "container", "%s", kind);
}

void tl_doc_host_facts(struct tl_doctor *d)
{
    struct statvfs shm;
    add(d, "tally-version", "%s", tl_version);
    tell_files(d);
    tell_mps(d);
    tell_limit(d, "memlock", RLIMIT_MEMLOCK);
    if (statvfs("/dev/shm", &shm) == 0) {
        add(d, "shm-bytes", "%llu", (unsigned long long)shm.f_blocks * shm.f_frsize);
        add(d, "shm-free-bytes", "%llu", (unsigned long long)shm.f_bavail * shm.f_frsize);
    } else {
        add(d, "shm-bytes", "none: %s", strerror(errno));
    }
    tell_sandbox(d);
    add(d, "nice", "%d", getpriority(PRIO_PROCESS, 0));
    add(d, "cpus", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
}
