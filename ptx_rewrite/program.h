/* One kernel with everything it reaches: the unit of judging and of rewriting. */
#ifndef TALLY_PTX_PROGRAM_H
#define TALLY_PTX_PROGRAM_H

#include "ptx_rewrite/ast.h"

struct tl_ptx_summary;

struct tl_ptx_program_var {
    struct tl_ptx_program_var *next, *next_alike; /* all; of the same hash */
    const struct tl_ptx_sym *sym;
    const struct tl_ptx_decl *decl; /* of just this name */
    bool in_entry, in_func;         /* who uses it */
};

struct tl_ptx_program_func {
    struct tl_ptx_program_func *next, *next_alike; /* all; of the same hash */
    struct tl_ptx_func *func;                      /* has_body false: defined elsewhere */
    struct tl_str alias_of;                        /* `.alias name, target`: the target's name */
    struct tl_ptx_summary *summary;                /* what judging keeps of it (judge.h), or NULL */
};

struct tl_ptx_program {
    struct tl_ptx_unit unit;
    struct tl_arena *arena;
    struct tl_ptx_program_func *entry; /* the first of `funcs` */
    struct tl_ptx_program_func *funcs; /* in the order found */
    struct tl_ptx_program_var *vars;   /* likewise */
    uint32_t n_funcs;

    /* To find them: images may have tens of thousands. */
    struct tl_ptx_program_func *last_func, **funcs_by_name;
    struct tl_ptx_program_var *last_var, **vars_by_sym;
    uint32_t n_buckets; /* of both; a power of two */
    struct tl_ptx_alias {
        struct tl_str name, target;
    } * aliases; /* `.alias` of the module, by name */
    uint32_t n_aliases;
};

/* Parses the entry and, step by step, the functions and variables that its text names.  0, -ENOENT,
 * -EINVAL, -ENOMEM. To be finished in any case. */
int tl_ptx_program_init(struct tl_ptx_program *p, const struct tl_ptx_index *ix,
                        struct tl_str kernel, struct tl_arena *arena, struct tl_error *err);
void tl_ptx_program_finish(struct tl_ptx_program *p);

bool tl_ptx_program_calls_pointers(const struct tl_ptx_program *p);
/* If it calls through pointers: adds what they may lead to, that is, functions that initialisers of
 * variables name (their addresses taken in the code are there already), or with `all` every
 * function of the module.  0, -EINVAL, -ENOMEM. */
int tl_ptx_program_add_pointees(struct tl_ptx_program *p, bool all);
/* How much text that would add, without `all` and without what those functions need in turn; names
 * that stand there twice count twice.  Nothing is parsed for it. */
uint64_t tl_ptx_program_pointee_bytes(struct tl_ptx_program *p);

/* Space of a module variable; "shared::cta" counts as shared. */
bool tl_ptx_var_is(const struct tl_ptx_program_var *v, const char *space);
const struct tl_ptx_program_var *tl_ptx_program_find_var(const struct tl_ptx_program *p,
                                                         const struct tl_ptx_sym *sym);
/* The function behind a symbol, aliases followed; NULL if it has no body here. */
struct tl_ptx_program_func *tl_ptx_program_callee(const struct tl_ptx_program *p,
                                                  const struct tl_ptx_sym *sym);

/* Calls `visit` for every instruction of a function, nested blocks included, in order; non-zero
 * stops and is returned. */
typedef int (*tl_ptx_inst_visitor)(void *data, struct tl_ptx_stmt *inst);
int tl_ptx_each_inst(struct tl_ptx_stmt *body, tl_ptx_inst_visitor visit, void *data);
/* Calls `visit` for every symbol operand of an instruction. */
typedef int (*tl_ptx_sym_visitor)(void *data, struct tl_ptx_operand *operand);
int tl_ptx_each_sym(struct tl_ptx_operand *operands, uint32_t n, tl_ptx_sym_visitor visit,
                    void *data);

#endif
