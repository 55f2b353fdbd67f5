/* Stream capture: what would have been submitted becomes nodes of a graph.  A stream is in a
 * capture because it began there or because it waited for an event recorded in one. */
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/graph.h"
#include "device/driver/graph_memory.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/op.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"
#include "tally/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tl_drv_capture {
    struct CUgraph_st *graph;
    uint64_t id;
    struct CUstream_st *origin;
    bool is_invalid;
    bool is_given; /* cuStreamBeginCaptureToGraph: the graph is the caller's */
    CUstreamCaptureMode mode;
    pid_t thread;                /* that began it */
    struct tl_drv_capture *next; /* of all that there are */
};

static struct tl_drv_capture *captures TL_DRV_GUARDED;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool tl_drv_is_capturing(const struct CUstream_st *s)
{
    return s->capture != NULL;
}

static CUresult set_tail(struct CUstream_st *s, struct CUgraphNode_st *const *nodes, size_t n,
                         bool keep)
{
    size_t old = keep ? s->n_capture_tail : 0;
    struct CUgraphNode_st **tail = malloc((old + n + 1) * sizeof(struct CUgraphNode_st *));
    CUgraphEdgeData *edges = calloc(old + n + 1, sizeof *edges);
    if (tail == NULL || edges == NULL) {
        free((void *)tail);
        free(edges);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (old > 0)
        memcpy((void *)tail, (const void *)s->capture_tail, old * sizeof(struct CUgraphNode_st *));
    size_t total = old;
    for (size_t i = 0; i < n; i++) {
        bool is_new = true;
        for (size_t k = 0; k < total && is_new; k++)
            is_new = tail[k] != nodes[i];
        if (is_new)
            tail[total++] = nodes[i];
    }
    TL_CHECK(total <= old + n);
    free((void *)s->capture_tail);
    s->capture_tail = tail;
    free(s->capture_edges);
    s->capture_edges = edges;
    s->n_capture_tail = total;
    return CUDA_SUCCESS;
}

CUresult tl_drv_capture_add(struct CUstream_st *s, struct tl_drv_work *work)
{
    struct CUgraphNode_st *node;
    TL_CHECK(s->capture != NULL && s->capture->graph->magic == TL_DRV_GRAPH);
    if (s->capture->is_invalid) {
        tl_drv_node_work_finish(work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    CUresult r = tl_drv_graph_add(s->capture->graph, s->capture_tail, s->n_capture_tail, work,
                                  &node);
    return r == CUDA_SUCCESS ? set_tail(s, &node, 1, false) : r;
}

CUresult tl_drv_capture_alloc(struct CUstream_st *s, const struct tl_drv_place *place, size_t bytes,
                              CUdeviceptr *address)
{
    struct tl_drv_work work;
    CUresult r = tl_drv_graph_memory_create(place, s->ctx, s->capture->graph, bytes, &work);
    CUdeviceptr made = r == CUDA_SUCCESS ? work.memory.address : 0;
    if (r == CUDA_SUCCESS)
        r = tl_drv_capture_add(s, &work);
    if (r == CUDA_SUCCESS)
        *address = made;
    return r;
}

void tl_drv_capture_forget_event(struct CUevent_st *e)
{
    free((void *)e->nodes);
    e->nodes = NULL;
    e->n_nodes = 0;
    e->capture = NULL;
}

struct tl_drv_capture *tl_drv_capture_of(const struct CUevent_st *e)
{
    struct tl_drv_capture *c = captures;
    while (c != NULL && (e->capture == NULL || c->id != e->capture_id))
        c = c->next;
    return c;
}

void tl_drv_capture_record(struct CUstream_st *s, struct CUevent_st *e)
{
    TL_CHECK(s->capture != NULL);
    tl_drv_capture_forget_event(e);
    e->nodes = malloc((s->n_capture_tail + 1) * sizeof(struct CUgraphNode_st *));
    if (e->nodes == NULL)
        return;
    memcpy((void *)e->nodes, (const void *)s->capture_tail,
           s->n_capture_tail * sizeof(struct CUgraphNode_st *));
    e->n_nodes = s->n_capture_tail;
    e->capture = s->capture;
    e->capture_id = s->capture->id;
}

CUresult tl_drv_capture_wait(struct CUstream_st *s, struct CUevent_st *e)
{
    if (e->capture == NULL) { /* the stream is captured, the event is not */
        if (tl_drv_op_is_done(e->op) && e->op == NULL)
            return CUDA_SUCCESS;
        s->capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    /* An event of a capture that has ended is no longer one of a capture. */
    if (tl_drv_capture_of(e) == NULL) {
        tl_drv_capture_forget_event(e);
        return CUDA_SUCCESS;
    }
    if (s->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (s->capture != NULL && s->capture != e->capture) {
        s->capture->is_invalid = e->capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    bool joins = s->capture == NULL;
    s->capture = e->capture;
    return set_tail(s, e->nodes, e->n_nodes, !joins);
}

/* --- what is refused meanwhile ---------------------------------------------------------------- */

void tl_drv_capture_spoil(struct tl_drv_capture *c)
{
    if (c != NULL && tl_drv_profile()->is_strict)
        c->is_invalid = true;
}

void tl_drv_capture_spoil_context(struct CUctx_st *ctx)
{
    for (struct CUstream_st *s = ctx->streams; s != NULL; s = s->next)
        tl_drv_capture_spoil(s->capture);
}

CUresult tl_drv_capture_permit(void)
{
    CUresult r = CUDA_SUCCESS;
    pid_t self = gettid();
    if (!tl_drv_profile()->is_strict || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    tl_drv_lock();
    for (struct tl_drv_capture *c = captures; c != NULL; c = c->next) {
        bool is_own = c->thread == self && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool is_everybodys = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                             thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (is_own || is_everybodys) {
            c->is_invalid = true;
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    tl_drv_unlock();
    return r;
}

/* Whether the legacy stream would have to wait for work that is only captured. */
static bool is_in_the_way(const struct CUstream_st *legacy, const struct CUstream_st *s)
{
    return s != legacy && s->capture != NULL && (s->flags & CU_STREAM_NON_BLOCKING) == 0;
}

CUresult tl_drv_capture_legacy(struct CUstream_st *s)
{
    CUresult r = CUDA_SUCCESS;
    if (!s->is_legacy || !tl_drv_profile()->is_strict)
        return CUDA_SUCCESS;
    for (struct CUstream_st *o = s->ctx->streams; o != NULL; o = o->next) {
        if (is_in_the_way(s, o)) {
            o->capture->is_invalid = true;
            r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return r;
}

/* Asking whether the legacy stream is captured is refused as well, but spoils nothing. */
static bool is_unusable(const struct CUstream_st *s) TL_DRV_LOCKED
{
    bool is = false;
    for (const struct CUstream_st *o = s->ctx->streams; s->is_legacy && o != NULL; o = o->next)
        is |= is_in_the_way(s, o);
    return is && tl_drv_profile()->is_strict;
}

/* --- beginning and ending --------------------------------------------------------------------- */

/* Begins to capture a stream, into a new graph, or into the one that is given, behind `deps`. */
static CUresult begin(CUstream handle, CUgraph graph, const CUgraphNode *deps, size_t n,
                      CUstreamCaptureMode mode)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(handle, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (s->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (n > 0 && deps == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_capture *c = calloc(1, sizeof *c);
    if (c == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    tl_drv_lock();
    if (s->capture != NULL) {
        r = CUDA_ERROR_ILLEGAL_STATE;
    } else {
        *c = (struct tl_drv_capture){.graph = graph != NULL ? graph : tl_drv_graph_create(),
                                     .id = tl_drv.next_id++,
                                     .origin = s,
                                     .is_given = graph != NULL,
                                     .mode = mode,
                                     .thread = gettid()};
        r = c->graph != NULL ? set_tail(s, deps, n, false) : CUDA_ERROR_OUT_OF_MEMORY;
        if (r == CUDA_SUCCESS) {
            s->capture = c;
            c->next = captures;
            captures = c;
        } else if (graph == NULL) {
            tl_drv_graph_destroy(c->graph);
        }
    }
    tl_drv_unlock();
    if (r != CUDA_SUCCESS)
        free(c);
    return r;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    return begin(hStream, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCapture(CUstream hStream)
{
    return begin(hStream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode)
{
    (void)dependencyData;
    if (hGraph == NULL || hGraph->magic != TL_DRV_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    return begin(hStream, hGraph, dependencies, numDependencies, mode);
}

/* Whether everything that other streams captured leads into what the origin captured. */
static bool is_joined(const struct tl_drv_capture *c) TL_DRV_LOCKED
{
    for (const struct CUstream_st *s = c->origin->ctx->streams; s != NULL; s = s->next) {
        if (s->capture != c || s == c->origin)
            continue;
        for (size_t i = 0; i < s->n_capture_tail; i++) {
            bool leads_on = false;
            for (size_t k = 0; k < c->origin->n_capture_tail && !leads_on; k++)
                leads_on = c->origin->capture_tail[k] == s->capture_tail[i];
            for (const struct CUgraphNode_st *n = c->graph->first; n != NULL && !leads_on;
                 n = n->next)
                for (size_t k = 0; k < n->n_deps && !leads_on; k++)
                    leads_on = n->deps[k] == s->capture_tail[i];
            if (!leads_on)
                return false;
        }
    }
    return true;
}

/* Ends the capture that began in this stream, for all streams that have joined it.  If something
 * went wrong on the way, or a stream does not lead back, there is no graph.  Who captures into a
 * graph of his own need not be told which. */
CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct tl_drv_capture *c = s->capture;
    if (phGraph == NULL && (c == NULL || !c->is_given)) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else if (c == NULL) {
        r = CUDA_ERROR_ILLEGAL_STATE;
    } else if (c->origin != s) {
        r = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    } else if (c->thread != gettid() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
               tl_drv_profile()->is_strict) {
        r = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    } else {
        TL_CHECK(!s->is_legacy);
        if (c->is_invalid)
            r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        else if (!is_joined(c))
            r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        for (struct CUstream_st *o = s->ctx->streams; o != NULL; o = o->next) {
            if (o->capture == c) {
                o->capture = NULL;
                o->n_capture_tail = 0;
            }
        }
        if (phGraph != NULL)
            *phGraph = r == CUDA_SUCCESS ? c->graph : NULL;
        if (r != CUDA_SUCCESS && !c->is_given)
            tl_drv_graph_destroy(c->graph);
        for (struct tl_drv_capture **at = &captures; *at != NULL; at = &(*at)->next) {
            if (*at == c) {
                *at = c->next;
                break;
            }
        }
        free(c);
    }
    tl_drv_unlock();
    return r;
}

/* --- queries ---------------------------------------------------------------------------------- */

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edgeData_out,
                                   size_t *numDependencies_out)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (captureStatus_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    if (is_unusable(s)) {
        tl_drv_unlock();
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    const struct tl_drv_capture *c = s->capture;
    *captureStatus_out = c == NULL       ? CU_STREAM_CAPTURE_STATUS_NONE
                         : c->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (c != NULL) {
        if (id_out != NULL)
            *id_out = c->id;
        if (graph_out != NULL)
            *graph_out = c->graph;
        if (dependencies_out != NULL)
            *dependencies_out = (const CUgraphNode *)s->capture_tail;
        if (edgeData_out != NULL)
            *edgeData_out = s->capture_edges;
        if (numDependencies_out != NULL)
            *numDependencies_out = s->n_capture_tail;
    }
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   size_t *numDependencies_out)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out,
                                     dependencies_out, NULL, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                cuuint64_t *id_out)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL);
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus, NULL, NULL, NULL, NULL, NULL);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependencyData,
                                              size_t numDependencies, unsigned int flags)
{
    struct CUstream_st *s;
    (void)dependencyData;
    CUresult r = tl_drv_stream(hStream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    if (s->capture == NULL)
        r = CUDA_ERROR_ILLEGAL_STATE;
    else
        r = set_tail(s, dependencies, numDependencies, flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
    tl_drv_unlock();
    return r;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                           size_t numDependencies, unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies,
                                                flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode was = thread_mode;
    thread_mode = *mode;
    *mode = was;
    return CUDA_SUCCESS;
}
