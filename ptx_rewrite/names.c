/* Scopes and interned names: see names.h for the scheme. */
#include "ptx_rewrite/names.h"
#include "tally/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_rewrite/form.h"
#include "ptx_rewrite/index.h"

/* `.reg .b32 %r<5>`: known by its prefix. */
struct family {
    struct family *hidden; /* the family of the same prefix that this one hides */
    struct family *next_in_scope;
    struct tl_ptx_name *prefix;
    const struct tl_ptx_decl *decl;
    uint32_t depth;
};

struct tl_ptx_name {
    struct tl_str text;
    uint32_t epoch;             /* `now` is valid while this is the table's */
    struct tl_ptx_sym *now;     /* what the word means */
    struct tl_ptx_sym *exact;   /* innermost symbol declared under just this name */
    struct family *families;    /* innermost family with this prefix */
    struct tl_ptx_sym *members; /* symbols of this name made for families, chained by `shadowed` */
    uint32_t members_function;  /* the function they belong to */
    struct tl_ptx_sym *outside; /* special register, module item or unknown */
};

struct scope {
    struct scope *parent;
    struct cell *cells; /* what is bound here, newest first */
    struct family *families;
};

struct cell {
    struct cell *next;
    struct tl_ptx_sym *sym;
    uint32_t at; /* of a label's first use */
};

struct tl_ptx_names {
    const struct tl_ptx_index *ix;
    struct tl_arena *arena;
    struct tl_table names; /* struct tl_ptx_name */
    struct tl_table forms; /* const struct tl_ptx_form */
    struct scope *scope;
    uint32_t depth, epoch, function;
    uint32_t n_regs, n_labels;
};

int tl_ptx_names_create(struct tl_ptx_names **out, const struct tl_ptx_index *ix,
                        struct tl_arena *arena)
{
    struct tl_ptx_names *t = calloc(1, sizeof *t);
    if (t == NULL)
        return -ENOMEM;
    t->ix = ix;
    t->arena = arena;
    t->epoch = 1;
    *out = t;
    return 0;
}

void tl_ptx_names_destroy(struct tl_ptx_names *t)
{
    if (t == NULL)
        return;
    tl_table_finish(&t->names);
    tl_table_finish(&t->forms);
    free(t);
}

static struct tl_ptx_name *intern(struct tl_ptx_names *t, struct tl_str text)
{
    void **place = tl_table_place(&t->names, text);
    if (place == NULL)
        return NULL;
    struct tl_ptx_name *name = *place;
    if (name == NULL) {
        *place = name = tl_arena_zalloc(t->arena, sizeof *name);
        if (name != NULL)
            name->text = text;
    }
    return name;
}

bool tl_ptx_names_knows(struct tl_ptx_names *t, struct tl_str word)
{
    return tl_table_get(&t->names, word) != NULL || tl_ptx_index_find(t->ix, word) != NULL;
}

uint32_t tl_ptx_names_regs(const struct tl_ptx_names *t)
{
    return t->n_regs;
}

uint32_t tl_ptx_names_labels(const struct tl_ptx_names *t)
{
    return t->n_labels;
}

uint32_t tl_ptx_names_depth(const struct tl_ptx_names *t)
{
    return t->depth;
}

int tl_ptx_names_open(struct tl_ptx_names *t)
{
    struct scope *s = tl_arena_zalloc(t->arena, sizeof *s);
    if (s == NULL)
        return -ENOMEM;
    if (t->depth == 0) {
        t->n_regs = t->n_labels = 0;
        t->function++;
    }
    s->parent = t->scope;
    t->scope = s;
    t->depth++;
    return 0;
}

static struct tl_ptx_sym *new_sym(struct tl_ptx_names *t, enum tl_ptx_sym_kind kind,
                                  struct tl_ptx_name *name)
{
    struct tl_ptx_sym *sym = tl_arena_zalloc(t->arena, sizeof *sym);
    if (sym == NULL)
        return NULL;
    sym->kind = kind;
    sym->name = name->text;
    sym->name_entry = name;
    sym->depth = t->depth;
    if (kind == TL_SYM_REG)
        sym->id = t->n_regs++;
    else if (kind == TL_SYM_LABEL || kind == TL_SYM_TABLE)
        sym->id = t->n_labels++;
    return sym;
}

/* Makes `sym` what its name means until the innermost scope closes. */
static bool bind(struct tl_ptx_names *t, struct tl_ptx_sym *sym, uint32_t at)
{
    struct cell *cell = tl_arena_alloc(t->arena, sizeof *cell);
    if (cell == NULL)
        return false;
    *cell = (struct cell){t->scope->cells, sym, at};
    t->scope->cells = cell;
    sym->shadowed = sym->name_entry->exact;
    sym->name_entry->exact = sym;
    sym->name_entry->epoch = 0;
    return true;
}

int tl_ptx_names_declare(struct tl_ptx_names *t, enum tl_ptx_sym_kind kind,
                         const struct tl_ptx_decl *decl)
{
    struct tl_ptx_name *name = intern(t, decl->name);
    if (name == NULL)
        return -ENOMEM;
    if (decl->is_range) {
        struct family *f = tl_arena_alloc(t->arena, sizeof *f);
        if (f == NULL)
            return -ENOMEM;
        *f = (struct family){name->families, t->scope->families, name, decl, t->depth};
        name->families = f;
        t->scope->families = f;
        t->epoch++;
        return 0;
    }
    struct tl_ptx_sym *sym = new_sym(t, kind, name);
    if (sym == NULL || !bind(t, sym, decl->at))
        return -ENOMEM;
    sym->decl = decl;
    return 0;
}

static bool is_open_label(const struct tl_ptx_sym *sym)
{
    return sym->kind == TL_SYM_LABEL && sym->stmt == NULL;
}

int tl_ptx_names_close(struct tl_ptx_names *t, uint32_t *undefined_at)
{
    struct scope *s = t->scope;
    int rc = 0;
    t->scope = s->parent;
    t->depth--;
    for (struct family *f = s->families; f != NULL; f = f->next_in_scope) {
        f->prefix->families = f->hidden;
        t->epoch++;
    }
    /* Unbind everything first: a label handed on must find what the outer scope has under its
     * name. */
    for (struct cell *c = s->cells; c != NULL; c = c->next) {
        c->sym->name_entry->exact = c->sym->shadowed;
        c->sym->name_entry->epoch = 0;
    }
    for (struct cell *c = s->cells; c != NULL && rc == 0; c = c->next) {
        if (!is_open_label(c->sym))
            continue;
        if (t->scope == NULL) {
            *undefined_at = c->at;
            rc = -EINVAL;
        } else {
            c->sym->forward = tl_ptx_names_label(t, c->sym->name, c->at);
            rc = c->sym->forward != NULL ? 0 : -ENOMEM;
        }
    }
    return rc;
}

void tl_ptx_names_reset(struct tl_ptx_names *t)
{
    while (t->scope != NULL) {
        struct scope *s = t->scope;
        for (struct family *f = s->families; f != NULL; f = f->next_in_scope)
            f->prefix->families = f->hidden;
        for (struct cell *c = s->cells; c != NULL; c = c->next)
            c->sym->name_entry->exact = c->sym->shadowed;
        t->scope = s->parent;
    }
    t->depth = 0;
    t->epoch++;
}

/* The innermost family with a member of that name.  A member is split before all digits at its end,
 * as ptxas does it: a family `%r1<4>` can be declared, but %r12 is member 12 of %r<...> in any
 * case, and nothing names a member of %r1<4>. `*number` is the member's number: %r01 is %r1. */
static struct family *find_family(struct tl_ptx_names *t, struct tl_str word, uint32_t *number)
{
    uint32_t n = word.n, digits = 0;
    while (n > 0 && word.p[n - 1] >= '0' && word.p[n - 1] <= '9')
        n--;
    *number = 0;
    for (uint32_t i = n; i < word.n; i++) {
        *number = *number * 10 + (uint32_t)(word.p[i] - '0');
        digits += *number != 0;
    }
    if (n == word.n || n == 0 || digits > 9)
        return NULL;
    struct tl_str prefix = {word.p, n};
    struct tl_ptx_name *name = tl_table_get(&t->names, prefix);
    struct family *f = name != NULL ? name->families : NULL;
    while (f != NULL && *number >= f->decl->range)
        f = f->hidden;
    return f;
}

static struct tl_ptx_sym *member_of(struct tl_ptx_names *t, struct tl_ptx_name *name,
                                    const struct family *f)
{
    if (name->members_function != t->function) {
        name->members = NULL;
        name->members_function = t->function;
    }
    for (struct tl_ptx_sym *m = name->members; m != NULL; m = m->shadowed) {
        if (m->decl == f->decl)
            return m;
    }
    struct tl_ptx_sym *m = new_sym(t, TL_SYM_REG, name);
    if (m == NULL)
        return NULL;
    m->decl = f->decl;
    m->depth = f->depth;
    m->shadowed = name->members;
    name->members = m;
    return m;
}

/* A word that no scope of the function declares: special register, module scope, or nothing. */
static struct tl_ptx_sym *outside(struct tl_ptx_names *t, struct tl_ptx_name *name)
{
    if (name->outside != NULL)
        return name->outside;
    struct tl_ptx_sym *sym = new_sym(t, TL_SYM_UNKNOWN, name);
    if (sym == NULL)
        return NULL;
    sym->depth = 0;
    sym->sreg = tl_ptx_sreg_of(name->text);
    sym->item = sym->sreg == TL_SREG_none ? tl_ptx_index_find(t->ix, name->text) : NULL;
    if (sym->sreg != TL_SREG_none)
        sym->kind = TL_SYM_SREG;
    else if (sym->item != NULL)
        sym->kind = sym->item->kind == TL_PTX_ITEM_VARIABLE ? TL_SYM_MODULE_VAR : TL_SYM_FUNC;
    name->outside = sym;
    return sym;
}

struct tl_ptx_sym *tl_ptx_names_resolve(struct tl_ptx_names *t, struct tl_str word)
{
    struct tl_ptx_name *name = intern(t, word);
    if (name == NULL)
        return NULL;
    if (name->epoch == t->epoch)
        return name->now;
    struct tl_ptx_sym *sym = name->exact;
    uint32_t number;
    struct family *f = find_family(t, word, &number);
    if (f != NULL && (sym == NULL || f->depth > sym->depth)) {
        uint32_t prefix = f->prefix->text.n;
        if (word.n > prefix + 1 && word.p[prefix] == '0') { /* %r01 */
            const char *plain = tl_arena_printf(t->arena, TL_STR_FMT "%u", (int)prefix, word.p,
                                                number);
            return plain != NULL ? tl_ptx_names_resolve(t, tl_str_of(plain)) : NULL;
        }
        sym = member_of(t, name, f);
    } else if (sym == NULL) {
        sym = outside(t, name);
    }
    if (sym != NULL) {
        name->now = sym;
        name->epoch = t->epoch;
    }
    return sym;
}

struct tl_ptx_sym *tl_ptx_names_label(struct tl_ptx_names *t, struct tl_str word, uint32_t at)
{
    struct tl_ptx_name *name = intern(t, word);
    if (name == NULL)
        return NULL;
    struct tl_ptx_sym *sym = name->exact;
    if (sym != NULL && sym->depth == t->depth &&
        (sym->kind == TL_SYM_LABEL || sym->kind == TL_SYM_TABLE))
        return sym;
    sym = new_sym(t, TL_SYM_LABEL, name);
    return sym != NULL && bind(t, sym, at) ? sym : NULL;
}

struct tl_ptx_sym *tl_ptx_names_define_label(struct tl_ptx_names *t, struct tl_str word,
                                             struct tl_ptx_stmt *stmt, enum tl_ptx_sym_kind kind,
                                             bool *duplicate)
{
    *duplicate = false;
    struct tl_ptx_sym *sym = tl_ptx_names_label(t, word, stmt->at);
    if (sym == NULL)
        return NULL;
    if (sym->stmt != NULL) {
        *duplicate = true;
        return NULL;
    }
    sym->stmt = stmt;
    sym->kind = kind;
    return sym;
}

/* --- forms ------------------------------------------------------------------------------------ */

static struct tl_ptx_form *make_form(struct tl_ptx_names *t, struct tl_str text)
{
    struct tl_ptx_form *f = tl_arena_zalloc(t->arena, sizeof *f);
    uint32_t n = 0;
    for (uint32_t i = 0; i < text.n; i++)
        n += text.p[i] == '.';
    struct tl_ptx_modifier *mods = tl_arena_zalloc(t->arena, (n + 1) * sizeof *mods);
    if (f == NULL || mods == NULL)
        return NULL;
    f->text = text;
    f->mods = mods;
    const char *p = text.p, *end = text.p + text.n;
    for (uint32_t i = 0; p <= end; i++) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        struct tl_str word = {p, (uint32_t)((dot != NULL ? dot : end) - p)};
        if (i == 0)
            f->op = tl_ptx_op_of(word);
        else
            mods[f->n_mods++] = (struct tl_ptx_modifier){word, tl_ptx_mod_of(word)};
        p += word.n + 1;
    }
    return f;
}

const struct tl_ptx_form *tl_ptx_names_form(struct tl_ptx_names *t, struct tl_str text)
{
    void **place = tl_table_place(&t->forms, text);
    if (place != NULL && *place == NULL)
        *place = make_form(t, text);
    return place != NULL ? *place : NULL;
}
