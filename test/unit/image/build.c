/* Makes fatbins and ELF files in memory.  Written from the layouts described in image/fatbin.c, on
 * purpose without sharing code with the reader. */
#include "test/unit/image/build.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_SECTIONS = 16 };

static void add_zeros(struct tl_buf *b, size_t n)
{
    while (n-- > 0)
        tl_buf_putc(b, 0);
}

static void add_padding(struct tl_buf *b, size_t begin, size_t alignment)
{
    while ((b->n - begin) % alignment != 0)
        tl_buf_putc(b, 0);
}

static void patch(struct tl_buf *b, size_t at, const void *v, size_t n)
{
    if (!b->failed && at + n <= b->n)
        memcpy(b->p + at, v, n);
}

void patch16(struct tl_buf *b, size_t at, uint16_t v)
{
    patch(b, at, &v, sizeof v);
}

void patch32(struct tl_buf *b, size_t at, uint32_t v)
{
    patch(b, at, &v, sizeof v);
}

void patch64(struct tl_buf *b, size_t at, uint64_t v)
{
    patch(b, at, &v, sizeof v);
}

/* --- fatbins --- */

/* One entry of a fatbin: its header, names and body, packed as asked. */
static void add_entry(struct tl_buf *b, const struct build_entry *e)
{
    size_t at = b->n;
    add_zeros(b, 64);
    patch16(b, at, e->kind);
    patch16(b, at + 2, 0x0101);
    patch16(b, at + 24, 3);
    patch16(b, at + 26, 8);
    patch32(b, at + 28, e->arch);
    patch64(b, at + 40, e->flags);
    if (e->identifier != NULL) {
        patch32(b, at + 32, (uint32_t)(b->n - at));
        patch32(b, at + 36, (uint32_t)strlen(e->identifier));
        tl_buf_puts(b, e->identifier);
        add_padding(b, at, 8);
    }
    if (e->options != NULL) {
        size_t block = b->n - at;
        patch32(b, at + 20, (uint32_t)block);
        add_zeros(b, 8);
        patch32(b, at + block, (uint32_t)block + 8);
        patch32(b, at + block + 4, (uint32_t)strlen(e->options));
        tl_buf_puts(b, e->options);
        add_padding(b, at, 8);
    }
    if (e->header_bytes > b->n - at)
        add_zeros(b, e->header_bytes - (b->n - at));
    patch32(b, at + 4, (uint32_t)(b->n - at));

    size_t payload = b->n;
    tl_buf_add(b, e->payload, e->payload_bytes);
    add_padding(b, payload, 8);
    patch64(b, at + 8, b->n - payload);
    if (e->unpacked_bytes != 0) {
        patch32(b, at + 16, (uint32_t)e->payload_bytes);
        patch64(b, at + 56, e->unpacked_bytes);
    }
}

void build_container(struct tl_buf *out, const struct build_entry *entries, size_t n)
{
    size_t at = out->n;
    add_zeros(out, 16);
    patch32(out, at, 0xBA55ED50);
    patch16(out, at + 4, 1);
    patch16(out, at + 6, 16);
    for (size_t i = 0; i < n; i++)
        add_entry(out, &entries[i]);
    patch64(out, at + 8, out->n - at - 16);
}

/* --- ELF --- */

void build_elf(struct tl_buf *out, const struct build_elf *elf,
               const struct build_section *sections, size_t n)
{
    size_t base = out->n;
    Elf64_Ehdr header = {
        .e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_NONE,
                    elf->abi},
        .e_type = elf->type,
        .e_machine = elf->machine,
        .e_version = EV_CURRENT,
        .e_flags = elf->flags,
        .e_ehsize = sizeof header,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = (uint16_t)(n + 2),
        .e_shstrndx = 1,
    };
    Elf64_Shdr table[MAX_SECTIONS] = {0};
    struct tl_buf names = {0};
    tl_buf_add(&names, "\0.shstrtab", 11);
    add_zeros(out, sizeof header);
    for (size_t i = 0; i < n; i++) {
        table[i + 2] = (Elf64_Shdr){
            .sh_name = (uint32_t)names.n,
            .sh_type = sections[i].type,
            .sh_info = sections[i].info,
            .sh_link = sections[i].link,
            .sh_entsize = sections[i].entry_bytes,
            .sh_offset = out->n - base,
            .sh_size = sections[i].n,
        };
        tl_buf_add(&names, sections[i].name, strlen(sections[i].name) + 1);
        if (sections[i].bytes != NULL)
            tl_buf_add(out, sections[i].bytes, sections[i].n);
        add_padding(out, base, 8);
    }
    table[1] = (Elf64_Shdr){
        .sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = out->n - base, .sh_size = names.n};
    tl_buf_add(out, names.p, names.n);
    add_padding(out, base, 8);
    header.e_shoff = out->n - base;
    tl_buf_add(out, (const char *)table, (n + 2) * sizeof table[0]);
    patch(out, base, &header, sizeof header);
    tl_buf_finish(&names);
}

void build_cubin(struct tl_buf *out)
{
    static const char strings[] = "\0scale\0fill\0helper"; /* at 1, 7 and 12 */
    static const Elf64_Sym symbols[] = {
        {0},
        {.st_name = 12, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC), .st_shndx = 4},
        {.st_name = 1,
         .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
         .st_other = 0x10,
         .st_shndx = 4},
        {.st_name = 7,
         .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
         .st_other = 0x10,
         .st_shndx = 5},
    };
    static const uint32_t common_info[] = {
        0x00082f04, 3,   24, /* registers of symbol 3 */
        0x00081104, 3,   0,  /* its frame, which nobody asks for */
        0x00082f04, 2,   10, /* registers of symbol 2 */
        0x00082f04, 900, 10, /* of a symbol that there is not */
    };
    static const uint32_t scale_info[] = {
        0x000c1704, 0, 0, 0, /* a parameter */
        0x000c4504, 0, 0, 0, /* another, in the new form */
        0x000c1903,          /* their size is 12 */
    };
    static const uint32_t fill_info[] = {
        0x00080a04, 0, 0x00080210,    /* 8 bytes of parameters at 0x210 of the constant bank */
        0x000c1704, 0, 0,          0, /* a parameter */
    };
    static const char code[128];
    static const struct build_section sections[] = {
        {".strtab", SHT_STRTAB, 0, 0, 0, strings, sizeof strings},
        {".symtab", SHT_SYMTAB, 2, 2, sizeof(Elf64_Sym), symbols, sizeof symbols},
        {".text.scale", SHT_PROGBITS, 0, 0, 0, code, sizeof code},
        {".text.fill", SHT_PROGBITS, 0, 0, 0, code, sizeof code},
        {".nv.info", SHT_LOPROC, 0, 3, 0, common_info, sizeof common_info},
        {".nv.info.scale", SHT_LOPROC, 4, 3, 0, scale_info, sizeof scale_info},
        {".nv.info.fill", SHT_LOPROC, 5, 3, 0, fill_info, sizeof fill_info},
        {".nv.shared.scale", SHT_NOBITS, 4, 0, 0, NULL, 1040},
        {".nv.global", SHT_LOPROC + 7, 0, 0, 0, NULL, 1 << 20},
    };
    static const struct build_elf elf = {
        .machine = EM_CUDA, .type = ET_EXEC, .abi = 7, .flags = 0x5a055a};
    build_elf(out, &elf, sections, sizeof sections / sizeof sections[0]);
}

/* --- memory --- */

/* How many bytes the pages take, with the unreadable one at the end. */
static size_t mapped_bytes(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (n + page - 1) / page * page + page;
}

void *guarded_copy(const void *bytes, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t all = mapped_bytes(n);
    char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + all - page, page, PROT_NONE) != 0)
        abort();
    char *copy = p + all - page - n;
    if (n > 0)
        memcpy(copy, bytes, n);
    return copy;
}

void guarded_free(void *copy, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t all = mapped_bytes(n);
    munmap((char *)copy + n + page - all, all);
}
