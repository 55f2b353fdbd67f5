/* placeholder */
#include "device/driver.h"
CUresult tl_drv_capture_add(struct CUstream_st *s, struct tl_drv_work *work)
{
    (void)s;
    tl_drv_work_finish(work);
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult tl_drv_capture_wait(struct CUstream_st *s, struct CUevent_st *e)
{
    (void)s;
    (void)e;
    return CUDA_ERROR_NOT_SUPPORTED;
}
void tl_drv_capture_record(struct CUstream_st *s, struct CUevent_st *e)
{
    (void)s;
    (void)e;
}
bool tl_drv_is_capturing(const struct CUstream_st *s)
{
    return s->capture != NULL;
}
void tl_drv_capture_forget_event(struct CUevent_st *e)
{
    (void)e;
}
