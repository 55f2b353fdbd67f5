/* tallyd: options, start and end. */
#include "runtime/job/settings.h"
#include "runtime/tallyd/metrics.h"
#include "runtime/tallyd/tallyd.h"
#include "tally/options.h"
#include "tally/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define SYSTEM_RULES "/etc/tally/rules"
enum { EXIT_USAGE = 2 };

struct options {
    struct tl_settings settings;
    const char *rules, *metrics;
    bool are_metrics_open;
    uint64_t idle_ns;
    bool is_shared;   /* by all users */
    bool was_started; /* by a job: standard output is a pipe to it */
};

enum { STARTED = 256, SHARED, SOCKET, POLICY, RULES, IDLE, LOG, METRICS, METRICS_OPEN };

static const struct argp_option option_table[] = {
    {"socket", SOCKET, "PATH", 0, "Listen there (TALLY_SOCKET)", 0},
    {"policy", POLICY, "POLICY", 0,
     "Begin with this policy (TALLY_POLICY; `tally policy --list` shows them)", 0},
    {"rules", RULES, "FILE", 0,
     "Who may do what (TALLY_RULES; else " SYSTEM_RULES ", if it is there)", 0},
    {"idle", IDLE, "TIME", 0,
     "End so long after the last client: 60s if not said, 0 for never (TALLY_DAEMON_IDLE, in "
     "seconds)",
     0},
    {"shared", SHARED, NULL, 0,
     "Let all users of this machine connect; what they may do is in the rules", 0},
    {"metrics", METRICS, "unix:PATH|ADDRESS:PORT", 0,
     "Tell metrics there, to who asks for /metrics by HTTP, e.g. 127.0.0.1:9400 (TALLY_METRICS)",
     0},
    {"metrics-open", METRICS_OPEN, NULL, 0,
     "The address of --metrics may be one that other machines reach", 0},
    {"log", LOG, "error|warn|info|debug", 0, "How much to tell (TALLY_LOG)", 0},
    {"started", STARTED, NULL, OPTION_HIDDEN, NULL, 0},
    {0},
};

/* One option of the command line (argp). */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    struct options *o = state->input;
    switch (key) {
    case STARTED:
        o->was_started = true;
        return 0;
    case SHARED:
        o->is_shared = true;
        return 0;
    case SOCKET:
        if (strlen(arg) >= sizeof o->settings.socket)
            argp_error(state, "--socket=%s: it may be " TL_SOCKET_PATH_IS, arg);
        strcpy(o->settings.socket, arg);
        return 0;
    case POLICY:
        if (strlen(arg) >= sizeof o->settings.policy)
            argp_error(state, "--policy: there is no policy '%s'", arg);
        strcpy(o->settings.policy, arg);
        return 0;
    case RULES:
        o->rules = arg;
        return 0;
    case IDLE:
        if (tl_settings_time(arg, &o->idle_ns) < 0)
            argp_error(state, "--idle wants a time such as 60s, not '%s'", arg);
        return 0;
    case METRICS:
        o->metrics = arg;
        return 0;
    case METRICS_OPEN:
        o->are_metrics_open = true;
        return 0;
    case LOG:
        for (int i = 0; i < 4; i++)
            if (strcmp(arg, levels[i]) == 0) {
                o->settings.log = i;
                return 0;
            }
        argp_error(state, "--log: error, warn, info or debug, not '%s'", arg);
        return EINVAL;
    default:
        return tl_options_only(key, arg, state);
    }
}

static const struct argp argp = {
    option_table,
    parse_option,
    NULL,
    "The arbiter of jobs that share a GPU.  Jobs under tally-run start it when they need it; by "
    "hand it stays in the "
    "foreground and logs to standard error.\v"
    "SIGHUP reads the rules again; SIGTERM ends it, and its clients go on unmanaged.",
    NULL,
    NULL,
    NULL};

/* TALLY_DAEMON_IDLE is a number of seconds. */
static uint64_t idle_from_environment(void)
{
    const char *text = secure_getenv("TALLY_DAEMON_IDLE");
    char *end;
    if (text == NULL || text[0] < '0' || text[0] > '9')
        return 60 * SECOND;
    unsigned long seconds = strtoul(text, &end, 10);
    return *end == 0 && seconds < 1000000000 ? seconds * SECOND : 60 * SECOND;
}

/* A job that started us waits for one word: '+', or why not. */
static void tell_starter(const struct options *o, const char *text)
{
    if (o->was_started && write(STDOUT_FILENO, text, strlen(text)) < 0)
        daemon_log(LOG_DETAILS, "whoever started this is gone");
    if (o->was_started) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null >= 0)
            (void)dup2(null, STDOUT_FILENO);
    }
}

static int give_up(const struct options *o, const struct tl_error *err)
{
    daemon_log(LOG_ERRORS, "%s", err->text);
    tell_starter(o, err->text);
    return EXIT_FAILURE;
}

/* Beside the socket. */
static void open_log(const struct options *o)
{
    char path[sizeof o->settings.socket + 16], copy[sizeof o->settings.socket];
    strcpy(copy, o->settings.socket);
    snprintf(path, sizeof path, "%s/tallyd.log", dirname(copy));
    daemon_log_open(o->was_started ? path : NULL, o->settings.log);
}

/* The socket is reached through its folder, which has nothing else that others could read. */
static int open_to_all(const struct daemon_place *p, struct tl_error *err)
{
    char copy[sizeof p->path];
    strcpy(copy, p->path);
    if (chmod(p->path, 0666) < 0 || chmod(dirname(copy), 0755) < 0)
        return tl_error_errno(err, "%s cannot be opened to all users", p->path);
    return 0;
}

/* Before the loop has threads: the mode of a socket is the whole process's mask for a moment.  A
 * job that needs a tallyd gets one whether or not it can tell metrics. */
static int start_metrics(struct daemon *d, const struct options *o, struct tl_error *err)
{
    if (o->metrics == NULL || o->metrics[0] == 0)
        return 0;
    int rc = daemon_metrics_start(&d->metrics, o->metrics, o->are_metrics_open, err);
    if (rc < 0 && !o->was_started)
        return rc;
    if (rc < 0)
        daemon_log(LOG_ERRORS, "no metrics: %s", err->text);
    else
        daemon_log(LOG_EVENTS, "metrics are told at %s", daemon_metrics_where(d->metrics));
    return 0;
}

static int serve(struct daemon *d, const struct options *o, struct tl_error *err)
{
    const char *policy = o->settings.policy[0] != 0 ? o->settings.policy : "tally";
    int rc = daemon_rules_read(&d->rules, d->rules_path, d->are_rules_optional, err);
    if (rc == 0)
        rc = daemon_set_policy(d, policy, "", err);
    if (rc == -ENOENT && o->was_started) { /* a job's wish: it is told when it joins */
        daemon_log(LOG_WARNINGS, "%s", err->text);
        rc = daemon_set_policy(d, "tally", "", err);
    }
    if (rc == 0)
        rc = start_metrics(d, o, err);
    if (rc == 0)
        rc = daemon_loop_init(d, err);
    if (rc < 0) {
        daemon_metrics_stop(d->metrics);
        return rc;
    }
    if (d->place.is_activated)
        d->idle_ns = UINT64_MAX;
    daemon_log(LOG_EVENTS, "listens on %s, policy '%s'",
               d->place.is_activated ? "the passed socket" : d->place.path, d->policy);
    tell_starter(o, "+");
    daemon_loop_run(d);
    daemon_loop_finish(d);
    return 0;
}

/* Every client costs four descriptors; the usual limit is for programs that use select().  The
 * niceness is that of the job that happened to need it first, and it serves all. */
static void raise_limits(const struct options *o)
{
    struct rlimit limit;
    if (o->was_started && getpriority(PRIO_PROCESS, 0) > 0 && setpriority(PRIO_PROCESS, 0, 0) < 0)
        daemon_log(LOG_WARNINGS,
                   "has niceness %d, as who started it, and may not lower it: on a busy machine "
                   "grants come late; start tallyd before nice jobs do",
                   getpriority(PRIO_PROCESS, 0));
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Options, the place, the loop, and back. */
int main(int argc, char **argv)
{
    static struct daemon d; /* zeroes */
    struct options o = {.rules = secure_getenv("TALLY_RULES"),
                        .metrics = secure_getenv("TALLY_METRICS"),
                        .idle_ns = idle_from_environment()};
    struct tl_error err = {0};
    argp_err_exit_status = EXIT_USAGE;
    if (tl_settings_read(&o.settings, &err) < 0)
        fprintf(stderr, "tallyd: %s\n", err.text);
    tl_options_parse("tallyd", &argp, argc, argv, 0, NULL, &o);
    d.idle_ns = o.idle_ns != 0 ? o.idle_ns : UINT64_MAX;
    d.are_rules_optional = o.rules == NULL || o.rules[0] == 0;
    d.rules_path = d.are_rules_optional ? SYSTEM_RULES : o.rules;
    daemon_log_open(NULL, o.was_started ? LOG_ERRORS : o.settings.log);
    int rc = daemon_place_take(&d.place, o.settings.socket, o.was_started, &err);
    if (rc == -EEXIST && o.was_started) { /* another one was faster: that is as good */
        tell_starter(&o, "+");
        return EXIT_SUCCESS;
    }
    if (rc < 0)
        return give_up(&o, &err);
    if (o.is_shared && !d.place.is_activated && open_to_all(&d.place, &err) < 0) {
        daemon_place_leave(&d.place);
        return give_up(&o, &err);
    }
    rc = daemon_bury_start(&d);
    if (rc < 0) {
        tl_error_set(&err, rc, "tallyd cannot start a process of its own (%s)", strerror(-rc));
        daemon_place_leave(&d.place);
        return give_up(&o, &err);
    }
    open_log(&o);
    raise_limits(&o);
    daemon_log_start();
    tl_thread_be_prompt();
    rc = serve(&d, &o, &err);
    daemon_place_leave(&d.place);
    daemon_gpus_finish(&d);
    daemon_accounts_finish(&d);
    daemon_rules_free(d.rules);
    rc = rc < 0 ? give_up(&o, &err) : EXIT_SUCCESS;
    daemon_log_finish();
    return rc;
}
