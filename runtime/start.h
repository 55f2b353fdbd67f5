/* Starting tallyd, from a job (client_listen.c) or from tally-run.  Like an agent: it belongs to nobody who started it. */
#ifndef TALLY_START_H
#define TALLY_START_H

#include <stddef.h>

#include "tally/base.h"

/* Where tallyd is: TALLY_DAEMON, or beside this program or library.  Empty if there is none, or if TALLY_DAEMON=no. */
void tl_start_find(char *path, size_t size);

/* Starts it, with a session of its own, no descriptors of ours, no signals to us when it ends, and only those variables that
 * it knows.  Returns a pipe from which one reads '+' when a tallyd listens, or else why not; or -errno with a message. */
int tl_start_daemon(const char *program, struct tl_error *err);

#endif
