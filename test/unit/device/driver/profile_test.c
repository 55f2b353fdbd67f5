/* Profiles: what a device with that profile says of itself, and which functions its driver has.
 *
 * Each profile needs a process of its own, since one is for the life of a process: the test runs
 * itself again with TALLY_DEVICE_PROFILE set, and the child's part is named by its argument. */
#include "tally/device.h"
#include "test/unit/device/driver/help.h"
#include "test/unit/image/build.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const char *self;

void setUp(void)
{
}

void tearDown(void)
{
}

/* Runs a part of this file in a child; its output is kept. */
static int run_part(const char *profile, const char *part, char *said, size_t n)
{
    char command[PATH_MAX + 128];
    snprintf(command, sizeof command, "TALLY_DEVICE_PROFILE=%s '%s' %s 2>&1", profile, self, part);
    FILE *f = popen(command, "r");
    TEST_ASSERT_NOT_NULL(f);
    size_t got = fread(said, 1, n - 1, f);
    said[got] = 0;
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void must(const char *profile, const char *part)
{
    char said[4096];
    if (run_part(profile, part, said, sizeof said) != 0) {
        printf("%s", said);
        TEST_FAIL_MESSAGE(profile);
    }
}

static int attribute(CUdevice_attribute a)
{
    int v = -1;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuDeviceGetAttribute)(&v, a, 0));
    return v;
}

/* --- numbers: CUDA C++ Programming Guide, technical specifications per compute capability --- */

static const struct numbers {
    const char *profile;
    int cc, driver, sms, sm_threads, sm_blocks, sm_shared_kb, block_shared_kb;
} numbers[] = {
    {"a100-r535", 80, 12020, 108, 2048, 32, 164, 163},
    {"rtx4090-r550", 89, 12040, 128, 1536, 24, 100, 99},
    {"h100-r550", 90, 12040, 132, 2048, 32, 228, 227},
    {"h100-r580", 90, 13000, 132, 2048, 32, 228, 227},
    {"b200-r580", 100, 13000, 148, 2048, 32, 228, 227},
};
enum { N = sizeof numbers / sizeof numbers[0] };

static void part_numbers(void)
{
    const char *name = getenv("TALLY_DEVICE_PROFILE");
    char device[64];
    int version, cc;
    const struct numbers *want = NULL;
    for (size_t i = 0; i < N; i++)
        if (strcmp(numbers[i].profile, name) == 0)
            want = &numbers[i];
    TEST_ASSERT_NOT_NULL(want);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuInit)(0));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuDriverGetVersion)(&version));
    cc = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
         attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    TEST_ASSERT_EQUAL_INT(want->driver, version);
    TEST_ASSERT_EQUAL_INT(want->cc, cc);
    TEST_ASSERT_EQUAL_INT(want->sms, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    TEST_ASSERT_EQUAL_INT(want->sm_threads,
                          attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
    TEST_ASSERT_EQUAL_INT(want->sm_blocks,
                          attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
    TEST_ASSERT_EQUAL_INT(want->sm_shared_kb << 10,
                          attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
    TEST_ASSERT_EQUAL_INT(want->block_shared_kb << 10,
                          attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
    TEST_ASSERT_EQUAL_INT(0, attribute(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED));
    TEST_ASSERT_EQUAL_INT(0, attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED));
    /* What it is remains what it is. */
    TEST_ASSERT_EQUAL_INT(1, attribute((CUdevice_attribute)TL_DEVICE_ATTRIBUTE_BLOCK_BY_BLOCK));
    /* Whoever reads a name sees that it is no GPU. */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuDeviceGetName)(device, sizeof device, 0));
    TEST_ASSERT_NOT_NULL(strstr(device, "Tally Software Device"));
    TEST_ASSERT_NOT_NULL(strstr(device, name));
    /* An attribute of CUDA 12.8. */
    int unused;
    TEST_ASSERT_EQUAL_INT(
        want->driver < 13000 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS,
        CALL(cuDeviceGetAttribute)(&unused, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0));
}

static void each_profile_has_the_numbers_of_its_gpu(void)
{
    for (size_t i = 0; i < N; i++)
        must(numbers[i].profile, "numbers");
}

/* --- functions: cudaTypedefs.h has the version that brought each --- */

static const struct {
    const char *name;
    int since;
} functions[] = {
    {"cuLaunchKernel", 4000},
    {"cuLibraryLoadData", 12000},
    {"cuFuncGetName", 12030},
    {"cuFuncGetParamInfo", 12040},
    {"cuKernelGetParamInfo", 12040},
    {"cuGreenCtxCreate", 12040},
    {"cuLibraryEnumerateKernels", 12040},
    {"cuCtxCreate_v4", 12050},
    {"cuMemcpyBatchAsync", 12080},
    {"cuCtxSynchronize_v2", 13000},
};

/* SMs are given out in groups, whose sizes cuda.h has by compute capability. */
static void part_groups(void)
{
    int major = 0, sms = 0;
    CUdevResource all, part[64];
    unsigned n = 64;
    OK(CALL(cuInit)(0));
    OK(CALL(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    OK(CALL(cuDeviceGetAttribute)(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    OK(CALL(cuDeviceGetDevResource)(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    unsigned least = major >= 9 ? 8 : 4, step = major >= 9 ? 8 : 2;
    TEST_ASSERT_EQUAL_UINT(least, all.sm.minSmPartitionSize);
    TEST_ASSERT_EQUAL_UINT(step, all.sm.smCoscheduledAlignment);
    OK(CALL(cuDevSmResourceSplitByCount)(part, &n, &all, NULL, 0, 1));
    TEST_ASSERT_EQUAL_UINT((unsigned)sms / least, n);
    TEST_ASSERT_EQUAL_UINT(least, part[n - 1].sm.smCount);
    n = 1;
    OK(CALL(cuDevSmResourceSplitByCount)(part, &n, &all, NULL, 0, 17));
    TEST_ASSERT_EQUAL_UINT(major >= 9 ? 24 : 18, part[0].sm.smCount);
    n = 64;
    OK(CALL(cuDevSmResourceSplitByCount)(part, &n, &all, NULL,
                                         CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 1));
    TEST_ASSERT_EQUAL_UINT(2, part[0].sm.smCount);
}

static void part_functions(void)
{
    int driver_has = 0;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuDriverGetVersion)(&driver_has));
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        const char *name = functions[i].name;
        bool is_there = functions[i].since <= driver_has;
        CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
        void *found = dlsym(driver, name), *asked = (void *)1;
        TEST_ASSERT_EQUAL_INT_MESSAGE(is_there, found != NULL, name);
        if (strchr(name, '_') != NULL)
            continue; /* those names are the linker's only */
        CUresult r = CALL(cuGetProcAddress_v2)(name, &asked, 13000, 0, &status);
        TEST_ASSERT_EQUAL_INT_MESSAGE(is_there ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, r, name);
        TEST_ASSERT_EQUAL_PTR_MESSAGE(is_there ? asked : NULL, asked, name);
        TEST_ASSERT_EQUAL_INT_MESSAGE(is_there ? CU_GET_PROC_ADDRESS_SUCCESS
                                               : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
                                      status, name);
    }
    /* Of a function with several versions there is the newest that the driver has. */
    void *newest;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS,
                          CALL(cuGetProcAddress_v2)("cuCtxSynchronize", &newest, 13000, 0, NULL));
    TEST_ASSERT_EQUAL_PTR(
        driver_symbol(driver_has < 13000 ? "cuCtxSynchronize" : "cuCtxSynchronize_v2"), newest);
}

static void a_driver_has_the_functions_of_its_version_and_no_others(void)
{
    for (size_t i = 0; i < N; i++)
        must(numbers[i].profile, "functions");
    must("soft", "functions");
}

static void sms_are_given_out_in_groups(void)
{
    must("rtx4090-r550", "groups");
    must("h100-r550", "groups");
    must("b200-r580", "groups");
}

/* --- registration: cuMemHostRegister in cuda.h --- */

static CUcontext make_context(void)
{
    CUcontext ctx;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuInit)(0));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuCtxCreate_v2)(&ctx, 0, 0));
    return ctx;
}

static CUresult registered(void *p, size_t n, unsigned flags)
{
    return CALL(cuMemHostRegister_v2)(p, n, flags);
}

static void part_registration(void)
{
    CUcontext ctx = make_context();
    char *rw = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *ro = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr device;
    void *host;
    bool is_soft = strcmp(getenv("TALLY_DEVICE_PROFILE"), "soft") == 0;
    TEST_ASSERT_TRUE(rw != MAP_FAILED && ro != MAP_FAILED);
    /* Only readable memory needs the flag, and the flag needs attribute 113. */
    TEST_ASSERT_EQUAL_INT(is_soft ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED,
                          registered(ro, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
    if (!is_soft) {
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, registered(ro, 4096, 0));
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_SUPPORTED,
                              registered(rw, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
        /* Half of it is only readable, or is not there. */
        TEST_ASSERT_EQUAL_INT(0, mprotect(rw + 8192, 4096, PROT_READ));
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, registered(rw, 16384, 0));
        TEST_ASSERT_EQUAL_INT(0, munmap(rw + 8192, 4096));
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, registered(rw, 16384, 0));
    }
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, registered(rw, 4096, 0x80));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, registered(rw, 0, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, registered(NULL, 4096, 0));
    /* Neither address nor size need be a page's. */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, registered(rw + 100, 5000, CU_MEMHOSTREGISTER_DEVICEMAP));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, registered(rw + 100, 5000, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, registered(rw, 200, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, registered(rw + 5000, 500, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuMemHostGetDevicePointer_v2)(&device, rw + 100, 0));
    TEST_ASSERT_EQUAL_UINT64((uintptr_t)rw + 100, device); /* as attribute 91 promises */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, CALL(cuMemHostUnregister)(rw));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuMemHostUnregister)(rw + 100));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                          CALL(cuMemHostUnregister)(rw + 100));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuMemHostAlloc)(&host, 4096, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, registered(host, 4096, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuCtxDestroy_v2)(ctx));
}

static void memory_that_is_only_readable_cannot_be_registered_over_pcie(void)
{
    must("soft", "registration");
    must("a100-r535", "registration");
    must("h100-r580", "registration");
}

/* --- captures: cuThreadExchangeStreamCaptureMode and cuStreamIsCapturing in cuda.h; programming
 * guide, "Prohibited and Unhandled Operations" --- */

static CUstream captured(unsigned flags, CUstreamCaptureMode mode)
{
    CUstream s;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuStreamCreate)(&s, flags));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuStreamBeginCapture_v2)(s, mode));
    return s;
}

/* Ends it, and looks whether it had been made invalid. */
static void ends(CUstream s, bool is_valid)
{
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuStreamIsCapturing)(s, &status));
    TEST_ASSERT_EQUAL_INT(
        is_valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED, status);
    TEST_ASSERT_EQUAL_INT(is_valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                          CALL(cuStreamEndCapture)(s, &graph));
    TEST_ASSERT_TRUE(is_valid == (graph != NULL));
    if (graph != NULL)
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuGraphDestroy)(graph));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuStreamDestroy_v2)(s));
}

/* What another thread gets for an allocation in each mode while this one captures. */
struct elsewhere {
    CUcontext ctx;
    CUstreamCaptureMode mode;
    CUresult allocated, ended;
    CUstream stream;
};

static void *allocate_elsewhere(void *data)
{
    struct elsewhere *e = data;
    CUstreamCaptureMode mode = e->mode;
    CUdeviceptr p;
    CUgraph graph;
    CALL(cuCtxSetCurrent)(e->ctx);
    CALL(cuThreadExchangeStreamCaptureMode)(&mode);
    e->allocated = CALL(cuMemAlloc_v2)(&p, 64);
    e->ended = CALL(cuStreamEndCapture)(e->stream, &graph);
    return NULL;
}

static CUresult elsewhere(CUcontext ctx, CUstream s, CUstreamCaptureMode mode)
{
    struct elsewhere e = {.ctx = ctx, .mode = mode, .stream = s};
    pthread_t thread;
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, allocate_elsewhere, &e));
    pthread_join(thread, NULL);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, e.ended);
    return e.allocated;
}

static const CUstreamCaptureMode GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL,
                                 LOCAL = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                 RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED;
static const CUresult unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                      implicit = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;

/* The legacy stream cannot be used while a blocking stream is captured. */
static void capture_and_use_the_legacy_stream(CUdeviceptr p, CUevent event)
{
    CUdeviceptr q;
    CUstreamCaptureStatus status;
    char bytes[64] = "";
    CUstream s = captured(CU_STREAM_DEFAULT, RELAXED);
    TEST_ASSERT_EQUAL_INT(implicit, CALL(cuStreamIsCapturing)(NULL, &status));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuMemsetD8Async)(p, 1, 64, s));
    ends(s, true); /* to ask spoils nothing */
    s = captured(CU_STREAM_DEFAULT, RELAXED);
    TEST_ASSERT_EQUAL_INT(implicit, CALL(cuMemsetD8Async)(p, 1, 64, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                          CALL(cuMemsetD8Async)(p, 1, 64, s));
    ends(s, false);
    s = captured(CU_STREAM_DEFAULT, RELAXED);
    TEST_ASSERT_EQUAL_INT(implicit, CALL(cuMemcpyHtoD_v2)(p, bytes, 64));
    ends(s, false);
    s = captured(CU_STREAM_DEFAULT, RELAXED);
    TEST_ASSERT_EQUAL_INT(implicit, CALL(cuEventRecord)(event, NULL));
    ends(s, false);
    s = captured(CU_STREAM_DEFAULT, RELAXED);
    TEST_ASSERT_EQUAL_INT(implicit, CALL(cuStreamSynchronize)(NULL));
    ends(s, false);
    /* A stream that does not wait for it leaves it alone. */
    s = captured(CU_STREAM_NON_BLOCKING, RELAXED);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuMemcpyHtoD_v2)(p, bytes, 64));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuEventRecord)(event, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuEventSynchronize)(event));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuMemAlloc_v2)(&q, 64));
    ends(s, true);
}

/* What is no work of a stream is refused by mode. */
static void capture_and_do_other_work(CUdeviceptr p, CUevent event)
{
    CUdeviceptr q;
    char bytes[64] = "";
    CUstream s = captured(CU_STREAM_NON_BLOCKING, GLOBAL);
    TEST_ASSERT_EQUAL_INT(unsupported, CALL(cuMemAlloc_v2)(&q, 64));
    ends(s, false);
    s = captured(CU_STREAM_NON_BLOCKING, LOCAL);
    TEST_ASSERT_EQUAL_INT(unsupported, CALL(cuMemFree_v2)(p));
    ends(s, false);
    s = captured(CU_STREAM_NON_BLOCKING, GLOBAL);
    TEST_ASSERT_EQUAL_INT(unsupported, CALL(cuMemcpyHtoD_v2)(p, bytes, 64));
    ends(s, false);
    s = captured(CU_STREAM_NON_BLOCKING, GLOBAL);
    TEST_ASSERT_EQUAL_INT(unsupported, CALL(cuEventQuery)(event));
    ends(s, false);
    CUstreamCaptureMode mode = RELAXED;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuThreadExchangeStreamCaptureMode)(&mode));
    TEST_ASSERT_EQUAL_INT(GLOBAL, mode);
    s = captured(CU_STREAM_NON_BLOCKING, GLOBAL);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuMemAlloc_v2)(&q, 64));
    ends(s, true);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuThreadExchangeStreamCaptureMode)(&mode));
}

/* Other threads: their own mode counts, and only global captures are everybody's. */
static void capture_while_others_allocate(CUcontext ctx)
{
    CUstream s = captured(CU_STREAM_NON_BLOCKING, GLOBAL);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, elsewhere(ctx, s, LOCAL));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, elsewhere(ctx, s, RELAXED));
    TEST_ASSERT_EQUAL_INT(unsupported, elsewhere(ctx, s, GLOBAL));
    ends(s, false);
    s = captured(CU_STREAM_NON_BLOCKING, LOCAL);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, elsewhere(ctx, s, GLOBAL));
    ends(s, true);
}

/* Waiting for what only will be, whatever the mode. */
static void capture_and_wait(CUevent inside)
{
    CUstream s = captured(CU_STREAM_NON_BLOCKING, RELAXED);
    TEST_ASSERT_EQUAL_INT(unsupported, CALL(cuStreamSynchronize)(s));
    ends(s, false);
    s = captured(CU_STREAM_NON_BLOCKING, RELAXED);
    TEST_ASSERT_EQUAL_INT(unsupported, CALL(cuCtxSynchronize)());
    ends(s, false);
    s = captured(CU_STREAM_NON_BLOCKING, RELAXED);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuEventRecord)(inside, s));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_CAPTURED_EVENT, CALL(cuEventQuery)(inside));
    ends(s, false);
}

static void part_captures(void)
{
    CUcontext ctx = make_context();
    CUdeviceptr p;
    CUevent event, inside;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuMemAlloc_v2)(&p, 64));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuEventCreate)(&event, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuEventCreate)(&inside, 0));
    capture_and_use_the_legacy_stream(p, event);
    capture_and_do_other_work(p, event);
    capture_while_others_allocate(ctx);
    capture_and_wait(inside);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuEventDestroy_v2)(event));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuEventDestroy_v2)(inside));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuCtxDestroy_v2)(ctx));
}

static void captures_are_spoilt_by_what_the_documentation_forbids(void)
{
    must("a100-r535", "captures");
    must("h100-r580", "captures");
}

/* --- what waits for the context: programming guide, "Lazy Loading" and "Implicit Synchronization"
 * --- */

struct waiter {
    CUcontext ctx;
    int which, hold;
    CUdeviceptr memory;
    atomic_bool was_let_go, was_over; /* the host function; before it */
    _Atomic pid_t thread;
    atomic_bool is_over;
};

static void CUDA_CB hold_up(void *data)
{
    struct waiter *w = data;
    char c;
    if (read(w->hold, &c, 1) < 0)
        abort();
    w->was_let_go = true;
}

static void *call_that_waits(void *data)
{
    static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry k()\n{\n ret;\n}\n";
    struct waiter *w = data;
    CUmodule module;
    CUdeviceptr p;
    CALL(cuCtxSetCurrent)(w->ctx);
    w->thread = gettid();
    if (w->which == 0)
        CALL(cuModuleLoadData)(&module, ptx);
    else if (w->which == 1)
        CALL(cuMemFree_v2)(w->memory);
    else
        CALL(cuMemAlloc_v2)(&p, 64);
    w->was_over = !w->was_let_go;
    w->is_over = true;
    return NULL;
}

/* Whether the thread sleeps, which a call does that waits for what does not come. */
static bool sleeps(pid_t thread)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *f = thread != 0 ? fopen(path, "r") : NULL;
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f != NULL)
        fclose(f);
    const char *state = strrchr(text, ')');
    return state != NULL && state[1] == ' ' && state[2] == 'S';
}

/* A host function holds a stream up until the call is over or sleeps.  On the device as it is, only
 * freeing waits. */
static void part_waiting(void)
{
    CUcontext ctx = make_context();
    CUstream s;
    bool is_soft = strcmp(getenv("TALLY_DEVICE_PROFILE"), "soft") == 0;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    for (int which = 0; which < 3; which++) {
        int ends_of[2];
        pthread_t thread;
        struct waiter w = {.ctx = ctx, .which = which};
        bool waits = !is_soft || which == 1;
        TEST_ASSERT_EQUAL_INT(0, pipe(ends_of));
        w.hold = ends_of[0];
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuMemAlloc_v2)(&w.memory, 64));
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuLaunchHostFunc)(s, hold_up, &w));
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, call_that_waits, &w));
        while (!w.is_over && !(waits && sleeps(w.thread)))
            sched_yield();
        TEST_ASSERT_EQUAL_INT(1, write(ends_of[1], "", 1));
        pthread_join(thread, NULL);
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuStreamSynchronize)(s));
        TEST_ASSERT_EQUAL_INT(!waits, w.was_over);
        close(ends_of[0]);
        close(ends_of[1]);
    }
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuCtxDestroy_v2)(ctx));
}

static void loads_and_allocations_wait_for_the_context(void)
{
    must("soft", "waiting");
    must("a100-r535", "waiting");
    must("h100-r580", "waiting");
}

/* --- images: programming guide, "Binary Compatibility" and "PTX Compatibility" --- */

enum { PTX = BUILD_PTX, CODE = BUILD_CUBIN, SPECIAL = 1000 };

/* What a fatbin holds: PTX for an architecture, or machine code for one, made of a virtual one. */
struct piece {
    uint16_t kind;
    uint32_t arch, made_of; /* SPECIAL + 90 is 90a */
};

static struct build_entry entry_of(const struct piece *p, struct tl_buf *payload)
{
    struct build_entry e = {.kind = p->kind, .arch = p->arch % SPECIAL};
    if (p->arch >= SPECIAL)
        e.flags = 0x0000000000100011; /* as nvcc marks sm_90a */
    if (p->kind == PTX) {
        tl_buf_printf(payload,
                      ".version 7.8\n.target sm_%u%s\n.address_size 64\n"
                      ".visible .entry k()\n{\n ret;\n}\n",
                      e.arch, p->arch >= SPECIAL ? "a" : "");
    } else {
        static uint32_t note[8] = {12, 8, 1000, 0x4449564e, 0x43204149, 0x0070726f, 0, 0x82};
        const struct build_section section = {".note.nv.cuinfo", 7, 0, 0, 0, note, sizeof note};
        note[6] = 2 | p->made_of << 16;
        build_elf(
            payload,
            &(struct build_elf){.machine = 190, .type = 2, .abi = 8, .flags = e.arch << 8 | 4},
            &section, 1);
    }
    e.payload = payload->p;
    e.payload_bytes = payload->n;
    return e;
}

/* Loads a fatbin with these, and compares what its kernel says of itself: PTX_VERSION and
 * BINARY_VERSION, or both 0 if it is refused. */
static void loads(const struct piece *pieces, size_t n, int ptx, int binary)
{
    struct tl_buf out = {0}, payloads[4] = {{0}};
    struct build_entry entries[4];
    CUmodule module;
    CUfunction f;
    int said[2];
    for (size_t i = 0; i < n; i++)
        entries[i] = entry_of(&pieces[i], &payloads[i]);
    build_container(&out, entries, n);
    CUresult r = CALL(cuModuleLoadData)(&module, out.p);
    TEST_ASSERT_EQUAL_INT(ptx == 0 ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS, r);
    if (r == CUDA_SUCCESS) {
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuModuleGetFunction)(&f, module, "k"));
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS,
                              CALL(cuFuncGetAttribute)(&said[0], CU_FUNC_ATTRIBUTE_PTX_VERSION, f));
        TEST_ASSERT_EQUAL_INT(
            CUDA_SUCCESS, CALL(cuFuncGetAttribute)(&said[1], CU_FUNC_ATTRIBUTE_BINARY_VERSION, f));
        TEST_ASSERT_EQUAL_INT(ptx, said[0]);
        TEST_ASSERT_EQUAL_INT(binary, said[1]);
    }
    for (size_t i = 0; i < n; i++)
        tl_buf_finish(&payloads[i]);
    tl_buf_finish(&out);
}
#define LOADS(ptx, binary, ...)                                                                    \
    loads((const struct piece[]){__VA_ARGS__},                                                     \
          sizeof((struct piece[]){__VA_ARGS__}) / sizeof(struct piece), ptx, binary)

static void part_images_h100(void)
{
    CUcontext ctx = make_context();
    /* PTX of the highest architecture that is not above the device's, compiled for it. */
    LOADS(90, 90, {PTX, 80, 0}, {PTX, 90, 0}, {PTX, 100, 0});
    LOADS(80, 90, {PTX, 80, 0}, {PTX, 100, 0});
    LOADS(0, 0, {PTX, 100, 0});
    /* Machine code first, if its major architecture is the device's; it is what its PTX was. */
    LOADS(90, 90, {CODE, 90, 90}, {PTX, 90, 0}, {PTX, 80, 0});
    LOADS(80, 90, {CODE, 90, 80}, {PTX, 90, 0}, {PTX, 80, 0});
    LOADS(80, 90, {CODE, 80, 80}, {CODE, 86, 80}, {PTX, 80, 0});
    LOADS(80, 90, {CODE, 100, 100}, {PTX, 80, 0});
    /* A GPU would run it.  Here there is no PTX that it is known to be. */
    LOADS(0, 0, {CODE, 90, 90}, {PTX, 80, 0});
    /* 90a is for 9.0 alone, which this is. */
    LOADS(90, 90, {PTX, SPECIAL + 90, 0}, {PTX, 80, 0});
    LOADS(90, 90, {CODE, SPECIAL + 90, 90}, {PTX, SPECIAL + 90, 0}, {PTX, 80, 0});
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuCtxDestroy_v2)(ctx));
}

static void part_images_b200(void)
{
    CUcontext ctx = make_context();
    LOADS(0, 0, {PTX, SPECIAL + 90, 0});
    LOADS(80, 100, {PTX, SPECIAL + 90, 0}, {CODE, SPECIAL + 90, 90}, {PTX, 80, 0});
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuCtxDestroy_v2)(ctx));
}

static void part_images_4090(void)
{
    CUcontext ctx = make_context();
    LOADS(80, 86, {CODE, 80, 80}, {CODE, 86, 80}, {PTX, 80, 0});
    LOADS(80, 80, {CODE, 80, 80}, {CODE, 90, 90}, {PTX, 80, 0});
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuCtxDestroy_v2)(ctx));
}

/* R535 is of CUDA 12.2, whose PTX is 8.2 (release notes of the PTX ISA). */
static void part_images_a100(void)
{
    static const char body[] =
        ".target sm_80\n.address_size 64\n.visible .entry k()\n{\n ret;\n}\n";
    char old[200], newer[200];
    CUcontext ctx = make_context();
    CUmodule module;
    LOADS(80, 80, {CODE, 86, 80}, {PTX, 80, 0}); /* 8.6 is above 8.0 */
    snprintf(old, sizeof old, ".version 8.2\n%s", body);
    snprintf(newer, sizeof newer, ".version 8.3\n%s", body);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuModuleLoadData)(&module, old));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                          CALL(cuModuleLoadData)(&module, newer));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuCtxDestroy_v2)(ctx));
}

static void images_are_chosen_as_a_gpus_driver_does(void)
{
    must("h100-r580", "images_h100");
    must("b200-r580", "images_b200");
    must("rtx4090-r550", "images_4090");
    must("a100-r535", "images_a100");
}

/* --- names --- */

static void part_init(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_DEVICE, CALL(cuInit)(0));
}

static void a_name_that_is_not_known_is_refused_with_those_that_are(void)
{
    char said[4096];
    TEST_ASSERT_EQUAL_INT(0, run_part("h200-r999", "init", said, sizeof said));
    TEST_ASSERT_NOT_NULL(strstr(said, "TALLY_DEVICE_PROFILE=h200-r999 is not known"));
    TEST_ASSERT_NOT_NULL(
        strstr(said, "soft, a100-r535, rtx4090-r550, h100-r550, h100-r580, b200-r580"));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"numbers", part_numbers},
                 {"functions", part_functions},
                 {"groups", part_groups},
                 {"init", part_init},
                 {"registration", part_registration},
                 {"captures", part_captures},
                 {"waiting", part_waiting},
                 {"images_h100", part_images_h100},
                 {"images_b200", part_images_b200},
                 {"images_4090", part_images_4090},
                 {"images_a100", part_images_a100}};
    self = argv[0];
    UNITY_BEGIN();
    if (argc > 1) {
        open_driver();
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            if (strcmp(argv[1], parts[i].name) == 0)
                UnityDefaultTestRun(parts[i].run, parts[i].name, __LINE__);
        return UNITY_END();
    }
    RUN_TEST(each_profile_has_the_numbers_of_its_gpu);
    RUN_TEST(a_driver_has_the_functions_of_its_version_and_no_others);
    RUN_TEST(sms_are_given_out_in_groups);
    RUN_TEST(memory_that_is_only_readable_cannot_be_registered_over_pcie);
    RUN_TEST(captures_are_spoilt_by_what_the_documentation_forbids);
    RUN_TEST(loads_and_allocations_wait_for_the_context);
    RUN_TEST(images_are_chosen_as_a_gpus_driver_does);
    RUN_TEST(a_name_that_is_not_known_is_refused_with_those_that_are);
    return UNITY_END();
}
