/* A hundred thousand connections that mean harm, and others who join meanwhile.
 *
 * The bound is in events, not in time: while somebody joins, the flood must not get on by more than
 * a tenth of itself; and joins are made until the flood ends.  tallyd has the address sanitizer
 * inside, and must end in order.
 * TALLY_TEST_FLOOD=1000000 makes a campaign of it (make hostile). */
#include "test/unit/runtime/tallyd/help.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

enum { NOBODY = 65534, FLOODERS = 4, USUAL_FLOOD = 100000, FEWEST_JOINS = 10 };

static _Atomic uint32_t *connections; /* made so far; shared with the children */

void setUp(void)
{
    daemon_test_begin();
    daemon_test_hardened();
}

void tearDown(void)
{
    daemon_test_end();
}

/* --- those who flood -------------------------------------------------------------------------- */

static uint64_t random_state;

static uint32_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}

/* A page that tallyd takes for one, with anything in it. */
static int garbage_page(void)
{
    union {
        uint64_t words[TL_SHARE_PAGE / sizeof(uint64_t)];
        struct tl_client_page page;
    } all;
    int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    for (size_t i = 0; i < sizeof all.words / sizeof all.words[0]; i++)
        all.words[i] = (uint64_t)next_random() << 32 | next_random();
    if (next_random() % 2 == 0) {
        all.page.magic = TL_CLIENT_MAGIC;
        all.page.version = TL_SHARE_VERSION;
    }
    if (write(fd, &all, sizeof all) < 0)
        return fd;
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    return fd;
}

/* A hello, whole or a part of it, with a good page, a bad one or none. */
static void say_hello(int fd)
{
    struct tl_wire_hello hello = daemon_hello((int)(next_random() % 201) - 100);
    if (next_random() % 4 == 0)
        strcpy(hello.policy, "timeslice"); /* a wish */
    if (next_random() % 2 == 0) {
        hello.head = (struct tl_wire_head){TL_WIRE_MAGIC, TL_WIRE_VERSION, TL_WIRE_HELLO,
                                           sizeof hello};
        (void)send(fd, &hello, next_random() % sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT);
        return;
    }
    int page = next_random() % 2 == 0 ? daemon_page() : garbage_page();
    (void)tl_wire_send(fd, TL_WIRE_HELLO, &hello, sizeof hello, &page, 1);
    close(page);
}

/* What one connection does. */
static void harass(int fd)
{
    char bytes[256];
    switch (next_random() % 16) {
    case 0:
    case 1:
        say_hello(fd);
        break;
    case 2:
    case 3:
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)next_random();
        (void)send(fd, bytes, 1 + next_random() % sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    default: /* comes and goes */
        break;
    }
}

static int flood(uint32_t n, uint32_t seed)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    random_state = 88172645463325252u + seed * UINT64_C(7919);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", getenv("TALLY_SOCKET"));
    for (uint32_t i = 0; i < n; i++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) < 0)
            return 1;
        harass(fd);
        close(fd);
        atomic_fetch_add(connections, 1);
    }
    return 0;
}

/* As another user where that can be, so that the quotas are those of strangers. */
static pid_t start_flood(uint32_t n, uint32_t seed)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* From inside: folders above may be root's alone. */
    if (chdir(daemon_test_path(".")) < 0 || setenv("TALLY_SOCKET", "d.sock", 1) < 0)
        _exit(101);
    if (geteuid() == 0 &&
        (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
        _exit(100);
    _exit(flood(n, seed));
}

/* --- those who join meanwhile ----------------------------------------------------------------- */

/* Joins and leaves once; how far the flood got meanwhile. */
static uint32_t join(void)
{
    struct tl_error remark = {0};
    uint32_t before = atomic_load(connections);
    struct tl_client *c = daemon_client(TL_LEVEL_HIGH, &remark);
    TEST_ASSERT_TRUE_MESSAGE(daemon_await_joined(c, true),
                             remark.text); /* a loaded machine is slow */
    uint32_t after = atomic_load(connections);
    tl_client_destroy(c);
    return after - before;
}

static void others_join_during_a_flood(void)
{
    const char *wanted = getenv("TALLY_TEST_FLOOD");
    uint32_t total = wanted != NULL ? (uint32_t)strtoul(wanted, NULL, 10) : USUAL_FLOOD;
    uint32_t joins = 0, longest = 0, ended = 0;
    connections = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(connections != MAP_FAILED);
    pid_t d = daemon_start(NULL), flooders[FLOODERS];
    TEST_ASSERT_EQUAL_INT(0, chmod(daemon_test_path("."), 0711));
    TEST_ASSERT_EQUAL_INT(0, chmod(getenv("TALLY_SOCKET"), 0666));
    for (uint32_t i = 0; i < FLOODERS; i++)
        flooders[i] = start_flood(total / FLOODERS, i);
    for (; ended < FLOODERS; joins++) {
        int status;
        uint32_t got_on = join();
        longest = got_on > longest ? got_on : longest;
        while (ended < FLOODERS && waitpid(flooders[ended], &status, WNOHANG) == flooders[ended]) {
            TEST_ASSERT_EQUAL_INT(0, status);
            ended++;
        }
    }
    printf("%u connections; %u joins meanwhile, each within %u connections of the flood\n",
           atomic_load(connections), joins, longest);
    TEST_ASSERT_EQUAL_UINT32(total / FLOODERS * FLOODERS, atomic_load(connections));
    TEST_ASSERT_TRUE(joins >= FEWEST_JOINS);
    TEST_ASSERT_TRUE(longest <= total / 10);
    TEST_ASSERT_TRUE(daemon_await_clients(0));
    TEST_ASSERT_EQUAL_INT(0, daemon_end(d));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(others_join_during_a_flood);
    return UNITY_END();
}
