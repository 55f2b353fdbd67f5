/* Names, scopes and interned forms of one parse.
 *
 * PTX scopes nest and shadow, and a register may be declared one by one (`.reg .pred p`) or as a
 * family (`.reg .b32 %r<5>` declares %r0..%r4).  The innermost declaration wins, whichever kind it
 * is.  Each distinct word has one `tl_ptx_name`, which remembers what it currently means; the
 * memory is dropped only when a family comes or goes or the word itself is declared again, so that
 * nearly every use costs one hash look-up. */
#ifndef TALLY_PTX_NAMES_H
#define TALLY_PTX_NAMES_H

#include "ptx_rewrite/ast.h"

struct tl_ptx_names;

int tl_ptx_names_create(struct tl_ptx_names **out, const struct tl_ptx_index *ix,
                        struct tl_arena *arena);
void tl_ptx_names_destroy(struct tl_ptx_names *t);

/* Opens and closes a scope.  The first one opened is the function's; it resets the dense numbering.
 * Closing hands labels that were used but not defined here to the scope around; closing the
 * outermost one gives the place of such a label in `*undefined_at` and -EINVAL.  Else 0 or
 * -ENOMEM. */
int tl_ptx_names_open(struct tl_ptx_names *t);
int tl_ptx_names_close(struct tl_ptx_names *t, uint32_t *undefined_at);
uint32_t tl_ptx_names_depth(const struct tl_ptx_names *t);
/* Drops all scopes, after an error. */
void tl_ptx_names_reset(struct tl_ptx_names *t);

/* Declares a register or variable (or a family of registers) in the innermost scope.  0 or -ENOMEM.
 * A second declaration of a name in one scope hides the first. */
int tl_ptx_names_declare(struct tl_ptx_names *t, enum tl_ptx_sym_kind kind,
                         const struct tl_ptx_decl *decl);

/* What a word means here.  Never NULL but when out of memory; a word that nothing declares gives
 * TL_SYM_UNKNOWN. */
struct tl_ptx_sym *tl_ptx_names_resolve(struct tl_ptx_names *t, struct tl_str word);
/* A label that is branched to: the one of the innermost scope, defined or yet to come. */
struct tl_ptx_sym *tl_ptx_names_label(struct tl_ptx_names *t, struct tl_str word, uint32_t at);
/* Defines a label (or table) in the innermost scope; NULL if out of memory or, with *duplicate set,
 * if it exists. */
struct tl_ptx_sym *tl_ptx_names_define_label(struct tl_ptx_names *t, struct tl_str word,
                                             struct tl_ptx_stmt *stmt, enum tl_ptx_sym_kind kind,
                                             bool *duplicate);

bool tl_ptx_names_knows(struct tl_ptx_names *t, struct tl_str word);
uint32_t tl_ptx_names_regs(const struct tl_ptx_names *t); /* registers seen in this function */
uint32_t tl_ptx_names_labels(const struct tl_ptx_names *t);

/* The interned form of "ld.global.u32"; NULL if out of memory. */
const struct tl_ptx_form *tl_ptx_names_form(struct tl_ptx_names *t, struct tl_str text);

#endif
