/* A cubin made by hand, as small as one can be: what is refused and why, and what a gate makes of
 * it. Comparisons with real compilers are in test/gate. */
#include "cubin/work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unity.h>

enum { LARGE_TEXT = 8 << 20 };
enum { NAMES_AT = 64, ROOM = LARGE_TEXT + 4096, GATE_BYTES = 128, BASE = 0x210, PARAM_BYTES = 12 };
enum { NIL, SHSTRTAB, STRTAB, SYMTAB, INFO, KERNEL_INFO, TEXT, BANK0, SECTIONS };

static uint8_t file[ROOM];
static size_t n_file;
static struct tl_cubin *cubin;
static struct tl_error err;

/* --- a cubin ---------------------------------------------------------------------------------- */

/* What tests change before it is put together. */
static struct {
    uint8_t info[96];
    size_t n_info;
    uint16_t type;
    uint8_t abi;
    uint32_t flags;
    const char *name_of_bank0;
    bool has_odd_segment; /* one more, of a part of the code */
    uint32_t registers, param_bytes;
    size_t text_bytes;
} plan;

static void add_info(const void *bytes, size_t n)
{
    memcpy(plan.info + plan.n_info, bytes, n);
    plan.n_info += n;
}

static void put_number(uint8_t format, uint8_t id, uint16_t number)
{
    uint8_t head[4] = {format, id, (uint8_t)number, (uint8_t)(number >> 8)};
    add_info(head, sizeof head);
}

static void put_words(uint8_t id, const uint32_t *words, uint16_t n)
{
    put_number(TL__CB_SIZED, id, (uint16_t)(4 * n));
    add_info(words, 4u * n);
}

static void plan_usual(void)
{
    memset(&plan, 0, sizeof plan);
    plan.type = ET_EXEC;
    plan.abi = 8;
    plan.flags = 0x06005a04;
    plan.name_of_bank0 = ".nv.constant0.k";
    plan.registers = 8;
    plan.param_bytes = PARAM_BYTES;
    plan.text_bytes = 128;
    put_words(0x17, (uint32_t[]){0, 0x00080001, 0x0011f000}, 3);
    put_words(0x17, (uint32_t[]){0, 0, 0x0021f000}, 3);
    put_number(TL__CB_HALF, 0x1b, 0xff);
}

static void plan_rest(void)
{
    put_words(0x1c, (uint32_t[]){0x40}, 1);
    put_number(TL__CB_HALF, 0x19, PARAM_BYTES);
    put_words(0x0a, (uint32_t[]){2, BASE | PARAM_BYTES << 16}, 2);
}

struct part {
    const char *name;
    uint32_t type;
    uint64_t flags;
    const void *bytes;
    size_t n;
    uint32_t link, info;
    uint64_t align, each;
};

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Writes the parts into the file, one behind the other, and fills in their headers; where the last
 * one ends. */
static size_t put_parts(struct part *parts, Elf64_Shdr *headers)
{
    char names[256];
    size_t n_names = 0, at = NAMES_AT;
    for (int i = 0; i < SECTIONS; i++) {
        headers[i].sh_name = (uint32_t)n_names;
        n_names += strlen(strcpy(names + n_names, parts[i].name)) + 1;
    }
    parts[SHSTRTAB].bytes = names;
    parts[SHSTRTAB].n = n_names;
    for (int i = 0; i < SECTIONS; i++) {
        const struct part *p = &parts[i];
        at = i > 0 ? round_up(at, p->align) : at;
        headers[i] = (Elf64_Shdr){headers[i].sh_name, p->type, p->flags, 0,
                                  i > 0 ? at : 0,     p->n,    p->link,  p->info,
                                  p->align,           p->each};
        if (p->n > 0)
            memcpy(file + at, p->bytes, p->n);
        at += p->n;
    }
    return at;
}

/* Makes the cubin that `plan` describes: one kernel, k, with what ptxas would give it. */
static void put_together(void)
{
    static uint8_t text[LARGE_TEXT], bank0[BASE + PARAM_BYTES];
    static const char strings[] = "\0k\0.nv.constant0.k";
    Elf64_Sym symbols[3] = {
        {0},
        {.st_name = 1,
         .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
         .st_other = TL__CB_ENTRY,
         .st_shndx = TEXT,
         .st_size = plan.text_bytes},
        {.st_name = 3, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION), .st_shndx = BANK0}};
    uint32_t info[3] = {0x00082f04, 1, plan.registers};
    struct part parts[SECTIONS] = {
        [NIL] = {"", SHT_NULL, 0, NULL, 0, 0, 0, 0, 0},
        [SHSTRTAB] = {".shstrtab", SHT_STRTAB, 0, NULL, 0, 0, 0, 1, 0},
        [STRTAB] = {".strtab", SHT_STRTAB, 0, strings, sizeof strings, 0, 0, 1, 0},
        [SYMTAB] = {".symtab", SHT_SYMTAB, 0, symbols, sizeof symbols, STRTAB, 1, 8, 24},
        [INFO] = {".nv.info", 0x70000000, 0, info, sizeof info, SYMTAB, 0, 4, 0},
        [KERNEL_INFO] = {".nv.info.k", 0x70000000, 0x40, plan.info, plan.n_info, SYMTAB, TEXT, 4,
                         0},
        [TEXT] = {".text.k", SHT_PROGBITS, 6, text, plan.text_bytes, SYMTAB, 1, 128, 0},
        [BANK0] = {plan.name_of_bank0, SHT_PROGBITS, 0x42, bank0, BASE + plan.param_bytes, 0, TEXT,
                   4, 0},
    };
    Elf64_Shdr headers[SECTIONS];
    for (size_t i = 0; i < plan.text_bytes; i++)
        text[i] = (uint8_t)(i % 251 + 1);
    memset(file, 0, plan.text_bytes + (ROOM - LARGE_TEXT));
    size_t at = put_parts(parts, headers);
    size_t headers_at = round_up(at, 8), segments_at = headers_at + sizeof headers;
    memcpy(file + headers_at, headers, sizeof headers);
    Elf64_Phdr segment = {.p_type = PT_LOAD,
                          .p_flags = PF_R | PF_X,
                          .p_offset = headers[TEXT].sh_offset,
                          .p_filesz = at - headers[TEXT].sh_offset,
                          .p_memsz = at - headers[TEXT].sh_offset,
                          .p_align = 8};
    memcpy(file + segments_at, &segment, sizeof segment);
    segment.p_filesz = segment.p_memsz = 8;
    if (plan.has_odd_segment)
        memcpy(file + segments_at + sizeof segment, &segment, sizeof segment);
    Elf64_Ehdr header = {
        .e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1, 0x41, plan.abi},
        .e_type = plan.type,
        .e_machine = EM_CUDA,
        .e_version = 1,
        .e_phoff = segments_at,
        .e_shoff = headers_at,
        .e_flags = plan.flags,
        .e_ehsize = sizeof header,
        .e_phentsize = sizeof segment,
        .e_phnum = plan.has_odd_segment ? 2 : 1,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = SECTIONS,
        .e_shstrndx = SHSTRTAB};
    memcpy(file, &header, sizeof header);
    n_file = segments_at + header.e_phnum * sizeof segment;
}

void setUp(void)
{
    plan_usual();
}

void tearDown(void)
{
    tl_cubin_close(cubin);
    cubin = NULL;
}

static const struct tl_cubin_entry *open_it(void)
{
    put_together();
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_cubin_open(&cubin, file, n_file, &err), err.text);
    TEST_ASSERT_EQUAL_UINT32(1, tl_cubin_count(cubin));
    return tl_cubin_entry(cubin, 0);
}

static void expect_refused(enum tl_cubin_reason reason)
{
    const struct tl_cubin_entry *e = open_it();
    TEST_ASSERT_EQUAL_STRING(tl_cubin_reason_code(reason), tl_cubin_reason_code(e->reason));
}

/* --- verdicts --------------------------------------------------------------------------------- */

static void a_plain_kernel_can_be_gated(void)
{
    plan_rest();
    const struct tl_cubin_entry *e = open_it();
    TEST_ASSERT_EQUAL_STRING("ok", tl_cubin_reason_code(e->reason));
    TEST_ASSERT_EQUAL_STRING("", e->note);
    TEST_ASSERT_EQUAL_UINT32(2, e->n_params);
    TEST_ASSERT_EQUAL_UINT32(12, e->param_bytes);
    TEST_ASSERT_EQUAL_UINT32(16, e->gate_offset);
    TEST_ASSERT_EQUAL_UINT32(8, e->registers);
    TEST_ASSERT_FALSE(e->wants_twin);
    TEST_ASSERT_EQUAL_UINT32(90, tl_cubin_arch(cubin));
}

/* As ptxas has them for a kernel of sm_90 without parameters; `first` is what stands before. */
static void plan_none(uint8_t first)
{
    plan.n_info = 0;
    plan.param_bytes = 0;
    put_words(first, (uint32_t[]){0x82}, 1);
    put_number(TL__CB_HALF, 0x50, 0);
    put_number(TL__CB_HALF, 0x1b, 0xff);
    put_words(0x1c, (uint32_t[]){0x40}, 1);
    put_words(0x36, (uint32_t[]){8}, 1);
}

static void where_its_attributes_go_must_be_certain(void)
{
    plan_none(0x0f);
    expect_refused(TL_CUBIN_REASON_NO_PARAMETERS);
}

static void what_is_not_linked_is_refused(void)
{
    plan_rest();
    plan.type = ET_REL;
    expect_refused(TL_CUBIN_REASON_NOT_LINKED);
}

static void another_version_is_refused(void)
{
    plan_rest();
    plan.abi = 7;
    expect_refused(TL_CUBIN_REASON_FORMAT);
}

static void unknown_flags_are_refused(void)
{
    plan_rest();
    plan.flags |= 0x10;
    expect_refused(TL_CUBIN_REASON_FORMAT);
}

static void an_unknown_architecture_is_refused(void)
{
    plan_rest();
    plan.flags = 0x06003c04;
    expect_refused(TL_CUBIN_REASON_ARCHITECTURE);
}

static void an_unknown_section_is_refused(void)
{
    plan_rest();
    plan.name_of_bank0 = ".nv.constant7.k";
    expect_refused(TL_CUBIN_REASON_SECTION);
}

static void an_unknown_attribute_is_refused(void)
{
    plan_rest();
    put_number(TL__CB_ALONE, 0x7e, 0);
    const struct tl_cubin_entry *e = open_it();
    TEST_ASSERT_EQUAL_STRING("attribute", tl_cubin_reason_code(e->reason));
    TEST_ASSERT_NOT_NULL(strstr(e->note, "0x7e"));
}

static void a_known_attribute_in_another_form_is_refused(void)
{
    plan_rest();
    put_number(TL__CB_HALF, 0x4c, 1);
    expect_refused(TL_CUBIN_REASON_ATTRIBUTE);
}

static void an_offset_behind_the_code_is_refused(void)
{
    plan_rest();
    put_words(0x28, (uint32_t[]){0x80}, 1);
    expect_refused(TL_CUBIN_REASON_BROKEN);
}

static void a_table_of_branches_that_is_cut_is_refused(void)
{
    plan_rest();
    put_words(0x34, (uint32_t[]){0x10, 0, 5, 0x20}, 4);
    expect_refused(TL_CUBIN_REASON_BROKEN);
}

static void cluster_launch_control_is_refused(void)
{
    plan_rest();
    put_number(TL__CB_ALONE, 0x62, 0);
    expect_refused(TL_CUBIN_REASON_CLUSTER_CONTROL);
}

static void a_kernel_without_exits_is_refused(void)
{
    put_number(TL__CB_HALF, 0x19, PARAM_BYTES);
    put_words(0x0a, (uint32_t[]){2, BASE | PARAM_BYTES << 16}, 2);
    expect_refused(TL_CUBIN_REASON_NO_EXITS);
}

static void sizes_that_disagree_are_refused(void)
{
    plan_rest();
    plan.param_bytes = 8;
    expect_refused(TL_CUBIN_REASON_BROKEN);
}

static void a_kernel_without_registers_is_refused(void)
{
    plan_rest();
    plan.registers = 0;
    expect_refused(TL_CUBIN_REASON_BROKEN);
}

/* Nobody could say where it begins when there is more before it. */
static void a_segment_of_a_part_of_a_section_is_refused(void)
{
    plan_rest();
    plan.has_odd_segment = true;
    const struct tl_cubin_entry *e = open_it();
    TEST_ASSERT_EQUAL_STRING("layout", tl_cubin_reason_code(e->reason));
    TEST_ASSERT_EQUAL_STRING("a segment that does not begin and end with sections", e->note);
}

static Elf64_Shdr *header_of(int section)
{
    return (Elf64_Shdr *)(file + ((Elf64_Ehdr *)file)->e_shoff) + section;
}

static void a_cut_symbol_is_an_error(void)
{
    plan_rest();
    put_together();
    header_of(SYMTAB)->sh_size -= 8;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_cubin_open(&cubin, file, n_file, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "64 bytes of symbols"));
}

/* Twins would put the names of sections and of symbols into the same place. */
static void one_table_for_all_names_is_refused(void)
{
    plan_rest();
    put_together();
    header_of(SYMTAB)->sh_link = SHSTRTAB;
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_cubin_open(&cubin, file, n_file, &err), err.text);
    TEST_ASSERT_EQUAL_STRING("layout", tl_cubin_reason_code(tl_cubin_entry(cubin, 0)->reason));
    TEST_ASSERT_EQUAL_STRING("one table for all names", tl_cubin_entry(cubin, 0)->note);
}

static void every_cut_is_an_error_or_the_same(void)
{
    plan_rest();
    put_together();
    uint8_t *copy = malloc(n_file);
    TEST_ASSERT_NOT_NULL(copy);
    for (size_t n = 0; n < n_file; n++) {
        uint8_t *exact = malloc(n > 0 ? n : 1);
        TEST_ASSERT_NOT_NULL(exact);
        memcpy(exact, file, n);
        TEST_ASSERT_EQUAL_INT(-EINVAL, tl_cubin_open(&cubin, exact, n, &err));
        free(exact);
    }
    free(copy);
}

/* --- gating ----------------------------------------------------------------------------------- */

static int no_compiler(void *data, const char *ptx, uint32_t arch, void **to, size_t *n,
                       struct tl_error *e)
{
    (void)data, (void)ptx, (void)arch, (void)to, (void)n;
    return tl_error_set(e, -ENOSYS, "there is no compiler here");
}

static const struct tl_cubin_compiler compiler = {no_compiler, NULL, "none"};
static const uint8_t gate_code[GATE_BYTES] = {0xaa, 0xbb};

static struct tl_cubin_gates *gates_of_test(uint32_t base)
{
    struct tl_cubin_gates *gates;
    TEST_ASSERT_EQUAL_INT(0, tl_cubin_gates_create(&gates, &compiler, NULL, &err));
    struct tl__cb_piece piece = {.want = {90, 16, {1, 1, 1}},
                                 .base = base,
                                 .registers = 20,
                                 .exit = 0x60,
                                 .has_stack = 1,
                                 .code_bytes = GATE_BYTES,
                                 .code = gate_code};
    TEST_ASSERT_EQUAL_INT(0, tl__cb_gates_put(gates, &piece));
    piece.want.offset = 0;
    TEST_ASSERT_EQUAL_INT(0, tl__cb_gates_put(gates, &piece));
    return gates;
}

static void a_kernel_without_parameters_gets_the_gates(void)
{
    static const uint8_t order[] = {0x37, 0x17, 0x50, 0x1b, 0x4c, 0x1c, 0x1e, 0x19, 0x0a, 0x36};
    struct tl_cubin_gated out;
    struct tl_cubin *after;
    plan_none(0x37);
    const struct tl_cubin_entry *e = open_it();
    TEST_ASSERT_EQUAL_STRING("ok", tl_cubin_reason_code(e->reason));
    TEST_ASSERT_EQUAL_UINT32(0, e->gate_offset);
    struct tl_cubin_gates *gates = gates_of_test(BASE);
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_cubin_gate(cubin, &(struct tl_cubin_options){0}, gates, &out, &err), err.text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_cubin_open(&after, out.bytes, out.n, &err), err.text);
    e = tl_cubin_entry(after, 0);
    TEST_ASSERT_EQUAL_STRING("ok", tl_cubin_reason_code(e->reason));
    TEST_ASSERT_EQUAL_UINT32(48, e->param_bytes);
    TEST_ASSERT_EQUAL_UINT32(1, e->n_params);
    const uint8_t *p = after->sections[KERNEL_INFO].bytes;
    size_t n = after->sections[KERNEL_INFO].h.sh_size, i = 0;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a); i++) {
        TEST_ASSERT_LESS_THAN(sizeof order, i);
        TEST_ASSERT_EQUAL_HEX8(order[i], a.id);
    }
    TEST_ASSERT_EQUAL_size_t(sizeof order, i);
    tl_cubin_close(after);
    tl_cubin_gated_finish(&out);
    tl_cubin_gates_destroy(gates);
}

static void a_gated_kernel_is_a_kernel_with_more_parameters(void)
{
    plan_rest();
    open_it();
    struct tl_cubin_gates *gates = gates_of_test(BASE);
    struct tl_cubin_gated out;
    struct tl_cubin *after;
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_cubin_gate(cubin, &(struct tl_cubin_options){0}, gates, &out, &err), err.text);
    TEST_ASSERT_EQUAL_UINT32(1, out.n_gated);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_cubin_open(&after, out.bytes, out.n, &err), err.text);
    const struct tl_cubin_entry *e = tl_cubin_entry(after, 0);
    TEST_ASSERT_EQUAL_STRING("ok", tl_cubin_reason_code(e->reason));
    TEST_ASSERT_EQUAL_UINT32(3, e->n_params);
    TEST_ASSERT_EQUAL_UINT32(16 + 48, e->param_bytes);
    TEST_ASSERT_EQUAL_UINT32(20, e->registers);
    const struct tl__cb_section *text = &after->sections[TEXT];
    TEST_ASSERT_EQUAL_UINT64(GATE_BYTES + 128, text->h.sh_size);
    TEST_ASSERT_EQUAL_MEMORY(gate_code, text->bytes, GATE_BYTES);
    TEST_ASSERT_EQUAL_MEMORY(cubin->sections[TEXT].bytes, text->bytes + GATE_BYTES, 128);
    tl_cubin_close(after);
    tl_cubin_gated_finish(&out);
    tl_cubin_gates_destroy(gates);
}

static void a_twin_leaves_the_original_alone(void)
{
    plan_rest();
    open_it();
    struct tl_cubin_gates *gates = gates_of_test(BASE);
    struct tl_cubin_gated out;
    struct tl_cubin *after;
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_cubin_gate(cubin, &(struct tl_cubin_options){.is_twin = true}, gates, &out, &err),
        err.text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_cubin_open(&after, out.bytes, out.n, &err), err.text);
    TEST_ASSERT_EQUAL_UINT32(2, tl_cubin_count(after));
    const struct tl_cubin_entry *e = tl_cubin_find(after, TL_STR("k"));
    TEST_ASSERT_EQUAL_UINT32(12, e->param_bytes);
    TEST_ASSERT_EQUAL_UINT32(8, e->registers);
    e = tl_cubin_find(after, TL_STR("k$gate"));
    TEST_ASSERT_NOT_NULL(e);
    TEST_ASSERT_EQUAL_STRING("ok", tl_cubin_reason_code(e->reason));
    TEST_ASSERT_EQUAL_UINT32(16 + 48, e->param_bytes);
    TEST_ASSERT_EQUAL_UINT32(20, e->registers);
    tl_cubin_close(after);
    tl_cubin_gated_finish(&out);
    tl_cubin_gates_destroy(gates);
}

/* Plans one large kernel, and makes its twin of bytes that are kept. */
static struct tl_cubin_gates *plan_large(struct tl_cubin_gated *out)
{
    plan_rest();
    plan.text_bytes = LARGE_TEXT;
    open_it();
    struct tl_cubin_gates *gates = gates_of_test(BASE);
    struct tl_cubin_options options = {.is_twin = true};
    TEST_ASSERT_EQUAL_INT(0, tl_cubin_gate(cubin, &options, gates, out, &err));
    return gates;
}

/* Spends a copy of the cubin at `bytes`: it is the same twin, and the code that was there is not in
 * memory any more. */
static void spend_at(uint8_t *bytes, struct tl_cubin_gates *gates,
                     const struct tl_cubin_gated *expected)
{
    struct tl_cubin_options options = {.is_twin = true, .spends = true};
    struct tl_cubin_gated spent;
    struct tl_cubin *copy;
    memcpy(bytes, file, n_file);
    TEST_ASSERT_EQUAL_INT(0, tl_cubin_open(&copy, bytes, n_file, &err));
    TEST_ASSERT_EQUAL_INT(0, tl_cubin_gate(copy, &options, gates, &spent, &err));
    TEST_ASSERT_EQUAL_size_t(expected->n, spent.n);
    TEST_ASSERT_EQUAL_INT(0, memcmp(expected->bytes, spent.bytes, spent.n));
    TEST_ASSERT_TRUE(tl_str_eq(tl_cubin_entry(copy, 0)->name, TL_STR("k")));
    size_t gone = 0;
    for (size_t i = 0; i < LARGE_TEXT; i++)
        gone += copy->sections[TEXT].bytes[i] == 0;
    TEST_ASSERT_GREATER_THAN(LARGE_TEXT - (128 << 10), gone); /* all but the pages at both ends */
    tl_cubin_close(copy);
    tl_cubin_gated_finish(&spent);
}

static void a_twin_may_spend_its_original(void)
{
    struct tl_cubin_gated out;
    struct tl_cubin_gates *gates = plan_large(&out);
    uint8_t *bytes = malloc(n_file + 8);
    TEST_ASSERT_NOT_NULL(bytes);
    spend_at(bytes, gates, &out);
    spend_at(bytes, gates, &out); /* it can be used again */
    spend_at(bytes + 8, gates, &out);
    free(bytes);
    tl_cubin_gated_finish(&out);
    tl_cubin_gates_destroy(gates);
}

/* The system hands over pages of one mapping only.  Comes after the others: from then on nothing is
 * handed over any more. */
static void what_cannot_be_handed_over_is_copied(void)
{
    struct tl_cubin_gated out;
    struct tl_cubin_gates *gates = plan_large(&out);
    uint8_t *bytes = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(bytes != MAP_FAILED);
    TEST_ASSERT_EQUAL_INT(0, madvise(bytes, LARGE_TEXT / 2, MADV_DONTFORK));
    for (int i = 0; i < 2; i++)
        spend_at(bytes, gates, &out);
    TEST_ASSERT_EQUAL_INT(0, munmap(bytes, ROOM));
    tl_cubin_gated_finish(&out);
    tl_cubin_gates_destroy(gates);
}

/* What the system has given to this process, at most since it was told to forget. */
static size_t held_bytes(bool forgets)
{
    char line[256];
    unsigned long long kb = 0;
    FILE *f = forgets ? fopen("/proc/self/clear_refs", "w") : NULL;
    if (forgets && (f == NULL || fputs("5", f) < 0 || fclose(f) != 0))
        TEST_IGNORE_MESSAGE("no /proc/self/clear_refs");
    f = fopen("/proc/self/status", "r");
    while (f != NULL && kb == 0 && fgets(line, sizeof line, f) != NULL)
        (void)sscanf(line, "VmHWM: %llu kB", &kb);
    if (f != NULL)
        fclose(f);
    TEST_ASSERT_GREATER_THAN(0, kb);
    return 1024 * (size_t)kb;
}

/* Of a cubin that is one large kernel: the twin is twice as large, and its original is handed over
 * or given back while it is copied. */
static void a_spent_original_is_in_memory_once(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    TEST_IGNORE_MESSAGE("sanitizers take memory of their own");
#endif
    struct tl_cubin_gated out;
    struct tl_cubin_gates *gates = plan_large(&out);
    size_t before = held_bytes(true);
    uint8_t *bytes = malloc(n_file);
    TEST_ASSERT_NOT_NULL(bytes);
    spend_at(bytes, gates, &out);
    TEST_ASSERT_LESS_THAN(5 * n_file / 2, held_bytes(false) - before);
    free(bytes);
    tl_cubin_gated_finish(&out);
    tl_cubin_gates_destroy(gates);
}

static void a_gate_for_parameters_elsewhere_is_an_error(void)
{
    plan_rest();
    open_it();
    struct tl_cubin_gates *gates = gates_of_test(BASE + 16);
    struct tl_cubin_gated out;
    TEST_ASSERT_EQUAL_INT(-EINVAL,
                          tl_cubin_gate(cubin, &(struct tl_cubin_options){0}, gates, &out, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "begin at 0x210"));
    tl_cubin_gates_destroy(gates);
}

static void without_a_compiler_there_is_no_gate(void)
{
    struct tl_cubin_gates *gates;
    struct tl_cubin_gated out;
    plan_rest();
    open_it();
    TEST_ASSERT_EQUAL_INT(0, tl_cubin_gates_create(&gates, &compiler, NULL, &err));
    TEST_ASSERT_EQUAL_INT(-ENOSYS,
                          tl_cubin_gate(cubin, &(struct tl_cubin_options){0}, gates, &out, &err));
    TEST_ASSERT_EQUAL_INT(
        -ENOENT,
        tl_cubin_gate(cubin, &(struct tl_cubin_options){.kernel = TL_STR("j")}, gates, &out, &err));
    tl_cubin_gates_destroy(gates);
}

static void large_results_have_memory_of_their_own(void)
{
    for (size_t n = 1; n < 64u << 20; n = 3 * n + 1) {
        bool is_clear;
        uint8_t *bytes = tl__cb_reserve(n, file, n / 3, &is_clear);
        TEST_ASSERT_NOT_NULL(bytes);
        tl__cb_expect(bytes, n, n / 3, n - n / 3);
        for (size_t i = 0; is_clear && i < n; i++)
            TEST_ASSERT_EQUAL_UINT8(0, bytes[i]);
        memset(bytes, 0xa5, n);
        tl__cb_release(bytes, n);
    }
    tl__cb_release(NULL, 64u << 20);
    bool is_clear;
    TEST_ASSERT_NULL(tl__cb_reserve(SIZE_MAX - 1, NULL, 0, &is_clear));
}

/* A compiler that answers with any cubin at all. */
static int wrong_compiler(void *data, const char *ptx, uint32_t arch, void **to, size_t *n,
                          struct tl_error *e)
{
    (void)data, (void)ptx, (void)arch, (void)e;
    *to = malloc(n_file);
    memcpy(*to, file, n_file);
    *n = n_file;
    return 0;
}

static void a_compiler_whose_gate_is_none_is_an_error(void)
{
    static const struct tl_cubin_compiler wrong = {wrong_compiler, NULL, "wrong"};
    struct tl_cubin_gates *gates;
    struct tl_cubin_gated out;
    plan_rest();
    open_it();
    TEST_ASSERT_EQUAL_INT(0, tl_cubin_gates_create(&gates, &wrong, NULL, &err));
    TEST_ASSERT_EQUAL_INT(-EINVAL,
                          tl_cubin_gate(cubin, &(struct tl_cubin_options){0}, gates, &out, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "an entry is missing"));
    TEST_ASSERT_EQUAL_UINT32(0, tl_cubin_gates_compiled(gates));
    tl_cubin_gates_destroy(gates);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_plain_kernel_can_be_gated);
    RUN_TEST(a_kernel_without_parameters_gets_the_gates);
    RUN_TEST(where_its_attributes_go_must_be_certain);
    RUN_TEST(what_is_not_linked_is_refused);
    RUN_TEST(another_version_is_refused);
    RUN_TEST(unknown_flags_are_refused);
    RUN_TEST(an_unknown_architecture_is_refused);
    RUN_TEST(an_unknown_section_is_refused);
    RUN_TEST(an_unknown_attribute_is_refused);
    RUN_TEST(a_known_attribute_in_another_form_is_refused);
    RUN_TEST(an_offset_behind_the_code_is_refused);
    RUN_TEST(a_table_of_branches_that_is_cut_is_refused);
    RUN_TEST(cluster_launch_control_is_refused);
    RUN_TEST(a_kernel_without_exits_is_refused);
    RUN_TEST(sizes_that_disagree_are_refused);
    RUN_TEST(a_kernel_without_registers_is_refused);
    RUN_TEST(a_segment_of_a_part_of_a_section_is_refused);
    RUN_TEST(a_cut_symbol_is_an_error);
    RUN_TEST(one_table_for_all_names_is_refused);
    RUN_TEST(every_cut_is_an_error_or_the_same);
    RUN_TEST(a_gated_kernel_is_a_kernel_with_more_parameters);
    RUN_TEST(a_twin_leaves_the_original_alone);
    RUN_TEST(a_twin_may_spend_its_original);
    RUN_TEST(a_spent_original_is_in_memory_once);
    RUN_TEST(what_cannot_be_handed_over_is_copied);
    RUN_TEST(a_spent_original_is_in_memory_once); /* as it is copied now */
    RUN_TEST(a_gate_for_parameters_elsewhere_is_an_error);
    RUN_TEST(without_a_compiler_there_is_no_gate);
    RUN_TEST(large_results_have_memory_of_their_own);
    RUN_TEST(a_compiler_whose_gate_is_none_is_an_error);
    return UNITY_END();
}
