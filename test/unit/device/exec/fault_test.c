/* What kernels do wrong: a fault of their launch and of nothing else, with the program's own signal
 * handlers as good as before. */
#include "device/exec/internal.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

static char name[64];
static struct tl_exec_device *device;
static struct tl_exec_config config;
static union {
    struct tl_dev_info info;
    uint8_t room[sizeof(struct tl_dev_info) + 32]; /* for its text */
} kernel;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint32_t n_done;

void setUp(void)
{
    static uint32_t n;
    snprintf(name, sizeof name, "tally-test-fault-%d-%u", (int)getpid(), n++);
    config = (struct tl_exec_config){.name = name, .n_slots = 2};
    device = NULL;
    n_done = 0;
    memset(&kernel, 0, sizeof kernel);
    kernel.info.abi_version = TL_DEV_ABI_VERSION;
    kernel.info.block[0] = 64;
    kernel.info.block[1] = kernel.info.block[2] = 1;
    kernel.info.n_barriers = 1;
    kernel.info.shared_bytes = 4096;
    strcpy(kernel.info.text, "bad_kernel");
}

void tearDown(void)
{
    tl_exec_device_close(device);
    tl__sm_unlink(name);
}

static void on_done(struct tl_exec_launch *l)
{
    (void)l;
    pthread_mutex_lock(&lock);
    n_done++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_done(uint32_t n)
{
    pthread_mutex_lock(&lock);
    while (n_done < n)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void submit(struct tl_exec_launch *l, tl_exec_warp_fn warp, tl_exec_blocks_fn blocks,
                   uint32_t grid)
{
    struct tl_exec_object *o = NULL;
    if (device == NULL)
        TEST_ASSERT_EQUAL_INT(0, tl_exec_device_open(&device, &config, NULL));
    kernel.info.n_barriers = blocks == NULL;
    TEST_ASSERT_EQUAL_INT(0, tl_exec_object_from(&o, &kernel.info, warp, blocks, NULL));
    *l = (struct tl_exec_launch){.object = o, .grid = {grid, 1, 1}, .done = on_done};
    TEST_ASSERT_EQUAL_INT(0, tl_exec_submit(device, l));
    tl_exec_object_unref(o);
}

static struct tl_exec_fault launch(tl_exec_warp_fn warp, tl_exec_blocks_fn blocks)
{
    struct tl_exec_launch l;
    uint32_t before = n_done;
    submit(&l, warp, blocks, 10);
    wait_done(before + 1);
    return l.fault;
}

/* --- kernels; what they do wrong is in assembler, so that sanitizers have no say in it */

static void store(uint64_t address)
{
    __asm__ volatile("movl $1, (%0)" : : "r"(address) : "memory");
}

static void well(struct tl_dev_frame *f, uint32_t warp)
{
    f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
    f->shared[warp] = 1;
    f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
}

static void store_low(struct tl_dev_frame *f, uint32_t warp)
{
    f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
    if (f->ctaid[0] == 3 && warp == 1)
        store(0x1234);
    f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
}

static void store_low_range(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f, (void)first, (void)count;
    store(0x1000);
}

static void store_beyond_shared(struct tl_dev_frame *f, uint32_t warp)
{
    (void)warp;
    store((uintptr_t)f->shared + 4096);
}

static void store_nowhere(struct tl_dev_frame *f, uint32_t warp)
{
    (void)f, (void)warp;
    store(0x8000000000001000);
}

static void trap(struct tl_dev_frame *f, uint32_t warp)
{
    (void)f, (void)warp;
    __asm__ volatile("ud2");
}

static void divide(struct tl_dev_frame *f, uint32_t warp)
{
    (void)f, (void)warp;
    __asm__ volatile("xorl %%ecx, %%ecx\n\tmovl $1, %%eax\n\tcltd\n\tidivl %%ecx"
                     :
                     :
                     : "eax", "ecx", "edx", "cc");
}

static __attribute__((noinline)) uint32_t recurse(uint32_t n)
{
    static volatile uint32_t deepest = UINT32_MAX;
    volatile uint8_t room[1000];
    room[n % 1000] = (uint8_t)n;
    uint32_t deeper = n < deepest ? recurse(n + 1) : 0;
    return deeper + room[n % 1000];
}

static void overflow(struct tl_dev_frame *f, uint32_t warp)
{
    f->shared[0] = (uint8_t)recurse(warp);
}

static void print_bad_text(struct tl_dev_frame *f, uint32_t warp)
{
    (void)warp;
    const char *wrong = (const char *)0x10;
    f->calls->vprintf(f, "%s\n", (const void *)&wrong);
}

static void loop_forever(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f, (void)first, (void)count;
    for (;;)
        __asm__ volatile("pause");
}

static void spin_forever(struct tl_dev_frame *f, uint32_t warp)
{
    for (;;)
        f->calls->yield(f, warp);
}

/* --- faults */

static void works_still(void)
{
    struct tl_exec_fault fault = launch(well, NULL);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, fault.what, fault.text);
}

static void an_illegal_address_is_a_fault_that_tells_where(void)
{
    struct tl_exec_fault fault = launch(store_low, NULL);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(TL_DEV_FAULT_ADDRESS, fault.what, fault.text);
    TEST_ASSERT_EQUAL_HEX64(0x1234, fault.detail);
    TEST_ASSERT_EQUAL_UINT32(3, fault.ctaid[0]);
    TEST_ASSERT_EQUAL_UINT32(1, fault.warp);
    TEST_ASSERT_EQUAL_STRING("kernel bad_kernel: block (3, 0, 0), warp 1: illegal access to 0x1234",
                             fault.text);
    works_still();
}

static void every_worker_survives_many_faults(void)
{
    for (uint32_t i = 0; i < 200; i++)
        TEST_ASSERT_EQUAL_UINT32(
            TL_DEV_FAULT_ADDRESS,
            launch(i % 2 ? store_low : NULL, i % 2 ? NULL : store_low_range).what);
    works_still();
}

static void shared_memory_has_an_end(void)
{
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_ADDRESS, launch(store_beyond_shared, NULL).what);
    works_still();
}

static void addresses_that_cannot_be_are_faults(void)
{
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_ADDRESS, launch(store_nowhere, NULL).what);
    works_still();
}

static void trap_and_division_are_faults(void)
{
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_TRAP, launch(trap, NULL).what);
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_TRAP, launch(divide, NULL).what);
    works_still();
}

static void a_stack_that_overflows_is_a_fault(void)
{
    for (uint32_t i = 0; i < 5; i++) {
        struct tl_exec_fault fault = launch(overflow, NULL);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(TL_DEV_FAULT_STACK, fault.what, fault.text);
    }
    works_still();
}

static void printf_of_a_wrong_pointer_is_a_fault(void)
{
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_ADDRESS, launch(print_bad_text, NULL).what);
    works_still();
}

static atomic_bool may_go, is_held;
static void hold(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)first, (void)count;
    atomic_store(&is_held, true);
    while (!atomic_load(&may_go))
        f->calls->yield(f, 0);
}

static void other_launches_are_untouched(void)
{
    struct tl_exec_launch l;
    atomic_store(&may_go, false);
    atomic_store(&is_held, false);
    submit(&l, NULL, hold, 1);
    while (!atomic_load(&is_held))
        sched_yield();
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_ADDRESS, launch(store_low, NULL).what);
    atomic_store(&may_go, true);
    wait_done(2);
    TEST_ASSERT_EQUAL_UINT32(0, l.fault.what);
}

static void the_watchdog_ends_what_does_not_end(void)
{
    config.watchdog_s = 1;
    struct tl_exec_fault fault = launch(NULL, loop_forever);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(TL_DEV_FAULT_TIMEOUT, fault.what, fault.text);
    TEST_ASSERT_NOT_NULL(strstr(fault.text, "bad_kernel"));
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_TIMEOUT, launch(spin_forever, NULL).what);
    works_still();
}

/* --- the program's own handlers */

static sigjmp_buf back;
static volatile int n_caught;
static void program_handler(int number)
{
    (void)number;
    n_caught++;
    siglongjmp(back, 1);
}

static void program_faults(void)
{
    if (sigsetjmp(back, 1) == 0)
        store(0x1000);
}

static void handlers_of_the_program_keep_working(void)
{
    struct sigaction mine, old;
    memset(&mine, 0, sizeof mine);
    mine.sa_handler = program_handler;
    sigaction(SIGSEGV, &mine, &old);
    n_caught = 0;
    works_still();
    program_faults();
    TEST_ASSERT_EQUAL_INT(1, n_caught);
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_ADDRESS, launch(store_low, NULL).what);
    TEST_ASSERT_EQUAL_INT(1, n_caught);
    /* Installed once more, behind our back. */
    sigaction(SIGSEGV, &mine, NULL);
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_ADDRESS, launch(store_low, NULL).what);
    TEST_ASSERT_EQUAL_INT(1, n_caught);
    program_faults();
    TEST_ASSERT_EQUAL_INT(2, n_caught);
    sigaction(SIGSEGV, &old, NULL);
}

static struct sigaction older;
static void calling_handler(int number, siginfo_t *info, void *context)
{
    if ((older.sa_flags & SA_SIGINFO) != 0)
        older.sa_sigaction(number, info, context);
    else
        older.sa_handler(number);
}

/* Of a sanitizer, where there is one. */
void __sanitizer_set_report_path(const char *path) __attribute__((weak));

static void die_in_child(int how)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (__sanitizer_set_report_path != NULL)
        __sanitizer_set_report_path("stderr"); /* not among the reports that test/run counts */
    fclose(stderr);
    /* a handler that calls the one before it, which is ours, and then we move in front of it
     * again */
    if (how == 1) {
        struct sigaction mine;
        memset(&mine, 0, sizeof mine);
        mine.sa_sigaction = calling_handler;
        mine.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &mine, &older);
        launch(well, NULL);
    }
    if (how == 2)
        raise(SIGSEGV);
    store(0x1000);
    _exit(0);
}

static void a_fault_of_the_program_ends_it_as_ever(void)
{
    for (int how = 0; how < 3; how++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            if (tl_exec_device_open(&device, &config, NULL) != 0)
                _exit(0);
            die_in_child(how);
        }
        int status = 0;
        waitpid(pid, &status, 0);
#if TL_EXEC_ASAN
        TEST_ASSERT_TRUE(status != 0); /* ASan ends it its own way */
#else
        TEST_ASSERT_TRUE(WIFSIGNALED(status));
        TEST_ASSERT_EQUAL_INT(SIGSEGV, WTERMSIG(status));
#endif
    }
}

static void nothing(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f, (void)first, (void)count;
}

/* From now on this process gets no stacks for its handlers. */
static bool forbid_stacks(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sigaltstack, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* A launch that nobody can run is refused; it would never end. */
static void workers_that_cannot_work_are_told(void)
{
    pid_t child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        struct tl_exec_object *o = NULL;
        alarm(60);
        if (!forbid_stacks())
            _exit(33);
        if (tl_exec_device_open(&device, &config, NULL) != 0 ||
            tl_exec_object_from(&o, &kernel.info, NULL, nothing, NULL) != 0)
            _exit(1);
        struct tl_exec_launch l = {.object = o, .grid = {5, 1, 1}, .done = on_done};
        int rc = tl_exec_submit(device, &l);
        if (rc == 0)
            wait_done(1);
        _exit(rc == -ENOMEM ? 0 : 2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 33)
        TEST_IGNORE_MESSAGE("no system calls can be forbidden here");
    TEST_ASSERT_EQUAL_HEX(0, status);
}

int main(void)
{
    UNITY_BEGIN();
    if (TL_EXEC_TSAN) {
        TEST_MESSAGE("TSan has its own ways with signals: one test only");
        RUN_TEST(works_still);
        RUN_TEST(workers_that_cannot_work_are_told);
        return UNITY_END();
    }
    RUN_TEST(an_illegal_address_is_a_fault_that_tells_where);
    RUN_TEST(every_worker_survives_many_faults);
    RUN_TEST(shared_memory_has_an_end);
    RUN_TEST(addresses_that_cannot_be_are_faults);
    RUN_TEST(trap_and_division_are_faults);
    RUN_TEST(a_stack_that_overflows_is_a_fault);
    RUN_TEST(printf_of_a_wrong_pointer_is_a_fault);
    RUN_TEST(other_launches_are_untouched);
    RUN_TEST(the_watchdog_ends_what_does_not_end);
    RUN_TEST(handlers_of_the_program_keep_working);
    RUN_TEST(a_fault_of_the_program_ends_it_as_ever);
    RUN_TEST(workers_that_cannot_work_are_told);
    return UNITY_END();
}
