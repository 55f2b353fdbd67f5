/* What an experiment reports: each quantity beside the published one, with its tag, and series for
 * plots. */
#ifndef TALLY_SIM_REPORT_H
#define TALLY_SIM_REPORT_H

#include "tally/base.h"

enum sim_kind {
    SIM_TARGET, /* a published number */
    SIM_SHAPE,  /* a direction only */
};

struct sim_line {
    const char *id; /* of the experiment */
    enum sim_kind kind;
    char what[160];
    char published[80], ours[160];
    const char *tag;    /* where the published value comes from: S, P, A, C of A, I */
    double published_n; /* targets only */
    double ours_n;
    bool holds;
    bool is_fitted;   /* the models were calibrated on this very number */
    const char *note; /* why it differs, what it rests on; or NULL */
    char tolerance[40];
};

enum { SIM_POINTS = 64 };

struct sim_series {
    const char *id;
    char plot[80], name[48]; /* series of one plot belong together */
    const char *x_name, *y_name;
    uint32_t n;
    double x[SIM_POINTS], y[SIM_POINTS];
};

struct sim_report {
    const char *id; /* of the running experiment */
    struct sim_line *lines;
    size_t n_lines, lines_cap;
    struct sim_series *series;
    size_t n_series, series_cap;
    bool failed; /* out of memory or a run failed; see error */
    struct tl_error error;
};

void sim_report_finish(struct sim_report *r);

/* A published number, held if ours is within `tolerance` times it. */
struct sim_line *sim_target(struct sim_report *r, const char *what, const char *unit,
                            double published, const char *tag, double ours, double tolerance);
/* The same for percentages that may be small: held if they differ by at most `points`. */
struct sim_line *sim_target_points(struct sim_report *r, const char *what, double published,
                                   const char *tag, double ours, double points);
/* A direction, and what came out. */
struct sim_line *sim_shape(struct sim_report *r, const char *what, const char *tag, bool holds,
                           const char *ours, ...) __attribute__((format(printf, 5, 6)));
/* A point of a series of a plot. */
void sim_point(struct sim_report *r, const char *plot, const char *series, const char *x_name,
               const char *y_name, double x, double y);

struct sim_experiment {
    const char *id, *title;
    void (*run)(struct sim_report *r);
};
extern const struct sim_experiment sim_tally[], sim_tgs[], sim_salus[], sim_gpulet[],
    sim_herald[]; /* ended by zero ids */
/* All of them in order, ended by NULL. */
const struct sim_experiment *const *sim_experiments(void);

void sim_report_json(const struct sim_report *r, struct tl_buf *out);
void sim_report_text(const struct sim_report *r, struct tl_buf *out);
void sim_report_markdown(const struct sim_report *r, struct tl_buf *out);
/* A page: the tables and plots of the experiments that were run; or all plots of the report below a
 * text, as it is printed. */
void sim_report_html(const struct sim_report *r, struct tl_buf *out);
void sim_report_text_html(const struct sim_report *r, const char *title, const char *text,
                          struct tl_buf *out);
/* One plot as SVG. */
void sim_plot_svg(const struct sim_report *r, const char *id, const char *plot, struct tl_buf *out);

#endif
