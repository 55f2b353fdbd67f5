/* The demangler's types, template arguments and expressions. */
#include "runtime/report/demangle.h"

static const char *parse_expression(struct demangler *d);

/* --- template arguments --- */

/* A constant among template arguments: a number with its suffix, a truth value, a function. */
static struct piece parse_literal(struct demangler *d)
{
    static const struct {
        char type;
        const char *suffix;
    } integers[] = {{'i', ""}, {'j', "u"}, {'l', "l"}, {'m', "ul"}, {'x', "ll"}, {'y', "ull"}};
    if (eat(d, "_Z") || eat(d, "Z")) {
        const char *name = tl__demangle_encoding(d, true);
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
    struct piece type = tl__demangle_type(d);
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
        t.pack = tl__demangle_args(d);
    } else {
        t = tl__demangle_type(d);
    }
    d->depth--;
    return t;
}

/* Behind `I` or `J`, up to and with `E`. */
const struct args *tl__demangle_args(struct demangler *d)
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
    for (const struct arg *a = args != NULL ? args->first : NULL; a != NULL && !d->failed;
         a = a->next) {
        if (a->piece.pack != NULL) {
            so_far = list_of(d, a->piece.pack, so_far);
            continue;
        }
        so_far = join(d, so_far, so_far[0] != 0 ? ", " : "", whole(d, a->piece));
    }
    return so_far;
}

/* name + "<a, b>" in c++filt's way, which keeps closing brackets apart. */
const char *tl__demangle_with_args(struct demangler *d, const char *name, const struct args *args)
{
    const char *list = list_of(d, args, "");
    size_t n = strlen(list), m = strlen(name);
    const char *open = m > 0 && name[m - 1] == '<' ? " <" : "<";
    return join(d, join(d, name, open, list), n > 0 && list[n - 1] == '>' ? " >" : ">", "");
}

/* T_, T0_, ...: behind the T. */
struct piece tl__demangle_param(struct demangler *d)
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
        const char *one = whole(d, tl__demangle_type(d));
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

static const struct spelling operators[] = {
    {"aN", "&=", 2},    {"aS", "=", 2},        {"aa", "&&", 2},  {"ad", "&", 1},
    {"an", "&", 2},     {"cl", "()", 0},       {"cm", ",", 2},   {"co", "~", 1},
    {"dV", "/=", 2},    {"da", "delete[]", 0}, {"de", "*", 1},   {"dl", "delete", 0},
    {"dv", "/", 2},     {"eO", "^=", 2},       {"eo", "^", 2},   {"eq", "==", 2},
    {"ge", ">=", 2},    {"gt", ">", 2},        {"ix", "[]", 0},  {"lS", "<<=", 2},
    {"le", "<=", 2},    {"ls", "<<", 2},       {"lt", "<", 2},   {"mI", "-=", 2},
    {"mL", "*=", 2},    {"mi", "-", 2},        {"ml", "*", 2},   {"mm", "--", 1},
    {"na", "new[]", 0}, {"ne", "!=", 2},       {"ng", "-", 1},   {"nt", "!", 1},
    {"nw", "new", 0},   {"oR", "|=", 2},       {"oo", "||", 2},  {"or", "|", 2},
    {"pL", "+=", 2},    {"pl", "+", 2},        {"pm", "->*", 2}, {"pp", "++", 1},
    {"ps", "+", 1},     {"pt", "->", 0},       {"qu", "?", 3},   {"rM", "%=", 2},
    {"rS", ">>=", 2},   {"rm", "%", 2},        {"rs", ">>", 2},  {"ss", "<=>", 2},
};

const struct spelling *tl__demangle_operator(const struct demangler *d)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (peek(d) == operators[i].code[0] && peek_second(d) == operators[i].code[1])
            return &operators[i];
    return NULL;
}

/* sr TYPE NAME [ARGS], or what stands in an expression in place of a name. */
static const char *parse_unresolved(struct demangler *d)
{
    const char *owner = whole(d, tl__demangle_type(d));
    const char *name = tl__demangle_unqualified(d, owner);
    if (eat(d, "I"))
        name = tl__demangle_with_args(d, name, tl__demangle_args(d));
    return join(d, owner, "::", name);
}

static const char *in_parentheses(struct demangler *d, const char *text)
{
    return join(d, "(", text, ")");
}

static const char *parse_operator(struct demangler *d, const struct spelling *o)
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
    const struct spelling *o = tl__demangle_operator(d);
    if (o != NULL && o->operands > 0)
        text = parse_operator(d, o);
    else if (eat(d, "L"))
        text = whole(d, parse_literal(d));
    else if (eat(d, "T"))
        text = whole(d, tl__demangle_param(d));
    else if (eat(d, "st"))
        text = join(d, "sizeof (", whole(d, tl__demangle_type(d)), ")");
    else if (eat(d, "sr"))
        text = parse_unresolved(d);
    else if (eat(d, "sZ"))
        text = join(d, "sizeof...(", parse_expression(d), ")");
    else if (isdigit((unsigned char)peek(d)))
        text = tl__demangle_unqualified(d, "");
    else
        d->failed = true;
    d->depth--;
    return text;
}

/* --- types --- */

const char *tl__demangle_parameters(struct demangler *d)
{
    const char *list = "";
    while (!d->failed && d->p < d->end && peek(d) != 'E' && peek(d) != '.') {
        if (eat(d, "v"))
            continue; /* no parameter */
        const char *one = whole(d, tl__demangle_type(d));
        if (one[0] != 0)
            list = join(d, list, list[0] != 0 ? ", " : "", one);
    }
    return list;
}

static struct piece parse_function(struct demangler *d)
{
    eat(d, "Y"); /* extern "C" */
    struct piece result = tl__demangle_type(d);
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
        const char *one = whole(d, tl__demangle_type(d));
        if (one[0] != 0)
            list = join(d, list, list[0] != 0 ? ", " : "", one);
    }
    struct piece t = {join(d, result.left, " ", ""),
                      join(d, join(d, "(", list, ")"), reference, result.right), true, NULL};
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
    struct piece element = tl__demangle_type(d);
    if (size == NULL)
        return plain(fail(d));
    /* Of "int [3][4]", only the first bracket has a blank before it. */
    const char *rest = element.right[0] == ' ' ? element.right + 1 : element.right;
    return (struct piece){element.left, join(d, " [", size, join(d, "]", rest, "")), true, NULL};
}

/* A pointer, reference or the like to a type: `sign` goes to the inside of functions and arrays. */
static struct piece parse_pointer(struct demangler *d, const char *sign)
{
    struct piece to = tl__demangle_type(d);
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
    return (struct piece){join(d, join(d, to.left, gap, "("), sign, ""), join(d, ")", to.right, ""),
                          false, NULL};
}

static struct piece parse_member_pointer(struct demangler *d)
{
    const char *owner = whole(d, tl__demangle_type(d));
    struct piece to = tl__demangle_type(d);
    const char *sign = join(d, owner, "::*", "");
    if (to.is_wrapping)
        return (struct piece){join(d, to.left, "(", sign), join(d, ")", to.right, ""), false, NULL};
    return (struct piece){join(d, to.left, " ", sign), to.right, false, NULL};
}

const char *tl__demangle_qualifiers(struct demangler *d)
{
    const char *text = "";
    for (;; d->p++) {
        const char *word = peek(d) == 'r'   ? " __restrict__"
                           : peek(d) == 'V' ? " volatile"
                           : peek(d) == 'K' ? " const"
                                            : NULL;
        if (word == NULL)
            return text;
        text = join(d, word, text, "");
    }
}

static struct piece parse_qualified(struct demangler *d)
{
    const char *text = tl__demangle_qualifiers(d);
    struct piece t = tl__demangle_type(d);
    if (t.is_wrapping && t.right[0] == '(')
        return (struct piece){t.left, join(d, t.right, text, ""), true, NULL};
    return (struct piece){join(d, t.left, text, ""), t.right, t.is_wrapping, NULL};
}

/* A type of the language itself, by its letters; NULL if it is none. */
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
struct piece tl__demangle_substitution(struct demangler *d)
{
    const char *name = std_name(peek(d));
    if (name != NULL) {
        d->p++;
        return plain(name);
    }
    uint32_t index = 0;
    if (peek(d) != '_') {
        for (; isdigit((unsigned char)peek(d)) || isupper((unsigned char)peek(d)); d->p++)
            index = index < MAX_SUBS
                        ? index * 36 + (uint32_t)(*d->p <= '9' ? *d->p - '0' : *d->p - 'A' + 10)
                        : index;
        index++;
    }
    expect(d, "_");
    if (index >= d->n_subs)
        return plain(fail(d));
    return d->subs[index];
}

/* What begins with D and is no built-in type. */
struct piece tl__demangle_d_type(struct demangler *d)
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
        struct piece t = tl__demangle_type(d);
        return n != NULL ? plain(join(d, join(d, whole(d, t), " __vector(", n), ")", ""))
                         : plain(fail(d));
    }
    if (eat(d, "Do"))
        return tl__demangle_type(d); /* noexcept is left out */
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
        return plain(join(d, whole(d, tl__demangle_type(d)), " _Complex", ""));
    case 'D':
        return tl__demangle_d_type(d);
    case 'u':
        d->p++;
        return plain(tl__demangle_unqualified(d, ""));
    case 'T':
        if (strchr("sue", peek_second(d)) != NULL && peek_second(d) != 0) {
            d->p += 2; /* struct, union, enum */
            break;
        }
        d->p++;
        return tl__demangle_param(d);
    default:
        break;
    }
    bool has_args;
    const char *qualifiers;
    return plain(tl__demangle_name(d, &has_args, &qualifiers));
}

struct piece tl__demangle_type(struct demangler *d)
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
        t = tl__demangle_substitution(d);
        if (eat(d, "I")) {
            t = plain(tl__demangle_with_args(d, whole(d, t), tl__demangle_args(d)));
            keep(d, t);
        }
    } else {
        bool is_param = peek(d) == 'T';
        bool is_pack = peek(d) == 'D' && peek_second(d) == 'p';
        t = parse_new_type(d);
        if (!is_pack || !d->failed)
            keep(d, t);
        if (is_param && eat(d, "I")) {
            t = plain(tl__demangle_with_args(d, whole(d, t), tl__demangle_args(d)));
            keep(d, t);
        }
    }
    d->args = args;
    d->depth--;
    return t;
}
