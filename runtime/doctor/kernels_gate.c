/* Kernels for machine code only: jump tables, calls through pointers, products of matrices, printf.
 * See the header. */
#include "runtime/doctor/ptx.h"

/* --- a line of blocks, with neither shared memory nor barriers nor other dimensions
 * ------------- */

static const char line_text[] = ENTRY("line") BEGIN_LINE
    "\tmad.lo.u32 %r13, %r9, 5, %r10;\n\tst.global.u32 [%d6], %r13;\n" END;

static void line_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                           struct tl_doc_data *d)
{
    EACH(s) d->out[i] = d->in[i] * 5 + START;
}

/* --- a jump table ----------------------------------------------------------------------------- */

static const char jumps_text[] = ENTRY("jumps") BEGIN
    "\tand.b32 %r13, %r9, 7;\n"
    "table:\n\t.branchtargets $t0, $t1, $t2, $t3, $t4, $t5, $t6, $t7;\n"
    "\tbrx.idx %r13, table;\n"
    "$t0:\n\tadd.u32 %r14, %r10, 5;\n\tbra $met;\n"
    "$t1:\n\tmul.lo.u32 %r14, %r10, 7;\n\tbra $met;\n"
    "$t2:\n\txor.b32 %r14, %r10, %r9;\n\tbra $met;\n"
    "$t3:\n\tshr.u32 %r14, %r10, 3;\n\tbra $met;\n"
    "$t4:\n\tsub.u32 %r14, %r9, %r10;\n\tbra $met;\n"
    "$t5:\n\tmad.lo.u32 %r14, %r9, %r10, 1;\n\tbra $met;\n"
    "$t6:\n\tmin.u32 %r14, %r9, %r10;\n\tbra $met;\n"
    "$t7:\n\tnot.b32 %r14, %r10;\n"
    "$met:\n\tst.global.u32 [%d6], %r14;\n" END;

static uint32_t jump(uint32_t in, uint32_t start)
{
    switch (in & 7) {
    case 0:
        return start + 5;
    case 1:
        return start * 7;
    case 2:
        return start ^ in;
    case 3:
        return start >> 3;
    case 4:
        return in - start;
    case 5:
        return in * start + 1;
    case 6:
        return in < start ? in : start;
    default:
        return ~start;
    }
}

static void jumps_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                            struct tl_doc_data *d)
{
    EACH(s) d->out[i] = jump(d->in[i], START);
}

/* --- calls through pointers ------------------------------------------------------------------- */

#define FUNCTION(name, operation)                                                                  \
    ".func (.param .b32 result) " name "(.param .b32 a, .param .b32 b)\n{\n"                       \
    "\t.reg .b32 %r<8>;\n\tld.param.u32 %r1, [a];\n\tld.param.u32 %r2, [b];\n" operation           \
    "\tst.param.b32 [result], %r3;\n\tret;\n}\n"

static const char pointers_text[] = MODULE FUNCTION("first", "\tadd.u32 %r3, %r1, %r2;\n")
    FUNCTION("second", "\tmad.lo.u32 %r3, %r1, %r2, %r1;\n") FUNCTION(
        "third", "\txor.b32 %r3, %r1, %r2;\n\tmov.u32 %r4, %ctaid.x;\n"
                 "\tadd.u32 %r3, %r3, %r4;\n")
        FUNCTION(
            "fourth",
            "\tsub.u32 %r3, %r1, %r2;\n") ".global .align 8 .u64 ways[4] = {first, second, third, "
                                          "fourth};\n"
                                          ".visible .entry pointers(" PARAMS ")\n{\n" BEGIN
                                          "\tand.b32 %r13, %r9, 3;\n\tmul.wide.u32 %d8, %r13, "
                                          "8;\n\tmov.u64 %d9, ways;\n"
                                          "\tadd.s64 %d9, %d9, %d8;\n\tld.global.u64 %d10, [%d9];\n"
                                          "\t{\n\t.param .b32 x;\n\t.param .b32 y;\n\t.param .b32 "
                                          "z;\n"
                                          "\tst.param.b32 [x], %r9;\n\tst.param.b32 [y], %r10;\n"
                                          "like:\n\t.callprototype (.param .b32 _) _ (.param .b32 "
                                          "_, .param .b32 _);\n"
                                          "\tcall (z), %d10, (x, y), like;\n\tld.param.b32 %r14, "
                                          "[z];\n\t}\n"
                                          "\tst.global.u32 [%d6], %r14;\n" END;

static void pointers_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                               struct tl_doc_data *d)
{
    EACH(s)
    {
        uint32_t a = d->in[i], x = START;
        d->out[i] = a % 4 == 0 ? a + x : a % 4 == 1 ? a * x + a : a % 4 == 2 ? (a ^ x) + b : a - x;
    }
}

/* --- products of matrices: 16 x 8 from 16 x 16 and 16 x 8, in small numbers that are exact
 * ------ */

/* Two numbers up to 7 from a word, 16 bits apart, as a pair of halves. */
#define PAIR(to, from, shift)                                                                      \
    "\tshr.u32 %r30, " from ", " shift ";\n\tand.b32 %r31, %r30, 7;\n"                             \
    "\tshr.u32 %r32, %r30, 16;\n\tand.b32 %r32, %r32, 7;\n"                                        \
    "\tcvt.rn.f16.u32 %h0, %r31;\n\tcvt.rn.f16.u32 %h1, %r32;\n\tmov.b32 " to ", {%h0, %h1};\n"

static const char mma_text[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry mma(" PARAMS
    ")\n{\n\t.reg .b16 %h<2>;\n\t.reg .f32 %f<9>;\n" BEGIN
    "\tbar.warp.sync -1;\n" PAIR("%r14", "%r9", "0") PAIR("%r15", "%r9", "4")
        PAIR("%r16", "%r9", "8") PAIR("%r17", "%r9", "12") PAIR("%r18", "%r10", "0")
            PAIR("%r19", "%r10",
                 "4") "\tshr.u32 %r20, %r9, 28;\n\tcvt.rn.f32.u32 %f0, "
                      "%r20;\n"
                      "\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, "
                      "{%r14, %r15, %r16, %r17}, {%r18, %r19}, {%f0, %f0, %f0, %f0};\n"
                      "\tcvt.rzi.u32.f32 %r21, %f1;\n\tcvt.rzi.u32.f32 %r22, %f2;\n"
                      "\tcvt.rzi.u32.f32 %r23, %f3;\n\tcvt.rzi.u32.f32 %r24, %f4;\n"
                      "\tmad.lo.u32 %r21, %r21, 1021, %r22;\n\tmad.lo.u32 %r21, %r21, 1021, %r23;\n"
                      "\tmad.lo.u32 %r21, %r21, 1021, %r24;\n\tst.global.u32 [%d6], %r21;\n" END;

/* A warp's product, by the layout of fragments in the PTX ISA: lane 4 g + t has rows g and g + 8 of
 * A, column g of B, and columns 2 t and 2 t + 1 of C. */
static void multiply(const uint32_t in[32], const uint32_t start[32], uint32_t out[32])
{
    uint32_t a[16][16], b[16][8];
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t g = lane / 4, t = lane % 4, reg = i / 2, high = 16 * (i % 2);
            a[g + 8 * (reg % 2)][2 * t + i % 2 + 8 * (reg / 2)] = in[lane] >> (4 * reg + high) & 7;
            if (reg < 2)
                b[2 * t + i % 2 + 8 * reg][g] = start[lane] >> (4 * reg + high) & 7;
        }
    for (uint32_t lane = 0; lane < 32; lane++) {
        out[lane] = 0;
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            uint32_t sum = in[lane] >> 28;
            for (uint32_t k = 0; k < 16; k++)
                sum += a[row][k] * b[k][column];
            out[lane] = out[lane] * 1021 + sum;
        }
    }
}

static void mma_reference(const struct tl_doc_shape *s, const uint32_t *spun, struct tl_doc_data *d)
{
    for (uint32_t b = 0; b < s->blocks; b++)
        for (uint32_t w = 0; w < TL_DOC_THREADS; w += 32) {
            size_t at = (size_t)b * TL_DOC_THREADS + w;
            uint32_t start[32];
            for (uint32_t i = 0; i < 32; i++)
                start[i] = start_of(spun, b, w + i);
            multiply(d->in + at, start, d->out + at);
        }
}

/* --- printf ----------------------------------------------------------------------------------- */

/* "tally doctor: block %u\n" */
static const char prints_text[] = MODULE
    ".extern .func (.param .b32 result) vprintf(.param .b64 a, .param .b64 b);\n"
    ".global .align 1 .b8 line[24] = {116, 97, 108, 108, 121, 32, 100, 111, 99, 116, 111, 114, 58, "
    "32, 98, 108, 111, 99, 107, 32, 37, 117, 10, 0};\n"
    ".visible .entry prints(" PARAMS ")\n{\n\t.local .align 8 .b8 depot[8];\n" BEGIN
    "\tmad.lo.u32 %r13, %r9, 9, %r10;\n\tst.global.u32 [%d6], %r13;\n\t@%p0 bra $done;\n"
    "\tmov.u64 %d8, depot;\n\tst.local.u32 [%d8], %r7;\n\tcvta.local.u64 %d9, %d8;\n"
    "\tmov.u64 %d10, line;\n\tcvta.global.u64 %d10, %d10;\n"
    "\t{\n\t.param .b64 x;\n\t.param .b64 y;\n\t.param .b32 z;\n"
    "\tst.param.b64 [x], %d10;\n\tst.param.b64 [y], %d9;\n\tcall.uni (z), vprintf, (x, y);\n\t}\n"
    "$done:\n" END;

static void prints_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                             struct tl_doc_data *d)
{
    EACH(s) d->out[i] = d->in[i] * 9 + START;
}

const struct tl_doc_kernel tl_doc_gate_kernels[] = {
    {"line", "a line of blocks that asks for nothing else", line_text, .reference = line_reference},
    {"jumps", "a jump table", jumps_text, .reference = jumps_reference},
    {"pointers", "calls through pointers in a variable", pointers_text,
     .reference = pointers_reference},
    {"mma", "products of matrices", mma_text, .least_arch = 80, .reference = mma_reference},
    {"prints", "printf", prints_text, .prints = true, .reference = prints_reference},
};
const uint32_t tl_doc_n_gate_kernels = sizeof tl_doc_gate_kernels / sizeof tl_doc_gate_kernels[0];
