/* The configuration of the plugin for Slurm, and what comes of it and of what jobs ask for. */
#include "runtime/slurm/plugin.h"
#include "unity.h"

#include <errno.h>
#include <string.h>

static struct plugin_config config;
static struct tl_error err;

void setUp(void)
{
    plugin_config_init(&config);
    memset(&err, 0, sizeof err);
}

void tearDown(void)
{
    plugin_config_finish(&config);
}

static void read_it(const char *text)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, plugin_config_parse(&config, text, "conf", &err), err.text);
}

static void expect_refusal(const char *text, const char *message)
{
    plugin_config_finish(&config);
    TEST_ASSERT_EQUAL_INT(-EINVAL, plugin_config_parse(&config, text, "conf", &err));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, message), err.text);
}

static struct plugin_plan decide(const char *partition, const char *qos, const char *priority,
                                 const char *memory)
{
    struct plugin_wishes asked = {0};
    struct plugin_plan plan;
    if (priority != NULL)
        TEST_ASSERT_EQUAL_INT(0, plugin_wish(&asked, PLUGIN_PRIORITY, priority, &err));
    if (memory != NULL)
        TEST_ASSERT_EQUAL_INT(0, plugin_wish(&asked, PLUGIN_MEMORY, memory, &err));
    plugin_decide(plugin_find(&config, partition, qos), &asked, 7, &plan);
    return plan;
}

static void the_first_line_that_fits_counts(void)
{
    read_it("# remarks\n\nqos urgent high\npartition batch low\neverybody 0 # the rest\n");
    TEST_ASSERT_EQUAL_STRING("urgent", plugin_find(&config, "batch", "urgent")->name);
    TEST_ASSERT_EQUAL_STRING("batch", plugin_find(&config, "batch", "normal")->name);
    TEST_ASSERT_EQUAL_STRING("everybody", plugin_find(&config, "other", NULL)->name);
    plugin_config_finish(&config);
    TEST_ASSERT_NULL(plugin_find(&config, "batch", "urgent"));
}

static void a_job_has_what_its_line_says_and_the_right_to_it(void)
{
    read_it("partition serve high slo=p99:8ms memory=8G weight=200\n");
    struct plugin_plan plan = decide("serve", NULL, NULL, NULL);
    TEST_ASSERT_TRUE(plan.is_concerned && plan.is_admitted);
    TEST_ASSERT_EQUAL_STRING("high", plan.has.value[PLUGIN_PRIORITY]);
    TEST_ASSERT_EQUAL_STRING("8G", plan.has.value[PLUGIN_MEMORY]);
    TEST_ASSERT_EQUAL_STRING("p99:8ms", plan.has.value[PLUGIN_SLO]);
    TEST_ASSERT_EQUAL_STRING("slurm:7", plan.rights.account);
    TEST_ASSERT_EQUAL_STRING("100 memory=8G slo weight=200", plan.rights.rights);
    TEST_ASSERT_EQUAL_STRING("", plan.remark);
}

static void what_is_asked_for_is_cut_to_the_line(void)
{
    read_it("partition batch low highest=10 memory=4G\n");
    struct plugin_plan plan = decide("batch", NULL, "high", "8G");
    TEST_ASSERT_EQUAL_STRING("10", plan.has.value[PLUGIN_PRIORITY]);
    TEST_ASSERT_EQUAL_STRING("4G", plan.has.value[PLUGIN_MEMORY]);
    TEST_ASSERT_NOT_NULL(strstr(plan.remark, "--tally-priority=high is more"));
    TEST_ASSERT_NOT_NULL(strstr(plan.remark, "--tally-memory=8G is more"));
    TEST_ASSERT_EQUAL_STRING("10 memory=4G", plan.rights.rights);
    plan = decide("batch", NULL, "-5", "1G");
    TEST_ASSERT_EQUAL_STRING("-5", plan.has.value[PLUGIN_PRIORITY]);
    TEST_ASSERT_EQUAL_STRING("10 memory=1G", plan.rights.rights); /* its own limit is forced */
    TEST_ASSERT_EQUAL_STRING("", plan.remark);
}

static void jobs_that_nothing_names_are_left_alone(void)
{
    read_it("partition batch low\npartition plain off\n");
    TEST_ASSERT_FALSE(decide("other", "normal", NULL, NULL).is_concerned);
    struct plugin_plan plan = decide("other", "normal", "high", NULL);
    TEST_ASSERT_TRUE(plan.is_concerned); /* it asked ... */
    TEST_ASSERT_FALSE(plan.is_admitted); /* ... and tallyd's rules decide */
    TEST_ASSERT_FALSE(decide("plain", NULL, NULL, NULL).is_concerned);
    plan = decide("plain", NULL, "high", NULL);
    TEST_ASSERT_FALSE(plan.is_concerned);
    TEST_ASSERT_EQUAL_STRING("Tally is off in its partition 'plain'", plan.remark);
}

static void settings_are_read(void)
{
    read_it("socket /run/other/sock\ncomment admin\nfail closed\n");
    TEST_ASSERT_EQUAL_STRING("/run/other/sock", config.socket);
    TEST_ASSERT_EQUAL_INT(PLUGIN_ADMIN_COMMENT, config.comment);
    TEST_ASSERT_TRUE(config.is_closed);
}

static void what_makes_no_sense_is_refused_with_its_line(void)
{
    expect_refusal("partition batch low\nqos x\n", "conf:2: who is named is given a level");
    expect_refusal("qos\n", "conf:1: a name is missing");
    expect_refusal("qos a urgent\n", "conf:1: who is named is given a level");
    expect_refusal("qos a 5 highest=low\n", "highest= is below");
    expect_refusal("qos a 5 memory=much\n", "memory= wants a size");
    expect_refusal("qos a 5 slo=8ms\n", "slo= wants a percentile");
    expect_refusal("qos a 5 policy\n", "behind the level there may be");
    expect_refusal("qos a off 5\n", "nothing stands behind off");
    expect_refusal("group a 5\n", "a line begins with");
    expect_refusal("socket here\n", "a socket is");
    expect_refusal("comment maybe\n", "comment is yes, no or admin");
    expect_refusal("fail soon\n", "fail is open or closed");
    expect_refusal("fail open now\n", "more on the line");
}

static void options_say_what_they_may_be(void)
{
    struct plugin_wishes asked = {0};
    TEST_ASSERT_EQUAL_INT(-EINVAL, plugin_wish(&asked, PLUGIN_PRIORITY, "101", &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "--tally-priority=101: it may be high, low"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, plugin_wish(&asked, PLUGIN_MEMORY, "0", &err));
    TEST_ASSERT_EQUAL_INT(-EINVAL, plugin_wish(&asked, PLUGIN_SLO, "8ms", &err));
    TEST_ASSERT_EQUAL_INT(-EINVAL, plugin_wish(&asked, PLUGIN_SLO, NULL, &err));
    TEST_ASSERT_FALSE(plugin_has_wishes(&asked));
    TEST_ASSERT_EQUAL_INT(0, plugin_wish(&asked, PLUGIN_SLO, "p99.9:8ms", &err));
    TEST_ASSERT_TRUE(plugin_has_wishes(&asked));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(the_first_line_that_fits_counts);
    RUN_TEST(a_job_has_what_its_line_says_and_the_right_to_it);
    RUN_TEST(what_is_asked_for_is_cut_to_the_line);
    RUN_TEST(jobs_that_nothing_names_are_left_alone);
    RUN_TEST(settings_are_read);
    RUN_TEST(what_makes_no_sense_is_refused_with_its_line);
    RUN_TEST(options_say_what_they_may_be);
    return UNITY_END();
}
