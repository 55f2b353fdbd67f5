/* Every case of test/cases, a test each: the verdicts are the annotated ones, and every variant
 * that is allowed is what the library says it is.  test/unit/ptx_rewrite/ptxas_test.c shows them to
 * ptxas.
 *
 * What a variant looks like is read from its text by means of this file, except for the meaning of
 * names, for which the parser is asked (it has tests of its own). */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/case.h"
#include "test/unit/ptx_rewrite/help.h"

static char case_path[4400];
static const char *case_name;
static struct ptx_case the_case;
static struct ptx_text original;
static struct tl_buf wrong; /* what is wrong with the current case, line by line */

static char *copy_of(const char *text)
{
    char *copy = strdup(text);
    TEST_ASSERT_NOT_NULL(copy);
    return copy;
}

/* --- headers, read from the text -------------------------------------------------------------- */

struct param {
    char name[128];
    char text[256]; /* the declaration, without blanks that do not matter */
    uint32_t size, align;
};

struct header {
    struct param params[64];
    uint32_t n;
    char directives[256]; /* behind the parameters */
};

static uint32_t type_size(const char *type, size_t n)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } types[] = {{"b8", 1},  {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2},
                 {"s16", 2}, {"f16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4},
                 {"f32", 4}, {"b64", 8}, {"u64", 8}, {"s64", 8}, {"f64", 8}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strlen(types[i].name) == n && memcmp(types[i].name, type, n) == 0)
            return types[i].bytes;
    }
    return 0;
}

/* ".param.align 8.b8 x[16]" */
static bool read_param(struct param *p, const char *text, size_t n)
{
    const char *at = text, *end = text + n;
    uint32_t element = 0, count = 1;
    bool is_pointer = false;
    *p = (struct param){0};
    snprintf(p->text, sizeof p->text, "%.*s", (int)n, text);
    while (at < end && *at == '.') {
        const char *word = ++at;
        while (at < end && (isalnum((unsigned char)*at) || *at == '_'))
            at++;
        size_t length = (size_t)(at - word);
        if (length == 5 && memcmp(word, "align", 5) == 0) {
            char *behind;
            uint32_t align = (uint32_t)strtoul(at, &behind, 0);
            at = behind;
            if (!is_pointer)
                p->align = align;
        }
        is_pointer |= length == 3 && memcmp(word, "ptr", 3) == 0;
        if (element == 0)
            element = type_size(word, length);
        while (at < end && *at == ' ')
            at++;
    }
    size_t length = strcspn(at, "[,)");
    if (length > (size_t)(end - at))
        length = (size_t)(end - at);
    snprintf(p->name, sizeof p->name, "%.*s", (int)length, at);
    for (at += length; at < end && *at == '['; at = strchr(at, ']') + 1)
        count *= (uint32_t)strtoul(at + 1, NULL, 0);
    p->size = element * count;
    if (p->align == 0)
        p->align = element;
    return element != 0 && length > 0;
}

/* The header of the entry `name` in a text. */
static bool read_header(struct header *h, const char *text, const char *name)
{
    char *all = ptx_essence(text, strlen(text)), start_of[256];
    bool ok = false;
    *h = (struct header){0};
    snprintf(start_of, sizeof start_of, ".entry %s", name);
    for (char *at = strstr(all, start_of); at != NULL && !ok; at = strstr(at + 1, start_of)) {
        char *p = at + strlen(start_of);
        if (*p != '(' && *p != '{' && *p != '.')
            continue; /* another name that begins so */
        ok = true;
        if (*p == '(') {
            for (p++; *p != ')' && ok; p += *p == ',') {
                size_t n = strcspn(p, ",)");
                ok = h->n < 64 && read_param(&h->params[h->n++], p, n);
                p += n;
            }
            p++;
        }
        if (*(p + strcspn(p, "{;")) == ';' && strstr(p, ".pragma") != p) {
            ok = false; /* a declaration in advance */
            h->n = 0;
            continue;
        }
        snprintf(h->directives, sizeof h->directives, "%.*s", (int)strcspn(p, "{"), p);
    }
    free(all);
    return ok;
}

/* --- checks ----------------------------------------------------------------------------------- */

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            tl_buf_printf(&wrong, __VA_ARGS__);                                                    \
            tl_buf_putc(&wrong, '\n');                                                             \
        }                                                                                          \
    } while (0)

struct reads {
    uint32_t ctaid_x, ctaid_other, nctaid, returns;
};

static void count_operand(struct reads *r, const struct tl_ptx_operand *o)
{
    if (o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_SREG) {
        r->ctaid_x += o->sym->sreg == TL_SREG_ctaid && o->component == 'x';
        r->ctaid_other += o->sym->sreg == TL_SREG_ctaid && o->component != 'x';
        r->nctaid += o->sym->sreg == TL_SREG_nctaid;
    }
    bool has_elements = o->kind == TL_OPD_VEC || o->kind == TL_OPD_LIST || o->kind == TL_OPD_PAIR ||
                        o->kind == TL_OPD_ADDR;
    for (uint32_t i = 0; has_elements && i < o->n; i++)
        count_operand(r, &o->elems[i]);
}

static void count_reads(struct reads *r, const struct tl_ptx_stmt *s)
{
    for (; s != NULL; s = s->next) {
        if (s->kind == TL_STMT_BLOCK)
            count_reads(r, s->block);
        if (s->kind != TL_STMT_INST)
            continue;
        r->returns += s->inst.form->op == TL_OP_ret || s->inst.form->op == TL_OP_exit;
        for (uint32_t i = 0; i < s->n_operands; i++)
            count_operand(r, &s->inst.operands[i]);
    }
}

/* What is left of block number and grid in the functions of a variant. */
static void check_reads(const char *what, struct ptx_text *t, enum tl_ptx_variant v,
                        const struct tl_ptx_rewritten *r)
{
    for (uint32_t i = 0; i < tl_ptx_index_count(t->ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(t->ix, i);
        struct tl_ptx_func *f = NULL;
        char name[256];
        if (item->body == 0 || (item->kind != TL_PTX_ITEM_ENTRY && item->kind != TL_PTX_ITEM_FUNC))
            continue;
        snprintf(name, sizeof name, TL_STR_FMT, TL_STR_ARG(item->name));
        if (ptx_try_func(t, name, &f) != 0) {
            EXPECT(false, "%s: %s does not parse: %s", what, name, t->err.text);
            continue;
        }
        struct reads n = {0};
        count_reads(&n, f->body);
        bool is_entry = item->kind == TL_PTX_ITEM_ENTRY;
        EXPECT(n.nctaid == 0, "%s: %%nctaid is still read in %s", what, name);
        EXPECT(n.ctaid_other == 0, "%s: %%ctaid.y or .z is still read in %s", what, name);
        EXPECT(is_entry || n.ctaid_x == 0, "%s: %%ctaid.x is still read in %s", what, name);
        if (is_entry && v == TL_PTX_TICKET)
            EXPECT(n.ctaid_x <= 1, "%s: %%ctaid.x is read %u times", what, n.ctaid_x);
        if (is_entry && v == TL_PTX_PERSISTENT) {
            EXPECT(n.ctaid_x == 0, "%s: %%ctaid.x is still read", what);
            EXPECT(n.returns == 1, "%s: has %u ways to return in place of one", what, n.returns);
        }
    }
    (void)r;
}

/* The variant's parameters against what the rewriter says of them: the original ones unchanged and
 * first, the others at their places, and for each variant just those that it needs. */
static void check_args(const char *what, const struct tl_ptx_rewritten *r,
                       const struct header *before, const struct header *after,
                       enum tl_ptx_variant v, uint32_t dims)
{
    uint32_t offset = 0, seen[TL_PTX_ARG_KINDS] = {0};
    EXPECT(r->original_params == before->n, "%s: says %u parameters, has %u", what,
           r->original_params, before->n);
    EXPECT(after->n == before->n + r->n_args, "%s: %u parameters in the text, %u described", what,
           after->n, before->n + r->n_args);
    if (after->n != before->n + r->n_args)
        return;
    for (uint32_t i = 0; i < after->n; i++) {
        const struct param *p = &after->params[i];
        offset = (offset + p->align - 1) / p->align * p->align;
        if (i < before->n) {
            EXPECT(strcmp(p->text, before->params[i].text) == 0, "%s: parameter %s became %s", what,
                   before->params[i].text, p->text);
        } else {
            const struct tl_ptx_arg *a = &r->args[i - before->n];
            EXPECT(a->index == i && a->offset == offset && a->size == p->size &&
                       strcmp(a->name, p->name) == 0,
                   "%s: %s is parameter %u at %u of %u bytes, described as %s, %u, %u, %u", what,
                   p->name, i, offset, p->size, a->name, a->index, a->offset, a->size);
            seen[a->kind]++;
            if (a->kind == TL_PTX_ARG_VARIABLE) {
                const struct tl_ptx_item *item = tl_ptx_index_find(original.ix,
                                                                   tl_str_of(a->variable));
                EXPECT(item != NULL && item->kind == TL_PTX_ITEM_VARIABLE, "%s: no variable %s",
                       what, a->variable);
            }
        }
        offset += p->size;
        EXPECT(i + 1 != before->n || r->original_bytes == offset,
               "%s: original parameters take %u bytes, not %u", what, offset, r->original_bytes);
    }
    EXPECT(r->param_bytes == offset, "%s: all parameters take %u bytes, not %u", what, offset,
           r->param_bytes);
    bool is_slice = v == TL_PTX_SLICE;
    EXPECT(seen[TL_PTX_ARG_FIRST_BLOCK] == is_slice, "%s: first block", what);
    EXPECT(seen[TL_PTX_ARG_COUNTER] == !is_slice && seen[TL_PTX_ARG_BLOCKS] == !is_slice &&
               seen[TL_PTX_ARG_BATCH_MASK] == (v == TL_PTX_PERSISTENT) &&
               seen[TL_PTX_ARG_TOLD] == !is_slice && seen[TL_PTX_ARG_BASE] == !is_slice &&
               seen[TL_PTX_ARG_LEFT_END] == !is_slice &&
               seen[TL_PTX_ARG_STOP_WORD] == (is_slice ? 0 : 4),
           "%s: counter, what goes with it, blocks, batch mask or stop words", what);
    EXPECT(seen[TL_PTX_ARG_GRID_X] == 1 && seen[TL_PTX_ARG_GRID_Y] == (dims > 1) &&
               seen[TL_PTX_ARG_GRID_Z] == (dims > 2) && seen[TL_PTX_ARG_MAGIC_X] == (dims > 1) &&
               seen[TL_PTX_ARG_SHIFT_X] == (dims > 1) && seen[TL_PTX_ARG_MAGIC_Y] == (dims > 2) &&
               seen[TL_PTX_ARG_SHIFT_Y] == (dims > 2),
           "%s: what describes a grid of %u dimensions", what, dims);
}

/* What stands at module scope of a variant: one entry, no storage but shared memory and the
 * table. */
static void check_items(const char *what, const struct tl_ptx_index *ix,
                        const struct tl_ptx_rewritten *r)
{
    uint32_t n_entries = 0, n_tables = 0;
    for (uint32_t i = 0; i < tl_ptx_index_count(ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(ix, i);
        if (item->kind == TL_PTX_ITEM_ENTRY) {
            n_entries++;
            EXPECT(tl_str_is(item->name, r->entry) && item->body != 0 && item->is_visible,
                   "%s: entry " TL_STR_FMT " in place of %s", what, TL_STR_ARG(item->name),
                   r->entry);
        }
        if (item->kind != TL_PTX_ITEM_VARIABLE)
            continue;
        bool is_table = r->table_name != NULL && tl_str_is(item->name, r->table_name);
        struct tl_str text = {r->text + item->begin, item->end - item->begin};
        n_tables += is_table;
        EXPECT(is_table || memmem(text.p, text.n, ".shared", 7) != NULL,
               "%s: brings storage of its own: " TL_STR_FMT, what, TL_STR_ARG(text));
    }
    EXPECT(n_entries == 1, "%s: %u entries", what, n_entries);
    EXPECT(n_tables == (r->n_table > 0), "%s: %u tables for %u addresses", what, n_tables,
           r->n_table);
    for (uint32_t i = 0; i < r->n_table; i++) {
        const struct tl_ptx_item *item = tl_ptx_index_find(original.ix, tl_str_of(r->table[i]));
        EXPECT(item != NULL && item->kind == TL_PTX_ITEM_VARIABLE, "%s: no variable %s", what,
               r->table[i]);
    }
    EXPECT(tl_str_eq(tl_ptx_index_version(ix), tl_ptx_index_version(original.ix)),
           "%s: another .version", what);
    EXPECT(tl_str_eq(tl_ptx_index_target(ix), tl_ptx_index_target(original.ix)),
           "%s: another .target", what);
}

/* Printing the variant's text loses nothing and comes to rest at once. */
static void check_fixed_point(const char *what, const struct tl_ptx_index *ix,
                              const struct tl_ptx_rewritten *r)
{
    struct tl_error err = {0};
    struct tl_ptx_index *again = NULL;
    char *once = NULL, *twice = NULL;
    size_t once_n = 0, twice_n = 0;
    int rc = tl_ptx_format(ix, &once, &once_n, &err);
    if (rc == 0)
        rc = tl_ptx_index_create(&again, once, once_n, "printed", &err);
    if (rc == 0)
        rc = tl_ptx_format(again, &twice, &twice_n, &err);
    EXPECT(rc == 0, "%s: %s", what, err.text);
    if (rc == 0 && once != NULL && twice != NULL) {
        EXPECT(strcmp(once, twice) == 0, "%s: printing is no fixed point", what);
        char *before = ptx_essence(r->text, r->text_bytes), *after = ptx_essence(once, once_n);
        EXPECT(strcmp(before, after) == 0, "%s: printing changes tokens", what);
        free(before);
        free(after);
    }
    tl_ptx_index_destroy(again);
    free(once);
    free(twice);
}

/* Makes a variant and checks all that can be seen in its text; made twice it is the same. */
static void check_variant(const char *kernel, enum tl_ptx_variant v, uint32_t dims,
                          uint32_t conditions)
{
    struct tl_ptx_rewritten r, r2;
    struct tl_ptx_verdict verdict;
    struct tl_error err = {0};
    struct tl_ptx_options options = {.variant = v, .grid_dims = dims};
    char what[256], name[256];
    snprintf(what, sizeof what, "%s %s%u", kernel, tl_ptx_variant_name(v), dims);
    int rc = tl_ptx_rewrite(original.ix, tl_str_of(kernel), &options, &r, &verdict, &err);
    if ((conditions & TL_PTX_IF_GRID_IS_LINE) && dims > 1) {
        EXPECT(rc == -EPERM && verdict.reason != TL_PTX_REASON_OK,
               "%s: is made, but the grid must be a line", what);
        if (rc == 0)
            tl_ptx_rewritten_finish(&r);
        return;
    }
    EXPECT(rc == 0, "%s: %s", what, err.text);
    if (rc < 0)
        return;
    EXPECT((r.conditions & ~TL_PTX_IF_TAKEN_SINGLY) == conditions, "%s: conditions %u, judged %u",
           what, r.conditions, conditions);
    EXPECT(((r.conditions & TL_PTX_IF_TAKEN_SINGLY) != 0) == (verdict.note[0] != '\0'),
           "%s: several blocks at a time, with \"%s\"", what, verdict.note);
    EXPECT(r.text_bytes == strlen(r.text), "%s: the text is not as long as it says", what);
    snprintf(name, sizeof name, "%s__tally_%s%u", kernel, tl_ptx_variant_name(v), dims);
    EXPECT(strncmp(r.entry, name, strlen(name)) == 0, "%s: the entry is called %s", what, r.entry);
    EXPECT(v == TL_PTX_SLICE || r.uses_slot, "%s: uses no slot", what);

    struct ptx_text t;
    rc = ptx_index_bytes(&t, r.text, r.text_bytes);
    EXPECT(rc == 0, "%s: %s", what, t.err.text);
    struct header before, after;
    bool has_before = read_header(&before, original.text, kernel),
         has_after = read_header(&after, r.text, r.entry);
    EXPECT(has_before && has_after, "%s: no header found", what);
    if (rc == 0 && has_before && has_after) {
        check_items(what, t.ix, &r);
        check_args(what, &r, &before, &after, v, dims);
        EXPECT(strcmp(before.directives, after.directives) == 0, "%s: directives '%s' became '%s'",
               what, before.directives, after.directives);
        check_reads(what, &t, v, &r);
        check_fixed_point(what, t.ix, &r);
    }
    ptx_close(&t);

    rc = tl_ptx_rewrite(original.ix, tl_str_of(kernel), &options, &r2, NULL, NULL);
    EXPECT(rc == 0 && strcmp(r.text, r2.text) == 0, "%s: made twice, it is not the same", what);
    if (rc == 0)
        tl_ptx_rewritten_finish(&r2);
    tl_ptx_rewritten_finish(&r);
}

static void check_refusal(const char *kernel, enum tl_ptx_variant v,
                          const struct tl_ptx_verdict *judged)
{
    struct tl_ptx_rewritten r;
    struct tl_ptx_verdict verdict = {0};
    struct tl_error err = {0};
    int rc = tl_ptx_rewrite(original.ix, tl_str_of(kernel),
                            &(struct tl_ptx_options){.variant = v, .grid_dims = 1}, &r, &verdict,
                            &err);
    EXPECT(rc == -EPERM && verdict.reason == judged->reason && err.text[0] != 0,
           "%s %s: judged %s, but rewriting gives %d (%s)", kernel, tl_ptx_variant_name(v),
           tl_ptx_reason_code(judged->reason), rc, tl_ptx_reason_code(verdict.reason));
    if (rc == 0)
        tl_ptx_rewritten_finish(&r);
    EXPECT(judged->place.line > 0 && judged->place.column > 0 && judged->offset < original.n,
           "%s %s: the refusal has no place", kernel, tl_ptx_variant_name(v));
    EXPECT(judged->conditions == 0, "%s %s: a refusal with conditions", kernel,
           tl_ptx_variant_name(v));
}

static void check_kernel(const char *kernel, const struct ptx_case_kernel *k)
{
    struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
    struct tl_error err = {0};
    int rc = tl_ptx_judge(original.ix, tl_str_of(kernel), verdicts, &err);
    EXPECT(rc == 0, "%s: %s", kernel, err.text);
    EXPECT(k != NULL && k->has_verdict, "%s: the case does not say which verdict it expects",
           kernel);
    if (rc < 0 || k == NULL)
        return;
    struct header h;
    EXPECT(k->n_runs == 0 || (read_header(&h, original.text, kernel) && h.n == k->n_args),
           "%s: %u arguments for another number of parameters", kernel, k->n_args);
    for (int i = 0; i < TL_PTX_VARIANTS; i++) {
        enum tl_ptx_variant v = (enum tl_ptx_variant)i;
        EXPECT(verdicts[i].reason == k->reasons[i], "%s %s: expected %s, judged %s (line %u: %s)",
               kernel, tl_ptx_variant_name(v), tl_ptx_reason_code(k->reasons[i]),
               tl_ptx_reason_code(verdicts[i].reason), verdicts[i].place.line, verdicts[i].note);
        EXPECT(verdicts[i].reason != k->reasons[i] || verdicts[i].conditions == k->conditions[i],
               "%s %s: expected conditions %u, judged %u", kernel, tl_ptx_variant_name(v),
               k->conditions[i], verdicts[i].conditions);
        if (verdicts[i].reason != TL_PTX_REASON_OK)
            check_refusal(kernel, v, &verdicts[i]);
        for (uint32_t dims = 1; verdicts[i].reason == TL_PTX_REASON_OK && dims <= 3; dims++)
            check_variant(kernel, v, dims, verdicts[i].conditions);
    }
}

static void run_case(void)
{
    char message[300] = "";
    TEST_ASSERT_TRUE_MESSAGE(ptx_case_read(&the_case, case_path, message, sizeof message), message);
    if (the_case.is_cuda && ptx_cuda_tool("NVCC", "nvcc") == NULL)
        TEST_IGNORE_MESSAGE("there is no nvcc to compile it");
    TEST_ASSERT_TRUE_MESSAGE(!the_case.is_cuda || ptx_case_compile(&the_case, case_path),
                             "nvcc refuses it");
    int rc = ptx_index_bytes(&original, the_case.text, the_case.n);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, original.err.text);
    free(original.text); /* the index must find a terminated text where headers are read from it */
    original.text = NULL;
    tl_ptx_index_destroy(original.ix);
    original.text = copy_of(the_case.text);
    rc = tl_ptx_index_create(&original.ix, original.text, the_case.n, case_name, &original.err);
    TEST_ASSERT_EQUAL_INT(0, rc);
    uint32_t n = 0;
    for (uint32_t i = 0; i < tl_ptx_index_count(original.ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(original.ix, i);
        char kernel[256];
        if (item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
            continue;
        n++;
        snprintf(kernel, sizeof kernel, TL_STR_FMT, TL_STR_ARG(item->name));
        check_kernel(kernel, ptx_case_kernel_of(&the_case, item->name));
    }
    EXPECT(n > 0, "the case has no kernel");
    if (wrong.n > 0)
        TEST_FAIL_MESSAGE(wrong.p);
}

static void an_entry_can_be_given_a_name(void)
{
    ptx_open(&original, ".version 8.3\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n");
    struct tl_ptx_rewritten r;
    struct tl_error err;
    struct tl_ptx_options options = {.variant = TL_PTX_TICKET, .grid_dims = 0, .entry = "mine"};
    TEST_ASSERT_EQUAL_INT(0, tl_ptx_rewrite(original.ix, TL_STR("k"), &options, &r, NULL, &err));
    TEST_ASSERT_EQUAL_STRING("mine", r.entry);
    TEST_ASSERT_NOT_NULL(strstr(r.text, ".visible .entry mine("));
    tl_ptx_rewritten_finish(&r);
}

static void what_is_not_there_cannot_be_judged(void)
{
    ptx_open(&original, ".version 8.3\n.target sm_90\n.address_size 64\n.func f() { ret; }\n.entry "
                        "declared();\n.global .u32 g;");
    static const char *const names[] = {"nothing", "f", "declared", "g", ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
        struct tl_ptx_rewritten r;
        struct tl_error err = {0};
        TEST_ASSERT_EQUAL_INT_MESSAGE(
            -ENOENT, tl_ptx_judge(original.ix, tl_str_of(names[i]), verdicts, &err), names[i]);
        TEST_ASSERT_NOT_EQUAL(0, err.text[0]);
        TEST_ASSERT_EQUAL_INT(-ENOENT, tl_ptx_rewrite(original.ix, tl_str_of(names[i]),
                                                      &(struct tl_ptx_options){0}, &r, NULL, &err));
    }
}

static void a_syntax_error_in_what_a_kernel_reaches_is_told(void)
{
    ptx_open(&original, ".version 8.3\n.target sm_90\n.address_size 64\n.func f() { add.s32 , ; }\n"
                        ".entry k() { call f; ret; }\n.entry fine() { ret; }\n");
    struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_ptx_judge(original.ix, TL_STR("k"), verdicts, &err));
    TEST_ASSERT_EQUAL_STRING_LEN("test.ptx:4:", err.text, 11);
    TEST_ASSERT_EQUAL_INT(0, tl_ptx_judge(original.ix, TL_STR("fine"), verdicts, &err));
    TEST_ASSERT_EQUAL_INT(TL_PTX_REASON_OK, verdicts[TL_PTX_PERSISTENT].reason);
}

static void an_unknown_variant_or_shape_is_refused(void)
{
    ptx_open(&original, ".version 8.3\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n");
    struct tl_ptx_rewritten r;
    struct tl_error err = {0};
    struct tl_ptx_options options = {.variant = (enum tl_ptx_variant)7, .grid_dims = 1};
    TEST_ASSERT_EQUAL_INT(-EINVAL,
                          tl_ptx_rewrite(original.ix, TL_STR("k"), &options, &r, NULL, &err));
    options = (struct tl_ptx_options){.variant = TL_PTX_SLICE, .grid_dims = 4};
    TEST_ASSERT_EQUAL_INT(-EINVAL,
                          tl_ptx_rewrite(original.ix, TL_STR("k"), &options, &r, NULL, &err));
}

static void *ask_again_and_again(void *expected)
{
    for (int round = 0; round < 40; round++) {
        for (int v = 0; v < TL_PTX_VARIANTS; v++) {
            struct tl_ptx_rewritten r;
            struct tl_ptx_options options = {.variant = (enum tl_ptx_variant)v, .grid_dims = 3};
            if (tl_ptx_rewrite(original.ix, TL_STR("func_ctaid_two_levels"), &options, &r, NULL,
                               NULL) < 0)
                return NULL;
            bool same = strcmp(r.text, ((char **)expected)[v]) == 0;
            tl_ptx_rewritten_finish(&r);
            if (!same)
                return NULL;
        }
    }
    return expected;
}

static void any_number_of_threads_may_ask_one_index(void)
{
    char path[4400], *expected[TL_PTX_VARIANTS];
    size_t n;
    snprintf(path, sizeof path, "%s/func_ctaid_two_levels.ptx", ptx_cases_folder());
    char *text = ptx_read_file(path, &n);
    TEST_ASSERT_NOT_NULL(text);
    ptx_open(&original, text);
    free(text);
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        struct tl_ptx_rewritten r;
        struct tl_ptx_options options = {.variant = (enum tl_ptx_variant)v, .grid_dims = 3};
        TEST_ASSERT_EQUAL_INT(0, tl_ptx_rewrite(original.ix, TL_STR("func_ctaid_two_levels"),
                                                &options, &r, NULL, NULL));
        expected[v] = copy_of(r.text);
        tl_ptx_rewritten_finish(&r);
    }
    pthread_t threads[4];
    void *result[4];
    for (int i = 0; i < 4; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, ask_again_and_again, expected));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], &result[i]);
    for (int i = 0; i < 4; i++)
        TEST_ASSERT_EQUAL_PTR_MESSAGE(expected, result[i], "a thread got another text");
    for (int v = 0; v < TL_PTX_VARIANTS; v++)
        free(expected[v]);
}

static void a_variant_may_be_asked_for_without_taking_verdict_or_message(void)
{
    ptx_open(&original, ".version 8.3\n.target sm_90\n.address_size 64\n.entry k() { .reg .b32 r; "
                        "mov.u32 r, %smid; ret; }\n");
    struct tl_ptx_rewritten r;
    struct tl_ptx_options options = {.variant = TL_PTX_SLICE, .grid_dims = 1};
    TEST_ASSERT_EQUAL_INT(-EPERM,
                          tl_ptx_rewrite(original.ix, TL_STR("k"), &options, &r, NULL, NULL));
    tl_ptx_rewritten_finish(&r); /* harmless after a refusal */
}

static void extracting_a_kernel_keeps_it_and_drops_the_rest(void)
{
    char path[4400];
    size_t n, text_n;
    snprintf(path, sizeof path, "%s/module_many_entries.ptx", ptx_cases_folder());
    char *text = ptx_read_file(path, &n), *alone = NULL;
    TEST_ASSERT_NOT_NULL(text);
    ptx_open(&original, text);
    free(text);
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_ptx_extract(original.ix, TL_STR("second"), &alone, &text_n, &err), err.text);
    TEST_ASSERT_EQUAL_size_t(strlen(alone), text_n);
    TEST_ASSERT_NOT_NULL(strstr(alone, ".entry second"));
    TEST_ASSERT_NOT_NULL(strstr(alone, "only_for_second"));
    TEST_ASSERT_NOT_NULL(strstr(alone, "used_by_second"));
    TEST_ASSERT_NULL(strstr(alone, "first"));
    TEST_ASSERT_NULL(strstr(alone, "third"));
    free(alone);
    TEST_ASSERT_EQUAL_INT(-ENOENT,
                          tl_ptx_extract(original.ix, TL_STR("fourth"), &alone, &text_n, &err));
    TEST_ASSERT_NULL(alone);
}

static void every_reason_variant_and_argument_has_a_name(void)
{
    for (int i = 0; i < TL_PTX_REASON_COUNT; i++) {
        TEST_ASSERT_TRUE(strlen(tl_ptx_reason_code((enum tl_ptx_reason)i)) > 1);
        TEST_ASSERT_TRUE(strlen(tl_ptx_reason_text((enum tl_ptx_reason)i)) > 5);
        for (int other = 0; other < i; other++)
            TEST_ASSERT_NOT_EQUAL(0, strcmp(tl_ptx_reason_code((enum tl_ptx_reason)i),
                                            tl_ptx_reason_code((enum tl_ptx_reason)other)));
    }
    for (int i = 0; i < TL_PTX_ARG_KINDS; i++)
        TEST_ASSERT_TRUE(strlen(tl_ptx_arg_kind_name((enum tl_ptx_arg_kind)i)) > 3);
}

void setUp(void)
{
    wrong = (struct tl_buf){0};
}

void tearDown(void)
{
    tl_buf_finish(&wrong);
    ptx_case_finish(&the_case);
    ptx_close(&original);
}

/* With names of cases as arguments, only these. */
int main(int argc, char **argv)
{
    UNITY_BEGIN();
    RUN_TEST(every_reason_variant_and_argument_has_a_name);
    RUN_TEST(an_entry_can_be_given_a_name);
    RUN_TEST(what_is_not_there_cannot_be_judged);
    RUN_TEST(a_syntax_error_in_what_a_kernel_reaches_is_told);
    RUN_TEST(an_unknown_variant_or_shape_is_refused);
    RUN_TEST(a_variant_may_be_asked_for_without_taking_verdict_or_message);
    RUN_TEST(extracting_a_kernel_keeps_it_and_drops_the_rest);
    RUN_TEST(any_number_of_threads_may_ask_one_index);
    char **names = NULL;
    uint32_t n = ptx_case_names(&names);
    for (uint32_t i = 0; i < n; i++) {
        bool wanted = argc < 2;
        for (int a = 1; a < argc; a++)
            wanted |= strcmp(argv[a], names[i]) == 0;
        case_name = names[i];
        snprintf(case_path, sizeof case_path, "%s/%s", ptx_cases_folder(), case_name);
        if (wanted)
            UnityDefaultTestRun(run_case, case_name, __LINE__);
    }
    ptx_case_names_free(names, n);
    return UNITY_END();
}
