/* Memory at an address of its own for each lane.
 *
 * The machine gathers and scatters 32 and 64 bits; AVX2 only gathers.  What LLVM makes of the rest
 * is a branch per lane, hundreds of blocks in which its register allocator then spends seconds; so
 * the rest is written here in other ways. */
#include <string.h>

#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/value.h"

static LLVMValueRef masked(struct tl_emit *e, const char *name, LLVMTypeRef type,
                           LLVMValueRef *args)
{
    LLVMTypeRef over[2] = {type, tl_vec(e->ptr)};
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, over, 2);
    return LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, over, 2), fn, args, 4, "");
}

static LLVMValueRef pointers(struct tl_emit *e, struct tl_val addresses)
{
    return LLVMBuildIntToPtr(e->b, addresses.v, tl_vec(e->ptr), "");
}

/* Less than 32 bits: the aligned word that they lie in is on the same page. */
struct tl_val tl_gather(struct tl_emit *e, struct tl_val addresses, uint32_t bits)
{
    uint32_t wide = bits < 32 ? 32 : bits;
    LLVMTypeRef type = tl_vec(tl_int(e, wide));
    struct tl_val low = tl_op(e, LLVMAnd, addresses, tl_const(e, 64, 3));
    if (bits < 32)
        addresses = tl_op(e, LLVMSub, addresses, low);
    LLVMValueRef args[4] = {pointers(e, addresses), LLVMConstInt(e->i32, wide / 8, false),
                            tl_active(e), LLVMConstNull(type)};
    struct tl_val v = {masked(e, "llvm.masked.gather", type, args), true};
    if (bits < 32) {
        struct tl_val shift = tl_op(e, LLVMShl, tl_cast_int(e, low, 32, false), tl_const(e, 32, 3));
        v = tl_cast_int(e, tl_op(e, LLVMLShr, v, shift), bits, false);
    }
    return v;
}

/* Stores touch no more than their bytes: lane by lane, where there is no scatter for them. */
static void scatter_one_by_one(struct tl_emit *e, struct tl_val addresses, struct tl_val v,
                               uint32_t bits)
{
    struct tl_spilled to = tl_spill(e, (struct tl_val){pointers(e, addresses), true}),
                      value = tl_spill(e, v);
    struct tl_lane_loop l;
    tl_lanes_begin(e, &l);
    LLVMValueRef s = LLVMBuildStore(e->b, tl_spilled_lane(e, &value, l.lane),
                                    tl_spilled_lane(e, &to, l.lane));
    LLVMSetAlignment(s, bits / 8);
    tl_lanes_end(e, &l);
}

void tl_scatter(struct tl_emit *e, struct tl_val addresses, struct tl_val v, uint32_t bits)
{
    v = tl_widen(e, tl_cast_int(e, v, bits, false));
    if (bits >= 32 && e->has_avx512) {
        LLVMValueRef args[4] = {v.v, pointers(e, addresses), LLVMConstInt(e->i32, bits / 8, false),
                                tl_active(e)};
        masked(e, "llvm.masked.scatter", tl_vec(tl_int(e, bits)), args);
        return;
    }
    scatter_one_by_one(e, addresses, v, bits);
}

/* --- several elements per lane ---------------------------------------------------------------- */

struct access {
    uint32_t bits, n; /* of an element; elements */
    bool is_masked;
};

static struct tl_val element_at(struct tl_emit *e, struct tl_val addresses, const struct access *a,
                                uint32_t k)
{
    return k == 0 ? addresses
                  : tl_op(e, LLVMAdd, addresses, tl_const(e, 64, (uint64_t)k * (a->bits / 8)));
}

/* v: addresses, then the word of lanes that take part if there is a mask. */
static void make_gathers(struct tl_emit *e, const void *key, struct tl_val *v)
{
    const struct access *a = key;
    struct tl_val addresses = v[0];
    e->mask = a->is_masked ? tl_mask_of_bits(e, v[1].v) : NULL;
    for (uint32_t k = 0; k < a->n; k++)
        v[k] = tl_gather(e, element_at(e, addresses, a, k), a->bits);
}

/* v: addresses, elements, then the word. */
static void make_scatters(struct tl_emit *e, const void *key, struct tl_val *v)
{
    const struct access *a = key;
    e->mask = a->is_masked ? tl_mask_of_bits(e, v[1 + a->n].v) : NULL;
    for (uint32_t k = 0; k < a->n; k++)
        tl_scatter(e, element_at(e, v[0], a, k), v[1 + k], a->bits);
}

void tl_gather_elements(struct tl_emit *e, struct tl_val addresses, uint32_t bits, uint32_t n,
                        struct tl_val *out)
{
    struct tl_val v[TL_OUTLINED_RESULTS] = {addresses, {tl_active_bits(e), false}};
    struct access a;
    memset(&a, 0, sizeof a);
    a.bits = bits;
    a.n = n;
    a.is_masked = e->mask != NULL;
    if (tl_outlines(e))
        tl_outlined(e, make_gathers, &a, sizeof a, v, a.is_masked ? 2 : 1, n);
    for (uint32_t k = 0; k < n; k++)
        out[k] = tl_outlines(e) ? v[k] : tl_gather(e, element_at(e, addresses, &a, k), bits);
}

void tl_scatter_elements(struct tl_emit *e, struct tl_val addresses, uint32_t bits, uint32_t n,
                         const struct tl_val *in)
{
    struct tl_val v[TL_OUTLINED_RESULTS + 2] = {addresses};
    struct access a;
    memset(&a, 0, sizeof a);
    a.bits = bits;
    a.n = n;
    a.is_masked = e->mask != NULL;
    for (uint32_t k = 0; k < n; k++) {
        if (tl_outlines(e))
            v[1 + k] = tl_widen(e, tl_cast_int(e, in[k], bits, false));
        else
            tl_scatter(e, element_at(e, addresses, &a, k), in[k], bits);
    }
    v[1 + n] = (struct tl_val){tl_active_bits(e), false};
    if (tl_outlines(e))
        tl_outlined(e, make_scatters, &a, sizeof a, v, a.is_masked ? 2 + n : 1 + n, 0);
}
