/* What a CUtensorMap holds here.
 *
 * To programs the 128 bytes are opaque: the driver fills them (cuTensorMapEncodeTiled), kernels
 * change them through tensormap.replace and hand them to copies.  A kernel may also begin with 128
 * zero bytes and replace every field, so zeroes are a map too, of which nothing can be copied.
 * Numbers are the driver's (CUtensorMapDataType and so on). */
#ifndef TALLY_DEVICE_TENSOR_H
#define TALLY_DEVICE_TENSOR_H

#include <assert.h>
#include <stdint.h>

#define TL_TENSOR_MAGIC 0x314d544cu /* "LTM1": layout 1 */
#define TL_TENSOR_MAX_RANK 5

enum tl_tensor_type {
    TL_TENSOR_U8,
    TL_TENSOR_U16,
    TL_TENSOR_U32,
    TL_TENSOR_S32,
    TL_TENSOR_U64,
    TL_TENSOR_S64,
    TL_TENSOR_F16,
    TL_TENSOR_F32,
    TL_TENSOR_F64,
    TL_TENSOR_BF16,
    TL_TENSOR_F32_FTZ,
    TL_TENSOR_TF32,
    TL_TENSOR_TF32_FTZ,
    TL_TENSOR_U4,
    TL_TENSOR_U4_PADDED,
    TL_TENSOR_U6_PADDED,
    TL_TENSOR_TYPES,
};

enum tl_tensor_swizzle {
    TL_TENSOR_SWIZZLE_NONE,
    TL_TENSOR_SWIZZLE_32B,
    TL_TENSOR_SWIZZLE_64B,
    TL_TENSOR_SWIZZLE_128B, /* what comes behind it swaps other than chunks of 16 bytes */
    TL_TENSOR_SWIZZLES = 7,
};

/* How elements are chosen: boxes, or pixels as convolutions want them. */
enum tl_tensor_mode {
    TL_TENSOR_TILED,
    TL_TENSOR_IM2COL,
    TL_TENSOR_IM2COL_W, /* along one axis only */
    TL_TENSOR_IM2COL_W128,
    TL_TENSOR_MODES,
};

struct tl_tensor_map {
    uint32_t magic;
    uint8_t rank_minus_1;
    uint8_t type;       /* enum tl_tensor_type */
    uint8_t interleave; /* 0, or groups of channels of 16 or 32 bytes: 1, 2 */
    uint8_t swizzle;    /* enum tl_tensor_swizzle */
    uint64_t address;
    uint64_t stride[TL_TENSOR_MAX_RANK - 1]; /* bytes; of the axes behind the first */
    uint32_t dim_minus_1[TL_TENSOR_MAX_RANK];
    uint16_t box[TL_TENSOR_MAX_RANK];
    uint8_t element_stride[TL_TENSOR_MAX_RANK];
    uint8_t fill;                          /* outside: 0 zeroes, 1 NaN */
    uint8_t l2_promotion;                  /* no meaning here */
    uint8_t mode;                          /* enum tl_tensor_mode */
    int16_t lower[TL_TENSOR_MAX_RANK - 2]; /* of im2col: of the box's corners, along W, H, D */
    int16_t upper[TL_TENSOR_MAX_RANK - 2];
    uint16_t pixels;      /* of im2col: per column; the channels per pixel are box[0] */
    uint8_t reserved[28]; /* zeroes */
};
static_assert(sizeof(struct tl_tensor_map) == 128, "as large as a CUtensorMap");

/* What a copy does, in the lower byte; the rank that the instruction names in the next. */
enum tl_tensor_copy {
    TL_TENSOR_LOAD,
    TL_TENSOR_STORE,
    TL_TENSOR_ADD, /* and the rest: reductions into global memory */
    TL_TENSOR_MIN,
    TL_TENSOR_MAX,
    TL_TENSOR_INC,
    TL_TENSOR_DEC,
    TL_TENSOR_AND,
    TL_TENSOR_OR,
    TL_TENSOR_XOR,
    TL_TENSOR_COPY = 0xff,
    TL_TENSOR_RANK_SHIFT = 8,
};

/* What tensormap.replace writes, in the lower byte; which axis in the next.  Values are those of
 * PTX, whose rank counts from 0 and whose types have another order. */
enum tl_tensor_field {
    TL_TENSOR_FIELD_ADDRESS,
    TL_TENSOR_FIELD_RANK,
    TL_TENSOR_FIELD_BOX,
    TL_TENSOR_FIELD_DIM,
    TL_TENSOR_FIELD_STRIDE,
    TL_TENSOR_FIELD_ELEMENT_STRIDE,
    TL_TENSOR_FIELD_TYPE,
    TL_TENSOR_FIELD_INTERLEAVE,
    TL_TENSOR_FIELD_SWIZZLE,
    TL_TENSOR_FIELD_FILL,
    TL_TENSOR_FIELD = 0xff,
    TL_TENSOR_AXIS_SHIFT = 8,
};

#endif
