/* The tree that the parser makes and the passes walk.
 *
 * Everything here lives in the arena of one `struct tl_ptx_unit`, a parse in progress: names,
 * symbols and forms are interned per unit, so two pointers are equal exactly when the things are.
 * Texts are slices of the module's own text wherever possible.  The parts that only need to know
 * "rewrite this kernel" use tally/ptx.h instead. */
#ifndef TALLY_PTX_AST_H
#define TALLY_PTX_AST_H

#include "ptx_rewrite/opcodes.h"
#include "tally/ptx.h"

/* --- opcodes and forms ------------------------------------------------------------------------ */

enum tl_ptx_op {
    TL_OP_unknown,
#define TL_OP_ENUM(name, use) TL_OP_##name,
    TL_PTX_OPCODES(TL_OP_ENUM)
#undef TL_OP_ENUM
        TL_OP_count,
};

enum tl_ptx_mod {
    TL_MOD_other, /* known by its text only */
#define TL_MOD_ENUM(name) TL_MOD_##name,
    TL_PTX_MODIFIERS(TL_MOD_ENUM)
#undef TL_MOD_ENUM
        TL_MOD_count,
};

enum tl_ptx_sreg {
    TL_SREG_none,
#define TL_SREG_ENUM(name, reach) TL_SREG_##name,
    TL_PTX_SREGS(TL_SREG_ENUM)
#undef TL_SREG_ENUM
        TL_SREG_envreg, /* %envreg0..31 */
    TL_SREG_pm,         /* %pm0.. */
    TL_SREG_count,
};

/* A modifier as written: its text without the dot and, where known, its id. `shared::cta` has id
 * `shared`. */
struct tl_ptx_modifier {
    struct tl_str text;
    enum tl_ptx_mod id;
};

/* An opcode with all its modifiers, "ld.volatile.global.v2.u32": interned, about a thousand
 * exist. */
struct tl_ptx_form {
    struct tl_str text;
    enum tl_ptx_op op;
    uint32_t n_mods;
    const struct tl_ptx_modifier *mods;
};

bool tl_ptx_form_has(const struct tl_ptx_form *f, enum tl_ptx_mod mod);
bool tl_ptx_form_has_text(const struct tl_ptx_form *f, const char *mod);
/* The state space named by the form (global, shared, local, const, param), or TL_MOD_other for
 * generic or none. */
enum tl_ptx_mod tl_ptx_form_space(const struct tl_ptx_form *f);
/* Whether the first operand is written.  For `call` ask the operands, see tl_ptx_inst_rets. */
bool tl_ptx_form_writes(const struct tl_ptx_form *f);
/* Plain arithmetic, a comparison or a selection: what comes out depends on the operands alone, and
 * no carry goes in or out. */
bool tl_ptx_form_computes(const struct tl_ptx_form *f);

/* --- symbols ---------------------------------------------------------------------------------- */

enum tl_ptx_sym_kind {
    TL_SYM_UNKNOWN, /* a name that nothing declares (so far) */
    TL_SYM_REG,
    TL_SYM_SREG,
    TL_SYM_VAR, /* .local, .shared, .param, ... inside a function, or a function's parameter */
    TL_SYM_LABEL,
    TL_SYM_TABLE,      /* label of .branchtargets, .calltargets or .callprototype */
    TL_SYM_MODULE_VAR, /* a module-scope variable */
    TL_SYM_FUNC,       /* a function or an entry */
};

struct tl_ptx_decl;
struct tl_ptx_stmt;

struct tl_ptx_sym {
    enum tl_ptx_sym_kind kind;
    struct tl_str name;
    uint32_t id;                    /* registers and labels: dense in the function, from 0 */
    enum tl_ptx_sreg sreg;          /* SREG */
    const struct tl_ptx_decl *decl; /* REG, VAR */
    const struct tl_ptx_item *item; /* MODULE_VAR, FUNC */
    struct tl_ptx_stmt *stmt;       /* LABEL, TABLE: where it stands */
    struct tl_ptx_sym *forward;     /* a label used in an inner scope and defined in an outer one */
    struct tl_ptx_sym *shadowed;    /* the parser's: what this hides */
    struct tl_ptx_name *name_entry; /* the parser's */
    uint32_t depth;                 /* the parser's: scope depth */
};

/* The symbol behind a use: follows `forward`. */
struct tl_ptx_sym *tl_ptx_sym_final(struct tl_ptx_sym *s);

/* --- operands --------------------------------------------------------------------------------- */

enum tl_ptx_operand_kind {
    /* register, special register, variable, label, function; with `offset` for `name+8` */
    TL_OPD_SYM,
    TL_OPD_INT,  /* integer literal or constant expression; value in `bits` */
    TL_OPD_F32,  /* 0f....: bits in `bits` */
    TL_OPD_F64,  /* 0d.... or a decimal float: bits in `bits` */
    TL_OPD_VEC,  /* { a, b } */
    TL_OPD_LIST, /* ( a, b ): calls */
    TL_OPD_PAIR, /* a|b */
    TL_OPD_ADDR, /* [ base + offset ], or with more elements [ tex, {x, y} ] */
    TL_OPD_SINK, /* _ */
    TL_OPD_TEXT, /* printed as it is: put there by a pass */
};

enum tl_ptx_operand_flag {
    TL_OPD_NOT = 1,   /* !p */
    TL_OPD_MINUS = 2, /* -name: only where some form allows it */
};

struct tl_ptx_operand {
    uint8_t kind;  /* enum tl_ptx_operand_kind */
    uint8_t flags; /* enum tl_ptx_operand_flag */
    /* 'x', 'y', 'z', 'w' (also r, g, b, a) for %tid.x and vector registers, else 0 */
    char component;
    uint8_t has_offset;
    uint32_t n;  /* VEC, LIST, PAIR, ADDR: number of elements */
    uint32_t at; /* offset in the module's text */
    union {
        struct tl_ptx_sym *sym;
        uint64_t bits;
        struct tl_ptx_operand *elems;
    };
    union {
        int64_t offset; /* SYM, ADDR */
        /* INT, F32, F64, TEXT: how to print it, terminated; NULL for INT prints the value */
        const char *text;
    };
};

/* --- declarations ----------------------------------------------------------------------------- */

/* `.global .align 4 .u32 x[4] = {...}`, `.reg .b32 %r<5>`, `.param .u64 p`: one name each. */
struct tl_ptx_decl {
    struct tl_ptx_decl *next; /* further parameters, or further names of one statement */
    struct tl_str name;
    /* everything before the name, as written: ".visible .global .align 4 .u32" */
    struct tl_str prefix;
    struct tl_str space;     /* "reg", "global", "param", ... without the dot */
    struct tl_str type;      /* "u32", "b8", "pred", "texref", ... without the dot */
    struct tl_str ptr_space; /* of a parameter declared .ptr: "global", ...; else empty */
    struct tl_str dims;      /* "[4][2]", "[]", empty for a scalar */
    struct tl_str init;      /* text after '=', as written */
    uint32_t align;          /* 0 if not given */
    uint32_t vec;            /* 2, 4, 8 for .v2 ..., else 1 */
    uint64_t count;          /* elements: product of the dimensions, 1 for a scalar, 0 for [] */
    uint32_t range;          /* %r<range>, else 0 */
    bool is_range;
    bool joins_previous; /* printed behind a comma: `.reg .pred p, q;` */
    uint32_t at;
};

/* Bytes of one element of such a type; 0 if unknown (and for predicates). */
uint32_t tl_ptx_type_bytes(struct tl_str type);

/* --- statements ------------------------------------------------------------------------------- */

enum tl_ptx_stmt_kind {
    TL_STMT_INST,
    TL_STMT_LABEL,
    TL_STMT_DECL,      /* .reg, .local, .shared, .param inside a function */
    TL_STMT_BLOCK,     /* { ... } */
    TL_STMT_TABLE,     /* label: .branchtargets a, b; / .calltargets / .callprototype */
    TL_STMT_DIRECTIVE, /* .loc, .pragma, or unknown: text as written */
    TL_STMT_TEXT,      /* lines put there by a pass */
};

struct tl_ptx_stmt {
    struct tl_ptx_stmt *next;
    uint8_t kind; /* enum tl_ptx_stmt_kind */
    uint8_t guard_not;
    uint16_t n_operands;
    uint32_t at, end; /* text range of the statement */
    union {
        struct {
            const struct tl_ptx_form *form;
            struct tl_ptx_sym *guard; /* predicate register, or NULL */
            struct tl_ptx_operand *operands;
            /* an unknown instruction whose operands follow no known grammar: its text */
            struct tl_str raw;
        } inst;
        struct tl_ptx_sym *label;  /* LABEL */
        struct tl_ptx_decl *decl;  /* DECL */
        struct tl_ptx_stmt *block; /* BLOCK: its first statement */
        struct {
            struct tl_ptx_sym *label;
            struct tl_str text;             /* from the dot to before the semicolon */
            struct tl_ptx_operand *targets; /* .branchtargets, .calltargets */
            uint32_t n_targets;
        } table;
        struct tl_str text; /* DIRECTIVE, TEXT */
    };
};

/* --- functions and units ---------------------------------------------------------------------- */

struct tl_ptx_func {
    const struct tl_ptx_item *item;
    struct tl_str name;
    struct tl_str prefix; /* ".visible .entry", ".weak .func" */
    bool is_entry, has_body;
    struct tl_ptx_decl *rets, *params;
    bool has_param_list;      /* `.entry f` without parentheses is legal */
    struct tl_str directives; /* between parameters and body: .maxntid 256, 1, 1 ... as written */
    struct tl_ptx_stmt *body;
    uint32_t n_regs, n_labels, n_insts; /* sizes for the passes' tables */
};

/* A parse in progress, over one index.  Not thread-safe; make one per question. */
struct tl_ptx_unit {
    const struct tl_ptx_index *ix;
    struct tl_arena *arena;
    struct tl_error *err;
    struct tl_ptx_names *names; /* the parser's tables */
};

/* `arena` must outlive the unit.  0 or -ENOMEM. */
int tl_ptx_unit_init(struct tl_ptx_unit *u, const struct tl_ptx_index *ix, struct tl_arena *arena,
                     struct tl_error *err);
void tl_ptx_unit_finish(struct tl_ptx_unit *u);

/* Parses one function (header and, if it has one, body) or one module variable of the index.
 * 0, -EINVAL (message with place and caret), -ENOMEM. */
int tl_ptx_parse_func(struct tl_ptx_unit *u, const struct tl_ptx_item *item,
                      struct tl_ptx_func **out);
int tl_ptx_parse_var(struct tl_ptx_unit *u, const struct tl_ptx_item *item,
                     struct tl_ptx_decl **out);

/* Whether any text of this unit uses that word as a name: for passes that need a fresh one. */
bool tl_ptx_unit_knows(struct tl_ptx_unit *u, struct tl_str name);

/* The return-value list, callee and argument list of a call; NULL where absent.  false if it is no
 * known call form. */
struct tl_ptx_call {
    const struct tl_ptx_operand *rets, *callee, *args, *proto;
};
bool tl_ptx_inst_call(const struct tl_ptx_stmt *inst, struct tl_ptx_call *out);

/* --- printing --------------------------------------------------------------------------------- */

void tl_ptx_print_func(struct tl_buf *out, const struct tl_ptx_func *f);
/* one statement: a chain of joined names */
void tl_ptx_print_decl(struct tl_buf *out, const struct tl_ptx_decl *d);
void tl_ptx_print_stmt(struct tl_buf *out, const struct tl_ptx_stmt *s, uint32_t indent);
void tl_ptx_print_operand(struct tl_buf *out, const struct tl_ptx_operand *o);

#endif
