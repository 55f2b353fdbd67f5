/* One kernel and what it was rewritten into; see the header. */
#include "test/unit/ptx_rewrite/rewritten.h"

#include <unity.h>

struct ptx_text ptx_given;
struct tl_ptx_rewritten ptx_made;

void setUp(void)
{
    ptx_given = (struct ptx_text){0};
    ptx_made = (struct tl_ptx_rewritten){0};
}

void tearDown(void)
{
    tl_ptx_rewritten_finish(&ptx_made);
    ptx_close(&ptx_given);
}

const char *ptx_rewrite_body(enum tl_ptx_variant variant, const char *body)
{
    const struct tl_ptx_options options = {.variant = variant, .grid_dims = 1};
    ptx_open_body(&ptx_given, body);
    int rc = tl_ptx_rewrite(ptx_given.ix, TL_STR("k"), &options, &ptx_made, NULL, &ptx_given.err);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, ptx_given.err.text);
    return ptx_made.text;
}
