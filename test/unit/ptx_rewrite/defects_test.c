/* Ten ways in which an earlier rewriter, made of regular expressions, went wrong, each with a
 * kernel on which it does.  Here the variants' text and tree are looked at; that they also compute
 * the same is shown by running them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/case.h"
#include "test/unit/ptx_rewrite/help.h"

enum { MAX_INSTS = 600 };

static struct ptx_text original, variant;
static struct tl_ptx_rewritten made;
/* of the function looked at, in order, blocks entered */
static struct tl_ptx_stmt *insts[MAX_INSTS];
static uint32_t n_insts;

void setUp(void)
{
}

void tearDown(void)
{
    ptx_close(&original);
    ptx_close(&variant);
    tl_ptx_rewritten_finish(&made);
}

static void open_case(const char *name)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s.ptx", ptx_cases_folder(), name);
    size_t n;
    char *text = ptx_read_file(path, &n);
    TEST_ASSERT_NOT_NULL_MESSAGE(text, path);
    ptx_close(&original);
    ptx_open(&original, text);
    free(text);
}

static void flatten(struct tl_ptx_stmt *s)
{
    for (; s != NULL; s = s->next) {
        if (s->kind == TL_STMT_BLOCK)
            flatten(s->block);
        if (s->kind == TL_STMT_INST) {
            TEST_ASSERT_LESS_THAN_UINT32(MAX_INSTS, n_insts);
            insts[n_insts++] = s;
        }
    }
}

static void look_at(struct ptx_text *t, const char *function)
{
    n_insts = 0;
    flatten(ptx_func(t, function)->body);
}

static void make(const char *kernel, enum tl_ptx_variant v, uint32_t dims)
{
    struct tl_error err = {0};
    ptx_close(&variant);
    tl_ptx_rewritten_finish(&made);
    int rc = tl_ptx_rewrite(original.ix, tl_str_of(kernel),
                            &(struct tl_ptx_options){.variant = v, .grid_dims = dims}, &made, NULL,
                            &err);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, err.text);
    ptx_open(&variant, made.text);
    look_at(&variant, made.entry);
}

static bool is_form(const struct tl_ptx_stmt *s, const char *begin)
{
    return tl_str_starts(s->inst.form->text, begin);
}

static bool is_barrier(const struct tl_ptx_stmt *s)
{
    return is_form(s, "bar.") || is_form(s, "barrier.");
}

/* The first such instruction at or behind `from`; n_insts if there is none. */
static uint32_t find_from(uint32_t from, const char *begin)
{
    while (from < n_insts && !is_form(insts[from], begin))
        from++;
    return from;
}

static uint32_t find_last(const char *begin)
{
    uint32_t found = n_insts;
    for (uint32_t i = 0; i < n_insts; i++) {
        if (is_form(insts[i], begin))
            found = i;
    }
    TEST_ASSERT_LESS_THAN_UINT32_MESSAGE(n_insts, found, begin);
    return found;
}

static uint32_t count(const char *begin)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_insts; i++)
        n += is_form(insts[i], begin);
    return n;
}

static enum tl_ptx_reason verdict_of(const char *kernel, enum tl_ptx_variant v)
{
    struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_ptx_judge(original.ix, tl_str_of(kernel), verdicts, &err),
                                  err.text);
    return verdicts[v].reason;
}

static bool operand_is_sreg(const struct tl_ptx_operand *o, enum tl_ptx_sreg sreg)
{
    if (o->kind == TL_OPD_SYM)
        return o->sym->kind == TL_SYM_SREG && o->sym->sreg == sreg;
    bool has_elements = o->kind == TL_OPD_VEC || o->kind == TL_OPD_LIST || o->kind == TL_OPD_PAIR ||
                        o->kind == TL_OPD_ADDR;
    for (uint32_t i = 0; has_elements && i < o->n; i++) {
        if (operand_is_sreg(&o->elems[i], sreg))
            return true;
    }
    return false;
}

static uint32_t count_reads(enum tl_ptx_sreg sreg)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_insts; i++) {
        for (uint32_t o = 0; o < insts[i]->n_operands; o++)
            n += operand_is_sreg(&insts[i]->inst.operands[o], sreg);
    }
    return n;
}

/* --- 1 */

/* Slot written, barrier, slot read, body, barrier, and only then back to the start: in this order,
 * and nothing between the last read and the next write but that barrier. */
static void defect_1_a_fast_leader_cannot_overwrite_the_number_before_a_slow_warp_has_read_it(void)
{
    open_case("defect_01_handoff_race"); /* has neither barriers nor shared memory of its own */
    for (uint32_t dims = 1; dims <= 3; dims++) {
        make("defect_01_handoff_race", TL_PTX_PERSISTENT, dims);
        uint32_t back = find_last("bra"), last_read = find_last("ld.shared");
        struct tl_ptx_sym *start = tl_ptx_sym_final(insts[back]->inst.operands[0].sym);
        TEST_ASSERT_NULL_MESSAGE(insts[back]->inst.guard, "the loop goes on without condition");
        uint32_t head = 0; /* the first instruction behind the label that the loop goes back to */
        while (head < n_insts && insts[head]->at < start->stmt->at)
            head++;
        uint32_t write = find_from(head, "st.shared");
        TEST_ASSERT_LESS_THAN_UINT32_MESSAGE(back, write, "the number is written inside the loop");
        uint32_t first_barrier = write;
        while (first_barrier < back && !is_barrier(insts[first_barrier]))
            first_barrier++;
        /* Reads of the leader itself may stand before its write; nobody else's. */
        uint32_t guard = find_from(head, "setp");
        TEST_ASSERT_LESS_THAN_UINT32_MESSAGE(write, guard, "only one thread writes");
        TEST_ASSERT_LESS_THAN_UINT32_MESSAGE(last_read, first_barrier,
                                             "a barrier stands between write and reads");
        uint32_t second_barrier = back;
        while (second_barrier > last_read && !is_barrier(insts[second_barrier]))
            second_barrier--;
        TEST_ASSERT_GREATER_THAN_UINT32_MESSAGE(last_read, second_barrier,
                                                "a barrier stands between reads and next write");
        TEST_ASSERT_NOT_EQUAL(first_barrier, second_barrier);
    }
}

/* --- 2 */

static void defect_2_the_number_is_handed_over_in_the_blocks_own_memory(void)
{
    open_case("defect_02_many_small_blocks");
    for (int v = TL_PTX_TICKET; v <= TL_PTX_PERSISTENT; v++) {
        make("defect_02_many_small_blocks", (enum tl_ptx_variant)v, 1);
        TEST_ASSERT_TRUE(made.uses_slot);
        TEST_ASSERT_GREATER_THAN_UINT32(0, count("st.shared"));
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, count("st.global"),
                                         "no array of slots in global memory");
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(1, count("st.volatile"),
                                         "no array of slots in global memory, but what is told");
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(2, count("atom.global"), "taking and leaving");
        const struct tl_ptx_stmt *take = insts[find_from(0, "atom.global")],
                                 *leave = insts[find_last("atom.global")];
        TEST_ASSERT_EQUAL_PTR_MESSAGE(take->inst.operands[1].elems[0].sym,
                                      leave->inst.operands[1].elems[0].sym, "one counter");
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(1, count("red.global"), "the kernel's own");
    }
    TEST_ASSERT_EQUAL_UINT32(48 + 16, TL_PTX_SHARED_BYTES(1));
    TEST_ASSERT_EQUAL_UINT32(48, TL_PTX_SHARED_BYTES(0));
}

/* --- 3 */

struct barriers {
    uint32_t of[16][2]; /* by number, without and with a count */
};

static struct barriers count_barriers(void)
{
    struct barriers b = {0};
    for (uint32_t i = 0; i < n_insts; i++) {
        const struct tl_ptx_operand *o = insts[i]->inst.operands;
        if (!is_barrier(insts[i]))
            continue;
        bool is_red = tl_ptx_form_has(insts[i]->inst.form, TL_MOD_red);
        const struct tl_ptx_operand *id = &o[is_red ? 1 : 0];
        TEST_ASSERT_EQUAL_INT(TL_OPD_INT, id->kind);
        b.of[id->bits & 15][insts[i]->n_operands == (is_red ? 4 : 2)]++;
    }
    return b;
}

static void defect_3_named_and_counted_barriers_stay_what_they_are(void)
{
    open_case("defect_03_named_barriers");
    look_at(&original, "defect_03_named_barriers");
    struct barriers before = count_barriers();
    TEST_ASSERT_EQUAL_UINT32(3, before.of[1][1]);
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        make("defect_03_named_barriers", (enum tl_ptx_variant)v, 2);
        struct barriers after = count_barriers();
        for (int id = 1; id < 16; id++) {
            TEST_ASSERT_EQUAL_UINT32(before.of[id][0], after.of[id][0]);
            TEST_ASSERT_EQUAL_UINT32(before.of[id][1], after.of[id][1]);
        }
        TEST_ASSERT_GREATER_OR_EQUAL_UINT32(before.of[0][0], after.of[0][0]);
        TEST_ASSERT_EQUAL_UINT32(0, after.of[0][1]);
    }
    static const char *const refused[] = {"bar_arrive", "barrier_register_id",
                                          "bar_red_after_divergent_return", "barrier_zero_counted"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        open_case(refused[i]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(TL_PTX_REASON_BARRIER_FORM,
                                      verdict_of(refused[i], TL_PTX_PERSISTENT), refused[i]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(TL_PTX_REASON_OK, verdict_of(refused[i], TL_PTX_TICKET),
                                      refused[i]);
    }
}

/* --- 4 */

static void defect_4_predicates_of_barriers_and_returns_are_kept(void)
{
    const char *kernel = "defect_04_predicated_barrier_ret_exit";
    open_case(kernel);
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        make(kernel, (enum tl_ptx_variant)v, 1);
        uint32_t guarded_barriers = 0, guarded_ends = 0, bare_ends = 0;
        const struct tl_ptx_sym *done = NULL;
        for (uint32_t i = 0; i < n_insts; i++) {
            const struct tl_ptx_sym *guard = insts[i]->inst.guard;
            bool is_bra = is_form(insts[i], "bra");
            if (guard != NULL && tl_str_is(guard->name, "%p1"))
                guarded_barriers += is_barrier(insts[i]);
            if (guard != NULL && (tl_str_is(guard->name, "%p2") || tl_str_is(guard->name, "%p3"))) {
                guarded_ends++;
                TEST_ASSERT_EQUAL_INT(v == TL_PTX_PERSISTENT, is_bra);
                TEST_ASSERT_TRUE(is_bra || is_form(insts[i], "ret") || is_form(insts[i], "exit"));
                struct tl_ptx_sym *to = is_bra ? tl_ptx_sym_final(insts[i]->inst.operands[0].sym)
                                               : NULL;
                TEST_ASSERT_TRUE_MESSAGE(done == NULL || done == to,
                                         "both lead to the end of the round");
                done = to;
            }
            bare_ends += guard == NULL && (is_form(insts[i], "ret") || is_form(insts[i], "exit"));
        }
        TEST_ASSERT_EQUAL_UINT32(1, guarded_barriers);
        TEST_ASSERT_EQUAL_UINT32(2, guarded_ends);
        TEST_ASSERT_EQUAL_UINT32(v == TL_PTX_PERSISTENT ? 0 : 1, bare_ends);
    }
}

/* --- 5 */

static void note_written(const struct tl_ptx_operand *o, bool *ids)
{
    if (o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG)
        ids[o->sym->id] = true;
    bool has_elements = o->kind == TL_OPD_VEC || o->kind == TL_OPD_PAIR;
    for (uint32_t i = 0; has_elements && i < o->n; i++)
        note_written(&o->elems[i], ids);
}

static void check_read(const struct tl_ptx_operand *o, const bool *ids)
{
    if (o->kind == TL_OPD_SYM) {
        char name[80];
        snprintf(name, sizeof name, TL_STR_FMT, TL_STR_ARG(o->sym->name));
        TEST_ASSERT_NOT_EQUAL_MESSAGE(TL_SYM_UNKNOWN, tl_ptx_sym_final(o->sym)->kind, name);
        TEST_ASSERT_TRUE_MESSAGE(o->sym->kind != TL_SYM_REG || ids[o->sym->id], name);
    }
    bool has_elements = o->kind == TL_OPD_VEC || o->kind == TL_OPD_LIST || o->kind == TL_OPD_PAIR ||
                        o->kind == TL_OPD_ADDR;
    for (uint32_t i = 0; has_elements && i < o->n; i++)
        check_read(&o->elems[i], ids);
}

/* Every register that is read is also written somewhere, and every name is declared. */
static void assert_nothing_undefined(const char *function)
{
    struct tl_ptx_func *f = ptx_func(&variant, function);
    bool *ids = calloc(f->n_regs + 1, sizeof *ids);
    TEST_ASSERT_NOT_NULL(ids);
    n_insts = 0;
    flatten(f->body);
    for (uint32_t i = 0; i < n_insts; i++) {
        if (tl_ptx_form_writes(insts[i]->inst.form) && insts[i]->n_operands > 0)
            note_written(&insts[i]->inst.operands[0], ids);
    }
    for (uint32_t i = 0; i < n_insts; i++) {
        for (uint32_t o = tl_ptx_form_writes(insts[i]->inst.form); o < insts[i]->n_operands; o++)
            check_read(&insts[i]->inst.operands[o], ids);
    }
    free(ids);
}

static void defect_5_the_block_number_is_found_however_it_is_read(void)
{
    static const char *const kernels[] = {"ctaid_cvt",      "ctaid_in_vectors",
                                          "ctaid_16_bit",   "defect_05_mov_b32",
                                          "ctaid_shadowed", "scope_block_number_shadowed"};
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        open_case(kernels[i]);
        for (int v = 0; v < TL_PTX_VARIANTS; v++) {
            for (uint32_t dims = 1; dims <= 3; dims++) {
                make(kernels[i], (enum tl_ptx_variant)v, dims);
                assert_nothing_undefined(made.entry);
                TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, count_reads(TL_SREG_nctaid), kernels[i]);
                if (v == TL_PTX_PERSISTENT)
                    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, count_reads(TL_SREG_ctaid), kernels[i]);
                for (uint32_t k = 0; k < n_insts; k++) {
                    for (uint32_t o = 0; o < insts[k]->n_operands; o++) {
                        bool is_read = operand_is_sreg(&insts[k]->inst.operands[o], TL_SREG_ctaid);
                        /* What is left is ours: the place in this launch, into a register of
                         * ours. */
                        TEST_ASSERT_TRUE_MESSAGE(
                            !is_read ||
                                (is_form(insts[k], "mov.u32") &&
                                 tl_str_starts(insts[k]->inst.operands[0].sym->name, "%tally")),
                            kernels[i]);
                    }
                }
            }
        }
    }
}

static void defect_5_what_counts_is_the_shape_of_the_grid_not_which_parts_are_read(void)
{
    static const char *const kernels[] = {"defect_05_reads_x_of_2d_grid",
                                          "defect_05_reads_y_not_z"};
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        open_case(kernels[i]);
        for (int v = 0; v < TL_PTX_VARIANTS; v++) {
            make(kernels[i], (enum tl_ptx_variant)v, 1);
            TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, count("mul.hi"), "a line needs no division");
            make(kernels[i], (enum tl_ptx_variant)v, 2);
            TEST_ASSERT_EQUAL_UINT32_MESSAGE(1, count("mul.hi"), "a plane is divided by its width");
            make(kernels[i], (enum tl_ptx_variant)v, 3);
            TEST_ASSERT_EQUAL_UINT32_MESSAGE(2, count("mul.hi"), "a box also by its height");
            TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, count("div") + count("rem"), "and nothing divides");
        }
    }
}

/* --- 6 */

static void defect_6_functions_see_the_original_grid_at_any_depth(void)
{
    static const struct {
        const char *kernel;
        const char *functions[3];
    } cases[] = {{"defect_06_func_reads_ctaid", {"my_place"}},
                 {"func_ctaid_two_levels", {"outer", "inner"}},
                 {"recursion_mutual_reads_ctaid", {"even", "odd"}},
                 {"func_alias", {"twice_of"}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_case(cases[i].kernel);
        for (int v = 0; v < TL_PTX_VARIANTS; v++) {
            make(cases[i].kernel, (enum tl_ptx_variant)v, 3);
            TEST_ASSERT_TRUE_MESSAGE(made.uses_slot,
                                     "functions find the number in the slot, in slices too");
            for (size_t f = 0; f < 3 && cases[i].functions[f] != NULL; f++) {
                look_at(&variant, cases[i].functions[f]);
                TEST_ASSERT_EQUAL_UINT32(0,
                                         count_reads(TL_SREG_ctaid) + count_reads(TL_SREG_nctaid));
                assert_nothing_undefined(cases[i].functions[f]);
            }
            /* The slot is filled, and a barrier met, before anything is called. */
            look_at(&variant, made.entry);
            uint32_t call = find_from(0, "call"), write = find_from(0, "st.shared"),
                     barrier = write;
            while (barrier < n_insts && !is_barrier(insts[barrier]))
                barrier++;
            TEST_ASSERT_TRUE(write < barrier && barrier < call && call < n_insts);
        }
    }
}

/* --- 7 */

static void defect_7_kernels_without_parameters_get_some(void)
{
    static const char *const kernels[] = {"params_none", "params_empty_list"};
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        open_case(kernels[i]);
        for (int v = 0; v < TL_PTX_VARIANTS; v++) {
            make(kernels[i], (enum tl_ptx_variant)v, 1);
            TEST_ASSERT_EQUAL_UINT32(0, made.original_params);
            TEST_ASSERT_EQUAL_UINT32(0, made.args[0].offset);
            TEST_ASSERT_GREATER_THAN_UINT32(0, made.n_args);
            TEST_ASSERT_EQUAL_UINT32(made.n_args, made.args[made.n_args - 1].index + 1);
        }
    }
}

static void defect_7_parameters_do_not_outgrow_their_space(void)
{
    open_case("defect_07_parameters_at_the_old_limit");
    for (int v = 0; v < TL_PTX_VARIANTS; v++)
        TEST_ASSERT_EQUAL_INT(
            TL_PTX_REASON_PARAM_SPACE,
            verdict_of("defect_07_parameters_at_the_old_limit", (enum tl_ptx_variant)v));
    open_case("params_4096");
    make("params_4096", TL_PTX_PERSISTENT, 3);
    TEST_ASSERT_EQUAL_UINT32(4096, made.original_bytes);
    TEST_ASSERT_GREATER_THAN_UINT32(4096, made.param_bytes);
    open_case("params_32000");
    make("params_32000", TL_PTX_PERSISTENT, 3);
    TEST_ASSERT_LESS_OR_EQUAL_UINT32(32764, made.param_bytes);
    open_case("params_32764");
    TEST_ASSERT_EQUAL_INT(TL_PTX_REASON_PARAM_SPACE, verdict_of("params_32764", TL_PTX_SLICE));
}

static void defect_7_launch_bounds_are_kept_and_special_launches_refused(void)
{
    open_case("defect_07_launch_bounds");
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        make("defect_07_launch_bounds", (enum tl_ptx_variant)v, 1);
        TEST_ASSERT_NOT_NULL(strstr(made.text, ".maxntid 256, 1, 1"));
        TEST_ASSERT_NOT_NULL(strstr(made.text, ".minnctapersm 2"));
    }
    static const struct {
        const char *kernel;
        enum tl_ptx_reason reason;
    } refused[] = {{"cluster_directive", TL_PTX_REASON_CLUSTER},
                   {"grid_sync_envreg", TL_PTX_REASON_GRID_SYNC},
                   {"device_launch", TL_PTX_REASON_DEVICE_LAUNCH}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        open_case(refused[i].kernel);
        for (int v = 0; v < TL_PTX_VARIANTS; v++)
            TEST_ASSERT_EQUAL_INT_MESSAGE(refused[i].reason,
                                          verdict_of(refused[i].kernel, (enum tl_ptx_variant)v),
                                          refused[i].kernel);
    }
}

/* --- 8 */

static void defect_8_waits_between_blocks_are_seen_in_the_code_not_in_the_name(void)
{
    static const char *const safe[] = {"defect_08_inter_block_wait", "lookback_ticket",
                                       "lookback_ctaid", "wait_lower_block"};
    for (size_t i = 0; i < sizeof safe / sizeof safe[0]; i++) {
        open_case(safe[i]);
        for (int v = 0; v < TL_PTX_VARIANTS; v++)
            TEST_ASSERT_EQUAL_INT_MESSAGE(TL_PTX_REASON_OK,
                                          verdict_of(safe[i], (enum tl_ptx_variant)v), safe[i]);
    }
    static const char *const unsafe[] = {
        "wait_higher_block",   "wait_any_block",    "wait_in_func",
        "wait_through_shared", "wait_irreducible",  "wait_by_recursion",
        "wait_plain_load",     "wait_generic_load", "wait_plain_load_with_backoff"};
    for (size_t i = 0; i < sizeof unsafe / sizeof unsafe[0]; i++) {
        open_case(unsafe[i]);
        for (int v = 0; v < TL_PTX_VARIANTS; v++)
            TEST_ASSERT_EQUAL_INT_MESSAGE(TL_PTX_REASON_BLOCK_WAIT,
                                          verdict_of(unsafe[i], (enum tl_ptx_variant)v), unsafe[i]);
    }
    open_case("grid_barrier");
    TEST_ASSERT_EQUAL_INT(TL_PTX_REASON_GRID_BARRIER, verdict_of("grid_barrier", TL_PTX_SLICE));
}

/* --- 9 */

/* A block number comes from the counter alone, when a block that runs asks for it, or for a batch
 * of them, whose size is the launch's.  So it does not matter how many workers are resident, nor
 * how many there are. */
static void defect_9_no_number_depends_on_how_many_workers_there_are(void)
{
    open_case("defect_09_residency");
    for (int v = TL_PTX_TICKET; v <= TL_PTX_PERSISTENT; v++) {
        make("defect_09_residency", (enum tl_ptx_variant)v, 1);
        TEST_ASSERT_EQUAL_UINT32(0, count_reads(TL_SREG_nctaid));
        TEST_ASSERT_EQUAL_UINT32(0, count_reads(TL_SREG_ctaid));
        uint32_t take = find_from(0, "atom.global.add");
        TEST_ASSERT_LESS_THAN_UINT32(n_insts, take);
        /* What is added to the counter is the upper half of what is added to its word. */
        uint32_t pack = take;
        while (pack > 0 && !is_form(insts[pack], "mov.b64"))
            pack--;
        TEST_ASSERT_EQUAL_PTR(insts[take]->inst.operands[2].sym, insts[pack]->inst.operands[0].sym);
        TEST_ASSERT_EQUAL_INT(TL_OPD_VEC, insts[pack]->inst.operands[1].kind);
        const struct tl_ptx_operand *step = &insts[pack]->inst.operands[1].elems[1];
        /* One; or the batch mask, and one: nothing else writes that register before. */
        const struct tl_ptx_stmt *last = NULL, *first = NULL;
        for (uint32_t i = 0; i < take; i++) {
            const struct tl_ptx_operand *to = insts[i]->inst.operands;
            if (insts[i]->n_operands == 0 || to->kind != TL_OPD_SYM || to->sym != step->sym)
                continue;
            first = first == NULL ? insts[i] : first;
            last = insts[i];
        }
        TEST_ASSERT_NOT_NULL(last);
        if (v == TL_PTX_TICKET) {
            TEST_ASSERT_EQUAL_PTR(first, last);
            TEST_ASSERT_EQUAL_INT(TL_OP_mov, last->inst.form->op);
            TEST_ASSERT_EQUAL_HEX64_MESSAGE(1, last->inst.operands[1].bits,
                                            "numbers go up one by one");
            continue;
        }
        TEST_ASSERT_EQUAL_INT(TL_OP_ld, first->inst.form->op);
        TEST_ASSERT_EQUAL_INT(TL_OP_add, last->inst.form->op);
        TEST_ASSERT_EQUAL_PTR(step->sym, last->inst.operands[1].sym);
        TEST_ASSERT_EQUAL_HEX64(1, last->inst.operands[2].bits);
    }
    /* The number of blocks is the original's, checked by each number taken. */
    bool has_blocks = false;
    for (uint32_t i = 0; i < made.n_args; i++)
        has_blocks |= made.args[i].kind == TL_PTX_ARG_BLOCKS;
    TEST_ASSERT_TRUE(has_blocks);
}

/* --- 10 */

/* Declarations of a function's registers in the order of the text. */
static void assert_declares(struct tl_ptx_func *f, const char *prefix, const char *name)
{
    for (struct tl_ptx_stmt *s = f->body; s != NULL; s = s->next) {
        for (struct tl_ptx_decl *d = s->kind == TL_STMT_DECL ? s->decl : NULL; d != NULL;
             d = d->next) {
            if (tl_str_is(d->name, name) && tl_str_is(d->prefix, prefix))
                return;
        }
    }
    TEST_FAIL_MESSAGE(name);
}

static void defect_10_registers_may_be_called_anything(void)
{
    static const char *const declared[][2] = {{".reg .b64", "%r"},    {".reg .b32", "%p"},
                                              {".reg .pred", "%rd"},  {".reg .b32", "%v1b"},
                                              {".reg .b32", "index"}, {".reg .b32", "$tmp"},
                                              {".reg .b32", "_under"}};
    open_case("defect_10_register_names");
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        make("defect_10_register_names", (enum tl_ptx_variant)v, 2);
        struct tl_ptx_func *f = ptx_func(&variant, made.entry);
        for (size_t i = 0; i < sizeof declared / sizeof declared[0]; i++)
            assert_declares(f, declared[i][0], declared[i][1]);
        assert_nothing_undefined(made.entry);
    }
}

static void defect_10_our_own_names_give_way_to_the_kernels(void)
{
    open_case("names_collide");
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        make("names_collide", (enum tl_ptx_variant)v, 3);
        assert_nothing_undefined(made.entry);
        for (uint32_t i = 0; i < made.n_args; i++) {
            for (uint32_t other = 0; other < i; other++)
                TEST_ASSERT_NOT_EQUAL(0, strcmp(made.args[i].name, made.args[other].name));
            TEST_ASSERT_NULL_MESSAGE(
                memmem(original.text, original.n, made.args[i].name, strlen(made.args[i].name)),
                made.args[i].name);
        }
        /* A name that the kernel uses still means what the kernel declared. */
        struct tl_ptx_decl *third = ptx_func(&variant, made.entry)->params->next->next;
        ASSERT_STR("tally_first_block", third->name);
        TEST_ASSERT_EQUAL_UINT32(3, made.original_params);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(defect_1_a_fast_leader_cannot_overwrite_the_number_before_a_slow_warp_has_read_it);
    RUN_TEST(defect_2_the_number_is_handed_over_in_the_blocks_own_memory);
    RUN_TEST(defect_3_named_and_counted_barriers_stay_what_they_are);
    RUN_TEST(defect_4_predicates_of_barriers_and_returns_are_kept);
    RUN_TEST(defect_5_the_block_number_is_found_however_it_is_read);
    RUN_TEST(defect_5_what_counts_is_the_shape_of_the_grid_not_which_parts_are_read);
    RUN_TEST(defect_6_functions_see_the_original_grid_at_any_depth);
    RUN_TEST(defect_7_kernels_without_parameters_get_some);
    RUN_TEST(defect_7_parameters_do_not_outgrow_their_space);
    RUN_TEST(defect_7_launch_bounds_are_kept_and_special_launches_refused);
    RUN_TEST(defect_8_waits_between_blocks_are_seen_in_the_code_not_in_the_name);
    RUN_TEST(defect_9_no_number_depends_on_how_many_workers_there_are);
    RUN_TEST(defect_10_registers_may_be_called_anything);
    RUN_TEST(defect_10_our_own_names_give_way_to_the_kernels);
    return UNITY_END();
}
