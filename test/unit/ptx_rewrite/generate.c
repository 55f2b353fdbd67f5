/* The frame of a generated kernel, and the ways in which it waits.  See generate.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "test/unit/ptx_rewrite/generate_internal.h"

uint32_t gen_roll(struct gen *g, uint32_t n)
{
    g->dice ^= g->dice << 13;
    g->dice ^= g->dice >> 7;
    g->dice ^= g->dice << 17;
    return (uint32_t)(g->dice >> 33) % n;
}

void gen_line(struct gen *g, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tl_buf_printf(&g->body, "%s%s\n", line[0] == '$' ? "" : "\t", line);
}

uint32_t gen_r(struct gen *g)
{
    return g->n_r++;
}

uint32_t gen_rd(struct gen *g)
{
    return g->n_rd++;
}

uint32_t gen_p(struct gen *g)
{
    return g->n_p++;
}

uint32_t gen_label(struct gen *g)
{
    return g->n_labels++;
}

static uint32_t new_buffer(struct gen *g, uint32_t words, enum ptx_case_fill fill, bool is_open)
{
    uint32_t n = g->g->n_args++;
    g->g->args[n] = (struct ptx_case_arg){
        .kind = PTX_ARG_BUFFER, .type = "u32", .element_bytes = 4, .count = words, .fill = fill};
    g->g->ignored |= is_open ? 1u << n : 0;
    return n;
}

static void new_image(struct gen *g, uint32_t array, uint32_t argument, uint32_t handle)
{
    uint32_t n = ++g->n_images;
    g->images[n].array = array;
    g->images[n].argument = argument;
    g->images[n].handle = handle;
    g->images[n].is_surface = handle != 0;
    g->image_of[array % GEN_ADDRESSES] = (uint8_t)n;
}

/* Another address of the same image. */
static uint32_t of_same_image(struct gen *g, uint32_t address, uint32_t as)
{
    g->image_of[address % GEN_ADDRESSES] = g->image_of[as % GEN_ADDRESSES];
    return address;
}

uint32_t gen_array(struct gen *g, uint32_t words, enum ptx_case_fill fill, bool is_open)
{
    uint32_t n = new_buffer(g, words, fill, is_open), reg = gen_rd(g), global = gen_rd(g);
    tl_buf_printf(&g->head, "\tld.param.u64 %%rd%u, [a%u];\n\tcvta.to.global.u64 %%rd%u, %%rd%u;\n",
                  reg, n, global, reg);
    new_image(g, global, n, 0);
    return global;
}

uint32_t gen_flags(struct gen *g, uint32_t words, bool is_open)
{
    return gen_roll(g, 6) != 0 ? gen_array(g, words, PTX_FILL_ZERO, is_open)
                               : gen_surface(g, words, PTX_FILL_ZERO, is_open);
}

uint32_t gen_surface(struct gen *g, uint32_t words, enum ptx_case_fill fill, bool is_open)
{
    uint32_t n = new_buffer(g, words, fill, is_open), handle = gen_rd(g), zero = gen_rd(g);
    tl_buf_printf(&g->head, "\tld.param.u64 %%rd%u, [a%u];\n\tmov.u64 %%rd%u, 0;\n", handle, n,
                  zero);
    new_image(g, zero, n, handle);
    return zero;
}

uint32_t gen_at(struct gen *g, uint32_t array, uint32_t index)
{
    uint32_t offset = gen_rd(g), address = gen_rd(g);
    gen_line(g, "mul.wide.u32 %%rd%u, %%r%u, 4;", offset, index);
    gen_line(g, "add.s64 %%rd%u, %%rd%u, %%rd%u;", address, array, offset);
    return of_same_image(g, address, array);
}

uint32_t gen_below(struct gen *g, uint32_t address)
{
    uint32_t below = gen_rd(g);
    gen_line(g, "add.s64 %%rd%u, %%rd%u, -4;", below, address);
    return of_same_image(g, below, address);
}

/* --- reading ---------------------------------------------------------------------------------- */

enum { PLAIN_READINGS = 13, READINGS = 17, LAST_ARGUMENT = PTX_CASE_ARGS - 4 };

/* Through the handle of a surface, whose addresses are offsets. */
static void read_surface(struct gen *g, uint32_t how, uint32_t to, uint32_t address)
{
    static const char *const caches[] = {"", ".ca", ".cg", ".cs", ".cv"};
    uint32_t x = gen_r(g), image = g->image_of[address % GEN_ADDRESSES];
    g->g->is_unusual = true;
    gen_line(g, "cvt.u32.u64 %%r%u, %%rd%u;", x, address);
    gen_line(g, "suld.b.1d%s.b32.%s {%%r%u}, [%%rd%u, {%%r%u}];", caches[how % 5],
             how % 2 ? "trap" : "clamp", to, g->images[image].handle, x);
}

/* Through a texture that lies over the array; false if there is no argument left for it, or the
 * array is not known. */
static bool read_texture(struct gen *g, uint32_t to, uint32_t address)
{
    uint32_t image = g->image_of[address % GEN_ADDRESSES], x = gen_r(g), rest = gen_r(g);
    if (image == 0 || (g->images[image].handle == 0 && g->g->n_args > LAST_ARGUMENT))
        return false;
    if (g->images[image].handle == 0) {
        uint32_t n = g->g->n_args++;
        g->g->args[n] = (struct ptx_case_arg){.kind = PTX_ARG_HANDLE,
                                              .value = g->images[image].argument};
        g->images[image].handle = gen_rd(g);
        tl_buf_printf(&g->head, "\tld.param.u64 %%rd%u, [a%u];\n", g->images[image].handle, n);
    }
    uint32_t offset = gen_rd(g);
    g->g->is_unusual = true;
    gen_line(g, "sub.s64 %%rd%u, %%rd%u, %%rd%u;", offset, address, g->images[image].array);
    gen_line(g, "shr.u64 %%rd%u, %%rd%u, 2;", offset, offset);
    gen_line(g, "cvt.u32.u64 %%r%u, %%rd%u;", x, offset);
    gen_line(g, "tex.1d.v4.u32.s32 {%%r%u, %%r%u, %%r%u, %%r%u}, [%%rd%u, {%%r%u}];", to, rest,
             rest, rest, g->images[image].handle, x);
    return true;
}

/* By an asynchronous copy into the thread's own word of shared memory, waited for in three ways. */
static void read_by_copy(struct gen *g, uint32_t how, uint32_t to, uint32_t address)
{
    uint32_t state = gen_rd(g), p = gen_p(g), again = gen_label(g);
    g->uses_copies = g->g->is_unusual = true;
    gen_line(g, "cp.async.ca.shared.global [%%r5], [%%rd%u], 4;", address);
    switch (how % 3) {
    case 0:
        gen_line(g, "cp.async.wait_all;");
        break;
    case 1:
        gen_line(g, "cp.async.commit_group;");
        gen_line(g, "cp.async.wait_group 0;");
        break;
    default:
        gen_line(g, "cp.async.mbarrier.arrive.noinc.shared.b64 [%%r6];");
        gen_line(g, "mbarrier.arrive.shared.b64 %%rd%u, [%%r6];", state);
        gen_line(g, "$L%u:", again);
        gen_line(g, "mbarrier.test_wait.shared.b64 %%p%u, [%%r6], %%rd%u;", p, state);
        gen_line(g, "@!%%p%u bra $L%u;", p, again);
    }
    gen_line(g, "ld.shared.u32 %%r%u, [%%r5];", to);
}

/* One reading of a word, in one of many ways, into a register. */
static void read_word(struct gen *g, uint32_t how, uint32_t to, uint32_t address)
{
    uint32_t image = g->image_of[address % GEN_ADDRESSES];
    if (g->images[image].is_surface) {
        read_surface(g, how, to, address);
        return;
    }
    switch (how) {
    case 0:
        gen_line(g, "ld.volatile.global.u32 %%r%u, [%%rd%u];", to, address);
        break;
    case 1:
        gen_line(g, "ld.relaxed.gpu.global.u32 %%r%u, [%%rd%u];", to, address);
        break;
    case 2:
        gen_line(g, "ld.acquire.gpu.u32 %%r%u, [%%rd%u];", to, address);
        break;
    case 3:
        gen_line(g, "ld.global.cg.u32 %%r%u, [%%rd%u];", to, address);
        break;
    case 4:
        gen_line(g, "membar.gl;");
        gen_line(g, "ld.global.u32 %%r%u, [%%rd%u];", to, address);
        break;
    case 5:
        g->uses_fence_call = true;
        gen_line(g, "call.uni fence_call;");
        gen_line(g, "ld.global.u32 %%r%u, [%%rd%u];", to, address);
        break;
    case 6:
        g->uses_poll_call = true;
        gen_line(g, "{ .param .b64 pa; .param .b32 pr;");
        gen_line(g, "st.param.b64 [pa], %%rd%u;", address);
        gen_line(g, "call.uni (pr), poll_call, (pa);");
        gen_line(g, "ld.param.b32 %%r%u, [pr]; }", to);
        break;
    case 7:
        gen_line(g, "atom.global.add.u32 %%r%u, [%%rd%u], 0;", to, address);
        break;
    case 8:
        gen_line(g, "atom.global.or.b32 %%r%u, [%%rd%u], 0;", to, address);
        break;
    case 9:
        gen_line(g, "atom.global.max.u32 %%r%u, [%%rd%u], 0;", to, address);
        break;
    case 10:
        gen_line(g, "atom.global.cas.b32 %%r%u, [%%rd%u], 0, 0;", to, address);
        break;
    case 11:
        gen_line(g, "nanosleep.u32 20;");
        gen_line(g, "ld.global.u32 %%r%u, [%%rd%u];", to, address);
        break;
    default:
        if (how > PLAIN_READINGS)
            read_by_copy(g, how, to, address);
        else if (how < PLAIN_READINGS || !read_texture(g, to, address))
            gen_line(g, "ld.global.u32 %%r%u, [%%rd%u];", to, address);
    }
}

void gen_read_unusually(struct gen *g, uint32_t to, uint32_t address, bool by_copy)
{
    read_word(g, by_copy ? PLAIN_READINGS + 1 + gen_roll(g, 3) : PLAIN_READINGS, to, address);
}

static const char *opposite(const char *relation)
{
    return strcmp(relation, "ge") == 0 ? "lt" : strcmp(relation, "eq") == 0 ? "ne" : "eq";
}

/* A copy of the address that looks as if it changed from round to round. */
static uint32_t wander(struct gen *g, uint32_t address, uint32_t round)
{
    uint32_t nothing = gen_r(g), wide = gen_rd(g), moved = gen_rd(g);
    gen_line(g, "mul.lo.u32 %%r%u, %%r%u, %%r3;", nothing, round);
    gen_line(g, "cvt.u64.u32 %%rd%u, %%r%u;", wide, nothing);
    gen_line(g, "add.s64 %%rd%u, %%rd%u, %%rd%u;", moved, address, wide);
    return of_same_image(g, moved, address);
}

/* The thread reads for itself, in loops of several shapes. */
static uint32_t wait_alone(struct gen *g, uint32_t address, const char *relation,
                           const char *operand)
{
    uint32_t v = gen_r(g), p = gen_p(g), round = gen_r(g), again = gen_label(g), out = gen_label(g),
             how = gen_roll(g, READINGS), middle = gen_label(g), scratch;
    const char *stay = opposite(relation);
    switch (gen_roll(g, 6)) {
    case 0: /* the test at the top */
        gen_line(g, "$L%u:", again);
        read_word(g, how, v, address);
        gen_line(g, "setp.%s.u32 %%p%u, %%r%u, %s;", relation, p, v, operand);
        gen_line(g, "@%%p%u bra $L%u;", p, out);
        gen_line(g, "bra.uni $L%u;", again);
        break;
    case 1: /* an address that seems to vary */
        gen_line(g, "mov.u32 %%r%u, 0;", round);
        gen_line(g, "$L%u:", again);
        gen_line(g, "add.u32 %%r%u, %%r%u, 4;", round, round);
        read_word(g, how, v, wander(g, address, round));
        gen_line(g, "setp.%s.u32 %%p%u, %%r%u, %s;", stay, p, v, operand);
        gen_line(g, "@%%p%u bra $L%u;", p, again);
        break;
    case 2: /* something else is done in every round */
        scratch = gen_at(g, gen_array(g, 16, PTX_FILL_ZERO, true), 0);
        gen_line(g, "mov.u32 %%r%u, 0;", round);
        gen_line(g, "$L%u:", again);
        gen_line(g, "add.u32 %%r%u, %%r%u, 1;", round, round);
        gen_line(g, "st.global.u32 [%%rd%u], %%r%u;", scratch, round);
        read_word(g, how, v, address);
        gen_line(g, "setp.%s.u32 %%p%u, %%r%u, %s;", stay, p, v, operand);
        gen_line(g, "@%%p%u bra $L%u;", p, again);
        break;
    case 3: /* two ways into the loop */
        gen_line(g, "setp.ne.u32 %%p%u, %%r2, %%r3;", p);
        gen_line(g, "@%%p%u bra $L%u;", p, middle);
        gen_line(g, "$L%u:", again);
        gen_line(g, "mov.u32 %%r%u, %%r3;", round);
        gen_line(g, "$L%u:", middle);
        read_word(g, how, v, address);
        gen_line(g, "setp.%s.u32 %%p%u, %%r%u, %s;", stay, p, v, operand);
        gen_line(g, "@%%p%u bra $L%u;", p, again);
        break;
    case 4: /* the value goes through arithmetic */
        gen_line(g, "$L%u:", again);
        read_word(g, how, round, address);
        gen_line(g, "add.u32 %%r%u, %%r%u, %%r3;", v, round);
        gen_line(g, "setp.%s.u32 %%p%u, %%r%u, %s;", relation, p, v, operand);
        gen_line(g, "@!%%p%u bra $L%u;", p, again);
        break;
    default:
        gen_line(g, "$L%u:", again);
        read_word(g, how, v, address);
        gen_line(g, "setp.%s.u32 %%p%u, %%r%u, %s;", stay, p, v, operand);
        gen_line(g, "@%%p%u bra $L%u;", p, again);
    }
    gen_line(g, "$L%u:", out);
    return v;
}

/* One thread reads, the others are told in every round: through shared memory, a barrier, a vote or
 * a shuffle. */
static uint32_t wait_together(struct gen *g, uint32_t address, const char *relation,
                              const char *operand)
{
    uint32_t v = gen_r(g), told = gen_r(g), p = gen_p(g), q = gen_p(g), again = gen_label(g),
             skip = gen_label(g), how = gen_roll(g, READINGS);
    bool is_warp = g->threads == 32;
    gen_line(g, "mov.u32 %%r%u, 0;", v);
    gen_line(g, "$L%u:", again);
    gen_line(g, "@!%%p0 bra $L%u;", skip);
    read_word(g, how, v, address);
    gen_line(g, "$L%u:", skip);
    gen_line(g, "setp.%s.u32 %%p%u, %%r%u, %s;", relation, p, v, operand);
    switch (gen_roll(g, is_warp ? 5 : 3)) {
    case 0:
        gen_line(g, "@%%p0 st.shared.u32 [told], %%r%u;", v);
        gen_line(g, "bar.sync 0;");
        gen_line(g, "ld.shared.u32 %%r%u, [told];", told);
        gen_line(g, "bar.sync 0;");
        gen_line(g, "setp.%s.u32 %%p%u, %%r%u, %s;", opposite(relation), q, told, operand);
        break;
    case 1:
        gen_line(g, "and.pred %%p%u, %%p%u, %%p0;", p, p);
        gen_line(g, "bar.red.or.pred %%p%u, 0, %%p%u;", q, p);
        gen_line(g, "not.pred %%p%u, %%p%u;", q, q);
        break;
    case 2:
        gen_line(g, "or.pred %%p%u, %%p%u, !%%p0;", p, p);
        gen_line(g, "bar.red.and.pred %%p%u, 0, %%p%u;", q, p);
        gen_line(g, "not.pred %%p%u, %%p%u;", q, q);
        break;
    case 3:
        gen_line(g, "and.pred %%p%u, %%p%u, %%p0;", p, p);
        gen_line(g, "vote.sync.any.pred %%p%u, %%p%u, 0xffffffff;", q, p);
        gen_line(g, "not.pred %%p%u, %%p%u;", q, q);
        break;
    default:
        gen_line(g, "shfl.sync.idx.b32 %%r%u, %%r%u, 0, 31, 0xffffffff;", told, v);
        gen_line(g, "setp.%s.u32 %%p%u, %%r%u, %s;", opposite(relation), q, told, operand);
    }
    gen_line(g, "@%%p%u bra $L%u;", q, again);
    return v;
}

uint32_t gen_wait(struct gen *g, uint32_t address, const char *relation, const char *operand)
{
    uint32_t v, skip;
    switch (gen_roll(g, 3)) {
    case 0: /* all threads read, and all have read before the word may change again */
        v = wait_alone(g, address, relation, operand);
        break;
    case 1:
        v = wait_together(g, address, relation, operand);
        break;
    default: /* one does, the others wait at a barrier */
        skip = gen_label(g);
        gen_line(g, "@!%%p0 bra $L%u;", skip);
        v = wait_alone(g, address, relation, operand);
        gen_line(g, "$L%u:", skip);
    }
    gen_line(g, "bar.sync 0;");
    return v;
}

void gen_signal(struct gen *g, uint32_t address, const char *operand)
{
    uint32_t was = gen_r(g), image = g->image_of[address % GEN_ADDRESSES], x;
    if (g->images[image].is_surface) {
        x = gen_r(g);
        gen_line(g, "mov.u32 %%r%u, %s;", was, operand);
        gen_line(g, "cvt.u32.u64 %%r%u, %%rd%u;", x, address);
        gen_line(g, "@%%p0 sust.b.1d.b32.trap [%%rd%u, {%%r%u}], {%%r%u};", g->images[image].handle,
                 x, was);
        return;
    }
    switch (gen_roll(g, 5)) {
    case 0:
        gen_line(g, "@%%p0 st.volatile.global.u32 [%%rd%u], %s;", address, operand);
        break;
    case 1:
        gen_line(g, "@%%p0 st.release.gpu.u32 [%%rd%u], %s;", address, operand);
        break;
    case 2:
        gen_line(g, "@%%p0 atom.global.exch.b32 %%r%u, [%%rd%u], %s;", was, address, operand);
        break;
    case 3:
        gen_line(g, "membar.gl;");
        gen_line(g, "@%%p0 st.global.u32 [%%rd%u], %s;", address, operand);
        break;
    default:
        gen_line(g, "@%%p0 st.relaxed.gpu.global.u32 [%%rd%u], %s;", address, operand);
    }
}

void gen_result(struct gen *g, const char *index, const char *operand)
{
    uint32_t wide = gen_rd(g), at = gen_rd(g);
    gen_line(g, "mul.wide.u32 %%rd%u, %s, 4;", wide, index);
    gen_line(g, "add.s64 %%rd%u, %%rd0, %%rd%u;", at, wide);
    gen_line(g, "@%%p0 st.global.u32 [%%rd%u+%u], %s;", at, g->slot * 4, operand);
}

void gen_expect(struct gen *g, uint32_t index, uint32_t value)
{
    g->g->out[g->slot + index] = value;
}

/* --- whole kernels ---------------------------------------------------------------------------- */

static void choose_stages(struct gen *g)
{
    static const uint32_t threads[] = {1, 1, 2, 2, 4, 32};
    g->threads = threads[gen_roll(g, 6)];
    g->blocks = 2 + gen_roll(g, 4);
    g->g->n_stages = 1 + (gen_roll(g, 3) == 0) + (gen_roll(g, 6) == 0);
    uint32_t bad = gen_roll(g, 2) ? gen_roll(g, g->g->n_stages) : PTX_GENERATED_STAGES;
    for (uint32_t i = 0; i < g->g->n_stages; i++) {
        const struct gen_kind *kind = i == bad ? &gen_harmful[gen_roll(g, gen_n_harmful)]
                                               : &gen_harmless[gen_roll(g, gen_n_harmless)];
        g->g->stages[i] = kind->name;
        g->g->is_harmful |= i == bad;
        g->slot = i * 16;
        gen_line(g, "// %s", kind->name);
        kind->emit(g);
        gen_line(g, "bar.sync 0;");
    }
}

/* The text of the kernel, when all of its parts are known. */
static void put_module(struct gen *g, uint64_t seed)
{
    struct tl_buf *t = &g->g->text;
    tl_buf_printf(t, "// seed %llu\n.version 8.3\n.target sm_90\n.address_size 64\n\n",
                  (unsigned long long)seed);
    if (g->uses_fence_call)
        tl_buf_printf(t, ".func fence_call()\n{\n\tmembar.gl;\n\tret;\n}\n\n");
    if (g->uses_poll_call)
        tl_buf_printf(t, ".func (.param .b32 poll_ret) poll_call(.param .b64 poll_at)\n{\n"
                         "\t.reg .b64 %%q<2>;\n\t.reg .b32 %%s<2>;\n"
                         "\tld.param.b64 %%q0, [poll_at];\n\tld.volatile.global.u32 %%s0, [%%q0];\n"
                         "\tst.param.b32 [poll_ret], %%s0;\n\tret;\n}\n\n");
    tl_buf_printf(t, ".visible .entry generated(");
    for (uint32_t i = 0; i < g->g->n_args; i++)
        tl_buf_printf(t, "%s.param .%s a%u", i > 0 ? ", " : "",
                      g->g->args[i].kind != PTX_ARG_NUMBER ? "u64" : "u32", i);
    tl_buf_printf(
        t,
        ")\n{\n\t.reg .b32 %%r<%u>;\n\t.reg .b64 %%rd<%u>;\n\t.reg .pred %%p<%u>;\n"
        "\t.shared .u32 told;\n\n\tmov.u32 %%r0, %%ctaid.x;\n\tmov.u32 %%r1, %%nctaid.x;\n"
        "\tmov.u32 %%r2, %%tid.x;\n\tld.param.u32 %%r3, [a1];\n\tsub.u32 %%r4, %%r1, %%r0;\n"
        "\tadd.u32 %%r4, %%r4, -1;\n\tsetp.eq.u32 %%p0, %%r2, 0;\n"
        "\tld.param.u64 %%rd0, [a0];\n",
        g->n_r, g->n_rd, g->n_p);
    if (g->uses_copies)
        tl_buf_printf(t, "\t.shared .align 8 .b64 meets[32];\n\t.shared .align 4 .b32 copied[32];\n"
                         "\tmov.u32 %%r5, copied;\n\tmad.lo.u32 %%r5, %%r2, 4, %%r5;\n"
                         "\tmov.u32 %%r6, meets;\n\tmad.lo.u32 %%r6, %%r2, 8, %%r6;\n"
                         "\tmbarrier.init.shared.b64 [%%r6], 2;\n");
    if (g->leaves_copy)
        tl_buf_printf(t, "\t.shared .align 4 .b32 left[32];\n");
    if (g->uses_meeting)
        tl_buf_printf(t, "\t.shared .align 8 .b64 meeting;\n");
    tl_buf_add(t, g->head.p, g->head.n);
    tl_buf_add(t, g->body.p, g->body.n);
    tl_buf_printf(t, "\tret;\n}\n");
}

void ptx_generate(struct ptx_generated *out, uint64_t seed)
{
    struct gen g = {.g = out,
                    .dice = seed * 0x9E3779B97F4A7C15ull + 88172645463325252ull,
                    .n_r = 7,
                    .n_rd = 1,
                    .n_p = 1};
    *out = (struct ptx_generated){.kernel = "generated", .n_args = 2};
    out->args[0] = (struct ptx_case_arg){
        .kind = PTX_ARG_BUFFER, .type = "u32", .element_bytes = 4, .count = PTX_GENERATED_OUT};
    out->args[1] = (struct ptx_case_arg){.kind = PTX_ARG_NUMBER, .type = "u32", .element_bytes = 4};
    for (int i = 0; i < 8; i++)
        gen_roll(&g, 2); /* neighbouring seeds begin alike */
    choose_stages(&g);
    put_module(&g, seed);
    out->run = (struct ptx_case_run){.grid = {g.blocks, 1, 1}, .block = {g.threads, 1, 1}};
    tl_buf_finish(&g.head);
    tl_buf_finish(&g.body);
}

void ptx_generated_finish(struct ptx_generated *g)
{
    tl_buf_finish(&g->text);
}

uint32_t ptx_generated_kinds(const char *const **names)
{
    static const char *all[64];
    uint32_t n = 0;
    for (uint32_t i = 0; i < gen_n_harmful; i++)
        all[n++] = gen_harmful[i].name;
    for (uint32_t i = 0; i < gen_n_harmless; i++)
        all[n++] = gen_harmless[i].name;
    *names = all;
    return n;
}
