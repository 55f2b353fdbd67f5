/* What the user asked for, from TALLY_* variables (tally-run turns its options into them). */
#ifndef TALLY_RUNTIME_JOB_SETTINGS_H
#define TALLY_RUNTIME_JOB_SETTINGS_H

#include "tally/base.h"
#include "tally/sched.h"

/* What the kernel takes as the path of a socket, less ".new", the name under which tallyd begins to
 * listen. */
enum { TL_SOCKET_PATH_BYTES = 108 - 4 };
#define TL_SOCKET_PATH_IS "a path from / of at most 103 bytes; set TALLY_SOCKET to a shorter one"

/* Whose machine code may get a gate (docs/legal.md). */
enum tl_gate_mode {
    TL_GATE_AUTO, /* what is no part of NVIDIA's SDK, where `tally doctor` found that it works */
    TL_GATE_OFF,
    TL_GATE_ALL, /* NVIDIA's own libraries as well */
};

struct tl_settings {
    int level;               /* TALLY_PRIORITY: high, low or a number; 0 if not said */
    uint32_t slo_percentile; /* TALLY_SLO=p99:8ms; in per ten thousand, 0 if not said */
    uint64_t slo_ns;
    uint64_t turnaround_ns; /* TALLY_TURNAROUND=31.6us; 0 if not said */
    uint32_t weight;        /* TALLY_WEIGHT; 0 if not said */
    uint32_t min_permille;  /* TALLY_MIN_SHARE=5%, or TALLY_SHARE; 0 if not said */
    uint32_t max_permille;  /* TALLY_MAX_SHARE=50%, or TALLY_SHARE; 0 if not said */
    /* TALLY_TOTAL=90s: device time that the job will need altogether; 0 if not said */
    uint64_t total_ns;
    /* TALLY_MEMORY, TALLY_MEMORY_REQUEST, TALLY_MEMORY_SOFT: bytes of device memory; 0 if not
     * said */
    uint64_t memory_limit, memory_request, memory_soft;
    /* TALLY_TREE, as tally-run sets it: processes with the same share these; zeroes if not said */
    uint8_t tree[16];
    char policy[32];   /* TALLY_POLICY; empty if not said */
    char report[4096]; /* TALLY_REPORT, a folder; empty: none is written */
    /* TALLY_SOCKET, or the user's own in XDG_RUNTIME_DIR, or /tmp/tally-UID */
    char socket[TL_SOCKET_PATH_BYTES];
    /* TALLY_JOB: name in reports; the program's name if not said */
    char job[128];
    bool is_closed; /* TALLY_FAIL=closed: refuse to run unmanaged */
    bool is_off;    /* TALLY_OFF=1: forward everything, do nothing else */
    /* TALLY_FORCE: an enum tl_rung that every kernel that can must use; -1: none */
    int force;
    enum tl_gate_mode gate; /* TALLY_GATE=auto|off|all; auto if not said */
    int log;                /* TALLY_LOG=error|warn|info|debug: 0..3; warn if not said */
};

/* 0, or -EINVAL naming the variable, its value and what it may be; `s` then has the default in its
 * place. */
int tl_settings_read(struct tl_settings *s, struct tl_error *err);

/* "31.6us", "8ms", "1s", "500" (ns).  0 or -EINVAL. */
int tl_settings_time(const char *text, uint64_t *ns);
/* "5%" or "2.5%" is 50 or 25.  0 or -EINVAL. */
int tl_settings_share(const char *text, uint32_t *permille);
/* "1".."10000".  0 or -EINVAL. */
int tl_settings_weight(const char *text, uint32_t *weight);
/* "8G", "512M", "1.5GiB", "4096" (bytes): units are powers of 1024.  0 or -EINVAL. */
int tl_settings_bytes(const char *text, uint64_t *bytes);
/* "p99:8ms", "p99.9:20ms".  0 or -EINVAL. */
int tl_settings_slo(const char *text, uint32_t *percentile, uint64_t *ns);

#endif
