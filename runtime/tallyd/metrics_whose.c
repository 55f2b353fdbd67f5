/* What else is known of GPUs and of processes: files of /proc.  They are read by the thread of
 * metrics, since reading them may take a while. */
#include "runtime/tallyd/metrics.h"
#include "tally/file.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- GPUs ------------------------------------------------------------------------------------- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_shown(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Copies what stands behind "KEY:" and blanks, to the end of the line; whether there is such a
 * line. */
static bool value_of(const char *text, const char *key, char *value, size_t size)
{
    size_t n = strlen(key);
    for (const char *line = text; line != NULL && *line != 0;) {
        const char *end = strchrnul(line, '\n');
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            line += n + 1;
            line += strspn(line, " \t");
            snprintf(value, size, "%.*s", line < end ? (int)(end - line) : 0, line);
            return true;
        }
        line = *end != 0 ? end + 1 : NULL;
    }
    return false;
}

void daemon_gpu_name(const char *folder, const uint8_t uuid[16], struct daemon_gpu_name *name)
{
    char wanted[48], path[512], text[2048], found[64], minor[8];
    struct dirent **list = NULL;
    memset(name, 0, sizeof *name);
    tl_wire_gpu_name(uuid, wanted);
    /* by their place on the bus, which is the order in which NVIDIA's tools count */
    int n = scandir(folder, &list, is_shown, by_name);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%.64s/information", folder, list[i]->d_name);
        if (name->index[0] == 0 && tl_file_head(path, text, sizeof text) > 0 &&
            value_of(text, "GPU UUID", found, sizeof found) && strcasecmp(found, wanted) == 0) {
            snprintf(name->index, sizeof name->index, "%d", i);
            if (value_of(text, "Device Minor", minor, sizeof minor))
                snprintf(name->device, sizeof name->device, "nvidia%s", minor);
            (void)value_of(text, "Model", name->model, sizeof name->model);
        }
        free(list[i]);
    }
    free(list);
}

/* --- processes -------------------------------------------------------------------------------- */

static const char *variable(const char *bytes, size_t n, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < n; i += strlen(bytes + i) + 1)
        if (strncmp(bytes + i, name, length) == 0 && bytes[i + length] == '=')
            return bytes + i + length + 1;
    return NULL;
}

static void copy_first(const char *bytes, size_t n, const char *name, const char *other, char *to,
                       size_t size)
{
    const char *value = variable(bytes, n, name);
    if (value == NULL && variable(bytes, n, "KUBERNETES_SERVICE_HOST") != NULL)
        value = variable(bytes, n, other);
    snprintf(to, size, "%s", value != NULL ? value : "");
}

/* The last run of 64 hexadecimal digits: how podman, containerd, CRI-O and Docker name the group of
 * a container. */
static void find_container(const char *text, char *to)
{
    enum { DIGITS = 64 };
    size_t run = 0;
    for (size_t i = 0; text[i] != 0; i++) {
        run = isxdigit((unsigned char)text[i]) ? run + 1 : 0;
        if (run == DIGITS && !isxdigit((unsigned char)text[i + 1]))
            snprintf(to, DIGITS + 1, "%.64s", text + i + 1 - DIGITS);
    }
}

void daemon_pod_of(pid_t pid, struct daemon_pod *pod)
{
    enum { MOST = 256 << 10 };
    char path[64], text[4096], *bytes = NULL;
    size_t n = 0;
    memset(pod, 0, sizeof *pod);
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    if (tl_file_head(path, text, sizeof text) > 0)
        find_container(text, pod->container_id);
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    if (tl_file_read(path, MOST, &bytes, &n) < 0)
        return;
    copy_first(bytes, n, "TALLY_POD", "POD_NAME", pod->pod, sizeof pod->pod);
    copy_first(bytes, n, "TALLY_NAMESPACE", "POD_NAMESPACE", pod->namespace, sizeof pod->namespace);
    copy_first(bytes, n, "TALLY_CONTAINER_NAME", "CONTAINER_NAME", pod->container,
               sizeof pod->container);
    free(bytes);
}
