/* Collects what experiments report, and writes it as text, JSON and Markdown. */
#include "sim/report.h"
#include "tally/array.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sim_report_finish(struct sim_report *r)
{
    free(r->lines);
    free(r->series);
    *r = (struct sim_report){0};
}

/* One more at the end of a list, zeroed; NULL and `failed` if out of memory. */
static void *grow(struct sim_report *r, void **list, size_t *n, size_t *cap, size_t bytes)
{
    if (!tl__array_fit(list, bytes, cap, *n + 1)) {
        r->failed = true;
        tl_error_set(&r->error, -ENOMEM, "out of memory for a report");
        return NULL;
    }
    void *at = (char *)*list + (*n)++ * bytes;
    memset(at, 0, bytes);
    return at;
}

static struct sim_line *new_line(struct sim_report *r, enum sim_kind kind, const char *what,
                                 const char *tag)
{
    /* so that callers need not check; the report is marked as failed */
    static struct sim_line spare;
    struct sim_line *line = grow(r, (void **)&r->lines, &r->n_lines, &r->lines_cap, sizeof *line);
    if (line == NULL)
        return &spare;
    line->id = r->id;
    line->kind = kind;
    line->tag = tag;
    snprintf(line->what, sizeof line->what, "%s", what);
    return line;
}

static void print_number(char *out, size_t n, double value, const char *unit)
{
    double a = fabs(value);
    snprintf(out, n, "%.*f%s%s",
             a >= 100  ? 0
             : a >= 10 ? 1
                       : 2,
             value, unit[0] != 0 && unit[0] != '%' && unit[0] != 'x' ? " " : "", unit);
}

struct sim_line *sim_target(struct sim_report *r, const char *what, const char *unit,
                            double published, const char *tag, double ours, double tolerance)
{
    struct sim_line *line = new_line(r, SIM_TARGET, what, tag);
    line->published_n = published;
    line->ours_n = ours;
    print_number(line->published, sizeof line->published, published, unit);
    print_number(line->ours, sizeof line->ours, ours, unit);
    snprintf(line->tolerance, sizeof line->tolerance, "within %.3g %%", 100 * tolerance);
    line->holds = fabs(ours - published) <= tolerance * fabs(published);
    return line;
}

struct sim_line *sim_target_points(struct sim_report *r, const char *what, double published,
                                   const char *tag, double ours, double points)
{
    struct sim_line *line = sim_target(r, what, "%", published, tag, ours, 0);
    snprintf(line->tolerance, sizeof line->tolerance, "within %.0f points", points);
    line->holds = fabs(ours - published) <= points;
    return line;
}

struct sim_line *sim_shape(struct sim_report *r, const char *what, const char *tag, bool holds,
                           const char *ours, ...)
{
    struct sim_line *line = new_line(r, SIM_SHAPE, what, tag);
    va_list args;
    va_start(args, ours);
    vsnprintf(line->ours, sizeof line->ours, ours, args);
    va_end(args);
    line->ours_n = line->published_n = NAN;
    snprintf(line->published, sizeof line->published, "direction only");
    line->holds = holds;
    return line;
}

void sim_point(struct sim_report *r, const char *plot, const char *series, const char *x_name,
               const char *y_name, double x, double y)
{
    struct sim_series *s = NULL;
    for (size_t i = 0; i < r->n_series; i++)
        if (strcmp(r->series[i].id, r->id) == 0 && strcmp(r->series[i].plot, plot) == 0 &&
            strcmp(r->series[i].name, series) == 0)
            s = &r->series[i];
    if (s == NULL) {
        s = grow(r, (void **)&r->series, &r->n_series, &r->series_cap, sizeof *s);
        if (s == NULL)
            return;
        s->id = r->id;
        s->x_name = x_name;
        s->y_name = y_name;
        snprintf(s->plot, sizeof s->plot, "%s", plot);
        snprintf(s->name, sizeof s->name, "%s", series);
    }
    if (s->n < SIM_POINTS) {
        s->x[s->n] = x;
        s->y[s->n++] = y;
    }
}

/* --- writing ---------------------------------------------------------------------------------- */

static void json_text(struct tl_json *j, const char *key, const char *value)
{
    tl_json_key(j, key);
    if (value != NULL)
        tl_json_str(j, tl_str_of(value));
    else
        tl_json_null(j);
}

void sim_report_json(const struct sim_report *r, struct tl_buf *out)
{
    struct tl_json j;
    tl_json_init(&j, out);
    tl_json_array(&j);
    for (size_t i = 0; i < r->n_lines; i++) {
        const struct sim_line *l = &r->lines[i];
        tl_json_object(&j);
        json_text(&j, "id", l->id);
        json_text(&j, "what", l->what);
        tl_json_key(&j, "published");
        if (l->kind == SIM_TARGET)
            tl_json_double(&j, l->published_n);
        else
            tl_json_null(&j);
        json_text(&j, "tag", l->tag);
        tl_json_key(&j, "ours");
        if (l->kind == SIM_TARGET)
            tl_json_double(&j, l->ours_n);
        else
            tl_json_str(&j, tl_str_of(l->ours));
        json_text(&j, "kind", l->kind == SIM_TARGET ? "target" : "shape");
        tl_json_key_bool(&j, "holds", l->holds);
        tl_json_key_bool(&j, "fitted", l->is_fitted);
        json_text(&j, "tolerance", l->kind == SIM_TARGET ? l->tolerance : NULL);
        json_text(&j, "note", l->note);
        tl_json_end_object(&j);
    }
    tl_json_end_array(&j);
    tl_buf_putc(out, '\n');
}

static const char *verdict(const struct sim_line *l)
{
    return !l->holds ? "no" : l->is_fitted ? "fitted" : "yes";
}

void sim_report_text(const struct sim_report *r, struct tl_buf *out)
{
    tl_buf_printf(out, "%-5s %-62s %16s %-9s %20s  %s\n", "id", "what", "published", "tag", "ours",
                  "holds");
    for (size_t i = 0; i < r->n_lines; i++) {
        const struct sim_line *l = &r->lines[i];
        tl_buf_printf(out, "%-5s %-62s %16s %-9s %20s  %s\n", l->id, l->what,
                      l->kind == SIM_TARGET ? l->published : "shape", l->tag, l->ours, verdict(l));
        if (l->note != NULL)
            tl_buf_printf(out, "      note: %s\n", l->note);
    }
}

void sim_report_markdown(const struct sim_report *r, struct tl_buf *out)
{
    tl_buf_puts(out, "| id | what | published | tag | ours, simulated | asked | holds "
                     "|\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < r->n_lines; i++) {
        const struct sim_line *l = &r->lines[i];
        tl_buf_printf(out, "| %s | %s%s%s | %s | %s | %s | %s | %s |\n", l->id, l->what,
                      l->note != NULL ? "; " : "", l->note != NULL ? l->note : "", l->published,
                      l->tag, l->ours, l->kind == SIM_TARGET ? l->tolerance : "shape", verdict(l));
    }
}

const struct sim_experiment *const *sim_experiments(void)
{
    static const struct sim_experiment *all[64];
    static const struct sim_experiment *const groups[] = {sim_tally, sim_tgs, sim_salus, sim_gpulet,
                                                          sim_herald};
    size_t n = 0;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        for (const struct sim_experiment *e = groups[i];
             e->id != NULL && n + 1 < sizeof all / sizeof all[0]; e++)
            all[n++] = e;
    all[n] = NULL;
    return all;
}
