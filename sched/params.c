/* A policy's own parameters: "name=value,name=value" into the fields of its state. */
#include "sched/policy.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tl_param *find_param(const struct tl_param *params, struct tl_str name)
{
    for (; params != NULL && params->name != NULL; params++)
        if (tl_str_is(name, params->name))
            return params;
    return NULL;
}

/* The place of a word in a list of words with spaces between, or -1. */
static int find_choice(const char *choices, struct tl_str word)
{
    int at = 0;
    while (*choices != 0) {
        size_t n = strcspn(choices, " ");
        if (n == word.n && memcmp(choices, word.p, n) == 0)
            return at;
        choices += n + (choices[n] == ' ');
        at++;
    }
    return -1;
}

/* A number with an optional unit of time behind it.  False if it is none. */
static bool read_number(struct tl_str text, bool is_time, double *value)
{
    char copy[64];
    if (text.n == 0 || text.n >= sizeof copy)
        return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = 0;
    char *end;
    *value = strtod(copy, &end);
    if (end == copy || !isfinite(*value))
        return false;
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"", 1}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    for (size_t i = 0; i < (is_time ? sizeof units / sizeof units[0] : 1); i++)
        if (strcmp(end, units[i].unit) == 0) {
            *value *= units[i].ns;
            return true;
        }
    return false;
}

/* False if the value does not fit the parameter. */
static bool store(const struct tl_param *p, struct tl_str value, void *state)
{
    void *field = (char *)state + p->offset;
    double number;
    int choice;
    switch (p->kind) {
    case TL_PARAM_BOOL:
        choice = find_choice("no yes 0 1", value);
        if (choice < 0)
            return false;
        *(bool *)field = choice % 2 == 1;
        return true;
    case TL_PARAM_CHOICE:
        choice = find_choice(p->choices, value);
        if (choice < 0)
            return false;
        *(int *)field = choice;
        return true;
    case TL_PARAM_U64:
    case TL_PARAM_NS:
    case TL_PARAM_DOUBLE:
        if (!read_number(value, p->kind == TL_PARAM_NS, &number) || number < p->min ||
            number > p->max)
            return false;
        if (p->kind == TL_PARAM_DOUBLE)
            *(double *)field = number;
        else
            *(uint64_t *)field = (uint64_t)number;
        return true;
    }
    return false;
}

static int refuse(const char *policy, const struct tl_param *params, struct tl_str name,
                  struct tl_error *err)
{
    struct tl_buf names = {0};
    for (const struct tl_param *p = params; p != NULL && p->name != NULL; p++)
        tl_buf_printf(&names, "%s%s", names.n > 0 ? ", " : "", p->name);
    tl_error_set(err, -EINVAL, "policy '%s' has no parameter '" TL_STR_FMT "'; it has: %s", policy,
                 TL_STR_ARG(name), names.n > 0 ? names.p : "none");
    tl_buf_finish(&names);
    return -EINVAL;
}

int tl__params_read(const char *policy, const char *text, const struct tl_param *params,
                    void *state, struct tl_error *err)
{
    while (*text != 0) {
        size_t n = strcspn(text, ",");
        const char *equals = memchr(text, '=', n);
        struct tl_str name = {text, (uint32_t)(equals != NULL ? (size_t)(equals - text) : n)};
        const struct tl_param *p = find_param(params, name);
        if (p == NULL)
            return refuse(policy, params, name, err);
        struct tl_str value = TL_STR("yes"); /* a bare name switches something on */
        if (equals != NULL)
            value = (struct tl_str){equals + 1, (uint32_t)(text + n - equals - 1)};
        if (!store(p, value, state)) {
            if (p->kind == TL_PARAM_CHOICE)
                return tl_error_set(err, -EINVAL, "policy '%s': %s is one of: %s", policy, p->name,
                                    p->choices);
            if (p->kind == TL_PARAM_BOOL)
                return tl_error_set(err, -EINVAL, "policy '%s': %s is yes or no", policy, p->name);
            return tl_error_set(err, -EINVAL,
                                "policy '%s': %s is a number from %g to %g, not '" TL_STR_FMT "'",
                                policy, p->name, p->min, p->max, TL_STR_ARG(value));
        }
        text += n + (text[n] == ',');
    }
    return 0;
}
