/* C++ names as people write them: a demangler for the Itanium ABI (https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling),
 * as far as names of kernels go, in the spelling of c++filt.  What it does not know it gives back as NULL, and the mangled name is
 * shown.
 *
 * A type is a pair of texts, because declarators wrap around names: `void (*` and `)(int)`.  Depth, substitutions and memory
 * are bounded, since names come from files. */
#include "runtime/report.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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

static struct piece parse_type(struct demangler *d);
static const char *parse_name(struct demangler *d, bool *has_args, const char **method_qualifiers);
static const char *parse_encoding(struct demangler *d, bool with_return);
static const char *parse_expression(struct demangler *d);

static const struct piece nothing = {"", "", false, NULL};

/* --- texts --- */

static const char *fail(struct demangler *d)
{
    d->failed = true;
    return "";
}

static const char *join(struct demangler *d, const char *a, const char *b, const char *c)
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

static const char *whole(struct demangler *d, struct piece t)
{
    return t.right[0] == 0 ? t.left : join(d, t.left, t.right, "");
}

static struct piece plain(const char *text)
{
    return (struct piece){text, "", false, NULL};
}

/* --- reading --- */

static bool enter(struct demangler *d)
{
    if (++d->depth > MAX_DEPTH)
        d->failed = true;
    return !d->failed;
}

static char peek(const struct demangler *d)
{
    return d->p < d->end ? *d->p : 0;
}

static char peek_second(const struct demangler *d)
{
    return d->end - d->p > 1 ? d->p[1] : 0;
}

static bool eat(struct demangler *d, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(d->end - d->p) < n || strncmp(d->p, text, n) != 0)
        return false;
    d->p += n;
    return true;
}

static void expect(struct demangler *d, const char *text)
{
    if (!eat(d, text))
        d->failed = true;
}

static uint32_t parse_number(struct demangler *d)
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
static uint32_t parse_ordinal(struct demangler *d)
{
    uint32_t n = 0;
    if (peek(d) != '_')
        n = parse_number(d) + 1;
    expect(d, "_");
    return n;
}

static void keep(struct demangler *d, struct piece t)
{
    if (d->n_subs == MAX_SUBS)
        d->failed = true;
    else
        d->subs[d->n_subs++] = t;
}

/* --- template arguments --- */

static struct piece parse_literal(struct demangler *d)
{
    static const struct {
        char type;
        const char *suffix;
    } integers[] = {{'i', ""}, {'j', "u"}, {'l', "l"}, {'m', "ul"}, {'x', "ll"}, {'y', "ull"}};
    if (eat(d, "_Z") || eat(d, "Z")) {
        const char *name = parse_encoding(d, true);
        expect(d, "E");
        return plain(name);
    }
    if (eat(d, "b0E"))
        return plain("false");
    if (eat(d, "b1E"))
        return plain("true");
    const char *suffix = NULL;
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        if (peek(d) == integers[i].type)
            suffix = integers[i].suffix;
    struct piece type = parse_type(d);
    const char *sign = eat(d, "n") ? "-" : "";
    const char *begin = d->p;
    while (d->p < d->end && *d->p != 'E')
        d->p++;
    char *value = tl_arena_copy(d->arena, (struct tl_str){begin, (uint32_t)(d->p - begin)});
    expect(d, "E");
    if (value == NULL)
        return plain(fail(d));
    if (suffix != NULL)
        return plain(join(d, sign, value, suffix));
    return plain(join(d, join(d, "(", whole(d, type), ")"), sign, value));
}

static const struct args *parse_args(struct demangler *d);

static struct piece parse_arg(struct demangler *d)
{
    struct piece t = nothing;
    if (!enter(d))
        return t;
    if (eat(d, "X")) {
        t = plain(parse_expression(d));
        expect(d, "E");
    } else if (eat(d, "L")) {
        t = parse_literal(d);
    } else if (eat(d, "J")) {
        t.pack = parse_args(d);
    } else {
        t = parse_type(d);
    }
    d->depth--;
    return t;
}

/* Behind `I` or `J`, up to and with `E`. */
static const struct args *parse_args(struct demangler *d)
{
    struct args *all = tl_arena_zalloc(d->arena, sizeof *all);
    if (all == NULL) {
        d->failed = true;
        return NULL;
    }
    struct arg **last = &all->first;
    while (!d->failed && !eat(d, "E")) {
        struct arg *arg = tl_arena_zalloc(d->arena, sizeof *arg);
        if (arg == NULL || d->p >= d->end) {
            d->failed = true;
            break;
        }
        arg->piece = parse_arg(d);
        *last = arg;
        last = &arg->next;
        all->n++;
    }
    return all;
}

/* "a, b, c"; packs are part of the row. */
static const char *list_of(struct demangler *d, const struct args *args, const char *so_far)
{
    for (const struct arg *a = args != NULL ? args->first : NULL; a != NULL && !d->failed; a = a->next) {
        if (a->piece.pack != NULL) {
            so_far = list_of(d, a->piece.pack, so_far);
            continue;
        }
        so_far = join(d, so_far, so_far[0] != 0 ? ", " : "", whole(d, a->piece));
    }
    return so_far;
}

/* name + "<a, b>" in c++filt's way, which keeps closing brackets apart. */
static const char *with_args(struct demangler *d, const char *name, const struct args *args)
{
    const char *list = list_of(d, args, "");
    size_t n = strlen(list), m = strlen(name);
    const char *open = m > 0 && name[m - 1] == '<' ? " <" : "<";
    return join(d, join(d, name, open, list), n > 0 && list[n - 1] == '>' ? " >" : ">", "");
}

/* T_, T0_, ...: behind the T. */
static struct piece parse_param(struct demangler *d)
{
    uint32_t index = parse_ordinal(d);
    const struct arg *a = d->args != NULL ? d->args->first : NULL;
    for (; a != NULL && index > 0; index--)
        a = a->next;
    if (a == NULL)
        return plain(fail(d));
    if (a->piece.pack == NULL)
        return a->piece;
    if (!d->is_expanding)
        return plain(list_of(d, a->piece.pack, ""));
    d->saw_pack = true;
    d->pack_size = a->piece.pack->n;
    const struct arg *element = a->piece.pack->first;
    for (uint32_t i = 0; element != NULL && i < d->pack_index; i++)
        element = element->next;
    return element != NULL ? element->piece : nothing;
}

/* Dp PATTERN: the pattern once for each element of the packs in it, as one text with commas. */
static struct piece parse_expansion(struct demangler *d)
{
    const char *begin = d->p;
    uint32_t subs = d->n_subs;
    bool was_expanding = d->is_expanding, saw_before = d->saw_pack;
    uint32_t index_before = d->pack_index;
    const char *text = "";
    d->is_expanding = true;
    d->saw_pack = false;
    for (d->pack_index = 0; !d->failed; d->pack_index++) {
        d->p = begin;
        d->n_subs = subs;
        const char *one = whole(d, parse_type(d));
        if (d->saw_pack && d->pack_index >= d->pack_size)
            break;
        text = join(d, text, d->pack_index > 0 ? ", " : "", one);
        if (!d->saw_pack) {
            text = join(d, text, "...", "");
            break;
        }
        if (d->pack_index + 1 >= d->pack_size)
            break;
    }
    d->is_expanding = was_expanding;
    d->saw_pack = saw_before;
    d->pack_index = index_before;
    return plain(text);
}

/* --- expressions --- */

static const struct operator
{
    char code[3];
    const char *text;
    int operands;
}
operators[] = {
    {"aN", "&=", 2}, {"aS", "=", 2},   {"aa", "&&", 2},  {"ad", "&", 1},        {"an", "&", 2},     {"cl", "()", 0},
    {"cm", ",", 2},  {"co", "~", 1},   {"dV", "/=", 2},  {"da", "delete[]", 0}, {"de", "*", 1},     {"dl", "delete", 0},
    {"dv", "/", 2},  {"eO", "^=", 2},  {"eo", "^", 2},   {"eq", "==", 2},       {"ge", ">=", 2},    {"gt", ">", 2},
    {"ix", "[]", 0}, {"lS", "<<=", 2}, {"le", "<=", 2},  {"ls", "<<", 2},       {"lt", "<", 2},     {"mI", "-=", 2},
    {"mL", "*=", 2}, {"mi", "-", 2},   {"ml", "*", 2},   {"mm", "--", 1},       {"na", "new[]", 0}, {"ne", "!=", 2},
    {"ng", "-", 1},  {"nt", "!", 1},   {"nw", "new", 0}, {"oR", "|=", 2},       {"oo", "||", 2},    {"or", "|", 2},
    {"pL", "+=", 2}, {"pl", "+", 2},   {"pm", "->*", 2}, {"pp", "++", 1},       {"ps", "+", 1},     {"pt", "->", 0},
    {"qu", "?", 3},  {"rM", "%=", 2},  {"rS", ">>=", 2}, {"rm", "%", 2},        {"rs", ">>", 2},    {"ss", "<=>", 2},
};

static const struct operator* find_operator(const struct demangler *d)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (peek(d) == operators[i].code[0] && peek_second(d) == operators[i].code[1])
            return &operators[i];
    return NULL;
}

static const char *parse_unqualified(struct demangler *d, const char *owner);

/* sr TYPE NAME [ARGS], or what stands in an expression in place of a name. */
static const char *parse_unresolved(struct demangler *d)
{
    const char *owner = whole(d, parse_type(d));
    const char *name = parse_unqualified(d, owner);
    if (eat(d, "I"))
        name = with_args(d, name, parse_args(d));
    return join(d, owner, "::", name);
}

static const char *in_parentheses(struct demangler *d, const char *text)
{
    return join(d, "(", text, ")");
}

static const char *parse_operator(struct demangler *d, const struct operator* o)
{
    d->p += 2;
    const char *a = parse_expression(d);
    if (o->operands == 1)
        return join(d, o->text, o->text[0] == '&' && a[0] != '(' ? a : in_parentheses(d, a), "");
    const char *b = parse_expression(d);
    const char *pair = join(d, in_parentheses(d, a), o->text, in_parentheses(d, b));
    if (o->operands == 3)
        return join(d, pair, ":", in_parentheses(d, parse_expression(d)));
    return o->text[0] == '>' ? in_parentheses(d, pair) : pair;
}

static const char *parse_expression(struct demangler *d)
{
    const char *text = "";
    if (!enter(d))
        return text;
    const struct operator* o = find_operator(d);
    if (o != NULL && o->operands > 0)
        text = parse_operator(d, o);
    else if (eat(d, "L"))
        text = whole(d, parse_literal(d));
    else if (eat(d, "T"))
        text = whole(d, parse_param(d));
    else if (eat(d, "st"))
        text = join(d, "sizeof (", whole(d, parse_type(d)), ")");
    else if (eat(d, "sr"))
        text = parse_unresolved(d);
    else if (eat(d, "sZ"))
        text = join(d, "sizeof...(", parse_expression(d), ")");
    else if (isdigit((unsigned char)peek(d)))
        text = parse_unqualified(d, "");
    else
        d->failed = true;
    d->depth--;
    return text;
}

/* --- types --- */

static struct piece parse_parameters(struct demangler *d)
{
    const char *list = "";
    while (!d->failed && d->p < d->end && peek(d) != 'E' && peek(d) != '.') {
        if (eat(d, "v"))
            continue; /* no parameter */
        const char *one = whole(d, parse_type(d));
        if (one[0] != 0)
            list = join(d, list, list[0] != 0 ? ", " : "", one);
    }
    return plain(list);
}

static struct piece parse_function(struct demangler *d)
{
    eat(d, "Y"); /* extern "C" */
    struct piece result = parse_type(d);
    const char *list = "";
    const char *reference = "";
    while (!d->failed && !eat(d, "E")) {
        if ((peek(d) == 'R' || peek(d) == 'O') && peek_second(d) == 'E') {
            reference = *d->p++ == 'R' ? " &" : " &&";
            continue;
        }
        if (eat(d, "v"))
            continue;
        if (d->p >= d->end)
            d->failed = true;
        const char *one = whole(d, parse_type(d));
        if (one[0] != 0)
            list = join(d, list, list[0] != 0 ? ", " : "", one);
    }
    struct piece t = {join(d, result.left, " ", ""), join(d, join(d, "(", list, ")"), reference, result.right), true,
                      NULL};
    return t;
}

static struct piece parse_array(struct demangler *d)
{
    const char *size = "";
    const char *begin = d->p;
    if (isdigit((unsigned char)peek(d))) {
        parse_number(d);
        size = tl_arena_copy(d->arena, (struct tl_str){begin, (uint32_t)(d->p - begin)});
    } else if (peek(d) != '_') {
        size = parse_expression(d);
    }
    expect(d, "_");
    struct piece element = parse_type(d);
    if (size == NULL)
        return plain(fail(d));
    /* Of "int [3][4]", only the first bracket has a blank before it. */
    const char *rest = element.right[0] == ' ' ? element.right + 1 : element.right;
    return (struct piece){element.left, join(d, " [", size, join(d, "]", rest, "")), true, NULL};
}

/* A pointer, reference or the like to a type: `sign` goes to the inside of functions and arrays. */
static struct piece parse_pointer(struct demangler *d, const char *sign)
{
    struct piece to = parse_type(d);
    size_t n = strlen(to.left);
    /* A reference to a reference is the left one of them (T& && is T&). */
    if (sign[0] == '&' && !to.is_wrapping && n > 0 && to.left[n - 1] == '&') {
        bool is_double = n > 1 && to.left[n - 2] == '&';
        if (!is_double || sign[1] == '&')
            return to;
        to.left = join(d, tl_arena_printf(d->arena, "%.*s", (int)(n - 2), to.left), "", "");
    }
    if (!to.is_wrapping)
        return (struct piece){join(d, to.left, sign, ""), to.right, false, NULL};
    const char *gap = n > 0 && to.left[n - 1] == ' ' ? "" : " ";
    return (struct piece){join(d, join(d, to.left, gap, "("), sign, ""), join(d, ")", to.right, ""), false, NULL};
}

static struct piece parse_member_pointer(struct demangler *d)
{
    const char *owner = whole(d, parse_type(d));
    struct piece to = parse_type(d);
    const char *sign = join(d, owner, "::*", "");
    if (to.is_wrapping)
        return (struct piece){join(d, to.left, "(", sign), join(d, ")", to.right, ""), false, NULL};
    return (struct piece){join(d, to.left, " ", sign), to.right, false, NULL};
}

static struct piece parse_qualified(struct demangler *d)
{
    const char *text = "";
    for (;; d->p++) {
        const char *word = peek(d) == 'r'   ? " __restrict__"
                           : peek(d) == 'V' ? " volatile"
                           : peek(d) == 'K' ? " const"
                                            : NULL;
        if (word == NULL)
            break;
        text = join(d, word, text, "");
    }
    struct piece t = parse_type(d);
    if (t.is_wrapping && t.right[0] == '(')
        return (struct piece){t.left, join(d, t.right, text, ""), true, NULL};
    return (struct piece){join(d, t.left, text, ""), t.right, t.is_wrapping, NULL};
}

static const char *builtin(struct demangler *d)
{
    static const struct {
        const char *code, *text;
    } types[] = {
        {"v", "void"},
        {"w", "wchar_t"},
        {"b", "bool"},
        {"a", "signed char"},
        {"h", "unsigned char"},
        {"c", "char"},
        {"s", "short"},
        {"t", "unsigned short"},
        {"i", "int"},
        {"j", "unsigned int"},
        {"l", "long"},
        {"m", "unsigned long"},
        {"x", "long long"},
        {"n", "__int128"},
        {"y", "unsigned long long"},
        {"o", "unsigned __int128"},
        {"f", "float"},
        {"d", "double"},
        {"e", "long double"},
        {"g", "__float128"},
        {"z", "..."},
        {"Dn", "decltype(nullptr)"},
        {"Da", "auto"},
        {"Dc", "decltype(auto)"},
        {"Ds", "char16_t"},
        {"Di", "char32_t"},
        {"Du", "char8_t"},
        {"Dh", "half"},
        {"DF16_", "_Float16"},
        {"DF16b", "std::bfloat16_t"},
        {"DF32_", "_Float32"},
        {"DF64_", "_Float64"},
        {"Dd", "decimal64"},
        {"De", "decimal128"},
        {"Df", "decimal32"},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (eat(d, types[i].code))
            return types[i].text;
    return NULL;
}

static const char *std_name(char c)
{
    switch (c) {
    case 'a':
        return "std::allocator";
    case 'b':
        return "std::basic_string";
    case 's':
        return "std::string";
    case 'i':
        return "std::istream";
    case 'o':
        return "std::ostream";
    case 'd':
        return "std::iostream";
    default:
        return NULL;
    }
}

/* Behind `S`; not for `St`. */
static struct piece parse_substitution(struct demangler *d)
{
    const char *name = std_name(peek(d));
    if (name != NULL) {
        d->p++;
        return plain(name);
    }
    uint32_t index = 0;
    if (peek(d) != '_') {
        for (; isdigit((unsigned char)peek(d)) || isupper((unsigned char)peek(d)); d->p++)
            index = index < MAX_SUBS ? index * 36 + (uint32_t)(*d->p <= '9' ? *d->p - '0' : *d->p - 'A' + 10) : index;
        index++;
    }
    expect(d, "_");
    if (index >= d->n_subs)
        return plain(fail(d));
    return d->subs[index];
}

/* What begins with D and is no built-in type. */
static struct piece parse_d_type(struct demangler *d)
{
    if (eat(d, "Dp"))
        return parse_expansion(d);
    if (eat(d, "Dt") || eat(d, "DT")) {
        const char *text = join(d, "decltype (", parse_expression(d), ")");
        expect(d, "E");
        return plain(text);
    }
    if (eat(d, "Dv")) {
        const char *begin = d->p;
        parse_number(d);
        char *n = tl_arena_copy(d->arena, (struct tl_str){begin, (uint32_t)(d->p - begin)});
        expect(d, "_");
        struct piece t = parse_type(d);
        return n != NULL ? plain(join(d, join(d, whole(d, t), " __vector(", n), ")", "")) : plain(fail(d));
    }
    if (eat(d, "Do"))
        return parse_type(d); /* noexcept is left out */
    return plain(fail(d));
}

/* Everything but built-in types and bare substitutions can be referred to later. */
static struct piece parse_new_type(struct demangler *d)
{
    switch (peek(d)) {
    case 'r':
    case 'V':
    case 'K':
        return parse_qualified(d);
    case 'P':
        d->p++;
        return parse_pointer(d, "*");
    case 'R':
        d->p++;
        return parse_pointer(d, "&");
    case 'O':
        d->p++;
        return parse_pointer(d, "&&");
    case 'F':
        d->p++;
        return parse_function(d);
    case 'A':
        d->p++;
        return parse_array(d);
    case 'M':
        d->p++;
        return parse_member_pointer(d);
    case 'C':
        d->p++;
        return plain(join(d, whole(d, parse_type(d)), " _Complex", ""));
    case 'D':
        return parse_d_type(d);
    case 'u':
        d->p++;
        return plain(parse_unqualified(d, ""));
    case 'T':
        if (strchr("sue", peek_second(d)) != NULL && peek_second(d) != 0) {
            d->p += 2; /* struct, union, enum */
            break;
        }
        d->p++;
        return parse_param(d);
    default:
        break;
    }
    bool has_args;
    const char *qualifiers;
    return plain(parse_name(d, &has_args, &qualifiers));
}

static struct piece parse_type(struct demangler *d)
{
    struct piece t = nothing;
    if (!enter(d))
        return t;
    const struct args *args = d->args;
    const char *name = builtin(d);
    if (name != NULL) {
        t = plain(name);
    } else if (peek(d) == 'S' && peek_second(d) != 't') {
        d->p++;
        t = parse_substitution(d);
        if (eat(d, "I")) {
            t = plain(with_args(d, whole(d, t), parse_args(d)));
            keep(d, t);
        }
    } else {
        bool is_param = peek(d) == 'T';
        bool is_pack = peek(d) == 'D' && peek_second(d) == 'p';
        t = parse_new_type(d);
        if (!is_pack || !d->failed)
            keep(d, t);
        if (is_param && eat(d, "I")) {
            t = plain(with_args(d, whole(d, t), parse_args(d)));
            keep(d, t);
        }
    }
    d->args = args;
    d->depth--;
    return t;
}

/* --- names --- */

/* {lambda(int)#2} and {unnamed type#1}. */
static const char *parse_unnamed(struct demangler *d)
{
    bool is_lambda = peek_second(d) == 'l';
    const char *list = "";
    d->p += 2;
    if (is_lambda) {
        list = whole(d, parse_parameters(d));
        expect(d, "E");
    }
    char *number = tl_arena_printf(d->arena, "#%u}", parse_ordinal(d) + 1);
    if (number == NULL)
        return fail(d);
    return is_lambda ? join(d, join(d, "{lambda(", list, ")"), number, "") : join(d, "{unnamed type", number, "");
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
    bool is_anonymous = strncmp(text, "_GLOBAL_", 8) == 0 && n > 9 && strchr("._$", text[8]) != NULL && text[9] == 'N';
    return is_anonymous ? "(anonymous namespace)" : text;
}

/* The last part of a qualified name, with its template arguments off: what a constructor is called. */
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

static const char *parse_unqualified(struct demangler *d, const char *owner)
{
    const char *name;
    const struct operator* o;
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
        name = join(d, "operator ", whole(d, parse_type(d)), "");
    } else if ((o = find_operator(d)) != NULL) {
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
    *method_qualifiers = "";
    for (;; d->p++) {
        const char *word = peek(d) == 'r'   ? " __restrict__"
                           : peek(d) == 'V' ? " volatile"
                           : peek(d) == 'K' ? " const"
                                            : NULL;
        if (word == NULL)
            break;
        *method_qualifiers = join(d, word, *method_qualifiers, "");
    }
    if (eat(d, "R"))
        *method_qualifiers = join(d, *method_qualifiers, " &", "");
    else if (eat(d, "O"))
        *method_qualifiers = join(d, *method_qualifiers, " &&", "");
    *has_args = false;
    while (!d->failed && !eat(d, "E")) {
        bool is_new = true;
        if (peek(d) == 'S' && peek_second(d) != 't') {
            d->p++;
            text = whole(d, parse_substitution(d));
            is_new = false;
            *has_args = false;
        } else if (eat(d, "St")) {
            text = "std";
            is_new = false;
        } else if (peek(d) == 'T' && text[0] == 0) {
            d->p++;
            text = whole(d, parse_param(d));
        } else if (peek(d) == 'D' && (peek_second(d) == 't' || peek_second(d) == 'T')) {
            text = whole(d, parse_d_type(d));
        } else if (eat(d, "I")) {
            d->args = parse_args(d);
            text = with_args(d, text, d->args);
            *has_args = true;
        } else if (eat(d, "M")) {
            is_new = false; /* the lambda before is the initialiser of a member */
        } else {
            bool is_special = peek(d) == 'C' || (peek(d) == 'c' && peek_second(d) == 'v');
            const char *part = parse_unqualified(d, text);
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
    const char *function = parse_encoding(d, false);
    expect(d, "E");
    if (eat(d, "s"))
        return join(d, function, "::", "string literal");
    if (eat(d, "d"))
        parse_ordinal(d);
    const char *name = parse_name(d, has_args, method_qualifiers);
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
static const char *parse_name(struct demangler *d, bool *has_args, const char **method_qualifiers)
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
            name = whole(d, parse_substitution(d));
        } else if (eat(d, "St")) {
            name = join(d, "std::", parse_unqualified(d, ""), "");
        } else {
            name = parse_unqualified(d, "");
        }
        if (peek(d) == 'I') {
            if (!is_substitution)
                keep(d, plain(name));
            d->p++;
            d->args = parse_args(d);
            name = with_args(d, name, d->args);
            *has_args = true;
        }
    }
    d->depth--;
    return name;
}

static const char *parse_encoding(struct demangler *d, bool with_return)
{
    bool has_args;
    const char *qualifiers, *name = "";
    if (!enter(d))
        return name;
    name = parse_name(d, &has_args, &qualifiers);
    if (d->p < d->end && peek(d) != 'E' && peek(d) != '.') {
        struct piece result = has_args ? parse_type(d) : nothing;
        const char *list = whole(d, parse_parameters(d));
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
    const char *text = parse_encoding(d, true);
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
