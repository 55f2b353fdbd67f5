/* Textures and surfaces alone: what a kernel asks for must reach whoever answers, and the answer
 * the right lanes.
 *
 * The answers are made up from all that was asked, so that nothing can be mixed up without being
 * seen; what a fetch means is tested elsewhere (driver_texture_test,
 * workloads/cuda/textures*.cu). */
#include "device/abi.h"
#include "test/unit/device/jit/op.h"

#include <string.h>

static uint32_t mixed(uint64_t handle, uint32_t kind, const uint32_t *coords, uint32_t n,
                      uint32_t which)
{
    uint64_t z = handle * 0x9E3779B97F4A7C15ull + kind;
    for (uint32_t i = 0; i < n; i++)
        z = (z ^ coords[i]) * 0xBF58476D1CE4E5B9ull;
    return (uint32_t)(z >> 20) + which * 0x01010101u;
}

static uint32_t n_coords(uint32_t kind)
{
    static const uint8_t n[] = {1, 2, 3, 2, 3, 3, 4, 0};
    return n[kind & TL_DEV_TEX_GEOMETRY];
}

void op_texture_fetch(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_float,
                      const uint32_t *coords, uint32_t result[4])
{
    (void)f;
    bool has_gradient = (kind & TL_DEV_TEX_GRAD) != 0, has_level = (kind & TL_DEV_TEX_LEVEL) != 0;
    uint32_t n = has_gradient ? 10 : has_level ? 4 : n_coords(kind), given[10] = {0};
    memcpy(given, coords, n_coords(kind) * sizeof *given);
    if (has_level)
        given[3] = coords[3];
    if (has_gradient)
        memcpy(given + 4, coords + 4, 6 * sizeof *given);
    for (uint32_t i = 0; i < 4; i++)
        result[i] = mixed(handle, kind + 1000 * is_float, given, n, i);
}

/* A surface is eight bytes that the handle is the address of. */
void op_texture_surface(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_store,
                        const int32_t coords[4], uint32_t bytes, uint32_t outside, uint32_t data[4])
{
    uint32_t given[4] = {0};
    (void)f, (void)is_store;
    memcpy(given, coords, n_coords(kind) * sizeof *given);
    for (uint32_t i = 0; i < 4; i++)
        data[i] = mixed(handle, kind + 100 * outside + 1000 * bytes, given, n_coords(kind), i);
}

/* --- references ------------------------------------------------------------------------------- */

static uint32_t kind_of(const struct op *o)
{
    static const char *const names[] = {"1d", "2d", "3d", "a1d", "a2d", "cube", "acube"};
    uint32_t kind = TL_DEV_TEX_QUERY;
    for (uint32_t i = 0; i < 7; i++)
        kind = op_has(o, names[i]) ? i : kind;
    if (op_is(o, "tld4"))
        kind |= TL_DEV_TEX_GATHER | (op_has(o, "a") ? 3u : 0) << TL_DEV_TEX_CHANNEL_SHIFT;
    if (op_has(o, "grad"))
        kind |= TL_DEV_TEX_GRAD;
    return op_has(o, "level") ? kind | TL_DEV_TEX_LEVEL : kind;
}

/* Operands are reused: of two axes {b, c} and {a, c}, of one {b} and {a}. */
static void fetch_by_gradient(const struct op *o, const uint64_t *in, uint64_t *out)
{
    bool is_line = op_has(o, "1d");
    uint32_t kind = kind_of(o), coords[10] = {(uint32_t)in[1]};
    coords[1] = is_line ? 0 : (uint32_t)in[2];
    coords[4] = (uint32_t)in[2];
    coords[5] = is_line ? 0 : (uint32_t)in[3];
    coords[7] = (uint32_t)in[is_line ? 3 : 1];
    coords[8] = is_line ? 0 : (uint32_t)in[3];
    out[0] = mixed(in[0], kind + 1000, coords, 10, 0);
    out[1] = mixed(in[0], kind + 1000, coords, 10, 3);
}

static void fetch(const struct op *o, const uint64_t *in, uint64_t *out)
{
    uint32_t kind = kind_of(o), coords[4] = {0};
    for (uint32_t i = 1; i < o->n_sources; i++)
        coords[op_has(o, "level") && i == o->n_sources - 1 ? 3 : i - 1] = (uint32_t)in[i];
    bool is_float = o->types[o->n_types - 1].kind == 'f';
    uint32_t n = op_has(o, "level") ? 4 : n_coords(kind);
    out[0] = mixed(in[0], kind + (is_float ? 1000 : 0), coords, n, 0);
    out[1] = mixed(in[0], kind + (is_float ? 1000 : 0), coords, n, 3);
}

static void query(const struct op *o, const uint64_t *in, uint64_t *out)
{
    out[0] = mixed(in[0], TL_DEV_TEX_QUERY, NULL, 0, op_has(o, "height") ? 1 : 0);
}

static void load(const struct op *o, const uint64_t *in, uint64_t *out)
{
    uint32_t coords[4] = {0}, bytes = o->types[0].bits / 8 * (op_has(o, "v2") ? 2 : 1), words[4];
    uint32_t outside = op_has(o, "clamp")  ? TL_DEV_SURF_CLAMP
                       : op_has(o, "zero") ? TL_DEV_SURF_ZERO
                                           : TL_DEV_SURF_TRAP;
    for (uint32_t i = 1; i < o->n_sources; i++)
        coords[i - 1] = (uint32_t)in[i];
    for (uint32_t i = 0; i < 4; i++)
        words[i] = mixed(in[0], kind_of(o) + 100 * outside + 1000 * bytes, coords,
                         n_coords(kind_of(o)), i);
    for (uint32_t i = 0; i < o->n_results; i++)
        memcpy(&out[i], (uint8_t *)words + i * (o->types[0].bits / 8), o->types[0].bits / 8);
}

#define FETCH(form, sources, coords, more)                                                         \
    {                                                                                              \
        form, "b32,b32=b64," sources, fetch, 0, 0, form " {$0, _, _, $1}, [$2, {" coords "}]" more \
    }

const struct op_row op_texture_rows[] = {
    FETCH("tex.1d.v4.f32.s32", "s32", "$3", ""),
    FETCH("tex.1d.v4.u32.s32", "s32", "$3", ""),
    FETCH("tex.1d.v4.s32.f32", "f32", "$3", ""),
    FETCH("tex.2d.v4.f32.f32", "f32,f32", "$3, $4", ""),
    FETCH("tex.2d.v4.u32.s32", "s32,s32", "$3, $4", ""),
    FETCH("tex.3d.v4.f32.f32", "f32,f32,f32", "$3, $4, $5, $5", ""),
    FETCH("tex.a1d.v4.f32.f32", "u32,f32", "$3, $4", ""),
    FETCH("tex.a2d.v4.f32.f32", "u32,f32,f32", "$3, $4, $5, $5", ""),
    FETCH("tex.cube.v4.f32.f32", "f32,f32,f32", "$3, $4, $5, $5", ""),
    FETCH("tex.level.2d.v4.f32.f32", "f32,f32,f32", "$3, $4", ", $5"),
    {"tex.grad.1d.v4.f32.f32", "b32,b32=b64,f32,f32,f32", fetch_by_gradient, 0, 0,
     "tex.grad.1d.v4.f32.f32 {$0, _, _, $1}, [$2, {$3}], {$4}, {$5}"},
    {"tex.grad.2d.v4.f32.f32", "b32,b32=b64,f32,f32,f32", fetch_by_gradient, 0, 0,
     "tex.grad.2d.v4.f32.f32 {$0, _, _, $1}, [$2, {$3, $4}], {$4, $5}, {$3, $5}"},
    FETCH("tld4.r.2d.v4.f32.f32", "f32,f32", "$3, $4", ""),
    FETCH("tld4.a.2d.v4.u32.f32", "f32,f32", "$3, $4", ""),
    {"txq.width.b32", "b32=b64", query, 0, 0, "txq.width.b32 $0, [$1]"},
    {"txq.height.b32", "b32=b64", query, 0, 0, "txq.height.b32 $0, [$1]"},
    {"suq.width.b32", "b32=b64", query, 0, 0, "suq.width.b32 $0, [$1]"},
    {"suld.b.1d.b32.clamp", "b32=b64,s32", load, 0, 0, "suld.b.1d.b32.clamp {$0}, [$1, {$2}]"},
    {"suld.b.2d.b16.trap", "b16=b64,s32,s32", load, 0, 0,
     "suld.b.2d.b16.trap {$0}, [$1, {$2, $3}]"},
    {"suld.b.2d.v2.b64.zero", "b64,b64=b64,s32,s32", load, 0, 0,
     "suld.b.2d.v2.b64.zero {$0, $1}, [$2, {$3, $4}]"},
    {"suld.b.a2d.v2.b32.zero", "b32,b32=b64,s32,s32,s32", load, 0, 0,
     "suld.b.a2d.v2.b32.zero {$0, $1}, [$2, {$3, $4, $5, $5}]"},
    {NULL, NULL, NULL, 0, 0, NULL},
};
