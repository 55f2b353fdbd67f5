/* Accesses of kernels to host memory, which lies behind the bus of a GPU: counted, and made to take
 * the time of a round trip if somebody asks for that.
 *
 * Reads that do not wait for each other are on their way together, so time begins with the last of
 * them and is over where something needs what was read.  Writes go and are not waited for, nor are
 * reductions, which count as writes. */
#include "device/exec/device.h"
#include "device/exec/internal.h"
#include "tally/clock.h"

static void count(struct tl_exec_device *d, uint32_t kind)
{
    atomic_fetch_add_explicit(kind == TL_DEV_WRITE    ? &d->n_host_writes
                              : kind == TL_DEV_ATOMIC ? &d->n_host_atomics
                                                      : &d->n_host_reads,
                              1, memory_order_relaxed);
}

void tl__call_reach(struct tl_dev_frame *f, const void *address, uint32_t kind)
{
    struct tl__engine *e = tl__engine_of(f);
    struct tl__unit *u = f->process;
    tl__engine_enter_call(e);
    if (e->env->is_host(address)) {
        count(e->env->device, kind);
        if (kind != TL_DEV_WRITE)
            u->reached_ns = tl_clock_ns() + e->env->reach_ns;
    }
    tl__engine_leave_call(e);
}

void tl__call_settle(struct tl_dev_frame *f)
{
    struct tl__engine *e = tl__engine_of(f);
    struct tl__unit *u = f->process;
    if (u->reached_ns == 0)
        return;
    tl__engine_enter_call(e);
    atomic_fetch_add_explicit(&e->env->device->n_host_waits, 1, memory_order_relaxed);
    while (tl_clock_ns() < u->reached_ns)
        __builtin_ia32_pause();
    u->reached_ns = 0;
    tl__engine_leave_call(e);
}

void tl_exec_host_accesses(const struct tl_exec_device *d, struct tl_exec_host_accesses *out)
{
    *out = (struct tl_exec_host_accesses){
        .reads = atomic_load_explicit(&d->n_host_reads, memory_order_relaxed),
        .writes = atomic_load_explicit(&d->n_host_writes, memory_order_relaxed),
        .atomics = atomic_load_explicit(&d->n_host_atomics, memory_order_relaxed),
        .waits = atomic_load_explicit(&d->n_host_waits, memory_order_relaxed)};
}
