/* cuTensorMap*: descriptions of tensors that kernels copy boxes of.
 *
 * A map is the caller's memory and refers to nothing but an address, so there is nothing to keep
 * track of.  What is in it is in device/tensor.h; which ones make sense, and which of these the
 * device knows, is asked in device/exec/tensor_map.c, which copies ask too. */
#include "device/driver/context.h"
#include "device/driver/handle.h"
#include "device/driver/log.h"
#include "device/driver/state.h"

#include "device/exec/exec.h"

#include <string.h>

_Static_assert(sizeof(CUtensorMap) == sizeof(struct tl_tensor_map), "");
_Static_assert((int)CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 == TL_TENSOR_BF16, "");
_Static_assert((int)CU_TENSOR_MAP_SWIZZLE_128B == TL_TENSOR_SWIZZLE_128B, "");

/* Tensor maps are for devices of compute capability 9.0 and more.  CUDA's documentation wants them
 * at multiples of 64, where kernels have to have them; NVIDIA's own cuda.core encodes them in
 * Python's objects, at multiples of 16, so the driver cannot insist. */
static CUresult enter(const CUtensorMap *map)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (tl_drv.cc_major < 9)
        return tl_drv_unimplemented("a tensor map before compute capability 9.0");
    return map == NULL || (uintptr_t)map % 16 != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Numbers that would not fit into the map's fields are out of range; 0xff is, everywhere. */
static uint8_t small(uint64_t value)
{
    return value < 0xff ? (uint8_t)value : 0xff;
}

static int16_t corner(int value)
{
    return (int16_t)(value > INT16_MAX ? INT16_MAX : value < INT16_MIN ? INT16_MIN : value);
}

static bool is_corner(int value)
{
    return corner(value) == value;
}

/* What maps of all modes are encoded from; where they differ is in the map already. */
struct tensor {
    cuuint32_t rank;
    const cuuint64_t *dim, *strides;
    const cuuint32_t *box, *element_strides;
};

/* What the arguments say is put into a map first, and the map is looked at then. */
static CUresult encode(CUtensorMap *out, struct tl_tensor_map *m, const struct tensor *t,
                       const char *call)
{
    if (t->rank == 0 || t->rank > TL_TENSOR_MAX_RANK || t->dim == NULL || t->box == NULL ||
        t->element_strides == NULL || (t->strides == NULL && t->rank > 1))
        return CUDA_ERROR_INVALID_VALUE;
    m->magic = TL_TENSOR_MAGIC;
    m->rank_minus_1 = small((uint64_t)t->rank - 1);
    for (uint32_t i = 0; i < t->rank; i++) {
        if (t->dim[i] == 0 || t->dim[i] > (uint64_t)1 << 32)
            return CUDA_ERROR_INVALID_VALUE;
        m->dim_minus_1[i] = (uint32_t)(t->dim[i] - 1);
        if (i == 0 || m->mode == TL_TENSOR_TILED)
            m->box[i] = t->box[i] < 0xffff ? (uint16_t)t->box[i] : 0xffff;
        m->element_stride[i] = small(t->element_strides[i]);
        if (i > 0)
            m->stride[i - 1] = t->strides[i - 1];
    }
    const char *wrong = tl_exec_tensor_wrong(m);
    if (wrong != NULL) {
        tl_drv_log("%s: %s", call, wrong);
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* What there is no copy of, a tiled one says now, and im2col when its instruction is met. */
    const char *missing = m->mode == TL_TENSOR_TILED ? tl_exec_tensor_missing(m) : NULL;
    if (missing != NULL)
        return tl_drv_unimplemented(missing);
    memcpy(out, m, sizeof *m);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void *globalAddress,
                                const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    struct tl_tensor_map m = {.type = small((uint64_t)tensorDataType),
                              .interleave = small((uint64_t)interleave),
                              .swizzle = small((uint64_t)swizzle),
                              .address = (uintptr_t)globalAddress,
                              .fill = small((uint64_t)oobFill),
                              .l2_promotion = small((uint64_t)l2Promotion)};
    struct tensor t = {tensorRank, globalDim, globalStrides, boxDim, elementStrides};
    CUresult r = enter(tensorMap);
    return r == CUDA_SUCCESS ? encode(tensorMap, &m, &t, __func__) : r;
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void *globalAddress,
                                 const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                 const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill)
{
    struct tl_tensor_map m = {.type = small((uint64_t)tensorDataType),
                              .interleave = small((uint64_t)interleave),
                              .swizzle = small((uint64_t)swizzle),
                              .address = (uintptr_t)globalAddress,
                              .fill = small((uint64_t)oobFill),
                              .l2_promotion = small((uint64_t)l2Promotion),
                              .mode = TL_TENSOR_IM2COL,
                              .pixels = pixelsPerColumn < 0xffff ? (uint16_t)pixelsPerColumn
                                                                 : 0xffff};
    struct tensor t = {tensorRank, globalDim, globalStrides, &channelsPerPixel, elementStrides};
    CUresult r = enter(tensorMap);
    if (r != CUDA_SUCCESS)
        return r;
    if (tensorRank < 3 || tensorRank > TL_TENSOR_MAX_RANK || pixelBoxLowerCorner == NULL ||
        pixelBoxUpperCorner == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < tensorRank - 2; i++) {
        if (!is_corner(pixelBoxLowerCorner[i]) || !is_corner(pixelBoxUpperCorner[i]))
            return CUDA_ERROR_INVALID_VALUE;
        m.lower[i] = corner(pixelBoxLowerCorner[i]);
        m.upper[i] = corner(pixelBoxUpperCorner[i]);
    }
    return encode(tensorMap, &m, &t, __func__);
}

/* For devices of compute capability 10.0 and more; others have no such maps. */
CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill)
{
    bool is_w = mode == CU_TENSOR_MAP_IM2COL_WIDE_MODE_W;
    struct tl_tensor_map m = {.type = small((uint64_t)tensorDataType),
                              .interleave = small((uint64_t)interleave),
                              .swizzle = small((uint64_t)swizzle),
                              .address = (uintptr_t)globalAddress,
                              .fill = small((uint64_t)oobFill),
                              .l2_promotion = small((uint64_t)l2Promotion),
                              .mode = is_w ? TL_TENSOR_IM2COL_W : TL_TENSOR_IM2COL_W128,
                              .lower = {corner(pixelBoxLowerCornerWidth)},
                              .upper = {corner(pixelBoxUpperCornerWidth)},
                              .pixels = pixelsPerColumn < 0xffff ? (uint16_t)pixelsPerColumn
                                                                 : 0xffff};
    struct tensor t = {tensorRank, globalDim, globalStrides, &channelsPerPixel, elementStrides};
    CUresult r = enter(tensorMap);
    if (r != CUDA_SUCCESS)
        return r;
    if (tl_drv.cc_major < 10)
        return tl_drv_unimplemented("wide im2col before compute capability 10.0");
    if ((!is_w && mode != CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128) ||
        !is_corner(pixelBoxLowerCornerWidth) || !is_corner(pixelBoxUpperCornerWidth))
        return CUDA_ERROR_INVALID_VALUE;
    return encode(tensorMap, &m, &t, __func__);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
    struct tl_tensor_map m;
    CUresult r = enter(tensorMap);
    if (r != CUDA_SUCCESS)
        return r;
    memcpy(&m, tensorMap, sizeof m);
    m.address = (uintptr_t)globalAddress;
    const char *wrong = tl_exec_tensor_wrong(&m);
    if (wrong != NULL) {
        tl_drv_log("cuTensorMapReplaceAddress: %s", wrong);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(tensorMap, &m, sizeof m);
    return CUDA_SUCCESS;
}
