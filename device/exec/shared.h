/* The device as processes share it: SMs as slots that one worker of one process holds at a time,
 * and memory that is accounted for (device/exec/sm.c). */
#ifndef TALLY_DEVICE_EXEC_SHARED_H
#define TALLY_DEVICE_EXEC_SHARED_H

#include "device/exec/exec.h"

#include <time.h>

struct tl__sm;
/* device/exec/place.c: SMs get CPUs of their own, if there are more than SMs; a worker goes
 * there. */
void tl__place_sms(uint32_t n_slots);
void tl__place_worker(void);

struct tl__sm_config {
    const char *name;
    uint32_t n_slots;
    enum tl_exec_mode mode;
    uint64_t memory_bytes;
    uint32_t quantum_us;
    bool shares_faults;
    bool is_preferred; /* it may have the places that are kept */
};
/* To be called by a thread that lives until it calls close: the kernel tells the others when that
 * thread dies. */
int tl__sm_open(struct tl__sm **out, const struct tl__sm_config *config, struct tl_error *err);
void tl__sm_close(struct tl__sm *s);
/* in a forked child: forgets the mapping, touches nothing of the parent's */
void tl__sm_abandon(struct tl__sm *s);
int tl__sm_unlink(const char *name); /* tests: removes the segment */

struct tl__waits;
/* From now on what is lost to others is written there; before any worker starts.  Takes it over. */
void tl__sm_keep_waits(struct tl__sm *s, struct tl__waits *waits);
uint32_t tl__sm_slots(const struct tl__sm *s);
/* See tl_exec_domain_fault: 0 where faults are not shared. */
uint32_t tl__sm_fault(const struct tl__sm *s);
void tl__sm_fail(struct tl__sm *s, uint32_t what);
enum tl_exec_mode tl__sm_mode(const struct tl__sm *s);
/* A new grid's key: its place in the order of arrival, within its priority if the mode says so. */
uint64_t tl__sm_arrive(struct tl__sm *s, int32_t priority);
/* The key of this process's first grid with blocks left to dispatch, or TL_EXEC_NO_KEY. */
void tl__sm_set_head(struct tl__sm *s, uint64_t key);
int tl__sm_try_acquire(struct tl__sm *s, uint32_t preferred); /* a slot's number, or -EAGAIN */
void tl__sm_release(struct tl__sm *s, uint32_t slot);
/* Takes a slot back that was lent, whoever is next; false if somebody has it. */
bool tl__sm_retake(struct tl__sm *s, uint32_t slot);
bool tl__sm_is_free(const struct tl__sm *s, uint32_t slot);
/* The holder of a slot asks between blocks: others took it, because this process was stopped. */
bool tl__sm_has_lost(const struct tl__sm *s, uint32_t slot);
/* Waits until a slot may be free: some milliseconds at most.  The caller tries again. */
int tl__sm_acquire_or_wait(struct tl__sm *s, uint32_t preferred);
/* What a worker would find that asked for a slot now: one that it may take; that a worker of this
 * process has one, and takes the next grid when it is done; or that it has to wait for others, who
 * wake it as soon as it need not, if they live. */
enum tl__sm_chance { TL__SM_FREE, TL__SM_OWN, TL__SM_TAKEN };
enum tl__sm_chance tl__sm_chance(struct tl__sm *s);
/* For a worker with nothing to do: it begins to wait, looks whether there is something after all,
 * waits, ends.  A wait lasts until it is woken, since `begin`, or for the time that the limit gives
 * (NULL: for ever); false if that is over. */
uint32_t tl__sm_begin_wait(struct tl__sm *s);
bool tl__sm_wait(struct tl__sm *s, uint32_t seen, const struct timespec *limit);
void tl__sm_end_wait(struct tl__sm *s);
/* so many of this process's workers that wait */
void tl__sm_wake(struct tl__sm *s, int n);
/* the holder of a slot asks before it turns to another grid */
bool tl__sm_may_keep(struct tl__sm *s);
/* the holder of a slot asks between blocks */
bool tl__sm_must_yield(struct tl__sm *s, uint64_t key);
/* The holder of a slot tells that it is between blocks: for who keeps waits. */
void tl__sm_note_block(struct tl__sm *s, uint32_t slot);
/* another process waits for a slot: do not spin */
bool tl__sm_others_wait(struct tl__sm *s);
/* So many more of this process's threads have lent an SM on which they have blocks, and want it
 * back; whether another process has such. */
void tl__sm_lodge(struct tl__sm *s, int n);
bool tl__sm_others_lodge(struct tl__sm *s);
int tl__sm_memory_take(struct tl__sm *s, uint64_t bytes); /* 0, -ENOMEM */
void tl__sm_memory_give(struct tl__sm *s, uint64_t bytes);
uint64_t tl__sm_memory_mine(const struct tl__sm *s);
void tl__sm_memory_info(struct tl__sm *s, uint64_t *free_bytes, uint64_t *total_bytes);
/* Pages: see tl_exec_memory_demand and the calls behind it. */
int tl__sm_memory_demand(struct tl__sm *s, uint64_t bytes, uint32_t below);
void tl__sm_memory_mark(struct tl__sm *s, uint32_t rank,
                        /* so much more of used_bytes can be given back */
                        int64_t bytes);
/* how often this process was asked so far */
uint32_t tl__sm_memory_asked(struct tl__sm *s);
/* until it is asked more often than that */
void tl__sm_memory_wait(struct tl__sm *s, uint32_t seen);
/* what it is asked for; it owes nothing then */
uint64_t tl__sm_memory_owed(struct tl__sm *s, uint32_t rank);
/* takes the bus for so long; returns when that will be over */
uint64_t tl__sm_bus(struct tl__sm *s, uint64_t ns);
/* the same with a copy engine */
uint64_t tl__sm_engine(struct tl__sm *s, uint32_t engine, uint64_t ns);
/* For tests and tools: who holds the slot (process id), 0 if nobody who lives. */
uint32_t tl__sm_slot_pid(struct tl__sm *s, uint32_t slot);

#endif
