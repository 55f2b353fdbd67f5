/* What kernels are launched with; see the header. */
#include "runtime/doctor/bench.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tally/clock.h"

void tl_doc_sleep(uint64_t ns)
{
    struct timespec t = tl_clock_timespec(ns);
    nanosleep(&t, NULL);
}

CUresult tl_doc_launch_plain(CUfunction f, uint32_t blocks, uint32_t threads, CUstream stream,
                             void **params)
{
    return tl_doc_driver.cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}

/* --- pages ------------------------------------------------------------------------------------ */

CUresult tl_doc_page_make(struct tl_doc_page *p, bool is_writable, unsigned flags)
{
    *p = (struct tl_doc_page){0};
    int fd = memfd_create("tally-doctor", MFD_CLOEXEC);
    void *host = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, TL_DOC_PAGE) == 0)
        host = mmap(NULL, TL_DOC_PAGE, PROT_READ | (is_writable ? PROT_WRITE : 0), MAP_SHARED, fd,
                    0);
    if (fd >= 0)
        close(fd);
    if (host == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = tl_doc_driver.cuMemHostRegister_v2(
        host, TL_DOC_PAGE, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | flags);
    if (r != CUDA_SUCCESS) {
        munmap(host, TL_DOC_PAGE);
        return r;
    }
    p->host = host;
    return tl_doc_driver.cuMemHostGetDevicePointer_v2(&p->device, host, 0);
}

void tl_doc_page_free(struct tl_doc_page *p)
{
    if (p->host == NULL)
        return;
    tl_doc_driver.cuMemHostUnregister(p->host);
    munmap(p->host, TL_DOC_PAGE);
    *p = (struct tl_doc_page){0};
}

/* --- the bench -------------------------------------------------------------------------------- */

static CUresult make_counter(struct tl_doc_bench *b)
{
    void *host = NULL;
    CUresult r = tl_doc_driver.cuMemHostAlloc(&host, TL_DOC_PAGE,
                                              CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (r != CUDA_SUCCESS)
        return r;
    memset(host, 0, TL_DOC_PAGE);
    r = b->has_host_atomics ? tl_doc_driver.cuMemHostGetDevicePointer_v2(&b->counter, host, 0)
                            : tl_doc_driver.cuMemAlloc_v2(&b->counter, 64);
    b->count = (uint32_t *)host + 1; /* the upper half of a word */
    b->counter += 4;
    return r;
}

static CUresult make_arrays(struct tl_doc_bench *b)
{
    const size_t words = (size_t)b->max_blocks * TL_DOC_THREADS * 4;
    CUresult r = tl_doc_driver.cuMemAlloc_v2(&b->in, words);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemAlloc_v2(&b->out, words);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemAlloc_v2(&b->runs, (size_t)b->max_blocks * 4);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemAlloc_v2(&b->aux, (size_t)b->max_blocks * 8 + TL_DOC_BINS * 4);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemsetD8_v2(b->in, 0, words);
    return r;
}

bool tl_doc_bench_make(struct tl_doc_exam *e, struct tl_doc_bench *b, uint32_t max_blocks,
                       bool needs_word, const char *name)
{
    CUdevice device;
    int sms = 0, atomics = 0;
    *b = (struct tl_doc_bench){.max_blocks = max_blocks};
    tl_doc_begin(e, name);
    CUresult r = needs_word ? tl_doc_page_make(&b->page, true, 0) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS) {
        tl_doc_refused(e, name, true, "the words of other jobs cannot be registered: %s",
                       tl_doc_error(r));
        return false;
    }
    b->stop = b->page.host;
    r = tl_doc_driver.cuCtxGetDevice(&device);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                               device);
    tl_doc_driver.cuDeviceGetAttribute(&atomics, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
                                       device);
    b->sms = sms > 0 ? (uint32_t)sms : 1;
    b->has_host_atomics = atomics != 0;
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuEventCreate(&b->begin, CU_EVENT_DEFAULT);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuEventCreate(&b->end, CU_EVENT_DEFAULT);
    if (r == CUDA_SUCCESS)
        r = make_counter(b);
    if (r == CUDA_SUCCESS)
        r = make_arrays(b);
    if (r != CUDA_SUCCESS)
        tl_doc_refused(e, name, true, "no memory, stream or event: %s", tl_doc_error(r));
    return r == CUDA_SUCCESS;
}

CUresult tl_doc_bench_clear(struct tl_doc_bench *b, const struct tl_doc_form *original,
                            const struct tl_doc_data *d)
{
    CUdeviceptr variable;
    size_t bytes;
    CUresult r = tl_doc_driver.cuMemcpyHtoD_v2(b->in, d->in, (size_t)d->n_out * 4);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemsetD8_v2(b->out, 0, (size_t)d->n_out * 4);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemsetD8_v2(b->runs, 0, (size_t)d->n_out / TL_DOC_THREADS * 4);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemsetD8_v2(b->aux, 0, (size_t)d->n_aux * 4);
    if (r == CUDA_SUCCESS && original->kernel->variable != NULL)
        r = tl_doc_driver.cuModuleGetGlobal_v2(&variable, &bytes, original->module,
                                               original->kernel->variable);
    if (r == CUDA_SUCCESS && original->kernel->variable != NULL)
        r = tl_doc_driver.cuMemsetD8_v2(variable, 0, bytes);
    b->data = d;
    return r == CUDA_SUCCESS ? tl_doc_driver.cuCtxSynchronize() : r;
}

/* --- counter and word ------------------------------------------------------------------------- */

CUresult tl_doc_counter_set(struct tl_doc_bench *b, uint32_t value)
{
    CUresult r = tl_doc_driver.cuStreamSynchronize(b->stream);
    *b->count = value;
    if (r != CUDA_SUCCESS || b->has_host_atomics)
        return r;
    return tl_doc_driver.cuMemcpyHtoDAsync_v2(b->counter, b->count, 4, b->stream);
}

CUresult tl_doc_counter_get(struct tl_doc_bench *b, uint32_t *value)
{
    CUresult r = CUDA_SUCCESS;
    if (!b->has_host_atomics)
        r = tl_doc_driver.cuMemcpyDtoHAsync_v2(b->count, b->counter, 4, b->stream);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuStreamSynchronize(b->stream);
    *value = *(volatile uint32_t *)b->count;
    return r;
}

/* {issued, completed}: kernels stop while the halves differ. */
void tl_doc_stop(struct tl_doc_bench *b, bool is_busy)
{
    if (b->stop != NULL)
        atomic_store(b->stop, is_busy ? 1 : 0);
}

/* --- how long a block lasts ------------------------------------------------------------------- */

/* The least of a few launches of one block, by events. */
static float one_block_ms(struct tl_doc_bench *b, const struct tl_doc_form *original, uint32_t spin)
{
    struct tl_doc_shape s = {.grid = {1, 1, 1}, .blocks = 1, .spin = spin};
    float least = -1, ms;
    for (int i = 0; i < 5; i++) {
        if (tl_doc_launch(b, original, &s, NULL) != CUDA_SUCCESS ||
            tl_doc_driver.cuEventSynchronize(b->end) != CUDA_SUCCESS ||
            tl_doc_driver.cuEventElapsedTime(&ms, b->begin, b->end) != CUDA_SUCCESS)
            return -1;
        least = least < 0 || ms < least ? ms : least;
    }
    return least;
}

uint64_t tl_doc_block_ns(struct tl_doc_bench *b, const struct tl_doc_form *original, uint32_t spin)
{
    float empty = one_block_ms(b, original, 0), full = one_block_ms(b, original, spin);
    return empty >= 0 && full > empty ? (uint64_t)((full - empty) * 1e6f) : 0;
}

uint32_t tl_doc_spin_for(struct tl_doc_bench *b, const struct tl_doc_form *original, uint64_t ns)
{
    enum { LEAST = 64, TRIED = 16384, MOST = 65536 };
    uint64_t took = tl_doc_block_ns(b, original, TRIED);
    uint64_t spin = took > 0 ? TRIED * ns / took : TRIED;
    return (uint32_t)(spin < LEAST ? LEAST : spin > MOST ? MOST : spin);
}
