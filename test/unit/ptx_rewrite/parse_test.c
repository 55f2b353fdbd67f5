/* The tree: scopes, names, operands, declarations and statements, each as the ISA and real PTX have
 * them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/parsed.h"

/* --- literals and expressions ----------------------------------------------------------------- */

static void assert_integer(const char *text, uint64_t value)
{
    char stmt[200];
    snprintf(stmt, sizeof stmt, "mov.u64 %%rd1, %s;", text);
    struct tl_ptx_func *f = body(stmt);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TL_OPD_INT, operand(f, 0, 1)->kind, text);
    TEST_ASSERT_EQUAL_HEX64_MESSAGE(value, operand(f, 0, 1)->bits, text);
    TEST_ASSERT_EQUAL_STRING(text, operand(f, 0, 1)->text);
    ptx_close(&t);
}

static void integers_of_every_base_are_read(void)
{
    assert_integer("0", 0);
    assert_integer("42", 42);
    assert_integer("-1", UINT64_MAX);
    assert_integer("0x1F", 31);
    assert_integer("0XfFU", 255);
    assert_integer("0b101", 5);
    assert_integer("017", 15);
    assert_integer("5U", 5);
    assert_integer("18446744073709551615", UINT64_MAX);
    assert_integer("0xFFFFFFFFFFFFFFFF", UINT64_MAX);
    assert_integer("-9223372036854775808", 1ull << 63);
}

static void constant_expressions_have_their_values(void)
{
    assert_integer("1+2*3", 7);
    assert_integer("(1+2)*3", 9);
    assert_integer("-(3+4)*2", (uint64_t)-14);
    assert_integer("WARP_SZ", 32);
    assert_integer("WARP_SZ-1", 31);
    assert_integer("1 << 4 | 3", 19);
    assert_integer("0xFF & ~0xF", 0xF0);
    assert_integer("7 % 3", 1);
    assert_integer("7 / 2", 3);
    assert_integer("8 >> 1", 4);
    assert_integer("5 ^ 1", 4);
    assert_integer("1 == 2", 0);
    assert_integer("1 != 2 && 3 >= 3", 1);
    assert_integer("1 < 2 || 0", 1);
    assert_integer("!5", 0);
    assert_integer("1 ? 2 : 3", 2);
    assert_integer("0 ? 2 : 1 ? 4 : 5", 4);
    assert_integer("(.s64) 5", 5);
    assert_integer("1 / 0", 0);
}

static void floats_are_kept_as_bits(void)
{
    struct tl_ptx_func *f = body(
        "mov.f32 %f1, 0f3F800000; mov.f64 %fd1, 0d4000000000000000; mov.f64 %fd1, 1.5;\n"
        "mov.f64 %fd1, 2e3; mov.f32 %f1, 0FBF800000; mov.f64 %fd1, -1.5; mov.f32 %f1, .5;\n"
        "mov.f32 %f1, 5.; mov.f32 %f1, 0e+5; mov.f64 %fd1, .25e-1;");
    TEST_ASSERT_EQUAL_INT(TL_OPD_F32, operand(f, 0, 1)->kind);
    TEST_ASSERT_EQUAL_HEX64(0x3F800000, operand(f, 0, 1)->bits);
    TEST_ASSERT_EQUAL_INT(TL_OPD_F64, operand(f, 1, 1)->kind);
    TEST_ASSERT_EQUAL_HEX64(0x4000000000000000, operand(f, 1, 1)->bits);
    TEST_ASSERT_EQUAL_INT(TL_OPD_F64, operand(f, 2, 1)->kind);
    TEST_ASSERT_EQUAL_HEX64(0x3FF8000000000000, operand(f, 2, 1)->bits);
    TEST_ASSERT_EQUAL_HEX64(0x409F400000000000, operand(f, 3, 1)->bits);
    TEST_ASSERT_EQUAL_HEX64(0xBF800000, operand(f, 4, 1)->bits);
    TEST_ASSERT_EQUAL_HEX64(0xBFF8000000000000, operand(f, 5, 1)->bits);
    TEST_ASSERT_EQUAL_HEX64(0x3FE0000000000000, operand(f, 6, 1)->bits);
    TEST_ASSERT_EQUAL_HEX64(0x4014000000000000, operand(f, 7, 1)->bits);
    TEST_ASSERT_EQUAL_HEX64(0, operand(f, 8, 1)->bits);
    TEST_ASSERT_EQUAL_HEX64(0x3F9999999999999A, operand(f, 9, 1)->bits);
    TEST_ASSERT_EQUAL_STRING(".5", operand(f, 6, 1)->text);
}

/* --- operands --------------------------------------------------------------------------------- */

static void addresses_keep_base_and_offset_apart(void)
{
    struct tl_ptx_func *f = body(
        "ld.global.u32 %r1, [%rd1]; ld.global.u32 %r1, [%rd1+16]; ld.global.u32 %r1, [%rd1+-4];\n"
        "ld.global.u32 %r1, [ %rd1 + 0 ]; ld.global.u32 %r1, [%rd1 - 8]; ld.local.u32 %r1, "
        "[1024+8];\n"
        "ld.global.u32 %r1, [%rd1+2*4];");
    static const int64_t offsets[] = {0, 16, -4, 0, -8, 0, 8};
    static const bool has[] = {false, true, true, true, true, false, true};
    for (uint32_t i = 0; i < 7; i++) {
        const struct tl_ptx_operand *o = operand(f, i, 1);
        TEST_ASSERT_EQUAL_INT(TL_OPD_ADDR, o->kind);
        TEST_ASSERT_EQUAL_UINT32(1, o->n);
        TEST_ASSERT_EQUAL_INT(has[i], o->has_offset);
        if (has[i])
            TEST_ASSERT_EQUAL_INT64(offsets[i], o->offset);
        TEST_ASSERT_FALSE(o->elems[0].has_offset);
    }
    TEST_ASSERT_EQUAL_INT(TL_OPD_INT, operand(f, 5, 1)->elems[0].kind);
    TEST_ASSERT_EQUAL_HEX64(1032, operand(f, 5, 1)->elems[0].bits);
}

static void a_name_with_an_offset_is_a_symbol_with_an_offset(void)
{
    ptx_open(&t, ".global .u32 g[4]; .entry k { .reg .b64 %rd<2>; mov.u64 %rd1, g+8; }");
    struct tl_ptx_func *f = ptx_func(&t, "k");
    TEST_ASSERT_EQUAL_INT(TL_SYM_MODULE_VAR, symbol(f, 0, 1)->kind);
    TEST_ASSERT_TRUE(operand(f, 0, 1)->has_offset);
    TEST_ASSERT_EQUAL_INT64(8, operand(f, 0, 1)->offset);
}

/* ptxas makes the same code of s[3] and s+12, where s has elements of four bytes. */
static void an_element_of_an_array_is_its_address(void)
{
    ptx_open(&t, ".entry k { .reg .b64 %rd<2>; .shared .align 16 .b32 s[16]; .local .b8 l[16];\n"
                 "mov.u64 %rd1, s[3]; mov.u64 %rd1, l[1+2]; mov.u64 %rd1, s[0]; }");
    struct tl_ptx_func *f = ptx_func(&t, "k");
    static const int64_t offsets[] = {12, 3, 0};
    for (uint32_t i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL_INT(TL_SYM_VAR, symbol(f, i, 1)->kind);
        TEST_ASSERT_TRUE(operand(f, i, 1)->has_offset);
        TEST_ASSERT_EQUAL_INT64(offsets[i], operand(f, i, 1)->offset);
    }
}

static void vectors_hold_names_numbers_and_sinks(void)
{
    struct tl_ptx_func *f = body(
        "ld.global.v4.u32 {%r1,_,_,%r2}, [%rd1]; st.global.v2.b32 [%rd1], { %r8, 0f00000000 };\n"
        "mov.b64 {_, %r4}, %rd1; mov.b64 %rd1, {%r1, %r2};");
    const struct tl_ptx_operand *v = operand(f, 0, 0);
    TEST_ASSERT_EQUAL_INT(TL_OPD_VEC, v->kind);
    TEST_ASSERT_EQUAL_UINT32(4, v->n);
    TEST_ASSERT_EQUAL_INT(TL_OPD_SYM, v->elems[0].kind);
    TEST_ASSERT_EQUAL_INT(TL_OPD_SINK, v->elems[1].kind);
    TEST_ASSERT_EQUAL_INT(TL_OPD_F32, operand(f, 1, 1)->elems[1].kind);
    TEST_ASSERT_EQUAL_INT(TL_OPD_SINK, operand(f, 2, 0)->elems[0].kind);
    TEST_ASSERT_EQUAL_UINT32(2, operand(f, 3, 1)->n);
}

static void pairs_and_negated_predicates_are_operands(void)
{
    struct tl_ptx_func *f = body(
        "setp.eq.and.s32 %p1|%p2, %r1, %r2, !%p3; shfl.sync.down.b32 %r1|%p1, %r2, 1, 31, -1;\n"
        "bar.red.or.pred %p1, 0, !%p2; setp.eq.s32 _|%p2, %r1, %r2;");
    const struct tl_ptx_operand *pair = operand(f, 0, 0);
    TEST_ASSERT_EQUAL_INT(TL_OPD_PAIR, pair->kind);
    TEST_ASSERT_EQUAL_UINT32(2, pair->n);
    ASSERT_STR("%p2", pair->elems[1].sym->name);
    TEST_ASSERT_EQUAL_INT(TL_OPD_NOT, operand(f, 0, 3)->flags);
    TEST_ASSERT_EQUAL_INT(TL_OPD_PAIR, operand(f, 1, 0)->kind);
    TEST_ASSERT_EQUAL_HEX64(UINT64_MAX, operand(f, 1, 4)->bits);
    TEST_ASSERT_EQUAL_INT(TL_OPD_NOT, operand(f, 2, 2)->flags);
    TEST_ASSERT_EQUAL_INT(TL_OPD_SINK, operand(f, 3, 0)->elems[0].kind);
}

static void texture_and_tensor_addresses_have_several_elements(void)
{
    struct tl_ptx_func *f = body(
        "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5, %f6}];\n"
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%r1], [%rd1, {%r2}], [%r3];");
    TEST_ASSERT_EQUAL_UINT32(2, operand(f, 0, 1)->n);
    TEST_ASSERT_EQUAL_INT(TL_OPD_VEC, operand(f, 0, 1)->elems[1].kind);
    TEST_ASSERT_EQUAL_UINT32(3, ptx_inst(f, 1)->n_operands);
    TEST_ASSERT_EQUAL_INT(TL_OP_cp, ptx_inst(f, 1)->inst.form->op);
}

static void vector_registers_have_components(void)
{
    struct tl_ptx_func *f = body(".reg .v4 .u32 %v; mov.v4.u32 %v, %ctaid; mov.u32 %r1, %v.z;");
    TEST_ASSERT_EQUAL_INT(0, operand(f, 0, 1)->component);
    TEST_ASSERT_EQUAL_INT('z', operand(f, 1, 1)->component);
    TEST_ASSERT_EQUAL_UINT32(4, symbol(f, 0, 0)->decl->vec);
}

static void guards_are_registers_with_or_without_negation(void)
{
    struct tl_ptx_func *f = body("@%p1 mov.u32 %r1, 1; @!%p2 bra L; @ ! %p3 ret; ret; L:");
    ASSERT_STR("%p1", ptx_inst(f, 0)->inst.guard->name);
    TEST_ASSERT_FALSE(ptx_inst(f, 0)->guard_not);
    TEST_ASSERT_TRUE(ptx_inst(f, 1)->guard_not);
    TEST_ASSERT_TRUE(ptx_inst(f, 2)->guard_not);
    TEST_ASSERT_NULL(ptx_inst(f, 3)->inst.guard);
}

static void a_guard_that_is_not_declared_is_an_error(void)
{
    ptx_open_body(&t, "@%q1 ret;");
    struct tl_ptx_func *f;
    TEST_ASSERT_EQUAL_INT(-EINVAL, ptx_try_func(&t, "k", &f));
}

/* --- instructions ----------------------------------------------------------------------------- */

static void forms_are_interned_and_know_their_modifiers(void)
{
    struct tl_ptx_func *f = body(
        "ld.volatile.global.v2.u32 {%r1,%r2}, [%rd1]; ld .volatile .global.v2 .u32 {%r1,%r2}, "
        "[%rd1];\n"
        "st.shared::cta.b32 [%r1], %r2; ld.u32 %r1, [%rd1]; red.global.add.u32 [%rd1], 1;");
    const struct tl_ptx_form *form = ptx_inst(f, 0)->inst.form;
    ASSERT_STR("ld.volatile.global.v2.u32", form->text);
    TEST_ASSERT_EQUAL_PTR(form, ptx_inst(f, 1)->inst.form);
    TEST_ASSERT_EQUAL_INT(TL_OP_ld, form->op);
    TEST_ASSERT_EQUAL_UINT32(4, form->n_mods);
    TEST_ASSERT_TRUE(tl_ptx_form_has(form, TL_MOD_volatile));
    TEST_ASSERT_FALSE(tl_ptx_form_has(form, TL_MOD_shared));
    TEST_ASSERT_TRUE(tl_ptx_form_has_text(form, "v2"));
    TEST_ASSERT_EQUAL_INT(TL_MOD_global, tl_ptx_form_space(form));
    TEST_ASSERT_EQUAL_INT(TL_MOD_shared, tl_ptx_form_space(ptx_inst(f, 2)->inst.form));
    TEST_ASSERT_EQUAL_INT(TL_MOD_other, tl_ptx_form_space(ptx_inst(f, 3)->inst.form));
    TEST_ASSERT_TRUE(tl_ptx_form_writes(form));
    TEST_ASSERT_FALSE(tl_ptx_form_writes(ptx_inst(f, 2)->inst.form));
    TEST_ASSERT_FALSE(tl_ptx_form_writes(ptx_inst(f, 4)->inst.form));
}

static void whether_a_form_writes_depends_on_its_modifiers(void)
{
    static const struct {
        const char *stmt;
        bool writes;
    } cases[] = {{"bar.sync 0;", false},
                 {"bar.red.popc.u32 %r1, 0, %p1;", true},
                 {"barrier.cta.red.and.pred %p1, 0, %p2;", true},
                 {"barrier.arrive 1, 64;", false},
                 {"wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%rd1], {%f1}, %r1;", false},
                 {"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1}, [%rd1], %r2;", true},
                 {"mbarrier.init.shared.b64 [%r1], 1;", false},
                 {"mbarrier.arrive.shared.b64 %rd1, [%r1];", true},
                 {"mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;", true},
                 {"mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 16;", false},
                 {"wgmma.fence.sync.aligned;", false},
                 {"cp.async.ca.shared.global [%r1], [%rd1], 16;", false},
                 {"atom.global.add.u32 %r1, [%rd1], 1;", true},
                 {"prefetch.global.L2 [%rd1];", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tl_ptx_func *f = body(cases[i].stmt);
        TEST_ASSERT_EQUAL_INT_MESSAGE(cases[i].writes,
                                      tl_ptx_form_writes(ptx_inst(f, 0)->inst.form), cases[i].stmt);
        ptx_close(&t);
    }
}

static void every_call_form_gives_its_parts(void)
{
    ptx_open(&t,
             ".func (.param .b32 r) f (.param .b32 a, .param .b64 b) { ret; } .func g () { ret; }\n"
             ".entry k { .reg .b64 %rd<2>; .param .b32 x, y; .param .b64 z;\n"
             "call g; call.uni g, (); call (x), f, (y, z); call.uni\n(x),\nf,\n(\ny, z\n)\n;\n"
             "P: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _);\n"
             "call (x), %rd1, (y, z), P; call (_), f, (y, z); T: .calltargets f; call (x), %rd1, "
             "(y, z), T;\n"
             "call %rd1, P; }");
    struct tl_ptx_func *f = ptx_func(&t, "k");
    static const struct {
        bool rets, args, proto, direct;
    } parts[] = {{false, false, false, true}, {false, true, false, true}, {true, true, false, true},
                 {true, true, false, true},   {true, true, true, false},  {true, true, false, true},
                 {true, true, true, false},   {false, false, true, false}};
    for (uint32_t i = 0; i < 8; i++) {
        struct tl_ptx_call call;
        TEST_ASSERT_TRUE(tl_ptx_inst_call(ptx_inst(f, i), &call));
        TEST_ASSERT_EQUAL_INT(parts[i].rets, call.rets != NULL);
        TEST_ASSERT_EQUAL_INT(parts[i].args, call.args != NULL);
        TEST_ASSERT_EQUAL_INT(parts[i].proto, call.proto != NULL);
        TEST_ASSERT_EQUAL_INT(parts[i].direct ? TL_SYM_FUNC : TL_SYM_REG, call.callee->sym->kind);
    }
    struct tl_ptx_call call;
    TEST_ASSERT_TRUE(tl_ptx_inst_call(ptx_inst(f, 4), &call));
    TEST_ASSERT_EQUAL_INT(TL_SYM_TABLE, call.proto->sym->kind);
    TEST_ASSERT_EQUAL_UINT32(2, call.args->n);
}

static void branch_tables_name_their_labels(void)
{
    struct tl_ptx_func *f = body(
        "ts: .branchtargets A, B, A; brx.idx %r1, ts; A: { bra B; } B: ret;");
    struct tl_ptx_sym *table = symbol(f, 0, 1);
    TEST_ASSERT_EQUAL_INT(TL_SYM_TABLE, table->kind);
    TEST_ASSERT_EQUAL_INT(TL_STMT_TABLE, table->stmt->kind);
    TEST_ASSERT_EQUAL_UINT32(3, table->stmt->table.n_targets);
    struct tl_ptx_sym *a = tl_ptx_sym_final(table->stmt->table.targets[0].sym);
    TEST_ASSERT_EQUAL_PTR(a, tl_ptx_sym_final(table->stmt->table.targets[2].sym));
    TEST_ASSERT_EQUAL_PTR(symbol(f, 1, 0), tl_ptx_sym_final(table->stmt->table.targets[1].sym));
    TEST_ASSERT_NOT_NULL(a->stmt);
}

static void a_branch_table_may_stand_behind_its_use_and_outside_its_scope(void)
{
    struct tl_ptx_func *f = body("A: { brx.idx %r1, ts; } ts: .branchtargets A;");
    TEST_ASSERT_EQUAL_INT(TL_SYM_TABLE, symbol(f, 0, 1)->kind);
}

static void the_index_of_an_indexed_branch_may_be_named_like_a_label(void)
{
    struct tl_ptx_func *f = body(".reg .u32 idx; ts: .branchtargets A; brx.idx idx, ts; A: ret;");
    TEST_ASSERT_EQUAL_INT(TL_SYM_REG, symbol(f, 0, 0)->kind);
    TEST_ASSERT_EQUAL_INT(TL_SYM_TABLE, symbol(f, 0, 1)->kind);
}

static void an_unknown_instruction_with_foreign_operands_keeps_its_text(void)
{
    struct tl_ptx_func *f = body(
        "frob.u32 %r1, [%rd1+4]; @%p1 zap.x  %r1 => { %r2 ; } ,  <3> ; mov.u32 %r1, 1;");
    struct tl_ptx_stmt *known = ptx_inst(f, 0), *raw = ptx_inst(f, 1);
    TEST_ASSERT_EQUAL_INT(TL_OP_unknown, known->inst.form->op);
    TEST_ASSERT_EQUAL_UINT16(2, known->n_operands);
    TEST_ASSERT_EQUAL_INT(TL_SYM_REG, symbol(f, 0, 0)->kind);
    TEST_ASSERT_EQUAL_UINT16(0, raw->n_operands);
    ASSERT_STR("%r1 => { %r2 ; } , <3>", raw->inst.raw);
    TEST_ASSERT_NOT_NULL(raw->inst.guard);
    TEST_ASSERT_EQUAL_INT(TL_OP_mov, ptx_inst(f, 2)->inst.form->op);
}

static void video_instructions_with_selectors_keep_their_text(void)
{
    struct tl_ptx_func *f = body(
        "vadd.u32.u32.u32 %r3, %r1.b0, %r2.h1; vadd4.u32.u32.u32 %r3.b10, %r1.b7654, %r2, %r3;\n"
        "vadd.u32.u32.u32 %r3, %r1, %r2;");
    TEST_ASSERT_EQUAL_INT(TL_OP_vadd, ptx_inst(f, 0)->inst.form->op);
    ASSERT_STR("%r3, %r1.b0, %r2.h1", ptx_inst(f, 0)->inst.raw);
    ASSERT_STR("%r3.b10, %r1.b7654, %r2, %r3", ptx_inst(f, 1)->inst.raw);
    TEST_ASSERT_EQUAL_UINT16(3, ptx_inst(f, 2)->n_operands);
}

static void several_statements_may_share_a_line_and_one_may_take_many(void)
{
    struct tl_ptx_func *f = body(
        "{.reg .f16 low,high;\nmov.b32 {low,high}, %r1; cvt.f32.f16 %f1, low;}\n"
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32\n {%f1, %f2,\n\t%f3, %f4},\n"
        " {%r1,%r2}, // A\n {%r3},\n /* C */ {%f1,%f2,%f3,%f4}\n;\nret;");
    TEST_ASSERT_EQUAL_UINT32(4, f->n_insts);
    TEST_ASSERT_EQUAL_UINT16(4, ptx_inst(f, 2)->n_operands);
    struct tl_ptx_stmt *block = ptx_stmt(f->body, 6);
    TEST_ASSERT_EQUAL_INT(TL_STMT_BLOCK, block->kind);
    TEST_ASSERT_EQUAL_INT(TL_STMT_DECL, block->block->kind);
    ASSERT_STR("low", block->block->decl->name);
    ASSERT_STR("high", block->block->decl->next->name);
    TEST_ASSERT_TRUE(block->block->decl->next->joins_previous);
}

static void comments_may_stand_between_any_two_tokens(void)
{
    struct tl_ptx_func *f = body(
        "/*a*/@/*b*/!/*c*/%p1/*d*/ld/*e*/.global/*f*/.u32/*g*/%r1/*h*/,/*i*/[/*j*/%rd1/*k*/+/*l*/4"
        "/*m*/]/*n*/;/*o*/L/*p*/:/*q*/bra/*r*/L/*s*/;");
    ASSERT_STR("ld.global.u32", ptx_inst(f, 0)->inst.form->text);
    TEST_ASSERT_TRUE(ptx_inst(f, 0)->guard_not);
    TEST_ASSERT_EQUAL_INT64(4, operand(f, 0, 1)->offset);
    TEST_ASSERT_EQUAL_UINT32(1, f->n_labels);
}

static void statements_know_their_place_in_the_text(void)
{
    struct tl_ptx_func *f = body("  mov.u32 %r1, 1;\n@%p1 bra L; L: ret;");
    struct tl_ptx_stmt *s = ptx_inst(f, 0);
    TEST_ASSERT_EQUAL_STRING_LEN("mov.u32 %r1, 1;", t.text + s->at, s->end - s->at);
    s = ptx_inst(f, 1);
    TEST_ASSERT_EQUAL_STRING_LEN("@%p1 bra L;", t.text + s->at, s->end - s->at);
    struct tl_ptx_place place = tl_ptx_place_of(t.text, t.n, s->at);
    TEST_ASSERT_EQUAL_UINT32(9, place.line);
    TEST_ASSERT_EQUAL_UINT32(1, place.column);
}

/* --- directives inside functions -------------------------------------------------------------- */

static void a_pragma_stays_before_the_load_that_it_is_for(void)
{
    struct tl_ptx_func *f = body(
        ".pragma \"used_bytes_mask 0xfff\";\nld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd1];");
    struct tl_ptx_stmt *pragma = ptx_stmt(f->body, 6);
    TEST_ASSERT_EQUAL_INT(TL_STMT_DIRECTIVE, pragma->kind);
    ASSERT_STR(".pragma \"used_bytes_mask 0xfff\";", pragma->text);
    TEST_ASSERT_EQUAL_INT(TL_STMT_INST, pragma->next->kind);
}

static void a_pragma_may_end_on_another_line(void)
{
    struct tl_ptx_func *f = body(".pragma \"nounroll\"\n;\nret;");
    ASSERT_STR(".pragma \"nounroll\" ;", ptx_stmt(f->body, 6)->text);
    TEST_ASSERT_EQUAL_UINT32(1, f->n_insts);
}

static void a_line_number_hides_nothing_that_follows_it(void)
{
    struct tl_ptx_func *f = body(
        ".loc 1 37 78\nmov.u32 %r1, 1;\n.loc 1 1 1 bar.sync 0;\n"
        ".loc 2 314 12, function_name $L__info_string0, inlined_at 1 37 78\nret;\n"
        ".loc 2 3 1, function_name $L__info_string0+12, inlined_at 1 2 3 exit;");
    TEST_ASSERT_EQUAL_UINT32(4, f->n_insts);
    TEST_ASSERT_EQUAL_INT(TL_OP_bar, ptx_inst(f, 1)->inst.form->op);
    TEST_ASSERT_EQUAL_INT(TL_OP_ret, ptx_inst(f, 2)->inst.form->op);
    TEST_ASSERT_EQUAL_INT(TL_OP_exit, ptx_inst(f, 3)->inst.form->op);
    ASSERT_STR(".loc 2 314 12, function_name $L__info_string0, inlined_at 1 37 78",
               ptx_stmt(f->body, 10)->text);
}

static void an_unknown_directive_in_a_body_is_kept(void)
{
    struct tl_ptx_func *f = body(".frobnicate  1,\t2\nmov.u32 %r1, 1;\n.wibble a; ret;");
    ASSERT_STR(".frobnicate 1, 2", ptx_stmt(f->body, 6)->text);
    ASSERT_STR(".wibble a;", ptx_stmt(f->body, 8)->text);
    TEST_ASSERT_EQUAL_UINT32(2, f->n_insts);
}

/* --- declarations ----------------------------------------------------------------------------- */

static void a_kernel_has_parameters_of_every_kind(void)
{
    ptx_open(&t, ".visible .entry k(\n.param .u64 a,\n.param .align 8 .b8 b[144],\n.param .u64 "
                 ".ptr .global .align 16 c,\n"
                 ".param .f32 d, .param .b8 e[7]\n)\n.maxntid 256, 1, 1\n.minnctapersm 2 { ret; }");
    struct tl_ptx_func *f = ptx_func(&t, "k");
    ASSERT_STR(".visible .entry", f->prefix);
    ASSERT_STR(".maxntid 256, 1, 1 .minnctapersm 2", f->directives);
    TEST_ASSERT_TRUE(f->is_entry && f->has_body && f->has_param_list);
    struct tl_ptx_decl *d = f->params;
    ASSERT_STR("a", d->name);
    ASSERT_STR("u64", d->type);
    TEST_ASSERT_EQUAL_UINT64(1, d->count);
    d = d->next;
    ASSERT_STR("b", d->name);
    TEST_ASSERT_EQUAL_UINT32(8, d->align);
    TEST_ASSERT_EQUAL_UINT64(144, d->count);
    ASSERT_STR("[144]", d->dims);
    d = d->next;
    ASSERT_STR("global", d->ptr_space);
    TEST_ASSERT_EQUAL_UINT32(0, d->align); /* 16 is that of what it points to */
    ASSERT_STR("param", d->space);
    d = d->next->next;
    ASSERT_STR("e", d->name);
    TEST_ASSERT_NULL(d->next);
}

static void a_function_may_return_several_values_in_registers_or_memory(void)
{
    ptx_open(&t, ".visible .func (.param .b32 r, .param .align 4 .b8 s[12]) f (.param .b64 a) "
                 ".noreturn { ret; }\n"
                 ".func (.reg .u32 %out) g (.reg .u32 %in) { mov.u32 %out, %in; ret; }\n.extern "
                 ".func h;\n.func i ();");
    struct tl_ptx_func *f = ptx_func(&t, "f"), *g = ptx_func(&t, "g"), *h = ptx_func(&t, "h"),
                       *i = ptx_func(&t, "i");
    ASSERT_STR("r", f->rets->name);
    TEST_ASSERT_EQUAL_UINT64(12, f->rets->next->count);
    ASSERT_STR(".noreturn", f->directives);
    TEST_ASSERT_FALSE(f->is_entry);
    TEST_ASSERT_EQUAL_INT(TL_SYM_REG, symbol(g, 0, 0)->kind);
    TEST_ASSERT_EQUAL_PTR(g->params, symbol(g, 0, 1)->decl);
    TEST_ASSERT_FALSE(h->has_body || h->has_param_list);
    TEST_ASSERT_TRUE(i->has_param_list);
    TEST_ASSERT_NULL(i->params);
}

static void variables_have_space_type_shape_and_initialiser(void)
{
    ptx_open(
        &t,
        ".visible .global .align 16 .v4 .f32 v[2][3] = {{1.0}, {2.0}};\n.extern .shared .align 16 "
        ".b8 dyn[];\n"
        ".const .u64 a = generic(v)+4, b[WARP_SZ], c;\n.global .u8 m[2] = {0xff(v), 0xff00(v)};\n"
        ".global .attribute(.managed) .u32 g;\n.global .texref tex;\n.common .global .b8 z[0];");
    struct tl_ptx_decl *v = ptx_var(&t, "v");
    ASSERT_STR("global", v->space);
    ASSERT_STR("f32", v->type);
    TEST_ASSERT_EQUAL_UINT32(16, v->align);
    TEST_ASSERT_EQUAL_UINT32(4, v->vec);
    TEST_ASSERT_EQUAL_UINT64(6, v->count);
    ASSERT_STR("[2][3]", v->dims);
    ASSERT_STR("{{1.0}, {2.0}}", v->init);
    TEST_ASSERT_EQUAL_UINT64(0, ptx_var(&t, "dyn")->count);
    ASSERT_STR("generic(v)+4", ptx_var(&t, "a")->init);
    TEST_ASSERT_EQUAL_UINT64(32, ptx_var(&t, "b")->count);
    ASSERT_STR("u64", ptx_var(&t, "c")->type);
    TEST_ASSERT_EQUAL_UINT32(0, ptx_var(&t, "c")->init.n);
    ASSERT_STR("{0xff(v), 0xff00(v)}", ptx_var(&t, "m")->init);
    ASSERT_STR(".global .attribute(.managed) .u32", ptx_var(&t, "g")->prefix);
    ASSERT_STR("texref", ptx_var(&t, "tex")->type);
    ASSERT_STR(".common .global .b8", ptx_var(&t, "z")->prefix);
}

static void types_have_their_sizes(void)
{
    TEST_ASSERT_EQUAL_UINT32(1, tl_ptx_type_bytes(TL_STR("u8")));
    TEST_ASSERT_EQUAL_UINT32(2, tl_ptx_type_bytes(TL_STR("bf16")));
    TEST_ASSERT_EQUAL_UINT32(4, tl_ptx_type_bytes(TL_STR("f16x2")));
    TEST_ASSERT_EQUAL_UINT32(8, tl_ptx_type_bytes(TL_STR("texref")));
    TEST_ASSERT_EQUAL_UINT32(16, tl_ptx_type_bytes(TL_STR("b128")));
    TEST_ASSERT_EQUAL_UINT32(0, tl_ptx_type_bytes(TL_STR("pred")));
    TEST_ASSERT_EQUAL_UINT32(0, tl_ptx_type_bytes(TL_STR("u7")));
}

static void a_32_bit_module_parses_like_any_other(void)
{
    ptx_open(
        &t, ".version 6.0\n.target sm_30\n.address_size 32\n.entry k (.param .u32 p) { .reg .b32 "
            "%r<3>;\n"
            "ld.param.u32 %r1, [p]; cvta.to.global.u32 %r2, %r1; st.global.u32 [%r2], %r1; ret; }");
    TEST_ASSERT_EQUAL_UINT32(4, ptx_func(&t, "k")->n_insts);
}

static void a_body_of_hundred_thousand_instructions_is_parsed(void)
{
    struct tl_buf all = {0};
    tl_buf_puts(&all, ".entry k { .reg .b32 %r<100000>;\n");
    for (uint32_t i = 1; i < 100000; i++)
        tl_buf_printf(&all, "add.s32 %%r%u, %%r%u, %u;%s", i, i - 1, i, i % 100 == 0 ? "\n" : "");
    tl_buf_puts(&all, "ret; }");
    int rc = ptx_index_text(&t, all.p);
    tl_buf_finish(&all);
    TEST_ASSERT_EQUAL_INT(0, rc);
    struct tl_ptx_func *f = ptx_func(&t, "k");
    TEST_ASSERT_EQUAL_UINT32(100000, f->n_insts);
    TEST_ASSERT_EQUAL_UINT32(100000, f->n_regs);
}

static void an_arena_with_a_limit_gives_out_of_memory(void)
{
    ptx_open_body(&t, "mov.u32 %r1, 1; mov.u32 %r2, 1; mov.u32 %r3, 1; ret;");
    struct tl_arena small;
    tl_arena_init(&small, 2048);
    struct tl_ptx_unit u;
    struct tl_ptx_func *f;
    int rc = tl_ptx_unit_init(&u, t.ix, &small, &t.err);
    if (rc == 0)
        rc = tl_ptx_parse_func(&u, tl_ptx_index_find(t.ix, TL_STR("k")), &f);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, rc);
    tl_ptx_unit_finish(&u);
    tl_arena_finish(&small);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(integers_of_every_base_are_read);
    RUN_TEST(constant_expressions_have_their_values);
    RUN_TEST(floats_are_kept_as_bits);
    RUN_TEST(addresses_keep_base_and_offset_apart);
    RUN_TEST(a_name_with_an_offset_is_a_symbol_with_an_offset);
    RUN_TEST(an_element_of_an_array_is_its_address);
    RUN_TEST(vectors_hold_names_numbers_and_sinks);
    RUN_TEST(pairs_and_negated_predicates_are_operands);
    RUN_TEST(texture_and_tensor_addresses_have_several_elements);
    RUN_TEST(vector_registers_have_components);
    RUN_TEST(guards_are_registers_with_or_without_negation);
    RUN_TEST(a_guard_that_is_not_declared_is_an_error);
    RUN_TEST(forms_are_interned_and_know_their_modifiers);
    RUN_TEST(whether_a_form_writes_depends_on_its_modifiers);
    RUN_TEST(every_call_form_gives_its_parts);
    RUN_TEST(branch_tables_name_their_labels);
    RUN_TEST(a_branch_table_may_stand_behind_its_use_and_outside_its_scope);
    RUN_TEST(the_index_of_an_indexed_branch_may_be_named_like_a_label);
    RUN_TEST(an_unknown_instruction_with_foreign_operands_keeps_its_text);
    RUN_TEST(video_instructions_with_selectors_keep_their_text);
    RUN_TEST(several_statements_may_share_a_line_and_one_may_take_many);
    RUN_TEST(comments_may_stand_between_any_two_tokens);
    RUN_TEST(statements_know_their_place_in_the_text);
    RUN_TEST(a_pragma_stays_before_the_load_that_it_is_for);
    RUN_TEST(a_pragma_may_end_on_another_line);
    RUN_TEST(a_line_number_hides_nothing_that_follows_it);
    RUN_TEST(an_unknown_directive_in_a_body_is_kept);
    RUN_TEST(a_kernel_has_parameters_of_every_kind);
    RUN_TEST(a_function_may_return_several_values_in_registers_or_memory);
    RUN_TEST(variables_have_space_type_shape_and_initialiser);
    RUN_TEST(types_have_their_sizes);
    RUN_TEST(a_32_bit_module_parses_like_any_other);
    RUN_TEST(a_body_of_hundred_thousand_instructions_is_parsed);
    RUN_TEST(an_arena_with_a_limit_gives_out_of_memory);
    return UNITY_END();
}
