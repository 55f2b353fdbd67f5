/* `tally set PID WHAT...`: changes a running job. */
#include "runtime/job/settings.h"
#include "runtime/tally/daemon.h"
#include "tally/level.h"
#include "tally/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    struct cli_daemon_options daemon;
    struct tl_wire_set set;
    uint32_t n_args;
};

static const struct argp_option option_table[] = {
    CLI_DAEMON_OPTIONS,
    {0},
};

/* Whether `text` is "name=..."; then what follows. */
static const char *value_of(const char *text, const char *name)
{
    size_t n = strlen(name);
    return strncmp(text, name, n) == 0 && text[n] == '=' ? text + n + 1 : NULL;
}

/* Shares: what it gets at least, at most, or both. */
static bool read_share(struct tl_wire_set *s, const char *text)
{
    const struct {
        const char *name;
        uint32_t what;
    } shares[] = {{"min-share", TL_SET_MIN_SHARE},
                  {"max-share", TL_SET_MAX_SHARE},
                  {"share", TL_SET_MIN_SHARE | TL_SET_MAX_SHARE}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const char *value = value_of(text, shares[i].name);
        uint32_t permille = 0;
        if (value == NULL)
            continue;
        if (strcmp(value, "none") != 0 && tl_settings_share(value, &permille) < 0)
            return false;
        s->what |= shares[i].what;
        if ((shares[i].what & TL_SET_MIN_SHARE) != 0)
            s->client.min_permille = permille;
        if ((shares[i].what & TL_SET_MAX_SHARE) != 0)
            s->client.max_permille = permille;
        return true;
    }
    return false;
}

/* Sizes of memory; "none" is no limit, or nothing kept. */
static bool read_memory(struct tl_wire_set *s, const char *text)
{
    const struct {
        const char *name;
        uint32_t what;
        uint64_t *bytes;
    } sizes[] = {{"memory", TL_SET_MEMORY, &s->client.memory_limit},
                 {"memory-request", TL_SET_MEMORY_REQUEST, &s->client.memory_request},
                 {"memory-soft", TL_SET_MEMORY_SOFT, &s->client.memory_soft}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *value = value_of(text, sizes[i].name);
        if (value == NULL)
            continue;
        s->what |= sizes[i].what;
        *sizes[i].bytes = 0;
        return strcmp(value, "none") == 0 || tl_settings_bytes(value, sizes[i].bytes) == 0;
    }
    return false;
}

/* One thing to set, `name=value` or a word, into the message; false if it is none. */
static bool read_what(struct tl_wire_set *s, const char *text)
{
    const char *value;
    char *end;
    int level;
    if (strcmp(text, "pause") == 0 || strcmp(text, "resume") == 0) {
        s->what |= TL_SET_PAUSED;
        s->client.is_paused = text[0] == 'p';
        return true;
    }
    if ((value = value_of(text, "priority")) != NULL) {
        s->what |= TL_SET_LEVEL;
        bool is_good = tl_level_parse(value, &level) == 0;
        s->client.level = is_good ? level : 0;
        return is_good;
    }
    if ((value = value_of(text, "slo")) != NULL) {
        s->what |= TL_SET_SLO;
        s->client.slo_percentile = 0;
        s->client.slo_ns = 0;
        return strcmp(value, "none") == 0 ||
               tl_settings_slo(value, &s->client.slo_percentile, &s->client.slo_ns) == 0;
    }
    if ((value = value_of(text, "weight")) != NULL) {
        unsigned long n = value[0] >= '0' && value[0] <= '9' ? strtoul(value, &end, 10) : 0;
        s->what |= TL_SET_WEIGHT;
        s->client.weight = (uint32_t)n;
        return n >= 1 && n <= 10000 && *end == 0;
    }
    return read_share(s, text) || read_memory(s, text);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    char *end;
    switch (key) {
    case ARGP_KEY_ARG:
        if (o->n_args++ == 0) {
            o->set.pid = (int32_t)strtol(arg, &end, 10);
            if (o->set.pid <= 0 || *end != 0)
                argp_error(state, "'%s' is no process number", arg);
        } else if (!read_what(&o->set, arg)) {
            argp_error(state,
                       "'%s': priority=high|low|N, slo=p99:8ms|none, weight=N, share=N%%|none, "
                       "min-share=N%%, "
                       "max-share=N%%, "
                       "memory=SIZE|none, memory-request=SIZE|none, memory-soft=SIZE|none, pause "
                       "or resume",
                       arg);
        }
        return 0;
    case ARGP_KEY_END:
        if (o->n_args < 2)
            argp_error(state, "name a process and what to set");
        return 0;
    default:
        return cli_daemon_option(&o->daemon, key, arg);
    }
}

/* `tally set`: see tally-set(1). */
int cli_set(int argc, char **argv)
{
    static const struct argp argp = {
        option_table,
        parse_option,
        "PID "
        "priority=high|priority=low|priority=N|slo=pN:TIME|slo=none|weight=N|min-share=N%|memory="
        "SIZE|"
        "memory-request=SIZE|memory-soft=SIZE|pause|resume ...",
        "Changes a job that runs under tally-run.\vExit status: 0, 1 if it could not be done, 2 if "
        "the command line is wrong.",
        NULL,
        NULL,
        NULL};
    struct options o = {0};
    struct tl_wire_packet packet;
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, NULL, &o);
    int fd = cli_daemon_open(&o.daemon);
    if (fd < 0)
        return CLI_FAILED;
    int rc = cli_daemon_ask(fd, TL_WIRE_SET, &o.set, sizeof o.set, &packet);
    close(fd);
    if (rc < 0)
        return CLI_FAILED;
    const struct tl_wire_answer *a = &packet.m.answer;
    if (a->text[0] != 0)
        cli_complain("%s", a->text);
    if (o.daemon.as_json) {
        struct tl_buf out = {0};
        struct tl_json j;
        tl_json_init(&j, &out);
        tl_json_object(&j);
        tl_json_key_int(&j, "pid", o.set.pid);
        tl_json_key_int(&j, "code", a->code);
        tl_json_key_str(&j, "message", a->text);
        tl_json_end_object(&j);
        tl_buf_putc(&out, '\n');
        if (cli_daemon_print(&out) != CLI_OK)
            return CLI_FAILED;
    }
    return a->code < 0 ? CLI_FAILED : CLI_OK;
}
