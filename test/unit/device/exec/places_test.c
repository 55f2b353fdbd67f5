/* Who gets onto a device that is full. */
#include "device/exec/sm.h"
#include "test/unit/device/exec/help.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static int try_to_join(bool is_preferred, struct tl_error *err)
{
    struct tl__sm_config config = {name, 1, TL_EXEC_MPS, 1000, 2000, false, is_preferred};
    struct tl__sm *s = NULL;
    int rc = tl__sm_open(&s, &config, err);
    tl__sm_close(s);
    return rc;
}

/* As the body of a child: its status tells what went wrong. */
static void join_a_full_device(uint32_t i)
{
    struct tl_error err = {0};
    (void)i;
    expect(try_to_join(false, &err) == -EUSERS, 1);
    expect(strstr(err.text, "112 processes") != NULL && strstr(err.text, "high") != NULL, 2);
    expect(try_to_join(true, &err) == 0, 3);
}

static void places_are_kept_for_who_is_above(void)
{
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    /* As if so many others were there: all of them this very thread, which lives. */
    for (uint32_t i = 0; i < MAX_PROCS - KEPT_PROCS; i++) {
        struct sm_proc *p = &s->m->procs[i];
        if (p == s->mine)
            continue;
        atomic_store(&p->pid, (uint32_t)getpid());
        atomic_store(&p->pid_namespace, tl__pid_namespace());
        atomic_store(&p->alive, (uint32_t)gettid());
    }
    atomic_store(&s->m->n_procs, MAX_PROCS - KEPT_PROCS);
    start(0, join_a_full_device);
    ends_well(0);
    tl__sm_close(s);
}

static void a_link_in_its_place_is_told(void)
{
    struct tl_error err = {0};
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/%s.2", name);
    TEST_ASSERT_EQUAL_INT(0, symlink("/dev/null", path));
    int rc = try_to_join(false, &err);
    unlink(path);
    TEST_ASSERT_EQUAL_INT(-ELOOP, rc);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "TALLY_DEVICE_NAME"), err.text);
}

/* Another user was there first: it is told what to do, and nothing of his is used or removed. */
static void what_is_somebody_elses_is_told(void)
{
    struct tl_error err = {0};
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/%s.2", name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    TEST_ASSERT_TRUE(fd >= 0);
    bool is_his = fchown(fd, 65534, 65534) == 0;
    int rc = try_to_join(false, &err);
    bool is_there = access(path, F_OK) == 0;
    close(fd);
    unlink(path);
    if (!is_his)
        TEST_IGNORE_MESSAGE("only root can give a file away");
    TEST_ASSERT_EQUAL_INT(-EACCES, rc);
    TEST_ASSERT_TRUE(is_there);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "TALLY_DEVICE_NAME"), err.text);
}

static void a_pipe_in_its_place_holds_nobody_up(void)
{
    struct tl_error err = {0};
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/%s.2", name);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(path, 0600));
    int rc = try_to_join(false, &err);
    unlink(path);
    TEST_ASSERT_EQUAL_INT(-EACCES, rc);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, path), err.text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(places_are_kept_for_who_is_above);
    RUN_TEST(a_link_in_its_place_is_told);
    RUN_TEST(what_is_somebody_elses_is_told);
    RUN_TEST(a_pipe_in_its_place_holds_nobody_up);
    return UNITY_END();
}
