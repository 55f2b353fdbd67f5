/* `tally ps`: who shares the device, and how. */
#include "runtime/tally/daemon.h"
#include "tally/array.h"
#include "tally/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
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

/* --- asking ----------------------------------------------------------------------------------- */

struct list {
    struct tl_wire_status *items;
    size_t n, cap;
    char policy[32];
};

static int compare(const void *left, const void *right)
{
    const struct tl_wire_status *a = left, *b = right;
    if (a->client.level != b->client.level)
        return a->client.level < b->client.level ? 1 : -1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int ask_all(int fd, struct list *list)
{
    struct tl_wire_packet packet;
    struct tl_wire_list question = {.after = 0};
    for (;;) {
        int rc = cli_daemon_ask(fd, TL_WIRE_LIST, &question, sizeof question, &packet);
        if (rc < 0)
            return rc;
        if (packet.m.head.kind != TL_WIRE_CLIENT)
            break;
        if (!TL_ARRAY_FIT(list->items, list->cap, list->n + 1))
            cli_must(NULL);
        list->items[list->n++] = packet.m.status;
        question.after = packet.m.status.id;
    }
    memcpy(list->policy, packet.m.answer.policy, sizeof list->policy);
    if (list->n > 0)
        qsort(list->items, list->n, sizeof *list->items, compare);
    return 0;
}

/* --- telling ---------------------------------------------------------------------------------- */

static const char *state_of(const struct tl_wire_status *s)
{
    return s->client.is_paused != 0              ? "paused"
           : s->has_backlog == 0                 ? "idle"
           : s->may_run == 0                     ? "waits"
           : s->is_busy != 0 || s->in_flight > 0 ? "runs"
                                                 : "ready";
}

static const char *rung_of(const struct tl_wire_status *s)
{
    return s->launches == 0 && s->blocks == 0 ? "-" : tl_rung_name((enum tl_rung)s->rung);
}

/* "2:1a2b3c4d", the first digits of a GPU behind how many there are, if several; "-" if none
 * yet. */
static const char *gpus_of(const struct tl_wire_status *s, char text[64])
{
    char name[48];
    if (s->gpus.n == 0 || s->gpus.n > TL_WIRE_GPUS)
        return "-";
    tl_wire_gpu_name(s->gpus.uuids[0], name);
    if (s->gpus.n > 1)
        snprintf(text, 64, "%u:%.8s", s->gpus.n, name + 4);
    else
        snprintf(text, 64, "%.8s", name + 4);
    return text;
}

static void print_text(struct tl_buf *out, const struct list *list)
{
    tl_buf_printf(out, "policy %s, %zu client%s\n", list->policy, list->n, list->n == 1 ? "" : "s");
    if (list->n == 0)
        return;
    tl_buf_printf(out, "%8s %5s %-7s %-10s %7s %9s %10s %8s %10s %-10s  %s\n", "PID", "LEVEL",
                  "STATE", "RUNG", "SHARE", "IN FLIGHT", "LAUNCHES", "PREEMPT", "MEMORY", "GPU",
                  "JOB");
    for (size_t i = 0; i < list->n; i++) {
        const struct tl_wire_status *s = &list->items[i];
        char gpus[64];
        tl_buf_printf(
            out, "%8d %5d %-7s %-10s %7s %9" PRIu32 " %10" PRIu64 " %8" PRIu64 " %10s %-10s  %s\n",
            s->pid, s->client.level, state_of(s), rung_of(s),
            tl_text_share(s->share_permille, 1000).s, s->in_flight, s->launches, s->preemptions,
            tl_text_bytes((double)s->memory_bytes).s, gpus_of(s, gpus), s->job);
    }
}

/* A job as tallyd sees it. */
static void put_client(struct tl_json *j, const struct tl_wire_status *s)
{
    tl_json_object(j);
    tl_json_key_int(j, "pid", s->pid);
    tl_json_key_uint(j, "uid", s->uid);
    tl_json_key_str(j, "job", s->job);
    tl_json_key_int(j, "level", s->client.level);
    tl_json_key_int(j, "highest_level", s->highest_level);
    tl_json_key_uint(j, "weight", s->client.weight != 0 ? s->client.weight : 100);
    tl_json_key_uint(j, "min_share_permille", s->client.min_permille);
    tl_json_key_uint(j, "turnaround_ns", s->client.turnaround_ns);
    tl_json_key_uint(j, "slo_per_ten_thousand", s->client.slo_percentile);
    tl_json_key_uint(j, "slo_ns", s->client.slo_ns);
    tl_json_key_str(j, "state", state_of(s));
    tl_json_key_bool(j, "paused", s->client.is_paused != 0);
    tl_json_key_bool(j, "may_run", s->may_run != 0);
    tl_json_key_bool(j, "yields", s->yields != 0);
    tl_json_key_bool(j, "has_backlog", s->has_backlog != 0);
    tl_json_key_str(j, "rung", rung_of(s));
    tl_json_key_uint(j, "share_permille", s->share_permille);
    tl_json_key_uint(j, "in_flight", s->in_flight);
    tl_json_key_uint(j, "launches", s->launches);
    tl_json_key_uint(j, "blocks", s->blocks);
    tl_json_key_uint(j, "preemptions", s->preemptions);
    tl_json_key_uint(j, "device_ns", s->device_ns);
    tl_json_key_uint(j, "waited_ns", s->waited_ns);
    tl_json_key_uint(j, "uncontrolled_ns", s->uncontrolled_ns);
    tl_json_key_uint(j, "memory_bytes", s->memory_bytes);
    tl_json_key_uint(j, "requests", s->requests);
    tl_json_key_uint(j, "joined_ns", s->joined_ns);
    tl_json_key(j, "gpus");
    tl_json_array(j);
    for (uint32_t i = 0; i < s->gpus.n && i < TL_WIRE_GPUS; i++) {
        char name[48];
        tl_wire_gpu_name(s->gpus.uuids[i], name);
        tl_json_str(j, tl_str_of(name));
    }
    tl_json_end_array(j);
    tl_json_end_object(j);
}

static void print_json(struct tl_buf *out, const struct list *list)
{
    struct tl_json j;
    tl_json_init(&j, out);
    tl_json_object(&j);
    tl_json_key_str(&j, "policy", list->policy);
    tl_json_key(&j, "clients");
    tl_json_array(&j);
    for (size_t i = 0; i < list->n; i++)
        put_client(&j, &list->items[i]);
    tl_json_end_array(&j);
    tl_json_end_object(&j);
    tl_buf_putc(out, '\n');
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
    struct list list = {0};
    struct tl_buf out = {0};
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, NULL, &o);
    int fd = cli_daemon_open(&o.daemon);
    if (fd < 0)
        return CLI_FAILED;
    int rc = ask_all(fd, &list);
    close(fd);
    if (rc == 0) {
        if (o.daemon.as_json)
            print_json(&out, &list);
        else
            print_text(&out, &list);
    }
    free(list.items);
    return rc < 0 ? CLI_FAILED : cli_daemon_print(&out);
}
