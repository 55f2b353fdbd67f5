/* What the interception library adds to a launch: the same driver, which does nothing, called
 * directly and through it, in turn, in one process.
 *
 *     launch SHIM DRIVER [SECONDS [BURST]]
 *
 * A batch is 1000 launches, with a wait that is not timed behind each BURST (1000) of them, as a
 * server's request would be: each launch behind a wait begins a burst.  Once both ways are open it
 * waits for the end of its standard input.  Prints one JSON object: nanoseconds per launch, median
 * of the batches and their quartiles, for both ways, and the median of the differences of
 * neighbours.  Time is the thread's own processor time, so that other processes on the machine do
 * not count. */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LAUNCHES = 1000, MAX_BATCHES = 20000 };

typedef CUresult launch_fn(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, CUstream, void **, void **);

struct way {
    launch_fn *launch;
    CUresult (*wait)(CUstream);
    CUfunction function;
    CUstream stream;
    double ns[MAX_BATCHES];
};

static struct way direct, through;
static double added[MAX_BATCHES];

static void *must(void *p, const char *what)
{
    if (p == NULL) {
        fprintf(stderr, "launch: %s: %s\n", what, dlerror());
        exit(1);
    }
    return p;
}

static void open_way(struct way *w, const char *path)
{
    void *library = must(dlopen(path, RTLD_NOW | RTLD_LOCAL), path);
    CUcontext ctx;
    CUmodule module;
#define FIND(name) ((__typeof__(name) *)must(dlsym(library, #name), #name))
    if (FIND(cuInit)(0) != CUDA_SUCCESS ||
        FIND(cuDevicePrimaryCtxRetain)(&ctx, 0) != CUDA_SUCCESS ||
        FIND(cuCtxSetCurrent)(ctx) != CUDA_SUCCESS ||
        FIND(cuStreamCreate)(&w->stream, 1) != CUDA_SUCCESS ||
        FIND(cuModuleLoadData)(&module, ".version 7.0\n") != CUDA_SUCCESS ||
        FIND(cuModuleGetFunction)(&w->function, module, "kernel") != CUDA_SUCCESS) {
        fprintf(stderr, "launch: %s does not start\n", path);
        exit(1);
    }
    w->launch = FIND(cuLaunchKernel);
    w->wait = FIND(cuStreamSynchronize);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double batch(struct way *w, int burst)
{
    uint64_t ns = 0;
    for (int left = LAUNCHES; left > 0; left -= burst) {
        int n = left < burst ? left : burst;
        uint64_t begin = now_ns();
        for (int i = 0; i < n; i++)
            w->launch(w->function, 16, 1, 1, 128, 1, 1, 0, w->stream, NULL, NULL);
        ns += now_ns() - begin;
        w->wait(w->stream);
    }
    return (double)ns / LAUNCHES;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *name, double *ns, int n, const char *end)
{
    qsort(ns, (size_t)n, sizeof ns[0], by_size);
    printf("\"%s\": {\"median\": %.2f, \"p25\": %.2f, \"p75\": %.2f, \"p99\": %.2f}%s", name,
           ns[n / 2], ns[n / 4], ns[n * 3 / 4], ns[n * 99 / 100], end);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: launch SHIM DRIVER [SECONDS [BURST]]\n");
        return 2;
    }
    double seconds = argc > 3 ? atof(argv[3]) : 2;
    int burst = argc > 4 && atoi(argv[4]) > 0 ? atoi(argv[4]) : LAUNCHES;
    open_way(&through, argv[1]);
    open_way(&direct, argv[2]);
    while (getchar() != EOF)
        ;
    time_t until = time(NULL) + (time_t)seconds;
    int n = 0;
    for (int i = 0; i < 20; i++) { /* warm */
        batch(&direct, burst);
        batch(&through, burst);
    }
    while (n < MAX_BATCHES && (n < 100 || time(NULL) <= until)) {
        /* Each goes first in turn. */
        if (n % 2 == 0)
            direct.ns[n] = batch(&direct, burst);
        through.ns[n] = batch(&through, burst);
        if (n % 2 != 0)
            direct.ns[n] = batch(&direct, burst);
        added[n] = through.ns[n] - direct.ns[n];
        n++;
    }
    printf("{");
    print("direct_ns", direct.ns, n, ", ");
    print("through_ns", through.ns, n, ", ");
    print("added_ns", added, n, ", ");
    printf("\"batches\": %d}\n", n);
    return 0;
}
