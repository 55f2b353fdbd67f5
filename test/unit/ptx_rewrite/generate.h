/* Random kernels in which blocks meet: locks, tickets, turns, queues, look-back, barriers over the
 * grid, and many ways to get such things wrong.
 *
 * A kernel is one to three stages, each with words of its own.  By construction it is known of each
 * whether it needs a block that comes later, so that cutting the grid hangs it, and what it leaves
 * in `out` if it ends.  Every kernel is valid: with all of its blocks on the device it ends. */
#ifndef TEST_PTX_GENERATE_H
#define TEST_PTX_GENERATE_H

#include "test/unit/ptx_rewrite/case.h"

enum { PTX_GENERATED_OUT = 64, PTX_GENERATED_STAGES = 3 };

struct ptx_generated {
    struct tl_buf text;
    const char *kernel;
    struct ptx_case_run run;
    struct ptx_case_arg args[PTX_CASE_ARGS];
    uint32_t n_args;
    uint32_t ignored; /* bits of arguments that may end as they like */
    bool is_harmful;
    bool is_unusual; /* reads by textures, surfaces or asynchronous copies */
    const char *stages[PTX_GENERATED_STAGES]; /* what each does, in words */
    uint32_t n_stages;
    uint32_t out[PTX_GENERATED_OUT]; /* what the first argument holds in the end */
};

/* The kernel of that seed; always the same. */
void ptx_generate(struct ptx_generated *g, uint64_t seed);
void ptx_generated_finish(struct ptx_generated *g);

/* The names of all stages, harmful ones first, for counting. */
uint32_t ptx_generated_kinds(const char *const **names);

#endif
