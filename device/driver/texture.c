/* Textures and surfaces as objects; what fetching from them means is in device/driver/fetch.c. */
#include "device/driver/texture.h"
#include "device/driver/array.h"
#include "device/driver/context.h"
#include "device/driver/handle.h"
#include "device/driver/stream.h"

#include <stdlib.h>

static struct tl_drv_texture *object_of(uint64_t handle)
{
    return tl_drv_pointer((uintptr_t)handle);
}

static void describe_array(struct tl_drv_texture *o, uint32_t level, const struct CUarray_st *array)
{
    o->format = array->desc.Format;
    o->channels = array->desc.NumChannels;
    o->element = array->element_bytes;
    o->levels[level] = (struct tl_drv_level){array->data,  array->desc.Width, array->height,
                                             array->depth, array->pitch,      array->slice};
}

static CUresult describe_linear(struct tl_drv_texture *o, CUarray_format format, uint32_t channels,
                                CUdeviceptr data, size_t width, size_t height, size_t pitch)
{
    o->format = format;
    o->channels = channels;
    o->element = tl_drv_format_bytes(format) * channels;
    if (o->element == 0)
        return CUDA_ERROR_INVALID_VALUE;
    o->n_levels = 1;
    o->levels[0] = (struct tl_drv_level){tl_drv_pointer(data), width, height, 1, pitch,
                                         pitch * height};
    return CUDA_SUCCESS;
}

/* Works out what fetches have to know from the resource: the levels, their sizes, how far rows are
 * apart. */
static CUresult describe(struct tl_drv_texture *o)
{
    const CUDA_RESOURCE_DESC *d = &o->resource;
    CUarray array = d->res.array.hArray;
    CUresult r;
    switch (d->resType) {
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        while (o->n_levels < TL_DRV_MAX_LEVELS &&
               cuMipmappedArrayGetLevel(&array, d->res.mipmap.hMipmappedArray, o->n_levels) ==
                   CUDA_SUCCESS)
            describe_array(o, o->n_levels++, array);
        return o->n_levels > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_RESOURCE_TYPE_ARRAY:
        if (array == NULL || array->magic != TL_DRV_ARRAY)
            return CUDA_ERROR_INVALID_VALUE;
        o->n_levels = 1;
        describe_array(o, 0, array);
        return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_LINEAR:
        o->is_linear = true;
        r = describe_linear(o, d->res.linear.format, d->res.linear.numChannels,
                            d->res.linear.devPtr, 0, 1, d->res.linear.sizeInBytes);
        o->levels[0].width = r == CUDA_SUCCESS ? d->res.linear.sizeInBytes / o->element : 0;
        return r;
    case CU_RESOURCE_TYPE_PITCH2D:
        return describe_linear(o, d->res.pitch2D.format, d->res.pitch2D.numChannels,
                               d->res.pitch2D.devPtr, d->res.pitch2D.width, d->res.pitch2D.height,
                               d->res.pitch2D.pitchInBytes);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* --- the calls -------------------------------------------------------------------------------- */

static CUresult make(uint64_t *out, const CUDA_RESOURCE_DESC *resource,
                     const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (out == NULL || resource == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_texture *o = calloc(1, sizeof *o);
    if (o == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    o->resource = *resource;
    if (texture != NULL)
        o->texture = *texture;
    o->has_view = view != NULL;
    if (view != NULL)
        o->view = *view;
    r = describe(o);
    if (r != CUDA_SUCCESS) {
        free(o);
        return r;
    }
    *out = (uintptr_t)o;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                           const CUDA_TEXTURE_DESC *pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    uint64_t handle = 0;
    if (pTexObject == NULL || pTexDesc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = make(&handle, pResDesc, pTexDesc, pResViewDesc);
    *pTexObject = handle;
    return r;
}

CUresult cuTexObjectDestroy(CUtexObject texObject)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS || texObject == 0)
        return r;
    tl_drv_context_drain(ctx); /* kernels under way may still fetch from it */
    free(object_of(texObject));
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    if (pResDesc == NULL || texObject == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pResDesc = object_of(texObject)->resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    if (pTexDesc == NULL || texObject == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pTexDesc = object_of(texObject)->texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc,
                                        CUtexObject texObject)
{
    if (pResViewDesc == NULL || texObject == 0 || !object_of(texObject)->has_view)
        return CUDA_ERROR_INVALID_VALUE;
    *pResViewDesc = object_of(texObject)->view;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
    uint64_t handle = 0;
    if (pSurfObject == NULL || pResDesc == NULL || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = make(&handle, pResDesc, NULL, NULL);
    *pSurfObject = handle;
    return r;
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
    return cuTexObjectDestroy(surfObject);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
    return cuTexObjectGetResourceDesc(pResDesc, surfObject);
}
