/* Stages that need no block but those that have started.  See generate.h. */
#include <stdio.h>

#include "test/unit/ptx_rewrite/generate_internal.h"

static uint32_t sum_to(uint32_t n)
{
    return n * (n + 1) / 2;
}

/* A lock around a plain update. */
static void lock(struct gen *g)
{
    uint32_t words = gen_array(g, 4, PTX_FILL_ZERO, false), v = gen_r(g), p = gen_p(g),
             was = gen_r(g), again = gen_label(g), skip = gen_label(g), sum = gen_r(g),
             free = gen_roll(g, 2);
    char at[32];
    if (free != 0) { /* words begin with zero: free is zero then */
        free = 0;
        gen_line(g, "@!%%p0 bra $L%u;", skip);
    } else {
        gen_line(g, "setp.ne.u32 %%p%u, %%r2, 0;", p);
        gen_line(g, "@%%p%u bra $L%u;", p, skip);
    }
    gen_line(g, "$L%u:", again);
    if (gen_roll(g, 2))
        gen_line(g, "atom.global.cas.b32 %%r%u, [%%rd%u], 0, 1;", v, words);
    else
        gen_line(g, "atom.global.exch.b32 %%r%u, [%%rd%u], 1;", v, words);
    if (gen_roll(g, 3) == 0)
        gen_line(g, "nanosleep.u32 50;");
    gen_line(g, "setp.ne.u32 %%p%u, %%r%u, 0;", p, v);
    gen_line(g, "@%%p%u bra $L%u;", p, again);
    gen_line(g, "membar.gl;");
    snprintf(at, sizeof at, "[%%rd0+%u]", g->slot * 4);
    gen_line(g, "ld.volatile.global.u32 %%r%u, %s;", sum, at);
    gen_line(g, "add.u32 %%r%u, %%r%u, %%r0;", sum, sum);
    gen_line(g, "add.u32 %%r%u, %%r%u, 1;", sum, sum);
    gen_line(g, "st.volatile.global.u32 %s, %%r%u;", at, sum);
    gen_line(g, "membar.gl;");
    if (gen_roll(g, 2))
        gen_line(g, "st.global.u32 [%%rd%u], 0;", words);
    else
        gen_line(g, "atom.global.exch.b32 %%r%u, [%%rd%u], 0;", was, words);
    gen_line(g, "$L%u:", skip);
    gen_expect(g, 0, sum_to(g->blocks));
}

static void ticket(struct gen *g)
{
    uint32_t counter = gen_array(g, 4, PTX_FILL_ZERO, false), t = gen_r(g), v = gen_r(g);
    char index[16], value[16];
    gen_line(g, "mov.u32 %%r%u, 0;", t);
    gen_line(g, "@%%p0 atom.global.add.u32 %%r%u, [%%rd%u], 1;", t, counter);
    gen_line(g, "mad.lo.u32 %%r%u, %%r%u, 3, 1;", v, t);
    snprintf(index, sizeof index, "%%r%u", t);
    snprintf(value, sizeof value, "%%r%u", v);
    gen_result(g, index, value);
    for (uint32_t i = 0; i < g->blocks; i++)
        gen_expect(g, i, i * 3 + 1);
}

/* The last block to come sums up what all have left. */
static void last_block(struct gen *g)
{
    uint32_t parts = gen_array(g, 16, PTX_FILL_ZERO, false),
             counter = gen_array(g, 4, PTX_FILL_ZERO, true), own = gen_at(g, parts, 0),
             v = gen_r(g), t = gen_r(g), p = gen_p(g), skip = gen_label(g), again = gen_label(g),
             sum = gen_r(g), k = gen_r(g), limit = gen_r(g), walk = gen_rd(g);
    char value[16];
    gen_line(g, "@!%%p0 bra $L%u;", skip);
    gen_line(g, "add.u32 %%r%u, %%r0, 1;", v);
    gen_line(g, "st.global.u32 [%%rd%u], %%r%u;", own, v);
    gen_line(g, "membar.gl;");
    gen_line(g, "add.u32 %%r%u, %%r1, -1;", limit);
    if (gen_roll(g, 2))
        gen_line(g, "atom.global.add.u32 %%r%u, [%%rd%u], 1;", t, counter);
    else
        gen_line(g, "atom.global.inc.u32 %%r%u, [%%rd%u], %%r%u;", t, counter, limit);
    gen_line(g, "setp.ne.u32 %%p%u, %%r%u, %%r%u;", p, t, limit);
    gen_line(g, "@%%p%u bra $L%u;", p, skip);
    gen_line(g, "mov.u32 %%r%u, 0;", sum);
    gen_line(g, "mov.u32 %%r%u, 0;", k);
    gen_line(g, "mov.u64 %%rd%u, %%rd%u;", walk, parts);
    gen_line(g, "$L%u:", again);
    gen_line(g, "ld.volatile.global.u32 %%r%u, [%%rd%u];", v, walk);
    gen_line(g, "add.u32 %%r%u, %%r%u, %%r%u;", sum, sum, v);
    gen_line(g, "add.s64 %%rd%u, %%rd%u, 4;", walk, walk);
    gen_line(g, "add.u32 %%r%u, %%r%u, 1;", k, k);
    gen_line(g, "setp.lt.u32 %%p%u, %%r%u, %%r1;", p, k);
    gen_line(g, "@%%p%u bra $L%u;", p, again);
    snprintf(value, sizeof value, "%%r%u", sum);
    gen_result(g, "%r3", value);
    gen_line(g, "$L%u:", skip);
    gen_expect(g, 0, sum_to(g->blocks));
}

/* Sums up to its own block, each from the one before it; by number or by ticket. */
static void look_back(struct gen *g)
{
    uint32_t flags = gen_flags(g, 16, false), me = gen_r(g), p = gen_p(g), sum = gen_r(g),
             first = gen_label(g), v, own, got = gen_r(g);
    bool by_ticket = gen_roll(g, 2);
    char value[16], index[16];
    if (by_ticket) {
        uint32_t counter = gen_array(g, 4, PTX_FILL_ZERO, false), t = gen_r(g);
        gen_line(g, "@%%p0 atom.global.add.u32 %%r%u, [%%rd%u], 1;", t, counter);
        gen_line(g, "@%%p0 st.shared.u32 [told], %%r%u;", t);
        gen_line(g, "bar.sync 0;");
        gen_line(g, "ld.shared.u32 %%r%u, [told];", me);
        gen_line(g, "bar.sync 0;");
    } else {
        gen_line(g, "mov.u32 %%r%u, %%r0;", me);
    }
    own = gen_at(g, flags, me);
    gen_line(g, "mov.u32 %%r%u, 1;", got);
    gen_line(g, "setp.eq.u32 %%p%u, %%r%u, 0;", p, me);
    gen_line(g, "@%%p%u bra $L%u;", p, first);
    v = gen_wait(g, gen_below(g, own), "ne", "0");
    gen_line(g, "mov.u32 %%r%u, %%r%u;", got, v);
    gen_line(g, "$L%u:", first);
    gen_line(g, "add.u32 %%r%u, %%r%u, %%r%u;", sum, got, me);
    snprintf(value, sizeof value, "%%r%u", sum);
    gen_signal(g, own, value);
    snprintf(index, sizeof index, "%%r%u", me);
    gen_result(g, index, value);
    for (uint32_t i = 0; i < g->blocks; i++)
        gen_expect(g, i, 1 + sum_to(i));
}

/* Adds by comparing and swapping. */
static void swap_update(struct gen *g)
{
    uint32_t seen = gen_r(g), was = gen_r(g), next = gen_r(g), p = gen_p(g), again = gen_label(g),
             skip = gen_label(g);
    char at[32];
    snprintf(at, sizeof at, "[%%rd0+%u]", g->slot * 4);
    gen_line(g, "@!%%p0 bra $L%u;", skip);
    gen_line(g, "ld.global.u32 %%r%u, %s;", seen, at);
    gen_line(g, "$L%u:", again);
    gen_line(g, "add.u32 %%r%u, %%r%u, %%r0;", next, seen);
    gen_line(g, "add.u32 %%r%u, %%r%u, 1;", next, next);
    gen_line(g, "atom.global.cas.b32 %%r%u, %s, %%r%u, %%r%u;", was, at, seen, next);
    gen_line(g, "setp.ne.u32 %%p%u, %%r%u, %%r%u;", p, was, seen);
    gen_line(g, "mov.u32 %%r%u, %%r%u;", seen, was);
    gen_line(g, "@%%p%u bra $L%u;", p, again);
    gen_line(g, "$L%u:", skip);
    gen_expect(g, 0, sum_to(g->blocks));
}

/* Work that was there before, taken piece by piece. */
static void work_queue(struct gen *g)
{
    uint32_t head = gen_array(g, 4, PTX_FILL_ZERO, true), t = gen_r(g), p = gen_p(g),
             again = gen_label(g), out = gen_label(g), v = gen_r(g), step = 1 + gen_roll(g, 2);
    char index[16], value[16];
    gen_line(g, "@!%%p0 bra $L%u;", out);
    gen_line(g, "$L%u:", again);
    gen_line(g, "atom.global.add.u32 %%r%u, [%%rd%u], %u;", t, head, step);
    gen_line(g, "setp.ge.u32 %%p%u, %%r%u, 10;", p, t);
    gen_line(g, "@%%p%u bra $L%u;", p, out);
    gen_line(g, "add.u32 %%r%u, %%r%u, 5;", v, t);
    snprintf(index, sizeof index, "%%r%u", t);
    snprintf(value, sizeof value, "%%r%u", v);
    gen_result(g, index, value);
    gen_line(g, "bra.uni $L%u;", again);
    gen_line(g, "$L%u:", out);
    for (uint32_t i = 0; i < 10; i += step)
        gen_expect(g, i, i + 5);
}

/* In the order of block numbers; the last one may set the word back. */
static void turns(struct gen *g)
{
    uint32_t turn = gen_flags(g, 4, true), next = gen_r(g), v = gen_r(g), p = gen_p(g);
    uint32_t want = 0;
    char text[16], at[32];
    gen_wait(g, turn, "eq", "%r0");
    snprintf(at, sizeof at, "[%%rd0+%u]", g->slot * 4);
    gen_line(g, "ld.volatile.global.u32 %%r%u, %s;", v, at);
    gen_line(g, "mad.lo.u32 %%r%u, %%r%u, 3, %%r0;", v, v);
    gen_line(g, "bar.sync 0;");
    gen_line(g, "@%%p0 st.volatile.global.u32 %s, %%r%u;", at, v);
    gen_line(g, "add.u32 %%r%u, %%r0, 1;", next);
    if (gen_roll(g, 2)) {
        gen_line(g, "setp.eq.u32 %%p%u, %%r4, 0;", p);
        gen_line(g, "selp.b32 %%r%u, 0, %%r%u, %%p%u;", next, next, p);
    }
    snprintf(text, sizeof text, "%%r%u", next);
    gen_line(g, "membar.gl;");
    gen_signal(g, turn, text);
    for (uint32_t i = 0; i < g->blocks; i++)
        want = want * 3 + i;
    gen_expect(g, 0, want);
}

/* Puts its key into a table, where there is room. */
static void hash_table(struct gen *g)
{
    uint32_t table = gen_array(g, 16, PTX_FILL_ZERO, true), key = gen_r(g), h = gen_r(g),
             v = gen_r(g), p = gen_p(g), q = gen_p(g), again = gen_label(g), out = gen_label(g);
    gen_line(g, "add.u32 %%r%u, %%r0, 1;", key);
    gen_line(g, "and.b32 %%r%u, %%r0, 1;", h);
    gen_line(g, "@!%%p0 bra $L%u;", out);
    gen_line(g, "$L%u:", again);
    uint32_t at = gen_at(g, table, h);
    gen_line(g, "atom.global.cas.b32 %%r%u, [%%rd%u], 0, %%r%u;", v, at, key);
    gen_line(g, "setp.eq.u32 %%p%u, %%r%u, 0;", p, v);
    gen_line(g, "@%%p%u bra $L%u;", p, out);
    gen_line(g, "setp.eq.u32 %%p%u, %%r%u, %%r%u;", q, v, key);
    gen_line(g, "@%%p%u bra $L%u;", q, out);
    gen_line(g, "add.u32 %%r%u, %%r%u, 1;", h, h);
    gen_line(g, "and.b32 %%r%u, %%r%u, 15;", h, h);
    gen_line(g, "bra.uni $L%u;", again);
    gen_line(g, "$L%u:", out);
    gen_result(g, "%r0", "1");
    for (uint32_t i = 0; i < g->blocks; i++)
        gen_expect(g, i, 1);
}

/* Looks for a number in an array that the kernel also writes, elsewhere. */
static void search(struct gen *g)
{
    uint32_t data = gen_array(g, 32, PTX_FILL_IOTA, false), k = gen_r(g), v = gen_r(g),
             p = gen_p(g), q = gen_p(g), again = gen_label(g), out = gen_label(g), walk = gen_rd(g),
             own = gen_at(g, data, 0);
    char value[16];
    gen_line(g, "@%%p0 st.global.u32 [%%rd%u+64], 99;", own);
    gen_line(g, "mov.u32 %%r%u, 0;", k);
    gen_line(g, "mov.u64 %%rd%u, %%rd%u;", walk, data);
    gen_line(g, "$L%u:", again);
    gen_line(g, "%s.u32 %%r%u, [%%rd%u];", gen_roll(g, 2) ? "ld.global" : "ld.volatile.global", v,
             walk);
    gen_line(g, "setp.eq.u32 %%p%u, %%r%u, %%r0;", p, v);
    gen_line(g, "@%%p%u bra $L%u;", p, out);
    gen_line(g, "add.s64 %%rd%u, %%rd%u, 4;", walk, walk);
    gen_line(g, "add.u32 %%r%u, %%r%u, 1;", k, k);
    gen_line(g, "setp.lt.u32 %%p%u, %%r%u, 16;", q, k);
    gen_line(g, "@%%p%u bra $L%u;", q, again);
    gen_line(g, "$L%u:", out);
    snprintf(value, sizeof value, "%%r%u", k);
    gen_result(g, "%r0", value);
    for (uint32_t i = 0; i < g->blocks; i++)
        gen_expect(g, i, i);
}

/* Sums up numbers that nobody writes, each read by a texture, a surface load or a copy. */
static void sum_by_image_or_copy(struct gen *g)
{
    uint32_t how = gen_roll(g, 3), k = gen_r(g), v = gen_r(g), p = gen_p(g), sum = gen_r(g),
             again = gen_label(g), walk,
             data = how == 0 ? gen_surface(g, 16, PTX_FILL_IOTA, false)
                             : gen_array(g, 16, PTX_FILL_IOTA, false);
    char value[16];
    gen_line(g, "mov.u32 %%r%u, 0;", sum);
    gen_line(g, "mov.u32 %%r%u, 0;", k);
    gen_line(g, "$L%u:", again);
    walk = gen_at(g, data, k);
    gen_read_unusually(g, v, walk, how != 1);
    gen_line(g, "add.u32 %%r%u, %%r%u, %%r%u;", sum, sum, v);
    gen_line(g, "add.u32 %%r%u, %%r%u, 1;", k, k);
    gen_line(g, "setp.lt.u32 %%p%u, %%r%u, 16;", p, k);
    gen_line(g, "@%%p%u bra $L%u;", p, again);
    snprintf(value, sizeof value, "%%r%u", sum);
    gen_result(g, "%r0", value);
    for (uint32_t i = 0; i < g->blocks; i++)
        gen_expect(g, i, sum_to(15));
}

/* A word of shared memory is used, and then overwritten by a copy that nobody waits for: it must
 * not land while the next block uses that word. */
static void copy_left_behind(struct gen *g)
{
    uint32_t data = gen_array(g, 16, PTX_FILL_IOTA, false), v = gen_r(g), at = gen_r(g);
    char value[16];
    gen_line(g, "mov.u32 %%r%u, left;", at);
    gen_line(g, "mad.lo.u32 %%r%u, %%r2, 4, %%r%u;", at, at);
    if (g->leaves_copy) /* of the block itself: that one must have landed */
        gen_line(g, "cp.async.wait_all;");
    gen_line(g, "add.u32 %%r%u, %%r0, 100;", v);
    gen_line(g, "st.shared.u32 [%%r%u], %%r%u;", at, v);
    gen_line(g, "bar.sync 0;");
    gen_line(g, "ld.shared.u32 %%r%u, [%%r%u];", v, at);
    gen_line(g, "cp.async.ca.shared.global [%%r%u], [%%rd%u], 4;", at, data);
    g->leaves_copy = g->g->is_unusual = true;
    snprintf(value, sizeof value, "%%r%u", v);
    gen_result(g, "%r0", value);
    for (uint32_t i = 0; i < g->blocks; i++)
        gen_expect(g, i, i + 100);
}

/* Each block writes its place of a surface, and reads it again. */
static void own_place_of_surface(struct gen *g)
{
    uint32_t data = gen_surface(g, 16, PTX_FILL_ZERO, false), own = gen_at(g, data, 0),
             v = gen_r(g), n = gen_r(g), skip = gen_label(g);
    char value[16];
    gen_line(g, "mad.lo.u32 %%r%u, %%r0, 5, 2;", n);
    snprintf(value, sizeof value, "%%r%u", n);
    gen_signal(g, own, value);
    gen_line(g, "@!%%p0 bra $L%u;", skip);
    gen_read_unusually(g, v, own, false);
    snprintf(value, sizeof value, "%%r%u", v);
    gen_result(g, "%r0", value);
    gen_line(g, "$L%u:", skip);
    for (uint32_t i = 0; i < g->blocks; i++)
        gen_expect(g, i, i * 5 + 2);
}

/* The threads of a block meet at an mbarrier, and hand a number on. */
static void meeting(struct gen *g)
{
    uint32_t state = gen_rd(g), p = gen_p(g), again = gen_label(g), n = gen_r(g), v = gen_r(g),
             last = gen_p(g);
    char value[16];
    g->uses_meeting = g->g->is_unusual = true;
    gen_line(g, "mov.u32 %%r%u, %%ntid.x;", n);
    gen_line(g, "@%%p0 mbarrier.init.shared.b64 [meeting], %%r%u;", n);
    gen_line(g, "bar.sync 0;");
    gen_line(g, "add.u32 %%r%u, %%r%u, -1;", n, n);
    gen_line(g, "setp.eq.u32 %%p%u, %%r2, %%r%u;", last, n);
    gen_line(g, "mad.lo.u32 %%r%u, %%r0, 7, 3;", v);
    gen_line(g, "@%%p%u st.shared.u32 [told], %%r%u;", last, v);
    gen_line(g, "mbarrier.arrive.shared.b64 %%rd%u, [meeting];", state);
    gen_line(g, "$L%u:", again);
    gen_line(g, "mbarrier.%s.shared.b64 %%p%u, [meeting], %%rd%u;",
             gen_roll(g, 2) ? "test_wait" : "try_wait", p, state);
    gen_line(g, "@!%%p%u bra $L%u;", p, again);
    gen_line(g, "ld.shared.u32 %%r%u, [told];", v);
    gen_line(g, "bar.sync 0;");
    gen_line(g, "@%%p0 mbarrier.inval.shared.b64 [meeting];");
    gen_line(g, "bar.sync 0;");
    snprintf(value, sizeof value, "%%r%u", v);
    gen_result(g, "%r0", value);
    for (uint32_t i = 0; i < g->blocks; i++)
        gen_expect(g, i, i * 7 + 3);
}

const struct gen_kind gen_harmless[] = {
    {"lock", lock},
    {"ticket", ticket},
    {"sum by the last block", last_block},
    {"look-back", look_back},
    {"update by swapping", swap_update},
    {"work queue filled before", work_queue},
    {"turns", turns},
    {"hash table", hash_table},
    {"bounded search", search},
    {"sum by images or copies", sum_by_image_or_copy},
    {"copy that is left behind", copy_left_behind},
    {"own place of a surface", own_place_of_surface},
    {"meeting at an mbarrier", meeting},
};
const uint32_t gen_n_harmless = sizeof gen_harmless / sizeof gen_harmless[0];
