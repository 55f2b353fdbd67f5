/* Messages between tallyd and its clients; see the header. */
#include "runtime/job/wire.h"
#include "runtime/job/settings.h"
#include "tally/text.h"
#include "tally/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* --- sending ---------------------------------------------------------------------------------- */

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(TL_WIRE_FDS * sizeof(int))];
};

int tl_wire_send(int socket, enum tl_wire_kind kind, void *message, size_t bytes, const int *fds,
                 uint32_t n_fds)
{
    struct tl_wire_head head = {TL_WIRE_MAGIC, TL_WIRE_VERSION, kind, (uint32_t)bytes};
    memcpy(message, &head, sizeof head);
    union control control;
    struct iovec piece = {.iov_base = message, .iov_len = bytes};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    if (n_fds > 0) {
        memset(&control, 0, sizeof control);
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(n_fds * sizeof(int)),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
    }
    ssize_t put;
    do
        put = sendmsg(socket, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (put < 0 && errno == EINTR);
    return put < 0 ? -errno : 0;
}

/* --- receiving -------------------------------------------------------------------------------- */

static void take_descriptors(struct msghdr *m, struct tl_wire_packet *packet)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (packet->n_fds < TL_WIRE_FDS)
                packet->fds[packet->n_fds++] = fd;
            else
                close(fd);
        }
    }
}

void tl_wire_close(struct tl_wire_packet *packet)
{
    for (uint32_t i = 0; i < packet->n_fds; i++)
        if (packet->fds[i] >= 0)
            close(packet->fds[i]);
    packet->n_fds = 0;
}

/* Size and descriptors of each kind; texts that must end inside the message. */
struct shape {
    size_t bytes;
    uint32_t min_fds, max_fds;
    struct {
        size_t offset, size;
    } texts[2];
};

/* clang-format off */
#define TEXT(type, field) {offsetof(struct type, field), sizeof((struct type *)0)->field}
static const struct shape shapes[TL_WIRE_KINDS] = {
    [TL_WIRE_HELLO] = {sizeof(struct tl_wire_hello), 1, 2, {TEXT(tl_wire_hello, job), TEXT(tl_wire_hello, policy)}},
    [TL_WIRE_KICK] = {sizeof(struct tl_wire_bare), 0, 0, {{0}}},
    [TL_WIRE_COPY] = {sizeof(struct tl_wire_copy), 1, 1, {{0}}},
    [TL_WIRE_PLACE] = {sizeof(struct tl_wire_place), 0, 0, {{0}}},
    [TL_WIRE_LIST] = {sizeof(struct tl_wire_list), 0, 0, {{0}}},
    [TL_WIRE_SET] = {sizeof(struct tl_wire_set), 0, 0, {{0}}},
    [TL_WIRE_POLICY] = {sizeof(struct tl_wire_policy), 0, 0, {TEXT(tl_wire_policy, policy), TEXT(tl_wire_policy, parameters)}},
    [TL_WIRE_WELCOME] = {sizeof(struct tl_wire_answer), 1, 2, {TEXT(tl_wire_answer, policy), TEXT(tl_wire_answer, text)}},
    [TL_WIRE_REFUSED] = {sizeof(struct tl_wire_answer), 0, 0, {TEXT(tl_wire_answer, policy), TEXT(tl_wire_answer, text)}},
    [TL_WIRE_WORDS] = {sizeof(struct tl_wire_words), 0, TL_WIRE_FDS, {{0}}},
    [TL_WIRE_BELOW] = {sizeof(struct tl_wire_below), 0, TL_WIRE_FDS, {{0}}},
    [TL_WIRE_PLACED] = {sizeof(struct tl_wire_bare), 0, 0, {{0}}},
    [TL_WIRE_GOODBYE] = {sizeof(struct tl_wire_bare), 0, 0, {{0}}},
    [TL_WIRE_CLIENT] = {sizeof(struct tl_wire_status), 0, 0, {TEXT(tl_wire_status, job), TEXT(tl_wire_status, device)}},
    [TL_WIRE_ACCOUNT] = {sizeof(struct tl_wire_account), 0, 0, {TEXT(tl_wire_account, name)}},
    [TL_WIRE_ACCOUNTED] = {sizeof(struct tl_wire_accounted), 0, 0, {{0}}},
    [TL_WIRE_ANSWER] = {sizeof(struct tl_wire_answer), 0, 0, {TEXT(tl_wire_answer, policy), TEXT(tl_wire_answer, text)}},
};
/* clang-format on */

static int check(const struct tl_wire_packet *packet, size_t n, struct tl_error *err)
{
    const struct tl_wire_head *head = &packet->m.head;
    if (n < sizeof *head || head->magic != TL_WIRE_MAGIC || head->bytes != n)
        return tl_error_set(err, -EPROTO, "a message that is none of ours (%zu bytes)", n);
    if (head->version != TL_WIRE_VERSION)
        return tl_error_set(err, -EPROTONOSUPPORT, "a message of version %u, where %u is spoken",
                            head->version, TL_WIRE_VERSION);
    const struct shape *shape = head->kind < TL_WIRE_KINDS ? &shapes[head->kind] : NULL;
    if (shape == NULL || shape->bytes == 0 || shape->bytes != n)
        return tl_error_set(err, -EPROTO, "a message of kind %u with %zu bytes", head->kind, n);
    if (packet->n_fds < shape->min_fds || packet->n_fds > shape->max_fds)
        return tl_error_set(err, -EPROTO, "a message of kind %u with %u descriptors", head->kind,
                            packet->n_fds);
    for (int i = 0; i < 2; i++)
        if (shape->texts[i].size > 0 &&
            memchr(packet->m.bytes + shape->texts[i].offset, 0, shape->texts[i].size) == NULL)
            return tl_error_set(err, -EPROTO, "a message of kind %u with a text that does not end",
                                head->kind);
    return 1;
}

int tl_wire_receive(int socket, struct tl_wire_packet *packet, struct tl_error *err)
{
    union control control;
    struct iovec piece = {.iov_base = packet->m.bytes, .iov_len = sizeof packet->m.bytes};
    struct msghdr m = {.msg_iov = &piece,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    packet->n_fds = 0;
    ssize_t got;
    int resets = 0;
    /* If the other end closed with something of ours unread, that is told first, and once; what it
     * said before is still there. */
    do
        got = recvmsg(socket, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (got < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
    if (got < 0)
        return errno == ECONNRESET ? 0 : tl_error_errno(err, "receiving");
    take_descriptors(&m, packet);
    int rc = got == 0 ? 0 : 1;
    if (rc == 1 && (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        rc = tl_error_set(err, -EPROTO,
                          "a message of more than %d bytes, or with too many descriptors",
                          TL_WIRE_BYTES);
    if (rc == 1)
        rc = check(packet, (size_t)got, err);
    if (rc != 1)
        tl_wire_close(packet);
    return rc;
}

/* --- fields ----------------------------------------------------------------------------------- */

struct tl_wire_client tl_wire_pack(const struct tl_sched_client *c)
{
    return (struct tl_wire_client){
        .level = c->level,
        .weight = c->weight,
        .min_permille = c->min_permille,
        .slo_percentile = c->slo_percentile,
        .turnaround_ns = c->turnaround_ns,
        .slo_ns = c->slo_ns,
        .is_paused = c->is_paused,
        .total_ms = c->total_ns / 1000000 < UINT32_MAX
                        ? (uint32_t)((c->total_ns + 999999) / 1000000)
                        : UINT32_MAX,
        .memory_limit = c->memory_limit,
        .memory_request = c->memory_request,
        .memory_soft = c->memory_soft,
        .max_permille = c->max_permille,
    };
}

bool tl_wire_unpack(const struct tl_wire_client *w, struct tl_sched_client *c)
{
    *c = (struct tl_sched_client){
        .level = w->level,
        .weight = w->weight,
        .min_permille = w->min_permille,
        .turnaround_ns = w->turnaround_ns,
        .slo_percentile = w->slo_percentile,
        .slo_ns = w->slo_ns,
        .is_paused = w->is_paused != 0,
        .total_ns = (uint64_t)w->total_ms * 1000000,
        .memory_limit = w->memory_limit,
        .memory_request = w->memory_request,
        .memory_soft = w->memory_soft,
        .max_permille = w->max_permille,
    };
    return w->level >= TL_LEVEL_MIN && w->level <= TL_LEVEL_MAX && w->weight <= 10000 &&
           w->min_permille <= 1000 && w->max_permille <= 1000 && w->slo_percentile <= 10000 &&
           w->memory_limit <= TL_WIRE_MEMORY && w->memory_request <= TL_WIRE_MEMORY &&
           w->memory_soft <= TL_WIRE_MEMORY;
}

void tl_wire_gpu_name(const uint8_t uuid[16], char *text)
{
    static const char digits[] = "0123456789abcdef";
    memcpy(text, "GPU-", 4);
    text += 4;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *text++ = '-';
        *text++ = digits[uuid[i] >> 4];
        *text++ = digits[uuid[i] & 15];
    }
    *text = 0;
}

void tl_wire_text(char *to, size_t size, const char *text)
{
    size_t n = 0;
    for (; n + 1 < size && text[n] != 0; n++)
        to[n] = text[n];
    tl_text_clean(to, n, false);
    memset(to + n, 0, size - n);
}

/* --- the meeting place ------------------------------------------------------------------------ */

/* One of a user whom this namespace does not know is outside of the container, and whoever set the
 * container up put its socket into it. */
int tl_wire_connect(const char *path, struct tl_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t n = sizeof peer;
    int rc;
    if (strlen(path) >= TL_SOCKET_PATH_BYTES)
        return tl_error_set(err, -ENAMETOOLONG,
                            "tallyd's socket %.300s: it may be " TL_SOCKET_PATH_IS, path);
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return tl_error_errno(err, "a socket to tallyd");
    do
        rc = connect(fd, (struct sockaddr *)&address, sizeof address);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        rc = tl_error_errno(err, "tallyd's socket %s", path);
    else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
        rc = tl_error_errno(err, "who listens on %s", path);
    else if (peer.uid != 0 && peer.uid != geteuid() && !tl_trust_is_outside(peer.uid))
        rc = tl_error_set(err, -EPERM,
                          "tallyd on %s belongs to user %u; set TALLY_SOCKET to one of yours", path,
                          (unsigned)peer.uid);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    return fd;
}

int tl_wire_connect_patiently(const char *path, struct tl_error *err)
{
    enum { TRIES = 500 };
    int fd = tl_wire_connect(path, err);
    for (int i = 0; i < TRIES && fd == -EAGAIN; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        fd = tl_wire_connect(path, err);
    }
    return fd;
}
