/* `tally policy`: which policy is in force, which there are, and another one while jobs run. */
#include "runtime/tally/daemon.h"
#include "tally/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct options {
    struct cli_daemon_options daemon;
    bool only_list;
    struct tl_wire_policy question;
};

static const struct argp_option option_table[] = {
    {"list", 'l', NULL, 0, "List the policies that there are", 0},
    CLI_DAEMON_OPTIONS,
    {0},
};

/* Parameters are gathered as "name=value,name=value". */
static error_t take_argument(struct options *o, const char *arg, struct argp_state *state)
{
    struct tl_wire_policy *q = &o->question;
    if (q->policy[0] == 0) {
        if (strlen(arg) >= sizeof q->policy || arg[0] == 0 || strchr(arg, '=') != NULL)
            argp_error(state, "there is no policy '%s'; --list shows them", arg);
        strcpy(q->policy, arg);
        return 0;
    }
    size_t n = strlen(q->parameters);
    if (strchr(arg, '=') == NULL || n + strlen(arg) + 2 > sizeof q->parameters)
        argp_error(state, "'%s' is no parameter NAME=VALUE, or there are too many", arg);
    snprintf(q->parameters + n, sizeof q->parameters - n, "%s%s", n > 0 ? "," : "", arg);
    return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'l':
        o->only_list = true;
        return 0;
    case ARGP_KEY_ARG:
        return take_argument(o, arg, state);
    default:
        return cli_daemon_option(&o->daemon, key, arg);
    }
}

static int list(bool as_json)
{
    struct tl_buf out = {0};
    struct tl_json j;
    tl_json_init(&j, &out);
    if (as_json)
        tl_json_array(&j);
    for (const struct tl_policy *const *p = tl_sched_policies(); *p != NULL; p++) {
        if (as_json) {
            tl_json_object(&j);
            tl_json_key_str(&j, "name", tl_policy_name(*p));
            tl_json_key_str(&j, "about", tl_policy_about(*p));
            tl_json_end_object(&j);
        } else {
            tl_buf_printf(&out, "%-12s %s\n", tl_policy_name(*p), tl_policy_about(*p));
        }
    }
    if (as_json) {
        tl_json_end_array(&j);
        tl_buf_putc(&out, '\n');
    }
    return cli_daemon_print(&out);
}

static int tell(const struct tl_wire_answer *a, bool as_json)
{
    struct tl_buf out = {0};
    if (as_json) {
        struct tl_json j;
        tl_json_init(&j, &out);
        tl_json_object(&j);
        tl_json_key_str(&j, "policy", a->policy);
        tl_json_key_str(&j, "parameters", a->text);
        tl_json_end_object(&j);
        tl_buf_putc(&out, '\n');
    } else {
        tl_buf_printf(&out, "%s%s%s\n", a->policy, a->text[0] != 0 ? " " : "", a->text);
    }
    return cli_daemon_print(&out);
}

int cli_policy(int argc, char **argv)
{
    static const struct argp argp = {
        option_table,
        parse_option,
        "[POLICY [PARAMETER=VALUE...]]",
        "Shows the policy in force, or puts another one in force for all jobs, at once.\vExit "
        "status: 0, 1 if it could not be done, 2 if the command line is wrong.",
        NULL,
        NULL,
        NULL};
    struct options o = {0};
    struct tl_wire_packet packet;
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, NULL, &o);
    if (o.only_list)
        return list(o.daemon.as_json);
    int fd = cli_daemon_open(&o.daemon);
    if (fd < 0)
        return CLI_FAILED;
    int rc = cli_daemon_ask(fd, TL_WIRE_POLICY, &o.question, sizeof o.question, &packet);
    close(fd);
    if (rc < 0)
        return CLI_FAILED;
    if (packet.m.answer.code < 0) {
        cli_complain("%s", packet.m.answer.text);
        return CLI_FAILED;
    }
    return tell(&packet.m.answer, o.daemon.as_json);
}
