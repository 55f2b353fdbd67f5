/* The report for people: 80 columns, verdicts last. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/doctor/doctor.h"
#include "tally/text.h"

enum { COLUMNS = 80, FACT_INDENT = 11, CHECK_INDENT = 33, MOST_DETAILS = 3 };

/* Adds a text that begins at column `at`, broken at blanks; further lines begin there, too. */
static void put_wrapped(struct tl_buf *out, int at, const char *text)
{
    int column = at;
    while (*(text += strspn(text, " ")) != 0) {
        int word = (int)strcspn(text, " ");
        if (column > at && column + 1 + word > COLUMNS) {
            tl_buf_printf(out, "\n%*s", at, "");
            column = at;
        } else if (column > at) {
            tl_buf_putc(out, ' ');
            column++;
        }
        tl_buf_add(out, text, (size_t)word);
        column += word;
        text += word;
    }
    tl_buf_putc(out, '\n');
}

static void put_fact(struct tl_buf *out, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void put_fact(struct tl_buf *out, const char *title, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tl_buf_printf(out, "%-*s", FACT_INDENT, title);
    put_wrapped(out, FACT_INDENT, text);
}

/* A fact, or "?" if it was not told. */
static const char *told(const struct tl_doctor *d, int gpu, const char *name)
{
    const char *text = tl_doctor_fact(d, gpu, name);
    return text != NULL ? text : "?";
}

/* Bytes as people read them, if it is a number. */
static struct tl_text bytes_of(const struct tl_doctor *d, int gpu, const char *name)
{
    const char *text = told(d, gpu, name);
    struct tl_text t;
    char *end;
    double n = strtod(text, &end);
    if (end != text && *end == 0)
        return tl_text_bytes(n);
    snprintf(t.s, sizeof t.s, "%s", text);
    return t;
}

static void put_host(const struct tl_doctor *d, struct tl_buf *out)
{
    const char *version = tl_doctor_fact(d, -1, "cuda-version");
    int v = version != NULL ? atoi(version) : 0;
    put_fact(out, "Tally", "%s, seed %llu", told(d, -1, "tally-version"),
             (unsigned long long)d->seed);
    put_fact(out, "Driver", "%s", d->driver);
    if (v > 0)
        put_fact(out, "", "CUDA %d.%d, kernel module: %s", v / 1000, v % 1000 / 10,
                 told(d, -1, "kernel-module"));
    put_fact(out, "", "%s", d->why);
    put_fact(out, "MPS", "%s", told(d, -1, "mps"));
    if (tl_doctor_fact(d, -1, "mps-faults") != NULL)
        put_fact(out, "", "%s", told(d, -1, "mps-faults"));
    if (tl_doctor_fact(d, -1, "mps-threads") != NULL)
        put_fact(out, "", "at most %s of the threads", told(d, -1, "mps-threads"));
    if (tl_doctor_fact(d, -1, "mps-memory") != NULL)
        put_fact(out, "", "memory: %s", told(d, -1, "mps-memory"));
    put_fact(
        out, "Limits",
        "locked memory %s, /dev/shm %s (%s free), seccomp: %s, container: %s, nice %s, %s CPUs",
        bytes_of(d, -1, "memlock").s, bytes_of(d, -1, "shm-bytes").s,
        bytes_of(d, -1, "shm-free-bytes").s, told(d, -1, "seccomp"), told(d, -1, "container"),
        told(d, -1, "nice"), told(d, -1, "cpus"));
}

/* What is lost without a function, behind its name; NULL if it is no such finding. */
static const char *lost_of(const struct tl_doc_finding *f)
{
    const char *colon = f->kind == TL_DOC_FACT && strcmp(f->name, "missing") == 0
                            ? strstr(f->text, ": ")
                            : NULL;
    return colon != NULL ? colon + 2 : NULL;
}

/* Functions that are missing, those with the same consequence together. */
static void put_missing(const struct tl_doctor *d, struct tl_buf *out)
{
    const char *title = "Missing";
    for (uint32_t i = 0; i < d->n; i++) {
        const char *lost = lost_of(&d->findings[i]), *next;
        char names[700] = "";
        size_t n = 0;
        if (lost == NULL)
            continue;
        for (;; i++) {
            const struct tl_doc_finding *f = &d->findings[i];
            if (n < sizeof names)
                n += (size_t)snprintf(names + n, sizeof names - n, "%s%.*s", n > 0 ? ", " : "",
                                      (int)(lost_of(f) - 2 - f->text), f->text);
            next = i + 1 < d->n ? lost_of(f + 1) : NULL;
            if (next == NULL || strcmp(next, lost) != 0)
                break;
        }
        put_fact(out, title, "%s: %s", names, lost);
        title = "";
    }
}

static void put_gpu(const struct tl_doctor *d, int gpu, struct tl_buf *out)
{
    static const char *const attributes[] = {"host-atomics",
                                             "read-only-registration",
                                             "host-registration",
                                             "cooperative-launch",
                                             "stream-memory-operations-64",
                                             "compute-preemption",
                                             "stream-priorities",
                                             "copy-engines",
                                             "blocks-per-sm"};
    char title[16], arch[16], line[512] = "";
    size_t n = 0;
    snprintf(title, sizeof title, "GPU %d", gpu);
    tl_doctor_arch(d, gpu, arch, sizeof arch);
    put_fact(out, title, "%s", told(d, gpu, "name"));
    put_fact(out, "", "%s", told(d, gpu, "uuid"));
    put_fact(out, "", "%s, %s SMs, %s, MIG: %s", arch, told(d, gpu, "sms"),
             bytes_of(d, gpu, "memory").s, told(d, gpu, "mig"));
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0] && n < sizeof line; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%s %s", i > 0 ? ", " : "",
                              attributes[i], told(d, gpu, attributes[i]));
    put_fact(out, "", "%s", line);
}

/* --- verdicts --------------------------------------------------------------------------------- */

static void put_check(const char *name, enum tl_verdict v, const char *text, struct tl_buf *out)
{
    tl_buf_printf(out, "  %-22s%-9s", name, tl_verdict_name(v));
    put_wrapped(out, CHECK_INDENT, text);
}

/* What the checks of a rung come to, if all is well: how many kernels, how many stops. */
static void describe(const struct tl_doctor *d, int gpu, const char *group, char *text, size_t size)
{
    uint32_t kernels = 0;
    double stops = 0, effective = 0;
    const char *latency = "";
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tl_doc_finding *f = &d->findings[i];
        if (f->kind != TL_DOC_CHECK || f->gpu != gpu || strcmp(f->group, group) != 0)
            continue;
        if (strcmp(f->name, "latency") == 0)
            latency = f->text;
        for (uint32_t k = 0; k < f->n_numbers; k++) {
            kernels += strcmp(f->numbers[k].key, "blocks") == 0;
            if (strcmp(f->name, "latency") != 0 && strcmp(f->numbers[k].key, "stops") == 0)
                stops += f->numbers[k].value;
            if (strcmp(f->numbers[k].key, "stops_with_blocks_left") == 0)
                effective += f->numbers[k].value;
        }
        if (kernels == 0)
            snprintf(text, size, "%s", f->text);
    }
    if (kernels > 0 && stops > 0)
        snprintf(text, size,
                 "%u kernels, bit by bit, told to stop %.0f times (%.0f with blocks left); %s",
                 kernels, stops, effective, latency);
    else if (kernels > 0)
        snprintf(text, size, "%u kernels, bit by bit, in pieces of random sizes; %s", kernels,
                 latency);
}

static bool is_of_rung(const char *group)
{
    for (int r = 0; r < TL_QUALIFIED_RUNGS; r++)
        if (strcmp(group, tl_qualified_rung_name((enum tl_qualified_rung)r)) == 0)
            return true;
    return false;
}

static void put_rungs(const struct tl_doctor *d, int gpu, struct tl_buf *out)
{
    if (d->only == NULL || is_of_rung(d->only))
        tl_buf_printf(out, "\nGPU %d, rungs\n", gpu);
    for (int r = 0; r < TL_QUALIFIED_RUNGS; r++) {
        const char *name = tl_qualified_rung_name((enum tl_qualified_rung)r);
        char why[512] = "";
        if (d->only != NULL && strcmp(d->only, name) != 0)
            continue;
        enum tl_verdict v = tl_doctor_rung(d, gpu, (enum tl_qualified_rung)r, why, sizeof why);
        if (v == TL_VERDICT_WORKS)
            describe(d, gpu, name, why, sizeof why);
        put_check(name, v, why, out);
    }
}

static void put_capabilities(const struct tl_doctor *d, int gpu, struct tl_buf *out)
{
    if (d->only == NULL || !is_of_rung(d->only))
        tl_buf_printf(out, "\nGPU %d, capabilities\n", gpu);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tl_doc_finding *f = &d->findings[i];
        if (f->kind == TL_DOC_CHECK && f->gpu == gpu && !is_of_rung(f->group))
            put_check(f->name, (enum tl_verdict)f->verdict, f->text, out);
    }
}

/* What else did not work on rungs, beside what they are judged by: a few of each, since one fault
 * shows in many kernels. */
static void put_details(const struct tl_doctor *d, int gpu, struct tl_buf *out)
{
    bool has_title = false;
    for (int r = 0; r < TL_QUALIFIED_RUNGS; r++) {
        const char *group = tl_qualified_rung_name((enum tl_qualified_rung)r);
        char why[512], line[512], name[64];
        uint32_t n = 0;
        tl_doctor_rung(d, gpu, (enum tl_qualified_rung)r, why, sizeof why);
        for (uint32_t i = 0; i < d->n; i++) {
            const struct tl_doc_finding *f = &d->findings[i];
            snprintf(line, sizeof line, "%s: %s", f->name, f->text);
            if (f->kind != TL_DOC_CHECK || f->gpu != gpu || strcmp(f->group, group) != 0 ||
                f->verdict == TL_VERDICT_WORKS || strcmp(line, why) == 0 || n++ >= MOST_DETAILS)
                continue;
            if (!has_title)
                tl_buf_printf(out, "\nGPU %d, more that did not work\n", gpu);
            has_title = true;
            snprintf(name, sizeof name, "%s, %s", f->group, f->name);
            put_check(name, (enum tl_verdict)f->verdict, f->text, out);
        }
        if (n > MOST_DETAILS)
            tl_buf_printf(out, "  %s, and %u more, which --json lists\n", group, n - MOST_DETAILS);
    }
}

void tl_doctor_text(const struct tl_doctor *d, struct tl_buf *out)
{
    const char *gpus = tl_doctor_fact(d, -1, "gpus");
    int n = gpus != NULL ? atoi(gpus) : 0;
    put_host(d, out);
    for (int gpu = 0; gpu < n; gpu++)
        put_gpu(d, gpu, out);
    put_missing(d, out);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tl_doc_finding *f = &d->findings[i];
        if (f->kind == TL_DOC_CHECK && f->gpu < 0 && f->verdict != TL_VERDICT_WORKS)
            put_check(f->name, (enum tl_verdict)f->verdict, f->text, out);
    }
    for (int gpu = 0; gpu < n; gpu++) {
        if (d->gpu >= 0 && d->gpu != gpu)
            continue;
        put_rungs(d, gpu, out);
        put_capabilities(d, gpu, out);
        put_details(d, gpu, out);
    }
}
