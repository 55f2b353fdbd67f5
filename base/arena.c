/* Memory that is freed all at once: chunks that grow up to a megabyte, so that a small rewrite
 * costs one malloc and a large module few. */
#include "tally/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tl_arena_chunk {
    struct tl_arena_chunk *previous;
    size_t used, size;
    _Alignas(8) char bytes[];
};

enum { FIRST_CHUNK = 16 << 10, LARGEST_CHUNK = 1 << 20 };

void tl_arena_init(struct tl_arena *a, size_t limit_bytes)
{
    *a = (struct tl_arena){.limit = limit_bytes};
}

void tl_arena_finish(struct tl_arena *a)
{
    while (a->chunk != NULL) {
        struct tl_arena_chunk *c = a->chunk;
        a->chunk = c->previous;
        free(c);
    }
    a->bytes = 0;
}

/* A chunk with room for `bytes`; NULL if out of memory or limit. */
static struct tl_arena_chunk *add_chunk(struct tl_arena *a, size_t bytes)
{
    size_t size = a->bytes / 4; /* so that at most a quarter lies idle */
    if (size < FIRST_CHUNK)
        size = FIRST_CHUNK;
    if (size > LARGEST_CHUNK)
        size = LARGEST_CHUNK;
    if (size < bytes)
        size = bytes;
    size_t total = size + sizeof(struct tl_arena_chunk);
    if (a->limit != 0 && (total > a->limit || a->bytes > a->limit - total))
        return NULL;
    struct tl_arena_chunk *c = malloc(total);
    if (c == NULL)
        return NULL;
    c->used = 0;
    c->size = size;
    c->previous = a->chunk;
    a->chunk = c;
    a->bytes += total;
    return c;
}

void *tl_arena_alloc(struct tl_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 4)
        return NULL;
    bytes = (bytes + 7) & ~(size_t)7;
    struct tl_arena_chunk *c = a->chunk;
    if (c == NULL || c->size - c->used < bytes) {
        c = add_chunk(a, bytes);
        if (c == NULL)
            return NULL;
    }
    void *p = c->bytes + c->used;
    c->used += bytes;
    return p;
}

void *tl_arena_zalloc(struct tl_arena *a, size_t bytes)
{
    void *p = tl_arena_alloc(a, bytes);
    if (p != NULL)
        memset(p, 0, bytes);
    return p;
}

char *tl_arena_copy(struct tl_arena *a, struct tl_str text)
{
    char *p = tl_arena_alloc(a, (size_t)text.n + 1);
    if (p == NULL)
        return NULL;
    if (text.n > 0)
        memcpy(p, text.p, text.n);
    p[text.n] = 0;
    return p;
}

char *tl_arena_printf(struct tl_arena *a, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *p = n < 0 ? NULL : tl_arena_alloc(a, (size_t)n + 1);
    if (p != NULL)
        vsnprintf(p, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return p;
}
