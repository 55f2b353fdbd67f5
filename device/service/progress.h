/* Tells on standard error that a job waits for the compiler, so that a first step that takes a
 * minute does not look broken:
 *
 *     tally: compiling kernels 34/120
 *
 * 34 kernels were compiled so far, of 120 that this process has asked for.  On a terminal the line
 * is rewritten in place and wiped away at the end of each wait, so that the job's own output meets
 * an empty line; elsewhere a line comes every few seconds.  Nothing is told before the job has
 * waited for a second, which warm caches never take, and nothing with TALLY_LOG=error,
 * TALLY_LOG=off or TALLY_PROGRESS=no.  Of several threads one writes, and of several processes on
 * one terminal the one that waited first.  libc only; thread-safe. */
#ifndef TALLY_DEVICE_SERVICE_PROGRESS_H
#define TALLY_DEVICE_SERVICE_PROGRESS_H

#include "tally/store.h"

/* The kernel is compiled in the background from now on: it counts as asked for. */
void tl_jit_progress_expect(const struct tl_store_key *key);
/* Somebody waits for it from now on, until tl_jit_progress_end. */
void tl_jit_progress_begin(const struct tl_store_key *key);
void tl_jit_progress_end(const struct tl_store_key *key);
/* Between the two: returns when the descriptor has something to read or is broken, and tells
 * meanwhile.  False if that has not come within the time; -1: for ever. */
bool tl_jit_progress_wait(int fd, int most_ms);

#endif
