/* C++ names as people write them: a demangler for the Itanium ABI
 * (https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling), as far as names of kernels go, in
 * the spelling of c++filt.  What it does not know it gives back as NULL, and the mangled name is
 * shown. */
#include "runtime/report/demangle.h"

#include <stdlib.h>

/* {lambda(int)#2} and {unnamed type#1}. */
static const char *parse_unnamed(struct demangler *d)
{
    bool is_lambda = peek_second(d) == 'l';
    const char *list = "";
    d->p += 2;
    if (is_lambda) {
        list = tl__demangle_parameters(d);
        expect(d, "E");
    }
    char *number = tl_arena_printf(d->arena, "#%u}", parse_ordinal(d) + 1);
    if (number == NULL)
        return fail(d);
    return is_lambda ? join(d, join(d, "{lambda(", list, ")"), number, "")
                     : join(d, "{unnamed type", number, "");
}

static const char *parse_source_name(struct demangler *d)
{
    uint32_t n = parse_number(d);
    if (d->failed || n > (size_t)(d->end - d->p))
        return fail(d);
    char *text = tl_arena_copy(d->arena, (struct tl_str){d->p, n});
    d->p += n;
    if (text == NULL)
        return fail(d);
    bool is_anonymous = strncmp(text, "_GLOBAL_", 8) == 0 && n > 9 &&
                        strchr("._$", text[8]) != NULL && text[9] == 'N';
    return is_anonymous ? "(anonymous namespace)" : text;
}

/* The last part of a qualified name, with its template arguments off: what a constructor is
 * called. */
static const char *class_name(struct demangler *d, const char *owner)
{
    int depth = 0;
    const char *begin = owner, *end = owner + strlen(owner);
    for (const char *p = owner; *p != 0; p++) {
        depth += (*p == '<' || *p == '(' || *p == '{') - (*p == '>' || *p == ')' || *p == '}');
        if (depth == 0 && p[0] == ':' && p[1] == ':')
            begin = p + 2;
    }
    for (const char *p = begin; *p != 0; p++) {
        if (*p == '<') {
            end = p;
            break;
        }
    }
    char *text = tl_arena_copy(d->arena, (struct tl_str){begin, (uint32_t)(end - begin)});
    return text != NULL ? text : fail(d);
}

const char *tl__demangle_unqualified(struct demangler *d, const char *owner)
{
    const char *name;
    const struct spelling *o;
    eat(d, "L"); /* internal linkage */
    if (isdigit((unsigned char)peek(d))) {
        name = parse_source_name(d);
    } else if (peek(d) == 'U' && (peek_second(d) == 'l' || peek_second(d) == 't')) {
        name = parse_unnamed(d);
    } else if (peek(d) == 'C' && isdigit((unsigned char)peek_second(d))) {
        d->p += 2;
        name = class_name(d, owner);
    } else if (peek(d) == 'D' && isdigit((unsigned char)peek_second(d))) {
        d->p += 2;
        name = join(d, "~", class_name(d, owner), "");
    } else if (eat(d, "cv")) {
        name = join(d, "operator ", whole(d, tl__demangle_type(d)), "");
    } else if ((o = tl__demangle_operator(d)) != NULL) {
        d->p += 2;
        name = join(d, "operator", isalpha((unsigned char)o->text[0]) ? " " : "", o->text);
    } else {
        return fail(d);
    }
    while (eat(d, "B")) {
        const char *tag = parse_source_name(d);
        name = join(d, join(d, name, "[abi:", tag), "]", "");
    }
    return name;
}

/* N [qualifiers] part part ... E: behind the N. */
static const char *parse_nested(struct demangler *d, bool *has_args, const char **method_qualifiers)
{
    const char *text = "";
    *method_qualifiers = tl__demangle_qualifiers(d);
    if (eat(d, "R"))
        *method_qualifiers = join(d, *method_qualifiers, " &", "");
    else if (eat(d, "O"))
        *method_qualifiers = join(d, *method_qualifiers, " &&", "");
    *has_args = false;
    while (!d->failed && !eat(d, "E")) {
        bool is_new = true;
        if (peek(d) == 'S' && peek_second(d) != 't') {
            d->p++;
            text = whole(d, tl__demangle_substitution(d));
            is_new = false;
            *has_args = false;
        } else if (eat(d, "St")) {
            text = "std";
            is_new = false;
        } else if (peek(d) == 'T' && text[0] == 0) {
            d->p++;
            text = whole(d, tl__demangle_param(d));
        } else if (peek(d) == 'D' && (peek_second(d) == 't' || peek_second(d) == 'T')) {
            text = whole(d, tl__demangle_d_type(d));
        } else if (eat(d, "I")) {
            d->args = tl__demangle_args(d);
            text = tl__demangle_with_args(d, text, d->args);
            *has_args = true;
        } else if (eat(d, "M")) {
            is_new = false; /* the lambda before is the initialiser of a member */
        } else {
            bool is_special = peek(d) == 'C' || (peek(d) == 'c' && peek_second(d) == 'v');
            const char *part = tl__demangle_unqualified(d, text);
            text = text[0] != 0 ? join(d, text, "::", part) : part;
            *has_args = false;
            if (is_special)
                is_new = is_new && peek(d) != 'E';
        }
        if (is_new && peek(d) != 'E')
            keep(d, plain(text));
        if (d->p >= d->end)
            d->failed = true;
    }
    return text;
}

/* Z function E name: behind the Z. */
static const char *parse_local(struct demangler *d, bool *has_args, const char **method_qualifiers)
{
    const struct args *args = d->args;
    const char *function = tl__demangle_encoding(d, false);
    expect(d, "E");
    if (eat(d, "s"))
        return join(d, function, "::", "string literal");
    if (eat(d, "d"))
        parse_ordinal(d);
    const char *name = tl__demangle_name(d, has_args, method_qualifiers);
    if (d->args == NULL)
        d->args = args;
    if (eat(d, "__")) {
        parse_number(d);
        expect(d, "_");
    } else if (peek(d) == '_' && isdigit((unsigned char)peek_second(d))) {
        d->p += 2;
    }
    return join(d, function, "::", name);
}

/* has_args: it ends in template arguments, so that a function's return type follows. */
const char *tl__demangle_name(struct demangler *d, bool *has_args, const char **method_qualifiers)
{
    const char *name = "";
    *has_args = false;
    *method_qualifiers = "";
    if (!enter(d))
        return name;
    if (eat(d, "N")) {
        name = parse_nested(d, has_args, method_qualifiers);
    } else if (eat(d, "Z")) {
        name = parse_local(d, has_args, method_qualifiers);
    } else {
        bool is_substitution = peek(d) == 'S' && peek_second(d) != 't';
        if (is_substitution) {
            d->p++;
            name = whole(d, tl__demangle_substitution(d));
        } else if (eat(d, "St")) {
            name = join(d, "std::", tl__demangle_unqualified(d, ""), "");
        } else {
            name = tl__demangle_unqualified(d, "");
        }
        if (peek(d) == 'I') {
            if (!is_substitution)
                keep(d, plain(name));
            d->p++;
            d->args = tl__demangle_args(d);
            name = tl__demangle_with_args(d, name, d->args);
            *has_args = true;
        }
    }
    d->depth--;
    return name;
}

const char *tl__demangle_encoding(struct demangler *d, bool with_return)
{
    bool has_args;
    const char *qualifiers, *name = "";
    if (!enter(d))
        return name;
    name = tl__demangle_name(d, &has_args, &qualifiers);
    if (d->p < d->end && peek(d) != 'E' && peek(d) != '.') {
        struct piece result = has_args ? tl__demangle_type(d) : nothing;
        const char *list = tl__demangle_parameters(d);
        const char *call = join(d, join(d, name, "(", list), ")", qualifiers);
        if (has_args && with_return) {
            const char *gap = result.is_wrapping || result.left[0] == 0 ? "" : " ";
            call = join(d, join(d, result.left, gap, call), result.right, "");
        }
        name = call;
    }
    d->depth--;
    return name;
}

char *tl_demangle(struct tl_arena *arena, const char *name)
{
    struct tl_arena scratch;
    if (strncmp(name, "_Z", 2) != 0)
        return NULL;
    struct demangler *d = calloc(1, sizeof *d);
    if (d == NULL)
        return NULL;
    tl_arena_init(&scratch, MAX_SCRATCH);
    *d = (struct demangler){.p = name + 2, .end = name + strlen(name), .arena = &scratch};
    const char *text = tl__demangle_encoding(d, true);
    char *result = NULL;
    if (!d->failed && peek(d) == '.')
        text = join(d, join(d, text, " [clone ", d->p), "]", "");
    else if (d->p != d->end)
        d->failed = true;
    if (!d->failed && text[0] != 0)
        result = tl_arena_copy(arena, tl_str_of(text));
    tl_arena_finish(&scratch);
    free(d);
    return result;
}
