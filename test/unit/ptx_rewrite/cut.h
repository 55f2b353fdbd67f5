/* A kernel run whole, with few blocks at a time, and cut into each variant that the verdict allows:
 * does it end, and does it leave the same memory behind? */
#ifndef TEST_PTX_CUT_H
#define TEST_PTX_CUT_H

#include "test/unit/ptx_rewrite/case.h"
#include "test/unit/ptx_rewrite/interpret.h"

struct ptx_cut {
    /* What to run: the text, a kernel of it, a launch with its arguments. */
    const char *text;
    size_t n;
    const char *kernel;
    const struct ptx_case_run *run;
    const struct ptx_case_arg *args;
    uint32_t n_args;
    uint32_t ignored; /* bits of arguments that are not compared: words that may end as they like */
    uint64_t seed;
    uint32_t burst;     /* see struct ptx_run */
    bool is_converged;  /* the same */
    uint64_t max_steps; /* of the run of all blocks at once; 0 for many */
    bool is_whole_only; /* nothing is cut, and `least` is not tried */
    /* What came of it: */
    enum ptx_end whole; /* all blocks at once; what follows is valid if that ended */
    struct tl_buf left; /* the memory that it left behind, as far as it is compared */
    enum ptx_end least; /* one block at a time: what any cut may come down to */
    bool least_differs;
    bool is_accepted[TL_PTX_VARIANTS]; /* and the launch keeps its conditions */
    enum ptx_end ends[TL_PTX_VARIANTS];
    bool differs[TL_PTX_VARIANTS];
    uint64_t steps;      /* of the run of all blocks at once */
    uint32_t n_launches; /* of variants */
    char why[160];       /* of the first fault */
};

void ptx_cut_run(struct ptx_cut *c);
void ptx_cut_finish(struct ptx_cut *c);
/* The first variant that was allowed and hangs, faults or leaves other memory; -1 if none. */
int ptx_cut_wrong(const struct ptx_cut *c);
const char *ptx_end_name(enum ptx_end e);

#endif
