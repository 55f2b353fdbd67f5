/* TGS's adaptive rate control: how many thread blocks opportunistic jobs may launch, found from how
 * much the production job slows down.  A state machine of one sample per step (5 s in TGS); like
 * TCP it grows fast, then carefully, and backs off.
 *
 *     alone ──connect──► profile ──5 steady samples──► run: slow start ◄──► avoidance
 *                           ▲                            │
 *                           └── rate moved by > 20 % ────┘     production idle: open up; waking: start again
 */
#ifndef TALLY_SCHED_TGS_RATE_H
#define TALLY_SCHED_TGS_RATE_H

#include <stdbool.h>
#include <stdint.h>

enum { TL_TGS_WINDOW = 5 };

enum tl_tgs_phase { TL_TGS_ALONE, TL_TGS_PROFILE, TL_TGS_SLOW_START, TL_TGS_AVOID };

/* Rates are thread blocks per sampling step (production) and per 50 ms (the limit), as in TGS. */
struct tl_tgs {
    /* Constants; tl__tgs_init fills in those of TGS. */
    double limit_init, rate_min, threshold, limit_max;
    /* State. */
    enum tl_tgs_phase phase;
    double limit;    /* blocks per 50 ms; below 1 the opportunistic job is stopped */
    double max_rate; /* what production reaches undisturbed */
    double window[TL_TGS_WINDOW];
    bool has_samples, keeps_profiling;
    uint32_t profiled, samples, bad_in_a_row;
    int sign;
};

void tl__tgs_init(struct tl_tgs *t);
/* While no opportunistic job is there: learns the production rate; call every 2.1 s or so. */
void tl__tgs_alone(struct tl_tgs *t, double sample);
void tl__tgs_connect(struct tl_tgs *t);
void tl__tgs_disconnect(struct tl_tgs *t);
/* One step: production launched `sample` blocks in it; opportunistic jobs launched `current` in the
 * last 50 ms. */
void tl__tgs_step(struct tl_tgs *t, double sample, double current);

#endif
