/* Accesses that may go over the bus, for who wants them to take time (frame->has_bus).
 *
 * Those that other threads may race with are looked at, atomics among them: they are what programs
 * poll and tell the host with.  An access is told to the process when it is made.  What was read is
 * waited for where something needs it, as a GPU does: loads that do not need each other are on
 * their way together. */
#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"

static LLVMValueRef has_bus(struct tl_emit *e)
{
    LLVMValueRef flag = tl_field(e, offsetof(struct tl_dev_frame, has_bus), e->i32);
    return LLVMBuildICmp(e->b, LLVMIntNE, flag, LLVMConstInt(e->i32, 0, false), "");
}

void tl_bus_reach(struct tl_emit *e, LLVMValueRef pointer, uint32_t kind)
{
    struct tl_if i;
    tl_if_begin(e, &i, has_bus(e));
    LLVMValueRef args[3] = {e->f->frame, pointer, LLVMConstInt(e->i32, kind, false)};
    tl_call_frame(e, offsetof(struct tl_dev_calls, reach), e->voidt, args, 3);
    tl_if_end(e, &i);
    e->f->has_read |= kind != TL_DEV_WRITE;
}

static void look(void *data, struct tl_ptx_sym *reg)
{
    struct tl_fn *f = data;
    for (uint32_t i = 0; i < f->n_read; i++)
        f->is_needed |= f->read[i] == reg;
}

static void note(void *data, struct tl_ptx_sym *reg)
{
    struct tl_fn *f = data;
    if (f->n_read < sizeof f->read / sizeof *f->read)
        f->read[f->n_read++] = reg;
    else
        f->is_needed = true; /* at the next instruction, at the latest */
}

void tl_bus_settle(struct tl_emit *e)
{
    struct tl_fn *f = e->f;
    struct tl_if i;
    if (!f->is_reading)
        return;
    f->is_reading = f->is_needed = false;
    f->n_read = 0;
    tl_if_begin(e, &i, has_bus(e));
    tl_call_frame(e, offsetof(struct tl_dev_calls, settle), e->voidt, &f->frame, 1);
    tl_if_end(e, &i);
}

void tl_bus_before(struct tl_emit *e, const struct tl_ptx_stmt *s)
{
    if (!e->f->is_reading)
        return;
    tl_ptx_inst_reads(s, look, e->f);
    tl_ptx_inst_writes(s, look, e->f);
    if (e->f->is_needed)
        tl_bus_settle(e);
}

void tl_bus_behind(struct tl_emit *e, const struct tl_ptx_stmt *s)
{
    struct tl_fn *f = e->f;
    if (!f->has_read)
        return;
    f->has_read = false;
    f->is_reading = true;
    tl_ptx_inst_writes(s, note, f);
}
