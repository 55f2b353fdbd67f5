/* The attributes of `.nv.info.<kernel>`: a list of {u8 format, u8 number, u16 value or size}.
 * NVIDIA does not document them; names are those that cuobjdump -elf prints.  Each one in the table
 * is made by some kernel in test/gate, for which ptxas's own output with a prologue shows what
 * becomes of it (docs/gate.md). */
#include "cubin/internal.h"

/* clang-format off */
static const struct tl__cb_attr_kind kinds[256] = {
    [0x04] = {"CTAIDZ_USED",               TL__CB_ALONE, TL__CB_KEEP},
    [0x05] = {"MAX_THREADS",               TL__CB_SIZED, TL__CB_KEEP},
    [0x0a] = {"PARAM_CBANK",               TL__CB_SIZED, TL__CB_BANK},
    [0x0f] = {"EXTERNS",                   TL__CB_SIZED, TL__CB_KEEP},
    [0x10] = {"REQNTID",                   TL__CB_SIZED, TL__CB_KEEP},
    [0x17] = {"KPARAM_INFO",               TL__CB_SIZED, TL__CB_PARAM},
    [0x19] = {"CBANK_PARAM_SIZE",          TL__CB_HALF,  TL__CB_SIZE},
    [0x1b] = {"MAXREG_COUNT",              TL__CB_HALF,  TL__CB_KEEP},
    [0x1c] = {"EXIT_INSTR_OFFSETS",        TL__CB_SIZED, TL__CB_EXITS},
    [0x1e] = {"CRS_STACK_SIZE",            TL__CB_SIZED, TL__CB_KEEP},
    [0x28] = {"COOP_GROUP_INSTR_OFFSETS",  TL__CB_SIZED, TL__CB_OFFSETS},
    [0x29] = {"COOP_GROUP_MASK_REGIDS",    TL__CB_SIZED, TL__CB_KEEP},
    [0x2b] = {"WMMA_USED",                 TL__CB_ALONE, TL__CB_KEEP},
    [0x2e] = {"ATOM16_EMUL_INSTR_REG_MAP", TL__CB_SIZED, TL__CB_FIRST_OF_PAIR},
    [0x31] = {"INT_WARP_WIDE_INSTR_OFFSETS", TL__CB_SIZED, TL__CB_OFFSETS},
    [0x34] = {"INDIRECT_BRANCH_TARGETS",   TL__CB_SIZED, TL__CB_BRANCHES},
    [0x35] = {"SW2861232_WAR",             TL__CB_ALONE, TL__CB_KEEP},
    [0x36] = {"SW_WAR",                    TL__CB_SIZED, TL__CB_KEEP},
    [0x37] = {"CUDA_API_VERSION",          TL__CB_SIZED, TL__CB_KEEP},
    [0x38] = {"NUM_MBARRIERS",             TL__CB_HALF,  TL__CB_KEEP},
    [0x39] = {"MBARRIER_INSTR_OFFSETS",    TL__CB_SIZED, TL__CB_RECORDS},
    [0x3d] = {"CTA_PER_CLUSTER",           TL__CB_SIZED, TL__CB_KEEP},
    [0x3e] = {"EXPLICIT_CLUSTER",          TL__CB_ALONE, TL__CB_KEEP},
    [0x3f] = {"MAX_CLUSTER_RANK",          TL__CB_SIZED, TL__CB_KEEP},
    [0x41] = {"RESERVED_SMEM_USED",        TL__CB_ALONE, TL__CB_KEEP},
    [0x44] = {"UNUSED_LOAD_BYTE_OFFSET",   TL__CB_SIZED, TL__CB_FIRST_OF_PAIR},
    [0x45] = {"KPARAM_INFO_V2",            TL__CB_SIZED, TL__CB_PARAM},
    [0x46] = {"SYSCALL_OFFSETS",           TL__CB_SIZED, TL__CB_OFFSETS},
    [0x4a] = {"VRC_CTA_INIT_COUNT",        TL__CB_BYTE,  TL__CB_KEEP},
    [0x4c] = {"NUM_BARRIERS",              TL__CB_BYTE,  TL__CB_BARRIERS},
    [0x4f] = {"AT_ENTRY_FRAGMENTS",        TL__CB_SIZED, TL__CB_KEEP},
    [0x50] = {"SPARSE_MMA_MASK",           TL__CB_HALF,  TL__CB_KEEP},
    [0x51] = {"TCGEN05_1CTA_USED",         TL__CB_ALONE, TL__CB_KEEP},
    [0x52] = {"TCGEN05_2CTA_USED",         TL__CB_ALONE, TL__CB_KEEP},
    [0x54] = {"REG_RECONFIG",              TL__CB_ALONE, TL__CB_KEEP},
    [0x55] = {"ANNOTATIONS",               TL__CB_SIZED, TL__CB_NOTED_PAIR},
    [0x5f] = {"(5f)",                      TL__CB_HALF,  TL__CB_KEEP},
    [0x62] = {"CLUSTER_LAUNCH_CONTROL_USED", TL__CB_ALONE, TL__CB_FORBIDDEN},
    [0x66] = {"LANGUAGE",                  TL__CB_SIZED, TL__CB_KEEP},
    [0x6b] = {"NVSAL_SW_WAR",              TL__CB_HALF,  TL__CB_KEEP},
    [0x6d] = {"PREEXIT_USED",              TL__CB_BYTE,  TL__CB_KEEP},
};
/* clang-format on */

bool tl__cb_next_attr(const uint8_t **p, size_t *n, struct tl__cb_attr *a)
{
    if (*n < 4)
        return false;
    *a = (struct tl__cb_attr){(*p)[0], (*p)[1], tl__u16(*p + 2), *p + 4};
    size_t taken = 4 + (a->format == TL__CB_SIZED ? a->number : 0u);
    if (taken > *n)
        return false;
    *p += taken;
    *n -= taken;
    return true;
}

const struct tl__cb_attr_kind *tl__cb_attr_kind(uint8_t id)
{
    return &kinds[id];
}

const char *tl_cubin_attribute_name(uint32_t id)
{
    return id < 256 ? kinds[id].name : NULL;
}

/* Whether each `step` bytes have an offset into the code at `at`. */
static bool offsets_are_inside(const struct tl__cb_attr *a, uint32_t step, uint32_t at,
                               uint64_t code_bytes)
{
    if (a->number % step != 0)
        return false;
    for (uint32_t i = 0; i < a->number; i += step)
        if (tl__u32(a->value + i + at) >= code_bytes)
            return false;
    return true;
}

/* The table of an indirect branch: its offset, a number, how many targets, the targets. */
static bool branches_are_inside(const struct tl__cb_attr *a, uint64_t code_bytes)
{
    uint32_t i = 0;
    while (a->number - i >= 12) {
        uint32_t targets = tl__u32(a->value + i + 8);
        if (tl__u32(a->value + i) >= code_bytes || targets > (a->number - i - 12u) / 4)
            return false;
        for (uint32_t t = 0; t < targets; t++)
            if (tl__u32(a->value + i + 12 + 4 * t) >= code_bytes)
                return false;
        i += 12 + 4 * targets;
    }
    return i == a->number;
}

static bool notes_are_known(const struct tl__cb_attr *a)
{
    for (uint32_t i = 0; i + 8u <= a->number; i += 8)
        if (tl__u32(a->value + i) != 1)
            return false;
    return true;
}

bool tl__cb_attr_is_whole(const struct tl__cb_attr *a, uint64_t code_bytes)
{
    switch ((enum tl__cb_edit)kinds[a->id].edit) {
    case TL__CB_OFFSETS:
    case TL__CB_EXITS:
        return offsets_are_inside(a, 4, 0, code_bytes);
    case TL__CB_RECORDS:
        return offsets_are_inside(a, 16, 0, code_bytes);
    case TL__CB_FIRST_OF_PAIR:
        return offsets_are_inside(a, 8, 0, code_bytes);
    case TL__CB_NOTED_PAIR:
        return offsets_are_inside(a, 8, 4, code_bytes) && notes_are_known(a);
    case TL__CB_BRANCHES:
        return branches_are_inside(a, code_bytes);
    case TL__CB_BANK:
        return a->number == 8;
    case TL__CB_PARAM:
        return a->number == 12;
    case TL__CB_KEEP:
        return a->id != TL__CB_ID_CLUSTER || a->number == 12;
    case TL__CB_SIZE:
    case TL__CB_BARRIERS:
    case TL__CB_FORBIDDEN:
        return true;
    }
    return false;
}
