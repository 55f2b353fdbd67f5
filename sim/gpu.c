/* The event loop of one GPU. */
#include "sim/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const double never = INFINITY;
static const double tiny = 1e-9;

enum phase {
    AWAY,  /* it has not started, or has ended */
    IDLE,  /* waits for the next request */
    HOST,  /* works on the host until `timer` */
    GAP,   /* its next kernel is launched at `timer` */
    READY, /* a kernel is there, on the device or waiting for it */
};

struct client {
    const struct sim_job *job;
    struct sim_result *result;
    struct sim_random random;
    int level;
    bool is_high;
    enum phase phase;
    double timer; /* when something happens by itself */
    /* The round. */
    double arrival, next_arrival, round_start, round_factor;
    uint32_t next_kernel, left; /* kernels of this round that are still to be launched */
    uint32_t next_listed;       /* arrival */
    uint32_t to_pause;          /* kernels until the host does something in between */
    uint64_t rounds;
    double listed_from; /* time 0 of listed arrivals */
    bool has_joined, has_end, is_warm;
    /* The kernel, while READY. */
    struct sim_kernel kernel;
    double since;       /* when it was launched */
    double block_ns;    /* of a wave, as it runs now */
    double work;        /* left, in waves of the whole device */
    double share, rate; /* of the device; work per ns */
    double wave_ns;     /* when its blocks began: waves end at multiples of block_ns from here */
    double boundary;    /* when it gives up what it holds beyond `keeps`; or never */
    double keeps;
    bool is_leaving, is_split; /* it was told to go; it runs in the form that can */
    bool was_started;          /* some of its blocks have run */
    double ran_ns;             /* time on the device of the kernel so far */
    double idle_since;         /* of its work */
    bool has_backlog;
    /* Grants. */
    const struct tl_sched_client *told; /* to the policy, when it joins */
    struct tl_grant grant;
    double window_end, window_blocks; /* of the rate limit */
    struct tl_usage usage;
};

struct gpu {
    const struct sim_gpu_options *o;
    const struct sim_device *d;
    struct sim_run *run;
    struct tl_sched *sched;
    struct client c[SIM_CLIENTS];
    uint32_t n, alive, ending; /* jobs that are there; of them, those that end by themselves */
    double now, next_tick;
    bool is_dirty; /* the policy has something new to decide on */
    bool by_priority, takes_turns, wants_footprints;
    double blocked_until; /* contexts are being switched */
    uint32_t holder, last_ran;
    double busy_ns;
};

/* --- the policy ------------------------------------------------------------------------------- */

static void set_backlog(struct gpu *g, struct client *c, bool has_backlog)
{
    if (c->has_backlog == has_backlog)
        return;
    c->has_backlog = has_backlog;
    if (!has_backlog)
        c->idle_since = g->now;
    tl_sched_backlog(g->sched, (uint32_t)(c - g->c), has_backlog, (uint64_t)g->now);
    g->is_dirty = true;
}

static void hand_over(struct gpu *g)
{
    uint32_t holder = g->holder;
    for (uint32_t i = 0; i < g->n; i++)
        if (g->c[i].has_backlog && g->c[i].grant.may_run)
            holder = i;
    if (holder == g->holder)
        return;
    g->holder = holder;
    for (uint32_t i = 0; i < g->n; i++)
        g->c[i].share = 0; /* the context is saved as it stands */
    g->blocked_until = g->now + g->d->switch_ns;
}

static void tick(struct gpu *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct client *c = &g->c[i];
        if (c->usage.device_ns + c->usage.blocks == 0)
            continue;
        tl_sched_used(g->sched, i, &c->usage, (uint64_t)g->now);
        c->usage = (struct tl_usage){0};
    }
    uint64_t next = tl_sched_tick(g->sched, (uint64_t)g->now);
    g->next_tick = next == UINT64_MAX ? never : (double)next;
    g->is_dirty = false;
    for (uint32_t i = 0; i < g->n; i++) {
        const struct tl_grant *grant = tl_sched_grant(g->sched, i);
        if (grant != NULL)
            g->c[i].grant = *grant;
        if (g->o->runs_beside)
            g->c[i].grant.yields = false;
    }
    if (g->takes_turns)
        hand_over(g);
}

/* When the levels above have been idle for long enough; never if one is busy. */
static double may_restart_at(const struct gpu *g, const struct client *c)
{
    double at = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const struct client *above = &g->c[i];
        if (above->level <= c->level || above->phase == AWAY)
            continue;
        if (above->has_backlog)
            return never;
        if (above->idle_since + (double)c->grant.hysteresis_ns > at)
            at = above->idle_since + (double)c->grant.hysteresis_ns;
    }
    return at;
}

static bool is_allowed(const struct gpu *g, const struct client *c)
{
    if (c->phase != READY || g->now < g->blocked_until)
        return false;
    if (c->was_started && !c->is_split && !g->takes_turns)
        return true; /* nobody takes an original kernel off the device */
    if (!c->grant.may_run)
        return false;
    if (c->grant.yields && may_restart_at(g, c) > g->now)
        return false;
    return true;
}

/* --- rounds and kernels ----------------------------------------------------------------------- */

static void end_job(struct gpu *g, struct client *c)
{
    set_backlog(g, c, false);
    c->phase = AWAY;
    c->timer = never;
    g->alive--;
    g->ending -= c->has_end;
    tl_sched_leave(g->sched, (uint32_t)(c - g->c), (uint64_t)g->now);
    g->is_dirty = true;
}

static void draw_arrival(struct client *c)
{
    const struct sim_job *j = c->job;
    switch (j->arrivals) {
    case SIM_ALWAYS:
        c->next_arrival = 0;
        break;
    case SIM_POISSON:
        c->next_arrival += sim_exponential(&c->random, j->period_ns);
        break;
    case SIM_REGULAR:
        c->next_arrival += (0.9 + 0.2 * sim_uniform(&c->random)) * j->period_ns;
        break;
    case SIM_BURSTS:
        c->next_arrival += sim_uniform(&c->random) < 0.125
                               ? sim_exponential(&c->random, 8 * j->period_ns)
                               : 0;
        break;
    case SIM_LISTED:
        c->next_arrival = c->next_listed < j->n_times ? c->listed_from + j->times_ns[c->next_listed]
                                                      : never;
        c->next_listed++;
        break;
    }
}

/* Its first arrival is drawn, and everybody's kernels are counted from here. */
static void end_warm_up(struct gpu *g, struct client *c)
{
    enum { BREATH_NS = 10000000 };
    c->is_warm = true;
    c->listed_from = c->next_arrival = g->now + (c->job->warm_rounds > 0 ? BREATH_NS : 0);
    if (c->job->arrivals == SIM_LISTED && c->job->warm_rounds == 0)
        c->listed_from = 0;
    draw_arrival(c);
    if (c->job->warm_rounds == 0)
        return;
    g->run->warm_ns = g->now;
    for (uint32_t i = 0; i < g->n; i++)
        g->c[i].result->kernels = 0;
}

/* The next round begins now, or when its request comes. */
static void begin_round(struct gpu *g, struct client *c)
{
    bool is_warming = c->rounds < c->job->warm_rounds;
    if (!is_warming && !c->is_warm)
        end_warm_up(g, c);
    bool has_none_left = c->job->arrivals == SIM_LISTED && c->next_listed > c->job->n_times;
    if (!is_warming && ((c->job->rounds != 0 && c->rounds >= c->job->rounds) || has_none_left)) {
        end_job(g, c);
        return;
    }
    if (!is_warming && c->job->arrivals != SIM_ALWAYS && c->next_arrival > g->now) {
        c->phase = IDLE;
        c->timer = c->next_arrival;
        return;
    }
    c->arrival = c->job->arrivals != SIM_ALWAYS && !is_warming ? c->next_arrival : g->now;
    if (!is_warming)
        draw_arrival(c);
    c->round_start = g->now;
    c->round_factor = 1 + c->job->jitter * sim_normal(&c->random);
    if (c->round_factor < 0.5)
        c->round_factor = 0.5;
    if (c->job->slower > 0)
        c->round_factor *= c->job->slower;
    c->left = c->job->n_round;
    c->to_pause = c->job->pause_every;
    c->phase = HOST;
    c->timer = g->now + c->job->host_before_ns + c->job->kernels[c->next_kernel].host_ns;
}

static void end_round(struct gpu *g, struct client *c)
{
    uint32_t id = (uint32_t)(c - g->c);
    double latency = g->now - c->round_start;
    c->rounds++;
    c->result->finished_ns = g->now;
    if (g->now >= g->o->warmup_ns && c->rounds > c->job->warm_rounds) {
        c->result->rounds++;
        sim_samples_add(&c->result->latency, latency);
        sim_samples_add(&c->result->sojourn, g->now - c->arrival);
    }
    tl_sched_iteration(g->sched, id, (uint64_t)g->now);
    if (c->job->arrivals != SIM_ALWAYS)
        tl_sched_request(g->sched, id, (uint64_t)latency, (uint64_t)g->now);
    g->is_dirty = true;
    begin_round(g, c);
}

/* Time that a kernel waits for memory.  Its job goes through all of its memory again and again, and
 * what came first makes room: as soon as not all of it has room on the device, what is touched is
 * never there, and each page that comes in sends another one out. */
static double paging_ns(const struct gpu *g, const struct client *c)
{
    const struct sim_job *j = c->job;
    if (!c->grant.is_paged || j->touched_bytes <= 0 || c->grant.memory_bytes == 0 ||
        c->grant.memory_bytes >= j->persistent_bytes + j->ephemeral_bytes)
        return 0;
    double page = g->d->page_bytes > 0 ? g->d->page_bytes : 65536;
    return j->touched_bytes * 2 / g->d->pcie * 1e9 + j->touched_bytes / page * g->d->fault_ns;
}

/* The client's next kernel is there: it is cut or not, and waits for its turn. */
static void launch(struct gpu *g, struct client *c)
{
    const struct sim_job *j = c->job;
    c->kernel = j->kernels[c->next_kernel];
    c->next_kernel = c->next_kernel + 1 < j->n_kernels ? c->next_kernel + 1 : 0;
    c->left--;
    c->phase = READY;
    c->since = g->now;
    c->timer = never;
    /* A kernel that ends within the budget anyway runs as it is. */
    double alone_ns = c->kernel.block_ns * c->kernel.waves;
    c->is_split = !c->is_high && c->grant.finest <= TL_RUNG_SLICE && !c->kernel.is_whole &&
                  !g->takes_turns && alone_ns > (double)c->grant.turnaround_ns;
    c->block_ns = c->kernel.block_ns * c->round_factor / (c->is_split ? g->d->transform : 1);
    c->work = c->kernel.waves * c->kernel.width;
    c->share = 0;
    c->boundary = never;
    c->is_leaving = c->was_started = false;
    c->result->kernels++;
    if (c->left + 1 == j->n_round && g->last_ran != (uint32_t)(c - g->c) && j->cold_bytes > 0)
        c->work += c->kernel.width * j->cold_bytes / g->d->bandwidth * 1e9 / c->block_ns;
    c->work += c->kernel.width * paging_ns(g, c) / c->block_ns;
    set_backlog(g, c, true);
    if (g->wants_footprints) {
        struct tl_footprint f = {
            .duration_ns = (uint64_t)(c->kernel.waves * c->block_ns),
            .sm_permille = (uint32_t)(1000 * c->kernel.width),
            .bandwidth_permille = (uint32_t)(1000 * c->kernel.bandwidth),
        };
        tl_sched_footprint(g->sched, (uint32_t)(c - g->c), &f, (uint64_t)g->now);
        g->is_dirty = true;
    }
}

/* A kernel has run to its end: counts it, and says when its client has the next one. */
static void end_kernel(struct gpu *g, struct client *c)
{
    g->run->kernel_events++;
    c->share = c->rate = 0;
    c->boundary = never;
    c->usage.device_ns += (uint64_t)c->ran_ns;
    c->ran_ns = 0;
    c->usage.blocks += c->kernel.blocks;
    c->usage.launches++;
    g->last_ran = (uint32_t)(c - g->c);
    if (c->left == 0) {
        set_backlog(g, c, false);
        c->phase = HOST;
        c->timer = g->now + c->job->host_after_ns;
        c->left = UINT32_MAX; /* the round ends when the host is done */
        return;
    }
    if (c->job->pause_every > 0 && --c->to_pause == 0) {
        c->to_pause = c->job->pause_every;
        set_backlog(g, c, false);
        c->phase = HOST;
        c->timer = g->now + c->job->pause_ns;
        return;
    }
    double gap_ns = c->job->gap_ns > 0 ? c->job->gap_ns : g->d->launch_ns;
    /* It goes by kernels: who has none loses its turn, unless the next one is there before another
     * has woken up. */
    if (g->takes_turns && g->d->is_in_order && gap_ns > g->d->switch_ns)
        set_backlog(g, c, false);
    c->phase = GAP;
    c->timer = g->now + gap_ns;
    if (c->grant.yields && c->timer < g->now + g->d->gap_ns)
        c->timer = g->now + g->d->gap_ns;
    if (c->grant.blocks_per_s != 0) {
        /* As in TGS: who has launched more than the window's blocks waits for the next window. */
        double limit = (double)c->grant.blocks_per_s / 20;
        if (g->now >= c->window_end) {
            c->window_end = g->now + 50e6;
            c->window_blocks = 0;
        }
        c->window_blocks += (double)c->kernel.blocks;
        if (c->window_blocks > limit && c->timer < c->window_end)
            c->timer = c->window_end;
    }
}

/* Whether there is room for it: what can leave the device makes room, and finds some. */
static bool has_room(const struct gpu *g, const struct client *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < g->n; i++)
        if (&g->c[i] == c || (g->c[i].has_joined && g->c[i].phase != AWAY))
            sum += g->c[i].job->persistent_bytes + g->c[i].job->ephemeral_bytes;
    const struct tl_grant *grant = tl_sched_grant(g->sched, (uint32_t)(c - g->c));
    return sum <= g->d->memory_bytes || (grant != NULL && grant->is_paged);
}

static void start_job(struct gpu *g, struct client *c)
{
    uint32_t id = (uint32_t)(c - g->c);
    if (!c->has_joined && tl_sched_join(g->sched, id, c->told, (uint64_t)g->now) == 0) {
        tl_sched_memory(g->sched, id, c->job->persistent_bytes, c->job->ephemeral_bytes,
                        (uint64_t)g->now);
        tick(g);
    }
    c->has_joined = true;
    if (g->o->has_limited_memory && !has_room(g, c)) {
        c->result->is_out_of_memory = true;
        end_job(g, c);
        return;
    }
    begin_round(g, c);
}

static void timer_fires(struct gpu *g, struct client *c)
{
    c->timer = never;
    switch (c->phase) {
    case AWAY:
        start_job(g, c);
        break;
    case IDLE:
        begin_round(g, c);
        break;
    case HOST:
        if (c->left == UINT32_MAX)
            end_round(g, c);
        else
            launch(g, c);
        break;
    case GAP:
        launch(g, c);
        break;
    case READY:
        break;
    }
}

/* --- the device ------------------------------------------------------------------------------- */

/* A part of the SMs is whole SMs, and at least one. */
static double wanted(const struct gpu *g, const struct client *c)
{
    uint32_t sms = g->d->n_sms * c->grant.sm_permille / 1000;
    double cap = (double)(sms > 0 ? sms : 1) / g->d->n_sms;
    return c->kernel.width < cap ? c->kernel.width : cap;
}

static double next_boundary(const struct client *c, double from)
{
    double waves = ceil((from - c->wave_ns) / c->block_ns - tiny);
    return c->wave_ns + (waves < 1 ? 1 : waves) * c->block_ns;
}

/* The same on a device that takes kernels in the order of their arrival: who came first has what it
 * wants, the next one what is left. */
static void share_in_order(const struct gpu *g, const double *want, double *entitled)
{
    for (uint32_t i = 0; i < g->n; i++) {
        double before = 0;
        for (uint32_t k = 0; k < g->n; k++) {
            const struct client *a = &g->c[k], *b = &g->c[i];
            bool is_above = g->by_priority && a->level > b->level,
                 is_below = g->by_priority && a->level < b->level;
            if (k != i && (is_above ||
                           (!is_below && (a->since < b->since || (a->since <= b->since && k < i)))))
                before += want[k];
        }
        entitled[i] = before < 1 ? 1 - before : 0;
    }
}

/* What each client may keep when others want the device too: higher levels first where the device
 * knows priorities, equals alike. `want` is 0 for who is not allowed.  Clients stand in the order
 * of their levels. */
static void share_out(const struct gpu *g, const double *want, double *entitled)
{
    double above = 0;
    for (uint32_t i = 0, end; i < g->n; i = end) {
        double sum = 0;
        uint32_t active = 0;
        for (end = i; end < g->n && (!g->by_priority || g->c[end].level == g->c[i].level); end++) {
            sum += want[end];
            active += want[end] > 0;
        }
        double left = above < 1 ? 1 - above : 0;
        for (uint32_t k = i; k < end; k++) {
            double rest = left - (sum - want[k]), equal = active > 0 ? left / active : left;
            entitled[k] = rest > equal ? rest : equal;
        }
        above += sum;
    }
}

/* Gives c up to `limit` of what is free. */
static void give(struct gpu *g, struct client *c, double limit, double *free_share)
{
    double takes = limit - c->share < *free_share ? limit - c->share : *free_share;
    if (takes <= tiny)
        return;
    if (takes >= c->share)
        c->wave_ns = g->now;
    c->share += takes;
    c->was_started = true;
    *free_share -= takes;
}

/* Gives free shares away, and tells who holds too much to let go where its blocks end. */
static void dispatch(struct gpu *g)
{
    double free_share = 1, want[SIM_CLIENTS], entitled[SIM_CLIENTS];
    for (uint32_t i = 0; i < g->n; i++) {
        struct client *c = &g->c[i];
        free_share -= c->share;
        want[i] = is_allowed(g, c) ? wanted(g, c) : 0;
        if (want[i] > 0 && c->is_leaving) { /* it may stay after all */
            c->is_leaving = false;
            c->boundary = never;
        }
    }
    if (g->d->is_in_order)
        share_in_order(g, want, entitled);
    else
        share_out(g, want, entitled);
    for (uint32_t i = 0; i < g->n && free_share > tiny; i++)
        give(g, &g->c[i], want[i] < entitled[i] ? want[i] : entitled[i], &free_share);
    bool somebody_lacks = false;
    /* what nobody is entitled to goes to whoever can use it */
    for (uint32_t i = 0; i < g->n; i++) {
        if (free_share > tiny && g->c[i].boundary >= never)
            give(g, &g->c[i], want[i], &free_share);
        double due = want[i] < entitled[i] ? want[i] : entitled[i];
        somebody_lacks |= g->c[i].share < due - 0.01;
    }
    double bandwidth = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        struct client *c = &g->c[i];
        if (c->share <= 0)
            continue;
        bandwidth += c->kernel.bandwidth * c->share / c->kernel.width;
        if (want[i] <= 0 && c->is_split && !c->is_leaving) {
            c->is_leaving = true;
            c->keeps = 0;
            c->boundary = next_boundary(c, g->now + g->d->signal_ns);
            c->result->preempted++;
        } else if (somebody_lacks && c->boundary >= never && c->share > entitled[i] + 0.01) {
            c->keeps = entitled[i];
            c->boundary = next_boundary(c, g->now);
        }
    }
    double slow = bandwidth > 1 ? bandwidth : 1;
    for (uint32_t i = 0; i < g->n; i++)
        g->c[i].rate = g->c[i].share > 0 ? g->c[i].share / (g->c[i].block_ns * slow) : 0;
}

static void advance(struct gpu *g, double to)
{
    double dt = to - g->now;
    for (uint32_t i = 0; i < g->n; i++) {
        struct client *c = &g->c[i];
        if (c->share <= 0)
            continue;
        c->work -= c->rate * dt;
        c->ran_ns += dt;
        if (to >= g->o->warmup_ns) {
            c->result->busy_ns += c->share * dt;
            g->busy_ns += c->share * dt;
        }
    }
    g->now = to;
}

static double next_event(const struct gpu *g)
{
    double next = g->next_tick;
    if (g->blocked_until > g->now && g->blocked_until < next)
        next = g->blocked_until;
    for (uint32_t i = 0; i < g->n; i++) {
        const struct client *c = &g->c[i];
        if (c->timer < next)
            next = c->timer;
        if (c->share > 0) {
            double end = g->now + (c->work > 0 ? c->work / c->rate : 0);
            if (end < next)
                next = end;
            if (c->boundary < next)
                next = c->boundary;
        } else if (c->phase == READY && c->grant.yields && c->grant.may_run) {
            double at = may_restart_at(g, c);
            if (at > g->now && at < next)
                next = at;
        }
    }
    return next;
}

static void step(struct gpu *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct client *c = &g->c[i];
        if (c->share > 0 && c->work <= c->rate * 0.5) { /* half a nanosecond is nothing */
            end_kernel(g, c);
        } else if (c->share > 0 && c->boundary <= g->now) {
            c->boundary = never;
            c->share = c->keeps < c->share ? c->keeps : c->share;
        }
        if (c->timer <= g->now)
            timer_fires(g, c);
    }
    if (g->is_dirty || g->next_tick <= g->now)
        tick(g);
    dispatch(g);
}

/* --- a run ------------------------------------------------------------------------------------ */

/* Makes the scheduler and the clients of a run.  0, or a negative errno value with a message. */
static int set_up(struct gpu *g, const struct sim_job *jobs, const struct tl_sched_client *clients,
                  uint32_t n, struct tl_error *err)
{
    const struct sim_gpu_options *o = g->o;
    struct tl_sched_options so = {
        .n_sms = g->d->n_sms,
        .memory_bytes = g->d->memory_bytes,
        .seed = o->seed,
        .quantum_ns = o->quantum_ns,
        .turnaround_ns = o->turnaround_ns,
        .hysteresis_ns = o->hysteresis_ns,
        .parameters = o->parameters,
    };
    int rc = tl_sched_create(&g->sched, o->policy, &so, err);
    if (rc < 0)
        return rc;
    for (const struct tl_policy *const *p = tl_sched_policies(); *p != NULL; p++)
        if (strcmp(tl_policy_name(*p), o->policy) == 0)
            g->by_priority = strcmp(o->dispatch != NULL ? o->dispatch : tl_policy_dispatch(*p),
                                    "mps-priority") == 0;
    g->takes_turns = strcmp(o->policy, "timeslice") == 0;
    g->wants_footprints = strcmp(o->policy, "herald") == 0 || strcmp(o->policy, "reef") == 0 ||
                          strcmp(o->policy, "orion") == 0;
    for (uint32_t i = 0; i < n; i++) {
        struct client *c = &g->c[i];
        *c = (struct client){.job = &jobs[i],
                             .result = &g->run->results[i],
                             .random = sim_random(o->seed * 1000 + i),
                             .level = clients[i].level,
                             .is_high = clients[i].level >= TL_LEVEL_HIGH,
                             .timer = jobs[i].start_ns,
                             .boundary = never,
                             .idle_since = -1e18};
        /* Where kernels are those of whole rounds, it begins with one. */
        uint32_t unit = jobs[i].n_kernels % jobs[i].n_round == 0 ? jobs[i].n_round : 1;
        c->next_kernel = (uint32_t)(sim_random_bits(&c->random) % (jobs[i].n_kernels / unit)) *
                         unit;
        c->told = &clients[i];
        c->has_end = jobs[i].rounds > 0 || jobs[i].arrivals == SIM_LISTED;
        g->ending += c->has_end;
        if (jobs[i].start_ns > 0)
            continue; /* it joins when it starts */
        c->has_joined = true;
        rc = tl_sched_join(g->sched, i, &clients[i], 0);
        if (rc < 0)
            return tl_error_set(err, rc, "client %u cannot join", i);
        tl_sched_memory(g->sched, i, jobs[i].persistent_bytes, jobs[i].ephemeral_bytes, 0);
    }
    g->n = g->alive = n;
    g->holder = g->last_ran = UINT32_MAX;
    tick(g);
    return 0;
}

int sim_gpu_run(struct sim_run *run, const struct sim_gpu_options *o, const struct sim_job *jobs,
                const struct tl_sched_client *clients, uint32_t n, struct tl_error *err)
{
    memset(run, 0, sizeof *run);
    if (n == 0 || n > SIM_CLIENTS)
        return tl_error_set(err, -EINVAL, "a GPU takes 1 to %d jobs", SIM_CLIENTS);
    struct gpu *g = calloc(1, sizeof *g);
    if (g == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory for a GPU");
    g->o = o;
    g->d = o->device;
    g->run = run;
    int rc = set_up(g, jobs, clients, n, err);
    bool somebody_ends = g->ending > 0;
    while (rc == 0 && g->alive > 0 && (!somebody_ends || g->ending > 0)) {
        double next = next_event(g);
        if (next >= o->duration_ns || next >= never)
            break;
        advance(g, next);
        step(g);
    }
    run->ended_ns = g->now;
    double measured = g->now - o->warmup_ns;
    run->utilization = measured > 0 ? g->busy_ns / measured : 0;
    tl_sched_destroy(g->sched);
    free(g);
    return rc;
}

void sim_run_finish(struct sim_run *run)
{
    for (int i = 0; i < SIM_CLIENTS; i++) {
        sim_samples_finish(&run->results[i].latency);
        sim_samples_finish(&run->results[i].sojourn);
    }
}
