/* A kernel's tables when a piece of code stands in front of it.  The edits are those of the table in
 * docs/gate.md; each can be left out by tests. */
#include "cubin/internal.h"
#include "tally/array.h"

#include <errno.h>

/* Most bytes by which a list of attributes grows: an exit, a parameter, and three attributes that
 * were missing. */
enum { MOST_GROWTH = 64 };
/* In an attribute of a parameter: in every bank, of that many bytes. */
#define PARAM_BITS(bytes) (0x1f000u | (uint32_t)(bytes) << 18)

/* --- the list of attributes ------------------------------------------------------------------- */

struct list {
    struct tl__cb_attr *a;
    uint32_t n;
};

static void insert(struct list *l, uint32_t at, struct tl__cb_attr a)
{
    memmove(&l->a[at + 1], &l->a[at], (l->n - at) * sizeof a);
    l->a[at] = a;
    l->n++;
}

/* Where the first attribute of that number stands, or the end. */
static uint32_t place_of(const struct list *l, uint8_t id)
{
    uint32_t i = 0;
    while (i < l->n && l->a[i].id != id)
        i++;
    return i;
}

static bool read_list(struct tl__cb_work *w, const struct tl__cb_section *info, struct list *out)
{
    const uint8_t *p = info->bytes;
    size_t n = info->h.sh_size;
    uint32_t count = 0;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a); count++) {
        if (!TL_ARRAY_FIT(w->attrs, w->cap_attrs, count + 5u))
            return false;
        w->attrs[count] = a;
    }
    *out = (struct list){w->attrs, count};
    return true;
}

/* Our parameter: before the others, which stand in descending order. */
static void add_param(const struct tl__cb_kernel *k, struct list *l, uint8_t value[12])
{
    uint32_t offset = k->entry.gate_offset, bytes = (uint32_t)sizeof(struct tl_cubin_args);
    bool is_v2 = k->has_param_v2 || offset + bytes > 4096;
    uint32_t first = 0;
    while (first < l->n && l->a[first].id != TL__CB_ID_PARAM &&
           l->a[first].id != TL__CB_ID_PARAM_V2)
        first++;
    memset(value, 0, 12);
    tl__cb_put16(value + 4, (uint16_t)k->entry.n_params);
    tl__cb_put16(value + 6, (uint16_t)offset);
    if (is_v2)
        tl__cb_put16(value + 8, (uint16_t)bytes);
    else
        tl__cb_put32(value + 8, PARAM_BITS(bytes));
    insert(l, first,
           (struct tl__cb_attr){TL__CB_SIZED, is_v2 ? TL__CB_ID_PARAM_V2 : TL__CB_ID_PARAM, 12,
                                value});
}

/* What the gate uses and the kernel did not. */
static void add_missing(const struct tl__cb_work *w, const struct tl__cb_kernel *k,
                        const struct tl__cb_piece *piece, struct list *l)
{
    static const uint8_t zero[4];
    if (!k->has_barriers && tl__cb_does(w, TL__CB_EDIT_BARRIERS))
        insert(l, place_of(l, TL__CB_ID_MAX_REGISTERS) + 1,
               (struct tl__cb_attr){TL__CB_BYTE, TL__CB_ID_BARRIERS, 1, NULL});
    if (piece->has_ctaid_z && !k->has_ctaid_z && tl__cb_does(w, TL__CB_EDIT_CTAID_Z))
        insert(l, place_of(l, TL__CB_ID_EXITS) + 1,
               (struct tl__cb_attr){TL__CB_ALONE, TL__CB_ID_CTAID_Z, 0, NULL});
    if (piece->has_stack && !k->has_stack && tl__cb_does(w, TL__CB_EDIT_STACK)) {
        static const uint8_t before[] = {TL__CB_ID_EXITS, TL__CB_ID_CTAID_Z, TL__CB_ID_MAX_THREADS,
                                         TL__CB_ID_REQUIRED_THREADS};
        uint32_t at = 0;
        for (size_t i = 0; i < sizeof before; i++) {
            uint32_t place = place_of(l, before[i]);
            if (place < l->n && place + 1 > at)
                at = place + 1;
        }
        insert(l, at, (struct tl__cb_attr){TL__CB_SIZED, TL__CB_ID_STACK, 4, zero});
    }
}

/* --- one attribute ---------------------------------------------------------------------------- */

static void shift(uint8_t *p, uint32_t by)
{
    tl__cb_put32(p, tl__cb_u32(p) + by);
}

static void shift_each(uint8_t *p, uint32_t n, uint32_t step, uint32_t at, uint32_t by)
{
    for (uint32_t i = 0; i < n; i += step)
        shift(p + i + at, by);
}

static void shift_branches(uint8_t *p, uint32_t n, uint32_t by)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t targets = tl__cb_u32(p + i + 8);
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
    return to + 4 + added + a->number;
}

/* --- the kernel ------------------------------------------------------------------------------- */

static int edit_attributes(struct tl__cb_work *w, const struct tl__cb_kernel *k,
                           const struct tl__cb_piece *piece, struct tl__cb_out *info,
                           struct tl_error *err)
{
    const struct tl__cb_section *read = &w->c->sections[tl__cb_of(k, TL__CB_KERNEL_INFO)];
    uint8_t param[12];
    struct list l;
    uint8_t *bytes = tl_arena_alloc(&w->arena, read->h.sh_size + MOST_GROWTH);
    if (bytes == NULL || !read_list(w, read, &l))
        return tl_error_set(err, -ENOMEM, "no memory for the attributes of a kernel");
    if (tl__cb_does(w, TL__CB_EDIT_PARAM))
        add_param(k, &l, param);
    add_missing(w, k, piece, &l);
    uint8_t *end = bytes;
    for (uint32_t i = 0; i < l.n; i++)
        end = put_attr(w, k, piece, &l.a[i], end);
    info->bytes = bytes;
    info->n = (size_t)(end - bytes);
    return 0;
}

int tl__cb_edit_kernel(struct tl__cb_work *w, const struct tl__cb_kernel *k,
                       const struct tl__cb_piece *piece, struct tl__cb_out *text,
                       struct tl__cb_out *info, struct tl__cb_out *bank0, struct tl_error *err)
{
    text->front = piece->code;
    text->n_front = piece->code_bytes;
    uint32_t registers = text->h.sh_info >> 24;
    if (registers != 0 && registers < piece->registers &&
        tl__cb_does(w, TL__CB_EDIT_CODE_REGISTERS))
        text->h.sh_info = (text->h.sh_info & 0xffffff) | piece->registers << 24;
    if (tl__cb_does(w, TL__CB_EDIT_BANK0))
        bank0->n_zeroes = k->entry.gate_offset + (uint32_t)sizeof(struct tl_cubin_args) -
                          k->entry.param_bytes;
    return edit_attributes(w, k, piece, info, err);
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
