/* cuGetProcAddress: the function of that name, of the newest version that is not newer than asked
 * for, nor than the profile's driver.  A wrong version would be a wrong signature, so the table
 * comes from NVIDIA's headers (scripts/gen-driver-table). */
#include "device/driver/handle.h"
#include "device/driver/log.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *name, const void *row)
{
    return strcmp(name, ((const struct tl_drv_proc *)row)->name);
}

/* The newest version of a function that is not newer than asked for; for each thread's own
 * default stream, if that is asked for. */
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus)
{
    const struct tl_drv_proc *best = NULL, *end = tl_drv_procs + tl_drv_n_procs;
    if (symbol == NULL || pfn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = NULL;
    const struct tl_drv_proc *row = bsearch(symbol, tl_drv_procs, tl_drv_n_procs, sizeof *row,
                                            by_name);
    while (row != NULL && row > tl_drv_procs && strcmp(row[-1].name, symbol) == 0)
        row--;
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    bool is_known = false;
    for (; row != NULL && row < end && strcmp(row->name, symbol) == 0; row++) {
        if (row->version > tl_drv_profile()->driver_version)
            continue; /* the driver is too old to have it */
        is_known = true;
        if (row->version > cudaVersion || (row->is_per_thread && !per_thread))
            continue;
        if (best == NULL || row->is_per_thread > best->is_per_thread ||
            (row->is_per_thread == best->is_per_thread && row->version > best->version))
            best = row;
    }
    if (symbolStatus != NULL)
        *symbolStatus = is_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (best == NULL)
        return CUDA_ERROR_NOT_FOUND;
    if (best->pointer == NULL) {
        tl_drv_log("cuGetProcAddress: %s is not implemented", best->symbol);
        if (symbolStatus != NULL)
            *symbolStatus = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return CUDA_ERROR_NOT_FOUND;
    }
    *pfn = best->pointer;
    if (symbolStatus != NULL)
        *symbolStatus = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
}
