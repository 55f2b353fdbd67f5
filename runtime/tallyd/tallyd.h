/* tallyd: what its files share.  One epoll loop, in which nothing blocks; and a thread for each
 * peer, in which something may.
 *
 *     runtime/tallyd/main.c     options, start, end
 *     runtime/tallyd/place.c    the socket's folder, the lock, listening
 *     runtime/tallyd/loop.c     events, peers, time
 *     runtime/tallyd/porter.c   receives what a peer sends, where that holds up nobody else
 *     runtime/tallyd/bury.c     closes what was refused at the door, likewise
 *     runtime/tallyd/join.c     hello and goodbye of clients
 *     runtime/tallyd/gpus.c     who is where, and a policy for each GPU
 *     runtime/tallyd/words.c    who sees whose word
 *     runtime/tallyd/copies.c   who keeps copies of its word, and where
 *     runtime/tallyd/trees.c    who shares a limit of memory, what is kept free, whose pages leave
 *     runtime/tallyd/accounts.c whom engines vouch for, and what their jobs used
 *     runtime/tallyd/look.c     reads the clients' pages, runs the policy, publishes grants
 *     runtime/tallyd/stopped.c  who is stopped, and loses its place
 *     runtime/tallyd/control.c  answers tally ps, set and policy
 *     runtime/tallyd/rules.c    reads who may do what
 *     runtime/tallyd/rights.c   and holds jobs to it
 *     runtime/tallyd/metrics.h  metrics, with files of their own
 *     runtime/tallyd/log.c      the log
 *
 * A peer is a connection.  It becomes a client when it says hello; tools never do. */
#ifndef TALLY_RUNTIME_TALLYD_TALLYD_H
#define TALLY_RUNTIME_TALLYD_TALLYD_H

#include <semaphore.h>
#include <sys/types.h>

#include "runtime/job/admit.h"
#include "runtime/job/settings.h"
#include "runtime/job/share.h"
#include "runtime/job/wire.h"
#include "tally/sched.h"

enum {
    DAEMON_MAX_PEERS = 512,
    DAEMON_KEPT = 64,        /* of these, for tallyd's own user and root */
    DAEMON_PER_USER = 128,   /* for any other user, at most */
    DAEMON_REFUSED = 250,    /* that are closed together: as many as fit into a message */
    DAEMON_MAX_GPUS = 64,    /* with the place of those who are nowhere */
    DAEMON_BURST = 1000,     /* messages that a peer may send at once ... */
    DAEMON_PER_SECOND = 500, /* ... and in the long run */
    /* a peer that is no client and says nothing for so long is sent away */
    DAEMON_SILENT_MS = 10000,
    DAEMON_STOPPED_MS = 500, /* a client that is stopped keeps its place so long */
};

/* --- log (runtime/tallyd/log.c) --------------------------------------------------------------- */

enum daemon_log_level { LOG_ERRORS, LOG_WARNINGS, LOG_EVENTS, LOG_DETAILS };
/* To that file, or to standard error if it is NULL.  A file that cannot be opened is done
 * without. */
void daemon_log_open(const char *path, int level);
/* From here on a thread writes, and who logs does not wait for that; and until all is written, but
 * not for ever: for the end. */
void daemon_log_start(void);
void daemon_log_finish(void);
void daemon_log(enum daemon_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- rules (runtime/tallyd/rules.c) ----------------------------------------------------------- */

struct daemon_rules;
/* Reads a rules file.  0, or a negative errno value with file and line; no file is no error if
 * `is_optional`. */
int daemon_rules_read(struct daemon_rules **out, const char *path, bool is_optional,
                      struct tl_error *err);
/* The same of a text; `path` is for messages. */
int daemon_rules_parse(struct daemon_rules **out, struct tl_str text, const char *path,
                       struct tl_error *err);
void daemon_rules_free(struct daemon_rules *r);
/* Reads what stands behind a name there: LEVEL [LIMIT ...]; the text is changed.  NULL, or what is
 * wrong. */
struct daemon_rights;
const char *daemon_rights_parse(struct daemon_rights *rights, char *text);

struct daemon_who {
    pid_t pid;
    uid_t uid;
    gid_t gid;
    gid_t groups[64]; /* the others */
    uint32_t n_groups;
};
/* tallyd's own user and root. */
bool daemon_is_own(uid_t uid);

/* What somebody may ask for.  More than that would be at the cost of those above it. */
struct daemon_rights {
    int highest;                   /* level */
    uint32_t weight, min_permille; /* at most */
    uint64_t turnaround_ns;        /* at most */
    uint64_t memory_limit;         /* that it has in any case; 0: none */
    uint64_t memory_request;       /* at most */
    bool may_have_slo;
    bool may_choose_policy;
    bool is_master; /* may change the jobs of all users */
};
/* `r` may be NULL. */
struct daemon_rights daemon_rules_rights(const struct daemon_rules *r,
                                         const struct daemon_who *who);
/* Takes from `c` what goes beyond the rights, and says so; an empty text if nothing does. */
void daemon_rights_limit(const struct daemon_rights *rights, struct tl_sched_client *c, char *text,
                         size_t size);

/* --- the place (runtime/tallyd/place.c) ------------------------------------------------------- */

struct daemon_place {
    char path[TL_SOCKET_PATH_BYTES];
    int lock, listener;
    bool is_activated; /* the listener is the service manager's, and so is the path */
};
/* 0; -EEXIST if another tallyd listens there; or another negative errno value with a message.  One
 * that a job started is told to hurry: if it finds one that is about to die, the job starts
 * another. */
int daemon_place_take(struct daemon_place *p, const char *path, bool was_started,
                      struct tl_error *err);
void daemon_place_leave(struct daemon_place *p);

/* --- peers ------------------------------------------------------------------------------------ */

struct daemon;
struct daemon_peer;
struct daemon_tree;
struct daemon_account;

/* Something that epoll watches. */
struct daemon_source {
    void (*on_ready)(struct daemon *d, struct daemon_source *s, uint32_t events);
    struct daemon_peer *peer;
};

/* What was last seen in a client's page. */
struct daemon_seen {
    uint64_t device_ns, blocks, launches, waited_ns, iterations, gap_ns, memory_bytes,
        ephemeral_bytes, requests;
    struct tl_footprint next;
    bool has_backlog, is_off;
    uint64_t share_from_ns, share_device_ns; /* where the measurement of its share began */
    uint32_t share_permille;
};

/* Whoever receives for a peer (runtime/tallyd/porter.c). */
struct daemon_porter {
    struct tl_wire_packet packet; /* the porter's until it says that it has one, then the loop's */
    int code;
    struct tl_error err;
    _Atomic int has;
    _Atomic bool is_dismissed;
    sem_t heard;
    int bell;
};

struct daemon_peer {
    struct daemon_peer *next;
    struct daemon_source on_socket, on_death;
    struct daemon_porter porter;
    int socket, pidfd;
    struct daemon_who who;
    uint64_t heard_ns;
    uint64_t allowance_ns; /* of messages: each costs a bit, time brings it back */
    bool is_gone;          /* freed when the events at hand are done with, and its porter is */
    bool is_writable;      /* the loop waits for it to be */

    /* Clients only. */
    uint32_t id; /* 0: not a client */
    char job[128];
    struct daemon_rights rights;
    struct tl_sched_client c;
    uint64_t gpus; /* a bit for each that it uses; 0: none yet */
    uint64_t joined_ns;
    uint64_t before_ns;             /* of the device, with another tallyd */
    struct daemon_account *account; /* or NULL */
    struct tl_client_page *page;
    bool is_page_writable;
    int page_reader;      /* what lower levels get */
    uint64_t page_number; /* of its inode: a page is one client's */
    struct tl_grant_page *grant;
    uint64_t published;       /* tl_sched_version of the grant in the page */
    struct daemon_tree *tree; /* or NULL */
    bool has_kept;            /* its page tells what is kept for others */
    uint64_t room_bytes;      /* that its pages have on the device; 0: all */
    struct daemon_seen seen;
    uint64_t stopped_ns;                   /* since when it is seen to be stopped; 0: it is not */
    bool is_set_aside;                     /* it was stopped for long, and has lost its place */
    uint32_t sent[TL_SHARE_WORDS], n_sent; /* ids whose words it has; */
    bool has_sent, has_sent_merged, owes_words;
    struct tl_client_page *merged; /* tallyd's own page for it, or NULL */
    int merged_fd;
    /* Pages that it made for those whose words it has, by the same numbers. */
    struct daemon_copy {
        int fd; /* -1: none yet */
        uint64_t serial;
    } copies[TL_SHARE_WORDS];
    uint64_t kept[TL_SHARE_COPIES]; /* serials of the copies that it was told to keep */
    uint32_t n_kept;
    bool owes_copies;
};

/* Each GPU has a policy of its own, for those who use it and those who have not used any yet. */
struct daemon_gpu {
    struct tl_sched *sched; /* NULL: there is none here */
    uint8_t uuid[16];
    uint64_t memory_bytes; /* as the first client told that knew it */
    uint32_t sms;
    char name[TL_SHARE_NAME]; /* the same */
};

struct daemon {
    struct daemon_place place;
    struct daemon_rules *rules;
    const char *rules_path;
    bool are_rules_optional;
    uint64_t idle_ns; /* ends so long after the last client; UINT64_MAX: never */
    char policy[32], parameters[256];
    struct daemon_gpu gpus[DAEMON_MAX_GPUS]; /* the first is the place of those who are nowhere */

    int epoll, timer, signals, bell; /* porters ring it */
    struct daemon_source on_listener, on_timer, on_signal, on_bell, on_metrics;
    struct daemon_metrics *metrics; /* NULL: nobody asked for them */
    int refused[DAEMON_REFUSED];    /* sockets that are to be closed */
    uint32_t n_refused;
    int grave; /* to the process that closes them; -1: there is none */
    struct daemon_peer *peers;
    uint32_t n_peers;
    struct daemon_tree *trees;
    struct daemon_account *accounts;
    /* highest level first, then in the order of joining */
    struct daemon_peer *clients[DAEMON_MAX_PEERS];
    uint32_t n_clients, last_id;
    uint64_t last_copy;       /* serial */
    uint64_t since_client_ns; /* when the last client left */
    uint64_t worked_ns;       /* when a client was last seen with work */
    uint64_t stopped_look_ns; /* when was last looked for stopped ones */
    bool is_ending;
};

/* --- loop (runtime/tallyd/loop.c) ------------------------------------------------------------- */

/* 0, or a negative errno value with a message. */
int daemon_loop_init(struct daemon *d, struct tl_error *err);
void daemon_loop_run(struct daemon *d);
void daemon_loop_finish(struct daemon *d);
/* Ends a connection: a client has left. */
void daemon_drop(struct daemon *d, struct daemon_peer *p, const char *why);
/* Asks to be called when it can be written to. */
void daemon_watch_writable(struct daemon *d, struct daemon_peer *p, bool is_wanted);

/* --- porters (runtime/tallyd/porter.c) -------------------------------------------------------- */

/* Starts a thread that receives for `p`, and will close its socket.  0 or a negative errno
 * value. */
int daemon_porter_start(struct daemon *d, struct daemon_peer *p);
/* -EAGAIN if it has nothing.  1 with a message, whose descriptors are pages, or -1 if they were
 * none; else as tl_wire_receive: there will be nothing more.  After both it waits for the next
 * call. */
int daemon_porter_has(struct daemon_peer *p, struct tl_wire_packet **packet, struct tl_error *err);
void daemon_porter_go_on(struct daemon_peer *p);
/* It closes the socket, soon or when it can, and rings; nobody else uses the socket from now on. */
void daemon_porter_dismiss(struct daemon_peer *p);
bool daemon_porter_is_done(struct daemon_peer *p);

/* --- what was refused at the door (runtime/tallyd/bury.c) ------------------------------------- */

/* Starts the process that closes them, before there are threads or peers.  0 or -errno. */
int daemon_bury_start(struct daemon *d);
void daemon_bury_later(struct daemon *d, int socket);
/* Has them closed now, without waiting for anything. */
void daemon_bury(struct daemon *d);

/* --- clients (runtime/tallyd/join.c) ---------------------------------------------------------- */

void daemon_join(struct daemon *d, struct daemon_peer *p, struct tl_wire_packet *packet);
void daemon_leave(struct daemon *d, struct daemon_peer *p);
void daemon_refuse(struct daemon_peer *p, int code, const char *text);
/* PLACE: it uses these GPUs; tells everybody concerned, and then itself that it has heard. */
void daemon_moved(struct daemon *d, struct daemon_peer *p, const struct tl_wire_gpus *gpus);
/* Takes its new level into the order of clients and tells everybody concerned. */
void daemon_change(struct daemon *d, struct daemon_peer *p, const struct tl_sched_client *c);

/* --- GPUs (runtime/tallyd/gpus.c) ------------------------------------------------------------- */

/* Whether the policy of a GPU has to do with a client. */
bool daemon_is_on(const struct daemon *d, const struct daemon_peer *p, uint32_t gpu);
/* The next such GPU, from that one on; DAEMON_MAX_GPUS behind the last. */
uint32_t daemon_next_gpu(const struct daemon *d, const struct daemon_peer *p, uint32_t from);
#define DAEMON_FOR_GPUS(d, p, g)                                                                   \
    for (uint32_t g = daemon_next_gpu(d, p, 0); g < DAEMON_MAX_GPUS;                               \
         g = daemon_next_gpu(d, p, g + 1))
/* Whether two clients can be in each other's way. */
bool daemon_do_meet(const struct daemon_peer *a, const struct daemon_peer *b);
/* Tells the policies of a client that comes, changes, or goes.  0 or -ENOMEM. */
int daemon_gpus_enter(struct daemon *d, struct daemon_peer *p, uint32_t id, uint64_t now);
void daemon_gpus_change(struct daemon *d, struct daemon_peer *p, uint64_t now);
void daemon_gpus_leave(struct daemon *d, struct daemon_peer *p, uint64_t now);
/* It uses these GPUs: the policies are told.  It may be dropped. */
void daemon_use_gpus(struct daemon *d, struct daemon_peer *p, const struct tl_wire_gpus *gpus);
void daemon_gpus_of(const struct daemon *d, const struct daemon_peer *p, struct tl_wire_gpus *out);
/* What all the policies that have to do with it allow, and a number that grows with changes. */
struct tl_grant daemon_grant(const struct daemon *d, const struct daemon_peer *p,
                             uint64_t *version);
/* 0; or a negative errno value with a message, and the old policy stays. */
int daemon_set_policy(struct daemon *d, const char *policy, const char *parameters,
                      struct tl_error *err);
/* The first client that knows a GPU tells its policy of it. */
void daemon_gpus_learn(struct daemon *d);
void daemon_gpus_finish(struct daemon *d);

/* --- memory (runtime/tallyd/trees.c) ---------------------------------------------------------- */

#define DAEMON_ROOM_STEP (UINT64_C(16) << 20)

/* A client comes to its tree, or founds it with the ledger that it brought (-1: none).  The tree's
 * limits are its own from then on.  The ledger's descriptor, which stays the tree's, or -1: it is
 * in none. */
int daemon_tree_join(struct daemon *d, struct daemon_peer *p, const uint8_t id[16], int fd);
void daemon_tree_leave(struct daemon *d, struct daemon_peer *p);
/* From the tree's limits to a client's, and back; NULL is no tree. */
void daemon_tree_limits(const struct daemon_tree *t, struct tl_sched_client *c);
void daemon_tree_set(struct daemon_tree *t, const struct tl_sched_client *c);
/* What it holds of a GPU. */
uint64_t daemon_tree_held(const struct daemon_tree *t, const uint8_t uuid[16]);
/* Clears slots of processes that are nobody's. */
void daemon_trees_sweep(struct daemon *d, uint64_t now);
/* Tells a client what is kept free for others. */
void daemon_trees_publish(struct daemon *d, struct daemon_peer *p);
/* Adds to a grant how much of its memory stays on the device, if it has a soft limit.  Whether that
 * is another number than the last time. */
bool daemon_memory_grant(const struct daemon *d, struct daemon_peer *p, struct tl_grant *grant);

/* --- accounts (runtime/tallyd/accounts.c) ----------------------------------------------------- */

/* What somebody may ask for: by the admission of an engine, whose account is told as well, or by
 * the rules. `account` may be NULL, and is empty without an admission. */
struct daemon_rights daemon_rights_of(const struct daemon *d, const struct daemon_who *who,
                                      char account[TL_ADMIT_NAME]);
/* A client comes to an account (an empty name: none), and goes. */
void daemon_account_join(struct daemon *d, struct daemon_peer *p, const char *name);
void daemon_account_leave(struct daemon_peer *p, uint64_t now);
/* What is known of an account; of the user's own, or of anybody's.  0 or -ENOENT. */
int daemon_account_tell(const struct daemon *d, const char *name, uid_t uid, bool is_anybodys,
                        struct tl_wire_accounted *told);
void daemon_accounts_finish(struct daemon *d);

/* --- words (runtime/tallyd/words.c) ----------------------------------------------------------- */

/* Sends each client the words above it, if they are others than it has. */
void daemon_words_update(struct daemon *d);
void daemon_words_send(struct daemon *d, struct daemon_peer *p);
/* Brings merged words up to date.  True if there are any. */
bool daemon_words_merge(struct daemon *d);
void daemon_words_finish(struct daemon_peer *p);

/* --- copies (runtime/tallyd/copies.c) --------------------------------------------------------- */

/* COPY: a page that a client made for one above it. */
void daemon_copy_offered(struct daemon *d, struct daemon_peer *p, struct tl_wire_packet *packet);
/* The words of `p` are these now: copies for others are forgotten. */
void daemon_copies_follow(struct daemon_peer *p, const uint32_t *above, uint32_t n);
void daemon_copies_finish(struct daemon_peer *p);
/* Tells each client the copies that it is to keep, if they are others than it knows. */
void daemon_copies_update(struct daemon *d);
void daemon_copies_send(struct daemon *d, struct daemon_peer *p);

/* --- looking (runtime/tallyd/look.c) ---------------------------------------------------------- */

/* Reads all pages, runs the policy, publishes what changed; returns when to look again (UINT64_MAX:
 * when told to). */
uint64_t daemon_look(struct daemon *d, uint64_t now);
/* runtime/tallyd/stopped.c: a part of it.  Takes the place of those who are stopped while they have
 * work, and gives it back to who goes on. */
void daemon_look_for_stopped(struct daemon *d, uint64_t now);
/* What can be said of a client without a look, as of this moment: whether it is stopped while it
 * has work, whether it has some, and its share of the device, which is the last one measured until
 * there is enough time for another. */
bool daemon_is_stopped(const struct daemon_peer *p);
bool daemon_has_work(const struct daemon_peer *p);
uint32_t daemon_share_of(const struct daemon_peer *p, uint64_t device_ns, uint64_t now);

/* --- control (runtime/tallyd/control.c) ------------------------------------------------------- */

void daemon_control(struct daemon *d, struct daemon_peer *p, const struct tl_wire_packet *packet);

#endif
