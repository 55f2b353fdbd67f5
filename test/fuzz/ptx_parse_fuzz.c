/* Any bytes as PTX: they are read or refused with a place, and what was read prints to a fixed
 * point. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/ast.h"
#include "tally/ptx.h"

static void expect(bool holds, const char *what, const struct tl_error *err)
{
    if (holds)
        return;
    fprintf(stderr, "ptx_parse_fuzz: %s\n%s\n", what, err->text);
    abort();
}

/* A refusal has a code, a message and, if it is about syntax, a place. */
static void check_error(int rc, const struct tl_error *err)
{
    expect(rc == -EINVAL || rc == -ENOMEM, "an unexpected return code", err);
    expect(err->code == rc && err->text[0] != 0, "a refusal without a message", err);
    if (rc != -EINVAL)
        return;
    char *behind = NULL;
    bool has_name = strncmp(err->text, "fuzz:", 5) == 0;
    unsigned long line = has_name ? strtoul(err->text + 5, &behind, 10) : 0;
    bool has_line = line > 0 && *behind == ':';
    expect(has_line && strtoul(behind + 1, &behind, 10) > 0 && *behind == ':', "no place", err);
}

/* All functions in one unit, as a verdict reads them: names must not leak from one into the
 * next. */
static void parse_in_one_unit(const struct tl_ptx_index *ix)
{
    struct tl_arena arena;
    struct tl_ptx_unit u;
    struct tl_error err = {0};
    tl_arena_init(&arena, (size_t)1 << 30);
    expect(tl_ptx_unit_init(&u, ix, &arena, &err) == 0, "no unit", &err);
    for (uint32_t i = 0; i < tl_ptx_index_count(ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(ix, i);
        int rc = 0;
        struct tl_ptx_func *f;
        struct tl_ptx_decl *d;
        expect(item->begin < item->end, "an item without text", &err);
        if (item->kind == TL_PTX_ITEM_ENTRY || item->kind == TL_PTX_ITEM_FUNC)
            rc = tl_ptx_parse_func(&u, item, &f);
        else if (item->kind == TL_PTX_ITEM_VARIABLE)
            rc = tl_ptx_parse_var(&u, item, &d);
        else
            continue;
        expect(tl_ptx_index_find(ix, item->name) != NULL, "an item that is not found", &err);
        if (rc < 0)
            check_error(rc, &err);
    }
    tl_ptx_unit_finish(&u);
    tl_arena_finish(&arena);
}

/* The printed text, the caller's to free; NULL if it was refused. */
static char *print(const char *text, size_t n, size_t *printed_n, bool must_work)
{
    struct tl_ptx_index *ix;
    struct tl_error err = {0};
    char *printed = NULL;
    int rc = tl_ptx_index_create(&ix, text, n, "fuzz", &err);
    if (rc == 0) {
        if (!must_work)
            parse_in_one_unit(ix);
        rc = tl_ptx_format(ix, &printed, printed_n, &err);
        tl_ptx_index_destroy(ix);
    }
    if (rc < 0) {
        check_error(rc, &err);
        expect(!must_work, "printed text is refused", &err);
    }
    return printed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t once_n = 0, twice_n = 0;
    char *once = print((const char *)data, n, &once_n, false);
    if (once == NULL)
        return 0;
    char *twice = print(once, once_n, &twice_n, true);
    if (once_n != twice_n || memcmp(once, twice, once_n) != 0) {
        fprintf(stderr, "ptx_parse_fuzz: no fixed point\n--- once\n%s--- twice\n%s", once, twice);
        abort();
    }
    free(once);
    free(twice);
    return 0;
}
