/* A cubin as callers see it: opened, asked, closed. */
#include "cubin/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int tl_cubin_open(struct tl_cubin **out, const void *bytes, size_t n, struct tl_error *err)
{
    *out = NULL;
    struct tl_cubin *c = calloc(1, sizeof *c);
    if (c == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for a cubin");
    tl_arena_init(&c->arena, 0);
    c->bytes = bytes;
    c->n = n;
    c->note = "";
    int rc = tl__cb_read(c, err);
    if (rc == 0)
        rc = tl__cb_judge(c, err);
    if (rc < 0) {
        tl_cubin_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void tl_cubin_close(struct tl_cubin *c)
{
    if (c == NULL)
        return;
    tl_arena_finish(&c->arena);
    free(c);
}

uint32_t tl_cubin_arch(const struct tl_cubin *c)
{
    return c->arch;
}

uint32_t tl_cubin_count(const struct tl_cubin *c)
{
    return c->n_kernels;
}

const struct tl_cubin_entry *tl_cubin_entry(const struct tl_cubin *c, uint32_t i)
{
    assert(i < c->n_kernels);
    return &c->kernels[i].entry;
}

const struct tl_cubin_entry *tl_cubin_find(const struct tl_cubin *c, struct tl_str name)
{
    for (uint32_t i = 0; i < c->n_kernels; i++)
        if (tl_str_eq(c->kernels[i].entry.name, name))
            return &c->kernels[i].entry;
    return NULL;
}

static const struct {
    const char *code, *text;
} reasons[] = {
#define TL_CUBIN_REASON_ROW(id, code, text) {code, text},
    TL_CUBIN_REASONS(TL_CUBIN_REASON_ROW)
#undef TL_CUBIN_REASON_ROW
};

const char *tl_cubin_reason_code(enum tl_cubin_reason r)
{
    return r < TL_CUBIN_REASON_COUNT ? reasons[r].code : "unknown";
}

const char *tl_cubin_reason_text(enum tl_cubin_reason r)
{
    return r < TL_CUBIN_REASON_COUNT ? reasons[r].text : "is refused for an unknown reason";
}
