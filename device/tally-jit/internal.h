/* What the parts of the service share: the state of the one process that waits.
 *
 *     server.c   clients: who asks, who is answered, beginning and end
 *     queue.c    who is compiled next, and what is put aside for that
 *     workers.c  the processes that compile
 *     shelf.c    what they share
 *
 * All of it belongs to one thread. */
#ifndef TALLY_DEVICE_TALLY_JIT_INTERNAL_H
#define TALLY_DEVICE_TALLY_JIT_INTERNAL_H

#include "device/jit/shelf.h"
#include "device/service/refusals.h"
#include "device/service/wire.h"
#include "device/tally-jit/server.h"
#include "tally/table.h"

#include <signal.h>
#include <sys/types.h>

enum {
    CLIENTS = 512,                /* more wait in the socket's queue */
    WORKERS = 2 * TL_JIT_WORKERS, /* with those that are put aside */
    /* then it is replaced, whatever LLVM has left in its memory; quick versions leave little, and
     * what they share is made again in the next */
    WORK_PER_WORKER = 1000,
    WORK_OF_ONE = 5,
    WORK_OF_QUICK = 1,
};

struct job {
    struct job *next;
    char *message; /* as it came; the strings below point into it */
    size_t message_n;
    struct tl_jit_ask ask;
    struct tl_jit_ask_text text;
    int ptx;         /* descriptor */
    bool is_running; /* a worker has it, which may be put aside */
    bool is_ahead;   /* asked for by nobody who waits */
    /* the highest of those who wait for it; of who asked ahead if nobody does */
    int level, ahead_level;
};

struct client {
    int fd;
    struct job *job; /* that it waits for; NULL before its request */
    int level;       /* with which it asked */
    bool waits_for_end;
    int64_t since_ms;
};

struct worker {
    pid_t pid; /* 0: no such worker */
    int fd, log;
    struct job *job;            /* NULL: idle */
    uint32_t n_work;            /* that it has done */
    int64_t until_ms, aside_ms; /* aside_ms: since when it is put aside; 0: it is not */
    bool is_overdue;
};

/* Forms of quick versions. */
struct shelf {
    struct tl_shelf *own;         /* NULL: there is none */
    const struct tl_shelf *shown; /* the same, which workers inherit */
    struct tl_table keys;
    bool was_loaded;   /* out of the cache, as far as there was one */
    uint32_t n_loaded; /* how many that were */
    uint64_t saved_n;  /* bytes that are in the cache */
    int64_t saved_ms;
    uint32_t mb; /* what the cache may take, by who asked first of those that have one */
};

struct server {
    const struct tl_jit_server_options *options;
    char id[TL_JIT_COMPILER_ID_BYTES];
    char folder_path[TL_STORE_PATH];
    int folder, lock, listener;
    struct client clients[CLIENTS];
    uint32_t n_clients;
    struct worker workers[WORKERS];
    struct job *jobs; /* oldest first */
    /* what is known of the cache's folder; its descriptor is closed */
    struct tl_store cache;
    struct tl_jit_refusals refusals;
    struct shelf shelf;
    uint32_t n_compiled, n_found, n_failed, n_deaths;
    int64_t active_ms; /* when somebody last wanted something */
    bool is_stopping;  /* takes nobody in any more */
    bool is_told;      /* by somebody who waits for it: what nobody waits for is not finished */
    char no_sandbox[sizeof((struct tl_error *)0)
                        ->text]; /* why workers are not kept apart; empty if they are */
    sigset_t waiting_mask;
    char message[TL_JIT_MESSAGE_BYTES];
};

/* server.c */
/* In the foreground: tells people. */
void jit_note(const struct server *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Answers everybody who waits for the job, and forgets it. */
void jit_finish_job(struct server *s, struct job *job, enum tl_jit_kind kind, int code,
                    const char *text, int fd, uint64_t object_bytes);
/* The object goes into the cache; if it cannot, to the clients themselves. */
void jit_keep_object(struct server *s, struct job *job, int fd, uint64_t n);

/* The folder that the service was started for, unless the client wants none; closed by the other,
 * which keeps what is known of it. */
int jit_open_cache(struct server *s, const char *path, uint32_t mb, struct tl_store *c,
                   struct tl_error *err);
void jit_close_cache(struct server *s, struct tl_store *c);

/* shelf.c */
/* None, if that fails. */
void jit_shelf_init(struct server *s);
void jit_shelf_finish(struct server *s);
/* What a worker may have of it; in the worker's process, which can write there no more. */
const struct tl_shelf *jit_shelf_of_worker(struct server *s);
/* What a worker tells; the descriptor stays the caller's. */
void jit_shelf_add(struct server *s, int fd, uint64_t n);
/* Before a quick version; once, as soon as there is a cache. */
void jit_shelf_load(struct server *s, const char *cache, uint32_t mb);
/* Now and then, and at the end. */
void jit_shelf_save(struct server *s, bool is_last);

/* queue.c */
/* A job of what was asked, at the end of the queue; takes the descriptor over.  0 or -ENOMEM. */
int jit_new_job(struct server *s, const struct tl_jit_ask *a, size_t n, int ptx, struct job **out);
void jit_free_job(struct server *s, struct job *job);
/* Somebody came to wait for the job, or went. */
void jit_set_level(struct server *s, struct job *job);
/* Drops what nobody waits for, also if a worker is at it. */
void jit_forget_ahead(struct server *s);
/* Hands out what waits. */
void jit_assign_jobs(struct server *s);

/* workers.c */
/* NULL if there is no room or no process to be had. */
struct worker *jit_start_worker(struct server *s);
/* Ends a worker if it has not ended itself; returns how it ended. */
int jit_end_worker(struct worker *w);
/* It has ended, or has to. */
void jit_bury_worker(struct server *s, struct worker *w);
/* It has something to say. */
void jit_hear_worker(struct server *s, struct worker *w);
/* Gives it the job, which may end with that. */
void jit_give_job(struct server *s, struct worker *w, struct job *job);
/* Stops it where it is, until it is told to go on. */
void jit_put_aside(struct server *s, struct worker *w);
void jit_go_on(struct server *s, struct worker *w);
/* Ends those who take too long. */
void jit_check_workers(struct server *s, int64_t now_ms);

#endif
