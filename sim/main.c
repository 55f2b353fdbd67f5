/* tally-sim: runs experiments and writes what came out. */
#include "sim/cluster.h"
#include "sim/jobs.h"
#include "sim/report.h"
#include "sim/scenario.h"
#include "sim/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char help[] =
    "usage: tally-sim --list\n"
    "       tally-sim --experiment=ID [--json | --markdown]\n"
    "       tally-sim --all [--json | --markdown] [--report=DIR]\n"
    "       tally-sim --trace=PATH --policy=NAME[:PARAMETERS] [--device=NAME] [--sms=N] [--arrivals=CSV] [--seconds=S] "
    "[--seed=N] [--json]\n"
    "       tally-sim --scenario=FILE\n"
    "       tally-sim --bench\n"
    "\n"
    "Runs the policies of Tally on a virtual clock and compares the outcome with what was published.\n"
    "\n"
    "  --list             the experiments\n"
    "  --experiment=ID    run one, e.g. TA3; may be repeated\n"
    "  --all              run all\n"
    "  --json             print JSON: id, what, published, tag, ours, kind, holds, fitted, tolerance, note\n"
    "  --markdown         print a table in Markdown\n"
    "  --report=DIR       also write DIR/index.html with plots\n"
    "  --trace=PATH       what if: jobs from recorded .tally files (a file, or the folder of a run), under another "
    "policy\n"
    "  --policy=NAME      e.g. tally, none, timeslice, or salus:order=srtf\n"
    "  --device=NAME      a100, v100, p100, 2080ti, software (default)\n"
    "  --sms=N            SMs of that device, if not its own number\n"
    "  --arrivals=CSV     arrival times of requests for the first job that has requests: seconds, one per line\n"
    "  --seconds=S        how long to simulate; 30\n"
    "  --seed=N           another seed gives another run; the same gives the same\n"
    "  --scenario=FILE    jobs that never ran together, from the records of each alone, as the JSON in FILE (-: "
    "standard\n"
    "                     input) describes it; prints JSON; docs/simulator.md has the members\n"
    "  --bench            kernels simulated per second, and how long a day of a cluster takes\n"
    "  --help             this text\n"
    "\n"
    "Exit status: 0 if all ran, whether they hold or not; 1 if one could not run; 2 for a wrong command line.\n";

enum format { TEXT, JSON, MARKDOWN };
enum { MOST = 64 };

struct options {
    const char *ids[MOST];
    int n_ids;
    const char *report, *scenario;
    bool lists, runs_all, is_bench;
    enum format format;
    struct sim_trace_options trace;
    char policy[64];
};

static int complain(const char *what, const char *on)
{
    fprintf(stderr, "tally-sim: %s%s\n", what, on);
    return 2;
}

/* The value of --NAME=VALUE, or NULL. */
static const char *value_of(const char *argument, const char *name)
{
    size_t n = strlen(name);
    return strncmp(argument, name, n) == 0 && argument[n] == '=' ? argument + n + 1 : NULL;
}

/* One option of a what-if.  False if it is none. */
static bool parse_trace(const char *a, struct options *o)
{
    const char *v;
    if ((v = value_of(a, "--trace")) != NULL)
        o->trace.path = v;
    else if ((v = value_of(a, "--device")) != NULL)
        o->trace.device = v;
    else if ((v = value_of(a, "--arrivals")) != NULL)
        o->trace.arrivals = v;
    else if ((v = value_of(a, "--seconds")) != NULL)
        o->trace.seconds = strtod(v, NULL);
    else if ((v = value_of(a, "--sms")) != NULL)
        o->trace.n_sms = (uint32_t)strtoul(v, NULL, 10);
    else if ((v = value_of(a, "--seed")) != NULL)
        o->trace.seed = strtoull(v, NULL, 10);
    else if ((v = value_of(a, "--policy")) != NULL) {
        const char *colon = strchr(v, ':');
        snprintf(o->policy, sizeof o->policy, "%.*s", (int)(colon != NULL ? colon - v : (long)strlen(v)), v);
        o->trace.policy = o->policy;
        o->trace.parameters = colon != NULL ? colon + 1 : NULL;
    } else {
        return false;
    }
    return true;
}

static int parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--list") == 0)
            o->lists = true;
        else if (strcmp(a, "--all") == 0)
            o->runs_all = true;
        else if (strcmp(a, "--json") == 0)
            o->format = JSON;
        else if (strcmp(a, "--markdown") == 0)
            o->format = MARKDOWN;
        else if (strcmp(a, "--bench") == 0)
            o->is_bench = true;
        else if (value_of(a, "--experiment") != NULL && o->n_ids < MOST)
            o->ids[o->n_ids++] = value_of(a, "--experiment");
        else if (value_of(a, "--report") != NULL)
            o->report = value_of(a, "--report");
        else if (value_of(a, "--scenario") != NULL)
            o->scenario = value_of(a, "--scenario");
        else if (!parse_trace(a, o))
            return complain("not understood (--help lists the options): ", a);
    }
    if (!o->lists && !o->runs_all && !o->is_bench && o->n_ids == 0 && o->trace.path == NULL && o->scenario == NULL)
        return complain("nothing to do; ",
                        "--list, --experiment=ID, --all, --trace=PATH, --scenario=FILE or --bench (--help tells more)");
    if (o->trace.path != NULL && o->trace.policy == NULL)
        return complain("--trace needs ", "--policy=NAME");
    return 0;
}

static const struct sim_experiment *find(const char *id)
{
    for (const struct sim_experiment *const *e = sim_experiments(); *e != NULL; e++)
        if (strcmp((*e)->id, id) == 0)
            return *e;
    return NULL;
}

static int write_html(const struct sim_report *r, const char *folder)
{
    struct tl_buf path = {0}, page = {0};
    tl_buf_printf(&path, "%s/index.html", folder);
    sim_report_html(r, &page);
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

static int run(const struct options *o)
{
    struct sim_report r = {0};
    int status = 0;
    for (const struct sim_experiment *const *e = sim_experiments(); *e != NULL && status == 0; e++) {
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
        status = write_html(&r, o->report);
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
    struct tl_buf text = {0}, out = {0};
    struct tl_error err = {0};
    bool is_input = strcmp(path, "-") == 0;
    FILE *f = is_input ? stdin : fopen(path, "r");
    char piece[4096];
    for (size_t n; f != NULL && (n = fread(piece, 1, sizeof piece, f)) > 0;)
        tl_buf_add(&text, piece, n);
    int rc = f == NULL ? tl_error_errno(&err, "cannot read %s", path) : text.failed ? -ENOMEM : 0;
    if (f != NULL && !is_input)
        fclose(f);
    if (rc == 0)
        rc = sim_scenario_run((struct tl_str){text.p, (uint32_t)text.n}, &out, &err);
    if (rc == 0 && out.p != NULL)
        fputs(out.p, stdout);
    tl_buf_finish(&text);
    tl_buf_finish(&out);
    if (rc < 0)
        complain(err.text, "");
    return rc < 0 ? 1 : 0;
}

/* One pair under tally, as long as takes a second or so. */
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A hundred jobs that come in the course of a day, on eight GPUs under tgs. */
static int bench_cluster(void)
{
    enum { JOBS = 100 };
    struct sim_cluster_job jobs[JOBS];
    struct sim_cluster_options o = {.gpus = 8, .mode = SIM_CONTROLLED, .policy = "tgs", .limit_s = 1e7};
    struct tl_error err;
    sim_philly_like(jobs, JOBS, 86400, 1);
    double begin = cpu_s(), last = 0;
    if (sim_cluster_run(jobs, JOBS, &o, &err) < 0)
        return complain("cannot run: ", err.text);
    for (int i = 0; i < JOBS; i++)
        last = jobs[i].finish_s > last ? jobs[i].finish_s : last;
    printf("%d jobs on %u GPUs, %.1f h of a cluster, in %.2f s\n", JOBS, o.gpus, last / 3600, cpu_s() - begin);
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
    printf("%.2f million kernels in %.2f s: %.1f million kernels per second\n", (double)result.kernel_events / 1e6, s,
           (double)result.kernel_events / 1e6 / s);
    sim_run_finish(&result);
    sim_job_finish(&jobs[0]);
    sim_job_finish(&jobs[1]);
    return bench_cluster();
}

int main(int argc, char **argv)
{
    struct options o = {0};
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        return 0;
    }
    int status = parse(argc, argv, &o);
    if (status != 0)
        return status;
    for (int i = 0; i < o.n_ids; i++)
        if (find(o.ids[i]) == NULL)
            return complain("there is no such experiment (--list shows them): ", o.ids[i]);
    if (o.lists) {
        for (const struct sim_experiment *const *e = sim_experiments(); *e != NULL; e++)
            printf("%-5s %s\n", (*e)->id, (*e)->title);
        return 0;
    }
    if (o.scenario != NULL)
        return run_scenario(o.scenario);
    if (o.trace.path != NULL)
        return what_if(&o);
    return o.is_bench ? bench() : run(&o);
}
