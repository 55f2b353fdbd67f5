/* May this kernel run in pieces?  Per variant yes, or the reason with its place.
 *
 * Everything that is not known to be harmless is refused: a wrong "yes" makes a job compute
 * nonsense or hang, a wrong "no" only makes it less preemptible.  This file puts the judgement
 * together and looks at what surrounds the code: header, parameters, variables.  judge_inst.c looks
 * at instructions, waits.c at loops, judge_rounds.c at what persistent blocks need more. */
#include "ptx_rewrite/verdict.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/index.h"
#include "ptx_rewrite/judge.h"
#include "ptx_rewrite/lex.h"
#include "ptx_rewrite/waits.h"

/* Beyond this the analyses, which are quadratic at worst, could take longer than anybody wants to
 * wait.  The largest kernel seen in NVIDIA's libraries has 30,517 instructions in 2,815 blocks.
 * Blocks are of one function, the others of a kernel with all that it reaches. */
enum { MAX_BLOCKS = 20000, MAX_INSTS = 300000, MAX_FUNCS = 2000 };

/* --- refusing --------------------------------------------------------------------------------- */

/* Copies a text with each run of white space as one blank: an instruction may stand on several
 * lines. */
static void copy_note(char *to, size_t size, struct tl_str from)
{
    size_t n = 0;
    for (uint32_t i = 0; i < from.n && n + 1 < size; i++) {
        bool is_blank = strchr(" \t\r\n", from.p[i]) != NULL;
        if (!is_blank)
            to[n++] = from.p[i];
        else if (n > 0 && to[n - 1] != ' ')
            to[n++] = ' ';
    }
    to[n] = 0;
}

void tl_ptx_refuse(struct tl_ptx_judgement *j, unsigned which, enum tl_ptx_reason reason,
                   uint32_t at, struct tl_str note)
{
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        struct tl_ptx_verdict *d = &j->f->verdicts[v];
        if (!(which & (1u << v)) || d->reason != TL_PTX_REASON_OK)
            continue;
        d->reason = reason;
        d->offset = at;
        copy_note(d->note, sizeof d->note, note);
    }
}

void tl_ptx_refuse_inst(struct tl_ptx_judgement *j, unsigned which, enum tl_ptx_reason reason,
                        const struct tl_ptx_stmt *s)
{
    struct tl_str text = {j->p->unit.ix->text + s->at, s->end - s->at};
    tl_ptx_refuse(j, which, reason, s->at, text);
}

/* --- the entry's header ----------------------------------------------------------------------- */

static void judge_header(struct tl_ptx_judgement *j)
{
    const struct tl_ptx_index *ix = j->p->unit.ix;
    const struct tl_ptx_func *f = j->p->entry->func;
    uint32_t at = f->item->begin;
    static const char *const cluster[] = {".reqnctapercluster", ".explicitcluster",
                                          ".maxclusterrank", ".blocksareclusters"};
    if (ix->address_size != 64)
        tl_ptx_refuse(j, TL_JUDGE_ALL, TL_PTX_REASON_ADDRESS_SIZE, at, (struct tl_str){0});
    for (size_t i = 0; i < sizeof cluster / sizeof cluster[0]; i++) {
        if (f->directives.n > 0 &&
            memmem(f->directives.p, f->directives.n, cluster[i], strlen(cluster[i])) != NULL)
            tl_ptx_refuse(j, TL_JUDGE_ALL, TL_PTX_REASON_CLUSTER, at, tl_str_of(cluster[i]));
    }
    for (const struct tl_ptx_decl *d = f->params; d != NULL; d = d->next) {
        if (tl_str_is(d->type, "texref") || tl_str_is(d->type, "samplerref") ||
            tl_str_is(d->type, "surfref"))
            tl_ptx_refuse(j, TL_JUDGE_ALL, TL_PTX_REASON_TEXTURE_REFERENCE, d->at, d->name);
        if (j->f->uses_const && tl_str_is(d->ptr_space, "const"))
            tl_ptx_refuse(j, TL_JUDGE_ALL, TL_PTX_REASON_CONST_SPACE, d->at, d->name);
    }
}

/* Where the parameter stands behind what ends at `offset`, and its size; false if the type has no
 * known one. */
static bool place_param(const struct tl_ptx_decl *d, uint64_t *offset, uint64_t *size)
{
    uint64_t element = (uint64_t)tl_ptx_type_bytes(d->type) * d->vec;
    uint64_t align = d->align != 0 ? d->align : element;
    if (element == 0 || align == 0 || (align & (align - 1)) != 0 || d->count > 1u << 20)
        return false;
    *offset = (*offset + align - 1) / align * align;
    *size = element * d->count;
    return *offset + *size <= 1u << 20;
}

bool tl_ptx_params_layout(const struct tl_ptx_decl *params, uint32_t *bytes, uint32_t *count)
{
    uint64_t offset = 0, size;
    uint32_t n = 0;
    for (const struct tl_ptx_decl *d = params; d != NULL; d = d->next, n++) {
        if (!place_param(d, &offset, &size))
            return false;
        offset += size;
    }
    *bytes = (uint32_t)offset;
    *count = n;
    return true;
}

int tl_ptx_params(const struct tl_ptx_index *ix, struct tl_str kernel, struct tl_ptx_param *out,
                  uint32_t cap, uint32_t *n, struct tl_error *err)
{
    struct tl_arena arena;
    struct tl_ptx_program program;
    uint64_t offset = 0, size;
    tl_arena_init(&arena, 0);
    int rc = tl_ptx_program_init(&program, ix, kernel, &arena, err);
    const struct tl_ptx_decl *d = rc == 0 ? program.entry->func->params : NULL;
    for (*n = 0; d != NULL && rc == 0; d = d->next, ++*n) {
        if (*n >= cap || !place_param(d, &offset, &size)) {
            rc = tl_error_set(err, -ENOTSUP, "parameter %u has no known size", *n);
            break;
        }
        out[*n] = (struct tl_ptx_param){(uint32_t)offset, (uint32_t)size};
        offset += size;
    }
    tl_ptx_program_finish(&program);
    tl_arena_finish(&arena);
    return rc;
}

uint32_t tl_ptx_params_limit(const struct tl_ptx_index *ix)
{
    return tl_ptx_isa_of(ix) >= 81 && tl_ptx_sm_of(ix) >= 70 ? 32764 : 4096;
}

/* The most that a variant appends: 32-bit numbers, seven of which tell of the grid, the addresses
 * of the stop words, the counter and where to tell, and those of variables.  See plan() in
 * rewrite.c. */
enum { MAX_SLICE_NUMBERS = 8, MAX_NUMBERS = 11, N_ADDRESSES = TL_PTX_STOP_WORDS + 2 };

static void judge_params(struct tl_ptx_judgement *j)
{
    const struct tl_ptx_func *f = j->p->entry->func;
    uint32_t bytes = 0, count = 0, n_vars = 0;
    for (const struct tl_ptx_program_var *v = j->p->vars; v != NULL; v = v->next)
        n_vars += v->in_entry && (tl_ptx_var_is(v, "global") || tl_ptx_var_is(v, "const"));
    bool is_known = tl_ptx_params_layout(f->params, &bytes, &count);
    uint32_t limit = tl_ptx_params_limit(j->p->unit.ix), base = (bytes + 7) / 8 * 8 + n_vars * 8;
    char note[80];
    snprintf(note, sizeof note, "%u bytes of parameters, %u variables, limit %u", bytes, n_vars,
             limit);
    if (!is_known || base + MAX_SLICE_NUMBERS * 4 > limit)
        tl_ptx_refuse(j, TL_JUDGE_SLICE, TL_PTX_REASON_PARAM_SPACE, f->item->begin,
                      tl_str_of(note));
    if (!is_known || base + N_ADDRESSES * 8 + MAX_NUMBERS * 4 > limit)
        tl_ptx_refuse(j, TL_JUDGE_TICKET | TL_JUDGE_PERSISTENT, TL_PTX_REASON_PARAM_SPACE,
                      f->item->begin, tl_str_of(note));
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

/* Whether an initialiser holds the address of a constant variable, directly or through other
 * variables that it names. */
static bool holds_const_address(const struct tl_ptx_index *ix, const struct tl_ptx_item *item,
                                uint32_t depth)
{
    struct tl_lex lx;
    for (tl_lex_init(&lx, ix->text, item->begin, item->end); lx.kind != TL_TOK_END;
         tl_lex_next(&lx)) {
        const struct tl_ptx_item *named = lx.kind == TL_TOK_WORD
                                              ? tl_ptx_index_find(ix, tl_lex_str(&lx))
                                              : NULL;
        if (named == NULL || named->kind != TL_PTX_ITEM_VARIABLE || named->begin == item->begin)
            continue;
        if (depth == 0 || is_const_item(ix, named) || holds_const_address(ix, named, depth - 1))
            return true;
    }
    return false;
}

/* An address in the constant space means the constant bank of the module that runs.  Where
 * instructions name a constant variable we see to that; where memory holds its address we
 * cannot. */
static void judge_vars(struct tl_ptx_judgement *j)
{
    for (const struct tl_ptx_program_var *v = j->p->vars; v != NULL; v = v->next) {
        if (v->decl->init.n > 0 && holds_const_address(j->p->unit.ix, v->sym->item, 4))
            tl_ptx_refuse(j, TL_JUDGE_ALL, TL_PTX_REASON_CONST_SPACE, v->decl->at, v->decl->name);
    }
}

/* --- all together ----------------------------------------------------------------------------- */

/* For struct tl_ptx_calls. */
static bool calls_polling(void *data, const struct tl_ptx_stmt *call)
{
    const struct tl_ptx_summary *s = tl_ptx_callee_summary(data, call);
    return s != NULL && s->polls;
}

static bool calls_exit(void *data, const struct tl_ptx_stmt *call)
{
    const struct tl_ptx_summary *s = tl_ptx_callee_summary(data, call);
    return s != NULL && s->exits;
}

/* Adds "line 12: ..." for each argument to a note, as far as there is room for it and for how many
 * more there are. */
static void tell_arguments_of(struct tl_ptx_verdict *d, const struct tl_ptx_index *ix,
                              const struct tl_ptx_waits *w)
{
    uint32_t told = 0;
    for (; told < w->n_arguments && told < TL_PTX_MAX_ARGUMENTS; told++) {
        const struct tl_ptx_argument *a = &w->arguments[told];
        char one[160];
        size_t n = strlen(d->note);
        int length = snprintf(one, sizeof one, "%sline %u: %s", n > 0 ? "; " : "",
                              tl_ptx_place_of(ix->text, ix->n, a->place->at).line,
                              tl_ptx_end_text(a->end));
        if (n + (size_t)length + sizeof "; 4294967295 more" > sizeof d->note)
            break;
        memcpy(d->note + n, one, (size_t)length + 1);
    }
    size_t n = strlen(d->note);
    if (told < w->n_arguments && n + sizeof "; 4294967295 more" <= sizeof d->note)
        snprintf(d->note + n, sizeof d->note - n, "; %u more", w->n_arguments - told);
}

/* What was shown of loops that ask memory whether to go on. */
static void tell_arguments(struct tl_ptx_judgement *j, const struct tl_ptx_waits *w)
{
    for (int v = 0; w->n_arguments > 0 && v < TL_PTX_VARIANTS; v++) {
        struct tl_ptx_verdict *d = &j->f->verdicts[v];
        if (d->reason != TL_PTX_REASON_OK)
            continue;
        if (w->only_in_line)
            d->conditions |= TL_PTX_IF_GRID_IS_LINE;
        if (w->only_narrow != 0)
            d->conditions |= TL_PTX_IF_ONE_WIDE_X << (w->only_narrow - 'x');
        tell_arguments_of(d, j->p->unit.ix, w);
    }
}

static int judge_waits(struct tl_ptx_judgement *j, struct tl_ptx_cfg *cfgs, uint32_t n)
{
    struct tl_ptx_roots roots;
    struct tl_ptx_summary *all;
    const struct tl_ptx_calls calls = {calls_polling, calls_exit, j};
    if (tl_ptx_roots_init(&roots, j->p, cfgs, n) < 0 || tl_ptx_sum_up(j, &roots, &all) < 0)
        return -ENOMEM;
    tl_ptx_judge_circles(j, all);
    for (uint32_t i = 0; i < n; i++) {
        struct tl_ptx_waits w;
        if (tl_ptx_find_waits(&w, j->p->arena, &cfgs[i], &roots, &calls) < 0)
            return -ENOMEM;
        if (w.reason != TL_PTX_REASON_OK)
            tl_ptx_refuse_inst(j, TL_JUDGE_ALL, w.reason, w.place);
        else
            tell_arguments(j, &w);
    }
    return 0;
}

static void refuse_as_too_large(struct tl_ptx_judgement *j, const struct tl_ptx_func *func)
{
    tl_ptx_refuse(j, TL_JUDGE_ALL, TL_PTX_REASON_TOO_LARGE, func->item->begin, func->name);
}

/* What the flow of control decides: who waits for whom, and what a loop over blocks would meet. */
static int judge_flow(struct tl_ptx_judgement *j)
{
    uint32_t n = 0, n_bodies = 0;
    uint64_t n_insts = 0;
    for (struct tl_ptx_program_func *f = j->p->funcs; f != NULL; f = f->next) {
        n_bodies += f->func->has_body;
        n_insts += f->func->n_insts;
    }
    if (n_bodies > MAX_FUNCS || n_insts > MAX_INSTS) {
        refuse_as_too_large(j, j->p->entry->func);
        return 0;
    }
    struct tl_ptx_cfg *cfgs = tl_arena_alloc(j->p->arena, ((size_t)n_bodies + 1) * sizeof *cfgs);
    if (cfgs == NULL)
        return -ENOMEM;
    for (struct tl_ptx_program_func *f = j->p->funcs; f != NULL; f = f->next) {
        if (!f->func->has_body)
            continue;
        struct tl_ptx_cfg *cfg = &cfgs[n++];
        if (tl_ptx_cfg_build(cfg, j->p->arena, f->func) < 0)
            return -ENOMEM;
        if (cfg->n_blocks > MAX_BLOCKS) {
            refuse_as_too_large(j, f->func);
            return 0;
        }
        if (cfg->unknown_branch != NULL)
            tl_ptx_refuse_inst(j, TL_JUDGE_ALL, TL_PTX_REASON_INDIRECT_BRANCH, cfg->unknown_branch);
    }
    int rc = judge_waits(j, cfgs, n);
    if (rc < 0 || j->f->verdicts[TL_PTX_PERSISTENT].reason != TL_PTX_REASON_OK)
        return rc;
    return tl_ptx_judge_rounds(j, cfgs);
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

int tl_ptx_find(struct tl_ptx_findings *f, struct tl_ptx_program *p)
{
    *f = (struct tl_ptx_findings){0};
    struct tl_ptx_judgement j = {.f = f, .p = p};
    for (const struct tl_ptx_program_var *v = p->vars; v != NULL; v = v->next)
        f->uses_const |= tl_ptx_var_is(v, "const");
    for (struct tl_ptx_program_func *fn = p->funcs; fn != NULL; fn = fn->next) {
        if (fn != p->entry)
            tl_ptx_each_inst(fn->func->body, note_grid_inst, &f->funcs_read_grid);
    }
    judge_header(&j);
    for (struct tl_ptx_program_func *fn = p->funcs; fn != NULL; fn = fn->next) {
        j.func = fn;
        tl_ptx_each_inst(fn->func->body, tl_ptx_judge_inst, &j);
    }
    judge_params(&j);
    judge_vars(&j);
    int rc = 0;
    if (f->verdicts[TL_PTX_SLICE].reason == TL_PTX_REASON_OK ||
        f->verdicts[TL_PTX_TICKET].reason == TL_PTX_REASON_OK)
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

bool tl_ptx_conditions_hold(uint32_t conditions, const uint32_t grid[3], const uint32_t block[3])
{
    bool holds = (conditions & TL_PTX_IF_WARPS_ARE_ROWS) == 0 || (block[1] == 1 && block[2] == 1) ||
                 block[0] % 32 == 0;
    holds &= (conditions & TL_PTX_IF_GRID_IS_LINE) == 0 || (grid[1] == 1 && grid[2] == 1);
    for (uint32_t i = 0; i < 3; i++)
        holds &= (conditions & TL_PTX_IF_ONE_WIDE_X << i) == 0 || grid[i] == 1;
    return holds;
}

/* --- names ------------------------------------------------------------------------------------ */

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
#define TEXT(id, code, text) (text),
        TL_PTX_REASONS(TEXT)
#undef TEXT
    };
    return (unsigned)r < TL_PTX_REASON_COUNT ? texts[r] : "?";
}

int tl_ptx_judge(const struct tl_ptx_index *ix, struct tl_str kernel,
                 struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS], struct tl_error *err)
{
    struct tl_arena arena;
    struct tl_ptx_program p;
    struct tl_ptx_findings f;
    tl_arena_init(&arena, 0);
    int rc = tl_ptx_program_init(&p, ix, kernel, &arena, err);
    if (rc == 0 && tl_ptx_find(&f, &p) < 0)
        rc = tl_error_set(err, -ENOMEM, "%s: out of memory while judging '" TL_STR_FMT "'",
                          ix->name, TL_STR_ARG(kernel));
    if (rc == 0)
        memcpy(verdicts, f.verdicts, sizeof f.verdicts);
    tl_ptx_program_finish(&p);
    tl_arena_finish(&arena);
    return rc;
}
