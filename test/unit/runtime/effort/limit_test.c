/* A form that takes far more registers than the kernel is compiled once more, with a limit.  Where
 * the compiler cannot keep to it (ptxas: "Insufficient registers"), the first one is used, and the
 * kernel is cut all the same. */
#include "job.h"

enum { BLOCKS = 64 };

void setUp(void)
{
}

void tearDown(void)
{
}

/* Launches of forms, how often a limited one was to be compiled, and what the blocks came to. */
static uint32_t launch(uint32_t *n_limited, unsigned *sum)
{
    static const char text[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry add(.param .u64 p)\n{\n"
        ".reg .b32 %r<2>;\n.reg .b64 %d<2>;\nld.param.u64 %d1, [p];\n"
        "atom.global.add.u32 %r1, [%d1], 1;\nret;\n}\n";
    CUmodule module;
    CUfunction f;
    CUdeviceptr word;
    uint32_t n, n_forms = 0;
    *n_limited = 0;
    OK(CALL(cuModuleLoadData)(&module, text));
    OK(CALL(cuModuleGetFunction)(&f, module, "add"));
    OK(CALL(cuMemAlloc_v2)(&word, 4));
    OK(CALL(cuMemsetD32_v2)(word, 0, 1));
    void *params[] = {&word};
    OK(CALL(cuLaunchKernel)(f, BLOCKS, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(sum, word, 4));
    const struct witness_call *c = calls(&n);
    for (uint32_t i = 0; i < n; i++) {
        n_forms += c[i].kind == WITNESS_LAUNCH && strstr(c[i].name, "__tally_") != NULL;
        *n_limited += c[i].kind == WITNESS_LIMITED;
    }
    return n_forms;
}

static void a_form_is_used_whatever_comes_of_its_limit(void)
{
    uint32_t n_limited;
    unsigned sum = 0, n_forms = launch(&n_limited, &sum);
    TEST_ASSERT_TRUE(n_limited > 0);
    TEST_ASSERT_TRUE(n_forms > 0);
    TEST_ASSERT_EQUAL_UINT(BLOCKS * 32, sum);
}

static int run(const char *profile, const char *rung)
{
    UNITY_BEGIN();
    begin_job(profile, rung);
    RUN_TEST(a_form_is_used_whatever_comes_of_its_limit);
    int failed = UNITY_END();
    end_job();
    return failed;
}

int main(void)
{
    static const char *const rungs[] = {"ticket", "persistent", NULL};
    setenv("WITNESS_LIMIT", "refused", 1);
    int failed = each_job(run, rungs);
    setenv("WITNESS_LIMIT", "kept", 1);
    return each_job(run, rungs) | failed;
}
