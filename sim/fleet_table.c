/* Tables of fleets; see the header. */
#include "sim/fleet_table.h"

#include "sim/fleet.h"
#include "tally/clock.h"

#include <errno.h>
#include <stdlib.h>

enum {
    NEED_GPUS = 10000, /* the largest fleet for which it is asked how few GPUs would do */
    PLOT_GPUS = 1000,  /* the one whose load goes up in the plots */
};
/* Trainings take this much longer than alone, on average, where a fleet counts as large enough. */
static const double fair_stretch = 1.5, limit_s = 14 * 86400;

struct line {
    uint32_t gpus, jobs, needs;
    enum tl_placer placer;
    struct sim_fleet_result r, r_needed; /* with its GPUs; with as few as would do */
    double cpu_s;
};

struct answer {
    const struct sim_fleet_question *q;
    struct sim_neighbours *neighbours[TL_PLACERS];
    double cpu_s; /* of the meetings */
    uint32_t meetings;
    struct line lines[SIM_FLEET_SIZES * TL_PLACERS];
    uint32_t n;
    struct tl_error *err;
};

static double cpu_s(void)
{
    return (double)tl_clock_of(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
}

bool sim_fleet_parse_sizes(struct sim_fleet_question *q, const char *text)
{
    q->n_sizes = 0;
    for (;; text++) { /* past a comma */
        char *end;
        unsigned long v = strtoul(text, &end, 10);
        if (end == text || v == 0 || v > 1000000 || q->n_sizes == SIM_FLEET_SIZES)
            return false;
        q->sizes[q->n_sizes++] = (uint32_t)v;
        if (*end != ',')
            return *end == 0;
        text = end;
    }
}

/* The demand of a fleet of `demand` GPUs on one of `gpus`. */
static int run_once(struct answer *a, enum tl_placer placer, uint32_t demand, uint32_t gpus,
                    double load, struct line *line)
{
    struct sim_fleet_options o = {.placer = placer,
                                  .gpus = gpus,
                                  .neighbours = a->neighbours[placer],
                                  .limit_s = limit_s,
                                  .seed = a->q->seed};
    struct sim_fleet_job *jobs = sim_fleet_jobs(demand, a->q->services, load, a->q->seed,
                                                &line->jobs);
    if (jobs == NULL)
        return tl_error_set(a->err, -ENOMEM, "out of memory for the jobs of %u GPUs", demand);
    double begin = cpu_s();
    line->gpus = gpus;
    line->placer = placer;
    int rc = sim_fleet_run(jobs, line->jobs, &o, &line->r, a->err);
    line->cpu_s = cpu_s() - begin;
    free(jobs);
    return rc;
}

/* Meetings are simulated when they are first asked for: a run that asked for some is made again, so
 * that its time is its own. */
static int run_one(struct answer *a, enum tl_placer placer, uint32_t demand, uint32_t gpus,
                   double load, struct line *line)
{
    uint32_t before = sim_neighbours_known(a->neighbours[placer]);
    int rc = run_once(a, placer, demand, gpus, load, line);
    if (rc == 0 && sim_neighbours_known(a->neighbours[placer]) != before)
        rc = run_once(a, placer, demand, gpus, load, line);
    return rc;
}

/* A run of some GPUs asks for nearly all meetings. */
static int warm(struct answer *a)
{
    double begin = cpu_s();
    struct line ignored;
    int rc = 0;
    for (uint32_t p = 0; rc == 0 && p < TL_PLACERS; p++) {
        rc = run_once(a, p, 200, 200, a->q->load, &ignored);
        a->meetings += sim_neighbours_known(a->neighbours[p]);
    }
    a->cpu_s = cpu_s() - begin;
    return rc;
}

static bool is_enough(const struct line *l)
{
    return l->r.unfinished == 0 && l->r.mean_stretch <= fair_stretch;
}

/* The fewest GPUs that would do for the demand of a line's; 0 if not even twice as many would. */
static int find_need(struct answer *a, double load, struct line *line)
{
    uint32_t gpus = line->gpus, low = gpus / 4, high = 2 * gpus; /* low is not enough */
    struct line l = {0};
    int rc = run_one(a, line->placer, gpus, high, load, &l);
    if (rc < 0 || !is_enough(&l))
        return rc;
    line->r_needed = l.r;
    while (rc == 0 && high - low > 1 + gpus / 200) {
        uint32_t middle = low + (high - low) / 2;
        rc = run_one(a, line->placer, gpus, middle, load, &l);
        if (is_enough(&l)) {
            high = middle;
            line->r_needed = l.r;
        } else {
            low = middle;
        }
    }
    line->needs = high;
    return rc;
}

/* One point of each plot. */
static void draw(struct sim_report *plots, const struct line *l, double load)
{
    static const char x[] = "work of trainings per GPU";
    const char *name = tl_placer_names[l->placer];
    sim_point(plots, "mean completion of trainings over their work", name, x, "times", load,
              l->r.mean_stretch);
    sim_point(plots, "requests of services whose P99 is a fifth above alone", name, x, "part", load,
              l->r.late_part);
    if (l->needs == 0)
        return;
    sim_point(plots, "GPUs that would do, of those there are", name, x, "part", load,
              (double)l->needs / PLOT_GPUS);
    sim_point(plots, "P99 of services over that alone, with as few GPUs as would do", name, x,
              "times", load, l->r_needed.p99_mean);
}

static int draw_loads(struct answer *a, struct sim_report *plots)
{
    static const double loads[] = {0.2, 0.4, 0.6, 0.8, 1.0};
    int rc = 0;
    plots->id = "fleet";
    for (uint32_t p = 0; p < TL_PLACERS; p++)
        for (uint32_t i = 0; rc == 0 && i < 5; i++) {
            struct line l = {0};
            rc = run_one(a, p, PLOT_GPUS, PLOT_GPUS, loads[i], &l);
            if (rc == 0)
                rc = find_need(a, loads[i], &l);
            if (rc == 0)
                draw(plots, &l, loads[i]);
        }
    return rc;
}

/* The part that a line's way of placing saves of the GPUs that Slurm's whole ones take.  False if
 * either is not known. */
static bool find_saving(const struct answer *a, const struct line *l, double *part)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (a->lines[i].gpus == l->gpus && a->lines[i].placer == TL_PLACE_SLURM && l->needs > 0 &&
            a->lines[i].needs > 0) {
            *part = 1 - (double)l->needs / a->lines[i].needs;
            return true;
        }
    return false;
}

static void print_savings(const struct answer *a, struct tl_buf *out)
{
    tl_buf_printf(out,
                  "\nWhat sharing saves and costs: as few GPUs as it takes for a mean stretch of "
                  "%.1f, against slurm's,\nand services' P99 with that many.\n\n"
                  "  GPUs  placement              needs   saves    P99    late\n",
                  fair_stretch);
    for (uint32_t i = 0; i < a->n; i++) {
        const struct line *l = &a->lines[i];
        if (l->gpus > NEED_GPUS)
            continue;
        tl_buf_printf(out, "%6u  %-19s", l->gpus, tl_placer_names[l->placer]);
        double saved;
        if (l->needs == 0) {
            tl_buf_puts(out, "  more than twice as many\n");
            continue;
        }
        tl_buf_printf(out, "  %7u", l->needs);
        if (find_saving(a, l, &saved))
            tl_buf_printf(out, "  %5.1f%%", 100 * saved);
        else
            tl_buf_puts(out, "       -");
        tl_buf_printf(out, "  %5.2f  %5.1f%%\n", l->r_needed.p99_mean, 100 * l->r_needed.late_part);
    }
}

/* Sums over the ways of placing, by size. */
static void print_growth(const struct answer *a, struct tl_buf *out)
{
    double before_s = 0;
    tl_buf_puts(out, "\nGrowth: all ways of placing together, time of one core without the "
                     "meetings.\n\n"
                     "  GPUs    jobs     events     time  per event  times the line above\n");
    for (uint32_t i = 0; i < a->n; i += TL_PLACERS) {
        uint64_t events = 0;
        double s = 0;
        for (uint32_t p = 0; p < TL_PLACERS; p++) {
            events += a->lines[i + p].r.events;
            s += a->lines[i + p].cpu_s;
        }
        tl_buf_printf(out, "%6u %7u %10llu %7.2fs %8.2fus", a->lines[i].gpus, a->lines[i].jobs,
                      (unsigned long long)events, s, events > 0 ? 1e6 * s / (double)events : 0);
        if (i > 0 && before_s > 0)
            tl_buf_printf(out, "  GPUs %g, time %.1f",
                          (double)a->lines[i].gpus / a->lines[i - TL_PLACERS].gpus, s / before_s);
        tl_buf_puts(out, "\n");
        before_s = s;
    }
}

static void print_text(const struct answer *a, struct tl_buf *out)
{
    tl_buf_printf(out,
                  "A simulated day: services on %.0f %% of the GPUs if each had its own, trainings "
                  "with the work of %.0f %%.\n"
                  "%u meetings of two jobs were simulated kernel by kernel, in %.1f s.\n\n",
                  100 * a->q->services, 100 * a->q->load, a->meetings, a->cpu_s);
    tl_buf_puts(out, "  GPUs  placement            jobs    events   time  wait   stretch  no room  "
                     "P99    late    busy\n");
    for (uint32_t i = 0; i < a->n; i++) {
        const struct line *l = &a->lines[i];
        tl_buf_printf(out, "%6u  %-19s %6u %9llu %5.1fs %5.0fs %8.2f %8u %5.2f %6.1f%% %6.1f%%%s",
                      l->gpus, tl_placer_names[l->placer], l->jobs, (unsigned long long)l->r.events,
                      l->cpu_s, l->r.mean_wait_s, l->r.mean_stretch, l->r.no_memory, l->r.p99_mean,
                      100 * l->r.late_part, 100 * l->r.busy_part,
                      l->r.unfinished > 0 ? "  not all jobs found a GPU\n" : "\n");
    }
    tl_buf_puts(out, "\nwait, stretch: trainings' mean time before they start, and completion over "
                     "work alone.  no room: starts\nthat failed for want of memory.  P99: "
                     "services', over that alone, by requests; late: requests whose P99\nis a "
                     "fifth above it or more.\n");
    print_savings(a, out);
    print_growth(a, out);
}

static void print_json(const struct answer *a, struct tl_buf *out)
{
    tl_buf_printf(out,
                  "{\"services\": %g, \"load\": %g, \"seed\": %llu, \"meetings\": %u, "
                  "\"meetings_s\": %.2f, \"runs\": [",
                  a->q->services, a->q->load, (unsigned long long)a->q->seed, a->meetings,
                  a->cpu_s);
    for (uint32_t i = 0; i < a->n; i++) {
        const struct line *l = &a->lines[i];
        tl_buf_printf(out,
                      "%s\n  {\"gpus\": %u, \"placement\": \"%s\", \"policy\": \"%s\", \"jobs\": "
                      "%u, \"events\": %llu, \"cpu_s\": %.3f, \"mean_wait_s\": %.1f, "
                      "\"mean_jct_s\": %.1f, \"mean_stretch\": %.4f, \"unfinished\": %u, "
                      "\"no_memory\": %u, \"p99_mean\": %.4f, \"late_part\": %.5f, "
                      "\"busy_part\": %.5f, ",
                      i == 0 ? "" : ",", l->gpus, tl_placer_names[l->placer],
                      sim_fleet_policy(l->placer), l->jobs, (unsigned long long)l->r.events,
                      l->cpu_s, l->r.mean_wait_s, l->r.mean_jct_s, l->r.mean_stretch,
                      l->r.unfinished, l->r.no_memory, l->r.p99_mean, l->r.late_part,
                      l->r.busy_part);
        double saved;
        if (find_saving(a, l, &saved))
            tl_buf_printf(out, "\"saves_part\": %.4f, ", saved);
        if (l->needs > 0)
            tl_buf_printf(out,
                          "\"needs_gpus\": %u, \"needed_p99_mean\": %.4f, "
                          "\"needed_late_part\": %.5f}",
                          l->needs, l->r_needed.p99_mean, l->r_needed.late_part);
        else
            tl_buf_puts(out, "\"needs_gpus\": null}");
    }
    tl_buf_puts(out, "\n]}\n");
}

/* Each size under each placer. */
static int run_sizes(struct answer *a)
{
    int rc = 0;
    for (uint32_t i = 0; i < a->q->n_sizes; i++)
        for (uint32_t p = 0; rc == 0 && p < TL_PLACERS; p++) {
            struct line *l = &a->lines[a->n++];
            uint32_t gpus = a->q->sizes[i];
            rc = run_one(a, p, gpus, gpus, a->q->load, l);
            if (rc == 0 && gpus <= NEED_GPUS)
                rc = find_need(a, a->q->load, l);
        }
    return rc;
}

int sim_fleet_answer(const struct sim_fleet_question *q, struct tl_buf *out,
                     struct sim_report *plots, struct tl_error *err)
{
    struct answer a = {.q = q, .err = err};
    int rc = 0;
    for (uint32_t p = 0; rc == 0 && p < TL_PLACERS; p++)
        rc = sim_neighbours_create(&a.neighbours[p], sim_fleet_policy(p), p == TL_PLACE_TALLY, err);
    if (rc == 0)
        rc = warm(&a);
    if (rc == 0)
        rc = run_sizes(&a);
    if (rc == 0 && q->report != NULL)
        rc = draw_loads(&a, plots);
    if (rc == 0 && q->is_json)
        print_json(&a, out);
    else if (rc == 0)
        print_text(&a, out);
    for (uint32_t p = 0; p < TL_PLACERS; p++)
        sim_neighbours_destroy(a.neighbours[p]);
    return rc;
}
