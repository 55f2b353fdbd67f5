/* What copies by tensor maps do; see the header. */
#include "test/unit/device/driver/tensor_reference.h"

#include <string.h>

#include "test/unit/device/jit/op.h"

static const struct {
    const char *name;
    uint32_t bytes;
    int driver_type;
    uint32_t ptx_type;
} types[] = {{"u8", 1, 0, 0},  {"u16", 2, 1, 1},  {"u32", 4, 2, 2}, {"s32", 4, 3, 3},
             {"u64", 8, 4, 4}, {"s64", 8, 5, 5},  {"f16", 2, 6, 6}, {"f32", 4, 7, 7},
             {"f64", 8, 8, 9}, {"bf16", 2, 9, 10}};

/* --- cases at random -------------------------------------------------------------------------- */

uint64_t tensor_next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 33;
}

static uint64_t between(uint64_t *seed, uint64_t least, uint64_t most)
{
    return least + tensor_next(seed) % (most - least + 1);
}

static uint32_t count(const struct tensor_case *c, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t x = 0; x < c->box[i]; x += i == 0 ? 1 : c->step[i])
        n++;
    return n;
}

uint32_t tensor_elements(const struct tensor_case *c)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < c->rank; i++)
        n *= count(c, i);
    return n;
}

/* Sizes along one axis, and where along it the box begins: mostly inside, often across an end, and
 * sometimes far away. */
static void choose_axis(uint64_t *seed, struct tensor_case *c, uint32_t i)
{
    static const uint8_t most[] = {0, 40, 12, 7, 5};
    if (i > 0) {
        c->box[i] = (uint32_t)between(seed, 1, most[i]);
        c->step[i] = tensor_next(seed) % 3 == 0 ? (uint32_t)between(seed, 1, 8) : 1;
    }
    c->dim[i] = between(seed, 1, i == 0 ? 2ull * c->box[0] : 2ull * most[i]);
    c->at[i] = (int32_t)between(seed, 0, c->dim[i]);
    if (tensor_next(seed) % 3 == 0)
        c->at[i] = -(int32_t)between(seed, 0, c->box[i] + 1);
    if (tensor_next(seed) % 40 == 0)
        c->at[i] = tensor_next(seed) % 2 == 0 ? INT32_MIN : INT32_MAX;
}

struct tensor_case tensor_random(uint64_t *seed, uint32_t room, uint64_t global_room,
                                 bool is_swizzled)
{
    for (;;) {
        struct tensor_case c = {.rank = (uint32_t)between(seed, 1, 5)};
        uint32_t t = (uint32_t)between(seed, 0, sizeof types / sizeof *types - 1);
        c.type = types[t].name;
        c.bytes = types[t].bytes;
        c.driver_type = types[t].driver_type;
        c.ptx_type = types[t].ptx_type;
        c.swizzle = is_swizzled ? (uint32_t)between(seed, 1, 3) : 0;
        c.fills_nan = strchr(c.type, 'f') != NULL && tensor_next(seed) % 2 == 0;
        uint32_t row = is_swizzled ? 16u << c.swizzle : 16 * (uint32_t)between(seed, 1, 20);
        c.box[0] = row / c.bytes;
        c.stride[0] = c.bytes;
        c.step[0] = (uint32_t)between(seed, 1, 8); /* counts for nothing */
        for (uint32_t i = 0; i < c.rank; i++)
            choose_axis(seed, &c, i);
        for (uint32_t i = 1; i < c.rank; i++)
            c.stride[i] = (c.dim[i - 1] * c.stride[i - 1] + 15) / 16 * 16 +
                          16 * between(seed, 0, 2);
        c.shared_at = 128 * (uint32_t)between(seed, 0, 9);
        if (c.box[0] <= 256 && tensor_elements(&c) * c.bytes + c.shared_at <= room &&
            c.dim[c.rank - 1] * c.stride[c.rank - 1] <= global_room)
            return c;
    }
}

/* --- the copy --------------------------------------------------------------------------------- */

/* Where byte number `n` of the box is in shared memory.  The guide's tables say how chunks of 16
 * bytes move within lines of 128: smem[y][x] <-> smem[y][((y + offset) % k) ^ x]. */
static uint64_t place(const struct tensor_case *c, uint64_t n)
{
    static const uint32_t repeats[] = {1, 2, 4, 8};
    uint64_t offset = c->shared_at / 128 % 8, y = n / 128, x = n % 128 / 16;
    x ^= (y + offset) % repeats[c->swizzle];
    return c->shared_at + y * 128 + x * 16 + n % 16;
}

static uint64_t combine(const struct tensor_case *c, const char *what, uint64_t old, uint64_t x)
{
    struct op_type t;
    op_type_parse(&t, c->type, strlen(c->type));
    bool is_float = t.kind == 'f' || t.kind == 'g', is_min = strcmp(what, "min") == 0;
    if (strcmp(what, "add") == 0)
        return !is_float ? old + x
               : op_is_nan(&t, old) || op_is_nan(&t, x)
                   ? op_bits(&t, __builtin_nan(""), ROUND_NEAREST)
                   : op_bits(
                         &t,
                         op_double('+', op_float(&t, old), op_float(&t, x), 0, ROUND_NEAREST, NULL),
                         ROUND_NEAREST);
    if (is_min || strcmp(what, "max") == 0) {
        bool is_less = is_float        ? op_float(&t, x) < op_float(&t, old)
                       : t.kind == 'u' ? x < old
                       : c->bytes == 4 ? (int32_t)x < (int32_t)old
                                       : (int64_t)x < (int64_t)old;
        return is_less == is_min ? x : old;
    }
    if (strcmp(what, "inc") == 0)
        return old >= x ? 0 : old + 1;
    if (strcmp(what, "dec") == 0)
        return old == 0 || old > x ? x : old - 1;
    return strcmp(what, "and") == 0 ? (old & x) : strcmp(what, "or") == 0 ? (old | x) : (old ^ x);
}

static void copy_element(const struct tensor_case *c, const char *what, uint8_t *global,
                         uint8_t *shared, bool is_inside)
{
    static const uint64_t nan[] = {0, 0, 0x7fff, 0, 0x7fffffff, 0, 0, 0, 0x7fffffffffffffff};
    if (strcmp(what, "load") == 0) {
        uint64_t outside = c->fills_nan ? nan[c->bytes] : 0;
        memcpy(shared, is_inside ? (void *)global : (void *)&outside, c->bytes);
    } else if (is_inside && strcmp(what, "store") == 0) {
        memcpy(global, shared, c->bytes);
    } else if (is_inside) {
        uint64_t old = 0, x = 0;
        memcpy(&old, global, c->bytes);
        memcpy(&x, shared, c->bytes);
        old = combine(c, what, old, x);
        memcpy(global, &old, c->bytes);
    }
}

void tensor_reference(const struct tensor_case *c, const char *what, uint8_t *global,
                      uint8_t *shared)
{
    uint32_t n = tensor_elements(c);
    for (uint32_t e = 0; e < n; e++) {
        uint32_t left = e;
        bool is_inside = true;
        uint64_t offset = 0;
        for (uint32_t i = 0; i < c->rank; i++) {
            int64_t x = c->at[i] + (int64_t)(left % count(c, i)) * (i == 0 ? 1 : c->step[i]);
            left /= count(c, i);
            is_inside = is_inside && x >= 0 && (uint64_t)x < c->dim[i];
            offset += (uint64_t)x * c->stride[i];
        }
        copy_element(c, what, is_inside ? global + offset : NULL,
                     shared + place(c, (uint64_t)e * c->bytes), is_inside);
    }
}
