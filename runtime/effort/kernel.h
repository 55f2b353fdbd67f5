/* Kernels by handle: what the driver tells of them, and what was made of them. */
#ifndef TALLY_EFFORT_KERNEL_H
#define TALLY_EFFORT_KERNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/room.h"
#include "tally/effort.h"
#include "tally/ptx.h"
#include "tally/sched.h"

struct tl_eff_context;
struct tl_eff_item;
struct tl_eff_launch;
struct tl_eff_profile;
struct tl_eff_stream;
struct tl_eff_variant;
struct tl_record_kernel;

enum { TL_EFF_MAX_BLOCKSHAPES = 8, TL_EFF_EXTRA_BYTES = 256 };

struct tl_eff_param {
    uint32_t offset, size;
};

/* What was learnt of it when it was first seen never changes; shapes, profiles and variants are
 * under the lock, but for what it says otherwise. */
struct tl_eff_kernel {
    struct tl_eff_kernel *next; /* in its hash slot */
    CUfunction handle;          /* a CUkernel if `is_library` */
    CUfunction function;        /* the same in its context */
    struct tl_eff_context *context;
    const struct tl_captured_kernel *captured; /* NULL if the shim never saw it */
    void *module, *library;                    /* copies, for when it is unloaded */
    char *name;
    bool is_library;
    bool is_gang;    /* it waits for kernels of other processes: never cut, and needs no permit */
    bool is_unknown; /* its parameters cannot be found out: it is launched by its caller */
    uint32_t n_params, param_bytes;
    struct tl_eff_param *params;
    int max_threads, max_dynamic;
    int ptx_version;    /* of the code that the driver runs; 0: it does not say */
    int binary_version; /* the architecture of that code; 0: the same */
    /* block sizes that were launched without an error */
    uint32_t shapes[TL_EFF_MAX_BLOCKSHAPES][3];
    uint32_t n_shapes;
    _Atomic uint8_t launches_graphs; /* 1: no, 2: yes, 0: not looked yet */
    _Atomic bool was_objected_to;    /* the record says why launches of it run whole */
    bool was_said_to_fit;  /* the record has a note that it is not cut because its grid is small, */
    bool was_said_to_wait; /* and one that it is not because its blocks were found to wait */
    uint32_t n_clean;      /* stops since it was last found to wait that it left by itself */
    /* how many of its blocks an SM has side by side, by their size; the executor's own */
    struct tl_eff_rooms rooms;
    struct tl_record_kernel *record;
    struct tl_eff_profile *profiles;
    /* For how long launches were held back for a variant in all, and since when one is now (0: none
     * is); the executor's own. */
    struct {
        uint64_t total_ns, since_ns;
    } held[TL_RUNG_WHOLE];
    /* by number of grid dimensions, which the gate does not care about */
    struct tl_eff_variant *variants[TL_RUNG_WHOLE][3];
    /* of what it is, cheaply: name, parameters, what the driver tells; the same in every process */
    uint64_t fingerprint;
};

/* Forgets all. */
void tl_eff_kernels_start(void) TL_EFF_UNLOCKED;

/* The kernel behind a handle in the current context, or NULL. */
struct tl_eff_kernel *tl_eff_kernel(CUfunction handle,
                                    struct tl_eff_context *context) TL_EFF_UNLOCKED;
/* Whether it may launch graphs (runtime/effort/launches.h). */
bool tl_eff_kernel_launches_graphs(struct tl_eff_kernel *k) TL_EFF_UNLOCKED;
/* Forgets kernels and frees their variants.  Those that are still on the device are freed by a
 * later call.  The lock is given up meanwhile. */
void tl_eff_kernels_forget(const void *module, const void *library,
                           struct tl_eff_context *context) TL_EFF_LOCKED;
/* What was learnt about all of them goes to tl_eff_profile_keep. */
void tl_eff_kernels_keep(void) TL_EFF_LOCKED;

/* Starts the launch, whole, at once.  Context current. */
CUresult tl_eff_launch_whole(const struct tl_eff_launch *l, CUstream stream) TL_EFF_UNLOCKED;
/* Copies what the launch needs.  NULL without memory or if the kernel's parameters are not
 * known. */
struct tl_eff_item *tl_eff_launch_item(const struct tl_eff_launch *shape, void **params,
                                       void **extra);
/* What is known of a launch whose parameters are in one buffer. */
struct tl_eff_packed {
    uint64_t ns;       /* that it takes on the whole device; 0 if not known */
    bool wants_sample; /* it is to be measured, for the first time or again */
    bool is_gang;
    CUfunction function; /* NULL if the kernel is not known */
};
struct tl_eff_packed tl_eff_packed(struct tl_eff_context *c,
                                   const CUDA_KERNEL_NODE_PARAMS_v2 *shape, void *params,
                                   size_t n) TL_EFF_UNLOCKED;
/* A launch whose parameters are in one buffer: a graph's node. */
CUresult tl_eff_launch_packed(struct tl_eff_stream *s, const CUDA_KERNEL_NODE_PARAMS_v2 *shape,
                              void *params, size_t n, const CUlaunchAttribute *attributes,
                              unsigned n_attributes) TL_EFF_UNLOCKED;

#endif
