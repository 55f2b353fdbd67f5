/* A group of checks in a process of its own.
 *
 * The child loads the driver and writes findings into a pipe, each in one piece.  The parent waits
 * for as long as something comes: a driver that hangs or crashes costs its group what was not told
 * yet, and becomes a finding itself. */
#include "runtime/doctor/group.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/doctor/driver.h"
#include "tally/array.h"
#include "tally/clock.h"

_Static_assert(sizeof(struct tl_doc_finding) <= PIPE_BUF, "written in one piece");

/* --- in the child ----------------------------------------------------------------------------- */

static void tell(struct tl_doc_exam *e, enum tl_doc_kind kind, const char *name)
{
    struct tl_doc_finding *f = &e->next;
    f->kind = kind;
    snprintf(f->name, sizeof f->name, "%s", name);
    ssize_t n = write(e->out, f, sizeof *f);
    if (n != (ssize_t)sizeof *f)
        _exit(3); /* nobody listens */
    struct tl_doc_finding next = {.gpu = e->gpu};
    memcpy(next.group, f->group, sizeof next.group);
    *f = next;
}

static void tell_text(struct tl_doc_exam *e, enum tl_doc_kind kind, const char *name,
                      const char *format, va_list args) __attribute__((format(printf, 4, 0)));
static void tell_text(struct tl_doc_exam *e, enum tl_doc_kind kind, const char *name,
                      const char *format, va_list args)
{
    vsnprintf(e->next.text, sizeof e->next.text, format, args);
    tell(e, kind, name);
}

void tl_doc_begin(struct tl_doc_exam *e, const char *name)
{
    tell(e, TL_DOC_BEGIN, name);
}

void tl_doc_number(struct tl_doc_exam *e, const char *key, double value)
{
    struct tl_doc_finding *f = &e->next;
    if (f->n_numbers == TL_DOC_NUMBERS)
        return;
    snprintf(f->numbers[f->n_numbers].key, sizeof f->numbers[0].key, "%s", key);
    f->numbers[f->n_numbers++].value = value;
}

void tl_doc_fact(struct tl_doc_exam *e, int gpu, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    e->next.gpu = gpu;
    tell_text(e, TL_DOC_FACT, name, format, args);
    va_end(args);
}

void tl_doc_works(struct tl_doc_exam *e, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    e->next.verdict = TL_VERDICT_WORKS;
    tell_text(e, TL_DOC_CHECK, name, format, args);
    va_end(args);
}

void tl_doc_refused(struct tl_doc_exam *e, const char *name, bool costs, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    e->next.verdict = TL_VERDICT_REFUSED;
    e->next.costs = costs;
    tell_text(e, TL_DOC_CHECK, name, format, args);
    va_end(args);
}

void tl_doc_wrong(struct tl_doc_exam *e, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    e->next.verdict = TL_VERDICT_WRONG;
    tell_text(e, TL_DOC_CHECK, name, format, args);
    va_end(args);
}

bool tl_doc_open(struct tl_doc_exam *e)
{
    struct tl_error err;
    CUdevice device;
    CUcontext context;
    tl_doc_begin(e, "open");
    if (tl_doc_driver_load(e->driver, &err) < 0) {
        tl_doc_refused(e, "open", true, "%s", err.text);
        return false;
    }
    CUresult r = tl_doc_driver.cuInit(0);
    if (r != CUDA_SUCCESS) {
        tl_doc_refused(e, "open", true, "cuInit: %s", tl_doc_error(r));
        return false;
    }
    if (e->gpu < 0)
        return true;
    r = tl_doc_driver.cuDeviceGet(&device, e->gpu);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuDevicePrimaryCtxRetain(&context, device);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuCtxSetCurrent(context);
    if (r != CUDA_SUCCESS)
        tl_doc_refused(e, "open", true, "no context: %s", tl_doc_error(r));
    return r == CUDA_SUCCESS;
}

/* What a crash leaves is a finding, not a file; and who examines goes, the examination goes
 * with. */
static void run_child(const struct tl_doctor *d, const struct tl_doc_group *g, int gpu, int out)
{
    struct rlimit none = {0, 0};
    struct tl_doc_exam e = {.driver = d->driver, .random = d->seed, .gpu = gpu, .out = out};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    e.next.gpu = gpu;
    snprintf(e.next.group, sizeof e.next.group, "%s", g->name);
    g->run(&e);
    tell(&e, TL_DOC_END, "");
    /* The driver's own end is no part of the check; it is the driver's to clean up behind us. */
    _exit(0);
}

/* --- in the parent ---------------------------------------------------------------------------- */

void tl_doc_add(struct tl_doctor *d, const struct tl_doc_finding *f)
{
    if (!TL_ARRAY_FIT(d->findings, d->cap, d->n + 1)) {
        d->has_failed_memory = true;
        return;
    }
    d->findings[d->n++] = *f;
}

/* A driver that has gone mad may have written into what its process told. */
static void make_sane(struct tl_doc_finding *f, const struct tl_doc_group *g, int gpu)
{
    snprintf(f->group, sizeof f->group, "%s", g->name);
    f->name[sizeof f->name - 1] = 0;
    f->text[sizeof f->text - 1] = 0;
    if (gpu >= 0)
        f->gpu = gpu;
    if (f->kind >= TL_DOC_KINDS)
        f->kind = TL_DOC_FACT;
    if (f->verdict >= TL_VERDICTS)
        f->verdict = TL_VERDICT_WRONG;
    if (f->n_numbers > TL_DOC_NUMBERS)
        f->n_numbers = TL_DOC_NUMBERS;
    for (uint32_t i = 0; i < TL_DOC_NUMBERS; i++)
        f->numbers[i].key[sizeof f->numbers[0].key - 1] = 0;
}

/* The next finding: 1, 0 (the pipe's end), -ETIMEDOUT. */
static int hear(int in, struct tl_doc_finding *f, uint32_t patience_s)
{
    int64_t end = tl_clock_ms() + (int64_t)patience_s * 1000;
    size_t have = 0;
    while (have < sizeof *f) {
        int64_t left = end - tl_clock_ms();
        struct pollfd p = {.fd = in, .events = POLLIN};
        if (left <= 0)
            return -ETIMEDOUT;
        if (poll(&p, 1, left > INT_MAX ? INT_MAX : (int)left) <= 0)
            continue;
        ssize_t n = read(in, (char *)f + have, sizeof *f - have);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return 0;
        have += (size_t)n;
    }
    return 1;
}

/* Ends the child, if it can be ended: one that hangs inside the kernel cannot. */
static bool reap(pid_t child, bool is_killed, int *status)
{
    int64_t end = tl_clock_ms() + 5000;
    if (is_killed)
        kill(child, SIGKILL);
    for (;;) {
        pid_t r = waitpid(child, status, WNOHANG);
        if (r == child)
            return true;
        if (r < 0 && errno != EINTR)
            return false;
        if (tl_clock_ms() >= end) {
            if (is_killed)
                return false;
            kill(child, SIGKILL); /* it told its end, and does not end */
            is_killed = true;
            end = tl_clock_ms() + 5000;
        }
        poll(NULL, 0, 2);
    }
}

static void tell_death(struct tl_doctor *d, const struct tl_doc_group *g, int gpu,
                       const char *during, bool has_hung, bool is_reaped, int status)
{
    struct tl_doc_finding f = {.kind = TL_DOC_CHECK, .verdict = TL_VERDICT_WRONG, .gpu = gpu};
    snprintf(f.group, sizeof f.group, "%s", g->name);
    snprintf(f.name, sizeof f.name, "%s", during);
    if (has_hung)
        snprintf(f.text, sizeof f.text, "hung after %u s%s", d->patience_s,
                 is_reaped ? "" : "; its process cannot be ended");
    else if (is_reaped && WIFSIGNALED(status))
        snprintf(f.text, sizeof f.text, "ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(f.text, sizeof f.text, "ended too early, with status %d",
                 is_reaped ? WEXITSTATUS(status) : -1);
    tl_doc_add(d, &f);
}

void tl_doc_group_run(struct tl_doctor *d, const struct tl_doc_group *g, int gpu)
{
    struct tl_doc_finding f;
    char during[sizeof f.name] = "start";
    int ends[2], status = 0, rc;
    bool has_ended = false;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        tell_death(d, g, gpu, during, false, false, 0);
        return;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        run_child(d, g, gpu, ends[1]);
    }
    close(ends[1]);
    while (child > 0 && (rc = hear(ends[0], &f, d->patience_s)) > 0) {
        make_sane(&f, g, gpu);
        has_ended |= f.kind == TL_DOC_END;
        if (f.kind == TL_DOC_BEGIN) {
            snprintf(during, sizeof during, "%s", f.name);
            if (d->progress != NULL)
                d->progress(d->progress_data, gpu, g->name, f.name);
        } else if (f.kind != TL_DOC_END) {
            tl_doc_add(d, &f);
        }
        if (has_ended)
            break;
    }
    close(ends[0]);
    bool has_hung = child > 0 && !has_ended && rc == -ETIMEDOUT;
    bool is_reaped = child > 0 && reap(child, has_hung, &status);
    if (!has_ended)
        tell_death(d, g, gpu, during, has_hung, is_reaped, status);
}
