/* What the rewriting passes share.  Each pass walks the program's tree and changes it in place;
 * rewrite.c runs them and prints the result as a module of its own. */
#ifndef TALLY_PTX_REWRITE_H
#define TALLY_PTX_REWRITE_H

#include "ptx_rewrite/program.h"
#include "ptx_rewrite/verdict.h"

enum { TL_MAX_FIXED_ARGS = 20 };

struct tl_rewriter {
    struct tl_ptx_program *p;
    const struct tl_ptx_findings *f;
    struct tl_arena *arena;
    enum tl_ptx_variant variant;
    uint32_t dims;
    bool uses_slot;
    bool failed;        /* out of memory somewhere; checked at the end */
    const char *prefix; /* begins every name that we add; occurs nowhere in the program's text */
    struct tl_ptx_arg *args;
    uint32_t n_args, cap_args;
    const char **table; /* variables that called functions reach through the table, in order */
    uint32_t n_table;
    /* of the function being rewritten: */
    struct tl_ptx_func *func;
    bool in_entry;
    uint32_t n_b32, n_b64; /* temporaries taken */
    struct tl_buf before;  /* text to stand before the current instruction */
};

/* Adds text to `out`, with every '$' in the format replaced by the prefix. */
void tl_rw_put(struct tl_rewriter *rw, struct tl_buf *out, const char *format, ...);
/* The same as a string of the arena; never NULL ("" when out of memory, with `failed` set). */
const char *tl_rw_text(struct tl_rewriter *rw, const char *format, ...);
/* The name of the parameter that carries `kind` (for VARIABLE and STOP_WORD: the one numbered
 * `which`). */
const char *tl_rw_arg(struct tl_rewriter *rw, enum tl_ptx_arg_kind kind, uint32_t which);
/* A fresh temporary. */
const char *tl_rw_b32(struct tl_rewriter *rw);
const char *tl_rw_b64(struct tl_rewriter *rw);
/* Makes an operand print as that text. */
void tl_rw_set_operand(struct tl_ptx_operand *o, const char *text);
/* Gives an instruction another opcode. */
void tl_rw_set_form(struct tl_rewriter *rw, struct tl_ptx_stmt *s, const char *form);
/* A statement of the arena that prints as that text; NULL when out of memory, with `failed` set. */
struct tl_ptx_stmt *tl_rw_text_stmt(struct tl_rewriter *rw, struct tl_buf *text);
/* A pragma speaks of the instruction behind it, so nothing may come between the two. */
bool tl_rw_is_pragma(const struct tl_ptx_stmt *s);

/* --- pass_forget.c: registers do not outlive a round of the persistent loop ------------------- */
void tl_rw_forget(struct tl_rewriter *rw); /* before all other passes over the function */
/* The instruction that sets a register of that type to zero ("mov.b32"), or NULL. */
const char *tl_rw_setter(const struct tl_ptx_decl *d);

/* --- pass_scopes.c: the same for registers of inline assembly --------------------------------- */
void tl_rw_scopes(struct tl_rewriter *rw);

/* --- pass_vars.c: module variables live in the original module and are reached through pointers */
int tl_rw_plan_vars(struct tl_rewriter *rw); /* chooses parameters and table; 0 or -ENOMEM */
void tl_rw_vars(struct tl_rewriter *rw, struct tl_ptx_stmt *s);
/* declarations that the variant needs itself */
void tl_rw_print_vars(struct tl_rewriter *rw, struct tl_buf *out);

/* --- pass_grid.c: %ctaid and %nctaid are those of the original grid --------------------------- */
void tl_rw_plan_grid(struct tl_rewriter *rw);
void tl_rw_grid(struct tl_rewriter *rw, struct tl_ptx_stmt *s);
/* Text that splits the linear block number in register `n` into %<out>0..2 (x, y, z). */
void tl_rw_unflatten(struct tl_rewriter *rw, struct tl_buf *out, const char *n, const char *x,
                     const char *y, const char *z);
/* Text that puts the address of the slot into a 32-bit register. */
void tl_rw_slot_address(struct tl_rewriter *rw, struct tl_buf *out, const char *reg);
/* Byte offsets in the slot. */
enum { TL_SLOT_BLOCK = 0, TL_SLOT_NUMBER = 12, TL_SLOT_GRID = 16 };

/* --- pass_blocks.c: where blocks get their numbers from, and what follows a block ------------- */
void tl_rw_plan_blocks(struct tl_rewriter *rw);
void tl_rw_blocks(struct tl_rewriter *rw, struct tl_ptx_stmt *s);
void tl_rw_prologue(struct tl_rewriter *rw, struct tl_buf *out);
void tl_rw_epilogue(struct tl_rewriter *rw, struct tl_buf *out);

/* Appends an extra parameter; NULL name for the default one. */
void tl_rw_add_arg(struct tl_rewriter *rw, enum tl_ptx_arg_kind kind, uint32_t which,
                   const char *variable);

#endif
