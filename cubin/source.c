/* The gate as PTX.  See struct tl_cubin_args for what it decides and docs/gate.md for why.
 *
 * On the way into the kernel there are loads and one atomic whose results were used: nothing is in
 * flight where the gate is cut off.  The answer of thread 0 reaches the others by barrier 0, so no
 * shared memory is needed. */
#include "cubin/internal.h"

#include <stdio.h>

/* Thread 0 of the block, as predicate p0. */
static void put_leader(struct tl_buf *o, const char *p)
{
    tl_buf_printf(o, ".reg .pred %%%sp<8>;\n.reg .b32 %%%sr<20>;\n.reg .b64 %%%sd<12>;\n", p, p, p);
    tl_buf_printf(o,
                  "mov.u32 %%%sr0, %%tid.x;\nmov.u32 %%%sr1, %%tid.y;\nmov.u32 %%%sr2, %%tid.z;\n"
                  "or.b32 %%%sr0, %%%sr0, %%%sr1;\nor.b32 %%%sr0, %%%sr0, %%%sr2;\n"
                  "setp.eq.u32 %%%sp0, %%%sr0, 0;\n",
                  p, p, p, p, p, p, p, p, p, p, p);
}

/* The number of the block, or of its cluster, as r4. */
static void put_index(struct tl_buf *o, const char *p, const uint32_t cluster[3])
{
    static const char axis[] = "xyz";
    for (int i = 0; i < 3; i++) {
        tl_buf_printf(o, "mov.u32 %%%sr%d, %%ctaid.%c;\n", p, 4 + i, axis[i]);
        if (cluster[i] > 1)
            tl_buf_printf(o, "div.u32 %%%sr%d, %%%sr%d, %u;\n", p, 4 + i, p, 4 + i, cluster[i]);
    }
    for (int i = 0; i < 2; i++) {
        tl_buf_printf(o, "mov.u32 %%%sr%d, %%nctaid.%c;\n", p, 7 + i, axis[i]);
        if (cluster[i] > 1)
            tl_buf_printf(o, "div.u32 %%%sr%d, %%%sr%d, %u;\n", p, 7 + i, p, 7 + i, cluster[i]);
    }
    tl_buf_printf(o,
                  "mad.lo.u32 %%%sr6, %%%sr6, %%%sr8, %%%sr5;\n"
                  "mad.lo.u32 %%%sr4, %%%sr6, %%%sr7, %%%sr4;\n",
                  p, p, p, p, p, p, p, p);
}

/* p1: thread 0 of a block that is this launch's to run.  p2: some word says stop. */
static void put_questions(struct tl_buf *o, const char *p, const char *param)
{
    for (int i = 0; i < TL_CUBIN_STOP_WORDS + 1; i++)
        tl_buf_printf(o, "ld.param.u64 %%%sd%d, [%s+%d];\n", p, i, param, 8 * i);
    tl_buf_printf(o, "ld.param.u32 %%%sr9, [%s+40];\nld.param.u32 %%%sr10, [%s+44];\n", p, param, p,
                  param);
    tl_buf_printf(o,
                  "setp.ge.and.u32 %%%sp1, %%%sr4, %%%sr9, %%%sp0;\n"
                  "setp.lt.and.u32 %%%sp1, %%%sr4, %%%sr10, %%%sp1;\n",
                  p, p, p, p, p, p, p, p);
    for (int i = 0; i < TL_CUBIN_STOP_WORDS; i++)
        tl_buf_printf(
            o, "mov.b64 %%%sd%d, 0;\n@%%%sp1 ld.relaxed.sys.global.u64 %%%sd%d, [%%%sd%d];\n", p,
            5 + i, p, p, 5 + i, p, i);
    tl_buf_printf(o, "setp.ne.u32 %%%sp2, %%%sr0, %%%sr0;\n", p, p, p);
    for (int i = 0; i < TL_CUBIN_STOP_WORDS; i++)
        tl_buf_printf(o,
                      "mov.b64 {%%%sr11, %%%sr12}, %%%sd%d;\n"
                      "setp.ne.or.u32 %%%sp2, %%%sr11, %%%sr12, %%%sp2;\n",
                      p, p, p, 5 + i, p, p, p, p);
}

/* Claims the number or closes the word, and leaves if the block is not to run. */
static void put_answer(struct tl_buf *o, const char *p)
{
    tl_buf_printf(o,
                  "and.pred %%%sp3, %%%sp2, %%%sp1;\nnot.pred %%%sp4, %%%sp2;\n"
                  "and.pred %%%sp4, %%%sp4, %%%sp1;\n"
                  "add.u32 %%%sr13, %%%sr4, 1;\nmov.u32 %%%sr14, 0;\n",
                  p, p, p, p, p, p, p, p, p, p, p);
    tl_buf_printf(o,
                  "@%%%sp4 atom.relaxed.gpu.global.max.u32 %%%sr14, [%%%sd4], %%%sr13;\n"
                  "@%%%sp3 atom.relaxed.gpu.global.or.b32 %%%sr14, [%%%sd4], 0x80000000;\n",
                  p, p, p, p, p, p, p);
    tl_buf_printf(o,
                  "setp.lt.s32 %%%sp5, %%%sr14, 0;\nor.pred %%%sp5, %%%sp5, %%%sp3;\n"
                  "and.b32 %%%sr15, %%%sr14, 0x7fffffff;\n"
                  "setp.ge.and.u32 %%%sp5, %%%sr4, %%%sr15, %%%sp5;\n",
                  p, p, p, p, p, p, p, p, p, p, p);
    tl_buf_printf(o,
                  "not.pred %%%sp6, %%%sp1;\nor.pred %%%sp5, %%%sp5, %%%sp6;\n"
                  "and.pred %%%sp5, %%%sp5, %%%sp0;\n"
                  "bar.red.or.pred %%%sp7, 0, %%%sp5;\n@%%%sp7 exit;\n",
                  p, p, p, p, p, p, p, p, p, p, p);
}

void tl_cubin_gate_source(struct tl_buf *out, const char *prefix, const char *param,
                          const uint32_t cluster[3])
{
    put_leader(out, prefix);
    put_index(out, prefix, cluster);
    put_questions(out, prefix, param);
    put_answer(out, prefix);
}

/* The first version of PTX that knows the architecture, and so many parameters, as 78 for 7.8:
 * drivers may not know later ones. */
static uint32_t version_for(const struct tl__cb_want *want)
{
    switch (want->arch) {
    case 103:
    case 121:
        return 88;
    case 120:
        return 87;
    case 100:
        return 86;
    default:
        return want->offset + sizeof(struct tl_cubin_args) > 4096 ? 81 : 78;
    }
}

void tl__cb_source_name(char name[TL__CB_SOURCE_NAME], int mark, uint32_t number)
{
    if (number == 0)
        snprintf(name, TL__CB_SOURCE_NAME, "%d", mark);
    else
        snprintf(name, TL__CB_SOURCE_NAME, "%d_%u", mark, number);
}

static void put_entry(struct tl_buf *out, const struct tl__cb_want *want, int mark, uint32_t number)
{
    char name[TL__CB_SOURCE_NAME], args[TL__CB_SOURCE_NAME + 8];
    tl__cb_source_name(name, mark, number);
    snprintf(args, sizeof args, "tl_args%s", name);
    tl_buf_printf(out, ".visible .entry tl_gate%s(", name);
    if (want->offset > 0)
        tl_buf_printf(out, ".param .align 8 .b8 tl_before%s[%u], ", name, want->offset);
    tl_buf_printf(out, ".param .align 8 .b8 %s[%u])\n{\n", args,
                  (unsigned)sizeof(struct tl_cubin_args));
    tl_cubin_gate_source(out, "tl_", args, want->cluster);
    tl_buf_printf(out, "pmevent %d;\nret;\n}\n", mark);
}

void tl__cb_source(struct tl_buf *out, const struct tl__cb_want *const *wants, uint32_t n)
{
    uint32_t version = 0;
    for (uint32_t i = 0; i < n; i++)
        if (version_for(wants[i]) > version)
            version = version_for(wants[i]);
    tl_buf_printf(out, ".version %u.%u\n.target sm_%u\n.address_size 64\n", version / 10,
                  version % 10, wants[0]->arch);
    for (uint32_t i = 0; i < n; i++)
        for (int mark = 1; mark <= 2; mark++)
            put_entry(out, wants[i], mark, i);
    tl_buf_puts(out, ".visible .entry tl_nothing() { ret; }\n");
}
