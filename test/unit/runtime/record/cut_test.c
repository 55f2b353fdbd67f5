/* What others do to the file of a record while its job runs: cut it off, remove it, close its
 * descriptor, forbid to write.  The job never notices, and the record lacks as little as can be. */
#include "test/unit/runtime/record/help.h"

#include <sys/resource.h>
#include <sys/wait.h>

static const char *path_of_record(void)
{
    static char path[5000];
    snprintf(path, sizeof path, "%s/job.%ld.tally", folder, (long)getpid());
    return path;
}

/* Waits for the record's own thread, however long that takes. */
static void until_file_has(off_t bytes)
{
    struct stat st = {0};
    while (stat(path_of_record(), &st) == 0 && st.st_size < bytes)
        usleep(1000);
    TEST_ASSERT_TRUE(st.st_size >= bytes);
}

/* Cut to nothing, to the middle of the table and to the middle of the pool, while threads tell. */
static void a_record_that_is_cut_off_ends_nobody_and_loses_nothing(void)
{
    static const off_t lengths[] = {0, 100, 5000, 700000, 744000};
    struct tl_record *r = open_record();
    struct stat whole;
    pthread_t threads[THREADS];
    TEST_ASSERT_EQUAL_INT(0, stat(path_of_record(), &whole));
    for (int i = 0; i < THREADS; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, tell, r));
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        TEST_ASSERT_EQUAL_INT(0, truncate(path_of_record(), lengths[i]));
        until_file_has(whole.st_size);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    TEST_ASSERT_EQUAL_INT(0, truncate(path_of_record(), 0));
    tl_record_close(r);
    struct tl_report_job j = read_back();
    uint64_t launches = 0, ran = 0, cuts = 0;
    for (uint32_t i = 0; i < j.n_kernels; i++) {
        launches += j.kernels[i].all_launches;
        ran += j.kernels[i].ran.count;
    }
    for (uint32_t i = 0; i < j.n_notes; i++)
        cuts += strstr(j.notes[i].text, "cut") != NULL ? j.notes[i].times : 0;
    TEST_ASSERT_EQUAL_UINT64(THREADS * TURNS, launches);
    TEST_ASSERT_EQUAL_UINT64(THREADS * TURNS, ran);
    TEST_ASSERT_EQUAL_UINT64(THREADS * TURNS / 16, j.inferred.count);
    TEST_ASSERT_TRUE(cuts > 0);
}

/* Of one that was cut off and whose job could not write it again, the reader says what is there. */
static void a_record_that_stays_cut_off_says_what_is_missing(void)
{
    struct tl_record *r = open_record();
    char expected[64];
    struct stat st;
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "kernel%d", i);
        tl_record_ran(tl_record_kernel(r, name), 1, 2);
    }
    tl_record_close(r);
    TEST_ASSERT_EQUAL_INT(0, stat(path_of_record(), &st));
    TEST_ASSERT_EQUAL_INT(0, truncate(path_of_record(), 800000));
    const char *problem;
    struct tl_report_job j = read_back_of(getpid(), &problem);
    snprintf(expected, sizeof expected, "800000 of its %lld bytes", (long long)st.st_size);
    TEST_ASSERT_NOT_NULL(problem);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(problem, expected), problem);
    TEST_ASSERT_TRUE(j.n_kernels > 10 && j.n_kernels < 101);
}

static void a_record_that_was_removed_stays_away(void)
{
    struct tl_record *r = open_record();
    TEST_ASSERT_EQUAL_INT(0, unlink(path_of_record()));
    tell(r);
    tl_record_sync(r);
    tell(r); /* it grows no more */
    tl_record_close(r);
    TEST_ASSERT_EQUAL_INT(-1, access(path_of_record(), F_OK));
}

/* As programs do that close all descriptors which they do not know. */
static void a_descriptor_that_is_another_files_by_now_is_not_written_to(void)
{
    char other[5000], text[16] = "";
    int first = open("/dev/null", O_RDONLY);
    TEST_ASSERT_TRUE(first >= 0);
    close(first);
    struct tl_record *r = open_record(); /* has that number */
    tl_record_launched(tl_record_kernel(r, "before"), TL_RUNG_WHOLE, 1);
    tl_record_sync(r);
    snprintf(other, sizeof other, "%s/other", folder);
    int fd = open(other, O_RDWR | O_CREAT, 0600);
    TEST_ASSERT_EQUAL_INT(5, write(fd, "hello", 5));
    TEST_ASSERT_EQUAL_INT(first, dup2(fd, first));
    tl_record_launched(tl_record_kernel(r, "after"), TL_RUNG_WHOLE, 1);
    tl_record_close(r);
    TEST_ASSERT_EQUAL_INT(5, pread(first, text, sizeof text, 0)); /* still open, and as it was */
    TEST_ASSERT_EQUAL_STRING("hello", text);
    close(first);
    close(fd);
    struct tl_report_job j = read_back();
    TEST_ASSERT_EQUAL_UINT64(1, kernel_named(&j, "before")->all_launches);
    TEST_ASSERT_EQUAL_UINT64(1, kernel_named(&j, "after")->all_launches);
}

/* The limit of a file's size comes down while the record is open: writing fails, that is all. */
static void a_limit_that_is_lowered_later_does_not_end_the_job(void)
{
    pid_t child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        struct tl_record *r = open_record();
        struct rlimit limit = {4096, 4096};
        tell(r);
        setrlimit(RLIMIT_FSIZE, &limit);
        tell(r);
        tl_record_sync(r);
        tl_record_close(r);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    TEST_ASSERT_TRUE_MESSAGE(WIFEXITED(status), "killed");
}

/* What is told reaches the file although nobody asks for it. */
static void a_record_is_written_by_itself(void)
{
    struct tl_record *r = open_record();
    for (int turn = 1; turn <= 3; turn++) {
        tl_record_launched(tl_record_kernel(r, "k"), TL_RUNG_WHOLE, 1);
        tl_record_wake(r);
        for (uint64_t seen = 0; seen != (uint64_t)turn;) {
            struct tl_report_job j = read_back();
            seen = 0;
            for (uint32_t i = 0; i < j.n_kernels; i++)
                seen += strcmp(j.kernels[i].name, "k") == 0 ? j.kernels[i].all_launches : 0;
            usleep(turn * 100000); /* at the end it rests in between */
        }
    }
    tl_record_close(r);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_record_that_is_cut_off_ends_nobody_and_loses_nothing);
    RUN_TEST(a_record_that_stays_cut_off_says_what_is_missing);
    RUN_TEST(a_record_that_was_removed_stays_away);
    RUN_TEST(a_descriptor_that_is_another_files_by_now_is_not_written_to);
    RUN_TEST(a_limit_that_is_lowered_later_does_not_end_the_job);
    RUN_TEST(a_record_is_written_by_itself);
    return UNITY_END();
}
