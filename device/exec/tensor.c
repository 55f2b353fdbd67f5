/* Copies of boxes that tensor maps describe (PTX ISA, "Tensors"; CUDA programming guide, "Tensor
 * Memory Accelerator").
 *
 * Along each axis the box has ceil(box / step) elements, from the coordinate on.  In shared memory
 * its rows follow each other; what lies outside of the tensor comes as zeroes or NaN, and is not
 * written.  A swizzled box swaps chunks of 16 bytes, by bits of their address in shared memory:
 *
 *     128B  bits 4-6 ^= bits 7-9        64B  bits 4-5 ^= bits 7-8        32B  bit 4 ^= bit 7
 *
 * A row goes through memory of ours, so that both sides are simple. */
#include "device/exec/internal.h"

#include <string.h>

enum { CHUNK = 16, MAX_ROW = 256 * 8 };

struct box {
    struct tl_tensor_map map;
    const int32_t *coords;
    uint32_t element, row_bytes; /* bytes */
    uint32_t n[TL_TENSOR_MAX_RANK];
    uint32_t inside_from, inside_until; /* bytes of a row that the tensor has */
    uint8_t *shared;                    /* of the block */
    uint64_t at;                        /* of the box in it */
    uint32_t swizzle_mask;
};

/* --- kernels' memory -------------------------------------------------------------------------- */

TL__KERNEL_MEMORY void tl__copy_kernel(void *to, const void *from, size_t n)
{
    uint8_t *q = to;
    const uint8_t *p = from;
    for (; n >= CHUNK; n -= CHUNK, p += CHUNK, q += CHUNK)
        __builtin_memcpy(q, p, CHUNK);
    for (; n > 0; n--)
        *q++ = *p++;
}

static uint8_t *chunk_of(const struct box *b, uint64_t offset)
{
    uint64_t at = b->at + offset;
    return b->shared + (at ^ (at >> 7 & b->swizzle_mask) << 4);
}

static void row_to_shared(const struct box *b, uint64_t offset, const uint8_t *row)
{
    for (uint32_t i = 0; i < b->row_bytes; i += CHUNK)
        tl__copy_kernel(chunk_of(b, offset + i), row + i, CHUNK);
}

static void row_from_shared(const struct box *b, uint64_t offset, uint8_t *row)
{
    for (uint32_t i = 0; i < b->row_bytes; i += CHUNK)
        tl__copy_kernel(row + i, chunk_of(b, offset + i), CHUNK);
}

/* --- rows ------------------------------------------------------------------------------------- */

/* What elements are outside of the tensor. */
static void fill(const struct box *b, uint8_t *row)
{
    static const uint16_t half = 0x7fff;
    static const uint32_t single = 0x7fffffff;
    static const uint64_t wide = 0x7fffffffffffffff;
    memset(row, 0, b->row_bytes);
    if (b->map.fill == 0)
        return;
    const void *nan = b->element == 2   ? (const void *)&half
                      : b->element == 4 ? (const void *)&single
                                        : (const void *)&wide;
    for (uint32_t i = 0; i < b->row_bytes; i += b->element)
        memcpy(row + i, nan, b->element);
}

/* Where the row with those numbers along the other axes is, its first coordinate taken for 0;
 * whether the tensor has it. */
static bool find_row(const struct box *b, const uint32_t *number, uint64_t *address)
{
    *address = b->map.address;
    for (uint32_t i = 1; i <= b->map.rank_minus_1; i++) {
        int64_t at = b->coords[i] + (int64_t)number[i] * b->map.element_stride[i];
        if (at < 0 || at > b->map.dim_minus_1[i])
            return false;
        *address += (uint64_t)at * b->map.stride[i - 1];
    }
    return true;
}

static void copy_row(const struct box *b, const uint32_t *number, uint64_t offset, uint32_t what)
{
    _Alignas(16) uint8_t row[MAX_ROW];
    uint64_t address;
    bool is_inside = find_row(b, number, &address) && b->inside_until > b->inside_from;
    uint32_t n = is_inside ? b->inside_until - b->inside_from : 0;
    address += (uint64_t)((int64_t)b->coords[0] * b->element) + b->inside_from;
    void *global = (void *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr)
    if (what == TL_TENSOR_LOAD) {
        if (n < b->row_bytes)
            fill(b, row);
        tl__copy_kernel(row + b->inside_from, global, n);
        row_to_shared(b, offset, row);
    } else if (n > 0) {
        row_from_shared(b, offset, row);
        if (what == TL_TENSOR_STORE)
            tl__copy_kernel(global, row + b->inside_from, n);
        else
            tl__reduce(what, b->map.type, global, row + b->inside_from, n / b->element);
    }
}

/* The next row, the second axis first; false: that was the last. */
static bool next_row(const struct box *b, uint32_t *number)
{
    for (uint32_t i = 1; i <= b->map.rank_minus_1; i++) {
        if (++number[i] < b->n[i])
            return true;
        number[i] = 0;
    }
    return false;
}

/* --- the call --------------------------------------------------------------------------------- */

/* How much of the box there is, and which part of its rows; bytes of it all. */
static uint64_t measure(struct box *b)
{
    b->element = tl_exec_tensor_element(b->map.type);
    b->n[0] = b->map.box[0];
    b->row_bytes = b->n[0] * b->element;
    uint64_t bytes = b->row_bytes;
    for (uint32_t i = 1; i <= b->map.rank_minus_1; i++) {
        b->n[i] = (b->map.box[i] + b->map.element_stride[i] - 1u) / b->map.element_stride[i];
        bytes *= b->n[i];
    }
    int64_t first = -(int64_t)b->coords[0], end = (int64_t)b->map.dim_minus_1[0] + 1 - b->coords[0];
    first = first < 0 ? 0 : first > b->n[0] ? b->n[0] : first;
    end = end < 0 ? 0 : end > b->n[0] ? b->n[0] : end;
    b->inside_from = (uint32_t)first * b->element;
    b->inside_until = (uint32_t)end * b->element;
    b->swizzle_mask = b->map.swizzle == 0 ? 0 : (1u << b->map.swizzle) - 1;
    return bytes;
}

/* Reads the map, and ends the launch if this copy cannot be done with it. */
static void read_map(struct tl__engine *e, uint32_t warp, struct box *b, const void *map,
                     uint32_t what)
{
    if ((uintptr_t)map % 64 != 0)
        tl__engine_fault(e, warp, TL_DEV_FAULT_MISALIGNED, (uintptr_t)map,
                         "a tensor map at %p, which is no multiple of 64", map);
    tl__copy_kernel(&b->map, map, sizeof b->map);
    const char *wrong = tl_exec_tensor_wrong(&b->map);
    if (wrong != NULL)
        tl__engine_fault(e, warp, TL_DEV_FAULT_TENSOR, (uintptr_t)map, "a tensor map: %s", wrong);
    if (b->map.mode != TL_TENSOR_TILED)
        tl__engine_fault(e, warp, TL_DEV_FAULT_TENSOR, (uintptr_t)map,
                         "a copy of a box with a tensor map of im2col");
    const char *missing = tl_exec_tensor_missing(&b->map);
    if (missing != NULL)
        tl__engine_fault(e, warp, TL_DEV_FAULT_TENSOR, (uintptr_t)map,
                         "the device does not know %s", missing);
    if (b->map.rank_minus_1 + 1u != what >> TL_TENSOR_RANK_SHIFT)
        tl__engine_fault(e, warp, TL_DEV_FAULT_TENSOR, (uintptr_t)map,
                         "a copy of %u axes with a tensor map of %u", what >> TL_TENSOR_RANK_SHIFT,
                         b->map.rank_minus_1 + 1u);
    uint32_t copy = what & TL_TENSOR_COPY;
    if (copy > TL_TENSOR_STORE && !tl__reduces(copy, b->map.type))
        tl__engine_fault(e, warp, TL_DEV_FAULT_TENSOR, copy,
                         "a reduction that elements of the tensor's type do not have");
}

uint64_t tl__call_tensor(struct tl_dev_frame *f, uint32_t warp, const void *map, uint32_t what,
                         const int32_t *coords, uint8_t *shared)
{
    struct tl__engine *e = tl__engine_of(f);
    const struct tl__unit *u = f->process;
    struct box b = {.coords = coords, .shared = f->shared};
    read_map(e, warp, &b, map, what);
    uint64_t bytes = measure(&b);
    b.at = (uint64_t)(shared - f->shared);
    if (b.at % 128 != 0)
        tl__engine_fault(e, warp, TL_DEV_FAULT_MISALIGNED, b.at,
                         "a box at %#llx in shared memory, which is no multiple of 128",
                         (unsigned long long)b.at);
    if (b.at > u->shared_bytes || bytes > u->shared_bytes - b.at)
        tl__engine_fault(e, warp, TL_DEV_FAULT_ADDRESS, b.at,
                         "a box of %llu bytes at %#llx, beyond the block's shared memory",
                         (unsigned long long)bytes, (unsigned long long)b.at);
    uint32_t number[TL_TENSOR_MAX_RANK] = {0};
    uint64_t offset = 0;
    do {
        copy_row(&b, number, offset, what & TL_TENSOR_COPY);
        offset += b.row_bytes;
    } while (next_row(&b, number));
    return bytes;
}
