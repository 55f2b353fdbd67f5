/* The reader of records: damage, other versions, folders, sums over processes, comparisons, names;
 * and the forms, as far as a program can judge them. */
#include "runtime/record/format.h"
#include "runtime/report/report.h"
#include "test/unit/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unity.h"

static char folder[4096];
static struct tl_report report;

void setUp(void)
{
    TEST_ASSERT_NOT_NULL(mkdtemp(scratch_path(folder, sizeof folder, "report-XXXXXX")));
    tl_report_init(&report);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

void tearDown(void)
{
    tl_report_finish(&report);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* --- records to read --- */

static const char *path_of(const char *name)
{
    static char paths[4][5000];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* A job with `n` launches of vadd that take `ns` each, and as many requests. */
static const struct tl_ops some_ops = {.n = 3, .names = {NULL, "aten::add", "my <layer>"}};

static void write_record(const char *where, const char *name, int level, int n, uint64_t ns)
{
    struct tl_record *r = NULL;
    struct tl_error err = {0};
    struct tl_record_job job = {.name = name,
                                .command = "./",
                                .device = "test",
                                .policy = "p",
                                .level = level,
                                .ops = &some_ops};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_record_open(&r, where, &job, &err), err.text);
    struct tl_record_kernel *k = tl_record_kernel(r, "_Z4vaddPKfS0_Pfi");
    uint64_t at = tl_record_now();
    for (int i = 0; i < n; i++, at += 2 * ns) {
        tl_record_launched(k, TL_RUNG_TICKET, 10);
        tl_record_op(k, i % 4 == 0 ? 1 : 2);
        tl_record_ran(k, 100, ns);
        tl_record_spanned(r, TL_SPAN_RUN, k, 0, at, at + ns);
        tl_record_request(r, at, at + ns, level > 0);
    }
    tl_record_preempted(k, 5000, 4000);
    tl_record_launched(tl_record_kernel(r, "loop_fusion_17"), TL_RUNG_WHOLE, 1);
    tl_record_note(r, "a note <b>&");
    tl_record_close(r);
}

/* The bytes of the record that write_record made; the caller frees them. */
static unsigned char *record_bytes(size_t *n)
{
    write_record(path_of("one"), "job", TL_LEVEL_HIGH, 200, 50000);
    char name[64];
    snprintf(name, sizeof name, "one/job.%ld.tally", (long)getpid());
    int fd = open(path_of(name), O_RDONLY);
    TEST_ASSERT_TRUE(fd >= 0);
    struct stat st;
    fstat(fd, &st);
    unsigned char *bytes = malloc((size_t)st.st_size);
    TEST_ASSERT_EQUAL_INT64(st.st_size, read(fd, bytes, (size_t)st.st_size));
    close(fd);
    *n = (size_t)st.st_size;
    return bytes;
}

static void add(const char *path)
{
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_report_add(&report, path, &err), err.text);
}

static void settle(const regex_t *filter)
{
    TEST_ASSERT_EQUAL_INT(0, tl_report_settle(&report, TL_ORDER_TIME, filter, NULL));
}

/* All forms of what these bytes give; 0 or why they give nothing. */
static int show_all(const unsigned char *bytes, size_t n, struct tl_error *err)
{
    struct tl_report r;
    struct tl_report_job job;
    const char *problem;
    struct tl_buf out = {0};
    tl_report_init(&r);
    int rc = tl_report_read(&job, &problem, &r.arena, bytes, n, err);
    if (rc == 0) {
        struct tl_report_run run = {.label = "x", .path = "y", .jobs = &job, .n_jobs = 1};
        r.runs = &run;
        r.n_runs = 1;
        TEST_ASSERT_EQUAL_INT(0, tl_report_settle(&r, TL_ORDER_P99, NULL, err));
        tl_report_text(&r, &out);
        tl_report_json(&r, &out);
        tl_report_trace(&r, &out);
        tl_report_html(&r, &out);
        TEST_ASSERT_FALSE(out.failed);
    }
    tl_buf_finish(&out);
    tl_report_finish(&r);
    return rc;
}

/* --- damage --- */

static void a_file_cut_anywhere_is_refused_or_read_in_part(void)
{
    size_t n;
    unsigned char *bytes = record_bytes(&n);
    struct tl_error err;
    TEST_ASSERT_EQUAL_INT(0, show_all(bytes, n, &err));
    for (size_t length = 0; length < n; length += length < 6000 ? 501 : 49999) {
        /* A copy of exactly that length, so that sanitizers see one byte too many. */
        unsigned char *part = malloc(length > 0 ? length : 1);
        memcpy(part, bytes, length);
        int rc = show_all(part, length, &err);
        TEST_ASSERT_TRUE(length < sizeof(struct tl_record_head) ? rc == -EINVAL : rc == 0);
        free(part);
    }
    free(bytes);
}

static void a_cut_record_says_so_and_keeps_its_head(void)
{
    size_t n;
    unsigned char *bytes = record_bytes(&n);
    struct tl_report_job job;
    const char *problem;
    TEST_ASSERT_EQUAL_INT(0, tl_report_read(&job, &problem, &report.arena, bytes, 20000, NULL));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(problem, "it is cut off: 20000 of its "), problem);
    TEST_ASSERT_EQUAL_STRING("job", job.name);
    TEST_ASSERT_EQUAL_UINT32(0, job.n_kernels);
    free(bytes);
}

static void other_versions_and_other_files_are_refused_by_name(void)
{
    size_t n;
    unsigned char *bytes = record_bytes(&n);
    struct tl_record_head *head = (struct tl_record_head *)bytes;
    struct tl_error err = {0};
    head->version = 99;
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, show_all(bytes, n, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "version 99"));
    head->version = TL_RECORD_VERSION;
    head->fixed_bytes++;
    TEST_ASSERT_EQUAL_INT(-EINVAL, show_all(bytes, n, &err));
    head->fixed_bytes--;
    head->magic = __builtin_bswap64(TL_RECORD_MAGIC);
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, show_all(bytes, n, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "byte order"));
    head->magic = 0x7f454c46;
    TEST_ASSERT_EQUAL_INT(-EINVAL, show_all(bytes, n, &err));
    free(bytes);
}

static void random_damage_never_does_harm(void)
{
    size_t n;
    unsigned char *bytes = record_bytes(&n);
    unsigned char *damaged = malloc(n);
    struct tl_error err;
    srand48(11);
    for (int round = 0; round < 150; round++) {
        memcpy(damaged, bytes, n);
        for (int i = 0; i < 1 + round % 40; i++) {
            /* Half of the hits go where offsets and counters are. */
            size_t at = 24 + (size_t)(drand48() * (double)(i % 2 == 0 ? n - 32 : 8000));
            size_t in_pool = sizeof(struct tl_record_file) +
                             (size_t)(drand48() * (double)(n - 8 - sizeof(struct tl_record_file)));
            uint64_t value = i % 3 == 0 ? UINT64_MAX : (uint64_t)lrand48() << (i % 33);
            memcpy(damaged + (i % 5 == 0 ? in_pool : at), &value, i % 2 == 0 ? 8 : 1);
        }
        int rc = show_all(damaged, n, &err);
        TEST_ASSERT_TRUE(rc == 0 || rc == -EINVAL || rc == -ENOTSUP);
    }
    free(damaged);
    free(bytes);
}

/* A file that points all its histograms at the same place would otherwise grow without bound when
 * it is read. */
static void overlapping_pieces_are_found(void)
{
    size_t n;
    unsigned char *bytes = record_bytes(&n);
    struct tl_record_file *file = (struct tl_record_file *)bytes;
    uint32_t at = file->kernels[1];
    for (uint32_t i = 0; i < TL_RECORD_KERNELS; i++)
        file->kernels[i] = at;
    struct tl_report_job job;
    const char *problem;
    TEST_ASSERT_EQUAL_INT(0, tl_report_read(&job, &problem, &report.arena, bytes, n, NULL));
    TEST_ASSERT_EQUAL_STRING("histograms are damaged or cut off", problem);
    TEST_ASSERT_TRUE(report.arena.bytes < 40u << 20);
    free(bytes);
}

/* A list of operations that ends in itself. */
static void a_list_without_an_end_is_found(void)
{
    size_t n;
    unsigned char *bytes = record_bytes(&n);
    struct tl_record_file *file = (struct tl_record_file *)bytes;
    struct tl_record_kernel_part *part = (struct tl_record_kernel_part *)(bytes + file->kernels[1]);
    struct tl_record_op_part *op = (struct tl_record_op_part *)(bytes + part->ops);
    TEST_ASSERT_TRUE(part->ops != 0 && op->next != 0);
    op->next = part->ops;
    struct tl_report_job job;
    const char *problem;
    TEST_ASSERT_EQUAL_INT(0, tl_report_read(&job, &problem, &report.arena, bytes, n, NULL));
    TEST_ASSERT_EQUAL_STRING("names of operations are damaged or cut off", problem);
    TEST_ASSERT_TRUE(report.arena.bytes < 40u << 20);
    free(bytes);
}

static void terminals_get_no_orders_from_a_file(void)
{
    struct tl_record *r = NULL;
    struct tl_record_job job = {
        .name = "a\033[2Jb", .command = "x\xc2\x9bz", .device = "", .policy = ""};
    TEST_ASSERT_EQUAL_INT(0, tl_record_open(&r, path_of("t"), &job, NULL));
    tl_record_launched(tl_record_kernel(r, "k\r\nl"), TL_RUNG_WHOLE, 1);
    tl_record_note(r, "n\x7f");
    tl_record_close(r);
    add(path_of("t"));
    settle(NULL);
    struct tl_buf out = {0};
    tl_report_text(&report, &out);
    TEST_ASSERT_NOT_NULL(strstr(out.p, "a?[2Jb"));
    TEST_ASSERT_NOT_NULL(strstr(out.p, "k??l"));
    TEST_ASSERT_NULL(strpbrk(out.p, "\033\r\x7f"));
    tl_buf_finish(&out);
}

static void names_are_escaped_on_the_page(void)
{
    write_record(path_of("t"), "<script>alert(1)</script>", 0, 3, 1000);
    add(path_of("t"));
    settle(NULL);
    struct tl_buf out = {0};
    tl_report_html(&report, &out);
    TEST_ASSERT_NULL(strstr(out.p, "<script"));
    TEST_ASSERT_NOT_NULL(strstr(out.p, "&lt;script&gt;"));
    TEST_ASSERT_NOT_NULL(strstr(out.p, "a note &lt;b&gt;&amp;"));
    tl_buf_finish(&out);
}

/* --- folders and sums --- */

static void processes_of_one_job_are_added_up(void)
{
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        TEST_ASSERT_TRUE(child >= 0);
        if (child == 0) {
            write_record(folder, "pool", 0, 100 * (i + 1), 1000);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        TEST_ASSERT_EQUAL_INT(0, status);
    }
    add(folder);
    settle(NULL);
    TEST_ASSERT_EQUAL_UINT32(1, report.n_runs);
    TEST_ASSERT_EQUAL_UINT32(1, report.runs[0].n_jobs);
    const struct tl_report_job *j = &report.runs[0].jobs[0];
    TEST_ASSERT_EQUAL_UINT32(3, j->n_processes);
    TEST_ASSERT_EQUAL_UINT64(603, j->all_launches);
    TEST_ASSERT_EQUAL_UINT64(600, j->ran.count);
    TEST_ASSERT_EQUAL_UINT64(600 * 1000, j->ran.sum);
    TEST_ASSERT_EQUAL_UINT64(600, j->inferred.count);
    TEST_ASSERT_EQUAL_UINT32(2, j->n_kernels);
    TEST_ASSERT_EQUAL_STRING("vadd(float const*, float const*, float*, int)", j->kernels[0].full);
    TEST_ASSERT_EQUAL_STRING("vadd", j->kernels[0].brief);
    TEST_ASSERT_EQUAL_UINT32(1, j->n_notes);
    TEST_ASSERT_EQUAL_UINT64(3, j->notes[0].times);
    TEST_ASSERT_EQUAL_UINT32(1200, j->n_spans); /* runs and requests */
    TEST_ASSERT_EQUAL_UINT32(2, j->kernels[0].n_ops);
    TEST_ASSERT_EQUAL_STRING("my <layer>", j->kernels[0].ops[0].name);
    TEST_ASSERT_EQUAL_UINT64(450, j->kernels[0].ops[0].launches);
    TEST_ASSERT_EQUAL_UINT64(150, j->kernels[0].ops[1].launches);
}

static void folders_of_folders_are_runs_with_the_reference_first(void)
{
    write_record(path_of("tally"), "server", TL_LEVEL_HIGH, 100, 1100);
    write_record(path_of("mps"), "server", TL_LEVEL_HIGH, 100, 3000);
    write_record(path_of("alone"), "server", TL_LEVEL_HIGH, 100, 1000);
    mkdir(path_of("empty"), 0777);
    add(folder);
    settle(NULL);
    TEST_ASSERT_EQUAL_UINT32(3, report.n_runs);
    TEST_ASSERT_EQUAL_STRING("alone", report.runs[0].label);
    TEST_ASSERT_EQUAL_STRING("mps", report.runs[1].label);
    TEST_ASSERT_EQUAL_STRING("tally", report.runs[2].label);
    TEST_ASSERT_DOUBLE_WITHIN(0.03, 3.0,
                              tl_report_compare(&report, &report.runs[1], "server").p99_ratio);
    TEST_ASSERT_DOUBLE_WITHIN(0.02, 1.1,
                              tl_report_compare(&report, &report.runs[2], "server").p99_ratio);
    TEST_ASSERT_TRUE(tl_report_is_urgent(&report, "server"));
}

static void labels_name_runs(void)
{
    char argument[5000];
    write_record(path_of("x"), "server", TL_LEVEL_HIGH, 10, 1000);
    snprintf(argument, sizeof argument, "before=%s", path_of("x"));
    add(argument);
    snprintf(argument, sizeof argument, "after=%s", path_of("x"));
    add(argument);
    settle(NULL);
    TEST_ASSERT_EQUAL_UINT32(2, report.n_runs);
    TEST_ASSERT_EQUAL_STRING("before", report.runs[0].label);
    TEST_ASSERT_EQUAL_STRING("after", report.runs[1].label);
}

static void bad_files_are_problems_and_good_ones_are_read(void)
{
    write_record(folder, "good", 0, 10, 1000);
    int fd = open(path_of("bad.1.tally"), O_CREAT | O_WRONLY, 0600);
    TEST_ASSERT_EQUAL_INT64(5, write(fd, "hello", 5));
    close(fd);
    mkdir(path_of("folder.2.tally"), 0777);
    add(folder);
    settle(NULL);
    TEST_ASSERT_EQUAL_UINT32(1, report.n_runs);
    TEST_ASSERT_EQUAL_UINT32(2, report.n_problems);
    TEST_ASSERT_NOT_NULL(strstr(report.problems[0], "bad.1.tally"));
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_report_add(&report, path_of("nowhere"), &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "nowhere"));
    mkdir(path_of("empty"), 0777);
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_report_add(&report, path_of("empty"), &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "--report"));
}

static void a_filter_hides_kernels_but_not_their_time(void)
{
    regex_t filter;
    write_record(folder, "job", 0, 10, 1000);
    TEST_ASSERT_EQUAL_INT(0, regcomp(&filter, "fusion", REG_EXTENDED | REG_NOSUB));
    add(folder);
    settle(&filter);
    regfree(&filter);
    const struct tl_report_job *j = &report.runs[0].jobs[0];
    TEST_ASSERT_EQUAL_STRING("loop_fusion_17", j->kernels[0].brief);
    TEST_ASSERT_FALSE(j->kernels[0].is_hidden);
    TEST_ASSERT_TRUE(j->kernels[1].is_hidden);
    TEST_ASSERT_EQUAL_UINT64(10000, j->ran.sum);
}

static void a_late_request_names_what_ran_beside_it(void)
{
    struct tl_record *high = NULL, *low = NULL;
    struct tl_record_job server = {.name = "server", .level = 100},
                         trainer = {.name = "trainer", .level = -100};
    TEST_ASSERT_EQUAL_INT(0, tl_record_open(&high, folder, &server, NULL));
    TEST_ASSERT_EQUAL_INT(0, tl_record_open(&low, folder, &trainer, NULL));
    struct tl_record_kernel *a = tl_record_kernel(low, "a"), *b = tl_record_kernel(low, "b");
    struct tl_record_kernel *k = tl_record_kernel(high, "k");
    uint64_t t = tl_record_now();
    tl_record_launched(a, TL_RUNG_WHOLE, 1);
    tl_record_launched(b, TL_RUNG_WHOLE, 1);
    tl_record_launched(k, TL_RUNG_WHOLE, 1);
    tl_record_spanned(low, TL_SPAN_RUN, a, 0, t, t + 5000);
    tl_record_spanned(low, TL_SPAN_RUN, b, 0, t + 5000, t + 9000);
    tl_record_spanned(high, TL_SPAN_RUN, k, 0, t + 9000, t + 9500);
    tl_record_request(high, t + 4000, t + 9500, true); /* 1000 of a, 4000 of b */
    tl_record_close(high);
    tl_record_close(low);
    add(folder);
    settle(NULL);
    const struct tl_report_slow *s = &report.runs[0].jobs[0].slow[0];
    TEST_ASSERT_EQUAL_STRING("k", report.runs[0].jobs[0].kernels[s->culprit].brief);
    TEST_ASSERT_NOT_NULL(s->rival);
    TEST_ASSERT_EQUAL_STRING("trainer", s->rival->name);
    TEST_ASSERT_EQUAL_STRING("b", s->rival->kernels[s->rival_kernel].brief);
    TEST_ASSERT_EQUAL_UINT64(4000, s->rival_ns);
}

static void a_culprit_that_was_told_of_late_is_found_by_the_reader(void)
{
    struct tl_record *r = NULL;
    struct tl_record_job job = {.name = "job", .level = 100};
    TEST_ASSERT_EQUAL_INT(0, tl_record_open(&r, folder, &job, NULL));
    struct tl_record_kernel *k = tl_record_kernel(r, "k");
    uint64_t t = tl_record_now();
    tl_record_launched(k, TL_RUNG_WHOLE, 1);
    tl_record_request(r, t, t + 5000, true);
    tl_record_spanned(r, TL_SPAN_WAIT, k, 0, t + 100, t + 1100);
    tl_record_spanned(r, TL_SPAN_RUN, k, 0, t + 1100, t + 4100);
    tl_record_close(r);
    add(folder);
    settle(NULL);
    const struct tl_report_job *j = &report.runs[0].jobs[0];
    TEST_ASSERT_EQUAL_UINT32(0, j->slow[0].culprit);
    TEST_ASSERT_EQUAL_UINT64(4000, j->slow[0].culprit_ns);
    TEST_ASSERT_EQUAL_UINT64(1000, j->slow[0].culprit_wait_ns);
    TEST_ASSERT_EQUAL_UINT64(1, j->kernels[0].culprit_of);
}

static void times_of_sampled_launches_are_scaled_up(void)
{
    struct tl_record *r = NULL;
    struct tl_record_job job = {.name = "job", .level = 100};
    TEST_ASSERT_EQUAL_INT(0, tl_record_open(&r, folder, &job, NULL));
    struct tl_record_kernel *often = tl_record_kernel(r, "often"),
                            *always = tl_record_kernel(r, "always");
    for (int i = 0; i < 1000; i++) {
        tl_record_launched(often, TL_RUNG_WHOLE, 1);
        tl_record_launched(always, TL_RUNG_WHOLE, 1);
        tl_record_ran(always, 10, 500);
        if (i % 100 == 0)
            tl_record_ran(often, 20, 1500);
    }
    tl_record_close(r);
    add(folder);
    settle(NULL);
    const struct tl_report_job *j = &report.runs[0].jobs[0];
    TEST_ASSERT_TRUE(j->is_sampled);
    TEST_ASSERT_EQUAL_STRING("often", j->kernels[0].brief);
    TEST_ASSERT_EQUAL_UINT64(1500000, j->kernels[0].device_ns);
    TEST_ASSERT_EQUAL_UINT64(20000, j->kernels[0].waited_ns);
    TEST_ASSERT_EQUAL_UINT64(2000000, j->device_ns);
}

static void opaque_runs_are_marked_in_every_form(void)
{
    struct tl_record *r = NULL;
    struct tl_record_job job = {.name = "job", .is_opaque = true};
    TEST_ASSERT_EQUAL_INT(0, tl_record_open(&r, folder, &job, NULL));
    tl_record_spanned(r, TL_SPAN_RUN, NULL, 0, 10, 20);
    tl_record_close(r);
    add(folder);
    settle(NULL);
    static void (*const forms[])(const struct tl_report *, struct tl_buf *) = {
        tl_report_text, tl_report_json, tl_report_trace};
    static const char *const marks[] = {"OPAQUE KERNELS", "\"opaque\": true", "OPAQUE"};
    struct tl_buf out = {0};
    for (int i = 0; i < 3; i++) {
        forms[i](&report, &out);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(out.p, marks[i]), marks[i]);
        tl_buf_finish(&out);
        out = (struct tl_buf){0};
    }
    tl_report_html(&report, &out);
    TEST_ASSERT_NOT_NULL(strstr(out.p, "<b>Opaque kernels</b>"));
    tl_buf_finish(&out);
}

/* --- names --- */

/* The right column is what c++filt of binutils says. */
static void names_are_demangled_as_cxxfilt_does(void)
{
    static const struct {
        const char *mangled, *plain, *brief;
    } names[] = {
        {"_Z4vaddPKfS0_Pfi", "vadd(float const*, float const*, float*, int)", "vadd"},
        {"_Z1fv", "f()", "f"},
        {"_Z6reduceIfLi256EEvPKT_PS0_m",
         "void reduce<float, 256>(float const*, float*, unsigned long)", "reduce<float, 256>"},
        {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_"
         "addIfEESt5arrayIPcLm3EEEEviT0_T1_",
         "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
         "std::array<char*, 3ul> "
         ">(int, "
         "at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
         "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
         "std::array<char*, 3ul> >"},
        {"_ZN12_GLOBAL__N_13fooEPFviE", "(anonymous namespace)::foo(void (*)(int))",
         "(anonymous namespace)::foo"},
        {"_Z3barRA16_f", "bar(float (&) [16])", "bar"},
        {"_Z6launchIZ4mainEUlvE_EvT_", "void launch<main::{lambda()#1}>(main::{lambda()#1})",
         "launch<main::{lambda()#1}>"},
        {"_Z4packIJifdEEvDpT_", "void pack<int, float, double>(int, float, double)",
         "pack<int, float, double>"},
        {"_Z4packIJEEvDpRKT_", "void pack<>()", "pack<>"},
        {"_Z1gIXgtstT_Li4EEEvv", NULL, NULL},
        {"_ZNK3Foo3barEv", "Foo::bar() const", "Foo::bar"},
        {"_ZplRK1AS1_", "operator+(A const&, A const&)", "operator+"},
        {"_ZN1AcvbEv", "A::operator bool()", NULL},
        {"_Z1fILb1ELin3EEvv", "void f<true, -3>()", "f<true, -3>"},
        {"_Z1fPVKi", "f(int const volatile*)", "f"},
        {"_Z1fM1AFivE", "f(int (A::*)())", "f"},
        {"_Z1fDv4_f", "f(float __vector(4))", "f"},
        {"_Z6kernelIfEvT_.constprop.0", "void kernel<float>(float) [clone .constprop.0]",
         "kernel<float>"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *plain = tl_demangle(&report.arena, names[i].mangled);
        if (names[i].plain != NULL)
            TEST_ASSERT_EQUAL_STRING_MESSAGE(names[i].plain, plain, names[i].mangled);
        struct tl_report_kernel k = {.name = names[i].mangled};
        TEST_ASSERT_EQUAL_INT(0, tl_report_name(&k, &report.arena));
        if (names[i].brief != NULL)
            TEST_ASSERT_EQUAL_STRING(names[i].brief, k.brief);
    }
}

static void names_of_other_compilers_are_kept(void)
{
    static const char *const names[] = {"triton_poi_fused_add_0",
                                        "loop_fusion_17",
                                        "ampere_sgemm_128x64_tn",
                                        "_Z",
                                        "_Z4vad",
                                        "_ZN",
                                        "_Z1fIT_Ev",
                                        "_Z99999999999x",
                                        "_Z1fS9_",
                                        "_ZNNNNNNN",
                                        "_Z1fDpDpDpT_",
                                        ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tl_report_kernel k = {.name = names[i]};
        TEST_ASSERT_EQUAL_INT(0, tl_report_name(&k, &report.arena));
        TEST_ASSERT_EQUAL_STRING(names[i], k.brief);
    }
}

/* Each step doubles the text of the one before. */
static void a_name_that_would_explode_is_kept_as_it_is(void)
{
    char name[2000] = "_Z1fSt4pairI1AS_E";
    for (int i = 0; i < 60; i++) {
        char step[32];
        snprintf(step, sizeof step, "St4pairIS%c_S%c_E", i < 10 ? '0' + i : 'A' + i % 26,
                 i < 10 ? '0' + i : 'A' + i % 26);
        strcat(name, step);
    }
    char *plain = tl_demangle(&report.arena, name);
    TEST_ASSERT_TRUE(plain == NULL || strlen(plain) <= 65536);
    TEST_ASSERT_TRUE(report.arena.bytes < 1u << 20);
}

/* --- names --- */

static void levels_that_have_names_are_called_by_them(void)
{
    TEST_ASSERT_EQUAL_STRING("high", tl_text_level(100).s);
    TEST_ASSERT_EQUAL_STRING("-5", tl_text_level(-5).s);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_file_cut_anywhere_is_refused_or_read_in_part);
    RUN_TEST(a_cut_record_says_so_and_keeps_its_head);
    RUN_TEST(other_versions_and_other_files_are_refused_by_name);
    RUN_TEST(random_damage_never_does_harm);
    RUN_TEST(overlapping_pieces_are_found);
    RUN_TEST(a_list_without_an_end_is_found);
    RUN_TEST(terminals_get_no_orders_from_a_file);
    RUN_TEST(names_are_escaped_on_the_page);
    RUN_TEST(processes_of_one_job_are_added_up);
    RUN_TEST(folders_of_folders_are_runs_with_the_reference_first);
    RUN_TEST(labels_name_runs);
    RUN_TEST(bad_files_are_problems_and_good_ones_are_read);
    RUN_TEST(a_filter_hides_kernels_but_not_their_time);
    RUN_TEST(a_late_request_names_what_ran_beside_it);
    RUN_TEST(a_culprit_that_was_told_of_late_is_found_by_the_reader);
    RUN_TEST(times_of_sampled_launches_are_scaled_up);
    RUN_TEST(opaque_runs_are_marked_in_every_form);
    RUN_TEST(names_are_demangled_as_cxxfilt_does);
    RUN_TEST(names_of_other_compilers_are_kept);
    RUN_TEST(a_name_that_would_explode_is_kept_as_it_is);
    RUN_TEST(levels_that_have_names_are_called_by_them);
    return UNITY_END();
}
