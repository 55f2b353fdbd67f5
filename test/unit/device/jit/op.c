/* Rows understood, kernels written, inputs made, results judged.  See test/unit/device/jit/op.h. */
#include "test/unit/device/jit/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- forms ------------------------------------------------------------------------------------ */

bool op_type_parse(struct op_type *t, const char *name, size_t n)
{
    static const struct op_type types[] = {
        {"pred", 'p', 1, 1, 1},     {"b8", 'b', 8, 1, 32},      {"u8", 'u', 8, 1, 32},
        {"s8", 's', 8, 1, 32},      {"b16", 'b', 16, 1, 16},    {"u16", 'u', 16, 1, 16},
        {"s16", 's', 16, 1, 16},    {"b32", 'b', 32, 1, 32},    {"u32", 'u', 32, 1, 32},
        {"s32", 's', 32, 1, 32},    {"b64", 'b', 64, 1, 64},    {"u64", 'u', 64, 1, 64},
        {"s64", 's', 64, 1, 64},    {"f16", 'f', 16, 1, 16},    {"f32", 'f', 32, 1, 32},
        {"f64", 'f', 64, 1, 64},    {"bf16", 'g', 16, 1, 16},   {"f16x2", 'f', 16, 2, 32},
        {"bf16x2", 'g', 16, 2, 32}, {"f32x2", 'f', 32, 2, 64},  {"u16x2", 'u', 16, 2, 32},
        {"s16x2", 's', 16, 2, 32},  {"tf32", 'b', 32, 1, 32},   {"e4m3x2", '8', 8, 2, 16},
        {"e5m2x2", '8', 8, 2, 16},  {"e2m3x2", '8', 8, 2, 16},  {"e3m2x2", '8', 8, 2, 16},
        {"e2m1x2", '8', 4, 2, 16},  {"ue8m0x2", '8', 8, 2, 16},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strlen(types[i].name) == n && memcmp(types[i].name, name, n) == 0) {
            *t = types[i];
            return true;
        }
    }
    return false;
}

bool op_has(const struct op *o, const char *modifier)
{
    size_t n = strlen(modifier);
    for (const char *p = strchr(o->row->form, '.'); p != NULL; p = strchr(p + 1, '.')) {
        if (strncmp(p + 1, modifier, n) == 0 && (p[1 + n] == '.' || p[1 + n] == 0))
            return true;
    }
    return false;
}

bool op_is(const struct op *o, const char *opcode)
{
    size_t n = strlen(opcode);
    return strncmp(o->row->form, opcode, n) == 0 &&
           (o->row->form[n] == '.' || o->row->form[n] == 0);
}

static void bad_row(const struct op_row *row)
{
    fprintf(stderr, "row '%s' '%s' makes no sense\n", row->form, row->operands);
    exit(1);
}

static void parse_operand(struct op *o, char *word, bool is_result)
{
    if (word[0] == '#') {
        o->immediate[o->n_sources] = word + 1;
        o->immediate_value[o->n_sources] = strtoull(word + 1, NULL, 0);
        o->n_sources++;
        return;
    }
    struct op_type *t = is_result ? &o->result[o->n_results++] : &o->source[o->n_sources++];
    if (!op_type_parse(t, word, strlen(word)))
        bad_row(o->row);
}

void op_parse(struct op *o, const struct op_row *row)
{
    memset(o, 0, sizeof *o);
    o->row = row;
    if (strlen(row->operands) >= sizeof o->operand_text)
        bad_row(row);
    strcpy(o->operand_text, row->operands);
    char *equals = strchr(o->operand_text, '='), *save;
    if (equals == NULL)
        bad_row(row);
    *equals = 0;
    for (char *w = strtok_r(o->operand_text, ",", &save); w != NULL && o->n_results < OP_RESULTS;
         w = strtok_r(NULL, ",", &save))
        parse_operand(o, w, true);
    for (char *w = strtok_r(equals + 1, ",", &save); w != NULL && o->n_sources < OP_SOURCES;
         w = strtok_r(NULL, ",", &save))
        parse_operand(o, w, false);
    for (const char *p = strchr(row->form, '.'); p != NULL; p = strchr(p + 1, '.')) {
        if (o->n_types < OP_TYPES)
            o->n_types += op_type_parse(&o->types[o->n_types], p + 1, strcspn(p + 1, "."));
    }
    o->rounding = op_has(o, "rz") || op_has(o, "rzi")   ? ROUND_ZERO
                  : op_has(o, "rm") || op_has(o, "rmi") ? ROUND_DOWN
                  : op_has(o, "rp") || op_has(o, "rpi") ? ROUND_UP
                  : op_has(o, "rna")                    ? ROUND_AWAY
                                                        : ROUND_NEAREST;
    o->ftz = op_has(o, "ftz");
    o->sat = op_has(o, "sat");
    o->relu = op_has(o, "relu");
    o->nan = op_has(o, "NaN");
}

/* --- kernels ---------------------------------------------------------------------------------- */

bool op_takes_part(uint32_t i)
{
    return i * 0x9E3779B1u >> 20 & 1;
}

uint64_t op_old_value(const struct op_type *t)
{
    uint64_t v = 0x3a5a3a5a3a5a3a5aull;
    return t->reg_bits == 64 ? v : v & ((1ull << t->reg_bits) - 1);
}

static void declare(struct tl_buf *b, const struct op_type *t, const char *name, uint32_t k,
                    uint32_t j)
{
    if (t->kind == 'p')
        tl_buf_printf(b, "  .reg .pred %%%s%u_%u; .reg .b32 %%w%s%u_%u;\n", name, k, j, name, k, j);
    else
        tl_buf_printf(b, "  .reg .b%u %%%s%u_%u;\n", t->reg_bits, name, k, j);
}

static void load_source(struct tl_buf *b, const struct op_type *t, uint32_t k, uint32_t j)
{
    uint64_t offset = (uint64_t)(k * OP_SOURCES + j) * OP_VECTORS * 8;
    declare(b, t, "s", k, j);
    if (t->kind == 'p')
        tl_buf_printf(
            b, "  ld.global.b32 %%ws%u_%u, [%%in+%llu];\n  setp.ne.b32 %%s%u_%u, %%ws%u_%u, 0;\n",
            k, j, (unsigned long long)offset, k, j, k, j);
    else
        tl_buf_printf(b, "  ld.global.b%u %%s%u_%u, [%%in+%llu];\n", t->reg_bits, k, j,
                      (unsigned long long)offset);
}

static void preset_result(struct tl_buf *b, const struct op_type *t, uint32_t k, uint32_t j)
{
    declare(b, t, "d", k, j);
    if (t->kind == 'p')
        tl_buf_printf(b, "  setp.ne.b32 %%d%u_%u, %llu, 0;\n", k, j,
                      (unsigned long long)op_old_value(t));
    else
        tl_buf_printf(b, "  mov.b%u %%d%u_%u, 0x%llx;\n", t->reg_bits, k, j,
                      (unsigned long long)op_old_value(t));
}

static void store_result(struct tl_buf *b, const struct op_type *t, uint32_t k, uint32_t j)
{
    uint64_t offset = (uint64_t)(k * OP_RESULTS + j) * OP_VECTORS * 8;
    if (t->kind == 'p')
        tl_buf_printf(
            b, "  selp.b32 %%wd%u_%u, 1, 0, %%d%u_%u;\n  st.global.b32 [%%out+%llu], %%wd%u_%u;\n",
            k, j, k, j, (unsigned long long)offset, k, j);
    else
        tl_buf_printf(b, "  st.global.b%u [%%out+%llu], %%d%u_%u;\n", t->reg_bits,
                      (unsigned long long)offset, k, j);
}

static void add_operand(struct tl_buf *b, const struct op *o, uint32_t k, uint32_t n)
{
    if (n < o->n_results)
        tl_buf_printf(b, "%%d%u_%u", k, n);
    else if (o->immediate[n - o->n_results] != NULL)
        tl_buf_puts(b, o->immediate[n - o->n_results]);
    else
        tl_buf_printf(b, "%%s%u_%u", k, n - o->n_results);
}

/* The instructions of an op: the form with its operands, or the row's text, each statement
 * guarded. */
static void add_instruction(struct tl_buf *b, const struct op *o, uint32_t k, const char *guard)
{
    if (o->row->text == NULL) {
        tl_buf_printf(b, "  %s%s ", guard, o->row->form);
        for (uint32_t n = 0; n < o->n_results + o->n_sources; n++) {
            tl_buf_puts(b, n == 0 ? "" : n < o->n_results ? "|" : ", ");
            add_operand(b, o, k, n);
        }
        tl_buf_puts(b, ";\n");
        return;
    }
    /* what declares has no guard */
    tl_buf_printf(b, "  {\n  %s", o->row->text[0] == '.' ? "" : guard);
    for (const char *p = o->row->text; *p != 0; p++) {
        if (*p == '$')
            add_operand(b, o, k, (uint32_t)(*++p - '0'));
        else if (*p == ';' && p[1] != 0)
            tl_buf_printf(b, ";\n  %s", p[1] == '.' || p[2] == '.' ? "" : guard);
        else
            tl_buf_add(b, p, 1);
    }
    tl_buf_puts(b, ";\n  }\n");
}

/* Operands, instructions, results of some ops; in one mode, they are jumped over together. */
static void add_group(struct tl_buf *b, const struct op *ops, uint32_t first, uint32_t end,
                      enum op_mode mode)
{
    for (uint32_t k = first; k < end; k++) {
        for (uint32_t j = 0; j < ops[k].n_sources; j++) {
            if (ops[k].immediate[j] == NULL)
                load_source(b, &ops[k].source[j], k, j);
        }
        for (uint32_t j = 0; j < ops[k].n_results; j++)
            preset_result(b, &ops[k].result[j], k, j);
    }
    if (mode == OP_BRANCHED)
        tl_buf_printf(b, "  @!%%p bra SKIP%u;\n", first);
    for (uint32_t k = first; k < end; k++)
        add_instruction(b, &ops[k], k, mode == OP_GUARDED ? "@%p " : "");
    if (mode == OP_BRANCHED)
        tl_buf_printf(b, "SKIP%u:\n", first);
    for (uint32_t k = first; k < end; k++) {
        for (uint32_t j = 0; j < ops[k].n_results; j++)
            store_result(b, &ops[k].result[j], k, j);
    }
}

void op_kernel(struct tl_buf *b, const struct op *ops, uint32_t n, enum op_mode mode)
{
    b->n = 0;
    tl_buf_puts(
        b, ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 p_in, "
           ".param .u64 p_out)\n{\n"
           "  .reg .b64 %in, %out, %at;\n  .reg .b32 %i, %n, %t, %g;\n  .reg .pred %p;\n  .reg "
           ".b64 %x<4>;\n  .reg .b32 "
           "%y<4>;\n"
           "  ld.param.u64 %in, [p_in];\n  ld.param.u64 %out, [p_out];\n  mov.u32 %i, %ctaid.x;\n");
    if (mode != OP_UNIFORM)
        tl_buf_puts(
            b, "  mov.u32 %n, %ntid.x;\n  mov.u32 %t, %tid.x;\n  mad.lo.s32 %i, %i, %n, %t;\n");
    tl_buf_puts(b,
                "  mul.wide.u32 %at, %i, 8;\n  add.s64 %in, %in, %at;\n  add.s64 %out, %out, %at;\n"
                "  mul.lo.s32 %g, %i, 0x9E3779B1;\n  shr.u32 %g, %g, 20;\n  and.b32 %g, %g, 1;\n  "
                "setp.ne.s32 %p, %g, 0;\n");
    /* In small groups: few registers are alive at a time, which compiles fast. */
    uint32_t group = mode == OP_BRANCHED ? 8 : 1;
    for (uint32_t k = 0; k < n; k += group)
        add_group(b, ops, k, k + group < n ? k + group : n, mode);
    tl_buf_puts(b, "  ret;\n}\n");
}

/* --- inputs ----------------------------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

static uint32_t integer_edges(uint32_t bits, uint64_t *to)
{
    static const uint64_t values[] = {
        0,       1,        2,         3,          7,          8,          15,
        16,      17,       31,        32,         33,         63,         64,
        65,      127,      128,       255,        256,        0x8000,     0xffff,
        0x10000, 0xffffff, 0x1000000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000};
    uint64_t ones = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (values[i] <= ones)
            to[n++] = values[i];
    }
    uint64_t high[] = {ones,
                       ones - 1,
                       ones >> 1,
                       (ones >> 1) + 1,
                       (ones >> 1) + 2,
                       0x5555555555555555ull & ones,
                       ones - 30};
    for (size_t i = 0; i < sizeof high / sizeof high[0]; i++)
        to[n++] = high[i];
    return n;
}

/* Numbers at which formats round, overflow, lose bits or saturate, each with both signs and once
 * per pattern; then infinities, the largest number, two NaNs and the smallest denormals. */
static uint32_t float_edges(const struct op_type *t, uint64_t *to)
{
    static const double values[] = {0,
                                    1,
                                    0.5,
                                    1.5,
                                    2,
                                    2.5,
                                    3,
                                    0x1p-24,
                                    0x1p-25,
                                    0x1.8p-25,
                                    65504,
                                    65520,
                                    65519,
                                    448,
                                    449,
                                    464,
                                    465,
                                    57344,
                                    61440,
                                    0x1p-126,
                                    0x1p-127,
                                    0x1p-149,
                                    0x1.fffffep127,
                                    0x1p127,
                                    0x1p31,
                                    0x1p32,
                                    0x1p63,
                                    0x1p64,
                                    127.5,
                                    128.5,
                                    255.5,
                                    32767.5,
                                    0x1.000002p0,
                                    0x1.0001p0,
                                    0x1.01p0,
                                    3.14159265358979,
                                    1e-3,
                                    100.25,
                                    0x1.fffffep-127,
                                    0x1p-14,
                                    0x1p-1022};
    uint32_t n = 0;
    uint64_t sign = 1ull << (t->bits - 1);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        uint64_t v = op_bits(t, values[i], ROUND_NEAREST);
        bool is_new = true;
        for (uint32_t j = 0; j < n; j++)
            is_new &= to[j] != v;
        if (is_new) {
            to[n++] = v;
            to[n++] = v | sign;
        }
    }
    uint64_t inf = op_bits(t, __builtin_inf(), ROUND_NEAREST);
    uint64_t others[] = {inf, inf | sign, inf - 1, inf | sign >> 1 | 1, inf | sign | sign >> 4 | 5,
                         1,   sign | 1};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        to[n++] = others[i];
    return n;
}

enum { MAX_EDGES = 128 };

static uint32_t edges_of(const struct op_type *t, uint64_t *to)
{
    if (t->kind == 'p') {
        to[0] = 0;
        to[1] = 1;
        return 2;
    }
    return t->kind == 'f' || t->kind == 'g' ? float_edges(t, to) : integer_edges(t->bits, to);
}

/* Half of the random floats are of moderate size, so that sums and products are numbers. */
static uint64_t random_element(const struct op_type *t, uint64_t *state)
{
    uint64_t z = next(state), small = next(state) % 41;
    if ((t->kind == 'f' || t->kind == 'g') && (z & 1)) {
        double x = __builtin_ldexp(1 + (double)(z >> 12) / 4503599627370496.0, (int)small - 20);
        return op_bits(t, z & 2 ? -x : x, ROUND_NEAREST);
    }
    if (t->kind != 'f' && t->kind != 'g' && (z & 1))
        z >>= small + 20;
    return t->bits == 64 ? z : (z >> 2) & ((1ull << t->bits) - 1);
}

static uint64_t random_value(const struct op_type *t, uint64_t *state, bool wants_edge)
{
    uint64_t edges[MAX_EDGES], r = 0;
    uint32_t n = edges_of(t, edges);
    for (uint32_t p = 0; p < t->packed; p++)
        r |= (wants_edge ? edges[next(state) % n] : random_element(t, state)) << (p * t->bits);
    if (t->bits == 8 && t->packed == 1)
        r |= next(state) << 8 & 0xffffff00; /* what is above must not matter */
    return r;
}

void op_inputs(const struct op *o, uint64_t *in, uint64_t seed)
{
    uint64_t edges[OP_SOURCES][MAX_EDGES], state = seed;
    uint32_t count[OP_SOURCES], crossed = 1;
    for (uint32_t j = 0; j < o->n_sources; j++) {
        count[j] = o->immediate[j] != NULL || o->source[j].packed > 1
                       ? 1
                       : edges_of(&o->source[j], edges[j]);
        crossed = crossed * count[j] < OP_VECTORS * 3 / 4 ? crossed * count[j] : 0;
    }
    for (uint32_t i = 0; i < OP_VECTORS; i++) {
        uint32_t rest = i;
        for (uint32_t j = 0; j < o->n_sources; j++) {
            uint64_t *at = &in[j * OP_VECTORS + i];
            if (o->immediate[j] != NULL)
                *at = o->immediate_value[j];
            else if (i < crossed && count[j] > 1)
                *at = edges[j][rest % count[j]];
            else
                *at = random_value(&o->source[j], &state, (next(&state) & 3) < 2);
            rest = count[j] > 1 ? rest / count[j] : rest;
        }
    }
}

/* --- results ---------------------------------------------------------------------------------- */

static bool is_close(const struct op *o, const struct op_type *t, uint64_t got, uint64_t want_bits)
{
    double want, x = op_float(t, got);
    memcpy(&want, &want_bits, sizeof want);
    if (want != want)
        return x != x;
    double error = x - want, most = t->bits == 64                     ? 0x1.fffffffffffffp1023
                                    : t->kind == 'g' || t->bits == 32 ? 0x1.fffffep127
                                                                      : 65504;
    double size = want < 0 ? -want : want, allowed = size * o->row->relative;
    if (x == want)
        return true;
    if (size > most * (1 - o->row->relative) && x - x != 0 && (x > 0) == (want > 0))
        return true; /* overflow */
    if (size < (t->bits == 64 ? 0x1p-1022 : 0x1p-126) * 1.000001 && x == 0)
        return true; /* flushed */
    if (allowed < o->row->absolute)
        allowed = o->row->absolute;
    if (t->bits == 32 && allowed < 0x1p-149)
        allowed = 0x1p-149;
    if (t->bits == 16 && t->kind == 'f' && allowed < 0x1p-24)
        allowed = 0x1p-24;
    return error <= allowed && -error <= allowed;
}

static bool element_is(const struct op *o, const struct op_type *t, uint64_t got, uint64_t want)
{
    if (o->row->relative != 0 || o->row->absolute != 0)
        return is_close(o, t, got, want);
    bool is_float = t->kind == 'f' || t->kind == 'g';
    return got == want || (is_float && op_is_nan(t, got) && op_is_nan(t, want));
}

bool op_result_is(const struct op *o, uint32_t n, uint64_t got, uint64_t want)
{
    const struct op_type *t = &o->result[n];
    uint64_t mask = t->bits == 64 ? UINT64_MAX : (1ull << t->bits) - 1;
    if (t->packed == 1)
        return element_is(o, t, got, want);
    for (uint32_t p = 0; p < t->packed; p++) {
        if (!element_is(o, t, got >> (p * t->bits) & mask, want >> (p * t->bits) & mask))
            return false;
    }
    return true;
}
