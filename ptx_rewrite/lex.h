/* PTX text to tokens.
 *
 * One token of look-ahead, no allocation, no tables per token: a token is a kind and a text range,
 * and line and column are computed from the range when somebody asks.  The lexer never fails; a
 * byte that starts no token comes out as TL_TOK_BAD. */
#ifndef TALLY_PTX_LEX_H
#define TALLY_PTX_LEX_H

#include "tally/ptx.h"

enum tl_tok_kind {
    TL_TOK_END,
    TL_TOK_WORD,    /* name, opcode without modifiers, %register, $label */
    TL_TOK_DOTWORD, /* .u32, .shared::cta, .2d */
    TL_TOK_NUMBER,  /* any literal, also 9.0 and 0f3F800000 */
    TL_TOK_STRING,  /* with its quotes */
    TL_TOK_PUNCT,   /* one character, in `punct` */
    TL_TOK_BAD,     /* a byte or an unterminated string or comment that PTX has no use for */
};

struct tl_lex {
    const char *text;
    uint32_t limit; /* tokens begin before this offset */
    /* the current token: */
    enum tl_tok_kind kind;
    char punct;
    bool first_on_line;
    uint32_t at, end;
    uint32_t previous_end; /* where the token before this one ended */
};

/* Starts at `from` and reads the first token. */
void tl_lex_init(struct tl_lex *lx, const char *text, uint32_t from, uint32_t limit);
/* Reads the next token. */
void tl_lex_next(struct tl_lex *lx);
/* With a WORD current, extends it by all modifiers that follow without a blank: "ld.global.u32"
 * becomes one token. */
void tl_lex_extend_opcode(struct tl_lex *lx);
/* With '{' current, moves to the token behind the matching '}'; false if there is none (then END is
 * current). */
bool tl_lex_skip_braces(struct tl_lex *lx);
/* Moves to the next ',' or ';' outside brackets; false if there is none. */
bool tl_lex_skip_initialiser(struct tl_lex *lx);
/* Whether the byte behind the current token, blanks and comments skipped, is a ':' that makes it a
 * label. */
bool tl_lex_is_label(const struct tl_lex *lx);
/* With .version, .target, .address_size, .file or .loc current, moves behind its arguments.  No
 * semicolon ends these, and what follows need not stand on a new line.  false if something is
 * missing at their end. */
bool tl_lex_skip_unterminated(struct tl_lex *lx);
/* Whether the current token is a number; where one may stand, that includes ".5", which reads as a
 * DOTWORD at first. */
bool tl_lex_as_number(struct tl_lex *lx);

static inline bool tl_lex_is(const struct tl_lex *lx, char punct)
{
    return lx->kind == TL_TOK_PUNCT && lx->punct == punct;
}

static inline struct tl_str tl_lex_str(const struct tl_lex *lx)
{
    return (struct tl_str){lx->text + lx->at, lx->end - lx->at};
}

/* The word of a DOTWORD without its dot. */
static inline struct tl_str tl_lex_dotword(const struct tl_lex *lx)
{
    return (struct tl_str){lx->text + lx->at + 1, lx->end - lx->at - 1};
}

static inline bool tl_lex_is_dotword(const struct tl_lex *lx, const char *word)
{
    return lx->kind == TL_TOK_DOTWORD && tl_str_is(tl_lex_dotword(lx), word);
}

/* Writes "name:line:column: what", the line and a caret under the column into `err`; returns
 * -EINVAL. */
int tl_ptx_syntax_error(struct tl_error *err, const char *name, const char *text, size_t n,
                        uint32_t at, const char *format, ...) __attribute__((format(printf, 6, 7)));

#endif
