/* A small interpreter of PTX, thread by thread: a second opinion on what a kernel does that shares
 * nothing with the device's compiler, and that knows for certain when a kernel hangs.
 *
 * Blocks are begun in ascending order, at most `resident` at a time, and every thread of those may
 * be the next to run, at any instruction.  All choices come from a seed: a run is repeated exactly.
 * Integers only; what it does not know ends the run with PTX_UNKNOWN. */
#ifndef TEST_PTX_INTERPRET_H
#define TEST_PTX_INTERPRET_H

#include "tally/ptx.h"

enum ptx_end {
    PTX_ENDED,
    /* certainly: nothing can move, or a fair order of steps comes back to where it was */
    PTX_HANGS,
    /* did not end within its budget of steps, and never was in the same state twice */
    PTX_TOO_LONG,
    PTX_FAULT,   /* an address that is not there, a trap */
    PTX_UNKNOWN, /* an instruction that this interpreter does not know */
};

/* Memory that kernels may touch: arguments and the module's variables, at addresses that stay. */
struct ptx_memory {
    struct {
        char name[128]; /* of a variable; empty for arguments */
        uint8_t *bytes;
        size_t n;
    } areas[48];
    uint32_t n_areas;
};

/* Zeroed memory; NULL if there are too many areas. */
uint8_t *ptx_memory_add(struct ptx_memory *m, const char *name, size_t n);
uint8_t *ptx_memory_find(const struct ptx_memory *m, const char *name);
void ptx_memory_finish(struct ptx_memory *m);

struct ptx_machine; /* a kernel, ready to be run */

/* The kernel of that name; NULL if it cannot be read.  The text must outlive it. */
struct ptx_machine *ptx_machine_open(const char *text, size_t n, const char *kernel);
void ptx_machine_close(struct ptx_machine *m);
/* Gives memory to the variables of the module that `m` has none for yet; false if one has an
 * initialiser or does not fit. */
bool ptx_machine_bind(struct ptx_machine *k, struct ptx_memory *m);

struct ptx_run {
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared;
    const uint8_t *params;
    uint32_t resident; /* blocks at a time; 0 for all */
    uint64_t seed;
    /* Steps that a thread makes in a row, at most; 0 for a few.  Many: blocks nearly run one after
     * the other, though all are there. */
    uint32_t burst;
    /* Lanes of a warp that are at the same place go on together, as they do on GPUs; else every
     * thread goes its own way. */
    bool is_converged;
    uint64_t budget; /* steps after which a state is looked for that comes again */
    /* Called now and then while the outcome is open: somebody else's doing, such as raising a stop
     * word.  May be NULL. */
    void (*meanwhile)(void *user);
    void (*settle)(void *user); /* from here on nothing is done from outside; may be NULL */
    void *user;
    /* Results: */
    uint64_t steps;
    char why[160]; /* of PTX_FAULT and PTX_UNKNOWN */
};

enum ptx_end ptx_machine_run(struct ptx_machine *k, struct ptx_memory *m, struct ptx_run *run);

#endif
