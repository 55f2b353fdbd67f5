/* Declarations: registers, variables, parameters. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/parse.h"

static const char *const spaces[] = {"reg",   "global", "const", "shared",
                                     "local", "param",  "tex",   "sreg"};

static bool is_space(struct tl_str word)
{
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        if (tl_str_is(word, spaces[i]))
            return true;
    }
    return tl_str_starts(word, "shared::") || tl_str_starts(word, "param::");
}

static bool is_type(struct tl_str word)
{
    return tl_ptx_type_bytes(word) != 0 || tl_str_is(word, "pred");
}

static int parse_number(struct tl_parser *p, uint64_t max, uint64_t *out)
{
    char digits[32];
    struct tl_str text = tl_lex_str(&p->lx);
    char *end = digits;
    if (p->lx.kind == TL_TOK_NUMBER && text.n < sizeof digits) {
        memcpy(digits, text.p, text.n);
        digits[text.n] = 0;
        errno = 0;
        *out = strtoull(digits, &end, 0);
        if (*end == 'U')
            end++;
    }
    if (end == digits || *end != 0 || errno != 0 || *out > max)
        return tl_parse_fail(p, p->lx.at, "a number of at most %llu should stand here",
                             (unsigned long long)max);
    tl_lex_next(&p->lx);
    return 0;
}

/* Everything before the name: linkage, space, alignment, vector, type and what else the ISA may put
 * there. */
static int parse_prefix(struct tl_parser *p, struct tl_ptx_decl *d)
{
    struct tl_lex *lx = &p->lx;
    uint32_t from = lx->at;
    bool in_ptr = false;
    d->vec = 1;
    if (lx->kind != TL_TOK_DOTWORD)
        return tl_parse_fail(p, from, "a space and a type should stand here, as in '.param .u32'");
    while (lx->kind == TL_TOK_DOTWORD) {
        struct tl_str word = tl_lex_dotword(lx);
        tl_lex_next(lx);
        if (tl_str_is(word, "align")) {
            uint64_t align;
            int rc = parse_number(p, 1u << 30, &align);
            if (rc < 0)
                return rc;
            if (!in_ptr) /* behind .ptr it is the alignment of what the pointer points to */
                d->align = (uint32_t)align;
        } else if (tl_str_is(word, "ptr")) {
            in_ptr = true;
        } else if (in_ptr && is_space(word)) {
            d->ptr_space = word;
        } else if (is_space(word) && d->space.n == 0) {
            d->space = word;
        } else if (is_type(word) && d->type.n == 0) {
            d->type = word;
        } else if (word.n == 2 && word.p[0] == 'v' && word.p[1] >= '2' && word.p[1] <= '8') {
            d->vec = (uint32_t)(word.p[1] - '0');
        } else if (tl_lex_is(lx, '(')) { /* .attribute(.managed) and its like */
            uint32_t depth = 0, open = lx->at;
            do {
                depth += tl_lex_is(lx, '(');
                depth -= tl_lex_is(lx, ')');
                if (lx->kind == TL_TOK_END || lx->kind == TL_TOK_BAD || tl_lex_is(lx, '{') ||
                    tl_lex_is(lx, '}') || tl_lex_is(lx, ';'))
                    return tl_parse_fail(p, open, "this '(' is never closed");
                tl_lex_next(lx);
            } while (depth > 0);
        }
    }
    return tl_parse_normalised(p, from, lx->previous_end, &d->prefix);
}

/* `<5>` or `[4][]` behind a name. */
static int parse_shape(struct tl_parser *p, struct tl_ptx_decl *d)
{
    struct tl_lex *lx = &p->lx;
    int rc;
    d->count = 1;
    if (tl_lex_is(lx, '<')) {
        tl_lex_next(lx);
        uint64_t range;
        if ((rc = parse_number(p, 1u << 30, &range)) < 0 ||
            (rc = tl_parse_expect(p, '>', "behind the count")) < 0)
            return rc;
        d->is_range = true;
        d->range = (uint32_t)range;
        return 0;
    }
    uint32_t from = lx->at;
    while (tl_lex_is(lx, '[')) {
        tl_lex_next(lx);
        uint64_t dim = 0;
        if (lx->kind == TL_TOK_WORD && tl_str_is(tl_lex_str(lx), "WARP_SZ")) {
            dim = 32;
            tl_lex_next(lx);
        } else if (!tl_lex_is(lx, ']') && (rc = parse_number(p, UINT64_MAX, &dim)) < 0) {
            return rc;
        }
        /* so few that their bytes can be counted in 64 bits, whatever their type */
        if (__builtin_mul_overflow(d->count, dim, &d->count) || d->count > (uint64_t)1 << 48)
            return tl_parse_fail(p, from, "this array has more than 2^48 elements");
        if ((rc = tl_parse_expect(p, ']', "behind the dimension")) < 0)
            return rc;
    }
    return lx->at == from ? 0 : tl_parse_normalised(p, from, lx->previous_end, &d->dims);
}

static int parse_init(struct tl_parser *p, struct tl_ptx_decl *d)
{
    struct tl_lex *lx = &p->lx;
    tl_lex_next(lx);
    uint32_t from = lx->at;
    if (!tl_lex_skip_initialiser(lx))
        return tl_parse_fail(p, from, "this initialiser does not end");
    if (lx->previous_end <= from)
        return tl_parse_fail(p, from, "an initialiser should stand behind '='");
    return tl_parse_normalised(p, from, lx->previous_end, &d->init);
}

static enum tl_ptx_sym_kind symbol_kind(const struct tl_ptx_decl *d)
{
    return tl_str_is(d->space, "reg") || tl_str_is(d->space, "sreg") ? TL_SYM_REG : TL_SYM_VAR;
}

/* One name with what belongs to it; the prefix is there already. */
static int parse_declarator(struct tl_parser *p, bool declare, struct tl_ptx_decl *d)
{
    struct tl_lex *lx = &p->lx;
    if (lx->kind != TL_TOK_WORD)
        return tl_parse_fail(p, lx->at, "the declared name should stand here");
    d->name = tl_lex_str(lx);
    d->at = lx->at;
    tl_lex_next(lx);
    int rc = parse_shape(p, d);
    if (rc == 0 && tl_lex_is(lx, '='))
        rc = parse_init(p, d);
    if (rc == 0 && declare && tl_ptx_names_declare(p->unit->names, symbol_kind(d), d) < 0)
        rc = tl_parse_no_memory(p);
    return rc;
}

int tl_parse_decls(struct tl_parser *p, bool declare, struct tl_ptx_decl **out)
{
    struct tl_ptx_decl *d = tl_arena_zalloc(p->unit->arena, sizeof *d);
    if (d == NULL)
        return tl_parse_no_memory(p);
    *out = d;
    int rc = parse_prefix(p, d);
    while (rc == 0 && (rc = parse_declarator(p, declare, d)) == 0 && tl_lex_is(&p->lx, ',')) {
        tl_lex_next(&p->lx);
        struct tl_ptx_decl *next = tl_arena_alloc(p->unit->arena, sizeof *next);
        if (next == NULL)
            return tl_parse_no_memory(p);
        *next = (struct tl_ptx_decl){.prefix = d->prefix,
                                     .space = d->space,
                                     .type = d->type,
                                     .align = d->align,
                                     .vec = d->vec,
                                     .joins_previous = true};
        d = d->next = next;
    }
    return rc;
}

int tl_parse_params(struct tl_parser *p, struct tl_ptx_decl **out)
{
    struct tl_ptx_decl **link = out;
    *out = NULL;
    int rc = tl_parse_expect(p, '(', "before the parameters");
    if (rc == 0 && tl_lex_is(&p->lx, ')')) {
        tl_lex_next(&p->lx);
        return 0;
    }
    while (rc == 0) {
        struct tl_ptx_decl *d = tl_arena_zalloc(p->unit->arena, sizeof *d);
        if (d == NULL)
            return tl_parse_no_memory(p);
        *link = d;
        link = &d->next;
        if ((rc = parse_prefix(p, d)) < 0 || (rc = parse_declarator(p, true, d)) < 0)
            return rc;
        if (tl_lex_is(&p->lx, ')')) {
            tl_lex_next(&p->lx);
            return 0;
        }
        rc = tl_parse_expect(p, ',', "between parameters");
    }
    return rc;
}
