/* From compiled PTX to the piece of code that is put in front of kernels.
 *
 * Where the gate ends is found without decoding: the source has it twice, with `pmevent 1` and with
 * `pmevent 2` before its return, and nothing else differs.  So the one slot of 16 bytes that
 * differs is where the kernel's code begins later.  What has been assumed of compilers is checked
 * here, and a compiler that does otherwise is an error, not a guess. */
#include "cubin/internal.h"

#include <errno.h>
#include <stdio.h>

enum { MOST_REGISTERS = 40, MOST_BYTES = 8192, LEAST_NOPS = 4 };

static int wrong(struct tl_error *err, const char *what)
{
    (void)tl_error_set(err, -EINVAL,
                       "the compiler's gate is not as it must be: %s; kernels without PTX run "
                       "whole with this compiler",
                       what);
    return -EINVAL;
}

/* A compiled entry. */
struct compiled {
    const struct tl__cb_kernel *k;
    const struct tl__cb_section *text;
    const uint8_t *exits;
    uint32_t n_exits;
    uint32_t barriers, last_param_offset;
};

static const struct tl__cb_kernel *kernel_named(const struct tl_cubin *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_kernels; i++)
        if (tl_str_is(c->kernels[i].entry.name, name))
            return &c->kernels[i];
    return NULL;
}

/* Takes from the attributes what the piece needs; offsets into the code other than exits would have
 * to be handed over, and there must be none. */
static bool take_attributes(const struct tl_cubin *c, struct compiled *out)
{
    const struct tl__cb_section *info = &c->sections[tl__cb_of(out->k, TL__CB_KERNEL_INFO)];
    const uint8_t *p = info->bytes;
    size_t n = info->h.sh_size;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a);) {
        switch ((enum tl__cb_edit)tl__cb_attr_kind(a.id)->edit) {
        case TL__CB_EXITS:
            out->exits = a.value;
            out->n_exits = a.number / 4u;
            break;
        case TL__CB_BARRIERS:
            out->barriers = a.number;
            break;
        case TL__CB_PARAM:
            if (tl__u16(a.value + 6) > out->last_param_offset)
                out->last_param_offset = tl__u16(a.value + 6);
            break;
        case TL__CB_KEEP:
            if (a.id == TL__CB_ID_STACK && (a.number != 4 || tl__u32(a.value) != 0))
                return false;
            break;
        case TL__CB_BANK:
        case TL__CB_SIZE:
            break;
        default:
            return false;
        }
    }
    return true;
}

static int take_entry(const struct tl_cubin *c, int mark, uint32_t number, struct compiled *out,
                      struct tl_error *err)
{
    char suffix[TL__CB_SOURCE_NAME], name[sizeof suffix + 8];
    tl__cb_source_name(suffix, mark, number);
    snprintf(name, sizeof name, "tl_gate%s", suffix);
    *out = (struct compiled){.k = kernel_named(c, name)};
    if (out->k == NULL)
        return wrong(err, "an entry is missing");
    /* There need not be room for a second gate behind this one. */
    if (out->k->entry.reason != TL_CUBIN_REASON_OK &&
        out->k->entry.reason != TL_CUBIN_REASON_PARAMETER_SPACE) {
        (void)tl_error_set(err, -EINVAL, "the compiler's gate cannot be used: %s %s",
                           tl_cubin_reason_text(out->k->entry.reason), out->k->entry.note);
        return -EINVAL;
    }
    out->text = &c->sections[tl__cb_of(out->k, TL__CB_TEXT)];
    if (tl__cb_of(out->k, TL__CB_SHARED) != TL__CB_NONE)
        return wrong(err, "it has shared memory");
    if (tl__cb_of(out->k, TL__CB_BANK2) != TL__CB_NONE)
        return wrong(err, "it has constants");
    if (!take_attributes(c, out))
        return wrong(err, "it has attributes that point into its code");
    return 0;
}

/* No frames on the stack, and no variables. */
static int check_module(const struct tl_cubin *c, uint32_t arch, struct tl_error *err)
{
    if (c->arch != arch)
        return tl_error_set(err, -EINVAL, "the compiler made code for sm_%u instead of sm_%u",
                            c->arch, arch);
    if (c->info_section == TL__CB_NONE)
        return wrong(err, "it has no list of registers");
    const uint8_t *p = c->sections[c->info_section].bytes;
    size_t n = c->sections[c->info_section].h.sh_size;
    for (struct tl__cb_attr a; tl__cb_next_attr(&p, &n, &a);)
        if (a.format == TL__CB_SIZED && a.number == 8 && a.id != TL__CB_ID_REGISTERS &&
            tl__u32(a.value + 4) != 0)
            return wrong(err, "it uses the stack");
    for (uint32_t i = 0; i < c->n_sections; i++) {
        enum tl__cb_kind kind = c->sections[i].kind;
        if (kind == TL__CB_CONSTANTS || kind == TL__CB_ADDRESSES || kind == TL__CB_DATA ||
            kind == TL__CB_ZEROES)
            return wrong(err, "it has variables");
    }
    return 0;
}

/* What fills code up to its alignment: the end of an entry that does nothing. */
static const uint8_t *find_nop(const struct tl_cubin *c)
{
    const struct tl__cb_kernel *k = kernel_named(c, "tl_nothing");
    if (k == NULL || tl__cb_of(k, TL__CB_TEXT) == TL__CB_NONE)
        return NULL;
    const struct tl__cb_section *text = &c->sections[tl__cb_of(k, TL__CB_TEXT)];
    if (text->h.sh_size < (LEAST_NOPS + 1) * TL__CB_SLOT)
        return NULL;
    const uint8_t *last = text->bytes + text->h.sh_size - TL__CB_SLOT;
    for (int i = 1; i < LEAST_NOPS; i++)
        if (memcmp(last, last - (ptrdiff_t)i * TL__CB_SLOT, TL__CB_SLOT) != 0)
            return NULL;
    return last;
}

/* The one slot that differs. */
static int find_cut(const struct compiled *a, const struct compiled *b, uint32_t *cut,
                    struct tl_error *err)
{
    uint32_t n_different = 0;
    if (a->text->h.sh_size != b->text->h.sh_size || a->text->h.sh_size > MOST_BYTES)
        return wrong(err, "its two forms are not of one size, or too large");
    for (uint32_t at = 0; at < a->text->h.sh_size; at += TL__CB_SLOT) {
        if (memcmp(a->text->bytes + at, b->text->bytes + at, TL__CB_SLOT) == 0)
            continue;
        *cut = at;
        n_different++;
    }
    if (n_different != 1 || *cut < TL__CB_SLOT)
        return wrong(err, "its two forms do not differ in exactly one place");
    return 0;
}

static int check_entry(const struct compiled *e, const struct tl__cb_want *want, uint32_t cut,
                       struct tl_error *err)
{
    const struct tl_cubin_entry *entry = &e->k->entry;
    uint32_t end = want->offset + (uint32_t)sizeof(struct tl_cubin_args);
    if (e->n_exits != 2 || tl__u32(e->exits) != cut - TL__CB_SLOT ||
        tl__u32(e->exits + 4) != cut + TL__CB_SLOT)
        return wrong(err, "its exits are not right before and behind the cut");
    if (e->barriers != 1)
        return wrong(err, "it does not use exactly one barrier");
    if (entry->registers > MOST_REGISTERS)
        return wrong(err, "it uses too many registers");
    if (entry->n_params != (want->offset > 0 ? 2u : 1u) || entry->param_bytes != end ||
        e->last_param_offset != want->offset)
        return wrong(err, "its parameters are not where they were asked for");
    return 0;
}

/* The code up to the cut, filled up so that the kernel behind it is aligned as it was. */
static int copy_code(struct tl__cb_piece *out, struct tl_arena *arena, const uint8_t *code,
                     uint32_t cut, const uint8_t *nop, struct tl_error *err)
{
    out->code_bytes = (cut + TL__CB_CODE_ALIGN - 1) / TL__CB_CODE_ALIGN * TL__CB_CODE_ALIGN;
    uint8_t *copy = tl_arena_alloc(arena, out->code_bytes);
    if (copy == NULL)
        return tl_error_set(err, -ENOMEM, "no memory for a gate");
    memcpy(copy, code, cut);
    for (uint32_t at = cut; at < out->code_bytes; at += TL__CB_SLOT)
        memcpy(copy + at, nop, TL__CB_SLOT);
    out->code = copy;
    return 0;
}

static int cut_piece(struct tl__cb_piece *piece, uint32_t number, struct tl_arena *arena,
                     const struct tl_cubin *c, const uint8_t *nop, struct tl_error *err)
{
    const struct tl__cb_want want = piece->want;
    struct compiled a, b;
    uint32_t cut = 0;
    int rc = take_entry(c, 1, number, &a, err);
    if (rc == 0)
        rc = take_entry(c, 2, number, &b, err);
    if (rc == 0)
        rc = find_cut(&a, &b, &cut, err);
    if (rc == 0)
        rc = check_entry(&a, &want, cut, err);
    if (rc == 0)
        rc = check_entry(&b, &want, cut, err);
    if (rc == 0 && nop == NULL)
        rc = wrong(err, "what fills up code cannot be told");
    if (rc < 0)
        return rc;
    *piece = (struct tl__cb_piece){
        .want = want,
        .base = a.k->bank0_base,
        .registers = a.k->entry.registers,
        .exit = cut - TL__CB_SLOT,
        .has_ctaid_z = a.k->has_ctaid_z,
        .has_stack = a.k->has_stack,
    };
    return copy_code(piece, arena, a.text->bytes, cut, nop, err);
}

int tl__cb_pieces_cut(struct tl__cb_piece *const *pieces, uint32_t n_pieces, struct tl_arena *arena,
                      const void *cubin, size_t n, struct tl_error *err)
{
    struct tl_cubin *c;
    int rc = tl_cubin_open(&c, cubin, n, err);
    if (rc < 0)
        return rc;
    const uint8_t *nop = find_nop(c);
    rc = check_module(c, pieces[0]->want.arch, err);
    for (uint32_t i = 0; i < n_pieces && rc == 0; i++)
        rc = cut_piece(pieces[i], i, arena, c, nop, err);
    tl_cubin_close(c);
    return rc;
}
