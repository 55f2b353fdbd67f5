/* The client's files among themselves.
 *
 *     client.c         the questions that a job asks, answered from memory
 *     runtime/job/client_words.c   the places where the words of those above are mapped, and their copies
 *     runtime/job/client_below.c   the copies of this client's own word in those below
 *     runtime/job/client_listen.c  the thread: joins, hears tallyd, notices deaths
 *     runtime/job/client_alive.c   how others see that this job has died, and this one that others have
 *     runtime/job/client_start.c   starts tallyd
 *     runtime/job/client_memory.c  what it may hold of the device's memory, and the ledger of its tree
 *
 * The thread owns everything that is not atomic; the job's threads only read what is. */
#ifndef TALLY_RUNTIME_JOB_CLIENT_INTERNAL_H
#define TALLY_RUNTIME_JOB_CLIENT_INTERNAL_H

#include <linux/futex.h>
#include <pthread.h>
#include <sys/types.h>

#include "runtime/job/client.h"
#include "runtime/job/ledger.h"
#include "runtime/job/wire.h"

/* --- words ------------------------------------------------------------------------------------ */

/* Words are mapped one page each into a row of places.  A place keeps its address for ever: if its
 * owner dies, zeroes are mapped there, which are never busy, and it is given to another only after
 * all others were.  So a thread that still has an old address reads something harmless.  The same
 * holds for the copies, which kernels read: a second row, of pages that may be written. */
enum { TL_CLIENT_PLACES = 128 };

/* A page that this client made for one above it, or a merged one of tallyd's. */
struct tl_client_copy {
    bool is_used, is_offered; /* to the tallyd that it is joined to */
    int fd;                   /* to offer it; -1 if merged */
    ino_t ino;                /* of it: the job may have closed it, and the number be its own now */
    uint32_t tries;           /* offers in vain, one after another */
    uint64_t look_ns;         /* when to see whether it is kept */
};

struct tl_client_place {
    bool is_used, is_merged;
    dev_t dev; /* of the page, to know it when it comes again */
    ino_t ino;
    int pidfd;      /* of who writes it; -1 if merged */
    uint32_t above; /* who that is, as tallyd calls it */
    uint32_t copy;  /* 0: there is none */
    /* A word from a tallyd that is gone counts until the next one knows its owner, or so long after
     * joining that one; 0 is for ever. */
    bool is_old;
    uint64_t until_ns;
};

struct tl_client_words {
    char *row; /* the places' pages; the first is always zero */
    struct tl_client_place places[TL_CLIENT_PLACES];
    uint32_t next;                     /* place to look at first for a new word */
    uint32_t in_force[TL_SHARE_WORDS]; /* places */
    char *copy_row;
    struct tl_client_copy copies[TL_CLIENT_PLACES];
    uint32_t last_copy;
    /* What the job reads; the rest points to zeroes. */
    const _Atomic uint64_t *_Atomic words[TL_SHARE_WORDS];
    /* What its kernels read, by the same numbers; NULL if there is none. */
    struct tl_copy_page *_Atomic polled[TL_SHARE_WORDS];
    _Atomic uint32_t n;
};

/* 0 or -ENOMEM. */
int tl__words_init(struct tl_client_words *w);
void tl__words_finish(struct tl_client_words *w);
/* Takes the set that tallyd sent; takes over or closes all descriptors of the packet. */
void tl__words_take(struct tl_client_words *w, struct tl_wire_packet *packet, uint64_t now);
/* Forgets a word: its owner is dead. */
void tl__words_drop(struct tl_client_words *w, uint32_t place);
/* Forgets those whose pages say that their owners have died; whether there were any. */
bool tl__words_drop_dead(struct tl_client_words *w);
/* tallyd is gone: forgets what only a living one keeps true, and remembers that the rest is from an
 * old one. */
void tl__words_grow_old(struct tl_client_words *w);
/* Forgets words whose time is over.  Returns when to ask again, or UINT64_MAX. */
uint64_t tl__words_expire(struct tl_client_words *w, uint64_t now);
/* Offers copies that nobody keeps, through that socket to tallyd.  A copy that was offered in vain
 * is replaced.  Returns when to ask again, or UINT64_MAX; `has_changed` if there is another copy
 * now. */
uint64_t tl__words_offer(struct tl_client_words *w, int socket, uint64_t now, bool *has_changed);
/* In the child of a fork: zeroes everywhere, descriptors closed. */
void tl__words_abandon(struct tl_client_words *w);

/* --- copies in those below -------------------------------------------------------------------- */

struct tl_client_slot {
    uint32_t place; /* 0: it is free */
    dev_t dev;      /* of the page, to know it when it comes again */
    ino_t ino;
    bool is_wanted, is_old;
    uint64_t until_ns; /* of one from a tallyd that is gone; 0: not yet */
};

struct tl_client_below {
    /* Bursts, by the threads of the job. */
    _Atomic uint32_t began, ended;
    _Atomic uint32_t shown;                               /* a bit for each of these that is kept */
    struct tl_copy_page *_Atomic copies[TL_SHARE_COPIES]; /* a copy stays where it is */
    /* The thread's own. */
    char *row; /* places, as those of words */
    struct tl_client_slot slots[TL_SHARE_COPIES];
    uint32_t last; /* place that was given out last */
};

/* 0 or -ENOMEM. */
int tl__below_init(struct tl_client_below *b);
void tl__below_finish(struct tl_client_below *b);
/* A burst has begun, and one has ended with `completed`, as counted in that page.  Any thread. */
void tl__below_began(struct tl_client_below *b, struct tl_client_page *page);
/* The two halves of the former, as tl_client_tell and tl_client_told. */
uint32_t tl__below_tell(struct tl_client_below *b, struct tl_client_page *page);
void tl__below_told(struct tl_client_below *b, uint32_t number);
void tl__below_ended(struct tl_client_below *b, struct tl_client_page *page, uint32_t completed);
/* Takes the set that tallyd sent; the descriptors stay the caller's. */
void tl__below_take(struct tl_client_below *b, struct tl_wire_packet *packet, uint64_t now);
/* As those of words. */
void tl__below_grow_old(struct tl_client_below *b);
uint64_t tl__below_expire(struct tl_client_below *b, uint64_t now);
void tl__below_abandon(struct tl_client_below *b);

/* --- the client ------------------------------------------------------------------------------- */

enum tl_client_state {
    TL_CLIENT_ALONE,    /* tries again at retry_ns */
    TL_CLIENT_STARTING, /* tallyd was started; `ready` tells */
    TL_CLIENT_JOINING,  /* said hello */
    TL_CLIENT_JOINED,
};

/* --- runtime/job/client_alive.c --------------------------------------------------------------- */

/* The list that the kernel walks when the client's thread dies. */
struct tl_client_alive {
    struct robust_list_head head;
    struct robust_list node;
};

struct tl_client {
    struct tl_client_page *page;
    int page_fd; /* -1: there is no shared memory; it stays alone */
    ino_t page_ino;
    /* The ledger of its tree, and what of it was mapped before stays so: somebody may be at it. */
    struct tl_ledger_page *_Atomic ledger;
    int ledger_fd;
    ino_t ledger_ino;
    struct tl_settings settings;
    char daemon[1024];  /* path of tallyd, or empty: it is not started from here */
    char **environment; /* for it; copied where the job's own thread cannot change it meanwhile */

    struct tl_client_words words;
    struct tl_client_below below;
    /* The grant page of the tallyd that it is joined to, or NULL.  Two places take turns, so that
     * somebody who still reads the old one when a new tallyd came reads memory of ours. */
    struct tl_grant_page *_Atomic grant;
    char *grants;
    uint32_t grant_turn;
    _Atomic int level;                          /* when it is alone: the last one in force */
    _Atomic uint64_t memory_limit, memory_soft; /* likewise */
    /* grows with each change that did not come through the grant page; a futex */
    _Atomic uint32_t changes;

    /* The thread's own. */
    pthread_t thread;
    bool has_thread;
    int stop;    /* eventfd */
    int poke[2]; /* a pipe to it: somebody above has died, as its page tells */
    ino_t poke_ino;
    struct tl_client_alive alive;
    enum tl_client_state state;
    /* -1: none.  The thread's own, but others wake tallyd through it, so it is closed under
     * socket_lock. */
    int socket;
    ino_t socket_ino;
    pthread_mutex_t socket_lock;
    struct tl_wire_gpus
        gpus;                /* that the process uses; under socket_lock, as what is told of them */
    bool has_many;           /* more than can be told: it counts for all */
    _Atomic uint32_t placed; /* answers of tallyd to where it is */
    int ready;               /* pipe from a tallyd that is starting */
    uint64_t deadline_ns, retry_ns, start_ns;
    uint32_t failures, failed_starts; /* one after another */
    bool may_start, was_joined;
    struct tl_sched_client wish; /* what it asks for when it joins */

    /* The first attempt to join, for tl_client_create. */
    pthread_mutex_t lock;
    pthread_cond_t settled;
    bool is_settled;        /* guarded by lock */
    struct tl_error remark; /* guarded by lock */

    pthread_mutex_t request_lock; /* one writer of the ring at a time */
};

/* Wakes all who wait for a change. */
void tl__client_changed(struct tl_client *c);
/* A ledger of its own, and the one of its tree, in whose place it was offered; the descriptor is
 * taken over.  The second says whether it is another one. */
int tl__client_make_ledger(struct tl_client *c);
bool tl__client_take_ledger(struct tl_client *c, int fd);
/* Puts a grant page in force, or none; takes over the descriptor. */
void tl__client_set_grant(struct tl_client *c, int fd);

void tl__alive_open(struct tl_client *c); /* without a pipe, deaths are seen a little later */
/* From here on until tl__alive_end the page tells if the calling thread dies. */
void tl__alive_begin(struct tl_client *c);
/* Tells the client's thread that somebody above has died, and hears that there.  The job may have
 * closed the pipe, and the number may be something of its own now. */
void tl__alive_poke(struct tl_client *c);
void tl__alive_hear(struct tl_client *c);
void tl__alive_end(struct tl_client *c);
bool tl__alive_has_died(const struct tl_client_page *page);

void *tl__client_listen(void *client);

#endif
