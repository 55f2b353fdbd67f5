/* What the files of the HTML page share.  The page is complete in itself: style and plots are in
 * it, and it runs no script. */
#ifndef TALLY_RUNTIME_REPORT_HTML_H
#define TALLY_RUNTIME_REPORT_HTML_H

#include "runtime/report/report.h"

enum { HTML_COLOURS = 8 };

/* A time, with a real micro sign. */
struct tl_text tl__html_time(double ns);

/* One curve of a plot. */
struct tl_curve {
    const char *label;
    const struct tl_report_histogram *values;
    uint32_t colour;
};

/* Distributions of latency, the tail stretched: latency from left to right (logarithmic), and
 * upwards 50 %, 90 %, 99 %, ... */
void tl__plot_cdf(struct tl_buf *out, const struct tl_curve *curves, uint32_t n);
/* How often which latency: bars over a logarithmic axis, with marks at the median and P99. */
void tl__plot_bars(struct tl_buf *out, const struct tl_report_histogram *h, uint32_t colour);
/* P99 (upwards) against best-effort speed (to the right) of all runs; false and nothing if they
 * cannot be compared. */
bool tl__plot_trade(struct tl_buf *out, const struct tl_report *r, const char *urgent,
                    const char *patient);
/* Who ran and who waited: the whole run in tenths of a second, and the last moments span by
 * span. */
void tl__plot_overview(struct tl_buf *out, const struct tl_report_run *run,
                       const uint32_t *colours);
void tl__plot_moments(struct tl_buf *out, const struct tl_report_run *run, const uint32_t *colours);

extern const char tl__html_style[];

#endif
