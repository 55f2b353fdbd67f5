/* Barriers as loops over warps.
 *
 * Where all threads of a block meet the same barriers (every barrier lies under branches that the
 * whole block takes alike), no warp needs a stack of its own: run each warp up to the first
 * barrier, then each from there to the next, and so on.  The kernel is cut into segments, one from
 * its start and one from behind each barrier, each of which runs one warp and tells at which
 * barrier it has arrived.  What a warp needs behind a barrier is kept in its part of a context in
 * between.  A kernel may be cut in other places as well, see race.c: in front of an instruction
 * there, which the next segment begins with.
 *
 *     context  [ warp 0: registers that live across some barrier | warp 1: ... ]
 *     state 0: for each warp: state = segment_0(frame, context, warp)
 *     state k: for each warp: state = segment_k(frame, context, warp)        until state is "done"
 */
#include <string.h>

#include "device/abi.h"
#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/value.h"
#include "ptx_rewrite/verdict.h"

enum {
    MAX_STATES = 64,
    MAX_CUTS = 16, /* where there is no barrier */
    MAX_CONTEXT = 128 << 10,
    DONE = 0,
};

struct fission {
    struct tl_emit *e;
    struct tl_fn *analysed;
    uint32_t n_states;            /* 0: the start; then the barriers, then other cuts */
    uint32_t n_barriers;          /* with the start */
    uint32_t barrier[MAX_STATES]; /* instruction of each */
    uint32_t *state_of;           /* per instruction */
    bool *waits;                  /* per instruction: for other blocks, in a loop */
    uint64_t *crosses;            /* per register, a bit: lives across a barrier */
    uint32_t *offset;             /* per register: in a warp's part of the context */
    uint32_t stride;              /* bytes per warp */
};

/* --- which kernels ---------------------------------------------------------------------------- */

static int has_waiting(void *data, struct tl_ptx_stmt *s)
{
    (void)data;
    enum tl_ptx_op op = s->inst.form->op;
    return tl_ptx_barrier_of(s).kind != TL_BARRIER_NONE || op == TL_OP_nanosleep ||
           op == TL_OP_mbarrier;
}

static bool has_barrier(const struct tl_ptx_cfg *cfg, uint32_t from, uint32_t until)
{
    while (from < until && tl_ptx_barrier_of(cfg->insts[from]).kind == TL_BARRIER_NONE)
        from++;
    return from < until;
}

/* Whether a way leads from an instruction back to it without a barrier on it: there a warp may wait
 * for what another one writes. Around a loop with a barrier all warps go together. */
static bool may_wait(const struct fission *x, uint32_t inst)
{
    const struct tl_ptx_cfg *cfg = &x->analysed->cfg;
    uint32_t home = cfg->block_of[inst], n = 0,
             *stack = tl_arena_alloc(x->e->arena, (cfg->n_blocks + 1) * sizeof *stack);
    bool *seen = tl_arena_zalloc(x->e->arena, cfg->n_blocks + 1);
    if (stack == NULL || seen == NULL)
        return true;
    if (!has_barrier(cfg, inst + 1, cfg->blocks[home].end))
        stack[n++] = home;
    while (n > 0) {
        const struct tl_ptx_block *from = &cfg->blocks[stack[--n]];
        for (uint32_t i = 0; i < from->n_succs; i++) {
            uint32_t b = from->succs[i];
            if (b >= cfg->n_blocks || seen[b])
                continue;
            seen[b] = true;
            if (b == home && !has_barrier(cfg, cfg->blocks[b].first, inst))
                return true;
            if (!has_barrier(cfg, cfg->blocks[b].first, cfg->blocks[b].end))
                stack[n++] = b;
        }
    }
    return false;
}

static bool is_strong_load(const struct tl_ptx_form *f)
{
    return f->op == TL_OP_ld &&
           (tl_ptx_form_has(f, TL_MOD_volatile) || tl_ptx_form_has(f, TL_MOD_relaxed) ||
            tl_ptx_form_has(f, TL_MOD_acquire));
}

/* What may be what a load in a loop waits for, if another warp does it. */
static bool may_release(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    enum tl_ptx_mod space = tl_ptx_form_space(f);
    switch (f->op) {
    case TL_OP_st:
        return space != TL_MOD_local && space != TL_MOD_shared;
    case TL_OP_atom:
    case TL_OP_red:
        return space != TL_MOD_shared;
    case TL_OP_cp:
        return tl_ptx_form_has_text(f, "bulk");
    case TL_OP_tensormap:
        return !tl_ptx_form_has_text(f, "replace") || space != TL_MOD_shared;
    case TL_OP_wmma:
        return tl_ptx_form_has(f, TL_MOD_store) && space != TL_MOD_shared;
    case TL_OP_call:
    case TL_OP_multimem:
    case TL_OP_sured:
    case TL_OP_sust:
        return true;
    default:
        return false;
    }
}

/* Whether the kernel is cut in front of an instruction, rather than at it. */
static bool is_cut(const struct fission *x, uint32_t inst)
{
    return x->state_of[inst] >= x->n_barriers;
}

static uint32_t first_of(const struct fission *x, uint32_t state)
{
    return state == 0 ? 0 : x->barrier[state] + (state < x->n_barriers);
}

/* Shows `visit` all instructions between a segment's start and the next barriers; false if there is
 * no memory for that. */
static bool each_of_segment(struct fission *x, uint32_t first,
                            void (*visit)(void *data, uint32_t inst), void *data)
{
    const struct tl_ptx_cfg *cfg = &x->analysed->cfg;
    bool *seen = tl_arena_zalloc(x->e->arena, (size_t)cfg->n_blocks + 1);
    uint32_t *stack = tl_arena_alloc(x->e->arena, ((size_t)cfg->n_blocks + 2) * sizeof *stack),
             depth = 0;
    if (seen == NULL || stack == NULL)
        return false;
    stack[depth++] = cfg->block_of[first];
    for (uint32_t from = first; depth > 0; from = UINT32_MAX) {
        const struct tl_ptx_block *k = &cfg->blocks[stack[--depth]];
        uint32_t i = from != UINT32_MAX ? from : k->first;
        for (; i < k->end && (x->state_of[i] == 0 || (i == from && is_cut(x, i))); i++)
            visit(data, i);
        for (uint32_t s = 0; i == k->end && s < k->n_succs; s++) {
            uint32_t to = k->succs[s];
            if (to != cfg->n_blocks && !seen[to]) {
                seen[to] = true;
                stack[depth++] = to;
            }
        }
    }
    return true;
}

struct reach {
    const struct tl_ptx_cfg *cfg;
    uint32_t wait; /* an instruction */
    bool has_wait; /* it is among them */
    bool may_release;
};

static void look_at(void *data, uint32_t inst)
{
    struct reach *r = data;
    r->has_wait |= inst == r->wait;
    r->may_release |= may_release(r->cfg->insts[inst]);
}

/* Whether what a load in a loop waits for can only come from another block: other warps of its own
 * can do nothing about it before the next barrier, at which they wait for this one.  Sums over
 * parts of k in cuBLAS are such, where a block waits for its turn.  All barriers must be known. */
static bool waits_for_blocks(struct fission *x, uint32_t inst)
{
    enum tl_ptx_mod space = tl_ptx_form_space(x->analysed->cfg.insts[inst]->inst.form);
    for (uint32_t k = 0; k < x->n_states; k++) {
        struct reach r = {.cfg = &x->analysed->cfg, .wait = inst};
        uint32_t first = first_of(x, k);
        if (first >= x->analysed->cfg.n_insts)
            continue;
        if (!each_of_segment(x, first, look_at, &r) || (r.has_wait && r.may_release))
            return false;
    }
    return space == TL_MOD_global;
}

/* All its barriers are plain, and met by all threads or by none, and no warp waits for another one
 * in between. */
static bool is_fit(struct fission *x)
{
    struct tl_emit *e = x->e;
    const struct tl_ptx_cfg *cfg = &x->analysed->cfg;
    for (const struct tl_ptx_program_func *f = e->p->funcs; f != NULL; f = f->next) {
        if (f != e->p->entry && f->func->has_body &&
            tl_ptx_each_inst(f->func->body, has_waiting, NULL) != 0)
            return false;
    }
    for (uint32_t r = 0; r < x->analysed->n_regs; r++) {
        if (x->analysed->regs[r].vec > 1)
            return false; /* too rare to have a place in the context */
    }
    x->n_states = 1;
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        const struct tl_ptx_stmt *s = cfg->insts[i];
        const struct tl_ptx_form *f = s->inst.form;
        struct tl_ptx_barrier b = tl_ptx_barrier_of(s);
        if (f->op == TL_OP_nanosleep || f->op == TL_OP_mbarrier)
            return false;
        x->waits[i] = is_strong_load(f) && may_wait(x, i);
        if (b.kind == TL_BARRIER_NONE)
            continue;
        if (b.kind != TL_BARRIER_SYNC || b.has_count || !b.has_id || s->inst.guard != NULL ||
            x->analysed->d.block[cfg->block_of[i]] != TL_LEVEL_BLOCK || x->n_states == MAX_STATES)
            return false;
        x->barrier[x->n_states] = i;
        x->state_of[i] = x->n_states++;
    }
    x->n_barriers = x->n_states;
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        if (x->waits[i] && !waits_for_blocks(x, i))
            return false;
    }
    return x->n_states > 1;
}

static void forget_cuts(struct fission *x)
{
    for (uint32_t k = x->n_barriers; k < x->n_states; k++)
        x->state_of[x->barrier[k]] = 0;
    x->n_states = x->n_barriers;
}

/* --- what lives across barriers --------------------------------------------------------------- */

struct live_scan {
    const struct tl_fn *f;
    uint64_t *set;
    uint32_t inst;
};

static void mark_read(void *data, struct tl_ptx_sym *reg)
{
    const struct live_scan *l = data;
    uint32_t id = tl_reg_read(l->f, l->inst, reg->id);
    l->set[id / 64] |= 1ull << (id % 64);
    /* which is what a branch looks at, also if there is a shadow */
    if (l->f->cfg.insts[l->inst]->inst.form->op == TL_OP_brx)
        l->set[reg->id / 64] |= 1ull << (reg->id % 64);
}

static void mark_written(void *data, struct tl_ptx_sym *reg)
{
    const struct live_scan *l = data;
    uint32_t shadow = l->f->shadow_write[l->inst];
    l->set[reg->id / 64] &= ~(1ull << (reg->id % 64));
    if (shadow != TL_CFG_NONE)
        l->set[shadow / 64] &= ~(1ull << (shadow % 64));
}

/* Goes backwards through a block from what lives at its end; notes what lives at barriers.  Seen
 * from one thread: what it writes before it reads, its lane need not bring along, whatever the
 * other lanes do. */
static void walk_back(struct fission *x, uint32_t block, uint64_t *set, uint32_t words, bool notes)
{
    const struct tl_ptx_cfg *cfg = &x->analysed->cfg;
    for (uint32_t i = cfg->blocks[block].end; i-- > cfg->blocks[block].first;) {
        const struct tl_ptx_stmt *s = cfg->insts[i];
        bool is_noted = notes && x->state_of[i] != 0;
        for (uint32_t w = 0; is_noted && !is_cut(x, i) && w < words; w++)
            x->crosses[w] |= set[w];
        struct live_scan l = {x->analysed, set, i};
        if (s->inst.guard == NULL)
            tl_ptx_inst_writes(s, mark_written, &l);
        tl_ptx_inst_reads(s, mark_read, &l);
        for (uint32_t w = 0; is_noted && is_cut(x, i) && w < words; w++)
            x->crosses[w] |= set[w];
    }
}

static bool find_crossing(struct fission *x)
{
    struct tl_arena *arena = x->e->arena;
    const struct tl_ptx_cfg *cfg = &x->analysed->cfg;
    uint32_t words = x->analysed->n_regs / 64 + 1;
    uint64_t *in = tl_arena_zalloc(arena, (size_t)cfg->n_blocks * words * sizeof *in),
             *set = tl_arena_alloc(arena, words * sizeof *set);
    x->crosses = tl_arena_zalloc(arena, words * sizeof *x->crosses);
    if (in == NULL || set == NULL || x->crosses == NULL)
        return false;
    for (bool changed = true, notes = false;; notes = !changed) {
        changed = false;
        for (uint32_t o = cfg->n_order; o-- > 0;) {
            uint32_t b = cfg->order[o];
            memset(set, 0, words * sizeof *set);
            for (uint32_t e = 0; e < cfg->blocks[b].n_succs; e++) {
                uint32_t to = cfg->blocks[b].succs[e];
                for (uint32_t w = 0; to != cfg->n_blocks && w < words; w++)
                    set[w] |= in[(size_t)to * words + w];
            }
            walk_back(x, b, set, words, notes);
            if (memcmp(set, &in[(size_t)b * words], words * sizeof *set) != 0) {
                memcpy(&in[(size_t)b * words], set, words * sizeof *set);
                changed = true;
            }
        }
        if (notes)
            return true;
    }
}

static bool crosses(const struct fission *x, uint32_t reg)
{
    return x->analysed->regs[reg].bits != 0 && (x->crosses[reg / 64] >> (reg % 64) & 1);
}

static bool lay_out(struct fission *x)
{
    const struct tl_fn *f = x->analysed;
    x->stride = 0;
    for (uint32_t i = 0; i < f->n_regs; i++) {
        if (!crosses(x, i))
            continue;
        struct tl_reg *r = &f->regs[i];
        r->is_local = false; /* also if it lives between two barriers only */
        bool is_vec = !r->lanes.is_known && f->d.reg[i] == TL_LEVEL_LANE;
        uint32_t n = is_vec ? TL_LANES : r->lanes.is_known ? tl_n_bases(x->e, &r->lanes) : 1;
        uint32_t bytes = r->bits < 8 ? (is_vec ? 4 : 1) : r->bits / 8 * n;
        uint32_t align = bytes > 64 ? 64 : bytes;
        x->stride = (x->stride + align - 1) / align * align;
        x->offset[i] = x->stride;
        x->stride += bytes;
        if (x->stride > MAX_CONTEXT)
            return false;
    }
    x->stride = (x->stride + 63) / 64 * 64;
    const uint32_t *block = x->e->options->block;
    uint32_t n_warps = (block[0] * block[1] * block[2] + TL_LANES - 1) / TL_LANES;
    return (uint64_t)x->stride * n_warps <= MAX_CONTEXT;
}

/* Where the kernel is cut, and what is kept.  Cuts where warps race are left out if what lives
 * across them is too much. */
static bool plan(struct fission *x)
{
    uint32_t left = MAX_STATES - x->n_states;
    x->n_states += tl_find_races(x->e, x->analysed, x->state_of, x->n_states,
                                 &x->barrier[x->n_states], left < MAX_CUTS ? left : MAX_CUTS);
    if (find_crossing(x) && lay_out(x))
        return true;
    if (x->n_states == x->n_barriers)
        return false;
    forget_cuts(x);
    return find_crossing(x) && lay_out(x);
}

/* --- segments --------------------------------------------------------------------------------- */

static LLVMValueRef context_at(struct tl_emit *e, LLVMValueRef part, uint32_t offset)
{
    LLVMValueRef index = LLVMConstInt(e->i64, offset, false);
    return LLVMBuildGEP2(e->b, e->i8, part, &index, 1, "");
}

/* Registers that may be written between a segment's start and the next barriers. */
struct written_scan {
    const struct tl_fn *f;
    bool *is_written;
};

static void note_written(void *data, struct tl_ptx_sym *reg)
{
    const struct written_scan *w = data;
    w->is_written[reg->id] = true;
}

static void note_writes(void *data, uint32_t inst)
{
    const struct written_scan *w = data;
    tl_ptx_inst_writes(w->f->cfg.insts[inst], note_written, data);
    if (w->f->shadow_write[inst] != TL_CFG_NONE)
        w->is_written[w->f->shadow_write[inst]] = true;
}

/* What a segment is part of: a function of its own, or that of the block with all others.  Then it
 * is much cheaper to compile than by having LLVM put them together. */
struct place {
    LLVMValueRef fn, frame, context, warp;
    LLVMBasicBlockRef allocas;
    LLVMBasicBlockRef begin; /* from where its code is gone to */
    /* where it goes on from, with the state in `state`; NULL: it returns the state */
    LLVMBasicBlockRef arrived;
    LLVMValueRef state;
};

static void arrive(struct tl_emit *e, const struct place *p, uint32_t state)
{
    LLVMValueRef value = LLVMConstInt(e->i32, state, false);
    if (p->arrived == NULL) {
        LLVMBuildRet(e->b, value);
    } else {
        LLVMBuildStore(e->b, value, p->state);
        LLVMBuildBr(e->b, p->arrived);
    }
}

/* What registers hold at a segment's start: what its warp brings along, or nothing.  The latter is
 * said, because else LLVM would carry them over from the warp before. */
static void begin_registers(struct fission *x, const struct tl_fn *f, LLVMValueRef part,
                            uint32_t state)
{
    struct tl_emit *e = x->e;
    for (uint32_t i = 0; i < f->n_regs; i++) {
        const struct tl_reg *r = &f->regs[i];
        for (uint32_t g = 0; r->bits != 0 && g < r->n_slots; g++) {
            if (r->slot[g] == NULL)
                continue; /* the segment does not use it */
            LLVMValueRef v = LLVMGetUndef(r->type);
            if (state != 0 && crosses(x, i))
                v = LLVMBuildLoad2(e->b, r->type,
                                   context_at(e, part, x->offset[i] + g * (r->bits / 8)), "");
            LLVMBuildStore(e->b, v, r->slot[g]);
        }
    }
    LLVMBuildStore(e->b, LLVMGetUndef(tl_vec(e->i1)), f->carry_slot);
}

/* What the segment has written of the registers that others want goes to where those find it. */
static void keep_registers(struct fission *x, const struct tl_fn *f, LLVMValueRef part,
                           const bool *is_written)
{
    struct tl_emit *e = x->e;
    for (uint32_t i = 0; i < x->analysed->n_regs; i++) {
        const struct tl_reg *r = &f->regs[i];
        for (uint32_t g = 0; crosses(x, i) && is_written[i] && g < r->n_slots; g++) {
            if (r->slot[g] != NULL)
                LLVMBuildStore(e->b, LLVMBuildLoad2(e->b, r->type, r->slot[g], ""),
                               context_at(e, part, x->offset[i] + g * (r->bits / 8)));
        }
    }
}

/* In a quick version registers are memory anyway: those that others want are where those find
 * them. */
static void place_registers(struct fission *x, struct tl_fn *f, LLVMValueRef part)
{
    struct tl_emit *e = x->e;
    for (uint32_t i = 0; i < x->analysed->n_regs; i++) {
        struct tl_reg *r = &f->regs[i];
        uint32_t n = r->lanes.is_known ? tl_n_bases(e, &r->lanes) : 1;
        for (uint32_t g = 0; crosses(x, i) && g < n; g++)
            r->slot[g] = context_at(e, part, x->offset[i] + g * (r->bits / 8));
    }
}

/* One segment for full warps, or for the rest of a block. */
static void emit_segment(struct fission *x, uint32_t state, uint32_t lanes, const struct place *p)
{
    struct tl_emit *e = x->e;
    uint32_t n_regs = x->analysed->n_regs;
    struct tl_fn *f = tl_arena_alloc(e->arena, sizeof *f);
    struct tl_segment *segment = tl_arena_zalloc(e->arena, sizeof *segment);
    bool *is_written = tl_arena_zalloc(e->arena, (size_t)n_regs + 1);
    struct tl_reg *regs = tl_arena_alloc(e->arena, ((size_t)n_regs + 1) * sizeof *regs);
    if (f == NULL || segment == NULL || is_written == NULL || regs == NULL)
        goto no_memory;
    *f = *x->analysed;
    memcpy(regs, x->analysed->regs, n_regs * sizeof *regs);
    f->regs = regs;
    f->segment = segment;
    segment->first = first_of(x, state);
    segment->state_of = x->state_of;
    segment->waits = x->waits;
    segment->suspend = tl_arena_zalloc(e->arena, MAX_STATES * sizeof(LLVMBasicBlockRef));
    struct written_scan written = {x->analysed, is_written};
    if (segment->suspend == NULL || !each_of_segment(x, segment->first, note_writes, &written))
        goto no_memory;
    f->fn = p->fn;
    f->frame = p->frame;
    f->warp = p->warp;
    f->allocas = p->allocas;
    if (lanes < TL_LANES) {
        LLVMValueRef bits[TL_LANES];
        for (uint32_t i = 0; i < TL_LANES; i++)
            bits[i] = LLVMConstInt(e->i1, i < lanes, false);
        f->entry_mask = LLVMConstVector(bits, TL_LANES);
    }
    LLVMPositionBuilderAtEnd(e->b, p->begin);
    LLVMValueRef at = LLVMBuildMul(e->b, LLVMBuildZExt(e->b, f->warp, e->i64, ""),
                                   LLVMConstInt(e->i64, x->stride, false), "");
    LLVMValueRef part = LLVMBuildGEP2(e->b, e->i8, p->context, &at, 1, "");
    if (e->quick != NULL)
        place_registers(x, f, part);
    for (uint32_t k = 1; k < x->n_states; k++)
        segment->suspend[k] = LLVMAppendBasicBlockInContext(e->ctx, f->fn, "suspend");
    if (tl_emit_function(e, f) < 0)
        return;
    LLVMPositionBuilderAtEnd(e->b, p->begin);
    if (e->quick == NULL)
        begin_registers(x, f, part, state);
    LLVMBuildBr(e->b, f->start);
    for (uint32_t k = 1; k < x->n_states; k++) {
        /* no way leads to that barrier */
        if (LLVMGetFirstUse(LLVMBasicBlockAsValue(segment->suspend[k])) == NULL) {
            LLVMDeleteBasicBlock(segment->suspend[k]);
            continue;
        }
        LLVMPositionBuilderAtEnd(e->b, segment->suspend[k]);
        if (e->quick == NULL)
            keep_registers(x, f, part, is_written);
        arrive(e, p, k);
    }
    LLVMPositionBuilderAtEnd(e->b, f->end);
    arrive(e, p, DONE);
    return;
no_memory:
    e->rc = tl_error_set(e->err, -12, "%s: out of memory", e->name);
}

/* i32 segment(frame, context, warp). */
static LLVMValueRef emit_segment_function(struct fission *x, LLVMTypeRef type, uint32_t state,
                                          uint32_t lanes)
{
    struct tl_emit *e = x->e;
    struct place p = {
        .fn = tl_new_function(e, lanes == TL_LANES ? "kernel" : "kernel_rest", type, false)};
    p.frame = LLVMGetParam(p.fn, 0);
    p.context = LLVMGetParam(p.fn, 1);
    p.warp = LLVMGetParam(p.fn, 2);
    p.allocas = p.begin = LLVMAppendBasicBlockInContext(e->ctx, p.fn, "allocas");
    emit_segment(x, state, lanes, &p);
    return p.fn;
}

/* --- the block -------------------------------------------------------------------------------- */

/* Runs a warp through a segment, where the builder stands and stands again afterwards; the state
 * that it arrives at. */
static LLVMValueRef run_segment(struct fission *x, const struct place *block, uint32_t state,
                                uint32_t lanes, LLVMValueRef warp)
{
    struct tl_emit *e = x->e;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    if (!tl_is_small(x->analysed->cfg.n_insts)) {
        LLVMTypeRef args[3] = {e->ptr, e->ptr, e->i32},
                    type = LLVMFunctionType(e->i32, args, 3, false);
        LLVMValueRef fn = emit_segment_function(x, type, state, lanes);
        LLVMValueRef values[3] = {block->frame, block->context, warp};
        LLVMPositionBuilderAtEnd(e->b, here);
        return LLVMBuildCall2(e->b, type, fn, values, 3, "");
    }
    struct place p = *block;
    p.begin = here;
    p.warp = warp;
    p.arrived = LLVMAppendBasicBlockInContext(e->ctx, p.fn, "arrived");
    emit_segment(x, state, lanes, &p);
    LLVMPositionBuilderAtEnd(e->b, p.arrived);
    return LLVMBuildLoad2(e->b, e->i32, p.state, "");
}

/* All whole warps through a segment. */
static LLVMValueRef run_whole_warps(struct fission *x, const struct place *block, uint32_t state,
                                    uint32_t n_whole)
{
    struct tl_emit *e = x->e;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef loop = LLVMAppendBasicBlockInContext(e->ctx, block->fn, "warps");
    LLVMBuildBr(e->b, loop);
    LLVMPositionBuilderAtEnd(e->b, loop);
    LLVMValueRef w = LLVMBuildPhi(e->b, e->i32, "");
    LLVMValueRef arrived = run_segment(x, block, state, TL_LANES, w);
    LLVMValueRef w_next = LLVMBuildAdd(e->b, w, LLVMConstInt(e->i32, 1, false), "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->ctx, block->fn, "next");
    LLVMBuildCondBr(
        e->b, LLVMBuildICmp(e->b, LLVMIntULT, w_next, LLVMConstInt(e->i32, n_whole, false), ""),
        loop, done);
    LLVMAddIncoming(w, (LLVMValueRef[2]){LLVMConstInt(e->i32, 0, false), w_next},
                    (LLVMBasicBlockRef[2]){before, latch}, 2);
    LLVMPositionBuilderAtEnd(e->b, done);
    return arrived;
}

/* void block(frame): all warps through all segments. */
static LLVMValueRef emit_block(struct fission *x, uint32_t n_whole, uint32_t rest)
{
    struct tl_emit *e = x->e;
    LLVMBasicBlockRef heads[MAX_STATES] = {NULL};
    struct place p = {
        .fn = tl_new_function(e, "kernel", LLVMFunctionType(e->voidt, &e->ptr, 1, false), false)};
    p.frame = LLVMGetParam(p.fn, 0);
    p.allocas = LLVMAppendBasicBlockInContext(e->ctx, p.fn, "allocas");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->ctx, p.fn, "done");
    LLVMPositionBuilderAtEnd(e->b, p.allocas);
    uint64_t bytes = (uint64_t)x->stride * (n_whole + (rest != 0)) + 64;
    p.context = LLVMBuildAlloca(e->b, LLVMArrayType2(e->i8, bytes), "context");
    LLVMSetAlignment(p.context, 64);
    p.state = LLVMBuildAlloca(e->b, e->i32, "state");
    for (uint32_t k = 0; k < x->n_states; k++)
        heads[k] = LLVMAppendBasicBlockInContext(e->ctx, p.fn, "state");
    for (uint32_t k = 0; k < x->n_states && e->rc == 0; k++) {
        LLVMValueRef state = NULL;
        LLVMPositionBuilderAtEnd(e->b, heads[k]);
        if (n_whole > 0)
            state = run_whole_warps(x, &p, k, n_whole);
        if (rest != 0 && e->rc == 0)
            state = run_segment(x, &p, k, rest, LLVMConstInt(e->i32, n_whole, false));
        LLVMValueRef to = LLVMBuildSwitch(e->b, state, done, x->n_states);
        for (uint32_t s = 1; s < x->n_states; s++)
            LLVMAddCase(to, LLVMConstInt(e->i32, s, false), heads[s]);
    }
    LLVMPositionBuilderAtEnd(e->b, p.allocas);
    LLVMBuildBr(e->b, heads[0]);
    LLVMPositionBuilderAtEnd(e->b, done);
    LLVMBuildRetVoid(e->b);
    return p.fn;
}

bool tl_emit_fission(struct tl_emit *e, struct tl_fn *analysed)
{
    struct fission x = {.e = e, .analysed = analysed};
    const uint32_t *block = e->options->block;
    uint32_t threads = block[0] * block[1] * block[2], n_regs = analysed->n_regs;
    x.state_of = tl_arena_zalloc(e->arena,
                                 ((size_t)analysed->cfg.n_insts + 1) * sizeof *x.state_of);
    x.offset = tl_arena_zalloc(e->arena, ((size_t)n_regs + 1) * sizeof *x.offset);
    x.waits = tl_arena_zalloc(e->arena, (size_t)analysed->cfg.n_insts + 1);
    if (x.state_of == NULL || x.offset == NULL || x.waits == NULL || !is_fit(&x) || !plan(&x))
        return false;
    LLVMValueRef fn = emit_block(&x, threads / TL_LANES, threads % TL_LANES);
    if (e->rc == 0)
        tl_emit_blocks(e, fn, 0);
    return true;
}
