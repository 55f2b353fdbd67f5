/* Registers of inline assembly do not outlive a round of the persistent loop.
 *
 * What pass_forget.c does for the function's registers, this does for those of inner scopes, which
 * no text outside can name.  Such scopes come from inline assembly, and one kind is in every
 * reduction of CUB and Thrust:
 *
 *     { .reg .f64 r; .reg .pred p; ... @p mov.b64 r, {lo, hi}; @p add.f64 sum, r, sum; }
 *
 * ptxas does not see that `r` is read only where it was written, and keeps it alive round our loop,
 * once per scope: a kernel of cuSPARSE grew from 56 registers to 128.  So the register is set
 * before its first, guarded, write, if each read in the scope finds a value that was written in the
 * same pass through it: nobody can tell then.
 *
 * Only scopes without labels, branches and further scopes are looked at: there, the order of the
 * text is that of execution. */
#include "ptx_rewrite/cfg.h"
#include "ptx_rewrite/rewrite.h"

enum { MAX_REGISTERS = 32 };

/* What is known of a register's value at a place. */
enum state {
    UNTOUCHED,
    WRITTEN,   /* for certain */
    GUARDED,   /* where the guard is true */
    UNCERTAIN, /* under some condition that cannot be compared with */
};

struct known {
    const struct tl_ptx_sym *reg;
    enum state state;
    const struct tl_ptx_sym *guard; /* GUARDED: the condition */
    bool guard_not;
    bool wants_old_value;
    /* the link to the statement that first mentions it, if that is a guarded write */
    struct tl_ptx_stmt **first;
};

struct scope {
    uint32_t begin, end; /* text range */
    struct known regs[MAX_REGISTERS];
    uint32_t n;
    bool is_full;
    struct tl_ptx_stmt **at; /* the link to the instruction being looked at */
};

/* The entry of a register of this scope; NULL for others. */
static struct known *known_of(struct scope *sc, const struct tl_ptx_sym *reg)
{
    for (uint32_t i = 0; i < sc->n; i++)
        if (sc->regs[i].reg == reg)
            return &sc->regs[i];
    if (reg->decl == NULL || reg->decl->at < sc->begin || reg->decl->at >= sc->end ||
        tl_rw_setter(reg->decl) == NULL)
        return NULL;
    if (sc->n == MAX_REGISTERS) {
        sc->is_full = true;
        return NULL;
    }
    sc->regs[sc->n] = (struct known){.reg = reg};
    return &sc->regs[sc->n++];
}

static bool is_same_guard(const struct known *k, const struct tl_ptx_stmt *s)
{
    return k->guard == s->inst.guard && k->guard_not == s->guard_not;
}

static void see_read(void *data, struct tl_ptx_sym *reg)
{
    struct scope *sc = data;
    struct known *k = known_of(sc, reg);
    if (k != NULL && k->state != WRITTEN && !(k->state == GUARDED && is_same_guard(k, *sc->at)))
        k->wants_old_value = true;
}

static void see_write(void *data, struct tl_ptx_sym *reg)
{
    struct scope *sc = data;
    const struct tl_ptx_stmt *s = *sc->at;
    for (uint32_t i = 0; i < sc->n; i++) /* the guard may be any register, also one of outside */
        if (sc->regs[i].state == GUARDED && sc->regs[i].guard == reg)
            sc->regs[i].state = UNCERTAIN;
    struct known *k = known_of(sc, reg);
    if (k == NULL || k->state == WRITTEN)
        return;
    if (s->inst.guard == NULL) {
        k->state = WRITTEN;
    } else if (k->state == UNTOUCHED) {
        k->state = s->inst.guard == reg ? UNCERTAIN : GUARDED;
        k->guard = s->inst.guard;
        k->guard_not = s->guard_not;
        k->first = sc->at;
    } else if (!is_same_guard(k, s)) {
        k->state = UNCERTAIN;
    }
}

static bool is_straight(const struct tl_ptx_stmt *list)
{
    for (const struct tl_ptx_stmt *s = list; s != NULL; s = s->next) {
        bool is_inst = s->kind == TL_STMT_INST && s->inst.raw.n == 0;
        if (!is_inst && s->kind != TL_STMT_DECL)
            return false;
        if (!is_inst)
            continue;
        enum tl_ptx_op op = s->inst.form->op;
        if (op == TL_OP_unknown || op == TL_OP_bra || op == TL_OP_brx || op == TL_OP_call)
            return false;
    }
    return true;
}

static void set_before(struct tl_rewriter *rw, const struct known *k)
{
    struct tl_buf text = {0};
    tl_buf_printf(&text, "\t%s " TL_STR_FMT ", 0;\n", tl_rw_setter(k->reg->decl),
                  TL_STR_ARG(k->reg->name));
    struct tl_ptx_stmt *added = tl_rw_text_stmt(rw, &text);
    tl_buf_finish(&text);
    if (added == NULL)
        return;
    added->next = *k->first;
    *k->first = added;
}

static void look_into(struct tl_rewriter *rw, struct tl_ptx_stmt *block)
{
    struct scope sc = {.begin = block->at, .end = block->end};
    for (sc.at = &block->block; *sc.at != NULL; sc.at = &(*sc.at)->next) {
        if ((*sc.at)->kind != TL_STMT_INST)
            continue;
        tl_ptx_inst_reads(*sc.at, see_read, &sc);
        tl_ptx_inst_writes(*sc.at, see_write, &sc);
    }
    for (uint32_t i = 0; i < sc.n && !sc.is_full; i++)
        if (sc.regs[i].first != NULL && !sc.regs[i].wants_old_value)
            set_before(rw, &sc.regs[i]);
}

static void look_for_scopes(struct tl_rewriter *rw, struct tl_ptx_stmt *list)
{
    for (struct tl_ptx_stmt *s = list; s != NULL; s = s->next) {
        if (s->kind != TL_STMT_BLOCK)
            continue;
        if (is_straight(s->block))
            look_into(rw, s);
        else
            look_for_scopes(rw, s->block);
    }
}

void tl_rw_scopes(struct tl_rewriter *rw)
{
    look_for_scopes(rw, rw->func->body);
}
