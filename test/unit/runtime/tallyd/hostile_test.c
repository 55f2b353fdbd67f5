/* Peers that try to hold tallyd up, to take the places of others, or to set what is not theirs to
 * set.  That tallyd still answers is what is asserted: a question that is not answered within
 * DAEMON_PATIENCE_NS fails the test, and each of these attacks would last longer. */
#include "test/unit/runtime/tallyd/help.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

enum { NOBODY = 65534, LINGER_S = 120 };

void setUp(void)
{
    daemon_test_begin();
    daemon_test_hardened();
}

void tearDown(void)
{
    daemon_test_end();
}

/* --- holding it up ---------------------------------------------------------------------------- */

/* Connects, sends a hello with these descriptors, and does not read. */
static int send_hello(const int *fds, uint32_t n)
{
    struct tl_wire_hello hello = daemon_hello(0);
    int fd = daemon_connect();
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(fd, TL_WIRE_HELLO, &hello, sizeof hello, fds, n));
    return fd;
}

/* Opening a file under a lease waits until its holder gives way, or for 45 s. */
static void a_page_under_a_lease_holds_nobody_up(void)
{
    daemon_start(NULL);
    struct tl_wire_packet packet;
    char path[32];
    int made = daemon_page();
    snprintf(path, sizeof path, "/proc/self/fd/%d", made);
    int page = open(path, O_RDWR | O_CLOEXEC); /* only what was opened can be leased */
    close(made);
    signal(SIGIO, SIG_IGN); /* by which we would be asked to give way */
    TEST_ASSERT_EQUAL_INT(0, fcntl(page, F_SETLEASE, F_WRLCK));
    int fd = send_hello(&page, 1);
    TEST_ASSERT_EQUAL_UINT32(0, daemon_count_clients());
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, &packet));
    TEST_ASSERT_EQUAL_UINT32(TL_WIRE_REFUSED, packet.m.head.kind);
    close(fd);
    close(page);
}

/* A TCP socket with data that its other end does not read: whoever closes it last waits. */
static int make_lingering(int *other_end)
{
    static const char data[1 << 16];
    struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TEST_ASSERT_EQUAL_INT(0, bind(listener, (struct sockaddr *)&at, sizeof at));
    TEST_ASSERT_EQUAL_INT(0, listen(listener, 1));
    TEST_ASSERT_EQUAL_INT(0, getsockname(listener, (struct sockaddr *)&at, &n));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TEST_ASSERT_EQUAL_INT(0, connect(fd, (struct sockaddr *)&at, sizeof at));
    *other_end = accept(listener, NULL, NULL);
    close(listener);
    TEST_ASSERT_EQUAL_INT(0, setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    while (send(fd, data, sizeof data, MSG_DONTWAIT) > 0)
        ;
    return fd;
}

/* Sends `n` such sockets with a hello, or with no byte at all over a connection that is gone before
 * tallyd sees it.  tallyd stands still until it has the last descriptors of them: else we would
 * wait. */
static void send_lingering(pid_t d, uint32_t n, bool stays, bool is_hello)
{
    int fds[32], other_ends[32];
    for (uint32_t i = 0; i < n; i++)
        fds[i] = make_lingering(&other_ends[i]);
    struct tl_wire_hello hello = daemon_hello(0);
    struct tl_wire_head head = {TL_WIRE_MAGIC, TL_WIRE_VERSION, TL_WIRE_HELLO, sizeof hello};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof fds)];
    } control = {.header = {CMSG_LEN(n * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec piece = {&hello, is_hello ? sizeof hello : 0};
    struct msghdr m = {.msg_iov = &piece,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    memcpy(&hello, &head, sizeof head);
    memcpy(CMSG_DATA(&control.header), fds, n * sizeof(int));
    int fd = is_hello ? daemon_connect() : -1;
    TEST_ASSERT_EQUAL_INT(0, kill(d, SIGSTOP));
    TEST_ASSERT_EQUAL_INT(d, waitpid(d, NULL, WUNTRACED)); /* all its threads */
    if (!is_hello)
        fd = daemon_connect();
    TEST_ASSERT_EQUAL_INT(piece.iov_len, sendmsg(fd, &m, MSG_NOSIGNAL));
    for (uint32_t i = 0; i < n; i++)
        close(fds[i]);
    if (!stays)
        close(fd);
    TEST_ASSERT_EQUAL_INT(0, kill(d, SIGCONT));
    (void)daemon_count_clients();
    for (uint32_t i = 0; i < n; i++)
        close(other_ends[i]); /* which ends it */
    if (stays)
        close(fd);
}

static void descriptors_that_linger_hold_nobody_up(void)
{
    pid_t d = daemon_start(NULL);
    send_lingering(d, 1, true, true);
    send_lingering(d, 1, false, true);
    send_lingering(d, 1, false, false);
    send_lingering(d, 3, true, true);  /* more than a hello has */
    send_lingering(d, 20, true, true); /* more than any message has */
    struct tl_client *c = daemon_client(0, NULL);
    TEST_ASSERT_TRUE(tl_client_is_joined(c));
    tl_client_destroy(c);
}

/* --- pages ------------------------------------------------------------------------------------ */

/* What the answer to a hello with this page says, or NULL if it is welcome. */
static const char *refusal_of(int page, int *fd)
{
    static struct tl_wire_packet packet;
    *fd = send_hello(&page, 1);
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(*fd, &packet));
    return packet.m.head.kind == TL_WIRE_REFUSED ? packet.m.answer.text : NULL;
}

static void a_page_is_that_of_one_client(void)
{
    int fd, again, page = daemon_page(), status;
    daemon_start(NULL);
    TEST_ASSERT_NULL(refusal_of(page, &fd));
    pid_t other = fork();
    if (other == 0) {
        const char *text = refusal_of(page, &again);
        _exit(text == NULL ? 1 : 0);
    }
    TEST_ASSERT_EQUAL_INT(other, waitpid(other, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    TEST_ASSERT_EQUAL_UINT32(1, daemon_count_clients());
    /* the process that made it comes again, and takes its own place */
    TEST_ASSERT_NULL(refusal_of(page, &again));
    TEST_ASSERT_TRUE(daemon_await_clients(1));
    close(fd);
    close(again);
    close(page);
}

static void a_page_of_another_kind_is_refused(void)
{
    struct tl_wire_packet packet;
    int page = daemon_page(), fd;
    daemon_start(NULL);
    int first = send_hello(&page, 1);
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(first, &packet));
    TEST_ASSERT_EQUAL_UINT32(1, packet.n_fds); /* its grants */
    TEST_ASSERT_NOT_NULL(refusal_of(packet.fds[0], &fd));
    tl_wire_close(&packet);
    close(fd);
    close(first);
    close(page);
}

/* --- another user ----------------------------------------------------------------------------- */

/* Runs it as another user, in a process of its own; false where that cannot be.  It ends with 0, or
 * with the number of what was wrong. */
static bool as_nobody(int (*run)(void), int *result)
{
    int status = 0;
    if (geteuid() != 0)
        return false;
    TEST_ASSERT_EQUAL_INT(0, chmod(daemon_test_path("."), 0711));
    TEST_ASSERT_EQUAL_INT(0, chmod(getenv("TALLY_SOCKET"), 0666));
    pid_t child = fork();
    if (child == 0) {
        /* From inside: folders above may be root's alone. */
        if (chdir(daemon_test_path(".")) < 0 || setenv("TALLY_SOCKET", "d.sock", 1) < 0)
            _exit(101);
        _exit(setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0
                  ? 100
                  : run());
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_TRUE(WIFEXITED(status));
    *result = WEXITSTATUS(status);
    return true;
}

#define AS_NOBODY(run)                                                                             \
    do {                                                                                           \
        int result_;                                                                               \
        if (!as_nobody(run, &result_))                                                             \
            TEST_IGNORE_MESSAGE("only root can be another user");                                  \
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, result_, #run);                                           \
    } while (0)

/* Connects until it is refused, which it must be told before it has every place; root then comes
 * in all the same. */
static int take_all_places(void)
{
    enum { MOST = 512 };
    struct tl_wire_packet packet;
    for (int i = 0; i < MOST; i++) {
        int page = daemon_page(), fd = send_hello(&page, 1);
        close(page);
        if (daemon_receive(fd, &packet) != 1)
            return 1; /* cut off without a word */
        tl_wire_close(&packet);
        if (packet.m.head.kind == TL_WIRE_REFUSED)
            return strstr(packet.m.answer.text, "places") != NULL && i >= 16 ? 0 : 2;
    }
    return 3; /* it got them all */
}

static void one_user_does_not_take_all_places(void)
{
    daemon_start(NULL);
    AS_NOBODY(take_all_places);
    struct tl_client *c = daemon_client(TL_LEVEL_HIGH, NULL);
    TEST_ASSERT_TRUE(tl_client_is_joined(c));
    tl_client_destroy(c);
}

/* Whether the only client has what the rules below allow. */
static bool has_usual_settings(void)
{
    struct tl_wire_list list = {.after = 0};
    struct tl_wire_packet packet = daemon_ask(TL_WIRE_LIST, &list, sizeof list);
    const struct tl_wire_client *c = &packet.m.status.client;
    return packet.m.head.kind == TL_WIRE_CLIENT && c->level == 10 && c->min_permille == 50 &&
           c->weight == 100 && c->turnaround_ns == 31600 && c->slo_ns == 0;
}

/* Everything that would cost others. */
static const struct tl_sched_client greedy = {.level = TL_LEVEL_MAX,
                                              .weight = 10000,
                                              .min_permille = 1000,
                                              .turnaround_ns = UINT64_C(10000000000),
                                              .slo_percentile = 9900,
                                              .slo_ns = 1};

static int ask_for_everything(void)
{
    struct tl_wire_hello hello = daemon_hello(TL_LEVEL_MAX);
    struct tl_wire_set set = {
        .pid = getpid(), .what = TL_SET_ALL & ~TL_SET_PAUSED, .client = tl_wire_pack(&greedy)};
    struct tl_wire_policy policy = {.policy = "timeslice"};
    struct tl_wire_packet packet;
    int page = daemon_page(), fd = daemon_connect();
    hello.client = tl_wire_pack(&greedy);
    strcpy(hello.policy, "kernel");
    if (tl_wire_send(fd, TL_WIRE_HELLO, &hello, sizeof hello, &page, 1) < 0 ||
        daemon_receive(fd, &packet) != 1 || packet.m.head.kind != TL_WIRE_WELCOME)
        return 1;
    tl_wire_close(&packet);
    if (strcmp(packet.m.answer.policy, "tally") != 0)
        return 2;
    if (strstr(packet.m.answer.text, "min-share of 5.0%") == NULL)
        return 3;
    if (!has_usual_settings())
        return 4;
    packet = daemon_ask(TL_WIRE_SET, &set, sizeof set);
    if (packet.m.answer.code != 0 || packet.m.answer.text[0] == 0 || !has_usual_settings())
        return 5;
    packet = daemon_ask(TL_WIRE_POLICY, &policy, sizeof policy);
    return packet.m.answer.code == -EPERM ? 0 : 6;
}

static void write_rules(const char *text)
{
    FILE *f = fopen(daemon_test_path("rules"), "w");
    TEST_ASSERT_NOT_NULL(f);
    fputs(text, f);
    fclose(f);
}

static pid_t start_with_rules(const char *text)
{
    static char option[160];
    write_rules(text);
    snprintf(option, sizeof option, "--rules=%s", daemon_test_path("rules"));
    return daemon_start((const char *const[]){option, NULL});
}

static void every_lever_obeys_the_rules(void)
{
    (void)start_with_rules("uid 65534 10 min-share=5%\n");
    AS_NOBODY(ask_for_everything);
}

static void a_policy_may_be_chosen_by_whom_the_rules_let(void)
{
    (void)start_with_rules("cgroup / low policy\n");
    struct tl_wire_policy policy = {.policy = "timeslice"};
    struct tl_wire_packet packet = daemon_ask(TL_WIRE_POLICY, &policy, sizeof policy);
    TEST_ASSERT_EQUAL_INT(0, packet.m.answer.code);
    TEST_ASSERT_EQUAL_STRING("timeslice", packet.m.answer.policy);
}

/* The same user in a cgroup that the rules keep low: it does not stop what they let be high. */
static void who_is_kept_low_does_not_pause_what_may_be_high(void)
{
    pid_t d = start_with_rules("# nothing\n");
    struct daemon_child high = daemon_child_start(TL_LEVEL_HIGH);
    struct tl_sched_client paused = {.is_paused = true};
    struct tl_wire_set set = {
        .pid = high.pid, .what = TL_SET_PAUSED, .client = tl_wire_pack(&paused)};
    struct tl_wire_policy policy = {.policy = "timeslice"};
    write_rules("cgroup / low\n");
    TEST_ASSERT_EQUAL_INT(0, kill(d, SIGHUP));
    struct tl_wire_packet packet;
    do /* until the rules are read */
        packet = daemon_ask(TL_WIRE_POLICY, &policy, sizeof policy);
    while (packet.m.answer.code == 0);
    TEST_ASSERT_EQUAL_INT(-EPERM, packet.m.answer.code);
    packet = daemon_ask(TL_WIRE_SET, &set, sizeof set);
    TEST_ASSERT_EQUAL_INT(-EPERM, packet.m.answer.code);
    daemon_child_kill(&high);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_page_under_a_lease_holds_nobody_up);
    RUN_TEST(descriptors_that_linger_hold_nobody_up);
    RUN_TEST(a_page_is_that_of_one_client);
    RUN_TEST(a_page_of_another_kind_is_refused);
    RUN_TEST(one_user_does_not_take_all_places);
    RUN_TEST(every_lever_obeys_the_rules);
    RUN_TEST(a_policy_may_be_chosen_by_whom_the_rules_let);
    RUN_TEST(who_is_kept_low_does_not_pause_what_may_be_high);
    return UNITY_END();
}
