#include "test/unit/ptx_rewrite/help.h"
#include "tally/file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

int ptx_index_bytes(struct ptx_text *t, const char *text, size_t n)
{
    memset(t, 0, sizeof *t);
    t->text = malloc(n > 0 ? n : 1);
    TEST_ASSERT_NOT_NULL(t->text);
    memcpy(t->text, text, n);
    t->n = n;
    tl_arena_init(&t->arena, 0);
    return tl_ptx_index_create(&t->ix, t->text, n, "test.ptx", &t->err);
}

int ptx_index_text(struct ptx_text *t, const char *text)
{
    return ptx_index_bytes(t, text, strlen(text));
}

void ptx_open(struct ptx_text *t, const char *text)
{
    int rc = ptx_index_text(t, text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, t->err.text);
}

void ptx_open_body(struct ptx_text *t, const char *body)
{
    struct tl_buf all = {0};
    tl_buf_puts(&all, ".version 9.0\n.target sm_90\n.address_size 64\n"
                      ".visible .entry k(.param .u64 p)\n{\n"
                      ".reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<20>; .reg .b64 %rd<20>;\n"
                      ".reg .f32 %f<20>; .reg .f64 %fd<20>;\n");
    tl_buf_puts(&all, body);
    tl_buf_puts(&all, "\n}\n");
    TEST_ASSERT_FALSE(all.failed);
    int rc = ptx_index_text(t, all.p);
    tl_buf_finish(&all);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, t->err.text);
}

void ptx_close(struct ptx_text *t)
{
    if (t->has_unit)
        tl_ptx_unit_finish(&t->unit);
    tl_arena_finish(&t->arena);
    tl_ptx_index_destroy(t->ix);
    free(t->text);
    memset(t, 0, sizeof *t);
}

static const struct tl_ptx_item *find_item(struct ptx_text *t, const char *name)
{
    if (!t->has_unit) {
        TEST_ASSERT_EQUAL_INT(0, tl_ptx_unit_init(&t->unit, t->ix, &t->arena, &t->err));
        t->has_unit = true;
    }
    const struct tl_ptx_item *item = tl_ptx_index_find(t->ix, tl_str_of(name));
    TEST_ASSERT_NOT_NULL_MESSAGE(item, name);
    return item;
}

int ptx_try_func(struct ptx_text *t, const char *name, struct tl_ptx_func **out)
{
    return tl_ptx_parse_func(&t->unit, find_item(t, name), out);
}

struct tl_ptx_func *ptx_func(struct ptx_text *t, const char *name)
{
    struct tl_ptx_func *f = NULL;
    int rc = ptx_try_func(t, name, &f);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, t->err.text);
    return f;
}

struct tl_ptx_decl *ptx_var(struct ptx_text *t, const char *name)
{
    struct tl_ptx_decl *d = NULL;
    int rc = tl_ptx_parse_var(&t->unit, find_item(t, name), &d);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, t->err.text);
    while (d != NULL && !tl_str_is(d->name, name))
        d = d->next;
    TEST_ASSERT_NOT_NULL_MESSAGE(d, name);
    return d;
}

static struct tl_ptx_stmt *find_inst(struct tl_ptx_stmt *s, uint32_t *n)
{
    for (; s != NULL; s = s->next) {
        if (s->kind == TL_STMT_INST && (*n)-- == 0)
            return s;
        struct tl_ptx_stmt *inner = s->kind == TL_STMT_BLOCK ? find_inst(s->block, n) : NULL;
        if (inner != NULL)
            return inner;
    }
    return NULL;
}

struct tl_ptx_stmt *ptx_inst(const struct tl_ptx_func *f, uint32_t n)
{
    return find_inst(f->body, &n);
}

struct tl_ptx_stmt *ptx_stmt(struct tl_ptx_stmt *first, uint32_t n)
{
    while (first != NULL && n-- > 0)
        first = first->next;
    return first;
}

char *ptx_format(const struct tl_ptx_index *ix)
{
    struct tl_error err = {0};
    char *text = NULL;
    size_t n = 0;
    int rc = tl_ptx_format(ix, &text, &n, &err);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, err.text);
    TEST_ASSERT_EQUAL_size_t(n, strlen(text));
    return text;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

char *ptx_essence(const char *text, size_t n)
{
    char *out = malloc(n + 2);
    TEST_ASSERT_NOT_NULL(out);
    size_t m = 0;
    bool gap = false;
    while (n > 0 && text[n - 1] == 0)
        n--;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '/' && i + 1 < n && text[i + 1] == '/') {
            while (i < n && text[i] != '\n')
                i++;
            gap = true;
        } else if (c == '/' && i + 1 < n && text[i + 1] == '*') {
            for (i += 2; i + 1 < n && !(text[i] == '*' && text[i + 1] == '/');)
                i++;
            i++;
            gap = true;
        } else if (isspace((unsigned char)c)) {
            gap = true;
        } else if (c == ';' && m > 0 &&
                   (out[m - 1] == ';' || out[m - 1] == '{' || out[m - 1] == '}')) {
            gap = false; /* an empty statement */
        } else {
            if (gap && m > 0 && is_word(c) && is_word(out[m - 1]))
                out[m++] = ' ';
            gap = false;
            out[m++] = c;
            if (c != '"')
                continue;
            for (i++; i < n; i++) {
                out[m++] = text[i];
                if (text[i] == '\\' && i + 1 < n)
                    out[m++] = text[++i];
                else if (text[i] == '"')
                    break;
            }
        }
    }
    out[m] = 0;
    return out;
}

char *ptx_read_file(const char *path, size_t *n)
{
    char *text;
    (void)tl_file_read(path, SIZE_MAX, &text, n);
    return text;
}
