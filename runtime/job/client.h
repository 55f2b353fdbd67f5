/* A job's side of tallyd: joins, keeps its page, learns its grant and the words above it.  libc
 * only; it makes one thread, which listens to tallyd, joins again when tallyd was restarted, and
 * notices the death of those above even without tallyd. Nothing here ever blocks or ends the job:
 * if tallyd cannot be reached, the client says so once and all questions have the answer of a job
 * that is alone. */
#ifndef TALLY_RUNTIME_JOB_CLIENT_H
#define TALLY_RUNTIME_JOB_CLIENT_H

#include "runtime/job/settings.h"
#include "runtime/job/share.h"

struct tl_client;

/* Starts tallyd if none runs (unless TALLY_DAEMON=no) and joins.  0 with a client that may be alone
 * (see tl_client_is_joined), or -ENOMEM.  With settings->is_closed, -ECONNREFUSED if it cannot
 * join.  err->text is also filled if all went well and there is something that the user should know
 * (why it is alone, that its level was lowered), else it is empty. */
int tl_client_create(struct tl_client **out, const struct tl_settings *settings,
                     struct tl_error *err);
void tl_client_destroy(struct tl_client *c);
/* In the child of a fork: forgets the parent's membership without telling tallyd; the child may
 * join by itself, by another tl_client_create.  The object stays what it was, but alone: who still
 * writes to its page does no harm. */
void tl_client_abandon(struct tl_client *c);

bool tl_client_is_joined(const struct tl_client *c);
/* The process uses that GPU from now on: it has to do with those who use it too.  Until it has said
 * so for the first time it counts for all GPUs.  Waits a moment for the words there, the first
 * time. */
void tl_client_place(struct tl_client *c, const uint8_t uuid[16]);
/* Its own page, valid and writable for ever, joined or not.  Never NULL. */
struct tl_client_page *tl_client_page(struct tl_client *c);

/* Pieces of work are on their way to the device, and are done: counts them in its own word, and
 * tells the kernels of those below where that begins or ends a burst.  Any thread. */
void tl_client_issue(struct tl_client *c, uint32_t n);
void tl_client_complete(struct tl_client *c, uint32_t n);
/* The same for who counts in the page itself: `issued` was equal to `completed` before a piece was
 * added, or tl_share_is_told says no; `completed` is equal to `issued` now, to that number.  Both
 * change by sequentially consistent additions, and the first call comes before its piece can be
 * done. */
void tl_client_began(struct tl_client *c);
void tl_client_ended(struct tl_client *c, uint32_t completed);
/* The first in two halves.  One stores, before the piece goes to the driver; the other, with its
 * answer, sees to it that no number of another thread was lost, and wants an atomic addition of the
 * caller's between them, behind which it may come any time. */
uint32_t tl_client_tell(struct tl_client *c);
void tl_client_told(struct tl_client *c, uint32_t number);

/* The level in force: what it asked for, unless the rules lowered it or the user changed it with
 * `tally set`. */
int tl_client_level(const struct tl_client *c);
/* What the policy goes by: as it asked, less what the rules did not allow, and what `tally set`
 * changed. */
void tl_client_wish(struct tl_client *c, struct tl_sched_client *out);
/* A consistent copy of the grant in force. */
void tl_client_grant(struct tl_client *c, struct tl_grant *out);
/* A number that grows when the grant or the set of words changes: cheap to poll. */
uint32_t tl_client_changes(const struct tl_client *c);
/* Waits until tl_client_changes differs from `seen` or `timeout_ns` is over. */
void tl_client_wait(struct tl_client *c, uint32_t seen, uint64_t timeout_ns);
/* The same, and also until `bell`, a futex of this process, is not `rung` any more, or until a word
 * above that was busy has changed and its owner said so (which it does not after each short burst:
 * the timeout is the longest that a job is kept waiting for nothing).  May return early. */
void tl_client_wait_rung(struct tl_client *c, uint32_t seen, const _Atomic uint32_t *bell,
                         uint32_t rung, uint64_t timeout_ns);
/* This job's word is idle: wakes who sleeps because of it.  A system call if there are lower
 * levels. */
void tl_client_tell_idle(struct tl_client *c);
/* When a higher level first had work after a moment, as far as is known; 0 if none had. */
uint64_t tl_client_preempted_since(struct tl_client *c, uint64_t after_ns);
/* When the last of the bursts above ended, if all are over: CLOCK_MONOTONIC as their owners tell,
 * which may be anything; UINT64_MAX if one of them does not tell, or not yet. */
uint64_t tl_client_idle_since(struct tl_client *c);

/* The words of the levels above, up to TL_SHARE_WORDS; addresses stay valid for the life of the
 * client (a word that is not in use points to one that is never busy).  Returns how many are in
 * use. */
uint32_t tl_client_words(struct tl_client *c, const _Atomic uint64_t *words[TL_SHARE_WORDS]);
/* What kernels poll in their place: pages of this client's own, writable and page-aligned, in which
 * those above keep copies; NULL where there is none.  Addresses stay valid as those of words do.
 * Returns how many words are in use. */
uint32_t tl_client_polled(struct tl_client *c, struct tl_copy_page *polled[TL_SHARE_WORDS]);
/* Whether all of them are kept true.  While one is not, the job has to look at the words itself. */
bool tl_client_is_kept(struct tl_client *c);
/* Whether one of them is busy at this moment: a few loads.  The words of the dead do not count. */
bool tl_client_is_preempted(struct tl_client *c);

/* --- memory (runtime/job/client_memory.c) --- */

struct tl_ledger_page;
/* The ledger of its tree; another one after it has joined another tallyd, perhaps.  Never NULL. */
struct tl_ledger_page *tl_client_ledger(struct tl_client *c);
/* What it is called there. */
uint64_t tl_client_number(const struct tl_client *c);
struct tl_client_memory {
    uint64_t limit; /* of the tree, on each GPU; 0: none */
    uint64_t soft;  /* beyond which pages may leave; 0: none may */
};
void tl_client_memory(struct tl_client *c, struct tl_client_memory *out);
/* Bytes that are kept free for others on a GPU (tl_ledger_gpu). */
uint64_t tl_client_kept(struct tl_client *c, uint64_t gpu);

/* Says whether there is work queued or in flight (has_backlog of the page): call it when that
 * changes.  A store; and if tallyd sleeps because nobody had work, and this is not the highest
 * level, one message that wakes it. */
void tl_client_backlog(struct tl_client *c, bool has_work);

/* Tells tallyd of a finished request. */
void tl_client_request(struct tl_client *c, uint64_t latency_ns);

#endif
