/* A day of a fleet; see the header. */
#include "sim/fleet.h"

#include "sim/cluster.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_PER_NODE = 8, GPU_MEMORY_MB = 40960, LOOK_AHEAD = 100, NOBODY = UINT32_MAX };
static const double day_s = 86400, hour_s = 3600, retry_s = 60, late = 1.2;

/* --- the day's jobs --------------------------------------------------------------------------- */

const char *sim_fleet_policy(enum tl_placer placer)
{
    switch (placer) {
    case TL_PLACE_SLURM_MPS:
        return "none"; /* MPS without priorities */
    case TL_PLACE_TALLY:
        return "tally";
    default:
        return "timeslice";
    }
}

/* Sizes of models differ: a half to twice what the profile has, but never more than a GPU. */
static double memory_of(uint32_t kind, struct sim_random *r)
{
    double mb = sim_kind_memory_mb(kind) * exp2(2 * sim_uniform(r) - 1);
    return mb < 0.95 * GPU_MEMORY_MB ? mb : 0.95 * GPU_MEMORY_MB;
}

struct sim_fleet_job *sim_fleet_jobs(uint32_t gpus, double services, double load, uint64_t seed,
                                     uint32_t *n)
{
    struct sim_random r = sim_random(seed);
    uint32_t n_services = (uint32_t)(services * gpus + 0.5), n_trainings;
    struct sim_cluster_job sample[1000];
    double work = 0;
    sim_philly_like(sample, 1000, day_s, seed);
    for (int i = 0; i < 1000; i++)
        work += sample[i].work_s / 1000;
    n_trainings = (uint32_t)(load * gpus * day_s / work + 0.5);
    struct sim_fleet_job *jobs = calloc(n_services + n_trainings + 1, sizeof *jobs);
    struct sim_cluster_job *stream = calloc(n_trainings + 1, sizeof *stream);
    *n = n_services + n_trainings;
    if (jobs == NULL || stream == NULL) {
        free(jobs);
        free(stream);
        return NULL;
    }
    for (uint32_t i = 0; i < n_services; i++) {
        uint32_t model = (uint32_t)(sim_random_bits(&r) % SIM_SERVICES);
        jobs[i] = (struct sim_fleet_job){.is_service = true,
                                         .model = model,
                                         .base_load = 0.25 + 0.35 * sim_uniform(&r),
                                         .phase_h = 24 * sim_uniform(&r),
                                         .memory_mb = memory_of(sim_service_kind(model, 0), &r)};
    }
    sim_philly_like(stream, n_trainings, day_s, seed + 1);
    for (uint32_t i = 0; i < n_trainings; i++) {
        uint32_t model = (uint32_t)(sim_random_bits(&r) % SIM_TRAININGS);
        jobs[n_services + i] = (struct sim_fleet_job){
            .model = model,
            .submit_s = stream[i].submit_s,
            .work_s = stream[i].work_s,
            .memory_mb = memory_of(sim_training_kind(model), &r)};
    }
    free(stream);
    return jobs;
}

/* --- the run ---------------------------------------------------------------------------------- */

/* Something that will happen.  A GPU's next end holds while its stamp does. */
struct event {
    double at_s;
    uint32_t gpu, job, stamp; /* the end of a job on a GPU; or a job that tries again */
};

struct state {
    struct tl_place place;
    double left_s, speed, since_s, p99;
    uint32_t kind;
    bool is_placed, has_failed;
};

struct gpu {
    uint32_t jobs[TL_PLACE_SLOTS];
    uint32_t stamp;
};

struct run {
    const struct sim_fleet_options *o;
    struct sim_fleet_job *jobs;
    struct state *states;
    uint32_t n, n_left; /* trainings that have not ended */
    struct gpu *gpus;
    struct tl_fleet *fleet;
    struct event *heap;
    uint32_t n_heap, heap_cap;
    uint32_t *queue; /* in the order of their coming, NOBODY where one has gone */
    uint32_t queue_first, queue_n, queue_cap;
    double now_s, weights, p99_sum, late_sum, busy_s;
    struct sim_fleet_result *r;
    struct tl_error *err;
    int rc;
};

static bool grow(struct run *s, void **items, uint32_t n, uint32_t *cap, size_t bytes)
{
    if (n < *cap)
        return true;
    uint32_t more = *cap == 0 ? 1024 : *cap * 2;
    void *p = realloc(*items, more * bytes);
    if (p == NULL) {
        s->rc = tl_error_set(s->err, -ENOMEM, "out of memory for a fleet's events");
        return false;
    }
    *items = p;
    *cap = more;
    return true;
}

static void push(struct run *s, struct event e)
{
    if (!grow(s, (void **)&s->heap, s->n_heap, &s->heap_cap, sizeof e))
        return;
    uint32_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 2].at_s > e.at_s; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

static struct event pop(struct run *s)
{
    struct event top = s->heap[0], last = s->heap[--s->n_heap];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < s->n_heap && s->heap[child + 1].at_s < s->heap[child].at_s)
            child++;
        if (child >= s->n_heap || s->heap[child].at_s >= last.at_s)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* The kind of a job at this hour; a service's load goes up and down by 40 % in the course of the
 * day. */
static uint32_t kind_now(const struct run *s, uint32_t job)
{
    const struct sim_fleet_job *j = &s->jobs[job];
    if (!j->is_service)
        return sim_training_kind(j->model);
    double hours = floor(s->now_s / hour_s) + j->phase_h;
    double load = j->base_load * (1 + 0.4 * sin(hours / 24 * 6.283185307179586));
    uint32_t nearest = 0;
    for (uint32_t i = 1; i < SIM_LOADS; i++)
        if (fabs(sim_loads[i] - load) < fabs(sim_loads[nearest] - load))
            nearest = i;
    return sim_service_kind(j->model, nearest);
}

/* What a job did since somebody looked last. */
static void account(struct run *s, uint32_t job)
{
    struct state *t = &s->states[job];
    double dt = s->now_s - t->since_s;
    t->since_s = s->now_s;
    if (!s->jobs[job].is_service) {
        t->left_s -= dt * t->speed;
        return;
    }
    if (s->now_s - dt >= day_s)
        return; /* the day is over; only trainings are waited for */
    double requests = dt * sim_kind_load(t->kind);
    s->weights += requests;
    s->p99_sum += requests * t->p99;
    s->late_sum += t->p99 >= late ? requests : 0;
}

/* Speeds of a GPU's jobs from now on, and when the first of them ends. */
static void settle(struct run *s, uint32_t gpu)
{
    struct gpu *g = &s->gpus[gpu];
    struct event next = {.at_s = INFINITY, .gpu = gpu, .job = NOBODY, .stamp = ++g->stamp};
    for (uint32_t i = 0; i < TL_PLACE_SLOTS; i++)
        if (g->jobs[i] != NOBODY)
            s->states[g->jobs[i]].kind = kind_now(s, g->jobs[i]);
    for (uint32_t i = 0; s->rc == 0 && i < TL_PLACE_SLOTS; i++) {
        uint32_t job = g->jobs[i], other = g->jobs[1 - i];
        struct sim_meeting m;
        if (job == NOBODY)
            continue;
        struct state *t = &s->states[job];
        s->rc = sim_neighbours_meet(s->o->neighbours, t->kind,
                                    other == NOBODY ? SIM_ALONE : s->states[other].kind, &m,
                                    s->err);
        t->speed = m.speed;
        t->p99 = m.p99;
        double end_s = s->now_s + (m.speed > 0 ? t->left_s / m.speed : INFINITY);
        if (!s->jobs[job].is_service && end_s < next.at_s) {
            next.at_s = end_s;
            next.job = job;
        }
    }
    if (next.job != NOBODY)
        push(s, next);
}

static void account_gpu(struct run *s, uint32_t gpu)
{
    for (uint32_t i = 0; i < TL_PLACE_SLOTS; i++)
        if (s->gpus[gpu].jobs[i] != NOBODY)
            account(s, s->gpus[gpu].jobs[i]);
}

static bool is_empty(const struct gpu *g)
{
    return g->jobs[0] == NOBODY && g->jobs[1] == NOBODY;
}

/* Busy time counts within the day only. */
static double day_left_s(const struct run *s)
{
    return s->now_s < day_s ? day_s - s->now_s : 0;
}

static double memory_on(const struct run *s, uint32_t gpu)
{
    double mb = 0;
    for (uint32_t i = 0; i < TL_PLACE_SLOTS; i++)
        if (s->gpus[gpu].jobs[i] != NOBODY)
            mb += s->jobs[s->gpus[gpu].jobs[i]].memory_mb;
    return mb;
}

/* A job has got a place: it starts, or finds the memory taken and is sent again, where one can ask
 * for that with a whole GPU to itself. */
static void start(struct run *s, uint32_t job, struct tl_place place)
{
    struct sim_fleet_job *j = &s->jobs[job];
    struct gpu *g = &s->gpus[place.gpu];
    if (memory_on(s, place.gpu) + j->memory_mb > GPU_MEMORY_MB) {
        s->r->no_memory++;
        s->states[job].has_failed = true;
        tl_fleet_leave(s->fleet, place);
        push(s, (struct event){.at_s = s->now_s + retry_s, .gpu = NOBODY, .job = job});
        return;
    }
    account_gpu(s, place.gpu);
    if (is_empty(g))
        s->busy_s += day_left_s(s);
    g->jobs[place.slot] = job;
    s->states[job] = (struct state){
        .place = place, .left_s = j->work_s, .since_s = s->now_s, .is_placed = true};
    j->start_s = s->now_s;
    settle(s, place.gpu);
}

static struct tl_place_job as_placed(const struct run *s, uint32_t job)
{
    const struct sim_fleet_job *j = &s->jobs[job];
    bool is_whole = s->states[job].has_failed && s->o->placer == TL_PLACE_SLURM_MPS;
    return (struct tl_place_job){.is_high = j->is_service,
                                 .is_whole = is_whole,
                                 .load = sim_kind_load(kind_now(s, job)),
                                 .memory_mb = j->memory_mb};
}

static void arrive(struct run *s, uint32_t job)
{
    struct tl_place_job p = as_placed(s, job);
    struct tl_place place = tl_fleet_put(s->fleet, &p);
    if (place.gpu != TL_PLACE_NOWHERE)
        start(s, job, place);
    else if (grow(s, (void **)&s->queue, s->queue_n, &s->queue_cap, sizeof *s->queue))
        s->queue[s->queue_n++] = job;
}

/* A GPU has room: the first who waits and fits there gets it, and the next if there still is room.
 * Nobody looks further than schedulers do. */
static void offer(struct run *s, uint32_t gpu)
{
    while (s->queue_first < s->queue_n && s->queue[s->queue_first] == NOBODY)
        s->queue_first++;
    uint32_t seen = 0;
    for (uint32_t i = s->queue_first; i < s->queue_n && seen < LOOK_AHEAD && s->rc == 0; i++) {
        uint32_t job = s->queue[i];
        if (job == NOBODY)
            continue;
        seen++;
        struct tl_place_job p = as_placed(s, job);
        if (!tl_fleet_fits(s->fleet, gpu, &p))
            continue;
        s->queue[i] = NOBODY;
        start(s, job, tl_fleet_put_on(s->fleet, gpu, &p));
    }
}

static void finish(struct run *s, uint32_t gpu, uint32_t job)
{
    struct state *t = &s->states[job];
    account_gpu(s, gpu);
    s->gpus[gpu].jobs[t->place.slot] = NOBODY;
    tl_fleet_leave(s->fleet, t->place);
    t->is_placed = false;
    s->jobs[job].finish_s = s->now_s;
    s->n_left--;
    if (is_empty(&s->gpus[gpu]))
        s->busy_s -= day_left_s(s);
    settle(s, gpu);
    offer(s, gpu);
}

/* Loads of services change. */
static void turn_hour(struct run *s)
{
    for (uint32_t job = 0; job < s->n && s->jobs[job].is_service && s->rc == 0; job++) {
        struct state *t = &s->states[job];
        if (!t->is_placed || kind_now(s, job) == t->kind)
            continue;
        tl_fleet_set_load(s->fleet, t->place, sim_kind_load(kind_now(s, job)));
        account_gpu(s, t->place.gpu);
        settle(s, t->place.gpu);
        s->r->events++;
    }
}

/* All events in their order; jobs stand in the order of their coming. */
static void go_through(struct run *s)
{
    uint32_t next_job = 0;
    double hour = hour_s;
    while (s->rc == 0 && (s->n_left > 0 || next_job < s->n)) {
        double coming = next_job < s->n ? s->jobs[next_job].submit_s : INFINITY;
        double known = s->n_heap > 0 ? s->heap[0].at_s : INFINITY;
        double at = coming < known ? coming : known;
        at = hour < at ? hour : at;
        if (at > s->o->limit_s)
            break;
        s->now_s = at;
        if (at == hour) {
            turn_hour(s);
            hour = hour < day_s ? hour + hour_s : INFINITY;
        } else if (at == coming) {
            arrive(s, next_job++);
        } else {
            struct event e = pop(s);
            if (e.gpu == NOBODY)
                arrive(s, e.job);
            else if (e.stamp == s->gpus[e.gpu].stamp)
                finish(s, e.gpu, e.job);
            else
                continue; /* something else happened there since */
        }
        s->r->events++;
    }
}

static void sum_up(struct run *s)
{
    struct sim_fleet_result *r = s->r;
    uint32_t finished = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct sim_fleet_job *j = &s->jobs[i];
        if (s->states[i].is_placed)
            account(s, i);
        r->unfinished += j->is_service ? j->start_s < 0 : j->finish_s < 0;
        if (j->is_service || j->finish_s < 0)
            continue;
        finished++;
        r->mean_wait_s += j->start_s - j->submit_s;
        r->mean_jct_s += j->finish_s - j->submit_s;
        r->mean_stretch += (j->finish_s - j->submit_s) / j->work_s;
    }
    double by = finished > 0 ? finished : 1;
    r->mean_wait_s /= by;
    r->mean_jct_s /= by;
    r->mean_stretch /= by;
    r->p99_mean = s->weights > 0 ? s->p99_sum / s->weights : 0;
    r->late_part = s->weights > 0 ? s->late_sum / s->weights : 0;
    r->busy_part = s->busy_s / (day_s * s->o->gpus);
}

int sim_fleet_run(struct sim_fleet_job *jobs, uint32_t n, const struct sim_fleet_options *o,
                  struct sim_fleet_result *r, struct tl_error *err)
{
    struct run s = {.o = o, .jobs = jobs, .n = n, .r = r, .err = err};
    *r = (struct sim_fleet_result){0};
    s.states = calloc(n + 1, sizeof *s.states);
    s.gpus = malloc(o->gpus * sizeof *s.gpus);
    s.rc = s.states == NULL || s.gpus == NULL
               ? tl_error_set(err, -ENOMEM, "out of memory for a fleet of %u GPUs", o->gpus)
               : tl_fleet_create(&s.fleet,
                                 &(struct tl_fleet_options){.placer = o->placer,
                                                            .gpus = o->gpus,
                                                            .gpus_per_node = GPUS_PER_NODE,
                                                            .gpu_memory_mb = GPU_MEMORY_MB,
                                                            .seed = o->seed},
                                 err);
    for (uint32_t i = 0; s.rc == 0 && i < o->gpus; i++)
        s.gpus[i] = (struct gpu){.jobs = {NOBODY, NOBODY}};
    for (uint32_t i = 0; i < n; i++) {
        jobs[i].start_s = jobs[i].finish_s = -1;
        s.n_left += !jobs[i].is_service;
    }
    if (s.rc == 0)
        go_through(&s);
    if (s.rc == 0)
        sum_up(&s);
    tl_fleet_destroy(s.fleet);
    free(s.states);
    free(s.gpus);
    free(s.heap);
    free(s.queue);
    return s.rc;
}
