/* What `tally ps`, `tally set` and `tally policy` share: asking tallyd. */
#ifndef TALLY_RUNTIME_TALLY_DAEMON_H
#define TALLY_RUNTIME_TALLY_DAEMON_H

#include "runtime/job/wire.h"
#include "runtime/tally/cli.h"

/* A socket to tallyd, or -errno after a complaint; `socket` is where it should be, or NULL for the
 * usual place. */
int cli_daemon_open(const char *socket);
/* Sends a question and waits for the answer.  0, or -errno after a complaint. */
int cli_daemon_ask(int fd, enum tl_wire_kind kind, void *question, size_t bytes,
                   struct tl_wire_packet *answer);
/* Writes a finished text to standard output; an exit status. */
int cli_daemon_print(struct tl_buf *out);

#endif
