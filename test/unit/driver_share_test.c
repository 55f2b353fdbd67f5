/* Memory and events shared by two processes.  The child is this program again, since CUDA does not survive a fork. */
#if __has_include(<cuda.h>)
#include "driver_help.h"

#include <sys/wait.h>

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static const char *self;

struct message {
    CUipcMemHandle memory;
    CUipcEventHandle event;
};

/* The child: waits for the parent's event in a stream, adds one to the word behind it, and says so. */
static int child(void)
{
    struct message m;
    CUdeviceptr d;
    CUevent e;
    CUcontext ctx;
    unsigned v = 0;
    if (read(STDIN_FILENO, &m, sizeof m) != sizeof m)
        return 2;
    if (CALL(cuInit)(0) != CUDA_SUCCESS || CALL(cuDevicePrimaryCtxRetain)(&ctx, 0) != CUDA_SUCCESS ||
        CALL(cuCtxSetCurrent)(ctx) != CUDA_SUCCESS)
        return 3;
    if (CALL(cuIpcOpenMemHandle_v2)(&d, m.memory, 0) != CUDA_SUCCESS ||
        CALL(cuIpcOpenEventHandle)(&e, m.event) != CUDA_SUCCESS)
        return 4;
    if (CALL(cuEventQuery)(e) != CUDA_ERROR_NOT_READY)
        return 5;
    if (write(STDOUT_FILENO, "w", 1) != 1)
        return 6;
    if (CALL(cuStreamWaitEvent)(NULL, e, 0) != CUDA_SUCCESS || CALL(cuMemcpyDtoH_v2)(&v, d + 8, 4) != CUDA_SUCCESS)
        return 7;
    v++;
    if (CALL(cuMemcpyHtoD_v2)(d + 8, &v, 4) != CUDA_SUCCESS || CALL(cuIpcCloseMemHandle)(d) != CUDA_SUCCESS ||
        CALL(cuEventDestroy_v2)(e) != CUDA_SUCCESS)
        return 8;
    return 0;
}

static void another_process_waits_for_an_event_and_changes_the_memory(void)
{
    int to[2], from[2], status;
    struct message m;
    CUdeviceptr d;
    CUevent e;
    void *pinned;
    unsigned v = 41;
    char letter;
    TEST_ASSERT_EQUAL_INT(0, pipe(to));
    TEST_ASSERT_EQUAL_INT(0, pipe(from));
    OK(CALL(cuMemHostAlloc)(&pinned, 64, 0));
    memset(pinned, 0, 64);
    OK(CALL(cuMemAlloc_v2)(&d, 4096));
    OK(CALL(cuMemsetD8_v2)(d, 0, 4096));
    OK(CALL(cuEventCreate)(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(CALL(cuIpcGetMemHandle)(&m.memory, d));
    OK(CALL(cuIpcGetEventHandle)(&m.event, e));
    OK(CALL(cuStreamWaitValue32_v2)(NULL, (CUdeviceptr)pinned, 1, CU_STREAM_WAIT_VALUE_EQ)); /* a closed gate */
    OK(CALL(cuMemsetD32Async)(d + 8, v, 1, NULL));
    OK(CALL(cuEventRecord)(e, NULL));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[1]);
        execl(self, self, "child", (char *)NULL);
        _exit(9);
    }
    TEST_ASSERT_EQUAL_INT(sizeof m, write(to[1], &m, sizeof m));
    TEST_ASSERT_EQUAL_INT(1, read(from[0], &letter, 1)); /* it found the event not ready */
    __atomic_store_n((unsigned *)pinned, 1, __ATOMIC_RELEASE);
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_TRUE(WIFEXITED(status));
    TEST_ASSERT_EQUAL_INT(0, WEXITSTATUS(status));
    OK(CALL(cuMemcpyDtoH_v2)(&v, d + 8, 4));
    TEST_ASSERT_EQUAL_UINT(42, v);
    OK(CALL(cuEventDestroy_v2)(e));
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuMemFreeHost)(pinned));
    close(to[0]);
    close(to[1]);
    close(from[0]);
    close(from[1]);
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1) {
        open_driver();
        return child();
    }
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(another_process_waits_for_an_event_and_changes_the_memory);
    return UNITY_END();
}
#else
#include "unity.h"

void setUp(void)
{
}

void tearDown(void)
{
}

int main(void)
{
    UNITY_BEGIN();
    return UNITY_END();
}
#endif
