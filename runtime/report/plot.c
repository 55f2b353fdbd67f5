/* Plots of distributions, as inline SVG that takes its colours from the page. */
#include "runtime/report/html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The drawing area of all plots here, in units of the view box; text is 11 of them high. */
enum { WIDTH = 380, HEIGHT = 236, LEFT = 52, RIGHT = 12, TOP = 12, BOTTOM = 26 };

/* --- a logarithmic axis of times --- */

struct axis {
    double low, high; /* decimal logarithms */
};

static double log_of(double value)
{
    return log10(value > 1 ? value : 1);
}

/* At least a third of a decade, with a little air at both ends. */
static struct axis make_axis(double low, double high)
{
    struct axis a = {log_of(low), log_of(high)};
    if (a.high - a.low < 0.35) {
        double middle = (a.low + a.high) / 2;
        a.low = middle - 0.18;
        a.high = middle + 0.18;
    }
    double air = 0.04 * (a.high - a.low);
    a.low = a.low > air ? a.low - air : 0;
    a.high += air;
    return a;
}

static double x_of(const struct axis *a, double value)
{
    return LEFT + (log_of(value) - a->low) / (a->high - a->low) * (WIDTH - LEFT - RIGHT);
}

/* "20 ms" where tl__html_time would say "20.0 ms". */
static struct tl_text tick_text(double ns)
{
    static const char *const units[] = {"ns", "&micro;s", "ms", "s"};
    struct tl_text t;
    size_t unit = 0;
    for (; ns >= 999.5 && unit < 3; unit++)
        ns /= 1000;
    snprintf(t.s, sizeof t.s, "%.4g %s", ns, units[unit]);
    return t;
}

/* A line, and its text unless that would touch the one before, which ended at `*taken`. */
static void put_tick(struct tl_buf *out, const struct axis *a, double value, double *taken)
{
    enum { HALF_TEXT = 21 };
    double x = x_of(a, value);
    if (x < LEFT || x > WIDTH - RIGHT + 0.5)
        return;
    tl_buf_printf(out, "<line class=gl x1=%.1f x2=%.1f y1=%d y2=%d />", x, x, TOP, HEIGHT - BOTTOM);
    if (x - HALF_TEXT < *taken || x + HALF_TEXT > WIDTH)
        return;
    *taken = x + HALF_TEXT;
    tl_buf_printf(out, "<text x=%.1f y=%d text-anchor=middle>%s</text>", x, HEIGHT - 9,
                  tick_text(value).s);
}

/* Ticks at powers of ten, and at more of them the fewer powers there are. */
static void put_ticks(struct tl_buf *out, const struct axis *a)
{
    static const struct {
        double step, most_decades;
    } steps[] = {{1, 99}, {1.5, 0.7}, {2, 2.2}, {3, 0.7}, {5, 2.2}, {7, 0.7}};
    double decades = a->high - a->low, taken = 0;
    for (int e = (int)floor(a->low); e <= (int)ceil(a->high); e++)
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
            if (decades < steps[i].most_decades)
                put_tick(out, a, steps[i].step * pow(10, e), &taken);
}

static void begin_svg(struct tl_buf *out, const char *label)
{
    tl_buf_printf(out, "<svg class=plot viewBox='0 0 %d %d' role=img aria-label='", WIDTH, HEIGHT);
    tl_text_html(out, label);
    tl_buf_puts(out, "'>");
}

/* --- distributions --- */

/* Height of a share: as many times as it is high, the values above it are ten times fewer. */
static double y_of(double share, double nines)
{
    double up = share >= 1 ? nines : -log10(1 - share);
    up = up > nines ? nines : up;
    return HEIGHT - BOTTOM - up / nines * (HEIGHT - TOP - BOTTOM);
}

static void put_shares(struct tl_buf *out, double nines)
{
    static const struct {
        double share;
        const char *text;
    } lines[] = {{0, "0 %"},     {0.5, "50 %"},     {0.9, "90 %"},
                 {0.99, "99 %"}, {0.999, "99.9 %"}, {0.9999, "99.99 %"}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        double y = y_of(lines[i].share, nines);
        if (y < TOP - 0.5 || (lines[i].share > 0 && -log10(1 - lines[i].share) > nines + 0.01))
            continue;
        tl_buf_printf(out, "<line class=%s x1=%d x2=%d y1=%.1f y2=%.1f />", i == 0 ? "ax" : "gl",
                      LEFT, WIDTH - RIGHT, y, y);
        tl_buf_printf(out, "<text x=%d y=%.1f text-anchor=end>%s</text>", LEFT - 6, y + 4,
                      lines[i].text);
    }
}

static void put_curve(struct tl_buf *out, const struct tl_curve *c, const struct axis *a,
                      double nines)
{
    const struct tl_report_histogram *h = c->values;
    double placed = (double)(h->count - h->unplaced), seen = 0, last_x = -9, last_y = -9;
    tl_buf_printf(out, "<path class='curve k%u' d='", c->colour % HTML_COLOURS);
    for (uint32_t i = 0; i < h->n_steps; i++) {
        seen += (double)h->steps[i].count;
        double at = (double)h->steps[i].low + (double)h->steps[i].width / 2;
        double x = x_of(a, at < (double)h->max ? at : (double)h->max);
        double y = y_of(seen / placed, nines);
        if (i == 0)
            tl_buf_printf(out, "M%.1f %d", x, HEIGHT - BOTTOM);
        /* Points that nobody could tell apart are left out. */
        if (fabs(x - last_x) + fabs(y - last_y) < 0.7 && i + 1 < h->n_steps)
            continue;
        tl_buf_printf(out, "L%.1f %.1f", x, y);
        last_x = x;
        last_y = y;
    }
    tl_buf_puts(out, "'><title>");
    tl_text_html(out, c->label);
    tl_buf_printf(out, ": P50 %s", tl__html_time((double)tl_histogram_percentile(h, 50)).s);
    tl_buf_printf(out, ", P99 %s", tl__html_time((double)tl_histogram_percentile(h, 99)).s);
    tl_buf_printf(out, ", max %s</title></path>", tl__html_time((double)h->max).s);
}

void tl__plot_cdf(struct tl_buf *out, const struct tl_curve *curves, uint32_t n)
{
    double low = 1e300, high = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct tl_report_histogram *h = curves[i].values;
        if (h->n_steps == 0)
            continue;
        low = fmin(low, (double)h->steps[0].low);
        high = fmax(high, (double)h->max);
        most = fmax(most, (double)h->count);
    }
    if (high <= 0)
        return;
    /* The top line is where about one value is above. */
    double nines = fmin(4, fmax(2, ceil(log10(most))));
    struct axis a = make_axis(low, high);
    begin_svg(out, "distribution of latencies");
    put_ticks(out, &a);
    put_shares(out, nines);
    for (uint32_t i = 0; i < n; i++)
        if (curves[i].values->n_steps > 0)
            put_curve(out, &curves[i], &a, nines);
    tl_buf_puts(out, "</svg><ul class=legend>");
    for (uint32_t i = 0; i < n; i++) {
        if (curves[i].values->n_steps == 0)
            continue;
        tl_buf_printf(out, "<li><span class='dot k%u'></span><span>",
                      curves[i].colour % HTML_COLOURS);
        tl_text_html(out, curves[i].label);
        tl_buf_printf(out, " <span class=soft>P99 %s</span></span></li>",
                      tl__html_time((double)tl_histogram_percentile(curves[i].values, 99)).s);
    }
    tl_buf_puts(out, "</ul>");
}

/* --- bars --- */

static void put_mark(struct tl_buf *out, const struct axis *a, const struct tl_report_histogram *h,
                     double percent, const char *label, int y)
{
    double value = (double)tl_histogram_percentile(h, percent);
    double x = x_of(a, value);
    bool is_right = x > WIDTH * 0.62;
    tl_buf_printf(out, "<line class=mark x1=%.1f x2=%.1f y1=%d y2=%d />", x, x, TOP,
                  HEIGHT - BOTTOM);
    tl_buf_printf(out, "<text class=strong x=%.1f y=%d text-anchor=%s>%s %s</text>",
                  is_right ? x - 4 : x + 4, y, is_right ? "end" : "start", label,
                  tl__html_time(value).s);
}

void tl__plot_bars(struct tl_buf *out, const struct tl_report_histogram *h, uint32_t colour)
{
    enum { BINS = 36 };
    double bins[BINS] = {0}, most = 0;
    if (h->n_steps == 0)
        return;
    struct axis a = make_axis((double)h->steps[0].low, (double)h->max);
    double width = (double)(WIDTH - LEFT - RIGHT) / BINS;
    for (uint32_t i = 0; i < h->n_steps; i++) {
        double x = x_of(&a, (double)h->steps[i].low + (double)h->steps[i].width / 2);
        int bin = (int)((x - LEFT) / width);
        bin = bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin;
        bins[bin] += (double)h->steps[i].count;
        most = fmax(most, bins[bin]);
    }
    double scale = (HEIGHT - TOP - BOTTOM - 30) / most; /* the marks' texts are above */
    begin_svg(out, "histogram of latencies");
    put_ticks(out, &a);
    tl_buf_printf(out, "<text x=%d y=%.1f text-anchor=end>%s</text>", LEFT - 6,
                  HEIGHT - BOTTOM - most * scale + 4, tl_text_count(most).s);
    tl_buf_printf(out, "<text x=%d y=%d text-anchor=end>0</text>", LEFT - 6, HEIGHT - BOTTOM + 4);
    tl_buf_printf(out, "<path class='fill k%u' d='", colour % HTML_COLOURS);
    for (int i = 0; i < BINS; i++)
        if (bins[i] > 0)
            tl_buf_printf(out, "M%.1f %dv%.1fh%.1fV%dz", LEFT + i * width + 0.6, HEIGHT - BOTTOM,
                          -fmax(bins[i] * scale, 1), width - 1.2, HEIGHT - BOTTOM);
    tl_buf_puts(out, "' />");
    tl_buf_printf(out, "<line class=ax x1=%d x2=%d y1=%d y2=%d />", LEFT, WIDTH - RIGHT,
                  HEIGHT - BOTTOM, HEIGHT - BOTTOM);
    put_mark(out, &a, h, 50, "P50", TOP + 9);
    put_mark(out, &a, h, 99, "P99", TOP + 22);
    tl_buf_puts(out, "</svg>");
}

/* --- one job's tail against the other's speed --- */

enum { MOST_POINTS = 32 };

struct point {
    double x, y;
    const char *label;
    uint32_t colour;
    double label_x, label_y, label_width; /* where its label stands; 0 before it does */
};

static double trade_y(double ratio, double top)
{
    return HEIGHT - BOTTOM -
           log10(fmin(fmax(ratio, 0.81), top) / 0.8) / log10(top / 0.8) * (HEIGHT - TOP - BOTTOM);
}

static void put_trade_lines(struct tl_buf *out, double top, double widest)
{
    static const double lines[] = {1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000};
    double last_y = HEIGHT;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0] && lines[i] <= top; i++) {
        double y = trade_y(lines[i], top);
        if (last_y - y < 16)
            continue;
        last_y = y;
        tl_buf_printf(out, "<line class=gl x1=%d x2=%d y1=%.1f y2=%.1f />", LEFT, WIDTH - RIGHT, y,
                      y);
        tl_buf_printf(out, "<text x=%d y=%.1f text-anchor=end>%g&times;</text>", LEFT - 6, y + 4,
                      lines[i]);
    }
    int step = widest <= 1.5 ? 25 : widest <= 3 ? 50 : 100;
    for (int percent = 0; percent <= (int)(100 * widest + 0.5); percent += step) {
        double x = LEFT + percent / (100 * widest) * (WIDTH - LEFT - RIGHT - 20);
        tl_buf_printf(out, "<line class=gl x1=%.1f x2=%.1f y1=%d y2=%d />", x, x, TOP,
                      HEIGHT - BOTTOM);
        tl_buf_printf(out, "<text x=%.1f y=%d text-anchor=middle>%d %%</text>", x, HEIGHT - 9,
                      percent);
    }
}

/* Whether a text that begins at x, with its base line at y, would lie on a point or over the
 * edge. */
static bool is_taken(const struct point *points, uint32_t n, double x, double y, double width)
{
    if (x < LEFT || x + width > WIDTH - 2)
        return true;
    for (uint32_t i = 0; i < n; i++) {
        const struct point *p = &points[i];
        if (p->x > x - 7 && p->x < x + width + 7 && p->y > y - 15 && p->y < y + 8)
            return true;
        if (p->label_width > 0 && p->label_x < x + width && x < p->label_x + p->label_width &&
            fabs(p->label_y - y) < 13)
            return true;
    }
    return false;
}

static void put_label(struct tl_buf *out, struct point *points, uint32_t n, uint32_t i)
{
    struct point *p = &points[i];
    double width = 7.4 * (double)strlen(p->label); /* about as wide as it is written */
    const struct {
        double x, y;
    } places[] = {
        {p->x + 10, p->y + 4},         {p->x - 10 - width, p->y + 4}, {p->x - width / 2, p->y - 11},
        {p->x - width / 2, p->y + 19}, {p->x - width + 6, p->y - 11}, {p->x - width + 6, p->y + 19},
        {p->x - 6, p->y - 11},         {p->x - 6, p->y + 19},         {p->x - 6, p->y - 25},
        {p->x + 10, p->y + 16},        {p->x + 10, p->y - 8}};
    enum { PLACES = sizeof places / sizeof places[0] };
    size_t best = 0;
    while (best < PLACES - 1 && is_taken(points, n, places[best].x, places[best].y, width))
        best++;
    p->label_x = places[best].x;
    p->label_y = places[best].y;
    p->label_width = width;
    tl_buf_printf(out, "<text class=strong x=%.1f y=%.1f>", places[best].x, places[best].y);
    tl_text_html(out, p->label);
    tl_buf_puts(out, "</text>");
}

bool tl__plot_trade(struct tl_buf *out, const struct tl_report *r, const char *urgent,
                    const char *patient)
{
    struct point points[MOST_POINTS];
    double tails[MOST_POINTS], speeds[MOST_POINTS], top = 1.6, widest = 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_runs && n < MOST_POINTS; i++) {
        tails[n] = tl_report_compare(r, &r->runs[i], urgent).p99_ratio;
        speeds[n] = tl_report_compare(r, &r->runs[i], patient).speed_ratio;
        if (tails[n] <= 0 || speeds[n] <= 0)
            continue;
        top = fmax(top, fmin(tails[n] * 1.2, 1e6));
        widest = fmax(widest, fmin(speeds[n], 4)); /* beyond, something else is wrong */
        points[n++] = (struct point){.label = r->runs[i].label, .colour = i};
    }
    if (n < 2)
        return false;
    begin_svg(out, "tail latency against best-effort speed");
    put_trade_lines(out, top, widest);
    for (uint32_t i = 0; i < n; i++) {
        points[i].x = LEFT + fmin(speeds[i] / widest, 1) * (WIDTH - LEFT - RIGHT - 20);
        points[i].y = trade_y(tails[i], top);
        tl_buf_printf(out, "<circle class='fill k%u' cx=%.1f cy=%.1f r=6 />",
                      points[i].colour % HTML_COLOURS, points[i].x, points[i].y);
    }
    for (uint32_t i = 0; i < n; i++)
        put_label(out, points, n, i);
    tl_buf_puts(out, "</svg>");
    return true;
}
