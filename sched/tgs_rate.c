/* TGS's adaptive rate control, step by step as its authors' artefact does it. */
#include "sched/tgs_rate.h"

#include <string.h>

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double absolute(double a)
{
    return a < 0 ? -a : a;
}

void tl__tgs_init(struct tl_tgs *t)
{
    *t = (struct tl_tgs){
        .limit_init = 20000, .rate_min = 1000, .threshold = 0.03, .limit_max = 1e14};
}

/* The largest mean of two samples that follow each other, before the new one is shifted in. */
static double window_value(struct tl_tgs *t, double sample)
{
    if (!t->has_samples)
        for (int i = 0; i < TL_TGS_WINDOW; i++)
            t->window[i] = sample;
    t->has_samples = true;
    double best = 0;
    for (int i = 0; i + 1 < TL_TGS_WINDOW; i++)
        best = larger(best, (t->window[i] + t->window[i + 1]) / 2);
    memmove(t->window, t->window + 1, (TL_TGS_WINDOW - 1) * sizeof t->window[0]);
    t->window[TL_TGS_WINDOW - 1] = sample;
    return best;
}

void tl__tgs_alone(struct tl_tgs *t, double sample)
{
    double m = window_value(t, sample);
    if (t->max_rate > 0 && absolute(m - t->max_rate) / t->max_rate <= 0.2)
        t->max_rate = larger(t->max_rate, m);
    else
        t->max_rate = m;
}

void tl__tgs_connect(struct tl_tgs *t)
{
    t->phase = TL_TGS_PROFILE;
    t->limit = 0;
    t->profiled = t->samples = t->bad_in_a_row = 0;
    t->keeps_profiling = true;
    t->sign = -1;
}

void tl__tgs_disconnect(struct tl_tgs *t)
{
    t->phase = TL_TGS_ALONE;
    t->limit = 0;
    t->max_rate *= 0.8; /* it may have been seen too high; alone it is learnt again */
}

/* Moves max_rate towards the window's value; tells whether that has still to settle. */
static bool adjust_max(struct tl_tgs *t, double m)
{
    if (t->max_rate <= 0) {
        t->max_rate = m;
        return true;
    }
    double d = (m - t->max_rate) / t->max_rate;
    if (absolute(d) <= 0.05) {
        /* The artefact asks whether the maximum equals m, which a perfectly steady rate would
         * answer with yes for ever. */
        bool has_grown = m > t->max_rate;
        t->max_rate = larger(t->max_rate, m);
        return has_grown;
    }
    t->max_rate = d > 0 ? larger(t->max_rate, 0.975 * m) : smaller(t->max_rate, 1.025 * m);
    return true;
}

/* One step of the control: production reached `rate`, opportunistic jobs launched `current` blocks
 * in the last 50 ms.  Changes the limit, and the phase if production has slowed down. */
static void update(struct tl_tgs *t, double rate, double current)
{
    double delta = absolute(rate - t->max_rate) / t->max_rate;
    double cap = smaller(t->limit_max, larger(3 * current, 0x1p32));
    if (t->phase == TL_TGS_SLOW_START) {
        if (delta <= t->threshold) {
            t->limit = smaller(smaller(1.5 * t->limit + 1, larger(3 * current, 0x1p40)),
                               t->limit_max);
        } else {
            t->limit /= 1.5;
            t->sign = -1;
            t->phase = TL_TGS_AVOID;
        }
    } else {
        bool is_fine = t->sign < 0 ? delta <= t->threshold : delta < t->threshold;
        if (is_fine) {
            t->limit = smaller(t->limit + larger(0.00025 * t->max_rate, 1000), cap);
            t->sign = 1;
        } else {
            t->limit = smaller(t->limit - larger(0.08 * t->limit, 1000), cap);
            t->sign = -1;
        }
        if (delta >= 0.09) {
            t->phase = TL_TGS_SLOW_START;
            t->limit /= 10;
        }
    }
    t->bad_in_a_row = delta >= 0.12 ? t->bad_in_a_row + 1 : 0;
    if (t->bad_in_a_row >= 20) {
        t->bad_in_a_row = 0;
        t->max_rate *= 0.8;
        t->phase = TL_TGS_SLOW_START;
        t->limit /= 2;
    }
    t->limit = larger(t->limit, 0);
}

void tl__tgs_step(struct tl_tgs *t, double sample, double current)
{
    if (t->phase == TL_TGS_ALONE)
        return;
    double rate = larger(sample, 1);
    double m = window_value(t, rate);
    if (t->phase == TL_TGS_PROFILE) {
        t->keeps_profiling = adjust_max(t, m);
        if (++t->profiled >= 5 && !t->keeps_profiling) {
            t->phase = TL_TGS_SLOW_START;
            t->profiled = 0;
        }
        return;
    }
    int idle = 0;
    for (int i = 0; i < TL_TGS_WINDOW; i++)
        idle += t->window[i] < t->rate_min;
    /* production wakes up, slowed down by what was let in meanwhile */
    if (idle == 2 && t->samples > 15) {
        t->samples++;
        t->limit = t->limit_init;
        t->phase = TL_TGS_SLOW_START;
        return;
    }
    /* An idle window says nothing about what production reaches: learning from it would spoil the
     * way back. */
    double d = idle > 2 ? 0 : (m - t->max_rate) / t->max_rate;
    if (absolute(d) <= 0.1) {
        t->max_rate = larger(t->max_rate, m);
    } else if (absolute(d) > 0.2) {
        adjust_max(t, m);
        t->phase = TL_TGS_PROFILE; /* the limit stays as it was */
        t->profiled = 0;
        return;
    }
    t->samples++;
    if (t->samples == 1) {
        t->limit = t->limit_init;
        t->phase = TL_TGS_SLOW_START;
        return;
    }
    if (idle > 2 && t->samples >= 15) { /* production idles: open up */
        t->limit = smaller(t->limit_max, larger(3 * current, 0x1p32));
        t->phase = TL_TGS_SLOW_START;
    } else {
        update(t, rate, current);
    }
}
