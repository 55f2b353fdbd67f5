/* gate-tool measure: gates every cubin in some files that one GPU would load, in memory, and tells
 * as JSON what that takes.  Beside it stands what it takes to copy the results into new memory, so
 * that runs on different machines can be compared. */
#include "tally/clock.h"
#include "tally/image.h"
#include "test/gate/tool.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { SOME_KB = 64, LARGE_MB = 8 };

/* One cubin: what else happens on the machine is told from what it takes by measuring it again. */
struct one {
    size_t bytes, out_bytes;
    double cpu_ms, wall_ms;
    double copy_ms;   /* what copying the result into new memory takes, on the CPU */
    bool wants_twins; /* it has variables: jobs have its twins made when they load it */
};

struct span {
    double wall, cpu; /* seconds; of this thread */
};

struct sums {
    uint32_t arch;
    bool is_twin;
    struct tl_cubin_gates *gates;
    struct one *each; /* in the order of the files */
    uint64_t cubins, kernels, gated, in_bytes, out_bytes;
    struct span gate, unpack, copy;
    /* As multiples of the cubin, beside SOME_KB: what gating takes, and what comes out. */
    double most_memory, most_output;
    /* The same of what the system had given to this process when it had most, the cubin included;
     * of cubins from LARGE_MB on, since the system counts pages by the dozen. */
    double most_held;
    uint64_t rest_bytes; /* what it had before */
    struct tl_error err;
};

static struct span now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (struct span){1e-9 * (double)tl_clock_ns(), (double)t.tv_sec + 1e-9 * (double)t.tv_nsec};
}

static struct span since(struct span began)
{
    struct span t = now();
    return (struct span){t.wall - began.wall, t.cpu - began.cpu};
}

static void add(struct span *sum, struct span more)
{
    sum->wall += more.wall;
    sum->cpu += more.cpu;
}

/* Lets the system forget how much memory this process has had, and tells what it has. */
static uint64_t forget_held(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    (void)malloc_trim(0);
    if (f == NULL || fputs("5", f) < 0 || fclose(f) != 0)
        gate_tool_die("no /proc/self/clear_refs");
    return gate_tool_held();
}

/* The yardstick: the same bytes into memory that is as new. */
static struct span measure_copy(struct sums *s, const struct tl_cubin_gated *out)
{
    struct span began = now();
    void *copy = malloc(out->n);
    if (copy == NULL)
        gate_tool_die("no memory");
    memcpy(copy, out->bytes, out->n);
    __asm__ volatile("" : : "r"(copy) : "memory");
    free(copy);
    struct span took = since(began);
    add(&s->copy, took);
    return took;
}

static void add_memory(struct sums *s, size_t peak, size_t n, const struct tl_cubin_gated *out)
{
    double memory = ((double)peak - SOME_KB * 1024.0) / (double)n;
    double output = (double)out->n / (double)n;
    if (memory > s->most_memory)
        s->most_memory = memory;
    if (output > s->most_output)
        s->most_output = output;
}

static void add_held(struct sums *s, size_t n)
{
    double held = ((double)gate_tool_held() - (double)s->rest_bytes) / (double)n;
    if (n >= (size_t)LARGE_MB << 20 && held > s->most_held)
        s->most_held = held;
}

static bool wants_twins(const struct tl_cubin *c)
{
    for (uint32_t i = 0; i < tl_cubin_count(c); i++)
        if (tl_cubin_entry(c, i)->reason == TL_CUBIN_REASON_OK && tl_cubin_entry(c, i)->wants_twin)
            return true;
    return false;
}

static struct one *add_one(struct sums *s, const struct tl_cubin *c, size_t n, struct span took)
{
    s->each = realloc(s->each, (s->cubins + 1) * sizeof *s->each);
    if (s->each == NULL)
        gate_tool_die("no memory");
    s->each[s->cubins] = (struct one){.bytes = n,
                                      .cpu_ms = 1e3 * took.cpu,
                                      .wall_ms = 1e3 * took.wall,
                                      .wants_twins = wants_twins(c)};
    return &s->each[s->cubins++];
}

static int measure_cubin(struct sums *s, const void *bytes, size_t n)
{
    struct tl_cubin *c;
    struct tl_cubin_gated out = {0};
    gate_tool_count_memory();
    struct span began = now();
    int rc = tl_cubin_open(&c, bytes, n, &s->err);
    if (rc < 0)
        return rc;
    rc = tl_cubin_gate(c, &(struct tl_cubin_options){.is_twin = s->is_twin, .spends = s->is_twin},
                       s->gates, &out, &s->err);
    struct span took = since(began);
    size_t peak = gate_tool_most_memory();
    add_held(s, n);
    struct one *one = add_one(s, c, n, took);
    s->kernels += tl_cubin_count(c);
    s->in_bytes += n;
    add(&s->gate, took);
    if (rc == 0) {
        s->gated += out.n_gated;
        s->out_bytes += out.n;
        add_memory(s, peak, n, &out);
        one->copy_ms = 1e3 * measure_copy(s, &out).cpu;
        one->out_bytes = out.n;
    }
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
    s->rest_bytes = forget_held();
    struct span began = now();
    int rc = tl_image_unpack(image, &bytes, &n, &s->err);
    if (rc == 0) {
        add(&s->unpack, since(began));
        rc = measure_cubin(s, bytes, n);
        free(bytes);
    }
    return rc;
}

static void print(const struct sums *s)
{
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    printf("{\"arch\": %u, \"is_twin\": %s, \"cubins\": %llu, \"kernels\": %llu, \"gated\": %llu, ",
           s->arch, s->is_twin ? "true" : "false", (unsigned long long)s->cubins,
           (unsigned long long)s->kernels, (unsigned long long)s->gated);
    printf("\"in_bytes\": %llu, \"out_bytes\": %llu, \"gate_s\": %.6f, \"gate_cpu_s\": %.6f, "
           "\"copy_cpu_s\": %.6f, \"unpack_cpu_s\": %.6f, ",
           (unsigned long long)s->in_bytes, (unsigned long long)s->out_bytes, s->gate.wall,
           s->gate.cpu, s->copy.cpu, s->unpack.cpu);
    printf("\"each\": [");
    for (uint64_t i = 0; i < s->cubins; i++)
        printf("%s{\"bytes\": %zu, \"out_bytes\": %zu, \"cpu_ms\": %.4f, \"wall_ms\": %.4f, "
               "\"copy_ms\": %.4f, \"wants_twins\": %s}",
               i > 0 ? ", " : "", s->each[i].bytes, s->each[i].out_bytes, s->each[i].cpu_ms,
               s->each[i].wall_ms, s->each[i].copy_ms, s->each[i].wants_twins ? "true" : "false");
    printf("], ");
    printf("\"most_held\": %.3f, \"held_from_mb\": %d, ", s->most_held, LARGE_MB);
    printf("\"most_memory\": %.3f, \"beside_kb\": %d, \"most_output\": %.3f, "
           "\"gates_compiled\": %u, \"compiler_cpu_s\": %.3f}\n",
           s->most_memory, SOME_KB, s->most_output, tl_cubin_gates_compiled(s->gates),
           (double)(children.ru_utime.tv_sec + children.ru_stime.tv_sec) +
               1e-6 * (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec));
}

void gate_tool_measure(struct tl_cubin_gates *gates, const char *arch, char *const *paths,
                       int n_paths, bool is_twin)
{
    struct sums s = {.arch = (uint32_t)atoi(arch), .gates = gates, .is_twin = is_twin};
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* what is freed is not kept for the next one */
    prctl(PR_SET_CHILD_SUBREAPER, 1);     /* compilers are no children of who calls them */
    for (int i = 0; i < n_paths; i++) {
        size_t n;
        char *bytes = gate_tool_read(paths[i], &n);
        if (tl_image_walk(bytes, n, measure_image, NULL, &s) < 0)
            gate_tool_die(s.err.text);
        free(bytes);
    }
    while (wait(NULL) > 0)
        continue;
    print(&s);
    free(s.each);
}
