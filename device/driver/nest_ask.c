/* What threads of a kernel ask of CUDA's device runtime (device/nest.h), by workers that are inside
 * the kernel, on its stack: nothing is compiled or computed here. */
#include "device/driver/context.h"
#include "device/driver/device.h"
#include "device/driver/exec.h"
#include "device/driver/graph_run.h"
#include "device/driver/launch.h"
#include "device/driver/module.h"
#include "device/driver/nest_own.h"
#include "device/driver/state.h"
#include "tally/ptx.h"

#include "device/abi.h"
#include "device/nest.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 24 }; /* CUDA's */

/* --- launching -------------------------------------------------------------------------------- */

static struct tl_str bytes_of(const void *p, size_t n)
{
    return (struct tl_str){p, n};
}

/* Looks among the entries of the module that the kernel is of. */
static struct CUfunc_st *seek(const struct tl_drv_nest *n, uint64_t address)
{
    struct CUmod_st *m = n->op->work.launch.function->module;
    struct CUfunc_st *f = NULL;
    for (uint32_t i = 0; f == NULL && i < m->image->n_items; i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(m->image->index, i);
        if (item->kind != TL_PTX_ITEM_ENTRY || item->body == 0 ||
            tl_dev_function_address(item->name.p, item->name.n) != address)
            continue;
        char *name = strndup(item->name.p, item->name.n);
        if (name == NULL || tl_drv_module_function(m, name, &f) != CUDA_SUCCESS)
            f = NULL;
        free(name);
    }
    return f;
}

/* The kernel of the same module that has this address (tl_dev_function_address), or NULL. */
static struct CUfunc_st *find_function(struct tl_drv_nest *n, uint64_t address)
{
    tl_drv_lock();
    struct tl_drv_nest_known *k = tl_table_get(&n->known, bytes_of(&address, sizeof address));
    struct CUfunc_st *f = k != NULL ? k->function : NULL;
    tl_drv_unlock();
    if (f != NULL || (f = seek(n, address)) == NULL)
        return f;
    k = calloc(1, sizeof *k);
    if (k == NULL)
        return f;
    *k = (struct tl_drv_nest_known){.address = address, .function = f};
    tl_drv_lock();
    void **at = tl_table_place(&n->known, bytes_of(&k->address, sizeof k->address));
    if (at != NULL && *at == NULL)
        *at = k;
    else
        free(k); /* another thread was faster */
    tl_drv_unlock();
    return f;
}

/* Notes the thread's error, which it can ask for. */
static void blame(struct tl_drv_nest *n, const uint64_t who[2], uint64_t error)
{
    struct tl_drv_nest_mistake *m = calloc(1, sizeof *m);
    if (m == NULL)
        return;
    memcpy(m->who, who, sizeof m->who);
    tl_drv_lock();
    void **at = tl_table_place(&n->mistakes, bytes_of(m->who, sizeof m->who));
    if (at != NULL && *at == NULL)
        *at = m;
    else
        free(m);
    if (at != NULL)
        ((struct tl_drv_nest_mistake *)*at)->error = error;
    tl_drv_unlock();
}

static uint64_t last_error(struct tl_drv_nest *n, const uint64_t who[2], bool forgets) TL_DRV_LOCKED
{
    struct tl_drv_nest_mistake *m = tl_table_get(&n->mistakes, bytes_of(who, 2 * sizeof *who));
    uint64_t error = m != NULL ? m->error : NEST_OK;
    if (m != NULL && forgets)
        m->error = NEST_OK;
    return error;
}

/* Room for the parameters of a launch, or 0 with the reason. */
static uint64_t take_buffer(struct tl_drv_nest *n, const uint64_t args[7], uint64_t *error)
{
    const struct tl_drv_launch *parent = &n->op->work.launch;
    struct CUfunc_st *f = find_function(n, args[0]);
    struct tl_drv_nest_buffer *b = f != NULL ? calloc(1, sizeof *b) : NULL;
    if (b == NULL) {
        *error = f == NULL ? NEST_INVALID_FUNCTION : NEST_OUT_OF_MEMORY;
        return 0;
    }
    b->launch = (struct tl_drv_launch){
        .function = f,
        .grid = {(uint32_t)args[1], (uint32_t)(args[1] >> 32), (uint32_t)args[2]},
        .block = {(uint32_t)args[3], (uint32_t)(args[3] >> 32), (uint32_t)args[4]},
        .shared_bytes = (uint32_t)(args[2] >> 32),
        .param_bytes = f->info->param_bytes,
        .priority = parent->priority,
        .sms = parent->sms,
        .depth = parent->depth + 1};
    if (tl_drv_launch_check(&b->launch) != CUDA_SUCCESS)
        *error = NEST_INVALID_CONFIGURATION;
    else if (b->launch.depth > MOST_DEPTH)
        *error = NEST_TOO_DEEP;
    else if ((b->params = tl_drv_exec_params_alloc(n->op->ctx->device,
                                                   f->info->param_bytes + 16u)) == NULL)
        *error = NEST_TOO_MANY;
    if (b->params == NULL) {
        free(b);
        return 0;
    }
    tl_drv_lock();
    b->next = n->buffers;
    n->buffers = b;
    tl_drv_unlock();
    return (uintptr_t)b->params;
}

static uint64_t launch(struct tl_drv_nest *n, uint64_t where, uint64_t stream)
{
    tl_drv_lock();
    struct tl_drv_nest_buffer **at = &n->buffers;
    while (*at != NULL && (uintptr_t)(*at)->params != where)
        at = &(*at)->next;
    struct tl_drv_nest_buffer *b = *at;
    if (b != NULL)
        *at = b->next;
    tl_drv_unlock();
    if (b == NULL)
        return NEST_INVALID_VALUE;
    struct tl_drv_work work = {.kind = TL_DRV_LAUNCH, .launch = b->launch};
    work.launch.params = malloc(b->launch.param_bytes + 16u);
    if (work.launch.params != NULL)
        memcpy(work.launch.params, b->params, b->launch.param_bytes);
    tl_drv_exec_params_free(n->op->ctx->device, b->params);
    free(b);
    if (work.launch.params == NULL)
        return NEST_OUT_OF_MEMORY;
    return tl_drv_nest_submit(n, &work, stream);
}

/* --- the rest --------------------------------------------------------------------------------- */

/* Of the device's memory only, also where that is the host's: not of the program's own. */
static uint64_t copy(struct tl_drv_nest *n, const uint64_t args[7])
{
    const CUDA_MEMCPY3D p = {.dstMemoryType = CU_MEMORYTYPE_DEVICE,
                             .dstDevice = args[0],
                             .dstPitch = args[5] == 1 ? 0 : args[1],
                             .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = args[2],
                             .srcPitch = args[5] == 1 ? 0 : args[3],
                             .WidthInBytes = args[4],
                             .Height = args[5],
                             .Depth = 1};
    struct tl_drv_work work = {.kind = TL_DRV_COPY};
    if (args[4] == 0 || args[5] == 0)
        return NEST_OK;
    if (tl_drv_plan_3d(&p, &work.copy) != CUDA_SUCCESS)
        return NEST_INVALID_VALUE;
    return tl_drv_nest_submit(n, &work, args[6]);
}

static uint64_t fill(struct tl_drv_nest *n, const uint64_t args[7])
{
    struct tl_drv_work work = {.kind = TL_DRV_FILL,
                               .fill = {.to = tl_drv_pointer(args[0]),
                                        .pitch = args[4] == 1 ? args[3] : args[1],
                                        .value = (uint8_t)args[2],
                                        .width = args[3],
                                        .height = args[4],
                                        .element = 1}};
    if (args[3] == 0 || args[4] == 0)
        return NEST_OK;
    if (tl_drv_fill_check(&work.fill) != CUDA_SUCCESS)
        return NEST_INVALID_VALUE;
    return tl_drv_nest_submit(n, &work, args[5]);
}

static uint64_t value_or_error(CUresult r, int value)
{
    return r == CUDA_SUCCESS ? (uint32_t)value : (uint64_t)NEST_INVALID_VALUE << 32;
}

static uint64_t attribute(uint64_t which, uint64_t device)
{
    int value = 0;
    CUresult r = cuDeviceGetAttribute(&value, (CUdevice_attribute)which, (CUdevice)device);
    return value_or_error(r, value);
}

static uint64_t occupancy(struct tl_drv_nest *n, const uint64_t args[7])
{
    int blocks = 0;
    struct CUfunc_st *f = find_function(n, args[0]);
    if (f == NULL)
        return (uint64_t)NEST_INVALID_FUNCTION << 32;
    CUresult r = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, (int)args[1], args[2]);
    return value_or_error(r, blocks);
}

static uint64_t launch_graph(const struct tl_drv_nest *n, uint64_t handle, uint64_t stream)
{
    uint64_t how = stream >> TL_NEST_STREAM_GRAPH_SHIFT;
    if (how << TL_NEST_STREAM_GRAPH_SHIFT != stream || how < TL_DRV_GRAPH_TAIL ||
        how > TL_DRV_GRAPH_SIBLING)
        return NEST_INVALID_VALUE;
    return tl_drv_graph_run_launch(n->op->work.launch.run, handle, (enum tl_drv_graph_how)how);
}

/* What needs no more than the lock. */
static uint64_t ask_locked(struct tl_drv_nest *n, const uint64_t who[2], uint32_t what,
                           const uint64_t args[7]) TL_DRV_LOCKED
{
    switch (what) {
    case TL_NEST_STREAM:
    case TL_NEST_EVENT:
        return tl_drv_nest_new_place(n, what == TL_NEST_EVENT);
    case TL_NEST_STREAM_END:
    case TL_NEST_EVENT_END:
        return tl_drv_nest_end_place(n, args[0], what == TL_NEST_EVENT_END);
    case TL_NEST_RECORD:
        return tl_drv_nest_record(n, args[0], args[1]);
    case TL_NEST_LAST_ERROR:
        return last_error(n, who, args[0] != 0);
    case TL_NEST_DEVICE:
        return (uint64_t)n->op->ctx->device->ordinal;
    case TL_NEST_DEVICES:
        return (uint64_t)tl_drv.n_devices;
    case TL_NEST_GRAPH_SELF:
        return tl_drv_graph_run_handle(n->op->work.launch.run);
    default:
        return NEST_INVALID_VALUE;
    }
}

/* The answer where there is no memory for the nest: an error, or what is none. */
static uint64_t no_memory(uint32_t what)
{
    switch (what) {
    case TL_NEST_BUFFER:
    case TL_NEST_STREAM:
    case TL_NEST_EVENT:
    case TL_NEST_GRAPH_SELF:
    case TL_NEST_DEVICE:
    case TL_NEST_DEVICES:
        return 0;
    case TL_NEST_ATTRIBUTE:
    case TL_NEST_OCCUPANCY:
        return (uint64_t)NEST_OUT_OF_MEMORY << 32;
    default:
        return NEST_OUT_OF_MEMORY;
    }
}

uint64_t tl_drv_nest_ask(struct tl_drv_op *op, struct tl_drv_nest **nest, uint64_t block,
                         uint32_t thread, uint32_t what, const uint64_t args[7])
{
    const uint64_t who[2] = {block, thread};
    uint64_t answer, error = NEST_OK;
    tl_drv_lock();
    struct tl_drv_nest *n = tl_drv_nest_of(op, nest);
    tl_drv_unlock();
    if (n == NULL)
        return no_memory(what);
    switch (what) {
    case TL_NEST_BUFFER:
        answer = take_buffer(n, args, &error);
        break;
    case TL_NEST_LAUNCH:
        answer = error = launch(n, args[0], args[1]);
        break;
    case TL_NEST_WAIT:
        answer = error = tl_drv_nest_wait(n, args[0], args[1]);
        break;
    case TL_NEST_COPY:
        answer = error = copy(n, args);
        break;
    case TL_NEST_FILL:
        answer = error = fill(n, args);
        break;
    case TL_NEST_GRAPH:
        answer = error = launch_graph(n, args[0], args[1]);
        break;
    case TL_NEST_ATTRIBUTE:
        answer = attribute(args[0], args[1]);
        break;
    case TL_NEST_OCCUPANCY:
        answer = occupancy(n, args);
        break;
    default:
        tl_drv_lock();
        answer = ask_locked(n, who, what, args);
        tl_drv_unlock();
        break;
    }
    if (error != NEST_OK)
        blame(n, who, error);
    return answer;
}

void tl_drv_nest_forget(struct tl_drv_nest *n)
{
    while (n->buffers != NULL) {
        struct tl_drv_nest_buffer *b = n->buffers;
        n->buffers = b->next;
        tl_drv_exec_params_free(n->op->ctx->device, b->params);
        free(b);
    }
    uint32_t at = 0;
    for (void *p; (p = tl_table_next(&n->known, &at)) != NULL;)
        free(p);
    at = 0;
    for (void *p; (p = tl_table_next(&n->mistakes, &at)) != NULL;)
        free(p);
    tl_table_finish(&n->known);
    tl_table_finish(&n->mistakes);
}
