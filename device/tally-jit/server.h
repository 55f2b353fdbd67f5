/* The compiler service itself: takes requests, hands them to workers, keeps what they make. */
#ifndef TALLY_DEVICE_TALLY_JIT_SERVER_H
#define TALLY_DEVICE_TALLY_JIT_SERVER_H

#include "tally/base.h"

enum { TL_JIT_WORKERS = 64 }; /* at once, at most */

struct tl_jit_server_options {
    const char *program;   /* its own path, for the identification */
    const char *cache;     /* the only folder in which it keeps what it made; empty: none */
    uint32_t workers;      /* at most so many at once */
    uint32_t idle_seconds; /* ends after so long without a request */
    /* one byte is written here when requests are taken, or another service does; -1: nobody asks */
    int ready;
    bool is_foreground; /* tells on standard error what happens */
};

/* Runs until it is idle or told to stop.  0 (also if another service is there), or a negative errno
 * value. */
int tl_jit_server_run(const struct tl_jit_server_options *options, struct tl_error *err);

#endif
