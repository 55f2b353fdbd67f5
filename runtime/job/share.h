/* The pages through which permission crosses process borders.  Each is a memfd, sealed, and its
 * descriptors are capabilities: a client may write its own page and its copies in the clients
 * below, and read its grant and the words above it, nothing else.
 *
 *     client page   made and written by one client, read by tallyd and every lower level's executor; the client hands
 *                   it to each tallyd that it joins, so what others have mapped outlives every tallyd
 *     copy page     made by a lower client for one client above it, which writes there; polled by the lower one's kernels
 *     grant page    made and written by tallyd, read by one client
 *
 * Why there are copies: kernels can only poll memory that the driver has registered, and on x86
 * hosts drivers register no page that the CPU may only read.  So a lower client has a page of its
 * own for each client above it, which both may write and nobody else: what it scribbles there fools
 * itself, and a client in the middle has no access to what a higher one says to a lower one.
 *
 * All fields are naturally aligned and written with single stores.  A reader trusts nothing: it
 * reads a value once, checks it, and uses the copy. */
#ifndef TALLY_RUNTIME_JOB_SHARE_H
#define TALLY_RUNTIME_JOB_SHARE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "tally/sched.h"

enum {
    TL_SHARE_VERSION = 7,
    TL_SHARE_PAGE = 4096, /* bytes of each */
    TL_SHARE_WORDS = 4,   /* stop words that a kernel polls: TL_PTX_STOP_WORDS of the rewriter */
    TL_SHARE_COPIES = 16, /* copies that a client keeps in those below it */
    TL_SHARE_NAME = 64,   /* bytes of a device's name, with the end */
    TL_SHARE_KEPT = 16,   /* GPUs of which a client is told what is kept free for others */
    TL_SHARE_GPUS = 16,   /* GPUs for which a client of several counts one by one */
};
#define TL_CLIENT_MAGIC 0x31746e65696c6374ull /* "tclient1" */
#define TL_GRANT_MAGIC 0x31746e6172677474ull  /* "ttgrant1" */

/* How often something took how long: bucket `i` counts what took at most 2^i microseconds and more
 * than half of that, the last one all that took longer.  Counters only grow. */
enum { TL_SHARE_BUCKETS = 24 };
struct tl_share_histogram {
    _Atomic uint64_t n[TL_SHARE_BUCKETS];
    _Atomic uint64_t sum_ns;
};

static inline uint32_t tl_share_bucket(uint64_t ns)
{
    uint64_t us = ns / 1000 + (ns % 1000 != 0);
    uint32_t bits = us <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(us - 1);
    return bits < TL_SHARE_BUCKETS - 1 ? bits : TL_SHARE_BUCKETS - 1;
}

static inline void tl_share_took(struct tl_share_histogram *h, uint64_t ns)
{
    atomic_fetch_add_explicit(&h->n[tl_share_bucket(ns)], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
}

/* A text that is written once and read by others: `text` has TL_SHARE_NAME bytes. */
void tl_share_put_name(_Atomic uint64_t *name, const char *text);
void tl_share_get_name(const _Atomic uint64_t *name, char *text);

/* Of what a client counts, what it did on one GPU. */
struct tl_share_gpu {
    _Atomic uint64_t uuid[2]; /* zeroes: none yet */
    _Atomic uint64_t device_ns, blocks, launches, preemptions;
};

struct tl_client_page;
/* Where the page counts for a GPU, or NULL if it counts for too many already.  For the page's own
 * process, one thread at a time. */
struct tl_share_gpu *tl_share_gpu(struct tl_client_page *page, const uint8_t uuid[16]);

/* Whether a word says that there is work in flight. */
static inline int tl_word_is_busy(uint64_t word)
{
    return (uint32_t)word != (uint32_t)(word >> 32);
}

struct tl_client_page {
    /* Low half: issued, high half: completed.  They differ while work is in flight, and every lower
     * level retreats. */
    union {
        _Atomic uint64_t word;
        struct {
            _Atomic uint32_t issued, completed;
        };
    };
    uint64_t magic;
    uint32_t version, pid;
    /* The id of a thread that lives as long as the job; the kernel sets FUTEX_OWNER_DIED in it.  0
     * if there is none. */
    _Atomic uint32_t alive;
    /* CLOCK_MONOTONIC when the word last became busy; 0 if its writer does not tell */
    _Atomic uint64_t burst_ns;
    _Atomic uint32_t is_kept; /* 1 in a merged page, which is polled as a copy is */
    _Atomic uint32_t is_told; /* those below have been told of the burst; its writer's own */
    /* CLOCK_MONOTONIC when it last became idle, written behind that: earlier than burst_ns until
     * then, 0 if its writer does not tell */
    _Atomic uint64_t idle_ns;
    /* What tallyd samples: they only grow.  tl_usage's fields in their sense. */
    _Alignas(64) _Atomic uint64_t device_ns;
    _Atomic uint64_t blocks, launches, waited_ns, preemptions, iterations;
    _Atomic uint64_t uncontrolled_ns; /* device time that ran outside control */
    _Atomic uint32_t has_backlog;     /* 1 while work is queued or in flight */
    _Atomic uint32_t rung;            /* enum tl_rung of the last kernel */
    _Atomic uint32_t in_flight;       /* pieces on the device */
    /* between two bursts, worth waiting out by lower levels; 0: not known */
    _Atomic uint64_t gap_ns;
    _Atomic uint64_t memory_bytes; /* device memory held */
    /* Latencies of requests: a ring that tallyd reads behind the writer. */
    _Alignas(64) _Atomic uint64_t n_requests;
    _Atomic uint64_t requests_ns[64];
    /* For policies that look ahead, in tl_footprint's sense; zero where it is not known. */
    _Alignas(64) _Atomic uint64_t next_ns;
    _Atomic uint64_t next_memory_bytes;
    _Atomic uint32_t next_sm_permille, next_bandwidth_permille;
    /* The device, once it is known. */
    _Atomic uint64_t device_memory_bytes;
    _Atomic uint32_t device_sms;
    /* 1 once it has kernels that wait for kernels of other processes: those of one job run
     * together */
    _Atomic uint32_t is_in_gang;
    /* Of memory_bytes: what outlives an iteration, and what an iteration has beyond that; zero
     * until one has ended. */
    _Atomic uint64_t persistent_bytes, ephemeral_bytes;
    /* For metrics: from the moment that somebody above had work until a kernel had left, requests
     * from begin to end, and launches that were ready until they were let go.  Never per launch at
     * the highest level. */
    _Alignas(64) struct tl_share_histogram preempted, requested, waited;
    /* The device's name, eight bytes at a time, and zeroes behind it; empty until it is known. */
    _Atomic uint64_t device_name[TL_SHARE_NAME / 8];
    /* Parts of the sums above, of a best-effort job, which has one page for all its GPUs. */
    _Alignas(64) struct tl_share_gpu gpus[TL_SHARE_GPUS];
};

/* What the kernels of one client poll for one client above it. */
struct tl_copy_page {
    /* The number of the burst that began last and of the one that ended last, as the higher client
     * counts them.  They differ while its word is busy. */
    union {
        _Atomic uint64_t word;
        struct {
            _Atomic uint32_t began, ended;
        };
    };
    uint64_t unused[4];
    _Atomic uint32_t is_kept; /* 1 while the higher client keeps it true */
};

struct tl_grant_page {
    uint64_t magic;
    uint32_t version;
    /* Odd while tallyd writes; a reader that sees it odd or changed reads again. */
    _Alignas(64) _Atomic uint32_t sequence;
    _Atomic uint32_t changed; /* a futex: grows with every change, waiters wait for another value */
    struct tl_grant grant;
    _Atomic int level; /* the client's, once more: it is also read by itself */
    char policy[32];
    /* what the policy goes by: the client asks for the same when it joins again */
    struct tl_sched_client client;
    /* CLOCK_MONOTONIC of tallyd's last look; if `may_run` is false and it has not moved for long,
     * tallyd hangs. */
    _Alignas(64) _Atomic uint64_t alive_ns;
    /* 1 while tallyd sleeps because nobody has work: who has some now sends a message
     * (tl_client_backlog does). */
    _Atomic uint32_t wants_kick;
    /* Clients of lower levels, which may sleep until this one's word is idle. */
    _Atomic uint32_t n_below;
    /* Device memory that is kept free for others, by GPU (tl_ledger_gpu); 0: none.  Both of a row
     * change one after the other, which is harmless. */
    struct {
        _Atomic uint64_t gpu, bytes;
    } kept[TL_SHARE_KEPT];
};

_Static_assert(sizeof(struct tl_client_page) <= TL_SHARE_PAGE, "one page");
_Static_assert(sizeof(struct tl_grant) == 56 && sizeof(struct tl_sched_client) == 80,
               "what the pages hold has changed: raise TL_SHARE_VERSION");
_Static_assert(sizeof(struct tl_grant_page) <= TL_SHARE_PAGE, "one page");
_Static_assert(offsetof(struct tl_copy_page, is_kept) == offsetof(struct tl_client_page, is_kept),
               "a merged page is both");

/* --- making and mapping pages ----------------------------------------------------------------- */

/* A new memfd of one page, there in memory already, that can neither shrink nor grow, and its
 * writable mapping.  Returns the descriptor, or -errno (no memory, no memfd, no descriptor
 * left). */
int tl_share_create(const char *name, void **page);
/* The same without a mapping. */
int tl_share_make(const char *name);
/* Whether the descriptor is a page that cannot be taken away from under those who map it.  0,
 * -EINVAL or -errno. */
int tl_share_check(int fd);
/* Nobody can make it writable any more; mappings that are stay so.  A kernel older than 5.1 cannot
 * do that: then only the mode of descriptors protects it. */
void tl_share_seal(int fd);
/* A descriptor of the same page that can only be read, or -errno. */
int tl_share_reader(int fd);
/* NULL if it cannot be mapped; the second puts it in the place of what is mapped at `at`. */
void *tl_share_map(int fd, bool is_writable);
int tl_share_map_at(void *at, int fd, bool is_writable);

/* Whether those below have been told of the burst that is on, as its writer asks. */
static inline bool tl_share_is_told(struct tl_client_page *page)
{
    return atomic_load_explicit(&page->is_told, memory_order_relaxed) != 0;
}

/* Wakes those of lower levels who sleep until this page's word is idle.  A system call; they look
 * now and then by themselves. */
void tl_share_tell_idle(struct tl_client_page *page);

/* --- the grant page --------------------------------------------------------------------------- */

/* What tallyd publishes, and what a client reads, in one piece. */
struct tl_share_grant {
    struct tl_grant grant;
    struct tl_sched_client client;
    char policy[32];
};
/* Writes and wakes who waits.  One writer. */
void tl_share_publish(struct tl_grant_page *page, const struct tl_share_grant *g);
/* The level alone, which a job asks for at each burst. */
static inline int tl_share_level(const struct tl_grant_page *page)
{
    return atomic_load_explicit(&page->level, memory_order_relaxed);
}
/* A consistent copy; false if the writer died in the middle of writing. */
bool tl_share_read(const struct tl_grant_page *page, struct tl_share_grant *g);

#endif
