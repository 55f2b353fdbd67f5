/* What compiled kernels and the process that runs them agree on.
 *
 * A kernel is compiled by tally-jit into a shared object that refers to nothing outside itself:
 * everything it needs comes in through the frame, everything it asks for goes out through the
 * frame's calls.  So one object serves all processes, and the cache on disk needs no relocation.
 * The object exports
 *
 *     const struct tl_dev_info tally_info;
 *     void tally_warp(struct tl_dev_frame *f, uint32_t warp);
 *         only if info.n_barriers is not 0: runs one warp of the frame's block on a stack of its own (see the `barrier`
 *         call)
 *     void tally_blocks(struct tl_dev_frame *f, uint32_t first, uint32_t count);
 *         only if it is 0: runs whole blocks, setting f->ctaid from the linear number
 * With info.uses_lanes, tally_warp runs a single thread: its warp is in the lower half of the
 * argument, its lane in the upper. Each then needs a stack of its own.  That is for kernels whose
 * lanes wait at different barriers.
 *
 * Addresses: device memory is ordinary memory, so global, constant and generic addresses are
 * pointers.  A shared address is an offset into f->shared, a local one an offset into the thread's
 * part of f->local; their generic forms are pointers. Parameters are read from f->params; the
 * address of a parameter is a pointer. */
#ifndef TALLY_DEVICE_ABI_H
#define TALLY_DEVICE_ABI_H

#include "tally/hash.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define TL_DEV_ABI_VERSION 8
#define TL_DEV_WARP 32
#define TL_DEV_MAX_STACK (64U << 20)

enum tl_dev_fault {
    TL_DEV_FAULT_NONE,
    TL_DEV_FAULT_TRAP,   /* trap */
    TL_DEV_FAULT_ASSERT, /* __assertfail */
    TL_DEV_FAULT_MISALIGNED,
    TL_DEV_FAULT_ADDRESS, /* found by the process through SIGSEGV */
    TL_DEV_FAULT_STACK,
    TL_DEV_FAULT_TIMEOUT,
    /* 32-bit index arithmetic wrapped inside a warp; see docs/device.md */
    TL_DEV_FAULT_LANE_WRAP,
    TL_DEV_FAULT_DIVERGED_SYNC, /* a warp-wide operation named lanes that are elsewhere */
    TL_DEV_FAULT_BARRIER,       /* barrier number or count out of range */
    TL_DEV_FAULT_DEADLOCK,      /* found by the process: all warps of a block wait for each other */
    TL_DEV_FAULT_TENSOR,        /* a tensor map that makes no sense, or that is not for this copy */
};

/* What is fetched from, and how. */
enum tl_dev_tex {
    TL_DEV_TEX_1D,
    TL_DEV_TEX_2D,
    TL_DEV_TEX_3D,
    TL_DEV_TEX_A1D, /* layers: their number is the first coordinate */
    TL_DEV_TEX_A2D,
    TL_DEV_TEX_CUBE, /* coordinates are a direction */
    TL_DEV_TEX_ACUBE,
    TL_DEV_TEX_QUERY, /* no fetch: width, height, depth and number of layers */
    TL_DEV_TEX_GEOMETRY = 0xff,
    TL_DEV_TEX_CHANNEL_SHIFT = 8, /* two bits: which channel is gathered */
    TL_DEV_TEX_GATHER = 1 << 10,  /* one channel of the four neighbours that a filter would mix */
    TL_DEV_TEX_LEVEL = 1 << 11,   /* the level of detail, a float, is the fourth coordinate */
    /* behind the coordinates: how they change, three floats to the right, three downwards */
    TL_DEV_TEX_GRAD = 1 << 12,
};

/* What a surface access does outside. */
enum tl_dev_surf { TL_DEV_SURF_TRAP, TL_DEV_SURF_CLAMP, TL_DEV_SURF_ZERO };

struct tl_dev_frame;

/* What a kernel may ask of its process.  Lanes are bits of a mask.  None of these returns after a
 * fault. */
struct tl_dev_calls {
    /* Meets the other warps.  `arriving` are the lanes that do.  kind 0 sync, 1 arrive, 2 red.popc,
     * 3 red.and, 4 red.or; count 0 means all threads of the block that have not exited.  Returns
     * the reduction (popc, or 0/1) over `votes`. */
    uint32_t (*barrier)(struct tl_dev_frame *f, uint32_t warp, uint32_t kind, uint32_t id,
                        uint32_t count, uint32_t arriving, uint32_t votes);
    /* A place where other warps of the block may run: spin loops, mbarrier waits.  Also tells the
     * watchdog. */
    void (*yield)(struct tl_dev_frame *f, uint32_t warp);
    void (*fault)(struct tl_dev_frame *f, uint32_t warp, uint32_t what, uint64_t detail)
        __attribute__((__noreturn__));
    /* vprintf(format, arguments) of one thread; returns what printf does. */
    int32_t (*vprintf)(struct tl_dev_frame *f, const char *format, const void *arguments);
    void (*assertfail)(struct tl_dev_frame *f, uint32_t warp, uint32_t lane, const char *message,
                       const char *file, uint32_t line, const char *function)
        __attribute__((__noreturn__));
    void *(*malloc)(struct tl_dev_frame *f, uint64_t bytes);
    void (*free)(struct tl_dev_frame *f, void *p);
    uint64_t (*globaltimer)(void);
    /* Texture fetch (enum tl_dev_tex): coordinates as float or int bits, four words (ten with
     * gradients); result as 32-bit words. */
    void (*tex)(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_float,
                const uint32_t *coords, uint32_t result[4]);
    void (*surf)(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_store,
                 const int32_t coords[4], uint32_t bytes, uint32_t clamp, uint32_t data[4]);
    /* 32-bit values base + offset[i], widened to 64 bits, are some base + offset[i] again for all
     * `lanes`: which?  Asked where that is not the widened base, because the values wrap somewhere
     * among the 32 lanes. */
    uint64_t (*rebase)(struct tl_dev_frame *f, uint32_t warp, uint32_t base, uint32_t lanes,
                       const int64_t offset[32], uint32_t is_signed);
    /* Only where f->has_bus: an access that others may race with (enum tl_dev_reach), perhaps to
     * memory behind the bus; and something needs what was read since. */
    void (*reach)(struct tl_dev_frame *f, const void *address, uint32_t kind);
    void (*settle)(struct tl_dev_frame *f);
    /* Copies the box at `coords` of the tensor whose map (device/tensor.h) is at `map`, from or to
     * shared memory.  `what`: enum tl_tensor_copy, with the rank.  How many bytes that are. */
    uint64_t (*tensor)(struct tl_dev_frame *f, uint32_t warp, const void *map, uint32_t what,
                       const int32_t *coords, uint8_t *shared);
    /* Writes one field (enum tl_tensor_field, with the axis) of the tensor map there. */
    void (*tensor_replace)(struct tl_dev_frame *f, uint32_t warp, void *map, uint32_t field,
                           uint64_t value);
    /* nanosleep: others run meanwhile. */
    void (*sleep)(struct tl_dev_frame *f, uint32_t warp, uint32_t ns);
    /* What the device runtime's functions ask of the driver for one thread of the block
     * (device/nest.h): seven arguments.  Anything but a pointer to memory is handed over. */
    uint64_t (*runtime)(struct tl_dev_frame *f, uint32_t thread, uint32_t what,
                        const uint64_t args[7]);
};

/* What kind of access: one that is waited for, or one that is not. */
enum tl_dev_reach { TL_DEV_READ, TL_DEV_WRITE, TL_DEV_ATOMIC };

/* One block in execution.  Set by the process before tally_warp, or before tally_blocks but for
 * ctaid. */
struct tl_dev_frame {
    const struct tl_dev_calls *calls;
    const uint8_t *params;
    /* static shared memory first, dynamic behind it (info.shared_bytes, 1024-aligned base) */
    uint8_t *shared;
    uint8_t *local;            /* info.local_bytes per thread, in linear thread order */
    const uint64_t *variables; /* addresses, in the order of info's names */
    uint32_t grid[3];
    uint32_t ctaid[3];
    uint32_t dynamic_shared_bytes;
    uint32_t smid, nsmid;
    uint64_t gridid;
    uint32_t exited[32]; /* per warp: lanes that have returned; kept by the kernel for `barrier` */
    void *process;       /* the process's own */
    /* of a cooperative launch: address of 64 zeroed bytes that all its blocks share; cooperative
     * groups find it through %envreg1 (upper half) and %envreg2 (lower) */
    uint64_t workspace;
    uint32_t has_bus; /* not 0: accesses to host memory are counted and take time */
};

/* The address of a device function: a number that its name gives, the same in all objects and
 * modules, and no pointer to anything.  A call through one compares it with those of the functions
 * that are there. */
static inline uint64_t tl_dev_function_address(const char *name, size_t n)
{
    return (uint64_t)0xf0 << 56 | (tl_hash_64(name, n) & 0xffffffffffff) << 4;
}

/* Sizes and names.  Strings are offsets into `text`, whose end is where the object's symbol
 * ends. */
struct tl_dev_info {
    uint32_t abi_version;
    uint32_t block[3]; /* compiled for this block size */
    uint32_t param_bytes;
    uint32_t shared_bytes;   /* static, rounded up to 16 */
    uint32_t local_bytes;    /* per thread, rounded up to 16 */
    uint32_t n_barriers;     /* 0: no warp ever waits for another, tally_blocks exists */
    uint32_t uses_grid_sync; /* blocks wait for each other: they are begun one by one */
    uint32_t n_variables;
    uint32_t registers; /* a guess for attributes: PTX registers live at once, capped to 255 */
    uint32_t n_instructions;
    uint32_t uses_lanes; /* see above */
    /* that its functions take when each is called once; recursion and calls out come on top */
    uint32_t stack_bytes;
    char text[]; /* kernel name, then the variables' names, each terminated */
};

static_assert(offsetof(struct tl_dev_frame, grid) == 40,
              "the translator addresses fields by these offsets");
static_assert(offsetof(struct tl_dev_frame, ctaid) == 52, "");
static_assert(offsetof(struct tl_dev_frame, dynamic_shared_bytes) == 64, "");
static_assert(offsetof(struct tl_dev_frame, smid) == 68, "");
static_assert(offsetof(struct tl_dev_frame, gridid) == 80, "");
static_assert(offsetof(struct tl_dev_frame, exited) == 88, "");
static_assert(offsetof(struct tl_dev_frame, workspace) == 224, "");
static_assert(offsetof(struct tl_dev_frame, has_bus) == 232, "");

#endif
