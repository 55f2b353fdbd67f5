/* References to textures and surfaces by name: what was there before there were objects.
 *
 * In a module such a reference is a variable of eight bytes.  Binding makes an object of what was
 * set so far and puts its handle there, where kernels find it.  Whatever is set later makes another
 * object; kernels under way keep theirs until they are done. */
#include "device/driver/array.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/module.h"
#include "device/driver/stream.h"

#include "ptx_rewrite/ast.h"

#include <stdlib.h>
#include <string.h>

struct CUtexref_st {
    uint32_t magic;
    struct CUtexref_st *next;
    struct CUmod_st *module; /* NULL: made by cuTexRefCreate, no kernel knows it */
    uint64_t *variable;      /* where kernels look, or NULL */
    bool is_surface, is_bound;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUarray_format format;
    int channels;
    uint64_t object;
};

static struct CUtexref_st *references TL_DRV_GUARDED; /* of all modules */

static bool is_reference(const struct CUtexref_st *r, bool is_surface)
{
    return r != NULL && r->magic == TL_DRV_TEXREF && r->is_surface == is_surface;
}

static struct CUtexref_st *create(bool is_surface)
{
    struct CUtexref_st *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->magic = TL_DRV_TEXREF;
    r->is_surface = is_surface;
    r->format = CU_AD_FORMAT_FLOAT;
    r->channels = 1;
    for (int i = 0; i < 3; i++)
        r->texture.addressMode[i] = CU_TR_ADDRESS_MODE_CLAMP;
    return r;
}

/* An object of what is set now, in the place of the former. */
static CUresult bind(struct CUtexref_st *r)
{
    CUtexObject object = 0, old = r->object; /* a CUsurfObject is the same */
    if (!r->is_bound)
        return CUDA_SUCCESS; /* nothing to fetch from yet */
    CUresult result = r->is_surface ? cuSurfObjectCreate(&object, &r->resource)
                                    : cuTexObjectCreate(&object, &r->resource, &r->texture, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (old != 0)
        result = cuTexObjectDestroy(old); /* waits for the context */
    else if (r->module != NULL)
        tl_drv_context_drain(r->module->ctx);
    r->object = object;
    if (r->variable != NULL)
        *r->variable = object;
    return result;
}

static CUresult bind_to(struct CUtexref_st *r, const CUDA_RESOURCE_DESC *resource)
{
    r->resource = *resource;
    r->is_bound = true;
    return bind(r);
}

/* --- of modules ------------------------------------------------------------------------------- */

/* Whether the module has a variable of that name and type. */
static bool is_declared(struct CUmod_st *m, const char *name, const char *type)
{
    const struct tl_ptx_item *item = tl_ptx_index_find(m->image->index, tl_str_of(name));
    struct tl_arena arena;
    struct tl_ptx_unit unit;
    struct tl_ptx_decl *d;
    struct tl_error err;
    if (item == NULL || item->kind != TL_PTX_ITEM_VARIABLE)
        return false;
    tl_arena_init(&arena, 0);
    bool is = tl_ptx_unit_init(&unit, m->image->index, &arena, &err) == 0 &&
              tl_ptx_parse_var(&unit, item, &d) == 0 && tl_str_is(d->type, type);
    tl_ptx_unit_finish(&unit);
    tl_arena_finish(&arena);
    return is;
}

static CUresult of_module(struct CUtexref_st **out, CUmodule m, const char *name, bool is_surface)
{
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (m == NULL || m->magic != TL_DRV_MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    const struct tl_drv_global *g = tl_drv_module_global(m, tl_str_of(name));
    if (g == NULL || !is_declared(m, name, is_surface ? "surfref" : "texref"))
        return CUDA_ERROR_NOT_FOUND;
    uint64_t *variable = tl_drv_pointer(g->address);
    tl_drv_lock();
    struct CUtexref_st *r = references;
    while (r != NULL && r->variable != variable)
        r = r->next;
    if (r == NULL && (r = create(is_surface)) != NULL) {
        r->module = m;
        r->variable = variable;
        r->next = references;
        references = r;
    }
    tl_drv_unlock();
    *out = r;
    return r != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void tl_drv_texref_forget(const struct CUmod_st *m)
{
    for (struct CUtexref_st **at = &references; *at != NULL;) {
        struct CUtexref_st *r = *at;
        if (r->module != m) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        free(tl_drv_pointer(r->object)); /* nothing of the module runs any more */
        r->magic = TL_DRV_DEAD;
        free(r);
    }
}

CUresult cuModuleGetTexRef(CUtexref *pTexRef, CUmodule hmod, const char *name)
{
    return of_module(pTexRef, hmod, name, false);
}

CUresult cuModuleGetSurfRef(CUsurfref *pSurfRef, CUmodule hmod, const char *name)
{
    return of_module((struct CUtexref_st **)(void *)pSurfRef, hmod, name, true);
}

CUresult cuTexRefCreate(CUtexref *pTexRef)
{
    if (pTexRef == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pTexRef = create(false);
    return *pTexRef != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuTexRefDestroy(CUtexref hTexRef)
{
    if (!is_reference(hTexRef, false) || hTexRef->module != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    hTexRef->magic = TL_DRV_DEAD;
    free(tl_drv_pointer(hTexRef->object));
    free(hTexRef);
    return CUDA_SUCCESS;
}

/* --- what is fetched from --------------------------------------------------------------------- */

CUresult cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags)
{
    CUDA_RESOURCE_DESC d = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = hArray};
    (void)Flags;
    if (!is_reference(hTexRef, false) || hArray == NULL || hArray->magic != TL_DRV_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    hTexRef->format = hArray->desc.Format;
    hTexRef->channels = (int)hArray->desc.NumChannels;
    return bind_to(hTexRef, &d);
}

CUresult cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray,
                                   unsigned int Flags)
{
    CUDA_RESOURCE_DESC d = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                            .res.mipmap.hMipmappedArray = hMipmappedArray};
    (void)Flags;
    return is_reference(hTexRef, false) && hMipmappedArray != NULL ? bind_to(hTexRef, &d)
                                                                   : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexRefSetAddress_v2(size_t *ByteOffset, CUtexref hTexRef, CUdeviceptr dptr, size_t bytes)
{
    if (!is_reference(hTexRef, false) || dptr == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC d = {.resType = CU_RESOURCE_TYPE_LINEAR,
                            .res.linear = {.devPtr = dptr,
                                           .format = hTexRef->format,
                                           .numChannels = (unsigned)hTexRef->channels,
                                           .sizeInBytes = bytes}};
    if (ByteOffset != NULL)
        *ByteOffset = 0;
    return bind_to(hTexRef, &d);
}

CUresult cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR *desc,
                                 CUdeviceptr dptr, size_t Pitch)
{
    if (!is_reference(hTexRef, false) || desc == NULL || dptr == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC d = {.resType = CU_RESOURCE_TYPE_PITCH2D,
                            .res.pitch2D = {.devPtr = dptr,
                                            .format = desc->Format,
                                            .numChannels = desc->NumChannels,
                                            .width = desc->Width,
                                            .height = desc->Height,
                                            .pitchInBytes = Pitch}};
    hTexRef->format = desc->Format;
    hTexRef->channels = (int)desc->NumChannels;
    return bind_to(hTexRef, &d);
}

CUresult cuTexRefSetAddress2D_v2(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR *desc,
                                 CUdeviceptr dptr, size_t Pitch)
{
    return cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch);
}

CUresult cuSurfRefSetArray(CUsurfref hSurfRef, CUarray hArray, unsigned int Flags)
{
    struct CUtexref_st *r = (struct CUtexref_st *)(void *)hSurfRef;
    CUDA_RESOURCE_DESC d = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = hArray};
    if (!is_reference(r, true) || hArray == NULL || hArray->magic != TL_DRV_ARRAY || Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return bind_to(r, &d);
}

/* --- how -------------------------------------------------------------------------------------- */

#define SET(condition, assignment)                                                                 \
    do {                                                                                           \
        if (!is_reference(hTexRef, false) || !(condition))                                         \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        assignment;                                                                                \
        return bind(hTexRef);                                                                      \
    } while (0)

#define GET(condition, assignment)                                                                 \
    do {                                                                                           \
        if (!is_reference(hTexRef, false) || !(condition))                                         \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        assignment;                                                                                \
        return CUDA_SUCCESS;                                                                       \
    } while (0)

CUresult cuTexRefSetFormat(CUtexref hTexRef, CUarray_format fmt, int NumPackedComponents)
{
    SET(NumPackedComponents >= 1 && NumPackedComponents <= 4,
        (hTexRef->format = fmt, hTexRef->channels = NumPackedComponents));
}

CUresult cuTexRefSetAddressMode(CUtexref hTexRef, int dim, CUaddress_mode am)
{
    SET(dim >= 0 && dim < 3, hTexRef->texture.addressMode[dim] = am);
}

CUresult cuTexRefSetFilterMode(CUtexref hTexRef, CUfilter_mode fm)
{
    SET(true, hTexRef->texture.filterMode = fm);
}

CUresult cuTexRefSetMipmapFilterMode(CUtexref hTexRef, CUfilter_mode fm)
{
    SET(true, hTexRef->texture.mipmapFilterMode = fm);
}

CUresult cuTexRefSetMipmapLevelBias(CUtexref hTexRef, float bias)
{
    SET(true, hTexRef->texture.mipmapLevelBias = bias);
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref hTexRef, float minMipmapLevelClamp,
                                     float maxMipmapLevelClamp)
{
    SET(true, (hTexRef->texture.minMipmapLevelClamp = minMipmapLevelClamp,
               hTexRef->texture.maxMipmapLevelClamp = maxMipmapLevelClamp));
}

CUresult cuTexRefSetMaxAnisotropy(CUtexref hTexRef, unsigned int maxAniso)
{
    SET(true, hTexRef->texture.maxAnisotropy = maxAniso);
}

CUresult cuTexRefSetBorderColor(CUtexref hTexRef, float *pBorderColor)
{
    SET(pBorderColor != NULL,
        memcpy(hTexRef->texture.borderColor, pBorderColor, sizeof hTexRef->texture.borderColor));
}

CUresult cuTexRefSetFlags(CUtexref hTexRef, unsigned int Flags)
{
    SET(true, hTexRef->texture.flags = Flags);
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr *pdptr, CUtexref hTexRef)
{
    GET(pdptr != NULL && hTexRef->is_bound && hTexRef->resource.resType == CU_RESOURCE_TYPE_LINEAR,
        *pdptr = hTexRef->resource.res.linear.devPtr);
}

CUresult cuTexRefGetArray(CUarray *phArray, CUtexref hTexRef)
{
    GET(phArray != NULL && hTexRef->is_bound && hTexRef->resource.resType == CU_RESOURCE_TYPE_ARRAY,
        *phArray = hTexRef->resource.res.array.hArray);
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray *phMipmappedArray, CUtexref hTexRef)
{
    GET(phMipmappedArray != NULL && hTexRef->is_bound &&
            hTexRef->resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
        *phMipmappedArray = hTexRef->resource.res.mipmap.hMipmappedArray);
}

CUresult cuTexRefGetAddressMode(CUaddress_mode *pam, CUtexref hTexRef, int dim)
{
    GET(pam != NULL && dim >= 0 && dim < 3, *pam = hTexRef->texture.addressMode[dim]);
}

CUresult cuTexRefGetFilterMode(CUfilter_mode *pfm, CUtexref hTexRef)
{
    GET(pfm != NULL, *pfm = hTexRef->texture.filterMode);
}

CUresult cuTexRefGetFormat(CUarray_format *pFormat, int *pNumChannels, CUtexref hTexRef)
{
    GET(pFormat != NULL && pNumChannels != NULL,
        (*pFormat = hTexRef->format, *pNumChannels = hTexRef->channels));
}

CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode *pfm, CUtexref hTexRef)
{
    GET(pfm != NULL, *pfm = hTexRef->texture.mipmapFilterMode);
}

CUresult cuTexRefGetMipmapLevelBias(float *pbias, CUtexref hTexRef)
{
    GET(pbias != NULL, *pbias = hTexRef->texture.mipmapLevelBias);
}

CUresult cuTexRefGetMipmapLevelClamp(float *pminMipmapLevelClamp, float *pmaxMipmapLevelClamp,
                                     CUtexref hTexRef)
{
    GET(pminMipmapLevelClamp != NULL && pmaxMipmapLevelClamp != NULL,
        (*pminMipmapLevelClamp = hTexRef->texture.minMipmapLevelClamp,
         *pmaxMipmapLevelClamp = hTexRef->texture.maxMipmapLevelClamp));
}

CUresult cuTexRefGetMaxAnisotropy(int *pmaxAniso, CUtexref hTexRef)
{
    GET(pmaxAniso != NULL, *pmaxAniso = (int)hTexRef->texture.maxAnisotropy);
}

CUresult cuTexRefGetBorderColor(float *pBorderColor, CUtexref hTexRef)
{
    GET(pBorderColor != NULL,
        memcpy(pBorderColor, hTexRef->texture.borderColor, sizeof hTexRef->texture.borderColor));
}

CUresult cuTexRefGetFlags(unsigned int *pFlags, CUtexref hTexRef)
{
    GET(pFlags != NULL, *pFlags = hTexRef->texture.flags);
}

CUresult cuSurfRefGetArray(CUarray *phArray, CUsurfref hSurfRef)
{
    const struct CUtexref_st *r = (const struct CUtexref_st *)(void *)hSurfRef;
    if (!is_reference(r, true) || phArray == NULL || !r->is_bound)
        return CUDA_ERROR_INVALID_VALUE;
    *phArray = r->resource.res.array.hArray;
    return CUDA_SUCCESS;
}
