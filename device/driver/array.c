/* Arrays: plain rows in device memory, whatever hardware would make of them; mipmapped arrays are a
 * list of arrays. */
#include "device/driver/array.h"
#include "device/driver/context.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/memory.h"
#include "device/driver/stream.h"

#include <stdlib.h>

enum { MAX_LEVELS = 16 };

struct CUmipmappedArray_st {
    uint32_t magic;
    unsigned n;
    struct CUarray_st *levels[MAX_LEVELS];
};

uint32_t tl_drv_format_bytes(CUarray_format format)
{
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

static bool is_array(CUarray a)
{
    return a != NULL && a->magic == TL_DRV_ARRAY;
}

/* An array in memory of the current context; rows are a multiple of 64 bytes long.  A level of a
 * mipmapped array is freed with that.  CUDA_ERROR_INVALID_VALUE for a shape or format that no
 * array has. */
static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, bool is_level)
{
    struct CUctx_st *ctx;
    struct tl_drv_alloc *memory;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    uint32_t bytes = d != NULL ? tl_drv_format_bytes(d->Format) : 0;
    if (out == NULL || bytes == 0 || d->Width == 0 || d->Width > 1 << 28 || d->Height > 1 << 20 ||
        d->Depth > 1 << 20 || (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    struct CUarray_st *a = calloc(1, sizeof *a);
    if (a == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    a->magic = TL_DRV_ARRAY;
    a->desc = *d;
    a->element_bytes = bytes * d->NumChannels;
    a->pitch = (d->Width * a->element_bytes + 63) / 64 * 64;
    a->height = d->Height > 0 ? d->Height : 1;
    a->depth = d->Depth > 0 ? d->Depth : 1;
    a->slice = a->pitch * a->height;
    a->is_level = is_level;
    tl_drv_lock();
    r = tl_drv_alloc_create(ctx->device, ctx, a->slice * a->depth, TL_DRV_DEVICE_MEMORY, &memory);
    if (r == CUDA_SUCCESS) {
        memory->is_internal = true;
        a->data = tl_drv_pointer(memory->base);
    }
    tl_drv_unlock();
    if (r != CUDA_SUCCESS) {
        free(a);
        return r;
    }
    *out = a;
    return CUDA_SUCCESS;
}

static void destroy(struct CUarray_st *a)
{
    tl_drv_lock();
    tl_drv_alloc_destroy(tl_drv_alloc_find((uintptr_t)a->data));
    a->magic = TL_DRV_DEAD;
    tl_drv_unlock();
    free(a);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    return create(pHandle, pAllocateArray, false);
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *p)
{
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR d = {p->Width, p->Height, 0, p->Format, p->NumChannels, 0};
    return create(pHandle, &d, false);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    if (!is_array(hArray))
        return CUDA_ERROR_INVALID_HANDLE;
    if (pArrayDescriptor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){hArray->desc.Width, hArray->desc.Height,
                                                hArray->desc.Format, hArray->desc.NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    if (!is_array(hArray))
        return CUDA_ERROR_INVALID_HANDLE;
    if (pArrayDescriptor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pArrayDescriptor = hArray->desc;
    return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray hArray)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!is_array(hArray) || hArray->is_level)
        return CUDA_ERROR_INVALID_HANDLE;
    tl_drv_context_drain(ctx);
    destroy(hArray);
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels)
{
    if (pHandle == NULL || pMipmappedArrayDesc == NULL || numMipmapLevels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUmipmappedArray_st *m = calloc(1, sizeof *m);
    if (m == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->magic = TL_DRV_MIPMAP;
    CUresult r = CUDA_SUCCESS;
    CUDA_ARRAY3D_DESCRIPTOR d = *pMipmappedArrayDesc;
    bool has_layers = (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    while (m->n < numMipmapLevels && m->n < MAX_LEVELS && r == CUDA_SUCCESS) {
        r = create(&m->levels[m->n], &d, true);
        if (r == CUDA_SUCCESS)
            m->n++;
        d.Width = d.Width > 1 ? d.Width / 2 : 1;
        d.Height = d.Height > 1 ? d.Height / 2 : d.Height;
        d.Depth = !has_layers && d.Depth > 1 ? d.Depth / 2 : d.Depth;
    }
    if (r != CUDA_SUCCESS) {
        while (m->n > 0)
            destroy(m->levels[--m->n]);
        free(m);
        return r;
    }
    *pHandle = m;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level)
{
    if (hMipmappedArray == NULL || hMipmappedArray->magic != TL_DRV_MIPMAP)
        return CUDA_ERROR_INVALID_HANDLE;
    if (pLevelArray == NULL || level >= hMipmappedArray->n)
        return CUDA_ERROR_INVALID_VALUE;
    *pLevelArray = hMipmappedArray->levels[level];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (hMipmappedArray == NULL || hMipmappedArray->magic != TL_DRV_MIPMAP)
        return CUDA_ERROR_INVALID_HANDLE;
    tl_drv_context_drain(ctx);
    while (hMipmappedArray->n > 0)
        destroy(hMipmappedArray->levels[--hMipmappedArray->n]);
    hMipmappedArray->magic = TL_DRV_DEAD;
    free(hMipmappedArray);
    return CUDA_SUCCESS;
}
