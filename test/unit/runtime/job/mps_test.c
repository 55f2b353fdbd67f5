/* The multi-process service is found by its socket, and believed only if somebody listens. */
#include "runtime/job/mps.h"
#include "test/unit/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <unity.h>

static char folder[64];
static struct tl_mps mps;

void setUp(void)
{
    scratch_path(folder, sizeof folder, "mps-XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
}

void tearDown(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/control", folder);
    unlink(path);
    rmdir(folder);
}

static int bound(bool listens, const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", folder, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TEST_ASSERT_EQUAL_INT(0, bind(fd, (struct sockaddr *)&a, sizeof a));
    if (listens)
        TEST_ASSERT_EQUAL_INT(0, listen(fd, 1));
    return fd;
}

static void without_a_socket_there_is_none(void)
{
    tl_mps_look(&mps);
    TEST_ASSERT_EQUAL(TL_MPS_NONE, mps.state);
    TEST_ASSERT_FALSE(tl_mps_serves(&mps, 0));
}

static void a_file_that_is_no_socket_is_none(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/control", folder);
    fclose(fopen(path, "w"));
    tl_mps_look(&mps);
    TEST_ASSERT_EQUAL(TL_MPS_NONE, mps.state);
}

static void a_daemon_that_listens_runs(void)
{
    int fd = bound(true, "control");
    tl_mps_look(&mps);
    close(fd);
    TEST_ASSERT_EQUAL(TL_MPS_RUNS, mps.state);
    TEST_ASSERT_EQUAL(geteuid(), mps.owner);
    TEST_ASSERT_TRUE(tl_mps_serves(&mps, geteuid()));
}

static void a_socket_that_was_left_is_not_taken_for_a_daemon(void)
{
    close(bound(true, "control"));
    tl_mps_look(&mps);
    TEST_ASSERT_EQUAL(TL_MPS_UNSEEN, mps.state);
}

static void a_neighbour_with_a_longer_name_is_another_one(void)
{
    close(bound(true, "control"));
    int fd = bound(true, "control_privileged");
    tl_mps_look(&mps);
    close(fd);
    char path[128];
    snprintf(path, sizeof path, "%s/control_privileged", folder);
    unlink(path);
    TEST_ASSERT_EQUAL(TL_MPS_UNSEEN, mps.state);
}

static void only_root_s_daemon_serves_others(void)
{
    mps = (struct tl_mps){.state = TL_MPS_RUNS, .owner = 1000};
    TEST_ASSERT_TRUE(tl_mps_serves(&mps, 1000));
    TEST_ASSERT_FALSE(tl_mps_serves(&mps, 1001));
    TEST_ASSERT_FALSE(tl_mps_serves(&mps, 0));
    mps.owner = 0;
    TEST_ASSERT_TRUE(tl_mps_serves(&mps, 1001));
}

static void limits_are_those_of_the_environment(void)
{
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30", 1);
    tl_mps_look(&mps);
    TEST_ASSERT_EQUAL_STRING("30", mps.thread_percentage);
    TEST_ASSERT_NULL(mps.memory_limit);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(without_a_socket_there_is_none);
    RUN_TEST(a_file_that_is_no_socket_is_none);
    RUN_TEST(a_daemon_that_listens_runs);
    RUN_TEST(a_socket_that_was_left_is_not_taken_for_a_daemon);
    RUN_TEST(a_neighbour_with_a_longer_name_is_another_one);
    RUN_TEST(only_root_s_daemon_serves_others);
    RUN_TEST(limits_are_those_of_the_environment);
    return UNITY_END();
}
