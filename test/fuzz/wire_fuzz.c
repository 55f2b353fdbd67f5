/* Messages to tallyd and from it: whatever comes in, what is accepted has the shape that its
 * readers count on. */
#include "runtime/job/wire.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What the readers of accepted messages do with their texts and fields. */
static void read_accepted(const struct tl_wire_packet *packet)
{
    const union tl_wire_message *m = &packet->m;
    struct tl_sched_client c;
    char text[64];
    switch (m->head.kind) {
    case TL_WIRE_HELLO:
        assert(packet->n_fds == 1);
        tl_wire_text(text, sizeof text, m->hello.job);
        assert(strlen(m->hello.policy) < sizeof m->hello.policy);
        if (tl_wire_unpack(&m->hello.client, &c))
            assert(c.level >= TL_LEVEL_MIN && c.level <= TL_LEVEL_MAX);
        break;
    case TL_WIRE_POLICY:
        assert(strlen(m->policy.policy) < sizeof m->policy.policy);
        assert(strlen(m->policy.parameters) < sizeof m->policy.parameters);
        break;
    case TL_WIRE_WELCOME:
        assert(packet->n_fds == 1);
        break;
    case TL_WIRE_REFUSED:
    case TL_WIRE_ANSWER:
        assert(strlen(m->answer.text) < sizeof m->answer.text);
        break;
    case TL_WIRE_CLIENT:
        assert(strlen(m->status.job) < sizeof m->status.job);
        break;
    default:
        assert(m->head.kind < TL_WIRE_KINDS);
    }
}

/* The first byte says how many descriptors come along. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    int pair[2], fds[TL_WIRE_FDS + 4];
    struct tl_wire_packet packet;
    struct tl_error err;
    if (n < 2 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return 0;
    size_t n_fds = data[0] % (TL_WIRE_FDS + 5);
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof fds)];
    } control;
    struct iovec piece = {(void *)(data + 1), n - 1};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    for (size_t i = 0; i < n_fds; i++)
        fds[i] = pair[0];
    /* More of them than the sender of ours would attach. */
    memset(&control, 0, sizeof control);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
    memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
    m.msg_control = n_fds > 0 ? &control : NULL;
    m.msg_controllen = n_fds > 0 ? CMSG_SPACE(n_fds * sizeof(int)) : 0;
    if (sendmsg(pair[0], &m, MSG_NOSIGNAL) >= 0 && tl_wire_receive(pair[1], &packet, &err) == 1) {
        read_accepted(&packet);
        tl_wire_close(&packet);
    }
    close(pair[0]);
    close(pair[1]);
    return 0;
}
