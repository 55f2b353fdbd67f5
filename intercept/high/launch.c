/* Launches of jobs that never give way: kernels in all forms, and graphs. */
#include "intercept/high/high.h"
#include "intercept/memory/memory.h"

/* The kernel's counters in the record, found at its first launch. */
static struct tl_record_kernel *first_launch(struct tl_kernel *k)
{
    struct tl_record_kernel *r = tl_record_kernel(tl_job.record, k->seen.name);
    atomic_store_explicit(&k->record, r, memory_order_relaxed);
    return r;
}

static inline struct tl_record_kernel *record_of(const void *handle)
{
    if (tl_job.record == NULL)
        return NULL;
    struct tl_kernel *k = tl_kernel_of(handle);
    if (k == NULL)
        return NULL;
    struct tl_record_kernel *r = atomic_load_explicit(&k->record, memory_order_relaxed);
    return r != NULL ? r : first_launch(k);
}

/* A launch on its way. */
struct launch {
    struct tl_stream *s; /* NULL: not work */
    struct tl_record_kernel *k;
    struct tl_sample *sample;
};

static inline struct launch begin(const void *handle, uint64_t blocks, CUstream stream,
                                  bool is_per_thread, bool may_measure)
{
    struct launch l = {.s = tl_high_begin(stream, is_per_thread)};
    if (__builtin_expect(l.s == NULL, 0))
        return l;
    l.k = record_of(handle);
    tl_record_launched(l.k, TL_RUNG_WHOLE, blocks);
    tl_record_op(l.k, tl_op_now());
    tl_counts_add(&l.s->counts, (uintptr_t)&tl_high_thread, 1, blocks);
    if (__builtin_expect(--tl_high_thread.until_sample < 0, 0) && may_measure)
        l.sample = tl_sample_begin(l.s, stream, is_per_thread, l.k);
    return l;
}

static inline CUresult end(struct launch *l, CUstream stream, bool is_per_thread, CUresult r)
{
    if (__builtin_expect(l->sample != NULL, 0))
        tl_sample_end(l->sample, stream, is_per_thread, r == CUDA_SUCCESS);
    return tl_high_end(l->s, r);
}

static inline uint64_t blocks_of(unsigned x, unsigned y, unsigned z)
{
    return (uint64_t)x * y * z;
}

/* Each function and its twin for per-thread default streams. */
#define TWINS(define) define(, false) define(_ptsz, true)

#define LAUNCH_KERNEL(suffix, is_per_thread)                                                       \
    static CUresult hook_cuLaunchKernel##suffix(                                                   \
        CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,             \
        unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)                \
    {                                                                                              \
        struct launch l = begin(f, blocks_of(gx, gy, gz), stream, is_per_thread, true);            \
        return end(&l, stream, is_per_thread,                                                      \
                   TL_REAL(cuLaunchKernel##suffix)(f, gx, gy, gz, bx, by, bz, shared, stream,      \
                                                   params, extra));                                \
    }
TWINS(LAUNCH_KERNEL)

/* Attributes may tie a launch to its neighbours (programmatic dependent launch): events between
 * them would part them. */
#define LAUNCH_KERNEL_EX(suffix, is_per_thread)                                                    \
    static CUresult hook_cuLaunchKernelEx##suffix(const CUlaunchConfig *config, CUfunction f,      \
                                                  void **params, void **extra)                     \
    {                                                                                              \
        if (config == NULL)                                                                        \
            return tl_priority_launch##suffix(config, f, params, extra);                           \
        CUstream stream = config->hStream;                                                         \
        struct launch l = begin(f,                                                                 \
                                blocks_of(config->gridDimX, config->gridDimY, config->gridDimZ),   \
                                stream, is_per_thread, config->numAttrs == 0);                     \
        return end(&l, stream, is_per_thread,                                                      \
                   tl_priority_launch##suffix(config, f, params, extra));                          \
    }
TWINS(LAUNCH_KERNEL_EX)

#define LAUNCH_COOPERATIVE(suffix, is_per_thread)                                                  \
    static CUresult hook_cuLaunchCooperativeKernel##suffix(                                        \
        CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,             \
        unsigned bz, unsigned shared, CUstream stream, void **params)                              \
    {                                                                                              \
        struct launch l = begin(f, blocks_of(gx, gy, gz), stream, is_per_thread, true);            \
        return end(&l, stream, is_per_thread,                                                      \
                   TL_REAL(cuLaunchCooperativeKernel##suffix)(f, gx, gy, gz, bx, by, bz, shared,   \
                                                              stream, params));                    \
    }
TWINS(LAUNCH_COOPERATIVE)

/* One launch on each of several devices. */
static CUresult hook_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned n,
                                                          unsigned flags)
{
    struct tl_stream *busy[64];
    if (list == NULL || n > 64)
        return TL_REAL(cuLaunchCooperativeKernelMultiDevice)(list, n, flags);
    for (unsigned i = 0; i < n; i++) {
        busy[i] = tl_high_begin(list[i].hStream, false);
        tl_record_launched(record_of(list[i].function), TL_RUNG_WHOLE,
                           blocks_of(list[i].gridDimX, list[i].gridDimY, list[i].gridDimZ));
    }
    CUresult r = TL_REAL(cuLaunchCooperativeKernelMultiDevice)(list, n, flags);
    for (unsigned i = 0; i < n; i++)
        tl_high_end(busy[i], r);
    return r;
}

/* The oldest forms: the shape of blocks was set in the function before. */
static CUresult hook_cuLaunch(CUfunction f)
{
    struct launch l = begin(f, 1, NULL, false, true);
    return end(&l, NULL, false, TL_REAL(cuLaunch)(f));
}

static CUresult hook_cuLaunchGrid(CUfunction f, int width, int height)
{
    struct launch l = begin(f, blocks_of((unsigned)width, (unsigned)height, 1), NULL, false, true);
    return end(&l, NULL, false, TL_REAL(cuLaunchGrid)(f, width, height));
}

static CUresult hook_cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream)
{
    struct launch l = begin(f, blocks_of((unsigned)width, (unsigned)height, 1), stream, false,
                            true);
    return end(&l, stream, false, TL_REAL(cuLaunchGridAsync)(f, width, height, stream));
}

/* --- graphs --- */

/* All launches of graphs are one line of the record: what is in them, the driver does not tell when
 * it runs. */
static struct tl_record_kernel *_Atomic graphs;

static struct tl_record_kernel *graph_record(void)
{
    struct tl_record_kernel *k = atomic_load_explicit(&graphs, memory_order_relaxed);
    if (k == NULL && tl_job.record != NULL) {
        k = tl_record_kernel(tl_job.record, "(graph)");
        atomic_store_explicit(&graphs, k, memory_order_relaxed);
    }
    return k;
}

void tl_launch_forked(void)
{
    atomic_store(&graphs, NULL);
}

#define LAUNCH_GRAPH(suffix, is_per_thread)                                                        \
    static CUresult hook_cuGraphLaunch##suffix(CUgraphExec graph, CUstream stream)                 \
    {                                                                                              \
        struct launch l = {.s = tl_high_begin(stream, is_per_thread)};                             \
        if (l.s != NULL) {                                                                         \
            l.k = graph_record();                                                                  \
            tl_record_launched(l.k, TL_RUNG_WHOLE, 1);                                             \
            tl_record_op(l.k, tl_op_now());                                                        \
            if (--tl_high_thread.until_sample < 0)                                                 \
                l.sample = tl_sample_begin(l.s, stream, is_per_thread, l.k);                       \
        }                                                                                          \
        return end(&l, stream, is_per_thread, tl_memory_cuGraphLaunch##suffix(graph, stream));     \
    }
TWINS(LAUNCH_GRAPH)

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
const struct tl_hook tl_high_launch_hooks[] = {
    HOOK(cuLaunchKernel), HOOK(cuLaunchKernel_ptsz), HOOK(cuLaunchKernelEx), HOOK(cuLaunchKernelEx_ptsz),
    HOOK(cuLaunchCooperativeKernel), HOOK(cuLaunchCooperativeKernel_ptsz), HOOK(cuLaunchCooperativeKernelMultiDevice),
    HOOK(cuLaunch), HOOK(cuLaunchGrid), HOOK(cuLaunchGridAsync), HOOK(cuGraphLaunch), HOOK(cuGraphLaunch_ptsz),
    {NULL, NULL},
};
/* clang-format on */
