/* What this process has shown of machine code and its PTX.  A container that holds both says that
 * the one was made of the other; later the same code is recognised wherever it stands. */
#include "device/driver/known.h"
#include "device/driver/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096 };

/* Only ever grows, at its head. */
static struct tl_drv_known *_Atomic all;
static struct tl_mutex learning = TL_MUTEX_INITIALIZER;

const struct tl_drv_known *tl_drv_known_first(void)
{
    return atomic_load_explicit(&all, memory_order_acquire);
}

const struct tl_drv_known_kernel *tl_drv_known_kernel(const struct tl_drv_known *k,
                                                      struct tl_str name)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (tl_str_is(name, k->kernels[i].name))
            return &k->kernels[i];
    return NULL;
}

static void discard(struct tl_drv_known *k)
{
    for (uint32_t i = 0; k != NULL && i < k->n; i++)
        free(k->kernels[i].name);
    if (k != NULL)
        free(k->kernels);
    free(k);
}

static int read_kernel(const struct tl_drv_elf *e, uint32_t symbol, struct tl_drv_elf_facts *facts,
                       struct tl_drv_known_kernel *out)
{
    const uint8_t *code = tl_drv_elf_code(e, symbol, &out->code_bytes);
    if (code == NULL)
        return -EINVAL;
    tl_drv_elf_read(e, symbol, facts);
    out->registers = facts->registers;
    tl_digest_of(code, out->code_bytes, out->code);
    out->name = strdup(tl_drv_elf_symbol_name(e, symbol));
    return out->name != NULL ? 0 : -ENOMEM;
}

static struct tl_drv_known *read_cubin(const struct tl_drv_elf *e, uint32_t arch)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_symbols; i++)
        n += tl_drv_elf_is_kernel(e, i);
    struct tl_drv_elf_facts *facts = malloc(sizeof *facts);
    struct tl_drv_known *k = calloc(1, sizeof *k);
    struct tl_drv_known_kernel *kernels = calloc(n + 1u, sizeof *kernels);
    int rc = k != NULL && kernels != NULL && facts != NULL ? 0 : -ENOMEM;
    if (k == NULL)
        free(kernels);
    else
        *k = (struct tl_drv_known){.arch = arch, .kernels = kernels};
    for (uint32_t i = 0; rc == 0 && i < e->n_symbols; i++)
        if (tl_drv_elf_is_kernel(e, i))
            rc = read_kernel(e, i, facts, &k->kernels[k->n++]);
    free(facts);
    if (rc == 0)
        return k;
    discard(k);
    return NULL;
}

static bool is_same(const struct tl_drv_known *a, const struct tl_drv_known *b)
{
    if (a->arch != b->arch || a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (memcmp(a->kernels[i].code, b->kernels[i].code, TL_DIGEST_BYTES) != 0 ||
            strcmp(a->kernels[i].name, b->kernels[i].name) != 0)
            return false;
    return true;
}

void tl_drv_known_learn(const void *cubin, size_t n, uint32_t arch, struct tl_drv_image *image)
{
    static uint32_t count TL_GUARDED_BY(learning);
    struct tl_drv_elf e;
    if (tl_drv_elf_open(&e, cubin, n, NULL) < 0)
        return;
    struct tl_drv_known *k = read_cubin(&e, arch);
    if (k == NULL)
        return;
    tl_mutex_lock(&learning);
    bool is_new = count < MOST;
    for (const struct tl_drv_known *o = tl_drv_known_first(); o != NULL && is_new; o = o->next)
        is_new = !is_same(o, k);
    if (is_new) {
        tl_drv_lock();
        image->refs++;
        tl_drv_unlock();
        k->image = image;
        k->next = atomic_load_explicit(&all, memory_order_relaxed);
        atomic_store_explicit(&all, k, memory_order_release);
        count++;
    }
    tl_mutex_unlock(&learning);
    if (!is_new)
        discard(k);
}
