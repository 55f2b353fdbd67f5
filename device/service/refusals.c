/* A ring of refused kernels; see the header. */
#include "device/service/refusals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct tl_jit_refusal *tl_jit_refusals_find(const struct tl_jit_refusals *r,
                                                  const struct tl_store_key *key)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (memcmp(&r->entries[i].key, key, sizeof *key) == 0)
            return &r->entries[i];
    }
    return NULL;
}

void tl_jit_refusals_add(struct tl_jit_refusals *r, const struct tl_store_key *key, int code,
                         const char *text)
{
    char *copy = code != -ENOMEM && tl_jit_refusals_find(r, key) == NULL ? strdup(text) : NULL;
    if (copy == NULL)
        return;
    struct tl_jit_refusal *entry = &r->entries[r->next];
    free(entry->text);
    *entry = (struct tl_jit_refusal){.key = *key, .code = code, .text = copy};
    r->next = (r->next + 1) % TL_JIT_REFUSALS;
    r->n = r->n < TL_JIT_REFUSALS ? r->n + 1 : r->n;
}

void tl_jit_refusals_finish(struct tl_jit_refusals *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        free(r->entries[i].text);
    memset(r, 0, sizeof *r);
}
