/* What lanes do to each other: warp-wide operations and atomics, a whole warp at a time against
 * references that see it all.
 *
 * Of op k, lane i has a in[(k * 4 + 0) * OP_LANES + i], b and c behind; results are at out[(k * 3 +
 * 0) * OP_LANES + i] and (k * 3 + 1); an atomic's memory is at (k * 3 + 2), eight cells for 32
 * lanes, so that lanes meet. */
#include "test/unit/device/jit/op.h"

#include <stdio.h>
#include <string.h>

enum { CELLS = 8 };
static const uint32_t some_lanes = 0x005a3c96; /* of the first 24 */

/* What a reference sees. */
struct warp {
    const uint64_t *a, *b, *c;
    uint32_t members;
};

struct warp_row {
    const char *
        /* $a, $b, $c of 32 bits, $A of 64, $p predicate, $m members, $0 result of 32 bits, $1
         * predicate */
        text;
    void (*reference)(const struct warp_row *r, const struct warp *w, uint32_t lane,
                      uint64_t out[2]);
    char kind;
    int b, c; /* of shuffles with immediates; -1: registers */
};

#define NOTHING UINT64_MAX /* a result that PTX leaves open */

static uint32_t lowest(uint32_t mask)
{
    return (uint32_t)__builtin_ctz(mask);
}

static void shuffle(const struct warp_row *r, const struct warp *w, uint32_t lane, uint64_t out[2])
{
    uint32_t b = (r->b < 0 ? (uint32_t)w->b[lane] : (uint32_t)r->b) & 31,
             c = r->c < 0 ? (uint32_t)w->c[lane] : (uint32_t)r->c;
    uint32_t segment = c >> 8 & 31, most = (lane & segment) | (c & 31 & ~segment),
             least = lane & segment;
    int j = r->kind == 'u'   ? (int)lane - (int)b
            : r->kind == 'd' ? (int)(lane + b)
            : r->kind == 'b' ? (int)(lane ^ b)
                             : (int)(least | (b & ~segment));
    out[1] = r->kind == 'u' ? j >= (int)most : j <= (int)most;
    uint32_t from = out[1] ? (uint32_t)j : lane;
    out[0] = w->members >> from & 1 ? w->a[from] & UINT32_MAX : NOTHING;
}

static uint32_t votes(const struct warp *w)
{
    uint32_t r = 0;
    for (uint32_t i = 0; i < 32; i++)
        r |= (uint32_t)(w->a[i] & 1) << i;
    return r & w->members;
}

static void vote(const struct warp_row *r, const struct warp *w, uint32_t lane, uint64_t out[2])
{
    uint32_t v = votes(w);
    (void)lane;
    out[0] = r->kind == 'B' ? v : NOTHING;
    out[1] = r->kind == 'a'   ? v == w->members
             : r->kind == 'y' ? v != 0
             : r->kind == 'u' ? v == 0 || v == w->members
                              : NOTHING;
}

static void match(const struct warp_row *r, const struct warp *w, uint32_t lane, uint64_t out[2])
{
    uint64_t mask = strstr(r->text, "b64") != NULL ? UINT64_MAX : UINT32_MAX;
    uint32_t same = 0, from = r->kind == 'a' ? lowest(w->members) : lane;
    for (uint32_t i = 0; i < 32; i++)
        same |= (uint32_t)(((w->a[i] ^ w->a[from]) & mask) == 0) << i;
    same &= w->members;
    out[0] = r->kind == 'a' && same != w->members ? 0 : same;
    out[1] = r->kind == 'a' ? same == w->members : NOTHING;
}

/* What redux.sync gives, by folding the members' numbers one after the other. */
static void redux(const struct warp_row *r, const struct warp *w, uint32_t lane, uint64_t out[2])
{
    uint32_t v = (uint32_t)w->a[lowest(w->members)];
    (void)lane;
    for (uint32_t i = lowest(w->members) + 1; i < 32; i++) {
        uint32_t x = (uint32_t)w->a[i];
        if (!(w->members >> i & 1))
            continue;
        switch (r->kind) {
        case '+':
            v += x;
            break;
        case '&':
            v &= x;
            break;
        case '|':
            v |= x;
            break;
        case '^':
            v ^= x;
            break;
        case 'u':
            v = x < v ? x : v;
            break;
        case 'U':
            v = x > v ? x : v;
            break;
        case 's':
            v = (int32_t)x < (int32_t)v ? x : v;
            break;
        default:
            v = (int32_t)x > (int32_t)v ? x : v;
            break;
        }
    }
    out[0] = v;
    out[1] = NOTHING;
}

/* kind: 'm' smallest, 'M' largest; the text tells the rest. */
static void redux_float(const struct warp_row *r, const struct warp *w, uint32_t lane,
                        uint64_t out[2])
{
    static const struct op_type f32 = {"f32", 'f', 32, 1, 32};
    bool keeps_nan = strstr(r->text, ".NaN") != NULL, is_abs = strstr(r->text, ".abs") != NULL,
         is_min = r->kind == 'm';
    uint32_t best = 0x7fffffff;
    bool has_nan = false;
    (void)lane;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t x = (uint32_t)w->a[i] & (is_abs ? 0x7fffffffu : UINT32_MAX);
        if (!(w->members >> i & 1))
            continue;
        if (op_is_nan(&f32, x)) {
            has_nan = true;
            continue;
        }
        double a = op_float(&f32, x), b = op_float(&f32, best);
        bool is_less = a != b ? a < b : (x >> 31) > (best >> 31); /* -0 is below +0 */
        if (op_is_nan(&f32, best) || (x != best && is_less == is_min))
            best = x;
    }
    out[0] = keeps_nan && has_nan ? 0x7fffffff : best;
    out[1] = NOTHING;
}

static void transpose(const struct warp_row *r, const struct warp *w, uint32_t lane,
                      uint64_t out[2])
{
    (void)r;
    out[0] = 0;
    for (uint32_t p = 0; p < 2; p++) {
        uint32_t row = lane % 4 * 2 + p, column = lane / 4; /* of the source */
        out[0] |= ((uint32_t)w->a[row * 4 + column / 2] >> (column % 2 * 16) & 0xffff) << (p * 16);
    }
    if (w->members != UINT32_MAX)
        out[0] = NOTHING; /* all lanes must take part */
    out[1] = NOTHING;
}

static void lanes(const struct warp_row *r, const struct warp *w, uint32_t lane, uint64_t out[2])
{
    out[0] = r->kind == 'e' ? lowest(w->members) : w->members;
    out[1] = r->kind == 'e' ? lane == lowest(w->members) : NOTHING;
}

#define SHUFFLE(mode, kind)                                                                        \
    {                                                                                              \
        "shfl.sync." mode ".b32 $0|$1, $a, $b, $c, $m", shuffle, kind, -1, -1                      \
    }
#define SHUFFLE_BY(mode, kind, b, c)                                                               \
    {                                                                                              \
        "shfl.sync." mode ".b32 $0|$1, $a, " #b ", " #c ", $m", shuffle, kind, b, c                \
    }
#define REDUX(op, kind)                                                                            \
    {                                                                                              \
        "redux.sync." op " $0, $a, $m", redux, kind, 0, 0                                          \
    }

static const struct warp_row warp_rows[] = {
    SHUFFLE("up", 'u'),
    SHUFFLE("down", 'd'),
    SHUFFLE("bfly", 'b'),
    SHUFFLE("idx", 'i'),
    SHUFFLE_BY("up", 'u', 1, 0),
    SHUFFLE_BY("up", 'u', 3, 6144),
    SHUFFLE_BY("down", 'd', 16, 31),
    SHUFFLE_BY("down", 'd', 2, 6175),
    SHUFFLE_BY("bfly", 'b', 8, 31),
    SHUFFLE_BY("bfly", 'b', 31, 31),
    SHUFFLE_BY("idx", 'i', 7, 31),
    SHUFFLE_BY("idx", 'i', 37, 4127),
    {"shfl.sync.idx.b32 $0, $a, $b, 31, $m", shuffle, 'i', -1, 31},
    {"vote.sync.all.pred $1, $p, $m", vote, 'a', 0, 0},
    {"vote.sync.any.pred $1, $p, $m", vote, 'y', 0, 0},
    {"vote.sync.uni.pred $1, $p, $m", vote, 'u', 0, 0},
    {"vote.sync.ballot.b32 $0, $p, $m", vote, 'B', 0, 0},
    {"match.any.sync.b32 $0, $a, $m", match, 'y', 0, 0},
    {"match.any.sync.b64 $0, $A, $m", match, 'y', 0, 0},
    {"match.all.sync.b32 $0|$1, $a, $m", match, 'a', 0, 0},
    {"match.all.sync.b64 $0|$1, $A, $m", match, 'a', 0, 0},
    REDUX("add.s32", '+'),
    REDUX("add.u32", '+'),
    REDUX("and.b32", '&'),
    REDUX("or.b32", '|'),
    REDUX("xor.b32", '^'),
    REDUX("min.u32", 'u'),
    REDUX("max.u32", 'U'),
    REDUX("min.s32", 's'),
    REDUX("max.s32", 'S'),
    {"redux.sync.min.f32 $0, $a, $m", redux_float, 'm', 0, 0},
    {"redux.sync.max.f32 $0, $a, $m", redux_float, 'M', 0, 0},
    {"redux.sync.min.abs.f32 $0, $a, $m", redux_float, 'm', 0, 0},
    {"redux.sync.max.NaN.f32 $0, $a, $m", redux_float, 'M', 0, 0},
    {"redux.sync.min.abs.NaN.f32 $0, $a, $m", redux_float, 'm', 0, 0},
    {"movmatrix.sync.aligned.m8n8.trans.b16 $0, $a", transpose, 't', 0, 0},
    {"activemask.b32 $0", lanes, 'm', 0, 0},
    {"elect.sync $0|$1, $m", lanes, 'e', 0, 0},
};

/* --- atomics ---------------------------------------------------------------------------------- */

struct atomic_row {
    const char *op, *type;
    char kind;
};

static const struct atomic_row atomic_rows[] = {
    {"add", "u32", '+'},        {"add", "s32", '+'},         {"add", "u64", '+'},
    {"min", "u32", 'u'},        {"min", "s32", 's'},         {"max", "u32", 'U'},
    {"max", "s32", 'S'},        {"min", "u64", 'u'},         {"max", "u64", 'U'},
    {"min", "s64", 's'},        {"max", "s64", 'S'},         {"and", "b32", '&'},
    {"or", "b32", '|'},         {"xor", "b32", '^'},         {"and", "b64", '&'},
    {"or", "b64", '|'},         {"xor", "b64", '^'},         {"exch", "b32", '='},
    {"exch", "b64", '='},       {"cas", "b32", '?'},         {"cas", "b64", '?'},
    {"cas", "b16", '?'},        {"inc", "u32", 'i'},         {"dec", "u32", 'd'},
    {"add", "f32", 'f'},        {"add", "f64", 'f'},         {"add.noftz", "f16", 'f'},
    {"add.noftz", "bf16", 'f'}, {"add.noftz", "f16x2", 'f'}, {"add.noftz", "bf16x2", 'f'},
};

static uint64_t float_sum(const struct op_type *t, uint64_t a, uint64_t b)
{
    uint64_t r = 0, mask = t->bits == 64 ? UINT64_MAX : (1ull << t->bits) - 1;
    for (uint32_t p = 0; p < t->packed; p++) {
        double x = op_float(t, a >> (p * t->bits) & mask),
               y = op_float(t, b >> (p * t->bits) & mask);
        double s = t->bits == 64 ? op_double('+', x, y, 0, ROUND_NEAREST, NULL)
                                 : op_odd('+', x, y, 0);
        r |= op_bits(t, s, ROUND_NEAREST) << (p * t->bits);
    }
    return r;
}

static uint64_t atomic_step(const struct atomic_row *r, const struct op_type *t, uint64_t old,
                            uint64_t x, uint64_t y)
{
    uint32_t up = 64 - t->reg_bits;
    int64_t so = (int64_t)(old << up) >> up, sx = (int64_t)(x << up) >> up;
    switch (r->kind) {
    case '+':
        return old + x;
    case 'u':
        return old < x ? old : x;
    case 'U':
        return old > x ? old : x;
    case 's':
        return so < sx ? old : x;
    case 'S':
        return so > sx ? old : x;
    case '&':
        return old & x;
    case '|':
        return old | x;
    case '^':
        return old ^ x;
    case '=':
        return x;
    case '?':
        return old == x ? y : old;
    case 'i':
        return old >= x ? 0 : old + 1;
    case 'd':
        return old == 0 || old > x ? x : old - 1;
    default:
        return float_sum(t, old, x);
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

enum {
    N_WARP = sizeof warp_rows / sizeof warp_rows[0],
    N_ATOMIC = sizeof atomic_rows / sizeof atomic_rows[0]
};

uint32_t op_warp_rows(void)
{
    return N_WARP + 4 * N_ATOMIC - 5 + op_vector_rows(); /* exch and cas have no red */
}

static uint32_t offset_of(uint32_t n)
{
    return n * OP_LANES * 8;
}

static void kernel_head(struct tl_buf *b)
{
    b->n = 0;
    tl_buf_printf(
        b,
        ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 p_in, "
        ".param .u64 p_out)\n{\n"
        "  .shared .align 16 .b8 sh[%u];\n  .reg .b64 %%in, %%out, %%at, %%A, %%cell, %%sh;\n"
        "  .reg .b32 %%i, %%t, %%a, %%b, %%c, %%d, %%w;\n  .reg .pred %%p, %%q, %%g;\n  .reg .b16 "
        "%%hx, %%hy, %%hd; "
        ".reg .b32 %%rx, %%ry, %%rd; .reg .b64 %%lx, %%ly, %%ld;\n"
        "  ld.param.u64 %%in, [p_in];\n  ld.param.u64 %%out, [p_out];\n  mov.u32 %%i, %%tid.x;\n"
        "  and.b32 %%t, %%i, %u;\n  mul.wide.u32 %%cell, %%t, 8;\n  mul.wide.u32 %%at, %%i, 8;\n  "
        "add.s64 %%in, %%in, "
        "%%at;\n"
        "  mov.u32 %%t, %u;\n  shr.u32 %%t, %%t, %%i;\n  and.b32 %%t, %%t, 1;\n  setp.ne.s32 %%g, "
        "%%t, 0;\n",
        CELLS * 8, CELLS - 1, some_lanes);
}

static void add_warp_text(struct tl_buf *b, const char *text, bool is_guarded)
{
    tl_buf_puts(b, is_guarded ? "  @%g " : "  ");
    for (const char *p = text; *p != 0; p++) {
        if (*p != '$') {
            tl_buf_putc(b, *p);
            continue;
        }
        p++;
        if (*p == 'm')
            tl_buf_printf(b, "0x%x", is_guarded ? some_lanes : UINT32_MAX);
        else
            tl_buf_printf(b, "%%%c", *p == '0' ? 'd' : *p == '1' ? 'q' : *p);
    }
    tl_buf_puts(b, ";\n");
}

static void warp_kernel(struct tl_buf *b, bool is_guarded)
{
    kernel_head(b);
    tl_buf_puts(b, "  add.s64 %out, %out, %at;\n");
    for (uint32_t k = 0; k < N_WARP; k++) {
        tl_buf_printf(b,
                      "  ld.global.b64 %%A, [%%in+%u];\n  cvt.u32.u64 %%a, %%A;\n  ld.global.b32 "
                      "%%b, [%%in+%u];\n  "
                      "ld.global.b32 %%c, [%%in+%u];\n",
                      offset_of(4 * k), offset_of(4 * k + 1), offset_of(4 * k + 2));
        tl_buf_puts(b, "  and.b32 %t, %a, 1;\n  setp.ne.s32 %p, %t, 0;\n  mov.b32 %d, 77;\n  "
                       "setp.eq.s32 %q, 1, 1;\n");
        add_warp_text(b, warp_rows[k].text, is_guarded);
        tl_buf_printf(b,
                      "  st.global.b32 [%%out+%u], %%d;\n  selp.b32 %%w, 1, 0, %%q;\n  "
                      "st.global.b32 [%%out+%u], %%w;\n",
                      offset_of(3 * k), offset_of(3 * k + 1));
    }
    tl_buf_puts(b, "  ret;\n}\n");
}

static bool has_red(const struct atomic_row *r)
{
    return r->kind != '=' && r->kind != '?';
}

/* Spaces: 0 global, 1 shared, 2 generic addresses of shared memory. */
static void atomic_kernel(struct tl_buf *b, bool is_guarded, uint32_t space, bool is_red)
{
    kernel_head(b);
    tl_buf_puts(b, "  mov.u64 %sh, sh;\n  add.s64 %sh, %sh, %cell;\n");
    if (space == 2)
        tl_buf_puts(b, "  cvta.shared.u64 %sh, %sh;\n");
    tl_buf_puts(b, "  add.s64 %cell, %out, %cell;\n  add.s64 %out, %out, %at;\n");
    for (uint32_t k = 0; k < N_ATOMIC; k++) {
        const struct atomic_row *r = &atomic_rows[k];
        struct op_type t;
        op_type_parse(&t, r->type, strlen(r->type));
        if (is_red && !has_red(r))
            continue;
        char reg = t.reg_bits == 16 ? 'h' : t.reg_bits == 32 ? 'r' : 'l';
        const char *shared = space == 2 ? "" : ".shared";
        for (uint32_t j = 0; j < 2; j++)
            tl_buf_printf(b, "  ld.global.b%u %%%c%c, [%%in+%u];\n", t.reg_bits, reg, 'x' + (int)j,
                          offset_of(4 * k + j));
        if (space != 0)
            tl_buf_printf(
                b,
                "  ld.global.b64 %%A, [%%cell+%u];\n  st%s.b64 [%%sh], %%A;\n  bar.warp.sync -1;\n",
                offset_of(3 * k + 2), shared);
        tl_buf_printf(b, "  mov.b%u %%%cd, 77;\n  %s%s%s.%s.%s ", t.reg_bits, reg,
                      is_guarded ? "@%g " : "", is_red ? "red" : "atom",
                      space == 0 ? ".global" : shared, r->op, r->type);
        if (!is_red)
            tl_buf_printf(b, "%%%cd, ", reg);
        tl_buf_printf(b, "[%s+%u], %%%cx", space == 0 ? "%cell" : "%sh",
                      space == 0 ? offset_of(3 * k + 2) : 0, reg);
        if (r->kind == '?')
            tl_buf_printf(b, ", %%%cy", reg);
        tl_buf_printf(b, ";\n  st.global.b%u [%%out+%u], %%%cd;\n", t.reg_bits, offset_of(3 * k),
                      reg);
        if (space != 0)
            tl_buf_printf(
                b,
                "  bar.warp.sync -1;\n  ld%s.b64 %%A, [%%sh];\n  st.global.b64 [%%cell+%u], %%A;\n",
                shared, offset_of(3 * k + 2));
    }
    tl_buf_puts(b, "  ret;\n}\n");
}

void op_warp_kernel(struct tl_buf *b, enum op_warp_part part, bool is_guarded)
{
    if (part == OP_WARP)
        warp_kernel(b, is_guarded);
    else if (part == OP_ATOMIC_VECTOR || part == OP_RED_VECTOR)
        op_vector_kernel(b, part == OP_RED_VECTOR, is_guarded);
    else
        atomic_kernel(b, is_guarded,
                      part == OP_ATOMIC_SHARED    ? 1
                      : part == OP_ATOMIC_GENERIC ? 2
                                                  : 0,
                      part == OP_RED);
}

/* --- inputs and results ----------------------------------------------------------------------- */

void op_warp_inputs(enum op_warp_part part, uint64_t *in, uint64_t *out, uint64_t seed)
{
    if (part == OP_ATOMIC_VECTOR || part == OP_RED_VECTOR) {
        op_vector_inputs(in, out, seed);
        return;
    }
    uint64_t z = seed * 0x9E3779B97F4A7C15ull + 1;
    uint32_t n = part == OP_WARP ? N_WARP : N_ATOMIC;
    for (uint32_t i = 0; i < n * 4 * OP_LANES; i++) {
        z ^= z << 13;
        z ^= z >> 7;
        z ^= z << 17;
        /* any, equal ones among them, all equal */
        in[i] = seed % 3 == 0 ? z : seed % 3 == 1 ? z >> 20 & 3 : 5;
    }
    memset(out, 0, (size_t)n * 3 * OP_LANES * sizeof *out);
    for (uint32_t k = 0; k < n && part != OP_WARP; k++) {
        for (uint32_t i = 0; i < CELLS; i++)
            out[(k * 3 + 2) * OP_LANES + i] = in[(k * 4 + 2) * OP_LANES + i];
    }
}

static void check_warp(const uint64_t *in, const uint64_t *out, bool is_guarded,
                       struct tl_buf *wrong)
{
    for (uint32_t k = 0; k < N_WARP; k++) {
        const uint64_t *a = in + (size_t)k * 4 * OP_LANES;
        struct warp w = {a, a + OP_LANES, a + 2 * OP_LANES, is_guarded ? some_lanes : UINT32_MAX};
        for (uint32_t i = 0; i < (is_guarded ? 24 : 32); i++) {
            uint64_t want[2] = {77, 1};
            if (w.members >> i & 1)
                warp_rows[k].reference(&warp_rows[k], &w, i, want);
            for (uint32_t j = 0; j < 2; j++) {
                uint64_t got = out[(k * 3 + j) * OP_LANES + i];
                if (want[j] != NOTHING && got != want[j])
                    tl_buf_printf(wrong, "\n%s%s: lane %u gives 0x%llx in result %u, not 0x%llx",
                                  warp_rows[k].text, is_guarded ? " (guarded)" : "", i,
                                  (unsigned long long)got, j, (unsigned long long)want[j]);
            }
        }
    }
}

static bool same(const struct op_type *t, uint64_t a, uint64_t b)
{
    const struct op_row row = {"atom", "", NULL, 0, 0, NULL};
    struct op o = {.row = &row};
    o.result[0] = *t;
    return op_result_is(&o, 0, a, b);
}

static void check_atomic(const uint64_t *in, const uint64_t *out, bool is_guarded, bool is_red,
                         struct tl_buf *wrong)
{
    for (uint32_t k = 0; k < N_ATOMIC; k++) {
        const struct atomic_row *r = &atomic_rows[k];
        const uint64_t *x = in + (size_t)k * 4 * OP_LANES, *y = x + OP_LANES;
        struct op_type t;
        op_type_parse(&t, r->type, strlen(r->type));
        uint64_t mask = t.reg_bits == 64 ? UINT64_MAX : (1ull << t.reg_bits) - 1, cells[CELLS], old;
        if (is_red && !has_red(r))
            continue;
        memcpy(cells, y + OP_LANES, sizeof cells);
        for (uint32_t i = 0; i < (is_guarded ? 24 : 32); i++) {
            uint64_t *cell = &cells[i % CELLS];
            bool is_active = !is_guarded || (some_lanes >> i & 1);
            old = is_active ? *cell & mask : 77;
            if (is_active)
                *cell = (*cell & ~mask) |
                        (atomic_step(r, &t, old, x[i] & mask, y[i] & mask) & mask);
            if (!same(&t, out[k * 3 * OP_LANES + i], is_red ? 77 : old))
                tl_buf_printf(wrong, "\natom.%s.%s: lane %u sees 0x%llx, not 0x%llx", r->op,
                              r->type, i, (unsigned long long)out[k * 3 * OP_LANES + i],
                              (unsigned long long)old);
        }
        for (uint32_t i = 0; i < CELLS; i++) {
            uint64_t got = out[(k * 3 + 2) * OP_LANES + i];
            if (!same(&t, got & mask, cells[i] & mask) || (got & ~mask) != (cells[i] & ~mask))
                tl_buf_printf(wrong, "\natom.%s.%s: cell %u becomes 0x%llx, not 0x%llx", r->op,
                              r->type, i, (unsigned long long)got, (unsigned long long)cells[i]);
        }
    }
}

void op_warp_check(enum op_warp_part part, const uint64_t *in, const uint64_t *out, bool is_guarded,
                   struct tl_buf *wrong)
{
    if (part == OP_WARP)
        check_warp(in, out, is_guarded, wrong);
    else if (part == OP_ATOMIC_VECTOR || part == OP_RED_VECTOR)
        op_vector_check(part == OP_RED_VECTOR, in, out, is_guarded, wrong);
    else
        check_atomic(in, out, is_guarded, part == OP_RED, wrong);
}
