/* Asking tallyd, for the commands that do. */
#include "runtime/tally/daemon.h"
#include "runtime/job/settings.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { ANSWER_MS = 5000 };

error_t cli_daemon_option(struct cli_daemon_options *o, int key, char *arg)
{
    switch (key) {
    case 'j':
        o->as_json = true;
        return 0;
    case 's':
        o->socket = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int cli_daemon_open(const struct cli_daemon_options *o)
{
    const char *socket = o->socket;
    struct tl_settings s;
    struct tl_error err;
    if (tl_settings_read(&s, &err) < 0)
        cli_complain("%s", err.text);
    int fd = tl_wire_connect_patiently(socket != NULL ? socket : s.socket, &err);
    if (fd == -ENOENT || fd == -ECONNREFUSED)
        cli_complain("no tallyd runs (%s); it starts with the first job under tally-run",
                     socket != NULL ? socket : s.socket);
    else if (fd < 0)
        cli_complain("%s", err.text);
    return fd;
}

int cli_daemon_ask(int fd, enum tl_wire_kind kind, void *question, size_t bytes,
                   struct tl_wire_packet *answer)
{
    struct tl_error err = {0};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int rc = tl_wire_send(fd, kind, question, bytes, NULL, 0);
    if (rc < 0) {
        cli_complain("tallyd takes no message: %s", strerror(-rc));
        return rc;
    }
    do
        rc = poll(&p, 1, ANSWER_MS);
    while (rc < 0 && errno == EINTR);
    if (rc <= 0) {
        cli_complain("tallyd does not answer");
        return -ETIMEDOUT;
    }
    rc = tl_wire_receive(fd, answer, &err);
    if (rc == 1 && answer->m.head.kind == TL_WIRE_REFUSED) {
        cli_complain("tallyd refused: %s", answer->m.answer.text);
        rc = -EPROTO;
    } else if (rc != 1) {
        cli_complain("tallyd %s%s",
                     rc == 0 ? "ended" : "does not speak as this program does: ", err.text);
        rc = rc == 0 ? -ECONNRESET : rc;
    }
    return rc == 1 ? 0 : rc;
}

int cli_daemon_print(struct tl_buf *out)
{
    bool is_written = !out->failed && fwrite(out->p, 1, out->n, stdout) == out->n &&
                      fflush(stdout) == 0;
    if (!is_written)
        cli_complain("cannot write the answer: %s",
                     out->failed ? "out of memory" : strerror(errno));
    tl_buf_finish(out);
    return is_written ? CLI_OK : CLI_FAILED;
}
