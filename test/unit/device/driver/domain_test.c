/* Processes on one device whose faults are everybody's, as those of clients of one MPS server are
 * (documentation of MPS, "Error Containment"): a fatal exception of one ends the work of all and is
 * reported to all, and nobody new is let in until these have gone. */
#include "test/unit/device/driver/help.h"

#include <sys/wait.h>

void setUp(void)
{
}

void tearDown(void)
{
}

/* Spins until its word is not 0, or stores to where nothing is. */
static const char ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry spin(.param .u64 p)\n{\n .reg .u64 %a; .reg .u32 %v; .reg .pred %q;\n"
    " ld.param.u64 %a, [p];\nL:\n ld.volatile.global.u32 %v, [%a];\n setp.eq.u32 %q, %v, 0;\n"
    " @%q bra L;\n ret;\n}\n"
    ".visible .entry fault(.param .u64 p)\n{\n .reg .u64 %a;\n"
    " mov.u64 %a, 64;\n st.global.u32 [%a], 1;\n ret;\n}\n";

/* A process of its own on the device of this test, and what it says: a word each time. */
struct client {
    pid_t pid;
    int to, from;
};

static void say(int fd, int word)
{
    if (write(fd, &word, sizeof word) != sizeof word)
        _exit(3);
}

static int hear(int fd)
{
    int word = -1;
    if (read(fd, &word, sizeof word) != sizeof word)
        return -1;
    return word;
}

/* Says what cuInit said; then, told to, launches and says so, then says what waiting for it said,
 * then what a call after that; ends when it is told to. */
static void live(int in, int out, const char *kernel)
{
    CUcontext ctx;
    CUmodule module;
    CUfunction f;
    CUdeviceptr p, q;
    void *params[] = {&p};
    driver = dlopen(getenv("TALLY_TEST_DRIVER"), RTLD_NOW);
    if (driver == NULL)
        _exit(2);
    say(out, (int)CALL(cuInit)(0));
    hear(in);
    if (kernel != NULL && CALL(cuCtxCreate_v2)(&ctx, 0, 0) == CUDA_SUCCESS &&
        CALL(cuModuleLoadData)(&module, ptx) == CUDA_SUCCESS &&
        CALL(cuModuleGetFunction)(&f, module, kernel) == CUDA_SUCCESS &&
        CALL(cuMemAlloc_v2)(&p, 64) == CUDA_SUCCESS &&
        CALL(cuMemsetD8_v2)(p, 0, 64) == CUDA_SUCCESS && CALL(cuCtxSynchronize)() == CUDA_SUCCESS) {
        say(out, (int)CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        say(out, (int)CALL(cuCtxSynchronize)());
        say(out, (int)CALL(cuMemAlloc_v2)(&q, 64));
    }
    hear(in);
    _exit(0);
}

static struct client start(const char *kernel)
{
    int to[2], from[2];
    struct client c;
    TEST_ASSERT_TRUE(pipe(to) == 0 && pipe(from) == 0);
    c = (struct client){fork(), to[1], from[0]};
    if (c.pid == 0) {
        close(to[1]);
        close(from[0]);
        live(to[0], from[1], kernel);
    }
    close(to[0]);
    close(from[1]);
    return c;
}

static void end(struct client *c)
{
    int status;
    say(c->to, 0);
    TEST_ASSERT_EQUAL_INT(c->pid, waitpid(c->pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    close(c->to);
    close(c->from);
}

/* One that only asks whether it may come. */
static int visit(void)
{
    struct client c = start(NULL);
    int said = hear(c.from);
    say(c.to, 0);
    end(&c);
    return said;
}

static void a_fault_of_one_is_a_fault_of_all(void)
{
    setenv("TALLY_DEVICE_FAULTS", "shared", 1);
    struct client waits = start("spin"), faults = start("fault");
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, hear(waits.from));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, hear(faults.from));
    say(waits.to, 0);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, hear(waits.from)); /* it spins, for ever */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, visit());
    say(faults.to, 0);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, hear(faults.from));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, hear(faults.from));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, hear(waits.from));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, hear(faults.from)); /* and it stays so */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, hear(waits.from));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_MPS_SERVER_NOT_READY, visit());
    end(&faults);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_MPS_SERVER_NOT_READY, visit());
    end(&waits);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, visit());
}

/* By default on the device as it is, and where processes take turns. */
static void otherwise_others_go_on(void)
{
    static const char *const modes[] = {"mps", "timeslice"};
    for (int i = 0; i < 2; i++) {
        setenv("TALLY_DEVICE_FAULTS", i == 0 ? "own" : "shared", 1);
        setenv("TALLY_DEVICE_MODE", modes[i], 1);
        struct client faults = start("fault");
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, hear(faults.from));
        say(faults.to, 0);
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, hear(faults.from));
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, hear(faults.from));
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, hear(faults.from));
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, visit());
        end(&faults);
    }
    unsetenv("TALLY_DEVICE_MODE");
}

int main(void)
{
    char path[PATH_MAX], name[64];
    const char *build = getenv("TALLY_BUILD");
    snprintf(path, sizeof path, "%s/lib/tally/device/libcuda.so.1",
             build != NULL ? build : "build");
    snprintf(name, sizeof name, "tally-test-domain-%d", (int)getpid());
    setenv("TALLY_TEST_DRIVER", path, 1);
    setenv("TALLY_DEVICE_NAME", name, 1);
    setenv("TALLY_DEVICE_MEM", "512M", 1);
    setenv("TALLY_DEVICE_SMS", "2", 1); /* one spins, another faults */
    atexit(remove_device);
    UNITY_BEGIN();
    RUN_TEST(a_fault_of_one_is_a_fault_of_all);
    RUN_TEST(otherwise_others_go_on);
    return UNITY_END();
}
