/* What the tests of the PTX library share: a text on its way through index and parser, and a second
 * opinion on what a text says that uses none of the library's code. */
#ifndef TEST_PTX_HELP_H
#define TEST_PTX_HELP_H

#include "ptx_rewrite/ast.h"
#include "tally/ptx.h"

/* A module in memory of its own, so that AddressSanitizer sees a read past its end. */
struct ptx_text {
    char *text;
    size_t n;
    struct tl_ptx_index *ix;
    struct tl_arena arena;
    struct tl_ptx_unit unit;
    struct tl_error err;
    bool has_unit;
};

/* Indexes `n` bytes (or a whole string) as "test.ptx"; returns what tl_ptx_index_create does. */
int ptx_index_bytes(struct ptx_text *t, const char *text, size_t n);
int ptx_index_text(struct ptx_text *t, const char *text);
/* The same, and the test fails if it does not succeed. */
void ptx_open(struct ptx_text *t, const char *text);
/* A kernel `k` with that body; %p<20>, %h<20>, %r<20>, %rd<20>, %f<20>, %fd<20> and the parameter
 * `p` are declared. */
void ptx_open_body(struct ptx_text *t, const char *body);
void ptx_close(struct ptx_text *t); /* zeroes are fine */

/* Parses a function or a variable of an opened text; the test fails if that fails. */
struct tl_ptx_func *ptx_func(struct ptx_text *t, const char *name);
struct tl_ptx_decl *ptx_var(struct ptx_text *t, const char *name);
int ptx_try_func(struct ptx_text *t, const char *name, struct tl_ptx_func **out);

/* The n-th (from 0) instruction of a function, blocks entered; NULL if there are fewer. */
struct tl_ptx_stmt *ptx_inst(const struct tl_ptx_func *f, uint32_t n);
/* The n-th statement of a list; NULL if there are fewer. */
struct tl_ptx_stmt *ptx_stmt(struct tl_ptx_stmt *first, uint32_t n);

/* tl_ptx_format, the caller's to free; the test fails if that fails. */
char *ptx_format(const struct tl_ptx_index *ix);

/* A text without what does not matter: comments gone, empty statements gone, blanks kept only
 * between two letters or digits that would else grow together.  Two texts with equal essence have
 * the same tokens.  The caller frees. */
char *ptx_essence(const char *text, size_t n);

/* A whole file, terminated, the caller's to free; NULL if it cannot be read. */
char *ptx_read_file(const char *path, size_t *n);

/* Whether the slice is that text, with a failure that shows both. */
#define ASSERT_STR(expected, slice)                                                                \
    do {                                                                                           \
        struct tl_str slice_ = (slice);                                                            \
        TEST_ASSERT_EQUAL_UINT32(sizeof(expected) - 1, slice_.n);                                  \
        TEST_ASSERT_EQUAL_STRING_LEN(expected, slice_.p, slice_.n);                                \
    } while (0)

#endif
