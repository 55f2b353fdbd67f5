/* A cubin that is being gated: what the steps share that make the new file. */
#ifndef TALLY_CUBIN_WORK_H
#define TALLY_CUBIN_WORK_H

#include "cubin/internal.h"

/* --- cubin/gate.c ----------------------------------------------------------------------------- */

/* The edits, one by one, so that tests can leave each out and see that it is missed. */
#define TL__CB_EDITS(X)                                                                            \
    X(KERNEL_SYMBOL, "the kernel's symbol: size")                                                  \
    X(OTHER_SYMBOLS, "other functions' symbols: value")                                            \
    X(EXITS_MOVED, "1c exits: moved")                                                              \
    X(EXITS_ADDED, "1c exits: the gate's added")                                                   \
    X(OFFSETS, "28, 31, 46 lists of offsets")                                                      \
    X(RECORDS, "39 mbarriers")                                                                     \
    X(PAIRS, "2e, 44 pairs")                                                                       \
    X(NOTED_PAIRS, "55 annotations")                                                               \
    X(BRANCHES, "34 indirect branches")                                                            \
    X(BANK, "0a parameters: size")                                                                 \
    X(SIZE, "19 parameters: size")                                                                 \
    X(BANK0, ".nv.constant0: size")                                                                \
    X(PARAM, "17, 45 our parameter")                                                               \
    X(BARRIERS, "4c barriers")                                                                     \
    X(REGISTERS, "2f registers")                                                                   \
    X(CODE_REGISTERS, "registers in sh_info")                                                      \
    X(CTAID_Z, "04 the grid's z is used")                                                          \
    X(STACK, "1e stack size")                                                                      \
    X(FRAMES, ".debug_frame")                                                                      \
    X(SEGMENTS, "program headers")                                                                 \
    X(MERCURY, ".nv.merc*: dropped")                                                               \
    X(TWIN_CALLS, "twin: call graph")                                                              \
    X(TWIN_INFO, "twin: .nv.info")

enum tl__cb_edit_bit {
#define TL__CB_EDIT_ENUM(id, text) TL__CB_EDIT_##id,
    TL__CB_EDITS(TL__CB_EDIT_ENUM)
#undef TL__CB_EDIT_ENUM
        TL__CB_EDIT_COUNT,
};

/* A section as it will be written.  What is in it is made when the file is there, of the section
 * that was read: so a gated cubin is in memory once. */
struct tl__cb_out {
    Elf64_Shdr h; /* sh_link and sh_info as numbers of the sections that were read */
    uint32_t origin;
    uint32_t number; /* in the new file */
    bool is_copy;    /* of `origin`, for a twin */
    bool is_dropped;
};

/* Gating one cubin. */
struct tl__cb_work {
    const struct tl_cubin *c;
    struct tl_arena arena;
    uint32_t left_out; /* bits of enum tl__cb_edit_bit; tests only */
    bool is_twin;
    bool spends;                        /* what is not needed of the cubin is given back at once */
    bool is_clear;                      /* the memory of the new file was all zeroes */
    const struct tl__cb_piece **pieces; /* per kernel; NULL if it stays as it is */
    uint32_t *owner;                    /* per section that was read: a kernel with a piece */
    struct tl__cb_out *sections;        /* those that were read, then copies */
    uint32_t n_sections;
    /* For twins: the copies per section, the copies per symbol, and of what the new symbols are
     * copies, in their order. */
    uint32_t *copy_of, *new_symbols, *copied_symbols;
    uint32_t n_copied_symbols;
};

/* The kernel whose code a section is and gets a piece, or NULL. */
static inline const struct tl__cb_kernel *tl__cb_gated_kernel(const struct tl__cb_work *w,
                                                              uint32_t section)
{
    return w->owner[section] != TL__CB_NONE && w->c->sections[section].kind == TL__CB_TEXT
               ? &w->c->kernels[w->owner[section]]
               : NULL;
}

/* The piece in front of a section's code, or NULL. */
static inline const struct tl__cb_piece *tl__cb_piece_of(const struct tl__cb_work *w,
                                                         uint32_t section)
{
    return tl__cb_gated_kernel(w, section) != NULL ? w->pieces[w->owner[section]] : NULL;
}

static inline bool tl__cb_does(const struct tl__cb_work *w, enum tl__cb_edit_bit edit)
{
    return !(w->left_out >> edit & 1);
}

/* tl_cubin_gate with edits left out. */
int tl__cb_gate(const struct tl_cubin *c, const struct tl_cubin_options *options,
                struct tl_cubin_gates *gates, uint32_t left_out, struct tl_cubin_gated *out,
                struct tl_error *err);

/* --- cubin/edit.c ----------------------------------------------------------------------------- */

/* Whether the attributes of a kernel without parameters are such that the place of those which are
 * added is known. */
bool tl__cb_has_place_for_params(const struct tl_cubin *c, const struct tl__cb_kernel *k);
/* The headers of a kernel's sections, which were read or are copies: their new sizes. */
void tl__cb_edit_headers(const struct tl__cb_work *w, const struct tl__cb_kernel *k,
                         const struct tl__cb_piece *piece, struct tl__cb_out *text,
                         struct tl__cb_out *info, struct tl__cb_out *bank0);
/* Writes a kernel's attributes; there is room for as many bytes as its header says. */
void tl__cb_put_attributes(const struct tl__cb_work *w, const struct tl__cb_kernel *k,
                           const struct tl__cb_piece *piece, uint8_t *to);
/* The symbol of something in front of which a piece stands. */
void tl__cb_edit_symbol(const struct tl__cb_work *w, const struct tl__cb_piece *piece,
                        Elf64_Sym *symbol, bool is_kernel);
/* How many registers a function has with the piece. */
uint32_t tl__cb_edit_registers(const struct tl__cb_work *w, const struct tl__cb_piece *piece,
                               uint32_t registers);

/* --- cubin/frames.c --------------------------------------------------------------------------- */

/* Unwind tables in the new file: the kernels are longer, their functions later.  0, -ENOMEM. */
int tl__cb_edit_frames(const struct tl__cb_work *w, uint8_t *table, uint8_t *relocations,
                       struct tl_arena *arena, struct tl_error *err);

/* --- cubin/twin.c ----------------------------------------------------------------------------- */

/* Plans a copy of each kernel that has a piece; there is room for its sections.  0, -EFBIG,
 * -ENOMEM. */
int tl__cb_add_twins(struct tl__cb_work *w, struct tl_error *err);
/* What is written behind a table: the names of the copied sections, the copied symbols and their
 * names, what the module says of them, what they call.  `to` is the end of what was read. */
void tl__cb_put_section_names(const struct tl__cb_work *w, uint8_t *to);
void tl__cb_put_symbols(const struct tl__cb_work *w, uint8_t *to);
void tl__cb_put_symbol_names(const struct tl__cb_work *w, uint8_t *to);
void tl__cb_put_info(const struct tl__cb_work *w, uint8_t *to);
void tl__cb_put_calls(const struct tl__cb_work *w, uint8_t *to);
/* The new number of a symbol; the old one if it was not copied. */
uint32_t tl__cb_new_symbol(const struct tl__cb_work *w, uint32_t symbol);

/* --- cubin/write.c ---------------------------------------------------------------------------- */

/* What is unusual about the order of sections and segments, or NULL if nothing is. */
const char *tl__cb_disorder(const struct tl_cubin *c);
/* The new file; `w` has the headers of its sections.  0, -ENOMEM. */
int tl__cb_write(struct tl__cb_work *w, struct tl_cubin_gated *out, struct tl_error *err);

/* --- cubin/memory.c --------------------------------------------------------------------------- */

/* Memory for a gated cubin of `n` bytes; NULL if there is none.  If it is large it is all zeroes,
 * which `is_clear` says, begins at the same place of a page as `like`, unless that is NULL or not
 * aligned as malloc aligns, and is such that large pages fit well from `fresh` on. */
void *tl__cb_reserve(size_t n, const void *like, size_t fresh, bool *is_clear);
/* Says that `n` bytes from `at` on will be written, all of them, and soon. */
void tl__cb_expect(uint8_t *file, size_t file_bytes, size_t at, size_t n);
/* Gives it back; NULL is fine. */
void tl__cb_release(void *bytes, size_t n);
/* Makes the `n` bytes at `from`, private memory that nobody reads any more, those at `at` in a file
 * of `file_bytes` that was reserved and is not written there yet.  Whole pages change hands if they
 * lie alike and the system can do that; else they are copied, and given back meanwhile.  What was
 * at `from` reads as anything then.  False if the system should have been able to and was not:
 * then `from` is as it was, the file is released, and the next call copies. */
bool tl__cb_hand_over(uint8_t *file, size_t file_bytes, size_t at, const uint8_t *from, size_t n);

#endif
