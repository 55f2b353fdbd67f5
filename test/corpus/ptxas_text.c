/* Texts for ptxas, put together from the items of an index: one kernel alone, another version in
 * the header. */
#include "test/corpus/ptxas.h"

#include <stdlib.h>

/* Debug sections speak of labels in all functions, so they cannot stay when some of these go. */
static bool belongs_to(const struct tl_ptx_item *item, const struct corpus_kernel *k)
{
    switch (item->kind) {
    case TL_PTX_ITEM_ENTRY:
        return tl_str_eq(item->name, k->name);
    case TL_PTX_ITEM_DIRECTIVE:
        return !tl_str_is(item->name, ".section");
    default:
        return true;
    }
}

/* Whether this item is another name of the declaration that the item before it came from. */
static bool repeats(const struct tl_ptx_index *index, uint32_t i)
{
    return i > 0 && tl_ptx_index_item(index, i)->begin == tl_ptx_index_item(index, i - 1)->begin;
}

static void put_item(struct tl_buf *out, const char *text, const struct tl_ptx_item *item)
{
    tl_buf_add(out, text + item->begin, item->end - item->begin);
    tl_buf_putc(out, '\n');
}

void ptxas_original(struct tl_buf *out, const struct corpus_kernel *k)
{
    const struct tl_ptx_index *index = k->image->index;
    for (uint32_t i = 0; i < tl_ptx_index_count(index); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(index, i);
        if (belongs_to(item, k) && !repeats(index, i))
            put_item(out, k->image->text, item);
    }
}

static int put_with_version(struct tl_buf *out, const char *text, size_t n, const char *version,
                            struct tl_error *err)
{
    struct tl_ptx_index *index;
    int rc = tl_ptx_index_create(&index, text, n, "text for ptxas", err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < tl_ptx_index_count(index); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(index, i);
        if (tl_str_is(item->name, ".version"))
            tl_buf_printf(out, ".version %s\n", version);
        else if (!repeats(index, i))
            put_item(out, text, item);
    }
    tl_ptx_index_destroy(index);
    return 0;
}

int ptxas_write(const char *path, const char *text, size_t n, const struct ptxas_choice *choice,
                struct tl_error *err)
{
    struct tl_buf changed = {0};
    int rc = 0;
    while (n > 0 && text[n - 1] == 0) /* fatbins end texts in NULs, which ptxas would read */
        n--;
    if (choice->as_version != NULL) {
        rc = put_with_version(&changed, text, n, choice->as_version, err);
        corpus_must(changed.failed ? NULL : &changed);
        text = changed.p;
        n = changed.n;
    }
    if (rc == 0)
        rc = corpus_write(path, text, n, err);
    tl_buf_finish(&changed);
    return rc;
}
