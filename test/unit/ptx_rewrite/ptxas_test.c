/* ptxas, the judge that counts: it accepts every case (or refuses it, where the case says so) and
 * every variant of it.
 *
 * A module per run: kernels put together into one would share names that they do not share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/case.h"
#include "test/unit/ptx_rewrite/help.h"

enum { AT_ONCE = 2, SECONDS_EACH = 28 };

struct run {
    pid_t pid; /* 0 if free */
    char what[300];
    bool must_fail;
    char in[4200], log[4200];
};

static char folder[4096], ptxas[4096];
static struct run runs[AT_ONCE];
static uint32_t n_runs, n_left_out;
static struct timespec begin;
static struct tl_buf wrong;

void setUp(void)
{
    wrong = (struct tl_buf){0};
    n_runs = n_left_out = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
}

void tearDown(void)
{
    tl_buf_finish(&wrong);
}

/* Waits for one run to end and says what is wrong with it. */
static void finish_one(void)
{
    int status;
    pid_t pid = wait(&status);
    for (int i = 0; i < AT_ONCE && pid > 0; i++) {
        struct run *r = &runs[i];
        if (r->pid != pid)
            continue;
        bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
        if (failed != r->must_fail) {
            size_t n = 0;
            char *said = ptx_read_file(r->log, &n);
            tl_buf_printf(&wrong, "%s: %s\n%.*s", r->what, failed ? "is refused" : "is accepted",
                          said != NULL ? (int)(n < 600 ? n : 600) : 0, said != NULL ? said : "");
            free(said);
        }
        r->pid = 0;
    }
}

static uint32_t running(void)
{
    uint32_t n = 0;
    for (int i = 0; i < AT_ONCE; i++)
        n += runs[i].pid != 0;
    return n;
}

static void show(const char *what, struct tl_str target, const char *text, size_t n,
                 const char *options, bool must_fail)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - begin.tv_sec >= SECONDS_EACH) {
        n_left_out++;
        return;
    }
    if (running() == AT_ONCE)
        finish_one();
    struct run *r = runs;
    while (r->pid != 0)
        r++;
    char arch[80], option[80], to[] = "-o", nowhere[] = "/dev/null";
    snprintf(r->what, sizeof r->what, "%s", what);
    snprintf(arch, sizeof arch, "-arch=" TL_STR_FMT, TL_STR_ARG(target));
    snprintf(option, sizeof option, "%s", options);
    r->must_fail = must_fail;
    FILE *f = fopen(r->in, "wb");
    TEST_ASSERT_NOT_NULL(f);
    TEST_ASSERT_EQUAL_size_t(n, fwrite(text, 1, n, f));
    TEST_ASSERT_EQUAL_INT(0, fclose(f));
    char *argv[] = {ptxas, arch, to, nowhere, r->in, option[0] != 0 ? option : NULL, NULL};
    r->pid = ptx_start(argv, r->log);
    TEST_ASSERT_GREATER_THAN_INT_MESSAGE(0, r->pid, "ptxas does not start");
    n_runs++;
}

static void show_variants(const struct ptx_case *c, const struct tl_ptx_index *ix, const char *name,
                          enum tl_ptx_variant v)
{
    for (uint32_t i = 0; i < tl_ptx_index_count(ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(ix, i);
        if (item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
            continue;
        /* Lines and planes are boxes with divisions left out: shown for the cases that are about
         * them. */
        static const char *const about_grids[] = {"grid_", "ctaid_", "func_", "defect_", "params_"};
        bool all_shapes = false;
        for (size_t a = 0; a < sizeof about_grids / sizeof about_grids[0]; a++)
            all_shapes |= strncmp(name, about_grids[a], strlen(about_grids[a])) == 0;
        bool is_shown = false;
        for (uint32_t dims = 3; dims >= 1 && (all_shapes || !is_shown); dims--) {
            struct tl_ptx_rewritten r;
            struct tl_ptx_options options = {.variant = v, .grid_dims = dims};
            if (tl_ptx_rewrite(ix, item->name, &options, &r, NULL, NULL) < 0)
                continue; /* perhaps it is possible on a line only */
            is_shown = true;
            char what[300];
            snprintf(what, sizeof what, "%s: %s", name, r.entry);
            show(what, tl_ptx_index_target(ix), r.text, r.text_bytes, c->ptxas_options, false);
            tl_ptx_rewritten_finish(&r);
        }
    }
}

/* `v` is a variant, or TL_PTX_VARIANTS for the cases themselves. */
static void show_all(enum tl_ptx_variant v)
{
    if (ptxas[0] == 0)
        TEST_IGNORE_MESSAGE("there is no ptxas");
    char **names = NULL;
    uint32_t n = ptx_case_names(&names);
    for (uint32_t i = 0; i < n; i++) {
        char path[4400], message[300] = "";
        struct ptx_case c;
        struct tl_ptx_index *ix = NULL;
        snprintf(path, sizeof path, "%s/%s", ptx_cases_folder(), names[i]);
        bool ok = ptx_case_read(&c, path, message, sizeof message);
        if (ok && c.is_cuda)
            ok = ptx_case_compile(&c, path);
        if (ok && tl_ptx_index_create(&ix, c.text, c.n, names[i], NULL) == 0) {
            if (v == TL_PTX_VARIANTS)
                show(names[i], tl_ptx_index_target(ix), c.text, c.n, c.ptxas_options,
                     c.ptxas_refuses);
            else
                show_variants(&c, ix, names[i], v);
        }
        tl_ptx_index_destroy(ix);
        ptx_case_finish(&c);
    }
    ptx_case_names_free(names, n);
    while (running() > 0)
        finish_one();
    if (wrong.n > 0)
        TEST_FAIL_MESSAGE(wrong.p);
    if (n_left_out > 0) {
        char message[100];
        snprintf(message, sizeof message,
                 "the machine is too busy: %u modules accepted, %u not shown", n_runs, n_left_out);
        TEST_IGNORE_MESSAGE(message);
    }
    TEST_ASSERT_GREATER_THAN_UINT32_MESSAGE(100, n_runs, "hardly anything was shown");
}

static void ptxas_thinks_of_the_cases_as_they_say(void)
{
    show_all(TL_PTX_VARIANTS);
}

static void ptxas_accepts_slices(void)
{
    show_all(TL_PTX_SLICE);
}

static void ptxas_accepts_tickets(void)
{
    show_all(TL_PTX_TICKET);
}

static void ptxas_accepts_persistent_blocks(void)
{
    show_all(TL_PTX_PERSISTENT);
}

int main(void)
{
    const char *temporary = getenv("TMPDIR"), *tool = ptx_cuda_tool("PTXAS", "ptxas");
    snprintf(ptxas, sizeof ptxas, "%s", tool != NULL ? tool : "");
    snprintf(folder, sizeof folder, "%s/ptxas.XXXXXX", temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    for (int i = 0; i < AT_ONCE; i++) {
        snprintf(runs[i].in, sizeof runs[i].in, "%s/%d.ptx", folder, i);
        snprintf(runs[i].log, sizeof runs[i].log, "%s/%d.log", folder, i);
    }
    UNITY_BEGIN();
    RUN_TEST(ptxas_thinks_of_the_cases_as_they_say);
    RUN_TEST(ptxas_accepts_slices);
    RUN_TEST(ptxas_accepts_tickets);
    RUN_TEST(ptxas_accepts_persistent_blocks);
    for (int i = 0; i < AT_ONCE; i++) {
        unlink(runs[i].in);
        unlink(runs[i].log);
    }
    rmdir(folder);
    return UNITY_END();
}
