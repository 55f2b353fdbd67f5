/* What a texture fetch gives, against values worked out by hand from the programming guide's
 * formulas.  Linked with the driver's own objects, because fetches come from kernels, not through
 * the API. */
#include "device/abi.h"
#include "device/driver/handle.h"
#include "device/driver/texture.h"
#include "unity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, (call))

enum { KIND_1D, KIND_2D, KIND_3D, KIND_A1D, KIND_A2D };

void setUp(void)
{
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
}

void tearDown(void)
{
    cuDevicePrimaryCtxRelease_v2(0);
}

static CUarray array_of(CUarray_format format, unsigned channels, size_t width, size_t height,
                        size_t depth, unsigned flags, const void *bytes, size_t pitch)
{
    CUarray a;
    CUDA_ARRAY3D_DESCRIPTOR d = {width, height, depth, format, channels, flags};
    OK(cuArray3DCreate_v2(&a, &d));
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = bytes,
                       .srcPitch = pitch,
                       .srcHeight = height > 0 ? height : 1,
                       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                       .dstArray = a,
                       .WidthInBytes = pitch,
                       .Height = height > 0 ? height : 1,
                       .Depth = depth > 0 ? depth : 1};
    OK(cuMemcpy3D_v2(&c));
    return a;
}

static CUtexObject texture_of(CUarray a, CUaddress_mode mode, CUfilter_mode filter, unsigned flags)
{
    CUtexObject t;
    CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = a};
    CUDA_TEXTURE_DESC d = {.addressMode = {mode, mode, mode},
                           .filterMode = filter,
                           .flags = flags,
                           .borderColor = {-1, -2, -3, -4}};
    OK(cuTexObjectCreate(&t, &r, &d, NULL));
    return t;
}

static float fetch(CUtexObject t, uint32_t kind, float x, float y)
{
    float at[4] = {x, y, 0, 0}, value;
    uint32_t coords[4], result[4];
    memcpy(coords, at, sizeof coords);
    tl_drv_tex(t, kind, 1, coords, result);
    memcpy(&value, result, sizeof value);
    return value;
}

static const float row[4] = {10, 20, 30, 40};

static void each_addressing_mode_leaves_the_range_in_its_way(void)
{
    CUarray a = array_of(CU_AD_FORMAT_FLOAT, 1, 4, 0, 0, 0, row, sizeof row);
    unsigned normal = CU_TRSF_NORMALIZED_COORDINATES;
    CUtexObject clamp = texture_of(a, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
    CUtexObject border = texture_of(a, CU_TR_ADDRESS_MODE_BORDER, CU_TR_FILTER_MODE_POINT, 0);
    CUtexObject wrap = texture_of(a, CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_POINT, normal);
    CUtexObject mirror = texture_of(a, CU_TR_ADDRESS_MODE_MIRROR, CU_TR_FILTER_MODE_POINT, normal);
    CUtexObject not_normal = texture_of(a, CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_POINT, 0);
    TEST_ASSERT_EQUAL_FLOAT(20, fetch(clamp, KIND_1D, 1.99f, 0));
    TEST_ASSERT_EQUAL_FLOAT(10, fetch(clamp, KIND_1D, -5, 0));
    TEST_ASSERT_EQUAL_FLOAT(40, fetch(clamp, KIND_1D, 100, 0));
    TEST_ASSERT_EQUAL_FLOAT(-1, fetch(border, KIND_1D, 4, 0));
    TEST_ASSERT_EQUAL_FLOAT(40, fetch(border, KIND_1D, 3.5f, 0));
    TEST_ASSERT_EQUAL_FLOAT(20, fetch(wrap, KIND_1D, 1.25f, 0));   /* 5 -> 1 */
    TEST_ASSERT_EQUAL_FLOAT(40, fetch(wrap, KIND_1D, -0.2f, 0));   /* -1 -> 3 */
    TEST_ASSERT_EQUAL_FLOAT(40, fetch(mirror, KIND_1D, 1.1f, 0));  /* 4 -> 3 */
    TEST_ASSERT_EQUAL_FLOAT(20, fetch(mirror, KIND_1D, -0.3f, 0)); /* -2 -> 1 */
    TEST_ASSERT_EQUAL_FLOAT(40, fetch(not_normal, KIND_1D, 5, 0)); /* clamps */
    CUtexObject all[] = {clamp, border, wrap, mirror, not_normal};
    for (size_t i = 0; i < 5; i++)
        OK(cuTexObjectDestroy(all[i]));
    OK(cuArrayDestroy(a));
}

static void the_linear_filter_mixes_neighbours(void)
{
    const float square[2][2] = {{0, 100}, {200, 300}};
    CUarray a = array_of(CU_AD_FORMAT_FLOAT, 1, 2, 2, 0, 0, square, 8);
    CUtexObject t = texture_of(a, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
    TEST_ASSERT_EQUAL_FLOAT(0, fetch(t, KIND_2D, 0.5f, 0.5f)); /* centres are exact */
    TEST_ASSERT_EQUAL_FLOAT(300, fetch(t, KIND_2D, 1.5f, 1.5f));
    TEST_ASSERT_EQUAL_FLOAT(50, fetch(t, KIND_2D, 1, 0.5f));
    TEST_ASSERT_EQUAL_FLOAT(150, fetch(t, KIND_2D, 1, 1));
    TEST_ASSERT_EQUAL_FLOAT(25, fetch(t, KIND_2D, 0.75f, 0.5f));
    /* weights have eight bits */
    TEST_ASSERT_EQUAL_FLOAT(100 * 77 / 256.0f, fetch(t, KIND_2D, 0.8f, 0.5f));
    OK(cuTexObjectDestroy(t));
    OK(cuArrayDestroy(a));
}

static void bytes_are_read_as_fractions_or_as_they_are(void)
{
    const uint8_t bytes[4] = {0, 51, 102, 255};
    CUarray a = array_of(CU_AD_FORMAT_UNSIGNED_INT8, 1, 4, 0, 0, 0, bytes, 4);
    CUtexObject fraction = texture_of(a, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
    CUtexObject whole = texture_of(a, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT,
                                   CU_TRSF_READ_AS_INTEGER);
    uint32_t coords[4] = {2, 0, 0, 0}, result[4];
    TEST_ASSERT_EQUAL_FLOAT(0.2f, fetch(fraction, KIND_1D, 1.5f, 0));
    TEST_ASSERT_EQUAL_FLOAT(1, fetch(fraction, KIND_1D, 3.5f, 0));
    tl_drv_tex(whole, KIND_1D, 0, coords, result);
    TEST_ASSERT_EQUAL_UINT32(102, result[0]);
    OK(cuTexObjectDestroy(fraction));
    OK(cuTexObjectDestroy(whole));
    OK(cuArrayDestroy(a));
}

static void linear_memory_is_zero_outside(void)
{
    CUdeviceptr d;
    CUtexObject t;
    uint32_t result[4];
    const int32_t values[3] = {-5, 6, 7};
    OK(cuMemAlloc_v2(&d, sizeof values));
    OK(cuMemcpyHtoD_v2(d, values, sizeof values));
    CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_LINEAR,
                            .res.linear = {d, CU_AD_FORMAT_SIGNED_INT32, 1, sizeof values}};
    CUDA_TEXTURE_DESC desc = {.flags = CU_TRSF_READ_AS_INTEGER};
    OK(cuTexObjectCreate(&t, &r, &desc, NULL));
    const int32_t at[4] = {0, 2, 3, -1}, want[4] = {-5, 7, 0, 0};
    for (int i = 0; i < 4; i++) {
        uint32_t coords[4] = {(uint32_t)at[i], 0, 0, 0};
        tl_drv_tex(t, KIND_1D, 0, coords, result);
        TEST_ASSERT_EQUAL_INT32(want[i], (int32_t)result[0]);
    }
    OK(cuTexObjectDestroy(t));
    OK(cuMemFree_v2(d));
}

static void layers_are_apart(void)
{
    const float layers[2][2] = {{1, 2}, {3, 4}};
    CUarray a = array_of(CU_AD_FORMAT_FLOAT, 1, 2, 0, 2, CUDA_ARRAY3D_LAYERED, layers, 8);
    CUtexObject t = texture_of(a, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
    float x = 1, value;
    uint32_t coords[4] = {1}, result[4];
    memcpy(&coords[1], &x, sizeof x);
    tl_drv_tex(t, KIND_A1D, 1, coords, result);
    memcpy(&value, result, sizeof value);
    TEST_ASSERT_EQUAL_FLOAT(3.5f, value);
    OK(cuTexObjectDestroy(t));
    OK(cuArrayDestroy(a));
}

static void a_surface_writes_what_a_copy_reads(void)
{
    const uint16_t zeros[2][3] = {{0}};
    uint16_t out[2][3];
    CUarray a = array_of(CU_AD_FORMAT_UNSIGNED_INT16, 1, 3, 2, 0, CUDA_ARRAY3D_SURFACE_LDST, zeros,
                         6);
    CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = a};
    CUsurfObject s;
    OK(cuSurfObjectCreate(&s, &r));
    int32_t inside[4] = {2, 1, 0, 0}, outside[4] = {6, 0, 0, 0};
    uint32_t data[4] = {777};
    TEST_ASSERT_TRUE(tl_drv_surf(s, KIND_2D, 1, inside, 2, TL_DEV_SURF_TRAP, data));
    /* goes nowhere */
    TEST_ASSERT_TRUE(tl_drv_surf(s, KIND_2D, 1, outside, 2, TL_DEV_SURF_ZERO, data));
    TEST_ASSERT_FALSE(tl_drv_surf(s, KIND_2D, 1, outside, 2, TL_DEV_SURF_TRAP, data));
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                       .srcArray = a,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = out,
                       .dstPitch = 6,
                       .WidthInBytes = 6,
                       .Height = 2};
    OK(cuMemcpy2D_v2(&c));
    const uint16_t want[6] = {0, 0, 0, 0, 777, 0};
    TEST_ASSERT_EQUAL_UINT16_ARRAY(want, &out[0][0], 6);
    data[0] = 0;
    TEST_ASSERT_TRUE(tl_drv_surf(s, KIND_2D, 0, inside, 2, TL_DEV_SURF_TRAP, data));
    TEST_ASSERT_EQUAL_UINT32(777, data[0]);
    OK(cuSurfObjectDestroy(s));
    OK(cuArrayDestroy(a));
}

static void remove_device(void)
{
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/%s.2", getenv("TALLY_DEVICE_NAME"));
    unlink(path);
}

/* Levels of 8, 4, 2 and 1 elements hold 0, 1, 2 and 3: what comes is the level, mixed. */
static void gradients_choose_the_level(void)
{
    CUmipmappedArray m;
    CUtexObject t;
    CUDA_ARRAY3D_DESCRIPTOR d = {8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    OK(cuMipmappedArrayCreate(&m, &d, 4));
    for (unsigned l = 0; l < 4; l++) {
        CUarray a;
        float values[64];
        size_t n = 8u >> l;
        for (int i = 0; i < 64; i++)
            values[i] = (float)l;
        OK(cuMipmappedArrayGetLevel(&a, m, l));
        CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = values,
                           .srcPitch = n * 4,
                           .srcHeight = n,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                           .dstArray = a,
                           .WidthInBytes = n * 4,
                           .Height = n,
                           .Depth = 1};
        OK(cuMemcpy3D_v2(&c));
    }
    CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                            .res.mipmap.hMipmappedArray = m};
    CUDA_TEXTURE_DESC td = {.filterMode = CU_TR_FILTER_MODE_LINEAR,
                            .mipmapFilterMode = CU_TR_FILTER_MODE_LINEAR,
                            .flags = CU_TRSF_NORMALIZED_COORDINATES,
                            .maxMipmapLevelClamp = 10};
    OK(cuTexObjectCreate(&t, &r, &td, NULL));
    /* The longer step counts, in elements of the first level: 1 is level 0, 2 level 1, sqrt(32)
     * level 2.5. */
    static const struct {
        float right[2], down[2], level;
    } cases[] = {
        {{0, 0}, {0, 0}, 0},         {{0.125f, 0}, {0, 0.125f}, 0},    {{0.25f, 0}, {0, 0.125f}, 1},
        {{0.125f, 0}, {0, 0.5f}, 2}, {{0.5f, 0.5f}, {0, 0.25f}, 2.5f}, {{8, 0}, {0, 0}, 3},
        {{0.01f, 0}, {0, 0.01f}, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float coords[10] = {0.5f,
                            0.5f,
                            0,
                            0,
                            cases[i].right[0],
                            cases[i].right[1],
                            0,
                            cases[i].down[0],
                            cases[i].down[1]};
        uint32_t words[10], result[4];
        float got;
        memcpy(words, coords, sizeof words);
        tl_drv_tex(t, KIND_2D | TL_DEV_TEX_GRAD, 1, words, result);
        memcpy(&got, result, sizeof got);
        TEST_ASSERT_FLOAT_WITHIN(1e-5f, cases[i].level, got);
    }
    OK(cuTexObjectDestroy(t));
    OK(cuMipmappedArrayDestroy(m));
}

int main(void)
{
    char name[64];
    snprintf(name, sizeof name, "tally-test-driver-%d", (int)getpid());
    setenv("TALLY_DEVICE_NAME", name, 1);
    atexit(remove_device);
    UNITY_BEGIN();
    RUN_TEST(each_addressing_mode_leaves_the_range_in_its_way);
    RUN_TEST(the_linear_filter_mixes_neighbours);
    RUN_TEST(bytes_are_read_as_fractions_or_as_they_are);
    RUN_TEST(linear_memory_is_zero_outside);
    RUN_TEST(layers_are_apart);
    RUN_TEST(a_surface_writes_what_a_copy_reads);
    RUN_TEST(gradients_choose_the_level);
    return UNITY_END();
}
