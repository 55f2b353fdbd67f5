/* What a program that sets nothing reads on standard error: what it asked for and did not get. */
#include "test/unit/device/driver/help.h"

#include <fcntl.h>

static char path[PATH_MAX];

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

/* How often something stands in what was put out so far. */
static int times(const char *what)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    TEST_ASSERT_NOT_NULL(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

static void a_call_that_is_missing_is_named_once(void)
{
    CUgraphicsResource resource;
    for (int i = 0; i < 3; i++)
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_SUPPORTED,
                              CALL(cuGraphicsUnregisterResource)(resource = NULL));
    TEST_ASSERT_EQUAL_INT(1, times("cuGraphicsUnregisterResource"));
}

static void an_instruction_that_is_missing_is_named(void)
{
    CUmodule m;
    CUfunction f;
    OK(CALL(cuModuleLoadData)(&m, ".version 8.6\n.target sm_100a\n.address_size 64\n"
                                  ".visible .entry k()\n{ tcgen05.fence::before_thread_sync; ret; "
                                  "}\n"));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_SUPPORTED,
                          CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(1, times("tcgen05.fence"));
    OK(CALL(cuModuleUnload)(m));
}

static void a_table_of_nvidias_that_is_not_there_is_nobodys_matter(void)
{
    const void *table;
    CUuuid id = {.bytes = {1, 2, 3, 4}};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuGetExportTable)(&table, &id));
    TEST_ASSERT_EQUAL_INT(0, times("export table"));
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/log-%d", tmp != NULL ? tmp : "/tmp", (int)getpid());
    unsetenv("TALLY_LOG");
    int fd = open(path, O_CREAT | O_RDWR | O_APPEND, 0600), was = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(a_call_that_is_missing_is_named_once);
    RUN_TEST(an_instruction_that_is_missing_is_named);
    RUN_TEST(a_table_of_nvidias_that_is_not_there_is_nobodys_matter);
    dup2(was, STDERR_FILENO);
    unlink(path);
    return UNITY_END();
}
