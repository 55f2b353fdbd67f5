/* Whose machine code it is, and whether it may get a gate.  docs/legal.md says why that matters. */
#ifndef TALLY_EFFORT_WHOSE_H
#define TALLY_EFFORT_WHOSE_H

#include <stdbool.h>

#include "runtime/job/settings.h"
#include "tally/sched.h"

enum tl_eff_whose {
    TL_EFF_OF_THE_JOB,  /* the program's own, a framework's, a user's: no part of NVIDIA's SDK */
    TL_EFF_OF_NVIDIA,   /* a library of NVIDIA's carries it or has made it */
    TL_EFF_OF_SOMEBODY, /* it came out of memory, through hands that load for everybody */
};

/* By the file that the image lies in (`source`: a path, or "memory") and by the file of the code
 * that asked the driver to load it (`loader`: a path, or empty if that lies in none).  An image in
 * memory may be a copy of anything, so there the loader decides; and as libraries of NVIDIA's load
 * nobody's code but their own, what they load is theirs wherever it lies. */
enum tl_eff_whose tl_eff_whose(const char *source, const char *loader);

/* What `tally doctor` found out about the gate on a device. */
enum tl_eff_examined { TL_EFF_NEVER_EXAMINED, TL_EFF_FOUND_TO_WORK, TL_EFF_FOUND_UNFIT };

struct tl_eff_gate_facts {
    enum tl_gate_mode mode;
    bool is_forced; /* TALLY_FORCE=gate: a device that was never examined is taken as it is */
    enum tl_eff_whose whose;
    enum tl_eff_examined examined;
};
/* NULL if it may be gated, or in the words of a report why not. */
const char *tl_eff_gate_objection(const struct tl_eff_gate_facts *f);

#endif
