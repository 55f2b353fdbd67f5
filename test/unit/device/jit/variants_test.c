/* The proof of the rewriter: every case of test/cases and some random kernels, and every variant
 * that they are allowed, run on equal inputs on the software device, in pieces and with preemption
 * at random blocks, and must leave the same memory behind.  Variants run on a device with a single
 * SM that has room for a single block: what waits for a block that has not started never ends
 * there. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "device/abi.h"
#include "device/exec/exec.h"
#include "device/jit/jit.h"
#include "device/service/link.h"
#include "ptx_rewrite/initialiser.h"
#include "test/unit/device/jit/launch.h"
#include "test/unit/ptx_rewrite/case.h"
#include "test/unit/ptx_rewrite/generate.h"
#include "test/unit/ptx_rewrite/help.h"

/* The watchdog ends what hangs, so that the test can tell; nothing that ends comes near it. */
enum { MAX_VARIABLES = 32, WATCHDOG_S = 60 };

static struct tl_exec_device *device, *least; /* with room for many blocks, and for one */
static const char *case_path;
static struct tl_buf wrong;
static uint64_t dice = 88172645463325252ull;
static uint32_t n_launches, n_preempted;
static uint32_t ignored; /* bits of arguments that may end as they like */

static uint32_t roll(uint32_t n)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (uint32_t)(dice >> 33) % n;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* What kernels work on: arguments and the module's variables, at addresses that stay. */
struct memory {
    void *args[PTX_CASE_ARGS];
    struct {
        char name[256];
        uint8_t *bytes;
        size_t n;
    } variables[MAX_VARIABLES];
    uint32_t n_variables;
};

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

/* The declaration of a variable of the module, or of one inside of a function ("function::n"). */
static const struct tl_ptx_decl *variable_decl(struct ptx_text *t, const char *name)
{
    const char *colons = strstr(name, "::");
    if (colons != NULL) {
        char function[256];
        snprintf(function, sizeof function, "%.*s", (int)(colons - name), name);
        return tl_ptx_inner_variable(ptx_func(t, function),
                                     (uint32_t)strtoul(colons + 2, NULL, 10));
    }
    const struct tl_ptx_decl *d = ptx_var(t, name);
    while (d != NULL && !tl_str_is(d->name, name))
        d = d->next;
    return d;
}

static uint64_t variable_address(struct memory *m, struct ptx_text *t, const char *name)
{
    for (uint32_t i = 0; i < m->n_variables; i++) {
        if (strcmp(m->variables[i].name, name) == 0)
            return (uintptr_t)m->variables[i].bytes;
    }
    TEST_ASSERT_TRUE(m->n_variables < MAX_VARIABLES);
    const struct tl_ptx_decl *d = variable_decl(t, name);
    TEST_ASSERT_NOT_NULL(d);
    size_t n = (size_t)tl_ptx_type_bytes(d->type) *
               (tl_ptx_decl_count(d) == 0 ? 1 : tl_ptx_decl_count(d));
    uint32_t i = m->n_variables++;
    snprintf(m->variables[i].name, sizeof m->variables[i].name, "%s", name);
    m->variables[i].n = n;
    m->variables[i].bytes = aligned_alloc(256, (n + 255) / 256 * 256);
    TEST_ASSERT_NOT_NULL(m->variables[i].bytes);
    return (uintptr_t)m->variables[i].bytes;
}

/* What an initialiser names: a variable, which is made if no kernel has asked for it, or a
 * function. */
struct names {
    struct memory *memory;
    struct ptx_text *text;
};

static bool address_of(void *data, struct tl_str name, uint64_t *address)
{
    const struct names *n = data;
    const struct tl_ptx_item *item = tl_ptx_index_find(n->text->ix, name);
    char text[256];
    if (item == NULL)
        return false;
    snprintf(text, sizeof text, TL_STR_FMT, TL_STR_ARG(name));
    *address = item->kind == TL_PTX_ITEM_VARIABLE ? variable_address(n->memory, n->text, text)
                                                  : tl_dev_function_address(name.p, name.n);
    return true;
}

/* Everything as it is before a run. */
static void reset(struct memory *m, struct ptx_text *t, const struct ptx_case_kernel *k)
{
    for (uint32_t i = 0; i < k->n_args; i++) {
        if (k->args[i].kind == PTX_ARG_BUFFER)
            ptx_case_fill(&k->args[i], m->args[i]);
    }
    for (uint32_t i = 0; i < m->n_variables; i++) {
        struct tl_error err = {0};
        struct names names = {m, t};
        memset(m->variables[i].bytes, 0, m->variables[i].n);
        if (tl_ptx_initialise(variable_decl(t, m->variables[i].name), address_of, &names,
                              m->variables[i].bytes, m->variables[i].n, &err) < 0)
            TEST_FAIL_MESSAGE(err.text);
    }
}

/* A copy of all that a run may have changed, in one piece. */
static void snapshot(const struct memory *m, const struct ptx_case_kernel *k, struct tl_buf *out)
{
    out->n = 0;
    for (uint32_t i = 0; i < k->n_args; i++) {
        if (k->args[i].kind == PTX_ARG_BUFFER && !(ignored >> i & 1))
            tl_buf_add(out, m->args[i], ptx_case_arg_bytes(&k->args[i]));
    }
    for (uint32_t i = 0; i < m->n_variables; i++)
        tl_buf_add(out, (const char *)m->variables[i].bytes, m->variables[i].n);
    TEST_ASSERT_FALSE(out->failed);
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* A compiled kernel with its parameters. */
struct program {
    struct tl_exec_object *object;
    uint64_t variables[MAX_VARIABLES];
    uint64_t table[MAX_VARIABLES]; /* of a variant: stands for its constant memory */
    uint8_t params[32768];
    char path[64];
};

/* With TALLY_TEST_LEAST or TALLY_TEST_QUICK every other one in that way. */
static bool compile(struct program *p, const char *text, size_t n, const uint32_t block[3],
                    struct tl_error *err)
{
    struct tl_jit_options options = {.block = {block[0], block[1], block[2]},
                                     .features = getenv("TALLY_JIT_FEATURES")};
    static bool was_least; /* so that what is compared was compiled in two ways */
    was_least = getenv("TALLY_TEST_LEAST") != NULL && !was_least;
    options.is_least = was_least;
    static bool was_quick;
    was_quick = getenv("TALLY_TEST_QUICK") != NULL && !was_quick;
    options.is_quick = was_quick;
    if (options.features != NULL)
        options.cpu = "x86-64-v3";
    struct tl_jit_object object;
    void *linked = NULL;
    size_t linked_n = 0;
    memset(p, 0, sizeof *p);
    if (tl_jit_compile(text, n, "case", &options, &object, err) < 0)
        return false;
    int rc = tl_jit_link(object.bytes, object.n, "case", object.stack_bytes, &linked, &linked_n,
                         err);
    tl_jit_object_finish(&object);
    if (rc < 0)
        return false;
    snprintf(p->path, sizeof p->path, "%s/kernel-XXXXXX",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    int fd = mkstemp(p->path);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL((ssize_t)linked_n, write(fd, linked, linked_n));
    close(fd);
    free(linked);
    rc = tl_exec_object_open(&p->object, p->path, err);
    unlink(p->path);
    return rc == 0;
}

static void bind_variables(struct program *p, struct memory *m, struct ptx_text *t,
                           const char *table)
{
    for (uint32_t i = 0; i < tl_exec_object_info(p->object)->n_variables; i++) {
        const char *name = tl_exec_object_variable(p->object, i);
        if (table != NULL && strcmp(name, table) == 0)
            p->variables[i] = (uintptr_t)p->table;
        else
            p->variables[i] = variable_address(m, t, name);
    }
}

static bool launch(struct program *p, struct tl_exec_device *on, const uint32_t grid[3],
                   uint32_t shared, struct tl_error *err)
{
    struct tl_exec_launch l = {.object = p->object,
                               .grid = {grid[0], grid[1], grid[2]},
                               .dynamic_shared_bytes = shared,
                               .params = p->params,
                               .variables = p->variables};
    n_launches++;
    return jit_launch(on, &l, err);
}

/* The original's parameters at their offsets. */
static void put_params(struct program *p, struct memory *m, struct ptx_text *t, const char *kernel,
                       const struct ptx_case_kernel *k)
{
    uint64_t offset = 0;
    uint32_t i = 0;
    for (const struct tl_ptx_decl *d = ptx_func(t, kernel)->params; d != NULL && i < k->n_args;
         d = d->next, i++) {
        uint64_t size = (uint64_t)tl_ptx_type_bytes(d->type) * d->vec,
                 align = d->align != 0 ? d->align : size;
        offset = (offset + align - 1) / align * align;
        const struct ptx_case_arg *a = &k->args[i];
        if (a->kind == PTX_ARG_BUFFER) {
            uint64_t address = (uintptr_t)m->args[i];
            memcpy(p->params + offset, &address, 8);
        } else if (a->kind == PTX_ARG_BYTES) {
            ptx_case_fill(a, p->params + offset);
        } else {
            memcpy(p->params + offset, &a->value, size);
        }
        offset += size * d->count;
    }
}

/* --- variants --------------------------------------------------------------------------------- */

/* A counter and a stop word that another thread plays with. */
struct control {
    _Alignas(8) uint32_t left; /* with the counter, one word, which is never reset */
    uint32_t counter, base, left_end;
    uint32_t told;
    _Atomic uint64_t stop;
    uint64_t never;
    uint32_t batch; /* blocks that a persistent worker takes at a time */
    _Atomic bool is_over;
};

static void *preempt_at_random(void *data)
{
    struct control *c = data;
    uint64_t state = (uintptr_t)data ^ 0x1234567;
    while (!atomic_load(&c->is_over)) {
        for (uint64_t spin = splitmix(&state) % 3000; spin > 0; spin--)
            __builtin_ia32_pause();
        atomic_store(&c->stop, splitmix(&state) % 2 ? 1 : 0); /* issued 1, completed 0: stop */
    }
    atomic_store(&c->stop, 0);
    return NULL;
}

static void put_extra(struct program *p, const struct tl_ptx_rewritten *r, struct memory *m,
                      struct ptx_text *t, struct control *c, const uint32_t grid[3], uint32_t first)
{
    uint64_t *variables = calloc(r->n_args + 1, sizeof *variables);
    TEST_ASSERT_NOT_NULL(variables);
    struct tl_ptx_extra x = {.grid = {grid[0], grid[1], grid[2]},
                             .first = first,
                             .blocks = grid[0] * grid[1] * grid[2],
                             .batch_mask = c->batch - 1,
                             .counter = (uintptr_t)&c->counter,
                             .told = (uintptr_t)&c->told,
                             .base = c->base,
                             .left_end = c->left_end,
                             .variables = variables};
    for (uint32_t i = 0; i < TL_PTX_STOP_WORDS; i++)
        x.words[i] = (uintptr_t)(i == 2 ? (void *)&c->stop : (void *)&c->never);
    for (uint32_t i = 0; i < r->n_args; i++)
        if (r->args[i].kind == TL_PTX_ARG_VARIABLE)
            variables[i] = variable_address(m, t, r->args[i].variable);
    tl_ptx_put_args(r->args, r->n_args, &x, p->params);
    free(variables);
}

static bool run_slices(struct program *p, const struct tl_ptx_rewritten *r, struct memory *m,
                       struct ptx_text *t, const struct ptx_case_run *run, uint32_t shared,
                       struct tl_error *err)
{
    struct control c = {0};
    uint32_t total = run->grid[0] * run->grid[1] * run->grid[2];
    for (uint32_t first = 0; first < total;) {
        uint32_t n = 1 + roll(total - first < 7 ? total - first : 7);
        put_extra(p, r, m, t, &c, run->grid, first);
        if (!launch(p, least, (uint32_t[3]){n, 1, 1}, shared, err))
            return false;
        first += n;
    }
    return true;
}

/* Launches until every block has been taken, while a second thread says stop and go. */
static bool run_counted(struct program *p, const struct tl_ptx_rewritten *r, struct memory *m,
                        struct ptx_text *t, const struct ptx_case_run *run, uint32_t shared,
                        bool is_ticket, struct tl_error *err)
{
    struct control c = {.batch = 1u << roll(4), .left = roll(1000), .base = UINT32_MAX - roll(40)};
    pthread_t thread;
    uint32_t total = run->grid[0] * run->grid[1] * run->grid[2], rounds = 0;
    bool ok = true;
    c.counter = c.base;
    TEST_ASSERT_EQUAL(0, pthread_create(&thread, NULL, preempt_at_random, &c));
    while (ok && c.told < total) {
        uint32_t n = is_ticket ? total - c.told : 1 + roll(4);
        c.left_end = c.left + n;
        c.told = UINT32_MAX; /* nobody has told */
        put_extra(p, r, m, t, &c, run->grid, 0);
        ok = launch(p, least, (uint32_t[3]){n, 1, 1}, shared, err);
        TEST_ASSERT_TRUE_MESSAGE(!ok || c.left == c.left_end, "all have left");
        TEST_ASSERT_TRUE_MESSAGE(!ok || c.told == c.counter - c.base, "the last one told");
        rounds++;
    }
    n_preempted += rounds - 1;
    atomic_store(&c.is_over, true);
    pthread_join(thread, NULL);
    return ok;
}

static void complain(const char *kernel, const struct ptx_case_run *run, const char *what,
                     const char *detail)
{
    tl_buf_printf(&wrong, "%s of %s, grid %u,%u,%u block %u,%u,%u: %s\n", what, kernel,
                  run->grid[0], run->grid[1], run->grid[2], run->block[0], run->block[1],
                  run->block[2], detail);
}

/* Makes one variant, if its conditions hold for the run, runs it in pieces, and compares what it
 * leaves in memory with what the original left. */
static void check_variant(struct ptx_text *t, const char *kernel, const struct ptx_case_kernel *k,
                          const struct ptx_case_run *run, struct memory *m,
                          const struct tl_buf *expected, enum tl_ptx_variant v)
{
    struct tl_error err = {0};
    struct tl_ptx_rewritten r;
    struct tl_ptx_verdict verdict;
    struct tl_ptx_options options = {.variant = v};
    options.grid_dims = run->grid[2] != 1 ? 3 : run->grid[1] != 1 ? 2 : 1;
    if (tl_ptx_rewrite(t->ix, tl_str_of(kernel), &options, &r, &verdict, &err) < 0)
        return; /* refused, which ptx_cases_test judges */
    static struct program p;
    struct tl_buf got = {0};
    bool ok = tl_ptx_conditions_hold(r.conditions, run->grid, run->block);
    if (ok && !compile(&p, r.text, r.text_bytes, run->block, &err)) {
        complain(kernel, run, tl_ptx_variant_name(v), err.text);
        ok = false;
    }
    if (ok) {
        uint32_t shared = r.uses_slot ? TL_PTX_SHARED_BYTES(run->shared) : run->shared;
        for (uint32_t i = 0; i < r.n_table; i++)
            p.table[i] = variable_address(m, t, r.table[i]);
        bind_variables(&p, m, t, r.table_name);
        put_params(&p, m, t, kernel, k);
        reset(m, t, k);
        ok = v == TL_PTX_SLICE ? run_slices(&p, &r, m, t, run, shared, &err)
                               : run_counted(&p, &r, m, t, run, shared, v == TL_PTX_TICKET, &err);
        snapshot(m, k, &got);
        if (!ok)
            complain(kernel, run, tl_ptx_variant_name(v), err.text);
        else if (got.n != expected->n || (got.n > 0 && memcmp(got.p, expected->p, got.n) != 0))
            complain(kernel, run, tl_ptx_variant_name(v),
                     "leaves other memory behind than the original");
        tl_exec_object_unref(p.object);
    }
    tl_buf_finish(&got);
    tl_ptx_rewritten_finish(&r);
}

/* The original of a kernel, for one launch of it, and then all of its variants. */
static void check_run(struct ptx_text *t, const char *kernel, const struct ptx_case_kernel *k,
                      const struct ptx_case_run *run)
{
    static struct program p;
    struct memory m = {0};
    struct tl_error err = {0};
    struct tl_buf expected = {0};
    char *text;
    size_t n;
    for (uint32_t i = 0; i < k->n_args; i++) {
        if (k->args[i].kind == PTX_ARG_BUFFER)
            m.args[i] = aligned_alloc(256, (ptx_case_arg_bytes(&k->args[i]) + 511) / 256 * 256);
    }
    TEST_ASSERT_EQUAL(0, tl_ptx_extract(t->ix, tl_str_of(kernel), &text, &n, &err));
    bool ok = compile(&p, text, n, run->block, &err);
    if (!ok)
        complain(kernel, run, "original", err.text);
    if (ok) {
        bind_variables(&p, &m, t, NULL);
        put_params(&p, &m, t, kernel, k);
        reset(&m, t, k);
        if (!launch(&p, device, run->grid, run->shared, &err)) {
            complain(kernel, run, "original", err.text);
            ok = false;
        }
        tl_exec_object_unref(p.object);
    }
    snapshot(&m, k, &expected);
    for (int v = 0; ok && v < TL_PTX_VARIANTS; v++)
        check_variant(t, kernel, k, run, &m, &expected, (enum tl_ptx_variant)v);
    for (uint32_t i = 0; i < PTX_CASE_ARGS; i++)
        free(m.args[i]);
    for (uint32_t i = 0; i < m.n_variables; i++)
        free(m.variables[i].bytes);
    tl_buf_finish(&expected);
    free(text);
}

/* --- cases ------------------------------------------------------------------------------------ */

static char *compiled_cuda(const char *path, size_t *n)
{
    const char *nvcc = ptx_cuda_tool("NVCC", "nvcc");
    char out[64], command[8192];
    if (nvcc == NULL)
        return NULL;
    snprintf(out, sizeof out, "%s/case-XXXXXX",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    int fd = mkstemp(out);
    TEST_ASSERT_TRUE(fd >= 0);
    close(fd);
    snprintf(command, sizeof command, "'%s' -ptx -arch=sm_90 -o '%s' '%s' 2>/dev/null", nvcc, out,
             path);
    char *text = system(command) == 0 ? ptx_read_file(out, n) : NULL;
    unlink(out);
    return text;
}

static void variants_leave_the_same_memory(void)
{
    struct ptx_case c;
    char message[256];
    if (!ptx_case_read(&c, case_path, message, sizeof message))
        TEST_FAIL_MESSAGE(message);
    uint32_t runs = 0;
    for (uint32_t i = 0; i < c.n_kernels; i++)
        runs += c.kernels[i].n_runs;
    if (runs == 0) {
        ptx_case_finish(&c);
        return; /* a case that is not for running */
    }
    size_t n = c.n;
    char *text = c.is_cuda ? compiled_cuda(case_path, &n) : c.text;
    if (text == NULL) {
        ptx_case_finish(&c);
        TEST_IGNORE_MESSAGE("no nvcc to compile this case");
    }
    struct ptx_text t;
    TEST_ASSERT_EQUAL(0, ptx_index_bytes(&t, text, n));
    tl_arena_init(&t.arena, 0);
    TEST_ASSERT_EQUAL(0, tl_ptx_unit_init(&t.unit, t.ix, &t.arena, &t.err));
    t.has_unit = true;
    for (uint32_t i = 0; i < tl_ptx_index_count(t.ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(t.ix, i);
        if (item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
            continue;
        char kernel[256];
        snprintf(kernel, sizeof kernel, TL_STR_FMT, TL_STR_ARG(item->name));
        const struct ptx_case_kernel *k = ptx_case_kernel_of(&c, item->name);
        for (uint32_t r = 0; k != NULL && r < k->n_runs; r++)
            check_run(&t, kernel, k, &k->runs[r]);
    }
    ptx_close(&t);
    if (text != c.text)
        free(text);
    ptx_case_finish(&c);
    if (wrong.n > 0)
        TEST_FAIL_MESSAGE(wrong.p);
}

static bool may_be_cut(const struct tl_ptx_index *ix, const char *kernel)
{
    struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
    struct tl_error err;
    TEST_ASSERT_EQUAL(0, tl_ptx_judge(ix, tl_str_of(kernel), verdicts, &err));
    return verdicts[TL_PTX_SLICE].reason == TL_PTX_REASON_OK;
}

/* Images are the driver's; here is none. */
static bool reads_images(const struct ptx_generated *g)
{
    return strstr(g->text.p, "suld") != NULL || strstr(g->text.p, "tex.") != NULL;
}

static void variants_of_random_kernels_leave_the_same_memory(void)
{
    enum { SEEDS = 40 };
    static struct ptx_case_kernel k;
    uint32_t n = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct ptx_generated g;
        struct ptx_text t;
        char name[64];
        ptx_generate(&g, seed);
        TEST_ASSERT_EQUAL(0, ptx_index_bytes(&t, g.text.p, g.text.n));
        tl_arena_init(&t.arena, 0);
        TEST_ASSERT_EQUAL(0, tl_ptx_unit_init(&t.unit, t.ix, &t.arena, &t.err));
        t.has_unit = true;
        if (may_be_cut(t.ix, g.kernel) && !reads_images(&g)) {
            k = (struct ptx_case_kernel){.n_args = g.n_args};
            memcpy(k.args, g.args, sizeof k.args);
            ignored = g.ignored;
            snprintf(name, sizeof name, "seed %u", (unsigned)seed);
            check_run(&t, g.kernel, &k, &g.run);
            if (wrong.n > 0)
                complain(name, &g.run, "random kernel", "see above");
            ignored = 0;
            n++;
        }
        ptx_close(&t);
        ptx_generated_finish(&g);
    }
    TEST_ASSERT_TRUE(n > SEEDS / 8);
    if (wrong.n > 0)
        TEST_FAIL_MESSAGE(wrong.p);
}

void setUp(void)
{
    wrong.n = 0;
}

void tearDown(void)
{
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int main(void)
{
    struct tl_error err;
    struct dirent **entries;
    char name[64], least_name[64];
    snprintf(name, sizeof name, "tally-test-variants-%d", (int)getpid());
    snprintf(least_name, sizeof least_name, "tally-test-least-%d", (int)getpid());
    UNITY_BEGIN();
    if (tl_jit_init(&err) < 0 ||
        tl_exec_device_open(&device, &(struct tl_exec_config){.name = name}, &err) < 0 ||
        tl_exec_device_open(
            &least,
            &(struct tl_exec_config){
                .name = least_name, .n_slots = 1, .blocks_per_sm = 1, .watchdog_s = WATCHDOG_S},
            &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int n = scandir(ptx_cases_folder(), &entries, NULL, by_name);
    const char *only = getenv("CASE");
    for (int i = 0; i < n; i++) {
        const char *file = entries[i]->d_name, *dot = strrchr(file, '.');
        static char path[4096];
        if (dot == NULL || (strcmp(dot, ".ptx") != 0 && strcmp(dot, ".cu") != 0) ||
            (only != NULL && strstr(file, only) == NULL))
            continue;
        snprintf(path, sizeof path, "%s/%s", ptx_cases_folder(), file);
        case_path = path;
        UnityDefaultTestRun(variants_leave_the_same_memory, file, __LINE__);
    }
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    if (only == NULL || strstr("random", only) != NULL)
        RUN_TEST(variants_of_random_kernels_leave_the_same_memory);
    printf("%u launches, %u of them after a preemption\n", n_launches, n_preempted);
    tl_exec_device_close(least);
    tl_exec_device_close(device);
    tl_buf_finish(&wrong);
    return UNITY_END();
}
