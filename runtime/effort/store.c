/* Rewritten kernels on disk, in the cache that compiled kernels of the software device have as well
 * (include/tally/store.h): named by content, whole or not there at all, bounded, and nothing that a
 * job's success depends on.
 *
 * An entry is a line of numbers and strings, each string with its length in front. */
#include "runtime/effort/store.h"
#include "tally/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 1, LIMIT_MB = 256, MAX_COUNT = 1 << 16 };

/* --- copies ----------------------------------------------------------------------------------- */

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
    free((void *)r->table);
    *r = (struct tl_eff_rewritten){0};
}

/* --- as bytes --------------------------------------------------------------------------------- */

static void put_number(struct tl_buf *b, uint32_t v)
{
    tl_buf_add(b, (const char *)&v, sizeof v);
}

static void put_string(struct tl_buf *b, const char *s)
{
    uint32_t n = s != NULL ? (uint32_t)strlen(s) : 0;
    put_number(b, n);
    tl_buf_add(b, s != NULL ? s : "", n);
}

/* What is left to read; `is_bad` stays set. */
struct reader {
    const char *p;
    size_t left;
    bool is_bad;
};

static uint32_t get_number(struct reader *r)
{
    uint32_t v = 0;
    if (r->left < sizeof v) {
        r->is_bad = true;
        return 0;
    }
    memcpy(&v, r->p, sizeof v);
    r->p += sizeof v;
    r->left -= sizeof v;
    return v;
}

/* The caller's to free; NULL if it is empty or broken. */
static char *get_string(struct reader *r)
{
    uint32_t n = get_number(r);
    if (n > r->left)
        r->is_bad = true;
    if (r->is_bad || n == 0)
        return NULL;
    char *s = strndup(r->p, n);
    r->is_bad |= s == NULL;
    r->p += n;
    r->left -= n;
    return s;
}

static uint32_t get_count(struct reader *r)
{
    uint32_t n = get_number(r);
    r->is_bad |= n > MAX_COUNT;
    return r->is_bad ? 0 : n;
}

static void write_rewritten(struct tl_buf *b, const char *key, const struct tl_eff_rewritten *r)
{
    put_number(b, FORMAT);
    put_string(b, key);
    put_string(b, r->text);
    put_string(b, r->entry);
    put_string(b, r->table_name);
    const uint32_t numbers[] = {r->original_params, r->original_bytes, r->param_bytes,
                                r->conditions, r->uses_slot};
    for (uint32_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_number(b, numbers[i]);
    put_number(b, r->n_args);
    for (uint32_t i = 0; i < r->n_args; i++) {
        const struct tl_ptx_arg *a = &r->args[i];
        const uint32_t fields[] = {(uint32_t)a->kind, a->index, a->offset, a->size, a->which};
        for (uint32_t k = 0; k < sizeof fields / sizeof *fields; k++)
            put_number(b, fields[k]);
        put_string(b, a->variable);
    }
    put_number(b, r->n_table);
    for (uint32_t i = 0; i < r->n_table; i++)
        put_string(b, r->table[i]);
}

/* A kept variant as it was written; anything else makes the reader bad. */
static void read_rewritten(struct reader *in, const char *key, struct tl_eff_rewritten *r)
{
    in->is_bad |= get_number(in) != FORMAT;
    char *stored = get_string(in);
    in->is_bad |= stored == NULL || strcmp(stored, key) != 0;
    free(stored);
    r->text = get_string(in);
    r->entry = get_string(in);
    r->table_name = get_string(in);
    r->original_params = get_number(in);
    r->original_bytes = get_number(in);
    r->param_bytes = get_number(in);
    r->conditions = get_number(in);
    r->uses_slot = get_number(in) != 0;
    uint32_t n = get_count(in);
    r->args = calloc(n + 1, sizeof *r->args);
    in->is_bad |= r->args == NULL || r->text == NULL || r->entry == NULL;
    for (uint32_t i = 0; !in->is_bad && i < n; i++) {
        struct tl_ptx_arg *a = &r->args[i];
        a->kind = (enum tl_ptx_arg_kind)get_number(in);
        a->index = get_number(in);
        a->offset = get_number(in);
        a->size = get_number(in);
        a->which = get_number(in);
        a->variable = get_string(in);
        r->n_args = i + 1;
        in->is_bad |= (uint32_t)a->kind >= TL_PTX_ARG_KINDS || a->size > 8 ||
                      a->offset > r->param_bytes || a->size > r->param_bytes - a->offset ||
                      (a->kind == TL_PTX_ARG_VARIABLE) != (a->variable != NULL);
    }
    n = get_count(in);
    r->table = calloc(n + 1, sizeof(char *));
    in->is_bad |= r->table == NULL;
    for (uint32_t i = 0; !in->is_bad && i < n; i++) {
        r->table[i] = get_string(in);
        r->n_table = i + 1;
        in->is_bad |= r->table[i] == NULL;
    }
}

/* --- on disk ---------------------------------------------------------------------------------- */

int tl_eff_store_folder(char *path, size_t n)
{
    char root[TL_STORE_PATH];
    int rc = tl_store_folder(root, NULL);
    if (rc < 0)
        return rc;
    return (size_t)snprintf(path, n, "%s/effort", root) < n ? 0 : -ENAMETOOLONG;
}

int tl_eff_store_enter(struct tl_store *folder)
{
    char path[TL_STORE_PATH];
    int rc = tl_eff_store_folder(path, sizeof path);
    if (rc == 0 && access(path, F_OK) < 0) /* not made for somebody who only wants to look */
        rc = -errno;
    return rc < 0 ? rc : tl_store_open(folder, path, LIMIT_MB, NULL);
}

int tl_eff_store_file(const char *name, size_t limit, char **bytes, size_t *n)
{
    struct tl_store folder;
    struct stat st;
    *bytes = NULL;
    *n = 0;
    int rc = tl_eff_store_enter(&folder);
    if (rc < 0)
        return rc;
    int fd = openat(folder.dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    tl_store_close(&folder);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        rc = -EPERM;
    else
        rc = tl_file_read_fd(fd, limit, bytes, n);
    close(fd);
    return rc;
}

/* The cache, opened at the first question; the builder's own.  NULL if there is none. */
static struct tl_store *cache(void)
{
    static struct tl_store c;
    static bool was_tried, is_there;
    char path[TL_STORE_PATH];
    if (!was_tried) {
        was_tried = true;
        is_there = tl_eff_store_folder(path, sizeof path) == 0 &&
                   tl_store_open(&c, path, LIMIT_MB, NULL) == 0;
    }
    return is_there ? &c : NULL;
}

static struct tl_store_key key_of(const char *key)
{
    struct tl_store_key k;
    tl_digest_of(key, strlen(key), k.bytes);
    return k;
}

void tl_eff_store_key(char key[TL_EFF_KEY_BYTES], const struct tl_eff_origin *o)
{
    struct tl_digest d;
    uint8_t digest[TL_DIGEST_BYTES];
    const uint64_t numbers[] = {o->kind, o->dims, o->max_registers, (uint64_t)o->driver,
                                o->rewriter};
    tl_digest_init(&d);
    tl_digest_add(&d, o->text, TL_DIGEST_BYTES);
    tl_digest_add(&d, numbers, sizeof numbers);
    /* the one part whose length varies is the last */
    tl_digest_add(&d, o->kernel, strlen(o->kernel));
    tl_digest_end(&d, digest);
    tl_digest_hex(digest, key);
}

int tl_eff_store_get(const char *key, struct tl_eff_rewritten *out)
{
    struct tl_store *c = cache();
    struct tl_store_key k = key_of(key);
    char *bytes;
    size_t n;
    *out = (struct tl_eff_rewritten){0};
    if (c == NULL || tl_store_read(c, &k, SIZE_MAX, &bytes, &n) < 0)
        return -ENOENT;
    struct reader in = {bytes, n, n == 0};
    if (!in.is_bad)
        read_rewritten(&in, key, out);
    free(bytes);
    if (in.is_bad)
        tl_eff_rewritten_finish(out);
    return in.is_bad ? -ENOENT : 0;
}

void tl_eff_store_put(const char *key, const struct tl_eff_rewritten *r)
{
    struct tl_store *c = cache();
    struct tl_store_key k = key_of(key);
    struct tl_buf b = {0};
    char path[TL_STORE_PATH];
    if (c == NULL)
        return;
    write_rewritten(&b, key, r);
    if (!b.failed)
        (void)tl_store_put(c, &k, b.p, b.n, path, sizeof path, NULL);
    tl_buf_finish(&b);
}
