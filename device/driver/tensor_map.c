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

/* Tensor maps are for devices of compute capability 9.0 and more. */
static CUresult enter(const CUtensorMap *map)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (tl_drv.cc_major < 9)
        return tl_drv_unimplemented("a tensor map before compute capability 9.0");
    return map == NULL || (uintptr_t)map % 64 != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Numbers that would not fit into the map's fields are out of range; 0xff is, everywhere. */
static uint8_t small(uint64_t value)
{
    return value < 0xff ? (uint8_t)value : 0xff;
}

/* What the arguments say is put into a map first, and the map is looked at then. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void *globalAddress,
                                const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    struct tl_tensor_map m = {.magic = TL_TENSOR_MAGIC,
                              .rank_minus_1 = small((uint64_t)tensorRank - 1),
                              .type = small((uint64_t)tensorDataType),
                              .interleave = small((uint64_t)interleave),
                              .swizzle = small((uint64_t)swizzle),
                              .address = (uintptr_t)globalAddress,
                              .fill = small((uint64_t)oobFill),
                              .l2_promotion = small((uint64_t)l2Promotion)};
    CUresult r = enter(tensorMap);
    if (r != CUDA_SUCCESS)
        return r;
    if (tensorRank == 0 || tensorRank > TL_TENSOR_MAX_RANK || globalDim == NULL || boxDim == NULL ||
        elementStrides == NULL || (globalStrides == NULL && tensorRank > 1))
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < tensorRank; i++) {
        if (globalDim[i] == 0 || globalDim[i] > (uint64_t)1 << 32)
            return CUDA_ERROR_INVALID_VALUE;
        m.dim_minus_1[i] = (uint32_t)(globalDim[i] - 1);
        m.box[i] = boxDim[i] < 0xffff ? (uint16_t)boxDim[i] : 0xffff;
        m.element_stride[i] = small(elementStrides[i]);
        if (i > 0)
            m.stride[i - 1] = globalStrides[i - 1];
    }
    const char *wrong = tl_exec_tensor_wrong(&m);
    if (wrong != NULL) {
        tl_drv_log("cuTensorMapEncodeTiled: %s", wrong);
        return CUDA_ERROR_INVALID_VALUE;
    }
    const char *missing = tl_exec_tensor_missing(&m);
    if (missing != NULL)
        return tl_drv_unimplemented(missing);
    memcpy(tensorMap, &m, sizeof m);
    return CUDA_SUCCESS;
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
