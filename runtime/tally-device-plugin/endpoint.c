/* A resource's socket in kubelet's folder and who is connected to it.  Only root and our own user
 * may; and if they do so too often, those that watch nothing are the first to go. */
#include "runtime/tally-device-plugin/plugin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int listen_on(const char *path, struct tl_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return tl_error_errno(err, "a socket");
    strcpy(address.sun_path, path); /* a path is 107 bytes at most: register.c */
    (void)unlink(path);
    mode_t mask = umask(0177);
    int rc = bind(fd, (struct sockaddr *)&address, sizeof address);
    umask(mask);
    if (rc < 0 || listen(fd, 16) < 0) {
        rc = tl_error_errno(err, "%s", path);
        close(fd);
        return rc;
    }
    return fd;
}

int plugin_endpoint_open(struct plugin_resource *r, struct tl_error *err)
{
    struct stat s;
    plugin_endpoint_close(r);
    int fd = listen_on(r->path, err);
    if (fd < 0)
        return fd;
    if (stat(r->path, &s) < 0) {
        int rc = tl_error_errno(err, "%s", r->path);
        close(fd);
        return rc;
    }
    r->listener = fd;
    r->socket_dev = s.st_dev;
    r->socket_no = s.st_ino;
    return 0;
}

bool plugin_endpoint_is_there(const struct plugin_resource *r)
{
    struct stat s;
    return r->listener >= 0 && stat(r->path, &s) == 0 && s.st_dev == r->socket_dev &&
           s.st_ino == r->socket_no;
}

static void drop(struct plugin_resource *r, uint32_t i)
{
    grpc_close(r->connections[i]);
    r->n_connections--;
    memmove(&r->connections[i], &r->connections[i + 1],
            (r->n_connections - i) * sizeof r->connections[0]);
}

void plugin_endpoint_close(struct plugin_resource *r)
{
    if (plugin_endpoint_is_there(r))
        (void)unlink(r->path);
    while (r->n_connections > 0)
        drop(r, r->n_connections - 1);
    if (r->listener >= 0)
        close(r->listener);
    r->listener = -1;
}

/* The oldest that watches nothing, or the oldest. */
static void make_room(struct plugin_resource *r)
{
    uint32_t i = 0;
    while (i < r->n_connections && grpc_is_watched(r->connections[i]))
        i++;
    if (r->n_connections == PLUGIN_CONNECTIONS)
        drop(r, i < r->n_connections ? i : 0);
}

void plugin_endpoint_accept(struct plugin_resource *r)
{
    struct ucred who;
    socklen_t n = sizeof who;
    int fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 ||
        (who.uid != 0 && who.uid != geteuid())) {
        plugin_say("%s: user %u may not connect", r->path, (unsigned)who.uid);
        close(fd);
        return;
    }
    make_room(r);
    struct grpc_connection *c = grpc_serve(fd, plugin_methods, r);
    if (c == NULL) {
        plugin_say("%s: out of memory for a connection", r->path);
        return;
    }
    r->connections[r->n_connections++] = c;
    plugin_endpoint_run(r, grpc_descriptor(c));
}

void plugin_endpoint_run(struct plugin_resource *r, int fd)
{
    for (uint32_t i = 0; i < r->n_connections; i++)
        if (grpc_descriptor(r->connections[i]) == fd) {
            if (!grpc_run(r->connections[i]))
                drop(r, i);
            return;
        }
}
