/* A device as this process sees it. */
#ifndef TALLY_DEVICE_DRIVER_DEVICE_H
#define TALLY_DEVICE_DRIVER_DEVICE_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"

#include <stdbool.h>

#include <stdint.h>

enum { TL_DRV_MAX_DEVICES = 8 };

/* Set by cuInit and constant afterwards, but for what the lock guards. */
struct tl_drv_device {
    int ordinal;
    int number; /* among all, also those that CUDA_VISIBLE_DEVICES hides */
    char name[64];
    CUuuid uuid;
    int pci_bus;
    uint64_t memory_bytes;
    uint64_t used_bytes TL_DRV_GUARDED;
    struct CUctx_st *primary TL_DRV_GUARDED;
    struct CUgreenCtx_st *greens TL_DRV_GUARDED; /* on the primary context */
    unsigned primary_flags;
    struct CUmemPoolHandle_st *default_pool, *pool;
    /* what nodes of graphs allocate; nobody has its handle */
    struct CUmemPoolHandle_st *graph_pool;
    int sms;       /* that it reports */
    int slots;     /* blocks that run at a time, of all processes */
    int sm_blocks; /* that an SM has side by side at most */
};

CUresult tl_drv_device(CUdevice ordinal, struct tl_drv_device **out);
int tl_drv_device_attribute(const struct tl_drv_device *d, CUdevice_attribute attribute);

/* Reads TALLY_DEVICE_CC, once. */
void tl_drv_capability_read(void);
/* What to tell the code at that address. */
void tl_drv_capability_for(const void *caller, int *major, int *minor);
/* The newest architecture that the compilers in this process know (90), 120 if there is none or it
 * knows more; `file` gets the name of the library that told, or "". */
int tl_drv_compiler_arch(char *file, size_t size);
/* Whether NVRTC is loaded. */
bool tl_drv_has_nvrtc(void);

#endif
