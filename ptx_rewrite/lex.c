/* The lexer: see lex.h.  Bytes are classified by one table; everything else is loops over it. */
#include "ptx_rewrite/lex.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    WORD_START = 1, /* letters, _, $, % */
    WORD_PART = 2,  /* letters, digits, _, $ */
    BLANK = 4,      /* all but newline */
    DIGIT = 8,
    PUNCT = 16,
    SKIP_STOP = 32, /* what a search for a closing brace must look at */
};

#define LETTERS(flags) ['a' ... 'z'] = (flags), ['A' ... 'Z'] = (flags)

/* Ranges in designated initialisers are a GNU extension. */
static const unsigned char class_of[256] = {
    LETTERS(WORD_START | WORD_PART),
    ['0' ... '9'] = WORD_PART | DIGIT,
    ['_'] = WORD_START | WORD_PART,
    ['$'] = WORD_START | WORD_PART,
    ['%'] = WORD_START,
    [' '] = BLANK,
    ['\t'] = BLANK,
    ['\r'] = BLANK,
    ['\f'] = BLANK,
    ['\v'] = BLANK,
    [','] = PUNCT,
    [';'] = PUNCT,
    ['('] = PUNCT,
    [')'] = PUNCT,
    ['['] = PUNCT,
    [']'] = PUNCT,
    ['{'] = PUNCT | SKIP_STOP,
    ['}'] = PUNCT | SKIP_STOP,
    ['"'] = SKIP_STOP,
    ['/'] = PUNCT | SKIP_STOP,
    ['#'] = SKIP_STOP,
    [':'] = PUNCT,
    ['@'] = PUNCT,
    ['!'] = PUNCT,
    ['|'] = PUNCT,
    ['+'] = PUNCT,
    ['-'] = PUNCT,
    ['*'] = PUNCT,
    ['<'] = PUNCT,
    ['>'] = PUNCT,
    ['='] = PUNCT,
    ['&'] = PUNCT,
    ['^'] = PUNCT,
    ['~'] = PUNCT,
    ['?'] = PUNCT,
};

static inline bool is_class(char c, int flags)
{
    return (class_of[(unsigned char)c] & flags) != 0;
}

static uint32_t end_of_line(const char *text, uint32_t at, uint32_t limit)
{
    const char *p = memchr(text + at, '\n', limit - at);
    return p != NULL ? (uint32_t)(p - text) : limit;
}

/* Behind the comment that starts at `at`, `at` itself if none does, or UINT32_MAX for one that
 * never ends. A '#' line (a preprocessor's) counts as a comment. */
static uint32_t skip_comment(const char *text, uint32_t at, uint32_t limit)
{
    if (text[at] == '#')
        return end_of_line(text, at, limit);
    if (text[at] != '/' || at + 1 >= limit)
        return at;
    if (text[at + 1] == '/')
        return end_of_line(text, at, limit);
    if (text[at + 1] != '*')
        return at;
    for (uint32_t i = at + 2; i + 1 < limit; i++) {
        if (text[i] == '*' && text[i + 1] == '/')
            return i + 2;
    }
    return UINT32_MAX;
}

/* Behind the closing quote of the string that starts at `at`, or UINT32_MAX.  PTX strings have
 * backslash escapes. */
static uint32_t skip_string(const char *text, uint32_t at, uint32_t limit)
{
    for (uint32_t i = at + 1; i < limit; i++) {
        if (text[i] == '\\')
            i++;
        else if (text[i] == '"')
            return i + 1;
        else if (text[i] == '\n')
            return UINT32_MAX;
    }
    return UINT32_MAX;
}

static uint32_t skip_word(const char *text, uint32_t at, uint32_t limit)
{
    while (at < limit && is_class(text[at], WORD_PART))
        at++;
    return at;
}

/* Behind ".word::word". */
static uint32_t skip_dotword(const char *text, uint32_t at, uint32_t limit)
{
    at = skip_word(text, at + 1, limit);
    while (at + 2 < limit && text[at] == ':' && text[at + 1] == ':' &&
           is_class(text[at + 2], WORD_PART))
        at = skip_word(text, at + 2, limit);
    return at;
}

static uint32_t skip_number(const char *text, uint32_t at, uint32_t limit)
{
    bool has_prefix = at + 1 < limit && text[at] == '0' && is_class(text[at + 1], WORD_START) &&
                      (text[at + 1] | 32) != 'e'; /* 0x, 0b, 0f, 0d, but 0e+5 is a decimal */
    uint32_t i = at;
    while (i < limit) {
        if (is_class(text[i], WORD_PART) || (text[i] == '.' && !has_prefix))
            i++;
        else if (!has_prefix && i > at && (text[i] == '+' || text[i] == '-') &&
                 (text[i - 1] | 32) == 'e')
            i++;
        else
            break;
    }
    return i;
}

void tl_lex_next(struct tl_lex *lx)
{
    const char *text = lx->text;
    uint32_t i = lx->end, limit = lx->limit;
    lx->first_on_line = false;
    lx->previous_end = i;
    for (; i < limit; i++) {
        char c = text[i];
        if (is_class(c, BLANK))
            continue;
        if (c == '\n') {
            lx->first_on_line = true;
            continue;
        }
        if (c != '/' && c != '#')
            break;
        uint32_t after = skip_comment(text, i, limit);
        if (after == i)
            break;
        if (after == UINT32_MAX) {
            lx->kind = TL_TOK_BAD;
            lx->at = i;
            lx->end = limit;
            return;
        }
        lx->first_on_line |= end_of_line(text, i, after) < after;
        i = after - 1;
    }
    lx->at = i;
    if (i >= limit) {
        lx->at = lx->end = limit;
        lx->kind = TL_TOK_END;
        return;
    }
    char c = text[i];
    if (is_class(c, WORD_START)) {
        lx->kind = TL_TOK_WORD;
        lx->end = skip_word(text, i + 1, limit);
    } else if (is_class(c, PUNCT)) {
        lx->kind = TL_TOK_PUNCT;
        lx->punct = c;
        lx->end = i + 1;
    } else if (c == '.' && i + 1 < limit && is_class(text[i + 1], WORD_PART)) {
        lx->kind = TL_TOK_DOTWORD;
        lx->end = skip_dotword(text, i, limit);
    } else if (is_class(c, DIGIT)) {
        lx->kind = TL_TOK_NUMBER;
        lx->end = skip_number(text, i, limit);
    } else if (c == '"') {
        lx->end = skip_string(text, i, limit);
        lx->kind = lx->end != UINT32_MAX ? TL_TOK_STRING : TL_TOK_BAD;
        if (lx->end == UINT32_MAX)
            lx->end = limit;
    } else {
        lx->kind = TL_TOK_BAD;
        lx->end = i + 1;
    }
}

void tl_lex_init(struct tl_lex *lx, const char *text, uint32_t from, uint32_t limit)
{
    *lx = (struct tl_lex){.text = text, .limit = limit, .end = from};
    tl_lex_next(lx);
}

void tl_lex_extend_opcode(struct tl_lex *lx)
{
    while (lx->end + 1 < lx->limit && lx->text[lx->end] == '.' &&
           is_class(lx->text[lx->end + 1], WORD_PART))
        lx->end = skip_dotword(lx->text, lx->end, lx->limit);
}

bool tl_lex_skip_braces(struct tl_lex *lx)
{
    const char *text = lx->text;
    uint32_t i = lx->at, limit = lx->limit, depth = 0;
    while (i < limit) {
        while (i < limit && !is_class(text[i], SKIP_STOP))
            i++;
        if (i >= limit)
            break;
        uint32_t after = i + 1;
        if (text[i] == '{')
            depth++;
        else if (text[i] == '}')
            depth--;
        else if (text[i] == '"')
            after = skip_string(text, i, limit);
        else if ((after = skip_comment(text, i, limit)) == i)
            after = i + 1;
        if (after == UINT32_MAX)
            break;
        i = after;
        if (depth == 0) {
            lx->end = i;
            tl_lex_next(lx);
            return true;
        }
    }
    lx->end = limit;
    tl_lex_next(lx);
    return false;
}

bool tl_lex_skip_initialiser(struct tl_lex *lx)
{
    static const char opening[] = "{([", closing[] = "})]";
    /* apart, so that "{)" does not hide a brace from whoever counts braces only */
    uint32_t depth[3] = {0};
    for (; lx->kind != TL_TOK_END && lx->kind != TL_TOK_BAD; tl_lex_next(lx)) {
        if (lx->kind != TL_TOK_PUNCT)
            continue;
        if (depth[0] + depth[1] + depth[2] == 0 && (lx->punct == ',' || lx->punct == ';'))
            return true;
        for (int i = 0; i < 3; i++) {
            if (lx->punct == opening[i])
                depth[i]++;
            else if (lx->punct == closing[i] && depth[i]-- == 0)
                return false;
        }
    }
    return false;
}

bool tl_lex_is_label(const struct tl_lex *lx)
{
    uint32_t i = lx->end;
    while (i < lx->limit && (is_class(lx->text[i], BLANK) || lx->text[i] == '\n'))
        i++;
    /* a comment in between: rare, so the slow way */
    if (i < lx->limit && (lx->text[i] == '/' || lx->text[i] == '#')) {
        struct tl_lex behind = *lx;
        tl_lex_next(&behind);
        i = behind.at;
    }
    return i < lx->limit && lx->text[i] == ':' && (i + 1 >= lx->limit || lx->text[i + 1] != ':');
}

bool tl_lex_skip_unterminated(struct tl_lex *lx)
{
    bool takes_word = tl_lex_is_dotword(lx, "target"), goes_on = false;
    for (;;) {
        tl_lex_next(lx);
        if (lx->kind == TL_TOK_NUMBER || lx->kind == TL_TOK_STRING)
            takes_word = goes_on = false;
        else if (tl_lex_is(lx, '+'))
            goes_on = true;
        else if (tl_lex_is(lx, ','))
            takes_word = goes_on = true;
        else if (lx->kind == TL_TOK_WORD && takes_word)
            takes_word = goes_on = tl_str_is(tl_lex_str(lx), "function_name");
        else
            return !goes_on;
    }
}

bool tl_lex_as_number(struct tl_lex *lx)
{
    if (lx->kind == TL_TOK_DOTWORD && is_class(lx->text[lx->at + 1], DIGIT)) {
        lx->kind = TL_TOK_NUMBER;
        lx->end = skip_number(lx->text, lx->at, lx->limit);
    }
    return lx->kind == TL_TOK_NUMBER;
}

struct tl_ptx_place tl_ptx_place_of(const char *text, size_t n, uint32_t offset)
{
    struct tl_ptx_place place = {1, 1};
    if (offset > n)
        offset = (uint32_t)n;
    const char *line = text, *at = text + offset, *p;
    while ((p = memchr(line, '\n', (size_t)(at - line))) != NULL) {
        place.line++;
        line = p + 1;
    }
    place.column = (uint32_t)(at - line) + 1;
    return place;
}

int tl_ptx_syntax_error(struct tl_error *err, const char *name, const char *text, size_t n,
                        uint32_t at, const char *format, ...)
{
    if (err == NULL)
        return -EINVAL;
    if (at > n)
        at = (uint32_t)n;
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    /* Lines of 468 KB exist: show a window around the place, with blanks for what does not
     * print. */
    struct tl_ptx_place place = tl_ptx_place_of(text, n, at);
    uint32_t line = at - (place.column - 1), end = end_of_line(text, at, (uint32_t)n);
    uint32_t from = at - line > 60 ? at - 60 : line;
    if (end - from > 100)
        end = from + 100;
    char shown[101], caret[104];
    uint32_t width = end - from;
    for (uint32_t i = 0; i < width; i++) {
        unsigned char c = (unsigned char)text[from + i];
        shown[i] = (char)(c >= 32 && c < 127 ? c : ' ');
    }
    memset(caret, ' ', sizeof caret);
    caret[at - from] = '^';
    return tl_error_set(err, -EINVAL, "%s:%u:%u: %s\n    %.*s\n    %.*s", name, place.line,
                        place.column, what, (int)width, shown, (int)(at - from + 1), caret);
}
