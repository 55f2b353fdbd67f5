/* What a program sets for kernels, launches and streams, against what reaches the driver when the
 * kernel is cut (test/standin/witness.c): on several profiles of the software device, with slices
 * and with persistent workers. */
#include "job.h"

enum { BLOCKS = 64, WINDOW_BYTES = 4096 };
static CUfunction kernel;
static CUstream stream;
static CUdeviceptr memory;

void setUp(void)
{
    OK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
}

void tearDown(void)
{
    OK(CALL(cuStreamDestroy_v2)(stream));
}

static const struct witness_call *calls_so_far(uint32_t *n)
{
    OK(CALL(cuCtxSynchronize)());
    return calls(n);
}

static void forget(void)
{
    OK(CALL(cuCtxSynchronize)());
    forget_calls();
}

static bool is_form(const struct witness_call *c)
{
    return strstr(c->name, "__tally_") != NULL;
}

static CUlaunchConfig shape(CUlaunchAttribute *attributes, unsigned n)
{
    return (CUlaunchConfig){.gridDimX = BLOCKS,
                            .gridDimY = 1,
                            .gridDimZ = 1,
                            .blockDimX = 32,
                            .blockDimY = 1,
                            .blockDimZ = 1,
                            .hStream = stream,
                            .attrs = attributes,
                            .numAttrs = n};
}

static void launch_of(CUfunction f, CUlaunchAttribute *attributes, unsigned n)
{
    CUlaunchConfig config = shape(attributes, n);
    void *params[] = {&memory};
    OK(CALL(cuLaunchKernelEx)(&config, f, params, NULL));
}

static void launch(CUlaunchAttribute *attributes, unsigned n)
{
    launch_of(kernel, attributes, n);
}

/* The value that was last set for the kernel's forms; -99 if none was. */
static int set_for_forms(enum witness_kind kind)
{
    uint32_t n;
    int value = -99;
    const struct witness_call *c = calls_so_far(&n);
    for (uint32_t i = 0; i < n; i++)
        if (c[i].kind == kind && is_form(&c[i]) && c[i].result == CUDA_SUCCESS)
            value = (int)c[i].value;
    return value;
}

/* Launches of forms, and of the original with all its blocks. */
static uint32_t pieces(uint32_t *n_whole)
{
    uint32_t n, n_forms = 0;
    const struct witness_call *c = calls_so_far(&n);
    *n_whole = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_forms += c[i].kind == WITNESS_LAUNCH && is_form(&c[i]);
        *n_whole += c[i].kind == WITNESS_LAUNCH && !is_form(&c[i]) && c[i].grid[0] == BLOCKS;
    }
    return n_forms;
}

static const CUlaunchAttribute *find_attribute(const struct witness_call *c, CUlaunchAttributeID id)
{
    for (uint32_t i = 0; i < c->n_attributes; i++)
        if (c->attributes[i].id == id)
            return &c->attributes[i];
    return NULL;
}

static CUlaunchAttribute window(void)
{
    CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW};
    a.value.accessPolicyWindow = (CUaccessPolicyWindow){
        (void *)(uintptr_t)memory, WINDOW_BYTES, 0.5f, CU_ACCESS_PROPERTY_PERSISTING, /* NOLINT */
        CU_ACCESS_PROPERTY_STREAMING};
    return a;
}

/* --- tests --- */

static void settings_of_a_kernel_follow_to_its_forms(void)
{
    OK(CALL(cuFuncSetAttribute)(kernel, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
    OK(CALL(cuFuncSetCacheConfig)(kernel, CU_FUNC_CACHE_PREFER_SHARED));
    launch(NULL, 0);
    TEST_ASSERT_EQUAL_INT(50, set_for_forms(WITNESS_CARVEOUT));
    TEST_ASSERT_EQUAL_INT(CU_FUNC_CACHE_PREFER_SHARED, set_for_forms(WITNESS_CACHE_CONFIG));
    forget();
    launch(NULL, 0);
    TEST_ASSERT_EQUAL_INT(-99, set_for_forms(WITNESS_CARVEOUT)); /* it has it */
    OK(CALL(cuFuncSetAttribute)(kernel, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100));
    OK(CALL(cuFuncSetCacheConfig)(kernel, CU_FUNC_CACHE_PREFER_L1));
    launch(NULL, 0);
    TEST_ASSERT_EQUAL_INT(100, set_for_forms(WITNESS_CARVEOUT));
    TEST_ASSERT_EQUAL_INT(CU_FUNC_CACHE_PREFER_L1, set_for_forms(WITNESS_CACHE_CONFIG));
}

static void settings_of_a_librarys_kernel_do_as_well(void)
{
    static const char text[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry other(.param .u64 p)\n{\n"
        ".reg .b32 %r<2>;\n.reg .b64 %d<2>;\nld.param.u64 %d1, [p];\n"
        "atom.global.add.u32 %r1, [%d1], 1;\nret;\n}\n";
    CUlibrary library;
    CUkernel k;
    OK(CALL(cuLibraryLoadData)(&library, text, NULL, NULL, 0, NULL, NULL, 0));
    OK(CALL(cuLibraryGetKernel)(&k, library, "other"));
    OK(CALL(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 25, k, 0));
    OK(CALL(cuKernelSetCacheConfig)(k, CU_FUNC_CACHE_PREFER_EQUAL, 0));
    forget();
    launch_of((CUfunction)k, NULL, 0);
    TEST_ASSERT_EQUAL_INT(25, set_for_forms(WITNESS_CARVEOUT));
    TEST_ASSERT_EQUAL_INT(CU_FUNC_CACHE_PREFER_EQUAL, set_for_forms(WITNESS_CACHE_CONFIG));
    OK(CALL(cuLibraryUnload)(library));
}

static void more_dynamic_shared_memory_is_there_for_forms(void)
{
    enum { BYTES = 60 << 10 };
    uint32_t n, n_forms = 0;
    OK(CALL(cuFuncSetAttribute)(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, BYTES));
    forget();
    CUlaunchConfig config = shape(NULL, 0);
    void *params[] = {&memory};
    config.sharedMemBytes = BYTES;
    OK(CALL(cuLaunchKernelEx)(&config, kernel, params, NULL));
    TEST_ASSERT_GREATER_OR_EQUAL(BYTES, set_for_forms(WITNESS_DYNAMIC));
    const struct witness_call *c = calls_so_far(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].kind != WITNESS_LAUNCH || !is_form(&c[i]))
            continue;
        n_forms++;
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, c[i].result);
        TEST_ASSERT_GREATER_OR_EQUAL_UINT32(BYTES, c[i].shared_bytes);
    }
    TEST_ASSERT_GREATER_THAN_UINT32(0, n_forms);
}

/* As cuDNN does: the limit is set for each launch of a kernel whose blocks wait for each other,
 * which is not cut, and launches wait behind pieces meanwhile. */
static void less_dynamic_shared_memory_is_for_later_launches(void)
{
    enum { MUCH = 60 << 10, LITTLE = 8 << 10, LAUNCHES = 64 };
    static const char text[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .b8 s[];\n.visible .entry "
        "waits(.param .u64 p)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .b64 %d<2>;\n"
        "ld.param.u64 %d1, [p];\nmov.u32 %r3, %nctaid.x;\natom.global.add.u32 %r1, [%d1], 1;\n"
        "AGAIN:\nld.volatile.global.u32 %r2, [%d1];\nsetp.lt.u32 %p1, %r2, %r3;\n"
        "@%p1 bra AGAIN;\nret;\n}\n";
    CUmodule module;
    CUfunction waits;
    uint32_t before, after;
    void *params[] = {&memory};
    OK(CALL(cuModuleLoadData)(&module, text));
    OK(CALL(cuModuleGetFunction)(&waits, module, "waits"));
    OK(CALL(cuMemcpyDtoH_v2)(&before, memory, sizeof before));
    for (int i = 0; i < LAUNCHES; i++) {
        int bytes = i % 2 == 0 ? MUCH : LITTLE;
        launch(NULL, 0);
        OK(CALL(cuFuncSetAttribute)(waits, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes));
        OK(CALL(cuLaunchKernel)(waits, 2, 1, 1, 32, 1, 1, (unsigned)bytes, stream, params, NULL));
    }
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemcpyDtoH_v2)(&after, memory, sizeof after));
    TEST_ASSERT_EQUAL_UINT32(32 * (BLOCKS + 2) * LAUNCHES, after - before);
    OK(CALL(cuModuleUnload)(module));
}

static void attributes_of_a_launch_go_with_each_piece(void)
{
    uint32_t n, n_forms = 0;
    CUlaunchAttribute list[] = {window(),
                                {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN},
                                {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY}};
    list[1].value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    list[2].value.priority = -5;
    forget();
    launch(list, 3);
    const struct witness_call *c = calls_so_far(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].kind != WITNESS_LAUNCH || !is_form(&c[i]) || c[i].stream == NULL)
            continue;
        const CUlaunchAttribute *w = find_attribute(&c[i],
                                                    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW),
                                *d = find_attribute(&c[i], CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN),
                                *p = find_attribute(&c[i], CU_LAUNCH_ATTRIBUTE_PRIORITY);
        TEST_ASSERT_NOT_NULL(w);
        TEST_ASSERT_NOT_NULL(d);
        TEST_ASSERT_NOT_NULL(p);
        TEST_ASSERT_EQUAL_UINT64(WINDOW_BYTES, w->value.accessPolicyWindow.num_bytes);
        TEST_ASSERT_EQUAL_INT(CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE, d->value.memSyncDomain);
        TEST_ASSERT_EQUAL_INT(0, p->value.priority); /* as lower jobs have it */
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, c[i].result);
        n_forms++;
    }
    TEST_ASSERT_GREATER_THAN_UINT32(0, n_forms);
}

/* Slices stand in two streams; both are in the domain of the job's. */
static void attributes_of_a_stream_hold_for_streams_beside_it(void)
{
    CUstreamAttrValue v = {.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE};
    uint32_t n, n_forms = 0, n_beside = 0;
    OK(CALL(cuStreamSetAttribute)(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &v));
    forget();
    for (int i = 0; i < 4; i++)
        launch(NULL, 0);
    const struct witness_call *c = calls_so_far(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].kind != WITNESS_LAUNCH || !is_form(&c[i]))
            continue;
        TEST_ASSERT_EQUAL_INT(CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE, c[i].domain);
        n_forms++;
        n_beside += c[i].stream != stream;
    }
    TEST_ASSERT_GREATER_THAN_UINT32(0, n_forms);
    printf("%u launches of forms, %u of them beside the stream\n", n_forms, n_beside);
}

static void what_forbids_pieces_runs_whole(void)
{
    uint32_t n_whole;
    CUlaunchAttribute overlaps = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    overlaps.value.programmaticStreamSerializationAllowed = 1;
    forget();
    launch(&overlaps, 1);
    TEST_ASSERT_EQUAL_UINT32(0, pieces(&n_whole));
    TEST_ASSERT_EQUAL_UINT32(1, n_whole);
    overlaps.value.programmaticStreamSerializationAllowed = 0;
    forget();
    launch(&overlaps, 1);
    TEST_ASSERT_GREATER_THAN_UINT32(0, pieces(&n_whole));
    TEST_ASSERT_EQUAL_UINT32(0, n_whole);
    CUlaunchAttribute strange = {.id = (CUlaunchAttributeID)63};
    CUlaunchConfig config = shape(&strange, 1);
    void *params[] = {&memory};
    forget();
    CALL(cuLaunchKernelEx)(&config, kernel, params, NULL); /* what the driver says to it */
    TEST_ASSERT_EQUAL_UINT32(0, pieces(&n_whole));
    TEST_ASSERT_EQUAL_UINT32(1, n_whole);
}

static void attributes_of_a_graphs_kernel_go_with_its_pieces(void)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    void *params[] = {&memory};
    uint32_t n, n_forms = 0;
    CUlaunchAttribute w = window();
    CUDA_KERNEL_NODE_PARAMS_v2 p = {.func = kernel,
                                    .gridDimX = BLOCKS,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 32,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params};
    OK(CALL(cuGraphCreate)(&graph, 0));
    OK(CALL(cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &p));
    OK(CALL(cuGraphKernelNodeSetAttribute)(node, w.id, &w.value));
    OK(CALL(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    forget();
    OK(CALL(cuGraphLaunch)(exec, stream));
    const struct witness_call *c = calls_so_far(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].kind != WITNESS_LAUNCH || !is_form(&c[i]))
            continue;
        const CUlaunchAttribute *found = find_attribute(&c[i], w.id);
        TEST_ASSERT_NOT_NULL(found);
        TEST_ASSERT_EQUAL_UINT64(WINDOW_BYTES, found->value.accessPolicyWindow.num_bytes);
        n_forms++;
    }
    TEST_ASSERT_GREATER_THAN_UINT32(0, n_forms);
    OK(CALL(cuGraphExecDestroy)(exec));
    OK(CALL(cuGraphDestroy)(graph));
}

/* All blocks of all launches ran, once. */
static void nothing_was_left_out(void)
{
    uint32_t before = 0, after = 0;
    OK(CALL(cuMemcpyDtoH_v2)(&before, memory, sizeof before));
    for (int i = 0; i < 5; i++)
        launch(NULL, 0);
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemcpyDtoH_v2)(&after, memory, sizeof after));
    TEST_ASSERT_EQUAL_UINT32(5 * BLOCKS * 32, after - before);
}

static void prepare(void)
{
    static const char text[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .b8 s[];\n.visible .entry "
        "k(.param .u64 p)\n{\n.reg .b32 %r<2>;\n.reg .b64 %d<2>;\nld.param.u64 %d1, [p];\n"
        "atom.global.add.u32 %r1, [%d1], 1;\nret;\n}\n";
    CUmodule module;
    uint32_t zero = 0;
    OK(CALL(cuModuleLoadData)(&module, text));
    OK(CALL(cuModuleGetFunction)(&kernel, module, "k"));
    OK(CALL(cuMemAlloc_v2)(&memory, WINDOW_BYTES));
    OK(CALL(cuMemcpyHtoD_v2)(memory, &zero, sizeof zero));
}

static int run(const char *profile, const char *rung)
{
    UNITY_BEGIN();
    begin_job(profile, rung);
    prepare();
    RUN_TEST(settings_of_a_kernel_follow_to_its_forms);
    RUN_TEST(settings_of_a_librarys_kernel_do_as_well);
    RUN_TEST(more_dynamic_shared_memory_is_there_for_forms);
    RUN_TEST(less_dynamic_shared_memory_is_for_later_launches);
    RUN_TEST(attributes_of_a_launch_go_with_each_piece);
    RUN_TEST(attributes_of_a_stream_hold_for_streams_beside_it);
    RUN_TEST(what_forbids_pieces_runs_whole);
    RUN_TEST(attributes_of_a_graphs_kernel_go_with_its_pieces);
    RUN_TEST(nothing_was_left_out);
    int failed = UNITY_END();
    end_job();
    return failed;
}

int main(void)
{
    return each_job(run, (const char *const[]){"slice", "persistent", NULL});
}
