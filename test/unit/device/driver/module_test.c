/* Modules of the software driver: variables and their initial values, functions, linking, launches,
 * faults. */
#include "test/unit/device/driver/help.h"

#include "test/unit/scratch.h"
#include <stddef.h>

#include <elf.h>

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static void read_back(CUmodule m, const char *name, void *out, size_t bytes)
{
    CUdeviceptr d;
    size_t n;
    OK(CALL(cuModuleGetGlobal_v2)(&d, &n, m, name));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(bytes, n, name);
    OK(CALL(cuMemcpyDtoH_v2)(out, d, bytes));
}

static void variables_begin_as_their_initialisers_say(void)
{
    static const char text[] = HEAD
        ".visible .global .align 4 .u32 numbers[4] = {1, -2, 0x10};\n"
        ".visible .const .align 4 .f32 real = 0f3FC00000;\n"
        ".visible .global .align 8 .f64 wide[2] = {0d4000000000000000, -2.5};\n"
        ".visible .global .align 4 .f32 decimal = 0.25;\n"
        ".visible .global .align 2 .u16 table[2][3] = {{1, 2}, {3, 4, 5}};\n"
        ".visible .global .align 1 .b8 letters[] = {104, 105, 0};\n"
        ".visible .global .align 8 .u64 where[2] = {generic(numbers)+8, table};\n"
        ".visible .global .align 8 .v2 .u32 pair = {7, 8};\n"
        ".visible .global .align 4 .u32 nothing[3];\n";
    CUmodule m;
    int numbers[4], nothing[3];
    float real, decimal;
    double wide[2];
    unsigned short table[2][3];
    char letters[3];
    unsigned long long where[2];
    unsigned pair[2];
    CUdeviceptr d;
    OK(CALL(cuModuleLoadData)(&m, text));
    read_back(m, "numbers", numbers, sizeof numbers);
    const int want[4] = {1, -2, 16, 0};
    TEST_ASSERT_EQUAL_INT_ARRAY(want, numbers, 4);
    read_back(m, "real", &real, 4);
    TEST_ASSERT_EQUAL_FLOAT(1.5f, real);
    read_back(m, "wide", wide, 16);
    TEST_ASSERT_EQUAL_DOUBLE(2.0, wide[0]);
    TEST_ASSERT_EQUAL_DOUBLE(-2.5, wide[1]);
    read_back(m, "decimal", &decimal, 4);
    TEST_ASSERT_EQUAL_FLOAT(0.25f, decimal);
    read_back(m, "table", table, sizeof table);
    const unsigned short want_table[6] = {1, 2, 0, 3, 4, 5};
    TEST_ASSERT_EQUAL_UINT16_ARRAY(want_table, &table[0][0], 6);
    read_back(m, "letters", letters, 3);
    TEST_ASSERT_EQUAL_STRING("hi", letters);
    read_back(m, "where", where, 16);
    OK(CALL(cuModuleGetGlobal_v2)(&d, NULL, m, "numbers"));
    TEST_ASSERT_EQUAL_UINT64(d + 8, where[0]);
    OK(CALL(cuModuleGetGlobal_v2)(&d, NULL, m, "table"));
    TEST_ASSERT_EQUAL_UINT64(d, where[1]);
    read_back(m, "pair", pair, 8);
    TEST_ASSERT_EQUAL_UINT(7, pair[0]);
    TEST_ASSERT_EQUAL_UINT(8, pair[1]);
    read_back(m, "nothing", nothing, 12);
    TEST_ASSERT_EQUAL_INT(0, nothing[0] | nothing[1] | nothing[2]);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_FOUND, CALL(cuModuleGetGlobal_v2)(&d, NULL, m, "missing"));
    OK(CALL(cuModuleUnload)(m));
}

/* p[i] = i * k + extra */
static const char line[] = HEAD
    ".visible .global .align 4 .u32 extra = 100;\n"
    ".visible .entry line(.param .u64 p, .param .u32 n, .param .align 4 .b8 k[4]) .maxntid 256\n"
    "{\n"
    ".reg .pred %q; .reg .b32 %r<9>; .reg .b64 %d<5>;\n"
    ".shared .align 16 .b8 unused[80];\n"
    "ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [k];\n"
    "mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;\n"
    "mad.lo.u32 %r6, %r3, %r4, %r5;\n"
    "setp.ge.u32 %q, %r6, %r1;\n"
    "@%q ret;\n"
    "ld.global.u32 %r8, [extra];\n"
    "mad.lo.u32 %r7, %r6, %r2, %r8;\n"
    "mul.wide.u32 %d2, %r6, 4; add.u64 %d3, %d1, %d2;\n"
    "st.global.u32 [%d3], %r7;\n"
    "ret;\n"
    "}\n";

static void a_kernel_tells_what_it_needs(void)
{
    CUmodule m;
    CUfunction f;
    size_t offset, bytes;
    int v;
    OK(CALL(cuModuleLoadData)(&m, line));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_FOUND, CALL(cuModuleGetFunction)(&f, m, "lines"));
    OK(CALL(cuModuleGetFunction)(&f, m, "line"));
    OK(CALL(cuFuncGetAttribute)(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
    TEST_ASSERT_EQUAL_INT(256, v);
    OK(CALL(cuFuncGetAttribute)(&v, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f));
    TEST_ASSERT_EQUAL_INT(80, v);
    OK(CALL(cuFuncGetAttribute)(&v, CU_FUNC_ATTRIBUTE_PTX_VERSION, f));
    TEST_ASSERT_EQUAL_INT(80, v);
    OK(CALL(cuFuncGetParamInfo)(f, 2, &offset, &bytes));
    TEST_ASSERT_EQUAL_UINT64(12, offset);
    TEST_ASSERT_EQUAL_UINT64(4, bytes);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuFuncGetParamInfo)(f, 3, &offset, &bytes));
    OK(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&v, f, 256, 0));
    TEST_ASSERT_EQUAL_INT(8, v); /* 2048 threads */
    OK(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&v, f, 32, 100000));
    TEST_ASSERT_EQUAL_INT(2, v); /* shared memory */
    OK(CALL(cuModuleUnload)(m));
}

/* Whether kernels can be compiled here: the service has to be there. */
static bool can_run(CUfunction f, CUdeviceptr d)
{
    unsigned n = 0, k = 0;
    void *params[] = {&d, &n, &k};
    CUresult r = CALL(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
    return r == CUDA_SUCCESS && CALL(cuCtxSynchronize)() == CUDA_SUCCESS;
}

static void a_kernel_gets_its_parameters_either_way(void)
{
    CUmodule m;
    CUfunction f;
    CUdeviceptr d;
    unsigned out[300], n = 300, k = 3;
    OK(CALL(cuModuleLoadData)(&m, line));
    OK(CALL(cuModuleGetFunction)(&f, m, "line"));
    OK(CALL(cuMemAlloc_v2)(&d, sizeof out));
    if (!can_run(f, d))
        TEST_IGNORE_MESSAGE("kernels cannot be compiled here");
    void *params[] = {&d, &n, &k};
    OK(CALL(cuLaunchKernel)(f, 3, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(out, d, sizeof out));
    for (unsigned i = 0; i < n; i++)
        TEST_ASSERT_EQUAL_UINT(i * 3 + 100, out[i]);
    struct {
        CUdeviceptr d;
        unsigned n, k;
    } packed = {d, 300, 5};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    OK(CALL(cuLaunchKernel)(f, 3, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    OK(CALL(cuMemcpyDtoH_v2)(out, d, sizeof out));
    TEST_ASSERT_EQUAL_UINT(299 * 5 + 100, out[299]);
    packed.k = 0x30007; /* NCCL's buffers end in the last parameter: the rest of it is zero */
    bytes = offsetof(__typeof__(packed), k) + 2;
    OK(CALL(cuLaunchKernel)(f, 3, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    OK(CALL(cuMemcpyDtoH_v2)(out, d, sizeof out));
    TEST_ASSERT_EQUAL_UINT(299 * 7 + 100, out[299]);
    for (int i = 0; i < 2; i++) { /* one is missing, or all are */
        bytes = i == 0 ? offsetof(__typeof__(packed), k) : 0;
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                              CALL(cuLaunchKernel)(f, 3, 1, 1, 128, 1, 1, 0, NULL, NULL, extra));
    }
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          /* over .maxntid */
                          CALL(cuLaunchKernel)(f, 1, 1, 1, 512, 1, 1, 0, NULL, params, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuLaunchKernel)(f, 0, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 64 << 10, NULL, params, NULL));
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuModuleUnload)(m));
}

static void a_kernel_of_a_library_serves_as_a_function(void)
{
    CUlibrary l;
    CUkernel k, again;
    CUfunction f;
    CUdeviceptr d;
    unsigned out[4], n = 4, by = 2;
    OK(CALL(cuLibraryLoadData)(&l, line, NULL, NULL, 0, NULL, NULL, 0));
    OK(CALL(cuLibraryGetKernel)(&k, l, "line"));
    OK(CALL(cuLibraryGetKernel)(&again, l, "line"));
    TEST_ASSERT_EQUAL_PTR(k, again);
    OK(CALL(cuKernelGetFunction)(&f, k));
    OK(CALL(cuMemAlloc_v2)(&d, sizeof out));
    if (!can_run(f, d))
        TEST_IGNORE_MESSAGE("kernels cannot be compiled here");
    CUdeviceptr variable;
    unsigned value = 1000;
    OK(CALL(cuLibraryGetGlobal)(&variable, NULL, l, "extra"));
    OK(CALL(cuMemcpyHtoD_v2)(variable, &value, 4));
    void *params[] = {&d, &n, &by};
    OK(CALL(cuLaunchKernel)((CUfunction)k, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(out, d, sizeof out));
    TEST_ASSERT_EQUAL_UINT(1006, out[3]);
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuLibraryUnload)(l));
}

/* As cuda.core's tests expect of a driver; there are no kernels in it before it is linked. */
static void what_is_made_to_be_linked_is_loaded_and_has_no_kernels(void)
{
    static const char archive[64] = "!<arch>\n", lto[64] = "\xed\x43\x4e\x7f\x01\x43",
                      almost[64] = "!<arch";
    Elf64_Ehdr object = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
                                     EV_CURRENT},
                         .e_type = ET_REL,
                         .e_machine = EM_X86_64},
               program = object;
    const void *const images[] = {archive, lto, &object};
    CUlibrary l;
    CUkernel k;
    program.e_type = ET_EXEC;
    for (size_t i = 0; i < 3; i++) {
        unsigned n = 1;
        OK(CALL(cuLibraryLoadData)(&l, images[i], NULL, NULL, 0, NULL, NULL, 0));
        OK(CALL(cuLibraryGetKernelCount)(&n, l));
        TEST_ASSERT_EQUAL_UINT(0, n);
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_FOUND, CALL(cuLibraryGetKernel)(&k, l, "line"));
        OK(CALL(cuLibraryUnload)(l));
    }
    TEST_ASSERT_NOT_EQUAL_INT(CUDA_SUCCESS,
                              CALL(cuLibraryLoadData)(&l, almost, NULL, NULL, 0, NULL, NULL, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_IMAGE,
                          CALL(cuLibraryLoadData)(&l, &program, NULL, NULL, 0, NULL, NULL, 0));
}

/* CUDA, "Library Management": a library is loaded into all contexts that there are and will be, so
 * it needs none to be current. */
static void a_library_is_loaded_without_a_context(void)
{
    char path[256];
    int fd = mkstemp(scratch_path(path, sizeof path, "library-XXXXXX"));
    CUlibrary libraries[2];
    CUmodule module;
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL_INT((int)strlen(line), (int)write(fd, line, strlen(line)));
    close(fd);
    OK(CALL(cuCtxSetCurrent)(NULL));
    CUresult of_data = CALL(cuLibraryLoadData)(&libraries[0], line, NULL, NULL, 0, NULL, NULL, 0);
    CUresult of_file = CALL(cuLibraryLoadFromFile)(&libraries[1], path, NULL, NULL, 0, NULL, NULL,
                                                   0);
    CUresult of_module = CALL(cuModuleLoad)(&module, path);
    unlink(path);
    OK(of_data);
    OK(of_file);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, of_module);
    use_device();
    for (int i = 0; i < 2; i++) { /* and serves one that comes later */
        CUkernel k;
        CUfunction f;
        CUdeviceptr variable;
        OK(CALL(cuLibraryGetKernel)(&k, libraries[i], "line"));
        OK(CALL(cuKernelGetFunction)(&f, k));
        OK(CALL(cuLibraryGetGlobal)(&variable, NULL, libraries[i], "extra"));
        OK(CALL(cuLibraryUnload)(libraries[i]));
    }
    TEST_ASSERT_EQUAL_INT(
        CUDA_ERROR_FILE_NOT_FOUND,
        CALL(cuLibraryLoadFromFile)(&libraries[0], path, NULL, NULL, 0, NULL, NULL, 0));
    TEST_ASSERT_EQUAL_INT(
        CUDA_ERROR_INVALID_VALUE,
        CALL(cuLibraryLoadFromFile)(&libraries[0], NULL, NULL, NULL, 0, NULL, NULL, 0));
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static void a_graph_launches_kernels_with_parameters_of_its_own(void)
{
    CUmodule m;
    CUfunction f;
    CUdeviceptr d;
    CUgraph g;
    CUgraphNode node;
    CUgraphExec x;
    unsigned out[64], n = 64, k = 1;
    OK(CALL(cuModuleLoadData)(&m, line));
    OK(CALL(cuModuleGetFunction)(&f, m, "line"));
    OK(CALL(cuMemAlloc_v2)(&d, sizeof out));
    if (!can_run(f, d))
        TEST_IGNORE_MESSAGE("kernels cannot be compiled here");
    void *params[] = {&d, &n, &k};
    CUDA_KERNEL_NODE_PARAMS p = {.func = f,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 64,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = params};
    OK(CALL(cuGraphCreate)(&g, 0));
    OK(CALL(cuGraphAddKernelNode_v2)(&node, g, NULL, 0, &p));
    k = 77; /* the node has its own copy */
    CUDA_KERNEL_NODE_PARAMS got;
    OK(CALL(cuGraphKernelNodeGetParams_v2)(node, &got));
    TEST_ASSERT_EQUAL_UINT(1, *(unsigned *)got.kernelParams[2]);
    OK(CALL(cuGraphInstantiateWithFlags)(&x, g, 0));
    OK(CALL(cuGraphLaunch)(x, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(out, d, sizeof out));
    TEST_ASSERT_EQUAL_UINT(163, out[63]);
    k = 2;
    OK(CALL(cuGraphExecKernelNodeSetParams_v2)(x, node, &p));
    OK(CALL(cuGraphLaunch)(x, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(out, d, sizeof out));
    TEST_ASSERT_EQUAL_UINT(226, out[63]);
    OK(CALL(cuGraphExecDestroy)(x));
    OK(CALL(cuGraphDestroy)(g));
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuModuleUnload)(m));
}

static void a_limit_of_registers_is_kept(void)
{
    static char text[] = HEAD ".visible .entry k()\n{ .reg .b32 %r<400>; ret; }\n";
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *value = (void *)(uintptr_t)24, *image;
    CUlinkState s;
    CUmodule m;
    CUfunction f;
    size_t bytes;
    int before, registers;
    OK(CALL(cuModuleLoadDataEx)(&m, text, 0, NULL, NULL));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    OK(CALL(cuFuncGetAttribute)(&before, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
    TEST_ASSERT_GREATER_THAN_INT(24, before);
    OK(CALL(cuModuleUnload)(m));
    OK(CALL(cuModuleLoadDataEx)(&m, text, 1, &option, &value));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    OK(CALL(cuFuncGetAttribute)(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
    TEST_ASSERT_EQUAL_INT(24, registers);
    OK(CALL(cuModuleUnload)(m));
    OK(CALL(cuLinkCreate_v2)(1, &option, &value, &s));
    OK(CALL(cuLinkAddData_v2)(s, CU_JIT_INPUT_PTX, text, sizeof text, "text", 0, NULL, NULL));
    OK(CALL(cuLinkComplete)(s, &image, &bytes));
    OK(CALL(cuModuleLoadData)(&m, image));
    OK(CALL(cuLinkDestroy)(s));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    OK(CALL(cuFuncGetAttribute)(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
    TEST_ASSERT_EQUAL_INT(24, registers);
    OK(CALL(cuModuleUnload)(m));
}

static void what_cannot_run_here_is_refused(void)
{
    CUmodule m;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_IMAGE, CALL(cuModuleLoadData)(&m, "rubbish"));
    TEST_ASSERT_EQUAL_INT(
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        CALL(cuModuleLoadData)(&m, ".version 8.0\n.target sm_999\n.address_size 64\n"));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_PTX,
                          CALL(cuModuleLoadData)(&m, HEAD ".visible .entry f( { ret; }\n"));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_FILE_NOT_FOUND, CALL(cuModuleLoad)(&m, "/nonexistent.ptx"));
}

/* A buffer for them has a few bytes more, and with these a number of 32 bits begins anew. */
static void parameters_that_no_launch_has_room_for_are_refused(void)
{
    static const char *const params[] = {".align 8 .b8 p[4294967288]", ".b8 p[2305843009213693952]",
                                         ".b8 p[32764], .param .b8 q",
                                         ".b64 p, .param .align 2147483648 .b8 q", ".b8 p[32764]"};
    enum { N = sizeof params / sizeof params[0] };
    for (int i = 0; i < N; i++) {
        CUmodule m;
        CUfunction f;
        char text[512];
        snprintf(text, sizeof text, HEAD ".visible .entry k(.param %s) { ret; }\n", params[i]);
        OK(CALL(cuModuleLoadData)(&m, text));
        TEST_ASSERT_EQUAL_INT(i < N - 1 ? CUDA_ERROR_INVALID_PTX : CUDA_SUCCESS,
                              CALL(cuModuleGetFunction)(&f, m, "k"));
        OK(CALL(cuModuleUnload)(m));
    }
}

static void a_fault_stays_with_its_context(void)
{
    CUcontext bad;
    CUmodule m;
    CUfunction f;
    CUdeviceptr d, nowhere = 64;
    unsigned n = 32, k = 1;
    OK(CALL(cuCtxCreate_v2)(&bad, 0, 0));
    OK(CALL(cuModuleLoadData)(&m, line));
    OK(CALL(cuModuleGetFunction)(&f, m, "line"));
    OK(CALL(cuMemAlloc_v2)(&d, 4096));
    if (!can_run(f, d)) {
        OK(CALL(cuCtxDestroy_v2)(bad));
        TEST_IGNORE_MESSAGE("kernels cannot be compiled here");
    }
    void *params[] = {&nowhere, &n, &k};
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, CALL(cuMemAlloc_v2)(&d, 16));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, CALL(cuStreamSynchronize)(NULL));
    OK(CALL(cuCtxDestroy_v2)(bad));
    OK(CALL(cuMemAlloc_v2)(&d, 16)); /* the primary context knows nothing of it */
    OK(CALL(cuMemFree_v2)(d));
}

static unsigned n_messages;

static void count_message(void *data, CUlogLevel level, char *message, size_t length)
{
    (void)level;
    n_messages += data == &n_messages && strlen(message) == length &&
                  strstr(message, "PTX refused") != NULL;
}

static void why_a_module_was_refused_is_told(void)
{
    CUmodule m;
    CUlogIterator at, end;
    CUlogsCallbackHandle handle;
    char text[1024];
    size_t n = sizeof text;
    OK(CALL(cuLogsCurrent)(&at, 0));
    OK(CALL(cuLogsRegisterCallback)(count_message, &n_messages, &handle));
    for (int i = 0; i < 3; i++)
        TEST_ASSERT_NOT_EQUAL(
            CUDA_SUCCESS, CALL(cuModuleLoadData)(&m, ".version 8.0\n.target sm_80\n.entry {{{"));
    OK(CALL(cuLogsUnregisterCallback)(handle));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuLogsUnregisterCallback)(handle));
    TEST_ASSERT_EQUAL_UINT(3, n_messages);
    end = at;
    OK(CALL(cuLogsDumpToMemory)(&end, text, &n, 0));
    TEST_ASSERT_EQUAL_UINT64(strlen(text), n);
    TEST_ASSERT_EQUAL_UINT(at + 3, end);
    TEST_ASSERT_EQUAL_INT('\n', text[n - 1]);
    TEST_ASSERT_NOT_NULL(strstr(text, "PTX refused"));
    n = sizeof text;
    OK(CALL(cuLogsDumpToMemory)(&end, text, &n, 0)); /* nothing new */
    TEST_ASSERT_EQUAL_UINT64(0, n);
    n = 8;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuLogsDumpToMemory)(&at, text, &n, 0));
    TEST_ASSERT_EQUAL_UINT64(0, n);
    char path[256];
    int fd = mkstemp(scratch_path(path, sizeof path, "logs-XXXXXX"));
    TEST_ASSERT_TRUE(fd >= 0);
    OK(CALL(cuLogsDumpToFile)(NULL, path, 0));
    TEST_ASSERT_TRUE(read(fd, text, sizeof text) > 0);
    close(fd);
    unlink(path);
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(variables_begin_as_their_initialisers_say);
    RUN_TEST(a_kernel_tells_what_it_needs);
    RUN_TEST(a_kernel_gets_its_parameters_either_way);
    RUN_TEST(a_kernel_of_a_library_serves_as_a_function);
    RUN_TEST(a_library_is_loaded_without_a_context);
    RUN_TEST(what_is_made_to_be_linked_is_loaded_and_has_no_kernels);
    RUN_TEST(a_graph_launches_kernels_with_parameters_of_its_own);
    RUN_TEST(a_limit_of_registers_is_kept);
    RUN_TEST(what_cannot_run_here_is_refused);
    RUN_TEST(parameters_that_no_launch_has_room_for_are_refused);
    RUN_TEST(a_fault_stays_with_its_context);
    RUN_TEST(why_a_module_was_refused_is_told);
    return UNITY_END();
}
