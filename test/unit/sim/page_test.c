/* The page of a report has all that was drawn. */
#include "sim/report.h"
#include "unity.h"

#include <string.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static void plots_that_belong_to_no_experiment_are_in_the_page_below_the_text(void)
{
    struct sim_report r = {.id = "fleet"};
    struct tl_buf out = {0};
    for (int i = 0; i < 3; i++) {
        sim_point(&r, "what it saves", "this way", "load", "part", 0.2 * i, 0.9 - 0.1 * i);
        sim_point(&r, "what it saves", "that way", "load", "part", 0.2 * i, 0.9);
        sim_point(&r, "what it <costs>", "this way", "load", "times", 0.2 * i, 1 + i);
    }
    sim_report_text_html(&r, "a day", "a <table> of numbers", &out);
    TEST_ASSERT_FALSE(out.failed);
    tl_buf_putc(&out, 0);
    unsigned plots = 0, lines = 0;
    for (const char *p = out.p; (p = strstr(p, "<svg")) != NULL; p++)
        plots++;
    for (const char *p = out.p; (p = strstr(p, "<polyline")) != NULL; p++)
        lines++;
    TEST_ASSERT_EQUAL_UINT(2, plots);
    TEST_ASSERT_EQUAL_UINT(3, lines);
    TEST_ASSERT_NOT_NULL(strstr(out.p, "<figcaption>what it saves</figcaption>"));
    TEST_ASSERT_NOT_NULL(strstr(out.p, "<figcaption>what it &lt;costs&gt;</figcaption>"));
    TEST_ASSERT_NOT_NULL(strstr(out.p, "<pre>a &lt;table&gt; of numbers</pre>"));
    TEST_ASSERT_NOT_NULL(strstr(out.p, ">that way<"));
    tl_buf_finish(&out);
    sim_report_finish(&r);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(plots_that_belong_to_no_experiment_are_in_the_page_below_the_text);
    return UNITY_END();
}
