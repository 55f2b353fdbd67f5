/* What fetching from a texture means (CUDA programming guide, "Texture fetching"): the addressing
 * mode maps a coordinate into the range, the filter mixes neighbours with weights of eight bits,
 * levels of detail are chosen or mixed in the same way. */
#include "device/driver/array.h"
#include "device/driver/handle.h"
#include "device/driver/texture.h"

#include "device/abi.h"

#include <math.h>
#include <string.h>

/* --- elements --------------------------------------------------------------------------------- */

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

static bool reads_float(const struct tl_drv_texture *o)
{
    bool is_float = o->format == CU_AD_FORMAT_FLOAT || o->format == CU_AD_FORMAT_HALF;
    bool is_wide = tl_drv_format_bytes(o->format) == 4;
    return is_float || ((o->texture.flags & CU_TRSF_READ_AS_INTEGER) == 0 && !is_wide);
}

/* One channel of one element, as float (normalised where the texture reads so) or as raw integer
 * bits. */
static float channel_float(const struct tl_drv_texture *o, const uint8_t *p)
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

static uint32_t channel_bits(const struct tl_drv_texture *o, const uint8_t *p)
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

/* --- places ----------------------------------------------------------------------------------- */

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
static CUaddress_mode mode_of(const struct tl_drv_texture *o, int axis)
{
    CUaddress_mode m = o->texture.addressMode[axis];
    bool needs_normal = m == CU_TR_ADDRESS_MODE_WRAP || m == CU_TR_ADDRESS_MODE_MIRROR;
    return needs_normal && (o->texture.flags & CU_TRSF_NORMALIZED_COORDINATES) == 0
               ? CU_TR_ADDRESS_MODE_CLAMP
               : m;
}

/* One layer, face or volume of one level, which the remaining coordinates lie in. */
struct image {
    const struct tl_drv_texture *o;
    const uint8_t *data;
    size_t sizes[3], strides[3];
    int axes;
    bool is_face; /* of a cube: no addressing mode counts, edges are clamped */
};

static struct image image_of(const struct tl_drv_texture *o, uint32_t level, int axes, size_t layer)
{
    const struct tl_drv_level *l = &o->levels[level < o->n_levels ? level : o->n_levels - 1];
    size_t last = l->depth - 1;
    return (struct image){.o = o,
                          .data = l->data + (layer > last ? last : layer) * l->slice,
                          .sizes = {l->width, l->height, l->depth},
                          .strides = {o->element, l->pitch, l->slice},
                          .axes = axes};
}

/* The element at these indices, or NULL where the border begins. */
static const uint8_t *element_at(const struct image *m, const int64_t i[3])
{
    const uint8_t *p = m->data;
    for (int a = 0; a < m->axes; a++) {
        int64_t at = address(m->is_face ? CU_TR_ADDRESS_MODE_CLAMP : mode_of(m->o, a), i[a],
                             (int64_t)m->sizes[a]);
        if (at < 0)
            return NULL;
        p += (size_t)at * m->strides[a];
    }
    return p;
}

/* --- fetches ---------------------------------------------------------------------------------- */

static void fetch_point(const struct image *m, const int64_t i[3], uint32_t result[4])
{
    const struct tl_drv_texture *o = m->o;
    const uint8_t *p = element_at(m, i);
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
            f = o->texture.borderColor[c];
        } else if (is_float) {
            f = channel_float(o, p + c * bytes);
        } else {
            result[c] = channel_bits(o, p + c * bytes);
        }
        if (is_float)
            memcpy(&result[c], &f, sizeof f);
    }
}

/* The element below and left of a place between elements, and how far it is from there. */
static void split(const struct image *m, const float x[3], int64_t low[3], float weight[3])
{
    for (int a = 0; a < m->axes; a++) {
        float at = x[a] - 0.5f, whole = floorf(at);
        low[a] = (int64_t)whole;
        /* 1.8 fixed point, as the guide says */
        weight[a] = floorf((at - whole) * 256.0f + 0.5f) / 256.0f;
    }
}

static void fetch_linear(const struct image *m, const float x[3], uint32_t result[4])
{
    const struct tl_drv_texture *o = m->o;
    uint32_t bytes = tl_drv_format_bytes(o->format);
    int64_t low[3] = {0};
    float weight[3] = {0}, sum[4] = {0};
    split(m, x, low, weight);
    for (int corner = 0; corner < 1 << m->axes; corner++) {
        int64_t i[3] = {0};
        float w = 1;
        for (int a = 0; a < m->axes; a++) {
            bool is_high = (corner >> a & 1) != 0;
            i[a] = low[a] + is_high;
            w *= is_high ? weight[a] : 1 - weight[a];
        }
        if (w == 0)
            continue;
        const uint8_t *p = element_at(m, i);
        for (uint32_t c = 0; c < o->channels; c++)
            sum[c] += w * (p != NULL ? channel_float(o, p + c * bytes) : o->texture.borderColor[c]);
    }
    if (o->channels < 4)
        sum[3] = 1;
    memcpy(result, sum, sizeof sum);
}

/* The four that a filter would mix, counterclockwise from the upper left one (PTX ISA, tld4). */
static void fetch_gather(const struct image *m, const float x[3], uint32_t channel,
                         uint32_t result[4])
{
    static const int corner[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    int64_t low[3] = {0};
    float weight[3];
    split(m, x, low, weight);
    for (int k = 0; k < 4; k++) {
        int64_t i[3] = {low[0] + corner[k][0], low[1] + corner[k][1], 0};
        uint32_t all[4];
        fetch_point(m, i, all);
        result[k] = all[channel];
    }
}

/* At a float coordinate of one level. */
static void fetch_at(struct image m, const float at[3], uint32_t kind, uint32_t result[4])
{
    const struct tl_drv_texture *o = m.o;
    bool is_normal = (o->texture.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0 || m.is_face;
    float x[3] = {0};
    for (int a = 0; a < m.axes; a++) {
        x[a] = is_normal ? at[a] * (float)m.sizes[a] : at[a];
        if (!(fabsf(x[a]) < 1e9f))
            x[a] = 0;
    }
    if ((kind & TL_DEV_TEX_GATHER) != 0) {
        fetch_gather(&m, x, kind >> TL_DEV_TEX_CHANNEL_SHIFT & 3, result);
    } else if (o->texture.filterMode == CU_TR_FILTER_MODE_LINEAR && reads_float(o)) {
        fetch_linear(&m, x, result);
    } else {
        int64_t i[3] = {0};
        for (int a = 0; a < m.axes; a++)
            i[a] = (int64_t)floorf(x[a]);
        fetch_point(&m, i, result);
    }
}

/* Which face a direction meets, and where (programming guide, "Cubemap Textures"). */
static uint32_t face_of(const float d[3], float at[3])
{
    static const struct {
        int s, t;
        float s_sign, t_sign;
    } faces[6] = {{2, 1, -1, -1}, {2, 1, 1, -1}, {0, 2, 1, 1},
                  {0, 2, 1, -1},  {0, 1, 1, -1}, {0, 1, -1, -1}};
    int axis = fabsf(d[0]) >= fabsf(d[1]) && fabsf(d[0]) >= fabsf(d[2]) ? 0
               : fabsf(d[1]) >= fabsf(d[2])                             ? 1
                                                                        : 2;
    uint32_t face = 2 * (uint32_t)axis + (signbit(d[axis]) != 0);
    float major = fabsf(d[axis]);
    at[0] = (faces[face].s_sign * d[faces[face].s] / major + 1) / 2;
    at[1] = (faces[face].t_sign * d[faces[face].t] / major + 1) / 2;
    return face;
}

/* Two levels mixed, or the nearest one. */
static void fetch_level(const struct tl_drv_texture *o, float level, int axes, size_t layer,
                        bool is_face, const float at[3], uint32_t kind, uint32_t result[4])
{
    const CUDA_TEXTURE_DESC *t = &o->texture;
    float most = fminf(t->maxMipmapLevelClamp, (float)(o->n_levels - 1));
    level = fmaxf(fminf(level + t->mipmapLevelBias, most), fmaxf(t->minMipmapLevelClamp, 0));
    bool is_mixed = t->mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR && reads_float(o);
    float low = is_mixed ? floorf(level) : floorf(level + 0.5f),
          weight = is_mixed ? level - low : 0;
    struct image m = image_of(o, (uint32_t)low, axes, layer);
    m.is_face = is_face;
    fetch_at(m, at, kind, result);
    if (weight == 0)
        return;
    uint32_t above[4];
    m = image_of(o, (uint32_t)low + 1, axes, layer);
    m.is_face = is_face;
    fetch_at(m, at, kind, above);
    for (int c = 0; c < 4; c++) {
        float x, y;
        memcpy(&x, &result[c], sizeof x);
        memcpy(&y, &above[c], sizeof y);
        x += (y - x) * weight;
        memcpy(&result[c], &x, sizeof x);
    }
}

/* The level at which a step to the next pixel is a step to the next element, by the longer of the
 * two steps. */
static float level_of(const struct tl_drv_texture *o, const uint32_t *gradient, int axes)
{
    const struct tl_drv_level *l = &o->levels[0];
    const size_t sizes[3] = {l->width, l->height, l->depth};
    bool is_normal = (o->texture.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    float longest = 0;
    for (int d = 0; d < 2; d++) {
        float sum = 0;
        for (int a = 0; a < axes; a++) {
            float x;
            memcpy(&x, &gradient[3 * d + a], sizeof x);
            x *= is_normal ? (float)sizes[a] : 1;
            sum += x * x;
        }
        longest = fmaxf(longest, sqrtf(sum));
    }
    return longest > 0 ? log2f(longest) : -126; /* closer than any level is the first one */
}

/* What a texture instruction of a kernel reads.  Layers and faces come first among the
 * coordinates; a level, or what one follows from, behind them. */
void tl_drv_tex(uint64_t handle, uint32_t kind, uint32_t is_float, const uint32_t *coords,
                uint32_t result[4])
{
    const struct tl_drv_texture *o = tl_drv_pointer((uintptr_t)handle);
    uint32_t geometry = kind & TL_DEV_TEX_GEOMETRY;
    bool has_layer = geometry == TL_DEV_TEX_A1D || geometry == TL_DEV_TEX_A2D ||
                     geometry == TL_DEV_TEX_ACUBE;
    bool is_cube = geometry == TL_DEV_TEX_CUBE || geometry == TL_DEV_TEX_ACUBE;
    int axes = geometry == TL_DEV_TEX_1D || geometry == TL_DEV_TEX_A1D ? 1
               : geometry == TL_DEV_TEX_3D                             ? 3
                                                                       : 2;
    const uint32_t *rest = has_layer ? coords + 1 : coords;
    size_t layer = has_layer ? (int32_t)coords[0] < 0 ? 0 : coords[0] : 0;
    memset(result, 0, 4 * sizeof *result);
    if (geometry == TL_DEV_TEX_QUERY) {
        const struct tl_drv_level *l = &o->levels[0];
        const size_t sizes[4] = {l->width, l->height, l->depth, l->depth};
        for (int i = 0; i < 4; i++)
            result[i] = (uint32_t)sizes[i];
        return;
    }
    float at[3] = {0}, level = 0;
    /* integer coordinates: no filter; outside is clamped, or zero in linear memory */
    if (!is_float) {
        int64_t i[3] = {0};
        for (int a = 0; a < axes; a++)
            i[a] = (int32_t)rest[a];
        if (o->is_linear && (i[0] < 0 || i[0] >= (int64_t)o->levels[0].width))
            return;
        struct image m = image_of(o, (kind & TL_DEV_TEX_LEVEL) != 0 ? coords[3] : 0, axes, layer);
        fetch_point(&m, i, result);
        return;
    }
    memcpy(at, rest, sizeof(float) * (is_cube ? 3 : (size_t)axes));
    if ((kind & TL_DEV_TEX_LEVEL) != 0)
        memcpy(&level, &coords[3], sizeof level);
    if ((kind & TL_DEV_TEX_GRAD) != 0)
        level = level_of(o, coords + 4, axes);
    if (is_cube) {
        float direction[3] = {at[0], at[1], at[2]};
        layer = layer * 6 + face_of(direction, at);
    }
    fetch_level(o, level, axes, layer, is_cube, at, kind, result);
}

/* x counts bytes, the other coordinates elements. */
bool tl_drv_surf(uint64_t handle, uint32_t kind, uint32_t is_store, const int32_t coords[4],
                 uint32_t bytes, uint32_t outside, uint32_t data[4])
{
    const struct tl_drv_texture *o = tl_drv_pointer((uintptr_t)handle);
    const struct tl_drv_level *l = &o->levels[0];
    bool has_layer = kind == TL_DEV_TEX_A1D || kind == TL_DEV_TEX_A2D;
    int64_t layer = has_layer ? coords[0] : kind == TL_DEV_TEX_3D ? coords[2] : 0;
    const int32_t *c = has_layer ? coords + 1 : coords;
    int64_t x = c[0], y = kind == TL_DEV_TEX_1D || kind == TL_DEV_TEX_A1D ? 0 : c[1];
    int64_t width = (int64_t)(l->width * o->element), height = (int64_t)l->height,
            depth = (int64_t)l->depth;
    if (x < 0 || x + bytes > width || y < 0 || y >= height || layer < 0 || layer >= depth) {
        if (outside != TL_DEV_SURF_CLAMP) {
            if (!is_store)
                memset(data, 0, bytes);
            return outside == TL_DEV_SURF_ZERO;
        }
        x = x < 0 ? 0 : x + bytes > width ? width - bytes : x;
        y = y < 0 ? 0 : y >= height ? height - 1 : y;
        layer = layer < 0 ? 0 : layer >= depth ? depth - 1 : layer;
    }
    uint8_t *p = l->data + (size_t)layer * l->slice + (size_t)y * l->pitch + (size_t)x;
    if (is_store)
        memcpy(p, data, bytes);
    else
        memcpy(data, p, bytes);
    return true;
}
