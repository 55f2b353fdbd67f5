/* Large copies in pieces, between which a job gives way.  A copy of a gigabyte holds a copy engine
 * for 20 to 40 ms, and cannot be stopped; so where somebody is above, large ones are made piece by
 * piece, two of them with the driver at a time, and none while there is no permit:
 *
 *     with the host      2 MiB: 0.08 to 0.17 ms over PCIe 4.0 or 3.0 with 16 lanes
 *     on the device      8 MiB: some 10 us where memory is fast
 *
 * They stand in the copy's own stream one behind the other, so everything behind them waits for
 * all. Copies whose memory must be read or written before the call returns are made by the caller,
 * who keeps the stream's turn until the last piece.  A copy that the driver would refuse is left
 * whole, so that it refuses all of it: what a piece reaches must be in one allocation with the
 * rest. */
#include "runtime/effort/split.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/effort/flight.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/supply.h"
#include "tally/check.h"

enum {
    HOST_BYTES = 2 << 20,
    DEVICE_BYTES = 8 << 20,
    PIECE_NS = 100000, /* what a piece is taken to last */
    IN_FLIGHT = 2,
};

/* --- which ------------------------------------------------------------------------------------ */

/* Whether all of it is in one allocation, or in memory that the driver does not know. */
TL_EFF_UNLOCKED static bool is_inside(CUdeviceptr at, size_t bytes)
{
    CUdeviceptr begin = 0;
    size_t n = 0;
    CUmemorytype type = 0;
    if (tl_eff_real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) !=
            CUDA_SUCCESS ||
        type == 0)
        return true;
    return tl_eff_real.cuPointerGetAttribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at) ==
               CUDA_SUCCESS &&
           tl_eff_real.cuPointerGetAttribute(&n, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at) ==
               CUDA_SUCCESS &&
           at >= begin && at - begin <= n && bytes <= n - (at - begin);
}

TL_EFF_UNLOCKED static bool is_of_device(CUdeviceptr at)
{
    CUmemorytype type = 0;
    return tl_eff_real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

/* Whether somebody might have to wait for it, which also is what it costs if nobody is there. */
TL_EFF_UNLOCKED static bool is_wanted(const struct tl_eff_stream *s, size_t bytes, size_t piece)
{
    if (bytes <= 2 * piece || s->is_capturing)
        return false;
    tl_eff_lock();
    bool is = !tl_eff_is_alone();
    tl_eff_unlock();
    return is;
}

bool tl_eff_split_line(const struct tl_eff_stream *s, const struct tl_eff_call *c,
                       bool is_on_device, struct tl_eff_split *out)
{
    size_t bytes = c->args[2];
    if (!is_wanted(s, bytes, is_on_device ? DEVICE_BYTES : HOST_BYTES))
        return false;
    is_on_device |= is_of_device(c->args[0]) && is_of_device(c->args[1]);
    size_t piece = is_on_device ? DEVICE_BYTES : HOST_BYTES;
    if (bytes <= 2 * piece || !is_inside(c->args[0], bytes) || !is_inside(c->args[1], bytes))
        return false;
    *out = (struct tl_eff_split){.call = *c, .total = bytes, .step = piece, .step_ns = PIECE_NS};
    return true;
}

/* The address of one side of a box, if that is memory and no array. */
static bool side_of(CUmemorytype type, const void *host, CUdeviceptr device, CUdeviceptr *at)
{
    *at = type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)host : device;
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE ||
           (int)type == CU_MEMORYTYPE_UNIFIED;
}

/* A box reaches from its first row to the end of its last. */
static bool is_box_inside(CUdeviceptr at, size_t x, size_t y, size_t pitch, size_t width,
                          size_t rows)
{
    size_t bytes;
    if (pitch == 0)
        pitch = width;
    return pitch >= x + width && !__builtin_mul_overflow(pitch, y + rows, &bytes) &&
           is_inside(at, bytes - (pitch - x - width));
}

bool tl_eff_split_box(const struct tl_eff_stream *s, const struct tl_eff_call *c,
                      struct tl_eff_split *out)
{
    const CUDA_MEMCPY2D *p = (const CUDA_MEMCPY2D *)c->args[0]; /* NOLINT: it was a pointer */
    CUdeviceptr from, to;
    size_t bytes;
    if (p == NULL || p->WidthInBytes == 0 || p->WidthInBytes > HOST_BYTES ||
        __builtin_mul_overflow(p->WidthInBytes, p->Height, &bytes) ||
        !is_wanted(s, bytes, HOST_BYTES) ||
        !side_of(p->srcMemoryType, p->srcHost, p->srcDevice, &from) ||
        !side_of(p->dstMemoryType, p->dstHost, p->dstDevice, &to) ||
        !is_box_inside(from, p->srcXInBytes, p->srcY, p->srcPitch, p->WidthInBytes, p->Height) ||
        !is_box_inside(to, p->dstXInBytes, p->dstY, p->dstPitch, p->WidthInBytes, p->Height))
        return false;
    *out = (struct tl_eff_split){.call = *c,
                                 .is_box = true,
                                 .total = p->Height,
                                 .step = HOST_BYTES / p->WidthInBytes,
                                 .step_ns = PIECE_NS};
    return true;
}

/* --- pieces ----------------------------------------------------------------------------------- */

/* One piece, from where it stands, by `make`. */
TL_EFF_UNLOCKED static CUresult make_piece(const struct tl_eff_split *x, size_t n,
                                           CUresult (*make)(const struct tl_eff_call *c))
{
    struct tl_eff_call c = x->call;
    if (!x->is_box) {
        c.args[0] += x->done;
        c.args[1] += x->done;
        c.args[2] = n;
        return make(&c);
    }
    CUDA_MEMCPY2D box = *(const CUDA_MEMCPY2D *)x->call.args[0]; /* NOLINT: it was a pointer */
    box.srcY += x->done;
    box.dstY += x->done;
    box.Height = n;
    c.args[0] = (uintptr_t)&box;
    return make(&c);
}

static size_t next_size(const struct tl_eff_split *x)
{
    TL_CHECK(x->done < x->total && x->step > 0);
    return x->total - x->done < x->step ? x->total - x->done : x->step;
}

/* Until there is a permit, or the process ends. */
TL_EFF_UNLOCKED static void await_permit(void)
{
    for (;;) {
        uint64_t now = tl_eff_now();
        tl_eff_lock();
        bool may = tl_eff_permit_holds(now) || tl_eff_is_alone();
        uint64_t ns = tl_eff_permit_wait_ns(now);
        uint32_t changes = tl_eff_permit.grant_changes;
        tl_eff_unlock();
        if (may)
            return;
        tl_client_wait(tl_eff.client, changes, ns);
    }
}

CUresult tl_eff_split_each(const struct tl_eff_split *x,
                           CUresult (*make)(const struct tl_eff_call *c))
{
    struct tl_eff_split left = *x;
    CUresult r = CUDA_SUCCESS;
    while (left.done < left.total && r == CUDA_SUCCESS) {
        size_t n = next_size(&left);
        await_permit();
        r = make_piece(&left, n, make);
        left.done += n;
    }
    return r;
}

CUresult tl_eff_split_in_turn(struct tl_eff_stream *s, const struct tl_eff_split *x)
{
    struct tl_eff_turn turn;
    tl_eff_turn_begin(&turn, s, true);
    CUresult r = tl_eff_split_each(x, tl_eff_invoke);
    tl_eff_turn_end(&turn, r);
    return r;
}

CUresult tl_eff_split_queue(struct tl_eff_stream *s, const struct tl_eff_split *x)
{
    struct tl_eff_item *item = tl_eff_item_create(TL_EFF_SPLIT);
    CUDA_MEMCPY2D *box = x->is_box ? malloc(sizeof *box) : NULL;
    if (item == NULL || (x->is_box && box == NULL)) {
        free(item);
        free(box);
        return tl_eff_split_in_turn(s, x);
    }
    item->split = *x;
    if (x->is_box) {
        *box = *(const CUDA_MEMCPY2D *)x->call.args[0]; /* NOLINT: it was a pointer */
        item->split.call.args[0] = (uintptr_t)box;
        item->owned = box;
    }
    tl_eff_lock();
    tl_eff_make_room(s);
    tl_eff_enqueue(s, item);
    tl_eff_unlock();
    return CUDA_SUCCESS;
}

bool tl_eff_split_advance(struct tl_eff_stream *s, struct tl_eff_item *item, uint64_t now)
{
    struct tl_eff_split *x = &item->split;
    tl_eff_assert_locked();
    TL_CHECK(s->first == item && item->kind == TL_EFF_SPLIT && !item->is_under_way);
    bool is_alone = tl_eff_is_alone();
    if (!is_alone && !tl_eff_permit_holds(now)) {
        s->is_held = true;
        return false;
    }
    if (!is_alone && s->n_flying >= IN_FLIGHT)
        return false; /* the news of their end ring */
    size_t n = is_alone ? x->total - x->done : next_size(x);
    item->is_under_way = true;
    tl_eff_unlock();
    tl_eff_make_current(s->context);
    tl_eff_prepare(s->context);
    CUresult r = make_piece(x, n, tl_eff_invoke);
    tl_eff_lock();
    item->is_under_way = false;
    x->done += n;
    if (r == CUDA_SUCCESS) {
        tl_eff_unmarked(s, x->step_ns, now);
        tl_eff_mark(s);
    }
    if (r != CUDA_SUCCESS || x->done == x->total)
        tl_eff_submitted(item, r);
    return true;
}
