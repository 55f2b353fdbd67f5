/* Conditional nodes: bodies of a graph that run or not, or again and again, as a word says that
 * kernels write.
 *
 * The handle is the address of that word, so that cudaGraphSetConditional in a kernel is a store.
 * What a conditional node becomes when launched is a gate and an end.  The gate looks at the word
 * when its turn comes, and puts the operations of a body between itself and the end; behind a
 * loop's body it puts another gate:
 *
 *     gate ──────────────────────────────► end         nothing to do
 *     gate ──► body ─────────────────────► end         if, switch
 *     gate ──► body ──► gate ──► ... ────► end         while */
#include "device/driver/graph.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/op.h"
#include "device/driver/work.h"
#include "tally/check.h"

#include <stdlib.h>

/* Never given back to the system: a kernel that is still running may write to it. */
struct tl_drv_handle {
    _Atomic uint32_t value; /* first: its address is the handle */
    uint32_t default_value;
    bool assigns_default;
    atomic_uint refs; /* the graph's and those of nodes */
    bool is_used;     /* by a node */
    /* the graph that it was made for; NULL when that is gone */
    const struct CUgraph_st *owner;
    struct tl_drv_handle *next_in_graph, *next_free, *next_of_all;
};

/* The last reference may go where the driver's lock is held, or where it is not: these have one of
 * their own. */
static struct tl_mutex handles_lock = TL_MUTEX_INITIALIZER;
static struct tl_drv_handle *free_handles TL_GUARDED_BY(handles_lock);
static struct tl_drv_handle *all_handles TL_GUARDED_BY(handles_lock);

static struct tl_drv_handle *find_handle(CUgraphConditionalHandle handle)
{
    tl_mutex_lock(&handles_lock);
    struct tl_drv_handle *h = all_handles;
    while (h != NULL && ((uintptr_t)&h->value != handle || atomic_load(&h->refs) == 0))
        h = h->next_of_all;
    tl_mutex_unlock(&handles_lock);
    return h;
}

static void drop_handle(struct tl_drv_handle *h)
{
    unsigned refs = atomic_fetch_sub(&h->refs, 1);
    TL_CHECK(refs > 0);
    if (refs > 1)
        return;
    tl_mutex_lock(&handles_lock);
    h->next_free = free_handles;
    free_handles = h;
    tl_mutex_unlock(&handles_lock);
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags)
{
    (void)ctx;
    if (pHandle_out == NULL || !tl_drv_is_graph(hGraph) ||
        (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_mutex_lock(&handles_lock);
    struct tl_drv_handle *h = free_handles;
    if (h != NULL) {
        free_handles = h->next_free;
    } else {
        h = calloc(1, sizeof *h);
        if (h != NULL) {
            h->next_of_all = all_handles;
            all_handles = h;
        }
    }
    tl_mutex_unlock(&handles_lock);
    tl_drv_lock();
    if (h != NULL) {
        atomic_store(&h->value, defaultLaunchValue);
        h->default_value = defaultLaunchValue;
        h->assigns_default = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
        h->is_used = false;
        h->owner = hGraph;
        atomic_store(&h->refs, 1);
        h->next_in_graph = hGraph->handles;
        hGraph->handles = h;
        *pHandle_out = (uintptr_t)&h->value;
    }
    tl_drv_unlock();
    return h != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void tl_drv_graph_drop_handles(struct CUgraph_st *g)
{
    while (g->handles != NULL) {
        struct tl_drv_handle *h = g->handles;
        g->handles = h->next_in_graph;
        h->owner = NULL;
        drop_handle(h);
    }
}

bool tl_drv_graph_has_idle_handles(const struct CUgraph_st *g)
{
    for (const struct tl_drv_handle *h = g->handles; h != NULL; h = h->next_in_graph) {
        if (!h->is_used)
            return true;
    }
    return false;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static struct tl_drv_conditional *create(struct tl_drv_handle *h, CUgraphConditionalNodeType type,
                                         unsigned n)
{
    struct tl_drv_conditional *c = calloc(1, sizeof *c + n * sizeof(struct CUgraph_st *));
    if (c == NULL)
        return NULL;
    atomic_store(&c->refs, 1);
    c->handle = h;
    c->type = type;
    c->n = n;
    atomic_fetch_add(&h->refs, 1);
    return c;
}

/* Whether it is that graph, or stands in one of its nodes. */
static bool contains(const struct CUgraph_st *whole, const struct CUgraph_st *g) TL_DRV_LOCKED
{
    const struct CUgraph_st *inner;
    bool is_there = whole == g;
    for (const struct CUgraphNode_st *n = whole->first; n != NULL && !is_there; n = n->next)
        for (size_t i = 0; !is_there && (inner = tl_drv_node_inner(n, i)) != NULL; i++)
            is_there = contains(inner, g);
    return is_there;
}

CUresult tl_drv_conditional_may_add(const struct CUgraph_st *g, const struct tl_drv_work *work)
{
    if (work->kind != TL_DRV_CONDITIONAL)
        return CUDA_SUCCESS;
    struct tl_drv_handle *h = work->conditional.what->handle;
    if (h->owner == NULL || !contains(h->owner, g))
        return CUDA_ERROR_INVALID_VALUE;
    h->is_used = true;
    return CUDA_SUCCESS;
}

void tl_drv_conditional_unref(struct tl_drv_conditional *c)
{
    if (c == NULL)
        return;
    unsigned refs = atomic_fetch_sub(&c->refs, 1);
    TL_CHECK(refs > 0);
    if (refs > 1)
        return;
    for (unsigned i = 0; i < c->n; i++)
        tl_drv_graph_destroy(c->bodies[i]);
    drop_handle(c->handle);
    free(c);
}

CUresult tl_drv_work_of_conditional(CUDA_CONDITIONAL_NODE_PARAMS *p, struct tl_drv_work *work)
{
    bool is_if = p->type == CU_GRAPH_COND_TYPE_IF, is_while = p->type == CU_GRAPH_COND_TYPE_WHILE;
    if ((!is_if && !is_while && p->type != CU_GRAPH_COND_TYPE_SWITCH) || p->size == 0 ||
        (is_if && p->size > 2) || (is_while && p->size != 1) || p->size > 1u << 16)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct tl_drv_handle *h = find_handle(p->handle);
    struct tl_drv_conditional *c = h != NULL ? create(h, p->type, p->size) : NULL;
    CUresult r = h == NULL   ? CUDA_ERROR_INVALID_VALUE
                 : c == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                             : CUDA_SUCCESS;
    for (unsigned i = 0; r == CUDA_SUCCESS && i < c->n; i++) {
        c->bodies[i] = tl_drv_graph_create();
        r = c->bodies[i] != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (r == CUDA_SUCCESS)
            c->bodies[i]->is_child = true;
    }
    if (r != CUDA_SUCCESS)
        tl_drv_conditional_unref(c);
    tl_drv_unlock();
    if (r != CUDA_SUCCESS)
        return r;
    *work = (struct tl_drv_work){.kind = TL_DRV_CONDITIONAL, .conditional = {.what = c}};
    p->phGraph_out = c->bodies;
    return CUDA_SUCCESS;
}

struct tl_drv_conditional *tl_drv_conditional_clone(const struct tl_drv_conditional *from)
{
    struct tl_drv_conditional *c = create(from->handle, from->type, from->n);
    for (unsigned i = 0; c != NULL && i < c->n; i++) {
        c->bodies[i] = tl_drv_graph_clone(from->bodies[i]);
        if (c->bodies[i] == NULL) {
            tl_drv_conditional_unref(c);
            return NULL;
        }
        c->bodies[i]->is_child = true;
    }
    return c;
}

/* --- launching -------------------------------------------------------------------------------- */

bool tl_drv_handle_default(const struct tl_drv_conditional *c, struct tl_drv_work *work)
{
    if (!c->handle->assigns_default)
        return false;
    *work = (struct tl_drv_work){
        .kind = TL_DRV_MEMOP,
        .memop = {.address = (void *)&c->handle->value, .value = c->handle->default_value}};
    return true;
}

struct CUgraph_st *tl_drv_conditional_body(const struct tl_drv_conditional *c)
{
    /* acquire: what the kernel wrote before it decided is there. */
    uint32_t value = atomic_load_explicit(&c->handle->value, memory_order_acquire);
    if (c->type == CU_GRAPH_COND_TYPE_SWITCH)
        return value < c->n ? c->bodies[value] : NULL;
    return value != 0 ? c->bodies[0] : c->n > 1 ? c->bodies[1] : NULL;
}
