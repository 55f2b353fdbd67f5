/* What a kernel reaches: see program.h. */
#include "ptx_rewrite/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/index.h"
#include "ptx_rewrite/lex.h"
#include "tally/hash.h"

int tl_ptx_each_inst(struct tl_ptx_stmt *body, tl_ptx_inst_visitor visit, void *data)
{
    int rc = 0;
    for (struct tl_ptx_stmt *s = body; s != NULL && rc == 0; s = s->next) {
        if (s->kind == TL_STMT_INST)
            rc = visit(data, s);
        else if (s->kind == TL_STMT_BLOCK)
            rc = tl_ptx_each_inst(s->block, visit, data);
    }
    return rc;
}

int tl_ptx_each_sym(struct tl_ptx_operand *operands, uint32_t n, tl_ptx_sym_visitor visit,
                    void *data)
{
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct tl_ptx_operand *o = &operands[i];
        if (o->kind == TL_OPD_SYM)
            rc = visit(data, o);
        else if (o->kind == TL_OPD_VEC || o->kind == TL_OPD_LIST || o->kind == TL_OPD_PAIR ||
                 o->kind == TL_OPD_ADDR)
            rc = tl_ptx_each_sym(o->elems, o->n, visit, data);
    }
    return rc;
}

bool tl_ptx_var_is(const struct tl_ptx_program_var *v, const char *space)
{
    struct tl_str s = v->decl->space;
    size_t n = strlen(space);
    return tl_str_starts(s, space) && (s.n == n || s.p[n] == ':');
}

/* --- finding ---------------------------------------------------------------------------------- */

static struct tl_ptx_program_var **vars_like(const struct tl_ptx_program *p,
                                             const struct tl_ptx_sym *sym)
{
    return &p->vars_by_sym[tl_hash_number((uint64_t)(uintptr_t)sym) >> 32 & (p->n_buckets - 1)];
}

const struct tl_ptx_program_var *tl_ptx_program_find_var(const struct tl_ptx_program *p,
                                                         const struct tl_ptx_sym *sym)
{
    const struct tl_ptx_program_var *v = *vars_like(p, sym);
    while (v != NULL && v->sym != sym)
        v = v->next_alike;
    return v;
}

static struct tl_ptx_program_func **funcs_like(const struct tl_ptx_program *p, struct tl_str name)
{
    return &p->funcs_by_name[tl_hash(name.p, name.n) & (p->n_buckets - 1)];
}

static struct tl_ptx_program_func *find_func(const struct tl_ptx_program *p, struct tl_str name)
{
    struct tl_ptx_program_func *f = *funcs_like(p, name);
    while (f != NULL && !tl_str_eq(f->func->name, name))
        f = f->next_alike;
    return f;
}

static void append_func(struct tl_ptx_program *p, struct tl_ptx_program_func *f)
{
    struct tl_ptx_program_func **alike = funcs_like(p, f->func->name);
    f->next_alike = *alike;
    *alike = f;
    *(p->last_func != NULL ? &p->last_func->next : &p->funcs) = f;
    p->last_func = f;
    p->n_funcs++;
}

static void append_var(struct tl_ptx_program *p, struct tl_ptx_program_var *v)
{
    struct tl_ptx_program_var **alike = vars_like(p, v->sym);
    v->next_alike = *alike;
    *alike = v;
    *(p->last_var != NULL ? &p->last_var->next : &p->vars) = v;
    p->last_var = v;
}

/* Aliases of aliases are followed so far.  PTX wants the target of an alias to have a body. */
enum { MAX_ALIASES = 8 };

struct tl_ptx_program_func *tl_ptx_program_callee(const struct tl_ptx_program *p,
                                                  const struct tl_ptx_sym *sym)
{
    struct tl_ptx_program_func *f = find_func(p, sym->name);
    for (int i = 0; f != NULL && !f->func->has_body && f->alias_of.n > 0 && i < MAX_ALIASES; i++)
        f = find_func(p, f->alias_of);
    return f != NULL && f->func->has_body ? f : NULL;
}

static int compare_aliases(const void *a, const void *b)
{
    struct tl_str x = ((const struct tl_ptx_alias *)a)->name,
                  y = ((const struct tl_ptx_alias *)b)->name;
    int order = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);
    return order != 0 ? order : (x.n > y.n) - (x.n < y.n);
}

static bool is_alias(const struct tl_ptx_item *item)
{
    return item->kind == TL_PTX_ITEM_DIRECTIVE && tl_str_is(item->name, ".alias");
}

/* Notes every `.alias name, target;` of the module. */
static int list_aliases(struct tl_ptx_program *p)
{
    const struct tl_ptx_index *ix = p->unit.ix;
    uint32_t n = 0;
    for (uint32_t i = 0; i < ix->n_items; i++)
        n += is_alias(&ix->items[i]);
    p->aliases = tl_arena_alloc(p->arena, ((size_t)n + 1) * sizeof *p->aliases);
    if (p->aliases == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < ix->n_items; i++) {
        struct tl_ptx_alias *alias = &p->aliases[p->n_aliases];
        struct tl_lex lx;
        if (!is_alias(&ix->items[i]))
            continue;
        tl_lex_init(&lx, ix->text, ix->items[i].begin, ix->items[i].end);
        tl_lex_next(&lx);
        alias->name = tl_lex_str(&lx);
        tl_lex_next(&lx); /* ',' */
        tl_lex_next(&lx);
        alias->target = tl_lex_str(&lx);
        p->n_aliases++;
    }
    qsort(p->aliases, p->n_aliases, sizeof *p->aliases, compare_aliases);
    return 0;
}

/* What the name is an alias of, or the empty slice. */
static struct tl_str find_alias(const struct tl_ptx_program *p, struct tl_str name)
{
    struct tl_ptx_alias key = {.name = name};
    const struct tl_ptx_alias *found = bsearch(&key, p->aliases, p->n_aliases, sizeof key,
                                               compare_aliases);
    return found != NULL ? found->target : (struct tl_str){0};
}

/* Room to find everything that the module has. */
static int make_tables(struct tl_ptx_program *p)
{
    p->n_buckets = 16;
    while (p->n_buckets < p->unit.ix->n_items && p->n_buckets < 1u << 30)
        p->n_buckets *= 2;
    p->funcs_by_name = tl_arena_zalloc(p->arena, p->n_buckets * sizeof(void *));
    p->vars_by_sym = tl_arena_zalloc(p->arena, p->n_buckets * sizeof(void *));
    return p->funcs_by_name != NULL && p->vars_by_sym != NULL ? list_aliases(p) : -ENOMEM;
}

/* --- collecting ------------------------------------------------------------------------------- */

/* Just that function; `*target` is what it is an alias of if that is not there yet, else NULL. */
static int add_one_func(struct tl_ptx_program *p, const struct tl_ptx_item *item,
                        const struct tl_ptx_item **target)
{
    struct tl_ptx_program_func *f = tl_arena_zalloc(p->arena, sizeof *f);
    *target = NULL;
    if (f == NULL)
        return tl_error_set(p->unit.err, -ENOMEM, "%s: out of memory", p->unit.ix->name);
    int rc = tl_ptx_parse_func(&p->unit, item, &f->func);
    if (rc < 0)
        return rc;
    append_func(p, f);
    if (f->func->has_body)
        return 0;
    f->alias_of = find_alias(p, item->name);
    const struct tl_ptx_item *named = tl_ptx_index_find(p->unit.ix, f->alias_of);
    if (named != NULL && named->kind != TL_PTX_ITEM_VARIABLE && find_func(p, named->name) == NULL)
        *target = named;
    return 0;
}

/* The function, and what it is an alias of. */
static int add_func(struct tl_ptx_program *p, const struct tl_ptx_item *item)
{
    int rc = add_one_func(p, item, &item);
    for (int i = 0; rc == 0 && item != NULL && i < MAX_ALIASES; i++)
        rc = add_one_func(p, item, &item);
    return rc;
}

static int add_var(struct tl_ptx_program *p, const struct tl_ptx_sym *sym)
{
    struct tl_ptx_program_var *v = tl_arena_zalloc(p->arena, sizeof *v);
    if (v == NULL)
        return tl_error_set(p->unit.err, -ENOMEM, "%s: out of memory", p->unit.ix->name);
    struct tl_ptx_decl *all = NULL;
    int rc = tl_ptx_parse_var(&p->unit, sym->item, &all);
    if (rc < 0)
        return rc;
    while (all != NULL && !tl_str_eq(all->name, sym->name))
        all = all->next;
    if (all == NULL)
        return tl_error_set(p->unit.err, -EINVAL,
                            "%s: the declaration of '" TL_STR_FMT "' does not name it",
                            p->unit.ix->name, TL_STR_ARG(sym->name));
    v->sym = sym;
    v->decl = all;
    append_var(p, v);
    return 0;
}

struct collect {
    struct tl_ptx_program *p;
    bool in_entry;
};

static int collect_sym(void *data, struct tl_ptx_operand *o)
{
    struct collect *c = data;
    if (o->sym->kind == TL_SYM_FUNC)
        return find_func(c->p, o->sym->name) != NULL ? 0 : add_func(c->p, o->sym->item);
    if (o->sym->kind != TL_SYM_MODULE_VAR)
        return 0;
    struct tl_ptx_program_var *v = (struct tl_ptx_program_var *)tl_ptx_program_find_var(c->p,
                                                                                        o->sym);
    if (v == NULL) {
        int rc = add_var(c->p, o->sym);
        if (rc < 0)
            return rc;
        v = (struct tl_ptx_program_var *)tl_ptx_program_find_var(c->p, o->sym);
    }
    v->in_entry |= c->in_entry;
    v->in_func |= !c->in_entry;
    return 0;
}

static int collect_inst(void *data, struct tl_ptx_stmt *s)
{
    return tl_ptx_each_sym(s->inst.operands, s->n_operands, collect_sym, data);
}

/* Follows names from the functions that were not looked at yet. */
static int collect_from(struct tl_ptx_program *p, struct tl_ptx_program_func *first)
{
    int rc = 0;
    for (struct tl_ptx_program_func *f = first; rc == 0 && f != NULL; f = f->next)
        rc = tl_ptx_each_inst(f->func->body, collect_inst, &(struct collect){p, f == p->entry});
    return rc;
}

int tl_ptx_program_init(struct tl_ptx_program *p, const struct tl_ptx_index *ix,
                        struct tl_str kernel, struct tl_arena *arena, struct tl_error *err)
{
    *p = (struct tl_ptx_program){.arena = arena};
    int rc = tl_ptx_unit_init(&p->unit, ix, arena, err);
    if (rc < 0)
        return rc;
    const struct tl_ptx_item *item = tl_ptx_index_find(ix, kernel);
    if (item == NULL || item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
        return tl_error_set(err, -ENOENT, "%s has no kernel '" TL_STR_FMT "'", ix->name,
                            TL_STR_ARG(kernel));
    if (make_tables(p) < 0)
        return tl_error_set(err, -ENOMEM, "%s: out of memory", ix->name);
    rc = add_func(p, item);
    p->entry = p->funcs;
    return rc == 0 ? collect_from(p, p->funcs) : rc;
}

static int calls_pointer(void *data, struct tl_ptx_stmt *s)
{
    struct tl_ptx_call call;
    (void)data;
    return s->inst.form->op == TL_OP_call &&
           (!tl_ptx_inst_call(s, &call) || call.callee->sym->kind != TL_SYM_FUNC);
}

bool tl_ptx_program_calls_pointers(const struct tl_ptx_program *p)
{
    for (const struct tl_ptx_program_func *f = p->funcs; f != NULL; f = f->next) {
        if (f->func->has_body && tl_ptx_each_inst(f->func->body, calls_pointer, NULL) != 0)
            return true;
    }
    return false;
}

static int add_pointee(struct tl_ptx_program *p, const struct tl_ptx_item *item)
{
    if (item == NULL || item->kind != TL_PTX_ITEM_FUNC || find_func(p, item->name) != NULL)
        return 0;
    return add_func(p, item);
}

static int count_pointee(const struct tl_ptx_program *p, const struct tl_ptx_item *item,
                         uint64_t *bytes)
{
    if (item != NULL && item->kind == TL_PTX_ITEM_FUNC && find_func(p, item->name) == NULL)
        *bytes += item->end - item->begin;
    return 0;
}

/* Functions that a variable's text names: adds them, or with `bytes` only counts their text. */
static int take_named(struct tl_ptx_program *p, const struct tl_ptx_item *variable, uint64_t *bytes)
{
    struct tl_lex lx;
    int rc = 0;
    tl_lex_init(&lx, p->unit.ix->text, variable->begin, variable->end);
    while (rc == 0 && lx.kind != TL_TOK_END && !tl_lex_is(&lx, '='))
        tl_lex_next(&lx);
    for (; rc == 0 && lx.kind != TL_TOK_END; tl_lex_next(&lx)) {
        if (lx.kind != TL_TOK_WORD)
            continue;
        const struct tl_ptx_item *item = tl_ptx_index_find(p->unit.ix, tl_lex_str(&lx));
        rc = bytes != NULL ? count_pointee(p, item, bytes) : add_pointee(p, item);
    }
    return rc;
}

uint64_t tl_ptx_program_pointee_bytes(struct tl_ptx_program *p)
{
    uint64_t bytes = 0;
    if (!tl_ptx_program_calls_pointers(p))
        return 0;
    for (uint32_t i = 0; i < p->unit.ix->n_items; i++)
        if (p->unit.ix->items[i].kind == TL_PTX_ITEM_VARIABLE)
            (void)take_named(p, &p->unit.ix->items[i], &bytes);
    return bytes;
}

int tl_ptx_program_add_pointees(struct tl_ptx_program *p, bool all)
{
    struct tl_ptx_program_func *last = p->last_func;
    int rc = 0;
    if (!tl_ptx_program_calls_pointers(p))
        return 0;
    for (uint32_t i = 0; rc == 0 && i < p->unit.ix->n_items; i++) {
        const struct tl_ptx_item *item = &p->unit.ix->items[i];
        if (item->kind == TL_PTX_ITEM_VARIABLE)
            rc = take_named(p, item, NULL);
        else if (all)
            rc = add_pointee(p, tl_ptx_index_find(p->unit.ix, item->name));
    }
    return rc == 0 ? collect_from(p, last->next) : rc;
}

void tl_ptx_program_finish(struct tl_ptx_program *p)
{
    tl_ptx_unit_finish(&p->unit);
}
