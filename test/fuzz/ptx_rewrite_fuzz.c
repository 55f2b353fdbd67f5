/* Any bytes as PTX: every kernel is judged, and every variant that is allowed is a module that can
 * be read again, with one entry and the parameters that were promised. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/ast.h"
#include "tally/ptx.h"

static void expect(bool holds, const char *what, const struct tl_error *err, const char *text)
{
    if (holds)
        return;
    fprintf(stderr, "ptx_rewrite_fuzz: %s\n%s\n%s\n", what, err->text, text != NULL ? text : "");
    abort();
}

/* What is promised of a variant's text: it has an index, one entry of the promised name, can be
 * printed, and has the extra parameters where they are said to be. */
static void check_text(const struct tl_ptx_rewritten *r)
{
    struct tl_ptx_index *ix;
    struct tl_error err = {0};
    char *printed = NULL;
    size_t n = 0;
    int rc = tl_ptx_index_create(&ix, r->text, r->text_bytes, "variant", &err);
    expect(rc == 0, "a variant has no index", &err, r->text);
    uint32_t n_entries = 0;
    for (uint32_t i = 0; i < tl_ptx_index_count(ix); i++)
        n_entries += tl_ptx_index_item(ix, i)->kind == TL_PTX_ITEM_ENTRY;
    const struct tl_ptx_item *entry = tl_ptx_index_find(ix, tl_str_of(r->entry));
    expect(n_entries == 1 && entry != NULL && entry->body != 0,
           "a variant has not the promised entry", &err, r->text);
    rc = tl_ptx_format(ix, &printed, &n, &err);
    expect(rc == 0, "a variant does not parse", &err, r->text);
    free(printed);

    struct tl_arena arena;
    struct tl_ptx_unit u;
    struct tl_ptx_func *f = NULL;
    tl_arena_init(&arena, 0);
    expect(tl_ptx_unit_init(&u, ix, &arena, &err) == 0, "no unit", &err, NULL);
    expect(tl_ptx_parse_func(&u, entry, &f) == 0, "the entry does not parse", &err, r->text);
    uint32_t index = 0, promised = 0;
    for (const struct tl_ptx_decl *d = f->params; d != NULL; d = d->next, index++) {
        if (promised < r->n_args && index == r->args[promised].index) {
            expect(tl_str_is(d->name, r->args[promised].name),
                   "a parameter is not where it should be", &err, r->text);
            promised++;
        }
    }
    expect(promised == r->n_args && index == r->original_params + r->n_args,
           "parameters are missing", &err, r->text);
    tl_ptx_unit_finish(&u);
    tl_arena_finish(&arena);
    tl_ptx_index_destroy(ix);
}

static void check_kernel(const struct tl_ptx_index *ix, struct tl_str kernel)
{
    struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
    struct tl_error err = {0};
    int rc = tl_ptx_judge(ix, kernel, verdicts, &err);
    if (rc < 0) {
        expect(rc == -EINVAL || rc == -ENOMEM || rc == -ENOENT, "an unexpected return code", &err,
               NULL);
        return;
    }
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        for (uint32_t dims = 1; dims <= 3; dims++) {
            struct tl_ptx_rewritten r;
            struct tl_ptx_verdict verdict;
            struct tl_ptx_options options = {.variant = (enum tl_ptx_variant)v, .grid_dims = dims};
            rc = tl_ptx_rewrite(ix, kernel, &options, &r, &verdict, &err);
            bool is_allowed = verdicts[v].reason == TL_PTX_REASON_OK &&
                              (dims == 1 || !(verdicts[v].conditions & TL_PTX_IF_GRID_IS_LINE));
            expect(rc == (is_allowed ? 0 : -EPERM), "verdict and rewriting differ", &err, NULL);
            if (rc < 0)
                continue;
            check_text(&r);
            tl_ptx_rewritten_finish(&r);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tl_ptx_index *ix;
    if (tl_ptx_index_create(&ix, (const char *)data, n, "fuzz", NULL) < 0)
        return 0;
    for (uint32_t i = 0, seen = 0; i < tl_ptx_index_count(ix) && seen < 8; i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(ix, i);
        if (item->kind != TL_PTX_ITEM_ENTRY || item->body == 0 ||
            tl_ptx_index_find(ix, item->name) != item)
            continue;
        check_kernel(ix, item->name);
        char *text = NULL;
        size_t text_n;
        if (tl_ptx_extract(ix, item->name, &text, &text_n, NULL) == 0)
            free(text);
        seen++;
    }
    tl_ptx_index_destroy(ix);
    return 0;
}
