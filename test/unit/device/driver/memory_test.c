/* Memory of the software driver: allocations, what pointers are, capacity, copies, pools, virtual
 * memory, contexts. */
#include "test/unit/device/driver/help.h"

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static void bytes_come_back_as_they_went(void)
{
    CUdeviceptr d;
    unsigned char in[1000], out[1000];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7);
    OK(CALL(cuMemAlloc_v2)(&d, sizeof in));
    OK(CALL(cuMemcpyHtoD_v2)(d, in, sizeof in));
    OK(CALL(cuMemcpyDtoH_v2)(out, d, sizeof out));
    TEST_ASSERT_EQUAL_MEMORY(in, out, sizeof in);
    OK(CALL(cuMemFree_v2)(d));
}

static void a_pointer_tells_where_it_belongs(void)
{
    CUdeviceptr d, base, start;
    size_t bytes, range;
    unsigned type;
    CUcontext ctx, current;
    void *host;
    OK(CALL(cuMemAlloc_v2)(&d, 5000));
    OK(CALL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d + 4999));
    TEST_ASSERT_EQUAL_UINT(CU_MEMORYTYPE_DEVICE, type);
    TEST_ASSERT_EQUAL_INT(
        CUDA_ERROR_INVALID_VALUE,
        CALL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d + 5000));
    OK(CALL(cuMemGetAddressRange_v2)(&base, &bytes, d + 123));
    TEST_ASSERT_EQUAL_UINT64(d, base);
    TEST_ASSERT_EQUAL_UINT64(5000, bytes);
    OK(CALL(cuPointerGetAttribute)(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, d));
    OK(CALL(cuCtxGetCurrent)(&current));
    TEST_ASSERT_EQUAL_PTR(current, ctx);
    OK(CALL(cuMemHostAlloc)(&host, 100, 0));
    OK(CALL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)host));
    TEST_ASSERT_EQUAL_UINT(CU_MEMORYTYPE_HOST, type);
    int managed = -1, ordinal = -1;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&managed, &ordinal, &start, &range};
    OK(CALL(cuPointerGetAttributes)(4, names, values, d + 1));
    TEST_ASSERT_EQUAL_INT(0, managed);
    TEST_ASSERT_EQUAL_INT(0, ordinal);
    TEST_ASSERT_EQUAL_UINT64(d, start);
    TEST_ASSERT_EQUAL_UINT64(5000, range);
    int on_stack;
    OK(CALL(cuPointerGetAttributes)(2, names, values, (CUdeviceptr)&on_stack));
    TEST_ASSERT_EQUAL_INT(-2, ordinal); /* nobody's */
    OK(CALL(cuMemFree_v2)(d));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFree_v2)(d));
    OK(CALL(cuMemFreeHost)(host));
}

static void the_device_has_so_much_and_no_more(void)
{
    size_t left, total, after;
    CUdeviceptr d;
    OK(CALL(cuMemGetInfo_v2)(&left, &total));
    TEST_ASSERT_EQUAL_UINT64(512u << 20, total);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuMemAlloc_v2)(&d, total + 1));
    OK(CALL(cuMemAlloc_v2)(&d, 100u << 20));
    OK(CALL(cuMemGetInfo_v2)(&after, NULL));
    TEST_ASSERT_EQUAL_UINT64(left - (100u << 20), after);
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuMemGetInfo_v2)(&after, NULL));
    TEST_ASSERT_EQUAL_UINT64(left, after);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemAlloc_v2)(&d, 0));
}

static void a_box_is_copied_out_of_rows_with_pitch(void)
{
    CUdeviceptr d;
    size_t pitch;
    unsigned char in[4][10], out[2][3];
    for (unsigned y = 0; y < 4; y++)
        for (unsigned x = 0; x < 10; x++)
            in[y][x] = (unsigned char)(y * 16 + x);
    OK(CALL(cuMemAllocPitch_v2)(&d, &pitch, 10, 4, 4));
    TEST_ASSERT_TRUE(pitch >= 10);
    CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = 10,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = d,
                        .dstPitch = pitch,
                        .WidthInBytes = 10,
                        .Height = 4};
    OK(CALL(cuMemcpy2D_v2)(&up));
    CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = d,
                          .srcPitch = pitch,
                          .srcXInBytes = 4,
                          .srcY = 1,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 3,
                          .WidthInBytes = 3,
                          .Height = 2};
    OK(CALL(cuMemcpy2D_v2)(&down));
    const unsigned char want[2][3] = {{0x14, 0x15, 0x16}, {0x24, 0x25, 0x26}};
    TEST_ASSERT_EQUAL_MEMORY(want, out, sizeof want);
    OK(CALL(cuMemFree_v2)(d));
}

static void an_array_keeps_a_volume(void)
{
    CUarray a;
    CUDA_ARRAY3D_DESCRIPTOR desc = {.Width = 5,
                                    .Height = 3,
                                    .Depth = 2,
                                    .Format = CU_AD_FORMAT_UNSIGNED_INT16,
                                    .NumChannels = 1};
    unsigned short in[2][3][5], out[2][3][5];
    for (unsigned i = 0; i < 30; i++)
        (&in[0][0][0])[i] = (unsigned short)(1000 + i);
    memset(out, 0, sizeof out);
    OK(CALL(cuArray3DCreate_v2)(&a, &desc));
    CUDA_MEMCPY3D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = 10,
                        .srcHeight = 3,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = a,
                        .WidthInBytes = 10,
                        .Height = 3,
                        .Depth = 2};
    OK(CALL(cuMemcpy3D_v2)(&up));
    CUDA_MEMCPY3D down = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = a,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 10,
                          .dstHeight = 3,
                          .WidthInBytes = 10,
                          .Height = 3,
                          .Depth = 2};
    OK(CALL(cuMemcpy3D_v2)(&down));
    TEST_ASSERT_EQUAL_MEMORY(in, out, sizeof in);
    up.dstXInBytes = 2; /* sticks out on the right */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemcpy3D_v2)(&up));
    OK(CALL(cuArrayDestroy)(a));
}

/* Boxes between memory and an array, and from memory to memory with other rows, in one call. */
static void a_batch_copies_boxes(void)
{
    CUarray a;
    CUDA_ARRAY3D_DESCRIPTOR desc = {
        .Width = 8, .Height = 4, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CUdeviceptr from, to;
    unsigned in[32], out[32];
    for (unsigned i = 0; i < 32; i++)
        in[i] = 100 + i;
    OK(CALL(cuArray3DCreate_v2)(&a, &desc));
    OK(CALL(cuMemAlloc_v2)(&from, sizeof in));
    OK(CALL(cuMemAlloc_v2)(&to, sizeof out));
    OK(CALL(cuMemcpyHtoD_v2)(from, in, sizeof in));
    OK(CALL(cuMemsetD32_v2)(to, 0, 32));
    CUDA_MEMCPY3D_BATCH_OP ops[3] = {
        {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = from}},
         .dst = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY, .op.array = {.array = a}},
         .extent = {8, 4, 1},
         .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
        {.src = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY,
                 .op.array = {.array = a, .offset = {2, 1, 0}}},
         .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = to, .rowLength = 4}},
         .extent = {3, 2, 1},
         .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
        {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                 .op.ptr = {.ptr = from, .rowLength = 32, .layerHeight = 2}},
         .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                 .op.ptr = {.ptr = to + 64, .rowLength = 8, .layerHeight = 1}},
         .extent = {8, 1, 2},
         .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
    };
    OK(CALL(cuMemcpy3DBatchAsync_v2)(3, ops, 0, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(out, to, sizeof out));
    static const unsigned want[20] = {110, 111, 112, 0, 118, 119, 120, 0,   0,   0,
                                      0,   0,   0,   0, 0,   0,   100, 101, 116, 117};
    TEST_ASSERT_EQUAL_UINT_ARRAY(want, out, 20);
    ops[1].src.op.array.array = NULL;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_HANDLE,
                          CALL(cuMemcpy3DBatchAsync_v2)(2, ops, 0, NULL));
    OK(CALL(cuArrayDestroy)(a));
    OK(CALL(cuMemFree_v2)(from));
    OK(CALL(cuMemFree_v2)(to));
}

static void fills_write_their_element_and_nothing_else(void)
{
    CUdeviceptr d;
    unsigned out[8];
    OK(CALL(cuMemAlloc_v2)(&d, sizeof out));
    OK(CALL(cuMemsetD8_v2)(d, 0xee, sizeof out));
    OK(CALL(cuMemsetD32_v2)(d + 4, 0x12345678, 2));
    OK(CALL(cuMemsetD2D16_v2)(d + 16, 8, 0xabcd, 1, 2));
    OK(CALL(cuMemcpyDtoH_v2)(out, d, sizeof out));
    const unsigned want[8] = {0xeeeeeeee, 0x12345678, 0x12345678, 0xeeeeeeee,
                              0xeeeeabcd, 0xeeeeeeee, 0xeeeeabcd, 0xeeeeeeee};
    TEST_ASSERT_EQUAL_HEX32_ARRAY(want, out, 8);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemsetD32_v2)(d + 1, 0, 1));
    OK(CALL(cuMemFree_v2)(d));
}

static void registered_memory_is_known_until_it_is_not(void)
{
    static char memory[8192];
    CUdeviceptr d;
    OK(CALL(cuMemHostRegister_v2)(memory, sizeof memory, 0));
    OK(CALL(cuMemHostGetDevicePointer_v2)(&d, memory + 100, 0));
    TEST_ASSERT_EQUAL_UINT64((CUdeviceptr)(memory + 100), d);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                          CALL(cuMemHostRegister_v2)(memory + 4096, 10, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemHostUnregister)(memory + 4096));
    OK(CALL(cuMemHostUnregister)(memory));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, CALL(cuMemHostUnregister)(memory));
}

static void a_pool_gives_the_same_block_again(void)
{
    CUdeviceptr a, b;
    CUmemoryPool pool;
    uint64_t used, high;
    OK(CALL(cuMemAllocAsync)(&a, 100000, NULL));
    OK(CALL(cuMemFreeAsync)(a, NULL));
    OK(CALL(cuStreamSynchronize)(NULL));
    OK(CALL(cuMemAllocAsync)(&b, 100000, NULL));
    TEST_ASSERT_EQUAL_UINT64(a, b);
    OK(CALL(cuDeviceGetDefaultMemPool)(&pool, 0));
    OK(CALL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    TEST_ASSERT_TRUE(used >= 100000);
    OK(CALL(cuMemFreeAsync)(b, NULL));
    OK(CALL(cuStreamSynchronize)(NULL));
    OK(CALL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    OK(CALL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    TEST_ASSERT_EQUAL_UINT64(0, used);
    TEST_ASSERT_TRUE(high >= 100000);
    OK(CALL(cuMemPoolTrimTo)(pool, 0));
    OK(CALL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &used));
    TEST_ASSERT_EQUAL_UINT64(0, used);
}

static void one_memory_can_be_mapped_twice(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t n;
    CUdeviceptr p;
    CUmemGenericAllocationHandle h;
    unsigned out = 0;
    OK(CALL(cuMemGetAllocationGranularity)(&n, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(CALL(cuMemAddressReserve)(&p, 2 * n, 0, 0, 0));
    OK(CALL(cuMemCreate)(&h, n, &prop, 0));
    OK(CALL(cuMemMap)(p, n, 0, h, 0));
    OK(CALL(cuMemMap)(p + n, n, 0, h, 0));
    OK(CALL(cuMemRelease)(h));
    OK(CALL(cuMemSetAccess)(p, 2 * n, &access, 1));
    OK(CALL(cuMemsetD32_v2)(p + 16, 77, 1));
    OK(CALL(cuMemcpyDtoH_v2)(&out, p + n + 16, 4));
    TEST_ASSERT_EQUAL_UINT(77, out);
    OK(CALL(cuMemUnmap)(p, 2 * n));
    OK(CALL(cuMemAddressFree)(p, 2 * n));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemRelease)(h));
}

static void contexts_stand_on_a_stack_and_die_with_their_memory(void)
{
    CUcontext first, second, top;
    CUdeviceptr d;
    size_t left, after;
    OK(CALL(cuCtxGetCurrent)(&first));
    OK(CALL(cuMemGetInfo_v2)(&left, NULL));
    OK(CALL(cuCtxCreate_v2)(&second, 0, 0));
    OK(CALL(cuCtxGetCurrent)(&top));
    TEST_ASSERT_EQUAL_PTR(second, top);
    OK(CALL(cuMemAlloc_v2)(&d, 1 << 20));
    OK(CALL(cuCtxPopCurrent_v2)(&top));
    TEST_ASSERT_EQUAL_PTR(second, top);
    OK(CALL(cuCtxGetCurrent)(&top));
    TEST_ASSERT_EQUAL_PTR(first, top);
    OK(CALL(cuCtxDestroy_v2)(second));
    OK(CALL(cuMemGetInfo_v2)(&after, NULL));
    TEST_ASSERT_EQUAL_UINT64(left, after);
    OK(CALL(cuCtxPushCurrent_v2)(second));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_CONTEXT_IS_DESTROYED, CALL(cuMemAlloc_v2)(&d, 16));
    OK(CALL(cuCtxPopCurrent_v2)(NULL));
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(bytes_come_back_as_they_went);
    RUN_TEST(a_pointer_tells_where_it_belongs);
    RUN_TEST(the_device_has_so_much_and_no_more);
    RUN_TEST(a_box_is_copied_out_of_rows_with_pitch);
    RUN_TEST(an_array_keeps_a_volume);
    RUN_TEST(a_batch_copies_boxes);
    RUN_TEST(fills_write_their_element_and_nothing_else);
    RUN_TEST(registered_memory_is_known_until_it_is_not);
    RUN_TEST(a_pool_gives_the_same_block_again);
    RUN_TEST(one_memory_can_be_mapped_twice);
    RUN_TEST(contexts_stand_on_a_stack_and_die_with_their_memory);
    return UNITY_END();
}
