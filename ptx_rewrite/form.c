/* Opcodes and modifiers as numbers: the word tables and the questions that passes ask of a form. */
#include "ptx_rewrite/form.h"

#include <string.h>

enum use { D, N, C, S };

struct word {
    const char *text;
    uint8_t use;
};

/* clang-format off */
static const struct word opcodes[TL_OP_count] = {
    [TL_OP_unknown] = {"", N},
#define OPCODE(name, use) [TL_OP_##name] = {#name, use},
    TL_PTX_OPCODES(OPCODE)
#undef OPCODE
};

static const char *const modifiers[TL_MOD_count] = {
    [TL_MOD_other] = "",
#define MODIFIER(name) [TL_MOD_##name] = #name,
    TL_PTX_MODIFIERS(MODIFIER)
#undef MODIFIER
};

static const char *const sregs[TL_SREG_count] = {
    [TL_SREG_none] = "",
#define SREG(name, reach) [TL_SREG_##name] = #name,
    TL_PTX_SREGS(SREG)
#undef SREG
        [TL_SREG_envreg] = "envreg",
    [TL_SREG_pm] = "pm",
};
/* clang-format on */

enum tl_ptx_op tl_ptx_op_of(struct tl_str word)
{
    for (int i = TL_OP_unknown + 1; i < TL_OP_count; i++) {
        if (tl_str_is(word, opcodes[i].text))
            return (enum tl_ptx_op)i;
    }
    return TL_OP_unknown;
}

const char *tl_ptx_op_name(enum tl_ptx_op op)
{
    return opcodes[op].text;
}

enum tl_ptx_mod tl_ptx_mod_of(struct tl_str word)
{
    const char *sub = word.n > 2 ? memmem(word.p, word.n, "::", 2) : NULL;
    if (sub != NULL && (tl_str_starts(word, "shared::") || tl_str_starts(word, "param::")))
        word.n = (uint32_t)(sub - word.p);
    for (int i = TL_MOD_other + 1; i < TL_MOD_count; i++) {
        if (tl_str_is(word, modifiers[i]))
            return (enum tl_ptx_mod)i;
    }
    return TL_MOD_other;
}

enum tl_ptx_sreg tl_ptx_sreg_of(struct tl_str word)
{
    if (word.n < 2 || word.p[0] != '%')
        return TL_SREG_none;
    word.p++;
    word.n--;
    for (int i = TL_SREG_none + 1; i < TL_SREG_envreg; i++) {
        if (tl_str_is(word, sregs[i]))
            return (enum tl_ptx_sreg)i;
    }
    while (word.n > 1 && word.p[word.n - 1] >= '0' && word.p[word.n - 1] <= '9')
        word.n--;
    if (tl_str_is(word, "envreg"))
        return TL_SREG_envreg;
    return tl_str_is(word, "pm") ? TL_SREG_pm : TL_SREG_none;
}

bool tl_ptx_form_has(const struct tl_ptx_form *f, enum tl_ptx_mod mod)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        if (f->mods[i].id == mod)
            return true;
    }
    return false;
}

bool tl_ptx_form_has_text(const struct tl_ptx_form *f, const char *mod)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        if (tl_str_is(f->mods[i].text, mod))
            return true;
    }
    return false;
}

enum tl_ptx_mod tl_ptx_form_space(const struct tl_ptx_form *f)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        switch (f->mods[i].id) {
        case TL_MOD_global:
        case TL_MOD_shared:
        case TL_MOD_local:
        case TL_MOD_const:
        case TL_MOD_param:
            return f->mods[i].id;
        default:
            break;
        }
    }
    return TL_MOD_other;
}

bool tl_ptx_form_writes(const struct tl_ptx_form *f)
{
    switch ((enum use)opcodes[f->op].use) {
    case D:
        return true;
    case N:
    case C:
        return false;
    case S:
        break;
    }
    switch (f->op) {
    case TL_OP_bar:
    case TL_OP_barrier:
        return tl_ptx_form_has(f, TL_MOD_red);
    case TL_OP_wmma:
        return tl_ptx_form_has(f, TL_MOD_load) || tl_ptx_form_has(f, TL_MOD_mma);
    case TL_OP_wgmma:
        return tl_ptx_form_has_text(f, "mma_async");
    case TL_OP_multimem:
        return tl_ptx_form_has(f, TL_MOD_ld_reduce);
    case TL_OP_mbarrier:
        return !tl_ptx_form_has_text(f, "init") && !tl_ptx_form_has_text(f, "inval") &&
               f->n_mods > 0 && !tl_str_is(f->mods[0].text, "expect_tx") &&
               !tl_str_is(f->mods[0].text, "complete_tx");
    case TL_OP_clusterlaunchcontrol:
        return tl_ptx_form_has(f, TL_MOD_query_cancel);
    case TL_OP_tcgen05:
        return f->n_mods > 0 && tl_str_is(f->mods[0].text, "ld");
    default:
        return false;
    }
}

bool tl_ptx_form_computes(const struct tl_ptx_form *f)
{
    switch (f->op) {
    case TL_OP_mov:
    case TL_OP_cvt:
    case TL_OP_cvta:
    case TL_OP_add:
    case TL_OP_sub:
    case TL_OP_mul:
    case TL_OP_mad:
    case TL_OP_div:
    case TL_OP_rem:
    case TL_OP_min:
    case TL_OP_max:
    case TL_OP_shl:
    case TL_OP_shr:
    case TL_OP_and:
    case TL_OP_or:
    case TL_OP_xor:
    case TL_OP_not:
    case TL_OP_neg:
    case TL_OP_selp:
    case TL_OP_setp:
        return !tl_ptx_form_has(f, TL_MOD_cc);
    default:
        return false;
    }
}

uint32_t tl_ptx_type_bytes(struct tl_str type)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } sizes[] = {{"b8", 1},         {"u8", 1},   {"s8", 1},      {"b16", 2},    {"u16", 2},
                 {"s16", 2},        {"f16", 2},  {"bf16", 2},    {"b32", 4},    {"u32", 4},
                 {"s32", 4},        {"f32", 4},  {"f16x2", 4},   {"bf16x2", 4}, {"b64", 8},
                 {"u64", 8},        {"s64", 8},  {"f64", 8},     {"b128", 16},  {"texref", 8},
                 {"samplerref", 8}, {"tf32", 4}, {"surfref", 8}, {"f32x2", 8}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (tl_str_is(type, sizes[i].name))
            return sizes[i].bytes;
    }
    return 0;
}

bool tl_ptx_inst_call(const struct tl_ptx_stmt *inst, struct tl_ptx_call *out)
{
    *out = (struct tl_ptx_call){0};
    const struct tl_ptx_operand *o = inst->inst.operands;
    uint32_t i = 0, n = inst->n_operands;
    if (i < n && o[i].kind == TL_OPD_LIST)
        out->rets = &o[i++];
    if (i >= n || o[i].kind != TL_OPD_SYM)
        return false;
    out->callee = &o[i++];
    if (i < n && o[i].kind == TL_OPD_LIST)
        out->args = &o[i++];
    if (i < n && o[i].kind == TL_OPD_SYM)
        out->proto = &o[i++];
    return i == n;
}

struct tl_ptx_sym *tl_ptx_sym_final(struct tl_ptx_sym *s)
{
    while (s->forward != NULL)
        s = s->forward;
    return s;
}
