/* For tests that rewrite one kernel each: the text and what it became, made empty before each test
 * and freed behind it.  A test that names them gets setUp and tearDown from here. */
#ifndef TALLY_TEST_PTX_REWRITTEN_H
#define TALLY_TEST_PTX_REWRITTEN_H

#include "test/unit/ptx_rewrite/help.h"

extern struct ptx_text ptx_given;
extern struct tl_ptx_rewritten ptx_made;

/* The text of a variant of a kernel `k` with that body, for grids of one dimension. */
const char *ptx_rewrite_body(enum tl_ptx_variant variant, const char *body);

#endif
