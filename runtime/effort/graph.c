/* The steps of a graph on their way into a stream, one by one: its kernels are preemptible then
 * like any others.  Branches of a graph come one after the other: CUDA never promises that they
 * run at once.  How long they take decides whether that is needed (cut.h). */
#include "runtime/effort/graph.h"

#include <stdlib.h>

#include "runtime/effort/cut.h"
#include "runtime/effort/event.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/launch.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/sums.h"

static CUresult launch_copy(const struct tl_eff_step *step, struct tl_eff_stream *s)
{
    CUDA_MEMCPY3D *shape = malloc(sizeof *shape);
    if (shape == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *shape = step->copy.shape;
    struct tl_eff_call c = {*(void **)&tl_eff_real.cuMemcpy3DAsync_v2, 2, {(uintptr_t)shape}};
    return tl_eff_defer(s, &c, 1, shape);
}

static CUresult launch_fill(const struct tl_eff_step *step, struct tl_eff_stream *s)
{
    const CUDA_MEMSET_NODE_PARAMS *f = &step->fill;
    void *function = f->elementSize == 1   ? *(void **)&tl_eff_real.cuMemsetD2D8Async
                     : f->elementSize == 2 ? *(void **)&tl_eff_real.cuMemsetD2D16Async
                                           : *(void **)&tl_eff_real.cuMemsetD2D32Async;
    size_t pitch = f->height > 1 ? f->pitch : f->width * f->elementSize;
    struct tl_eff_call c = {function, 6, {f->dst, pitch, f->value, f->width, f->height}};
    return tl_eff_defer(s, &c, 5, NULL);
}

static CUresult put_step(const struct tl_eff_step *step, struct tl_eff_stream *s)
{
    struct tl_eff_call host = {*(void **)&tl_eff_real.cuLaunchHostFunc, 3, {0}};
    switch (step->kind) {
    case TL_EFF_STEP_KERNEL:
        return tl_eff_launch_packed(s, &step->kernel.shape, step->kernel.params, step->kernel.n,
                                    step->kernel.attributes, step->kernel.n_attributes);
    case TL_EFF_STEP_COPY:
        return launch_copy(step, s);
    case TL_EFF_STEP_FILL:
        return launch_fill(step, s);
    case TL_EFF_STEP_HOST:
        host.args[1] = (uintptr_t)step->host.fn;
        host.args[2] = (uintptr_t)step->host.userData;
        return tl_eff_defer(s, &host, 0, NULL);
    case TL_EFF_STEP_RECORD:
        return tl_eff_record(step->event, s, 0);
    case TL_EFF_STEP_WAIT:
        return tl_eff_wait(s, step->event, 0);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* --- how long they take ----------------------------------------------------------------------- */

static bool is_cooperative(const struct tl_eff_step *step)
{
    for (uint32_t i = 0; i < step->kernel.n_attributes; i++) {
        if (step->kernel.attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            return true;
    }
    return false;
}

static struct tl_eff_cut_step kernel_time(const struct tl_eff_step *step,
                                          const struct tl_eff_stream *s, bool *wants_sample)
{
    struct tl_eff_packed k = tl_eff_packed(s->context, &step->kernel.shape, step->kernel.params,
                                           step->kernel.n);
    *wants_sample = k.ns == 0 || k.wants_sample;
    return (struct tl_eff_cut_step){.ns = k.ns,
                                    .is_alone = k.ns == 0 || k.is_gang || is_cooperative(step)};
}

/* A host function takes as long as it likes, and others may be queued behind an event. */
static struct tl_eff_cut_step time_of(const struct tl_eff_step *step, const struct tl_eff_stream *s,
                                      struct tl_eff_steps_time *all)
{
    struct tl_eff_cut_step t = {0};
    bool wants_sample = false;
    if (step->is_disabled)
        return t;
    switch (step->kind) {
    case TL_EFF_STEP_KERNEL:
        t = kernel_time(step, s, &wants_sample);
        all->wants_samples |= wants_sample;
        break;
    case TL_EFF_STEP_COPY: {
        const CUDA_MEMCPY3D *c = &step->copy.shape;
        t.ns = tl_eff_cut_copy_ns(c->WidthInBytes * c->Height * c->Depth, step->copy.is_on_device);
        break;
    }
    case TL_EFF_STEP_FILL:
        t.ns = tl_eff_cut_copy_ns(step->fill.elementSize * step->fill.width * step->fill.height,
                                  true);
        break;
    case TL_EFF_STEP_RECORD:
    case TL_EFF_STEP_WAIT:
        all->has_events = true;
        t.is_alone = true;
        break;
    case TL_EFF_STEP_HOST:
        t.is_alone = true;
        break;
    }
    return t;
}

struct tl_eff_steps_time tl_eff_steps_time(const struct tl_eff_steps *list,
                                           const struct tl_eff_stream *s,
                                           struct tl_eff_cut_step *steps)
{
    struct tl_eff_steps_time all = {0};
    for (uint32_t i = 0; i < list->n; i++) {
        struct tl_eff_cut_step t = time_of(&list->steps[i], s, &all);
        all.ns += t.ns;
        if (steps != NULL)
            steps[i] = t;
    }
    return all;
}

void tl_eff_steps_count(const struct tl_eff_steps *list, const struct tl_eff_stream *s)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const struct tl_eff_step *step = &list->steps[i];
        if (step->is_disabled || step->kind != TL_EFF_STEP_KERNEL)
            continue;
        const CUDA_KERNEL_NODE_PARAMS_v2 *p = &step->kernel.shape;
        uint64_t blocks = (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ;
        tl_record_launched(step->kernel.record, TL_RUNG_WHOLE, blocks);
        tl_eff_sum_launched(s->context, 1, blocks);
    }
}

CUresult tl_eff_step_launch(const struct tl_eff_step *step, struct tl_eff_stream *s)
{
    return step->is_disabled ? CUDA_SUCCESS : put_step(step, s);
}
