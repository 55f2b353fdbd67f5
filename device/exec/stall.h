/* What the machine takes from a kernel that runs: how long the thread that has an SM stood ready
 * and had no processor.  It tells that in the slot of the SM, so that who waits for it can tell the
 * time of the kernel from that of the machine.  Only where waits are kept (device/exec/waits.h). */
#ifndef TALLY_DEVICE_EXEC_STALL_H
#define TALLY_DEVICE_EXEC_STALL_H

#include <stdatomic.h>
#include <stdint.h>

/* Of one SM; written by its holder. */
struct tl__stall {
    _Atomic uint64_t total_ns; /* that its holders so far had no processor */
    _Atomic uint64_t told_ns;  /* until when that is known (CLOCK_MONOTONIC) */
};

/* The calling thread has the SM now; it tells how it went between blocks (tl__sm_note_block). */
void tl__stall_begin(struct tl__stall *st);
/* The calling thread will not have SMs any more. */
void tl__stall_end_thread(void);

/* Of a wait, what its holder can have run at most, if it had told all until `told_ns` before the
 * wait's begin and had no processor for `stalled_ns` since.  What may have been before the begin is
 * taken to have been there, so that never less than the truth is said. */
uint64_t tl__stall_ran_ns(uint64_t begin_ns, uint64_t end_ns, uint64_t told_ns,
                          uint64_t stalled_ns);

#endif
