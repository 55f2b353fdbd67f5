/* What single instructions do.  See interpret.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/ptx_rewrite/interpret_internal.h"

/* --- types and values ------------------------------------------------------------------------- */

struct type {
    uint32_t bits; /* 1 for predicates, 0 if it is none that is known here */
    bool is_signed, is_float;
};

static struct type type_of_mod(enum tl_ptx_mod id)
{
    switch (id) {
    case TL_MOD_pred:
        return (struct type){1, false, false};
    case TL_MOD_u8:
    case TL_MOD_b8:
        return (struct type){8, false, false};
    case TL_MOD_s8:
        return (struct type){8, true, false};
    case TL_MOD_u16:
    case TL_MOD_b16:
        return (struct type){16, false, false};
    case TL_MOD_s16:
        return (struct type){16, true, false};
    case TL_MOD_u32:
    case TL_MOD_b32:
        return (struct type){32, false, false};
    case TL_MOD_s32:
        return (struct type){32, true, false};
    case TL_MOD_u64:
    case TL_MOD_b64:
        return (struct type){64, false, false};
    case TL_MOD_s64:
        return (struct type){64, true, false};
    case TL_MOD_f32:
        return (struct type){32, false, true};
    case TL_MOD_f64:
        return (struct type){64, false, true};
    default:
        return (struct type){0, false, false};
    }
}

/* The n-th type of a form, from 0. */
static struct type type_of(const struct tl_ptx_form *f, uint32_t n)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        struct type t = type_of_mod(f->mods[i].id);
        if (t.bits != 0 && n-- == 0)
            return t;
    }
    return (struct type){0, false, false};
}

static uint64_t cut(struct type t, uint64_t v)
{
    if (t.bits == 1)
        return v != 0;
    uint64_t mask = t.bits >= 64 ? UINT64_MAX : (1ull << t.bits) - 1;
    v &= mask;
    return t.is_signed && t.bits < 64 && (v >> (t.bits - 1) & 1) ? v | ~mask : v;
}

static uint64_t special(struct thread *t, const struct tl_ptx_operand *o)
{
    const struct block *b = t->block;
    const struct ptx_run *run = b->run->run;
    uint32_t c = o->component == 'y' ? 1 : o->component == 'z' ? 2 : 0, lane = t->number % WARP;
    uint32_t tid[3] = {t->number % run->block[0], t->number / run->block[0] % run->block[1],
                       t->number / run->block[0] / run->block[1]};
    switch (o->sym->sreg) {
    case TL_SREG_tid:
        return tid[c];
    case TL_SREG_ntid:
        return run->block[c];
    case TL_SREG_ctaid:
        return b->ctaid[c];
    case TL_SREG_nctaid:
        return run->grid[c];
    case TL_SREG_laneid:
        return lane;
    case TL_SREG_warpid:
        return t->number / WARP;
    case TL_SREG_dynamic_smem_size:
        return run->dynamic_shared;
    case TL_SREG_total_smem_size:
        return b->run->k->shared_bytes + run->dynamic_shared;
    case TL_SREG_lanemask_lt:
        return (1ull << lane) - 1;
    default:
        ptx_fail(t, PTX_UNKNOWN, "special register");
        return 0;
    }
}

/* The address of a variable, in its space. */
static uint64_t address_of(struct thread *t, const struct tl_ptx_sym *sym)
{
    struct machine_run *r = t->block->run;
    const struct tl_ptx_decl *d = sym->decl;
    char name[128];
    if (sym->kind == TL_SYM_MODULE_VAR) {
        const struct tl_ptx_program_var *v = tl_ptx_program_find_var(&r->k->program, sym);
        d = v != NULL ? v->decl : NULL;
        if (v != NULL && !tl_ptx_var_is(v, "shared")) {
            snprintf(name, sizeof name, TL_STR_FMT, TL_STR_ARG(sym->name));
            return (uintptr_t)ptx_memory_find(r->memory, name);
        }
    }
    for (uint32_t i = 0; i < r->k->n_shared; i++) {
        if (r->k->shared[i].what == d)
            return r->k->shared[i].offset;
    }
    ptx_fail(t, PTX_UNKNOWN, "variable");
    return 0;
}

static uint64_t value_of(struct thread *t, const struct tl_ptx_operand *o)
{
    uint64_t v = 0;
    if (o->kind == TL_OPD_INT || o->kind == TL_OPD_F32 || o->kind == TL_OPD_F64)
        return o->bits;
    if (o->kind != TL_OPD_SYM) {
        ptx_fail(t, PTX_UNKNOWN, "operand");
        return 0;
    }
    switch (o->sym->kind) {
    case TL_SYM_REG:
        v = ptx_top(t)->regs[o->sym->id];
        break;
    case TL_SYM_SREG:
        v = special(t, o);
        break;
    case TL_SYM_VAR:
    case TL_SYM_MODULE_VAR:
        v = address_of(t, o->sym) + (uint64_t)(o->has_offset ? o->offset : 0);
        break;
    default:
        ptx_fail(t, PTX_UNKNOWN, "operand");
    }
    if (o->flags & TL_OPD_NOT)
        v = !v;
    return o->flags & TL_OPD_MINUS ? -v : v;
}

static void give(struct thread *t, const struct tl_ptx_operand *o, uint64_t v)
{
    if (o->kind == TL_OPD_PAIR && o->n > 0)
        o = &o->elems[0];
    if (o->kind == TL_OPD_SINK)
        return;
    if (o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG)
        ptx_top(t)->regs[o->sym->id] = v;
    else
        ptx_fail(t, PTX_UNKNOWN, "destination");
}

/* --- arithmetic ------------------------------------------------------------------------------- */

static bool compare(const struct tl_ptx_form *f, struct type k, uint64_t a, uint64_t b)
{
    a = cut(k, a);
    b = cut(k, b);
    bool less = k.is_signed ? (int64_t)a < (int64_t)b : a < b;
    if (tl_ptx_form_has(f, TL_MOD_eq))
        return a == b;
    if (tl_ptx_form_has(f, TL_MOD_ne))
        return a != b;
    if (tl_ptx_form_has(f, TL_MOD_lt))
        return less;
    if (tl_ptx_form_has(f, TL_MOD_le) || tl_ptx_form_has(f, TL_MOD_ls))
        return less || a == b;
    if (tl_ptx_form_has(f, TL_MOD_gt) || tl_ptx_form_has(f, TL_MOD_hi))
        return !less && a != b;
    return !less; /* ge, hs */
}

static uint64_t multiply(const struct tl_ptx_form *f, struct type k, uint64_t a, uint64_t b)
{
    __extension__ typedef __int128 wide;
    wide product = k.is_signed ? (wide)(int64_t)cut(k, a) * (int64_t)cut(k, b)
                               : (wide)((unsigned __int128)cut(k, a) * cut(k, b));
    return (uint64_t)(tl_ptx_form_has(f, TL_MOD_hi) ? product >> k.bits : product);
}

/* False if it is nothing that computes. */
static bool compute(struct thread *t, const struct tl_ptx_stmt *s, uint64_t *out)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *o = s->inst.operands;
    struct type k = type_of(f, f->op == TL_OP_cvt ? 1 : 0);
    uint32_t n = s->n_operands;
    bool is_data = f->op == TL_OP_mov || f->op == TL_OP_selp;
    if (k.bits == 0 || (k.is_float && !is_data) || n < 2 || tl_ptx_form_has(f, TL_MOD_cc) ||
        o[1].kind == TL_OPD_VEC)
        return false;
    uint64_t a = cut(k, value_of(t, &o[1])), b = n > 2 ? value_of(t, &o[2]) : 0;
    bool less = k.is_signed ? (int64_t)a < (int64_t)cut(k, b) : a < cut(k, b);
    switch (f->op) {
    case TL_OP_mov:
        *out = a;
        return true;
    case TL_OP_cvt:
        *out = cut(type_of(f, 0), a);
        return !type_of(f, 0).is_float && !tl_ptx_form_has(f, TL_MOD_sat);
    case TL_OP_cvta:
        *out = tl_ptx_form_has(f, TL_MOD_shared)
                   ? tl_ptx_form_has(f, TL_MOD_to) ? a - GENERIC_SHARED : a + GENERIC_SHARED
                   : a;
        return true;
    case TL_OP_add:
        *out = a + b;
        break;
    case TL_OP_sub:
        *out = a - b;
        break;
    case TL_OP_mul:
        *out = multiply(f, k, a, b);
        return true;
    case TL_OP_mad:
        *out = multiply(f, k, a, b) + value_of(t, &o[3]);
        return true;
    case TL_OP_div:
    case TL_OP_rem:
        if (cut(k, b) == 0 || (k.is_signed && (int64_t)cut(k, b) == -1))
            return false;
        *out = f->op == TL_OP_div
                   ? k.is_signed ? (uint64_t)((int64_t)a / (int64_t)cut(k, b)) : a / cut(k, b)
               : k.is_signed ? (uint64_t)((int64_t)a % (int64_t)cut(k, b))
                             : a % cut(k, b);
        break;
    case TL_OP_min:
        *out = less ? a : b;
        break;
    case TL_OP_max:
        *out = less ? b : a;
        break;
    case TL_OP_and:
        *out = a & b;
        break;
    case TL_OP_or:
        *out = a | b;
        break;
    case TL_OP_xor:
        *out = a ^ b;
        break;
    case TL_OP_not:
        *out = k.bits == 1 ? !a : ~a;
        break;
    case TL_OP_neg:
        *out = -a;
        break;
    case TL_OP_shl:
        b = (uint32_t)b;
        *out = b >= k.bits ? 0 : a << b;
        break;
    case TL_OP_shr:
        b = (uint32_t)b;
        if (k.is_signed)
            *out = (uint64_t)((int64_t)a >> (b >= k.bits ? k.bits - 1 : b));
        else
            *out = b >= k.bits ? 0 : a >> b;
        break;
    case TL_OP_selp:
        *out = value_of(t, &o[3]) ? a : b;
        break;
    case TL_OP_setp:
        *out = compare(f, k, a, b);
        if (n == 4) {
            bool other = value_of(t, &o[3]) != 0;
            *out = tl_ptx_form_has(f, TL_MOD_and)  ? *out && other
                   : tl_ptx_form_has(f, TL_MOD_or) ? *out || other
                                                   : (*out != 0) != other;
        }
        return o[0].kind != TL_OPD_PAIR;
    case TL_OP_popc:
        *out = (uint64_t)__builtin_popcountll(a);
        return true;
    default:
        return false;
    }
    *out = cut((struct type){k.bits, false, false}, *out);
    return true;
}

/* mov.b64 {a, b}, c and mov.b64 c, {a, b}: the first element has the lowest bits. */
static bool move_vector(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    struct type k = type_of(s->inst.form, 0);
    bool splits = s->n_operands == 2 && o[0].kind == TL_OPD_VEC && o[1].kind != TL_OPD_VEC,
         joins = s->n_operands == 2 && o[1].kind == TL_OPD_VEC && o[0].kind != TL_OPD_VEC;
    if (s->inst.form->op != TL_OP_mov || (!splits && !joins))
        return false;
    uint32_t n = splits ? o[0].n : o[1].n, bits = n > 0 ? k.bits / n : 0;
    struct type part = {bits, false, false};
    uint64_t v = splits ? value_of(t, &o[1]) : 0;
    if (bits < 8)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (splits)
            give(t, &o[0].elems[i], cut(part, v >> (i * bits)));
        else
            v |= cut(part, value_of(t, &o[1].elems[i])) << (i * bits);
    }
    if (joins)
        give(t, &o[0], v);
    return true;
}

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

/* The byte at an address of a space, if `bytes` of them are there; else the run has failed. */
static uint8_t *memory_at(struct thread *t, enum tl_ptx_mod space, uint64_t address, uint32_t bytes)
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

static const struct tl_ptx_operand *address_operand(const struct tl_ptx_stmt *s)
{
    for (uint32_t i = 0; i < s->n_operands; i++) {
        if (s->inst.operands[i].kind == TL_OPD_ADDR)
            return &s->inst.operands[i];
    }
    return NULL;
}

static uint64_t load(struct type k, const uint8_t *p)
{
    uint64_t v = 0;
    memcpy(&v, p, k.bits / 8);
    return cut(k, v);
}

static void put(struct thread *t, uint8_t *p, uint64_t v, uint32_t bytes)
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
            slot->value = value_of(t, &s->inst.operands[1]);
    } else if (slot != NULL) {
        give(t, &s->inst.operands[0], cut(k, slot->value));
    } else {
        memcpy(&v, t->block->run->run->params + offset + at, k.bits / 8);
        give(t, &s->inst.operands[0], cut(k, v));
    }
}

static void load_or_store(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    bool is_load = f->op == TL_OP_ld;
    struct type k = type_of(f, 0);
    enum tl_ptx_mod space = tl_ptx_form_space(f);
    const struct tl_ptx_operand *address = address_operand(s),
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
    uint64_t a = value_of(t, &address->elems[0]) +
                 (uint64_t)(address->has_offset ? address->offset : 0);
    for (uint32_t i = 0; i < n; i++) {
        const struct tl_ptx_operand *one = data->kind == TL_OPD_VEC ? &data->elems[i] : data;
        uint8_t *p = memory_at(t, space, a + (uint64_t)i * (k.bits / 8), k.bits / 8);
        if (p == NULL)
            return;
        uint64_t v = is_load ? load(k, p) : value_of(t, one);
        if (is_load)
            give(t, one, v);
        else
            put(t, p, v, k.bits / 8);
    }
}

static void update(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *address = address_operand(s), *o = s->inst.operands;
    uint32_t first = f->op == TL_OP_atom ? 2 : 1;
    struct type k = type_of(f, 0);
    if (k.bits < 32 || k.is_float || address == NULL || address->n != 1 || s->n_operands <= first) {
        ptx_fail(t, PTX_UNKNOWN, "atomic");
        return;
    }
    uint64_t a = value_of(t, &address->elems[0]) +
                 (uint64_t)(address->has_offset ? address->offset : 0);
    uint8_t *p = memory_at(t, tl_ptx_form_space(f), a, k.bits / 8);
    if (p == NULL)
        return;
    uint64_t was = load(k, p), x = cut(k, value_of(t, &o[first])), now;
    bool less = k.is_signed ? (int64_t)was < (int64_t)x : was < x;
    if (tl_ptx_form_has(f, TL_MOD_add))
        now = was + x;
    else if (tl_ptx_form_has(f, TL_MOD_exch))
        now = x;
    else if (tl_ptx_form_has(f, TL_MOD_cas))
        now = was == x ? value_of(t, &o[first + 1]) : was;
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
    put(t, p, now, k.bits / 8);
    if (f->op == TL_OP_atom)
        give(t, &o[0], was);
}

/* --- threads together ------------------------------------------------------------------------- */

static void come_to_barrier(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *o = s->inst.operands;
    bool is_red = tl_ptx_form_has(f, TL_MOD_red);
    uint32_t at = is_red ? 1 : 0, n = s->n_operands - at - is_red;
    uint64_t id = s->n_operands > at ? value_of(t, &o[at]) : BARRIERS;
    struct block *b = t->block;
    if (tl_ptx_form_has(f, TL_MOD_warp)) {
        t->status = IN_WARP;
        t->mask = (uint32_t)value_of(t, &o[0]);
        t->asked = s;
        ptx_settle_warp(t);
        return;
    }
    if (id >= BARRIERS || tl_ptx_form_has(f, TL_MOD_popc) || tl_ptx_form_has(f, TL_MOD_cluster)) {
        ptx_fail(t, PTX_UNKNOWN, "barrier");
        return;
    }
    if (b->barriers[id].arrived == 0) {
        b->barriers[id].all = true;
        b->barriers[id].any = false;
    }
    b->barriers[id].expected = n > 1 ? (uint32_t)value_of(t, &o[at + 1]) : 0;
    b->barriers[id].arrived++;
    if (is_red) {
        bool vote = value_of(t, &o[s->n_operands - 1]) != 0;
        b->barriers[id].all &= vote;
        b->barriers[id].any |= vote;
    }
    if (!tl_ptx_form_has(f, TL_MOD_arrive)) {
        t->status = AT_BARRIER;
        t->barrier = (uint32_t)id;
        t->asked = is_red ? s : NULL;
    }
    ptx_settle_barrier(b, (uint32_t)id);
}

void ptx_settle_barrier(struct block *b, uint32_t id)
{
    uint32_t expected = b->barriers[id].expected != 0 ? b->barriers[id].expected : b->n_live;
    if (b->barriers[id].arrived == 0 || b->barriers[id].arrived < expected)
        return;
    for (uint32_t i = 0; i < b->n_threads; i++) {
        struct thread *t = &b->threads[i];
        if (t->status != AT_BARRIER || t->barrier != id)
            continue;
        t->status = RUNS;
        if (t->asked != NULL)
            give(t, &t->asked->inst.operands[0],
                 tl_ptx_form_has(t->asked->inst.form, TL_MOD_and) ? b->barriers[id].all
                                                                  : b->barriers[id].any);
    }
    b->barriers[id].arrived = 0;
}

static void come_to_warp(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *mask = &s->inst.operands[s->n_operands - 1];
    if (!tl_ptx_form_has(s->inst.form, TL_MOD_sync)) {
        ptx_fail(t, PTX_UNKNOWN, "warp-wide operation without a mask");
        return;
    }
    t->mask = (uint32_t)value_of(t, mask);
    if (!(t->mask >> t->number % WARP & 1)) {
        ptx_fail(t, PTX_FAULT, "a lane that its own mask does not name");
        return;
    }
    t->status = IN_WARP;
    t->asked = s;
    ptx_settle_warp(t);
}

/* What one lane gets from a shuffle. */
static uint64_t shuffled(struct thread *t, const uint64_t values[WARP], uint32_t there)
{
    const struct tl_ptx_stmt *s = t->asked;
    const struct tl_ptx_form *f = s->inst.form;
    uint32_t lane = t->number % WARP, by = (uint32_t)value_of(t, &s->inst.operands[2]), from;
    uint32_t c = (uint32_t)value_of(t, &s->inst.operands[3]), clamp = c & 31, segment = c >> 8 & 31;
    uint32_t low = lane & segment, high = low | (clamp & ~segment & 31);
    if (tl_ptx_form_has(f, TL_MOD_up))
        from = lane >= by + high ? lane - by : lane;
    else if (tl_ptx_form_has(f, TL_MOD_down))
        from = lane + by <= high ? lane + by : lane;
    else if (tl_ptx_form_has(f, TL_MOD_bfly))
        from = (lane ^ by) <= high ? lane ^ by : lane;
    else
        from = (low | (by & ~segment & 31)) <= high ? low | (by & ~segment & 31) : lane;
    return values[there >> from & 1 ? from : lane];
}

void ptx_settle_warp(struct thread *t)
{
    struct block *b = t->block;
    uint32_t warp = t->number / WARP * WARP, live = 0, there = 0, ballot = 0;
    uint64_t values[WARP] = {0}, results[WARP] = {0};
    for (uint32_t i = 0; i < WARP && warp + i < b->n_threads; i++) {
        struct thread *o = &b->threads[warp + i];
        live |= o->status != GONE ? 1u << i : 0;
        if (o->status == IN_WARP && o->asked == t->asked && o->mask == t->mask)
            there |= 1u << i;
    }
    if ((live & t->mask & ~there) != 0)
        return;
    enum tl_ptx_op op = t->asked->inst.form->op;
    bool gives = op == TL_OP_shfl || op == TL_OP_vote;
    for (uint32_t i = 0; gives && i < WARP; i++) {
        if (there >> i & 1)
            values[i] = value_of(&b->threads[warp + i], &t->asked->inst.operands[1]);
        ballot |= values[i] != 0 ? 1u << i : 0;
    }
    for (uint32_t i = 0; i < WARP; i++) {
        const struct tl_ptx_form *f = t->asked->inst.form;
        if (!(there >> i & 1))
            continue;
        if (op == TL_OP_shfl)
            results[i] = shuffled(&b->threads[warp + i], values, there);
        else
            results[i] = tl_ptx_form_has(f, TL_MOD_ballot) ? ballot
                         : tl_ptx_form_has(f, TL_MOD_all)  ? ballot == there
                         : tl_ptx_form_has(f, TL_MOD_any)  ? ballot != 0
                                                           : ballot == 0 || ballot == there;
    }
    const struct tl_ptx_stmt *asked = t->asked;
    for (uint32_t i = 0; i < WARP; i++) {
        if (!(there >> i & 1))
            continue;
        b->threads[warp + i].status = RUNS;
        if (gives)
            give(&b->threads[warp + i], &asked->inst.operands[0], results[i]);
    }
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
            slot->value = given != NULL ? given->value : value_of(t, arg);
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
            give(t, ret, slot->value);
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
    uint64_t i = value_of(t, &o[0]);
    const struct tl_ptx_stmt *table = s->n_operands == 2 && o[1].kind == TL_OPD_SYM
                                          ? tl_ptx_sym_final(o[1].sym)->stmt
                                          : NULL;
    if (table == NULL || table->kind != TL_STMT_TABLE || i >= table->table.n_targets)
        ptx_fail(t, PTX_UNKNOWN, "table");
    else
        jump(t, &table->table.targets[i]);
}

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
        come_to_barrier(t, s);
        return;
    case TL_OP_shfl:
    case TL_OP_vote:
        come_to_warp(t, s);
        return;
    case TL_OP_membar:
    case TL_OP_fence:
    case TL_OP_nanosleep:
        return;
    default:
        if (move_vector(t, s))
            return;
        if (compute(t, s, &v))
            give(t, &s->inst.operands[0], v);
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
