/* Metrics as text, from views and files that are odd: what a whole tallyd does not meet
 * (test/integration/metrics.sh has one). */
#include "runtime/tallyd/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unity.h>

static struct daemon_view view;
static struct daemon_names names;

void setUp(void)
{
    memset(&view, 0, sizeof view);
    memset(&names, 0, sizeof names);
    names.is_open = true;
}

void tearDown(void)
{
}

static const char *value(const char *text)
{
    static struct tl_buf out;
    tl_buf_finish(&out);
    out = (struct tl_buf){0};
    daemon_metrics_value(&out, text);
    return out.p;
}

static void values_are_quoted_and_always_utf8(void)
{
    TEST_ASSERT_EQUAL_STRING("\"\"", value(""));
    TEST_ASSERT_EQUAL_STRING("\"a\\\\b\\\"c\\nd\"", value("a\\b\"c\nd"));
    TEST_ASSERT_EQUAL_STRING("\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"",
                             value("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"));
    /* cut off, too long, a surrogate, beyond the last character, a byte that is never there */
    TEST_ASSERT_EQUAL_STRING("\"\xef\xbf\xbd\"", value("\xe2"));
    TEST_ASSERT_EQUAL_STRING("\"\xef\xbf\xbd\xef\xbf\xbd\"", value("\xe2\x82"));
    TEST_ASSERT_EQUAL_STRING("\"\xef\xbf\xbd\xef\xbf\xbd\"", value("\xc0\xaf"));
    TEST_ASSERT_EQUAL_STRING("\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"", value("\xed\xa0\x80"));
    TEST_ASSERT_EQUAL_STRING("\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"",
                             value("\xf4\x90\x80\x80"));
    TEST_ASSERT_EQUAL_STRING("\"\xef\xbf\xbdx\"", value("\xffx"));
}

static char *text_of_view(void)
{
    struct tl_buf out = {0};
    daemon_metrics_text(&out, &view, &names);
    TEST_ASSERT_FALSE(out.failed);
    return tl_buf_take(&out);
}

static void buckets_never_shrink_whatever_a_page_says(void)
{
    view.n_rows = 1;
    view.rows[0].pid = 7;
    for (int i = 0; i < TL_SHARE_BUCKETS; i++)
        view.rows[0].requested.n[i] = i == 3 || i == 9 ? UINT64_MAX - 5 : 1;
    char *text = text_of_view();
    uint64_t last = 0;
    int n = 0;
    for (const char *at = text; (at = strstr(at, "tally_job_request_seconds_bucket{")) != NULL;) {
        at = strstr(at, "} ") + 2;
        uint64_t now = strtoull(at, NULL, 10);
        TEST_ASSERT_TRUE(now >= last);
        last = now;
        n++;
    }
    TEST_ASSERT_EQUAL_INT(TL_SHARE_BUCKETS, n);
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, last);
    free(text);
}

static void a_process_that_is_there_twice_is_two_series(void)
{
    view.n_rows = 2;
    view.rows[0].pid = view.rows[1].pid = 7;
    char *text = text_of_view();
    TEST_ASSERT_NOT_NULL(strstr(text, "tally_job_level{pid=\"7\",uid=\"0\"} 0\n"));
    TEST_ASSERT_NOT_NULL(strstr(text, "tally_job_level{pid=\"7\",uid=\"0\",part=\"2\"} 0\n"));
    free(text);
}

static void sums_of_a_process_on_two_gpus_name_neither(void)
{
    view.n_rows = 1;
    view.rows[0].pid = 7;
    view.rows[0].n_gpus = view.n_gpus = 2;
    view.rows[0].gpus[1].uuid[0] = view.gpus[1].uuid[0] = 1;
    strcpy(names.gpus[1].index, "1");
    strcpy(names.gpus[1].device, "nvidia1");
    strcpy(names.gpus[1].model, "A model");
    char *text = text_of_view();
    TEST_ASSERT_NOT_NULL(strstr(text, "tally_job_launches_total{pid=\"7\",uid=\"0\"} 0\n"));
    TEST_ASSERT_NOT_NULL(
        strstr(text, "tally_job_gpu_info{UUID=\"GPU-00000000-0000-0000-0000-000000000000\",pid="));
    TEST_ASSERT_NOT_NULL(
        strstr(text, "tally_job_gpu_info{UUID=\"GPU-01000000-0000-0000-0000-000000000000\",gpu="
                     "\"1\",device=\"nvidia1\",modelName=\"A model\",pid=\"7\""));
    free(text);
}

/* What its kernels did is told for each of them, and not once more without a name. */
static void what_was_done_on_two_gpus_is_told_for_each(void)
{
    view.n_rows = 1;
    view.rows[0] = (struct daemon_row){
        .pid = 7, .n_gpus = 2, .counts_by_gpu = true, .launches = 5, .waited_ns = 2};
    view.rows[0].gpus[0].launches = 2;
    view.rows[0].gpus[1].launches = 3;
    view.rows[0].gpus[1].device_ns = 1500000000;
    view.rows[0].gpus[1].uuid[0] = 1;
    char *text = text_of_view();
    TEST_ASSERT_NOT_NULL(
        strstr(text, "tally_job_launches_total{UUID=\"GPU-00000000-0000-0000-0000-000000000000\","
                     "pid=\"7\",uid=\"0\"} 2\n"));
    TEST_ASSERT_NOT_NULL(
        strstr(text, "tally_job_launches_total{UUID=\"GPU-01000000-0000-0000-0000-000000000000\","
                     "pid=\"7\",uid=\"0\"} 3\n"));
    TEST_ASSERT_NOT_NULL(strstr(text,
                                "tally_job_busy_seconds_total{UUID=\"GPU-01000000-0000-0000-0000-"
                                "000000000000\",pid=\"7\",uid=\"0\"} 1.500000000\n"));
    TEST_ASSERT_NULL(strstr(text, "tally_job_launches_total{pid"));
    TEST_ASSERT_NOT_NULL(
        strstr(text, "tally_job_waited_seconds_total{pid=\"7\",uid=\"0\"} 0.000000002\n"));
    free(text);
}

static void put(const char *folder, const char *gpu, const char *information)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, gpu);
    TEST_ASSERT_EQUAL_INT(0, mkdir(path, 0700));
    snprintf(path, sizeof path, "%s/%s/information", folder, gpu);
    FILE *f = fopen(path, "w");
    TEST_ASSERT_NOT_NULL(f);
    fputs(information, f);
    fclose(f);
}

static void gpus_have_the_names_that_the_driver_gives_them(void)
{
    char folder[] = "/tmp/tally-metrics.XXXXXX", command[64];
    struct daemon_gpu_name name;
    uint8_t uuid[16] = {0xab, 0xcd};
    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    put(folder, "0000:3b:00.0",
        "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-ff\nDevice Minor: \t 1\n");
    put(folder, "0000:86:00.0",
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 3\nGPU UUID: \t "
        "GPU-abcd0000-0000-0000-0000-000000000000\nDevice Minor: \t 0\n");
    daemon_gpu_name(folder, uuid, &name);
    TEST_ASSERT_EQUAL_STRING("1", name.index); /* the second on the bus */
    TEST_ASSERT_EQUAL_STRING("nvidia0", name.device);
    TEST_ASSERT_EQUAL_STRING("NVIDIA H100 80GB HBM3", name.model);
    uuid[0] = 0;
    daemon_gpu_name(folder, uuid, &name);
    TEST_ASSERT_EQUAL_STRING("", name.index);
    daemon_gpu_name("/nonexistent", uuid, &name);
    TEST_ASSERT_EQUAL_STRING("", name.model);
    snprintf(command, sizeof command, "rm -r %s", folder);
    TEST_ASSERT_EQUAL_INT(0, system(command));
}

static void a_bucket_holds_what_took_at_most_so_long(void)
{
    TEST_ASSERT_EQUAL_UINT32(0, tl_share_bucket(0));
    TEST_ASSERT_EQUAL_UINT32(0, tl_share_bucket(1000));
    TEST_ASSERT_EQUAL_UINT32(1, tl_share_bucket(1001));
    TEST_ASSERT_EQUAL_UINT32(1, tl_share_bucket(2000));
    TEST_ASSERT_EQUAL_UINT32(2, tl_share_bucket(2001));
    for (uint32_t i = 1; i < TL_SHARE_BUCKETS - 1; i++) {
        TEST_ASSERT_EQUAL_UINT32(i, tl_share_bucket((UINT64_C(1) << i) * 1000));
        TEST_ASSERT_EQUAL_UINT32(i + 1, tl_share_bucket((UINT64_C(1) << i) * 1000 + 1));
    }
    TEST_ASSERT_EQUAL_UINT32(TL_SHARE_BUCKETS - 1, tl_share_bucket(UINT64_MAX));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(values_are_quoted_and_always_utf8);
    RUN_TEST(buckets_never_shrink_whatever_a_page_says);
    RUN_TEST(a_process_that_is_there_twice_is_two_series);
    RUN_TEST(sums_of_a_process_on_two_gpus_name_neither);
    RUN_TEST(what_was_done_on_two_gpus_is_told_for_each);
    RUN_TEST(gpus_have_the_names_that_the_driver_gives_them);
    RUN_TEST(a_bucket_holds_what_took_at_most_so_long);
    return UNITY_END();
}
