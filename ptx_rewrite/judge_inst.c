/* What single instructions forbid: special registers, calls, barriers and whatever else a piece of
 * a grid cannot do. Everything that is not known to be harmless is refused. */
#include "ptx_rewrite/judge.h"

#include <string.h>

#include "ptx_rewrite/index.h"

uint32_t tl_ptx_isa_of(const struct tl_ptx_index *ix)
{
    uint32_t major = 0, minor = 0;
    struct tl_str v = ix->version;
    uint32_t i = 0;
    for (; i < v.n && v.p[i] >= '0' && v.p[i] <= '9' && major < 1000; i++)
        major = major * 10 + (uint32_t)(v.p[i] - '0');
    if (i + 1 < v.n && v.p[i] == '.')
        minor = (uint32_t)(v.p[i + 1] - '0');
    return major * 10 + minor;
}

uint32_t tl_ptx_sm_of(const struct tl_ptx_index *ix)
{
    uint32_t sm = 0;
    struct tl_str t = ix->target;
    if (!tl_str_starts(t, "sm_"))
        return 0;
    for (uint32_t i = 3; i < t.n && t.p[i] >= '0' && t.p[i] <= '9' && sm < 10000; i++)
        sm = sm * 10 + (uint32_t)(t.p[i] - '0');
    return sm;
}

struct tl_ptx_barrier tl_ptx_barrier_of(const struct tl_ptx_stmt *s)
{
    struct tl_ptx_barrier b = {TL_BARRIER_NONE, false, 0, false};
    const struct tl_ptx_form *f = s->inst.form;
    if ((f->op != TL_OP_bar && f->op != TL_OP_barrier) || tl_ptx_form_has(f, TL_MOD_warp) ||
        tl_ptx_form_has(f, TL_MOD_cluster))
        return b;
    bool is_red = tl_ptx_form_has(f, TL_MOD_red);
    b.kind = is_red                              ? TL_BARRIER_RED
             : tl_ptx_form_has(f, TL_MOD_arrive) ? TL_BARRIER_ARRIVE
                                                 : TL_BARRIER_SYNC;
    uint32_t id = is_red ? 1 : 0, with_count = is_red ? 4 : 2;
    if (s->n_operands <= id)
        return b;
    b.has_id = s->inst.operands[id].kind == TL_OPD_INT;
    b.id = b.has_id ? s->inst.operands[id].bits : 0;
    b.has_count = s->n_operands >= with_count;
    return b;
}

bool tl_ptx_is_warp_sync(const struct tl_ptx_stmt *s, bool *all_lanes)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *mask = s->n_operands > 0 ? &s->inst.operands[s->n_operands - 1]
                                                          : NULL;
    *all_lanes = true;
    switch (f->op) {
    case TL_OP_shfl:
    case TL_OP_vote:
    case TL_OP_match:
    case TL_OP_redux:
    case TL_OP_elect:
        if (!tl_ptx_form_has(f, TL_MOD_sync))
            return false; /* the old forms ask only the lanes that are there */
        break;
    case TL_OP_bar:
    case TL_OP_barrier:
        if (!tl_ptx_form_has(f, TL_MOD_warp))
            return false;
        break;
    case TL_OP_mma:
    case TL_OP_wmma:
    case TL_OP_ldmatrix:
    case TL_OP_stmatrix:
    case TL_OP_movmatrix:
    case TL_OP_setmaxnreg:
        return true;
    default:
        return false;
    }
    if (mask != NULL && mask->kind == TL_OPD_INT)
        *all_lanes = (uint32_t)mask->bits == UINT32_MAX;
    else
        *all_lanes = false;
    return true;
}

/* Special registers that would tell a block that it was cut, moved or run again. */
static void judge_sreg(struct tl_ptx_judgement *j, const struct tl_ptx_stmt *s,
                       const struct tl_ptx_operand *o)
{
    switch (o->sym->sreg) {
    case TL_SREG_envreg:
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_GRID_SYNC, s);
        break;
    case TL_SREG_gridid:
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_GRID_ID, s);
        break;
    case TL_SREG_smid:
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_SM_ID, s);
        break;
    case TL_SREG_clusterid:
    case TL_SREG_nclusterid:
    case TL_SREG_cluster_ctaid:
    case TL_SREG_cluster_ctarank:
    case TL_SREG_cluster_nctaid:
    case TL_SREG_cluster_nctarank:
    case TL_SREG_is_explicit_cluster:
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_CLUSTER, s);
        break;
    case TL_SREG_current_graph_exec:
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_DEVICE_LAUNCH, s);
        break;
    case TL_SREG_dynamic_smem_size:
    case TL_SREG_total_smem_size:
    case TL_SREG_aggr_smem_size:
        tl_ptx_refuse_inst(j,
                           TL_JUDGE_TICKET | TL_JUDGE_PERSISTENT |
                               (j->f->funcs_read_grid ? TL_JUDGE_SLICE : 0u),
                           TL_PTX_REASON_SHARED_SIZE, s);
        break;
    case TL_SREG_ctaid:
    case TL_SREG_nctaid:
        if (o->component != 'x' && o->component != 'y' && o->component != 'z')
            tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_UNKNOWN_INSTRUCTION, s);
        break;
    default:
        break;
    }
}

/* Functions that every CUDA driver brings along. */
static bool is_system_call(struct tl_str name)
{
    static const char *const names[] = {"vprintf", "malloc", "free", "__assertfail",
                                        "__assert_fail"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (tl_str_is(name, names[i]))
            return true;
    }
    return false;
}

static bool is_device_launch(struct tl_str name)
{
    return tl_str_starts(name, "cudaLaunchDevice") ||
           tl_str_starts(name, "cudaGetParameterBuffer") ||
           tl_str_starts(name, "cudaCGGetIntrinsicHandle") ||
           tl_str_starts(name, "cudaGraphLaunch") || tl_str_starts(name, "__cudaCDP") ||
           tl_str_starts(name, "cnp") || tl_str_starts(name, "__cuda_syscall_cnp");
}

static void judge_func_name(struct tl_ptx_judgement *j, const struct tl_ptx_stmt *s,
                            const struct tl_ptx_sym *sym)
{
    if (tl_ptx_program_callee(j->p, sym) != NULL || is_system_call(sym->name))
        return;
    tl_ptx_refuse_inst(
        j, TL_JUDGE_ALL,
        is_device_launch(sym->name) ? TL_PTX_REASON_DEVICE_LAUNCH : TL_PTX_REASON_UNLINKED, s);
}

struct sym_visit {
    struct tl_ptx_judgement *j;
    const struct tl_ptx_stmt *inst;
    const struct tl_ptx_operand *callee;
};

/* A name that an instruction uses; called for each of them. */
static int judge_sym(void *data, struct tl_ptx_operand *o)
{
    struct sym_visit *v = data;
    const struct tl_ptx_sym *sym = tl_ptx_sym_final(o->sym);
    switch (sym->kind) {
    case TL_SYM_SREG:
        judge_sreg(v->j, v->inst, o);
        break;
    case TL_SYM_UNKNOWN:
        tl_ptx_refuse_inst(v->j, TL_JUDGE_ALL, TL_PTX_REASON_UNRESOLVED_NAME, v->inst);
        break;
    case TL_SYM_FUNC:
        if (o == v->callee)
            judge_func_name(v->j, v->inst, sym);
        else /* its address is taken: it will be called through a pointer, here or elsewhere */
            tl_ptx_refuse_inst(v->j, TL_JUDGE_ALL, TL_PTX_REASON_INDIRECT_CALL, v->inst);
        break;
    case TL_SYM_VAR:
        /* declared inside a function, it is the module's all the same, but cannot be asked for by
         * name */
        if (tl_str_is(sym->decl->space, "global") || tl_str_is(sym->decl->space, "const"))
            tl_ptx_refuse_inst(v->j, TL_JUDGE_ALL, TL_PTX_REASON_HIDDEN_VARIABLE, v->inst);
        break;
    case TL_SYM_MODULE_VAR: {
        const struct tl_ptx_decl *d = tl_ptx_program_find_var(v->j->p, sym)->decl;
        if (tl_str_is(d->type, "texref") || tl_str_is(d->type, "samplerref") ||
            tl_str_is(d->type, "surfref") || tl_str_is(d->space, "tex"))
            tl_ptx_refuse_inst(v->j, TL_JUDGE_ALL, TL_PTX_REASON_TEXTURE_REFERENCE, v->inst);
        break;
    }
    default:
        break;
    }
    return 0;
}

static void judge_call(struct tl_ptx_judgement *j, const struct tl_ptx_stmt *s,
                       const struct tl_ptx_operand **callee)
{
    struct tl_ptx_call call;
    if (!tl_ptx_inst_call(s, &call) || call.callee->sym->kind != TL_SYM_FUNC)
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_INDIRECT_CALL, s);
    else
        *callee = call.callee;
}

/* Whether the instruction is about the constant bank of the module that runs, as it would not be in
 * a variant: it asks what lies in it, or it reads or converts an address there that came in with
 * the parameters or out of memory, for the program names no variable of that bank. */
static bool needs_own_bank(const struct tl_ptx_judgement *j, const struct tl_ptx_form *f)
{
    return tl_ptx_form_has(f, TL_MOD_const) && (f->op == TL_OP_isspacep || !j->f->uses_const);
}

static bool is_bulk(const struct tl_ptx_form *f)
{
    return tl_ptx_form_has_text(f, "bulk");
}

/* Instructions that matter by themselves, apart from what they name. */
static void judge_op(struct tl_ptx_judgement *j, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (tl_ptx_form_has_text(f, "multicast::cluster") || tl_ptx_form_has(f, TL_MOD_query_cancel))
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_CLUSTER, s);
    if (s->inst.raw.n >
        0) /* operands of no known grammar: nobody can tell what it reads and writes */
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_UNKNOWN_INSTRUCTION, s);
    switch (f->op) {
    case TL_OP_unknown:
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_UNKNOWN_INSTRUCTION, s);
        break;
    case TL_OP_mapa:
    case TL_OP_getctarank:
    case TL_OP_clusterlaunchcontrol:
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_CLUSTER, s);
        break;
    case TL_OP_barrier:
        if (tl_ptx_form_has(f, TL_MOD_cluster))
            tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_CLUSTER, s);
        break;
    case TL_OP_ld:
    case TL_OP_st:
    case TL_OP_atom:
    case TL_OP_red:
        if (tl_ptx_form_has_text(f, "shared::cluster") || tl_ptx_form_has(f, TL_MOD_async))
            tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_CLUSTER, s);
        break;
    case TL_OP_multimem:
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_MULTI_DEVICE, s);
        break;
    case TL_OP_cp:
        if (is_bulk(f))
            tl_ptx_refuse_inst(j, TL_JUDGE_PERSISTENT, TL_PTX_REASON_BLOCK_STATE, s);
        else
            j->f->uses_cp_async = true;
        break;
    case TL_OP_mbarrier:
    case TL_OP_wgmma:
    case TL_OP_tcgen05:
    case TL_OP_setmaxnreg:
    case TL_OP_alloca:
        tl_ptx_refuse_inst(j, TL_JUDGE_PERSISTENT, TL_PTX_REASON_BLOCK_STATE, s);
        break;
    case TL_OP_exit:
        if (j->func != j->p->entry)
            tl_ptx_refuse_inst(j, TL_JUDGE_PERSISTENT, TL_PTX_REASON_EXIT_IN_FUNC, s);
        break;
    default:
        break;
    }
}

int tl_ptx_judge_inst(void *data, struct tl_ptx_stmt *s)
{
    struct tl_ptx_judgement *j = data;
    struct sym_visit v = {.j = j, .inst = s};
    judge_op(j, s);
    if (s->inst.form->op == TL_OP_call)
        judge_call(j, s, &v.callee);
    tl_ptx_each_sym(s->inst.operands, s->n_operands, judge_sym, &v);
    /* behind the names: that a variable is hidden is the better reason */
    if (needs_own_bank(j, s->inst.form))
        tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_CONST_SPACE, s);
    return 0;
}
