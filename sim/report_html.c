/* The report as one HTML page with SVG plots, and nothing from outside. */
#include "sim/report.h"
#include "tally/text.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 460, HEIGHT = 240, LEFT = 52, RIGHT = 10, TOP = 10, BOTTOM = 40, COLORS = 6 };
static const char *const colors[COLORS] = {"#1f6feb", "#d1480f", "#2a8f3c",
                                           "#8250df", "#9a6700", "#57606a"};

struct range {
    double x0, x1, y1;
};

static double to_x(const struct range *r, double x)
{
    double w = r->x1 > r->x0 ? r->x1 - r->x0 : 1;
    return LEFT + (WIDTH - LEFT - RIGHT) * (x - r->x0) / w;
}

static double to_y(const struct range *r, double y)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / (r->y1 > 0 ? r->y1 : 1);
}

static void draw_axes(const struct range *r, const struct sim_series *s, struct tl_buf *out)
{
    tl_buf_printf(out, "<path d='M%d %dV%dH%d' fill='none' stroke='#888'/>", LEFT, TOP,
                  HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (int i = 0; i <= 4; i++) {
        double y = r->y1 * i / 4, x = r->x0 + (r->x1 - r->x0) * i / 4;
        tl_buf_printf(out, "<text x='%d' y='%.1f' text-anchor='end'>%.3g</text>", LEFT - 5,
                      to_y(r, y) + 4, y);
        tl_buf_printf(out, "<text x='%.1f' y='%d' text-anchor='middle'>%.3g</text>", to_x(r, x),
                      HEIGHT - BOTTOM + 14, x);
    }
    tl_buf_printf(out, "<text x='%d' y='%d' text-anchor='middle'>", (LEFT + WIDTH) / 2, HEIGHT - 8);
    tl_text_html(out, s->x_name);
    tl_buf_printf(out,
                  "</text><text x='%d' y='%d' transform='rotate(-90 10 %d)' text-anchor='middle'>",
                  10, HEIGHT / 2 - 20, HEIGHT / 2 - 20);
    tl_text_html(out, s->y_name);
    tl_buf_puts(out, "</text>");
}

void sim_plot_svg(const struct sim_report *r, const char *id, const char *plot, struct tl_buf *out)
{
    struct range range = {INFINITY, -INFINITY, 0};
    const struct sim_series *first = NULL;
    for (size_t i = 0; i < r->n_series; i++) {
        const struct sim_series *s = &r->series[i];
        if (strcmp(s->id, id) != 0 || strcmp(s->plot, plot) != 0)
            continue;
        if (first == NULL)
            first = s;
        for (uint32_t k = 0; k < s->n; k++) {
            range.x0 = fmin(range.x0, s->x[k]);
            range.x1 = fmax(range.x1, s->x[k]);
            range.y1 = fmax(range.y1, 1.05 * s->y[k]);
        }
    }
    if (first == NULL)
        return;
    tl_buf_printf(out,
                  "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' "
                  "font-family='sans-serif' "
                  "font-size='10'>",
                  WIDTH, HEIGHT, WIDTH);
    draw_axes(&range, first, out);
    int n = 0;
    for (size_t i = 0; i < r->n_series; i++) {
        const struct sim_series *s = &r->series[i];
        if (strcmp(s->id, id) != 0 || strcmp(s->plot, plot) != 0)
            continue;
        const char *color = colors[n % COLORS];
        tl_buf_printf(out, "<polyline fill='none' stroke='%s' stroke-width='1.5' points='", color);
        for (uint32_t k = 0; k < s->n; k++)
            tl_buf_printf(out, "%.1f,%.1f ", to_x(&range, s->x[k]), to_y(&range, s->y[k]));
        tl_buf_puts(out, "'/>");
        for (uint32_t k = 0; k < s->n; k++)
            tl_buf_printf(out, "<circle cx='%.1f' cy='%.1f' r='2.5' fill='%s'/>",
                          to_x(&range, s->x[k]), to_y(&range, s->y[k]), color);
        tl_buf_printf(out, "<text x='%d' y='%d' fill='%s'>", LEFT + 8, TOP + 10 + 12 * n, color);
        tl_text_html(out, s->name);
        tl_buf_puts(out, "</text>");
        n++;
    }
    tl_buf_puts(out, "</svg>");
}

static void write_plots(const struct sim_report *r, const char *id, struct tl_buf *out)
{
    for (size_t i = 0; i < r->n_series; i++) {
        const struct sim_series *s = &r->series[i];
        bool is_first = strcmp(s->id, id) == 0;
        for (size_t k = 0; is_first && k < i; k++)
            is_first = strcmp(r->series[k].id, id) != 0 || strcmp(r->series[k].plot, s->plot) != 0;
        if (!is_first)
            continue;
        tl_buf_puts(out, "<figure>");
        sim_plot_svg(r, id, s->plot, out);
        tl_buf_puts(out, "<figcaption>");
        tl_text_html(out, s->plot);
        tl_buf_puts(out, "</figcaption></figure>");
    }
}

static void write_line(const struct sim_line *l, struct tl_buf *out)
{
    tl_buf_puts(out, "<tr><td>");
    tl_text_html(out, l->what);
    if (l->note != NULL) {
        tl_buf_puts(out, "<br><small>");
        tl_text_html(out, l->note);
        tl_buf_puts(out, "</small>");
    }
    tl_buf_printf(out, "</td><td>%s</td><td>%s</td><td>", l->published, l->tag);
    tl_text_html(out, l->ours);
    tl_buf_printf(out, "</td><td>%s</td><td class='%s'>%s</td></tr>\n",
                  l->kind == SIM_TARGET ? l->tolerance : "shape", l->holds ? "yes" : "no",
                  !l->holds      ? "no"
                  : l->is_fitted ? "fitted"
                                 : "yes");
}

/* A page needs nothing else. */
static void begin_page(const char *title, struct tl_buf *out)
{
    tl_buf_puts(out, "<!doctype html><html lang='en'><meta charset='utf-8'><title>Tally: ");
    tl_text_html(out, title);
    tl_buf_puts(out, "</title><style>"
                     "body{font:15px sans-serif;max-width:1000px;margin:2em auto;padding:0 "
                     "1em}table{border-collapse:collapse;width:100%}"
                     "td,th{border-bottom:1px solid #ddd;padding:4px "
                     "8px;text-align:left;vertical-align:top}small{color:#666}"
                     "figure{display:inline-block;margin:1em "
                     "0}figcaption{text-align:center;color:#444}.no{color:#b3261e}.yes{color:#"
                     "1a7f37}</style>\n");
}

void sim_report_text_html(const struct sim_report *r, const char *title, const char *text,
                          struct tl_buf *out)
{
    begin_page(title, out);
    tl_buf_puts(out, "<h1>");
    tl_text_html(out, title);
    tl_buf_puts(out, "</h1><p>All of this is simulated.</p><pre>");
    tl_text_html(out, text);
    tl_buf_puts(out, "</pre>\n");
    for (size_t i = 0; i < r->n_series; i++) {
        bool is_first = true;
        for (size_t k = 0; k < i; k++)
            is_first &= strcmp(r->series[k].id, r->series[i].id) != 0;
        if (is_first)
            write_plots(r, r->series[i].id, out);
    }
    tl_buf_puts(out, "</html>\n");
}

/* A table and plots per experiment, in the order of the list. */
void sim_report_html(const struct sim_report *r, struct tl_buf *out)
{
    begin_page("simulated comparisons", out);
    tl_buf_puts(
        out,
        "<h1>Simulated comparisons</h1><p>Every value under &ldquo;ours&rdquo; is simulated. Tags: "
        "S stated by "
        "the authors, P publisher or author page, A the "
        "authors' artefact, C computed from these, I inferred.</p>\n");
    for (const struct sim_experiment *const *e = sim_experiments(); *e != NULL; e++) {
        bool has_lines = false;
        for (size_t i = 0; i < r->n_lines; i++) {
            if (strcmp(r->lines[i].id, (*e)->id) != 0)
                continue;
            if (!has_lines) {
                tl_buf_printf(out, "<h2 id='%s'>%s: ", (*e)->id, (*e)->id);
                tl_text_html(out, (*e)->title);
                tl_buf_puts(
                    out, "</h2><table><tr><th>what<th>published<th>tag<th>ours<th>asked<th>holds</"
                         "tr>\n");
                has_lines = true;
            }
            write_line(&r->lines[i], out);
        }
        if (has_lines)
            tl_buf_puts(out, "</table>\n");
        write_plots(r, (*e)->id, out);
    }
    tl_buf_puts(out, "</html>\n");
}
