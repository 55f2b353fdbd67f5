/* A function that was parsed, for the tests of the parser: its statements and symbols by number. */
#ifndef TALLY_TEST_PTX_PARSED_H
#define TALLY_TEST_PTX_PARSED_H

#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/help.h"

static struct ptx_text t;

void setUp(void)
{
    memset(&t, 0, sizeof t);
}

void tearDown(void)
{
    ptx_close(&t);
}

static inline struct tl_ptx_func *body(const char *text)
{
    ptx_open_body(&t, text);
    return ptx_func(&t, "k");
}

/* Operand `o` of instruction `i`. */
static inline const struct tl_ptx_operand *operand(const struct tl_ptx_func *f, uint32_t i,
                                                   uint32_t o)
{
    struct tl_ptx_stmt *s = ptx_inst(f, i);
    TEST_ASSERT_NOT_NULL(s);
    TEST_ASSERT_LESS_THAN_UINT32(s->n_operands, o);
    return &s->inst.operands[o];
}

static inline struct tl_ptx_sym *symbol(const struct tl_ptx_func *f, uint32_t i, uint32_t o)
{
    const struct tl_ptx_operand *found = operand(f, i, o);
    TEST_ASSERT_EQUAL_INT(TL_OPD_SYM, found->kind);
    return tl_ptx_sym_final(found->sym);
}

#endif
