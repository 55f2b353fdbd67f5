/* Running a compiled kernel; see the header. */
#include "test/unit/device/jit/launch.h"

#include <errno.h>
#include <semaphore.h>

struct waiter {
    sem_t done;
    struct tl_exec_fault fault;
};

static void launch_done(struct tl_exec_launch *l)
{
    struct waiter *w = l->user;
    w->fault = l->fault;
    sem_post(&w->done);
}

bool jit_launch(struct tl_exec_device *device, struct tl_exec_launch *l, struct tl_error *err)
{
    struct waiter w = {0};
    l->done = launch_done;
    l->user = &w;
    sem_init(&w.done, 0, 0);
    if (tl_exec_submit(device, l) < 0) {
        tl_error_set(err, -EINVAL, "submit refused the launch");
        return false;
    }
    while (sem_wait(&w.done) < 0)
        continue;
    if (w.fault.what != TL_DEV_FAULT_NONE)
        tl_error_set(err, -EIO, "%s", w.fault.text);
    return w.fault.what == TL_DEV_FAULT_NONE;
}
