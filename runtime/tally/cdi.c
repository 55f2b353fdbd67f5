/* `tally cdi`: the file that tells container engines what a container gets with the device
 * tally.dev/gpu=high or =low (Container Device Interface, which podman, CRI-O and containerd read
 * from /etc/cdi and /run/cdi).
 *
 * Into the container go our programs and libraries, under one name wherever they are outside, the
 * folder of tallyd's socket, and variables.  What begins there is begun again under tally-run
 * (runtime/container/entry.c), and a check refuses containers in which that cannot work
 * (runtime/container/check.c).  Pages need no place: they come through the socket.
 *
 * With the software device also the folder of its compiler's socket, the cache of compiled kernels
 * and /dev/shm, where processes meet on it; with a GPU the device files and the driver are the
 * business of NVIDIA's own CDI file, and the folder of MPS's sockets is brought in if it is
 * there. */
#include "runtime/job/find.h"
#include "runtime/job/mps.h"
#include "runtime/job/settings.h"
#include "runtime/tally/cli.h"
#include "tally/file.h"
#include "tally/level.h"
#include "tally/options.h"
#include "tally/store.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INSIDE "/opt/tally" /* CONTAINER_PREFIX of runtime/container/rules.mk */
#define DEFAULT_OUTPUT "/etc/cdi/tally.json"
enum { MOST_CLASSES = 64 };

/* A device of the file. */
struct class
{
    char name[64], level[16];
    const char *memory, *share; /* or NULL */
};

struct options {
    const char *action, *output, *socket;
    enum { AUTO, GPU, SOFT } device;
    struct class classes[MOST_CLASSES];
    size_t n_classes;
};

enum { OUTPUT = 'o', SOCKET = 256, DEVICE, CLASS };

static const struct argp_option option_table[] = {
    {"output", OUTPUT, "FILE", 0,
     "Write there, - for standard output; " DEFAULT_OUTPUT " if not said", 0},
    {"socket", SOCKET, "PATH", 0, "Where tallyd listens (TALLY_SOCKET)", 0},
    {"device", DEVICE, "auto|gpu|soft", 0,
     "For an NVIDIA GPU or for the software device; auto if not said", 0},
    {"class", CLASS, "NAME=LEVEL[,memory=SIZE][,share=N%]", 0,
     "One more device: its name and what containers get with it", 0},
    {0},
};

/* --- options ---------------------------------------------------------------------------------- */

/* What CDI takes as a name; of one letter podman 4.3 stumbles. */
static bool is_name(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t n = strlen(text);
    return n >= 2 && n < sizeof((struct class *)0)->name && strchr(letters, text[0]) != NULL &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n &&
           strchr("-_.", text[n - 1]) == NULL;
}

static bool read_limits(struct class *c, char *rest)
{
    uint64_t bytes;
    uint32_t permille;
    char *more = NULL;
    for (char *word = strtok_r(rest, ",", &more); word != NULL; word = strtok_r(NULL, ",", &more)) {
        if (strncmp(word, "memory=", 7) == 0 && tl_settings_bytes(word + 7, &bytes) == 0)
            c->memory = word + 7;
        else if (strncmp(word, "share=", 6) == 0 && tl_settings_share(word + 6, &permille) == 0)
            c->share = word + 6;
        else
            return false;
    }
    return true;
}

/* "batch=low,memory=4G"; the text is kept. */
static const char *add_class(struct options *o, char *text)
{
    struct class *c = &o->classes[o->n_classes];
    char *level = strchr(text, '=');
    int number;
    if (o->n_classes == MOST_CLASSES)
        return "there are too many";
    if (level == NULL)
        return "NAME=LEVEL is needed, with ,memory=SIZE or ,share=N% behind it";
    *level++ = 0;
    char *rest = strchr(level, ',');
    if (rest != NULL)
        *rest++ = 0;
    if (!is_name(text))
        return "a name has two letters or more, digits, and - _ . inside";
    for (size_t i = 0; i < o->n_classes; i++)
        if (strcmp(o->classes[i].name, text) == 0)
            return "there is one of that name (high and low are there in any case)";
    if (strlen(level) >= sizeof c->level || tl_level_parse(level, &number) < 0)
        return "its level may be high, low or a number from -100 to 100";
    if (rest != NULL && !read_limits(c, rest))
        return "behind the level may be memory=SIZE and share=N%";
    strcpy(c->name, text);
    strcpy(c->level, level);
    o->n_classes++;
    return NULL;
}

/* One option of the command line (argp). */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    static const char *const devices[] = {"auto", "gpu", "soft"};
    struct options *o = state->input;
    const char *why;
    switch (key) {
    case OUTPUT:
        o->output = arg;
        return 0;
    case SOCKET:
        o->socket = arg;
        return 0;
    case DEVICE:
        for (int i = 0; i < 3; i++)
            if (strcmp(arg, devices[i]) == 0) {
                o->device = i;
                return 0;
            }
        argp_error(state, "--device: auto, gpu or soft, not '%s'", arg);
        return EINVAL;
    case CLASS:
        why = add_class(o, arg);
        if (why != NULL)
            argp_error(state, "--class=%s: %s", arg, why);
        return 0;
    case ARGP_KEY_ARG:
        if (o->action != NULL || strcmp(arg, "generate") != 0)
            argp_error(state, "'%s': generate is needed", arg);
        o->action = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->action == NULL)
            argp_error(state, "generate is needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- the file --------------------------------------------------------------------------------- */

static void variable(struct tl_json *j, const char *name, const char *value)
{
    char text[PATH_MAX + 64];
    int n = snprintf(text, sizeof text, "%s=%s", name, value);
    tl_json_str(j, (struct tl_str){text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1});
}

static void mount(struct tl_json *j, const char *from, const char *to, bool is_writable)
{
    tl_json_object(j);
    tl_json_key_str(j, "hostPath", from);
    tl_json_key_str(j, "containerPath", to);
    tl_json_key(j, "options");
    tl_json_array(j);
    const char *const words[] = {is_writable ? "rw" : "ro", "nosuid", "nodev", "rbind"};
    for (size_t i = 0; i < 4; i++)
        tl_json_str(j, (struct tl_str){words[i], strlen(words[i])});
    tl_json_end_array(j);
    tl_json_end_object(j);
}

struct places {
    char lib[PATH_MAX]; /* our lib/tally */
    char bin[PATH_MAX];
    char socket[PATH_MAX], socket_folder[PATH_MAX];
    char runtime[PATH_MAX], cache[PATH_MAX]; /* of the software device's compiler */
    char mps[PATH_MAX];                      /* the folder of its sockets, or empty */
    bool is_soft;
};

static void put_variables(struct tl_json *j, const struct places *p)
{
    char socket[PATH_MAX + 64];
    const char *name = strrchr(p->socket, '/');
    snprintf(socket, sizeof socket, "/run/tally%s", name);
    tl_json_key(j, "env");
    tl_json_array(j);
    variable(j, "TALLY_CONTAINER", INSIDE "/bin/tally-run");
    variable(j, "TALLY_SOCKET", socket);
    variable(j, "TALLY_DEVICE", p->is_soft ? "soft" : "gpu");
    if (p->is_soft) {
        variable(j, "TALLY_CACHE", p->cache);
        variable(j, "XDG_RUNTIME_DIR", INSIDE "/run");
        variable(j, "TALLY_DEVICE_SHM", "file"); /* IPC namespaces are the containers' own */
    } else if (p->mps[0] != 0) {
        variable(j, "CUDA_MPS_PIPE_DIRECTORY", p->mps);
    }
    tl_json_end_array(j);
}

/* Reasons to refuse a container, as the check knows them, and paths that tell them to whom a
 * runtime shows nothing else of a hook that fails. */
static const struct refusal {
    const char *name, *path;
} refusals[] = {{"gvisor", INSIDE "/refuses/gVisor"},
                {"musl", INSIDE "/refuses/an-image-built-on-musl"},
                {"libc", INSIDE "/refuses/an-image-with-an-older-libc"}};
enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

static void put_mounts(struct tl_json *j, const struct places *p)
{
    static const char *const programs[] = {"tally", "tally-run", "tally-jit"};
    char from[PATH_MAX + 64], to[PATH_MAX + 64];
    tl_json_key(j, "mounts");
    tl_json_array(j);
    for (size_t i = 0; i < sizeof programs / sizeof programs[0] - !p->is_soft; i++) {
        snprintf(from, sizeof from, "%s/%s", p->bin, programs[i]);
        snprintf(to, sizeof to, INSIDE "/bin/%s", programs[i]);
        mount(j, from, to, false);
    }
    mount(j, p->lib, INSIDE "/lib/tally", false);
    snprintf(from, sizeof from, "%s/ld.so.preload", p->lib);
    mount(j, from, "/etc/ld.so.preload", false);
    snprintf(from, sizeof from, "%s/container-check", p->lib);
    for (size_t i = 0; i < REFUSALS; i++)
        mount(j, from, refusals[i].path, false);
    mount(j, p->socket_folder, "/run/tally", false);
    if (p->is_soft) {
        mount(j, p->runtime, INSIDE "/run/tally", true);
        mount(j, p->cache, p->cache, true);
        mount(j, "/dev/shm", "/dev/shm", true);
    } else if (p->mps[0] != 0) {
        mount(j, p->mps, p->mps, true);
    }
    tl_json_end_array(j);
}

static void put_checks(struct tl_json *j)
{
    tl_json_key(j, "hooks");
    tl_json_array(j);
    for (size_t i = 0; i < REFUSALS; i++) {
        const struct refusal *r = &refusals[i];
        tl_json_object(j);
        tl_json_key_str(j, "hookName", "startContainer");
        tl_json_key_str(j, "path", r->path);
        tl_json_key(j, "args");
        tl_json_array(j);
        tl_json_str(j, (struct tl_str){r->path, strlen(r->path)});
        tl_json_str(j, (struct tl_str){r->name, strlen(r->name)});
        tl_json_end_array(j);
        tl_json_end_object(j);
    }
    tl_json_end_array(j);
}

static void put_device(struct tl_json *j, const struct class *c)
{
    tl_json_object(j);
    tl_json_key_str(j, "name", c->name);
    tl_json_key(j, "containerEdits");
    tl_json_object(j);
    tl_json_key(j, "env");
    tl_json_array(j);
    variable(j, "TALLY_PRIORITY", c->level);
    if (c->memory != NULL)
        variable(j, "TALLY_MEMORY", c->memory);
    if (c->share != NULL)
        variable(j, "TALLY_SHARE", c->share);
    tl_json_end_array(j);
    tl_json_end_object(j);
    tl_json_end_object(j);
}

static void put_file(struct tl_buf *out, const struct options *o, const struct places *p)
{
    struct tl_json j;
    tl_json_init(&j, out);
    tl_json_object(&j);
    tl_json_key_str(&j, "cdiVersion", "0.5.0");
    tl_json_key_str(&j, "kind", "tally.dev/gpu");
    tl_json_key(&j, "containerEdits");
    tl_json_object(&j);
    put_variables(&j, p);
    put_mounts(&j, p);
    put_checks(&j);
    tl_json_end_object(&j);
    tl_json_key(&j, "devices");
    tl_json_array(&j);
    for (size_t i = 0; i < o->n_classes; i++)
        put_device(&j, &o->classes[i]);
    tl_json_end_array(&j);
    tl_json_end_object(&j);
    tl_buf_putc(out, '\n');
}

/* --- places ----------------------------------------------------------------------------------- */

/* The folder's own path, which is what is mounted; -errno with a message that tells what to do. */
static int real_folder(const char *path, char *real, const char *what, struct tl_error *err)
{
    struct stat st;
    if (realpath(path, real) == NULL)
        return tl_error_errno(err, "%s: %s", path, what);
    if (stat(real, &st) < 0)
        return tl_error_errno(err, "%s", real);
    return S_ISDIR(st.st_mode) ? 0 : tl_error_set(err, -ENOTDIR, "%s is no folder", real);
}

/* What the software device's processes share beyond tallyd: made if need be, as they would. */
static int find_soft(struct places *p, struct tl_error *err)
{
    char path[TL_STORE_PATH];
    struct tl_store cache;
    const char *xdg = secure_getenv("XDG_RUNTIME_DIR");
    int rc = tl_store_folder(path, err);
    if (rc == 0)
        rc = tl_store_open(&cache, path, tl_store_limit_mb(), err);
    if (rc < 0)
        return rc;
    tl_store_close(&cache);
    if (realpath(path, p->cache) == NULL)
        return tl_error_errno(err, "%s", path);
    if (xdg != NULL && xdg[0] == '/')
        snprintf(path, sizeof path, "%.1000s/tally", xdg);
    else
        snprintf(path, sizeof path, "/tmp/tally-%lu", (unsigned long)geteuid());
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return tl_error_errno(err, "%s cannot be made", path);
    return real_folder(path, p->runtime, "where tally-jit listens", err);
}

/* All that the file names outside of containers; 0, or a negative errno value with a message. */
static int find_places(struct places *p, const struct options *o, struct tl_error *err)
{
    struct tl_settings settings;
    struct tl_mps mps;
    char copy[PATH_MAX];
    int rc = tl_settings_read(&settings, err);
    if (rc == 0)
        rc = tl_find_our_folder(p->lib, sizeof p->lib, err);
    if (rc < 0)
        return rc;
    snprintf(p->bin, sizeof p->bin, "%.4000s/../../bin", p->lib);
    snprintf(p->socket, sizeof p->socket, "%s", o->socket != NULL ? o->socket : settings.socket);
    if (p->socket[0] != '/' || strlen(p->socket) >= TL_SOCKET_PATH_BYTES)
        return tl_error_set(err, -EINVAL, "--socket=%.300s: it may be " TL_SOCKET_PATH_IS,
                            p->socket);
    strcpy(copy, p->socket);
    rc = real_folder(dirname(copy), p->socket_folder,
                     "tallyd listens there, and containers get that folder: start tallyd first, or "
                     "say --socket",
                     err);
    strcpy(copy, p->lib);
    if (rc == 0)
        rc = real_folder(copy, p->lib, "our libraries", err);
    strcpy(copy, p->bin);
    if (rc == 0)
        rc = real_folder(copy, p->bin, "our programs", err);
    if (rc < 0)
        return rc;
    p->is_soft = o->device == SOFT || (o->device == AUTO && tl_find_gpu_file() == NULL);
    tl_mps_look(&mps);
    if (!p->is_soft && mps.state != TL_MPS_NONE)
        snprintf(p->mps, sizeof p->mps, "%s", dirname(mps.control));
    return p->is_soft ? find_soft(p, err) : 0;
}

/* Under another name first: engines read these files whenever a container starts. */
static int write_file(const char *path, const struct tl_buf *text, struct tl_error *err)
{
    char made[PATH_MAX], folder[PATH_MAX];
    if ((size_t)snprintf(made, sizeof made, "%s.%d.new", path, (int)getpid()) >= sizeof made)
        return tl_error_set(err, -ENAMETOOLONG, "%.300s... is too long a path", path);
    snprintf(folder, sizeof folder, "%s", path);
    if (mkdir(dirname(folder), 0755) < 0 && errno != EEXIST)
        return tl_error_errno(err, "%s cannot be made", folder);
    int fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return tl_error_errno(err, "%s cannot be written (--output=FILE chooses another place)",
                              made);
    int rc = tl_file_write_fd(fd, text->p, text->n);
    (void)fchmod(fd, 0644); /* engines of all users read it */
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(made, path) < 0)
        rc = -errno;
    if (rc == 0)
        return 0;
    (void)unlink(made);
    errno = -rc;
    return tl_error_errno(err, "%s cannot be written", path);
}

static void tell(const struct options *o, const struct places *p, const char *output)
{
    printf("%s: for %s; tallyd's socket is %s\n", output,
           p->is_soft ? "the software device" : "NVIDIA GPUs", p->socket);
    for (size_t i = 0; i < o->n_classes; i++)
        printf("  --device tally.dev/gpu=%s\n", o->classes[i].name);
    if (!p->is_soft)
        printf("GPU and driver come by NVIDIA's own file: podman run --device nvidia.com/gpu=0 "
               "--device tally.dev/gpu=high ...\n");
}

int cli_cdi(int argc, char **argv)
{
    static const struct argp argp = {
        option_table,
        parse_option,
        "generate",
        "Writes the file by which container engines (podman, CRI-O, containerd) give containers a "
        "share of the device: `podman run --device tally.dev/gpu=high IMAGE`.\v"
        "There are always the devices high and low.  Run it again when Tally has moved.",
        NULL,
        NULL,
        NULL};
    static struct options o = {
        .classes = {{.name = "high", .level = "high"}, {.name = "low", .level = "low"}},
        .n_classes = 2};
    static struct places p;
    struct tl_buf text = {0};
    struct tl_error err = {0};
    argp_err_exit_status = CLI_USAGE;
    if (tl_options_parse(NULL, &argp, argc, argv, 0, NULL, &o) != 0)
        return CLI_USAGE;
    const char *output = o.output != NULL ? o.output : DEFAULT_OUTPUT;
    int rc = find_places(&p, &o, &err);
    if (rc == 0) {
        put_file(&text, &o, &p);
        if (text.failed)
            rc = tl_error_set(&err, -ENOMEM, "out of memory");
        else if (strcmp(output, "-") == 0)
            rc = fwrite(text.p, 1, text.n, stdout) == text.n && fflush(stdout) == 0
                     ? 0
                     : tl_error_errno(&err, "standard output");
        else
            rc = write_file(output, &text, &err);
    }
    tl_buf_finish(&text);
    if (rc < 0)
        cli_complain("%s", err.text);
    else if (strcmp(output, "-") != 0)
        tell(&o, &p, output);
    return rc < 0 ? CLI_FAILED : CLI_OK;
}
