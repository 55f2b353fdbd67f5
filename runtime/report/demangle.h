/* What the files of the demangler share: its state, reading and joining.
 *
 *     runtime/report/demangle.c       names of functions, classes, lambdas; the entry
 *     runtime/report/demangle_type.c  types, template arguments, expressions
 *
 * A type is a pair of texts, because declarators wrap around names: `void (*` and `)(int)`.  Depth,
 * substitutions and memory are bounded, since names come from files. */
#ifndef TALLY_RUNTIME_REPORT_DEMANGLE_H
#define TALLY_RUNTIME_REPORT_DEMANGLE_H

#include <ctype.h>
#include <string.h>

#include "runtime/report/report.h"

enum { MAX_DEPTH = 192, MAX_SUBS = 1024, MAX_SCRATCH = 32 << 20, MAX_TEXT = 64 << 10 };

struct piece {
    const char *left, *right;
    bool is_wrapping;        /* a function or array: a pointer to it needs parentheses */
    const struct args *pack; /* a template argument that is a pack of them, or NULL */
};

struct arg {
    struct piece piece;
    struct arg *next;
};

struct args {
    struct arg *first;
    uint32_t n;
};

struct demangler {
    const char *p, *end;
    struct tl_arena *arena;
    struct piece subs[MAX_SUBS];
    uint32_t n_subs;
    const struct args *args; /* what T_ refers to */
    uint32_t pack_index;     /* which element of packs is meant, inside a pack expansion */
    uint32_t pack_size;      /* of the packs seen there */
    bool is_expanding, saw_pack;
    uint32_t depth;
    bool failed;
};

/* An operator's code in names and how it is written; those with operands occur in expressions. */
struct spelling {
    char code[3];
    const char *text;
    int operands;
};

/* Everything here reads at d->p and moves it on.  On failure d->failed is set, and what is returned
 * is not to be used. */
const char *tl__demangle_encoding(struct demangler *d, bool with_return);
/* has_args: it ends in template arguments, so that a function's return type follows. */
const char *tl__demangle_name(struct demangler *d, bool *has_args, const char **method_qualifiers);
/* Qualifiers of a type or a method, as they are written behind it; empty if there are none. */
const char *tl__demangle_qualifiers(struct demangler *d);
/* One part of a name; `owner` is what stands before it, for constructors. */
const char *tl__demangle_unqualified(struct demangler *d, const char *owner);
struct piece tl__demangle_type(struct demangler *d);
/* The types up to the end of a list, with commas. */
const char *tl__demangle_parameters(struct demangler *d);
/* What begins with D and is no built-in type. */
struct piece tl__demangle_d_type(struct demangler *d);
/* Behind `S`; not for `St`. */
struct piece tl__demangle_substitution(struct demangler *d);
/* T_, T0_, ...: behind the T. */
struct piece tl__demangle_param(struct demangler *d);
/* Behind `I` or `J`, up to and with `E`. */
const struct args *tl__demangle_args(struct demangler *d);
/* name + "<a, b>" in c++filt's way, which keeps closing brackets apart. */
const char *tl__demangle_with_args(struct demangler *d, const char *name, const struct args *args);
/* The operator at d->p, which stays, or NULL. */
const struct spelling *tl__demangle_operator(const struct demangler *d);

static const struct piece nothing = {"", "", false, NULL};

/* --- texts --- */

static inline const char *fail(struct demangler *d)
{
    d->failed = true;
    return "";
}

static inline const char *join(struct demangler *d, const char *a, const char *b, const char *c)
{
    size_t na = strlen(a), nb = strlen(b), nc = strlen(c);
    if (d->failed || na + nb + nc > MAX_TEXT)
        return fail(d);
    char *text = tl_arena_alloc(d->arena, na + nb + nc + 1);
    if (text == NULL)
        return fail(d);
    memcpy(text, a, na);
    memcpy(text + na, b, nb);
    memcpy(text + na + nb, c, nc + 1);
    return text;
}

static inline const char *whole(struct demangler *d, struct piece t)
{
    return t.right[0] == 0 ? t.left : join(d, t.left, t.right, "");
}

static inline struct piece plain(const char *text)
{
    return (struct piece){text, "", false, NULL};
}

/* --- reading --- */

static inline bool enter(struct demangler *d)
{
    if (++d->depth > MAX_DEPTH)
        d->failed = true;
    return !d->failed;
}

static inline char peek(const struct demangler *d)
{
    return d->p < d->end ? *d->p : 0;
}

static inline char peek_second(const struct demangler *d)
{
    return d->end - d->p > 1 ? d->p[1] : 0;
}

static inline bool eat(struct demangler *d, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(d->end - d->p) < n || strncmp(d->p, text, n) != 0)
        return false;
    d->p += n;
    return true;
}

static inline void expect(struct demangler *d, const char *text)
{
    if (!eat(d, text))
        d->failed = true;
}

static inline uint32_t parse_number(struct demangler *d)
{
    uint32_t n = 0;
    if (!isdigit((unsigned char)peek(d)))
        d->failed = true;
    for (; isdigit((unsigned char)peek(d)); d->p++) {
        if (n > 1000000)
            d->failed = true;
        else
            n = n * 10 + (uint32_t)(*d->p - '0');
    }
    return n;
}

/* The number of `_`, `0_`, `1_`, ...: 0, 1, 2, ... */
static inline uint32_t parse_ordinal(struct demangler *d)
{
    uint32_t n = 0;
    if (peek(d) != '_')
        n = parse_number(d) + 1;
    expect(d, "_");
    return n;
}

static inline void keep(struct demangler *d, struct piece t)
{
    if (d->n_subs == MAX_SUBS)
        d->failed = true;
    else
        d->subs[d->n_subs++] = t;
}

#endif
