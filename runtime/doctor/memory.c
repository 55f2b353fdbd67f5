/* Memory between the host and running kernels: what is registered, when a store is seen, in which
 * order stores are, and what counts. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/doctor/bench.h"
#include "tally/clock.h"
#include "tally/text.h"

#define PATIENCE_NS (2 * TL_SECOND_NS) /* for a word that must come */
#define ENOUGH_NS TL_SECOND_NS         /* for all of them: a busy machine takes turns */
#define KERNEL_NS (4 * TL_SECOND_NS)   /* a kernel that waits for the host ends by itself */

/* --- registration ----------------------------------------------------------------------------- */

static bool check_registration(struct tl_doc_exam *e, struct tl_doc_page *page)
{
    struct tl_doc_page only;
    tl_doc_begin(e, "registration");
    CUresult r = tl_doc_page_make(page, true, 0);
    if (r == CUDA_SUCCESS)
        tl_doc_works(e, "registration", "a shared page that the host writes to");
    else
        tl_doc_refused(e, "registration", true,
                       "a shared page cannot be registered: %s; running kernels cannot be told "
                       "to stop",
                       tl_doc_error(r));
    tl_doc_begin(e, "read-only");
    CUresult read_only = tl_doc_page_make(&only, false, CU_MEMHOSTREGISTER_READ_ONLY);
    if (read_only == CUDA_SUCCESS)
        tl_doc_works(e, "read-only", "pages that the host may only read can be registered");
    else
        tl_doc_refused(e, "read-only", false,
                       "pages that the host may only read cannot be registered: %s",
                       tl_doc_error(read_only));
    tl_doc_page_free(&only);
    return r == CUDA_SUCCESS;
}

/* --- visibility ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Waits until the word has that value: true, or false after a time. */
static bool comes(const volatile uint32_t *word, uint32_t value)
{
    enum { AT_ONCE_NS = 50000 };
    uint64_t begin = tl_clock_ns();
    while (*word != value) {
        uint64_t waited = tl_clock_ns() - begin;
        if (waited > PATIENCE_NS)
            return false;
        if (waited > AT_ONCE_NS)
            sched_yield();
    }
    return true;
}

/* Writes numbers for the kernel to repeat, for as long as there is time.  How many came back, with
 * how long each took, or -1 if one did not. */
static int exchange(volatile uint32_t *word, const volatile uint32_t *echo, uint64_t *times, int n)
{
    uint64_t first = tl_clock_ns();
    for (int i = 0; i < n; i++) {
        uint64_t begin = tl_clock_ns();
        *word = (uint32_t)i + 1;
        if (!comes(echo, (uint32_t)i + 1))
            return -1;
        times[i] = tl_clock_ns() - begin;
        if (times[i] + begin - first > ENOUGH_NS)
            return i + 1;
    }
    return n;
}

/* A kernel that is running echoes what the host stores: all that a preemption rests on.  The kernel
 * gives up by itself, so a device that never sees the store is found out and not hung. */
static void check_visibility(struct tl_doc_exam *e, struct tl_doc_page *page, CUstream stream)
{
    enum { TRIES = 2000 };
    static uint64_t times[TRIES];
    CUmodule module;
    CUfunction poll;
    volatile uint32_t *words = page->host;
    uint64_t patience = KERNEL_NS;
    CUdeviceptr word = page->device, echo = page->device + 64;
    void *params[] = {&word, &echo, &patience};
    tl_doc_begin(e, "visibility");
    memset(page->host, 0, TL_DOC_PAGE);
    CUresult r = tl_doc_load(tl_doc_poll_text, "poll", &module, &poll);
    if (r == CUDA_SUCCESS)
        r = tl_doc_launch_plain(poll, 1, 1, stream, params);
    if (r != CUDA_SUCCESS) {
        tl_doc_refused(e, "visibility", true, "the kernel that polls: %s", tl_doc_error(r));
        return;
    }
    int n = exchange(words, words + 16, times, TRIES);
    words[0] = UINT32_MAX;
    r = tl_doc_driver.cuStreamSynchronize(stream);
    if (r != CUDA_SUCCESS) {
        tl_doc_wrong(e, "visibility", "the kernel that polls: %s", tl_doc_error(r));
        return;
    }
    if (n < 0) {
        tl_doc_wrong(e, "visibility",
                     "a running kernel does not see a store of the host (waited %.0f s)",
                     (double)PATIENCE_NS / 1e9);
        return;
    }
    qsort(times, (size_t)n, sizeof times[0], by_value);
    uint64_t median = times[n / 2], p99 = times[n * 99 / 100];
    tl_doc_number(e, "exchanges", n);
    tl_doc_number(e, "round_trip_p50_ns", (double)median);
    tl_doc_number(e, "round_trip_p99_ns", (double)p99);
    tl_doc_works(e, "visibility", "a store of the host and the answer: median %s, P99 %s",
                 tl_text_time((double)median).s, tl_text_time((double)p99).s);
}

/* --- order ------------------------------------------------------------------------------------ */

/* What a kernel wrote before it said so is there when the host reads that it said so. */
static void check_order(struct tl_doc_exam *e, struct tl_doc_page *page, CUstream stream)
{
    enum { WORDS = 4096, ROUNDS = 200 };
    CUmodule module;
    CUfunction publish;
    void *host = NULL;
    CUdeviceptr data = 0, flag = page->device, word = page->device + 64;
    uint64_t patience = KERNEL_NS, begin = tl_clock_ns();
    uint32_t words = WORDS, rounds = ROUNDS, round = 0, late = 0;
    bool has_come = true;
    void *params[] = {&data, &flag, &word, &patience, &words, &rounds};
    volatile uint32_t *said = page->host;
    tl_doc_begin(e, "order");
    memset(page->host, 0, TL_DOC_PAGE);
    CUresult r = tl_doc_driver.cuMemHostAlloc(&host, WORDS * 4,
                                              CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemHostGetDevicePointer_v2(&data, host, 0);
    if (r == CUDA_SUCCESS)
        r = tl_doc_load(tl_doc_publish_text, "publish", &module, &publish);
    if (r == CUDA_SUCCESS) {
        memset(host, 0, WORDS * 4);
        r = tl_doc_launch_plain(publish, 1, 1, stream, params);
    }
    if (r != CUDA_SUCCESS) {
        tl_doc_refused(e, "order", true, "the kernel that publishes: %s", tl_doc_error(r));
        return;
    }
    while (has_come && round < ROUNDS && tl_clock_ns() - begin < ENOUGH_NS) {
        has_come = comes(&said[0], round + 1);
        if (!has_come)
            break;
        round++;
        atomic_thread_fence(memory_order_acquire);
        for (uint32_t i = 0; i < WORDS && late == 0; i++)
            late = ((volatile uint32_t *)host)[i] != round ? round : 0;
        said[16] = round;
    }
    r = tl_doc_driver.cuStreamSynchronize(stream);
    if (r != CUDA_SUCCESS)
        tl_doc_wrong(e, "order", "the kernel that publishes: %s", tl_doc_error(r));
    else if (late != 0)
        tl_doc_wrong(e, "order",
                     "the host reads that something was written before it is there (round %u)",
                     late);
    else if (!has_come)
        tl_doc_wrong(e, "order", "what a running kernel writes is not seen (round %u)", round + 1);
    else
        tl_doc_works(e, "order", "what is said to be written is there, %u times", round);
}

/* --- counters --------------------------------------------------------------------------------- */

/* Adds from all threads of a grid at once; what the word is then. */
static CUresult count(CUfunction f, CUdeviceptr word, CUstream stream)
{
    void *params[] = {&word};
    CUresult r = tl_doc_launch_plain(f, 512, 64, stream, params);
    return r == CUDA_SUCCESS ? tl_doc_driver.cuStreamSynchronize(stream) : r;
}

/* Atomic additions of many blocks come to their sum: in the device's memory, without which there is
 * no counter of blocks at all, and in the host's where the driver promises it. */
static void check_counters(struct tl_doc_exam *e, struct tl_doc_page *page, CUstream stream)
{
    enum { ADDED = 512 * 64 };
    CUmodule module;
    CUfunction f = NULL;
    CUdevice device;
    CUdeviceptr word = 0;
    int atomics = 0;
    uint32_t value = 0;
    tl_doc_begin(e, "device-counters");
    CUresult r = tl_doc_load(tl_doc_count_text, "count", &module, &f);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemAlloc_v2(&word, 64);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemsetD8_v2(word, 0, 64);
    if (r == CUDA_SUCCESS)
        r = count(f, word, stream);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemcpyDtoH_v2(&value, word, 4);
    if (r != CUDA_SUCCESS)
        tl_doc_refused(e, "device-counters", true, "%s", tl_doc_error(r));
    else if (value != ADDED)
        tl_doc_wrong(e, "device-counters", "%u additions came to %u", ADDED, value);
    else
        tl_doc_works(e, "device-counters", "in the device's memory");
    if (f == NULL)
        return;
    tl_doc_begin(e, "host-counters");
    if (tl_doc_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS)
        tl_doc_driver.cuDeviceGetAttribute(
            &atomics, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, device);
    if (atomics == 0) {
        tl_doc_refused(e, "host-counters", false,
                       "no atomics on the host's memory (attribute 86); counters are copied");
        return;
    }
    memset(page->host, 0, TL_DOC_PAGE);
    r = count(f, page->device, stream);
    value = *(volatile uint32_t *)page->host;
    if (r != CUDA_SUCCESS || value != ADDED)
        tl_doc_wrong(e, "host-counters", "attribute 86 is 1, but %u additions came to %u: %s",
                     ADDED, value, tl_doc_error(r));
    else
        tl_doc_works(e, "host-counters", "in the host's memory");
}

static void run(struct tl_doc_exam *e)
{
    struct tl_doc_page page;
    CUstream stream;
    if (!tl_doc_open(e))
        return;
    CUresult r = tl_doc_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (r != CUDA_SUCCESS) {
        tl_doc_refused(e, "open", true, "no stream: %s", tl_doc_error(r));
        return;
    }
    if (!check_registration(e, &page))
        return;
    check_visibility(e, &page, stream);
    check_order(e, &page, stream);
    check_counters(e, &page, stream);
}

const struct tl_doc_group tl_doc_memory_group = {"memory", run};
