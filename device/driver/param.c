/* Launching as it was before CUDA 4: a function's block size and parameters are set one by one,
 * then it is launched. What was set stays set for the next launch. */
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/module.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PARAMETERS = 32764 };

struct tl_drv_settings { /* guarded by the driver's lock */
    uint32_t block[3];
    uint32_t shared_bytes;
    uint32_t param_bytes;
    uint8_t params[MOST_PARAMETERS];
};

/* The function, with settings, which last as long as it does. */
static CUresult enter(CUfunction handle, struct CUfunc_st **f) TL_DRV_UNLOCKED
{
    CUresult r = tl_drv_function(handle, f);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    if ((*f)->settings == NULL)
        (*f)->settings = calloc(1, sizeof *(*f)->settings);
    if ((*f)->settings == NULL)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    tl_drv_unlock();
    return r;
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
    struct CUfunc_st *f;
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter(hfunc, &f);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    f->settings->block[0] = (uint32_t)x;
    f->settings->block[1] = (uint32_t)y;
    f->settings->block[2] = (uint32_t)z;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
    struct CUfunc_st *f;
    CUresult r = enter(hfunc, &f);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    f->settings->shared_bytes = bytes;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
    struct CUfunc_st *f;
    if (numbytes > MOST_PARAMETERS)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter(hfunc, &f);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    f->settings->param_bytes = numbytes;
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
    struct CUfunc_st *f;
    if (ptr == NULL || offset < 0 || offset > MOST_PARAMETERS ||
        numbytes > MOST_PARAMETERS - (unsigned)offset)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter(hfunc, &f);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    memcpy(f->settings->params + offset, ptr, numbytes);
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
    return cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value)
{
    return cuParamSetv(hfunc, offset, &value, sizeof value);
}

/* Textures are found by their names, so there is nothing to say. */
CUresult cuParamSetTexRef(CUfunction hfunc, int texunit, CUtexref hTexRef)
{
    struct CUfunc_st *f;
    if (texunit != CU_PARAM_TR_DEFAULT || hTexRef == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return tl_drv_function(hfunc, &f);
}

static CUresult launch(CUfunction handle, int width, int height, CUstream stream)
{
    struct CUfunc_st *f;
    if (width <= 0 || height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter(handle, &f);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct tl_drv_settings s = *f->settings;
    tl_drv_unlock();
    size_t bytes = s.param_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, s.params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    return cuLaunchKernel(handle, (unsigned)width, (unsigned)height, 1, s.block[0], s.block[1],
                          s.block[2], s.shared_bytes, stream, NULL, extra);
}

CUresult cuLaunch(CUfunction f)
{
    return launch(f, 1, 1, NULL);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
    return launch(f, grid_width, grid_height, NULL);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
    return launch(f, grid_width, grid_height, hStream);
}
