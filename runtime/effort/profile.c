/* How long kernels take: learnt from launches that were measured anyway, never by stopping the
 * device.
 *
 * What was learnt is written when the job ends and read when the next begins: a small file of rows,
 * by a fingerprint of the kernel and the shape of the launch.  It is a first guess only; each job
 * measures again.  That a rung was slow is not kept: a machine that was busy that day may have made
 * it look so, and to try it costs a job a few small pieces. */
#include "runtime/effort/profile.h"
#include "tally/array.h"
#include "tally/check.h"
#include "tally/file.h"
#include "tally/hash.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/plan.h"
#include "runtime/effort/state.h"
#include "runtime/effort/store.h"
#include "runtime/effort/variant.h"

enum {
    FIRST_SAMPLES = 4,
    UNKNOWN_NS = 2000000, /* with nobody above, ten of unknown length may be under way */
    MAX_ROWS = 8192,
    MOST_SIZES = 8, /* told apart per kernel and shape: some parameter may be a counter */
    SIZE_BITS = 24, /* the bits of a float, and the lower half of most addresses, have more */
};
#define MAGIC 0x34666f7270746c74ull /* "tltprof4" */
#define FILE_NAME "profiles"

struct row {
    uint64_t key, whole_ns, wave_ns;
};

static struct row *rows; /* as found on disk, sorted by key; constant after the start */
static uint32_t n_rows;
/* Of kernels that were unloaded, and at the end of all others. */
static struct row *kept TL_EFF_GUARDED;
static uint32_t n_kept TL_EFF_GUARDED, cap_kept TL_EFF_GUARDED;

/* --- the file --------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    uint64_t x = ((const struct row *)a)->key, y = ((const struct row *)b)->key;
    return (x > y) - (x < y);
}

void tl_eff_profile_load(void)
{
    char *bytes;
    size_t n;
    uint64_t magic = 0;
    free(rows);
    rows = NULL;
    n_rows = 0;
    (void)tl_eff_store_file(FILE_NAME, sizeof magic + MAX_ROWS * sizeof *rows, &bytes, &n);
    if (n > sizeof magic)
        memcpy(&magic, bytes, sizeof magic);
    if (magic == MAGIC) {
        n = (n - sizeof magic) / sizeof *rows;
        rows = malloc(n * sizeof *rows + 1);
        if (rows != NULL) {
            memcpy(rows, bytes + sizeof magic, n * sizeof *rows);
            n_rows = (uint32_t)n;
        }
    }
    free(bytes);
    if (rows != NULL && n_rows > 1)
        qsort(rows, n_rows, sizeof *rows, by_key);
}

static struct row row_of(const struct tl_eff_profile *p)
{
    return (struct row){p->key, p->whole_ns, p->wave_ns};
}

/* The place of a row among those that are kept: of the same key, or a new one; NULL if there is no
 * room. */
TL_EFF_LOCKED static struct row *place_for(uint64_t key)
{
    TL_CHECK(n_kept <= cap_kept);
    for (uint32_t i = 0; kept != NULL && i < n_kept; i++) {
        if (kept[i].key == key)
            return &kept[i];
    }
    if (n_kept >= MAX_ROWS || !TL_ARRAY_FIT(kept, cap_kept, n_kept + 1))
        return NULL;
    return &kept[n_kept++];
}

void tl_eff_profile_keep(const struct tl_eff_kernel *k)
{
    tl_eff_assert_locked();
    for (const struct tl_eff_profile *p = k->profiles; p != NULL; p = p->next) {
        struct row *place = p->n_samples > 0 ? place_for(p->key) : NULL;
        if (place != NULL)
            *place = row_of(p); /* the newest counts, of a kernel that was unloaded before */
    }
}

/* All that this job learnt, and what it found, as far as there is room. */
TL_EFF_LOCKED static uint32_t gather(struct row *all)
{
    uint32_t n = 0;
    if (n_kept > 1)
        qsort(kept, n_kept, sizeof *kept, by_key);
    for (uint32_t i = 0; i < n_kept && n < MAX_ROWS; i++) {
        if (n == 0 || all[n - 1].key != kept[i].key)
            all[n++] = kept[i];
    }
    uint32_t n_own = n;
    for (uint32_t i = 0; i < n_rows && n < MAX_ROWS; i++) {
        if (n_own == 0 || bsearch(&rows[i], all, n_own, sizeof *all, by_key) == NULL)
            all[n++] = rows[i];
    }
    return n;
}

/* Whole or not at all: a full disk means that the next job learns again. */
static void write_rows(const struct row *all, uint32_t n)
{
    struct tl_store folder;
    char temporary[32];
    uint64_t magic = MAGIC;
    if (tl_eff_store_enter(&folder) < 0)
        return;
    snprintf(temporary, sizeof temporary, FILE_NAME ".%d", (int)getpid());
    int fd = openat(folder.dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        bool ok = tl_file_write_fd(fd, &magic, sizeof magic) == 0 &&
                  tl_file_write_fd(fd, all, n * sizeof *all) == 0;
        ok = close(fd) == 0 && ok;
        if (!ok || renameat(folder.dir, temporary, folder.dir, FILE_NAME) < 0)
            unlinkat(folder.dir, temporary, 0);
    }
    tl_store_close(&folder);
}

void tl_eff_profile_save(void)
{
    struct row *all = malloc(MAX_ROWS * sizeof *all);
    uint32_t n = 0;
    if (all != NULL && tl_eff_trylock()) {
        n = gather(all);
        tl_eff_unlock();
    }
    if (n > 0)
        write_rows(all, n);
    free(all);
}

/* --- one kernel and shape --------------------------------------------------------------------- */

/* A product of matrices takes as long as its inner side says, which is in no grid.  So launches are
 * also told apart by those of their parameters that can be sizes: small integers.  Addresses and
 * floats are none, and differ without meaning anything. */
uint64_t tl_eff_sizes(uint64_t h, const void *param, uint32_t n)
{
    const uint8_t *p = param;
    for (uint32_t at = 0; at < n; at += 8) {
        uint32_t half[2] = {0, 0};
        memcpy(half, p + at, n - at < 8 ? n - at : 8);
        if (half[1] != 0 && half[0] >> SIZE_BITS != 0)
            continue; /* an address, or a float and something */
        for (uint32_t i = 0; i < 2; i++)
            h = tl_hash_mix(h, half[i] >> SIZE_BITS == 0 ? half[i] : 0);
    }
    return h;
}

struct tl_eff_profile *tl_eff_profile(struct tl_eff_kernel *k, const struct tl_eff_launch *l)
{
    tl_eff_assert_locked();
    uint64_t sizes = l->sizes;
    uint32_t n_alike = 0;
    struct tl_eff_profile *p = k->profiles, *rest = NULL;
    for (; p != NULL; p = p->next) {
        if (memcmp(p->grid, l->grid, sizeof p->grid) != 0 ||
            memcmp(p->block, l->block, sizeof p->block) != 0 || p->shared_bytes != l->shared_bytes)
            continue;
        if (p->sizes == sizes)
            return p;
        n_alike++;
        rest = p->sizes == TL_EFF_ANY_SIZES ? p : rest;
    }
    if (rest != NULL)
        return rest;
    if (n_alike == MOST_SIZES)
        sizes = TL_EFF_ANY_SIZES;
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    memcpy(p->grid, l->grid, sizeof p->grid);
    memcpy(p->block, l->block, sizeof p->block);
    p->shared_bytes = l->shared_bytes;
    p->sizes = sizes;
    p->key = tl_hash_mix(tl_hash_mix(k->fingerprint, p->shared_bytes), sizes);
    for (uint32_t i = 0; i < 3; i++)
        p->key = tl_hash_mix(p->key, (uint64_t)p->grid[i] << 32 | p->block[i]);
    const struct row *found = n_rows > 0 ? bsearch(&(struct row){.key = p->key}, rows, n_rows,
                                                   sizeof *rows, by_key)
                                         : NULL;
    if (found != NULL) {
        p->whole_ns = found->whole_ns;
        p->wave_ns = found->wave_ns;
    }
    p->next = k->profiles;
    k->profiles = p;
    return p;
}

uint64_t tl_eff_predicted_ns(const struct tl_eff_profile *p)
{
    return p != NULL && p->whole_ns != 0 ? p->whole_ns : UNKNOWN_NS;
}

bool tl_eff_wants_sample(const struct tl_eff_profile *p)
{
    return p != NULL && tl_eff_plan_wants_sample(p->n_samples, p->n_launches);
}

/* The first ones may have compiled something or found cold caches, so the least counts.  Later,
 * single ones may be far too long because somebody else was busy, but never too short: down fast,
 * up in small steps. */
static uint64_t blend(uint64_t old, uint64_t new, uint32_t n)
{
    if (old == 0 || n == 0)
        return new;
    if (n < FIRST_SAMPLES)
        return new < old ? new : old;
    if (new < old)
        return old - (old - new) / 4;
    uint64_t up = (new - old) / 16, most = old / 16 + 1;
    return old + (up < most ? up : most);
}

/* A machine that was busy while the rung was on trial may have made it look slow, so it is tried
 * again, less and less often. */
static bool may_retry(const struct tl_eff_profile *p, enum tl_rung rung)
{
    return p->rungs[rung].is_slow && p->n_launches >= p->rungs[rung].retry_at;
}

void tl_eff_profile_retry(struct tl_eff_profile *p, enum tl_rung rung)
{
    tl_eff_assert_locked();
    if (p == NULL || !may_retry(p, rung))
        return;
    p->rungs[rung].is_slow = false;
    p->rungs[rung].n_samples = 0;
    p->rungs[rung].wave_ns = 0;
}

void tl_eff_profile_facts(const struct tl_eff_profile *p, struct tl_eff_facts *f)
{
    tl_eff_assert_locked();
    f->has_profile = p != NULL;
    if (p == NULL)
        return;
    f->whole_ns = p->whole_ns;
    f->wave_ns = p->wave_ns;
    for (enum tl_rung r = TL_RUNG_PERSISTENT; r < TL_RUNG_WHOLE; r++) {
        f->rungs[r].is_slow = p->rungs[r].is_slow && !may_retry(p, r);
        f->rungs[r].wave_ns = p->rungs[r].wave_ns;
        f->rungs[r].n_samples = p->rungs[r].n_samples;
    }
}

/* The rung is slow from now on. */
static void call_slow(struct tl_eff_profile *p, const struct tl_eff_launch *l, enum tl_rung rung)
{
    if (l->variant != NULL)
        tl_eff_note("%s: a wave takes %llu us on the %s rung and %llu us as it is: another rung is "
                    "used",
                    l->kernel->name, (unsigned long long)p->rungs[rung].wave_ns / 1000,
                    tl_rung_name(l->variant->rung), (unsigned long long)p->wave_ns / 1000);
    p->rungs[rung].is_slow = true;
    p->rungs[rung].retry_at = p->n_launches + tl_eff_plan_retry_after(p->rungs[rung].n_slow++);
}

void tl_eff_profile_ran(struct tl_eff_profile *p, const struct tl_eff_launch *l, enum tl_rung rung,
                        uint64_t ns, uint32_t blocks, int n_sms)
{
    tl_eff_assert_locked();
    if (p == NULL || ns == 0 || blocks == 0)
        return;
    uint32_t wide = (uint32_t)(n_sms > 0 ? n_sms : 1);
    uint64_t waves = (blocks + wide - 1) / wide, wave_ns = ns / waves;
    if (rung >= TL_RUNG_WHOLE) {
        p->wave_ns = blend(p->wave_ns, wave_ns, p->n_samples);
        p->whole_ns = blend(p->whole_ns, l->blocks > blocks ? ns * l->blocks / blocks : ns,
                            p->n_samples);
        p->n_samples++;
        return;
    }
    p->rungs[rung].recent_ns[p->rungs[rung].n_recent++ % TL_EFF_RECENT] = wave_ns;
    if (p->rungs[rung].n_samples == 0 || wave_ns < p->rungs[rung].wave_ns)
        p->rungs[rung].wave_ns = wave_ns;
    struct tl_eff_rung_facts r = {.wave_ns = p->rungs[rung].wave_ns,
                                  .n_samples = ++p->rungs[rung].n_samples};
    if (!p->rungs[rung].is_slow && tl_eff_plan_is_too_slow(rung, &r, p->wave_ns, waves))
        call_slow(p, l, rung);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t tl_eff_wave_ns(const struct tl_eff_profile *p, enum tl_rung rung)
{
    uint64_t sorted[TL_EFF_RECENT];
    if (p == NULL || rung >= TL_RUNG_WHOLE || p->rungs[rung].n_recent == 0)
        return p != NULL ? p->wave_ns : 0;
    uint32_t n = p->rungs[rung].n_recent < TL_EFF_RECENT ? p->rungs[rung].n_recent : TL_EFF_RECENT;
    memcpy(sorted, p->rungs[rung].recent_ns, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_size);
    return sorted[n / 2];
}

void tl_eff_profile_preempted(struct tl_eff_profile *p, uint64_t ns)
{
    if (p == NULL)
        return;
    uint32_t bucket = ns > 1 ? 63u - (uint32_t)__builtin_clzll(ns) : 0;
    p->latency[bucket < TL_EFF_LATENCIES ? bucket : TL_EFF_LATENCIES - 1]++;
    p->n_latencies++;
}
