/* tally-device-plugin: offers a node's GPUs to Kubernetes as slots of a level and as memory. */
#include "runtime/job/find.h"
#include "runtime/job/settings.h"
#include "runtime/tally-device-plugin/plugin.h"
#include "tally/options.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

struct options {
    struct plugin *plugin;
    uint32_t per_gpu[2]; /* slots: high, low */
    uint64_t keep_bytes;
    enum plugin_device device;
    const char *nvml, *tally;
    char socket[TL_SOCKET_PATH_BYTES];
};

void plugin_say(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "tally-device-plugin: %s\n", line);
}

/* --- options ---------------------------------------------------------------------------------- */

enum {
    HIGH = 256,
    LOW,
    MEMORY_UNIT,
    MEMORY_KEEP,
    INJECT,
    GPU_CDI,
    MPS,
    FOLDER,
    TALLY,
    SOCKET,
    DEVICE,
    NVML,
    CHECK
};

static const struct argp_option option_table[] = {
    {"high", HIGH, "N", 0, "Slots of tally.dev/high on each GPU; 1 if not said, 0 for none", 0},
    {"low", LOW, "N", 0, "Slots of tally.dev/low on each GPU; 8 if not said, 0 for none", 0},
    {"memory-unit", MEMORY_UNIT, "SIZE|none", 0,
     "What one tally.dev/memory is; 1G if not said; none: it is not offered", 0},
    {"memory-keep", MEMORY_KEEP, "SIZE", 0, "Memory of each GPU that is not handed out", 0},
    {"inject", INJECT, "mounts|cdi", 0,
     "How Tally gets into containers: by mounts and variables, or by the CDI devices that `tally "
     "cdi generate` describes; mounts if not said",
     0},
    {"gpu-cdi", GPU_CDI, "KIND", 0,
     "Also give slots the CDI device KIND=UUID of their GPU, e.g. nvidia.com/gpu", 0},
    {"mps", MPS, "DIR", 0,
     "The folder of NVIDIA's MPS on the node (CUDA_MPS_PIPE_DIRECTORY), which containers get", 0},
    {"kubelet-dir", FOLDER, "DIR", 0,
     "kubelet's folder of sockets; /var/lib/kubelet/device-plugins if not said", 0},
    {"tally", TALLY, "DIR", 0,
     "Where Tally is installed on the node, for containers, which get it as /opt/tally; where this "
     "program is if not said",
     0},
    {"socket", SOCKET, "PATH", 0, "tallyd's socket on the node (TALLY_SOCKET)", 0},
    {"device", DEVICE, "auto|gpu|soft", 0,
     "NVIDIA GPUs or the software device; auto if not said (TALLY_DEVICE)", 0},
    {"nvml", NVML, "FILE", 0, "NVML's library, if it is not where the loader looks", 0},
    {"check", CHECK, "TIME", 0, "How often GPUs and tallyd are looked at; 5s if not said", 0},
    {0},
};

static bool read_count(const char *text, uint32_t *n)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    *n = (uint32_t)value;
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && value <= 1000;
}

static int read_word(const char *text, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

static const char *const device_words[] = {"auto", "gpu", "soft", NULL};

static void parse_memory(int key, const char *arg, struct options *o, struct argp_state *state)
{
    struct plugin *p = o->plugin;
    if (key == MEMORY_KEEP) {
        if (tl_settings_bytes(arg, &o->keep_bytes) < 0)
            argp_error(state, "--memory-keep wants a size such as 1G, not '%s'", arg);
    } else if (strcmp(arg, "none") == 0) {
        p->unit_bytes = 0;
    } else if (tl_settings_bytes(arg, &p->unit_bytes) < 0 || p->unit_bytes < 1 << 20) {
        argp_error(state,
                   "--memory-unit wants a size of at least 1M, such as 1G, or none; not '%s'", arg);
    }
}

/* What else containers get of GPUs. */
static void parse_gpu(int key, const char *arg, struct plugin *p, struct argp_state *state)
{
    if (key == MPS) {
        if (arg[0] != '/')
            argp_error(state, "--mps=%s: it must be a path from /", arg);
        p->mps = arg;
    } else {
        if (strlen(arg) > 128 || strchr(arg, '/') == NULL || strchr(arg, '=') != NULL)
            argp_error(state, "--gpu-cdi wants a kind such as nvidia.com/gpu, not '%s'", arg);
        p->gpu_cdi = arg;
    }
}

/* One option of the command line (argp). */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    static const char *const injects[] = {"mounts", "cdi", NULL};
    struct options *o = state->input;
    struct plugin *p = o->plugin;
    int word;
    switch (key) {
    case HIGH:
    case LOW:
        if (!read_count(arg, &o->per_gpu[key - HIGH]))
            argp_error(state, "--%s wants a number from 0 to 1000, not '%s'",
                       key == HIGH ? "high" : "low", arg);
        return 0;
    case MEMORY_UNIT:
    case MEMORY_KEEP:
        parse_memory(key, arg, o, state);
        return 0;
    case INJECT:
        word = read_word(arg, injects);
        if (word < 0)
            argp_error(state, "--inject: mounts or cdi, not '%s'", arg);
        p->inject = (enum plugin_inject)word;
        return 0;
    case DEVICE:
        word = read_word(arg, device_words);
        if (word < 0)
            argp_error(state, "--device: auto, gpu or soft, not '%s'", arg);
        o->device = (enum plugin_device)word;
        return 0;
    case GPU_CDI:
    case MPS:
        parse_gpu(key, arg, p, state);
        return 0;
    case FOLDER:
        p->folder = arg;
        return 0;
    case TALLY:
        o->tally = arg;
        return 0;
    case SOCKET:
        if (strlen(arg) >= sizeof o->socket || arg[0] != '/')
            argp_error(state, "--socket=%s: it may be " TL_SOCKET_PATH_IS, arg);
        strcpy(o->socket, arg);
        return 0;
    case NVML:
        o->nvml = arg;
        return 0;
    case CHECK:
        if (tl_settings_time(arg, &p->health.every_ns) < 0 || p->health.every_ns < 1000000)
            argp_error(state, "--check wants a time such as 5s, not '%s'", arg);
        return 0;
    default:
        return tl_options_only(key, arg, state);
    }
}

static const struct argp argp = {
    option_table,
    parse_option,
    NULL,
    "A device plugin of Kubernetes: offers the GPUs of this node as tally.dev/high, tally.dev/low "
    "and tally.dev/memory.\v"
    "It stays in the foreground and tells what happens on standard error; SIGTERM ends it. "
    "Containers that run go on without it.",
    NULL,
    NULL,
    NULL};

/* --- start ------------------------------------------------------------------------------------ */

static int find_places(struct options *o, struct tl_error *err)
{
    struct plugin *p = o->plugin;
    char ours[PATH_MAX];
    int rc = tl_find_our_folder(ours, sizeof ours, err);
    if (rc < 0)
        return rc;
    rc = plugin_gpus_find(&p->gpus, o->device, o->nvml, ours, err);
    if (rc < 0)
        return rc;
    if (o->tally == NULL) /* ours is PREFIX/lib/tally */
        ours[strlen(ours) - strlen("/lib/tally")] = 0;
    snprintf(p->prefix, sizeof p->prefix, "%s", o->tally != NULL ? o->tally : ours);
    if (p->prefix[0] != '/')
        return tl_error_set(err, -EINVAL, "--tally=%s: it must be a path from /", p->prefix);
    p->socket = p->health.socket = o->socket;
    p->health.gpus = &p->gpus;
    int n = snprintf(p->kubelet, sizeof p->kubelet, "%s/kubelet.sock", p->folder);
    if (n >= (int)sizeof p->kubelet)
        return tl_error_set(err, -ENAMETOOLONG, "--kubelet-dir=%s is too long for a socket",
                            p->folder);
    return 0;
}

/* The resources, with as many devices as there are. */
static int count_devices(struct options *o, struct tl_error *err)
{
    static const struct {
        const char *name, *endpoint;
    } resources[] = {{"tally.dev/high", "tally-high.sock"},
                     {"tally.dev/low", "tally-low.sock"},
                     {"tally.dev/memory", "tally-memory.sock"}};
    struct plugin *p = o->plugin;
    uint64_t all = 0;
    for (uint32_t i = 0; i < PLUGIN_KINDS; i++) {
        struct plugin_resource *r = &p->resources[i];
        r->plugin = p;
        r->kind = (enum plugin_kind)i;
        r->name = resources[i].name;
        r->endpoint = resources[i].endpoint;
        r->listener = -1;
        int n = snprintf(r->path, sizeof r->path, "%s/%s", p->folder, r->endpoint);
        if (n >= (int)sizeof r->path)
            return tl_error_set(err, -ENAMETOOLONG, "--kubelet-dir=%s is too long for a socket",
                                p->folder);
        uint64_t devices = 0;
        for (uint32_t g = 0; g < p->gpus.n; g++) {
            uint64_t bytes = p->gpus.list[g].memory_bytes,
                     units = p->unit_bytes > 0 && bytes > o->keep_bytes
                                 ? (bytes - o->keep_bytes) / p->unit_bytes
                                 : 0,
                     count = i == PLUGIN_MEMORY ? units : o->per_gpu[i];
            devices += count;
            r->per_gpu[g] = (uint32_t)(count < PLUGIN_DEVICES ? count : PLUGIN_DEVICES);
        }
        if (devices > PLUGIN_DEVICES)
            return tl_error_set(err, -E2BIG,
                                "%s would have more than %d devices; use fewer slots or a larger "
                                "--memory-unit",
                                r->name, PLUGIN_DEVICES);
        r->n = (uint32_t)devices;
        all += devices;
    }
    return all > 0 ? 0 : tl_error_set(err, -EINVAL, "nothing is offered: see --high and --low");
}

/* --- the loop --------------------------------------------------------------------------------- */

/* What is polled: descriptors, and what each of them is of. */
struct polled {
    struct pollfd fds[4 + PLUGIN_KINDS * (2 + PLUGIN_CONNECTIONS)];
    struct plugin_resource *of[4 + PLUGIN_KINDS * (2 + PLUGIN_CONNECTIONS)];
    nfds_t n;
};

static void add(struct polled *l, int fd, short events, struct plugin_resource *of)
{
    if (fd < 0)
        return;
    l->fds[l->n] = (struct pollfd){.fd = fd, .events = events};
    l->of[l->n++] = of;
}

static void gather(struct plugin *p, int signals, struct polled *l)
{
    l->n = 0;
    add(l, signals, POLLIN, NULL);
    add(l, p->health.bell, POLLIN, NULL);
    add(l, p->watch, POLLIN, NULL);
    for (uint32_t i = 0; i < PLUGIN_KINDS; i++) {
        struct plugin_resource *r = &p->resources[i];
        add(l, r->listener, POLLIN, r);
        if (r->call != NULL)
            add(l, grpc_descriptor(r->call), grpc_events(r->call), r);
        for (uint32_t c = 0; c < r->n_connections; c++)
            add(l, grpc_descriptor(r->connections[c]), grpc_events(r->connections[c]), r);
    }
}

static void tell_watchers(struct plugin *p)
{
    for (uint32_t i = 0; i < PLUGIN_KINDS; i++)
        for (uint32_t c = 0; c < p->resources[i].n_connections; c++)
            grpc_changed(p->resources[i].connections[c]);
}

/* What happened on one descriptor. */
static void attend(struct plugin *p, int fd, struct plugin_resource *of)
{
    uint64_t count;
    if (fd == p->health.bell) {
        if (read(fd, &count, sizeof count) > 0)
            tell_watchers(p);
    } else if (fd == p->watch) {
        plugin_register_events(p);
    } else if (fd == of->listener) {
        plugin_endpoint_accept(of);
    } else if (of->call != NULL && fd == grpc_descriptor(of->call)) {
        plugin_register_run(of);
    } else {
        plugin_endpoint_run(of, fd);
    }
}

/* Until a signal comes.  What is seen of health changes with time alone if a look does not end. */
static void run(struct plugin *p, int signals)
{
    struct polled l;
    int every_ms = p->health.every_ns < UINT64_C(3600000000000)
                       ? (int)(p->health.every_ns / 1000000)
                       : 3600000;
    bool was_late = false;
    for (;;) {
        int until_ms = plugin_register_tick(p);
        if (plugin_health_is_late(&p->health) != was_late) {
            was_late = !was_late;
            plugin_say(was_late ? "the driver does not answer" : "the driver answers again");
            tell_watchers(p);
        }
        gather(p, signals, &l);
        int n = poll(l.fds, l.n, until_ms >= 0 && until_ms < every_ms ? until_ms : every_ms);
        if (n < 0 && errno != EINTR)
            return;
        if (n <= 0) { /* nothing told: what inotify cannot see is looked at */
            plugin_register_look(p);
            continue;
        }
        for (nfds_t i = 0; i < l.n; i++) {
            if (l.fds[i].revents == 0)
                continue;
            if (l.fds[i].fd == signals)
                return;
            attend(p, l.fds[i].fd, l.of[i]);
        }
    }
}

static int take_signals(struct tl_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd >= 0 ? fd : tl_error_errno(err, "signals");
}

int main(int argc, char **argv)
{
    static struct plugin p = {.folder = "/var/lib/kubelet/device-plugins",
                              .unit_bytes = UINT64_C(1) << 30,
                              .health = {.every_ns = UINT64_C(5000000000)},
                              .watch = -1,
                              .watched = -1};
    struct options o = {.plugin = &p, .per_gpu = {1, 8}};
    struct tl_settings settings;
    struct tl_error err = {0};
    const char *device = secure_getenv("TALLY_DEVICE");
    argp_err_exit_status = EXIT_USAGE;
    if (tl_settings_read(&settings, &err) < 0)
        plugin_say("%s", err.text);
    strcpy(o.socket, settings.socket);
    if (device != NULL && read_word(device, device_words) > 0)
        o.device = (enum plugin_device)read_word(device, device_words);
    tl_options_parse("tally-device-plugin", &argp, argc, argv, 0, NULL, &o);
    int signals = take_signals(&err);
    if (signals < 0 || find_places(&o, &err) < 0 || count_devices(&o, &err) < 0 ||
        plugin_health_start(&p.health, &err) < 0) {
        plugin_say("%s", err.text);
        return EXIT_FAILURE;
    }
    plugin_register_look(&p);
    run(&p, signals);
    for (uint32_t i = 0; i < PLUGIN_KINDS; i++)
        plugin_endpoint_close(&p.resources[i]);
    return EXIT_SUCCESS;
}
