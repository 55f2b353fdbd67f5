/* From a kernel to a variant of it: parse what it reaches, judge, run the passes, print a
 * module. */
#include "ptx_rewrite/rewrite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ptx_rewrite/index.h"
#include "ptx_rewrite/lex.h"
#include "ptx_rewrite/names.h"

/* --- helpers of the passes -------------------------------------------------------------------- */

static void put_with_prefix(struct tl_rewriter *rw, struct tl_buf *out, const char *format,
                            va_list args)
{
    /* The prefix is put into the format, not into the result: arguments may hold '$'. */
    struct tl_buf expanded = {0};
    for (const char *p = format; *p != 0; p++) {
        if (*p == '$')
            tl_buf_puts(&expanded, rw->prefix);
        else
            tl_buf_putc(&expanded, *p);
    }
    if (expanded.failed)
        rw->failed = true;
    else
        tl_buf_vprintf(out, expanded.p, args);
    tl_buf_finish(&expanded);
}

void tl_rw_put(struct tl_rewriter *rw, struct tl_buf *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_with_prefix(rw, out, format, args);
    va_end(args);
}

const char *tl_rw_text(struct tl_rewriter *rw, const char *format, ...)
{
    struct tl_buf out = {0};
    va_list args;
    va_start(args, format);
    put_with_prefix(rw, &out, format, args);
    va_end(args);
    const char *text = out.failed
                           ? NULL
                           : tl_arena_copy(rw->arena, (struct tl_str){out.p, (uint32_t)out.n});
    tl_buf_finish(&out);
    if (text == NULL)
        rw->failed = true;
    return text != NULL ? text : "";
}

const char *tl_rw_arg(struct tl_rewriter *rw, enum tl_ptx_arg_kind kind, uint32_t which)
{
    for (uint32_t i = 0; i < rw->n_args; i++) {
        if (rw->args[i].kind == kind && rw->args[i].which == which)
            return rw->args[i].name;
    }
    rw->failed = true; /* only when adding it ran out of memory */
    return "";
}

const char *tl_rw_b32(struct tl_rewriter *rw)
{
    return tl_rw_text(rw, "%%$r%u", rw->n_b32++);
}

const char *tl_rw_b64(struct tl_rewriter *rw)
{
    return tl_rw_text(rw, "%%$d%u", rw->n_b64++);
}

void tl_rw_set_operand(struct tl_ptx_operand *o, const char *text)
{
    o->kind = TL_OPD_TEXT;
    o->component = 0;
    o->has_offset = false;
    o->text = text;
}

void tl_rw_set_form(struct tl_rewriter *rw, struct tl_ptx_stmt *s, const char *form)
{
    const struct tl_ptx_form *f = tl_ptx_names_form(rw->p->unit.names, tl_str_of(form));
    if (f != NULL)
        s->inst.form = f;
    else
        rw->failed = true;
}

void tl_rw_add_arg(struct tl_rewriter *rw, enum tl_ptx_arg_kind kind, uint32_t which,
                   const char *variable)
{
    if (rw->n_args == rw->cap_args) {
        uint32_t cap = rw->cap_args == 0 ? TL_MAX_FIXED_ARGS : rw->cap_args * 2;
        struct tl_ptx_arg *args = tl_arena_alloc(rw->arena, cap * sizeof *args);
        if (args == NULL) {
            rw->failed = true;
            return;
        }
        if (rw->n_args > 0)
            memcpy(args, rw->args, rw->n_args * sizeof *args);
        rw->args = args;
        rw->cap_args = cap;
    }
    bool is_address = kind == TL_PTX_ARG_STOP_WORD || kind == TL_PTX_ARG_COUNTER ||
                      kind == TL_PTX_ARG_VARIABLE || kind == TL_PTX_ARG_TOLD;
    bool is_numbered = kind == TL_PTX_ARG_STOP_WORD || kind == TL_PTX_ARG_VARIABLE;
    static const char *const names[TL_PTX_ARG_KINDS] = {
        [TL_PTX_ARG_FIRST_BLOCK] = "first", [TL_PTX_ARG_GRID_X] = "grid_x",
        [TL_PTX_ARG_GRID_Y] = "grid_y",     [TL_PTX_ARG_GRID_Z] = "grid_z",
        [TL_PTX_ARG_BLOCKS] = "blocks",     [TL_PTX_ARG_MAGIC_X] = "magic_x",
        [TL_PTX_ARG_SHIFT_X] = "shift_x",   [TL_PTX_ARG_MAGIC_Y] = "magic_y",
        [TL_PTX_ARG_SHIFT_Y] = "shift_y",   [TL_PTX_ARG_COUNTER] = "counter",
        [TL_PTX_ARG_STOP_WORD] = "stop",    [TL_PTX_ARG_BATCH_MASK] = "batch_mask",
        [TL_PTX_ARG_VARIABLE] = "variable", [TL_PTX_ARG_BASE] = "base",
        [TL_PTX_ARG_TOLD] = "told",         [TL_PTX_ARG_LEFT_END] = "left_end",
    };
    rw->args[rw->n_args++] = (struct tl_ptx_arg){
        .kind = kind,
        .size = is_address ? 8 : 4,
        .which = which,
        .name = is_numbered ? tl_rw_text(rw, "$%s%u", names[kind], which)
                            : tl_rw_text(rw, "$%s", names[kind]),
        .variable = variable,
    };
}

const char *tl_ptx_arg_kind_name(enum tl_ptx_arg_kind k)
{
    static const char *const names[] = {
#define NAME(id, name) name,
        TL_PTX_ARGS(NAME)
#undef NAME
    };
    return (unsigned)k < TL_PTX_ARG_KINDS ? names[k] : "?";
}

struct tl_ptx_magic tl_ptx_magic_of(uint32_t d)
{
    /* With l = ceil(log2 d) and m = ceil(2^(31 + l) / d): m < 2^32, and n * m >> (31 + l) is exact
     * for n < 2^31. */
    struct tl_ptx_magic r = {1u << 31, 0};
    if (d <= 1)
        return r;
    while (r.shift < 31 && (1u << r.shift) < d)
        r.shift++;
    r.magic = (uint32_t)((((uint64_t)1 << (31 + r.shift)) + d - 1) / d);
    return r;
}

/* The value of one parameter; `address` is the variable's, if it is one. */
static uint64_t value_of(const struct tl_ptx_arg *a, const struct tl_ptx_extra *x, uint64_t address)
{
    switch (a->kind) {
    case TL_PTX_ARG_FIRST_BLOCK:
        return x->first;
    case TL_PTX_ARG_GRID_X:
        return x->grid[0];
    case TL_PTX_ARG_GRID_Y:
        return x->grid[1];
    case TL_PTX_ARG_GRID_Z:
        return x->grid[2];
    case TL_PTX_ARG_BLOCKS:
        return x->blocks;
    case TL_PTX_ARG_MAGIC_X:
        return tl_ptx_magic_of(x->grid[0]).magic;
    case TL_PTX_ARG_SHIFT_X:
        return tl_ptx_magic_of(x->grid[0]).shift;
    case TL_PTX_ARG_MAGIC_Y:
        return tl_ptx_magic_of(x->grid[1]).magic;
    case TL_PTX_ARG_SHIFT_Y:
        return tl_ptx_magic_of(x->grid[1]).shift;
    case TL_PTX_ARG_COUNTER:
        return x->counter;
    case TL_PTX_ARG_BASE:
        return x->base;
    case TL_PTX_ARG_TOLD:
        return x->told;
    case TL_PTX_ARG_LEFT_END:
        return x->left_end;
    case TL_PTX_ARG_STOP_WORD:
        return x->words[a->which % TL_PTX_STOP_WORDS];
    case TL_PTX_ARG_BATCH_MASK:
        return x->batch_mask;
    case TL_PTX_ARG_VARIABLE:
        return address;
    case TL_PTX_ARG_KINDS:
        break;
    }
    return 0;
}

void tl_ptx_put_args(const struct tl_ptx_arg *args, uint32_t n, const struct tl_ptx_extra *x,
                     uint8_t *params)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t value = value_of(&args[i], x, x->variables != NULL ? x->variables[i] : 0);
        memcpy(params + args[i].offset, &value, args[i].size);
    }
}

/* --- walking ---------------------------------------------------------------------------------- */

/* A pragma speaks of the instruction behind it, so nothing may come between the two. */
bool tl_rw_is_pragma(const struct tl_ptx_stmt *s)
{
    return s->kind == TL_STMT_DIRECTIVE && tl_str_starts(s->text, ".pragma");
}

static bool is_line_info(const struct tl_ptx_stmt *s)
{
    return s->kind == TL_STMT_DIRECTIVE &&
           (tl_str_starts(s->text, ".loc") || tl_str_starts(s->text, ".file"));
}

struct tl_ptx_stmt *tl_rw_text_stmt(struct tl_rewriter *rw, struct tl_buf *text)
{
    struct tl_ptx_stmt *s = tl_arena_zalloc(rw->arena, sizeof *s);
    char *copy = text->failed
                     ? NULL
                     : tl_arena_copy(rw->arena, (struct tl_str){text->p, (uint32_t)text->n});
    if (s == NULL || copy == NULL) {
        rw->failed = true;
        return NULL;
    }
    s->kind = TL_STMT_TEXT;
    s->text = (struct tl_str){copy, (uint32_t)text->n};
    return s;
}

static void rewrite_list(struct tl_rewriter *rw, struct tl_ptx_stmt **link)
{
    struct tl_ptx_stmt **insert_at = link;
    while (*link != NULL && !rw->failed) {
        struct tl_ptx_stmt *s = *link;
        if (is_line_info(s)) { /* its file table stays behind in the original module */
            *link = s->next;
            continue;
        }
        if (s->kind == TL_STMT_BLOCK)
            rewrite_list(rw, &s->block);
        if (s->kind == TL_STMT_INST) {
            rw->before.n = 0;
            tl_rw_vars(rw, s);
            tl_rw_grid(rw, s);
            tl_rw_blocks(rw, s);
            struct tl_ptx_stmt *before = rw->before.n > 0 ? tl_rw_text_stmt(rw, &rw->before) : NULL;
            if (before != NULL) {
                before->next = *insert_at;
                *insert_at = before;
            }
        }
        link = &s->next;
        if (!tl_rw_is_pragma(s))
            insert_at = link;
    }
}

/* Rewrites one function: its statements, then what has to stand before and behind them. */
static void rewrite_func(struct tl_rewriter *rw, struct tl_ptx_program_func *pf)
{
    rw->func = pf->func;
    rw->in_entry = pf == rw->p->entry;
    rw->n_b32 = rw->n_b64 = 0;
    tl_rw_forget(rw);
    tl_rw_scopes(rw);
    rewrite_list(rw, &pf->func->body);
    struct tl_buf begin = {0}, prologue = {0}, epilogue = {0};
    tl_rw_prologue(rw, &prologue);
    tl_rw_epilogue(rw, &epilogue);
    if (rw->n_b32 > 0)
        tl_rw_put(rw, &begin, "\t.reg .b32 %%$r<%u>;\n", rw->n_b32);
    if (rw->n_b64 > 0)
        tl_rw_put(rw, &begin, "\t.reg .b64 %%$d<%u>;\n", rw->n_b64);
    tl_buf_add(&begin, prologue.p, prologue.n);
    if (begin.n > 0) {
        struct tl_ptx_stmt *s = tl_rw_text_stmt(rw, &begin);
        if (s != NULL) {
            s->next = pf->func->body;
            pf->func->body = s;
        }
    }
    if (epilogue.n > 0) {
        struct tl_ptx_stmt **end = &pf->func->body;
        while (*end != NULL)
            end = &(*end)->next;
        *end = tl_rw_text_stmt(rw, &epilogue);
    }
    tl_buf_finish(&begin);
    tl_buf_finish(&prologue);
    tl_buf_finish(&epilogue);
}

/* --- parameters ------------------------------------------------------------------------------- */

static void plan(struct tl_rewriter *rw)
{
    /* Addresses first, so that nothing is lost to alignment. */
    tl_rw_plan_blocks(rw);
    if (tl_rw_plan_vars(rw) < 0)
        rw->failed = true;
    if (rw->variant == TL_PTX_SLICE) {
        tl_rw_add_arg(rw, TL_PTX_ARG_FIRST_BLOCK, 0, NULL);
    } else {
        tl_rw_add_arg(rw, TL_PTX_ARG_BLOCKS, 0, NULL);
        tl_rw_add_arg(rw, TL_PTX_ARG_BASE, 0, NULL);
        tl_rw_add_arg(rw, TL_PTX_ARG_LEFT_END, 0, NULL);
        if (rw->variant == TL_PTX_PERSISTENT)
            tl_rw_add_arg(rw, TL_PTX_ARG_BATCH_MASK, 0, NULL);
    }
    tl_rw_plan_grid(rw);
}

/* Appends the extra parameters to the entry and works out where they stand. */
static void append_params(struct tl_rewriter *rw, struct tl_ptx_rewritten *out)
{
    struct tl_ptx_func *f = rw->p->entry->func;
    struct tl_ptx_decl **link = &f->params;
    if (!tl_ptx_params_layout(f->params, &out->original_bytes, &out->original_params))
        rw->failed = true; /* judged before: cannot happen */
    uint32_t offset = out->original_bytes, index = out->original_params;
    while (*link != NULL)
        link = &(*link)->next;
    for (uint32_t i = 0; i < rw->n_args && !rw->failed; i++) {
        struct tl_ptx_arg *a = &rw->args[i];
        struct tl_ptx_decl *d = tl_arena_zalloc(rw->arena, sizeof *d);
        if (d == NULL) {
            rw->failed = true;
            return;
        }
        offset = (offset + a->size - 1) / a->size * a->size;
        a->offset = offset;
        a->index = index++;
        offset += a->size;
        d->prefix = a->size == 8 ? TL_STR(".param .u64") : TL_STR(".param .u32");
        d->name = tl_str_of(a->name);
        d->vec = d->count = 1;
        *link = d;
        link = &d->next;
    }
    f->has_param_list = true;
    out->param_bytes = offset;
    out->args = rw->args;
    out->n_args = rw->n_args;
}

/* --- printing --------------------------------------------------------------------------------- */

/* Version, target and address size as in the original; a debug target would ask for the line tables
 * that we drop. */
static void print_header(struct tl_rewriter *rw, struct tl_buf *out)
{
    const struct tl_ptx_index *ix = rw->p->unit.ix;
    for (uint32_t i = 0; i < ix->n_items; i++) {
        const struct tl_ptx_item *item = &ix->items[i];
        struct tl_lex lx;
        if (item->kind != TL_PTX_ITEM_DIRECTIVE)
            continue;
        bool is_target = tl_str_is(item->name, ".target");
        if (!is_target && !tl_str_is(item->name, ".version") &&
            !tl_str_is(item->name, ".address_size") && !tl_str_is(item->name, ".pragma"))
            continue;
        uint32_t words = 0;
        for (tl_lex_init(&lx, ix->text, item->begin, item->end); lx.kind != TL_TOK_END;
             tl_lex_next(&lx)) {
            if (is_target &&
                (tl_lex_is(&lx, ',') || (words > 1 && tl_str_is(tl_lex_str(&lx), "debug"))))
                continue;
            bool needs_comma = is_target && words >= 2;
            if (words++ > 0 && !tl_lex_is(&lx, ';'))
                tl_buf_puts(out, needs_comma ? ", " : " ");
            tl_buf_str(out, tl_lex_str(&lx));
        }
        tl_buf_putc(out, '\n');
    }
}

static void print_functions(struct tl_rewriter *rw, struct tl_buf *out)
{
    /* Declarations first, so that the order of the bodies does not matter. */
    for (struct tl_ptx_program_func *f = rw->p->funcs; f != NULL; f = f->next) {
        struct tl_ptx_func declaration = *f->func;
        declaration.has_body = false;
        if (f != rw->p->entry)
            tl_ptx_print_func(out, &declaration);
    }
    for (struct tl_ptx_program_func *f = rw->p->funcs; f != NULL; f = f->next) {
        if (f->func->has_body && f != rw->p->entry)
            tl_ptx_print_func(out, f->func);
        if (f->alias_of.n > 0)
            tl_buf_printf(out, ".alias " TL_STR_FMT ", " TL_STR_FMT ";\n",
                          TL_STR_ARG(f->func->name), TL_STR_ARG(f->alias_of));
    }
    tl_ptx_print_func(out, rw->p->entry->func);
}

/* --- all together ----------------------------------------------------------------------------- */

static bool text_has(const struct tl_ptx_index *ix, const struct tl_ptx_item *item,
                     const char *word)
{
    return memmem(ix->text + item->begin, item->end - item->begin, word, strlen(word)) != NULL;
}

/* A beginning for our names that occurs in nothing that the variant's text will hold. */
static void choose_prefix(struct tl_rewriter *rw)
{
    const struct tl_ptx_index *ix = rw->p->unit.ix;
    rw->prefix = "tally_";
    for (uint32_t i = 1; i < 1000; i++) {
        bool is_taken = false;
        for (struct tl_ptx_program_func *f = rw->p->funcs; f != NULL; f = f->next)
            is_taken |= text_has(ix, f->func->item, rw->prefix);
        for (struct tl_ptx_program_var *v = rw->p->vars; v != NULL; v = v->next)
            is_taken |= text_has(ix, v->sym->item, rw->prefix);
        if (!is_taken)
            return;
        rw->prefix = tl_arena_printf(rw->arena, "tally%u_", i);
        if (rw->prefix == NULL) {
            rw->prefix = "tally_";
            break;
        }
    }
    rw->failed = true;
}

/* Adds `.maxnreg` to what the entry says about its launches, unless it has one. */
static void limit_registers(struct tl_rewriter *rw, struct tl_ptx_func *entry, uint32_t limit)
{
    static const char directive[] = ".maxnreg";
    bool has_one = entry->directives.n > 0 && memmem(entry->directives.p, entry->directives.n,
                                                     directive, sizeof directive - 1) != NULL;
    if (limit == 0 || has_one)
        return;
    char *text = tl_arena_printf(rw->arena, TL_STR_FMT "%s%s %u", TL_STR_ARG(entry->directives),
                                 entry->directives.n > 0 ? " " : "", directive, limit);
    if (text == NULL)
        rw->failed = true;
    else
        entry->directives = tl_str_of(text);
}

/* Whether a function or variable of the variant's module is called so. */
static bool is_used_name(const struct tl_rewriter *rw, const char *name)
{
    for (struct tl_ptx_program_func *f = rw->p->funcs; f != NULL; f = f->next)
        if (tl_str_is(f->func->name, name))
            return true;
    for (struct tl_ptx_program_var *v = rw->p->vars; v != NULL; v = v->next)
        if (tl_str_is(v->decl->name, name))
            return true;
    return false;
}

/* All functions of the program, the parameters and the name that the new kernel gets. */
static int rewrite_program(struct tl_rewriter *rw, const struct tl_ptx_options *options,
                           struct tl_ptx_rewritten *out)
{
    struct tl_ptx_func *entry = rw->p->entry->func;
    choose_prefix(rw);
    plan(rw);
    for (struct tl_ptx_program_func *f = rw->p->funcs; f != NULL && !rw->failed; f = f->next) {
        if (f->func->has_body)
            rewrite_func(rw, f);
    }
    append_params(rw, out);
    limit_registers(rw, entry, options->max_registers);
    out->entry = options->entry != NULL
                     ? tl_arena_copy(rw->arena, tl_str_of(options->entry))
                     : tl_arena_printf(rw->arena, TL_STR_FMT "__tally_%s%u",
                                       TL_STR_ARG(entry->name), tl_ptx_variant_name(rw->variant),
                                       rw->dims);
    while (out->entry != NULL && options->entry == NULL && is_used_name(rw, out->entry))
        out->entry = tl_arena_printf(rw->arena, "%s_", out->entry);
    if (out->entry == NULL || rw->failed)
        return -ENOMEM;
    entry->name = tl_str_of(out->entry);
    entry->prefix = TL_STR(".visible .entry");
    struct tl_buf text = {0};
    print_header(rw, &text);
    tl_rw_print_vars(rw, &text);
    print_functions(rw, &text);
    out->text = text.failed || rw->failed
                    ? NULL
                    : tl_arena_copy(rw->arena, (struct tl_str){text.p, (uint32_t)text.n});
    out->text_bytes = text.n;
    out->uses_slot = rw->uses_slot;
    out->table = rw->table;
    out->n_table = rw->n_table;
    out->table_name = rw->n_table > 0 ? tl_rw_text(rw, "$table") : NULL;
    tl_buf_finish(&text);
    return out->text != NULL ? 0 : -ENOMEM;
}

static int no_memory(const struct tl_ptx_index *ix, struct tl_str kernel, struct tl_error *err)
{
    return tl_error_set(err, -ENOMEM, "%s: out of memory while rewriting '" TL_STR_FMT "'",
                        ix->name, TL_STR_ARG(kernel));
}

int tl_ptx_rewrite(const struct tl_ptx_index *ix, struct tl_str kernel,
                   const struct tl_ptx_options *options, struct tl_ptx_rewritten *out,
                   struct tl_ptx_verdict *verdict, struct tl_error *err)
{
    struct tl_ptx_program p;
    struct tl_ptx_findings f;
    *out = (struct tl_ptx_rewritten){0};
    tl_arena_init(&out->arena, 0);
    if ((unsigned)options->variant >= TL_PTX_VARIANTS || options->grid_dims > 3)
        return tl_error_set(err, -EINVAL, "no such variant (%d) or number of grid dimensions (%u)",
                            (int)options->variant, options->grid_dims);
    struct tl_rewriter rw = {.p = &p, .f = &f, .arena = &out->arena, .variant = options->variant};
    rw.dims = options->grid_dims == 0 ? 3 : options->grid_dims;
    int rc = tl_ptx_program_init(&p, ix, kernel, &out->arena, err);
    if (rc == 0 && tl_ptx_find(&f, &p) < 0)
        rc = no_memory(ix, kernel, err);
    if (rc == 0) {
        struct tl_ptx_verdict *v = &f.verdicts[rw.variant];
        if (rw.dims > 1 && (v->conditions & TL_PTX_IF_GRID_IS_LINE)) {
            v->reason = TL_PTX_REASON_BLOCK_WAIT;
            v->conditions = 0;
            snprintf(v->note, sizeof v->note,
                     "waits for earlier blocks, but only in a grid of one dimension");
        }
        if (verdict != NULL)
            *verdict = *v;
        bool waits = v->reason == TL_PTX_REASON_BLOCK_WAIT ||
                     v->reason == TL_PTX_REASON_GRID_BARRIER;
        if (waits && options->trusts_waits)
            v->reason = TL_PTX_REASON_OK;
        if (v->reason != TL_PTX_REASON_OK)
            rc = tl_error_set(err, -EPERM,
                              "%s: kernel '" TL_STR_FMT "' has no %s variant: it %s (line %u: %s)",
                              ix->name, TL_STR_ARG(kernel), tl_ptx_variant_name(rw.variant),
                              tl_ptx_reason_text(v->reason), v->place.line, v->note);
        out->conditions = v->conditions;
        if (waits || v->note[0] != '\0') /* an argument for each loop that depends on others */
            out->conditions |= TL_PTX_IF_TAKEN_SINGLY;
    }
    if (rc == 0 && rewrite_program(&rw, options, out) < 0)
        rc = no_memory(ix, kernel, err);
    tl_buf_finish(&rw.before);
    tl_ptx_program_finish(&p);
    if (rc < 0)
        tl_ptx_rewritten_finish(out);
    return rc;
}

void tl_ptx_rewritten_finish(struct tl_ptx_rewritten *r)
{
    tl_arena_finish(&r->arena);
    *r = (struct tl_ptx_rewritten){0};
}

int tl_ptx_extract(const struct tl_ptx_index *ix, struct tl_str kernel, char **text, size_t *n,
                   struct tl_error *err)
{
    uint64_t unused;
    return tl_ptx_extract_within(ix, kernel, UINT64_MAX, &unused, text, n, err);
}

int tl_ptx_extract_within(const struct tl_ptx_index *ix, struct tl_str kernel, uint64_t most,
                          uint64_t *left_out, char **text, size_t *n, struct tl_error *err)
{
    struct tl_arena arena;
    struct tl_ptx_program p;
    struct tl_buf out = {0};
    tl_arena_init(&arena, 0);
    struct tl_rewriter rw = {.p = &p, .arena = &arena};
    int rc = tl_ptx_program_init(&p, ix, kernel, &arena, err);
    *left_out = rc == 0 ? tl_ptx_program_pointee_bytes(&p) : 0;
    if (*left_out <= most) {
        *left_out = 0;
        rc = rc == 0 ? tl_ptx_program_add_pointees(&p, false) : rc;
    }
    if (rc == 0) {
        print_header(&rw, &out);
        for (const struct tl_ptx_program_var *v = p.vars; v != NULL; v = v->next) {
            struct tl_ptx_decl alone = *v->decl;
            alone.next = NULL;
            alone.init = (struct tl_str){
                0}; /* the values stand in the original; initialisers may name what is not here */
            tl_ptx_print_decl(&out, &alone);
            tl_buf_putc(&out, '\n');
        }
        print_functions(&rw, &out);
        if (out.failed)
            rc = no_memory(ix, kernel, err);
    }
    *n = out.n;
    *text = rc == 0 ? tl_buf_take(&out) : NULL;
    tl_buf_finish(&out);
    tl_ptx_program_finish(&p);
    tl_arena_finish(&arena);
    return rc;
}
