/* May this kernel run in pieces?  Per variant yes, or the reason with its place.
 *
 * Everything that is not known to be harmless is refused: a wrong "yes" makes a job compute nonsense or hang, a wrong "no"
 * only makes it less preemptible. */
#include "ptx_rewrite/verdict.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/diverge.h"
#include "ptx_rewrite/index.h"
#include "ptx_rewrite/lex.h"
#include "ptx_rewrite/waits.h"

/* Beyond this the analyses, which are quadratic at worst, could take longer than anybody wants to wait.  The largest
 * kernel seen in NVIDIA's libraries has 30,517 instructions in 2,815 blocks. */
enum { MAX_BLOCKS = 20000, MAX_INSTS = 300000 };

struct judge {
    struct tl_ptx_findings *f;
    struct tl_ptx_program *p;
    const struct tl_ptx_program_func *func; /* being looked at */
    bool has_exit_barriers;                 /* scratch */
};

/* What a function does, summed up for its callers. */
struct summary {
    struct summary *next;
    const struct tl_ptx_program_func *func;
    bool polls, has_barrier, has_warp_sync;
    bool is_called, calls, in_circle; /* scratch for finding circles of calls */
};

enum which { SLICE = 1 << TL_PTX_SLICE, TICKET = 1 << TL_PTX_TICKET, PERSISTENT = 1 << TL_PTX_PERSISTENT, ALL = 7 };

/* --- refusing ---------------------------------------------------------------------------------------------------- */

/* The first reason found stays. */
static void refuse(struct judge *j, unsigned which, enum tl_ptx_reason reason, uint32_t at, struct tl_str note)
{
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        struct tl_ptx_verdict *d = &j->f->verdicts[v];
        if (!(which & (1u << v)) || d->reason != TL_PTX_REASON_OK)
            continue;
        d->reason = reason;
        d->offset = at;
        snprintf(d->note, sizeof d->note, "%.*s", (int)(note.n < sizeof d->note ? note.n : sizeof d->note - 1), note.p);
    }
}

static void refuse_inst(struct judge *j, unsigned which, enum tl_ptx_reason reason, const struct tl_ptx_stmt *s)
{
    struct tl_str text = {j->p->unit.ix->text + s->at, s->end - s->at};
    refuse(j, which, reason, s->at, text);
}

/* --- single instructions ----------------------------------------------------------------------------------------- */

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
    b.kind = is_red ? TL_BARRIER_RED : tl_ptx_form_has(f, TL_MOD_arrive) ? TL_BARRIER_ARRIVE : TL_BARRIER_SYNC;
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
    const struct tl_ptx_operand *mask = s->n_operands > 0 ? &s->inst.operands[s->n_operands - 1] : NULL;
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

static void judge_sreg(struct judge *j, const struct tl_ptx_stmt *s, const struct tl_ptx_operand *o)
{
    switch (o->sym->sreg) {
    case TL_SREG_envreg:
        refuse_inst(j, ALL, TL_PTX_REASON_GRID_SYNC, s);
        break;
    case TL_SREG_gridid:
        refuse_inst(j, ALL, TL_PTX_REASON_GRID_ID, s);
        break;
    case TL_SREG_smid:
        refuse_inst(j, ALL, TL_PTX_REASON_SM_ID, s);
        break;
    case TL_SREG_clusterid:
    case TL_SREG_nclusterid:
    case TL_SREG_cluster_ctaid:
    case TL_SREG_cluster_ctarank:
    case TL_SREG_cluster_nctaid:
    case TL_SREG_cluster_nctarank:
    case TL_SREG_is_explicit_cluster:
        refuse_inst(j, ALL, TL_PTX_REASON_CLUSTER, s);
        break;
    case TL_SREG_current_graph_exec:
        refuse_inst(j, ALL, TL_PTX_REASON_DEVICE_LAUNCH, s);
        break;
    case TL_SREG_dynamic_smem_size:
    case TL_SREG_total_smem_size:
    case TL_SREG_aggr_smem_size:
        refuse_inst(j, TICKET | PERSISTENT | (j->f->funcs_read_grid ? SLICE : 0u), TL_PTX_REASON_SHARED_SIZE, s);
        break;
    case TL_SREG_ctaid:
    case TL_SREG_nctaid:
        if (o->component != 'x' && o->component != 'y' && o->component != 'z')
            refuse_inst(j, ALL, TL_PTX_REASON_UNKNOWN_INSTRUCTION, s);
        break;
    default:
        break;
    }
}

/* Functions that every CUDA driver brings along. */
static bool is_system_call(struct tl_str name)
{
    static const char *const names[] = {"vprintf", "malloc", "free", "__assertfail", "__assert_fail"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (tl_str_is(name, names[i]))
            return true;
    }
    return false;
}

static bool is_device_launch(struct tl_str name)
{
    return tl_str_starts(name, "cudaLaunchDevice") || tl_str_starts(name, "cudaGetParameterBuffer") ||
           tl_str_starts(name, "cudaCGGetIntrinsicHandle") || tl_str_starts(name, "cudaGraphLaunch") ||
           tl_str_starts(name, "__cudaCDP") || tl_str_starts(name, "cnp");
}

static void judge_func_name(struct judge *j, const struct tl_ptx_stmt *s, const struct tl_ptx_sym *sym)
{
    if (tl_ptx_program_callee(j->p, sym) != NULL || is_system_call(sym->name))
        return;
    refuse_inst(j, ALL, is_device_launch(sym->name) ? TL_PTX_REASON_DEVICE_LAUNCH : TL_PTX_REASON_UNLINKED, s);
}

struct sym_visit {
    struct judge *j;
    const struct tl_ptx_stmt *inst;
    const struct tl_ptx_operand *callee;
};

static int judge_sym(void *data, struct tl_ptx_operand *o)
{
    struct sym_visit *v = data;
    const struct tl_ptx_sym *sym = tl_ptx_sym_final(o->sym);
    switch (sym->kind) {
    case TL_SYM_SREG:
        judge_sreg(v->j, v->inst, o);
        break;
    case TL_SYM_UNKNOWN:
        refuse_inst(v->j, ALL, TL_PTX_REASON_UNRESOLVED_NAME, v->inst);
        break;
    case TL_SYM_FUNC:
        if (o == v->callee)
            judge_func_name(v->j, v->inst, sym);
        else /* its address is taken: it will be called through a pointer, here or elsewhere */
            refuse_inst(v->j, ALL, TL_PTX_REASON_INDIRECT_CALL, v->inst);
        break;
    case TL_SYM_VAR: /* declared inside a function, it is the module's all the same, but cannot be asked for by name */
        if (tl_str_is(sym->decl->space, "global") || tl_str_is(sym->decl->space, "const"))
            refuse_inst(v->j, ALL, TL_PTX_REASON_UNRESOLVED_NAME, v->inst);
        break;
    case TL_SYM_MODULE_VAR: {
        const struct tl_ptx_decl *d = tl_ptx_program_find_var(v->j->p, sym)->decl;
        if (tl_str_is(d->type, "texref") || tl_str_is(d->type, "samplerref") || tl_str_is(d->type, "surfref") ||
            tl_str_is(d->space, "tex"))
            refuse_inst(v->j, ALL, TL_PTX_REASON_TEXTURE_REFERENCE, v->inst);
        break;
    }
    default:
        break;
    }
    return 0;
}

static void judge_call(struct judge *j, const struct tl_ptx_stmt *s, const struct tl_ptx_operand **callee)
{
    struct tl_ptx_call call;
    if (!tl_ptx_inst_call(s, &call) || call.callee->sym->kind != TL_SYM_FUNC)
        refuse_inst(j, ALL, TL_PTX_REASON_INDIRECT_CALL, s);
    else
        *callee = call.callee;
}

static bool is_bulk(const struct tl_ptx_form *f)
{
    return tl_ptx_form_has_text(f, "bulk");
}

/* Instructions that matter by themselves, apart from what they name. */
static void judge_op(struct judge *j, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (tl_ptx_form_has_text(f, "multicast::cluster") || tl_ptx_form_has(f, TL_MOD_query_cancel))
        refuse_inst(j, ALL, TL_PTX_REASON_CLUSTER, s);
    if (s->inst.raw.n > 0) /* operands of no known grammar: nobody can tell what it reads and writes */
        refuse_inst(j, ALL, TL_PTX_REASON_UNKNOWN_INSTRUCTION, s);
    switch (f->op) {
    case TL_OP_unknown:
        refuse_inst(j, ALL, TL_PTX_REASON_UNKNOWN_INSTRUCTION, s);
        break;
    case TL_OP_mapa:
    case TL_OP_getctarank:
    case TL_OP_clusterlaunchcontrol:
        refuse_inst(j, ALL, TL_PTX_REASON_CLUSTER, s);
        break;
    case TL_OP_barrier:
        if (tl_ptx_form_has(f, TL_MOD_cluster))
            refuse_inst(j, ALL, TL_PTX_REASON_CLUSTER, s);
        break;
    case TL_OP_ld:
    case TL_OP_st:
    case TL_OP_atom:
    case TL_OP_red:
        if (tl_ptx_form_has_text(f, "shared::cluster") || tl_ptx_form_has(f, TL_MOD_async))
            refuse_inst(j, ALL, TL_PTX_REASON_CLUSTER, s);
        break;
    case TL_OP_multimem:
        refuse_inst(j, ALL, TL_PTX_REASON_MULTI_DEVICE, s);
        break;
    case TL_OP_cp:
        if (is_bulk(f))
            refuse_inst(j, PERSISTENT, TL_PTX_REASON_BLOCK_STATE, s);
        else
            j->f->uses_cp_async = true;
        break;
    case TL_OP_mbarrier:
    case TL_OP_wgmma:
    case TL_OP_tcgen05:
    case TL_OP_setmaxnreg:
    case TL_OP_alloca:
        refuse_inst(j, PERSISTENT, TL_PTX_REASON_BLOCK_STATE, s);
        break;
    case TL_OP_exit:
        if (j->func != j->p->entry)
            refuse_inst(j, PERSISTENT, TL_PTX_REASON_EXIT_IN_FUNC, s);
        break;
    case TL_OP_isspacep:
        if (tl_ptx_form_has(f, TL_MOD_const) && j->f->uses_const)
            refuse_inst(j, ALL, TL_PTX_REASON_CONST_SPACE, s);
        break;
    default:
        break;
    }
}

static int judge_inst(void *data, struct tl_ptx_stmt *s)
{
    struct judge *j = data;
    struct sym_visit v = {.j = j, .inst = s};
    judge_op(j, s);
    if (s->inst.form->op == TL_OP_call)
        judge_call(j, s, &v.callee);
    return tl_ptx_each_sym(s->inst.operands, s->n_operands, judge_sym, &v);
}

static int note_grid_read(void *data, struct tl_ptx_operand *o)
{
    if (o->sym->sreg == TL_SREG_ctaid || o->sym->sreg == TL_SREG_nctaid)
        *(bool *)data = true;
    return 0;
}

static int note_grid_inst(void *data, struct tl_ptx_stmt *s)
{
    return tl_ptx_each_sym(s->inst.operands, s->n_operands, note_grid_read, data);
}

/* --- the entry's header ------------------------------------------------------------------------------------------ */

static void judge_header(struct judge *j)
{
    const struct tl_ptx_index *ix = j->p->unit.ix;
    const struct tl_ptx_func *f = j->p->entry->func;
    uint32_t at = f->item->begin;
    static const char *const cluster[] = {".reqnctapercluster", ".explicitcluster", ".maxclusterrank",
                                          ".blocksareclusters"};
    if (ix->address_size != 64)
        refuse(j, ALL, TL_PTX_REASON_ADDRESS_SIZE, at, (struct tl_str){0});
    for (size_t i = 0; i < sizeof cluster / sizeof cluster[0]; i++) {
        if (f->directives.n > 0 && memmem(f->directives.p, f->directives.n, cluster[i], strlen(cluster[i])) != NULL)
            refuse(j, ALL, TL_PTX_REASON_CLUSTER, at, tl_str_of(cluster[i]));
    }
    for (const struct tl_ptx_decl *d = f->params; d != NULL; d = d->next) {
        if (tl_str_is(d->type, "texref") || tl_str_is(d->type, "samplerref") || tl_str_is(d->type, "surfref"))
            refuse(j, ALL, TL_PTX_REASON_TEXTURE_REFERENCE, d->at, d->name);
        if (j->f->uses_const && tl_str_is(d->ptr_space, "const"))
            refuse(j, ALL, TL_PTX_REASON_CONST_SPACE, d->at, d->name);
    }
}

bool tl_ptx_params_layout(const struct tl_ptx_decl *params, uint32_t *bytes, uint32_t *count)
{
    uint64_t offset = 0;
    uint32_t n = 0;
    for (const struct tl_ptx_decl *d = params; d != NULL; d = d->next, n++) {
        uint64_t element = (uint64_t)tl_ptx_type_bytes(d->type) * d->vec;
        uint64_t align = d->align > element ? d->align : element;
        if (d->align != 0)
            align = d->align;
        if (element == 0 || align == 0 || (align & (align - 1)) != 0 || d->count > 1u << 20)
            return false;
        offset = (offset + align - 1) / align * align + element * d->count;
        if (offset > 1u << 20)
            return false;
    }
    *bytes = (uint32_t)offset;
    *count = n;
    return true;
}

uint32_t tl_ptx_params_limit(const struct tl_ptx_index *ix)
{
    return tl_ptx_isa_of(ix) >= 81 && tl_ptx_sm_of(ix) >= 70 ? 32764 : 4096;
}

/* The most that a variant appends: addresses of the stop words and the counter, up to ten 32-bit numbers, variables. */
static void judge_params(struct judge *j)
{
    const struct tl_ptx_func *f = j->p->entry->func;
    uint32_t bytes = 0, count = 0, n_vars = 0;
    for (const struct tl_ptx_program_var *v = j->p->vars; v != NULL; v = v->next)
        n_vars += v->in_entry && (tl_ptx_var_is(v, "global") || tl_ptx_var_is(v, "const"));
    bool is_known = tl_ptx_params_layout(f->params, &bytes, &count);
    uint32_t limit = tl_ptx_params_limit(j->p->unit.ix), base = (bytes + 7) / 8 * 8 + n_vars * 8;
    char note[80];
    snprintf(note, sizeof note, "%u bytes of parameters, %u variables, limit %u", bytes, n_vars, limit);
    if (!is_known || base + 10 * 4 > limit)
        refuse(j, SLICE, TL_PTX_REASON_PARAM_SPACE, f->item->begin, tl_str_of(note));
    if (!is_known || base + 5 * 8 + 10 * 4 > limit)
        refuse(j, TICKET | PERSISTENT, TL_PTX_REASON_PARAM_SPACE, f->item->begin, tl_str_of(note));
}

/* The item of a variable in the constant space? */
static bool is_const_item(const struct tl_ptx_index *ix, const struct tl_ptx_item *item)
{
    struct tl_lex lx;
    tl_lex_init(&lx, ix->text, item->begin, item->end);
    while (lx.kind == TL_TOK_DOTWORD && !tl_lex_is_dotword(&lx, "const"))
        tl_lex_next(&lx);
    return tl_lex_is_dotword(&lx, "const");
}

/* Whether an initialiser holds the address of a constant variable, directly or through other variables that it names. */
static bool holds_const_address(const struct tl_ptx_index *ix, const struct tl_ptx_item *item, uint32_t depth)
{
    struct tl_lex lx;
    for (tl_lex_init(&lx, ix->text, item->begin, item->end); lx.kind != TL_TOK_END; tl_lex_next(&lx)) {
        const struct tl_ptx_item *named = lx.kind == TL_TOK_WORD ? tl_ptx_index_find(ix, tl_lex_str(&lx)) : NULL;
        if (named == NULL || named->kind != TL_PTX_ITEM_VARIABLE || named->begin == item->begin)
            continue;
        if (depth == 0 || is_const_item(ix, named) || holds_const_address(ix, named, depth - 1))
            return true;
    }
    return false;
}

/* An address in the constant space means the constant bank of the module that runs.  Where instructions name a constant
 * variable we see to that; where memory holds its address we cannot. */
static void judge_vars(struct judge *j)
{
    for (const struct tl_ptx_program_var *v = j->p->vars; v != NULL; v = v->next) {
        if (v->decl->init.n > 0 && holds_const_address(j->p->unit.ix, v->sym->item, 4))
            refuse(j, ALL, TL_PTX_REASON_CONST_SPACE, v->decl->at, v->decl->name);
    }
}

/* --- functions as wholes ----------------------------------------------------------------------------------------- */

struct sum_visit {
    struct judge *j;
    struct summary *all, *one;
};

static struct summary *find_summary(struct summary *all, const struct tl_ptx_program_func *f)
{
    while (all != NULL && all->func != f)
        all = all->next;
    return all;
}

static struct summary *callee_summary(struct judge *j, struct summary *all, const struct tl_ptx_stmt *s)
{
    struct tl_ptx_call call;
    if (s->inst.form->op != TL_OP_call || !tl_ptx_inst_call(s, &call))
        return NULL;
    return find_summary(all, tl_ptx_program_callee(j->p, call.callee->sym));
}

static int sum_inst(void *data, struct tl_ptx_stmt *s)
{
    struct sum_visit *v = data;
    bool all_lanes;
    v->one->polls |= tl_ptx_polls(s);
    v->one->has_barrier |= tl_ptx_barrier_of(s).kind != TL_BARRIER_NONE;
    v->one->has_warp_sync |= tl_ptx_is_warp_sync(s, &all_lanes) || tl_ptx_barrier_of(s).has_count;
    const struct summary *callee = callee_summary(v->j, v->all, s);
    if (callee != NULL) {
        v->one->polls |= callee->polls;
        v->one->has_barrier |= callee->has_barrier;
        v->one->has_warp_sync |= callee->has_warp_sync;
    }
    return 0;
}

/* Sums up all functions, callees into callers, until nothing changes (circles of calls included). */
static int sum_up(struct judge *j, struct summary **out)
{
    struct summary *all = NULL;
    for (struct tl_ptx_program_func *f = j->p->funcs; f != NULL; f = f->next) {
        struct summary *s = tl_arena_zalloc(j->p->arena, sizeof *s);
        if (s == NULL)
            return -ENOMEM;
        s->func = f;
        s->next = all;
        all = s;
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (struct summary *s = all; s != NULL; s = s->next) {
            struct summary before = *s;
            tl_ptx_each_inst(s->func->func->body, sum_inst, &(struct sum_visit){j, all, s});
            changed |= before.polls != s->polls || before.has_barrier != s->has_barrier ||
                       before.has_warp_sync != s->has_warp_sync;
        }
    }
    *out = all;
    return 0;
}

static int note_circle_call(void *data, struct tl_ptx_stmt *s)
{
    struct sum_visit *v = data;
    struct summary *callee = callee_summary(v->j, v->all, s);
    if (callee != NULL && callee->in_circle) {
        callee->is_called = true;
        v->one->calls = true;
    }
    return 0;
}

/* Functions that call each other in a circle repeat what they do, as a loop does; if they poll, they may wait.  Leaves off
 * what nobody calls and what calls nobody until nothing changes: what stays lies in a circle or between two. */
static void judge_circles(struct judge *j, struct summary *all)
{
    bool any_polls = false;
    for (struct summary *s = all; s != NULL; s = s->next) {
        s->in_circle = true;
        any_polls |= s->polls;
    }
    for (bool changed = any_polls; changed;) {
        changed = false;
        for (struct summary *s = all; s != NULL; s = s->next)
            s->is_called = s->calls = false;
        for (struct summary *s = all; s != NULL; s = s->next) {
            if (s->in_circle)
                tl_ptx_each_inst(s->func->func->body, note_circle_call, &(struct sum_visit){j, all, s});
        }
        for (struct summary *s = all; s != NULL; s = s->next) {
            bool stays = s->in_circle && s->is_called && s->calls;
            changed |= stays != s->in_circle;
            s->in_circle = stays;
        }
    }
    for (struct summary *s = all; any_polls && s != NULL; s = s->next) {
        if (s->in_circle && s->polls)
            refuse(j, ALL, TL_PTX_REASON_BLOCK_WAIT, s->func->func->item->begin, s->func->func->name);
    }
}

static bool calls_polling(void *data, const struct tl_ptx_stmt *call)
{
    struct sum_visit *v = data;
    const struct summary *s = callee_summary(v->j, v->all, call);
    return s != NULL && s->polls;
}

/* --- persistent -------------------------------------------------------------------------------------------------- */

/* What a region of the control flow holds. */
struct contents {
    const struct tl_ptx_stmt *barrier, *warp_sync, *full_warp_sync;
    bool holds_up; /* nobody passes without meeting the warp or the block */
};

/* The function that is looked at: its flow, and per register its only definition (NONE if there is none, MANY). */
struct view {
    struct judge *j;
    struct summary *all;
    const struct tl_ptx_cfg *cfg;
    uint32_t *defs;
    uint32_t inst; /* scratch */
};

enum { MANY_DEFS = TL_CFG_NONE - 1 };

static void note_def(void *data, struct tl_ptx_sym *reg)
{
    struct view *v = data;
    v->defs[reg->id] = v->defs[reg->id] == TL_CFG_NONE ? v->inst : MANY_DEFS;
}

static int view_init(struct view *v, struct judge *j, struct summary *all, const struct tl_ptx_cfg *cfg)
{
    size_t bytes = ((size_t)cfg->func->n_regs + 1) * sizeof *v->defs;
    *v = (struct view){.j = j, .all = all, .cfg = cfg, .defs = tl_arena_alloc(j->p->arena, bytes)};
    if (v->defs == NULL)
        return -ENOMEM;
    memset(v->defs, 0xff, bytes);
    for (v->inst = 0; v->inst < cfg->n_insts; v->inst++)
        tl_ptx_inst_writes(cfg->insts[v->inst], note_def, v);
    return 0;
}

/* Compilers put the mask of all lanes into a register, too. */
static bool is_all_ones(const struct view *v, const struct tl_ptx_operand *mask)
{
    if (mask->kind != TL_OPD_SYM || mask->sym->kind != TL_SYM_REG)
        return false;
    uint32_t def = v->defs[mask->sym->id];
    if (def >= MANY_DEFS)
        return false;
    const struct tl_ptx_stmt *s = v->cfg->insts[def];
    return s->inst.form->op == TL_OP_mov && s->inst.guard == NULL && s->n_operands == 2 &&
           s->inst.operands[1].kind == TL_OPD_INT && (uint32_t)s->inst.operands[1].bits == UINT32_MAX;
}

/* Operations for which a warp must be complete, apart from lanes that have returned.  A barrier with a thread count is one:
 * the hardware counts whole warps there. */
static bool meets_warp(const struct view *v, const struct tl_ptx_stmt *s, bool *all_lanes)
{
    struct tl_ptx_barrier b = tl_ptx_barrier_of(s);
    *all_lanes = true;
    if (b.kind != TL_BARRIER_NONE)
        return b.has_count;
    if (!tl_ptx_is_warp_sync(s, all_lanes))
        return false;
    *all_lanes |= s->n_operands > 0 && is_all_ones(v, &s->inst.operands[s->n_operands - 1]);
    return true;
}

static void look_into(const struct view *v, uint32_t block, struct contents *c)
{
    const struct tl_ptx_cfg *cfg = v->cfg;
    for (uint32_t i = cfg->blocks[block].first; i < cfg->blocks[block].end; i++) {
        const struct tl_ptx_stmt *s = cfg->insts[i];
        const struct summary *callee = callee_summary(v->j, v->all, s);
        bool all_lanes = false, is_sync = meets_warp(v, s, &all_lanes);
        bool is_barrier = tl_ptx_barrier_of(s).kind != TL_BARRIER_NONE;
        c->holds_up |= s->inst.guard == NULL && (is_barrier || (is_sync && all_lanes));
        if (is_barrier || (callee != NULL && callee->has_barrier))
            c->barrier = s;
        if (is_sync || (callee != NULL && callee->has_warp_sync))
            c->warp_sync = s;
        if ((is_sync && all_lanes) || (callee != NULL && callee->has_warp_sync))
            c->full_warp_sync = s;
    }
}

/* Whether a thread at the start of `block` may return without meeting its warp or block on the way. */
static bool runs_out(const struct view *v, uint32_t block, struct tl_ptx_set *seen, uint32_t *stack)
{
    const struct tl_ptx_cfg *cfg = v->cfg;
    uint32_t depth = 0;
    tl_ptx_set_clear(seen);
    stack[depth++] = block;
    while (depth > 0) {
        uint32_t b = stack[--depth];
        if (b == cfg->n_blocks)
            return true;
        struct contents c = {0};
        look_into(v, b, &c);
        if (c.holds_up)
            continue;
        for (uint32_t e = 0; e < cfg->blocks[b].n_succs; e++) {
            uint32_t to = cfg->blocks[b].succs[e];
            if (to == cfg->n_blocks)
                return true;
            if (!tl_ptx_set_has(seen, to)) {
                tl_ptx_set_add(seen, to);
                stack[depth++] = to;
            }
        }
    }
    return false;
}

/* Whether nothing stands between the start of `block` and the thread's end. */
static bool ends_thread(const struct view *v, uint32_t block)
{
    const struct tl_ptx_stmt *last = tl_ptx_cfg_last(v->cfg, block);
    if (last == NULL)
        return true;
    struct contents c = {0};
    look_into(v, block, &c);
    return (last->inst.form->op == TL_OP_ret || last->inst.form->op == TL_OP_exit) && last->inst.guard == NULL &&
           !c.holds_up;
}

/* What divergence does to one function in a loop over blocks. */
struct hazards {
    const struct tl_ptx_stmt *split_barrier; /* met by some threads and not by others */
    const struct tl_ptx_stmt *warp_sync;     /* may name lanes that have returned */
};

static int find_hazards(struct judge *j, struct summary *all, const struct tl_ptx_cfg *cfg, bool rows,
                        struct hazards *h)
{
    struct tl_ptx_divergence d;
    struct tl_ptx_set region, seen;
    struct view v;
    uint32_t *stack = tl_arena_alloc(j->p->arena, ((size_t)cfg->n_blocks + 2) * sizeof *stack);
    *h = (struct hazards){0};
    if (stack == NULL || view_init(&v, j, all, cfg) < 0 || tl_ptx_set_init(&region, j->p->arena, cfg) < 0 ||
        tl_ptx_set_init(&seen, j->p->arena, cfg) < 0 || tl_ptx_diverge(&d, j->p->arena, cfg, rows) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < cfg->n_order; i++) {
        uint32_t b = cfg->order[i], join = cfg->blocks[b].ipdom;
        for (uint32_t k = cfg->blocks[b].first; k < cfg->blocks[b].end; k++) {
            const struct tl_ptx_stmt *s = cfg->insts[k];
            bool all_lanes;
            if (tl_ptx_barrier_of(s).kind != TL_BARRIER_NONE && tl_ptx_guard_level(&d, s) > TL_LEVEL_BLOCK)
                h->split_barrier = s;
            if (meets_warp(&v, s, &all_lanes) && all_lanes && tl_ptx_guard_level(&d, s) == TL_LEVEL_LANE)
                h->warp_sync = s;
        }
        if (d.branch[b] == TL_LEVEL_BLOCK)
            continue;
        tl_ptx_set_clear(&region);
        tl_ptx_cfg_region(cfg, b, join, &region, stack);
        struct contents c = {0};
        for (uint32_t r = 0; r < cfg->n_blocks; r++) {
            if (tl_ptx_set_has(&region, r))
                look_into(&v, r, &c);
        }
        if (c.barrier != NULL)
            h->split_barrier = c.barrier;
        if (d.branch[b] != TL_LEVEL_LANE)
            continue;
        if (c.warp_sync != NULL && ends_thread(&v, join))
            h->warp_sync = c.warp_sync;
        else if (c.full_warp_sync != NULL && runs_out(&v, join, &seen, stack))
            h->warp_sync = c.full_warp_sync;
    }
    return 0;
}

/* Barriers that survive a loop over blocks: complete ones.  See docs/rewriter.md, "Persistent blocks". */
static void judge_barriers(struct judge *j, const struct tl_ptx_cfg *cfg, bool unified)
{
    const struct tl_ptx_index *ix = j->p->unit.ix;
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        const struct tl_ptx_stmt *s = cfg->insts[i];
        struct tl_ptx_barrier b = tl_ptx_barrier_of(s);
        if (b.kind == TL_BARRIER_NONE)
            continue;
        bool is_plain = b.has_id && b.id == 0 && !b.has_count;
        bool fits;
        if (b.kind == TL_BARRIER_ARRIVE || !b.has_id || (b.has_count && b.id == 0))
            fits = false; /* may be left half-met, or meets the loop's own barrier */
        else if (!unified)
            fits = true;
        else /* attending threads vote on barrier 0; other uncounted ones would wait for them */
            fits = (is_plain && b.kind == TL_BARRIER_SYNC) || (b.has_count && b.kind == TL_BARRIER_SYNC);
        if (!fits || (unified && (tl_ptx_isa_of(ix) < 60 || tl_ptx_sm_of(ix) < 70)))
            refuse_inst(j, PERSISTENT, TL_PTX_REASON_BARRIER_FORM, s);
    }
}

static int judge_persistent(struct judge *j, struct summary *all, struct tl_ptx_cfg *cfgs)
{
    uint32_t n = 0;
    bool unified = false;
    for (struct tl_ptx_program_func *f = j->p->funcs; f != NULL; f = f->next) {
        if (!f->func->has_body)
            continue;
        struct tl_ptx_cfg *cfg = &cfgs[n++];
        struct hazards h;
        if (find_hazards(j, all, cfg, false, &h) < 0)
            return -ENOMEM;
        unified |= h.split_barrier != NULL;
        if (f != j->p->entry || h.warp_sync == NULL)
            continue;
        /* Returning leads out of the loop's body only in the entry.  Perhaps warps that lie along x stay together? */
        struct hazards in_rows;
        if (find_hazards(j, all, cfg, true, &in_rows) < 0)
            return -ENOMEM;
        if (in_rows.warp_sync != NULL)
            refuse_inst(j, PERSISTENT, TL_PTX_REASON_WARP_SYNC_AFTER_EXIT, in_rows.warp_sync);
        else
            j->f->verdicts[TL_PTX_PERSISTENT].conditions |= TL_PTX_IF_WARPS_ARE_ROWS;
    }
    j->f->barriers = unified ? TL_BARRIERS_UNIFIED : TL_BARRIERS_PLAIN;
    for (uint32_t i = 0; i < n; i++)
        judge_barriers(j, &cfgs[i], unified);
    return 0;
}

/* --- all together ------------------------------------------------------------------------------------------------ */

static int judge_flow(struct judge *j)
{
    struct summary *all;
    uint32_t n = 0, n_bodies = 0;
    for (struct tl_ptx_program_func *f = j->p->funcs; f != NULL; f = f->next)
        n_bodies += f->func->has_body;
    struct tl_ptx_cfg *cfgs = tl_arena_alloc(j->p->arena, ((size_t)n_bodies + 1) * sizeof *cfgs);
    if (cfgs == NULL || sum_up(j, &all) < 0)
        return -ENOMEM;
    judge_circles(j, all);
    for (struct tl_ptx_program_func *f = j->p->funcs; f != NULL; f = f->next) {
        if (!f->func->has_body)
            continue;
        struct tl_ptx_cfg *cfg = &cfgs[n++];
        if (f->func->n_insts <= MAX_INSTS && tl_ptx_cfg_build(cfg, j->p->arena, f->func) < 0)
            return -ENOMEM;
        if (f->func->n_insts > MAX_INSTS || cfg->n_blocks > MAX_BLOCKS) {
            refuse(j, ALL, TL_PTX_REASON_TOO_LARGE, f->func->item->begin, f->func->name);
            return 0;
        }
        if (cfg->unknown_branch != NULL)
            refuse_inst(j, ALL, TL_PTX_REASON_INDIRECT_BRANCH, cfg->unknown_branch);
        struct tl_ptx_waits w;
        if (tl_ptx_find_waits(&w, j->p->arena, cfg, calls_polling, &(struct sum_visit){j, all, NULL}) < 0)
            return -ENOMEM;
        if (w.reason != TL_PTX_REASON_OK)
            refuse_inst(j, ALL, w.reason, w.place);
        for (int v = 0; w.waits_for_earlier && v < TL_PTX_VARIANTS; v++) {
            if (j->f->verdicts[v].reason != TL_PTX_REASON_OK)
                continue;
            snprintf(j->f->verdicts[v].note, sizeof j->f->verdicts[v].note, "waits for earlier blocks only");
            if (w.only_in_line)
                j->f->verdicts[v].conditions |= TL_PTX_IF_GRID_IS_LINE;
        }
    }
    if (j->f->verdicts[TL_PTX_PERSISTENT].reason != TL_PTX_REASON_OK)
        return 0;
    return judge_persistent(j, all, cfgs);
}

int tl_ptx_find(struct tl_ptx_findings *f, struct tl_ptx_program *p)
{
    *f = (struct tl_ptx_findings){0};
    struct judge j = {.f = f, .p = p};
    for (const struct tl_ptx_program_var *v = p->vars; v != NULL; v = v->next)
        f->uses_const |= tl_ptx_var_is(v, "const");
    for (struct tl_ptx_program_func *fn = p->funcs; fn != NULL; fn = fn->next) {
        if (fn != p->entry)
            tl_ptx_each_inst(fn->func->body, note_grid_inst, &f->funcs_read_grid);
    }
    judge_header(&j);
    for (struct tl_ptx_program_func *fn = p->funcs; fn != NULL; fn = fn->next) {
        j.func = fn;
        tl_ptx_each_inst(fn->func->body, judge_inst, &j);
    }
    judge_params(&j);
    judge_vars(&j);
    int rc = 0;
    if (f->verdicts[TL_PTX_SLICE].reason == TL_PTX_REASON_OK || f->verdicts[TL_PTX_TICKET].reason == TL_PTX_REASON_OK)
        rc = judge_flow(&j);
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        struct tl_ptx_verdict *d = &f->verdicts[v];
        if (d->reason == TL_PTX_REASON_OK)
            continue;
        d->conditions = 0;
        d->place = tl_ptx_place_of(p->unit.ix->text, p->unit.ix->n, d->offset);
    }
    return rc;
}

/* --- names ------------------------------------------------------------------------------------------------------- */

const char *tl_ptx_variant_name(enum tl_ptx_variant v)
{
    static const char *const names[TL_PTX_VARIANTS] = {"slice", "ticket", "persistent"};
    return (unsigned)v < TL_PTX_VARIANTS ? names[v] : "?";
}

const char *tl_ptx_reason_code(enum tl_ptx_reason r)
{
    static const char *const codes[] = {
#define CODE(id, code, text) code,
        TL_PTX_REASONS(CODE)
#undef CODE
    };
    return (unsigned)r < TL_PTX_REASON_COUNT ? codes[r] : "?";
}

const char *tl_ptx_reason_text(enum tl_ptx_reason r)
{
    static const char *const texts[] = {
#define TEXT(id, code, text) text,
        TL_PTX_REASONS(TEXT)
#undef TEXT
    };
    return (unsigned)r < TL_PTX_REASON_COUNT ? texts[r] : "?";
}

int tl_ptx_judge(const struct tl_ptx_index *ix, struct tl_str kernel, struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS],
                 struct tl_error *err)
{
    struct tl_arena arena;
    struct tl_ptx_program p;
    struct tl_ptx_findings f;
    tl_arena_init(&arena, 0);
    int rc = tl_ptx_program_init(&p, ix, kernel, &arena, err);
    if (rc == 0 && tl_ptx_find(&f, &p) < 0)
        rc = tl_error_set(err, -ENOMEM, "%s: out of memory while judging '" TL_STR_FMT "'", ix->name,
                          TL_STR_ARG(kernel));
    if (rc == 0)
        memcpy(verdicts, f.verdicts, sizeof f.verdicts);
    tl_ptx_program_finish(&p);
    tl_arena_finish(&arena);
    return rc;
}
