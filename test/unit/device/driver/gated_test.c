/* Gated machine code (docs/gate.md) on a device as strict as a GPU: code that real ptxas made,
 * gated by our library, runs as the gate's PTX and the kernel's, and stops, goes on and is refused
 * as struct tl_cubin_args says.
 *
 * Each profile needs a process of its own: the test runs itself again.  Without ptxas there is no
 * machine code, and the tests are left out. */
#include "test/unit/device/driver/help.h"
#include "test/unit/image/build.h"

#include "tally/cubin.h"
#include "tally/origin.h"
#include "test/unit/scratch.h"

#include <sys/wait.h>

enum { BLOCKS = 23, THREADS = 32 };

static const char *self;
static struct tl_cubin_compiler *ptxas;
static struct tl_cubin_gates *gates;

void setUp(void)
{
}

void tearDown(void)
{
}

/* Each block counts itself in `runs`, adds to a variable of the module, and writes what only it
 * writes; block `setter` says stop to those that begin later. */
static const char kernels[] =
    ".address_size 64\n"
    ".visible .global .align 4 .u32 total = 100;\n"
    ".visible .entry work(.param .u64 out, .param .u32 setter, .param .u64 runs, .param .u64 "
    "stop)\n"
    "{\n"
    ".reg .pred %p<3>;\n.reg .b32 %r<12>;\n.reg .b64 %d<12>;\n"
    "ld.param.u64 %d1, [out];\nld.param.u32 %r1, [setter];\nld.param.u64 %d2, [runs];\n"
    "ld.param.u64 %d3, [stop];\n"
    "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\n"
    "mad.lo.u32 %r5, %r2, %r3, %r4;\n"
    "mul.lo.u32 %r6, %r5, 2654435761;\n"
    "mul.wide.u32 %d4, %r5, 4;\nadd.u64 %d5, %d1, %d4;\nst.global.u32 [%d5], %r6;\n"
    "setp.ne.u32 %p1, %r4, 0;\n@%p1 bra DONE;\n"
    "mul.wide.u32 %d6, %r2, 4;\nadd.u64 %d7, %d2, %d6;\n"
    "atom.global.add.u32 %r7, [%d7], 1;\n"
    "mov.u64 %d8, total;\natom.global.add.u32 %r8, [%d8], 1;\n"
    "setp.ne.u32 %p2, %r2, %r1;\n@%p2 bra DONE;\n"
    "mov.u64 %d9, 1;\nst.volatile.global.u64 [%d3], %d9;\n"
    "DONE:\nret;\n}\n"
    ".visible .entry other(.param .u64 out)\n{\n"
    ".reg .b64 %d<2>;\nld.param.u64 %d1, [out];\nst.global.u32 [%d1], 77;\nret;\n}\n"
    /* counts in a variable of its own */
    ".visible .entry inside(.param .u64 out)\n{\n"
    ".global .align 4 .u32 calls;\n"
    ".reg .b64 %d<3>;\n.reg .b32 %r<3>;\nld.param.u64 %d1, [out];\nmov.u64 %d2, calls;\n"
    "atom.global.add.u32 %r1, [%d2], 1;\nst.global.u32 [%d1], %r1;\nret;\n}\n"
    /* reads words of a parameter as large as a tensor map */
    ".visible .entry map(.param .u32 number, .param .align 128 .b8 words[128], .param .u64 "
    "out)\n{\n"
    ".reg .b64 %d<2>;\n.reg .b32 %r<5>;\nld.param.u64 %d1, [out];\nld.param.u32 %r1, [words];\n"
    "ld.param.u32 %r2, [words+124];\nld.param.u32 %r3, [number];\nadd.u32 %r4, %r1, %r2;\n"
    "add.u32 %r4, %r4, %r3;\nst.global.u32 [%d1], %r4;\nret;\n}\n";

/* --- making --- */

static uint32_t arch;
static char text[8192];
static void *cubin;
static size_t n_cubin;

static void make_cubin(void)
{
    struct tl_error err = {0};
    int major, minor;
    OK(CALL(cuInit)(0));
    OK(CALL(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    OK(CALL(cuDeviceGetAttribute)(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    arch = (uint32_t)(10 * major + minor);
    snprintf(text, sizeof text, ".version 7.8\n.target sm_%u\n%s", arch, kernels);
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, ptxas->compile(ptxas->data, text, arch, &cubin, &n_cubin, &err), err.text);
}

/* A container with the code and its PTX, as nvcc makes them. */
static struct tl_buf both(const void *code, size_t n)
{
    struct tl_buf b = {0};
    build_container(
        &b,
        (struct build_entry[]){
            {.kind = BUILD_CUBIN, .arch = arch, .payload = code, .payload_bytes = n},
            {.kind = BUILD_PTX, .arch = arch, .payload = text, .payload_bytes = strlen(text) + 1}},
        2);
    return b;
}

static struct tl_cubin_gated gated(bool is_twin, const char *kernel)
{
    struct tl_cubin *c;
    struct tl_cubin_gated out;
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_cubin_open(&c, cubin, n_cubin, &err), err.text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0,
        tl_cubin_gate(c,
                      &(struct tl_cubin_options){.is_twin = is_twin, .kernel = tl_str_of(kernel)},
                      gates, &out, &err),
        err.text);
    tl_cubin_close(c);
    return out;
}

static CUmodule load_original(void)
{
    CUmodule m;
    struct tl_buf b = both(cubin, n_cubin);
    OK(CALL(cuModuleLoadData)(&m, b.p));
    tl_buf_finish(&b);
    return m;
}

/* --- running --- */

/* What a launch works on, in the device's memory. */
struct arena {
    CUdeviceptr out, runs, stop[TL_CUBIN_STOP_WORDS], word;
};

static CUdeviceptr room(size_t n)
{
    CUdeviceptr p;
    OK(CALL(cuMemAlloc_v2)(&p, n));
    OK(CALL(cuMemsetD8_v2)(p, 0, n));
    return p;
}

static struct arena make_arena(void)
{
    struct arena a = {.out = room(4 * BLOCKS * THREADS), .runs = room(4 * BLOCKS), .word = room(4)};
    for (int i = 0; i < TL_CUBIN_STOP_WORDS; i++)
        a.stop[i] = room(8);
    return a;
}

static uint32_t word_of(CUdeviceptr p)
{
    uint32_t v;
    OK(CALL(cuMemcpyDtoH_v2)(&v, p, sizeof v));
    return v;
}

static CUresult launch_gated(CUfunction f, const struct arena *a, uint32_t setter, uint32_t first,
                             uint32_t last)
{
    struct tl_cubin_args args = {.word = a->word, .first = first, .last = last};
    for (int i = 0; i < TL_CUBIN_STOP_WORDS; i++)
        args.stop[i] = a->stop[i];
    CUdeviceptr out = a->out, runs = a->runs, stop = a->stop[2];
    void *params[] = {&out, &setter, &runs, &stop, &args};
    CUresult r = CALL(cuLaunchKernel)(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL);
    return r == CUDA_SUCCESS ? CALL(cuCtxSynchronize)() : r;
}

/* Blocks from `first` to `last` ran once, all others never, and each wrote what it should. */
static void ran_exactly(const struct arena *a, uint32_t first, uint32_t last)
{
    uint32_t runs[BLOCKS], out[BLOCKS * THREADS];
    OK(CALL(cuMemcpyDtoH_v2)(runs, a->runs, sizeof runs));
    OK(CALL(cuMemcpyDtoH_v2)(out, a->out, sizeof out));
    for (uint32_t i = 0; i < BLOCKS; i++)
        TEST_ASSERT_EQUAL_UINT32(i >= first && i < last, runs[i]);
    for (uint32_t i = 0; i < BLOCKS * THREADS; i++)
        TEST_ASSERT_EQUAL_HEX32(i / THREADS >= first && i / THREADS < last ? i * 2654435761u : 0,
                                out[i]);
}

static void clear(const struct arena *a)
{
    OK(CALL(cuMemsetD8_v2)(a->out, 0, 4 * BLOCKS * THREADS));
    OK(CALL(cuMemsetD8_v2)(a->runs, 0, 4 * BLOCKS));
    OK(CALL(cuMemsetD8_v2)(a->word, 0, 4));
    for (int i = 0; i < TL_CUBIN_STOP_WORDS; i++)
        OK(CALL(cuMemsetD8_v2)(a->stop[i], 0, 8));
}

/* What the gate promises: blocks that were let in run, once; those that were not can be run
 * later. */
static void stops_and_goes_on(CUfunction f)
{
    struct arena a = make_arena();
    /* nobody says stop */
    OK(launch_gated(f, &a, UINT32_MAX, 0, BLOCKS));
    ran_exactly(&a, 0, BLOCKS);
    TEST_ASSERT_EQUAL_HEX32(BLOCKS, word_of(a.word));
    /* one of the words does, from the beginning */
    for (int i = 0; i < TL_CUBIN_STOP_WORDS; i++) {
        clear(&a);
        OK(CALL(cuMemsetD8_v2)(a.stop[i], 1, 1));
        OK(launch_gated(f, &a, UINT32_MAX, 0, BLOCKS));
        ran_exactly(&a, 0, 0);
        TEST_ASSERT_EQUAL_HEX32(TL_CUBIN_CLOSED, word_of(a.word));
    }
    /* both halves the same again: no stop */
    clear(&a);
    OK(CALL(cuMemsetD32_v2)(a.stop[1], 9, 2));
    OK(launch_gated(f, &a, UINT32_MAX, 0, BLOCKS));
    ran_exactly(&a, 0, BLOCKS);
    /* in the middle: what was claimed has run, and the rest runs later, once */
    clear(&a);
    OK(launch_gated(f, &a, 7, 0, BLOCKS));
    uint32_t word = word_of(a.word), h = word & ~TL_CUBIN_CLOSED;
    TEST_ASSERT_GREATER_OR_EQUAL_UINT32(8, h);
    TEST_ASSERT_EQUAL_INT(h < BLOCKS, (word & TL_CUBIN_CLOSED) != 0);
    ran_exactly(&a, 0, h);
    OK(CALL(cuMemsetD8_v2)(a.stop[2], 0, 8));
    OK(CALL(cuMemsetD32_v2)(a.word, h, 1));
    OK(launch_gated(f, &a, UINT32_MAX, h, BLOCKS));
    ran_exactly(&a, 0, BLOCKS);
    TEST_ASSERT_EQUAL_HEX32(BLOCKS, word_of(a.word));
    /* a range */
    clear(&a);
    OK(CALL(cuMemsetD32_v2)(a.word, 5, 1));
    OK(launch_gated(f, &a, UINT32_MAX, 5, 11));
    ran_exactly(&a, 5, 11);
    TEST_ASSERT_EQUAL_HEX32(11, word_of(a.word));
}

/* --- parts --- */

static CUdeviceptr total_of(CUmodule m)
{
    CUdeviceptr p;
    size_t n;
    OK(CALL(cuModuleGetGlobal_v2)(&p, &n, m, "total"));
    TEST_ASSERT_EQUAL_INT(4, n);
    return p;
}

static void part_gated(void)
{
    CUmodule original, m;
    CUfunction f;
    use_device();
    make_cubin();
    struct tl_cubin_gated g = gated(false, NULL);
    /* By itself nobody knows what it is. */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_BINARY_FOR_GPU, CALL(cuModuleLoadData)(&m, g.bytes));
    original = load_original();
    OK(CALL(cuModuleLoadData)(&m, g.bytes));
    OK(CALL(cuModuleGetFunction)(&f, m, "work"));
    stops_and_goes_on(f);
    /* A second module has variables of its own. */
    TEST_ASSERT_EQUAL_UINT32(100, word_of(total_of(original)));
    TEST_ASSERT_GREATER_THAN_UINT32(100, word_of(total_of(m)));
    /* The code itself is known now, without its PTX beside it. */
    CUlibrary l;
    OK(CALL(cuLibraryLoadData)(&l, cubin, NULL, NULL, 0, NULL, NULL, 0));
    OK(CALL(cuLibraryUnload)(l));
    OK(CALL(cuLibraryLoadData)(&l, g.bytes, NULL, NULL, 0, NULL, NULL, 0));
    CUkernel k;
    OK(CALL(cuLibraryGetKernel)(&k, l, "work"));
    stops_and_goes_on((CUfunction)(void *)k);
    OK(CALL(cuLibraryUnload)(l));
    tl_cubin_gated_finish(&g);
}

static void part_twin(void)
{
    CUmodule m;
    CUfunction f, twin;
    use_device();
    make_cubin();
    struct tl_cubin_gated g = gated(true, "work");
    load_original();
    OK(CALL(cuModuleLoadData)(&m, g.bytes));
    OK(CALL(cuModuleGetFunction)(&f, m, "work"));
    OK(CALL(cuModuleGetFunction)(&twin, m, "work$gate"));
    CUfunction none;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_FOUND, CALL(cuModuleGetFunction)(&none, m, "other$gate"));
    OK(CALL(cuModuleGetFunction)(&none, m, "other"));
    stops_and_goes_on(twin);
    /* One copy of the variable: the original goes on counting where the twin stopped. */
    uint32_t before = word_of(total_of(m));
    TEST_ASSERT_GREATER_THAN_UINT32(100, before);
    struct arena a = make_arena();
    uint32_t setter = UINT32_MAX;
    void *params[] = {&a.out, &setter, &a.runs, &a.stop[0]};
    OK(CALL(cuLaunchKernel)(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuCtxSynchronize)());
    ran_exactly(&a, 0, BLOCKS);
    TEST_ASSERT_EQUAL_UINT32(before + BLOCKS, word_of(total_of(m)));
    tl_cubin_gated_finish(&g);
}

/* A variable that stands inside of a kernel is its twin's as well. */
static void part_inside(void)
{
    CUmodule m;
    CUfunction f[2];
    use_device();
    make_cubin();
    struct tl_cubin_gated g = gated(true, NULL);
    load_original();
    OK(CALL(cuModuleLoadData)(&m, g.bytes));
    OK(CALL(cuModuleGetFunction)(&f[0], m, "inside"));
    OK(CALL(cuModuleGetFunction)(&f[1], m, "inside$gate"));
    struct arena a = make_arena();
    struct tl_cubin_args args = {.word = a.word, .first = 0, .last = 1};
    for (int i = 0; i < TL_CUBIN_STOP_WORDS; i++)
        args.stop[i] = a.stop[i];
    void *params[] = {&a.out, &args};
    for (uint32_t i = 0; i < 6; i++) {
        OK(CALL(cuMemsetD8_v2)(a.word, 0, 4));
        OK(CALL(cuLaunchKernel)(f[i % 2], 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        OK(CALL(cuCtxSynchronize)());
        TEST_ASSERT_EQUAL_UINT32(i, word_of(a.out));
    }
    tl_cubin_gated_finish(&g);
}

static void part_attributes(void)
{
    CUmodule m;
    CUfunction f, twin;
    int v, w, version;
    use_device();
    make_cubin();
    struct tl_cubin_gated g = gated(true, "work");
    load_original();
    OK(CALL(cuModuleLoadData)(&m, g.bytes));
    OK(CALL(cuModuleGetFunction)(&f, m, "work"));
    OK(CALL(cuModuleGetFunction)(&twin, m, "work$gate"));
    OK(CALL(cuFuncGetAttribute)(&v, CU_FUNC_ATTRIBUTE_BINARY_VERSION, twin));
    TEST_ASSERT_EQUAL_INT(arch, v);
    OK(CALL(cuFuncGetAttribute)(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, twin));
    TEST_ASSERT_EQUAL_INT(20, v); /* the gate's, which are more than the kernel's */
    OK(CALL(cuFuncGetAttribute)(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
    OK(CALL(cuFuncGetAttribute)(&w, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, twin));
    TEST_ASSERT_EQUAL_INT(v, w);
    OK(CALL(cuFuncSetAttribute)(twin, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    OK(CALL(cuFuncGetAttribute)(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, twin));
    TEST_ASSERT_EQUAL_INT(100000, v);
    OK(CALL(cuDriverGetVersion)(&version));
    if (version >= 12040) {
        size_t offset, size;
        static const size_t offsets[] = {0, 8, 16, 24, 32}, sizes[] = {8, 4, 8, 8, 48};
        for (size_t i = 0; i < 5; i++) {
            OK(CALL(cuFuncGetParamInfo)(twin, i, &offset, &size));
            TEST_ASSERT_EQUAL_UINT64(offsets[i], offset);
            TEST_ASSERT_EQUAL_UINT64(sizes[i], size);
        }
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                              CALL(cuFuncGetParamInfo)(twin, 5, &offset, &size));
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                              CALL(cuFuncGetParamInfo)(f, 4, &offset, &size));
    }
    tl_cubin_gated_finish(&g);
}

/* Where these bytes stand in the cubin. */
static uint8_t *bytes_of(const struct tl_cubin_gated *g, const void *what, size_t n)
{
    uint8_t *p = memmem(g->bytes, g->n, what, n);
    TEST_ASSERT_NOT_NULL(p);
    return p;
}

static void part_refused(void)
{
    CUmodule m;
    struct tl_cubin_gate_code gate;
    struct tl_error err = {0};
    use_device();
    make_cubin();
    load_original();
    struct tl_cubin_gated g = gated(false, "work");
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_cubin_gates_code(gates, arch, 32, (const uint32_t[]){1, 1, 1}, &gate, &err),
        err.text);
    uint8_t *front = bytes_of(&g, gate.bytes, gate.n);
    OK(CALL(cuModuleLoadData)(&m, g.bytes));
    /* Any byte of the gate that is another: nobody can tell what it does. */
    for (uint32_t i = 0; i < gate.n; i += 61) {
        front[i] ^= 0x10;
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_IMAGE, CALL(cuModuleLoadData)(&m, g.bytes));
        front[i] ^= 0x10;
    }
    /* Any byte of the kernel: not the code that is known. */
    front[gate.n + 5] ^= 1;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_BINARY_FOR_GPU, CALL(cuModuleLoadData)(&m, g.bytes));
    front[gate.n + 5] ^= 1;
    /* The parameter's description: number 4, at 32. */
    uint8_t *param = bytes_of(&g, "\x04\x00\x20\x00\x00\xf0\xc1\x00", 8);
    param[2] = 0x28; /* 8 bytes further: not all inside */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_IMAGE, CALL(cuModuleLoadData)(&m, g.bytes));
    param[2] = 0x20;
    OK(CALL(cuModuleLoadData)(&m, g.bytes));
    tl_cubin_gated_finish(&g);
}

/* Whatever is changed, it is loaded or refused, and what is loaded can be launched or not: nothing
 * crashes.  In a container, which says where the cubin ends. */
static void part_broken(void)
{
    CUmodule m;
    CUfunction f;
    use_device();
    make_cubin();
    load_original();
    for (int is_twin = 0; is_twin < 2; is_twin++) {
        struct tl_cubin_gated g = gated(is_twin, "work");
        uint8_t *bytes = g.bytes;
        for (size_t at = 4, n = 0; at < g.n; at += 5, n++) {
            static const uint8_t values[] = {0xff, 0x00, 0x80, 0x01};
            uint8_t was = bytes[at];
            bytes[at] ^= values[n % 4] == 0 ? 0x5a : values[n % 4];
            struct tl_buf b = both(g.bytes, g.n);
            if (CALL(cuModuleLoadData)(&m, b.p) == CUDA_SUCCESS) {
                (void)CALL(cuModuleGetFunction)(&f, m, is_twin ? "work$gate" : "work");
                OK(CALL(cuModuleUnload)(m));
            }
            tl_buf_finish(&b);
            bytes[at] = was;
        }
        tl_cubin_gated_finish(&g);
    }
}

/* A parameter that is described at another place is put there, and the gate does not find it. */
static void part_misplaced(void)
{
    CUmodule m;
    CUfunction f;
    use_device();
    make_cubin();
    load_original();
    struct tl_cubin_gated g = gated(false, "work");
    uint8_t *param = bytes_of(&g, "\x04\x00\x20\x00\x00\xf0\xc1\x00", 8);
    param[2] = 0x18;
    OK(CALL(cuModuleLoadData)(&m, g.bytes));
    OK(CALL(cuModuleGetFunction)(&f, m, "work"));
    struct arena a = make_arena();
    OK(launch_gated(f, &a, UINT32_MAX, 0, BLOCKS));
    ran_exactly(&a, 0, 0); /* `first` and `last` are both 0 where the gate looks */
    tl_cubin_gated_finish(&g);
}

/* A container with gated code and the PTX of what is behind the gate: nothing else was ever
 * shown. */
static void part_container(void)
{
    CUmodule m;
    CUfunction f;
    use_device();
    make_cubin();
    for (int is_twin = 0; is_twin < 2; is_twin++) {
        struct tl_cubin_gated g = gated(is_twin, "work");
        struct tl_buf b = both(g.bytes, g.n);
        OK(CALL(cuModuleLoadData)(&m, b.p));
        OK(CALL(cuModuleGetFunction)(&f, m, is_twin ? "work$gate" : "work"));
        stops_and_goes_on(f);
        tl_buf_finish(&b);
        tl_cubin_gated_finish(&g);
    }
}

/* What stands in front is something else, and the PTX beside it is no excuse. */
static void part_container_refused(void)
{
    CUmodule m;
    use_device();
    make_cubin();
    struct tl_cubin_gate_code gate;
    struct tl_cubin_gated g = gated(false, "work");
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_cubin_gates_code(gates, arch, 32, (const uint32_t[]){1, 1, 1}, &gate, &err),
        err.text);
    bytes_of(&g, gate.bytes, gate.n)[100] ^= 4;
    struct tl_buf b = both(g.bytes, g.n);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_IMAGE, CALL(cuModuleLoadData)(&m, b.p));
    tl_buf_finish(&b);
    tl_cubin_gated_finish(&g);
}

/* A device, and a store of its own that it looks into. */
static void begin_kept(struct tl_store *store)
{
    char folder[128];
    struct tl_error err = {0};
    TEST_ASSERT_NOT_NULL(mkdtemp(scratch_path(folder, sizeof folder, "gated-XXXXXX")));
    setenv("TALLY_CACHE", folder, 1);
    use_device();
    make_cubin();
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_store_open(store, folder, 64, &err), err.text);
}

static void end_kept(struct tl_store *store)
{
    char command[160];
    tl_store_close(store);
    snprintf(command, sizeof command, "rm -rf '%s'", getenv("TALLY_CACHE"));
    TEST_ASSERT_EQUAL_INT(0, system(command));
}

/* A compiler has kept what the code was made of: the PTX is never shown to the device. */
static void part_kept(void)
{
    CUmodule m;
    CUfunction f;
    struct tl_store store;
    struct tl_error err = {0};
    begin_kept(&store);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_BINARY_FOR_GPU, CALL(cuModuleLoadData)(&m, cubin));
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_origin_keep(&store, cubin, n_cubin, text, strlen(text) + 1, &err), err.text);
    for (int is_twin = 1; is_twin >= 0; is_twin--) {
        struct tl_cubin_gated g = gated(is_twin, NULL);
        OK(CALL(cuModuleLoadData)(&m, g.bytes));
        OK(CALL(cuModuleGetFunction)(&f, m, is_twin ? "work$gate" : "work"));
        stops_and_goes_on(f);
        tl_cubin_gated_finish(&g);
    }
    OK(CALL(cuModuleLoadData)(&m, cubin));
    end_kept(&store);
}

/* The gate alone, found on disk by who never saw the kernel ungated. */
static void part_kept_in_place(void)
{
    CUmodule m;
    CUfunction f;
    struct tl_store store;
    struct tl_error err = {0};
    begin_kept(&store);
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_origin_keep(&store, cubin, n_cubin, text, strlen(text), &err), err.text);
    struct tl_cubin_gated g = gated(false, NULL);
    OK(CALL(cuModuleLoadData)(&m, g.bytes));
    OK(CALL(cuModuleGetFunction)(&f, m, "work"));
    stops_and_goes_on(f);
    tl_cubin_gated_finish(&g);
    end_kept(&store);
}

/* The function with a parameter that is aligned in the bank: told where the code has it, and
 * launched in both ways. */
static void expect_placed(CUmodule m)
{
    enum { WORDS = 32 };
    uint32_t words[WORDS] = {5, [WORDS - 1] = 600}, number = 7000;
    CUdeviceptr out = room(4);
    uint8_t buffer[1024] = {0};
    void *params[] = {&number, words, &out};
    size_t base = arch < 90 ? 0x160 : 0x210, map = (base + 4 + 127) / 128 * 128 - base;
    size_t sizes[] = {4, sizeof words, 8}, places[] = {0, map, map + 128}, at, bytes;
    CUfunction f;
    OK(CALL(cuModuleGetFunction)(&f, m, "map"));
    for (size_t i = 0; i < 3; i++) {
        memcpy(buffer + places[i], params[i], sizes[i]);
        if (arch < 90)
            continue; /* R535 does not tell */
        OK(CALL(cuFuncGetParamInfo)(f, i, &at, &bytes));
        TEST_ASSERT_EQUAL_size_t(places[i], at);
        TEST_ASSERT_EQUAL_size_t(sizes[i], bytes);
    }
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_UINT32(7605, word_of(out));
    OK(CALL(cuMemsetD8_v2)(out, 0, 4));
    bytes = places[2] + 8;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_UINT32(7605, word_of(out));
}

/* Machine code beside its PTX, and alone. */
static void part_placed(void)
{
    CUmodule m;
    use_device();
    make_cubin();
    expect_placed(load_original());
    OK(CALL(cuModuleLoadData)(&m, cubin));
    expect_placed(m);
}

/* --- all of them, per profile --- */

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {{"gated", part_gated},         {"twin", part_twin},
             {"inside", part_inside},       {"attributes", part_attributes},
             {"refused", part_refused},     {"broken", part_broken},
             {"misplaced", part_misplaced}, {"placed", part_placed},
             {"container", part_container}, {"container_refused", part_container_refused},
             {"kept", part_kept},           {"kept_in_place", part_kept_in_place}};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

static void must(const char *profile, const char *part)
{
    char command[PATH_MAX + 128], said[8192];
    snprintf(command, sizeof command, "TALLY_DEVICE_PROFILE=%s TALLY_DEVICE_SMS=2 '%s' %s 2>&1",
             profile, self, part);
    FILE *f = popen(command, "r");
    TEST_ASSERT_NOT_NULL(f);
    said[fread(said, 1, sizeof said - 1, f)] = 0;
    int status = pclose(f);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        printf("%s", said);
        TEST_FAIL_MESSAGE(profile);
    }
}

static void on(const char *profile)
{
    if (ptxas == NULL)
        TEST_IGNORE_MESSAGE("no ptxas here, so no machine code");
    for (int i = 0; i < N_PARTS; i++)
        must(profile, parts[i].name);
}

static void gated_code_stops_and_goes_on_on_an_a100(void)
{
    on("a100-r535");
}

static void gated_code_stops_and_goes_on_on_an_h100(void)
{
    on("h100-r580");
}

int main(int argc, char **argv)
{
    const char *path = getenv("PTXAS"); /* as test/run has found it */
    self = argv[0];
    UNITY_BEGIN();
    if (path != NULL && path[0] != 0)
        setenv("TALLY_PTXAS", path, 1); /* for the device, which has to know the gate */
    (void)tl_cubin_ptxas_create(&ptxas, path != NULL && path[0] != 0 ? path : "ptxas", NULL);
    if (argc > 1) {
        struct tl_error err;
        if (ptxas == NULL || tl_cubin_gates_create(&gates, ptxas, NULL, &err) < 0)
            return 1;
        open_driver();
        for (size_t i = 0; i < N_PARTS; i++)
            if (strcmp(argv[1], parts[i].name) == 0)
                UnityDefaultTestRun(parts[i].run, parts[i].name, __LINE__);
        return UNITY_END();
    }
    RUN_TEST(gated_code_stops_and_goes_on_on_an_a100);
    RUN_TEST(gated_code_stops_and_goes_on_on_an_h100);
    return UNITY_END();
}
