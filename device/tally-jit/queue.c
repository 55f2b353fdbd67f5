/* Who is compiled next.
 *
 * What somebody waits for has the level of the highest who does, and a level goes before all lower
 * ones, as it does on the device.  If all workers have something lower, the lowest of them is put
 * aside: its process is stopped where it is, another one takes the higher kernel, and the first
 * goes on when nothing higher waits any more.  So a compilation that takes long costs nobody above
 * it anything, and is not done twice.  As many as compile may be put aside at once; if there are
 * more levels than that, the lowest is given up and begins again later.
 *
 * The level is what the client says (TALLY_PRIORITY).  It is believed because all clients are one
 * user's (SO_PEERCRED), as is the device; none of them gets more than to be first here. */
#include "device/tally-jit/internal.h"
#include "tally/level.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- jobs ------------------------------------------------------------------------------------- */

int jit_new_job(struct server *s, const struct tl_jit_ask *a, size_t n, int ptx, struct job **out)
{
    struct job *job = calloc(1, sizeof *job);
    char *message = malloc(n);
    if (job == NULL || message == NULL) {
        free(job);
        free(message);
        close(ptx);
        return -ENOMEM;
    }
    memcpy(message, s->message, n);
    *job = (struct job){.message = message,
                        .message_n = n,
                        .ask = *a,
                        .ptx = ptx,
                        .is_ahead = true,
                        .level = a->level,
                        .ahead_level = a->level};
    (void)tl_jit_ask_check(message, n, &job->text, NULL); /* points into our copy now */
    job->ask.attempt = 0;
    job->ask.flags &= TL_JIT_CLOSED | TL_JIT_QUICK;
    job->ask.kind = TL_JIT_COMPILE; /* for the worker all are alike */
    if ((job->ask.flags & TL_JIT_QUICK) != 0)
        jit_shelf_load(s, job->text.cache, a->cache_mb);
    struct job **end = &s->jobs;
    while (*end != NULL)
        end = &(*end)->next;
    *end = job;
    *out = job;
    return 0;
}

void jit_free_job(struct server *s, struct job *job)
{
    for (struct job **p = &s->jobs; *p != NULL; p = &(*p)->next) {
        if (*p == job) {
            *p = job->next;
            break;
        }
    }
    close(job->ptx);
    free(job->message);
    free(job);
}

void jit_set_level(struct server *s, struct job *job)
{
    job->is_ahead = true;
    job->level = job->ahead_level;
    for (uint32_t i = 0; i < s->n_clients; i++) {
        const struct client *c = &s->clients[i];
        if (c->job == job && (job->is_ahead || c->level > job->level)) {
            job->is_ahead = false;
            job->level = c->level;
        }
    }
}

void jit_forget_ahead(struct server *s)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &s->workers[i];
        if (w->pid == 0 || w->job == NULL || !w->job->is_ahead)
            continue;
        jit_free_job(s, w->job);
        w->job = NULL;
        (void)jit_end_worker(w);
    }
    struct job *next;
    for (struct job *job = s->jobs; job != NULL; job = next) {
        next = job->next;
        if (job->is_ahead)
            jit_free_job(s, job);
    }
}

/* --- order ------------------------------------------------------------------------------------ */

/* Within a level, what somebody waits for comes before what was asked for ahead. */
static int rank_of(const struct job *job)
{
    return 2 * job->level + !job->is_ahead;
}

/* The first that no worker has; of equals the oldest. */
static struct job *first_waiting(const struct server *s)
{
    struct job *first = NULL;
    for (struct job *job = s->jobs; job != NULL; job = job->next)
        if (!job->is_running && (first == NULL || rank_of(job) > rank_of(first)))
            first = job;
    return first;
}

/* Of the workers that are put aside, or of those that are not: the one with the highest job, or the
 * lowest.  NULL if none has a job. */
static struct worker *find_busy(struct server *s, bool is_aside, bool is_highest)
{
    struct worker *found = NULL;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &s->workers[i];
        if (w->pid == 0 || w->job == NULL || (w->aside_ms != 0) != is_aside)
            continue;
        int by = found == NULL ? 0 : rank_of(w->job) - rank_of(found->job);
        if (found == NULL || (is_highest ? by > 0 : by < 0))
            found = w;
    }
    return found;
}

struct census {
    uint32_t busy, idle, aside;
};

static struct census count_workers(const struct server *s)
{
    struct census n = {0};
    for (uint32_t i = 0; i < WORKERS; i++) {
        const struct worker *w = &s->workers[i];
        if (w->pid == 0)
            continue;
        n.busy += w->job != NULL && w->aside_ms == 0;
        n.aside += w->job != NULL && w->aside_ms != 0;
        n.idle += w->job == NULL;
    }
    return n;
}

/* --- handing out ------------------------------------------------------------------------------ */

/* Ends idle workers until those that are not put aside are no more than asked for. */
static void trim(struct server *s)
{
    struct census n = count_workers(s);
    for (uint32_t i = 0; i < WORKERS && n.busy + n.idle > s->options->workers; i++) {
        struct worker *w = &s->workers[i];
        if (w->pid != 0 && w->job == NULL) {
            (void)jit_end_worker(w);
            n.idle--;
        }
    }
}

/* A worker for the job: an idle one, or a new one if the job has already cost one its life. */
static struct worker *find_worker(struct server *s, const struct job *job)
{
    struct worker *idle = NULL;
    for (uint32_t i = 0; i < WORKERS; i++)
        if (s->workers[i].pid != 0 && s->workers[i].job == NULL)
            idle = &s->workers[i];
    if (idle != NULL && job->ask.attempt == 0)
        return idle;
    if (idle != NULL)
        (void)jit_end_worker(idle);
    return jit_start_worker(s);
}

/* Makes room among those that are put aside: the lowest begins again later. */
static void give_up_lowest(struct server *s)
{
    struct worker *lowest = find_busy(s, true, false);
    if (lowest == NULL || count_workers(s).aside < s->options->workers)
        return;
    jit_note(s, "kernel %.200s: given up for now, others are above", lowest->job->text.kernel);
    lowest->job->is_running = false;
    lowest->job->ask.attempt--;
    (void)jit_end_worker(lowest);
}

/* Lets one that waits run, or one that was put aside go on: what is first.  False if there is
 * nothing to do, or nobody to do it. */
static bool assign_one(struct server *s)
{
    struct job *job = first_waiting(s);
    struct worker *aside = find_busy(s, true, true), *lowest;
    bool is_from_aside = aside != NULL && (job == NULL || rank_of(aside->job) >= rank_of(job));
    if (job == NULL && aside == NULL)
        return false;
    if (count_workers(s).busy >= s->options->workers) {
        int rank = rank_of(is_from_aside ? aside->job : job);
        lowest = find_busy(s, false, false);
        if (rank_of(lowest->job) >= rank)
            return false;
        if (!is_from_aside)
            give_up_lowest(s);
        jit_put_aside(s, lowest);
    }
    if (is_from_aside) {
        jit_go_on(s, aside);
        return true;
    }
    struct worker *w = find_worker(s, job);
    if (w != NULL) {
        jit_give_job(s, w, job);
        return true;
    }
    /* Nobody to be had: what was put aside, just now perhaps, need not wait for that. */
    aside = find_busy(s, true, true);
    if (aside != NULL)
        jit_go_on(s, aside);
    return false;
}

void jit_assign_jobs(struct server *s)
{
    while (assign_one(s))
        ;
    trim(s);
}
