/* gpulet: the interference model against the published vectors, the knee, and plans that keep every
 * rule. */
#include "sched/gpulet.h"

#include <errno.h>
#include <stdio.h>
#include <unity.h>

static const struct tl_gpulet_options two_gpus = {.gpus = 2};

void setUp(void)
{
}

void tearDown(void)
{
}

static struct tl_gpulet_model model(const char *name, double rate)
{
    struct tl_gpulet_model m;
    TEST_ASSERT_TRUE_MESSAGE(tl_gpulet_builtin(name, &m), name);
    m.rate = rate;
    return m;
}

static void alpha_is_that_of_the_artefact(void)
{
    struct tl_gpulet_model vgg = model("vgg16", 0), resnet = model("resnet50", 0),
                           lenet = model("lenet", 0);
    /* The table's utilisations are rounded to a tenth of a percent, which is worth 0.0003 here. */
    TEST_ASSERT_DOUBLE_WITHIN(3e-4, 1.1291, tl_gpulet_alpha(&vgg, 8, 50, &resnet, 8, 50));
    TEST_ASSERT_DOUBLE_WITHIN(3e-4, 1.1408, tl_gpulet_alpha(&resnet, 8, 50, &vgg, 8, 50));
    TEST_ASSERT_DOUBLE_WITHIN(3e-4, 1.1051, tl_gpulet_alpha(&vgg, 32, 80, &lenet, 8, 20));
    TEST_ASSERT_DOUBLE_WITHIN(3e-4, 1.1232, tl_gpulet_alpha(&lenet, 8, 20, &vgg, 32, 80));
}

static void latency_grows_with_the_batch_and_falls_with_the_size(void)
{
    struct tl_gpulet_model m = model("resnet50", 0);
    for (int i = 0; i + 1 < TL_GPULET_SIZES; i++)
        TEST_ASSERT_TRUE(tl_gpulet_latency(&m, 16, tl_gpulet_sizes[i], 1, &two_gpus) >=
                         tl_gpulet_latency(&m, 16, tl_gpulet_sizes[i + 1], 1, &two_gpus));
    for (int b = 1; b < 32; b++)
        TEST_ASSERT_TRUE(tl_gpulet_latency(&m, b, 100, 1, &two_gpus) <
                         tl_gpulet_latency(&m, b + 1, 100, 1, &two_gpus));
}

static void a_saturated_gpulet_needs_two_rounds_within_the_slo(void)
{
    struct tl_gpulet_model m = model("resnet50", 0);
    uint32_t batch;
    double rate = tl_gpulet_saturated_rate(&m, 60, &two_gpus, &batch);
    TEST_ASSERT_TRUE(batch >= 1 && batch <= 32);
    TEST_ASSERT_TRUE(2 * tl_gpulet_latency(&m, batch, 60, 1, &two_gpus) <= m.slo_ms);
    TEST_ASSERT_DOUBLE_WITHIN(1e-9, 1000 * batch / tl_gpulet_latency(&m, batch, 60, 1, &two_gpus),
                              rate);
}

static void every_plan_keeps_every_rule(void)
{
    static const char *const names[] = {"lenet",           "googlenet",   "resnet50",
                                        "ssd-mobilenetv1", "vgg16",       "mnasnet1_0",
                                        "mobilenet_v2",    "densenet161", "bert"};
    enum { NAMES = sizeof names / sizeof names[0] };
    uint64_t x = 3;
    int planned = 0;
    for (int round = 0; round < 3000; round++) {
        struct tl_gpulet_model models[NAMES];
        uint32_t n = 0;
        for (int i = 0; i < NAMES; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            double rate = (double)((x >> 40) % 400);
            if ((x >> 33) % 2 == 0)
                models[n++] = model(names[i], rate);
        }
        struct tl_gpulet_options o = {.gpus = 1 + (uint32_t)(x >> 50) % 4,
                                      .planner = (enum tl_gpulet_planner)(round % 3),
                                      .has_interference = (x >> 60) % 2 == 1};
        struct tl_gpulet_plan plan;
        int rc = tl_gpulet_plan(&plan, models, n, &o);
        TEST_ASSERT_TRUE(rc == 0 || rc == -ENOSPC);
        if (rc < 0)
            continue;
        planned++;
        const char *broken = tl_gpulet_check(&plan, models, n, &o);
        TEST_ASSERT_NULL_MESSAGE(broken, broken);
    }
    TEST_ASSERT_TRUE(planned > 300);
}

static void whatever_the_planner_finds_the_search_finds_too(void)
{
    struct tl_gpulet_model models[3] = {model("resnet50", 0), model("vgg16", 0),
                                        model("mobilenet_v2", 0)};
    struct tl_gpulet_options o = {.gpus = 2, .slack_rate = -1};
    double planner = 0, best = 0;
    for (double rate = 50; rate <= 2000; rate += 50) {
        struct tl_gpulet_plan plan;
        for (int i = 0; i < 3; i++)
            models[i].rate = rate;
        if (tl_gpulet_plan(&plan, models, 3, &o) == 0)
            planner = rate;
        if (tl_gpulet_search(&plan, models, 3, &o) == 0) {
            const char *broken = tl_gpulet_check(&plan, models, 3, &o);
            TEST_ASSERT_NULL_MESSAGE(broken, broken);
            best = rate;
        }
    }
    printf("highest common rate: planner %g, search %g\n", planner, best);
    TEST_ASSERT_TRUE(best > 0);
    TEST_ASSERT_TRUE(planner >= 0.6 * best);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(alpha_is_that_of_the_artefact);
    RUN_TEST(latency_grows_with_the_batch_and_falls_with_the_size);
    RUN_TEST(a_saturated_gpulet_needs_two_rounds_within_the_slo);
    RUN_TEST(every_plan_keeps_every_rule);
    RUN_TEST(whatever_the_planner_finds_the_search_finds_too);
    return UNITY_END();
}
