/* gate-tool measure: gates every cubin of a library that one GPU would load, in memory, and tells how
 * long that takes. */
#include "tally/image.h"
#include "test/gate/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What tables take at least, however small the cubin. */
enum { SMALL = 128 << 10 };

struct sums {
    uint32_t arch;
    bool is_twin;
    struct tl_cubin_gates *gates;
    uint64_t cubins, kernels, gated, in_bytes, out_bytes;
    uint64_t above_5_ms, longest_bytes;
    double seconds, longest;
    double most_memory; /* as a multiple of the cubin, beside SMALL bytes */
    struct tl_error err;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int measure_cubin(struct sums *s, const void *bytes, size_t n)
{
    struct tl_cubin *c;
    struct tl_cubin_gated out = {0};
    double began = now();
    int rc = tl_cubin_open(&c, bytes, n, &s->err);
    if (rc < 0)
        return rc;
    rc = tl_cubin_gate(c, &(struct tl_cubin_options){.is_twin = s->is_twin}, s->gates, &out,
                       &s->err);
    double took = now() - began;
    s->cubins++;
    s->kernels += tl_cubin_count(c);
    s->gated += rc == 0 ? out.n_gated : 0;
    s->in_bytes += n;
    s->out_bytes += out.n;
    s->seconds += took;
    s->above_5_ms += took > 0.005;
    if (took > s->longest) {
        s->longest = took;
        s->longest_bytes = n;
    }
    double memory = ((double)(n + out.peak_bytes) - SMALL) / (double)n;
    if (rc == 0 && memory > s->most_memory)
        s->most_memory = memory;
    tl_cubin_gated_finish(&out);
    tl_cubin_close(c);
    return rc == -ENOENT ? 0 : rc;
}

static int measure_image(void *data, const struct tl_image *image)
{
    struct sums *s = data;
    void *bytes;
    size_t n;
    if (image->kind != TL_IMAGE_CUBIN || image->arch != s->arch)
        return 0;
    int rc = tl_image_unpack(image, &bytes, &n, &s->err);
    if (rc == 0) {
        rc = measure_cubin(s, bytes, n);
        free(bytes);
    }
    return rc;
}

void gate_tool_measure(struct tl_cubin_gates *gates, const char *arch, const char *path,
                       bool is_twin)
{
    size_t n;
    char *bytes = gate_tool_read(path, &n);
    struct sums s = {.arch = (uint32_t)atoi(arch), .gates = gates, .is_twin = is_twin};
    if (tl_image_walk(bytes, n, measure_image, NULL, &s) < 0)
        gate_tool_die(s.err.text);
    printf("sm_%u: %llu cubins, %llu kernels, %llu gated%s in %.2f s; %llu take more than 5 ms, "
           "the longest %.1f ms for %.1f MB; %.2f times their size; memory at most %.2f times the "
           "cubin and 128 KiB; %u gates compiled\n",
           s.arch, (unsigned long long)s.cubins, (unsigned long long)s.kernels,
           (unsigned long long)s.gated, is_twin ? " as twins" : "", s.seconds,
           (unsigned long long)s.above_5_ms, s.longest * 1e3, 1e-6 * (double)s.longest_bytes,
           s.in_bytes > 0 ? (double)s.out_bytes / (double)s.in_bytes : 0, s.most_memory,
           tl_cubin_gates_compiled(gates));
    free(bytes);
}
