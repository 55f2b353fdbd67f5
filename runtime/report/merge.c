/* From files to jobs: the processes of one job are added up, jobs are put in order, kernels get
 * names, and late requests their rivals. */
#include "runtime/report/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *tl_report_order_name(enum tl_report_order o)
{
    static const char *const names[] = {"time",      "launches", "p99", "queued",
                                        "preempted", "outside",  "name"};
    return (unsigned)o < TL_ORDERS ? names[o] : "?";
}

const struct tl_report_histogram *tl_report_requests(const struct tl_report_job *j)
{
    return j->marked.count > 0 ? &j->marked : &j->inferred;
}

double tl_report_active_s(const struct tl_report_job *j)
{
    uint64_t from = j->first_ns > 0 ? j->first_ns : j->begin_ns;
    return (double)(j->last_ns > from ? j->last_ns - from : 1) / 1e9;
}

/* --- kernels of a job --- */

static int by_name(const void *a, const void *b)
{
    const struct tl_report_kernel *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int add_kernel(struct tl_report_kernel *to, const struct tl_report_kernel *k,
                      struct tl_arena *arena)
{
    for (int g = 0; g < TL_RUNGS; g++) {
        to->launches[g] += k->launches[g];
        to->blocks[g] += k->blocks[g];
    }
    to->all_launches += k->all_launches;
    to->all_blocks += k->all_blocks;
    to->uncontrolled += k->uncontrolled;
    to->uncontrolled_ns += k->uncontrolled_ns;
    to->rescues += k->rescues;
    if (tl_report_ops_add(to, k, arena) < 0 ||
        tl_histogram_add(&to->queued, &k->queued, arena) < 0 ||
        tl_histogram_add(&to->ran, &k->ran, arena) < 0 ||
        tl_histogram_add(&to->total, &k->total, arena) < 0 ||
        tl_histogram_add(&to->preempted, &k->preempted, arena) < 0 ||
        tl_histogram_add(&to->preempted_blocks, &k->preempted_blocks, arena) < 0)
        return -ENOMEM;
    return 0;
}

static bool says_something(const struct tl_report_kernel *k)
{
    return k->all_launches > 0 || k->total.count > 0 || k->uncontrolled > 0 ||
           k->preempted.count > 0;
}

/* Kernels of one name are one kernel; each process's learns which.  The one that stands for all
 * others stays out if it is empty. */
static int merge_kernels(struct tl_report_job *job, struct tl_report_job *processes, uint32_t n,
                         struct tl_arena *arena)
{
    size_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += processes[i].n_kernels;
    struct tl_report_kernel **all = calloc(total > 0 ? total : 1, sizeof *all);
    job->kernels = tl_arena_zalloc(arena, (total > 0 ? total : 1) * sizeof *job->kernels);
    if (all == NULL || job->kernels == NULL) {
        free(all);
        return -ENOMEM;
    }
    total = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < processes[i].n_kernels; k++)
            all[total++] = &processes[i].kernels[k];
    if (total > 0)
        qsort(all, total, sizeof *all, by_name);
    int rc = 0;
    struct tl_report_kernel *last = NULL;
    for (size_t i = 0; i < total && rc == 0; i++) {
        all[i]->merged = TL_REPORT_NO_KERNEL;
        if (!says_something(all[i]))
            continue;
        if (last == NULL || strcmp(last->name, all[i]->name) != 0) {
            last = &job->kernels[job->n_kernels++];
            last->name = all[i]->name;
        }
        all[i]->merged = job->n_kernels - 1;
        rc = add_kernel(last, all[i], arena);
    }
    free(all);
    return rc;
}

static uint32_t merged_kernel(const struct tl_report_job *process, uint32_t kernel)
{
    return kernel < process->n_kernels ? process->kernels[kernel].merged : TL_REPORT_NO_KERNEL;
}

/* --- the other lists of a job --- */

static int by_latency(const void *a, const void *b)
{
    const struct tl_report_slow *x = a, *y = b;
    return (x->latency_ns < y->latency_ns) - (x->latency_ns > y->latency_ns);
}

static int by_number(const void *a, const void *b)
{
    const struct tl_report_slot *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static int by_begin(const void *a, const void *b)
{
    const struct tl_report_span *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static void add_note(struct tl_report_job *job, const struct tl_report_note *note)
{
    for (uint32_t i = 0; i < job->n_notes; i++) {
        if (strcmp(job->notes[i].text, note->text) == 0) {
            job->notes[i].times += note->times;
            return;
        }
    }
    job->notes[job->n_notes++] = *note;
}

static void add_slots(struct tl_report_job *job)
{
    if (job->n_slots == 0)
        return;
    qsort(job->slots, job->n_slots, sizeof *job->slots, by_number);
    uint32_t n = 0;
    for (uint32_t i = 1; i < job->n_slots; i++) {
        struct tl_report_slot *to = &job->slots[n], *from = &job->slots[i];
        if (to->number != from->number) {
            job->slots[++n] = *from;
            continue;
        }
        to->run_ns += from->run_ns;
        to->wait_ns += from->wait_ns;
        to->requests += from->requests;
        to->slowest_ns = to->slowest_ns > from->slowest_ns ? to->slowest_ns : from->slowest_ns;
    }
    job->n_slots = n + 1;
}

/* Slow requests, notes, activity and spans of all processes in one list each.  0 or -ENOMEM. */
static int merge_lists(struct tl_report_job *job, const struct tl_report_job *processes, uint32_t n,
                       struct tl_arena *arena)
{
    size_t slow = 1, notes = 1, slots = 1, spans = 1;
    for (uint32_t i = 0; i < n; i++) {
        slow += processes[i].n_slow;
        notes += processes[i].n_notes;
        slots += processes[i].n_slots;
        spans += processes[i].n_spans;
    }
    job->slow = tl_arena_alloc(arena, slow * sizeof *job->slow);
    job->notes = tl_arena_alloc(arena, notes * sizeof *job->notes);
    job->slots = tl_arena_alloc(arena, slots * sizeof *job->slots);
    job->spans = tl_arena_alloc(arena, spans * sizeof *job->spans);
    if (job->slow == NULL || job->notes == NULL || job->slots == NULL || job->spans == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const struct tl_report_job *p = &processes[i];
        for (uint32_t k = 0; k < p->n_slow; k++) {
            job->slow[job->n_slow] = p->slow[k];
            job->slow[job->n_slow++].culprit = merged_kernel(p, p->slow[k].culprit);
        }
        for (uint32_t k = 0; k < p->n_spans; k++) {
            job->spans[job->n_spans] = p->spans[k];
            job->spans[job->n_spans++].kernel = merged_kernel(p, p->spans[k].kernel);
        }
        for (uint32_t k = 0; k < p->n_slots; k++)
            job->slots[job->n_slots++] = p->slots[k];
        for (uint32_t k = 0; k < p->n_notes; k++)
            add_note(job, &p->notes[k]);
    }
    if (job->n_slow > 0)
        qsort(job->slow, job->n_slow, sizeof *job->slow, by_latency);
    if (job->n_spans > 0)
        qsort(job->spans, job->n_spans, sizeof *job->spans, by_begin);
    add_slots(job);
    return 0;
}

/* --- a job --- */

static void add_head(struct tl_report_job *job, const struct tl_report_job *p)
{
    job->n_processes += p->n_processes;
    job->n_unended += p->n_unended;
    job->is_opaque |= p->is_opaque;
    job->is_full |= p->is_full;
    job->forgotten_spans += p->forgotten_spans;
    if (p->begin_ns < job->begin_ns) {
        job->begin_ns = p->begin_ns;
        job->begin_wall_ns = p->begin_wall_ns;
    }
    if (p->first_ns != 0 && (job->first_ns == 0 || p->first_ns < job->first_ns))
        job->first_ns = p->first_ns;
    job->last_ns = job->last_ns > p->last_ns ? job->last_ns : p->last_ns;
    for (int c = 0; c < TL_COPIES; c++) {
        job->copies[c].count += p->copies[c].count;
        job->copies[c].bytes += p->copies[c].bytes;
    }
    for (int g = 0; g < TL_GRAPH_COUNTS; g++)
        job->graphs[g] += p->graphs[g];
}

/* Jobs of high priority have only some of their launches measured.  (A launch that is run in pieces
 * may be measured more than once: then nothing is missing.) */
static void estimate(struct tl_report_job *job, struct tl_report_kernel *k)
{
    double scale = 1;
    if (k->ran.count > 0 && k->all_launches > k->ran.count)
        scale = (double)k->all_launches / (double)k->ran.count;
    /* A few are always on their way when a job is killed. */
    job->is_sampled |= k->all_launches > k->ran.count + k->ran.count / 8 + 16;
    k->device_ns = (uint64_t)fmin((double)k->ran.sum * scale, 1e19);
    k->waited_ns = (uint64_t)fmin((double)k->queued.sum * scale, 1e19);
    job->device_ns += k->device_ns;
    job->waited_ns += k->waited_ns;
}

static int add_sums(struct tl_report_job *job, struct tl_arena *arena)
{
    for (uint32_t i = 0; i < job->n_kernels; i++) {
        struct tl_report_kernel *k = &job->kernels[i];
        estimate(job, k);
        for (int g = 0; g < TL_RUNGS; g++)
            job->launches[g] += k->launches[g];
        job->all_launches += k->all_launches;
        job->all_blocks += k->all_blocks;
        job->uncontrolled_ns += k->uncontrolled_ns;
        job->rescues += k->rescues;
        if (tl_histogram_add(&job->queued, &k->queued, arena) < 0 ||
            tl_histogram_add(&job->ran, &k->ran, arena) < 0 ||
            tl_histogram_add(&job->total, &k->total, arena) < 0 ||
            tl_histogram_add(&job->preempted, &k->preempted, arena) < 0 ||
            tl_histogram_add(&job->preempted_blocks, &k->preempted_blocks, arena) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* The processes are neighbours. */
static int make_job(struct tl_report_job *job, struct tl_report_job *processes, uint32_t n,
                    struct tl_arena *arena)
{
    const struct tl_report_job *first = &processes[0];
    *job = (struct tl_report_job){
        .name = first->name,
        .command = first->command,
        .device = first->device,
        .policy = first->policy,
        .host = first->host,
        .level = first->level,
        .pid = first->pid,
        .begin_ns = first->begin_ns,
        .begin_wall_ns = first->begin_wall_ns,
    };
    memcpy(job->boot, first->boot, sizeof job->boot);
    for (uint32_t i = 0; i < n; i++) {
        add_head(job, &processes[i]);
        if (tl_histogram_add(&job->inferred, &processes[i].inferred, arena) < 0 ||
            tl_histogram_add(&job->marked, &processes[i].marked, arena) < 0)
            return -ENOMEM;
    }
    if (merge_kernels(job, processes, n, arena) < 0 || merge_lists(job, processes, n, arena) < 0)
        return -ENOMEM;
    return add_sums(job, arena);
}

/* Higher levels first, then names, then pids. */
static int by_rank(const void *a, const void *b)
{
    const struct tl_report_job *x = a, *y = b;
    if (x->level != y->level)
        return x->level > y->level ? -1 : 1;
    int names = strcmp(x->name, y->name);
    return names != 0 ? names : (x->pid > y->pid) - (x->pid < y->pid);
}

/* Turns the files of a run into jobs. */
static int merge_run(struct tl_report_run *run, struct tl_arena *arena)
{
    struct tl_report_job *processes = run->jobs;
    uint32_t n = run->n_jobs;
    qsort(processes, n, sizeof *processes, by_rank);
    run->jobs = tl_arena_alloc(arena, n * sizeof *run->jobs);
    if (run->jobs == NULL)
        return -ENOMEM;
    run->n_jobs = 0;
    run->begin_ns = UINT64_MAX;
    for (uint32_t i = 0, next = 0; i < n; i = next) {
        for (next = i + 1; next < n && processes[next].level == processes[i].level &&
                           strcmp(processes[next].name, processes[i].name) == 0;)
            next++;
        struct tl_report_job *job = &run->jobs[run->n_jobs++];
        if (make_job(job, &processes[i], next - i, arena) < 0)
            return -ENOMEM;
        run->is_opaque |= job->is_opaque;
        run->begin_ns = run->begin_ns < job->begin_ns ? run->begin_ns : job->begin_ns;
        run->end_ns = run->end_ns > job->last_ns ? run->end_ns : job->last_ns;
    }
    return 0;
}

/* --- what made requests late --- */

/* How much of a span lies in the request. */
static uint64_t overlap(const struct tl_report_span *s, const struct tl_report_slow *slow)
{
    uint64_t end_ns = slow->begin_ns + slow->latency_ns;
    uint64_t from = s->begin_ns > slow->begin_ns ? s->begin_ns : slow->begin_ns;
    uint64_t to = s->end_ns < end_ns ? s->end_ns : end_ns;
    return to > from ? to - from : 0;
}

/* The job's own kernel that took longest in the request, for requests that were over before the
 * recorder was told of any. */
static void find_culprit(struct tl_report_job *job, struct tl_report_slow *slow, uint64_t *sums)
{
    memset(sums, 0, job->n_kernels * sizeof *sums);
    for (uint32_t i = 0; i < job->n_spans; i++) {
        const struct tl_report_span *s = &job->spans[i];
        if ((s->kind != TL_SPAN_RUN && s->kind != TL_SPAN_WAIT) || s->kernel == TL_REPORT_NO_KERNEL)
            continue;
        sums[s->kernel] += overlap(s, slow);
        if (sums[s->kernel] > slow->culprit_ns) {
            slow->culprit_ns = sums[s->kernel];
            slow->culprit = s->kernel;
        }
    }
    for (uint32_t i = 0; i < job->n_spans && slow->culprit != TL_REPORT_NO_KERNEL; i++)
        if (job->spans[i].kind == TL_SPAN_WAIT && job->spans[i].kernel == slow->culprit)
            slow->culprit_wait_ns += overlap(&job->spans[i], slow);
}

/* The kernel of another job that was longest on the device during the request. */
static void find_rival(const struct tl_report_run *run, const struct tl_report_job *job,
                       struct tl_report_slow *slow, uint64_t *sums)
{
    uint64_t end_ns = slow->begin_ns + slow->latency_ns;
    for (uint32_t j = 0; j < run->n_jobs; j++) {
        const struct tl_report_job *other = &run->jobs[j];
        if (other == job || memcmp(other->boot, job->boot, sizeof job->boot) != 0)
            continue;
        memset(sums, 0, other->n_kernels * sizeof *sums);
        for (uint32_t i = 0; i < other->n_spans && other->spans[i].begin_ns < end_ns; i++) {
            const struct tl_report_span *s = &other->spans[i];
            if (s->kind != TL_SPAN_RUN || s->kernel == TL_REPORT_NO_KERNEL)
                continue;
            sums[s->kernel] += overlap(s, slow);
            if (sums[s->kernel] > slow->rival_ns) {
                slow->rival_ns = sums[s->kernel];
                slow->rival = other;
                slow->rival_kernel = s->kernel;
            }
        }
    }
}

static int explain_slow(struct tl_report_run *run)
{
    size_t most = 1;
    for (uint32_t j = 0; j < run->n_jobs; j++)
        most = most > run->jobs[j].n_kernels ? most : run->jobs[j].n_kernels;
    uint64_t *sums = calloc(most, sizeof *sums);
    if (sums == NULL)
        return -ENOMEM;
    enum { MOST_SHOWN = 32 };
    for (uint32_t j = 0; j < run->n_jobs; j++) {
        struct tl_report_job *job = &run->jobs[j];
        for (uint32_t i = 0; i < job->n_slow && i < MOST_SHOWN; i++) {
            if (job->slow[i].culprit == TL_REPORT_NO_KERNEL)
                find_culprit(job, &job->slow[i], sums);
            find_rival(run, job, &job->slow[i], sums);
        }
        for (uint32_t i = 0; i < job->n_slow; i++)
            if (job->slow[i].culprit != TL_REPORT_NO_KERNEL)
                job->kernels[job->slow[i].culprit].culprit_of++;
    }
    free(sums);
    return 0;
}

/* --- order and names --- */

struct placed {
    struct tl_report_kernel kernel;
    double key;
    uint32_t was;
    bool is_shown;
};

static double key_of(const struct tl_report_kernel *k, enum tl_report_order order)
{
    switch (order) {
    case TL_ORDER_LAUNCHES:
        return (double)k->all_launches;
    case TL_ORDER_P99:
        return (double)tl_histogram_percentile(&k->total, 99);
    case TL_ORDER_QUEUED:
        return (double)k->waited_ns;
    case TL_ORDER_PREEMPTED:
        return (double)k->preempted.count;
    case TL_ORDER_UNCONTROLLED:
        return (double)k->uncontrolled_ns;
    default:
        return (double)k->device_ns;
    }
}

/* What is shown first, then by key, then by name. */
static int by_key(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->is_shown != y->is_shown)
        return x->is_shown ? -1 : 1;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    return strcmp(x->kernel.brief, y->kernel.brief);
}

static void renumber(uint32_t *kernel, const uint32_t *now, uint32_t n)
{
    if (*kernel < n)
        *kernel = now[*kernel];
}

/* Sorts the kernels of all jobs; spans and requests follow.  Kernels that the filter leaves out go
 * to the end and are hidden. */
static int arrange(struct tl_report_run *run, struct tl_report_job *job, enum tl_report_order order,
                   const regex_t *filter)
{
    uint32_t n = job->n_kernels;
    struct placed *placed = calloc(n > 0 ? n : 1, sizeof *placed);
    uint32_t *now = calloc(n > 0 ? n : 1, sizeof *now);
    if (placed == NULL || now == NULL) {
        free(placed);
        free(now);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct tl_report_kernel *k = &job->kernels[i];
        bool is_shown = filter == NULL || regexec(filter, k->full, 0, NULL, 0) == 0 ||
                        regexec(filter, k->name, 0, NULL, 0) == 0;
        placed[i] = (struct placed){*k, order == TL_ORDER_NAME ? 0 : key_of(k, order), i, is_shown};
    }
    if (n > 0)
        qsort(placed, n, sizeof *placed, by_key);
    for (uint32_t i = 0; i < n; i++) {
        job->kernels[i] = placed[i].kernel;
        job->kernels[i].is_hidden = !placed[i].is_shown;
        now[placed[i].was] = i;
    }
    for (uint32_t i = 0; i < job->n_slow; i++)
        renumber(&job->slow[i].culprit, now, n);
    for (uint32_t i = 0; i < job->n_spans; i++)
        renumber(&job->spans[i].kernel, now, n);
    for (uint32_t j = 0; j < run->n_jobs; j++)
        for (uint32_t i = 0; i < run->jobs[j].n_slow; i++)
            if (run->jobs[j].slow[i].rival == job)
                renumber(&run->jobs[j].slow[i].rival_kernel, now, n);
    free(placed);
    free(now);
    return 0;
}

static int settle_run(struct tl_report_run *run, enum tl_report_order order, const regex_t *filter,
                      struct tl_arena *arena)
{
    if (merge_run(run, arena) < 0 || explain_slow(run) < 0)
        return -ENOMEM;
    for (uint32_t j = 0; j < run->n_jobs; j++) {
        struct tl_report_job *job = &run->jobs[j];
        for (uint32_t i = 0; i < job->n_kernels; i++)
            if (tl_report_name(&job->kernels[i], arena) < 0)
                return -ENOMEM;
        if (arrange(run, job, order, filter) < 0)
            return -ENOMEM;
    }
    return 0;
}

int tl_report_settle(struct tl_report *r, enum tl_report_order order, const regex_t *filter,
                     struct tl_error *err)
{
    for (uint32_t i = 0; i < r->n_runs; i++) {
        if (settle_run(&r->runs[i], order, filter, &r->arena) < 0)
            return tl_error_set(err, -ENOMEM, "out of memory");
        r->is_opaque |= r->runs[i].is_opaque;
    }
    return 0;
}
