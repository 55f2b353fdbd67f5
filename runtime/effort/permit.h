/* Whether this job may put kernels on the device at this moment. */
#ifndef TALLY_EFFORT_PERMIT_H
#define TALLY_EFFORT_PERMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/stream.h"
#include "runtime/job/share.h"
#include "tally/sched.h"

struct tl_eff_permit {
    struct tl_grant grant;
    uint32_t grant_changes;
    bool has_grant;
    uint64_t busy_ns; /* when a higher level was last seen busy, or a burst of it found over */
    bool was_preempted;
    /* halvings of the run-ahead; one less with each mark that comes back undisturbed */
    uint32_t caution;
    uint32_t n_words;
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    const struct tl_copy_page *polled[TL_SHARE_WORDS]; /* by kernels */
    uint64_t words_seen[TL_SHARE_WORDS]; /* what they said when they were last looked at */
    uint32_t words_epoch;                /* grows when they are others */
    /* what is on the device was told to leave by us, and what is launched now would be, too */
    bool is_kicking;
    bool is_kicked[TL_EFF_KICKS]; /* by set of words: see struct tl_eff_context */
    double rate_tokens;
    uint64_t rate_ns;
};
extern struct tl_eff_permit tl_eff_permit TL_EFF_GUARDED;

/* Forgets all. */
void tl_eff_permit_start(void) TL_EFF_UNLOCKED;

/* Brings the grant up to date as well. */
bool tl_eff_permit_holds(uint64_t now) TL_EFF_LOCKED;
/* How long to wait before asking again. */
uint64_t tl_eff_permit_wait_ns(uint64_t now) TL_EFF_LOCKED;
/* Nobody is above us.  Brings the grant up to date as well. */
bool tl_eff_is_alone(void) TL_EFF_LOCKED;
/* Budget for leaving the device, and predicted time that may be with the driver. */
uint64_t tl_eff_turnaround_ns(void) TL_EFF_LOCKED;
uint64_t tl_eff_run_ahead_ns(void) TL_EFF_LOCKED;
/* Room in the run-ahead for that much predicted time of a stream. */
bool tl_eff_has_room(const struct tl_eff_stream *s, uint64_t predicted_ns) TL_EFF_LOCKED;
bool tl_eff_take_rate(uint32_t blocks, uint64_t now) TL_EFF_LOCKED;
/* A mark behind whole kernels came back undisturbed: the run-ahead may grow again. */
void tl_eff_permit_trust(void) TL_EFF_LOCKED;
/* How long it takes at best until an end is known; 0 if not measured.  Any thread. */
void tl_eff_permit_round_trip(uint64_t ns);
/* Somebody above has work, and kernels are not told of it: a copy of its word is not kept true.
 * Then the executor looks often, and tells them itself. */
bool tl_eff_permit_must_tell(void) TL_EFF_LOCKED;
bool tl_eff_permit_must_look(void) TL_EFF_LOCKED;
/* Device addresses of what kernels poll for the words above (0: nothing), and how many words are in
 * use; false if they cannot be mapped.  Executor only. */
bool tl_eff_permit_words(CUdeviceptr words[TL_SHARE_WORDS], uint32_t *n,
                         uint32_t epoch) TL_EFF_UNLOCKED;
/* A context has gone, and perhaps what was registered in it. */
void tl_eff_permit_forget(void);

#endif
