/* Products of matrix fragments and their loads and stores, one kernel of one warp each, against
 * products of whole matrices.
 *
 * Inputs are small numbers, so that every sum is exact and the order of additions does not matter;
 * integers take all values. Fragments of mma are laid out here as the PTX ISA has it ("Matrix
 * Fragments for mma"), those of wmma go through memory. */
#include "test/unit/device/jit/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, REGISTERS = 8, PAD = 8, A_AT = 0, B_AT = 8192, C_AT = 16384 };

struct matrix_row {
    /* of the product; loads and stores of wmma follow from it.  $ is where operands go */
    const char *form;
    uint32_t m, n, k;
    /* types: 'h' f16, 'b' bf16, 't' tf32, 'd' f64, 's' s8, 'u' u8, '4' e4m3, '5' e5m2, and of less
     * than 8 bits '2' e2m3, '3' e3m2, '1' e2m1, 'x' e2m1 side by side */
    char a, b;
    char c, d;       /* 'f' f32, 'h' f16, 'd' f64, 'i' s32 */
    char rows[3];    /* wmma: layouts of A, B and C, 'r' or 'c'; mma: empty */
    uint8_t regs[2]; /* wmma: registers of A and B */
};

#define MMA(shape, types, m, n, k, a, b, c, d)                                                     \
    {                                                                                              \
        "mma.sync.aligned." shape ".row.col." types, m, n, k, a, b, c, d, "",                      \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

static const struct matrix_row rows[] = {
    MMA("m16n8k8", "f32.f16.f16.f32", 16, 8, 8, 'h', 'h', 'f', 'f'),
    MMA("m16n8k16", "f32.f16.f16.f32", 16, 8, 16, 'h', 'h', 'f', 'f'),
    MMA("m16n8k16", "f16.f16.f16.f16", 16, 8, 16, 'h', 'h', 'h', 'h'),
    MMA("m16n8k8", "f32.bf16.bf16.f32", 16, 8, 8, 'b', 'b', 'f', 'f'),
    MMA("m16n8k16", "f32.bf16.bf16.f32", 16, 8, 16, 'b', 'b', 'f', 'f'),
    MMA("m16n8k4", "f32.tf32.tf32.f32", 16, 8, 4, 't', 't', 'f', 'f'),
    MMA("m16n8k8", "f32.tf32.tf32.f32", 16, 8, 8, 't', 't', 'f', 'f'),
    MMA("m8n8k4", "f64.f64.f64.f64", 8, 8, 4, 'd', 'd', 'd', 'd'),
    MMA("m16n8k8", "f64.f64.f64.f64", 16, 8, 8, 'd', 'd', 'd', 'd'),
    MMA("m16n8k16", "s32.s8.s8.s32", 16, 8, 16, 's', 's', 'i', 'i'),
    MMA("m16n8k32", "s32.s8.s8.s32", 16, 8, 32, 's', 's', 'i', 'i'),
    MMA("m16n8k32", "s32.u8.s8.s32", 16, 8, 32, 'u', 's', 'i', 'i'),
    MMA("m16n8k32", "s32.s8.s8.s32.satfinite", 16, 8, 32, 's', 's', 'i', 'i'),
    MMA("m16n8k32", "s32.u8.u8.s32.satfinite", 16, 8, 32, 'u', 'u', 'i', 'i'),
    MMA("m16n8k32", "f32.e4m3.e4m3.f32", 16, 8, 32, '4', '4', 'f', 'f'),
    MMA("m16n8k32", "f32.e5m2.e4m3.f32", 16, 8, 32, '5', '4', 'f', 'f'),
    MMA("m16n8k32", "f32.e4m3.e5m2.f32", 16, 8, 32, '4', '5', 'f', 'f'),
    MMA("m16n8k32", "f32.e5m2.e5m2.f32", 16, 8, 32, '5', '5', 'f', 'f'),
    MMA("m16n8k32", "kind::f8f6f4.f32.e2m3.e3m2.f32", 16, 8, 32, '2', '3', 'f', 'f'),
    MMA("m16n8k32", "kind::f8f6f4.f32.e2m1.e4m3.f32", 16, 8, 32, '1', '4', 'f', 'f'),
    MMA("m16n8k32", "kind::f8f6f4.f16.e5m2.e2m1.f16", 16, 8, 32, '5', '1', 'h', 'h'),
    MMA("m16n8k32", "kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0", 16, 8, 32,
        '4', '5', 'f', 'f'),
    MMA("m16n8k32", "kind::mxf8f6f4.block_scale.f32.e2m1.e2m3.f32.ue8m0", 16, 8, 32, '1', '2', 'f',
        'f'),
    MMA("m16n8k64", "kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0", 16, 8, 64, 'x', 'x', 'f',
        'f'),
    MMA("m16n8k64", "kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", 16, 8, 64,
        'x', 'x', 'f', 'f'),
    MMA("m16n8k64", "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", 16, 8, 64,
        'x', 'x', 'f', 'f'),
    {"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
     16,
     16,
     16,
     'h',
     'h',
     'f',
     'f',
     "rcr",
     {8, 8}},
    {"wmma.mma.sync.aligned.col.row.m16n16k16.f16.f16",
     16,
     16,
     16,
     'h',
     'h',
     'h',
     'h',
     "crc",
     {8, 8}},
    {"wmma.mma.sync.aligned.row.row.m16n16k16.f32.f16",
     16,
     16,
     16,
     'h',
     'h',
     'h',
     'f',
     "rrr",
     {8, 8}},
    {"wmma.mma.sync.aligned.col.col.m16n16k16.f16.f32",
     16,
     16,
     16,
     'h',
     'h',
     'f',
     'h',
     "ccc",
     {8, 8}},
    {"wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32",
     32,
     8,
     16,
     'h',
     'h',
     'f',
     'f',
     "rcc",
     {8, 8}},
    {"wmma.mma.sync.aligned.col.col.m32n8k16.f16.f16",
     32,
     8,
     16,
     'h',
     'h',
     'h',
     'h',
     "ccc",
     {8, 8}},
    {"wmma.mma.sync.aligned.row.row.m8n32k16.f32.f32",
     8,
     32,
     16,
     'h',
     'h',
     'f',
     'f',
     "rrr",
     {8, 8}},
    {"wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32",
     16,
     16,
     16,
     'b',
     'b',
     'f',
     'f',
     "rcr",
     {4, 4}},
    {"wmma.mma.sync.aligned.col.row.m32n8k16.f32.bf16.bf16.f32",
     32,
     8,
     16,
     'b',
     'b',
     'f',
     'f',
     "crr",
     {8, 2}},
    {"wmma.mma.sync.aligned.row.col.m8n32k16.f32.bf16.bf16.f32",
     8,
     32,
     16,
     'b',
     'b',
     'f',
     'f',
     "rcc",
     {2, 8}},
    {"wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32",
     16,
     16,
     8,
     't',
     't',
     'f',
     'f',
     "rcr",
     {4, 4}},
    {"wmma.mma.sync.aligned.col.row.m16n16k8.f32.tf32.tf32.f32",
     16,
     16,
     8,
     't',
     't',
     'f',
     'f',
     "crc",
     {4, 4}},
    {"wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64",
     8,
     8,
     4,
     'd',
     'd',
     'd',
     'd',
     "rcr",
     {1, 1}},
    {"wmma.mma.sync.aligned.row.row.m16n16k16.s32.s8.s8.s32.satfinite",
     16,
     16,
     16,
     's',
     's',
     'i',
     'i',
     "rrr",
     {2, 2}},
    {"wmma.mma.sync.aligned.col.col.m16n16k16.s32.u8.u8.s32",
     16,
     16,
     16,
     'u',
     'u',
     'i',
     'i',
     "ccc",
     {2, 2}},
    {"wmma.mma.sync.aligned.row.col.m32n8k16.s32.s8.s8.s32",
     32,
     8,
     16,
     's',
     's',
     'i',
     'i',
     "rcc",
     {4, 1}},
    {"wmma.mma.sync.aligned.col.row.m8n32k16.s32.s8.s8.s32",
     8,
     32,
     16,
     's',
     's',
     'i',
     'i',
     "crr",
     {1, 4}},
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", 0, 0, 4, 'm', 'm', 0, 0, "", {0}},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", 0, 0, 4, 'm', 'm', 0, 0, "", {0}},
    {"ldmatrix.sync.aligned.m8n8.x2.shared.b16", 0, 0, 2, 'm', 'm', 0, 0, "", {0}},
    {"ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16", 0, 0, 1, 'm', 'm', 0, 0, "", {0}},
    {"stmatrix.sync.aligned.m8n8.x4.shared.b16", 0, 0, 4, 'm', 'm', 0, 0, "", {0}},
    {"stmatrix.sync.aligned.m8n8.x4.trans.shared.b16", 0, 0, 4, 'm', 'm', 0, 0, "", {0}},
    {"stmatrix.sync.aligned.m8n8.x2.trans.shared.b16", 0, 0, 2, 'm', 'm', 0, 0, "", {0}},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static double a[MOST][MOST], b[MOST][MOST], c[MOST][MOST]; /* of the row under test */
/* with block scaling: of each lane, and the selectors of A and B: byte and lanes of a quad */
static uint32_t scales[2][OP_LANES], selectors[2][2];

uint32_t op_matrix_rows(void)
{
    return N_ROWS;
}

const char *op_matrix_form(uint32_t row)
{
    return rows[row].form;
}

/* --- elements --------------------------------------------------------------------------------- */

static uint32_t bits_of(char type)
{
    switch (type) {
    case 'x':
        return 4;
    case 's':
    case 'u':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
        return 8;
    case 'h':
    case 'b':
        return 16;
    case 'd':
        return 64;
    default:
        return 32;
    }
}

static const char *name_of(char type)
{
    switch (type) {
    case 's':
        return "s8";
    case 'u':
        return "u8";
    case 'h':
        return "f16";
    case 'b':
        return "bf16";
    case 't':
        return "tf32";
    case 'd':
        return "f64";
    case 'i':
        return "s32";
    default:
        return "f32";
    }
}

/* A number of that type as bits, at its place in the bits that it has in a register. */
static uint64_t encode(char type, double x)
{
    uint64_t r = 0;
    float f = (float)x;
    switch (type) {
    case 's':
    case 'u':
        return (uint64_t)(int64_t)x & 255;
    case 'i':
        return (uint64_t)(int64_t)x & UINT32_MAX;
    case 'h':
        return op_round(&op_f16, x, ROUND_NEAREST, false);
    case 'b':
        return op_round(&op_bf16, x, ROUND_NEAREST, false);
    case '4':
        return op_round(&op_e4m3, x, ROUND_NEAREST, true);
    case '5':
        return op_round(&op_e5m2, x, ROUND_NEAREST, true);
    case '2':
        return op_round(&op_e2m3, x, ROUND_NEAREST, true);
    case '3':
        return op_round(&op_e3m2, x, ROUND_NEAREST, true);
    case '1': /* in the middle of its byte */
        return op_round(&op_e2m1, x, ROUND_NEAREST, true) << 2;
    case 'x':
        return op_round(&op_e2m1, x, ROUND_NEAREST, true);
    case 'd':
        memcpy(&r, &x, sizeof x);
        return r;
    default:
        memcpy(&r, &f, sizeof f);
        return r;
    }
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

static double any(char type, uint64_t *state)
{
    uint64_t z = next(state);
    switch (type) {
    case 's':
        return (int8_t)z;
    case 'u':
        return (uint8_t)z;
    case 'i': /* some so near to the ends that saturation shows */
        return z & 1 ? (double)(int32_t)(z >> 32) : z & 2 ? 2147483000.0 : -2147483000.0;
    case '2':
    case '3':
    case '4':
    case '5':
        return (double)((int64_t)(z % 13) - 6) / 2;
    case '1':
    case 'x':
        return op_value(&op_e2m1, z & 15);
    default:
        return (double)((int64_t)(z % 25) - 12) / 4;
    }
}

/* How many scales there are for a row of A or a column of B; 0: nothing is scaled. */
static uint32_t n_scales(const struct matrix_row *r)
{
    return strstr(r->form, "block_scale") == NULL ? 0
           : strstr(r->form, "4X") != NULL        ? 4
           : strstr(r->form, "mxf4") != NULL      ? 2
                                                  : 1;
}

/* PTX ISA, "Block Scaling for mma.sync": rows i and i + 8 of A have theirs in the lower and the
 * upper lane of one of the two pairs of quad i, column i of B has them in one lane of quad i. */
static double scale(const struct matrix_row *r, bool is_b, uint32_t i, uint32_t k)
{
    uint32_t lane = is_b ? 4 * i + selectors[1][1] : i % 8 * 4 + 2 * selectors[0][1] + i / 8;
    uint32_t byte = selectors[is_b][0] + k / (r->k / n_scales(r));
    uint32_t v = scales[is_b][lane] >> 8 * byte & 255;
    return strstr(r->form, "ue4m3") != NULL ? op_value(&op_e4m3, v)
                                            : __builtin_ldexp(1, (int)v - 127);
}

static double result(const struct matrix_row *r, uint32_t i, uint32_t j)
{
    double sum = 0;
    for (uint32_t k = 0; k < r->k; k++)
        sum += a[i][k] * b[k][j] *
               (n_scales(r) > 0 ? scale(r, false, i, k) * scale(r, true, j, k) : 1);
    if (r->d != 'i')
        return sum + c[i][j];
    if (strstr(r->form, "satfinite") == NULL)
        return (double)(int32_t)(uint32_t)(int64_t)(sum + c[i][j]);
    sum += c[i][j];
    return sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
}

/* --- places ----------------------------------------------------------------------------------- */

struct place {
    uint32_t row, column;
};

/* Element e of register `reg` of a lane, for A (row of A, k), B (k, column) or C. */
static struct place fragment_place(const struct matrix_row *r, char which, uint32_t lane,
                                   uint32_t reg, uint32_t e)
{
    uint32_t g = lane / 4, t = lane % 4, per = bits_of(r->a) < 32 ? 32 / bits_of(r->a) : 1,
             halves = r->m / 8;
    if (which == 'a')
        return (struct place){g + 8 * (reg % halves), reg / halves * 4 * per + t * per + e};
    if (which == 'b')
        return (struct place){reg * 4 * per + t * per + e, g};
    return (struct place){g + 8 * (reg / 2), 2 * t + reg % 2};
}

/* Registers of a fragment of mma. */
static uint32_t n_registers(const struct matrix_row *r, char which, char type)
{
    uint32_t elements = (which == 'a'   ? r->m * r->k
                         : which == 'b' ? r->k * r->n
                                        : r->m * r->n) /
                        OP_LANES;
    uint32_t per = bits_of(type) < 32 ? 32 / bits_of(type) : 1;
    return elements / per;
}

/* Where an element lies in memory, in elements. */
static size_t index_of(char layout, uint32_t i, uint32_t j, uint32_t m, uint32_t n)
{
    return layout == 'r' ? (size_t)i * (n + PAD) + j : (size_t)j * (m + PAD) + i;
}

static uint32_t stride_of(char layout, uint32_t m, uint32_t n)
{
    return (layout == 'r' ? n : m) + PAD;
}

/* --- kernels ---------------------------------------------------------------------------------- */

static bool is_matrix(const struct matrix_row *r)
{
    return r->a == 'm';
}

static bool is_wmma(const struct matrix_row *r)
{
    return r->rows[0] != 0;
}

static void add_registers(struct tl_buf *out, const char *name, uint32_t n)
{
    tl_buf_puts(out, "{");
    for (uint32_t i = 0; i < n; i++)
        tl_buf_printf(out, "%s%%%s%u", i > 0 ? ", " : "", name, i);
    tl_buf_puts(out, "}");
}

static void declare(struct tl_buf *out, const char *name, char type, uint32_t n)
{
    tl_buf_printf(out, "  .reg .b%u %%%s<%u>;\n", type == 'd' ? 64 : 32, name, n);
}

static void kernel_head(struct tl_buf *out)
{
    out->n = 0;
    tl_buf_puts(
        out,
        ".version 8.8\n.target sm_100a\n.address_size 64\n"
        ".visible .entry k(.param .u64 p_in, .param .u64 p_out)\n{\n  .shared .align 16 .b8 "
        "sh[1024];\n"
        "  .reg .b64 %in, %out, %at, %lin, %lout;\n  .reg .b32 %i, %row, %w<8>;\n"
        "  ld.param.u64 %in, [p_in];\n  ld.param.u64 %out, [p_out];\n  mov.u32 %i, %tid.x;\n"
        "  mul.wide.u32 %at, %i, 8;\n  add.s64 %lin, %in, %at;\n  add.s64 %lout, %out, %at;\n");
}

/* Register j of a fragment is at word (first + j) * 32 + lane. */
static void move_words(struct tl_buf *out, const char *name, char type, uint32_t first, uint32_t n,
                       bool is_store)
{
    uint32_t bits = type == 'd' ? 64 : 32;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t offset = (first + i) * OP_LANES * 8;
        if (is_store)
            tl_buf_printf(out, "  st.global.b%u [%%lout+%u], %%%s%u;\n", bits, offset, name, i);
        else
            tl_buf_printf(out, "  ld.global.b%u %%%s%u, [%%lin+%u];\n", bits, name, i, offset);
    }
}

/* d = a * b + c: fragments are loaded by wmma.load or word by word, multiplied, and stored
 * alike. */
static void product_kernel(struct tl_buf *out, const struct matrix_row *r)
{
    uint32_t na = is_wmma(r) ? r->regs[0] : n_registers(r, 'a', r->a),
             nb = is_wmma(r) ? r->regs[1] : n_registers(r, 'b', r->b);
    uint32_t nc = n_registers(r, 'c', r->c), nd = n_registers(r, 'c', r->d);
    declare(out, "a", r->a, na);
    declare(out, "b", r->b, nb);
    declare(out, "c", r->c, nc);
    declare(out, "d", r->d, nd);
    if (is_wmma(r)) {
        static const char *const layouts[] = {"row", "col"};
        char shape[24];
        snprintf(shape, sizeof shape, "m%un%uk%u", r->m, r->n, r->k);
        const char types[3] = {r->a, r->b, r->c};
        const char *const names[3] = {"a", "b", "c"};
        const uint32_t counts[3] = {na, nb, nc}, at[3] = {A_AT, B_AT, C_AT},
                       heights[3] = {r->m, r->k, r->m}, widths[3] = {r->k, r->n, r->n};
        for (uint32_t i = 0; i < 3; i++) {
            tl_buf_printf(out, "  wmma.load.%s.sync.aligned.%s.%s.global.%s ", names[i],
                          layouts[r->rows[i] == 'c'], shape, name_of(types[i]));
            add_registers(out, names[i], counts[i]);
            tl_buf_printf(out, ", [%%in+%u], %u;\n", at[i],
                          stride_of(r->rows[i], heights[i], widths[i]));
        }
    } else {
        move_words(out, "a", r->a, 0, na, false);
        move_words(out, "b", r->b, REGISTERS, nb, false);
        move_words(out, "c", r->c, 2 * REGISTERS, nc, false);
    }
    if (n_scales(r) > 0) {
        move_words(out, "w", 'f', 3 * REGISTERS, 2, false);
        tl_buf_printf(out, "  .reg .b16 %%h<2>;\n  mov.b16 %%h0, %u;\n  mov.b16 %%h1, %u;\n",
                      selectors[0][0], selectors[0][1]);
    }
    tl_buf_printf(out, "  %s ", r->form);
    const char *const names[4] = {"d", "a", "b", "c"};
    const uint32_t counts[4] = {nd, na, nb, nc};
    for (uint32_t i = 0; i < 4; i++) {
        tl_buf_puts(out, i > 0 ? ", " : "");
        add_registers(out, names[i], counts[i]);
    }
    /* a selector is a number, or a register */
    if (n_scales(r) > 0)
        tl_buf_printf(out, ", %%w0, {%%h0, %%h1}, {%%w1}, {%u, %u}", selectors[1][0],
                      selectors[1][1]);
    tl_buf_puts(out, ";\n");
    if (is_wmma(r)) {
        tl_buf_printf(out, "  wmma.store.d.sync.aligned.%s.m%un%uk%u.global.%s [%%out], ",
                      r->rows[2] == 'r' ? "row" : "col", r->m, r->n, r->k, name_of(r->d));
        add_registers(out, "d", nd);
        tl_buf_printf(out, ", %u;\n", stride_of(r->rows[2], r->m, r->n));
    } else {
        move_words(out, "d", r->d, 0, nd, true);
    }
}

/* Rows of 16 bytes stand in shared memory in another order than the lanes' that name them. */
static void matrix_kernel(struct tl_buf *out, const struct matrix_row *r)
{
    bool is_store = r->form[0] == 's';
    declare(out, "m", 'f', r->k);
    tl_buf_puts(out,
                "  mul.lo.u32 %row, %i, 5;\n  and.b32 %row, %row, 31;\n  shl.b32 %row, %row, 4;\n"
                "  mov.u32 %w0, sh;\n  add.u32 %row, %row, %w0;\n");
    if (is_store)
        move_words(out, "m", 'f', 0, r->k, false);
    else
        tl_buf_puts(out,
                    "  shl.b32 %w1, %i, 3;\n  mul.wide.u32 %at, %w1, 2;\n  add.s64 %at, %in, %at;\n"
                    "  ld.global.v4.b32 {%w2, %w3, %w4, %w5}, [%at];\n  st.shared.v4.b32 [%row], "
                    "{%w2, %w3, %w4, %w5};\n"
                    "  bar.warp.sync -1;\n");
    tl_buf_printf(out, "  %s ", r->form);
    if (is_store)
        tl_buf_puts(out, "[%row], ");
    add_registers(out, "m", r->k);
    tl_buf_puts(out, is_store ? ";\n  bar.warp.sync -1;\n" : ", [%row];\n");
    if (is_store)
        tl_buf_puts(
            out, "  shl.b32 %w1, %i, 3;\n  mul.wide.u32 %at, %w1, 2;\n  add.s64 %at, %out, %at;\n"
                 "  ld.shared.v4.b32 {%w2, %w3, %w4, %w5}, [%row];\n  st.global.v4.b32 [%at], "
                 "{%w2, %w3, %w4, %w5};\n");
    else
        move_words(out, "m", 'f', 0, r->k, true);
}

/* Other selectors for each row. */
static void choose_selectors(const struct matrix_row *r, uint32_t row)
{
    uint32_t n = n_scales(r);
    for (uint32_t i = 0; n > 0 && i < 2; i++) {
        selectors[i][0] = n == 4 ? 0 : n == 2 ? (row + i) % 2 * 2 : (row + 3 * i) % 4;
        selectors[i][1] = i == 0 ? row % 2 : (row + 1) % 4;
    }
}

void op_matrix_kernel(struct tl_buf *out, uint32_t row)
{
    kernel_head(out);
    choose_selectors(&rows[row], row);
    if (is_matrix(&rows[row]))
        matrix_kernel(out, &rows[row]);
    else
        product_kernel(out, &rows[row]);
    tl_buf_puts(out, "  ret;\n}\n");
}

/* --- inputs and results ----------------------------------------------------------------------- */

static void put(uint64_t *memory, size_t at_byte, size_t index, uint32_t bits, uint64_t value)
{
    memcpy((uint8_t *)memory + at_byte + index * (bits / 8), &value, bits / 8);
}

static uint64_t get(const uint64_t *memory, size_t at_byte, size_t index, uint32_t bits)
{
    uint64_t v = 0;
    memcpy(&v, (const uint8_t *)memory + at_byte + index * (bits / 8), bits / 8);
    return v;
}

static void fill_fragment(const struct matrix_row *r, char which, char type, double (*from)[MOST],
                          uint64_t *in)
{
    uint32_t n = n_registers(r, which, type), per = bits_of(type) < 32 ? 32 / bits_of(type) : 1;
    for (uint32_t lane = 0; lane < OP_LANES; lane++) {
        for (uint32_t i = 0; i < n; i++) {
            uint64_t word = 0;
            for (uint32_t e = 0; e < per; e++) {
                struct place p = which == 'c' ? fragment_place(r, 'c', lane, i * per + e, 0)
                                              : fragment_place(r, which, lane, i, e);
                word |= encode(type, from[p.row][p.column]) << (e * bits_of(type));
            }
            in[i * OP_LANES + lane] = word;
        }
    }
}

void op_matrix_inputs(uint32_t row, uint64_t *in, uint64_t seed)
{
    const struct matrix_row *r = &rows[row];
    uint64_t state = seed * 77 + row;
    if (is_matrix(r)) {
        for (uint32_t i = 0; i < 4096; i++)
            in[i] = next(&state);
        return;
    }
    for (uint32_t i = 0; i < MOST; i++) {
        for (uint32_t j = 0; j < MOST; j++) {
            a[i][j] = any(r->a, &state);
            b[i][j] = any(r->b, &state);
            c[i][j] = any(r->c, &state);
        }
    }
    for (uint32_t i = 0; n_scales(r) > 0 && i < 2 * OP_LANES; i++) {
        /* powers of two near 1, so that sums stay exact */
        bool is_ue4m3 = strstr(r->form, "ue4m3") != NULL;
        uint32_t word = 0;
        for (uint32_t k = 0; k < 4; k++)
            word |= (uint32_t)(is_ue4m3 ? 0x28 + next(&state) % 4 * 8 : 124 + next(&state) % 7)
                    << 8 * k;
        scales[i / OP_LANES][i % OP_LANES] = word;
        in[(size_t)3 * REGISTERS * OP_LANES + i] = word;
    }
    if (!is_wmma(r)) {
        fill_fragment(r, 'a', r->a, a, in);
        fill_fragment(r, 'b', r->b, b, in + REGISTERS * OP_LANES);
        fill_fragment(r, 'c', r->c, c, in + (size_t)2 * REGISTERS * OP_LANES);
        return;
    }
    for (uint32_t i = 0; i < MOST; i++) {
        for (uint32_t j = 0; j < MOST; j++) {
            if (i < r->m && j < r->k)
                put(in, A_AT, index_of(r->rows[0], i, j, r->m, r->k), bits_of(r->a),
                    encode(r->a, a[i][j]));
            if (i < r->k && j < r->n)
                put(in, B_AT, index_of(r->rows[1], i, j, r->k, r->n), bits_of(r->b),
                    encode(r->b, b[i][j]));
            if (i < r->m && j < r->n)
                put(in, C_AT, index_of(r->rows[2], i, j, r->m, r->n), bits_of(r->c),
                    encode(r->c, c[i][j]));
        }
    }
}

static void compare(const struct matrix_row *r, struct tl_buf *wrong, uint32_t i, uint32_t j,
                    uint64_t got, uint64_t want)
{
    if (got != want)
        tl_buf_printf(wrong, "\n%s: (%u, %u) is 0x%llx, not 0x%llx", r->form, i, j,
                      (unsigned long long)got, (unsigned long long)want);
}

/* Lane 8 i + r names row r of matrix i; lane 4 g + t has elements 2 t and 2 t + 1 of row g, or of
 * column g. */
static void check_matrices(const struct matrix_row *r, const uint64_t *in, const uint64_t *out,
                           struct tl_buf *wrong)
{
    bool is_store = r->form[0] == 's', is_trans = strstr(r->form, "trans") != NULL;
    for (uint32_t m = 0; m < r->k; m++) {
        for (uint32_t lane = 0; lane < OP_LANES; lane++) {
            for (uint32_t e = 0; e < 2; e++) {
                uint32_t g = lane / 4, pair = 2 * (lane % 4) + e;
                size_t element = (size_t)(8 * m + (is_trans ? pair : g)) * 8 +
                                 (is_trans ? g : pair);
                uint64_t memory = get(is_store ? out : in, 0, element, 16);
                uint64_t reg = (is_store ? in : out)[m * OP_LANES + lane] >> (16 * e) & 0xffff;
                compare(r, wrong, lane, 2 * m + e, is_store ? memory : reg,
                        is_store ? reg : memory);
            }
        }
    }
}

void op_matrix_check(uint32_t row, const uint64_t *in, const uint64_t *out, struct tl_buf *wrong)
{
    const struct matrix_row *r = &rows[row];
    uint32_t bits = bits_of(r->d), per = bits < 32 ? 2 : 1;
    if (is_matrix(r)) {
        check_matrices(r, in, out, wrong);
        return;
    }
    for (uint32_t i = 0; i < r->m && is_wmma(r) && wrong->n < 400; i++)
        for (uint32_t j = 0; j < r->n; j++)
            compare(r, wrong, i, j, get(out, 0, index_of(r->rows[2], i, j, r->m, r->n), bits),
                    encode(r->d, result(r, i, j)));
    for (uint32_t lane = 0; lane < OP_LANES && !is_wmma(r) && wrong->n < 400; lane++) {
        for (uint32_t i = 0; i < r->m * r->n / OP_LANES; i++) {
            struct place p = fragment_place(r, 'c', lane, i, 0);
            uint64_t got = out[i / per * OP_LANES + lane];
            got = bits == 16 ? got >> (i % 2 * 16) & 0xffff : bits == 32 ? got & UINT32_MAX : got;
            compare(r, wrong, p.row, p.column, got, encode(r->d, result(r, p.row, p.column)));
        }
    }
}
