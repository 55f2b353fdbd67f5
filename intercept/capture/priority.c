/* Stream priorities.  What runs on a GPU at the same time, as clients of MPS do, is ranked by the
 * priorities of its streams, whoever's they are, and programs choose theirs for themselves: PyTorch
 * puts communication above everything.  So a job that gives way has all its work at the least
 * priority, and one of the highest level has its streams one step above what it asks for:
 *
 *     asked for            0 (usual)   -1   -2   -3   -4   -5 (most urgent)
 *     highest level           -1       -2   -3   -4   -5   -5
 *     other levels             0        0    0    0    0    0
 *
 * Whatever the program asks about them, it is told what it asked for.  The default streams have the
 * usual priority and no way to another; in a job that gives way that is the least.
 *
 *     streams   made, changed and copied: cuStreamCreate and its kin, attributes
 *     launches  with an attribute of their own
 *     graphs    priorities of single nodes count only in an executable that was made to use them, which those of jobs that
 *               give way are not; without that all of it has the priority of the stream that it is launched in */
#include "intercept/capture/capture.h"
#include "intercept/capture/map.h"
#include "intercept/memory/memory.h"

#include <stdlib.h>
#include <string.h>

#include "tally/lock.h"

/* What the program thinks of a stream. */
struct asked {
    CUcontext ctx;
    int priority;
    bool is_gone; /* with its context */
};

/* Guards what is known of streams and executables; nothing here is on the way of a launch. */
static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static struct tl_map streams = TL_MAP_GUARDED;
static struct tl_map execs = TL_MAP_GUARDED; /* those that were asked to use priorities of nodes */

void tl_priority_forked(void)
{
    tl_mutex_init(&lock);
    tl_map_forked(&streams);
    tl_map_forked(&execs);
}

/* --- which priority --- */

struct range {
    int least, greatest; /* the greatest is the lower number */
};

/* Of the current context; without one, or with a driver that knows none, all are the same. */
static struct range range(void)
{
    struct range r = {0, 0};
    if (TL_REAL(cuCtxGetStreamPriorityRange)(&r.least, &r.greatest) != CUDA_SUCCESS)
        r = (struct range){0, 0};
    return r;
}

static bool is_lower(void)
{
    return tl_client_level(tl_job.client) < TL_LEVEL_HIGH;
}

/* As the driver takes it. */
static int clamp(struct range r, int asked)
{
    return asked > r.least ? r.least : asked < r.greatest ? r.greatest : asked;
}

/* What it becomes. */
static int moved(struct range r, int asked)
{
    if (tl_job.client == NULL)
        return asked;
    return is_lower() ? r.least : clamp(r, clamp(r, asked) - 1);
}

/* --- what is known of streams --- */

static void forget(CUstream stream) TL_REQUIRES(lock);
static void forget(CUstream stream)
{
    struct asked *a = tl_map_find(&streams, (uintptr_t)stream);
    if (a != NULL)
        tl_map_put(&streams, (uintptr_t)stream, NULL);
    free(a);
}

/* Nothing is known of a stream that has what it asked for. */
static void note(CUstream stream, int asked, bool is_moved)
{
    CUcontext ctx = NULL;
    struct asked *a = is_moved ? malloc(sizeof *a) : NULL;
    if (a != NULL && TL_REAL(cuStreamGetCtx)(stream, &ctx) != CUDA_SUCCESS)
        ctx = NULL;
    tl_mutex_lock(&lock);
    forget(stream);
    if (a != NULL) {
        *a = (struct asked){.ctx = ctx, .priority = asked};
        if (tl_map_put(&streams, (uintptr_t)stream, a) < 0)
            free(a);
    }
    tl_mutex_unlock(&lock);
}

/* Whether the stream has another priority than it asked for, which is told. */
static bool was_moved(CUstream stream, int *asked)
{
    tl_mutex_lock(&lock);
    const struct asked *a = tl_map_find(&streams, (uintptr_t)stream);
    if (a != NULL)
        *asked = a->priority;
    tl_mutex_unlock(&lock);
    return a != NULL;
}

void tl_priority_gone(CUstream stream)
{
    tl_mutex_lock(&lock);
    forget(stream);
    tl_mutex_unlock(&lock);
}

static void went_with(void *ctx, uintptr_t key, void *value)
{
    struct asked *a = value;
    (void)key;
    a->is_gone |= a->ctx == ctx;
}

void tl_priority_context_gone(CUcontext ctx)
{
    tl_mutex_lock(&lock);
    tl_map_each(&streams, went_with, ctx);
    tl_mutex_unlock(&lock);
}

static void lower(void *least, uintptr_t key, void *value)
{
    const struct asked *a = value;
    CUlaunchAttributeValue v = {.priority = *(const int *)least};
    if (!a->is_gone) /* NOLINTNEXTLINE(performance-no-int-to-ptr) */
        TL_REAL(cuStreamSetAttribute)((CUstream)key, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v);
}

void tl_priority_lower(void)
{
    int least = 0; /* the least of every GPU so far; no context need be current here */
    tl_mutex_lock(&lock);
    tl_map_each(&streams, lower, &least);
    tl_mutex_unlock(&lock);
}

/* --- streams that are made --- */

static CUresult hook_cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    struct range range_of = range();
    int asked = clamp(range_of, priority), given = moved(range_of, asked);
    CUresult r = TL_REAL(cuStreamCreateWithPriority)(stream, flags, given);
    if (r == CUDA_SUCCESS)
        note(*stream, asked, given != asked);
    return r;
}

static CUresult hook_cuStreamCreate(CUstream *stream, unsigned flags)
{
    int given = moved(range(), 0);
    if (given != 0 && tl_driver_has(TL_NAME_cuStreamCreateWithPriority))
        return hook_cuStreamCreateWithPriority(stream, flags, 0);
    CUresult r = TL_REAL(cuStreamCreate)(stream, flags);
    if (r == CUDA_SUCCESS)
        note(*stream, 0, false);
    return r;
}

static CUresult hook_cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags,
                                            int priority)
{
    struct range range_of = range();
    int asked = clamp(range_of, priority), given = moved(range_of, asked);
    CUresult r = TL_REAL(cuGreenCtxStreamCreate)(stream, green, flags, given);
    if (r == CUDA_SUCCESS)
        note(*stream, asked, given != asked);
    return r;
}

#define DESTROY(name)                                                                              \
    static CUresult hook_##name(CUstream stream)                                                   \
    {                                                                                              \
        tl_priority_gone(stream);                                                                  \
        return TL_REAL(name)(stream);                                                              \
    }
DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)

/* --- and asked about, or changed --- */

#define TWINS(define) define() define(_ptsz)

#define GET_PRIORITY(suffix)                                                                       \
    static CUresult hook_cuStreamGetPriority##suffix(CUstream stream, int *priority)               \
    {                                                                                              \
        CUresult r = TL_REAL(cuStreamGetPriority##suffix)(stream, priority);                       \
        if (r == CUDA_SUCCESS)                                                                     \
            was_moved(stream, priority);                                                           \
        return r;                                                                                  \
    }
TWINS(GET_PRIORITY)

#define GET_ATTRIBUTE(suffix)                                                                      \
    static CUresult hook_cuStreamGetAttribute##suffix(CUstream stream, CUstreamAttrID id,          \
                                                      CUstreamAttrValue *value)                    \
    {                                                                                              \
        CUresult r = TL_REAL(cuStreamGetAttribute##suffix)(stream, id, value);                     \
        if (r == CUDA_SUCCESS && id == CU_LAUNCH_ATTRIBUTE_PRIORITY)                               \
            was_moved(stream, &value->priority);                                                   \
        return r;                                                                                  \
    }
TWINS(GET_ATTRIBUTE)

#define SET_ATTRIBUTE(suffix)                                                                      \
    static CUresult hook_cuStreamSetAttribute##suffix(CUstream stream, CUstreamAttrID id,          \
                                                      const CUstreamAttrValue *value)              \
    {                                                                                              \
        if (id != CU_LAUNCH_ATTRIBUTE_PRIORITY || value == NULL)                                   \
            return TL_REAL(cuStreamSetAttribute##suffix)(stream, id, value);                       \
        struct range range_of = range();                                                           \
        CUstreamAttrValue given = *value;                                                          \
        int asked = clamp(range_of, value->priority);                                              \
        given.priority = moved(range_of, asked);                                                   \
        CUresult r = TL_REAL(cuStreamSetAttribute##suffix)(stream, id, &given);                    \
        if (r == CUDA_SUCCESS)                                                                     \
            note(stream, asked, given.priority != asked);                                          \
        return r;                                                                                  \
    }
TWINS(SET_ATTRIBUTE)

#define COPY_ATTRIBUTES(suffix)                                                                    \
    static CUresult hook_cuStreamCopyAttributes##suffix(CUstream to, CUstream from)                \
    {                                                                                              \
        int asked = 0;                                                                             \
        CUresult r = TL_REAL(cuStreamCopyAttributes##suffix)(to, from);                            \
        bool is_moved = was_moved(from, &asked);                                                   \
        if (r == CUDA_SUCCESS)                                                                     \
            note(to, asked, is_moved);                                                             \
        return r;                                                                                  \
    }
TWINS(COPY_ATTRIBUTES)

/* --- launches with a priority of their own --- */

enum { MANY = 32 }; /* attributes that there are, and more */

/* A copy of the attributes in which the priority is what it becomes; false if there is none to be
 * changed. */
static bool move_attribute(const CUlaunchConfig *config, CUlaunchAttribute *attributes)
{
    bool has_it = false;
    if (config == NULL || config->attrs == NULL || config->numAttrs > MANY)
        return false;
    for (unsigned i = 0; i < config->numAttrs; i++)
        has_it |= config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY;
    if (!has_it)
        return false;
    struct range range_of = range();
    memcpy(attributes, config->attrs, config->numAttrs * sizeof *attributes);
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            attributes[i].value.priority = moved(range_of, attributes[i].value.priority);
    return true;
}

#define LAUNCH(suffix)                                                                             \
    CUresult tl_priority_launch##suffix(const CUlaunchConfig *config, CUfunction f, void **params, \
                                        void **extra)                                              \
    {                                                                                              \
        CUlaunchAttribute attributes[MANY];                                                        \
        if (!move_attribute(config, attributes))                                                   \
            return TL_REAL(cuLaunchKernelEx##suffix)(config, f, params, extra);                    \
        CUlaunchConfig changed = *config;                                                          \
        changed.attrs = attributes;                                                                \
        return TL_REAL(cuLaunchKernelEx##suffix)(&changed, f, params, extra);                      \
    }
TWINS(LAUNCH)

/* --- graphs --- */

/* The flags of an executable, and whether one of them is kept back. */
static unsigned long long flags_for(unsigned long long asked, bool *is_kept_back)
{
    unsigned long long own = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    *is_kept_back = (asked & own) != 0 && tl_job.client != NULL && is_lower();
    return *is_kept_back ? asked & ~own : asked;
}

static CUresult made(CUresult r, const CUgraphExec *exec, CUgraph graph, bool is_kept_back)
{
    static char mark;
    if (r == CUDA_SUCCESS) {
        tl_mutex_lock(&lock);
        tl_map_put(&execs, (uintptr_t)*exec, is_kept_back ? &mark : NULL);
        tl_mutex_unlock(&lock);
        tl_memory_graph_made(*exec, graph);
    }
    return r;
}

static CUresult hook_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                                 unsigned long long flags)
{
    bool is_kept_back;
    flags = flags_for(flags, &is_kept_back);
    return made(TL_REAL(cuGraphInstantiateWithFlags)(exec, graph, flags), exec, graph,
                is_kept_back);
}

#define WITH_PARAMS(suffix)                                                                        \
    static CUresult hook_cuGraphInstantiateWithParams##suffix(                                     \
        CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)                   \
    {                                                                                              \
        bool is_kept_back;                                                                         \
        if (params == NULL)                                                                        \
            return TL_REAL(cuGraphInstantiateWithParams##suffix)(exec, graph, params);             \
        cuuint64_t asked = params->flags;                                                          \
        params->flags = flags_for(asked, &is_kept_back);                                           \
        CUresult r = TL_REAL(cuGraphInstantiateWithParams##suffix)(exec, graph, params);           \
        params->flags = asked;                                                                     \
        return made(r, exec, graph, is_kept_back);                                                 \
    }
TWINS(WITH_PARAMS)

static CUresult hook_cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    CUresult r = TL_REAL(cuGraphExecGetFlags)(exec, flags);
    tl_mutex_lock(&lock);
    if (r == CUDA_SUCCESS && tl_map_find(&execs, (uintptr_t)exec) != NULL)
        *flags |= CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    tl_mutex_unlock(&lock);
    return r;
}

static CUresult hook_cuGraphExecDestroy(CUgraphExec exec)
{
    tl_mutex_lock(&lock);
    if (tl_map_find(&execs, (uintptr_t)exec) != NULL)
        tl_map_put(&execs, (uintptr_t)exec, NULL);
    tl_mutex_unlock(&lock);
    tl_memory_graph_gone(exec); /* before another one may get its name */
    return TL_REAL(cuGraphExecDestroy)(exec);
}

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
const struct tl_hook tl_priority_hooks[] = {
    HOOK(cuStreamCreate), HOOK(cuStreamCreateWithPriority), HOOK(cuGreenCtxStreamCreate), HOOK(cuStreamDestroy), HOOK(cuStreamDestroy_v2),
    HOOK(cuStreamGetPriority), HOOK(cuStreamGetPriority_ptsz), HOOK(cuStreamGetAttribute), HOOK(cuStreamGetAttribute_ptsz),
    HOOK(cuStreamSetAttribute), HOOK(cuStreamSetAttribute_ptsz), HOOK(cuStreamCopyAttributes), HOOK(cuStreamCopyAttributes_ptsz),
    {"cuLaunchKernelEx", (void *)tl_priority_launch}, {"cuLaunchKernelEx_ptsz", (void *)tl_priority_launch_ptsz},
    HOOK(cuGraphInstantiateWithFlags), HOOK(cuGraphInstantiateWithParams), HOOK(cuGraphInstantiateWithParams_ptsz),
    HOOK(cuGraphExecGetFlags), HOOK(cuGraphExecDestroy),
    {NULL, NULL},
};
/* clang-format on */
