/* Peers that mean harm: tallyd refuses them, and serves the others as before. */
#include "tally/clock.h"
#include "test/unit/runtime/tallyd/help.h"

#include "runtime/job/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <unity.h>

void setUp(void)
{
    daemon_test_begin();
    daemon_test_hardened();
}

void tearDown(void)
{
    daemon_test_end();
}

static uint32_t count_descriptors(pid_t pid)
{
    char path[64];
    uint32_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    TEST_ASSERT_NOT_NULL(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static void another_version_is_refused_with_a_reason(void)
{
    daemon_start(NULL);
    struct tl_wire_bare m = {{TL_WIRE_MAGIC, TL_WIRE_VERSION + 1, TL_WIRE_HELLO, sizeof m}};
    struct tl_wire_packet packet;
    int fd = daemon_connect();
    TEST_ASSERT_EQUAL_INT(sizeof m, send(fd, &m, sizeof m, 0));
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, &packet));
    TEST_ASSERT_EQUAL_UINT32(TL_WIRE_REFUSED, packet.m.head.kind);
    TEST_ASSERT_NOT_NULL(strstr(packet.m.answer.text, "version"));
    TEST_ASSERT_EQUAL_INT(0, daemon_receive(fd, &packet));
    close(fd);
}

static void pages_of_another_version_are_refused(void)
{
    daemon_start(NULL);
    struct tl_wire_hello hello = daemon_hello(0);
    struct tl_wire_packet packet;
    int fd = daemon_connect(), own = daemon_page();
    hello.share_version++;
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(fd, TL_WIRE_HELLO, &hello, sizeof hello, &own, 1));
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, &packet));
    TEST_ASSERT_EQUAL_UINT32(TL_WIRE_REFUSED, packet.m.head.kind);
    close(fd);
    close(own);
}

/* A page that could shrink under tallyd, or is none at all. */
static void pages_that_could_hurt_are_refused(void)
{
    pid_t d = daemon_start(NULL);
    int bad[5];
    TEST_ASSERT_EQUAL_INT(0, pipe(bad));
    bad[2] = memfd_create("unsealed", MFD_ALLOW_SEALING);
    TEST_ASSERT_EQUAL_INT(0, ftruncate(bad[2], TL_SHARE_PAGE));
    bad[3] = memfd_create("small", MFD_ALLOW_SEALING);
    TEST_ASSERT_EQUAL_INT(0, ftruncate(bad[3], 100));
    TEST_ASSERT_EQUAL_INT(0, fcntl(bad[3], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
    bad[4] = open("/dev/zero", O_RDWR);
    for (int i = 0; i < 5; i++) {
        struct tl_wire_hello hello = daemon_hello(0);
        struct tl_wire_packet packet;
        int fd = daemon_connect();
        TEST_ASSERT_EQUAL_INT(0, tl_wire_send(fd, TL_WIRE_HELLO, &hello, sizeof hello, &bad[i], 1));
        TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, &packet));
        TEST_ASSERT_EQUAL_UINT32(TL_WIRE_REFUSED, packet.m.head.kind);
        close(fd);
        close(bad[i]);
    }
    TEST_ASSERT_EQUAL_UINT32(0, daemon_count_clients());
    TEST_ASSERT_EQUAL_INT(0, daemon_end(d));
}

static uint64_t random_state = 88172645463325252u;

static uint32_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}

/* Random bytes behind a head that is often right, with random descriptors. */
static void send_nonsense(int fd)
{
    static const uint32_t sizes[] = {sizeof(struct tl_wire_hello), sizeof(struct tl_wire_bare),
                                     sizeof(struct tl_wire_set),   sizeof(struct tl_wire_policy),
                                     sizeof(struct tl_wire_list),  sizeof(struct tl_wire_answer),
                                     sizeof(struct tl_wire_words), sizeof(struct tl_wire_status)};
    char bytes[2 * TL_WIRE_BYTES];
    uint32_t n = next_random() % 4 == 0 ? 1 + next_random() % sizeof bytes
                                        : sizes[next_random() % 8];
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(next_random() % 3 == 0 ? 0 : next_random());
    struct tl_wire_head head = {TL_WIRE_MAGIC, TL_WIRE_VERSION, next_random() % (TL_WIRE_KINDS + 2),
                                n};
    if (next_random() % 8 != 0)
        memcpy(bytes, &head, sizeof head);
    int fds[16], n_fds = (int)(next_random() % 3 == 0 ? next_random() % 16 : next_random() % 2);
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof fds)];
    } control;
    struct iovec piece = {bytes, n};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    for (int i = 0; i < n_fds; i++)
        fds[i] = STDIN_FILENO;
    if (n_fds > 0) {
        memset(&control, 0, sizeof control);
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        control.header = (struct cmsghdr){CMSG_LEN((size_t)n_fds * sizeof(int)), SOL_SOCKET,
                                          SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), fds, (size_t)n_fds * sizeof(int));
    }
    (void)sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void nonsense_harms_nobody(void)
{
    pid_t d = daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL),
                     *high = daemon_client(TL_LEVEL_HIGH, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    (void)daemon_count_clients();
    uint32_t before = count_descriptors(d);
    for (int i = 0; i < 3000; i++) {
        int fd = daemon_connect();
        for (uint32_t n = 1 + next_random() % 3; n > 0; n--)
            send_nonsense(fd);
        close(fd);
    }
    TEST_ASSERT_EQUAL_UINT32(2, daemon_count_clients());
    atomic_fetch_add(&tl_client_page(high)->issued, 1);
    TEST_ASSERT_TRUE(tl_client_is_preempted(low));
    uint32_t after = 0;
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; tl_clock_ns() < end; usleep(10000)) {
        after = count_descriptors(d);
        if (after <= before + 2) /* the last question may not be closed yet */
            break;
    }
    TEST_ASSERT_TRUE(after <= before + 2);
    tl_client_destroy(high);
    tl_client_destroy(low);
    TEST_ASSERT_EQUAL_INT(0, daemon_end(d));
}

/* Counters that jump and words that say anything: tallyd reads them, and lives. */
static void a_page_full_of_nonsense_harms_nobody(void)
{
    pid_t d = daemon_start(NULL);
    struct tl_client *bad = daemon_client(0, NULL), *good = daemon_client(0, NULL);
    for (int i = 0; i < 300; i++) {
        _Atomic uint64_t *at = (_Atomic uint64_t *)(void *)tl_client_page(
            bad); /* its own thread writes there as well */
        for (size_t j = 0; j < sizeof(struct tl_client_page) / sizeof *at; j++)
            atomic_store_explicit(&at[j], (uint64_t)next_random() << 32 | next_random(),
                                  memory_order_relaxed);
        tl_client_backlog(bad, true);
        tl_client_backlog(good, true);
        TEST_ASSERT_EQUAL_UINT32(2, daemon_count_clients()); /* it has looked, and lives */
    }
    tl_client_destroy(bad);
    TEST_ASSERT_TRUE(daemon_await_may_run(good, true));
    tl_client_destroy(good);
    TEST_ASSERT_EQUAL_INT(0, daemon_end(d));
}

static void who_floods_is_cut_off(void)
{
    daemon_start(NULL);
    struct tl_wire_bare kick;
    int fd = daemon_connect(), rc = 0;
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; rc != -EPIPE && tl_clock_ns() < end;)
        rc = tl_wire_send(fd, TL_WIRE_KICK, &kick, sizeof kick, NULL, 0);
    TEST_ASSERT_EQUAL_INT(-EPIPE, rc);
    close(fd);
    TEST_ASSERT_EQUAL_UINT32(0, daemon_count_clients());
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(another_version_is_refused_with_a_reason);
    RUN_TEST(pages_of_another_version_are_refused);
    RUN_TEST(pages_that_could_hurt_are_refused);
    RUN_TEST(nonsense_harms_nobody);
    RUN_TEST(a_page_full_of_nonsense_harms_nobody);
    RUN_TEST(who_floods_is_cut_off);
    return UNITY_END();
}
