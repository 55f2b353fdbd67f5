/* Random kernels in which blocks meet (generate.h): whole they end and leave what they must; of
 * those whose cutting the verdict allows, every piecewise run, stopped at random, with as few
 * blocks at a time as can be, ends as well and leaves the same.
 *
 * SEEDS kernels are tried, from FIRST on; SEED=n tries that one alone, prints it, and tells all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/cut.h"
#include "test/unit/ptx_rewrite/generate.h"

enum { DEFAULT_SEEDS = 200, MAX_KINDS = 64, MAX_TOLD = 20 };

struct tally {
    uint32_t kernels, invalid, harmful, harmless, hang, accepted_harmful, refused_harmless, wrong;
    uint32_t accepted, launches;
    uint32_t usual_harmless, refused_usual; /* those without images and asynchronous copies */
    uint32_t unusual, accepted_unusual;
    struct {
        uint32_t seen, accepted, hang;
    } kinds[MAX_KINDS]; /* of kernels with a single stage */
};

static struct tally tally;
static uint64_t first_seed, n_seeds;
static bool is_told;

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != 0 ? strtoull(text, NULL, 0) : otherwise;
}

static uint32_t kind_of(const char *stage)
{
    const char *const *names;
    uint32_t n = ptx_generated_kinds(&names), i = 0;
    while (i < n && names[i] != stage)
        i++;
    return i;
}

static void tell(uint64_t seed, const struct ptx_generated *g, const struct ptx_cut *c)
{
    printf("seed %llu:", (unsigned long long)seed);
    for (uint32_t i = 0; i < g->n_stages; i++)
        printf("%s %s", i > 0 ? ";" : "", g->stages[i]);
    printf(" (%s); %u blocks of %u threads\n  whole: %s", g->is_harmful ? "harmful" : "harmless",
           g->run.grid[0], g->run.block[0], ptx_end_name(c->whole));
    printf("; one block at a time: %s%s", ptx_end_name(c->least),
           c->least == PTX_ENDED && c->least_differs ? ", with another result" : "");
    for (int v = 0; v < TL_PTX_VARIANTS; v++)
        printf("; %s: %s%s", tl_ptx_variant_name((enum tl_ptx_variant)v),
               c->is_accepted[v] ? ptx_end_name(c->ends[v]) : "refused",
               c->differs[v] ? ", with another result" : "");
    printf("%s%s\n", c->why[0] != 0 ? "; " : "", c->why);
}

/* Makes the kernel of a seed, runs it whole and cut, and counts what came of it. */
static void try_seed(uint64_t seed)
{
    struct ptx_generated g;
    ptx_generate(&g, seed);
    struct ptx_cut c = {.text = g.text.p,
                        .n = g.text.n,
                        .kernel = g.kernel,
                        .run = &g.run,
                        .args = g.args,
                        .n_args = g.n_args,
                        .ignored = g.ignored,
                        .seed = seed + 1};
    if (is_told)
        fwrite(g.text.p, 1, g.text.n, stdout);
    ptx_cut_run(&c);
    bool is_valid = c.whole == PTX_ENDED && c.left.n >= sizeof g.out &&
                    memcmp(c.left.p, g.out, sizeof g.out) == 0;
    bool hangs = c.least == PTX_HANGS || c.least == PTX_TOO_LONG;
    bool is_cut = c.is_accepted[0] || c.is_accepted[1] || c.is_accepted[2];
    bool is_wrong = ptx_cut_wrong(&c) >= 0 || !is_valid ||
                    (!g.is_harmful && (c.least != PTX_ENDED || c.least_differs));
    uint32_t kind = g.n_stages == 1 ? kind_of(g.stages[0]) : MAX_KINDS - 1;
    tally.kernels++;
    tally.invalid += !is_valid;
    tally.harmful += g.is_harmful;
    tally.harmless += !g.is_harmful;
    tally.hang += g.is_harmful && hangs;
    tally.accepted += is_cut;
    tally.accepted_harmful += g.is_harmful && is_cut;
    tally.refused_harmless += !g.is_harmful && !is_cut;
    tally.usual_harmless += !g.is_harmful && !g.is_unusual;
    tally.refused_usual += !g.is_harmful && !g.is_unusual && !is_cut;
    tally.unusual += g.is_unusual;
    tally.accepted_unusual += g.is_unusual && is_cut;
    tally.wrong += is_wrong;
    tally.launches += c.n_launches;
    tally.kinds[kind].seen++;
    tally.kinds[kind].accepted += is_cut;
    tally.kinds[kind].hang += hangs;
    if (is_told || (is_wrong && tally.wrong <= MAX_TOLD))
        tell(seed, &g, &c);
    ptx_cut_finish(&c);
    ptx_generated_finish(&g);
}

static double share(uint32_t part, uint32_t whole)
{
    return whole != 0 ? 100.0 * part / whole : 0;
}

static void print_tally(void)
{
    const char *const *names;
    uint32_t n = ptx_generated_kinds(&names);
    printf("seeds %llu to %llu: %u kernels, %u launches of variants\n",
           (unsigned long long)first_seed, (unsigned long long)(first_seed + n_seeds - 1),
           tally.kernels, tally.launches);
    printf("harmful: %u, of which %u (%.1f %%) hang with one block at a time; %u accepted\n",
           tally.harmful, tally.hang, share(tally.hang, tally.harmful), tally.accepted_harmful);
    printf("harmless: %u, of which %u (%.1f %%) are refused\n", tally.harmless,
           tally.refused_harmless, share(tally.refused_harmless, tally.harmless));
    printf("  without images and asynchronous copies: %u, of which %u (%.1f %%)\n",
           tally.usual_harmless, tally.refused_usual,
           share(tally.refused_usual, tally.usual_harmless));
    printf("with images or asynchronous copies: %u, of which %u are accepted\n", tally.unusual,
           tally.accepted_unusual);
    printf("wrong: %u (invalid: %u)\n", tally.wrong, tally.invalid);
    for (uint32_t i = 0; i < n; i++) {
        if (tally.kinds[i].seen > 0)
            printf("  %-40s %5u alone, %5u accepted, %5u hang\n", names[i], tally.kinds[i].seen,
                   tally.kinds[i].accepted, tally.kinds[i].hang);
    }
}

static void what_the_verdict_allows_ends_and_leaves_the_same(void)
{
    for (uint64_t i = 0; i < n_seeds; i++)
        try_seed(first_seed + i);
    print_tally();
    TEST_ASSERT_EQUAL_UINT32(0, tally.wrong);
}

static void what_is_made_to_hang_does(void)
{
    /* Without these the test above would be one that cannot fail. */
    if (!is_told)
        TEST_ASSERT_TRUE(tally.hang * 10 >= tally.harmful * 9);
    TEST_ASSERT_TRUE(is_told || tally.accepted > 0);
}

void setUp(void)
{
}

void tearDown(void)
{
}

int main(void)
{
    UNITY_BEGIN();
    is_told = getenv("SEED") != NULL;
    first_seed = number_from(is_told ? "SEED" : "FIRST", 1);
    n_seeds = is_told ? 1 : number_from("SEEDS", DEFAULT_SEEDS);
    RUN_TEST(what_the_verdict_allows_ends_and_leaves_the_same);
    RUN_TEST(what_is_made_to_hang_does);
    return UNITY_END();
}
