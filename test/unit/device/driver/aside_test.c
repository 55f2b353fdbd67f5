/* Threads that the driver starts for itself keep off the CPUs of SMs, whoever starts them. */
#include "test/unit/device/driver/help.h"

#include <dirent.h>
#include <sched.h>

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static void CUDA_CB note_affinity(void *data)
{
    sched_getaffinity(0, sizeof(cpu_set_t), data);
}

/* Where a thread whose name begins so may run. */
static bool cpus_of(const char *name, cpu_set_t *cpus)
{
    bool was_found = false;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(d)) != NULL && !was_found;) {
        char path[300], comm[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        was_found = f != NULL && fgets(comm, sizeof comm, f) != NULL &&
                    strncmp(comm, name, strlen(name)) == 0 &&
                    sched_getaffinity(atoi(e->d_name), sizeof *cpus, cpus) == 0;
        if (f != NULL)
            fclose(f);
    }
    closedir(d);
    return was_found;
}

static const char text[] = HEAD
    ".visible .entry k(.param .u64 p) { .reg .u64 %d; .reg .u32 %r<3>; .reg .pred %p;\n"
    "ld.param.u64 %d, [p]; mov.u32 %r1, 0;\n"
    "again: add.u32 %r1, %r1, 1; ld.volatile.global.u32 %r2, [%d];\n"
    "setp.lt.u32 %p, %r1, 2000000; @%p bra again; ret; }\n";

static void host_functions_behind_kernels_are_not_on_sms(void)
{
    cpu_set_t all, sms, both, host;
    CUmodule m;
    CUfunction f;
    CUdeviceptr memory;
    sched_getaffinity(0, sizeof all, &all);
    if (CPU_COUNT(&all) < 2)
        TEST_IGNORE_MESSAGE("there is one CPU, and nothing to divide");
    OK(CALL(cuModuleLoadData)(&m, text));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    OK(CALL(cuMemAlloc_v2)(&memory, 4));
    void *args[] = {&memory};
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    OK(CALL(cuLaunchHostFunc)(NULL, note_affinity, &host));
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_TRUE(cpus_of("tally-sm", &sms));
    TEST_ASSERT_TRUE(CPU_COUNT(&sms) < CPU_COUNT(&all));
    CPU_AND(&both, &sms, &host);
    TEST_ASSERT_EQUAL_INT(0, CPU_COUNT(&both));
    OK(CALL(cuModuleUnload)(m));
    OK(CALL(cuMemFree_v2)(memory));
}

int main(void)
{
    UNITY_BEGIN();
    setenv("TALLY_DEVICE_SMS", "1", 1);
    open_driver();
    RUN_TEST(host_functions_behind_kernels_are_not_on_sms);
    return UNITY_END();
}
