/* Textures, surfaces, asynchronous copies and mbarriers.  See interpret.h.
 *
 * Copies are made when they are begun, or later, as the seed says: at any time, at the latest when
 * the thread waits for them, asks an mbarrier or ends.  An mbarrier is a word of shared memory with
 * arrivals that it waits for (pending), how many it will wait for (expected), and a phase. */
#include <string.h>

#include "test/unit/ptx_rewrite/interpret_internal.h"

/* --- images ----------------------------------------------------------------------------------- */

void ptx_access_image(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *address = ptx_address_operand(s);
    bool is_store = f->op == TL_OP_sust, is_texture = f->op == TL_OP_tex;
    if (address == NULL || address->n != 2 || !tl_ptx_form_has_text(f, "1d") ||
        s->n_operands != 2 || ptx_type_of(f, 0).bits != 32) {
        ptx_fail(t, PTX_UNKNOWN, "image");
        return;
    }
    const struct tl_ptx_operand *at = &address->elems[1], *data = &s->inst.operands[is_store];
    at = at->kind == TL_OPD_VEC ? &at->elems[0] : at;
    /* textures count in words, surfaces in bytes */
    uint64_t x = (uint32_t)ptx_value(t, at) * (is_texture ? 4ull : 1ull);
    uint8_t *p = ptx_memory_at(t, TL_MOD_global, ptx_value(t, &address->elems[0]) + x, 4);
    uint32_t n = data->kind == TL_OPD_VEC ? data->n : 1;
    if (p == NULL || (n != 1 && !is_texture)) {
        ptx_fail(t, PTX_UNKNOWN, "image");
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct tl_ptx_operand *one = data->kind == TL_OPD_VEC ? &data->elems[i] : data;
        if (is_store)
            ptx_put(t, p, ptx_value(t, one), 4);
        else
            ptx_give(t, one, i == 0 ? ptx_load((struct type){32, false, false}, p) : 0);
    }
}

/* --- mbarriers -------------------------------------------------------------------------------- */

enum { COUNT_BITS = 20, COUNT_MASK = (1 << COUNT_BITS) - 1 };

static uint64_t barrier_word(uint64_t phase, uint64_t expected, uint64_t pending)
{
    return phase << 63 | expected << COUNT_BITS | pending;
}

static void arrive(struct thread *t, uint64_t address, uint64_t count)
{
    uint8_t *p = ptx_memory_at(t, TL_MOD_shared, address, 8);
    uint64_t word = p != NULL ? ptx_load((struct type){64, false, false}, p) : 0;
    uint64_t phase = word >> 63, expected = word >> COUNT_BITS & COUNT_MASK,
             pending = word & COUNT_MASK;
    if (p == NULL || count == 0 || count > pending) {
        ptx_fail(t, PTX_FAULT, "more arrivals than an mbarrier waits for");
        return;
    }
    pending -= count;
    if (pending == 0)
        ptx_put(t, p, barrier_word(phase ^ 1, expected, expected), 8);
    else
        ptx_put(t, p, barrier_word(phase, expected, pending), 8);
}

void ptx_meet(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *address = ptx_address_operand(s), *o = s->inst.operands;
    uint64_t at = address != NULL && address->n == 1
                      ? ptx_value(t, &address->elems[0]) +
                            (uint64_t)(address->has_offset ? address->offset : 0)
                      : UINT64_MAX;
    uint8_t *p = ptx_memory_at(t, TL_MOD_shared, at, 8);
    if (p == NULL || tl_ptx_form_space(f) != TL_MOD_shared)
        return;
    uint64_t word = ptx_load((struct type){64, false, false}, p);
    if (tl_ptx_form_has_text(f, "init")) {
        uint64_t n = ptx_value(t, &o[1]);
        ptx_put(t, p, barrier_word(0, n, n), 8);
    } else if (tl_ptx_form_has_text(f, "arrive")) {
        ptx_give(t, &o[0], word);
        arrive(t, at, s->n_operands > 2 ? ptx_value(t, &o[2]) : 1);
    } else if (tl_ptx_form_has(f, TL_MOD_test_wait) || tl_ptx_form_has(f, TL_MOD_try_wait)) {
        ptx_end_copies(t, 0);
        word = ptx_load((struct type){64, false, false}, p);
        uint64_t awaited = ptx_value(t, &o[2]);
        awaited = tl_ptx_form_has_text(f, "parity") ? awaited & 1 : awaited >> 63;
        ptx_give(t, &o[0], word >> 63 != awaited);
    } else if (!tl_ptx_form_has_text(f, "inval")) {
        ptx_fail(t, PTX_UNKNOWN, "mbarrier");
    }
}

/* --- copies ----------------------------------------------------------------------------------- */

void ptx_end_copies(struct thread *t, uint32_t leave_groups)
{
    uint32_t done = 0;
    while (done < t->n_copies && t->copies[done].group + leave_groups < t->n_groups + 1) {
        uint64_t v = 0;
        if (t->copies[done].bytes == 0) {
            arrive(t, t->copies[done].to, 1);
        } else {
            const uint8_t *from = ptx_memory_at(t, TL_MOD_global, t->copies[done].from,
                                                t->copies[done].bytes);
            uint8_t *to = ptx_memory_at(t, TL_MOD_shared, t->copies[done].to,
                                        t->copies[done].bytes);
            if (from == NULL || to == NULL)
                return;
            memcpy(&v, from, t->copies[done].bytes);
            ptx_put(t, to, v, t->copies[done].bytes);
        }
        done++;
    }
    t->n_copies -= done;
    memmove(t->copies, t->copies + done, t->n_copies * sizeof t->copies[0]);
}

static void begin_copy(struct thread *t, uint32_t to, uint64_t from, uint32_t bytes)
{
    if (t->n_copies == MAX_COPIES)
        ptx_end_copies(t, 0);
    t->copies[t->n_copies].to = to;
    t->copies[t->n_copies].from = from;
    t->copies[t->n_copies].bytes = bytes;
    t->copies[t->n_copies++].group = t->n_groups;
    if (t->block->run->run->seed % 2 != 0)
        ptx_end_copies(t, 0);
}

void ptx_copy(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *o = s->inst.operands;
    if (tl_ptx_form_has_text(f, "wait_all")) {
        ptx_end_copies(t, 0);
    } else if (tl_ptx_form_has_text(f, "commit_group")) {
        t->n_groups++;
    } else if (tl_ptx_form_has_text(f, "wait_group")) {
        ptx_end_copies(t, 1 + (uint32_t)ptx_value(t, &o[0]));
    } else if (tl_ptx_form_has_text(f, "noinc") && s->n_operands == 1) {
        begin_copy(t, (uint32_t)ptx_value(t, &o[0].elems[0]), 0, 0);
    } else if (s->n_operands == 3 && o[0].kind == TL_OPD_ADDR && o[1].kind == TL_OPD_ADDR &&
               !tl_ptx_form_has_text(f, "bulk") && ptx_value(t, &o[2]) <= 8) {
        begin_copy(t, (uint32_t)ptx_value(t, &o[0].elems[0]), ptx_value(t, &o[1].elems[0]),
                   (uint32_t)ptx_value(t, &o[2]));
    } else {
        ptx_fail(t, PTX_UNKNOWN, "copy");
    }
}
