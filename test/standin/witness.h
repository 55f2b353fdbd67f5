/* What reaches the driver, as test/standin/witness.c keeps it for tests of the best-effort part. */
#ifndef TALLY_TEST_WITNESS_H
#define TALLY_TEST_WITNESS_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1
#endif
#include <cuda.h>
#include <stdint.h>

enum witness_kind {
    WITNESS_LAUNCH,
    WITNESS_CARVEOUT,     /* set for a function: `value` */
    WITNESS_CACHE_CONFIG, /* the same */
    WITNESS_DYNAMIC,      /* the most dynamic shared memory, the same */
    WITNESS_COPY,         /* of `value` bytes, or a box of so many */
    WITNESS_ALLOC,
    WITNESS_FREE,
    WITNESS_LIMITED, /* a text with a limit on registers was to be compiled */
};

struct witness_call {
    enum witness_kind kind;
    char name[96]; /* of the function, as it was asked for */
    uint32_t grid[3], shared_bytes;
    CUstream stream;
    uint64_t value;
    uint64_t from, to; /* of a copy; of allocations `to` */
    CUresult result;
    uint32_t n_attributes;
    CUlaunchAttribute attributes[16];
    int domain; /* of the stream at that moment */
};

/* Calls so far, oldest first; and forgets them.  Not while others are made. */
const struct witness_call *witness_calls(uint32_t *n);
void witness_forget(void);

#endif
