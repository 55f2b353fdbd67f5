/* CUDA graphs inside the driver.  Everything is guarded by the driver's lock. */
#ifndef TALLY_DEVICE_DRIVER_GRAPH_H
#define TALLY_DEVICE_DRIVER_GRAPH_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/op.h"
#include "device/driver/work.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUgraphNode_st {
    uint32_t magic;
    struct CUgraph_st *graph;
    struct CUgraphNode_st *next;   /* in the graph, in the order of creation */
    struct CUgraphNode_st *origin; /* in a clone or an executable: the node it was copied from */
    struct CUgraphNode_st **deps;
    size_t n_deps;
    struct tl_drv_work work;
    CUDA_MEMCPY3D copy;               /* as given, for the getters */
    void **param_pointers;            /* of a kernel node, made by the getter */
    CUstreamBatchMemOpParams *memops; /* of a node of such, made by the getter */
    bool is_disabled;
    struct CUgraphNode_st *mark; /* scratch of cloning */
    struct tl_drv_op *op;        /* scratch of launching */
    uint32_t seen;               /* scratch of sorting */
};

struct CUgraph_st {
    uint32_t magic;
    struct CUgraphNode_st *first, **last;
    size_t n;
    bool is_child; /* belongs to a node */
    bool is_moved; /* and was somebody's before */
    /* nodes that allocate or free; children's are asked for by tl_drv_graph_has_memory */
    bool has_memory;
    /* of a graph with such nodes: the one executable that may be, or NULL */
    struct CUgraphExec_st *exec;
    struct tl_drv_handle *handles;
    struct tl_drv_held *objects; /* references to user objects (device/driver/graph_object.c) */
};

/* What a conditional node does. */
struct tl_drv_conditional {
    atomic_uint refs; /* the node's and those of gates under way */
    struct tl_drv_handle *handle;
    CUgraphConditionalNodeType type;
    unsigned n;
    struct CUgraph_st *bodies[];
};

struct CUgraphExec_st {
    uint32_t magic;
    struct CUgraph_st *graph; /* a copy */
    /* with nodes of memory: the graph that this is the executable of, while it is there */
    struct CUgraph_st *source;
    struct CUgraphNode_st **order; /* predecessors first */
    /* of the latest launch, a reference: launches of one executable come one by one */
    struct tl_drv_op *last;
    uint64_t flags;
    bool has_conditions, has_memory;
    /* of those that kernels may launch (device/driver/graph_run.c) */
    struct CUgraphExec_st *next_allowed;
    uint64_t number; /* others that come to be at its address have another; 0: not for kernels */
    bool is_uploaded;
    bool is_tail; /* a launch of it waits for another one's end */
};

static inline bool tl_drv_is_graph(CUgraph g)
{
    return g != NULL && g->magic == TL_DRV_GRAPH;
}

static inline bool tl_drv_is_node(CUgraphNode n)
{
    return n != NULL && n->magic == TL_DRV_NODE;
}

static inline bool tl_drv_is_exec(CUgraphExec e)
{
    return e != NULL && e->magic == TL_DRV_GRAPH_EXEC;
}

/* Predecessors first (Kahn's algorithm).  CUDA_ERROR_INVALID_VALUE if there is a cycle. */
CUresult tl_drv_graph_sort(struct CUgraph_st *g, struct CUgraphNode_st ***out) TL_DRV_LOCKED;
struct CUgraph_st *tl_drv_graph_create(void);
void tl_drv_graph_destroy(struct CUgraph_st *g) TL_DRV_LOCKED;
struct CUgraph_st *tl_drv_graph_clone(struct CUgraph_st *g) TL_DRV_LOCKED;
/* Takes the work (in any case). */
CUresult tl_drv_graph_add(struct CUgraph_st *g, struct CUgraphNode_st *const *deps, size_t n_deps,
                          struct tl_drv_work *work, struct CUgraphNode_st **out) TL_DRV_LOCKED;
CUresult tl_drv_node_depend(struct CUgraphNode_st *node, struct CUgraphNode_st *on) TL_DRV_LOCKED;
/* A copy of what a node does, with buffers of its own. */
CUresult tl_drv_work_copy(struct tl_drv_work *to, const struct tl_drv_work *from) TL_DRV_LOCKED;
void tl_drv_node_work_finish(struct tl_drv_work *work) TL_DRV_LOCKED; /* child graphs as well */
CUresult tl_drv_work_of_kernel(const CUDA_KERNEL_NODE_PARAMS_v2 *p,
                               struct tl_drv_work *work) TL_DRV_UNLOCKED;
CUresult tl_drv_work_of_fill(const CUDA_MEMSET_NODE_PARAMS *p,
                             struct tl_drv_work *work) TL_DRV_UNLOCKED;
CUresult tl_drv_work_of_copy(const CUDA_MEMCPY3D *p, struct tl_drv_work *work) TL_DRV_UNLOCKED;
CUresult tl_drv_work_of_memops(unsigned count, const CUstreamBatchMemOpParams *ops,
                               struct tl_drv_work *work) TL_DRV_UNLOCKED;
CUresult tl_drv_work_of_params(CUgraphNodeParams *p,
                               /* a conditional's bodies are told in it */
                               struct tl_drv_work *work) TL_DRV_UNLOCKED;

bool tl_drv_graph_has_memory(const struct CUgraph_st *g) TL_DRV_LOCKED;

/* --- device/driver/graph_conditional.c --- */
CUresult tl_drv_work_of_conditional(CUDA_CONDITIONAL_NODE_PARAMS *p,
                                    struct tl_drv_work *work) TL_DRV_UNLOCKED;
/* Whether the graph may get such a node: a handle is for its graph and what is inside of that. */
CUresult tl_drv_conditional_may_add(const struct CUgraph_st *g,
                                    const struct tl_drv_work *work) TL_DRV_LOCKED;
struct tl_drv_conditional *
tl_drv_conditional_clone(const struct tl_drv_conditional *from) TL_DRV_LOCKED;
/* The body that the word asks for now; NULL if none. */
struct CUgraph_st *tl_drv_conditional_body(const struct tl_drv_conditional *c);
/* What gives the word its value when the graph is launched; false if nothing does. */
bool tl_drv_handle_default(const struct tl_drv_conditional *c, struct tl_drv_work *work);
void tl_drv_graph_drop_handles(struct CUgraph_st *g);
/* User objects.  Those without references are destroyed by the last function, which is to be called
 * without the lock. */
CUresult tl_drv_graph_copy_objects(struct CUgraph_st *to,
                                   const struct CUgraph_st *from) TL_DRV_LOCKED;
void tl_drv_graph_drop_objects(struct CUgraph_st *g) TL_DRV_LOCKED;
void tl_drv_objects_bury(void) TL_DRV_UNLOCKED;
bool tl_drv_graph_has_idle_handles(const struct CUgraph_st *g); /* that no node uses */

/* Graphs inside of a node: the child, or a conditional's bodies; NULL if there are no more. */
static inline struct CUgraph_st *tl_drv_node_inner(const struct CUgraphNode_st *n, size_t i)
{
    if (n->work.kind == TL_DRV_CHILD)
        return i == 0 ? n->work.child : NULL;
    if (n->work.kind == TL_DRV_CONDITIONAL)
        return i < n->work.conditional.what->n ? n->work.conditional.what->bodies[i] : NULL;
    return NULL;
}

#endif
