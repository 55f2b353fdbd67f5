/* tally-sim: runs experiments and writes what came out. */
#include "sim/cluster.h"
#include "sim/fleet_table.h"
#include "sim/jobs.h"
#include "sim/report.h"
#include "sim/scenario.h"
#include "sim/trace.h"
#include "tally/clock.h"
#include "tally/file.h"
#include "tally/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum format { TEXT, JSON, MARKDOWN };
enum { MOST = 64 };

struct options {
    const char *ids[MOST];
    int n_ids;
    const char *report, *scenario;
    bool lists, runs_all, is_bench;
    enum format format;
    struct sim_trace_options trace;
    struct sim_fleet_question fleet;
    char policy[64];
};

static int complain(const char *what, const char *on)
{
    fprintf(stderr, "tally-sim: %s%s\n", what, on);
    return 2;
}

/* --- options ---------------------------------------------------------------------------------- */

enum {
    LIST = 256,
    EXPERIMENT,
    ALL,
    MARKDOWN_TABLE,
    REPORT,
    TRACE,
    POLICY,
    DEVICE,
    SMS,
    ARRIVALS,
    SECONDS,
    SEED,
    SCENARIO,
    BENCH,
    FLEET,
    SERVICES,
    LOAD
};

static const struct argp_option option_table[] = {
    {"list", LIST, NULL, 0, "Show the experiments", 1},
    {"experiment", EXPERIMENT, "ID", 0, "Run one, e.g. TA3; may be repeated", 1},
    {"all", ALL, NULL, 0, "Run all", 1},
    {"json", 'j', NULL, 0,
     "Print JSON: id, what, published, tag, ours, kind, holds, fitted, tolerance, note", 1},
    {"markdown", MARKDOWN_TABLE, NULL, 0, "Print a table in Markdown", 1},
    {"report", REPORT, "DIR", 0, "Also write DIR/index.html with plots", 1},
    {"trace", TRACE, "PATH", 0,
     "What if: jobs from recorded .tally files (a file, or the folder of a run), under another "
     "policy",
     2},
    {"policy", POLICY, "POLICY[:PARAMETERS]", 0, "E.g. tally, none, timeslice, or salus:order=srtf",
     2},
    {"device", DEVICE, "a100|v100|p100|2080ti|software", 0, "On which device; software if not said",
     2},
    {"sms", SMS, "N", 0, "SMs of that device, if not its own number", 2},
    {"arrivals", ARRIVALS, "FILE.csv", 0,
     "Arrival times of requests for the first job that has requests: seconds, one per line", 2},
    {"seconds", SECONDS, "S", 0, "How long to simulate; 30", 2},
    {"seed", SEED, "N", 0, "Another seed gives another run; the same gives the same", 2},
    {"scenario", SCENARIO, "FILE", 0,
     "Jobs that never ran together, from the records of each alone, as the JSON in FILE (-: "
     "standard input) describes "
     "it; prints JSON; docs/simulator.md has the members",
     3},
    {"bench", BENCH, NULL, 0, "Kernels simulated per second, and how long a day of a cluster takes",
     3},
    {"fleet", FLEET, "GPUS[,GPUS...]", 0,
     "A day of a cluster of that many GPUs: services and trainings, placed as Slurm, Kubernetes "
     "and "
     "Tally would; --seed, --json and --report count",
     4},
    {"services", SERVICES, "PART", 0, "Services for that part of the GPUs; 0.3", 4},
    {"training-load", LOAD, "PART", 0, "Trainings with the work of that part of the GPUs; 0.6", 4},
    {0},
};

/* NAME[:PARAMETERS] */
static void take_policy(const char *text, struct options *o)
{
    const char *colon = strchr(text, ':');
    snprintf(o->policy, sizeof o->policy, "%.*s",
             (int)(colon != NULL ? colon - text : (long)strlen(text)), text);
    o->trace.policy = o->policy;
    o->trace.parameters = colon != NULL ? colon + 1 : NULL;
}

/* One option of a what-if.  False if it is none. */
static bool parse_trace(int key, const char *arg, struct options *o)
{
    switch (key) {
    case TRACE:
        o->trace.path = arg;
        return true;
    case POLICY:
        take_policy(arg, o);
        return true;
    case DEVICE:
        o->trace.device = arg;
        return true;
    case SMS:
        o->trace.n_sms = (uint32_t)strtoul(arg, NULL, 10);
        return true;
    case ARRIVALS:
        o->trace.arrivals = arg;
        return true;
    case SECONDS:
        o->trace.seconds = strtod(arg, NULL);
        return true;
    case SEED:
        o->trace.seed = strtoull(arg, NULL, 10);
        return true;
    default:
        return false;
    }
}

/* One option of a fleet.  ARGP_ERR_UNKNOWN if it is none. */
static error_t parse_fleet(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    double *part = key == SERVICES ? &o->fleet.services : &o->fleet.load;
    char *end;
    switch (key) {
    case FLEET:
        if (!sim_fleet_parse_sizes(&o->fleet, arg))
            argp_error(state, "'%s' is no list of at most %d numbers of GPUs, e.g. 10,100,1000",
                       arg, SIM_FLEET_SIZES);
        return 0;
    case SERVICES:
    case LOAD:
        *part = strtod(arg, &end);
        if (end == arg || *end != 0 || !(*part >= 0 && *part <= 10))
            argp_error(state, "'%s' is no part of the GPUs, e.g. 0.3", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* One option of the command line (argp). */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case LIST:
        o->lists = true;
        return 0;
    case EXPERIMENT:
        if (o->n_ids == MOST)
            argp_error(state, "more than %d experiments; --all runs all", MOST);
        o->ids[o->n_ids++] = arg;
        return 0;
    case ALL:
        o->runs_all = true;
        return 0;
    case 'j':
        o->format = JSON;
        return 0;
    case MARKDOWN_TABLE:
        o->format = MARKDOWN;
        return 0;
    case REPORT:
        o->report = arg;
        return 0;
    case SCENARIO:
        o->scenario = arg;
        return 0;
    case BENCH:
        o->is_bench = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option", arg);
        return EINVAL;
    case ARGP_KEY_END:
        if (!o->lists && !o->runs_all && !o->is_bench && o->n_ids == 0 && o->trace.path == NULL &&
            o->scenario == NULL && o->fleet.n_sizes == 0)
            argp_error(state, "nothing to do; --list, --experiment=ID, --all, --trace=PATH, "
                              "--scenario=FILE, --fleet=GPUS or --bench");
        if (o->trace.path != NULL && o->trace.policy == NULL)
            argp_error(state, "--trace needs --policy=POLICY");
        return 0;
    default:
        return parse_trace(key, arg, o) ? 0 : parse_fleet(key, arg, state);
    }
}

static const struct argp argp = {option_table,
                                 parse_option,
                                 "--list\n"
                                 "--experiment=ID [--json | --markdown]\n"
                                 "--all [--json | --markdown] [--report=DIR]\n"
                                 "--trace=PATH --policy=POLICY\n"
                                 "--scenario=FILE\n"
                                 "--fleet=GPUS [--json] [--report=DIR]\n"
                                 "--bench",
                                 "Runs the policies of Tally on a virtual clock and compares the "
                                 "outcome with what was published.\v"
                                 "Exit status: 0 if all ran, whether they hold or not; 1 if one "
                                 "could not run; 2 for a wrong command line.",
                                 NULL,
                                 NULL,
                                 NULL};

/* --- running ---------------------------------------------------------------------------------- */

static const struct sim_experiment *find_experiment(const char *id)
{
    for (const struct sim_experiment *const *e = sim_experiments(); *e != NULL; e++)
        if (strcmp((*e)->id, id) == 0)
            return *e;
    return NULL;
}

/* Ends the page, too. */
static int write_html(struct tl_buf page, const char *folder)
{
    struct tl_buf path = {0};
    tl_buf_printf(&path, "%s/index.html", folder);
    if (path.failed || page.failed)
        return complain("out of memory for ", folder);
    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return complain("cannot make ", folder);
    FILE *f = fopen(path.p, "w");
    bool is_written = f != NULL && fwrite(page.p, 1, page.n, f) == page.n;
    if (f != NULL && fclose(f) != 0)
        is_written = false;
    if (!is_written)
        complain("cannot write ", path.p);
    tl_buf_finish(&path);
    tl_buf_finish(&page);
    return is_written ? 0 : 1;
}

static int write_experiments(const struct sim_report *r, const char *folder)
{
    struct tl_buf page = {0};
    sim_report_html(r, &page);
    return write_html(page, folder);
}

/* Runs the experiments that are asked for and writes what they found. */
static int run(const struct options *o)
{
    struct sim_report r = {0};
    int status = 0;
    for (const struct sim_experiment *const *e = sim_experiments(); *e != NULL && status == 0;
         e++) {
        bool is_asked = o->runs_all;
        for (int i = 0; i < o->n_ids; i++)
            is_asked |= strcmp(o->ids[i], (*e)->id) == 0;
        if (!is_asked)
            continue;
        r.id = (*e)->id;
        (*e)->run(&r);
        if (r.failed) {
            fprintf(stderr, "tally-sim: %s could not run: %s\n", (*e)->id, r.error.text);
            status = 1;
        }
    }
    struct tl_buf out = {0};
    if (o->format == JSON)
        sim_report_json(&r, &out);
    else if (o->format == MARKDOWN)
        sim_report_markdown(&r, &out);
    else
        sim_report_text(&r, &out);
    if (out.p != NULL)
        fputs(out.p, stdout);
    tl_buf_finish(&out);
    if (o->report != NULL && status == 0)
        status = write_experiments(&r, o->report);
    sim_report_finish(&r);
    return status;
}

static int what_if(struct options *o)
{
    struct tl_buf out = {0};
    struct tl_error err = {0};
    o->trace.is_json = o->format == JSON;
    int rc = sim_trace_run(&o->trace, &out, &err);
    if (rc == 0 && out.p != NULL)
        fputs(out.p, stdout);
    tl_buf_finish(&out);
    if (rc < 0)
        complain(err.text, "");
    return rc < 0 ? 1 : 0;
}

static int run_scenario(const char *path)
{
    struct tl_buf out = {0};
    struct tl_error err = {0};
    char *text;
    size_t n;
    int rc = strcmp(path, "-") == 0 ? tl_file_read_fd(STDIN_FILENO, UINT32_MAX, &text, &n)
                                    : tl_file_read(path, UINT32_MAX, &text, &n);
    if (rc < 0)
        tl_error_set(&err, rc, "cannot read %s: %s", path, strerror(-rc));
    else
        rc = sim_scenario_run((struct tl_str){text, (uint32_t)n}, &out, &err);
    if (rc == 0 && out.p != NULL)
        fputs(out.p, stdout);
    free(text);
    tl_buf_finish(&out);
    if (rc < 0)
        complain(err.text, "");
    return rc < 0 ? 1 : 0;
}

static int write_fleet(const struct sim_report *plots, const char *text, const char *folder)
{
    struct tl_buf page = {0};
    sim_report_text_html(plots, "a fleet's day", text, &page);
    return write_html(page, folder);
}

static int run_fleet(struct options *o)
{
    struct sim_report plots = {0};
    struct tl_buf out = {0};
    struct tl_error err = {0};
    o->fleet.is_json = o->format == JSON;
    o->fleet.report = o->report;
    o->fleet.seed = o->trace.seed != 0 ? o->trace.seed : 1;
    int rc = sim_fleet_answer(&o->fleet, &out, &plots, &err), status = rc < 0 ? 1 : 0;
    if (rc == 0 && out.p != NULL)
        fputs(out.p, stdout);
    if (rc < 0)
        complain(err.text, "");
    else if (o->report != NULL)
        status = write_fleet(&plots, out.p != NULL ? out.p : "", o->report);
    tl_buf_finish(&out);
    sim_report_finish(&plots);
    return status;
}

/* One pair under tally, as long as takes a second or so. */
static double cpu_s(void)
{
    return (double)tl_clock_of(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
}

/* A hundred jobs that come in the course of a day, on eight GPUs under tgs. */
static int bench_cluster(void)
{
    enum { JOBS = 100 };
    struct sim_cluster_job jobs[JOBS];
    struct sim_cluster_options o = {
        .gpus = 8, .mode = SIM_CONTROLLED, .policy = "tgs", .limit_s = 1e7};
    struct tl_error err;
    sim_philly_like(jobs, JOBS, 86400, 1);
    double begin = cpu_s(), last = 0;
    if (sim_cluster_run(jobs, JOBS, &o, &err) < 0)
        return complain("cannot run: ", err.text);
    for (int i = 0; i < JOBS; i++)
        last = jobs[i].finish_s > last ? jobs[i].finish_s : last;
    printf("%d jobs on %u GPUs, %.1f h of a cluster, in %.2f s\n", JOBS, o.gpus, last / 3600,
           cpu_s() - begin);
    return 0;
}

static int bench(void)
{
    const struct sim_device *d = sim_device("a100");
    struct sim_job jobs[2];
    static struct sim_run result;
    struct tl_error err;
    if (sim_job_init(&jobs[0], sim_profile("bert-infer"), d, 1) < 0 ||
        sim_job_init(&jobs[1], sim_profile("bert-train"), d, 1) < 0)
        return 1;
    jobs[0].arrivals = SIM_POISSON;
    jobs[0].period_ns = 8.1e6;
    const struct tl_sched_client c[2] = {{.level = TL_LEVEL_HIGH}, {.level = TL_LEVEL_LOW}};
    struct sim_gpu_options o = {.device = d, .policy = "tally", .duration_ns = 200e9, .seed = 1};
    double begin = cpu_s();
    if (sim_gpu_run(&result, &o, jobs, c, 2, &err) < 0)
        return complain("cannot run: ", err.text);
    double s = cpu_s() - begin;
    printf("%.2f million kernels in %.2f s: %.1f million kernels per second\n",
           (double)result.kernel_events / 1e6, s, (double)result.kernel_events / 1e6 / s);
    sim_run_finish(&result);
    sim_job_finish(&jobs[0]);
    sim_job_finish(&jobs[1]);
    return bench_cluster();
}

int main(int argc, char **argv)
{
    struct options o = {.fleet = {.services = 0.3, .load = 0.6}};
    argp_err_exit_status = 2;
    tl_options_parse("tally-sim", &argp, argc, argv, 0, NULL, &o);
    for (int i = 0; i < o.n_ids; i++)
        if (find_experiment(o.ids[i]) == NULL)
            return complain("there is no such experiment (--list shows them): ", o.ids[i]);
    if (o.lists) {
        for (const struct sim_experiment *const *e = sim_experiments(); *e != NULL; e++)
            printf("%-5s %s\n", (*e)->id, (*e)->title);
        return 0;
    }
    if (o.scenario != NULL)
        return run_scenario(o.scenario);
    if (o.fleet.n_sizes > 0)
        return run_fleet(&o);
    if (o.trace.path != NULL)
        return what_if(&o);
    return o.is_bench ? bench() : run(&o);
}
