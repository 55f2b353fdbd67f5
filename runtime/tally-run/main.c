/* tally-run: turns its options into TALLY_* variables, preloads our libcuda.so.1, sees that tallyd
 * runs, and becomes the program: exit status and signals are the program's own. */
#include "runtime/job/find.h"
#include "runtime/job/settings.h"
#include "runtime/job/start.h"
#include "runtime/job/wire.h"
#include "runtime/tally-run/run.h"
#include "tally/options.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As env(1) and timeout(1) have it. */
enum { EXIT_OURS = 125, EXIT_NO_EXEC = 126, EXIT_NOT_FOUND = 127 };
enum { START_MS = 5000 };

struct options {
    struct run run;
    enum run_device device;
    bool was_device_asked;
    bool only_prints; /* what it would set */
    bool has_limits;  /* of memory, of its own */
    char **program;
};

/* --- options ---------------------------------------------------------------------------------- */

enum {
    SLO = 256,
    TURNAROUND,
    POLICY,
    REPORT,
    DEVICE,
    FAIL,
    JOB,
    WEIGHT,
    MIN_SHARE,
    FORCE,
    GATE,
    TOTAL,
    PROFILE,
    SHARE,
    MAX_SHARE,
    MEMORY,
    MEMORY_REQUEST,
    MEMORY_SOFT,
    PRINT_ENVIRONMENT
};

static const struct argp_option option_table[] = {
    {"priority", 'p', "high|low|N", 0, "Its level; N is from -100 to 100 (TALLY_PRIORITY)", 0},
    {"slo", SLO, "pN:TIME", 0, "Latency to keep, e.g. p99:8ms (TALLY_SLO)", 0},
    {"turnaround", TURNAROUND, "TIME", 0,
     "How fast it leaves the device when told, e.g. 31.6us (TALLY_TURNAROUND)", 0},
    {"weight", WEIGHT, "N", 0, "Share among jobs of the same level; 100 is usual (TALLY_WEIGHT)",
     0},
    {"share", SHARE, "N%", 0,
     "Share of the device that it gets, no less and no more; below priority high (TALLY_SHARE)", 0},
    {"max-share", MAX_SHARE, "N%", 0,
     "Share of the device that it gets at most, also if nobody else wants it (TALLY_MAX_SHARE)", 0},
    {"min-share", MIN_SHARE, "N%", 0,
     "Share of the device that it gets in any case (TALLY_MIN_SHARE)", 0},
    {"total", TOTAL, "TIME", 0,
     "Time of the device that it will need altogether, e.g. 90s (TALLY_TOTAL)", 0},
    {"memory", MEMORY, "SIZE", 0,
     "Device memory that it and its children may hold on each GPU, e.g. 8G; they see a GPU of that "
     "size (TALLY_MEMORY)",
     0},
    {"memory-request", MEMORY_REQUEST, "SIZE", 0,
     "Device memory that is kept free for it (TALLY_MEMORY_REQUEST)", 0},
    {"memory-soft", MEMORY_SOFT, "SIZE", 0,
     "Beyond this its pages may leave the device when others need room (TALLY_MEMORY_SOFT)", 0},
    {"policy", POLICY, "POLICY", 0,
     "Policy, if this is the first job (TALLY_POLICY; see tally policy --list)", 0},
    {"report", REPORT, "DIR", 0, "Write what happened to DIR, for tally report (TALLY_REPORT)", 0},
    {"job", JOB, "NAME", 0, "Its name in reports and lists (TALLY_JOB)", 0},
    {"device", DEVICE, "auto|gpu|soft", 0,
     "An NVIDIA GPU or the software device; auto if not said (TALLY_DEVICE)", 0},
    {"profile", PROFILE, "NAME", 0,
     "GPU and driver that the software device answers as, e.g. h100-r580 (TALLY_DEVICE_PROFILE)",
     0},
    {"fail", FAIL, "open|closed", 0,
     "Without tallyd: run unmanaged, or do not run; open if not said (TALLY_FAIL)", 0},
    {"force", FORCE, "persistent|ticket|slice|gate|whole|cap", 0,
     "Run every kernel that way (TALLY_FORCE)", 0},
    {"gate", GATE, "off|auto|all", 0,
     "Whose machine code gets a gate, so that it can be stopped; auto if not said (TALLY_GATE)", 0},
    {"print-environment", PRINT_ENVIRONMENT, NULL, 0,
     "Print the variables that the program would have, a zero byte behind each, and do not run it",
     0},
    {"verbose", 'v', NULL, 0, "Tell what is set", 0},
    {"quiet", 'q', NULL, 0, "Do not tell which device was taken, nor how far compiling is", 0},
    {0},
};

static const struct variable {
    int key;
    const char *name;
} variables[] = {{'p', "TALLY_PRIORITY"},
                 {SLO, "TALLY_SLO"},
                 {TURNAROUND, "TALLY_TURNAROUND"},
                 {WEIGHT, "TALLY_WEIGHT"},
                 {POLICY, "TALLY_POLICY"},
                 {MIN_SHARE, "TALLY_MIN_SHARE"},
                 {SHARE, "TALLY_SHARE"},
                 {MAX_SHARE, "TALLY_MAX_SHARE"},
                 {TOTAL, "TALLY_TOTAL"},
                 {MEMORY, "TALLY_MEMORY"},
                 {MEMORY_REQUEST, "TALLY_MEMORY_REQUEST"},
                 {MEMORY_SOFT, "TALLY_MEMORY_SOFT"},
                 {JOB, "TALLY_JOB"},
                 {FAIL, "TALLY_FAIL"},
                 {FORCE, "TALLY_FORCE"},
                 {GATE, "TALLY_GATE"},
                 {REPORT, "TALLY_REPORT"},
                 {PROFILE, "TALLY_DEVICE_PROFILE"},
                 {0, NULL}};

static bool read_device(const char *text, enum run_device *device)
{
    static const char *const words[] = {"auto", "gpu", "soft"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, words[i]) == 0) {
            *device = (enum run_device)i;
            return true;
        }
    return false;
}

/* One option of the command line (argp). */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    o->has_limits |= key == MEMORY || key == MEMORY_REQUEST || key == MEMORY_SOFT;
    for (const struct variable *v = variables; v->name != NULL; v++)
        if (v->key == key)
            return setenv(v->name, arg, 1) < 0 ? errno : 0;
    switch (key) {
    case DEVICE:
        o->was_device_asked = true;
        if (!read_device(arg, &o->device))
            argp_error(state, "--device: auto, gpu or soft, not '%s'", arg);
        return 0;
    case PRINT_ENVIRONMENT:
        o->only_prints = true;
        return 0;
    case 'v':
        o->run.is_verbose = true;
        return 0;
    case 'q':
        o->run.is_quiet = true;
        return 0;
    case ARGP_KEY_ARG: /* from here on everything is the program's */
        o->program = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if (o->program == NULL)
            argp_error(state, "name a program to run");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    option_table,
    parse_option,
    "[--] PROGRAM [ARGUMENT...]",
    "Runs a CUDA program, unchanged, so that it shares the GPU with others by priority.\v"
    "Every option can also be given as the variable behind it; options win.  The exit "
    "status is the program's; 125 if tally-run "
    "itself fails, 126 if the program cannot be started, 127 if there is none.",
    NULL,
    NULL,
    NULL};

/* --- talking ---------------------------------------------------------------------------------- */

static void say(const char *format, va_list args)
{
    char line[2048];
    vsnprintf(line, sizeof line, format, args);
    fprintf(stderr, "tally-run: %s\n", line);
}

void run_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

void run_tell(const struct run *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (r->is_verbose)
        say(format, args);
    va_end(args);
}

/* --- the environment -------------------------------------------------------------------------- */

static bool is_shim(const char *entry)
{
    static const char end[] = "/lib/tally/libcuda.so.1";
    size_t n = strlen(entry);
    return n >= sizeof end - 1 && strcmp(entry + n - (sizeof end - 1), end) == 0;
}

static int preload(const struct run *r, struct tl_error *err)
{
    char shim[RUN_PATH + 16];
    snprintf(shim, sizeof shim, "%s/libcuda.so.1", r->lib);
    if (access(shim, R_OK) < 0)
        return tl_error_errno(err, "the interception library %s", shim);
    if (strpbrk(shim, " :") != NULL)
        return tl_error_set(
            err, -EINVAL,
            "%s: a path with blanks or colons cannot be preloaded; install Tally elsewhere", shim);
    return run_put_first(r, "LD_PRELOAD", shim, ' ', is_shim);
}

/* The job may change its folder; the reports go where the user stands now. */
static int fix_report(const struct run *r)
{
    const char *folder = secure_getenv("TALLY_REPORT");
    char here[RUN_PATH], path[2 * RUN_PATH];
    if (folder == NULL || folder[0] == 0 || folder[0] == '/' || getcwd(here, sizeof here) == NULL)
        return 0;
    snprintf(path, sizeof path, "%s/%s", here, folder);
    return run_set(r, "TALLY_REPORT", path);
}

/* Ranges that frameworks name (NVTX) go into the report; a tool of the user's that wants them
 * stays. */
static int set_nvtx(const struct run *r)
{
    const char *folder = secure_getenv("TALLY_REPORT");
    char path[RUN_PATH + 32];
    snprintf(path, sizeof path, "%s/libtally-nvtx.so", r->lib);
    if (folder == NULL || folder[0] == 0 || secure_getenv("NVTX_INJECTION64_PATH") != NULL ||
        access(path, R_OK) < 0)
        return 0;
    return run_set(r, "NVTX_INJECTION64_PATH", path);
}

/* --- tallyd ----------------------------------------------------------------------------------- */

/* Waits for its '+', or for why not. */
static int await_start(int ready, struct tl_error *err)
{
    char said[512];
    struct pollfd p = {.fd = ready, .events = POLLIN};
    if (poll(&p, 1, START_MS) <= 0)
        return tl_error_set(err, -ETIMEDOUT, "tallyd takes long to start");
    ssize_t n = read(ready, said, sizeof said - 1);
    if (n > 0 && said[0] == '+')
        return 0;
    said[n > 0 ? n : 0] = 0;
    return tl_error_set(err, -ECONNREFUSED, "tallyd cannot start%s%s", n > 0 ? ": " : "", said);
}

static int see_to_daemon(const struct run *r, const struct tl_settings *s, struct tl_error *err)
{
    char program[RUN_PATH];
    int fd = tl_wire_connect_patiently(s->socket, err);
    if (fd >= 0) {
        close(fd);
        run_tell(r, "tallyd listens on %s", s->socket);
        return 0;
    }
    tl_start_find(program, sizeof program);
    if ((fd != -ENOENT && fd != -ECONNREFUSED) || program[0] == 0)
        return fd;
    char **environment = tl_start_environment();
    if (environment == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory to start %s", program);
    int ready = tl_start_daemon(program, environment, err);
    free(environment);
    if (ready < 0)
        return ready;
    int rc = await_start(ready, err);
    close(ready);
    if (rc == 0)
        run_tell(r, "tallyd was started; it listens on %s", s->socket);
    return rc;
}

/* --- the program ------------------------------------------------------------------------------ */

static int prepare(struct options *o, struct tl_error *err)
{
    struct tl_settings s;
    const char *device = secure_getenv("TALLY_DEVICE");
    if (!o->was_device_asked && device != NULL && device[0] != 0 &&
        !read_device(device, &o->device))
        return tl_error_set(err, -EINVAL, "TALLY_DEVICE=%s: it may be auto, gpu or soft", device);
    int rc = tl_settings_read(&s, err);
    if (rc == 0)
        rc = run_check_program(o->program[0], err);
    if (rc == 0)
        rc = tl_find_our_folder(o->run.lib, sizeof o->run.lib, err);
    if (rc == 0)
        rc = run_choose_device(&o->run, o->device, o->was_device_asked, err);
    if (rc == 0)
        rc = preload(&o->run, err);
    if (rc == 0)
        rc = run_set_tree(&o->run, o->has_limits, err);
    if (rc == 0 && o->run.is_quiet)
        rc = run_set(&o->run, "TALLY_PROGRESS", "no");
    if (rc == 0 && (run_set_rank(&o->run, s.level) < 0 || fix_report(&o->run) < 0 ||
                    set_nvtx(&o->run) < 0 || run_set_compilers(&o->run) < 0 ||
                    run_set_caches(&o->run) < 0 || run_set_packages(&o->run, o->program[0]) < 0))
        rc = tl_error_set(err, -ENOMEM, "out of memory");
    if (rc < 0 || s.is_off)
        return rc;
    rc = see_to_daemon(&o->run, &s, err);
    if (rc < 0 && !s.is_closed) {
        run_say("%s: the job runs unmanaged", err->text);
        rc = 0;
    }
    return rc;
}

/* For engines, which start the program themselves. */
static int print_environment(void)
{
    bool is_written = true;
    for (char **v = environ; *v != NULL; v++)
        is_written &= fwrite(*v, strlen(*v) + 1, 1, stdout) == 1;
    if (is_written && fflush(stdout) == 0)
        return 0;
    run_say("the environment cannot be printed: %s", strerror(errno));
    return EXIT_OURS;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct tl_error err = {0};
    argp_err_exit_status = EXIT_OURS;
    tl_options_parse("tally-run", &argp, argc, argv, ARGP_IN_ORDER, NULL, &o);
    if (prepare(&o, &err) < 0) {
        run_say("%s", err.text);
        return EXIT_OURS;
    }
    if (o.only_prints)
        return print_environment();
    execvp(o.program[0], o.program);
    int why = errno;
    run_say("%s: %s", o.program[0], strerror(why));
    return why == ENOENT ? EXIT_NOT_FOUND : EXIT_NO_EXEC;
}
