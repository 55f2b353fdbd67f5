/* The original grid.
 *
 * A variant is launched as a line of blocks.  Each gets a linear number, which is taken apart into
 * the block index of the original grid: x = n mod grid.x and so on, dividing by multiplication with
 * precomputed magic numbers.  A kernel that reads %ctaid.x only may still be launched over a plane,
 * so what counts is the grid's shape (`dims`), not what is read.
 *
 * Slices compute the index where it is read, from %ctaid.x and parameters: no register lives longer
 * than in the original. The other variants, and functions called in any variant, read it from the
 * slot: a few words at the end of dynamic shared memory, where thread 0 has put it.  It stands at
 * the end, not in a variable, so that neither the addresses nor the alignment of the kernel's own
 * shared memory change, and it is found from %dynamic_smem_size, which functions see too. */
#include "ptx_rewrite/rewrite.h"

void tl_rw_plan_grid(struct tl_rewriter *rw)
{
    tl_rw_add_arg(rw, TL_PTX_ARG_GRID_X, 0, NULL);
    if (rw->dims >= 2) {
        tl_rw_add_arg(rw, TL_PTX_ARG_GRID_Y, 0, NULL);
        tl_rw_add_arg(rw, TL_PTX_ARG_MAGIC_X, 0, NULL);
        tl_rw_add_arg(rw, TL_PTX_ARG_SHIFT_X, 0, NULL);
    }
    if (rw->dims >= 3) {
        tl_rw_add_arg(rw, TL_PTX_ARG_GRID_Z, 0, NULL);
        tl_rw_add_arg(rw, TL_PTX_ARG_MAGIC_Y, 0, NULL);
        tl_rw_add_arg(rw, TL_PTX_ARG_SHIFT_Y, 0, NULL);
    }
}

/* quotient = n / d by magic number, remainder = n - quotient * d.  n < 2^31, so 2 * n fits (see
 * tl_ptx_magic_of). */
static void put_division(struct tl_rewriter *rw, struct tl_buf *out, const char *n,
                         const char *quotient, const char *remainder, enum tl_ptx_arg_kind grid,
                         enum tl_ptx_arg_kind magic, enum tl_ptx_arg_kind shift)
{
    const char *t = tl_rw_b32(rw), *u = tl_rw_b32(rw);
    tl_rw_put(rw, out, "\tshl.b32 %s, %s, 1;\n", t, n);
    tl_rw_put(rw, out, "\tld.param.u32 %s, [%s];\n", u, tl_rw_arg(rw, magic, 0));
    tl_rw_put(rw, out, "\tmul.hi.u32 %s, %s, %s;\n", t, t, u);
    tl_rw_put(rw, out, "\tld.param.u32 %s, [%s];\n", u, tl_rw_arg(rw, shift, 0));
    tl_rw_put(rw, out, "\tshr.u32 %s, %s, %s;\n", quotient, t, u);
    const char *v = tl_rw_b32(rw), *w = tl_rw_b32(rw);
    tl_rw_put(rw, out, "\tld.param.u32 %s, [%s];\n", v, tl_rw_arg(rw, grid, 0));
    tl_rw_put(rw, out, "\tmul.lo.u32 %s, %s, %s;\n", w, quotient, v);
    tl_rw_put(rw, out, "\tsub.u32 %s, %s, %s;\n", remainder, n, w);
}

void tl_rw_unflatten(struct tl_rewriter *rw, struct tl_buf *out, const char *n, const char *x,
                     const char *y, const char *z)
{
    if (rw->dims == 1) {
        tl_rw_put(rw, out, "\tmov.u32 %s, %s;\n\tmov.u32 %s, 0;\n\tmov.u32 %s, 0;\n", x, n, y, z);
        return;
    }
    if (rw->dims == 2) {
        put_division(rw, out, n, y, x, TL_PTX_ARG_GRID_X, TL_PTX_ARG_MAGIC_X, TL_PTX_ARG_SHIFT_X);
        tl_rw_put(rw, out, "\tmov.u32 %s, 0;\n", z);
        return;
    }
    const char *rows = tl_rw_b32(rw);
    put_division(rw, out, n, rows, x, TL_PTX_ARG_GRID_X, TL_PTX_ARG_MAGIC_X, TL_PTX_ARG_SHIFT_X);
    put_division(rw, out, rows, z, y, TL_PTX_ARG_GRID_Y, TL_PTX_ARG_MAGIC_Y, TL_PTX_ARG_SHIFT_Y);
}

void tl_rw_slot_address(struct tl_rewriter *rw, struct tl_buf *out, const char *reg)
{
    const char *size = tl_rw_b32(rw);
    tl_rw_put(rw, out, "\tmov.u32 %s, %%dynamic_smem_size;\n", size);
    tl_rw_put(rw, out, "\tmov.u32 %s, $dynamic;\n", reg);
    tl_rw_put(rw, out, "\tadd.u32 %s, %s, %s;\n", reg, reg, size);
    tl_rw_put(rw, out, "\tsub.u32 %s, %s, %u;\n", reg, reg, TL_PTX_SLOT_BYTES);
}

static const char *from_slot(struct tl_rewriter *rw, uint32_t offset)
{
    const char *address = tl_rw_b32(rw), *value = tl_rw_b32(rw);
    tl_rw_slot_address(rw, &rw->before, address);
    tl_rw_put(rw, &rw->before, "\tld.shared.u32 %s, [%s+%u];\n", value, address, offset);
    return value;
}

static const char *from_param(struct tl_rewriter *rw, enum tl_ptx_arg_kind kind)
{
    const char *value = tl_rw_b32(rw);
    tl_rw_put(rw, &rw->before, "\tld.param.u32 %s, [%s];\n", value, tl_rw_arg(rw, kind, 0));
    return value;
}

/* %ctaid.<axis> of a slice, from its own linear number. */
static const char *from_slice(struct tl_rewriter *rw, uint32_t axis)
{
    const char *n = tl_rw_b32(rw);
    tl_rw_put(rw, &rw->before, "\tmov.u32 %s, %%ctaid.x;\n", n);
    const char *first = from_param(rw, TL_PTX_ARG_FIRST_BLOCK);
    tl_rw_put(rw, &rw->before, "\tadd.u32 %s, %s, %s;\n", n, n, first);
    if (rw->dims == 1)
        return n;
    const char *index[3] = {tl_rw_b32(rw), tl_rw_b32(rw), tl_rw_b32(rw)};
    tl_rw_unflatten(rw, &rw->before, n, index[0], index[1], index[2]);
    return index[axis];
}

static const char *grid_value(struct tl_rewriter *rw, enum tl_ptx_sreg sreg, uint32_t axis)
{
    static const enum tl_ptx_arg_kind grid[3] = {TL_PTX_ARG_GRID_X, TL_PTX_ARG_GRID_Y,
                                                 TL_PTX_ARG_GRID_Z};
    if (axis >= rw->dims) {
        const char *value = tl_rw_b32(rw);
        tl_rw_put(rw, &rw->before, "\tmov.u32 %s, %u;\n", value, sreg == TL_SREG_nctaid);
        return value;
    }
    if (sreg == TL_SREG_nctaid)
        return rw->in_entry ? from_param(rw, grid[axis]) : from_slot(rw, TL_SLOT_GRID + 4 * axis);
    if (rw->variant == TL_PTX_SLICE && rw->in_entry)
        return from_slice(rw, axis);
    return from_slot(rw, TL_SLOT_BLOCK + 4 * axis);
}

static int replace_sreg(void *data, struct tl_ptx_operand *o)
{
    struct tl_rewriter *rw = data;
    enum tl_ptx_sreg sreg = o->sym->sreg;
    if (o->sym->kind == TL_SYM_SREG && (sreg == TL_SREG_ctaid || sreg == TL_SREG_nctaid))
        tl_rw_set_operand(o, grid_value(rw, sreg, (uint32_t)(o->component - 'x')));
    return 0;
}

static int reads_grid(void *data, struct tl_ptx_operand *o)
{
    (void)data;
    return o->sym->kind == TL_SYM_SREG &&
           (o->sym->sreg == TL_SREG_ctaid || o->sym->sreg == TL_SREG_nctaid);
}

void tl_rw_grid(struct tl_rewriter *rw, struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (!tl_ptx_each_sym(s->inst.operands, s->n_operands, reads_grid, NULL))
        return;
    tl_ptx_each_sym(s->inst.operands, s->n_operands, replace_sreg, rw);
    /* Old PTX reads the low half of a special register; of an ordinary one it must be converted. */
    if (f->op == TL_OP_mov && (tl_ptx_form_has(f, TL_MOD_u16) || tl_ptx_form_has(f, TL_MOD_s16) ||
                               tl_ptx_form_has(f, TL_MOD_b16)))
        tl_rw_set_form(rw, s, "cvt.u16.u32");
}
