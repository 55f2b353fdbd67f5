/* Streams that are captured into a graph (device/driver/capture.c). */
#ifndef TALLY_DEVICE_DRIVER_CAPTURE_H
#define TALLY_DEVICE_DRIVER_CAPTURE_H

#include "device/driver/device.h"
#include "device/driver/stream.h"
#include "device/driver/work.h"

/* Adds work to the graph being captured; takes it. */
CUresult tl_drv_capture_add(struct CUstream_st *s, struct tl_drv_work *work) TL_DRV_LOCKED;
/* Adds a node that allocates, and tells what. */
CUresult tl_drv_capture_alloc(struct CUstream_st *s, struct tl_drv_device *device, size_t bytes,
                              CUdeviceptr *address) TL_DRV_LOCKED;
CUresult tl_drv_capture_wait(struct CUstream_st *s, struct CUevent_st *e) TL_DRV_LOCKED;
void tl_drv_capture_record(struct CUstream_st *s, struct CUevent_st *e) TL_DRV_LOCKED;
/* lock need not be held by the thread that captures */
bool tl_drv_is_capturing(const struct CUstream_st *s);
void tl_drv_capture_forget_event(struct CUevent_st *e) TL_DRV_LOCKED;

#endif
