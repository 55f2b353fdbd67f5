/* The kernels of the examination: each has every form, so that what is refused is refused by a
 * driver and not by us; and what they must compute depends on every input. */
#include "runtime/doctor/kernels.h"

#include <string.h>

#include "tally/ptx.h"
#include "unity.h"

void setUp(void)
{
}
void tearDown(void)
{
}

static void every_kernel_has_every_variant(void)
{
    struct tl_error err;
    for (uint32_t i = 0; i < tl_doc_n_kernels; i++) {
        const struct tl_doc_kernel *k = &tl_doc_kernels[i];
        struct tl_ptx_index *index;
        TEST_ASSERT_EQUAL_INT_MESSAGE(
            0, tl_ptx_index_create(&index, k->text, strlen(k->text), k->name, &err), k->name);
        for (int v = 0; v < TL_PTX_VARIANTS; v++) {
            struct tl_ptx_rewritten r = {.text = NULL};
            struct tl_ptx_options o = {.variant = (enum tl_ptx_variant)v,
                                       .grid_dims = k->is_3d ? 3 : 1};
            TEST_ASSERT_EQUAL_INT_MESSAGE(
                0, tl_ptx_rewrite(index, tl_str_of(k->name), &o, &r, NULL, &err), err.text);
            TEST_ASSERT_EQUAL_UINT32(36 + (k->has_big ? 4 * TL_DOC_BIG_WORDS : 0),
                                     r.original_bytes);
            tl_ptx_rewritten_finish(&r);
        }
        tl_ptx_index_destroy(index);
    }
}

static void a_large_grid_of_three_dimensions_has_at_least_the_blocks_asked_for(void)
{
    for (uint32_t i = 0; i < tl_doc_n_kernels; i++) {
        struct tl_doc_shape s = tl_doc_shape_of(&tl_doc_kernels[i], 1000, 1);
        TEST_ASSERT_EQUAL_UINT32(s.blocks, s.grid[0] * s.grid[1] * s.grid[2]);
        TEST_ASSERT_TRUE(s.blocks >= 1000 && s.blocks < 1064);
        TEST_ASSERT_EQUAL_INT(tl_doc_kernels[i].is_3d, s.grid[2] > 1);
    }
}

/* Computes it for a seed and steps; what comes out, as a sum that order changes. */
static uint64_t computed(const struct tl_doc_kernel *k, uint64_t seed, uint32_t spin)
{
    struct tl_doc_shape s = tl_doc_shape_of(k, 70, spin);
    struct tl_doc_data d;
    uint64_t sum = 0;
    TEST_ASSERT_EQUAL_INT(0, tl_doc_data_init(&d, &s, seed));
    TEST_ASSERT_EQUAL_INT(0, tl_doc_reference(k, &s, &d));
    for (uint32_t i = 0; i < d.n_out; i++)
        sum = sum * 31 + d.out[i];
    for (uint32_t i = 0; i < d.n_aux; i++)
        sum = sum * 31 + d.aux[i];
    for (uint32_t i = 0; i < s.blocks; i++)
        TEST_ASSERT_EQUAL_UINT32(1, d.runs[i]);
    tl_doc_data_finish(&d);
    return sum;
}

/* Those of all rungs, then those of the gate alone. */
static const struct tl_doc_kernel *kernel_at(uint32_t i)
{
    return i < tl_doc_n_kernels ? &tl_doc_kernels[i] : &tl_doc_gate_kernels[i - tl_doc_n_kernels];
}

static void what_is_computed_depends_on_the_steps_and_mostly_on_the_data(void)
{
    for (uint32_t i = 0; i < tl_doc_n_kernels + tl_doc_n_gate_kernels; i++) {
        const struct tl_doc_kernel *k = kernel_at(i);
        bool is_of_steps_only = strcmp(k->name, "last") == 0 || strcmp(k->name, "scan") == 0;
        TEST_ASSERT_TRUE_MESSAGE(computed(k, 1, 5) == computed(k, 1, 5), k->name);
        TEST_ASSERT_TRUE_MESSAGE(computed(k, 1, 5) != computed(k, 1, 6), k->name);
        TEST_ASSERT_TRUE_MESSAGE(is_of_steps_only || computed(k, 1, 5) != computed(k, 2, 5),
                                 k->name);
    }
}

static void names_differ(void)
{
    for (uint32_t i = 0; i < tl_doc_n_kernels + tl_doc_n_gate_kernels; i++)
        for (uint32_t j = 0; j < i; j++)
            TEST_ASSERT_TRUE(strcmp(kernel_at(i)->name, kernel_at(j)->name) != 0);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(every_kernel_has_every_variant);
    RUN_TEST(a_large_grid_of_three_dimensions_has_at_least_the_blocks_asked_for);
    RUN_TEST(what_is_computed_depends_on_the_steps_and_mostly_on_the_data);
    RUN_TEST(names_differ);
    return UNITY_END();
}
