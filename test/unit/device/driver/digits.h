/* Kernels whose order is seen in what they leave: each appends a digit, slowly. */
#ifndef TALLY_TEST_DIGITS_H
#define TALLY_TEST_DIGITS_H

#include "test/unit/device/driver/help.h"

/* p[0] = p[0] * 10 + digit */
#define DIGIT                                                                                      \
    ".visible .entry digit(.param .u64 p, .param .u32 digit)\n"                                    \
    "{ .reg .b64 %d<3>; .reg .b32 %r<4>; .reg .pred %q; ld.param.u64 %d1, [p];\n"                  \
    " mov.u32 %r3, 0; ld.volatile.global.u32 %r1, [%d1];\n"                                        \
    "again: ld.volatile.global.u32 %r2, [%d1]; add.u32 %r3, %r3, 1;\n"                             \
    " setp.lt.u32 %q, %r3, 20000; @%q bra again;\n"                                                \
    " ld.param.u32 %r2, [digit]; mad.lo.u32 %r1, %r1, 10, %r2;\n"                                  \
    " st.volatile.global.u32 [%d1], %r1; ret; }\n"

/* The text with the device runtime. */
static inline CUmodule linked_module(const char *text)
{
    CUlinkState s;
    CUmodule m;
    void *image;
    size_t bytes;
    OK(CALL(cuLinkCreate_v2)(0, NULL, NULL, &s));
    OK(CALL(cuLinkAddData_v2)(s, CU_JIT_INPUT_PTX, (void *)text, strlen(text) + 1, "k", 0, NULL,
                              NULL));
    OK(CALL(cuLinkComplete)(s, &image, &bytes));
    OK(CALL(cuModuleLoadData)(&m, image));
    OK(CALL(cuLinkDestroy)(s));
    return m;
}

#endif
