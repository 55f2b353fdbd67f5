/* The translator's state and vocabulary.
 *
 * One PTX register is one LLVM value: a scalar where all lanes of a warp agree, else a vector of 32
 * lanes (diverge.h decides). Registers hold integers; floating-point instructions cast.  All live
 * in allocas, which LLVM turns into SSA.
 *
 * `struct tl_val` is a scalar or a 32-lane vector; operations take both and widen where needed, so
 * that an instruction is written once.  The current mask says which lanes take part: NULL means all
 * 32. */
#ifndef TALLY_DEVICE_JIT_EMIT_H
#define TALLY_DEVICE_JIT_EMIT_H

#include <llvm-c/Core.h>

#include "device/jit/jit.h"
#include "ptx_rewrite/cfg.h"
#include "ptx_rewrite/diverge.h"
#include "ptx_rewrite/program.h"

enum { TL_LANES = 32, TL_MAX_GROUPS = 4, TL_MAX_SCRATCH = 64 };

struct tl_val {
    LLVMValueRef v;
    bool is_vec;
};

enum tl_type_kind { TL_T_BITS, TL_T_UNSIGNED, TL_T_SIGNED, TL_T_FLOAT, TL_T_BFLOAT, TL_T_PRED };

/* A PTX type of an instruction. */
struct tl_type {
    enum tl_type_kind kind;
    uint32_t bits;   /* of one element; 1 for pred */
    uint32_t packed; /* 2 for f16x2 and bf16x2, else 1 */
};

/* Lane offsets that are known when compiling: lane i has base + offset[i].  Where a warp holds
 * several rows of a block, each row may have a base of its own: lanes come in `tl_groups`
 * groups. */
struct tl_lanes {
    bool is_known;
    bool has_one_base;   /* for the whole warp, whatever the groups */
    bool is_small;       /* the base is a thread number or less: no wrapping to be afraid of */
    uint32_t base_align; /* the base is a multiple of this power of two */
    uint32_t base_limit; /* and less than this; 0: nothing is known */
    int64_t offset[TL_LANES];
};

struct tl_reg {
    LLVMValueRef
        /* n_slots of them, one per base of a register with known lanes; see tl_get, tl_put */
        slot[TL_MAX_GROUPS];
    LLVMValueRef value[TL_MAX_GROUPS]; /* of a local register, instead */
    uint32_t n_slots;
    LLVMTypeRef type; /* of a slot */
    uint32_t bits;
    uint32_t vec; /* elements of a vector register, a slot each; else 1 */
    bool is_vec;
    /* read only further down in the stretch of code where it is written, see local.c */
    bool is_local;
    /* a vector, or what a function gets and gives back: nothing is known of its lanes */
    bool is_opaque;
    /* written where lanes have parted, lanes that do not take part must keep what they had */
    bool keeps_lanes;
    uint32_t n_defs;
    /* the value that all lanes have is a multiple of this power of two; 0: nothing is known */
    uint32_t align;
    /* all lanes have this size of the block, whatever the launch; 0: nothing is known */
    uint32_t block_size;
    struct tl_lanes lanes;
};

/* A read that sees only one definition of its register, kept in a register of its own: see
 * split.c. */
struct tl_shadow {
    struct tl_shadow *next;
    uint32_t reg, shadow;
};

/* A piece of a kernel between barriers, see fission.c. */
struct tl_segment {
    uint32_t first; /* its first instruction */
    /* per instruction: number of the barrier that it is, 0 if it is none */
    const uint32_t *state_of;
    /* per instruction: a load that waits, in a loop, for what another block does */
    const bool *waits;
    LLVMBasicBlockRef *suspend; /* per state: where a warp goes that has reached that barrier */
};

/* A function being translated. */
struct tl_fn {
    const struct tl_segment *segment; /* or NULL: a whole function */
    const struct tl_ptx_program_func *pf;
    struct tl_ptx_cfg cfg;
    struct tl_ptx_divergence d;
    struct tl_reg *regs;
    uint32_t n_regs;                 /* the program's, then shadows */
    struct tl_shadow **shadow_reads; /* per instruction */
    uint32_t *shadow_write;          /* per instruction: its result's shadow, or TL_CFG_NONE */
    /* instruction whose operands are read, TL_CFG_NONE: registers as they are */
    uint32_t now;
    LLVMValueRef fn, frame, warp;
    LLVMValueRef entry_mask; /* NULL: all lanes; else <32 x i1> */
    /* warp and lane in one word, where threads run one by one; else NULL */
    LLVMValueRef lane_param;
    LLVMValueRef mask_param;      /* of a called function: the mask as i32, or NULL */
    LLVMValueRef exited_slot;     /* i32: lanes that have returned */
    LLVMValueRef *mask_slot;      /* per block under divergence: i32 of lanes that want to run it */
    LLVMBasicBlockRef *bb;        /* per block outside divergence, made when first gone to */
    uint32_t *pending, n_pending; /* those not yet filled */
    LLVMBasicBlockRef allocas, start, end;
    LLVMValueRef outline_area; /* where outlined code takes its operands, or NULL */
    /* where misaligned accesses go, see align.c; NULL until there is one */
    LLVMBasicBlockRef misaligned;
    LLVMValueRef carry_slot;              /* CC.CF, one bit per lane */
    LLVMValueRef scratch[TL_MAX_SCRATCH]; /* see tl_scratch */
    uint32_t n_scratch, n_scratch_used;
    const struct tl_ptx_stmt *scratch_inst; /* that uses them now */
    bool *is_in_loop;                       /* per block */
    /* of a function that takes stack memory: where it began, a word per lane; else NULL */
    LLVMValueRef stack_slot;
};

struct tl_emit {
    LLVMContextRef ctx;
    LLVMModuleRef mod;
    LLVMBuilderRef b;
    struct tl_arena *arena;
    struct tl_ptx_program *p;
    struct tl_error *err;
    const struct tl_jit_options *options;
    const char *name; /* of the module, for messages */
    bool has_avx512;
    bool has_wide_cas; /* cmpxchg16b */
    struct tl_fn *f;   /* current function */
    const struct tl_ptx_stmt *inst;
    uint32_t inst_block;
    LLVMValueRef mask;   /* current: NULL or <32 x i1> */
    bool uses_grid_sync; /* blocks wait for each other, so that they are begun one by one */
    bool uses_lanes;     /* threads run one by one, see abi.h */
    bool must_blend;     /* the instruction is guarded lane by lane */
    bool to_shadow;      /* the instruction's result goes to its shadow */
    /* the instruction computes the base of one group: operands are read as `lane` has them */
    bool is_scalar;
    uint32_t lane;
    int rc;                          /* first error */
    uint32_t nesting, block_nesting; /* of tl_if and lane loops: here, and where the block began */
    uint32_t shared_bytes, local_bytes, n_barriers, n_insts;
    uint64_t stack_bytes;     /* frames of all functions that LLVM has made */
    uint32_t stack_at;        /* where the stack for alloca begins in a thread's local memory */
    bool has_stack;           /* somebody takes some */
    struct tl_placed *placed; /* variables of the program: offsets and indices */
    uint32_t n_variables;
    LLVMTypeRef i1, i8, i16, i32, i64, i128, f16, f32, f64, ptr, voidt;
    struct tl_func_ref *funcs;
    struct tl_outline *outlines;
};

/* Where a variable stands. */
struct tl_placed {
    struct tl_placed *next;
    const void *what; /* its declaration, or the symbol of a module variable */
    /* 's'hared, 'l'ocal: offset; 'g'lobal: index; 'p'arameter of the entry: offset; 'a': alloca */
    char space;
    uint64_t offset;
    uint64_t bytes;
    struct tl_str name;        /* 'g': as the process knows it */
    LLVMValueRef slot;         /* 'a' */
    const struct tl_fn *owner; /* of an alloca: the function that it stands in; else NULL */
};

struct tl_func_ref {
    struct tl_func_ref *next;
    const struct tl_ptx_program_func *pf;
    LLVMValueRef fn;
    LLVMTypeRef type;
};

/* The current instruction's n-th operand, and whether its form has a modifier. */
static inline const struct tl_ptx_operand *tl_opd(const struct tl_emit *e, uint32_t n)
{
    return &e->inst->inst.operands[n];
}
static inline bool tl_has(const struct tl_emit *e, enum tl_ptx_mod m)
{
    return tl_ptx_form_has(e->inst->inst.form, m);
}
/* Operators that widen a scalar operand where the other is a vector. */
struct tl_val tl_op(struct tl_emit *e, LLVMOpcode op, struct tl_val a, struct tl_val b);
struct tl_val tl_icmp(struct tl_emit *e, LLVMIntPredicate p, struct tl_val a, struct tl_val b);
struct tl_val tl_fcmp(struct tl_emit *e, LLVMRealPredicate p, struct tl_val a, struct tl_val b);

/* --- errors ----------------------------------------------------------------------------------- */

/* Says that the current instruction is not implemented (why: a few words); translation ends. */
void tl_emit_unsupported(struct tl_emit *e, const char *why);

/* --- types and values (value.c) --------------------------------------------------------------- */

LLVMTypeRef tl_int(struct tl_emit *e, uint32_t bits);
LLVMTypeRef tl_vec(LLVMTypeRef element);
/* The n-th type of the form (0 first), or the last one with n = -1; bits 0 if there is none. */
struct tl_type tl_type_of(const struct tl_ptx_form *f, int n);
struct tl_val tl_const(struct tl_emit *e, uint32_t bits, uint64_t value);
LLVMValueRef tl_const_lanes(struct tl_emit *e, uint32_t bits, const int64_t offset[TL_LANES]);
struct tl_val tl_widen(struct tl_emit *e, struct tl_val v); /* scalar to vector */
/* both vectors if one is */
void tl_match(struct tl_emit *e, struct tl_val *a, struct tl_val *b);
/* element or vector of it */
LLVMTypeRef tl_like(struct tl_emit *e, struct tl_val v, LLVMTypeRef element);
/* Part number n of a word that holds several, of so many bits each; and the word with such a part
 * added to zeroes. */
struct tl_val tl_part_of(struct tl_emit *e, struct tl_val word, uint32_t bits, uint32_t n);
struct tl_val tl_with_part(struct tl_emit *e, struct tl_val word, struct tl_val part, uint32_t bits,
                           uint32_t n);
struct tl_val tl_cast_int(struct tl_emit *e, struct tl_val v, uint32_t bits, bool is_signed);
struct tl_val tl_bitcast(struct tl_emit *e, struct tl_val v, LLVMTypeRef element);
struct tl_val tl_select(struct tl_emit *e, struct tl_val c, struct tl_val a, struct tl_val b);
struct tl_val tl_intrinsic(struct tl_emit *e, const char *name, struct tl_val *args,
                           unsigned n);                          /* overloaded on arg 0 */
LLVMValueRef tl_mask_bits(struct tl_emit *e, LLVMValueRef mask); /* <32 x i1> (or NULL) to i32 */
LLVMValueRef tl_mask_of_bits(struct tl_emit *e, LLVMValueRef bits);
LLVMValueRef tl_active(struct tl_emit *e); /* current mask as <32 x i1>, never NULL */
LLVMValueRef tl_active_bits(struct tl_emit *e);
/* one lane as a scalar */
struct tl_val tl_lane_value(struct tl_emit *e, struct tl_val v, LLVMValueRef lane);

/* How many elements an operand has, and each of them as an operand: of { a, b }, of a vector
 * register, of a special register that is read whole.  What is none of these is its only
 * element. */
uint32_t tl_elements(const struct tl_ptx_operand *o);
struct tl_ptx_operand tl_element(const struct tl_ptx_operand *o, uint32_t n);

/* Operands as integers of so many bits. */
struct tl_val tl_read(struct tl_emit *e, const struct tl_ptx_operand *o, uint32_t bits);
struct tl_val tl_read_as(struct tl_emit *e, const struct tl_ptx_operand *o,
                         struct tl_type t); /* float types come as floats */
void tl_write(struct tl_emit *e, const struct tl_ptx_operand *o, struct tl_val v, bool is_signed);
void tl_write_as(struct tl_emit *e, const struct tl_ptx_operand *o, struct tl_val v,
                 struct tl_type t);
struct tl_val tl_to_float(struct tl_emit *e, struct tl_val bits, struct tl_type t);
/* Subnormals to zeros of the same sign, for .ftz. */
struct tl_val tl_flush(struct tl_emit *e, struct tl_val v);
struct tl_val tl_from_float(struct tl_emit *e, struct tl_val v, struct tl_type t);
/* Lanes first .. first + n - 1 of a vector. */
LLVMValueRef tl_lanes_from(struct tl_emit *e, LLVMValueRef v, uint32_t first, uint32_t n);
LLVMValueRef tl_alloca(struct tl_emit *e, LLVMTypeRef type, const char *name);
/* What slot `n` of a register holds.  Slots are memory, made when first asked for (a piece of a
 * kernel uses few of them); the values of local registers are kept as they are, as long as they are
 * put where all that follows in the block comes by. */
LLVMValueRef tl_get(struct tl_emit *e, struct tl_reg *r, uint32_t n);
void tl_put(struct tl_emit *e, struct tl_reg *r, uint32_t n, LLVMValueRef v);
/* load a field of the frame */
LLVMValueRef tl_field(struct tl_emit *e, uint32_t offset, LLVMTypeRef type);
LLVMValueRef tl_call_frame(struct tl_emit *e, uint32_t slot, LLVMTypeRef ret, LLVMValueRef *args,
                           unsigned n);

/* Memory for a vector of up to 64 bits per lane.  The next instruction uses it again: large kernels
 * have thousands. */
LLVMValueRef tl_scratch(struct tl_emit *e);

/* A vector in memory, for loops that take its lanes one by one: LLVM would store it anew in each
 * round. */
struct tl_spilled {
    LLVMValueRef slot;
    struct tl_val v;
};
struct tl_spilled tl_spill(struct tl_emit *e, struct tl_val v);
LLVMValueRef tl_spilled_lane(struct tl_emit *e, const struct tl_spilled *s, LLVMValueRef lane);

/* A loop over the active lanes; between begin and end the builder stands in its body. */
struct tl_lane_loop {
    LLVMBasicBlockRef head, body, done;
    LLVMValueRef left_slot, lane;
};
void tl_lanes_begin(struct tl_emit *e, struct tl_lane_loop *l);
void tl_lanes_end(struct tl_emit *e, struct tl_lane_loop *l);

/* Ends the launch with that fault if the condition (i1) holds; the code for it stands out of the
 * way. */
void tl_fault_if(struct tl_emit *e, LLVMValueRef condition, uint32_t fault);

/* Emits `if (condition)`: the builder stands inside until tl_if_end. */
struct tl_if {
    LLVMBasicBlockRef done;
};
void tl_if_begin(struct tl_emit *e, struct tl_if *i, LLVMValueRef condition);
void tl_if_end(struct tl_emit *e, struct tl_if *i);

/* How many groups of lanes a warp has: 1 where warps lie along x, else the rows of the block that
 * it holds. */
uint32_t tl_groups(const struct tl_emit *e);
uint32_t tl_n_bases(const struct tl_emit *e, const struct tl_lanes *l);
/* Each lane its group's base and its offset. */
struct tl_val tl_bases_to_lanes(struct tl_emit *e, const LLVMValueRef *bases,
                                const struct tl_lanes *l, uint32_t bits);

/* --- split.c: registers that stand for several things ----------------------------------------- */

/* Gives shadows to definitions, and registers for them behind those of the program.  0, or -1: no
 * memory. */
int tl_split_registers(struct tl_emit *e, struct tl_fn *f);
/* The register that an instruction reads in a register's place: a shadow, or itself. */
uint32_t tl_reg_read(const struct tl_fn *f, uint32_t inst, uint32_t reg);

/* --- local.c: which registers need no memory -------------------------------------------------- */
int tl_find_local(struct tl_emit *e, struct tl_fn *f);

/* --- lanes.c: which registers have lane offsets known when compiling -------------------------- */
int tl_lanes_analyse(struct tl_emit *e, struct tl_fn *f);
/* `v`, which was read from `o`, as 64 bits.  Of an index with known lanes it is the base that
 * counts: one is found that is right for all active lanes, also if it wraps in others; where there
 * is none, the launch ends with a fault. */
struct tl_val tl_widen_index(struct tl_emit *e, const struct tl_ptx_operand *o, struct tl_val v,
                             bool is_signed);
bool tl_lanes_of_operand(struct tl_emit *e, const struct tl_fn *f, const struct tl_ptx_operand *o,
                         struct tl_lanes *out);

/* --- instructions, by family; each returns true if it took the instruction -------------------- */
bool tl_emit_integer(struct tl_emit *e);
bool tl_emit_bits(struct tl_emit *e);
bool tl_emit_compare(struct tl_emit *e);
bool tl_emit_float(struct tl_emit *e);
bool tl_emit_convert(struct tl_emit *e);
bool tl_emit_memory(struct tl_emit *e);
bool tl_emit_atomic(struct tl_emit *e);
bool tl_emit_warp(struct tl_emit *e);
bool tl_emit_matrix(struct tl_emit *e);
bool tl_emit_call(struct tl_emit *e);
bool tl_emit_texture(struct tl_emit *e);
bool tl_emit_barrier(struct tl_emit *e);
void tl_emit_warp_barrier(struct tl_emit *e); /* bar.warp.sync */

/* Special registers as 32-bit (or 64-bit) values. */
struct tl_val tl_sreg(struct tl_emit *e, const struct tl_ptx_operand *o);

/* An address operand as 64-bit integers, in host terms. */
struct tl_address {
    struct tl_val pointer; /* where lanes are not known: scalar (all lanes the same) or vector */
    /* from a vector of pointers: kept apart, so that questions about it are asked once */
    int64_t offset;
    struct tl_lanes lanes; /* is_known: lane i is at its base + offset[i] */
    /* a power of two that the pointer or all bases are known to be multiples of; 0: none is */
    uint64_t align;
    LLVMValueRef base[TL_MAX_GROUPS]; /* then: scalars, one or one per group */
};
struct tl_val tl_lane_addresses(struct tl_emit *e, const struct tl_address *a); /* one per lane */
/* The same as a vector of pointers, `extra` bytes further on. */
LLVMValueRef tl_lane_pointers(struct tl_emit *e, const struct tl_address *a, uint64_t extra);
/* The pointer of the only place, or of the first of known lanes, `extra` bytes further on. */
LLVMValueRef tl_first_pointer(struct tl_emit *e, const struct tl_address *a, uint64_t extra);
LLVMValueRef tl_pointer(struct tl_emit *e, LLVMValueRef address);
/* Whether lanes are known, and all of them from one base; whether all have the same place; whether
 * each is `stride` bytes behind the one before it, from one base. */
bool tl_has_one_base(const struct tl_emit *e, const struct tl_address *a);
bool tl_is_one_address(const struct tl_emit *e, const struct tl_address *a);
bool tl_is_packed(const struct tl_emit *e, const struct tl_address *a, uint64_t stride);
/* The power of two that a name's address in shared memory is a multiple of, 1 for all other
 * names. */
uint32_t tl_align_of_name(struct tl_emit *e, const struct tl_ptx_operand *o);
/* Where each thread's local memory begins, as pointers. */
struct tl_val tl_local_base(struct tl_emit *e);
struct tl_address tl_address_of(struct tl_emit *e, const struct tl_ptx_operand *o,
                                enum tl_ptx_mod space);
/* The addresses of an address operand, spilled, for loops over lanes. */
struct tl_spilled tl_spilled_addresses(struct tl_emit *e, const struct tl_ptx_operand *o,
                                       enum tl_ptx_mod space);
/* Ends the launch if an access of so many bytes there is misaligned (align.c). */
void tl_check_alignment(struct tl_emit *e, const struct tl_address *a, uint64_t bytes);

/* --- strong.c: `v` elements of `bits` each per lane, active lanes only ------------------------ */
void tl_load_strong(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                    struct tl_val *out);
void tl_store_strong(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                     struct tl_val *in);

/* --- gather.c: an address of its own for each lane (64-bit integers); active lanes only ------- */
struct tl_val tl_gather(struct tl_emit *e, struct tl_val addresses, uint32_t bits);
void tl_scatter(struct tl_emit *e, struct tl_val addresses, struct tl_val v, uint32_t bits);
/* Up to eight elements per lane, one behind the other. */
void tl_gather_elements(struct tl_emit *e, struct tl_val addresses, uint32_t bits, uint32_t n,
                        struct tl_val *out);
void tl_scatter_elements(struct tl_emit *e, struct tl_val addresses, uint32_t bits, uint32_t n,
                         const struct tl_val *in);
/* An order in which to do instructions from .. until - 1, between which there is no barrier; NULL:
 * as they stand (sums.c). */
const uint32_t *tl_order_sums(struct tl_emit *e, uint32_t from, uint32_t until);
/* Where the stretch without a barrier ends that begins at `from`, which may be one itself. */
uint32_t tl_stretch_end(const struct tl_fn *f, uint32_t from, uint32_t until);
/* Stores `v` where lanes are known and all active, without a scatter, if that pays; false: nothing
 * was stored (apart.c). */
bool tl_store_apart(struct tl_emit *e, const struct tl_address *a, uint32_t bits, LLVMValueRef v);

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

/* --- mbarrier.c ------------------------------------------------------------------------------- */
bool tl_emit_mbarrier(struct tl_emit *e);
/* Says that so many bytes (i64) have come, to the barrier object at that address (i64). */
void tl_mbarrier_complete(struct tl_emit *e, LLVMValueRef address, LLVMValueRef bytes);

/* --- bulk.c: cp.async.bulk, cp.reduce.async.bulk, st.async, red.async ------------------------- */
bool tl_emit_bulk(struct tl_emit *e);
/* One atomic of the current form (its modifiers say which) at an address (i64), with a value as
 * bits.  False if there is no such (atomic.c).  The width is that of the form's last type. */
bool tl_atomic_at(struct tl_emit *e, bool is_shared, LLVMValueRef address, LLVMValueRef value);

/* --- stack.c: alloca, and registers that functions get and give back -------------------------- */
bool tl_emit_stack(struct tl_emit *e);
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

/* --- flow.c ----------------------------------------------------------------------------------- */
int tl_emit_function(struct tl_emit *e, struct tl_fn *f);
/* Once per function, before it: which blocks are in loops, and which registers must keep what other
 * lanes have. */
int tl_mark_loops(struct tl_emit *e, struct tl_fn *f);

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
void tl_emit_inst(struct tl_emit *e, const struct tl_ptx_stmt *s, uint32_t block);

struct tl_placed *tl_find_placed(struct tl_emit *e, const void *what);

#endif
