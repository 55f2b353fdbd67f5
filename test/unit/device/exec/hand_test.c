/* The device's memory where it has no name: those who are on it hand it over, whoever of them is
 * stopped, dead, or has closed everything; and nobody keeps the others from joining. */
#include "device/exec/hand.h"
#include "device/exec/sm.h"
#include "test/unit/device/exec/help.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* Sockets of those who are, or were, on that device. */
static uint32_t sockets_of(uint64_t id)
{
    char prefix[64];
    uint32_t n = 0;
    snprintf(prefix, sizeof prefix, "tally-hand-%016llx-", (unsigned long long)id);
    DIR *folder = opendir("/dev/shm");
    TEST_ASSERT_NOT_NULL(folder);
    for (struct dirent *e; (e = readdir(folder)) != NULL;)
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    closedir(folder);
    return n;
}

static void tell_id(const struct tl__sm *s)
{
    atomic_store(&board->log[0], (uint32_t)s->m->id);
    atomic_store(&board->log[1], (uint32_t)(s->m->id >> 32));
}

static uint64_t told_id(void)
{
    return atomic_load(&board->log[0]) | (uint64_t)atomic_load(&board->log[1]) << 32;
}

static void stop_child(uint32_t i)
{
    int status;
    kill(children[i], SIGSTOP);
    TEST_ASSERT_EQUAL_INT(children[i], waitpid(children[i], &status, WUNTRACED));
    TEST_ASSERT_TRUE(WIFSTOPPED(status));
}

/* Takes so much memory, and lets go of it when it is told to. */
static void have_memory(uint32_t bytes)
{
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    expect(s != NULL, 1);
    expect(tl__sm_memory_take(s, bytes) == 0, 2);
    tell_id(s);
    atomic_fetch_add(&board->ready, 1);
    wait_for(&board->go, 1);
    tl__sm_memory_give(s, bytes);
    tl__sm_close(s);
}

static void have_some(uint32_t i)
{
    have_memory(i == 0 ? 100 : 500);
}

static void have_all(uint32_t i)
{
    (void)i;
    have_memory(1000);
}

static void what_is_handed_over_cannot_be_made_shorter(void)
{
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    struct stat st;
    TEST_ASSERT_NOT_NULL(s);
    int fd = tl__hand_ask(s->m->id);
    TEST_ASSERT_TRUE(fd > 2);
    TEST_ASSERT_EQUAL_INT(-1, ftruncate(fd, 0));
    TEST_ASSERT_EQUAL_INT(EPERM, errno);
    TEST_ASSERT_EQUAL_INT(-1, fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)); /* for those who come later */
    TEST_ASSERT_EQUAL_INT(0, fstat(fd, &st));
    TEST_ASSERT_TRUE(st.st_size == (off_t)sizeof(struct sm_shared));
    close(fd);
    uint64_t id = s->m->id;
    tl__sm_close(s);
    TEST_ASSERT_EQUAL_UINT32(0, sockets_of(id));
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl__hand_ask(id));
}

static void one_who_goes_on_is_enough(void)
{
    start(0, have_some);
    wait_for(&board->ready, 1);
    start(1, have_some);
    wait_for(&board->ready, 2);
    stop_child(0);
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(s);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, tl__sm_memory_take(s, 401));
    TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(s, 400)); /* all three on one device */
    kill(children[0], SIGCONT);
    atomic_store(&board->go, 1);
    ends_well(0);
    ends_well(1);
    tl__sm_close(s);
    TEST_ASSERT_EQUAL_UINT32(0, sockets_of(told_id()));
}

static void if_all_are_stopped_there_is_another_device(void)
{
    start(0, have_all);
    wait_for(&board->ready, 1);
    stop_child(0);
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(s);
    TEST_ASSERT_TRUE(s->m->id != told_id());
    TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(s, 1000));
    kill(children[0], SIGCONT);
    atomic_store(&board->go, 1);
    ends_well(0);
    struct tl__sm *other = join(2, TL_EXEC_MPS); /* the name leads to the new one, still */
    TEST_ASSERT_NOT_NULL(other);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, tl__sm_memory_take(other, 1));
    tl__sm_close(other);
    tl__sm_close(s);
}

static void what_the_dead_leave_is_removed(void)
{
    start(0, have_all);
    wait_for(&board->ready, 1);
    kill_child(0);
    reap(0);
    TEST_ASSERT_EQUAL_UINT32(1, sockets_of(told_id()));
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(s);
    TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(s, 1000));
    TEST_ASSERT_EQUAL_UINT32(0, sockets_of(told_id()));
    tl__sm_close(s);
}

static void close_everything(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    expect(s != NULL, 1);
    expect(close_range(3, ~0U, 0) == 0, 2);
    int own = open("/dev/null", O_RDONLY); /* numbers are used again */
    tell_id(s);
    atomic_store(&board->ready, 1);
    wait_for(&board->go, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    tl__sm_release(s, acquire(s));
    tl__sm_close(s);
    expect(fcntl(own, F_GETFD) >= 0, 3);
}

static void who_closes_everything_stays_and_hands_nothing_over(void)
{
    start(0, close_everything);
    wait_for(&board->ready, 1);
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(s);
    TEST_ASSERT_TRUE(s->m->id != told_id());
    atomic_store(&board->go, 1);
    ends_well(0);
    tl__sm_close(s);
}

static void leave_a_child(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    expect(s != NULL, 1);
    tell_id(s);
    if (fork() == 0) {
        tl__sm_abandon(s);
        atomic_store(&board->ready, 1);
        wait_for(&board->go, 1);
        _exit(0);
    }
    for (;;)
        pause();
}

static void a_forked_child_hands_nothing_over(void)
{
    start(0, leave_a_child);
    wait_for(&board->ready, 1);
    kill_child(0);
    reap(0);
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(s);
    TEST_ASSERT_EQUAL_UINT32(0, sockets_of(told_id())); /* it refused, since nobody had it */
    atomic_store(&board->go, 1);
    tl__sm_close(s);
}

/* --- another user ----------------------------------------------------------------------------- */

static int other_socket(const char *path, bool is_to_listen)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    expect(fd >= 0, 10);
    if (is_to_listen)
        expect(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 5) == 0,
               11);
    else
        expect(connect(fd, (struct sockaddr *)&address, sizeof address) < 0, 12);
    return fd;
}

static void be_another_user(uint32_t i)
{
    char path[100];
    (void)i;
    wait_for(&board->ready, 1);
    expect(setgid(65534) == 0 && setuid(65534) == 0, 1);
    close(other_socket((const char *)&board->log[16], false)); /* it is not let in */
    snprintf(path, sizeof path, "/dev/shm/tally-hand-%016llx-0000000000000000",
             (unsigned long long)told_id());
    int fd = other_socket(path, true);
    atomic_store(&board->go, 1);
    wait_for(&board->go, 2);
    int came = accept(fd, NULL, NULL);
    unlink(path);
    expect(came < 0 && errno == EAGAIN, 2);
}

static void other_users_are_not_asked_and_get_nothing(void)
{
    if (geteuid() != 0)
        TEST_IGNORE_MESSAGE("takes root, to be another user");
    start(0, be_another_user);
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(s);
    tell_id(s);
    DIR *folder = opendir("/dev/shm");
    char prefix[64];
    snprintf(prefix, sizeof prefix, "tally-hand-%016llx-", (unsigned long long)s->m->id);
    for (struct dirent *e; (e = readdir(folder)) != NULL;)
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0)
            snprintf((char *)&board->log[16], 100, "/dev/shm/%.80s", e->d_name);
    closedir(folder);
    atomic_store(&board->ready, 1);
    wait_for(&board->go, 1);
    struct tl__sm *other = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(other);
    TEST_ASSERT_TRUE(other->m->id == s->m->id);
    atomic_store(&board->go, 2);
    ends_well(0);
    tl__sm_close(other);
    tl__sm_close(s);
}

/* --- the lock --------------------------------------------------------------------------------- */

static void keep_the_lock(uint32_t i)
{
    char path[100];
    (void)i;
    snprintf(path, sizeof path, "/dev/shm/%s.2", name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    expect(fd >= 0 && flock(fd, LOCK_EX) == 0, 1);
    atomic_store(&board->ready, 1);
    for (;;)
        pause();
}

static void who_keeps_the_lock_is_passed_over(void)
{
    struct tl__sm *first = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(first);
    start(0, keep_the_lock);
    wait_for(&board->ready, 1);
    unsigned before = atomic_exchange(&tl__segment_patience_ms, 100);
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    atomic_store(&tl__segment_patience_ms, before);
    TEST_ASSERT_NOT_NULL(s);
    tl__sm_close(s);
    tl__sm_close(first);
}

static void without_a_file_too(void)
{
    unsetenv("TALLY_DEVICE_SHM");
    who_keeps_the_lock_is_passed_over();
    setenv("TALLY_DEVICE_SHM", "file", 1);
}

int main(void)
{
    UNITY_BEGIN();
    setenv("TALLY_DEVICE_SHM", "file", 1);
    RUN_TEST(what_is_handed_over_cannot_be_made_shorter);
    RUN_TEST(one_who_goes_on_is_enough);
    RUN_TEST(if_all_are_stopped_there_is_another_device);
    RUN_TEST(what_the_dead_leave_is_removed);
    RUN_TEST(who_closes_everything_stays_and_hands_nothing_over);
    RUN_TEST(a_forked_child_hands_nothing_over);
    RUN_TEST(other_users_are_not_asked_and_get_nothing);
    RUN_TEST(who_keeps_the_lock_is_passed_over);
    RUN_TEST(without_a_file_too);
    return UNITY_END();
}
