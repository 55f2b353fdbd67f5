/* How the driver reaches what runs kernels and keeps the device's ledger (device/driver/exec.c,
 * device/exec/exec.h). */
#ifndef TALLY_DEVICE_DRIVER_EXEC_H
#define TALLY_DEVICE_DRIVER_EXEC_H

#include "device/driver/device.h"
#include "device/driver/lock.h"
#include "device/driver/op.h"

#include <stdbool.h>
#include <stdint.h>

/* Joins the shared device and fills in its memory size and number of SMs.  0 or -errno. */
int tl_drv_exec_open(struct tl_drv_device *device) TL_DRV_LOCKED;
/* The fault of a process that shares the device, if faults are shared; else CUDA_SUCCESS. */
CUresult tl_drv_exec_fault(const struct tl_drv_device *device);
/* The ledger that all processes share.  0 or -ENOMEM. */
int tl_drv_exec_take(struct tl_drv_device *device, uint64_t bytes);
void tl_drv_exec_give(struct tl_drv_device *device, uint64_t bytes);
uint64_t tl_drv_exec_mine(struct tl_drv_device *device); /* that this process has taken */
void tl_drv_exec_info(struct tl_drv_device *device, uint64_t *free_bytes, uint64_t *total_bytes);
/* For pages; see device/exec/exec.h. */
int tl_drv_exec_demand(struct tl_drv_device *device, uint64_t bytes, uint32_t below);
void tl_drv_exec_mark(struct tl_drv_device *device, uint32_t rank, int64_t bytes);
void tl_drv_exec_serve(struct tl_drv_device *device,
                       void (*give)(void *device, uint32_t rank, uint64_t bytes));
void tl_drv_exec_bus(struct tl_drv_device *device, uint64_t bytes);
/* Whether the bus is modelled (TALLY_DEVICE_PCIE).  Then a copy runs between these two, on the
 * engine that is for its direction; `turn` is ours. */
bool tl_drv_exec_has_bus(void);
struct tl_drv_turn {
    uint64_t end_ns;
};
void tl_drv_exec_copy_begin(struct tl_drv_device *device, const struct tl_drv_copy *c,
                            struct tl_drv_turn *turn) TL_DRV_UNLOCKED;
void tl_drv_exec_copy_end(const struct tl_drv_turn *turn) TL_DRV_UNLOCKED;
/* What kernels did to host memory: reads, writes, atomics, waits. */
void tl_drv_exec_host_accesses(struct tl_drv_device *device, uint64_t out[4]);
uint64_t tl_drv_exec_worked_ns(struct tl_drv_device *device);
void tl_drv_exec_pages(bool (*f)(const void *address));
void tl_drv_exec_flush(struct tl_drv_device *device) TL_DRV_UNLOCKED; /* what kernels printed */
int tl_drv_exec_heap(struct tl_drv_device *device, uint64_t bytes);
/* Memory for parameters of kernels that kernels launch, which those may write to; NULL if there are
 * too many. */
void *tl_drv_exec_params_alloc(struct tl_drv_device *device, uint64_t bytes);
void tl_drv_exec_params_free(struct tl_drv_device *device, void *p);
/* Starts a kernel; tl_drv_op_finished follows sooner or later, from any thread. */
void tl_drv_exec_start(struct tl_drv_op *op);

#endif
