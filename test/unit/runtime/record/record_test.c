/* The recorder, by reading back what it wrote: values against exact ones, many threads, death at
 * any instruction, a full disk, forks. */
#include "test/unit/runtime/record/help.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* --- operations --- */

static struct tl_ops names = {.n = 4, .names = {NULL, "one", "two", "three"}};

static void *count_ops(void *kernel)
{
    for (int i = 0; i < 10000; i++)
        tl_record_op(kernel, (uint32_t)(i % 5)); /* 0 is none, 4 has no name */
    return NULL;
}

static void operations_are_counted_per_kernel_by_many_threads(void)
{
    struct tl_record_job job = some_job;
    struct tl_record *r = NULL;
    pthread_t threads[4];
    job.ops = &names;
    TEST_ASSERT_EQUAL_INT(0, tl_record_open(&r, folder, &job, NULL));
    struct tl_record_kernel *k = tl_record_kernel(r, "k");
    tl_record_launched(k, TL_RUNG_WHOLE, 1);
    for (int i = 0; i < 4; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, count_ops, k));
    for (int i = 0; i < 100; i++)
        tl_record_sync(r);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    tl_record_close(r);
    struct tl_report_job j = read_back();
    const struct tl_report_kernel *read = kernel_named(&j, "k");
    TEST_ASSERT_EQUAL_UINT32(3, read->n_ops);
    for (uint32_t i = 0; i < 3; i++)
        TEST_ASSERT_EQUAL_UINT64(8000, read->ops[i].launches);
}

static void more_pairs_than_there_is_room_for_are_left_out(void)
{
    struct tl_record_job job = some_job;
    struct tl_record *r = NULL;
    char name[32];
    job.ops = &names;
    TEST_ASSERT_EQUAL_INT(0, tl_record_open(&r, folder, &job, NULL));
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "k%d", i);
        struct tl_record_kernel *k = tl_record_kernel(r, name);
        for (uint32_t op = 1; op <= 3; op++)
            tl_record_op(k, op);
    }
    tl_record_close(r);
    struct tl_report_job j = read_back();
    uint32_t n = 0;
    for (uint32_t i = 0; i < j.n_kernels; i++)
        n += j.kernels[i].n_ops;
    TEST_ASSERT_TRUE(n > 3000 && n <= 4096);
}

/* --- values --- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void percentiles_are_within_one_percent_of_the_sorted_values(void)
{
    enum { N = 20000 };
    static uint64_t values[N];
    static const double percents[] = {1, 10, 50, 90, 99, 99.9};
    struct tl_record *r = open_record();
    struct tl_record_kernel *k = tl_record_kernel(r, "k");
    srand48(7);
    uint64_t sum = 0;
    for (int i = 0; i < N; i++) {
        values[i] = (uint64_t)(1 + 1000 * drand48() * drand48() * (1 << (i % 30)));
        sum += values[i];
        tl_record_ran(k, 0, values[i]);
    }
    tl_record_close(r);
    qsort(values, N, sizeof values[0], by_value);
    struct tl_report_job j = read_back();
    const struct tl_report_histogram *h = &kernel_named(&j, "k")->ran;
    TEST_ASSERT_EQUAL_UINT64(N, h->count);
    TEST_ASSERT_EQUAL_UINT64(sum, h->sum);
    TEST_ASSERT_EQUAL_UINT64(values[N - 1], h->max);
    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        double exact = (double)values[(size_t)(percents[i] / 100 * N + 0.5) - 1];
        double told = (double)tl_histogram_percentile(h, percents[i]);
        TEST_ASSERT_DOUBLE_WITHIN(exact / 100 + 0.5, exact, told);
    }
}

static void every_value_lies_in_its_step_and_the_middle_is_near(void)
{
    for (uint64_t value = 0; value < (UINT64_C(1) << 40); value += 1 + value / 77) {
        uint32_t step;
        uint32_t group = tl_histogram_group(value, &step);
        uint64_t width, low = tl_histogram_low(group, step, &width);
        TEST_ASSERT_TRUE(low <= value && value < low + width);
        uint64_t middle = low + width / 2;
        TEST_ASSERT_DOUBLE_WITHIN((double)value / 100, (double)value, (double)middle);
    }
    uint32_t step;
    TEST_ASSERT_EQUAL_UINT32(TL_HISTOGRAM_GROUPS - 1, tl_histogram_group(UINT64_MAX, &step));
    TEST_ASSERT_EQUAL_UINT32(TL_HISTOGRAM_STEPS - 1, step);
}

static void everything_told_is_read_back(void)
{
    struct tl_record *r = open_record();
    struct tl_record_kernel *k = tl_record_kernel(r, "_Z4vaddPKfS0_Pfi");
    TEST_ASSERT_EQUAL_PTR(k, tl_record_kernel(r, "_Z4vaddPKfS0_Pfi"));
    tl_record_launched(k, TL_RUNG_TICKET, 100);
    tl_record_launched(k, TL_RUNG_TICKET, 50);
    tl_record_launched(k, TL_RUNG_WHOLE, 7);
    tl_record_ran(k, 10, 20);
    tl_record_preempted(k, 33, 22);
    tl_record_uncontrolled(k, 44);
    tl_record_rescued(k);
    tl_record_rescued(k);
    tl_record_copied(r, TL_COPY_FROM_DEVICE, 4096);
    tl_record_note(r, "twice");
    tl_record_note(r, "once");
    tl_record_note(r, "twice");
    tl_record_close(r);

    struct tl_report_job j = read_back();
    TEST_ASSERT_EQUAL_STRING("job", j.name);
    TEST_ASSERT_EQUAL_STRING("./job --fast", j.command);
    TEST_ASSERT_EQUAL_INT(TL_LEVEL_HIGH, j.level);
    TEST_ASSERT_EQUAL_UINT32(0, j.n_unended);
    const struct tl_report_kernel *read = kernel_named(&j, "_Z4vaddPKfS0_Pfi");
    TEST_ASSERT_EQUAL_UINT64(2, read->launches[TL_RUNG_TICKET]);
    TEST_ASSERT_EQUAL_UINT64(150, read->blocks[TL_RUNG_TICKET]);
    TEST_ASSERT_EQUAL_UINT64(1, read->launches[TL_RUNG_WHOLE]);
    TEST_ASSERT_EQUAL_UINT64(1500, read->preempted_blocks.max);
    TEST_ASSERT_EQUAL_UINT64(157, read->all_blocks);
    TEST_ASSERT_EQUAL_UINT64(30, tl_histogram_percentile(&read->total, 50));
    TEST_ASSERT_EQUAL_UINT64(33, read->preempted.max);
    TEST_ASSERT_EQUAL_UINT64(44, read->uncontrolled_ns);
    TEST_ASSERT_EQUAL_UINT64(2, read->rescues);
    TEST_ASSERT_EQUAL_UINT64(4096, j.copies[TL_COPY_FROM_DEVICE].bytes);
    TEST_ASSERT_EQUAL_UINT32(2, j.n_notes);
    TEST_ASSERT_EQUAL_STRING("twice", j.notes[0].text);
    TEST_ASSERT_EQUAL_UINT64(2, j.notes[0].times);
}

static void nothing_is_written_without_a_record(void)
{
    tl_record_launched(tl_record_kernel(NULL, "k"), TL_RUNG_WHOLE, 1);
    tl_record_ran(NULL, 1, 1);
    tl_record_preempted(NULL, 1, 1);
    tl_record_uncontrolled(NULL, 1);
    tl_record_rescued(NULL);
    tl_record_copied(NULL, TL_COPY_SET, 1);
    tl_record_spanned(NULL, TL_SPAN_RUN, NULL, 0, 1, 2);
    tl_record_request(NULL, 1, 2, true);
    tl_record_note(NULL, "");
    tl_record_sync(NULL);
    tl_record_end(NULL);
    tl_record_abandon(NULL);
    tl_record_close(NULL);
}

static void kernels_beyond_the_table_are_counted_together(void)
{
    struct tl_record *r = open_record();
    for (int i = 0; i < TL_RECORD_KERNELS + 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "kernel%d", i);
        tl_record_launched(tl_record_kernel(r, name), TL_RUNG_WHOLE, 1);
    }
    tl_record_close(r);
    struct tl_report_job j = read_back();
    TEST_ASSERT_EQUAL_UINT32(TL_RECORD_KERNELS, j.n_kernels);
    TEST_ASSERT_EQUAL_UINT64(11, kernel_named(&j, "(all others)")->all_launches);
    TEST_ASSERT_EQUAL_UINT64(1, kernel_named(&j, "kernel4094")->all_launches);
}

/* --- timeline and requests --- */

static void the_ring_keeps_the_last_spans(void)
{
    struct tl_record *r = open_record();
    struct tl_record_kernel *k = tl_record_kernel(r, "k");
    uint64_t begin = tl_record_now();
    for (uint64_t i = 0; i < TL_RECORD_SPANS + 100; i++)
        tl_record_spanned(r, TL_SPAN_RUN, k, 3, begin + i * 10, begin + i * 10 + 5);
    tl_record_close(r);
    struct tl_report_job j = read_back();
    TEST_ASSERT_EQUAL_UINT32(TL_RECORD_SPANS, j.n_spans);
    TEST_ASSERT_EQUAL_UINT64(100, j.forgotten_spans);
    uint64_t first = UINT64_MAX, ran = 0;
    for (uint32_t i = 0; i < j.n_spans; i++)
        first = first < j.spans[i].begin_ns ? first : j.spans[i].begin_ns;
    TEST_ASSERT_EQUAL_UINT64(begin + 1000, first);
    for (uint32_t i = 0; i < j.n_slots; i++)
        ran += j.slots[i].run_ns;
    TEST_ASSERT_EQUAL_UINT64((TL_RECORD_SPANS + 100) * 5, ran); /* the activity forgets nothing */
}

static void the_slowest_requests_are_kept_with_their_culprits(void)
{
    struct tl_record *r = open_record();
    struct tl_record_kernel *fast = tl_record_kernel(r, "fast"),
                            *slow = tl_record_kernel(r, "slow");
    uint64_t at = tl_record_now();
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t latency = 1000 + (i * 7919 % 1000) * 10; /* every multiple once, in no order */
        tl_record_spanned(r, TL_SPAN_RUN, fast, 0, at, at + 100);
        tl_record_spanned(r, TL_SPAN_WAIT, slow, 0, at + 100, at + 300);
        tl_record_spanned(r, TL_SPAN_RUN, slow, 0, at + 300, at + latency);
        tl_record_request(r, at, at + latency, true);
        at += 20000;
    }
    tl_record_close(r);
    struct tl_report_job j = read_back();
    TEST_ASSERT_EQUAL_UINT64(1000, j.marked.count);
    TEST_ASSERT_EQUAL_UINT32(TL_RECORD_SLOW, j.n_slow);
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < j.n_slow; i++) {
        const struct tl_report_slow *s = &j.slow[i];
        least = least < s->latency_ns ? least : s->latency_ns;
        TEST_ASSERT_EQUAL_STRING("slow", j.kernels[s->culprit].name);
        TEST_ASSERT_EQUAL_UINT64(s->latency_ns - 100, s->culprit_ns);
        TEST_ASSERT_EQUAL_UINT64(200, s->culprit_wait_ns);
        TEST_ASSERT_EQUAL_UINT64(2, s->kernels);
    }
    TEST_ASSERT_EQUAL_UINT64(1000 + (1000 - TL_RECORD_SLOW) * 10, least);
}

/* --- threads, deaths, forks --- */

static void no_count_is_lost_between_threads(void)
{
    struct tl_record *r = open_record();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, tell, r));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    tl_record_close(r);
    struct tl_report_job j = read_back();
    uint64_t launches = 0, blocks = 0, ran = 0, sum = 0, notes = 0;
    for (uint32_t i = 0; i < j.n_kernels; i++) {
        launches += j.kernels[i].all_launches;
        blocks += j.kernels[i].all_blocks;
        ran += j.kernels[i].ran.count;
        sum += j.kernels[i].ran.sum;
    }
    for (uint32_t i = 0; i < j.n_notes; i++)
        notes += j.notes[i].times;
    TEST_ASSERT_EQUAL_UINT32(51, j.n_kernels);
    TEST_ASSERT_EQUAL_UINT64(THREADS * TURNS, launches);
    TEST_ASSERT_EQUAL_UINT64(THREADS * TURNS * 3, blocks);
    TEST_ASSERT_EQUAL_UINT64(THREADS * TURNS, ran);
    TEST_ASSERT_EQUAL_UINT64(THREADS * (uint64_t)TURNS * (TURNS - 1) / 2 * 37, sum);
    TEST_ASSERT_EQUAL_UINT64(THREADS * TURNS / 16, j.inferred.count);
    TEST_ASSERT_EQUAL_UINT32(50, j.n_notes);
    TEST_ASSERT_EQUAL_UINT64(THREADS * TURNS, notes);
}

/* What the child had begun to tell, had finished telling, and had seen written, in memory that
 * outlives it. */
struct witness {
    _Atomic uint64_t begun, done, written;
};

static void tell_until_killed(struct witness *w)
{
    struct tl_record *r = NULL;
    struct tl_error err;
    if (tl_record_open(&r, folder, &some_job, &err) < 0)
        _exit(1);
    for (uint64_t i = 0;; i++) {
        char name[32];
        snprintf(name, sizeof name, "kernel%u", (unsigned)(i % 300));
        atomic_fetch_add(&w->begun, 1);
        struct tl_record_kernel *k = tl_record_kernel(r, name);
        tl_record_launched(k, TL_RUNG_WHOLE, 1);
        tl_record_ran(k, i % 1000, i * i % 10000000);
        uint64_t now = tl_record_now();
        tl_record_spanned(r, TL_SPAN_RUN, k, 0, now, now + 10);
        tl_record_request(r, now, now + i % 5000, true);
        tl_record_note(r, name);
        atomic_fetch_add(&w->done, 1);
        if (i % 97 == 0) {
            tl_record_sync(r);
            atomic_store(&w->written, i + 1);
        }
    }
}

static void a_record_is_whole_wherever_its_writer_was_killed(void)
{
    struct witness *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(w != MAP_FAILED);
    for (uint64_t round = 0; round < 40; round++) {
        atomic_store(&w->begun, 0);
        atomic_store(&w->done, 0);
        atomic_store(&w->written, 0);
        pid_t child = fork();
        TEST_ASSERT_TRUE(child >= 0);
        if (child == 0)
            tell_until_killed(w);
        while (atomic_load(&w->done) < 1 + round * round * 8)
            sched_yield();
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        const char *problem;
        struct tl_report_job j = read_back_of(child, &problem);
        TEST_ASSERT_NULL_MESSAGE(problem, problem);
        TEST_ASSERT_EQUAL_UINT32(1, j.n_unended);
        uint64_t ran = 0, launches = 0;
        for (uint32_t i = 0; i < j.n_kernels; i++) {
            ran += j.kernels[i].ran.count;
            launches += j.kernels[i].all_launches;
        }
        uint64_t begun = atomic_load(&w->begun), written = atomic_load(&w->written);
        TEST_ASSERT_TRUE(written <= ran && ran <= begun);
        TEST_ASSERT_TRUE(written <= launches && launches <= begun);
        TEST_ASSERT_TRUE(written <= j.marked.count && j.marked.count <= begun);
        for (uint32_t i = 0; i < j.n_spans; i++)
            TEST_ASSERT_TRUE(j.spans[i].kind == TL_SPAN_REQUEST ||
                             j.spans[i].end_ns - j.spans[i].begin_ns == 10);
    }
    munmap(w, 4096);
}

static void a_child_that_abandons_changes_nothing(void)
{
#ifdef __SANITIZE_THREAD__
    TEST_IGNORE_MESSAGE("TSan does not start threads after a fork of many");
#endif
    struct tl_record *r = open_record();
    struct tl_record_kernel *k = tl_record_kernel(r, "k");
    tl_record_launched(k, TL_RUNG_WHOLE, 1);
    tl_record_sync(r);
    pid_t child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        tl_record_abandon(r);
        tl_record_launched(k, TL_RUNG_WHOLE, 1000);
        tl_record_ran(k, 1, 1);
        tl_record_launched(tl_record_kernel(r, "new"), TL_RUNG_WHOLE, 1000);
        tl_record_request(r, 1, 2, true);
        tl_record_sync(r);
        struct tl_record *own = NULL;
        struct tl_error err;
        if (tl_record_open(&own, folder, &some_job, &err) < 0)
            _exit(1);
        tl_record_launched(tl_record_kernel(own, "mine"), TL_RUNG_WHOLE, 5);
        tl_record_close(own);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    TEST_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    tl_record_close(r);
    struct tl_report_job j = read_back();
    TEST_ASSERT_EQUAL_UINT64(1, kernel_named(&j, "k")->all_blocks);
    TEST_ASSERT_EQUAL_UINT64(0, j.marked.count);
    TEST_ASSERT_EQUAL_UINT32(2, j.n_kernels);
    const char *problem;
    struct tl_report_job of_child = read_back_of(child, &problem);
    TEST_ASSERT_EQUAL_UINT64(5, kernel_named(&of_child, "mine")->all_blocks);
}

static void what_comes_after_the_end_does_no_harm(void)
{
    struct tl_record *r = open_record();
    struct tl_record_kernel *k = tl_record_kernel(r, "k");
    tl_record_end(r);
    for (int i = 0; i < 5000; i++) {
        char name[32];
        snprintf(name, sizeof name, "late%d", i);
        tl_record_ran(tl_record_kernel(r, name), 1, (uint64_t)i << (i % 30));
    }
    tl_record_launched(k, TL_RUNG_WHOLE, 1);
    tl_record_end(r);
    tl_record_close(r);
    TEST_ASSERT_EQUAL_UINT32(0, read_back().n_unended);
}

static void two_records_of_one_process_are_two_files(void)
{
    struct tl_record *a = open_record(), *b = open_record();
    tl_record_close(a);
    tl_record_close(b);
    int files = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        files += strstr(e->d_name, ".tally") != NULL;
    closedir(d);
    TEST_ASSERT_EQUAL_INT(2, files);
}

static void a_name_never_leaves_the_folder(void)
{
    struct tl_record *r = NULL;
    struct tl_record_job job = some_job;
    char path[5000];
    job.name = "../../a b";
    TEST_ASSERT_EQUAL_INT(0, tl_record_open(&r, folder, &job, NULL));
    snprintf(path, sizeof path, "%s/_._.._a_b.%ld.tally", folder, (long)getpid());
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, access(path, R_OK), path);
    tl_record_close(r);
}

/* --- no room --- */

/* In a child: tells a lot.  Exit 0 if it lived and the record says that something is missing. */
static void tell_too_much(void)
{
    struct tl_record *r = NULL;
    struct tl_error err;
    if (tl_record_open(&r, folder, &some_job, &err) < 0)
        _exit(1);
    for (int i = 0; i < 3000; i++) {
        char name[512];
        snprintf(name, sizeof name, "a_long_name_%400d", i);
        struct tl_record_kernel *k = tl_record_kernel(r, name);
        for (int bit = 0; bit < 30; bit++)
            tl_record_ran(k, 1, UINT64_C(1) << bit);
        tl_record_request(r, 1, 2 + (uint64_t)i, true);
    }
    tl_record_close(r);
    const char *problem;
    struct tl_report_job j = read_back_of(getpid(), &problem);
    uint64_t ran = 0;
    for (uint32_t i = 0; i < j.n_kernels; i++)
        ran += j.kernels[i].ran.count;
    /* Every value is counted somewhere, if only without its place in a histogram. */
    bool is_right = problem == NULL && j.is_full && j.n_notes == 1 && ran == 3000 * 30 &&
                    strstr(j.notes[0].text, "missing") != NULL;
    _exit(is_right ? 0 : 2);
}

static void a_file_size_limit_stops_the_record_and_not_the_job(void)
{
    pid_t child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        struct rlimit limit = {1500000, 1500000};
        setrlimit(RLIMIT_FSIZE, &limit);
        tell_too_much();
    }
    int status;
    waitpid(child, &status, 0);
    TEST_ASSERT_TRUE_MESSAGE(WIFEXITED(status), "killed");
    TEST_ASSERT_EQUAL_INT(0, WEXITSTATUS(status));
}

static bool write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool is_good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return is_good;
}

static void a_full_disk_stops_the_record_and_not_the_job(void)
{
    enum { NO_NAMESPACE = 33 };
    pid_t child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        char users[64], groups[64];
        snprintf(users, sizeof users, "0 %u 1", geteuid());
        snprintf(groups, sizeof groups, "0 %u 1", getegid());
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
            !write_file("/proc/self/setgroups", "deny") ||
            !write_file("/proc/self/uid_map", users) || !write_file("/proc/self/gid_map", groups) ||
            mount("tally", folder, "tmpfs", 0, "size=1500k") < 0)
            _exit(NO_NAMESPACE);
        tell_too_much();
    }
    int status;
    waitpid(child, &status, 0);
    TEST_ASSERT_TRUE_MESSAGE(WIFEXITED(status), "killed");
    if (WEXITSTATUS(status) == NO_NAMESPACE)
        TEST_IGNORE_MESSAGE("no user namespaces here to mount a small disk in");
    TEST_ASSERT_EQUAL_INT(0, WEXITSTATUS(status));
}

static void a_record_is_its_users_alone(void)
{
    char path[5000];
    struct stat st;
    mode_t before = umask(0);
    struct tl_record *r = open_record();
    umask(before);
    snprintf(path, sizeof path, "%s/job.%ld.tally", folder, (long)getpid());
    TEST_ASSERT_EQUAL_INT(0, stat(path, &st));
    TEST_ASSERT_EQUAL_HEX32(0600, st.st_mode & 07777);
    tl_record_close(r);
}

static void a_record_that_cannot_begin_is_refused_with_a_reason(void)
{
    struct tl_record *r = (struct tl_record *)folder;
    struct tl_error err = {0};
    char path[5000];
    snprintf(path, sizeof path, "%s/file", folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    TEST_ASSERT_TRUE(tl_record_open(&r, path, &some_job, &err) < 0);
    TEST_ASSERT_NULL(r);
    TEST_ASSERT_NOT_NULL(strstr(err.text, path));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(operations_are_counted_per_kernel_by_many_threads);
    RUN_TEST(more_pairs_than_there_is_room_for_are_left_out);
    RUN_TEST(percentiles_are_within_one_percent_of_the_sorted_values);
    RUN_TEST(every_value_lies_in_its_step_and_the_middle_is_near);
    RUN_TEST(everything_told_is_read_back);
    RUN_TEST(nothing_is_written_without_a_record);
    RUN_TEST(kernels_beyond_the_table_are_counted_together);
    RUN_TEST(the_ring_keeps_the_last_spans);
    RUN_TEST(the_slowest_requests_are_kept_with_their_culprits);
    RUN_TEST(no_count_is_lost_between_threads);
    RUN_TEST(a_record_is_whole_wherever_its_writer_was_killed);
    RUN_TEST(a_child_that_abandons_changes_nothing);
    RUN_TEST(what_comes_after_the_end_does_no_harm);
    RUN_TEST(two_records_of_one_process_are_two_files);
    RUN_TEST(a_name_never_leaves_the_folder);
    RUN_TEST(a_file_size_limit_stops_the_record_and_not_the_job);
    RUN_TEST(a_full_disk_stops_the_record_and_not_the_job);
    RUN_TEST(a_record_is_its_users_alone);
    RUN_TEST(a_record_that_cannot_begin_is_refused_with_a_reason);
    return UNITY_END();
}
