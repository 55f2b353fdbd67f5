/* Tensor maps: which make sense (CUDA driver API, "Tensor Map Object Management"), and changing
 * them from a kernel (PTX ISA, tensormap.replace). */
#include "device/exec/internal.h"

#include <string.h>

uint32_t tl_exec_tensor_element(uint32_t type)
{
    static const uint8_t bytes[TL_TENSOR_TYPES] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 0, 0, 0};
    return type < TL_TENSOR_TYPES ? bytes[type] : 0;
}

static bool is_float(uint32_t type)
{
    return type >= TL_TENSOR_F16 && type <= TL_TENSOR_TF32_FTZ;
}

/* Bytes in which a row of the box is swizzled; 0: it is not. */
static uint32_t swizzle_bytes(uint32_t swizzle)
{
    static const uint8_t bytes[TL_TENSOR_SWIZZLES] = {0, 32, 64, 128, 128, 128, 128};
    return bytes[swizzle];
}

static bool is_zero(const struct tl_tensor_map *m)
{
    static const struct tl_tensor_map zeroes;
    return memcmp(m, &zeroes, sizeof zeroes) == 0;
}

/* What is wrong with the sizes along one axis. */
static const char *wrong_axis(const struct tl_tensor_map *m, uint32_t i)
{
    uint64_t unit = m->interleave == 2 ? 32 : 16;
    if (i > 0 && (m->stride[i - 1] % unit != 0 || m->stride[i - 1] >= (uint64_t)1 << 40))
        return "a stride is no multiple of 16 (of 32 where channels are interleaved so), or 2^40 "
               "bytes or more";
    if ((i == 0 || m->mode == TL_TENSOR_TILED) && (m->box[i] == 0 || m->box[i] > 256))
        return "a box has 1 to 256 elements along each axis";
    /* a step along the first axis exists only where channels are interleaved */
    if ((i > 0 || m->interleave != 0) && (m->element_stride[i] == 0 || m->element_stride[i] > 8))
        return "the step from element to element is 1 to 8";
    return NULL;
}

/* What is wrong with the corners of a box of im2col, and with how much of it is loaded. */
static const char *wrong_im2col(const struct tl_tensor_map *m)
{
    static const int16_t most[] = {32767, 127, 15}; /* by the number of axes between C and N */
    if (m->rank_minus_1 < 2)
        return "the rank is 3 to 5 with im2col";
    bool is_wide = m->mode != TL_TENSOR_IM2COL;
    uint32_t axes = is_wide ? 1 : m->rank_minus_1 - 1u;
    for (uint32_t i = 0; i < axes; i++) {
        int32_t top = most[axes - 1], lower = m->lower[i], upper = m->upper[i];
        if (lower > top || lower < -top - 1 || upper > top || upper < -top - 1)
            return "the corner of a box of im2col is too far away";
        if ((int64_t)m->dim_minus_1[i + 1] + 1 + upper - lower <= 0)
            return "the box of im2col is empty";
    }
    if (m->mode != TL_TENSOR_IM2COL_W128 && (m->pixels == 0 || m->pixels > 1024))
        return "a column has 1 to 1024 pixels";
    if (is_wide && m->swizzle != TL_TENSOR_SWIZZLE_64B && m->swizzle != TL_TENSOR_SWIZZLE_128B &&
        m->swizzle != TL_TENSOR_SWIZZLE_128B + 1)
        return "wide im2col is swizzled by 64 or 128 bytes, in chunks of up to 32";
    return NULL;
}

/* What is wrong with a row of the box, or of the pixel. */
static const char *wrong_row(const struct tl_tensor_map *m)
{
    uint32_t row = m->box[0] * tl_exec_tensor_element(m->type), width = swizzle_bytes(m->swizzle);
    if (m->interleave == 0 && m->mode == TL_TENSOR_TILED && row % 16 != 0)
        return "a row of the box is no multiple of 16 bytes";
    if (m->interleave == 0 && width != 0 && row > width)
        return "a row of the box is longer than what is swizzled";
    if (m->interleave == 2 && m->swizzle != TL_TENSOR_SWIZZLE_32B)
        return "channels interleaved by 32 bytes are swizzled by 32 bytes";
    return NULL;
}

const char *tl_exec_tensor_wrong(const struct tl_tensor_map *m)
{
    if (m->magic != TL_TENSOR_MAGIC)
        return "these bytes are no tensor map";
    if (m->rank_minus_1 >= TL_TENSOR_MAX_RANK || (m->interleave != 0 && m->rank_minus_1 < 2))
        return "the rank is 1 to 5, 3 to 5 where channels are interleaved";
    if (m->mode >= TL_TENSOR_MODES || m->type >= TL_TENSOR_TYPES || m->interleave > 2 ||
        m->swizzle >= TL_TENSOR_SWIZZLES || m->fill > 1 || m->l2_promotion > 3)
        return "type, interleaving, swizzling, promotion or filling is none of those there are";
    if (m->address % (m->interleave == 2 ? 32 : 16) != 0)
        return "the address is no multiple of 16 (of 32 where channels are interleaved so)";
    for (uint32_t i = 0; i <= m->rank_minus_1; i++) {
        const char *axis = wrong_axis(m, i);
        if (axis != NULL)
            return axis;
    }
    const char *why = m->mode != TL_TENSOR_TILED ? wrong_im2col(m) : NULL;
    why = why == NULL ? wrong_row(m) : why;
    if (why != NULL)
        return why;
    if (m->fill != 0 && !is_float(m->type))
        return "only numbers with a fraction are filled with NaN";
    return NULL;
}

const char *tl_exec_tensor_missing(const struct tl_tensor_map *m)
{
    if (m->type >= TL_TENSOR_F32_FTZ)
        return "a tensor map of elements that are rounded, flushed or packed on the way (f32.ftz, "
               "tf32, u4, u6)";
    if (m->interleave != 0)
        return "a tensor map of interleaved channels";
    if (m->swizzle > TL_TENSOR_SWIZZLE_128B)
        return "a tensor map that swizzles other than chunks of 16 bytes";
    if (m->swizzle != 0 && m->box[0] * tl_exec_tensor_element(m->type) < swizzle_bytes(m->swizzle))
        return "a tensor map whose box has rows shorter than what is swizzled";
    return NULL;
}

/* --- tensormap.replace ------------------------------------------------------------------------ */

/* PTX numbers types in another order than the driver. */
static bool type_of_ptx(uint64_t value, uint8_t *type)
{
    static const uint8_t types[] = {
        TL_TENSOR_U8,       TL_TENSOR_U16, TL_TENSOR_U32,       TL_TENSOR_S32,
        TL_TENSOR_U64,      TL_TENSOR_S64, TL_TENSOR_F16,       TL_TENSOR_F32,
        TL_TENSOR_F32_FTZ,  TL_TENSOR_F64, TL_TENSOR_BF16,      TL_TENSOR_TF32,
        TL_TENSOR_TF32_FTZ, TL_TENSOR_U4,  TL_TENSOR_U4_PADDED, TL_TENSOR_U6_PADDED};
    if (value >= sizeof types)
        return false;
    *type = types[value];
    return true;
}

static bool fits(uint64_t value, uint64_t least, uint64_t most, uint8_t *field)
{
    *field = (uint8_t)value;
    return value >= least && value <= most;
}

/* Whether the field can have that value.  What fields mean together is asked by who copies. */
static bool replace(struct tl_tensor_map *m, uint32_t field, uint32_t axis, uint64_t value)
{
    switch (field) {
    case TL_TENSOR_FIELD_ADDRESS:
        m->address = value;
        return value % 16 == 0;
    case TL_TENSOR_FIELD_RANK:
        return fits(value, 0, TL_TENSOR_MAX_RANK - 1, &m->rank_minus_1);
    case TL_TENSOR_FIELD_BOX:
        m->box[axis] = (uint16_t)value;
        return value >= 1 && value <= 256;
    case TL_TENSOR_FIELD_DIM:
        m->dim_minus_1[axis] = (uint32_t)(value - 1);
        return value != 0;
    case TL_TENSOR_FIELD_STRIDE:
        if (axis == TL_TENSOR_MAX_RANK - 1)
            return false;
        m->stride[axis] = value;
        return value % 16 == 0 && value < (uint64_t)1 << 40;
    case TL_TENSOR_FIELD_ELEMENT_STRIDE:
        return fits(value, 1, 8, &m->element_stride[axis]);
    case TL_TENSOR_FIELD_TYPE:
        return type_of_ptx(value, &m->type);
    case TL_TENSOR_FIELD_INTERLEAVE:
        return fits(value, 0, 2, &m->interleave);
    case TL_TENSOR_FIELD_SWIZZLE:
        return fits(value, 0, TL_TENSOR_SWIZZLE_128B, &m->swizzle);
    case TL_TENSOR_FIELD_FILL:
        return fits(value, 0, 1, &m->fill);
    default:
        return false;
    }
}

void tl__call_tensor_replace(struct tl_dev_frame *f, uint32_t warp, void *map, uint32_t field,
                             uint64_t value)
{
    static const char *const names[] = {
        "global_address", "rank",     "box_dim",           "global_dim",   "global_stride",
        "element_stride", "elemtype", "interleave_layout", "swizzle_mode", "fill_mode"};
    struct tl__engine *e = tl__engine_of(f);
    struct tl_tensor_map m = {0};
    uint32_t axis = field >> TL_TENSOR_AXIS_SHIFT, which = field & TL_TENSOR_FIELD;
    if ((uintptr_t)map % 64 != 0)
        tl__engine_fault(e, warp, TL_DEV_FAULT_MISALIGNED, (uintptr_t)map,
                         "a tensor map at %p, which is no multiple of 64", map);
    tl__copy_kernel(&m, map, sizeof m);
    if (m.magic != TL_TENSOR_MAGIC && !is_zero(&m))
        tl__engine_fault(e, warp, TL_DEV_FAULT_TENSOR, (uintptr_t)map,
                         "tensormap.replace: the bytes at %p are no tensor map", map);
    m.magic = TL_TENSOR_MAGIC;
    if (axis >= TL_TENSOR_MAX_RANK || !replace(&m, which, axis, value))
        tl__engine_fault(e, warp, TL_DEV_FAULT_TENSOR, value,
                         "tensormap.replace: %s of axis %u cannot be %llu", names[which], axis,
                         (unsigned long long)value);
    tl__copy_kernel(map, &m, sizeof m);
}
