/* Salus's lanes: best fit, a pending queue without head-of-line blocking, lanes that grow into free
 * memory and shrink between iterations. */
#include "sched/lanes.h"
#include "tally/array.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void tl__lanes_init(struct tl_lanes *l, uint64_t capacity)
{
    *l = (struct tl_lanes){.capacity = capacity, .free = capacity};
}

void tl__lanes_finish(struct tl_lanes *l)
{
    free(l->lanes);
    free(l->jobs);
    *l = (struct tl_lanes){0};
}

const struct tl_lane_job *tl__lanes_job(const struct tl_lanes *l, uint32_t id)
{
    for (uint32_t i = 0; i < l->n_jobs; i++)
        if (l->jobs[i].id == id)
            return &l->jobs[i];
    return NULL;
}

/* What a lane's jobs hold, and the largest ephemeral part among them. */
static uint64_t lane_persistent(const struct tl_lanes *l, uint32_t lane, uint64_t *most_ephemeral)
{
    uint64_t sum = 0;
    *most_ephemeral = 0;
    for (uint32_t i = 0; i < l->n_jobs; i++) {
        const struct tl_lane_job *j = &l->jobs[i];
        if (!j->is_placed || j->lane != lane)
            continue;
        sum += j->persistent;
        if (j->ephemeral > *most_ephemeral)
            *most_ephemeral = j->ephemeral;
    }
    return sum;
}

uint64_t tl__lanes_need(const struct tl_lanes *l, uint32_t lane)
{
    uint64_t ephemeral;
    uint64_t persistent = lane_persistent(l, lane, &ephemeral);
    return persistent + ephemeral;
}

bool tl__lanes_are_safe(const struct tl_lanes *l)
{
    uint64_t sum = l->free;
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        if (tl__lanes_need(l, l->lanes[i].number) > l->lanes[i].bytes)
            return false;
        sum += l->lanes[i].bytes;
    }
    return sum == l->capacity;
}

static bool open_lane(struct tl_lanes *l, struct tl_lane_job *j)
{
    uint64_t bytes = j->persistent + j->ephemeral;
    if (bytes > l->free)
        return false;
    if (!TL_ARRAY_FIT(l->lanes, l->lanes_cap, l->n_lanes + 1))
        return false; /* it stays pending */
    l->lanes[l->n_lanes++] = (struct tl_lane){.number = l->numbers, .bytes = bytes};
    l->free -= bytes;
    j->lane = l->numbers++;
    j->is_placed = true;
    return true;
}

/* Into the lane that has the least to spare and still is safe with it. */
static bool best_fit(struct tl_lanes *l, struct tl_lane_job *j)
{
    const struct tl_lane *best = NULL;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        uint64_t ephemeral;
        uint64_t persistent = lane_persistent(l, l->lanes[i].number, &ephemeral);
        if (j->ephemeral > ephemeral)
            ephemeral = j->ephemeral;
        uint64_t available = l->lanes[i].bytes - persistent;
        if (j->persistent + ephemeral <= available && available < least) {
            best = &l->lanes[i];
            least = available;
        }
    }
    if (best == NULL)
        return false;
    j->lane = best->number;
    j->is_placed = true;
    return true;
}

/* Into the lane that has to grow the least for it, if the free memory is enough for that.  Between
 * iterations lanes can be moved, so free memory is one piece. */
static bool grow_lane(struct tl_lanes *l, struct tl_lane_job *j)
{
    struct tl_lane *best = NULL;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        uint64_t ephemeral;
        uint64_t need = j->persistent + lane_persistent(l, l->lanes[i].number, &ephemeral);
        need += j->ephemeral > ephemeral ? j->ephemeral : ephemeral;
        uint64_t more = need > l->lanes[i].bytes ? need - l->lanes[i].bytes : 0;
        if (more <= l->free && more < least) {
            best = &l->lanes[i];
            least = more;
        }
    }
    if (best == NULL)
        return false;
    best->bytes += least;
    l->free -= least;
    j->lane = best->number;
    j->is_placed = true;
    return true;
}

/* All pending jobs in order; true if one was placed. */
static bool place_pending(struct tl_lanes *l)
{
    bool was_placed = false;
    for (uint32_t i = 0; i < l->n_jobs; i++)
        if (!l->jobs[i].is_placed)
            was_placed |= open_lane(l, &l->jobs[i]) || best_fit(l, &l->jobs[i]) ||
                          grow_lane(l, &l->jobs[i]);
    return was_placed;
}

int tl__lanes_add(struct tl_lanes *l, uint32_t id, uint64_t persistent, uint64_t ephemeral)
{
    if (!TL_ARRAY_FIT(l->jobs, l->jobs_cap, l->n_jobs + 1))
        return -ENOMEM;
    double p = 1.1 * (double)persistent, size = 1.05 * (p + (double)ephemeral);
    if (size > (double)l->capacity)
        size = (double)l->capacity;
    if (p > size)
        p = size;
    struct tl_lane_job *j = &l->jobs[l->n_jobs++];
    *j = (struct tl_lane_job){.id = id, .persistent = (uint64_t)p};
    j->ephemeral = (uint64_t)size - j->persistent;
    place_pending(l);
    assert(tl__lanes_are_safe(l));
    return 0;
}

/* Gives back what a lane has beyond its jobs' need; a lane without jobs goes. */
static void shrink_lane(struct tl_lanes *l, uint32_t number)
{
    uint32_t at = 0;
    while (at < l->n_lanes && l->lanes[at].number != number)
        at++;
    if (at == l->n_lanes)
        return;
    uint64_t need = tl__lanes_need(l, number);
    assert(need <= l->lanes[at].bytes);
    l->free += l->lanes[at].bytes - need;
    l->lanes[at].bytes = need;
    bool has_jobs = false;
    for (uint32_t i = 0; i < l->n_jobs; i++)
        has_jobs |= l->jobs[i].is_placed && l->jobs[i].lane == number;
    if (!has_jobs)
        l->lanes[at] = l->lanes[--l->n_lanes];
}

void tl__lanes_remove(struct tl_lanes *l, uint32_t id)
{
    const struct tl_lane_job *j = tl__lanes_job(l, id);
    if (j == NULL)
        return;
    struct tl_lane_job gone = *j;
    uint32_t at = (uint32_t)(j - l->jobs);
    l->n_jobs--;
    memmove(l->jobs + at, l->jobs + at + 1, (l->n_jobs - at) * sizeof l->jobs[0]);
    if (gone.is_placed) {
        /* The lane keeps its size for the jobs in it until one of their iterations ends, unless it
         * is empty. */
        uint64_t ephemeral;
        if (lane_persistent(l, gone.lane, &ephemeral) + ephemeral == 0)
            shrink_lane(l, gone.lane);
    }
    place_pending(l);
    assert(tl__lanes_are_safe(l));
}

bool tl__lanes_settle(struct tl_lanes *l, uint32_t id)
{
    const struct tl_lane_job *j = tl__lanes_job(l, id);
    if (j == NULL || !j->is_placed)
        return false;
    shrink_lane(l, j->lane);
    bool was_placed = place_pending(l);
    assert(tl__lanes_are_safe(l));
    return was_placed;
}
