/* Which symbol a word in a body means: registers, families, labels and their scopes. */
#include <errno.h>

#include "test/unit/ptx_rewrite/parsed.h"

/* --- names and scopes ------------------------------------------------------------------------- */

static void a_register_is_one_symbol_wherever_it_is_used(void)
{
    struct tl_ptx_func *f = body("mov.u32 %r1, 1; add.s32 %r2, %r1, %r1;");
    TEST_ASSERT_EQUAL_INT(TL_SYM_REG, symbol(f, 0, 0)->kind);
    TEST_ASSERT_EQUAL_PTR(symbol(f, 0, 0), symbol(f, 1, 1));
    TEST_ASSERT_EQUAL_PTR(symbol(f, 0, 0), symbol(f, 1, 2));
    TEST_ASSERT_NOT_EQUAL(symbol(f, 0, 0), symbol(f, 1, 0));
    ASSERT_STR("%r1", symbol(f, 0, 0)->name);
    ASSERT_STR("b32", symbol(f, 0, 0)->decl->type);
}

static void register_numbers_are_dense_in_a_function(void)
{
    struct tl_ptx_func *f = body("mov.u32 %r1, 1; mov.u32 %r19, %r1; mov.b64 %rd3, %rd4; ret;");
    TEST_ASSERT_EQUAL_UINT32(4, f->n_regs);
    TEST_ASSERT_EQUAL_UINT32(4, f->n_insts);
    bool seen[4] = {false};
    static const uint32_t places[][2] = {{0, 0}, {1, 0}, {2, 0}, {2, 1}};
    for (size_t i = 0; i < 4; i++) {
        uint32_t id = symbol(f, places[i][0], places[i][1])->id;
        TEST_ASSERT_LESS_THAN_UINT32(4, id);
        TEST_ASSERT_FALSE(seen[id]);
        seen[id] = true;
    }
}

static void an_inner_register_shadows_an_outer_one_until_its_scope_ends(void)
{
    struct tl_ptx_func *f = body(
        ".reg .pred p; mov.pred p, 1;\n{ .reg .b32 p; mov.u32 p, 2; { mov.u32 p, 3; } }\n"
        "mov.pred p, 0;");
    TEST_ASSERT_NOT_EQUAL(symbol(f, 0, 0), symbol(f, 1, 0));
    TEST_ASSERT_EQUAL_PTR(symbol(f, 1, 0), symbol(f, 2, 0));
    TEST_ASSERT_EQUAL_PTR(symbol(f, 0, 0), symbol(f, 3, 0));
    ASSERT_STR("b32", symbol(f, 1, 0)->decl->type);
    ASSERT_STR("pred", symbol(f, 3, 0)->decl->type);
}

static void a_single_register_shadows_a_member_of_an_outer_family(void)
{
    struct tl_ptx_func *f = body(
        "mov.u32 %r1, 0; { .reg .b64 %r1; mov.u64 %r1, 1; mov.u32 %r2, 2; } mov.u32 %r1, %r2;");
    TEST_ASSERT_NOT_EQUAL(symbol(f, 0, 0), symbol(f, 1, 0));
    ASSERT_STR("b64", symbol(f, 1, 0)->decl->type);
    TEST_ASSERT_EQUAL_PTR(symbol(f, 0, 0), symbol(f, 3, 0));
    TEST_ASSERT_EQUAL_PTR(symbol(f, 2, 0), symbol(f, 3, 1));
}

static void an_inner_family_shadows_an_outer_single_register(void)
{
    struct tl_ptx_func *f = body(
        ".reg .b64 t2; mov.u64 t2, 1; { .reg .b32 t<3>; mov.u32 t2, 2; } mov.u64 t2, 3;");
    ASSERT_STR("b32", symbol(f, 1, 0)->decl->type);
    TEST_ASSERT_EQUAL_PTR(symbol(f, 0, 0), symbol(f, 2, 0));
}

/* As ptxas has it: %r50 below is the outer one, because the inner family ends at %r4. */
static void a_smaller_inner_family_lets_the_rest_of_the_outer_one_through(void)
{
    struct tl_ptx_func *f = body(
        "mov.u32 %r10, 0; mov.u32 %r4, 0; { .reg .b64 %r<5>; mov.u32 %r10, 1; mov.u64 %r4, 1; }");
    TEST_ASSERT_EQUAL_PTR(symbol(f, 0, 0), symbol(f, 2, 0));
    TEST_ASSERT_NOT_EQUAL(symbol(f, 1, 0), symbol(f, 3, 0));
    ASSERT_STR("b64", symbol(f, 3, 0)->decl->type);
}

static void sibling_scopes_have_registers_of_their_own(void)
{
    struct tl_ptx_func *f = body(
        "{ .reg .b32 x<2>; mov.u32 x1, 1; } { .reg .b32 x<2>; mov.u32 x1, 1; }");
    TEST_ASSERT_NOT_EQUAL(symbol(f, 0, 0), symbol(f, 1, 0));
    TEST_ASSERT_EQUAL_UINT32(2, f->n_regs);
}

static void a_family_ends_where_its_count_does(void)
{
    struct tl_ptx_func *f = body("mov.u32 %r0, 1; mov.u32 %r19, 1; mov.u32 %r20, 1;");
    TEST_ASSERT_EQUAL_INT(TL_SYM_REG, symbol(f, 0, 0)->kind);
    TEST_ASSERT_EQUAL_INT(TL_SYM_REG, symbol(f, 1, 0)->kind);
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(f, 2, 0)->kind);
}

/* ptxas gives %r01 and %r1 the same register. */
static void leading_zeros_of_a_member_do_not_count(void)
{
    struct tl_ptx_func *f = body(
        "mov.u32 %r1, 1; mov.u32 %r01, 1; mov.u32 %r0001, %r0; mov.u32 %r00, 1; mov.u32 %r020, 1;");
    TEST_ASSERT_EQUAL_PTR(symbol(f, 0, 0), symbol(f, 1, 0));
    TEST_ASSERT_EQUAL_PTR(symbol(f, 0, 0), symbol(f, 2, 0));
    TEST_ASSERT_EQUAL_PTR(symbol(f, 2, 1), symbol(f, 3, 0));
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(f, 4, 0)->kind);
}

/* ptxas splits a name before all its last digits: a family whose prefix ends in digits has members
 * that nobody can name. */
static void a_family_whose_prefix_ends_in_digits_hides_nothing(void)
{
    struct tl_ptx_func *f = body("mov.u32 %r12, 1; { .reg .b64 %r1<4>; mov.u32 %r12, 1; } .reg "
                                 ".b64 %w1<3>; mov.u64 %w11, 1;");
    TEST_ASSERT_EQUAL_PTR(symbol(f, 0, 0), symbol(f, 1, 0));
    ASSERT_STR("b32", symbol(f, 1, 0)->decl->type);
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(f, 2, 0)->kind);
}

static void digits_inside_a_prefix_are_part_of_it(void)
{
    struct tl_ptx_func *f = body(".reg .b64 %a1b<3>; mov.u64 %a1b2, 1; mov.u64 %a1b3, 1;");
    TEST_ASSERT_EQUAL_INT(TL_SYM_REG, symbol(f, 0, 0)->kind);
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(f, 1, 0)->kind);
}

static void a_number_too_large_for_any_family_is_no_member(void)
{
    struct tl_ptx_func *f = body(
        "mov.u32 %r4294967297, 1; mov.u32 %r99999999999999999999, 1; mov.u32 %r1, 1;");
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(f, 0, 0)->kind);
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(f, 1, 0)->kind);
}

static void a_family_of_none_declares_nothing(void)
{
    struct tl_ptx_func *f = body(".reg .b32 z<0>; mov.u32 z0, 1;");
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(f, 0, 0)->kind);
}

static void special_registers_are_known_and_can_be_shadowed(void)
{
    struct tl_ptx_func *f = body(
        "mov.u32 %r1, %ctaid.x; mov.u32 %r1, %envreg7; mov.u64 %rd1, %clock64; mov.u32 %r1, %pm3;\n"
        "mov.u32 %r1, %lanemask_lt; mov.u32 %r1, %reserved_smem_offset_1;\n"
        "{ .reg .b32 %ctaid; mov.u32 %ctaid, 1; }");
    TEST_ASSERT_EQUAL_INT(TL_SYM_SREG, symbol(f, 0, 1)->kind);
    TEST_ASSERT_EQUAL_INT(TL_SREG_ctaid, symbol(f, 0, 1)->sreg);
    TEST_ASSERT_EQUAL_INT('x', operand(f, 0, 1)->component);
    TEST_ASSERT_EQUAL_INT(TL_SREG_envreg, symbol(f, 1, 1)->sreg);
    TEST_ASSERT_EQUAL_INT(TL_SREG_clock64, symbol(f, 2, 1)->sreg);
    TEST_ASSERT_EQUAL_INT(TL_SREG_pm, symbol(f, 3, 1)->sreg);
    TEST_ASSERT_EQUAL_INT(TL_SREG_lanemask_lt, symbol(f, 4, 1)->sreg);
    TEST_ASSERT_EQUAL_INT(TL_SREG_reserved_smem_offset_1, symbol(f, 5, 1)->sreg);
    TEST_ASSERT_EQUAL_INT(TL_SYM_REG, symbol(f, 6, 0)->kind);
}

static void a_blank_may_stand_before_a_component(void)
{
    struct tl_ptx_func *f = body("mov.u32 %r1, %tid .x;");
    TEST_ASSERT_EQUAL_INT(TL_SREG_tid, symbol(f, 0, 1)->sreg);
    TEST_ASSERT_EQUAL_INT('x', operand(f, 0, 1)->component);
}

static void parameters_and_variables_are_symbols_of_their_declaration(void)
{
    ptx_open(&t, ".global .u32 g; .func f (.param .b32 a) { ret; }\n"
                 ".entry k (.param .u64 p) { .reg .b64 %rd<2>; .local .align 8 .b8 depot[16]; "
                 ".shared .u32 s[4];\n"
                 "ld.param.u64 %rd1, [p]; mov.u64 %rd1, depot; mov.u64 %rd1, s; mov.u64 %rd1, g; "
                 "mov.u64 %rd1, f;\n"
                 "mov.u64 %rd1, nowhere; }");
    struct tl_ptx_func *f = ptx_func(&t, "k");
    const struct tl_ptx_operand *param = operand(f, 0, 1);
    TEST_ASSERT_EQUAL_INT(TL_OPD_ADDR, param->kind);
    TEST_ASSERT_EQUAL_PTR(f->params, param->elems[0].sym->decl);
    TEST_ASSERT_EQUAL_INT(TL_SYM_VAR, symbol(f, 1, 1)->kind);
    ASSERT_STR("local", symbol(f, 1, 1)->decl->space);
    ASSERT_STR("shared", symbol(f, 2, 1)->decl->space);
    TEST_ASSERT_EQUAL_INT(TL_SYM_MODULE_VAR, symbol(f, 3, 1)->kind);
    TEST_ASSERT_EQUAL_PTR(tl_ptx_index_find(t.ix, TL_STR("g")), symbol(f, 3, 1)->item);
    TEST_ASSERT_EQUAL_INT(TL_SYM_FUNC, symbol(f, 4, 1)->kind);
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(f, 5, 1)->kind);
}

static void a_parameter_hides_a_module_variable_of_its_name(void)
{
    ptx_open(
        &t,
        ".global .u32 x; .entry k (.param .u64 x) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [x]; }\n"
        ".entry l { .reg .b64 %rd<2>; mov.u64 %rd1, x; }");
    TEST_ASSERT_EQUAL_INT(TL_SYM_VAR, operand(ptx_func(&t, "k"), 0, 1)->elems[0].sym->kind);
    TEST_ASSERT_EQUAL_INT(TL_SYM_MODULE_VAR, symbol(ptx_func(&t, "l"), 0, 1)->kind);
}

static void functions_of_one_unit_do_not_share_registers(void)
{
    ptx_open(&t, ".entry k { .reg .b32 %r<5>; mov.u32 %r1, 1; } .entry l { .reg .b64 %r<2>; "
                 "mov.u64 %r1, 1; mov.u64 %r4, 1; }");
    struct tl_ptx_func *k = ptx_func(&t, "k"), *l = ptx_func(&t, "l");
    TEST_ASSERT_NOT_EQUAL(symbol(k, 0, 0), symbol(l, 0, 0));
    ASSERT_STR("b64", symbol(l, 0, 0)->decl->type);
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(l, 1, 0)->kind);
    TEST_ASSERT_EQUAL_UINT32(1, l->n_regs);
}

static void a_unit_knows_which_words_were_used(void)
{
    ptx_open(&t, ".global .u32 g; .entry k { .reg .b32 %mine; mov.u32 %mine, 1; bra L; L: ret; }");
    ptx_func(&t, "k");
    TEST_ASSERT_TRUE(tl_ptx_unit_knows(&t.unit, TL_STR("%mine")));
    TEST_ASSERT_TRUE(tl_ptx_unit_knows(&t.unit, TL_STR("L")));
    TEST_ASSERT_TRUE(tl_ptx_unit_knows(&t.unit, TL_STR("g")));
    TEST_ASSERT_FALSE(tl_ptx_unit_knows(&t.unit, TL_STR("%yours")));
}

/* --- labels ----------------------------------------------------------------------------------- */

static void labels_may_be_used_before_they_stand(void)
{
    struct tl_ptx_func *f = body("bra $L1; mov.u32 %r1, 1; $L1: bra $L1;");
    struct tl_ptx_sym *label = symbol(f, 0, 0);
    TEST_ASSERT_EQUAL_INT(TL_SYM_LABEL, label->kind);
    TEST_ASSERT_NOT_NULL(label->stmt);
    TEST_ASSERT_EQUAL_INT(TL_STMT_LABEL, label->stmt->kind);
    TEST_ASSERT_EQUAL_PTR(label, symbol(f, 2, 0));
    TEST_ASSERT_EQUAL_UINT32(1, f->n_labels);
}

static void labels_of_sibling_scopes_are_different(void)
{
    struct tl_ptx_func *f = body("{ L: bra L; } { bra L; L: ret; }");
    TEST_ASSERT_NOT_EQUAL(symbol(f, 0, 0), symbol(f, 1, 0));
    TEST_ASSERT_TRUE(symbol(f, 0, 0)->stmt->at < symbol(f, 1, 0)->stmt->at);
}

static void an_inner_label_hides_an_outer_one(void)
{
    struct tl_ptx_func *f = body("L: mov.u32 %r1, 1; { bra L; L: mov.u32 %r1, 2; } bra L;");
    struct tl_ptx_sym *inner = symbol(f, 1, 0), *outer = symbol(f, 3, 0);
    TEST_ASSERT_NOT_EQUAL(inner, outer);
    TEST_ASSERT_TRUE(outer->stmt->at < inner->stmt->at);
}

static void an_inner_branch_may_leave_its_scope_forwards_and_backwards(void)
{
    struct tl_ptx_func *f = body("Up: { { bra Up; bra Down; } } Down: ret;");
    TEST_ASSERT_EQUAL_PTR(ptx_stmt(f->body, 6), symbol(f, 0, 0)->stmt);
    TEST_ASSERT_EQUAL_PTR(ptx_stmt(f->body, 8), symbol(f, 1, 0)->stmt);
}

static void a_label_and_its_colon_may_stand_on_different_lines(void)
{
    struct tl_ptx_func *f = body("bra L; L // here\n : mov.u32 %r1, 1; M /* there */: ret;");
    TEST_ASSERT_EQUAL_UINT32(3, f->n_insts);
    TEST_ASSERT_NOT_NULL(symbol(f, 0, 0)->stmt);
}

static void a_label_may_have_the_name_of_an_opcode(void)
{
    struct tl_ptx_func *f = body("bra ret; ret: ret;");
    TEST_ASSERT_EQUAL_INT(TL_SYM_LABEL, symbol(f, 0, 0)->kind);
    TEST_ASSERT_EQUAL_INT(TL_OP_ret, ptx_inst(f, 1)->inst.form->op);
}

static void an_undefined_label_is_an_error(void)
{
    ptx_open_body(&t, "{ bra Nowhere; }");
    struct tl_ptx_func *f;
    TEST_ASSERT_EQUAL_INT(-EINVAL, ptx_try_func(&t, "k", &f));
    TEST_ASSERT_NOT_NULL(strstr(t.err.text, "not defined"));
}

static void a_label_that_stands_twice_in_a_scope_is_an_error(void)
{
    ptx_open_body(&t, "L: mov.u32 %r1, 1; L: ret;");
    struct tl_ptx_func *f;
    TEST_ASSERT_EQUAL_INT(-EINVAL, ptx_try_func(&t, "k", &f));
    TEST_ASSERT_NOT_NULL(strstr(t.err.text, "exists already"));
}

static void a_label_inside_a_scope_is_not_visible_outside(void)
{
    ptx_open_body(&t, "{ L: ret; } bra L;");
    struct tl_ptx_func *f;
    TEST_ASSERT_EQUAL_INT(-EINVAL, ptx_try_func(&t, "k", &f));
}

static void a_unit_goes_on_after_an_error(void)
{
    ptx_open(&t, ".entry bad { .reg .b32 %r<5>; { .reg .b32 x; bra Nowhere; } }\n.entry good { "
                 "mov.u32 %r1, x; ret; }");
    struct tl_ptx_func *f;
    TEST_ASSERT_EQUAL_INT(-EINVAL, ptx_try_func(&t, "bad", &f));
    f = ptx_func(&t, "good");
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(f, 0, 0)->kind);
    TEST_ASSERT_EQUAL_INT(TL_SYM_UNKNOWN, symbol(f, 0, 1)->kind);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_register_is_one_symbol_wherever_it_is_used);
    RUN_TEST(register_numbers_are_dense_in_a_function);
    RUN_TEST(an_inner_register_shadows_an_outer_one_until_its_scope_ends);
    RUN_TEST(a_single_register_shadows_a_member_of_an_outer_family);
    RUN_TEST(an_inner_family_shadows_an_outer_single_register);
    RUN_TEST(a_smaller_inner_family_lets_the_rest_of_the_outer_one_through);
    RUN_TEST(sibling_scopes_have_registers_of_their_own);
    RUN_TEST(a_family_ends_where_its_count_does);
    RUN_TEST(leading_zeros_of_a_member_do_not_count);
    RUN_TEST(a_family_whose_prefix_ends_in_digits_hides_nothing);
    RUN_TEST(digits_inside_a_prefix_are_part_of_it);
    RUN_TEST(a_number_too_large_for_any_family_is_no_member);
    RUN_TEST(a_family_of_none_declares_nothing);
    RUN_TEST(special_registers_are_known_and_can_be_shadowed);
    RUN_TEST(a_blank_may_stand_before_a_component);
    RUN_TEST(parameters_and_variables_are_symbols_of_their_declaration);
    RUN_TEST(a_parameter_hides_a_module_variable_of_its_name);
    RUN_TEST(functions_of_one_unit_do_not_share_registers);
    RUN_TEST(a_unit_knows_which_words_were_used);
    RUN_TEST(labels_may_be_used_before_they_stand);
    RUN_TEST(labels_of_sibling_scopes_are_different);
    RUN_TEST(an_inner_label_hides_an_outer_one);
    RUN_TEST(an_inner_branch_may_leave_its_scope_forwards_and_backwards);
    RUN_TEST(a_label_and_its_colon_may_stand_on_different_lines);
    RUN_TEST(a_label_may_have_the_name_of_an_opcode);
    RUN_TEST(an_undefined_label_is_an_error);
    RUN_TEST(a_label_that_stands_twice_in_a_scope_is_an_error);
    RUN_TEST(a_label_inside_a_scope_is_not_visible_outside);
    RUN_TEST(a_unit_goes_on_after_an_error);
    return UNITY_END();
}
