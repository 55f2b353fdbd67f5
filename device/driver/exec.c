/* The door to what runs kernels (device/exec/exec.h): the devices that all processes share, their
 * ledger of memory, and kernels on their way to the SMs and back.
 *
 * Who else knows device/exec/exec.h: device/driver/op.c, whose waiters leave the SMs' CPUs,
 * device/driver/code.c, which opens objects, device/driver/quick.c, which exchanges them,
 * device/driver/green.c for parts of the device, and device/driver/opaque.c for machine code. */
#include "device/driver/exec.h"
#include "device/driver/code.h"
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/log.h"
#include "device/driver/memory.h"
#include "device/driver/nest.h"
#include "device/driver/op.h"
#include "device/driver/profile.h"
#include "device/driver/quick.h"
#include "device/driver/state.h"
#include "device/driver/texture.h"
#include "tally/check.h"
#include "tally/level.h"

#include "device/exec/exec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* set by cuInit, constant afterwards */
static struct tl_exec_device *exec_devices[TL_DRV_MAX_DEVICES];

static void tex(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_float,
                const uint32_t *coords, uint32_t result[4])
{
    (void)f;
    tl_drv_tex(handle, kind, is_float, coords, result);
}

static void surf(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_store,
                 const int32_t coords[4], uint32_t bytes, uint32_t clamp, uint32_t data[4])
{
    if (!tl_drv_surf(handle, kind, is_store, coords, bytes, clamp, data))
        f->calls->fault(f, 0, TL_DEV_FAULT_ADDRESS, handle);
}

/* Under MPS a fatal fault of one client reaches all that share the GPU ("Error Containment" in the
 * documentation of MPS); TALLY_DEVICE_FAULTS says whether it does here: shared or own. */
static bool shares_faults(void)
{
    const char *text = secure_getenv("TALLY_DEVICE_FAULTS");
    if (text != NULL && strcmp(text, "own") == 0)
        return false;
    return tl_drv_profile()->is_strict || (text != NULL && strcmp(text, "shared") == 0);
}

/* `otherwise` for what the table of allocations does not know. */
static bool lies_on_host(const void *address, bool otherwise)
{
    tl_drv_lock();
    const struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)address);
    bool is = a == NULL ? otherwise : a->kind == TL_DRV_HOST_MEMORY || a->kind == TL_DRV_REGISTERED;
    tl_drv_unlock();
    return is;
}

/* Of a kernel's address.  The heap of its malloc, for one, is in no table. */
static bool is_host(const void *address)
{
    return lies_on_host(address, false);
}

/* set by cuInit, constant afterwards */
static bool has_bus;

bool tl_drv_exec_has_bus(void)
{
    return has_bus;
}

/* Engines are for directions, the last for what stays on the device; with two, that shares the one
 * of what comes in.  What stays on the host needs none. */
void tl_drv_exec_copy_begin(struct tl_drv_device *device, const struct tl_drv_copy *c,
                            struct tl_drv_turn *turn)
{
    *turn = (struct tl_drv_turn){0};
    if (!has_bus)
        return;
    bool from = lies_on_host(c->from, true), to = lies_on_host(c->to, true);
    if (from && to)
        return;
    const struct tl_drv_profile *p = tl_drv_profile();
    uint32_t direction = from ? 0 : to ? 1 : 2;
    uint32_t engine = direction % (uint32_t)(p->copy_engines > 0 ? p->copy_engines : 1);
    uint64_t bytes = (uint64_t)c->width * c->height * c->depth;
    /* inside the device it goes at the speed of its memory, which is not modelled */
    struct tl_exec_turn t = tl_exec_engine(exec_devices[device->ordinal], engine,
                                           direction == 2 ? 0 : bytes, (uint64_t)p->reach_ns);
    tl_exec_wait_until(t.begin_ns);
    turn->end_ns = t.end_ns;
}

void tl_drv_exec_copy_end(const struct tl_drv_turn *turn)
{
    if (turn->end_ns != 0)
        tl_exec_wait_until(turn->end_ns);
}

/* TALLY_DEVICE_PCIE: what a read of the host's memory takes, in nanoseconds, or the profile's
 * guess; -EINVAL.  Not set: nothing, and accesses are not even counted. */
static int read_reach(struct tl_exec_config *config)
{
    const char *text = secure_getenv("TALLY_DEVICE_PCIE");
    char *end = NULL;
    if (text == NULL || *text == 0 || strcmp(text, "no") == 0)
        return 0;
    config->is_host = is_host;
    has_bus = true;
    config->reach_ns = (uint64_t)tl_drv_profile()->reach_ns;
    if (strcmp(text, "yes") == 0)
        return 0;
    config->reach_ns = strtoull(text, &end, 10);
    return *end == 0 && *text != '-' && config->reach_ns <= 1000000 ? 0 : -EINVAL;
}

CUresult tl_drv_exec_fault(const struct tl_drv_device *device)
{
    return (CUresult)tl_exec_domain_fault(exec_devices[device->ordinal]);
}

/* Who is above level 0 has places on the device that others do not get. */
static bool is_preferred(void)
{
    const char *text = secure_getenv("TALLY_PRIORITY");
    int level = 0;
    return text != NULL && tl_level_parse(text, &level) == 0 && level > 0;
}

int tl_drv_exec_open(struct tl_drv_device *device)
{
    struct tl_error err = {0};
    uint64_t left;
    /* The profile's, unless somebody says how many there shall be. */
    int sms = secure_getenv("TALLY_DEVICE_SMS") == NULL ? tl_drv_profile()->sms : 0;
    struct tl_exec_config config = {.ordinal = (uint32_t)device->number,
                                    .tex = tex,
                                    .surf = surf,
                                    .n_told = (uint32_t)sms,
                                    .shares_faults = shares_faults(),
                                    .is_preferred = is_preferred(),
                                    .has_own_cpus = tl_drv.n_physical == 1};
    if (secure_getenv("TALLY_DEVICE_MEM") == NULL)
        config.memory_bytes = (uint64_t)8 << 30;
    if (read_reach(&config) < 0) {
        tl_drv_tell_why_not(
            "no device: TALLY_DEVICE_PCIE is yes, no or a number of nanoseconds up to 1000000");
        return -EINVAL;
    }
    int rc = tl_exec_device_open(&exec_devices[device->ordinal], &config, &err);
    if (rc < 0) {
        tl_drv_tell_why_not("no device: %s", err.text);
        return rc;
    }
    device->slots = (int)tl_exec_device_slots(exec_devices[device->ordinal]);
    device->sms = sms > 0 ? sms : device->slots;
    int resident = (int)tl_exec_device_blocks_per_sm(exec_devices[device->ordinal]);
    device->sm_blocks = tl_drv_profile()->sm_blocks;
    if (resident != 0 && resident < device->sm_blocks)
        device->sm_blocks = resident;
    tl_exec_memory_info(exec_devices[device->ordinal], &left, &device->memory_bytes);
    return 0;
}

int tl_drv_exec_take(struct tl_drv_device *device, uint64_t bytes)
{
    return tl_exec_memory_take(exec_devices[device->ordinal], bytes);
}

void tl_drv_exec_give(struct tl_drv_device *device, uint64_t bytes)
{
    tl_exec_memory_give(exec_devices[device->ordinal], bytes);
}

uint64_t tl_drv_exec_mine(struct tl_drv_device *device)
{
    return tl_exec_memory_mine(exec_devices[device->ordinal]);
}

void tl_drv_exec_info(struct tl_drv_device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    tl_exec_memory_info(exec_devices[device->ordinal], free_bytes, total_bytes);
}

int tl_drv_exec_demand(struct tl_drv_device *device, uint64_t bytes, uint32_t below)
{
    return tl_exec_memory_demand(exec_devices[device->ordinal], bytes, below);
}

void tl_drv_exec_mark(struct tl_drv_device *device, uint32_t rank, int64_t bytes)
{
    tl_exec_memory_mark(exec_devices[device->ordinal], rank, bytes);
}

void tl_drv_exec_serve(struct tl_drv_device *device,
                       void (*give)(void *device, uint32_t rank, uint64_t bytes))
{
    tl_exec_memory_serve(exec_devices[device->ordinal], give, device);
}

void tl_drv_exec_bus(struct tl_drv_device *device, uint64_t bytes)
{
    tl_exec_bus(exec_devices[device->ordinal], bytes);
}

void tl_drv_exec_host_accesses(struct tl_drv_device *device, uint64_t out[4])
{
    struct tl_exec_host_accesses n;
    tl_exec_host_accesses(exec_devices[device->ordinal], &n);
    out[0] = n.reads;
    out[1] = n.writes;
    out[2] = n.atomics;
    out[3] = n.waits;
}

uint64_t tl_drv_exec_worked_ns(struct tl_drv_device *device)
{
    return tl_exec_worked_ns(exec_devices[device->ordinal]);
}

void tl_drv_exec_pages(bool (*f)(const void *address))
{
    tl_exec_pages(f);
}

void tl_drv_exec_flush(struct tl_drv_device *device)
{
    tl_exec_printf_flush(exec_devices[device->ordinal]);
}

int tl_drv_exec_heap(struct tl_drv_device *device, uint64_t bytes)
{
    return tl_exec_heap_limit(exec_devices[device->ordinal], bytes);
}

void *tl_drv_exec_params_alloc(struct tl_drv_device *device, uint64_t bytes)
{
    return tl_exec_params_alloc(exec_devices[device->ordinal], bytes);
}

void tl_drv_exec_params_free(struct tl_drv_device *device, void *p)
{
    tl_exec_params_free(exec_devices[device->ordinal], p);
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* An operation's part of what is with the SMs. */
struct tl_drv_exec_launch {
    struct tl_exec_launch launch;
    struct tl_drv_quick_run quick; /* without code if it is none of a quick version */
    struct tl_drv_nest *nest;      /* what it has launched itself, or NULL */
};

static CUresult result_of(const struct tl_exec_fault *fault)
{
    switch (fault->what) {
    case TL_DEV_FAULT_NONE:
        return CUDA_SUCCESS;
    case TL_DEV_FAULT_ASSERT:
        return CUDA_ERROR_ASSERT;
    case TL_DEV_FAULT_MISALIGNED:
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    case TL_DEV_FAULT_ADDRESS:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case TL_DEV_FAULT_STACK:
        return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case TL_DEV_FAULT_TIMEOUT:
        return CUDA_ERROR_LAUNCH_TIMEOUT;
    case TL_DEV_FAULT_BARRIER:
    case TL_DEV_FAULT_TENSOR:
        return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    default:
        return CUDA_ERROR_LAUNCH_FAILED;
    }
}

/* Which allocation a bad address lies next to: mostly that tells the mistake. */
static void explain(uintptr_t address)
{
    const struct tl_drv_alloc *before = NULL;
    tl_drv_lock();
    for (size_t i = 0; i < tl_drv.n_allocs && tl_drv.allocs[i]->base <= address; i++)
        before = tl_drv.allocs[i];
    if (before != NULL && address - before->base < before->bytes)
        tl_drv_log("0x%zx is inside an allocation of %zu bytes, at %zu", (size_t)address,
                   before->bytes, (size_t)(address - before->base));
    else if (before != NULL)
        tl_drv_log("0x%zx is %zu bytes behind the end of an allocation of %zu bytes",
                   (size_t)address, (size_t)(address - before->base - before->bytes),
                   before->bytes);
    tl_drv_unlock();
}

static void done(struct tl_exec_launch *l)
{
    struct tl_drv_op *op = l->user;
    CUresult r = result_of(&l->fault);
    tl_drv_quick_end(&op->exec->quick, l->end_ns > l->begin_ns ? l->end_ns - l->begin_ns : 0);
    if (r != CUDA_SUCCESS) {
        struct tl_exec_device *d = exec_devices[op->ctx->device->ordinal];
        /* What the device itself could not do is told; a program's mistakes only to who asks. */
        if (l->fault.what == TL_DEV_FAULT_BARRIER || r == CUDA_ERROR_LAUNCH_FAILED)
            tl_drv_warn("%s", l->fault.text);
        else
            tl_drv_log("%s", l->fault.text);
        tl_exec_domain_fail(d, r);
        if (tl_exec_domain_fault(d) != 0) /* perhaps another's, which ended this one */
            r = (CUresult)tl_exec_domain_fault(d);
        if (l->fault.what == TL_DEV_FAULT_ADDRESS)
            explain((uintptr_t)l->fault.detail);
    }
    if (op->exec->nest == NULL) {
        tl_drv_op_finished(op, r);
        return;
    }
    if (r != CUDA_SUCCESS)
        tl_drv_context_fail(op->ctx, r);
    tl_drv_nest_over(op->exec->nest);
}

static uint64_t ask(struct tl_exec_launch *l, uint64_t block, uint32_t thread, uint32_t what,
                    const uint64_t args[7])
{
    struct tl_drv_op *op = l->user;
    return tl_drv_nest_ask(op, &op->exec->nest, block, thread, what, args);
}

void tl_drv_exec_start(struct tl_drv_op *op)
{
    const struct tl_drv_launch *w = &op->work.launch;
    TL_CHECK(op->work.kind == TL_DRV_LAUNCH && w->code != NULL);
    if (op->exec == NULL)
        op->exec = malloc(sizeof *op->exec);
    if (op->exec == NULL) {
        tl_drv_op_finished(op, CUDA_ERROR_OUT_OF_MEMORY);
        return;
    }
    struct tl_exec_launch *l = &op->exec->launch;
    memset(op->exec, 0, sizeof *op->exec);
    memcpy(l->grid, w->grid, sizeof l->grid);
    l->dynamic_shared_bytes = w->shared_bytes;
    l->params = w->params;
    /* CUDA's higher priorities are lower numbers */
    l->priority = -w->priority - tl_drv.below_normal;
    l->partition = tl_drv_green_partition(op->ctx);
    l->done = done;
    l->runtime = ask;
    l->user = op;
    struct tl_exec_device *d = exec_devices[op->ctx->device->ordinal];
    struct tl_drv_code *code = w->code;
    if (code->is_quick) {
        op->exec->quick = (struct tl_drv_quick_run){.code = code, .device = d, .launch = l};
        code = tl_drv_quick_begin(&op->exec->quick);
    }
    l->object = code->object;
    l->variables = code->variables;
    int rc = tl_exec_submit(d, l);
    if (rc < 0)
        tl_drv_quick_end(&op->exec->quick, 0);
    if (rc < 0)
        tl_drv_op_finished(op, rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
                                             : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}
