/* Reads the TALLY_* variables.  Numbers are parsed by hand: strtod obeys the job's locale, where
 * "31.6" may end at the dot. */
#include "runtime/job/settings.h"
#include "tally/level.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- numbers ---------------------------------------------------------------------------------- */

enum { BILLION = 1000000000 };

/* A decimal number of at least one digit: its whole part, and its fraction in billionths (further
 * digits are dropped). Returns what follows it, or NULL if there is none or it is too large. */
static const char *take_decimal(const char *text, uint64_t *whole, uint64_t *billionths)
{
    const char *p = text;
    *whole = *billionths = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (*whole > (UINT64_MAX - 9) / 10)
            return NULL;
        *whole = *whole * 10 + (uint64_t)(*p - '0');
    }
    if (p == text)
        return NULL;
    if (*p != '.')
        return p;
    const char *dot = p++;
    for (uint64_t place = BILLION / 10; *p >= '0' && *p <= '9'; p++, place /= 10)
        *billionths += (uint64_t)(*p - '0') * place;
    return p > dot + 1 ? p : NULL;
}

int tl_settings_time(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"", 1},           {"ns", 1},       {"us", 1000},
                 {"\u00b5s", 1000}, {"ms", 1000000}, {"s", BILLION}};
    uint64_t whole, billionths;
    const char *unit = take_decimal(text, &whole, &billionths);
    for (size_t i = 0; unit != NULL && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].name) != 0)
            continue;
        if (whole > UINT64_MAX / units[i].ns - 1)
            return -EINVAL;
        *ns = whole * units[i].ns + billionths * units[i].ns / BILLION;
        return 0;
    }
    return -EINVAL;
}

int tl_settings_slo(const char *text, uint32_t *percentile, uint64_t *ns)
{
    uint64_t whole, billionths, limit;
    const char *colon = text[0] == 'p' ? take_decimal(text + 1, &whole, &billionths) : NULL;
    if (colon == NULL || *colon != ':' || whole > 100 || tl_settings_time(colon + 1, &limit) < 0 ||
        limit == 0)
        return -EINVAL;
    uint64_t per_ten_thousand = whole * 100 + billionths / (BILLION / 100);
    if (per_ten_thousand == 0 || per_ten_thousand > 10000)
        return -EINVAL;
    *percentile = (uint32_t)per_ten_thousand;
    *ns = limit;
    return 0;
}

int tl_settings_share(const char *text, uint32_t *permille)
{
    uint64_t whole, billionths;
    const char *end = take_decimal(text, &whole, &billionths);
    if (end == NULL || strcmp(end, "%") != 0 || whole > 100 || (whole == 100 && billionths != 0))
        return -EINVAL;
    *permille = (uint32_t)(whole * 10 + billionths / (BILLION / 10));
    return 0;
}

int tl_settings_bytes(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGTP";
    uint64_t whole, billionths;
    const char *end = take_decimal(text, &whole, &billionths);
    if (end == NULL)
        return -EINVAL;
    const char *unit = *end != 0 ? strchr(units, *end) : NULL;
    unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
    end += unit != NULL;
    if (unit != NULL && end[0] == 'i')
        end++;
    end += *end == 'B';
    if (*end != 0 || (shift == 0 && billionths != 0) || whole > UINT64_C(1) << 50 ||
        (shift > 0 && whole > UINT64_C(1) << (50 - shift)))
        return -EINVAL;
    /* a billionth of a unit of more than 2^30 is more than a byte: that is close enough */
    uint64_t part = shift <= 30 ? (billionths << shift) / BILLION
                                : (billionths << 30) / BILLION << (shift - 30);
    *bytes = (whole << shift) + part;
    return 0;
}

/* 32 hexadecimal digits, as tally-run writes them. */
static int read_tree(const char *text, uint8_t tree[16])
{
    static const char digits[] = "0123456789abcdef";
    memset(tree, 0, 16);
    for (size_t i = 0; i < 32; i++) {
        const char *digit = text[i] != 0 ? strchr(digits, text[i]) : NULL;
        if (digit == NULL)
            return -EINVAL;
        tree[i / 2] = (uint8_t)(tree[i / 2] << 4 | (digit - digits));
    }
    return text[32] == 0 ? 0 : -EINVAL;
}

int tl_settings_weight(const char *text, uint32_t *weight)
{
    uint64_t whole, billionths;
    const char *end = take_decimal(text, &whole, &billionths);
    if (end == NULL || *end != 0 || strchr(text, '.') != NULL || whole == 0 || whole > 10000)
        return -EINVAL;
    *weight = (uint32_t)whole;
    return 0;
}

/* --- choices ---------------------------------------------------------------------------------- */

/* Which of the words it is, or -1. */
static int choose(const char *text, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

/* In the order of enum tl_rung; the shim links this file without the scheduler, which has the names
 * for people. */
static const char *const rungs[] = {"persistent", "ticket", "slice", "gate",
                                    "whole",      "rate",   "cap"};
_Static_assert(sizeof rungs / sizeof rungs[0] == TL_RUNGS, "a name for each rung");

static int read_rung(const char *text, int *rung)
{
    int i = choose(text, rungs, TL_RUNGS);
    if (i < 0 || i == TL_RUNG_RATE) /* a rate is granted, there is no kernel for it */
        return -EINVAL;
    *rung = i;
    return 0;
}

static int read_gate(const char *text, enum tl_gate_mode *gate)
{
    static const char *const words[] = {"auto", "off", "all"};
    int i = choose(text, words, 3);
    if (i < 0)
        return -EINVAL;
    *gate = (enum tl_gate_mode)i;
    return 0;
}

static int read_log(const char *text, int *log)
{
    static const char *const words[] = {"error", "warn", "info", "debug"};
    int i = choose(text, words, 4);
    if (i < 0)
        return -EINVAL;
    *log = i;
    return 0;
}

static int read_fail(const char *text, bool *is_closed)
{
    static const char *const words[] = {"open", "closed"};
    int i = choose(text, words, 2);
    if (i < 0)
        return -EINVAL;
    *is_closed = i == 1;
    return 0;
}

static int read_off(const char *text, bool *is_off)
{
    static const char *const words[] = {"0", "no", "1", "yes"};
    int i = choose(text, words, 4);
    if (i < 0)
        return -EINVAL;
    *is_off = i >= 2;
    return 0;
}

static int copy_text(char *to, size_t size, const char *text)
{
    size_t n = strlen(text);
    if (n >= size)
        return -EINVAL;
    memcpy(to, text, n + 1);
    return 0;
}

/* tallyd and the job's processes may stand in different folders. */
static int copy_full_path(char *to, size_t size, const char *text)
{
    return text[0] == '/' ? copy_text(to, size, text) : -EINVAL;
}

/* --- the variables ---------------------------------------------------------------------------- */

/* Where tallyd listens if nobody said: in the folder that the system made for this user, else in
 * one of our own, whose owner and mode are looked at before it is used. */
static void default_socket(struct tl_settings *s)
{
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    int n = -1;
    if (runtime != NULL && runtime[0] == '/')
        n = snprintf(s->socket, sizeof s->socket, "%s/tally/tallyd.sock", runtime);
    if (n < 0 || (size_t)n >= sizeof s->socket)
        snprintf(s->socket, sizeof s->socket, "/tmp/tally-%u/tallyd.sock", (unsigned)geteuid());
}

/* The variable's value, or NULL if it is unset or empty: `TALLY_SLO= program` says that there is
 * none. */
static const char *variable(const char *name)
{
    const char *value = secure_getenv(name);
    return value != NULL && value[0] != 0 ? value : NULL;
}

struct reading {
    struct tl_error *err;
    int rc;
};

/* Keeps the first complaint. */
static void judge(struct reading *r, int rc, const char *name, const char *may_be)
{
    if (rc < 0 && r->rc == 0)
        r->rc = tl_error_set(r->err, -EINVAL, "%s=%.200s: it may be %s", name, secure_getenv(name),
                             may_be);
}

#define BYTES_MAY_BE "a size such as 8G or 512M, not more than 1P"

static void read_memory(struct tl_settings *s, struct reading *r)
{
    const struct {
        const char *name;
        uint64_t *bytes;
    } sizes[] = {{"TALLY_MEMORY", &s->memory_limit},
                 {"TALLY_MEMORY_REQUEST", &s->memory_request},
                 {"TALLY_MEMORY_SOFT", &s->memory_soft}};
    const char *v;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if ((v = variable(sizes[i].name)) != NULL)
            judge(r, tl_settings_bytes(v, sizes[i].bytes), sizes[i].name, BYTES_MAY_BE);
    if (s->memory_limit != 0 && s->memory_request > s->memory_limit)
        judge(r, -EINVAL, "TALLY_MEMORY_REQUEST", "no more than TALLY_MEMORY");
    if ((v = variable("TALLY_TREE")) != NULL)
        judge(r, read_tree(v, s->tree), "TALLY_TREE", "what tally-run sets, or empty");
}

int tl_settings_read(struct tl_settings *s, struct tl_error *err)
{
    struct reading r = {.err = err};
    const char *v;
    memset(s, 0, sizeof *s);
    s->force = -1;
    s->log = 1;
    default_socket(s);
    if ((v = variable("TALLY_PRIORITY")) != NULL)
        judge(&r, tl_level_parse(v, &s->level), "TALLY_PRIORITY",
              "high, low, or a number from -100 to 100");
    if ((v = variable("TALLY_SLO")) != NULL)
        judge(&r, tl_settings_slo(v, &s->slo_percentile, &s->slo_ns), "TALLY_SLO",
              "p99:8ms or the like");
    if ((v = variable("TALLY_TURNAROUND")) != NULL)
        judge(&r, tl_settings_time(v, &s->turnaround_ns), "TALLY_TURNAROUND",
              "a time such as 31.6us or 1ms");
    if ((v = variable("TALLY_WEIGHT")) != NULL)
        judge(&r, tl_settings_weight(v, &s->weight), "TALLY_WEIGHT",
              "a number from 1 to 10000 (100 is usual)");
    if ((v = variable("TALLY_SHARE")) != NULL) {
        judge(&r, tl_settings_share(v, &s->min_permille), "TALLY_SHARE",
              "a share of the device such as 30%");
        s->max_permille = s->min_permille;
    }
    if ((v = variable("TALLY_MIN_SHARE")) != NULL)
        judge(&r, tl_settings_share(v, &s->min_permille), "TALLY_MIN_SHARE",
              "a share of the device such as 5%");
    if ((v = variable("TALLY_MAX_SHARE")) != NULL)
        judge(&r, tl_settings_share(v, &s->max_permille), "TALLY_MAX_SHARE",
              "a share of the device such as 50%");
    if (s->max_permille != 0 && s->min_permille > s->max_permille)
        judge(&r, -EINVAL, "TALLY_MAX_SHARE", "no less than what it gets at least");
    if ((v = variable("TALLY_TOTAL")) != NULL)
        judge(&r, tl_settings_time(v, &s->total_ns), "TALLY_TOTAL", "a time such as 90s");
    read_memory(s, &r);
    if ((v = variable("TALLY_POLICY")) != NULL)
        judge(&r, copy_text(s->policy, sizeof s->policy, v), "TALLY_POLICY",
              "a name that `tally policy --list` shows");
    if ((v = variable("TALLY_REPORT")) != NULL)
        judge(&r, copy_text(s->report, sizeof s->report, v), "TALLY_REPORT", "a folder");
    if ((v = variable("TALLY_SOCKET")) != NULL)
        judge(&r, copy_full_path(s->socket, sizeof s->socket, v), "TALLY_SOCKET",
              TL_SOCKET_PATH_IS);
    v = variable("TALLY_JOB");
    if (v == NULL)
        v = program_invocation_short_name;
    snprintf(s->job, sizeof s->job, "%s", v);
    if ((v = variable("TALLY_FAIL")) != NULL)
        judge(&r, read_fail(v, &s->is_closed), "TALLY_FAIL", "open or closed");
    if ((v = variable("TALLY_OFF")) != NULL)
        judge(&r, read_off(v, &s->is_off), "TALLY_OFF", "0 or 1");
    if ((v = variable("TALLY_FORCE")) != NULL)
        judge(&r, read_rung(v, &s->force), "TALLY_FORCE",
              "persistent, ticket, slice, gate, whole or cap");
    if ((v = variable("TALLY_GATE")) != NULL)
        judge(&r, read_gate(v, &s->gate), "TALLY_GATE", "off, auto or all");
    if ((v = variable("TALLY_LOG")) != NULL)
        judge(&r, read_log(v, &s->log), "TALLY_LOG", "error, warn, info or debug");
    return r.rc;
}
