/* Initial values of variables: two bytes choose type and shape, the rest is what stands behind the
 * equals sign. */
#include "ptx_rewrite/initialiser.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool address_of(void *data, struct tl_str name, uint64_t *address)
{
    (void)data;
    *address = 0x1234;
    return name.n < 8;
}

static void expect(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const types[] = {"u8", "b16", "f16", "s32", "f32", "u64", "f64", "b128"};
    static const char *const dims[] = {"",       "[]",        "[4]",
                                       "[2][3]", "[2][2][2]", "[99999999999999][9]"};
    static const uint64_t counts[] = {1, 0, 4, 6, 8, UINT64_C(899999999999991)};
    enum { MOST = 64 };
    if (n < 2)
        return 0;
    uint32_t shape = data[1] % 6;
    struct tl_ptx_decl decl = {
        .name = tl_str_of("x"),
        .type = tl_str_of(types[data[0] % 8]),
        .dims = tl_str_of(dims[shape]),
        .vec = data[0] >= 128 ? 4 : 1,
        .count = counts[shape],
        .init = {(const char *)data + 2, (uint32_t)n - 2},
    };
    uint64_t numbers = tl_ptx_decl_count(&decl);
    size_t bytes = (numbers < MOST ? numbers : MOST) * tl_ptx_type_bytes(decl.type);
    /* Of exactly that length, so that the sanitizer sees the first byte too many. */
    uint8_t *to = calloc(1, bytes > 0 ? bytes : 1);
    struct tl_error err = {0};
    int rc = tl_ptx_initialise(&decl, address_of, NULL, to, bytes, &err);
    expect(rc == 0 || (rc == -EINVAL && err.text[0] != 0));
    free(to);
    return 0;
}
