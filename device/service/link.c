/* Relocatable object to shared object; see the header.
 *
 * The output, in file order (addresses equal file offsets):
 *
 *     ELF header, program headers, .hash, .dynsym, .dynstr, .rodata, .text   read-execute, one segment
 *     .dynamic                                                               a page of its own, see put_headers
 *     .symtab, .strtab, .shstrtab, section headers                           not loaded
 *
 * Sections of the input keep their order within .rodata and .text.  Unwind tables and notes are
 * left out: nothing unwinds through a kernel. */
#include "device/service/link.h"

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "device/abi.h"

#define PAGE 4096u
#define SEGMENTS 5
#define LIMIT (1u << 30)
#ifndef R_X86_64_REX_GOTPCRELX
#define R_X86_64_GOTPCRELX 41
#define R_X86_64_REX_GOTPCRELX 42
#endif
#define SHT_UNWIND 0x70000001 /* what LLVM calls the type of .eh_frame */

enum { EXPORT_INFO, EXPORT_WARP, EXPORT_BLOCKS, EXPORTS };
static const char *const export_names[EXPORTS] = {"tally_info", "tally_warp", "tally_blocks"};

/* Sections of the output. */
enum {
    OUT_NULL,
    OUT_HASH,
    OUT_DYNSYM,
    OUT_DYNSTR,
    OUT_RODATA,
    OUT_TEXT,
    OUT_DYNAMIC,
    OUT_SYMTAB,
    OUT_STRTAB,
    OUT_NAMES,
    OUTS
};

struct out_section {
    uint64_t at, n;
};

struct link {
    struct tl_error *err;
    const char *kernel;
    uint32_t stack_bytes;
    /* the input */
    const uint8_t *in;
    size_t in_n;
    const Elf64_Shdr *sections;
    uint32_t n_sections;
    const Elf64_Sym *symbols;
    uint32_t n_symbols;
    const char *names; /* of sections; terminated, as the symbols' */
    size_t names_n;
    const char *strings;
    size_t strings_n;
    /* per section of the input: 0 if it is left out, else where it goes */
    uint64_t *at;
    const Elf64_Sym *exports[EXPORTS]; /* NULL if the object has none */
    /* the output */
    struct out_section out[OUTS];
    uint64_t headers_at, total;
    uint8_t *p;
    struct tl_buf symtab, strtab;
    uint32_t n_locals;
};

static uint64_t align_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) & ~(to - 1);
}

/* --- reading the input ------------------------------------------------------------------------ */

static int malformed(struct link *k, const char *what)
{
    return tl_error_set(k->err, -EINVAL, "kernel %.300s: the compiler's object is malformed: %s",
                        k->kernel, what);
}

static bool is_within(const struct link *k, uint64_t at, uint64_t n)
{
    return at <= k->in_n && n <= k->in_n - at;
}

static const char *section_name(const struct link *k, uint32_t i)
{
    uint32_t at = k->sections[i].sh_name;
    return at < k->names_n ? k->names + at : "";
}

static const char *symbol_name(const struct link *k, const Elf64_Sym *s)
{
    if (ELF64_ST_TYPE(s->st_info) == STT_SECTION && s->st_shndx < k->n_sections)
        return section_name(k, s->st_shndx);
    return s->st_name < k->strings_n ? k->strings + s->st_name : "";
}

static int read_strings(struct link *k, uint32_t section, const char **text, size_t *n)
{
    if (section >= k->n_sections || k->sections[section].sh_type != SHT_STRTAB)
        return malformed(k, "a string table is missing");
    *text = (const char *)k->in + k->sections[section].sh_offset;
    *n = k->sections[section].sh_size;
    if (*n == 0 || (*text)[*n - 1] != '\0')
        return malformed(k, "a string table is not terminated");
    return 0;
}

/* Finds sections, symbols and texts of the input, and checks that each lies within it. */
static int read_tables(struct link *k)
{
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)k->in;
    if (k->in_n < sizeof *e || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 ||
        e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_ident[EI_DATA] != ELFDATA2LSB ||
        e->e_machine != EM_X86_64 || e->e_type != ET_REL)
        return malformed(k, "not a relocatable object for x86-64");
    if (k->in_n > LIMIT)
        return tl_error_set(k->err, -EFBIG, "kernel %.300s: the compiler's object has %zu bytes",
                            k->kernel, k->in_n);
    if (e->e_shentsize != sizeof(Elf64_Shdr) || e->e_shoff % 8 != 0 ||
        !is_within(k, e->e_shoff, (uint64_t)e->e_shnum * sizeof(Elf64_Shdr)))
        return malformed(k, "its section headers lie outside");
    k->sections = (const Elf64_Shdr *)(k->in + e->e_shoff);
    k->n_sections = e->e_shnum;
    uint32_t symtab = 0;
    for (uint32_t i = 1; i < k->n_sections; i++) {
        const Elf64_Shdr *s = &k->sections[i];
        if (s->sh_type != SHT_NOBITS && !is_within(k, s->sh_offset, s->sh_size))
            return malformed(k, "a section lies outside");
        if (s->sh_type == SHT_SYMTAB)
            symtab = i;
    }
    int rc = read_strings(k, e->e_shstrndx, &k->names, &k->names_n);
    if (rc < 0)
        return rc;
    const Elf64_Shdr *s = &k->sections[symtab];
    if (symtab == 0 || s->sh_entsize != sizeof(Elf64_Sym) || s->sh_offset % 8 != 0)
        return malformed(k, "it has no symbol table");
    k->symbols = (const Elf64_Sym *)(k->in + s->sh_offset);
    k->n_symbols = (uint32_t)(s->sh_size / sizeof(Elf64_Sym));
    return read_strings(k, s->sh_link, &k->strings, &k->strings_n);
}

/* --- layout ----------------------------------------------------------------------------------- */

static bool is_left_out(const struct link *k, uint32_t i)
{
    const Elf64_Shdr *s = &k->sections[i];
    return (s->sh_flags & SHF_ALLOC) == 0 || s->sh_size == 0 || s->sh_type == SHT_NOTE ||
           s->sh_type == SHT_UNWIND || strcmp(section_name(k, i), ".eh_frame") == 0;
}

/* Gives each section of the wanted kind its place from `here` on. */
static int place_sections(struct link *k, uint64_t executable, struct out_section *o,
                          uint64_t *here)
{
    *here = align_up(*here, 64);
    o->at = *here;
    for (uint32_t i = 1; i < k->n_sections; i++) {
        const Elf64_Shdr *s = &k->sections[i];
        if (is_left_out(k, i) || (s->sh_flags & SHF_EXECINSTR) != executable)
            continue;
        uint64_t align = s->sh_addralign == 0 ? 1 : s->sh_addralign;
        if (align > PAGE || (align & (align - 1)) != 0)
            return malformed(k, "a section's alignment is not a power of two up to a page");
        if (s->sh_flags & (SHF_WRITE | SHF_TLS))
            return tl_error_set(k->err, -ENOTSUP,
                                "kernel %.300s: the compiled code has writable data, in section %s",
                                k->kernel, section_name(k, i));
        if (s->sh_size > LIMIT)
            return tl_error_set(k->err, -EFBIG, "kernel %.300s: section %s is too large", k->kernel,
                                section_name(k, i));
        k->at[i] = align_up(*here, align);
        *here = k->at[i] + s->sh_size;
        if (*here > LIMIT)
            return tl_error_set(k->err, -EFBIG,
                                "kernel %.300s: the compiled code is larger than 1 GiB", k->kernel);
    }
    o->n = *here - o->at;
    return 0;
}

/* Whether a symbol is defined in what is kept, completely. */
static bool is_kept(const struct link *k, const Elf64_Sym *s)
{
    return s->st_shndx > SHN_UNDEF && s->st_shndx < k->n_sections && k->at[s->st_shndx] != 0 &&
           s->st_value <= k->sections[s->st_shndx].sh_size &&
           s->st_size <= k->sections[s->st_shndx].sh_size - s->st_value;
}

static int find_exports(struct link *k)
{
    for (uint32_t i = 1; i < k->n_symbols; i++) {
        const Elf64_Sym *s = &k->symbols[i];
        if (ELF64_ST_BIND(s->st_info) == STB_LOCAL || s->st_shndx == SHN_UNDEF ||
            s->st_shndx >= k->n_sections)
            continue;
        for (uint32_t e = 0; e < EXPORTS; e++)
            if (strcmp(symbol_name(k, s), export_names[e]) == 0)
                k->exports[e] = s;
    }
    if (k->exports[EXPORT_INFO] == NULL)
        return tl_error_set(k->err, -ENOENT,
                            "kernel %.300s: the compiler's object does not define tally_info",
                            k->kernel);
    if (k->exports[EXPORT_WARP] == NULL && k->exports[EXPORT_BLOCKS] == NULL)
        return tl_error_set(
            k->err, -ENOENT,
            "kernel %.300s: the compiler's object defines neither tally_warp nor tally_blocks",
            k->kernel);
    return 0;
}

static uint32_t add_string(struct tl_buf *b, const char *text)
{
    uint32_t at = (uint32_t)b->n;
    tl_buf_add(b, text, strlen(text) + 1);
    return at;
}

/* --- symbols ---------------------------------------------------------------------------------- */

static Elf64_Sym place_symbol(const struct link *k, const Elf64_Sym *s)
{
    bool is_code = (k->sections[s->st_shndx].sh_flags & SHF_EXECINSTR) != 0;
    return (Elf64_Sym){.st_value = k->at[s->st_shndx] + s->st_value,
                       .st_size = s->st_size,
                       .st_info = ELF64_ST_INFO(STB_GLOBAL, is_code ? STT_FUNC : STT_OBJECT),
                       .st_shndx = is_code ? OUT_TEXT : OUT_RODATA};
}

/* The translator calls the functions that do the work kernel, kernel_rest (a last warp that is not
 * full), and with barriers kernel.1 and so on; PTX has no names with dots. */
static bool is_body(const char *name)
{
    return strncmp(name, "kernel", 6) == 0 &&
           (name[6] == '\0' || name[6] == '.' || strncmp(name + 6, "_rest", 5) == 0);
}

/* What debuggers see: functions and objects by their names, but entries and body by the
 * kernel's. */
static int make_symtab(struct link *k)
{
    static const char *const suffixes[EXPORTS] = {".info", "", ".blocks"};
    bool has_body = false;
    Elf64_Sym out = {0};
    tl_buf_add(&k->symtab, (const char *)&out, sizeof out);
    add_string(&k->strtab, "");
    k->n_locals = 1;
    for (uint32_t i = 1; i < k->n_symbols; i++) {
        const Elf64_Sym *s = &k->symbols[i];
        uint32_t type = ELF64_ST_TYPE(s->st_info);
        bool is_export = s == k->exports[0] || s == k->exports[1] || s == k->exports[2];
        if (!is_kept(k, s) || is_export || (type != STT_FUNC && type != STT_OBJECT) ||
            symbol_name(k, s)[0] == '\0')
            continue;
        out = place_symbol(k, s);
        out.st_info = ELF64_ST_INFO(STB_LOCAL, ELF64_ST_TYPE(out.st_info));
        const char *name = symbol_name(k, s);
        out.st_name = (uint32_t)k->strtab.n;
        if (type == STT_FUNC && is_body(name)) {
            has_body = true;
            tl_buf_puts(&k->strtab, k->kernel);
            name += strlen("kernel");
        }
        add_string(&k->strtab, name);
        tl_buf_add(&k->symtab, (const char *)&out, sizeof out);
        k->n_locals++;
    }
    for (uint32_t e = 0; e < EXPORTS; e++) {
        if (k->exports[e] == NULL)
            continue;
        out = place_symbol(k, k->exports[e]);
        out.st_name = (uint32_t)k->strtab.n;
        tl_buf_puts(&k->strtab, k->kernel);
        add_string(&k->strtab, e == EXPORT_WARP && has_body ? ".warp" : suffixes[e]);
        tl_buf_add(&k->symtab, (const char *)&out, sizeof out);
    }
    if (k->symtab.failed || k->strtab.failed)
        return tl_error_set(k->err, -ENOMEM, "kernel %.300s: out of memory while linking",
                            k->kernel);
    return 0;
}

static uint32_t n_exports(const struct link *k)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < EXPORTS; e++)
        n += k->exports[e] != NULL;
    return n;
}

/* One bucket: the loader walks at most three names. */
static void put_dynamic_symbols(struct link *k)
{
    uint32_t *hash = (uint32_t *)(k->p + k->out[OUT_HASH].at);
    Elf64_Sym *symbols = (Elf64_Sym *)(k->p + k->out[OUT_DYNSYM].at);
    char *strings = (char *)k->p + k->out[OUT_DYNSTR].at;
    uint32_t n = 1 + n_exports(k), at = 1, i = 1;
    hash[0] = 1; /* buckets */
    hash[1] = n; /* chains */
    hash[2] = 1; /* the bucket begins with symbol 1 */
    for (uint32_t e = 0; e < EXPORTS; e++) {
        if (k->exports[e] == NULL)
            continue;
        symbols[i] = place_symbol(k, k->exports[e]);
        symbols[i].st_name = at;
        memcpy(strings + at, export_names[e], strlen(export_names[e]) + 1);
        at += (uint32_t)strlen(export_names[e]) + 1;
        hash[3 + i] = i + 1 < n ? i + 1 : 0;
        i++;
    }
}

/* --- relocations ------------------------------------------------------------------------------ */

static const char *relocation_name(uint32_t type)
{
    static const char *const names[] = {
        [R_X86_64_64] = "R_X86_64_64",
        [R_X86_64_PC32] = "R_X86_64_PC32",
        [R_X86_64_GOT32] = "R_X86_64_GOT32",
        [R_X86_64_PLT32] = "R_X86_64_PLT32",
        [R_X86_64_GOTPCREL] = "R_X86_64_GOTPCREL",
        [R_X86_64_32] = "R_X86_64_32",
        [R_X86_64_32S] = "R_X86_64_32S",
        [R_X86_64_16] = "R_X86_64_16",
        [R_X86_64_PC16] = "R_X86_64_PC16",
        [R_X86_64_TLSGD] = "R_X86_64_TLSGD",
        [R_X86_64_TLSLD] = "R_X86_64_TLSLD",
        [R_X86_64_GOTTPOFF] = "R_X86_64_GOTTPOFF",
        [R_X86_64_TPOFF32] = "R_X86_64_TPOFF32",
        [R_X86_64_PC64] = "R_X86_64_PC64",
        [R_X86_64_GOTOFF64] = "R_X86_64_GOTOFF64",
        [R_X86_64_GOTPC32] = "R_X86_64_GOTPC32",
        [R_X86_64_SIZE32] = "R_X86_64_SIZE32",
        [R_X86_64_GOTPCRELX] = "R_X86_64_GOTPCRELX",
        [R_X86_64_REX_GOTPCRELX] = "R_X86_64_REX_GOTPCRELX",
    };
    const char *name = type < sizeof names / sizeof names[0] ? names[type] : NULL;
    return name != NULL ? name : "unknown";
}

static int unresolvable(struct link *k, uint32_t type, const Elf64_Sym *s, uint32_t section)
{
    return tl_error_set(
        k->err, -ENOTSUP,
        "kernel %.300s: relocation %s (%u) to %s in section %s cannot be resolved when linking",
        k->kernel, relocation_name(type), type, symbol_name(k, s), section_name(k, section));
}

/* Where a symbol went; an error if it is not in the object. */
static int symbol_address(struct link *k, const Elf64_Sym *s, uint64_t *address)
{
    if (s->st_shndx == SHN_UNDEF || s->st_shndx == SHN_COMMON)
        return tl_error_set(k->err, -ENOTSUP,
                            "kernel %.300s: the compiled code refers to %s, which is not in it, "
                            "and there is nothing outside; a CPU with AVX2, FMA and F16C has "
                            "instructions for all that kernels compute",
                            k->kernel, symbol_name(k, s));
    if (s->st_shndx >= k->n_sections || k->at[s->st_shndx] == 0 ||
        s->st_value > k->sections[s->st_shndx].sh_size)
        return tl_error_set(
            k->err, -ENOTSUP,
            "kernel %.300s: the compiled code refers to %s, which is in no section that is kept",
            k->kernel, symbol_name(k, s));
    *address = k->at[s->st_shndx] + s->st_value;
    return 0;
}

/* A load of an address from the global offset table becomes the address itself; `place` is the
 * displacement, before it stand at least two bytes of instruction.  (x86-64 ABI, "Optimize
 * GOTPCRELX Relocations".)  *shift moves the place. */
static bool relax(uint8_t *place, int *shift)
{
    *shift = 0;
    /* mov x@GOTPCREL(%rip), %r  ->  lea x(%rip), %r */
    if (place[-2] == 0x8b && (place[-1] & 0xc7) == 0x05) {
        place[-2] = 0x8d;
        return true;
    }
    if (place[-2] == 0xff && place[-1] == 0x15) { /* call *x@GOTPCREL(%rip)  ->  addr32 call x */
        place[-2] = 0x67;
        place[-1] = 0xe8;
        return true;
    }
    if (place[-2] == 0xff && place[-1] == 0x25) { /* jmp *x@GOTPCREL(%rip)  ->  jmp x; nop */
        place[-2] = 0xe9;
        place[3] = 0x90;
        *shift = -1;
        return true;
    }
    return false;
}

/* Puts an address into the code.  Only what LLVM makes of our modules is known; all else is
 * refused. 0 or -errno with why. */
static int relocate_one(struct link *k, uint32_t section, const Elf64_Rela *r)
{
    uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info);
    uint64_t size = k->sections[section].sh_size, number = ELF64_R_SYM(r->r_info), target = 0;
    if (number >= k->n_symbols)
        return malformed(k, "a relocation has no symbol");
    const Elf64_Sym *s = &k->symbols[number];
    if (type == R_X86_64_NONE)
        return 0;
    int rc = symbol_address(k, s, &target);
    if (rc < 0)
        return rc;
    bool is_got = type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX ||
                  type == R_X86_64_REX_GOTPCRELX;
    if (type != R_X86_64_PC32 && type != R_X86_64_PLT32 && type != R_X86_64_PC64 && !is_got)
        return unresolvable(k, type, s, section);
    uint64_t width = type == R_X86_64_PC64 ? 8 : 4;
    if (size < width || r->r_offset > size - width)
        return malformed(k, "a relocation lies outside of its section");
    uint64_t place = k->at[section] + r->r_offset;
    uint8_t *p = k->p + place;
    if (is_got) {
        int shift = 0;
        if (r->r_offset < 2 || r->r_addend != -4 || !relax(p, &shift))
            return unresolvable(k, type, s, section);
        p += shift;
        place = (uint64_t)((int64_t)place + shift);
    }
    /* In 64 bits and unsigned, so that a wild addend cannot overflow. */
    int64_t value = (int64_t)(target + (uint64_t)r->r_addend - place);
    if (width == 4 && value != (int32_t)value)
        return tl_error_set(k->err, -ENOTSUP, "kernel %.300s: relocation %s to %s does not reach",
                            k->kernel, relocation_name(type), symbol_name(k, s));
    memcpy(p, &value, width); /* little-endian */
    return 0;
}

static int relocate(struct link *k)
{
    for (uint32_t i = 1; i < k->n_sections; i++) {
        const Elf64_Shdr *s = &k->sections[i];
        if ((s->sh_type != SHT_RELA && s->sh_type != SHT_REL) || s->sh_info >= k->n_sections ||
            k->at[s->sh_info] == 0)
            continue;
        if (s->sh_type == SHT_REL || s->sh_entsize != sizeof(Elf64_Rela) || s->sh_offset % 8 != 0)
            return malformed(k, "relocations without addends");
        const Elf64_Rela *r = (const Elf64_Rela *)(k->in + s->sh_offset);
        for (uint64_t n = s->sh_size / sizeof *r; n > 0; n--, r++) {
            int rc = relocate_one(k, s->sh_info, r);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* --- writing the output ----------------------------------------------------------------------- */

static Elf64_Phdr segment(uint32_t type, uint32_t flags, uint64_t at, uint64_t file_bytes,
                          uint64_t bytes, uint64_t align)
{
    return (Elf64_Phdr){.p_type = type,
                        .p_flags = flags,
                        .p_offset = at,
                        .p_vaddr = at,
                        .p_paddr = at,
                        .p_filesz = file_bytes,
                        .p_memsz = bytes,
                        .p_align = align};
}

/* The dynamic section has a page of its own that is writable until the loader has seen it, because
 * before version 2.35 the GNU loader writes addresses into it; afterwards the page is read-only as
 * the rest (PT_GNU_RELRO). */
static void put_headers(struct link *k)
{
    const struct out_section *o = k->out;
    *(Elf64_Ehdr *)k->p = (Elf64_Ehdr){
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_phoff = sizeof(Elf64_Ehdr),
        .e_shoff = k->headers_at,
        .e_ehsize = sizeof(Elf64_Ehdr),
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = SEGMENTS,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = OUTS,
        .e_shstrndx = OUT_NAMES,
    };
    uint64_t loaded = o[OUT_TEXT].at + o[OUT_TEXT].n, dynamic = o[OUT_DYNAMIC].at,
             dynamic_n = o[OUT_DYNAMIC].n;
    const Elf64_Phdr segments[] = {
        segment(PT_LOAD, PF_R | PF_X, 0, loaded, loaded, PAGE),
        segment(PT_LOAD, PF_R | PF_W, dynamic, dynamic_n, PAGE, PAGE),
        segment(PT_DYNAMIC, PF_R | PF_W, dynamic, dynamic_n, dynamic_n, 8),
        segment(PT_GNU_RELRO, PF_R, dynamic, dynamic_n, PAGE, 1),
        segment(PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 16),
    };
    _Static_assert(sizeof segments == SEGMENTS * sizeof(Elf64_Phdr),
                   "lay_out leaves room for so many");
    memcpy(k->p + sizeof(Elf64_Ehdr), segments, sizeof segments);
    const Elf64_Dyn entries[] = {
        {.d_tag = DT_HASH, .d_un.d_ptr = o[OUT_HASH].at},
        {.d_tag = DT_STRTAB, .d_un.d_ptr = o[OUT_DYNSTR].at},
        {.d_tag = DT_SYMTAB, .d_un.d_ptr = o[OUT_DYNSYM].at},
        {.d_tag = DT_STRSZ, .d_un.d_val = o[OUT_DYNSTR].n},
        {.d_tag = DT_SYMENT, .d_un.d_val = sizeof(Elf64_Sym)},
        {.d_tag = DT_NULL},
    };
    _Static_assert(sizeof entries == 6 * sizeof(Elf64_Dyn), "lay_out counts on it");
    memcpy(k->p + dynamic, entries, sizeof entries);
}

/* For debuggers and readelf; the loader needs none of it. */
static void put_section_headers(struct link *k)
{
    static const struct {
        const char *name;
        uint32_t type, flags, align, entry, link;
    } kinds[OUTS] = {
        [OUT_HASH] = {".hash", SHT_HASH, SHF_ALLOC, 8, 4, OUT_DYNSYM},
        [OUT_DYNSYM] = {".dynsym", SHT_DYNSYM, SHF_ALLOC, 8, sizeof(Elf64_Sym), OUT_DYNSTR},
        [OUT_DYNSTR] = {".dynstr", SHT_STRTAB, SHF_ALLOC, 1, 0, 0},
        [OUT_RODATA] = {".rodata", SHT_PROGBITS, SHF_ALLOC, 64, 0, 0},
        [OUT_TEXT] = {".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 64, 0, 0},
        [OUT_DYNAMIC] = {".dynamic", SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, 8, sizeof(Elf64_Dyn),
                         OUT_DYNSTR},
        [OUT_SYMTAB] = {".symtab", SHT_SYMTAB, 0, 8, sizeof(Elf64_Sym), OUT_STRTAB},
        [OUT_STRTAB] = {".strtab", SHT_STRTAB, 0, 1, 0, 0},
        [OUT_NAMES] = {".shstrtab", SHT_STRTAB, 0, 1, 0, 0},
    };
    Elf64_Shdr *headers = (Elf64_Shdr *)(k->p + k->headers_at);
    char *names = (char *)k->p + k->out[OUT_NAMES].at;
    uint32_t at = 1;
    for (uint32_t i = 1; i < OUTS; i++) {
        memcpy(names + at, kinds[i].name, strlen(kinds[i].name) + 1);
        headers[i] = (Elf64_Shdr){
            .sh_name = at,
            .sh_type = kinds[i].type,
            .sh_flags = kinds[i].flags,
            .sh_addr = kinds[i].flags & SHF_ALLOC ? k->out[i].at : 0,
            .sh_offset = k->out[i].at,
            .sh_size = k->out[i].n,
            .sh_link = kinds[i].link,
            .sh_info = i == OUT_SYMTAB   ? k->n_locals
                       : i == OUT_DYNSYM ? 1
                                         : 0,
            .sh_addralign = kinds[i].align,
            .sh_entsize = kinds[i].entry,
        };
        at += (uint32_t)strlen(kinds[i].name) + 1;
    }
}

static uint64_t put_after(struct link *k, uint32_t i, uint64_t here, uint64_t align, uint64_t n)
{
    k->out[i] = (struct out_section){align_up(here, align), n};
    return k->out[i].at + n;
}

static int lay_out(struct link *k)
{
    uint32_t n = n_exports(k);
    uint64_t strings = 1;
    for (uint32_t e = 0; e < EXPORTS; e++)
        strings += k->exports[e] != NULL ? strlen(export_names[e]) + 1 : 0;
    uint64_t here = sizeof(Elf64_Ehdr) + SEGMENTS * sizeof(Elf64_Phdr);
    here = put_after(k, OUT_HASH, here, 8, (3 + 1 + n) * sizeof(uint32_t));
    here = put_after(k, OUT_DYNSYM, here, 8, (1 + n) * sizeof(Elf64_Sym));
    here = put_after(k, OUT_DYNSTR, here, 1, strings);
    int rc = place_sections(k, 0, &k->out[OUT_RODATA], &here);
    if (rc < 0)
        return rc;
    rc = place_sections(k, SHF_EXECINSTR, &k->out[OUT_TEXT], &here);
    if (rc < 0)
        return rc;
    for (uint32_t e = 0; e < EXPORTS; e++)
        if (k->exports[e] != NULL && !is_kept(k, k->exports[e]))
            return malformed(k, "an export is in no section that is kept");
    rc = make_symtab(k);
    if (rc < 0)
        return rc;
    here = put_after(k, OUT_DYNAMIC, here, PAGE, 6 * sizeof(Elf64_Dyn));
    here = put_after(k, OUT_SYMTAB, here, 8, k->symtab.n);
    here = put_after(k, OUT_STRTAB, here, 1, k->strtab.n);
    here = put_after(k, OUT_NAMES, here, 1, 80);
    k->headers_at = align_up(here, 8);
    k->total = k->headers_at + OUTS * sizeof(Elf64_Shdr);
    return 0;
}

static void put_stack_bytes(struct link *k)
{
    const Elf64_Sym *info = k->exports[EXPORT_INFO];
    uint64_t at = offsetof(struct tl_dev_info, stack_bytes);
    if (info->st_size >= at + sizeof k->stack_bytes)
        memcpy(k->p + k->at[info->st_shndx] + info->st_value + at, &k->stack_bytes,
               sizeof k->stack_bytes);
}

static int write_out(struct link *k)
{
    k->p = calloc(1, k->total);
    if (k->p == NULL)
        return tl_error_set(k->err, -ENOMEM, "kernel %.300s: out of memory while linking",
                            k->kernel);
    for (uint32_t i = 1; i < k->n_sections; i++)
        if (k->at[i] != 0 && k->sections[i].sh_type != SHT_NOBITS)
            memcpy(k->p + k->at[i], k->in + k->sections[i].sh_offset, k->sections[i].sh_size);
    memcpy(k->p + k->out[OUT_SYMTAB].at, k->symtab.p, k->symtab.n);
    memcpy(k->p + k->out[OUT_STRTAB].at, k->strtab.p, k->strtab.n);
    put_headers(k);
    put_dynamic_symbols(k);
    put_section_headers(k);
    put_stack_bytes(k);
    return relocate(k);
}

int tl_jit_link(const void *object, size_t n, const char *kernel, uint32_t stack_bytes, void **out,
                size_t *out_n, struct tl_error *err)
{
    struct link k = {
        .err = err, .kernel = kernel, .in = object, .in_n = n, .stack_bytes = stack_bytes};
    *out = NULL;
    *out_n = 0;
    int rc = read_tables(&k);
    if (rc < 0)
        return rc;
    k.at = calloc(k.n_sections, sizeof k.at[0]);
    if (k.at == NULL)
        return tl_error_set(err, -ENOMEM, "kernel %.300s: out of memory while linking", kernel);
    rc = find_exports(&k);
    if (rc == 0)
        rc = lay_out(&k);
    if (rc == 0)
        rc = write_out(&k);
    if (rc == 0) {
        *out = k.p;
        *out_n = k.total;
        k.p = NULL;
    }
    free(k.p);
    free(k.at);
    tl_buf_finish(&k.symtab);
    tl_buf_finish(&k.strtab);
    return rc;
}
