/* Whole functions: what is found out about them before they are translated, the order in which they
 * are, how they are cut at barriers, and what becomes of them. */
#ifndef TALLY_DEVICE_JIT_FUNCTION_H
#define TALLY_DEVICE_JIT_FUNCTION_H

#include "device/jit/emit.h"

/* --- place.c: where variables and parameters are ---------------------------------------------- */

/* Notes where it is; NULL with e->rc set if there is no memory. */
struct tl_placed *tl_place(struct tl_emit *e, const void *what, char space,
                           const struct tl_ptx_decl *d, uint64_t offset);
/* All of the program's, and the parameters of the kernel. */
void tl_place_variables(struct tl_emit *e);

/* --- meet.c: do lanes of one warp wait at different barriers? --------------------------------- */

/* A barrier in a region that lanes enter one way or another, and where neither way is to return at
 * once. */
bool tl_lanes_wait_apart(struct tl_emit *e, struct tl_fn *f);
/* Threads that run one by one cannot do what a warp does together.  Where both are in a kernel,
 * warps stay together: lanes then mostly do meet at barriers, whatever the analysis fears, and
 * where they do not, the launch ends with an error. */
bool tl_has_warp_wide(const struct tl_emit *e);

/* --- split.c: registers that stand for several things ----------------------------------------- */

/* Gives shadows to definitions, and registers for them behind those of the program.  0, or -1: no
 * memory. */
int tl_split_registers(struct tl_emit *e, struct tl_fn *f);
/* The register that an instruction reads in a register's place: a shadow, or itself. */
uint32_t tl_reg_read(const struct tl_fn *f, uint32_t inst, uint32_t reg);

/* --- local.c: which registers need no memory -------------------------------------------------- */
int tl_find_local(struct tl_emit *e, struct tl_fn *f);
/* Whether a new piece of the code begins with an instruction that is not the first of its block:
 * where LLVM is to do little, what it looks at at a time must be little. */
bool tl_begins_piece(const struct tl_emit *e, const struct tl_fn *f, uint32_t inst);

/* --- lanes.c: which registers have lane offsets known when compiling -------------------------- */
int tl_lanes_analyse(struct tl_emit *e, struct tl_fn *f);
/* `v`, which was read from `o`, as 64 bits.  Of an index with known lanes it is the base that
 * counts: one is found that is right for all active lanes, also if it wraps in others; where there
 * is none, the launch ends with a fault. */
struct tl_val tl_widen_index(struct tl_emit *e, const struct tl_ptx_operand *o, struct tl_val v,
                             bool is_signed);
bool tl_lanes_of_operand(struct tl_emit *e, const struct tl_fn *f, const struct tl_ptx_operand *o,
                         struct tl_lanes *out);

/* --- sums.c: multiply-adds in an order that keeps sums in registers --------------------------- */

/* An order in which to do instructions from .. until - 1, between which there is no barrier; NULL:
 * as they stand. */
const uint32_t *tl_order_sums(struct tl_emit *e, uint32_t from, uint32_t until);
/* Where the stretch without a barrier ends that begins at `from`, which may be one itself. */
uint32_t tl_stretch_end(const struct tl_fn *f, uint32_t from, uint32_t until);

/* --- outline.c: bulky operations of large kernels as functions -------------------------------- */

enum { TL_OUTLINED_OPERANDS = 32, TL_OUTLINED_RESULTS = 8 };
/* Computes with what v[] holds, leaves results in v[]; does nothing else that depends on where it
 * is called from. */
typedef void (*tl_outlined_fn)(struct tl_emit *e, const void *key, struct tl_val *v);
/* Whether that pays in the function that is being translated. */
bool tl_outlines(const struct tl_emit *e);
/* Calls what `body` makes for that key, which says everything about it, types of operands
 * included. */
void tl_outlined(struct tl_emit *e, tl_outlined_fn body, const void *key, size_t key_n,
                 struct tl_val *v, uint32_t n_in, uint32_t n_out);

/* --- stack.c: registers that functions get and give back -------------------------------------- */
/* Local memory for it, if the program takes any. */
void tl_place_stack(struct tl_emit *e);
/* At a function's start and end; the builder stands there. */
void tl_enter_function(struct tl_emit *e);
void tl_leave_function(struct tl_emit *e);

/* --- mask.c: masks where the CPU has no registers for them; after LLVM's optimiser, before code is
 * made */
void tl_lower_masks(struct tl_emit *e);

/* --- codegen.c: what LLVM does ---------------------------------------------------------------- */

/* Adds up the frames of the functions that code is made for, in e->stack_bytes. */
void tl_watch_frames(struct tl_emit *e);
/* The translated module as an object.  0, -EIO, -ENOMEM, -E2BIG as tl_jit_compile. */
int tl_generate(struct tl_emit *e, struct tl_jit_object *out);
/* The same for a quick version's new forms: a module of its own, compiled well. */
int tl_generate_forms(struct tl_emit *e, struct tl_jit_object *out);
/* Whether translations are looked at before LLVM sees them, as all tests have it. */
bool tl_jit_verifies(void);

/* --- flow.c ----------------------------------------------------------------------------------- */
int tl_emit_function(struct tl_emit *e, struct tl_fn *f);
/* The current instruction, without its guard.  False: nobody knows it. */
bool tl_dispatch(struct tl_emit *e);
/* Once per function, before it: which blocks are in loops, and which registers must keep what other
 * lanes have. */
int tl_mark_loops(struct tl_emit *e, struct tl_fn *f);

/* --- absent.c: lanes that are elsewhere ------------------------------------------------------- */

/* Ends the launch with a fault if a lane that the current instruction names (i32) is elsewhere and
 * would have to be waited for. */
void tl_expect_lanes(struct tl_emit *e, LLVMValueRef named);

/* --- race.c: where warps that run one after the other do not read what others have left ------- */

/* Instructions in front of which all warps must have arrived before any goes on, at most `max` of
 * them, to cuts[]; how many there are.  state_of[] has barriers' numbers, and gets theirs, from
 * n_states on. */
uint32_t tl_find_races(struct tl_emit *e, const struct tl_fn *f, uint32_t *state_of,
                       uint32_t n_states, uint32_t *cuts, uint32_t max);

/* --- fission.c: barriers as loops over warps -------------------------------------------------- */

/* Whether the kernel's barriers can be met by running all warps up to each of them in turn; then
 * emits tally_blocks (and returns true, or has set e->rc). */
bool tl_emit_fission(struct tl_emit *e, struct tl_fn *analysed);

/* tally_blocks(frame, first, count): for each linear block number, sets ctaid and runs its n_warps
 * warps, each by `fn`(frame, warp); with n_warps 0, the whole block by `fn`(frame). */
void tl_emit_blocks(struct tl_emit *e, LLVMValueRef fn, uint32_t n_warps);
/* Whether a kernel of so many instructions becomes one function. */
bool tl_is_small(uint32_t n_insts);
/* Makes a function part of its caller, if the kernel is small. */
void tl_inline_if_small(struct tl_emit *e, LLVMValueRef fn, uint32_t n_insts);
LLVMValueRef tl_new_function(struct tl_emit *e, const char *name, LLVMTypeRef type,
                             bool is_exported);
/* A block that only returns: going there is returning, at once, so that barriers do not wait for
 * its turn in the line. */
bool tl_only_returns(const struct tl_fn *f, uint32_t block);

#endif
