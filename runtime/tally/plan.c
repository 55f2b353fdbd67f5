/* `tally plan MODELS.json`: which part of which GPU serves which model, so that all latency bounds
 * hold (sched/gpulet.h). */
#include "runtime/tally/cli.h"
#include "sched/gpulet.h"
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
};

static const char *const planners[] = {"gpulet", "time-sharing", "greedy"};

enum { GPUS = 256, PLANNER, NO_INTERFERENCE, SEARCH };

static const struct argp_option option_table[] = {
    {"gpus", GPUS, "N", 0, "How many GPUs there are (also \"gpus\" in the file; 1 otherwise)", 0},
    {"planner", PLANNER, "gpulet|time-sharing|greedy", 0,
     "Parts of GPUs, shared in time where needed; whole GPUs; or parts only", 0},
    {"no-interference", NO_INTERFERENCE, NULL, 0,
     "Do not reckon with what neighbours on one GPU cost each other", 0},
    {"search", SEARCH, NULL, 0,
     "Also try every plan, for at most 2 GPUs and 4 models, and tell how much more rate would fit",
     0},
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

/* A table over the profiled batches from the measured ones: linear between them, in proportion
 * outside. */
static bool read_batches(const struct tl_json_value *j, double out[TL_GPULET_BATCHES])
{
    double batches[32], values[32];
    uint32_t n = 0;
    for (const struct tl_json_value *m = j->first; j->kind == TL_JSON_OBJECT && m != NULL && n < 32;
         m = m->next) {
        double batch = strtod(m->key.p, NULL);
        if (m->kind != TL_JSON_NUMBER || batch < 1 || m->number <= 0)
            return false;
        uint32_t at = n++;
        for (; at > 0 && batches[at - 1] > batch; at--) {
            batches[at] = batches[at - 1];
            values[at] = values[at - 1];
        }
        batches[at] = batch;
        values[at] = m->number;
    }
    double batch = 1;
    for (int i = 0; n > 0 && i < TL_GPULET_BATCHES; i++, batch *= 2) {
        uint32_t high = 0;
        while (high < n && batches[high] < batch)
            high++;
        if (high == n)
            out[i] = values[n - 1] * batch / batches[n - 1];
        else if (high == 0 || batches[high] == batch)
            out[i] = values[high];
        else
            out[i] = values[high - 1] + (values[high] - values[high - 1]) *
                                            (batch - batches[high - 1]) /
                                            (batches[high] - batches[high - 1]);
    }
    return n > 0;
}

/* Sizes that were not measured are taken from the next larger one that was, longer in proportion;
 * the largest must be there. */
static bool read_latencies(const struct tl_json_value *j, struct tl_gpulet_model *m)
{
    bool is_known[TL_GPULET_SIZES] = {false};
    for (int i = 0; i < TL_GPULET_SIZES; i++) {
        char key[16];
        snprintf(key, sizeof key, "%u", tl_gpulet_sizes[i]);
        const struct tl_json_value *row = tl_json_get(j, key);
        if (row != NULL && !read_batches(row, m->profile_ms[i]))
            return false;
        is_known[i] = row != NULL;
    }
    if (!is_known[TL_GPULET_SIZES - 1])
        return false;
    for (int i = TL_GPULET_SIZES - 2; i >= 0; i--)
        for (int b = 0; !is_known[i] && b < TL_GPULET_BATCHES; b++)
            m->profile_ms[i][b] = m->profile_ms[i + 1][b] * tl_gpulet_sizes[i + 1] /
                                  tl_gpulet_sizes[i];
    return true;
}

/* One model of the file; what it leaves out is that of the built-in one of its name, if there is
 * one. CLI_OK or CLI_FAILED. */
static int read_model(const struct tl_json_value *j, struct tl_gpulet_model *m,
                      struct plan_options *o)
{
    const struct tl_json_value *name = tl_json_get(j, "name"),
                               *latency = tl_json_get(j, "latency_ms");
    char text[sizeof m->name];
    if (name == NULL || name->kind != TL_JSON_TEXT || name->text.n >= sizeof text) {
        cli_complain("%s: a model needs a \"name\" of at most %zu letters", o->file,
                     sizeof text - 1);
        return CLI_FAILED;
    }
    snprintf(text, sizeof text, TL_STR_FMT, TL_STR_ARG(name->text));
    bool is_builtin = tl_gpulet_builtin(text, m);
    if (!is_builtin)
        memset(m, 0, sizeof *m);
    memcpy(m->name, text, sizeof text);
    m->rate = tl_json_number(j, "rate", 0);
    m->slo_ms = tl_json_number(j, "slo_ms", m->slo_ms);
    m->memory_mb = tl_json_number(j, "memory_mb", m->memory_mb);
    if (m->rate <= 0 || m->slo_ms <= 0) {
        cli_complain("%s: model '%s' needs a \"rate\" and a \"slo_ms\" above 0", o->file, text);
        return CLI_FAILED;
    }
    if (latency != NULL) {
        memset(m->batching_ms, 0, sizeof m->batching_ms); /* what was measured includes it */
        if (!read_latencies(latency, m)) {
            cli_complain("%s: \"latency_ms\" of '%s' must be {\"100\": {\"1\": MS, ...}, ...}, "
                         "with size 100",
                         o->file, text);
            return CLI_FAILED;
        }
    } else if (!is_builtin) {
        cli_complain("%s: model '%s' is not built in and needs \"latency_ms\"", o->file, text);
        return CLI_FAILED;
    } else {
        o->has_stand_ins = true;
    }
    return CLI_OK;
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

/* `tally plan`: see tally-plan(1). */
int cli_plan(int argc, char **argv)
{
    static const struct argp argp = {option_table,
                                     parse_option,
                                     "MODELS.json",
                                     "Prints a plan that serves models within their latency bounds "
                                     "on parts of GPUs, or says which model does not "
                                     "fit.\v"
                                     "MODELS.json: {\"gpus\": 2, \"gpu_memory_mb\": 11000, "
                                     "\"models\": [{\"name\": \"resnet50\", \"rate\": 200, "
                                     "\"slo_ms\": 108, \"memory_mb\": 1820, \"latency_ms\": "
                                     "{\"100\": {\"1\": 5.1, \"32\": 28}, \"50\": {\"32\": "
                                     "40}}}]}\n\n"
                                     "rate is in requests per second; latency_ms is measured, by "
                                     "size in percent and batch.  What is left out is "
                                     "taken from the built-in model of that name, if there is one.",
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
    static struct tl_gpulet_model models[TL_GPULET_MODELS];
    uint32_t n = 0;
    int status = CLI_FAILED;
    if (tl_json_read(&root, &arena, (struct tl_str){text, (uint32_t)n_bytes}, &err) < 0) {
        cli_complain("%s: %s", o.file, err.text);
        goto out;
    }
    if (o.planner.gpus == 0)
        o.planner.gpus = (uint32_t)tl_json_number(root, "gpus", 1);
    o.planner.gpu_memory_mb = tl_json_number(root, "gpu_memory_mb", 0);
    const struct tl_json_value *list = tl_json_get(root, "models");
    for (const struct tl_json_value *m = list != NULL ? list->first : NULL; m != NULL;
         m = m->next) {
        if (n == TL_GPULET_MODELS) {
            cli_complain("%s: more than %d models", o.file, TL_GPULET_MODELS);
            goto out;
        }
        if (read_model(m, &models[n++], &o) != CLI_OK)
            goto out;
    }
    if (n == 0)
        cli_complain("%s: no \"models\" in it", o.file);
    else
        status = make_plan(models, n, &o);
out:
    tl_arena_finish(&arena);
    free(text);
    return status;
}
