/* The pages through which permission crosses process borders.  tallyd makes each as a memfd and hands out descriptors as
 * capabilities: a client may write its own page and read its grant and the words above it, nothing else.
 *
 *     client page   written by one client, read by tallyd and (its first word) by every lower level's kernels
 *     grant page    written by tallyd, read by one client
 *
 * All fields are naturally aligned and written with single stores.  A reader trusts nothing: it reads a value once, checks
 * it, and uses the copy. */
#ifndef TALLY_SHARE_H
#define TALLY_SHARE_H

#include <stdatomic.h>
#include <stdint.h>

#include "tally/sched.h"

enum {
    TL_SHARE_VERSION = 1,
    TL_SHARE_PAGE = 4096, /* bytes of each */
    TL_SHARE_WORDS = 4,   /* stop words that a kernel polls, as in the rewriter's variants */
};
#define TL_CLIENT_MAGIC 0x31746e65696c6374ull /* "tclient1" */
#define TL_GRANT_MAGIC 0x31746e6172677474ull  /* "ttgrant1" */

/* Whether a word says that there is work in flight. */
static inline int tl_word_is_busy(uint64_t word)
{
    return (uint32_t)word != (uint32_t)(word >> 32);
}

struct tl_client_page {
    /* Low half: issued, high half: completed.  They differ while work is in flight, and every lower level retreats. */
    union {
        _Atomic uint64_t word;
        struct {
            _Atomic uint32_t issued, completed;
        };
    };
    uint64_t magic;
    uint32_t version, pid;
    /* What tallyd samples: they only grow.  tl_usage's fields in their sense. */
    _Alignas(64) _Atomic uint64_t device_ns;
    _Atomic uint64_t blocks, launches, waited_ns, preemptions, iterations;
    _Atomic uint64_t uncontrolled_ns; /* device time that ran outside control */
    _Atomic uint32_t has_backlog;     /* 1 while work is queued or in flight */
    _Atomic uint32_t rung;            /* enum tl_rung of the last kernel */
    _Atomic uint32_t in_flight;       /* pieces on the device */
    _Atomic uint64_t gap_ns;          /* longest recent gap between two bursts inside one request */
    _Atomic uint64_t memory_bytes;    /* device memory held */
    /* Latencies of requests: a ring that tallyd reads behind the writer. */
    _Alignas(64) _Atomic uint64_t n_requests;
    _Atomic uint64_t requests_ns[64];
};

struct tl_grant_page {
    uint64_t magic;
    uint32_t version;
    /* Odd while tallyd writes; a reader that sees it odd or changed reads again. */
    _Alignas(64) _Atomic uint32_t sequence;
    _Atomic uint32_t changed; /* a futex: grows with every change, waiters wait for another value */
    struct tl_grant grant;
    int level;
    char policy[32];
    /* CLOCK_MONOTONIC of tallyd's last look; not moving for long means that it is gone. */
    _Alignas(64) _Atomic uint64_t alive_ns;
};

_Static_assert(sizeof(struct tl_client_page) <= TL_SHARE_PAGE, "one page");
_Static_assert(sizeof(struct tl_grant_page) <= TL_SHARE_PAGE, "one page");

#endif
