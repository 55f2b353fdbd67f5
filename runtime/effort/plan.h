/* Decisions about a kernel: on which rung it runs, in pieces of what size, on how many SMs, and
 * what is tried and measured.  Pure: each answer follows from the facts that are given and from
 * nothing else; no clock, no lock, no driver.  So any thread may ask. */
#ifndef TALLY_EFFORT_PLAN_H
#define TALLY_EFFORT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "tally/sched.h"

/* With nobody above, so much work may be with the driver, and a kernel of up to that runs whole: if
 * somebody comes, that is how long he waits, once. */
enum { TL_EFF_ALONE_NS = 20000000 };

/* The variant that a rung needs. */
enum tl_eff_form {
    TL_EFF_FORM_UNASKED, /* whether there is one has to be asked for */
    TL_EFF_FORM_COMING,  /* it is being built */
    TL_EFF_FORM_READY,
    TL_EFF_FORM_NONE, /* it was refused, or does not suit this launch */
};

struct tl_eff_rung_facts {
    enum tl_eff_form form;
    uint64_t held_ns;   /* for how long the kernel has been held back for it */
    bool was_asked_for; /* by an earlier launch of the kernel */
    bool is_slow;       /* it was found so, and is not to be tried again yet */
    uint64_t wave_ns;   /* the least that was seen on it; 0 if not known */
    uint32_t n_samples;
};

struct tl_eff_facts {
    /* The device, and what the job may do on it. */
    uint32_t sms; /* 0 if not known */
    /* blocks of the original, as it is launched, that an SM has side by side at most; 0 if not
     * known */
    uint32_t resident;
    /* the same of the variant that it runs as; 0 if not known, or if it has none yet */
    uint32_t occupancy;
    /* an SM has one block at a time, whatever its occupancy */
    bool runs_block_by_block;
    bool is_capless;        /* there are no parts of the SMs */
    int force;              /* a rung that the user asked for, or -1 */
    enum tl_rung finest;    /* that the grant allows */
    uint32_t sm_permille;   /* the part of the SMs that is granted; 0, 1000: all */
    uint64_t turnaround_ns; /* budget for leaving the device */
    uint32_t strikes;       /* how often its blocks were found to wait for each other */
    /* what a block of the gated form costs an SM that asks and leaves, and one that leaves at once
     * because it ran in an earlier launch; 0 if not known */
    uint64_t leave_ns, skip_ns;
    bool takes_singly; /* a worker must not take several blocks at a time */
    bool is_alone;     /* nobody is above */
    /* What was measured of the kernel, in this shape.  A wave is one block for each SM: its time
     * says how fast a form is, and tells two forms apart.  It is not what a block takes: that
     * shares its SM with others, and lasts as many waves as they are. */
    bool has_profile;  /* else nothing was, and nothing can be kept */
    uint64_t whole_ns; /* what the original takes; 0 if not known */
    uint64_t wave_ns;  /* of the original; 0 if not known */
    struct tl_eff_rung_facts rungs[TL_RUNG_WHOLE];
    /* The launch: how far it has come, on which rung. */
    enum tl_rung rung;
    uint32_t blocks, done, launched;
    bool is_chained; /* the kernel in front of it has not ended, as far as known */
};

/* The rung to take.  With `asks`, it must first be found out whether there is a variant for that
 * rung; with this fact added, the question is put again.  With `holds`, the kernel is not launched
 * yet: its variant will soon be there, and whoever is above would have to wait for the end of
 * it. */
struct tl_eff_choice {
    enum tl_rung rung;
    bool asks, holds;
};
struct tl_eff_choice tl_eff_plan_rung(const struct tl_eff_facts *f);
/* Whether a grid of so many blocks takes long, whatever its blocks do: it is many times as large as
 * what the device has room for.  `resident` as in the facts. */
bool tl_eff_plan_is_large(uint32_t blocks, uint32_t sms, uint32_t resident);
/* Whether so many SMs can hold all blocks of the original at once, as far as is known: then these
 * may wait for each other, whatever the verdict says. */
bool tl_eff_plan_fits(const struct tl_eff_facts *f, uint32_t sms);
/* Whether the device can: then the kernel is never cut, because to hold back any of its blocks may
 * leave the others waiting forever. */
bool tl_eff_plan_fits_at_once(const struct tl_eff_facts *f);
/* Whether its blocks were found to wait for blocks that were held back so often that it is never
 * cut again. */
enum { TL_EFF_STRIKES = 2 };
bool tl_eff_plan_waits(const struct tl_eff_facts *f);

/* The SMs that are granted, 1 at least. */
uint32_t tl_eff_plan_sms(const struct tl_eff_facts *f);
/* The SMs that a kernel which cannot be stopped is kept to; 0: all.  One that fits on the device at
 * once is not kept to a part on which it would not. */
uint32_t tl_eff_plan_cap(const struct tl_eff_facts *f);

/* How many blocks share an SM while the kernel runs, as far as is known; 1 at least.  And what one
 * of them takes from its first instruction to its last, if a wave takes so long. */
uint32_t tl_eff_plan_beside(const struct tl_eff_facts *f);
uint64_t tl_eff_plan_block_ns(const struct tl_eff_facts *f, uint64_t wave_ns);

/* --- pieces: `rung` is one of those that have a variant --- */
struct tl_eff_size {
    uint32_t blocks; /* of the kernel, from `launched` on */
    uint32_t batch;  /* a power of two: how many of them a persistent worker takes at a time */
    uint32_t bite;   /* gated: the first so many run whatever the stop words say */
};
/* The next piece, if any blocks are left. */
struct tl_eff_size tl_eff_plan_size(const struct tl_eff_facts *f);
/* What it takes until all blocks of a gated launch have left that are not to run: a launch always
 * has all of them. */
uint64_t tl_eff_plan_leaving_ns(const struct tl_eff_facts *f);
/* What is lost by a stop at `done` and the launch that goes on from there: the blocks behind it
 * leave, and then those before it. */
uint64_t tl_eff_plan_stop_ns(const struct tl_eff_facts *f);
/* Whether it is tried on a few blocks before it gets all of them. */
bool tl_eff_plan_is_trial(const struct tl_eff_facts *f);
/* How many pieces may be on the device at once. */
uint32_t tl_eff_plan_at_once(const struct tl_eff_facts *f);
/* Whether it may be launched before the end of the one in front is known: it stops by itself then,
 * and fast enough. */
bool tl_eff_plan_may_follow(const struct tl_eff_facts *f);
/* How many persistent workers are launched for a piece. */
uint32_t tl_eff_plan_workers(const struct tl_eff_facts *f, uint32_t blocks);
/* What the counter says when such a piece is done. */
uint32_t tl_eff_plan_expected(const struct tl_eff_facts *f, struct tl_eff_size size,
                              uint32_t workers);

/* --- a kernel in pieces that does not move --- */
struct tl_eff_wait {
    uint64_t wave_ns; /* what one block takes if an SM has no other; 0 if not known */
    uint32_t beside;  /* blocks that share an SM: each takes so much longer */
    uint32_t in_turn; /* blocks one after the other until something can be seen to move */
    uint32_t strikes;
};
/* How much of the time between two looks counts as time in which nothing moved.  Where kernels run
 * on processors of the machine, as much as they had of these: a machine that is busy with something
 * else lets nothing move, and that is no wait.  But a part always counts, since who waits may have
 * gone to sleep. */
uint64_t tl_eff_plan_still_ns(uint64_t gap_ns, bool tells_work, uint64_t worked_ns);
/* How often it is taken to have waited, with this time, if it had been so many times before and was
 * stopped so often since without standing still: one that waits for what is held back stands still
 * soon again. */
uint32_t tl_eff_plan_strikes(uint32_t before, uint32_t n_clean);
/* For how long nothing may move before its remaining blocks are launched beside it. */
uint64_t tl_eff_plan_patience(const struct tl_eff_wait *w);
/* How it went when they were. */
struct tl_eff_rescued {
    uint64_t held_ns; /* for how long nothing had moved before */
    uint64_t took_ns; /* from then on, until what had stood still came back */
    bool has_taken;   /* blocks beside it were begun before that */
};
/* Whether that was what it waited for, as far as can be told. */
bool tl_eff_plan_was_needed(const struct tl_eff_rescued *r);

/* --- whole kernels --- */
/* Whether one of known length may go to the driver as it is, at once. */
bool tl_eff_plan_goes_whole(uint64_t whole_ns, uint64_t turnaround_ns, bool is_alone);

/* --- budgets --- */
struct tl_eff_budget {
    uint64_t turnaround_ns, run_ahead_ns; /* as granted */
    uint64_t round_trip_ns;               /* until an end is known, at best; 0 if not measured */
    bool is_asked_for;                    /* by the user: then the turnaround stands as it is */
    uint32_t caution;                     /* halvings of the run-ahead */
    bool is_alone;
};
uint64_t tl_eff_plan_turnaround(const struct tl_eff_budget *b);
uint64_t tl_eff_plan_run_ahead(const struct tl_eff_budget *b);

/* --- measuring --- */
/* Whether a launch is to be measured, after so many. */
bool tl_eff_plan_wants_sample(uint32_t n_samples, uint32_t n_launches);
/* Whether a rung is still judged by small pieces; `wave_ns` is the original's. */
bool tl_eff_plan_is_on_trial(enum tl_rung rung, const struct tl_eff_rung_facts *r,
                             uint64_t wave_ns);
/* Whether a rung has been tried often enough to be called slow, by a sample of so many waves. */
bool tl_eff_plan_is_too_slow(enum tl_rung rung, const struct tl_eff_rung_facts *r, uint64_t wave_ns,
                             uint64_t waves);
/* After how many launches a rung that was found slow so many times before gets another chance. */
uint32_t tl_eff_plan_retry_after(uint32_t times);

#endif
