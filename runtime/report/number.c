/* Times, counts and shares for people. */
#include "runtime/report/report.h"

#include <stdio.h>

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

struct tl_text tl_text_level(int level)
{
    struct tl_text t;
    if (level >= TL_LEVEL_HIGH)
        snprintf(t.s, sizeof t.s, "high");
    else if (level <= TL_LEVEL_LOW)
        snprintf(t.s, sizeof t.s, "low");
    else
        snprintf(t.s, sizeof t.s, "%d", level);
    return t;
}

const char *tl_copy_name(enum tl_record_copy c)
{
    static const char *const names[] = {"to device", "from device", "on device", "set"};
    return (unsigned)c < TL_COPIES ? names[c] : "?";
}

const char *tl_span_name(enum tl_record_span s)
{
    static const char *const names[] = {"run", "wait", "copy", "request", "compile"};
    return (unsigned)s < TL_SPANS ? names[s] : "?";
}
