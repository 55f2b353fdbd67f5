/* Any bytes as a cubin.  libelf has no sanitizer inside, so the input stands before a page that
 * cannot be read, and cannot be written itself: reading over the end or writing into the input is a
 * crash there too. */
#include "tally/hash.h"
#include "tally/image.h"
#include "tally/origin.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ROOM = 1 << 16, PAGE = 4096 };

static int see(void *data, const struct tl_cubin_kernel *kernel)
{
    uint32_t *sum = data;
    *sum ^= tl_hash(kernel->name.p, kernel->name.n);
    *sum += kernel->param_bytes + kernel->n_params + kernel->registers + kernel->shared_bytes;
    return 0;
}

/* ROOM bytes, followed by a page that cannot be read. */
static uint8_t *room(void)
{
    static uint8_t *p;
    if (p == NULL) {
        p = mmap(NULL, ROOM + PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || mprotect(p + ROOM, PAGE, PROT_NONE) != 0)
            abort();
    }
    return p;
}

/* The same without libelf, as drivers do it; that wants its bytes aligned. */
static void look_through(const uint8_t *bytes, size_t n)
{
    struct tl_tables t;
    struct tl_origin *o = NULL;
    static struct tl_tables_facts facts;
    uint8_t *copy = malloc(n + 1);
    if (copy == NULL)
        return;
    memcpy(copy, bytes, n);
    if (tl_tables_open(&t, copy, n, NULL) == 0) {
        for (uint32_t i = 0; i < t.n_symbols && i < 64; i++) {
            if (!tl_tables_is_kernel(&t, i))
                continue;
            tl_tables_read(&t, i, &facts);
            (void)tl_tables_is_loaded(&t, t.symbols[i].st_shndx);
        }
        (void)tl_tables_has_second_form(&t);
        (void)tl_tables_find(&t, TL_STR("scale"));
        if (tl_origin_read(&o, &t, NULL) == 0)
            (void)tl_origin_kernel(o, TL_STR("fill"));
        tl_origin_free(o);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    uint8_t *p = room();
    uint32_t sum = 0;
    struct tl_error err;
    if (n > ROOM)
        return 0;
    uint8_t *copy = p + ROOM - n;
    mprotect(p, ROOM, PROT_READ | PROT_WRITE);
    memcpy(copy, bytes, n);
    mprotect(p, ROOM, PROT_READ);
    (void)tl_cubin_walk(copy, n, see, &sum, &err);
    (void)tl_cubin_is_relocatable(copy, n);
    look_through(bytes, n);
    return 0;
}
