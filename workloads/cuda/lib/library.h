/* For programs that try a library of the toolkit: each has cases, and `program CASE` runs one of
 * them, `program` all. */
#ifndef TALLY_WORKLOADS_LIBRARY_H
#define TALLY_WORKLOADS_LIBRARY_H

#include "check.h"

/* A call that fails is told of and ends the case, whose function has a `checker *check`; `text` may
 * use `status_`. */
#define TRY(call, good, text)                                                                                          \
    do {                                                                                                               \
        auto status_ = (call);                                                                                         \
        if (status_ != (good)) {                                                                                       \
            fprintf(stderr, "%s: status %d, %s\n", #call, (int)status_, text);                                         \
            check->is(false, "status", (size_t)status_);                                                               \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* The same, and what the call put on the device has run without error. */
#define TRY_AND_WAIT(call, good, text)                                                                                 \
    do {                                                                                                               \
        TRY(call, good, text);                                                                                         \
        TRY(cudaDeviceSynchronize(), cudaSuccess, cudaGetErrorString(status_));                                        \
    } while (0)

/* Runs what the command line names of `cases`, which have a `name`, by `run(check, case)`; what
 * main returns. */
template <class Cases, class Run> static int run_cases(int argc, char **argv, const Cases &cases, Run run)
{
    int failed = 0, ran = 0;
    for (const auto &c : cases) {
        if (argc >= 2 && strcmp(argv[1], c.name) != 0)
            continue;
        checker check(c.name);
        run(&check, c);
        failed += check.done();
        ran++;
    }
    return failed > 0 || ran == 0;
}

#endif
