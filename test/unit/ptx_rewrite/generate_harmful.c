/* Stages that need blocks which come later.  See generate.h.
 *
 * Each is written so that it looks like something harmless: a counter, a lock, a wait for an
 * earlier block, a turn. */
#include <stdio.h>

#include "test/unit/ptx_rewrite/generate_internal.h"

static void done(struct gen *g)
{
    gen_result(g, "%r0", "7");
    for (uint32_t i = 0; i < g->blocks; i++)
        gen_expect(g, i, 7);
}

static uint32_t word(struct gen *g)
{
    return gen_array(g, 4, PTX_FILL_ZERO, true);
}

/* --- barriers over the grid ------------------------------------------------------------------- */

static void barrier_by_reading(struct gen *g)
{
    uint32_t c = word(g), was = gen_r(g), p = gen_p(g);
    if (g->threads > 1 && gen_roll(g, 2)) { /* another thread arrives than the one that waits */
        gen_line(g, "setp.eq.u32 %%p%u, %%r2, 1;", p);
        gen_line(g, "@%%p%u red.global.add.u32 [%%rd%u], 1;", p, c);
    } else {
        gen_line(g, "@%%p0 atom.global.add.u32 %%r%u, [%%rd%u], 1;", was, c);
    }
    gen_wait(g, c, "ge", "%r1");
    done(g);
}

static void barrier_counted_down(struct gen *g)
{
    uint32_t c = word(g), was = gen_r(g), goal = gen_r(g);
    gen_line(g, "neg.s32 %%r%u, %%r1;", goal);
    gen_line(g, "@%%p0 atom.global.add.u32 %%r%u, [%%rd%u], -1;", was, c);
    char text[16];
    snprintf(text, sizeof text, "%%r%u", goal);
    gen_wait(g, c, "eq", text);
    done(g);
}

/* The last to come opens a gate. */
static void barrier_with_gate(struct gen *g)
{
    uint32_t c = word(g), gate = word(g), was = gen_r(g), p = gen_p(g), limit = gen_r(g),
             skip = gen_label(g);
    gen_line(g, "add.u32 %%r%u, %%r1, -1;", limit);
    gen_line(g, "@!%%p0 bra $L%u;", skip);
    gen_line(g, "atom.global.inc.u32 %%r%u, [%%rd%u], %%r%u;", was, c, limit);
    gen_line(g, "setp.eq.u32 %%p%u, %%r%u, %%r%u;", p, was, limit);
    gen_line(g, "@%%p%u st.volatile.global.u32 [%%rd%u], 1;", p, gate);
    gen_line(g, "$L%u:", skip);
    gen_wait(g, gate, "ne", "0");
    done(g);
}

/* Polled by adding and taking back, or by adding where nobody looks. */
static void barrier_polled_by_adding(struct gen *g)
{
    uint32_t c = word(g), v = gen_r(g), high = gen_r(g), was = gen_r(g), p = gen_p(g),
             again = gen_label(g), skip = gen_label(g), shift = gen_roll(g, 3);
    gen_line(g, "@!%%p0 bra $L%u;", skip);
    if (shift == 0) {
        gen_line(g, "red.global.add.u32 [%%rd%u], 1;", c);
        gen_line(g, "$L%u:", again);
        gen_line(g, "atom.global.add.u32 %%r%u, [%%rd%u], 1;", v, c);
        gen_line(g, "atom.global.add.u32 %%r%u, [%%rd%u], -1;", was, c);
        gen_line(g, "setp.lt.u32 %%p%u, %%r%u, %%r1;", p, v);
    } else {
        gen_line(g, "red.global.add.u32 [%%rd%u], 0x100000;", c);
        gen_line(g, "shl.b32 %%r%u, %%r1, 20;", high);
        gen_line(g, "$L%u:", again);
        gen_line(g, "atom.global.add.u32 %%r%u, [%%rd%u], 1;", v, c);
        if (shift == 1) {
            gen_line(g, "shr.u32 %%r%u, %%r%u, 20;", was, v);
            gen_line(g, "setp.lt.u32 %%p%u, %%r%u, %%r1;", p, was);
        } else { /* compared as it is: the counter does grow, but not by itself to there */
            gen_line(g, "setp.lt.u32 %%p%u, %%r%u, %%r%u;", p, v, high);
        }
    }
    gen_line(g, "@%%p%u bra $L%u;", p, again);
    gen_line(g, "$L%u:", skip);
    gen_line(g, "bar.sync 0;");
    done(g);
}

/* --- one block waits for another -------------------------------------------------------------- */

static void wait_for_next_block(struct gen *g)
{
    uint32_t flags = gen_flags(g, 16, true), own = gen_at(g, flags, 0), p = gen_p(g),
             other = gen_r(g), skip = gen_label(g);
    gen_signal(g, own, "1");
    switch (gen_roll(g, 3)) {
    case 0:
        gen_line(g, "add.u32 %%r%u, %%r0, 1;", other);
        gen_line(g, "setp.ge.u32 %%p%u, %%r%u, %%r1;", p, other);
        gen_line(g, "@%%p%u bra $L%u;", p, skip);
        break;
    case 1:
        gen_line(g, "mov.u32 %%r%u, %%r4;", other);
        break;
    default:
        gen_line(g, "add.u32 %%r%u, %%r0, 1;", other);
        gen_line(g, "rem.u32 %%r%u, %%r%u, %%r1;", other, other);
    }
    gen_wait(g, gen_at(g, flags, other), "ne", "0");
    gen_line(g, "$L%u:", skip);
    done(g);
}

/* The flag below one's own, but flags are in an order that a table gives: descending. */
static void wait_by_table(struct gen *g)
{
    uint32_t flags = gen_flags(g, 32, true), table = gen_array(g, 16, PTX_FILL_IOTA, false),
             at = gen_at(g, table, 4), twice = gen_r(g), index = gen_r(g), p = gen_p(g),
             skip = gen_label(g), own;
    gen_line(g, "ld.global.nc.u32 %%r%u, [%%rd%u];", twice, at);
    gen_line(g, "mad.lo.u32 %%r%u, %%r%u, 2, %%r0;", index, twice);
    own = gen_at(g, flags, index);
    gen_signal(g, own, "1");
    gen_line(g, "setp.eq.u32 %%p%u, %%r4, 0;", p);
    gen_line(g, "@%%p%u bra $L%u;", p, skip);
    gen_wait(g, gen_below(g, own), "ne", "0");
    gen_line(g, "$L%u:", skip);
    done(g);
}

/* Each thread waits for the flag below "its own", but only one thread of a block publishes. */
static void wait_by_thread(struct gen *g)
{
    uint32_t flags = gen_array(g, 64, PTX_FILL_ZERO, true), index = gen_r(g), p = gen_p(g),
             v = gen_r(g), q = gen_p(g), skip = gen_label(g), again = gen_label(g), own,
             below = gen_rd(g);
    if (g->threads < 4)
        g->threads = 4; /* the first two wait for their own block and the one before */
    gen_line(g, "add.u32 %%r%u, %%r0, %%r2;", index);
    own = gen_at(g, flags, index);
    gen_line(g, "@%%p0 st.volatile.global.u32 [%%rd%u], 1;", own);
    gen_line(g, "add.s64 %%rd%u, %%rd%u, -4;", below, own);
    gen_line(g, "setp.gt.u32 %%p%u, %%r%u, %%r1;", p, index);
    gen_line(g, "setp.eq.or.u32 %%p%u, %%r%u, 0, %%p%u;", p, index, p);
    gen_line(g, "@%%p%u bra $L%u;", p, skip);
    gen_line(g, "$L%u:", again);
    gen_line(g, "ld.volatile.global.u32 %%r%u, [%%rd%u];", v, below);
    gen_line(g, "setp.eq.u32 %%p%u, %%r%u, 0;", q, v);
    gen_line(g, "@%%p%u bra $L%u;", q, again);
    gen_line(g, "$L%u:", skip);
    gen_line(g, "bar.sync 0;");
    done(g);
}

/* --- tokens and locks ------------------------------------------------------------------------- */

/* The last block posts a token that the others wait for by swapping. */
static void token_by_swapping(struct gen *g)
{
    uint32_t tok = word(g), v = gen_r(g), want = gen_r(g), p = gen_p(g), q = gen_p(g),
             again = gen_label(g), out = gen_label(g), last = gen_p(g), never = gen_p(g);
    gen_line(g, "setp.eq.u32 %%p%u, %%r4, 0;", last);
    gen_line(g, "@!%%p0 bra $L%u;", out);
    gen_line(g, "@%%p%u st.volatile.global.u32 [%%rd%u], 5;", last, tok);
    gen_line(g, "add.u32 %%r%u, %%r3, 5;", want);
    gen_line(g, "$L%u:", again);
    switch (gen_roll(g, 4)) {
    case 0:
        gen_line(g, "atom.global.cas.b32 %%r%u, [%%rd%u], 5, 5;", v, tok);
        gen_line(g, "setp.ne.u32 %%p%u, %%r%u, 5;", p, v);
        break;
    case 1: /* the compared value is looked at again only where that never happens */
        gen_line(g, "atom.global.cas.b32 %%r%u, [%%rd%u], %%r%u, 5;", v, tok, want);
        gen_line(g, "setp.eq.u32 %%p%u, %%r%u, %%r%u;", q, v, want);
        gen_line(g, "@%%p%u bra $L%u;", q, out);
        gen_line(g, "setp.ne.u32 %%p%u, %%r%u, 77;", never, v);
        gen_line(g, "@%%p%u bra $L%u;", never, again);
        gen_line(g, "mov.u32 %%r%u, %%r%u;", want, v);
        gen_line(g, "bra.uni $L%u;", again);
        gen_line(g, "setp.ne.u32 %%p%u, %%r3, 0;", p);
        break;
    case 2: /* what is compared with is computed from what was seen */
        gen_line(g, "max.u32 %%r%u, %%r%u, 5;", want, want);
        gen_line(g, "atom.global.cas.b32 %%r%u, [%%rd%u], %%r%u, 5;", v, tok, want);
        gen_line(g, "setp.ne.u32 %%p%u, %%r%u, %%r%u;", p, v, want);
        gen_line(g, "mov.u32 %%r%u, %%r%u;", want, v);
        break;
    default:
        gen_line(g, "or.b32 %%r%u, %%r%u, 5;", want, want);
        gen_line(g, "atom.global.cas.b32 %%r%u, [%%rd%u], %%r%u, 5;", v, tok, want);
        gen_line(g, "setp.ne.u32 %%p%u, %%r%u, %%r%u;", p, v, want);
        gen_line(g, "mov.u32 %%r%u, %%r%u;", want, v);
    }
    gen_line(g, "@%%p%u bra $L%u;", p, again);
    gen_line(g, "$L%u:", out);
    gen_line(g, "bar.sync 0;");
    done(g);
}

/* A lock that is taken when the launch begins, and that the last block gives free first. */
static void lock_given_free(struct gen *g)
{
    uint32_t lock = word(g), v = gen_r(g), p = gen_p(g), again = gen_label(g), got = gen_label(g),
             skip = gen_label(g), last = gen_p(g), how = gen_roll(g, 3), was = gen_r(g);
    gen_line(g, "setp.eq.u32 %%p%u, %%r4, 0;", last);
    gen_line(g, "@!%%p0 bra $L%u;", skip);
    if (how == 0)
        gen_line(g, "@%%p%u bra $L%u;", last, got);
    gen_line(g, "$L%u:", again);
    if (gen_roll(g, 2))
        gen_line(g, "atom.global.cas.b32 %%r%u, [%%rd%u], 1, 0;", v, lock);
    else
        gen_line(g, "atom.global.exch.b32 %%r%u, [%%rd%u], 0;", v, lock);
    gen_line(g, "setp.eq.u32 %%p%u, %%r%u, 1;", p, v);
    gen_line(g, "@%%p%u bra $L%u;", p, got);
    if (how == 1) /* it leaves the loop without having got it */
        gen_line(g, "@%%p%u bra $L%u;", last, got);
    if (how == 2) {
        uint32_t other = gen_label(g);
        gen_line(g, "@!%%p%u bra $L%u;", last, other);
        gen_line(g, "st.global.u32 [%%rd%u], 1;", lock);
        gen_line(g, "$L%u:", other);
    }
    gen_line(g, "bra.uni $L%u;", again);
    gen_line(g, "$L%u:", got);
    gen_line(g, "membar.gl;");
    if (gen_roll(g, 2))
        gen_line(g, "st.global.u32 [%%rd%u], 1;", lock);
    else
        gen_line(g, "atom.global.exch.b32 %%r%u, [%%rd%u], 1;", was, lock);
    gen_line(g, "$L%u:", skip);
    gen_line(g, "bar.sync 0;");
    done(g);
}

/* --- turns and queues ------------------------------------------------------------------------- */

static void turns_in_reverse(struct gen *g)
{
    uint32_t turn = word(g), next = gen_r(g);
    char text[16];
    gen_wait(g, turn, "eq", "%r4");
    gen_line(g, "add.u32 %%r%u, %%r4, 1;", next);
    snprintf(text, sizeof text, "%%r%u", next);
    gen_signal(g, turn, text);
    done(g);
}

/* Turns in order, but the number for which the first waits comes from the last. */
static void turns_opened_by_last(struct gen *g)
{
    uint32_t turn = word(g), own = gen_r(g), next = gen_r(g), last = gen_p(g), p = gen_p(g),
             v = gen_r(g), skip = gen_label(g), again = gen_label(g);
    gen_line(g, "setp.eq.u32 %%p%u, %%r4, 0;", last);
    gen_line(g, "add.u32 %%r%u, %%r0, 1;", own);
    gen_line(g, "add.u32 %%r%u, %%r0, 2;", next);
    gen_line(g, "@!%%p0 bra $L%u;", skip);
    if (gen_roll(g, 2)) {
        uint32_t other = gen_label(g);
        gen_line(g, "@!%%p%u bra $L%u;", last, other);
        gen_line(g, "st.volatile.global.u32 [%%rd%u], 1;", turn);
        gen_line(g, "bra.uni $L%u;", skip);
        gen_line(g, "$L%u:", other);
    } else {
        gen_line(g, "selp.b32 %%r%u, 1, %%r%u, %%p%u;", next, next, last);
        uint32_t other = gen_label(g);
        gen_line(g, "@%%p%u bra $L%u;", last, other);
        gen_line(g, "$L%u:", again);
        gen_line(g, "ld.volatile.global.u32 %%r%u, [%%rd%u];", v, turn);
        gen_line(g, "setp.ne.u32 %%p%u, %%r%u, %%r%u;", p, v, own);
        gen_line(g, "@%%p%u bra $L%u;", p, again);
        gen_line(g, "$L%u:", other);
        gen_line(g, "st.volatile.global.u32 [%%rd%u], %%r%u;", turn, next);
        gen_line(g, "bra.uni $L%u;", skip);
        again = gen_label(g);
    }
    gen_line(g, "$L%u:", again);
    gen_line(g, "ld.volatile.global.u32 %%r%u, [%%rd%u];", v, turn);
    gen_line(g, "setp.ne.u32 %%p%u, %%r%u, %%r%u;", p, v, own);
    gen_line(g, "@%%p%u bra $L%u;", p, again);
    gen_line(g, "st.volatile.global.u32 [%%rd%u], %%r%u;", turn, next);
    gen_line(g, "$L%u:", skip);
    gen_line(g, "bar.sync 0;");
    done(g);
}

/* Takers come first, the block that fills the queue last. */
static void queue_filled_late(struct gen *g)
{
    uint32_t head = word(g), tail = gen_flags(g, 4, true),
             items = gen_array(g, 16, PTX_FILL_ZERO, true), mine = gen_r(g), last = gen_p(g),
             taker = gen_label(g), end = gen_label(g), value = gen_r(g), own = gen_at(g, items, 0);
    char text[16];
    gen_line(g, "setp.eq.u32 %%p%u, %%r4, 0;", last);
    gen_line(g, "@!%%p%u bra $L%u;", last, taker);
    gen_line(g, "@%%p0 st.global.u32 [%%rd%u], 3;", own);
    gen_line(g, "membar.gl;");
    gen_signal(g, tail, "%r1");
    gen_line(g, "bra.uni $L%u;", end);
    gen_line(g, "$L%u:", taker);
    gen_line(g, "mov.u32 %%r%u, 0;", mine);
    gen_line(g, "@%%p0 atom.global.add.u32 %%r%u, [%%rd%u], 1;", mine, head);
    gen_line(g, "add.u32 %%r%u, %%r%u, 1;", value, mine);
    snprintf(text, sizeof text, "%%r%u", value);
    gen_wait(g, tail, "ge", text);
    gen_line(g, "$L%u:", end);
    done(g);
}

/* One thread copies the word into shared memory, for so long and no longer; another spins on
 * that. */
static void told_with_patience(struct gen *g)
{
    uint32_t flag = word(g), p = gen_p(g), v = gen_r(g), round = gen_r(g), copy = gen_label(g),
             skip = gen_label(g), spin = gen_label(g), end = gen_label(g), last = gen_p(g),
             seen = gen_r(g);
    gen_line(g, "setp.eq.u32 %%p%u, %%r4, 0;", last);
    gen_line(g, "@%%p%u st.volatile.global.u32 [%%rd%u], 1;", last, flag);
    gen_line(g, "@%%p0 st.shared.u32 [told], 0;");
    gen_line(g, "bar.sync 0;");
    gen_line(g, "setp.eq.u32 %%p%u, %%r2, 0;", p);
    gen_line(g, "@%%p%u bra $L%u;", p, spin);
    gen_line(g, "mov.u32 %%r%u, 0;", round);
    gen_line(g, "$L%u:", copy);
    gen_line(g, "ld.volatile.global.u32 %%r%u, [%%rd%u];", v, flag);
    gen_line(g, "st.volatile.shared.u32 [told], %%r%u;", v);
    gen_line(g, "add.u32 %%r%u, %%r%u, 1;", round, round);
    gen_line(g, "setp.lt.u32 %%p%u, %%r%u, 500;", p, round);
    gen_line(g, "@%%p%u bra $L%u;", p, copy);
    gen_line(g, "bra.uni $L%u;", end);
    gen_line(g, "$L%u:", spin);
    gen_line(g, "setp.lt.u32 %%p%u, %%r2, %%r3;", p);
    if (g->threads == 1) { /* nobody to copy: the word itself */
        gen_line(g, "ld.volatile.global.u32 %%r%u, [%%rd%u];", seen, flag);
    } else {
        gen_line(g, "ld.volatile.shared.u32 %%r%u, [told];", seen);
    }
    gen_line(g, "setp.eq.u32 %%p%u, %%r%u, 0;", p, seen);
    gen_line(g, "@%%p%u bra $L%u;", p, spin);
    gen_line(g, "$L%u:", end);
    gen_line(g, "bar.sync 0;");
    gen_line(g, "$L%u:", skip);
    done(g);
}

const struct gen_kind gen_harmful[] = {
    {"barrier: all count, all read", barrier_by_reading},
    {"barrier: counted down", barrier_counted_down},
    {"barrier: the last opens a gate", barrier_with_gate},
    {"barrier: polled by adding", barrier_polled_by_adding},
    {"waits for a later block", wait_for_next_block},
    {"waits below its own place in a table", wait_by_table},
    {"waits below its thread's place", wait_by_thread},
    {"token of the last block, by swapping", token_by_swapping},
    {"lock that another gives free", lock_given_free},
    {"turns in reverse", turns_in_reverse},
    {"turns that the last one opens", turns_opened_by_last},
    {"queue that the last one fills", queue_filled_late},
    {"told by a copier with patience", told_with_patience},
};
const uint32_t gen_n_harmful = sizeof gen_harmful / sizeof gen_harmful[0];
