/* `tally account`: what the processes of a job that an engine started have used of the device. */
#include "runtime/tally/daemon.h"
#include "tally/options.h"
#include "tally/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct options {
    struct cli_daemon_options daemon;
    struct tl_wire_account question;
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
        if (o->question.name[0] != 0 || arg[0] == 0 || strlen(arg) >= sizeof o->question.name)
            argp_error(state, "name one account, such as slurm:123");
        strcpy(o->question.name, arg);
        return 0;
    case ARGP_KEY_END:
        if (o->question.name[0] == 0)
            argp_error(state, "name an account, such as slurm:123");
        return 0;
    default:
        return cli_daemon_option(&o->daemon, key, arg);
    }
}

static void print_json(struct tl_buf *out, const char *name, const struct tl_wire_accounted *a)
{
    struct tl_json j;
    tl_json_init(&j, out);
    tl_json_object(&j);
    tl_json_key_str(&j, "account", name);
    tl_json_key_uint(&j, "uid", a->uid);
    tl_json_key_uint(&j, "processes", a->processes);
    tl_json_key_uint(&j, "running", a->running);
    tl_json_key_uint(&j, "device_ns", a->device_ns);
    tl_json_key_uint(&j, "waited_ns", a->waited_ns);
    tl_json_key_uint(&j, "preemptions", a->preemptions);
    tl_json_key_uint(&j, "most_bytes", a->most_bytes);
    tl_json_end_object(&j);
    tl_buf_putc(out, '\n');
}

int cli_account(int argc, char **argv)
{
    static const struct argp argp = {
        option_table,
        parse_option,
        "ACCOUNT",
        "Tells what the processes of a job that an engine started (slurm:JOBID) have used of the "
        "device, those that have ended, too.\vExit status: 0, 1 if it is not known, 2 if the "
        "command line is wrong.",
        NULL,
        NULL,
        NULL};
    struct options o = {0};
    struct tl_wire_packet packet;
    struct tl_buf out = {0};
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, NULL, &o);
    int fd = cli_daemon_open(&o.daemon);
    if (fd < 0)
        return CLI_FAILED;
    int rc = cli_daemon_ask(fd, TL_WIRE_ACCOUNT, &o.question, sizeof o.question, &packet);
    close(fd);
    if (rc < 0)
        return CLI_FAILED;
    if (packet.m.head.kind != TL_WIRE_ACCOUNTED) {
        cli_complain("%s: %s", o.question.name, packet.m.answer.text);
        return CLI_FAILED;
    }
    const struct tl_wire_accounted *a = &packet.m.accounted;
    if (o.daemon.as_json)
        print_json(&out, o.question.name, a);
    else
        tl_buf_printf(&out,
                      "%s: %s of the device, %" PRIu64 " preemption%s, waited %s, %s at most, "
                      "%" PRIu32 " process%s, %" PRIu32 " running\n",
                      o.question.name, tl_text_time((double)a->device_ns).s, a->preemptions,
                      a->preemptions == 1 ? "" : "s", tl_text_time((double)a->waited_ns).s,
                      tl_text_bytes((double)a->most_bytes).s, a->processes,
                      a->processes == 1 ? "" : "es", a->running);
    return cli_daemon_print(&out);
}
