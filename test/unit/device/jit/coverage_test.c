/* How much of what real libraries contain the translator accepts: a tiny kernel for every form of
 * test/data/ptx-forms.tsv (opcode with modifiers, and in how many kernels of which library it
 * occurs). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "device/jit/jit.h"
#include "test/unit/device/jit/op.h"
#include "test/unit/ptx_rewrite/case.h"
#include "test/unit/ptx_rewrite/help.h"

/* What has been reached; never less. */
enum { FLOOR = 995 };
enum { MAX_FORMS = 1200, MAX_LIBRARIES = 16, BATCH = 32, HEAD_LINES = 16 };

struct form {
    char *text;
    uint32_t kernels[MAX_LIBRARIES];
    bool is_accepted;
};

static struct form forms[MAX_FORMS];
static char *libraries[MAX_LIBRARIES];
static uint32_t n_forms, n_libraries;

/* --- operands --------------------------------------------------------------------------------- */

static bool has(const char *form, const char *modifier)
{
    const struct op_row row = {.form = form};
    const struct op o = {.row = &row};
    return op_has(&o, modifier);
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The n-th type of the form, or the last with -1; b32 if there is none. */
static struct op_type type_of(const char *form, int n)
{
    struct op_type t, found;
    int seen = 0;
    op_type_parse(&found, "b32", 3);
    for (const char *p = strchr(form, '.'); p != NULL; p = strchr(p + 1, '.')) {
        if (!op_type_parse(&t, p + 1, strcspn(p + 1, ".")))
            continue;
        found = t;
        if (seen++ == n)
            break;
    }
    return found;
}

static void add_register(struct tl_buf *b, uint32_t bits, uint32_t n)
{
    tl_buf_printf(b, "%%%s%u", bits == 1 ? "p" : bits == 16 ? "h" : bits == 64 ? "d" : "r", n);
}

static void add_vector(struct tl_buf *b, uint32_t bits, uint32_t first, uint32_t n)
{
    tl_buf_puts(b, n == 1 ? "" : "{");
    for (uint32_t i = 0; i < n; i++) {
        tl_buf_puts(b, i == 0 ? "" : ", ");
        add_register(b, bits, first + i);
    }
    tl_buf_puts(b, n == 1 ? "" : "}");
}

static uint32_t vector_of(const char *form)
{
    return has(form, "v8") ? 8 : has(form, "v4") ? 4 : has(form, "v2") ? 2 : 1;
}

static const char *address_of(const char *form)
{
    return has(form, "shared") || has(form, "shared::cta") ? "[sh]"
           : has(form, "local")                            ? "[lo]"
           : has(form, "const")                            ? "[co]"
           : has(form, "param")                            ? "[pa]"
                                                           : "[%d0]";
}

/* Opcodes with operands that their types do not tell; $ is the form. */
static const struct {
    const char *form, *text;
} fixed[] = {
    {"bra", "@%p0 $ END;"},
    {"ret", "@%p0 $;"},
    {"exit", "@%p0 $;"},
    {"trap", "@%p0 $;"},
    {"call", "$ fn;"},
    {"membar", "$;"},
    {"fence", "$;"},
    {"griddepcontrol", "$;"},
    {"nanosleep", "$ %r0;"},
    {"bar.warp.sync", "$ -1;"},
    {"bar.red.popc", "$ %r0, 0, %p0;"},
    {"bar.red", "$ %p1, 0, %p0;"},
    {"barrier.red", "$ %p1, 0, %p0;"},
    {"bar.arrive", "$ 1, 64;"},
    {"barrier.cluster", "$;"},
    {"bar", "$ 0;"},
    {"barrier", "$ 0;"},
    {"cp.async.commit_group", "$;"},
    {"cp.async.wait_all", "$;"},
    {"cp.async.wait_group", "$ 0;"},
    {"cp.async", "$ [sh], [%d0], 16;"},
    {"shfl", "$ %r0|%p1, %r1, %r2, 31, -1;"},
    {"vote.ballot", "$ %r0, %p0, -1;"},
    {"vote.sync.ballot", "$ %r0, %p0, -1;"},
    {"vote", "$ %p1, %p0, -1;"},
    {"match.all.sync.b32", "$ %r0|%p1, %r1, -1;"},
    {"match.all.sync.b64", "$ %r0|%p1, %d1, -1;"},
    {"redux", "$ %r0, %r1, -1;"},
    {"activemask", "$ %r0;"},
    {"isspacep", "$ %p1, %d0;"},
    {"mapa", "$ %d1, %d0, %r0;"},
    {"cvta", "$ %d1, %d0;"},
    {"tex.1d", "$ {%r0, %r1, %r2, %r3}, [%d0, {%r4}];"},
    {"tex.2d", "$ {%r0, %r1, %r2, %r3}, [%d0, {%r4, %r5}];"},
    {"sust", "$ [%d0, {%r0, %r1}], {%r2};"},
    {"ldmatrix", "$ {%r0, %r1, %r2, %r3}, [sh];"},
    {"stmatrix", "$ [sh], {%r0, %r1, %r2, %r3};"},
    {"setp.eq.f16x2", "$ %p1|%p2, %r0, %r1;"},
    {"setp.nan.f16x2", "$ %p1|%p2, %r0, %r1;"},
    {"setp.ne.and.b32", "$ %p1, %r0, %r1, %p0;"},
    {"lop3", "$ %r0, %r1, %r2, %r3, 0xe8;"},
    {"mma.sync.aligned.m8n8k4.row.col.f64", "$ {%d1, %d2}, {%d3}, {%d4}, {%d5, %d6};"},
    {"mma.sync.aligned.m16n8k16.row.col.f16",
     "$ {%r0, %r1}, {%r2, %r3, %r4, %r5}, {%r6, %r7}, {%r8, %r9};"},
    {"mma", "$ {%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%r10, %r11, %r12, %r13};"},
    {"wgmma.mma_async", "$ {}, %d0, %d1, 1, 1, 1, 0, 0;"},
    {"wgmma.wait_group", "$ 0;"},
    {"wgmma", "$;"},
    {"cvt.pack", "$ %r0, %r1, %r2, %r3;"},
};

static bool add_fixed(struct tl_buf *b, const char *form)
{
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        size_t n = strlen(fixed[i].form);
        if (!starts(form, fixed[i].form) || (form[n] != 0 && form[n] != '.'))
            continue;
        const char *dollar = strchr(fixed[i].text, '$');
        tl_buf_add(b, fixed[i].text, (size_t)(dollar - fixed[i].text));
        tl_buf_puts(b, form);
        tl_buf_puts(b, dollar + 1);
        return true;
    }
    return false;
}

/* Fragments of wmma: 8 registers of halves or f32, 2 of bytes, 4 for an f16 accumulator. */
static void add_wmma(struct tl_buf *b, const char *form)
{
    bool is_int = strstr(form, "s8") != NULL, is_half = has(form, "f16") && !has(form, "f32");
    if (has(form, "load")) {
        tl_buf_printf(b, "%s ", form);
        add_vector(b, 32, 0, is_int ? 2 : 8);
        tl_buf_puts(b, ", [sh], 16;");
    } else if (has(form, "store")) {
        tl_buf_printf(b, "%s [sh], ", form);
        add_vector(b, 32, 0, is_half ? 4 : 8);
        tl_buf_puts(b, ", 16;");
    } else {
        uint32_t n = is_half ? 4 : 8, in = is_int ? 2 : 8;
        tl_buf_printf(b, "%s ", form);
        add_vector(b, 32, 0, n);
        tl_buf_puts(b, ", ");
        add_vector(b, 32, 8, in);
        tl_buf_puts(b, ", ");
        add_vector(b, 32, 16, in);
        tl_buf_puts(b, ", ");
        add_vector(b, 32, 24, n);
        tl_buf_puts(b, ";");
    }
}

static void add_memory(struct tl_buf *b, const char *form)
{
    struct op_type t = type_of(form, -1);
    uint32_t n = vector_of(form);
    if (starts(form, "st.param")) {
        tl_buf_printf(b, "{ .param .align 16 .b8 cp[32]; %s [cp], ", form);
        add_vector(b, t.reg_bits, 1, n);
        tl_buf_puts(b, "; call.uni fp, (cp); }");
    } else if (starts(form, "st.") || starts(form, "multimem.st") || starts(form, "multimem.red")) {
        tl_buf_printf(b, "%s %s, ", form, address_of(form));
        add_vector(b, t.reg_bits, 1, n);
        tl_buf_puts(b, ";");
    } else {
        tl_buf_printf(b, "%s ", form);
        add_vector(b, t.reg_bits, 1, n);
        tl_buf_printf(b, ", %s%s;", address_of(form),
                      strstr(form, "cache_hint") != NULL ? ", %d1" : "");
    }
}

static void add_atomic(struct tl_buf *b, const char *form)
{
    struct op_type t = type_of(form, -1);
    bool returns = starts(form, "atom");
    tl_buf_printf(b, "%s ", form);
    if (returns) {
        add_register(b, t.reg_bits, 1);
        tl_buf_puts(b, ", ");
    }
    tl_buf_puts(b, address_of(form));
    for (uint32_t i = 0; i < (has(form, "cas") ? 2 : 1); i++) {
        tl_buf_puts(b, ", ");
        add_register(b, t.reg_bits, 2 + i);
    }
    tl_buf_puts(b, ";");
}

/* How many sources an opcode has. */
static uint32_t sources_of(const char *form)
{
    static const char *const one[] = {"mov", "cvt",  "neg",   "abs",  "not", "cnot",
                                      "rcp", "sqrt", "rsqrt", "ex2",  "lg2", "sin",
                                      "cos", "tanh", "brev",  "popc", "clz", "bfind"};
    static const char *const three[] = {"fma",  "mad", "madc", "selp", "dp4a", "dp2a", "bfe",
                                        "prmt", "shf", "sad",  "slct", "vshr", "vmax4"};
    const struct op_row row = {.form = form};
    const struct op o = {.row = &row};
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++) {
        if (op_is(&o, one[i]))
            return starts(form, "cvt") && strstr(form, "x2.f32") != NULL ? 2 : 1;
    }
    for (size_t i = 0; i < sizeof three / sizeof three[0]; i++) {
        if (op_is(&o, three[i]))
            return 3;
    }
    return starts(form, "bfi.") ? 4 : 2;
}

/* The width of operand n (0 is the result). */
static uint32_t width_of(const char *form, uint32_t n)
{
    uint32_t first = type_of(form, 0).reg_bits, last = type_of(form, -1).reg_bits;
    if (starts(form, "setp"))
        return n == 0 ? 1 : last;
    if (starts(form, "selp"))
        return n == 3 ? 1 : last;
    if (starts(form, "cvt") || starts(form, "set."))
        return n == 0 ? first : last;
    if (starts(form, "popc") || starts(form, "clz") || starts(form, "bfind"))
        return n == 0 ? 32 : last;
    if (starts(form, "shl") || starts(form, "shr"))
        return n == 2 ? 32 : last;
    if (starts(form, "bfe"))
        return n >= 2 ? 32 : last;
    if (starts(form, "bfi."))
        return n >= 3 ? 32 : last;
    if (has(form, "wide"))
        return n == 0 || n == 3 ? last * 2 : last;
    if (starts(form, "sub.rn.f32.f16"))
        return n == 1 ? 16 : 32;
    return last;
}

static void add_instruction(struct tl_buf *b, const char *form)
{
    if (add_fixed(b, form))
        return;
    if (starts(form, "wmma")) {
        add_wmma(b, form);
        return;
    }
    if (starts(form, "ld.") || starts(form, "st.") || starts(form, "multimem")) {
        add_memory(b, form);
        return;
    }
    if (starts(form, "atom") || starts(form, "red.")) {
        add_atomic(b, form);
        return;
    }
    tl_buf_printf(b, "%s ", form);
    for (uint32_t i = 0; i <= sources_of(form); i++) {
        tl_buf_puts(b, i == 0 ? "" : ", ");
        add_register(b, width_of(form, i), i);
    }
    tl_buf_puts(b, ";");
}

/* --- translation ------------------------------------------------------------------------------ */

static const char head[] =
    ".version 8.8\n.target sm_100a\n.address_size 64\n.extern .shared .align 16 .b8 sh[];\n"
    ".const .align 16 .b8 co[64];\n.func fn()\n{ ret; }\n.func fp(.param .align 16 .b8 x[32])\n{ "
    "ret; }\n"
    ".visible .entry k(.param .align 16 .b8 pa[64])\n{\n.local .align 16 .b8 lo[64];\n.reg .pred "
    "%p<8>; .reg .b16 "
    "%h<16>;\n"
    ".reg .b32 %r<40>; .reg .b64 %d<16>;\nmov.u32 %r0, %tid.x; setp.eq.s32 %p0, %r0, "
    "3;\nld.param.u64 %d0, [pa];\n";

/* Translates a kernel of some forms, one per line; those that it refuses are left out one after the
 * other. */
static void try_forms(uint32_t first, uint32_t n)
{
    struct tl_buf text = {0};
    struct tl_error err;
    bool is_out[BATCH] = {false};
    for (uint32_t left = n; left > 0; left--) {
        struct tl_jit_options options = {.block = {64, 1, 1}};
        struct tl_jit_object object;
        uint32_t line_of[BATCH], line = HEAD_LINES + 1;
        text.n = 0;
        tl_buf_puts(&text, head);
        for (uint32_t i = 0; i < n; i++) {
            line_of[i] = is_out[i] ? 0 : line++;
            if (!is_out[i]) {
                add_instruction(&text, forms[first + i].text);
                tl_buf_putc(&text, '\n');
            }
        }
        tl_buf_puts(&text, "END: ret;\n}\n");
        if (tl_jit_compile(text.p, text.n, "forms", &options, &object, &err) == 0) {
            for (uint32_t i = 0; i < n; i++)
                forms[first + i].is_accepted = !is_out[i];
            tl_jit_object_finish(&object);
            break;
        }
        const char *at = strstr(err.text, "line ");
        uint32_t bad = at != NULL ? (uint32_t)strtoul(at + 5, NULL, 10) : 0, found = n;
        for (uint32_t i = 0; i < n; i++)
            found = !is_out[i] && line_of[i] == bad ? i : found;
        if (getenv("VERBOSE") != NULL || found == n)
            printf("%s\n", err.text);
        if (found == n && n > 1) { /* no line to blame: one by one */
            for (uint32_t i = 0; i < n; i++)
                try_forms(first + i, 1);
        }
        if (found == n)
            break;
        is_out[found] = true;
    }
    tl_buf_finish(&text);
}

/* --- the table -------------------------------------------------------------------------------- */

static void read_forms(char *text)
{
    char *line_save, *save;
    for (char *line = strtok_r(text, "\n", &line_save); line != NULL && n_forms < MAX_FORMS;
         line = strtok_r(NULL, "\n", &line_save)) {
        char *name = strtok_r(line, "\t", &save);
        bool is_head = strcmp(name, "form") == 0;
        uint32_t column = 0;
        for (char *w = strtok_r(NULL, "\t", &save); w != NULL && column < MAX_LIBRARIES;
             w = strtok_r(NULL, "\t", &save), column++) {
            if (is_head)
                libraries[n_libraries++] = w;
            else
                forms[n_forms].kernels[column] = (uint32_t)strtoul(w, NULL, 10);
        }
        if (!is_head)
            forms[n_forms++].text = name;
    }
}

/* A kernel that has a missing form cannot run: at least the kernels of the most frequent one, at
 * most all of them together. */
static void print_library(uint32_t l)
{
    uint32_t all = 0, most = 0, sum = 0;
    const char *worst = "";
    for (uint32_t i = 0; i < n_forms; i++) {
        uint32_t k = forms[i].kernels[l];
        all = k > all ? k : all;
        if (forms[i].is_accepted)
            continue;
        sum += k;
        if (k > most) {
            most = k;
            worst = forms[i].text;
        }
    }
    printf("  %-10s at most %u of %u kernels, at least %u%s%s\n", libraries[l], all - most, all,
           sum < all ? all - sum : 0, most > 0 ? "; most miss " : "", worst);
}

static void the_translator_accepts_what_libraries_contain(void)
{
    char path[4096];
    size_t n;
    snprintf(path, sizeof path, "%s/../data/ptx-forms.tsv", ptx_cases_folder());
    char *text = ptx_read_file(path, &n);
    TEST_ASSERT_NOT_NULL(text);
    read_forms(text);
    for (uint32_t i = 0; i < n_forms; i += BATCH)
        try_forms(i, n_forms - i < BATCH ? n_forms - i : BATCH);
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < n_forms; i++) {
        accepted += forms[i].is_accepted;
        if (!forms[i].is_accepted)
            printf("  missing: %s (%u kernels)\n", forms[i].text, forms[i].kernels[0]);
    }
    printf("forms implemented: %u of %u\n", accepted, n_forms);
    for (uint32_t l = 0; l < n_libraries; l++)
        print_library(l);
    free(text);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT32(FLOOR, accepted);
}

void setUp(void)
{
}

void tearDown(void)
{
}

int main(void)
{
    struct tl_error err;
    UNITY_BEGIN();
    if (tl_jit_init(&err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    RUN_TEST(the_translator_accepts_what_libraries_contain);
    return UNITY_END();
}
