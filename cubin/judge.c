/* Which kernels of a cubin can be gated, and what is against the others.
 *
 * First what holds for the whole cubin (is it linked, are all of its sections known?), then kernel
 * by kernel.  A wrong "yes" would be a kernel that computes wrong results, so whatever is not known
 * is a "no" with a reason. */
#include "cubin/work.h"

#include <errno.h>
#include <stdio.h>

enum {
    OSABI_CUDA = 0x41,
    ABI_CUDA_13 = 8,
    MAX_PARAM_BYTES = 32764,
    SMALL_PARAM_BYTES = 4096, /* above, parameters of older GPUs begin at another place */
};

/* The architectures on which the edits were compared with the compiler's own output. */
static const uint16_t known_archs[] = {75, 80, 86, 87, 89, 90, 100, 103, 120, 121};

bool tl_cubin_knows_arch(uint32_t arch)
{
    for (size_t i = 0; i < sizeof known_archs / sizeof known_archs[0]; i++)
        if (known_archs[i] == arch)
            return true;
    return false;
}

static const char *note(struct tl_cubin *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static const char *note(struct tl_cubin *c, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *kept = tl_arena_copy(&c->arena, tl_str_of(text));
    return kept != NULL ? kept : "";
}

static void against_all(struct tl_cubin *c, enum tl_cubin_reason reason, const char *why)
{
    if (c->reason != TL_CUBIN_REASON_OK)
        return;
    c->reason = reason;
    c->note = why;
}

static void against(struct tl__cb_kernel *k, enum tl_cubin_reason reason, const char *why)
{
    if (k->entry.reason != TL_CUBIN_REASON_OK)
        return;
    k->entry.reason = reason;
    k->entry.note = why;
}

/* --- the whole cubin -------------------------------------------------------------------------- */

/* The release in a tool's version, "release 13.2, V13.2.86", as 1302; 0 if there is none. */
static uint32_t release_in(const uint8_t *p, size_t n)
{
    static const char mark[] = "release ";
    const uint8_t *at = memmem(p, n, mark, sizeof mark - 1);
    uint32_t parts[2] = {0, 0};
    if (at == NULL)
        return 0;
    const uint8_t *end = p + n;
    at += sizeof mark - 1;
    for (int i = 0; i < 2; i++) {
        int digits = 0;
        for (; at < end && *at >= '0' && *at <= '9' && digits < 2; at++, digits++)
            parts[i] = parts[i] * 10 + (uint32_t)(*at - '0');
        if (digits == 0 || at >= end || *at != (i == 0 ? '.' : ','))
            return 0;
        at++;
    }
    return parts[0] * 100 + parts[1];
}

/* The oldest tool that worked on the code: a note for each. */
static uint32_t oldest_release(const struct tl__cb_section *s)
{
    const uint8_t *p = s->bytes;
    size_t n = s->h.sh_size;
    uint32_t oldest = UINT32_MAX;
    while (n >= 12) {
        uint64_t name = ((uint64_t)tl__u32(p) + 3) & ~3ull;
        uint64_t text = ((uint64_t)tl__u32(p + 4) + 3) & ~3ull;
        if (name + text > n - 12)
            return 0;
        uint32_t release = release_in(p + 12 + name, text);
        if (release < oldest)
            oldest = release;
        p += 12 + name + text;
        n -= 12 + name + text;
    }
    return oldest != UINT32_MAX ? oldest : 0;
}

static void judge_format(struct tl_cubin *c)
{
    const Elf64_Ehdr *h = &c->header;
    uint32_t low = h->e_flags & 0xff, high = h->e_flags >> 24;
    /* What is not linked has sections of other types; that comes first. */
    if (h->e_type != ET_EXEC) {
        c->reason = TL_CUBIN_REASON_NOT_LINKED;
        c->note = "";
        return;
    }
    if (h->e_ident[EI_OSABI] != OSABI_CUDA || h->e_ident[EI_ABIVERSION] != ABI_CUDA_13) {
        c->reason = TL_CUBIN_REASON_FORMAT;
        c->note = note(c, "ABI %u version %u; CUDA 13 has %u version %u", h->e_ident[EI_OSABI],
                       h->e_ident[EI_ABIVERSION], OSABI_CUDA, ABI_CUDA_13);
        return;
    }
    if (h->e_version != EV_CURRENT || low != (c->arch >= 100 ? 2u : 4u) || (high != 5 && high != 6))
        against_all(c, TL_CUBIN_REASON_FORMAT, note(c, "flags %#x", h->e_flags));
    if (!tl_cubin_knows_arch(c->arch))
        against_all(c, TL_CUBIN_REASON_ARCHITECTURE, note(c, "sm_%u", c->arch));
}

/* What relocations of data say: whether code can reach variables, and whether addresses of code
 * are filled in when it is loaded. */
static void judge_relocations(struct tl_cubin *c, const struct tl__cb_section *s)
{
    size_t each = s->h.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    if (s->h.sh_size % each != 0)
        against_all(c, TL_CUBIN_REASON_LAYOUT, note(c, "a cut relocation in %.60s", s->name.p));
    for (size_t at = 0; at + each <= s->h.sh_size; at += each) {
        uint32_t symbol = (uint32_t)(tl__u64(s->bytes + at + 8) >> 32);
        if (symbol >= c->n_symbols) {
            against_all(c, TL_CUBIN_REASON_LAYOUT, note(c, "a relocation against no symbol"));
            return;
        }
        const Elf64_Sym *to = &c->symbols[symbol];
        switch (c->sections[to->st_shndx].kind) {
        case TL__CB_NULL: /* a function of the driver's, such as vprintf */
            break;
        case TL__CB_DATA:
        case TL__CB_ZEROES:
            c->has_variables = true;
            break;
        case TL__CB_TEXT:
            against_all(
                c, TL_CUBIN_REASON_CODE_RELOCATION,
                note(c, "%.60s holds the address of %.60s", s->name.p, c->symbol_names[symbol].p));
            break;
        default:
            c->has_variables = true;
            break;
        }
    }
}

/* The module's own attributes are pairs of a symbol and a number. */
static void judge_info(struct tl_cubin *c, const struct tl__cb_section *s)
{
    const uint8_t *p = s->bytes;
    size_t n = s->h.sh_size;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a);) {
        bool is_pair = a.format == TL__CB_SIZED && a.number == 8 &&
                       (a.id == TL__CB_ID_REGISTERS || a.id == TL__CB_ID_FRAME_SIZE ||
                        a.id == TL__CB_ID_MIN_STACK || a.id == 0x23);
        bool is_plain = a.format == TL__CB_HALF && a.id == 0x5f;
        if (!is_pair && !is_plain)
            against_all(c, TL_CUBIN_REASON_ATTRIBUTE,
                        note(c, "attribute %#x of the module, format %u", a.id, a.format));
        else if (is_pair && tl__u32(a.value) >= c->n_symbols)
            against_all(c, TL_CUBIN_REASON_LAYOUT, note(c, "an attribute of no symbol"));
    }
    if (n != 0)
        against_all(c, TL_CUBIN_REASON_LAYOUT, note(c, "a cut attribute of the module"));
}

static void judge_module(struct tl_cubin *c)
{
    c->release = 0;
    judge_format(c);
    if (c->reason != TL_CUBIN_REASON_OK)
        return;
    for (uint32_t i = 0; i < c->n_sections; i++) {
        const struct tl__cb_section *s = &c->sections[i];
        if (s->kind == TL__CB_NOTE_TOOLS)
            c->release = oldest_release(s);
        else if (s->kind == TL__CB_CONSTANTS && s->h.sh_size > 0)
            c->has_variables = true;
        else if (s->kind == TL__CB_DATA_RELOCATIONS)
            judge_relocations(c, s);
        else if (s->kind == TL__CB_INFO)
            judge_info(c, s);
        else if (s->kind == TL__CB_CALLS && s->h.sh_size % 8 != 0)
            against_all(c, TL_CUBIN_REASON_LAYOUT, "a cut pair in the graph of calls");
        if (s->h.sh_addralign & (s->h.sh_addralign - 1) || s->h.sh_addralign > 4096)
            against_all(c, TL_CUBIN_REASON_LAYOUT, note(c, "alignment of %.60s", s->name.p));
    }
    if (c->info_section == TL__CB_NONE)
        against_all(c, TL_CUBIN_REASON_LAYOUT, "no .nv.info");
    if (c->names_section == c->symbol_names_section)
        against_all(c, TL_CUBIN_REASON_LAYOUT, "one table for all names");
    const char *disorder = tl__cb_disorder(c);
    if (disorder != NULL)
        against_all(c, TL_CUBIN_REASON_LAYOUT, disorder);
}

/* --- kernels ---------------------------------------------------------------------------------- */

static bool is_kernel(const struct tl_cubin *c, uint32_t i)
{
    const Elf64_Sym *s = &c->symbols[i];
    return ELF64_ST_TYPE(s->st_info) == STT_FUNC && (s->st_other & TL__CB_ENTRY) &&
           s->st_shndx != SHN_UNDEF && c->symbol_names[i].n > 0;
}

static int find_kernels(struct tl_cubin *c, uint32_t *of_section, struct tl_error *err)
{
    for (uint32_t i = 0; i < c->n_symbols; i++)
        c->n_kernels += is_kernel(c, i);
    c->kernels = tl_arena_zalloc(&c->arena, (c->n_kernels + 1u) * sizeof *c->kernels);
    if (c->kernels == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the kernels of a cubin");
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_symbols; i++) {
        if (!is_kernel(c, i))
            continue;
        struct tl__cb_kernel *k = &c->kernels[n];
        const Elf64_Sym *s = &c->symbols[i];
        k->symbol = i;
        k->entry = (struct tl_cubin_entry){
            .name = c->symbol_names[i], .note = "", .cluster = {1, 1, 1}};
        for (int j = 0; j < TL__CB_KINDS - TL__CB_TEXT; j++)
            k->section[j] = TL__CB_NONE;
        if (of_section[s->st_shndx] != TL__CB_NONE) {
            against(k, TL_CUBIN_REASON_SEVERAL_FUNCTIONS, "two kernels in a section");
            against(&c->kernels[of_section[s->st_shndx]], TL_CUBIN_REASON_SEVERAL_FUNCTIONS,
                    "two kernels in a section");
        }
        if (s->st_value != 0 || s->st_size > c->sections[s->st_shndx].h.sh_size)
            against(k, TL_CUBIN_REASON_SEVERAL_FUNCTIONS, "it does not begin its section");
        of_section[s->st_shndx] = n++;
    }
    return 0;
}

/* The section of code that a section belongs to; relocations of a kernel's constants name those. */
static uint32_t text_of(const struct tl_cubin *c, uint32_t i)
{
    const struct tl__cb_section *s = &c->sections[i];
    uint32_t to = s->h.sh_info;
    if (s->kind == TL__CB_TEXT)
        return i;
    if (s->kind == TL__CB_BANK2_RELOCATIONS && to < c->n_sections)
        to = c->sections[to].h.sh_info;
    return to;
}

/* Hands each section that belongs to a kernel to it.  From then on `of_section` knows bank 0. */
static void hand_out_sections(struct tl_cubin *c, uint32_t *of_section)
{
    for (uint32_t i = 0; i < c->n_sections; i++) {
        const struct tl__cb_section *s = &c->sections[i];
        if (s->kind < TL__CB_TEXT)
            continue;
        uint32_t text = text_of(c, i);
        uint32_t number = text < c->n_sections ? of_section[text] : TL__CB_NONE;
        if (number == TL__CB_NONE || c->sections[text].kind != TL__CB_TEXT) {
            against_all(c, TL_CUBIN_REASON_SEVERAL_FUNCTIONS,
                        note(c, "%.100s belongs to no kernel", s->name.p));
            continue;
        }
        struct tl__cb_kernel *k = &c->kernels[number];
        uint32_t *slot = &k->section[s->kind - TL__CB_TEXT];
        if (*slot != TL__CB_NONE || !tl_str_eq(s->owner, k->entry.name))
            against(k, TL_CUBIN_REASON_BROKEN, note(c, "section %u is not its own", i));
        *slot = i;
        if (s->kind == TL__CB_BANK0)
            of_section[i] = number;
    }
}

/* The other functions and labels in the kernels' sections. */
static void check_symbols(struct tl_cubin *c, const uint32_t *of_section)
{
    for (uint32_t i = 0; i < c->n_symbols; i++) {
        const Elf64_Sym *s = &c->symbols[i];
        const struct tl__cb_section *in = &c->sections[s->st_shndx];
        uint32_t number = of_section[s->st_shndx];
        int type = ELF64_ST_TYPE(s->st_info);
        if (type == STT_FUNC && in->kind != TL__CB_TEXT && in->kind != TL__CB_NULL)
            against_all(c, TL_CUBIN_REASON_LAYOUT,
                        note(c, "symbol %u, a function without code", i));
        if (number != TL__CB_NONE && in->kind == TL__CB_BANK0 && type == STT_SECTION) {
            c->kernels[number].bank0_symbol = i;
            c->kernels[number].n_bank0_symbols++;
        }
        if (number == TL__CB_NONE || in->kind != TL__CB_TEXT)
            continue;
        bool is_inside = s->st_value <= in->h.sh_size && s->st_size <= in->h.sh_size - s->st_value;
        bool is_known = type == STT_SECTION ? s->st_value == 0 : type == STT_FUNC;
        if (!is_inside || !is_known)
            against(&c->kernels[number], TL_CUBIN_REASON_BROKEN, note(c, "symbol %u", i));
    }
}

/* Registers stand in the module's list, by symbol. */
static int read_registers(struct tl_cubin *c, struct tl_error *err)
{
    uint32_t *of_symbol = tl_arena_zalloc(&c->arena, (c->n_symbols + 1u) * sizeof *of_symbol);
    if (of_symbol == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the registers of a cubin's kernels");
    if (c->info_section == TL__CB_NONE)
        return 0;
    const uint8_t *p = c->sections[c->info_section].bytes;
    size_t n = c->sections[c->info_section].h.sh_size;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a);)
        if (a.id == TL__CB_ID_REGISTERS && a.format == TL__CB_SIZED && a.number == 8 &&
            tl__u32(a.value) < c->n_symbols)
            of_symbol[tl__u32(a.value)] = tl__u32(a.value + 4);
    for (uint32_t i = 0; i < c->n_kernels; i++)
        c->kernels[i].entry.registers = of_symbol[c->kernels[i].symbol];
    return 0;
}

/* --- one kernel ------------------------------------------------------------------------------- */

/* What its list of attributes had, for the questions that follow. */
struct seen {
    bool has_bank, has_size, has_exits, has_full_exits, has_mbarriers, has_limit;
    uint32_t bank_bytes;
};

/* Notes one attribute of a kernel.  Those that it does not name say nothing that matters to a gate;
 * whether an attribute is known at all, and how long it may be, was asked before (kinds.c). */
static void take_attribute(struct tl__cb_kernel *k, struct seen *seen, const struct tl__cb_attr *a)
{
    switch (a->id) {
    case TL__CB_ID_BANK:
        seen->has_bank = true;
        k->bank0_symbol = tl__u32(a->value);
        k->bank0_base = tl__u16(a->value + 4);
        seen->bank_bytes = tl__u16(a->value + 6);
        break;
    case TL__CB_ID_PARAM_BYTES:
        seen->has_size = true;
        k->entry.param_bytes = a->number;
        break;
    case TL__CB_ID_PARAM_V2:
        k->has_param_v2 = true;
        k->entry.n_params++;
        break;
    case TL__CB_ID_PARAM:
        k->entry.n_params++;
        break;
    case TL__CB_ID_EXITS:
        seen->has_exits = a->number > 0;
        seen->has_full_exits = a->number > UINT16_MAX - 4;
        break;
    case TL__CB_ID_MAX_REGISTERS:
        seen->has_limit = true;
        break;
    case TL__CB_ID_MBARRIERS:
    case TL__CB_ID_MBARRIER_PLACES:
        seen->has_mbarriers = true;
        break;
    case TL__CB_ID_CTAID_Z:
        k->has_ctaid_z = true;
        break;
    case TL__CB_ID_STACK:
        k->has_stack = true;
        break;
    case TL__CB_ID_BARRIERS:
        k->has_barriers = true;
        break;
    case TL__CB_ID_CLUSTER:
        k->has_clusters = true;
        memcpy(k->entry.cluster, a->value, sizeof k->entry.cluster);
        break;
    default:
        break;
    }
}

static void read_attributes(struct tl_cubin *c, struct tl__cb_kernel *k, struct seen *seen)
{
    const struct tl__cb_section *info = &c->sections[tl__cb_of(k, TL__CB_KERNEL_INFO)];
    uint64_t code_bytes = c->sections[tl__cb_of(k, TL__CB_TEXT)].h.sh_size;
    const uint8_t *p = info->bytes;
    size_t n = info->h.sh_size;
    uint64_t once[4] = {0};
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a);) {
        const struct tl__cb_attr_kind *kind = tl__cb_attr_kind(a.id);
        bool may_repeat = kind->edit == TL__CB_PARAM;
        bool is_again = once[a.id / 64] >> (a.id % 64) & 1;
        once[a.id / 64] |= 1ull << (a.id % 64);
        if (kind->format != a.format)
            against(k, TL_CUBIN_REASON_ATTRIBUTE,
                    note(c, "attribute %#x, format %u", a.id, a.format));
        else if (kind->edit == TL__CB_FORBIDDEN)
            against(k, TL_CUBIN_REASON_CLUSTER_CONTROL, kind->name);
        else if ((is_again && !may_repeat) || !tl__cb_attr_is_whole(&a, code_bytes))
            against(k, TL_CUBIN_REASON_BROKEN, note(c, "attribute %#x (%s)", a.id, kind->name));
        else
            take_attribute(k, seen, &a);
    }
    if (n != 0)
        against(k, TL_CUBIN_REASON_BROKEN, "a cut attribute");
}

/* A kernel without parameters has a bank 0 that ends where they would begin, and no attribute that
 * says so; where those go that are added must be certain. */
static void judge_none(struct tl_cubin *c, struct tl__cb_kernel *k)
{
    uint32_t bank = tl__cb_of(k, TL__CB_BANK0);
    k->has_no_params = true;
    if (bank == TL__CB_NONE || k->n_bank0_symbols != 1 ||
        c->sections[bank].h.sh_size > UINT16_MAX) {
        against(k, TL_CUBIN_REASON_NO_PARAMETERS, "and there is no bank with a symbol for them");
        return;
    }
    k->bank0_base = (uint32_t)c->sections[bank].h.sh_size;
    if (!tl__cb_has_place_for_params(c, k))
        against(k, TL_CUBIN_REASON_NO_PARAMETERS, "and its attributes stand in another order");
}

static void judge_parameters(struct tl_cubin *c, struct tl__cb_kernel *k, const struct seen *seen)
{
    uint32_t bytes = k->entry.param_bytes;
    uint32_t end = tl__cb_gate_offset(bytes) + (uint32_t)sizeof(struct tl_cubin_args);
    k->entry.gate_offset = tl__cb_gate_offset(bytes);
    if (!seen->has_bank && !seen->has_size && k->entry.n_params == 0) {
        judge_none(c, k);
        return;
    }
    if ((!seen->has_bank && !seen->has_size) || k->entry.n_params == 0) {
        against(k, TL_CUBIN_REASON_NO_PARAMETERS, "");
        return;
    }
    uint32_t bank = tl__cb_of(k, TL__CB_BANK0);
    if (!seen->has_bank || !seen->has_size || seen->bank_bytes != bytes || bank == TL__CB_NONE ||
        c->sections[bank].h.sh_size != k->bank0_base + bytes || k->bank0_symbol >= c->n_symbols ||
        c->symbols[k->bank0_symbol].st_shndx != bank || k->entry.n_params >= UINT16_MAX)
        against(k, TL_CUBIN_REASON_BROKEN, "the size of its parameters");
    if (end > MAX_PARAM_BYTES ||
        (c->arch < 90 && bytes <= SMALL_PARAM_BYTES && end > SMALL_PARAM_BYTES))
        against(k, TL_CUBIN_REASON_PARAMETER_SPACE, note(c, "it takes %u bytes", bytes));
}

static bool is_empty(const struct tl_cubin *c, uint32_t section)
{
    return section == TL__CB_NONE || c->sections[section].h.sh_size == 0;
}

static void judge_kernel(struct tl_cubin *c, struct tl__cb_kernel *k)
{
    struct seen seen = {0};
    if (tl__cb_of(k, TL__CB_TEXT) == TL__CB_NONE ||
        tl__cb_of(k, TL__CB_KERNEL_INFO) == TL__CB_NONE) {
        against(k, TL_CUBIN_REASON_BROKEN, "it has no code or no attributes");
        return;
    }
    const struct tl__cb_section *text = &c->sections[tl__cb_of(k, TL__CB_TEXT)];
    read_attributes(c, k, &seen);
    if (!is_empty(c, tl__cb_of(k, TL__CB_TEXT_RELOCATIONS)) ||
        !is_empty(c, tl__cb_of(k, TL__CB_BANK2_RELOCATIONS)))
        against(k, TL_CUBIN_REASON_CODE_RELOCATION, "");
    if (c->arch >= 100 && seen.has_mbarriers && c->release < 1302)
        against(k, TL_CUBIN_REASON_CLUSTER_CONTROL,
                "it has mbarriers, and compilers before CUDA 13.2 do not say what they are for");
    if (!seen.has_exits)
        against(k, TL_CUBIN_REASON_NO_EXITS, "");
    if (seen.has_full_exits)
        against(k, TL_CUBIN_REASON_BROKEN, "its list of exits has no room for another");
    judge_parameters(c, k, &seen);
    for (int i = 0; i < 3; i++)
        if (k->entry.cluster[i] == 0 || k->entry.cluster[i] > 1024)
            against(k, TL_CUBIN_REASON_BROKEN, "the size of its clusters");
    if (k->entry.registers == 0 || k->entry.registers > 255 || !seen.has_limit ||
        (text->h.sh_info & 0xffffff) != k->symbol || text->h.sh_size % 128 != 0 ||
        text->h.sh_size > INT32_MAX / 2 || text->h.sh_addralign < 16)
        against(k, TL_CUBIN_REASON_BROKEN, "what is said of its code");
}

int tl__cb_judge(struct tl_cubin *c, struct tl_error *err)
{
    uint32_t *of_section = tl_arena_alloc(&c->arena, (c->n_sections + 1u) * sizeof *of_section);
    if (of_section == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for the sections of a cubin");
    for (uint32_t i = 0; i < c->n_sections; i++)
        of_section[i] = TL__CB_NONE;
    judge_module(c);
    int rc = find_kernels(c, of_section, err);
    if (rc == 0)
        rc = read_registers(c, err);
    if (rc < 0)
        return rc;
    if (c->reason == TL_CUBIN_REASON_OK)
        hand_out_sections(c, of_section);
    if (c->reason == TL_CUBIN_REASON_OK)
        check_symbols(c, of_section);
    for (uint32_t i = 0; i < c->n_kernels; i++) {
        struct tl__cb_kernel *k = &c->kernels[i];
        if (c->reason == TL_CUBIN_REASON_OK)
            judge_kernel(c, k);
        else
            against(k, c->reason, c->note);
        k->entry.wants_twin = c->has_variables && k->entry.reason == TL_CUBIN_REASON_OK;
    }
    return 0;
}
