/* Where metrics are told: a UNIX socket that only tallyd's user may use, or a port of this machine
 * alone. */
#include "runtime/tallyd/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { QUEUE = 16 };
#define MAY_BE "unix:PATH, 127.0.0.1:PORT or [::1]:PORT"

/* Listens under another name first, with a mode that lets only this user in, and renames it.  What
 * is there already must be a socket of this user. */
static int listen_unix(struct daemon_metrics_place *p, const char *path, struct tl_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    if (path[0] != '/' || strlen(path) >= sizeof p->path)
        return tl_error_set(err, -EINVAL, "--metrics=%.200s: a path from / of at most %zu bytes",
                            p->text, sizeof p->path - 1);
    if (lstat(path, &st) == 0 && (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid()))
        return tl_error_set(err, -EEXIST, "--metrics: %s is there, and no socket of this user",
                            path);
    snprintf(address.sun_path, sizeof address.sun_path, "%s.new", path);
    (void)unlink(address.sun_path);
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask = umask(0177);
    int rc = p->listener < 0 || bind(p->listener, (struct sockaddr *)&address, sizeof address) < 0
                 ? tl_error_errno(err, "--metrics: %s", address.sun_path)
                 : 0;
    umask(mask);
    if (rc == 0 && (listen(p->listener, QUEUE) < 0 || rename(address.sun_path, path) < 0))
        rc = tl_error_errno(err, "--metrics: %s", path);
    if (rc < 0)
        return rc;
    strcpy(p->path, path);
    return 0;
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* "127.0.0.1:9400" or "[::1]:9400". */
static bool read_address(const char *text, union address *out, socklen_t *n)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    char *end;
    memset(out, 0, sizeof *out);
    if (colon == NULL || colon[1] < '0' || colon[1] > '9')
        return false;
    unsigned long port = strtoul(colon + 1, &end, 10);
    size_t length = (size_t)(colon - text);
    if (*end != 0 || port > 65535 || length < 2 || length >= sizeof host)
        return false;
    memcpy(host, text, length);
    host[length] = 0;
    if (host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = 0;
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons((uint16_t)port);
        *n = sizeof out->v6;
        return inet_pton(AF_INET6, host + 1, &out->v6.sin6_addr) == 1;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons((uint16_t)port);
    *n = sizeof out->v4;
    return inet_pton(AF_INET, host, &out->v4.sin_addr) == 1;
}

static bool is_loopback(const union address *a)
{
    return a->any.sa_family == AF_INET ? ntohl(a->v4.sin_addr.s_addr) >> 24 == 127
                                       : IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

static int listen_tcp(struct daemon_metrics_place *p, const char *text, bool is_open,
                      struct tl_error *err)
{
    union address address;
    socklen_t n;
    int yes = 1;
    if (!read_address(text, &address, &n))
        return tl_error_set(err, -EINVAL, "--metrics=%.200s: it may be " MAY_BE, text);
    if (!is_open && !is_loopback(&address))
        return tl_error_set(
            err, -EPERM,
            "--metrics=%s: other machines reach that address, and whoever does reads "
            "the names of jobs and users; say --metrics-open as well, if that is "
            "meant",
            text);
    p->listener = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->listener < 0 ||
        setsockopt(p->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
        bind(p->listener, &address.any, n) < 0 || listen(p->listener, QUEUE) < 0)
        return tl_error_errno(err, "--metrics=%s", text);
    n = sizeof address;
    if (getsockname(p->listener, &address.any, &n) == 0) { /* port 0: whichever is free */
        char host[INET6_ADDRSTRLEN] = "";
        bool is_v4 = address.any.sa_family == AF_INET;
        (void)inet_ntop(address.any.sa_family,
                        is_v4 ? (void *)&address.v4.sin_addr : (void *)&address.v6.sin6_addr, host,
                        sizeof host);
        snprintf(p->text, sizeof p->text, is_v4 ? "%s:%u" : "[%s]:%u", host,
                 ntohs(is_v4 ? address.v4.sin_port : address.v6.sin6_port));
    }
    return 0;
}

int daemon_metrics_listen(struct daemon_metrics_place *p, const char *text, bool is_open,
                          struct tl_error *err)
{
    *p = (struct daemon_metrics_place){.listener = -1};
    snprintf(p->text, sizeof p->text, "%s", text);
    int rc = strncmp(text, "unix:", 5) == 0 ? listen_unix(p, text + 5, err)
                                            : listen_tcp(p, text, is_open, err);
    if (rc < 0)
        daemon_metrics_leave(p);
    return rc;
}

void daemon_metrics_leave(struct daemon_metrics_place *p)
{
    if (p->path[0] != 0)
        (void)unlink(p->path);
    if (p->listener >= 0)
        close(p->listener);
    p->path[0] = 0;
    p->listener = -1;
}
