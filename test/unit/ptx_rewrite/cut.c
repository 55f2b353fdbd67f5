/* See cut.h. */
#include "test/unit/ptx_rewrite/cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_BUDGET = 200000, /* steps of a run whose length is not known yet */
    SPARE_BUDGET = 20000,  /* for what a variant does beside the kernel's own steps */
    MAX_ROUNDS = 400       /* launches of a variant that is stopped again and again */
};

struct control {
    uint32_t left; /* with the counter, one word */
    uint32_t counter;
    uint64_t stop, never;
    uint32_t told, padding;
};

/* One kernel in work: the memory of all its runs, and who raises the stop word. */
struct worker {
    struct ptx_cut *c;
    struct ptx_memory memory;
    struct control *control;
    uint8_t params[8192];
    uint64_t dice;
    bool is_settled;
    /* By epochs: the counter begins anywhere, is never reset, and the last to leave tells. */
    bool by_epochs;
    uint32_t base, left_end;
};

static uint32_t roll(struct worker *w, uint32_t n)
{
    w->dice ^= w->dice << 13;
    w->dice ^= w->dice >> 7;
    w->dice ^= w->dice << 17;
    return (uint32_t)(w->dice >> 33) % n;
}

/* --- memory ----------------------------------------------------------------------------------- */

static uint32_t offset_of(const struct worker *w, uint32_t arg, uint32_t *end)
{
    uint32_t offset = 0, size = 0;
    for (uint32_t i = 0; i <= arg; i++) {
        const struct ptx_case_arg *a = &w->c->args[i];
        bool is_address = a->kind == PTX_ARG_BUFFER || a->kind == PTX_ARG_HANDLE;
        uint32_t align = is_address ? 8 : a->kind == PTX_ARG_BYTES ? 1 : a->element_bytes;
        size = is_address ? 8 : ptx_case_arg_bytes(a);
        offset = (offset + align - 1) / align * align;
        if (i < arg)
            offset += size;
    }
    *end = offset + size;
    return offset;
}

/* Areas of memory for buffers are in the order of the arguments, those of variables behind them. */
static bool make_memory(struct worker *w)
{
    uint32_t end = 0;
    w->control = (struct control *)(void *)ptx_memory_add(&w->memory, "", sizeof *w->control);
    for (uint32_t i = 0; i < w->c->n_args; i++) {
        const struct ptx_case_arg *a = &w->c->args[i];
        uint32_t offset = offset_of(w, i, &end);
        if (end > sizeof w->params || a->kind == PTX_ARG_BYTES)
            return false;
        uint8_t *p = ptx_memory_add(&w->memory, "",
                                    a->kind == PTX_ARG_BUFFER ? ptx_case_arg_bytes(a) : 8);
        uint64_t value = a->kind == PTX_ARG_BUFFER ? (uintptr_t)p : a->value;
        if (p == NULL)
            return false;
        if (a->kind == PTX_ARG_HANDLE) /* areas begin with the control words */
            value = (uintptr_t)w->memory.areas[a->value + 1].bytes;
        memcpy(w->params + offset, &value, end - offset);
    }
    return w->control != NULL;
}

static void reset(struct worker *w)
{
    for (uint32_t i = 0; i < w->memory.n_areas; i++)
        memset(w->memory.areas[i].bytes, 0, w->memory.areas[i].n);
    for (uint32_t i = 0; i < w->c->n_args; i++) {
        if (w->c->args[i].kind == PTX_ARG_BUFFER)
            ptx_case_fill(&w->c->args[i], w->memory.areas[i + 1].bytes);
    }
}

/* All that a run may have changed, but for the control words and what is not compared.  Tables of
 * variants are variables too, and never change. */
static void keep(struct worker *w, uint32_t n_areas, struct tl_buf *out)
{
    out->n = 0;
    for (uint32_t i = 1; i < n_areas; i++) {
        if (i > w->c->n_args || !(w->c->ignored >> (i - 1) & 1))
            tl_buf_add(out, (const char *)w->memory.areas[i].bytes, w->memory.areas[i].n);
    }
}

/* --- variants --------------------------------------------------------------------------------- */

static void meddle(void *user)
{
    struct worker *w = user;
    if (!w->is_settled)
        w->control->stop = roll(w, 3) == 0; /* issued 1, completed 0: stop */
}

static void settle(void *user)
{
    struct worker *w = user;
    w->is_settled = true;
    w->control->stop = 0;
}

static void put_extras(struct worker *w, const struct tl_ptx_rewritten *r, uint32_t first,
                       uint32_t batch)
{
    const uint32_t *grid = w->c->run->grid;
    uint64_t *variables = calloc(r->n_args + 1, sizeof *variables);
    struct tl_ptx_extra x = {.grid = {grid[0], grid[1], grid[2]},
                             .first = first,
                             .blocks = grid[0] * grid[1] * grid[2],
                             .batch_mask = batch - 1,
                             .counter = (uintptr_t)&w->control->counter,
                             .told = w->by_epochs ? (uintptr_t)&w->control->told : 0,
                             .base = w->base,
                             .left_end = w->left_end,
                             .variables = variables};
    for (uint32_t i = 0; i < TL_PTX_STOP_WORDS; i++)
        x.words[i] = (uintptr_t)(i == 1 ? &w->control->stop : &w->control->never);
    if (variables == NULL)
        abort();
    for (uint32_t i = 0; i < r->n_args; i++)
        if (r->args[i].kind == TL_PTX_ARG_VARIABLE)
            variables[i] = (uintptr_t)ptx_memory_find(&w->memory, r->args[i].variable);
    tl_ptx_put_args(r->args, r->n_args, &x, w->params);
    free(variables);
}

/* Piece by piece, to the end of the grid; one block at a time or two. */
static enum ptx_end run_pieces(struct worker *w, struct ptx_machine *k,
                               const struct tl_ptx_rewritten *r, enum tl_ptx_variant v,
                               uint64_t budget)
{
    const struct ptx_case_run *of = w->c->run;
    uint32_t total = of->grid[0] * of->grid[1] * of->grid[2], first = 0, batch = 1u << roll(w, 3);
    enum ptx_end end = PTX_ENDED;
    w->is_settled = v == TL_PTX_SLICE;
    w->by_epochs = roll(w, 2) == 0;
    w->base = w->by_epochs ? (uint32_t)w->dice : 0; /* also where it overflows soon */
    w->control->counter = w->base;
    w->control->left = w->by_epochs ? roll(w, 1000) : 0;
    for (uint32_t round = 0; end == PTX_ENDED && first < total; round++) {
        uint32_t left = total - first,
                 n = v == TL_PTX_TICKET ? left : 1 + roll(w, v == TL_PTX_SLICE ? left : 3);
        struct ptx_run run = {.grid = {n, 1, 1},
                              .block = {of->block[0], of->block[1], of->block[2]},
                              .dynamic_shared = r->uses_slot ? TL_PTX_SHARED_BYTES(of->shared)
                                                             : of->shared,
                              .params = w->params,
                              .resident = roll(w, 4) == 0 ? 2 : 1,
                              .seed = w->dice,
                              .burst = w->c->burst,
                              .is_converged = w->c->is_converged,
                              .budget = budget,
                              .meanwhile = meddle,
                              .settle = settle,
                              .user = w};
        if (round == MAX_ROUNDS)
            settle(w);
        w->left_end = w->control->left + n;
        w->control->told = first;
        put_extras(w, r, first, batch);
        end = ptx_machine_run(k, &w->memory, &run);
        w->c->n_launches++;
        if (end == PTX_FAULT || end == PTX_UNKNOWN)
            memcpy(w->c->why, run.why, sizeof w->c->why);
        uint32_t counted = w->control->counter - w->base;
        if (end == PTX_ENDED && v != TL_PTX_SLICE && w->by_epochs &&
            (w->control->told != counted || w->control->left != w->left_end)) {
            snprintf(w->c->why, sizeof w->c->why,
                     "%u blocks were taken and %u told, %u of %u have left", counted,
                     w->control->told, w->control->left, w->left_end);
            return PTX_FAULT;
        }
        first = v == TL_PTX_SLICE ? first + n : counted;
    }
    return end;
}

/* Makes the variant and runs it piece by piece, if the launch is one that it is for. */
static void run_variant(struct worker *w, const struct tl_ptx_index *ix, enum tl_ptx_variant v,
                        uint32_t n_areas, uint64_t budget)
{
    struct ptx_cut *c = w->c;
    struct tl_error err;
    struct tl_ptx_rewritten r;
    struct tl_buf got = {0};
    struct tl_ptx_options options = {.variant = v,
                                     .grid_dims = c->run->grid[2] != 1   ? 3
                                                  : c->run->grid[1] != 1 ? 2
                                                                         : 1};
    if (tl_ptx_rewrite(ix, tl_str_of(c->kernel), &options, &r, NULL, &err) < 0)
        return;
    struct ptx_machine *k = NULL;
    if (tl_ptx_conditions_hold(r.conditions, c->run->grid, c->run->block) &&
        r.param_bytes <= sizeof w->params) {
        c->is_accepted[v] = true;
        c->ends[v] = PTX_UNKNOWN;
        k = ptx_machine_open(r.text, r.text_bytes, r.entry);
    }
    if (k != NULL && ptx_machine_bind(k, &w->memory)) {
        reset(w);
        for (uint32_t i = 0; i < r.n_table; i++) {
            uint64_t address = (uintptr_t)ptx_memory_find(&w->memory, r.table[i]);
            memcpy(ptx_memory_find(&w->memory, r.table_name) + (size_t)i * 8, &address, 8);
        }
        c->ends[v] = run_pieces(w, k, &r, v, budget);
        keep(w, n_areas, &got);
        c->differs[v] = c->ends[v] == PTX_ENDED &&
                        (got.n != c->left.n || (got.n > 0 && memcmp(got.p, c->left.p, got.n) != 0));
    }
    tl_buf_finish(&got);
    ptx_machine_close(k);
    tl_ptx_rewritten_finish(&r);
}

/* --- all of it -------------------------------------------------------------------------------- */

static enum ptx_end run_whole(struct worker *w, struct ptx_machine *k, uint32_t resident,
                              uint64_t budget, uint64_t *steps)
{
    const struct ptx_case_run *of = w->c->run;
    struct ptx_run run = {.grid = {of->grid[0], of->grid[1], of->grid[2]},
                          .block = {of->block[0], of->block[1], of->block[2]},
                          .dynamic_shared = of->shared,
                          .params = w->params,
                          .resident = resident,
                          .seed = w->dice,
                          .burst = w->c->burst,
                          .is_converged = w->c->is_converged,
                          .budget = budget};
    reset(w);
    enum ptx_end end = ptx_machine_run(k, &w->memory, &run);
    if (end == PTX_FAULT || end == PTX_UNKNOWN)
        memcpy(w->c->why, run.why, sizeof w->c->why);
    *steps = run.steps;
    return end;
}

void ptx_cut_run(struct ptx_cut *c)
{
    struct worker w = {.c = c, .dice = c->seed * 2654435761u + 88172645463325252ull};
    struct tl_ptx_index *ix = NULL;
    struct tl_error err;
    struct tl_buf got = {0};
    uint64_t steps, budget;
    struct ptx_machine *k = ptx_machine_open(c->text, c->n, c->kernel);
    c->whole = PTX_UNKNOWN;
    if (k != NULL && make_memory(&w) && ptx_machine_bind(k, &w.memory)) {
        uint32_t n_areas = w.memory.n_areas;
        c->whole = run_whole(&w, k, 0, c->max_steps != 0 ? c->max_steps : FIRST_BUDGET, &steps);
        keep(&w, n_areas, &c->left);
        c->steps = steps;
        budget = SPARE_BUDGET + steps * 8;
        if (c->whole == PTX_ENDED && !c->is_whole_only &&
            tl_ptx_index_create(&ix, c->text, c->n, "cut", &err) == 0) {
            c->least = run_whole(&w, k, 1, budget, &steps);
            keep(&w, n_areas, &got);
            c->least_differs = got.n != c->left.n ||
                               (got.n > 0 && memcmp(got.p, c->left.p, got.n) != 0);
            for (int v = 0; v < TL_PTX_VARIANTS; v++)
                run_variant(&w, ix, (enum tl_ptx_variant)v, n_areas, budget);
        }
    }
    tl_buf_finish(&got);
    tl_ptx_index_destroy(ix);
    ptx_machine_close(k);
    ptx_memory_finish(&w.memory);
}

void ptx_cut_finish(struct ptx_cut *c)
{
    tl_buf_finish(&c->left);
}

int ptx_cut_wrong(const struct ptx_cut *c)
{
    for (int v = 0; c->whole == PTX_ENDED && v < TL_PTX_VARIANTS; v++) {
        if (c->is_accepted[v] && (c->ends[v] != PTX_ENDED || c->differs[v]))
            return v;
    }
    return -1;
}

const char *ptx_end_name(enum ptx_end e)
{
    static const char *const names[] = {"ends", "hangs", "does not come to its end", "faults",
                                        "cannot be interpreted"};
    return names[e];
}
