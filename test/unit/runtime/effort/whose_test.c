/* Whose code may be gated: a wrong yes would change a library that is not to be changed. */
#include "runtime/effort/whose.h"

#include <string.h>
#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static void libraries_of_nvidia_are_known_by_their_files(void)
{
    static const char *const files[] = {
        "/usr/local/cuda/lib64/libcublas.so.13",
        "/usr/lib/x86_64-linux-gnu/libcublasLt.so.12.8.4.1",
        "/p/site-packages/nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9",
        "/p/cupy.libs/libcufft-7a1c0b2e.so.11",
        "/p/torch/lib/libcusparseLt.so.0",
        "libcusolverMg.so.11",
        "/x/libcurand.so",
        "/x/libnccl.so.2",
        "/x/libnccl-net.so",
        "/x/libnppif.so.12",
        "/x/libnvjpeg.so.12",
        "/x/libnvrtc-builtins.so.13.0",
        "/x/libnvJitLink.so.13",
        "/x/libnvinfer_plugin.so.10",
        "/x/libcutensor.so.2",
        "/x/libnvidia-opticalflow.so.1",
        "/p/dist-packages/nvidia/something/lib/libnobodyknows.so",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        TEST_ASSERT_EQUAL_MESSAGE(TL_EFF_OF_NVIDIA, tl_eff_whose(files[i], "/bin/job"), files[i]);
        TEST_ASSERT_EQUAL_MESSAGE(TL_EFF_OF_NVIDIA, tl_eff_whose("memory", files[i]), files[i]);
        TEST_ASSERT_EQUAL_MESSAGE(TL_EFF_OF_NVIDIA, tl_eff_whose("/bin/job", files[i]), files[i]);
    }
}

static void what_lies_in_other_files_is_the_jobs(void)
{
    static const char *const files[] = {"/proc/self/exe", "/p/torch/lib/libtorch_cuda.so",
                                        "/p/xformers/_C.so", "/home/nvidia/libmine.so",
                                        "/home/libcublas/kernels.cubin"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        TEST_ASSERT_EQUAL_MESSAGE(TL_EFF_OF_THE_JOB, tl_eff_whose(files[i], "/x/libcudart.so.13"),
                                  files[i]);
        TEST_ASSERT_EQUAL_MESSAGE(TL_EFF_OF_THE_JOB, tl_eff_whose(files[i], ""), files[i]);
        TEST_ASSERT_EQUAL_MESSAGE(TL_EFF_OF_THE_JOB, tl_eff_whose("memory", files[i]), files[i]);
    }
    TEST_ASSERT_EQUAL(TL_EFF_OF_THE_JOB,
                      tl_eff_whose("/p/torch/lib/libtorch_cuda.so",
                                   "/p/site-packages/nvidia/cu13/lib/libcudart.so.13"));
}

static void of_what_is_in_memory_the_loader_decides_and_in_doubt_nobody_knows(void)
{
    TEST_ASSERT_EQUAL(TL_EFF_OF_SOMEBODY, tl_eff_whose("memory", "/x/libcudart.so.13"));
    TEST_ASSERT_EQUAL(TL_EFF_OF_SOMEBODY, tl_eff_whose("memory", "/x/libcudart-4d2a1b3c.so.12"));
    TEST_ASSERT_EQUAL(TL_EFF_OF_SOMEBODY, tl_eff_whose("memory", "/x/libcuda.so.1"));
    TEST_ASSERT_EQUAL(TL_EFF_OF_SOMEBODY, tl_eff_whose("memory", ""));
    TEST_ASSERT_EQUAL(TL_EFF_OF_SOMEBODY, tl_eff_whose("", ""));
    TEST_ASSERT_EQUAL(TL_EFF_OF_SOMEBODY, tl_eff_whose("memory", "memory"));
}

/* All facts that there are, against the rules as a person would say them. */
static void what_may_be_gated_follows_from_mode_owner_and_doctor(void)
{
    for (int i = 0; i < 3 * 2 * 3 * 3; i++) {
        struct tl_eff_gate_facts f = {.mode = (enum tl_gate_mode)(i % 3),
                                      .is_forced = i / 3 % 2 != 0,
                                      .whose = (enum tl_eff_whose)(i / 6 % 3),
                                      .examined = (enum tl_eff_examined)(i / 18)};
        bool may = f.mode != TL_GATE_OFF;
        if (f.mode == TL_GATE_AUTO && f.whose != TL_EFF_OF_THE_JOB)
            may = false;
        if (f.examined == TL_EFF_FOUND_UNFIT)
            may = false;
        if (f.examined == TL_EFF_NEVER_EXAMINED && !f.is_forced)
            may = false;
        const char *why = tl_eff_gate_objection(&f);
        TEST_ASSERT_EQUAL(may, why == NULL);
        TEST_ASSERT_TRUE(why == NULL || strlen(why) > 0);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(libraries_of_nvidia_are_known_by_their_files);
    RUN_TEST(what_lies_in_other_files_is_the_jobs);
    RUN_TEST(of_what_is_in_memory_the_loader_decides_and_in_doubt_nobody_knows);
    RUN_TEST(what_may_be_gated_follows_from_mode_owner_and_doctor);
    return UNITY_END();
}
