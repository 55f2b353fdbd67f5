/* Atomics on vectors: each element is an atomic of its own, lane after lane.
 *
 * Of row k, lane i's operand is 16 bytes at in + (k * 32 + i) * 16, what it saw before is at the
 * same place of out, and behind those of all rows are four cells of 16 bytes per row, so that lanes
 * meet. */
#include <string.h>

#include "test/unit/device/jit/op.h"

enum { VECTOR_BYTES = 16, VECTOR_CELLS = 4 };
static const uint32_t some_lanes = 0x00a5c369; /* of the first 24 */

struct vector_row {
    const char *op, *type;
    uint32_t n;
    char kind;
};

static const struct vector_row rows[] = {
    {"add", "f32", 2, '+'},          {"add", "f32", 4, '+'},
    {"add.noftz", "f16", 2, '+'},    {"add.noftz", "f16", 4, '+'},
    {"add.noftz", "f16", 8, '+'},    {"add.noftz", "bf16", 2, '+'},
    {"add.noftz", "bf16", 4, '+'},   {"add.noftz", "bf16", 8, '+'},
    {"add.noftz", "f16x2", 2, '+'},  {"add.noftz", "f16x2", 4, '+'},
    {"add.noftz", "bf16x2", 2, '+'}, {"add.noftz", "bf16x2", 4, '+'},
    {"min.noftz", "f16", 2, '<'},    {"max.noftz", "f16", 8, '>'},
    {"min.noftz", "bf16", 4, '<'},   {"max.noftz", "bf16", 2, '>'},
    {"min.noftz", "f16x2", 4, '<'},  {"max.noftz", "f16x2", 2, '>'},
    {"min.noftz", "bf16x2", 2, '<'}, {"max.noftz", "bf16x2", 4, '>'},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

uint32_t op_vector_rows(void)
{
    return 2 * N_ROWS;
}

static struct op_type type_of(const struct vector_row *r)
{
    struct op_type t;
    op_type_parse(&t, r->type, strlen(r->type));
    return t;
}

static void add_list(struct tl_buf *b, const char *name, uint32_t bits, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        tl_buf_printf(b, "%s%%%s%u_%u", j == 0 ? "{" : ", ", name, bits, j);
    tl_buf_puts(b, "}");
}

void op_vector_kernel(struct tl_buf *b, bool is_red, bool is_guarded)
{
    b->n = 0;
    tl_buf_printf(b,
                  ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 "
                  "p_in, .param .u64 p_out)\n{\n"
                  "  .reg .b64 %%in, %%out, %%at, %%cell;\n  .reg .b32 %%i, %%t;\n  .reg .pred "
                  "%%g;\n  .reg .b16 %%x16_<8>, "
                  "%%d16_<8>;\n  .reg .b32 %%x32_<8>, %%d32_<8>;\n  ld.param.u64 %%in, [p_in];\n  "
                  "ld.param.u64 %%out, [p_out];\n"
                  "  mov.u32 %%i, %%tid.x;\n  and.b32 %%t, %%i, %u;\n  mul.wide.u32 %%cell, %%t, "
                  "16;\n  add.s64 %%cell, %%cell, "
                  "%%out;\n  mul.wide.u32 %%at, %%i, 16;\n  add.s64 %%in, %%in, %%at;\n  add.s64 "
                  "%%out, %%out, %%at;\n"
                  "  mov.u32 %%t, %u;\n  shr.u32 %%t, %%t, %%i;\n  and.b32 %%t, %%t, 1;\n  "
                  "setp.ne.s32 %%g, %%t, 0;\n",
                  VECTOR_CELLS - 1, some_lanes);
    for (uint32_t k = 0; k < N_ROWS; k++) {
        const struct vector_row *r = &rows[k];
        uint32_t bits = type_of(r).reg_bits, at = k * OP_LANES * VECTOR_BYTES;
        for (uint32_t j = 0; j < r->n; j++)
            tl_buf_printf(b, "  ld.global.b%u %%x%u_%u, [%%in+%u];\n  mov.b%u %%d%u_%u, 77;\n",
                          bits, bits, j, at + j * bits / 8, bits, bits, j);
        tl_buf_printf(b, "  %s%s.global.%s.v%u.%s ", is_guarded ? "@%g " : "",
                      is_red ? "red" : "atom", r->op, r->n, r->type);
        if (!is_red) {
            add_list(b, "d", bits, r->n);
            tl_buf_puts(b, ", ");
        }
        tl_buf_printf(b, "[%%cell+%u], ",
                      N_ROWS * OP_LANES * VECTOR_BYTES + k * VECTOR_CELLS * VECTOR_BYTES);
        add_list(b, "x", bits, r->n);
        tl_buf_puts(b, ";\n");
        for (uint32_t j = 0; j < r->n; j++)
            tl_buf_printf(b, "  st.global.b%u [%%out+%u], %%d%u_%u;\n", bits, at + j * bits / 8,
                          bits, j);
    }
    tl_buf_puts(b, "  ret;\n}\n");
}

static uint8_t *cells_of(uint64_t *out, uint32_t k)
{
    return (uint8_t *)out + (size_t)N_ROWS * OP_LANES * VECTOR_BYTES +
           (size_t)k * VECTOR_CELLS * VECTOR_BYTES;
}

/* What the cells hold first is kept behind the operands. */
void op_vector_inputs(uint64_t *in, uint64_t *out, uint64_t seed)
{
    size_t n = (size_t)N_ROWS * (OP_LANES + VECTOR_CELLS) * VECTOR_BYTES / 8;
    uint64_t z = seed * 0x9E3779B97F4A7C15ull + 7;
    for (size_t i = 0; i < n; i++) {
        z ^= z << 13;
        z ^= z >> 7;
        z ^= z << 17;
        /* any, or moderate */
        in[i] = seed % 2 == 0 ? z : (z & 0x83ff83ff83ff83ffull) | 0x3c003c003c003c00ull;
    }
    memset(out, 0, n * sizeof *out);
    memcpy(cells_of(out, 0), cells_of(in, 0), (size_t)N_ROWS * VECTOR_CELLS * VECTOR_BYTES);
}

static uint64_t half_step(const struct op_type *t, char kind, uint64_t a, uint64_t b)
{
    double x = op_float(t, a), y = op_float(t, b);
    if (kind == '+')
        return op_bits(t, op_odd('+', x, y, 0), ROUND_NEAREST);
    if (x != x || y != y)
        return x != x ? b : a;
    uint64_t sign = 1ull << (t->bits - 1);
    bool a_first = x != y ? x < y : (a & sign) != 0; /* -0 is below +0 */
    return (kind == '<') == a_first ? a : b;
}

static uint64_t step(const struct op_type *t, char kind, uint64_t old, uint64_t x)
{
    uint64_t r = 0, mask = (1ull << t->bits) - 1;
    for (uint32_t p = 0; p < t->packed; p++)
        r |= half_step(t, kind, old >> (p * t->bits) & mask, x >> (p * t->bits) & mask)
             << (p * t->bits);
    return r;
}

static uint64_t get(const uint8_t *p, uint32_t bytes)
{
    uint64_t v = 0;
    memcpy(&v, p, bytes);
    return v;
}

void op_vector_check(bool is_red, const uint64_t *in, const uint64_t *out, bool is_guarded,
                     struct tl_buf *wrong)
{
    const struct op_row row = {"atom", "", NULL, 0, 0, NULL};
    for (uint32_t k = 0; k < N_ROWS; k++) {
        const struct vector_row *r = &rows[k];
        struct op o = {.row = &row};
        uint8_t cells[VECTOR_CELLS * VECTOR_BYTES];
        o.result[0] = type_of(r);
        uint32_t bytes = o.result[0].reg_bits / 8;
        memcpy(cells, cells_of((uint64_t *)(uintptr_t)in, k), sizeof cells);
        for (uint32_t i = 0; i < (is_guarded ? 24 : 32); i++) {
            const uint8_t *x = (const uint8_t *)in + ((size_t)k * OP_LANES + i) * VECTOR_BYTES;
            const uint8_t *saw = (const uint8_t *)out + ((size_t)k * OP_LANES + i) * VECTOR_BYTES;
            bool is_active = !is_guarded || (some_lanes >> i & 1);
            for (uint32_t j = 0; j < r->n; j++) {
                uint8_t *cell = cells + (i % VECTOR_CELLS) * VECTOR_BYTES + (size_t)j * bytes;
                uint64_t old = get(cell, bytes),
                         next = step(&o.result[0], r->kind, old, get(x + (size_t)j * bytes, bytes));
                if (is_active)
                    memcpy(cell, &next, bytes);
                if (!op_result_is(&o, 0, get(saw + (size_t)j * bytes, bytes),
                                  is_active && !is_red ? old : 77))
                    tl_buf_printf(wrong,
                                  "\n%s.%s.v%u.%s: lane %u sees 0x%llx in element %u, not 0x%llx",
                                  is_red ? "red" : "atom", r->op, r->n, r->type, i,
                                  (unsigned long long)get(saw + (size_t)j * bytes, bytes), j,
                                  (unsigned long long)old);
            }
        }
        for (uint32_t i = 0; i < VECTOR_CELLS * VECTOR_BYTES / bytes; i++) {
            uint64_t got = get(cells_of((uint64_t *)(uintptr_t)out, k) + (size_t)i * bytes, bytes),
                     want = get(cells + (size_t)i * bytes, bytes);
            if (!op_result_is(&o, 0, got, want))
                tl_buf_printf(wrong, "\n%s.%s.v%u.%s: word %u becomes 0x%llx, not 0x%llx",
                              is_red ? "red" : "atom", r->op, r->n, r->type, i,
                              (unsigned long long)got, (unsigned long long)want);
        }
    }
}
