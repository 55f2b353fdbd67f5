/* NVIDIA's multi-process service (MPS): whether it runs here, and for whom.  Kernels of two
 * processes are on a GPU at the same time only if both are its clients. */
#ifndef TALLY_JOB_MPS_H
#define TALLY_JOB_MPS_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

enum tl_mps_state {
    TL_MPS_NONE,   /* there is no control socket where clients would look for it */
    TL_MPS_RUNS,   /* somebody listens there */
    TL_MPS_UNSEEN, /* there is one, and nobody in this network namespace listens: left over, or of a
                    * daemon outside of this container */
};

struct tl_mps {
    enum tl_mps_state state;
    char control[PATH_MAX]; /* the socket */
    uid_t owner;            /* of the socket, unless state is TL_MPS_NONE */
    /* limits that the environment gives clients, or NULL: percent of the threads, and memory */
    const char *thread_percentage, *memory_limit;
};

/* Looks, and touches nothing: a connection would show up in the daemon's log. */
void tl_mps_look(struct tl_mps *out);
/* Whether a job of that user can be a client at all.  A daemon that root started serves every user,
 * one at a time; one that somebody else started serves him only. */
bool tl_mps_serves(const struct tl_mps *m, uid_t uid);

#endif
