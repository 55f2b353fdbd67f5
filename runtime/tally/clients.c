/* The jobs that tallyd knows, for the commands that list them. */
#include "runtime/tally/clients.h"
#include "tally/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- asking ----------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    const struct tl_wire_status *a = left, *b = right;
    if (a->client.level != b->client.level)
        return a->client.level < b->client.level ? 1 : -1;
    return a->id < b->id ? -1 : a->id > b->id;
}

int cli_clients_ask(int fd, struct cli_clients *list)
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

void cli_clients_finish(struct cli_clients *list)
{
    free(list->items);
    *list = (struct cli_clients){0};
}

/* --- devices ---------------------------------------------------------------------------------- */

/* The device of that UUID, in order; NULL if there are too many. */
static struct cli_device *device_of(struct cli_device *devices, size_t *n, const uint8_t uuid[16])
{
    size_t at = 0;
    while (at < *n && memcmp(devices[at].uuid, uuid, 16) < 0)
        at++;
    if (at < *n && memcmp(devices[at].uuid, uuid, 16) == 0)
        return &devices[at];
    if (*n == CLI_DEVICES)
        return NULL;
    memmove(devices + at + 1, devices + at, (*n - at) * sizeof *devices);
    devices[at] = (struct cli_device){0};
    memcpy(devices[at].uuid, uuid, 16);
    ++*n;
    return &devices[at];
}

size_t cli_devices(const struct cli_clients *list, struct cli_device devices[CLI_DEVICES])
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct tl_wire_status *s = &list->items[i];
        uint32_t parts = s->gpus.n <= TL_WIRE_GPUS ? s->gpus.n : 0;
        for (uint32_t g = 0; g < parts; g++) {
            struct cli_device *d = device_of(devices, &n, s->gpus.uuids[g]);
            if (d == NULL)
                continue;
            d->jobs++;
            d->busy_permille += s->share_permille / parts;
            d->held_bytes += s->memory_bytes / parts;
            if (parts == 1 && s->device_memory_bytes > d->memory_bytes)
                d->memory_bytes = s->device_memory_bytes;
            if (parts == 1 && d->name[0] == 0)
                memcpy(d->name, s->device, sizeof d->name);
        }
    }
    for (size_t i = 0; i < n; i++)
        if (devices[i].busy_permille > 1000)
            devices[i].busy_permille = 1000; /* kernels of two jobs at once count for both */
    return n;
}

/* --- telling ---------------------------------------------------------------------------------- */

const char *cli_client_state(const struct tl_wire_status *s)
{
    return s->is_stopped != 0                    ? "stopped"
           : s->client.is_paused != 0            ? "paused"
           : s->has_backlog == 0                 ? "idle"
           : s->may_run == 0                     ? "waits"
           : s->is_busy != 0 || s->in_flight > 0 ? "runs"
                                                 : "ready";
}

const char *cli_client_rung(const struct tl_wire_status *s)
{
    return s->launches == 0 && s->blocks == 0 ? "-" : tl_rung_name((enum tl_rung)s->rung);
}

const char *cli_client_gpus(const struct tl_wire_status *s, char text[64])
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
    tl_json_key_uint(j, "max_share_permille", s->client.max_permille);
    tl_json_key_uint(j, "turnaround_ns", s->client.turnaround_ns);
    tl_json_key_uint(j, "slo_per_ten_thousand", s->client.slo_percentile);
    tl_json_key_uint(j, "slo_ns", s->client.slo_ns);
    tl_json_key_str(j, "state", cli_client_state(s));
    tl_json_key_bool(j, "paused", s->client.is_paused != 0);
    tl_json_key_bool(j, "stopped", s->is_stopped != 0);
    tl_json_key_bool(j, "may_run", s->may_run != 0);
    tl_json_key_bool(j, "yields", s->yields != 0);
    tl_json_key_bool(j, "has_backlog", s->has_backlog != 0);
    tl_json_key_str(j, "rung", cli_client_rung(s));
    tl_json_key_uint(j, "share_permille", s->share_permille);
    tl_json_key_uint(j, "in_flight", s->in_flight);
    tl_json_key_uint(j, "launches", s->launches);
    tl_json_key_uint(j, "blocks", s->blocks);
    tl_json_key_uint(j, "preemptions", s->preemptions);
    tl_json_key_uint(j, "device_ns", s->device_ns);
    tl_json_key_uint(j, "waited_ns", s->waited_ns);
    tl_json_key_uint(j, "uncontrolled_ns", s->uncontrolled_ns);
    tl_json_key_uint(j, "memory_bytes", s->memory_bytes);
    tl_json_key_uint(j, "memory_limit_bytes", s->client.memory_limit);
    tl_json_key_uint(j, "memory_request_bytes", s->client.memory_request);
    tl_json_key_uint(j, "memory_soft_bytes", s->client.memory_soft);
    tl_json_key_uint(j, "tree_bytes", s->tree_bytes);
    tl_json_key_uint(j, "requests", s->requests);
    tl_json_key_uint(j, "p99_ns", s->p99_ns);
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

static void put_devices(struct tl_json *j, const struct cli_device *devices, size_t n)
{
    char name[48];
    tl_json_key(j, "devices");
    tl_json_array(j);
    for (size_t i = 0; i < n; i++) {
        tl_wire_gpu_name(devices[i].uuid, name);
        tl_json_object(j);
        tl_json_key_str(j, "uuid", name);
        tl_json_key_str(j, "name", devices[i].name);
        tl_json_key_uint(j, "busy_permille", devices[i].busy_permille);
        tl_json_key_uint(j, "memory_bytes", devices[i].memory_bytes);
        tl_json_key_uint(j, "held_bytes", devices[i].held_bytes);
        tl_json_key_uint(j, "clients", devices[i].jobs);
        tl_json_end_object(j);
    }
    tl_json_end_array(j);
}

void cli_clients_json(struct tl_buf *out, const struct cli_clients *list,
                      const struct cli_device *devices, size_t n_devices)
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
    put_devices(&j, devices, n_devices);
    tl_json_end_object(&j);
    tl_buf_putc(out, '\n');
}
