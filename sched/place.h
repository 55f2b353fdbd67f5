/* Where a cluster puts jobs of one GPU each: the rules of Slurm and Kubernetes, and ours, over one
 * picture of the GPUs.  Used by `tally plan --place`, the simulator and the tests.
 *
 *     job (level, load, memory) ──► placer ──► GPU and slot, or nowhere
 *                                     ▲
 *             who is where ───────────┘
 *
 * Rules of others see what those systems see: free GPUs, or free parts of them, never load or
 * memory.  Ours puts at most one high job on a GPU, and beside it what has room in its memory and
 * gains most: see tl_fleet_put. */
#ifndef TALLY_SCHED_PLACE_H
#define TALLY_SCHED_PLACE_H

#include "tally/base.h"

enum { TL_PLACE_SLOTS = 2 }; /* jobs per GPU where GPUs are shared */
#define TL_PLACE_NOWHERE UINT32_MAX

enum tl_placer {
    TL_PLACE_SLURM,      /* gres/gpu: whole GPUs, of the first node that has one */
    TL_PLACE_SLURM_MPS,  /* gres/mps at 50 each: the first GPU that has a part left */
    TL_PLACE_KUBERNETES, /* whole GPUs, of the sampled node with the most that are free */
    TL_PLACE_REPLICAS,   /* the same with two time-slicing replicas of each GPU */
    TL_PLACE_TALLY,
    TL_PLACERS
};

/* What `tally plan --place=` and `tally-sim --placement=` call them. */
extern const char *const tl_placer_names[TL_PLACERS];
/* TL_PLACERS if there is none of that name. */
enum tl_placer tl_placer_of(const char *name);
/* Whether two jobs may be on one GPU. */
bool tl_placer_shares(enum tl_placer placer);

struct tl_place_job {
    bool is_high;
    bool is_whole; /* it asks for all parts of a GPU, where there are parts */
    double load;   /* part of a GPU that it uses alone */
    double memory_mb;
};

struct tl_place {
    uint32_t gpu, slot; /* gpu is TL_PLACE_NOWHERE if there is no place */
};

struct tl_fleet_options {
    enum tl_placer placer;
    uint32_t gpus, gpus_per_node; /* the last node may have fewer */
    double gpu_memory_mb;
    uint64_t seed; /* Kubernetes draws among equals */
};

struct tl_fleet;

/* 0, -EINVAL for no GPU or no node, -ENOMEM. */
int tl_fleet_create(struct tl_fleet **f, const struct tl_fleet_options *o, struct tl_error *err);
void tl_fleet_destroy(struct tl_fleet *f);

/* Finds a place and takes it.  Ours: a high job goes on an empty GPU, else beside the best-effort
 * job that uses least; any other goes on an empty GPU, else beside the high job that uses least,
 * else beside its like if both together use no more than a GPU has.  Always with room for both in
 * memory. */
struct tl_place tl_fleet_put(struct tl_fleet *f, const struct tl_place_job *job);
/* Whether that GPU would be a place for it, by the same rules. */
bool tl_fleet_fits(const struct tl_fleet *f, uint32_t gpu, const struct tl_place_job *job);
/* Takes a place there; it must fit. */
struct tl_place tl_fleet_put_on(struct tl_fleet *f, uint32_t gpu, const struct tl_place_job *job);
/* The place is free again. */
void tl_fleet_leave(struct tl_fleet *f, struct tl_place place);
/* A job uses more or less than it did. */
void tl_fleet_set_load(struct tl_fleet *f, struct tl_place place, double load);
/* Who is there; NULL if nobody. */
const struct tl_place_job *tl_fleet_at(const struct tl_fleet *f, struct tl_place place);

#endif
