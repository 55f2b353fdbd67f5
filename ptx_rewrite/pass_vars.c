/* Module variables.
 *
 * A variant is a module of its own, but its kernel must work on the original module's variables:
 * their addresses come in as parameters.  Called functions cannot see the kernel's parameters; they
 * find the addresses in a table in constant memory, which whoever loads the variant fills once.
 * Constant variables become global ones (a constant bank belongs to one module), so constant loads
 * and conversions change their space.  Shared variables are the block's own and are simply declared
 * again. */
#include <errno.h>
#include <string.h>

#include "ptx_rewrite/rewrite.h"

static bool is_pointed_to(const struct tl_ptx_program_var *v)
{
    return tl_ptx_var_is(v, "global") || tl_ptx_var_is(v, "const");
}

int tl_rw_plan_vars(struct tl_rewriter *rw)
{
    uint32_t n = 0, which = 0;
    for (const struct tl_ptx_program_var *v = rw->p->vars; v != NULL; v = v->next)
        n += v->in_func && is_pointed_to(v);
    rw->table = tl_arena_alloc(rw->arena, ((size_t)n + 1) * sizeof *rw->table);
    if (rw->table == NULL)
        return -ENOMEM;
    for (const struct tl_ptx_program_var *v = rw->p->vars; v != NULL; v = v->next) {
        if (!is_pointed_to(v))
            continue;
        const char *name = tl_arena_copy(rw->arena, v->decl->name);
        if (name == NULL)
            return -ENOMEM;
        if (v->in_entry)
            tl_rw_add_arg(rw, TL_PTX_ARG_VARIABLE, which++, name);
        if (v->in_func)
            rw->table[rw->n_table++] = name;
    }
    return 0;
}

/* A register that holds the variable's address, filled before the current instruction. */
static const char *address_of(struct tl_rewriter *rw, const struct tl_ptx_program_var *v)
{
    const char *reg = tl_rw_b64(rw);
    if (rw->in_entry) {
        for (uint32_t i = 0; i < rw->n_args; i++) {
            if (rw->args[i].kind == TL_PTX_ARG_VARIABLE &&
                tl_str_is(v->decl->name, rw->args[i].variable))
                tl_rw_put(rw, &rw->before, "\tld.param.u64 %s, [%s];\n", reg, rw->args[i].name);
        }
        return reg;
    }
    for (uint32_t i = 0; i < rw->n_table; i++) {
        if (tl_str_is(v->decl->name, rw->table[i]))
            tl_rw_put(rw, &rw->before, "\tld.const.u64 %s, [$table+%u];\n", reg, i * 8);
    }
    return reg;
}

static int replace_var(void *data, struct tl_ptx_operand *o)
{
    struct tl_rewriter *rw = data;
    if (o->sym->kind != TL_SYM_MODULE_VAR)
        return 0;
    const struct tl_ptx_program_var *v = tl_ptx_program_find_var(rw->p, o->sym);
    if (!is_pointed_to(v))
        return 0;
    const char *reg = address_of(rw, v);
    if (o->has_offset && o->offset != 0)
        tl_rw_put(rw, &rw->before, "\tadd.s64 %s, %s, %lld;\n", reg, reg, (long long)o->offset);
    tl_rw_set_operand(o, reg);
    return 0;
}

/* "ld.const.f32" to "ld.global.f32". */
static void move_to_global(struct tl_rewriter *rw, struct tl_ptx_stmt *s)
{
    struct tl_str text = s->inst.form->text;
    const char *at = memmem(text.p, text.n, ".const", 6);
    const char *tail = at + 6;
    if (at == NULL)
        return;
    tl_rw_set_form(rw, s,
                   tl_rw_text(rw, "%.*s.global%.*s", (int)(at - text.p), text.p,
                              (int)(text.p + text.n - tail), tail));
}

void tl_rw_vars(struct tl_rewriter *rw, struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    tl_ptx_each_sym(s->inst.operands, s->n_operands, replace_var, rw);
    if (!rw->f->uses_const || !tl_ptx_form_has(f, TL_MOD_const))
        return;
    if (f->op == TL_OP_cvta)
        tl_rw_set_form(rw, s, "mov.u64");
    else
        move_to_global(rw, s);
}

void tl_rw_print_vars(struct tl_rewriter *rw, struct tl_buf *out)
{
    for (const struct tl_ptx_program_var *v = rw->p->vars; v != NULL; v = v->next) {
        if (is_pointed_to(v))
            continue;
        struct tl_ptx_decl alone = *v->decl; /* of `.shared .u32 a, b` only what is used */
        alone.next = NULL;
        tl_ptx_print_decl(out, &alone);
        tl_buf_putc(out, '\n');
    }
    if (rw->n_table > 0)
        tl_rw_put(rw, out, ".visible .const .align 8 .u64 $table[%u];\n", rw->n_table);
    if (rw->uses_slot)
        tl_rw_put(rw, out, ".extern .shared .align 16 .b8 $dynamic[];\n");
}
