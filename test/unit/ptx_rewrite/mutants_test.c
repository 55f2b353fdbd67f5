/* Mutants of cases and of random kernels that may be cut (mutate.h, generate.h): the direction of a
 * wait, the sign of an addition, a compared value, a scope, a missing release, a branch, an index.
 * Those that are still allowed to be cut must end when they are, and leave what they leave when run
 * whole.
 *
 * MUTANTS limits how many of a kernel are tried (evenly chosen; 0 for all), KERNELS how many random
 * kernels are, CASE names some cases. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/cut.h"
#include "test/unit/ptx_rewrite/generate.h"
#include "test/unit/ptx_rewrite/mutate.h"

enum { DEFAULT_MUTANTS = 10, DEFAULT_KERNELS = 40, MAX_BLOCKS = 4, MAX_TOLD = 20 };

struct tally {
    uint32_t kernels, mutants, unread, refused, accepted, invalid, unsteady, wrong;
};

static struct tally tally;
static uint32_t limit, n_random;

static uint32_t number_from(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != 0 ? (uint32_t)strtoul(text, NULL, 0) : otherwise;
}

/* --- one kernel ------------------------------------------------------------------------------- */

struct subject {
    const char *file;
    char kernel[128];
    struct ptx_case_run run;
    const struct ptx_case_kernel *k;
    uint32_t ignored;   /* arguments that may end as they like */
    uint64_t max_steps; /* more than the kernel itself takes */
};

/* Fewer blocks than a case asks for are enough to wait for each other. */
static bool choose_run(struct subject *s)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < s->k->n_runs; i++) {
        const uint32_t *grid = s->k->runs[i].grid;
        uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
        if (blocks > best && s->k->runs[i].block[0] * s->k->runs[i].block[1] <= 128) {
            best = (uint32_t)blocks;
            s->run = s->k->runs[i];
        }
    }
    uint32_t room = MAX_BLOCKS;
    for (int c = 2; c >= 0; c--) { /* the outer ones are small, and order the blocks */
        if (s->run.grid[c] > room)
            s->run.grid[c] = room;
        room /= s->run.grid[c] > 0 ? s->run.grid[c] : 1;
        room = room == 0 ? 1 : room;
    }
    return best > 0;
}

static void run_cut(struct ptx_cut *c, const struct subject *s, const char *text, uint64_t seed,
                    uint32_t burst, bool is_whole_only)
{
    *c = (struct ptx_cut){.text = text,
                          .n = strlen(text),
                          .kernel = s->kernel,
                          .run = &s->run,
                          .args = s->k->args,
                          .n_args = s->k->n_args,
                          .ignored = s->ignored,
                          .seed = seed,
                          .burst = burst,
                          .is_converged = true,
                          .max_steps = s->max_steps,
                          .is_whole_only = is_whole_only};
    ptx_cut_run(c);
}

static bool is_allowed(const char *text, const char *kernel, bool *is_read)
{
    struct tl_ptx_index *ix;
    struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
    struct tl_error err;
    bool is_ok = false;
    *is_read = tl_ptx_index_create(&ix, text, strlen(text), "mutant", &err) == 0;
    if (!*is_read)
        return false;
    *is_read = tl_ptx_judge(ix, tl_str_of(kernel), verdicts, &err) == 0;
    for (int v = 0; *is_read && v < TL_PTX_VARIANTS; v++)
        is_ok |= verdicts[v].reason == TL_PTX_REASON_OK;
    tl_ptx_index_destroy(ix);
    return is_ok;
}

/* Whether it depends on the order of steps what it leaves, or even whether it ends, when it is run
 * whole: then it is no valid kernel, and cutting it is not to blame. */
static bool is_unsteady(const struct subject *s, const char *text, const struct ptx_cut *first)
{
    static const uint32_t bursts[] = {1, 3, 40, 400, 4000};
    bool differs = first->least == PTX_ENDED && first->least_differs;
    for (uint64_t seed = 0; seed < 60 && !differs; seed++) {
        struct ptx_cut c;
        run_cut(&c, s, text, 100 + seed, bursts[seed % 5], true);
        differs = c.whole != PTX_ENDED || c.left.n != first->left.n ||
                  memcmp(c.left.p, first->left.p, c.left.n) != 0;
        ptx_cut_finish(&c);
    }
    return differs;
}

static void try_mutant(const struct subject *s, const char *text, const char *what)
{
    struct ptx_cut c;
    bool is_read = false, is_wrong;
    tally.mutants++;
    bool is_accepted = is_allowed(text, s->kernel, &is_read);
    tally.unread += !is_read;
    tally.refused += is_read && !is_accepted;
    if (!is_accepted)
        return;
    run_cut(&c, s, text, 1, 0, false);
    tally.accepted++;
    tally.invalid += c.whole != PTX_ENDED;
    int v = ptx_cut_wrong(&c);
    is_wrong = v >= 0;
    if (is_wrong && is_unsteady(s, text, &c)) {
        is_wrong = false;
        tally.unsteady++;
    }
    tally.wrong += is_wrong;
    if (is_wrong && tally.wrong <= MAX_TOLD) {
        printf("%s, %s: %s\n  whole: %s; one block at a time: %s%s; %s: %s%s %s\n", s->file,
               s->kernel, what, ptx_end_name(c.whole), ptx_end_name(c.least),
               c.least_differs ? ", with another result" : "",
               tl_ptx_variant_name((enum tl_ptx_variant)v), ptx_end_name(c.ends[v]),
               c.differs[v] ? ", with another result" : "", c.why);
        if (getenv("CASE") != NULL)
            printf("%s\n", text);
    }
    ptx_cut_finish(&c);
}

static void try_kernel(const struct tl_ptx_index *ix, const char *given, struct subject *s)
{
    struct ptx_cut whole;
    char what[256], *text;
    uint32_t n = 0;
    bool is_read;
    if (!choose_run(s) || !is_allowed(given, s->kernel, &is_read))
        return;
    s->max_steps = 0;
    run_cut(&whole, s, given, 1, 0, false);
    bool is_fit = whole.whole == PTX_ENDED && ptx_cut_wrong(&whole) < 0 && whole.least == PTX_ENDED;
    s->max_steps = 4 * whole.steps + 2000;
    ptx_cut_finish(&whole);
    if (!is_fit)
        return; /* uses what the interpreter does not know */
    tally.kernels++;
    while ((text = ptx_mutant(ix, s->kernel, n, what, sizeof what)) != NULL) {
        free(text);
        n++;
    }
    uint32_t step = limit == 0 || n <= limit ? 1 : (n + limit - 1) / limit;
    for (uint32_t i = tally.kernels % step; i < n; i += step) {
        text = ptx_mutant(ix, s->kernel, i, what, sizeof what);
        try_mutant(s, text, what);
        free(text);
    }
}

/* --- all of them ------------------------------------------------------------------------------ */

static void try_case(const char *file)
{
    struct ptx_case c;
    struct tl_ptx_index *ix;
    struct tl_error err;
    char message[256], path[4096];
    snprintf(path, sizeof path, "%s/%s", ptx_cases_folder(), file);
    bool ok = ptx_case_read(&c, path, message, sizeof message);
    if (ok && !c.is_cuda && tl_ptx_index_create(&ix, c.text, c.n, file, &err) == 0) {
        for (uint32_t i = 0; i < tl_ptx_index_count(ix); i++) {
            const struct tl_ptx_item *item = tl_ptx_index_item(ix, i);
            struct subject s = {.file = file};
            if (item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
                continue;
            snprintf(s.kernel, sizeof s.kernel, TL_STR_FMT, TL_STR_ARG(item->name));
            s.k = ptx_case_kernel_of(&c, item->name);
            if (s.k != NULL)
                try_kernel(ix, c.text, &s);
        }
        tl_ptx_index_destroy(ix);
    }
    ptx_case_finish(&c);
}

static void try_random(uint64_t seed)
{
    struct ptx_generated g;
    static struct ptx_case_kernel k;
    struct tl_ptx_index *ix;
    struct tl_error err;
    char name[32];
    ptx_generate(&g, seed);
    snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed);
    k = (struct ptx_case_kernel){.n_runs = 1, .n_args = g.n_args};
    k.runs[0] = g.run;
    memcpy(k.args, g.args, sizeof k.args);
    struct subject s = {.file = name, .k = &k, .ignored = g.ignored};
    snprintf(s.kernel, sizeof s.kernel, "%s", g.kernel);
    tl_buf_add(&g.text, "", 1); /* as a string */
    if (tl_ptx_index_create(&ix, g.text.p, g.text.n - 1, name, &err) == 0) {
        try_kernel(ix, g.text.p, &s);
        tl_ptx_index_destroy(ix);
    }
    ptx_generated_finish(&g);
}

static void no_mutant_that_may_be_cut_hangs_or_differs(void)
{
    char **names;
    const char *only = getenv("CASE");
    uint32_t n = ptx_case_names(&names);
    for (uint32_t i = 0; i < n; i++) {
        if (only == NULL || strstr(names[i], only) != NULL)
            try_case(names[i]);
    }
    ptx_case_names_free(names, n);
    for (uint32_t i = 0; only == NULL && i < n_random; i++)
        try_random(i + 1);
    printf("%u kernels, %u mutants: %u refused, %u accepted, %u no PTX; of those accepted, %u do "
           "not end even "
           "when run whole, %u depend on the order of steps\nwrong: %u\n",
           tally.kernels, tally.mutants, tally.refused, tally.accepted, tally.unread, tally.invalid,
           tally.unsteady, tally.wrong);
    TEST_ASSERT_TRUE(only != NULL ||
                     (tally.kernels > 50 && tally.refused > 0 && tally.accepted > 0));
    TEST_ASSERT_EQUAL_UINT32(0, tally.wrong);
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
    limit = number_from("MUTANTS", DEFAULT_MUTANTS);
    n_random = number_from("KERNELS", DEFAULT_KERNELS);
    RUN_TEST(no_mutant_that_may_be_cut_hangs_or_differs);
    return UNITY_END();
}
