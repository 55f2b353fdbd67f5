/* What outlives the process. */
#include "runtime/effort_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tl_eff_rewritten_copy(struct tl_eff_rewritten *to, const struct tl_ptx_rewritten *from)
{
    *to = (struct tl_eff_rewritten){.n_args = from->n_args,
                                    .original_params = from->original_params,
                                    .original_bytes = from->original_bytes,
                                    .param_bytes = from->param_bytes,
                                    .conditions = from->conditions,
                                    .n_table = from->n_table,
                                    .uses_slot = from->uses_slot};
    to->text = strdup(from->text);
    to->entry = strdup(from->entry);
    to->args = calloc(from->n_args + 1, sizeof *to->args);
    to->table = calloc(from->n_table + 1, sizeof(char *));
    bool ok = to->text != NULL && to->entry != NULL && to->args != NULL && to->table != NULL;
    if (ok && from->table_name != NULL)
        ok = (to->table_name = strdup(from->table_name)) != NULL;
    for (uint32_t i = 0; ok && i < from->n_args; i++) {
        to->args[i] = from->args[i];
        to->args[i].name = NULL;
        if (from->args[i].variable != NULL)
            ok = (to->args[i].variable = strdup(from->args[i].variable)) != NULL;
    }
    for (uint32_t i = 0; ok && i < from->n_table; i++)
        ok = (to->table[i] = strdup(from->table[i])) != NULL;
    if (!ok) {
        tl_eff_rewritten_finish(to);
        return -ENOMEM;
    }
    return 0;
}

void tl_eff_rewritten_finish(struct tl_eff_rewritten *r)
{
    for (uint32_t i = 0; r->args != NULL && i < r->n_args; i++)
        free((char *)r->args[i].variable);
    for (uint32_t i = 0; r->table != NULL && i < r->n_table; i++)
        free(r->table[i]);
    free(r->text);
    free(r->entry);
    free(r->table_name);
    free(r->args);
    free(r->table);
    *r = (struct tl_eff_rewritten){0};
}

int tl_eff_store_get(const char *key, struct tl_eff_rewritten *out)
{
    (void)key, (void)out;
    return -ENOENT;
}

void tl_eff_store_put(const char *key, const struct tl_eff_rewritten *r)
{
    (void)key, (void)r;
}

void tl_eff_profile_load(void)
{
}

void tl_eff_profile_save(void)
{
}
