/* `tally ps`: who shares the device, and how. */
#include "runtime/tally/clients.h"
#include "runtime/tally/daemon.h"
#include "tally/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

struct options {
    struct cli_daemon_options daemon;
};

static const struct argp_option option_table[] = {
    CLI_DAEMON_OPTIONS,
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        argp_error(state, "nothing is expected here: '%s'", arg);
        return EINVAL;
    default:
        return cli_daemon_option(&o->daemon, key, arg);
    }
}

static void print_text(struct tl_buf *out, const struct cli_clients *list)
{
    tl_buf_printf(out, "policy %s, %zu client%s\n", list->policy, list->n, list->n == 1 ? "" : "s");
    if (list->n == 0)
        return;
    tl_buf_printf(out, "%8s %5s %-7s %-10s %7s %9s %10s %8s %10s %10s %-10s  %s\n", "PID", "LEVEL",
                  "STATE", "RUNG", "SHARE", "IN FLIGHT", "LAUNCHES", "PREEMPT", "MEMORY", "LIMIT",
                  "GPU", "JOB");
    for (size_t i = 0; i < list->n; i++) {
        const struct tl_wire_status *s = &list->items[i];
        char gpus[64];
        tl_buf_printf(
            out,
            "%8d %5d %-7s %-10s %7s %9" PRIu32 " %10" PRIu64 " %8" PRIu64 " %10s %10s %-10s  %s\n",
            s->pid, s->client.level, cli_client_state(s), cli_client_rung(s),
            tl_text_share(s->share_permille, 1000).s, s->in_flight, s->launches, s->preemptions,
            tl_text_bytes((double)s->memory_bytes).s,
            s->client.memory_limit != 0 ? tl_text_bytes((double)s->client.memory_limit).s : "-",
            cli_client_gpus(s, gpus), s->job);
    }
}

int cli_ps(int argc, char **argv)
{
    static const struct argp argp = {
        option_table,
        parse_option,
        NULL,
        "Lists the jobs that share the device: level, state, rung of the last kernel, share of the "
        "device's time, pieces in flight.\vExit status: 0, 1 if tallyd cannot be asked, 2 if the "
        "command line is wrong.",
        NULL,
        NULL,
        NULL};
    struct options o = {0};
    struct cli_clients list = {0};
    struct cli_device devices[CLI_DEVICES];
    struct tl_buf out = {0};
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, NULL, &o);
    int fd = cli_daemon_open(&o.daemon);
    if (fd < 0)
        return CLI_FAILED;
    int rc = cli_clients_ask(fd, &list);
    close(fd);
    if (rc == 0) {
        if (o.daemon.as_json)
            cli_clients_json(&out, &list, devices, cli_devices(&list, devices));
        else
            print_text(&out, &list);
    }
    cli_clients_finish(&list);
    return rc < 0 ? CLI_FAILED : cli_daemon_print(&out);
}
