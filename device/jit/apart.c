/* Stores of lanes that are known, when compiling, to lie apart, without a scatter.
 *
 * Scatters take some three cycles per lane on AMD's processors.  Tiles that are turned round on
 * their way to shared memory have lanes that lie side by side in another order: those become a
 * vector store for each stretch.
 *
 *     lane      0  8 16 24 |  1  9 17 25 | ...      (tid & 7) * 256 + (tid >> 3), in words
 *     word      0  1  2  3 | 256 257 ... | ...
 *
 * Where lanes do not even have neighbours, each gets a store of its own; that is some 30 times the
 * code, so only loops have it. */

#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/value.h"

enum { MAX_STRETCH = 16 }; /* lanes in one store */

static LLVMValueRef pointer_of(struct tl_emit *e, const struct tl_address *a, uint32_t lane)
{
    uint32_t per_base = TL_LANES / tl_n_bases(e, &a->lanes);
    LLVMValueRef offset = LLVMConstInt(e->i64, (uint64_t)a->lanes.offset[lane], true);
    return LLVMBuildIntToPtr(e->b, LLVMBuildAdd(e->b, a->base[lane / per_base], offset, ""), e->ptr,
                             "");
}

/* Lanes in the order of their places, base by base; false if two have the same one. */
static bool sort_lanes(const struct tl_emit *e, const struct tl_address *a,
                       uint32_t order[TL_LANES])
{
    const int64_t *offset = a->lanes.offset;
    uint32_t per_base = TL_LANES / tl_n_bases(e, &a->lanes);
    for (uint32_t i = 0; i < TL_LANES; i++) {
        uint32_t at = i, first = i / per_base * per_base;
        for (; at > first && offset[order[at - 1]] >= offset[i]; at--) {
            if (offset[order[at - 1]] == offset[i])
                return false;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return true;
}

/* How many lanes from the one at order[first] on lie side by side: a power of two. */
static uint32_t stretch_at(const struct tl_emit *e, const struct tl_address *a,
                           const uint32_t order[TL_LANES], uint32_t first, int64_t bytes)
{
    uint32_t per_base = TL_LANES / tl_n_bases(e, &a->lanes), n = 1, whole = 1;
    const int64_t *offset = a->lanes.offset;
    while (first + n < TL_LANES && n < MAX_STRETCH && (first + n) % per_base != 0 &&
           offset[order[first + n]] == offset[order[first]] + (int64_t)n * bytes)
        n++;
    while (whole * 2 <= n)
        whole *= 2;
    return whole;
}

static void store_stretch(struct tl_emit *e, const struct tl_address *a, LLVMValueRef v,
                          const uint32_t *lanes, uint32_t n, uint32_t bytes)
{
    LLVMValueRef index[MAX_STRETCH];
    for (uint32_t i = 0; i < n; i++)
        index[i] = LLVMConstInt(e->i32, lanes[i], false);
    LLVMValueRef x = n == 1 ? LLVMBuildExtractElement(e->b, v, index[0], "")
                            : LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)),
                                                     LLVMConstVector(index, n), "");
    LLVMSetAlignment(LLVMBuildStore(e->b, x, pointer_of(e, a, lanes[0])), bytes);
}

bool tl_store_apart(struct tl_emit *e, const struct tl_address *a, uint32_t bits, LLVMValueRef v)
{
    uint32_t order[TL_LANES], n[TL_LANES], n_stores = 0;
    if (!a->lanes.is_known || e->mask != NULL || bits < 32 || tl_outlines(e) ||
        !sort_lanes(e, a, order))
        return false;
    for (uint32_t i = 0; i < TL_LANES; i += n[n_stores++])
        n[n_stores] = stretch_at(e, a, order, i, bits / 8);
    if (n_stores > TL_LANES / 4 && !e->f->is_in_loop[e->inst_block])
        return false;
    for (uint32_t i = 0, k = 0; k < n_stores; i += n[k++])
        store_stretch(e, a, v, &order[i], n[k], bits / 8);
    return true;
}
