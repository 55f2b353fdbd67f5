/* Initial values of variables: integers, floats, nested braces, addresses of variables with
 * offsets, generic(). What an initialiser leaves out is zero (PTX ISA, "Initializers"). */
#include "ptx_rewrite/initialiser.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/lex.h"
#include "ptx_rewrite/parse.h"

enum { MAX_DIMS = 8 };

struct filler {
    struct tl_lex lx;
    tl_ptx_resolver resolve;
    void *data;
    const struct tl_ptx_decl *decl;
    struct tl_error *err;
    uint8_t *to;
    size_t bytes;
    uint32_t element;           /* bytes of one number */
    size_t below[MAX_DIMS + 2]; /* numbers in one element of that depth */
    uint32_t n_dims;
    uint32_t nesting; /* of parentheses */
};

static int complain(struct filler *f, const char *what)
{
    return tl_error_set(f->err, -EINVAL, "initialiser of " TL_STR_FMT ": %s at \"%.20s\"",
                        TL_STR_ARG(f->decl->name), what, f->lx.text + f->lx.at);
}

static void read_dims(struct filler *f)
{
    size_t dims[MAX_DIMS];
    struct tl_str text = f->decl->dims; /* of a scalar there is none, not even an address */
    f->n_dims = 0;
    for (uint32_t i = 0; i < text.n && f->n_dims < MAX_DIMS; i++) {
        if (text.p[i] != '[')
            continue;
        size_t v = 0;
        for (i++; i < text.n && text.p[i] != ']'; i++) {
            if (text.p[i] >= '0' && text.p[i] <= '9')
                v = v * 10 + (size_t)(text.p[i] - '0');
        }
        dims[f->n_dims++] = v;
    }
    /* below[k]: numbers under one element at depth k; depth 0 is the variable itself. */
    uint32_t depth = f->n_dims;
    f->below[depth + 1] = 1;
    f->below[depth] = f->decl->vec;
    for (uint32_t k = depth; k > 0; k--)
        f->below[k - 1] = f->below[k] * dims[k - 1];
}

/* What a number of 64 bits leaves of a wider element is zero. */
static void put(struct filler *f, size_t at, uint64_t bits)
{
    size_t n = f->element < sizeof bits ? f->element : sizeof bits;
    if (at >= f->bytes / f->element)
        return;
    memset(f->to + at * f->element, 0, f->element);
    memcpy(f->to + at * f->element, &bits, n); /* little-endian */
}

static bool is_float_type(struct tl_str type)
{
    return type.n > 0 && type.p[0] == 'f';
}

/* 0f3F800000, 0d..., 1.5, 7, 0x1F, 017, 0b101: as bits of the variable's type. */
static uint64_t number_bits(const struct filler *f, struct tl_str t)
{
    char text[64];
    uint32_t n = t.n < sizeof text - 1 ? t.n : (uint32_t)sizeof text - 1;
    memcpy(text, t.p, n);
    text[n] = 0;
    bool wants_float = is_float_type(f->decl->type);
    double d;
    if (n > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F')) {
        uint32_t bits = (uint32_t)strtoul(text + 2, NULL, 16);
        if (!wants_float || f->element == 4)
            return bits;
        float v;
        memcpy(&v, &bits, sizeof v);
        d = (double)v;
    } else if (n > 2 && text[0] == '0' && (text[1] == 'd' || text[1] == 'D')) {
        uint64_t bits = strtoull(text + 2, NULL, 16);
        if (!wants_float || f->element == 8)
            return bits;
        memcpy(&d, &bits, sizeof d);
    } else if (n > 2 && text[0] == '0' && (text[1] == 'b' || text[1] == 'B')) {
        return strtoull(text + 2, NULL, 2);
    } else if (!wants_float && strpbrk(text, ".eE") == NULL) {
        return strtoull(text, NULL, 0);
    } else if (!wants_float && (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))) {
        return strtoull(text, NULL, 16);
    } else {
        d = strtod(text, NULL);
    }
    uint64_t bits = 0;
    if (f->element == 4) {
        float v = (float)d;
        memcpy(&bits, &v, sizeof v);
    } else if (f->element == 8) {
        memcpy(&bits, &d, sizeof d);
    }
    return bits;
}

static int value(struct filler *f, uint64_t *bits);

/* A value in parentheses, from the opening one to behind the closing one. */
static int parenthesised(struct filler *f, uint64_t *bits)
{
    if (++f->nesting > TL_PTX_MAX_NESTING)
        return tl_error_set(f->err, -EINVAL,
                            "initialiser of " TL_STR_FMT
                            ": parentheses are nested more than %d deep at byte %u of it",
                            TL_STR_ARG(f->decl->name), TL_PTX_MAX_NESTING, f->lx.at);
    tl_lex_next(&f->lx);
    int rc = value(f, bits);
    if (rc < 0)
        return rc;
    if (!tl_lex_is(&f->lx, ')'))
        return complain(f, "no closing parenthesis");
    tl_lex_next(&f->lx);
    f->nesting--;
    return 0;
}

/* One of the things that a value adds up; `*minus` is taken back where the sign is in the bits
 * already. */
static int term(struct filler *f, bool *minus, uint64_t *bits)
{
    if (tl_lex_is(&f->lx, '('))
        return parenthesised(f, bits);
    if (tl_lex_as_number(&f->lx)) {
        *bits = number_bits(f, tl_lex_str(&f->lx));
        tl_lex_next(&f->lx);
        if (tl_lex_is(&f->lx, '(')) { /* a mask: that byte of the address */
            uint64_t mask = *bits, address = 0;
            int rc = parenthesised(f, &address);
            *bits = mask != 0 ? (address & mask) >> __builtin_ctzll(mask) : 0;
            return rc;
        }
        if (*minus && is_float_type(f->decl->type)) {
            *bits ^= (uint64_t)1 << (f->element * 8 - 1);
            *minus = false;
        }
        return 0;
    }
    if (f->lx.kind != TL_TOK_WORD)
        return complain(f, "no value");
    struct tl_str name = tl_lex_str(&f->lx);
    tl_lex_next(&f->lx);
    if (tl_str_is(name, "generic") && tl_lex_is(&f->lx, '('))
        return parenthesised(f, bits);
    return f->resolve(f->data, name, bits) ? 0 : complain(f, "an unknown name");
}

/* A number, name, generic(name), with + and - between, possibly behind a mask: 0xFF00(name). */
static int value(struct filler *f, uint64_t *bits)
{
    uint64_t sum = 0;
    do {
        uint64_t part = 0;
        bool minus = false;
        while (tl_lex_is(&f->lx, '-') || tl_lex_is(&f->lx, '+')) {
            minus ^= tl_lex_is(&f->lx, '-');
            tl_lex_next(&f->lx);
        }
        int rc = term(f, &minus, &part);
        if (rc < 0)
            return rc;
        sum = minus ? sum - part : sum + part;
    } while (tl_lex_is(&f->lx, '+') || tl_lex_is(&f->lx, '-'));
    *bits = sum;
    return 0;
}

/* What stands at `depth`, beginning with number `at`. */
static int fill(struct filler *f, uint32_t depth, size_t at)
{
    uint64_t bits;
    int rc;
    if (!tl_lex_is(&f->lx, '{')) {
        rc = value(f, &bits);
        if (rc == 0)
            put(f, at, bits);
        return rc;
    }
    if (depth > f->n_dims)
        return complain(f, "too many braces");
    tl_lex_next(&f->lx);
    while (!tl_lex_is(&f->lx, '}')) {
        bool is_nested = tl_lex_is(&f->lx, '{');
        rc = fill(f, depth + 1, at);
        if (rc < 0)
            return rc;
        /* plain numbers run through inner dimensions, as in C */
        at += is_nested ? f->below[depth + 1] : 1;
        if (tl_lex_is(&f->lx, ','))
            tl_lex_next(&f->lx);
        else if (!tl_lex_is(&f->lx, '}'))
            return complain(f, "no comma");
    }
    tl_lex_next(&f->lx);
    return 0;
}

int tl_ptx_initialise(const struct tl_ptx_decl *decl, tl_ptx_resolver resolve, void *data,
                      uint8_t *to, size_t bytes, struct tl_error *err)
{
    struct filler f = {
        .resolve = resolve, .data = data, .decl = decl, .err = err, .to = to, .bytes = bytes};
    f.element = tl_ptx_type_bytes(decl->type);
    if (decl->init.n == 0 || f.element == 0)
        return 0; /* nothing given, or a reference to a texture, which is bound later */
    /* All of it, whatever bytes there are, with an end that messages can print up to. */
    char *text = malloc((size_t)decl->init.n + 1);
    if (text == NULL)
        return -ENOMEM;
    memcpy(text, decl->init.p, decl->init.n);
    text[decl->init.n] = 0;
    read_dims(&f);
    tl_lex_init(&f.lx, text, 0, decl->init.n);
    int rc = fill(&f, 0, 0);
    free(text);
    return rc;
}

/* Numbers in a braced list. */
static uint64_t count_values(struct tl_str init)
{
    uint64_t commas = 0;
    bool is_empty = true, after_comma = false;
    for (uint32_t i = 0; i < init.n; i++) {
        char c = init.p[i];
        if (c == ',') {
            commas++;
            after_comma = true;
        } else if (c != '{' && c != '}' && c != ' ' && c != '\n' && c != '\t' && c != '\r') {
            is_empty = false;
            after_comma = false;
        }
    }
    return is_empty ? 0 : commas + (after_comma ? 0 : 1);
}

uint64_t tl_ptx_decl_count(const struct tl_ptx_decl *d)
{
    return d->count > 0 ? d->count * d->vec : count_values(d->init);
}

static const struct tl_ptx_decl *inner_variable(const struct tl_ptx_stmt *s, uint32_t *n)
{
    for (; s != NULL; s = s->next) {
        if (s->kind == TL_STMT_BLOCK) {
            const struct tl_ptx_decl *found = inner_variable(s->block, n);
            if (found != NULL)
                return found;
        }
        for (const struct tl_ptx_decl *d = s->kind == TL_STMT_DECL ? s->decl : NULL; d != NULL;
             d = d->next) {
            if ((tl_str_is(d->space, "global") || tl_str_is(d->space, "const")) && (*n)-- == 0)
                return d;
        }
    }
    return NULL;
}

const struct tl_ptx_decl *tl_ptx_inner_variable(const struct tl_ptx_func *f, uint32_t n)
{
    return inner_variable(f->body, &n);
}
