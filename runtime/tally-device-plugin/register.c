/* Tells kubelet of the resources.  kubelet forgets them when it ends, and when it starts it removes
 * what is in its folder, our sockets too; so the folder is watched, and looked at now and then
 * where watching fails. */
#include "runtime/tally-device-plugin/message.h"
#include "runtime/tally-device-plugin/plugin.h"
#include "tally/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CALL_NS (10 * TL_SECOND_NS) /* kubelet may take so long to answer */
#define RETRY_NS (2 * TL_SECOND_NS)

/* --- a call ----------------------------------------------------------------------------------- */

static int connect_to(const char *path, struct tl_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return tl_error_errno(err, "a socket");
    strcpy(address.sun_path, path); /* main.c has checked its length */
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    int rc = tl_error_errno(err, "%s", path);
    close(fd);
    return rc;
}

static void forget_call(struct plugin_resource *r)
{
    grpc_close(r->call);
    r->call = NULL;
}

static void try_later(struct plugin_resource *r, const char *why)
{
    forget_call(r);
    if (strncmp(why, r->complaint, sizeof r->complaint - 1) != 0)
        plugin_say("%s is not registered: %s; trying again", r->name, why);
    snprintf(r->complaint, sizeof r->complaint, "%s", why);
    r->plugin->retry_ns = tl_clock_ns() + RETRY_NS;
}

static void begin(struct plugin_resource *r)
{
    V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
    V1beta1__RegisterRequest request = V1BETA1__REGISTER_REQUEST__INIT;
    struct tl_error err = {0};
    struct tl_buf message = {0};
    options.pre_start_required = options.get_preferred_allocation_available = 1;
    request.version = "v1beta1";
    request.endpoint = (char *)r->endpoint;
    request.resource_name = (char *)r->name;
    request.options = &options;
    message_write(&message, &request.base);
    int fd = message.failed ? -ENOMEM : connect_to(r->plugin->kubelet, &err);
    r->call = fd >= 0 ? grpc_call(fd, "/v1beta1.Registration/Register", &message) : NULL;
    tl_buf_finish(&message);
    if (r->call == NULL) {
        try_later(r, err.text[0] != 0 ? err.text : "out of memory");
        return;
    }
    r->call_until_ns = tl_clock_ns() + CALL_NS;
    plugin_register_run(r);
}

void plugin_register_run(struct plugin_resource *r)
{
    const char *text;
    char why[400];
    if (r->call == NULL || grpc_run(r->call))
        return;
    enum grpc_status status = grpc_result(r->call, &text);
    if (status != GRPC_OK) {
        snprintf(why, sizeof why, "kubelet says %d%s%s", (int)status, text[0] != 0 ? ", " : "",
                 text);
        try_later(r, why);
        return;
    }
    forget_call(r);
    r->is_registered = true;
    r->complaint[0] = 0;
    plugin_say("%s is registered: %u devices", r->name, r->n);
}

int plugin_register_tick(struct plugin *p)
{
    uint64_t now = tl_clock_ns(), next = UINT64_MAX;
    for (uint32_t i = 0; i < PLUGIN_KINDS; i++) {
        struct plugin_resource *r = &p->resources[i];
        if (r->call != NULL && now >= r->call_until_ns)
            try_later(r, "kubelet does not answer");
        if (r->call != NULL && r->call_until_ns < next)
            next = r->call_until_ns;
    }
    if (p->retry_ns != 0 && now >= p->retry_ns) {
        p->retry_ns = 0;
        plugin_register_look(p);
    }
    if (p->retry_ns != 0 && p->retry_ns < next)
        next = p->retry_ns;
    if (next == UINT64_MAX)
        return -1;
    return next > now ? (int)((next - now) / TL_MS_NS) + 1 : 0;
}

/* --- kubelet's folder ------------------------------------------------------------------------- */

void plugin_register_watch(struct plugin *p)
{
    if (p->watch < 0)
        p->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (p->watch >= 0 && p->watched < 0)
        p->watched = inotify_add_watch(p->watch, p->folder,
                                       IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF |
                                           IN_MOVE_SELF | IN_ONLYDIR);
}

void plugin_register_events(struct plugin *p)
{
    /* What happened is looked at, not what is told of it. */
    char bytes[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n;
    while ((n = read(p->watch, bytes, sizeof bytes)) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const struct inotify_event *)(bytes + at);
            if ((event->mask & (IN_IGNORED | IN_MOVE_SELF)) != 0 && p->watched >= 0) {
                if ((event->mask & IN_MOVE_SELF) != 0)
                    (void)inotify_rm_watch(p->watch, p->watched);
                p->watched = -1;
            }
            at += (ssize_t)(sizeof *event + event->len);
        }
    plugin_register_look(p);
}

/* Whether kubelet's socket is there and another one than before. */
static bool is_new_kubelet(struct plugin *p, bool *is_there)
{
    struct stat s;
    *is_there = stat(p->kubelet, &s) == 0 && S_ISSOCK(s.st_mode);
    if (!*is_there)
        return false;
    /* A file's number is soon given to another one, so the time counts, too. */
    uint64_t made_ns = (uint64_t)s.st_ctim.tv_sec * TL_SECOND_NS + (uint64_t)s.st_ctim.tv_nsec;
    bool is_new = s.st_dev != p->kubelet_dev || s.st_ino != p->kubelet_no ||
                  made_ns != p->kubelet_made_ns;
    p->kubelet_dev = s.st_dev;
    p->kubelet_no = s.st_ino;
    p->kubelet_made_ns = made_ns;
    return is_new;
}

void plugin_register_look(struct plugin *p)
{
    bool is_there, is_new = is_new_kubelet(p, &is_there);
    plugin_register_watch(p);
    for (uint32_t i = 0; i < PLUGIN_KINDS; i++) {
        struct plugin_resource *r = &p->resources[i];
        struct tl_error err = {0};
        if (r->n == 0)
            continue;
        if (is_new) {
            forget_call(r);
            r->is_registered = false;
        }
        if (!plugin_endpoint_is_there(r)) {
            r->is_registered = false;
            if (plugin_endpoint_open(r, &err) < 0) {
                try_later(r, err.text);
                continue;
            }
        }
        if (is_there && !r->is_registered && r->call == NULL)
            begin(r);
    }
}
