/* What the three files of the parser share. */
#ifndef TALLY_PTX_PARSE_H
#define TALLY_PTX_PARSE_H

#include "ptx_rewrite/ast.h"
#include "ptx_rewrite/lex.h"
#include "ptx_rewrite/names.h"

/* Deeper nesting than this is hostile: braces, vectors and parentheses recurse. */
enum { TL_PTX_MAX_NESTING = 200 };

struct tl_parser {
    struct tl_ptx_unit *unit;
    struct tl_lex lx;
    uint32_t n_insts;
    uint32_t nesting;
};

int tl_parse_fail(struct tl_parser *p, uint32_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int tl_parse_no_memory(struct tl_parser *p);
/* Fails unless that character is current; moves behind it. */
int tl_parse_expect(struct tl_parser *p, char punct, const char *where);

/* The text of [from, to) with comments dropped and every gap a single blank, so that printing it
 * and reading it again gives the same.  Mostly a slice of the module. */
int tl_parse_normalised(struct tl_parser *p, uint32_t from, uint32_t to, struct tl_str *out);

/* Operands up to (not including) the ';'.  With `op` a known opcode, a syntax error is an error;
 * else the caller keeps the text.  0, 1 (not the known grammar, nothing reported), -EINVAL,
 * -ENOMEM. */
int tl_parse_operands(struct tl_parser *p, enum tl_ptx_op op, struct tl_ptx_operand **out,
                      uint16_t *n);

/* A declaration statement, from its first directive word to before its ';', possibly of several
 * names.  With `declare`, the names are bound in the innermost scope. */
int tl_parse_decls(struct tl_parser *p, bool declare, struct tl_ptx_decl **out);
/* A parenthesised parameter list. */
int tl_parse_params(struct tl_parser *p, struct tl_ptx_decl **out);

#endif
