/* A kernel's tables when a piece of code stands in front of it.  The edits are those of the table
 * in docs/gate.md; each can be left out by tests. */
#include "cubin/work.h"

/* In an attribute of a parameter: in every bank, of that many bytes. */
#define PARAM_BITS(bytes) (0x1f000u | (uint32_t)(bytes) << 18)
enum { PARAM_VALUE = 12, STACK_VALUE = 4, BANK_VALUE = 8 };

/* --- one attribute ---------------------------------------------------------------------------- */

static void shift(uint8_t *p, uint32_t by)
{
    tl__cb_put32(p, tl__u32(p) + by);
}

static void shift_each(uint8_t *p, uint32_t n, uint32_t step, uint32_t at, uint32_t by)
{
    for (uint32_t i = 0; i < n; i += step)
        shift(p + i + at, by);
}

static void shift_branches(uint8_t *p, uint32_t n, uint32_t by)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t targets = tl__u32(p + i + 8);
        shift(p + i, by);
        shift_each(p + i + 12, 4 * targets, 4, 0, by);
        i += 12 + 4 * targets;
    }
}

/* Edits a value in place; `k` was judged, so it has the form that is expected. */
static void edit_value(const struct tl__cb_work *w, const struct tl__cb_kernel *k, uint8_t id,
                       uint8_t *value, uint32_t n, uint32_t by)
{
    switch ((enum tl__cb_edit)tl__cb_attr_kind(id)->edit) {
    case TL__CB_EXITS:
        if (tl__cb_does(w, TL__CB_EDIT_EXITS_MOVED))
            shift_each(value, n, 4, 0, by);
        break;
    case TL__CB_OFFSETS:
        if (tl__cb_does(w, TL__CB_EDIT_OFFSETS))
            shift_each(value, n, 4, 0, by);
        break;
    case TL__CB_RECORDS:
        if (tl__cb_does(w, TL__CB_EDIT_RECORDS))
            shift_each(value, n, 16, 0, by);
        break;
    case TL__CB_FIRST_OF_PAIR:
        if (tl__cb_does(w, TL__CB_EDIT_PAIRS))
            shift_each(value, n, 8, 0, by);
        break;
    case TL__CB_NOTED_PAIR:
        if (tl__cb_does(w, TL__CB_EDIT_NOTED_PAIRS))
            shift_each(value, n, 8, 4, by);
        break;
    case TL__CB_BRANCHES:
        if (tl__cb_does(w, TL__CB_EDIT_BRANCHES))
            shift_branches(value, n, by);
        break;
    case TL__CB_BANK:
        if (tl__cb_does(w, TL__CB_EDIT_BANK))
            tl__cb_put16(value + 6,
                         (uint16_t)(k->entry.gate_offset + sizeof(struct tl_cubin_args)));
        break;
    default:
        break;
    }
}

/* The number of an attribute that has no value behind it. */
static uint16_t edit_number(const struct tl__cb_work *w, const struct tl__cb_kernel *k,
                            const struct tl__cb_attr *a)
{
    if (a->id == TL__CB_ID_PARAM_BYTES && tl__cb_does(w, TL__CB_EDIT_SIZE))
        return (uint16_t)(k->entry.gate_offset + sizeof(struct tl_cubin_args));
    if (a->id == TL__CB_ID_BARRIERS && a->number == 0 && tl__cb_does(w, TL__CB_EDIT_BARRIERS))
        return 1;
    return a->number;
}

static uint8_t *put_attr(const struct tl__cb_work *w, const struct tl__cb_kernel *k,
                         const struct tl__cb_piece *piece, const struct tl__cb_attr *a, uint8_t *to)
{
    to[0] = a->format;
    to[1] = a->id;
    if (a->format != TL__CB_SIZED) {
        tl__cb_put16(to + 2, edit_number(w, k, a));
        return to + 4;
    }
    uint32_t added = 0;
    if (a->id == TL__CB_ID_EXITS && tl__cb_does(w, TL__CB_EDIT_EXITS_ADDED)) {
        tl__cb_put32(to + 4, piece->exit);
        added = 4;
    }
    tl__cb_put16(to + 2, (uint16_t)(a->number + added));
    memcpy(to + 4 + added, a->value, a->number);
    edit_value(w, k, a->id, to + 4 + added, a->number, piece->code_bytes);
    if (a->id == TL__CB_ID_BANK && w->is_twin)
        tl__cb_put32(to + 4, tl__cb_new_symbol(w, tl__u32(a->value)));
    return to + 4 + added + a->number;
}

/* --- attributes that are added ---------------------------------------------------------------- */

/* What the gate uses and the kernel did not say. */
struct missing {
    bool has_param, has_barriers, has_ctaid_z, has_stack;
    bool has_bank, has_size; /* of parameters, if the kernel has none */
};

static struct missing find_missing(const struct tl__cb_work *w, const struct tl__cb_kernel *k,
                                   const struct tl__cb_piece *piece)
{
    return (struct missing){
        .has_param = tl__cb_does(w, TL__CB_EDIT_PARAM),
        .has_barriers = !k->has_barriers && tl__cb_does(w, TL__CB_EDIT_BARRIERS),
        .has_ctaid_z = piece->has_ctaid_z && !k->has_ctaid_z && tl__cb_does(w, TL__CB_EDIT_CTAID_Z),
        .has_stack = piece->has_stack && !k->has_stack && tl__cb_does(w, TL__CB_EDIT_STACK),
        .has_bank = k->has_no_params && tl__cb_does(w, TL__CB_EDIT_BANK),
        .has_size = k->has_no_params && tl__cb_does(w, TL__CB_EDIT_SIZE),
    };
}

static uint32_t growth(const struct tl__cb_work *w, const struct missing *m)
{
    return (m->has_param ? 4u + PARAM_VALUE : 0) + (m->has_barriers ? 4u : 0) +
           (m->has_ctaid_z ? 4u : 0) + (m->has_stack ? 4u + STACK_VALUE : 0) +
           (m->has_bank ? 4u + BANK_VALUE : 0) + (m->has_size ? 4u : 0) +
           (tl__cb_does(w, TL__CB_EDIT_EXITS_ADDED) ? 4u : 0);
}

static uint8_t *put_head(uint8_t *to, uint8_t format, uint8_t id, uint16_t number)
{
    to[0] = format;
    to[1] = id;
    tl__cb_put16(to + 2, number);
    return to + 4;
}

static uint8_t *put_param(const struct tl__cb_kernel *k, uint8_t *to)
{
    uint32_t offset = k->entry.gate_offset, bytes = (uint32_t)sizeof(struct tl_cubin_args);
    bool is_v2 = k->has_param_v2 || offset + bytes > 4096;
    to = put_head(to, TL__CB_SIZED, is_v2 ? TL__CB_ID_PARAM_V2 : TL__CB_ID_PARAM, PARAM_VALUE);
    memset(to, 0, PARAM_VALUE);
    tl__cb_put16(to + 4, (uint16_t)k->entry.n_params);
    tl__cb_put16(to + 6, (uint16_t)offset);
    if (is_v2)
        tl__cb_put16(to + 8, (uint16_t)bytes);
    else
        tl__cb_put32(to + 8, PARAM_BITS(bytes));
    return to + PARAM_VALUE;
}

/* The bank of parameters, for a kernel that had none. */
static uint8_t *put_bank(const struct tl__cb_work *w, const struct tl__cb_kernel *k, uint8_t *to)
{
    uint32_t symbol = k->bank0_symbol;
    to = put_head(to, TL__CB_SIZED, TL__CB_ID_BANK, BANK_VALUE);
    tl__cb_put32(to, w->is_twin ? tl__cb_new_symbol(w, symbol) : symbol);
    tl__cb_put16(to + 4, (uint16_t)k->bank0_base);
    tl__cb_put16(to + 6, (uint16_t)sizeof(struct tl_cubin_args));
    return to + BANK_VALUE;
}

static uint8_t *put_size(uint8_t *to)
{
    return put_head(to, TL__CB_HALF, TL__CB_ID_PARAM_BYTES, (uint16_t)sizeof(struct tl_cubin_args));
}

/* Where ours go among the kernel's own, by their numbers in its list. */
struct places {
    uint32_t param;                /* before the first: they stand in descending order */
    uint32_t ctaid_z, stack, bank; /* behind */
};

/* Compilers write them in this order: exits, branches, the grid's z, sizes of blocks, stack; from
 * sm_90 on size and bank of the parameters, which stand before the parameters on older ones. */
enum { BANK_IS_LATE = 90 };

static bool is_before_ctaid_z(uint8_t id)
{
    return id == TL__CB_ID_EXITS || id == TL__CB_ID_BRANCHES;
}

static bool is_before_stack(uint8_t id)
{
    return is_before_ctaid_z(id) || id == TL__CB_ID_CTAID_Z || id == TL__CB_ID_MAX_THREADS ||
           id == TL__CB_ID_REQUIRED_THREADS;
}

/* What follows the parameters, or stands in their place if there are none. */
static uint8_t next_to_params(const struct tl_cubin *c)
{
    return c->arch >= BANK_IS_LATE ? TL__CB_ID_SPARSE_MASK : TL__CB_ID_MAX_REGISTERS;
}

static struct places find_places(const struct tl_cubin *c, const struct tl__cb_section *info)
{
    struct places out = {.param = TL__CB_NONE};
    const uint8_t *p = info->bytes;
    size_t n = info->h.sh_size;
    uint32_t i = 0, next = TL__CB_NONE;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a); i++) {
        if (out.param == TL__CB_NONE && (a.id == TL__CB_ID_PARAM || a.id == TL__CB_ID_PARAM_V2))
            out.param = i;
        if (a.id == next_to_params(c))
            next = i;
        if (is_before_ctaid_z(a.id))
            out.ctaid_z = i;
        if (is_before_stack(a.id))
            out.stack = i;
        if (is_before_stack(a.id) || a.id == TL__CB_ID_STACK)
            out.bank = i;
    }
    if (out.param == TL__CB_NONE)
        out.param = next;
    return out;
}

bool tl__cb_has_place_for_params(const struct tl_cubin *c, const struct tl__cb_kernel *k)
{
    const struct tl__cb_section *info = &c->sections[tl__cb_of(k, TL__CB_KERNEL_INFO)];
    struct places places = find_places(c, info);
    const uint8_t *p = info->bytes;
    size_t n = info->h.sh_size;
    uint32_t i = 0;
    bool is_behind = false; /* what stands before parameters was the last one */
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a); i++) {
        if (i == places.param)
            return is_behind && places.bank > i;
        is_behind = a.id == TL__CB_ID_API_VERSION || a.id == TL__CB_ID_WORKAROUND;
    }
    return false;
}

/* --- the kernel ------------------------------------------------------------------------------- */

/* What goes before an attribute, and what behind it. */
static uint8_t *put_before(const struct tl__cb_work *w, const struct tl__cb_kernel *k,
                           const struct missing *missing, uint8_t *to)
{
    if (missing->has_bank && w->c->arch < BANK_IS_LATE)
        to = put_bank(w, k, to);
    if (missing->has_size && w->c->arch < BANK_IS_LATE)
        to = put_size(to);
    return missing->has_param ? put_param(k, to) : to;
}

static uint8_t *put_behind(const struct tl__cb_work *w, const struct tl__cb_kernel *k,
                           const struct missing *missing, const struct places *places, uint32_t i,
                           uint8_t *to)
{
    if (i == places->ctaid_z && missing->has_ctaid_z)
        to = put_head(to, TL__CB_ALONE, TL__CB_ID_CTAID_Z, 0);
    if (i == places->stack && missing->has_stack) {
        to = put_head(to, TL__CB_SIZED, TL__CB_ID_STACK, STACK_VALUE);
        tl__cb_put32(to, 0);
        to += STACK_VALUE;
    }
    if (i != places->bank || w->c->arch < BANK_IS_LATE)
        return to;
    if (missing->has_size)
        to = put_size(to);
    return missing->has_bank ? put_bank(w, k, to) : to;
}

void tl__cb_put_attributes(const struct tl__cb_work *w, const struct tl__cb_kernel *k,
                           const struct tl__cb_piece *piece, uint8_t *to)
{
    const struct tl__cb_section *info = &w->c->sections[tl__cb_of(k, TL__CB_KERNEL_INFO)];
    struct missing missing = find_missing(w, k, piece);
    struct places places = find_places(w->c, info);
    const uint8_t *p = info->bytes;
    size_t n = info->h.sh_size;
    uint32_t i = 0;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a); i++) {
        if (i == places.param)
            to = put_before(w, k, &missing, to);
        to = put_attr(w, k, piece, &a, to);
        if (a.id == TL__CB_ID_MAX_REGISTERS && missing.has_barriers)
            to = put_head(to, TL__CB_BYTE, TL__CB_ID_BARRIERS, 1);
        to = put_behind(w, k, &missing, &places, i, to);
    }
}

void tl__cb_edit_headers(const struct tl__cb_work *w, const struct tl__cb_kernel *k,
                         const struct tl__cb_piece *piece, struct tl__cb_out *text,
                         struct tl__cb_out *info, struct tl__cb_out *bank0)
{
    struct missing missing = find_missing(w, k, piece);
    uint32_t registers = text->h.sh_info >> 24;
    text->h.sh_size += piece->code_bytes;
    if (registers != 0 && registers < piece->registers &&
        tl__cb_does(w, TL__CB_EDIT_CODE_REGISTERS))
        text->h.sh_info = (text->h.sh_info & 0xffffff) | piece->registers << 24;
    info->h.sh_size += growth(w, &missing);
    if (tl__cb_does(w, TL__CB_EDIT_BANK0))
        bank0->h.sh_size += k->entry.gate_offset + (uint32_t)sizeof(struct tl_cubin_args) -
                            k->entry.param_bytes;
}

void tl__cb_edit_symbol(const struct tl__cb_work *w, const struct tl__cb_piece *piece,
                        Elf64_Sym *symbol, bool is_kernel)
{
    if (ELF64_ST_TYPE(symbol->st_info) == STT_SECTION)
        return;
    if (is_kernel && tl__cb_does(w, TL__CB_EDIT_KERNEL_SYMBOL))
        symbol->st_size += piece->code_bytes;
    else if (!is_kernel && tl__cb_does(w, TL__CB_EDIT_OTHER_SYMBOLS))
        symbol->st_value += piece->code_bytes;
}

uint32_t tl__cb_edit_registers(const struct tl__cb_work *w, const struct tl__cb_piece *piece,
                               uint32_t registers)
{
    return registers < piece->registers && tl__cb_does(w, TL__CB_EDIT_REGISTERS) ? piece->registers
                                                                                 : registers;
}
