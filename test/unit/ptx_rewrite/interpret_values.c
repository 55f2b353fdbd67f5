/* What operands hold, and what instructions compute of them.  See interpret.h. */
#include <stdio.h>

#include "test/unit/ptx_rewrite/interpret_internal.h"

/* --- types and values ------------------------------------------------------------------------- */

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

struct type ptx_type_of(const struct tl_ptx_form *f, uint32_t n)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        struct type t = type_of_mod(f->mods[i].id);
        if (t.bits != 0 && n-- == 0)
            return t;
    }
    return (struct type){0, false, false};
}

uint64_t ptx_cut(struct type t, uint64_t v)
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

uint64_t ptx_value(struct thread *t, const struct tl_ptx_operand *o)
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

void ptx_give(struct thread *t, const struct tl_ptx_operand *o, uint64_t v)
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
    a = ptx_cut(k, a);
    b = ptx_cut(k, b);
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
    wide product = k.is_signed ? (wide)(int64_t)ptx_cut(k, a) * (int64_t)ptx_cut(k, b)
                               : (wide)((unsigned __int128)ptx_cut(k, a) * ptx_cut(k, b));
    return (uint64_t)(tl_ptx_form_has(f, TL_MOD_hi) ? product >> k.bits : product);
}

/* What two operands give; false if it takes more to know.  As wide as the type. */
static bool compute_plain(enum tl_ptx_op op, struct type k, uint64_t a, uint64_t b, uint64_t *out)
{
    bool less = k.is_signed ? (int64_t)a < (int64_t)ptx_cut(k, b) : a < ptx_cut(k, b);
    uint32_t by = (uint32_t)b;
    switch (op) {
    case TL_OP_add:
        *out = a + b;
        return true;
    case TL_OP_sub:
        *out = a - b;
        return true;
    case TL_OP_min:
        *out = less ? a : b;
        return true;
    case TL_OP_max:
        *out = less ? b : a;
        return true;
    case TL_OP_and:
        *out = a & b;
        return true;
    case TL_OP_or:
        *out = a | b;
        return true;
    case TL_OP_xor:
        *out = a ^ b;
        return true;
    case TL_OP_not:
        *out = k.bits == 1 ? !a : ~a;
        return true;
    case TL_OP_neg:
        *out = -a;
        return true;
    case TL_OP_shl:
        *out = by >= k.bits ? 0 : a << by;
        return true;
    case TL_OP_shr:
        if (k.is_signed)
            *out = (uint64_t)((int64_t)a >> (by >= k.bits ? k.bits - 1 : by));
        else
            *out = by >= k.bits ? 0 : a >> by;
        return true;
    default:
        return false;
    }
}

static bool divide(enum tl_ptx_op op, struct type k, uint64_t a, uint64_t b, uint64_t *out)
{
    b = ptx_cut(k, b);
    if (b == 0 || (k.is_signed && (int64_t)b == -1))
        return false;
    if (op == TL_OP_div)
        *out = k.is_signed ? (uint64_t)((int64_t)a / (int64_t)b) : a / b;
    else
        *out = k.is_signed ? (uint64_t)((int64_t)a % (int64_t)b) : a % b;
    *out = ptx_cut((struct type){k.bits, false, false}, *out);
    return true;
}

bool ptx_compute(struct thread *t, const struct tl_ptx_stmt *s, uint64_t *out)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *o = s->inst.operands;
    struct type k = ptx_type_of(f, f->op == TL_OP_cvt ? 1 : 0);
    uint32_t n = s->n_operands;
    bool is_data = f->op == TL_OP_mov || f->op == TL_OP_selp;
    if (k.bits == 0 || (k.is_float && !is_data) || n < 2 || tl_ptx_form_has(f, TL_MOD_cc) ||
        o[1].kind == TL_OPD_VEC)
        return false;
    uint64_t a = ptx_cut(k, ptx_value(t, &o[1])), b = n > 2 ? ptx_value(t, &o[2]) : 0;
    switch (f->op) {
    case TL_OP_mov:
        *out = a;
        return true;
    case TL_OP_cvt:
        *out = ptx_cut(ptx_type_of(f, 0), a);
        return !ptx_type_of(f, 0).is_float && !tl_ptx_form_has(f, TL_MOD_sat);
    case TL_OP_cvta:
        *out = tl_ptx_form_has(f, TL_MOD_shared)
                   ? tl_ptx_form_has(f, TL_MOD_to) ? a - GENERIC_SHARED : a + GENERIC_SHARED
                   : a;
        return true;
    case TL_OP_mul:
        *out = multiply(f, k, a, b);
        return true;
    case TL_OP_mad:
        *out = multiply(f, k, a, b) + ptx_value(t, &o[3]);
        return true;
    case TL_OP_div:
    case TL_OP_rem:
        return divide(f->op, k, a, b, out);
    case TL_OP_selp:
        *out = ptx_cut((struct type){k.bits, false, false}, ptx_value(t, &o[3]) ? a : b);
        return true;
    case TL_OP_setp:
        *out = compare(f, k, a, b);
        if (n == 4) {
            bool other = ptx_value(t, &o[3]) != 0;
            *out = tl_ptx_form_has(f, TL_MOD_and)  ? *out && other
                   : tl_ptx_form_has(f, TL_MOD_or) ? *out || other
                                                   : (*out != 0) != other;
        }
        return o[0].kind != TL_OPD_PAIR;
    case TL_OP_popc:
        *out = (uint64_t)__builtin_popcountll(a);
        return true;
    default:
        if (!compute_plain(f->op, k, a, b, out))
            return false;
        *out = ptx_cut((struct type){k.bits, false, false}, *out);
        return true;
    }
}

bool ptx_move_vector(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    struct type k = ptx_type_of(s->inst.form, 0);
    bool splits = s->n_operands == 2 && o[0].kind == TL_OPD_VEC && o[1].kind != TL_OPD_VEC,
         joins = s->n_operands == 2 && o[1].kind == TL_OPD_VEC && o[0].kind != TL_OPD_VEC;
    if (s->inst.form->op != TL_OP_mov || (!splits && !joins))
        return false;
    uint32_t n = splits ? o[0].n : o[1].n, bits = n > 0 ? k.bits / n : 0;
    struct type part = {bits, false, false};
    uint64_t v = splits ? ptx_value(t, &o[1]) : 0;
    if (bits < 8)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (splits)
            ptx_give(t, &o[0].elems[i], ptx_cut(part, v >> (i * bits)));
        else
            v |= ptx_cut(part, ptx_value(t, &o[1].elems[i])) << (i * bits);
    }
    if (joins)
        ptx_give(t, &o[0], v);
    return true;
}
