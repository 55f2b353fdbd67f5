/* Numbers and texts for people; see the header. */
#include "tally/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Three digits, and as many decimals as they leave. */
static void put(struct tl_text *t, double value, const char *unit)
{
    int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(t->s, sizeof t->s, "%.*f%s", decimals, value, unit);
}

struct tl_text tl_text_time(double ns)
{
    struct tl_text t;
    if (ns < 999.5)
        snprintf(t.s, sizeof t.s, "%.0f ns", ns);
    else if (ns < 999.5e3)
        put(&t, ns / 1e3, " us");
    else if (ns < 999.5e6)
        put(&t, ns / 1e6, " ms");
    else
        put(&t, ns / 1e9, " s");
    return t;
}

struct tl_text tl_text_count(double n)
{
    static const char *const units[] = {" k", " M", " G", " T", " P"};
    struct tl_text t;
    if (n < 99999.5 && n >= 1000) {
        unsigned whole = (unsigned)(n + 0.5);
        snprintf(t.s, sizeof t.s, "%u,%03u", whole / 1000, whole % 1000);
        return t;
    }
    if (n < 1000) {
        snprintf(t.s, sizeof t.s, n >= 10 || n == (double)(unsigned)n ? "%.0f" : "%.1f", n);
        return t;
    }
    size_t unit = 0;
    for (n /= 1000; n >= 999.5 && unit < 4; unit++)
        n /= 1000;
    put(&t, n, units[unit]);
    return t;
}

struct tl_text tl_text_bytes(double n)
{
    static const char *const units[] = {" KB", " MB", " GB", " TB"};
    struct tl_text t;
    if (n < 999.5) {
        snprintf(t.s, sizeof t.s, "%.0f B", n);
        return t;
    }
    size_t unit = 0;
    for (n /= 1000; n >= 999.5 && unit < 3; unit++)
        n /= 1000;
    put(&t, n, units[unit]);
    return t;
}

struct tl_text tl_text_percent(double part)
{
    struct tl_text t;
    if (part > 0 && part < 0.0005)
        snprintf(t.s, sizeof t.s, "< 0.1 %%");
    else
        snprintf(t.s, sizeof t.s, "%.*f %%", part >= 9.995 ? 0 : 1, 100 * part);
    return t;
}

struct tl_text tl_text_digits(uint64_t n)
{
    struct tl_text t;
    char digits[24];
    size_t from = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, n);
    size_t to = from + (from - 1) / 3;
    t.s[to] = 0;
    for (size_t done = 0; from > 0; done++) {
        if (done > 0 && done % 3 == 0)
            t.s[--to] = ',';
        t.s[--to] = digits[--from];
    }
    return t;
}

struct tl_text tl_text_share(uint64_t part, uint64_t whole)
{
    struct tl_text t = {"-"};
    if (whole != 0) {
        uint64_t tenths = part * 1000 / whole; /* rounded down: 100.0 % means all */
        snprintf(t.s, sizeof t.s, "%" PRIu64 ".%" PRIu64 " %%", tenths / 10, tenths % 10);
    }
    return t;
}

void tl_text_html(struct tl_buf *out, const char *text)
{
    for (const char *p = text; *p != 0; p++) {
        switch (*p) {
        case '<':
            tl_buf_puts(out, "&lt;");
            break;
        case '>':
            tl_buf_puts(out, "&gt;");
            break;
        case '&':
            tl_buf_puts(out, "&amp;");
            break;
        case '"':
            tl_buf_puts(out, "&quot;");
            break;
        case '\'':
            tl_buf_puts(out, "&#39;");
            break;
        default:
            tl_buf_putc(out, *p);
        }
    }
}

static bool is_continuation(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

size_t tl_text_utf8(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned char c = p[0];
    if (c < 0x80)
        return 1;
    if (c >= 0xC2 && c <= 0xDF)
        return n >= 2 && is_continuation(p[1]) ? 2 : 0;
    if (c >= 0xE0 && c <= 0xEF) {
        if (n < 3 || !is_continuation(p[1]) || !is_continuation(p[2]))
            return 0;
        bool is_overlong = c == 0xE0 && p[1] < 0xA0;
        bool is_surrogate = c == 0xED && p[1] > 0x9F;
        return is_overlong || is_surrogate ? 0 : 3;
    }
    if (c >= 0xF0 && c <= 0xF4) {
        if (n < 4 || !is_continuation(p[1]) || !is_continuation(p[2]) || !is_continuation(p[3]))
            return 0;
        bool is_overlong = c == 0xF0 && p[1] < 0x90;
        bool is_too_large = c == 0xF4 && p[1] > 0x8F;
        return is_overlong || is_too_large ? 0 : 4;
    }
    return 0;
}

void tl_text_clean(char *text, size_t n, bool has_lines)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i];
        size_t length = tl_text_utf8(text + i, n - i);
        bool is_c1 = length == 2 && c == 0xC2 && (unsigned char)text[i + 1] < 0xA0;
        bool is_kept = c < ' ' ? has_lines && (c == '\n' || c == '\t') : c != 0x7f;
        if (length == 0 || is_c1 || !is_kept) {
            length = length == 0 ? 1 : length;
            memset(text + i, '?', length);
        }
        i += length;
    }
}
