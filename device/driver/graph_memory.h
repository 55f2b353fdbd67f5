/* Memory that nodes of graphs allocate and free (device/driver/graph_memory.c). */
#ifndef TALLY_DEVICE_DRIVER_GRAPH_MEMORY_H
#define TALLY_DEVICE_DRIVER_GRAPH_MEMORY_H

#include "device/driver/device.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/memory.h"
#include "device/driver/work.h"

#include <stdbool.h>
#include <stddef.h>

struct CUgraph_st;
/* Memory, and the work of the node that allocates it. */
CUresult tl_drv_graph_memory_create(const struct tl_drv_place *place, struct CUctx_st *ctx,
                                    const struct CUgraph_st *owner, size_t bytes,
                                    struct tl_drv_work *work) TL_DRV_LOCKED;
/* What the node that allocates was made of. */
void tl_drv_graph_memory_props(const struct tl_drv_work *work, CUmemPoolProps *out) TL_DRV_LOCKED;
/* cuMemFree and cuMemFreeAsync: false if it is not live. */
bool tl_drv_graph_memory_free(struct tl_drv_alloc *a) TL_DRV_LOCKED;
/* The device has come to the free. */
void tl_drv_graph_memory_reached(struct tl_drv_alloc *a) TL_DRV_LOCKED;

/* Another node that allocates the same, in a copy; and one fewer. */
void tl_drv_graph_memory_ref(const struct tl_drv_work *work) TL_DRV_LOCKED;
void tl_drv_graph_memory_unref(const struct tl_drv_work *work) TL_DRV_LOCKED;
/* The graph's own node goes. */
void tl_drv_graph_memory_disown(const struct tl_drv_work *work,
                                const struct CUgraph_st *g) TL_DRV_LOCKED;
/* Whether the graph may get such a node; and it has got it. */
CUresult tl_drv_graph_memory_may_add(const struct CUgraph_st *g,
                                     const struct tl_drv_work *work) TL_DRV_LOCKED;
void tl_drv_graph_memory_added(struct CUgraph_st *g, const struct tl_drv_work *work) TL_DRV_LOCKED;
/* Takes memory from the device for all nodes that allocate. */
CUresult tl_drv_graph_memory_upload(const struct CUgraph_st *g) TL_DRV_LOCKED;
/* Before a launch: that nothing is allocated twice (unless what is live will be freed first) nor
 * freed that is not live, and that there is memory. */
CUresult tl_drv_graph_memory_check(const struct CUgraph_st *g, bool frees_first) TL_DRV_LOCKED;
/* What its nodes allocate and nobody has freed: how many, and as many as there is room for. */
size_t tl_drv_graph_memory_live(const struct CUgraph_st *g, CUdeviceptr *addresses,
                                size_t room) TL_DRV_LOCKED;
/* The launch will take place. */
void tl_drv_graph_memory_launched(const struct CUgraph_st *g) TL_DRV_LOCKED;

#endif
