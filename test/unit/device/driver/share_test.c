/* Memory, pools and events shared by two processes.  The child is this program again, since CUDA
 * does not survive a fork. */
#include "test/unit/device/driver/help.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
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

/* The child: waits for the parent's event in a stream, adds one to the word behind it, and says
 * so. */
static int child(void)
{
    struct message m;
    CUdeviceptr d;
    CUevent e;
    CUcontext ctx;
    unsigned v = 0;
    if (read(STDIN_FILENO, &m, sizeof m) != sizeof m)
        return 2;
    if (CALL(cuInit)(0) != CUDA_SUCCESS ||
        CALL(cuDevicePrimaryCtxRetain)(&ctx, 0) != CUDA_SUCCESS ||
        CALL(cuCtxSetCurrent)(ctx) != CUDA_SUCCESS)
        return 3;
    if (CALL(cuIpcOpenMemHandle_v2)(&d, m.memory, 0) != CUDA_SUCCESS ||
        CALL(cuIpcOpenEventHandle)(&e, m.event) != CUDA_SUCCESS)
        return 4;
    if (CALL(cuEventQuery)(e) != CUDA_ERROR_NOT_READY)
        return 5;
    if (write(STDOUT_FILENO, "w", 1) != 1)
        return 6;
    if (CALL(cuStreamWaitEvent)(NULL, e, 0) != CUDA_SUCCESS ||
        CALL(cuMemcpyDtoH_v2)(&v, d + 8, 4) != CUDA_SUCCESS)
        return 7;
    v++;
    if (CALL(cuMemcpyHtoD_v2)(d + 8, &v, 4) != CUDA_SUCCESS ||
        CALL(cuIpcCloseMemHandle)(d) != CUDA_SUCCESS || CALL(cuEventDestroy_v2)(e) != CUDA_SUCCESS)
        return 8;
    return 0;
}

/* --- memory behind descriptors ---------------------------------------------------------------- */

enum { POOL_FD = 20, MEMORY_FD, PIECE = 2 << 20 };

/* The child: adds one to the first word of a pool's allocation, and to one of memory that it maps
 * itself. */
static int child_of_pool(void)
{
    CUmemPoolPtrExportData data;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle memory;
    CUdeviceptr d, none, at;
    CUcontext ctx;
    unsigned v = 0;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (read(STDIN_FILENO, &data, sizeof data) != sizeof data)
        return 2;
    if (CALL(cuInit)(0) != CUDA_SUCCESS ||
        CALL(cuDevicePrimaryCtxRetain)(&ctx, 0) != CUDA_SUCCESS ||
        CALL(cuCtxSetCurrent)(ctx) != CUDA_SUCCESS)
        return 3;
    if (CALL(cuMemPoolImportFromShareableHandle)(&pool, (void *)(intptr_t)POOL_FD,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                 0) != CUDA_SUCCESS ||
        CALL(cuMemPoolImportPointer)(&d, pool, &data) != CUDA_SUCCESS)
        return 4;
    if (CALL(cuMemAllocFromPoolAsync)(&none, 4096, pool, NULL) == CUDA_SUCCESS)
        return 5; /* what is another's gives nothing out */
    if (CALL(cuMemcpyDtoH_v2)(&v, d, 4) != CUDA_SUCCESS)
        return 6;
    v++;
    if (CALL(cuMemcpyHtoD_v2)(d, &v, 4) != CUDA_SUCCESS ||
        CALL(cuMemFreeAsync)(d, NULL) != CUDA_SUCCESS || CALL(cuCtxSynchronize)() != CUDA_SUCCESS ||
        CALL(cuMemPoolDestroy)(pool) != CUDA_SUCCESS)
        return 7;
    if (CALL(cuMemImportFromShareableHandle)(&memory, (void *)(intptr_t)MEMORY_FD,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
            CUDA_SUCCESS ||
        CALL(cuMemAddressReserve)(&at, PIECE, 0, 0, 0) != CUDA_SUCCESS ||
        CALL(cuMemMap)(at, PIECE, 0, memory, 0) != CUDA_SUCCESS ||
        CALL(cuMemSetAccess)(at, PIECE, &access, 1) != CUDA_SUCCESS)
        return 8;
    return CALL(cuMemsetD32_v2)(at, 7, 1) != CUDA_SUCCESS ? 9 : 0;
}

/* Memory of a pool that holds 41, with descriptor and pointer for another process. */
static CUmemoryPool share_pool(CUdeviceptr *d, int *fd, CUmemPoolPtrExportData *data)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool, plain;
    int none;
    OK(CALL(cuMemPoolCreate)(&pool, &props));
    OK(CALL(cuMemAllocFromPoolAsync)(d, 100, pool, NULL));
    OK(CALL(cuMemsetD32Async)(*d, 41, 1, NULL));
    OK(CALL(cuMemPoolExportToShareableHandle)(fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              0));
    OK(CALL(cuMemPoolExportPointer)(data, *d));
    OK(CALL(cuDeviceGetDefaultMemPool)(&plain, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuMemPoolExportToShareableHandle)(
                              &none, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return pool;
}

/* Memory that is mapped, with a descriptor for another process. */
static CUmemGenericAllocationHandle share_mapped(CUdeviceptr *at, int *fd)
{
    const CUmemAllocationProp props = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory, again;
    OK(CALL(cuMemCreate)(&memory, PIECE, &props, 0));
    OK(CALL(cuMemExportToShareableHandle)(fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(CALL(cuMemAddressReserve)(at, PIECE, 0, 0, 0));
    OK(CALL(cuMemMap)(*at, PIECE, 0, memory, 0));
    OK(CALL(cuMemSetAccess)(*at, PIECE, &access, 1));
    /* is taken */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemMap)(*at, PIECE, 0, memory, 0));
    /* is in use */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemAddressFree)(*at, PIECE));
    OK(CALL(cuMemRetainAllocationHandle)(&again, (void *)*at));
    TEST_ASSERT_EQUAL_UINT64(memory, again);
    OK(CALL(cuMemRelease)(again));
    return memory;
}

static void memory_of_a_pool_and_mapped_memory_go_through_descriptors(void)
{
    CUmemPoolPtrExportData data;
    CUdeviceptr d, at;
    int to[2], pool_fd, memory_fd, status;
    unsigned v = 0;
    CUmemoryPool pool = share_pool(&d, &pool_fd, &data);
    CUmemGenericAllocationHandle memory = share_mapped(&at, &memory_fd);
    TEST_ASSERT_EQUAL_INT(0, pipe(to));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(pool_fd, POOL_FD);
        dup2(memory_fd, MEMORY_FD);
        close(to[1]);
        execl(self, self, "pool", (char *)NULL);
        _exit(10);
    }
    TEST_ASSERT_EQUAL_INT(sizeof data, write(to[1], &data, sizeof data));
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    OK(CALL(cuMemcpyDtoH_v2)(&v, d, 4));
    TEST_ASSERT_EQUAL_UINT(42, v);
    OK(CALL(cuMemcpyDtoH_v2)(&v, at, 4));
    TEST_ASSERT_EQUAL_UINT(7, v);
    OK(CALL(cuMemFreeAsync)(d, NULL));
    OK(CALL(cuMemPoolDestroy)(pool));
    OK(CALL(cuMemUnmap)(at, PIECE));
    OK(CALL(cuMemRelease)(memory));
    OK(CALL(cuMemAddressFree)(at, PIECE));
    close(to[0]);
    close(to[1]);
    close(pool_fd);
    close(memory_fd);
}

struct exported {
    CUdeviceptr at;
    CUmemPoolPtrExportData data;
    CUresult result;
};

static void *export_in_another_thread(void *data)
{
    struct exported *e = data;
    e->result = CALL(cuMemPoolExportPointer)(&e->data, e->at);
    return NULL;
}

/* Python's queues do that: a thread of theirs has no context, and the stream may wait for what the
 * other process does. */
static void a_pointer_is_exported_without_a_context_and_while_work_waits(void)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    struct exported e = {0};
    pthread_t thread;
    void *pinned;
    unsigned v = 0;
    OK(CALL(cuMemPoolCreate)(&pool, &props));
    OK(CALL(cuMemHostAlloc)(&pinned, 64, 0));
    memset(pinned, 0, 64);
    OK(CALL(cuMemAllocFromPoolAsync)(&e.at, 4096, pool, NULL));
    OK(CALL(cuStreamWaitValue32_v2)(NULL, (CUdeviceptr)pinned, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(CALL(cuMemsetD32Async)(e.at, 17, 1, NULL));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, export_in_another_thread, &e));
    pthread_join(thread, NULL); /* which does not wait for the stream */
    OK(e.result);
    __atomic_store_n((unsigned *)pinned, 1, __ATOMIC_RELEASE);
    OK(CALL(cuMemcpyDtoH_v2)(&v, e.at, 4));
    TEST_ASSERT_EQUAL_UINT(17, v);
    OK(CALL(cuMemFreeAsync)(e.at, NULL));
    OK(CALL(cuMemPoolDestroy)(pool));
    OK(CALL(cuMemFreeHost)(pinned));
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
    /* a closed gate */
    OK(CALL(cuStreamWaitValue32_v2)(NULL, (CUdeviceptr)pinned, 1, CU_STREAM_WAIT_VALUE_EQ));
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

/* The descriptor that a handle names: "tally…", process, number. */
static int descriptor_of(const void *handle)
{
    int numbers[2];
    memcpy(numbers, (const char *)handle + 8, sizeof numbers);
    TEST_ASSERT_EQUAL_INT(getpid(), numbers[0]);
    return numbers[1];
}

/* Whoever has the descriptor, or opens it in /proc, could otherwise end both processes. */
static void what_is_shared_cannot_be_made_shorter(void)
{
    struct message m;
    CUdeviceptr d, at;
    CUevent e;
    unsigned v = 0;
    int mapped;
    OK(CALL(cuMemAlloc_v2)(&d, 4096));
    OK(CALL(cuEventCreate)(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(CALL(cuIpcGetMemHandle)(&m.memory, d));
    OK(CALL(cuIpcGetEventHandle)(&m.event, e));
    CUmemGenericAllocationHandle memory = share_mapped(&at, &mapped);
    TEST_ASSERT_EQUAL_INT(-1, ftruncate(descriptor_of(&m.memory), 0));
    TEST_ASSERT_EQUAL_INT(-1, ftruncate(descriptor_of(&m.event), 0));
    TEST_ASSERT_EQUAL_INT(-1, ftruncate(mapped, 0));
    OK(CALL(cuMemsetD32_v2)(d, 5, 1));
    OK(CALL(cuMemcpyDtoH_v2)(&v, d, 4));
    TEST_ASSERT_EQUAL_UINT(5, v);
    OK(CALL(cuMemsetD32_v2)(at, 6, 1));
    OK(CALL(cuEventRecord)(e, NULL));
    OK(CALL(cuEventSynchronize)(e));
    OK(CALL(cuMemUnmap)(at, PIECE));
    OK(CALL(cuMemRelease)(memory));
    OK(CALL(cuMemAddressFree)(at, PIECE));
    OK(CALL(cuEventDestroy_v2)(e));
    OK(CALL(cuMemFree_v2)(d));
    close(mapped);
}

/* Nor is anything taken from others that they could make shorter. */
static void what_could_be_made_shorter_is_not_imported(void)
{
    CUmemGenericAllocationHandle memory;
    CUipcMemHandle handle;
    CUipcEventHandle event_handle;
    CUdeviceptr d;
    CUevent e;
    int open_end = memfd_create("open", MFD_ALLOW_SEALING), numbers[2];
    const uint64_t sizes[2] = {4096, 4096};
    TEST_ASSERT_TRUE(open_end >= 0 && ftruncate(open_end, PIECE) == 0);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemImportFromShareableHandle)(
                                                        &memory, (void *)(intptr_t)open_end,
                                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    /* of a process that holds it as well; memory of one's own is not imported anyway */
    pid_t holder = fork();
    if (holder == 0) {
        pause();
        _exit(0);
    }
    numbers[0] = holder;
    numbers[1] = open_end;
    memset(&handle, 0, sizeof handle);
    memset(&event_handle, 0, sizeof event_handle);
    TEST_ASSERT_EQUAL_INT(0, ftruncate(open_end, 4096));
    memcpy(&handle, "tallyipc", 8);
    memcpy((char *)&handle + 8, numbers, sizeof numbers);
    memcpy((char *)&handle + 16, sizes, sizeof sizes);
    memcpy(&event_handle, "tallyevt", 8);
    memcpy((char *)&event_handle + 8, numbers, sizeof numbers);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_MAP_FAILED, CALL(cuIpcOpenMemHandle_v2)(&d, handle, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_MAP_FAILED, CALL(cuIpcOpenEventHandle)(&e, event_handle));
    TEST_ASSERT_EQUAL_INT(0, fcntl(open_end, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
    OK(CALL(cuIpcOpenMemHandle_v2)(&d, handle, 0)); /* it was the seals */
    OK(CALL(cuIpcCloseMemHandle)(d));
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    close(open_end);
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1) {
        open_driver();
        return strcmp(argv[1], "pool") == 0 ? child_of_pool() : child();
    }
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(another_process_waits_for_an_event_and_changes_the_memory);
    RUN_TEST(memory_of_a_pool_and_mapped_memory_go_through_descriptors);
    RUN_TEST(a_pointer_is_exported_without_a_context_and_while_work_waits);
    RUN_TEST(what_is_shared_cannot_be_made_shorter);
    RUN_TEST(what_could_be_made_shorter_is_not_imported);
    return UNITY_END();
}
