/* Streams that are captured into a graph (device/driver/capture.c). */
#ifndef TALLY_DEVICE_DRIVER_CAPTURE_H
#define TALLY_DEVICE_DRIVER_CAPTURE_H

#include "device/driver/device.h"
#include "device/driver/memory.h"
#include "device/driver/stream.h"
#include "device/driver/work.h"

/* Adds work to the graph being captured; takes it. */
CUresult tl_drv_capture_add(struct CUstream_st *s, struct tl_drv_work *work) TL_DRV_LOCKED;
/* Adds a node that allocates, and tells what. */
CUresult tl_drv_capture_alloc(struct CUstream_st *s, const struct tl_drv_place *place, size_t bytes,
                              CUdeviceptr *address) TL_DRV_LOCKED;
CUresult tl_drv_capture_wait(struct CUstream_st *s, struct CUevent_st *e) TL_DRV_LOCKED;
void tl_drv_capture_record(struct CUstream_st *s, struct CUevent_st *e) TL_DRV_LOCKED;
/* lock need not be held by the thread that captures */
bool tl_drv_is_capturing(const struct CUstream_st *s);
/* The capture that the event was recorded in, if that has not ended; else NULL. */
struct tl_drv_capture *tl_drv_capture_of(const struct CUevent_st *e) TL_DRV_LOCKED;
void tl_drv_capture_forget_event(struct CUevent_st *e) TL_DRV_LOCKED;

/* What a profile that is strict refuses while streams are captured; others refuse nothing of it.
 * What is refused makes the captures that it would have disturbed invalid, as the programming guide
 * says ("Prohibited and Unhandled Operations"). */

/* Before a call that is no work of a stream, such as an allocation:
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if this thread's mode forbids it
 * (cuThreadExchangeStreamCaptureMode). */
CUresult tl_drv_capture_permit(void) TL_DRV_UNLOCKED;
/* Before work, a wait or a question of that stream: CUDA_ERROR_STREAM_CAPTURE_IMPLICIT if it is the
 * legacy one and a stream is captured that waits for it. */
CUresult tl_drv_capture_legacy(struct CUstream_st *s) TL_DRV_LOCKED;
/* Something was asked of a stream that is captured, or of a captured event, that cannot be. */
void tl_drv_capture_spoil(struct tl_drv_capture *c) TL_DRV_LOCKED;
void tl_drv_capture_spoil_context(struct CUctx_st *ctx) TL_DRV_LOCKED;

#endif
