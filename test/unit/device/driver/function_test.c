/* Functions and how they are launched, libraries, links with files, and the settings of streams and
 * of references to textures. */
#include "test/unit/device/driver/help.h"

static CUmodule module;
static CUfunction
    /* store(p, v): p[thread] = v, with 128 bytes of shared memory and whatever is given at
     * launch */
    store;
static CUdeviceptr word;

static const char text[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .align 4 .u32 counter = 5;\n"
    ".visible .entry store(.param .u64 p, .param .f32 v)\n{\n"
    ".reg .b32 %r<4>; .reg .f32 %f<2>; .reg .b64 %d<4>; .shared .align 4 .b8 room[128];\n"
    "ld.param.u64 %d1, [p]; ld.param.f32 %f1, [v]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; "
    "add.u64 %d3, %d1, "
    "%d2;\nst.shared.f32 [room], %f1; st.global.f32 [%d3], %f1; ret;\n}\n";

void setUp(void)
{
    use_device();
    OK(CALL(cuModuleLoadData)(&module, text));
    OK(CALL(cuModuleGetFunction)(&store, module, "store"));
    OK(CALL(cuMemAlloc_v2)(&word, 4096));
    OK(CALL(cuMemsetD8_v2)(word, 0, 4096));
}

void tearDown(void)
{
    CALL(cuMemFree_v2)(word);
    CALL(cuModuleUnload)(module);
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static float value(unsigned i)
{
    float v = 0;
    OK(CALL(cuMemcpyDtoH_v2)(&v, word + 4 * i, 4));
    return v;
}

static int attribute(CUfunction_attribute which)
{
    int v = -1;
    OK(CALL(cuFuncGetAttribute)(&v, which, store));
    return v;
}

static void a_function_tells_and_takes_attributes(void)
{
    CUfunctionLoadingState state;
    TEST_ASSERT_EQUAL_INT(1024, attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
    TEST_ASSERT_EQUAL_INT(128, attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
    TEST_ASSERT_TRUE(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS) > 0);
    TEST_ASSERT_EQUAL_INT(70, attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION) >= 70 ? 70 : 0);
    OK(CALL(cuFuncSetAttribute)(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    TEST_ASSERT_EQUAL_INT(100000, attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
    TEST_ASSERT_TRUE(CALL(cuFuncSetAttribute)(store,
                                              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                              1 << 30) != CUDA_SUCCESS);
    OK(CALL(cuFuncSetCacheConfig)(store, CU_FUNC_CACHE_PREFER_SHARED));
    OK(CALL(cuFuncSetSharedMemConfig)(store, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
    OK(CALL(cuFuncLoad)(store));
    OK(CALL(cuFuncIsLoaded)(&state, store));
    TEST_ASSERT_EQUAL_INT(CU_FUNCTION_LOADING_STATE_LOADED, state);
}

static size_t CUDA_CB shared_of_block(int threads)
{
    return (size_t)threads * 16;
}

static void occupancy_is_told(void)
{
    int n = 0, fewer = 0, grid = 0, block = 0;
    size_t bytes = 0;
    OK(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&n, store, 256, 0));
    TEST_ASSERT_TRUE(n >= 1);
    OK(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(&fewer, store, 256, 48 << 10, 0));
    TEST_ASSERT_TRUE(fewer >= 1 && fewer <= n);
    OK(CALL(cuOccupancyMaxPotentialBlockSize)(&grid, &block, store, shared_of_block, 0, 0));
    TEST_ASSERT_TRUE(grid >= 1 && block >= 32 && block <= 1024);
    OK(CALL(cuOccupancyMaxPotentialBlockSizeWithFlags)(&grid, &block, store, NULL, 1024, 64, 0));
    TEST_ASSERT_TRUE(block <= 64);
    OK(CALL(cuOccupancyAvailableDynamicSMemPerBlock)(&bytes, store, 1, 256));
    TEST_ASSERT_TRUE(bytes > 0 && bytes <= 48 << 10); /* what it may have without being asked */
    OK(CALL(cuFuncSetAttribute)(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10));
    OK(CALL(cuOccupancyAvailableDynamicSMemPerBlock)(&bytes, store, 1, 256));
    TEST_ASSERT_EQUAL_UINT64(64 << 10, bytes);
    for (size_t less = 0; less < 4096; less++) { /* with what each block takes, sums begin anew */
        OK(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&n, store, 256, SIZE_MAX - less));
        TEST_ASSERT_EQUAL_INT(0, n);
    }
}

static void launches_of_old_set_one_thing_at_a_time(void)
{
    CUstream s;
    OK(CALL(cuStreamCreate)(&s, 0));
    OK(CALL(cuFuncSetBlockShape)(store, 8, 1, 1));
    OK(CALL(cuFuncSetSharedSize)(store, 64));
    OK(CALL(cuParamSetSize)(store, 12));
    OK(CALL(cuParamSetv)(store, 0, &word, 8));
    OK(CALL(cuParamSetf)(store, 8, 2.5f));
    OK(CALL(cuLaunch)(store));
    TEST_ASSERT_EQUAL_FLOAT(2.5f, value(7));
    TEST_ASSERT_EQUAL_FLOAT(0, value(8));
    OK(CALL(cuParamSeti)(store, 8, 0x40400000)); /* 3 */
    OK(CALL(cuLaunchGrid)(store, 2, 2));
    TEST_ASSERT_EQUAL_FLOAT(3, value(0));
    OK(CALL(cuParamSetf)(store, 8, 4));
    OK(CALL(cuLaunchGridAsync)(store, 1, 1, s));
    OK(CALL(cuStreamSynchronize)(s));
    TEST_ASSERT_EQUAL_FLOAT(4, value(0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuParamSetv)(store, 1 << 20, &word, 8));
    OK(CALL(cuParamSetSize)(store, 8)); /* one parameter is missing */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuLaunch)(store));
    OK(CALL(cuStreamDestroy_v2)(s));
}

static void a_launch_takes_attributes_and_tells_events(void)
{
    float v = 9;
    void *args[] = {&word, &v};
    CUevent done, begun;
    OK(CALL(cuEventCreate)(&done, 0));
    OK(CALL(cuEventCreate)(&begun, 0));
    CUlaunchAttribute attributes[] = {
        {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {.priority = -2}},
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
         .value = {.programmaticEvent = {.event = begun}}},
        {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
         .value = {.launchCompletionEvent = {.event = done}}}};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = attributes,
                             .numAttrs = 3};
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuEventQuery)(done)); /* never recorded */
    OK(CALL(cuLaunchKernelEx)(&config, store, args, NULL));
    OK(CALL(cuEventSynchronize)(begun));
    OK(CALL(cuEventSynchronize)(done));
    TEST_ASSERT_EQUAL_FLOAT(9, value(31));
    float ms = -1;
    OK(CALL(cuEventElapsedTime_v2)(&ms, begun, done)); /* both were recorded */
    OK(CALL(cuLaunchCooperativeKernel)(store, 1, 1, 1, 16, 1, 1, 0, NULL, args));
    OK(CALL(cuCtxSynchronize)());
    OK(CALL(cuEventDestroy_v2)(done));
    OK(CALL(cuEventDestroy_v2)(begun));
}

/* --- libraries and links */

static void write_file(const char *path, const char *what)
{
    FILE *f = fopen(path, "w");
    TEST_ASSERT_NOT_NULL(f);
    fputs(what, f);
    fclose(f);
}

static void code_comes_from_files(void)
{
    static const char caller[] =
        ".version 7.0\n.target sm_75\n.address_size 64\n.extern .func (.param .b32 r) seven();\n"
        ".visible .entry ask(.param .u64 p)\n{ .reg .b32 %r<2>; .reg .b64 %d<2>; ld.param.u64 %d1, "
        "[p]; { .param .b32 "
        "x; call.uni (x), seven; ld.param.b32 %r1, [x]; } st.global.u32 [%d1], %r1; ret; }\n";
    static const char callee[] =
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        ".visible .func (.param .b32 r) seven() { st.param.b32 [r], 7; ret; }\n";
    char one[PATH_MAX], two[PATH_MAX];
    const char *tmp = getenv("TMPDIR");
    CUlibrary library;
    CUkernel kernel;
    CUmodule m;
    CUfunction f;
    CUlinkState link;
    CUdeviceptr variable;
    void *image;
    size_t n;
    unsigned v = 0;
    snprintf(one, sizeof one, "%s/one-%d.ptx", tmp != NULL ? tmp : "/tmp", (int)getpid());
    snprintf(two, sizeof two, "%s/two-%d.ptx", tmp != NULL ? tmp : "/tmp", (int)getpid());
    write_file(one, text);
    OK(CALL(cuLibraryLoadFromFile)(&library, one, NULL, NULL, 0, NULL, NULL, 0));
    OK(CALL(cuLibraryGetKernel)(&kernel, library, "store"));
    OK(CALL(cuLibraryGetModule)(&m, library));
    OK(CALL(cuModuleGetGlobal_v2)(&variable, &n, m, "counter"));
    OK(CALL(cuMemcpyDtoH_v2)(&v, variable, 4));
    TEST_ASSERT_EQUAL_UINT(5, v);
    TEST_ASSERT_TRUE(CALL(cuLibraryGetUnifiedFunction)(&image, library, "store") != CUDA_SUCCESS);
    TEST_ASSERT_TRUE(CALL(cuLibraryGetManaged)(&variable, &n, library, "counter") != CUDA_SUCCESS);
    OK(CALL(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000, kernel,
                                  0));
    OK(CALL(cuKernelSetCacheConfig)(kernel, CU_FUNC_CACHE_PREFER_L1, 0));
    OK(CALL(cuLibraryUnload)(library));
    write_file(one, caller);
    write_file(two, callee);
    OK(CALL(cuLinkCreate_v2)(0, NULL, NULL, &link));
    OK(CALL(cuLinkAddFile_v2)(link, CU_JIT_INPUT_PTX, one, 0, NULL, NULL));
    OK(CALL(cuLinkAddFile_v2)(link, CU_JIT_INPUT_PTX, two, 0, NULL, NULL));
    OK(CALL(cuLinkComplete)(link, &image, &n));
    OK(CALL(cuModuleLoadDataEx)(&m, image, 0, NULL, NULL));
    OK(CALL(cuLinkDestroy)(link));
    OK(CALL(cuModuleGetFunction)(&f, m, "ask"));
    void *args[] = {&word};
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(&v, word, 4));
    TEST_ASSERT_EQUAL_UINT(7, v);
    OK(CALL(cuModuleUnload)(m));
    unlink(one);
    unlink(two);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_FILE_NOT_FOUND, CALL(cuModuleLoad)(&m, one));
}

/* --- streams */

static void CUDA_CB note(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    *(CUresult *)data = status;
}

static void a_stream_keeps_its_settings(void)
{
    CUstream s, t;
    CUcontext ctx, owner;
    CUdevice device = -1;
    unsigned flags = 0;
    int priority = 0;
    unsigned long long a = 0, b = 0;
    CUresult status = CUDA_ERROR_UNKNOWN;
    CUstreamAttrValue put = {.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC}, got = {0};
    OK(CALL(cuCtxGetCurrent)(&ctx));
    OK(CALL(cuStreamCreateWithPriority)(&s, CU_STREAM_NON_BLOCKING, -3));
    OK(CALL(cuStreamCreate)(&t, 0));
    OK(CALL(cuStreamGetPriority)(s, &priority));
    TEST_ASSERT_EQUAL_INT(-3, priority);
    OK(CALL(cuStreamGetFlags)(s, &flags));
    TEST_ASSERT_EQUAL_UINT(CU_STREAM_NON_BLOCKING, flags);
    OK(CALL(cuStreamGetCtx)(s, &owner));
    TEST_ASSERT_EQUAL_PTR(ctx, owner);
    OK(CALL(cuStreamGetDevice)(s, &device));
    TEST_ASSERT_EQUAL_INT(0, device);
    OK(CALL(cuStreamGetId)(s, &a));
    OK(CALL(cuStreamGetId)(t, &b));
    TEST_ASSERT_TRUE(a != b);
    OK(CALL(cuStreamSetAttribute)(s, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &put));
    OK(CALL(cuStreamCopyAttributes)(t, s));
    OK(CALL(cuStreamGetAttribute)(t, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
    TEST_ASSERT_EQUAL_INT(CU_SYNC_POLICY_BLOCKING_SYNC, got.syncPolicy);
    OK(CALL(cuStreamAddCallback)(s, note, &status, 0));
    OK(CALL(cuStreamSynchronize)(s));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, status);
    CUdeviceptr managed;
    OK(CALL(cuMemAllocManaged)(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(CALL(cuStreamAttachMemAsync)(s, managed, 0, CU_MEM_ATTACH_SINGLE));
    OK(CALL(cuStreamSynchronize)(s));
    OK(CALL(cuMemFree_v2)(managed));
    OK(CALL(cuStreamDestroy_v2)(s));
    OK(CALL(cuStreamDestroy_v2)(t));
}

/* --- references to textures */

static void a_reference_to_a_texture_keeps_its_settings(void)
{
    CUtexref t;
    CUarray_format format;
    CUaddress_mode mode;
    CUfilter_mode filter;
    CUdeviceptr at;
    CUarray array = NULL, found;
    int channels = 0, anisotropy = 0;
    unsigned flags = 0;
    size_t offset = 1;
    float border[4] = {1, 2, 3, 4}, told[4];
    OK(CALL(cuTexRefCreate)(&t));
    OK(CALL(cuTexRefSetFormat)(t, CU_AD_FORMAT_FLOAT, 1));
    OK(CALL(cuTexRefGetFormat)(&format, &channels, t));
    TEST_ASSERT_EQUAL_INT(CU_AD_FORMAT_FLOAT, format);
    OK(CALL(cuTexRefSetAddressMode)(t, 0, CU_TR_ADDRESS_MODE_MIRROR));
    OK(CALL(cuTexRefGetAddressMode)(&mode, t, 0));
    TEST_ASSERT_EQUAL_INT(CU_TR_ADDRESS_MODE_MIRROR, mode);
    OK(CALL(cuTexRefSetFilterMode)(t, CU_TR_FILTER_MODE_LINEAR));
    OK(CALL(cuTexRefGetFilterMode)(&filter, t));
    TEST_ASSERT_EQUAL_INT(CU_TR_FILTER_MODE_LINEAR, filter);
    OK(CALL(cuTexRefSetFlags)(t, CU_TRSF_NORMALIZED_COORDINATES));
    OK(CALL(cuTexRefGetFlags)(&flags, t));
    TEST_ASSERT_EQUAL_UINT(CU_TRSF_NORMALIZED_COORDINATES, flags);
    OK(CALL(cuTexRefSetMaxAnisotropy)(t, 4));
    OK(CALL(cuTexRefGetMaxAnisotropy)(&anisotropy, t));
    TEST_ASSERT_EQUAL_INT(4, anisotropy);
    OK(CALL(cuTexRefSetBorderColor)(t, border));
    OK(CALL(cuTexRefGetBorderColor)(told, t));
    TEST_ASSERT_EQUAL_FLOAT(3, told[2]);
    OK(CALL(cuTexRefSetAddress_v2)(&offset, t, word, 1024));
    TEST_ASSERT_EQUAL_UINT64(0, offset);
    OK(CALL(cuTexRefGetAddress_v2)(&at, t));
    TEST_ASSERT_EQUAL_UINT64(word, at);
    CUDA_ARRAY_DESCRIPTOR desc = {
        .Width = 16, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    OK(CALL(cuArrayCreate_v2)(&array, &desc));
    OK(CALL(cuTexRefSetArray)(t, array, CU_TRSA_OVERRIDE_FORMAT));
    OK(CALL(cuTexRefGetArray)(&found, t));
    TEST_ASSERT_EQUAL_PTR(array, found);
    OK(CALL(cuTexRefDestroy)(t));
    OK(CALL(cuArrayDestroy)(array));
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(a_function_tells_and_takes_attributes);
    RUN_TEST(occupancy_is_told);
    RUN_TEST(launches_of_old_set_one_thing_at_a_time);
    RUN_TEST(a_launch_takes_attributes_and_tells_events);
    RUN_TEST(code_comes_from_files);
    RUN_TEST(a_stream_keeps_its_settings);
    RUN_TEST(a_reference_to_a_texture_keeps_its_settings);
    return UNITY_END();
}
