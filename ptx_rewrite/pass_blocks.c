/* Where blocks get their numbers from, and what they do when they are done.
 *
 * slice       the number is %ctaid.x plus the slice's first block.  Nothing is added, unless called
 * functions read the
 *             grid: then thread 0 puts the index into the slot at the start.
 * ticket      thread 0 asks the stop words and, if none says stop, takes a number from the counter.
 * The block learns it
 *             through the slot behind a barrier.  The slot is written once per block, before that barrier, and only read
 *             behind it, so one barrier is enough.
 * persistent  the same in a loop.  Here the slot is written again for the next block, so there must
 * be a barrier between
 *             the last read of one round and the write of the next: the one at the end of the round, behind which no
 *             thread of the block is still in the body.  Several numbers may be taken at a time: then thread 0 asks and
 *             counts only where a batch begins, at multiples of its size, and goes on by one in between.
 *
 * The end of a persistent round must be met by all threads, wherever they returned.  If all meet
 * the same barriers (plain), an ordinary barrier does.  Else, threads that have returned keep
 * attending: each barrier of the body votes "somebody is still in the body", those at the end vote
 * "not me", and they go on when nobody objects.  Where threads of one warp may be at different
 * places these are the barrier.* forms.  Else they are bar.*: behind those ptxas knows that the
 * warp is together and uses its uniform registers, which can be worth twenty others.
 *
 * Counter and stop words: taking a number and being told to stop exclude each other, so a number
 * that was taken is always worked on, to its end, by the block that took it, and no number is taken
 * twice.
 *
 * Epochs: the counter only grows, and a launch is told what it began at.  In the same word are
 * counted those who take no number any more: a ticket's block with its number, a worker when it has
 * found the end.  Both are one atomic on one word, so who is the last of them has seen what the
 * counter will be when all have left, without a fence, and stores it where the host looks. */
#include "ptx_rewrite/rewrite.h"

void tl_rw_plan_blocks(struct tl_rewriter *rw)
{
    if (rw->variant == TL_PTX_SLICE) {
        rw->uses_slot = rw->f->funcs_read_grid;
        return;
    }
    rw->uses_slot = true;
    for (uint32_t i = 0; i < TL_PTX_STOP_WORDS; i++)
        tl_rw_add_arg(rw, TL_PTX_ARG_STOP_WORD, i, NULL);
    tl_rw_add_arg(rw, TL_PTX_ARG_COUNTER, 0, NULL);
    tl_rw_add_arg(rw, TL_PTX_ARG_TOLD, 0, NULL);
}

/* --- the body --------------------------------------------------------------------------------- */

static void leave_through_end(struct tl_rewriter *rw, struct tl_ptx_stmt *s)
{
    struct tl_ptx_operand *label = tl_arena_zalloc(rw->arena, sizeof *label);
    if (label == NULL) {
        rw->failed = true;
        return;
    }
    tl_rw_set_form(rw, s, "bra");
    tl_rw_set_operand(label, tl_rw_text(rw, "$done"));
    s->inst.operands = label;
    s->n_operands = 1;
}

static bool votes(const struct tl_rewriter *rw)
{
    return rw->variant == TL_PTX_PERSISTENT && rw->f->barriers != TL_BARRIERS_PLAIN;
}

static const char *vote_form(const struct tl_rewriter *rw)
{
    return rw->f->barriers == TL_BARRIERS_BY_WARP ? "bar.red.or.pred" : "barrier.red.or.pred";
}

static void vote_at_barrier(struct tl_rewriter *rw, struct tl_ptx_stmt *s)
{
    struct tl_ptx_operand *o = tl_arena_zalloc(rw->arena, 3 * sizeof *o);
    if (o == NULL) {
        rw->failed = true;
        return;
    }
    tl_rw_put(rw, &rw->before, "\tmov.pred %%$inside, 1;\n");
    tl_rw_set_form(rw, s, vote_form(rw));
    tl_rw_set_operand(&o[0], tl_rw_text(rw, "%%$anybody"));
    tl_rw_set_operand(&o[1], "0");
    tl_rw_set_operand(&o[2], tl_rw_text(rw, "%%$inside"));
    s->inst.operands = o;
    s->n_operands = 3;
}

void tl_rw_blocks(struct tl_rewriter *rw, struct tl_ptx_stmt *s)
{
    if (rw->variant != TL_PTX_PERSISTENT)
        return;
    enum tl_ptx_op op = s->inst.form->op;
    if (rw->in_entry && (op == TL_OP_ret || op == TL_OP_exit)) {
        leave_through_end(rw, s);
        return;
    }
    struct tl_ptx_barrier b = tl_ptx_barrier_of(s);
    if (votes(rw) && b.kind == TL_BARRIER_SYNC && b.id == 0 && !b.has_count)
        vote_at_barrier(rw, s);
}

/* --- before it -------------------------------------------------------------------------------- */

/* Jumps to $wait unless this is thread 0. */
static void put_leader_test(struct tl_rewriter *rw, struct tl_buf *out)
{
    tl_rw_put(rw, out,
              "\tmov.u32 %%$q0, %%tid.x;\n\tmov.u32 %%$q1, %%tid.y;\n\tmov.u32 %%$q2, %%tid.z;\n");
    tl_rw_put(rw, out, "\tor.b32 %%$q0, %%$q0, %%$q1;\n\tor.b32 %%$q0, %%$q0, %%$q2;\n");
    tl_rw_put(rw, out, "\tsetp.ne.u32 %%$p0, %%$q0, 0;\n\t@%%$p0 bra $wait;\n");
}

/* Jumps to $give, with the number -1, if a stop word has unequal halves.  A word may lie across a
 * bus, so none waits for another, and one whose address is zero is not read: zero has equal
 * halves. */
static void put_stop_test(struct tl_rewriter *rw, struct tl_buf *out)
{
    for (uint32_t i = 0; i < TL_PTX_STOP_WORDS; i++)
        tl_rw_put(rw, out,
                  "\tld.param.u64 %%$w%u, [%s];\n\tsetp.ne.u64 %%$p0, %%$w%u, 0;\n\t@%%$p0 "
                  "ld.volatile.global.u64 %%$w%u, [%%$w%u];\n",
                  i, tl_rw_arg(rw, TL_PTX_ARG_STOP_WORD, i), i, i, i);
    for (uint32_t i = 0; i < TL_PTX_STOP_WORDS; i++) {
        tl_rw_put(rw, out, "\tmov.b64 {%%$q0, %%$q1}, %%$w%u;\n\txor.b32 %%$q0, %%$q0, %%$q1;\n",
                  i);
        tl_rw_put(rw, out,
                  i == 0 ? "\tmov.u32 %%$q2, %%$q0;\n" : "\tor.b32 %%$q2, %%$q2, %%$q0;\n");
    }
    tl_rw_put(rw, out, "\tsetp.ne.u32 %%$p0, %%$q2, 0;\n\t@%%$p0 bra $give;\n");
}

/* Adds what is in %$w1 to the word that the counter is the upper half of: how many had left is in
 * %$q0 then, and what the counter said in %$q1. */
static void put_atomic(struct tl_rewriter *rw, struct tl_buf *out)
{
    tl_rw_put(rw, out, "\tld.param.u64 %%$w0, [%s];\n", tl_rw_arg(rw, TL_PTX_ARG_COUNTER, 0));
    tl_rw_put(rw, out, "\tatom.global.add.u64 %%$w1, [%%$w0+-4], %%$w1;\n");
    tl_rw_put(rw, out, "\tmov.b64 {%%$q0, %%$q1}, %%$w1;\n");
}

/* Takes the number %$q3, or a batch of %$q4 that begins there.  A ticket's block leaves with that,
 * and goes on to $last with what the counter says behind its number in %$q1. */
static void put_taking(struct tl_rewriter *rw, struct tl_buf *out)
{
    bool is_ticket = rw->variant == TL_PTX_TICKET;
    if (is_ticket) {
        tl_rw_put(rw, out, "\tld.param.u64 %%$w2, [%s];\n", tl_rw_arg(rw, TL_PTX_ARG_TOLD, 0));
        tl_rw_put(rw, out, "\tsetp.ne.u64 %%$p0, %%$w2, 0;\n\tselp.u32 %%$q0, 1, 0, %%$p0;\n");
        tl_rw_put(rw, out, "\tmov.u32 %%$q4, 1;\n");
    } else {
        tl_rw_put(rw, out, "\tmov.u32 %%$q0, 0;\n");
    }
    tl_rw_put(rw, out, "\tmov.b64 %%$w1, {%%$q0, %%$q4};\n");
    put_atomic(rw, out);
    tl_rw_put(rw, out, "\tld.param.u32 %%$q3, [%s];\n\tsub.u32 %%$q3, %%$q1, %%$q3;\n",
              tl_rw_arg(rw, TL_PTX_ARG_BASE, 0));
    if (is_ticket)
        tl_rw_put(rw, out, "\tadd.u32 %%$q1, %%$q1, 1;\n\tbra $last;\n");
}

/* Who takes no number any more counts himself, and the last one tells. */
static void put_leaving(struct tl_rewriter *rw, struct tl_buf *out)
{
    tl_rw_put(rw, out, "$give:\n");
    if (rw->variant == TL_PTX_PERSISTENT) {
        tl_rw_put(rw, out, "\tld.param.u32 %%$q0, [%s];\n", tl_rw_arg(rw, TL_PTX_ARG_BLOCKS, 0));
        tl_rw_put(rw, out, "\tsetp.lt.u32 %%$p0, %%$q3, %%$q0;\n\t@%%$p0 bra $gone;\n");
    }
    tl_rw_put(rw, out, "\tld.param.u64 %%$w2, [%s];\n", tl_rw_arg(rw, TL_PTX_ARG_TOLD, 0));
    tl_rw_put(rw, out, "\tsetp.eq.u64 %%$p0, %%$w2, 0;\n\t@%%$p0 bra $gone;\n");
    tl_rw_put(rw, out, "\tmov.u64 %%$w1, 1;\n");
    put_atomic(rw, out);
    if (rw->variant == TL_PTX_TICKET)
        tl_rw_put(rw, out, "$last:\n\tsetp.eq.u64 %%$p0, %%$w2, 0;\n\t@%%$p0 bra $gone;\n");
    tl_rw_put(rw, out, "\tadd.u32 %%$q0, %%$q0, 1;\n\tld.param.u32 %%$q2, [%s];\n",
              tl_rw_arg(rw, TL_PTX_ARG_LEFT_END, 0));
    tl_rw_put(rw, out, "\tsetp.ne.u32 %%$p0, %%$q0, %%$q2;\n\t@%%$p0 bra $gone;\n");
    tl_rw_put(rw, out, "\tld.param.u32 %%$q2, [%s];\n\tsub.u32 %%$q1, %%$q1, %%$q2;\n",
              tl_rw_arg(rw, TL_PTX_ARG_BASE, 0));
    tl_rw_put(rw, out, "\tst.volatile.global.u32 [%%$w2], %%$q1;\n$gone:\n");
}

/* Thread 0: asks, takes a number, and puts it and the block index into the slot. */
static void put_leader(struct tl_rewriter *rw, struct tl_buf *out)
{
    /* behind the worker's previous number, which was -1 at first */
    if (rw->variant == TL_PTX_PERSISTENT) {
        tl_rw_put(rw, out, "\tld.shared.u32 %%$q3, [%%$slot+%u];\n\tadd.u32 %%$q3, %%$q3, 1;\n",
                  TL_SLOT_NUMBER);
        tl_rw_put(rw, out, "\tld.param.u32 %%$q4, [%s];\n",
                  tl_rw_arg(rw, TL_PTX_ARG_BATCH_MASK, 0));
        tl_rw_put(rw, out,
                  "\tand.b32 %%$q0, %%$q3, %%$q4;\n\tsetp.ne.u32 %%$p1, %%$q0, 0;\n\t@%%$p1 bra "
                  "$give;\n");
        tl_rw_put(rw, out, "\tadd.u32 %%$q4, %%$q4, 1;\n");
    }
    tl_rw_put(rw, out, "\tmov.u32 %%$q3, -1;\n");
    put_stop_test(rw, out);
    put_taking(rw, out);
    put_leaving(rw, out);
}

static void put_slot_write(struct tl_rewriter *rw, struct tl_buf *out)
{
    const char *index[3] = {tl_rw_text(rw, "%%$q4"), tl_rw_text(rw, "%%$q5"),
                            tl_rw_text(rw, "%%$q6")};
    tl_rw_unflatten(rw, out, tl_rw_text(rw, "%%$q3"), index[0], index[1], index[2]);
    for (uint32_t i = 0; i < 3 && i < rw->dims;
         i++) /* not as one vector: four registers in a row are hard to come by */
        tl_rw_put(rw, out, "\tst.shared.u32 [%%$slot+%u], %s;\n", TL_SLOT_BLOCK + 4 * i, index[i]);
    tl_rw_put(rw, out, "\tst.shared.u32 [%%$slot+%u], %%$q3;\n", TL_SLOT_NUMBER);
    if (!rw->f->funcs_read_grid)
        return;
    static const enum tl_ptx_arg_kind grid[3] = {TL_PTX_ARG_GRID_X, TL_PTX_ARG_GRID_Y,
                                                 TL_PTX_ARG_GRID_Z};
    for (uint32_t i = 0; i < 3 && i < rw->dims; i++) {
        tl_rw_put(rw, out, "\tld.param.u32 %%$q0, [%s];\n", tl_rw_arg(rw, grid[i], 0));
        tl_rw_put(rw, out, "\tst.shared.u32 [%%$slot+%u], %%$q0;\n", TL_SLOT_GRID + 4 * i);
    }
}

static void put_slice_prologue(struct tl_rewriter *rw, struct tl_buf *out)
{
    put_leader_test(rw, out);
    tl_rw_put(rw, out, "\tmov.u32 %%$q3, %%ctaid.x;\n\tld.param.u32 %%$q0, [%s];\n",
              tl_rw_arg(rw, TL_PTX_ARG_FIRST_BLOCK, 0));
    tl_rw_put(rw, out, "\tadd.u32 %%$q3, %%$q3, %%$q0;\n");
    put_slot_write(rw, out);
    tl_rw_put(rw, out, "$wait:\n\tbar.sync 0;\n");
}

void tl_rw_prologue(struct tl_rewriter *rw, struct tl_buf *out)
{
    if (votes(rw))
        tl_rw_put(rw, out, "\t.reg .pred %%$inside, %%$anybody;\n");
    if (!rw->in_entry || !rw->uses_slot)
        return;
    tl_rw_put(rw, out,
              "\t.reg .pred %%$p<4>;\n\t.reg .b32 %%$q<9>;\n\t.reg .b32 %%$slot;\n\t.reg .b64 "
              "%%$w<%u>;\n",
              TL_PTX_STOP_WORDS);
    const char *slot = tl_rw_text(rw, "%%$slot");
    if (rw->variant == TL_PTX_SLICE) {
        tl_rw_slot_address(rw, out, slot);
        put_slice_prologue(rw, out);
        return;
    }
    if (rw->variant == TL_PTX_PERSISTENT) {
        /* All threads may write this number: nobody reads it before thread 0 does. */
        tl_rw_slot_address(rw, out, slot);
        tl_rw_put(rw, out,
                  "\tmov.u32 %%$q0, -1;\n\tst.shared.u32 [%%$slot+%u], %%$q0;\n\tbar.sync 0;\n",
                  TL_SLOT_NUMBER);
        /* No blocks at all: number 0 is the end already.  It never happens, but ptxas does not
         * know, and out of a loop that can be entered in two places it does not move computations;
         * they would cost registers all the way round. Registers of its own, that no thread writes
         * differently: the loop must look the same for the whole block. */
        tl_rw_put(rw, out, "\tld.param.u32 %%$q8, [%s];\n", tl_rw_arg(rw, TL_PTX_ARG_BLOCKS, 0));
        tl_rw_put(rw, out, "\tsetp.eq.u32 %%$p2, %%$q8, 0;\n\t@%%$p2 bra $wait;\n$next:\n");
    }
    tl_rw_slot_address(rw, out, slot);
    put_leader_test(rw, out);
    put_leader(rw, out);
    put_slot_write(rw, out);
    tl_rw_put(rw, out, "$wait:\n\tbar.sync 0;\n");
    tl_rw_put(rw, out, "\tld.shared.u32 %%$q7, [%%$slot+%u];\n", TL_SLOT_NUMBER);
    tl_rw_put(rw, out, "\tld.param.u32 %%$q8, [%s];\n", tl_rw_arg(rw, TL_PTX_ARG_BLOCKS, 0));
    tl_rw_put(rw, out, "\tsetp.ge.u32 %%$p3, %%$q7, %%$q8;\n\t@%%$p3 ret;\n");
}

/* --- behind it -------------------------------------------------------------------------------- */

void tl_rw_epilogue(struct tl_rewriter *rw, struct tl_buf *out)
{
    if (rw->variant != TL_PTX_PERSISTENT || !rw->in_entry)
        return;
    tl_rw_put(rw, out, "$done:\n");
    /* copies of this block must not land in the next one's shared memory */
    if (rw->f->uses_cp_async)
        tl_rw_put(rw, out, "\tcp.async.wait_all;\n");
    if (votes(rw))
        tl_rw_put(rw, out,
                  "\tmov.pred %%$inside, 0;\n$attend:\n\t%s %%$anybody, 0, "
                  "%%$inside;\n\t@%%$anybody bra $attend;\n",
                  vote_form(rw));
    else
        tl_rw_put(rw, out, "\tbar.sync 0;\n");
    tl_rw_put(rw, out, "\tbra $next;\n");
}
