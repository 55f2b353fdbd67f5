/* Copies and fills, all of which become rows of bytes from one place to another, in a stream. */
#include "device/driver/array.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/memory.h"
#include "device/driver/op.h"
#include "device/driver/stream.h"
#include "device/driver/work.h"

/* What is known of an address before the copy: memory of the device, memory of the program, or that
 * the table of allocations has to tell, and then what it does not know is the program's. */
enum owner { OF_DEVICE, OF_PROGRAM, OF_EITHER };

/* From the first byte of a box to its last; 0 if it is empty, SIZE_MAX if it cannot be. */
static size_t reach(size_t width, size_t height, size_t depth, size_t pitch, size_t slice)
{
    size_t rows, slices, sum;
    if (width == 0 || height == 0 || depth == 0)
        return 0;
    if (__builtin_mul_overflow(height - 1, pitch, &rows) ||
        __builtin_mul_overflow(depth - 1, slice, &slices) ||
        __builtin_add_overflow(rows, slices, &sum) || __builtin_add_overflow(sum, width, &sum))
        return SIZE_MAX;
    return sum;
}

static bool may_access(const void *p, size_t bytes, enum owner owner, bool is_written)
{
    if (bytes == 0 || owner == OF_PROGRAM)
        return true;
    tl_drv_lock();
    bool may = (owner == OF_EITHER && tl_drv_alloc_find((uintptr_t)p) == NULL) ||
               tl_drv_memory_covers((uintptr_t)p, bytes, is_written);
    tl_drv_unlock();
    return may;
}

/* A copy that leaves what is allocated would be a fault of this process and not of its context. */
static bool stays_inside(const struct tl_drv_copy *c, enum owner from, enum owner to)
{
    return may_access(c->from, reach(c->width, c->height, c->depth, c->from_pitch, c->from_slice),
                      from, false) &&
           may_access(c->to, reach(c->width, c->height, c->depth, c->to_pitch, c->to_slice), to,
                      true);
}

CUresult tl_drv_fill_check(const struct tl_drv_fill *f)
{
    size_t bytes;
    if (f->width == 0 || f->height == 0)
        return CUDA_SUCCESS;
    if ((uintptr_t)f->to % f->element != 0 || (f->height > 1 && f->pitch % f->element != 0) ||
        __builtin_mul_overflow(f->width, f->element, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return may_access(f->to, reach(bytes, f->height, 1, f->pitch, 0), OF_DEVICE, true)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult submit(CUstream handle, struct tl_drv_work *work, bool wait)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(handle, &s);
    return r == CUDA_SUCCESS ? tl_drv_submit(s, work, wait) : r;
}

/* --- lines ------------------------------------------------------------------------------------ */

struct end {
    uintptr_t at;
    enum owner owner;
};

static struct end device_end(CUdeviceptr p)
{
    return (struct end){(uintptr_t)p, OF_DEVICE};
}

static struct end either_end(CUdeviceptr p)
{
    return (struct end){(uintptr_t)p, OF_EITHER};
}

static struct end program_end(const void *p)
{
    return (struct end){(uintptr_t)p, OF_PROGRAM};
}

static CUresult copy_line(struct end to, struct end from, size_t bytes, CUstream stream, bool wait)
{
    if (bytes != 0 && (to.at == 0 || from.at == 0))
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_work w = {.kind = TL_DRV_COPY,
                            .copy = {.from = tl_drv_pointer(from.at),
                                     .to = tl_drv_pointer(to.at),
                                     .from_pitch = bytes,
                                     .to_pitch = bytes,
                                     .width = bytes,
                                     .height = 1,
                                     .depth = 1}};
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(stream, &s);
    if (r == CUDA_SUCCESS && !stays_inside(&w.copy, from.owner, to.owner))
        r = CUDA_ERROR_INVALID_VALUE;
    return r == CUDA_SUCCESS ? tl_drv_submit(s, &w, wait) : r;
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy_line(either_end(dst), either_end(src), ByteCount, NULL, true);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy_line(either_end(dst), either_end(src), ByteCount, hStream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy_line(device_end(dstDevice), program_end(srcHost), ByteCount, NULL, true);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_line(program_end(dstHost), device_end(srcDevice), ByteCount, NULL, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_line(device_end(dstDevice), device_end(srcDevice), ByteCount, NULL,
                     false); /* between devices, the host is not waited for */
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                              CUstream hStream)
{
    return copy_line(device_end(dstDevice), program_end(srcHost), ByteCount, hStream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream)
{
    return copy_line(program_end(dstHost), device_end(srcDevice), ByteCount, hStream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream)
{
    return copy_line(device_end(dstDevice), device_end(srcDevice), ByteCount, hStream, false);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount)
{
    (void)dstContext, (void)srcContext;
    return copy_line(device_end(dstDevice), device_end(srcDevice), ByteCount, NULL, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    (void)dstContext, (void)srcContext;
    return copy_line(device_end(dstDevice), device_end(srcDevice), ByteCount, hStream, false);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                               CUstream hStream)
{
    CUresult r = CUDA_SUCCESS;
    (void)attrs, (void)attrsIdxs, (void)numAttrs;
    if (dsts == NULL || srcs == NULL || sizes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = copy_line(either_end(dsts[i]), either_end(srcs[i]), sizes[i], hStream, false);
    return r;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                            size_t *failIdx, CUstream hStream)
{
    if (failIdx != NULL)
        *failIdx = SIZE_MAX;
    return cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

/* --- boxes ------------------------------------------------------------------------------------ */

/* One side of a box copy, as the three structures of the API describe it. */
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch, height, x, y, z;
};

static enum owner owner_of(CUmemorytype type)
{
    /* What is in an array was checked when the copy was planned. */
    return type == CU_MEMORYTYPE_DEVICE    ? OF_DEVICE
           : type == CU_MEMORYTYPE_UNIFIED ? OF_EITHER
                                           : OF_PROGRAM;
}

static bool fits(size_t at, size_t n, size_t there)
{
    return at <= there && n <= there - at;
}

/* Where a side of a copy begins and how far its rows and slices are apart; the box must lie within
 * what is known of it. */
static CUresult place(const struct side *s, size_t width, size_t height, size_t depth,
                      const uint8_t **base, size_t *pitch, size_t *slice)
{
    const uint8_t *p;
    switch ((int)s->type) {
    case CU_MEMORYTYPE_HOST:
        p = s->host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        p = tl_drv_pointer(s->device);
        break;
    case CU_MEMORYTYPE_ARRAY:
        if (s->array == NULL || s->array->magic != TL_DRV_ARRAY)
            return CUDA_ERROR_INVALID_HANDLE;
        if (!fits(s->x, width, s->array->desc.Width * s->array->element_bytes) ||
            !fits(s->y, height, s->array->height) || !fits(s->z, depth, s->array->depth))
            return CUDA_ERROR_INVALID_VALUE;
        *pitch = s->array->pitch;
        *slice = s->array->slice;
        *base = s->array->data + s->x + s->y * *pitch + s->z * *slice;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = s->pitch != 0 ? s->pitch : width + s->x;
    if (*pitch < width)
        return CUDA_ERROR_INVALID_VALUE;
    *slice = *pitch * s->height;
    *base = p + s->x + s->y * *pitch + s->z * *slice;
    return CUDA_SUCCESS;
}

static CUresult plan(const struct side *from, const struct side *to, size_t width, size_t height,
                     size_t depth, struct tl_drv_copy *c)
{
    const uint8_t *p;
    *c = (struct tl_drv_copy){.width = width, .height = height, .depth = depth};
    if (width == 0 || height == 0 || depth == 0)
        return CUDA_SUCCESS;
    CUresult r = place(from, width, height, depth, &c->from, &c->from_pitch, &c->from_slice);
    if (r == CUDA_SUCCESS)
        r = place(to, width, height, depth, &p, &c->to_pitch, &c->to_slice);
    if (r != CUDA_SUCCESS)
        return r;
    c->to = tl_drv_pointer((uintptr_t)p);
    return stays_inside(c, owner_of(from->type), owner_of(to->type)) ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

CUresult tl_drv_plan_3d(const CUDA_MEMCPY3D *p, struct tl_drv_copy *c)
{
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    size_t from_height = p->srcHeight != 0 ? p->srcHeight : p->Height;
    size_t to_height = p->dstHeight != 0 ? p->dstHeight : p->Height;
    struct side from = {p->srcMemoryType, p->srcHost,     p->srcDevice, p->srcArray, p->srcPitch,
                        from_height,      p->srcXInBytes, p->srcY,      p->srcZ};
    struct side to = {p->dstMemoryType, p->dstHost,     p->dstDevice, p->dstArray, p->dstPitch,
                      to_height,        p->dstXInBytes, p->dstY,      p->dstZ};
    return plan(&from, &to, p->WidthInBytes, p->Height, p->Depth, c);
}

/* Whether the caller has to wait: only copies that touch host memory do. */
static bool touches_host(CUmemorytype a, CUmemorytype b)
{
    return a == CU_MEMORYTYPE_HOST || b == CU_MEMORYTYPE_HOST || a == CU_MEMORYTYPE_UNIFIED ||
           b == CU_MEMORYTYPE_UNIFIED;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool is_async)
{
    struct tl_drv_work w = {.kind = TL_DRV_COPY};
    CUresult r = tl_drv_plan_3d(p, &w.copy);
    if (r != CUDA_SUCCESS)
        return r;
    return submit(stream, &w, !is_async && touches_host(p->srcMemoryType, p->dstMemoryType));
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool is_async)
{
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D q = {.srcXInBytes = p->srcXInBytes,
                       .srcY = p->srcY,
                       .srcMemoryType = p->srcMemoryType,
                       .srcHost = p->srcHost,
                       .srcDevice = p->srcDevice,
                       .srcArray = p->srcArray,
                       .srcPitch = p->srcPitch,
                       .dstXInBytes = p->dstXInBytes,
                       .dstY = p->dstY,
                       .dstMemoryType = p->dstMemoryType,
                       .dstHost = p->dstHost,
                       .dstDevice = p->dstDevice,
                       .dstArray = p->dstArray,
                       .dstPitch = p->dstPitch,
                       .WidthInBytes = p->WidthInBytes,
                       .Height = p->Height,
                       .Depth = 1};
    return copy_3d(&q, stream, is_async);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, false);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, false);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, true);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, NULL, false);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, true);
}

/* One side of a copy in a batch: in elements, which are bytes unless an array takes part. */
static void side_of(const CUmemcpy3DOperand *o, size_t element, struct side *s)
{
    *s = (struct side){.type = CU_MEMORYTYPE_UNIFIED};
    if (o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        s->type = CU_MEMORYTYPE_ARRAY;
        s->array = o->op.array.array;
        s->x = o->op.array.offset.x * element;
        s->y = o->op.array.offset.y;
        s->z = o->op.array.offset.z;
    } else {
        s->device = o->op.ptr.ptr;
        s->pitch = o->op.ptr.rowLength * element;
        s->height = o->op.ptr.layerHeight;
    }
}

/* One copy of a batch, as a 3-D copy: sizes are in elements if an array takes part, else in
 * bytes. */
static CUresult copy_of_batch(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream)
{
    const CUmemcpy3DOperand *both[2] = {&op->src, &op->dst};
    struct side side[2];
    size_t element = 1;
    for (int i = 0; i < 2; i++) {
        if (both[i]->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
            continue;
        if (both[i]->op.array.array == NULL || both[i]->op.array.array->magic != TL_DRV_ARRAY)
            return CUDA_ERROR_INVALID_HANDLE;
        element = both[i]->op.array.array->element_bytes;
    }
    for (int i = 0; i < 2; i++)
        side_of(both[i], element, &side[i]);
    CUDA_MEMCPY3D copy = {.srcMemoryType = side[0].type,
                          .srcDevice = side[0].device,
                          .srcArray = side[0].array,
                          .srcPitch = side[0].pitch,
                          .srcHeight = side[0].height,
                          .srcXInBytes = side[0].x,
                          .srcY = side[0].y,
                          .srcZ = side[0].z,
                          .dstMemoryType = side[1].type,
                          .dstDevice = side[1].device,
                          .dstArray = side[1].array,
                          .dstPitch = side[1].pitch,
                          .dstHeight = side[1].height,
                          .dstXInBytes = side[1].x,
                          .dstY = side[1].y,
                          .dstZ = side[1].z,
                          .WidthInBytes = op->extent.width * element,
                          .Height = op->extent.height,
                          .Depth = op->extent.depth};
    return copy_3d(&copy, stream, true);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                 unsigned long long flags, CUstream hStream)
{
    CUresult r = opList != NULL && numOps > 0 && flags == 0 ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numOps && r == CUDA_SUCCESS; i++)
        r = copy_of_batch(&opList[i], hStream);
    return r;
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                              unsigned long long flags, CUstream hStream)
{
    if (failIdx != NULL)
        *failIdx = SIZE_MAX;
    return cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool is_async)
{
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D q = {.srcXInBytes = p->srcXInBytes,
                       .srcY = p->srcY,
                       .srcZ = p->srcZ,
                       .srcLOD = p->srcLOD,
                       .srcMemoryType = p->srcMemoryType,
                       .srcHost = p->srcHost,
                       .srcDevice = p->srcDevice,
                       .srcArray = p->srcArray,
                       .srcPitch = p->srcPitch,
                       .srcHeight = p->srcHeight,
                       .dstXInBytes = p->dstXInBytes,
                       .dstY = p->dstY,
                       .dstZ = p->dstZ,
                       .dstLOD = p->dstLOD,
                       .dstMemoryType = p->dstMemoryType,
                       .dstHost = p->dstHost,
                       .dstDevice = p->dstDevice,
                       .dstArray = p->dstArray,
                       .dstPitch = p->dstPitch,
                       .dstHeight = p->dstHeight,
                       .WidthInBytes = p->WidthInBytes,
                       .Height = p->Height,
                       .Depth = p->Depth};
    return copy_3d(&q, stream, is_async);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    return copy_3d_peer(pCopy, NULL, false);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return copy_3d_peer(pCopy, hStream, true);
}

/* --- lines in arrays -------------------------------------------------------------------------- */

static CUresult copy_array(struct side from, struct side to, size_t bytes, CUstream stream,
                           bool is_async)
{
    struct tl_drv_work w = {.kind = TL_DRV_COPY};
    CUresult r = plan(&from, &to, bytes, 1, 1, &w.copy);
    return r == CUDA_SUCCESS ? submit(stream, &w, !is_async && touches_host(from.type, to.type))
                             : r;
}

static struct side in_array(CUarray array, size_t x)
{
    return (struct side){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = x};
}

static struct side in_host(const void *p)
{
    return (struct side){.type = CU_MEMORYTYPE_HOST, .host = p};
}

static struct side in_device(CUdeviceptr p)
{
    return (struct side){.type = CU_MEMORYTYPE_DEVICE, .device = p};
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount)
{
    return copy_array(in_device(srcDevice), in_array(dstArray, dstOffset), ByteCount, NULL, false);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount)
{
    return copy_array(in_array(srcArray, srcOffset), in_device(dstDevice), ByteCount, NULL, false);
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
    return copy_array(in_host(srcHost), in_array(dstArray, dstOffset), ByteCount, NULL, false);
}

CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_array(in_array(srcArray, srcOffset), in_host(dstHost), ByteCount, NULL, false);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount)
{
    return copy_array(in_array(srcArray, srcOffset), in_array(dstArray, dstOffset), ByteCount, NULL,
                      false);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                              size_t ByteCount, CUstream hStream)
{
    return copy_array(in_host(srcHost), in_array(dstArray, dstOffset), ByteCount, hStream, true);
}

CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream)
{
    return copy_array(in_array(srcArray, srcOffset), in_host(dstHost), ByteCount, hStream, true);
}

/* --- fills ------------------------------------------------------------------------------------ */

static CUresult fill(CUdeviceptr to, size_t pitch, uint32_t value, uint32_t element, size_t width,
                     size_t height, CUstream stream)
{
    if ((to == 0 && width != 0 && height != 0) || to % element != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_work w = {.kind = TL_DRV_FILL,
                            .fill = {.to = tl_drv_pointer(to),
                                     .pitch = pitch,
                                     .width = width,
                                     .height = height,
                                     .value = value,
                                     .element = element}};
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(stream, &s);
    if (r != CUDA_SUCCESS || width == 0 || height == 0)
        return r;
    r = tl_drv_fill_check(&w.fill);
    if (r != CUDA_SUCCESS)
        return r;
    return tl_drv_submit(s, &w, false);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    return fill(dstDevice, N, uc, 1, N, 1, NULL);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    return fill(dstDevice, 0, us, 2, N, 1, NULL);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    return fill(dstDevice, 0, ui, 4, N, 1, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    return fill(dstDevice, N, uc, 1, N, 1, hStream);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    return fill(dstDevice, 0, us, 2, N, 1, hStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    return fill(dstDevice, 0, ui, 4, N, 1, hStream);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height)
{
    return fill(dstDevice, dstPitch, uc, 1, Width, Height, NULL);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height)
{
    return fill(dstDevice, dstPitch, us, 2, Width, Height, NULL);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height)
{
    return fill(dstDevice, dstPitch, ui, 4, Width, Height, NULL);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream)
{
    return fill(dstDevice, dstPitch, uc, 1, Width, Height, hStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream)
{
    return fill(dstDevice, dstPitch, us, 2, Width, Height, hStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream)
{
    return fill(dstDevice, dstPitch, ui, 4, Width, Height, hStream);
}
