/* The TALLY_* variables. */
#include "runtime/job/settings.h"
#include "runtime/job/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

static const char *const names[] = {
    "TALLY_PRIORITY",  "TALLY_SLO",    "TALLY_TURNAROUND", "TALLY_WEIGHT",
    "TALLY_MIN_SHARE", "TALLY_TOTAL",  "TALLY_POLICY",     "TALLY_REPORT",
    "TALLY_DRIVER",    "TALLY_SOCKET", "TALLY_JOB",        "TALLY_FAIL",
    "TALLY_OFF",       "TALLY_FORCE",  "TALLY_LOG",        "TALLY_GATE"};

void setUp(void)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
}

void tearDown(void)
{
}

static void times_have_units_and_fractions(void)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"500", 500},       {"0", 0},
                {"31.6us", 31600},  {"8ms", 8000000},
                {"1s", 1000000000}, {"0.5ms", 500000},
                {"12ns", 12},       {"1.000000001s", 1000000001},
                {"2\u00b5s", 2000}, {"18446744072s", UINT64_C(18446744072000000000)}};
    static const char *const bad[] = {
        "", "x", "5 ms", "5min", "-1ms", "1.ms", ".5ms", "18446744074s", "99999999999999999999"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t ns = 1;
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_settings_time(good[i].text, &ns), good[i].text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(good[i].ns, ns, good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t ns;
        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, tl_settings_time(bad[i], &ns), bad[i]);
    }
}

static void an_slo_is_a_percentile_and_a_time(void)
{
    static const char *const bad[] = {"",       "p99",      "99:8ms",     "p99:0",
                                      "p0:1ms", "p101:1ms", "p100.5:1ms", "p99:x"};
    uint32_t percentile;
    uint64_t ns;
    TEST_ASSERT_EQUAL_INT(0, tl_settings_slo("p99:8ms", &percentile, &ns));
    TEST_ASSERT_EQUAL_UINT32(9900, percentile);
    TEST_ASSERT_EQUAL_UINT64(8000000, ns);
    TEST_ASSERT_EQUAL_INT(0, tl_settings_slo("p99.9:20ms", &percentile, &ns));
    TEST_ASSERT_EQUAL_UINT32(9990, percentile);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)

        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, tl_settings_slo(bad[i], &percentile, &ns), bad[i]);
}

static void nothing_said_gives_defaults(void)
{
    struct tl_settings s;
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, NULL));
    TEST_ASSERT_EQUAL_INT(0, s.level);
    TEST_ASSERT_EQUAL_INT(-1, s.force);
    TEST_ASSERT_EQUAL_INT(1, s.log);
    TEST_ASSERT_FALSE(s.is_closed || s.is_off);
    TEST_ASSERT_EQUAL_STRING("/run/user/7/tally/tallyd.sock", s.socket);
    TEST_ASSERT_EQUAL_STRING("settings_test", s.job);
    TEST_ASSERT_EQUAL_STRING("", s.report);
    unsetenv("XDG_RUNTIME_DIR");
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, NULL));
    TEST_ASSERT_EQUAL_INT(0, strncmp(s.socket, "/tmp/tally-", 11));
}

static void everything_can_be_said(void)
{
    struct tl_settings s;
    setenv("TALLY_PRIORITY", "low", 1);
    setenv("TALLY_SLO", "p95:3ms", 1);
    setenv("TALLY_TURNAROUND", "50us", 1);
    setenv("TALLY_WEIGHT", "300", 1);
    setenv("TALLY_MIN_SHARE", "2.5%", 1);
    setenv("TALLY_TOTAL", "90s", 1);
    setenv("TALLY_POLICY", "timeslice", 1);
    setenv("TALLY_REPORT", "/r", 1);
    setenv("TALLY_SOCKET", "/s", 1);
    setenv("TALLY_JOB", "bert", 1);
    setenv("TALLY_FAIL", "closed", 1);
    setenv("TALLY_OFF", "1", 1);
    setenv("TALLY_LOG", "debug", 1);
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, NULL));
    TEST_ASSERT_EQUAL_INT(-100, s.level);
    TEST_ASSERT_EQUAL_UINT32(9500, s.slo_percentile);
    TEST_ASSERT_EQUAL_UINT64(3000000, s.slo_ns);
    TEST_ASSERT_EQUAL_UINT64(50000, s.turnaround_ns);
    TEST_ASSERT_EQUAL_UINT32(300, s.weight);
    TEST_ASSERT_EQUAL_UINT32(25, s.min_permille);
    TEST_ASSERT_EQUAL_UINT64(90000000000, s.total_ns);
    TEST_ASSERT_EQUAL_STRING("timeslice", s.policy);
    TEST_ASSERT_EQUAL_STRING("/r", s.report);
    TEST_ASSERT_EQUAL_STRING("/s", s.socket);
    TEST_ASSERT_EQUAL_STRING("bert", s.job);
    TEST_ASSERT_TRUE(s.is_closed && s.is_off);
    TEST_ASSERT_EQUAL_INT(3, s.log);
}

/* settings.c has its own list of names, because the shim links it without the scheduler. */
static void rungs_have_the_names_that_people_see(void)
{
    struct tl_settings s;
    for (int i = 0; i < TL_RUNGS; i++) {
        bool can_be = i != TL_RUNG_RATE; /* granted, not forced */
        setenv("TALLY_FORCE", tl_rung_name((enum tl_rung)i), 1);
        TEST_ASSERT_EQUAL_INT(can_be ? 0 : -EINVAL, tl_settings_read(&s, NULL));
        TEST_ASSERT_EQUAL_INT(can_be ? i : -1, s.force);
    }
}

static void the_gate_is_auto_off_or_all(void)
{
    struct tl_settings s;
    struct tl_error err;
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, NULL));
    TEST_ASSERT_EQUAL_INT(TL_GATE_AUTO, s.gate);
    setenv("TALLY_GATE", "off", 1);
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, NULL));
    TEST_ASSERT_EQUAL_INT(TL_GATE_OFF, s.gate);
    setenv("TALLY_GATE", "all", 1);
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, NULL));
    TEST_ASSERT_EQUAL_INT(TL_GATE_ALL, s.gate);
    setenv("TALLY_GATE", "everything", 1);
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_settings_read(&s, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "TALLY_GATE=everything: it may be off, auto or all"));
    TEST_ASSERT_EQUAL_INT_MESSAGE(TL_GATE_AUTO, s.gate, "the careful one");
}

static void a_bad_value_is_named_and_the_rest_is_read(void)
{
    struct tl_settings s;
    struct tl_error err;
    setenv("TALLY_PRIORITY", "urgent", 1);
    setenv("TALLY_TURNAROUND", "1ms", 1);
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_settings_read(&s, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "TALLY_PRIORITY=urgent"));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "high, low"));
    TEST_ASSERT_EQUAL_INT(0, s.level);
    TEST_ASSERT_EQUAL_UINT64(1000000, s.turnaround_ns);
}

static void a_socket_is_named_by_its_full_path(void)
{
    struct tl_settings s;
    struct tl_error err;
    setenv("TALLY_SOCKET", "here.sock", 1);
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_settings_read(&s, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "TALLY_SOCKET=here.sock"));
    TEST_ASSERT_EQUAL_STRING("/run/user/7/tally/tallyd.sock", s.socket);
}

static void a_path_that_is_too_long_for_a_socket_is_told_with_the_remedy(void)
{
    struct tl_settings s;
    struct tl_error err;
    char path[TL_SOCKET_PATH_BYTES + 1] = ""; /* with room for one byte too many */
    memset(path, '/', TL_SOCKET_PATH_BYTES);
    setenv("TALLY_SOCKET", path, 1);
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_settings_read(&s, &err));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, path), err.text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "at most 103 bytes; set TALLY_SOCKET"), err.text);
    TEST_ASSERT_EQUAL_INT(-ENAMETOOLONG, tl_wire_connect(path, &err));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, path), err.text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "at most 103 bytes; set TALLY_SOCKET"), err.text);
    setenv("TALLY_SOCKET", path + 1, 1);
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, &err));
    TEST_ASSERT_EQUAL_STRING(path + 1, s.socket);
    unsetenv("TALLY_SOCKET");
    /* together one too many: not there, then */
    path[TL_SOCKET_PATH_BYTES - strlen("/tally/tallyd.sock")] = 0;
    setenv("XDG_RUNTIME_DIR", path, 1);
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, &err));
    TEST_ASSERT_EQUAL_INT(0, strncmp(s.socket, "/tmp/tally-", strlen("/tmp/tally-")));
}

static void an_empty_value_says_nothing(void)
{
    struct tl_settings s;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        setenv(names[i], "", 1);
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, NULL));
    TEST_ASSERT_EQUAL_INT(0, s.level);
}

static void sizes_of_memory_have_units_of_1024(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"4096", 4096},
                {"8G", UINT64_C(8) << 30},
                {"1.5GiB", UINT64_C(3) << 29},
                {"512M", UINT64_C(512) << 20},
                {"2KB", 2048},
                {"0", 0},
                {"1P", UINT64_C(1) << 50},
                {"0.5T", UINT64_C(1) << 39}};
    static const char *const bad[] = {"", "G", "8X", "8GG", "-1", "1.5", "2P", "8 G", "8Gi B"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_settings_bytes(good[i].text, &bytes), good[i].text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(good[i].bytes, bytes, good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, tl_settings_bytes(bad[i], &bytes), bad[i]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(times_have_units_and_fractions);
    RUN_TEST(an_slo_is_a_percentile_and_a_time);
    RUN_TEST(nothing_said_gives_defaults);
    RUN_TEST(everything_can_be_said);
    RUN_TEST(rungs_have_the_names_that_people_see);
    RUN_TEST(the_gate_is_auto_off_or_all);
    RUN_TEST(a_bad_value_is_named_and_the_rest_is_read);
    RUN_TEST(a_socket_is_named_by_its_full_path);
    RUN_TEST(a_path_that_is_too_long_for_a_socket_is_told_with_the_remedy);
    RUN_TEST(an_empty_value_says_nothing);
    RUN_TEST(sizes_of_memory_have_units_of_1024);
    return UNITY_END();
}
