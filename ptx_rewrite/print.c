/* The tree back to text, in one canonical layout: a statement per line, tabs for depth.  Printing
 * what was parsed from printed text gives the same text again. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "ptx_rewrite/ast.h"
#include "ptx_rewrite/index.h"

static void print_indent(struct tl_buf *out, uint32_t indent)
{
    static const char tabs[] = "\t\t\t\t\t\t\t\t";
    for (; indent > 8; indent -= 8)
        tl_buf_add(out, tabs, 8);
    tl_buf_add(out, tabs, indent);
}

static void print_list(struct tl_buf *out, const struct tl_ptx_operand *elems, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            tl_buf_add(out, ", ", 2);
        tl_ptx_print_operand(out, &elems[i]);
    }
}

static void print_offset(struct tl_buf *out, const struct tl_ptx_operand *o)
{
    if (o->has_offset)
        tl_buf_printf(out, "+%" PRId64, o->offset);
}

void tl_ptx_print_operand(struct tl_buf *out, const struct tl_ptx_operand *o)
{
    if (o->flags & TL_OPD_NOT)
        tl_buf_putc(out, '!');
    if (o->flags & TL_OPD_MINUS)
        tl_buf_putc(out, '-');
    switch ((enum tl_ptx_operand_kind)o->kind) {
    case TL_OPD_SYM:
        tl_buf_str(out, o->sym->name);
        if (o->component != 0) {
            tl_buf_putc(out, '.');
            tl_buf_putc(out, o->component);
        }
        print_offset(out, o);
        break;
    case TL_OPD_INT:
    case TL_OPD_F32:
    case TL_OPD_F64:
    case TL_OPD_TEXT:
        tl_buf_puts(out, o->text);
        break;
    case TL_OPD_VEC:
        tl_buf_putc(out, '{');
        print_list(out, o->elems, o->n);
        tl_buf_putc(out, '}');
        break;
    case TL_OPD_LIST:
        tl_buf_putc(out, '(');
        print_list(out, o->elems, o->n);
        tl_buf_putc(out, ')');
        break;
    case TL_OPD_PAIR:
        tl_ptx_print_operand(out, &o->elems[0]);
        tl_buf_putc(out, '|');
        tl_ptx_print_operand(out, &o->elems[1]);
        break;
    case TL_OPD_ADDR:
        tl_buf_putc(out, '[');
        tl_ptx_print_operand(out, &o->elems[0]);
        print_offset(out, o);
        if (o->n > 1) {
            tl_buf_add(out, ", ", 2);
            print_list(out, o->elems + 1, o->n - 1);
        }
        tl_buf_putc(out, ']');
        break;
    case TL_OPD_SINK:
        tl_buf_putc(out, '_');
        break;
    }
}

/* Name, shape and initialiser. */
static void print_declarator(struct tl_buf *out, const struct tl_ptx_decl *d)
{
    tl_buf_str(out, d->name);
    if (d->is_range)
        tl_buf_printf(out, "<%" PRIu32 ">", d->range);
    tl_buf_str(out, d->dims);
    if (d->init.n > 0) {
        tl_buf_puts(out, " = ");
        tl_buf_str(out, d->init);
    }
}

static void print_single(struct tl_buf *out, const struct tl_ptx_decl *d)
{
    tl_buf_str(out, d->prefix);
    tl_buf_putc(out, ' ');
    print_declarator(out, d);
}

void tl_ptx_print_decl(struct tl_buf *out, const struct tl_ptx_decl *d)
{
    print_single(out, d);
    for (d = d->next; d != NULL && d->joins_previous; d = d->next) {
        tl_buf_puts(out, ", ");
        print_declarator(out, d);
    }
    tl_buf_putc(out, ';');
}

static void print_inst(struct tl_buf *out, const struct tl_ptx_stmt *s)
{
    if (s->inst.guard != NULL) {
        tl_buf_puts(out, s->guard_not ? "@!" : "@");
        tl_buf_str(out, s->inst.guard->name);
        tl_buf_putc(out, ' ');
    }
    tl_buf_str(out, s->inst.form->text);
    if (s->inst.raw.n > 0) {
        tl_buf_putc(out, ' ');
        tl_buf_str(out, s->inst.raw);
    }
    if (s->n_operands > 0) {
        tl_buf_putc(out, ' ');
        print_list(out, s->inst.operands, s->n_operands);
    }
    tl_buf_putc(out, ';');
}

void tl_ptx_print_stmt(struct tl_buf *out, const struct tl_ptx_stmt *s, uint32_t indent)
{
    switch ((enum tl_ptx_stmt_kind)s->kind) {
    case TL_STMT_LABEL:
        tl_buf_str(out, s->label->name);
        tl_buf_puts(out, ":\n");
        return;
    case TL_STMT_TABLE:
        tl_buf_str(out, s->table.label->name);
        tl_buf_puts(out, ": ");
        tl_buf_str(out, s->table.text);
        tl_buf_puts(out, ";\n");
        return;
    case TL_STMT_TEXT:
        tl_buf_str(out, s->text);
        return;
    case TL_STMT_BLOCK:
        print_indent(out, indent);
        tl_buf_puts(out, "{\n");
        for (const struct tl_ptx_stmt *inner = s->block; inner != NULL; inner = inner->next)
            tl_ptx_print_stmt(out, inner, indent + 1);
        print_indent(out, indent);
        tl_buf_puts(out, "}\n");
        return;
    case TL_STMT_DECL:
        print_indent(out, indent);
        tl_ptx_print_decl(out, s->decl);
        break;
    case TL_STMT_DIRECTIVE:
        print_indent(out, indent);
        tl_buf_str(out, s->text);
        break;
    case TL_STMT_INST:
        print_indent(out, indent);
        print_inst(out, s);
        break;
    }
    tl_buf_putc(out, '\n');
}

static void print_params(struct tl_buf *out, const struct tl_ptx_decl *d)
{
    tl_buf_putc(out, '(');
    for (; d != NULL; d = d->next) {
        tl_buf_puts(out, "\n\t");
        print_single(out, d);
        tl_buf_putc(out, d->next != NULL ? ',' : '\n');
    }
    tl_buf_putc(out, ')');
}

void tl_ptx_print_func(struct tl_buf *out, const struct tl_ptx_func *f)
{
    tl_buf_str(out, f->prefix);
    tl_buf_putc(out, ' ');
    if (f->rets != NULL) {
        print_params(out, f->rets);
        tl_buf_putc(out, ' ');
    }
    tl_buf_str(out, f->name);
    if (f->has_param_list)
        print_params(out, f->params);
    if (f->directives.n > 0) {
        tl_buf_putc(out, '\n');
        tl_buf_str(out, f->directives);
    }
    if (!f->has_body) {
        tl_buf_puts(out, ";\n");
        return;
    }
    tl_buf_puts(out, "\n{\n");
    for (const struct tl_ptx_stmt *s = f->body; s != NULL; s = s->next)
        tl_ptx_print_stmt(out, s, 1);
    tl_buf_puts(out, "}\n");
}

/* --- whole modules ---------------------------------------------------------------------------- */

static int print_item(struct tl_buf *out, struct tl_ptx_unit *u, const struct tl_ptx_item *item)
{
    int rc;
    if (item->kind == TL_PTX_ITEM_VARIABLE) {
        struct tl_ptx_decl *d = NULL;
        rc = tl_ptx_parse_var(u, item, &d);
        if (rc == 0) {
            tl_ptx_print_decl(out, d);
            tl_buf_putc(out, '\n');
        }
        return rc;
    }
    if (item->kind == TL_PTX_ITEM_DIRECTIVE) {
        /* Debug sections are line-oriented data: they stay as they are. */
        tl_buf_add(out, u->ix->text + item->begin, item->end - item->begin);
        tl_buf_putc(out, '\n');
        return 0;
    }
    struct tl_ptx_func *f = NULL;
    rc = tl_ptx_parse_func(u, item, &f);
    if (rc == 0)
        tl_ptx_print_func(out, f);
    return rc;
}

int tl_ptx_format(const struct tl_ptx_index *ix, char **text, size_t *n, struct tl_error *err)
{
    struct tl_buf out = {0};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < ix->n_items; i++) {
        if (i > 0 && ix->items[i].begin == ix->items[i - 1].begin)
            continue; /* another name of the same declaration */
        struct tl_arena arena;
        struct tl_ptx_unit u;
        tl_arena_init(&arena, 0);
        rc = tl_ptx_unit_init(&u, ix, &arena, err);
        if (rc == 0)
            rc = print_item(&out, &u, &ix->items[i]);
        tl_ptx_unit_finish(&u);
        tl_arena_finish(&arena);
    }
    if (rc == 0 && out.failed)
        rc = tl_error_set(err, -ENOMEM, "%s: out of memory while printing", ix->name);
    *n = out.n;
    *text = rc == 0 ? tl_buf_take(&out) : NULL;
    tl_buf_finish(&out);
    return rc;
}
