/* The processes that compile: how they begin, end, and are given something to do. */
#include "device/tally-jit/internal.h"
#include "device/tally-jit/worker.h"
#include "tally/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A worker that neither answers nor uses its CPU time is ended after this. */
#define STUCK_FACTOR 5
#define LARGE_PTX (256u << 10)

/* Forked from this process, in which LLVM is loaded and initialised but has seen nothing: that
 * takes a millisecond. */
struct worker *jit_start_worker(struct server *s)
{
    struct worker *w = NULL;
    int ends[2];
    for (uint32_t i = 0; i < WORKERS && w == NULL; i++)
        if (s->workers[i].pid == 0)
            w = &s->workers[i];
    if (w == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return NULL;
    /* Who is stopped before it has said that it dies with us would stay for ever: so the other end
     * of this pipe is closed when it has. */
    int log = memfd_create("tally-jit log", MFD_CLOEXEC), said[2] = {-1, -1};
    pid_t pid = log < 0 || pipe2(said, O_CLOEXEC) < 0 ? -1 : fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(said[1]);
        struct sigaction plain = {.sa_handler = SIG_DFL};
        for (int i = 1; i < NSIG; i++)
            (void)sigaction(i, &plain, NULL);
        (void)sigprocmask(SIG_SETMASK, &s->waiting_mask, NULL);
        (void)fcntl(log, F_SETFL, O_APPEND);
        tl_jit_worker_run(ends[1], log, s->id, jit_shelf_of_worker(s));
    }
    int why = errno;
    char byte;
    close(ends[1]);
    if (said[0] >= 0) {
        close(said[1]);
        while (pid > 0 && read(said[0], &byte, 1) < 0 && errno == EINTR)
            ;
        close(said[0]);
    }
    errno = why;
    if (pid < 0) {
        jit_note(s, "no worker: %s", strerror(errno));
        close(ends[0]);
        if (log >= 0)
            close(log);
        return NULL;
    }
    *w = (struct worker){.pid = pid, .fd = ends[0], .log = log};
    return w;
}

int jit_end_worker(struct worker *w)
{
    int status = 0;
    close(w->fd);
    kill(w->pid, SIGKILL);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(w->log);
    w->pid = 0;
    return status;
}

/* The first line that a worker said before it died, printable. */
static void read_log(int log, char *line, size_t n)
{
    ssize_t got = pread(log, line, n - 1, 0);
    line[got > 0 ? got : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    for (char *p = line; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            *p = '?';
}

/* A job whose worker died or came to no end is tried once more, in a new one and in another way:
 * the cause may have been an earlier job, or LLVM.  What took too long is left to as little of LLVM
 * as possible; what took too long after a death as well, with a third attempt. */
void jit_bury_worker(struct server *s, struct worker *w)
{
    struct job *job = w->job;
    char said[300] = "", how[64], text[1000];
    read_log(w->log, said, sizeof said);
    bool is_overdue = w->is_overdue;
    int status = jit_end_worker(w);
    if (job == NULL)
        return;
    s->n_deaths++;
    job->is_running = false;
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(how, sizeof how, "exit status %d", WEXITSTATUS(status));
    jit_note(s, "kernel %.200s: the worker died at attempt %u: %s: %s", job->text.kernel,
             job->ask.attempt, how, said);
    bool is_late = WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU;
    bool was_least = (job->ask.flags & TL_JIT_LEAST) != 0;
    job->ask.flags |= is_late ? TL_JIT_LEAST : TL_JIT_PLAIN;
    if (job->ask.ptx_bytes > LARGE_PTX) /* it may have died of what it needed of memory */
        job->ask.flags |= TL_JIT_LEAST;
    if (is_overdue || (is_late && was_least)) {
        snprintf(text, sizeof text,
                 "kernel %.400s: compiling it took more than %u s, and was stopped",
                 job->text.kernel, tl_jit_limit_seconds());
        jit_finish_job(s, job, TL_JIT_FAILED, -ETIMEDOUT, text, -1, 0);
    } else if (!is_late && job->ask.attempt >= 2) {
        snprintf(text, sizeof text, "kernel %.400s: the compiler died twice of it: %s%s%s",
                 job->text.kernel, how, said[0] != '\0' ? ": " : "", said);
        jit_finish_job(s, job, TL_JIT_FAILED, -EIO, text, -1, 0);
    }
}

void jit_hear_worker(struct server *s, struct worker *w)
{
    struct tl_error err = {0};
    const char *text;
    int fd, n = tl_jit_receive(w->fd, s->message, sizeof s->message, &fd);
    if (n <= 0 || w->job == NULL || tl_jit_answer_check(s->message, (size_t)n, &text, &err) < 0) {
        if (fd >= 0)
            close(fd);
        jit_bury_worker(s, w);
        return;
    }
    struct job *job = w->job;
    struct tl_jit_answer a;
    memcpy(&a, s->message, sizeof a);
    if (a.kind == TL_JIT_FORMS) { /* the answer comes behind it */
        if (fd >= 0) {
            jit_shelf_add(s, fd, a.object_bytes);
            close(fd);
        }
        return;
    }
    if (w->aside_ms != 0) /* it had answered before it was stopped */
        jit_go_on(s, w);
    w->job = NULL;
    if (a.kind == TL_JIT_DONE && fd >= 0)
        jit_keep_object(s, job, fd, a.object_bytes);
    else
        jit_finish_job(s, job, TL_JIT_FAILED, a.code < 0 ? a.code : -EIO, text, -1, 0);
    if (fd >= 0)
        close(fd);
    if (w->n_work >= WORK_PER_WORKER)
        (void)jit_end_worker(w);
}

void jit_give_job(struct server *s, struct worker *w, struct job *job)
{
    job->ask.attempt++;
    memcpy(job->message, &job->ask, sizeof job->ask);
    if (ftruncate(w->log, 0) < 0)
        jit_note(s, "a worker's messages stay from one kernel to the next: %s", strerror(errno));
    w->job = job;
    w->n_work += (job->ask.flags & TL_JIT_QUICK) != 0 ? WORK_OF_QUICK : WORK_OF_ONE;
    w->is_overdue = false;
    w->until_ms = tl_clock_ms() + (int64_t)tl_jit_limit_seconds() * 1000 * STUCK_FACTOR;
    job->is_running = true;
    if (tl_jit_send(w->fd, job->message, job->message_n, job->ptx) < 0)
        jit_bury_worker(s, w);
}

/* A process that is stopped holds nothing but memory, and dies with the service as others do. */
void jit_put_aside(struct server *s, struct worker *w)
{
    jit_note(s, "kernel %.200s: put aside", w->job->text.kernel);
    kill(w->pid, SIGSTOP);
    w->aside_ms = tl_clock_ms();
}

void jit_go_on(struct server *s, struct worker *w)
{
    jit_note(s, "kernel %.200s: goes on", w->job->text.kernel);
    kill(w->pid, SIGCONT);
    w->until_ms += tl_clock_ms() - w->aside_ms;
    w->aside_ms = 0;
}

void jit_check_workers(struct server *s, int64_t now_ms)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &s->workers[i];
        if (w->pid != 0 && w->job != NULL && w->aside_ms == 0 && now_ms > w->until_ms &&
            !w->is_overdue) {
            w->is_overdue = true;
            kill(w->pid, SIGKILL);
        }
    }
}
