/* Rewritten kernels and measured times on disk. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unity.h>

#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/plan.h"
#include "runtime/effort/profile.h"
#include "runtime/effort/state.h"
#include "runtime/effort/store.h"
#include "runtime/effort/variant.h"
#include "test/unit/scratch.h"

/* What the rest of the best-effort part would bring. */
struct tl_eff_state tl_eff;
static uint32_t n_notes;

void tl_eff_note(const char *format, ...)
{
    (void)format;
    n_notes++;
}

static char folder[64];

void setUp(void)
{
    scratch_path(folder, sizeof folder, "store-XXXXXX");
    if (folder[0] != 0 && getenv("STORE_TEST_FOLDER") == NULL) {
        TEST_ASSERT_NOT_NULL(mkdtemp(folder));
        setenv("STORE_TEST_FOLDER", folder, 1);
        setenv("TALLY_CACHE", folder, 1);
    }
    n_notes = 0;
    tl_eff_lock(); /* as everybody does who looks at profiles */
}

void tearDown(void)
{
    tl_eff_unlock();
}

static void save(void)
{
    tl_eff_unlock();
    tl_eff_profile_save();
    tl_eff_lock();
}

static bool is_slow(const struct tl_eff_profile *p, enum tl_rung rung)
{
    struct tl_eff_facts f = {0};
    tl_eff_profile_facts(p, &f);
    return f.rungs[rung].is_slow;
}

static bool is_on_trial(const struct tl_eff_profile *p, enum tl_rung rung)
{
    struct tl_eff_facts f = {.rung = rung, .force = -1};
    tl_eff_profile_facts(p, &f);
    return tl_eff_plan_is_trial(&f);
}

static struct tl_eff_rewritten sample(void)
{
    static struct tl_ptx_arg args[] = {
        {.kind = TL_PTX_ARG_COUNTER, .index = 2, .offset = 16, .size = 8},
        {.kind = TL_PTX_ARG_STOP_WORD, .index = 3, .offset = 24, .size = 8, .which = 2},
        {.kind = TL_PTX_ARG_VARIABLE,
         .index = 4,
         .offset = 32,
         .size = 8,
         .variable = "table_of_things"},
    };
    static char *table[] = {"one", "two"};
    return (struct tl_eff_rewritten){.text = ".version 9.0\n.target sm_90\n",
                                     .entry = "k__tally_ticket1",
                                     .table_name = "tally_table",
                                     .args = args,
                                     .n_args = 3,
                                     .original_params = 2,
                                     .original_bytes = 16,
                                     .param_bytes = 40,
                                     .conditions = TL_PTX_IF_GRID_IS_LINE,
                                     .table = table,
                                     .n_table = 2,
                                     .uses_slot = true};
}

static void what_was_stored_is_found_again(void)
{
    struct tl_eff_rewritten r = sample(), found;
    TEST_ASSERT_EQUAL(-ENOENT, tl_eff_store_get("key-1", &found));
    tl_eff_store_put("key-1", &r);
    TEST_ASSERT_EQUAL(0, tl_eff_store_get("key-1", &found));
    TEST_ASSERT_EQUAL_STRING(r.text, found.text);
    TEST_ASSERT_EQUAL_STRING(r.entry, found.entry);
    TEST_ASSERT_EQUAL_STRING(r.table_name, found.table_name);
    TEST_ASSERT_EQUAL(3, found.n_args);
    TEST_ASSERT_EQUAL(2, found.n_table);
    TEST_ASSERT_EQUAL(40, found.param_bytes);
    TEST_ASSERT_EQUAL(TL_PTX_IF_GRID_IS_LINE, found.conditions);
    TEST_ASSERT_TRUE(found.uses_slot);
    for (uint32_t i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL(r.args[i].kind, found.args[i].kind);
        TEST_ASSERT_EQUAL(r.args[i].offset, found.args[i].offset);
        TEST_ASSERT_EQUAL(r.args[i].which, found.args[i].which);
    }
    TEST_ASSERT_EQUAL_STRING("table_of_things", found.args[2].variable);
    TEST_ASSERT_EQUAL_STRING("two", found.table[1]);
    tl_eff_rewritten_finish(&found);
    TEST_ASSERT_EQUAL(-ENOENT, tl_eff_store_get("key-2", &found));
}

/* Whoever owns a folder above ours puts another one in its place, with a forged kernel. */
static void a_kernel_is_read_where_it_was_checked(void)
{
    struct tl_eff_rewritten r = sample(), found;
    char command[600];
    tl_eff_store_put("key-4", &r);
    snprintf(command, sizeof command,
             "cd '%s' && cp -a effort forged && mv effort genuine && mv forged effort && "
             "sed -i 's/two/bad/' effort/*.so",
             getenv("STORE_TEST_FOLDER"));
    TEST_ASSERT_EQUAL(0, system(command));
    int rc = tl_eff_store_get("key-4", &found);
    snprintf(command, sizeof command, "cd '%s' && rm -r effort && mv genuine effort",
             getenv("STORE_TEST_FOLDER"));
    TEST_ASSERT_EQUAL(0, system(command));
    TEST_ASSERT_EQUAL(0, rc);
    TEST_ASSERT_EQUAL_STRING("two", found.table[1]);
    tl_eff_rewritten_finish(&found);
}

static void an_argument_outside_the_parameters_is_refused(void)
{
    struct tl_eff_rewritten r = sample(), found;
    r.param_bytes = 38; /* the last argument ends at 40 */
    tl_eff_store_put("key-3", &r);
    TEST_ASSERT_EQUAL(-ENOENT, tl_eff_store_get("key-3", &found));
    TEST_ASSERT_NULL(found.text);
}

/* --- keys --- */

static void digest_of(const char *text, uint8_t digest[TL_DIGEST_BYTES])
{
    struct tl_digest d;
    tl_digest_init(&d);
    tl_digest_add(&d, text, strlen(text));
    tl_digest_end(&d, digest);
}

static void every_part_of_an_origin_makes_another_key(void)
{
    uint8_t text[TL_DIGEST_BYTES], other[TL_DIGEST_BYTES];
    char keys[8][TL_EFF_KEY_BYTES], again[TL_EFF_KEY_BYTES];
    const struct tl_eff_origin o = {.text = text,
                                    .kernel = "k",
                                    .kind = TL_PTX_TICKET,
                                    .dims = 1,
                                    .max_registers = 32,
                                    .driver = 12000,
                                    .rewriter = 5};
    struct tl_eff_origin changed[8];
    for (int i = 0; i < 8; i++)
        changed[i] = o;
    digest_of("a text", text);
    digest_of("another text", other);
    changed[1].text = other;
    changed[2].kernel = "k2";
    changed[3].kind = TL_PTX_PERSISTENT;
    changed[4].dims = 2;
    changed[5].max_registers = 0;
    changed[6].driver = 12001;
    changed[7].rewriter = 6;
    for (int i = 0; i < 8; i++) {
        tl_eff_store_key(keys[i], &changed[i]);
        TEST_ASSERT_EQUAL_size_t(TL_EFF_KEY_BYTES - 1, strlen(keys[i]));
        for (int k = 0; k < i; k++)
            TEST_ASSERT_NOT_EQUAL_INT(0, strcmp(keys[i], keys[k]));
    }
    tl_eff_store_key(again, &o);
    TEST_ASSERT_EQUAL_STRING(keys[0], again);
}

/* A hash of 64 bits that multiplies and folds, word by word, of which anybody can make two
 * alike. */
static uint64_t weak_hash(const char *text)
{
    uint64_t h = 0xcbf29ce484222325ull, w;
    size_t n = strlen(text);
    for (; n >= 8; n -= 8, text += 8) {
        memcpy(&w, text, 8);
        h = (h ^ w) * 0x9E3779B97F4A7C15ull;
        h ^= h >> 29;
    }
    for (; n > 0; n--)
        h = (h ^ (uint8_t)*text++) * 0x100000001b3ull;
    return h ^ h >> 32;
}

static void texts_that_a_weak_hash_takes_for_one_have_their_own_keys(void)
{
    static const char one[] = "//  one\n// aaaa\n.version 8.0\n",
                      two[] = "//GPORb8^)#L\xaf!}\n.version 8.0\n";
    uint8_t digest[2][TL_DIGEST_BYTES];
    char keys[2][TL_EFF_KEY_BYTES];
    TEST_ASSERT_EQUAL_UINT64(weak_hash(one), weak_hash(two));
    digest_of(one, digest[0]);
    digest_of(two, digest[1]);
    for (int i = 0; i < 2; i++)
        tl_eff_store_key(keys[i],
                         &(struct tl_eff_origin){.text = digest[i], .kernel = "k", .dims = 1});
    TEST_ASSERT_NOT_EQUAL_INT(0, strcmp(keys[0], keys[1]));
}

/* --- profiles --- */

static struct tl_eff_kernel kernel = {.name = "k", .fingerprint = 12345};
static struct tl_eff_variant variant = {.kernel = &kernel, .rung = TL_RUNG_PERSISTENT};

static struct tl_eff_launch launch_of(uint32_t blocks)
{
    return (struct tl_eff_launch){.kernel = &kernel,
                                  .grid = {blocks, 1, 1},
                                  .block = {128, 1, 1},
                                  .blocks = blocks,
                                  .variant = &variant};
}

static void single_long_measurements_do_not_count_for_much(void)
{
    struct tl_eff_launch l = launch_of(64);
    struct tl_eff_profile *p = tl_eff_profile(&kernel, &l);
    TEST_ASSERT_NOT_NULL(p);
    TEST_ASSERT_EQUAL_PTR(p, tl_eff_profile(&kernel, &l));
    for (int i = 0; i < 20; i++)
        tl_eff_profile_ran(p, &l, TL_RUNG_WHOLE, 100000, 64, 2);
    /* the machine was busy with something else */
    tl_eff_profile_ran(p, &l, TL_RUNG_WHOLE, 50000000, 64, 2);
    TEST_ASSERT_UINT64_WITHIN(10000, 100000, tl_eff_predicted_ns(p));
    for (int i = 0; i < 20; i++)
        tl_eff_profile_ran(p, &l, TL_RUNG_WHOLE, 50000, 64, 2);
    TEST_ASSERT_UINT64_WITHIN(5000, 50000, tl_eff_predicted_ns(p));
}

struct product { /* as a kernel might have it for its only parameter */
    const float *a, *b;
    int m, n, k;
    float scale;
    bool is_transposed;
};

static uint64_t sizes_of(uintptr_t a, int k, float scale)
{
    struct product p;
    memset(&p, 0, sizeof p); /* what lies between the members as well */
    memcpy(&p.a, &a, sizeof a);
    memcpy(&p.b, &a, sizeof a);
    p.m = p.n = 512;
    p.k = k;
    p.scale = scale;
    return tl_eff_sizes(0, &p, sizeof p);
}

static void sizes_are_told_from_addresses_and_floats(void)
{
    const uintptr_t here = 0x7f12a4b00000, there = 0x7f13c5d00100;
    TEST_ASSERT_EQUAL_UINT64(sizes_of(here, 64, 0.5f), sizes_of(there, 64, 0.001f));
    TEST_ASSERT_NOT_EQUAL_UINT64(sizes_of(here, 64, 0.5f), sizes_of(here, 256, 0.5f));
    int n = 3;
    char flag = 1;
    TEST_ASSERT_NOT_EQUAL_UINT64(tl_eff_sizes(0, &n, sizeof n),
                                 tl_eff_sizes(0, &flag, sizeof flag));
}

static void launches_of_other_sizes_have_other_times(void)
{
    struct tl_eff_launch l = launch_of(96), other = launch_of(96);
    l.sizes = 1;
    other.sizes = 2;
    struct tl_eff_profile *p = tl_eff_profile(&kernel, &l), *q = tl_eff_profile(&kernel, &other);
    TEST_ASSERT_NOT_NULL(p);
    TEST_ASSERT_TRUE(p != q);
    TEST_ASSERT_TRUE(p->key != q->key);
    for (int i = 0; i < 20; i++) {
        tl_eff_profile_ran(p, &l, TL_RUNG_WHOLE, 100000, 96, 2);
        tl_eff_profile_ran(q, &other, TL_RUNG_WHOLE, 400000, 96, 2);
    }
    TEST_ASSERT_EQUAL_UINT64(100000, tl_eff_predicted_ns(p));
    TEST_ASSERT_EQUAL_UINT64(400000, tl_eff_predicted_ns(q));
    struct tl_eff_profile *last = NULL;
    uint32_t n_different = 0;
    for (uint32_t step = 10; step < 1000; step++) { /* a parameter that counts */
        other.sizes = step;
        n_different += last != tl_eff_profile(&kernel, &other);
        last = tl_eff_profile(&kernel, &other);
    }
    TEST_ASSERT_TRUE(n_different < 20);
    TEST_ASSERT_EQUAL_PTR(p, tl_eff_profile(&kernel, &l));
}

static void a_variant_that_costs_too_much_is_given_up(void)
{
    struct tl_eff_launch l = launch_of(128);
    struct tl_eff_profile *p = tl_eff_profile(&kernel, &l);
    for (int i = 0; i < 5; i++)
        tl_eff_profile_ran(p, &l, TL_RUNG_WHOLE, 6400000, 128, 2); /* 100 us a wave */
    tl_eff_profile_ran(p, &l, TL_RUNG_TICKET, 8 * 110000 / 2, 8, 2);
    for (int i = 0; i < 12; i++) {
        TEST_ASSERT_FALSE(p->rungs[TL_RUNG_PERSISTENT].is_slow);
        TEST_ASSERT_TRUE(is_on_trial(p, TL_RUNG_PERSISTENT));
        tl_eff_profile_ran(p, &l, TL_RUNG_PERSISTENT, 8 * 300000 / 2, 8, 2);
    }
    TEST_ASSERT_TRUE(p->rungs[TL_RUNG_PERSISTENT].is_slow);
    TEST_ASSERT_FALSE(p->rungs[TL_RUNG_TICKET].is_slow);
    TEST_ASSERT_EQUAL(1, n_notes);
    /* pieces say nothing about the original */
    TEST_ASSERT_UINT64_WITHIN(1, 6400000, tl_eff_predicted_ns(p));
}

static void a_variant_that_was_slow_while_the_machine_was_busy_is_not_given_up(void)
{
    struct tl_eff_launch l = launch_of(256);
    struct tl_eff_profile *p = tl_eff_profile(&kernel, &l);
    for (int i = 0; i < 5; i++)
        tl_eff_profile_ran(p, &l, TL_RUNG_WHOLE, 12800000, 256, 2); /* 100 us a wave */
    for (int i = 0; i < 11; i++)
        tl_eff_profile_ran(p, &l, TL_RUNG_PERSISTENT, 8 * 300000 / 2, 8, 2);
    tl_eff_profile_ran(p, &l, TL_RUNG_PERSISTENT, 8 * 105000 / 2, 8, 2);
    TEST_ASSERT_FALSE(is_slow(p, TL_RUNG_PERSISTENT));
    TEST_ASSERT_FALSE(is_on_trial(p, TL_RUNG_PERSISTENT));
}

static void a_variant_that_was_given_up_is_tried_again_less_and_less_often(void)
{
    struct tl_eff_launch l = launch_of(512);
    struct tl_eff_profile *p = tl_eff_profile(&kernel, &l);
    uint32_t waited[2];
    for (int i = 0; i < 5; i++)
        tl_eff_profile_ran(p, &l, TL_RUNG_WHOLE, 25600000, 512, 2);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 12; i++)
            tl_eff_profile_ran(p, &l, TL_RUNG_TICKET, 8 * 300000 / 2, 8, 2);
        uint32_t from = p->n_launches;
        TEST_ASSERT_TRUE(is_slow(p, TL_RUNG_TICKET));
        while (is_slow(p, TL_RUNG_TICKET))
            p->n_launches++;
        tl_eff_profile_retry(p, TL_RUNG_TICKET);
        TEST_ASSERT_TRUE(is_on_trial(p, TL_RUNG_TICKET));
        waited[round] = p->n_launches - from;
    }
    TEST_ASSERT_TRUE(waited[1] > waited[0]);
}

/* As if the process were another. */
static void forget(void)
{
    while (kernel.profiles != NULL) {
        struct tl_eff_profile *p = kernel.profiles;
        kernel.profiles = p->next;
        free(p);
    }
}

static void what_was_learnt_outlives_the_job(void)
{
    struct tl_eff_launch l = launch_of(128);
    tl_eff_profile_keep(&kernel);
    save();
    forget();
    tl_eff_profile_load();
    struct tl_eff_profile *p = tl_eff_profile(&kernel, &l);
    TEST_ASSERT_EQUAL_UINT64(6400000, p->whole_ns);
    /* But that a rung was slow may have been the machine's fault: it gets another trial. */
    TEST_ASSERT_FALSE(p->rungs[TL_RUNG_PERSISTENT].is_slow);
    TEST_ASSERT_TRUE(tl_eff_wants_sample(p)); /* a first guess only */
    struct tl_eff_launch other = launch_of(129);
    TEST_ASSERT_EQUAL_UINT64(0, tl_eff_profile(&kernel, &other)->whole_ns);
    forget();
}

static void a_kernel_that_is_unloaded_again_and_again_takes_no_room_from_others(void)
{
    struct tl_eff_launch often = launch_of(1000), seldom = launch_of(1001);
    tl_eff_profile_ran(tl_eff_profile(&kernel, &often), &often, TL_RUNG_WHOLE, 500000, 1000, 2);
    for (int i = 0; i < 20000; i++)
        tl_eff_profile_keep(&kernel);
    forget();
    tl_eff_profile_ran(tl_eff_profile(&kernel, &seldom), &seldom, TL_RUNG_WHOLE, 300000, 1001, 2);
    tl_eff_profile_keep(&kernel);
    forget();
    save();
    tl_eff_profile_load();
    TEST_ASSERT_EQUAL_UINT64(500000, tl_eff_profile(&kernel, &often)->whole_ns);
    TEST_ASSERT_EQUAL_UINT64(300000, tl_eff_profile(&kernel, &seldom)->whole_ns);
    forget();
}

static void times_that_others_could_have_written_are_not_believed(void)
{
    struct tl_eff_launch l = launch_of(2000);
    char effort[100], file[120];
    snprintf(effort, sizeof effort, "%s/effort", getenv("STORE_TEST_FOLDER"));
    snprintf(file, sizeof file, "%s/profiles", effort);
    tl_eff_profile_ran(tl_eff_profile(&kernel, &l), &l, TL_RUNG_WHOLE, 700000, 2000, 2);
    tl_eff_profile_keep(&kernel);
    save();
    forget();
    TEST_ASSERT_EQUAL(0, chmod(effort, 0777));
    tl_eff_profile_load();
    TEST_ASSERT_EQUAL_UINT64(0, tl_eff_profile(&kernel, &l)->whole_ns);
    forget();
    TEST_ASSERT_EQUAL(0, chmod(effort, 0700));
    tl_eff_profile_load();
    TEST_ASSERT_EQUAL_UINT64(700000, tl_eff_profile(&kernel, &l)->whole_ns);
    forget();
    TEST_ASSERT_EQUAL(0, unlink(file));
    TEST_ASSERT_EQUAL(0, mkfifo(file, 0600)); /* nor waited for */
    tl_eff_profile_load();
    TEST_ASSERT_EQUAL_UINT64(0, tl_eff_profile(&kernel, &l)->whole_ns);
    forget();
    TEST_ASSERT_EQUAL(0, unlink(file));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(what_was_stored_is_found_again);
    RUN_TEST(a_kernel_is_read_where_it_was_checked);
    RUN_TEST(an_argument_outside_the_parameters_is_refused);
    RUN_TEST(every_part_of_an_origin_makes_another_key);
    RUN_TEST(texts_that_a_weak_hash_takes_for_one_have_their_own_keys);
    RUN_TEST(single_long_measurements_do_not_count_for_much);
    RUN_TEST(sizes_are_told_from_addresses_and_floats);
    RUN_TEST(launches_of_other_sizes_have_other_times);
    RUN_TEST(a_variant_that_costs_too_much_is_given_up);
    RUN_TEST(a_variant_that_was_slow_while_the_machine_was_busy_is_not_given_up);
    RUN_TEST(a_variant_that_was_given_up_is_tried_again_less_and_less_often);
    RUN_TEST(what_was_learnt_outlives_the_job);
    RUN_TEST(a_kernel_that_is_unloaded_again_and_again_takes_no_room_from_others);
    RUN_TEST(times_that_others_could_have_written_are_not_believed);
    return UNITY_END();
}
