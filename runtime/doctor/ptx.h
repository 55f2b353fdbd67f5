/* What the texts of the examination's kernels, and what they must compute, are put together from;
 * see runtime/doctor/kernels.h. */
#ifndef TALLY_RUNTIME_DOCTOR_PTX_H
#define TALLY_RUNTIME_DOCTOR_PTX_H

#include "runtime/doctor/kernels.h"

#define MODULE ".version 7.0\n.target sm_70\n.address_size 64\n"
#define PARAMS                                                                                     \
    ".param .u64 p_in, .param .u64 p_out, .param .u64 p_runs, .param .u64 p_aux, "                 \
    ".param .u32 p_spin"
/* %d0 in, %d1 out, %d2 runs, %d3 aux; %d6 the thread's place in out; %r0 thread, %r1 to %r3 block,
 * %r4 and %r5 grid, %r6 threads, %r7 number of the block, %r8 of the thread, %r9 its word of in,
 * %r10 what it came to; %p0 all threads but the first. */
#define BEGIN                                                                                      \
    BEGIN_BY("\tmov.u32 %r2, %ctaid.y;\n\tmov.u32 %r3, %ctaid.z;\n\tmov.u32 %r5, %nctaid.y;\n"     \
             "\tmad.lo.u32 %r7, %r3, %r5, %r2;\n\tmad.lo.u32 %r7, %r7, %r4, %r1;\n")
/* The same for a grid of a line, which asks for no more than it needs. */
#define BEGIN_LINE BEGIN_BY("\tmov.u32 %r7, %r1;\n")
#define BEGIN_BY(number)                                                                           \
    "\t.reg .pred %p<12>;\n\t.reg .b32 %r<40>;\n\t.reg .b64 %d<24>;\n"                             \
    "\tld.param.u64 %d20, [p_in];\n\tcvta.to.global.u64 %d0, %d20;\n"                              \
    "\tld.param.u64 %d21, [p_out];\n\tcvta.to.global.u64 %d1, %d21;\n"                             \
    "\tld.param.u64 %d22, [p_runs];\n\tcvta.to.global.u64 %d2, %d22;\n"                            \
    "\tld.param.u64 %d23, [p_aux];\n\tcvta.to.global.u64 %d3, %d23;\n"                             \
    "\tmov.u32 %r0, %tid.x;\n\tmov.u32 %r1, %ctaid.x;\n\tmov.u32 %r4, %nctaid.x;\n"                \
    "\tmov.u32 %r6, %ntid.x;\n" number "\tmad.lo.u32 %r8, %r7, %r6, %r0;\n"                        \
    "\tmul.wide.u32 %d4, %r8, 4;\n\tadd.s64 %d5, %d0, %d4;\n\tld.global.u32 %r9, [%d5];\n"         \
    "\tadd.s64 %d6, %d1, %d4;\n\txor.b32 %r10, %r7, %r0;\n"                                        \
    "\tsetp.ne.u32 %p0, %r0, 0;\n\t@%p0 bra $begun;\n"                                             \
    "\tmul.wide.u32 %d7, %r7, 4;\n\tadd.s64 %d7, %d2, %d7;\n\tred.global.add.u32 [%d7], 1;\n"      \
    "\tmov.u32 %r10, %r7;\n\tmov.u32 %r11, 0;\n\tld.param.u32 %r12, [p_spin];\n"                   \
    "$spin:\n\tsetp.ge.u32 %p1, %r11, %r12;\n\t@%p1 bra $begun;\n"                                 \
    "\tmad.lo.u32 %r10, %r10, 1664525, 1013904223;\n\tadd.u32 %r11, %r11, 1;\n\tbra $spin;\n"      \
    "$begun:\n"
#define END "\tret;\n}\n"
#define ENTRY(name) MODULE ".visible .entry " name "(" PARAMS ")\n{\n"
/* %r14: the thread's place in a shared array whose address is in %r13. */
#define PLACE "\tshl.b32 %r14, %r0, 2;\n\tadd.u32 %r14, %r13, %r14;\n"

/* What a thread begins with, as BEGIN computes it. */
static inline uint32_t start_of(const uint32_t *spun, uint32_t block, uint32_t thread)
{
    return thread == 0 ? spun[block] : block ^ thread;
}

/* Block by block and thread by thread, with the thread's number, its word of in and what it begins
 * with. */
#define EACH(s)                                                                                    \
    for (uint32_t b = 0; b < (s)->blocks; b++)                                                     \
        for (uint32_t t = 0, i = b * TL_DOC_THREADS; t < TL_DOC_THREADS; t++, i++)
#define START (start_of(spun, b, t))

#endif
