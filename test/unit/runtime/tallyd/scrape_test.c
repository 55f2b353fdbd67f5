/* What a scrape of tallyd's metrics does to a client: nothing.  All that tallyd can do to one is to
 * write into the page of its grant, to wake who waits there, and to send a message.  So a client is
 * made by hand here, and nothing of that page may change while metrics are told, not even the
 * time of tallyd's last look; a client alone is looked at for no other reason. */
#include "test/unit/runtime/tallyd/help.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

enum { TEXT_BYTES = 1 << 16, MADE = 5 };

static struct tl_client_page *page;
static const void *grant;
static int client;

void setUp(void)
{
    daemon_test_begin();
}

void tearDown(void)
{
    daemon_test_end();
}

static void scrape(char text[TEXT_BYTES])
{
    static const char question[] = "GET /metrics HTTP/1.1\r\n\r\n";
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", daemon_test_path("m.sock"));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TEST_ASSERT_EQUAL_INT(0, connect(fd, (struct sockaddr *)&at, sizeof at));
    TEST_ASSERT_EQUAL_INT(sizeof question - 1, write(fd, question, sizeof question - 1));
    size_t n = 0;
    for (ssize_t more = 1; more > 0; n += (size_t)more) {
        more = read(fd, text + n, TEXT_BYTES - 1 - n);
        TEST_ASSERT_TRUE(more >= 0 && n + (size_t)more < TEXT_BYTES - 1);
    }
    text[n] = 0;
    close(fd);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\ntally_clients 1\n"), text);
}

/* Until so many other texts were made: one is told again for a while. */
static void scrape_often(char last[TEXT_BYTES])
{
    static char text[TEXT_BYTES];
    for (int made = 0; made < MADE;) {
        scrape(text);
        made += strcmp(text, last) != 0;
        memcpy(last, text, sizeof text);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* A client of that level, as tallyd is told by hand, that has work. */
static void join(int level)
{
    struct tl_wire_hello hello = daemon_hello(level);
    struct tl_wire_packet packet;
    int own = daemon_page();
    page = tl_share_map(own, true);
    TEST_ASSERT_NOT_NULL(page);
    client = daemon_connect();
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(client, TL_WIRE_HELLO, &hello, sizeof hello, &own, 1));
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(client, &packet));
    TEST_ASSERT_EQUAL_UINT32(TL_WIRE_WELCOME, packet.m.head.kind);
    grant = tl_share_map(packet.fds[0], false);
    TEST_ASSERT_NOT_NULL(grant);
    tl_wire_close(&packet);
    close(own);
}

static bool has_message(void)
{
    struct pollfd p = {.fd = client, .events = POLLIN};
    return poll(&p, 1, 0) != 0;
}

static void a_scrape_is_read_from_a_client_and_tells_it_nothing(void)
{
    static char text[TEXT_BYTES], before[TL_SHARE_PAGE], own[TL_SHARE_PAGE];
    char where[160];
    snprintf(where, sizeof where, "--metrics=unix:%s", daemon_test_path("m.sock"));
    daemon_start((const char *const[]){"--idle=0", where, NULL});
    join(TL_LEVEL_LOW);
    scrape(text); /* answered behind the look that its coming was worth */
    while (has_message()) {
        struct tl_wire_packet packet;
        TEST_ASSERT_EQUAL_INT(1, daemon_receive(client, &packet));
        tl_wire_close(&packet);
    }
    atomic_store(&page->launches, 77);
    atomic_store(&page->has_backlog, 1);
    memcpy(before, grant, sizeof before);
    memcpy(own, page, sizeof own);
    scrape_often(text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\"} 77\n"), text); /* and it is told as of now */
    TEST_ASSERT_EQUAL_MEMORY_MESSAGE(before, grant, sizeof before,
                                     "the page of its grant was written to");
    TEST_ASSERT_EQUAL_MEMORY_MESSAGE(own, page, sizeof own, "its own page was written to");
    TEST_ASSERT_FALSE_MESSAGE(has_message(), "it was sent a message");
    /* A look, which a question of `tally ps` is, would have been seen. */
    TEST_ASSERT_EQUAL_UINT32(1, daemon_count_clients());
    TEST_ASSERT_NOT_EQUAL(0, memcmp(before, grant, sizeof before));
    close(client);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_scrape_is_read_from_a_client_and_tells_it_nothing);
    return UNITY_END();
}
