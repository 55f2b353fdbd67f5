/* What the files of the gate share; those that make a gated cubin also cubin/work.h.
 *
 *     cubin/elf.c       reads sections, symbols and segments, and checks every size
 *     cubin/kinds.c     which sections are known, and what they are for
 *     cubin/attrs.c     which attributes are known, and what an edit does to each
 *     cubin/judge.c     which kernels can be gated, and why others cannot
 *     cubin/source.c    the gate as PTX
 *     cubin/piece.c     from compiled PTX to the piece of code that is put in front
 *     cubin/gates.c     pieces in memory and on disk
 *     cubin/ptxas.c     ptxas as a compiler of them
 *     cubin/edit.c      a kernel's tables with a piece in front of its code
 *     cubin/frames.c    the same for the unwind tables
 *     cubin/twin.c      a second copy of a kernel
 *     cubin/write.c     sections as a file again
 *     cubin/memory.c    memory for that file
 *     cubin/gate.c      all of it in order */
#ifndef TALLY_CUBIN_INTERNAL_H
#define TALLY_CUBIN_INTERNAL_H

#include "image/internal.h"
#include "tally/cubin.h"

#include <elf.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as they stand");

static inline void tl__cb_put16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void tl__cb_put32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void tl__cb_put64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

/* --- cubin/kinds.c ---------------------------------------------------------------------------- */

/* What a section is for.  Those from TL__CB_TEXT on belong to one kernel. */
enum tl__cb_kind {
    TL__CB_UNKNOWN,
    TL__CB_NULL,
    TL__CB_SECTION_NAMES,
    TL__CB_SYMBOL_NAMES,
    TL__CB_SYMBOLS,
    TL__CB_FRAMES,
    TL__CB_FRAME_RELOCATIONS,
    TL__CB_NOTE_TOOLS,
    TL__CB_NOTE_CUDA,
    TL__CB_INFO,
    TL__CB_COMPAT,
    TL__CB_CALLS,
    TL__CB_ACTIONS,
    TL__CB_CONSTANTS,
    TL__CB_ADDRESSES,
    TL__CB_DATA,
    TL__CB_DATA_RELOCATIONS,
    TL__CB_ZEROES,
    TL__CB_RESERVED,
    TL__CB_MERCURY, /* a second form of the code, for other GPUs of the family */
    TL__CB_TEXT,
    TL__CB_TEXT_RELOCATIONS,
    TL__CB_KERNEL_INFO,
    TL__CB_BANK0, /* launch dimensions and parameters */
    TL__CB_BANK2, /* the compiler's constants and jump tables */
    TL__CB_BANK2_RELOCATIONS,
    TL__CB_SHARED,
    TL__CB_KINDS,
};

/* What a section of this name, type and flags is, or TL__CB_UNKNOWN.  `owner` is made the part of
 * the name that is the kernel's, empty if it belongs to none. */
enum tl__cb_kind tl__cb_kind_of(struct tl_str name, const Elf64_Shdr *h, struct tl_str *owner);

/* --- cubin/elf.c ------------------------------------------------------------------------------ */

struct tl__cb_section {
    Elf64_Shdr h;
    enum tl__cb_kind kind;
    struct tl_str name;
    struct tl_str owner;  /* the kernel's name, if it belongs to one */
    const uint8_t *bytes; /* NULL where nothing of it is in the file */
};

#define TL__CB_NONE UINT32_MAX
#define TL__CB_ENTRY 0x10 /* in st_other: a kernel */

/* What was read of a kernel, by numbers of sections; TL__CB_NONE where there is none. */
struct tl__cb_kernel {
    struct tl_cubin_entry entry;
    uint32_t symbol;
    uint32_t section[TL__CB_KINDS - TL__CB_TEXT];
    uint32_t bank0_symbol, bank0_base;
    uint32_t n_bank0_symbols; /* symbols of that section */
    bool has_no_params;       /* and none of the attributes about them: they are added */
    bool has_barriers, has_ctaid_z, has_stack, has_param_v2, has_clusters;
};

struct tl_cubin {
    struct tl_arena arena;
    const uint8_t *bytes;
    size_t n;
    Elf64_Ehdr header;
    struct tl__cb_section *sections;
    uint32_t n_sections;
    Elf64_Sym *symbols;
    struct tl_str *symbol_names;
    uint32_t n_symbols;
    uint32_t symbols_section, symbol_names_section, names_section;
    uint32_t info_section, frames_section, frame_relocations_section, calls_section;
    Elf64_Phdr *segments;
    uint32_t n_segments;
    uint32_t arch;
    uint32_t
        release; /* of the oldest tool that made it: 1302 for CUDA 13.2; 0 if it does not say */
    bool has_variables;
    enum tl_cubin_reason reason; /* against all of its kernels */
    const char *note;
    struct tl__cb_kernel *kernels;
    uint32_t n_kernels;
};

/* Headers, sections, symbols, segments; no kernels yet.  0, -EINVAL, -ENOMEM. */
int tl__cb_read(struct tl_cubin *c, struct tl_error *err);

static inline uint32_t tl__cb_of(const struct tl__cb_kernel *k, enum tl__cb_kind kind)
{
    return k->section[kind - TL__CB_TEXT];
}

/* --- cubin/attrs.c ---------------------------------------------------------------------------- */

enum tl__cb_format {
    TL__CB_ALONE = 1,
    TL__CB_BYTE = 2,
    TL__CB_HALF = 3,
    TL__CB_SIZED = 4, /* a value of that many bytes follows; else the number is all */
};

/* What is done to an attribute when the code moves back by G bytes. */
enum tl__cb_edit {
    TL__CB_KEEP,
    TL__CB_OFFSETS,       /* u32 each: + G */
    TL__CB_EXITS,         /* the same, and the gate's own */
    TL__CB_RECORDS,       /* 16 bytes each, the first u32: + G */
    TL__CB_FIRST_OF_PAIR, /* 8 bytes each, the first u32: + G */
    TL__CB_NOTED_PAIR,    /* 8 bytes each, kind 1 and an offset: + G */
    TL__CB_BRANCHES,      /* offset, u32, number, targets: + G */
    TL__CB_BANK,          /* u32 symbol, u16 base, u16 size: grows */
    TL__CB_SIZE,          /* of the parameters: grows */
    TL__CB_PARAM,         /* ours stands before the others */
    TL__CB_BARRIERS,      /* at least one */
    TL__CB_FORBIDDEN,     /* cluster launch control */
};

enum tl__cb_id {
    TL__CB_ID_CTAID_Z = 0x04,
    TL__CB_ID_MAX_THREADS = 0x05,
    TL__CB_ID_BANK = 0x0a,
    TL__CB_ID_REQUIRED_THREADS = 0x10,
    TL__CB_ID_FRAME_SIZE = 0x11,
    TL__CB_ID_MIN_STACK = 0x12,
    TL__CB_ID_PARAM = 0x17,
    TL__CB_ID_PARAM_BYTES = 0x19,
    TL__CB_ID_MAX_REGISTERS = 0x1b,
    TL__CB_ID_EXITS = 0x1c,
    TL__CB_ID_STACK = 0x1e,
    TL__CB_ID_REGISTERS = 0x2f,
    TL__CB_ID_BRANCHES = 0x34,
    TL__CB_ID_WORKAROUND = 0x35,
    TL__CB_ID_API_VERSION = 0x37,
    TL__CB_ID_MBARRIERS = 0x38,
    TL__CB_ID_MBARRIER_PLACES = 0x39,
    TL__CB_ID_CLUSTER = 0x3d,
    TL__CB_ID_PARAM_V2 = 0x45,
    TL__CB_ID_BARRIERS = 0x4c,
    TL__CB_ID_SPARSE_MASK = 0x50,
};

struct tl__cb_attr {
    uint8_t format, id;
    uint16_t number;
    const uint8_t *value; /* `number` bytes if the format is TL__CB_SIZED */
};

struct tl__cb_attr_kind {
    const char *name;
    uint8_t format; /* 0: not known */
    uint8_t edit;
};

/* Takes the next attribute.  False at the end; then `*n` is not 0 if the rest is broken. */
bool tl__cb_next_attr(const uint8_t **p, size_t *n, struct tl__cb_attr *a);
/* Never NULL. */
const struct tl__cb_attr_kind *tl__cb_attr_kind(uint8_t id);
/* Whether the value has the form that its edit expects, and offsets lie in `code_bytes`. */
bool tl__cb_attr_is_whole(const struct tl__cb_attr *a, uint64_t code_bytes);

/* --- cubin/judge.c ---------------------------------------------------------------------------- */

/* Finds the kernels and what is against them.  0, -ENOMEM. */
int tl__cb_judge(struct tl_cubin *c, struct tl_error *err);

/* Where parameters of the gate begin behind so many bytes of the kernel's. */
static inline uint32_t tl__cb_gate_offset(uint32_t param_bytes)
{
    return (param_bytes + 7u) & ~7u;
}

/* --- cubin/source.c --------------------------------------------------------------------------- */

/* What a gate depends on. */
struct tl__cb_want {
    uint32_t arch, offset;
    uint32_t cluster[3];
};

static inline struct tl__cb_want tl__cb_want_of(const struct tl_cubin *c,
                                                const struct tl__cb_kernel *k)
{
    const uint32_t *n = k->entry.cluster;
    return (struct tl__cb_want){c->arch, k->entry.gate_offset, {n[0], n[1], n[2]}};
}

/* A module for wants of one architecture: for each the entries tl_gate1 and tl_gate2, which differ
 * in one instruction at their end; and tl_nothing. */
void tl__cb_source(struct tl_buf *out, const struct tl__cb_want *const *wants, uint32_t n);
/* What stands behind tl_gate in the name of an entry: its mark, 1 or 2, and the number of its want
 * unless that is 0. */
enum { TL__CB_SOURCE_NAME = 16 };
void tl__cb_source_name(char name[TL__CB_SOURCE_NAME], int mark, uint32_t number);

/* --- cubin/piece.c ---------------------------------------------------------------------------- */

enum { TL__CB_SLOT = 16, TL__CB_CODE_ALIGN = 128 };

/* The code that is put in front of kernels. */
struct tl__cb_piece {
    struct tl__cb_want want;
    uint32_t base;      /* where parameters begin in bank 0 */
    uint32_t registers; /* per thread */
    uint32_t exit;      /* offset of its only way out */
    uint32_t has_ctaid_z, has_stack;
    uint32_t code_bytes; /* a multiple of 128: with padding */
    const uint8_t *code; /* NULL while it is not made */
    bool is_missing;     /* among those that cubin/gates.c has made next */
};

/* Cuts pieces out of what a compiler made of tl__cb_source for their wants; every assumption is
 * checked.  The code is in the arena.  0, -EINVAL with what was not as it must be, -ENOMEM. */
int tl__cb_pieces_cut(struct tl__cb_piece *const *pieces, uint32_t n_pieces, struct tl_arena *arena,
                      const void *cubin, size_t n, struct tl_error *err);

/* --- cubin/gates.c ---------------------------------------------------------------------------- */

/* Says that a piece will be asked for: what is in the store is read, what is not is compiled with
 * all others by tl__cb_gates_make, a few at once.  All have one architecture.  0, -EFBIG,
 * -ENOMEM. */
int tl__cb_gates_want(struct tl_cubin_gates *gates, const struct tl__cb_want *want,
                      struct tl_error *err);
int tl__cb_gates_make(struct tl_cubin_gates *gates, struct tl_error *err);
/* Makes none of them after all. */
void tl__cb_gates_forget(struct tl_cubin_gates *gates);

/* The piece for these, compiled if need be; it lives as long as `gates`. */
int tl__cb_gates_get(struct tl_cubin_gates *gates, const struct tl__cb_want *want,
                     const struct tl__cb_piece **out, struct tl_error *err);

/* Takes a piece that was made elsewhere; its code must outlive `gates`.  For tests.  0, -ENOMEM. */
int tl__cb_gates_put(struct tl_cubin_gates *gates, const struct tl__cb_piece *piece);

#endif
