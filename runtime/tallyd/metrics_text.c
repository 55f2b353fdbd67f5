/* A view as OpenMetrics text: families one after the other, each with a line per process.
 *
 * Labels have the names of dcgm-exporter (UUID, gpu, device, modelName, Hostname, pod, namespace,
 * container), so that queries can join the two.  Each process is a series; what jobs call
 * themselves is `tally_job`, because `job` is Prometheus's own.  Of a best-effort process on
 * several GPUs, what its kernels did is told for each; what belongs to the process (its level, what
 * it waited) has no UUID, and tally_job_gpu_info lists its GPUs.
 *
 * Numbers come from pages that jobs write.  They may be nonsense, but never make a line that is not
 * well-formed, nor a histogram whose buckets shrink. */
#include "runtime/tallyd/metrics.h"
#include "tally/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)

/* --- values and labels ------------------------------------------------------------------------ */

void daemon_metrics_value(struct tl_buf *out, const char *text)
{
    tl_buf_putc(out, '"');
    for (const char *p = text, *end = text + strlen(text); p < end;) {
        size_t n = tl_text_utf8(p, (size_t)(end - p));
        if (n == 0) {
            tl_buf_puts(out, "\xef\xbf\xbd");
            n = 1;
        } else if (*p == '\n') {
            tl_buf_puts(out, "\\n");
        } else if (*p == '"' || *p == '\\') {
            tl_buf_putc(out, '\\');
            tl_buf_putc(out, *p);
        } else {
            tl_buf_add(out, p, n);
        }
        p += n;
    }
    tl_buf_putc(out, '"');
}

/* Labels that are empty are as good as none. */
static void label(struct tl_buf *out, const char *name, const char *value)
{
    if (value[0] == 0)
        return;
    if (out->n > 0 && out->p[out->n - 1] != '{')
        tl_buf_putc(out, ',');
    tl_buf_puts(out, name);
    tl_buf_putc(out, '=');
    daemon_metrics_value(out, value);
}

static void gpu_labels(struct tl_buf *out, const struct daemon_view *v,
                       const struct daemon_names *names, const uint8_t uuid[16])
{
    char text[48];
    tl_wire_gpu_name(uuid, text);
    label(out, "UUID", text);
    for (uint32_t i = 0; i < v->n_gpus; i++)
        if (memcmp(v->gpus[i].uuid, uuid, 16) == 0) {
            label(out, "gpu", names->gpus[i].index);
            label(out, "device", names->gpus[i].device);
            /* without NVIDIA's driver, what jobs say */
            label(out, "modelName",
                  names->gpus[i].model[0] != 0 ? names->gpus[i].model : v->gpus[i].name);
        }
    label(out, "Hostname", names->host);
}

/* All of a row, without the closing brace; `uuid` is NULL for those of its only GPU, if it has
 * one. */
static void make_labels(struct tl_buf *out, const struct daemon_view *v,
                        const struct daemon_names *names, uint32_t at, const uint8_t *uuid)
{
    const struct daemon_row *r = &v->rows[at];
    const struct daemon_pod *pod = &names->pods[at];
    char text[32];
    uint32_t before = 0;
    tl_buf_putc(out, '{');
    if (uuid == NULL && r->n_gpus == 1)
        uuid = r->gpus[0].uuid;
    if (uuid != NULL)
        gpu_labels(out, v, names, uuid);
    else
        label(out, "Hostname", names->host);
    label(out, "tally_job", r->job);
    snprintf(text, sizeof text, "%d", (int)r->pid);
    label(out, "pid", text);
    snprintf(text, sizeof text, "%u", (unsigned)r->uid);
    label(out, "uid", text);
    label(out, "pod", pod->pod);
    label(out, "namespace", pod->namespace);
    label(out, "container", pod->container);
    label(out, "container_id", pod->container_id);
    /* a process that opened the driver twice is there more than once */
    for (uint32_t i = 0; i < at; i++)
        before += v->rows[i].pid == r->pid;
    snprintf(text, sizeof text, "%u", before + 1);
    if (before > 0)
        label(out, "part", text);
}

/* What is written: the view, and the labels of its rows, which are made once. */
struct text {
    struct tl_buf *out;
    const struct daemon_view *view;
    const struct daemon_names *names;
    struct tl_buf *rows;
};

static void row_labels(struct text *t, uint32_t at)
{
    if (t->rows[at].n == 0)
        make_labels(&t->rows[at], t->view, t->names, at, NULL);
    t->out->failed |= t->rows[at].failed;
    tl_buf_add(t->out, t->rows[at].p, t->rows[at].n);
}

static void put_seconds(struct tl_buf *out, uint64_t ns)
{
    tl_buf_printf(out, "%" PRIu64 ".%09" PRIu64, ns / SECOND_NS, ns % SECOND_NS);
}

/* --- families --------------------------------------------------------------------------------- */

enum type { COUNTER, GAUGE, INFO, HISTOGRAM };
enum kind { COUNT, NS, PERMILLE, LEVEL };

/* OpenMetrics names a counter's family without its suffix; Prometheus's older text does not, and
 * knows neither units nor infos. */
static void head(struct tl_buf *out, bool is_open, enum type type, const char *name,
                 const char *unit, const char *help)
{
    static const char *const types[] = {"counter", "gauge", "info", "histogram"};
    const char *suffix = is_open ? "" : type == COUNTER ? "_total" : type == INFO ? "_info" : "";
    tl_buf_printf(out, "# TYPE %s%s %s\n", name, suffix,
                  type == INFO && !is_open ? "gauge" : types[type]);
    if (is_open && unit[0] != 0)
        tl_buf_printf(out, "# UNIT %s %s\n", name, unit);
    tl_buf_printf(out, "# HELP %s%s %s\n", name, suffix, help);
}

struct number {
    const char *name, *unit, *help;
    enum type type;
    enum kind kind;
    uint64_t (*of)(const struct daemon_row *r);
    bool is_optional; /* 0 is none */
    /* what of it was on one GPU, where that is known; NULL: it belongs to the process */
    uint64_t (*on)(const struct daemon_row_gpu *g);
};

#define NUMBER_OF(name, expression)                                                                \
    static uint64_t name(const struct daemon_row *r)                                               \
    {                                                                                              \
        return (uint64_t)(expression);                                                             \
    }
NUMBER_OF(busy, r->device_ns)
NUMBER_OF(launches, r->launches)
NUMBER_OF(blocks, r->blocks)
NUMBER_OF(waited, r->waited_ns)
NUMBER_OF(preemptions, r->preemptions)
NUMBER_OF(uncontrolled, r->uncontrolled_ns)
NUMBER_OF(requests, r->requests)
NUMBER_OF(share, r->share_permille)
NUMBER_OF(share_min, r->c.min_permille)
NUMBER_OF(share_max, r->c.max_permille)
NUMBER_OF(level, r->c.level - TL_LEVEL_MIN)
NUMBER_OF(weight, r->c.weight != 0 ? r->c.weight : 100)
NUMBER_OF(memory, r->memory_bytes)
NUMBER_OF(memory_limit, r->c.memory_limit)
NUMBER_OF(memory_request, r->c.memory_request)
NUMBER_OF(memory_soft, r->c.memory_soft)
NUMBER_OF(may_run, r->may_run)
NUMBER_OF(has_work, r->has_work)
NUMBER_OF(waits, r->has_work && !r->may_run)
NUMBER_OF(paused, r->c.is_paused)
NUMBER_OF(stopped, r->is_stopped)
NUMBER_OF(in_flight, r->in_flight)
NUMBER_OF(slo, r->c.slo_ns)

#define NUMBER_ON(name, member)                                                                    \
    static uint64_t name(const struct daemon_row_gpu *g)                                           \
    {                                                                                              \
        return g->member;                                                                          \
    }
NUMBER_ON(busy_on, device_ns)
NUMBER_ON(launches_on, launches)
NUMBER_ON(blocks_on, blocks)
NUMBER_ON(preemptions_on, preemptions)

/* clang-format off */
static const struct number numbers[] = {
    {"tally_job_busy_seconds", "seconds", "Time of the device that its kernels took.", COUNTER, NS, busy, false, busy_on},
    {"tally_job_launches", "", "Kernels launched.", COUNTER, COUNT, launches, false, launches_on},
    {"tally_job_blocks", "", "Thread blocks run, of jobs that can be stopped.", COUNTER, COUNT, blocks, false, blocks_on},
    {"tally_job_waited_seconds", "seconds", "Time that ready work was held back.", COUNTER, NS, waited, false, NULL},
    {"tally_job_preemptions", "", "Times that a kernel left the device before its end: for somebody above, or its turn or share was over.", COUNTER, COUNT, preemptions, false, preemptions_on},
    {"tally_job_uncontrolled_seconds", "seconds", "Time of the device that ran outside control.", COUNTER, NS, uncontrolled, false, NULL},
    {"tally_job_requests", "", "Requests that ended, marked or inferred.", COUNTER, COUNT, requests, false, NULL},
    {"tally_job_share_ratio", "ratio", "Share of the device that it got, over half a second.", GAUGE, PERMILLE, share, false, NULL},
    {"tally_job_share_min_ratio", "ratio", "Share of the device that it asked for at least.", GAUGE, PERMILLE, share_min, true, NULL},
    {"tally_job_share_max_ratio", "ratio", "Share of the device that it may have at most.", GAUGE, PERMILLE, share_max, true, NULL},
    {"tally_job_level", "", "Priority, from -100 (low) to 100 (high).", GAUGE, LEVEL, level, false, NULL},
    {"tally_job_weight", "", "Weight among jobs of its level.", GAUGE, COUNT, weight, false, NULL},
    {"tally_job_memory_bytes", "bytes", "Device memory that the process holds.", GAUGE, COUNT, memory, false, NULL},
    {"tally_job_memory_limit_bytes", "bytes", "Device memory that it may hold on each GPU, with its tree.", GAUGE, COUNT, memory_limit, true, NULL},
    {"tally_job_memory_request_bytes", "bytes", "Device memory that is kept free for it.", GAUGE, COUNT, memory_request, true, NULL},
    {"tally_job_memory_soft_bytes", "bytes", "Device memory beyond which its pages may leave.", GAUGE, COUNT, memory_soft, true, NULL},
    {"tally_job_may_run", "", "1 while the policy lets it run.", GAUGE, COUNT, may_run, false, NULL},
    {"tally_job_has_work", "", "1 while it has work queued or in flight.", GAUGE, COUNT, has_work, false, NULL},
    {"tally_job_waiting", "", "1 while it has work and may not run.", GAUGE, COUNT, waits, false, NULL},
    {"tally_job_paused", "", "1 if it was paused (tally set).", GAUGE, COUNT, paused, false, NULL},
    {"tally_job_stopped", "", "1 if it is stopped by a signal or a debugger.", GAUGE, COUNT, stopped, false, NULL},
    {"tally_job_in_flight", "", "Pieces of kernels on the device.", GAUGE, COUNT, in_flight, false, NULL},
    {"tally_job_slo_seconds", "seconds", "Latency that it asked to be kept.", GAUGE, NS, slo, true, NULL},
};
/* clang-format on */

static void put_number(struct tl_buf *out, enum kind kind, uint64_t value)
{
    if (kind == NS)
        put_seconds(out, value);
    else if (kind == PERMILLE)
        tl_buf_printf(out, "%" PRIu64 ".%03" PRIu64, value / 1000, value % 1000);
    else if (kind == LEVEL)
        tl_buf_printf(out, "%d", (int)value + TL_LEVEL_MIN);
    else
        tl_buf_printf(out, "%" PRIu64, value);
}

/* A line of a number, up to where its labels begin and from where they end. */
static void begin_line(struct tl_buf *out, const struct number *n)
{
    tl_buf_printf(out, "%s%s", n->name, n->type == COUNTER ? "_total" : "");
}

static void end_line(struct tl_buf *out, const struct number *n, uint64_t value)
{
    tl_buf_puts(out, "} ");
    put_number(out, n->kind, value);
    tl_buf_putc(out, '\n');
}

static void put_by_gpu(struct text *t, const struct number *n, uint32_t at)
{
    const struct daemon_row *r = &t->view->rows[at];
    for (uint32_t k = 0; k < r->n_gpus; k++) {
        begin_line(t->out, n);
        make_labels(t->out, t->view, t->names, at, r->gpus[k].uuid);
        end_line(t->out, n, n->on(&r->gpus[k]));
    }
}

static void put_numbers(struct text *t)
{
    const struct daemon_view *v = t->view;
    for (size_t f = 0; f < sizeof numbers / sizeof numbers[0]; f++) {
        const struct number *n = &numbers[f];
        head(t->out, t->names->is_open, n->type, n->name, n->unit, n->help);
        for (uint32_t i = 0; i < v->n_rows; i++) {
            uint64_t value = n->of(&v->rows[i]);
            if (n->is_optional && value == 0)
                continue;
            if (n->on != NULL && v->rows[i].counts_by_gpu) {
                put_by_gpu(t, n, i);
                continue;
            }
            begin_line(t->out, n);
            row_labels(t, i);
            end_line(t->out, n, value);
        }
    }
}

/* --- histograms ------------------------------------------------------------------------------- */

static void put_buckets(struct text *t, const char *name, uint32_t at,
                        const struct daemon_histogram *h)
{
    struct tl_buf *out = t->out;
    uint64_t sum = 0;
    for (uint32_t b = 0; b < TL_SHARE_BUCKETS; b++) {
        sum = h->n[b] < UINT64_MAX - sum ? sum + h->n[b] : UINT64_MAX;
        tl_buf_printf(out, "%s_bucket", name);
        row_labels(t, at);
        if (b < TL_SHARE_BUCKETS - 1)
            tl_buf_printf(out, ",le=\"%.9g\"} %" PRIu64 "\n", (double)(UINT64_C(1) << b) / 1e6,
                          sum);
        else
            tl_buf_printf(out, ",le=\"+Inf\"} %" PRIu64 "\n", sum);
    }
    tl_buf_printf(out, "%s_count", name);
    row_labels(t, at);
    tl_buf_printf(out, "} %" PRIu64 "\n%s_sum", sum, name);
    row_labels(t, at);
    tl_buf_puts(out, "} ");
    put_seconds(out, h->sum_ns);
    tl_buf_putc(out, '\n');
}

static void put_histograms(struct text *t)
{
    const struct daemon_view *v = t->view;
    static const struct {
        const char *name, *help;
        size_t at;
    } families[] = {
        {"tally_job_preemption_seconds",
         "From the moment that somebody above had work until a kernel had left the device.",
         offsetof(struct daemon_row, preempted)},
        {"tally_job_request_seconds", "Requests from begin to end.",
         offsetof(struct daemon_row, requested)},
        {"tally_job_wait_seconds", "Launches that were ready until they were let go.",
         offsetof(struct daemon_row, waited)},
    };
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        head(t->out, t->names->is_open, HISTOGRAM, families[f].name, "seconds", families[f].help);
        for (uint32_t i = 0; i < v->n_rows; i++)
            put_buckets(t, families[f].name, i,
                        (const void *)((const char *)&v->rows[i] + families[f].at));
    }
}

/* --- GPUs and tallyd itself ------------------------------------------------------------------- */

/* What belongs to GPUs, and which processes use which. */
static void put_gpus(struct tl_buf *out, const struct daemon_view *v,
                     const struct daemon_names *names)
{
    head(out, names->is_open, GAUGE, "tally_gpu_memory_bytes", "bytes",
         "Memory of the GPU, as jobs on it tell.");
    for (uint32_t g = 0; g < v->n_gpus; g++) {
        tl_buf_puts(out, "tally_gpu_memory_bytes{");
        gpu_labels(out, v, names, v->gpus[g].uuid);
        tl_buf_printf(out, "} %" PRIu64 "\n", v->gpus[g].memory_bytes);
    }
    head(out, names->is_open, GAUGE, "tally_gpu_processes", "", "Processes that use the GPU.");
    for (uint32_t g = 0; g < v->n_gpus; g++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < v->n_rows; i++)
            for (uint32_t k = 0; k < v->rows[i].n_gpus; k++)
                n += memcmp(v->rows[i].gpus[k].uuid, v->gpus[g].uuid, 16) == 0;
        tl_buf_puts(out, "tally_gpu_processes{");
        gpu_labels(out, v, names, v->gpus[g].uuid);
        tl_buf_printf(out, "} %u\n", n);
    }
    head(out, names->is_open, INFO, "tally_job_gpu", "", "Which GPUs a process uses.");
    for (uint32_t i = 0; i < v->n_rows; i++)
        for (uint32_t k = 0; k < v->rows[i].n_gpus; k++) {
            tl_buf_puts(out, "tally_job_gpu_info");
            make_labels(out, v, names, i, v->rows[i].gpus[k].uuid);
            tl_buf_puts(out, "} 1\n");
        }
    head(out, names->is_open, GAUGE, "tally_job_tree_memory_bytes", "bytes",
         "Device memory that the process and those who share its limit hold.");
    for (uint32_t i = 0; i < v->n_rows; i++)
        for (uint32_t k = 0; k < v->rows[i].n_gpus; k++) {
            tl_buf_puts(out, "tally_job_tree_memory_bytes");
            make_labels(out, v, names, i, v->rows[i].gpus[k].uuid);
            tl_buf_printf(out, "} %" PRIu64 "\n", v->rows[i].gpus[k].tree_bytes);
        }
}

static void put_daemon(struct tl_buf *out, const struct daemon_view *v,
                       const struct daemon_names *names)
{
    head(out, names->is_open, INFO, "tally_build", "", "The tallyd that tells this.");
    tl_buf_puts(out, "tally_build_info{version=");
    daemon_metrics_value(out, tl_version);
    tl_buf_puts(out, ",policy=");
    daemon_metrics_value(out, v->policy);
    label(out, "Hostname", names->host);
    tl_buf_puts(out, "} 1\n");
    head(out, names->is_open, GAUGE, "tally_clients", "", "Processes that have joined.");
    tl_buf_printf(out, "tally_clients %u\n", v->n_rows);
    head(out, names->is_open, GAUGE, "tally_peers", "", "Connections to tallyd, tools included.");
    tl_buf_printf(out, "tally_peers %u\n", v->n_peers);
    head(out, names->is_open, COUNTER, "tally_scrapes", "", "Answers with metrics.");
    tl_buf_printf(out, "tally_scrapes_total %" PRIu64 "\n", names->scrapes);
    head(out, names->is_open, COUNTER, "tally_scrapes_refused", "",
         "Questions for metrics that were refused or cut off.");
    tl_buf_printf(out, "tally_scrapes_refused_total %" PRIu64 "\n", names->refused);
}

void daemon_metrics_text(struct tl_buf *out, const struct daemon_view *view,
                         const struct daemon_names *names)
{
    put_daemon(out, view, names);
    put_gpus(out, view, names);
    struct text t = {.out = out, .view = view, .names = names};
    t.rows = calloc(view->n_rows + 1, sizeof *t.rows);
    if (t.rows == NULL) {
        out->failed = true;
        return;
    }
    put_numbers(&t);
    put_histograms(&t);
    for (uint32_t i = 0; i < view->n_rows; i++)
        tl_buf_finish(&t.rows[i]);
    free(t.rows);
    if (names->is_open)
        tl_buf_puts(out, "# EOF\n");
}
