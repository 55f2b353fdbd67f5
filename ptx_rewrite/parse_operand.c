/* Operands: names, literals, vectors, addresses, lists, constant expressions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/parse.h"

enum { MAX_ELEMENTS = 65535 };

/* A growing list of operands on the C stack first, in the arena at the end. */
struct collect {
    struct tl_ptx_operand few[16];
    struct tl_ptx_operand *all;
    uint32_t n, cap;
};

static int parse_operand(struct tl_parser *p, enum tl_ptx_op op, struct tl_ptx_operand *o);

static void collect_init(struct collect *c)
{
    c->all = c->few;
    c->n = 0;
    c->cap = sizeof c->few / sizeof c->few[0];
}

static struct tl_ptx_operand *collect_add(struct tl_parser *p, struct collect *c)
{
    if (c->n == c->cap) {
        uint32_t cap = c->cap * 2;
        struct tl_ptx_operand *all = cap <= 2 * MAX_ELEMENTS
                                         ? tl_arena_alloc(p->unit->arena, cap * sizeof *all)
                                         : NULL;
        if (all == NULL)
            return NULL;
        memcpy(all, c->all, c->n * sizeof *all);
        c->all = all;
        c->cap = cap;
    }
    struct tl_ptx_operand *o = &c->all[c->n++];
    memset(o, 0, sizeof *o);
    return o;
}

static int collect_take(struct tl_parser *p, struct collect *c, struct tl_ptx_operand **out)
{
    if (c->n == 0) {
        *out = NULL;
        return 0;
    }
    *out = tl_arena_alloc(p->unit->arena, c->n * sizeof **out);
    if (*out == NULL)
        return tl_parse_no_memory(p);
    memcpy(*out, c->all, c->n * sizeof **out);
    return 0;
}

/* Comma-separated operands up to `close`, which is consumed. */
static int parse_elements(struct tl_parser *p, enum tl_ptx_op op, char close,
                          struct tl_ptx_operand *o)
{
    struct collect c;
    collect_init(&c);
    uint32_t open = p->lx.at;
    if (++p->nesting > TL_PTX_MAX_NESTING)
        return tl_parse_fail(p, open, "operands are nested more than %d deep", TL_PTX_MAX_NESTING);
    tl_lex_next(&p->lx);
    while (!tl_lex_is(&p->lx, close)) {
        struct tl_ptx_operand *e = collect_add(p, &c);
        if (e == NULL)
            return tl_parse_fail(p, open, "too many elements, or out of memory");
        int rc = parse_operand(p, op, e);
        if (rc != 0)
            return rc;
        if (tl_lex_is(&p->lx, close))
            break;
        if (!tl_lex_is(&p->lx, ','))
            return tl_parse_fail(p, p->lx.at, "',' or '%c' should stand here", close);
        tl_lex_next(&p->lx);
        if (tl_lex_is(&p->lx, close))
            return tl_parse_fail(p, p->lx.at, "an operand should stand behind the ','");
    }
    tl_lex_next(&p->lx);
    p->nesting--;
    o->n = c.n;
    return collect_take(p, &c, &o->elems);
}

/* --- literals and constant expressions -------------------------------------------------------- */

static bool parse_hex(struct tl_str digits, uint32_t length, uint64_t *out)
{
    *out = 0;
    if (digits.n != length)
        return false;
    for (uint32_t i = 0; i < digits.n; i++) {
        char c = digits.p[i];
        uint64_t v;
        if (c >= '0' && c <= '9')
            v = (uint64_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            v = (uint64_t)((c | 32) - 'a' + 10);
        else
            return false;
        *out = *out << 4 | v;
    }
    return true;
}

static bool parse_integer(struct tl_str t, uint64_t *out)
{
    if (t.n > 1 && (t.p[t.n - 1] == 'U' || t.p[t.n - 1] == 'u'))
        t.n--;
    uint64_t base = 10;
    if (t.n > 2 && t.p[0] == '0' && (t.p[1] | 32) == 'x') {
        base = 16;
        t.p += 2;
        t.n -= 2;
    } else if (t.n > 2 && t.p[0] == '0' && (t.p[1] | 32) == 'b') {
        base = 2;
        t.p += 2;
        t.n -= 2;
    } else if (t.n > 1 && t.p[0] == '0') {
        base = 8;
    }
    *out = 0;
    for (uint32_t i = 0; i < t.n; i++) {
        char c = t.p[i];
        uint64_t v = c >= '0' && c <= '9' ? (uint64_t)(c - '0')
                     : (c | 32) >= 'a'    ? (uint64_t)((c | 32) - 'a' + 10)
                                          : 99;
        if (v >= base || __builtin_mul_overflow(*out, base, out) ||
            __builtin_add_overflow(*out, v, out))
            return false;
    }
    return t.n > 0;
}

static int parse_literal(struct tl_parser *p, struct tl_ptx_operand *o)
{
    struct tl_str t = tl_lex_str(&p->lx);
    char kind = t.n > 2 && t.p[0] == '0' ? (char)(t.p[1] | 32) : 0;
    struct tl_str hex = {t.p + 2, t.n - 2};
    bool ok;
    if (kind == 'f' && t.n == 10) {
        o->kind = TL_OPD_F32;
        ok = parse_hex(hex, 8, &o->bits);
    } else if (kind == 'd') {
        o->kind = TL_OPD_F64;
        ok = parse_hex(hex, 16, &o->bits);
    } else if (kind != 'x' && (memchr(t.p, '.', t.n) != NULL || memchr(t.p, 'e', t.n) != NULL ||
                               memchr(t.p, 'E', t.n) != NULL)) {
        char *copy = tl_arena_copy(p->unit->arena, t), *end;
        if (copy == NULL)
            return tl_parse_no_memory(p);
        o->kind = TL_OPD_F64;
        double value = strtod(copy, &end);
        ok = *end == 0;
        memcpy(&o->bits, &value, sizeof value);
    } else {
        o->kind = TL_OPD_INT;
        ok = parse_integer(t, &o->bits);
    }
    if (!ok)
        return tl_parse_fail(p, p->lx.at, "'%.*s' is not a number that PTX knows",
                             (int)(t.n < 40 ? t.n : 40), t.p);
    tl_lex_next(&p->lx);
    return 0;
}

static int parse_expression(struct tl_parser *p, int level, uint64_t *out);

/* A sign, a cast, a bracket or a number: what stands between two operators. */
static int parse_unary(struct tl_parser *p, uint64_t *out)
{
    struct tl_lex *lx = &p->lx;
    int rc;
    if (++p->nesting > TL_PTX_MAX_NESTING)
        return tl_parse_fail(p, lx->at, "this expression is nested more than %d deep",
                             TL_PTX_MAX_NESTING);
    if (tl_lex_is(lx, '-') || tl_lex_is(lx, '+') || tl_lex_is(lx, '~') || tl_lex_is(lx, '!')) {
        char sign = lx->punct;
        tl_lex_next(lx);
        rc = parse_unary(p, out);
        *out = sign == '-' ? 0 - *out : sign == '~' ? ~*out : sign == '!' ? *out == 0 : *out;
    } else if (tl_lex_is(lx, '(')) {
        tl_lex_next(lx);
        if (lx->kind == TL_TOK_DOTWORD) { /* a cast: (.s64) or (.u64) */
            tl_lex_next(lx);
            rc = tl_parse_expect(p, ')', "behind the cast");
            if (rc == 0)
                rc = parse_unary(p, out);
        } else {
            rc = parse_expression(p, 0, out);
            if (rc == 0)
                rc = tl_parse_expect(p, ')', "behind the expression");
        }
    } else if (tl_lex_as_number(lx)) {
        struct tl_ptx_operand o = {0};
        rc = parse_literal(p, &o);
        if (rc == 0 && o.kind != TL_OPD_INT)
            rc = 1; /* floating expressions: kept as text by the caller */
        *out = o.bits;
    } else if (lx->kind == TL_TOK_WORD && tl_str_is(tl_lex_str(lx), "WARP_SZ")) {
        *out = 32;
        tl_lex_next(lx);
        rc = 0;
    } else {
        return tl_parse_fail(p, lx->at, "a number should stand here");
    }
    p->nesting--;
    return rc;
}

/* The binary operator at the current token: its precedence from 1, its spelling's length; 0 if
 * there is none. */
static int binary_operator(const struct tl_lex *lx, char name[3])
{
    static const char *const levels[] = {"||",    "&&",        "|",     "^",   "&",
                                         "== !=", "<= >= < >", "<< >>", "+ -", "* / %"};
    /* with blanks around it, as in ptxas */
    bool is_modulo = lx->kind == TL_TOK_WORD && tl_str_is(tl_lex_str(lx), "%");
    if (lx->kind != TL_TOK_PUNCT && !is_modulo)
        return 0;
    char two[3] = {lx->text[lx->at], lx->at + 1 < lx->limit ? lx->text[lx->at + 1] : 0, 0};
    static const char *const doubles[] = {"||", "&&", "==", "!=", "<=", ">=", "<<", ">>"};
    bool is_double = false;
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++)
        is_double |= strcmp(two, doubles[i]) == 0;
    if (!is_double)
        two[1] = 0;
    strcpy(name, two);
    for (int i = 0; i < (int)(sizeof levels / sizeof levels[0]); i++) {
        for (const char *w = levels[i]; *w != 0;
             w += strcspn(w, " ") + (w[strcspn(w, " ")] == ' ')) {
            if (strcspn(w, " ") == strlen(two) && strncmp(w, two, strlen(two)) == 0)
                return i + 1;
        }
    }
    return 0;
}

static uint64_t apply(const char *op, uint64_t a, uint64_t b)
{
    int64_t sa = (int64_t)a, sb = (int64_t)b;
    bool overflows = sa == INT64_MIN && sb == -1;
    switch (op[0]) {
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        return a * b;
    case '/':
        return b == 0 ? 0 : overflows ? a : (uint64_t)(sa / sb);
    case '%':
        return b == 0 || overflows ? 0 : (uint64_t)(sa % sb);
    case '^':
        return a ^ b;
    case '=':
        return a == b;
    case '!':
        return a != b;
    case '|':
        return op[1] != 0 ? (a != 0 || b != 0) : (a | b);
    case '&':
        return op[1] != 0 ? (a != 0 && b != 0) : (a & b);
    case '<':
        return op[1] == '<' ? (b < 64 ? a << b : 0) : op[1] == '=' ? sa <= sb : sa < sb;
    default:
        return op[1] == '>' ? (b < 64 ? a >> b : 0) : op[1] == '=' ? sa >= sb : sa > sb;
    }
}

/* Precedence climbing, then an optional `? :` at the outermost level. */
static int parse_expression(struct tl_parser *p, int level, uint64_t *out)
{
    char op[3];
    int rc = parse_unary(p, out), found;
    while (rc == 0 && (found = binary_operator(&p->lx, op)) > level) {
        for (size_t i = 0; i < strlen(op); i++)
            tl_lex_next(&p->lx);
        uint64_t right = 0;
        rc = parse_expression(p, found, &right);
        *out = apply(op, *out, right);
    }
    if (rc == 0 && level == 0 && tl_lex_is(&p->lx, '?')) {
        uint64_t yes = 0, no = 0;
        if (++p->nesting > TL_PTX_MAX_NESTING)
            return tl_parse_fail(p, p->lx.at, "this expression is nested more than %d deep",
                                 TL_PTX_MAX_NESTING);
        tl_lex_next(&p->lx);
        if ((rc = parse_expression(p, 0, &yes)) == 0 &&
            (rc = tl_parse_expect(p, ':', "behind the first choice")) == 0)
            rc = parse_expression(p, 0, &no);
        *out = *out != 0 ? yes : no;
        p->nesting--;
    }
    return rc;
}

/* A number, or an expression that is one. */
static int parse_constant(struct tl_parser *p, struct tl_ptx_operand *o)
{
    struct tl_lex *lx = &p->lx;
    uint32_t from = lx->at;
    /* The plain literal, possibly with a sign, is nearly every case. */
    bool minus = tl_lex_is(lx, '-');
    if (minus)
        tl_lex_next(lx);
    int rc;
    bool is_literal = tl_lex_as_number(lx);
    if (is_literal) {
        rc = parse_literal(p, o);
        if (rc < 0)
            return rc;
        if (minus && o->kind == TL_OPD_INT)
            o->bits = 0 - o->bits;
        else if (minus)
            o->bits ^= o->kind == TL_OPD_F32 ? 1ull << 31 : 1ull << 63;
    }
    if (tl_lex_is(lx, ',') || tl_lex_is(lx, ';') || tl_lex_is(lx, '}') || tl_lex_is(lx, ']') ||
        tl_lex_is(lx, ')')) {
        if (!is_literal)
            return tl_parse_fail(p, lx->at, "an operand should stand here");
    } else {
        tl_lex_init(lx, lx->text, from, lx->limit);
        o->kind = TL_OPD_INT;
        rc = parse_expression(p, 0, &o->bits);
        if (rc != 0)
            return rc;
    }
    struct tl_str text;
    rc = tl_parse_normalised(p, from, lx->previous_end, &text);
    if (rc < 0)
        return rc;
    o->text = tl_arena_copy(p->unit->arena, text);
    return o->text != NULL ? 0 : tl_parse_no_memory(p);
}

/* --- names and addresses ---------------------------------------------------------------------- */

/* The symbol of a word among the operands of `op`: branches name labels, but the index of a brx is
 * a register. */
static struct tl_ptx_sym *symbol_of(struct tl_ptx_names *names, enum tl_ptx_op op,
                                    struct tl_str word, uint32_t at)
{
    if ((op != TL_OP_bra && op != TL_OP_brx) || word.p[0] == '%')
        return tl_ptx_names_resolve(names, word);
    if (op == TL_OP_brx) {
        struct tl_ptx_sym *sym = tl_ptx_names_resolve(names, word);
        if (sym == NULL || sym->kind == TL_SYM_REG)
            return sym;
    }
    return tl_ptx_names_label(names, word, at);
}

/* The byte and half-word selectors of video instructions: .b0, .h1, .b7654. */
static bool is_selector(struct tl_str word)
{
    if (word.n < 2 || word.n > 5 || (word.p[0] != 'b' && word.p[0] != 'h'))
        return false;
    for (uint32_t i = 1; i < word.n; i++) {
        if (word.p[i] < '0' || word.p[i] > '7')
            return false;
    }
    return true;
}

/* `+ 8`, `+-8`, `- 8` behind a name. */
static int parse_offset(struct tl_parser *p, struct tl_ptx_operand *o)
{
    uint64_t value = 0;
    bool minus = tl_lex_is(&p->lx, '-');
    tl_lex_next(&p->lx);
    int rc = parse_expression(p, 0, &value);
    o->offset = (int64_t)(minus ? 0 - value : value);
    o->has_offset = true;
    return rc;
}

/* `array[3]` behind mov: the address of that element, which is the name with an offset.  Constant
 * elements of arrays with one dimension that the function itself declares; what else there may be
 * between the brackets is refused. */
static int parse_element(struct tl_parser *p, struct tl_ptx_operand *o)
{
    const struct tl_ptx_decl *d = o->sym->kind == TL_SYM_VAR ? o->sym->decl : NULL;
    uint32_t at = p->lx.at, bytes = d != NULL ? tl_ptx_type_bytes(d->type) : 0;
    uint64_t index = 0;
    if (bytes == 0 || d->vec > 1 || d->dims.n < 2 ||
        memchr(d->dims.p + 1, '[', d->dims.n - 1) != NULL)
        return tl_parse_fail(p, at, "elements of such a variable are not understood");
    tl_lex_next(&p->lx);
    int rc = parse_expression(p, 0, &index);
    if (rc != 0)
        return rc;
    if (index > INT32_MAX)
        return tl_parse_fail(p, at, "this element is out of bounds");
    o->offset = (int64_t)index * bytes;
    o->has_offset = true;
    return tl_parse_expect(p, ']', "behind the element's number");
}

/* A word: a sink, a constant or a symbol, with component, element or offset. */
static int parse_name(struct tl_parser *p, enum tl_ptx_op op, struct tl_ptx_operand *o)
{
    struct tl_lex *lx = &p->lx;
    struct tl_str word = tl_lex_str(lx);
    uint32_t at = lx->at;
    if (tl_str_is(word, "_")) {
        o->kind = TL_OPD_SINK;
        tl_lex_next(lx);
        return 0;
    }
    if (tl_str_is(word, "WARP_SZ"))
        return parse_constant(p, o);
    o->kind = TL_OPD_SYM;
    o->sym = symbol_of(p->unit->names, op, word, at);
    if (o->sym == NULL)
        return tl_parse_no_memory(p);
    tl_lex_next(lx);
    if (lx->kind == TL_TOK_DOTWORD) {
        struct tl_str c = tl_lex_dotword(lx);
        if (is_selector(c))
            return 1;
        if (c.n != 1 || strchr("xyzwrgba", c.p[0]) == NULL)
            return tl_parse_fail(p, lx->at, "a component .x, .y, .z or .w should stand here");
        o->component = c.p[0];
        tl_lex_next(lx);
    }
    if (tl_lex_is(lx, '+') || tl_lex_is(lx, '-'))
        return parse_offset(p, o);
    if (tl_lex_is(lx, '[') && op == TL_OP_mov)
        return parse_element(p, o);
    return 0;
}

/* [ base + offset ] becomes an ADDR that holds the offset itself, so that passes find it in one
 * place. */
static int parse_address(struct tl_parser *p, enum tl_ptx_op op, struct tl_ptx_operand *o)
{
    o->kind = TL_OPD_ADDR;
    uint32_t at = p->lx.at;
    int rc = parse_elements(p, op, ']', o);
    if (rc != 0)
        return rc;
    if (o->n == 0)
        return tl_parse_fail(p, at, "this address is empty");
    struct tl_ptx_operand *base = &o->elems[0];
    if (base->kind == TL_OPD_SYM && base->has_offset) {
        o->offset = base->offset;
        o->has_offset = true;
        base->offset = 0;
        base->has_offset = false;
    }
    return 0;
}

/* Any operand, in each of the forms that the ISA has. */
static int parse_operand(struct tl_parser *p, enum tl_ptx_op op, struct tl_ptx_operand *o)
{
    struct tl_lex *lx = &p->lx;
    int rc;
    o->at = lx->at;
    if (tl_lex_is(lx, '!')) {
        struct tl_lex not = *lx;
        tl_lex_next(lx);
        if (lx->kind == TL_TOK_WORD)
            o->flags |= TL_OPD_NOT;
        else
            *lx = not ; /* !5 is an expression */
    } else if (tl_lex_is(lx, '-') && lx->end < lx->limit && lx->text[lx->end] == '%') {
        o->flags |= TL_OPD_MINUS;
        tl_lex_next(lx);
    }
    if (lx->kind == TL_TOK_WORD) {
        rc = parse_name(p, op, o);
    } else if (tl_lex_is(lx, '{')) {
        o->kind = TL_OPD_VEC;
        rc = parse_elements(p, op, '}', o);
    } else if (tl_lex_is(lx, '[')) {
        rc = parse_address(p, op, o);
    } else if (tl_lex_is(lx, '(') && (op == TL_OP_call || op == TL_OP_unknown)) {
        o->kind = TL_OPD_LIST;
        rc = parse_elements(p, op, ')', o);
    } else {
        rc = parse_constant(p, o);
    }
    if (rc != 0 || !tl_lex_is(lx, '|'))
        return rc;
    struct tl_ptx_operand *pair = tl_arena_zalloc(p->unit->arena, 2 * sizeof *pair);
    if (pair == NULL)
        return tl_parse_no_memory(p);
    pair[0] = *o;
    tl_lex_next(lx);
    if (++p->nesting > TL_PTX_MAX_NESTING)
        return tl_parse_fail(p, lx->at, "operands are nested more than %d deep",
                             TL_PTX_MAX_NESTING);
    rc = parse_operand(p, op, &pair[1]);
    p->nesting--;
    *o = (struct tl_ptx_operand){.kind = TL_OPD_PAIR, .n = 2, .at = pair[0].at, .elems = pair};
    return rc;
}

int tl_parse_operands(struct tl_parser *p, enum tl_ptx_op op, struct tl_ptx_operand **out,
                      uint16_t *n)
{
    struct collect c;
    collect_init(&c);
    p->nesting = 0;
    while (!tl_lex_is(&p->lx, ';')) {
        struct tl_ptx_operand *o = c.n < MAX_ELEMENTS ? collect_add(p, &c) : NULL;
        if (o == NULL)
            return tl_parse_fail(p, p->lx.at, "too many operands, or out of memory");
        int rc = parse_operand(p, op, o);
        if (rc != 0)
            return rc;
        if (tl_lex_is(&p->lx, ';'))
            break;
        if (!tl_lex_is(&p->lx, ','))
            return tl_parse_fail(p, p->lx.at, "',' or ';' should stand here");
        tl_lex_next(&p->lx);
        if (tl_lex_is(&p->lx, ';'))
            return tl_parse_fail(p, p->lx.at, "an operand should stand behind the ','");
    }
    *n = (uint16_t)c.n;
    return collect_take(p, &c, out);
}
