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

/* A GPU that jobs use, as they tell. */
struct cli_device {
    uint8_t uuid[16];
    char name[64];         /* the model; of the software device also its profile */
    uint64_t memory_bytes; /* 0: not known */
    uint64_t held_bytes;   /* by jobs of tallyd */
    uint32_t busy_permille, jobs;
};
enum { CLI_DEVICES = 64 };
/* Of all jobs in the list.  One that uses several GPUs counts for each of them in equal parts:
 * pages do not tell them apart.  Returns how many there are, in the order of their UUIDs. */
size_t cli_devices(const struct cli_clients *list, struct cli_device devices[CLI_DEVICES]);
void cli_clients_json(struct tl_buf *out, const struct cli_clients *list,
                      const struct cli_device *devices, size_t n_devices);

/* In a word. */
const char *cli_client_state(const struct tl_wire_status *s);
const char *cli_client_rung(const struct tl_wire_status *s);
/* "2:1a2b3c4d", the first digits of a GPU behind how many there are, if several; "-" if none
 * yet. */
const char *cli_client_gpus(const struct tl_wire_status *s, char text[64]);

#endif
