/* What it costs a block in pieces to ask whether it has to leave: accesses to host memory, how
 * often something waits for them, and time, with as many words in use as there are clients above.
 *
 *     polls DRIVER [BLOCKS]
 *
 * DRIVER is the software device's.  Accesses are its own count (TALLY_DEVICE_PCIE must be set, best
 * to `yes`), times are of its model of the bus, on whatever CPU this is: compare rows, not
 * machines. Prints one JSON object. */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tally/device.h"
#include "tally/ptx.h"

enum { THREADS = 32, WORKERS = 4, ROUNDS = 20, PARAMS = 512 };

/* Each block adds one to its number's place. */
static const char text[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry work(.param .u64 p)\n{\n .reg .u64 %a, %o;\n .reg .u32 %b, %t, %v;\n"
    " .reg .pred %q;\n mov.u32 %t, %tid.x;\n setp.ne.u32 %q, %t, 0;\n @%q ret;\n"
    " ld.param.u64 %a, [p];\n mov.u32 %b, %ctaid.x;\n mul.wide.u32 %o, %b, 4;\n"
    " add.u64 %a, %a, %o;\n ld.global.u32 %v, [%a];\n add.u32 %v, %v, 1;\n"
    " st.global.u32 [%a], %v;\n ret;\n}\n";

static void *library;

static void *must(void *p, const char *what)
{
    if (p == NULL) {
        fprintf(stderr, "polls: %s: %s\n", what, dlerror());
        exit(1);
    }
    return p;
}
#define CALL(name) ((__typeof__(name) *)must(dlsym(library, #name), #name))

static void check(CUresult r, const char *what)
{
    if (r != CUDA_SUCCESS) {
        fprintf(stderr, "polls: %s: error %d\n", what, r);
        exit(1);
    }
}
#define OK(call) check(call, #call)

static uint32_t counted(int attribute)
{
    int n = 0;
    OK(CALL(cuDeviceGetAttribute)(&n, (CUdevice_attribute)attribute, 0));
    return (uint32_t)n;
}

struct form {
    const char *name;
    enum tl_ptx_variant variant;
    uint32_t batch;
    CUfunction function;
    struct tl_ptx_rewritten r;
};

static void make(struct form *f)
{
    struct tl_ptx_index *index;
    struct tl_error err = {0};
    struct tl_ptx_options o = {.variant = f->variant, .grid_dims = 1};
    CUmodule module;
    if (tl_ptx_index_create(&index, text, strlen(text), "work", &err) < 0 ||
        tl_ptx_rewrite(index, tl_str_of("work"), &o, &f->r, NULL, &err) < 0) {
        fprintf(stderr, "polls: %s\n", err.text);
        exit(1);
    }
    tl_ptx_index_destroy(index);
    OK(CALL(cuModuleLoadData)(&module, f->r.text));
    OK(CALL(cuModuleGetFunction)(&f->function, module, f->r.entry));
}

struct bench {
    uint32_t blocks;
    CUdeviceptr out, counter;
    CUdeviceptr words[TL_PTX_STOP_WORDS]; /* on the host, a page each, and none says stop */
    CUevent begin, end;
};

/* One launch of all blocks with so many words; its time in nanoseconds. */
static double launch(const struct bench *b, const struct form *f, uint32_t n_words)
{
    _Alignas(16) uint8_t params[PARAMS] = {0};
    size_t n = f->r.param_bytes;
    float ms = 0;
    struct tl_ptx_extra x = {.grid = {b->blocks, 1, 1},
                             .blocks = b->blocks,
                             .batch_mask = f->batch - 1,
                             .counter = b->counter + 4};
    memcpy(x.words, b->words, n_words * sizeof x.words[0]);
    memcpy(params, &b->out, sizeof b->out);
    tl_ptx_put_args(f->r.args, f->r.n_args, &x, params);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
                     CU_LAUNCH_PARAM_END};
    OK(CALL(cuMemsetD32_v2)(b->counter, 0, 2));
    OK(CALL(cuEventRecord)(b->begin, NULL));
    OK(CALL(cuLaunchKernel)(f->function, f->variant == TL_PTX_TICKET ? b->blocks : WORKERS, 1, 1,
                            THREADS, 1, 1, TL_PTX_SHARED_BYTES(0), NULL, NULL, extra));
    OK(CALL(cuEventRecord)(b->end, NULL));
    OK(CALL(cuEventSynchronize)(b->end));
    OK(CALL(cuEventElapsedTime)(&ms, b->begin, b->end));
    return (double)ms * 1e6;
}

/* The least of several launches; accesses are those of one. */
static void measure(const struct bench *b, const struct form *f, uint32_t n_words, bool is_first)
{
    double best = launch(b, f, n_words); /* compiles */
    uint32_t taken = 0;
    uint32_t reads = counted(TL_DEVICE_ATTRIBUTE_HOST_READS),
             waits = counted(TL_DEVICE_ATTRIBUTE_HOST_WAITS),
             others = counted(TL_DEVICE_ATTRIBUTE_HOST_WRITES) +
                      counted(TL_DEVICE_ATTRIBUTE_HOST_ATOMICS);
    for (int i = 0; i < ROUNDS; i++) {
        double ns = launch(b, f, n_words);
        best = ns < best ? ns : best;
    }
    OK(CALL(cuMemcpyDtoH_v2)(&taken, b->counter + 4, sizeof taken));
    /* each poll takes a batch, as nobody says stop */
    double polls = (double)taken / f->batch * ROUNDS;
    printf("%s\n  {\"form\": \"%s\", \"batch\": %u, \"words\": %u, \"polls_per_block\": %.3f, "
           "\"reads_per_poll\": %.3f, \"waits_per_poll\": %.3f, \"other_accesses\": %u, "
           "\"ns_per_block\": %.1f}",
           is_first ? "" : ",", f->name, f->batch, n_words, polls / ROUNDS / b->blocks,
           (counted(TL_DEVICE_ATTRIBUTE_HOST_READS) - reads) / polls,
           (counted(TL_DEVICE_ATTRIBUTE_HOST_WAITS) - waits) / polls,
           counted(TL_DEVICE_ATTRIBUTE_HOST_WRITES) + counted(TL_DEVICE_ATTRIBUTE_HOST_ATOMICS) -
               others,
           best / b->blocks);
}

int main(int argc, char **argv)
{
    struct form forms[] = {{.name = "ticket", .variant = TL_PTX_TICKET, .batch = 1},
                           {.name = "persistent", .variant = TL_PTX_PERSISTENT, .batch = 1},
                           {.name = "persistent", .variant = TL_PTX_PERSISTENT, .batch = 8}};
    static const uint32_t words[] = {0, 1, 4};
    struct bench b = {.blocks = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 5000};
    CUcontext ctx;
    void *page;
    if (argc < 2 || b.blocks == 0 || getenv("TALLY_DEVICE_PCIE") == NULL) {
        fprintf(stderr, "usage: TALLY_DEVICE_PCIE=yes polls DRIVER [BLOCKS]\n");
        return 2;
    }
    library = must(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), argv[1]);
    OK(CALL(cuInit)(0));
    OK(CALL(cuDevicePrimaryCtxRetain)(&ctx, 0));
    OK(CALL(cuCtxSetCurrent)(ctx));
    OK(CALL(cuMemAlloc_v2)(&b.out, (size_t)b.blocks * 4));
    OK(CALL(cuMemAlloc_v2)(&b.counter, 64));
    OK(CALL(cuEventCreate)(&b.begin, CU_EVENT_DEFAULT));
    OK(CALL(cuEventCreate)(&b.end, CU_EVENT_DEFAULT));
    for (uint32_t i = 0; i < TL_PTX_STOP_WORDS; i++) {
        OK(CALL(cuMemHostAlloc)(&page, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
        memset(page, 0, 4096);
        OK(CALL(cuMemHostGetDevicePointer_v2)(&b.words[i], page, 0));
    }
    printf("{\"blocks\": %u, \"pcie\": \"%s\", \"rows\": [", b.blocks, getenv("TALLY_DEVICE_PCIE"));
    for (uint32_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        make(&forms[f]);
        for (uint32_t w = 0; w < sizeof words / sizeof *words; w++)
            measure(&b, &forms[f], words[w], f + w == 0);
        tl_ptx_rewritten_finish(&forms[f].r);
    }
    printf("\n]}\n");
    return 0;
}
