/* Memory and flow: what single instructions do that is not arithmetic.  See interpret.h. */
#include <stdlib.h>
#include <string.h>

#include "test/unit/ptx_rewrite/interpret_internal.h"

/* --- memory ----------------------------------------------------------------------------------- */

static struct slot *slot_of(struct frame *f, const struct tl_ptx_decl *d)
{
    for (uint32_t i = 0; i < f->n_slots; i++) {
        if (f->slots[i].decl == d)
            return &f->slots[i];
    }
    if (f->n_slots == MAX_SLOTS)
        return NULL;
    f->slots[f->n_slots] = (struct slot){.decl = d};
    return &f->slots[f->n_slots++];
}

/* Where a kernel's parameter lies in its buffer. */
static uint32_t param_offset(const struct tl_ptx_func *f, const struct tl_ptx_decl *param)
{
    uint64_t offset = 0;
    for (const struct tl_ptx_decl *d = f->params; d != NULL; d = d->next) {
        uint64_t size = (uint64_t)tl_ptx_type_bytes(d->type) * d->vec,
                 align = d->align != 0 ? d->align : size;
        offset = (offset + align - 1) / align * align;
        if (d == param)
            return (uint32_t)offset;
        offset += size * d->count;
    }
    return UINT32_MAX;
}

uint8_t *ptx_memory_at(struct thread *t, enum tl_ptx_mod space, uint64_t address, uint32_t bytes)
{
    struct machine_run *r = t->block->run;
    if (space == TL_MOD_other && address >> 56 == GENERIC_SHARED >> 56) {
        space = TL_MOD_shared;
        address -= GENERIC_SHARED;
    }
    if (address % bytes == 0 && space == TL_MOD_shared) {
        uint64_t room = r->k->shared_bytes + r->run->dynamic_shared;
        if (room >= bytes && address <= room - bytes)
            return t->block->shared + address;
    } else if (address % bytes == 0 && space != TL_MOD_local) {
        for (uint32_t i = 0; i < r->memory->n_areas; i++) {
            uint64_t begin = (uintptr_t)r->memory->areas[i].bytes;
            uint64_t room = r->memory->areas[i].n;
            if (room >= bytes && address >= begin && address - begin <= room - bytes)
                return r->memory->areas[i].bytes + (address - begin);
        }
    }
    ptx_fail(t, PTX_FAULT, "address");
    return NULL;
}

const struct tl_ptx_operand *ptx_address_operand(const struct tl_ptx_stmt *s)
{
    for (uint32_t i = 0; i < s->n_operands; i++) {
        if (s->inst.operands[i].kind == TL_OPD_ADDR)
            return &s->inst.operands[i];
    }
    return NULL;
}

uint64_t ptx_load(struct type k, const uint8_t *p)
{
    uint64_t v = 0;
    memcpy(&v, p, k.bits / 8);
    return ptx_cut(k, v);
}

void ptx_put(struct thread *t, uint8_t *p, uint64_t v, uint32_t bytes)
{
    t->block->run->has_changed |= memcmp(p, &v, bytes) != 0;
    memcpy(p, &v, bytes);
}

/* ld.param and st.param: the kernel's parameters, or what functions are given. */
static void access_param(struct thread *t, const struct tl_ptx_stmt *s,
                         const struct tl_ptx_operand *address, struct type k)
{
    struct frame *f = ptx_top(t);
    const struct tl_ptx_operand *base = &address->elems[0];
    uint64_t at = address->has_offset ? (uint64_t)address->offset : 0, v = 0;
    if (address->n != 1 || base->kind != TL_OPD_SYM || base->sym->kind != TL_SYM_VAR) {
        ptx_fail(t, PTX_UNKNOWN, "parameter");
        return;
    }
    at += (uint64_t)(base->has_offset ? base->offset : 0);
    uint32_t offset = t->depth == 0 ? param_offset(f->cfg->func, base->sym->decl) : UINT32_MAX;
    struct slot *slot = offset == UINT32_MAX ? slot_of(f, base->sym->decl) : NULL;
    if (offset == UINT32_MAX && (slot == NULL || at != 0)) {
        ptx_fail(t, PTX_UNKNOWN, "parameter");
    } else if (s->inst.form->op == TL_OP_st) {
        if (slot != NULL)
            slot->value = ptx_value(t, &s->inst.operands[1]);
    } else if (slot != NULL) {
        ptx_give(t, &s->inst.operands[0], ptx_cut(k, slot->value));
    } else {
        memcpy(&v, t->block->run->run->params + offset + at, k.bits / 8);
        ptx_give(t, &s->inst.operands[0], ptx_cut(k, v));
    }
}

static void load_or_store(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    bool is_load = f->op == TL_OP_ld;
    struct type k = ptx_type_of(f, 0);
    enum tl_ptx_mod space = tl_ptx_form_space(f);
    const struct tl_ptx_operand *address = ptx_address_operand(s),
                                *data = &s->inst.operands[is_load ? 0 : 1];
    uint32_t n = data->kind == TL_OPD_VEC ? data->n : 1;
    if (k.bits < 8 || address == NULL || address->n != 1 || s->n_operands != 2) {
        ptx_fail(t, PTX_UNKNOWN, "access");
        return;
    }
    if (space == TL_MOD_param) {
        access_param(t, s, address, k);
        return;
    }
    uint64_t a = ptx_value(t, &address->elems[0]) +
                 (uint64_t)(address->has_offset ? address->offset : 0);
    for (uint32_t i = 0; i < n; i++) {
        const struct tl_ptx_operand *one = data->kind == TL_OPD_VEC ? &data->elems[i] : data;
        uint8_t *p = ptx_memory_at(t, space, a + (uint64_t)i * (k.bits / 8), k.bits / 8);
        if (p == NULL)
            return;
        uint64_t v = is_load ? ptx_load(k, p) : ptx_value(t, one);
        if (is_load)
            ptx_give(t, one, v);
        else
            ptx_put(t, p, v, k.bits / 8);
    }
}

/* Atomics and reductions. */
static void update(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *address = ptx_address_operand(s), *o = s->inst.operands;
    uint32_t first = f->op == TL_OP_atom ? 2 : 1;
    struct type k = ptx_type_of(f, 0);
    if (k.bits < 32 || k.is_float || address == NULL || address->n != 1 || s->n_operands <= first) {
        ptx_fail(t, PTX_UNKNOWN, "atomic");
        return;
    }
    uint64_t a = ptx_value(t, &address->elems[0]) +
                 (uint64_t)(address->has_offset ? address->offset : 0);
    uint8_t *p = ptx_memory_at(t, tl_ptx_form_space(f), a, k.bits / 8);
    if (p == NULL)
        return;
    uint64_t was = ptx_load(k, p), x = ptx_cut(k, ptx_value(t, &o[first])), now;
    bool less = k.is_signed ? (int64_t)was < (int64_t)x : was < x;
    if (tl_ptx_form_has(f, TL_MOD_add))
        now = was + x;
    else if (tl_ptx_form_has(f, TL_MOD_exch))
        now = x;
    else if (tl_ptx_form_has(f, TL_MOD_cas))
        now = was == x ? ptx_value(t, &o[first + 1]) : was;
    else if (tl_ptx_form_has(f, TL_MOD_inc))
        now = was >= x ? 0 : was + 1;
    else if (tl_ptx_form_has(f, TL_MOD_dec))
        now = was == 0 || was > x ? x : was - 1;
    else if (tl_ptx_form_has(f, TL_MOD_max))
        now = less ? x : was;
    else if (tl_ptx_form_has(f, TL_MOD_min))
        now = less ? was : x;
    else if (tl_ptx_form_has(f, TL_MOD_and))
        now = was & x;
    else if (tl_ptx_form_has(f, TL_MOD_or))
        now = was | x;
    else if (tl_ptx_form_has(f, TL_MOD_xor))
        now = was ^ x;
    else {
        ptx_fail(t, PTX_UNKNOWN, "atomic");
        return;
    }
    ptx_put(t, p, now, k.bits / 8);
    if (f->op == TL_OP_atom)
        ptx_give(t, &o[0], was);
}

/* --- flow ------------------------------------------------------------------------------------- */

static void enter(struct thread *t, const struct tl_ptx_stmt *s)
{
    struct ptx_machine *k = t->block->run->k;
    struct tl_ptx_call call;
    struct frame *from = ptx_top(t);
    const struct tl_ptx_program_func *callee = NULL;
    if (tl_ptx_inst_call(s, &call) && call.callee->sym->kind == TL_SYM_FUNC)
        callee = tl_ptx_program_callee(&k->program, call.callee->sym);
    const struct tl_ptx_cfg *cfg = NULL;
    for (uint32_t i = 0; callee != NULL && i < k->n_cfgs; i++)
        cfg = k->cfgs[i].func == callee->func ? &k->cfgs[i] : cfg;
    if (cfg == NULL || t->depth + 1 == MAX_CALLS) {
        ptx_fail(t, PTX_UNKNOWN, "call");
        return;
    }
    struct frame *to = &t->frames[t->depth + 1];
    *to = (struct frame){.cfg = cfg, .call = s};
    to->regs = calloc(cfg->func->n_regs + 1, sizeof(uint64_t));
    const struct tl_ptx_decl *d = cfg->func->params;
    for (uint32_t i = 0; call.args != NULL && i < call.args->n && d != NULL; i++, d = d->next) {
        const struct tl_ptx_operand *arg = &call.args->elems[i];
        struct slot *slot = slot_of(to, d);
        struct slot *given = arg->kind == TL_OPD_SYM && arg->sym->kind == TL_SYM_VAR
                                 ? slot_of(from, arg->sym->decl)
                                 : NULL;
        if (slot != NULL)
            slot->value = given != NULL ? given->value : ptx_value(t, arg);
    }
    t->depth++;
}

static void leave_function(struct thread *t)
{
    struct frame *from = ptx_top(t);
    struct tl_ptx_call call;
    if (t->depth == 0) {
        ptx_leave(t);
        return;
    }
    t->depth--;
    struct frame *to = ptx_top(t);
    const struct tl_ptx_decl *d = from->cfg->func->rets;
    for (uint32_t i = 0;
         tl_ptx_inst_call(from->call, &call) && call.rets != NULL && i < call.rets->n && d != NULL;
         i++, d = d->next) {
        struct slot *slot = slot_of(from, d);
        const struct tl_ptx_operand *ret = &call.rets->elems[i];
        if (ret->kind == TL_OPD_SYM && ret->sym->kind == TL_SYM_VAR) {
            struct slot *given = slot_of(to, ret->sym->decl);
            if (given != NULL && slot != NULL)
                given->value = slot->value;
        } else if (slot != NULL) {
            ptx_give(t, ret, slot->value);
        }
    }
    free(from->regs);
    from->regs = NULL;
}

static void jump(struct thread *t, const struct tl_ptx_operand *label)
{
    struct frame *f = ptx_top(t);
    uint32_t to = label->kind == TL_OPD_SYM ? f->cfg->label_inst[tl_ptx_sym_final(label->sym)->id]
                                            : TL_CFG_NONE;
    if (to == TL_CFG_NONE)
        ptx_fail(t, PTX_UNKNOWN, "label");
    else
        f->pc = to;
}

static void jump_by_table(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    uint64_t i = ptx_value(t, &o[0]);
    const struct tl_ptx_stmt *table = s->n_operands == 2 && o[1].kind == TL_OPD_SYM
                                          ? tl_ptx_sym_final(o[1].sym)->stmt
                                          : NULL;
    if (table == NULL || table->kind != TL_STMT_TABLE || i >= table->table.n_targets)
        ptx_fail(t, PTX_UNKNOWN, "table");
    else
        jump(t, &table->table.targets[i]);
}

/* One instruction whose guard holds; the program counter is behind it already. */
static void run_inst(struct thread *t, const struct tl_ptx_stmt *s)
{
    uint64_t v = 0;
    switch (s->inst.form->op) {
    case TL_OP_bra:
        jump(t, &s->inst.operands[0]);
        return;
    case TL_OP_brx:
        jump_by_table(t, s);
        return;
    case TL_OP_ret:
        leave_function(t);
        return;
    case TL_OP_exit:
        ptx_leave(t);
        return;
    case TL_OP_trap:
        ptx_fail(t, PTX_FAULT, "trap");
        return;
    case TL_OP_call:
        enter(t, s);
        return;
    case TL_OP_ld:
    case TL_OP_st:
        load_or_store(t, s);
        return;
    case TL_OP_atom:
    case TL_OP_red:
        update(t, s);
        return;
    case TL_OP_bar:
    case TL_OP_barrier:
        ptx_come_to_barrier(t, s);
        return;
    case TL_OP_shfl:
    case TL_OP_vote:
        ptx_come_to_warp(t, s);
        return;
    case TL_OP_tex:
    case TL_OP_suld:
    case TL_OP_sust:
        ptx_access_image(t, s);
        return;
    case TL_OP_cp:
        ptx_copy(t, s);
        return;
    case TL_OP_mbarrier:
        ptx_meet(t, s);
        return;
    case TL_OP_membar:
    case TL_OP_fence:
    case TL_OP_nanosleep:
        return;
    default:
        if (ptx_move_vector(t, s))
            return;
        if (ptx_compute(t, s, &v))
            ptx_give(t, &s->inst.operands[0], v);
        else
            ptx_fail(t, PTX_UNKNOWN, "instruction");
    }
}

void ptx_step(struct thread *t)
{
    struct frame *f = ptx_top(t);
    if (f->pc >= f->cfg->n_insts) {
        leave_function(t); /* it falls off its end */
        return;
    }
    const struct tl_ptx_stmt *s = f->cfg->insts[f->pc++];
    if (s->inst.guard != NULL && (f->regs[s->inst.guard->id] != 0) == (s->guard_not != 0))
        return;
    run_inst(t, s);
}
