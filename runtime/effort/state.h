/* What every file of this part may need: whom it works for, the time, remarks.
 *
 * The files, each with a header of its name for what it offers to the others:
 *
 *     start.c     begins and ends; the table of hooks
 *     lock.c      the one lock, and how it is checked who holds it
 *     real.c      the real driver's functions
 *     stream.c    contexts and streams
 *     queue.c     ordered queues of what was asked for, and who may go next
 *     calls.c     hooks of calls that only have to keep their place in a stream
 *     copy.c      hooks of copies: what pageable memory demands
 *     split.c     large copies, in pieces
 *     alloc.c     allocation in stream order, out of frees that are queued
 *     event.c     events whose record is still queued
 *     sync.c      waiting, capture, the ends of streams, memory and contexts
 *     graph*.c    graphs, replayed node by node, in parts or as they are
 *     cut.c       which of these, and where they are cut; pure
 *     parts.c     a graph in parts; subgraph.c: how one is made
 *     kernel.c    kernels: parameters, limits, launches as the job makes them
 *     gang.c      kernels that wait for kernels of other processes
 *     names.c     kernels of which the driver tells no name
 *     attribute.c what the job sets for kernels, launches and streams, carried over
 *     variant.c   the other forms of a kernel, built in the background
 *     build_*.c   how: of PTX, or of machine code
 *     code.c      the machine code that an image carries
 *     forge.c     where gates are compiled
 *     twins.c     modules with variables: what the driver gets in their place
 *     store.c     what outlives the process: rewritten text
 *     profile.c   how long kernels take
 *     plan.c      what follows from that: rung, size, part of the SMs; pure
 *     next.c      what the job tells of the kernel that comes next
 *     room.c      how many blocks of a kernel an SM has side by side
 *     pieces.c    a kernel's way to the device, as planned
 *     rescue.c    a kernel in pieces that stands still: its remaining blocks, at once
 *     cap.c       kernels that cannot be stopped, on a part of the SMs
 *     flight.c    what is on the device, and the news of its end
 *     supply.c    counters and events of a context
 *     count.c     where counters stand, and how the host learns what they say
 *     sums.c      what the job's page says that it did, of all its GPUs and of each
 *     whose.c     whose machine code it is, and whether it may get a gate; pure
 *     qualified.c what `tally doctor` found out about its device
 *     permit.c    whether this job may launch at this moment
 *     executor.c  the thread that submits what is queued
 *
 * Items are submitted to the real driver in an order that keeps every promise of CUDA; the real
 * driver does the rest.  An item counts as submitted when what comes behind it may be given to the
 * driver: for a kernel that runs in pieces that is when its last block is done. */
#ifndef TALLY_EFFORT_STATE_H
#define TALLY_EFFORT_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/job/client.h"
#include "runtime/job/settings.h"
#include "runtime/record/record.h"
#include "tally/effort.h"

/* Constant from the start on, but for the last two; no lock. */
struct tl_eff_state {
    const struct tl_shim *shim;
    const struct tl_settings *settings;
    struct tl_client *client;
    struct tl_record *record;
    struct tl_client_page *page;
    /* for tests of what catches a wrong verdict (TALLY_TEST_TRUST_WAITS): kernels whose blocks may
     * wait for each other are cut all the same, and nothing that is made of them is kept */
    bool trusts_waits;
    /* so many launches beside a kernel that stands still fail as if the driver refused them
     * (TALLY_TEST_REFUSE_BESIDE, with the above); the executor's */
    uint32_t n_refused_beside;
    _Atomic bool is_over; /* the process ends: nothing is held back any more */
};
extern struct tl_eff_state tl_eff;

static inline uint64_t tl_eff_now(void)
{
    return tl_record_now();
}

/* One line for the user's log. */
#define tl_eff_log(level, ...) tl_eff.shim->log(level, __VA_ARGS__)
/* A remark in the record, once per text. */
void tl_eff_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
