/* Jobs from records.
 *
 * A record has, for each kernel, how often it was launched, with how many blocks, and the
 * distribution of its times; and a timeline of its last moments: kernels and requests, each with
 * begin and end.  Where every launch was measured, which is so for jobs of high priority, the
 * timeline has whole requests:
 *
 *     request ├── host ──┤kernel├gap┤kernel├gap┤ ... ┤kernel├── host ──┤ request
 *
 * Of other jobs one launch in some is measured.  They are drawn, and their kernels take as long
 * together as the job did. */
#include "sim/trace_job.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { SEQUENCE = 4096, TRAINING_ROUND = 256, FEWEST_REQUESTS = 8 };

/* One value of a distribution. */
static double draw(const struct tl_report_histogram *h, struct sim_random *random)
{
    double at = sim_uniform(random) * (double)h->count;
    for (uint32_t i = 0; i < h->n_steps; i++) {
        at -= (double)h->steps[i].count;
        if (at <= 0)
            return (double)h->steps[i].low + sim_uniform(random) * (double)h->steps[i].width;
    }
    return tl_histogram_mean(h);
}

/* A launch of that kernel that takes so long.  A block fills an SM, which is so on the software
 * device. */
static struct sim_kernel launch_of(const struct tl_report_kernel *k, double ns,
                                   const struct sim_device *d)
{
    double blocks = k->all_launches > 0 ? (double)k->all_blocks / (double)k->all_launches : 1;
    double waves = ceil(blocks / d->n_sms);
    ns = ns > 100 ? ns : 100;
    return (struct sim_kernel){
        .block_ns = ns / (waves > 1 ? waves : 1),
        .waves = waves > 1 ? waves : 1,
        .width = blocks < d->n_sms ? blocks / d->n_sms : 1,
        .blocks = (uint64_t)blocks,
    };
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n > 0 ? v[n / 2] : 0;
}

/* How many kernels a request of the timeline has, which stands at `at`, and the first and last of
 * them. */
static uint32_t kernels_inside(const struct tl_report_job *from,
                               const struct tl_report_span *request, uint32_t at,
                               const struct tl_report_span **first,
                               const struct tl_report_span **last)
{
    uint32_t n = 0;
    *first = *last = NULL;
    /* Spans stand in the order of their beginning, and so do the kernels of a request, which all
     * begin within it. */
    for (uint32_t i = at; i < from->n_spans && from->spans[i].begin_ns < request->end_ns; i++) {
        const struct tl_report_span *s = &from->spans[i];
        if (s->kind != TL_SPAN_RUN || s->pid != request->pid || s->kernel == TL_REPORT_NO_KERNEL)
            continue;
        *first = *first == NULL ? s : *first;
        *last = s;
        n++;
    }
    return n;
}

/* How many kernels most requests have; 0 if there are too few requests. */
static uint32_t usual_length(const struct tl_report_job *from)
{
    enum { LONGEST = 1024 };
    uint32_t counts[LONGEST] = {0}, best = 0;
    for (uint32_t i = 0; i < from->n_spans; i++) {
        const struct tl_report_span *first, *last;
        if (from->spans[i].kind != TL_SPAN_REQUEST)
            continue;
        uint32_t n = kernels_inside(from, &from->spans[i], i, &first, &last);
        if (n > 0 && n < LONGEST)
            counts[n]++;
    }
    for (uint32_t n = 1; n < LONGEST; n++)
        best = counts[n] > counts[best] ? n : best;
    return counts[best] >= FEWEST_REQUESTS ? best : 0;
}

/* Repeats the requests of the timeline.  False if it has none that could be repeated. */
static bool follow_timeline(struct sim_job *j, const struct tl_report_job *from,
                            const struct sim_device *d)
{
    uint32_t length = from->is_sampled ? 0 : usual_length(from), n = 0, requests = 0, n_gaps = 0;
    if (length == 0)
        return false;
    struct sim_kernel *kernels = calloc(from->n_spans + length, sizeof *kernels);
    double *before = calloc(from->n_spans, sizeof *before),
           *after = calloc(from->n_spans, sizeof *after);
    double *host = calloc(from->n_spans, sizeof *host);
    double *gaps = calloc(from->n_spans, sizeof *gaps);
    uint32_t *starts = calloc(from->n_spans, sizeof *starts); /* first kernel of each request */
    if (kernels == NULL || before == NULL || after == NULL || gaps == NULL || host == NULL ||
        starts == NULL)
        length = 0;
    for (uint32_t i = 0; length > 0 && i < from->n_spans; i++) {
        const struct tl_report_span *r = &from->spans[i], *first, *last;
        if (r->kind != TL_SPAN_REQUEST || kernels_inside(from, r, i, &first, &last) != length)
            continue;
        host[requests] = before[requests] = (double)(first->begin_ns - r->begin_ns);
        after[requests] = r->end_ns > last->end_ns ? (double)(r->end_ns - last->end_ns) : 0;
        host[requests] += after[requests];
        requests++;
        const struct tl_report_span *previous = NULL;
        starts[requests - 1] = n;
        for (const struct tl_report_span *s = first; s <= last; s++) {
            if (s->kind != TL_SPAN_RUN || s->pid != r->pid || s->kernel == TL_REPORT_NO_KERNEL)
                continue;
            if (previous != NULL)
                gaps[n_gaps++] = s->begin_ns > previous->end_ns
                                     ? (double)(s->begin_ns - previous->end_ns)
                                     : 0;
            kernels[n++] = launch_of(&from->kernels[s->kernel], (double)(s->end_ns - s->begin_ns),
                                     d);
            previous = s;
        }
    }
    if (requests >= FEWEST_REQUESTS) {
        j->kernels = kernels;
        j->n_kernels = n;
        j->n_round = length;
        j->host_before_ns = median(before, requests);
        j->host_after_ns = median(after, requests);
        double gap = median(gaps, n_gaps), usual = j->host_before_ns + j->host_after_ns;
        /* What a request's host took beyond the usual is its own; the first ones also compile,
         * which does not come again. */
        for (uint32_t i = 0; i < requests; i++)
            if (host[i] > usual && host[i] < 1e6 + 10 * usual)
                kernels[starts[i]].host_ns = host[i] - usual;
        j->gap_ns = gap > 1 ? gap : 1;
    } else {
        free(kernels);
    }
    free(before);
    free(after);
    free(gaps);
    free(host);
    free(starts);
    return j->kernels != NULL;
}

/* Draws a sequence; the job's mean stands for kernels that were not measured. */
static int draw_kernels(struct sim_job *j, const struct tl_report_job *from,
                        const struct sim_device *d, uint64_t seed, struct tl_error *err)
{
    struct sim_random random = sim_random(seed);
    struct sim_kernel *kernels = calloc(SEQUENCE, sizeof *kernels);
    if (kernels == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory for the kernels of '%s'", from->name);
    double total = 0;
    for (int i = 0; i < SEQUENCE; i++) {
        double at = sim_uniform(&random) * (double)from->all_launches;
        uint32_t k = 0;
        while (k + 1 < from->n_kernels && at > (double)from->kernels[k].all_launches)
            at -= (double)from->kernels[k++].all_launches;
        const struct tl_report_kernel *kernel = &from->kernels[k];
        double ns = kernel->ran.count > 0 ? draw(&kernel->ran, &random)
                                          : tl_histogram_mean(&from->ran);
        kernels[i] = launch_of(kernel, ns, d);
        total += kernels[i].block_ns * kernels[i].waves;
    }
    j->kernels = kernels;
    j->n_kernels = SEQUENCE;
    j->n_round = TRAINING_ROUND;
    const struct tl_report_histogram *requests = tl_report_requests(from);
    bool serves = from->level >= TL_LEVEL_HIGH && requests->count > 0;
    double active_ns = 1e9 * tl_report_active_s(from), mean = total / SEQUENCE;
    if (serves) {
        double per_request = (double)from->all_launches / (double)requests->count;
        j->n_round = per_request > 1 ? (uint32_t)(per_request + 0.5) : 1;
        /* Half of the requests were faster than the median; what of it was not on the device was on
         * the host. */
        double usual = (double)tl_histogram_percentile(requests, 50),
               device = j->n_round * (mean + d->launch_ns);
        j->host_before_ns = usual > device ? usual - device : 0;
        return 0;
    }
    /* It was never on the device for longer than it ran; what of its time was not there is between
     * its kernels. */
    double each = active_ns / (double)from->all_launches;
    if (from->queued.sum == 0 || from->is_sampled) {
        for (int i = 0; mean > each && i < SEQUENCE; i++)
            kernels[i].block_ns *= each / mean;
        j->gap_ns = each > mean + 1 ? each - mean : 1;
    }
    return 0;
}

int sim_trace_job(struct sim_job *j, const struct tl_report_job *from, const struct sim_device *d,
                  uint64_t seed, struct tl_error *err)
{
    *j = (struct sim_job){.name = from->name};
    const struct tl_report_histogram *requests = tl_report_requests(from);
    if (!follow_timeline(j, from, d)) {
        int rc = draw_kernels(j, from, d, seed, err);
        if (rc < 0)
            return rc;
    }
    if (from->level >= TL_LEVEL_HIGH && requests->count > 0) {
        j->arrivals = SIM_POISSON;
        j->period_ns = 1e9 * tl_report_active_s(from) / (double)requests->count;
    }
    return 0;
}

void sim_trace_job_finish(struct sim_job *j)
{
    free((struct sim_kernel *)j->kernels);
    *j = (struct sim_job){0};
}
