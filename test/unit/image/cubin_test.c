/* Kernels of cubins, from ELF files made here. */
#include "test/unit/image/build.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <unity.h>

enum { MAX_SEEN = 16 };

static struct seen {
    struct tl_cubin_kernel kernels[MAX_SEEN];
    char names[MAX_SEEN][32];
    uint32_t n;
    int stop_with;
} seen;
static struct tl_buf buf;
static struct tl_error err;

void setUp(void)
{
    seen = (struct seen){0};
    buf = (struct tl_buf){0};
}

void tearDown(void)
{
    tl_buf_finish(&buf);
}

static int see(void *data, const struct tl_cubin_kernel *kernel)
{
    (void)data;
    if (seen.n < MAX_SEEN) {
        uint32_t n = kernel->name.n < 31 ? kernel->name.n : 31;
        memcpy(seen.names[seen.n], kernel->name.p, n);
        seen.kernels[seen.n++] = *kernel;
    }
    return seen.stop_with;
}

static int walk(void)
{
    return tl_cubin_walk(buf.p, buf.n, see, NULL, &err);
}

static void kernels_come_with_parameters_registers_and_shared_memory(void)
{
    build_cubin(&buf);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, walk(), err.text);
    TEST_ASSERT_EQUAL_UINT32(2, seen.n);
    TEST_ASSERT_EQUAL_STRING("scale", seen.names[0]);
    TEST_ASSERT_EQUAL_UINT32(12, seen.kernels[0].param_bytes);
    TEST_ASSERT_EQUAL_UINT32(2, seen.kernels[0].n_params);
    TEST_ASSERT_EQUAL_UINT32(10, seen.kernels[0].registers);
    TEST_ASSERT_EQUAL_UINT32(1040, seen.kernels[0].shared_bytes);
    TEST_ASSERT_EQUAL_STRING("fill", seen.names[1]);
    TEST_ASSERT_EQUAL_UINT32(8, seen.kernels[1].param_bytes);
    TEST_ASSERT_EQUAL_UINT32(1, seen.kernels[1].n_params);
    TEST_ASSERT_EQUAL_UINT32(24, seen.kernels[1].registers);
    TEST_ASSERT_EQUAL_UINT32(0, seen.kernels[1].shared_bytes);
}

static void the_visitor_can_stop_the_walk(void)
{
    build_cubin(&buf);
    seen.stop_with = 7;
    TEST_ASSERT_EQUAL_INT(7, walk());
    TEST_ASSERT_EQUAL_UINT32(1, seen.n);
}

static void a_cut_cubin_is_refused_without_reading_on(void)
{
    build_cubin(&buf);
    for (size_t n = 0; n < buf.n; n++) {
        void *copy = guarded_copy(buf.p, n);
        TEST_ASSERT_EQUAL_INT(-EINVAL, tl_cubin_walk(copy, n, see, NULL, &err));
        guarded_free(copy, n);
    }
    TEST_ASSERT_EQUAL_UINT32(0, seen.n);
}

static void no_single_wrong_byte_leads_outside(void)
{
    static const uint8_t values[] = {0, 1, 3, 0x10, 0x40, 0x7f, 0x80, 0xff};
    build_cubin(&buf);
    uint8_t *copy = guarded_copy(buf.p, buf.n);
    for (size_t at = 0; at < buf.n; at++) {
        for (size_t v = 0; v < sizeof values; v++) {
            copy[at] = values[v];
            seen.n = 0;
            int rc = tl_cubin_walk(copy, buf.n, see, NULL, &err);
            TEST_ASSERT_TRUE(rc == 0 || rc == -EINVAL);
        }
        copy[at] = (uint8_t)buf.p[at];
    }
    guarded_free(copy, buf.n);
}

static void bytes_that_are_no_cuda_elf_are_refused(void)
{
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_cubin_walk("", 0, see, NULL, &err));
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_cubin_walk(ELFMAG, 4, see, NULL, &err));
    build_elf(&buf, &(struct build_elf){.machine = EM_X86_64, .type = ET_DYN}, NULL, 0);
    TEST_ASSERT_EQUAL_INT(-EINVAL, walk());
    TEST_ASSERT_NOT_NULL(strstr(err.text, "not a 64-bit CUDA ELF"));
}

static void a_cubin_without_symbols_is_refused(void)
{
    build_elf(&buf, &(struct build_elf){.machine = EM_CUDA, .type = ET_EXEC}, NULL, 0);
    TEST_ASSERT_EQUAL_INT(-EINVAL, walk());
    TEST_ASSERT_NOT_NULL(strstr(err.text, "no symbol table"));
}

static void a_huge_section_count_is_refused(void)
{
    build_cubin(&buf);
    uint64_t table;
    memcpy(&table, buf.p + offsetof(Elf64_Ehdr, e_shoff), sizeof table);
    patch16(&buf, offsetof(Elf64_Ehdr, e_shnum), 0);
    patch64(&buf, table + offsetof(Elf64_Shdr, sh_size), UINT64_MAX / 64);
    TEST_ASSERT_EQUAL_INT(-EINVAL, walk());
    patch64(&buf, table + offsetof(Elf64_Shdr, sh_size), 11);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, walk(), err.text);
    TEST_ASSERT_EQUAL_UINT32(2, seen.n);
}

static void a_section_outside_of_the_file_is_refused(void)
{
    build_cubin(&buf);
    uint64_t table;
    memcpy(&table, buf.p + offsetof(Elf64_Ehdr, e_shoff), sizeof table);
    size_t code = table + 4 * sizeof(Elf64_Shdr);
    patch64(&buf, code + offsetof(Elf64_Shdr, sh_offset), buf.n - 127);
    TEST_ASSERT_EQUAL_INT(-EINVAL, walk());
    TEST_ASSERT_NOT_NULL(strstr(err.text, "section 4 of a cubin is cut off"));
    patch64(&buf, code + offsetof(Elf64_Shdr, sh_offset), UINT64_MAX);
    TEST_ASSERT_EQUAL_INT(-EINVAL, walk());
    patch64(&buf, code + offsetof(Elf64_Shdr, sh_offset), buf.n - 128);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, walk(), err.text);
}

static void relocatable_cubins_say_so(void)
{
    build_cubin(&buf);
    TEST_ASSERT_FALSE(tl_cubin_is_relocatable(buf.p, buf.n));
    patch16(&buf, offsetof(Elf64_Ehdr, e_type), ET_REL);
    TEST_ASSERT_TRUE(tl_cubin_is_relocatable(buf.p, buf.n));
    TEST_ASSERT_FALSE(tl_cubin_is_relocatable(buf.p, 40));
    TEST_ASSERT_FALSE(tl_cubin_is_relocatable(".version 8.3", 12));
}

static int copy_image(void *data, const struct tl_image *found)
{
    *(struct tl_image *)data = *found;
    return 1;
}

static void the_architecture_is_where_the_abi_puts_it(void)
{
    static const struct {
        uint8_t abi;
        uint32_t flags, arch;
    } cases[] = {{7, 0x500550, 80}, {7, 0x5a055a, 90}, {8, 0x6005a04, 90}, {8, 0x6007802, 120}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tearDown();
        setUp();
        build_cubin(&buf);
        buf.p[EI_ABIVERSION] = (char)cases[i].abi;
        patch32(&buf, offsetof(Elf64_Ehdr, e_flags), cases[i].flags);
        struct tl_image image = {0};
        TEST_ASSERT_EQUAL_INT(1, tl_image_walk(buf.p, buf.n, copy_image, NULL, &image));
        TEST_ASSERT_EQUAL_UINT32(cases[i].arch, image.arch);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(kernels_come_with_parameters_registers_and_shared_memory);
    RUN_TEST(the_visitor_can_stop_the_walk);
    RUN_TEST(a_cut_cubin_is_refused_without_reading_on);
    RUN_TEST(no_single_wrong_byte_leads_outside);
    RUN_TEST(bytes_that_are_no_cuda_elf_are_refused);
    RUN_TEST(a_cubin_without_symbols_is_refused);
    RUN_TEST(a_huge_section_count_is_refused);
    RUN_TEST(a_section_outside_of_the_file_is_refused);
    RUN_TEST(relocatable_cubins_say_so);
    RUN_TEST(the_architecture_is_where_the_abi_puts_it);
    return UNITY_END();
}
