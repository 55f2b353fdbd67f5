/* Boxes, arrays, fills and pools: that bytes come where they should, and that what is not allocated
 * is refused instead of touched. */
#include "test/unit/device/driver/help.h"

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

enum { W = 40, H = 6, D = 3 };

static CUarray make_array(size_t width, size_t height, size_t depth)
{
    CUarray a = NULL;
    OK(CALL(cuArray3DCreate_v2)(&a, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = width,
                                                               .Height = height,
                                                               .Depth = depth,
                                                               .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                                               .NumChannels = 1}));
    return a;
}

/* --- boxes */

static void rows_go_from_pitch_to_pitch(void)
{
    uint8_t in[H][W], out[H][W];
    CUdeviceptr d;
    CUstream s;
    size_t pitch;
    for (unsigned i = 0; i < sizeof in; i++)
        in[i / W][i % W] = (uint8_t)(i * 7);
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuMemAllocPitch_v2)(&d, &pitch, W, H, 4));
    TEST_ASSERT_TRUE(pitch >= W);
    CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = W,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = d,
                        .dstPitch = pitch,
                        .WidthInBytes = W,
                        .Height = H};
    CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = d,
                          .srcPitch = pitch,
                          .srcXInBytes = 8,
                          .srcY = 2,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = W,
                          .dstXInBytes = 1,
                          .dstY = 1,
                          .WidthInBytes = 16,
                          .Height = 3};
    for (int way = 0; way < 3; way++) {
        memset(out, 0, sizeof out);
        OK(CALL(cuMemsetD8_v2)(d, 0, pitch * H));
        OK(CALL(cuCtxSynchronize)());
        OK(way == 0   ? CALL(cuMemcpy2D_v2)(&up)
           : way == 1 ? CALL(cuMemcpy2DUnaligned_v2)(&up)
                      : CALL(cuMemcpy2DAsync_v2)(&up, s));
        OK(way == 2 ? CALL(cuMemcpy2DAsync_v2)(&down, s) : CALL(cuMemcpy2D_v2)(&down));
        OK(CALL(cuStreamSynchronize)(s));
        for (unsigned y = 0; y < H; y++) {
            for (unsigned x = 0; x < W; x++) {
                bool is_inside = y >= 1 && y < 4 && x >= 1 && x < 17;
                TEST_ASSERT_EQUAL_UINT8(is_inside ? in[y + 1][x + 7] : 0, out[y][x]);
            }
        }
    }
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuStreamDestroy_v2)(s));
}

/* Between an array and memory of the host that is as large. */
static CUDA_MEMCPY3D whole(CUarray array, void *host, bool is_up)
{
    CUDA_MEMCPY3D c = {.WidthInBytes = W, .Height = H, .Depth = D};
    c.srcMemoryType = is_up ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    c.dstMemoryType = is_up ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    c.srcHost = is_up ? host : NULL;
    c.dstHost = is_up ? NULL : host;
    c.srcPitch = c.dstPitch = W;
    c.srcHeight = c.dstHeight = H;
    c.srcArray = c.dstArray = array;
    return c;
}

static void fill_by_place(uint8_t in[D][H][W])
{
    for (unsigned i = 0; i < W * H * D; i++)
        in[i / (W * H)][i / W % H][i % W] = (uint8_t)(i * 11);
}

static void a_box_of_an_array_comes_back(void)
{
    uint8_t in[D][H][W], out[D][H][W];
    CUarray a = make_array(W, H, D), b = make_array(W, H, D);
    CUDA_ARRAY3D_DESCRIPTOR desc;
    CUstream s;
    fill_by_place(in);
    OK(CALL(cuStreamCreate)(&s, 0));
    OK(CALL(cuArray3DGetDescriptor_v2)(&desc, a));
    TEST_ASSERT_EQUAL_UINT64(H, desc.Height);
    CUDA_MEMCPY3D up = whole(a, in, true), down = whole(b, out, false);
    CUDA_MEMCPY3D across = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                            .srcArray = a,
                            .srcXInBytes = 4,
                            .srcY = 1,
                            .srcZ = 1,
                            .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                            .dstArray = b,
                            .dstZ = 1,
                            .WidthInBytes = 10,
                            .Height = 4,
                            .Depth = 2};
    OK(CALL(cuMemcpy3DAsync_v2)(&up, s));
    OK(CALL(cuMemcpy3DAsync_v2)(&across, s));
    OK(CALL(cuStreamSynchronize)(s));
    OK(CALL(cuMemcpy3D_v2)(&down));
    for (unsigned z = 1; z < 3; z++)
        for (unsigned y = 0; y < 4; y++)
            for (unsigned x = 0; x < 10; x++)
                TEST_ASSERT_EQUAL_UINT8(in[z][y + 1][x + 4], out[z][y][x]);
    OK(CALL(cuArrayDestroy)(a));
    OK(CALL(cuArrayDestroy)(b));
    OK(CALL(cuStreamDestroy_v2)(s));
}

static void a_box_is_copied_by_the_names_that_know_of_two_devices(void)
{
    uint8_t in[D][H][W], out[D][H][W];
    CUarray a = make_array(W, H, D);
    CUstream s;
    fill_by_place(in);
    OK(CALL(cuStreamCreate)(&s, 0));
    CUDA_MEMCPY3D up = whole(a, in, true);
    OK(CALL(cuMemcpy3D_v2)(&up));
    CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                               .srcArray = a,
                               .dstMemoryType = CU_MEMORYTYPE_HOST,
                               .dstHost = out,
                               .dstPitch = W,
                               .dstHeight = H,
                               .WidthInBytes = W,
                               .Height = H,
                               .Depth = D};
    OK(CALL(cuMemcpy3DPeer)(&peer));
    TEST_ASSERT_EQUAL_MEMORY(in, out, sizeof in);
    memset(out, 0, sizeof out);
    OK(CALL(cuMemcpy3DPeerAsync)(&peer, s));
    OK(CALL(cuStreamSynchronize)(s));
    TEST_ASSERT_EQUAL_MEMORY(in, out, sizeof in);
    OK(CALL(cuArrayDestroy)(a));
    OK(CALL(cuStreamDestroy_v2)(s));
}

static void lines_go_into_arrays_and_out_of_them(void)
{
    uint8_t in[W], out[W];
    CUarray a, b = make_array(W, 0, 0);
    CUDA_ARRAY_DESCRIPTOR desc = {.Width = W,
                                  .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                  .NumChannels = 1},
                          got;
    CUdeviceptr d;
    CUstream s;
    for (unsigned i = 0; i < W; i++)
        in[i] = (uint8_t)(3 * i);
    OK(CALL(cuStreamCreate)(&s, 0));
    OK(CALL(cuArrayCreate_v2)(&a, &desc));
    OK(CALL(cuArrayGetDescriptor_v2)(&got, a));
    TEST_ASSERT_EQUAL_UINT64(W, got.Width);
    OK(CALL(cuMemAlloc_v2)(&d, W));
    OK(CALL(cuMemcpyHtoA_v2)(a, 0, in, W));
    OK(CALL(cuMemcpyAtoA_v2)(b, 4, a, 2, 30));
    OK(CALL(cuMemcpyAtoD_v2)(d, b, 4, 30));
    OK(CALL(cuMemcpyDtoH_v2)(out, d, 30));
    TEST_ASSERT_EQUAL_MEMORY(in + 2, out, 30);
    OK(CALL(cuMemcpyDtoA_v2)(a, 10, d, 30));
    OK(CALL(cuMemcpyAtoH_v2)(out, a, 10, 30));
    TEST_ASSERT_EQUAL_MEMORY(in + 2, out, 30);
    OK(CALL(cuMemcpyHtoAAsync_v2)(a, 0, in, W, s));
    OK(CALL(cuMemcpyAtoHAsync_v2)(out, a, 0, W, s));
    OK(CALL(cuStreamSynchronize)(s));
    TEST_ASSERT_EQUAL_MEMORY(in, out, W);
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuArrayDestroy)(a));
    OK(CALL(cuArrayDestroy)(b));
    OK(CALL(cuStreamDestroy_v2)(s));
}

/* --- fills */

static void fills_have_elements_of_three_widths_and_rows(void)
{
    union {
        uint8_t b[512];
        uint16_t h[256];
        uint32_t w[128];
    } out;
    CUdeviceptr d;
    CUstream s;
    OK(CALL(cuStreamCreate)(&s, 0));
    OK(CALL(cuMemAlloc_v2)(&d, sizeof out));
    for (int is_async = 0; is_async < 2; is_async++) {
        OK(CALL(cuMemsetD8_v2)(d, 0, sizeof out));
        OK(is_async ? CALL(cuMemsetD16Async)(d + 2, 0xabcd, 3, s)
                    : CALL(cuMemsetD16_v2)(d + 2, 0xabcd, 3));
        OK(is_async ? CALL(cuMemsetD2D32Async)(d + 64, 32, 0x01020304, 2, 3, s)
                    : CALL(cuMemsetD2D32_v2)(d + 64, 32, 0x01020304, 2, 3));
        OK(is_async ? CALL(cuMemsetD2D16Async)(d + 256, 16, 0x1122, 1, 4, s)
                    : CALL(cuMemsetD2D16_v2)(d + 256, 16, 0x1122, 1, 4));
        OK(is_async ? CALL(cuMemsetD2D8Async)(d + 384, 7, 9, 3, 5, s)
                    : CALL(cuMemsetD2D8_v2)(d + 384, 7, 9, 3, 5));
        OK(CALL(cuCtxSynchronize)());
        OK(CALL(cuMemcpyDtoH_v2)(&out, d, sizeof out));
        for (unsigned i = 0; i < 32; i++)
            TEST_ASSERT_EQUAL_HEX16(i >= 1 && i < 4 ? 0xabcd : 0, out.h[i]);
        for (unsigned i = 16; i < 64; i++)
            TEST_ASSERT_EQUAL_HEX32(i < 40 && (i - 16) % 8 < 2 ? 0x01020304 : 0, out.w[i]);
        for (unsigned i = 128; i < 192; i++)
            TEST_ASSERT_EQUAL_HEX16(i < 160 && (i - 128) % 8 == 0 ? 0x1122 : 0, out.h[i]);
        for (unsigned i = 384; i < 512; i++)
            TEST_ASSERT_EQUAL_UINT8(i < 384 + 35 && (i - 384) % 7 < 3 ? 9 : 0, out.b[i]);
    }
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuStreamDestroy_v2)(s));
}

/* --- what is not there */

#define REFUSED(call) TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, (call))

static void what_is_not_allocated_is_not_touched(void)
{
    static uint8_t bytes[8192];
    CUdeviceptr d, gone;
    CUarray a = make_array(W, H, 0);
    OK(CALL(cuMemAlloc_v2)(&d, 100));
    OK(CALL(cuMemAlloc_v2)(&gone, 100));
    OK(CALL(cuMemFree_v2)(gone));
    REFUSED(CALL(cuMemcpyHtoD_v2)(gone, bytes, 1));
    REFUSED(CALL(cuMemcpyHtoD_v2)(d, bytes, 101));
    REFUSED(CALL(cuMemcpyHtoD_v2)(d + 60, bytes, 41));
    REFUSED(CALL(cuMemcpyDtoH_v2)(bytes, d, sizeof bytes));
    REFUSED(CALL(cuMemcpyDtoHAsync_v2)(bytes, gone, 1, NULL));
    REFUSED(CALL(cuMemcpyDtoD_v2)(d, gone, 1));
    /* the program's memory is not the device's */
    REFUSED(CALL(cuMemcpyDtoD_v2)(d, (CUdeviceptr)bytes, 1));
    REFUSED(CALL(cuMemcpy)(d, (CUdeviceptr)bytes, 101));
    OK(CALL(cuMemcpy)(d, (CUdeviceptr)bytes, 100));
    REFUSED(CALL(cuMemsetD8_v2)(d, 0, 101));
    REFUSED(CALL(cuMemsetD32_v2)(d, 0, SIZE_MAX / 2));
    REFUSED(CALL(cuMemsetD2D8_v2)(d, 50, 0, 10, 3));
    REFUSED(CALL(cuMemsetD8_v2)(gone, 0, 1));
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = bytes,
                          .srcPitch = 50,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = d,
                          .dstPitch = 50,
                          .WidthInBytes = 10,
                          .Height = 3};
    REFUSED(CALL(cuMemcpy2D_v2)(&rows));
    CUDA_MEMCPY2D into = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = bytes,
                          .srcPitch = W,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = a,
                          .dstY = 1,
                          .WidthInBytes = W,
                          .Height = H};
    REFUSED(CALL(cuMemcpy2D_v2)(&into)); /* the last row would be behind the array */
    into.dstY = 0;
    OK(CALL(cuMemcpy2D_v2)(&into));
    OK(CALL(cuCtxSynchronize)()); /* nothing of that has harmed the context */
    OK(CALL(cuArrayDestroy)(a));
    OK(CALL(cuMemFree_v2)(d));
}

static void a_graph_does_not_touch_what_is_not_allocated(void)
{
    CUdeviceptr d, gone;
    CUgraph g;
    CUgraphNode node;
    CUcontext ctx;
    OK(CALL(cuCtxGetCurrent)(&ctx));
    OK(CALL(cuMemAlloc_v2)(&d, 100));
    OK(CALL(cuMemAlloc_v2)(&gone, 100));
    OK(CALL(cuMemFree_v2)(gone));
    OK(CALL(cuGraphCreate)(&g, 0));
    REFUSED(CALL(cuGraphAddMemsetNode)(
        &node, g, NULL, 0,
        &(CUDA_MEMSET_NODE_PARAMS){.dst = gone, .elementSize = 1, .width = 4, .height = 1}, ctx));
    REFUSED(CALL(cuGraphAddMemcpyNode)(&node, g, NULL, 0,
                                       &(CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                                        .srcDevice = gone,
                                                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                                        .dstDevice = d,
                                                        .WidthInBytes = 4,
                                                        .Height = 1,
                                                        .Depth = 1},
                                       ctx));
    OK(CALL(cuGraphDestroy)(g));
    OK(CALL(cuCtxSynchronize)());
    OK(CALL(cuMemFree_v2)(d));
}

static void mapped_pieces_are_one_to_a_copy(void)
{
    const CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory[2];
    CUdeviceptr at;
    size_t n;
    uint8_t out[8];
    OK(CALL(cuMemGetAllocationGranularity)(&n, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(CALL(cuMemAddressReserve)(&at, 3 * n, 0, 0, 0));
    for (unsigned i = 0; i < 2; i++) {
        OK(CALL(cuMemCreate)(&memory[i], n, &props, 0));
        OK(CALL(cuMemMap)(at + i * n, n, 0, memory[i], 0));
    }
    REFUSED(CALL(cuMemsetD8_v2)(at, 1, 1)); /* mapped, but nobody may use it yet */
    OK(CALL(cuMemSetAccess)(at, 2 * n, &access, 1));
    OK(CALL(cuMemsetD8_v2)(at, 5, 2 * n));
    REFUSED(CALL(cuMemsetD8_v2)(at, 5, 2 * n + 1));
    OK(CALL(cuMemcpyDtoH_v2)(out, at + n - 4, 8));
    for (unsigned i = 0; i < 8; i++)
        TEST_ASSERT_EQUAL_UINT8(5, out[i]);
    OK(CALL(cuMemUnmap)(at, 2 * n));
    REFUSED(CALL(cuMemsetD8_v2)(at, 1, 1));
    OK(CALL(cuMemRelease)(memory[0]));
    OK(CALL(cuMemRelease)(memory[1]));
    OK(CALL(cuMemAddressFree)(at, 3 * n));
}

/* --- pools */

static uint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    uint64_t v = 0;
    OK(CALL(cuMemPoolGetAttribute)(pool, attribute, &v));
    return v;
}

static void a_pool_counts_and_gives_back(void)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool pool, found, before;
    CUmemAccess_flags flags;
    CUmemLocation where = access.location;
    CUdeviceptr d;
    uint64_t zero = 0;
    OK(CALL(cuMemPoolCreate)(&pool, &props));
    OK(CALL(cuMemPoolSetAccess)(pool, &access, 1));
    OK(CALL(cuMemPoolGetAccess)(&flags, pool, &where));
    TEST_ASSERT_EQUAL_INT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
    OK(CALL(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &zero));
    OK(CALL(cuMemAllocFromPoolAsync)(&d, 1 << 20, pool, NULL));
    OK(CALL(cuPointerGetAttribute)(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, d));
    TEST_ASSERT_EQUAL_PTR(pool, found);
    TEST_ASSERT_EQUAL_UINT64(1 << 20, pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    OK(CALL(cuMemFreeAsync)(d, NULL));
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_UINT64(0, pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    TEST_ASSERT_EQUAL_UINT64(1 << 20, pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    OK(CALL(cuMemPoolTrimTo)(pool, 0));
    TEST_ASSERT_EQUAL_UINT64(0, pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    /* What a device takes when nothing else is said. */
    OK(CALL(cuDeviceGetMemPool)(&before, 0));
    OK(CALL(cuDeviceSetMemPool)(0, pool));
    OK(CALL(cuMemAllocAsync)(&d, 4096, NULL));
    TEST_ASSERT_EQUAL_UINT64(4096, pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    OK(CALL(cuMemFreeAsync)(d, NULL));
    OK(CALL(cuCtxSynchronize)());
    /* What counts is what was asked for, in units of 512 bytes. */
    OK(CALL(cuMemAllocAsync)(&d, 1000, NULL));
    TEST_ASSERT_EQUAL_UINT64(1024, pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    OK(CALL(cuMemFree_v2)(d));
    TEST_ASSERT_EQUAL_UINT64(0, pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    OK(CALL(cuMemPoolDestroy)(pool));
    OK(CALL(cuMemGetMemPool)(&found, &where, CU_MEM_ALLOCATION_TYPE_PINNED));
    TEST_ASSERT_EQUAL_PTR(before, found);
    OK(CALL(cuMemGetDefaultMemPool)(&found, &where, CU_MEM_ALLOCATION_TYPE_PINNED));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemPoolDestroy)(found));
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(rows_go_from_pitch_to_pitch);
    RUN_TEST(a_box_of_an_array_comes_back);
    RUN_TEST(a_box_is_copied_by_the_names_that_know_of_two_devices);
    RUN_TEST(lines_go_into_arrays_and_out_of_them);
    RUN_TEST(fills_have_elements_of_three_widths_and_rows);
    RUN_TEST(what_is_not_allocated_is_not_touched);
    RUN_TEST(a_graph_does_not_touch_what_is_not_allocated);
    RUN_TEST(mapped_pieces_are_one_to_a_copy);
    RUN_TEST(a_pool_counts_and_gives_back);
    return UNITY_END();
}
