/* Functions and statements: recursive descent over one item of the index. */
#include "ptx_rewrite/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ptx_rewrite/index.h"

int tl_parse_fail(struct tl_parser *p, uint32_t at, const char *format, ...)
{
    char what[300];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const struct tl_ptx_index *ix = p->unit->ix;
    return tl_ptx_syntax_error(p->unit->err, ix->name, ix->text, ix->n, at, "%s", what);
}

int tl_parse_no_memory(struct tl_parser *p)
{
    return tl_error_set(p->unit->err, -ENOMEM, "%s: out of memory while parsing",
                        p->unit->ix->name);
}

int tl_parse_expect(struct tl_parser *p, char punct, const char *where)
{
    if (!tl_lex_is(&p->lx, punct))
        return tl_parse_fail(p, p->lx.at, "'%c' should stand here, %s", punct, where);
    tl_lex_next(&p->lx);
    return 0;
}

/* Whether [from, to) reads the same after normalisation: no comments, no line breaks, no doubled
 * blanks. */
static bool is_normal(const char *text, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        char c = text[i];
        if (c == '"')
            return false; /* strings may hold anything: take the slow way */
        if ((c < ' ') || c == '/' || c == '#' || (c == ' ' && (i + 1 == to || text[i + 1] == ' ')))
            return false;
    }
    return true;
}

int tl_parse_normalised(struct tl_parser *p, uint32_t from, uint32_t to, struct tl_str *out)
{
    const char *text = p->lx.text;
    if (is_normal(text, from, to)) {
        *out = (struct tl_str){text + from, to - from};
        return 0;
    }
    char *copy = tl_arena_alloc(p->unit->arena, (size_t)(to - from) + 1);
    if (copy == NULL)
        return tl_parse_no_memory(p);
    struct tl_lex lx;
    uint32_t n = 0;
    for (tl_lex_init(&lx, text, from, to); lx.kind != TL_TOK_END; tl_lex_next(&lx)) {
        if (n > 0 && lx.at > lx.previous_end)
            copy[n++] = ' ';
        memcpy(copy + n, text + lx.at, lx.end - lx.at);
        n += lx.end - lx.at;
    }
    copy[n] = 0;
    *out = (struct tl_str){copy, n};
    return 0;
}

/* --- statements ------------------------------------------------------------------------------- */

static int parse_block(struct tl_parser *p, struct tl_ptx_stmt **out);

static struct tl_ptx_stmt *new_stmt(struct tl_parser *p, enum tl_ptx_stmt_kind kind)
{
    struct tl_ptx_stmt *s = tl_arena_zalloc(p->unit->arena, sizeof *s);
    if (s != NULL) {
        s->kind = (uint8_t)kind;
        s->at = p->lx.at;
    }
    return s;
}

/* The opcode with its modifiers, whether or not blanks stand between them. */
static int parse_form(struct tl_parser *p, const struct tl_ptx_form **out)
{
    struct tl_lex *lx = &p->lx;
    tl_lex_extend_opcode(lx);
    struct tl_str text = tl_lex_str(lx);
    tl_lex_next(lx);
    if (lx->kind == TL_TOK_DOTWORD) {
        struct tl_buf all = {0};
        tl_buf_str(&all, text);
        for (; lx->kind == TL_TOK_DOTWORD; tl_lex_next(lx))
            tl_buf_str(&all, tl_lex_str(lx));
        text.n = (uint32_t)all.n;
        text.p = all.failed
                     ? NULL
                     : tl_arena_copy(p->unit->arena, (struct tl_str){all.p, (uint32_t)all.n});
        tl_buf_finish(&all);
        if (text.p == NULL)
            return tl_parse_no_memory(p);
    }
    *out = tl_ptx_names_form(p->unit->names, text);
    return *out != NULL ? 0 : tl_parse_no_memory(p);
}

/* An unknown instruction keeps its text, as long as its brackets match and it ends. */
static int parse_raw(struct tl_parser *p, uint32_t from, struct tl_str *raw)
{
    struct tl_lex *lx = &p->lx;
    tl_lex_init(lx, lx->text, from, lx->limit);
    char closing[TL_PTX_MAX_NESTING];
    uint32_t depth = 0;
    for (; !(depth == 0 && tl_lex_is(lx, ';')); tl_lex_next(lx)) {
        if (lx->kind == TL_TOK_END || lx->kind == TL_TOK_BAD)
            return tl_parse_fail(p, from, "this instruction does not end");
        bool closes = tl_lex_is(lx, '}') || tl_lex_is(lx, ']') || tl_lex_is(lx, ')');
        if (closes && (depth == 0 || closing[--depth] != lx->punct)) {
            if (lx->punct == '}') /* that of the block: a ';' or a bracket is missing */
                return tl_parse_fail(p, from, "this instruction does not end");
            return tl_parse_fail(p, lx->at, "this '%c' closes nothing", lx->punct);
        }
        if (!tl_lex_is(lx, '{') && !tl_lex_is(lx, '[') && !tl_lex_is(lx, '('))
            continue;
        if (depth == TL_PTX_MAX_NESTING)
            return tl_parse_fail(p, lx->at, "operands are nested more than %d deep",
                                 TL_PTX_MAX_NESTING);
        closing[depth++] = lx->punct == '{' ? '}' : lx->punct == '[' ? ']' : ')';
    }
    return tl_parse_normalised(p, from, lx->previous_end, raw);
}

static int parse_guard(struct tl_parser *p, struct tl_ptx_stmt *s)
{
    struct tl_lex *lx = &p->lx;
    tl_lex_next(lx);
    if (tl_lex_is(lx, '!')) {
        s->guard_not = true;
        tl_lex_next(lx);
    }
    if (lx->kind != TL_TOK_WORD)
        return tl_parse_fail(p, lx->at, "a predicate should stand behind '@'");
    s->inst.guard = tl_ptx_names_resolve(p->unit->names, tl_lex_str(lx));
    if (s->inst.guard == NULL)
        return tl_parse_no_memory(p);
    if (s->inst.guard->kind != TL_SYM_REG)
        return tl_parse_fail(p, lx->at, "this predicate is not declared");
    tl_lex_next(lx);
    return lx->kind == TL_TOK_WORD
               ? 0
               : tl_parse_fail(p, lx->at, "an instruction should stand behind its guard");
}

static int parse_inst(struct tl_parser *p, struct tl_ptx_stmt **out)
{
    struct tl_lex *lx = &p->lx;
    struct tl_ptx_stmt *s = *out = new_stmt(p, TL_STMT_INST);
    if (s == NULL)
        return tl_parse_no_memory(p);
    int rc = tl_lex_is(lx, '@') ? parse_guard(p, s) : 0;
    if (rc < 0 || (rc = parse_form(p, &s->inst.form)) < 0)
        return rc;
    uint32_t operands = lx->at;
    enum tl_ptx_op op = s->inst.form->op;
    struct tl_error *err = p->unit->err;
    if (op == TL_OP_unknown)
        p->unit->err = NULL; /* not an error: its text is kept */
    rc = tl_parse_operands(p, op, &s->inst.operands, &s->n_operands);
    p->unit->err = err;
    if (rc == 1 || (rc == -EINVAL && op == TL_OP_unknown)) {
        s->n_operands = 0;
        rc = parse_raw(p, operands, &s->inst.raw);
    }
    if (rc < 0)
        return rc;
    s->end = lx->end;
    p->n_insts++;
    return tl_parse_expect(p, ';', "behind the instruction");
}

/* `name: .branchtargets a, b;` and its kin. */
static int parse_table(struct tl_parser *p, struct tl_ptx_stmt *s)
{
    struct tl_lex *lx = &p->lx;
    uint32_t from = lx->at;
    bool has_labels = tl_lex_is_dotword(lx, "branchtargets");
    s->kind = TL_STMT_TABLE;
    tl_lex_next(lx);
    if (has_labels) {
        uint16_t n = 0;
        int rc = tl_parse_operands(p, TL_OP_bra, &s->table.targets, &n);
        if (rc != 0)
            return rc < 0 ? rc : tl_parse_fail(p, from, "these branch targets are not labels");
        s->table.n_targets = n;
        return tl_parse_normalised(p, from, lx->previous_end, &s->table.text);
    }
    return parse_raw(p, from, &s->table.text);
}

static bool starts_table(const struct tl_lex *lx)
{
    return tl_lex_is_dotword(lx, "branchtargets") || tl_lex_is_dotword(lx, "calltargets") ||
           tl_lex_is_dotword(lx, "callprototype");
}

static int parse_label(struct tl_parser *p, struct tl_ptx_stmt **out)
{
    struct tl_lex *lx = &p->lx;
    struct tl_ptx_stmt *s = *out = new_stmt(p, TL_STMT_LABEL);
    if (s == NULL)
        return tl_parse_no_memory(p);
    struct tl_str name = tl_lex_str(lx);
    tl_lex_next(lx); /* ':' */
    tl_lex_next(lx);
    bool is_table = starts_table(lx), duplicate;
    struct tl_ptx_sym *sym = tl_ptx_names_define_label(
        p->unit->names, name, s, is_table ? TL_SYM_TABLE : TL_SYM_LABEL, &duplicate);
    if (sym == NULL)
        return duplicate ? tl_parse_fail(p, s->at, "this label exists already in this scope")
                         : tl_parse_no_memory(p);
    s->label = sym;
    s->end = lx->previous_end;
    if (!is_table)
        return 0;
    int rc = parse_table(p, s);
    s->table.label = sym;
    if (rc < 0)
        return rc;
    s->end = lx->end;
    return tl_parse_expect(p, ';', "behind the table");
}

/* .loc has no end mark, .pragma a semicolon; everything else ends with a semicolon, or with its
 * line if it has none there. */
static int parse_directive(struct tl_parser *p, struct tl_ptx_stmt *s)
{
    struct tl_lex *lx = &p->lx;
    bool is_pragma = tl_lex_is_dotword(lx, "pragma"), ended = false;
    s->kind = TL_STMT_DIRECTIVE;
    if (tl_lex_is_dotword(lx, "loc") || tl_lex_is_dotword(lx, "file")) {
        if (!tl_lex_skip_unterminated(lx))
            return tl_parse_fail(p, lx->at, "this directive should go on here");
    } else {
        do {
            if (lx->kind == TL_TOK_BAD || tl_lex_is(lx, '{') || tl_lex_is(lx, '}'))
                break;
            ended = tl_lex_is(lx, ';');
            tl_lex_next(lx);
        } while (!ended && lx->kind != TL_TOK_END && (is_pragma || !lx->first_on_line));
    }
    if (is_pragma && !ended)
        return tl_parse_fail(p, s->at, "this .pragma has no ';' at its end");
    s->end = lx->previous_end;
    return tl_parse_normalised(p, s->at, s->end, &s->text);
}

static bool starts_decl(const struct tl_lex *lx)
{
    static const char *const words[] = {"reg", "local",  "shared", "param",   "global", "const",
                                        "tex", "extern", "weak",   "visible", "common", "sreg"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (tl_lex_is_dotword(lx, words[i]))
            return true;
    }
    return false;
}

static int parse_stmt(struct tl_parser *p, struct tl_ptx_stmt **out)
{
    struct tl_lex *lx = &p->lx;
    if (lx->kind == TL_TOK_WORD && tl_lex_is_label(lx))
        return parse_label(p, out);
    if (lx->kind == TL_TOK_WORD || tl_lex_is(lx, '@'))
        return parse_inst(p, out);
    struct tl_ptx_stmt *s = *out = new_stmt(p, TL_STMT_BLOCK);
    if (s == NULL)
        return tl_parse_no_memory(p);
    if (tl_lex_is(lx, '{')) {
        int rc = parse_block(p, &s->block);
        s->end = lx->previous_end;
        return rc;
    }
    if (lx->kind != TL_TOK_DOTWORD)
        return tl_parse_fail(p, lx->at, "a statement should stand here");
    if (starts_table(lx))
        return tl_parse_fail(p, lx->at, "a label should stand before this table");
    if (!starts_decl(lx))
        return parse_directive(p, s);
    s->kind = TL_STMT_DECL;
    int rc = tl_parse_decls(p, true, &s->decl);
    s->end = lx->end;
    return rc < 0 ? rc : tl_parse_expect(p, ';', "behind the declaration");
}

/* From '{' to behind the matching '}', in a scope of its own. */
static int parse_block(struct tl_parser *p, struct tl_ptx_stmt **out)
{
    struct tl_ptx_stmt **link = out;
    *out = NULL;
    uint32_t open = p->lx.at;
    if (tl_ptx_names_depth(p->unit->names) >= TL_PTX_MAX_NESTING)
        return tl_parse_fail(p, open, "blocks are nested more than %d deep", TL_PTX_MAX_NESTING);
    if (tl_ptx_names_open(p->unit->names) < 0)
        return tl_parse_no_memory(p);
    tl_lex_next(&p->lx);
    while (!tl_lex_is(&p->lx, '}')) {
        if (p->lx.kind == TL_TOK_END)
            return tl_parse_fail(p, open, "this '{' is never closed");
        if (tl_lex_is(&p->lx, ';')) {
            tl_lex_next(&p->lx);
            continue;
        }
        int rc = parse_stmt(p, link);
        if (rc < 0)
            return rc;
        link = &(*link)->next;
    }
    tl_lex_next(&p->lx);
    uint32_t undefined_at = 0;
    int rc = tl_ptx_names_close(p->unit->names, &undefined_at);
    return rc == -ENOMEM ? tl_parse_no_memory(p) : rc;
}

/* --- functions -------------------------------------------------------------------------------- */

static int parse_header(struct tl_parser *p, struct tl_ptx_func *f)
{
    struct tl_lex *lx = &p->lx;
    uint32_t from = lx->at;
    while (lx->kind == TL_TOK_DOTWORD && !tl_lex_is_dotword(lx, "entry") &&
           !tl_lex_is_dotword(lx, "func"))
        tl_lex_next(lx);
    f->is_entry = tl_lex_is_dotword(lx, "entry");
    tl_lex_next(lx);
    int rc = tl_parse_normalised(p, from, lx->previous_end, &f->prefix);
    if (rc == 0 && tl_lex_is(lx, '('))
        rc = tl_parse_params(p, &f->rets);
    if (rc < 0)
        return rc;
    if (lx->kind != TL_TOK_WORD)
        return tl_parse_fail(p, lx->at, "the function's name should stand here");
    f->name = tl_lex_str(lx);
    tl_lex_next(lx);
    if (tl_lex_is(lx, '(')) {
        f->has_param_list = true;
        if ((rc = tl_parse_params(p, &f->params)) < 0)
            return rc;
    }
    uint32_t directives = lx->at;
    uint32_t end = f->item->body != 0 ? f->item->body : f->item->end - 1;
    while (lx->kind != TL_TOK_END && lx->at < end)
        tl_lex_next(lx);
    return lx->previous_end <= directives
               ? 0
               : tl_parse_normalised(p, directives, lx->previous_end, &f->directives);
}

int tl_ptx_parse_func(struct tl_ptx_unit *u, const struct tl_ptx_item *item,
                      struct tl_ptx_func **out)
{
    struct tl_parser p = {.unit = u};
    struct tl_ptx_func *f = tl_arena_zalloc(u->arena, sizeof *f);
    if (f == NULL || tl_ptx_names_open(u->names) < 0)
        return tl_parse_no_memory(&p);
    f->item = item;
    f->has_body = item->body != 0;
    tl_lex_init(&p.lx, u->ix->text, item->begin, item->end);
    uint32_t undefined_at = 0;
    int rc = parse_header(&p, f);
    if (rc == 0 && f->has_body)
        rc = parse_block(&p, &f->body);
    if (rc == 0) {
        f->n_regs = tl_ptx_names_regs(u->names);
        f->n_labels = tl_ptx_names_labels(u->names);
        f->n_insts = p.n_insts;
        rc = tl_ptx_names_close(u->names, &undefined_at);
        if (rc == -ENOMEM)
            rc = tl_parse_no_memory(&p);
        else if (rc < 0)
            rc = tl_parse_fail(&p, undefined_at, "this label is not defined");
    }
    if (rc < 0)
        tl_ptx_names_reset(u->names);
    *out = f;
    return rc;
}

int tl_ptx_parse_var(struct tl_ptx_unit *u, const struct tl_ptx_item *item,
                     struct tl_ptx_decl **out)
{
    struct tl_parser p = {.unit = u};
    tl_lex_init(&p.lx, u->ix->text, item->begin, item->end);
    int rc = tl_parse_decls(&p, false, out);
    if (rc == 0 && !tl_lex_is(&p.lx, ';'))
        rc = tl_parse_fail(&p, p.lx.at, "';' should stand here, behind the declaration");
    return rc;
}

int tl_ptx_unit_init(struct tl_ptx_unit *u, const struct tl_ptx_index *ix, struct tl_arena *arena,
                     struct tl_error *err)
{
    *u = (struct tl_ptx_unit){.ix = ix, .arena = arena, .err = err};
    if (tl_ptx_names_create(&u->names, ix, arena) < 0)
        return tl_error_set(err, -ENOMEM, "%s: out of memory", ix->name);
    return 0;
}

void tl_ptx_unit_finish(struct tl_ptx_unit *u)
{
    tl_ptx_names_destroy(u->names);
    u->names = NULL;
}

bool tl_ptx_unit_knows(struct tl_ptx_unit *u, struct tl_str name)
{
    return tl_ptx_names_knows(u->names, name);
}
