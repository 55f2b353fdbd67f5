/* What tallyd and its clients say to each other, over a UNIX socket of whole messages
 * (SOCK_SEQPACKET), and where they meet.
 *
 *     job                                        tallyd
 *      HELLO {wishes} + own page, own ledger ──►
 *                                       ◄──────  WELCOME {level, remark} + grant page, ledger of its tree, or REFUSED {why}
 *                                       ◄──────  WORDS + (page, pidfd) of those above; again whenever they change
 *      COPY {above} + page, for each    ──────►
 *                                       ◄──────  BELOW + pages to keep as copies; again whenever they change
 *      PLACE {GPUs that it uses}        ──────►
 *                                       ◄──────  PLACED, behind the words of those GPUs
 *      KICK, when there is work and tallyd sleeps ►
 *                                       ◄──────  GOODBYE: tallyd was told to end, nobody is to start it again
 *
 *     tally ps, set, policy                      tallyd
 *      LIST {after}                     ──────►
 *                                       ◄──────  CLIENT, the next one after that; or ANSWER, if there is none
 *      ACCOUNT {name}                   ──────►
 *                                       ◄──────  ACCOUNTED {what its processes used}, or ANSWER
 *      SET {pid, what}, POLICY {name}   ──────►
 *                                       ◄──────  ANSWER {code, text}
 *
 * A message begins with a head that no version will change.  Everything that comes in is checked
 * before it is used: kind, length, number of descriptors, and that texts end. */
#ifndef TALLY_RUNTIME_JOB_WIRE_H
#define TALLY_RUNTIME_JOB_WIRE_H

#include <sys/types.h>

#include "runtime/job/admit.h"
#include "tally/base.h"
#include "tally/sched.h"

enum {
    TL_WIRE_MAGIC = 0x594c4154, /* "TALY" */
    TL_WIRE_VERSION = 5,
    TL_WIRE_BYTES = 1024, /* at most, of a message */
    TL_WIRE_FDS = 16,     /* at most, with a message */
};

enum tl_wire_kind {
    TL_WIRE_HELLO = 1,
    TL_WIRE_KICK,
    TL_WIRE_PLACE,
    TL_WIRE_COPY,
    TL_WIRE_LIST,
    TL_WIRE_SET,
    TL_WIRE_POLICY,
    TL_WIRE_WELCOME,
    TL_WIRE_REFUSED,
    TL_WIRE_WORDS,
    TL_WIRE_BELOW,
    TL_WIRE_PLACED,
    TL_WIRE_GOODBYE,
    TL_WIRE_CLIENT,
    TL_WIRE_ANSWER,
    TL_WIRE_ACCOUNT,
    TL_WIRE_ACCOUNTED,
    TL_WIRE_KINDS,
};

struct tl_wire_head {
    uint32_t magic, version, kind;
    uint32_t bytes; /* of the whole message */
};

#define TL_WIRE_MEMORY (UINT64_C(1) << 50) /* bytes of device memory, at most */

/* tl_sched_client with fixed widths. */
struct tl_wire_client {
    int32_t level;
    uint32_t weight, min_permille, slo_percentile;
    uint64_t turnaround_ns, slo_ns;
    uint32_t is_paused;
    uint32_t total_ms; /* total_ns, rounded up; at most seven weeks */
    uint64_t memory_limit, memory_request, memory_soft;
    uint32_t max_permille, reserved;
};

/* The GPUs (or MIG instances) that a process uses.  None: it has not used one yet, and counts for
 * all. */
enum { TL_WIRE_GPUS = 16 }; /* of one process, at most; with more it counts for all */
struct tl_wire_gpus {
    uint32_t n, reserved;
    uint8_t uuids[TL_WIRE_GPUS][16];
};

struct tl_wire_hello {
    struct tl_wire_head head;
    uint32_t share_version, is_return; /* 1: it was a member of a tallyd that is gone */
    struct tl_wire_client client;
    char job[128];
    char policy[32];  /* that it would like, or empty */
    uint8_t tree[16]; /* that it belongs to: those share a ledger of memory; zeroes: none */
    struct tl_wire_gpus gpus;
};

struct tl_wire_place {
    struct tl_wire_head head;
    struct tl_wire_gpus gpus;
};

/* KICK, PLACED, GOODBYE. */
struct tl_wire_bare {
    struct tl_wire_head head;
};

struct tl_wire_list {
    struct tl_wire_head head;
    uint32_t after, reserved; /* an id, or 0 to begin */
};

/* WELCOME, REFUSED, ANSWER. */
struct tl_wire_answer {
    struct tl_wire_head head;
    int32_t code; /* 0 or a negative errno value */
    int32_t level;
    char policy[32]; /* in force */
    char text[512];  /* for people; may be empty in a welcome */
};

/* WORDS: `n` pages, each followed by the pidfd of whoever writes it, except a merged one, which is
 * tallyd's own. */
struct tl_wire_words {
    struct tl_wire_head head;
    uint32_t n, is_merged; /* 1: the last of them is */
    uint32_t above[4];     /* who writes each: what COPY names */
};

/* COPY: a page for the kernels of who sends it, which the client `above` is to keep. */
struct tl_wire_copy {
    struct tl_wire_head head;
    uint32_t above, reserved;
};

/* BELOW: all `n` copies that a client is to keep. */
struct tl_wire_below {
    struct tl_wire_head head;
    uint32_t n, reserved;
};

enum {
    TL_SET_LEVEL = 1,
    TL_SET_SLO = 2,
    TL_SET_PAUSED = 4,
    TL_SET_WEIGHT = 8,
    TL_SET_MIN_SHARE = 16,
    TL_SET_MEMORY = 32,
    TL_SET_MEMORY_REQUEST = 64,
    TL_SET_MEMORY_SOFT = 128,
    TL_SET_MAX_SHARE = 256,
    TL_SET_ALL = 511
};

struct tl_wire_set {
    struct tl_wire_head head;
    int32_t pid;
    uint32_t what; /* TL_SET_*: which fields count */
    struct tl_wire_client client;
};

struct tl_wire_policy {
    struct tl_wire_head head;
    char policy[32];      /* empty: only asks */
    char parameters[256]; /* "name=value,..." or empty */
};

/* CLIENT. */
struct tl_wire_status {
    struct tl_wire_head head;
    uint32_t id; /* grows with every join */
    int32_t pid;
    uint32_t uid;
    int32_t highest_level; /* that the rules allow */
    struct tl_wire_client client;
    uint32_t may_run, yields, is_busy, has_backlog, rung, in_flight, share_permille, is_stopped;
    uint64_t joined_ns, device_ns, blocks, launches, waited_ns, preemptions, uncontrolled_ns,
        memory_bytes, requests, tree_bytes; /* what its tree holds, of all its GPUs */
    uint64_t p99_ns;                        /* of its last requests; 0: it has had none */
    uint64_t device_memory_bytes;           /* of the GPU that it uses, as it says */
    char job[128];
    char device[64]; /* the name of that GPU; empty if it uses several, or does not tell */
    struct tl_wire_gpus gpus;
};

struct tl_wire_account {
    struct tl_wire_head head;
    char name[TL_ADMIT_NAME];
};

/* Sums over the processes of an account, those that have ended, too. */
struct tl_wire_accounted {
    struct tl_wire_head head;
    uint32_t uid, processes, running, reserved;
    uint64_t device_ns, waited_ns, preemptions;
    uint64_t most_bytes; /* of device memory, that one of them was seen to hold */
};

_Static_assert(sizeof(struct tl_wire_status) <= TL_WIRE_BYTES &&
                   sizeof(struct tl_wire_answer) <= TL_WIRE_BYTES &&
                   sizeof(struct tl_wire_hello) <= TL_WIRE_BYTES,
               "a message fits");

union tl_wire_message {
    struct tl_wire_head head;
    struct tl_wire_hello hello;
    struct tl_wire_answer answer;
    struct tl_wire_words words;
    struct tl_wire_copy copy;
    struct tl_wire_below below;
    struct tl_wire_place place;
    struct tl_wire_list list;
    struct tl_wire_set set;
    struct tl_wire_policy policy;
    struct tl_wire_status status;
    struct tl_wire_account account;
    struct tl_wire_accounted accounted;
    char bytes[TL_WIRE_BYTES];
};

/* A message that was received, with what came along; the descriptors are the receiver's to
 * close. */
struct tl_wire_packet {
    union tl_wire_message m;
    int fds[TL_WIRE_FDS];
    uint32_t n_fds;
};

/* Fills the head of a message of that size and sends it.  Never blocks.  0, -EAGAIN (the other end
 * does not read), -EPIPE or another -errno. */
int tl_wire_send(int socket, enum tl_wire_kind kind, void *message, size_t bytes, const int *fds,
                 uint32_t n_fds);
/* 1 with a well-formed message, 0 if the other end is gone, -EAGAIN if there is none yet, -EPROTO
 * if it makes no sense (`err` tells why; -EPROTONOSUPPORT if it is another version's), or another
 * -errno.  Descriptors are left only with 1. */
int tl_wire_receive(int socket, struct tl_wire_packet *packet, struct tl_error *err);
/* Closes what came along and was not taken (set to -1). */
void tl_wire_close(struct tl_wire_packet *packet);

struct tl_wire_client tl_wire_pack(const struct tl_sched_client *c);
/* False if a field is out of its range. */
bool tl_wire_unpack(const struct tl_wire_client *w, struct tl_sched_client *c);

/* "GPU-" and the number as nvidia-smi writes it; `text` has room for 41 characters. */
void tl_wire_gpu_name(const uint8_t uuid[16], char *text);

/* Copies a text, cuts it to fit, and replaces what a terminal could take for a command. */
void tl_wire_text(char *to, size_t size, const char *text);

/* A socket that is connected to tallyd at `path`, non-blocking.  The descriptor, or -errno with a
 * message: -ENOENT and -ECONNREFUSED if none runs, -EPERM if it belongs to another user than root
 * or ourselves, -ENAMETOOLONG, -EAGAIN if so many come at once that its queue is full. */
int tl_wire_connect(const char *path, struct tl_error *err);
/* The same, waiting a moment for a full queue: for programs that have nothing else to do. */
int tl_wire_connect_patiently(const char *path, struct tl_error *err);

#endif
