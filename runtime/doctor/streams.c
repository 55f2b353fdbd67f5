/* What Tally takes for granted of streams: times of events, host functions, copies, the legacy
 * stream, captures beside which something is built, and how many blocks fit at once. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/doctor/bench.h"
#include "tally/clock.h"
#include "tally/text.h"

enum { BLOCKS = 64 };

/* A bench with one launch of the map on it. */
struct streams {
    struct tl_doc_bench b;
    struct tl_doc_form map;
    struct tl_doc_shape shape;
    struct tl_doc_data expected;
    uint32_t found[BLOCKS * TL_DOC_THREADS];
};

/* --- events ----------------------------------------------------------------------------------- */

/* Three marks with work between them: parts add up, none is negative, and all lie within what the
 * host's clock says. */
static void check_events(struct tl_doc_exam *e, struct streams *s)
{
    CUevent third;
    float first = -1, second = -1, both = -1;
    tl_doc_begin(e, "events");
    uint64_t begin = tl_clock_ns();
    CUresult r = tl_doc_driver.cuEventCreate(&third, CU_EVENT_DEFAULT);
    if (r == CUDA_SUCCESS)
        r = tl_doc_launch(&s->b, &s->map, &s->shape, NULL);
    CUevent a = s->b.begin, b = s->b.end;
    if (r == CUDA_SUCCESS) {
        s->b.begin = b; /* the second launch stands between the end of the first and the third */
        s->b.end = third;
        r = tl_doc_launch(&s->b, &s->map, &s->shape, NULL);
    }
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuEventSynchronize(third);
    uint64_t wall = tl_clock_ns() - begin;
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuEventElapsedTime(&first, a, b);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuEventElapsedTime(&second, b, third);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuEventElapsedTime(&both, a, third);
    s->b.begin = a;
    s->b.end = b;
    tl_doc_number(e, "device_ns", (double)both * 1e6);
    tl_doc_number(e, "host_ns", (double)wall);
    float gap = first + second - both;
    if (r != CUDA_SUCCESS)
        tl_doc_wrong(e, "events", "%s", tl_doc_error(r));
    else if (first < 0 || second < 0 || gap > 0.01f + both / 100 || gap < -0.01f - both / 100)
        tl_doc_wrong(e, "events", "times do not add up: %.4f and %.4f ms make %.4f", (double)first,
                     (double)second, (double)both);
    else if ((double)both * 1e6 > (double)wall + 1e6)
        tl_doc_wrong(e, "events", "the device says %.3f ms where the host had %.3f ms",
                     (double)both, (double)wall / 1e6);
    else
        tl_doc_works(e, "events", "times of the device add up and lie within the host's");
}

/* --- host functions --------------------------------------------------------------------------- */

static void CUDA_CB note_time(void *data)
{
    atomic_store((_Atomic uint64_t *)data, tl_clock_ns());
}

static void check_host_functions(struct tl_doc_exam *e, struct streams *s)
{
    static _Atomic uint64_t called;
    uint64_t least = UINT64_MAX;
    CUresult r = CUDA_SUCCESS;
    tl_doc_begin(e, "host-functions");
    for (int i = 0; i < 9 && r == CUDA_SUCCESS; i++) {
        atomic_store(&called, 0);
        uint64_t begin = tl_clock_ns();
        r = tl_doc_driver.cuLaunchHostFunc(s->b.stream, note_time, &called);
        if (r == CUDA_SUCCESS)
            r = tl_doc_driver.cuStreamSynchronize(s->b.stream);
        uint64_t at = atomic_load(&called);
        if (r == CUDA_SUCCESS && at == 0) {
            tl_doc_wrong(e, "host-functions", "the stream is over, and it was not called");
            return;
        }
        least = at - begin < least ? at - begin : least;
    }
    if (r != CUDA_SUCCESS) {
        tl_doc_refused(e, "host-functions", true, "%s", tl_doc_error(r));
        return;
    }
    tl_doc_number(e, "least_ns", (double)least);
    tl_doc_works(e, "host-functions", "called %s after the call at best",
                 tl_text_time((double)least).s);
}

/* --- copies ----------------------------------------------------------------------------------- */

/* There in one copy, over, and back in pieces of odd sizes. */
static CUresult copy_round(struct tl_doc_exam *e, CUstream stream, uint32_t *to,
                           const uint32_t *from, size_t n)
{
    CUdeviceptr a = 0, b = 0;
    CUresult r = tl_doc_driver.cuMemAlloc_v2(&a, n);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemAlloc_v2(&b, n);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemcpyHtoDAsync_v2(a, from, n, stream);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemcpyDtoDAsync_v2(b, a, n, stream);
    for (size_t at = 0, part; r == CUDA_SUCCESS && at < n; at += part) {
        part = 4 * (1 + (size_t)tl_doc_random(&e->random) % (1 << 18));
        part = part < n - at ? part : n - at;
        r = tl_doc_driver.cuMemcpyDtoHAsync_v2((char *)to + at, b + at, part, stream);
    }
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamSynchronize(stream);
    tl_doc_driver.cuMemFree_v2(a);
    tl_doc_driver.cuMemFree_v2(b);
    return r;
}

static void check_copies(struct tl_doc_exam *e, struct streams *s)
{
    enum { WORDS = 1 << 20 };
    void *from = NULL, *to = NULL;
    tl_doc_begin(e, "copies");
    CUresult r = tl_doc_driver.cuMemHostAlloc(&from, WORDS * 4, 0);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemHostAlloc(&to, WORDS * 4, 0);
    if (r == CUDA_SUCCESS) {
        for (uint32_t i = 0; i < WORDS; i++)
            ((uint32_t *)from)[i] = tl_doc_random(&e->random);
        memset(to, 0, WORDS * 4);
        r = copy_round(e, s->b.stream, to, from, WORDS * 4);
    }
    if (r != CUDA_SUCCESS)
        tl_doc_refused(e, "copies", true, "%s", tl_doc_error(r));
    else if (memcmp(from, to, WORDS * 4) != 0)
        tl_doc_wrong(e, "copies", "what came back in pieces is not what was sent");
    else
        tl_doc_works(e, "copies", "there, over, and back in pieces");
    tl_doc_driver.cuMemFreeHost(from);
    tl_doc_driver.cuMemFreeHost(to);
}

/* --- the legacy stream ------------------------------------------------------------------------ */

/* A copy there waits for blocking streams. */
static void check_legacy(struct tl_doc_exam *e, struct streams *s)
{
    CUstream own = s->b.stream, blocking = NULL;
    size_t bytes = (size_t)s->expected.n_out * 4;
    tl_doc_begin(e, "legacy-stream");
    CUresult r = tl_doc_bench_clear(&s->b, &s->map, &s->expected);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamCreate(&blocking, CU_STREAM_DEFAULT);
    s->b.stream = blocking;
    if (r == CUDA_SUCCESS)
        r = tl_doc_launch(&s->b, &s->map, &s->shape, NULL);
    s->b.stream = own;
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemcpyDtoH_v2(s->found, s->b.out, bytes);
    if (r != CUDA_SUCCESS)
        tl_doc_refused(e, "legacy-stream", true, "%s", tl_doc_error(r));
    else if (memcmp(s->found, s->expected.out, bytes) != 0)
        tl_doc_wrong(e, "legacy-stream", "a copy there does not wait for a blocking stream");
    else
        tl_doc_works(e, "legacy-stream", "waits for blocking streams");
}

/* --- captures --------------------------------------------------------------------------------- */

/* What building a variant does meanwhile, in a thread of its own as there. */
struct beside {
    struct streams *s;
    CUcontext context;
    CUresult result;
};

static void *build_beside(void *data)
{
    struct beside *b = data;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUmodule module = NULL;
    CUfunction f;
    CUstream stream = NULL;
    CUdeviceptr word = 0;
    void *params[] = {&word};
    CUresult r = tl_doc_driver.cuCtxSetCurrent(b->context);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuThreadExchangeStreamCaptureMode(&mode);
    if (r == CUDA_SUCCESS)
        r = tl_doc_load(tl_doc_count_text, "count", &module, &f);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemAlloc_v2(&word, 64);
    if (r == CUDA_SUCCESS)
        r = tl_doc_launch_plain(f, 1, 32, stream, params);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamSynchronize(stream);
    b->result = r;
    return NULL;
}

/* Captures one launch of the map, with something built beside it. */
static CUresult capture(struct streams *s, struct beside *beside, CUgraph *graph)
{
    pthread_t thread;
    CUresult r = tl_doc_driver.cuStreamBeginCapture_v2(s->b.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (r != CUDA_SUCCESS)
        return r;
    if (pthread_create(&thread, NULL, build_beside, beside) == 0)
        pthread_join(thread, NULL);
    CUresult launched = tl_doc_launch(&s->b, &s->map, &s->shape, NULL);
    r = tl_doc_driver.cuStreamEndCapture(s->b.stream, graph);
    return r == CUDA_SUCCESS ? launched : r;
}

static bool has_captures(void)
{
    return tl_doc_driver.cuStreamBeginCapture_v2 != NULL &&
           tl_doc_driver.cuStreamEndCapture != NULL &&
           tl_doc_driver.cuGraphInstantiateWithFlags != NULL &&
           tl_doc_driver.cuGraphLaunch != NULL &&
           tl_doc_driver.cuThreadExchangeStreamCaptureMode != NULL;
}

/* While one thread captures a stream, another builds and loads a variant, as the best-effort part
 * does.  Neither must spoil the other, and the graph must compute the right thing. */
static void check_capture(struct tl_doc_exam *e, struct streams *s)
{
    struct beside beside = {.s = s};
    CUgraph graph = NULL;
    CUgraphExec exec;
    size_t bytes = (size_t)s->expected.n_out * 4;
    tl_doc_begin(e, "capture");
    if (!has_captures()) {
        tl_doc_refused(e, "capture", true, "the driver has no captures, or none beside others");
        return;
    }
    CUresult r = tl_doc_bench_clear(&s->b, &s->map, &s->expected);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuCtxGetCurrent(&beside.context);
    if (r == CUDA_SUCCESS)
        r = capture(s, &beside, &graph);
    if (r != CUDA_SUCCESS || beside.result != CUDA_SUCCESS) {
        bool is_capture = r != CUDA_SUCCESS;
        tl_doc_wrong(e, "capture", "%s while a variant is built beside it: %s",
                     is_capture ? "the capture fails" : "building fails",
                     tl_doc_error(is_capture ? r : beside.result));
        return;
    }
    r = tl_doc_driver.cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuGraphLaunch(exec, s->b.stream);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamSynchronize(s->b.stream);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemcpyDtoH_v2(s->found, s->b.out, bytes);
    if (r != CUDA_SUCCESS)
        tl_doc_wrong(e, "capture", "the captured graph: %s", tl_doc_error(r));
    else if (memcmp(s->found, s->expected.out, bytes) != 0)
        tl_doc_wrong(e, "capture", "the captured graph computes something else");
    else
        tl_doc_works(e, "capture", "survives that a variant is built beside it");
}

/* --- occupancy -------------------------------------------------------------------------------- */

/* As many blocks as the driver says fit at once do meet each other: what fits is never cut. */
static void check_occupancy(struct tl_doc_exam *e, struct streams *s)
{
    /* large blocks, since the software device begins those that wait one by one */
    enum { MEET_THREADS = 1024 };
    CUmodule module;
    CUfunction meet;
    CUdeviceptr words = 0;
    int per_sm = 0;
    uint32_t met[2] = {0, 0}, blocks = 0;
    uint64_t patience = 15 * TL_SECOND_NS;
    void *params[] = {&words, &patience, &blocks};
    tl_doc_begin(e, "occupancy");
    CUresult r = tl_doc_load(tl_doc_meet_text, "meet", &module, &meet);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, meet, MEET_THREADS,
                                                                      0);
    blocks = s->b.sms * (uint32_t)(per_sm > 0 ? per_sm : 0);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemAlloc_v2(&words, 64);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemsetD8_v2(words, 0, 64);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuCtxSynchronize();
    if (r == CUDA_SUCCESS && blocks > 0)
        r = tl_doc_launch_plain(meet, blocks, MEET_THREADS, s->b.stream, params);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamSynchronize(s->b.stream);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemcpyDtoH_v2(met, words, sizeof met);
    if (r != CUDA_SUCCESS || blocks == 0)
        tl_doc_refused(e, "occupancy", true, "%s", tl_doc_error(r));
    else if (met[1] != blocks)
        tl_doc_wrong(e, "occupancy", "of %u blocks that fit at once, %u met all others", blocks,
                     met[1]);
    else
        tl_doc_works(e, "occupancy", "%u blocks of %d threads were on the device at once", blocks,
                     MEET_THREADS);
}

/* --- words in stream order -------------------------------------------------------------------- */

static void check_memory_operations(struct tl_doc_exam *e, struct streams *s)
{
    CUdeviceptr word = 0;
    uint32_t value = 0;
    tl_doc_begin(e, "memory-operations");
    if (tl_doc_driver.cuStreamWriteValue32_v2 == NULL ||
        tl_doc_driver.cuStreamWaitValue32_v2 == NULL) {
        tl_doc_refused(e, "memory-operations", false, "the driver has none");
        return;
    }
    CUresult r = tl_doc_driver.cuMemAlloc_v2(&word, 64);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamWriteValue32_v2(s->b.stream, word, 4711, 0);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamWaitValue32_v2(s->b.stream, word, 4711, CU_STREAM_WAIT_VALUE_EQ);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamSynchronize(s->b.stream);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemcpyDtoH_v2(&value, word, 4);
    if (r != CUDA_SUCCESS)
        tl_doc_refused(e, "memory-operations", false, "%s", tl_doc_error(r));
    else if (value != 4711)
        tl_doc_wrong(e, "memory-operations", "a stream wrote 4711, and %u is there", value);
    else
        tl_doc_works(e, "memory-operations", "streams write words and wait for them");
}

static bool prepare(struct tl_doc_exam *e, struct streams *s)
{
    struct tl_error err = {0};
    if (!tl_doc_open(e) || !tl_doc_bench_make(e, &s->b, BLOCKS, false, "open"))
        return false;
    int rc = tl_doc_form_make(&s->map, &tl_doc_kernels[0], TL_DOC_ORIGINAL, NULL, &err);
    s->shape = tl_doc_shape_of(&tl_doc_kernels[0], BLOCKS, 20000);
    if (rc == 0)
        rc = tl_doc_data_init(&s->expected, &s->shape, e->random);
    if (rc == 0)
        rc = tl_doc_reference(&tl_doc_kernels[0], &s->shape, &s->expected);
    s->b.data = &s->expected;
    if (rc < 0)
        tl_doc_refused(e, "open", true, "%s", err.text);
    return rc == 0;
}

static void run(struct tl_doc_exam *e)
{
    static struct streams s; /* too large for some stacks */
    if (!prepare(e, &s))
        return;
    check_events(e, &s);
    check_host_functions(e, &s);
    check_copies(e, &s);
    check_legacy(e, &s);
    check_memory_operations(e, &s);
    check_occupancy(e, &s);
    check_capture(e, &s); /* the last: a capture that failed may have spoilt the stream */
}

const struct tl_doc_group tl_doc_streams_group = {"streams", run};
