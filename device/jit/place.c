/* Where variables and parameters of a kernel are: shared and local ones behind each other, those of
 * the module by number, since the process knows their addresses. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "ptx_rewrite/initialiser.h"

static uint64_t decl_bytes(const struct tl_ptx_decl *d)
{
    return (uint64_t)tl_ptx_type_bytes(d->type) * d->vec * d->count;
}

static uint64_t decl_align(const struct tl_ptx_decl *d)
{
    uint64_t natural = (uint64_t)tl_ptx_type_bytes(d->type) * d->vec;
    return d->align != 0 ? d->align : natural != 0 ? natural : 1;
}

struct tl_placed *tl_place(struct tl_emit *e, const void *what, char space,
                           const struct tl_ptx_decl *d, uint64_t offset)
{
    struct tl_placed *p = tl_arena_zalloc(e->arena, sizeof *p);
    if (p == NULL) {
        e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
        return NULL;
    }
    *p = (struct tl_placed){
        .next = e->placed, .what = what, .space = space, .offset = offset, .bytes = decl_bytes(d)};
    e->placed = p;
    return p;
}

static uint32_t grow(uint32_t *total, const struct tl_ptx_decl *d)
{
    uint64_t align = decl_align(d), at = (*total + align - 1) / align * align,
             end = at + decl_bytes(d);
    *total = (uint32_t)(end < 1u << 30 ? end : 1u << 30);
    return (uint32_t)at;
}

/* .extern .shared arrays: all begin where static shared memory ends. */
static bool is_dynamic(const struct tl_ptx_decl *d)
{
    return d->count == 0 || memmem(d->prefix.p, d->prefix.n, ".extern", 7) != NULL;
}

static void place_global(struct tl_emit *e, const void *what, const struct tl_ptx_decl *d,
                         struct tl_str name)
{
    struct tl_placed *p = tl_place(e, what, 'g', d, e->n_variables++);
    if (p != NULL)
        p->name = name;
}

/* Variables inside of a function that live as long as the module. */
static void place_inner(struct tl_emit *e, const struct tl_ptx_func *f)
{
    const struct tl_ptx_decl *d;
    for (uint32_t n = 0; (d = tl_ptx_inner_variable(f, n)) != NULL && e->rc == 0; n++) {
        char *name = tl_arena_alloc(e->arena, f->name.n + 16);
        if (name == NULL) {
            e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
            return;
        }
        snprintf(name, f->name.n + 16, TL_STR_FMT "::%u", TL_STR_ARG(f->name), n);
        place_global(e, d, d, tl_str_of(name));
    }
}

static void place_decls(struct tl_emit *e, const struct tl_ptx_stmt *s, bool dynamic)
{
    for (; s != NULL; s = s->next) {
        if (s->kind == TL_STMT_BLOCK)
            place_decls(e, s->block, dynamic);
        if (s->kind != TL_STMT_DECL)
            continue;
        for (const struct tl_ptx_decl *d = s->decl; d != NULL; d = d->next) {
            if (tl_str_starts(d->space, "shared") && is_dynamic(d) == dynamic)
                tl_place(e, d, 's', d, dynamic ? e->shared_bytes : grow(&e->shared_bytes, d));
            else if (tl_str_is(d->space, "local") && !dynamic)
                tl_place(e, d, 'l', d, grow(&e->local_bytes, d));
        }
    }
}

void tl_place_variables(struct tl_emit *e)
{
    for (int pass = 0; pass < 2; pass++) {
        for (const struct tl_ptx_program_var *v = e->p->vars; v != NULL; v = v->next) {
            if (tl_ptx_var_is(v, "shared") && is_dynamic(v->decl) == (pass == 1))
                tl_place(e, v->sym, 's', v->decl,
                         pass == 1 ? e->shared_bytes : grow(&e->shared_bytes, v->decl));
            else if (pass == 0 && (tl_ptx_var_is(v, "global") || tl_ptx_var_is(v, "const")))
                place_global(e, v->sym, v->decl, v->sym->name);
        }
        for (const struct tl_ptx_program_func *f = e->p->funcs; f != NULL; f = f->next) {
            place_decls(e, f->func->body, pass == 1);
            if (pass == 0)
                place_inner(e, f->func);
        }
        if (pass == 0)
            e->shared_bytes = (e->shared_bytes + 15) / 16 * 16;
    }
    e->local_bytes = (e->local_bytes + 15) / 16 * 16;
    tl_place_stack(e);
    uint32_t offset = 0;
    for (const struct tl_ptx_decl *d = e->p->entry->func->params; d != NULL; d = d->next)
        tl_place(e, d, 'p', d, grow(&offset, d));
}
