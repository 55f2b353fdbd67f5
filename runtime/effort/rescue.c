/* Launches that do not end because blocks of theirs wait for blocks that we hold back: the last
 * line behind a verdict that was wrong.
 *
 * A kernel in pieces has blocks that are not begun: behind a stop, behind the last slice, behind
 * the end of a trial, or because there are fewer workers than the device has room for blocks.  If a
 * block that runs waits for one of these, nothing moves any more.  So a launch with such blocks of
 * which nothing has moved for long (tl_eff_plan_patience) gets all of them launched beside it, in a
 * stream of their own, with stop words that never say stop:
 *
 *     slice        the blocks behind the last slice, as one more
 *     ticket       as many blocks as numbers may be left, on the same counter; who finds none leaves
 *     persistent   workers on the same counter, with the same batch, up to the same end; and if that end is
 *                  a trial's, workers on a counter of their own for the rest
 *     gate         the whole grid again, with a word of its own; blocks leave at once that may run in the launch that
 *                  stands still, and the word of that one is closed, so that they are known
 *
 * So each block still runs once, also if the launch was only slow: the counter sees to that, and
 * what has no number yet is in no other launch.  What was launched behind the kernel in a chain
 * must not begin before the blocks beside it are done, so the expected half of its control word
 * becomes one that no counter reaches.
 *
 * That it ended then does not prove that it waited; a block may also take long.  But each time that
 * it looked so counts as a strike, and patience doubles: a block that only took long ends before
 * that.  With the second strike the kernel is not cut any more, by no process: strikes are kept on
 * disk.  Stops between the two that went well acquit it. */
#include "runtime/effort/rescue.h"
#include "tally/array.h"
#include "tally/check.h"
#include "tally/cubin.h"
#include "tally/file.h"
#include "tally/hash.h"
#include "tally/store.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/effort/attribute.h"
#include "runtime/effort/count.h"
#include "runtime/effort/flight.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/pieces.h"
#include "runtime/effort/plan.h"
#include "runtime/effort/profile.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/store.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/supply.h"
#include "runtime/effort/variant.h"

enum {
    MAX_ROWS = 4096,
    MOST_TRIES = 3,
    STEP_NS = 1000000,
    WORKERS_PER_SM = 64,
};

/* --- strikes ---------------------------------------------------------------------------------- */

#define FILE_NAME "waits.1"

/* As it lies on disk; written at once and whole, behind the others. */
struct row {
    uint64_t fingerprint;
    uint32_t strikes, check;
};
static struct row *rows TL_EFF_GUARDED;
static uint32_t n_rows TL_EFF_GUARDED, cap_rows TL_EFF_GUARDED;

static uint32_t check_of(const struct row *r)
{
    return (uint32_t)tl_hash_mix(r->fingerprint, r->strikes);
}

TL_EFF_LOCKED static struct row *row_of(uint64_t fingerprint)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        if (rows[i].fingerprint == fingerprint)
            return &rows[i];
    }
    return NULL;
}

/* So many strikes are known of that kernel, whatever was before. */
TL_EFF_LOCKED static void remember(uint64_t fingerprint, uint32_t strikes)
{
    struct row *r = row_of(fingerprint);
    if (r == NULL && n_rows < MAX_ROWS && TL_ARRAY_FIT(rows, cap_rows, n_rows + 1)) {
        r = &rows[n_rows++];
        *r = (struct row){.fingerprint = fingerprint};
    }
    if (r != NULL)
        r->strikes = strikes;
}

void tl_eff_rescue_load(void)
{
    char *bytes;
    size_t n;
    (void)tl_eff_store_file(FILE_NAME, MAX_ROWS * sizeof(struct row), &bytes, &n);
    tl_eff_lock();
    n_rows = 0;
    for (size_t at = 0; at + sizeof(struct row) <= n; at += sizeof(struct row)) {
        struct row r;
        memcpy(&r, bytes + at, sizeof r);
        if (r.check == check_of(&r)) /* else damaged: the others still count */
            remember(r.fingerprint, r.strikes);
    }
    tl_eff_unlock();
    free(bytes);
}

uint32_t tl_eff_rescue_strikes(uint64_t fingerprint)
{
    const struct row *r = row_of(fingerprint);
    return r != NULL ? r->strikes : 0;
}

/* For all processes to come.  A full disk, or no place for a cache, costs another rescue. */
TL_EFF_UNLOCKED static void write_down(uint64_t fingerprint, uint32_t strikes)
{
    char folder[TL_STORE_PATH];
    struct tl_store store; /* that makes the folder, and sees whose it is */
    struct row r = {.fingerprint = fingerprint, .strikes = strikes};
    const off_t most = MAX_ROWS * (off_t)sizeof r;
    r.check = check_of(&r);
    if (tl_eff_store_folder(folder, sizeof folder) < 0 ||
        tl_store_open(&store, folder, tl_store_limit_mb(), NULL) < 0)
        return;
    int fd = openat(store.dir, FILE_NAME, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                    0600);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    off_t torn = size % (off_t)sizeof r; /* by a disk that was full: begin anew at a row */
    if (size < 0 || size - torn >= most || (torn != 0 && ftruncate(fd, size - torn) < 0) ||
        tl_file_write_fd(fd, &r, sizeof r) < 0)
        tl_eff_log(1, "%s/" FILE_NAME " cannot be written: a kernel that waits is not remembered",
                   folder);
    if (fd >= 0)
        close(fd);
    tl_store_close(&store);
}

/* It was found to wait.  The lock is given up meanwhile. */
TL_EFF_LOCKED static void strike(struct tl_eff_kernel *k)
{
    uint32_t strikes = tl_eff_plan_strikes(tl_eff_rescue_strikes(k->fingerprint), k->n_clean);
    k->n_clean = 0;
    remember(k->fingerprint, strikes);
    if (strikes == TL_EFF_STRIKES) {
        tl_eff_note("%s IS NOT CUT ANY MORE: its blocks wait for blocks that are not begun yet",
                    k->name);
        tl_eff_log(1, "%s is not cut any more: its blocks wait for blocks that are not begun yet",
                   k->name);
    }
    tl_eff_unlock();
    write_down(k->fingerprint, strikes);
    tl_eff_lock();
}

/* --- what moves ------------------------------------------------------------------------------- */

static bool counts(const struct tl_eff_launch *l)
{
    return l->rung != TL_RUNG_SLICE;
}

/* The host sees how far its blocks have come while they run. */
static bool is_visible(const struct tl_eff_piece *p)
{
    return counts(&p->item->launch) && p->stream->context->has_host_atomics;
}

static uint32_t counter_of(const struct tl_eff_control *c)
{
    return (uint32_t)(atomic_load_explicit(c->word, memory_order_acquire) >> 32);
}

/* Blocks that no launch is for.  Of a gated kernel, those that leave since its word is closed, as
 * it was when it was last looked at. */
static uint32_t left_behind(const struct tl_eff_launch *l)
{
    if (l->rung == TL_RUNG_GATE)
        return l->rescue.rest == NULL && (counter_of(l->control) & TL_CUBIN_CLOSED) != 0
                   ? l->blocks - tl_eff_taken(l)
                   : 0;
    return l->rung == TL_RUNG_TICKET ? 0 : l->blocks - l->launched;
}

/* Where the numbers of its counter end. */
static uint32_t end_of(const struct tl_eff_launch *l)
{
    if (l->rung == TL_RUNG_GATE)
        return tl_eff_taken(l);
    return l->rung == TL_RUNG_TICKET ? l->blocks : l->launched;
}

/* Numbers of the counter that may not be taken yet. */
static uint32_t left_of_counter(const struct tl_eff_piece *p)
{
    const struct tl_eff_launch *l = &p->item->launch;
    if (!counts(l) || l->rung == TL_RUNG_GATE)
        return 0;
    uint32_t end = l->rescue.n_tries > 0 ? l->rescue.end : end_of(l);
    uint32_t taken = is_visible(p) ? counter_of(l->control) : l->done;
    return taken < end ? end - taken : 0;
}

TL_EFF_LOCKED static bool was_told(const struct tl_eff_piece *p)
{
    return !is_visible(p) && (tl_client_preempted_since(tl_eff.client, p->launched_ns) != 0 ||
                              tl_eff_permit.is_kicked[p->words_epoch % TL_EFF_KICKS]);
}

/* For how long it may stand still. */
TL_EFF_LOCKED static uint64_t patience_for(const struct tl_eff_piece *p)
{
    const struct tl_eff_launch *l = &p->item->launch;
    const struct tl_eff_context *c = p->stream->context;
    uint32_t sms = c->n_sms > 0 ? (uint32_t)c->n_sms : 1, under_way = l->launched - l->done;
    struct tl_eff_wait w = {.wave_ns = tl_eff_wave_ns(l->profile, l->rung),
                            .beside = c->runs_block_by_block ? 1 : l->resident,
                            .in_turn = l->batch,
                            .strikes = tl_eff_rescue_strikes(l->kernel->fingerprint)};
    if (l->rung == TL_RUNG_SLICE || (!is_visible(p) && !l->rescue.was_told))
        w.in_turn = (under_way + sms - 1) / sms;
    else if (l->bite > 0) /* the counter does not move before they are over */
        w.in_turn += (l->bite + sms - 1) / sms;
    return tl_eff_plan_patience(&w);
}

/* A clock that runs only while something could have moved: not while we slept, nor while kernels
 * that run on processors of the machine had none. */
static struct {
    uint64_t now_ns, ns;
    uint32_t worked_us;
} awake TL_EFF_GUARDED;

/* It is `now`; soon after the last time that is nothing new.  The lock is given up meanwhile. */
TL_EFF_LOCKED static void stay_awake(uint64_t now)
{
    if (now < awake.now_ns + STEP_NS)
        return;
    const struct tl_eff_piece *p = tl_eff_flight.pieces;
    while (p != NULL && p->is_over) /* its stream may be gone */
        p = p->next;
    const struct tl_eff_context *c = p != NULL ? p->stream->context : NULL;
    uint32_t us = awake.worked_us;
    bool tells = c != NULL && c->tells_work;
    if (tells) {
        CUdevice device = c->device;
        tl_eff_unlock();
        tells = tl_eff_worked_us(device, &us);
        tl_eff_lock();
    }
    uint64_t worked_ns = ((us - awake.worked_us) & INT32_MAX) * UINT64_C(1000);
    awake.ns += tl_eff_plan_still_ns(now - awake.now_ns, tells, worked_ns);
    awake.worked_us = us;
    awake.now_ns = now;
}

/* Whether nothing of it has moved for too long. */
TL_EFF_LOCKED static bool is_stuck(const struct tl_eff_piece *p, uint64_t now)
{
    struct tl_eff_launch *l = &p->item->launch;
    struct tl_eff_rescue *r = &l->rescue;
    uint32_t seen = is_visible(p) ? counter_of(l->control) : l->done + l->launched;
    bool told = was_told(p);
    bool has_moved = r->looked_ns == 0 || seen != r->seen || told != r->was_told;
    r->has_begun |= is_visible(p) && seen > l->done + l->bite;
    r->still_ns = has_moved ? 0 : r->still_ns + (awake.ns - r->awake_ns);
    r->awake_ns = awake.ns;
    r->seen = seen;
    r->was_told = told;
    r->looked_ns = now;
    return r->still_ns > 0 && r->still_ns >= patience_for(p);
}

/* Whether all that stands in front of it in its stream is over, so that its blocks may run: only
 * then may others of them be launched elsewhere.  The lock is given up meanwhile. */
TL_EFF_LOCKED static bool has_begun(const struct tl_eff_piece *p)
{
    struct tl_eff_rescue *r = &p->item->launch.rescue;
    if (r->has_begun || p->begin == NULL || is_visible(p))
        return r->has_begun;
    tl_eff_unlock();
    tl_eff_make_current(p->stream->context);
    bool is_over = tl_eff_real.cuEventQuery(p->begin) == CUDA_SUCCESS;
    tl_eff_lock();
    r->has_begun = is_over;
    r->still_ns = 0; /* it may have begun only now */
    return false;
}

/* --- launching beside it ---------------------------------------------------------------------- */

struct beside {
    uint32_t grid;
    struct tl_eff_extra extra;
    struct tl_eff_control *control; /* the counter that it takes its numbers from; NULL: none */
    bool is_fresh;                  /* nobody else uses that one */
};

/* A stream of its own, one after the other: one may stand behind something else in the hardware. */
TL_EFF_UNLOCKED static CUstream stream_of(struct tl_eff_context *c)
{
    CUstream *s = &c->beside[c->n_beside++ % TL_EFF_BESIDE];
    if (*s == NULL && tl_eff_real.cuStreamCreate(s, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        *s = NULL;
    return *s;
}

/* Nobody who stands behind it in a chain goes on by himself from here on: no counter gets that far
 * (see `may_try`). */
TL_EFF_UNLOCKED static CUresult break_chain(const struct tl_eff_context *c,
                                            const struct tl_eff_control *k, CUstream stream)
{
    if (k->way == TL_EFF_COUNT_COPIES)
        return tl_eff_real.cuMemcpyHtoDAsync_v2(k->device, (void *)c->unreachable, 4, stream);
    atomic_store_explicit((_Atomic uint32_t *)(void *)k->word, UINT32_MAX, memory_order_release);
    return CUDA_SUCCESS;
}

/* The counter's last word is fetched when all others of its kernel have fetched theirs. */
TL_EFF_UNLOCKED static CUresult fetch_counter(const struct tl_eff_piece *stuck, CUstream stream)
{
    const struct tl_eff_item *item = stuck->item;
    CUresult r = CUDA_SUCCESS;
    for (const struct tl_eff_piece *p = stuck; p != NULL && r == CUDA_SUCCESS; p = p->next) {
        if (p->item == item && !p->is_over && !p->is_rescue && p->end != NULL)
            r = tl_eff_real.cuStreamWaitEvent(stream, p->end, 0);
    }
    return r == CUDA_SUCCESS ? tl_eff_count_fetch(item->launch.control, stream) : r;
}

TL_EFF_UNLOCKED static CUresult launch_beside(const struct tl_eff_piece *stuck,
                                              struct tl_eff_piece *p, struct beside *b)
{
    struct tl_eff_context *c = p->stream->context;
    struct tl_eff_launch *l = &p->item->launch;
    p->on = stream_of(c);
    if (p->on == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = b->control != NULL && !b->is_fresh ? break_chain(c, b->control, p->on)
                                                    : CUDA_SUCCESS;
    if (r == CUDA_SUCCESS && b->control != NULL)
        r = tl_eff_count_before(c, b->control, b->is_fresh, p->on);
    if (r != CUDA_SUCCESS)
        return r;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
        b->extra.words[i] = c->never_device;
    if (b->control != NULL)
        tl_eff_count_args(b->control, b->grid, false, &b->extra);
    tl_eff_variant_args(l->variant, l->params, &b->extra);
    tl_eff_follow_stream(p->stream, p->on);
    if (tl_eff.n_refused_beside > 0) {
        tl_eff.n_refused_beside--;
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    r = tl_eff_launch_variant(l, b->grid, p->on);
    if (r == CUDA_SUCCESS && b->control != NULL && !b->is_fresh && !c->has_host_atomics &&
        fetch_counter(stuck, p->on) != CUDA_SUCCESS)
        p->is_lost = true; /* it runs, and nobody can tell how far it comes: the context failed */
    return r;
}

/* One more launch of the kernel, for `blocks` that no other launch is for.  False if it could not
 * be made.  The lock is given up meanwhile. */
TL_EFF_LOCKED static bool launch(const struct tl_eff_piece *stuck, struct beside *b,
                                 uint32_t blocks)
{
    struct tl_eff_item *item = stuck->item;
    struct tl_eff_launch *l = &item->launch;
    struct tl_eff_piece *p = tl_eff_make_piece(stuck->stream);
    if (p == NULL)
        return false;
    p->item = item;
    item->refs++;
    p->kernel = l->kernel;
    p->profile = l->profile;
    p->is_rescue = true;
    p->blocks = blocks;
    p->words_epoch = tl_eff_permit.words_epoch;
    l->n_flying++;
    l->launched += blocks;
    tl_eff_add_flying(p);
    tl_eff_unlock();
    tl_eff_make_current(stuck->stream->context);
    p->refusal = launch_beside(stuck, p, b);
    if (p->refusal != CUDA_SUCCESS || tl_eff_watch(p) != CUDA_SUCCESS)
        p->is_lost = true;
    tl_eff_lock();
    l->rescue.refusal = p->refusal;
    if (p->refusal == CUDA_SUCCESS)
        return true;
    tl_eff_note("%s: ITS REMAINING BLOCKS COULD NOT BE LAUNCHED beside it (error %d)",
                l->kernel->name, p->refusal);
    tl_eff_log(1, "%s stands still, and its remaining blocks could not be launched (error %d)",
               l->kernel->name, p->refusal);
    return false;
}

/* As many workers as can be on the device, each of whom takes several numbers if need be. */
static uint32_t workers(const struct tl_eff_context *c, uint32_t blocks, uint32_t batch)
{
    uint64_t most = (uint64_t)(c->n_sms > 0 ? c->n_sms : 1) * WORKERS_PER_SM;
    uint64_t n = ((uint64_t)blocks + batch - 1) / batch;
    return (uint32_t)(n < most ? n : most);
}

/* The numbers that are left. */
TL_EFF_LOCKED static bool rescue_counter(const struct tl_eff_piece *stuck, uint32_t left)
{
    struct tl_eff_launch *l = &stuck->item->launch;
    struct beside b = {.grid = left, .control = l->control};
    b.extra = (struct tl_eff_extra){.grid = {l->grid[0], l->grid[1], l->grid[2]},
                                    .blocks = l->rescue.end,
                                    .batch_mask = l->batch - 1};
    if (l->rung == TL_RUNG_PERSISTENT)
        b.grid = workers(stuck->stream->context, left, l->batch);
    return launch(stuck, &b, l->rung == TL_RUNG_TICKET ? l->blocks - l->launched : 0);
}

/* The blocks that no launch is for: a slice of them, or workers on a counter of their own. */
TL_EFF_LOCKED static bool rescue_rest(const struct tl_eff_piece *stuck, uint32_t left)
{
    struct tl_eff_context *c = stuck->stream->context;
    struct tl_eff_launch *l = &stuck->item->launch;
    struct beside b = {.grid = left, .is_fresh = true};
    uint32_t first = l->rung == TL_RUNG_GATE ? l->rescue.end : l->launched;
    b.extra = (struct tl_eff_extra){
        .grid = {l->grid[0], l->grid[1], l->grid[2]}, .first = first, .blocks = l->blocks};
    if (counts(l)) {
        b.control = l->rescue.rest = tl_eff_take_control(c);
        if (b.control == NULL)
            return false; /* one will be free: the next look tries again */
        tl_eff_count_begin(c, b.control, l->rung, first, UINT32_MAX);
        b.control->is_unknown = true; /* nobody will tell */
        b.grid = workers(c, left, 1);
    }
    return launch(stuck, &b, l->blocks - l->launched);
}

/* Whether a gated kernel holds blocks back is in its word; where that is in the device's memory, it
 * is fetched.  It is closed for good, so that what it says then stands.  False if it does not come
 * soon: there will be another look.  The lock is given up meanwhile. */
TL_EFF_LOCKED static bool fetch_word(const struct tl_eff_piece *stuck)
{
    enum { TRIES = 100, PAUSE_NS = 50000 };
    const struct tl_eff_launch *l = &stuck->item->launch;
    struct tl_eff_context *c = stuck->stream->context;
    if (l->rung != TL_RUNG_GATE || is_visible(stuck))
        return true;
    tl_eff_unlock();
    tl_eff_make_current(c);
    CUstream stream = stream_of(c);
    CUresult r = stream != NULL ? tl_eff_real.cuMemcpyDtoHAsync_v2((void *)l->control->word,
                                                                   l->control->device, 8, stream)
                                : CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; r == CUDA_SUCCESS && i < TRIES; i++) {
        r = tl_eff_real.cuStreamQuery(stream);
        if (r != CUDA_ERROR_NOT_READY || i + 1 == TRIES)
            break;
        r = CUDA_SUCCESS;
        nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    }
    tl_eff_lock();
    return r == CUDA_SUCCESS;
}

/* Counters have 32 bits, and every try may carry them on by as much as there are blocks. */
static bool may_try(const struct tl_eff_launch *l)
{
    return l->rescue.n_tries < MOST_TRIES &&
           (uint64_t)l->blocks * (l->rescue.n_tries + 2) + (WORKERS_PER_SM << 16) < UINT32_MAX;
}

/* Nothing that we can do ends it.  The job must not wait for ever, and it cannot be told the
 * kernel's result: from here on all that waits for this context gets the driver's error, as after a
 * fault of a kernel.  What is on the device is not asked for again; its memory stays as it is. */
TL_EFF_LOCKED static void give_up(const struct tl_eff_piece *stuck)
{
    struct tl_eff_context *c = stuck->stream->context;
    const struct tl_eff_launch *l = &stuck->item->launch;
    CUresult error = l->rescue.refusal != CUDA_SUCCESS ? l->rescue.refusal
                                                       : CUDA_ERROR_OUT_OF_MEMORY;
    tl_eff_note("%s STANDS STILL FOR GOOD: its remaining blocks could not be launched in %u tries; "
                "the job is told error %d",
                l->kernel->name, l->rescue.n_tries, error);
    tl_eff_log(0, "%s stands still for good; the job is told error %d", l->kernel->name, error);
    atomic_store_explicit(&c->lost, error, memory_order_release);
    for (struct tl_eff_piece *p = tl_eff_flight.pieces; p != NULL; p = p->next)
        p->is_lost |= p->stream->context == c;
}

/* The lock is given up meanwhile.  True if something was done. */
TL_EFF_LOCKED static bool rescue(const struct tl_eff_piece *stuck, uint64_t now)
{
    struct tl_eff_launch *l = &stuck->item->launch;
    struct tl_eff_rescue *r = &l->rescue;
    if (!may_try(l) || !fetch_word(stuck))
        return false;
    uint32_t numbers = left_of_counter(stuck), rest = left_behind(l);
    if (numbers + rest == 0)
        return false;
    if (r->n_tries++ == 0) {
        r->made_ns = now;
        r->held_ns = r->still_ns;
        r->end = end_of(l);
        r->counter = is_visible(stuck) ? counter_of(l->control) : 0;
        tl_record_rescued(l->kernel->record);
        tl_eff_note("%s STOOD STILL IN PIECES (%s): its remaining blocks were launched beside it",
                    l->kernel->name, tl_rung_name(l->variant->rung));
        tl_eff_log(1,
                   "%s stood still for %llu ms in pieces: its remaining blocks are launched beside "
                   "it",
                   l->kernel->name, (unsigned long long)r->still_ns / 1000000);
    }
    r->still_ns = 0;
    bool did = numbers == 0 || rescue_counter(stuck, numbers);
    did = did && rest > 0 ? rescue_rest(stuck, rest) : did;
    if (did || may_try(l))
        return did;
    give_up(stuck);
    return true;
}

bool tl_eff_rescue_look(uint64_t now)
{
    bool did = false;
    tl_eff_assert_locked();
    stay_awake(now);
    for (struct tl_eff_piece *p = tl_eff_flight.pieces; p != NULL; p = p->next) {
        /* what stands behind another kernel has not begun */
        if (p->is_over || p->is_lost || p->is_rescue || p->item == NULL ||
            p->item != p->stream->first || p->item->launch.rescue.looked_ns == now)
            continue;
        if (is_stuck(p, now) && has_begun(p))
            did |= rescue(p, now);
    }
    return did;
}

/* --- what follows ----------------------------------------------------------------------------- */

/* Whether blocks that were launched beside it began before it ended, as far as can be seen. */
static bool has_taken(const struct tl_eff_piece *p)
{
    const struct tl_eff_launch *l = &p->item->launch;
    if (!is_visible(p))
        return true;
    return counter_of(l->control) != l->rescue.counter ||
           (l->rescue.rest != NULL && counter_of(l->rescue.rest) != l->rescue.end);
}

void tl_eff_rescue_over(const struct tl_eff_piece *p, uint64_t now)
{
    struct tl_eff_launch *l = &p->item->launch;
    struct tl_eff_rescue *r = &l->rescue;
    tl_eff_assert_locked();
    r->looked_ns = 0; /* something moved */
    r->has_begun |= !p->is_lost;
    if (p->is_rescue && p->refusal != CUDA_SUCCESS) {
        TL_CHECK(l->launched >= p->blocks);
        l->launched -= p->blocks;
        if ((p->blocks > 0 || l->rung == TL_RUNG_GATE) && r->rest != NULL) {
            tl_eff_give_control(p->stream->context, r->rest);
            r->rest = NULL;
        }
    }
    if (p->is_rescue || p->is_lost || r->n_tries == 0 || r->has_judged)
        return;
    struct tl_eff_rescued facts = {
        .held_ns = r->held_ns, .took_ns = now - r->made_ns, .has_taken = has_taken(p)};
    r->has_judged = true;
    if (tl_eff_plan_was_needed(&facts))
        strike(l->kernel);
}
