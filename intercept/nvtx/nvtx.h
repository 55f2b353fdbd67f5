/* Of NVTX, version 3, what an injection library has to do with: NVIDIA's public headers
 * (nvtx3/nvToolsExt.h, nvtxDetail/nvtxTypes.h) are not on every machine, and these few numbers and
 * structures are fixed for all programs that were ever built with them. */
#ifndef TALLY_INTERCEPT_NVTX_NVTX_H
#define TALLY_INTERCEPT_NVTX_NVTX_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

/* Tables of functions that a program's copy of NVTX calls; numbers in them. */
enum { NVTX_MODULE_CORE = 1, NVTX_MODULE_CORE2 = 5 };
enum {
    NVTX_RANGE_START_EX = 4,
    NVTX_RANGE_START_A = 5,
    NVTX_RANGE_START_W = 6,
    NVTX_RANGE_END = 7,
    NVTX_RANGE_PUSH_EX = 8,
    NVTX_RANGE_PUSH_A = 9,
    NVTX_RANGE_PUSH_W = 10,
    NVTX_RANGE_POP = 11,
};
enum {
    NVTX_DOMAIN_RANGE_START_EX = 2,
    NVTX_DOMAIN_RANGE_END = 3,
    NVTX_DOMAIN_RANGE_PUSH_EX = 4,
    NVTX_DOMAIN_RANGE_POP = 5,
    NVTX_DOMAIN_REGISTER_STRING_A = 10,
    NVTX_DOMAIN_REGISTER_STRING_W = 11,
    NVTX_DOMAIN_CREATE_A = 12,
    NVTX_DOMAIN_CREATE_W = 13,
};

enum { NVTX_MESSAGE_ASCII = 1, NVTX_MESSAGE_UNICODE = 2, NVTX_MESSAGE_REGISTERED = 3 };

struct nvtx_attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;
        const wchar_t *unicode;
        const void *registered;
    } message;
};
_Static_assert(offsetof(struct nvtx_attributes, message) == 40 &&
                   sizeof(struct nvtx_attributes) == 48,
               "NVTX's layout");

typedef void nvtx_function(void);

enum { NVTX_TABLE_CALLBACKS = 1 };
struct nvtx_callbacks {
    size_t bytes;
    int (*table)(int module, nvtx_function ****out, unsigned *n); /* 1 if there is such a module */
};

typedef const void *nvtx_get_table(uint32_t id);

#endif
