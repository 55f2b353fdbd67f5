/* Starting tallyd, from a job (runtime/job/client_listen.c) or from tally-run.  Like an agent: it
 * belongs to nobody who started it. */
#ifndef TALLY_RUNTIME_JOB_START_H
#define TALLY_RUNTIME_JOB_START_H

#include <stddef.h>

#include "tally/base.h"

/* Where tallyd is: TALLY_DAEMON, or beside this program or library.  Empty if there is none, or if
 * TALLY_DAEMON=no. */
void tl_start_find(char *path, size_t size);

/* A copy of the variables that tallyd knows: no preloads, library paths or other settings of the
 * job.  To be taken where nobody changes the environment meanwhile; one piece of memory, the
 * caller's to free.  NULL if there is none. */
char **tl_start_environment(void);

/* Starts it, with a session of its own, no descriptors of ours, no signals to us when it ends.
 * Returns a pipe from which one reads '+' when a tallyd listens, or else why not; or -errno with a
 * message.  It may take a while on a busy machine. */
int tl_start_daemon(const char *program, char *const *environment, struct tl_error *err);
/* The same by a thread of its own, at once; that it could not be started is also read from the
 * pipe. */
int tl_start_in_background(const char *program, char *const *environment, struct tl_error *err);

#endif
