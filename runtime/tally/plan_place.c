/* `tally plan --place=RULE JOBS.json`: which job goes to which GPU, by one of the rules of
 * sched/place.h. */
#include "runtime/tally/plan_place.h"
#include "runtime/tally/cli.h"
#include "tally/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GPUS = 1000000, MOST_JOBS = 2 * MOST_GPUS };

/* Jobs of one description. */
struct group {
    struct tl_str name;
    struct tl_place_job job;
    uint32_t count;
};

struct placing {
    const char *file;
    struct tl_fleet *fleet;
    struct tl_fleet_options o;
    struct group *groups;
    uint32_t n_groups, n_placed, n_jobs;
    struct placed {
        struct tl_place place;
        uint32_t group;
    } * placed;
};

/* One member of "jobs".  CLI_OK or CLI_FAILED. */
static int read_group(struct placing *p, const struct tl_json_value *j, struct group *g)
{
    const struct tl_json_value *name = tl_json_get(j, "name"), *level = tl_json_get(j, "priority");
    bool is_high = level != NULL && level->kind == TL_JSON_TEXT && tl_str_is(level->text, "high");
    bool is_low = level == NULL || (level->kind == TL_JSON_TEXT && tl_str_is(level->text, "low"));
    double load = tl_json_number(j, "load", 1), memory_mb = tl_json_number(j, "memory_mb", 0),
           count = tl_json_number(j, "count", 1);
    if (name == NULL || name->kind != TL_JSON_TEXT) {
        cli_complain("%s: a job needs a \"name\"", p->file);
        return CLI_FAILED;
    }
    *g = (struct group){.name = name->text,
                        .job = {.is_high = is_high, .load = load, .memory_mb = memory_mb}};
    if ((!is_high && !is_low) || !(load > 0 && load <= 1) || !(memory_mb >= 0) ||
        !(count >= 1 && count <= MOST_JOBS - p->n_jobs)) {
        cli_complain("%s: job '" TL_STR_FMT
                     "' needs a \"priority\" of high or low, a \"load\" above "
                     "0 and up to 1, \"memory_mb\" of 0 or more, and a \"count\" of 1 or more, %d "
                     "in all",
                     p->file, TL_STR_ARG(name->text), MOST_JOBS);
        return CLI_FAILED;
    }
    g->count = (uint32_t)count;
    p->n_jobs += g->count;
    return CLI_OK;
}

static int read_jobs(struct placing *p, const struct tl_json_value *root)
{
    const struct tl_json_value *list = tl_json_get(root, "jobs");
    uint32_t n = 0;
    for (const struct tl_json_value *j = list != NULL ? list->first : NULL; j != NULL; j = j->next)
        n++;
    if (n == 0) {
        cli_complain("%s: no \"jobs\" in it", p->file);
        return CLI_FAILED;
    }
    p->groups = cli_must(calloc(n, sizeof *p->groups));
    for (const struct tl_json_value *j = list->first; j != NULL; j = j->next)
        if (read_group(p, j, &p->groups[p->n_groups++]) != CLI_OK)
            return CLI_FAILED;
    p->placed = cli_must(calloc(p->n_jobs, sizeof *p->placed));
    return CLI_OK;
}

/* High jobs first: whoever may wait comes after. */
static void place_all(struct placing *p)
{
    for (int is_low = 0; is_low < 2; is_low++)
        for (uint32_t i = 0; i < p->n_groups; i++)
            for (uint32_t k = 0; p->groups[i].job.is_high != is_low && k < p->groups[i].count; k++)
                p->placed[p->n_placed++] = (struct placed){
                    tl_fleet_put(p->fleet, &p->groups[i].job), i};
}

static int by_gpu(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->place.gpu != y->place.gpu)
        return x->place.gpu < y->place.gpu ? -1 : 1;
    return x->place.slot < y->place.slot ? -1 : x->place.slot > y->place.slot;
}

static bool shares_memory_that_is_not_there(const struct placing *p, uint32_t i)
{
    const struct tl_place_job *job = &p->groups[p->placed[i].group].job;
    double mb = job->memory_mb;
    if (i > 0 && p->placed[i - 1].place.gpu == p->placed[i].place.gpu)
        mb += p->groups[p->placed[i - 1].group].job.memory_mb;
    return mb > p->o.gpu_memory_mb;
}

static void print_text(const struct placing *p)
{
    printf("node  GPU  job\n");
    for (uint32_t i = 0; i < p->n_placed; i++) {
        const struct placed *d = &p->placed[i];
        const struct group *g = &p->groups[d->group];
        if (d->place.gpu == TL_PLACE_NOWHERE)
            printf("   -    -  ");
        else
            printf("%4u  %3u  ", d->place.gpu / p->o.gpus_per_node,
                   d->place.gpu % p->o.gpus_per_node);
        printf(TL_STR_FMT ", %s%s\n", TL_STR_ARG(g->name), g->job.is_high ? "high" : "low",
               d->place.gpu == TL_PLACE_NOWHERE        ? ": waits, no GPU has room"
               : shares_memory_that_is_not_there(p, i) ? ": will find no memory"
                                                       : "");
    }
}

static void print_json(const struct placing *p)
{
    struct tl_buf out = {0};
    struct tl_json j;
    tl_json_init(&j, &out);
    tl_json_object(&j);
    tl_json_key_str(&j, "placement", tl_placer_names[p->o.placer]);
    tl_json_key(&j, "jobs");
    tl_json_array(&j);
    for (uint32_t i = 0; i < p->n_placed; i++) {
        const struct placed *d = &p->placed[i];
        bool is_placed = d->place.gpu != TL_PLACE_NOWHERE;
        tl_json_object(&j);
        tl_json_key(&j, "name");
        tl_json_str(&j, p->groups[d->group].name);
        tl_json_key_bool(&j, "is_placed", is_placed);
        if (is_placed) {
            tl_json_key_uint(&j, "node", d->place.gpu / p->o.gpus_per_node);
            tl_json_key_uint(&j, "gpu", d->place.gpu % p->o.gpus_per_node);
            tl_json_key_bool(&j, "has_memory", !shares_memory_that_is_not_there(p, i));
        }
        tl_json_end_object(&j);
    }
    tl_json_end_array(&j);
    tl_json_end_object(&j);
    tl_buf_putc(&out, '\n');
    fputs(cli_must(out.p), stdout);
    tl_buf_finish(&out);
}

static int make_fleet(struct placing *p, const struct tl_json_value *root, uint32_t gpus)
{
    struct tl_error err;
    double all = gpus > 0 ? gpus : tl_json_number(root, "gpus", 1),
           per_node = tl_json_number(root, "gpus_per_node", 8),
           memory_mb = tl_json_number(root, "gpu_memory_mb", 0);
    if (!(all >= 1 && all <= MOST_GPUS) || !(per_node >= 1 && per_node <= MOST_GPUS) ||
        !(memory_mb > 0)) {
        cli_complain("%s: needs \"gpu_memory_mb\" above 0, and 1 to %d \"gpus\" and "
                     "\"gpus_per_node\"",
                     p->file, MOST_GPUS);
        return CLI_FAILED;
    }
    p->o.gpus = (uint32_t)all;
    p->o.gpus_per_node = (uint32_t)per_node;
    p->o.gpu_memory_mb = memory_mb;
    if (tl_fleet_create(&p->fleet, &p->o, &err) < 0) {
        cli_complain("%s", err.text);
        return CLI_FAILED;
    }
    return CLI_OK;
}

int cli_plan_place(const struct tl_json_value *root, const char *file, enum tl_placer placer,
                   uint32_t gpus, bool is_json)
{
    struct placing p = {.file = file, .o.placer = placer};
    int status = make_fleet(&p, root, gpus);
    if (status == CLI_OK)
        status = read_jobs(&p, root);
    if (status == CLI_OK) {
        place_all(&p);
        qsort(p.placed, p.n_placed, sizeof *p.placed, by_gpu);
        if (is_json)
            print_json(&p);
        else
            print_text(&p);
        if (p.placed[p.n_placed - 1].place.gpu == TL_PLACE_NOWHERE)
            status = CLI_FAILED;
    }
    tl_fleet_destroy(p.fleet);
    free(p.groups);
    free(p.placed);
    return status;
}
