/* References and rows: integers, logic, shifts, bits, comparison and selection. */
#include "test/unit/device/jit/op.h"

typedef __int128 wide;

static uint64_t ones(uint32_t bits)
{
    return bits >= 64 ? UINT64_MAX : (1ull << bits) - 1;
}

static int64_t sign_extended(uint64_t v, uint32_t bits)
{
    return (int64_t)(v << (64 - bits)) >> (64 - bits);
}

/* The number that bits stand for. */
static wide number(const struct op_type *t, uint64_t v)
{
    v &= ones(t->bits);
    return t->kind == 's' ? (wide)sign_extended(v, t->bits) : (wide)v;
}

static uint64_t cut(const struct op_type *t, wide v)
{
    return (uint64_t)v & ones(t->bits * t->packed);
}

static wide clamped(wide v, wide least, wide most)
{
    return v < least ? least : v > most ? most : v;
}

/* --- arithmetic ------------------------------------------------------------------------------- */

static void add(const struct op *o, const uint64_t *in, uint64_t *out)
{
    wide a = number(&o->source[0], in[0]), b = number(&o->source[1], in[1]),
         r = op_is(o, "sub") ? a - b : a + b;
    out[0] = cut(&o->result[0], o->sat ? clamped(r, INT32_MIN, INT32_MAX) : r);
}

/* Two words, the carry from the lower to the upper. */
static void add_chain(const struct op *o, const uint64_t *in, uint64_t *out)
{
    uint32_t bits = o->result[0].bits;
    unsigned __int128 low = (unsigned __int128)in[0] + in[1], r;
    if (op_is(o, "sub") || op_is(o, "subc"))
        low = (unsigned __int128)in[0] - in[1];
    out[0] = (uint64_t)low & ones(bits);
    r = low >> bits & 1;
    out[1] = (op_is(o, "sub") || op_is(o, "subc") ? in[2] - in[3] - (uint64_t)r
                                                  : in[2] + in[3] + (uint64_t)r) &
             ones(bits);
}

static wide product(const struct op *o, const uint64_t *in)
{
    const struct op_type *t = &o->source[0];
    if (t->kind == 'u' && t->bits == 64)
        return (wide)((unsigned __int128)in[0] * in[1]);
    return number(t, in[0]) * number(t, in[1]);
}

static void mul(const struct op *o, const uint64_t *in, uint64_t *out)
{
    wide r = product(o, in);
    if (op_has(o, "hi"))
        r = (wide)((unsigned __int128)r >> o->source[0].bits);
    if (o->n_sources == 3) {
        if (o->sat)
            r = clamped((wide)sign_extended(cut(&o->source[0], r), 32) +
                            number(&o->source[2], in[2]),
                        INT32_MIN, INT32_MAX);
        else
            r = (wide)((unsigned __int128)r + in[2]);
    }
    out[0] = cut(&o->result[0], r);
}

/* a * b + c in 64 bits, by mad.lo.cc and madc.hi. */
static void mad_chain(const struct op *o, const uint64_t *in, uint64_t *out)
{
    (void)o;
    unsigned __int128 r = (unsigned __int128)in[0] * in[1] + (in[2] | in[3] << 32);
    out[0] = (uint32_t)r;
    out[1] = (uint32_t)(r >> 32);
}

static void mul24(const struct op *o, const uint64_t *in, uint64_t *out)
{
    struct op_type t = o->source[0];
    t.bits = 24;
    wide r = number(&t, in[0]) * number(&t, in[1]);
    if (op_has(o, "hi"))
        r >>= 16;
    out[0] = cut(&o->result[0], r + (o->n_sources == 3 ? (wide)in[2] : 0));
}

static void divide(const struct op *o, const uint64_t *in, uint64_t *out)
{
    wide a = number(&o->source[0], in[0]), b = number(&o->source[1], in[1]);
    bool is_rem = op_is(o, "rem");
    out[0] = cut(&o->result[0], b == 0 ? (is_rem ? a : -1) : is_rem ? a % b : a / b);
}

static void minmax(const struct op *o, const uint64_t *in, uint64_t *out)
{
    struct op_type t = o->source[0];
    out[0] = 0;
    for (uint32_t p = 0; p < t.packed; p++) {
        wide a = number(&t, in[0] >> (p * t.bits)), b = number(&t, in[1] >> (p * t.bits)),
             r = op_is(o, "min") == (a < b) ? a : b;
        if (o->relu && r < 0)
            r = 0;
        out[0] |= ((uint64_t)r & ones(t.bits)) << (p * t.bits);
    }
}

static void add_packed(const struct op *o, const uint64_t *in, uint64_t *out)
{
    (void)o;
    out[0] = ((in[0] + in[1]) & 0xffff) | (((in[0] >> 16) + (in[1] >> 16)) & 0xffff) << 16;
}

static void unary(const struct op *o, const uint64_t *in, uint64_t *out)
{
    wide a = number(&o->source[0], in[0]), r = op_is(o, "neg")    ? -a
                                               : op_is(o, "not")  ? ~a
                                               : op_is(o, "cnot") ? a == 0
                                               : a < 0            ? -a
                                                                  : a;
    out[0] = cut(&o->result[0], r);
}

static void sad(const struct op *o, const uint64_t *in, uint64_t *out)
{
    wide d = number(&o->source[0], in[0]) - number(&o->source[1], in[1]);
    out[0] = cut(&o->result[0], (d < 0 ? -d : d) + in[2]);
}

static void dot(const struct op *o, const uint64_t *in, uint64_t *out)
{
    bool is_dp2a = op_is(o, "dp2a");
    struct op_type a = o->types[0], b = o->types[1];
    wide r = (wide)in[2];
    a.bits = is_dp2a ? 16 : 8;
    b.bits = 8;
    for (uint32_t i = 0; i < (is_dp2a ? 2 : 4); i++)
        r += number(&a, in[0] >> (i * a.bits)) *
             number(&b, in[1] >> ((i + (is_dp2a && op_has(o, "hi") ? 2 : 0)) * 8));
    out[0] = cut(&o->result[0], r);
}

/* --- logic, shifts, bits ---------------------------------------------------------------------- */

static void logic(const struct op *o, const uint64_t *in, uint64_t *out)
{
    out[0] = op_is(o, "and") ? (in[0] & in[1]) : op_is(o, "or") ? (in[0] | in[1]) : in[0] ^ in[1];
}

static void lop3(const struct op *o, const uint64_t *in, uint64_t *out)
{
    out[0] = 0;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t row = (uint32_t)((in[0] >> i & 1) << 2 | (in[1] >> i & 1) << 1 | (in[2] >> i & 1));
        out[0] |= (in[3] >> row & 1) << i;
    }
    if (o->n_results == 2)
        out[1] = op_has(o, "or") ? out[0] != 0 || in[4] != 0 : out[0] != 0 && in[4] != 0;
}

static void shift(const struct op *o, const uint64_t *in, uint64_t *out)
{
    const struct op_type *t = &o->source[0];
    uint32_t n = in[1] > t->bits ? t->bits : (uint32_t)in[1];
    wide a = number(t, in[0]);
    out[0] = cut(t, op_is(o, "shl") ? (wide)((unsigned __int128)a << n) : a >> n);
}

static void funnel(const struct op *o, const uint64_t *in, uint64_t *out)
{
    uint64_t both = in[1] << 32 | in[0];
    uint32_t n = op_has(o, "wrap") ? in[2] & 31 : in[2] > 32 ? 32 : (uint32_t)in[2];
    out[0] = (uint32_t)(op_has(o, "l") ? both << n >> 32 : both >> n);
}

static void count(const struct op *o, const uint64_t *in, uint64_t *out)
{
    uint32_t bits = o->source[0].bits;
    out[0] = op_is(o, "popc") ? (uint64_t)__builtin_popcountll(in[0])
             : in[0] == 0     ? bits
                              : (uint64_t)__builtin_clzll(in[0]) - (64 - bits);
}

static void bfind(const struct op *o, const uint64_t *in, uint64_t *out)
{
    const struct op_type *t = &o->source[0];
    wide a = number(t, in[0]);
    uint64_t v = (uint64_t)(a < 0 ? ~a : a);
    uint32_t at = v == 0 ? UINT32_MAX : 63 - (uint32_t)__builtin_clzll(v);
    out[0] = at != UINT32_MAX && op_has(o, "shiftamt") ? t->bits - 1 - at : at;
}

static void brev(const struct op *o, const uint64_t *in, uint64_t *out)
{
    out[0] = 0;
    for (uint32_t i = 0; i < o->source[0].bits; i++)
        out[0] |= (in[0] >> i & 1) << (o->source[0].bits - 1 - i);
}

static void bfe(const struct op *o, const uint64_t *in, uint64_t *out)
{
    const struct op_type *t = &o->source[0];
    uint32_t pos = in[1] & 255, len = in[2] & 255, msb = t->bits - 1,
             last = pos + len - 1 < msb ? pos + len - 1 : msb;
    uint64_t sign = t->kind == 'u' || len == 0 ? 0 : in[0] >> last & 1;
    out[0] = 0;
    for (uint32_t i = 0; i <= msb; i++)
        out[0] |= (i < len && pos + i <= msb ? in[0] >> (pos + i) & 1 : sign) << i;
}

static void bfi(const struct op *o, const uint64_t *in, uint64_t *out)
{
    uint32_t pos = in[2] & 255, len = in[3] & 255;
    out[0] = in[1];
    for (uint32_t i = 0; i < len && pos + i < o->result[0].bits; i++)
        out[0] = (out[0] & ~(1ull << (pos + i))) | (in[0] >> i & 1) << (pos + i);
}

static void prmt(const struct op *o, const uint64_t *in, uint64_t *out)
{
    uint64_t both = in[1] << 32 | in[0];
    uint32_t c = in[2] & 3, selector = (uint32_t)in[2];
    static const char *const modes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
    static const uint16_t tables[6][4] = {
        {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
        {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
        {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
    for (int i = 0; i < 6; i++) {
        if (op_has(o, modes[i]))
            selector = tables[i][c];
    }
    out[0] = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t s = selector >> (4 * i) & 15, byte = both >> (8 * (s & 7)) & 255;
        out[0] |= (uint64_t)(s & 8 ? (byte & 128 ? 255 : 0) : byte) << (8 * i);
    }
}

/* --- comparison and selection ----------------------------------------------------------------- */

static bool compare_floats(const struct op *o, double a, double b)
{
    bool u = a != a || b != b;
    if (op_has(o, "num"))
        return !u;
    if (op_has(o, "nan"))
        return u;
    if (op_has(o, "equ") || op_has(o, "neu") || op_has(o, "ltu") || op_has(o, "leu") ||
        op_has(o, "gtu") || op_has(o, "geu")) {
        if (u)
            return true;
    } else if (u) {
        return false;
    }
    return op_has(o, "eq") || op_has(o, "equ")   ? a == b
           : op_has(o, "ne") || op_has(o, "neu") ? a != b
           : op_has(o, "lt") || op_has(o, "ltu") ? a < b
           : op_has(o, "le") || op_has(o, "leu") ? a <= b
           : op_has(o, "gt") || op_has(o, "gtu") ? a > b
                                                 : a >= b;
}

static bool compare_element(const struct op *o, const struct op_type *t, uint64_t x, uint64_t y)
{
    if (t->kind == 'f' || t->kind == 'g')
        return compare_floats(o, op_flushed(o, t, op_float(t, x)),
                              op_flushed(o, t, op_float(t, y)));
    wide a = number(t, x), b = number(t, y);
    return op_has(o, "eq")                      ? a == b
           : op_has(o, "ne")                    ? a != b
           : op_has(o, "lt") || op_has(o, "lo") ? a < b
           : op_has(o, "le") || op_has(o, "ls") ? a <= b
           : op_has(o, "gt") || op_has(o, "hi") ? a > b
                                                : a >= b;
}

static bool joined(const struct op *o, const uint64_t *in, bool r)
{
    if (o->n_sources < 3)
        return r;
    return op_has(o, "or")    ? r | (in[2] != 0)
           : op_has(o, "xor") ? r ^ (in[2] != 0)
                              : r & (in[2] != 0);
}

static void setp(const struct op *o, const uint64_t *in, uint64_t *out)
{
    struct op_type t = o->source[0];
    if (t.packed == 2) { /* the lower and the upper elements' comparison */
        for (uint32_t p = 0; p < 2; p++)
            out[p] = joined(
                o, in,
                compare_element(o, &t, in[0] >> (16 * p) & 0xffff, in[1] >> (16 * p) & 0xffff));
        return;
    }
    bool r = compare_element(o, &t, in[0], in[1]);
    out[0] = joined(o, in, r);
    out[1] = joined(o, in, !r);
}

static void set(const struct op *o, const uint64_t *in, uint64_t *out)
{
    struct op_type t = o->source[0], to = o->result[0];
    out[0] = 0;
    for (uint32_t p = 0; p < t.packed; p++) {
        uint64_t x = in[0] >> (p * t.bits), y = in[1] >> (p * t.bits);
        uint32_t width = to.bits * to.packed / t.packed;
        uint64_t yes = to.kind == 'f' || to.kind == 'g' ? op_bits(&to, 1, ROUND_NEAREST)
                                                        : ones(width);
        out[0] |=
            (joined(o, in, compare_element(o, &t, x & ones(t.bits), y & ones(t.bits))) ? yes : 0)
            << (p * width);
    }
}

static void select_by(const struct op *o, const uint64_t *in, uint64_t *out)
{
    bool first = in[2] != 0;
    if (op_is(o, "slct"))
        first = o->source[2].kind == 'f'
                    ? op_flushed(o, &o->source[2], op_float(&o->source[2], in[2])) >= 0
                    : (int32_t)in[2] >= 0;
    out[0] = first ? in[0] : in[1];
}

static void copy(const struct op *o, const uint64_t *in, uint64_t *out)
{
    (void)o;
    out[0] = in[0];
}

/* --- video ------------------------------------------------------------------------------------ */

static wide video_primary(const struct op *o, const struct op_type *ta, const struct op_type *tb,
                          uint64_t x, uint64_t y)
{
    wide a = number(ta, x), b = number(tb, y);
    const char *name = o->row->form + 1;
    uint32_t n = op_has(o, "wrap") ? y & 31 : y > 32 ? 32 : (uint32_t)y;
    switch (name[0]) {
    case 'a':
        return name[1] == 'd' ? a + b : a > b ? a - b : b - a;
    case 'm':
        return name[1] == 'a' ? (a > b ? a : b) : a < b ? a : b;
    default:
        return name[1] == 'u'   ? a - b
               : name[2] == 'l' ? (wide)((unsigned __int128)a << n)
                                : (wide)(a >> n);
    }
}

static void video(const struct op *o, const uint64_t *in, uint64_t *out)
{
    wide r = video_primary(o, &o->types[1], &o->types[2], in[0], in[1]);
    r = (uint32_t)r;
    if (op_has(o, "add"))
        r += (wide)in[2];
    if (op_has(o, "min"))
        r = number(&o->types[0], (uint64_t)r) < number(&o->types[0], in[2]) ? r : (wide)in[2];
    if (op_has(o, "max"))
        r = number(&o->types[0], (uint64_t)r) > number(&o->types[0], in[2]) ? r : (wide)in[2];
    out[0] = (uint32_t)r;
}

static void video_quad(const struct op *o, const uint64_t *in, uint64_t *out)
{
    struct op_type a = o->types[1], b = o->types[2];
    a.bits = b.bits = 8;
    wide sum = (wide)in[2];
    out[0] = 0;
    for (uint32_t i = 0; i < 4; i++) {
        wide r = video_primary(o, &a, &b, in[0] >> (8 * i) & 255, in[1] >> (8 * i) & 255);
        if (o->sat)
            r = o->types[0].kind == 's' ? clamped(r, -128, 127) : clamped(r, 0, 255);
        sum += r;
        out[0] |= ((uint64_t)r & 255) << (8 * i);
    }
    if (op_has(o, "add"))
        out[0] = (uint32_t)sum;
}

/* --- masks and searches, as the PTX ISA writes them ------------------------------------------- */

static void bit_mask(const struct op *o, const uint64_t *in, uint64_t *out)
{
    uint32_t a = (uint32_t)in[0], b = (uint32_t)in[1], mask0 = UINT32_MAX << (a & 31),
             sum = (a & 31) + (b & 31);
    uint32_t mask1 = sum >= 32 ? 0 : UINT32_MAX << sum;
    if (op_has(o, "clamp") && a >= 32)
        mask0 = 0;
    if (op_has(o, "clamp") && (a >= 32 || b >= 32))
        mask1 = 0;
    out[0] = mask0 & ~mask1;
}

static void size_extend(const struct op *o, const uint64_t *in, uint64_t *out)
{
    uint32_t a = (uint32_t)in[0], b = (uint32_t)in[1], n = b & 31;
    bool is_too_large = op_has(o, "clamp") && b >= 32;
    uint32_t mask = is_too_large ? 0 : UINT32_MAX << n;
    bool sign = !op_has(o, "u32") && n != 0 && !is_too_large && (a >> (n - 1) & 1) != 0;
    out[0] = (a & ~mask) | (sign ? mask : 0);
}

static uint32_t nth_set(uint32_t mask, uint32_t base, int32_t offset)
{
    if (offset == 0)
        return base < 32 && (mask >> base & 1) != 0 ? base : UINT32_MAX;
    int64_t at = base, left = (offset < 0 ? -(int64_t)offset : offset) - 1;
    for (; at >= 0 && at<32; at += offset> 0 ? 1 : -1) {
        if ((mask >> at & 1) != 0 && left-- == 0)
            return (uint32_t)at;
    }
    return UINT32_MAX;
}

static void find_nth_set(const struct op *o, const uint64_t *in, uint64_t *out)
{
    (void)o;
    out[0] = nth_set((uint32_t)in[0], (uint32_t)in[1], (int32_t)(uint32_t)in[2]);
}

/* With positions and numbers that mean something. */
static void find_nth_set_near(const struct op *o, const uint64_t *in, uint64_t *out)
{
    (void)o;
    out[0] = nth_set((uint32_t)in[0], (uint32_t)in[1] & 31, (int32_t)((uint32_t)in[2] & 15) - 8);
}

/* --- rows ------------------------------------------------------------------------------------- */

#define TWO(op, t, ref)                                                                            \
    {                                                                                              \
        op "." t, t "=" t "," t, ref, 0, 0, NULL                                                   \
    }
#define ONE(op, t, ref)                                                                            \
    {                                                                                              \
        op "." t, t "=" t, ref, 0, 0, NULL                                                         \
    }
#define THREE(op, t, ref)                                                                          \
    {                                                                                              \
        op "." t, t "=" t "," t "," t, ref, 0, 0, NULL                                             \
    }
#define OF_INTEGERS(X, op, ref)                                                                    \
    X(op, "s16", ref), X(op, "u16", ref), X(op, "s32", ref), X(op, "u32", ref), X(op, "s64", ref), \
        X(op, "u64", ref)
#define OF_SIGNED(X, op, ref) X(op, "s16", ref), X(op, "s32", ref), X(op, "s64", ref)
#define OF_BITS(X, op, ref) X(op, "b16", ref), X(op, "b32", ref), X(op, "b64", ref)
#define WIDE(op, t, t2)                                                                            \
    {                                                                                              \
        op ".wide." t, t2 "=" t "," t, mul, 0, 0, NULL                                             \
    }
#define MAD_WIDE(t, t2)                                                                            \
    {                                                                                              \
        "mad.wide." t, t2 "=" t "," t "," t2, mul, 0, 0, NULL                                      \
    }
#define SHIFT(op, t)                                                                               \
    {                                                                                              \
        op "." t, t "=" t ",u32", shift, 0, 0, NULL                                                \
    }
#define COUNT(op, t, ref)                                                                          \
    {                                                                                              \
        op "." t, "u32=" t, ref, 0, 0, NULL                                                        \
    }
#define COMPARE(cmp, t)                                                                            \
    {                                                                                              \
        "setp." cmp "." t, "pred=" t "," t, setp, 0, 0, NULL                                       \
    }
#define COMPARE_ALL(t)                                                                             \
    COMPARE("eq", t), COMPARE("ne", t), COMPARE("lt", t), COMPARE("le", t), COMPARE("gt", t),      \
        COMPARE("ge", t)
#define COMPARE_UNORDERED(t)                                                                       \
    COMPARE("equ", t), COMPARE("neu", t), COMPARE("ltu", t), COMPARE("leu", t), COMPARE("gtu", t), \
        COMPARE("geu", t), COMPARE("num", t), COMPARE("nan", t)
#define COMPARE_FTZ(cmp)                                                                           \
    {                                                                                              \
        "setp." cmp ".ftz.f32", "pred=f32,f32", setp, 0, 0, NULL                                   \
    }
#define SELECT(t)                                                                                  \
    {                                                                                              \
        "selp." t, t "=" t "," t ",pred", select_by, 0, 0, NULL                                    \
    }
#define SET(cmp, to, from)                                                                         \
    {                                                                                              \
        "set." cmp "." to "." from, to "=" from "," from, set, 0, 0, NULL                          \
    }
#define BFE(t)                                                                                     \
    {                                                                                              \
        "bfe." t, t "=" t ",u32,u32", bfe, 0, 0, NULL                                              \
    }
#define LOP3(table)                                                                                \
    {                                                                                              \
        "lop3.b32", "b32=b32,b32,b32,#" table, lop3, 0, 0, NULL                                    \
    }
#define DOT(op, a, b)                                                                              \
    {                                                                                              \
        op "." a "." b,                                                                            \
            "s32="                                                                                 \
            "b32,b32,s32",                                                                         \
            dot, 0, 0, NULL                                                                        \
    }
#define CHAIN(op, next, t)                                                                         \
    {                                                                                              \
        op "." t, t "," t "=" t "," t "," t "," t, add_chain, 0, 0,                                \
            op "." t " $0, $2, $3; " next "." t " $1, $4, $5"                                      \
    }

const struct op_row op_integer_rows[] = {
    OF_INTEGERS(TWO, "add", add),
    OF_INTEGERS(TWO, "sub", add),
    {"add.sat.s32", "s32=s32,s32", add, 0, 0, NULL},
    {"sub.sat.s32", "s32=s32,s32", add, 0, 0, NULL},
    {"add.s16x2", "s16x2=s16x2,s16x2", add_packed, 0, 0, NULL},
    {"add.u16x2", "u16x2=u16x2,u16x2", add_packed, 0, 0, NULL},
    CHAIN("add.cc", "addc", "u32"),
    CHAIN("sub.cc", "subc", "u32"),
    CHAIN("add.cc", "addc.cc", "s32"),
    CHAIN("sub.cc", "subc.cc", "s32"),
    CHAIN("add.cc", "addc", "u64"),
    CHAIN("sub.cc", "subc", "s64"),
    OF_INTEGERS(TWO, "mul.lo", mul),
    OF_INTEGERS(TWO, "mul.hi", mul),
    WIDE("mul", "s16", "s32"),
    WIDE("mul", "u16", "u32"),
    WIDE("mul", "s32", "s64"),
    WIDE("mul", "u32", "u64"),
    OF_INTEGERS(THREE, "mad.lo", mul),
    OF_INTEGERS(THREE, "mad.hi", mul),
    {"mad.hi.sat.s32", "s32=s32,s32,s32", mul, 0, 0, NULL},
    MAD_WIDE("s16", "s32"),
    MAD_WIDE("u16", "u32"),
    MAD_WIDE("s32", "s64"),
    MAD_WIDE("u32", "u64"),
    {"mad.lo.cc.u32", "u32,u32=u32,u32,u32,u32", mad_chain, 0, 0,
     "mad.lo.cc.u32 $0, $2, $3, $4; madc.hi.u32 $1, $2, $3, $5"},
    TWO("mul24.lo", "s32", mul24),
    TWO("mul24.lo", "u32", mul24),
    TWO("mul24.hi", "s32", mul24),
    TWO("mul24.hi", "u32", mul24),
    THREE("mad24.lo", "s32", mul24),
    THREE("mad24.hi", "u32", mul24),
    OF_INTEGERS(TWO, "div", divide),
    OF_INTEGERS(TWO, "rem", divide),
    OF_INTEGERS(TWO, "min", minmax),
    OF_INTEGERS(TWO, "max", minmax),
    TWO("min", "s16x2", minmax),
    TWO("max", "u16x2", minmax),
    TWO("max.relu", "s32", minmax),
    TWO("min.relu", "s16x2", minmax),
    OF_SIGNED(ONE, "neg", unary),
    OF_SIGNED(ONE, "abs", unary),
    OF_BITS(ONE, "not", unary),
    OF_BITS(ONE, "cnot", unary),
    ONE("not", "pred", unary),
    OF_INTEGERS(THREE, "sad", sad),
    DOT("dp4a", "s32", "s32"),
    DOT("dp4a", "u32", "s32"),
    DOT("dp4a", "s32", "u32"),
    DOT("dp4a", "u32", "u32"),
    DOT("dp2a.lo", "s32", "s32"),
    DOT("dp2a.lo", "u32", "s32"),
    DOT("dp2a.lo", "u32", "u32"),
    DOT("dp2a.hi", "s32", "u32"),
    OF_BITS(TWO, "and", logic),
    OF_BITS(TWO, "or", logic),
    OF_BITS(TWO, "xor", logic),
    TWO("and", "pred", logic),
    TWO("or", "pred", logic),
    TWO("xor", "pred", logic),
    LOP3("0xe8"),
    LOP3("0x96"),
    LOP3("0"),
    LOP3("0xff"),
    LOP3("0x1b"),
    {"lop3.or.b32", "b32,pred=b32,b32,b32,#0x80,pred", lop3, 0, 0, NULL},
    {"lop3.and.b32", "b32,pred=b32,b32,b32,#0x96,pred", lop3, 0, 0, NULL},
    SHIFT("shl", "b16"),
    SHIFT("shl", "b32"),
    SHIFT("shl", "b64"),
    SHIFT("shr", "s16"),
    SHIFT("shr", "u16"),
    SHIFT("shr", "s32"),
    SHIFT("shr", "u32"),
    SHIFT("shr", "b32"),
    SHIFT("shr", "s64"),
    SHIFT("shr", "u64"),
    SHIFT("shr", "b64"),
    THREE("shf.l.wrap", "b32", funnel),
    THREE("shf.r.wrap", "b32", funnel),
    THREE("shf.l.clamp", "b32", funnel),
    THREE("shf.r.clamp", "b32", funnel),
    COUNT("popc", "b32", count),
    COUNT("popc", "b64", count),
    COUNT("clz", "b32", count),
    COUNT("clz", "b64", count),
    COUNT("bfind", "s32", bfind),
    COUNT("bfind", "u32", bfind),
    COUNT("bfind", "s64", bfind),
    COUNT("bfind", "u64", bfind),
    COUNT("bfind.shiftamt", "u32", bfind),
    COUNT("bfind.shiftamt", "s32", bfind),
    COUNT("bfind.shiftamt", "u64", bfind),
    ONE("brev", "b32", brev),
    ONE("brev", "b64", brev),
    BFE("u32"),
    BFE("s32"),
    BFE("u64"),
    BFE("s64"),
    {"bfi.b32", "b32=b32,b32,u32,u32", bfi, 0, 0, NULL},
    {"bfi.b64", "b64=b64,b64,u32,u32", bfi, 0, 0, NULL},
    THREE("prmt", "b32", prmt),
    {"prmt.b32.f4e", "b32=b32,b32,b32", prmt, 0, 0, NULL},
    {"prmt.b32.b4e", "b32=b32,b32,b32", prmt, 0, 0, NULL},
    {"prmt.b32.rc8", "b32=b32,b32,b32", prmt, 0, 0, NULL},
    {"prmt.b32.ecl", "b32=b32,b32,b32", prmt, 0, 0, NULL},
    {"prmt.b32.ecr", "b32=b32,b32,b32", prmt, 0, 0, NULL},
    {"prmt.b32.rc16", "b32=b32,b32,b32", prmt, 0, 0, NULL},
    COMPARE_ALL("s16"),
    COMPARE_ALL("u16"),
    COMPARE_ALL("s32"),
    COMPARE_ALL("u32"),
    COMPARE_ALL("s64"),
    COMPARE_ALL("u64"),
    COMPARE("eq", "b16"),
    COMPARE("ne", "b16"),
    COMPARE("eq", "b32"),
    COMPARE("ne", "b32"),
    COMPARE("eq", "b64"),
    COMPARE("ne", "b64"),
    COMPARE("lo", "u32"),
    COMPARE("ls", "u32"),
    COMPARE("hi", "u32"),
    COMPARE("hs", "u32"),
    COMPARE_ALL("f16"),
    COMPARE_ALL("bf16"),
    COMPARE_ALL("f32"),
    COMPARE_ALL("f64"),
    COMPARE_UNORDERED("f16"),
    COMPARE_UNORDERED("bf16"),
    COMPARE_UNORDERED("f32"),
    COMPARE_UNORDERED("f64"),
    COMPARE_FTZ("eq"),
    COMPARE_FTZ("ne"),
    COMPARE_FTZ("lt"),
    COMPARE_FTZ("le"),
    COMPARE_FTZ("gt"),
    COMPARE_FTZ("ge"),
    COMPARE_FTZ("gtu"),
    COMPARE_FTZ("neu"),
    COMPARE_FTZ("nan"),
    COMPARE_FTZ("num"),
    COMPARE_FTZ("geu"),
    COMPARE_FTZ("leu"),
    COMPARE_FTZ("ltu"),
    COMPARE_FTZ("equ"),
    {"setp.ne.and.b32", "pred,pred=b32,b32,pred", setp, 0, 0, NULL},
    {"setp.lt.or.s32", "pred,pred=s32,s32,pred", setp, 0, 0, NULL},
    {"setp.lt.xor.f32", "pred,pred=f32,f32,pred", setp, 0, 0, NULL},
    {"setp.eq.f16x2", "pred,pred=f16x2,f16x2", setp, 0, 0, NULL},
    {"setp.nan.f16x2", "pred,pred=f16x2,f16x2", setp, 0, 0, NULL},
    {"setp.lt.and.bf16x2", "pred,pred=bf16x2,bf16x2,pred", setp, 0, 0, NULL},
    SET("lt", "u32", "s32"),
    SET("ge", "s32", "u64"),
    SET("eq", "f32", "s32"),
    SET("lt", "f32", "f32"),
    SET("gtu", "u32", "f64"),
    SET("eq", "f16", "f16"),
    SET("nan", "f16", "f16"),
    SET("eq", "u16", "f16"),
    SET("eq", "bf16", "bf16"),
    SET("eq", "f16x2", "f16x2"),
    SET("gt", "f16x2", "f16x2"),
    SET("eq", "u32", "f16x2"),
    SET("eq", "bf16x2", "bf16x2"),
    SET("ltu", "u32", "bf16x2"),
    SET("eq", "u32", "f16"),
    {"set.lt.and.u32.f32", "u32=f32,f32,pred", set, 0, 0, NULL},
    SELECT("b16"),
    SELECT("u16"),
    SELECT("s16"),
    SELECT("b32"),
    SELECT("u32"),
    SELECT("s32"),
    SELECT("b64"),
    SELECT("u64"),
    SELECT("s64"),
    SELECT("f32"),
    SELECT("f64"),
    {"slct.u32.s32", "u32=u32,u32,s32", select_by, 0, 0, NULL},
    {"slct.f64.f32", "f64=f64,f64,f32", select_by, 0, 0, NULL},
    {"slct.ftz.b32.f32", "b32=b32,b32,f32", select_by, 0, 0, NULL},
    ONE("mov", "b16", copy),
    ONE("mov", "u32", copy),
    ONE("mov", "f32", copy),
    ONE("mov", "b64", copy),
    ONE("mov", "f64", copy),
    ONE("mov", "pred", copy),
    {"mov.b64", "b64=b64", copy, 0, 0, "mov.b64 {%y0, %y1}, $1; mov.b64 $0, {%y0, %y1}"},
    {"bmsk.clamp.b32", "b32=u32,u32", bit_mask, 0, 0, NULL},
    {"bmsk.wrap.b32", "b32=u32,u32", bit_mask, 0, 0, NULL},
    {"szext.clamp.s32", "s32=s32,u32", size_extend, 0, 0, NULL},
    {"szext.wrap.s32", "s32=s32,u32", size_extend, 0, 0, NULL},
    {"szext.clamp.u32", "u32=u32,u32", size_extend, 0, 0, NULL},
    {"szext.wrap.u32", "u32=u32,u32", size_extend, 0, 0, NULL},
    {"fns.b32", "b32=b32,b32,s32", find_nth_set, 0, 0, NULL},
    {"fns.b32", "b32=b32,b32,s32", find_nth_set_near, 0, 0,
     "and.b32 %y0, $2, 31; and.b32 %y1, $3, 15; sub.s32 %y1, %y1, 8; fns.b32 $0, $1, %y0, %y1"},
    {"vshr.u32.u32.u32.clamp.add", "u32=u32,u32,u32", video, 0, 0, NULL},
    {"vshl.u32.u32.u32.wrap.add", "u32=u32,u32,u32", video, 0, 0, NULL},
    {"vshl.u32.u32.u32.clamp", "u32=u32,u32", video, 0, 0, NULL},
    {"vadd.s32.s32.s32", "s32=s32,s32", video, 0, 0, NULL},
    {"vsub.u32.u32.u32.max", "u32=u32,u32,u32", video, 0, 0, NULL},
    {"vmax.s32.s32.s32.min", "s32=s32,s32,s32", video, 0, 0, NULL},
    {"vmin.s32.u32.s32", "s32=u32,s32", video, 0, 0, NULL},
    {"vabsdiff.u32.u32.u32.add", "u32=u32,u32,u32", video, 0, 0, NULL},
    {"vmax4.s32.s32.s32", "s32=s32,s32,s32", video_quad, 0, 0, NULL},
    {"vmin4.u32.u32.u32", "u32=u32,u32,u32", video_quad, 0, 0, NULL},
    {"vadd4.s32.s32.s32.sat", "s32=s32,s32,s32", video_quad, 0, 0, NULL},
    {"vsub4.u32.u32.u32", "u32=u32,u32,u32", video_quad, 0, 0, NULL},
    {"vabsdiff4.u32.u32.u32.add", "u32=u32,u32,u32", video_quad, 0, 0, NULL},
    {NULL, NULL, NULL, 0, 0, NULL},
};
