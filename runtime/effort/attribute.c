/* What a job sets for kernels, launches and streams besides their shape.
 *
 *     of a launch   cache window, domain of memory synchronisation, priority, carve-out: go with each piece
 *                   cluster, cooperation, overlap with the kernel in front, events inside: it runs whole, and the record says why
 *     of a kernel   carve-out and cache configuration: given to its variants when they are chosen and it was changed
 *                   a cluster that the job requires of it: it runs whole
 *     of a stream   given to the streams of ours in which its work stands, too: slices of one kernel in two domains would not see
 *                   what the others write in the order that the kernel relies on
 *
 * The limit of dynamic shared memory is a variant's own, raised as launches need it
 * (runtime/effort/variant.c). */
#include "runtime/effort/attribute.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/effort/hooks.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/variant.h"

/* --- launches --------------------------------------------------------------------------------- */

/* of later CUDA than the oldest headers that this is built with */
enum { PREFERRED_CLUSTER = 11, COMPLETION_EVENT = 12, UPDATABLE = 13, CARVEOUT = 14, NVLINK = 16 };

static bool is_cluster(const CUlaunchAttributeValue *v)
{
    return (uint64_t)v->clusterDim.x * v->clusterDim.y * v->clusterDim.z > 1;
}

/* Why a launch with that attribute is not cut, or NULL. */
static const char *objection_to(const CUlaunchAttribute *a)
{
    switch ((int)a->id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: /* of clusters of one block */
    case CARVEOUT:
    case NVLINK:
        return NULL;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        return a->value.cooperative != 0 ? "its launch is cooperative" : NULL;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case PREFERRED_CLUSTER:
        return is_cluster(&a->value) ? "its blocks form clusters" : NULL;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        return a->value.programmaticStreamSerializationAllowed != 0
                   ? "it may begin before the kernel in front of it has ended"
                   : NULL;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case COMPLETION_EVENT:
        return "an event is recorded while it runs";
    case UPDATABLE:
        return "kernels may change it";
    default:
        return "its launch has an attribute that is not known here";
    }
}

void tl_eff_attributes_take(struct tl_eff_launch *l, const CUlaunchAttribute *list, unsigned n)
{
    if (l->objection == NULL && n > TL_EFF_MAX_ATTRIBUTES)
        l->objection = "its launch has many attributes";
    for (unsigned i = 0; i < n && l->objection == NULL; i++) {
        l->objection = objection_to(&list[i]);
        l->attributes[l->n_attributes++] = list[i];
    }
}

/* Whether it says something that a launch without it would not. */
static bool matters(CUlaunchAttributeID id, const CUlaunchAttributeValue *v)
{
    switch ((int)id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return v->accessPolicyWindow.num_bytes > 0;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return v->memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return v->memSyncDomainMap.default_ != 0 || v->memSyncDomainMap.remote != 0;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case PREFERRED_CLUSTER:
        return is_cluster(v);
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        return v->cooperative != 0;
    case UPDATABLE:
        return v->deviceUpdatableKernelNode.deviceUpdatable != 0;
    default:
        return false;
    }
}

int tl_eff_attributes_of_node(CUgraphNode node, CUlaunchAttribute out[TL_EFF_MAX_ATTRIBUTES])
{
    static const int asked[] = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                                CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                                CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
                                PREFERRED_CLUSTER,
                                UPDATABLE};
    _Static_assert(sizeof asked / sizeof *asked <= TL_EFF_MAX_ATTRIBUTES, "they fit");
    int n = 0;
    for (uint32_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        CUlaunchAttribute a = {.id = (CUlaunchAttributeID)asked[i]};
        if (tl_eff_real.cuGraphKernelNodeGetAttribute(node, a.id, &a.value) != CUDA_SUCCESS ||
            !matters(a.id, &a.value))
            continue;
        if (a.id != CU_LAUNCH_ATTRIBUTE_COOPERATIVE && objection_to(&a) != NULL)
            return -ENOTSUP;
        out[n++] = a;
    }
    return n;
}

CUresult tl_eff_launch_form(const struct tl_eff_launch *l, CUfunction f, const uint32_t grid[3],
                            uint32_t shared_bytes, CUstream stream, void **params, void **extra)
{
    if (l->n_attributes == 0 || tl_eff_real.cuLaunchKernelEx == NULL)
        return tl_eff_real.cuLaunchKernel(f, grid[0], grid[1], grid[2], l->block[0], l->block[1],
                                          l->block[2], shared_bytes, stream, params, extra);
    CUlaunchConfig config = {.gridDimX = grid[0],
                             .gridDimY = grid[1],
                             .gridDimZ = grid[2],
                             .blockDimX = l->block[0],
                             .blockDimY = l->block[1],
                             .blockDimZ = l->block[2],
                             .sharedMemBytes = shared_bytes,
                             .hStream = stream,
                             .attrs = (CUlaunchAttribute *)l->attributes,
                             .numAttrs = l->n_attributes};
    return tl_eff_real.cuLaunchKernelEx(&config, f, params, extra);
}

/* --- kernels ---------------------------------------------------------------------------------- */

static _Atomic uint32_t n_changes; /* of attributes of kernels, by the job */

/* What the driver says of the original; `otherwise` if it does not say. */
static int original(const struct tl_eff_kernel *k, CUfunction_attribute id, int otherwise)
{
    int value = otherwise;
    return tl_eff_real.cuFuncGetAttribute(&value, id, k->function) == CUDA_SUCCESS ? value
                                                                                   : otherwise;
}

/* Cache configurations cannot be asked for; the shim has seen them pass. */
static int cache_config(const struct tl_eff_kernel *k)
{
    const struct tl_captured_kernel *of_function = k->is_library ? tl_eff.shim->kernel(k->function)
                                                                 : NULL;
    int config = __atomic_load_n(&k->captured->cache_config, __ATOMIC_RELAXED);
    return config == CU_FUNC_CACHE_PREFER_NONE && of_function != NULL
               ? __atomic_load_n(&of_function->cache_config, __ATOMIC_RELAXED)
               : config;
}

const char *tl_eff_follow_original(struct tl_eff_variant *v)
{
    struct tl_eff_kernel *k = v->kernel;
    int config = cache_config(k);
    uint32_t now = atomic_load_explicit(&n_changes, memory_order_acquire) + 1;
    if (config != v->cache_config && tl_eff_real.cuFuncSetCacheConfig != NULL &&
        tl_eff_real.cuFuncSetCacheConfig(v->function, (CUfunc_cache)config) == CUDA_SUCCESS)
        v->cache_config = config;
    if (v->followed == now)
        return v->objection;
    v->followed = now;
    v->objection = original(k, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 0) > 1 ||
                           original(k, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 0) > 1 ||
                           original(k, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 0) > 1
                       ? "its blocks form clusters"
                       : NULL;
    int carveout = original(k, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, v->carveout);
    if (carveout != v->carveout &&
        tl_eff_real.cuFuncSetAttribute(v->function,
                                       CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                       carveout) == CUDA_SUCCESS) {
        v->carveout = carveout;
        v->rooms.n = k->rooms.n = 0; /* other blocks may fit now */
    }
    return v->objection;
}

/* Whether a function is to be allowed less dynamic shared memory than it is.  That is left as it
 * is, since launches of it may be waiting that were asked for when more was allowed: cuDNN sets the
 * limit for every launch anew. */
static bool is_lowering(CUfunction f, CUfunction_attribute id, int value)
{
    int now = 0;
    return id == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 &&
           tl_eff_real.cuFuncGetAttribute(&now, id, f) == CUDA_SUCCESS && value < now;
}

static CUresult hook_cuFuncSetAttribute(CUfunction f, CUfunction_attribute id, int value)
{
    if (is_lowering(f, id, value))
        return CUDA_SUCCESS;
    CUresult r = tl_eff_real.cuFuncSetAttribute(f, id, value);
    atomic_fetch_add_explicit(&n_changes, 1, memory_order_release);
    return r;
}

static CUresult hook_cuKernelSetAttribute(CUfunction_attribute id, int value, CUkernel kernel,
                                          CUdevice device)
{
    CUfunction f;
    if (id == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
        tl_eff_real.cuKernelGetFunction != NULL &&
        tl_eff_real.cuKernelGetFunction(&f, kernel) == CUDA_SUCCESS && is_lowering(f, id, value))
        return CUDA_SUCCESS;
    CUresult r = tl_eff_real.cuKernelSetAttribute(id, value, kernel, device);
    atomic_fetch_add_explicit(&n_changes, 1, memory_order_release);
    return r;
}

/* --- streams ---------------------------------------------------------------------------------- */

bool tl_eff_has_attributes(CUstream stream)
{
    static const CUstreamAttrID asked[] = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                                           CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                                           CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP};
    for (uint32_t i = 0;
         tl_eff_real.cuStreamGetAttribute != NULL && i < sizeof asked / sizeof *asked; i++) {
        CUstreamAttrValue v;
        memset(&v, 0, sizeof v);
        if (tl_eff_real.cuStreamGetAttribute(stream, asked[i], &v) == CUDA_SUCCESS &&
            matters(asked[i], &v))
            return true;
    }
    return false;
}

void tl_eff_follow_stream(const struct tl_eff_stream *s, CUstream beside)
{
    if (s->has_attributes && beside != s->handle && tl_eff_real.cuStreamCopyAttributes != NULL)
        tl_eff_real.cuStreamCopyAttributes(beside, s->handle);
}

/* In its turn: what was asked for before has the old ones. */
TL_EFF_UNLOCKED static CUresult change(struct tl_eff_stream *s, const struct tl_eff_call *c)
{
    struct tl_eff_turn turn;
    tl_eff_turn_begin(&turn, s, false);
    CUresult r = tl_eff_invoke(c);
    tl_eff_lock();
    s->has_attributes |= r == CUDA_SUCCESS;
    tl_eff_unlock();
    tl_eff_turn_end(&turn, r);
    return r;
}

static CUresult set(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value,
                    bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    return change(s,
                  &(struct tl_eff_call){tl_eff.shim->real("cuStreamSetAttribute"),
                                        3,
                                        {(uintptr_t)s->handle, (uintptr_t)id, (uintptr_t)value}});
}

static CUresult copy(CUstream to, CUstream from, bool is_per_thread)
{
    struct tl_eff_stream *s, *source;
    CUresult r = tl_eff_stream(to, is_per_thread, &s);
    if (r == CUDA_SUCCESS)
        r = tl_eff_stream(from, is_per_thread, &source);
    if (r != CUDA_SUCCESS)
        return r;
    return change(s, &(struct tl_eff_call){tl_eff.shim->real("cuStreamCopyAttributes"),
                                           2,
                                           {(uintptr_t)s->handle, (uintptr_t)source->handle}});
}

static CUresult hook_cuStreamSetAttribute(CUstream stream, CUstreamAttrID id,
                                          const CUstreamAttrValue *value)
{
    return set(stream, id, value, false);
}

static CUresult hook_cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID id,
                                               const CUstreamAttrValue *value)
{
    return set(stream, id, value, true);
}

static CUresult hook_cuStreamCopyAttributes(CUstream to, CUstream from)
{
    return copy(to, from, false);
}

static CUresult hook_cuStreamCopyAttributes_ptsz(CUstream to, CUstream from)
{
    return copy(to, from, true);
}

#define ROW(name) {#name, (void *)hook_##name},
const struct tl_hook tl_eff_attribute_hooks[] = {
    ROW(cuFuncSetAttribute) ROW(cuKernelSetAttribute) ROW(cuStreamSetAttribute)
        ROW(cuStreamSetAttribute_ptsz) ROW(cuStreamCopyAttributes)
            ROW(cuStreamCopyAttributes_ptsz){NULL, NULL},
};
