/* The translator's state, and the instructions that it knows, by family.
 *
 * One PTX register is one LLVM value: a scalar where all lanes of a warp agree, else a vector of 32
 * lanes (diverge.h decides). Registers hold integers; floating-point instructions cast.  All live
 * in allocas, which LLVM turns into SSA.
 *
 * `struct tl_val` is a scalar or a 32-lane vector; operations take both and widen where needed, so
 * that an instruction is written once (value.h).  The current mask says which lanes take part: NULL
 * means all 32.
 *
 * A translation belongs to the thread that does it: nothing here is shared, and there are no
 * locks. */
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
    bool is_lowered;     /* something was taken from it: the first lanes may be below 0 */
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
    /* per instruction: number of the barrier that it is, or that is thought in front of it; 0 if
     * there is none */
    const uint32_t *state_of;
    /* per instruction: a load that waits, in a loop, for what another block does */
    const bool *waits;
    LLVMBasicBlockRef *suspend; /* per state: where a warp goes that has reached that barrier */
};

/* A function being translated. */
struct tl_fn {
    const struct tl_segment *segment; /* or NULL: a whole function */
    bool is_body;      /* of loops: its maker writes how it is entered and left, as for a segment */
    bool is_beginning; /* of a segment: what comes next is its first instruction */
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
    /* Where lanes have parted: all blocks up to where they meet, that place, and of these blocks
     * those of the innermost loop around the one that is being written. */
    const uint32_t *line, *loop;
    uint32_t n_line, n_loop, join;
    bool *meets;               /* absent.c's: per block */
    struct tl_absent **absent; /* the same */
    LLVMBasicBlockRef allocas, start, end;
    LLVMValueRef outline_area; /* where outlined code takes its operands, or NULL */
    /* where misaligned accesses go, see align.c; NULL until there is one */
    LLVMBasicBlockRef misaligned;
    LLVMValueRef carry_slot;              /* CC.CF, one bit per lane */
    LLVMValueRef scratch[TL_MAX_SCRATCH]; /* see tl_scratch */
    uint32_t n_scratch, n_scratch_used;
    const struct tl_ptx_stmt *scratch_inst; /* that uses them now */
    bool *is_in_loop;                       /* per block */
    /* What was read over the bus, perhaps, and not waited for yet (bus.c). */
    bool has_read; /* by the instruction at hand */
    bool is_reading, is_needed;
    const struct tl_ptx_sym *read[16];
    uint32_t n_read;
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
    struct tl_quick *quick; /* of a quick version (form.h); else NULL */
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

/* Says that the current instruction is not implemented (why: a few words); translation ends. */
void tl_emit_unsupported(struct tl_emit *e, const char *why);

void tl_emit_inst(struct tl_emit *e, const struct tl_ptx_stmt *s, uint32_t block);
/* --- bus.c: around instructions, and where the way of a warp ends or may part */
void tl_bus_before(struct tl_emit *e, const struct tl_ptx_stmt *s);
void tl_bus_behind(struct tl_emit *e, const struct tl_ptx_stmt *s);
void tl_bus_settle(struct tl_emit *e);
/* An access of one lane (enum tl_dev_reach). */
void tl_bus_reach(struct tl_emit *e, LLVMValueRef pointer, uint32_t kind);
struct tl_placed *tl_find_placed(struct tl_emit *e, const void *what);

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

/* --- mbarrier.c ------------------------------------------------------------------------------- */
bool tl_emit_mbarrier(struct tl_emit *e);
/* Says that so many bytes (i64) have come, to the barrier object at that address (i64). */
void tl_mbarrier_complete(struct tl_emit *e, LLVMValueRef address, LLVMValueRef bytes);

/* --- tensor.c: copies by tensor maps, and changes of these ------------------------------------ */
bool tl_emit_tensor(struct tl_emit *e);

/* --- bulk.c: cp.async.bulk, cp.reduce.async.bulk, st.async, red.async ------------------------- */
bool tl_emit_bulk(struct tl_emit *e);
/* One atomic of the current form (its modifiers say which) at an address (i64), with a value as
 * bits.  False if there is no such (atomic.c).  The width is that of the form's last type. */
bool tl_atomic_at(struct tl_emit *e, bool is_shared, LLVMValueRef address, LLVMValueRef value);

/* --- stack.c: alloca -------------------------------------------------------------------------- */
bool tl_emit_stack(struct tl_emit *e);

#endif
