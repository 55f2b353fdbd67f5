/* Textures and surfaces as objects, and what fetching from one means (CUDA programming guide, "Texture fetching"): the
 * addressing mode maps a coordinate into the range, the filter mixes neighbours with weights of eight bits. */
#include "device/driver_array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Kinds as in abi.h. */
enum { KIND_1D, KIND_2D, KIND_3D, KIND_A1D, KIND_A2D };

/* What a handle points at.  Immutable once created. */
struct object {
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    bool has_view;
    const uint8_t *data;
    size_t width, height, depth, pitch, slice; /* in elements, in bytes */
    CUarray_format format;
    uint32_t channels, element;
    bool is_linear; /* 1-D linear memory: integer coordinates only, outside is zero */
};

static struct object *object_of(uint64_t handle)
{
    return tl_drv_pointer((uintptr_t)handle);
}

static CUresult describe(struct object *o)
{
    const CUDA_RESOURCE_DESC *d = &o->resource;
    CUarray array = d->res.array.hArray;
    switch (d->resType) {
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        if (cuMipmappedArrayGetLevel(&array, d->res.mipmap.hMipmappedArray, 0) != CUDA_SUCCESS)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_RESOURCE_TYPE_ARRAY:
        break;
    case CU_RESOURCE_TYPE_LINEAR:
        o->format = d->res.linear.format;
        o->channels = d->res.linear.numChannels;
        o->element = tl_drv_format_bytes(o->format) * o->channels;
        if (o->element == 0)
            return CUDA_ERROR_INVALID_VALUE;
        o->data = tl_drv_pointer(d->res.linear.devPtr);
        o->width = d->res.linear.sizeInBytes / o->element;
        o->height = o->depth = 1;
        o->pitch = o->slice = d->res.linear.sizeInBytes;
        o->is_linear = true;
        return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_PITCH2D:
        o->format = d->res.pitch2D.format;
        o->channels = d->res.pitch2D.numChannels;
        o->element = tl_drv_format_bytes(o->format) * o->channels;
        o->data = tl_drv_pointer(d->res.pitch2D.devPtr);
        o->width = d->res.pitch2D.width;
        o->height = d->res.pitch2D.height;
        o->depth = 1;
        o->pitch = d->res.pitch2D.pitchInBytes;
        o->slice = o->pitch * o->height;
        return o->element != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (array == NULL || array->magic != TL_DRV_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    o->format = array->desc.Format;
    o->channels = array->desc.NumChannels;
    o->element = array->element_bytes;
    o->data = array->data;
    o->width = array->desc.Width;
    o->height = array->height;
    o->depth = array->depth;
    o->pitch = array->pitch;
    o->slice = array->slice;
    return CUDA_SUCCESS;
}

/* --- fetching ---------------------------------------------------------------------------------------------------- */

static float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff, bits;
    float f;
    if (e == 0) {
        f = ldexpf((float)m, -24);
        return sign != 0 ? -f : f;
    }
    bits = e == 31 ? sign | 0x7f800000u | m << 13 : sign | (e + 112) << 23 | m << 13;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static bool reads_float(const struct object *o)
{
    bool is_float = o->format == CU_AD_FORMAT_FLOAT || o->format == CU_AD_FORMAT_HALF;
    bool is_wide = tl_drv_format_bytes(o->format) == 4;
    return is_float || ((o->texture.flags & CU_TRSF_READ_AS_INTEGER) == 0 && !is_wide);
}

/* One channel of one element, as float (normalised where the texture reads so) or as raw integer bits. */
static float channel_float(const struct object *o, const uint8_t *p)
{
    switch (o->format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
        return (float)*p / 255.0f;
    case CU_AD_FORMAT_SIGNED_INT8:
        return fmaxf((float)(int8_t)*p / 127.0f, -1.0f);
    case CU_AD_FORMAT_UNSIGNED_INT16:
        return (float)*(const uint16_t *)(const void *)p / 65535.0f;
    case CU_AD_FORMAT_SIGNED_INT16:
        return fmaxf((float)*(const int16_t *)(const void *)p / 32767.0f, -1.0f);
    case CU_AD_FORMAT_HALF:
        return half_to_float(*(const uint16_t *)(const void *)p);
    default: {
        float f;
        memcpy(&f, p, sizeof f);
        return f;
    }
    }
}

static uint32_t channel_bits(const struct object *o, const uint8_t *p)
{
    switch (o->format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
        return *p;
    case CU_AD_FORMAT_SIGNED_INT8:
        return (uint32_t)(int32_t)(int8_t)*p;
    case CU_AD_FORMAT_UNSIGNED_INT16:
        return *(const uint16_t *)(const void *)p;
    case CU_AD_FORMAT_SIGNED_INT16:
        return (uint32_t)(int32_t) * (const int16_t *)(const void *)p;
    default: {
        uint32_t v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    }
}

/* Maps an index into [0, n); -1 for the border. */
static int64_t address(CUaddress_mode mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    switch (mode) {
    case CU_TR_ADDRESS_MODE_WRAP:
        i %= n;
        return i < 0 ? i + n : i;
    case CU_TR_ADDRESS_MODE_MIRROR:
        i %= 2 * n;
        i = i < 0 ? i + 2 * n : i;
        return i < n ? i : 2 * n - 1 - i;
    case CU_TR_ADDRESS_MODE_BORDER:
        return -1;
    default:
        return i < 0 ? 0 : n - 1;
    }
}

/* Wrapping and mirroring exist for normalised coordinates only; else they clamp. */
static CUaddress_mode mode_of(const struct object *o, int axis)
{
    CUaddress_mode m = o->texture.addressMode[axis];
    bool needs_normal = m == CU_TR_ADDRESS_MODE_WRAP || m == CU_TR_ADDRESS_MODE_MIRROR;
    return needs_normal && (o->texture.flags & CU_TRSF_NORMALIZED_COORDINATES) == 0 ? CU_TR_ADDRESS_MODE_CLAMP : m;
}

/* The element at these indices, or NULL where the border begins. */
static const uint8_t *element_at(const struct object *o, const int64_t i[3], int axes)
{
    const size_t sizes[3] = {o->width, o->height, o->depth};
    const size_t strides[3] = {o->element, o->pitch, o->slice};
    const uint8_t *p = o->data;
    for (int a = 0; a < axes; a++) {
        int64_t at = address(mode_of(o, a), i[a], (int64_t)sizes[a]);
        if (at < 0)
            return NULL;
        p += (size_t)at * strides[a];
    }
    return p;
}

static float border_float(const struct object *o, uint32_t c)
{
    return o->texture.borderColor[c];
}

static void fetch_point(const struct object *o, const uint8_t *p, uint32_t result[4])
{
    uint32_t bytes = tl_drv_format_bytes(o->format);
    bool is_float = reads_float(o);
    for (uint32_t c = 0; c < 4; c++) {
        float f = 0;
        result[c] = 0;
        if (c >= o->channels) {
            if (c == 3 && is_float)
                f = 1; /* what is not there: 0, 0, 0, 1 */
            if (c == 3 && !is_float)
                result[c] = 1;
        } else if (p == NULL) {
            f = border_float(o, c);
        } else if (is_float) {
            f = channel_float(o, p + c * bytes);
        } else {
            result[c] = channel_bits(o, p + c * bytes);
        }
        if (is_float)
            memcpy(&result[c], &f, sizeof f);
    }
}

static void fetch_linear(const struct object *o, const float x[3], int axes, const uint8_t *layer, uint32_t result[4])
{
    uint32_t bytes = tl_drv_format_bytes(o->format);
    struct object base = *o;
    int64_t low[3] = {0};
    float weight[3] = {0}, sum[4] = {0};
    base.data = layer;
    for (int a = 0; a < axes; a++) {
        float at = x[a] - 0.5f, whole = floorf(at);
        low[a] = (int64_t)whole;
        weight[a] = floorf((at - whole) * 256.0f + 0.5f) / 256.0f; /* 1.8 fixed point, as the guide says */
    }
    for (int corner = 0; corner < 1 << axes; corner++) {
        int64_t i[3] = {0};
        float w = 1;
        for (int a = 0; a < axes; a++) {
            bool is_high = (corner >> a & 1) != 0;
            i[a] = low[a] + is_high;
            w *= is_high ? weight[a] : 1 - weight[a];
        }
        if (w == 0)
            continue;
        const uint8_t *p = element_at(&base, i, axes);
        for (uint32_t c = 0; c < o->channels; c++)
            sum[c] += w * (p != NULL ? channel_float(o, p + c * bytes) : border_float(o, c));
    }
    if (o->channels < 4)
        sum[3] = 1;
    memcpy(result, sum, sizeof sum);
}

void tl_drv_tex(uint64_t handle, uint32_t kind, uint32_t is_float, const uint32_t coords[4], uint32_t result[4])
{
    const struct object *o = object_of(handle);
    bool has_layer = kind == KIND_A1D || kind == KIND_A2D;
    int axes = kind == KIND_1D || kind == KIND_A1D ? 1 : kind == KIND_3D ? 3 : 2;
    const uint8_t *data = o->data;
    const size_t sizes[3] = {o->width, o->height, o->depth};
    memset(result, 0, 4 * sizeof *result);
    if (has_layer) {
        uint32_t last = (uint32_t)(o->depth - 1);
        data += (coords[0] > last ? last : coords[0]) * o->slice;
        coords++;
    }
    if (!is_float) { /* integer coordinates: no filter; outside is clamped, or zero in linear memory */
        int64_t i[3] = {0};
        for (int a = 0; a < axes; a++)
            i[a] = (int32_t)coords[a];
        if (o->is_linear && (i[0] < 0 || i[0] >= (int64_t)o->width))
            return;
        struct object base = *o;
        base.data = data;
        fetch_point(o, element_at(&base, i, axes), result);
        return;
    }
    float x[3] = {0};
    for (int a = 0; a < axes; a++) {
        memcpy(&x[a], &coords[a], sizeof x[a]);
        if ((o->texture.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0)
            x[a] *= (float)sizes[a];
        if (!(fabsf(x[a]) < 1e9f))
            x[a] = 0;
    }
    if (o->texture.filterMode == CU_TR_FILTER_MODE_LINEAR && reads_float(o)) {
        fetch_linear(o, x, axes, data, result);
    } else {
        int64_t i[3] = {0};
        for (int a = 0; a < axes; a++)
            i[a] = (int64_t)floorf(x[a]);
        struct object base = *o;
        base.data = data;
        fetch_point(o, element_at(&base, i, axes), result);
    }
}

/* x counts bytes, the other coordinates elements. */
void tl_drv_surf(uint64_t handle, uint32_t kind, uint32_t is_store, const int32_t coords[4], uint32_t bytes,
                 uint32_t clamp, uint32_t data[4])
{
    const struct object *o = object_of(handle);
    bool has_layer = kind == KIND_A1D || kind == KIND_A2D;
    int64_t layer = has_layer ? coords[0] : kind == KIND_3D ? coords[2] : 0;
    const int32_t *c = has_layer ? coords + 1 : coords;
    int64_t x = c[0], y = kind == KIND_1D || kind == KIND_A1D ? 0 : c[1];
    int64_t width = (int64_t)(o->width * o->element);
    if (x < 0 || x + bytes > width || y < 0 || y >= (int64_t)o->height || layer < 0 || layer >= (int64_t)o->depth) {
        if (clamp == 0 || is_store) {
            if (!is_store)
                memset(data, 0, bytes);
            return;
        }
        x = x < 0 ? 0 : x + bytes > width ? width - bytes : x;
        y = y < 0 ? 0 : y >= (int64_t)o->height ? (int64_t)o->height - 1 : y;
        layer = layer < 0 ? 0 : layer >= (int64_t)o->depth ? (int64_t)o->depth - 1 : layer;
    }
    uint8_t *p = tl_drv_pointer((uintptr_t)o->data);
    p += (size_t)layer * o->slice + (size_t)y * o->pitch + (size_t)x;
    if (is_store)
        memcpy(p, data, bytes);
    else
        memcpy(data, p, bytes);
}

/* --- the calls --------------------------------------------------------------------------------------------------- */

static CUresult make(uint64_t *out, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
                     const CUDA_RESOURCE_VIEW_DESC *view)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (out == NULL || resource == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct object *o = calloc(1, sizeof *o);
    if (o == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    o->resource = *resource;
    if (texture != NULL)
        o->texture = *texture;
    o->has_view = view != NULL;
    if (view != NULL)
        o->view = *view;
    r = describe(o);
    if (r != CUDA_SUCCESS) {
        free(o);
        return r;
    }
    *out = (uintptr_t)o;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                           const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    uint64_t handle = 0;
    if (pTexObject == NULL || pTexDesc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = make(&handle, pResDesc, pTexDesc, pResViewDesc);
    *pTexObject = handle;
    return r;
}

CUresult cuTexObjectDestroy(CUtexObject texObject)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS || texObject == 0)
        return r;
    tl_drv_context_wait(ctx); /* kernels under way may still fetch from it */
    free(object_of(texObject));
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    if (pResDesc == NULL || texObject == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pResDesc = object_of(texObject)->resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    if (pTexDesc == NULL || texObject == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pTexDesc = object_of(texObject)->texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc, CUtexObject texObject)
{
    if (pResViewDesc == NULL || texObject == 0 || !object_of(texObject)->has_view)
        return CUDA_ERROR_INVALID_VALUE;
    *pResViewDesc = object_of(texObject)->view;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
    uint64_t handle = 0;
    if (pSurfObject == NULL || pResDesc == NULL || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = make(&handle, pResDesc, NULL, NULL);
    *pSurfObject = handle;
    return r;
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
    return cuTexObjectDestroy(surfObject);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
    return cuTexObjectGetResourceDesc(pResDesc, surfObject);
}
