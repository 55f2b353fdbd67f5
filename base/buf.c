/* Growing text whose writers check for failure once, at the end. */
#include "tally/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tl_buf_finish(struct tl_buf *b)
{
    free(b->p);
    *b = (struct tl_buf){0};
}

/* Room for `more` bytes and a terminator. */
static bool reserve(struct tl_buf *b, size_t more)
{
    if (b->failed)
        return false;
    if (b->p != NULL && b->cap - b->n > more)
        return true;
    size_t cap = b->cap < 256 ? 256 : b->cap;
    while (cap - b->n <= more && cap <= SIZE_MAX / 4)
        cap *= 2;
    char *p = cap - b->n > more ? realloc(b->p, cap) : NULL;
    if (p == NULL) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void tl_buf_add(struct tl_buf *b, const char *bytes, size_t n)
{
    if (!reserve(b, n))
        return;
    if (n > 0)
        memcpy(b->p + b->n, bytes, n);
    b->n += n;
    b->p[b->n] = 0;
}

void tl_buf_puts(struct tl_buf *b, const char *text)
{
    tl_buf_add(b, text, strlen(text));
}

void tl_buf_str(struct tl_buf *b, struct tl_str text)
{
    tl_buf_add(b, text.p, text.n);
}

void tl_buf_putc(struct tl_buf *b, char c)
{
    tl_buf_add(b, &c, 1);
}

void tl_buf_vprintf(struct tl_buf *b, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n < 0)
        b->failed = true;
    else if (reserve(b, (size_t)n)) {
        vsnprintf(b->p + b->n, (size_t)n + 1, format, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void tl_buf_printf(struct tl_buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tl_buf_vprintf(b, format, args);
    va_end(args);
}

char *tl_buf_take(struct tl_buf *b)
{
    if (b->p == NULL && !b->failed)
        tl_buf_add(b, "", 0);
    char *p = b->failed ? NULL : b->p;
    if (b->failed)
        free(b->p);
    *b = (struct tl_buf){0};
    return p;
}
