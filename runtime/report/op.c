/* Operations of frameworks that launched a kernel: lists of different processes added up, and a
 * line of them for people. */
#include "runtime/report/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    const struct tl_report_op *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int by_launches(const void *a, const void *b)
{
    const struct tl_report_op *x = a, *y = b;
    if (x->launches != y->launches)
        return x->launches < y->launches ? 1 : -1;
    return strcmp(x->name, y->name);
}

int tl_report_ops_add(struct tl_report_kernel *to, const struct tl_report_kernel *k,
                      struct tl_arena *arena)
{
    uint32_t n = to->n_ops + k->n_ops, kept = 0;
    if (k->n_ops == 0)
        return 0;
    struct tl_report_op *list = tl_arena_zalloc(arena, n * sizeof *list);
    if (list == NULL)
        return -ENOMEM;
    if (to->n_ops > 0)
        memcpy(list, to->ops, to->n_ops * sizeof *list);
    memcpy(list + to->n_ops, k->ops, k->n_ops * sizeof *list);
    qsort(list, n, sizeof *list, by_name);
    for (uint32_t i = 0; i < n; i++) {
        if (kept > 0 && strcmp(list[kept - 1].name, list[i].name) == 0)
            list[kept - 1].launches += list[i].launches;
        else
            list[kept++] = list[i];
    }
    qsort(list, kept, sizeof *list, by_launches);
    to->ops = list;
    to->n_ops = kept;
    return 0;
}

void tl_report_ops_text(const struct tl_report_kernel *k, uint32_t most, struct tl_buf *out)
{
    for (uint32_t i = 0; i < k->n_ops && i < most; i++)
        tl_buf_printf(out, "%s%s %s", i > 0 ? ", " : "", k->ops[i].name,
                      tl_text_count((double)k->ops[i].launches).s);
    if (k->n_ops > most)
        tl_buf_printf(out, " and %u more", k->n_ops - most);
}
