/* A small JSON reader. */
#include "tally/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

struct reader {
    struct tl_arena *arena;
    const char *begin, *p, *end;
    struct tl_error *err;
};

static int refuse(const struct reader *r, const char *what)
{
    int line = 1;
    for (const char *p = r->begin; p < r->p; p++)
        line += *p == '\n';
    return tl_error_set(r->err, -EINVAL, "line %d: %s", line, what);
}

static char peek(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
    return r->p < r->end ? *r->p : 0;
}

static bool skip(struct reader *r, char c)
{
    if (peek(r) != c)
        return false;
    r->p++;
    return true;
}

static int read_text(struct reader *r, struct tl_str *out)
{
    if (!skip(r, '"'))
        return refuse(r, "a text in quotes is missing here");
    const char *begin = r->p;
    while (r->p < r->end && *r->p != '"')
        r->p += *r->p == '\\' && r->p + 1 < r->end ? 2 : 1;
    if (r->p >= r->end)
        return refuse(r, "a text does not end");
    *out = (struct tl_str){begin, (uint32_t)(r->p - begin)};
    r->p++;
    return 0;
}

static int read_word(struct reader *r, struct tl_json_value *j)
{
    static const struct {
        const char *word;
        enum tl_json_kind kind;
        double number;
    } words[] = {{"true", TL_JSON_BOOL, 1}, {"false", TL_JSON_BOOL, 0}, {"null", TL_JSON_NULL, 0}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(r->end - r->p) >= n && memcmp(r->p, words[i].word, n) == 0) {
            r->p += n;
            j->kind = words[i].kind;
            j->number = words[i].number;
            return 0;
        }
    }
    char copy[64]; /* the text need not be terminated */
    size_t n = (size_t)(r->end - r->p) < sizeof copy - 1 ? (size_t)(r->end - r->p)
                                                         : sizeof copy - 1;
    memcpy(copy, r->p, n);
    copy[n] = 0;
    char *end;
    j->number = strtod(copy, &end);
    if (end == copy)
        return refuse(r, "a value is missing here");
    r->p += end - copy;
    j->kind = TL_JSON_NUMBER;
    return 0;
}

static int read_value(struct reader *r, struct tl_json_value **out, int depth);

/* The items behind an opening bracket, up to `close`. */
static int read_items(struct reader *r, struct tl_json_value *j, char close, int depth)
{
    struct tl_json_value **at = &j->first;
    if (skip(r, close))
        return 0;
    do {
        struct tl_str key = {0};
        if (j->kind == TL_JSON_OBJECT) {
            int rc = read_text(r, &key);
            if (rc < 0)
                return rc;
            if (!skip(r, ':'))
                return refuse(r, "a ':' is missing here");
        }
        int rc = read_value(r, at, depth + 1);
        if (rc < 0)
            return rc;
        (*at)->key = key;
        at = &(*at)->next;
    } while (skip(r, ','));
    return skip(r, close) ? 0
                          : refuse(r, close == '}' ? "a '}' or ',' is missing here"
                                                   : "a ']' or ',' is missing here");
}

static int read_value(struct reader *r, struct tl_json_value **out, int depth)
{
    struct tl_json_value *j = tl_arena_zalloc(r->arena, sizeof *j);
    if (j == NULL)
        return tl_error_set(r->err, -ENOMEM, "out of memory");
    *out = j;
    if (depth > DEEPEST)
        return refuse(r, "too many brackets inside each other");
    switch (peek(r)) {
    case '{':
        r->p++;
        j->kind = TL_JSON_OBJECT;
        return read_items(r, j, '}', depth);
    case '[':
        r->p++;
        j->kind = TL_JSON_ARRAY;
        return read_items(r, j, ']', depth);
    case '"':
        j->kind = TL_JSON_TEXT;
        return read_text(r, &j->text);
    default:
        return read_word(r, j);
    }
}

int tl_json_read(struct tl_json_value **out, struct tl_arena *arena, struct tl_str text,
                 struct tl_error *err)
{
    struct reader r = {
        .arena = arena, .begin = text.p, .p = text.p, .end = text.p + text.n, .err = err};
    int rc = read_value(&r, out, 0);
    if (rc == 0 && peek(&r) != 0)
        return refuse(&r, "something stands behind the end");
    return rc;
}

const struct tl_json_value *tl_json_get(const struct tl_json_value *j, const char *key)
{
    if (j == NULL || j->kind != TL_JSON_OBJECT)
        return NULL;
    for (const struct tl_json_value *m = j->first; m != NULL; m = m->next)
        if (tl_str_is(m->key, key))
            return m;
    return NULL;
}

double tl_json_number(const struct tl_json_value *j, const char *key, double otherwise)
{
    const struct tl_json_value *m = tl_json_get(j, key);
    return m != NULL && (m->kind == TL_JSON_NUMBER || m->kind == TL_JSON_BOOL) ? m->number
                                                                               : otherwise;
}

uint64_t tl_json_bounded(double value, uint64_t most)
{
    if (!(value > 0))
        return 0;
    return value < (double)most ? (uint64_t)value : most;
}

uint64_t tl_json_whole(const struct tl_json_value *j, const char *key, uint64_t otherwise,
                       uint64_t most)
{
    const struct tl_json_value *v = tl_json_get(j, key);
    return v != NULL && v->kind == TL_JSON_NUMBER ? tl_json_bounded(v->number, most) : otherwise;
}
