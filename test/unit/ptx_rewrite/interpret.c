/* The machine of the interpreter: kernels, blocks, the order of steps.  See interpret.h. */
#include "test/unit/ptx_rewrite/interpret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/index.h"
#include "tally/hash.h"
#include "test/unit/ptx_rewrite/interpret_internal.h"

enum { BURST = 12, STICKY = 100, MAX_SWEEPS = 6000, MIN_SWEEPS = 400, TURN_STEPS = 400000 };

/* --- memory ----------------------------------------------------------------------------------- */

uint8_t *ptx_memory_add(struct ptx_memory *m, const char *name, size_t n)
{
    if (m->n_areas == sizeof m->areas / sizeof m->areas[0])
        return NULL;
    uint32_t i = m->n_areas++;
    snprintf(m->areas[i].name, sizeof m->areas[i].name, "%s", name);
    m->areas[i].n = n;
    m->areas[i].bytes = aligned_alloc(256, (n + 511) / 256 * 256);
    if (m->areas[i].bytes != NULL)
        memset(m->areas[i].bytes, 0, (n + 511) / 256 * 256);
    return m->areas[i].bytes;
}

uint8_t *ptx_memory_find(const struct ptx_memory *m, const char *name)
{
    for (uint32_t i = 0; i < m->n_areas; i++) {
        if (strcmp(m->areas[i].name, name) == 0)
            return m->areas[i].bytes;
    }
    return NULL;
}

void ptx_memory_finish(struct ptx_memory *m)
{
    for (uint32_t i = 0; i < m->n_areas; i++)
        free(m->areas[i].bytes);
    *m = (struct ptx_memory){0};
}

/* --- kernels ---------------------------------------------------------------------------------- */

static void place_shared(struct ptx_machine *k, const struct tl_ptx_decl *d)
{
    uint32_t bytes = tl_ptx_type_bytes(d->type) * d->vec,
             align = d->align > bytes ? d->align : bytes;
    if (k->n_shared == sizeof k->shared / sizeof k->shared[0] || bytes == 0)
        return; /* whoever asks for it is told that it is not there */
    align = align == 0 ? 16 : align;
    k->shared_bytes = (k->shared_bytes + align - 1) / align * align;
    k->shared[k->n_shared].what = d;
    k->shared[k->n_shared++].offset = k->shared_bytes;
    k->shared_bytes += (uint32_t)(bytes * d->count);
}

static void place_inner(struct ptx_machine *k, const struct tl_ptx_stmt *s)
{
    for (; s != NULL; s = s->next) {
        if (s->kind == TL_STMT_BLOCK)
            place_inner(k, s->block);
        for (const struct tl_ptx_decl *d = s->kind == TL_STMT_DECL ? s->decl : NULL; d != NULL;
             d = d->next) {
            if (tl_str_is(d->space, "shared"))
                place_shared(k, d);
        }
    }
}

struct ptx_machine *ptx_machine_open(const char *text, size_t n, const char *kernel)
{
    struct tl_error err;
    struct ptx_machine *k = calloc(1, sizeof *k);
    if (k == NULL || tl_ptx_index_create(&k->ix, text, n, "interpreted", &err) < 0) {
        free(k);
        return NULL;
    }
    tl_arena_init(&k->arena, 0);
    bool ok = tl_ptx_program_init(&k->program, k->ix, tl_str_of(kernel), &k->arena, &err) == 0;
    for (const struct tl_ptx_program_func *f = ok ? k->program.funcs : NULL; f != NULL;
         f = f->next) {
        if (!f->func->has_body)
            continue;
        if (k->n_cfgs == MAX_FUNCS ||
            tl_ptx_cfg_build(&k->cfgs[k->n_cfgs++], &k->arena, f->func) < 0)
            ok = false;
        else
            place_inner(k, f->func->body);
    }
    /* Arrays of unknown size lie at the end, behind all others: dynamic shared memory. */
    for (int is_open = 0; ok && is_open < 2; is_open++) {
        for (const struct tl_ptx_program_var *v = k->program.vars; v != NULL; v = v->next) {
            if (tl_ptx_var_is(v, "shared") && (v->decl->count == 0) == (is_open != 0))
                place_shared(k, v->decl);
        }
        if (!is_open)
            k->shared_bytes = (k->shared_bytes + 15) / 16 * 16;
    }
    if (ok)
        return k;
    ptx_machine_close(k);
    return NULL;
}

void ptx_machine_close(struct ptx_machine *k)
{
    if (k == NULL)
        return;
    tl_ptx_program_finish(&k->program);
    tl_ptx_index_destroy(k->ix);
    tl_arena_finish(&k->arena);
    free(k);
}

bool ptx_machine_bind(struct ptx_machine *k, struct ptx_memory *m)
{
    for (const struct tl_ptx_program_var *v = k->program.vars; v != NULL; v = v->next) {
        char name[128];
        if (tl_ptx_var_is(v, "shared"))
            continue;
        snprintf(name, sizeof name, TL_STR_FMT, TL_STR_ARG(v->sym->name));
        size_t n = (size_t)tl_ptx_type_bytes(v->decl->type) * v->decl->vec * v->decl->count;
        if (ptx_memory_find(m, name) == NULL &&
            (v->decl->init.n != 0 || n == 0 || n > 1 << 20 || ptx_memory_add(m, name, n) == NULL))
            return false;
    }
    return true;
}

/* --- blocks ----------------------------------------------------------------------------------- */

void ptx_fail(struct thread *t, enum ptx_end end, const char *what)
{
    struct machine_run *r = t->block->run;
    if (r->end != PTX_ENDED)
        return;
    r->end = end;
    const struct frame *f = ptx_top(t);
    const struct tl_ptx_stmt *s = f->pc > 0 ? f->cfg->insts[f->pc - 1] : NULL;
    snprintf(r->run->why, sizeof r->run->why, "%s: %.*s", what,
             s != NULL ? (int)(s->end - s->at) : 0, s != NULL ? r->k->ix->text + s->at : "");
}

static uint64_t roll(struct machine_run *r)
{
    uint64_t z = r->dice += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

/* Registers and shared memory begin with anything, or with zeroes, as the seed says: what is read
 * before it is written shows. */
static bool begin_block(struct machine_run *r, struct block *b)
{
    uint32_t n = r->n_begun++;
    const struct ptx_run *run = r->run;
    uint32_t bytes = r->k->shared_bytes + run->dynamic_shared;
    bool is_clean = run->seed % 3 == 0;
    *b = (struct block){.run = r, .n_threads = r->block_threads, .n_live = r->block_threads};
    b->ctaid[0] = n % run->grid[0];
    b->ctaid[1] = n / run->grid[0] % run->grid[1];
    b->ctaid[2] = n / run->grid[0] / run->grid[1];
    b->shared = calloc(1, bytes + 64);
    b->threads = calloc(b->n_threads, sizeof *b->threads);
    for (uint32_t i = 0; b->threads != NULL && i < b->n_threads; i++) {
        struct thread *t = &b->threads[i];
        *t = (struct thread){.block = b, .number = i};
        t->frames[0].cfg = &r->k->cfgs[0];
        t->frames[0].regs = calloc(r->k->cfgs[0].func->n_regs + 1, sizeof(uint64_t));
        for (uint32_t k = 0; t->frames[0].regs != NULL && k < r->k->cfgs[0].func->n_regs; k++)
            t->frames[0].regs[k] = is_clean ? 0 : roll(r);
    }
    for (uint32_t i = 0; b->shared != NULL && i < bytes; i++)
        b->shared[i] = is_clean ? 0 : (uint8_t)roll(r);
    r->n_open++;
    return b->shared != NULL && b->threads != NULL && bytes <= SHARED_LIMIT;
}

static void end_block(struct machine_run *r, struct block *b)
{
    for (uint32_t i = 0; b->threads != NULL && i < b->n_threads; i++) {
        for (uint32_t d = 0; d <= b->threads[i].depth; d++)
            free(b->threads[i].frames[d].regs);
    }
    free(b->threads);
    free(b->shared);
    b->threads = NULL;
    r->n_open--;
}

void ptx_leave(struct thread *t)
{
    struct block *b = t->block;
    ptx_end_copies(t, 0);
    t->status = GONE;
    b->n_live--;
    for (uint32_t id = 0; b->n_live > 0 && id < BARRIERS; id++)
        ptx_settle_barrier(b, id);
    uint32_t warp = t->number / WARP * WARP;
    for (uint32_t i = warp; i < warp + WARP && i < b->n_threads; i++) {
        if (b->threads[i].status == IN_WARP)
            ptx_settle_warp(&b->threads[i]);
    }
}

/* Ends blocks that are over, begins others.  False if there is nothing left to do. */
static bool tend_blocks(struct machine_run *r)
{
    for (uint32_t i = 0; i < r->n_blocks; i++) {
        if (r->blocks[i].threads != NULL && r->blocks[i].n_live == 0)
            end_block(r, &r->blocks[i]);
        if (r->blocks[i].threads == NULL && r->n_begun < r->n_total &&
            !begin_block(r, &r->blocks[i]))
            r->end = PTX_UNKNOWN;
    }
    return r->n_open > 0;
}

/* --- the order of steps ----------------------------------------------------------------------- */

/* A thread that can run, chosen by dice; NULL if there is none. */
static struct thread *choose(struct machine_run *r)
{
    uint32_t n = r->n_blocks * r->block_threads, start = (uint32_t)(roll(r) % n);
    if (r->run->burst > STICKY &&
        roll(r) % STICKY != 0) /* one of the block that ran last, if it can */
        start = r->last / r->block_threads * r->block_threads;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (start + i) % n;
        struct block *b = &r->blocks[at / r->block_threads];
        struct thread *t = b->threads != NULL ? &b->threads[at % r->block_threads] : NULL;
        if (t != NULL && t->status == RUNS) {
            r->last = at;
            return t;
        }
    }
    return NULL;
}

/* One step of a thread, and of those of its warp that are where it is, if they go together. */
static void step_from(struct machine_run *r, struct thread *t)
{
    struct thread *together[WARP];
    uint32_t n = 0, warp = t->number / WARP * WARP;
    const struct frame *at = ptx_top(t);
    for (uint32_t i = warp; r->run->is_converged && i < warp + WARP && i < r->block_threads; i++) {
        struct thread *o = &t->block->threads[i];
        if (o != t && o->status == RUNS && o->depth == t->depth && ptx_top(o)->cfg == at->cfg &&
            ptx_top(o)->pc == at->pc)
            together[n++] = o;
    }
    together[n++] = t;
    for (uint32_t i = 0; i < n && r->end == PTX_ENDED; i++)
        ptx_step(together[i]);
    r->run->steps += n;
}

static void run_by_dice(struct machine_run *r)
{
    uint32_t burst = r->run->burst != 0 ? r->run->burst : BURST;
    while (r->end == PTX_ENDED && r->run->steps < r->run->budget && tend_blocks(r)) {
        struct thread *t = choose(r);
        if (t == NULL) {
            r->end = PTX_HANGS;
            return;
        }
        for (uint64_t n = 1 + roll(r) % burst; n > 0 && t->status == RUNS && r->end == PTX_ENDED;
             n--)
            step_from(r, t);
        if (t->n_copies > 0 && t->status != GONE && roll(r) % 4 == 0)
            ptx_end_copies(t, 0);
        if (r->run->meanwhile != NULL && roll(r) % 16 == 0)
            r->run->meanwhile(r->run->user);
    }
}

static uint64_t state_of(struct machine_run *r)
{
    uint64_t h = r->n_begun;
    for (uint32_t i = 0; r->has_changed && i < r->memory->n_areas; i++)
        h = h * 31 + tl_hash_64(r->memory->areas[i].bytes, r->memory->areas[i].n);
    r->memory_hash = r->has_changed ? h : r->memory_hash;
    h = r->memory_hash * 31 + r->n_begun;
    r->has_changed = false;
    for (uint32_t i = 0; i < r->n_blocks; i++) {
        const struct block *b = &r->blocks[i];
        if (b->threads == NULL)
            continue;
        h = h * 31 + tl_hash_64(b->shared, r->k->shared_bytes + r->run->dynamic_shared);
        for (uint32_t n = 0; n < b->n_threads; n++) {
            const struct thread *t = &b->threads[n];
            h = h * 31 + t->status;
            for (uint32_t c = 0; c < t->n_copies; c++)
                h = h * 31 + t->copies[c].from + t->copies[c].to;
            for (uint32_t d = 0; d <= t->depth; d++)
                h = (h * 31 + t->frames[d].pc) * 31 +
                    tl_hash_64(t->frames[d].regs,
                               t->frames[d].cfg->func->n_regs * sizeof(uint64_t));
        }
    }
    return h;
}

/* In turn, one step for each: if a state comes again, so does all that follows it. */
static void run_in_turn(struct machine_run *r)
{
    uint64_t kept = 0, sweeps = TURN_STEPS / (r->n_blocks * r->block_threads);
    sweeps = sweeps > MAX_SWEEPS ? MAX_SWEEPS : sweeps < MIN_SWEEPS ? MIN_SWEEPS : sweeps;
    r->has_changed = true;
    if (r->run->settle != NULL)
        r->run->settle(r->run->user);
    for (uint64_t sweep = 0; sweep < sweeps && r->end == PTX_ENDED && tend_blocks(r); sweep++) {
        bool moves = false;
        for (uint32_t i = 0; i < r->n_blocks; i++) {
            struct block *b = &r->blocks[i];
            for (uint32_t n = 0; b->threads != NULL && n < b->n_threads; n++) {
                if (b->threads[n].status != RUNS || r->end != PTX_ENDED)
                    continue;
                ptx_step(&b->threads[n]);
                r->run->steps++;
                moves = true;
            }
        }
        uint64_t state = state_of(r);
        if (r->end == PTX_ENDED && (!moves || (sweep > 0 && state == kept)) && r->n_open > 0) {
            bool is_over = true;
            for (uint32_t i = 0; i < r->n_blocks; i++)
                is_over &= r->blocks[i].threads == NULL || r->blocks[i].n_live == 0;
            if (!is_over)
                r->end = PTX_HANGS;
        }
        if ((sweep & (sweep - 1)) == 0)
            kept = state;
    }
    if (r->end == PTX_ENDED && tend_blocks(r))
        r->end = PTX_TOO_LONG;
}

enum ptx_end ptx_machine_run(struct ptx_machine *k, struct ptx_memory *m, struct ptx_run *run)
{
    struct machine_run r = {.k = k, .memory = m, .run = run, .dice = run->seed};
    r.n_total = run->grid[0] * run->grid[1] * run->grid[2];
    r.block_threads = run->block[0] * run->block[1] * run->block[2];
    r.n_blocks = run->resident == 0 || run->resident > r.n_total ? r.n_total : run->resident;
    r.blocks = calloc(r.n_blocks, sizeof *r.blocks);
    run->steps = 0;
    run->why[0] = 0;
    if (r.blocks == NULL)
        return PTX_UNKNOWN;
    run_by_dice(&r);
    if (r.end == PTX_ENDED && tend_blocks(&r))
        run_in_turn(&r);
    for (uint32_t i = 0; i < r.n_blocks; i++) {
        if (r.blocks[i].threads != NULL)
            end_block(&r, &r.blocks[i]);
    }
    free(r.blocks);
    return r.end;
}
