/* See mutate.h. */
#include "test/unit/ptx_rewrite/mutate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/index.h"
#include "ptx_rewrite/names.h"
#include "ptx_rewrite/program.h"

/* One kernel, and which of its mutants is wanted: edits are tried one after the other and counted,
 * and the one whose turn it is stays. */
struct mutation {
    struct tl_ptx_program program;
    struct tl_arena arena;
    uint32_t left; /* edits to pass over */
    bool is_done;
    char *what;
    size_t what_bytes;
};

static bool is_wanted(struct mutation *m, const struct tl_ptx_stmt *s, const char *what)
{
    if (m->is_done || m->left-- > 0)
        return false;
    m->is_done = true;
    const struct tl_ptx_index *ix = m->program.unit.ix;
    struct tl_ptx_place place = tl_ptx_place_of(ix->text, ix->n, s->at);
    snprintf(m->what, m->what_bytes, "line %u: %s: %.*s", place.line, what, (int)(s->end - s->at),
             ix->text + s->at);
    return true;
}

static void set_number(struct mutation *m, struct tl_ptx_operand *o, int64_t value)
{
    char *text = tl_arena_alloc(&m->arena, 24);
    if (text == NULL)
        return;
    snprintf(text, 24, "%lld", (long long)value);
    o->bits = (uint64_t)value;
    o->text = text;
}

/* The same instruction with one modifier replaced; NULL for `with` leaves it out. */
static void set_modifier(struct mutation *m, struct tl_ptx_stmt *s, enum tl_ptx_mod which,
                         const char *with)
{
    const struct tl_ptx_form *f = s->inst.form;
    struct tl_buf text = {0};
    const char *dot = memchr(f->text.p, '.', f->text.n);
    size_t opcode = dot != NULL ? (size_t)(dot - f->text.p) : f->text.n;
    tl_buf_add(&text, f->text.p, opcode);
    bool is_first = true;
    for (uint32_t i = 0; i < f->n_mods; i++) {
        bool is_it = f->mods[i].id == which && is_first;
        is_first &= !is_it;
        if (is_it && with != NULL)
            tl_buf_printf(&text, ".%s", with);
        else if (!is_it)
            tl_buf_printf(&text, "." TL_STR_FMT, TL_STR_ARG(f->mods[i].text));
    }
    char *kept = tl_arena_alloc(&m->arena, text.n + 1);
    if (kept != NULL) {
        memcpy(kept, text.p, text.n);
        kept[text.n] = 0;
        const struct tl_ptx_form *form = tl_ptx_names_form(m->program.unit.names,
                                                           (struct tl_str){kept, (uint32_t)text.n});
        s->inst.form = form != NULL ? form : f;
    }
    tl_buf_finish(&text);
}

/* --- edits ------------------------------------------------------------------------------------ */

/* Edits of what an instruction is called: directions, kinds of atomics, scopes, votes. */
static void edit_modifiers(struct mutation *m, struct tl_ptx_stmt *s)
{
    static const struct {
        enum tl_ptx_op op; /* TL_OP_unknown for any */
        enum tl_ptx_mod from;
        const char *to, *what;
    } edits[] = {
        {TL_OP_setp, TL_MOD_eq, "ne", "compared the other way"},
        {TL_OP_setp, TL_MOD_ne, "eq", "compared the other way"},
        {TL_OP_setp, TL_MOD_lt, "ge", "compared the other way"},
        {TL_OP_setp, TL_MOD_lt, "gt", "another direction"},
        {TL_OP_setp, TL_MOD_lt, "ne", "waits for one number"},
        {TL_OP_setp, TL_MOD_ge, "lt", "compared the other way"},
        {TL_OP_setp, TL_MOD_ge, "le", "another direction"},
        {TL_OP_setp, TL_MOD_ge, "eq", "waits for one number"},
        {TL_OP_setp, TL_MOD_gt, "lt", "another direction"},
        {TL_OP_setp, TL_MOD_le, "ge", "another direction"},
        {TL_OP_add, TL_MOD_s32, "u32", "another type"},
        {TL_OP_atom, TL_MOD_add, "exch", "exchanged"},
        {TL_OP_atom, TL_MOD_exch, "add", "added"},
        {TL_OP_atom, TL_MOD_exch, "max", "the larger"},
        {TL_OP_atom, TL_MOD_inc, "dec", "downwards"},
        {TL_OP_atom, TL_MOD_max, "min", "the smaller"},
        {TL_OP_ld, TL_MOD_volatile, NULL, "weak"},
        {TL_OP_ld, TL_MOD_gpu, "cta", "another scope"},
        {TL_OP_st, TL_MOD_gpu, "cta", "another scope"},
        {TL_OP_atom, TL_MOD_gpu, "cta", "another scope"},
        {TL_OP_vote, TL_MOD_all, "any", "another vote"},
        {TL_OP_vote, TL_MOD_any, "all", "another vote"},
        {TL_OP_bar, TL_MOD_or, "and", "another vote"},
        {TL_OP_bar, TL_MOD_and, "or", "another vote"},
        {TL_OP_barrier, TL_MOD_or, "and", "another vote"},
        {TL_OP_barrier, TL_MOD_and, "or", "another vote"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        if (s->inst.form->op == edits[i].op && tl_ptx_form_has(s->inst.form, edits[i].from) &&
            is_wanted(m, s, edits[i].what))
            set_modifier(m, s, edits[i].from, edits[i].to);
    }
    if (s->inst.form->op == TL_OP_add && s->n_operands == 3 && is_wanted(m, s, "subtracted") &&
        !tl_ptx_form_has(s->inst.form, TL_MOD_cc)) {
        char *text = tl_arena_alloc(&m->arena, s->inst.form->text.n + 1);
        if (text != NULL) {
            snprintf(text, s->inst.form->text.n + 1, TL_STR_FMT, TL_STR_ARG(s->inst.form->text));
            memcpy(text, "sub", 3);
            s->inst.form = tl_ptx_names_form(m->program.unit.names, tl_str_of(text));
        }
    }
}

static void edit_numbers(struct mutation *m, struct tl_ptx_stmt *s)
{
    for (uint32_t i = 0; i < s->n_operands; i++) {
        struct tl_ptx_operand *o = &s->inst.operands[i];
        if (o->kind == TL_OPD_ADDR && s->inst.form->op != TL_OP_cp &&
            tl_ptx_form_space(s->inst.form) != TL_MOD_param) {
            int64_t offset = o->has_offset ? o->offset : 0;
            for (int step = -8; step <= 8; step += 4) {
                if (step == 0 || !is_wanted(m, s, step < 0 ? "a place below" : "a place above"))
                    continue;
                o->has_offset = 1;
                o->offset = offset + step;
                return;
            }
        }
        if (o->kind != TL_OPD_INT || s->inst.form->op == TL_OP_bar ||
            s->inst.form->op == TL_OP_barrier || s->inst.form->op == TL_OP_shfl ||
            s->inst.form->op == TL_OP_vote)
            continue;
        int64_t value = (int64_t)o->bits;
        if (value != 0 && is_wanted(m, s, "the other sign"))
            set_number(m, o, -(int32_t)value);
        else if (is_wanted(m, s, "one more"))
            set_number(m, o, value + 1);
        else if (value > 1 && is_wanted(m, s, "twice"))
            set_number(m, o, value * 2);
        else if (value != 0 && is_wanted(m, s, "zero"))
            set_number(m, o, 0);
    }
}

/* Another number of the thread, the block or the grid. */
static void edit_index(struct mutation *m, struct tl_ptx_stmt *s)
{
    static const struct {
        enum tl_ptx_sreg from;
        const char *to, *what;
    } edits[] = {
        {TL_SREG_ctaid, "%tid", "the thread's number for the block's"},
        {TL_SREG_ctaid, "%nctaid", "the number of blocks for the block's"},
        {TL_SREG_tid, "%ctaid", "the block's number for the thread's"},
        {TL_SREG_nctaid, "%ctaid", "the block's number for that of blocks"},
    };
    for (uint32_t i = 1; i < s->n_operands; i++) {
        struct tl_ptx_operand *o = &s->inst.operands[i];
        for (size_t k = 0; k < sizeof edits / sizeof edits[0]; k++) {
            if (o->kind != TL_OPD_SYM || o->sym->kind != TL_SYM_SREG ||
                o->sym->sreg != edits[k].from || !is_wanted(m, s, edits[k].what))
                continue;
            struct tl_ptx_sym *other = tl_ptx_names_resolve(m->program.unit.names,
                                                            tl_str_of(edits[k].to));
            if (other != NULL)
                o->sym = other;
            return;
        }
    }
}

static bool is_exchangeable(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    switch (s->inst.form->op) {
    case TL_OP_sub:
    case TL_OP_setp:
    case TL_OP_selp:
        return s->n_operands >= 3 && o[1].kind == TL_OPD_SYM && o[2].kind == TL_OPD_SYM;
    default:
        return false;
    }
}

static int edit_inst(void *data, struct tl_ptx_stmt *s)
{
    struct mutation *m = data;
    enum tl_ptx_op op = s->inst.form->op;
    if (s->inst.guard != NULL && is_wanted(m, s, "if not"))
        s->guard_not = !s->guard_not;
    if (op == TL_OP_bra && s->inst.guard != NULL && is_wanted(m, s, "always"))
        s->inst.guard = NULL;
    edit_modifiers(m, s);
    edit_numbers(m, s);
    edit_index(m, s);
    if (is_exchangeable(s) && is_wanted(m, s, "sides exchanged")) {
        struct tl_ptx_operand first = s->inst.operands[1];
        s->inst.operands[1] = s->inst.operands[2];
        s->inst.operands[2] = first;
    }
    /* Not barriers: without them threads of a block race, and whatever comes of it is right. */
    if ((op == TL_OP_st || op == TL_OP_red || (op == TL_OP_bra && s->inst.guard != NULL)) &&
        tl_ptx_form_space(s->inst.form) != TL_MOD_param && is_wanted(m, s, "left out")) {
        s->kind = TL_STMT_TEXT;
        s->text = tl_str_of("");
    }
    return m->is_done;
}

/* --- texts ------------------------------------------------------------------------------------ */

/* Callees stand before their callers. */
static void print_funcs(struct tl_buf *out, const struct tl_ptx_program_func *f)
{
    if (f == NULL)
        return;
    print_funcs(out, f->next);
    tl_ptx_print_func(out, f->func);
    tl_buf_printf(out, "\n");
}

static void print_program(struct tl_buf *out, const struct tl_ptx_program *p)
{
    struct tl_str version = tl_ptx_index_version(p->unit.ix),
                  target = tl_ptx_index_target(p->unit.ix);
    tl_buf_printf(out, ".version " TL_STR_FMT "\n.target " TL_STR_FMT "\n.address_size 64\n",
                  TL_STR_ARG(version), TL_STR_ARG(target));
    for (const struct tl_ptx_program_var *v = p->vars; v != NULL; v = v->next) {
        struct tl_ptx_decl alone = *v->decl;
        alone.next = NULL;
        tl_ptx_print_decl(out, &alone);
        tl_buf_printf(out, "\n");
    }
    print_funcs(out, p->funcs);
}

char *ptx_mutant(const struct tl_ptx_index *ix, const char *kernel, uint32_t n, char *what,
                 size_t what_bytes)
{
    struct mutation m = {.left = n, .what = what, .what_bytes = what_bytes};
    struct tl_error err;
    struct tl_buf out = {0};
    char *text = NULL;
    tl_arena_init(&m.arena, 0);
    if (tl_ptx_program_init(&m.program, ix, tl_str_of(kernel), &m.arena, &err) == 0) {
        for (struct tl_ptx_program_func *f = m.program.funcs; f != NULL && !m.is_done;
             f = f->next) {
            if (f->func->has_body)
                tl_ptx_each_inst(f->func->body, edit_inst, &m);
        }
        if (m.is_done) {
            print_program(&out, &m.program);
            text = tl_buf_take(&out);
        }
    }
    tl_buf_finish(&out);
    tl_ptx_program_finish(&m.program);
    tl_arena_finish(&m.arena);
    return text;
}
