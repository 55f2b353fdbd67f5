/* Which PTX machine code was made of; see the header. */
#include "tally/origin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 2 };

/* What stands before the list of kernels, and before each of them; names and PTX follow as text. */
struct kept {
    uint32_t version, n_kernels;
    uint64_t n_ptx;
};
struct kept_kernel {
    uint64_t code_bytes;
    uint32_t registers, n_params, n_name, nothing;
    uint8_t code[TL_DIGEST_BYTES], inside[TL_DIGEST_BYTES];
};

/* --- reading a cubin -------------------------------------------------------------------------- */

static struct tl_origin *make(uint32_t n)
{
    struct tl_origin *o = calloc(1, sizeof *o);
    if (o == NULL)
        return NULL;
    tl_arena_init(&o->arena, 0);
    o->kernels = tl_arena_zalloc(&o->arena, (n + (size_t)1) * sizeof *o->kernels);
    if (o->kernels != NULL)
        return o;
    tl_origin_free(o);
    return NULL;
}

void tl_origin_free(struct tl_origin *o)
{
    if (o == NULL)
        return;
    tl_arena_finish(&o->arena);
    free(o->ptx);
    free(o);
}

/* A sum over functions, since copies of them need not come in the same order. */
void tl_origin_inside(const struct tl_tables *t, uint32_t symbol, uint64_t base,
                      uint8_t out[TL_DIGEST_BYTES])
{
    memset(out, 0, TL_DIGEST_BYTES);
    for (uint32_t i = 0; i < t->n_symbols; i++) {
        const Elf64_Sym *s = &t->symbols[i];
        uint8_t one[TL_DIGEST_BYTES];
        if (s->st_shndx != t->symbols[symbol].st_shndx || ELF64_ST_TYPE(s->st_info) != STT_FUNC ||
            tl_tables_is_kernel(t, i))
            continue;
        uint64_t place[] = {s->st_value - base, s->st_size};
        tl_digest_of(place, sizeof place, one);
        for (int k = 0; k < TL_DIGEST_BYTES; k++)
            out[k] = (uint8_t)(out[k] + one[k]);
    }
}

static int add_kernel(struct tl_origin *o, const struct tl_tables *t, uint32_t symbol,
                      struct tl_tables_facts *facts, struct tl_error *err)
{
    struct tl_origin_kernel *k = &o->kernels[o->n++];
    const char *name = tl_tables_symbol_name(t, symbol);
    const uint8_t *code = tl_tables_code(t, symbol, &k->code_bytes);
    if (code == NULL)
        return tl_error_set(err, -EINVAL, "the code of %.100s is not inside its cubin", name);
    tl_tables_read(t, symbol, facts);
    k->registers = facts->registers;
    k->n_params = facts->n_params;
    tl_digest_of(code, k->code_bytes, k->code);
    tl_origin_inside(t, symbol, 0, k->inside);
    k->name = tl_arena_copy(&o->arena, tl_str_of(name));
    return k->name != NULL ? 0 : tl_error_set(err, -ENOMEM, "no memory for a kernel's name");
}

int tl_origin_read(struct tl_origin **out, const struct tl_tables *t, struct tl_error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_symbols; i++)
        n += tl_tables_is_kernel(t, i);
    if (!tl_tables_is_sane(t, n)) {
        *out = NULL;
        return tl_error_set(err, -EINVAL, "a cubin with %u kernels is not looked into", n);
    }
    struct tl_origin *o = make(n);
    struct tl_tables_facts *facts = malloc(sizeof *facts);
    int rc = o != NULL && facts != NULL ? 0 : tl_error_set(err, -ENOMEM, "no memory for kernels");
    for (uint32_t i = 0; rc == 0 && i < t->n_symbols; i++)
        if (tl_tables_is_kernel(t, i))
            rc = add_kernel(o, t, i, facts, err);
    free(facts);
    if (rc < 0) {
        tl_origin_free(o);
        o = NULL;
    }
    *out = o;
    return rc;
}

const struct tl_origin_kernel *tl_origin_kernel(const struct tl_origin *o, struct tl_str name)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (tl_str_is(name, o->kernels[i].name))
            return &o->kernels[i];
    return NULL;
}

/* --- on disk ---------------------------------------------------------------------------------- */

static struct tl_store_key key_of(const char *what, const void *a, size_t n_a, const void *b,
                                  size_t n_b)
{
    struct tl_store_key key;
    struct tl_digest d;
    tl_digest_init(&d);
    tl_digest_part(&d, what, strlen(what));
    tl_digest_part(&d, a, n_a);
    tl_digest_part(&d, b, n_b);
    tl_digest_end(&d, key.bytes);
    return key;
}

static struct tl_store_key kernel_key(struct tl_str name, const uint8_t code[TL_DIGEST_BYTES])
{
    return key_of("tally kernel's origin", name.p, name.n, code, TL_DIGEST_BYTES);
}

int tl_origin_keep(struct tl_store *store, const void *cubin, size_t n, const char *ptx,
                   size_t n_ptx, struct tl_error *err)
{
    char path[TL_STORE_PATH];
    struct tl_tables t;
    struct tl_origin *o = NULL;
    struct tl_buf b = {0};
    int rc = tl_tables_open(&t, cubin, n, err);
    if (rc == 0)
        rc = tl_origin_read(&o, &t, err);
    if (rc < 0 || o == NULL)
        return rc;
    while (n_ptx > 0 && ptx[n_ptx - 1] == '\0')
        n_ptx--;
    struct kept head = {VERSION, o->n, n_ptx};
    tl_buf_add(&b, (const char *)&head, sizeof head);
    for (uint32_t i = 0; i < o->n; i++) {
        const struct tl_origin_kernel *k = &o->kernels[i];
        struct kept_kernel row = {.code_bytes = k->code_bytes,
                                  .registers = k->registers,
                                  .n_params = k->n_params,
                                  .n_name = (uint32_t)strlen(k->name)};
        memcpy(row.code, k->code, sizeof row.code);
        memcpy(row.inside, k->inside, sizeof row.inside);
        tl_buf_add(&b, (const char *)&row, sizeof row);
        tl_buf_puts(&b, k->name);
    }
    tl_buf_add(&b, ptx, n_ptx);
    struct tl_store_key key = key_of("tally origin", b.p, b.failed ? 0 : b.n, NULL, 0);
    rc = b.failed ? tl_error_set(err, -ENOMEM, "no memory for the origin of a cubin")
                  : tl_store_put(store, &key, b.p, b.n, path, sizeof path, err);
    for (uint32_t i = 0; rc == 0 && i < o->n; i++) {
        struct tl_store_key by = kernel_key(tl_str_of(o->kernels[i].name), o->kernels[i].code);
        rc = tl_store_put(store, &by, key.bytes, sizeof key.bytes, path, sizeof path, err);
    }
    tl_buf_finish(&b);
    tl_origin_free(o);
    return rc;
}

/* Takes the next `n` bytes, or NULL if there are not so many. */
static const char *next_bytes(const char **p, size_t *left, uint64_t n)
{
    const char *at = *p;
    if (n > *left)
        return NULL;
    *p += n;
    *left -= (size_t)n;
    return at;
}

/* The store has checked that the bytes are those that were written; whoever wrote them is of this
 * user. */
static struct tl_origin *parse(const char *p, size_t left)
{
    struct kept head;
    const char *at = next_bytes(&p, &left, sizeof head);
    if (at == NULL)
        return NULL;
    memcpy(&head, at, sizeof head);
    if (head.version != VERSION || head.n_kernels > left / sizeof(struct kept_kernel))
        return NULL;
    struct tl_origin *o = make(head.n_kernels);
    for (; o != NULL && o->n < head.n_kernels; o->n++) {
        struct tl_origin_kernel *k = &o->kernels[o->n];
        struct kept_kernel row = {0};
        at = next_bytes(&p, &left, sizeof row);
        if (at != NULL)
            memcpy(&row, at, sizeof row);
        const char *name = at != NULL ? next_bytes(&p, &left, row.n_name) : NULL;
        *k = (struct tl_origin_kernel){
            .code_bytes = row.code_bytes, .registers = row.registers, .n_params = row.n_params};
        memcpy(k->code, row.code, sizeof k->code);
        memcpy(k->inside, row.inside, sizeof k->inside);
        if (name != NULL)
            k->name = tl_arena_copy(&o->arena, (struct tl_str){name, row.n_name});
        if (k->name == NULL)
            break;
    }
    if (o != NULL && o->n == head.n_kernels && left >= head.n_ptx) {
        o->ptx = strndup(p, head.n_ptx);
        o->n_ptx = head.n_ptx;
    }
    if (o != NULL && o->ptx != NULL)
        return o;
    tl_origin_free(o);
    return NULL;
}

int tl_origin_find(struct tl_origin **out, struct tl_store *store, struct tl_str name,
                   const void *code, uint64_t n_code)
{
    enum { MOST_BYTES = 1 << 30, MOST_LINK = 4096 };
    uint8_t digest[TL_DIGEST_BYTES];
    char *bytes;
    size_t n;
    tl_digest_of(code, n_code, digest);
    struct tl_store_key key = kernel_key(name, digest);
    if (!tl_store_has(store, &key))
        return -ENOENT;
    int rc = tl_store_read(store, &key, MOST_LINK, &bytes, &n);
    if (rc < 0)
        return rc;
    bool is_link = n >= sizeof key.bytes;
    if (is_link)
        memcpy(key.bytes, bytes, sizeof key.bytes);
    free(bytes);
    rc = is_link ? tl_store_read(store, &key, MOST_BYTES, &bytes, &n) : -ENOENT;
    if (rc < 0)
        return rc;
    *out = parse(bytes, n);
    free(bytes);
    return *out != NULL ? 0 : -ENOENT;
}
