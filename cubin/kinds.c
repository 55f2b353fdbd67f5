/* The sections of linked cubins that are known: by name, type and flags together.  A section that
 * differs in any of these may hold offsets into code that nobody would move, so it is refused. */
#include "cubin/internal.h"

/* Types and flags of NVIDIA's, as cuobjdump -elf names them. */
enum {
    SHT_INFO = 0x70000000,
    SHT_CALLGRAPH = 0x70000001,
    SHT_RELOCINFO = 0x7000000b,
    SHT_COMPAT = 0x70000086,
};
#define FLAG_NOTE_CUDA 0x1000000u
#define FLAG_NOTE_TOOLS 0x2000000u
#define FLAG_MERCURY 0x10000000u

#define A SHF_ALLOC
#define W SHF_WRITE
#define X SHF_EXECINSTR
#define I SHF_INFO_LINK

struct known {
    const char *name; /* with a '.' at its end the kernel's name follows */
    uint32_t type;
    uint64_t flags;
    enum tl__cb_kind kind;
};

/* clang-format off */
static const struct known all[] = {
    {"",                          SHT_NULL,      0,                   TL__CB_NULL},
    {".shstrtab",                 SHT_STRTAB,    0,                   TL__CB_SECTION_NAMES},
    {".strtab",                   SHT_STRTAB,    0,                   TL__CB_SYMBOL_NAMES},
    {".symtab",                   SHT_SYMTAB,    0,                   TL__CB_SYMBOLS},
    {".debug_frame",              SHT_PROGBITS,  0,                   TL__CB_FRAMES},
    {".rel.debug_frame",          SHT_REL,       I,                   TL__CB_FRAME_RELOCATIONS},
    {".rela.debug_frame",         SHT_RELA,      I,                   TL__CB_FRAME_RELOCATIONS},
    {".note.nv.tkinfo",           SHT_NOTE,      FLAG_NOTE_TOOLS,     TL__CB_NOTE_TOOLS},
    {".note.nv.cuinfo",           SHT_NOTE,      FLAG_NOTE_CUDA,      TL__CB_NOTE_CUDA},
    {".note.nv.cuinfo",           SHT_NOTE,      FLAG_NOTE_CUDA | I,  TL__CB_NOTE_CUDA},
    {".nv.info",                  SHT_INFO,      0,                   TL__CB_INFO},
    {".nv.compat",                SHT_COMPAT,    0,                   TL__CB_COMPAT},
    {".nv.callgraph",             SHT_CALLGRAPH, 0,                   TL__CB_CALLS},
    {".nv.rel.action",            SHT_RELOCINFO, 0,                   TL__CB_ACTIONS},
    {".nv.constant3",             SHT_PROGBITS,  A,                   TL__CB_CONSTANTS},
    {".nv.constant4",             SHT_PROGBITS,  A,                   TL__CB_ADDRESSES},
    {".rel.nv.constant3",         SHT_REL,       I,                   TL__CB_DATA_RELOCATIONS},
    {".rela.nv.constant3",        SHT_RELA,      I,                   TL__CB_DATA_RELOCATIONS},
    {".rel.nv.constant4",         SHT_REL,       I,                   TL__CB_DATA_RELOCATIONS},
    {".rela.nv.constant4",        SHT_RELA,      I,                   TL__CB_DATA_RELOCATIONS},
    {".rel.nv.global.init",       SHT_REL,       I,                   TL__CB_DATA_RELOCATIONS},
    {".rela.nv.global.init",      SHT_RELA,      I,                   TL__CB_DATA_RELOCATIONS},
    {".nv.global",                SHT_NOBITS,    A | W,               TL__CB_ZEROES},
    {".nv.global.init",           SHT_PROGBITS,  A | W,               TL__CB_DATA},
    {".nv.shared.reserved.0",     SHT_NOBITS,    A | W,               TL__CB_RESERVED},
    {".text.",                    SHT_PROGBITS,  A | X,               TL__CB_TEXT},
    {".rel.text.",                SHT_REL,       I,                   TL__CB_TEXT_RELOCATIONS},
    {".rela.text.",               SHT_RELA,      I,                   TL__CB_TEXT_RELOCATIONS},
    {".nv.info.",                 SHT_INFO,      I,                   TL__CB_KERNEL_INFO},
    {".nv.constant0.",            SHT_PROGBITS,  A | I,               TL__CB_BANK0},
    {".nv.constant2.",            SHT_PROGBITS,  A | I,               TL__CB_BANK2},
    {".rel.nv.constant2.",        SHT_REL,       I,                   TL__CB_BANK2_RELOCATIONS},
    {".rela.nv.constant2.",       SHT_RELA,      I,                   TL__CB_BANK2_RELOCATIONS},
    {".nv.shared.",               SHT_NOBITS,    A | W | I,           TL__CB_SHARED},
};
/* clang-format on */

static bool matches(const struct known *k, struct tl_str name, const Elf64_Shdr *h)
{
    if (h->sh_type != k->type || h->sh_flags != k->flags)
        return false;
    size_t n = strlen(k->name);
    bool is_prefix = n > 0 && k->name[n - 1] == '.';
    return name.n >= n && memcmp(name.p, k->name, n) == 0 && (is_prefix ? name.n > n : name.n == n);
}

enum tl__cb_kind tl__cb_kind_of(struct tl_str name, const Elf64_Shdr *h, struct tl_str *owner)
{
    *owner = (struct tl_str){0};
    if (h->sh_flags & FLAG_MERCURY)
        return tl_str_starts(name, ".nv.merc.") || tl_str_starts(name, ".nv.capmerc.")
                   ? TL__CB_MERCURY
                   : TL__CB_UNKNOWN;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!matches(&all[i], name, h))
            continue;
        if (all[i].kind >= TL__CB_TEXT) {
            uint32_t n = (uint32_t)strlen(all[i].name);
            *owner = (struct tl_str){name.p + n, name.n - n};
        }
        return all[i].kind;
    }
    return TL__CB_UNKNOWN;
}
