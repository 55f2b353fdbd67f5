/* `tally mps`: NVIDIA's multi-process service, which two jobs need to have kernels on a GPU at the
 * same time: does it run, for whom, with which clients; start it, stop it.
 *
 * NVIDIA's own program does the work: `nvidia-cuda-mps-control -d` begins the daemon, and without
 * an option it hands lines from its standard input to the daemon and prints the answers. */
#include "runtime/job/mps.h"
#include "runtime/tally/daemon.h"
#include "tally/clock.h"
#include "tally/options.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char control_program[] = "nvidia-cuda-mps-control";
enum { PATIENCE_MS = 10000, MOST_SERVERS = 64 };

struct options {
    bool as_json, is_forced;
    const char *action; /* NULL: status */
};

static const struct argp_option option_table[] = {
    {"force", 'f', NULL, 0, "stop: although jobs use it, which then fail", 0},
    {"json", 'j', NULL, 0, "status: print JSON", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'f':
        o->is_forced = true;
        return 0;
    case 'j':
        o->as_json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (o->action != NULL ||
            (strcmp(arg, "status") != 0 && strcmp(arg, "start") != 0 && strcmp(arg, "stop") != 0))
            argp_error(state, "'%s': status, start or stop is needed", arg);
        o->action = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- asking NVIDIA's program ------------------------------------------------------------------ */

/* Reads until the end or until patience is over; false then. */
static bool read_all(int fd, struct tl_buf *out)
{
    int64_t until = tl_clock_ms() + PATIENCE_MS;
    for (;;) {
        char bytes[4096];
        int64_t left = until - tl_clock_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        ssize_t got = read(fd, bytes, sizeof bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0;
        tl_buf_add(out, bytes, (size_t)got);
    }
}

static int status_of(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int cannot_run(int error)
{
    cli_complain("%s cannot be run: %s; it comes with NVIDIA's driver (Debian: nvidia-cuda-mps)",
                 control_program, strerror(error));
    return -1;
}

/* Hands a line to the daemon; what is printed goes to `out`.  The program's exit status, or -1 with
 * a complaint. */
static int ask(const char *line, struct tl_buf *out)
{
    char *const argv[] = {(char *)control_program, NULL};
    int in[2], from[2];
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (pipe2(in, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(from, O_CLOEXEC) < 0) {
        close(in[0]);
        close(in[1]);
        return -1;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDERR_FILENO);
    int rc = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(from[1]);
    if (rc == 0)
        dprintf(in[1], "%s\n", line); /* who does not read it says so by its status */
    close(in[1]);
    bool came = rc == 0 && read_all(from[0], out);
    close(from[0]);
    if (rc != 0)
        return cannot_run(rc);
    if (came)
        return status_of(child);
    kill(child, SIGKILL);
    status_of(child);
    cli_complain("%s did not answer within %d s", control_program, PATIENCE_MS / 1000);
    return -1;
}

/* The numbers that the daemon answers to a question; -1 if it does not. */
static int ask_numbers(const char *line, long *numbers, int most)
{
    struct tl_buf out = {0};
    int n = -1;
    if (ask(line, &out) == 0) {
        n = 0;
        for (const char *p = out.p; p != NULL && *p != 0 && n < most;) {
            char *end;
            long v = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : (end = NULL, 0);
            if (end != NULL && (*end == 0 || isspace((unsigned char)*end)))
                numbers[n++] = v;
            p = strchr(p, '\n');
            p = p != NULL ? p + 1 : NULL;
        }
    }
    tl_buf_finish(&out);
    return n;
}

/* How many clients all servers have; -1 if that cannot be found out. */
static int count_clients(long *servers, int *n_servers)
{
    int n = 0;
    *n_servers = ask_numbers("get_server_list", servers, MOST_SERVERS);
    for (int i = 0; i < *n_servers; i++) {
        char line[64];
        long clients[1024];
        snprintf(line, sizeof line, "get_client_list %ld", servers[i]);
        int k = ask_numbers(line, clients, 1024);
        if (k < 0)
            return -1;
        n += k;
    }
    return *n_servers < 0 ? -1 : n;
}

/* --- the actions ------------------------------------------------------------------------------ */

static const char *const state_names[] = {
    [TL_MPS_NONE] = "does not run", [TL_MPS_RUNS] = "runs", [TL_MPS_UNSEEN] = "is not seen"};

static void print_text(const struct tl_mps *m, int n_servers, int n_clients)
{
    printf("MPS %s (%s)\n", state_names[m->state], m->control);
    if (m->state == TL_MPS_NONE)
        printf("Jobs take turns on a GPU instead of sharing it. `tally mps start` begins it.\n");
    if (m->state == TL_MPS_UNSEEN)
        printf(
            "Its socket is there and nobody listens: it is left over, or the daemon runs outside "
            "of this container.\n");
    if (m->state != TL_MPS_RUNS)
        return;
    if (m->owner == 0)
        printf("started by root: it serves every user, one at a time\n");
    else
        printf("started by user %u: it serves this user only%s\n", (unsigned)m->owner,
               tl_mps_serves(m, getuid()) ? "" : ", which is not you");
    if (n_servers >= 0)
        printf("%d server%s, %d client%s\n", n_servers, n_servers == 1 ? "" : "s", n_clients,
               n_clients == 1 ? "" : "s");
    printf("limits from the environment: %s%s of the threads, memory %s\n",
           m->thread_percentage != NULL ? m->thread_percentage : "100", "%",
           m->memory_limit != NULL ? m->memory_limit : "unlimited");
    printf("A fatal fault of one client ends all clients on that GPU.\n");
}

static int status(bool as_json)
{
    struct tl_mps m;
    long servers[MOST_SERVERS];
    int n_servers = -1, n_clients = -1;
    tl_mps_look(&m);
    if (m.state == TL_MPS_RUNS)
        n_clients = count_clients(servers, &n_servers);
    if (!as_json) {
        print_text(&m, n_servers, n_clients);
        return m.state == TL_MPS_RUNS ? CLI_OK : CLI_FAILED;
    }
    static const char *const words[] = {"none", "runs", "unseen"};
    struct tl_buf out = {0};
    struct tl_json j;
    tl_json_init(&j, &out);
    tl_json_object(&j);
    tl_json_key_str(&j, "state", words[m.state]);
    tl_json_key_str(&j, "control", m.control);
    if (m.state != TL_MPS_NONE) {
        tl_json_key_uint(&j, "owner", m.owner);
        tl_json_key_bool(&j, "serves_you", tl_mps_serves(&m, getuid()));
    }
    if (n_servers >= 0 && n_clients >= 0) {
        tl_json_key_uint(&j, "servers", (uint64_t)n_servers);
        tl_json_key_uint(&j, "clients", (uint64_t)n_clients);
    }
    tl_json_end_object(&j);
    tl_buf_putc(&out, '\n');
    int rc = cli_daemon_print(&out);
    return rc != CLI_OK ? rc : m.state == TL_MPS_RUNS ? CLI_OK : CLI_FAILED;
}

static int start(void)
{
    struct tl_mps m;
    pid_t child;
    char *const argv[] = {(char *)control_program, "-d", NULL};
    tl_mps_look(&m);
    if (m.state == TL_MPS_RUNS) {
        printf("MPS runs already (%s)\n", m.control);
        return CLI_OK;
    }
    int rc = posix_spawnp(&child, argv[0], NULL, NULL, argv, environ);
    rc = rc != 0 ? cannot_run(rc) : status_of(child);
    if (rc > 0)
        cli_complain("%s -d failed with status %d", control_program, rc);
    if (rc != 0)
        return CLI_FAILED;
    tl_mps_look(&m);
    if (m.state != TL_MPS_RUNS) {
        cli_complain("%s -d ended well, but nobody listens on %s; its log tells why "
                     "(CUDA_MPS_LOG_DIRECTORY, /var/log/nvidia-mps)",
                     control_program, m.control);
        return CLI_FAILED;
    }
    printf("MPS runs (%s)\nA fatal fault of one client ends all clients on that GPU.\n", m.control);
    return CLI_OK;
}

static int stop(bool is_forced)
{
    struct tl_mps m;
    struct tl_buf out = {0};
    long servers[MOST_SERVERS];
    int n_servers;
    tl_mps_look(&m);
    if (m.state == TL_MPS_NONE) {
        printf("MPS does not run (%s)\n", m.control);
        return CLI_OK;
    }
    int n = is_forced ? 0 : count_clients(servers, &n_servers);
    if (n != 0) {
        if (n > 0)
            cli_complain("%d job%s use%s it and would fail; wait for their end, or say --force", n,
                         n == 1 ? "" : "s", n == 1 ? "s" : "");
        return CLI_FAILED;
    }
    int rc = ask("quit", &out);
    if (rc > 0)
        cli_complain("%s: %.*s", control_program, (int)out.n, out.p != NULL ? out.p : "");
    tl_buf_finish(&out);
    return rc == 0 ? CLI_OK : CLI_FAILED;
}

int cli_mps(int argc, char **argv)
{
    static const struct argp argp = {
        option_table,
        parse_option,
        "[status|start|stop]",
        "Tells whether NVIDIA's multi-process service runs, for whom and for how many jobs; begins "
        "and ends it.\vExit status: 0, 1 if it does not run or it could not be done, 2 if the "
        "command line is wrong.",
        NULL,
        NULL,
        NULL};
    struct options o = {0};
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, NULL, &o);
    signal(SIGPIPE, SIG_IGN); /* who was asked may be gone */
    if (o.action == NULL || strcmp(o.action, "status") == 0)
        return status(o.as_json);
    return strcmp(o.action, "start") == 0 ? start() : stop(o.is_forced);
}
