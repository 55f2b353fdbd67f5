/* The jobs that tallyd knows, for the commands that list them. */
#ifndef TALLY_RUNTIME_TALLY_CLIENTS_H
#define TALLY_RUNTIME_TALLY_CLIENTS_H

#include "runtime/tally/daemon.h"

struct cli_clients {
    struct tl_wire_status *items; /* highest level first, then in the order of joining */
    size_t n, cap;
    char policy[32];
};
/* Adds all to an empty list; 0, or a negative errno value that was complained of. */
int cli_clients_ask(int fd, struct cli_clients *list);
void cli_clients_finish(struct cli_clients *list);
void cli_clients_json(struct tl_buf *out, const struct cli_clients *list);

/* In a word. */
const char *cli_client_state(const struct tl_wire_status *s);
const char *cli_client_rung(const struct tl_wire_status *s);
/* "2:1a2b3c4d", the first digits of a GPU behind how many there are, if several; "-" if none
 * yet. */
const char *cli_client_gpus(const struct tl_wire_status *s, char text[64]);

#endif
