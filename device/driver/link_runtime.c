/* The part of CUDA's device runtime that linked programs call and that its library does not define
 * in PTX, but leaves to the driver: synchronising a cooperative grid.  The barrier is the second
 * word of the grid's workspace (device/abi.h), and works as the one of cooperative_groups.h: each
 * block adds one, the first block so much that the top bit turns over when all have come. */
#include "device/driver/link.h"

const char tl_drv_link_runtime[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)\n{\n"
    "    .reg .b32 %hi, %lo; .reg .b64 %at;\n"
    "    mov.u32 %hi, %envreg1; mov.u32 %lo, %envreg2; mov.b64 %at, {%lo, %hi};\n"
    "    st.param.b64 [handle], %at; ret;\n}\n"
    ".visible .func (.param .b32 error) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)\n"
    "{\n"
    "    .reg .b64 %at; .reg .b32 %x, %y, %z, %n, %old, %new; .reg .pred %skips, %waits;\n"
    "    bar.sync 0;\n"
    "    mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %tid.z;\n"
    "    or.b32 %x, %x, %y; or.b32 %x, %x, %z; setp.ne.u32 %skips, %x, 0;\n"
    "    @%skips bra met;\n"
    "    ld.param.u64 %at, [handle];\n"
    "    mov.u32 %x, %ctaid.x; mov.u32 %y, %ctaid.y; mov.u32 %z, %ctaid.z;\n"
    "    or.b32 %x, %x, %y; or.b32 %x, %x, %z; setp.ne.u32 %waits, %x, 0;\n"
    "    mov.u32 %x, %nctaid.x; mov.u32 %y, %nctaid.y; mov.u32 %z, %nctaid.z;\n"
    "    mul.lo.u32 %n, %x, %y; mul.lo.u32 %n, %n, %z; sub.u32 %n, 0x80000001, %n;\n"
    "    selp.u32 %n, 1, %n, %waits;\n"
    "    atom.add.release.gpu.u32 %old, [%at+4], %n;\n"
    "poll:\n"
    "    ld.acquire.gpu.u32 %new, [%at+4]; xor.b32 %new, %new, %old; setp.ge.s32 %waits, %new, 0;\n"
    "    @%waits bra poll;\n"
    "met:\n"
    "    bar.sync 0;\n"
    "    st.param.b32 [error], 0; ret;\n}\n";
