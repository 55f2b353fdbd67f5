/* Streaming JSON, indented by two spaces.  Nothing is kept but the depth and one bit per level, so
 * that a trace of any length costs no memory beyond its text. */
#include "tally/base.h"
#include "tally/check.h"
#include "tally/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_DEPTH = 63 }; /* levels that `has_items` can tell apart */

void tl_json_init(struct tl_json *j, struct tl_buf *out)
{
    *j = (struct tl_json){.out = out};
}

static void new_line(struct tl_json *j)
{
    tl_buf_putc(j->out, '\n');
    for (uint32_t i = 0; i < j->depth; i++)
        tl_buf_puts(j->out, "  ");
}

/* Comma and indentation before whatever comes next at this level; nothing between a key and its
 * value. */
static void begin_item(struct tl_json *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    uint64_t bit = UINT64_C(1) << j->depth;
    if (j->has_items & bit)
        tl_buf_putc(j->out, ',');
    j->has_items |= bit;
    if (j->depth > 0)
        new_line(j);
}

static void open_level(struct tl_json *j, char bracket)
{
    begin_item(j);
    tl_buf_putc(j->out, bracket);
    TL_CHECK(j->depth < MAX_DEPTH);
    j->depth++;
    j->has_items &= ~(UINT64_C(1) << j->depth);
}

static void close_level(struct tl_json *j, char bracket)
{
    TL_CHECK(j->depth > 0 && !j->after_key);
    bool was_empty = !(j->has_items & (UINT64_C(1) << j->depth));
    j->depth--;
    if (!was_empty)
        new_line(j);
    tl_buf_putc(j->out, bracket);
}

void tl_json_object(struct tl_json *j)
{
    open_level(j, '{');
}

void tl_json_array(struct tl_json *j)
{
    open_level(j, '[');
}

void tl_json_end_object(struct tl_json *j)
{
    close_level(j, '}');
}

void tl_json_end_array(struct tl_json *j)
{
    close_level(j, ']');
}

static void add_escaped(struct tl_buf *out, unsigned char c)
{
    switch (c) {
    case '"':
        tl_buf_puts(out, "\\\"");
        break;
    case '\\':
        tl_buf_puts(out, "\\\\");
        break;
    case '\n':
        tl_buf_puts(out, "\\n");
        break;
    case '\r':
        tl_buf_puts(out, "\\r");
        break;
    case '\t':
        tl_buf_puts(out, "\\t");
        break;
    default:
        tl_buf_printf(out, "\\u%04x", c);
    }
}

/* Control characters do not go out as they are, C1 neither; each byte that belongs to no
 * well-formed sequence becomes one U+FFFD. */
static void add_string(struct tl_buf *out, const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t plain = 0; /* where the run of bytes that go out unchanged began */
    size_t i = 0;
    tl_buf_putc(out, '"');
    while (i < n) {
        size_t length = tl_text_utf8(text + i, n - i);
        bool is_c1 = length == 2 && p[i] == 0xC2 && p[i + 1] < 0xA0;
        bool is_plain = length == 1 ? p[i] >= 0x20 && p[i] != '"' && p[i] != '\\' && p[i] != 0x7f
                                    : length > 0 && !is_c1;
        if (is_plain) {
            i += length;
            continue;
        }
        tl_buf_add(out, text + plain, i - plain);
        if (length == 0)
            tl_buf_puts(out, "\xEF\xBF\xBD");
        else
            add_escaped(out, p[i + length - 1]); /* of C1 that is its number */
        i += length == 0 ? 1 : length;
        plain = i;
    }
    if (n > 0)
        tl_buf_add(out, text + plain, n - plain);
    tl_buf_putc(out, '"');
}

void tl_json_key(struct tl_json *j, const char *key)
{
    struct tl_str s = tl_str_of(key);
    TL_CHECK(j->depth > 0 && !j->after_key);
    begin_item(j);
    add_string(j->out, s.p, s.n);
    tl_buf_puts(j->out, ": ");
    j->after_key = true;
}

void tl_json_str(struct tl_json *j, struct tl_str value)
{
    begin_item(j);
    add_string(j->out, value.p, value.n);
}

void tl_json_int(struct tl_json *j, int64_t value)
{
    begin_item(j);
    tl_buf_printf(j->out, "%" PRId64, value);
}

void tl_json_uint(struct tl_json *j, uint64_t value)
{
    begin_item(j);
    tl_buf_printf(j->out, "%" PRIu64, value);
}

void tl_json_double(struct tl_json *j, double value)
{
    if (!isfinite(value)) {
        tl_json_null(j);
        return;
    }
    begin_item(j);
    /* The shorter text wherever it reads back as the same number. */
    char text[64];
    snprintf(text, sizeof text, "%.15g", value);
    if (strtod(text, NULL) != value)
        snprintf(text, sizeof text, "%.17g", value);
    /* This may run in somebody's process with somebody's locale: whatever separates the decimals
     * there is a point here. */
    bool in_separator = false;
    for (const char *p = text; *p != 0; p++) {
        bool is_ours = (*p >= '0' && *p <= '9') || *p == '-' || *p == '+' || *p == 'e';
        if (is_ours)
            tl_buf_putc(j->out, *p);
        else if (!in_separator)
            tl_buf_putc(j->out, '.');
        in_separator = !is_ours;
    }
}

void tl_json_bool(struct tl_json *j, bool value)
{
    begin_item(j);
    tl_buf_puts(j->out, value ? "true" : "false");
}

void tl_json_null(struct tl_json *j)
{
    begin_item(j);
    tl_buf_puts(j->out, "null");
}

void tl_json_key_str(struct tl_json *j, const char *key, const char *value)
{
    tl_json_key(j, key);
    tl_json_str(j, tl_str_of(value));
}

void tl_json_key_int(struct tl_json *j, const char *key, int64_t value)
{
    tl_json_key(j, key);
    tl_json_int(j, value);
}

void tl_json_key_uint(struct tl_json *j, const char *key, uint64_t value)
{
    tl_json_key(j, key);
    tl_json_uint(j, value);
}

void tl_json_key_double(struct tl_json *j, const char *key, double value)
{
    tl_json_key(j, key);
    tl_json_double(j, value);
}

void tl_json_key_bool(struct tl_json *j, const char *key, bool value)
{
    tl_json_key(j, key);
    tl_json_bool(j, value);
}
