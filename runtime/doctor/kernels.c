/* The kernels of the examination; see the header.  PTX of our own, old enough for every GPU that
 * Tally knows. */
#include "runtime/doctor/ptx.h"

/* --- a map ------------------------------------------------------------------------------------ */

static const char map_text[] = ENTRY("map") BEGIN
    "\tmad.lo.u32 %r13, %r9, 3, %r10;\n\tst.global.u32 [%d6], %r13;\n" END;

static void map_reference(const struct tl_doc_shape *s, const uint32_t *spun, struct tl_doc_data *d)
{
    EACH(s) d->out[i] = d->in[i] * 3 + START;
}

/* --- a sum in shared memory, with barriers ---------------------------------------------------- */

static const char reduce_text[] =
    ENTRY("reduce") "\t.shared .align 4 .b8 box[1024];\n" BEGIN "\tmov.u32 %r13, box;\n" PLACE
                    "\tadd.u32 %r15, %r9, %r10;\n\tst.shared.u32 [%r14], %r15;\n\tbar.sync 0;\n"
                    "\tmov.u32 %r16, 128;\n"
                    "$round:\n\tsetp.ge.u32 %p2, %r0, %r16;\n\t@%p2 bra $rest;\n"
                    "\tshl.b32 %r17, %r16, 2;\n\tadd.u32 %r17, %r14, %r17;\n\tld.shared.u32 %r18, "
                    "[%r17];\n"
                    "\tld.shared.u32 %r19, [%r14];\n\tadd.u32 %r19, %r19, %r18;\n\tst.shared.u32 "
                    "[%r14], %r19;\n"
                    "$rest:\n\tbar.sync 0;\n\tshr.u32 %r16, %r16, 1;\n\tsetp.ne.u32 %p3, %r16, 0;\n"
                    "\t@%p3 bra $round;\n"
                    "\tld.shared.u32 %r20, [%r13];\n\txor.b32 %r20, %r20, %r0;\n\tst.global.u32 "
                    "[%d6], %r20;\n" END;

static void reduce_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                             struct tl_doc_data *d)
{
    for (uint32_t b = 0; b < s->blocks; b++) {
        uint32_t sum = 0, *out = d->out + (size_t)b * TL_DOC_THREADS;
        for (uint32_t t = 0; t < TL_DOC_THREADS; t++)
            sum += d->in[b * TL_DOC_THREADS + t] + START;
        for (uint32_t t = 0; t < TL_DOC_THREADS; t++)
            out[t] = sum ^ t;
    }
}

/* --- threads that return early ---------------------------------------------------------------- */

static const char early_text[] = ENTRY(
    "early") "\t.shared .align 4 .b8 box[1024];\n\t.shared .align 4 .b8 shelf[1024];\n" BEGIN
             "\tmov.u32 %r13, box;\n" PLACE
             "\tadd.u32 %r15, %r9, %r10;\n\tst.shared.u32 [%r14], %r15;\n"
             "\tmov.u32 %r16, shelf;\n\tshl.b32 %r17, %r0, 2;\n\tadd.u32 %r17, %r16, %r17;\n"
             "\tmov.u32 %r18, 0;\n\tst.shared.u32 [%r17], %r18;\n\tbar.sync 0;\n"
             "\tand.b32 %r19, %r9, 3;\n\tsetp.eq.u32 %p2, %r19, 0;\n\t@%p2 bra $done;\n"
             "\txor.b32 %r20, %r0, 7;\n\tshl.b32 %r20, %r20, 2;\n\tadd.u32 %r21, %r13, %r20;\n"
             "\tld.shared.u32 %r22, [%r21];\n\tst.shared.u32 [%r17], %r22;\n\tbar.sync 0;\n"
             "\tadd.u32 %r23, %r16, %r20;\n\tld.shared.u32 %r24, [%r23];\n"
             "\tmad.lo.u32 %r25, %r24, 5, %r22;\n\tst.global.u32 [%d6], %r25;\n$done:\n" END;

static void early_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                            struct tl_doc_data *d)
{
    for (uint32_t b = 0; b < s->blocks; b++) {
        uint32_t box[TL_DOC_THREADS], shelf[TL_DOC_THREADS];
        const uint32_t *in = d->in + (size_t)b * TL_DOC_THREADS;
        uint32_t *out = d->out + (size_t)b * TL_DOC_THREADS;
        for (uint32_t t = 0; t < TL_DOC_THREADS; t++)
            box[t] = in[t] + START;
        for (uint32_t t = 0; t < TL_DOC_THREADS; t++)
            shelf[t] = in[t] % 4 == 0 ? 0 : box[t ^ 7];
        for (uint32_t t = 0; t < TL_DOC_THREADS; t++)
            out[t] = in[t] % 4 == 0 ? 0 : shelf[t ^ 7] * 5 + box[t ^ 7];
    }
}

/* --- a grid of three dimensions --------------------------------------------------------------- */

static const char grid_text[] = ENTRY("grid") BEGIN
    "\tmad.lo.u32 %r13, %r1, 31, %r2;\n\tmad.lo.u32 %r13, %r13, 37, %r3;\n"
    "\tmad.lo.u32 %r13, %r13, 41, %r4;\n\tmad.lo.u32 %r13, %r13, 43, %r5;\n"
    "\tmov.u32 %r14, %nctaid.z;\n\tmad.lo.u32 %r13, %r13, 47, %r14;\n"
    "\tadd.u32 %r13, %r13, %r10;\n\txor.b32 %r13, %r13, %r9;\n\tst.global.u32 [%d6], %r13;\n" END;

static void grid_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                           struct tl_doc_data *d)
{
    EACH(s)
    {
        uint32_t x = b % s->grid[0], y = b / s->grid[0] % s->grid[1],
                 z = b / s->grid[0] / s->grid[1];
        uint32_t v = ((((x * 31 + y) * 37 + z) * 41 + s->grid[0]) * 43 + s->grid[1]) * 47;
        d->out[i] = (v + s->grid[2] + START) ^ d->in[i];
    }
}

/* --- atomics ---------------------------------------------------------------------------------- */

static const char atomics_text[] = ENTRY("atomics") BEGIN
    "\tand.b32 %r13, %r9, 31;\n\tmul.wide.u32 %d8, %r13, 4;\n\tadd.s64 %d8, %d3, %d8;\n"
    "\tatom.global.add.u32 %r14, [%d8], %r10;\n\tred.global.max.u32 [%d8+128], %r10;\n"
    "\tst.global.u32 [%d6], %r13;\n" END;

static void atomics_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                              struct tl_doc_data *d)
{
    EACH(s)
    {
        uint32_t bin = d->in[i] & 31, v = START;
        d->aux[bin] += v;
        d->aux[32 + bin] = v > d->aux[32 + bin] ? v : d->aux[32 + bin];
        d->out[i] = bin;
    }
}

/* --- the last block sums what all have left --------------------------------------------------- */

static const char last_text[] = ENTRY("last") BEGIN
    "\t@%p0 bra $done;\n\tst.global.u32 [%d6], %r10;\n\tmembar.gl;\n"
    "\tmul.lo.u32 %r13, %r4, %r5;\n\tadd.u32 %r14, %r13, -1;\n"
    "\tatom.global.inc.u32 %r15, [%d3], %r14;\n\tsetp.ne.u32 %p2, %r15, %r14;\n\t@%p2 bra $done;\n"
    "\tmov.u32 %r16, 0;\n\tmov.u32 %r17, 0;\n"
    "$sum:\n\tmul.lo.u32 %r18, %r16, %r6;\n\tmul.wide.u32 %d8, %r18, 4;\n"
    "\tadd.s64 %d9, %d1, %d8;\n\tld.volatile.global.u32 %r19, [%d9];\n"
    "\tadd.u32 %r17, %r17, %r19;\n\tadd.u32 %r16, %r16, 1;\n\tsetp.lt.u32 %p3, %r16, %r13;\n"
    "\t@%p3 bra $sum;\n\tst.global.u32 [%d3+4], %r17;\n$done:\n" END;

static void last_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                           struct tl_doc_data *d)
{
    for (uint32_t b = 0; b < s->blocks; b++) {
        d->out[(size_t)b * TL_DOC_THREADS] = spun[b];
        d->aux[1] += spun[b];
    }
}

/* --- a scan that looks back at earlier blocks ------------------------------------------------- */

/* A block's state (1: its own sum, 2: that of all up to it) and sum are one word, so that they are
 * seen together: vectors promise that of each element only.  The first block never says 1: whoever
 * saw that would look in front of the array. */
static const char scan_text[] = ENTRY("scan") BEGIN
    "\t@%p0 bra $done;\n\tmul.wide.s32 %d8, %r1, 8;\n\tadd.s64 %d9, %d3, %d8;\n"
    "\tmov.u32 %r14, 0;\n\tsetp.eq.u32 %p2, %r1, 0;\n\t@%p2 bra $found;\n"
    "\tmov.u32 %r13, 1;\n\tmov.b64 %d11, {%r13, %r10};\n"
    "\tst.relaxed.gpu.global.u64 [%d9], %d11;\n\tadd.s64 %d10, %d9, -8;\n"
    "$look:\n\tld.relaxed.gpu.global.u64 %d12, [%d10];\n\tmov.b64 {%r15, %r16}, %d12;\n"
    "\tsetp.eq.u32 %p3, %r15, 0;\n\t@%p3 bra $look;\n"
    "\tadd.u32 %r14, %r14, %r16;\n\tadd.s64 %d10, %d10, -8;\n"
    "\tsetp.eq.u32 %p4, %r15, 1;\n\t@%p4 bra $look;\n"
    "$found:\n\tadd.u32 %r17, %r14, %r10;\n\tmov.u32 %r18, 2;\n\tmov.b64 %d13, {%r18, %r17};\n"
    "\tst.relaxed.gpu.global.u64 [%d9], %d13;\n\tst.global.u32 [%d6], %r17;\n"
    "$done:\n" END;

static void scan_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                           struct tl_doc_data *d)
{
    uint32_t sum = 0;
    for (uint32_t b = 0; b < s->blocks; b++) {
        sum += spun[b];
        d->out[(size_t)b * TL_DOC_THREADS] = sum;
        d->aux[2 * b] = 2;
        d->aux[2 * b + 1] = sum;
    }
}

/* --- local memory ----------------------------------------------------------------------------- */

static const char local_text[] = ENTRY(
    "local") "\t.local .align 4 .b8 depot[64];\n" BEGIN
             "\tmov.u64 %d8, depot;\n\tmov.u32 %r13, 0;\n"
             "$fill:\n\tmad.lo.u32 %r14, %r13, %r10, %r9;\n\tmul.wide.u32 %d9, %r13, 4;\n"
             "\tadd.s64 %d9, %d8, %d9;\n\tst.local.u32 [%d9], %r14;\n\tadd.u32 %r13, %r13, 1;\n"
             "\tsetp.lt.u32 %p2, %r13, 16;\n\t@%p2 bra $fill;\n"
             "\tand.b32 %r15, %r9, 15;\n\tmul.wide.u32 %d10, %r15, 4;\n\tadd.s64 %d10, %d8, %d10;\n"
             "\tld.local.u32 %r16, [%d10];\n\tst.global.u32 [%d6], %r16;\n" END;

static void local_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                            struct tl_doc_data *d)
{
    EACH(s) d->out[i] = (d->in[i] & 15) * START + d->in[i];
}

/* --- calls of functions that ask which block they are in -------------------------------------- */

static const char calls_text[] = MODULE
    ".func (.param .b32 result) mix(.param .b32 a, .param .b32 b)\n{\n"
    "\t.reg .b32 %r<8>;\n\tld.param.u32 %r1, [a];\n\tld.param.u32 %r2, [b];\n"
    "\tmov.u32 %r3, %ctaid.x;\n\txor.b32 %r4, %r1, %r2;\n"
    "\tmad.lo.u32 %r5, %r4, -1640531535, %r3;\n\tst.param.b32 [result], %r5;\n\tret;\n}\n"
    ".func (.param .b32 result) twice(.param .b32 a, .param .b32 b)\n{\n"
    "\t.reg .b32 %r<8>;\n\tld.param.u32 %r1, [a];\n\tld.param.u32 %r2, [b];\n"
    "\t{\n\t.param .b32 x;\n\t.param .b32 y;\n\t.param .b32 z;\n"
    "\tst.param.b32 [x], %r1;\n\tst.param.b32 [y], %r2;\n\tcall.uni (z), mix, (x, y);\n"
    "\tld.param.b32 %r3, [z];\n\t}\n"
    "\tmov.u32 %r4, %nctaid.x;\n\tadd.u32 %r3, %r3, %r4;\n"
    "\tst.param.b32 [result], %r3;\n\tret;\n}\n"
    ".visible .entry calls(" PARAMS ")\n{\n" BEGIN
    "\t{\n\t.param .b32 x;\n\t.param .b32 y;\n\t.param .b32 z;\n"
    "\tst.param.b32 [x], %r9;\n\tst.param.b32 [y], %r10;\n\tcall.uni (z), twice, (x, y);\n"
    "\tld.param.b32 %r13, [z];\n\t}\n\tst.global.u32 [%d6], %r13;\n" END;

static void calls_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                            struct tl_doc_data *d)
{
    EACH(s) d->out[i] = (d->in[i] ^ START) * 2654435761u + b + s->grid[0];
}

/* --- variables of the module ------------------------------------------------------------------ */

static const char variables_text[] = MODULE
    ".visible .global .align 4 .u32 doc_total;\n"
    ".visible .global .align 4 .u32 doc_table[8] = {2, 3, 5, 7, 11, 13, 17, 19};\n"
    ".visible .const .align 4 .u32 doc_factor[2] = {23, 29};\n"
    ".func (.param .b32 result) prime(.param .b32 a)\n{\n"
    "\t.reg .b32 %r<8>;\n\t.reg .b64 %d<4>;\n\tld.param.u32 %r1, [a];\n\tand.b32 %r1, %r1, 7;\n"
    "\tmul.wide.u32 %d1, %r1, 4;\n\tmov.u64 %d2, doc_table;\n\tadd.s64 %d1, %d2, %d1;\n"
    "\tld.global.u32 %r2, [%d1];\n\tst.param.b32 [result], %r2;\n\tret;\n}\n"
    ".visible .entry variables(" PARAMS ")\n{\n" BEGIN
    "\t{\n\t.param .b32 x;\n\t.param .b32 z;\n\tst.param.b32 [x], %r9;\n"
    "\tcall.uni (z), prime, (x);\n\tld.param.b32 %r13, [z];\n\t}\n"
    "\tld.const.u32 %r14, [doc_factor];\n\tld.const.u32 %r15, [doc_factor+4];\n"
    "\tmad.lo.u32 %r16, %r13, %r14, %r15;\n\tmad.lo.u32 %r16, %r10, %r16, %r13;\n"
    "\tst.global.u32 [%d6], %r16;\n\tred.global.add.u32 [doc_total], %r13;\n" END;

static void variables_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                                struct tl_doc_data *d)
{
    static const uint32_t table[8] = {2, 3, 5, 7, 11, 13, 17, 19};
    EACH(s)
    {
        uint32_t prime = table[d->in[i] & 7];
        d->out[i] = START * (prime * 23 + 29) + prime;
        d->total += prime;
    }
}

/* --- a large parameter ------------------------------------------------------------------------ */

static const char params_text[] = MODULE
    ".visible .entry params(" PARAMS ", .param .align 4 .b8 p_big[2048])\n{\n" BEGIN
    "\tadd.u32 %r13, %r8, %r9;\n\tand.b32 %r13, %r13, 511;\n\tmul.wide.u32 %d8, %r13, 4;\n"
    "\tmov.b64 %d9, p_big;\n\tadd.s64 %d9, %d9, %d8;\n\tld.param.u32 %r14, [%d9];\n"
    "\tadd.u32 %r14, %r14, %r10;\n\tst.global.u32 [%d6], %r14;\n" END;

static void params_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                             struct tl_doc_data *d)
{
    EACH(s) d->out[i] = d->big[(i + d->in[i]) & 511] + START;
}

/* --- dynamic shared memory -------------------------------------------------------------------- */

static const char shared_text[] = MODULE
    ".extern .shared .align 16 .b8 box[];\n.visible .entry shared(" PARAMS ")\n{\n" BEGIN
    "\tmov.u32 %r13, box;\n" PLACE
    "\tadd.u32 %r15, %r9, %r10;\n\tst.shared.u32 [%r14], %r15;\n\tbar.sync 0;\n"
    "\txor.b32 %r16, %r0, 255;\n\tshl.b32 %r16, %r16, 2;\n\tadd.u32 %r16, %r13, %r16;\n"
    "\tld.shared.u32 %r17, [%r16];\n\tmad.lo.u32 %r17, %r17, 3, %r15;\n"
    "\tst.global.u32 [%d6], %r17;\n" END;

static void shared_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                             struct tl_doc_data *d)
{
    EACH(s)
    {
        uint32_t other = TL_DOC_THREADS - 1 - t, at = b * TL_DOC_THREADS + other;
        d->out[i] = (d->in[at] + start_of(spun, b, other)) * 3 + d->in[i] + START;
    }
}

/* --- shuffles within a warp ------------------------------------------------------------------- */

static const char shuffle_text[] = ENTRY("shuffle") BEGIN "\tadd.u32 %r13, %r9, %r10;\n"
#define STEP(n) "\tshfl.sync.bfly.b32 %r14, %r13, " n ", 31, -1;\n\tadd.u32 %r13, %r13, %r14;\n"
    STEP("16") STEP("8") STEP("4") STEP("2") STEP("1")
#undef STEP
        "\tand.b32 %r15, %r9, 1;\n\tsetp.ne.u32 %p2, %r15, 0;\n"
        "\tvote.sync.ballot.b32 %r16, %p2, -1;\n\txor.b32 %r13, %r13, %r16;\n"
        "\tst.global.u32 [%d6], %r13;\n" END;

static void shuffle_reference(const struct tl_doc_shape *s, const uint32_t *spun,
                              struct tl_doc_data *d)
{
    EACH(s)
    {
        uint32_t sum = 0, votes = 0, first = t & ~31u;
        for (uint32_t k = first; k < first + 32; k++) {
            uint32_t in = d->in[b * TL_DOC_THREADS + k];
            sum += in + start_of(spun, b, k);
            votes |= (in & 1) << (k - first);
        }
        d->out[i] = sum ^ votes;
    }
}

/* --- the list --------------------------------------------------------------------------------- */

const struct tl_doc_kernel tl_doc_kernels[] = {
    {"map", "a plain map", map_text, .reference = map_reference},
    {"reduce", "a reduction in shared memory, with barriers", reduce_text,
     .reference = reduce_reference},
    {"early", "threads that return before others meet a barrier", early_text,
     .reference = early_reference},
    {"grid", "a grid of three dimensions", grid_text, .is_3d = true, .reference = grid_reference},
    {"atomics", "atomic sums and maxima", atomics_text, .reference = atomics_reference},
    {"last", "the last block sums what all have left", last_text, .reference = last_reference},
    {"scan", "a scan that looks back at earlier blocks", scan_text, .reference = scan_reference},
    {"local", "local memory with computed addresses", local_text, .reference = local_reference},
    {"calls", "functions that ask which block they are in", calls_text,
     .reference = calls_reference},
    {"variables", "variables and constants of the module", variables_text, .variable = "doc_total",
     .reference = variables_reference},
    {"params", "a parameter of 2,048 bytes", params_text, .has_big = true,
     .reference = params_reference},
    {"shared", "dynamic shared memory", shared_text, .shared_bytes = 4 * TL_DOC_THREADS,
     .reference = shared_reference},
    {"shuffle", "shuffles and votes within warps", shuffle_text, .reference = shuffle_reference},
};
const uint32_t tl_doc_n_kernels = sizeof tl_doc_kernels / sizeof tl_doc_kernels[0];
