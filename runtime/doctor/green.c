/* A part of the SMs: a green context of about half of them, as the rung `cap` makes it, and a
 * kernel in it between two events. */
#include <string.h>

#include "runtime/doctor/bench.h"

enum { BLOCKS = 256 };

static bool has_green_contexts(void)
{
    return tl_doc_driver.cuDeviceGetDevResource != NULL &&
           tl_doc_driver.cuDevSmResourceSplitByCount != NULL &&
           tl_doc_driver.cuDevResourceGenerateDesc != NULL &&
           tl_doc_driver.cuGreenCtxCreate != NULL && tl_doc_driver.cuGreenCtxStreamCreate != NULL &&
           tl_doc_driver.cuGreenCtxDestroy != NULL;
}

/* A stream of a part of at least so many SMs; how many it has. */
static CUresult make_part(CUdevice device, uint32_t *sms, CUstream *stream)
{
    CUdevResource all, part;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    unsigned n = 1;
    CUresult r = tl_doc_driver.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuDevSmResourceSplitByCount(&part, &n, &all, NULL, 0, *sms);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuDevResourceGenerateDesc(&desc, &part, 1);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuGreenCtxStreamCreate(stream, green, CU_STREAM_NON_BLOCKING, 0);
    *sms = r == CUDA_SUCCESS ? part.sm.smCount : 0;
    return r;
}

/* The map, on the part's stream; its time there and on all SMs. */
static CUresult run_there(struct tl_doc_bench *b, const struct tl_doc_form *map,
                          const struct tl_doc_shape *s, const struct tl_doc_data *d, CUstream part,
                          float ms[2])
{
    CUstream own = b->stream;
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < 2 && r == CUDA_SUCCESS; i++) {
        r = tl_doc_bench_clear(b, map, d);
        b->stream = i == 0 ? own : part;
        if (r == CUDA_SUCCESS)
            r = tl_doc_launch(b, map, s, NULL);
        if (r == CUDA_SUCCESS)
            r = tl_doc_driver.cuStreamWaitEvent(own, b->end, 0);
        if (r == CUDA_SUCCESS)
            r = tl_doc_driver.cuStreamSynchronize(own);
        if (r == CUDA_SUCCESS)
            r = tl_doc_driver.cuEventElapsedTime(&ms[i], b->begin, b->end);
        b->stream = own;
    }
    return r;
}

/* A stream on half of the SMs: is it to be had, does a kernel there give the right result, and does
 * it take longer than on all of them?  The last is told, not judged: a short kernel may not. */
static void check_part(struct tl_doc_exam *e, struct tl_doc_bench *b)
{
    const struct tl_doc_kernel *k = &tl_doc_kernels[0];
    struct tl_doc_form map;
    struct tl_doc_shape s = tl_doc_shape_of(k, BLOCKS, 2000);
    struct tl_doc_data d;
    struct tl_error err = {0};
    CUdevice device;
    CUstream part;
    uint32_t sms = (b->sms + 1) / 2;
    static uint32_t found[BLOCKS * TL_DOC_THREADS];
    float ms[2] = {0, 0};
    if (tl_doc_form_make(&map, k, TL_DOC_ORIGINAL, NULL, &err) < 0 ||
        tl_doc_data_init(&d, &s, e->random) < 0 || tl_doc_reference(k, &s, &d) < 0) {
        tl_doc_refused(e, "green-context", true, "%s", err.text);
        return;
    }
    CUresult r = tl_doc_driver.cuCtxGetDevice(&device);
    if (r == CUDA_SUCCESS)
        r = make_part(device, &sms, &part);
    if (r != CUDA_SUCCESS) {
        tl_doc_refused(e, "green-context", true,
                       "%s; kernels that cannot be stopped run on all SMs", tl_doc_error(r));
        return;
    }
    r = run_there(b, &map, &s, &d, part, ms);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuMemcpyDtoH_v2(found, b->out, (size_t)d.n_out * 4);
    tl_doc_number(e, "sms", sms);
    tl_doc_number(e, "time_to_all", ms[0] > 0 ? (double)(ms[1] / ms[0]) : 0);
    if (r != CUDA_SUCCESS)
        tl_doc_wrong(e, "green-context", "a kernel there: %s", tl_doc_error(r));
    else if (memcmp(found, d.out, (size_t)d.n_out * 4) != 0)
        tl_doc_wrong(e, "green-context", "a kernel there computes something else");
    else if (sms == 0 || sms > b->sms)
        tl_doc_wrong(e, "green-context", "half of %u SMs are said to be %u", b->sms, sms);
    else
        tl_doc_works(e, "green-context", "a kernel ran on %u of %u SMs, in %.1f times the time",
                     sms, b->sms, ms[0] > 0 ? (double)(ms[1] / ms[0]) : 0.0);
    tl_doc_data_finish(&d);
}

static void run(struct tl_doc_exam *e)
{
    struct tl_doc_bench b;
    if (!tl_doc_open(e) || !tl_doc_bench_make(e, &b, BLOCKS, false, "green-context"))
        return;
    if (!has_green_contexts())
        tl_doc_refused(e, "green-context", true,
                       "the driver has none; kernels that cannot be stopped run on all SMs");
    else
        check_part(e, &b);
}

const struct tl_doc_group tl_doc_cap_group = {"cap", run};
