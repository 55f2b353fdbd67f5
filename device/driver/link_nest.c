/* The functions of CUDA's device runtime with which kernels launch kernels, as PTX: what the
 * compiler makes of <<<>>> in a kernel, and of what cuda_device_runtime_api.h declares.  Each loads
 * its parameters and asks (device/nest.h); what is a pointer to a result is written here, so that a
 * wrong one is the kernel's fault.  Programs bring a library with the same names, for drivers of
 * GPUs; ours comes in front of it.  What is not here is left to that one. */
#include "device/driver/link.h"
#include "device/nest.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

#define B64(name) ".param .b64 " name
#define B32(name) ".param .b32 " name
#define DIM(name) ".param .align 4 .b8 " name "[12]"

#define ASKED                                                                                      \
    ".extern .func (.param .b64 answer) " TL_NEST_FUNCTION                                         \
    " (" B32("what") ", " B64("p0") ", " B64("p1") ", " B64("p2") ", " B64("p3") ", " B64(         \
        "p4") ", " B64("p5") ", " B64("p6") ");\n"

/* Registers of all functions: arguments, the answer, and what is needed in between. */
#define BEGIN                                                                                      \
    "{\n .reg .b64 %a<7>, %to, %answer; .reg .b32 %lo, %hi, %x; .reg .pred %p;\n"                  \
    " mov.u64 %a0, 0; mov.u64 %a1, 0; mov.u64 %a2, 0; mov.u64 %a3, 0; mov.u64 %a4, 0;"             \
    " mov.u64 %a5, 0; mov.u64 %a6, 0;\n"
#define LOAD64(number, from) " ld.param.u64 %a" #number ", [" from "];\n"
#define LOAD32(number, from) " ld.param.u32 %x, [" from "]; cvt.u64.u32 %a" #number ", %x;\n"
#define ARGUMENT(number) " .param .b64 p" #number "; st.param.b64 [p" #number "], %a" #number ";\n"
#define ASK(what)                                                                                  \
    " {\n .param .b32 what; .param .b64 back; st.param.b32 [what], " TEXT(what) ";\n" ARGUMENT(0)  \
        ARGUMENT(1) ARGUMENT(2) ARGUMENT(3) ARGUMENT(4) ARGUMENT(5)                                \
            ARGUMENT(6) " call (back), " TL_NEST_FUNCTION                                          \
                        ", (what, p0, p1, p2, p3, p4, p5, p6);\n"                                  \
                        " ld.param.u64 %answer, [back];\n }\n"
#define GIVE_ERROR " cvt.u32.u64 %x, %answer; st.param.b32 [error], %x; ret;\n}\n"

#define FUNCTION(name, parameters)                                                                 \
    ".visible .func (.param .b32 error) __cudaCDP2" name " (" parameters ")\n" BEGIN
/* And the one of programs whose default stream is a thread's own: a grid has one default stream. */
#define BOTH(name, parameters, body)                                                               \
    FUNCTION(name, parameters) body FUNCTION(name "_ptsz", parameters) body

/* An answer that is no error but a handle: to where the first parameter points. */
#define GIVE_HANDLE                                                                                \
    " setp.eq.u64 %p, %answer, 0; mov.u32 %x, 2;\n"                                                \
    " @!%p st.u64 [%to], %answer; @!%p mov.u32 %x, 0; st.param.b32 [error], %x; ret;\n}\n"
/* An answer with an error in its upper half. */
#define GIVE_VALUE                                                                                 \
    " mov.b64 {%lo, %hi}, %answer; setp.eq.u32 %p, %hi, 0;\n"                                      \
    " @%p st.u32 [%to], %lo; st.param.b32 [error], %hi; ret;\n}\n"

/* clang-format off */
const char tl_drv_link_nest[] = HEAD ASKED
    ".visible .func (.param .b64 where) __cudaCDP2GetParameterBufferV2 ("
    B64("function") ", " DIM("grid") ", " DIM("block") ", " B32("shared") ")\n" BEGIN
    LOAD64(0, "function")
    " ld.param.u32 %lo, [grid]; ld.param.u32 %hi, [grid+4]; mov.b64 %a1, {%lo, %hi};\n"
    " ld.param.u32 %lo, [grid+8]; ld.param.u32 %hi, [shared]; mov.b64 %a2, {%lo, %hi};\n"
    " ld.param.u32 %lo, [block]; ld.param.u32 %hi, [block+4]; mov.b64 %a3, {%lo, %hi};\n"
    " ld.param.u32 %lo, [block+8]; cvt.u64.u32 %a4, %lo;\n"
    ASK(TL_NEST_BUFFER) " st.param.b64 [where], %answer; ret;\n}\n"

    BOTH("LaunchDeviceV2", B64("where") ", " B64("stream"),
         LOAD64(0, "where") LOAD64(1, "stream") ASK(TL_NEST_LAUNCH) GIVE_ERROR)

    FUNCTION("StreamCreateWithFlags", B64("stream") ", " B32("flags"))
    ASK(TL_NEST_STREAM) " ld.param.u64 %to, [stream];\n" GIVE_HANDLE
    FUNCTION("StreamDestroy", B64("stream")) LOAD64(0, "stream") ASK(TL_NEST_STREAM_END) GIVE_ERROR
    BOTH("StreamWaitEvent", B64("stream") ", " B64("event") ", " B32("flags"),
         LOAD64(0, "stream") LOAD64(1, "event") ASK(TL_NEST_WAIT) GIVE_ERROR)

    FUNCTION("EventCreateWithFlags", B64("event") ", " B32("flags"))
    ASK(TL_NEST_EVENT) " ld.param.u64 %to, [event];\n" GIVE_HANDLE
    FUNCTION("EventDestroy", B64("event")) LOAD64(0, "event") ASK(TL_NEST_EVENT_END) GIVE_ERROR
    BOTH("EventRecord", B64("event") ", " B64("stream"),
         LOAD64(0, "event") LOAD64(1, "stream") ASK(TL_NEST_RECORD) GIVE_ERROR)
    BOTH("EventRecordWithFlags", B64("event") ", " B64("stream") ", " B32("flags"),
         LOAD64(0, "event") LOAD64(1, "stream") ASK(TL_NEST_RECORD) GIVE_ERROR)

    BOTH("MemcpyAsync", B64("to") ", " B64("from") ", " B64("bytes") ", " B32("kind") ", " B64("stream"),
         LOAD64(0, "to") LOAD64(2, "from") LOAD64(4, "bytes") " mov.u64 %a5, 1;\n" LOAD64(6, "stream")
         ASK(TL_NEST_COPY) GIVE_ERROR)
    BOTH("Memcpy2DAsync", B64("to") ", " B64("pitch") ", " B64("from") ", " B64("its") ", " B64("width") ", "
         B64("height") ", " B32("kind") ", " B64("stream"),
         LOAD64(0, "to") LOAD64(1, "pitch") LOAD64(2, "from") LOAD64(3, "its") LOAD64(4, "width")
         LOAD64(5, "height") LOAD64(6, "stream") ASK(TL_NEST_COPY) GIVE_ERROR)
    BOTH("MemsetAsync", B64("to") ", " B32("value") ", " B64("bytes") ", " B64("stream"),
         LOAD64(0, "to") LOAD32(2, "value") LOAD64(3, "bytes") " mov.u64 %a4, 1;\n" LOAD64(5, "stream")
         ASK(TL_NEST_FILL) GIVE_ERROR)
    BOTH("Memset2DAsync", B64("to") ", " B64("pitch") ", " B32("value") ", " B64("width") ", "
         B64("height") ", " B64("stream"),
         LOAD64(0, "to") LOAD64(1, "pitch") LOAD32(2, "value") LOAD64(3, "width") LOAD64(4, "height")
         LOAD64(5, "stream") ASK(TL_NEST_FILL) GIVE_ERROR)

    FUNCTION("GetLastError", "") " mov.u64 %a0, 1;\n" ASK(TL_NEST_LAST_ERROR) GIVE_ERROR
    FUNCTION("PeekAtLastError", "") ASK(TL_NEST_LAST_ERROR) GIVE_ERROR
    FUNCTION("DeviceGetAttribute", B64("value") ", " B32("attribute") ", " B32("device"))
    LOAD32(0, "attribute") LOAD32(1, "device") ASK(TL_NEST_ATTRIBUTE) " ld.param.u64 %to, [value];\n" GIVE_VALUE
    FUNCTION("GetDevice", B64("value")) ASK(TL_NEST_DEVICE) " ld.param.u64 %to, [value];\n" GIVE_VALUE
    FUNCTION("GetDeviceCount", B64("value")) ASK(TL_NEST_DEVICES) " ld.param.u64 %to, [value];\n" GIVE_VALUE
    FUNCTION("OccupancyMaxActiveBlocksPerMultiprocessor",
             B64("value") ", " B64("function") ", " B32("threads") ", " B64("shared"))
    LOAD64(0, "function") LOAD32(1, "threads") LOAD64(2, "shared") ASK(TL_NEST_OCCUPANCY)
    " ld.param.u64 %to, [value];\n" GIVE_VALUE
    FUNCTION("OccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
             B64("value") ", " B64("function") ", " B32("threads") ", " B64("shared") ", " B32("flags"))
    LOAD64(0, "function") LOAD32(1, "threads") LOAD64(2, "shared") ASK(TL_NEST_OCCUPANCY)
    " ld.param.u64 %to, [value];\n" GIVE_VALUE

    ".visible .func (.param .b32 error) cudaGraphLaunch (" B64("graph") ", " B64("stream") ")\n" BEGIN
    LOAD64(0, "graph") LOAD64(1, "stream") ASK(TL_NEST_GRAPH) GIVE_ERROR

    /* The heap of malloc in kernels. */
    ".extern .func (.param .b64 p) malloc (.param .b64 bytes);\n"
    ".extern .func free (.param .b64 p);\n"
    FUNCTION("Malloc", B64("to") ", " B64("bytes"))
    LOAD64(0, "bytes") " ld.param.u64 %to, [to];\n"
    " {\n .param .b64 n; .param .b64 back; st.param.b64 [n], %a0; call (back), malloc, (n);\n"
    " ld.param.u64 %answer, [back];\n }\n" GIVE_HANDLE
    FUNCTION("Free", B64("p"))
    LOAD64(0, "p") " {\n .param .b64 n; st.param.b64 [n], %a0; call free, (n);\n }\n"
    " mov.u64 %answer, 0;\n" GIVE_ERROR;
/* clang-format on */
