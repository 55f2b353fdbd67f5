/* PTX in, preemptible PTX or a reason out: the part of the PTX library that the runtime and the
 * tools call.
 *
 * A text is indexed once (functions, variables and where they stand; bodies are skipped, at memory
 * speed), and then asked about single kernels: may it be sliced, ticketed, made persistent?  Give
 * me that variant.  Only the functions that a question reaches are parsed.  An index is immutable
 * after creation, so any number of threads may ask at once; each question works in an arena of its
 * own.  There is no global state.
 *
 *     struct tl_ptx_index *ix;
 *     tl_ptx_index_create(&ix, text, n, "module.ptx", &err);
 *     tl_ptx_rewrite(ix, "vadd", &(struct tl_ptx_options){.variant = TL_PTX_TICKET, .grid_dims = 1}, &out, &verdict, &err);
 */
#ifndef TALLY_PTX_H
#define TALLY_PTX_H

#include "tally/base.h"

/* Part of every cache key: grows whenever the same input may give another output. */
#define TL_PTX_REWRITER_VERSION 10

/* --- index ------------------------------------------------------------------------------------ */

struct tl_ptx_index;

enum tl_ptx_item_kind {
    /* .version, .target, .file, .section, .pragma, .alias, anything unknown */
    TL_PTX_ITEM_DIRECTIVE,
    /* a module-scope .global, .const, .shared, ... declaration (one name each) */
    TL_PTX_ITEM_VARIABLE,
    TL_PTX_ITEM_ENTRY,
    TL_PTX_ITEM_FUNC,
};

/* One thing at module scope.  Offsets are into the text given to tl_ptx_index_create. */
struct tl_ptx_item {
    enum tl_ptx_item_kind kind;
    struct tl_str name;  /* of the function or variable; of a directive its first word */
    uint32_t begin, end; /* the whole text, from linkage to the closing brace or semicolon */
    uint32_t body;       /* offset of a function's '{', 0 for a declaration without body */
    bool is_extern, is_visible, is_weak, is_common;
};

/* Keeps a reference to `text`, which must outlive the index.  A trailing run of NUL bytes is
 * ignored, as fatbins end in them.  `name` is for messages.  0, -EINVAL (syntax; the message has
 * line, column and a caret), -EFBIG (over 2 GiB), -ENOMEM. */
int tl_ptx_index_create(struct tl_ptx_index **out, const char *text, size_t n, const char *name,
                        struct tl_error *err);
void tl_ptx_index_destroy(struct tl_ptx_index *ix);

uint32_t tl_ptx_index_count(const struct tl_ptx_index *ix);
const struct tl_ptx_item *tl_ptx_index_item(const struct tl_ptx_index *ix, uint32_t i);
/* The definition of that name, or else its first declaration, or NULL. */
const struct tl_ptx_item *tl_ptx_index_find(const struct tl_ptx_index *ix, struct tl_str name);
/* The text of `.version` ("9.0") and of the first word of `.target` ("sm_90a"); empty if the module
 * has none. */
struct tl_str tl_ptx_index_version(const struct tl_ptx_index *ix);
struct tl_str tl_ptx_index_target(const struct tl_ptx_index *ix);

/* Line and column (from 1) of an offset into a text. */
struct tl_ptx_place {
    uint32_t line, column;
};
struct tl_ptx_place tl_ptx_place_of(const char *text, size_t n, uint32_t offset);

/* --- variants and verdicts -------------------------------------------------------------------- */

enum tl_ptx_variant {
    TL_PTX_SLICE,      /* a range of linear block numbers per launch */
    TL_PTX_TICKET,     /* each block takes its number from a counter, or leaves if told to stop */
    TL_PTX_PERSISTENT, /* worker blocks loop over the counter */
    TL_PTX_VARIANTS,
};

const char *tl_ptx_variant_name(enum tl_ptx_variant v); /* "slice" ... */

/* Why a kernel has no such variant.  The second column is the code in JSON, the third what a user
 * reads. */
#define TL_PTX_REASONS(X)                                                                          \
    X(OK, "ok", "can be rewritten")                                                                \
    X(GRID_SYNC, "grid-sync",                                                                      \
      "synchronises the whole grid cooperatively; all its blocks must be resident at once")        \
    X(GRID_BARRIER, "grid-barrier",                                                                \
      "has a hand-made grid barrier; all its blocks must be resident at once")                     \
    X(BLOCK_WAIT, "block-wait",                                                                    \
      "waits for other blocks, and that it waits only for earlier ones is not proven")             \
    X(CLUSTER, "cluster", "uses thread block clusters")                                            \
    X(GRID_ID, "gridid", "depends on %gridid, which differs in every piece")                       \
    X(SM_ID, "smid", "depends on %smid, so on where its blocks are placed")                        \
    X(DEVICE_LAUNCH, "device-launch", "launches kernels from the device")                          \
    X(INDIRECT_CALL, "indirect-call",                                                              \
      "calls through a pointer; the callee might read the block number")                           \
    X(INDIRECT_BRANCH, "indirect-branch", "branches through a table that is not declared")         \
    X(MULTI_DEVICE, "multi-device", "communicates with other devices (multimem)")                  \
    X(UNLINKED, "unlinked", "calls a function that this image does not define")                    \
    X(TEXTURE_REFERENCE, "texture-reference",                                                      \
      "uses a module-scope texture, sampler or surface reference")                                 \
    X(WARP_SYNC_AFTER_EXIT, "warp-sync-after-exit",                                                \
      "a warp-wide operation may name lanes that have already returned; they would be waited for") \
    X(BARRIER_FORM, "barrier-form",                                                                \
      "uses a barrier form that does not survive a loop over blocks")                              \
    X(BLOCK_STATE, "block-state",                                                                  \
      "leaves state behind that only the end of a block clears (mbarrier, bulk copy, wgmma, "      \
      "tensor memory, alloca)")                                                                    \
    X(EXIT_IN_FUNC, "exit-in-func", "a called function ends the thread")                           \
    X(PARAM_SPACE, "param-space", "no room for the extra parameters")                              \
    X(SHARED_SIZE, "shared-size",                                                                  \
      "reads the size of its shared memory, which the variant changes")                            \
    X(CONST_SPACE, "const-space", "uses the constant space in a way that pointers cannot replace") \
    X(ADDRESS_SIZE, "address-size", "is 32-bit PTX")                                               \
    X(UNKNOWN_INSTRUCTION, "unknown-instruction",                                                  \
      "has an instruction that this rewriter does not know")                                       \
    X(UNRESOLVED_NAME, "unresolved-name", "uses a name that is not declared")                      \
    X(HIDDEN_VARIABLE, "hidden-variable",                                                          \
      "has a global variable inside a function, where nobody can ask for its address")             \
    X(TOO_LARGE, "too-large", "is too large to analyse")

enum tl_ptx_reason {
#define TL_PTX_REASON_ENUM(id, code, text) TL_PTX_REASON_##id,
    TL_PTX_REASONS(TL_PTX_REASON_ENUM)
#undef TL_PTX_REASON_ENUM
        TL_PTX_REASON_COUNT,
};

const char *tl_ptx_reason_code(enum tl_ptx_reason r);
const char *tl_ptx_reason_text(enum tl_ptx_reason r);

/* What must hold for a launch, beside the verdict, for the variant to behave as the original. */
enum tl_ptx_condition {
    /* Warps must be rows of the block: a 1-D block, or blockDim.x a multiple of 32. */
    TL_PTX_IF_WARPS_ARE_ROWS = 1u << 0,
    /* The grid must be {n, 1, 1}: then the order in which blocks wait for each other is the order
     * of their numbers. */
    TL_PTX_IF_GRID_IS_LINE = 1u << 1,
    /* The batch must be one block: it has loops that depend on what other blocks write.  Nobody is
     * kept waiting there, as was shown; but if that is wrong, a block that was taken and not begun
     * is out of everybody's reach.  Of rewritten kernels only, verdicts do not have it. */
    TL_PTX_IF_TAKEN_SINGLY = 1u << 2,
    /* The grid must be one block wide in that direction: then nobody comes to a loop that waits for
     * other blocks. */
    TL_PTX_IF_ONE_WIDE_X = 1u << 3,
    TL_PTX_IF_ONE_WIDE_Y = 1u << 4,
    TL_PTX_IF_ONE_WIDE_Z = 1u << 5,
};

/* Whether a launch has what such conditions demand of its shape. */
bool tl_ptx_conditions_hold(uint32_t conditions, const uint32_t grid[3], const uint32_t block[3]);

struct tl_ptx_verdict {
    enum tl_ptx_reason reason;
    uint32_t conditions;       /* of enum tl_ptx_condition; with reason OK only */
    struct tl_ptx_place place; /* what caused the refusal; line 0 if no single place did */
    uint32_t offset;           /* the same as an offset into the text */
    /* the instruction or name found there, or what was proven; may be empty */
    char note[200];
};

/* The verdicts of one kernel for all variants, indexed by enum tl_ptx_variant.  0, -ENOENT (no such
 * entry with a body), -EINVAL (syntax error in a function it reaches), -ENOMEM. */
int tl_ptx_judge(const struct tl_ptx_index *ix, struct tl_str kernel,
                 struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS], struct tl_error *err);

/* --- rewriting -------------------------------------------------------------------------------- */

/* What an extra parameter carries.  Widths: addresses are u64, all else u32. */
/* clang-format off */
#define TL_PTX_ARGS(X)                                                                             \
    X(FIRST_BLOCK, "first-block")  /* slice: linear number of this launch's first block */         \
    X(GRID_X, "grid-x")            /* the original grid */                                         \
    X(GRID_Y, "grid-y")                                                                            \
    X(GRID_Z, "grid-z")                                                                            \
    X(BLOCKS, "blocks")            /* ticket, persistent: x * y * z of it, at most 2^31 - 1 */     \
    X(MAGIC_X, "magic-x")          /* tl_ptx_magic_of(grid x) and (grid y): division */            \
    X(SHIFT_X, "shift-x")          /* without dividing */                                          \
    X(MAGIC_Y, "magic-y")                                                                          \
    X(SHIFT_Y, "shift-y")                                                                          \
    X(COUNTER, "counter")          /* u64: address of the u32 counter of blocks started, the       \
                                      upper half of an aligned u64; the lower is the next's */     \
    X(BASE, "base")                /* what the counter says before the first block: so it          \
                                      need not be reset */                                         \
    X(TOLD, "told")                /* u64: address of a u32 that is told how many blocks were      \
                                      started, by the last block or worker to take none any        \
                                      more; 0: nobody is told */                                   \
    X(LEFT_END, "left-end")        /* who is told: how many have left when all of this launch      \
                                      have; they are counted in the counter's lower half,          \
                                      which only grows */                                          \
    X(STOP_WORD, "stop-word")      /* u64, one of TL_PTX_STOP_WORDS (`which`): address of a        \
                                      u64 {issued, completed}; stop while the halves differ;       \
                                      0: not asked */                                              \
    X(BATCH_MASK, "batch-mask")    /* persistent: how many blocks a worker takes at a time, a      \
                                      power of two, less one */                                    \
    X(VARIABLE, "variable")        /* u64: address of the original module's variable `name` */
/* clang-format on */

/* Words that a variant asks before each block. */
enum { TL_PTX_STOP_WORDS = 4 };

enum tl_ptx_arg_kind {
#define TL_PTX_ARG_ENUM(id, name) TL_PTX_ARG_##id,
    TL_PTX_ARGS(TL_PTX_ARG_ENUM)
#undef TL_PTX_ARG_ENUM
        TL_PTX_ARG_KINDS,
};

const char *tl_ptx_arg_kind_name(enum tl_ptx_arg_kind k);

struct tl_ptx_arg {
    enum tl_ptx_arg_kind kind;
    /* parameter number, counted from 0 over all parameters of the new entry */
    uint32_t index;
    uint32_t offset;      /* in bytes, in the parameter buffer */
    uint32_t size;        /* 4 or 8 */
    uint32_t which;       /* STOP_WORD: below TL_PTX_STOP_WORDS */
    const char *name;     /* the parameter's name in the text */
    const char *variable; /* VARIABLE: name in the original module, for cuModuleGetGlobal */
};

struct tl_ptx_options {
    enum tl_ptx_variant variant;
    uint32_t grid_dims; /* 1: the original grid is {n, 1, 1}; 2: {n, m, 1}; 3 (or 0): any */
    /* name for the new entry; NULL for <kernel>__tally_<variant><dims> (and '_' if that is
     * taken) */
    const char *entry;
    /* 0, or the most registers per thread that the compiler may give the variant, as
     * tl_ptx_register_limit says.  Kernels that come with a `.maxnreg` of their own keep that. */
    uint32_t max_registers;
    /* For tests of what catches a wrong verdict: kernels whose blocks may wait for others are
     * rewritten all the same.  What comes out may hang. */
    bool trusts_waits;
};

/* Extra bytes of dynamic shared memory that a ticket or persistent launch must ask for: the
 * hand-off slot stands at the end.  Launch with TL_PTX_SHARED_BYTES(original dynamic size) where
 * `uses_slot` is set. */
#define TL_PTX_SLOT_BYTES 48u
#define TL_PTX_SHARED_BYTES(dynamic) ((((uint32_t)(dynamic) + 15u) & ~15u) + TL_PTX_SLOT_BYTES)

/* A rewritten kernel.  Everything in it belongs to its arena. */
struct tl_ptx_rewritten {
    struct tl_arena arena;
    const char *text; /* a whole module, terminated */
    size_t text_bytes;
    const char *entry;
    const struct tl_ptx_arg *args; /* the extra parameters, in order, behind the original ones */
    uint32_t n_args;
    uint32_t original_params; /* how many parameters the original has */
    uint32_t original_bytes;  /* and how many bytes they take */
    uint32_t param_bytes;     /* all parameters of the new entry together */
    uint32_t conditions;      /* of enum tl_ptx_condition */
    /* Addresses that called functions need, since they do not see parameters: `table_name` is an
     * array of u64 in the constant memory of the new module, to be filled once after loading with
     * the addresses of the original module's variables named here.  NULL and 0 if there are
     * none. */
    const char *table_name;
    const char *const *table;
    uint32_t n_table;
    bool uses_slot; /* dynamic shared memory must grow, see TL_PTX_SHARED_BYTES */
};

/* 0 and `out`; -EPERM and `verdict` (may be NULL) if the kernel must not be rewritten so; else as
 * tl_ptx_judge. */
int tl_ptx_rewrite(const struct tl_ptx_index *ix, struct tl_str kernel,
                   const struct tl_ptx_options *options, struct tl_ptx_rewritten *out,
                   struct tl_ptx_verdict *verdict, struct tl_error *err);
void tl_ptx_rewritten_finish(struct tl_ptx_rewritten *r);

/* What a launch gives in the extra parameters. */
struct tl_ptx_extra {
    uint32_t grid[3]; /* of the original */
    uint32_t first, blocks, batch_mask;
    uint32_t base, left_end;
    uint64_t counter, told, words[TL_PTX_STOP_WORDS];
    const uint64_t *variables; /* [i]: the address for args[i], where that is a VARIABLE */
};
/* Writes each of them to its place in the parameter buffer. */
void tl_ptx_put_args(const struct tl_ptx_arg *args, uint32_t n, const struct tl_ptx_extra *x,
                     uint8_t *params);

/* What a compiled kernel takes per thread, as the compiler says it, or cuFuncGetAttribute. */
struct tl_ptx_cost {
    uint32_t registers;
    /* what was spilled, as ptxas counts it, or all local memory, as the driver does */
    uint32_t local_bytes;
};

/* A variant may take so many more registers than the original. */
#define TL_PTX_SPARE_REGISTERS 8u

/* Left alone, compilers sometimes spend far more registers on a variant than they need, or fewer
 * than they could and spill: what they aim at depends on little things.  This tells whether a
 * variant should be compiled once more, with `max_registers` set: 0 if it is good as it is, else
 * the limit.  The second one is better if it has no more local memory than the original
 * (tl_ptx_limit_helps); if not, the first is. */
uint32_t tl_ptx_register_limit(struct tl_ptx_cost original, struct tl_ptx_cost variant);
bool tl_ptx_limit_helps(struct tl_ptx_cost original, struct tl_ptx_cost limited);

/* n / d == mulhi(2 * n, magic) >> shift for all n < 2^31 and 0 < d < 2^31.  d = 0 is taken as 1. */
struct tl_ptx_magic {
    uint32_t magic, shift;
};
struct tl_ptx_magic tl_ptx_magic_of(uint32_t d);

/* A parameter of a kernel: where it stands in a buffer of all, and how many bytes it takes. */
struct tl_ptx_param {
    uint32_t offset, size;
};
/* The parameters of a kernel, in order; `out` has room for `cap`.  0, -ENOTSUP if there are more or
 * one has no known size; else as tl_ptx_judge. */
int tl_ptx_params(const struct tl_ptx_index *ix, struct tl_str kernel, struct tl_ptx_param *out,
                  uint32_t cap, uint32_t *n, struct tl_error *err);

/* The kernel alone with everything it reaches, unchanged, as a module of its own: what a compiler
 * needs to see of it.  The text is the caller's to free.  Names of variables are kept, so that they
 * can be found in the original.  0, else as tl_ptx_judge. */
int tl_ptx_extract(const struct tl_ptx_index *ix, struct tl_str kernel, char **text, size_t *n,
                   struct tl_error *err);

/* The same without functions that are only reached through pointers that variables hold, if their
 * text is longer than `most`; then `*left_out` is how long it is, else 0. */
int tl_ptx_extract_within(const struct tl_ptx_index *ix, struct tl_str kernel, uint64_t most,
                          uint64_t *left_out, char **text, size_t *n, struct tl_error *err);

/* --- whole modules ---------------------------------------------------------------------------- */

/* Parses everything and prints it in canonical form.  The text is the caller's to free. */
int tl_ptx_format(const struct tl_ptx_index *ix, char **text, size_t *n, struct tl_error *err);

#endif
