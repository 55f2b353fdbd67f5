/* What `tally ps`, `tally set` and `tally policy` share: asking tallyd. */
#ifndef TALLY_RUNTIME_TALLY_DAEMON_H
#define TALLY_RUNTIME_TALLY_DAEMON_H

#include "runtime/job/wire.h"
#include "runtime/tally/cli.h"

#include <argp.h>

/* What all of them can be told. */
struct cli_daemon_options {
    bool as_json;
    const char *socket; /* where tallyd should be, or NULL for the usual place */
};
/* The rows for that in a table of options. */
#define CLI_DAEMON_OPTIONS                                                                         \
    {"json", 'j', NULL, 0, "Print JSON", 0},                                                       \
    {                                                                                              \
        "socket", 's', "PATH", 0, "Ask the tallyd that listens there", 0                           \
    }
/* Takes one of them; ARGP_ERR_UNKNOWN if it is none. */
error_t cli_daemon_option(struct cli_daemon_options *o, int key, char *arg);

/* A socket to tallyd, or -errno after a complaint. */
int cli_daemon_open(const struct cli_daemon_options *o);
/* Sends a question and waits for the answer.  0, or -errno after a complaint. */
int cli_daemon_ask(int fd, enum tl_wire_kind kind, void *question, size_t bytes,
                   struct tl_wire_packet *answer);
/* Writes a finished text to standard output; an exit status. */
int cli_daemon_print(struct tl_buf *out);

#endif
