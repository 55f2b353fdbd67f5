/* Initial values of variables, above all those that nobody writes who means well: images are
 * untrusted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "ptx_rewrite/initialiser.h"
#include "test/unit/ptx_rewrite/help.h"

static struct ptx_text t;
static struct tl_error err;

void setUp(void)
{
    t = (struct ptx_text){0};
    err = (struct tl_error){0};
}

void tearDown(void)
{
    ptx_close(&t);
}

/* Every name but "nobody" has the address 0x1234. */
static bool address_of(void *data, struct tl_str name, uint64_t *address)
{
    (void)data;
    *address = 0x1234;
    return !tl_str_is(name, "nobody");
}

/* The variable x of a module of those bytes; its value goes to `to`. */
static int initialise_bytes(const char *text, size_t n, void *to, size_t bytes)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, ptx_index_bytes(&t, text, n), t.err.text);
    return tl_ptx_initialise(ptx_var(&t, "x"), address_of, NULL, to, bytes, &err);
}

static int initialise(const char *text, void *to, size_t bytes)
{
    return initialise_bytes(text, strlen(text), to, bytes);
}

/* .global .u64 x = OPEN... 1 CLOSE...; */
static int initialise_nested(const char *open, const char *close, uint32_t depth, uint64_t *to)
{
    struct tl_buf text = {0};
    tl_buf_puts(&text, ".global .u64 x = ");
    for (uint32_t i = 0; i < depth; i++)
        tl_buf_puts(&text, open);
    tl_buf_puts(&text, "1");
    for (uint32_t i = 0; i < depth; i++)
        tl_buf_puts(&text, close);
    tl_buf_puts(&text, ";");
    TEST_ASSERT_FALSE(text.failed);
    int rc = initialise_bytes(text.p, text.n, to, sizeof *to);
    tl_buf_finish(&text);
    ptx_close(&t);
    return rc;
}

static void values_are_computed(void)
{
    uint64_t x[4] = {0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0,
        initialise(".global .u64 x[4] = {3 - (1 + 1), generic(y) + 8, 0xFF00(y), -(-5)};", x,
                   sizeof x),
        err.text);
    TEST_ASSERT_EQUAL_UINT64(1, x[0]);
    TEST_ASSERT_EQUAL_UINT64(0x123c, x[1]);
    TEST_ASSERT_EQUAL_UINT64(0x12, x[2]);
    TEST_ASSERT_EQUAL_UINT64(5, x[3]);
}

static void mistakes_are_refused_with_their_place(void)
{
    uint32_t x;
    TEST_ASSERT_EQUAL_INT(-EINVAL, initialise(".global .u32 x = nobody;", &x, sizeof x));
    TEST_ASSERT_EQUAL_STRING("initialiser of x: an unknown name at \"\"", err.text);
    ptx_close(&t);
    TEST_ASSERT_EQUAL_INT(-EINVAL, initialise(".global .u32 x = (1 2);", &x, sizeof x));
    TEST_ASSERT_EQUAL_STRING("initialiser of x: no closing parenthesis at \"2)\"", err.text);
}

static void nesting_is_bounded(void)
{
    static const struct {
        const char *open, *close;
    } kinds[] = {{"(", ")"}, {"-(", ")"}, {"0xFF(", ")"}, {"generic(", ")"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        uint64_t x = 0;
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, initialise_nested(kinds[i].open, kinds[i].close, 100, &x),
                                      err.text);
        TEST_ASSERT_EQUAL_UINT64(1, x);
        /* Deep enough to run over any stack if each level took some of it. */
        TEST_ASSERT_EQUAL_INT(-EINVAL,
                              initialise_nested(kinds[i].open, kinds[i].close, 1000000, &x));
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "initialiser of x: parentheses are nested"),
                                     err.text);
    }
}

/* A copy that ends at the zero byte is read behind its end, which AddressSanitizer tells. */
static void a_zero_byte_in_a_string_ends_nothing(void)
{
    static const char text[] =
        ".global .u32 x[4] = {1, \"\0 and all the rest of a long string\", 3, 4};";
    uint32_t x[4] = {0};
    TEST_ASSERT_EQUAL_INT(-EINVAL, initialise_bytes(text, sizeof text - 1, x, sizeof x));
    TEST_ASSERT_EQUAL_STRING("initialiser of x: no value at \"\"\"", err.text);
}

static void numbers_of_sixteen_bytes_end_in_zeroes(void)
{
    uint64_t x[4];
    memset(x, 0xff, sizeof x);
    TEST_ASSERT_EQUAL_INT(0, initialise(".global .b128 x[2] = {7, 8};", x, sizeof x));
    TEST_ASSERT_EQUAL_UINT64(7, x[0]);
    TEST_ASSERT_EQUAL_UINT64(0, x[1]);
    TEST_ASSERT_EQUAL_UINT64(8, x[2]);
    TEST_ASSERT_EQUAL_UINT64(0, x[3]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(values_are_computed);
    RUN_TEST(mistakes_are_refused_with_their_place);
    RUN_TEST(nesting_is_bounded);
    RUN_TEST(a_zero_byte_in_a_string_ends_nothing);
    RUN_TEST(numbers_of_sixteen_bytes_end_in_zeroes);
    return UNITY_END();
}
