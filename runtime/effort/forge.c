/* Where gates are made; see the header. */
#include "runtime/effort/forge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/real.h"
#include "tally/store.h"

enum { PTXAS, LINKER, COMPILERS };

/* Made when a gate is first wanted, and kept: nothing of it is ever freed. */
static struct tl_mutex forge_lock = TL_MUTEX_INITIALIZER;
static struct {
    bool is_open, has_store;
    struct tl_store store;
    struct tl_cubin_gates *gates[COMPILERS]; /* NULL: there is no such compiler */
    struct tl_error why;                     /* there is none at all */
} forge TL_GUARDED_BY(forge_lock);

/* --- the driver's linker ---------------------------------------------------------------------- */

static int complain(const char *what, CUresult r, struct tl_error *err)
{
    return tl_error_set(err, -EINVAL,
                        "the driver's linker does not compile the gate (%s: error %d)", what, r);
}

static int link_gate(CUlinkState linker, const char *ptx, void **cubin, size_t *n,
                     struct tl_error *err)
{
    void *image;
    CUresult r = tl_eff_real.cuLinkAddData_v2(linker, CU_JIT_INPUT_PTX, (void *)ptx,
                                              strlen(ptx) + 1, "gate", 0, NULL, NULL);
    if (r != CUDA_SUCCESS)
        return complain("cuLinkAddData", r, err);
    r = tl_eff_real.cuLinkComplete(linker, &image, n);
    if (r != CUDA_SUCCESS)
        return complain("cuLinkComplete", r, err);
    *cubin = malloc(*n);
    if (*cubin == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for a gate");
    memcpy(*cubin, image, *n);
    return 0;
}

static int compile(void *data, const char *ptx, uint32_t arch, void **cubin, size_t *n,
                   struct tl_error *err)
{
    (void)data;
    CUlinkState linker;
    CUjit_option option = CU_JIT_TARGET;
    void *value =
        (void *)(uintptr_t)arch; /* NOLINT(performance-no-int-to-ptr): so the driver wants it */
    CUresult r = tl_eff_real.cuLinkCreate_v2(1, &option, &value, &linker);
    *cubin = NULL;
    if (r != CUDA_SUCCESS)
        return complain("cuLinkCreate", r, err);
    int rc = link_gate(linker, ptx, cubin, n, err);
    tl_eff_real.cuLinkDestroy(linker);
    return rc;
}

TL_REQUIRES(forge_lock) static void add_linker(void)
{
    static char identity[64];
    static struct tl_cubin_compiler compiler = {compile, NULL, identity};
    int version = 0;
    if (tl_eff_real.cuLinkCreate_v2 == NULL || tl_eff_real.cuLinkAddData_v2 == NULL ||
        tl_eff_real.cuLinkComplete == NULL || tl_eff_real.cuLinkDestroy == NULL ||
        tl_eff_real.cuDriverGetVersion(&version) != CUDA_SUCCESS)
        return;
    snprintf(identity, sizeof identity, "driver %d", version);
    if (tl_cubin_gates_create(&forge.gates[LINKER], &compiler,
                              forge.has_store ? &forge.store : NULL, &forge.why) < 0)
        forge.gates[LINKER] = NULL;
}

/* --- ptxas ------------------------------------------------------------------------------------ */

TL_REQUIRES(forge_lock) static void add_ptxas(void)
{
    struct tl_cubin_compiler *compiler = NULL;
    if (tl_cubin_ptxas_create(&compiler, NULL, &forge.why) == 0 &&
        tl_cubin_gates_create(&forge.gates[PTXAS], compiler, forge.has_store ? &forge.store : NULL,
                              &forge.why) < 0)
        tl_cubin_ptxas_destroy(compiler);
}

/* --- both ------------------------------------------------------------------------------------- */

TL_REQUIRES(forge_lock) static void open_forge(void)
{
    char path[TL_STORE_PATH];
    if (forge.is_open)
        return;
    forge.is_open = true;
    forge.has_store = tl_store_folder(path, NULL) == 0 &&
                      tl_store_open(&forge.store, path, tl_store_limit_mb(), NULL) == 0;
    add_ptxas();
    add_linker();
}

int tl_eff_forge(const struct tl_cubin *c, const struct tl_cubin_options *options,
                 struct tl_cubin_gated *out, struct tl_error *err)
{
    int rc = -ENOENT;
    bool is_tried = false;
    tl_mutex_lock(&forge_lock);
    open_forge();
    for (int i = 0; i < COMPILERS && rc != 0; i++) {
        if (forge.gates[i] == NULL)
            continue;
        struct tl_error why = {0};
        int result = tl_cubin_gate(c, options, forge.gates[i], out, &why);
        if (result < 0 && is_tried)
            continue; /* what the better one said stands */
        rc = result < 0 ? tl_error_set(err, result, "%s", why.text) : 0;
        is_tried = true;
        if (result == -ENOENT || result == -EPERM || result == -ENOMEM)
            break; /* no other compiler helps */
    }
    if (!is_tried)
        tl_error_set(err, rc, "there is no compiler for gates: %s", forge.why.text);
    tl_mutex_unlock(&forge_lock);
    return rc;
}

/* The lock may be held by a thread that the child has not. */
TL_UNCHECKED void tl_eff_forge_forked(void)
{
    tl_mutex_init(&forge_lock);
}
