/* Large copies of a best-effort job below a client of a high level that this test plays itself:
 * they reach the driver in pieces, none while the client is busy, and what arrives is what was
 * sent. */
#include "job.h"
#include "test/unit/scratch.h"

#include <stdatomic.h>

#include "runtime/job/client.h"

enum { MIB = 1 << 20, BYTES = 19 * MIB + 12345, HOST_PIECE = 2 * MIB, DEVICE_PIECE = 8 * MIB };
static struct tl_client *high;
static CUdeviceptr one, two;
static uint8_t *pinned, *pinned_back, *pageable;
static CUstream stream;
static uint32_t seed;

void setUp(void)
{
    OK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuMemsetD8_v2)(one, 0, BYTES));
    OK(CALL(cuMemsetD8_v2)(two, 0, BYTES));
    OK(CALL(cuCtxSynchronize)());
    forget_calls();
    seed++;
}

void tearDown(void)
{
    OK(CALL(cuStreamDestroy_v2)(stream));
}

static void fill(uint8_t *p)
{
    for (size_t i = 0; i < BYTES; i++)
        p[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

static void check_bytes(const uint8_t *p)
{
    for (size_t i = 0; i < BYTES; i++)
        if (p[i] != (uint8_t)((i * 2654435761u + seed) >> 13)) {
            printf("byte %zu\n", i);
            TEST_FAIL_MESSAGE("other bytes");
        }
}

/* The copies so far: of at most so many bytes each, one behind the other, all of them together. */
static void check_pieces(uint64_t most, uint64_t total)
{
    uint32_t n, n_copies = 0;
    uint64_t at = 0, from = 0, sum = 0;
    const struct witness_call *c = calls(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].kind != WITNESS_COPY || c[i].value <= 8) /* 8: counters of kernels */
            continue;
        OK(c[i].result);
        TEST_ASSERT_LESS_OR_EQUAL_UINT64(most, c[i].value);
        if (n_copies++ > 0 && c[i].to != 0) {
            TEST_ASSERT_EQUAL_UINT64(at, c[i].to);
            TEST_ASSERT_EQUAL_UINT64(from, c[i].from);
        }
        at = c[i].to + c[i].value;
        from = c[i].from + c[i].value;
        sum += c[i].value;
    }
    TEST_ASSERT_EQUAL_UINT64(total, sum);
    TEST_ASSERT_EQUAL_UINT32((total + most - 1) / most, n_copies);
}

/* --- tests --- */

static void pinned_memory_there_and_back(void)
{
    fill(pinned);
    OK(CALL(cuMemcpyHtoDAsync_v2)(one, pinned, BYTES, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    check_pieces(HOST_PIECE, BYTES);
    forget_calls();
    OK(CALL(cuMemcpyDtoHAsync_v2)(pinned_back, one, BYTES, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    check_pieces(HOST_PIECE, BYTES);
    check_bytes(pinned_back);
}

/* What stands behind a copy waits for all of it. */
static void order_in_the_stream_is_kept(void)
{
    fill(pinned);
    OK(CALL(cuMemcpyHtoDAsync_v2)(one, pinned, BYTES, stream));
    OK(CALL(cuMemcpyDtoDAsync_v2)(two, one, BYTES, stream));
    OK(CALL(cuMemsetD8Async)(one, 0, BYTES, stream));
    OK(CALL(cuMemcpyDtoHAsync_v2)(pinned_back, two, BYTES, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    check_bytes(pinned_back);
}

static void on_the_device(void)
{
    fill(pinned);
    OK(CALL(cuMemcpyHtoDAsync_v2)(one, pinned, BYTES, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    forget_calls();
    OK(CALL(cuMemcpyDtoDAsync_v2)(two, one, BYTES, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    check_pieces(DEVICE_PIECE, BYTES);
    forget_calls();
    OK(CALL(cuMemcpyDtoD_v2)(one, two, BYTES));
    OK(CALL(cuCtxSynchronize)());
    check_pieces(DEVICE_PIECE, BYTES);
    OK(CALL(cuMemcpyDtoH_v2)(pageable, one, BYTES));
    check_bytes(pageable);
}

/* The source is the program's again when the call returns. */
static void pageable_memory_is_read_before_the_call_returns(void)
{
    fill(pageable);
    OK(CALL(cuMemcpyHtoDAsync_v2)(one, pageable, BYTES, stream));
    memset(pageable, 0xee, BYTES);
    OK(CALL(cuStreamSynchronize)(stream));
    check_pieces(HOST_PIECE, BYTES);
    OK(CALL(cuMemcpyDtoHAsync_v2)(pageable, one, BYTES, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    check_bytes(pageable);
}

static void synchronous_ones(void)
{
    fill(pageable);
    OK(CALL(cuMemcpyHtoD_v2)(one, pageable, BYTES));
    check_pieces(HOST_PIECE, BYTES);
    forget_calls();
    memset(pageable, 0xee, BYTES);
    OK(CALL(cuMemcpyDtoH_v2)(pageable, one, BYTES));
    check_pieces(HOST_PIECE, BYTES);
    check_bytes(pageable);
}

static void boxes_by_their_rows(void)
{
    enum { WIDTH = 3000, PITCH = 4096, ROWS = 4000 };
    CUDA_MEMCPY2D p = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = pinned,
                       .srcPitch = WIDTH,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = one,
                       .dstPitch = PITCH,
                       .dstXInBytes = 8,
                       .WidthInBytes = WIDTH,
                       .Height = ROWS};
    uint32_t n, n_copies = 0;
    fill(pinned);
    OK(CALL(cuMemcpy2DAsync_v2)(&p, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    const struct witness_call *c = calls(&n);
    for (uint32_t i = 0; i < n; i++) {
        n_copies += c[i].kind == WITNESS_COPY;
        TEST_ASSERT_LESS_OR_EQUAL_UINT64(HOST_PIECE, c[i].value);
    }
    TEST_ASSERT_GREATER_THAN_UINT32(4, n_copies);
    OK(CALL(cuMemcpyDtoH_v2)(pageable, one, (size_t)PITCH * ROWS));
    for (size_t i = 0; i < ROWS; i++)
        TEST_ASSERT_EQUAL_INT(0, memcmp(pageable + i * PITCH + 8, pinned + i * WIDTH, WIDTH));
    TEST_ASSERT_EQUAL_HEX8(0, pageable[0]);
}

static void what_is_small_goes_whole(void)
{
    OK(CALL(cuMemcpyHtoDAsync_v2)(one, pinned, 2 * HOST_PIECE, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    check_pieces(2 * HOST_PIECE, 2 * HOST_PIECE);
}

static void a_captured_copy_is_one_node(void)
{
    CUgraph graph;
    size_t n = 0;
    OK(CALL(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(CALL(cuMemcpyHtoDAsync_v2)(one, pinned, BYTES, stream));
    OK(CALL(cuStreamEndCapture)(stream, &graph));
    OK(CALL(cuGraphGetNodes)(graph, NULL, &n));
    TEST_ASSERT_EQUAL_UINT64(1, n);
    OK(CALL(cuGraphDestroy)(graph));
}

/* The driver refuses all of it, and nothing was copied. */
static void a_copy_over_the_end_is_refused_as_a_whole(void)
{
    uint8_t first = 0xff;
    memset(pinned, 0x77, BYTES);
    CUresult whole = ((__typeof__(cuMemcpyHtoD_v2) *)symbol_of(driver, "cuMemcpyHtoD_v2"))(
        two, pinned, 2u * BYTES);
    forget_calls();
    TEST_ASSERT_EQUAL_INT(whole, CALL(cuMemcpyHtoD_v2)(two, pinned, 2u * BYTES));
    TEST_ASSERT_NOT_EQUAL_INT(CUDA_SUCCESS, whole);
    OK(CALL(cuMemcpyDtoH_v2)(&first, two, 1));
    TEST_ASSERT_EQUAL_HEX8(0, first);
}

/* The client is busy: no piece is given to the driver until it is not. */
static void it_gives_way_between_pieces(void)
{
    enum { LOOKS = 20000 };
    uint32_t n;
    fill(pinned);
    tl_client_issue(high, 1);
    OK(CALL(cuMemcpyHtoDAsync_v2)(one, pinned, BYTES, stream));
    for (int i = 0; i < LOOKS; i++)
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(stream));
    calls(&n);
    TEST_ASSERT_EQUAL_UINT32(0, n);
    tl_client_complete(high, 1);
    tl_client_tell_idle(high);
    OK(CALL(cuStreamSynchronize)(stream));
    check_pieces(HOST_PIECE, BYTES);
}

static void with_nobody_above_it_goes_whole(void)
{
    uint32_t n, tries = 0;
    const struct witness_call *c;
    tl_client_destroy(high);
    do { /* until tallyd has told */
        forget_calls();
        OK(CALL(cuMemcpyHtoDAsync_v2)(one, pinned, BYTES, stream));
        OK(CALL(cuStreamSynchronize)(stream));
        c = calls(&n);
    } while ((n != 1 || c->value != BYTES) && ++tries < 1000);
    TEST_ASSERT_EQUAL_UINT32(1, n);
    TEST_ASSERT_EQUAL_UINT64(BYTES, c->value);
}

/* --- the job --- */

static void join_high(void)
{
    struct tl_settings settings;
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&settings, &err));
    settings.level = TL_LEVEL_HIGH;
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_client_create(&high, &settings, &err), err.text);
    TEST_ASSERT_TRUE_MESSAGE(tl_client_is_joined(high), err.text);
}

/* All tests on a device of that profile, with a tallyd of their own and a job of a high level. */
static int run(const char *profile, const char *rung)
{
    char folder[80], socket[100], daemon[PATH_MAX], program[PATH_MAX + 16];
    const char *build = getenv("TALLY_BUILD");
    (void)rung;
    UNITY_BEGIN();
    TEST_ASSERT_NOT_NULL(mkdtemp(scratch_path(folder, sizeof folder, "split-XXXXXX")));
    snprintf(socket, sizeof socket, "%s/socket", folder);
    TEST_ASSERT_NOT_NULL(realpath(build != NULL ? build : "build", daemon));
    snprintf(program, sizeof program, "%s/bin/tallyd", daemon);
    setenv("TALLY_DAEMON", program, 1);
    setenv("TALLY_SOCKET", socket, 1);
    setenv("TALLY_DAEMON_IDLE", "1", 1);
    join_high();
    begin_job_beside(profile, NULL, socket);
    OK(CALL(cuMemAlloc_v2)(&one, BYTES));
    OK(CALL(cuMemAlloc_v2)(&two, BYTES));
    OK(CALL(cuMemHostAlloc)((void **)&pinned, BYTES, 0));
    OK(CALL(cuMemHostAlloc)((void **)&pinned_back, BYTES, 0));
    pageable = malloc(2 * BYTES);
    RUN_TEST(pinned_memory_there_and_back);
    RUN_TEST(order_in_the_stream_is_kept);
    RUN_TEST(on_the_device);
    RUN_TEST(pageable_memory_is_read_before_the_call_returns);
    RUN_TEST(synchronous_ones);
    RUN_TEST(boxes_by_their_rows);
    RUN_TEST(what_is_small_goes_whole);
    RUN_TEST(a_captured_copy_is_one_node);
    RUN_TEST(a_copy_over_the_end_is_refused_as_a_whole);
    RUN_TEST(it_gives_way_between_pieces);
    RUN_TEST(with_nobody_above_it_goes_whole);
    int failed = UNITY_END();
    end_job();
    unlink(socket);
    rmdir(folder);
    return failed;
}

int main(void)
{
    return each_job(run, (const char *const[]){"copies", NULL});
}
