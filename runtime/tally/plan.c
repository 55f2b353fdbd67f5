/* `tally plan MODELS.json`: which part of which GPU serves which model, so that all latency bounds
 * hold (sched/gpulet.h).  With --place, which job goes to which GPU. */
#include "runtime/tally/cli.h"
#include "runtime/tally/plan_models.h"
#include "runtime/tally/plan_place.h"
#include "tally/file.h"
#include "tally/json.h"
#include "tally/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plan_options {
    const char *file;
    struct tl_gpulet_options planner;
    bool is_json, searches, has_stand_ins;
    bool places;
    enum tl_placer placer;
};

static const char *const planners[] = {"gpulet", "time-sharing", "greedy"};

enum { GPUS = 256, PLANNER, NO_INTERFERENCE, SEARCH, PLACE };

static const struct argp_option option_table[] = {
    {"gpus", GPUS, "N", 0, "How many GPUs there are (also \"gpus\" in the file; 1 otherwise)", 0},
    {"planner", PLANNER, "gpulet|time-sharing|greedy", 0,
     "Parts of GPUs, shared in time where needed; whole GPUs; or parts only", 0},
    {"no-interference", NO_INTERFERENCE, NULL, 0,
     "Do not reckon with what neighbours on one GPU cost each other", 0},
    {"search", SEARCH, NULL, 0,
     "Also try every plan, for at most 2 GPUs and 4 models, and tell how much more rate would fit",
     0},
    {"place", PLACE, "slurm|slurm-mps|kubernetes|kubernetes-replicas|tally", 0,
     "The file has jobs, not models: put each on a GPU by that rule", 0},
    {"json", 'j', NULL, 0, "Print JSON", 0},
    {0},
};

/* One option of the command line (argp). */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct plan_options *o = state->input;
    int at = 0;
    switch (key) {
    case GPUS:
        o->planner.gpus = (uint32_t)strtoul(arg, NULL, 10);
        return 0;
    case PLANNER:
        while (at < 3 && strcmp(arg, planners[at]) != 0)
            at++;
        if (at == 3)
            argp_error(state, "there is no planner '%s'; choose gpulet, time-sharing or greedy",
                       arg);
        o->planner.planner = (enum tl_gpulet_planner)at;
        return 0;
    case NO_INTERFERENCE:
        o->planner.has_interference = false;
        return 0;
    case SEARCH:
        o->searches = true;
        return 0;
    case PLACE:
        o->places = true;
        o->placer = tl_placer_of(arg);
        if (o->placer == TL_PLACERS)
            argp_error(state,
                       "there is no rule '%s'; choose slurm, slurm-mps, kubernetes, "
                       "kubernetes-replicas or tally",
                       arg);
        return 0;
    case 'j':
        o->is_json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (o->file != NULL)
            argp_error(state, "one file has all models; what is '%s'?", arg);
        o->file = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "name a file of models");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static char *read_file(const char *path, size_t *n)
{
    char *text;
    int rc = tl_file_read(path, UINT32_MAX, &text, n);
    if (rc < 0)
        cli_complain("cannot read %s: %s", path, strerror(-rc));
    return text;
}

/* How much the rates could be raised together, as a factor, in steps of a twentieth. */
static double headroom(const struct tl_gpulet_model *models, uint32_t n,
                       const struct tl_gpulet_options *o,
                       int (*plan)(struct tl_gpulet_plan *, const struct tl_gpulet_model *,
                                   uint32_t, const struct tl_gpulet_options *))
{
    struct tl_gpulet_model scaled[TL_GPULET_MODELS];
    struct tl_gpulet_plan ignored;
    double best = 0;
    for (double factor = 0.05; factor <= 20; factor += 0.05) {
        for (uint32_t i = 0; i < n; i++) {
            scaled[i] = models[i];
            scaled[i].rate *= factor;
        }
        if (plan(&ignored, scaled, n, o) == 0)
            best = factor;
        else if (factor > best + 0.5)
            break;
    }
    return best;
}

static void print_text(const struct tl_gpulet_plan *plan, const struct tl_gpulet_model *models)
{
    printf("GPU  size  duty cycle  busy   models\n");
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct tl_gpulet *g = &plan->gpulets[i];
        if (g->n_tasks == 0) {
            printf("%3u  %3u%%           -     -   free\n", g->gpu, g->size);
            continue;
        }
        printf("%3u  %3u%%  %7.1f ms  %3.0f%%   ", g->gpu, g->size, g->duty_ms, 100 * g->occupancy);
        for (uint32_t k = 0; k < g->n_tasks; k++)
            printf("%s%s: %.0f/s in batches of %u", k > 0 ? "; " : "",
                   models[g->tasks[k].model].name, g->tasks[k].rate, g->tasks[k].batch);
        printf("\n");
    }
}

/* The plan for programs; without one, which model does not fit. */
static void print_json(const struct tl_gpulet_plan *plan, const struct tl_gpulet_model *models,
                       bool has_plan, const struct plan_options *o)
{
    struct tl_buf out = {0};
    struct tl_json j;
    tl_json_init(&j, &out);
    tl_json_object(&j);
    tl_json_key_bool(&j, "fits", has_plan);
    tl_json_key_str(&j, "latencies", o->has_stand_ins ? "stand-in" : "measured");
    if (!has_plan) {
        tl_json_key_str(&j, "failed", models[plan->failed].name);
    }
    tl_json_key(&j, "gpulets");
    tl_json_array(&j);
    for (uint32_t i = 0; has_plan && i < plan->n; i++) {
        const struct tl_gpulet *g = &plan->gpulets[i];
        tl_json_object(&j);
        tl_json_key_uint(&j, "gpu", g->gpu);
        tl_json_key_uint(&j, "size_percent", g->size);
        tl_json_key_double(&j, "duty_ms", g->duty_ms);
        tl_json_key_double(&j, "occupancy", g->occupancy);
        tl_json_key(&j, "models");
        tl_json_array(&j);
        for (uint32_t k = 0; k < g->n_tasks; k++) {
            tl_json_object(&j);
            tl_json_key_str(&j, "name", models[g->tasks[k].model].name);
            tl_json_key_uint(&j, "batch", g->tasks[k].batch);
            tl_json_key_double(&j, "rate", g->tasks[k].rate);
            tl_json_end_object(&j);
        }
        tl_json_end_array(&j);
        tl_json_end_object(&j);
    }
    tl_json_end_array(&j);
    tl_json_end_object(&j);
    tl_buf_putc(&out, '\n');
    fputs(cli_must(out.p), stdout);
    tl_buf_finish(&out);
}

/* Plans and prints; returns the exit status. */
static int make_plan(const struct tl_gpulet_model *models, uint32_t n, const struct plan_options *o)
{
    struct tl_gpulet_plan plan;
    int rc = tl_gpulet_plan(&plan, models, n, &o->planner);
    if (rc == -EINVAL) {
        cli_complain("at most %d models and %d GPUs", TL_GPULET_MODELS, TL_GPULET_GPUS);
        return CLI_FAILED;
    }
    if (o->is_json) {
        print_json(&plan, models, rc == 0, o);
        return rc == 0 ? CLI_OK : CLI_FAILED;
    }
    if (rc == 0)
        print_text(&plan, models);
    else
        cli_complain("no plan: '%s' does not fit; lower its rate, loosen its SLO or add a GPU",
                     models[plan.failed].name);
    if (o->has_stand_ins)
        printf("Latencies of models without \"latency_ms\" are stand-ins, not measurements.\n");
    if (o->searches) {
        struct tl_gpulet_options alone = o->planner;
        alone.has_interference = false;
        struct tl_gpulet_plan best;
        if (tl_gpulet_search(&best, models, n, &alone) == -EINVAL)
            printf("Search: only for 1 or 2 GPUs and at most 4 models.\n");
        else
            printf("Without interference the rates fit times %.2f by this planner, times %.2f by "
                   "trying every plan "
                   "that splits rates evenly.\n",
                   headroom(models, n, &alone, tl_gpulet_plan),
                   headroom(models, n, &alone, tl_gpulet_search));
    }
    return rc == 0 ? CLI_OK : CLI_FAILED;
}

/* The models of a file that has been read, planned and printed; returns the exit status. */
static int plan_models(const struct tl_json_value *root, struct plan_options *o)
{
    static struct cli_models models;
    struct tl_error err;
    if (cli_models_read(&models, root, &err) < 0) {
        cli_complain("%s: %s", o->file, err.text);
        return CLI_FAILED;
    }
    if (o->planner.gpus == 0)
        o->planner.gpus = models.gpus;
    o->planner.gpu_memory_mb = models.gpu_memory_mb;
    o->has_stand_ins = models.has_stand_ins;
    return make_plan(models.models, models.n, o);
}

/* `tally plan`: see tally-plan(1). */
int cli_plan(int argc, char **argv)
{
    static const struct argp argp = {option_table,
                                     parse_option,
                                     "MODELS.json\n--place=RULE JOBS.json",
                                     "Prints a plan that serves models within their latency bounds "
                                     "on parts of GPUs, or says which model does not "
                                     "fit; or where a rule puts jobs.\v"
                                     "MODELS.json: {\"gpus\": 2, \"gpu_memory_mb\": 11000, "
                                     "\"models\": [{\"name\": \"resnet50\", \"rate\": 200, "
                                     "\"slo_ms\": 108, \"memory_mb\": 1820, \"latency_ms\": "
                                     "{\"100\": {\"1\": 5.1, \"32\": 28}, \"50\": {\"32\": "
                                     "40}}}]}\n\n"
                                     "rate is in requests per second; latency_ms is measured, by "
                                     "size in percent and batch.  What is left out is "
                                     "taken from the built-in model of that name, if there is one."
                                     "\n\n"
                                     "JOBS.json: {\"gpus\": 16, \"gpus_per_node\": 8, "
                                     "\"gpu_memory_mb\": 40960, \"jobs\": [{\"name\": "
                                     "\"serve\", \"priority\": \"high\", \"load\": 0.3, "
                                     "\"memory_mb\": 16000, \"count\": 4}]}",
                                     NULL,
                                     NULL,
                                     NULL};
    struct plan_options o = {.planner.has_interference = true};
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, NULL, &o);
    size_t n_bytes;
    char *text = read_file(o.file, &n_bytes);
    if (text == NULL)
        return CLI_FAILED;
    struct tl_arena arena;
    tl_arena_init(&arena, 64 << 20);
    struct tl_json_value *root = NULL;
    struct tl_error err;
    int status = CLI_FAILED;
    if (tl_json_read(&root, &arena, (struct tl_str){text, (uint32_t)n_bytes}, &err) < 0)
        cli_complain("%s: %s", o.file, err.text);
    else if (o.places)
        status = cli_plan_place(root, o.file, o.placer, o.planner.gpus, o.is_json);
    else
        status = plan_models(root, &o);
    tl_arena_finish(&arena);
    free(text);
    return status;
}
