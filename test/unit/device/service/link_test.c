/* The mini-linker, fed with what a C compiler emits: its output is loaded and called, and looked at
 * with readelf. */
#include "device/service/link.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#define ENTRIES                                                                                    \
    "#define EXPORT __attribute__((visibility(\"default\")))\n"                                    \
    "EXPORT const int tally_info[4] = {7, 8, 9, 10};\n"

static char folder[256], so_path[300], object_path[300];
static unsigned char *object; /* as compiled */
static size_t object_n;
static void *out, *handle;
static size_t out_n;
static struct tl_error err;

void setUp(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/jit_link_XXXXXX", tmp != NULL ? tmp : "/tmp");
    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    snprintf(so_path, sizeof so_path, "%s/out.so", folder);
    snprintf(object_path, sizeof object_path, "%s/in.o", folder);
    object = NULL;
    out = handle = NULL;
    err = (struct tl_error){0};
}

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...)
{
    char command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, system(command), command);
}

void tearDown(void)
{
    if (handle != NULL)
        dlclose(handle);
    free(object);
    free(out);
    run("rm -rf '%s'", folder);
}

/* The output of a command, at most a page of it. */
static const char *said(const char *command)
{
    static char text[65536];
    char line[1024];
    snprintf(line, sizeof line, "%s '%s' 2>&1", command, so_path);
    FILE *f = popen(line, "r");
    TEST_ASSERT_NOT_NULL(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    pclose(f);
    return text;
}

static void compile(const char *flags, const char *text)
{
    char source[300];
    snprintf(source, sizeof source, "%s/in.c", folder);
    FILE *f = fopen(source, "w");
    TEST_ASSERT_NOT_NULL(f);
    fprintf(f, ENTRIES "%s", text);
    fclose(f);
    run("cd '%s' && gcc -c -fPIC -O2 -fcf-protection=none %s -o in.o in.c", folder, flags);
    f = fopen(object_path, "r");
    TEST_ASSERT_NOT_NULL(f);
    fseek(f, 0, SEEK_END);
    object_n = (size_t)ftell(f);
    rewind(f);
    object = malloc(object_n);
    TEST_ASSERT_EQUAL_size_t(object_n, fread(object, 1, object_n, f));
    fclose(f);
}

static int link_it(void)
{
    return tl_jit_link(object, object_n, "_Z4vaddPf", 0, &out, &out_n, &err);
}

static void *load(const char *symbol)
{
    if (handle == NULL) {
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, link_it(), err.text);
        FILE *f = fopen(so_path, "w");
        TEST_ASSERT_NOT_NULL(f);
        TEST_ASSERT_EQUAL_size_t(out_n, fwrite(out, 1, out_n, f));
        fclose(f);
        handle = dlopen(so_path, RTLD_NOW | RTLD_LOCAL);
        TEST_ASSERT_NOT_NULL_MESSAGE(handle, handle == NULL ? dlerror() : "");
    }
    return dlsym(handle, symbol);
}

typedef int (*int_fn)(int);
typedef void (*void_fn)(float *);

static int_fn load_function(const char *name)
{
    int_fn f;
    void *p = load(name);
    TEST_ASSERT_NOT_NULL_MESSAGE(p, name);
    memcpy(&f, &p, sizeof f);
    return f;
}

static void assert_refused(int code, const char *word)
{
    TEST_ASSERT_EQUAL_INT(code, link_it());
    TEST_ASSERT_EQUAL_INT(code, err.code);
    TEST_ASSERT_NULL(out);
    if (strstr(err.text, word) == NULL)
        TEST_FAIL_MESSAGE(err.text);
}

#define PLAIN "EXPORT int tally_warp(int x) { return x + 1; }\n"

static void a_plain_function_is_called(void)
{
    compile("", PLAIN);
    TEST_ASSERT_EQUAL_INT(42, load_function("tally_warp")(41));
    const int *info = load("tally_info");
    TEST_ASSERT_NOT_NULL(info);
    TEST_ASSERT_EQUAL_INT(10, info[3]);
    TEST_ASSERT_NULL(load("tally_blocks"));
    TEST_ASSERT_NULL(load("_Z4vaddPf"));
}

static void constants_are_found(void)
{
    compile("", "static const double table[] = {1.5, 2.5, 3.5};\n"
                "EXPORT int tally_warp(int x) { return (int)(table[x] * 1.25e1); }\n"
                "EXPORT int tally_blocks(int x) { return \"abc\"[x]; }\n");
    TEST_ASSERT_EQUAL_INT(43, load_function("tally_warp")(2));
    TEST_ASSERT_EQUAL_INT('b', load_function("tally_blocks")(1));
}

static void switch_tables_lead_home(void)
{
    compile(
        "",
        "extern volatile int sink __attribute__((visibility(\"hidden\")));\n"
        "EXPORT int tally_warp(int x) { int r = 1; switch (x) {\n"
        "case 0: r = x * 77; asm volatile(\"\"); break; case 1: asm volatile(\"nop\"); return 31;\n"
        "case 2: asm volatile(\"nop;nop\"); return 5; case 3: asm volatile(\"nop;nop;nop\"); "
        "return 4;\n"
        "case 4: asm volatile(\"nop;nop;nop;nop\"); return 3; case 5: asm(\"\"); return 2;\n"
        "case 6: asm volatile(\"nop;nop;nop;nop;nop\"); return 99; } return r; }\n");
    int_fn f = load_function("tally_warp");
    static const int expected[] = {0, 31, 5, 4, 3, 2, 99, 1};
    for (int i = 0; i < 8; i++)
        TEST_ASSERT_EQUAL_INT(expected[i], f(i));
}

static void static_functions_in_sections_of_their_own_are_called(void)
{
    compile(
        "-ffunction-sections -fdata-sections",
        "__attribute__((noinline)) static int twice(int x) { asm volatile(\"\"); return 2 * x; }\n"
        "__attribute__((noinline, visibility(\"hidden\"))) int thrice(int x) { asm volatile(\"\"); "
        "return 3 * x; }\n"
        "EXPORT int tally_warp(int x) { return twice(x) + thrice(x); }\n");
    TEST_ASSERT_EQUAL_INT(50, load_function("tally_warp")(10));
}

static void vector_constants_are_aligned(void)
{
    compile("-mavx", "typedef float v8 __attribute__((vector_size(32)));\n"
                     "EXPORT void tally_warp(float *p) { *(v8 *)p = *(v8 *)p * (v8){1, 2, 3, 4, 5, "
                     "6, 7, 8}; }\n");
    if (!__builtin_cpu_supports("avx"))
        TEST_IGNORE_MESSAGE("the CPU has no AVX");
    void *p = load("tally_warp");
    void_fn f;
    memcpy(&f, &p, sizeof f);
    _Alignas(32) float v[8] = {1, 1, 1, 1, 1, 1, 1, 2};
    f(v);
    TEST_ASSERT_EQUAL_FLOAT(16, v[7]);
    TEST_ASSERT_EQUAL_FLOAT(3, v[2]);
}

static void loads_from_the_offset_table_are_relaxed(void)
{
    /* Symbols of default visibility go through the table in -fPIC code: address, call and tail
     * call. */
    compile("-fno-plt -fno-inline",
            "const int open_table[3] = {5, 6, 7};\n"
            "EXPORT int helper(int x) { asm volatile(\"\"); return x - 1; }\n"
            "EXPORT int tally_blocks(int x) { return helper(x) + open_table[x]; }\n"
            "EXPORT int tally_warp(int x) { return helper(x + 100); }\n");
    TEST_ASSERT_EQUAL_INT(8, load_function("tally_blocks")(2));
    TEST_ASSERT_EQUAL_INT(109, load_function("tally_warp")(10));
}

static void the_result_is_clean(void)
{
    compile("-g", "static const char text[] = \"x\";\n"
                  "EXPORT int tally_warp(int x) { return text[x]; }\nEXPORT int tally_blocks(int "
                  "x) { return x; }\n");
    load("tally_warp");
    const char *all = said("readelf --wide -a");
    TEST_ASSERT_NULL_MESSAGE(strstr(all, "Warning"), all);
    TEST_ASSERT_NULL_MESSAGE(strstr(all, "Error"), all);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(all, "There are no relocations in this file"), all);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(all, "GNU_RELRO"), all);
    TEST_ASSERT_NULL_MESSAGE(strstr(all, "RWE"), all);
    TEST_ASSERT_NULL_MESSAGE(strstr(all, "NEEDED"), all);
    const char *symbols = said("readelf --wide -s");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(symbols, "_Z4vaddPf.blocks"), symbols);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(symbols, "_Z4vaddPf\n"), symbols);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said("ldd"), "statically linked"), "ldd");
}

static void the_parts_of_a_kernel_carry_its_name(void)
{
    compile("",
            "__attribute__((noinline)) static int kernel(int x) { asm volatile(\"\"); return x; }\n"
            "__attribute__((noinline)) static int part(int x) asm(\"kernel.1\");\n"
            "static int part(int x) { asm volatile(\"\"); return x + 1; }\n"
            "__attribute__((noinline)) static int kernels(int x) { asm volatile(\"\"); return x + "
            "2; }\n"
            "EXPORT int tally_warp(int x) { return kernel(x) + part(x) + kernels(x); }\n");
    TEST_ASSERT_EQUAL_INT(33, load_function("tally_warp")(10));
    const char *symbols = said("readelf --wide -s");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(symbols, " _Z4vaddPf\n"), symbols);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(symbols, " _Z4vaddPf.1\n"), symbols);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(symbols, " _Z4vaddPf.warp\n"), symbols);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(symbols, " kernels\n"), symbols);
}

static void nothing_stays_writable(void)
{
    compile("", PLAIN);
    load("tally_warp");
    FILE *f = fopen("/proc/self/maps", "r");
    TEST_ASSERT_NOT_NULL(f);
    char line[1024];
    int n = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (strstr(line, so_path) == NULL)
            continue;
        n++;
        if (strstr(line, "rw") != NULL)
            TEST_FAIL_MESSAGE(line);
    }
    fclose(f);
    TEST_ASSERT_TRUE(n >= 2);
}

static void an_undefined_function_is_named(void)
{
    compile("", "EXPORT void tally_warp(char *p) { __builtin_memset(p, 0, (unsigned long)p); }\n");
    assert_refused(-ENOTSUP, "memset");
}

static void a_math_call_is_named(void)
{
    compile("-fno-plt",
            "float expf(float);\nEXPORT float tally_warp(float x) { return 1 + expf(x); }\n");
    assert_refused(-ENOTSUP, "expf");
}

static void writable_data_is_refused(void)
{
    compile("", "static int count;\nEXPORT int tally_warp(int x) { return count += x; }\n");
    assert_refused(-ENOTSUP, ".bss");
}

static void a_table_of_addresses_is_refused(void)
{
    compile("", "static const char *const names[] = {\"one\", \"two\"};\n"
                "EXPORT int tally_warp(int x) { return names[x][0]; }\n");
    assert_refused(-ENOTSUP, ".data.rel.ro");
}

static void an_absolute_relocation_is_named(void)
{
    compile("", "EXPORT long tally_warp(void) { long r; asm(\"movabs $tally_info, %0\" : "
                "\"=r\"(r)); return r; }\n");
    assert_refused(-ENOTSUP, "R_X86_64_64");
}

static void thread_local_data_is_refused(void)
{
    compile("", "static __thread int t = 3;\nEXPORT int tally_warp(int x) { return t += x; }\n");
    assert_refused(-ENOTSUP, ".tdata");
}

static void a_comparison_with_the_offset_table_is_refused(void)
{
    compile("", "EXPORT int tally_warp(void *p) { int r; asm(\"cmp tally_info@GOTPCREL(%%rip), %1; "
                "sete %b0\" "
                ": \"=r\"(r) : \"r\"(p)); return r; }\n");
    assert_refused(-ENOTSUP, "GOTPCREL");
}

static void a_missing_export_is_named(void)
{
    compile("", "EXPORT int tally_walk(int x) { return x; }\n");
    assert_refused(-ENOENT, "tally_warp");
}

static void whole_blocks_are_code_enough(void)
{
    compile("", "EXPORT int tally_blocks(int x) { return x + 2; }\n");
    TEST_ASSERT_EQUAL_INT(42, load_function("tally_blocks")(40));
    TEST_ASSERT_NULL(load("tally_warp"));
}

static void an_undefined_symbol_that_nobody_uses_is_no_error(void)
{
    compile("", "asm(\".globl never_used\");\n" PLAIN);
    TEST_ASSERT_EQUAL_INT(2, load_function("tally_warp")(1));
}

static void other_files_are_refused(void)
{
    compile("", PLAIN);
    Elf64_Ehdr *e = (Elf64_Ehdr *)object;
    e->e_machine = EM_AARCH64;
    assert_refused(-EINVAL, "x86-64");
    e->e_machine = EM_X86_64;
    e->e_type = ET_DYN;
    assert_refused(-EINVAL, "relocatable");
    object_n = 10;
    assert_refused(-EINVAL, "relocatable");
}

static void a_cut_object_is_refused_or_whole(void)
{
    compile("",
            "static const int t[] = {1, 2, 3};\nEXPORT int tally_warp(int x) { return t[x]; }\n");
    size_t full = object_n;
    for (object_n = 0; object_n < full; object_n++) {
        /* In memory of its own size, so that AddressSanitizer sees a read past its end. */
        unsigned char *whole = object;
        object = malloc(object_n + 1);
        memcpy(object, whole, object_n);
        TEST_ASSERT_TRUE(link_it() < 0);
        free(object);
        object = whole;
    }
}

/* Any change of any byte ends in an object or in an error, never in a stray access. */
static void a_changed_object_is_survived(void)
{
    compile("-O1", "static const int t[] = {1, 2, 3};\n__attribute__((noinline)) int f(int x) { "
                   "return t[x]; }\n"
                   "EXPORT int tally_warp(int x) { return f(x) + 1; }\n");
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
    int linked = 0;
    for (size_t i = 16; i < object_n; i++) {
        for (size_t v = 0; v < sizeof values; v++) {
            unsigned char old = object[i];
            object[i] = values[v];
            linked += link_it() == 0;
            free(out);
            out = NULL;
            object[i] = old;
        }
    }
    TEST_ASSERT_TRUE(linked > 0);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_plain_function_is_called);
    RUN_TEST(constants_are_found);
    RUN_TEST(switch_tables_lead_home);
    RUN_TEST(static_functions_in_sections_of_their_own_are_called);
    RUN_TEST(vector_constants_are_aligned);
    RUN_TEST(loads_from_the_offset_table_are_relaxed);
    RUN_TEST(the_result_is_clean);
    RUN_TEST(the_parts_of_a_kernel_carry_its_name);
    RUN_TEST(nothing_stays_writable);
    RUN_TEST(an_undefined_function_is_named);
    RUN_TEST(a_math_call_is_named);
    RUN_TEST(writable_data_is_refused);
    RUN_TEST(a_table_of_addresses_is_refused);
    RUN_TEST(an_absolute_relocation_is_named);
    RUN_TEST(thread_local_data_is_refused);
    RUN_TEST(a_comparison_with_the_offset_table_is_refused);
    RUN_TEST(a_missing_export_is_named);
    RUN_TEST(whole_blocks_are_code_enough);
    RUN_TEST(an_undefined_symbol_that_nobody_uses_is_no_error);
    RUN_TEST(other_files_are_refused);
    RUN_TEST(a_cut_object_is_refused_or_whole);
    RUN_TEST(a_changed_object_is_survived);
    return UNITY_END();
}
