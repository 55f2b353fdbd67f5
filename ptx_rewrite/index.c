/* The fast pass: what stands at module scope, and where.  Bodies and debug sections are skipped by
 * counting braces. */
#include "ptx_rewrite/index.h"
#include "tally/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/lex.h"

/* State of the pass: the index being filled and the lexer over its text. */
struct pass {
    struct tl_ptx_index *ix;
    struct tl_lex lx;
    struct tl_error *err;
};

static int fail(struct pass *p, uint32_t at, const char *what)
{
    return tl_ptx_syntax_error(p->err, p->ix->name, p->ix->text, p->ix->n, at, "%s", what);
}

static int add_item(struct pass *p, struct tl_ptx_item item)
{
    struct tl_ptx_index *ix = p->ix;
    if (!TL_ARRAY_FIT(ix->items, ix->cap_items, ix->n_items + 1))
        return tl_error_set(p->err, -ENOMEM, "%s: out of memory", ix->name);
    ix->items[ix->n_items++] = item;
    return 0;
}

/* Moves to the first token of the next line; the directive ends where the last token on its line
 * did. */
static uint32_t skip_line(struct tl_lex *lx)
{
    uint32_t end;
    do {
        end = lx->end;
        tl_lex_next(lx);
    } while (lx->kind != TL_TOK_END && lx->kind != TL_TOK_BAD && !lx->first_on_line);
    return end;
}

/* A directive that we do not know ends at its semicolon, at the brace that closes what it opened,
 * or else with its line. */
static int skip_unknown(struct pass *p, uint32_t *end)
{
    struct tl_lex *lx = &p->lx;
    do {
        if (tl_lex_is(lx, '{')) {
            uint32_t open = lx->at;
            if (!tl_lex_skip_braces(lx))
                return fail(p, open, "this '{' is never closed");
            *end = lx->previous_end;
            return 0;
        }
        *end = lx->end;
        bool last = tl_lex_is(lx, ';');
        tl_lex_next(lx);
        if (last)
            return 0;
    } while (lx->kind != TL_TOK_END && lx->kind != TL_TOK_BAD && !lx->first_on_line);
    return 0;
}

static int skip_to_semicolon(struct pass *p, uint32_t begin, uint32_t *end)
{
    struct tl_lex *lx = &p->lx;
    while (!tl_lex_is(lx, ';')) {
        if (lx->kind == TL_TOK_END || lx->kind == TL_TOK_BAD)
            return fail(p, begin, "this directive has no ';' at its end");
        tl_lex_next(lx);
    }
    *end = lx->end;
    tl_lex_next(lx);
    return 0;
}

static int skip_unterminated(struct pass *p, uint32_t *end)
{
    if (!tl_lex_skip_unterminated(&p->lx))
        return fail(p, p->lx.at, "this directive should go on here");
    *end = p->lx.previous_end;
    return 0;
}

/* A directive that is not a variable or a function: what the module says of itself is kept, the
 * rest passed over. */
static int directive(struct pass *p, uint32_t begin)
{
    struct tl_lex *lx = &p->lx;
    struct tl_str word = tl_lex_str(lx);
    uint32_t end = lx->end;
    int rc = 0;
    if (tl_str_is(word, ".version") || tl_str_is(word, ".target") ||
        tl_str_is(word, ".address_size")) {
        struct tl_lex argument = *lx;
        tl_lex_next(&argument);
        struct tl_str value = tl_lex_str(&argument);
        if (argument.kind != TL_TOK_WORD && argument.kind != TL_TOK_NUMBER)
            return fail(p, argument.at, "a version, target or size should stand here");
        if (tl_str_is(word, ".version"))
            p->ix->version = value;
        else if (tl_str_is(word, ".target"))
            p->ix->target = value;
        else
            p->ix->address_size = tl_str_is(value, "64") ? 64 : 32;
        rc = skip_unterminated(p, &end);
    } else if (tl_str_is(word, ".file") || tl_str_is(word, ".loc")) {
        rc = skip_unterminated(p, &end);
    } else if (tl_lex_is(lx, '@')) {
        end = skip_line(lx);
    } else if (tl_str_is(word, ".section")) {
        while (lx->kind != TL_TOK_END && lx->kind != TL_TOK_BAD && !tl_lex_is(lx, '{'))
            tl_lex_next(lx);
        uint32_t open = lx->at;
        if (!tl_lex_is(lx, '{') || !tl_lex_skip_braces(lx))
            return fail(p, open < p->ix->n ? open : begin, "this section has no closing '}'");
        end = lx->previous_end;
    } else if (tl_str_is(word, ".pragma") || tl_str_is(word, ".alias")) {
        rc = skip_to_semicolon(p, begin, &end);
    } else {
        rc = skip_unknown(p, &end);
    }
    if (rc < 0)
        return rc;
    return add_item(p,
                    (struct tl_ptx_item){
                        .kind = TL_PTX_ITEM_DIRECTIVE, .name = word, .begin = begin, .end = end});
}

/* Behind the parenthesis that closes the one at the current token. */
static int skip_parens(struct pass *p)
{
    struct tl_lex *lx = &p->lx;
    uint32_t open = lx->at, depth = 0;
    do {
        if (tl_lex_is(lx, '('))
            depth++;
        else if (tl_lex_is(lx, ')'))
            depth--;
        else if (lx->kind == TL_TOK_END || lx->kind == TL_TOK_BAD || tl_lex_is(lx, '{') ||
                 tl_lex_is(lx, ';'))
            return fail(p, open, "this '(' is never closed");
        tl_lex_next(lx);
    } while (depth > 0);
    return 0;
}

/* The name of a function or variable: the first word outside parentheses. */
static int find_name(struct pass *p, struct tl_str *name)
{
    struct tl_lex *lx = &p->lx;
    while (lx->kind != TL_TOK_WORD) {
        if (tl_lex_is(lx, '(')) {
            int rc = skip_parens(p);
            if (rc < 0)
                return rc;
        } else if (lx->kind == TL_TOK_DOTWORD || lx->kind == TL_TOK_NUMBER || tl_lex_is(lx, ',')) {
            tl_lex_next(lx);
        } else {
            return fail(p, lx->at, "a name should stand here");
        }
    }
    *name = tl_lex_str(lx);
    tl_lex_next(lx);
    return 0;
}

/* A kernel or a function, from .entry or .func to its body's end; what is inside is not read. */
static int function(struct pass *p, struct tl_ptx_item item)
{
    struct tl_lex *lx = &p->lx;
    item.kind = tl_lex_is_dotword(lx, "entry") ? TL_PTX_ITEM_ENTRY : TL_PTX_ITEM_FUNC;
    tl_lex_next(lx);
    int rc = find_name(p, &item.name);
    if (rc < 0)
        return rc;
    if (tl_lex_is(lx, '(') && (rc = skip_parens(p)) < 0)
        return rc;
    /* Directives follow; a .pragma among them brings a semicolon of its own, which ends no
     * declaration. */
    bool in_pragma = false;
    for (;;) {
        if (lx->kind == TL_TOK_END || lx->kind == TL_TOK_BAD)
            return fail(p, lx->at, "a function body or ';' should stand here");
        if (tl_lex_is(lx, '{'))
            break;
        if (tl_lex_is(lx, ';')) {
            item.end = lx->end;
            tl_lex_next(lx);
            if (!in_pragma)
                return add_item(p, item);
            in_pragma = false;
            continue;
        }
        if (tl_lex_is_dotword(lx, "pragma"))
            in_pragma = true;
        tl_lex_next(lx);
    }
    item.body = lx->at;
    if (!tl_lex_skip_braces(lx))
        return fail(p, item.body, "this function body has no closing '}'");
    item.end = lx->previous_end;
    return add_item(p, item);
}

/* `.global .u32 a, b[2] = {1, 2};` gives one item per name, all with the statement's range. */
static int variables(struct pass *p, struct tl_ptx_item item)
{
    struct tl_lex *lx = &p->lx;
    uint32_t first = p->ix->n_items;
    item.kind = TL_PTX_ITEM_VARIABLE;
    for (;;) {
        int rc = find_name(p, &item.name);
        if (rc == 0)
            rc = add_item(p, item);
        if (rc < 0)
            return rc;
        if (!tl_lex_skip_initialiser(lx))
            return fail(p, item.begin, "this declaration has no ';' at its end");
        if (tl_lex_is(lx, ';'))
            break;
        tl_lex_next(lx);
    }
    for (uint32_t i = first; i < p->ix->n_items; i++)
        p->ix->items[i].end = lx->end;
    tl_lex_next(lx);
    return 0;
}

/* Whatever comes next at the outermost level. */
static int module_item(struct pass *p)
{
    struct tl_lex *lx = &p->lx;
    struct tl_ptx_item item = {.begin = lx->at};
    if (tl_lex_is(lx, '@'))
        return directive(p, item.begin);
    if (tl_lex_is(lx, ';')) {
        tl_lex_next(lx);
        return 0;
    }
    if (lx->kind != TL_TOK_DOTWORD)
        return fail(p, lx->at,
                    lx->kind == TL_TOK_BAD
                        ? "this byte, string or comment is not PTX"
                        : "a directive such as .entry or .global should stand here");
    for (;; tl_lex_next(lx)) {
        if (tl_lex_is_dotword(lx, "extern"))
            item.is_extern = true;
        else if (tl_lex_is_dotword(lx, "visible"))
            item.is_visible = true;
        else if (tl_lex_is_dotword(lx, "weak"))
            item.is_weak = true;
        else if (tl_lex_is_dotword(lx, "common"))
            item.is_common = true;
        else
            break;
    }
    if (tl_lex_is_dotword(lx, "entry") || tl_lex_is_dotword(lx, "func"))
        return function(p, item);
    static const char *const spaces[] = {"global", "const", "shared", "local",
                                         "param",  "tex",   "reg",    "sreg"};
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        if (tl_lex_is_dotword(lx, spaces[i]))
            return variables(p, item);
    }
    if (lx->at != item.begin)
        return fail(p, lx->at, "a function or a variable should stand behind the linkage");
    return directive(p, item.begin);
}

/* A definition hides declarations of the same name; among equals the first stays. */
static bool is_better(const struct tl_ptx_item *a, const struct tl_ptx_item *b)
{
    bool a_defines = a->kind == TL_PTX_ITEM_VARIABLE ? !a->is_extern : a->body != 0;
    bool b_defines = b->kind == TL_PTX_ITEM_VARIABLE ? !b->is_extern : b->body != 0;
    return a_defines && !b_defines;
}

static int build_table(struct pass *p)
{
    struct tl_ptx_index *ix = p->ix;
    for (uint32_t i = 0; i < ix->n_items; i++) {
        struct tl_ptx_item *item = &ix->items[i];
        if (item->kind == TL_PTX_ITEM_DIRECTIVE)
            continue;
        void **place = tl_table_place(&ix->by_name, item->name);
        if (place == NULL)
            return tl_error_set(p->err, -ENOMEM, "%s: out of memory", ix->name);
        if (*place == NULL || is_better(item, *place))
            *place = item;
    }
    return 0;
}

int tl_ptx_index_create(struct tl_ptx_index **out, const char *text, size_t n, const char *name,
                        struct tl_error *err)
{
    *out = NULL;
    while (n > 0 && text[n - 1] == 0)
        n--;
    if (n >= INT32_MAX)
        return tl_error_set(err, -EFBIG,
                            "%s: %zu bytes of PTX; modules of 2 GiB and more are not supported",
                            name, n);
    struct tl_ptx_index *ix = calloc(1, sizeof *ix);
    if (ix == NULL)
        return tl_error_set(err, -ENOMEM, "%s: out of memory", name);
    tl_arena_init(&ix->arena, 0);
    ix->text = text;
    ix->n = (uint32_t)n;
    struct pass p = {.ix = ix, .err = err};
    ix->name = tl_arena_copy(&ix->arena, tl_str_of(name));
    int rc = ix->name != NULL ? 0 : tl_error_set(err, -ENOMEM, "%s: out of memory", name);
    tl_lex_init(&p.lx, text, 0, ix->n);
    while (rc == 0 && p.lx.kind != TL_TOK_END)
        rc = module_item(&p);
    if (rc == 0)
        rc = build_table(&p);
    if (rc < 0) {
        tl_ptx_index_destroy(ix);
        return rc;
    }
    *out = ix;
    return 0;
}

void tl_ptx_index_destroy(struct tl_ptx_index *ix)
{
    if (ix == NULL)
        return;
    tl_arena_finish(&ix->arena);
    free(ix->items);
    tl_table_finish(&ix->by_name);
    free(ix);
}

uint32_t tl_ptx_index_count(const struct tl_ptx_index *ix)
{
    return ix->n_items;
}

const struct tl_ptx_item *tl_ptx_index_item(const struct tl_ptx_index *ix, uint32_t i)
{
    return i < ix->n_items ? &ix->items[i] : NULL;
}

const struct tl_ptx_item *tl_ptx_index_find(const struct tl_ptx_index *ix, struct tl_str name)
{
    return tl_table_get(&ix->by_name, name);
}

struct tl_str tl_ptx_index_version(const struct tl_ptx_index *ix)
{
    return ix->version;
}

struct tl_str tl_ptx_index_target(const struct tl_ptx_index *ix)
{
    return ix->target;
}
